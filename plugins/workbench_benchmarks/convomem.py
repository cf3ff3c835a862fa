"""ConvoMem: questions, the messages that answer them, and the conversations these were said in (Pakhomov et al., 2025, arXiv 2511.10523).

An item is `{question, answer, message_evidences, conversations, category}`, an evidence `{speaker, text}`, a conversation
`{id, messages: [{speaker, text}]}`. The files of `evidence_questions` and `filler_conversations` are `{evidence_items: [item]}`, those of
`pre_mixed_testcases` lists of `{evidenceItems: [item], conversations, contextSize}`, whose conversations are the haystack of all items.

Each message is a memory `CASE/CONVERSATION/MESSAGE` of the project `convomem/CASE`, which the queries name too; a case is an item, or a
mixed test case. An evidence is a copied text without an id, and not always to the letter, so it is found by its words: the messages with
the same words, else the only one that contains them, else those that together hold most of them. Each is judged 1; what is found nowhere,
or in several places, is reported. Questions of abstention have no answer: the messages that they name do not say it, and are not judged.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError, required_text, text
from cems_workbench.formats.base.files import read_records
from cems_workbench.formats.base.format import described, first_row
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Query
from workbench_benchmarks.conversations import Reading, an_object

NAME = "convomem"
ITEMS = ("evidence_items", "evidenceItems")
ABSTENTION = "abstention"
_NUMBERED = re.compile(r"[0-9]+_evidence")
_FOLDER = re.compile(r"[0-9]+_evidence|category_.+|filler_conversations")
"""Folders in which files of one name lie, so that theirs belongs to it."""
_WORDS = re.compile(r"\w+")
SHARE = 0.8
"""Of an evidence's words, how many must be in the messages that it was put together from."""
FEWEST_WORDS = 4
"""Shorter messages, such as "yes, please", are no part of an evidence."""


@dataclass
class _Message:
    """A message as evidence finds it: the id of its memory, who said it, its words between blanks."""

    id: str
    speaker: str
    words: str


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read one file; raises InputError when it holds no item."""
    parents = [part.name for part in path.resolve().parents]
    numbered = _NUMBERED.fullmatch(parents[0]) is not None
    kind = parents[1] if numbered else None
    folders = [*([kind] if kind else []), *(parents[:1] if _FOLDER.fullmatch(parents[0]) else [])]
    name = "-".join([*folders, path.stem])
    reading = Reading(NAME, str(path))
    found = 0
    for number, row in read_records(path, reading.errors, progress):
        for case, items, conversations in _cases(row, f"{name}-{number}"):
            found += 1
            _read_case(reading, number, case, items, conversations, kind)
        if not _is_case(row):
            reading.report(number, "", "is neither an item with conversations nor a test case")
    if not found:
        raise InputError(f"{path}: no evidence_items, and no item with message_evidences and conversations, in it")
    return reading.parsed()


def _is_case(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    given = any(isinstance(row.get(key), list) for key in ITEMS)
    return given or ("message_evidences" in row and isinstance(row.get("conversations"), list))


def _cases(row: dict[str, Any], name: str) -> Iterator[tuple[str, list[Any], Any]]:
    """(name, items, conversations to search) of what a row holds: a mixed test case, a file's items, or one item."""
    items = next((row[key] for key in ITEMS if isinstance(row.get(key), list)), None)
    if items is None:
        if _is_case(row):
            yield name, [row], row["conversations"]
    elif isinstance(row.get("conversations"), list):
        yield name, items, row["conversations"]
    else:
        for number, item in enumerate(items, start=1):
            yield f"{name}-{number}", [item], item.get("conversations") if isinstance(item, dict) else None


