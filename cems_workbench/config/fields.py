"""Field metadata: one declaration draws the slider, validates the file, and writes the CLI help and the docs row.

`param(...)` is a pydantic `Field` whose bounds are the allowed range and whose extra metadata is what a control needs; label and help of
each parameter are the row of its section in `parameters.json`. `specs(model)` walks a config class and yields one `FieldSpec` per leaf, in
the order of docs/internals/specification.md. Nothing else in the project lists parameters. Lists and mappings are tuples inside, so that a
config is hashable.

Source: docs/reference/formats.md, "Configs".
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import annotated_types
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.fields import FieldInfo

Cost = Literal["replay", "gather", "deepen"]
"""What a change costs. replay: nothing. gather: new evidence. deepen: new evidence when raised, nothing when lowered."""

COST_HELP = {
    "replay": "Instant: recomputed from the gathered evidence.",
    "gather": "Needs a gather: evidence is fetched again when this changes.",
    "deepen": "Instant when lowered; raising it past what was gathered fetches more.",
}


class Section(BaseModel):
    """Base of every part of the config: immutable, no unknown keys, no silent type conversion."""

    __slots__ = ("_hashed",)

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def __hash__(self) -> int:
        """Made once: configs that differ in one value share their other sections, and are keys of caches."""
        found: int | None = getattr(self, "_hashed", None)
        if found is None:
            found = hash(tuple(self.__dict__.values()))
            object.__setattr__(self, "_hashed", found)
        return found


_EXTRA: dict[str, Any] = {
    "help": None,
    "cost": "replay",
    "step": None,
    "soft": None,
    "unit": None,
    "null": "no limit",
    "by_ones": False,
    "on": None,
}


def param(
    default: Any,
    *,
    ge: float | None = None,
    le: float | None = None,
    gt: float | None = None,
    alias: str | None = None,
    **extra: Any,
) -> Any:
    """Declare one parameter. Raises TypeError for metadata of another name.

    `ge`/`gt`/`le` are the allowed range; `soft` is the part of it a slider covers; `step` is the slider's step; `unit`
    is shown after the value; `null` says what null means where it is allowed. `cost` says whether a change is instant or
    needs new evidence. `help` replaces that of `parameters.json`. `alias` is the YAML key where the Python name cannot be used.
    `by_ones` marks a number that may be a fraction but is tried at whole values: what searches its range goes in steps of 1.
    `on` is the value that a switch sets where the default is null.
    """
    if unknown := extra.keys() - _EXTRA.keys():
        raise TypeError(f"no metadata of a parameter: {', '.join(unknown)}")
    return Field(default, ge=ge, le=le, gt=gt, alias=alias, json_schema_extra=_EXTRA | extra)


def gathered(default: Any, **rest: Any) -> Any:
    """Declare a parameter whose change needs a gather."""
    return param(default, cost="gather", **rest)


def within(low: float, high: float, **rest: Any) -> dict[str, Any]:
    """The range of a parameter, bounds included, with what else of `param` goes with it: `param(..., **within(0, 1, step=0.05))`."""
    return {"ge": low, "le": high, **rest}


def above(low: float, high: float, **rest: Any) -> dict[str, Any]:
    """As `within`, without the lower bound."""
    return {"gt": low, "le": high, **rest}


WEIGHT = within(0, 100, step=0.05, soft=(0, 3))
"""Of a list in the fusion."""
SHARE = within(0, 1, step=0.05)
DEPTH = within(1, 10_000, step=5, soft=(5, 300), cost="deepen")
"""Of a list, in memories."""
FACTOR = within(1, 100, step=1, soft=(1, 10), cost="gather")
"""The depth of a list as a multiple of the result limit."""
FACTOR_OR_0 = within(0, 100, step=1, soft=(0, 10), cost="gather")
FEW = within(1, 100, step=1, soft=(1, 20), cost="gather")
WORDS = within(1, 1000, step=1, soft=(1, 50))
"""Words or results."""
BOOST = within(0, 100, step=0.5, soft=(0, 10))
"""Of a column or field in a lexical engine; 0 leaves it out."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """What a control, a help text or a docs row needs to know about one parameter."""

    path: str
    label: str
    help: str
    cost: Cost
    type: Any
    choices: tuple[Any, ...]
    optional: bool
    low: float | None
    high: float | None
    exclusive_low: bool
    soft: tuple[float, float] | None
    step: float | None
    unit: str | None
    default: Any
    null: str
    """What null means, where the parameter is optional: "no limit", "the judge's own"."""
    on: Any = None
    """The value that replaces null when a control is switched on; None: the default, else the value nearest to 0."""
    by_ones: bool = False
    """Tried at whole values only: every whole number, and a fraction that `param` marks so."""

    @property
    def section(self) -> str:
        """The stage this parameter belongs to: the first segment of its path."""
        return self.path.split(".", 1)[0]

    @property
    def slider(self) -> tuple[float, float]:
        """The range of its slider; where nothing bounds it, from 0 and to 1."""
        return self.soft or (self.low or 0.0, 1.0 if self.high is None else self.high)

    @property
    def row(self) -> type[Section] | None:
        """Of a list of sections, such as bands, the section that each of its rows is; None for every other parameter."""
        of = next(iter(typing.get_args(self.type)), None) if typing.get_origin(self.type) is tuple else None
        return of if isinstance(of, type) and issubclass(of, Section) else None

    @property
    def range_text(self) -> str:
        """The allowed values in words, for error messages, help and docs."""
        if self.choices:
            text = " | ".join(str(choice) for choice in self.choices)
        elif self.low is None and self.high is None:
            text = {bool: "true | false", int: "a whole number", float: "a number", str: "text"}.get(
                self.type, "a list"
            )
        else:
            text = bounds_text(self.low, self.high, self.exclusive_low)
        return f"{text}, or null" if self.optional else text


def bounds_text(low: float | None, high: float | None, exclusive_low: bool = False) -> str:
    """A numeric range in words: `0 to 1`, `more than 0, at most 100`."""
    if exclusive_low:
        return f"more than {low:g}" + (f", at most {high:g}" if high is not None else "")
    if low is None:
        return f"at most {high:g}"
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"


def specs(model: type[BaseModel], prefix: str = "") -> Iterator[FieldSpec]:
    """Yield a `FieldSpec` for every leaf parameter below `model`, depth first, in declaration order."""
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from specs(info.annotation, f"{path}.")
        elif isinstance(info.json_schema_extra, dict):
            yield _spec(model, name, path, info)


@cache
def _texts() -> dict[str, dict[str, tuple[str, str]]]:
    """Label and help of each parameter, by the class of its section and its name there."""
    texts: dict[str, dict[str, tuple[str, str]]] = packaged("config/parameters.json")
    return texts


def packaged(name: str) -> Any:
    """A JSON file of this package by its path in it, such as a table of texts: read once, when what declares them is."""
    return json.loads((Path(__file__).parents[1] / name).read_text("utf-8"))


def _spec(model: type[BaseModel], name: str, path: str, info: FieldInfo) -> FieldSpec:
    extra = typing.cast(dict[str, Any], info.json_schema_extra)
    rows = (_texts().get(base.__name__, {}).get(name) for base in model.__mro__)
    found = next((row for row in rows if row), None)
    if found is None:
        raise KeyError(f"{model.__name__}.{name} has no label and help in parameters.json")
    label, help = found
    base, optional = _without_none(info.annotation)
    choices = typing.get_args(base) if typing.get_origin(base) is Literal else ()
    low = high = None
    exclusive = False
    for rule in info.metadata:
        if isinstance(rule, annotated_types.Ge):
            low = typing.cast(float, rule.ge)
        elif isinstance(rule, annotated_types.Gt):
            low, exclusive = typing.cast(float, rule.gt), True
        elif isinstance(rule, annotated_types.Le):
            high = typing.cast(float, rule.le)
    return FieldSpec(
        path=path,
        label=label.replace("{title}", getattr(model, "list_title", "")),
        help=extra["help"] or help,
        type=base,
        choices=choices,
        optional=optional,
        low=low,
        high=high,
        exclusive_low=exclusive,
        default=info.default,
        by_ones=base is int or extra["by_ones"],
        **{name: extra[name] for name in ("cost", "soft", "step", "unit", "null", "on")},
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        rest = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
        return (rest[0] if len(rest) == 1 else annotation), len(rest) < len(typing.get_args(annotation))
    return annotation, False


def as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def as_pairs(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    # A whole number too large for a float is left an int, and refused as out of range.
    return tuple((k, float(v) if type(v) is int and abs(v) < 1e15 else v) for k, v in value.items())


def _whole_as_int(value: float) -> float:
    return int(value) if value == int(value) else value


WholeOrFraction = Annotated[
    float, AfterValidator(_whole_as_int), PlainSerializer(_whole_as_int, return_type=float | int)
]
"""A number that is kept and written as a whole one where it is whole, so that a file with `k: 60` keeps its digest."""
AsList = PlainSerializer(lambda value: list(value), return_type=list)
Tiers = Annotated[
    tuple[tuple[str, Annotated[float, Field(gt=0, le=36500)]], ...],
    BeforeValidator(as_pairs),
    PlainSerializer(lambda value: dict(value), return_type=dict),
]
JudgeBands = Annotated[tuple[float, float, float], BeforeValidator(as_tuple), AsList]


def short_value(value: Any) -> str:
    """A value of the config in a few characters."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return " ".join(_part(item) for item in value) or "none"
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _part(item: Any) -> str:
    if isinstance(item, tuple):
        return f"{item[0]} {item[1]:g}"
    if isinstance(item, Section):
        # The first number of a row is the last rank, or number of words, that it is for.
        return "/".join(f"{value:g}" for value in list(item.model_dump().values())[1:])
    return str(item)
