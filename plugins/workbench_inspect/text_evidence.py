"""Text evidence: query words found in a memory and their scores, the text read by the models, and token similarity.

Why a memory's text matches a query: by words (BM25, ts_rank) and by tokens (late interaction), and how far models read it.

    BM25(memory)  = sum over the query's terms t, as often as the query has them, of
                    idf(t) * tf / (tf + k1 * (1 - b + b * length / mean length)),  idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))
    ts_rank(text) = 1/n * sum over the query's n lexemes of gain(its count c in the text),
                    gain(c) = 0.1 * (1 + 1/4 + 1/9 + ... + 1/c²) / 1.64493
    strength(s)   = max over query tokens t of idf(t) * max(0, cos(t, s)) / largest idf   0..1, of text token s; of one t its cosine

BM25's parts are read from the index, so that they add up to the score in the list. A query that PostgreSQL reads as a phrase, or as words
that must all occur, is ranked by distances: its lexemes have no parts. A query token matches the text token nearest to it; only these
matches make the score. `seed_overlap` appends a ". " to what a reranker reads, which the content may not have there. A model cuts a text
after its last token; the cut is given as the end of the last whole word before it.

Source: Robertson and Zaragoza 2009, as bm25s computes it; pg_text_search/ts_rank.py; ColBERT's MaxSim (Khattab & Zaharia 2020).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st
from markupsafe import Markup
from numpy.typing import NDArray

from cems_workbench.analysis.text_evidence import Match, chunk_words, idf, matches
from cems_workbench.errors import ModelError
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.models.late_interaction import TokenCosines
from cems_workbench.models.protocol import PairScore, QueryEmbedder
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.scoring import as_read, given_chunks, reads_question, without_fields, without_question
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.platform.bidi import neutralise
from cems_workbench.records import DEFAULT_TEXT_RULE, Memory
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.tokenizer import chunks, terms_of, tokenize
from cems_workbench.store.text_rule import chunk_text, searched_text
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.inspect.results import shown_title
from cems_workbench.ui.inspect.tables import alignment, continues_word, joined
from cems_workbench.ui.kit.html import draw as draw_template
from cems_workbench.ui.kit.html import excerpt, plain, render, write_stylesheet
from cems_workbench.ui.kit.session import kept
from cems_workbench.ui.kit.tables import Column, draw_table, short_id
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import progress_bar

if TYPE_CHECKING:
    from cems_workbench.store.search.postgres import TsRankIndex


@dataclass(frozen=True, slots=True)
class Term:
    """One search term or lexeme of the query: `words` are the query's words it comes from, `asked` how often it is in
    the query. `count`: times in the text; `holding`: memories (of ts_rank: chunks) of the store that have it; `part`:
    its summand of the score, all occurrences together; `idf` is None for ts_rank."""

    term: str
    words: tuple[str, ...]
    count: int
    holding: int
    part: float
    asked: int = 1
    idf: float | None = None


@dataclass(frozen=True, slots=True)
class WordsInCommon:
    """All terms of one query variant against one memory, and its score for them, 0 without one in common. `chunk` is
    the chunk that was scored, by its `seq`, of a memory that has any: its best. `by_distance`: ranked by the distances
    of words, so that no term has a part."""

    terms: tuple[Term, ...]
    stop_words: tuple[str, ...]
    score: float
    chunk: int | None = None
    by_distance: bool = False

    @property
    def matched(self) -> tuple[Term, ...]:
        """The terms that the memory has, the largest part first."""
        return tuple(sorted((found for found in self.terms if self._has(found)), key=lambda found: -found.part))

    @property
    def unmatched(self) -> tuple[Term, ...]:
        """The terms that the memory lacks, in the order of the query."""
        return tuple(found for found in self.terms if not self._has(found))

    def _has(self, found: Term) -> bool:
        return found.count > 0 if self.by_distance else found.part > 0

    def share(self, found: Term) -> float:
        """The term's share of the score, 0..1."""
        return found.part / self.score if self.score > 0 else 0.0


