"""Against production: compare the trace with the live system's answer, and find config changes that explain the difference.

Tables show the ranks in both and the most similar stage. Explanations are parameters and presets that bring
our results closer, each with a button.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import streamlit as st

from cems_workbench.config import field_spec
from cems_workbench.config.fields import short_value
from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import data_beside
from cems_workbench.jobs.recorded_answers import Production, match_results
from cems_workbench.platform.bidi import neutralise
from cems_workbench.progress import Progress
from cems_workbench.records import RecordedAnswer, Recording
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import LOST_HELP, InspectContext
from cems_workbench.ui.inspect.tables import follow_table
from cems_workbench.ui.kit import widgets
from cems_workbench.ui.kit.html import excerpt, full_label, plain, uploaded_text
from cems_workbench.ui.kit.session import kept
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import remembered
from workbench_fidelity.explain import Explanation, Replays, combined_changes, explanations
from workbench_fidelity.lists import (
    Agreement,
    StageSimilarity,
    agreement,
    most_similar,
    overlap_at,
    placements,
    stage_similarities,
)
from workbench_fidelity.recordings import parse_recording

DEPTHS = (1, 3, 5, 10, 20)
MAX_EXPLANATIONS = 8
"""Maximum explanations listed."""
MATCHED = "inspect:production:matched"
FORMS = ("json", "jsonl", "txt", "csv", "tsv", "run", "trec")
HELP: Mapping[str, str] = data_beside(__file__, "help.json")
TAU_HELP, RBO_HELP = HELP["production:tau"], HELP["production:rbo"]


def draw(context: InspectContext) -> None:
    """Draw the input, the agreement, ranks, stages, and explanations of the difference."""
    brought = _recording(context)
    if brought is None:
        st.caption("Paste or upload the live system’s answer to this query. The data stays on this machine.")
        return
    recording, answer = brought
    store = context.resources.store
    key = (answer.returned, str(store.path), store.content_version)
    production = kept(MATCHED, key, lambda: match_results(answer.returned, store.memories.read))
    for line in recording.doubts:
        st.caption(plain(line))
    if count := len(recording.errors):
        with st.expander(f"Rows that could not be used in full: {count}", icon=":material/warning:"):
            st.code(neutralise("\n".join(str(error) for error in recording.errors[:200])), language=None)
    if not production.order:
        st.warning("None of these memories is in this store, by id or by text: does production use the same memories?")
        draw_placements(context, production)
        return
    ours = list(context.trace.ranks)
    now = agreement(production.order, ours)
    cells = [
        (f"top {k}", f"{shared} of {k}", f"Memories in the first {k} of both")
        for k, shared in overlap_at(production.order, ours, DEPTHS).items()
    ]
    cells += [("tau", f"{now.tau:.3f}", TAU_HELP), ("RBO", f"{now.rbo:.3f}", RBO_HELP)]
    if production.unknown:
        cells.append(("unknown", str(len(production.unknown)), "Not matched by id or by text"))
    st.html(widgets.numbers(cells, columns=min(8, len(cells))))
    same = list(production.order) == ours[: len(production.order)]
    st.markdown(_verdict(production, ours, same))
    draw_placements(context, production)
    draw_stages(context, production)
    if same:
        st.caption("Same order as production: nothing to explain.")
    else:
        draw_explanations(context, production, now)


def draw_placements(context: InspectContext, production: Production) -> None:
    """Draw one row per memory, and per unmatched row of the answer: its rank in production and here, and where it was lost."""
    memories = context.resources.store.memories.read(production.order)
    rows: list[PlacementRow] = []
    for one in placements(production, context.trace, context.target):
        memory = memories.get(one.memory_id) or context.trace.evidence.memories[one.memory_id]
        called = production.by_text.get(one.memory_id)
        why = one.reason or ("not returned by production" if one.production is None else "")
        why = f"{why} (matched by text; id there: {called})".strip() if called else why
        rows.append((one.production, one.ours, one.memory_id, one.lost_at or "", why, excerpt(memory.content)))
    for rank, answer in production.unknown:
        text = excerpt(answer.content or "")
        rows.append((rank, None, answer.memory_id or "", "not in this store", "no memory has this id or text", text))
    rows.sort(key=lambda row: (row[0] is None, row[0] or 0))
    columns: list[Column[PlacementRow]] = [
        Column("production", itemgetter(0), 84, help="Rank in production; empty: not returned"),
        Column("ours", itemgetter(1), 52, help="Rank in the results above; empty: not returned"),
        Column("memory", memory_of, 110),
        Column("lost at", itemgetter(3), 110, help=LOST_HELP.format(k=context.target)),
        Column("why", itemgetter(4), 280),
        Column("content", itemgetter(5), 420),
    ]
    follow_table(rows, columns, context.followed, memory=memory_of, key="inspect:production_table", most=14)


PlacementRow = tuple[int | None, int | None, str, str, str, str]
"""Rank in production, rank here, memory, where it was lost, why, and its text."""
memory_of: Callable[[PlacementRow], str] = itemgetter(2)


def draw_stages(context: InspectContext, production: Production) -> None:
    """Draw which list's or stage's order is most similar to production's."""
    compared = stage_similarities(production.order, context.trace)
    best = most_similar(compared)
    st.markdown("## Stage by stage", help="The output order of each list and stage, compared with production’s.")
    if best is None or not best.shared:
        st.caption("No list or stage contains any of production’s memories.")
        return
    what = f"the output of the {best.name} stage" if best.stage else f"the list {best.name}"
    st.caption(f"Production’s order is most similar to {what}: RBO {best.rbo:.3f}.")
    signed, size = "◆ most similar to production", len(production.order)
    columns: list[Column[StageSimilarity]] = [
        Column("list or stage", lambda one: f"{'◆ ' if one == best else ''}{one.name}", 150, help=signed),
        Column(
            "holds", lambda one: f"{one.shared} of {size}", 84, help="How many of production’s memories it contains"
        ),
        Column("tau", lambda one: one.tau, 70, "%.3f", f"{TAU_HELP} Over the memories it contains."),
        Column("RBO", lambda one: one.rbo, 180, "%.3f", RBO_HELP, bar=1),
    ]
    draw_table(compared, columns, most=len(compared), width=560)


