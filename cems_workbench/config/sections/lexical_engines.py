"""Config sections of the lexical engines: lists that answer as another engine does (`pipeline/lexical_engines`)."""

from __future__ import annotations

from typing import Any, Literal

from cems_workbench.config.fields import (
    DEPTH,
    FACTOR,
    SHARE,
    WEIGHT,
    WORDS,
    ExportName,
    Section,
    above,
    ace,
    engram,
    gathered,
    param,
    within,
)

Ties = Literal["ordinal", "dense", "competition"]
Normalization = Literal["none", "max", "minmax", "saturating", "logistic"]


class EngineList(Section):
    """The list of a lexical engine: every subclass in `ListsConfig` is one."""


def enabled(title: str, what: str) -> Any:
    """The switch of an engine's list."""
    return gathered(False, f"{title} list", what)


def depth(title: str, exports: tuple[ExportName, ...] = ()) -> Any:
    """Memories kept of each of its lists."""
    return param(50, f"{title} depth", "Memories kept of each list; null is all that match.", **DEPTH, exports=exports)


def first_stage_factor(title: str) -> Any:
    """The depth as a multiple of the result limit."""
    return param(
        1,
        f"{title} first-stage factor",
        "Above 1, the list is at least this × the first-stage factor of the lists × the result limit deep.",
        **FACTOR,
    )


def weight(
    title: str,
    what: str = "Weight of the lists in the fusion, times the variant's weight.",
    default: float = 1.0,
    exports: tuple[ExportName, ...] = (),
) -> Any:
    """The weight of a list in the fusion."""
    return param(default, f"{title} weight", what, **WEIGHT, exports=exports)


def ties(
    title: str,
    what: str = "Rank of equal scores. ordinal: consecutive, in the engine's order; dense: 1 1 2; competition: 1 1 3.",
    default: str = "ordinal",
) -> Any:
    """Ranks of equal scores."""
    return param(default, f"{title} ties", what)


def normalization(
    title: str,
    what: str = "none keeps the engine's score; max divides by the list's best; minmax spreads the list over 0 to 1; saturating is "
    "s / (1 + s); logistic is mem0's, by the number of words (Logistic bands).",
    default: str = "none",
) -> Any:
    """Scale of its scores for the threshold and for sums of scores."""
    return param(default, f"{title} normalisation", what)


def rows(title: str) -> Any:
    """The order of insertion into the engine, which settles ties."""
    return gathered(
        "created",
        f"{title} order of rows",
        "Order in which memories are in the engine; it settles equal scores. created: by creation, then as imported; store: as imported.",
    )


def column(title: str, default: float = 0.0) -> Any:
    """The weight of one column."""
    return gathered(
        default,
        f"Column {title}",
        f"Weight of the {title} as a separate column; 0 leaves the column out.",
        **within(0, 100, step=0.5, soft=(0, 10)),
    )


class Fts5Columns(Section):
    """Columns of the FTS5 table with their bm25 weights."""

    text: float = column("text as searched", 1.0)
    id: float = column("id")
    content: float = column("content")
    title: float = column("title")
    tags: float = column("tags")
    category: float = column("category")
    project: float = column("project")
    author: float = column("author")


