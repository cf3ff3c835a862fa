"""Agreement of reviewers, and of people and a model judge: kappa, conflicts and how they are resolved, and the best threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import counted
from cems_workbench.evaluation.grades import Grades, agreed_grades
from cems_workbench.evaluation.labelling import agreement
from cems_workbench.evaluation.labelling import judge_calibration as calibration
from cems_workbench.evaluation.labelling.pooling import Pair, PairScores, score_pairs
from cems_workbench.formats.base.judgments import of_memories
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import JUDGE
from cems_workbench.pipeline.stages.judge import BANDS
from cems_workbench.platform.bidi import neutralise
from cems_workbench.records import DEFAULT_SCALE, JudgeScale, Judgment, Memory, Query
from cems_workbench.store import LabelEvent
from cems_workbench.ui.inspect import state as inspect_state
from cems_workbench.ui.kit.charts import draw_chart, hover, layout, lines, reliability_chart
from cems_workbench.ui.kit.html import excerpt, plain, render
from cems_workbench.ui.kit.session import kept, reviewer
from cems_workbench.ui.kit.tables import HELP, Column, draw_values, pick_row
from cems_workbench.ui.kit.widgets import cancellable, errors_shown, remembered, switch
from cems_workbench.ui.label import state
from cems_workbench.ui.label.card import split_meaning

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


RULES: dict[str, agreement.Rule] = {"Majority": "majority", "Strictest": "strictest"}
CALIBRATION = "label:judge:calibration"


def draw(resources: Resources) -> None:
    """Agreement coefficients, the conflicts, and the form to decide the selected one."""
    every = resources.store.judgments.read(kind="human")
    labels, of_store = of_memories(every)
    relevant_from = resources.store.query_sets.relevant_from_of([judgment.qid for judgment in of_store])
    if whole_queries := str(agreement.no_answer_agreement(every, relevant_from)):
        st.caption(f"{whole_queries}.")
    table = agreement.label_table(labels)
    whole = agreement.alpha(table) if labels else None
    if whole is None or not whole.pairs:
        st.info(
            "Agreement needs two reviewers who graded the same pairs. Create a queue with more than one reviewer per pair."
        )
        return
    st.markdown(
        f"{agreement.ALPHA_NAME} over all: **{whole}**, {agreement.alpha_reading(whole)}.", help=HELP["label:alpha"]
    )
    st.markdown(f"## {agreement.KAPPA_NAME}, weighted, per pair of reviewers", help=HELP["label:kappa"])
    pairs = {" and ".join(both): kappa for both, kappa in agreement.pairwise_kappa(table).items()}
    _estimates("reviewers", pairs, agreement.kappa_reading, "label:kappa")
    queries = {query.qid: query for query in resources.store.queries.read()}
    types = agreement.alpha_by_type(labels, {qid: query.type or "" for qid, query in queries.items()})
    st.markdown(f"## {agreement.ALPHA_NAME} by query type", help=HELP["label:alpha"])
    by_type = {kind or "(no type)": estimate for kind, estimate in types.items()}
    _estimates("type", by_type, agreement.alpha_reading, "label:alpha", most=8)
    _conflicts(resources, labels, queries)


def _estimates(
    first: str,
    estimates: Mapping[str, agreement.Estimate],
    reading: Callable[[agreement.Estimate], str],
    key: str,
    **options: Any,
) -> None:
    rows = [(name, str(one), one.pairs, reading(one)) for name, one in estimates.items() if one.pairs]
    draw_values((first, "coefficient", "pairs", "read as"), rows, key=key, help=HELP["label:estimates"], **options)


def _conflicts(resources: Resources, labels: list[Judgment], queries: Mapping[str, Query]) -> None:
    """The pairs with different grades, and the grade that the rule or a person's decision gives each."""
    conflicts = agreement.disagreements(labels)
    st.markdown(f"## {counted(len(conflicts), 'conflicts')}")
    if not conflicts:
        st.caption("No two reviewers disagree.")
        return
    rule = switch("Rule", list(RULES), "label:rule", "Majority", labelled=True)
    decisions = resources.store.decisions.read()
    verdicts = {(one.qid, one.memory_id): one for one in agreement.adjudicate(labels, RULES[rule], decisions)}
    memories = resources.store.memories.read([conflict.memory_id for conflict in conflicts])

    def verdict(one: agreement.Disagreement) -> agreement.Verdict:
        return verdicts[one.qid, one.memory_id]

    columns: list[Column[agreement.Disagreement]] = [
        Column("spread", lambda one: one.spread),
        Column(
            "grades", lambda one: ", ".join(f"{name} {grade}" for name, grade in sorted(verdict(one).labels.items()))
        ),
        Column("settled", lambda one: "open" if verdict(one).grade is None else f"{verdict(one).grade}"),
        Column("query", lambda one: _query(one.qid, queries)),
        Column("memory", lambda one: _content(one.memory_id, memories)),
    ]
    picked = pick_row(conflicts, columns, key="label:conflicts", most=10)
    name = reviewer()
    if picked is None or name is None:
        how = "Select a conflict to decide it." if name else "Enter your name in the Label view to decide conflicts."
        st.caption(how)
    elif _draw_in_full(picked.qid, picked.memory_id, queries, resources) is not None:
        box, pair = st.container(horizontal=True), (picked.qid, picked.memory_id)
        for grade, meaning in resources.store.query_sets.scale_of(picked.qid).grades:
            if box.button(str(grade), key=f"label:decide:{grade}", help=plain(meaning)):
                with errors_shown():
                    resources.store.decisions.decide(*pair, grade, name)
                    st.rerun()


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
ALL_QUERIES = "all queries"


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
    st.html(confusion_html(calibration.band_confusion(pairs, scale), meanings))
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


def confusion_html(confusion: Mapping[int, Sequence[int]], meanings: Mapping[int, str]) -> Markup:
    """Grades as rows, bands as columns; each cell shows its share of the row and is tinted by it."""
    return render("label/confusion.html", bands=BANDS, confusion=confusion, meanings=meanings)


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
