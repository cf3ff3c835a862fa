"""lucene: the list that Lucene's BM25 gives, for a query of words and, if wanted, fuzzy words.

    words -> `w` or `w OR w~` of each -> BM25 summed over fields -> best first, equal scores by row or as Neo4j's heap leaves them

A field is a piece of a memory (`text_pieces`): its text, its title, its author, the fact that the memory agent makes of one. Chunks are
documents if the text as searched is a field and the config does not say memories; otherwise each memory is one.

Source: docs/internals/specification.md, "lists"; `lucene_index.py` has the formula.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from cems_workbench.config.sections import LuceneList
from cems_workbench.errors import InputError
from cems_workbench.pipeline.lexical_engines import Document, EngineAnswer, EngineRequest, LexicalEngine, documents
from cems_workbench.pipeline.text_pieces import OF_TEXT, PIECES
from cems_workbench.store.search.entries import ChunkHits
from cems_workbench.store.search.tokenizer import query_words
from cems_workbench.store.text_rule import searched_text
from workbench_engines.lucene_index import Clause, LuceneIndex, LuceneRow, lucene_query, read_query, standard_words


def clauses_of(text: str, section: LuceneList, stop_words: Set[str]) -> tuple[list[Clause], str, int]:
    """The clauses of a text, the query that has them, and the number of words. Raises InputError for a query that Lucene refuses."""
    words = query_words(
        text if section.outside_ascii != "kept" else " ".join(standard_words(text)),
        outside=section.outside_ascii,
        also="-_",
        stop_words=stop_words,
        min_characters=section.min_characters,
        distinct=not section.repeats,
        max_words=section.max_words,
    )
    words = [word.lower() for word in words]
    query = lucene_query(words, section.fuzzy)
    if section.outside_ascii != "kept":
        return read_query(query), query, len(words)
    # Not through the query parser, to which signs outside ASCII may be syntax.
    edits = (None, section.fuzzy) if section.fuzzy else (None,)
    return [Clause(word, each) for word in words for each in edits], query, len(words)


def search(request: EngineRequest) -> EngineAnswer:
    """Search the store's Lucene index, which is built at the first search of a content version."""
    section = request.config.lists.lucene
    warnings: tuple[str, ...] = ()
    if request.given is None:
        stop_words, warnings = request.stop_words("lucene", section.stop_words)
        clauses, query, words = clauses_of(request.text, section, stop_words)
    else:
        clauses, query = read_query(request.given), request.given
        words = len({clause.word for clause in clauses})
    if not clauses:
        return EngineAnswer([], "", 0, 0, warnings=warnings)
    boosts = {name: boost for name, boost in section.fields.model_dump().items() if boost}
    if not boosts:
        raise InputError("lists.lucene.fields: every boost is 0, so there is no field to search")

    def build() -> LuceneIndex:
        rows = documents(request.resources, section.rows)
        if section.documents == "memories" or not boosts.keys() & OF_TEXT:
            whole = {row.memory.id: row.memory for row in rows}
            rule = request.resources.store.texts.rule
            rows = [Document(memory, None, searched_text(memory, rule)) for memory in whole.values()]
        return LuceneIndex(
            [
                LuceneRow(row.memory.id, row.chunk, tuple(PIECES[name](row.memory, row.text) for name in boosts))
                for row in rows
            ]
        )

    index = request.resources.derived(("lucene", section.documents, section.rows, tuple(boosts)), build)
    found, matches = index.search(
        clauses, None, section.k1, section.b, section.max_clauses, section.equal_scores, tuple(boosts.values())
    )
    hits: ChunkHits = [(index.row(place).memory_id, score, index.row(place).chunk) for place, score in found]
    note: dict[str, Any] = {"fields": list(boosts)}
    return EngineAnswer(request.hits(hits), query, words, matches, note, warnings)


LEXICAL_ENGINE = LexicalEngine(search)
