"""Wins and losses: the change from baseline to proposal on each open query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.tuning.scorer import Score
from cems_workbench.tuning.tune import Tuned

SCORE_TOLERANCE = 1e-9
"""Smaller differences are rounding errors."""


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One query under the baseline and under the proposal."""

    qid: str
    query: str
    project: str | None
    type: str | None
    baseline: float
    proposal: float

    @property
    def difference(self) -> float:
        """Proposal - baseline."""
        return self.proposal - self.baseline

    @property
    def outcome(self) -> str:
        """`won`, `lost` or `same`."""
        return "same" if abs(self.difference) <= SCORE_TOLERANCE else "won" if self.difference > 0 else "lost"


@dataclass(frozen=True, slots=True)
class Tally:
    """Number of queries won, lost and unchanged, and the mean difference over all of them."""

    won: int
    lost: int
    same: int
    difference: float


def wins_and_losses(tuned: Tuned, score: Score, batch: LabelledBatch, objective: int = 0) -> list[QueryChange]:
    """Every open query, the greatest gain first, ties by qid. `batch` holds the queries that `score` scores."""
    rows = tuned.plan.split.open
    base, best = (score(trial.config, rows)[:, objective] for trial in (tuned.search.baseline, tuned.proposal))
    changes = []
    for row, before, after in zip(rows.tolist(), base.tolist(), best.tolist(), strict=True):
        query = batch.queries[row]
        changes.append(QueryChange(query.qid, query.query, query.project, query.type, before, after))
    return sorted(changes, key=lambda change: (-change.difference, change.qid))


def tally(changes: Sequence[QueryChange]) -> Tally:
    """Count the changes; without any the mean difference is 0."""
    outcomes = [change.outcome for change in changes]
    mean = sum(change.difference for change in changes) / len(changes) if changes else 0.0
    return Tally(outcomes.count("won"), outcomes.count("lost"), outcomes.count("same"), mean)


def tally_by_type(changes: Sequence[QueryChange]) -> dict[str | None, Tally]:
    """The tally of each type of query, by name; queries without a type are last, under None."""
    kinds = sorted({change.type for change in changes}, key=lambda kind: (kind is None, kind or ""))
    return {kind: tally([change for change in changes if change.type == kind]) for kind in kinds}
