"""Agreement of reviewers, and of people and a model judge: kappa, conflicts decided card by card, and the best threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import counted
from cems_workbench.evaluation.grades import Grades, agreed_grades
from cems_workbench.evaluation.labelling import agreement
from cems_workbench.evaluation.labelling import judge_calibration as calibration
from cems_workbench.evaluation.labelling.pooling import Pair, PairScores, score_pairs
from cems_workbench.evaluation.labelling.queue import Card
from cems_workbench.formats import FORMATS, judgment_writers, write_judgments
from cems_workbench.formats.base.judgments import of_memories
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import JUDGE
from cems_workbench.pipeline.stages.judge import BANDS
from cems_workbench.platform.atomic_write import safe_stem
from cems_workbench.platform.bidi import neutralise
from cems_workbench.records import DEFAULT_SCALE, JudgeScale, Judgment, Memory, Query
from cems_workbench.store import LabelEvent
from cems_workbench.ui.inspect import state as inspect_state
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.charts import draw_chart, heatmap, hover, layout, lines, reliability_chart
from cems_workbench.ui.kit.html import excerpt, plain, tick, write_script
from cems_workbench.ui.kit.session import kept, reviewer
from cems_workbench.ui.kit.tables import HELP, Column, draw_values, pick_row
from cems_workbench.ui.kit.widgets import cancellable, download, remembered
from cems_workbench.ui.label import state
from cems_workbench.ui.label.card import CARD_WIDTH_PX, draw_grades, drawn_card, progress_bar, split_meaning, with_key
from cems_workbench.ui.label.state import ALL_QUERIES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


CALIBRATION = "label:judge:calibration"


def draw(resources: Resources) -> None:
    """Agreement coefficients of the store or a queue, the conflicts as cards, and who gave which grade."""
    write_script("label_keys")
    queues = [queue.name for queue in resources.store.queues.read()]
    open_now = st.session_state.get(state.QUEUE)
    if state.OF not in st.session_state and open_now in queues:
        compared = len({label.judge for label in resources.store.queues.labels(open_now)}) > 1
        st.session_state[state.OF] = open_now if compared else ALL_QUERIES
    of = st.selectbox("Labels of", [ALL_QUERIES, *queues], **remembered(state.OF))
    every = resources.store.judgments.read(kind="human") if of == ALL_QUERIES else resources.store.queues.labels(of)
    labels, of_store = of_memories(every)
    relevant_from = resources.store.query_sets.relevant_from_of([judgment.qid for judgment in of_store])
    if whole_queries := str(agreement.no_answer_agreement(every, relevant_from)):
        st.caption(f"{whole_queries}.")
    table = agreement.label_table(labels)
    if not draw_summary(table):
        return
    queries = {query.qid: query for query in resources.store.queries.read()}
    draw_conflicts(labels, queries, resources, reviewer(), of)
    draw_matrix(table, "label:matrix")
    st.markdown(f"## {agreement.KAPPA_NAME}, weighted, per pair of reviewers", help=HELP["label:kappa"])
    pairs = {" and ".join(both): kappa for both, kappa in agreement.pairwise_kappa(table).items()}
    _estimates("reviewers", pairs, agreement.kappa_reading, "label:kappa")
    types = agreement.alpha_by_type(labels, {qid: query.type or "" for qid, query in queries.items()})
    st.markdown(f"## {agreement.ALPHA_NAME} by query type", help=HELP["label:alpha"])
    by_type = {kind or "(no type)": estimate for kind, estimate in types.items()}
    _estimates("type", by_type, agreement.alpha_reading, "label:alpha", most=8)


def draw_summary(table: agreement.LabelTable) -> bool:
    """Draw the agreement of all reviewers in a line; False, with what it needs, where no two graded the same pair."""
    whole = agreement.alpha(table) if len(table.reviewers) > 1 else None
    if whole is None or not whole.pairs:
        needed = "Create a queue with more than one reviewer per pair."
        st.info(f"Agreement needs two reviewers who graded the same pairs. {needed}")
        return False
    st.markdown(
        f"Agreement of the reviewers, {agreement.ALPHA_NAME}: **{whole}**, {agreement.alpha_reading(whole)}.",
        help=HELP["label:alpha"],
    )
    return True


def draw_matrix(table: agreement.LabelTable, key: str) -> None:
    """Draw how often each grade of one reviewer met each of another, of the two with most pairs or chosen ones."""
    found = {both: agreement.confusions(table, *both).sum(0) for both in combinations(range(len(table.reviewers)), 2)}
    found = {both: counts for both, counts in found.items() if counts.sum()}
    if not found:
        return
    st.markdown("## Grade by grade")
    both = max(found, key=lambda both: float(found[both].sum()))
    if len(found) > 1:
        key_of: Any = {
            "key": f"{key}:of",
            "format_func": lambda both: f"{table.reviewers[both[0]]} and {table.reviewers[both[1]]}",
        }
        both = st.selectbox("Reviewers", list(found), list(found).index(both), **key_of)
    first, second = (table.reviewers[place] for place in both)
    grades = [f"{grade:g}" for grade in table.values]
    counts = found[both].astype(int).tolist()
    draw_chart(
        heatmap(counts, grades, grades, tick(first), tick(second)),
        key=key,
        alt=f"Matrix of grades by {first} (rows) and {second} (columns).",
        table=lambda: [
            {first: grade} | dict(zip(grades, row, strict=True)) for grade, row in zip(grades, counts, strict=True)
        ],
        width=120 + 96 * len(grades),
    )


def judgments_file(of: str, form: str) -> str:
    """The name of a file of judgments: whose they are, the day, and the ending of its format."""
    return f"{safe_stem(f'{of}-{datetime.now(UTC):%Y-%m-%d}', 'judgments', 100)}{FORMATS[form].suffixes[0]}"


def draw_decided(labels: Sequence[Judgment], resources: Resources, of: str, key: str) -> None:
    """Draw the export of the grades that were decided for the pairs of these labels, once there are any."""
    pairs = {(one.qid, one.memory_id) for one in labels}
    decisions = [one for one in resources.store.decisions.read() if (one.qid, one.memory_id) in pairs]
    decided = agreement.settled(one for one in agreement.adjudicate((), "decided", decisions) if one.decided_by)
    if not decided:
        return
    form = next(iter(judgment_writers()))
    written = write_judgments(form, decided, {query.qid: query for query in resources.store.queries.read()})
    label, file = f"Export {counted(written.rows, 'decided grades')}", judgments_file(f"{of}-decided", form)
    download(label, written.text, file, key)


@st.fragment
def draw_conflicts(
    labels: Sequence[Judgment], queries: Mapping[str, Query], resources: Resources, name: str | None, of: str
) -> None:
    """Draw the next conflict that nobody has decided as a card, which a key decides, or that none is left."""
    if name is None:
        session.ask()
        st.caption("Enter your name to decide conflicts.")
        return
    conflicts, shown = agreement.disagreements(labels), state.present()
    left = agreement.undecided(conflicts, resources.store)
    left.sort(key=lambda one: shown.put_off.index(one.pair) if one.pair in shown.put_off else -1)
    parts = [f"{len(conflicts) - len(left)} of {counted(len(conflicts), 'conflicts')} decided"]
    bar = progress_bar(100 * (1 - len(left) / max(1, len(conflicts))), f"{len(left)}", "left", parts)
    with st.container(width=CARD_WIDTH_PX):
        if shown.problem:
            st.error(plain(shown.problem), icon=":material/block:")
        query, memory = (
            (queries.get(left[0].qid), resources.store.memories.get(left[0].memory_id)) if left else (None, None)
        )
        card = None if query is None or memory is None else Card("conflicts", query, memory)
        st.html(bar + (drawn_card(card, shown.conflict_no, resources) if card is not None else ""))
        if left:
            pair = left[0].pair
            who = ", ".join(f"{plain(judge)} **{grade}**" for judge, grade in sorted(left[0].grades.items()))
            st.markdown(who if card is not None else f"{who}. Its query or memory no longer exists: skip it.")
            press = partial(state.decide, resources, name, shown.conflict_no, pair)
            if card is not None:
                draw_grades(resources.store.query_sets.scale_of(pair[0]), shown.conflict_no, press)
        else:
            st.caption("All conflicts are decided." if conflicts else "No two reviewers disagree.")
        box = st.container(horizontal=True, vertical_alignment="center")
        undo: Any = {"on_click": state.undo_decision, "args": (resources, name), "disabled": not shown.decided}
        box.button(with_key("Undo", "U"), "label:undo", icon=":material/undo:", **undo)
        if left:
            skip: Any = {"on_click": press, "args": ("skip",), "icon": ":material/skip_next:"}
            box.button(with_key("Skip", "S"), f"label:skip:{shown.conflict_no}", **skip)
        box.caption(shown.message)
        draw_decided(labels, resources, of, "label:agreement:decided")


def _estimates(
    first: str,
    estimates: Mapping[str, agreement.Estimate],
    reading: Callable[[agreement.Estimate], str],
    key: str,
    **options: Any,
) -> None:
    rows = [(name, str(one), one.pairs, reading(one)) for name, one in estimates.items() if one.pairs]
    draw_values((first, "coefficient", "pairs", "read as"), rows, key=key, help=HELP["label:estimates"], **options)


def _query(qid: str, queries: Mapping[str, Query]) -> str:
    return queries[qid].query if qid in queries else qid


def _content(memory_id: str, memories: Mapping[str, Memory]) -> str:
    return excerpt(memories[memory_id].content) if memory_id in memories else ""


def _draw_in_full(qid: str, memory_id: str, queries: Mapping[str, Query], resources: Resources) -> Memory | None:
    """Draw a pair's query and whole memory; the memory, None if it is gone."""
    memory = resources.store.memories.get(memory_id)
    if memory is None:
        st.caption("This memory no longer exists.")
        return None
    st.markdown(f"**{plain(_query(qid, queries))}**")
    st.code(neutralise(memory.content), language=None, wrap_lines=True)
    return memory


