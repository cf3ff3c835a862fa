"""BEAM: long conversations with probing questions of ten abilities (Tavakoli et al., 2025, "Beyond a Million Tokens").

A folder with `chat.json` and `probing_questions/probing_questions.json`, a folder of such folders (`chats/100K`), or rows
`{conversation_id, chat, probing_questions}` in one JSON document or JSON lines (the questions may be text that holds them). Where a
folder has `chat_trunecated.json` (spelled so), that is the chat: the benchmark's own answering reads it, cut to the size in the folder's
name. A chat is turns `{id, role, content, time_anchor?}` in nested lists; each turn is a memory `CONVERSATION/ID`, each question a query
whose type is the ability, each turn in `source_chat_ids` a judgment 1. Where the ids begin again in each plan of a chat of 10M, those
of a plan are moved behind the last of the plan before, as the benchmark's download does it. An id that several turns have is
ambiguous: the later turns are `ID.2`, `ID.3` …, and evidence that names it is reported.

A turn's time is the day of the last anchor before it and its place in the chat in seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import MONTHS, FieldError, required_text, text
from cems_workbench.formats.base.files import parse_literal, read_document
from cems_workbench.formats.base.format import described, first_row
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Query, RowError
from workbench_benchmarks.conversations import Reading, Rows, an_object, name_of, rows_of, within

NAME = "beam"
CHAT, QUESTIONS = "chat.json", "probing_questions"
CUT_CHAT = "chat_trunecated.json"
"""The chat cut to the size that the benchmark states, if the whole one is longer; the name is the benchmark's."""
MAX_TEXT_CHARS = 10_000_000
_ANCHOR = re.compile(r"([A-Za-z]+)-(\d{1,2})-(\d{4})")
ABSTENTION = "abstention"
"""The ability that asks what the conversation does not hold."""
MARKER = re.compile(r"\s*->->\s*[\d,\s]+$")
"""The plan's place that the data set's generation left at the end of a question."""
_PLAN = re.compile(r"plan-[0-9]+")
_TURN_ID = re.compile(r"(-?[0-9]{1,18})(?:\.([0-9]{1,9}))?")


