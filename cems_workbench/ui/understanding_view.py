"""How the query was understood: corrected typos, whether it is conversational and why, and what the LLM was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import streamlit as st

from cems_workbench.config.understanding import Conversational
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages.conversational import limits_met
from cems_workbench.ui.memories_escape import plain

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
