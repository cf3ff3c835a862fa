"""nDCG@k: gained cumulated with a discount, by the most that could have been gained.

    DCG@k = sum over ranks r <= k of gain / log2(1 + r),    nDCG@k = DCG@k / DCG@k of the judged memories, best first

The gain is the grade itself (linear), as in trec_eval's ndcg_cut, so that numbers compare with published ones; the exponential
gain 2^grade - 1 (Burges et al. 2005) differs from it only where grades above 1 are given. A negative grade gains nothing.

Source: Järvelin & Kekäläinen 2002; trec_eval, m_ndcg_cut.c.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings, discounts
from cems_workbench.pipeline.table import Floats, Ints


def ndcg(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) nDCG over the first k, all when None; 0 where nothing can be gained. `grade` has no part in it."""
    best = _cumulated(rankings.ideal, k)
    gained = _cumulated(np.where(rankings.judged, rankings.grade, 0), k)
    return np.divide(gained, best, out=np.zeros_like(gained), where=best > 0)


def _cumulated(grades: Ints, k: int | None) -> Floats:
    gains = np.maximum(grades[:, :k], 0)
    total: Floats = gains @ discounts(gains.shape[1])
    return total


MEASURE = MeasureFamily(
    "nDCG", "graded gain, discounted by rank, of the best possible", ndcg, reads_grade=False, place=5
)