class Fts5List(EngineList):
    """Hits of SQLite's FTS5 by its bm25."""

    enabled: bool = enabled(
        "FTS5",
        "SQLite's FTS5, the engine itself (Python's sqlite3, in memory). Scores are −bm25(): idf of the whole store, k1 1.2, b 0.75.",
    )
    depth: int | None = depth("FTS5", engram("MATCH query, LIMIT"))
    first_stage_factor: int = first_stage_factor("FTS5")
    weight: float = weight("FTS5", exports=engram("W_BM25"))
    ties: Ties = ties("FTS5")
    normalization: Normalization = normalization("FTS5")
    columns: Fts5Columns = Fts5Columns()
    tokenizer: Literal["unicode61", "porter"] = gathered(
        "unicode61",
        "FTS5 tokenizer",
        "unicode61: lower case, without diacritics, no stems; porter: the same with English stems.",
    )
    match: Literal["any", "all"] = gathered(
        "any",
        "Words that must match",
        "any: words are joined by OR; all: by AND, so that one missing word empties the list.",
    )
    prefix: bool = gathered(False, "Words as prefixes", "Each word also matches longer words that begin with it.")
    cut: Literal["score", "row"] = gathered(
        "score",
        "Rows kept",
        "score: the best; row: the first in order of insertion, whatever their score, as a LIMIT without ORDER BY takes them (engram).",
        exports=engram("MATCH query, ORDER BY", codec="row_order"),
    )
    rows: Literal["created", "store"] = rows("FTS5")
    outside_ascii: Literal["kept", "blanked", "removed"] = gathered(
        "kept",
        "Signs outside ASCII",
        "Of the query, all but ASCII letters and digits: kept, replaced by blanks (engram: Gdańsk asks for Gda and sk), or removed.",
    )
    stop_words: str | None = gathered(
        None,
        "Stop words",
        "File with words left out of the query: a plain list, or a source file and the name of its list (FILE#NAME); null keeps all.",
        null="keep all",
    )
    operator_words: Literal["dropped", "searched"] = gathered(
        "dropped",
        "AND, OR, NOT, NEAR",
        "These words of the query, in capitals or not, are words of FTS5's query language. dropped: left out (engram); searched: like any "
        "other word, in quotation marks.",
    )
    split_at_dots: bool = gathered(
        False,
        "Split at dots",
        "A word with dots is searched as several; otherwise, like one with hyphens, as a phrase: its parts must follow each other (QMD "
        "splits).",
    )
    max_words: int | None = gathered(
        None,
        "Words searched",
        "Only the first words of the query are searched, counted after the stop words.",
        **WORDS,
        exports=engram("words of ftsQuery, slice(0, …)"),
    )