def draw_explanations(context: InspectContext, production: Production, now: Agreement) -> None:
    """Draw a button that searches for explanations, and the results for this trace."""
    st.markdown("## Possible explanations", help=HELP["production:explain"])
    trace, order = context.trace, production.order

    def search(progress: Progress) -> tuple[list[Explanation[Agreement]], int]:
        replays = Replays(order, trace.evidence, context.variants_off)
        alone = explanations(replays, trace.config, progress)
        single = next((explanation for explanation in alone if explanation.preset is None), None)
        joint = None if single is None else combined_changes(replays, trace.config, single, progress)
        return ([] if joint is None else [joint]) + alone, replays.count

    place = st.empty()
    if not context.is_remembered("production:explained", order) and not place.button(
        "Search parameters and presets", key="inspect:production:search", icon=":material/search:"
    ):
        return
    nearer, count = context.remembered("production:explained", search, order)
    place.empty()
    if not nearer:
        st.caption(f"None of {count} settings tried is closer to production than the current one.")
        return
    st.caption(
        f"{count} settings tried; {len(nearer)} are closer than RBO {now.rbo:.3f}. Closest first, "
        f"with how many of production’s {now.depth} results they return."
    )
    for i, explanation in enumerate(nearer[:MAX_EXPLANATIONS]):
        words, numbers, button = st.columns([6, 4, 1.6], vertical_alignment="center")
        act: dict[str, Any] = {"on_click": state.choose_preset, "args": (explanation.preset,)}
        if explanation.preset is not None:
            name = f"preset {explanation.preset}"
            words.markdown(f"Preset **{plain(explanation.preset)}**{' (gathers)' if explanation.gathers else ''}")
        else:
            act = {"on_click": state.apply, "args": ({path: value for path, _, value in explanation.changes},)}
            changes = [(field_spec(path).label, *map(short_value, values)) for path, *values in explanation.changes]
            name = ", ".join(f"{label} {value}" for label, _, value in changes)
            shown = (f"**{plain(label)}** {plain(was)} → {plain(value)}" for label, was, value in changes)
            words.markdown(", ".join(shown))
        numbers.caption(
            f"RBO {now.rbo:.3f} → **{explanation.agreement.rbo:.3f}** · {explanation.agreement.shared} of {now.depth}",
            help=HELP["production:gathers"] if explanation.gathers else None,
        )
        button.button(
            full_label("Apply", name),
            key=f"inspect:production:apply:{i}",
            help="Undo restores the current settings.",
            **act,
        )


def _recording(context: InspectContext) -> tuple[Recording, RecordedAnswer] | None:
    """The pasted or uploaded recording, and its answer to this query; None if missing. Raises InputError."""
    key = state.answer_key(context.request.query)
    text_box, file_box = st.columns([3, 2])
    about: Any = {"placeholder": HELP["production:placeholder"], "help": HELP["production:forms"]}
    box = remembered(f"{key}:text") | about
    pasted = text_box.text_area("Answer of production", height=150, **box)
    upload = file_box.file_uploader("Or a file", FORMS, key=f"{key}:file")
    if upload is None and not pasted.strip():
        return None
    source, text = ("pasted", pasted) if upload is None else (upload.name, uploaded_text(upload))
    recording = parse_recording(text, source)
    if not recording.answers:
        raise InputError(str(recording.errors[0]))
    return recording, _of_query(recording, context, key)


def _of_query(recording: Recording, context: InspectContext, key: str) -> RecordedAnswer:
    """The answer to this query from a recording of several, or the chosen one."""
    answers = {answer.qid: answer for answer in recording.answers}
    if len(answers) < 2:
        return recording.answers[0]
    asked = context.request.query
    own = {query.qid for query in context.resources.store.queries.read() if query.query == asked}
    at = next(
        (i for i, one in enumerate(recording.answers) if (one.query == asked if one.query else one.qid in own)), 0
    )
    about = "The recording has several queries: choose the current one."
    return answers[st.selectbox("Query of the run", list(answers), at, key=f"{key}:qid", help=about)]


def _verdict(production: Production, ours: list[str], same: bool) -> str:
    """One sentence on where the two rankings diverge."""
    if same:
        return f"**The first {len(production.order)} are the same, in the same order.**"
    first = next(
        (i for i, (theirs, own) in enumerate(zip(production.order, ours, strict=False)) if theirs != own),
        min(len(production.order), len(ours)),
    )
    if first == len(ours):
        return f"**Ours ends after {first}, and is identical up to there.** Is the result limit or token budget smaller here?"
    theirs, own = plain(production.order[first]), plain(ours[first])
    return f"**They differ from rank {first + 1}:** production has {theirs}, we have {own}."


VIEW = View(
    state.PRODUCTION, 18, draw, "Where do these results differ from the live system’s, and what would explain it?"
)