def _origins(
    words: Sequence[str], terms: Callable[[str], Collection[str]]
) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """The words that each term comes from, as often as they are there, and the words that give none."""
    of: dict[str, list[str]] = {}
    for word in words:
        for term in terms(word):
            of.setdefault(term, []).append(word)
    return of, tuple(dict.fromkeys(word for word in words if not terms(word)))


def lexical_evidence(
    index: LexicalIndex, query: str, memory: Memory, texts: Mapping[int | None, str] | None = None
) -> WordsInCommon:
    """The part of each term of `query` in the BM25 of `memory` in the current index; for a memory with chunks, of its
    best chunk. `texts` are the searched texts of the memory (`store.indexes.texts`); without them it is searched whole,
    by the default text rule."""
    words, stop_words = _origins(chunks(query), lambda word: terms_of(word, index.language))
    by_chunk = index.chunk_contributions(memory.id, list(words))

    def parts(chunk: int | None) -> dict[str, float]:
        return {term: len(words[term]) * by_chunk.get(chunk, {}).get(term, 0.0) for term in words}

    best = max(by_chunk, key=lambda chunk: sum(parts(chunk).values()), default=None)
    inside = tokenize((texts or {}).get(best, searched_text(memory)), index.language)
    found = []
    for term, part in parts(best).items():
        df, of = index.document_frequency(term), words[term]
        rare = idf(df, index.document_count)
        found.append(Term(term, tuple(dict.fromkeys(of)), inside.count(term), df, part, len(of), rare))
    return WordsInCommon(tuple(found), stop_words, sum(term.part for term in found), best)


WORD = re.compile(r"[^\W_]+(?:[-'’._/@:][^\W_]+)*")
"""A word marked in a text: what PostgreSQL may parse as one token, without the marks around it."""


def rank_evidence(index: TsRankIndex, query: str, texts: Mapping[int | None, str]) -> WordsInCommon:
    """The part of each lexeme of `query` in the ts_rank of the best of `texts`, a memory's searched texts
    (`store.indexes.texts`). Raises TsQueryError if the server would reject the query."""
    from pg_text_search.ts_rank import GAINS, lexemes, or_query, ts_rank

    asked = or_query(query)
    documents = {chunk: lexemes(text) for chunk, text in texts.items()}
    best = max(documents, key=lambda chunk: ts_rank(documents[chunk], asked), default=None)
    inside = documents.get(best, {})
    words, stop_words = _origins([match[0] for match in WORD.finditer(query)], lexemes)
    met = []
    for name in (term.lexeme for term in asked.terms):
        count = len(inside.get(name, ()))
        part = 0.0 if asked.ranks_pairs else float(GAINS[count]) / len(asked.terms)
        met.append(Term(name, tuple(dict.fromkeys(words.get(name, [name]))), count, index.chunks_with(name), part))
    place = {lexeme: i for i, lexeme in enumerate(words)}
    met.sort(key=lambda found: place.get(found.term, len(place)))
    score = ts_rank(inside, asked) if any(found.count for found in met) else 0.0
    return WordsInCommon(tuple(met), stop_words, score, best, asked.ranks_pairs)


def lexeme_matches(text: str, wanted: Collection[str]) -> list[Match]:
    """Occurrences of these lexemes in `text`, in order, without overlaps: the words that yield them."""
    from pg_text_search.ts_rank import lexemes

    asked = set(wanted)
    found = []
    for match in WORD.finditer(text):
        met = tuple(lexeme for lexeme in lexemes(match[0]) if lexeme in asked)
        if met:
            found.append(Match(match.start(), match.end(), met))
    return found


WHOLE_WORD = re.compile(r"\S+")
JOINT = ". "
"""Separator of `seed_overlap`."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many tokens a model reads of a text, and how it counts them."""

    tokens: int
    count: Callable[[str], int]


