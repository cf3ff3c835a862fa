"""Why is it missing? The path of one memory, the stage that lost it, and the changes that bring it back, ready to apply.

A change is applied to the whole page, config and request, and taken back in one click.
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
from cems_workbench.config.value_text import shown
from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.stages.lists import called
from cems_workbench.pipeline.stages.stage import ordinal
from cems_workbench.report.investigation import investigation_report
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import TARGET, InspectContext
from cems_workbench.ui.inspect.controls import GROUPS
from cems_workbench.ui.inspect.glossary import about
from cems_workbench.ui.inspect.labelled import labelled_set, offer_labelled
from cems_workbench.ui.inspect.tools import choose_memory
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.progress import progress_in
from cems_workbench.ui.kit.report import report_button
from cems_workbench.ui.kit.screen_reader import named
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.templates import render

TOOL = "why"
SHOWN = 8
NAMED = 12
"""Queries that gain or lose a hit which are named in a tooltip."""
KEPT = 8
"""Answers that are kept, so that going back and forth between memories asks nothing again."""
APPLIED = "inspect:why:applied"


def draw(context: InspectContext) -> None:
    """Choose a memory; then the cause, the path and the rescues."""
    write_stylesheet("why")
    _wanted(context)
    k = context.target
    lost = choose_memory.missing(context, k)
    memory_id = choose_memory.chosen(context, TOOL)
    _judgments(context, lost, k)
    choose_memory.offer(context, TOOL, lost, memory_id)
    draw_applied()
    if not context.trace.evidence.memories:
        st.caption("No list returned a candidate for this query. Choose a memory, to see how far each list is from it.")
    if memory_id is None:
        return
    memory = context.resources.store.memories.get(memory_id)
    if memory is None:
        st.info(
            f"{plain(short_id(memory_id))} is not in the store any more. Choose another memory.",
            icon=":material/delete:",
        )
        return
    labelled = labelled_set(context)
    why = _answer(context, memory_id, k, labelled)
    if why is None:
        return
    st.html(cause_html(why, memory.content))
    trace = context.trace
    report_button(
        "inspect:why:report",
        f"why-{memory_id}",
        lambda redact: investigation_report(why, trace, datetime.now(UTC), memory=memory, redact=redact),
        what="the cause, its way through the stages, the changes that bring it in and what they do to the others. ",
    )
    _draw_path(why.path)
    _draw_rescues(context, why, labelled)


def _wanted(context: InspectContext) -> None:
    """How far up the memory should be, beside the search box; empty is the result limit."""
    first, second = st.columns([1, 3], vertical_alignment="bottom")
    with second:
        choose_memory.search_box(TOOL)
    choose_memory.offer_matches(context, TOOL)
    first.number_input(
        "Should be in the first",
        1,
        1000,
        None,
        key=TARGET,
        persist_state="session",
        placeholder=f"{target_rank(context.trace.config)} (result limit)",
        help="A memory counts as missing when it is not among this many first results; Journey, Rank flow and Against production "
        "use the same number. Empty: the result limit.",
    )


def _judgments(context: InspectContext, lost: list[str], k: int) -> None:
    """One line on what is missing of the judged memories, or why there is nothing to list."""
    relevant = len(context.relevant)
    where = "first result" if k == 1 else f"first {k} results"
    if not context.grades:
        st.caption("This query has no judgments. Search for the memory that should have come, or follow one above.")
    elif not relevant:
        st.caption("No memory was judged relevant for this query. Any memory can be searched for.")
    elif not lost:
        nearer = " Ask for fewer results to see why one is not higher." if k > 1 else ""
        st.caption(f"Every memory judged relevant is within the {where}.{nearer}")
    else:
        st.caption(
            f"{len(lost)} of {relevant} memories judged relevant are not within the {where}:",
            help="Human grades: 1 related, 2 helps, 3 answers it. ◆ is the memory that is followed.",
        )


def _answer(context: InspectContext, memory_id: str, k: int, labelled: LabelledSet | None) -> Why | None:
    """The explanation, kept while memory, request, config, evidence and labelled queries are the same; None after an error."""
    trace = context.trace
    place = st.empty()

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
            progress=progress_in(place),
        )

    try:
        return context.remembered("why:answers", make, memory_id, k, context.request, labelled, most=KEPT)
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None
    finally:
        place.empty()


def _draw_path(path: MemoryPath) -> None:
    """The way through the stages, and where each list has the memory."""
    if path.steps:
        st.markdown("## Through the stages")
        st.html(path_html(path))
    if path.places:
        st.markdown("## Its rank in each list, searched over the whole store")
        st.html(places_html(path.places))


def _draw_rescues(context: InspectContext, why: Why, labelled: LabelledSet | None) -> None:
    """The changes that bring it in, each with a button; or what comes nearest."""
    if why.path.status == "in the top k":
        return
    rescues = why.counterfactuals[:SHOWN]
    if not rescues and why.nearest is None:
        st.info("No single parameter, no pair of them and no other search brings it nearer.", icon=":material/block:")
        return
    st.markdown("## What would bring it in" if rescues else "## What comes nearest")
    st.html(render("inspect/why/head.html"))
    stood = "not in the results" if why.path.rank is None else ordinal(why.path.rank)
    nearest = [] if why.nearest is None else [why.nearest]
    for i, rescue in enumerate(rescues or nearest):
        with st.container(horizontal=True, vertical_alignment="center", wrap=False, gap="small"):
            st.button(
                named("Apply", what(rescue)),
                key=f"inspect:why:apply:{i}",
                on_click=apply,
                width=76,
                args=(rescue, context.request, why.path.memory_id, stood),
                help="Sets the controls to this; one click takes it back.",
            )
            st.html(rescue_html(rescue))
    more = len(why.counterfactuals) - len(rescues)
    st.caption(
        f"{f'{more} more in `why --json`. ' if more > 0 else ''}{order_text(why.counterfactuals)} {why.replays} replays.",
        help="Every change was replayed before it is shown, with the reranker’s scores that it asks for. A change that leaves fewer "
        "than half of the results is none.",
    )
    if labelled is None and offer_labelled(context, "inspect:why:weigh") is not None:
        st.rerun()  # now that they are measured, the rescues stand in another order


@dataclass(frozen=True)
class Applied:
    """What was applied, and the page as it was: the config, and what was asked."""

    words: str
    before: PipelineConfig
    after: PipelineConfig
    request: Request


def apply(rescue: Counterfactual, request: Request, memory_id: str, stood: str) -> None:
    """Set the page to what the rescue says; a value the config refuses is said beside the controls and changes nothing."""
    before, asked = state.present_config(), state.written_request()
    state.apply(rescue.values)
    if state.present().config_error:
        return
    changed = rescue.request(request)
    state.write_request(
        replace(
            asked,
            manual=changed.manual if rescue.terms else asked.manual,
            project_only=asked.project_only and not rescue.everywhere,
        )
    )
    now = "not placed" if rescue.rank is None else ordinal(rescue.rank)
    words = f"{what(rescue)}. {short_id(memory_id)}: {stood} → {now}"
    st.session_state[APPLIED] = Applied(words, before, state.present_config(), asked)


def take_back() -> None:
    """Put the page back to what it was before the last rescue."""
    applied: Applied = st.session_state.pop(APPLIED)
    state.use_config(applied.before)
    state.write_request(applied.request)


def draw_applied() -> None:
    """What was applied, with a button that takes it back; gone once another parameter has been moved."""
    applied: Applied | None = st.session_state.get(APPLIED)
    if applied is None or applied.after != state.present_config():
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f":material/check: **Applied** {plain(applied.words)}")
        st.button(
            "Take back",
            key="inspect:why:back",
            icon=":material/undo:",
            on_click=take_back,
            help="Every parameter as it was before this change.",
        )


def cause_html(why: Why, content: str) -> Markup:
    """The memory, why it is where it is, and whether something would bring it in."""
    return render("inspect/why/cause.html", why=why, content=content)


@dataclass(frozen=True, slots=True)
class StepLine:
    """A stage of the path as it is drawn; `exact` are the scores in full."""

    name: str
    meaning: str
    rank: str
    score: str
    exact: str
    cell: str
    words: str
    lost: bool


def path_html(path: MemoryPath) -> Markup:
    """The memory's way through the stages; the one that lost it is marked by a cross, a word and a tint."""
    lines = [
        StepLine(
            step.stage,
            about(step.stage),
            _ranks(step.rank_in, step.rank),
            _score(step.score),
            _moved(step.score_in, step.score),
            "kept" if step.kept else "dropped",
            step.words,
            step.stage == path.lost_at,
        )
        for step in path.steps
    ]
    return render("inspect/why/path.html", lines=lines)


