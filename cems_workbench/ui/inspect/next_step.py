"""What to do next: the line above the ranking with buttons that do it, and the bar of actions for the followed memory.

A result is chosen in the bar or in any table of memories. A grade is stored as the user's label, as on the Label page; a new query is
added to a query set with its first grade.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.analysis.known_mistakes import NextStep, next_step
from cems_workbench.analysis.proposed_edges import ProposedEdge
from cems_workbench.analysis.supersession import Staleness, first_result_stale
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.background import may_start_unasked
from cems_workbench.jobs.labelling import TYPED_SET, add_to_set, give_grade, own_grade
from cems_workbench.jobs.query_grades import stored_query
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.settings import Settings
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import PAIR, InspectContext
from cems_workbench.ui.inspect.retire import draw_retire
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.address import go
from cems_workbench.ui.kit.html import excerpt, plain, render
from cems_workbench.ui.kit.widgets import errors_shown, opened_popover
from cems_workbench.ui.memories.state import open_in_memories

WHY = {"superseded": "Why is {} not above it?", "dropped": "Why was {} dropped?", "low": "Why is {} not higher?"}
"""Label of the button that explains a memory's rank, by kind of step; `IS_MISSING` for the others."""
IS_MISSING = "Why is {} missing?"
BUTTON_CHARS = 22
VIEWS = {
    "stages": ("Rank flow", "See what each stage dropped", "filter_alt"),
    "lists": ("Lists", "See what each list returned", "list"),
    "abstain": ("Abstain", "See when nothing would be returned", "block"),
}
"""View, label and icon of the button, by place."""
MODES = {
    "follow": (
        "Follow the successor",
        "arrow_forward",
        "the memory that supersedes it takes its rank, also if no list found it",
    ),
    "demote": ("Demote it", "arrow_downward", "it moves right below the memory that supersedes it, if that is ranked"),
}
"""Label and icon of the button that sets a mode of `supersession`, and what that does."""
FLUSH_S = 0.15
"""Pause before the fix is looked for, so that the browser gets and paints what is drawn."""
LOOKING = "Looking for the smallest change that fixes it …"
AHEAD = "inspect:next:ahead"
"""Key of the request and config of the last search: the fix is looked for unasked under these."""
TARGET_OF = "inspect:next:target_of"
"""Key of the query for which a step set the target rank: another query begins without it."""
RIGHT = frozenset({"good", "answered", "unjudged"})
"""Kinds of step at which nothing is known to be wrong."""
STALE = frozenset({"superseded", "expired"})
"""Kinds of step about a first result that is not to be trusted."""


def draw_next_step(context: InspectContext, fetched: bool) -> Callable[[], None]:
    """Draw the next step, below it whether a later memory replaces an earlier one above it, and the fix. `fetched`: the query was searched
    in this run. Then the pair and the fix are looked for, by the returned function, which is called once everything else is drawn. The pair
    stays while settings change; the fix is looked for again only at a click, and not while a pair that explains the step is asked about."""
    (step, retired), place, below = _draw_step(context), st.empty(), st.empty()
    look_for_fix: Callable[[], None] = (
        (lambda: None) if retired else _fix_ahead(step, context, fetched, below)
    )  # the script is the fix
    if context.trace.external:
        return look_for_fix
    if changed := {path: now for path, _, now in state.changed_parameters()}:
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="inspect:changed"):
            if "supersession.mode" in _draw_cannot(context, changed) and not retired:
                draw_retire(context.resources, "changed", *context.trace.evidence.memories)
    later = fetched or st.session_state.get(PAIR, ())[:1] != (context.judged,)

    def look() -> None:
        found = None
        with errors_shown():
            if later:
                st.session_state.pop(PAIR, None)
                _ask(context.asked_pair(), context, place)
            found = context.asked_pair()
        if found is not None and step.memory_id == found.newer:
            below.empty()
        else:
            look_for_fix()

    if not later:
        _ask(context.asked_pair(), context, place)
    return look


