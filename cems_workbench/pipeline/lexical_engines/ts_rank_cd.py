"""ts_rank_cd: the list that PostgreSQL's full-text search gives by cover density, computed without a server.

    words -> lexemes joined by OR or AND -> texts that match, by ts_rank_cd, equal ones in order of rows

Source: docs/internals/specification.md, "lists"; `pg_text_search/inverted_index.py` has the formula.
"""

from __future__ import annotations

from cems_workbench.config.sections import TsRankCdList
from cems_workbench.errors import InputError
from cems_workbench.pipeline.lexical_engines import EngineAnswer, EngineRequest, LexicalEngine, documents
from cems_workbench.store.search.entries import WHOLE_MEMORY
from cems_workbench.store.search.postgres import Chunk, TsRankIndex, chunk_index
from pg_text_search.ts_rank import TextQuery, TsQueryError, joined, plain_query, ts_query


def _index(request: EngineRequest, section: TsRankCdList) -> TsRankIndex:
    rows = documents(request.resources, section.rows)
    chunks = (
        Chunk(
            row.memory.id,
            WHOLE_MEMORY if row.chunk is None else row.chunk,
            row.text,
            row.memory.project,
            row.memory.scope,
        )
        for row in rows
    )
    return TsRankIndex(chunk_index(chunks, len(rows), config=section.text_config))


def asked_query(text: str, section: TsRankCdList, index: TsRankIndex) -> TextQuery:
    """The query for a text: its lexemes, the rarest `max_words` of them, joined by OR or AND."""
    terms = plain_query(text, section.text_config).terms
    if section.max_words is not None and len(terms) > section.max_words:
        rarest = sorted(terms, key=lambda term: index.chunks_with(term.lexeme))[: section.max_words]
        terms = tuple(term for term in terms if term in rarest)
    return TextQuery(joined("|" if section.match == "any" else "&", terms))


def search(request: EngineRequest) -> EngineAnswer:
    """Search the store's full-text index, which is built at the first search of a content version."""
    section = request.config.lists.ts_rank_cd
    key = ("ts_rank_cd", section.text_config, section.rows)
    index = request.resources.derived(key, lambda: _index(request, section))
    try:
        query = ts_query(request.given) if request.given is not None else asked_query(request.text, section, index)
    except TsQueryError as error:
        raise InputError(str(error)) from error
    hits = index.cover_density(query, section.rank_normalization)
    return EngineAnswer(request.hits(hits), str(query), len(query.terms), len(hits))


LEXICAL_ENGINE = LexicalEngine(search)
