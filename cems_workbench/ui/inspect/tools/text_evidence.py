"""Text evidence: which words of a query met a memory, what they are worth, and how much of the memory the models read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.text_evidence import (
    LexicalEvidence,
    Match,
    Room,
    chunk_place,
    embedder_room,
    lexical_evidence,
    matches,
    read_until,
)
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.records import Memory, indexed_text
from cems_workbench.ui.inspect.look import Look
from cems_workbench.ui.inspect.views.alignment import draw_token_heat
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import excerpt, plain
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.templates import draw as draw_template
from cems_workbench.ui.kit.templates import render

WORDS_HELP = (
    "BM25 scores a memory by the words it shares with the query: each gives idf × a factor that grows with how often it stands in the "
    "memory and shrinks with the memory's length. Words are compared by their stem. The parts add up to the score in the lexical list."
)
COLUMNS = {
    "word": "As the query has it",
    "search term": "What the index looks for: the word's stem, or an identifier and its parts",
    "tf": "How often it stands in this memory",
    "df": "In how many memories of the store it stands",
    "idf": "How rare it is: ln(1 + (N − df + 0.5) / (df + 0.5)) among N memories",
    "BM25": "Its summand in the memory's score",
    "share": "Its share of the memory's score",
}
NUMBERS = ("tf", "df", "idf", "BM25")


def draw(look: Look) -> None:
    """One candidate: words in common, the whole text, and the tokens."""
    write_stylesheet("evidence")
    if not look.trace.evidence.memories:
        st.info("This query has no candidates: there is no text to look at.", icon=":material/search_off:")
        return
    memory = look.trace.evidence.memories[_candidate(look)]
    found = _words(look, memory)
    _whole(look, memory, found)
    draw_token_heat(look.trace, look.resources, memory.id)


def _candidate(look: Look) -> str:
    """The memory that is looked at: at first the followed one, else the first result."""
    ranked = {row.memory_id: row.rank for row in look.trace.results}
    rest = [row.memory_id for row in look.trace.stage(FUSION).rows if row.memory_id not in ranked]
    options = list(dict.fromkeys([*ranked, *rest, *sorted(look.trace.evidence.memories)]))
    key = f"text_evidence:{hash(look.request)}:{look.followed}"
    if st.session_state.get(key) not in options:
        st.session_state[key] = look.followed if look.followed in options else options[0]

    def named(memory_id: str) -> str:
        text = excerpt(look.trace.evidence.memories[memory_id].content, 90)
        return f"{ranked.get(memory_id, '–')}  {short_id(memory_id)}  {text}"

    chosen: str = st.selectbox(
        "Candidate", options, key=key, format_func=named,
        help="Its rank in the results; –: a candidate that is not in them.",
    )  # fmt: skip
    return chosen


def _words(look: Look, memory: Memory) -> LexicalEvidence:
    """The terms of one query variant, as a table; the choice where there are several variants."""
    st.markdown("###### Words in common", help=WORDS_HELP)
    variants = look.trace.evidence.variants
    lexical = look.resources.indexes.lexical
    every = [lexical_evidence(lexical, variant.text, memory) for variant in variants]
    best = max(range(len(every)), key=lambda i: (bool(every[i].matched), -i))
    which = best
    if len(variants) > 1:
        which = st.selectbox(
            "Query variant", range(len(variants)), best, key=f"text_evidence:variant:{hash(look.request)}:{memory.id}",
            format_func=lambda i: f"{i}  {excerpt(variants[i].text, 80)}  ({len(every[i].matched)} of {len(every[i].terms)} terms)",
            help="Each form of the query was searched on its own.",
        )  # fmt: skip
    found = every[which]
    st.html(terms_html(found) + summary_html(found, _list_line(look, memory.id, which, found)))
    return found


def _list_line(look: Look, memory_id: str, which: int, found: LexicalEvidence) -> str:
    """Where the memory stands in this variant's lexical list, or why it does not."""
    name = f"lexical:{which}"
    ranked = next((ranked for ranked in look.trace.evidence.lists if ranked.name == name), None)
    if ranked is None:
        return f"{name} was not searched: the query is routed to meaning alone (Query → Search mode). It would have scored this."
    places = {hit.memory_id: rank for rank, hit in enumerate(ranked.hits, 1)}
    if memory_id in places:
        return f"Rank {places[memory_id]} of {len(ranked.hits)} in {name}."
    if found.matched and ranked.hits:
        return f"Not in {name}, whose last of {len(ranked.hits)} hits scores {ranked.hits[-1].score:.4f}."
    return f"Not in {name}."


def terms_html(found: LexicalEvidence) -> Markup:
    """A row per matched term, the largest part first, and their sum; empty when none matched."""
    if not found.matched:
        return Markup()
    columns = [{"name": name, "about": about, "number": name in NUMBERS} for name, about in COLUMNS.items()]
    rows = [
        {
            "term": term,
            "words": ", ".join(term.words),
            "twice": f" × {term.asked}" if term.asked > 1 else "",
            "df": f"{term.df:,}",
            "percent": 100 * found.share(term),
        }
        for term in found.matched
    ]
    return render(
        "inspect/tools/text_terms.html", columns=columns, rows=rows, documents=f"{found.documents:,}", score=found.score
    )


