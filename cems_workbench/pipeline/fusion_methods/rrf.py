"""Reciprocal rank fusion: Σ weight/(k+rank).

    base = weight / (k + rank)

k flattens the difference between ranks; 60 is the value of the paper. The top-rank and importance bonuses are added to it.

Source: Cormack, Clarke & Büttcher, Reciprocal rank fusion outperforms Condorcet and individual rank learning methods, SIGIR 2009.
"""

from __future__ import annotations

from cems_workbench.config.sections.ranking import FusionConfig
from cems_workbench.pipeline.fusion_methods import Contribution, FusionMethod, Hits
from cems_workbench.pipeline.table import Floats


def base(hits: Hits, weight: Floats, config: FusionConfig) -> Floats:
    """(H) weight / (k + rank)."""
    weight /= config.k + hits.rank
    return weight


def explain(term: Contribution, config: FusionConfig) -> str:
    """ "1 / (60 + 3) = 0.0159" """
    return f"{term.weight:g} / ({config.k} + {term.rank}) = {term.base:.4f}"


FUSION_METHOD = FusionMethod(
    "rrf",
    base,
    reads="ranks",
    linear=True,
    parameters=("fusion.k", "fusion.top_rank_bonus", "fusion.importance_bonus_ranks"),
    explain=explain,
)
