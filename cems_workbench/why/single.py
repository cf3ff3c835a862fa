"""The nearest value of one parameter that brings the memory into the top k.

Weights of the fusion are solved (`linear`); everything else is walked outwards over the slider's range until a replay
succeeds, and the breakpoint then bisected between the last failure and that success. A walk can step over an island of
success narrower than its steps; a solved weight cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cems_workbench.config import FieldSpec, PipelineConfig
from cems_workbench.why import linear
from cems_workbench.why.trial import Trials, changed
from cems_workbench.why.values import distance, ends, origin, others, slider, span, walks

PRECISION = 1e-9
"""Breakpoints of real numbers are this precise, in slider ranges."""
VERIFIED_CELLS = 6
FINER = (1, 10, 100, 1000)


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Two neighbouring values: replaying `fails` leaves the memory out, replaying `succeeds` brings it in."""

    fails: float
    succeeds: float


@dataclass(frozen=True, slots=True)
class Found:
    """One value that rescues, its distance in slider ranges, and its breakpoint where it is a number."""

    spec: FieldSpec
    value: Any
    distance: float
    breakpoint: Breakpoint | None
    solved: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """The value of one parameter that came nearest, and how near (`Outcome.distance`)."""

    spec: FieldSpec
    value: Any
    reached: tuple[int, float]
    distance: float


def acts(trials: Trials, config: PipelineConfig, spec: FieldSpec) -> bool:
    """Does turning this parameter all the way change any result or its score?"""
    now = trials.outcome(config)
    return any(trials.outcome(changed(config, spec.path, value)) != now for value in ends(spec, config))


def nearest_value(trials: Trials, config: PipelineConfig, spec: FieldSpec) -> Found | None:
    """The nearest value of this parameter that rescues, None when none does."""
    found = []
    if spec.type in (int, float):
        if linear.solvable(config, spec.path):
            found += _solved(trials, config, spec)
        if not found:
            found += [hit for walk in walks(spec, config) if (hit := _walked(trials, config, spec, walk))]
    now = config.get(spec.path)
    found += [
        Found(spec, value, distance(spec, now, value), None)
        for value in others(spec, config)
        if trials.succeeds(changed(config, spec.path, value))
    ]
    return min(found, key=lambda hit: hit.distance, default=None)


def best_attempt(trials: Trials, config: PipelineConfig, spec: FieldSpec) -> Attempt | None:
    """The value that brings the memory highest, the nearest of those; None when the parameter has no other value."""
    now = config.get(spec.path)
    tried = [value for walk in walks(spec, config) for value in walk] if spec.type in (int, float) else []
    tried += others(spec, config)
    attempts = [
        Attempt(spec, value, trials.outcome(changed(config, spec.path, value)).distance, distance(spec, now, value))
        for value in tried
    ]
    return min(attempts, key=lambda attempt: (attempt.reached, attempt.distance), default=None)


def _walked(trials: Trials, config: PipelineConfig, spec: FieldSpec, walk: list[Any]) -> Found | None:
    fails: Any = config.get(spec.path)
    if fails is None:  # off is no number to bisect from
        fails, walk = walk[0], walk[1:]
        if trials.succeeds(changed(config, spec.path, fails)):
            return Found(spec, fails, 1.0, None)
    for value in walk:
        if trials.succeeds(changed(config, spec.path, value)):
            point = bisected(lambda v: trials.succeeds(changed(config, spec.path, v)), spec, fails, value)
            return _found(trials, config, spec, point, solved=False)
        fails = value
    return None


def bisected(succeeds: Callable[[Any], bool], spec: FieldSpec, fails: Any, success: Any) -> Breakpoint:
    """Close in on the change between a failing and a succeeding value, until nothing lies between that matters."""
    whole = spec.type is int
    least = 1 if whole else PRECISION * span(spec)
    while abs(success - fails) > least:
        middle = (fails + success) // 2 if whole else (fails + success) / 2
        if middle in (fails, success):
            break
        if succeeds(middle):
            success = middle
        else:
            fails = middle
    return Breakpoint(fails, success)


def _solved(trials: Trials, config: PipelineConfig, spec: FieldSpec) -> list[Found]:
    """The nearest solved cell that a replay confirms; nothing when replays disagree with the lines."""
    low, high = slider(spec, config)
    start = origin(spec, config)
    good = [cell for cell in linear.cells(trials, config, spec.path, low, high) if cell.rank <= trials.k]
    good.sort(key=lambda cell: max(cell.low - start, start - cell.high, 0.0))
    tiny = PRECISION * span(spec) / 2
    for cell in good[:VERIFIED_CELLS]:
        edge, sign = (cell.low, 1) if cell.low >= start else (cell.high, -1)
        inside = edge + sign * min(tiny, (cell.high - cell.low) / 2)
        point = Breakpoint(edge - sign * tiny, inside)
        verified = [trials.succeeds(changed(config, spec.path, value)) for value in (point.fails, point.succeeds)]
        if low <= point.fails <= high and verified == [False, True]:
            return [_found(trials, config, spec, point, solved=True)]
    return []


def _found(trials: Trials, config: PipelineConfig, spec: FieldSpec, point: Breakpoint, solved: bool) -> Found:
    """The value to apply: a round one just past the breakpoint where that succeeds too, else the breakpoint itself."""
    now = config.get(spec.path)
    value: Any = point.succeeds
    for rounded in round_values(spec, point):
        if rounded != now and trials.succeeds(changed(config, spec.path, rounded)):
            value = rounded
            break
    return Found(spec, value, distance(spec, now, point.succeeds), point, solved)


def round_values(spec: FieldSpec, point: Breakpoint) -> list[float]:
    """The next step of the slider past the breakpoint, then of finer and finer ones; inside the slider, so never its end.

    The end of a slider is a word of its own: a weight of 0 is a list that counts for nothing.
    """
    if not spec.step or spec.type is not float:
        return []
    low, high = spec.soft or (spec.low or 0.0, 1.0 if spec.high is None else spec.high)
    whole = math.ceil if point.succeeds > point.fails else math.floor
    steps = [spec.step / finer for finer in FINER]
    values = [round(float(whole(point.succeeds / step) * step), 10) for step in steps]
    return [value for value in values if low < value < high]
