"""FTS5: SQLite's full-text engine, asked through Python's sqlite3.

    bm25  =  sum over words  idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / mean length)),   tf weighted by column
    idf   =  ln((N - n + 0.5) / (n + 0.5)), at least 1e-6
    score =  -bm25(), as the engine returns it

The length counts all columns. The table is in memory, without the texts (contentless). Equal scores are in order of insertion. With
`cut: row` the first matches by row are kept and then sorted by score.

With `match: all_then_each` the query is asked with all its words, and where that gives fewer rows than the depth, each of its first
`max_key_words` key words is asked alone; a row has its largest score. Key words stand between white space and punctuation, in lower case:
without the stop words, which only they lose, without words of one or two letters, numbers, repeats, and a word that is the whole query. If
the key words are all the words of the query and these had hits, none is asked alone.

With a section `shares` a row's score is not the engine's:

    score = min(1, bm25 / (1 + bm25) + words * o + density * o * n / d + path * p + min(length, characters / 160))

o is the share of the query's n different words that the text has, d the number of its own different words, p how many of the n occur in the
path (`path`, such as memory/{id}.md). A path has an index of its own: a memory that only its path finds has bm25 / (1 + bm25) of that.

Source: SQLite documentation, FTS5, "The bm25() function"; seen in SQLite 3.40.1 and 3.54.1. OpenClaw 2026.9.6 of npm (all_then_each,
shares, path), whose stop words of seven languages are in its package.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count as numbers
from typing import Any

from cems_workbench.config.sections import Fts5List, Fts5Shares
from cems_workbench.errors import InputError
from cems_workbench.pipeline.lexical_engines import Document, EngineAnswer, EngineRequest, LexicalEngine, documents
from cems_workbench.records import Memory
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.search.entries import ChunkHits, truncate_to_memories
from cems_workbench.store.search.stop_lists import stop_list
from cems_workbench.store.search.tokenizer import query_words
from cems_workbench.store.text_rule import PIECES

OPERATORS = frozenset({"and", "or", "not", "near"})
"""Words of FTS5's query language, in lower case."""
MORE_ROWS = 4
"""How many times as many rows are read when too few pass the filter, or too many are of one memory."""
MOST_COUNTED = 1_000
"""Matches that are counted, and searched for the best, when the first by row are kept: more would take longer than the search."""
_WORD = re.compile(r"[^\W_]")
_RUN = re.compile(r"\w+")
_SHORT = re.compile(r"[A-Za-z]{1,2}|[0-9]+")
"""What is no key word."""
SHARE_CHARACTERS = 160
"""Characters of a text for which it has 1, if the share of the length were not limited."""
_TOKENIZERS = {"unicode61": "unicode61", "porter": "porter unicode61"}
_PIECES: Mapping[str, Callable[[Memory], str]] = {"id": lambda memory: memory.id, **PIECES}


@dataclass(frozen=True, slots=True)
class Row:
    """What is kept of a row beside the engine's index."""

    memory_id: str
    chunk: int | None
    project: str | None
    scope: str
    text: str = ""
    """Kept for `shares` alone."""
    first: int | None = None
    """Of a path, the first chunk of its memory."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Hits, best first, and how many rows matched. With `cut: row` the rows are counted up to MOST_COUNTED; `more` says
    that there are others. If there are none, `missed` is the best hit of all where it was cut away."""

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

    def row(self, memory_id: str, chunk: int | None) -> Row:
        """The row of a memory's chunk."""
        return self._by_piece[memory_id, chunk]

    @cached_property
    def _by_piece(self) -> dict[tuple[str, int | None], Row]:
        return {(row.memory_id, row.chunk): row for row in self._rows}

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
            if where.passes(rows[row].memory_id, rows[row].project, rows[row].scope)
        ]
        return truncate_to_memories(hits, depth)


def match_query(text: str, section: Fts5List, stop_words: Collection[str] | None = None) -> tuple[str, int]:
    """The FTS5 query of a text and its number of words; an empty query has none."""
    text = text.replace(".", " ") if section.split_at_dots else text
    if section.parted_at == "signs":
        text = " ".join(_RUN.findall(text))
    left_out = stop_list(section.stop_words) if stop_words is None else stop_words
    words = [
        word
        for word in query_words(text, outside=section.outside_ascii, stop_words=left_out)
        if _WORD.search(word) and not (section.operator_words == "dropped" and word.lower() in OPERATORS)
    ][: section.max_words]
    terms = [f"{_quoted(word)}*" if section.prefix else _term(word) for word in words]
    return (" OR " if section.match == "any" else " AND ").join(terms), len(words)


def _term(word: str) -> str:
    plain = word.isascii() and word.isalnum() and word.lower() not in OPERATORS
    return word if plain else _quoted(word)


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def key_words(text: str, stop_words: Collection[str], most: int) -> list[str]:
    """The first key words of a query."""
    text = text.strip().lower()
    parted = "".join(" " if unicodedata.category(sign).startswith("P") else sign for sign in text).split()
    kept = (
        word
        for word in dict.fromkeys(parted)
        if word not in stop_words and _WORD.search(word) and not _SHORT.fullmatch(word)
    )
    return [word for word in kept if word != text][:most]


@dataclass(frozen=True, slots=True)
class Shares:
    """What a query's words add to the score of a row."""

    section: Fts5Shares
    words: tuple[str, ...]
    path: Callable[[str], str]

    def score(self, row: Row, score: float) -> float:
        """The score of a row from the engine's."""
        own = frozenset(_RUN.findall(row.text.lower()))
        met, path = sum(word in own for word in self.words), self.path(row.memory_id).lower()
        share, density = met / max(1, len(self.words)), met / max(1, len(own))
        in_path = sum(word in path for word in self.words)
        length = min(len(row.text) / SHARE_CHARACTERS, self.section.length)
        more = self.section.words * share + self.section.density * density + self.section.path * in_path + length
        return min(1.0, saturated(score) + more)


