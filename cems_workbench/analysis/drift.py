"""Drift: what one config returns for the same queries on two evidence files, of two snapshots of a store, two embedders, two gathers.

No judgment is asked: it says what changed, and where to look, not what is better. For each query that both files hold, the results are
compared in order by rank-biased overlap (`why.side_effects.rbo`, 1: the same, 0: none shared), and the scores of the memories that both
return by their mean absolute difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cems_workbench.analysis.why.side_effects import rbo
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.missing_evidence import gather_parameters
from cems_workbench.pipeline.trace import Trace


@dataclass(frozen=True, slots=True)
class QueryDrift:
    """One query: its results before and after, how alike they are, and which of them came and went."""

    qid: str
    query: str
    overlap: float
    """Rank-biased overlap of the first k results."""
    score_change: float | None
    """Mean absolute difference of the scores of what both return; None where nothing is shared."""
    came: tuple[str, ...]
    """Results that were none before, by rank."""
    left: tuple[str, ...]
    """Results that are none any more, by their rank before."""
    new: tuple[str, ...]
    """Those that came and were not even candidates before: new memories, or newly found."""
    first_changed: bool
    """Is another memory the first?"""


@dataclass(frozen=True)
class Drift:
    """What a config returns differently, the queries that changed most first."""

    config: str
    k: int
    queries: tuple[QueryDrift, ...]
    between: tuple[str, ...]
    """What is different between the two gathers, in words."""
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    """Queries that are in one of the files alone; of one wording there, of another here, counts too."""

    @property
    def overlap(self) -> float:
        """Mean of the queries."""
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
    def sentence(self) -> str:
        """The drift in a sentence."""
        return (
            f"{self.changed} of {len(self.queries)} queries return something else in their first {self.k}, {self.first_changed} have "
            f"another first result; mean overlap {self.overlap:.3f}"
        )

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self) | {"overlap": self.overlap, "changed": self.changed, "first_changed": self.first_changed}


SCORE_TOLERANCE = 1e-9


def drift(before: EvidenceSet, after: EvidenceSet, config: PipelineConfig, k: int = 10) -> Drift:
    """Replay the queries that both files hold under a config, and compare their first k results.

    Raises InputError where they have no query in common, or k is below 1.
    """
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
    return Drift(
        config.name,
        k,
        tuple(found),
        tuple(differences(before, after)),
        tuple(qid for qid in asked if qid not in shared),
        tuple(qid for qid in asked_after if qid not in shared),
    )


def _of_query(qid: str, before: Trace, after: Trace, k: int) -> QueryDrift:
    was, now = (_scores(trace, k) for trace in (before, after))
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


def _scores(trace: Trace, k: int) -> Mapping[str, float]:
    """Score by memory id of the first k results, in their order."""
    return {result.memory_id: result.score for result in trace.results[:k]}


def differences(before: EvidenceSet, after: EvidenceSet) -> Sequence[str]:
    """What is different between two gathers, a line each; what both have alike is not named."""
    was, now = before.header, after.header
    lines = []
    if was.store_id != now.store_id:
        lines.append(f"store: {was.store_id or 'unknown'}, then {now.store_id or 'unknown'}")
    elif was.content_version != now.content_version:
        lines.append(f"content of the store: version {was.content_version}, then {now.content_version}")
    if was.embedder != now.embedder:
        lines.append(f"embedder: {was.embedder}, then {now.embedder}")
    if was.project_only != now.project_only:
        lines.append(f"within each project only: {was.project_only}, then {now.project_only}")
    old, new = gather_parameters(was.config), gather_parameters(now.config)
    lines += [f"{path}: {old.get(path)}, then {new[path]}" for path in new if old.get(path) != new[path]]
    if was.created_at != now.created_at:
        lines.append(f"gathered: {was.created_at[:16]}, then {now.created_at[:16]}")
    return lines
