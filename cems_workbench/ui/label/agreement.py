"""Agreement of reviewers, and of people and a model judge: kappa, conflicts and how they are resolved, and the best threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.grades import Grades, agreed_grades
from cems_workbench.evaluation.labelling.agreement import (
    ALPHA_NAME,
    KAPPA_NAME,
    Disagreement,
    Estimate,
    Rule,
    Verdict,
    adjudicate,
    alpha,
    alpha_by_type,
    alpha_reading,
    disagreements,
    kappa_reading,
    label_table,
    no_answer_agreement,
    pairwise_kappa,
)
from cems_workbench.evaluation.labelling.judge_calibration import (
    Bin,
    Calibration,
    Difference,
    GradedScore,
    band_confusion,
    calibrate,
    calibration_error,
    differences,
    graded_scores,
    probabilities,
    reliability,
)
from cems_workbench.evaluation.labelling.pooling import Pair, PairScores, score_pairs
from cems_workbench.formats.base.judgments import of_memories
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import JUDGE
from cems_workbench.pipeline.stages.judge import BANDS
from cems_workbench.platform.bidi import neutralise
from cems_workbench.records import DEFAULT_SCALE, JudgeScale, Judgment, Query
from cems_workbench.store import LabelEvent
from cems_workbench.ui.inspect import state as inspect_state
from cems_workbench.ui.kit.charts import dashed_diagonal, draw_chart, hover, layout
from cems_workbench.ui.kit.html import excerpt, plain, render
from cems_workbench.ui.kit.session import reviewer
from cems_workbench.ui.kit.tables import Column, draw_table, pick_row
from cems_workbench.ui.kit.widgets import cancellable, switch
from cems_workbench.ui.label import state
from cems_workbench.ui.label.card import split_meaning
from cems_workbench.ui.label.state import JudgeComparison, JudgeScores

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


RULES: dict[str, Rule] = {"Majority": "majority", "Strictest": "strictest"}
ALPHA_HELP = (
    "Agreement beyond chance over all reviewers; ordinal: grades far apart count more. 1 is full agreement, 0 is chance. "
    "Interval: bootstrap over queries. Usually read as reliable from 0.8, tentative from 0.667 (Krippendorff, 2004)."
)
KAPPA_HELP = (
    "Agreement of two reviewers beyond chance; weighted: grades far apart count more, by the square. 1 is full agreement, 0 is chance. "
    "Interval: bootstrap over queries. Usually read as slight up to 0.2, fair to 0.4, moderate to 0.6, substantial to 0.8, then almost "
    "perfect (Landis and Koch, 1977)."
)
RULE_HELP = (
    "Majority: the most frequent grade; open on a tie. Strictest: the lowest. A named decision overrides the rule. Raw labels are "
    "unchanged."
)


def draw(resources: Resources) -> None:
    """Agreement coefficients, the conflicts, and the form to decide the selected one."""
    every = resources.store.judgments.read(kind="human")
    labels, of_store = of_memories(every)
    relevant_from = resources.store.query_sets.relevant_from_of([judgment.qid for judgment in of_store])
    if whole_queries := str(no_answer_agreement(every, relevant_from)):
        st.caption(f"{whole_queries}.")
    table = label_table(labels)
    whole = alpha(table) if labels else None
    if whole is None or not whole.pairs:
        st.info(
            "Agreement needs two reviewers who graded the same pairs. Create a queue with more than one reviewer per pair."
        )
        return
    st.markdown(f"{ALPHA_NAME} over all: **{whole}**, {alpha_reading(whole)}.", help=ALPHA_HELP)
    st.markdown(f"## {KAPPA_NAME}, weighted, per pair of reviewers", help=KAPPA_HELP)
    agreements = [
        (f"{one.first} and {one.second}", one.kappa, kappa_reading(one.kappa))
        for one in pairwise_kappa(table)
        if one.kappa.pairs
    ]
    draw_table(agreements, _estimate_columns("reviewers"), key="label:kappa")
    queries = {query.qid: query for query in resources.store.queries.read()}
    types = {qid: query.type or "" for qid, query in queries.items()}
    st.markdown(f"## {ALPHA_NAME} by query type", help=ALPHA_HELP)
    alphas = [
        (kind or "(no type)", estimate, alpha_reading(estimate))
        for kind, estimate in alpha_by_type(labels, types).items()
        if estimate.pairs
    ]
    draw_table(alphas, _estimate_columns("type"), key="label:alpha", most=8)
    _conflicts(resources, labels, queries)


def _conflicts(resources: Resources, labels: list[Judgment], queries: dict[str, Query]) -> None:
    """The pairs with different grades, and the grade that the rule or a person's decision gives each."""
    conflicts = disagreements(labels)
    st.markdown(f"## {len(conflicts)} conflicts")
    if not conflicts:
        st.caption("No two reviewers disagree.")
        return
    rule = switch("Rule", list(RULES), "label:rule", "Majority", help=RULE_HELP, labelled=True)
    decisions = resources.store.decisions.read()
    verdicts = {(one.qid, one.memory_id): one for one in adjudicate(labels, RULES[rule], decisions)}
    memories = resources.store.memories.read([conflict.memory_id for conflict in conflicts])

    def verdict(one: Disagreement) -> Verdict:
        return verdicts[one.qid, one.memory_id]

    def query(one: Disagreement) -> str:
        return queries[one.qid].query if one.qid in queries else one.qid

    columns: list[Column[Disagreement]] = [
        Column("spread", lambda one: one.spread),
        Column(
            "grades", lambda one: ", ".join(f"{name} {grade}" for name, grade in sorted(verdict(one).labels.items()))
        ),
        Column("settled", lambda one: "open" if verdict(one).grade is None else f"{verdict(one).grade}"),
        Column("query", query),
        Column("memory", lambda one: excerpt(memories[one.memory_id].content) if one.memory_id in memories else ""),
    ]
    picked = pick_row(conflicts, columns, key="label:conflicts", most=10)
    name = reviewer()
    if picked is not None and name is not None:
        _decide(resources, picked, query(picked), name)
    else:
        st.caption(
            "Select a conflict to decide it." if name else "Enter your name in the Label view to decide conflicts."
        )