MAX_ROWS = 200


def draw_differences(
    pairs: Sequence[calibration.GradedScore],
    scores: PairScores,
    scale: JudgeScale,
    relevant_from: int,
    resources: Resources,
) -> None:
    """Draw the differences, largest first, and the selected one."""
    every = calibration.differences(pairs, scale, relevant_from)
    marks: dict[Pair, list[LabelEvent]] = {}
    for mark in resources.store.labels.judged_wrong():
        if mark.note == scores.judge:
            marks.setdefault((mark.qid, mark.memory_id), []).append(mark)
    title, toggle = st.columns([4, 1.3], vertical_alignment="center")
    title.markdown(f"## {counted(len(every), 'pairs')} that only one calls relevant", help=HELP["label:differences"])
    hide = toggle.toggle("Hide “judge wrong”", **remembered("label:differences:hide"))
    shown = [difference for difference in every if not (hide and difference.scored.pair in marks)][:MAX_ROWS]
    if not shown:
        st.caption("No pairs left." if every else "They agree on every pair.")
        return
    queries = {query.qid: query for query in resources.store.queries.read()}
    memories = resources.store.memories.read({difference.scored.memory_id for difference in shown})

    def wrong(one: calibration.Difference) -> str:
        return ", ".join(mark.judge for mark in marks.get(one.scored.pair, ()))

    columns: list[Column[calibration.Difference]] = [
        Column("people", lambda one: one.scored.grade, 64, help="The grade, or the median of several"),
        Column("judge", lambda one: one.band, 112, help="The band of the judge’s score"),
        Column("score", lambda one: one.scored.raw, 72, "%.3g"),
        Column("judge wrong", wrong, 96, help="Who marked the judge as wrong"),
        Column("query", lambda one: _query(one.scored.qid, queries)),
        Column("memory", lambda one: _content(one.scored.memory_id, memories)),
    ]
    picked = pick_row(shown, columns, key="label:differences", most=8)
    if problem := state.present().difference_problem:
        st.error(plain(problem), icon=":material/block:")
    if picked is None:
        first = f"The first {MAX_ROWS} are shown. " if len(every) > MAX_ROWS else ""
        st.caption(f"{first}Select a pair to read it in full, relabel it, or mark the judge as wrong.")
        return
    _draw_pair(picked, scores, marks.get(picked.scored.pair, ()), queries, resources)


