"""Turning the rows of a file into records: bad rows are reported, keys are kept unique, unknown fields noted.

Grades are whole numbers in every way of writing them: 3, "3", 3.0, "3,0" of a German or French spreadsheet, 3e0, +3 and full-width digits
are the same grade. A fraction, a word and a truth value are never rounded or guessed: `store/stated_grades.py` takes them by a mapping that
the user states.

External traces are queries with the lists and stages that another pipeline recorded of each. `Format.traces` gives them a portion at a
time. Which memory a document is, is found for all documents of a portion at once, before its queries are made: `Trace.queries` takes the
answer.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Generic, Literal, NamedTuple, TypeVar

from cems_workbench.errors import counted
from cems_workbench.formats.base.fields import FieldError, UnknownFields, identifier
from cems_workbench.formats.base.files import type_name
from cems_workbench.formats.base.memory_fields import TIME_OF
from cems_workbench.formats.base.payload import ANY_NAMES, SAMPLE_ROWS, date_elsewhere, is_deleted
from cems_workbench.platform.parsing import decimal_number
from cems_workbench.progress import Progress
from cems_workbench.records import (
    TIMES,
    Judgment,
    Memory,
    ParsedInput,
    RecordedStages,
    RowError,
    RowProblem,
    UngradedJudgment,
)


class TracedDocument(NamedTuple):
    """A document of a span, in its order; `id` is the span's, as text. One without id and content is not in the file (`Span.lost`)."""

    id: str | None
    score: float | None = None
    content: str | None = None
    title: str | None = None
    parent: str | None = None
    """The id of the document that it is a part of, by its metadata."""


NameOf = Callable[[TracedDocument], str]
"""The memory of a document."""


@dataclass(frozen=True, slots=True)
class TracedQuery:
    """One query of a trace with its lists and stages, or of an explained answer."""

    row: int
    qid: str
    query: str
    asked_at: datetime | None
    recorded: RecordedStages
    warnings: dict[str, list[str]]
    contents: Mapping[str, TracedDocument]
    """By memory id the documents with a text."""
    remarks: dict[str, list[str]] = field(default_factory=dict)
    own_ids: dict[str, Any] = field(default_factory=dict)
    """The `stage` that joined lists, how many `texts` several of its lists found, under how many it has several ids (`apart`), and the
    `ids` of one of these; empty if there are none."""
    asked: dict[str, str] = field(default_factory=dict)
    """By list or reranker the text that it was given, at most 80 characters, where that is not the query."""

    texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By list the texts that it returned, by stage those that it read, by memory id."""
    evidence: object = None
    """Of an explained answer the `pipeline.Evidence` that replays; it has no recorded stages."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace: its documents, and its queries once the memory of each document is known, in the order in which they began."""

    documents: Iterable[TracedDocument]
    queries: Callable[[NameOf], Iterator[TracedQuery]]


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces of a file: how many, and some at a time."""

    count: int
    portions: Iterator[Sequence[Trace]]


TracesReader = Callable[[Path, str, IO[bytes], list[RowError], Progress], Traces]
"""Reads the traces of a file, called by a name in messages, with an empty temporary file to sort them in; raises InputError."""


def memory_id_of(document: TracedDocument) -> str:
    """The id of a document; one of its text where it has none, one of the id where no store could hold that."""
    if document.id is None:
        return derived_id("traced", document.content or "")
    return _storable_id(document.id)


@lru_cache(maxsize=10_000)
def _storable_id(given: str) -> str:
    try:
        return identifier({"id": given}, "id")
    except FieldError:
        return derived_id("traced", given)


MAX_DIGITS = 18
MAX_SHOWN = 60
_DIGITS = frozenset("0123456789")


class NoGradeError(FieldError):
    """A row that is a judgment but for its grade; `judgment` is the rest of it, `value` what is in the grade's field."""

    def __init__(self, field: str, reason: str, judgment: Judgment, value: str, words: str | None) -> None:
        super().__init__(field, reason)
        self.judgment = judgment
        self.value = value
        self.words = words


