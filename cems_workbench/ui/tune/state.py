"""State of the Tune page: the searches of the store, running or over, scorers, and the view to open next.

A search belongs to the store, and to the target, query set and baseline that it was started with: a reload, another tab and another person
see the one that runs, with its progress and Stop, or the result of the search of what they have chosen. A scorer is
cached for the session, and its scores in a file next to the evidence: a stopped search can be resumed, and a repeated one is free.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.jobs.factory import RecentCache
from cems_workbench.jobs.tuning import PlannedSearch, SearchResult, TuningData, scored_queries
from cems_workbench.pipeline.resources import Resources
from cems_workbench.tuning.objective import Scored
from cems_workbench.tuning.scorer import BatchScorer
from cems_workbench.ui.kit.session import PageState, Value, kept, resources

if TYPE_CHECKING:
    from cems_workbench.jobs.background import BackgroundSearch

VIEW = "tune:view"
MAX_SCORERS = 3
MAX_SEARCHES = 12
"""The searches of a store whose results are kept."""
MAX_CURVES = 64


@dataclass(frozen=True, eq=False)
class TuneState:
    """What the page remembers between reruns, besides widget values."""

    watched: BackgroundSearch | None = None
    """The search that this session saw running: its result is opened once it is over."""
    problem: str = ""
    """Why the last search ended without a result; cleared once shown."""
    next_view: str | None = None
    """The view that the next rerun opens."""
    saved_id: int | None = None
    """The config saved to the history last."""
    scorers: RecentCache = field(default_factory=partial(RecentCache, MAX_SCORERS))


page = PageState("tune", TuneState)


Chosen = tuple[str | None, str | None, str | None]
"""What a search is of: target, query set and baseline as chosen on the page; None where nothing is."""


@st.cache_resource(show_spinner=False)
def searches() -> dict[str, dict[Chosen, BackgroundSearch]]:
    """The searches of each store by its id, the latest last, shared by all sessions."""
    return {}


def chosen() -> Chosen:
    """What the session has chosen."""
    where, query_set, baseline = (st.session_state.get(f"tune:{key}") for key in ("where", "set", "baseline"))
    return where, query_set, baseline


def _of_store() -> list[tuple[Chosen, BackgroundSearch]]:
    return list(searches().setdefault(resources().store.identity, {}).items())


def running_search() -> BackgroundSearch | None:
    """The search that runs on the open store."""
    return next((search for _, search in _of_store() if not search.over), None)


def last_search() -> BackgroundSearch | None:
    """The last search of what is chosen, running or over; of what is not chosen yet, any."""
    fits = [
        search
        for of, search in _of_store()
        if all(wanted in (None, had) for wanted, had in zip(chosen(), of, strict=True))
    ]
    return fits[-1] if fits else None


def start(planned: PlannedSearch) -> None:
    """Start a search, or resume an identical one, unless one is running."""
    from cems_workbench.jobs.background import BackgroundSearch

    if running_search() is None:
        before = last_result()  # stays until it has its own
        of_store = searches()[resources().store.identity]
        of_store.pop(chosen(), None)
        of_store[chosen()] = BackgroundSearch(planned, before).start()
        for old in list(of_store)[:-MAX_SEARCHES]:
            del of_store[old]


def last_result() -> SearchResult | None:
    """The result of the last search of what is chosen; None without one."""
    return None if (last := last_search()) is None else last.result


def replace_result(result: SearchResult) -> None:
    """Replace the result of the last search of what is chosen by one that knows more."""
    if (last := last_search()) is not None:
        last.result = result


def learned(key: Hashable, make: Callable[[], Value]) -> Value:
    """A value computed from the last result, cached for the session."""
    result = last_result()
    cache = kept("tune:learned", result and result.planned, partial(RecentCache, MAX_CURVES))
    return cache(key, make)


def outdated(result: SearchResult, opened: Resources) -> str | None:
    """One line if the store has changed since the search; else None."""
    header, store = result.planned.data.evidence.header, opened.store
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