@dataclass(frozen=True, slots=True)
class PlaceLine:
    """A list as it is drawn, and the memory's place in it."""

    name: str
    meaning: str
    rank: str
    score: str
    depth: str
    returned: str
    words: str


def places_html(places: Sequence[ListEntry]) -> Markup:
    """Where a search of the whole store ranks the memory in each list."""
    lines = [
        PlaceLine(
            called(place.list),
            about(place.list),
            _rank(place.rank),
            _score(place.score),
            _depth(place),
            "✓ yes" if place.returned else "✕ no",
            place.words,
        )
        for place in places
    ]
    return render("inspect/why/places.html", lines=lines)


def _depth(place: ListEntry) -> str:
    """How much of a list counts: memories, or chunks where it is only what another list is made of."""
    if place.depth is not None:
        return str(place.depth)
    return "all" if place.chunks is None else f"{place.chunks} chunks"


def rescue_html(rescue: Counterfactual) -> Markup:
    """One rescue: what is changed, where the memory lands, what else moves."""
    effect = rescue.labelled
    return render(
        "inspect/why/rescue.html",
        rescue=rescue,
        words=what(rescue),
        explained=_explained(rescue),
        notes=_notes(rescue),
        judged=_judged(rescue),
        kept=moved_text(rescue.side_effects),
        gain="" if effect is None else f"{effect.gain:+.3f}".replace("-", "−"),
        interval="" if effect is None else interval_text(effect),
    )