class TakenInPartError(FieldError):
    """A judgment that is whole but for a field beside its grade; `judgment` is without that field."""

    def __init__(self, error: FieldError, judgment: Judgment) -> None:
        super().__init__(error.field, error.reason)
        self.judgment = judgment


def graded(field: str, value: Any, make: Callable[[int], Judgment], words: str | None = None) -> Judgment:
    """The judgment that `make` gives of a grade; raises FieldError, and NoGradeError if only the grade is unusable."""
    grade = whole_grade(value)
    if grade is not None:
        return make(grade)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise FieldError(field, "is missing")
    if isinstance(value, dict | list):
        raise FieldError(field, f"must be a whole number, found {type_name(value)}")
    text = str(value).lower() if isinstance(value, bool) else str(value).strip()
    found = ascii(value) if not isinstance(value, bool) else text
    reason = f"must be a whole number, found {found[:MAX_SHOWN]}"
    if len(text) > MAX_SHOWN or not text.isprintable():
        raise FieldError(field, reason)
    number = decimal_number(text)
    if number is not None and 0 <= number <= 1:
        way = "state the grades of such values: --grade 0..0.5=0 --grade 0.5..1=1"
    else:
        way = f"state its grade: --grade {shlex.quote(f'{text}=1')}"
    raise NoGradeError(field, f"{reason}; {way}", make(0), text, words)


def judgment_of(qid: str, field: str, memory_id: Any, grade: Any) -> Judgment:
    """The judgment of a memory that a field names; raises FieldError."""
    named_id = identifier({field: memory_id}, field)
    return graded(field, grade, lambda whole: Judgment(qid, named_id, whole))


def whole_grade(value: Any) -> int | None:
    """A whole number in any of the ways to write one; None for anything else."""
    if isinstance(value, str):
        if value in _DIGITS:  # nearly all
            return int(value)
        text = value.strip()
        digits = text[1:] if text[:1] in ("-", "+") else text
        if digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS:
            return int(text)
        number = decimal_number(text)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = decimal_number(str(value))
    else:
        return None
    if number is None or number.adjusted() >= MAX_DIGITS or number != number.to_integral_value():
        return None
    return int(number)


@contextmanager
def reported(errors: list[RowError], source: str, row: int, where: str = "") -> Iterator[None]:
    """Add what the block cannot use of a row to `errors`, its field below `where`, and go on behind the block."""
    try:
        yield
    except FieldError as error:
        errors.append(RowError(source, row, error.reason, f"{where}{error.field}"))


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
    """Make a record of every (row number, object); of several with one key the first is taken and the others are
    reported. `make` raises FieldError for a row that cannot be used. `known` are the fields it looks at, or says what
    it does not read of a row; others are noted."""
    collected: Collected[Record] = Collected()
    unread = known if callable(known) else None
    unknown = UnknownFields(TIMES, TIME_OF) if callable(known) else UnknownFields(known)
    first: dict[Hashable, int] = {}
    sample: list[dict[str, Any]] = []
    for number, row in objects:
        if unread is not None and len(sample) < SAMPLE_ROWS:
            sample.append(row)
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
    elsewhere = date_elsewhere(sample, ANY_NAMES, [path for row in sample for path in (unread or list)(row)])
    collected.notes = (
        *unknown.notes(),
        *([f"{elsewhere[1]}. To read it: {_dated(elsewhere[0])}"] if elsewhere else []),
    )
    errors.sort(key=lambda error: error.row)
    return collected


def _dated(path: str) -> str:
    """How to let an import read a path as created_at."""
    return f"name it created_at, as `jq '.created_at = .{path}'` does with an object on each line"


def collect_judgments(
    source: str, rows: Iterable[tuple[int, Row]], make: Callable[[Row], Judgment], errors: list[RowError]
) -> Collected[Judgment]:
    """Make a judgment of every row; rows that repeat another to the letter are noted. Of several grades of one judge
    for a pair all are given: which of them is on the scale only the store can tell."""
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
        collected.notes += (f"left out: {counted(deleted, 'rows')} deleted in their system",)
    return collected