def embedder_room(embedder: QueryEmbedder) -> Room | None:
    """The embedder's (and late interaction's) reach in one text; None for one on a server, because its tokens are unknown."""
    if not isinstance(embedder, TokenEmbedder):
        return None
    return Room(embedder.room, lambda text: len(embedder.wordpieces([text])[0]))


def chunk_place(content: str, chunk: str) -> tuple[int, int] | None:
    """(start, end) of the chunk in the content; None when it is not from this content."""
    for joint in ("", JOINT[0], JOINT):
        if chunk.endswith(joint):
            text = chunk[: len(chunk) - len(joint)]
            start = content.find(text)
            if start >= 0:
                return start, start + len(text)
    return None


def read_until(text: str, room: Room) -> int | None:
    """The end of the last whole word that fits; None if the whole text fits."""
    if room.count(text) <= room.tokens:
        return None
    ends = [word.end() for word in WHOLE_WORD.finditer(text)]
    fits, past = 0, len(ends)
    while past - fits > 1:  # the first `fits` words fit, the first `past` do not
        middle = (fits + past) // 2
        if room.count(text[: ends[middle - 1]]) <= room.tokens:
            fits = middle
        else:
            past = middle
    return ends[fits - 1] if fits else 0


@dataclass(frozen=True, eq=False)
class TokenSimilarity:
    """Per text token (S): strength 0..1, the query token of that strength and their cosine; `met_by`: query tokens that matched it."""

    strength: NDArray[np.float64]
    nearest: NDArray[np.int64]
    cosine: NDArray[np.float64]
    met_by: tuple[tuple[int, ...], ...]


def token_similarity(cosines: TokenCosines, only: int | None = None) -> TokenSimilarity:
    """The heat of every query token together, or of the one at place `only`. Query and text have at least one token each."""
    warm = np.maximum(cosines.cosine, 0.0)
    if only is None:
        most = float(cosines.idf.max())
        weighted = warm * (cosines.idf / most if most > 0 else np.zeros(len(cosines.idf)))[:, None]
    else:
        weighted = np.where(np.arange(len(warm))[:, None] == only, warm, -1.0)
    nearest = weighted.argmax(axis=0)
    places = np.arange(weighted.shape[1])
    met = cosines.cosine.argmax(axis=1)
    asked = range(len(met)) if only is None else (only,)
    met_by = tuple(tuple(t for t in asked if met[t] == s) for s in places)
    return TokenSimilarity(
        np.clip(weighted[nearest, places], 0.0, 1.0), nearest, cosines.cosine[nearest, places], met_by
    )


WORDS_HELP = (
    "BM25 scores a memory by the words it shares with the query: each adds idf × a factor that grows with its frequency in the memory and "
    "decreases with the memory’s length. Words are compared by stem. The parts add up to the score in the lexical list."
)
RANK_HELP = (
    "ts_rank sums the parts of the query’s lexemes and divides by their number: 0.0608 for one occurrence, slightly more for several (at "
    "most 1.64 times that). Rarity of words and length of the text have no effect. The parts add up to the score in the ts_rank list."
)
HEAT_HELP = (
    "The text as the model’s tokens. A stronger tint means more similar to a rare query token. Underlined: the best match of a query "
    "token, with its number in the list above; only these matches make up the late-interaction score."
)
HEAT, HEAT_WANTED = "inspect:token_heat:compared", "inspect:token_heat:wanted"


def draw(context: InspectContext) -> None:
    """Draw one candidate: words in common, the whole text, and the tokens."""
    write_stylesheet("evidence")
    if not context.trace.evidence.memories:
        st.info("This query has no candidates, so there is no text to show.", icon=":material/search_off:")
        return
    memory = context.trace.evidence.memories[_candidate(context)]
    _draw_whole(context, memory, _draw_words(context, memory))
    _draw_tokens(context, memory.id)


