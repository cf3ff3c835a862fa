"""threshold: cut list hits whose normalised score is too low, before fusion.

`fixed` cuts below one value; 0.0 means 0.0 (the memory agent's `threshold or 0.6` made 0.6 of it). `adaptive` tries
max - i * step (rounded to 1e-10) while above min, then min itself (the seed's float loop never reached 0.35), and stops at
the first threshold with at least int(limit * target_ratio) distinct memories over the lists it applies to; when none
has that many, the first that had the most. Lists it does not apply to pass whole.

Source: memory agent, adaptive similarity thresholds; PIPELINE.md, "threshold".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.config.sections.ranking import ThresholdConfig
from cems_workbench.pipeline.evidence import SOURCES
from cems_workbench.pipeline.table import (
    Bools,
    CandidateTable,
    Floats,
    Ints,
    ListArrays,
    StageArrays,
    pass_through,
    remembered,
    unranked,
)


@dataclass(frozen=True, eq=False)
class _Search:
    """Per query: the threshold used, how many candidate thresholds were visited, distinct memories at each."""

    final: Floats
    visited: Ints
    counts: Ints
    tried: Floats


def apply_threshold(table: CandidateTable, lists: ListArrays, config: ThresholdConfig, limit: int | None) -> ListArrays:
    """Cut the lists named in `applies_to`. `limit` is the result limit the adaptive target is a share of."""
    if config.mode == "none":
        stage = pass_through("threshold", lists.stage.after, fields=lambda q: {"mode": "none"})
        return ListArrays(lists.present, lists.score, stage, lists.memo)
    return remembered(lists.memo, "threshold", (config, limit), lambda: _cut(table, lists, config, limit))


def _cut(table: CandidateTable, lists: ListArrays, config: ThresholdConfig, limit: int | None) -> ListArrays:
    standing = lists.stage.after
    applies = np.array([source in config.applies_to for source in SOURCES] + [False])[table.lists.source]
    subject = lists.present & applies[:, :, None]
    best = np.where(subject, lists.score, -np.inf).max(axis=1, initial=-np.inf)
    tried = np.array([config.fixed] if config.mode == "fixed" else adaptive_thresholds(config))
    search = _search(best, tried, _target(config, limit))
    present = lists.present & ~(subject & (lists.score < search.final[:, None, None]))
    alive = present.any(axis=1)
    score = np.where(present, lists.score, -np.inf).max(axis=1, initial=-np.inf)
    stage = StageArrays(
        "threshold",
        entered=standing.alive,
        before=standing,
        after=unranked(alive, np.where(alive, score, np.nan)),
        reason=lambda q, c: f"best list score {best[q, c]:.4f} is below the threshold {search.final[q]:.4g}",
        columns={"lists": _membership(table, lists, present)},
        warnings=_warnings(search, config, limit),
        fields=lambda q: _fields(search, config, limit, q),
    )
    return ListArrays(present, lists.score, stage)


def adaptive_thresholds(config: ThresholdConfig) -> list[float]:
    """The thresholds `adaptive` may try, falling, the minimum last."""
    bounds = config.adaptive
    values = []
    i = 0
    while (value := round(bounds.max - i * bounds.step, 10)) > bounds.min:
        values.append(value)
        i += 1
    return [*values, bounds.min]


def _target(config: ThresholdConfig, limit: int | None) -> float:
    if config.mode == "fixed":
        return 0
    return np.inf if limit is None else int(limit * config.adaptive.target_ratio)


def _search(best: Floats, tried: Floats, target: float) -> _Search:
    """`best` (Q, C) is each memory's best score over the lists that are cut, -inf where it has none."""
    ordered = np.sort(best, axis=1)
    counts = np.stack([best.shape[1] - np.searchsorted(row, tried, side="left") for row in ordered])
    enough = counts >= target
    chosen = np.where(enough.any(axis=1), enough.argmax(axis=1), counts.argmax(axis=1))
    visited = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, len(tried))
    return _Search(tried[chosen], visited, counts, tried)


def _membership(table: CandidateTable, lists: ListArrays, present: Bools) -> Callable[[int, int], list[dict[str, Any]]]:
    def read(q: int, c: int) -> list[dict[str, Any]]:
        return [
            {"list": name, "normalized": float(lists.score[q, i, c]), "kept": bool(present[q, i, c])}
            for i, name in enumerate(table.lists.names[q])
            if lists.present[q, i, c]
        ]

    return read


def _warnings(search: _Search, config: ThresholdConfig, limit: int | None) -> Callable[[int], list[str]]:
    def warnings(q: int) -> list[str]:
        reached = int(search.counts[q, np.flatnonzero(search.tried == search.final[q])[0]])
        if config.mode == "adaptive" and reached < _target(config, limit):
            return [
                f"no threshold found {_target(config, limit):g} memories; {search.final[q]:g} had the most, {reached}"
            ]
        return []

    return warnings


def _fields(search: _Search, config: ThresholdConfig, limit: int | None, q: int) -> dict[str, Any]:
    visited = int(search.visited[q])
    at = int(np.flatnonzero(search.tried == search.final[q])[0])
    return {
        "mode": config.mode,
        "final": float(search.final[q]),
        "visited": [float(value) for value in search.tried[:visited]],
        "counts": [int(value) for value in search.counts[q, :visited]],
        "unique": int(search.counts[q, at]),
        "target": int(target) if math.isfinite(target := _target(config, limit)) else None,
    }
