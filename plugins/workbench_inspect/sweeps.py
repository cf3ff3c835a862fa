"""Sensitivity: how the first k results change over the range of one parameter.

    solved        numbers with known breakpoints: scores are linear in them, or they are compared with
                  numbers that they do not change (`exact`). Between neighbouring breakpoints the results are the same.
    every value   switches, choices, and whole numbers of a short range: each value is replayed (of the RRF k the whole ones)
    bracketed     the rest: a grid is replayed, and each change found is bisected. A change that is undone between two
                  neighbours of the grid is missed.

With each method, both sides of a breakpoint were replayed and have the results that it states. A sweep can be reduced to the members of
the first k, stepped through by interval, and shown with the measures of a labelled set.

Weight map: the first memory at each pair of values of two parameters, and the rank of the first relevant one.

Each cell is one replay. The present values are on the grid, so that the present cell is exact; results between grid
points are unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from cems_workbench.analysis.why.counterfactual import slider, span
from cems_workbench.analysis.why.trial import LabelledSet
from cems_workbench.config import FieldSpec, PipelineConfig, field_spec
from cems_workbench.config.model import changed
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.replay import run, single_table
from cems_workbench.pipeline.stages import ASSEMBLY
from cems_workbench.pipeline.table import Ints
from cems_workbench.progress import Progress, silent
from workbench_inspect.breakpoints import (
    LEVELS,
    BoundarySearch,
    ConstantInterval,
    ParameterSweep,
    Results,
    budget_samples,
    idle,
    similarity_samples,
    solved,
)

Method = Literal["solved", "every value", "bracketed"]
MAX_EXHAUSTIVE = 400
"""A range of at most this many whole numbers is replayed in full."""
GRID_POINTS = 65
MAX_EVENTS = 2000
TOLERANCE = 1e-6
"""Precision of a bracketed breakpoint, as a share of the slider range."""
EVENT_OFFSET = 1e-9
"""Distance of the replays on either side of a solved breakpoint, as a share of the slider range; larger if scores are too close."""
MAX_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Two neighbouring values with different results: `below` gives `before`, `above` gives `after`."""

    below: float
    above: float
    before: Results
    after: Results

    @property
    def value(self) -> float:
        """The middle of the two."""
        return (self.below + self.above) / 2


@dataclass(frozen=True)
class Sweep:
    """The segments of a range, ascending (of a switch or a choice: one for each value); `off` is the result of null, if
    allowed. `unscored`: the largest number of unscored candidates in the range; their scores may change the results."""

    spec: FieldSpec
    k: int
    now: Any
    segments: tuple[ConstantInterval, ...]
    off: ConstantInterval | None
    method: Method
    tolerance: float
    replays: int
    unscored: int

    @property
    def numeric(self) -> bool:
        """Whether it is a range of numbers."""
        return is_number(self.spec)

    @property
    def breakpoints(self) -> list[Breakpoint]:
        """Between neighbouring segments of a range; none for switches and choices."""
        if not self.numeric:
            return []
        pairs = pairwise(self.segments)
        return [Breakpoint(below.last, above.first, below.results, above.results) for below, above in pairs]

    @property
    def present(self) -> ConstantInterval:
        """The segment with the present value."""
        if self.off is not None and self.now is None:
            return self.off
        exact = (one for one in self.segments if one.first == self.now or (self.numeric and one.last >= self.now))
        return next(exact)


def is_number(spec: FieldSpec) -> bool:
    """Whether the parameter is a number."""
    return spec.type in (int, float) and not spec.choices


def sweep(evidence: Evidence, config: PipelineConfig, path: str, k: int, switched_off: Collection[int] = ()) -> Sweep:
    """How the first k results change over the parameter's range: the slider's, grown to the present value.

    Args:
        path: a parameter that only replay reads; of a depth only values up to the present one are tried.
        k: results that count, in their order.
        switched_off: query variants left out, as in `replay`.
    """
    spec = field_spec(path)
    turned = ParameterSweep(evidence, config, path, k, switched_off)
    now = config.get(path)
    off = ConstantInterval(None, None, turned.results(None)) if is_number(spec) and spec.optional else None
    if not is_number(spec):
        values = list(spec.choices) if spec.choices else [False, True]
        every = tuple(ConstantInterval(value, value, turned.results(value)) for value in values)
        return Sweep(spec, k, now, every, off, "every value", 0.0, turned.count, turned.unscored)
    low, high = slider(spec, config)
    low, high = (math.floor(low), math.ceil(high)) if spec.by_ones else (float(low), float(high))
    own = [] if now is None or not low <= now <= high else [now if spec.by_ones else spec.type(now)]
    segments, method, tolerance = _swept(turned, spec, low, high, own)
    return Sweep(spec, k, now, tuple(segments), off, method, tolerance, turned.count, turned.unscored)


