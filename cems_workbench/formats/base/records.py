"""Turning the rows of a file into records: bad rows are reported, keys are kept unique, unknown fields noted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from cems_workbench.formats.base.fields import FieldError, UnknownFields
from cems_workbench.formats.base.grades import NoGradeError, TakenInPartError
from cems_workbench.formats.base.memory_fields import TIME_OF
from cems_workbench.formats.base.payload import is_deleted
from cems_workbench.records import TIMES, Judgment, Memory, ParsedInput, RowError, RowProblem, UngradedJudgment

Record = TypeVar("Record")
Row = TypeVar("Row")
Kind = Literal["memories", "relations", "queries", "judgments"]
MAX_NOTES = 20
MemoryRead = tuple[Memory, Sequence[RowProblem]]
"""A memory, and its fields that could not be read."""
Unread = Callable[[dict[str, Any]], Iterable[str]]
"""The names of a row's fields that are not read."""


@dataclass
class Collected(Generic[Record]):
    """The records of a file with the row each came from, and notes on them."""

    records: list[Record] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    ungraded: list[UngradedJudgment] = field(default_factory=list)

    def parsed(
        self,
        path: Path,
        format: str,
        kind: Kind,
        errors: Iterable[RowError],
        notes: Iterable[str] = (),
        fields: Mapping[str, str] | None = None,
    ) -> ParsedInput:
        """The records as what was read of a file; `fields` are the file's names of a record's fields, where they differ."""
        extra: dict[str, Any] = {"rows": {kind: self.rows}}
        values: dict[str, Any] = {kind: tuple(self.records)}
        return ParsedInput(
            str(path),
            format,
            **values,
            errors=tuple(errors),
            notes=(*self.notes, *notes),
            extra=extra if fields is None else {**extra, "fields": dict(fields)},
            ungraded=tuple(self.ungraded),
        )


def collect(
    source: str,
    objects: Iterable[tuple[int, dict[str, Any]]],
    make: Callable[[dict[str, Any]], Record],
    key: Callable[[Record], Hashable],
    key_field: str,
    known: Iterable[str] | Unread,
    errors: list[RowError],
) -> Collected[Record]:
    """Make a record of every (row number, object); of several with one key the first is taken and the others are reported.

    `make` raises FieldError for a row that cannot be used. `known` are the fields it looks at, or says what it does not read of a row;
    others are noted.
    """
    collected: Collected[Record] = Collected()
    unread = known if callable(known) else None
    unknown = UnknownFields(TIMES, TIME_OF) if callable(known) else UnknownFields(known)
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
        unknown.see(row, None if unread is None else unread(row))
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
    collected: Collected[Judgment] = Collected()
    made: list[tuple[int, Judgment]] = []
    for number, row in rows:
        try:
            judgment = make(row)
        except TakenInPartError as error:
            errors.append(RowError(source, number, error.reason, error.field, taken=True))
            judgment = error.judgment
        except FieldError as error:
            if isinstance(error, NoGradeError):
                one = UngradedJudgment(number, error.judgment, error.value, error.field, error.words)
                collected.ungraded.append(one)
            errors.append(RowError(source, number, error.reason, error.field or None))
            continue
        made.append((number, judgment))
    repeated = []
    if len({(judgment.qid, judgment.memory_id) for _, judgment in made}) < len(made):  # else none repeats another
        first: dict[Judgment, int] = {}
        for number, judgment in made:
            if judgment in first:
                repeated.append(f"row {number} repeats row {first[judgment]}")
            else:
                first[judgment] = number
        made = [(number, judgment) for judgment, number in first.items()]
    collected.records = [judgment for _, judgment in made]
    collected.rows = [number for number, _ in made]
    errors.sort(key=lambda error: error.row)
    if len(repeated) > MAX_NOTES:
        repeated[MAX_NOTES:] = [f"{len(repeated) - MAX_NOTES} more rows repeat earlier ones"]
    collected.notes = tuple(repeated)
    return collected


def derived_id(prefix: str, *parts: str) -> str:
    """A stable id for a row without one: the prefix and the first 12 hex digits of the SHA-256 of its parts."""
    text = "\n".join(parts).encode(errors="surrogatepass")
    return f"{prefix}-{hashlib.sha256(text).hexdigest()[:12]}"


def memories_of(
    path: Path,
    rows: Iterable[tuple[int, dict[str, Any]]],
    parse: Callable[[dict[str, Any]], MemoryRead],
    known: Iterable[str] | Unread,
    errors: list[RowError],
) -> Collected[Memory]:
    """The memory of every (row number, object); a field that cannot be read is an error of its row, whose memory is taken without it."""
    numbers: list[int] = []
    deleted = 0

    def numbered() -> Iterator[tuple[int, dict[str, Any]]]:
        nonlocal deleted
        for number, row in rows:
            if is_deleted(row):
                deleted += 1
                continue
            numbers[:] = [number]
            yield number, row

    def make(row: dict[str, Any]) -> Memory:
        memory, problems = parse(row)
        reasons = ((each.field, f"{each.reason}; the memory was taken without it") for each in problems)
        errors.extend(RowError(str(path), numbers[0], reason, field, taken=True) for field, reason in reasons)
        return memory

    collected = collect(str(path), numbered(), make, lambda memory: memory.id, "id", known, errors)
    if deleted:
        collected.notes += (f"{deleted} rows are deleted in their system and were left out",)
    return collected
