"""What the Tune page remembers between runs: the search at work and its result, the scorers, and which view is opened next.

A scorer is kept for the session, and what it has scored stands in a file beside the evidence: a search that was stopped goes on where it
was, and one that is repeated costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.jobs.caching import RecentCache
from cems_workbench.jobs.tuning import ScoredQueries, SearchResult, TuningData, scored_queries
from cems_workbench.pipeline.resources import Resources
from cems_workbench.tuning.objective import Scored
from cems_workbench.ui.kit.state import PageState

if TYPE_CHECKING:
    from cems_workbench.jobs.background_search import BackgroundSearch

VIEW = "tune:view"
SCORERS_KEPT = 3
CURVES_KEPT = 64


def _scorers() -> RecentCache:
    return RecentCache(SCORERS_KEPT)


def _curves() -> RecentCache:
    return RecentCache(CURVES_KEPT)


@dataclass(frozen=True, eq=False)
class TuneState:
    """What the page remembers between runs, beside what its widgets are set to."""

    running: BackgroundSearch | None = None
    """The search that is at work."""
    problem: str = ""
    """Why the last search ended without a result, until it was shown."""
    result: SearchResult | None = None
    """The last search."""
    next_view: str | None = None
    """The view that the next run opens."""
    saved_id: int | None = None
    """The config of the history that was saved last."""
    scorers: RecentCache = field(default_factory=_scorers)
    learned: RecentCache = field(default_factory=_curves)
    """Importance, curves and maps of the last search."""


page = PageState("tune", TuneState)


def take_result(result: SearchResult) -> None:
    """Remember what a search found, and open it on the next run of the page."""
    page.update(result=result, learned=_curves(), next_view="Result")


def outdated(result: SearchResult, resources: Resources) -> str | None:
    """One line where the store is no longer what the search stood on; None where it is."""
    header, store = result.planned.data.evidence.header, resources.store
    if header.store_id != store.identity:
        return "This result is of another store than the one that is open."
    if header.content_version != store.content_version:
        return "The store has changed since this search: what it measured may no longer hold. Search again."
    return None


def set_view() -> None:
    """Open the view that was asked for; called before the views are drawn."""
    wanted = page.get().next_view
    if wanted is not None:
        st.session_state[VIEW] = wanted
        page.update(next_view=None)


def scorer_for(data: TuningData, measures: Sequence[Scored], seed: int) -> ScoredQueries:
    """The queries that every measure is defined for, and their scorer, kept for the session."""
    return scored_queries(data, measures, seed, page.get().scorers)
