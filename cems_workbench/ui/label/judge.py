"""People and the model judge: how far they agree, where its threshold should be, and the pairs on which they differ most.

Charts of people against the judge: agreement by threshold, and reliability; and the confusion as a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.grades import Grades, agreed_grades
from cems_workbench.evaluation.labelling.agreement import Estimate
from cems_workbench.evaluation.labelling.judge_calibration import (
    Bin,
    Calibration,
    GradedScore,
    band_confusion,
    calibrate,
    calibration_error,
    graded_scores,
    probabilities,
    reliability,
)
from cems_workbench.evaluation.labelling.prejudging import PairScores, score_pairs
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.judge import BANDS
from cems_workbench.records import DEFAULT_SCALE
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.label import differences as label_differences
from cems_workbench.ui.label.differences import number
from cems_workbench.ui.label.work import working

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BLUE, ORANGE = "#0072B2", "#D55E00"
GREY, GRID = "rgba(128,128,128,0.9)", "rgba(128,128,128,0.16)"
HEIGHT = 300


def agreement_figure(found: Calibration, present: float) -> Figure:
    """Kappa over the threshold; the best one solid with its interval shaded, the present one dotted."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.add_scatter(
        x=found.thresholds, y=found.kappas, mode="lines", line={"color": BLUE, "width": 2, "shape": "hv"}, name="kappa",
        hovertemplate="above %{x:.4g} is relevant<br>kappa %{y:.3f}<extra></extra>",
    )  # fmt: skip
    low, high = _span(found, present)
    if found.threshold is not None and found.low is not None and found.high is not None:
        figure.add_vrect(x0=found.low, x1=found.high, fillcolor=BLUE, opacity=0.13, line_width=0)
        figure.add_vline(x=found.threshold, line={"color": BLUE, "width": 2})
        figure.add_annotation(_note(f"best {found.threshold:.3g}", found.threshold, low, high, row=0))
    figure.add_vline(x=present, line={"color": ORANGE, "width": 2, "dash": "dot"})
    figure.add_annotation(_note(f"now {present:.3g}", present, low, high, row=1))
    figure.update_layout(
        **_layout("threshold of the judge’s score", "Cohen’s kappa"), xaxis_range=[low, high],
    )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return figure


def _span(found: Calibration, present: float) -> tuple[float, float]:
    """What the axis shows: all thresholds and the present one, with a little room."""
    values = [*map(float, found.thresholds), present]
    room = 0.04 * (max(values) - min(values) or 1.0)
    return min(values) - room, max(values) + room


def _note(text: str, x: float, low: float, high: float, row: int) -> dict[str, Any]:
    """A name over its line, turned inwards near an edge; two rows, so that neighbours do not meet."""
    side = "left" if x < low + 0.15 * (high - low) else "right" if x > high - 0.15 * (high - low) else "center"
    return {
        "text": text, "x": x, "xanchor": side, "yref": "paper", "y": 1.0, "yanchor": "bottom", "yshift": 15 * row,
        "showarrow": False, "font": {"size": 12},
    }  # fmt: skip


def reliability_figure(bins: Sequence[Bin], own: bool) -> Figure:
    """Share relevant over the judge's probability, with intervals; on the dashed line the two are the same."""
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", line={"color": GREY, "width": 1, "dash": "dash"}, hoverinfo="skip"
    )
    shares = [one.share for one in bins]
    figure.add_scatter(
        x=[one.probability for one in bins], y=shares, mode="lines+markers",
        line={"color": BLUE, "width": 1}, marker={"color": BLUE, "size": 9},
        error_y={
            "type": "data", "array": [one.high - one.share for one in bins], "arrayminus": [one.share - one.low for one in bins],
            "color": BLUE, "thickness": 1.2, "width": 4,
        },
        customdata=[[one.low, one.high, one.pairs] for one in bins],
        hovertemplate="judge %{x:.2f}, people %{y:.2f} (%{customdata[0]:.2f} to %{customdata[1]:.2f})"
        "<br>%{customdata[2]} pairs<extra></extra>",
    )  # fmt: skip
    figure.update_layout(
        **_layout(f"probability by the judge ({'its score' if own else 'sigmoid of its score'})", "share relevant")
    )
    figure.update_xaxes(range=[-0.03, 1.03])
    figure.update_yaxes(range=[-0.03, 1.03])
    return figure


