"""FTS5: SQLite's full-text engine, asked through Python's sqlite3.

    bm25  =  sum over words  idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / mean length)),   tf weighted by column
    idf   =  ln((N - n + 0.5) / (n + 0.5)), at least 1e-6
    score =  -bm25(), as the engine returns it

The table is in memory, without the texts (contentless). Equal scores are in order of insertion. With `cut: row` the first matches by row
are kept and then sorted by score.

Source: SQLite documentation, FTS5, "The bm25() function"; seen in SQLite 3.40.1 and 3.54.1.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cems_workbench.config.sections.lexical_engines import Fts5List
from cems_workbench.errors import InputError
from cems_workbench.pipeline.lexical_engines import Document, EngineAnswer, EngineRequest, LexicalEngine, documents
from cems_workbench.records import Memory
from cems_workbench.store.search.hits import ChunkHits
from cems_workbench.store.search.lexical.query_words import query_words, stop_list

OPERATORS = frozenset({"AND", "OR", "NOT", "NEAR"})
"""Words of FTS5's query language, which are no search words."""
_WORD = re.compile(r"\w")
_TOKENIZERS = {"unicode61": "unicode61", "porter": "porter unicode61"}
_PIECES: Mapping[str, Callable[[Memory], str]] = {
    "content": lambda memory: memory.content,
    "title": lambda memory: memory.title or "",
    "tags": lambda memory: " ".join(memory.tags),
    "category": lambda memory: memory.category or "",
    "project": lambda memory: memory.project or "",
    "author": lambda memory: memory.author or "",
}


@dataclass(frozen=True, slots=True)
class Matches:
    """(document number, score) of the rows that were kept, best first; how many matched; the best row if it was cut away."""

    rows: list[tuple[int, float]]
    count: int
    missed: tuple[int, float] | None


class Fts5Index:
    """An FTS5 table of texts in memory; safe to search from several threads, one at a time."""

    def __init__(self, texts: Iterator[Sequence[str]], weights: Sequence[float], tokenizer: str) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        names = ", ".join(f"c{i}" for i in range(len(weights)))
        self._rank = f"bm25(t, {', '.join(map(repr, weights))})"
        self._connection.execute(
            f"CREATE VIRTUAL TABLE t USING fts5({names}, content='', tokenize='{_TOKENIZERS[tokenizer]}')"
        )
        places = ", ".join("?" for _ in weights)
        self._connection.executemany(
            f"INSERT INTO t(rowid, {names}) VALUES (?, {places})", ((i, *row) for i, row in enumerate(texts))
        )
        self._connection.commit()

    def search(self, query: str, limit: int | None, cut: str) -> Matches:
        """The rows that match an FTS5 query. Raises InputError if SQLite refuses it."""
        most = -1 if limit is None else limit
        order = "ORDER BY 2, 1" if cut == "score" else "ORDER BY 1"
        try:
            with self._lock:
                found = self._connection.execute(
                    f"SELECT rowid, {self._rank} FROM t WHERE t MATCH ? {order} LIMIT ?", (query, most)
                ).fetchall()
                count, best = len(found), None
                if len(found) == most:
                    (count,) = self._connection.execute("SELECT count(*) FROM t WHERE t MATCH ?", (query,)).fetchone()
                if cut == "row" and count > len(found):
                    best = self._connection.execute(
                        f"SELECT rowid, {self._rank} FROM t WHERE t MATCH ? ORDER BY 2, 1 LIMIT 1", (query,)
                    ).fetchone()
        except sqlite3.Error as error:
            raise InputError(f"FTS5 refuses the query {query!r}: {error}") from None
        rows = sorted(((row, -score) for row, score in found), key=lambda pair: -pair[1])  # stable: ties stay by row
        missed = None if best is None or any(row == best[0] for row, _ in rows) else (best[0], -best[1])
        return Matches(rows, count, missed)


@dataclass(frozen=True, slots=True)
class _Table:
    documents: list[Document]
    index: Fts5Index


def match_query(text: str, section: Fts5List) -> tuple[str, int]:
    """The FTS5 query of a text and its number of words; an empty query has none."""
    words = [
        word
        for word in query_words(
            text, outside=section.outside_ascii, stop_words=stop_list(section.stop_words), max_words=None
        )
        if word not in OPERATORS and _WORD.search(word)
    ][: section.max_words]
    terms = [(word if word.isascii() and word.isalnum() else _quoted(word)) for word in words]
    if section.prefix:
        terms = [f"{_quoted(word)}*" for word in words]
    return (" OR " if section.match == "any" else " AND ").join(terms), len(words)


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def search(request: EngineRequest) -> EngineAnswer:
    """Search the store's FTS5 table, which is built at the first search of a content version."""
    section = request.config.lists.fts5
    query, words = match_query(request.text, section) if request.given is None else (request.given, 0)
    if request.given is not None:
        words = sum(1 for word in query.split() if word not in OPERATORS)
    if not query:
        return EngineAnswer([], "", 0, 0)
    columns = {name: value for name, value in section.columns.model_dump().items() if value}
    if not columns:
        raise InputError("lists.fts5.columns: every weight is 0, so there is no column to search")

    def build() -> _Table:
        rows = documents(request.resources, section.rows)
        texts = ([_piece(name, row) for name in columns] for row in rows)
        return _Table(rows, Fts5Index(texts, list(columns.values()), section.tokenizer))

    key = ("fts5", section.tokenizer, section.rows, tuple(columns.items()))
    table = request.resources.derived(key, build)
    chunked = any(row.chunk is not None for row in table.documents) or not request.where.trivial
    matches = table.index.search(query, None if chunked and section.cut == "score" else request.depth, section.cut)
    found: ChunkHits = [
        (table.documents[row].memory.id, score, table.documents[row].chunk) for row, score in matches.rows
    ]
    note: dict[str, Any] = {"cut": section.cut}
    if matches.missed is not None:
        note |= {"best_match": table.documents[matches.missed[0]].memory.id, "best_score": matches.missed[1]}
    return EngineAnswer(request.hits(found), query, words, matches.count, note)


def _piece(name: str, row: Document) -> str:
    return row.text if name == "text" else _PIECES[name](row.memory)


LEXICAL_ENGINE = LexicalEngine(search)
