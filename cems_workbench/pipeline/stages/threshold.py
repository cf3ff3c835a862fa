"""threshold: cut list hits whose normalised score is too low, before fusion.

`fixed` cuts below one value; 0.0 means 0.0 (the memory agent's `threshold or 0.6` made 0.6 of it). `adaptive` tries
max - i * step (rounded to 1e-10) while above min, then min itself (the seed's float loop never reached 0.35; `steps: float`
subtracts as it does, at most int((max - min) / step) + 1 values while they are at least min), and stops at the first threshold with at
least int(limit * target_ratio) distinct memories over the lists it applies to; when none has that many, the first that had the most.
Lists it does not apply to pass whole.

Source: memory agent, adaptive similarity thresholds; docs/internals/specification.md, "threshold".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.config.sections import ThresholdConfig
from cems_workbench.pipeline.list_sources import SOURCES, as_cosine, list_label
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow, field_names, plain_fields, rows_of
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, ListArrays, memoized, unranked


@dataclass(frozen=True, slots=True)
class ThresholdEntry:
    """A candidate in one list that took part: its normalised score, and whether that passed."""

    list: str
    normalized: float
    kept: bool


@dataclass(frozen=True, slots=True)
class ThresholdRow(StageRow):
    """The candidate in every list that took part; empty if the stage is off."""

    lists: tuple[ThresholdEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class ThresholdSearch:
    """The threshold used, those visited with the distinct memories at each, those at the one used, and how many were wanted."""

    final: float
    visited: tuple[float, ...]
    counts: tuple[int, ...]
    unique: int
    target: int | None


@dataclass(frozen=True, slots=True)
class ThresholdFields(StageFields):
    """The mode and the search for the threshold; None if the stage is off."""

    mode: str = "none"
    search: ThresholdSearch | None = None

    def to_json(self) -> dict[str, Any]:
        """The mode and the search, as plain values."""
        found = {} if self.search is None else plain_fields(self.search, field_names(ThresholdSearch))
        return {"mode": self.mode} | found


@dataclass(frozen=True, eq=False)
class _Search:
    """Per query: the threshold used, how many candidate thresholds were visited, distinct memories at each."""

    final: Floats
    visited: Ints
    counts: Ints
    tried: Floats


def apply_threshold(given: StageInput) -> StageArrays[ThresholdRow, ThresholdFields]:
    """Cut the lists named in `applies_to`."""
    # The lists depend on the scale, so their memo needs no key of it.
    key = (given.config.threshold, given.config.assembly.limit)
    return memoized(given.lists.memo, "threshold", key, lambda: _cut(given))


def _cut(given: StageInput) -> StageArrays[ThresholdRow, ThresholdFields]:
    table, lists, before, config = given.table, given.lists, given.ranking, given.config.threshold
    limit = given.config.assembly.limit
    applies = np.array([source in config.applies_to for source in SOURCES] + [False])[table.lists.source]
    spared = None if lists.own_scale is None else applies & lists.own_scale
    if spared is not None:
        applies = applies & ~spared
    subject = lists.present & applies[:, :, None]
    best = np.where(subject, lists.score, -np.inf).max(axis=1, initial=-np.inf)
    tried = np.array([config.fixed] if config.mode == "fixed" else adaptive_thresholds(config))
    search = _search(best, tried, _target(config, limit))
    present = lists.present & ~(subject & (lists.score < search.final[:, None, None]))
    alive = present.any(axis=1)
    score = np.where(present, lists.score, -np.inf).max(axis=1, initial=-np.inf)

    def reason(q: int, c: int) -> str:
        threshold = float(search.final[q])
        said = as_cosine(given.config, threshold) if "vector" in config.applies_to else None
        return f"best list score {best[q, c]:.4f} is below the threshold {threshold:.4g}" + (
            f" ({said})" if said else ""
        )

    def warnings(q: int) -> list[str]:
        there = lists.present[q].any(axis=1)
        if spared is not None and (spared[q] & there).any():
            return ["the vector list has no cosines: it passes whole"]
        if not subject[q].any() and there.any():
            applied = ", ".join(config.applies_to) or "no list"
            return [f"it applies to {applied}, where there is no hit: every list passes whole"]
        reached, wanted = int(search.counts[q, np.flatnonzero(tried == search.final[q])[0]]), _target(config, limit)
        if config.mode == "adaptive" and reached < wanted:
            return [f"no threshold found {wanted:g} memories; {search.final[q]:g} had the most, {reached}"]
        return []

    return StageArrays(
        entered=before.alive,
        before=before,
        after=unranked(alive, np.where(alive, score, np.nan)),
        row=rows_of(ThresholdRow, lambda q: _entries(table, lists, present, q)),
        fields=lambda q: _fields(search, config, limit, q),
        reason=reason,
        warnings=warnings,
        lists=ListArrays(lists.places, present, lists.score, lists.active, lists.own_scale),
    )


def adaptive_thresholds(config: ThresholdConfig) -> list[float]:
    """The thresholds `adaptive` may try, falling; with exact steps the minimum last, with float steps as far as they come."""
    bounds = config.adaptive
    values: list[float] = []
    if bounds.steps == "float":
        value = bounds.max
        while value >= bounds.min and len(values) < int((bounds.max - bounds.min) / bounds.step) + 1:
            values.append(value)
            value -= bounds.step
        return values or [bounds.max]
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
    """`best` (Q, C) is each memory's best score over the lists that are cut, -inf without one."""
    ordered = np.sort(best, axis=1)
    below = [np.searchsorted(row, tried, side="left") for row in ordered]
    counts = best.shape[1] - np.array(below, np.int64).reshape(len(best), len(tried))  # of no query too
    enough = counts >= target
    chosen = np.where(enough.any(axis=1), enough.argmax(axis=1), counts.argmax(axis=1))
    visited = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, len(tried))
    return _Search(tried[chosen], visited, counts, tried)


def _entries(table: CandidateTable, lists: ListArrays, present: Bools, q: int) -> list[tuple[ThresholdEntry, ...]]:
    entries: list[list[ThresholdEntry]] = [[] for _ in range(table.shape[1])]
    candidates, hit = np.nonzero(lists.present[q].T)
    scores, kept = lists.score[q, hit, candidates].tolist(), present[q, hit, candidates].tolist()
    names = table.lists.names[q]
    for c, i, score, passes in zip(candidates.tolist(), hit.tolist(), scores, kept, strict=True):
        entries[c].append(ThresholdEntry(names[i], score, passes))
    return list(map(tuple, entries))


def _fields(search: _Search, config: ThresholdConfig, limit: int | None, q: int) -> ThresholdFields:
    visited = int(search.visited[q])
    at = int(np.flatnonzero(search.tried == search.final[q])[0])
    return ThresholdFields(
        config.mode,
        ThresholdSearch(
            final=float(search.final[q]),
            visited=tuple(search.tried[:visited].tolist()),
            counts=tuple(search.counts[q, :visited].tolist()),
            unique=int(search.counts[q, at]),
            target=int(target) if math.isfinite(target := _target(config, limit)) else None,
        ),
    )


THRESHOLD = Stage(
    name="threshold",
    title="Threshold",
    description="Cuts list hits below a similarity threshold, before fusion.",
    works_on="lists",
    reads=("threshold", "assembly.limit", "lists.vector"),
    apply=apply_threshold,
    row=ThresholdRow,
    fields=ThresholdFields,
    switch=Switch("threshold", {"threshold.mode": "none"}),
    detail=lambda row, config: ", ".join(
        f"{list_label(entry.list)} {entry.normalized:.4f}" for entry in row.lists if entry.kept
    ),
)
