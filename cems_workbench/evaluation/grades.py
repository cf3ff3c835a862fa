"""From judgments to one grade per query and memory.

Human judgments go before those of models. Where several judges graded the same memory for the same query, the grade is the
median, the lower of the middle two: no judge is overruled by one other.

How each judged query fares under a config: found, found too low, missed; or said to have no answer in the store, or none known.

A query is *found* when its best-graded memory is first among the judged ones and within the first `K` results, *low* when some
memory that helps (grade 2 or 3; grade 1 where there is none) is within the first `K`, *missed* when none is. Of another query nothing
relevant is known (*none known*), or it is marked as having no answer (*no answer*).

Queries that are documents of the store, as those of ArguAna and Quora: such a document is no result of that query.

It has the id of the query and its words, and nobody judged it relevant to the query. BEIR leaves out any document with the id of the
query (`ignore_identical_ids`, True by default in beir 2.2.0); here one with other words stays, as a set that counts both from 1 has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Literal

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.records import HUMAN, WHOLE_STORE, Judgment, Query

Grades = dict[str, dict[str, int]]
"""Grade by qid and memory id."""


def agreed_grades(judgments: Iterable[Judgment], kind: str | None = None) -> Grades:
    """The grades of memories that the judges agreed on; of one kind of judge alone, or, when None, human before model."""
    given: dict[tuple[str, str], dict[str, list[int]]] = {}
    for judgment in judgments:
        if kind in (None, judgment.kind) and judgment.memory_id != WHOLE_STORE:
            given.setdefault((judgment.qid, judgment.memory_id), {}).setdefault(judgment.kind, []).append(
                judgment.grade
            )
    grades: Grades = {}
    for (qid, memory_id), by_kind in given.items():
        first = "human" if "human" in by_kind else min(by_kind)
        grades.setdefault(qid, {})[memory_id] = median_low(by_kind[first])
    return grades


def agreed_answerable(judgments: Iterable[Judgment], kind: str | None = None) -> dict[str, bool | None]:
    """By qid whether something in the store answers it, of the queries that somebody judged so: what most said, None on
    a tie. Of one kind of judge alone, or, when `kind` is None, human before model."""
    said: dict[str, dict[str, list[bool]]] = {}
    for judgment in judgments:
        if kind in (None, judgment.kind) and judgment.memory_id == WHOLE_STORE:
            said.setdefault(judgment.qid, {}).setdefault(judgment.kind, []).append(judgment.grade > 0)
    found: dict[str, bool | None] = {}
    for qid, by_kind in said.items():
        votes = by_kind[HUMAN if HUMAN in by_kind else min(by_kind)]
        more = 2 * sum(votes) - len(votes)
        found[qid] = None if more == 0 else more > 0
    return found


def as_judged(queries: Iterable[Query], answerable: Mapping[str, bool | None]) -> list[Query]:
    """The queries, each with what its judges say of whether it has an answer (`agreed_answerable`) where they do; else as its set says."""
    return [replace(query, answerable=answerable[query.qid]) if query.qid in answerable else query for query in queries]


K = 5
Status = Literal["missed", "low", "found", "none known", "no answer"]
STATUS_ORDER: tuple[Status, ...] = ("missed", "low", "found", "none known", "no answer")


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One judged query: its status, and the best rank of a relevant memory (None: not in the results)."""

    query: Query
    status: Status
    best_rank: int | None


def query_statuses(
    queries: Sequence[Query],
    evidences: Sequence[Evidence],
    grades: Mapping[str, Mapping[str, int]],
    config: PipelineConfig,
    relevant_from: Mapping[str, int],
) -> list[QueryStatus]:
    """The status of every query under a config, the failing ones first, then by qid. `grades` are judgments by qid and
    memory id, `relevant_from` the lowest relevant grade by qid. All queries are replayed as one batch."""
    if not queries:
        return []
    table = to_table(evidences)
    results = run(table, config).results.after
    ranked = [[table.ids[q][int(c)] for c in results.order(q)] for q in range(len(queries))]
    found = [
        _status(query, ranked[q], grades.get(query.qid, {}), relevant_from[query.qid])
        for q, query in enumerate(queries)
    ]
    return sorted(found, key=lambda row: (STATUS_ORDER.index(row.status), row.query.qid))


def _status(query: Query, results: Sequence[str], grades: Mapping[str, int], relevant_from: int) -> QueryStatus:
    helping = relevant(grades, relevant_from)
    if not helping:
        return QueryStatus(query, "no answer" if query.answerable is False else "none known", None)
    places = [(rank, memory_id) for rank, memory_id in enumerate(results, 1) if memory_id in helping]
    rank, best = places[0] if places else (None, None)
    if rank is None or rank > K:
        return QueryStatus(query, "missed", rank)
    judged = next(memory_id for memory_id in results if memory_id in grades)
    first = best == judged and grades[judged] == max(grades.values())
    return QueryStatus(query, "found" if first else "low", rank)


def relevant(grades: Mapping[str, int], relevant_from: int) -> set[str]:
    """The memories whose grade counts as relevant, from `GradeScale.relevant_from` of the query's set on."""
    return {memory_id for memory_id, grade in grades.items() if grade >= relevant_from}


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
