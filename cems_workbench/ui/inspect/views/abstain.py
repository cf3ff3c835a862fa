"""Abstain: the signals of this query, compared with judged queries with and without an answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from cems_workbench.evaluation.batch import SignalTable
from cems_workbench.pipeline import Trace, replay
from cems_workbench.pipeline.stages.abstain import ABSTAIN, CONFIDENCE_FEATURES, asking_all
from cems_workbench.pipeline.table import Floats
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.fetch_evidence import judged_signals
from cems_workbench.ui.inspect.results import notes_html
from cems_workbench.ui.kit.charts import GREY, LIST_COLOURS, draw_chart, hover, layout
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import switch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

WITH_ANSWER, WITHOUT_ANSWER = "with an answer", "without an answer"
QUERY_COLOUR, THRESHOLD_COLOUR = LIST_COLOURS[4], LIST_COLOURS[3]
KINDS = {WITH_ANSWER: (LIST_COLOURS[0], "circle"), WITHOUT_ANSWER: (LIST_COLOURS[1], "diamond")}
"""Colour and symbol of each kind of query."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A signal of the current query; `value` None: unavailable, `threshold` None: not used in the decision."""

    name: str
    value: float | None
    threshold: float | None

    @property
    def meaning(self) -> str:
        """Its meaning for the decision, in words."""
        if self.threshold is None:
            return "off"
        if self.value is None:
            return "not used"
        return "no answer" if self.value < self.threshold else "answer"


def draw(context: InspectContext) -> None:
    """Draw the decision, a table of signals, and a chart of one signal over the judged queries."""
    trace = context.trace
    stage, signals = trace.stage(ABSTAIN), readings(trace)
    if stage.warnings:
        st.html(notes_html([f"⚠ {warning}" for warning in stage.warnings]))
    st.markdown(decision(trace, signals))
    judged = judged_signals(context, "inspect:abstain:judged")
    if judged is not None and not judged.unanswerable.any():
        st.info(
            "No query of this store is marked as without an answer, so thresholds cannot be calibrated. Mark some on Label (key X), or "
            'import queries with `"answerable": false`.',
            icon=":material/help:",
        )
        judged = None
    columns = SIGNALS
    if judged is not None:
        share = "Share of the judged queries of this kind with a lower signal than this query"
        columns = columns + [
            Column(f"below: {kind}", partial(_below, judged, i), 165, "%.0f %%", share) for i, kind in enumerate(KINDS)
        ]
    draw_table(signals, columns, key="inspect:abstain:signals", most=len(signals))
    names = {CONFIDENCE_FEATURES[reading.name].title: reading for reading in signals if reading.value is not None}
    if judged is None or not names:
        return
    first = next((title for title, reading in names.items() if reading.threshold is not None), next(iter(names)))
    reading = names[switch("Signal", list(names), "inspect:abstain:signal", first, labelled=True)]
    kinds = dict(zip(KINDS, judged.of(reading.name), strict=True))
    draw_chart(
        spread_figure(reading, kinds),
        key="inspect:abstain:spread",
        alt=f"Dot chart: {CONFIDENCE_FEATURES[reading.name].title} of {len(kinds[WITH_ANSWER])} judged queries with an answer and "
        f"{len(kinds[WITHOUT_ANSWER])} without; lines mark this query and the threshold.",
        table=lambda: [
            {"query": kind, "value": float(value)} for kind, values in kinds.items() for value in np.sort(values)
        ],
    )


def readings(trace: Trace) -> list[Reading]:
    """All signals of the query, including those without a threshold."""
    asked = replay(trace.evidence, asking_all(trace.config)).stage(ABSTAIN).fields.signals
    return [Reading(signal.name, signal.value, getattr(trace.config.abstain, signal.name)) for signal in asked]


def decision(trace: Trace, signals: list[Reading]) -> str:
    """The decision, in one line of Markdown."""
    asked = [reading for reading in signals if reading.threshold is not None]
    if not asked:
        return "**Off.** Results are always returned; set a threshold in the sidebar under Abstain to enable it."
    fields = trace.stage(ABSTAIN).fields
    rule = "one of them is" if trace.config.abstain.rule == "any" else "all of them are"
    counted = f"{len(asked)} signal{'s have' if len(asked) > 1 else ' has'} a threshold; nothing is returned when {rule} below it"
    if fields.abstained:
        return f"**Nothing is returned:** {plain(' and '.join(signal.words for signal in fields.deciding))}. {counted}."
    return f"**Answered.** {counted}."


SIGNALS: list[Column[Reading]] = [
    Column("signal", lambda reading: CONFIDENCE_FEATURES[reading.name].title, 250),
    Column("this query", lambda reading: reading.value, 90, "%.4g", "Empty: no value for this query"),
    Column("threshold", lambda reading: reading.threshold, 90, "%.4g", "Set in the sidebar under Abstain; empty: off"),
    Column("says", lambda reading: reading.meaning, 130),
]


def _below(judged: SignalTable, kind: int, reading: Reading) -> float | None:
    """Percent of the judged queries of a kind whose signal is lower."""
    values = judged.of(reading.name)[kind]
    return None if reading.value is None or not len(values) else 100 * float((values < reading.value).mean())


def spread_figure(reading: Reading, kinds: dict[str, Floats]) -> Figure:
    """One dot per judged query, one row per kind; a solid line marks this query, a dashed one the threshold."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for place, (kind, values) in enumerate(kinds.items()):
        colour, mark = KINDS[kind]
        figure.add_scatter(
            x=values,
            y=1 - place + 0.6 * (np.arange(len(values)) * 0.618 % 1 - 0.5),
            mode="markers",
            name=kind,
            marker={"color": colour, "symbol": mark, "size": 6, "opacity": 0.8},
            hovertemplate=hover(kind, "%{x:.4g}"),
        )
    for value, name, colour, dash, corner in (
        (reading.value, "this query", QUERY_COLOUR, "solid", "top right"),
        (reading.threshold, "threshold", THRESHOLD_COLOUR, "dash", "top left"),
    ):
        if value is not None:
            note = {"annotation_text": f"{name} {value:.4g}", "annotation_position": corner}
            line = {"color": colour, "width": 2, "dash": dash}
            figure.add_vline(x=value, line=line, annotation_font={"size": 12}, **note)
    names = [f"{kind} · {len(values)}" for kind, values in kinds.items()]
    kinds_axis = {"tickvals": [1, 0], "ticktext": names, "range": [-0.6, 1.6], "showgrid": False, "color": GREY}
    figure.update_layout(layout(260, {"title": CONFIDENCE_FEATURES[reading.name].title}, kinds_axis, margin={"t": 28}))
    return figure


VIEW = View("Abstain", 105, draw)