def _decide(resources: Resources, conflict: Disagreement, query: str, reviewer: str) -> None:
    """The conflict in full, and a button per grade to decide it."""
    memory = resources.store.memories.get(conflict.memory_id)
    if memory is None:
        st.caption("This memory no longer exists.")
        return
    st.markdown(f"**{plain(query)}**")
    st.code(neutralise(memory.content), language=None, wrap_lines=True)
    box = st.container(horizontal=True)
    for grade, meaning in resources.store.query_sets.scale_of(conflict.qid).grades:
        if box.button(str(grade), key=f"label:decide:{grade}", help=plain(meaning)):
            try:
                resources.store.decisions.decide(conflict.qid, conflict.memory_id, grade, reviewer)
            except WorkbenchError as error:
                st.error(plain(str(error)))
                return
            st.rerun()


def _estimate_columns(first: str) -> list[Column[tuple[str, Estimate, str]]]:
    return [
        Column(first, lambda row: row[0]),
        Column("coefficient", lambda row: str(row[1]), 240),
        Column("pairs", lambda row: row[1].pairs, 60, help="Graded by both, or by two or more"),
        Column("read as", lambda row: row[2], help="In brackets: the readings at both ends of the interval"),
    ]


MAX_ROWS = 200
Marks = Mapping[Pair, Sequence[LabelEvent]]
"""By pair: the events that mark the judge as wrong."""


