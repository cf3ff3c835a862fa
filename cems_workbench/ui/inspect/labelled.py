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
from cems_workbench.runs.evidence_memory import MemoryKey
from cems_workbench.ui.inspect.look import Look
from cems_workbench.ui.inspect.picker import evidence_memory, gathered, human_grades
from cems_workbench.ui.kit.escape import plain

LABELLED = "labelled"
"""Key of the session state."""
Grades = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class BuiltSet:
    """A labelled set, and what it was built from: the gather parameters, the queries and the judgments."""

    key: MemoryKey
    queries: list[Query]
    grades: Grades
    labelled: LabelledSet


def labelled_set(look: Look) -> LabelledSet | None:
    """The labelled queries under the gather parameters of now; None while their evidence has not been gathered."""
    queries, grades = _judged(look)
    config = look.trace.config
    built: BuiltSet | None = st.session_state.get(LABELLED)
    key = evidence_memory().key(config, look.resources)
    if built is not None and (built.key, built.queries, built.grades) == (key, queries, grades):
        return built.labelled
    there = queries and evidence_memory().has(queries, config, look.resources)
    return _build(look, queries, grades) if there else None


def offer_labelled(look: Look, key: str = "gather_labelled") -> LabelledSet | None:
    """The set, or a button that gathers it with progress; None while it is not there. An error is one line."""
    labelled = labelled_set(look)
    if labelled is not None:
        return labelled
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
        labelled = _build(look, queries, grades)
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None
    return labelled


def _build(look: Look, queries: list[Query], grades: Grades) -> LabelledSet:
    config = look.trace.config
    evidences = gathered(look.resources, queries, config)
    labelled = LabelledSet({query.qid: one for query, one in zip(queries, evidences, strict=True)}, grades)
    st.session_state[LABELLED] = BuiltSet(evidence_memory().key(config, look.resources), queries, grades, labelled)
    return labelled


def _judged(look: Look) -> tuple[list[Query], Grades]:
    grades = human_grades(look.resources)
    return [query for query in look.resources.store.queries.read() if query.qid in grades], grades
