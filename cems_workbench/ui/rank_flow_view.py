"""The rank flow: how the first memories, the judged and the followed one came through every list and stage; a click follows one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from html import escape

import streamlit as st

from cems_workbench.analysis.rank_flow import FlowLine, RankFlow, rank_flow
from cems_workbench.analysis.ranks import Against, lists_in_use
from cems_workbench.pipeline import Trace
from cems_workbench.ui.deltas import sign
from cems_workbench.ui.look import Look
from cems_workbench.ui.memories_escape import excerpt, plain, tick
from cems_workbench.ui.rank_flow_figure import NEUTRAL, STYLES, Kind, drawn_order, flow_figure
from cems_workbench.ui.results import GRADES
from cems_workbench.ui.tables import short_id

TOPS = (5, 10, 20, 40)
BANDS = ("highly relevant", "relevant", "weak", "irrelevant")
LISTED = 6
"""Lost memories that are named below the chart."""
ID, PIXELS = 14, 6.6
"""Characters of an id in a label, and the width of one."""

_HELP = (
    "From left to right: the lists, which run side by side, then the stages, one after the other. A line that rises won places. "
    "Drawn is every memory that stands among the first after fusion or a later stage, with the judged and the followed ones. "
    "Ranks further down are drawn closer together, below the dotted line. A cross is where a memory was lost."
)
_ALT = "The rank of each memory in every list and after every stage, best at the top; a cross marks where one was lost."


def draw_rank_flow(look: Look, against: Against | None = None) -> None:
    """The number of memories, the chart, and what became of the judged ones that were lost."""
    trace = look.trace
    if not lists_in_use(trace):
        st.caption("No list that is switched on has a candidate, so there is no rank to draw.")
        return
    top = st.segmented_control(
        "First memories", TOPS, default=10, required=True, key="flow_top", format_func=lambda count: f"Top {count}",
        label_visibility="collapsed", persist_state="session",
        help="How far down a memory may stand after fusion or a later stage to be drawn.",
    ) or 10  # fmt: skip
    asked = [look.followed] if look.followed is not None else []
    asked += sorted(look.grades, key=lambda memory_id: (-look.grades[memory_id], memory_id))
    flow = rank_flow(trace, top, asked)
    kinds = line_kinds(trace, look.grades)
    st.caption(_summary(flow, trace, top, look.grades), help=_HELP)
    st.html(legend_html(flow, kinds))
    label = partial(_label, names=_names(flow, trace), followed=look.followed, against=against)
    margin = 24 + round(PIXELS * max((len(label(line)) for line in flow.lines if line.final_rank), default=0))
    figure = flow_figure(flow, top, kinds, look.followed, partial(hover_text, trace, kinds), label, margin)
    # A new key after each choice: a point that is still selected could not be selected again.
    key = f"rank_flow:{look.followed}"
    order = tuple(line.memory_id for line in drawn_order(flow, kinds, look.followed))
    st.plotly_chart(
        figure, key=key, on_select=partial(follow_selected, key, order), selection_mode="points",
        config={"displayModeBar": False}, alt=_ALT,
    )  # fmt: skip
    lost = lost_html(flow, kinds, look.followed)
    if lost:
        st.html(lost)


def follow_selected(key: str, order: tuple[str, ...]) -> None:
    """Follow the memory whose line was clicked; `order` holds the memory of each of the chart's first traces."""
    points = st.session_state[key]["selection"]["points"]
    if points and points[-1]["curve_number"] < len(order):
        st.session_state["follow"] = order[points[-1]["curve_number"]]


def line_kinds(trace: Trace, grades: Mapping[str, int]) -> dict[str, Kind]:
    """The look of each judged memory: by human grade when there are any, else by the judge's band; best first."""
    if grades:
        ordered = sorted(grades, key=lambda memory_id: -grades[memory_id])
        return {memory_id: _graded(grades[memory_id]) for memory_id in ordered}
    bands = {row["memory_id"]: row.get("band") for row in trace.stage("judge").rows}
    return {
        memory_id: Kind(f"judge: {name}", *_style(i))
        for i, name in enumerate(BANDS)
        for memory_id, band in bands.items()
        if band == name
    }


def _graded(grade: int) -> Kind:
    return Kind(f"grade {grade}, {GRADES.get(grade, 'judged')}", *_style(3 - min(max(grade, 0), 3)))


def _style(place: int) -> tuple[str, str, str, float, int]:
    return STYLES[place]


