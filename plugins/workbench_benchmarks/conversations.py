"""What the formats of conversations share: their rows, turns, questions and times, and what is said of a whole file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cems_workbench.errors import some
from cems_workbench.formats.base import memory_fields
from cems_workbench.formats.base.fields import MONTHS, FieldError, UnknownFields
from cems_workbench.formats.base.files import data_beside, is_document, read_document, read_objects
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RowError

TURN_LISTS = ("turns", "messages", "dialogue", "dialogues", "dialogs", "conversation")
"""Names of the turns of a session that is an object, likelier ones first."""
TIMES = ("date_time", "session_date_time", "session_date", "timestamp", "datetime", "date", "time")
"""Names of a session's or a turn's time, likelier ones first."""
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})\s*([ap])\.?m\.?(?:\s+on\s+|,?\s+)(.+)", re.IGNORECASE)
_DAYS = (
    re.compile(r"(?P<day>\d{1,2})\s+(?P<month>[A-Za-z]{3,9})\.?,?\s+(?P<year>\d{4})"),
    re.compile(r"(?P<month>[A-Za-z]{3,9})\.?\s+(?P<day>\d{1,2}),?\s+(?P<year>\d{4})"),
)
_SLASHED = re.compile(r"(\d{4})[/-](\d{1,2})[/-](\d{1,2})(?:\s*\([A-Za-z]+\))?(?:\s+(\d{1,2}):(\d{2})(?::(\d{2}))?)?")
TIME_FORMS = "'1:56 pm on 8 May, 2023', '2023/05/20 (Sat) 02:21' or 2023-05-20T02:21:00"
"""The times that `said_at` reads, as an error names them."""
FORMS: Mapping[str, Mapping[str, Any]] = data_beside(__file__, "conversations.json")
"""By format its notes by what was counted, in their order, and the fields that each kind of its rows may have."""
ANSWERS = ("answer", "ideal_answer", "ideal_response", "ideal_summary")
"""Names of the right answer of a question, likelier ones first."""
SHOWN = 3
"""Names that a note lists."""
Rows = Iterable[tuple[int, Any]]
"""Numbered rows of a file."""


@dataclass
class Reading:
    """What has been read so far of the file `source` in a `form`; `name` is that of the conversation which is being
    read, in its errors. In the notes of a form {n} is how many there are, {first} one of them, {some} the first ones,
    {all} all; without a text what was counted are notes."""

    form: str
    source: str
    name: str = ""
    memories: list[Memory] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    judgments: list[Judgment] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)
    counted: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unknown: Mapping[str, UnknownFields] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known, others = (FORMS[self.form].get(name, {}) for name in ("known", "not_read"))
        self.unknown = self.unknown or {kind: UnknownFields((*known[kind], *others.get(kind, ()))) for kind in known}

    def report(self, row: int, where: str, reason: str) -> None:
        """A row, or its field `where`, that cannot be used."""
        self.errors.append(RowError(self.source, row, reason, f"{self.name} {where}" if self.name else where or None))

    @contextmanager
    def reporting(self, row: int, where: str) -> Iterator[None]:
        """Report what the block cannot use, with its place, and go on behind the block."""
        try:
            yield
        except FieldError as error:
            self.report(row, f"{where}.{error.field}".strip("."), error.reason)

    def project(self, conversation: str | None = None) -> str:
        """The project of a conversation, the present one unless it is named: `FORM/CONVERSATION`."""
        return f"{self.form}/{conversation or self.name}"

    def add_turn(
        self,
        name: str,
        role: str,
        words: str,
        when: datetime | None = None,
        *,
        conversation: str | None = None,
        session: str | None = None,
        ref: str | None = None,
    ) -> None:
        """Add a turn as a memory of the project of its conversation, which reads "role: words"; `ref` is its name in the data set."""
        text = f"{role}: {words}" if words.strip() else role
        more: dict[str, Any] = {"created_at": when, "last_accessed": when, "source_ref": f"{self.form}:{ref or name}"}
        project = self.project(conversation)
        self.memories.append(Memory(name, text, project=project, session=session, author=role, **more))

    def add_query(
        self, query: Query, answering: Iterable[str], without: str = "", row: Mapping[str, Any] | None = None
    ) -> None:
        """Add a question with the memories that answer it, and the answer that its row has; one without any is counted as `without`."""
        said = [(row or {}).get(name) for name in ANSWERS]
        answer = next(
            (str(each).strip() for each in said if isinstance(each, str | int | float) and str(each).strip()), None
        )
        self.queries.append(replace(query, answer=answer))
        labels = [Judgment(query.qid, memory_id, 1) for memory_id in dict.fromkeys(answering)]
        self.judgments += labels
        if without and not labels:
            self.counted[without].append(query.qid)

    def notes(self) -> Iterator[str]:
        """Lines about the whole file."""
        qids = [query.qid for query in self.queries]
        counted = {"several": qids[1:], "queries": qids, **self.counted}
        for what, line in FORMS[self.form]["notes"].items():
            if what == "fields":
                yield from (f"{kind}: {note}" for kind, fields in self.unknown.items() for note in fields.notes())
            elif names := counted.get(what):
                each = [line.format(n=len(names), first=names[0], some=some(names, SHOWN), all="; ".join(names))]
                yield from each if line else names

    def parsed(self) -> ParsedInput:
        """All of it."""
        return ParsedInput(
            self.source,
            self.form,
            memories=tuple(self.memories),
            queries=tuple(self.queries),
            judgments=tuple(self.judgments),
            errors=tuple(self.errors),
            notes=tuple(self.notes()),
        )


def rows_of(path: Path, inner: Callable[[Any], list[Any]], errors: list[RowError], progress: Progress) -> Rows:
    """The rows of a file of JSON lines, or those that are `inner` of a document."""
    if not is_document(path):
        yield from read_objects(path, errors, progress)
        return
    rows = inner(read_document(path))
    for number, row in enumerate(rows, start=1):
        progress(f"reading {path.name}", number - 1, len(rows))
        yield number, row


def an_object(value: Any) -> dict[str, Any]:
    """The value itself; raises FieldError for what is no object."""
    if not isinstance(value, dict):
        raise FieldError("", "must be an object")
    return value


def name_of(given: Any, default: str) -> str:
    """The name of a conversation: a printable text or a number, else the default."""
    usable = isinstance(given, str | int) and not isinstance(given, bool) and str(given).isprintable()
    return str(given).strip() or default if usable else default


def within(node: Any, wanted: Callable[[Any], bool]) -> Iterator[Any]:
    """What is wanted in nested lists and objects, in its order; nothing that is wanted is looked into."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if wanted(one):
            yield one
        elif isinstance(one, list | dict):
            waiting.extend(reversed(list(one.values()) if isinstance(one, dict) else one))


