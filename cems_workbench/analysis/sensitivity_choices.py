"""What a reader of a sweep does with it: leave order aside, step into a segment, and see a labelled set along the same range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cems_workbench.analysis.sensitivity import Sweep
from cems_workbench.analysis.sensitivity_segments import Segment
from cems_workbench.analysis.weight_map import grid
from cems_workbench.config import PipelineConfig
from cems_workbench.progress import Progress, silent
from cems_workbench.why.labelled import NDCG_DEPTH, LabelledSet
from cems_workbench.why.trial import changed

HIT_DEPTH = 5
POINTS = 25
FINER = (1, 2, 10, 20, 100, 1000, 10_000)
"""Parts of a slider's step that a value inside a segment may be rounded to, the coarsest first."""


def by_members(found: Sweep) -> Sweep:
    """The sweep in which only who is in the first k counts: neighbours with the same members are one segment."""
    merged: list[Segment] = []
    for one in found.segments:
        if found.numeric and merged and set(merged[-1].results) == set(one.results):
            merged[-1] = Segment(merged[-1].first, one.last, merged[-1].results)
        else:
            merged.append(one)
    return replace(found, segments=tuple(merged))


def inside(found: Sweep, segment: Segment) -> Any:
    """The value to apply: the middle of the segment, as round as it can be while it is inside; a choice is itself."""
    if not found.numeric or segment.first == segment.last:
        return segment.first
    if found.spec.type is int:
        return (segment.first + segment.last) // 2
    middle = (segment.first + segment.last) / 2
    for finer in FINER:
        step = (found.spec.step or 0.01) / finer
        value = round(round(middle / step) * step, 10)
        if segment.first <= value <= segment.last:
            return value
    return middle


def neighbours(found: Sweep) -> tuple[Segment | None, Segment | None]:
    """The segments below and above the present one."""
    at = found.segments.index(found.present) if found.present in found.segments else None
    if at is None:
        return None, None
    below = found.segments[at - 1] if at > 0 else None
    return below, found.segments[at + 1] if at + 1 < len(found.segments) else None


@dataclass(frozen=True, slots=True)
class Curve:
    """A labelled set along a range: at each value the share of queries with a hit in the first `HIT_DEPTH`, and mean nDCG@10."""

    values: tuple[Any, ...]
    hit: tuple[float, ...]
    ndcg: tuple[float, ...]
    queries: int


def labelled_curve(
    labelled: LabelledSet, config: PipelineConfig, found: Sweep, points: int = POINTS, progress: Progress = silent
) -> Curve:
    """Replay every labelled query at about `points` values of the sweep's range, the present one among them."""
    values = grid(found.spec, config, points) if found.numeric else [one.first for one in found.segments]
    measured: list[tuple[float, float]] = []
    for i, value in enumerate(values):
        progress("replaying the judged queries", i, len(values))
        measured.append(labelled.means(changed(config, found.spec.path, value), HIT_DEPTH))
    hit, ndcg = zip(*measured, strict=True)
    return Curve(tuple(values), hit, ndcg, len(labelled.qids))


def shown_memories(found: Sweep, first: Sequence[str], most: int) -> list[str]:
    """The memories that a chart of ranks draws: those asked for `first`, then those with the best ranks over most of the range."""
    length = {one: float(one.last - one.first) if found.numeric else 1.0 for one in found.segments}
    weight: dict[str, float] = {}
    for one in found.segments:
        for rank, key in enumerate(one.results):
            weight[key] = weight.get(key, 0.0) + (found.k - rank) * (length[one] + 1e-12)
    ranked = sorted(weight, key=lambda key: (-weight[key], key))
    asked = [key for key in first if key in weight]
    return list(dict.fromkeys([*asked, *found.present.results, *ranked]))[: max(most, len(found.present.results))]


__all__ = ["HIT_DEPTH", "NDCG_DEPTH", "Curve", "by_members", "inside", "labelled_curve", "neighbours", "shown_memories"]
