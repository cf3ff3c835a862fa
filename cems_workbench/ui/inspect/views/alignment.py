"""What late interaction saw in a text: each token of the query, the token of the text it met, and what that adds to the score.

adds(t) = idf(t) * cosine(t) / sum of all idf        their sum is the raw score
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import streamlit as st

from cems_workbench.analysis.token_heat import TokenHeat, token_heat
from cems_workbench.errors import ModelError
from cems_workbench.models.late_interaction import TokenCosines
from cems_workbench.models.protocol import PairScore
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import RERANK, RerankRow, model_key
from cems_workbench.ui.kit.escape import excerpt, plain
from cems_workbench.ui.kit.progress import progress_in
from cems_workbench.ui.kit.tables import short_id

INSIDE = "##"
"""Begins a wordpiece that goes on within a word."""
HELP = (
    "Late interaction compares token by token: each token of the query takes the token of the text that is nearest in meaning "
    "(highest cosine). Rare tokens count more (idf). score = sum of idf × cosine / sum of idf."
)
HEAT_HELP = (
    "The text in the pieces the model reads. The stronger the tint, the nearer in meaning to a rare token of the query. Underlined: "
    "the token that a query token met (its number stands above); these meetings alone make the late-interaction score."
)
COLUMNS = {
    "query": "A token of the query, in bold; the rest of its word is muted",
    "met": "The token of the text that is nearest to it; … before it: it goes on within a word",
    "cosine": "How near the two are, in their context: 1 is the same",
    "idf": "How rare the token is among the memories of this store; a rare one counts more",
    "adds": "idf × cosine / sum of idf: what it adds to the raw score",
}


@dataclass(frozen=True, slots=True)
class Met:
    """A query token between the rest of its word, the token it met (as the model writes it), and the numbers."""

    before: str
    piece: str
    after: str
    text: str
    cosine: float
    idf: float
    adds: float
    written: str
    """The query token as the model writes it."""


def draw_alignment(trace: Trace, followed: str | None) -> None:
    """The tokens of one candidate, and of a second beside it; without late interaction, why there are none."""
    st.markdown("###### Token by token", help=HELP)
    key = model_key(trace.config.rerank)
    scores = trace.evidence.model_scores.get(key, {})
    ranked = sorted(
        (row for row in trace.stage(RERANK).rows if alignment(scores.get(row.memory_id))),
        key=lambda row: row.rank_out or math.inf,
    )
    if not ranked:
        label = trace.evidence.notes.get("rerankers", {}).get(key) or key
        st.caption(
            f"{plain(str(label))} gave no tokens. Only late interaction says which words met: choose it under Rerank → "
            "Backend in the sidebar."
        )
        return
    named = {row.memory_id: _named(trace, row) for row in ranked}
    first, second = defaults(list(named), followed)
    for place, column, memory_id in zip(("first", "second"), st.columns(2, gap="medium"), (first, second), strict=True):
        with column:
            _draw_one(place, named, memory_id, scores)


def draw_token_heat(trace: Trace, resources: Resources, memory_id: str) -> None:
    """The text of one candidate with its tokens tinted, and the meetings as a table; asked for where no score has them."""
    st.markdown("###### Token by token", help=HEAT_HELP)
    config = trace.config.rerank
    score = trace.evidence.model_scores.get(model_key(config), {}).get(memory_id)
    text = (score.chunk if score is not None else None) or trace.evidence.memories[memory_id].content
    if not alignment(score) and not st.session_state.get("token_heat_on"):
        if not st.button(
            "Compare token by token", key="token_heat", help="Late interaction over the embedder; takes a moment."
        ):
            return
        st.session_state["token_heat_on"] = True
    compared = _compared(config.query or trace.evidence.searched, text, resources)
    if compared is None:
        return
    cosines, pair = compared
    if pair.raw is None:
        st.caption(f"There is nothing to compare: {plain(pair.error or 'no tokens')}.")
        return
    _draw_heat(cosines, pair, memory_id)


def _compared(query: str, text: str, resources: Resources) -> tuple[TokenCosines, PairScore] | None:
    """All cosines and the score with its alignment, the last pair kept; None after a line that says why there are none."""
    key = (query, text, str(resources.store.path), resources.store.content_version)
    kept = st.session_state.get("token_heat_of")
    if kept is not None and kept[0] == key:
        found: tuple[TokenCosines, PairScore] = kept[1]
        return found
    area = st.empty()
    try:
        reader = resources.late_interaction(progress_in(area))
        found = reader.cosines(query, text), reader.score(query, [text])[0]
    except ModelError as error:
        st.caption(plain(str(error)))
        return None
    finally:
        area.empty()
    st.session_state["token_heat_of"] = (key, found)
    return found


def _draw_heat(cosines: TokenCosines, pair: PairScore, memory_id: str) -> None:
    only = st.selectbox(
        "Tint by", range(len(cosines.query)), None, key=f"token_heat:{memory_id}", placeholder="every token of the query",
        format_func=lambda i: f"{i + 1}  {joined(cosines.query[i])}", help="One token of the query, or all of them together.",
    )  # fmt: skip
    cut = " The model reads no further." if pair.detail and pair.detail.get("truncated") else ""
    st.html(f'<div class="wb-heat-text">{heat_html(cosines, token_heat(cosines, only))}</div>')
    st.caption(f"Late-interaction score {pair.raw:.4f}.{cut}")
    st.html(alignment_html(met_tokens(alignment(ModelScore(pair.raw, detail=pair.detail))), pair.raw, numbered=True))


def heat_html(cosines: TokenCosines, heat: TokenHeat) -> str:
    """The tokens of the text as a line of words, each tinted by its strength; a met one is underlined and numbered."""
    parts = []
    for i, token in enumerate(cosines.text):
        inside = token.startswith(INSIDE) and len(token) > len(INSIDE)
        number = ", ".join(str(t + 1) for t in heat.met_by[i])
        tip = f"nearest: {joined(cosines.query[heat.nearest[i]])}, cosine {heat.cosine[i]:.3f}"
        shown = escape(joined(token)) + (f"<sup>{number}</sup>" if number else "")
        parts.append(
            f'{"" if inside or not i else " "}<span{" class=wb-met" if number else ""} title="{escape(tip)}" '
            f'style="background:color-mix(in srgb, light-dark(#0072B2, #56B4E9) {55 * heat.strength[i]:.0f}%, transparent)">{shown}</span>'
        )
    return "".join(parts)


def defaults(ranked: Sequence[str], followed: str | None) -> tuple[str, str | None]:
    """The candidates shown at first: the followed one beside the best, or the best two."""
    if followed in ranked and followed != ranked[0]:
        return ranked[0], followed
    return ranked[0], ranked[1] if len(ranked) > 1 else None


def _named(trace: Trace, row: RerankRow) -> str:
    memory_id = row.memory_id
    rank = row.rank_out or "✕"
    return f"{rank}  {short_id(memory_id)}  {excerpt(trace.evidence.memories[memory_id].content, 90)}"


def _draw_one(place: str, named: Mapping[str, str], default: str | None, scores: Mapping[str, ModelScore]) -> None:
    options = list(named)
    chosen = st.selectbox(
        f"{place} candidate", options, None if default is None else options.index(default), format_func=named.__getitem__,
        key=f"alignment:{place}:{default}", label_visibility="collapsed", placeholder="Set another candidate beside it",
    )  # fmt: skip
    if chosen is None:
        return
    score = scores[chosen]
    st.html(alignment_html(met_tokens(alignment(score)), score.raw))


def alignment(score: ModelScore | None) -> list[Mapping[str, Any]]:
    """What is kept of the tokens of a pair; empty where nothing is, or nothing that can be read."""
    kept = score.detail.get("alignment") if score is not None and score.detail else None
    return [entry for entry in kept if _readable(entry)] if isinstance(kept, (list, tuple)) else []


def _readable(entry: Any) -> bool:
    """Evidence may come from a file."""
    if not isinstance(entry, Mapping):
        return False
    numbers = [entry.get(name) for name in ("idf", "cosine")]
    finite = all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers)
    return finite and all(isinstance(entry.get(name), str) for name in ("query", "text"))


def met_tokens(entries: Sequence[Mapping[str, Any]]) -> list[Met]:
    """The tokens in the order of the query, each with the rest of the word it belongs to, and what it adds to the score."""
    total = sum(entry["idf"] for entry in entries)
    found = []
    for i, entry in enumerate(entries):
        start, end = i, i + 1
        while start and entries[start]["query"].startswith(INSIDE):
            start -= 1
        while end < len(entries) and entries[end]["query"].startswith(INSIDE):
            end += 1
        pieces = [joined(other["query"]) for other in entries[start:end]]
        found.append(
            Met(
                "".join(pieces[: i - start]), pieces[i - start], "".join(pieces[i - start + 1 :]), entry["text"],
                entry["cosine"], entry["idf"], entry["idf"] * entry["cosine"] / total if total > 0 else 0.0, entry["query"],
            )
        )  # fmt: skip
    return found


def joined(token: str) -> str:
    """A wordpiece without the sign that it goes on within a word."""
    return token.removeprefix(INSIDE) if len(token) > len(INSIDE) else token


def alignment_html(found: Sequence[Met], raw: float | None, *, numbered: bool = False) -> str:
    """A row per query token; the bar is its cosine, the numbers stand beside it, and the last row is their sum.

    `numbered` puts the place of each query token before it, as the tokens of a heat map refer to it.
    """
    head = "".join(f'<th title="{escape(about)}">{name}</th>' for name, about in COLUMNS.items())
    body = "".join(_row(met, i if numbered else None) for i, met in enumerate(found, 1))
    adds = sum(met.adds for met in found)
    said = "" if raw is None else f' title="The model\'s raw score, before rounding of the rows: {raw:.6f}"'
    foot = f"<tr><th>raw score</th><td></td><td></td><td>{sum(met.idf for met in found):.2f}</td><td{said}>{adds:.4f}</td></tr>"
    return f'<div class="wb-tokens"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody><tfoot>{foot}</tfoot></table></div>'


def _row(met: Met, number: int | None) -> str:
    inside = met.text.startswith(INSIDE) and len(met.text) > len(INSIDE)
    there = f"{_quiet('…')}{escape(joined(met.text))}" if inside else escape(met.text)
    place = "" if number is None else f"{_quiet(str(number))} "
    word = f"{place}{_quiet(met.before)}<b>{escape(met.piece)}</b>{_quiet(met.after)}"
    width = 100 * max(0.0, min(met.cosine, 1.0))
    return (
        f'<tr><th title="{escape(met.written)}">{word}</th><td title="{escape(met.text)}">{there}</td>'
        f'<td><div class="wb-cosine"><i style="width:{width:.0f}%"></i></div>{met.cosine:.3f}</td>'
        f"<td>{met.idf:.2f}</td><td>{met.adds:.4f}</td></tr>"
    )


def _quiet(text: str) -> str:
    return f'<span class="wb-quiet">{escape(text)}</span>' if text else ""
