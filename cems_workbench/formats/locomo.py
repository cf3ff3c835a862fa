"""LoCoMo: one JSON file per conversation (Maharana et al., 2024), each turn a memory, each question a query.

A conversation has `session_N` (turns with speaker, dia_id, text, blip_caption), `session_N_date_time` and `qa` (with
question, evidence, category). The published single file, a list of `{sample_id, conversation, qa}`, is read too.
Evidence names turns; it is not always well formed, so what can be understood is used and the rest reported.

Written, it is a list of `{sample_id, conversation, qa}`, whose evidence is the turns judged above 0.

A turn's time is that of its session, to the minute, and its place in it in seconds; so the session's time and the places are taken
from the turns' times again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.conversations import (
    MONTHS,
    ConversationForm,
    Part,
    conversation_writer,
    said_by,
    spread,
)
from cems_workbench.formats.base.fields import FieldError, UnknownFields, required_text, text
from cems_workbench.formats.base.files import Sample, read_document
from cems_workbench.formats.base.format import Format
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RowError

NAME = "locomo"
TYPES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_SESSION = re.compile(r"session_(\d{1,6})")
_TIME = re.compile(r"(\d{1,2}):(\d{2})\s*([ap])m\s+on\s+(\d{1,2})\s+(\w+),?\s+(\d{4})", re.IGNORECASE)
_TURN = re.compile(r"D:?([0-9]{1,6}):([0-9]{1,6})")
PROJECT = "locomo/"
_SESSION_NAME = re.compile(r"(.*)/session_([0-9]{1,6})", re.DOTALL)
_QUESTION = re.compile(r"(.*)/q([0-9]{3,9})", re.DOTALL)
_CAPTION = re.compile(r"(.*) \[shared image: (.*)\]", re.DOTALL)
_NUMBERS = re.compile(r"(\d+)")
EMPTY_TURN = {"speaker": "", "dia_id": "", "text": ""}
EMPTY_QUESTION = {"question": "", "evidence": []}
Turns = list[tuple[Memory, dict[str, Any]]]


def _unknown() -> dict[str, UnknownFields]:
    return {
        "turns": UnknownFields(("speaker", "dia_id", "text", "blip_caption")),
        "questions": UnknownFields(("question", "evidence", "category")),
    }


@dataclass
class _Reading:
    """What has been read of one conversation."""

    source: str
    name: str
    memories: dict[str, Memory] = field(default_factory=dict)
    queries: list[Query] = field(default_factory=list)
    judgments: list[Judgment] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)
    last: datetime | None = None
    unknown: dict[str, UnknownFields] = field(default_factory=_unknown)

    def report(self, row: int, where: str, reason: str) -> None:
        self.errors.append(RowError(self.source, row, reason, f"{self.name} {where}"))


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a file of one or more conversations; raises InputError when it holds none."""
    return parse(read_document(path), path, progress)


def parse(document: Any, path: Path, progress: Progress = silent) -> ParsedInput:
    """The conversations of a document; `path` names it and, where they have no name, them. Raises InputError."""
    readings: list[_Reading] = []
    rows = document if isinstance(document, list) else [document]
    if not rows:
        raise InputError(f"{path} is an empty list")
    unknown = _unknown()
    for number, row in enumerate(rows, start=1):
        progress(f"reading {path.name}", number - 1, len(rows))
        if not _is_conversation(row):
            raise InputError(f"{path}: conversation {number} has no session_N with turns")
        default = path.stem if len(rows) == 1 else f"{path.stem}-{number}"
        reading = _Reading(str(path), _name(row.get("sample_id"), default), unknown=unknown)
        _read_sessions(reading, row.get("conversation", row))
        _read_questions(reading, row.get("qa"))
        readings.append(reading)
    return ParsedInput(
        str(path),
        NAME,
        memories=tuple(memory for part in readings for memory in part.memories.values()),
        queries=tuple(query for part in readings for query in part.queries),
        judgments=tuple(judgment for part in readings for judgment in part.judgments),
        errors=tuple(error for part in readings for error in part.errors),
        notes=tuple(f"{kind}: {note}" for kind, fields in unknown.items() for note in fields.notes()),
    )


def _name(sample_id: Any, default: str) -> str:
    usable = isinstance(sample_id, str | int) and not isinstance(sample_id, bool) and str(sample_id).isprintable()
    return str(sample_id).strip() or default if usable else default


def _sessions(conversation: dict[str, Any]) -> Iterator[tuple[int, list[Any]]]:
    """(number, turns) of the sessions that have turns, in their order."""
    numbered = [(int(match[1]), turns) for key, turns in conversation.items() if (match := _SESSION.fullmatch(key))]
    yield from sorted(((n, turns) for n, turns in numbered if isinstance(turns, list) and turns), key=lambda s: s[0])