def _candidate(context: InspectContext) -> str:
    """The chosen memory; initially the followed one, else the first result."""
    ranked = context.trace.ranks
    rest = [row.memory_id for row in context.trace.stage(FUSION).rows if row.memory_id not in ranked]
    options = list(dict.fromkeys([*ranked, *rest, *sorted(context.trace.evidence.memories)]))
    key = f"inspect:text_evidence:{hash(context.request)}:{context.followed}"
    shown = st.session_state.get(key, context.followed)
    shown = shown if shown in options else options[0]

    def named(memory_id: str) -> str:
        text = excerpt(context.trace.evidence.memories[memory_id].content, 90)
        return f"{ranked.get(memory_id, '–')}  {short_id(memory_id)}  {text}"

    help = "With ranks in the results; –: a candidate that was not returned."
    # The browser keeps the words of a chosen option, so other ranks need another box.
    box = f"{key}:{hash(tuple(ranked.items()))}"
    chosen: str = st.selectbox("Candidate", options, options.index(shown), named, box, help)
    st.session_state[key] = chosen
    return chosen


Marks = tuple[Mapping[str, str], Callable[[str], Sequence[Match]]]
"""The tooltip of each matched term, and a function that finds the terms in a text."""


def _draw_words(context: InspectContext, memory: Memory) -> Marks:
    """Draw the words of one query variant, by the config's lexical retriever: BM25, or PostgreSQL's ts_rank."""
    lists, evidence = context.trace.config.lists, context.trace.evidence
    texts, variants = context.resources.store.indexes.texts([memory.id]).get(memory.id), range(len(evidence.variants))
    if not lists.lexical.enabled and (lists.ts_rank.enabled or lists.hybrid.enabled):
        from pg_text_search.ts_rank import TsQueryError
        name = "ts_rank"
        st.markdown("## Words in common", help=RANK_HELP)
        index = context.resources.full_text()
        try:
            found = [rank_evidence(index, evidence.text_for("ts_rank", i), texts or {}) for i in variants]
        except TsQueryError as error:
            st.caption(plain(str(error)))
            return {}, lambda text: ()
        find: Callable[[str, Mapping[str, str]], Sequence[Match]] = lexeme_matches
    else:
        name = "lexical"
        st.markdown("## Words in common", help=WORDS_HELP)
        lexical = context.resources.lexical(lists.lexical)
        found = [lexical_evidence(lexical, evidence.text_for("lexical", i), memory, texts) for i in variants]
        find = partial(matches, language=lexical.language)
    which = _variant(context, memory.id, [(len(one.matched), len(one.terms)) for one in found])
    words = found[which]
    if words.matched:
        draw_table(words.matched, _columns(words, name), most=12, key="inspect:text_evidence:words")
    _draw_verdict(context, memory, words, name, which)
    tips = {one.term: f"{one.term}: {100 * words.share(one):.1f} % of the score" for one in words.matched}
    return tips, lambda text: find(text, tips)


def _columns(words: WordsInCommon, name: str) -> list[Column[Term]]:
    """The columns of a term: as often as the text has it, as rare as the list counts, and its part of the score."""
    holding = "Memories of the store with it" if name == "lexical" else "Chunks of the store with it; has no effect"
    rare = Column[Term]("idf", lambda term: term.idf, 70, "%.3f", "Rarity: ln(1 + (N − df + 0.5) / (df + 0.5))")
    twice = any(term.asked > 1 for term in words.terms)
    asked = Column[Term]("asked", lambda term: term.asked, 60, help="Times in the query; each counts")
    columns = [
        Column[Term]("word", lambda term: ", ".join(term.words), 170, help="Word in the query"),
        Column[Term]("term", lambda term: term.term, 120, help="What is searched: the word’s stem, or an identifier"),
        *([asked] if twice else []),
        Column[Term]("tf", lambda term: term.count, 50, help="Occurrences in the text"),
        Column[Term]("df", lambda term: term.holding, 60, help=holding),
        *([rare] if name == "lexical" else []),
    ]
    if words.by_distance:
        return columns
    return [
        *columns,
        Column[Term]("part", lambda term: term.part, 80, "%.4f", "Its part of the memory’s score"),
        Column[Term]("share", lambda term: round(words.share(term), 3), 110, "percent", "Of the score", bar=1),
    ]


