"""One parameter of a search space: its values, read from the config's own metadata and narrowed where the user says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cems_workbench.config import FieldSpec, PipelineConfig, field_specs
from cems_workbench.config.fields import specs
from cems_workbench.config.ranking import Band
from cems_workbench.errors import InputError, nearest

BANDS = "rerank.bands"
DEFAULT_STEPS = 100
"""A numeric parameter without a step is searched in this many steps of its range."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter and the values it may take: `choices`, or low, low + step, ... up to high."""

    path: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float = 1.0
    whole: bool = False

    @property
    def size(self) -> int:
        """How many values it has."""
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
        """All values, or `most` of them spread evenly from first to last."""
        if self.choices or self.size <= most:
            return [self.value(place) for place in range(self.size)]
        places = sorted({round(i * (self.size - 1) / (most - 1)) for i in range(most)}) if most > 1 else [0]
        return [self.value(place) for place in places]

    def distance(self, one: Any, other: Any) -> float:
        """0 to 1: the share of the range between two values; 1 between two choices; null is as far as can be."""
        if self.choices or one is None or other is None:
            return float(one != other)
        return abs(float(one) - float(other)) / ((self.high - self.low) or 1.0)


def searchable() -> tuple[FieldSpec, ...]:
    """The parameters a search can try on gathered evidence: those that replay needs no new evidence for."""
    return tuple(spec for spec in field_specs() if spec.kind != "gather" and (_is_numeric(spec) or _is_choice(spec)))


def axis_for(path: str, gathered: PipelineConfig | None = None) -> Axis:
    """The axis of a parameter over its slider's range. Raises InputError when it cannot be searched.

    `gathered` is the config the evidence was gathered with: a depth is never searched beyond what is there. The bands of the
    reranker are `rerank.bands.0`, `.1`, ...: the retrieval share of each.
    """
    if path.startswith(f"{BANDS}.") and path.removeprefix(f"{BANDS}.").isdigit():
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
    most = gathered.get(path) if gathered is not None and spec.kind == "growth" else None
    return _numeric(path, spec, most)


def parse_axis(text: str, gathered: PipelineConfig | None = None) -> Axis:
    """`fusion.k`, `fusion.k=10:120:5`, `fusion.k=20|40|60` or `fusion.method=rrf|score_sum`. Raises InputError."""
    path, separator, values = text.partition("=")
    axis = axis_for(path.strip(), gathered)
    if not separator:
        return axis
    if ":" in values and not axis.choices:
        return _narrowed(axis, values, text)
    chosen = tuple(_read(axis, part.strip(), text) for part in values.split("|"))
    if len(set(chosen)) < len(chosen):
        raise InputError(f"--space {text}: a value stands twice")
    return Axis(axis.path, choices=chosen)


def _is_numeric(spec: FieldSpec) -> bool:
    return spec.type in (int, float) and spec.low is not None and spec.high is not None


def _is_choice(spec: FieldSpec) -> bool:
    return spec.type is bool or len(spec.choices) > 1


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
    """The range a parameter is allowed."""
    if path.startswith(f"{BANDS}."):
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
    if spec is not None and spec.kind == "gather":
        return f"--space {path}: needs new evidence at every value; only replay parameters can be searched"
    if spec is not None:
        return f"--space {path}: cannot be searched" + (f"; search {BANDS}.0, {BANDS}.1, …" if path == BANDS else "")
    close = nearest(path, known)
    return f"--space {path}: unknown parameter" + (f"; the nearest known one is {close}" if close else "")
