"""Query: signals in its words, route, analysis, variants, and the strong-signal probe before expansion.

Analysis: corrected typos, whether it is conversational and why, and the use of the LLM.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.config.sections.gathering import Conversational
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_provenance import searched_lines
from cems_workbench.pipeline.stages import EXPANSION, QUERY
from cems_workbench.pipeline.stages.expansion import StrongSignal
from cems_workbench.pipeline.stages.query import DetectorMatch, limits_met
from cems_workbench.ui.inspect.context import InspectContext, View
from cems_workbench.ui.inspect.variants import draw_switches
from cems_workbench.ui.kit.html import plain, render

NO_LLM_TEXT = "No LLM was used: none is set (CEMS_WORKBENCH_LLM_MODEL)."
SCALES = {"raw": "unscaled", "max": "divided by the maximum", "saturating": "s / (1 + s)"}


def draw(context: InspectContext) -> None:
    """Draw signals and route, analysis, variants with switches, and the probe."""
    trace = context.trace
    fields = trace.stage(QUERY).fields
    st.html(signals_html(fields.query, fields.matches))
    if fields.route is not None:
        route, reason = fields.route
        st.caption(
            f"Routed to **{route}**: {reason}.",
            help="vector searches only the vector list; hybrid adds the lexical list. Set under Query → Search mode.",
        )
    _draw_understanding(trace)
    draw_switches(context)
    probe = trace.stage(EXPANSION).fields.probe
    if probe is None:
        st.caption("This evidence has no record of the strong-signal probe.")
        return
    st.html(probe_html(probe))


def signals_html(query: str, matches: Sequence[DetectorMatch]) -> Markup:
    """The query with all matched signals marked, and the matches per detector."""
    signals: dict[str, list[str]] = {}
    for match in matches:
        cut = " (inside a word)" if match.cuts_word else ""
        signals.setdefault(match.detector, []).append(f"“{match.signal}”{cut}")
    listed = [(detector, ", ".join(dict.fromkeys(texts))) for detector, texts in signals.items()]
    return render("inspect/signals.html", query=spans_html(query, matches), signals=listed)


def spans_html(query: str, matches: Sequence[DetectorMatch]) -> Markup:
    """The query with all matched signals marked; the tooltip of a mark names the detector."""
    edges = sorted({0, len(query), *(m.start for m in matches), *(m.end for m in matches)})
    spans = []
    for start, end in itertools.pairwise(edges):
        inside = [m for m in matches if m.start <= start and end <= m.end]
        spans.append((query[start:end], ", ".join(f"{m.detector}: {m.signal}" for m in inside)))
    return render("inspect/spans.html", spans=spans)


def _draw_understanding(trace: Trace) -> None:
    """Draw corrections, the conversational verdict, and the use of the LLM; imported evidence may lack these."""
    notes = trace.evidence.notes
    understood = notes.get("query", {})
    if understood.get("corrections"):
        st.html(corrections_html(understood["corrections"], understood.get("searched", "")))
    for line in searched_lines(trace.evidence.notes):
        st.caption(plain(f"{line[0].upper()}{line[1:]}."), help="Rerankers and judges read the query itself.")
    if "conversational" in understood:
        st.html(conversational_html(understood["conversational"], trace))
    if "llm" in notes:
        st.caption(
            llm_line(notes["llm"]),
            help="The model from the settings can detect the intent, expand the query and check corrections. Its replies are cached, and "
            "cached replies need no request.",
        )


def corrections_html(corrections: Sequence[Mapping[str, Any]], searched: str) -> Markup:
    """Each typo with its correction, their similarity, and the origin of the correction."""
    return render("inspect/corrections.html", corrections=corrections, searched=searched)


def conversational_html(features: Mapping[str, Any], trace: Trace) -> Markup:
    """The verdict, each feature with its words and limit, and the consequence."""
    config = trace.config.query.conversational
    met = limits_met(features["domain_signal"], features["stopword_ratio"], features["has_code"], config)
    count, (domain, stopwords, code) = features["words"], met
    listed = [
        (
            "domain signal",
            "Share of the words that are technical terms",
            f"{len(features['terms'])} of {count} = {features['domain_signal']:.3f}",
            f"< {config.max_domain_signal:g}",
            domain,
            features["terms"],
        ),
        (
            "stopword ratio",
            "Share of stop words",
            f"{len(features['stopwords'])} of {count} = {features['stopword_ratio']:.3f}",
            f"> {config.min_stopword_ratio:g}",
            stopwords,
            features["stopwords"],
        ),
        (
            "code",
            "Does the query show code?",
            "yes" if features["has_code"] else "none",
            "none",
            code,
            features["code"],
        ),
    ]
    consequence = _consequence(all(met), trace, config)
    return render("inspect/conversational.html", features=listed, verdict=all(met), consequence=consequence)


def _consequence(verdict: bool, trace: Trace, config: Conversational) -> str:
    """The consequence for the pipeline."""
    skipped = [
        name
        for name, skips in (
            ("the lexical list", trace.config.lists.lexical.skip_if_conversational),
            ("expansion", trace.config.expansion.skip_if_conversational),
        )
        if skips
    ]
    if not config.enabled:
        return "detection is off, so it has no effect"
    if not skipped:
        return "detection is on, but neither the lexical list nor expansion is set to be skipped"
    what = " and ".join(skipped)
    be = "are" if len(skipped) > 1 else "is"
    return f"so {what} {be} skipped" if verdict else f"so {what} {be} not skipped"


def llm_line(llm: Mapping[str, Any] | None) -> str:
    """The model used, its number of requests, and of cached replies."""
    if llm is None:
        return NO_LLM_TEXT
    calls, cached = llm["calls"], llm["cached"]
    return f"LLM {plain(str(llm['model']))}: {calls} request{'s' if calls != 1 else ''}, {cached} from the cache."


def probe_html(probe: StrongSignal) -> Markup:
    """The strong-signal probe: raw and scaled scores, both conditions with the gap to them, and the verdict."""
    if not probe.enabled:
        verdict = "Switched off"
    elif probe.fires:
        verdict = "Fires: expansion by a model or by feedback is skipped"
    else:
        verdict = "Does not fire"
    return render("inspect/probe.html", probe=probe, verdict=verdict, scale=SCALES[probe.scale], distance=_distance)


def _distance(short: float) -> str:
    return "✓ met" if short <= 0 else f"✕ short by {short:.4f}"


VIEW = View("Query", 20, draw)
