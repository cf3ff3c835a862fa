"""What the formats of conversations share: their times, whose turn a memory is, which labels are evidence, and the check before writing.

A conversation is written only if it reads back the same: what its reader turns into another memory or query is removed, and the rest
is rebuilt, until all of it comes back under its own id with its own words. Fields that come back otherwise are counted.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base import memory_fields
from cems_workbench.formats.base.fields import MONTHS, FieldError, UnknownFields
from cems_workbench.formats.base.files import is_document, read_document, read_objects
from cems_workbench.formats.base.format import DataSet, DatasetWriter, Exported, Losses, judged
from cems_workbench.formats.base.judgments import one_grade_each
from cems_workbench.platform.atomic_write import output_path
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
ASKED_WITHIN = "each query names the project of its conversation; evaluate --per-query-project searches it there alone"
"""The note of an input with several conversations."""
WRITTEN_PATH = Path("written.json")
"""What a document is called that is read back before it is written."""
MAX_EMPTY_TURNS = 10_000
"""How many places of one conversation are held by empty turns at most."""

SHOWN = 3
"""Names that a note lists."""
FIELDS, QUERIES, SEVERAL = "fields", "queries", "several"
"""Keys of notes: on the fields that are not known, if there are queries, if there are several."""
Rows = Iterable[tuple[int, Any]]
"""Numbered rows of a file."""


@dataclass
class Reading:
    """What has been read so far of the file `source`; `name` is that of the conversation which is being read, in its errors.

    `said` are the notes of a format by what was `counted`, in their order: {n} is how many there are, {first} one of them, {some} the first
    ones, {all} all; without a text what was counted are notes. `unknown` has the fields that each kind of row may have.
    """

    source: str
    said: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, UnknownFields] = field(default_factory=dict)
    name: str = ""
    memories: list[Memory] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    judgments: list[Judgment] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)
    counted: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

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

    def add_turn(
        self, name: str, project: str, role: str, words: str, when: datetime | None = None, session: str | None = None
    ) -> None:
        """Add a turn as a memory of the project `FORM/CONVERSATION`, which reads "role: words"."""
        ref = f"{project.partition('/')[0]}:{name}"
        text = f"{role}: {words}" if words.strip() else role
        self.memories.append(
            Memory(
                name,
                text,
                project=project,
                session=session,
                author=role,
                created_at=when,
                last_accessed=when,
                source_ref=ref,
            )
        )

    def add_query(self, query: Query, answering: Iterable[str], without: str = "") -> None:
        """Add a question with the memories that answer it; one without any is counted as `without`."""
        self.queries.append(query)
        labels = [Judgment(query.qid, memory_id, 1) for memory_id in dict.fromkeys(answering)]
        self.judgments += labels
        if without and not labels:
            self.counted[without].append(query.qid)

    def notes(self) -> Iterator[str]:
        """Lines about the whole file."""
        qids = [query.qid for query in self.queries]
        counted = {SEVERAL: qids[1:], QUERIES: qids, **self.counted}
        for what, line in self.said.items():
            if what == FIELDS:
                yield from (f"{kind}: {note}" for kind, fields in self.unknown.items() for note in fields.notes())
            elif names := counted.get(what):
                each = [line.format(n=len(names), first=names[0], some=some(names), all="; ".join(names))]
                yield from each if line else names

    def parsed(self, format: str) -> ParsedInput:
        """All of it, as read by a format."""
        return ParsedInput(
            self.source,
            format,
            memories=tuple(self.memories),
            queries=tuple(self.queries),
            judgments=tuple(self.judgments),
            errors=tuple(self.errors),
            notes=tuple(self.notes()),
        )


def some(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if names[SHOWN:] else "")


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


@dataclass
class Part:
    """One conversation: its name in the file, its turns, its questions, and the turns that answer each question."""

    name: str
    memories: list[Memory] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    evidence: dict[str, list[Judgment]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConversationForm:
    """A form that conversations are written in.

    `memory` and `query` give the name of the conversation something belongs to, or raise ValueError with the reason why it
    can be in none. `build` makes the document of a part and says how many places it holds; `parse` reads it.
    """

    memory: Callable[[Memory], str]
    query: Callable[[Query], str]
    build: Callable[[Part], tuple[dict[str, Any], int]]
    parse: Callable[[Rows, Path, list[RowError]], ParsedInput]
    by_question: bool = False
    """Whether each question has its own conversation, which may have no turns, and every turn belongs to a question."""


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


def conversation_writer(form: ConversationForm, place: int) -> DatasetWriter:
    """The writer of a format with this form."""
    return DatasetWriter(
        lambda dataset, path, progress: _write(form, dataset, path, progress),
        ("memories", "queries", "judgments"),
        place,
    )


def _write(form: ConversationForm, dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """Write a list of conversations as one JSON document; raises InputError when there is none among the memories."""
    losses = Losses()
    parts = _sorted_in(form, dataset, losses, progress, path.name)
    rows = {"memories": 0, "queries": 0, "judgments": 0}
    with output_path(path) as place, place.open("w", encoding="utf-8", newline="") as file:
        for number, part in enumerate(parts):
            progress(f"checking {path.name}", number, len(parts))
            document = _writable(form, part, losses)
            if document is None:
                continue
            file.write("[\n" if not rows["memories"] + rows["queries"] else ",\n")
            file.write(json.dumps(document, ensure_ascii=False))
            rows["memories"] += len(part.memories)
            rows["queries"] += len(part.queries)
            rows["judgments"] += sum(map(len, part.evidence.values()))
        file.write("\n]\n")
        if not rows["memories"] + rows["queries"]:
            why = f", e.g. {losses.left_out[0]}" if losses.left_out else ""
            raise InputError(f"{path}: there is no conversation to write{why}")
    return Exported.of(rows, losses)


def _sorted_in(form: ConversationForm, dataset: DataSet, losses: Losses, progress: Progress, name: str) -> list[Part]:
    """The conversations, in the order in which they come first."""
    parts: dict[str, Part] = {}
    place_of: dict[str, str] = {}
    for memory in dataset.counted(progress, name):
        try:
            owner = form.memory(memory)
        except ValueError as error:
            losses.leave_out(memory.id, str(error))
            continue
        place_of[memory.id] = owner
        parts.setdefault(owner, Part(owner)).memories.append(memory)
    asked: dict[str, Part] = {}
    for query in dataset.queries:
        try:
            owner = form.query(query)
            if owner not in parts and not form.by_question:
                raise ValueError("there is no turn of its conversation")
        except ValueError as error:
            losses.leave_out(query.qid, str(error))
            continue
        asked[query.qid] = parts.setdefault(owner, Part(owner))
        asked[query.qid].queries.append(query)
    for judgment in one_grade_each(dataset.judgments, losses.left_out):
        part = asked.get(judgment.qid)
        if part is None or place_of.get(judgment.memory_id) != part.name:
            losses.leave_out(judged(judgment), "is not of a question and a turn of one conversation")
        elif judgment.grade <= 0:
            losses.leave_out(judged(judgment), f"grade {judgment.grade} is no evidence, and the form has nothing else")
        else:
            part.evidence.setdefault(judgment.qid, []).append(judgment)
    return list(parts.values())


def _writable(form: ConversationForm, part: Part, losses: Losses) -> dict[str, Any] | None:
    """The document of a part of which everything comes back; what does not is taken out of the part. None if that is all."""
    while part.queries if form.by_question else part.memories:
        document, held = form.build(part)
        back = form.parse([(1, document)], WRITTEN_PATH, [])
        memories = {memory.id: memory for memory in back.memories}
        queries = {query.qid: query for query in back.queries}
        ids, qids = {memory.id for memory in part.memories}, {query.qid for query in part.queries}
        lost = {one.id for one in part.memories if one.id not in memories or memories[one.id].content != one.content}
        silent = {one.qid for one in part.queries if one.qid not in queries or queries[one.qid].query != one.query}
        if not (lost or silent):
            if memories.keys() <= ids and queries.keys() <= qids:
                _compare(part, memories, queries, back.judgments, losses)
                losses.held += held
                return document
            lost, silent = ids, qids  # under other names only
        _take_out(part, lost, silent, losses)
    for name in (*(memory.id for memory in part.memories), *(query.qid for query in part.queries)):
        losses.leave_out(
            name, "nothing of its conversation can be written" if part.queries else "its question is not here"
        )
    return None


def _take_out(part: Part, lost: set[str], silent: set[str], losses: Losses) -> None:
    for memory in part.memories:
        if memory.id in lost:
            losses.leave_out(memory.id, "would be read back under another id or with another text")
    for query in part.queries:
        if query.qid in silent:
            losses.leave_out(query.qid, "would be read back under another id or in other words")
    part.memories = [memory for memory in part.memories if memory.id not in lost]
    part.queries = [query for query in part.queries if query.qid not in silent]
    for qid, labels in part.evidence.items():
        for label in labels:
            if label.memory_id in lost or qid in silent:
                losses.leave_out(judged(label), "its question or its turn is left out")
    part.evidence = {
        qid: [label for label in labels if label.memory_id not in lost]
        for qid, labels in part.evidence.items()
        if qid not in silent
    }


def _compare(
    part: Part,
    memories: Mapping[str, Memory],
    queries: Mapping[str, Query],
    judgments: Iterable[Judgment],
    losses: Losses,
) -> None:
    for memory in part.memories:
        losses.compare(memory.id, memory, memories[memory.id])
    for query in part.queries:
        losses.compare(query.qid, query, queries[query.qid])
    back = {(judgment.qid, judgment.memory_id): judgment for judgment in judgments}
    for qid, labels in part.evidence.items():
        for label in labels:
            if (read := back.get((qid, label.memory_id))) is None:
                losses.leave_out(judged(label), "the evidence of a question cannot name this turn")
            else:
                losses.compare(judged(label), label, read)
        part.evidence[qid] = [label for label in labels if (qid, label.memory_id) in back]


def said_by(memory: Memory) -> str:
    """The words of a turn, without the author that its text begins with; raises ValueError when it does not."""
    if memory.author is None or not memory.content.startswith(f"{memory.author}: "):
        raise ValueError('its text does not read "author: words"')
    return memory.content.removeprefix(f"{memory.author}: ")


def spread(placed: Sequence[tuple[int, dict[str, Any]]], empty: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Items at their places (from 1) with `empty` in between, and how many; one after the other where places collide."""
    places = [place for place, _ in placed]
    if not places or min(places) < 1 or len(set(places)) < len(places) or max(places) - len(places) > MAX_EMPTY_TURNS:
        return [item for _, item in placed], 0
    row = [dict(empty) for _ in range(max(places))]
    for place, item in placed:
        row[place - 1] = item
    return row, len(row) - len(places)
