"""One memory across all queries: where it is wanted, returned, returned although judged irrelevant, or lost; and hubs and orphans.

Of Q queries, of which some judge a memory x, with the first k results each:

    wanted       queries that judge x relevant (grade >= relevant_from)
    N_k(x)       k-occurrence: queries that return x within the first k
    BN_k(x)      bad k-occurrence: those of them that judge x irrelevant
    hub          BN_k(x) >= 3, and at least two standard deviations above its mean over the candidates
    orphan       N_k(x) = 0

The mean of BN_k is what each candidate would have if the results judged irrelevant were spread evenly. k-occurrence, bad
k-occurrence and the two deviations are of Radovanović, Nanopoulos, Ivanović: Hubs in Space, JMLR 11 (2010). A candidate is a
memory that a list found for at least one query.

Queries are replayed in blocks and forgotten: what stays is a few numbers per memory, and the rows of the memories that are followed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from cems_workbench.analysis.ranks import (
    GRAPH_LOST,
    NEVER_FOUND,
    Branch,
    at_graph,
    in_pipeline_order,
    loss,
    lost,
    target_rank,
)
from cems_workbench.command_words import asked_options, why_command
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.evidence_stream import EvidenceStream
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.pipeline.recorded import merged_names
from cems_workbench.pipeline.replay import blocks_of, replay, run, to_table
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Query

BLOCK_QUERIES = 512
LABEL = "reading queries"
MIN_HUB_QUERIES = 3
"""With fewer queries that judge it irrelevant a memory is no hub."""
HUB_DEVIATIONS = 2.0
MAX_EXPLAINED = 200
"""Lost queries of a followed memory that are explained in words; each takes a replay."""

UseStatus = Literal["found", "lost", "judged irrelevant", "not judged"]
STATUS_ORDER: tuple[UseStatus, ...] = ("lost", "judged irrelevant", "found", "not judged")
SAID: Mapping[UseStatus, str] = {
    "found": "judged relevant",
    "judged irrelevant": "although judged irrelevant",
    "not judged": "not judged",
}
COUNTS = ("candidate", "returned", "wanted", "found", "irrelevant")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """How often queries want, find and return one memory; counts of queries."""

    memory_id: str
    candidate: int = 0
    """A list found it."""
    returned: int = 0
    """It is within the first k results: its k-occurrence."""
    wanted: int = 0
    """They judge it relevant."""
    found: int = 0
    """They judge it relevant, and return it within the first k."""
    irrelevant: int = 0
    """They judge it irrelevant, and return it within the first k: its bad k-occurrence."""
    lost: Mapping[Branch, int] = field(default_factory=dict)
    """By the branch at which it is lost, the queries that judge it relevant and do not return it within the first k."""

    @property
    def unjudged(self) -> int:
        """Queries that return it and do not judge it."""
        return self.returned - self.found - self.irrelevant

    def to_json(self, k: int) -> dict[str, Any]:
        return plain_fields(self, "memory_id candidate wanted returned found") | {
            "returned_irrelevant": self.irrelevant,
            "returned_unjudged": self.unjudged,
            "lost": [
                branch.to_json() | {"words": branch.words(k), "queries": count} for branch, count in self.lost.items()
            ],
        }


@dataclass(frozen=True, slots=True)
class UseRow:
    """A query that wants or returns a followed memory: its grade there (None: not judged) and rank within the first k
    (None: lost). `words` say what happened; `branch` is where it was lost."""

    query: Query
    memory_id: str
    grade: int | None
    rank: int | None
    status: UseStatus
    words: str
    branch: Branch | None = None

    def next_command(self, options: Sequence[str] = ()) -> str:
        """The command that explains the row, quoted for a shell; `options` name the config."""
        query = self.query
        asked = asked_options(query.project, query.as_of)
        return why_command(query.query, self.memory_id, options=asked).line(options)

    def to_json(self, options: Sequence[str] = ()) -> dict[str, Any]:
        """The row as plain values, with the command that explains it."""
        return plain_fields(self.query, "qid query") | {
            **plain_fields(self, "status grade rank"),
            "stage": self.branch.stage if self.branch else None,
            "what": self.words,
            "next": self.next_command(options),
        }


@dataclass(frozen=True, eq=False)
class MemoryUses:
    """How queries use every memory, under one config."""

    config_name: str
    k: int
    queries: int
    """All that have evidence."""
    judged: int
    """Those of them with a judgment of a memory."""
    uses: Mapping[str, MemoryUse]
    """Every memory that a list found or a query judges, by id."""
    rows: Mapping[str, tuple[UseRow, ...]]
    """Of each followed memory its queries: lost ones first, then those that judge it irrelevant, found, not judged."""
    expected: float
    """Mean bad k-occurrence of the candidates."""
    deviation: float
    """Its standard deviation."""

    def of(self, memory_id: str) -> MemoryUse:
        """The counts of a memory, zeros if no query judges it and no list found it."""
        return self.uses.get(memory_id) or MemoryUse(memory_id)

    @property
    def least_of_hub(self) -> int:
        """The least bad k-occurrence of a hub."""
        return max(MIN_HUB_QUERIES, math.ceil(self.expected + HUB_DEVIATIONS * self.deviation - 1e-9))

    def hubness(self, use: MemoryUse) -> float:
        """By how many standard deviations its bad k-occurrence is above the mean; 0 if all are equal."""
        return (use.irrelevant - self.expected) / self.deviation if self.deviation else 0.0

    def is_hub(self, use: MemoryUse) -> bool:
        """Whether it is returned for many queries that judge it irrelevant, as defined above."""
        return use.irrelevant >= self.least_of_hub

    def hubs(self) -> list[MemoryUse]:
        """The hubs, those of most queries first."""
        found = [use for use in self.uses.values() if self.is_hub(use)]
        return sorted(found, key=lambda use: (-use.irrelevant, -use.returned, use.memory_id))

    def orphans(self, known: Iterable[str] | None = None) -> list[MemoryUse]:
        """The memories that no query returns, those that most queries want first, then those that lists find most
        often. `known` are the ids of the store; None: only those that a list found or a query judges."""
        ids = self.uses if known is None else known
        found = [use for use in map(self.of, ids) if not use.returned]
        return sorted(found, key=lambda use: (-use.wanted, -use.candidate, use.memory_id))

    @property
    def hubs_sentence(self) -> str:
        """How many memories are returned for many queries that judge them irrelevant."""
        return (
            f"hubs: {len(self.hubs()):,} memories within the first {self.k} of at least {self.least_of_hub} queries that judge them "
            f"irrelevant, where {self.expected:.2g} are expected."
        )

    def sentence(self, memory_id: str) -> str:
        """What the queries do with a memory: who wants it, where it is lost, and who else gets it."""
        use, k = self.of(memory_id), self.k
        where = "".join(f", {count:,} {branch.words(k)}" for branch, count in use.lost.items())
        said = (
            f"{memory_id} is wanted by {use.wanted:,} of {self.queries:,} queries: {use.found:,} within the first {k}{where}. "
            f"Other queries that return it: {use.irrelevant:,} although judged irrelevant, {use.unjudged:,} not judged."
        )
        if self.is_hub(use):
            said += f" It is a hub: {self.expected:.2g} would judge it irrelevant if such results were spread evenly."
        return said

    def to_json(self, memory_id: str, options: Sequence[str] = ()) -> dict[str, Any]:
        """A memory's counts and rows as plain values; `options` name the config on the command line."""
        use = self.of(memory_id)
        return {
            **self.over(),
            **use.to_json(self.k),
            "hub": self.is_hub(use),
            "hubness": self.hubness(use),
            "sentence": self.sentence(memory_id),
            "queries": [row.to_json(options) for row in self.rows.get(memory_id, ())],
        }

    def over(self) -> dict[str, Any]:
        """What the counts are of, as plain values."""
        return {
            "config": self.config_name,
            "k": self.k,
            "of_queries": self.queries,
            "of_judged_queries": self.judged,
            "expected_irrelevant": self.expected,
        }


