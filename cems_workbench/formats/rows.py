"""Turning the objects of a file into records: bad rows are reported, keys are kept unique, unknown fields noted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cems_workbench.formats.fields import FieldError, UnknownFields
from cems_workbench.records import Judgment, RowError

Record = TypeVar("Record")
Row = TypeVar("Row")


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
    source: str,
    rows: Iterable[tuple[int, Row]],
    make: Callable[[Row], Judgment],
    errors: list[RowError],
    grade_field: str,
) -> Collected[Judgment]:
    """Make a judgment of every row; of two grades of one judge for a pair the first is kept, repetitions are only noted."""
    first: dict[tuple[str, str, str, str], tuple[int, Judgment]] = {}
    repeated = 0
    for number, row in rows:
        try:
            judgment = make(row)
        except FieldError as error:
            errors.append(RowError(source, number, error.reason, error.field or None))
            continue
        key = (judgment.qid, judgment.memory_id, judgment.judge, judgment.kind)
        before, kept = first.setdefault(key, (number, judgment))
        if kept.grade != judgment.grade:
            by = "" if (judgment.judge, judgment.kind) == ("human", "human") else f" by {judgment.judge}"
            reason = f"{judgment.qid} {judgment.memory_id} has grade {kept.grade}{by} in row {before}, which is kept"
            errors.append(RowError(source, number, reason, grade_field))
        elif kept is not judgment:
            repeated += 1
    errors.sort(key=lambda error: error.row)
    notes = (f"{repeated} lines repeat an earlier one",) if repeated else ()
    return Collected([kept for _, kept in first.values()], [number for number, _ in first.values()], notes)


def derived_id(prefix: str, *parts: str) -> str:
    """A stable id for a row without one: the prefix and the first 12 hex digits of the SHA-256 of its parts."""
    text = "\n".join(parts).encode(errors="surrogatepass")
    return f"{prefix}-{hashlib.sha256(text).hexdigest()[:12]}"
