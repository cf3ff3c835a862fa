"""Sensitivity: how the first results change over the whole range of one parameter, with its breakpoints.

The chart of a sweep: bands of the range, ranks of the memories along it, and a labelled set's metrics below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.analysis.sensitivity.replays import Segment
from cems_workbench.analysis.sensitivity.scan import (
    HIT_DEPTH,
    Breakpoint,
    Curve,
    Sweep,
    by_members,
    inside,
    labelled_curve,
    neighbours,
    shown_memories,
    sweep,
)
from cems_workbench.analysis.why.rescue import searched_specs
from cems_workbench.config import field_spec
from cems_workbench.evaluation.grades import helpful
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.controls import GROUPS, shown
from cems_workbench.ui.inspect.labelled import offer_labelled
from cems_workbench.ui.inspect.look import Look
from cems_workbench.ui.kit.escape import excerpt, plain, tick
from cems_workbench.ui.kit.progress import progress_in
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.theme import LIST_COLOURS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NOW, ORDER, MEMBERS = "as now", "same memories, other order", "other memories"
BANDS = {NOW: ("#0072B2", ""), ORDER: ("#56B4E9", "."), MEMBERS: ("#E69F00", "/")}
"""Colour and pattern of a band by what is different in it."""
DASHES = ("solid", "dash", "dot", "dashdot")
BAND, RANK, SPARK = 44, 26, 110
"""Heights in pixels: of the bands, of one rank, of the metrics."""


def difference(found: Sweep, segment: Segment) -> str:
    """What is different from the present results, in words of the legend."""
    now = found.present.results
    if segment.results == now:
        return NOW
    return ORDER if set(segment.results) == set(now) else MEMBERS


def sweep_figure(
    found: Sweep, memories: Sequence[str], texts: Mapping[str, str], marked: Mapping[str, str], curve: Curve | None
) -> Figure:
    """Bands, then rank lines, then the metrics where there is a curve; one range for all of them.

    `texts` are contents by memory id, `marked` the signs of memories that are drawn bold (followed, judged).
    """
    from plotly.subplots import make_subplots

    heights = [BAND, max(4, found.k) * RANK, *([SPARK] if curve else [])]
    figure = make_subplots(rows=len(heights), cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.05)
    _bands(figure, found)
    for i, memory_id in enumerate(memories):
        _line(figure, found, memory_id, texts.get(memory_id, ""), marked, i)
    if curve:
        _metrics(figure, curve)
    low, high = _edges(found, found.segments[0])[0], _edges(found, found.segments[-1])[1]
    figure.update_xaxes(range=[low, high], showgrid=False, zeroline=False)
    unit = f" ({found.spec.unit})" if found.spec.unit else ""
    figure.update_xaxes(title_text=tick(found.spec.label + unit, 40), row=len(heights))
    figure.update_yaxes(visible=False, range=[0, 1], fixedrange=True, row=1)
    ranks = list(range(1, found.k + 1))
    figure.update_yaxes(
        range=[found.k + 0.6, 0.4], tickvals=ranks, title_text="rank", showgrid=True, zeroline=False, fixedrange=True,
        row=2,
    )  # fmt: skip
    if found.now is not None:
        figure.add_vline(x=found.now, line={"width": 1.5, "dash": "dash", "color": "#7B848D"}, row="all")
        figure.add_annotation(
            x=found.now, y=1.0, xref="x", yref="y domain", yanchor="bottom", text=f"now {shown(found.now)}", showarrow=False,
            font={"size": 12},
        )  # fmt: skip
    longest = max((len(_label(key, marked)) for key in memories), default=0)
    figure.update_layout(
        height=sum(heights) + 160,
        margin={"l": 8, "r": 24 + 8 * longest, "t": 74, "b": 46},
        legend={"orientation": "h", "y": 0.995, "yanchor": "top", "x": 0, "yref": "container", "font": {"size": 12}},
        hovermode="closest",
        bargap=0,
    )
    return figure


def _edges(found: Sweep, segment: Segment) -> tuple[float, float]:
    """Where a band begins and ends; a whole number covers half a step on either side."""
    half = 0.5 if found.spec.type is int else 0.0
    return segment.first - half, segment.last + half


def _bands(figure: Figure, found: Sweep) -> None:
    for name, (colour, pattern) in BANDS.items():
        rows = [one for one in found.segments if difference(found, one) == name]
        edges = [_edges(found, one) for one in rows]
        figure.add_bar(
            x=[(low + high) / 2 for low, high in edges], width=[high - low for low, high in edges], y=[1] * len(rows),
            name=name, hovertext=[_band_text(found, one) for one in rows], hovertemplate="%{hovertext}<extra></extra>",
            marker={
                "color": colour, "opacity": 0.85, "line": {"width": 1, "color": "rgba(128,128,128,0.9)"},
                "pattern": {"shape": pattern, "size": 7, "solidity": 0.16, "fgcolor": "#FFFFFF", "fillmode": "overlay"},
            },
            showlegend=bool(rows), row=1, col=1,
        )  # fmt: skip


def _band_text(found: Sweep, segment: Segment) -> str:
    where = (
        shown(segment.first) if segment.first == segment.last else f"{shown(segment.first)} to {shown(segment.last)}"
    )
    ranking = "<br>".join(f"{rank}  {tick(short_id(key))}" for rank, key in enumerate(segment.results, 1))
    return f"<b>{where}</b>: {difference(found, segment)}<br>{ranking or 'no results'}"


def _label(memory_id: str, marked: Mapping[str, str]) -> str:
    return marked.get(memory_id, "") + short_id(memory_id, 12)


def _line(figure: Figure, found: Sweep, memory_id: str, text: str, marked: Mapping[str, str], i: int) -> None:
    """One memory's rank along the range; a gap where it is not among the first k."""
    xs: list[float | None] = []
    ys: list[int | None] = []
    for one in found.segments:
        rank = one.results.index(memory_id) + 1 if memory_id in one.results else None
        xs += _edges(found, one)
        ys += [rank, rank]
    colour = LIST_COLOURS[i % len(LIST_COLOURS)]
    label, bold = tick(_label(memory_id, marked)), memory_id in marked
    hover = f"<b>{label}</b>, rank %{{y}} at %{{x:.4g}}<br>{tick(excerpt(text, 90), 90)}<extra></extra>"
    figure.add_scatter(
        x=xs, y=ys, mode="lines", name=label, showlegend=False, connectgaps=False, hovertemplate=hover, row=2, col=1,
        line={"color": colour, "width": 3.5 if bold else 2, "dash": DASHES[i // len(LIST_COLOURS) % len(DASHES)]},
    )  # fmt: skip
    if ys and ys[-1] is not None:
        figure.add_annotation(
            x=1, xref="paper", xanchor="left", xshift=6, y=ys[-1], yref="y2", text=label, showarrow=False,
            font={"size": 12, "color": colour if bold else None}, align="left",
        )  # fmt: skip


def _metrics(figure: Figure, curve: Curve) -> None:
    series: tuple[tuple[str, tuple[float, ...], str, str], ...] = (
        (f"hit@{HIT_DEPTH}", curve.hit, "#009E73", "solid"), ("nDCG@10", curve.ndcg, "#CC79A7", "dot")
    )  # fmt: skip
    for name, values, colour, dash in series:
        figure.add_scatter(
            x=list(curve.values), y=list(values), mode="lines+markers", name=f"{name}, {curve.queries} judged queries",
            line={"color": colour, "width": 2, "dash": dash}, marker={"size": 4}, row=3, col=1,
            hovertemplate=f"{name} %{{y:.3f}} at %{{x:.4g}}<extra></extra>",
        )  # fmt: skip
    every = [*curve.hit, *curve.ndcg]
    room = max(0.02, 0.12 * (max(every) - min(every)))
    figure.update_yaxes(range=[min(every) - room, max(every) + room], tickformat=".2f", fixedrange=True, row=3)


def config_of_chart() -> dict[str, Any]:
    """Plotly's own settings: no tool bar over the chart."""
    return {"displayModeBar": False}


FIRST = "lists.lexical.weight"
KS = (1, 3, 5, 10)
LINES = 12
NEW_ORDER, NEW_MEMBER = "a new order", "a new memory"
METHODS = {
    "solved": (
        "exact",
        "Every breakpoint is solved and replayed on both sides; between two of them the results are the same.",
    ),
    "every value": ("every value replayed", "Each value of the range was replayed."),
    "bracketed": (
        "bracketed",
        "A grid was replayed and each change closed in on. A change that is undone again between two points of the grid is missed.",
    ),
}


def draw(look: Look) -> None:
    """Choose a parameter and see its range."""
    if not look.trace.evidence.candidate_ids:
        st.info("No list found a candidate for this query, so no parameter can change its results.")
        return
    path, k, counted = _choose()
    found = _kept_sweep(look, path, k)
    shown_sweep = by_members(found) if counted == NEW_MEMBER else found
    _say(shown_sweep)
    if found.numeric:
        _step(shown_sweep)
        curve = _curve(look, found)
        _chart(look, found, curve)
        _table(look, shown_sweep)
    else:
        _choices(look, found)


def label_of(path: str) -> str:
    """The stage and the label of a parameter: "Fusion: RRF k"."""
    spec = field_spec(path)
    return f"{GROUPS[spec.section]}: {spec.label}"


def apply(path: str, value: Any) -> None:
    """Set one parameter; its control shows it."""
    state.apply({path: value})


def _choose() -> tuple[str, int, str]:
    paths = [spec.path for spec in searched_specs()]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        path = st.selectbox(
            "Parameter", paths, paths.index(FIRST), format_func=label_of, key="sensitivity:path", persist_state="session",
            width=330, help="Any parameter that needs no new search. Of a depth, only smaller values than now.",
        )  # fmt: skip
        k = st.segmented_control(
            "First", KS, default=5, required=True, key="sensitivity:k", persist_state="session",
            help="How many of the results count.",
        )  # fmt: skip
        counted = st.segmented_control(
            "A change is", (NEW_ORDER, NEW_MEMBER), default=NEW_ORDER, required=True, key="sensitivity:counted",
            persist_state="session", help="Whether it counts when two results swap places, or only when one comes or goes.",
        )  # fmt: skip
    return path, k or 5, counted or NEW_ORDER


def _kept_sweep(look: Look, path: str, k: int) -> Sweep:
    """The sweep, replayed once per evidence, config and choice."""
    off = state.variants_off(look.request)
    key = (id(look.trace.evidence), look.trace.config, path, k, off)
    kept: tuple[object, Sweep] | None = st.session_state.get("sensitivity:kept")
    if kept is None or kept[0] != key:
        kept = (key, sweep(look.trace.evidence, look.trace.config, path, k, off))
        st.session_state["sensitivity:kept"] = kept
    return kept[1]


def _say(found: Sweep) -> None:
    """What was found in a sentence, and how sure it is."""
    name, meaning = METHODS[found.method]
    tolerance = f" Here a breakpoint is known to {found.tolerance:.2g}." if found.tolerance else ""
    if not found.numeric:
        outcomes = len({one.results for one in found.segments})
        text = f"{len(found.segments)} values give {outcomes} different outcome{'s' if outcomes != 1 else ''}."
    elif not found.breakpoints:
        text = f"Nothing changes in the first {found.k} from {_number(found.segments[0].first)} to {_number(found.segments[-1].last)}."
    else:
        count = len(found.breakpoints)
        text = (
            f"**{count} breakpoint{'s' if count != 1 else ''}** from {_number(found.segments[0].first)} to "
            f"{_number(found.segments[-1].last)}. {_margin(found)}"
        )
    st.markdown(f"{text} · {name}", help=f"{meaning}{tolerance} {found.replays} replays.")
    if found.unscored:
        st.warning(
            f"Somewhere in this range up to {found.unscored} candidates have never been scored by the reranker; there the "
            "results may differ once they are.",
            icon=":material/help:",
        )


def _margin(found: Sweep) -> str:
    """How far the present value can move before something changes."""
    if found.now is None:
        return "It is off now."
    now = found.present
    low = None if now is found.segments[0] else now.first
    high = None if now is found.segments[-1] else now.last
    if low is None and high is None:
        return ""
    if low is None:
        return f"Now {_number(found.now)}: it can fall to the end and rise to {_number(high)} with no change."
    if high is None:
        return f"Now {_number(found.now)}: it can rise to the end and fall to {_number(low)} with no change."
    return f"Now {_number(found.now)}: no change between {_number(low)} and {_number(high)}."


def _number(value: Any) -> str:
    return shown(float(f"{value:.5g}")) if isinstance(value, float) else shown(value)


def _step(found: Sweep) -> None:
    """Buttons into the neighbouring segments."""
    below, above = neighbours(found)
    with st.container(horizontal=True, gap="small"):
        for segment, key, icon in (
            (below, "below", ":material/arrow_back:"),
            (above, "above", ":material/arrow_forward:"),
        ):
            if segment is None:
                continue
            value = inside(found, segment)
            st.button(
                f"Set to {_number(value)}: {_change(found, segment)}", key=f"sensitivity:{key}", icon=icon,
                on_click=apply, args=(found.spec.path, value),
                help=f"Into the next segment {key}: {_number(segment.first)} to {_number(segment.last)}.",
            )  # fmt: skip


def _change(found: Sweep, segment: Segment) -> str:
    """Who comes, goes and moves against the present results, in a few words."""
    now = found.present.results
    entered = [key for key in segment.results if key not in now]
    left = [key for key in now if key not in segment.results]
    moved = [key for rank, key in enumerate(segment.results) if key in now and now.index(key) != rank]
    parts = [*(f"+ {plain(short_id(key))}" for key in entered[:2]), *(f"− {plain(short_id(key))}" for key in left[:2])]
    if max(len(entered), len(left)) > 2:
        parts.append("…")
    if not parts and moved:
        parts = [f"{plain(short_id(moved[0]))} to rank {segment.results.index(moved[0]) + 1}"]
    return ", ".join(parts) or "as now"


def _curve(look: Look, found: Sweep) -> Curve | None:
    """The labelled set along the range, once it was asked for."""
    labelled = None
    if st.toggle(
        "Judged queries along this range", key="sensitivity:labelled", persist_state="session",
        help="hit@5 (the share of judged queries with a relevant memory in the first 5) and nDCG@10 under the chart, at "
        "evenly spaced values.",
    ):  # fmt: skip
        labelled = offer_labelled(look, "sensitivity:gather")
    if labelled is None:
        return None
    key = (labelled, look.trace.config, found.spec.path)
    kept: tuple[object, Curve] | None = st.session_state.get("sensitivity:curve")
    if kept is None or kept[0] != key:
        place = st.empty()
        kept = (key, labelled_curve(labelled, look.trace.config, found, progress=progress_in(place)))
        place.empty()
        st.session_state["sensitivity:curve"] = kept
    return kept[1]


def _chart(look: Look, found: Sweep, curve: Curve | None) -> None:
    relevant = helpful(look.grades)
    first = [*([look.followed] if look.followed else []), *sorted(relevant)]
    memories = shown_memories(found, first, LINES)
    texts = {key: look.trace.evidence.memories[key].content for key in memories}
    signs = {key: f"{'◆ ' if key == look.followed else ''}{'✓ ' if key in relevant else ''}" for key in memories}
    figure = sweep_figure(found, memories, texts, {key: sign for key, sign in signs.items() if sign}, curve)
    st.plotly_chart(figure, key="sensitivity:chart", config=config_of_chart())
    bold = " Bold: ◆ followed, ✓ judged relevant." if any(signs.values()) else ""
    st.caption(
        f"The ranks of the memories along the range; a line ends where its memory leaves the first {found.k}.{bold}"
    )


def _table(look: Look, found: Sweep) -> None:
    """A row per segment; choosing one offers to set the parameter into it."""
    rows = [_row(look, found, i, one) for i, one in enumerate(found.segments)]
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    chosen = st.dataframe(
        rows, hide_index=True, height=30 * (min(len(rows), 12) + 1) + 4, row_height=30, placeholder="",
        key="sensitivity:table", on_select="rerun", selection_mode="single-row",
        column_config={
            "": text("", width=30, help="▶ the present segment"),
            "from": number("from", format="%.6g", width=84, help="First value of the segment that was replayed"),
            "to": number("to", format="%.6g", width=84, help="Last value of the segment that was replayed"),
            "change": text("change", width=190, help="From the segment in the row above: + comes in, − goes out, ▲ ▼ moves by so many"),
            "relevant": text("relevant", width=68, help="Rank of the first memory judged relevant; –: none there"),
            "first results": text("first results", width=300, help="The results in this segment, in order"),
        },
    )  # fmt: skip
    selected = chosen.selection.rows
    if selected and selected[0] < len(found.segments):
        value = inside(found, found.segments[selected[0]])
        st.button(
            f"Apply {found.spec.label} {_number(value)}", key="sensitivity:apply", type="primary",
            icon=":material/check:", on_click=apply, args=(found.spec.path, value),
        )  # fmt: skip
    else:
        st.caption("Choose a row to set the parameter to the middle of its segment.")


def _row(look: Look, found: Sweep, i: int, one: Segment) -> dict[str, Any]:
    point = found.breakpoints[i - 1] if i else None
    relevant = _first_relevant(look, one.results)
    row: dict[str, Any] = {
        "": "▶" if one is found.present else "",
        "from": one.first,
        "to": one.last,
        "change": _changes(point) if point else "",
    }
    if relevant is not None:
        row["relevant"] = relevant or "–"
    return row | {"first results": _ids(one.results)}


def _changes(point: Breakpoint) -> str:
    """ "+ m378, − m106" or "m411 ▲ 1, m139 ▼ 1": what happens as the value rises past a breakpoint."""
    parts = [*(f"+ {short_id(key)}" for key in point.entered), *(f"− {short_id(key)}" for key in point.left)]
    for key in point.moved:
        if key in point.before:
            rise = point.before.index(key) - point.after.index(key)
            parts.append(f"{short_id(key)} {'▲' if rise > 0 else '▼'} {abs(rise)}")
    return ", ".join(parts)


def _first_relevant(look: Look, results: Sequence[str]) -> str | None:
    """The rank of the first relevant result as text, empty when none is there; None for a query that is not judged."""
    relevant = helpful(look.grades)
    if not relevant:
        return None
    return next((str(rank) for rank, key in enumerate(results, 1) if key in relevant), "")


def _ids(keys: Sequence[str]) -> str:
    return "  ".join(short_id(key) for key in keys)


def _choices(look: Look, found: Sweep) -> None:
    """Each value of a switch or a choice with its results and a button."""
    for one in found.segments:
        left, middle, right = st.columns([3, 7, 2], vertical_alignment="center")
        now = one is found.present
        left.markdown(f"{'▶ ' if now else ''}**{plain(shown(one.first))}**" + (" (now)" if now else ""))
        relevant = _first_relevant(look, one.results)
        stands = "" if relevant is None else f" · first relevant {relevant or 'not there'}"
        middle.caption(plain(f"{difference(found, one)}: {_ids(one.results) or 'no results'}{stands}"))
        right.button(
            "Apply", key=f"sensitivity:value:{one.first}", disabled=now, on_click=apply,
            args=(found.spec.path, one.first), width="stretch",
        )  # fmt: skip
