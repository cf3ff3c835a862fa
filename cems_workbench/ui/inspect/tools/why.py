"""Why is it missing? The path of one memory, the stage that lost it, and counterfactual changes that bring it in.

A change applies to the whole page, config and request, and can be undone with one click.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.ranks import target_rank
from cems_workbench.analysis.why.counterfactual import Counterfactual, interval_text, moved_text, order_text
from cems_workbench.analysis.why.report import Why, explain
from cems_workbench.config import PipelineConfig, field_spec
from cems_workbench.config.fields import short_value
from cems_workbench.errors import counted
from cems_workbench.pipeline.explained import explained
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.report.investigation import investigation_report
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.controls import GROUPS
from cems_workbench.ui.inspect.fetch_evidence import gathered_set, labelled_set, offer_labelled
from cems_workbench.ui.inspect.retire import draw_retire
from cems_workbench.ui.inspect.tools import choose_memory
from cems_workbench.ui.kit.html import full_label, plain, render, write_stylesheet
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import remembered, report_button, show

MAX_CHANGES = 8
APPLIED = "inspect:why:applied"
COLUMNS = {
    "stage": "In pipeline order",
    "rank in": "Rank before the stage; –: none",
    "score": "Score after the stage; in a list its cosine, BM25, ts_rank, or weighted sum",
    "what happened": "Effect of the stage",
    "list": "Source and query variant",
    "whole store": "Its place if the list contained the whole store",
}


def draw(context: InspectContext) -> None:
    """Draw the choice of a memory, the cause, the path and the counterfactuals."""
    write_stylesheet("why")
    first, second = st.columns([1, 3], vertical_alignment="bottom")
    about = (
        "A memory is missing if it is not among this many top results; empty: the result limit. Rank flow and Against production use "
        "the same number."
    )
    k = str(target_rank(context.trace.config))
    first.number_input("Should be in the first", 1, 1000, None, placeholder=k, **remembered(state.TARGET, about))
    said, help = _judged_line(context)
    memory_id = choose_memory.draw(context, "why", box=second, said=said, help=help)
    _draw_applied()
    if not context.trace.evidence.memories:
        st.caption("No list returned a candidate for this query. Choose a memory to see its rank in each list.")
    memory = None if memory_id is None else choose_memory.stored(context, memory_id)
    if memory is None:
        return
    why, trace = explanation(context, memory.id, context.target), context.trace
    pair = None if trace.external else context.asked_pair()
    if asked := pair is not None and pair.newer == memory.id:
        said = f"{pair.question} If so, answer above the ranking before you change parameters."
        st.warning(plain(context.said(said)), icon=":material/swap_vert:")
    change = None if why.fix is None else why.fix.change
    lost = "" if change is None else context.cannot(change.values)
    st.html(cause_html(why, memory.content, context.said, None if asked else lost))
    if why.fix is not None:
        if lost and why.fix.above is not None:
            draw_retire(context.resources, "why", why.fix.above)
        _draw_changes(context, why)
    show((), (why.way, why.in_lists), about=COLUMNS, marked="lost here")
    report_button(
        "inspect:why:report",
        f"why-{memory.id}",
        lambda redact: investigation_report(why, trace, datetime.now(UTC), memory=memory, redact=redact),
        what="the cause, the path through the stages, the changes that bring it in and their side effects. ",
    )


def _judged_line(context: InspectContext) -> tuple[str, str | None]:
    """One line on missing judged memories, or why none is listed; and its tooltip."""
    lost, relevant, k = choose_memory.missing(context), len(context.relevant), context.target
    where = "first result" if k == 1 else f"first {k} results"
    if not context.grades:
        return "This query has no judgments. Search for the memory you expected, or follow one above.", None
    if not relevant:
        return "No memory was judged relevant for this query. You can search for any memory.", None
    if not lost:
        nearer = " Choose a smaller number to see why one is not higher." if k > 1 else ""
        return f"All memories judged relevant are within the {where}.{nearer}", None
    help = "Human grades: 1 related, 2 helps, 3 answers it. ◆ marks the followed memory."
    are = "is" if len(lost) == 1 else "are"
    return f"{len(lost)} of {counted(relevant, 'memories')} judged relevant {are} not within the {where}:", help


def explanation(context: InspectContext, memory_id: str, k: int) -> Why:
    """The explanation, with its progress drawn here; remembered by memory, request, config, evidence and labelled queries."""
    trace, alone = context.trace, explained(context.trace.evidence) is not None
    labelled = None if alone else labelled_set(context) or gathered_set(context)
    searching: Any = {"request": replace(context.request, as_of=trace.evidence.as_of), "resources": context.resources}
    return context.remembered(
        "why:answers",
        lambda progress: explain(
            memory_id,
            trace.evidence,
            trace.config,
            k=k,
            **({} if alone else searching),
            labelled=labelled,
            switched_off=context.variants_off,
            progress=progress,
        ),
        memory_id,
        k,
        context.request,
        labelled,
    )


def cause_html(why: Why, content: str, said: Callable[[str], str] = str, lost: str | None = "") -> Markup:
    """The memory, the fix with what the store's target cannot run of it (`lost`; None leaves out the fix), the cause of its rank, and
    whether a change would bring it in."""
    return render("inspect/why/cause.html", why=why, content=content, said=said, lost=lost)


def _draw_changes(context: InspectContext, why: Why) -> None:
    """Draw the changes that bring it in, each with a button; or the closest ones."""
    shown = why.counterfactuals[:MAX_CHANGES] or (() if why.nearest is None else (why.nearest,))
    if not shown:
        if why.path.status != "in the top k":
            nothing = "No single parameter, pair of parameters or other search brings it closer."
            st.info(nothing, icon=":material/block:")
        return
    fix = why.fix
    goal = f"put it above {plain(context.said(fix.above))}" if fix and fix.inside and fix.above else "bring it in"
    st.markdown(f"## Changes that {goal}, the fix first" if why.counterfactuals else "## Closest changes")
    st.html(render("inspect/why/head.html"))
    for i, one in enumerate(shown):
        with st.container(horizontal=True, vertical_alignment="center", wrap=False, gap="small"):
            act: Any = {"on_click": apply, "args": (one, context.request, why), "width": 76}
            st.button(full_label("Apply", what(one)), f"inspect:why:apply:{i}", "One click undoes it.", **act)
            st.html(counterfactual_html(one, context.cannot(one.values)))
    total, some = len(why.counterfactuals), "some parameters have several"
    rest = f"{len(shown)} of {total} changes are shown ({some}); `why --json` has all. " if total > len(shown) else ""
    help = "Each was verified by replay, with the reranker scores it needs. None leaves fewer than half of the results."
    st.caption(f"{rest}{order_text(why.counterfactuals)} {why.replays} replays.", help=help)
    if labelled_set(context) is None and offer_labelled(context, "inspect:why:weigh") is not None:
        st.rerun()  # measured changes are sorted differently


def counterfactual_html(counterfactual: Counterfactual, lost: str = "") -> Markup:
    """One counterfactual: the change, what the store's target cannot run of it (`lost`), the resulting rank, the side effects."""
    return render(
        "inspect/why/counterfactual.html",
        one=counterfactual,
        lost=lost,
        words=what(counterfactual),
        field_spec=field_spec,
        kept=moved_text(counterfactual.side_effects),
        interval=interval_text,
    )


