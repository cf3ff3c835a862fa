"""Turning the objects of a file into records: bad rows are reported, keys are kept unique, unknown fields noted.

Reading a file of JSON rows that each become a memory: what the memory, fact and message formats share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from cems_workbench.formats.fields import FieldError, UnknownFields
from cems_workbench.formats.lines import read_records
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, Memory, ParsedInput, RowError

Record = TypeVar("Record")
Row = TypeVar("Row")
MAX_NOTES = 20


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
        name = key(record)
        if name in first:
            errors.append(RowError(source, number, f"{name!r} stands already in row {first[name]}", key_field))
            continue
        first[name] = number
        unknown.see(row)
        collected.records.append(record)
        collected.rows.append(number)
    collected.notes = unknown.notes()
    errors.sort(key=lambda error: error.row)
    return collected


def collect_judgments(
    source: str, rows: Iterable[tuple[int, Row]], make: Callable[[Row], Judgment], errors: list[RowError]
) -> Collected[Judgment]:
    """Make a judgment of every row; rows that repeat another to the letter are noted.

    Of several grades of one judge for a pair all are given: which of them is on the scale only the store can tell.
    """
    found: Collected[Judgment] = Collected()
    first: dict[Judgment, int] = {}
    repeated = []
    for number, row in rows:
        try:
            judgment = make(row)
        except FieldError as error:
            errors.append(RowError(source, number, error.reason, error.field or None))
            continue
        before = first.setdefault(judgment, number)
        if len(first) == len(found.records):
            repeated.append(f"row {number} repeats row {before}")
        else:
            found.records.append(judgment)
            found.rows.append(number)
    errors.sort(key=lambda error: error.row)
    if len(repeated) > MAX_NOTES:
        repeated[MAX_NOTES:] = [f"{len(repeated) - MAX_NOTES} more rows repeat earlier ones"]
    found.notes = tuple(repeated)
    return found


def derived_id(prefix: str, *parts: str) -> str:
    """A stable id for a row without one: the prefix and the first 12 hex digits of the SHA-256 of its parts."""
    text = "\n".join(parts).encode(errors="surrogatepass")
    return f"{prefix}-{hashlib.sha256(text).hexdigest()[:12]}"


def read_memory_rows(
    path: Path, name: str, parse: Callable[[dict[str, Any]], Memory], known: Iterable[str], progress: Progress
) -> ParsedInput:
    """Every good row of `path` as a memory made by `parse`; raises InputError when the file cannot be read."""
    errors: list[RowError] = []
    rows = read_records(path, errors, progress)
    found = collect(str(path), rows, parse, lambda memory: memory.id, "id", known, errors)
    return ParsedInput(
        str(path),
        name,
        memories=tuple(found.records),
        errors=tuple(errors),
        notes=found.notes,
        extra={"rows": {"memories": found.rows}},
    )
