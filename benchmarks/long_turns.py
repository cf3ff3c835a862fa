"""A query set of long turns, made of the development data: turns of 500 to 3,000 characters, and the questions that they answer.

LoCoMo: the turns of a session joined, in their order, to turns of a length drawn with a seed; a question's evidence are the turns that hold
its dia_ids. SQuADShifts: the passages of a domain joined in the same way, each after a short turn of its session that asks one of the
questions about its first passage, as an assistant answers a user; the other questions ask for it. A conversation is a group, and so is a
domain. The cross-encoder that ships has learned from SQuADShifts, and has never seen LoCoMo.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from cems_workbench import formats
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.records import Judgment, Memory, Query

T = TypeVar("T")
BEGAN = datetime(2025, 1, 1, tzinfo=UTC)
SHORTEST, LONGEST = 500, 3000
MOSTLY = 1500
"""Of the lengths drawn the shortest: long turns of assistants are mostly longer than a chunk."""
DOMAINS = ("amazon_reviews_v1.0.json", "new_wiki_v1.0.json", "reddit_v1.0.json")


@dataclass(frozen=True)
class LongTurns:
    """Memories, their queries and judgments, and the group of each query by qid."""

    memories: list[Memory]
    queries: list[Query]
    judgments: list[Judgment]
    groups: dict[str, str]


def made(data: Path, per_conversation: int, per_domain: int, share: float, seed: int = 0) -> LongTurns:
    """The set of the folders `locomo` and `squadshifts` of `data`, with at most so many queries of each group.

    `share`, 0 to 1, of the passages of each domain are turns.
    """
    parts = [
        *_conversations(data / "locomo", per_conversation, seed),
        *_domains(data / "squadshifts", per_domain, share, seed),
    ]
    return LongTurns(
        [memory for part in parts for memory in part.memories],
        [query for part in parts for query in part.queries],
        [judgment for part in parts for judgment in part.judgments],
        {qid: group for part in parts for qid, group in part.groups.items()},
    )


def _conversations(folder: Path, limit: int, seed: int) -> Iterator[LongTurns]:
    for parsed in formats.read_path(folder):
        name = parsed.memories[0].project or "?"
        drawn = random.Random(f"{seed} {name}")
        memories: list[Memory] = []
        joined: dict[str, str] = {}
        sessions: dict[str | None, list[Memory]] = {}
        for memory in parsed.memories:
            sessions.setdefault(memory.session, []).append(memory)
        for turns in sessions.values():
            for part in _cut(turns, [len(turn.content) + 1 for turn in turns], drawn):
                first = f"long/{part[0].id}"
                text = "\n".join(turn.content for turn in part)
                memories.append(replace(part[0], id=first, content=text, project=None, source_ref=None, author=None))
                joined |= {turn.id: first for turn in part}
        grades = {
            key: {of for of, grade in row.items() if grade > 0} for key, row in agreed_grades(parsed.judgments).items()
        }
        asked = [query for query in parsed.queries if query.type != "adversarial" and grades.get(query.qid)]
        asked = _drawn(asked, limit, drawn)
        judgments = [
            Judgment(query.qid, of, 1)
            for query in asked
            for of in sorted({joined[key] for key in grades[query.qid] if key in joined})
        ]
        queries = [replace(query, project=None) for query in asked]
        yield LongTurns(memories, queries, judgments, {query.qid: name for query in asked})


def _domains(folder: Path, limit: int, share: float, seed: int) -> Iterator[LongTurns]:
    for file in DOMAINS:
        name = file.split("_v1")[0]
        drawn = random.Random(f"{seed} {name}")
        data = json.loads((folder / file).read_text(encoding="utf-8"))["data"]
        passages = [passage for article in data for passage in article["paragraphs"] if passage["qas"]]
        passages = passages[: round(share * len(passages))]
        memories, asked, judgments = [], [], []
        for number, part in enumerate(_cut(passages, [len(one["context"]) + 2 for one in passages], drawn)):
            at = BEGAN + timedelta(minutes=number)
            session = f"long/{name}/{number}"
            user, *others = [qa["question"].strip() for qa in part[0]["qas"]]
            others += [qa["question"].strip() for one in part[1:] for qa in one["qas"]]
            text = "\n\n".join(one["context"].strip() for one in part)
            memories.append(Memory(f"{session}/0", user, session=session, created_at=at))
            memories.append(Memory(f"{session}/1", text, session=session, created_at=at + timedelta(seconds=1)))
            asked += [Query(f"{session}/q{i}", question) for i, question in enumerate(others)]
        asked = _drawn(asked, limit, drawn)
        judgments = [Judgment(query.qid, query.qid.rsplit("/", 1)[0] + "/1", 1) for query in asked]
        yield LongTurns(memories, asked, judgments, {query.qid: name for query in asked})


def _cut(turns: Sequence[T], sizes: Sequence[int], drawn: random.Random) -> Iterator[list[T]]:
    """Runs of turns, each of a length drawn from the range; a rest that is too short joins the run before."""
    runs: list[tuple[int, list[T]]] = []
    length, wanted = 0, drawn.randint(MOSTLY, LONGEST)
    run: list[T] = []
    for turn, size in zip(turns, sizes, strict=True):
        if run and length >= SHORTEST and length + size > wanted:
            runs.append((length, run))
            length, run, wanted = 0, [], drawn.randint(MOSTLY, LONGEST)
        length, run = length + size, [*run, turn]
    if run and length < SHORTEST and runs and runs[-1][0] + length <= LONGEST:
        runs[-1] = (runs[-1][0] + length, [*runs[-1][1], *run])
    elif run:
        runs.append((length, run))
    yield from (run for _, run in runs)


def _drawn(rows: list[T], limit: int, drawn: random.Random) -> list[T]:
    return rows if limit >= len(rows) else [rows[i] for i in sorted(drawn.sample(range(len(rows)), limit))]