def what(counterfactual: Counterfactual) -> str:
    """The change, labelled like the controls: "Fusion: Score blend 0.3 → 0.55"."""
    parts = []
    for change in counterfactual.changes:
        spec = field_spec(change.path)
        if not (counterfactual.terms and change.path == "expansion.backend"):
            section = GROUPS.get(spec.section, spec.section)
            parts.append(f"{section}: {spec.label} {short_value(change.was)} → {short_value(change.now)}")
    return " and ".join([*parts, *counterfactual.searches])


@dataclass(frozen=True)
class Applied:
    """An applied change, and the page's config and request before it."""

    words: str
    before: PipelineConfig
    after: PipelineConfig
    request: Request


def apply(counterfactual: Counterfactual, request: Request, why: Why) -> None:
    """Apply a change to the page; a value rejected by the config changes nothing and is shown at the controls."""
    before, asked = state.present_config(), state.written_request()
    state.apply(counterfactual.values)
    if state.present().config_error:
        return
    changed = counterfactual.request(request)
    state.write_request(
        replace(
            asked,
            variants=changed.variants if counterfactual.terms else asked.variants,
            only_project=asked.only_project and not counterfactual.everywhere,
            searched=counterfactual.searched or asked.searched,
        )
    )
    stood = "not in the results" if why.path.rank is None else ordinal(why.path.rank)
    now = "not placed" if counterfactual.rank is None else ordinal(counterfactual.rank)
    words = f"{what(counterfactual)}. {short_id(why.path.memory_id)}: {stood} → {now}"
    st.session_state[APPLIED] = Applied(words, before, state.present_config(), asked)


def _undo_applied() -> None:
    applied: Applied = st.session_state.pop(APPLIED)
    state.use_config(applied.before)
    state.write_request(applied.request)


def _draw_applied() -> None:
    """Draw the applied change with an undo button, until another parameter is changed."""
    applied: Applied | None = st.session_state.get(APPLIED)
    if applied is None or applied.after != state.present_config():
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f":material/check: **Applied** {plain(applied.words)}")
        undo: Any = {"icon": ":material/undo:", "on_click": _undo_applied}
        st.button("Undo this change", "inspect:why:back", "Restores all parameters from before this change.", **undo)


VIEW = View(
    state.WHY_TOOL, 10, draw, "Which stage lost a memory, and which smallest change brings it in?", external=True
)