def summary_html(found: LexicalEvidence, place: str) -> Markup:
    """What the table does not say: the place in the list, the terms that met nothing, and the stop words."""
    lines = []
    if found.unmatched:
        listed = ", ".join(
            f"{' / '.join(term.words)} ({'in no memory' if not term.df else f'in {term.df:,}'})" for term in found.unmatched
        )  # fmt: skip
        lines.append(f"Not in this memory: {listed}")
    if found.stop_words:
        lines.append(f"Stop words, never searched: {', '.join(found.stop_words)}")
    return render("inspect/tools/text_said.html", verdict=_verdict(found), place=place, lines=lines)


def _verdict(found: LexicalEvidence) -> str:
    if not found.terms:
        return "This query has stop words only: lexical search finds nothing with it."
    if not found.matched:
        return "No word in common: lexical search cannot find this memory with this query."
    return f"{len(found.matched)} of {len(found.terms)} search terms are in this memory."


def _whole(look: Look, memory: Memory, found: LexicalEvidence) -> None:
    """The memory in full: terms marked, the reranker's part between its edges, and where the embedder stopped reading."""
    st.markdown("###### The whole memory")
    config = look.trace.config.rerank
    score = look.trace.evidence.model_scores.get(model_key(config), {}).get(memory.id)
    room = embedder_room(look.resources.embedder)
    chunk = None if score is None or config.backend == "none" else score.chunk
    place = None if chunk is None else chunk_place(memory.content, chunk)
    edges: list[tuple[int, str, str]] = []
    if place is not None:
        edges += _reader_edges(memory, place, score, config.backend, room)
    edges += _embedder_edge(memory, room)
    tips = {term.term: f"{term.term}: {100 * found.share(term):.1f} % of the BM25" for term in found.matched}
    title = "" if not memory.title or memory.content.startswith(memory.title) else memory.title
    draw_template(
        "inspect/tools/text_whole.html",
        marked=bool(tips),
        read=place is not None,
        edges=bool(edges),
        title=marked_html(title, matches(title, tips), tips),
        body=marked_html(memory.content, matches(memory.content, tips), tips, place, edges),
    )
    if chunk is not None and place is None:
        st.caption("The reranker read this text, which is not in the memory as it is now:")
        st.code(chunk, language=None, wrap_lines=True)
    st.caption(_reading_line(look, memory, score, place))


def _reader_edges(
    memory: Memory, place: tuple[int, int], score: ModelScore | None, backend: str, room: Room | None
) -> list[tuple[int, str, str]]:
    """Begin and end of the reranker's chunk, and where it ran out of tokens within it."""
    start, end = place
    edges = [(start, "reranker ▸", "The text that the reranker was given begins here")]
    if score is not None and score.detail and score.detail.get("truncated"):
        cut = read_until(memory.content[start:end], room) if room and backend == "late_interaction" else None
        tip = (
            f"The model reads {room.tokens} tokens: the rest of the chunk was cut off"
            if room and cut is not None
            else ""
        )
        at = end if cut is None else start + cut
        edges.append((at, "✂ cut off", tip or "The chunk was longer than the model reads: its end was cut off"))
    edges.append((end, "◂ reranker", "The text that the reranker was given ends here"))
    return edges


def _embedder_edge(memory: Memory, room: Room | None) -> list[tuple[int, str, str]]:
    """Where the embedder's room for tokens ended: what comes after is not in the vector."""
    text = indexed_text(memory)
    cut = None if room is None else read_until(text, room)
    if room is None or cut is None:
        return []
    at = max(0, cut - (len(text) - len(memory.content)))
    return [(at, "✂ embedder", f"The embedder reads {room.tokens} tokens: what comes after is not in the vector")]


def marked_html(
    text: str, found: Sequence[Match], tips: Mapping[str, str], read: tuple[int, int] | None = None,
    edges: Sequence[tuple[int, str, str]] = (),
) -> Markup:  # fmt: skip
    """The text: matches as marks with a tip, what is outside `read` dimmed, and (place, sign, tip) edges in it."""
    cuts = {
        0,
        len(text),
        *(place for match in found for place in (match.start, match.end)),
        *(place for place, *_ in edges),
    }
    cuts |= set(read or ())
    signs: dict[int, list[dict[str, str]]] = {}
    for place, sign, about in edges:
        signs.setdefault(place, []).append({"sign": sign, "about": about})
    marks = {match.start: match for match in found}
    ordered, parts, inside = sorted(cuts), [], None
    for start, end in zip(ordered, [*ordered[1:], len(text)], strict=True):
        inside = marks.get(start, inside if inside is not None and start < inside.end else None)
        mark = None if inside is None else "; ".join(tips[term] for term in inside.terms if term in tips)
        unread = read is not None and not (read[0] <= start < read[1])
        parts.append({"edges": signs.get(start, ()), "text": text[start:end], "mark": mark, "unread": unread})
    return render("inspect/tools/text_marked.html", parts=parts)


def _reading_line(look: Look, memory: Memory, score: ModelScore | None, place: tuple[int, int] | None) -> str:
    """What the reranker read of it, in one line."""
    config = look.trace.config.rerank
    if config.backend == "none":
        return "No reranker read it: reranking is off."
    if score is None:
        return "The reranker did not read it: it is not among the first candidates (Rerank → input limit)."
    if score.error is not None:
        return f"The reranker gave no score: {plain(score.error)}."
    if place is None:
        return ""
    length, whole = place[1] - place[0], len(memory.content)
    cut = (
        " Its end was cut off: the model reads no more tokens."
        if score.detail and score.detail.get("truncated")
        else ""
    )
    part = "all of it" if length == whole else f"{length:,} of {whole:,} characters"
    return (
        f"The reranker read {part} (chunk of at most {config.chunk_chars:,}, by {plain(config.chunk_selection)}).{cut}"
    )
