"""What was searched and why: signals in the query, the route, its variants, the strong-signal probe, and the lists."""

from __future__ import annotations

import itertools
from html import escape
from typing import Any

import streamlit as st

from cems_workbench.config import depth_notes
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.ui import state, tables
from cems_workbench.ui.glossary import RAW, about
from cems_workbench.ui.understanding_view import draw_understanding

WHOLE = ("recency", "access")
"""Lists whose raw scores are whole numbers: seconds, and counts."""


def draw_query(trace: Trace, request: Request) -> None:
    """Signals and route, variants with a switch each, and the probe."""
    fields = trace.stage("query").fields
    st.html(
        f'<div class="wb-spans">{spans_html(fields["query"], fields["matches"])}</div>'
        f'<div class="wb-facts">{_signals(fields["matches"])}</div>'
    )
    if "route" in fields:
        st.caption(
            f"Routed to **{fields['route']}**: {fields['route_reason']}.",
            help="vector searches the vector list alone; hybrid adds the lexical list. Set under Query → Search mode.",
        )
    draw_understanding(trace)
    draw_variants(trace, request)
    probe = trace.stage("expansion").fields.get("probe")
    if probe is None:
        st.caption("This evidence has no record of the strong-signal probe.")
        return
    st.html(probe_html(probe))


def spans_html(query: str, matches: list[dict[str, Any]]) -> str:
    """The query with every matched signal marked; the mark's title names the detector."""
    edges = sorted({0, len(query), *(m["start"] for m in matches), *(m["end"] for m in matches)})
    parts = []
    for start, end in itertools.pairwise(edges):
        inside = [m for m in matches if m["start"] <= start and end <= m["end"]]
        text = escape(query[start:end])
        if inside:
            title = escape(", ".join(f"{m['detector']}: {m['signal']}" for m in inside))
            parts.append(f'<mark title="{title}">{text}</mark>')
        else:
            parts.append(text)
    return "".join(parts)


def _signals(matches: list[dict[str, Any]]) -> str:
    if not matches:
        return "<span>No preference, temporal or aggregation signal in these words.</span>"
    found: dict[str, list[str]] = {}
    for match in matches:
        cut = " (inside a word)" if match["cuts_word"] else ""
        found.setdefault(match["detector"], []).append(f"“{match['signal']}”{cut}")
    return "".join(
        f"<span><b>{escape(name)}</b> {escape(', '.join(dict.fromkeys(texts)))}</span>" for name, texts in found.items()
    )


def draw_variants(trace: Trace, request: Request) -> None:
    """Every variant with a switch; the query itself is always searched."""
    variants = trace.evidence.variants
    if len(variants) < 2:
        st.caption(
            "One variant was searched: the query as it is.", help="Choose an expansion under Expansion in the sidebar."
        )
        return
    st.caption("Variants searched; switching one off is instant.")
    off = state.switched_off(request)
    for i, variant in enumerate(variants):
        switch, text = st.columns([1, 9], vertical_alignment="center")
        switch.toggle(
            f"variant {i}", i not in off, key=f"variant:{hash(request)}:{i}", label_visibility="collapsed", disabled=i == 0,
            on_change=_switch, args=(request, i, len(variants)),
        )  # fmt: skip
        text.html(
            f'<div class="wb-facts"><span>{escape(variant.kind)}</span></div><div class="wb-text">{escape(variant.text)}</div>'
        )


def _switch(request: Request, which: int, count: int) -> None:
    off = set(state.switched_off(request))
    on = st.session_state[f"variant:{hash(request)}:{which}"]
    off = off - {which} if on else off | {which}
    state.switch_variants(request, frozenset(i for i in off if i < count))


def probe_html(probe: dict[str, Any]) -> str:
    """The strong-signal probe: raw and scaled scores, both conditions with their distance, and the verdict."""
    scale = {"raw": "as it is", "max": "divided by the maximum", "saturating": "s / (1 + s)"}[probe["scale"]]
    if not probe["enabled"]:
        verdict = "Switched off"
    elif probe["fires"]:
        verdict = "Fires: expansion by a model or by feedback is skipped"
    else:
        verdict = "Does not fire"
    lead = f"{probe['top'] - probe['second']:.4f}"
    threshold, gap = f"≥ {probe['threshold']:g}", f"≥ {probe['gap']:g}"
    rows = [
        (
            "first hit",
            f"{probe['raw_top']:.4f} raw",
            f"{probe['top']:.4f}",
            threshold,
            _distance(probe["short_of_threshold"]),
        ),
        ("second hit", f"{probe['raw_second']:.4f} raw", f"{probe['second']:.4f}", "", ""),
        ("lead of the first", "", lead, gap, _distance(probe["short_of_gap"])),
    ]
    cells = "".join(f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>" for name, *rest in rows)
    title = "Lexical probe before expansion: skip it when the first hit is strong and well ahead of the second."
    head = (
        '<tr><th></th><td title="Score of the lexical search">BM25</td>'
        f'<td title="What the conditions compare: BM25 {scale}">scaled</td>'
        '<td title="Signal threshold and signal gap, under Expansion">needed</td><td></td></tr>'
    )
    return f'<div class="wb-probe"><div title="{title}"><b>Strong-signal probe</b> {verdict}</div><table>{head}{cells}</table></div>'


def _distance(short: float) -> str:
    return "✓ met" if short <= 0 else f"✕ short by {short:.4f}"


def draw_lists(trace: Trace) -> None:
    """Every gathered list with raw and normalised scores, and its warnings."""
    stage = trace.stage("lists")
    for warning in stage.warnings:
        st.html(f'<div class="wb-notes"><div><span>⚠ {escape(warning)}</span></div></div>')
    for note in depth_notes(trace.config):
        st.caption(
            f"{note}.",
            help="The limit is that of Assembly; oversample is set under Rerank, the coarse multiplier under Lists.",
        )
    entries = [entry for entry in stage.fields["lists"] if entry["gathered"]]
    if not entries:
        st.caption("No list has a hit.")
        return
    with st.container(key="lists"):
        columns = st.columns(len(entries))  # the stylesheet wraps them
    for column, entry in zip(columns, entries, strict=True):
        with column:
            note = "" if entry["active"] else " · off"
            source = entry["name"].partition(":")[0]
            st.markdown(
                f"**{entry['name']}**  {entry['used']} of {entry['gathered']} hits{note}", help=about(entry["name"])
            )
            st.dataframe(
                tables.list_table(trace, entry["name"]),
                hide_index=True,
                height=330,
                row_height=30,
                placeholder="",
                key=f"list:{entry['name']}",
                column_config={
                    "#": st.column_config.NumberColumn("#", width=40),
                    "memory": st.column_config.TextColumn("memory", width=84),
                    "raw": st.column_config.NumberColumn(
                        "raw", format="%.0f" if source in WHOLE else "%.4f", width=92, help=RAW.get(source)
                    ),
                    "normalised": st.column_config.NumberColumn(
                        "normalised",
                        format="%.4f",
                        width=88,
                        help="What threshold and fusion work with; empty: cut or off",
                    ),
                    "content": st.column_config.TextColumn("content", width="medium"),
                },
            )
