"""Config sections that come after the ranking: adjustments, gap, dedup, the refusal to answer, assembly and the judge."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from cems_workbench.config.fields import (
    SHARE,
    WORDS,
    JudgeBands,
    Section,
    Tiers,
    above,
    cems,
    engram,
    gathered,
    mem0,
    param,
    within,
)

SupersessionMode = Annotated[
    Literal["off", "demote", "drop", "follow"],
    BeforeValidator(lambda value: "off" if value is False else value),  # YAML reads an unquoted off as false
]


class TimeDecay(Section):
    """Old memories lose score."""

    mode: Literal["none", "hyperbolic", "exponential", "linear"] = param(
        "hyperbolic",
        "Time decay",
        "hyperbolic 1/(1+age/h): half at h; exponential 0.5^(age/h); linear 1−age/(2h): half at h, 0 from 2h on.",
    )
    half_life_days: float = param(
        60, "Half-life", "Age at which the factor is one half.", **above(0, 36500, step=1, soft=(1, 365), unit="days")
    )
    clock: Literal["last_accessed", "created_at", "accessed_or_created"] = param(
        "last_accessed",
        "Decay clock",
        "Which date the age is counted from. accessed_or_created: the last access, or the creation of what was never accessed.",
    )
    whole_days: bool = param(True, "Whole days", "Floor the age to whole days, as CEMS does.")
    tiers: Tiers = param(
        (), "Half-life per category", "Half-life in days for a category; the others use the half-life above."
    )
    floor: float = param(
        0.0, "Decay floor", "Least value of the decay, 0 to 1, however old a memory is (Hindsight: 0.1).", **SHARE
    )
    future: Literal["age_0", "grows"] = param(
        "age_0",
        "Future dates",
        "A memory dated after the query's moment: age_0 counts as new, with a warning; grows: the exponential decay goes on, so that it "
        "doubles per half-life (engram).",
    )
    alpha: float | None = param(
        None,
        "Decay strength α",
        "Null: the factor is the decay itself. A number: the factor is 1 + α × (decay − 0.5), so that at 0.2 time moves a score by at most "
        "±10 % (Hindsight: 0.2); a memory without a date has factor 1.",
        **within(0, 2, step=0.05, soft=(0, 1)),
        null="the decay itself",
    )


class ProjectFactors(Section):
    """Factors by the query's project."""

    enabled: bool = param(
        True, "Project factors", "Prefer memories of the query's project.", exports=cems("ENABLE_PROJECT_PENALTY")
    )
    same: float = param(
        1.3,
        "Same project",
        "Factor for a memory of the query's project.",
        **within(0, 10, step=0.05, soft=(0.5, 2)),
        exports=cems("PROJECT_BOOST_FACTOR"),
    )
    different: float = param(
        0.8,
        "Other project",
        "Factor for a memory of another project.",
        **within(0, 10, step=0.05, soft=(0, 1.5)),
        exports=cems("PROJECT_PENALTY_FACTOR"),
    )
    untagged: float = param(
        0.9, "No project", "Factor for a memory without project.", **within(0, 10, step=0.05, soft=(0, 1.5))
    )
    match: Literal["exact", "prefix", "source_ref"] = param(
        "exact",
        "Project match",
        "prefix: as CEMS, which also boosts org/repo2 for org/repo. source_ref: the same on the source reference, "
        "“project:” + project where a memory has none.",
    )


class Feedback(Section):
    """Factor from shown-and-useful against shown-and-noise counts."""

    enabled: bool = param(False, "Feedback factor", "Use relevant and noise counts.")
    base: float = param(
        0.85, "Feedback base", "Factor when every signal was noise.", **within(0, 10, step=0.01, soft=(0, 1.5))
    )
    span: float = param(
        0.30,
        "Feedback span",
        "Added in proportion to the share of relevant signals.",
        **within(0, 10, step=0.01, soft=(0, 1)),
    )
    min_signals: int = param(
        3, "Signals needed", "With fewer signals the score does not change.", **within(1, 10_000, step=1, soft=(1, 20))
    )


class CountFactor(Section):
    """Factor from how often a memory was used or confirmed."""

    of: Literal["none", "accesses", "relevant"] = param(
        "none",
        "Count factor",
        "The factor 1 + α × (0.5 + ln(count) / 10 − 0.5), count at least 1: 1 for one use or none, 1 + 0.23 α for ten. accesses: how often "
        "the memory was returned or read. relevant: how often it was judged relevant. Hindsight counts the proofs of a fact so.",
    )
    alpha: float = param(
        0.1,
        "Count strength α",
        "Strength of the count factor (Hindsight: 0.1).",
        **within(0, 2, step=0.05, soft=(0, 1)),
    )