def _swept(
    turned: ParameterSweep, spec: FieldSpec, low: Any, high: Any, own: Sequence[Any]
) -> tuple[list[ConstantInterval], Method, float]:
    length = span(spec)
    if spec.by_ones:
        closing = BoundarySearch(turned.results, 1, True, 0)
        if high - low <= MAX_EXHAUSTIVE:
            return closing.segments(sorted({*range(low, high + 1), *own}))[0], "every value", 0.0
        if spec.path == "assembly.max_tokens":
            return closing.segments(sorted({*budget_samples(turned, low, high), *own}))[0], "solved", 0.0
        return closing.segments(sorted({*_grid(low, high, True), *own}))[0], "bracketed", 1.0
    if spec.path == "dedup.similarity":
        samples = sorted({*similarity_samples(turned, low, high), *own})
        search = BoundarySearch(turned.results, EVENT_OFFSET * length / 2, False, EVENT_OFFSET * length)
        return search.segments(samples)[0], "solved", 0.0
    events, complete = _events(turned, spec, low, high)
    least = (EVENT_OFFSET if complete else TOLERANCE) * length
    found = {low, high, *own, *_middles(events, EVENT_OFFSET * length)}
    samples = sorted(found if complete else found | set(_grid(low, high)))
    closing = BoundarySearch(turned.results, least, False, EVENT_OFFSET * length / 2, events)
    segments, searched = closing.segments(samples)
    if complete and not searched:
        return segments, "solved", 0.0
    return segments, "bracketed", TOLERANCE * length


def _events(turned: ParameterSweep, spec: FieldSpec, low: float, high: float) -> tuple[list[float], bool]:
    """The values at which results may change, and whether these are all; the order is looked into as deep as results need."""
    if spec.path in LEVELS:
        inside = {float(value) for value in LEVELS[spec.path](turned, low) if low < value < high}
        return sorted(inside | {low, high}), True
    if idle(turned, low):
        return [low, high], True
    depth = max(turned.depth(low), turned.depth(high), 1)
    for _ in range(MAX_ROUNDS):
        found = solved(turned, low, high, depth)
        if found is None or len(found[0]) > MAX_EVENTS:
            break
        events, complete = found
        needed = max(turned.depth(value) for value in [low, high, *_middles(events, EVENT_OFFSET * span(spec))])
        if needed <= depth:
            return events, complete
        depth = needed
    return [], False


def _middles(events: Sequence[float], least: float) -> list[float]:
    """A value in each gap between neighbouring events that is wide enough."""
    return [(one + two) / 2 for one, two in pairwise(events) if two - one > least]


def _grid(low: Any, high: Any, whole: bool = False) -> list[Any]:
    values = [low + (high - low) * i / (GRID_POINTS - 1) for i in range(GRID_POINTS)]
    return [round(value) for value in values] if whole else [*values[:-1], high]


HIT_DEPTH = 5
CURVE_POINTS = 25
STEP_PARTS = (1, 2, 10, 20, 100, 1000, 10_000)
"""Parts of a slider's step that a value inside a segment may be rounded to, the coarsest first."""


def by_members(sweep: Sweep) -> Sweep:
    """The sweep by the members of the first k: neighbours with the same members are merged."""
    merged: list[ConstantInterval] = []
    for segment in sweep.segments:
        if sweep.numeric and merged and set(merged[-1].results) == set(segment.results):
            merged[-1] = ConstantInterval(merged[-1].first, segment.last, merged[-1].results)
        else:
            merged.append(segment)
    return replace(sweep, segments=tuple(merged))


def inside(sweep: Sweep, segment: ConstantInterval) -> Any:
    """The value to apply: the middle of the segment, as round as possible inside it; a choice is itself."""
    if not sweep.numeric or segment.first == segment.last:
        return segment.first
    if sweep.spec.by_ones:
        return (segment.first + segment.last) // 2
    middle = (segment.first + segment.last) / 2
    for finer in STEP_PARTS:
        step = (sweep.spec.step or 0.01) / finer
        value = round(round(middle / step) * step, 10)
        if segment.first <= value <= segment.last:
            return value
    return middle


def neighbours(sweep: Sweep) -> tuple[ConstantInterval | None, ConstantInterval | None]:
    """The segments below and above the present one."""
    if sweep.present not in sweep.segments:
        return None, None
    at = sweep.segments.index(sweep.present)
    around = (None, *sweep.segments, None)
    return around[at], around[at + 2]


