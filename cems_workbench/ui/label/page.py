"""The Label page: grade pooled results blind and by keyboard, measure reviewer agreement, resolve conflicts.

A labelling queue holds the top results of chosen configs, or the unjudged results of a comparison; it is chosen, created and inspected
here. Its view shows its settings, progress per reviewer and the share of judged results per query, and can have the model judge pre-label
its pairs. A ready-made queue is created in the background when the page is first opened on a store without queues.
Judgments are imported, with a report for every row, and exported in the formats of other tools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.errors import counted
from cems_workbench.evaluation.labelling.agreement import Rule, choose_judgments, disagreements, label_table, undecided
from cems_workbench.evaluation.labelling.pooling import QueryCoverage, Strategy, coverage, mean_judged, score_pairs
from cems_workbench.evaluation.labelling.queue import LabelQueue, pace
from cems_workbench.formats import FORMATS, judgment_writers, write_judgments
from cems_workbench.formats.judgments import counts, feedback_of
from cems_workbench.jobs.background import BackgroundQueue, ready_plan
from cems_workbench.jobs.importing import FileImport, import_files
from cems_workbench.jobs.labelling import QueuePlan, assemble, expected_pairs
from cems_workbench.jobs.query_set_evidence import QuerySelection, judged_selection
from cems_workbench.jobs.store_status import team_status
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import JUDGE
from cems_workbench.platform.bidi import neutralise
from cems_workbench.store.rebase import MOVES
from cems_workbench.ui.evaluate.state import chosen_comparison, config_options, usual_configs
from cems_workbench.ui.evaluate.state import page as evaluate_page
from cems_workbench.ui.inspect import state as inspect_state
from cems_workbench.ui.kit import session, widgets
from cems_workbench.ui.kit.address import followed, go, link, widget
from cems_workbench.ui.kit.forms import draw_lines, draw_options, draw_report
from cems_workbench.ui.kit.html import begin_page, plain, write_script
from cems_workbench.ui.kit.session import kept, require
from cems_workbench.ui.kit.tables import HELP, Column, draw_table, draw_values
from cems_workbench.ui.kit.views import View, views_in
from cems_workbench.ui.kit.widgets import cancellable, download, draw_effects, errors_shown, remembered, switch
from cems_workbench.ui.label import agreement, card, state
from cems_workbench.ui.label.state import ALL_QUERIES

MAX_ROWS = 500
JUDGMENTS = 3
"""The order of formats that bring judgments."""
AUTO, ANY_JUDGE = "recognise", "anybody"
QUEUE_OF, SET_OF = "queue", "set"
KINDS = {"People": "human", "Models": "model", "Both": "all"}
RULES: dict[str, Rule | None] = {
    "All judges": None,
    "Majority": "majority",
    "Strictest": "strictest",
    "Decided": "decided",
}


def draw(resources: Resources) -> None:
    """Draw import and export."""
    st.markdown("## Import judgments")
    if session.draw_right("reviewer"):
        _import(resources)
    st.markdown("## Export judgments")
    with errors_shown():
        _export(resources)


def _import(resources: Resources) -> None:
    key = f"label:files:{state.present().uploads}"
    files = st.file_uploader("Files with judgments", accept_multiple_files=True, key=key, help=HELP["label:files"])
    whose = None if session.may("operator") else session.reviewer()
    if whose is not None:
        st.caption(f"Only your own labels ({plain(whose)}) are imported; an operator can import those of others.")
    kind, button, _ = st.columns([2, 1, 2], vertical_alignment="bottom")
    known = [name for name, form in FORMATS.items() if form.order == JUDGMENTS]
    chosen = kind.selectbox("Format", [AUTO, *known], key="label:files:format", help=_descriptions(known))
    options = draw_options("label:files")
    pressed = button.button("Import", key="label:files:import", type="primary", disabled=not files, width="stretch")
    if pressed and files and options is not None:
        session.require("reviewer")
        with cancellable("label:cancel:import") as progress:
            uploads, form = [(file.name, file) for file in files], "auto" if chosen == AUTO else chosen
            imports: tuple[FileImport, ...] = ()
            for imported in import_files(uploads, resources.store, progress, form, whose, options):
                imports = (*imports, imported)
                state.update(imports=imports)  # an interrupted import reports its finished files
        state.close_queue()
        state.update(uploads=state.present().uploads + 1)
        st.rerun()
    draw_report(state.present().imports, "label:files", "left-out-judgments.csv")


def _descriptions(formats: Iterable[str]) -> str:
    return "\n".join(f"- `{name}`: {plain(FORMATS[name].description)}" for name in formats)


def _export(resources: Resources) -> None:
    """Draw the choice of judgments and format, and their export. Raises InputError."""
    boxes, store = st.columns(5, vertical_alignment="bottom"), resources.store
    queues = [queue.name for queue in store.queues.read()]
    sets = sorted(known.name for known in store.query_sets.latest())
    options = [*((QUEUE_OF, name) for name in queues), *((SET_OF, name) for name in sets), (ALL_QUERIES, "")]
    first = next(
        (i for i, option in enumerate(options) if option[1] == st.session_state.get(state.QUEUE)), len(options) - 1
    )
    of: Any = {"format_func": " ".join, "key": "label:out:of"}
    part, name = boxes[0].selectbox("Judgments of", options, first, **of)
    kind = KINDS[boxes[1].selectbox("Judged by", list(KINDS), key="label:out:kind")]
    judgments = store.judgments.read(kind=None if kind == "all" else kind)
    names = sorted({judgment.judge for judgment in judgments})
    judge = boxes[2].selectbox("Judge", [ANY_JUDGE, *names], key="label:out:judge")
    rule = RULES[boxes[3].selectbox("Grades", list(RULES), key="label:out:rule", help=HELP["label:out:rule"])]
    forms = list(judgment_writers())
    form = boxes[4].selectbox("Format", forms, key="label:out:form", help=_descriptions(forms))
    queries = {query.qid: query for query in store.queries.read()}
    qids = {query.qid for query in store.query_sets.queries(name)} if part == SET_OF else set(queries)
    pairs = set(store.queues.pairs(name)) if part == QUEUE_OF else None
    chosen = choose_judgments(store, qids, None if judge == ANY_JUDGE else judge, kind, rule, pairs)
    written = write_judgments(form, chosen.judgments, queries)
    left_out = (*chosen.still_open, *written.left_out)
    line, button, feedback_box = st.columns([2.4, 1, 1.2], vertical_alignment="center")
    more = f"; {len(left_out):,} are left out, listed below." if left_out else "."
    total = len(chosen.judgments) + len(chosen.still_open)
    line.caption(f"{written.rows:,} of {total:,} judgments can be exported{more}")
    file, text = agreement.judgments_file(name or ALL_QUERIES, form), written.text.encode()
    off = not written.rows
    download("Download", text, file, "label:out:get", button, type="primary", width="stretch", disabled=off)
    feedback, icon = feedback_of(chosen.judgments), ":material/thumbs_up_down:"
    off = not feedback or not session.may("operator")
    if feedback_box.button(
        "Count as feedback",
        key="label:out:feedback",
        icon=icon,
        width="stretch",
        help=HELP["label:out:feedback"],
        disabled=off,
    ):
        session.require("operator")
        changed = store.memories.count_feedback(counts(feedback))
        said = f"The counts of {changed:,} memories changed; evidence that depends on them will be gathered again."
        st.success(said, icon=":material/task_alt:")
    if left_out:
        cut = [f"and {len(left_out) - MAX_ROWS:,} more"] if len(left_out) > MAX_ROWS else []
        draw_lines([*left_out[:MAX_ROWS], *cut])
    with st.expander("Preview"):
        st.code("\n".join(written.text.splitlines()[:12]) or "(nothing)", language=None)


def draw_end(resources: Resources, queue: LabelQueue) -> None:
    """Draw what a queue that is done gave: the agreement of its reviewers, its conflicts, its export, and the way to Evaluate."""
    if queue.moves:
        return
    name, labels = queue.record.name, resources.store.queues.labels(queue.record.name)
    table = label_table(labels)
    if queue.record.overlap > 1 or len(table.reviewers) > 1:
        agreement.draw_summary(table)
    form = next(iter(judgment_writers()))
    written = write_judgments(form, labels, {query.qid: query for query in resources.store.queries.read()})
    query_set = str(queue.record.settings.get("query_set") or "")
    file = agreement.judgments_file(name if query_set in name else f"{query_set}-{name}", form)
    with st.container(horizontal=True):
        download(
            f"Export its {counted(written.rows, 'judgments')}", written.text, file, "label:end:get", type="primary"
        )
        if left := undecided(disagreements(labels), resources.store):
            label = f"Decide {counted(len(left), 'conflicts')}"
            if st.button(
                label, "label:end:decide", icon=":material/balance:", on_click=state.show_conflicts, args=(name,)
            ):
                st.rerun()
        agreement.draw_decided(labels, resources, name, "label:end:decided")
        if query_set in {known.name for known in resources.store.query_sets.latest()}:
            help = f"Measures configs on the judged queries of {plain(query_set)}."
            if st.button("Evaluate with these labels", "label:end:evaluate", icon=":material/bar_chart:", help=help):
                evaluate_page.update(next_query_set=query_set)
                go("pages/evaluate.py")
    agreement.draw_matrix(table, "label:end:matrix")


@st.cache_resource(show_spinner=False)
def _background_queues() -> dict[str, BackgroundQueue]:
    """The last ready-made queue of each open store, by its folder; shared by all sessions."""
    return {}


def draw_ready(resources: Resources) -> None:
    """Draw the progress of the ready-made queue; the first session starts it."""
    store = str(resources.store.path)
    if store not in _background_queues() and not _start(resources):
        widgets.empty(
            "Nothing to judge yet",
            "A queue holds the top results of some configs for the queries of a set, and this store has no queries. Import queries on the "
            "Memories page.",
        )
        return
    at_work = _background_queues()[store]
    config, selection = next(iter(at_work.plan.configs)), at_work.plan.selection
    contents = (
        f"A ready-made queue holds the top results of the preset {config} for {len(selection.queries)} queries of {selection.query_set}, "
        "without pairs that people have judged. New queue creates one from your configs."
    )
    if not at_work.over:
        widgets.empty("Creating a first queue", contents)
        text = "{done} of {total} queries searched"
        widgets.watch_work(_background_queues, store, "label:ready:cancel", text, "Cancel")
        return
    why = f"It could not be created: {at_work.problem}" if at_work.problem else "It was deleted."
    widgets.empty("There is no queue", f"{why} {contents}")
    if st.button("Create the ready-made queue", key="label:ready:again", icon=":material/playlist_add:"):
        _start(resources)
        st.rerun()


def _start(resources: Resources) -> bool:
    """Start creating the ready-made queue of a store; False if the store has no queries for one."""
    if (plan := ready_plan(resources)) is not None:
        _background_queues()[str(resources.store.path)] = BackgroundQueue(resources, plan).start()
    return plan is not None


ORDERS: dict[str, tuple[Strategy, str]] = {
    "By query": ("query", "All cards of a query in a row, in an order that does not reveal the rank."),
    "Top first": ("top", "Results ranked high by any config come first."),
    "Shuffled": ("shuffled", "Random order, different for each reviewer; it does not reveal the rank."),
    "Decisive first": (
        "decisive",
        "Pairs that could change which of the first two configs is better come first, re-ranked after each label; others are left out.",
    ),
    "Uncertain first": ("uncertain", "Pairs that the model judge is least sure of come first."),
}
UNJUDGED_DEPTH = 10
"""Depth of a queue made from a comparison: the cutoff of its measures."""


def choose(resources: Resources, left: DeltaGenerator, right: DeltaGenerator) -> str | None:
    """The open queue, chosen in `left` or created in `right`; None while there is none."""
    if (created := state.present().created_queue) is not None:
        # Before the widgets are drawn: their values cannot be set afterwards.
        st.session_state[state.QUEUE], st.session_state[state.NEW_QUEUE] = created, False
        state.update(created_queue=None)
    queues = {queue.name: queue for queue in resources.store.queues.read()}

    def title(name: str) -> str:
        queue = queues[name]
        mark = " · ready-made" if queue.settings.get("ready_made") else ""
        if queue.settings.get(MOVES):
            return f"{neutralise(name)} · doubtful moves of labels"
        return f"{neutralise(name)}{mark} · {queue.overlap} reviewer{'s' if queue.overlap > 1 else ''} per pair"

    name: str | None = None
    if queues:
        name = left.selectbox("Queue", list(queues), format_func=title, **remembered(state.QUEUE))
    else:
        draw_ready(resources)
    box = right.popover("New queue", icon=":material/add:", width="stretch", key=state.NEW_QUEUE, on_change="rerun")
    if box.open:
        with box:
            plan = _form(resources)
        if plan is not None:
            _create(plan, resources)
    _offer_unjudged(resources)
    return name


def _create(plan: QueuePlan, resources: Resources) -> None:
    """Create a queue and open it; after a cancel, gathering can be resumed."""
    with errors_shown():
        require("reviewer")
        with cancellable("label:cancel:queue") as progress:
            queue = assemble(plan, resources, progress)
        resources.store.queues.save(queue)
        state.close_queue()
        state.update(created_queue=plan.name)
        st.rerun()


def _offer_unjudged(resources: Resources) -> None:
    comparison = chosen_comparison()
    sets = {query_set.name for query_set in resources.store.query_sets.latest()} if comparison is not None else set()
    if comparison is None or comparison.query_set not in sets:
        return
    label = f"Queue unjudged results of {', '.join(plain(name) for name in comparison.configs)}"
    help = (
        f"The comparison on the Evaluate page: the first {UNJUDGED_DEPTH} results of these configs for the judged queries of "
        f"{plain(comparison.query_set)} that no person has judged."
    )
    if not st.button(label, key="label:unjudged", icon=":material/playlist_add:", type="tertiary", help=help):
        return
    options = config_options(resources).configs
    configs = {name: options[name] for name in comparison.configs if name in options}
    judgments = resources.store.judgments.read()
    selection = judged_selection(comparison.query_set, resources, judgments, comparison.only_project)
    _create(QueuePlan(f"{comparison.query_set}-unjudged", selection, configs, UNJUDGED_DEPTH), resources)


def _form(resources: Resources) -> QueuePlan | None:
    """The form of a new queue; its plan once submitted."""
    sets = {query_set.name: query_set for query_set in resources.store.query_sets.latest()}
    if not sets:
        st.caption("This store has no queries. Import queries on the Memories page first.")
        return None
    options = config_options(resources).configs

    def size(name: str) -> str:
        return f"{neutralise(name)} · {counted(sets[name].size, 'queries')}"

    left, right = st.columns(2)
    query_set = left.selectbox("Query set", sorted(sets), key="label:new:set", format_func=size)
    order_help = "  \n".join(f"{name}: {about}" for name, (_, about) in ORDERS.items())
    order = right.selectbox("Order", list(ORDERS), key="label:new:order", help=order_help)
    usual = usual_configs()
    configs = st.multiselect("Configs", list(options), usual, key="label:new:configs", help=HELP["label:new:configs"])
    chosen = {config: options[config] for config in configs}
    draw_effects(chosen)
    left, right = st.columns(2)
    depth = left.number_input("Depth", 1, 100, 10, key="label:new:depth", help=HELP["label:new:depth"])
    overlap = right.number_input(
        "Reviewers per pair", 1, 10, 1, key="label:new:overlap", help=HELP["label:new:overlap"]
    )
    fresh = st.toggle("Leave out pairs that people have already judged", value=overlap == 1, key="label:new:fresh")
    hint, help = f"{query_set}-{ORDERS[order][0]}", "A queue of the same name is replaced; labels stay."
    name = st.text_input("Name", key="label:new:name", max_chars=120, placeholder=hint, help=help).strip() or hint
    selection = QuerySelection(query_set, tuple(resources.store.query_sets.queries(query_set)))
    plan = QueuePlan(name, selection, chosen, int(depth), ORDERS[order][0], int(overlap), bool(fresh))
    st.caption(_size_line(plan, resources))
    made = st.button("Create queue", key="label:new:make", type="primary", width="stretch", disabled=not configs)
    return plan if made else None


USUAL_PACE_S = 10.0
"""Seconds per card of a reviewer whose pace is not known yet."""


def _size_line(plan: QueuePlan, resources: Resources) -> str:
    """How many pairs the queue will have, and how long they take one reviewer."""
    key = (plan, resources.store.version)
    pairs, exact = kept("label:new:size", key, lambda: expected_pairs(plan, resources, session.for_all_sessions))
    reviewer = session.reviewer()
    mine = [label for label in resources.store.judgments.read(kind="human") if label.judge == reviewer]
    seconds = pace(mine)
    at = f"at your {card.pace_text(seconds)} a card" if seconds else f"at {USUAL_PACE_S:.0f} s a card"
    minutes = max(1, round(pairs * (seconds or USUAL_PACE_S) / 60))
    most = "" if exact else "at most "
    return f"{most}{counted(pairs, 'pairs')}, {most}{counted(minutes, 'minutes')} per reviewer {at}.".capitalize()


def _draw_settings(queue: LabelQueue) -> None:
    created, settings = f"{queue.record.created_at:%Y-%m-%d %H:%M} UTC", queue.record.settings
    order = next(
        (name for name, (strategy, _) in ORDERS.items() if strategy == settings.get("strategy")), "in its order"
    )
    configs = ", ".join(plain(str(name)) for name in settings.get("configs", ()))
    source = f" from query set {plain(str(settings['query_set']))}" if settings.get("query_set") else ""
    pooled = f", the first {settings['depth']} of {configs}" if configs and settings.get("depth") else ""
    by_whom = "Created by the app: " if settings.get("ready_made") else ""
    st.code(link(ADDRESS[1]), language=None)  # for a colleague: without a view it opens the cards
    st.caption(f"{by_whom}{len(queue.pairs):,} pairs{source}{pooled}; {order.lower()}; created {created}.")
    snapshot = queue.snapshot()
    reviewers = sorted({label.judge for label in snapshot.labels})
    if not reviewers:
        st.caption(f"None of them {'is decided' if queue.moves else 'has been graded'} yet.")
        return
    progress = [(reviewer, queue.progress(reviewer, snapshot)) for reviewer in reviewers]
    rows = [(name, of.graded, of.skipped, of.unclear, of.left, of.seconds_per_label) for name, of in progress]
    names = ("reviewer", "decided" if queue.moves else "graded", "skipped", "unclear queries", "left", "seconds per card")
    draw_values(names, rows, key="label:reviewers", format="%.1f", most=8)


def _coverage(queue: LabelQueue, resources: Resources) -> None:
    recorded = resources.store.queues.rankings(queue.record.name)
    rankings = {name: recorded[name] for name in queue.record.settings.get("configs", recorded) if name in recorded}
    st.markdown("## Coverage", help=HELP["label:cover"])
    if not rankings:
        st.caption("This queue predates saved rankings; create a new one to see them.")
        return
    deepest = max(len(results) for ranked in rankings.values() for results in ranked.values())
    left, right, _ = st.columns([1, 1.4, 2], vertical_alignment="bottom")
    most = max(deepest, 1)
    k = int(left.number_input("k", 1, most, min(10, most), **remembered("label:cover:k")))
    whose = right.selectbox("Judged by", ["people", "people or models"], **remembered("label:cover:by"))
    judgments = resources.store.judgments.read(kind="human" if whose == "people" else None)
    covered = coverage(rankings, {(judgment.qid, judgment.memory_id) for judgment in judgments}, k)
    means = mean_judged(covered)
    parts = " · ".join(f"{plain(name)} **{share:.0%}**" for name, share in means.items())
    full = sum(not query.unjudged for query in covered)
    st.markdown(f"Judged@{k}: {parts} · {full} of {len(covered)} queries fully judged")
    words = {query.qid: query.query for query in resources.store.queries.read()}

    def share(config: str, query: QueryCoverage) -> float | None:
        return 100 * query.judged[config] if config in query.judged else None

    columns: list[Column[QueryCoverage]] = [
        Column("query", lambda query: words.get(query.qid, query.qid)),
        *(Column(name, partial(share, name), 130, "%.0f %%", bar=100.0) for name in rankings),
        Column("unjudged", lambda query: len(query.unjudged), 86, help="Distinct unjudged results within k"),
    ]
    draw_table(covered, columns, key="label:coverage", most=10, placeholder="–")


def _prelabel(queue: LabelQueue, resources: Resources) -> None:
    """Draw the offer to grade every pair with the judge set in Inspect, stored as a model's judgments."""
    st.markdown("## Pre-label with the model judge", help=HELP["label:prelabel"])
    pairs = set(queue.pairs)
    counts = Counter(
        judgment.judge
        for judgment in resources.store.judgments.read(kind="model")
        if (judgment.qid, judgment.memory_id) in pairs
    )
    found = "; ".join(f"{plain(judge)}: {count:,}" for judge, count in sorted(counts.items())) or "none yet"
    box, button = st.columns([4, 1.2], vertical_alignment="center")
    box.caption(f"Judgments of models on these pairs: {found}. People’s labels and cards are not touched.")
    off = JUDGE.is_off(inspect_state.present_config())
    help = "The judge is off in Inspect; choose one under Judge." if off else HELP["label:prelabel:cancel"]
    common: dict[str, Any] = {"icon": ":material/gavel:", "width": "stretch", "disabled": off, "help": help}
    if button.button(f"Judge {len(pairs):,} pairs", key="label:prelabel", **common):
        with cancellable("label:cancel:prelabel") as progress:
            scores = score_pairs(queue.pairs, inspect_state.present_config(), resources, progress, keep=True)
        state.update(prelabelled=(queue.record.name, scores))
        st.rerun()
    done = state.present().prelabelled
    if done is not None and done[0] == queue.record.name:
        scores = done[1]
        why = plain(next(iter(scores.failed.values()), ""))
        failed = f" {len(scores.failed):,} have no score: {why}." if scores.failed else ""
        said = f"{len(scores.scores):,} pairs judged by {plain(scores.judge)}.{failed}"
        st.success(said, icon=":material/task_alt:")
        if scores.instead:
            st.warning(plain(scores.instead), icon=":material/swap_horiz:")