def _ask(edge: ProposedEdge | None, context: InspectContext, place: DeltaGenerator) -> None:
    """Ask whether the later memory of a pair replaces the earlier one, with the reasons, or draw what accepting it allows."""
    if edge is None:
        return
    with place.container(horizontal=True, vertical_alignment="center", wrap=False, gap="small", key="inspect:pair"):
        st.markdown(f":material/swap_vert: {plain(context.said(edge.question))}", help=plain(edge.why), width="stretch")
        if (who := _reviewer("Answer", "inspect:next:pair:name", "question_answer")) is None:
            return
        for verdict, label, icon in (("accepted", "It does", "check"), ("rejected", "It does not", "close")):
            _button(f"pair:{verdict}", label, icon, None, _decide, edge, verdict, who, context)


def _decide(edge: ProposedEdge, verdict: Any, who: str, context: InspectContext) -> None:
    try:
        session.require("reviewer")
        decisions = context.resources.store.supersessions
        if (before := decisions.standing_of(edge.pair)) is not None:  # on another page, since this one was drawn
            st.session_state[PAIR] = (context.judged, None)
            st.toast(
                f"Not saved: {plain(before.author)} has {before.verdict} this pair. Label › Superseded changes it."
            )
            return
        decisions.decide(edge.newer, edge.older, verdict, who, edge.why)
    except WorkbenchError as error:
        st.session_state[PROBLEM] = str(error)
        return
    st.session_state[PAIR] = (context.judged, None)
    st.toast("Saved.")


def _draw_step(context: InspectContext) -> tuple[NextStep, str | None]:
    """Draw the sentence and its buttons; returns the step, and the stale memory if a button leads to the script that retires it."""
    if st.session_state.get(TARGET_OF, context.request.query) != context.request.query:
        del st.session_state[TARGET_OF]
        st.session_state.pop(state.TARGET, None)
    trace, external = context.trace, context.trace.external  # there is no fix for what was not run here
    target = st.session_state.get(state.TARGET)
    step = next_step(trace, context.grades, context.relevant_from, context.answerable, target)
    found = first_result_stale(trace, anywhere=True) if step.kind in STALE and not external else None
    retired = None
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="inspect:next"):
        said = render(
            "inspect/next_step.html",
            words=context.said(step.words),
            warning=step.kind not in RIGHT,
            stale=step.kind in STALE,
        )
        st.html(said, width="stretch")
        _draw_buttons(step, context)
        if found is not None:
            offered = [*_of_stale(found, trace)]
            for name, label, icon, help, change in offered:
                _button(name, label, icon, help, state.apply, change)
            _draw_cannot(context, *(change for *_, change in offered))
            retired = found.memory_id if draw_retire(context.resources, "stale", found.memory_id) else None
    return step, retired


def _draw_cannot(context: InspectContext, *changes: Mapping[str, Any]) -> str:
    """Draw, and return, what the store's target cannot run of changes."""
    if lost := context.cannot(*changes):
        st.caption(f":material/link_off: {plain(lost)}", width="content", help="It can be tried here only.")
    return lost


def _fix_ahead(step: NextStep, context: InspectContext, fetched: bool, place: DeltaGenerator) -> Callable[[], None]:
    """Draw a line for the fix of what the step names, which the returned function looks for."""
    trace = context.trace
    if trace.external or step.place != "why" or not Settings().gather_ahead or not may_start_unasked(trace.config):
        return lambda: None
    asked = (context.request, trace.config)
    if fetched:
        st.session_state[AHEAD] = asked
    if st.session_state.get(AHEAD) != asked:
        place.html(render("inspect/next_fix.html", words="", done=False))
        return lambda: None
    place.html(render("inspect/next_fix.html", words=LOOKING, done=False))
    return partial(_draw_fix, step, context, place)


