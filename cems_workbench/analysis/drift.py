"""Drift: the results of one config for the same queries on two evidence files: two snapshots of a store, two embedders, two gathers.

Without judgments: it shows what changed, not what is better. For each query in both files, the results are
compared in order by rank-biased overlap (`analysis.ranks.rbo`, 1: the same, 0: none shared), and the scores of the memories that both
return by their mean absolute difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from cems_workbench.analysis.ranks import rbo
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import EvidenceSet, differences
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.replay import Trace
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.results import Result, Table


@dataclass(frozen=True, slots=True)
class QueryDrift:
    """One query: its results before and after, their similarity, and which of them are new or gone."""

    qid: str
    query: str
    overlap: float
    """Rank-biased overlap of the first k results."""
    score_change: float | None
    """Mean absolute difference of the scores of shared results; None without any."""
    came: tuple[str, ...]
    """New results, by rank."""
    left: tuple[str, ...]
    """Results that are gone, by their rank before."""
    new: tuple[str, ...]
    """New results that were no candidates before: new memories, or newly found ones."""
    first_changed: bool
    """Whether another memory is first."""


@dataclass(frozen=True, eq=False, repr=False)
class DriftReport(Result):
    """The drift of a config, the queries that changed most first.

    Attributes:
        config: its name.
        k: results of each query that are compared.
        queries: the drift of each query in both files.
        between: differences between the two gathers, in words.
        only_before: queries that only the first file has, or words otherwise than the other.
        only_after: queries that only the other has.
        shown: queries that are listed; None: as many as the surface shows.
    """

    config: str
    k: int
    queries: tuple[QueryDrift, ...]
    between: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    shown: int | None = None

    @property
    def overlap(self) -> float:
        """The mean rank-biased overlap of the results: 1, nothing changed."""
        return sum(query.overlap for query in self.queries) / len(self.queries)

    @property
    def changed(self) -> int:
        """Queries whose results are not the same."""
        return sum(query.overlap < 1 - SCORE_TOLERANCE for query in self.queries)

    @property
    def first_changed(self) -> int:
        """Queries with another first result."""
        return sum(query.first_changed for query in self.queries)

    @property
    def title(self) -> str:
        """The config, and the drift in a sentence."""
        return (
            f"{self.config}: {self.changed} of {len(self.queries)} queries return something else in their first {self.k}, "
            f"{self.first_changed} have another first result; mean overlap {self.overlap:.3f}"
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """What is different between the two gathers."""
        return tuple(f"between them: {line}" for line in self.between)

    @property
    def tables(self) -> tuple[Table, ...]:
        """A row for each query, those that changed most first."""
        fields = attrgetter("qid", "query", "overlap", "score_change", "first_changed")
        rows = ((*fields(one), *map(", ".join, (one.came, one.left, one.new))) for one in self.queries)
        columns = ("qid", "query", "overlap", "score change", "other first", "came", "left", "new")
        return (Table(columns, tuple(rows), shown=self.shown),)

    @property
    def notes(self) -> tuple[str, ...]:
        """How to read it, and which queries were not compared."""
        sides = (("before", self.only_before), ("after", self.only_after))
        return (
            "overlap: rank-biased, 1 the same; new: came and was no candidate before; no judgment is asked",
            *(f"only {words}, not compared: {', '.join(qids)}" for words, qids in sides if qids),
        )

    def to_json(self) -> dict[str, Any]:
        """The drift as plain values."""
        names = "config k queries between only_before only_after overlap changed first_changed"
        return plain_fields(self, names)


SCORE_TOLERANCE = 1e-9


def drift(before: EvidenceSet, after: EvidenceSet, config: PipelineConfig, k: int = 10) -> DriftReport:
    """Replay the queries in both files under a config, and compare their first k results. Raises InputError if they
    have no query in common, or k is below 1."""
    if k < 1:
        raise InputError(f"k {k}: it is counted from 1")
    asked = {query.qid: query.query for query in before.queries if query.qid in before.evidences}
    asked_after = {query.qid: query.query for query in after.queries if query.qid in after.evidences}
    common = [qid for qid, text in asked.items() if asked_after.get(qid) == text]
    if not common:
        raise InputError(f"{before.path} and {after.path} have no query in common")
    found = [
        _of_query(qid, replay(before.evidences[qid], config), replay(after.evidences[qid], config), k) for qid in common
    ]
    found.sort(key=lambda query: (query.overlap, -(query.score_change or 0.0), query.qid))
    shared = set(common)
    between, moments = differences(before.header, after.header), (before.header.created_at, after.header.created_at)
    if moments[0] != moments[1]:
        between.append(f"gathered: {moments[0][:16]}, then {moments[1][:16]}")
    return DriftReport(
        config.name,
        k,
        tuple(found),
        tuple(between),
        tuple(qid for qid in asked if qid not in shared),
        tuple(qid for qid in asked_after if qid not in shared),
    )


def _of_query(qid: str, before: Trace, after: Trace, k: int) -> QueryDrift:
    was, now = ({result.memory_id: result.score or 0.0 for result in trace.results[:k]} for trace in (before, after))
    old, new = list(was), list(now)
    shared = [abs(now[key] - was[key]) for key in old if key in now]
    came = tuple(key for key in new if key not in was)
    return QueryDrift(
        qid,
        before.evidence.query,
        rbo(old, new),
        sum(shared) / len(shared) if shared else None,
        came,
        tuple(key for key in old if key not in now),
        tuple(key for key in came if key not in before.evidence.memories),
        old[:1] != new[:1],
    )
