"""What was searched and why: signals in the query, the route, its variants, the strong-signal probe, and the lists.

How the query was understood: corrected typos, whether it is conversational and why, and what the LLM was asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import streamlit as st

from cems_workbench.config import depth_notes
from cems_workbench.config.sections.understanding import Conversational
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages.expansion import EXPANSION
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.query import QUERY, Signal, limits_met
from cems_workbench.ui.inspect import state, tables
from cems_workbench.ui.inspect.glossary import RAW, about
from cems_workbench.ui.kit.escape import plain

NO_LLM = "No LLM was asked: none is set (CEMS_WORKBENCH_LLM_MODEL)."


def draw_understanding(trace: Trace) -> None:
    """Corrections, the verdict on the query, and the LLM; evidence of elsewhere may know none of these."""
    notes = trace.evidence.notes
    about = notes.get("query", {})
    if about.get("corrections"):
        st.html(corrections_html(about["corrections"], about.get("searched", "")))
    if "conversational" in about:
        st.html(conversational_html(about["conversational"], trace))
    if "llm" in notes:
        st.caption(
            llm_line(notes["llm"]),
            help="The model of the settings can say the intent, expand the query and check corrections. Its replies are kept: a "
            "cached one asks nobody.",
        )


def corrections_html(corrections: Sequence[Mapping[str, Any]], searched: str) -> str:
    """Each typo with what it became, how alike the two are, and where the correction is from."""
    rows = "".join(
        f"<tr><th>{escape(found['typo'])} → {escape(found['correction'])}</th><td>{found['similarity']:.2f}</td>"
        f"<td>{escape(found['source'])}</td></tr>"
        for found in corrections
    )
    head = (
        '<tr><td title="The word as typed, and what was searched instead">correction</td>'
        '<td title="1 − edit distance / longer length">similarity</td>'
        '<td title="store: a word of the memories; learned: a correction accepted before">from</td></tr>'
    )
    return (
        '<div class="wb-probe wb-corrections"><div title="Words nobody wrote were replaced before the search">'
        f"<b>Typos corrected</b> searched: {escape(searched)}</div><table>{head}{rows}</table></div>"
    )


def conversational_html(found: Mapping[str, Any], trace: Trace) -> str:
    """The verdict, each feature with the words it was found in and its limit, and what follows from it."""
    config = trace.config.query.conversational
    met = limits_met(found["domain_signal"], found["stopword_ratio"], found["has_code"], config)
    verdict = "Conversational" if all(met) else "Not conversational"
    words = found["words"]
    rows = [
        (
            "domain signal",
            "Share of the words that are technical terms",
            f"{len(found['terms'])} of {words} = {found['domain_signal']:.3f}",
            f"&lt; {config.max_domain_signal:g}",
            found["terms"],
        ),
        (
            "stopword ratio",
            "Share of the words that say little by themselves",
            f"{len(found['stopwords'])} of {words} = {found['stopword_ratio']:.3f}",
            f"&gt; {config.min_stopword_ratio:g}",
            found["stopwords"],
        ),
        ("code", "Does the query show code?", "yes" if found["has_code"] else "none", "none", found["code"]),
    ]
    cells = "".join(
        f'<tr><th title="{title}">{name}</th><td>{value}</td><td>{needed}</td><td>{"✓" if yes else "✕"}</td>'
        f"<td>{escape(', '.join(dict.fromkeys(seen)))}</td></tr>"
        for (name, title, value, needed, seen), yes in zip(rows, met, strict=True)
    )
    head = (
        '<tr><td></td><td title="In this query">found</td><td title="All three make a query conversational">needed</td>'
        '<td></td><td title="What it was found in">words</td></tr>'
    )
    return (
        '<div class="wb-probe wb-conversational"><div title="Vague talk, on which lexical search and expansion do harm (ACE)">'
        f"<b>{verdict}</b> {escape(_consequence(all(met), trace, config))}</div><table>{head}{cells}</table></div>"
    )


def _consequence(verdict: bool, trace: Trace, config: Conversational) -> str:
    """What the pipeline does about it."""
    skipped = [
        name
        for name, skips in (
            ("the lexical list", trace.config.lists.lexical.skip_if_conversational),
            ("expansion", trace.config.expansion.skip_if_conversational),
        )
        if skips
    ]
    if not config.enabled:
        return "the detection is off, so nothing follows"
    if not skipped:
        return "the detection is on, but neither the lexical list nor expansion is set to be skipped"
    what = " and ".join(skipped)
    be = "are" if len(skipped) > 1 else "is"
    return f"so {what} {be} skipped" if verdict else f"so {what} {be} not skipped"


def llm_line(llm: Mapping[str, Any] | None) -> str:
    """Which model was asked, and how often its replies were cached."""
    if llm is None:
        return NO_LLM
    calls, cached = llm["calls"], llm["cached"]
    return f"LLM {plain(str(llm['model']))}: asked {calls} time{'s' if calls != 1 else ''}, {cached} from the cache."


WHOLE = [source.name for source in LIST_SOURCES if not source.relevance]
"""Lists whose raw scores are whole numbers: seconds, and counts."""


def draw_query(trace: Trace, request: Request) -> None:
    """Signals and route, variants with a switch each, and the probe."""
    fields = trace.stage(QUERY).fields
    st.html(
        f'<div class="wb-spans">{spans_html(fields.query, fields.matches)}</div>'
        f'<div class="wb-facts">{_signals(fields.matches)}</div>'
    )
    if fields.route is not None:
        route, reason = fields.route
        st.caption(
            f"Routed to **{route}**: {reason}.",
            help="vector searches the vector list alone; hybrid adds the lexical list. Set under Query → Search mode.",
        )
    draw_understanding(trace)
    draw_variants(trace, request)
    probe = trace.stage(EXPANSION).fields.probe
    if probe is None:
        st.caption("This evidence has no record of the strong-signal probe.")
        return
    st.html(probe_html(probe))


def spans_html(query: str, matches: Sequence[Signal]) -> str:
    """The query with every matched signal marked; the mark's title names the detector."""
    edges = sorted({0, len(query), *(m.start for m in matches), *(m.end for m in matches)})
    parts = []
    for start, end in itertools.pairwise(edges):
        inside = [m for m in matches if m.start <= start and end <= m.end]
        text = escape(query[start:end])
        if inside:
            title = escape(", ".join(f"{m.detector}: {m.signal}" for m in inside))
            parts.append(f'<mark title="{title}">{text}</mark>')
        else:
            parts.append(text)
    return "".join(parts)


