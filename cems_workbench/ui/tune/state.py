"""State of the Tune page: the running search and its result, scorers, and the view to open next.

A scorer is cached for the session, and its scores in a file next to the evidence: a stopped search can be resumed, and a repeated one
is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.jobs.factory import RecentCache
from cems_workbench.jobs.tuning import SearchResult, TuningData, scored_queries
from cems_workbench.pipeline.resources import Resources
from cems_workbench.tuning.objective import Scored
from cems_workbench.tuning.scorer import BatchScorer
from cems_workbench.ui.kit.session import PageState

if TYPE_CHECKING:
    from cems_workbench.jobs.background import BackgroundSearch

VIEW = "tune:view"
MAX_SCORERS = 3
MAX_CURVES = 64


_scorers, _curves = partial(RecentCache, MAX_SCORERS), partial(RecentCache, MAX_CURVES)


@dataclass(frozen=True, eq=False)
class TuneState:
    """What the page remembers between reruns, besides widget values."""

    running: BackgroundSearch | None = None
    """The running search."""
    problem: str = ""
    """Why the last search ended without a result; cleared once shown."""
    result: SearchResult | None = None
    """The result of the last search."""
    next_view: str | None = None
    """The view that the next rerun opens."""
    saved_id: int | None = None
    """The config saved to the history last."""
    scorers: RecentCache = field(default_factory=_scorers)
    learned: RecentCache = field(default_factory=_curves)
    """Cached importance, curves and maps of the last search."""


page = PageState("tune", TuneState)


def store_result(result: SearchResult) -> None:
    """Store a search's result, and open it on the next rerun of the page."""
    page.update(result=result, learned=_curves(), next_view="Result")


def outdated(result: SearchResult, resources: Resources) -> str | None:
    """One line if the store has changed since the search; else None."""
    header, store = result.planned.data.evidence.header, resources.store
    if header.store_id != store.identity:
        return "This result belongs to another store than the open one."
    if header.content_version != store.content_version:
        return "The store has changed since this search, so its results may no longer hold. Search again."
    return None


def set_view() -> None:
    """Open the requested view; called before the views are drawn."""
    wanted = page.get().next_view
    if wanted is not None:
        st.session_state[VIEW] = wanted
        page.update(next_view=None)


def scorer_for(data: TuningData, measures: Sequence[Scored], seed: int) -> BatchScorer:
    """The scorer of the queries for which every measure is defined, cached for the session."""
    return scored_queries(data, measures, seed, page.get().scorers)
