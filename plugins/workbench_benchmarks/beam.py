"""BEAM: long conversations with probing questions of ten abilities (Tavakoli et al., 2025, "Beyond a Million Tokens").

A folder with `chat.json` and `probing_questions/probing_questions.json`, a folder of such folders (`chats/100K`), or rows
`{conversation_id, chat, probing_questions}` in one JSON document or JSON lines (the questions may be text that holds them). Where a
folder has `chat_trunecated.json` (spelled so), that is the chat: the benchmark's own answering reads it, cut to the size in the folder's
name. A chat is turns `{id, role, content, time_anchor?}` in nested lists; each turn is a memory `CONVERSATION/ID`, each question a query
whose type is the ability, each turn in `source_chat_ids` a judgment 1. Where the ids begin again in each plan of a chat of 10M, those
of a plan are moved behind the last of the plan before, as the benchmark's download does it. An id that several turns have is
ambiguous: the later turns are `ID.2`, `ID.3` …, and evidence that names it is reported.

Written, it is a list of `{conversation_id, chat, probing_questions}`, whose source_chat_ids are the turns judged above 0.

A turn's time is the day of the last anchor before it and its place in the chat in seconds; so days and places are taken from the
turns' times again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import MONTHS, FieldError, UnknownFields, required_text, text
from cems_workbench.formats.base.files import Sample, is_document, parse_json, read_document, read_objects
from cems_workbench.formats.base.format import Format
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RowError
from workbench_benchmarks.conversations import (
    ConversationForm,
    Part,
    Reading,
    conversation_writer,
    said_by,
    some,
    spread,
)

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
PROJECT = "beam/"
PLAN_MARKER = " ->-> 0"
"""A plan's place, which reading takes off; put where a text, or nothing but such a place, has to be guarded."""
_PLAN = re.compile(r"plan-[0-9]+")
_TURN_ID = re.compile(r"(-?[0-9]{1,18})(?:\.([0-9]{1,9}))?")
_QUESTION = re.compile(r"(.+)-([1-9][0-9]{0,8})", re.DOTALL)
EMPTY_TURN = {"role": "user", "content": ""}
EMPTY_QUESTION = {"question": ""}


_HOW_MADE = """answer ideal_response ideal_answer ideal_summary rubric difficulty complexity_factors conversation_reference
conversation_references conversation_sessions plan_reference question_type key_facts_tested extraction_challenge abstention_type
why_unanswerable contradiction_type topic_questioned tests_for ordering_type ordering_tested total_mentions instruction_type
instruction_being_tested expected_compliance compliance_indicators non_compliance_signs update_type tests_retention_of potential_confusion
reasoning_type reasoning_steps sessions_required preference_type preference_being_tested summarization_type bullet_points_covered
key_elements_tested synthesis_required temporal_type time_points calculation_required"""
"""Fields of the benchmark's questions that say nothing of a query; one note says what they are."""


def _unknown() -> dict[str, UnknownFields]:
    return {
        "turns": UnknownFields(("role", "id", "time_anchor", "content", "question_type", "index")),
        "questions": UnknownFields(("question", "source_chat_ids", *_HOW_MADE.split())),
    }


