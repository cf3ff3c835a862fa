"""Live lexical lists: how a table's library ranks its texts by words, and that library's own fusion with the vector list.

A table has a column of type tsvector, or an index over to_tsvector(…); the definition says the text search configuration. The words of a
query become a tsquery as the library does it:

    plain    plainto_tsquery: every word has to be there
    any      the lexemes of the query joined by OR, as CEMS
    pieces   LlamaIndex: everything but words is a space, spaces are OR, to_tsquery
    tokens   Hindsight: the words in lower case, the rarest 16 by ANALYZE's statistics, joined by OR, to_tsquery

Sources, all run: llama-index-vector-stores-postgres 0.9.0 (`_build_sparse_query`, `_hybrid_query`), langchain-postgres 0.0.19
(async_vectorstore.py, hybrid_search_config.py), pgvector-haystack 8.1.2 (`KEYWORD_QUERY`), mem0ai 2.2.1 (`keyword_search`),
hindsight-api-slim 1.1.0 (`tokenize_query`, `build_bm25_arm`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from psycopg import sql

from cems_workbench.formats.base.files import data_beside
from cems_workbench.sources.source import EngineHit, Setting
from workbench_stores.postgres.connection import FUSION_OPTIONS, Reader

if TYPE_CHECKING:
    from cems_workbench.sources.source import Distance
    from workbench_stores.postgres.catalog import Table

ENGLISH = "english"
"""The text search configuration of libraries that state none."""
Rank = Literal["ts_rank", "ts_rank_cd"]
Words = Literal["plain", "any", "pieces", "tokens"]
_HOW: Mapping[str, str] = data_beside(__file__, "names.json")["words"]
_CONFIG = re.compile(r"to_tsvector\('([^']+)'::regconfig, ")
_NO_WORD = re.compile(r"(?!\b\.\b)\W+")
"""What LlamaIndex takes out of a query: all but words and single dots within them."""
_PUNCTUATION = re.compile(r"[^\w\s]")
MOST_TOKENS = 16
"""Words of a query that Hindsight looks for."""
FUSION, PRIMARY, SECONDARY = FUSION_OPTIONS
RRF_K = 60
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Lexical:
    """A list by words: `document` is the tsvector, `config` the text search configuration, `words` how a query is read."""

    list: Rank
    document: sql.Composable
    config: str
    words: Words
    note: str = ""
    """How the library would ask otherwise, or what is assumed; empty if nothing."""

    @property
    def words_from(self) -> sql.Composed:
        """FROM of the only row `words`, whose `q` is the tsquery of the parameter `text` (`prepared`)."""
        config = sql.Literal(self.config)
        if self.words == "any":
            lexemes = (
                "(SELECT to_tsquery({0}::regconfig, string_agg((t).lexeme::text, ' | ' ORDER BY (t).lexeme)) AS q "
            )
            return sql.SQL(lexemes + "FROM unnest(to_tsvector({0}::regconfig, %(text)s)) t) words").format(config)
        name = sql.SQL("plainto_tsquery" if self.words == "plain" else "to_tsquery")
        return sql.SQL("(SELECT {}({}::regconfig, %(text)s) AS q) words").format(name, config)

    def prepared(self, text: str, reader: Reader, table: Table) -> str:
        """A query's text as the parameter `text`."""
        # PostgreSQL refuses text with a NUL character.
        text = text.replace("\0", " ")
        if self.words == "tokens":
            tokens = _PUNCTUATION.sub(" ", text.lower()).split()
            return " | ".join(tokens if len(tokens) <= MOST_TOKENS else self._rarest(tokens, reader, table))
        return _NO_WORD.sub(" ", text).strip().replace(" ", "|") if self.words == "pieces" else text

    def _rarest(self, tokens: Sequence[str], reader: Reader, table: Table) -> Sequence[str]:
        """The words in the fewest rows, in their order; words without a lexeme are left out. Without statistics: the first."""
        rows = reader.rows(
            "WITH known AS (SELECT unnest(most_common_elems::text::text[]) AS lexeme, "
            "unnest(most_common_elem_freqs[1:cardinality(most_common_elems::text::text[])]) AS share FROM pg_stats "
            "WHERE schemaname = %(schema)s AND tablename = %(table)s AND attname = %(column)s) "
            "SELECT w.place FROM unnest(%(tokens)s::text[]) WITH ORDINALITY AS w (word, place) "
            "CROSS JOIN LATERAL unnest(tsvector_to_array(to_tsvector(%(config)s::regconfig, w.word))) AS own (lexeme) "
            "LEFT JOIN known USING (lexeme) GROUP BY w.place ORDER BY max(COALESCE(known.share, 0)), w.place LIMIT %(most)s",
            {
                "schema": table.schema,
                "table": table.name,
                "column": self.document.as_string().strip('"'),
                "tokens": list(tokens),
                "config": self.config,
                "most": MOST_TOKENS,
            },
        )
        places = sorted(row[0] for row in rows) or range(1, MOST_TOKENS + 1)
        return [tokens[place - 1] for place in places]

    @property
    def rank(self) -> sql.Composed:
        """The score of a row."""
        return sql.SQL("{}({}, words.q)").format(sql.SQL(self.list), self.document)

    @property
    def fact(self) -> str:
        """One line that says how the list is made."""
        over = f"{self.list} over {self.document.as_string().replace('%%', '%')} ({self.config})"
        return f"{over}: {_HOW[self.words]}" + (f"; {self.note}" if self.note else "")