class SparseList(EngineList):
    """Hits of sparse BM25 vectors, as encoders of vector databases make them."""

    enabled: bool = enabled(
        "Sparse",
        "Sparse BM25 vectors: a text becomes a weight per word, the query too, and the score is their dot product (Qdrant, mem0, ACE). "
        "The encoder sees one text at a time, so the mean length is assumed; the idf, if any, is of the whole store.",
    )
    depth: int | None = depth("Sparse")
    first_stage_factor: int = first_stage_factor("Sparse")
    weight: float = weight("Sparse")
    ties: Ties = ties("Sparse")
    normalization: Normalization = normalization("Sparse")
    k1: float = gathered(
        1.2,
        "Sparse k1",
        "How much repetitions of a word count: 0 is not at all; a word's weight stays below k1 + 1 (fastembed: 1.2, ACE: 1.5).",
        **within(0, 100, step=0.1, soft=(0, 3)),
        exports=ace("BM25_K1"),
    )
    b: float = gathered(
        0.75,
        "Sparse b",
        "How much long texts are held back: 0 is not at all, 1 in proportion to the length (fastembed and ACE: 0.75).",
        **SHARE,
        exports=ace("BM25_B"),
    )
    mean_length: float | None = gathered(
        None,
        "Mean length assumed",
        "Words of a text of average length, as the encoder assumes it (fastembed: 256, ACE: 50): with 256 short memories hardly differ by "
        "length. null is the true mean of the store.",
        **above(0, 1_000_000, step=1, soft=(1, 512), unit="words"),
        null="the true mean",
        exports=ace("BM25_AVG_DOC_LENGTH"),
    )
    idf: Literal["none", "lucene"] = gathered(
        "lucene",
        "Rarity of a word",
        "lucene: ln(1 + (N − n + 0.5) / (n + 0.5)) of the whole store, as Qdrant's modifier idf; none: a common word counts as much as a "
        "rare one (ACE).",
    )
    query_weight: Literal["one", "document"] = gathered(
        "one",
        "Weight of query words",
        "one: each different word counts 1; document: the query is weighted like a text, about 1.66 a word at fastembed's settings (mem0, "
        "ACE).",
    )
    tokens: Literal["identifiers", "words"] = gathered(
        "words",
        "Sparse tokens",
        "words: runs of letters, digits and _ of every alphabet (fastembed); identifiers: ASCII letters and digits, parted at _ and at a "
        "capital inside a word (ACE).",
    )
    stems: Literal["none", "english"] = gathered(
        "none",
        "Sparse stems",
        "english: Snowball's English stems as fastembed has them (“added” is “ad”); none: words as they are written (ACE).",
    )
    lemmas: Literal["none", "spacy"] = gathered(
        "none",
        "Lemmas",
        "spacy: texts and query are brought to spaCy's English lemmas first, without its stop words (mem0 with spaCy). Needs the extra "
        "lemmas; without it words stay as they are, and a warning says so.",
    )
    stop_words: str | None = gathered(
        None,
        "Sparse stop words",
        "Words left out of texts and query: english (NLTK's 179, as fastembed), or a file: a plain list, or a source file and the name of "
        "its list (FILE#NAME); null keeps all.",
        null="keep all",
    )
    min_token_length: int | None = gathered(
        None,
        "Shortest word",
        "Shorter words are left out (ACE: 2).",
        **within(1, 100, step=1, soft=(1, 5), unit="characters"),
    )
    max_token_length: int | None = gathered(
        None,
        "Longest word",
        "Longer words are left out, before stems are made (fastembed: 40).",
        **within(1, 10_000, step=1, soft=(10, 100), unit="characters"),
    )
    rows: Literal["created", "store"] = rows("Sparse")
    skip_if_conversational: bool = gathered(
        False,
        "No sparse list if conversational",
        "A conversational query gets no list of sparse vectors (ACE).",
    )


def field(title: str, default: float = 0.0) -> Any:
    """The boost of one field."""
    return gathered(
        default,
        f"Field {title}",
        f"Boost of the {title} as a field; the scores of all fields are added. 0 leaves the field out.",
        **within(0, 100, step=0.5, soft=(0, 10)),
    )


class LuceneFields(Section):
    """Fields (Neo4j: properties) of the Lucene index with their boosts."""

    text: float = field("text as searched", 1.0)
    plain_text: float = field("text as searched without Markdown signs")
    content: float = field("content")
    title: float = field("title")
    object: float = field("title, or the content of a memory without one,")
    fact: float = field("sentence of author, category, title and content")
    tags: float = field("tags")
    category: float = field("category")
    project: float = field("project")
    author: float = field("author")


