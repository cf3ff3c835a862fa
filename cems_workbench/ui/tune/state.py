"""What the Tune page keeps in the session: the view, the search at work and its result, and the scorers.

A scorer is kept for the session, and what it has scored stands in a file beside the evidence: a search that was stopped goes on where it
was, and one that is repeated costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.caching import RecentCache
from cems_workbench.runs.tuning import ScoredQueries, SearchResult, TuningData, scored_queries
from cems_workbench.tuning.objective import Scored

VIEW, NEXT_VIEW, RESULT, SCORERS = "tn:view", "tn:next_view", "tn:result", "tn:scorers"
VIEWS = ("Set up", "Result", "What it learned", "By query", "Take it away", "History")
SCORERS_KEPT = 3


def search_result() -> SearchResult | None:
    """The last search of this session."""
    value: SearchResult | None = st.session_state.get(RESULT)
    return value


def outdated(result: SearchResult, resources: Resources) -> str | None:
    """One line where the store is no longer what the search stood on; None where it is."""
    header, store = result.planned.data.evidence.header, resources.store
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


def scorer_for(data: TuningData, measures: Sequence[Scored], seed: int) -> ScoredQueries:
    """The queries that every measure is defined for, and their scorer, kept for the session."""
    if SCORERS not in st.session_state:
        st.session_state[SCORERS] = RecentCache(SCORERS_KEPT)
    return scored_queries(data, measures, seed, st.session_state[SCORERS])