def _read_sessions(reading: _Reading, conversation: dict[str, Any]) -> None:
    position = 0
    for session, turns in _sessions(conversation):
        key = f"session_{session}_date_time"
        started = _parse_time(conversation.get(key))
        if started is None:
            reading.report(session, key, "must be a time such as '1:56 pm on 8 May, 2023'; its turns have no date")
        else:
            reading.last = max(reading.last or started, started)
        for number, turn in enumerate(turns, start=1):
            position += 1
            where = f"session_{session}[{number}]"
            try:
                _read_turn(reading, turn, session, None if started is None else started + timedelta(seconds=number))
            except FieldError as error:
                reading.report(position, f"{where}.{error.field}" if error.field else where, error.reason)


def _read_turn(reading: _Reading, turn: Any, session: int, when: datetime | None) -> None:
    """Add one turn as a memory; raises FieldError."""
    if not isinstance(turn, dict):
        raise FieldError("", "must be an object")
    turn_id, speaker = required_text(turn, "dia_id").strip(), required_text(turn, "speaker")
    said, caption = text(turn, "text"), text(turn, "blip_caption")
    if said is None and caption is None:
        raise FieldError("text", "is missing")
    if turn_id in reading.memories:
        raise FieldError("dia_id", f"{turn_id!r} stands already in the conversation")
    reading.unknown["turns"].see(turn)
    content = f"{speaker}: {said or ''}{f' [shared image: {caption}]' if caption else ''}"
    reading.memories[turn_id] = Memory(
        id=f"{reading.name}/{turn_id}",
        content=content,
        project=f"locomo/{reading.name}",
        session=f"{reading.name}/session_{session}",
        author=speaker,
        created_at=when,
        last_accessed=when,
        source_ref=f"locomo:{reading.name}:{turn_id}",
    )


def _read_questions(reading: _Reading, questions: Any) -> None:
    for number, row in enumerate(questions if isinstance(questions, list) else [], start=1):
        qid = f"{reading.name}/q{number:03d}"
        try:
            if not isinstance(row, dict):
                raise FieldError("", "must be an object")
            question = required_text(row, "question")
        except FieldError as error:
            reading.report(number, f"qa[{number}].{error.field}".rstrip("."), error.reason)
            continue
        reading.unknown["questions"].see(row)
        category = row.get("category")
        kind = TYPES.get(category) if isinstance(category, int) else None
        reading.queries.append(Query(qid, question, None, reading.last, kind))
        for turn_id in _evidence(reading, row.get("evidence"), number):
            reading.judgments.append(Judgment(qid, f"{reading.name}/{turn_id}", 1))


def _evidence(reading: _Reading, evidence: Any, number: int) -> list[str]:
    """The turns a question's evidence names, each once; what names no turn of the conversation is reported."""
    turns: dict[str, None] = {}
    items = evidence if isinstance(evidence, list) else [] if evidence is None else [evidence]
    for item in items:
        said = item if isinstance(item, str) else ""
        named = [f"D{int(session)}:{int(turn)}" for session, turn in _TURN.findall(said)]
        turns.update(dict.fromkeys(turn for turn in named if turn in reading.memories))
        unknown = [turn for turn in named if turn not in reading.memories]
        rest = _TURN.sub("", item).strip(" ;,()[]") if isinstance(item, str) else repr(item)
        where = f"qa[{number}].evidence"
        if unknown:
            reading.report(number, where, f"no turn {', '.join(unknown)} in the conversation")
        if rest:
            reading.report(number, where, f"{ascii(rest)[:60]} is not a turn such as D1:3")
    return list(turns)


def _parse_time(value: Any) -> datetime | None:
    """LoCoMo's '1:56 pm on 8 May, 2023' as UTC; by hand, because strptime reads months in the user's language."""
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    hour, minute, half, day, month, year = match.groups()
    try:
        clock = int(hour) % 12 + (12 if half in "pP" else 0)
        return datetime(int(year), MONTHS.index(month.lower()) + 1, int(day), clock, int(minute), tzinfo=UTC)
    except ValueError:
        return None


def _is_conversation(row: Any) -> bool:
    inner = row.get("conversation", row) if isinstance(row, dict) else None
    return isinstance(inner, dict) and next(_sessions(inner), None) is not None


def sniff(sample: Sample) -> bool:
    """A JSON document with sessions, or a list of such."""
    first = sample.document[0] if isinstance(sample.document, list) and sample.document else sample.document
    return _is_conversation(first)