def _draw_pair(
    difference: calibration.Difference,
    scores: PairScores,
    marks: Sequence[LabelEvent],
    queries: Mapping[str, Query],
    resources: Resources,
) -> None:
    """A pair in full with all grades, and the buttons to relabel it or to mark the judge as wrong."""
    qid, memory_id = difference.scored.pair
    if _draw_in_full(qid, memory_id, queries, resources) is None:
        return
    judgments = [one for one in resources.store.judgments.read(qid, "human") if one.memory_id == memory_id]
    people = ", ".join(f"{plain(judgment.judge)} {judgment.grade}" for judgment in judgments)
    score = difference.scored.raw
    st.caption(f"People: {people}. Judge: {difference.band}, score {threshold_text(score)}.")
    name = reviewer()
    if name is None:
        st.caption("Enter your name in the Label view to answer.")
        return
    box, labels = st.container(horizontal=True, vertical_alignment="center"), resources.store.labels
    shown = {"query": _query(qid, queries), "blind": False, "judge": scores.judge, "score": score}

    def label(grade: int) -> None:
        with state.guarded("reviewer", "difference_problem"):
            labels.give(Judgment(qid, memory_id, grade, name), shown)
            state.update(difference_problem="")

    def mark(mine: LabelEvent | None) -> None:
        with state.guarded("reviewer", "difference_problem"):
            labels.call_judge_wrong(qid, memory_id, name, scores.judge) if mine is None else labels.take_back(mine)
            state.update(difference_problem="")

    for grade, meaning in resources.store.query_sets.scale_of(qid).grades:
        words, key = f"**{grade}** {plain(split_meaning(meaning)[0])}", f"label:differ:{grade}"
        box.button(words, key=key, help=plain(meaning), on_click=label, args=(grade,))
    mine = next((mark for mark in marks if mark.judge == name), None)
    box.button(
        "Undo “judge wrong”" if mine else "Judge is wrong",
        key="label:differ:wrong",
        icon=":material/gavel:",
        on_click=mark,
        args=(mine,),
        help="Saved with your name and the judge’s; no grade changes.",
    )