def saturated(score: float) -> float:
    """score / (1 + score)."""
    return score / (1 + score)


def path_of(template: str | None, memory_id: str) -> str:
    """The path of a memory: the template with its id, of which a beginning or end that the template has too is left out."""
    if template is None:
        return ""
    before, _, after = template.partition("{id}")
    return template.replace("{id}", memory_id.removeprefix(before).removesuffix(after))


def search(request: EngineRequest) -> EngineAnswer:
    """Search the store's FTS5 table, which is built at the first search of a content version."""
    section = request.config.lists.fts5
    stop_words, warnings = request.stop_words("fts5", section.stop_words)
    each = section.match == "all_then_each" and request.given is None
    if request.given is None:
        query, words = match_query(request.text, section, () if each else stop_words)
    else:
        query, words = request.given, sum(word.lower() not in OPERATORS for word in request.given.split())
    if not query:
        return EngineAnswer([], "", 0, 0, warnings=warnings)
    columns = {name: value for name, value in section.columns.model_dump().items() if value}
    if not columns:
        raise InputError("lists.fts5.columns: every weight is 0, so there is no column to search")

    def build() -> Fts5Index:
        rows = documents(request.resources, section.rows)
        return Fts5Index(
            (
                (
                    Row(
                        row.memory.id,
                        row.chunk,
                        row.memory.project,
                        row.memory.scope,
                        row.text if section.shares.used else "",
                    ),
                    [_piece(name, row) for name in columns],
                )
                for row in rows
            ),
            list(columns.values()),
            section.tokenizer,
        )

    key = ("fts5", section.tokenizer, section.rows, tuple(columns.items()), section.shares.used)
    index = request.resources.derived(key, build)
    if each:
        return _each(request, index, query, words, stop_words, warnings)
    found = index.search(query, request.depth, section.cut, request.where)
    note: dict[str, Any] = {"cut": section.cut} | ({"more_matches": True} if found.more else {})
    if found.missed is not None:
        note |= {"best_match": found.missed[0], "best_score": found.missed[1]}
    return EngineAnswer(_with_shares(request, index, found.hits), query, words, found.rows, note, warnings)


def _with_shares(request: EngineRequest, index: Fts5Index, hits: ChunkHits) -> ChunkHits:
    section = request.config.lists.fts5
    if not section.shares.used:
        return hits
    words = tuple(dict.fromkeys(_RUN.findall(request.text.lower())))
    shares = Shares(section.shares, words, partial(path_of, section.path))
    scored = [(key, shares.score(index.row(key, chunk), score), chunk) for key, score, chunk in hits]
    return sorted(scored, key=lambda hit: -hit[1])


def _paths(request: EngineRequest) -> Fts5Index:
    """The table of the memories' paths, in their order."""
    section = request.config.lists.fts5

    def build() -> Fts5Index:
        rows = {
            path_of(section.path, one.memory.id): one for one in reversed(documents(request.resources, section.rows))
        }
        return Fts5Index(
            (
                (Row(one.memory.id, None, one.memory.project, one.memory.scope, first=one.chunk), [path])
                for path, one in sorted(rows.items())
            ),
            [1.0],
        )

    return request.resources.derived(("fts5 paths", section.path, section.rows), build)


def _each(
    request: EngineRequest,
    index: Fts5Index,
    query: str,
    words: int,
    stop_words: frozenset[str],
    warnings: tuple[str, ...],
) -> EngineAnswer:
    """What all words find together, then each key word alone, and the paths."""
    section, depth, where = request.config.lists.fts5, request.depth, request.where
    keys = key_words(request.text, stop_words, section.max_key_words)
    paths = _paths(request) if section.path else None
    best: dict[
        tuple[str, int | None], tuple[float, float]
    ] = {}  # the score, and the engine's alone, which settles equal ones
    of_path: dict[str, float] = {}

    def ask(query: str) -> int:
        found = index.search(query, depth, "score", where)
        of_engine = {(key, chunk): score for key, score, chunk in found.hits[:depth]}
        for key, score, chunk in _with_shares(request, index, found.hits[:depth]):
            scores = zip((score, of_engine[key, chunk]), best.get((key, chunk), (0.0, 0.0)), strict=True)
            best[key, chunk] = (max(next(scores)), max(next(scores)))
        for key, score, _ in paths.search(query, depth, "score", where).hits if paths is not None else ():
            of_path[key] = max(saturated(score), of_path.get(key, 0.0))
        return found.rows

    matches = ask(query)
    asked = [match_query(word, section, ())[0] for word in keys]
    together = match_query(" ".join(keys), section, ())[0]
    if len(best) + len(of_path) < depth and not ((best or of_path) and together.lower() == query.lower()):
        matches = max([matches, *map(ask, filter(None, asked))])
    else:
        keys = []
    if paths is not None:
        best = {(key, paths.row(key, None).first): (score, 0.0) for key, score in of_path.items()} | best
    order = sorted(
        best, key=lambda piece: (-best[piece][0], -best[piece][1], path_of(section.path, piece[0]), piece[1] or 0)
    )
    hits: ChunkHits = [(key, best[key, chunk][0], chunk) for key, chunk in order]
    note = {"cut": "score", "key_words": keys}
    return EngineAnswer(truncate_to_memories(hits, depth), query, words, matches, note, warnings)


def _piece(name: str, row: Document) -> str:
    return row.text if name == "text" else _PIECES[name](row.memory)


LEXICAL_ENGINE = LexicalEngine(search)
