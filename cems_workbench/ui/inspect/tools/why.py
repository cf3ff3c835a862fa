"""Why is it missing? The path of one memory, the stage that lost it, and counterfactual changes that bring it in.

A change applies to the whole page, config and request, and can be undone with one click.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.ranks import target_rank
from cems_workbench.analysis.why import Change, Counterfactual, LabelledSet, ListEntry, MemoryPath, Why, explain
from cems_workbench.analysis.why.counterfactual import interval_text, moved_text, order_text
from cems_workbench.config import PipelineConfig, field_spec
from cems_workbench.config.fields import short_value
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.list_sources import list_label, ordinal
from cems_workbench.report.investigation import investigation_report
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext, View, about
from cems_workbench.ui.inspect.controls import GROUPS
from cems_workbench.ui.inspect.fetch_evidence import gathered_set, labelled_set, offer_labelled
from cems_workbench.ui.inspect.tools import choose_memory
from cems_workbench.ui.kit.html import fixed, full_label, plain, render, write_stylesheet
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.widgets import report_button, working

TOOL = "why"
MAX_CHANGES = 8
MAX_NAMED = 12
"""Maximum queries named in a tooltip that gain or lose a hit."""
MAX_CACHED = 8
"""Maximum explanations cached, so that switching between memories needs no new computation."""
APPLIED = "inspect:why:applied"


def draw(context: InspectContext) -> None:
    """Draw the choice of a memory, the cause, the path and the counterfactuals."""
    write_stylesheet("why")
    _draw_target(context)
    k = context.target
    lost = choose_memory.missing(context, k)
    memory_id = choose_memory.chosen(context, TOOL)
    _judgments(context, lost, k)
    choose_memory.offer(context, TOOL, lost, memory_id)
    draw_applied()
    if not context.trace.evidence.memories:
        st.caption("No list returned a candidate for this query. Choose a memory to see its rank in each list.")
    if memory_id is None:
        return
    memory = context.resources.store.memories.get(memory_id)
    if memory is None:
        st.info(
            f"{plain(short_id(memory_id))} is no longer in the store. Choose another memory.",
            icon=":material/delete:",
        )
        return
    labelled = labelled_set(context)
    why = explanation(context, memory_id, k, labelled)
    if why is None:
        return
    st.html(cause_html(why, memory.content))
    trace = context.trace
    report_button(
        "inspect:why:report",
        f"why-{memory_id}",
        lambda redact: investigation_report(why, trace, datetime.now(UTC), memory=memory, redact=redact),
        what="the cause, the path through the stages, the changes that bring it in and their side effects. ",
    )
    _draw_path(why.path)
    _draw_counterfactuals(context, why, labelled)


def _draw_target(context: InspectContext) -> None:
    """Draw the box for the target rank; empty: the result limit."""
    first, second = st.columns([1, 3], vertical_alignment="bottom")
    with second:
        choose_memory.search_box(TOOL)
    choose_memory.offer_matches(context, TOOL)
    first.number_input(
        "Should be in the first",
        1,
        1000,
        None,
        key=state.TARGET,
        persist_state="session",
        placeholder=f"{target_rank(context.trace.config)} (result limit)",
        help="A memory is missing if it is not among this many top results; Rank flow and Against production "
        "use the same number. Empty: the result limit.",
    )


def _judgments(context: InspectContext, lost: list[str], k: int) -> None:
    """Draw one line on missing judged memories, or why none is listed."""
    relevant = len(context.relevant)
    where = "first result" if k == 1 else f"first {k} results"
    if not context.grades:
        st.caption("This query has no judgments. Search for the memory you expected, or follow one above.")
    elif not relevant:
        st.caption("No memory was judged relevant for this query. You can search for any memory.")
    elif not lost:
        nearer = " Choose a smaller number to see why one is not higher." if k > 1 else ""
        st.caption(f"All memories judged relevant are within the {where}.{nearer}")
    else:
        st.caption(
            f"{len(lost)} of {relevant} memories judged relevant are not within the {where}:",
            help="Human grades: 1 related, 2 helps, 3 answers it. ◆ marks the followed memory.",
        )


def explanation(context: InspectContext, memory_id: str, k: int, labelled: LabelledSet | None) -> Why | None:
    """The explanation, cached by memory, request, config, evidence and labelled queries; None after an error. Draws its progress here."""
    trace = context.trace
    labelled = labelled or gathered_set(context)
    with working() as progress:

        def make() -> Why:
            return explain(
                memory_id,
                trace.evidence,
                trace.config,
                k=k,
                request=replace(context.request, as_of=trace.evidence.as_of),
                resources=context.resources,
                labelled=labelled,
                switched_off=context.variants_off,
                progress=progress,
            )

        return context.remembered("why:answers", make, memory_id, k, context.request, labelled, most=MAX_CACHED)
    return None


def _draw_path(path: MemoryPath) -> None:
    """Draw the path through the stages, and the memory's rank in each list."""
    if path.steps:
        st.markdown("## Through the stages")
        st.html(path_html(path))
    if path.places:
        st.markdown("## Rank in each list, over the whole store")
        st.html(list_ranks_html(path.places))


