"""Reciprocal rank fusion: Σ weight/(k+rank).

    base = weight / (k + rank)

k flattens the difference between ranks; 60 is the value of the paper. `fusion.rank_base: 0` counts ranks from 0; k + rank is at least
`LEAST_DENOMINATOR`, which only k 0 with ranks from 0 comes below. The top-rank and importance bonuses are added to it.

Source: Cormack, Clarke & Büttcher, Reciprocal rank fusion outperforms Condorcet and individual rank learning methods, SIGIR 2009.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.config.sections import FusionConfig
from cems_workbench.pipeline.fusion_methods import LEAST_DENOMINATOR, Contribution, FusionMethod, Hits
from cems_workbench.pipeline.table import Floats


def base(hits: Hits, weight: Floats, config: FusionConfig) -> Floats:
    """(H) weight / (k + rank)."""
    before_first = config.k + config.rank_base - 1
    if before_first + 1 < LEAST_DENOMINATOR:
        weight /= np.maximum(before_first + hits.rank, LEAST_DENOMINATOR)
    else:
        weight /= before_first + hits.rank
    return weight


def explain(term: Contribution, config: FusionConfig) -> str:
    """ "1 / (60 + 3) = 0.0159" """
    return f"{term.weight:g} / ({config.k:g} + {term.rank - 1 + config.rank_base}) = {term.base:.4f}"


FUSION_METHOD = FusionMethod(
    "rrf",
    base,
    reads="ranks",
    linear=True,
    parameters=("fusion.k", "fusion.rank_base", "fusion.top_rank_bonus", "fusion.importance_bonus_ranks"),
    explain=explain,
)
