"""Config sections of the query: its corrections, its signals and its expansion."""

from __future__ import annotations

from typing import Literal

from cems_workbench.config.fields import Section, cems, gathered, within


class TypoCorrection(Section):
    """Correction against the store's own terms (ACE)."""

    enabled: bool = gathered(
        False,
        "Typo correction",
        "Correct query words against the store's own vocabulary before searching.",
    )
    similarity_threshold: float = gathered(
        0.80,
        "Similarity threshold",
        "Correct a word when 1 − normalised edit distance reaches this.",
        **within(0, 1, step=0.01),
    )
    auto_learn: bool = gathered(True, "Learn corrections", "Remember accepted corrections.")
    validate_: bool = gathered(
        True,
        "Validate with the LLM",
        "Ask the LLM in the background about learned pairs and forget those it refuses.",
        alias="validate",
    )
    max_learned: int = gathered(
        1000,
        "Learned pairs kept",
        "Maximum number of learned pairs; the oldest are dropped first.",
        **within(0, 1_000_000, step=50, soft=(0, 5000)),
    )


class Conversational(Section):
    """Detection of vague, stopword-heavy queries (ACE)."""

    enabled: bool = gathered(
        False,
        "Detect conversational queries",
        "Treat stopword-heavy queries without technical terms specially.",
    )
    max_domain_signal: float = gathered(
        0.15,
        "Domain signal below",
        "Conversational needs a share of technical terms strictly below this.",
        **within(0, 1, step=0.01),
    )
    min_stopword_ratio: float = gathered(
        0.40,
        "Stopword ratio above",
        "Conversational needs a share of stopwords strictly above this.",
        **within(0, 1, step=0.01),
    )


class Detectors(Section):
    """Preference, temporal and aggregation signals in the query's words (CEMS)."""

    enabled: bool = gathered(True, "Detectors", "Look for preference, temporal and aggregation signals in the query.")
    matching: Literal["substring", "word"] = gathered(
        "substring",
        "Matching",
        "substring: as CEMS does (finds “last” in “elasticsearch”); word: whole words only.",
    )
    words: Literal["guide", "cems"] = gathered(
        "guide",
        "Word lists",
        "guide: those of CEMS's retrieval guide; cems: the longer ones it runs with.",
    )


class QueryConfig(Section):
    """Query understanding and routing."""

    mode: Literal["vector", "hybrid", "auto"] = gathered(
        "auto",
        "Search mode",
        "vector: vector list only; hybrid: vector and lexical; auto: routed by the query's intent.",
    )
    typo_correction: TypoCorrection = TypoCorrection()
    conversational: Conversational = Conversational()
    detectors: Detectors = Detectors()
    scope: Literal["personal", "shared", "both"] = gathered(
        "both", "Scope", "Which memories are searched: personal, shared or both."
    )
    raw: bool = gathered(False, "Raw mode", "Debug: switches the relevance filter off.")


class SkipOnStrongSignal(Section):
    """The lexical probe that saves an expansion when the first hit is already clear (CEMS plan, QMD)."""

    enabled: bool = gathered(
        True,
        "Skip on strong signal",
        "Skip expansion when the lexical probe's first hit is strong and well ahead.",
    )
    threshold: float = gathered(
        0.85,
        "Signal threshold",
        "The first hit's score must reach this.",
        **within(0, 100, step=0.01, soft=(0, 10)),
        exports=cems("STRONG_SIGNAL_THRESHOLD"),
    )
    gap: float = gathered(
        0.15,
        "Signal gap",
        "The first hit must lead the second by this (second counts as 0 when there is one hit).",
        **within(0, 100, step=0.01, soft=(0, 5)),
        exports=cems("STRONG_SIGNAL_GAP"),
    )
    scale: Literal["raw", "max", "saturating"] = gathered(
        "raw",
        "Signal scale",
        "Scale of the probe's scores: raw BM25, divided by the maximum, or s/(1+s) as CEMS does today (0.85 then needs raw 5.67).",
    )


class ExpansionConfig(Section):
    """Query expansion."""

    backend: Literal["none", "manual", "dictionary", "feedback", "llm"] = gathered(
        "none",
        "Expansion",
        "Where further query variants come from.",
        exports=cems("ENABLE_QUERY_SYNTHESIS", codec="llm"),
    )
    max_expansions: int = gathered(
        3,
        "Expansions used",
        "At most this many expansions are searched.",
        **within(0, 20, step=1, soft=(0, 8)),
    )
    repeats: bool = gathered(
        False,
        "Repeated wordings",
        "A wording typed by hand that is the query or another one again is searched again, so that its hits count twice (memory agent).",
    )
    hyde: bool = gathered(False, "HyDE", "Also search with a hypothetical memory written by the LLM.")
    decompose: bool = gathered(
        False,
        "Decompose",
        "Split a compound question into sub-questions.",
        exports=cems("ENABLE_QUERY_DECOMPOSITION"),
    )
    max_decomposed: int = gathered(
        3,
        "Sub-questions used",
        "At most this many sub-questions are searched.",
        **within(0, 20, step=1, soft=(0, 8)),
        exports=cems("MAX_DECOMPOSED_QUERIES"),
    )
    profile_context: bool = gathered(
        False,
        "Profile context",
        "Preference queries: a first probe for what the user likes feeds the expansion.",
    )
    skip_on_strong_signal: SkipOnStrongSignal = SkipOnStrongSignal()
    skip_if_conversational: bool = gathered(
        False, "No expansion if conversational", "ACE: expansion hurts conversational queries."
    )
