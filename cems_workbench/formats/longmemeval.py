"""LongMemEval: a list of questions, each with its own haystack of chat sessions (Wu et al., ICLR 2025).

A row is `{question_id, question_type, question, question_date, haystack_session_ids, haystack_dates, haystack_sessions}`; a session
is a list of turns `{role, content, has_answer?}`. Each turn is a memory of the project `longmemeval/QUESTION_ID`, which the query
names too, because a question searches only its own haystack; a turn with has_answer is judged 1. Times have no zone: UTC.

Written, it is a list of questions, each with its haystack of sessions; has_answer marks the turns judged above 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.conversations import ConversationForm, Part, conversation_writer, said_by, spread
from cems_workbench.formats.base.fields import FieldError, UnknownFields, identifier, required_text, text
from cems_workbench.formats.base.files import Sample, read_document, type_name
from cems_workbench.formats.base.format import Format
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RowError

NAME = "longmemeval"
ABSTENTION = "abstention"
QUESTION_FIELDS = (
    "question_id",
    "question_type",
    "question",
    "question_date",
    "haystack_session_ids",
    "haystack_dates",
    "haystack_sessions",
)
_TIME = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})(?:\s*\([A-Za-z]+\))?(?:\s+(\d{1,2}):(\d{2}))?")
PROJECT = "longmemeval/"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_POSITION = re.compile(r"/([1-9][0-9]{0,8})")
EMPTY_TURN = {"role": "user", "content": ""}
Turns = list[tuple[int, Memory]]


@dataclass
class _Reading:
    """What has been read so far."""

    source: str
    memories: list[Memory] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    judgments: list[Judgment] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)
    unknown_of_questions: UnknownFields = field(default_factory=lambda: UnknownFields(QUESTION_FIELDS))
    unknown_of_turns: UnknownFields = field(default_factory=lambda: UnknownFields(("role", "content", "has_answer")))

    def report(self, row: int, where: str, reason: str) -> None:
        self.errors.append(RowError(self.source, row, reason, where or None))


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a file of questions; raises InputError when it holds none."""
    return parse(read_document(path), path, progress)


def parse(document: Any, path: Path, progress: Progress = silent) -> ParsedInput:
    """The questions of a document with their haystacks; raises InputError when it holds none."""
    rows = document if isinstance(document, list) else [document]
    if not any(_is_question(row) for row in rows):
        raise InputError(f"{path}: no question with a haystack in it")
    reading = _Reading(str(path))
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        progress(f"reading {path.name}", number - 1, len(rows))
        try:
            if not isinstance(row, dict):
                raise FieldError("", f"must be an object, found {type_name(row)}")
            qid = identifier(row, "question_id")
            if seen.setdefault(qid, number) != number:
                raise FieldError("question_id", f"{qid!r} stands already in row {seen[qid]}")
            _read_question(reading, number, qid, row)
        except FieldError as error:
            reading.report(number, error.field, error.reason)
    return ParsedInput(
        str(path),
        NAME,
        memories=tuple(reading.memories),
        queries=tuple(reading.queries),
        judgments=tuple(reading.judgments),
        errors=tuple(reading.errors),
        notes=(
            *(f"questions: {note}" for note in reading.unknown_of_questions.notes()),
            *(f"turns: {note}" for note in reading.unknown_of_turns.notes()),
        ),
    )


def _read_question(reading: _Reading, number: int, qid: str, row: dict[str, Any]) -> None:
    """Add one question with its haystack; raises FieldError when there is no question."""
    question, project = required_text(row, "question"), f"longmemeval/{qid}"
    abstains = qid.endswith("_abs")
    kind = ABSTENTION if abstains else text(row, "question_type")
    reading.unknown_of_questions.see(row)
    reading.queries.append(
        Query(qid, question, project, _time(row.get("question_date")), kind, False if abstains else None)
    )
    sessions, names, dates = (_list(row, f"haystack_{part}") for part in ("sessions", "session_ids", "dates"))
    used: set[str] = set()
    for place, session in enumerate(sessions):
        given = names[place] if place < len(names) else None
        name = given if isinstance(given, str) and given.isprintable() and given.strip() else f"session_{place + 1}"
        name = _unused(name, used)
        started = _time(dates[place]) if place < len(dates) else None
        if not isinstance(session, list):
            reading.report(number, f"haystack_sessions[{place + 1}]", "must be a list of turns")
            continue
        for position, turn in enumerate(session, start=1):
            when = None if started is None else started + timedelta(seconds=position)
            try:
                _read_turn(reading, turn, (qid, name, position), project, when)
            except FieldError as error:
                where = f"haystack_sessions[{place + 1}][{position}]"
                reading.report(number, f"{where}.{error.field}" if error.field else where, error.reason)


