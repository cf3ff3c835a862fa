"""Config sections that decide what is searched: query understanding, expansion and the lists."""

from __future__ import annotations

from typing import Literal

from cems_workbench.config.export_names import cems
from cems_workbench.config.fields import Section, param


class TypoCorrection(Section):
    """Correction against the store's own terms (ACE)."""

    enabled: bool = param(
        False,
        "Typo correction",
        "Correct query words against the store's own vocabulary before searching.",
        kind="gather",
    )
    similarity_threshold: float = param(
        0.80,
        "Similarity threshold",
        "Correct a word when 1 − normalised edit distance reaches this.",
        kind="gather",
        ge=0,
        le=1,
        step=0.01,
    )
    auto_learn: bool = param(True, "Learn corrections", "Remember corrections that were accepted.", kind="gather")
    validate_: bool = param(
        True,
        "Validate with the LLM",
        "Ask the LLM in the background about learned pairs and forget those it refuses.",
        kind="gather",
        alias="validate",
    )
    max_learned: int = param(
        1000,
        "Learned pairs kept",
        "Most learned pairs to keep; the oldest go first.",
        kind="gather",
        ge=0,
        le=1_000_000,
        step=50,
        soft=(0, 5000),
    )


class Conversational(Section):
    """Detection of vague, stopword-heavy queries (ACE)."""

    enabled: bool = param(
        False,
        "Detect conversational queries",
        "Treat stopword-heavy queries without technical terms specially.",
        kind="gather",
    )
    max_domain_signal: float = param(
        0.15,
        "Domain signal below",
        "Conversational needs a share of technical terms strictly below this.",
        kind="gather",
        ge=0,
        le=1,
        step=0.01,
    )
    min_stopword_ratio: float = param(
        0.40,
        "Stopword ratio above",
        "Conversational needs a share of stopwords strictly above this.",
        kind="gather",
        ge=0,
        le=1,
        step=0.01,
    )


class Detectors(Section):
    """Preference, temporal and aggregation signals in the query's words (CEMS)."""

    enabled: bool = param(
        True, "Detectors", "Look for preference, temporal and aggregation signals in the query.", kind="gather"
    )
    matching: Literal["substring", "word"] = param(
        "substring",
        "Matching",
        "substring: as CEMS does (finds “last” in “elasticsearch”); word: whole words only.",
        kind="gather",
    )


class QueryConfig(Section):
    """Query understanding and routing."""

    mode: Literal["vector", "hybrid", "auto"] = param(
        "auto",
        "Search mode",
        "vector: vector list only; hybrid: vector and lexical; auto: routed by the query's intent.",
        kind="gather",
    )
    typo_correction: TypoCorrection = TypoCorrection()
    conversational: Conversational = Conversational()
    detectors: Detectors = Detectors()
    scope: Literal["personal", "shared", "both"] = param(
        "both", "Scope", "Which memories are searched: personal, shared or both.", kind="gather"
    )
    raw: bool = param(False, "Raw mode", "Debug: switches the relevance filter off.", kind="gather")


class SkipOnStrongSignal(Section):
    """The lexical probe that saves an expansion when the first hit is already clear (CEMS plan, QMD)."""

    enabled: bool = param(
        True,
        "Skip on strong signal",
        "Skip expansion when the lexical probe's first hit is strong and well ahead.",
        kind="gather",
    )
    threshold: float = param(
        0.85,
        "Signal threshold",
        "The first hit's score must reach this.",
        kind="gather",
        ge=0,
        le=100,
        step=0.01,
        soft=(0, 10),
        exports=cems("STRONG_SIGNAL_THRESHOLD"),
    )
    gap: float = param(
        0.15,
        "Signal gap",
        "The first hit must lead the second by this (second counts as 0 when there is one hit).",
        kind="gather",
        ge=0,
        le=100,
        step=0.01,
        soft=(0, 5),
        exports=cems("STRONG_SIGNAL_GAP"),
    )
    scale: Literal["raw", "max", "saturating"] = param(
        "raw",
        "Signal scale",
        "Scale of the probe's scores: raw BM25, divided by the maximum, or s/(1+s) as CEMS does today (0.85 then needs raw 5.67).",
        kind="gather",
    )


