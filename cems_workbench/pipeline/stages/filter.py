"""filter: drop low scores.

Score < `min_score` is dropped (null: off), then every score below the `percentile` of those left (linear
interpolation; 0: off). Raw mode (debug) switches the filter off and says so.

Source: CEMS retrieval guide (relevance filtering, raw mode); ACE stage 2; docs/internals/specification.md, "filter".
"""

from __future__ import annotations

import numpy as np

from cems_workbench.config.sections import FilterConfig
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow, pass_through
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import Bools, Floats, Ranking, reranked_by


def apply_filter(before: Ranking, config: FilterConfig) -> StageArrays[StageRow, StageFields]:
    """Drop candidates by fused score."""
    enough = before.alive if config.min_score is None else before.alive & (before.score >= config.min_score)
    kept, floor = enough, np.full(len(enough), -np.inf)
    if config.percentile > 0:
        floor = percentile(before.score, enough, config.percentile)
        kept = enough & (before.score >= floor[:, None])

    def reason(q: int, c: int) -> str:
        score = before.score[q, c]
        if not enough[q, c]:
            return f"score {score:.4f} is below the minimum {config.min_score:g}"
        return f"score {score:.4f} is below percentile {config.percentile:g}, which is {floor[q]:.4f}"

    def warnings(q: int) -> list[str]:
        return ["the filter dropped every candidate"] if before.alive[q].any() and not kept[q].any() else []

    return StageArrays(
        entered=before.alive, before=before, after=reranked_by(kept, before), reason=reason, warnings=warnings
    )


def percentile(score: Floats, alive: Bools, percent: float) -> Floats:
    """(Q) percentile of the living scores by linear interpolation; -inf for a query without candidates."""
    ordered = np.sort(np.where(alive, score, np.inf), axis=1)
    count = alive.sum(axis=1)
    place = np.maximum(count - 1, 0) * percent / 100
    low, high = np.floor(place).astype(int), np.ceil(place).astype(int)
    rows = np.arange(len(score))
    if score.shape[1] == 0:
        return np.full(len(score), -np.inf)
    below, above = ordered[rows, low], ordered[rows, high]
    inside = count > 0
    below, above = np.where(inside, below, 0.0), np.where(inside, above, 0.0)
    return np.where(inside, below + (above - below) * (place - low), -np.inf)


def _off(given: StageInput) -> StageArrays[StageRow, StageFields]:
    said = ["raw mode: the relevance filter is off"] if given.config.query.raw else []
    return pass_through(given.ranking, StageRow, StageFields, warnings=lambda q: said)


FILTER = Stage(
    name="filter",
    title="Filter",
    description="Drops candidates whose fused score is too low.",
    reads=("filter", "query.raw"),
    apply=lambda given: apply_filter(given.ranking, given.config.filter),
    when_off=_off,
    row=StageRow,
    fields=StageFields,
    switch=Switch(
        "filter",
        {"filter.min_score": None, "filter.percentile": 0.0},
        title="relevance filter",
        applies=lambda config: not config.query.raw,
    ),
)
