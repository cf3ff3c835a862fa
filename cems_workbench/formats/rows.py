"""Turning the objects of a file into records: bad rows are reported, keys are kept unique, unknown fields noted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cems_workbench.formats.fields import FieldError, UnknownFields
from cems_workbench.records import RowError

Record = TypeVar("Record")


@dataclass
class Collected(Generic[Record]):
    """The records of a file with the row each came from, and what was left out."""

    records: list[Record] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    notes: tuple[str, ...] = ()


def collect(
    source: str,
    objects: Iterable[tuple[int, dict[str, Any]]],
    make: Callable[[dict[str, Any]], Record],
    key: Callable[[Record], Hashable],
    key_field: str,
    known: Iterable[str],
    errors: list[RowError],
) -> Collected[Record]:
    """Make a record of every object; of several with one key the first is kept and the others are reported."""
    collected: Collected[Record] = Collected()
    unknown = UnknownFields(known)
    first: dict[Hashable, int] = {}
    for number, row in objects:
        try:
            record = make(row)
        except FieldError as error:
            errors.append(RowError(source, number, error.reason, error.field))
            continue
        before = first.setdefault(key(record), number)
        if before != number:
            errors.append(RowError(source, number, f"{key(record)!r} stands already in row {before}", key_field))
            continue
        unknown.see(row)
        collected.records.append(record)
        collected.rows.append(number)
    collected.notes = unknown.notes()
    errors.sort(key=lambda error: error.row)
    return collected
