"""Why is it missing? The path of one memory, the stage that lost it, and the changes that bring it back, ready to apply."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.query_status import K
from cems_workbench.pipeline import Evidence
from cems_workbench.ui import gathering, state
from cems_workbench.ui.labelled import labelled_set, offer_labelled
from cems_workbench.ui.look import Look
from cems_workbench.ui.memories_escape import plain
from cems_workbench.ui.tables import short_id
from cems_workbench.ui.tools import choosing, why_html
from cems_workbench.ui.tools.applying import apply, draw_applied
from cems_workbench.why import LabelledSet, Why, explain
from cems_workbench.why.report import NO_LIMIT_K
from cems_workbench.why.words import ordinal

TOOL = "why"
SHOWN = 8
KEPT = 8
"""Answers that are kept, so that going back and forth between memories asks nothing again."""


def draw(look: Look) -> None:
    """Choose a memory; then the cause, the path and the rescues."""
    st.html(why_html.STYLESHEET)
    k = _wanted(look)
    lost = choosing.missing(look, k)
    memory_id = choosing.chosen(look, TOOL)
    _judgments(look, lost, k)
    choosing.offer(look, TOOL, lost, memory_id)
    draw_applied()
    if not look.trace.evidence.memories:
        st.caption("No list returned a candidate for this query. Choose a memory, to see how far each list is from it.")
    if memory_id is None:
        return
    memory = look.resources.store.memory(memory_id)
    if memory is None:
        st.info(
            f"{plain(short_id(memory_id))} is not in the store any more. Choose another memory.",
            icon=":material/delete:",
        )
        return
    found = _answer(look, memory_id, k)
    if found is None:
        return
    st.html(why_html.cause_html(found, memory.content))
    _draw_path(found)
    _draw_rescues(look, found)


def _wanted(look: Look) -> int:
    """How far up the memory should be, beside the search box."""
    most = look.trace.config.assembly.limit or NO_LIMIT_K
    st.session_state.setdefault("why:k", min(K, most))
    first, second = st.columns([1, 3], vertical_alignment="bottom")
    with second:
        choosing.search_box(TOOL)
    choosing.offer_matches(look, TOOL)
    k: int | None = first.number_input(
        "Should be in the first", 1, 1000, key="why:k", persist_state="session",
        help="A memory counts as missing when it is not among so many results from the top. 1: it should be the first.",
    )  # fmt: skip
    return k or min(K, most)


def _judgments(look: Look, lost: list[str], k: int) -> None:
    """One line on what is missing of the judged memories, or why there is nothing to list."""
    relevant = sum(grade > 0 for grade in look.grades.values())
    where = "first result" if k == 1 else f"first {k} results"
    if not look.grades:
        st.caption("This query has no judgments. Search for the memory that should have come, or follow one above.")
    elif not relevant:
        st.caption(
            "No memory was judged relevant for this query: it has no answer in the store. Any memory can be searched for."
        )
    elif not lost:
        nearer = " Ask for fewer results to see why one is not higher." if k > 1 else ""
        st.caption(f"Every memory judged relevant is within the {where}.{nearer}")
    else:
        st.caption(
            f"{len(lost)} of {relevant} memories judged relevant are not within the {where}:",
            help="Human grades: 1 related, 2 helps, 3 answers it. ◆ is the memory that is followed.",
        )


def _answer(look: Look, memory_id: str, k: int) -> Why | None:
    """The explanation, kept while memory, request, config, evidence and labelled queries are the same; None after an error."""
    labelled = labelled_set(look)
    off = state.switched_off(look.request)
    evidence = look.trace.evidence
    key = (memory_id, k, look.request, look.trace.config, off)
    answers: dict[Any, tuple[Evidence, LabelledSet | None, Why]] = st.session_state.setdefault("why:answers", {})
    kept = answers.get(key)
    if kept is not None and kept[0] is evidence and kept[1] is labelled:
        return kept[2]
    place = st.empty()
    try:
        found = explain(
            memory_id, evidence, look.trace.config, k=k, request=replace(look.request, as_of=evidence.as_of),
            resources=look.resources, labelled=labelled, switched_off=off, progress=gathering.progress_in(place),
        )  # fmt: skip
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None
    finally:
        place.empty()
    answers.pop(key, None)
    answers[key] = (evidence, labelled, found)
    while len(answers) > KEPT:
        answers.pop(next(iter(answers)))
    return found


def _draw_path(found: Why) -> None:
    """The way through the stages, and where each list has the memory."""
    if found.path.steps:
        st.markdown("###### Through the stages")
        st.html(why_html.path_html(found.path))
    if found.path.places:
        st.markdown("###### In every list, were it as long as the store")
        st.html(why_html.places_html(found.path.places))


def _draw_rescues(look: Look, found: Why) -> None:
    """The changes that bring it in, each with a button; or what comes nearest."""
    if found.path.status == "in the top k":
        return
    rescues = found.rescues[:SHOWN]
    if not rescues and found.nearest is None:
        st.info("No single parameter, no pair of them and no other search brings it nearer.", icon=":material/block:")
        return
    st.markdown("###### What would bring it in" if rescues else "###### What comes nearest")
    st.html(why_html.rescue_head())
    stood = "not in the results" if found.path.rank is None else ordinal(found.path.rank)
    for i, rescue in enumerate(rescues or [found.nearest]):
        assert rescue is not None
        with st.container(horizontal=True, vertical_alignment="center", wrap=False, gap="small"):
            st.button(
                "Apply", key=f"why:apply:{i}", on_click=apply, args=(rescue, look.request, found.path.memory_id, stood), width=76,
                help="Sets the controls to this; one click takes it back.",
            )  # fmt: skip
            st.html(why_html.rescue_html(rescue))
    more = len(found.rescues) - len(rescues)
    st.caption(
        f"{f'{more} more in `why --json`. ' if more > 0 else ''}Ordered by what they disturb. {found.replays} replays.",
        help="First what costs no hit on the judged queries, where they were measured; then what moves the other results least; "
        "then the smallest change. Every change was replayed before it is shown.",
    )
    if labelled_set(look) is None and offer_labelled(look, "why:weigh") is not None:
        st.rerun()  # now that they are measured, the rescues stand in another order
