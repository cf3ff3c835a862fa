"""Which values of a parameter are tried: the slider's range, walked outwards from where it stands.

Numbers are tried at growing distances on either side (all of them where they are few whole numbers), choices and switches
one by one. A distance is a share of the slider's range; another choice is a whole range away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cems_workbench.config import FieldSpec, PipelineConfig, field_specs

SHARES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 1.0)
FEW = 24
"""Up to so many whole numbers are all tried."""

LOWER_LIMITS = frozenset({"filter.min_score"})
"""Optional parameters whose null is below every number; the null of the others is above."""


def searched_specs() -> list[FieldSpec]:
    """The parameters that a search can turn: numbers, switches and choices that replay alone acts on.

    Depths (growth) are among them: lowering one is a replay. The judge never changes the ranking.
    """
    return [
        spec
        for spec in field_specs()
        if spec.kind != "gather"
        and spec.section != "judge"
        and (spec.type in (int, float, bool) or len(spec.choices) > 1)
    ]


def slider(spec: FieldSpec, config: PipelineConfig) -> tuple[float, float]:
    """The range of a number that is searched: the slider's, grown to the present value; a depth only shrinks."""
    low, high = spec.soft or (spec.low or 0.0, 1.0 if spec.high is None else spec.high)
    now = config.get(spec.path)
    if now is None:
        return low, high
    return min(low, now), now if spec.kind == "growth" else max(high, now)


def span(spec: FieldSpec) -> float:
    """The length of the slider, which distances are measured in."""
    low, high = spec.soft or (spec.low or 0.0, 1.0 if spec.high is None else spec.high)
    return float(high - low) or 1.0


def distance(spec: FieldSpec, now: Any, value: Any) -> float:
    """How far a value is from the present one, in slider ranges; 1 for another choice, or for on and off."""
    numbers = spec.type in (int, float) and now is not None and value is not None
    return abs(float(value) - float(now)) / span(spec) if numbers else 1.0


def origin(spec: FieldSpec, config: PipelineConfig) -> float:
    """Where a walk begins: the present number; for null the end of the range that is nearest to it."""
    now = config.get(spec.path)
    low, high = slider(spec, config)
    if now is not None:
        return float(now)
    return low if spec.path in LOWER_LIMITS else high


def walks(spec: FieldSpec, config: PipelineConfig) -> Iterator[list[Any]]:
    """The values of a number below and above the present one, each walk from near to far."""
    start = origin(spec, config)
    for end in slider(spec, config):
        if end == start:
            continue
        if spec.type is int and abs(end - start) <= FEW:
            step = 1 if end > start else -1
            yield list(range(int(start) + step, int(end) + step, step))
            continue
        values = [start + share * (end - start) for share in SHARES]
        if spec.exclusive_low and spec.low is not None:
            values = [value for value in values if value > spec.low]
        yield list(dict.fromkeys(round(value) for value in values)) if spec.type is int else values


def others(spec: FieldSpec, config: PipelineConfig) -> list[Any]:
    """The values of a switch or a choice other than the present one; null for a number that may be off."""
    now = config.get(spec.path)
    if spec.choices:
        return [choice for choice in spec.choices if choice != now]
    if spec.type is bool:
        return [not now]
    return [None] if spec.optional and now is not None and spec.kind != "growth" else []


def ends(spec: FieldSpec, config: PipelineConfig) -> list[Any]:
    """The most extreme values: when they change nothing, none between does."""
    if spec.type not in (int, float):
        return others(spec, config)
    return [walk[-1] for walk in walks(spec, config)] + others(spec, config)