def threshold_text(value: float) -> str:
    """A score or threshold with three significant digits and a typographic minus."""
    return f"{value:.3g}".replace("-", "−")


BLUE, ORANGE = "#0072B2", "#D55E00"
CHART_HEIGHT_PX = 300


def draw_judge(resources: Resources) -> None:
    """Draw the choice of labels, the judge's scores, and the comparison of both."""
    config = inspect_state.present_config()
    grades, relevant_from = _choose(resources)
    labelled = {(qid, memory_id) for qid, row in grades.items() for memory_id in row}
    if not labelled:
        st.info("No person has graded anything here yet. Label some cards, or import judgments under Files.")
        return
    if JUDGE.is_off(config):
        st.info("The judge is off. Choose one in the sidebar of Inspect under Judge; auto uses the best one available.")
        return
    # Threshold and bands only interpret the scores.
    judge = config.judge.model_copy(update={"threshold": None, "bands": None})
    key = (str(resources.store.path), resources.store.content_version, judge)
    scores = _scores(key, labelled, config, resources)
    if scores is None:
        return
    pairs, scale = calibration.graded_scores(grades, scores.scores), scores.scale(config.judge)
    if not pairs:
        st.info("The judge has no scores for these pairs.")
        return
    inputs = (key, hash(tuple(pairs)), relevant_from, scale.threshold)
    found = kept(CALIBRATION, inputs, lambda: calibration.calibrate(pairs, scale.threshold, relevant_from))
    _numbers(found, len(pairs), scores, config)
    _charts(found, pairs, scale, relevant_from)
    draw_differences(pairs, scores, scale, relevant_from, resources)