Grades = Mapping[str, Mapping[str, int]]
RelevantFrom = int | Mapping[str, int]


class MemoryUseCounter:
    """Counts the use of memories while queries are added, a portion at a time."""

    def __init__(
        self,
        config: PipelineConfig,
        relevant_from: RelevantFrom = 1,
        *,
        k: int | None = None,
        followed: Collection[str] = (),
    ) -> None:
        """`relevant_from` is the lowest grade that counts as relevant, of all queries or by qid; `k` is the result
        limit by default. Rows are kept of the memories that are `followed`."""
        self.config = config
        self.k = target_rank(config) if k is None else k
        self._from = relevant_from
        self._followed = frozenset(followed)
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in COUNTS}
        self._lost: dict[str, Counter[Branch]] = {}
        self._stages: tuple[str, ...] = ()
        self._rows: dict[str, list[UseRow]] = {}
        self._queries = self._judged = self._explained = 0

    def add(self, queries: Iterable[Query], evidences: Mapping[str, Evidence], grades: Grades) -> None:
        """Count queries; those without evidence are left out. `grades` are by qid and memory id."""
        gathered = [query for query in queries if query.qid in evidences]
        for places in blocks_of([evidences[query.qid] for query in gathered], BLOCK_QUERIES):
            block = [gathered[i] for i in places.tolist()]
            self._add(block, [evidences[query.qid] for query in block], grades)

    def finished(self) -> MemoryUses:
        """All counts so far."""
        counts = self._counts
        bad = np.array([counts["irrelevant"][key] for key in counts["candidate"]])
        uses = {}
        for key in counts["candidate"] | counts["returned"] | counts["wanted"]:
            lost = self._lost.get(key, Counter[Branch]())
            branches = sorted(in_pipeline_order(lost, self._stages), key=lambda branch: -lost[branch])
            own = {name: counts[name][key] for name in COUNTS}
            uses[key] = MemoryUse(key, **own, lost={branch: lost[branch] for branch in branches})
        rows = {
            memory_id: tuple(sorted(rows, key=lambda row: (STATUS_ORDER.index(row.status), row.query.qid)))
            for memory_id, rows in self._rows.items()
        }
        mean, deviation = (float(bad.mean()), float(bad.std())) if bad.size else (0.0, 0.0)
        return MemoryUses(self.config.name, self.k, self._queries, self._judged, uses, rows, mean, deviation)

    def _add(self, queries: Sequence[Query], evidences: Sequence[Evidence], grades: Grades) -> None:
        table = to_table(evidences)
        done = run(table, self.config)
        results = done.results.after
        first = results.leading(self.k)
        listed = done.of(LISTS).entered
        asked: list[tuple[int, int]] = []
        for q, query in enumerate(queries):
            ids, given = table.ids[q], grades.get(query.qid, {})
            self._queries += 1
            self._judged += bool(given)
            least = self._from if isinstance(self._from, int) else self._from[query.qid]
            ranked = {ids[c]: rank for rank, c in enumerate(first[q].tolist(), 1) if c >= 0}
            wanted = [key for key, grade in given.items() if grade >= least]
            found = {
                "candidate": [ids[c] for c in np.flatnonzero(listed[q]).tolist()],
                "returned": list(ranked),
                "wanted": wanted,
                "found": [key for key in wanted if key in ranked],
                "irrelevant": [key for key in ranked if given.get(key, least) < least],
            }
            for name, keys in found.items():
                self._counts[name].update(keys)
            for key in wanted:
                if key not in ranked:
                    c = bisect_left(ids, key)
                    if c < len(ids) and ids[c] == key:
                        asked.append((q, c))
                    else:
                        self._lose(query, evidences[q], key, given[key], NEVER_FOUND)
            for key in self._followed.intersection(ranked):
                self._follow(query, key, given.get(key), ranked[key], least)
        if asked:
            rows, columns = (np.array(values, dtype=np.int64) for values in zip(*asked, strict=True))
            losses = lost(done, table, self.config, self.k, (rows, columns))
            self._stages = merged_names([self._stages, losses.stages])
            for (q, c), branch in zip(asked, losses.branches, strict=True):
                if branch is not None:
                    key = table.ids[q][c]
                    self._lose(queries[q], evidences[q], key, grades[queries[q].qid][key], branch)

    def _lose(self, query: Query, evidence: Evidence, memory_id: str, grade: int, branch: Branch) -> None:
        branch = at_graph(branch, memory_id, evidence, self.config, self.k) or branch
        self._lost.setdefault(memory_id, Counter())[branch] += 1
        if memory_id not in self._followed:
            return
        words = branch.words(self.k)
        if branch not in (NEVER_FOUND, GRAPH_LOST) and self._explained < MAX_EXPLAINED:
            self._explained += 1
            why = loss(replay(evidence, self.config), memory_id, self.k)
            if why is not None and why.reason:  # that of the lists begins with these words
                words = why.reason if why.in_lists else f"{words}: {why.reason}"
        self._rows.setdefault(memory_id, []).append(UseRow(query, memory_id, grade, None, "lost", words, branch))

    def _follow(self, query: Query, memory_id: str, grade: int | None, rank: int, least: int) -> None:
        status: UseStatus = "not judged" if grade is None else "found" if grade >= least else "judged irrelevant"
        words = f"{ordinal(rank)}, {SAID[status]}"
        self._rows.setdefault(memory_id, []).append(UseRow(query, memory_id, grade, rank, status, words))


