"""LoCoMo: conversations in sessions, each turn a memory, each question a query (Maharana et al., 2024).

A conversation has `session_N` (turns with speaker, dia_id, text, blip_caption), `session_N_date_time` and `qa` (with question, evidence,
category); the published file is a list of `{sample_id, conversation, qa}`. A question searches its own conversation, whose project
`locomo/NAME` it has. Evidence names turns; it is not always well formed, so what can be understood is used and the rest reported.

Also read: one list of turns with timestamps instead of sessions, under a key for each conversation (mem0's locomo10_rag.json), where a
session begins with another timestamp and D1:3 is the third turn of the first; sessions as a list (LoCoMo-Refined's conversations.jsonl),
with the questions in another file; a row for each question; JSON lines of all these.

A turn's time is that of its session, to the minute, and its place in it in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError, required_text, storable, text
from cems_workbench.formats.base.files import Sample, take_sample
from cems_workbench.formats.base.format import described
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Query, RowError
from workbench_benchmarks import conversations

NAME = "locomo"
TYPES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_SESSION = re.compile(r"session_(\d{1,6})")
_OF_SESSION = re.compile(r"(?:events_)?session_\d{1,6}(_\w+)?")
_NUMBERED = re.compile(r"(?:session|s|D)?[\s_-]*(\d{1,6})", re.IGNORECASE)
_TURN = re.compile(r"D\s*:?\s*([0-9]{1,6})\s*:\s*([0-9]{1,6})", re.IGNORECASE)
_BETWEEN = re.compile(r"""[\s;,()\[\]{}'"]+""")

FIELDS: Mapping[str, Sequence[str]] = conversations.FORMS[NAME]["fields"]
"""Names of fields, likelier ones first."""
NAMES, ASKED, NUMBERS = (FIELDS[each] for each in ("names", "asked", "numbers"))
TURN_IDS, SPEAKERS, TEXTS = (FIELDS[each] for each in ("turn_ids", "speakers", "texts"))
QUESTION_IDS, CATEGORIES = FIELDS["question_ids"], FIELDS["categories"]
QUESTION_FIELDS = (*QUESTION_IDS, *CATEGORIES, "question", "answer", "evidence")
WRAPPERS = ("data", "samples", "conversations")
NOT_READ: Mapping[str, Sequence[str]] = conversations.FORMS[NAME]["not_read"]
"""What is known of the benchmark's files and is neither a turn nor a question."""
CONVERSATIONS, QUESTIONS = "conversations.jsonl", "questions.jsonl"


@dataclass
class _Reading(conversations.Reading):
    """What has been read of one conversation; what was counted and the unknown fields are those of the whole input."""

    not_read: dict[str, dict[str, None]] = field(default_factory=lambda: {kind: {} for kind in NOT_READ})
    turns: dict[str, str] = field(default_factory=dict)
    """The ids of turns by how evidence may name them: D1:3 for D1:03."""
    ids: set[str] = field(default_factory=set)
    """Of turns and of questions."""
    last: datetime | None = None
    asked: int = 0
    conversation: Any = None

    def see(self, kind: str, row: dict[str, Any]) -> None:
        self.not_read[kind] |= dict.fromkeys(name for name in NOT_READ[kind] if name in row)
        self.unknown[kind].see(row)

    def see_conversation(self, row: dict[str, Any]) -> None:
        """Count the fields of a conversation that are not read; those of its sessions, such as session_1_summary, as one."""
        inner = row.get("conversation")
        fields: dict[str, Any] = {}
        for name, value in chain(row.items(), inner.items() if isinstance(inner, dict) else ()):
            of_session = _OF_SESSION.fullmatch(name)
            if of_session is None:
                fields[name] = value
            elif of_session[1] and of_session[1][1:] not in conversations.TIMES:
                self.not_read["conversations"][f"session_N{of_session[1]}"] = None
        if isinstance(row.get("question"), str):  # a row for each question: those fields are the question's
            asked = (*QUESTION_FIELDS, *NOT_READ["questions"])
            fields = {name: value for name, value in fields.items() if name not in asked}
        self.see("conversations", fields)

    def latest(self, when: datetime) -> datetime:
        """A time of the conversation, which is the last if none is later."""
        self.last = max(self.last or when, when)
        return when


@dataclass(frozen=True, slots=True)
class _Session:
    """A session: its number, its time as the file has it, and its turns, of which nothing is known yet."""

    number: int
    time_field: str
    started: Any
    turns: list[Any]


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a file of conversations, of their questions, or a folder of both; raises InputError when it holds neither."""
    errors: list[RowError] = []
    files = [path / CONVERSATIONS, path / QUESTIONS] if folder(path) else [path]
    given = [
        (str(file), number, row)
        for file in files
        for number, row in conversations.rows_of(file, lambda document: _rows(document, path), errors, progress)
    ]
    if not given and not errors:
        raise InputError(f"{path} is an empty list")
    return _parse(given, path, errors)


def _rows(document: Any, path: Path) -> list[Any]:
    """The conversations or questions of a document: its items, or those under a usual name, or under the key of each conversation."""
    if isinstance(document, list):
        return document
    if not isinstance(document, dict) or _is_ours(document):
        return [document]
    if (inner := next((document[name] for name in WRAPPERS if isinstance(document.get(name), list)), None)) is not None:
        return list(inner)
    if not any(map(_is_conversation, document.values())):
        return [document]
    rows = []
    for key, row in document.items():  # a number alone would be the same conversation in every such file
        name = f"{path.stem}-{key}" if key.isdecimal() else key
        rows.append({"sample_id": name, **row} if isinstance(row, dict) else row)
    return rows


def _parse(rows: Sequence[tuple[str, int, Any]], path: Path, errors: list[RowError]) -> ParsedInput:
    if not any(_is_ours(row) for _, _, row in rows):
        raise InputError(f"{path}: no conversation with session_N with turns, and no question with its evidence")
    whole = _Reading(NAME, str(path), errors=errors)
    readings: dict[str, _Reading] = {}
    for source, number, row in rows:
        if not _is_ours(row):
            errors.append(RowError(source, number, "is no conversation with session_N with turns, nor a question"))
            continue
        name = _name(row, path.stem if len(rows) == 1 else f"{path.stem}-{number}")
        made = _Reading(NAME, source, name, counted=whole.counted, unknown=whole.unknown, not_read=whole.not_read)
        reading = readings.setdefault(name, made)
        reading.source = source
        with reading.reporting(number, ""):
            _read_row(reading, number, row)
    for reading in readings.values():
        whole.memories += reading.memories
        whole.queries += reading.queries
        whole.judgments += reading.judgments
        errors += reading.errors
    whole.counted["conversations"] = list(readings)[1:]
    whole.counted["not read"] = [f"{', '.join(names)} of {kind}" for kind, names in whole.not_read.items() if names]
    return whole.parsed()


def _read_row(reading: _Reading, number: int, row: dict[str, Any]) -> None:
    """Add a conversation with its questions, or one question; raises FieldError for another conversation of the same name."""
    alone = isinstance(row.get("question"), str)
    if _is_conversation(row):
        said = row.get("conversation", row.get("sessions", row))
        if reading.conversation is None:
            reading.conversation = said
            reading.see_conversation(row)
            _read_sessions(reading, row)
        elif not alone or said != reading.conversation:
            raise FieldError("", "another conversation of the file has this name")
    for question in _questions(row):
        reading.asked += 1
        place, where = (number, "question") if alone else (reading.asked, f"qa[{reading.asked}]")
        with reading.reporting(place, where):
            _read_question(reading, question, place, where)


def _name(row: dict[str, Any], default: str) -> str:
    """The name of a conversation, or of that of a question, whose own id is another."""
    names = NAMES if _is_conversation(row) else NAMES[:-1]
    return conversations.name_of(next((row[name] for name in names if row.get(name) is not None), None), default)


def _sessions(row: dict[str, Any]) -> list[_Session]:
    """The sessions of a conversation that have turns, in their order; empty if it is none."""
    inner = row.get("conversation", row)
    sessions: Iterable[_Session] = ()
    if isinstance(inner, dict):
        numbered = [(int(match[1]), turns) for key, turns in inner.items() if (match := _SESSION.fullmatch(key))]
        sessions = [_numbered_session(inner, number, value) for number, value in numbered]
        listed = inner.get("sessions", row.get("sessions"))
    else:
        listed = inner
    if not sessions and isinstance(listed, list) and listed:
        if any(map(conversations.turns_of, listed)):
            sessions = _listed_sessions(listed)
        elif any(map(_is_turn, listed)):
            sessions = _split(listed)
    return sorted((session for session in sessions if session.turns), key=lambda session: session.number)


def _numbered_session(conversation: dict[str, Any], number: int, value: Any) -> _Session:
    key = conversations.first_of(conversation, [f"session_{number}_{name}" for name in conversations.TIMES])
    started = conversation.get(key)
    if started is None and isinstance(value, dict):
        started = value.get(conversations.first_of(value, conversations.TIMES))
    return _Session(number, key, started, conversations.turns_of(value))


def _listed_sessions(listed: list[Any]) -> Iterator[_Session]:
    """The items of a list of sessions, by their own numbers if each has another, else by their places."""
    items = [item if isinstance(item, dict) else {"turns": item} for item in listed]
    numbers = [_session_number(item, NUMBERS) for item in items]
    if None in numbers or len(set(numbers)) < len(numbers):
        numbers = list(range(1, len(items) + 1))
    for number, item in zip(numbers, items, strict=True):
        field = conversations.first_of(item, conversations.TIMES)
        yield _Session(number or 0, field, item.get(field), conversations.turns_of(item))


def _session_number(row: dict[str, Any], names: Sequence[str]) -> int | None:
    """The number of a session by the first of these fields that the row has, as itself or in text such as session_3."""
    value = row.get(conversations.first_of(row, names))
    said = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    match = _NUMBERED.fullmatch(said)
    return int(match[1]) if match else None


def _split(turns: list[Any]) -> Iterator[_Session]:
    """One list of turns as sessions: by their dia_ids, their sessions' numbers, or where the timestamp changes.
    Timestamps that no two turns share are the turns' own, and no sessions."""
    keys: list[int | str] = []
    for turn in turns:
        before = keys[-1] if keys else ""
        keys.append(_session_of(turn) if isinstance(turn, dict) else before)
    if all(isinstance(key, int) for key in keys):
        order = sorted(range(len(turns)), key=keys.__getitem__)
        runs = [(key, [turns[at] for at in run]) for key, run in groupby(order, keys.__getitem__)]
    else:
        runs = [(0, [turns[at] for at in run]) for _, run in groupby(range(len(turns)), keys.__getitem__)]
        runs = [(0, turns)] if len(runs) == len(turns) else runs
        runs = [(number, run) for number, (_, run) in enumerate(runs, start=1)]
    for number, run in runs:
        first = next((turn for turn in run if isinstance(turn, dict)), {})
        field = conversations.first_of(first, conversations.TIMES)
        yield _Session(int(number), field, first.get(field), run)


def _session_of(turn: dict[str, Any]) -> int | str:
    """The number of a turn's session, else its timestamp."""
    match = _TURN.fullmatch(str(turn.get("dia_id", "")).strip())
    number = int(match[1]) if match else _session_number(turn, NUMBERS[:-2])
    return str(turn.get(conversations.first_of(turn, conversations.TIMES))) if number is None else number


def _read_sessions(reading: _Reading, row: dict[str, Any]) -> None:
    position = 0
    for session in _sessions(row):
        started = conversations.said_at(session.started)
        if started is not None:
            reading.latest(started)
        elif conversations.is_said(session.started):
            reading.report(
                session.number,
                session.time_field,
                f"must be a time such as {conversations.TIME_FORMS}; its turns have no date",
            )
        else:
            reading.counted["undated"].append(reading.name)
        for number, turn in enumerate(session.turns, start=1):
            position += 1
            with reading.reporting(position, f"session_{session.number}[{number}]"):
                _read_turn(reading, conversations.an_object(turn), session, number, started)


def _read_turn(
    reading: _Reading, turn: dict[str, Any], session: _Session, number: int, started: datetime | None
) -> None:
    turn_id = _turn_id(turn) or f"D{session.number}:{number}"
    speaker, field = required_text(turn, conversations.first_of(turn, SPEAKERS)), conversations.first_of(turn, TEXTS)
    said, caption = text(turn, field), text(turn, "blip_caption")
    if said is None and caption is None:
        raise FieldError(field, "is missing")
    name = f"{reading.name}/{turn_id}"
    if name in reading.ids:
        raise FieldError("dia_id", f"{turn_id!r} stands already in the conversation")
    reading.ids.add(name)
    reading.see("turns", turn)
    if _turn_id(turn) is None:
        reading.counted["unnamed"].append(turn_id)
    when = _time_of(reading, turn, session, number, started)
    content = f"{said or ''}{f' [shared image: {caption}]' if caption else ''}"
    of_session, ref = f"{reading.name}/session_{session.number}", f"{reading.name}:{turn_id}"
    reading.add_turn(name, speaker, content, when, session=of_session, ref=ref)
    for name in (turn_id, *_named(turn_id)):
        reading.turns.setdefault(name, turn_id)


def _turn_id(turn: dict[str, Any]) -> str | None:
    """The id that a turn has, a number as its digits; None if it has none."""
    field = conversations.first_of(turn, TURN_IDS)
    value = turn.get(field)
    if field != "dia_id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return required_text(turn, field).strip() if value is not None else None


def _time_of(
    reading: _Reading, turn: dict[str, Any], session: _Session, number: int, started: datetime | None
) -> datetime | None:
    """When a turn was said: its own time, where it has another than its session, else its place in the session in seconds."""
    own = turn.get(conversations.first_of(turn, conversations.TIMES))
    if conversations.is_said(own) and own != session.started:
        when = conversations.said_at(own)
        if when is not None:
            return reading.latest(when)
        where = f"session_{session.number}[{number}].{conversations.first_of(turn, conversations.TIMES)}"
        reading.report(number, where, f"must be a time such as {conversations.TIME_FORMS}")
    return None if started is None else started + timedelta(seconds=number)


def _questions(row: dict[str, Any]) -> list[Any]:
    """The questions of a conversation, or the row itself if it is one question with its conversation."""
    if isinstance(row.get("question"), str):
        return [row]
    return next((row[name] for name in ASKED if isinstance(row.get(name), list)), [])


def _read_question(reading: _Reading, given: Any, number: int, where: str) -> None:
    row = conversations.an_object(given)
    question, qid = required_text(row, "question"), _qid(reading, row, reading.asked)
    if f"?{qid}" in reading.ids:
        raise FieldError(conversations.first_of(row, QUESTION_IDS), f"{qid!r} stands already in the conversation")
    query = Query(qid, question, reading.project(), reading.last, _type(row))
    reading.ids.add(f"?{qid}")
    if not _is_conversation(row):
        reading.see("questions", row)
    turns = _evidence(reading, row.get("evidence"), number, f"{where}.evidence")
    reading.add_query(query, [f"{reading.name}/{turn_id}" for turn_id in turns], "unanswered", row)


def _qid(reading: _Reading, row: dict[str, Any], place: int) -> str:
    """The id of a question, beginning with its conversation's name; its place among them if it has none."""
    names = QUESTION_IDS[:-1] if _is_conversation(row) else QUESTION_IDS  # there the id may be the conversation's
    field = conversations.first_of(row, names)
    own = row.get(field)
    if isinstance(own, bool) or not isinstance(own, str | int) or not str(own).strip():
        return f"{reading.name}/q{place:03d}"
    name = storable(field, str(own).strip())
    if not name.isprintable():
        raise FieldError(field, "must not contain control characters")
    return name if name.startswith(reading.name) else f"{reading.name}/{name}"


def _type(row: dict[str, Any]) -> str | None:
    """The benchmark's name of a question's category, be it given as a number, as its digits or in words; another category as it is."""
    field = conversations.first_of(row, CATEGORIES)
    value = row.get(field)
    if value is None or isinstance(value, bool | list | dict):
        return None
    said = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    words = re.sub(r"[\s_-]+", "-", said.lower())
    number = int(said) if said.isascii() and said.isdecimal() and len(said) < 3 else 0
    known = TYPES.get(number) or next(
        (kind for kind in TYPES.values() if words == kind or words == f"{kind}-reasoning"), None
    )
    return known or storable(field, said) or None


def _evidence(reading: _Reading, evidence: Any, number: int, where: str) -> list[str]:
    """The turns a question's evidence names, each once; what names no turn of the conversation is reported. Where the
    conversation is in another file, every turn that is named is taken."""
    turns: dict[str, None] = {}
    for item in _flat(evidence):
        said = item.strip() if isinstance(item, str) else ""
        words = [word for word in _BETWEEN.split(said) if word]
        if said in reading.turns:
            turns[reading.turns[said]] = None
            continue
        if words and all(word in reading.turns for word in words):
            turns.update((reading.turns[word], None) for word in words)
            continue
        named = _named(said)
        if reading.conversation is None:
            turns.update(dict.fromkeys(named))
        else:
            turns.update((reading.turns[turn], None) for turn in named if turn in reading.turns)
            if unknown := [turn for turn in named if turn not in reading.turns]:
                reading.report(number, where, f"no turn {', '.join(unknown)} in the conversation")
        rest = _BETWEEN.sub(" ", _TURN.sub("", said)).strip() if isinstance(item, str) else repr(item)
        if rest:
            reading.report(number, where, f"{ascii(rest)[:60]} is not a turn such as D1:3")
    return list(turns)


def _flat(evidence: Any) -> Iterator[Any]:
    """The items of evidence, be it one, a list, lists in a list, or objects with the id of a turn."""
    if isinstance(evidence, list):
        for item in evidence:
            yield from _flat(item)
    elif isinstance(evidence, dict) and isinstance(evidence.get("dia_id"), str | list):
        yield from _flat(evidence["dia_id"])
    elif evidence is not None:
        yield evidence


def _named(said: str) -> list[str]:
    """The turns in a text, written D1:3, of D:1:3, D1:03 and the like too."""
    return [f"D{int(session)}:{int(turn)}" for session, turn in _TURN.findall(said)]


def _is_turn(item: Any) -> bool:
    return isinstance(item, dict) and ("dia_id" in item or ("speaker" in item and not item.keys().isdisjoint(TEXTS)))


def _is_conversation(row: Any) -> bool:
    """Whether a row has sessions by number, or turns in a list of turns or of sessions that have dia_ids or questions beside them."""
    if not isinstance(row, dict):
        return False
    inner = row.get("conversation", row)
    if isinstance(inner, dict) and any(
        _SESSION.fullmatch(key) and conversations.turns_of(value) for key, value in inner.items()
    ):
        return True
    listed = inner.get("sessions", row.get("sessions")) if isinstance(inner, dict) else inner
    turns = (
        [turn for item in listed for turn in (conversations.turns_of(item) or [item])]
        if isinstance(listed, list)
        else []
    )
    return any(_is_turn(turn) and ("dia_id" in turn or bool(_questions(row))) for turn in turns)


def _is_question(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("question"), str)
        and "evidence" in row
        and any(map(row.get, NAMES[:2]))
    )


def _is_ours(row: Any) -> bool:
    return _is_conversation(row) or _is_question(row)


def folder(directory: Path) -> frozenset[str]:
    """The two files of a directory with conversations and, beside them, their questions; none of another directory."""
    names = (CONVERSATIONS, QUESTIONS)
    try:
        if not all((directory / name).is_file() for name in names):
            return frozenset()
        first, second = (take_sample(directory / name).objects for name in names)
    except (OSError, InputError):
        return frozenset()
    ours = bool(first and second) and _is_conversation(first[0]) and _is_question(second[0])
    return frozenset(names) if ours else frozenset()


def sniff(sample: Sample) -> bool:
    """Conversations with sessions, or questions with their evidence and the name of their conversation."""
    rows = sample.objects or _rows(sample.document, sample.path)
    return bool(rows) and _is_ours(rows[0])


FORMAT = described(__file__, NAME, sniff, read, folder=folder)