def _choose(resources: Resources) -> tuple[Grades, int]:
    """People's grades of the chosen queries, and the lowest grade that counts as relevant."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    sets = [ALL_QUERIES, *sorted(query_set.name for query_set in resources.store.query_sets.latest())]
    name = left.selectbox("Labels of people for", sets, **remembered("label:judge:set"))
    relevant_from = right.number_input("Relevant from grade", 1, 10, 2, **remembered("label:judge:from"))
    grades = agreed_grades(resources.store.judgments.read(kind="human"), "human")
    if name != ALL_QUERIES:
        qids = {query.qid for query in resources.store.query_sets.queries(name)}
        grades = {qid: row for qid, row in grades.items() if qid in qids}
    return grades, int(relevant_from)


def _scores(key: object, labelled: set[Pair], config: PipelineConfig, resources: Resources) -> PairScores | None:
    """The judge's scores computed so far; a button requests the missing ones."""
    cached = state.present().judge_scores
    scores = cached[1] if cached is not None and cached[0] == key else None
    missing = labelled - {*scores.scores, *scores.failed} if scores else labelled
    if missing:
        box, button = st.columns([4, 1.2], vertical_alignment="center")
        new = "were added since the judge ran" if scores else "for the judge to score"
        box.caption(f"{len(missing):,} labelled pairs {new}. Earlier scores come from the store.")
        icon = ":material/gavel:"
        if button.button("Ask the judge", key="label:judge:ask", type="primary", icon=icon, width="stretch"):
            with cancellable("label:cancel:judge") as progress:
                scores = score_pairs(sorted(labelled), config, resources, progress)
            state.update(judge_scores=(key, scores))
            st.rerun()
    if scores is not None and scores.instead:
        st.warning(plain(scores.instead), icon=":material/swap_horiz:")
    return scores


def _numbers(found: calibration.Calibration, pairs: int, scores: PairScores, config: PipelineConfig) -> None:
    threshold = scores.scale(config.judge).threshold
    whose = "the judge’s own threshold" if config.judge.threshold is None else "the threshold set in Inspect"
    failed = f" No score: {counted(len(scores.failed), 'pairs')}." if scores.failed else ""
    st.caption(f"{pairs:,} pairs graded by people and by {plain(scores.judge)}, with {whose}.{failed}")
    now, best, act = st.columns([1, 1.3, 0.9], vertical_alignment="bottom")
    _kappa(now, f"Agreement now, above {threshold_text(threshold)}", found.present, HELP["label:judge:kappa"])
    if found.threshold is None or found.low is None or found.high is None:
        best.caption("No best threshold: needs both relevant and irrelevant pairs with different scores.")
        return
    between = f"{threshold_text(found.low)} to {threshold_text(found.high)}"
    _kappa(best, f"Best: above {threshold_text(found.threshold)} ({between})", found.kappa, HELP["label:judge:best"])
    same = config.judge.threshold == found.threshold
    act.button(
        "Threshold is applied" if same else f"Apply threshold {threshold_text(found.threshold)}",
        key="label:judge:apply",
        disabled=same,
        icon=":material/check:" if same else ":material/tune:",
        width="stretch",
        on_click=inspect_state.apply,
        args=({"judge.threshold": found.threshold},),
        help=HELP["label:judge:apply"],
    )


def _kappa(place: DeltaGenerator, name: str, kappa: agreement.Estimate, help: str) -> None:
    value, _, interval = str(kappa).partition(" (")
    place.metric(name, value, help=help)
    if kappa.value is not None:
        place.caption(f"{agreement.KAPPA_NAME}, {interval.rstrip(')')}: {agreement.kappa_reading(kappa)}")