def found(reader: Reader, table: Table) -> tuple[sql.Composable, str | None] | None:
    """(tsvector, text search configuration) of a table's only column of type tsvector, else of its first index over
    to_tsvector(…). The configuration is None if a program fills the column, so that nothing in the database says it."""
    columns = [column for column in table.columns.values() if column.type == "tsvector" and column.readable]
    if len(columns) == 1:
        rows = reader.rows(
            "SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid "
            "AND a.attnum = d.adnum WHERE d.adrelid = %(table)s::oid AND a.attname = %(column)s",
            {"table": table.oid, "column": columns[0].name},
        )
        stated = _CONFIG.search(rows[0][0]) if rows else None
        return sql.Identifier(columns[0].name), stated[1] if stated else None
    rows = reader.rows(
        "SELECT pg_get_indexdef(i.indexrelid, 1, false) FROM pg_index i WHERE i.indrelid = %(table)s::oid AND i.indisvalid "
        "AND i.indnatts = 1 AND i.indkey[0] = 0 ORDER BY i.indexrelid",
        {"table": table.oid},
    )
    for (expression,) in rows:
        if stated := _CONFIG.match(expression):
            return sql.SQL(expression.replace("%", "%%")), stated[1]
    return None


def over_texts(
    reader: Reader, table: Table, rank: Rank, words: Words, default: str = ENGLISH, assumed: str = ""
) -> Lexical | None:
    """The list over a table's text search column or index; None if it has neither. `default` is the text search
    configuration where nothing says it, which a note says where `assumed` is what to call it."""
    document = found(reader, table)
    if document is None:
        return None
    note = f"nothing says the text search configuration: {assumed} is assumed" if assumed and not document[1] else ""
    return Lexical(rank, document[0], document[1] or default, words, note)


Fused = Literal["appended", "weighted_sum", "rrf"]


@dataclass(frozen=True, slots=True)
class Fusion:
    """A library's own answer from the vector list and the lexical list. `appended` is LlamaIndex's hybrid mode: the
    vector list, then what only the lexical list has, each with its own score. The others are those of LangChain's
    HybridSearchConfig: of both lists scaled to 0…1 half of each, or 1 / (60 + rank), with ranks from 0."""

    kind: Fused
    primary: int | None = None
    """Rows of the vector list; None: half of those asked for, as LlamaIndex returns up to twice its similarity_top_k."""
    secondary: int | None = None

    def settings(self) -> tuple[Setting, ...]:
        """What its program sets, by name."""
        if self.kind == "appended":
            return ()
        tops, kinds = ("4", "10", "20", "50", "100"), ("weighted_sum", "rrf")
        found = (
            (PRIMARY, str(self.primary), "rows of the vector list that are fused", tops),
            (SECONDARY, str(self.secondary), "rows of the lexical list that are fused", tops),
            (FUSION, self.kind, "of both lists, by its program", kinds),
        )
        return tuple(
            Setting(name, value, unit, tuple(each for each in tries if each != value), "source_hybrid")
            for name, value, unit, tries in found
        )

    def rows(self, asked: int) -> tuple[int, int]:
        """Rows of the vector list and of the lexical list for an answer of `asked`."""
        half = (asked + 1) // 2
        return self.primary or half, self.secondary or half

    def fused(
        self, near: Sequence[tuple[str, float]], words: Sequence[tuple[str, float]], distance: Distance, asked: int
    ) -> list[EngineHit]:
        """The answer from (id, distance) and (id, rank), each best first."""
        if self.kind == "appended":
            high = 1.0 if distance == "cosine" else 0.0
            seen = {id for id, _ in near}
            lists = [*((id, high - far) for id, far in near), *((id, rank) for id, rank in words if id not in seen)]
            return [EngineHit(id, score) for id, score in lists][:asked]
        scores: dict[str, float] = {}
        if self.kind == "rrf":
            for ranked in (near, words):
                for rank, (id, _) in enumerate(ranked):
                    scores[id] = scores.get(id, 0.0) + 1.0 / (rank + RRF_K)
        else:
            for ranked, sign in ((near, -1.0), (words, 1.0)):
                for id, share in _scaled([(id, sign * value) for id, value in ranked]):
                    scores[id] = scores.get(id, 0.0) + HALF * share
        return [EngineHit(id, score) for id, score in sorted(scores.items(), key=lambda hit: -hit[1])][:asked]


def _scaled(ranked: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Values scaled to 0…1, the best 1; equal ones are all 1."""
    values = [value for _, value in ranked]
    low, high = min(values, default=0.0), max(values, default=0.0)
    return [(id, (value - low) / (high - low) if high > low else 1.0) for id, value in ranked]


def with_settings(fusion: Fusion, given: Mapping[str, str]) -> Fusion:
    """The fusion with settings of an address or a trial. Raises ValueError that says what is wrong."""
    kind, tops = given.get(FUSION, fusion.kind), {}
    if kind not in ("weighted_sum", "rrf", fusion.kind):
        raise ValueError(f"{FUSION} must be weighted_sum or rrf, found {kind!r}")
    for name, value in ((PRIMARY, fusion.primary), (SECONDARY, fusion.secondary)):
        text = given.get(name)
        if text is not None and not (text.isascii() and text.isdigit() and int(text) > 0):
            raise ValueError(f"{name} must be a number of rows, found {text!r}")
        tops[name] = value if text is None else int(text)
    kinds: Mapping[str, Fused] = {"weighted_sum": "weighted_sum", "rrf": "rrf", fusion.kind: fusion.kind}
    return Fusion(kinds[kind], tops[PRIMARY], tops[SECONDARY])
