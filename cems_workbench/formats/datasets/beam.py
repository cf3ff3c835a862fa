"""BEAM, written: a list of `{conversation_id, chat, probing_questions}`, whose source_chat_ids are the turns judged above 0.

A turn's time is the day of the last anchor before it and its place in the chat in seconds; so days and places are taken from the
turns' times again.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path
from typing import Any

from cems_workbench.formats import beam as reading
from cems_workbench.formats.datasets.conversations import Form, Part, said_by, spread
from cems_workbench.formats.locomo import MONTHS
from cems_workbench.records import Memory, Query

NAME = reading.NAME
PROJECT = "beam/"
MARK = " ->-> 0"
"""A plan's place, which reading takes off; put where a text, or nothing but such a place, has to be guarded."""
_TURN = re.compile(r"(-?[0-9]{1,18})(?:\.([0-9]{1,9}))?")
_QUESTION = re.compile(r"(.+)-([1-9][0-9]{0,8})", re.DOTALL)
EMPTY_TURN = {"role": "user", "content": ""}
EMPTY_QUESTION = {"question": ""}


def _owner(memory: Memory) -> str:
    """The conversation of a turn; raises ValueError."""
    name = (memory.project or "").removeprefix(PROJECT)
    if memory.project != PROJECT + name or not memory.id.startswith(f"{name}/"):
        raise ValueError("is no turn of a BEAM conversation (project beam/NAME, id NAME/0)")
    if not _TURN.fullmatch(memory.id.removeprefix(f"{name}/")):
        raise ValueError("has an id whose last part is no whole number")
    if memory.content != memory.author:  # a turn without words
        said_by(memory)
    return name


def _asked_in(query: Query) -> str:
    """The conversation of a question; raises ValueError."""
    name = (query.project or "").removeprefix(PROJECT)
    place = query.qid.removeprefix(f"{name}/")
    if query.project != PROJECT + name or place == query.qid or not _QUESTION.fullmatch(place):
        raise ValueError("is no question of a BEAM conversation (project beam/NAME, qid NAME/ABILITY-1)")
    return name


def _build(part: Part) -> tuple[dict[str, Any], int]:
    """The row of a conversation, and how many places it holds."""
    chat, held = _chat(part)
    questions: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for query in part.queries:
        match = _QUESTION.fullmatch(query.qid.removeprefix(f"{part.name}/"))
        if match is not None:
            ids = [_id(part.name, label.memory_id) for label in part.evidence.get(query.qid, ())]
            row = {"question": query.query, "source_chat_ids": ids}
            questions.setdefault(match[1], []).append((int(match[2]), row))
    told = {}
    for ability, items in questions.items():
        told[ability], empty = spread(items, EMPTY_QUESTION)
        held += empty
    return {"conversation_id": part.name, "chat": [chat], "probing_questions": told}, held


def _chat(part: Part) -> tuple[list[dict[str, Any]], int]:
    """The turns in their order, an anchor where the day changes, and how many places are held."""
    dated = sorted((one for one in part.memories if one.created_at), key=lambda one: (_second(one), _place(part, one)))
    undated = sorted((one for one in part.memories if not one.created_at), key=lambda one: _place(part, one))
    last: date | None = None
    placed: list[tuple[int, dict[str, Any]]] = []
    for number, memory in enumerate([*undated, *dated], start=1):
        day = None if memory.created_at is None else memory.created_at.date()
        anchor = {"time_anchor": _anchor(memory.created_at)} if memory.created_at and day != last else {}
        last = day or last
        turn = {"id": _id(part.name, memory.id), "role": memory.author, "content": _content(memory), **anchor}
        placed.append((number if memory.created_at is None else _second(memory), turn))
    return spread(placed, EMPTY_TURN)


def _second(memory: Memory) -> int:
    """The second of the day: a turn's place in the chat."""
    at = memory.created_at
    return 0 if at is None else at.hour * 3600 + at.minute * 60 + at.second


def _id(name: str, memory_id: str) -> int:
    return int(memory_id.removeprefix(f"{name}/").partition(".")[0])


def _place(part: Part, memory: Memory) -> tuple[int, int]:
    number, _, times = memory.id.removeprefix(f"{part.name}/").partition(".")
    return int(number), int(times or 1)


def _content(memory: Memory) -> str:
    """The words of a turn, guarded where reading would take their end for a plan's place."""
    if memory.content == memory.author:
        return MARK
    said = said_by(memory)
    return said + MARK if reading.MARK.search(said) else said


def _anchor(moment: datetime) -> str:
    """The data set's 'March-15-2024'."""
    return f"{MONTHS[moment.month - 1].capitalize()}-{moment.day:02d}-{moment.year:04d}"


FORM = Form(_owner, _asked_in, _build, lambda document: reading.parse(document, Path("written.json")))