def _charts(
    found: calibration.Calibration, pairs: Sequence[calibration.GradedScore], scale: JudgeScale, relevant_from: int
) -> None:
    meanings = {grade: meaning.partition(":")[0].split(",")[0] for grade, meaning in DEFAULT_SCALE.grades}
    st.markdown("## Grades of people and bands of the judge")
    confusion = calibration.band_confusion(pairs, scale)
    people = [f"{grade} {meanings.get(grade, '')}" for grade in confusion]
    counts = [list(row) for row in confusion.values()]
    draw_chart(
        heatmap(counts, people, BANDS, "people", "judge"),
        key="label:judge:bands",
        alt="Matrix of people’s grades (rows) and the judge’s bands (columns).",
        table=lambda: [
            {"people": name} | dict(zip(BANDS, row, strict=True)) for name, row in zip(people, counts, strict=True)
        ],
    )
    left, right = st.columns(2)
    with left:
        st.markdown("## Agreement by threshold", help=HELP["label:judge:best"])
        curve = zip(found.thresholds.tolist(), found.kappas.tolist(), strict=True)
        draw_chart(
            agreement_figure(found, scale.threshold),
            key="label:judge:kappa",
            alt="Line chart: kappa by threshold.",
            table=lambda: [{"threshold": threshold, "kappa": kappa} for threshold, kappa in curve],
        )
    with right:
        probability, own = calibration.probabilities(pairs)
        bins = calibration.reliability(probability, [pair.grade >= relevant_from for pair in pairs])
        error = calibration.calibration_error(bins)
        title = "## Reliability" + ("" if error is None else f" · calibration error {error:.2f}")
        st.markdown(title, help=HELP["label:judge:reliability"])
        draw_chart(
            reliability_chart(
                [(one.probability, one.share, one.low, one.high) for one in bins],
                [
                    lines(
                        f"judge {one.probability:.2f}, people {one.share:.2f} ({one.low:.2f} to {one.high:.2f})",
                        f"{one.pairs} pairs",
                    )
                    for one in bins
                ],
                f"judge’s probability ({'its score' if own else 'sigmoid of its score'})",
                "share relevant",
                height=CHART_HEIGHT_PX,
            ),
            key="label:judge:reliability",
            alt="Reliability chart: share called relevant by people, by the judge's probability in bins.",
            table=lambda: [asdict(one) for one in bins],
        )


def agreement_figure(found: calibration.Calibration, present: float) -> Figure:
    """Kappa by threshold; the best one solid with its interval shaded, the current one dotted."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.add_scatter(
        x=found.thresholds,
        y=found.kappas,
        mode="lines",
        line={"color": BLUE, "width": 2, "shape": "hv"},
        name="kappa",
        hovertemplate=hover("above %{x:.4g} is relevant", "kappa %{y:.3f}"),
    )
    values = [*found.thresholds.tolist(), present]
    low, wide = min(values), max(values) - min(values) or 1.0
    marks = [(f"now {present:.3g}", present, {"color": ORANGE, "width": 2, "dash": "dot"})]
    if found.threshold is not None:
        figure.add_vrect(x0=found.low, x1=found.high, fillcolor=BLUE, opacity=0.13, line_width=0)
        marks.insert(0, (f"best {found.threshold:.3g}", found.threshold, {"color": BLUE, "width": 2}))
    for text, x, line in marks:
        figure.add_vline(x=x, line=line)
        # Over its line, aligned inwards near an edge; in two rows, so that neighbours do not overlap.
        side = "left" if x < low + 0.12 * wide else "right" if x > low + 0.88 * wide else "center"
        place = {"x": x, "xanchor": side, "yref": "paper", "y": 1.0, "yanchor": "bottom"}
        shift = 15 if text.startswith("now") else 0
        figure.add_annotation(text=text, yshift=shift, showarrow=False, font={"size": 12}, **place)
    across = {"title": "threshold of the judge’s score", "range": [low - 0.04 * wide, low + 1.04 * wide]}
    up = {"title": "Cohen’s kappa", "rangemode": "tozero"}
    figure.update_layout(layout(CHART_HEIGHT_PX, across, up, margin={"t": 40}))
    return figure
