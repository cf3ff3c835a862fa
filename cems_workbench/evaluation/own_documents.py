"""Queries that are documents of the store, as those of ArguAna and Quora: such a document is no result of that query.

It has the id of the query and its words, and nobody judged it relevant to the query. BEIR leaves out any document with the id of the
query (`ignore_identical_ids`, True by default in beir 2.2.0); here one with other words stays, as a set that counts both from 1 has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from cems_workbench.pipeline import Evidence
from cems_workbench.records import Query

SHORTEST_PART = 24
"""Characters from which on words that contain the others are the same document."""
MAX_NAMED = 3


def own_document(query: Query, evidence: Evidence, grades: Mapping[str, int]) -> Literal["", "same", "other"]:
    """Whether the memory with a query's id among its candidates is the query itself, or is another: another text, or what should come to
    it. "" if there is none."""
    memory = evidence.memories.get(query.qid)
    if memory is None or evidence.external:
        return ""
    if grades.get(query.qid, 0) > 0:
        return "other"
    asked, told = _plain(query.query), (_plain(memory.content), _plain(f"{memory.title or ''} {memory.content}"))
    shorter = min(len(asked), len(told[0]))
    same = asked in told or (shorter >= SHORTEST_PART and (asked in told[1] or told[0] in asked))
    return "same" if same else "other"


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def without_own(evidence: Evidence, qid: str) -> Evidence:
    """The evidence without the memory that is the query: in no list, so no candidate of any config."""
    lists = (replace(one, hits=tuple(hit for hit in one.hits if hit.memory_id != qid)) for one in evidence.lists)
    return replace(evidence, lists=tuple(lists))


def remarks(left_out: Sequence[str], by_chance: Sequence[str], queries: int) -> list[str]:
    """What was done with the documents that have the id of a query, in lines."""
    lines = []
    if left_out:
        lines.append(
            f"{len(left_out)} of {queries} queries are memories of the store, such as {left_out[0]}: each was left out of its own results, "
            "as BEIR does"
        )
    if by_chance:
        named = ", ".join(by_chance[:MAX_NAMED]) + (", …" if by_chance[MAX_NAMED:] else "")
        lines.append(
            f"{len(by_chance)} of {queries} queries have the id of a memory with another text, or one that is relevant to them ({named}): "
            "it was kept; BEIR leaves out every document with the id of the query, so its figures differ"
        )
    return lines
