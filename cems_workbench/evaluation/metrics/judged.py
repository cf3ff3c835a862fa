"""Judged@k: the share of the first k results that anybody judged. Where it is low, every other measure is a guess.

Source: ir-measures, Judged, which divides by the results there are when they are fewer than k.
"""

from __future__ import annotations

from cems_workbench.evaluation.metrics.measure import MeasureFamily
from cems_workbench.evaluation.metrics.rankings import GradedRankings
from cems_workbench.pipeline.table import Floats


def judged_share(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the judged share of the first k results; 0 without results. `grade` has no part in it."""
    shown = rankings.filled[:, :k].sum(axis=1)
    share: Floats = (rankings.judged & rankings.filled)[:, :k].sum(axis=1) / shown.clip(1)
    return share


MEASURE = MeasureFamily(
    "Judged",
    "share of the first k that anybody judged",
    judged_share,
    reads_grade=False,
    needs_relevant=False,
    reads_judgments=False,
    place=7,
)