def _read_turn(reading: _Reading, turn: Any, place: tuple[str, str, int], project: str, when: datetime | None) -> None:
    """Add one turn as a memory; raises FieldError."""
    if not isinstance(turn, dict):
        raise FieldError("", "must be an object")
    qid, session, position = place
    role, content = text(turn, "role") or "user", required_text(turn, "content")
    name = f"{qid}/{session}/{position}"
    reading.unknown_of_turns.see(turn)
    reading.memories.append(
        Memory(
            id=name,
            content=f"{role}: {content}",
            project=project,
            session=f"{qid}/{session}",
            author=role,
            created_at=when,
            last_accessed=when,
            source_ref=f"longmemeval:{name}",
        )
    )
    if turn.get("has_answer") is True:
        reading.judgments.append(Judgment(qid, name, 1))


def _unused(name: str, used: set[str]) -> str:
    """The name of a session, with a number if the same session occurs again in the haystack."""
    free, times = name, 1
    while free in used:
        times += 1
        free = f"{name}.{times}"
    used.add(free)
    return free


def _list(row: dict[str, Any], field: str) -> list[Any]:
    value = row.get(field)
    return value if isinstance(value, list) else []


def _time(value: Any) -> datetime | None:
    """The data set's '2023/05/20 (Sat) 02:21' as UTC, None for anything else."""
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    year, month, day, hour, minute = (int(part or 0) for part in match.groups())
    try:
        return datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        return None


def _is_question(row: Any) -> bool:
    return isinstance(row, dict) and "question" in row and isinstance(row.get("haystack_sessions"), list)


def sniff(sample: Sample) -> bool:
    """A JSON document of questions with haystacks."""
    first = sample.document[0] if isinstance(sample.document, list) and sample.document else sample.document
    return _is_question(first)


def _owner(memory: Memory) -> str:
    """The question in whose haystack a turn is; raises ValueError."""
    qid, session = (memory.project or "").removeprefix(PROJECT), memory.session or ""
    if memory.project != PROJECT + qid or not session.startswith(f"{qid}/"):
        raise ValueError("is no turn of a haystack (project longmemeval/QID, session QID/NAME)")
    if not memory.id.startswith(session) or not _POSITION.fullmatch(memory.id[len(session) :]):
        raise ValueError("has an id that is not its session's and its place in it, as QID/NAME/1")
    said_by(memory)
    return qid


def _asked_of(query: Query) -> str:
    """The haystack of a question: its own; raises ValueError when it is asked of anything else."""
    if query.project != PROJECT + query.qid:
        raise ValueError("is not asked of a haystack of its own (project longmemeval/QID)")
    return query.qid


def _build(part: Part) -> tuple[dict[str, Any], int]:
    """The row of a question, and how many places of turns it holds."""
    sessions: dict[str, Turns] = {}
    for memory in part.memories:
        name = (memory.session or "").removeprefix(f"{part.name}/")
        sessions.setdefault(name, []).append((int(memory.id.rpartition("/")[2]), memory))
    started = {name: _start(turns) for name, turns in sessions.items()}
    order = sorted(sessions, key=lambda name: (started[name] is None, str(started[name] or ""), name))
    relevant = {label.memory_id for labels in part.evidence.values() for label in labels}
    haystack, held = [], 0
    for name in order:
        turns, empty = spread(
            [(place, _turn(memory, relevant)) for place, memory in sorted(sessions[name], key=lambda pair: pair[0])],
            EMPTY_TURN,
        )
        haystack.append(turns)
        held += empty
    row = _question(part.queries[0]) if part.queries else {"question_id": part.name}
    return {
        **row,
        "haystack_session_ids": order,
        "haystack_dates": [_date(started[name]) for name in order],
        "haystack_sessions": haystack,
    }, held


def _question(query: Query) -> dict[str, Any]:
    row = {"question_id": query.qid, "question": query.query, "question_date": _date(query.as_of)}
    return row if query.type is None else {**row, "question_type": query.type}


def _turn(memory: Memory, relevant: set[str]) -> dict[str, Any]:
    turn = {"role": memory.author, "content": said_by(memory)}
    return {**turn, "has_answer": True} if memory.id in relevant else turn


def _start(turns: Turns) -> datetime | None:
    """When a session began: its turns follow by seconds; None when one has no time."""
    begins = []
    for place, memory in turns:
        try:
            begins.append(None if memory.created_at is None else memory.created_at - timedelta(seconds=place))
        except OverflowError:
            return None
    return None if None in begins else min(begin for begin in begins if begin is not None)


def _date(moment: datetime | None) -> str:
    """The data set's '2023/05/20 (Sat) 02:21', empty for None."""
    if moment is None:
        return ""
    day = f"{moment.year:04d}/{moment.month:02d}/{moment.day:02d} ({DAYS[moment.weekday()]})"
    return f"{day} {moment.hour:02d}:{moment.minute:02d}"


FORMAT = Format(
    NAME,
    "LongMemEval questions with their haystacks of sessions",
    order=0,
    sniff=sniff,
    read=read,
    suffixes=(".json",),
    dataset=conversation_writer(ConversationForm(_owner, _asked_of, _build, parse, by_question=True), place=7),
    place=12,
    shape="objects with a question and haystack_sessions",
    needs=(("question",), ("haystack_sessions",)),
)
