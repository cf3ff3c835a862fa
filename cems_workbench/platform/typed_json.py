"""Dataclasses as plain JSON values and back: what a record holds is declared once, by the annotations of its fields.

Text, numbers, booleans, times (ISO 8601, in UTC), literals, tuples, lists, frozen sets, mappings by text, and dataclasses are read and
written. A field that is missing or null has its default; keys that a record does not have are ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cems_workbench.errors import short

Read = Callable[[Any], Any]


class Misread(ValueError):
    """A value that is not what its annotation says: `lists[0].hits[3].score: expected a number, found 'x'`."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(f"{where}: {problem}" if where else problem)
        self.problem, self.where = problem, where

    def within(self, outer: str) -> Misread:
        """The same, of a value within another."""
        return Misread(self.problem, f"{outer}{'.' if self.where[:1] not in ('', '[') else ''}{self.where}")


def written(record: Any, always: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass as plain values: those without a default, those that differ from theirs, and those of `always`."""
    values = {}
    for field in dataclasses.fields(record):
        value, default = getattr(record, field.name), field.default
        if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if default is dataclasses.MISSING or value != default or field.name in always:
            values[field.name] = _plain(value, always)
    return values


def _plain(value: Any, always: Collection[str]) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [_plain(each, always) for each in value]
    if isinstance(value, Mapping):
        return {key: _plain(each, always) for key, each in value.items()}
    return written(value, always) if dataclasses.is_dataclass(value) else value


@cache
def reader(kind: Any) -> Read:
    """What reads plain values as an annotation says; it raises Misread."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (some,) = (one for one in arguments if one is not NoneType)
        read = _scalar(some, " or null") if some in _SCALARS else reader(some)
        return lambda value: None if value is None else read(value)
    if origin is Literal:
        return lambda value: _one_of(value, arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _row(tuple(map(reader, arguments)))
    if origin in (tuple, list, frozenset):
        return _array(origin, reader(arguments[0]))
    if origin is not None:
        return _mapping(reader(arguments[1]))
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    return _scalar(kind) if kind in _SCALARS else lambda value: value


def expect(value: Any, kind: type, words: str) -> Any:
    """A value of a type. Raises Misread, with what was expected in words; a boolean is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise Misread(f"expected {words}, found {short(value)}")
    return value


def _one_of(value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise Misread(f"{short(value)} is not known; allowed: {' | '.join(allowed)}")
    return value


def _array(made: type, read: Read) -> Read:
    def array(value: Any) -> Any:
        found = []
        for i, each in enumerate(expect(value, list, "an array")):
            try:
                found.append(read(each))
            except Misread as problem:
                raise problem.within(f"[{i}]") from None
        return made(found)

    return array


def _row(reads: tuple[Read, ...]) -> Read:
    def row(value: Any) -> tuple[Any, ...]:
        if len(expect(value, list, "an array")) != len(reads):
            raise Misread(f"expected {len(reads)} values, found {short(value)}")
        return tuple(read(each) for read, each in zip(reads, value, strict=True))

    return row


def _mapping(read: Read) -> Read:
    def mapping(value: Any) -> dict[str, Any]:
        found = {}
        for key, each in expect(value, dict, "an object").items():
            try:
                found[str(key)] = read(each)
            except Misread as problem:
                raise problem.within(str(key)) from None
        return found

    return mapping


def _record(kind: Any) -> Read:
    hints = get_type_hints(kind)
    fields = [(field.name, reader(hints[field.name])) for field in dataclasses.fields(kind)]
    empty = (dataclasses.MISSING, dataclasses.MISSING)
    needed = {one.name for one in dataclasses.fields(kind) if (one.default, one.default_factory) == empty}

    def record(value: Any) -> Any:
        given, found = expect(value, dict, "an object"), {}
        for name, read in fields:
            if (each := given.get(name)) is not None or name in needed:
                try:
                    found[name] = read(each)
                except Misread as problem:
                    raise problem.within(name) from None
        return kind(**found)

    return record


def _number(value: Any) -> float:
    try:
        return float(expect(value, int | float, "a number"))  # type: ignore[arg-type]
    except OverflowError:
        raise Misread("the number is too large") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1:
        raise Misread(f"expected a whole number, found {short(value)}")
    return int(value)


def _time(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise Misread(f"expected an ISO 8601 time, found {short(value)}") from None


def _scalar(kind: type, also: str = "") -> Read:
    words = {str: "text", bool: "true or false"}.get(kind)
    return _SCALARS[kind] if words is None else lambda value: expect(value, kind, words + also)


_SCALARS: Mapping[type, Read] = {str: str, bool: bool, float: _number, int: _whole, datetime: _time}