def _draw_counterfactuals(context: InspectContext, why: Why, labelled: LabelledSet | None) -> None:
    """Draw the changes that bring it in, each with a button; or the closest ones."""
    if why.fix is None:
        return
    counterfactuals = why.counterfactuals[:MAX_CHANGES]
    if not counterfactuals and why.nearest is None:
        if why.path.status != "in the top k":
            st.info(
                "No single parameter, pair of parameters or other search brings it closer.", icon=":material/block:"
            )
        return
    goal = f"put it above {plain(short_id(why.fix.above))}" if why.fix.inside and why.fix.above else "bring it in"
    st.markdown(f"## Changes that {goal}, the fix first" if counterfactuals else "## Closest changes")
    st.html(render("inspect/why/head.html"))
    stood = "not in the results" if why.path.rank is None else ordinal(why.path.rank)
    nearest = [] if why.nearest is None else [why.nearest]
    for i, counterfactual in enumerate(counterfactuals or nearest):
        with st.container(horizontal=True, vertical_alignment="center", wrap=False, gap="small"):
            st.button(
                full_label("Apply", what(counterfactual)),
                key=f"inspect:why:apply:{i}",
                on_click=apply,
                width=76,
                args=(counterfactual, context.request, why.path.memory_id, stood),
                help="Applies this change; undo it with one click.",
            )
            st.html(counterfactual_html(counterfactual))
    more = len(why.counterfactuals) - len(counterfactuals)
    st.caption(
        f"{f'{more} more in `why --json`. ' if more > 0 else ''}{order_text(why.counterfactuals)} {why.replays} replays.",
        help="Every change was verified by replay, with the reranker scores it needs. Changes that leave fewer than half of the "
        "results are excluded.",
    )
    if labelled is None and offer_labelled(context, "inspect:why:weigh") is not None:
        st.rerun()  # measured changes are sorted differently


@dataclass(frozen=True)
class Applied:
    """An applied change, and the page's config and request before it."""

    words: str
    before: PipelineConfig
    after: PipelineConfig
    request: Request


def apply(counterfactual: Counterfactual, request: Request, memory_id: str, stood: str) -> None:
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
    now = "not placed" if counterfactual.rank is None else ordinal(counterfactual.rank)
    words = f"{what(counterfactual)}. {short_id(memory_id)}: {stood} → {now}"
    st.session_state[APPLIED] = Applied(words, before, state.present_config(), asked)


def undo_applied() -> None:
    """Restore the page from before the last applied change."""
    applied: Applied = st.session_state.pop(APPLIED)
    state.use_config(applied.before)
    state.write_request(applied.request)


def draw_applied() -> None:
    """Draw the applied change with an undo button, until another parameter is changed."""
    applied: Applied | None = st.session_state.get(APPLIED)
    if applied is None or applied.after != state.present_config():
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f":material/check: **Applied** {plain(applied.words)}")
        st.button(
            "Undo this change",
            key="inspect:why:back",
            icon=":material/undo:",
            on_click=undo_applied,
            help="Restores all parameters from before this change.",
        )


def cause_html(why: Why, content: str) -> Markup:
    """The memory, the cause of its rank, and whether a change would bring it in."""
    return render("inspect/why/cause.html", why=why, content=content)


