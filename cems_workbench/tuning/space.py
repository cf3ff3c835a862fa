"""Search space: axes with the values of each parameter, constraints between them, and the fixed rest.

The values of an axis come from the parameter's own metadata, or from a range or list that the user types. They are valid by construction,
so that a trial's config is a copy with values replaced, without a second validation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from cems_workbench.config import FieldSpec, PipelineConfig, field_specs
from cems_workbench.config.fields import Section, specs
from cems_workbench.config.model import attribute_name
from cems_workbench.config.sections import Band
from cems_workbench.errors import InputError, nearest
from cems_workbench.pipeline.list_sources import LIST_SOURCES

BANDS_PATH = "rerank.bands"
DEFAULT_STEPS = 100
"""A numeric parameter without a step is searched in this many steps of its range."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter and its values to search: `choices`, or low, low + step, ... up to high."""

    path: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float = 1.0
    whole: bool = False

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.choices) if self.choices else int((self.high - self.low) / self.step + 1e-9) + 1

    def value(self, place: int) -> Any:
        """The value at a place 0 .. size - 1."""
        if self.choices:
            return self.choices[place]
        value = round(self.low + place * self.step, 10)
        return int(value) if self.whole else value

    def place(self, value: Any) -> int:
        """The place nearest to a value; 0 for a choice that is not one."""
        if self.choices:
            return self.choices.index(value) if value in self.choices else 0
        nearest_place = round((float(value) - self.low) / self.step) if value is not None else self.size - 1
        return min(max(nearest_place, 0), self.size - 1)

    def grid(self, most: int) -> list[Any]:
        """All values, or `most` of them, spread evenly from first to last."""
        if self.choices or self.size <= most:
            return [self.value(place) for place in range(self.size)]
        places = sorted({round(i * (self.size - 1) / (most - 1)) for i in range(most)}) if most > 1 else [0]
        return [self.value(place) for place in places]

    def distance(self, value: Any, other: Any) -> float:
        """0 to 1: the share of the range between two values; 1 between two choices, and between null and a number."""
        if self.choices or value is None or other is None:
            return float(value != other)
        return abs(float(value) - float(other)) / ((self.high - self.low) or 1.0)


def searchable() -> tuple[FieldSpec, ...]:
    """The parameters that a search can vary on gathered evidence: those that replay needs no new evidence for."""
    return tuple(
        spec
        for spec in field_specs()
        if spec.cost != "gather"
        and (
            spec.type is bool
            or len(spec.choices) > 1
            or (spec.type in (int, float) and spec.low is not None and spec.high is not None)
        )
    )


def axis_for(path: str, gathered: PipelineConfig | None = None) -> Axis:
    """The axis of a parameter over its slider's range. Raises InputError when it cannot be searched. `gathered` is the
    config of the evidence: a depth is not searched beyond the gathered one. The bands of the reranker are
    `rerank.bands.0`, `.1`, ...: the retrieval share of each."""
    if path.startswith(f"{BANDS_PATH}.") and path.removeprefix(f"{BANDS_PATH}.").isdigit():
        spec = next(spec for spec in specs(Band) if spec.path == "retrieval")
        return _numeric(path, spec, None)
    known = {spec.path: spec for spec in searchable()}
    if path not in known:
        raise InputError(_refusal(path, known))
    spec = known[path]
    if spec.type is bool:
        return Axis(path, choices=(False, True))
    if spec.choices:
        return Axis(path, choices=tuple(spec.choices))
    most = gathered.get(path) if gathered is not None and spec.cost == "deepen" else None
    return _numeric(path, spec, most)


def parse_axis(text: str, gathered: PipelineConfig | None = None) -> Axis:
    """`fusion.k`, `fusion.k=10:120:5`, `fusion.k=20|40|60` or `fusion.method=rrf|combsum`. Raises InputError."""
    typed, separator, values = text.partition("=")
    axis = axis_for(typed.strip(), gathered)
    if not separator:
        return axis
    if ":" in values and not axis.choices:
        return _narrowed(axis, values, text)
    chosen = tuple(_read(axis, part.strip(), text) for part in values.split("|"))
    if len(set(chosen)) < len(chosen):
        raise InputError(f"--space {text}: duplicate value")
    return Axis(axis.path, choices=chosen)