def legend_html(flow: RankFlow, kinds: Mapping[str, Kind]) -> str:
    """The looks that are drawn, the best first, with how many lines have each; and the cross."""
    drawn = [kinds.get(line.memory_id, NEUTRAL) for line in flow.lines]
    entries = [
        f'<span><i style="color:{kind.colour}">{kind.glyph}</i> {escape(kind.name)} ({drawn.count(kind)})</span>'
        for kind in dict.fromkeys([*kinds.values(), NEUTRAL])
        if kind in drawn
    ]
    lost = sum(line.loss is not None for line in flow.lines)
    if lost:
        entries.append(f"<span><i>✕</i> lost there ({lost})</span>")
    return f'<div class="wb-legend">{"".join(entries)}</div>'


def hover_text(trace: Trace, kinds: Mapping[str, Kind], line: FlowLine) -> str:
    """The memory, its judgment, its rank and score in every column, and where it was lost and why; escaped for Plotly."""
    kind = kinds.get(line.memory_id, NEUTRAL)
    text = excerpt(trace.evidence.memories[line.memory_id].content, 70)
    lines = [f"<b>{tick(line.memory_id, 40)}</b>  {kind.name}", tick(text, 72)]
    for point in line.points:
        score = "" if point.score is None else f", score {point.score:.4f}"
        lines.append(f"{tick(point.column, 24)}: rank {point.rank}{score}")
    if line.loss is not None:
        rank = "" if line.loss.rank is None else f" from rank {line.loss.rank}"
        lines.append(f"✕ lost at {line.loss.stage}{rank}: {tick(line.loss.reason, 90)}")
    return "<br>".join(lines)


def _names(flow: RankFlow, trace: Trace) -> dict[str, str]:
    """What each result is called beside its line: its id; the beginning of its text where cut ids are not told apart."""
    ids = {line.memory_id: tick(line.memory_id, ID) for line in flow.lines if line.final_rank is not None}
    if len(set(ids.values())) == len(ids):
        return ids
    return {memory_id: tick(excerpt(trace.evidence.memories[memory_id].content, ID + 4), ID + 4) for memory_id in ids}


def _label(line: FlowLine, names: Mapping[str, str], followed: str | None, against: Against | None) -> str:
    mark = "◆ " if line.memory_id == followed else ""
    delta = "" if against is None else f"{sign(against.delta(line.memory_id))}  "
    return f"{line.final_rank}  {delta}{mark}{names.get(line.memory_id, '')}"


def _summary(flow: RankFlow, trace: Trace, top: int, grades: Mapping[str, int]) -> str:
    """How many are drawn, what is folded away and what is left out, in plain words."""
    said = f"{len(flow.lines)} of {len(trace.stage('lists').rows)} candidates: the first {top} of any stage"
    said += ", and every judged one" if grades else ""
    parts = [said]
    if flow.folded:
        parts.append(f"nothing changes in {', '.join(flow.folded)}")
    if flow.lists_left_out:
        parts.append(f"{flow.lists_left_out} more lists are not drawn")
    if flow.lines_left_out:
        parts.append(f"{flow.lines_left_out} more memories are not drawn")
    missing = [memory_id for memory_id in flow.unranked if grades.get(memory_id, 0) > 0]
    if missing:
        listed = ", ".join(plain(short_id(memory_id)) for memory_id in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        parts.append(f"judged relevant, but in no list: {listed}{more}")
    return "; ".join(parts) + ". Click a line to follow that memory."


def lost_html(flow: RankFlow, kinds: Mapping[str, Kind], followed: str | None) -> str:
    """Where the followed and the relevant memories were lost, the best judged first; empty when none was."""
    places = {memory_id: i for i, (memory_id, kind) in enumerate(kinds.items()) if kind.symbol != STYLES[-1][1]}
    lost = [line for line in flow.lines if line.loss and (line.memory_id in places or line.memory_id == followed)]
    lost.sort(key=lambda line: (line.memory_id != followed, places.get(line.memory_id, len(places))))
    rows = "".join(_lost_row(line, kinds.get(line.memory_id, NEUTRAL)) for line in lost[:LISTED])
    more = f"<div><b></b><span>and {len(lost) - LISTED} more</span></div>" if len(lost) > LISTED else ""
    return f'<div class="wb-notes">{rows}{more}</div>' if rows else ""


def _lost_row(line: FlowLine, kind: Kind) -> str:
    stage, rank, reason = (line.loss.stage, line.loss.rank, line.loss.reason) if line.loss else ("", None, "")
    at = "" if rank is None else f" at rank {rank}"
    return (
        f'<div><b>✕ {escape(stage)}</b><span><code title="{escape(line.memory_id)}">{escape(short_id(line.memory_id))}</code> '
        f"{escape(kind.name)}; lost{at}: {escape(reason)}</span></div>"
    )
