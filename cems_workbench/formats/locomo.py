"""LoCoMo: one JSON file per conversation (Maharana et al., 2024), each turn a memory, each question a query.

A conversation has `session_N` (turns with speaker, dia_id, text, blip_caption), `session_N_date_time` and `qa` (with
question, evidence, category). The published single file, a list of `{sample_id, conversation, qa}`, is read too.
Evidence names turns; it is not always well formed, so what can be understood is used and the rest reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.fields import FieldError, UnknownFields, required_text, text
from cems_workbench.formats.reader import Reader, Sample, read_document, register
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RowError

NAME = "locomo"
TYPES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_SESSION = re.compile(r"session_(\d{1,6})")
_TIME = re.compile(r"(\d{1,2}):(\d{2})\s*([ap])m\s+on\s+(\d{1,2})\s+(\w+),?\s+(\d{4})", re.IGNORECASE)
_TURN = re.compile(r"D:?([0-9]{1,6}):([0-9]{1,6})")


def _unknown() -> dict[str, UnknownFields]:
    return {
        "turns": UnknownFields(("speaker", "dia_id", "text", "blip_caption")),
        "questions": UnknownFields(("question", "evidence", "category")),
    }


@dataclass
class _Conversation:
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
    found: list[_Conversation] = []
    rows = document if isinstance(document, list) else [document]
    if not rows:
        raise InputError(f"{path} is an empty list")
    unknown = _unknown()
    for number, row in enumerate(rows, start=1):
        progress(f"reading {path.name}", number - 1, len(rows))
        if not _is_conversation(row):
            raise InputError(f"{path}: conversation {number} has no session_N with turns")
        default = path.stem if len(rows) == 1 else f"{path.stem}-{number}"
        conversation = _Conversation(str(path), _name(row.get("sample_id"), default), unknown=unknown)
        _read_sessions(conversation, row.get("conversation", row))
        _read_questions(conversation, row.get("qa"))
        found.append(conversation)
    return ParsedInput(
        str(path),
        NAME,
        memories=tuple(memory for one in found for memory in one.memories.values()),
        queries=tuple(query for one in found for query in one.queries),
        judgments=tuple(judgment for one in found for judgment in one.judgments),
        errors=tuple(error for one in found for error in one.errors),
        notes=tuple(f"{kind}: {note}" for kind, fields in unknown.items() for note in fields.notes()),
    )


def _name(sample_id: Any, default: str) -> str:
    usable = isinstance(sample_id, str | int) and not isinstance(sample_id, bool) and str(sample_id).isprintable()
    return str(sample_id).strip() or default if usable else default


def _sessions(conversation: dict[str, Any]) -> Iterator[tuple[int, list[Any]]]:
    """(number, turns) of the sessions that have turns, in their order."""
    numbered = [(int(match[1]), turns) for key, turns in conversation.items() if (match := _SESSION.fullmatch(key))]
    yield from sorted(((n, turns) for n, turns in numbered if isinstance(turns, list) and turns), key=lambda s: s[0])


def _read_sessions(found: _Conversation, conversation: dict[str, Any]) -> None:
    position = 0
    for session, turns in _sessions(conversation):
        key = f"session_{session}_date_time"
        started = _parse_time(conversation.get(key))
        if started is None:
            found.report(session, key, "must be a time such as '1:56 pm on 8 May, 2023'; its turns have no date")
        else:
            found.last = max(found.last or started, started)
        for number, turn in enumerate(turns, start=1):
            position += 1
            where = f"session_{session}[{number}]"
            try:
                _read_turn(found, turn, session, None if started is None else started + timedelta(seconds=number))
            except FieldError as error:
                found.report(position, f"{where}.{error.field}" if error.field else where, error.reason)


def _read_turn(found: _Conversation, turn: Any, session: int, when: datetime | None) -> None:
    """Add one turn as a memory; raises FieldError."""
    if not isinstance(turn, dict):
        raise FieldError("", "must be an object")
    turn_id, speaker = required_text(turn, "dia_id").strip(), required_text(turn, "speaker")
    said, caption = text(turn, "text"), text(turn, "blip_caption")
    if said is None and caption is None:
        raise FieldError("text", "is missing")
    if turn_id in found.memories:
        raise FieldError("dia_id", f"{turn_id!r} stands already in the conversation")
    found.unknown["turns"].see(turn)
    content = f"{speaker}: {said or ''}{f' [shared image: {caption}]' if caption else ''}"
    found.memories[turn_id] = Memory(
        id=f"{found.name}/{turn_id}",
        content=content,
        project=f"locomo/{found.name}",
        session=f"{found.name}/session_{session}",
        author=speaker,
        created_at=when,
        last_accessed=when,
        source_ref=f"locomo:{found.name}:{turn_id}",
    )


def _read_questions(found: _Conversation, questions: Any) -> None:
    for number, row in enumerate(questions if isinstance(questions, list) else [], start=1):
        qid = f"{found.name}/q{number:03d}"
        try:
            if not isinstance(row, dict):
                raise FieldError("", "must be an object")
            question = required_text(row, "question")
        except FieldError as error:
            found.report(number, f"qa[{number}].{error.field}".rstrip("."), error.reason)
            continue
        found.unknown["questions"].see(row)
        category = row.get("category")
        kind = TYPES.get(category) if isinstance(category, int) else None
        found.queries.append(Query(qid, question, None, found.last, kind))
        for turn_id in _evidence(found, row.get("evidence"), number):
            found.judgments.append(Judgment(qid, f"{found.name}/{turn_id}", 1))


def _evidence(found: _Conversation, evidence: Any, number: int) -> list[str]:
    """The turns a question's evidence names, each once; what names no turn of the conversation is reported."""
    turns: dict[str, None] = {}
    items = evidence if isinstance(evidence, list) else [] if evidence is None else [evidence]
    for item in items:
        said = item if isinstance(item, str) else ""
        named = [f"D{int(session)}:{int(turn)}" for session, turn in _TURN.findall(said)]
        turns.update(dict.fromkeys(turn for turn in named if turn in found.memories))
        unknown = [turn for turn in named if turn not in found.memories]
        rest = _TURN.sub("", item).strip(" ;,()[]") if isinstance(item, str) else repr(item)
        where = f"qa[{number}].evidence"
        if unknown:
            found.report(number, where, f"no turn {', '.join(unknown)} in the conversation")
        if rest:
            found.report(number, where, f"{ascii(rest)[:60]} is not a turn such as D1:3")
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


register(Reader(NAME, "a conversation with sessions and questions", 0, sniff, read, (".json",)))