def draw_differences(
    pairs: Sequence[GradedScore], scores: PairScores, scale: JudgeScale, relevant_from: int, resources: Resources
) -> None:
    """Draw the differences, largest first, and the selected one."""
    every = differences(pairs, scale, relevant_from)
    marks = _marks(resources, scores.judge)
    title, toggle = st.columns([4, 1.3], vertical_alignment="center")
    title.markdown(
        f"## {len(every)} pairs that only one of them calls relevant",
        help="Largest difference first: by the distance between the person’s grade and the grade of the judge’s band, then by the "
        "distance of the score from the threshold.",
    )
    hide = toggle.toggle("Hide “judge wrong”", key="label:differences:hide", persist_state="session")
    shown = [difference for difference in every if not (hide and difference.scored.pair in marks)][:MAX_ROWS]
    if not shown:
        st.caption("No pairs left." if every else "They agree on every pair.")
        return
    queries = {query.qid: query for query in resources.store.queries.read()}
    memories = resources.store.memories.read({difference.scored.memory_id for difference in shown})

    def text(one: Difference) -> str:
        memory = memories.get(one.scored.memory_id)
        return "" if memory is None else excerpt(memory.content)

    columns: list[Column[Difference]] = [
        Column("people", lambda one: one.scored.grade, 64, help="The grade, or the median of several"),
        Column("judge", lambda one: one.band, 112, help="The band of the judge’s score"),
        Column("score", lambda one: one.scored.raw, 72, "%.3g"),
        Column(
            "judge wrong",
            lambda one: ", ".join(mark.judge for mark in marks.get(one.scored.pair, ())),
            96,
            help="Who marked the judge as wrong",
        ),
        Column("query", lambda one: queries[one.scored.qid].query if one.scored.qid in queries else one.scored.qid),
        Column("memory", text),
    ]
    picked = pick_row(shown, columns, key="label:differences", most=8)
    if problem := state.present().difference_problem:
        st.error(plain(problem), icon=":material/block:")
    if picked is None:
        first = f"The first {MAX_ROWS} are shown. " if len(every) > MAX_ROWS else ""
        st.caption(f"{first}Select a pair to read it in full, relabel it, or mark the judge as wrong.")
        return
    _draw_pair(picked, scores, marks.get(picked.scored.pair, ()), queries, resources)


def _marks(resources: Resources, judge: str) -> Marks:
    """The marks against this judge, by pair."""
    marks: dict[Pair, list[LabelEvent]] = {}
    for mark in resources.store.labels.judged_wrong():
        if mark.note == judge:
            marks.setdefault((mark.qid, mark.memory_id), []).append(mark)
    return marks


def _draw_pair(
    difference: Difference,
    scores: PairScores,
    marks: Sequence[LabelEvent],
    queries: Mapping[str, Query],
    resources: Resources,
) -> None:
    """A pair in full with all grades, and the buttons to relabel it or to mark the judge as wrong."""
    qid, memory_id = difference.scored.pair
    query, memory = queries.get(qid), resources.store.memories.get(memory_id)
    if query is None or memory is None:
        st.caption("This query or memory no longer exists.")
        return
    judgments = [
        judgment for judgment in resources.store.judgments.read(qid, "human") if judgment.memory_id == memory_id
    ]
    people = ", ".join(f"{plain(judgment.judge)} {judgment.grade}" for judgment in judgments)
    st.markdown(f"**{plain(query.query)}**")
    st.code(neutralise(memory.content), language=None, wrap_lines=True)
    score = difference.scored.raw
    st.caption(f"People: {people}. Judge: {difference.band}, score {threshold_text(score)}.")
    name = reviewer()
    if name is None:
        st.caption("Enter your name in the Label view to answer.")
        return
    box = st.container(horizontal=True, vertical_alignment="center")
    shown = {"query": query.query, "blind": False, "judge": scores.judge, "score": score}
    for grade, meaning in resources.store.query_sets.scale_of(qid).grades:
        box.button(
            f"**{grade}** {plain(split_meaning(meaning)[0])}",
            key=f"label:differ:{grade}",
            help=plain(meaning),
            on_click=_label,
            args=(resources, Judgment(qid, memory_id, grade, name), shown),
        )
    mine = next((mark for mark in marks if mark.judge == name), None)
    box.button(
        "Undo “judge wrong”" if mine else "Judge is wrong",
        key="label:differ:wrong",
        icon=":material/gavel:",
        on_click=_mark,
        args=(resources, (qid, memory_id), name, scores.judge, mine),
        help="Saved with your name and the judge’s; no grade changes.",
    )


def threshold_text(value: float) -> str:
    """A score or threshold with three significant digits and a typographic minus."""
    return f"{value:.3g}".replace("-", "−")


