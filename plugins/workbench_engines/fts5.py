"""FTS5: SQLite's full-text engine, asked through Python's sqlite3.

    bm25  =  sum over words  idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / mean length)),   tf weighted by column
    idf   =  ln((N - n + 0.5) / (n + 0.5)), at least 1e-6
    score =  -bm25(), as the engine returns it

The length counts all columns. The table is in memory, without the texts (contentless). Equal scores are in order of insertion. With
`cut: row` the first matches by row are kept and then sorted by score.

Source: SQLite documentation, FTS5, "The bm25() function"; seen in SQLite 3.40.1 and 3.54.1.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from typing import Any

from cems_workbench.config.sections import Fts5List
from cems_workbench.errors import InputError
from cems_workbench.pipeline.lexical_engines import Document, EngineAnswer, EngineRequest, LexicalEngine, documents
from cems_workbench.records import Memory
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.search.entries import ChunkHits, truncate_to_memories
from cems_workbench.store.search.tokenizer import query_words, stop_list
from cems_workbench.store.text_rule import PIECES

OPERATORS = frozenset({"and", "or", "not", "near"})
"""Words of FTS5's query language, in lower case."""
MORE_ROWS = 4
"""How many times as many rows are read when too few pass the filter, or too many are of one memory."""
MOST_COUNTED = 1_000
"""Matches that are counted, and searched for the best, when the first by row are kept: more would take longer than the search."""
_WORD = re.compile(r"[^\W_]")
_TOKENIZERS = {"unicode61": "unicode61", "porter": "porter unicode61"}
_PIECES: Mapping[str, Callable[[Memory], str]] = {"id": lambda memory: memory.id, **PIECES}


@dataclass(frozen=True, slots=True)
class Row:
    """What is kept of a row beside the engine's index."""

    memory_id: str
    chunk: int | None
    project: str | None
    scope: str


@dataclass(frozen=True, slots=True)
class Matches:
    """Hits, best first, and how many rows matched.

    With `cut: row` the rows are counted up to MOST_COUNTED; `more` says that there are others. If there are none, `missed` is the best hit
    of all where it was cut away.
    """

    hits: ChunkHits
    rows: int
    more: bool = False
    missed: tuple[str, float] | None = None


class Fts5Index:
    """An FTS5 table of texts in memory; searched by one thread at a time, the others wait."""

    def __init__(
        self, rows: Iterable[tuple[Row, Sequence[str]]], weights: Sequence[float], tokenizer: str = "unicode61"
    ) -> None:
        """Table of these rows in this order; each has a text per column, and each column a weight."""
        self._lock = threading.Lock()
        self.connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._rows: list[Row] = []
        names = ", ".join(f"c{i}" for i in range(len(weights)))
        self.connection.execute(
            f"CREATE VIRTUAL TABLE t USING fts5({names}, content='', tokenize='{_TOKENIZERS[tokenizer]}')"
        )
        # The option makes the column `rank` bm25() with these weights.
        rank = f"bm25({', '.join(map(repr, weights))})"
        self.connection.execute("INSERT INTO t(t, rank) VALUES ('rank', ?)", (rank,))
        places = ", ".join("?" for _ in weights)
        self.connection.executemany(f"INSERT INTO t(rowid, {names}) VALUES (?, {places})", self._taken(rows))
        self.connection.commit()
        self._whole = all(row.chunk is None for row in self._rows)

    def _taken(self, rows: Iterable[tuple[Row, Sequence[str]]]) -> Iterable[tuple[Any, ...]]:
        for number, (row, texts) in zip(numbers(), rows, strict=False):
            self._rows.append(row)
            yield number, *texts

    def search(self, query: str, depth: int, cut: str = "score", where: Filter = ANY) -> Matches:
        """The hits of `depth` memories for an FTS5 query. Raises InputError if SQLite refuses the query."""
        rows = depth if self._whole and where.trivial else MORE_ROWS * depth
        try:
            with self._lock:
                while True:
                    found = self._select("rank, rowid" if cut == "score" else "rowid", query, rows)
                    hits = self._hits(found, depth, where)
                    if len(found) < rows or len({memory_id for memory_id, _, _ in hits}) >= depth:
                        break
                    rows *= MORE_ROWS
                matches, more, best = len(found), False, []
                if len(found) == rows:
                    matches = self._count(query, -1 if cut == "score" else MOST_COUNTED + 1)
                if cut == "row":
                    more, matches = matches > MOST_COUNTED, min(matches, MOST_COUNTED)
                    best = self._select("rank, rowid", query, 1) if matches > len(hits) and not more else []
        except sqlite3.Error as error:
            raise InputError(f"FTS5 refuses the query {query!r}: {error}") from None
        hits.sort(key=lambda hit: -hit[1])  # stable: equal scores stay by row
        missed = None
        if best and all(self._rows[best[0][0]].memory_id != memory_id for memory_id, _, _ in hits):
            missed = self._rows[best[0][0]].memory_id, -best[0][1]
        return Matches(hits, matches, more, missed)

    def _count(self, query: str, most: int) -> int:
        command = "SELECT count(*) FROM (SELECT 1 FROM t WHERE t MATCH ? LIMIT ?)"
        return int(self.connection.execute(command, (query, most)).fetchone()[0])

    def _select(self, order: str, query: str, limit: int) -> list[tuple[int, float]]:
        command = f"SELECT rowid, rank FROM t WHERE t MATCH ? ORDER BY {order} LIMIT ?"
        return self.connection.execute(command, (query, limit)).fetchall()

    def _hits(self, found: Sequence[tuple[int, float]], depth: int, where: Filter) -> ChunkHits:
        rows = self._rows
        hits: ChunkHits = [
            (rows[row].memory_id, -score, rows[row].chunk)
            for row, score in found
            if where.passes(rows[row].project, rows[row].scope)
        ]
        return truncate_to_memories(hits, depth)


