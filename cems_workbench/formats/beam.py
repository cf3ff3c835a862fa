"""BEAM: long conversations with probing questions of ten abilities (Tavakoli et al., 2025, "Beyond a Million Tokens").

A folder with `chat.json` and `probing_questions/probing_questions.json`, or rows `{conversation_id, chat, probing_questions}` in one
JSON document (the questions may be text that holds them). A chat is turns `{id, role, content, time_anchor?}` in nested lists; each
turn is a memory `CONVERSATION/ID`, each question a query whose type is the ability, each turn in `source_chat_ids` a judgment 1.
An id that several turns have is ambiguous: the later turns are `ID.2`, `ID.3` …, and evidence that names it is reported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.fields import FieldError, UnknownFields, required_text, text
from cems_workbench.formats.locomo import MONTHS
from cems_workbench.formats.reader import Reader, Sample, parse_json, read_document, register
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RowError

NAME = "beam"
CHAT, QUESTIONS = "chat.json", "probing_questions"
MOST_TEXT = 10_000_000
_ANCHOR = re.compile(r"([A-Za-z]+)-(\d{1,2})-(\d{4})")
MARK = re.compile(r"\s*->->\s*[\d,\s]+$")
"""The plan's place that the data set's generation left at the end of a question."""


def _unknown() -> dict[str, UnknownFields]:
    return {
        "turns": UnknownFields(("role", "id", "time_anchor", "content")),
        "questions": UnknownFields(("question", "source_chat_ids")),
    }


@dataclass
class _Conversation:
    """What has been read of one conversation."""

    source: str
    name: str
    memories: list[Memory] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    judgments: list[Judgment] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)
    times_seen: dict[str, int] = field(default_factory=dict)
    last: datetime | None = None
    unknown: dict[str, UnknownFields] = field(default_factory=_unknown)

    def report(self, row: int, where: str, reason: str) -> None:
        self.errors.append(RowError(self.source, row, reason, f"{self.name} {where}"))


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a folder of one conversation, or a document of several; raises InputError when it is neither."""
    if path.is_dir():
        if not folder(path):
            raise InputError(f"{path} is a directory, but not BEAM's: it has no {CHAT} beside {QUESTIONS}")
        name = f"{path.resolve().parent.name}-{path.resolve().name}" if path.name.isdigit() else path.resolve().name
        row = {"chat": read_document(path / CHAT), QUESTIONS: read_document(path / QUESTIONS / f"{QUESTIONS}.json")}
        return _together([_read_row(str(path), name, row)], path)
    return parse(read_document(path), path, progress)


def parse(document: Any, path: Path, progress: Progress = silent) -> ParsedInput:
    """The conversations of a document; `path` names it and, where they have no name, them. Raises InputError."""
    rows = document if isinstance(document, list) else [document]
    if not any(map(_is_conversation, rows)):
        raise InputError(f"{path}: no conversation with a chat and probing questions in it")
    found = []
    for number, row in enumerate(rows, start=1):
        progress(f"reading {path.name}", number - 1, len(rows))
        default = path.stem if len(rows) == 1 else f"{path.stem}-{number}"
        if _is_conversation(row):
            found.append(_read_row(str(path), _name(row.get("conversation_id"), default), row))
        else:
            found.append(_Conversation(str(path), default))
            found[-1].report(number, "", "is not a conversation with a chat and probing questions")
    return _together(found, path)


def _together(found: list[_Conversation], path: Path) -> ParsedInput:
    notes = [f"{one.name}: {twice} turns have the id of another" for one in found if (twice := _repeated(one))]
    for one in found:
        notes += [f"{one.name}: {kind}: {note}" for kind, fields in one.unknown.items() for note in fields.notes()]
    return ParsedInput(
        str(path),
        NAME,
        memories=tuple(memory for one in found for memory in one.memories),
        queries=tuple(query for one in found for query in one.queries),
        judgments=tuple(judgment for one in found for judgment in one.judgments),
        errors=tuple(error for one in found for error in one.errors),
        notes=tuple(notes),
    )


def _name(given: Any, default: str) -> str:
    usable = isinstance(given, str | int) and not isinstance(given, bool) and str(given).isprintable()
    return str(given).strip() or default if usable else default


def _repeated(found: _Conversation) -> int:
    return sum(times - 1 for times in found.times_seen.values())