def _draw_delete(queue: LabelQueue, resources: Resources) -> None:
    with st.popover("Delete this queue", icon=":material/delete:", key="label:forget"):
        st.caption("Deletes the queue; all labels are kept.")
        if st.button("Delete the queue", key="label:forget:sure", type="primary"):
            require("reviewer")
            resources.store.queues.remove(queue.record.name)
            st.session_state.pop(state.QUEUE, None)
            state.update(queue=None, dealt=None)
            st.rerun()


CACHE_S = 60
"""Seconds for which the lines on the team's database are kept."""


def _draw_team(resources: Resources) -> None:
    """Draw where a team's labels are stored; nothing for a store with its own labels."""
    where = resources.store.team.place
    if not where:
        return
    st.caption(plain(f"Labels are stored in the team's database {where}"))
    for line in _team_lines(str(resources.store.path), resources):
        st.caption(plain(line))


@st.cache_data(ttl=CACHE_S, show_spinner=False)
def _team_lines(store: str, _resources: Resources) -> list[str]:
    return team_status(_resources.store)


def draw_label(resources: Resources) -> None:
    """Draw the reviewer's name, the queue and the card."""
    write_script("label_keys")  # before the boxes and the card, so that no early key press is lost
    name_box, queue_box, new_box = st.columns([2, 4, 1.4], vertical_alignment="bottom")
    with name_box:
        session.ask()
    _draw_team(resources)
    queue = choose(resources, queue_box, new_box)
    name = session.reviewer()
    if queue is None:
        return
    if name is None:
        how = "Sign in" if session.sign_in_configured() else "Enter your name"
        st.info(f"{how} above to start.", icon=":material/badge:")
        return
    card.draw(state.open_queue(resources, queue), resources, name, partial(draw_end, resources))