def what(rescue: Counterfactual) -> str:
    """What is changed, in the words of the controls: "Fusion: Score blend 0.3 → 0.55"."""
    parts = [_change(change) for change in rescue.changes if not (rescue.terms and change.path == "expansion.backend")]
    parts += [f"search for “{term}” too" for term in rescue.terms]
    parts += ["search every project"] if rescue.everywhere else []
    return " and ".join(parts)


def _change(change: Change) -> str:
    spec = field_spec(change.path)
    return f"{GROUPS.get(spec.section, spec.section)}: {spec.label} {shown(change.was)} → {shown(change.now)}"


def _notes(rescue: Counterfactual) -> list[str]:
    notes = []
    for change in rescue.changes:
        point = change.breakpoint
        if point is not None and point.succeeds != change.now:
            side = "from" if point.succeeds > point.fails else "up to"
            notes.append(f"{side} {point.succeeds:.6g}{' (solved)' if change.solved else ''}")
    notes += ["needs a new search"] if rescue.gathers else []
    notes += [f"{rescue.needs} scores of the reranker are still missing"] if rescue.needs else []
    if rescue.labelled is not None and rescue.labelled.unscored:
        notes.append(f"in {rescue.labelled.unscored} judged queries the reranker has not read all that this asks for")
    return notes


def _explained(rescue: Counterfactual) -> str:
    lines = []
    for change in rescue.changes:
        lines.append(f"{change.path}: {field_spec(change.path).help}")
        if change.breakpoint is not None:
            point = change.breakpoint
            how = "solved from the formula and checked by replay" if change.solved else "found by replays"
            lines.append(f"At {point.fails:.10g} it is still missing, at {point.succeeds:.10g} it is in; {how}.")
    lines += ["A further query variant, typed by hand."] if rescue.terms else []
    return "\n".join([*lines, f"Distance {rescue.distance:.3f} in slider ranges."])


def _judged(rescue: Counterfactual) -> str:
    """What it does to the judged queries, in words; or why that is not known."""
    effect = rescue.labelled
    if effect is None:
        return "Needs a new search, so the judged queries were not measured" if rescue.gathers else "Not measured"
    return (
        f"Of {effect.queries} judged queries: nDCG@10 better in {effect.better}, worse in {effect.worse}, mean {effect.before:.4f} → "
        f"{effect.after:.4f}, a gain of {effect.gain:+.4f} with a 95 % interval from {effect.low:+.4f} to {effect.high:+.4f}. "
        f"Gained a hit: {', '.join(effect.gained[:NAMED]) or 'none'}. "
        f"Lost it: {', '.join(effect.lost[:NAMED]) or 'none'}."
    )


def _ranks(before: int | None, after: int | None) -> str:
    return "–" if before is None and after is None else f"{_rank(before)} → {_rank(after)}"


def _rank(rank: int | None) -> str:
    return "–" if rank is None else str(rank)


def _score(score: float | None) -> str:
    return "–" if score is None else f"{score:.4f}"


def _moved(before: float | None, after: float | None) -> str:
    return f"{'–' if before is None else repr(before)} before, {'–' if after is None else repr(after)} after"


VIEW = View(state.WHY_TOOL, 10, draw, "Which stage lost a memory, and what is the smallest change that brings it back?")