def _label(resources: Resources, judgment: Judgment, shown: Mapping[str, Any]) -> None:
    _write(lambda: resources.store.labels.give(judgment, shown))


def _mark(resources: Resources, pair: Pair, reviewer: str, judge: str, mine: LabelEvent | None) -> None:
    if mine is None:
        _write(lambda: resources.store.labels.call_judge_wrong(*pair, reviewer, judge))
    else:
        _write(lambda: resources.store.labels.take_back(mine))


def _write(commit: Callable[[], object]) -> None:
    """Run a write; an error is shown below the table."""
    try:
        commit()
        state.update(difference_problem="")
    except WorkbenchError as error:
        state.update(difference_problem=str(error))


BLUE, ORANGE = "#0072B2", "#D55E00"
CHART_HEIGHT_PX = 300
ALL_QUERIES = "all queries"
JUDGE_KAPPA_HELP = (
    "Cohen’s kappa: agreement beyond chance on relevant or not; 1 is full, 0 is chance. 95 % interval: bootstrap over "
    "queries."
)
BEST_HELP = (
    "The threshold with the highest kappa. In brackets its 95 % interval: the best thresholds of a thousand bootstrap samples of "
    "queries. A wide interval means that more labels are needed."
)
RELIABILITY_HELP = (
    "Pairs in ten bins by the judge’s probability, against the share that people call relevant, with 95 % intervals. On the dashed "
    "line the judge is calibrated; above it the judge is too strict, below too lenient."
)


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
    key = (str(resources.store.path), resources.store.content_version, _judge_key(config))
    scores = _scores(key, labelled, config, resources)
    if scores is None:
        return
    comparison = _comparison(key, scores, grades, relevant_from, config)
    if not comparison.pairs:
        st.info("The judge has no scores for these pairs.")
        return
    _numbers(comparison, config)
    _charts(comparison, config)
    draw_differences(comparison.pairs, scores, scores.scale(config.judge), relevant_from, resources)


def _choose(resources: Resources) -> tuple[Grades, int]:
    """People's grades of the chosen queries, and the lowest grade that counts as relevant."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    sets = [ALL_QUERIES, *sorted(query_set.name for query_set in resources.store.query_sets.latest())]
    name = left.selectbox("Labels of people for", sets, key="label:judge:set", persist_state="session")
    relevant_from = right.number_input(
        "Relevant from grade",
        1,
        10,
        2,
        key="label:judge:from",
        persist_state="session",
        help="The lowest grade that counts as relevant when a person’s grade is compared with the judge’s yes or no.",
    )
    grades = agreed_grades(resources.store.judgments.read(kind="human"), "human")
    if name != ALL_QUERIES:
        qids = {query.qid for query in resources.store.query_sets.queries(name)}
        grades = {qid: row for qid, row in grades.items() if qid in qids}
    return grades, int(relevant_from)


def _judge_key(config: PipelineConfig) -> object:
    """The part of a config that determines the scores; threshold and bands only interpret them."""
    return config.judge.model_copy(update={"threshold": None, "bands": None})


def _scores(key: object, labelled: set[Pair], config: PipelineConfig, resources: Resources) -> PairScores | None:
    """The judge's scores computed so far; a button requests the missing ones."""
    cached = state.present().judge_scores
    scores = cached.scores if cached is not None and cached.key == key else None
    missing = labelled - {*scores.scores, *scores.failed} if scores else labelled
    if missing:
        box, button = st.columns([4, 1.2], vertical_alignment="center")
        box.caption(
            f"{len(missing):,} labelled pairs {'were added since the judge ran' if scores else 'for the judge to score'}. "
            "Earlier scores come from the store."
        )
        if button.button(
            "Ask the judge", key="label:judge:ask", type="primary", icon=":material/gavel:", width="stretch"
        ):
            with cancellable("label:cancel:judge") as progress:
                scores = score_pairs(sorted(labelled), config, resources, progress)
            state.update(judge_scores=JudgeScores(key, scores))
            st.rerun()
    if scores is not None and scores.instead:
        st.warning(plain(scores.instead), icon=":material/swap_horiz:")
    return scores