@dataclass(frozen=True, slots=True)
class Curve:
    """A labelled set along a range: at each value the share of queries with a hit in the first `HIT_DEPTH`, and mean nDCG@10."""

    values: tuple[Any, ...]
    hit: tuple[float, ...]
    ndcg: tuple[float, ...]
    queries: int


def labelled_curve(
    labelled: LabelledSet, config: PipelineConfig, sweep: Sweep, points: int = CURVE_POINTS, progress: Progress = silent
) -> Curve:
    """Replay every labelled query at about `points` values of the sweep's range, the present one among them."""
    values = grid(sweep.spec, config, points) if sweep.numeric else [segment.first for segment in sweep.segments]
    measured: list[tuple[float, float]] = []
    for i, value in enumerate(values):
        progress("replaying the judged queries", i, len(values))
        measured.append(labelled.means(changed(config, sweep.spec.path, value), HIT_DEPTH))
    hit, ndcg = zip(*measured, strict=True)
    return Curve(tuple(values), hit, ndcg, len(labelled.qids))


def shown_memories(sweep: Sweep, first: Sequence[str], most: int) -> list[str]:
    """The memories of a chart of ranks: those requested (`first`), then those with the best ranks over most of the range."""
    length = {segment: float(segment.last - segment.first) if sweep.numeric else 1.0 for segment in sweep.segments}
    weight: dict[str, float] = {}
    for segment in sweep.segments:
        for rank, key in enumerate(segment.results):
            weight[key] = weight.get(key, 0.0) + (sweep.k - rank) * (length[segment] + 1e-12)
    ranked = sorted(weight, key=lambda key: (-weight[key], key))
    asked = [key for key in first if key in weight]
    return list(dict.fromkeys([*asked, *sweep.present.results, *ranked]))[: max(most, len(sweep.present.results))]


@dataclass(frozen=True, eq=False)
class WeightMap:
    """`first` (Y)(X) is the memory at rank 1, None without results; `rank` (Y, X) that of the first relevant one, 0 for
    none. `judged` says whether there is any relevant memory."""

    x: FieldSpec
    y: FieldSpec
    xs: Sequence[Any]
    ys: Sequence[Any]
    now: tuple[Any, Any]
    first: Sequence[Sequence[str | None]]
    rank: Ints
    judged: bool

    @property
    def winners(self) -> list[tuple[str, int]]:
        """The memories at rank 1 with their number of cells, most cells first, then by id."""
        counts = Counter(memory_id for row in self.first for memory_id in row if memory_id is not None)
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))

    def succeeds(self, k: int) -> int:
        """The number of cells with a relevant memory within the first k."""
        return int(((self.rank > 0) & (self.rank <= k)).sum())


def grid(spec: FieldSpec, config: PipelineConfig, count: int) -> list[Any]:
    """About `count` values over the slider's range, evenly spaced; the current value replaces its nearest."""
    low, high = slider(spec, config)
    spaced = [low + (high - low) * i / max(1, count - 1) for i in range(count)]
    values = sorted({round(value) for value in spaced}) if spec.by_ones else [round(value, 10) for value in spaced]
    now = config.get(spec.path)
    if now is not None and now not in values:
        values[min(range(len(values)), key=lambda i: abs(values[i] - now))] = now
    return values


def weight_map(
    evidence: Evidence,
    config: PipelineConfig,
    x: str,
    y: str,
    size: int,
    relevant: Collection[str] = (),
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> WeightMap:
    """Replay a grid of about size by size over the parameters at paths x and y.

    Args:
        relevant: the ids judged relevant.
        progress: called after each row; a `Cancelled` from it passes through.
    """
    table, off = single_table(evidence), tuple(sorted(switched_off))
    ids = table.ids[0]
    across, up = field_spec(x), field_spec(y)
    xs, ys = grid(across, config, size), grid(up, config, size)
    first: list[list[str | None]] = []
    rank = np.zeros((len(ys), len(xs)), dtype=np.int64)
    for i, above in enumerate(ys):
        progress("replaying the map", i * len(xs), len(ys) * len(xs))
        row = changed(config, y, above)
        cells: list[str | None] = []
        for j, beside in enumerate(xs):
            order = [ids[int(c)] for c in run(table, changed(row, x, beside), off).of(ASSEMBLY).after.order(0)]
            cells.append(order[0] if order else None)
            rank[i, j] = next((place for place, key in enumerate(order, 1) if key in relevant), 0)
        first.append(cells)
    progress("replaying the map", len(ys) * len(xs), len(ys) * len(xs))
    return WeightMap(across, up, xs, ys, (config.get(x), config.get(y)), first, rank, bool(relevant))