def match_query(text: str, section: Fts5List) -> tuple[str, int]:
    """The FTS5 query of a text and its number of words; an empty query has none."""
    text = text.replace(".", " ") if section.split_at_dots else text
    words = [
        word
        for word in query_words(text, outside=section.outside_ascii, stop_words=stop_list(section.stop_words))
        if _WORD.search(word) and not (section.operator_words == "dropped" and word.lower() in OPERATORS)
    ][: section.max_words]
    terms = [f"{_quoted(word)}*" if section.prefix else _term(word) for word in words]
    return (" OR " if section.match == "any" else " AND ").join(terms), len(words)


def _term(word: str) -> str:
    plain = word.isascii() and word.isalnum() and word.lower() not in OPERATORS
    return word if plain else _quoted(word)


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def search(request: EngineRequest) -> EngineAnswer:
    """Search the store's FTS5 table, which is built at the first search of a content version."""
    section = request.config.lists.fts5
    if request.given is None:
        query, words = match_query(request.text, section)
    else:
        query, words = request.given, sum(word.lower() not in OPERATORS for word in request.given.split())
    if not query:
        return EngineAnswer([], "", 0, 0)
    columns = {name: value for name, value in section.columns.model_dump().items() if value}
    if not columns:
        raise InputError("lists.fts5.columns: every weight is 0, so there is no column to search")

    def build() -> Fts5Index:
        rows = documents(request.resources, section.rows)
        return Fts5Index(
            (
                (
                    Row(row.memory.id, row.chunk, row.memory.project, row.memory.scope),
                    [_piece(name, row) for name in columns],
                )
                for row in rows
            ),
            list(columns.values()),
            section.tokenizer,
        )

    index = request.resources.derived(("fts5", section.tokenizer, section.rows, tuple(columns.items())), build)
    found = index.search(query, request.depth, section.cut, request.where)
    note: dict[str, Any] = {"cut": section.cut} | ({"more_matches": True} if found.more else {})
    if found.missed is not None:
        note |= {"best_match": found.missed[0], "best_score": found.missed[1]}
    return EngineAnswer(found.hits, query, words, found.rows, note)


def _piece(name: str, row: Document) -> str:
    return row.text if name == "text" else _PIECES[name](row.memory)


LEXICAL_ENGINE = LexicalEngine(search)
