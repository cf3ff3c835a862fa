"""Rank-biased precision: the gain of a reader who goes on to the next result with probability p, here 0.8.

    RBP = (1 - p) * sum over ranks r of relevant(r) * p^(r - 1)

Source: Moffat & Zobel, Rank-biased precision for measurement of retrieval effectiveness, 2008.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.evaluation.metrics import GradedRankings, MeasureFamily
from cems_workbench.pipeline.table import Floats

PERSISTENCE = 0.8


def rank_biased_precision(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) rank-biased precision of the first k, all when None."""
    relevant = rankings.relevant(grade)[:, :k]
    gain: Floats = (1 - PERSISTENCE) * (relevant @ PERSISTENCE ** np.arange(relevant.shape[1]))
    return gain


MEASURE = MeasureFamily("RBP", "rank-biased precision with p = 0.8", rank_biased_precision)