class ExpansionConfig(Section):
    """Query expansion."""

    backend: Literal["none", "manual", "dictionary", "feedback", "llm"] = param(
        "none",
        "Expansion",
        "Where further query variants come from.",
        kind="gather",
        exports=cems("ENABLE_QUERY_SYNTHESIS", codec="llm"),
    )
    max_expansions: int = param(
        3,
        "Expansions used",
        "At most this many expansions are searched.",
        kind="gather",
        ge=0,
        le=20,
        step=1,
        soft=(0, 8),
    )
    hyde: bool = param(False, "HyDE", "Also search with a hypothetical memory written by the LLM.", kind="gather")
    decompose: bool = param(
        False,
        "Decompose",
        "Split a compound question into sub-questions.",
        kind="gather",
        exports=cems("ENABLE_QUERY_DECOMPOSITION"),
    )
    max_decomposed: int = param(
        3,
        "Sub-questions used",
        "At most this many sub-questions are searched.",
        kind="gather",
        ge=0,
        le=20,
        step=1,
        soft=(0, 8),
        exports=cems("MAX_DECOMPOSED_QUERIES"),
    )
    profile_context: bool = param(
        False,
        "Profile context",
        "Preference queries: a first probe for what the user likes feeds the expansion.",
        kind="gather",
    )
    skip_on_strong_signal: SkipOnStrongSignal = SkipOnStrongSignal()
    skip_if_conversational: bool = param(
        False, "No expansion if conversational", "ACE: expansion hurts conversational queries.", kind="gather"
    )


Ties = Literal["ordinal", "dense"]


class VectorList(Section):
    """Nearest memories by embedding cosine."""

    enabled: bool = param(True, "Vector list", "Use the vector list.")
    depth: int | None = param(
        150,
        "Vector depth",
        "Hits kept of each vector list.",
        kind="growth",
        ge=1,
        le=10_000,
        step=5,
        soft=(5, 300),
        exports=cems("MAX_CANDIDATES_PER_QUERY"),
    )
    weight: float = param(
        1.0,
        "Vector weight",
        "Weight of vector lists in the fusion.",
        ge=0,
        le=100,
        step=0.05,
        soft=(0, 3),
        exports=cems("HYBRID_VECTOR_WEIGHT", codec="share"),
    )
    ties: Ties = param(
        "ordinal", "Vector ties", "ordinal: equal scores get consecutive ranks by id; dense: they share one rank."
    )
    prefetch: int = param(
        1,
        "Vector prefetch",
        "Multiplier of the depth used with the coarse multiplier (ACE: 2).",
        kind="gather",
        ge=1,
        le=100,
        step=1,
        soft=(1, 10),
    )


class LexicalList(Section):
    """BM25 hits."""

    enabled: bool = param(
        True, "Lexical list", "Use the lexical (BM25) list.", exports=cems("ENABLE_LEXICAL_IN_INFERENCE")
    )
    depth: int | None = param(
        50, "Lexical depth", "Hits kept of each lexical list.", kind="growth", ge=1, le=10_000, step=5, soft=(5, 300)
    )
    weight: float = param(
        1.0,
        "Lexical weight",
        "Weight of lexical lists in the fusion.",
        ge=0,
        le=100,
        step=0.05,
        soft=(0, 3),
        exports=cems("HYBRID_VECTOR_WEIGHT", codec="share"),
    )
    ties: Ties = param(
        "ordinal", "Lexical ties", "ordinal: equal scores get consecutive ranks by id; dense: they share one rank."
    )
    prefetch: int = param(
        1,
        "Lexical prefetch",
        "Multiplier of the depth used with the coarse multiplier (ACE: 5).",
        kind="gather",
        ge=1,
        le=100,
        step=1,
        soft=(1, 10),
    )
    normalization: Literal["none", "max", "minmax", "saturating"] = param(
        "max",
        "Lexical normalisation",
        "max divides by the list's best (CEMS calls it min-max; its first hit is always 1.0); saturating is s/(1+s).",
    )
    skip_if_conversational: bool = param(
        False,
        "No lexical if conversational",
        "ACE: BM25 is polluted by stopwords on conversational queries.",
        kind="gather",
    )