class AdjustConfig(Section):
    """Factors multiplied onto the score."""

    priority: bool = param(True, "Priority factor", "Multiply by the memory's priority (1.0–2.0).")
    time_decay: TimeDecay = TimeDecay()
    pinned_factor: float = param(
        1.1, "Pinned factor", "Factor for a pinned memory.", **within(0, 10, step=0.05, soft=(0.5, 2))
    )
    project: ProjectFactors = ProjectFactors()
    feedback: Feedback = Feedback()
    count: CountFactor = CountFactor()
    clamp: bool = param(True, "Clamp to 0–1", "Clamp the adjusted score; scores above 1 become ties.")
    metadata_of: Literal["memory", "version"] = param(
        "memory",
        "Metadata of",
        "Whose dates and feedback the factors read. memory: always the memory's own. version (CEMS): of a memory whose best score is "
        "that of a relation, time decay counts from its last update instead of the decay clock, and the feedback factor does not apply; "
        "what some search found best is treated as with memory.",
    )


class SupersessionConfig(Section):
    """What becomes of memories that a later one supersedes, or that have expired."""

    mode: SupersessionMode = param(
        "off",
        "Superseded memories",
        "What happens to a candidate that a later memory supersedes, by the store's edges. off: nothing. demote: it moves right below its "
        "best ranked successor, if that is ranked lower. drop: it is dropped if a successor is ranked. follow: the latest successor takes "
        "its rank and score, also if no list found it, and it is dropped.",
    )
    expired: Literal["keep", "drop"] = param(
        "keep",
        "Expired memories",
        "drop: memories that are not valid at the moment of the query, no longer or not yet, are dropped; keep: they stay.",
    )


class GapConfig(Section):
    """Drop what is far below the top."""

    ratio: float = param(
        0.0,
        "Gap ratio",
        "Drop below ratio × top score; 0 is off.",
        **within(0, 1, step=0.01),
        exports=cems("SCORE_GAP_RATIO"),
    )
    keep: int = param(
        2, "Always keep", "Keep at least this many, whatever the gap.", **within(0, 10_000, step=1, soft=(0, 20))
    )
    aggregation: bool = param(True, "For aggregation too", "Also for aggregation queries; CEMS leaves those whole.")


class DedupConfig(Section):
    """Drop near-duplicates of better ranked memories."""

    enabled: bool = param(False, "Deduplicate", "Drop a memory whose embedding is too close to a kept one.")
    similarity: float = param(
        0.90,
        "Duplicate from",
        "Cosine from which two memories count as duplicates.",
        **within(-1, 1, step=0.01, soft=(0.5, 1)),
    )


class AbstainConfig(Section):
    """Return nothing if the confidence signals say that the store has no answer; a threshold of null is off."""

    rule: Literal["any", "all"] = param(
        "any",
        "Nothing is returned when",
        "any: one of the signals with a threshold is below it; all: every one of them is. What a query has no value for does not count.",
    )
    vector: float | None = param(
        None,
        "Best vector score",
        "Least raw score of the first hit of the original query's vector list (cosine); null is off.",
        **within(-1000, 1000, step=0.01, soft=(0, 1)),
        null="off",
    )
    lexical: float | None = param(
        None,
        "Best lexical score",
        "Least raw score (BM25, before any normalisation) of the first hit of the original query's lexical list; an "
        "empty list has 0. Null is off.",
        **within(-1000, 1000, step=0.1, soft=(0, 30)),
        null="off",
    )
    reranker: float | None = param(
        None,
        "Best reranker score",
        "Least raw score that the reranker gave to one of the first candidates, as many as the result limit; null is off.",
        **within(-1000, 1000, step=0.1, soft=(-12, 12)),
        null="off",
    )
    judge: float | None = param(
        None,
        "Best judge score",
        "Least raw score that the judge gave to one of the first candidates, as many as the result limit; null is off.",
        **within(-1000, 1000, step=0.1, soft=(-12, 12)),
        null="off",
    )
    margin: float | None = param(
        None,
        "Margin",
        "Least lead of the first candidate's score over the second's (0 where there is one candidate); null is off.",
        **within(0, 100, step=0.005, soft=(0, 0.5)),
        null="off",
    )
    agreement: float | None = param(
        None,
        "Agreement of lists",
        "Least share of the first hits of the vector list that the lexical list has too; null is off.",
        **SHARE,
        null="off",
    )
    agreement_k: int = param(
        5, "Hits compared", "First hits of the vector list that the agreement is counted over.", **WORDS
    )


