"""What the Tune page searches on, and what it found: the ground (queries, evidence, grades), the search and its result.

The scorer of a ground is kept for the session, and what it has scored stands in a file beside the evidence: a search that was stopped
goes on where it was, and one that is repeated costs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.evaluation.grades import Grades, agreed_grades
from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.gathering import Wanted, path_for, read_for

if TYPE_CHECKING:
    from cems_workbench.tuning.folds import GroupBy
    from cems_workbench.tuning.objective import Scored
    from cems_workbench.tuning.scorer import BatchScorer
    from cems_workbench.tuning.stability import Region
    from cems_workbench.tuning.tune import Plan, Tuned

VIEW, NEXT_VIEW, FOUND, SCORERS = "tn:view", "tn:next_view", "tn:found", "tn:scorers"
VIEWS = ("Set up", "Result", "What it learned", "By query", "Take it away", "History")
SCORERS_KEPT = 3


@dataclass(frozen=True, eq=False)
class Ground:
    """What a search stands on: a baseline, and judged queries with the evidence that was gathered for it."""

    baseline: PipelineConfig
    wanted: Wanted
    evidence: EvidenceSet
    batch: LabelledBatch
    """Every judged query that was gathered; some may have nothing relevant."""
    mark: str
    """A digest of the grades."""


@dataclass(frozen=True, eq=False)
class Order:
    """A search as it was ordered: the plan, what scores it, and where that is kept."""

    ground: Ground
    plan: Plan
    batch: LabelledBatch
    """The queries that are scored, in the rows of the plan."""
    score: BatchScorer
    group_by: GroupBy

    @property
    def scores_path(self) -> Path:
        """Where the scores of this evidence are kept."""
        return self.ground.evidence.path.with_suffix(".scores.npz")

    @property
    def belongs_to(self) -> list[str]:
        """What the kept scores are of; those of anything else are not used."""
        from cems_workbench.tuning.scorer import search_marks

        return search_marks(self.ground.evidence.content_hash, self.batch, self.plan.goal.measures, self.plan.seed)

    @property
    def sealed(self) -> list[str]:
        """The ids of the queries of the hold-out."""
        return [self.batch.qids[row] for row in self.plan.split.holdout.tolist()]


@dataclass(frozen=True, eq=False)
class Found:
    """A finished or stopped search."""

    order: Order
    tuned: Tuned
    regions: Sequence[Region] = field(default_factory=tuple)
    """The stability region of every searched parameter; empty when the search was stopped before."""
    needs: Sequence[str] = field(default_factory=tuple)
    """What the proposal asks for that the evidence does not hold, in words."""

    @property
    def better(self) -> bool:
        """Is something else than the baseline proposed?"""
        return self.tuned.proposal is not self.tuned.found.baseline


def found() -> Found | None:
    """The last search of this session."""
    value: Found | None = st.session_state.get(FOUND)
    return value


def outdated(found: Found, resources: Resources) -> str | None:
    """One line where the store is no longer what the search stood on; None where it is."""
    header, store = found.order.ground.evidence.header, resources.store
    if header.store_id != store.identity:
        return "This result is of another store than the one that is open."
    if header.content_version != store.content_version:
        return "The store has changed since this search: what it measured may no longer hold. Search again."
    return None


def show(view: str) -> None:
    """Open a view on the next run of the page."""
    st.session_state[NEXT_VIEW] = view


def take_turn() -> None:
    """Open the view that was asked for; called before the views are drawn."""
    present = st.session_state.get(VIEW) or VIEWS[0]
    st.session_state[VIEW] = st.session_state.pop(NEXT_VIEW, present)


def grades_of(resources: Resources, kind: str | None) -> tuple[Grades, str]:
    """The agreed grades of one kind of judge (None: people, else models), with their digest."""
    judgments = [one for one in resources.store.judgments() if kind in (None, one.kind)]
    grades = agreed_grades(judgments, kind)
    rows = sorted((qid, sorted(given.items())) for qid, given in grades.items())
    return grades, hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def ground_for(baseline: PipelineConfig, wanted: Wanted, kind: str | None, resources: Resources) -> Ground | None:
    """The ground of a baseline; None while its evidence has to be gathered. Raises InputError for evidence that is damaged."""
    path = path_for(baseline, wanted, resources)
    if not path.is_file():
        return None
    evidence = _read(path, path.stat().st_mtime_ns, baseline, wanted, resources)
    if evidence is None:
        _read.clear()  # a gather that was broken off is read again when it is complete
        return None
    grades, mark = grades_of(resources, kind)
    return Ground(baseline, wanted, evidence, _batch(evidence.content_hash, mark, evidence, wanted, grades), mark)


@st.cache_resource(show_spinner=False, max_entries=4)
def _read(
    path: Path, changed_ns: int, _config: PipelineConfig, _wanted: Wanted, _resources: Resources
) -> EvidenceSet | None:
    return read_for(_config, _wanted, _resources)


@st.cache_resource(show_spinner=False, max_entries=4)
def _batch(content_hash: str, mark: str, _evidence: EvidenceSet, _wanted: Wanted, _grades: Grades) -> LabelledBatch:
    return LabelledBatch(_wanted.queries, _evidence.evidences, _grades)


def scorer_for(ground: Ground, measures: Sequence[Scored], seed: int) -> tuple[LabelledBatch, BatchScorer]:
    """The queries that every measure is defined for, and their scorer, kept for the session."""
    from cems_workbench.tuning.scorer import BatchScorer, answerable

    kept: dict[object, tuple[LabelledBatch, BatchScorer]] = st.session_state.setdefault(SCORERS, {})
    key = (ground.evidence.content_hash, ground.mark, tuple(measures), seed)
    if key not in kept:
        while len(kept) >= SCORERS_KEPT:
            kept.pop(next(iter(kept)))
        batch = answerable(ground.batch, measures)
        kept[key] = (batch, BatchScorer(batch, measures, seed))
    return kept[key]