def _numeric(path: str, spec: FieldSpec, most: float | None) -> Axis:
    assert spec.low is not None and spec.high is not None
    low, high = spec.soft or (spec.low, spec.high)
    high = min(high, most) if most is not None else high
    step = spec.step or (high - low) / DEFAULT_STEPS or 1.0
    return Axis(path, low=float(min(low, high)), high=float(high), step=float(step), whole=spec.type is int)


def _narrowed(axis: Axis, values: str, text: str) -> Axis:
    parts = values.split(":")
    if len(parts) not in (2, 3):
        raise InputError(f"--space {text}: expected LOW:HIGH or LOW:HIGH:STEP")
    low, high, *step = (_number(part, text) for part in parts)
    widest = axis_bounds(axis.path)
    if not (widest[0] <= low <= high <= widest[1]) or (step and step[0] <= 0):
        raise InputError(f"--space {text}: allowed: {widest[0]:g} to {widest[1]:g}, low first, and a step above 0")
    if axis.whole and any(value != int(value) for value in (low, high, *step)):
        raise InputError(f"--space {text}: {axis.path} is a whole number")
    return Axis(axis.path, low=low, high=high, step=step[0] if step else axis.step, whole=axis.whole)


def axis_bounds(path: str) -> tuple[float, float]:
    """The allowed range of a parameter."""
    if path.startswith(f"{BANDS_PATH}."):
        return 0.0, 1.0
    spec = next(spec for spec in searchable() if spec.path == path)
    return float(spec.low or 0.0), float(spec.high if spec.high is not None else 0.0)


def _read(axis: Axis, part: str, text: str) -> Any:
    if not axis.choices:
        low, high = axis_bounds(axis.path)
        number = _number(part, text)
        if not low <= number <= high or (axis.whole and number != int(number)):
            raise InputError(f"--space {text}: {part} is not allowed; allowed: {low:g} to {high:g}")
        return int(number) if axis.whole else number
    names = {str(choice).lower(): choice for choice in axis.choices}
    if part.lower() not in names:
        raise InputError(f"--space {text}: {part!r} is not one of {', '.join(names)}")
    return names[part.lower()]


