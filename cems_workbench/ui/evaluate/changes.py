"""What each query gains under another config: better, worse or the same, as a picture whose bars can be clicked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from cems_workbench.evaluation.comparison import VALUE_TOLERANCE
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.pipeline.table import Floats
from cems_workbench.records import Query
from cems_workbench.ui.kit.charts import GREY, HOVERTEXT, LIST_COLOURS, draw_chart, layout, lines
from cems_workbench.ui.kit.html import plain, tick

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

OUTCOMES = ("▲ win", "▼ loss", "= tie", "– not measured")
BETTER, WORSE = LIST_COLOURS[4], LIST_COLOURS[3]
MAX_BARS = 200
"""Maximum queries that are drawn."""


@dataclass(frozen=True, eq=False)
class QueryChanges:
    """A measure of Q queries under a config and another: arrays (Q), NaN where it is not defined."""

    queries: Sequence[Query]
    measure: Measure
    before: Floats
    after: Floats

    @property
    def gain(self) -> Floats:
        """(Q) by how much the other config is better."""
        return self.measure.direction * (self.after - self.before)

    @property
    def outcomes(self) -> list[str]:
        """(Q) of `OUTCOMES`."""
        gain = self.gain
        at = np.select([np.isnan(gain), gain > VALUE_TOLERANCE, gain < -VALUE_TOLERANCE], [3, 0, 1], default=2)
        return [OUTCOMES[i] for i in at.tolist()]

    @property
    def counts(self) -> str:
        """ "▲ win 4 · ▼ loss 2 · …"."""
        found = Counter(self.outcomes)
        return " · ".join(f"{name} {found[name]}" for name in OUTCOMES)

    @property
    def changed(self) -> list[int]:
        """The places of queries that won or lost, largest gain first; of more than `MAX_BARS` those that changed most."""
        gain = self.gain
        size = np.nan_to_num(np.abs(gain))
        most = [q for q in np.argsort(-size, kind="stable")[:MAX_BARS].tolist() if size[q] > VALUE_TOLERANCE]
        return sorted(most, key=lambda q: -gain[q])


def draw_changes(found: QueryChanges, other: str, key: str, then: str = "") -> Query | None:
    """Draw a bar for each query that changed under the config `other`; the clicked one. `then` ends the caption."""
    if not (places := found.changed):
        return None
    drawn = draw_chart(
        changes_figure(found, places),
        key=key,
        table=None,
        alt=f"Bar chart: what each query gains by {found.measure} under {other}, sorted; view By query has the numbers.",
        on_select="rerun",
        selection_mode="points",
    )
    total = sum(outcome in OUTCOMES[:2] for outcome in found.outcomes)
    most = "" if total == len(places) else f"the {len(places)} that changed most of "
    st.caption(
        f"A bar for each query that changed under {plain(other)} ({most}{total:,}), largest gain first. Click one to open it in Inspect "
        f"under both configs.{then}"
    )
    points = drawn["selection"]["points"]
    return found.queries[places[points[0]["point_index"]]] if points else None


def changes_figure(found: QueryChanges, places: Sequence[int]) -> Figure:
    """A bar for each of these queries: its gain, up where better."""
    import plotly.graph_objects as go

    gain = found.gain[places].tolist()
    texts = [
        lines(
            tick(found.queries[q].query, 70),
            f"{found.before[q]:.3f} → {found.after[q]:.3f} ({tick(found.queries[q].qid)})",
        )
        for q in places
    ]
    colours = [BETTER if one > 0 else WORSE for one in gain]
    across = {"showticklabels": False, "showgrid": False, "range": [-0.6, max(len(gain), 12) - 0.4]}
    up = {"title": f"gain in {found.measure}", "zeroline": True, "zerolinecolor": GREY}
    bars = {"type": "bar", "x": list(range(len(gain))), "y": gain, "hovertext": texts, "hovertemplate": HOVERTEXT}
    gap = 0.15 if len(places) < 120 else 0
    return go.Figure({"data": [{"marker": {"color": colours}, **bars}], "layout": layout(190, across, up, bargap=gap)})