def memory_uses(
    queries: Iterable[Query],
    evidences: Mapping[str, Evidence],
    grades: Grades,
    config: PipelineConfig,
    relevant_from: RelevantFrom = 1,
    *,
    k: int | None = None,
    followed: Collection[str] = (),
) -> MemoryUses:
    """How these queries use every memory; arguments as of `MemoryUseCounter`. Queries without evidence are left out."""
    counter = MemoryUseCounter(config, relevant_from, k=k, followed=followed)
    counter.add(queries, evidences, grades)
    return counter.finished()


def stream_memory_uses(
    stream: EvidenceStream,
    config: PipelineConfig,
    *,
    k: int | None = None,
    kind: str | None = None,
    followed: Collection[str] = (),
    progress: Progress = silent,
) -> MemoryUses:
    """How the queries of evidence files use every memory; `kind` of judge as in `evaluate_stream`. Raises InputError
    for a query that is not as evidence is. `progress` may raise `Cancelled`."""
    counter = MemoryUseCounter(config, stream.header.relevant_from, k=k, followed=followed)
    done, total = 0, stream.queries
    for portion in stream.portions():
        progress(LABEL, done, total)
        counter.add(portion.queries, portion.evidences, agreed_grades(portion.judgments, kind))
        done += len(portion.queries)
    progress(LABEL, total, total)
    return counter.finished()