def _read_case(reading: Reading, row: int, case: str, items: list[Any], conversations: Any, kind: str | None) -> None:
    said: dict[str | None, list[_Message]] = {}
    for number, conversation in enumerate(conversations if isinstance(conversations, list) else [], start=1):
        where = f"{case}/{number}"
        if not isinstance(conversation, dict) or not isinstance(conversation.get("messages"), list):
            reading.report(row, where, "must be a conversation with messages")
            continue
        reading.unknown["conversations"].see(conversation)
        given = conversation.get("id")
        messages = said.setdefault(given if isinstance(given, str) else None, [])
        for place, message in enumerate(conversation["messages"], start=1):
            with reading.reporting(row, f"{where}/{place}"):
                messages.append(_read_message(reading, case, f"{where}/{place}", message))
    for number, item in enumerate(items, start=1):
        with reading.reporting(row, f"{case}/q{number}"):
            _read_item(reading, row, case, number, an_object(item), said, kind)


def _read_message(reading: Reading, case: str, name: str, message: Any) -> _Message:
    if not isinstance(message, dict):
        raise FieldError("", "must be a message with speaker and text")
    content = required_text(message, "text")
    speaker = (text(message, "speaker") or "user").lower()
    reading.unknown["messages"].see(message)
    reading.add_turn(name, speaker, content, conversation=case, session=name.rpartition("/")[0])
    return _Message(name, speaker, _words(content))


def _read_item(
    reading: Reading,
    row: int,
    case: str,
    number: int,
    item: dict[str, Any],
    said: dict[str | None, list[_Message]],
    kind: str | None,
) -> None:
    where = f"{case}/q{number}"
    reading.unknown["items"].see(item)
    if not str(item.get("question") or "").strip() and not item.get("message_evidences"):
        reading.counted["without question"].append(where)
        return
    question, category = required_text(item, "question"), kind or text(item, "category")
    answerable = None if ABSTENTION not in (category or "").lower() else False
    query = Query(where, question, reading.project(case), None, category, answerable)
    if answerable is False:
        reading.add_query(query, (), "unanswerable", item)
        return
    judged: dict[str, None] = {}
    given = item.get("message_evidences")
    for place, evidence in enumerate(given if isinstance(given, list) else [], start=1):
        found, reason = _found(evidence, _own(item, said))
        judged.update(dict.fromkeys(found))
        if reason:
            reading.report(row, f"{where}.message_evidences[{place}]", reason)
    reading.add_query(query, judged, "unjudged", item)


def _own(item: dict[str, Any], said: dict[str | None, list[_Message]]) -> list[_Message]:
    """The messages of an item's conversations among those of its case, or all of the case where they have no ids."""
    own = item.get("conversations")
    ids = [one.get("id") for one in own if isinstance(one, dict)] if isinstance(own, list) else []
    named = [message for name, messages in said.items() if name and name in ids for message in messages]
    return named or [message for messages in said.values() for message in messages]


def _found(evidence: Any, messages: list[_Message]) -> tuple[list[str], str]:
    """The ids of the messages that an evidence names, or the reason why it names none."""
    said = evidence.get("text") if isinstance(evidence, dict) else None
    wanted = _words(said) if isinstance(said, str) else ""
    if not wanted.strip():
        return [], "must be a message with speaker and text"
    speaker = str(evidence.get("speaker") or "").lower()
    of_speaker = [message for message in messages if message.speaker == speaker]
    for among in (of_speaker, messages):
        if same := [message.id for message in among if message.words == wanted]:
            return same, ""
        holding = [message.id for message in among if wanted in message.words]
        if len(holding) > 1:
            return [], f"its words are in {len(holding)} messages; which is meant is open"
        if holding:
            return holding, ""
    among = [one for one in messages if one.words in wanted and _size(one.words) >= FEWEST_WORDS]
    parts = {one.words: one.id for one in among}
    if sum(map(_size, parts)) >= SHARE * _size(wanted):
        return list(parts.values()), ""
    return [], "no message of its conversations has these words"


def _words(content: str) -> str:
    """The words of a text between blanks, so that one text is looked for in another by whole words."""
    return f" {' '.join(_WORDS.findall(unicodedata.normalize('NFKC', content).casefold()))} "


def _size(words: str) -> int:
    return words.count(" ") - 1


FORMAT = described(__file__, NAME, first_row(_is_case), read)
