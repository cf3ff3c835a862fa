"""What the Tune page searches on, and what it found: the ground (queries, evidence, grades), the search and its result.

The scorer of a ground is kept for the session, and what it has scored stands in a file beside the evidence: a search that was stopped
goes on where it was, and one that is repeated costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.evaluation import agreed, labelled_selection
from cems_workbench.runs.gathering import QuerySelection
from cems_workbench.ui.kit.run_cache import for_all_sessions

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
    selection: QuerySelection
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


def ground_for(
    baseline: PipelineConfig, selection: QuerySelection, kind: str | None, resources: Resources
) -> Ground | None:
    """The ground of a baseline; None while its evidence has to be gathered. Raises InputError for evidence that is damaged."""
    grades = agreed(resources.store.judgments.read(), kind)
    found = labelled_selection(baseline, selection, grades, resources, for_all_sessions)
    return None if found is None else Ground(baseline, selection, found.evidence, found.batch, found.grades_digest)


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