def _signals(matches: Sequence[Signal]) -> str:
    if not matches:
        return "<span>No preference, temporal or aggregation signal in these words.</span>"
    found: dict[str, list[str]] = {}
    for match in matches:
        cut = " (inside a word)" if match.cuts_word else ""
        found.setdefault(match.detector, []).append(f"“{match.signal}”{cut}")
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
    off = state.variants_off(request)
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
    off = set(state.variants_off(request))
    on = st.session_state[f"variant:{hash(request)}:{which}"]
    off = off - {which} if on else off | {which}
    state.switch_variants(request, frozenset(i for i in off if i < count))


def probe_html(probe: Mapping[str, Any]) -> str:
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
    stage = trace.stage(LISTS)
    for warning in stage.warnings:
        st.html(f'<div class="wb-notes"><div><span>⚠ {escape(warning)}</span></div></div>')
    for note in depth_notes(trace.config):
        st.caption(
            f"{note}.",
            help="The limit is that of Assembly; oversample is set under Rerank, the coarse multiplier under Lists.",
        )
    entries = [entry for entry in stage.fields.lists if entry.gathered]
    if not entries:
        st.caption("No list has a hit.")
        return
    with st.container(key="lists"):
        columns = st.columns(len(entries))  # the stylesheet wraps them
    for column, entry in zip(columns, entries, strict=True):
        with column:
            note = "" if entry.active else " · off"
            source = entry.name.partition(":")[0]
            st.markdown(f"**{entry.name}**  {entry.used} of {entry.gathered} hits{note}", help=about(entry.name))
            st.dataframe(
                tables.list_table(trace, entry.name),
                hide_index=True,
                height=330,
                row_height=30,
                placeholder="",
                key=f"list:{entry.name}",
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