def draw_queue(resources: Resources) -> None:
    """Draw the queue's settings, progress and coverage, and its actions."""
    queue_box, new_box = st.columns([6, 1.4], vertical_alignment="bottom")
    _draw_team(resources)
    name = choose(resources, queue_box, new_box)
    if name is not None:
        queue = state.open_queue(resources, name)
        _draw_settings(queue)
        if not queue.moves:
            _coverage(queue, resources)
            _prelabel(queue, resources)
        _draw_delete(queue, resources)


VIEWS = (
    View("Label", 10, draw_label),
    View("Queue", 20, draw_queue),
    View("Agreement", 40, agreement.draw),
    View("People and judge", 50, agreement.draw_judge),
    View("Files", 60, draw),
)


def _queue_names() -> list[str]:
    return [queue.name for queue in session.resources().store.queues.read()]


ADDRESS = (
    widget("view", state.VIEW, entry=True, choices=lambda: views_in("label", *VIEWS), usual=VIEWS[0].title),
    widget("queue", state.QUEUE, entry=True, choices=_queue_names),
    widget("of", state.OF, choices=_queue_names, usual=ALL_QUERIES),
)
"""What the page shows: the view and the queue."""


@session.show_errors
def main() -> None:
    """Draw the page."""
    begin_page("Label", "label")
    resources = session.open_or_explain()
    if resources is None:
        return
    with followed("label", *ADDRESS), errors_shown():
        views = views_in("label", *VIEWS)
        views[switch("View", list(views), state.VIEW)].draw(resources)
