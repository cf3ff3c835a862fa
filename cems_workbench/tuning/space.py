"""The search space: axes, the constraints that every config in it keeps, and the rest, which is fixed.

Values are in range by construction, so that a trial's config is a copy with values replaced, not validated anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from cems_workbench.config import PipelineConfig, field_specs
from cems_workbench.config.fields import Section
from cems_workbench.config.model import attribute_name
from cems_workbench.errors import InputError
from cems_workbench.tuning.axis import BANDS, Axis

Values = tuple[Any, ...]
"""One value per axis, in the order of the axes."""

GRID_AXES = 3
GRID_MOST = 20_000


@dataclass(frozen=True)
class Constraint:
    """What a config has to keep, and in words."""

    words: str
    holds: Callable[[PipelineConfig], bool]


def _bands_fall(config: PipelineConfig) -> bool:
    shares = [band.retrieval for band in config.rerank.bands]
    return shares == sorted(shares, reverse=True)


CONSTRAINTS: dict[str, Constraint] = {
    BANDS: Constraint("the retrieval share does not rise with the rank", _bands_fall),
    "threshold.adaptive": Constraint(
        "adaptive min is below max", lambda config: config.threshold.adaptive.min < config.threshold.adaptive.max
    ),
    "lists": Constraint(
        "some list has a weight",
        lambda config: any(
            section.enabled and section.weight > 0
            for section in (config.lists.vector, config.lists.lexical, config.lists.relations)
        ),
    ),
}
"""By the beginning of the paths they are about; those that the space touches hold in it."""


@dataclass(frozen=True)
class SearchSpace:
    """Every combination of the axes' values that keeps the constraints, on top of `baseline`."""

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
                raise InputError(f"{path} stands twice in the space")
            if path.startswith(f"{BANDS}.") and int(path.rpartition(".")[2]) >= len(baseline.rerank.bands):
                raise InputError(f"{path}: the baseline has {len(baseline.rerank.bands)} bands")
        touched = [rule for start, rule in CONSTRAINTS.items() if any(path.startswith(start + ".") for path in paths)]
        return cls(baseline, tuple(axes), tuple(touched))

    @property
    def size(self) -> int:
        """How many combinations there are, those that break a constraint included."""
        total = 1
        for axis in self.axes:
            total *= axis.size
        return total

    @property
    def is_grid(self) -> bool:
        """Few enough parameters to try every combination of a grid."""
        return len(self.axes) <= GRID_AXES

    def config(self, values: Values) -> PipelineConfig:
        """The baseline with these values."""
        return replaced(self.baseline, {axis.path: value for axis, value in zip(self.axes, values, strict=True)})

    def keeps(self, config: PipelineConfig) -> bool:
        """Does a config keep every constraint?"""
        return all(rule.holds(config) for rule in self.constraints)

    def grid(self, most: int) -> Iterator[Values]:
        """A grid of at most about `most` combinations, each axis with as many values as fit, first to last."""
        each = [axis.size for axis in self.axes]
        while _product(each) > most and max(each) > 1:
            each[each.index(max(each))] -= 1
        return itertools.product(*(axis.grid(count) for axis, count in zip(self.axes, each, strict=True)))

    def values_of(self, config: PipelineConfig) -> Values:
        """The values a config has on the axes."""
        return tuple(_read(config, axis.path) for axis in self.axes)

    def distance(self, values: Values) -> float:
        """How far from the baseline: the sum over the axes of the share of the range between the two values."""
        own = self.values_of(self.baseline)
        return sum(axis.distance(a, b) for axis, a, b in zip(self.axes, own, values, strict=True))

    def fixed(self) -> list[tuple[str, Any]]:
        """Every parameter that is not searched, with its value."""
        searched = {axis.path for axis in self.axes}
        return [(spec.path, self.baseline.get(spec.path)) for spec in field_specs() if spec.path not in searched]


def replaced(config: PipelineConfig, changes: Mapping[str, Any]) -> PipelineConfig:
    """A copy with values at dotted paths replaced, which are not validated: they are known to be allowed."""
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


def _read(config: PipelineConfig, path: str) -> Any:
    if path.startswith(f"{BANDS}."):
        return config.rerank.bands[int(path.rpartition(".")[2])].retrieval
    return config.get(path)


def _product(counts: Sequence[int]) -> int:
    total = 1
    for count in counts:
        total *= count
    return total
