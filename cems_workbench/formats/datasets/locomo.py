"""LoCoMo, written: a list of `{sample_id, conversation, qa}`, whose evidence is the turns judged above 0.

A turn's time is that of its session, to the minute, and its place in it in seconds; so the session's time and the places are taken
from the turns' times again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cems_workbench.formats import locomo as reading
from cems_workbench.formats.datasets.conversations import Form, Part, said_by, spread
from cems_workbench.records import Memory, Query

NAME = reading.NAME
PROJECT = "locomo/"
_SESSION = re.compile(r"(.*)/session_([0-9]{1,6})", re.DOTALL)
_QUESTION = re.compile(r"(.*)/q([0-9]{3,9})", re.DOTALL)
_CAPTION = re.compile(r"(.*) \[shared image: (.*)\]", re.DOTALL)
_NUMBERS = re.compile(r"(\d+)")
EMPTY_TURN = {"speaker": "", "dia_id": "", "text": ""}
EMPTY_QUESTION = {"question": "", "evidence": []}
Turns = list[tuple[Memory, dict[str, Any]]]


def _owner(memory: Memory) -> str:
    """The conversation of a turn; raises ValueError."""
    name = (memory.project or "").removeprefix(PROJECT)
    session = _SESSION.fullmatch(memory.session or "")
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
        match = _SESSION.fullmatch(memory.session or "")
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
    category = next((number for number, kind in reading.TYPES.items() if kind == query.type), None)
    row = {"question": query.query, "evidence": evidence}
    return row if category is None else {**row, "category": category}


def _clock(moment: datetime) -> str:
    """The data set's '1:56 pm on 8 May, 2023'."""
    month = reading.MONTHS[moment.month - 1].capitalize()
    half = "pm" if moment.hour >= 12 else "am"
    return f"{moment.hour % 12 or 12}:{moment.minute:02d} {half} on {moment.day} {month}, {moment.year:04d}"


FORM = Form(_owner, _asked_in, _build, lambda document: reading.parse(document, Path("written.json")))
