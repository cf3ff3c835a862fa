"""What the scores of other systems mean: a row for each engine and library, as it answered when it was run.

score_facts.json has what was seen, with the versions: `python -m benchmarks.score_meanings` measures it again, compares and, with --write,
records it. The rows here explain it. Facts about stored vectors are the scores that they have for a query of length 1: the equal one, the
orthogonal, the opposite, one of zeros, one twice as long. docs/reference/scores.md, `connect`, Lists and the help of thresholds read these
rows. A system that was not run has none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Group = Literal["vector", "lexical", "fused", "order"]
Fact = float | int | str
STORED: tuple[str, ...] = ("equal", "orthogonal", "opposite", "zero", "twice as long")
"""What a stored vector is to the query."""
FACTS = files(__package__) / "score_facts.json"
TOLERANCE = 1e-5
"""Relative difference of two numbers that count as the same fact: engines compute in single precision."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a probe saw, and of which distributions."""

    versions: str
    probe: str
    seen: Mapping[str, Fact]


@cache
def recorded() -> Mapping[str, Recorded]:
    """What was seen, by the key of a row."""
    facts = json.loads(FACTS.read_text("utf-8"))
    return {key: Recorded(**values) for key, values in facts.items()}


@dataclass(frozen=True, slots=True)
class ScoreMeaning:
    """A score of a system.

    `engine` is a name in `SourceInfo.engine` and `distance` its distance (vector lists only), where the workbench asks the system for the
    list `answers`; both are empty for libraries, and for what it never asks for.
    """

    key: str
    group: Group
    system: str
    score: str
    best: Literal["highest", "lowest"]
    range: str
    consequence: str = ""
    threshold: str = ""
    """Where a threshold acts, and what happens to a score that equals it."""
    limit: str = ""
    """What a limit cuts first, where that is not the end of the list."""
    engine: str = ""
    distance: str = ""
    answers: str = "vector"

    @property
    def seen(self) -> Mapping[str, Fact]:
        """What was seen when it was run."""
        return recorded()[self.key].seen

    @property
    def how(self) -> str:
        """The distributions that were run, and the function of benchmarks/score_meanings that ran them."""
        return f"{recorded()[self.key].versions}; {recorded()[self.key].probe}"

    @property
    def stored(self) -> dict[str, Fact]:
        """The scores of vectors, by what they are to the query; empty for other scores."""
        return {name: self.seen[name] for name in STORED if name in self.seen}

    @property
    def others(self) -> dict[str, Fact]:
        """Everything else that was seen."""
        return {name: fact for name, fact in self.seen.items() if name not in (*STORED, "first")}

    @property
    def words(self) -> str:
        """ "distance: 1 − cosine, lowest first; equal 0, orthogonal 1, opposite 2; …": one line for pages and commands."""
        facts = ", ".join(f"{name} {shown(self.seen[name])}" for name in STORED[:3] if name in self.seen)
        parts = [f"{self.score}, {self.best} is best", *([facts] if facts else []), *self._cuts()]
        return "; ".join([*parts, *([self.consequence] if self.consequence else [])])

    def _cuts(self) -> list[str]:
        named = (("a threshold", self.threshold), ("a limit", self.limit))
        return [f"{what}: {words}" for what, words in named if words]


def shown(fact: Fact) -> str:
    """A fact as text: numbers with up to four digits and a proper minus sign."""
    if isinstance(fact, str):
        return fact
    return f"{fact:.4g}".replace("-", "−")


THRESHOLDS = ("threshold.fixed", "assembly.min_vector_score", "abstain.vector")
"""Parameters that cut a score of the vector list."""
EXAMPLES = (
    "chroma_cosine",
    "chroma_l2",
    "pgvector_l2",
    "mem0_chroma",
    "langchain_chroma_l2",
    "langchain_qdrant_cosine",
)
"""Rows that the help of these parameters names."""


def threshold_help() -> str:
    """What an orthogonal memory scores in other systems, for the help of THRESHOLDS."""
    rows = [row for row in MEANINGS if row.key in EXAMPLES]
    named = ", ".join(f"{shown(row.seen['orthogonal'])} in {row.system}" for row in rows)
    return f"An orthogonal memory has 0 as a cosine, {named}; docs/reference/scores.md has all."