def path_html(path: MemoryPath) -> Markup:
    """The memory's path through the stages; the stage that lost it is marked by a cross, a word and a tint."""
    return render("inspect/why/path.html", path=path, about=about)


def list_ranks_html(places: Sequence[ListEntry]) -> Markup:
    """The memory's rank in each list when the whole store is searched."""
    return render("inspect/why/places.html", places=places, about=about, list_label=list_label)


def counterfactual_html(counterfactual: Counterfactual) -> Markup:
    """One counterfactual: the change, the resulting rank, the side effects."""
    effect = counterfactual.labelled
    return render(
        "inspect/why/counterfactual.html",
        counterfactual=counterfactual,
        words=what(counterfactual),
        explained=_explained(counterfactual),
        notes=_notes(counterfactual),
        judged=_judged_text(counterfactual),
        kept=moved_text(counterfactual.side_effects),
        gain=fixed(None if effect is None else effect.gain, "+.3f").replace("-", "−"),
        interval="" if effect is None else interval_text(effect),
    )


def what(counterfactual: Counterfactual) -> str:
    """The change, labelled like the controls: "Fusion: Score blend 0.3 → 0.55"."""
    parts = [
        _change(change)
        for change in counterfactual.changes
        if not (counterfactual.terms and change.path == "expansion.backend")
    ]
    parts += [f"search for “{term}” too" for term in counterfactual.terms]
    parts += [f"search its last sentence alone, “{counterfactual.searched}”"] if counterfactual.searched else []
    parts += ["search all projects"] if counterfactual.everywhere else []
    return " and ".join(parts)


def _change(change: Change) -> str:
    spec = field_spec(change.path)
    return (
        f"{GROUPS.get(spec.section, spec.section)}: {spec.label} {short_value(change.was)} → {short_value(change.now)}"
    )


def _notes(counterfactual: Counterfactual) -> list[str]:
    notes = []
    for change in counterfactual.changes:
        point = change.breakpoint
        if point is not None and point.succeeds != change.now:
            side = "from" if point.succeeds > point.fails else "up to"
            notes.append(f"{side} {point.succeeds:.6g}{' (solved)' if change.solved else ''}")
    notes += ["needs a new search"] if counterfactual.gathers else []
    notes += [f"{counterfactual.needs} reranker scores are still missing"] if counterfactual.needs else []
    if counterfactual.labelled is not None and counterfactual.labelled.unscored:
        notes.append(f"reranker scores are missing in {counterfactual.labelled.unscored} judged queries")
    return notes


def _explained(counterfactual: Counterfactual) -> str:
    lines = []
    for change in counterfactual.changes:
        lines.append(f"{change.path}: {field_spec(change.path).help}")
        if change.breakpoint is not None:
            point = change.breakpoint
            how = "solved from the formula and verified by replay" if change.solved else "found by replay"
            lines.append(f"At {point.fails:.10g} it is still missing, at {point.succeeds:.10g} it is included; {how}.")
    lines += ["An additional typed query variant."] if counterfactual.terms else []
    return "\n".join([*lines, f"Distance {counterfactual.distance:.3f} in slider ranges."])


def _judged_text(counterfactual: Counterfactual) -> str:
    """The effect on the judged queries, as text; or why it is unknown."""
    effect = counterfactual.labelled
    if effect is None:
        return (
            "Needs a new search, so the judged queries were not measured" if counterfactual.gathers else "Not measured"
        )
    interval = f" with a 95 % interval from {effect.low:+.4f} to {effect.high:+.4f}" if effect.queries > 1 else ""
    return (
        f"Of {effect.queries} judged queries: nDCG@10 better in {effect.better}, worse in {effect.worse}, mean {effect.before:.4f} → "
        f"{effect.after:.4f}, a gain of {effect.gain:+.4f}{interval}. "
        f"Gained a hit: {', '.join(effect.gained[:MAX_NAMED]) or 'none'}. "
        f"Lost a hit: {', '.join(effect.lost[:MAX_NAMED]) or 'none'}."
    )


VIEW = View(
    state.WHY_TOOL, 10, draw, "Which stage lost a memory, and which smallest change brings it in?", external=True
)