class LuceneList(EngineList):
    """Hits of Lucene's BM25, as Neo4j and Elasticsearch have it."""

    enabled: bool = enabled(
        "Lucene",
        "Lucene 9's BM25, computed here: words of its standard analyzer without stems, lengths in one byte, summed over fields, the same "
        "number to the last bit. With fuzzy words a word that several clauses reach has the mean of their weights: Lucene takes one of "
        "them, by a hash seed that each start of its JVM draws, so it does not repeat itself either.",
    )
    depth: int | None = depth("Lucene")
    first_stage_factor: int = first_stage_factor("Lucene")
    weight: float = weight("Lucene")
    ties: Ties = ties("Lucene")
    normalization: Normalization = normalization("Lucene")
    fields: LuceneFields = LuceneFields()
    k1: float = gathered(
        1.2,
        "Lucene k1",
        "How much repetitions of a word add: 0 counts a word once, however often it occurs.",
        **within(0, 10, step=0.05, soft=(0, 3)),
    )
    b: float = gathered(
        0.75,
        "Lucene b",
        "How much longer texts lose: 0 nothing, 1 in full proportion to their length.",
        **SHARE,
    )
    fuzzy: int = gathered(
        0,
        "Fuzzy edits",
        "Each word also matches words within so many edits (`word~`), weighted 1 − edits / shorter length; at most 50 words a field. The "
        "memory agent: 2.",
        **within(0, 2, step=1),
    )
    max_clauses: int | None = gathered(
        1024,
        "Most clauses",
        "A query of more clauses, once its fuzzy words are expanded, is refused, and the list is empty (Lucene: 1,024).",
        **within(1, 1_000_000, step=64, soft=(64, 8192)),
    )
    equal_scores: Literal["insertion", "heap"] = gathered(
        "insertion",
        "Order of equal scores",
        "insertion: in the order of rows, as Lucene collects them; heap: as they come out of the binary heap of Neo4j.",
    )
    documents: Literal["chunks", "memories"] = gathered(
        "chunks",
        "Lucene documents",
        "chunks: a document for each chunk, if the text as searched is a field; memories: each memory is one document, however long.",
    )
    rows: Literal["created", "store"] = rows("Lucene")
    outside_ascii: Literal["kept", "blanked", "removed"] = gathered(
        "kept",
        "Lucene signs outside ASCII",
        "Of the query, all but ASCII letters, digits, - and _: kept, replaced by blanks, or removed, so that it's is its (memory agent). "
        "If not kept, words go to Lucene's query parser: a word that begins with - excludes, one with -- is refused.",
    )
    min_characters: int = gathered(
        1,
        "Lucene shortest word",
        "Shorter words of the query are left out (memory agent: 2).",
        **within(1, 20, step=1, soft=(1, 5)),
    )
    repeats: bool = gathered(
        True,
        "Repeated words",
        "A word that the query repeats counts again; off, it counts once (memory agent).",
    )
    stop_words: str | None = gathered(
        None,
        "Lucene stop words",
        "File with words left out of the query: a plain list, or a source file and the name of its list (FILE#NAME); null keeps all.",
        null="keep all",
    )
    max_words: int | None = gathered(
        None,
        "Lucene words searched",
        "Only the first words of the query are searched, counted after the stop words.",
        **WORDS,
    )


class TsRankCdList(EngineList):
    """Hits of PostgreSQL's full-text search by ts_rank_cd."""

    enabled: bool = enabled(
        "ts_rank_cd",
        "PostgreSQL's cover density rank: 0.1 for each place of a word if any may match; if all must, for each stretch that has them all, "
        "less the wider it is. Rarity does not count.",
    )
    depth: int | None = depth("ts_rank_cd")
    first_stage_factor: int = first_stage_factor("ts_rank_cd")
    weight: float = weight("ts_rank_cd")
    ties: Ties = ties("ts_rank_cd")
    normalization: Normalization = normalization("ts_rank_cd")
    text_config: Literal["english", "simple"] = gathered(
        "english",
        "Text search configuration",
        "english: Snowball stems, without PostgreSQL's stop words; simple: words in lower case, all of them (mem0 on pgvector).",
    )
    match: Literal["any", "all"] = gathered(
        "any",
        "ts_rank_cd words that must match",
        "any: words are joined by OR (Hindsight); all: by AND, as by plainto_tsquery (mem0), so that one missing word empties the list.",
    )
    rank_normalization: int = gathered(
        0,
        "Rank normalisation",
        "PostgreSQL's flags, added up: 1 divides by the log of the length, 2 by the length, 4 by the distance between covers, 8 by the "
        "number of different words, 16 by its log, 32 takes rank / (rank + 1).",
        **within(0, 63, step=1),
    )
    rows: Literal["created", "store"] = rows("ts_rank_cd")
    max_words: int | None = gathered(
        None,
        "ts_rank_cd words searched",
        "At most so many words are searched, those that the fewest texts have (Hindsight: 16).",
        **WORDS,
    )