def _owner(memory: Memory) -> str:
    """The conversation of a turn; raises ValueError."""
    name = (memory.project or "").removeprefix(PROJECT)
    session = _SESSION_NAME.fullmatch(memory.session or "")
    if memory.project != PROJECT + name or session is None or session[1] != name:
        raise ValueError("is no turn of a LoCoMo conversation (project locomo/NAME, session NAME/session_N)")
    if not memory.id.startswith(f"{name}/"):
        raise ValueError(f"has an id that does not begin with its conversation, {name}/")
    said_by(memory)
    return name


def _asked_in(query: Query) -> str:
    """The conversation of a question; raises ValueError."""
    match = _QUESTION.fullmatch(query.qid)
    if match is None or int(match[2]) < 1 or match[2] != f"{int(match[2]):03d}":
        raise ValueError("is no question of a LoCoMo conversation (qid NAME/q001)")
    return match[1]


def _build(part: Part) -> tuple[dict[str, Any], int]:
    """The document of a conversation, and how many places it holds."""
    sessions: dict[int, Turns] = {}
    for memory in part.memories:
        match = _SESSION_NAME.fullmatch(memory.session or "")
        if match is not None:
            sessions.setdefault(int(match[2]), []).append((memory, _turn(part.name, memory)))
    speakers = list(dict.fromkeys(memory.author for memory in part.memories))[:2]
    conversation: dict[str, Any] = dict(zip(("speaker_a", "speaker_b"), speakers, strict=False))
    held = 0
    for number in sorted(sessions):
        started, turns, empty = _session(sessions[number])
        if started is not None:
            conversation[f"session_{number}_date_time"] = _clock(started)
        conversation[f"session_{number}"] = turns
        held += empty
    questions, empty = spread([(_number(query), _question(part, query)) for query in part.queries], EMPTY_QUESTION)
    return {"sample_id": part.name, "conversation": conversation, "qa": questions}, held + empty


def _turn(name: str, memory: Memory) -> dict[str, Any]:
    said = said_by(memory)
    turn = {"speaker": memory.author, "dia_id": memory.id.removeprefix(f"{name}/")}
    caption = _CAPTION.fullmatch(said)
    if caption is None or not caption[2].strip() or (caption[1] and not caption[1].strip()):
        return {**turn, "text": said}
    return {**turn, "blip_caption": caption[2], "text": caption[1]}


def _session(turns: Turns) -> tuple[datetime | None, list[dict[str, Any]], int]:
    """When a session began, its turns in their order, and how many places are held."""
    times = [memory.created_at for memory, _ in turns if memory.created_at is not None]
    if len(times) < len(turns):
        return None, [turn for _, turn in sorted(turns, key=_natural)], 0
    started = _minute_before(min(times))
    ordered = sorted(turns, key=lambda pair: (pair[0].created_at, _natural(pair)))
    return started, *spread(_places(ordered, started), EMPTY_TURN)


def _places(turns: Turns, started: datetime) -> Sequence[tuple[int, dict[str, Any]]]:
    """Each turn with its place: the seconds since the session began."""
    return [(int((memory.created_at or started).timestamp() - started.timestamp()), turn) for memory, turn in turns]


def _minute_before(first: datetime) -> datetime:
    """The whole minute in which a session began whose first turn has this time: a second or more before it."""
    return (first - min(timedelta(seconds=1), first - datetime.min.replace(tzinfo=first.tzinfo))).replace(
        second=0, microsecond=0
    )


def _natural(pair: tuple[Memory, dict[str, Any]]) -> list[tuple[int, str]]:
    """D1:2 before D1:10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in _NUMBERS.split(pair[0].id)]


def _number(query: Query) -> int:
    return int(query.qid.rpartition("/q")[2])


def _question(part: Part, query: Query) -> dict[str, Any]:
    evidence = [label.memory_id.removeprefix(f"{part.name}/") for label in part.evidence.get(query.qid, ())]
    category = next((number for number, kind in TYPES.items() if kind == query.type), None)
    row = {"question": query.query, "evidence": evidence}
    return row if category is None else {**row, "category": category}


def _clock(moment: datetime) -> str:
    """The data set's '1:56 pm on 8 May, 2023'."""
    month = MONTHS[moment.month - 1].capitalize()
    half = "pm" if moment.hour >= 12 else "am"
    return f"{moment.hour % 12 or 12}:{moment.minute:02d} {half} on {moment.day} {month}, {moment.year:04d}"


FORMAT = Format(
    NAME,
    "a conversation with sessions and questions",
    order=0,
    sniff=sniff,
    read=read,
    suffixes=(".json",),
    dataset=conversation_writer(ConversationForm(_owner, _asked_in, _build, parse), place=6),
    place=1,
    shape="a document with session_1, session_2 … of turns, and qa",
    needs=(("conversation", "session_1"), ("qa", "session_1")),
)