def meaning_of(engine: str, distance: str, name: str = "vector") -> ScoreMeaning | None:
    """The row of the list `name` of an engine, by its `SourceInfo`; None if that was not run."""
    for row in MEANINGS:
        if row.engine and row.engine in engine and row.answers == name and row.distance in ("", distance):
            return row
    return None


def differences(measured: Mapping[str, Mapping[str, Fact]]) -> list[str]:
    """A line for each fact that was measured otherwise than the table has it, or that only one of the two has."""
    table = {key: each.seen for key, each in recorded().items()}
    found = [f"{key}: was never recorded" for key in measured if key not in table]
    for key, facts in measured.items():
        for name in dict.fromkeys([*table.get(key, {}), *facts]) if key in table else ():
            mine, now = table[key].get(name), facts.get(name)
            if not _same(mine, now):
                found.append(f"{key}: {name}: the table has {mine!r}, measured {now!r}")
    return found


def _same(mine: Fact | None, now: Fact | None) -> bool:
    if isinstance(mine, str) or isinstance(now, str) or mine is None or now is None:
        return mine == now
    return math.isclose(mine, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


MEANINGS: tuple[ScoreMeaning, ...] = (
    ScoreMeaning(
        "chroma_cosine",
        "vector",
        "Chroma, space cosine",
        "distance: 1 − cosine",
        "lowest",
        "0 to 2",
        consequence="a zero vector counts as orthogonal",
        engine="Chroma",
        distance="cosine",
    ),
    ScoreMeaning(
        "chroma_l2",
        "vector",
        "Chroma, space l2 (the default)",
        "distance: squared Euclidean",
        "lowest",
        "0 and up; 0 to 4 for vectors of length 1",
        consequence="for vectors of length 1 the cosine is 1 − distance / 2; a zero vector stands before an orthogonal one",
        engine="Chroma",
        distance="l2",
    ),
    ScoreMeaning(
        "chroma_ip",
        "vector",
        "Chroma, space ip",
        "distance: 1 − inner product",
        "lowest",
        "unbounded",
        consequence="longer vectors come first, with negative distances",
        engine="Chroma",
        distance="ip",
    ),
    ScoreMeaning(
        "qdrant_cosine",
        "vector",
        "Qdrant, Cosine",
        "cosine",
        "highest",
        "−1 to 1",
        consequence="a threshold of 0 also drops orthogonal points and those with a zero vector",
        engine="Qdrant",
        distance="cosine",
        threshold="before fusion, on each list",
    ),
    ScoreMeaning(
        "qdrant_dot",
        "vector",
        "Qdrant, Dot",
        "inner product",
        "highest",
        "unbounded",
        consequence="longer vectors come first",
        engine="Qdrant",
        distance="ip",
        threshold="before fusion, on each list",
    ),
    ScoreMeaning(
        "qdrant_euclid",
        "vector",
        "Qdrant, Euclid",
        "Euclidean distance",
        "lowest",
        "0 and up; 0 to 2 for vectors of length 1",
        consequence="not squared, unlike Chroma's",
        engine="Qdrant",
        distance="l2",
        threshold="before fusion, on each list",
    ),
    ScoreMeaning(
        "qdrant_manhattan",
        "vector",
        "Qdrant, Manhattan",
        "Manhattan distance",
        "lowest",
        "0 and up",
        consequence="such a collection cannot be connected",
    ),
    ScoreMeaning(
        "qdrant_edge_cosine",
        "vector",
        "Qdrant's Rust engine, Cosine",
        "cosine",
        "highest",
        "−1 to 1",
        consequence="as in the client's local mode",
    ),
    ScoreMeaning(
        "qdrant_edge_dot",
        "vector",
        "Qdrant's Rust engine, Dot",
        "inner product",
        "highest",
        "unbounded",
        consequence="as in the client's local mode",
    ),
    ScoreMeaning(
        "qdrant_edge_euclid",
        "vector",
        "Qdrant's Rust engine, Euclid",
        "Euclidean distance",
        "lowest",
        "0 and up",
        consequence="as in the client's local mode",
    ),
    ScoreMeaning(
        "pgvector_cosine",
        "vector",
        "pgvector, <=>",
        "distance: 1 − cosine",
        "lowest",
        "0 to 2",
        consequence="the distance to a zero vector is NaN, which PostgreSQL sorts last; sorted by 1 − distance it is first",
        engine="PostgreSQL",
        distance="cosine",
    ),
    ScoreMeaning(
        "pgvector_l2",
        "vector",
        "pgvector, <->",
        "Euclidean distance",
        "lowest",
        "0 and up; 0 to 2 for vectors of length 1",
        consequence="not squared: for vectors of length 1 the cosine is 1 − distance² / 2",
        engine="PostgreSQL",
        distance="l2",
    ),
    ScoreMeaning(
        "pgvector_ip",
        "vector",
        "pgvector, <#>",
        "minus the inner product",
        "lowest",
        "unbounded",
        consequence="longer vectors come first",
        engine="PostgreSQL",
        distance="ip",
    ),
    ScoreMeaning(
        "sqlite_vec_l2",
        "vector",
        "sqlite-vec, l2 (the default)",
        "Euclidean distance",
        "lowest",
        "0 and up; 0 to 2 for vectors of length 1",
        consequence="equal distances: the highest rowid first within a chunk of the table",
    ),
    ScoreMeaning(
        "sqlite_vec_cosine",
        "vector",
        "sqlite-vec, cosine",
        "distance: 1 − cosine",
        "lowest",
        "0 to 2",
        consequence="the distance to a zero vector is NULL",
    ),
    ScoreMeaning("sqlite_vec_l1", "vector", "sqlite-vec, l1", "Manhattan distance", "lowest", "0 and up"),
    ScoreMeaning(
        "lancedb_l2",
        "vector",
        "LanceDB, l2 (the default)",
        "distance: squared Euclidean",
        "lowest",
        "0 and up; 0 to 4 for vectors of length 1",
        consequence="for vectors of length 1 the cosine is 1 − distance / 2",
        engine="LanceDB",
        distance="l2",
    ),
    ScoreMeaning(
        "lancedb_cosine",
        "vector",
        "LanceDB, cosine",
        "distance: 1 − cosine",
        "lowest",
        "0 to 2",
        consequence="a row with a zero vector is missing, so two metrics return different numbers of rows",
        engine="LanceDB",
        distance="cosine",
    ),
    ScoreMeaning(
        "lancedb_dot",
        "vector",
        "LanceDB, dot",
        "distance: 1 − inner product",
        "lowest",
        "unbounded",
        consequence="the best of longer vectors has a negative distance",
        engine="LanceDB",
        distance="ip",
    ),
    ScoreMeaning(
        "faiss_l2",
        "vector",
        "FAISS, IndexFlatL2",
        "distance: squared Euclidean",
        "lowest",
        "0 and up; 0 to 4 for vectors of length 1",
        consequence="asked for more rows than there are, it fills up with id −1",
        engine="FAISS",
        distance="l2",
    ),
    ScoreMeaning(
        "faiss_ip",
        "vector",
        "FAISS, IndexFlatIP",
        "inner product",
        "highest",
        "unbounded",
        consequence="asked for more rows than there are, it fills up with id −1",
        engine="FAISS",
        distance="ip",
    ),
    ScoreMeaning(
        "duckdb_cosine",
        "vector",
        "DuckDB, array_cosine_similarity",
        "cosine",
        "highest",
        "−1 to 1, or NaN",
        consequence="NaN counts as greater than every number: a zero vector is first, and passes any threshold",
    ),
    ScoreMeaning(
        "duckdb_cosine_distance",
        "vector",
        "DuckDB, array_cosine_distance",
        "distance: 1 − cosine",
        "lowest",
        "0 to 2, or NaN",
        consequence="a zero vector comes last",
    ),
    ScoreMeaning("duckdb_l2", "vector", "DuckDB, array_distance", "Euclidean distance", "lowest", "0 and up"),
    ScoreMeaning("duckdb_ip", "vector", "DuckDB, array_inner_product", "inner product", "highest", "unbounded"),
    ScoreMeaning(
        "mem0_chroma",
        "vector",
        "mem0 on Chroma",
        "1 / (1 + squared Euclidean distance)",
        "highest",
        "above 0 to 1",
        consequence="an opposite vector has 0.2: the default threshold of 0.1 cuts nothing",
        threshold="on this score, before keywords are added",
    ),
    ScoreMeaning(
        "mem0_qdrant",
        "vector",
        "mem0 on Qdrant",
        "cosine, halved where any memory has a keyword hit",
        "highest",
        "0 to 1 of what the threshold leaves",
        consequence="one keyword hit anywhere halves every score of a query; the default threshold cuts an orthogonal vector",
        threshold="on the cosine, before keywords are added; these scores were asked for with 0.0",
    ),
    ScoreMeaning(
        "mem0_pgvector",
        "vector",
        "mem0 on pgvector",
        "1 − cosine distance, 0 at least, halved where any memory has a keyword hit",
        "highest",
        "0 to 1",
        consequence="a perfect keyword hit adds 0.02 and halves the score; all words must occur, or the arm is empty",
        threshold="on the cosine, before keywords are added; these scores were asked for with 0.0",
    ),
    ScoreMeaning(
        "langchain_chroma_l2",
        "vector",
        "langchain-chroma, relevance, l2",
        "1 − squared distance / √2",
        "highest",
        "−1.83 to 1 for vectors of length 1",
        consequence="an orthogonal memory is negative",
    ),
    ScoreMeaning(
        "langchain_chroma_cosine",
        "vector",
        "langchain-chroma, relevance, cosine",
        "1 − distance: cosine",
        "highest",
        "−1 to 1",
    ),
    ScoreMeaning(
        "langchain_chroma_ip",
        "vector",
        "langchain-chroma, relevance, ip",
        "1 − distance, but −distance where that is 0 or less",
        "highest",
        "unbounded",
        consequence="an exact match has 0, less than a weaker one, and score_threshold cuts it",
    ),
    ScoreMeaning(
        "langchain_qdrant_cosine",
        "vector",
        "langchain-qdrant, relevance, COSINE",
        "(1 + cosine) / 2",
        "highest",
        "0 to 1",
        consequence="an orthogonal memory has 0.5",
    ),
    ScoreMeaning(
        "langchain_qdrant_dot",
        "vector",
        "langchain-qdrant, relevance, DOT",
        "1 − inner product, in the order of Qdrant",
        "lowest",
        "unbounded",
        consequence="an exact match has 0 and the opposite 1: a threshold keeps the wrong ones",
    ),
    ScoreMeaning(
        "langchain_qdrant_euclid",
        "vector",
        "langchain-qdrant, relevance, EUCLID",
        "1 − distance / √2",
        "highest",
        "−0.41 to 1 for vectors of length 1",
    ),
    ScoreMeaning(
        "langchain_pgvector_cosine",
        "vector",
        "langchain PGVector, COSINE",
        "distance: 1 − cosine",
        "lowest",
        "0 to 2",
        consequence="similarity_search_with_score returns distances; its relevance is 1 − distance",
    ),
    ScoreMeaning(
        "langchain_pgvector_l2",
        "vector",
        "langchain PGVector, EUCLIDEAN",
        "Euclidean distance",
        "lowest",
        "0 and up",
        consequence="its relevance is 1 − distance / √2",
    ),
    ScoreMeaning(
        "langchain_pgvector_ip",
        "vector",
        "langchain PGVector, MAX_INNER_PRODUCT",
        "minus the inner product",
        "lowest",
        "unbounded",
        consequence="its relevance of an exact match is 1, of an orthogonal one 0",
    ),
    ScoreMeaning(
        "langgraph_sqlite_cosine",
        "vector",
        "LangGraph SqliteStore, cosine",
        "cosine",
        "highest",
        "−1 to 1",
        consequence="a zero vector has no score",
    ),
    ScoreMeaning(
        "langgraph_sqlite_l2",
        "vector",
        "LangGraph SqliteStore, l2",
        "Euclidean distance, sorted descending",
        "lowest",
        "0 and up",
        consequence="the farthest memory comes first",
    ),
    ScoreMeaning(
        "langgraph_sqlite_inner_product",
        "vector",
        "LangGraph SqliteStore, inner_product",
        "minus the Manhattan distance",
        "highest",
        "0 and down",
        consequence="it is not an inner product",
    ),
    ScoreMeaning(
        "langgraph_postgres_cosine",
        "vector",
        "LangGraph PostgresStore, cosine",
        "1 − cosine distance: cosine, or NaN",
        "highest",
        "−1 to 1, or NaN",
        consequence="a memory with a zero vector is first, above an exact match",
    ),
    ScoreMeaning(
        "langgraph_memory_cosine",
        "vector",
        "LangGraph InMemoryStore",
        "cosine",
        "highest",
        "−1 to 1",
        consequence="a memory stored with index=False is appended without a score; the other stores leave it out",
    ),
    ScoreMeaning(
        "llamaindex_chroma_l2",
        "vector",
        "LlamaIndex ChromaVectorStore, l2",
        "exp(−squared distance)",
        "highest",
        "above 0 to 1",
        consequence="an orthogonal memory has 0.14, and 0.37 in space cosine",
    ),
    ScoreMeaning(
        "llamaindex_chroma_cosine",
        "vector",
        "LlamaIndex ChromaVectorStore, cosine",
        "exp(−(1 − cosine))",
        "highest",
        "0.14 to 1",
    ),
    ScoreMeaning(
        "llamaindex_mmr",
        "vector",
        "LlamaIndex, MMR",
        "(1 − share) × similarity to the query and less",
        "highest",
        "to 0.5 by default",
        consequence="an exact match has 0.5",
    ),
    ScoreMeaning(
        "haystack_in_memory",
        "vector",
        "Haystack InMemoryDocumentStore",
        "inner product (the default)",
        "highest",
        "unbounded",
        consequence="longer vectors come first; its BM25 is BM25L by default",
    ),
    ScoreMeaning(
        "txtai",
        "vector",
        "txtai on FAISS",
        "cosine",
        "highest",
        "above 0 to 1",
        consequence="memories with a cosine of 0 or less are not returned",
    ),
    ScoreMeaning(
        "sqlite_fts5",
        "lexical",
        "SQLite FTS5",
        "bm25(): minus BM25, k1 1.2, b 0.75",
        "lowest",
        "0 and down",
        consequence="a word in more than half of the rows counts nothing; with porter a longer prefix can find less",
        engine="SQLite",
        answers="fts5",
        limit="rows by rowid, unless ORDER BY rank is asked for",
    ),
    ScoreMeaning(
        "postgres_ts_rank",
        "lexical",
        "PostgreSQL ts_rank",
        "weight of the words that occur",
        "highest",
        "0 to 1",
        consequence="it knows no rarity of words: a common word counts as much as a rare one",
        engine="PostgreSQL",
        answers="ts_rank",
    ),
    ScoreMeaning(
        "postgres_ts_rank_cd",
        "lexical",
        "PostgreSQL ts_rank_cd",
        "cover density",
        "highest",
        "0 and up",
        consequence="0.1 for each occurrence of a single word, so a threshold for BM25 cuts every row",
        engine="PostgreSQL",
        answers="ts_rank_cd",
    ),
    ScoreMeaning(
        "bm25s",
        "lexical",
        "bm25s, default method",
        "BM25 without the factor k1 + 1",
        "highest",
        "0 and up",
        consequence="documents that match nothing fill up the answer; the first of equal scores depends on the backend",
        limit="of equal scores by numba, the list of 1 is not the head of the list of 2",
    ),
    ScoreMeaning(
        "qdrant_sparse",
        "lexical",
        "Qdrant, sparse vectors",
        "inner product of the words' weights",
        "highest",
        "0 and up",
        consequence="unbounded: it is what the writer of the weights makes of it",
        engine="Qdrant",
        answers="sparse",
    ),
    ScoreMeaning(
        "qdrant_edge_bm25",
        "lexical",
        "Qdrant's Rust engine, BM25 over a text index",
        "BM25 with the factor k1 + 1",
        "highest",
        "0 and up",
        consequence="2.2 times the value of Lucene, Elasticsearch or bm25s: thresholds and sigmoids do not carry over",
    ),
    ScoreMeaning(
        "lancedb_fts",
        "lexical",
        "LanceDB, full text",
        "BM25 with the factor k1 + 1",
        "highest",
        "0 and up",
        consequence="until optimize() lowers the older ones, rows added after the index was built are on another scale",
    ),
    ScoreMeaning(
        "tantivy_fuzzy",
        "lexical",
        "Tantivy, fuzzy word",
        "1.0",
        "highest",
        "1",
        consequence="the word itself and one that is a letter off score the same",
    ),
    ScoreMeaning(
        "qdrant_rrf",
        "fused",
        "Qdrant, RRF",
        "Σ 1 / (2 + position), positions from 0",
        "highest",
        "0 to half the number of lists",
        consequence="the first of a single list has 0.5",
        engine="Qdrant",
        answers="source_hybrid",
        threshold="after fusion",
        limit="each prefetch has its own limit, applied before fusion",
    ),
    ScoreMeaning(
        "qdrant_weighted_rrf",
        "fused",
        "Qdrant, weighted RRF",
        "Σ 1 / ((position + 1) / weight + 1)",
        "highest",
        "0 to below the number of lists",
        consequence="the weight divides the rank: a heavy list gets flatter, and no share exceeds 1",
    ),
    ScoreMeaning(
        "qdrant_dbsf",
        "fused",
        "Qdrant, DBSF",
        "Σ score between mean ± 3 deviations, 0 to 1",
        "highest",
        "0 to the number of lists",
        consequence="over a Euclidean or Manhattan list the farthest point is first; a single hit has 0.5",
    ),
    ScoreMeaning(
        "qdrant_edge_rrf",
        "fused",
        "Qdrant's Rust engine, RRF",
        "Σ 1 / (2 + position), positions from 0",
        "highest",
        "0 to half the number of lists",
        consequence="as in the client's local mode, but for ties",
        threshold="after fusion",
    ),
    ScoreMeaning(
        "qdrant_edge_weighted_rrf",
        "fused",
        "Qdrant's Rust engine, weighted RRF",
        "Σ 1 / ((position + 1) / weight + 1)",
        "highest",
        "0 to below the number of lists",
        consequence="as in the client's local mode",
    ),
    ScoreMeaning(
        "qdrant_edge_dbsf",
        "fused",
        "Qdrant's Rust engine, DBSF",
        "Σ score between mean ± 3 deviations, 0 to 1",
        "highest",
        "0 to the number of lists",
        consequence="over a Euclidean list the farthest point is first",
    ),
    ScoreMeaning(
        "lancedb_hybrid",
        "fused",
        "LanceDB, hybrid",
        "Σ 1 / (60 + rank), ranks from 1",
        "highest",
        "0 to 0.033",
        consequence="the limit changes the order",
        engine="LanceDB",
        answers="source_hybrid",
        limit="cuts both lists before they are fused",
    ),
    ScoreMeaning(
        "langchain_qdrant_hybrid",
        "fused",
        "langchain-qdrant, HYBRID, relevance",
        "(1 + Qdrant's RRF) / 2",
        "highest",
        "0.5 to 1",
        consequence="no hit is below 0.5; the limit changes the order",
        limit="k cuts both lists before they are fused",
    ),
    ScoreMeaning(
        "llamaindex_reciprocal_rerank",
        "fused",
        "LlamaIndex, reciprocal_rerank",
        "Σ 1 / (60 + position), positions from 0",
        "highest",
        "0 to number of lists / 60",
        consequence="each list is sorted by score first, so a retriever that reports distances is fused upside down",
        limit="similarity_top_k after fusion, 2 by default",
    ),
    ScoreMeaning(
        "llamaindex_relative_score",
        "fused",
        "LlamaIndex, relative_score",
        "Σ weight × min-max of a list; weights are shares of 1",
        "highest",
        "0 to 1",
        consequence="the last of a list counts as not found; a single hit gets the whole share of its list",
    ),
    ScoreMeaning(
        "llamaindex_dist_based_score",
        "fused",
        "LlamaIndex, dist_based_score",
        "Σ weight × place between mean ± 3 deviations",
        "highest",
        "0 to 1",
        consequence="a single hit gets the whole share of its list, above the best of any longer list",
    ),
    ScoreMeaning(
        "haystack_dbsf",
        "fused",
        "Haystack DocumentJoiner, distribution based",
        "place between mean ± 3 deviations",
        "highest",
        "0 to 1, but unbounded for lists of one",
        consequence="a list of one keeps its raw score and stands above everything; of two values the higher counts; weights are ignored",
    ),
    ScoreMeaning(
        "haystack_rrf",
        "fused",
        "Haystack DocumentJoiner, reciprocal rank",
        "RRF, scaled so that first in every list is 1",
        "highest",
        "0 to 1",
        consequence="it is divided by the number of lists, empty ones included: a retriever that finds nothing halves the score of two",
    ),
    ScoreMeaning(
        "sqlite_vec_partition",
        "order",
        "sqlite-vec, partition key with IN",
        "distance",
        "lowest",
        "0 and up",
        consequence="neither the number of rows nor their order holds",
        limit="k rows of each partition, one after the other",
    ),
    ScoreMeaning(
        "qdrant_edge_ties",
        "order",
        "Qdrant's Rust engine, equal scores",
        "cosine",
        "highest",
        "−1 to 1",
        consequence="pages repeat some points and lose others; the client's local mode does not, so tests that pass there prove nothing",
    ),
    ScoreMeaning(
        "qdrant_edge_mmr",
        "order",
        "Qdrant's Rust engine, MMR",
        "cosine, not the value that ordered",
        "highest",
        "−1 to 1",
        consequence="lambda_ is the weight of relevance, where qdrant-client's diversity is the opposite; who sorts by score undoes it",
    ),
    ScoreMeaning(
        "langgraph_sqlite_pages",
        "order",
        "LangGraph SqliteStore, pages",
        "",
        "highest",
        "",
        consequence='a search with a query stops giving pages; index={"fields": …} is ignored, the whole value is embedded',
        limit="rows are cut to a multiple of limit that does not count offset",
    ),
    ScoreMeaning(
        "langgraph_postgres_pages",
        "order",
        "LangGraph PostgresStore, pages",
        "",
        "highest",
        "",
        consequence="a search with a query stops giving pages",
        limit="rows are cut to a multiple of limit that does not count offset",
    ),
    ScoreMeaning(
        "langgraph_memory_pages",
        "order",
        "LangGraph InMemoryStore, pages",
        "",
        "highest",
        "",
        consequence="all pages come; a listing begins with the oldest, where PostgresStore begins with the newest",
    ),
    ScoreMeaning(
        "trec_eval",
        "order",
        "trec_eval (pytrec_eval)",
        "scores in 32 bits",
        "highest",
        "",
        consequence="scores that differ by less than one part in 17 million are ties: a run scored by seconds since 1970 is reordered",
    ),
    ScoreMeaning("ranx", "order", "ranx", "scores in 64 bits", "highest", ""),
    ScoreMeaning(
        "sklearn_ndcg",
        "order",
        "scikit-learn ndcg_score",
        "scores",
        "highest",
        "",
        consequence="memories that were not returned are credited as ties: an empty answer has an nDCG of 0.64 of four",
    ),
    ScoreMeaning(
        "optuna_tpe",
        "order",
        "Optuna 5, TPE",
        "values of trials",
        "lowest",
        "",
        consequence="the default sampler is multivariate, so the same seed draws other values than in Optuna 4",
    ),
)
"""Every row, in the order of the page."""