def _number(part: str, text: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise InputError(f"--space {text}: {part!r} is not a number") from None


def _refusal(path: str, known: Sequence[str] | dict[str, FieldSpec]) -> str:
    spec = {spec.path: spec for spec in field_specs()}.get(path)
    if spec is not None and spec.cost == "gather":
        return f"--space {path}: needs new evidence at every value; only replay parameters can be searched"
    if spec is not None:
        return f"--space {path}: cannot be searched" + (
            f"; search {BANDS_PATH}.0, {BANDS_PATH}.1, …" if path == BANDS_PATH else ""
        )
    close = nearest(path, known)
    return f"--space {path}: unknown parameter" + (f"; the nearest known one is {close}" if close else "")


Values = tuple[Any, ...]
"""One value per axis, in the order of the axes."""

MAX_GRID_AXES = 3


@dataclass(frozen=True)
class Constraint:
    """A condition on configs, with its description."""

    words: str
    holds: Callable[[PipelineConfig], bool]


CONSTRAINTS: dict[str, Constraint] = {
    BANDS_PATH: Constraint(
        "the retrieval share does not rise with the rank",
        lambda config: all(one.retrieval >= next.retrieval for one, next in pairwise(config.rerank.bands)),
    ),
    "threshold.adaptive": Constraint(
        "adaptive min is below max", lambda config: config.threshold.adaptive.min < config.threshold.adaptive.max
    ),
    "lists": Constraint(
        "some list has a weight",
        lambda config: any(
            config.get(f"lists.{source.name}.enabled") and config.get(f"lists.{source.name}.weight") > 0
            for source in LIST_SOURCES
            if source.finds
        ),
    ),
}
"""By the prefix of the paths that they constrain; a space has those that its axes touch."""


@dataclass(frozen=True)
class SearchSpace:
    """Every combination of the axes' values that satisfies the constraints, on top of `baseline`."""

    baseline: PipelineConfig
    axes: tuple[Axis, ...]
    constraints: tuple[Constraint, ...]

    @classmethod
    def of(cls, baseline: PipelineConfig, axes: Sequence[Axis]) -> SearchSpace:
        """The space of some axes, with the constraints they touch. Raises InputError."""
        paths = [axis.path for axis in axes]
        if not axes:
            raise InputError("nothing to search: name at least one parameter")
        for path in paths:
            if paths.count(path) > 1:
                raise InputError(f"{path} is in the space twice")
            if path.startswith(f"{BANDS_PATH}.") and int(path.rpartition(".")[2]) >= len(baseline.rerank.bands):
                raise InputError(f"{path}: the baseline has {len(baseline.rerank.bands)} bands")
        touched = [rule for start, rule in CONSTRAINTS.items() if any(path.startswith(start + ".") for path in paths)]
        return cls(baseline, tuple(axes), tuple(touched))

    @property
    def size(self) -> int:
        """Number of combinations, including those that violate a constraint."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def is_grid(self) -> bool:
        """Whether there are few enough parameters to try every combination of a grid."""
        return len(self.axes) <= MAX_GRID_AXES

    def config(self, values: Values) -> PipelineConfig:
        """The baseline with these values."""
        return replaced(self.baseline, {axis.path: value for axis, value in zip(self.axes, values, strict=True)})

    def keeps(self, config: PipelineConfig) -> bool:
        """Whether a config satisfies every constraint."""
        return all(rule.holds(config) for rule in self.constraints)

    def grid(self, most: int) -> Iterator[Values]:
        """A grid of at most about `most` combinations, with as many values per axis as fit."""
        each = [axis.size for axis in self.axes]
        while math.prod(each) > most and max(each) > 1:
            each[each.index(max(each))] -= 1
        return itertools.product(*(axis.grid(count) for axis, count in zip(self.axes, each, strict=True)))

    def values_of(self, config: PipelineConfig) -> Values:
        """The values a config has on the axes."""
        return tuple(value_at(config, axis.path) for axis in self.axes)

    def distance(self, values: Values) -> float:
        """Distance from the baseline: the sum of `Axis.distance` over the axes."""
        own = self.values_of(self.baseline)
        return sum(axis.distance(a, b) for axis, a, b in zip(self.axes, own, values, strict=True))

    def fixed(self) -> list[tuple[str, Any]]:
        """Every parameter that is not searched, with its value."""
        searched = {axis.path for axis in self.axes}
        return [(spec.path, self.baseline.get(spec.path)) for spec in field_specs() if spec.path not in searched]


def value_at(config: PipelineConfig, path: str) -> Any:
    """The value of a parameter, of a band of the reranker its retrieval share."""
    if path.startswith(f"{BANDS_PATH}."):
        return config.rerank.bands[int(path.rpartition(".")[2])].retrieval
    return config.get(path)


def replaced(config: PipelineConfig, changes: Mapping[str, Any]) -> PipelineConfig:
    """A copy with values at dotted paths replaced, without validation: the caller knows that they are allowed."""
    for path, value in changes.items():
        config = cast(PipelineConfig, _with(config, path.split("."), value))
    return config


def _with(section: Section, path: Sequence[str], value: Any) -> Section:
    name = attribute_name(path[0])
    if len(path) == 1:
        return section.model_copy(update={name: value})
    inner = getattr(section, name)
    if isinstance(inner, tuple):  # a band by its number
        at = int(path[1])
        inner = (*inner[:at], inner[at].model_copy(update={"retrieval": value}), *inner[at + 1 :])
        return section.model_copy(update={name: inner})
    return section.model_copy(update={name: _with(inner, path[1:], value)})
