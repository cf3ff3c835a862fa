"""Lists and mappings as config values: tuples inside, so that a config is hashable, lists and mappings in files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer


def as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def as_pairs(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    # A whole number too large for a float stays as it is, and is refused as out of range.
    return tuple((k, float(v) if type(v) is int and abs(v) < 1e15 else v) for k, v in value.items())


AsList = PlainSerializer(lambda value: list(value), return_type=list)
Sources = Annotated[tuple[Literal["vector", "lexical", "relations"], ...], BeforeValidator(as_tuple), AsList]
Tiers = Annotated[
    tuple[tuple[str, Annotated[float, Field(gt=0, le=36500)]], ...],
    BeforeValidator(as_pairs),
    PlainSerializer(lambda value: dict(value), return_type=dict),
]
JudgeBands = Annotated[tuple[float, float, float], BeforeValidator(as_tuple), AsList]