class RecencyList(Section):
    """The candidates ranked by created_at, newest first."""

    enabled: bool = param(False, "Recency list", "Rank the candidates by age and fuse that list too.")
    weight: float = param(
        0.6, "Recency weight", "Weight of the recency list in the fusion.", ge=0, le=100, step=0.05, soft=(0, 3)
    )
    ties: Ties = param("dense", "Recency ties", "ordinal or dense ranks for equal dates.")


class AccessList(Section):
    """The candidates ranked by access_count."""

    enabled: bool = param(
        False, "Access list", "Rank the candidates by how often they were used and fuse that list too."
    )
    weight: float = param(
        0.4, "Access weight", "Weight of the access list in the fusion.", ge=0, le=100, step=0.05, soft=(0, 3)
    )
    ties: Ties = param("dense", "Access ties", "ordinal or dense ranks for equal counts.")


class RelationsList(Section):
    """Neighbours, in the relation graph, of the first hits."""

    enabled: bool = param(False, "Relations list", "Add the neighbours of the first hits as a list.")
    weight: float = param(
        0.5, "Relations weight", "Weight of the relations list in the fusion.", ge=0, le=100, step=0.05, soft=(0, 3)
    )
    seeds: int = param(
        5, "Relation seeds", "First hits whose neighbours are taken.", kind="gather", ge=1, le=100, step=1, soft=(1, 20)
    )
    per_seed: int = param(
        8,
        "Neighbours per seed",
        "Most neighbours taken of one seed.",
        kind="gather",
        ge=1,
        le=100,
        step=1,
        soft=(1, 20),
    )


class Pool(Section):
    """Which memories the vector list may rank."""

    mode: Literal["all", "recent_access"] = param(
        "all",
        "Pool",
        "recent_access: vector ranks only the newest by last access, plus every lexical hit (two-stage RRF).",
        kind="gather",
    )
    size: int = param(
        200,
        "Pool size",
        "Memories in the recent-access pool.",
        kind="gather",
        ge=1,
        le=1_000_000,
        step=10,
        soft=(10, 1000),
    )


class ListsConfig(Section):
    """The ranked lists that are fused."""

    vector: VectorList = VectorList()
    lexical: LexicalList = LexicalList()
    recency: RecencyList = RecencyList()
    access: AccessList = AccessList()
    relations: RelationsList = RelationsList()
    pool: Pool = Pool()
    coarse_multiplier: int = param(
        1,
        "Coarse multiplier",
        "depth = max(depth, coarse multiplier × prefetch × result limit) (ACE: 10).",
        kind="gather",
        ge=1,
        le=100,
        step=1,
        soft=(1, 20),
    )


class VariantWeights(Section):
    """Weight of each kind of query variant; multiplies the list weight."""

    original_weight: float = param(
        2.0,
        "Original query",
        "Weight of the original query's lists.",
        ge=0,
        le=100,
        step=0.05,
        soft=(0, 5),
        exports=cems("RRF_ORIGINAL_WEIGHT"),
    )
    expansion_weight: float = param(
        1.0,
        "Expansions",
        "Weight of the expansions' lists.",
        ge=0,
        le=100,
        step=0.05,
        soft=(0, 5),
        exports=cems("RRF_EXPANSION_WEIGHT"),
    )
    decomposed_weight: float = param(
        1.5,
        "Sub-questions",
        "Weight of the sub-questions' lists.",
        ge=0,
        le=100,
        step=0.05,
        soft=(0, 5),
        exports=cems("RRF_DECOMPOSITION_WEIGHT"),
    )
    hyde_weight: float = param(
        1.0, "HyDE", "Weight of the hypothetical memory's lists.", ge=0, le=100, step=0.05, soft=(0, 5)
    )