def said_at(value: Any) -> datetime | None:
    """A time as benchmarks of conversations write it, in UTC where it has no zone: LoCoMo's, LongMemEval's, a day in words, ISO 8601,
    or seconds to nanoseconds since 1970. None for anything else."""
    try:
        if isinstance(value, str) and (found := _in_words(value.strip())) is not None:
            return found
        return memory_fields.moment({"time": value}, "time")
    except (ValueError, FieldError):
        return None


def turns_of(session: Any) -> list[Any]:
    """The turns of a session: a list, or a field of an object with a usual name; empty for anything else."""
    if isinstance(session, dict):
        session = next((session[name] for name in TURN_LISTS if isinstance(session.get(name), list)), None)
    return session if isinstance(session, list) else []


def first_of(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of these fields that the row has; the first of all if it has none."""
    return next((name for name in names if row.get(name) is not None and row[name] != ""), names[0])


def is_said(value: Any) -> bool:
    """Whether there is a time at all, readable or not."""
    return value is not None and not (isinstance(value, str) and not value.strip())


def _in_words(text: str) -> datetime | None:
    """A time in one of the benchmarks' own forms, None for another form; raises ValueError for a day that is none."""
    slashed = _SLASHED.fullmatch(text)
    if slashed is not None:
        year, month, day, hour, minute, second = (int(part or 0) for part in slashed.groups())
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    said = _CLOCK.fullmatch(text)
    clock = (int(said[1]) % 12 + (12 if said[3] in "pP" else 0), int(said[2])) if said else (0, 0)
    for form in _DAYS:
        match = form.fullmatch(said[4] if said else text)
        months = [n for n, name in enumerate(MONTHS, 1) if match and name.startswith(match["month"].lower())]
        if match and months:
            return datetime(int(match["year"]), months[0], int(match["day"]), *clock, tzinfo=UTC)
    return None