def _comparison(
    key: object, scores: PairScores, grades: Grades, relevant_from: int, config: PipelineConfig
) -> JudgeComparison:
    """The comparison, recomputed when labels, threshold or scores change."""
    pairs = graded_scores(grades, scores.scores)
    threshold = scores.scale(config.judge).threshold
    inputs = (key, hash(tuple(pairs)), relevant_from, threshold)
    comparison = state.present().comparison
    if comparison is None or comparison.key != inputs:
        comparison = JudgeComparison(inputs, scores, pairs, relevant_from, calibrate(pairs, threshold, relevant_from))
        state.update(comparison=comparison)
    return comparison


def _numbers(comparison: JudgeComparison, config: PipelineConfig) -> None:
    """Draw the judge, the current and best agreement, and the button that applies the best threshold."""
    calibration, scores = comparison.calibration, comparison.scores
    threshold = scores.scale(config.judge).threshold
    whose = "the judge’s own threshold" if config.judge.threshold is None else "the threshold set in Inspect"
    failed = f" {len(scores.failed)} pairs have no score." if scores.failed else ""
    st.caption(f"{len(comparison.pairs):,} pairs graded by people and by {plain(scores.judge)}, with {whose}.{failed}")
    now, best, act = st.columns([1, 1.3, 0.9], vertical_alignment="bottom")
    _kappa(now, f"Agreement now, above {threshold_text(threshold)}", calibration.present, JUDGE_KAPPA_HELP)
    if calibration.threshold is None or calibration.low is None or calibration.high is None:
        best.caption("No best threshold: needs both relevant and irrelevant pairs with different scores.")
        return
    between = f"{threshold_text(calibration.low)} to {threshold_text(calibration.high)}"
    _kappa(best, f"Best: above {threshold_text(calibration.threshold)} ({between})", calibration.kappa, BEST_HELP)
    same = config.judge.threshold == calibration.threshold
    act.button(
        "Threshold is applied" if same else f"Apply threshold {threshold_text(calibration.threshold)}",
        key="label:judge:apply",
        disabled=same,
        icon=":material/check:" if same else ":material/tune:",
        width="stretch",
        on_click=inspect_state.apply,
        args=({"judge.threshold": calibration.threshold},),
        help="Sets judge.threshold in Inspect (undo it there) and wherever “as set in Inspect” is chosen. The bands do not change.",
    )


def _kappa(place: DeltaGenerator, name: str, kappa: Estimate, help: str) -> None:
    """Draw a kappa with its interval and conventional reading."""
    value, _, interval = str(kappa).partition(" (")
    place.metric(name, value, help=help)
    if kappa.value is not None:
        place.caption(f"{KAPPA_NAME}, {interval.rstrip(')')}: {kappa_reading(kappa)}")


def _charts(comparison: JudgeComparison, config: PipelineConfig) -> None:
    scale = comparison.scores.scale(config.judge)
    meanings = {grade: meaning.partition(":")[0].split(",")[0] for grade, meaning in DEFAULT_SCALE.grades}
    st.markdown("## Grades of people and bands of the judge")
    st.html(confusion_html(band_confusion(comparison.pairs, scale), meanings))
    left, right = st.columns(2)
    with left:
        st.markdown("## Agreement by threshold", help=BEST_HELP)
        calibration = comparison.calibration
        draw_chart(
            agreement_figure(calibration, scale.threshold),
            key="label:judge:kappa",
            alt="Line chart: kappa by threshold.",
            table=lambda: [
                {"threshold": float(threshold), "kappa": float(kappa)}
                for threshold, kappa in zip(calibration.thresholds, calibration.kappas, strict=True)
            ],
        )
    with right:
        probability, own = probabilities(comparison.pairs)
        bins = reliability(probability, [pair.grade >= comparison.relevant_from for pair in comparison.pairs])
        error = calibration_error(bins)
        st.markdown(
            "## Reliability" + ("" if error is None else f" · calibration error {error:.2f}"), help=RELIABILITY_HELP
        )
        draw_chart(
            reliability_figure(bins, own),
            key="label:judge:reliability",
            alt="Reliability chart: share called relevant by people, by the judge's probability in bins.",
            table=lambda: [
                {
                    "probability": each.probability,
                    "relevant": each.share,
                    "from": each.low,
                    "to": each.high,
                    "pairs": each.pairs,
                }
                for each in bins
            ],
        )