@dataclass
class _Reading(Reading):
    """What has been read so far, and of the present conversation."""

    times_seen: Counter[int] = field(default_factory=Counter)
    last: datetime | None = None


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a folder of one conversation, or a document of several; raises InputError when it is neither."""
    if path.is_dir():
        return _read_folders(path, progress)
    errors: list[RowError] = []
    rows = rows_of(path, lambda document: document if isinstance(document, list) else [document], errors, progress)
    return _parse(rows, path, errors)


def _read_folders(path: Path, progress: Progress) -> ParsedInput:
    """The conversation that a folder is, or those in it; raises InputError when there is none, or when the only one cannot be read."""
    if not folder(path):
        raise InputError(f"{path} is a directory, but not BEAM's: it has no {CHAT} beside {QUESTIONS}")

    def by_number(home: Path) -> tuple[int, str]:
        return (int(home.name) if re.fullmatch("[0-9]{1,9}", home.name) else 0, home.name)

    homes = [path] if _is_folder(path) else sorted(filter(_is_folder, path.iterdir()), key=by_number)
    reading = _Reading(NAME, str(path))
    for number, home in enumerate(homes):
        progress(f"reading {path.name}", number, len(homes))
        whole = home.resolve()
        reading.name = f"{whole.parent.name}-{whole.name}" if whole.name.isdigit() else whole.name
        chat = CUT_CHAT if (home / CUT_CHAT).is_file() else CHAT
        try:
            row = {"chat": read_document(home / chat), QUESTIONS: read_document(home / QUESTIONS / f"{QUESTIONS}.json")}
        except InputError as error:
            if len(homes) == 1:
                raise
            reading.report(0, "", str(error).removeprefix(f"{path}/"))
            continue
        _read_row(reading, row)
        if chat == CUT_CHAT and (home / CHAT).is_file():
            reading.counted["cut"].append(reading.name)
    return reading.parsed()


def _is_folder(directory: Path) -> bool:
    return (
        any((directory / chat).is_file() for chat in (CHAT, CUT_CHAT))
        and (directory / QUESTIONS / f"{QUESTIONS}.json").is_file()
    )


def _parse(given: Rows, path: Path, errors: list[RowError]) -> ParsedInput:
    """The conversations among some rows; `path` names them where they have no name. Raises InputError if there is none."""
    rows = list(given)
    if not any(_is_conversation(row) for _, row in rows):
        raise InputError(f"{path}: no conversation with a chat and probing questions in it")
    reading = _Reading(NAME, str(path), errors=errors)
    for number, (_, row) in enumerate(rows, start=1):
        reading.name = path.stem if len(rows) == 1 else f"{path.stem}-{number}"
        if _is_conversation(row):
            reading.name = name_of(row.get("conversation_id"), reading.name)
            _read_row(reading, row)
        else:
            reading.report(number, "", "is not a conversation with a chat and probing questions")
    return reading.parsed()


def _read_row(reading: _Reading, row: dict[str, Any]) -> None:
    reading.times_seen, reading.last = Counter(), None
    for number, (turn, move) in enumerate(_moved(row["chat"]), start=1):
        with reading.reporting(number, f"turn {number}"):
            _read_turn(reading, turn, number, move)
            reading.unknown["turns"].see(turn)
    if repeated := reading.times_seen.total() - len(reading.times_seen):
        reading.counted["twice"].append(f"{reading.name}: {repeated} turns have the id of another")
    questions = _questions(row[QUESTIONS])
    if questions is None:
        reading.report(1, QUESTIONS, "must be questions by ability")
    for ability, items in (questions or {}).items():
        if not isinstance(items, list) or not (ability.isprintable() and ability.strip()):
            reading.report(1, f"{QUESTIONS}.{ascii(ability)[:60]}", "must be a printable name with a list of questions")
            continue
        for number, item in enumerate(items, start=1):
            with reading.reporting(number, f"{ability}[{number}]"):
                _read_question(reading, ability, number, an_object(item))


def _moved(chat: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """The turns, each with what is added to its id: where the ids begin again in each plan of a chat, the last of the plan before."""
    plans = chat if isinstance(chat, list) and len(chat) > 1 and all(map(_is_plan, chat)) else [chat]
    last = 0
    for plan in plans:
        turns = list(within(plan, lambda node: isinstance(node, dict) and ("content" in node or "role" in node)))
        ids = [number for turn in turns if (number := _whole_id(turn.get("id"))) is not None]
        move = last + 1 if last and ids and min(ids) == 0 else 0
        yield from ((turn, move) for turn in turns)
        last = ids[-1] + move if ids else last


def _is_plan(node: Any) -> bool:
    """Whether a node is one plan of a chat of 10M, `{"plan-3": [batches]}`; a table has the other plans too, as nulls."""
    return isinstance(node, dict) and bool(node) and all(map(_PLAN.fullmatch, node))


def _whole_id(value: Any) -> int | None:
    """A whole number, also as 12.0 or as digits; None for anything else."""
    if isinstance(value, str) and _TURN_ID.fullmatch(value.strip()) and "." not in value:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_turn(reading: _Reading, turn: dict[str, Any], number: int, move: int) -> None:
    """Add one turn as a memory, `move` added to its id; raises FieldError."""
    role, content = text(turn, "role") or "user", required_text(turn, "content")
    if "->->" in content:  # few have it, and the pattern looks at every blank
        content = MARKER.sub("", content)
    given = _whole_id(turn.get("id"))
    if given is None:
        raise FieldError("id", "must be a whole number")
    given += move
    anchor = _time(turn.get("time_anchor"))
    reading.last = anchor or reading.last
    reading.times_seen[given] += 1
    times = reading.times_seen[given]
    name = f"{reading.name}/{given}" if times == 1 else f"{reading.name}/{given}.{times}"
    when = None if reading.last is None else reading.last + timedelta(seconds=number)
    reading.add_turn(name, role, content, when)


def _questions(given: Any) -> dict[str, Any] | None:
    """The questions by ability; the data set's own text of them is JSON or a Python literal."""
    if isinstance(given, str) and len(given) <= MAX_TEXT_CHARS:
        with suppress(ValueError):
            given = parse_literal(given)
    return given if isinstance(given, dict) and all(isinstance(key, str) for key in given) else None


def _read_question(reading: _Reading, ability: str, number: int, item: dict[str, Any]) -> None:
    """Add one question with the turns that answer it; raises FieldError when there is none."""
    question, qid = required_text(item, "question"), f"{reading.name}/{ability}-{number}"
    abstains = ability == ABSTENTION
    reading.unknown["questions"].see(item)
    given = map(_whole_id, within(item.get("source_chat_ids"), lambda node: _whole_id(node) is not None))
    ids = [number for number in dict.fromkeys(given) if number is not None]
    query = Query(qid, question, reading.project(), reading.last, ability, False if abstains else None)
    reading.add_query(query, [f"{reading.name}/{turn}" for turn in ids if reading.times_seen[turn] == 1], row=item)
    if not ids and not abstains:
        reading.counted["unjudged"].append(qid)
    for turn in ids:
        if (times := reading.times_seen[turn]) != 1:
            several = f"{times} turns have the id {turn}; which is meant is open"
            where = f"{ability}[{number}].source_chat_ids"
            reading.report(number, where, several if times else f"no turn {turn} in the chat")


def _time(value: Any) -> datetime | None:
    """The data set's 'March-15-2024' as UTC; by hand, because strptime reads months in the user's language."""
    match = _ANCHOR.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[1].lower() not in MONTHS:
        return None
    try:
        return datetime(int(match[3]), MONTHS.index(match[1].lower()) + 1, int(match[2]), tzinfo=UTC)
    except ValueError:
        return None


def folder(directory: Path) -> frozenset[str]:
    """The entries of a conversation's folder that are read, or the folders of conversations in a directory; none of any other."""
    try:
        if _is_folder(directory):
            return frozenset({CHAT, CUT_CHAT, QUESTIONS})
        return frozenset(
            entry.name for entry in directory.iterdir() if not entry.name.startswith(".") and _is_folder(entry)
        )
    except OSError:
        return frozenset()


def _is_conversation(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("chat"), list) and QUESTIONS in row


FORMAT = described(__file__, NAME, first_row(_is_conversation), read, folder=folder)