def _draw_verdict(context: InspectContext, memory: Memory, words: WordsInCommon, name: str, which: int) -> None:
    """Draw how many terms match, with their score and the memory's rank; then the terms without a match, and the stop words."""
    if not words.terms:
        verdict = f"This query has only stop words: {name} has no results."
    elif not words.matched:
        verdict = f"No word in common: {name} cannot find this memory with this query."
    else:
        verdict = f"{len(words.matched)} of {len(words.terms)} terms are in this memory: score {words.score:.4f}."
    chunk = chunk_words(context.trace.evidence, memory.id, words.chunk)
    chunk = f" Counted in the {chunk}, where these words score highest." if chunk else ""
    places = [_place(context, memory.id, name, which)]
    if name == "ts_rank":
        places.append(_place(context, memory.id, "hybrid", which))
        if words.by_distance:
            places.append("PostgreSQL ranks this query by the proximity of its words, not word by word.")
    st.markdown(f"**{verdict}**{chunk} {' '.join(filter(None, places))}")
    if absent := ", ".join(f"{plain(one.term)} (df {one.holding})" for one in words.unmatched):
        st.caption(f"Not in this memory: {absent}")
    if words.stop_words:
        st.caption(f"Stop words, never searched: {', '.join(map(plain, words.stop_words))}")


def _place(context: InspectContext, memory_id: str, source: str, which: int) -> str:
    """The memory's rank in this variant's list of a source, or why it has none; empty if a list beside the first is off."""
    name, lists = f"{source}:{which}", context.trace.stage(LISTS)
    listed = next((one for one in lists.fields.lists if one.name == name), None)
    if listed is None or not listed.active:
        return "" if source == "hybrid" else f"{name} was not searched, or is off: shown is the score it would have."
    row = lists.by_id.get(memory_id)
    entry = next((one for one in row.lists if one.list == name), None) if row is not None else None
    if entry is not None and entry.kept:
        return f"Rank {entry.rank} of {listed.used} in {name}."
    return f"Not in {name}{f', beyond its depth at rank {entry.rank}' if entry is not None else ''}."


def _variant(context: InspectContext, memory_id: str, met: Sequence[tuple[int, int]]) -> int:
    """The query variant; draws a choice if there are several. `met`: (matched, total) terms of each."""
    variants = context.trace.evidence.variants
    best = max(range(len(met)), key=lambda i: (bool(met[i][0]), -i))
    if len(variants) < 2:
        return best

    def named(i: int) -> str:
        return f"{i}  {excerpt(variants[i].text, 80)}  ({met[i][0]} of {met[i][1]} terms)"

    key = f"inspect:text_evidence:variant:{hash(context.request)}:{memory_id}"
    chosen: int = st.selectbox("Query variant", range(len(variants)), best, named, key)
    return chosen


