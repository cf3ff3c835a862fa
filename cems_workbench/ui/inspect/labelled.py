"""The labelled query set of a tool: gathered on request, once per gather parameters and content, and kept in the session.

The evidence is that of the query picker, so that neither gathers what the other has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from cems_workbench.analysis.why import LabelledSet
from cems_workbench.errors import WorkbenchError
from cems_workbench.records import Query
from cems_workbench.ui.inspect.look import Look
from cems_workbench.ui.inspect.picker import Key, evidence_key, evidence_of, human_grades, is_gathered
from cems_workbench.ui.kit.escape import plain

KEPT = "labelled"
"""Key of the session state."""
Grades = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Kept:
    """A built set, and what it was built from: the store, the gather parameters and the judgments."""

    key: Key
    grades: Grades
    built: LabelledSet


def labelled_set(look: Look) -> LabelledSet | None:
    """The labelled queries under the gather parameters of now; None while their evidence has not been gathered."""
    queries, grades = _judged(look)
    config = look.trace.config
    kept: Kept | None = st.session_state.get(KEPT)
    if kept is not None and kept.key == evidence_key(look.resources, queries, config) and kept.grades == grades:
        return kept.built
    return _build(look, queries, grades) if queries and is_gathered(look.resources, queries, config) else None


def offer_labelled(look: Look, key: str = "gather_labelled") -> LabelledSet | None:
    """The set, or a button that gathers it with progress; None while it is not there. An error is one line."""
    built = labelled_set(look)
    if built is not None:
        return built
    queries, grades = _judged(look)
    if not queries:
        st.caption("No query of this store is judged. With judgments, this shows what a change does to all of them.")
        return None
    place = st.empty()
    pressed = place.button(
        f"Measure on {len(queries)} judged queries", key=key, icon=":material/checklist:",
        help="Searches each judged query once, which takes a while; after that every change is replayed on all of them at once. "
        "Any other control stops it, and what was searched is kept.",
    )  # fmt: skip
    if not pressed:
        return None
    place.empty()
    try:
        built = _build(look, queries, grades)
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None
    return built


def _build(look: Look, queries: list[Query], grades: Grades) -> LabelledSet:
    evidences = evidence_of(look.resources, queries, look.trace.config)
    named = {query.qid: evidence for query, evidence in zip(queries, evidences, strict=True)}
    built = LabelledSet(named, grades)
    st.session_state[KEPT] = Kept(evidence_key(look.resources, queries, look.trace.config), grades, built)
    return built


def _judged(look: Look) -> tuple[list[Query], Grades]:
    grades = human_grades(look.resources)
    return [query for query in look.resources.store.queries() if query.qid in grades], grades