def _read_row(source: str, name: str, row: dict[str, Any]) -> _Conversation:
    found = _Conversation(source, name)
    for number, turn in enumerate(_turns(row["chat"]), start=1):
        try:
            _read_turn(found, turn, number)
        except FieldError as error:
            found.report(number, f"turn {number}.{error.field}", error.reason)
    questions = _questions(row[QUESTIONS])
    if questions is None:
        found.report(1, QUESTIONS, "must be questions by ability")
    for ability, items in (questions or {}).items():
        if not isinstance(items, list) or not (ability.isprintable() and ability.strip()):
            found.report(1, f"{QUESTIONS}.{ascii(ability)[:60]}", "must be a printable name with a list of questions")
            continue
        for number, item in enumerate(items, start=1):
            _read_question(found, ability, number, item)
    return found


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


def _read_turn(found: _Conversation, turn: dict[str, Any], number: int) -> None:
    """Add one turn as a memory; raises FieldError."""
    role, content = text(turn, "role") or "user", MARK.sub("", required_text(turn, "content"))
    given = turn.get("id")
    if isinstance(given, bool) or not isinstance(given, int):
        raise FieldError("id", "must be a whole number")
    anchor = _time(turn.get("time_anchor"))
    found.last = anchor or found.last
    times = found.times_seen[str(given)] = found.times_seen.get(str(given), 0) + 1
    name = f"{found.name}/{given}" if times == 1 else f"{found.name}/{given}.{times}"
    found.unknown["turns"].see(turn)
    when = None if found.last is None else found.last + timedelta(seconds=number)
    found.memories.append(
        Memory(
            id=name,
            content=f"{role}: {content}" if content.strip() else role,
            project=f"beam/{found.name}",
            author=role,
            created_at=when,
            last_accessed=when,
            source_ref=f"beam:{name}",
        )
    )


def _questions(given: Any) -> dict[str, Any] | None:
    """The questions by ability; the data set's own text of them is JSON or a Python literal."""
    if isinstance(given, str) and len(given) <= MOST_TEXT:
        for parse in (parse_json, ast.literal_eval):  # a literal is read, never run
            try:
                given = parse(given)
                break
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
    return given if isinstance(given, dict) and all(isinstance(key, str) for key in given) else None


def _read_question(found: _Conversation, ability: str, number: int, item: Any) -> None:
    where = f"{ability}[{number}]"
    try:
        if not isinstance(item, dict):
            raise FieldError("", "must be an object")
        question = required_text(item, "question")
    except FieldError as error:
        found.report(number, f"{where}.{error.field}".rstrip("."), error.reason)
        return
    qid = f"{found.name}/{ability}-{number}"
    found.unknown["questions"].see(item)
    found.queries.append(Query(qid, question, f"beam/{found.name}", found.last, ability))
    for turn in dict.fromkeys(_numbers(item.get("source_chat_ids"))):
        times = found.times_seen.get(turn, 0)
        if times == 1:
            found.judgments.append(Judgment(qid, f"{found.name}/{turn}", 1))
        else:
            reason = (
                f"no turn {turn} in the chat"
                if not times
                else f"{times} turns have the id {turn}; which is meant is open"
            )
            found.report(number, f"{where}.source_chat_ids", reason)


def _numbers(node: Any) -> Iterator[str]:
    """The whole numbers in nested lists and objects, in their order."""
    if isinstance(node, list):
        for item in node:
            yield from _numbers(item)
    elif isinstance(node, dict):
        for item in node.values():
            yield from _numbers(item)
    elif isinstance(node, int) and not isinstance(node, bool):
        yield str(node)


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
    """The entries of a conversation's folder; none of any other."""
    try:
        there = (directory / CHAT).is_file() and (directory / QUESTIONS / f"{QUESTIONS}.json").is_file()
    except OSError:
        return frozenset()
    return frozenset({CHAT, QUESTIONS}) if there else frozenset()


def _is_conversation(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("chat"), list) and QUESTIONS in row


def sniff(sample: Sample) -> bool:
    """A JSON document of conversations with probing questions."""
    first = sample.document[0] if isinstance(sample.document, list) and sample.document else sample.document
    return _is_conversation(first)


register(Reader(NAME, "BEAM conversations with probing questions", 0, sniff, read, (".json",), folder=folder))
