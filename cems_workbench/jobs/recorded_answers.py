"""Recorded answers in terms of the store: which of its memories they name, and how near the results of a config come to them.

A memory of an answer is matched by its id, otherwise by its text: equal except for white space, or a part of only one memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from cems_workbench.analysis.ranks import rbo
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.pipeline.stages import ASSEMBLY
from cems_workbench.records import Memory, RecordedAnswer, Returned
from cems_workbench.store import Store

Find = Callable[[Iterable[str] | None], Mapping[str, Memory]]
"""Memories by id: those of the given ids that exist, or all."""

SHORTEST_PREFIX = 24
"""Minimum length, in characters, of a text that is matched as a part of a memory."""


@dataclass(frozen=True, slots=True)
class Production:
    """Production's answer, as ids of this store in production's order. `by_text` are those matched by text, with their
    id in the response; `unknown` are rows that no memory matches, with their rank."""

    order: tuple[str, ...]
    ranks: Mapping[str, int]
    scores: Mapping[str, float]
    by_text: Mapping[str, str]
    unknown: tuple[tuple[int, Returned], ...]

    @property
    def strangers(self) -> dict[int, str]:
        """By rank the response's id of a row that no memory matches."""
        return {rank: answer.memory_id or "no id" for rank, answer in self.unknown}

    @property
    def recorded(self) -> tuple[str, ...]:
        """The whole answer in its order: ids of this store, and the original ids of the other rows."""
        ranked = {rank: memory_id for memory_id, rank in self.ranks.items()} | self.strangers
        return tuple(ranked[rank] for rank in sorted(ranked))


def match_results(answers: Sequence[Returned], find: Find) -> Production:
    """The response in terms of this store; a memory that occurs twice counts once, at its first rank."""
    known = find([answer.memory_id for answer in answers if answer.memory_id is not None])
    strangers = [answer for answer in answers if answer.memory_id not in known and answer.content]
    texts = _by_text([answer.content or "" for answer in strangers], find) if strangers else {}
    ranks: dict[str, int] = {}
    scores: dict[str, float] = {}
    by_text: dict[str, str] = {}
    unknown = []
    for rank, answer in enumerate(answers, start=1):
        memory_id = answer.memory_id if answer.memory_id in known else texts.get(answer.content or "")
        if memory_id is None:
            unknown.append((rank, answer))
            continue
        if memory_id in ranks:
            continue
        ranks[memory_id] = rank
        if answer.score is not None:
            scores[memory_id] = answer.score
        if answer.memory_id not in known:
            by_text[memory_id] = answer.memory_id or "no id"
    return Production(tuple(ranks), ranks, scores, by_text, tuple(unknown))


def _by_text(texts: Sequence[str], find: Find) -> dict[str, str]:
    """By text the memory with that content, or the only one that contains it."""
    every = {memory_id: _plain(memory.content) for memory_id, memory in find(None).items()}
    whole = {content: memory_id for memory_id, content in reversed(every.items())}
    found = {}
    for text in texts:
        plain = _plain(text)
        if plain in whole:
            found[text] = whole[plain]
        elif len(plain) >= SHORTEST_PREFIX:
            holders = [memory_id for memory_id, content in every.items() if plain in content]
            if len(holders) == 1:
                found[text] = holders[0]
    return found


def _plain(text: str) -> str:
    return " ".join(text.split())


def productions_of(answers: Sequence[RecordedAnswer], store: Store) -> dict[str, Production]:
    """Answers with the store's memories, by qid. All memories are read only if one must be found by its text."""
    known = store.memories.read({row.memory_id for answer in answers for row in answer.returned if row.memory_id})
    every = cache(store.memories.read)

    def find(ids: Iterable[str] | None) -> Mapping[str, Memory]:
        return every() if ids is None else {key: known[key] for key in ids if key in known}

    return {answer.qid: match_results(answer.returned, find) for answer in answers}


def nearness(
    answers: Sequence[RecordedAnswer],
    productions: Mapping[str, Production],
    evidences: Sequence[Evidence],
    config: PipelineConfig,
) -> dict[str, float]:
    """Rank-biased overlap of each recorded answer with our results under a config, by qid; ours are as long as the
    longest answer. All queries are replayed as one batch; `evidences` has that of each answer, in order."""
    if not answers:
        return {}
    table = to_table(evidences)
    results = run(table, config).of(ASSEMBLY).after
    limit = max(len(answer.returned) for answer in answers) or None
    return {
        answer.qid: rbo(productions[answer.qid].recorded, [table.ids[q][int(c)] for c in results.order(q)][:limit])
        for q, answer in enumerate(answers)
    }


def failing_first(answers: Sequence[RecordedAnswer], near: Mapping[str, float]) -> list[RecordedAnswer]:
    """The answers, empty ones first, then by least overlap with ours, ties by lowest best score."""

    def key(answer: RecordedAnswer) -> tuple[bool, float, float]:
        top = answer.top_score
        return bool(answer.returned), round(near[answer.qid], 9), math.inf if top is None else top

    return sorted(answers, key=key)