def _draw_whole(context: InspectContext, memory: Memory, marks: Marks) -> None:
    """Draw the memory in full: marked terms, the part read by the reranker, and where the embedder's input ended."""
    st.markdown("## The whole memory")
    config = context.trace.config.rerank
    score = context.trace.evidence.model_scores.get(model_key(config), {}).get(memory.id)
    room = embedder_room(context.resources.embedder)
    rule = context.resources.store.texts.rule
    chunk = None if score is None or config.backend == "none" else score.chunk
    asked = ""
    if chunk is not None:
        asked, chunk = without_question(context.trace.evidence.questions.get(memory.id, ""), chunk)
        chunk = without_fields(chunk, memory, config.text_fields)
    place = None if chunk is None else chunk_place(memory.content, chunk)
    edges = [] if place is None else _reader_edges(memory, place, score, config.backend, room)
    whole = memory.id not in context.trace.evidence.chunks  # chunks fit the embedder, or were imported unchanged
    cut = read_until(searched_text(memory, rule), room) if whole and room is not None else None
    if room is not None and cut is not None:
        at = max(0, cut - len(chunk_text(memory, memory.content, rule)) + len(memory.content))
        tip = f"The embedder’s input is {room.tokens} tokens: the rest is not in the vector"
        edges.append(Edge(at, "✂ embedder", tip))
    if rule != DEFAULT_TEXT_RULE:
        st.caption(f"Embedded and searched: {rule}.", help="Store on the Memories page changes it.")
    tips, find = marks
    title = shown_title(memory)
    body = marked_html(memory.content, find(memory.content), tips, place, edges)
    top = marked_html(title, find(title), tips) if title else None
    key = {"marked": bool(tips), "read": place is not None, "cut": bool(edges)}
    st.html(render("workbench_inspect:whole.html", title=top, body=body, **key))
    for title, text in (
        ("The reranker read this text, which is no longer in the memory:", chunk if place is None else None),
        ("Scored together with the preceding question, which gives a higher score than the memory alone:", asked),
    ):
        if text:
            st.caption(title)
            st.code(neutralise(text), language=None, wrap_lines=True)
    if line := _reading_line(context, memory, score, place, question_shown=bool(asked)):
        st.caption(line)


def _reader_edges(
    memory: Memory, place: tuple[int, int], score: ModelScore | None, backend: str, room: Room | None
) -> list[Edge]:
    """Start and end of the reranker's chunk, and where it was truncated."""
    start, end = place
    edges = [Edge(start, "reranker ▸", "Start of the text given to the reranker")]
    if score is not None and score.detail and score.detail.get("truncated"):
        cut = read_until(memory.content[start:end], room) if room and backend == "late_interaction" else None
        if room is None or cut is None:
            edges.append(Edge(end, "✂ cut off", "The chunk exceeded the model’s input: its end was cut off"))
        else:
            tip = f"The model’s input is {room.tokens} tokens: the rest of the chunk was cut off"
            edges.append(Edge(start + cut, "✂ cut off", tip))
    return [*edges, Edge(end, "◂ reranker", "End of the text given to the reranker")]


@dataclass(frozen=True, slots=True)
class Edge:
    """A sign at a character position of a text, and its tooltip."""

    at: int
    sign: str
    meaning: str


def marked_html(
    text: str,
    found: Sequence[Match],
    tips: Mapping[str, str],
    read: tuple[int, int] | None = None,
    edges: Sequence[Edge] = (),
) -> Markup:
    """The text with the terms in `found` marked, the parts outside `read` dimmed, and the edges."""
    cuts = {0, len(text), *(edge.at for edge in edges), *(read or ())}
    cuts |= {place for match in found for place in (match.start, match.end)}
    marks = {match.start: match for match in found}
    ordered, inside = sorted(cuts), None
    pieces = []
    for start, end in zip(ordered, [*ordered[1:], len(text)], strict=True):
        inside = marks.get(start, inside if inside is not None and start < inside.end else None)
        terms = None if inside is None else "; ".join(tips[term] for term in inside.terms if term in tips)
        here = [edge for edge in edges if edge.at == start]
        pieces.append((text[start:end], here, terms, read is None or read[0] <= start < read[1]))
    return render("workbench_inspect:marked.html", pieces=pieces)