class AssemblyConfig(Section):
    """The results and the context text within a token budget."""

    limit: int | None = param(
        10,
        "Result limit",
        "Maximum number of results.",
        **within(1, 10_000, step=1, soft=(1, 50)),
        exports=mem0("search.top_k") + engram("scored.slice(0, …)"),
    )
    max_tokens: int | None = param(
        2000,
        "Token budget",
        "Maximum number of tokens in the context.",
        **within(0, 10_000_000, step=50, soft=(100, 8000), unit="tokens"),
        exports=cems("DEFAULT_MAX_TOKENS"),
    )
    aggregation_tokens: int = param(
        0,
        "Budget for aggregation",
        "At least this many tokens for aggregation queries; 0 leaves the budget unchanged (CEMS: 4000).",
        **within(0, 10_000_000, step=50, soft=(0, 8000), unit="tokens"),
    )
    text: Literal["memory", "version"] = param(
        "memory",
        "Text counted",
        "memory: the whole content. version: the text by which the memory scored best, its chunk or the whole (CEMS).",
    )
    strategy: Literal["auto", "greedy", "mmr"] = param(
        "auto",
        "Assembly",
        "greedy: by score; mmr: diverse, first one memory per session; auto: mmr for aggregation queries.",
    )
    mmr_lambda: float = param(
        0.6, "MMR λ", "Weight of the score; the rest goes to diversity.", **within(0, 1, step=0.01)
    )
    mmr_similarity: Literal["jaccard", "cosine"] = param(
        "jaccard",
        "MMR similarity",
        "How alike two memories are. jaccard: share of their words that both have. cosine: of their embeddings, 0 at least; a memory "
        "without one is like no other.",
    )
    mmr_procedure: Literal["guide", "cems", "plain", "one_pass"] = param(
        "guide",
        "MMR procedure",
        "guide: one memory of each session, then the rest, as selected. cems: as CEMS runs: by source reference, on min-max scores, "
        "what does not fit is passed over, results by score. plain: one selection over all candidates, without regard to sessions "
        "(engram's memory_search). one_pass: no selection: each candidate is compared with all others, chosen or not, and sorted "
        "once, so that two that agree lower each other (Graphiti).",
    )
    mmr_relevance: Literal["score", "vector"] = param(
        "score",
        "MMR relevance",
        "What λ weights. score: the score that a candidate arrives with. vector: its score in the vector list, that of a cosine of 0 "
        "without one (Graphiti).",
    )
    mmr_min_value: float | None = param(
        None,
        "Least MMR value",
        "Candidates are left out when λ × relevance − (1 − λ) × similarity is below this; null is off. At 0 memories are dropped that are "
        "more like each other than like the query (Graphiti).",
        **within(-100, 100, step=0.01, soft=(-1, 1)),
        null="off",
    )
    min_vector_score: float | None = param(
        None,
        "Vector floor",
        "Results whose score in the vector list is below this are dropped after the limit, and nobody moves up: a query may get fewer "
        "results than the limit, or none (engram: 0.25). The score is the list's own, a cosine by default; a memory without one counts as "
        "0. Null is off.",
        **within(-1000, 1000, step=0.01, soft=(0, 1)),
        null="off",
        exports=engram("MIN_VECTOR_SIM"),
    )
    token_counter: Literal["chars4", "cl100k"] = param(
        "chars4",
        "Token counter",
        "chars4: ceil(characters / 4), at least 1. cl100k: tokens of OpenAI's tokenizer, counted when evidence is gathered.",
    )


class JudgeConfig(Section):
    """Relevance judgment of the results; never changes the ranking."""

    backend: Literal["auto", "none", "cross_encoder", "llama_server", "late_interaction"] = gathered(
        "auto", "Judge", "Model that judges the results."
    )
    model: str | None = gathered(
        None, "Judge model", "Model id or path; null is the backend's default.", null="the default"
    )
    threshold: float | None = param(
        None,
        "Judge threshold",
        "Relevant above this raw score. Null is the judge's own: -10 for ms-marco models, as ACE reads them, and what was "
        "fitted to the others.",
        **within(-1000, 1000, step=0.5, soft=(-15, 15)),
        null="the judge's own",
    )
    bands: JudgeBands | None = param(
        None,
        "Judge bands",
        "Lower ends of highly relevant, relevant and weak; null is the judge's own.",
        null="the judge's own",
    )
    max_chars: int | None = gathered(
        None,
        "Judge text",
        "Characters from the start of a memory that the judge reads. Null: the part that the reranker reads, or would read were one on.",
        **within(1, 100_000, step=50, soft=(100, 4000), unit="characters"),
        null="as the reranker",
    )