def confusion_html(confusion: Mapping[int, Sequence[int]], meanings: Mapping[int, str]) -> Markup:
    """Grades as rows, bands as columns; each cell shows its share of the row and is tinted by it."""
    return render("label/confusion.html", bands=BANDS, confusion=confusion, meanings=meanings)


def agreement_figure(calibration: Calibration, present: float) -> Figure:
    """Kappa by threshold; the best one solid with its interval shaded, the current one dotted."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.add_scatter(
        x=calibration.thresholds,
        y=calibration.kappas,
        mode="lines",
        line={"color": BLUE, "width": 2, "shape": "hv"},
        name="kappa",
        hovertemplate=hover("above %{x:.4g} is relevant", "kappa %{y:.3f}"),
    )
    low, high = _axis_range(calibration, present)
    if calibration.threshold is not None and calibration.low is not None and calibration.high is not None:
        figure.add_vrect(x0=calibration.low, x1=calibration.high, fillcolor=BLUE, opacity=0.13, line_width=0)
        figure.add_vline(x=calibration.threshold, line={"color": BLUE, "width": 2})
        best = f"best {calibration.threshold:.3g}"
        figure.add_annotation(_annotation(best, calibration.threshold, low, high, row=0))
    figure.add_vline(x=present, line={"color": ORANGE, "width": 2, "dash": "dot"})
    figure.add_annotation(_annotation(f"now {present:.3g}", present, low, high, row=1))
    across = {"title": "threshold of the judge’s score", "range": [low, high]}
    up = {"title": "Cohen’s kappa", "rangemode": "tozero"}
    figure.update_layout(layout(CHART_HEIGHT_PX, across, up, margin={"t": 40}))
    return figure


def _axis_range(calibration: Calibration, present: float) -> tuple[float, float]:
    """The axis range: all thresholds and the current one, with a margin."""
    values = [*map(float, calibration.thresholds), present]
    room = 0.04 * (max(values) - min(values) or 1.0)
    return min(values) - room, max(values) + room


def _annotation(text: str, x: float, low: float, high: float, row: int) -> dict[str, Any]:
    """A label over its line, aligned inwards near an edge; in two rows, so that neighbours do not overlap."""
    side = "left" if x < low + 0.15 * (high - low) else "right" if x > high - 0.15 * (high - low) else "center"
    return {
        "text": text,
        "x": x,
        "xanchor": side,
        "yref": "paper",
        "y": 1.0,
        "yanchor": "bottom",
        "yshift": 15 * row,
        "showarrow": False,
        "font": {"size": 12},
    }


def reliability_figure(bins: Sequence[Bin], own: bool) -> Figure:
    """Share relevant by the judge's probability, with intervals; the dashed line marks equality.

    `own`: the judge's scores are probabilities; other scores went through a sigmoid.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    dashed_diagonal(figure)
    figure.add_scatter(
        x=[pairs.probability for pairs in bins],
        y=[pairs.share for pairs in bins],
        mode="lines+markers",
        line={"color": BLUE, "width": 1},
        marker={"color": BLUE, "size": 9},
        error_y={
            "type": "data",
            "array": [pairs.high - pairs.share for pairs in bins],
            "arrayminus": [pairs.share - pairs.low for pairs in bins],
            "color": BLUE,
            "thickness": 1.2,
            "width": 4,
        },
        customdata=[[pairs.low, pairs.high, pairs.pairs] for pairs in bins],
        hovertemplate=hover(
            "judge %{x:.2f}, people %{y:.2f} (%{customdata[0]:.2f} to %{customdata[1]:.2f})", "%{customdata[2]} pairs"
        ),
    )
    across = {
        "title": f"judge’s probability ({'its score' if own else 'sigmoid of its score'})",
        "range": [-0.03, 1.03],
    }
    up = {"title": "share relevant", "range": [-0.03, 1.03]}
    figure.update_layout(layout(CHART_HEIGHT_PX, across, up, margin={"t": 40}))
    return figure