def _draw_fix(step: NextStep, context: InspectContext, place: DeltaGenerator) -> None:
    """Look for the change that brings the memory in, and draw it with what it does to the judged queries."""
    # Tools are imported when the first of them is needed.
    from cems_workbench.ui.inspect.tools.why import apply, explanation

    assert step.memory_id is not None
    time.sleep(FLUSH_S)
    why = None
    with place, errors_shown():
        why = explanation(context, step.memory_id, step.k or context.target)
    fix = None if why is None else why.fix
    if fix is None:
        place.html(render("inspect/next_fix.html", words="", done=False))
        return
    with place.container(horizontal=True, vertical_alignment="center", gap="small", key="inspect:fix"):
        change, words = fix.change, fix.sentence
        # A change of the mode has its button beside the stale result, by whose label it is named.
        values = change.values if change is not None else {}
        of_mode = step.kind == "superseded" and len(values) == 1
        above = MODES.get(values.get("supersession.mode", "")) if of_mode else None
        if change is not None and above is not None:
            words = words.replace(change.assigned, f"“{above[0]}”, above, which sets {change.assigned}", 1)
        st.html(render("inspect/next_fix.html", words=context.said(words), done=True), width="stretch")
        if change is not None and above is None:
            _button("apply", "Apply", "check", "Alt+Z undoes it.", apply, change, context.request, why)
            _draw_cannot(context, values)


def _button(
    name: str, label: str, icon: str, help: str | None = None, act: Any = None, *args: Any, **more: Any
) -> bool:
    return st.button(
        label, key=f"inspect:next:{name}", icon=f":material/{icon}:", help=help, on_click=act, args=args, **more
    )


def _draw_buttons(step: NextStep, context: InspectContext) -> None:
    external = context.trace.external
    if step.place == "why" and step.memory_id is not None:
        label = plain(context.said(WHY.get(step.kind, IS_MISSING).format(step.memory_id), BUTTON_CHARS))
        how = "as it was recorded" if external else "and the smallest config change that moves it"
        help = f"Opens the tool under What happened, and why: every stage, {how}."
        _button("why", label, "help", help, _explain, step.memory_id, context.request.query, step.k, type="primary")
    elif step.place in VIEWS and not (external and step.place == "abstain"):
        view, label, icon = VIEWS[step.place]
        _button("view", label, icon, None, state.open_view, view, type="primary")
    elif step.place == "label":
        help = "Saves a label of yours, as on the Label page."
        # Another memory's popover has another label, so that it starts closed.
        label = f"Grade {plain(context.said(step.memory_id, BUTTON_CHARS))}" if step.memory_id else "Grade"
        box = opened_popover(label, "inspect:next:grade", ":material/grade:", help)
        if box is not None and step.memory_id is not None:
            with box:
                st.caption(plain(excerpt(context.trace.evidence.memories[step.memory_id].content)))
                if session.reviewer() is None:
                    session.ask()
                else:
                    _draw_grades(context, step.memory_id, "inspect:next:grade")
    elif step.place == "evaluate":
        help = "Opens Evaluate: where the judged queries lose relevant memories."
        if _button("evaluate", "All judged queries", "bar_chart", help):
            go("pages/evaluate.py")


def _explain(memory_id: str, query: str, k: int | None) -> None:
    state.explain(memory_id, query, k)
    if k is not None:
        st.session_state[TARGET_OF] = query


def _of_stale(found: Staleness, trace: Trace) -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    """What the config can do about the best result that is stale: (name, label, icon, help, change) of each."""
    for mode, (label, icon, what) in MODES.items() if found.successor is not None and not found.excluded else ():
        # What no list found has no rank to be moved below.
        if mode != trace.config.supersession.mode and (mode == "follow" or found.in_a_list):
            help = f"Sets Supersession to {mode}: {what}."
            yield mode, label, icon, help, {"supersession.mode": mode}
    if found.validity and trace.config.supersession.expired == "keep":
        help = "Sets Supersession to drop memories whose Valid until is not after the query’s date."
        drop = {"supersession.expired": "drop"}
        yield "expired", "Drop what is not valid then", "event_busy", help, drop


CHOSEN, SET, PROBLEM = "inspect:row", "inspect:add_to_set", "inspect:row_problem"