def _layout(across: str, up: str) -> dict[str, Any]:
    return {
        "height": HEIGHT, "margin": {"l": 8, "r": 16, "t": 40, "b": 40}, "showlegend": False, "hovermode": "closest",
        "xaxis": {"title": {"text": across}, "gridcolor": GRID, "zeroline": False, "fixedrange": True},
        "yaxis": {
            "title": {"text": up}, "gridcolor": GRID, "zeroline": False, "fixedrange": True, "automargin": True,
        },
    }  # fmt: skip


def confusion_html(confusion: Mapping[int, Sequence[int]], meanings: Mapping[int, str]) -> str:
    """Grades down, bands across; each cell tinted by its share of the row, which it also says."""
    heads = "".join(f"<th>{band}</th>" for band in BANDS)
    rows = []
    for grade, counts in confusion.items():
        total = sum(counts) or 1
        cells = "".join(
            f'<td style="--share:{100 * count / total:.0f}%"><b>{count}</b><small>{100 * count / total:.0f} %</small></td>'
            for count in counts
        )
        rows.append(f"<tr><th><b>{grade}</b> {escape(meanings.get(grade, ''))}</th>{cells}<td>{sum(counts)}</td></tr>")
    return (
        '<div class="wb-confusion"><table><thead><tr><th>people ↓ · judge →</th>'
        f"{heads}<th>pairs</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


ALL = "all queries"
SCORES, MADE, APPLIED = "lb:judge:scores", "lb:judge:made", "lb:judge:applied"
KAPPA = "Cohen’s kappa: agreement beyond chance on relevant or not; 1 is full, 0 is chance. In brackets its 95 % interval, over queries."
BEST = (
    "The threshold with the highest kappa. In brackets its 95 % interval: queries are drawn anew a thousand times, and the best "
    "threshold of each draw is taken. A wide interval says that more labels are needed."
)
RELIABLE = (
    "Pairs in ten bins by the probability the judge gives them, against the share that people call relevant, with 95 % intervals. On "
    "the dashed line the probability means what it says; above it the judge is too strict, below too lenient."
)


@dataclass(frozen=True)
class Compared:
    """What the view shows of one judge on some labels."""

    scores: PairScores
    pairs: list[GradedScore]
    relevant_from: int
    calibration: Calibration


def draw(resources: Resources, who: str | None) -> None:
    """The choice of labels, the judge's scores of them, and what they say of each other."""
    config = state.config()
    grades, relevant_from = _choose(resources)
    wanted = {(qid, memory_id) for qid, row in grades.items() for memory_id in row}
    if not wanted:
        st.info("People have graded nothing here yet. Label some cards, or import judgments under Files.")
        return
    if config.judge.backend == "none":
        st.info(
            "The judge is off. Choose one in the sidebar of Inspect under Judge; auto takes the best that is there."
        )
        return
    key = (str(resources.store.path), resources.store.content_version, _asked(config))
    scores = _scores(key, wanted, config, resources)
    if scores is None:
        return
    compared = _compared(key, scores, grades, relevant_from, config)
    if not compared.pairs:
        st.info("The judge has no score of these pairs.")
        return
    _numbers(compared, config)
    _charts(compared, config)
    label_differences.draw(compared.pairs, scores, scores.scale(config.judge), relevant_from, resources, who)


def _choose(resources: Resources) -> tuple[Grades, int]:
    """People's grades of the chosen queries, and from which grade on they mean relevant."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    sets = [ALL, *sorted(one.name for one in resources.store.query_sets.latest())]
    name = left.selectbox("Labels of people for", sets, key="lb:judge:set", persist_state="session")
    relevant_from = right.number_input(
        "Relevant from grade", 1, 10, 2, key="lb:judge:from", persist_state="session",
        help="The lowest grade that counts as relevant when a person’s grade is compared with the judge’s yes or no.",
    )  # fmt: skip
    grades = agreed_grades(resources.store.judgments.read(kind="human"), "human")
    if name != ALL:
        qids = {query.qid for query in resources.store.query_sets.queries(name)}
        grades = {qid: row for qid, row in grades.items() if qid in qids}
    return grades, int(relevant_from)


def _asked(config: PipelineConfig) -> object:
    """What of a config decides the scores; threshold and bands only read them."""
    return config.judge.model_copy(update={"threshold": None, "bands": None})


def _scores(
    key: object, wanted: set[tuple[str, str]], config: PipelineConfig, resources: Resources
) -> PairScores | None:
    """The judge's scores that are at hand; a button asks for those that are missing."""
    kept: tuple[object, PairScores] | None = st.session_state.get(SCORES)
    scores = kept[1] if kept is not None and kept[0] == key else None
    missing = wanted - {*scores.scores, *scores.failed} if scores else wanted
    if missing:
        box, button = st.columns([4, 1.2], vertical_alignment="center")
        box.caption(
            f"{len(missing):,} labelled pairs {'are new since the judge was asked' if scores else 'to ask the judge about'}. "
            "Scores that were asked for before come from the store."
        )
        if button.button("Ask the judge", key="lb:judge:ask", type="primary", icon=":material/gavel:", width="stretch"):
            with working("judge") as progress:
                scores = score_pairs(sorted(wanted), config, resources, progress)
            st.session_state[SCORES] = (key, scores)
            st.rerun()
    if scores is not None and scores.instead:
        st.warning(plain(scores.instead), icon=":material/swap_horiz:")
    return scores


def _compared(key: object, scores: PairScores, grades: Grades, relevant_from: int, config: PipelineConfig) -> Compared:
    """The comparison, made anew when labels, threshold or scores have changed."""
    pairs = graded_scores(grades, scores.scores)
    threshold = scores.scale(config.judge).threshold
    mark = (key, hash(tuple(pairs)), relevant_from, threshold)
    kept: tuple[object, Compared] | None = st.session_state.get(MADE)
    if kept is None or kept[0] != mark:
        kept = (mark, Compared(scores, pairs, relevant_from, calibrate(pairs, threshold, relevant_from)))
        st.session_state[MADE] = kept
    return kept[1]


def _numbers(compared: Compared, config: PipelineConfig) -> None:
    """Which judge, the agreement now and at best, and the button that takes the best threshold over."""
    found, threshold = compared.calibration, compared.scores.scale(config.judge).threshold
    whose = "the judge’s own threshold" if config.judge.threshold is None else "the threshold set in Inspect"
    failed = f" {len(compared.scores.failed)} pairs have no score." if compared.scores.failed else ""
    st.caption(
        f"{len(compared.pairs):,} pairs graded by people and by {plain(compared.scores.judge)}, with {whose}.{failed}"
    )
    now, best, act = st.columns([1, 1.3, 0.9], vertical_alignment="bottom")
    now.metric(f"Agreement now, above {number(threshold)}", estimate(found.present), help=KAPPA)
    if found.threshold is None or found.low is None or found.high is None:
        best.caption("No best threshold: people called all of these pairs relevant, or none, or all scores are one.")
        return
    best.metric(
        f"Best: above {number(found.threshold)} ({number(found.low)} to {number(found.high)})",
        estimate(found.kappa),
        help=BEST,
    )
    same = config.judge.threshold == found.threshold
    act.button(
        "Threshold is applied" if same else f"Apply threshold {number(found.threshold)}", key="lb:judge:apply", disabled=same,
        icon=":material/check:" if same else ":material/tune:", width="stretch", on_click=state.apply,
        args=({"judge.threshold": found.threshold},),
        help="Sets judge.threshold in Inspect, where it can be undone, and wherever “as set in Inspect” is chosen. The bands stay.",
    )  # fmt: skip


def estimate(one: Estimate) -> str:
    """A kappa with its interval."""
    if one.value is None:
        return "not defined"
    return f"{one.value:.2f}" + ("" if one.low is None or one.high is None else f" ({one.low:.2f}–{one.high:.2f})")


def _charts(compared: Compared, config: PipelineConfig) -> None:
    scale = compared.scores.scale(config.judge)
    meanings = {grade: meaning.partition(":")[0].split(",")[0] for grade, meaning in DEFAULT_SCALE.grades}
    st.markdown("###### Grades of people against bands of the judge")
    st.html(confusion_html(band_confusion(compared.pairs, scale), meanings))
    left, right = st.columns(2)
    with left:
        st.markdown("###### Agreement by threshold", help=BEST)
        figure = agreement_figure(compared.calibration, scale.threshold)
        st.plotly_chart(figure, key="lb:judge:kappa", config={"displayModeBar": False}, alt="Kappa at every threshold.")
    with right:
        probability, own = probabilities(compared.pairs)
        bins = reliability(probability, [one.grade >= compared.relevant_from for one in compared.pairs])
        error = calibration_error(bins)
        st.markdown(
            "###### Reliability" + ("" if error is None else f" · calibration error {error:.2f}"), help=RELIABLE
        )
        figure = reliability_figure(bins, own)
        st.plotly_chart(
            figure, key="lb:judge:reliability", config={"displayModeBar": False}, alt="Reliability diagram."
        )