def _reading_line(
    context: InspectContext,
    memory: Memory,
    score: ModelScore | None,
    place: tuple[int, int] | None,
    *,
    question_shown: bool,
) -> str:
    """The part read by the reranker, in one line; `question_shown`: the preceding question is already mentioned above."""
    config, evidence = context.trace.config, context.trace.evidence
    read = as_read(config, evidence)
    rerank, brief = read.rerank, read is not config
    if rerank.backend == "none":
        return "Not read by a reranker: reranking is off."
    if score is None:
        limit = "Brief characters in all" if brief else "Rerank depth"
        return f"Not read by the reranker: it is not among the first candidates ({limit})."
    if score.error is not None:
        return f"No score from the reranker: {plain(score.error)}."
    if place is None:
        return ""
    length, whole, detail = place[1] - place[0], len(memory.content), score.detail or {}
    chunk = given_chunks(evidence, config).get(memory.id)
    asked = memory.id in evidence.questions and reads_question(rerank, memory.content if chunk is None else chunk.text)
    passages = int(detail.get("passages", 1)) - asked
    parts = [
        "all of it" if length == whole else f"{length:,} of {whole:,} characters",
        f"from the {chunk_words(evidence, memory.id, chunk.seq)}" if chunk is not None else "",
        f"the best of {passages} passages" if passages > 1 else "",
        f"at most {rerank.chunk_chars:,} characters at once, by {plain(rerank.chunk_selection)}",
        "in brief, since many candidates are long" if brief else "",
        "its end cut off at the model’s input length" if detail.get("truncated") else "",
        "also with the preceding question; the higher score counts" if asked and not question_shown else "",
    ]
    return f"The reranker read {'; '.join(filter(None, parts))}."


def _draw_tokens(context: InspectContext, memory_id: str) -> None:
    """Draw the text of one candidate with tinted tokens; computed on request if no score has them."""
    st.markdown("## Token by token", help=HEAT_HELP)
    trace, config, resources = context.trace, context.trace.config.rerank, context.resources
    score = trace.evidence.model_scores.get(model_key(config), {}).get(memory_id)
    chunk = given_chunks(trace.evidence, trace.config).get(memory_id)
    whole = trace.evidence.memories[memory_id].content if chunk is None else chunk.text
    text = (score.chunk if score is not None else None) or whole
    if chunk is not None:
        words = chunk_words(trace.evidence, memory_id, chunk.seq)
        st.caption(f"Text read: {words}, the highest-ranked match.")
    if not alignment(score) and not st.session_state.get(HEAT_WANTED):
        if not st.button("Compare token by token", "inspect:token_heat", "Late interaction; takes a moment."):
            return
        st.session_state[HEAT_WANTED] = True
    query = config.query or trace.evidence.corrected

    def compare() -> tuple[TokenCosines, PairScore]:
        with progress_bar() as progress:
            reader = resources.late_interaction(progress)
            return reader.cosines(query, text), reader.score(query, [text])[0]

    try:
        asked = (query, text, str(resources.store.path), resources.store.content_version)
        cosines, pair = kept(HEAT, asked, compare)
    except ModelError as error:
        st.caption(plain(str(error)))
        return
    if pair.raw is None:
        st.caption(f"Nothing to compare: {plain(pair.error or 'no tokens')}.")
        return

    def named(i: int) -> str:
        return f"{i + 1}  {joined(cosines.query[i])}"

    key = f"inspect:token_heat:{memory_id}"
    only = st.selectbox("Tint by", range(len(cosines.query)), None, named, key, placeholder="all query tokens")
    heat = token_similarity(cosines, only)
    tokens = [
        (
            joined(token),
            bool(i) and not continues_word(token),  # a space before it
            ", ".join(str(t + 1) for t in heat.met_by[i]),
            f"nearest: {joined(cosines.query[heat.nearest[i]])}, cosine {heat.cosine[i]:.3f}",
            f"{55 * heat.strength[i]:.0f}",
        )
        for i, token in enumerate(cosines.text)
    ]
    draw_template("workbench_inspect:heat.html", tokens=tokens)
    cut = " The model’s input ends here." if pair.detail and pair.detail.get("truncated") else ""
    st.caption(f"Late-interaction score {pair.raw:.4f}.{cut}")


VIEW = View("Text evidence", 30, draw, "Which query words are in this memory, and how much of it did the models read?")