def draw_rows(context: InspectContext) -> None:
    """Draw the bar: results to choose by rank, and the actions for the followed one."""
    results = [result.memory_id for result in context.trace.results]
    if not results and context.followed is None:
        return
    with st.container(key="inspect:row_actions"):
        if problem := st.session_state.pop(PROBLEM, None):
            st.error(plain(problem))
        ranks = {memory_id: str(rank) for rank, memory_id in enumerate(results, 1)}
        st.session_state[CHOSEN] = context.followed if context.followed in ranks else None
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption("Result", width="content")
            st.pills(
                "Choose a result to follow, explain, grade or open",
                results,
                key=CHOSEN,
                format_func=ranks.__getitem__,
                label_visibility="collapsed",
                on_change=lambda: state.follow(st.session_state[CHOSEN]),
                width="content",
            )
            if (memory_id := context.followed) is None:
                return
            st.caption(plain(context.said(memory_id, BUTTON_CHARS)), width="content", help=plain(memory_id))
            why: Any = {"icon": ":material/help:", "on_click": state.explain, "args": (memory_id,)}
            st.button("Why is it here?", key="inspect:row_why", help="Opens the tool that explains its rank.", **why)
            _draw_grades(context, memory_id, "inspect:row_grade")
            if st.button("Open in Memories", key="inspect:row_open", icon=":material/open_in_new:"):
                open_in_memories(memory_id)


def _reviewer(label: str, key: str, icon: str) -> str | None:
    """The reviewer; None, with a button that asks for the name, while it is not known."""
    who = session.reviewer()
    if who is None:
        help = "Asks for your name once; Label uses the same."
        if (box := opened_popover(label, key, f":material/{icon}:", help)) is not None:
            with box:
                session.ask()
    return who


def _draw_grades(context: InspectContext, memory_id: str, key: str) -> None:
    """Draw the grades of the query's scale, with this reviewer's marked; or a box for the reviewer's name."""
    store = context.resources.store
    if (who := _reviewer("Grade", f"{key}:name", "grade")) is None:
        return
    query = stored_query(context.request, store)
    scale = store.query_sets.scale_of("" if query is None else query.qid)
    own = None if query is None else own_grade(store, query.qid, memory_id, who)
    new = f" The query is not stored yet: its first grade adds it to the set “{TYPED_SET}”." if query is None else ""
    for grade, meaning in scale.grades:
        st.button(
            f"Grade {grade}",
            key=f"{key}:{grade}",
            type="primary" if grade == own else "secondary",
            on_click=_grade,
            args=(context.request, memory_id, grade, who, context.resources),
            help=plain(f"{meaning}. Saved as a label of {who}, as on the Label page.{new}"),
        )


def _grade(request: Request, memory_id: str, grade: int, who: str, resources: Resources) -> None:
    try:
        session.require("reviewer")
        query = stored_query(request, resources.store) or add_to_set(request, TYPED_SET, resources.store)
        give_grade(resources.store, query.qid, memory_id, grade, who)
    except WorkbenchError as error:
        st.session_state[PROBLEM] = str(error)
        return
    st.toast(f"Graded {grade}.", icon=":material/check:")


def draw_add_to_set(request: Request, resources: Resources) -> None:
    """Draw a popover that adds the query to an existing or new query set."""
    about = "Saves this query, with its project and date, in a query set, to be labelled and measured."
    key, icon = "inspect:add_to_set_popover", ":material/playlist_add:"
    box = opened_popover("Add to a set", key, icon, about, type="tertiary")
    if box is None:
        return
    with box:
        sets, query = resources.store.query_sets, stored_query(request, resources.store)
        if held := [] if query is None else sets.holding(query.qid):
            st.caption(plain(f"Already in: {', '.join(held)}."))
        choice: Any = {"accept_new_options": True, "placeholder": "choose one, or type a new name"}
        name = st.selectbox("Query set", [each.name for each in sets.latest()], index=None, key=SET, **choice)
        if st.button("Add this query", key="inspect:add_to_set_button", disabled=not name) and name:
            with errors_shown():
                session.require("reviewer")
                add_to_set(request, name.strip(), resources.store)
                st.success(plain(f"Added to {name.strip()}."))