@dataclass
class _Reading(Reading):
    """What has been read so far, and of the present conversation."""

    times_seen: dict[str, int] = field(default_factory=dict)
    last: datetime | None = None
    unknown: dict[str, UnknownFields] = field(default_factory=_unknown)
    twice: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    """Conversations whose chat is CUT_CHAT beside a longer one."""
    unjudged: list[str] = field(default_factory=list)
    """Questions that should be answered and name no turn."""

    def notes(self) -> Iterator[str]:
        yield from self.twice
        if self.cut:
            yield f"{some(self.cut)}: its chat is {CUT_CHAT}, which BEAM's own answering reads; {CHAT} is longer and not read"
        if self.unjudged:
            yield f"{len(self.unjudged)} questions name no turn and have no judgment: {some(self.unjudged)}"
        if self.queries:
            yield "not read, being neither turns nor questions: plans, answers, rubrics and how a question was made"
        yield from (f"{kind}: {note}" for kind, fields in self.unknown.items() for note in fields.notes())


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a folder of one conversation, or a document of several; raises InputError when it is neither."""
    if path.is_dir():
        return _read_folders(path, progress)
    if is_document(path):
        return parse(read_document(path), path, progress)
    errors: list[RowError] = []
    parsed = parse([row for _, row in read_objects(path, errors, progress)], path, progress)
    return replace(parsed, errors=(*errors, *parsed.errors))


def _read_folders(path: Path, progress: Progress) -> ParsedInput:
    """The conversation that a folder is, or those in it; raises InputError when there is none, or when the only one cannot be read."""
    if not folder(path):
        raise InputError(f"{path} is a directory, but not BEAM's: it has no {CHAT} beside {QUESTIONS}")
    homes = [path] if _is_folder(path) else sorted(filter(_is_folder, path.iterdir()), key=_by_number)
    reading = _Reading(str(path))
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
            reading.cut.append(reading.name)
    return reading.parsed(NAME)


def _is_folder(directory: Path) -> bool:
    """Whether a directory is one conversation."""
    return (
        any((directory / chat).is_file() for chat in (CHAT, CUT_CHAT))
        and (directory / QUESTIONS / f"{QUESTIONS}.json").is_file()
    )


def _by_number(directory: Path) -> tuple[int, str]:
    return (int(directory.name) if re.fullmatch("[0-9]{1,9}", directory.name) else 0, directory.name)


def parse(document: Any, path: Path, progress: Progress = silent) -> ParsedInput:
    """The conversations of a document; `path` names it and, where they have no name, them. Raises InputError."""
    rows = document if isinstance(document, list) else [document]
    if not any(map(_is_conversation, rows)):
        raise InputError(f"{path}: no conversation with a chat and probing questions in it")
    reading = _Reading(str(path))
    for number, row in enumerate(rows, start=1):
        progress(f"reading {path.name}", number - 1, len(rows))
        reading.name = path.stem if len(rows) == 1 else f"{path.stem}-{number}"
        if _is_conversation(row):
            reading.name = _name(row.get("conversation_id"), reading.name)
            _read_row(reading, row)
        else:
            reading.report(number, "", "is not a conversation with a chat and probing questions")
    return reading.parsed(NAME)


def _name(given: Any, default: str) -> str:
    usable = isinstance(given, str | int) and not isinstance(given, bool) and str(given).isprintable()
    return str(given).strip() or default if usable else default


def _read_row(reading: _Reading, row: dict[str, Any]) -> None:
    reading.times_seen, reading.last = {}, None
    for number, (turn, move) in enumerate(_moved(row["chat"]), start=1):
        try:
            _read_turn(reading, turn, number, move)
            reading.unknown["turns"].see(turn)
        except FieldError as error:
            reading.report(number, f"turn {number}.{error.field}", error.reason)
    if repeated := sum(times - 1 for times in reading.times_seen.values()):
        reading.twice.append(f"{reading.name}: {repeated} turns have the id of another")
    questions = _questions(row[QUESTIONS])
    if questions is None:
        reading.report(1, QUESTIONS, "must be questions by ability")
    for ability, items in (questions or {}).items():
        if not isinstance(items, list) or not (ability.isprintable() and ability.strip()):
            reading.report(1, f"{QUESTIONS}.{ascii(ability)[:60]}", "must be a printable name with a list of questions")
            continue
        for number, item in enumerate(items, start=1):
            _read_question(reading, ability, number, item)


def _moved(chat: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """The turns, each with what is added to its id: where the ids begin again in each plan of a chat, the last of the plan before."""
    plans = chat if isinstance(chat, list) and len(chat) > 1 and all(map(_is_plan, chat)) else [chat]
    last = 0
    for plan in plans:
        turns = list(_turns(plan))
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


def _turns(chat: Any) -> Iterator[dict[str, Any]]:
    """The turns in their order, however deep the lists of batches, plans and sessions go."""
    waiting = [chat]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(reversed(node))
        elif isinstance(node, dict) and ("content" in node or "role" in node):
            yield node
        elif isinstance(node, dict):
            waiting.extend(reversed([value for value in node.values() if isinstance(value, list | dict)]))


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
    times = reading.times_seen[str(given)] = reading.times_seen.get(str(given), 0) + 1
    name = f"{reading.name}/{given}" if times == 1 else f"{reading.name}/{given}.{times}"
    when = None if reading.last is None else reading.last + timedelta(seconds=number)
    reading.add_turn(name, f"{PROJECT}{reading.name}", role, content, when)


def _questions(given: Any) -> dict[str, Any] | None:
    """The questions by ability; the data set's own text of them is JSON or a Python literal."""
    if isinstance(given, str) and len(given) <= MAX_TEXT_CHARS:
        for parse in (parse_json, ast.literal_eval):  # a literal is read, never run
            try:
                given = parse(given)
                break
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
    return given if isinstance(given, dict) and all(isinstance(key, str) for key in given) else None


