"""MemoryAgentBench: a long context with many questions about it (Hu et al., ICLR 2026, arXiv 2507.05257).

A row is `{context, questions, answers, metadata: {source, qa_pair_ids, question_types, question_dates, haystack_sessions, …}}`, as JSON,
JSON lines or the published Parquet. Its memories are of the project `memoryagentbench/SOURCE`, which its queries name too:

    FactConsolidation     a numbered fact a memory, with its number: a larger one is newer
    LongMemEval           a turn a memory, with the time of its session; the context is a Python literal, which is read and never run
    RULER                 a "Document N:" a memory
    EventQA and others    passages of whole sentences

The benchmark judges answers, not what is found. The turns that haystack_sessions marks with has_answer are the only evidence it names, and
are judged 1; elsewhere there are no judgments, and no fact or passage is guessed from an answer's words. Questions whose id
ends in _abs have no answer, as in LongMemEval.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError, identifier, required_text
from cems_workbench.formats.base.files import read_records
from cems_workbench.formats.base.format import described, first_row
from cems_workbench.progress import Progress
from cems_workbench.records import Memory, ParsedInput, Query
from workbench_benchmarks.conversations import Reading, said_at, within

NAME = "memoryagentbench"
PASSAGE_CHARS = 2_000
"""Of a text without parts, at most as much as embedders read (about 512 tokens); the benchmark's own pieces have 4,096 tokens."""
MAX_LITERAL_CHARS = 10_000_000
_FACT = re.compile(r"\s*([0-9]{1,9})\.\s+\S.*")
_DOCUMENT = re.compile(r"^Document ([0-9]{1,9}):", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_NUMBER = re.compile(r"_no[0-9]+$")
Said = dict[tuple[Any, Any], list[str]]
"""The ids of turns by role and words."""


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a file of contexts with questions; raises InputError when it holds none."""
    reading, names = Reading(NAME, str(path)), Counter[str]()
    for number, row in read_records(path, reading.errors, progress):
        if _is_row(row):
            _read_row(reading, number, row, path.stem, names)
        else:
            reading.report(number, "", "must have a context with questions and answers")
    if not reading.queries and not reading.memories:
        raise InputError(f"{path}: no context with questions and answers in it")
    return reading.parsed()


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("context"), str) and "questions" in row and "answers" in row


def _read_row(reading: Reading, number: int, row: dict[str, Any], stem: str, names: Counter[str]) -> None:
    metadata = row["metadata"] if isinstance(row.get("metadata"), dict) else {}
    ids = _listed(metadata.get("qa_pair_ids", row.get("qa_pair_ids")))
    source = (
        metadata.get("source") or (ids and isinstance(ids[0], str) and _NUMBER.sub("", ids[0])) or row.get("sample_id")
    )
    name = source if isinstance(source, str) and source.strip() and source.isprintable() else f"{stem}-{number}"
    names[name] += 1
    if names[name] > 1:
        name = f"{name}-{names[name]}"
    said = _read_context(reading, number, row["context"], name)
    haystacks = _listed(metadata.get("haystack_sessions"))
    if not any(haystacks):
        reading.counted["without gold"].append(name)
    kinds, dates = _listed(metadata.get("question_types")), _listed(metadata.get("question_dates"))
    abstain = {n for n, given in enumerate(_listed(metadata.get("question_ids"))) if str(given).endswith("_abs")}
    for place, question in enumerate(_listed(row["questions"])):
        where = f"questions[{place + 1}]"
        try:
            qid = identifier({"qid": ids[place]}, "qid") if place < len(ids) and ids[place] else f"{name}/q{place + 1}"
            words = required_text({"question": question}, "question")
        except FieldError as error:
            reading.report(number, where, error.reason)
            continue
        kind = kinds[place] if place < len(kinds) and isinstance(kinds[place], str) and kinds[place].strip() else source
        asked = said_at(dates[place]) if place < len(dates) else None
        kind = kind if isinstance(kind, str) and kind.isprintable() else None
        answerable = False if place in abstain else None
        judged = any(haystacks) and answerable is None
        found = _answering(haystacks[place] if judged and place < len(haystacks) else [], said)
        query = Query(qid, words, reading.project(name), asked, kind, answerable)
        reading.add_query(query, found, "unjudged" if judged else "")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _answering(sessions: Any, said: Said) -> list[str]:
    """The ids of the turns that a question's sessions mark with has_answer; the first of those with the same words."""
    turns = within(sessions, lambda node: isinstance(node, dict) and node.get("has_answer") is True)
    found = (
        said.get((turn.get("role"), turn.get("content"))) for turn in turns if isinstance(turn.get("content"), str)
    )
    return list(dict.fromkeys(ids[0] for ids in found if ids))


def _read_context(reading: Reading, number: int, context: str, name: str) -> Said:
    """Add a context's memories; returns its turns, where it is a chat."""
    sessions = _sessions(context)
    if sessions:
        return _read_sessions(reading, number, sessions, name)
    facts = [(fact[1], line.strip()) for line in context.split("\n") if (fact := _FACT.fullmatch(line))]
    if len(facts) > 1 and len(facts) * 2 > context.count("\n"):
        parts = facts
    elif _DOCUMENT.search(context):
        begins = [*_DOCUMENT.finditer(context)]
        ends = [*(begin.start() for begin in begins[1:]), len(context)]
        parts = [(begin[1], context[begin.start() : end].strip()) for begin, end in zip(begins, ends, strict=True)]
    else:
        parts = [(str(place), text) for place, text in enumerate(_passages(context), start=1)]
        reading.counted["cut"].append(name)
    twice: Counter[str] = Counter()
    for part, text in parts:
        twice[part] += 1
        memory = f"{name}/{part}" if twice[part] == 1 else f"{name}/{part}.{twice[part]}"
        reading.memories.append(Memory(memory, text, project=reading.project(name), source_ref=f"{NAME}:{memory}"))
    return {}


def _sessions(context: str) -> list[tuple[datetime | None, list[Any]]]:
    """The sessions of LongMemEval's context, `['Chat Time: 2023/05/21 (Sun) 16:10', [turns], …]`; none of another text."""
    if not context.lstrip().startswith("[") or len(context) > MAX_LITERAL_CHARS:
        return []
    try:
        items = ast.literal_eval(context.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    sessions: list[tuple[datetime | None, list[Any]]] = []
    when = None
    for item in items if isinstance(items, list) else []:
        if isinstance(item, str):
            when = said_at(item.partition(":")[2] if item.lower().startswith("chat time") else item)
        elif isinstance(item, list):
            sessions.append((when, item))
            when = None
    return sessions if any(isinstance(turn, dict) for _, turns in sessions for turn in turns) else []


def _read_sessions(reading: Reading, number: int, sessions: list[tuple[datetime | None, list[Any]]], name: str) -> Said:
    said: Said = {}
    for session, (when, turns) in enumerate(sessions, start=1):
        for place, turn in enumerate(turns, start=1):
            memory = f"{name}/{session}/{place}"
            with reading.reporting(number, f"context: session {session}, turn {place}"):
                content = required_text(turn if isinstance(turn, dict) else {}, "content")
                role = turn["role"] if isinstance(turn.get("role"), str) else "user"
                at = None if when is None else when + timedelta(seconds=place)
                reading.add_turn(memory, role, content, at, conversation=name, session=f"{name}/{session}")
                said.setdefault((turn.get("role"), turn["content"]), []).append(memory)
    return said


def _passages(context: str) -> Iterator[str]:
    """Whole sentences and lines, as many as fit; one that alone is longer is cut."""
    held = ""
    for sentence in _SENTENCE.split(context):
        if not sentence.strip():
            continue
        if held and len(held) + 1 + len(sentence) > PASSAGE_CHARS:
            yield held
            held = ""
        held = f"{held} {sentence}" if held else sentence
        while len(held) > PASSAGE_CHARS:
            yield held[:PASSAGE_CHARS]
            held = held[PASSAGE_CHARS:]
    if held.strip():
        yield held


FORMAT = described(__file__, NAME, first_row(_is_row), read)
