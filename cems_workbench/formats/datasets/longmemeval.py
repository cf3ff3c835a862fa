"""LongMemEval, written: a list of questions, each with its haystack of sessions; has_answer marks the turns judged above 0."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cems_workbench.formats import longmemeval as reading
from cems_workbench.formats.datasets.conversations import Form, Part, said_by, spread
from cems_workbench.records import Memory, Query

NAME = reading.NAME
PROJECT = "longmemeval/"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_POSITION = re.compile(r"/([1-9][0-9]{0,8})")
EMPTY_TURN = {"role": "user", "content": ""}
Turns = list[tuple[int, Memory]]


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


FORM = Form(_owner, _asked_of, _build, lambda document: reading.parse(document, Path("written.json")), by_question=True)
