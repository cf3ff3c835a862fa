"""Query and Context: what the query was understood as, and the text passed to an agent.

Of the query: signals in its words, route, corrected typos, whether it is conversational and why, the use of the LLM, variants, and the
strong-signal probe before expansion.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_sources import searched_lines
from cems_workbench.pipeline.stages import ASSEMBLY, EXPANSION, QUERY
from cems_workbench.pipeline.stages.expansion import StrongSignal
from cems_workbench.pipeline.stages.query import DetectorMatch, limits_met
from cems_workbench.platform.bidi import neutralise
from cems_workbench.ui.inspect.context import InspectContext, token_count_text
from cems_workbench.ui.inspect.variants import draw_switches
from cems_workbench.ui.kit.html import capital, plain, render
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.views import View

SCALES = {"raw": "unscaled", "max": "divided by the maximum", "saturating": "s / (1 + s)"}


def draw_query(context: InspectContext) -> None:
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
    notes = trace.evidence.notes  # imported evidence may lack these
    understood = notes.get("query", {})
    if corrections := understood.get("corrections"):
        st.html(corrections_html(corrections, understood.get("searched", "")))
    for line in searched_lines(notes):
        st.caption(plain(f"{capital(line)}."), help="Rerankers and judges read the query itself.")
    if "conversational" in understood:
        st.html(conversational_html(understood["conversational"], trace))
    if "llm" in notes:
        help = "The model from the settings can detect the intent, expand the query and check corrections; its replies are cached."
        line, llm = "No LLM was used: none is set (CEMS_WORKBENCH_LLM_MODEL).", notes["llm"]
        if llm is not None:
            line = f"LLM {plain(str(llm['model']))}: requests {llm['calls']}, from the cache {llm['cached']}."
        st.caption(line, help=help)
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


def corrections_html(corrections: Sequence[Mapping[str, Any]], searched: str) -> Markup:
    """Each typo with its correction, their similarity, and the origin of the correction."""
    return render("inspect/corrections.html", corrections=corrections, searched=searched)


def conversational_html(features: Mapping[str, Any], trace: Trace) -> Markup:
    """The verdict, each feature with its words and limit, and the consequence."""
    config = trace.config.query.conversational
    met = limits_met(features["domain_signal"], features["stopword_ratio"], features["has_code"], config)
    skipping = (("the lexical list", trace.config.lists.lexical), ("expansion", trace.config.expansion))
    skipped = [name for name, section in skipping if section.skip_if_conversational]
    if not config.enabled:
        consequence = "detection is off, so it has no effect"
    elif not skipped:
        consequence = "detection is on, but neither the lexical list nor expansion is set to be skipped"
    else:
        be = "are" if len(skipped) > 1 else "is"
        consequence = f"so {' and '.join(skipped)} {be} {'skipped' if all(met) else 'not skipped'}"
    words = {"verdict": all(met), "consequence": consequence}
    return render("inspect/conversational.html", of=features, config=config, met=met, **words)


def probe_html(probe: StrongSignal) -> Markup:
    """The strong-signal probe: raw and scaled scores, both conditions with the gap to them, and the verdict."""
    if not probe.enabled:
        verdict = "Switched off"
    elif probe.fires:
        verdict = "Fires: expansion by a model or by feedback is skipped"
    else:
        verdict = "Does not fire"
    return render("inspect/probe.html", probe=probe, verdict=verdict, scale=SCALES[probe.scale])


MAX_NAMED = 4
"""Maximum omitted memories named."""


def draw_context(context: InspectContext) -> None:
    """Draw how the context was assembled, what did not fit, and the literal text."""
    trace = context.trace
    if not trace.results:
        st.caption("The context is empty: no memory was selected.")
        return
    strategy, skipped = trace.stage(ASSEMBLY).fields.strategy, trace.skipped_for_budget
    listed = ", ".join(plain(short_id(memory_id)) for memory_id in skipped[:MAX_NAMED])
    left_out = f" {len(skipped)} did not fit: {listed}{' …' if len(skipped) > MAX_NAMED else ''}." if skipped else ""
    st.caption(
        f"{trace.tokens_used} tokens, assembled by {strategy}.{left_out}",
        help="greedy: by score, as far as the token budget allows. mmr: the same, but preferring novel results. "
        f"{token_count_text(trace.config.assembly)} Texts are shown literally.",
    )
    text = "\n\n".join(f"[{result.rank}] {result.content}" for result in trace.results)
    st.code(neutralise(text), language=None, wrap_lines=True)


VIEW = (View("Query", 20, draw_query), View("Context", 110, draw_context))