def _read_question(reading: _Reading, ability: str, number: int, item: Any) -> None:
    where = f"{ability}[{number}]"
    try:
        if not isinstance(item, dict):
            raise FieldError("", "must be an object")
        question = required_text(item, "question")
    except FieldError as error:
        reading.report(number, f"{where}.{error.field}".rstrip("."), error.reason)
        return
    qid = f"{reading.name}/{ability}-{number}"
    reading.unknown["questions"].see(item)
    reading.queries.append(
        Query(qid, question, f"beam/{reading.name}", reading.last, ability, False if ability == ABSTENTION else None)
    )
    named = dict.fromkeys(_numbers(item.get("source_chat_ids")))
    if not named and ability != ABSTENTION:
        reading.unjudged.append(qid)
    for turn in named:
        times = reading.times_seen.get(turn, 0)
        if times == 1:
            reading.judgments.append(Judgment(qid, f"{reading.name}/{turn}", 1))
        else:
            reason = (
                f"no turn {turn} in the chat"
                if not times
                else f"{times} turns have the id {turn}; which is meant is open"
            )
            reading.report(number, f"{where}.source_chat_ids", reason)


def _numbers(node: Any) -> Iterator[str]:
    """The whole numbers in nested lists and objects, in their order."""
    if isinstance(node, list):
        for item in node:
            yield from _numbers(item)
    elif isinstance(node, dict):
        for item in node.values():
            yield from _numbers(item)
    elif (number := _whole_id(node)) is not None:
        yield str(number)


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


def sniff(sample: Sample) -> bool:
    """Conversations with probing questions."""
    return any(map(_is_conversation, sample.rows[:1]))


def _owner(memory: Memory) -> str:
    """The conversation of a turn; raises ValueError."""
    name = (memory.project or "").removeprefix(PROJECT)
    if memory.project != PROJECT + name or not memory.id.startswith(f"{name}/"):
        raise ValueError("is no turn of a BEAM conversation (project beam/NAME, id NAME/0)")
    if not _TURN_ID.fullmatch(memory.id.removeprefix(f"{name}/")):
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
    dated = sorted(
        (memory for memory in part.memories if memory.created_at),
        key=lambda memory: (_second(memory), _place(part, memory)),
    )
    undated = sorted(
        (memory for memory in part.memories if not memory.created_at), key=lambda memory: _place(part, memory)
    )
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
        return PLAN_MARKER
    said = said_by(memory)
    return said + PLAN_MARKER if MARKER.search(said) else said


def _anchor(moment: datetime) -> str:
    """The data set's 'March-15-2024'."""
    return f"{MONTHS[moment.month - 1].capitalize()}-{moment.day:02d}-{moment.year:04d}"


FORMAT = Format(
    NAME,
    "BEAM conversations with probing questions",
    order=0,
    sniff=sniff,
    read=read,
    folder=folder,
    dataset=conversation_writer(ConversationForm(_owner, _asked_in, _build, parse), place=8),
    place=2,
    shape="objects with chat and probing_questions",
    needs=(("chat",), ("probing_questions",)),
)
