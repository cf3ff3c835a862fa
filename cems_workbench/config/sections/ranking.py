"""Config sections from threshold to judge: what ranks the candidates, drops some of them, and assembles and judges the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator

from cems_workbench import extensions
from cems_workbench.config.fields import (
    SHARE,
    WORDS,
    AsList,
    JudgeBands,
    Section,
    Tiers,
    WholeOrFraction,
    above,
    agent,
    as_tuple,
    cems,
    engram,
    gathered,
    mem0,
    param,
    planned,
    within,
)
from cems_workbench.config.sections.gathering import ADDED_LISTS, OUR_LISTS

LISTS = (*OUR_LISTS, *ADDED_LISTS)
"""The sections of `lists` that are a list: those with a weight."""

if TYPE_CHECKING:
    ListName = str
    SeenFirst = str
else:
    ListName = Literal[LISTS]
    SeenFirst = Literal["as_listed", *LISTS]
TextFields = Annotated[
    tuple[
        Literal["title", "category", "project", "author", "session", "tags", "importance", "scope", "created_at"], ...
    ],
    BeforeValidator(as_tuple),
    AsList,
]
"""Fields of a memory that a reranker may read, in the order in which it reads them; the title is always last."""
Sources = Annotated[tuple[ListName, ...], BeforeValidator(as_tuple), AsList]
"""Lists by the names of their sections."""


class Adaptive(Section):
    """The thresholds tried, from max down to min (memory agent)."""

    max: float = param(0.75, **within(-100, 100, step=0.01, soft=(0, 1)))
    min: float = param(0.35, **within(-100, 100, step=0.01, soft=(0, 1)))
    step: float = param(0.05, **within(0.001, 100, step=0.01, soft=(0.01, 0.5)))
    steps: Literal["exact", "float"] = param("exact")
    target_ratio: float = param(0.8, **within(0, 10, step=0.05, soft=(0, 2)))


class ThresholdConfig(Section):
    """Similarity threshold on the lists, before fusion."""

    mode: Literal["none", "fixed", "adaptive"] = param("none")
    fixed: float = param(
        0.6,
        **within(-100, 100, step=0.01, soft=(0, 1)),
        exports=mem0("search.threshold", codec="mem0_threshold", low=0, high=1),
    )
    adaptive: Adaptive = Adaptive()
    applies_to: Sources = param(("vector", "lexical"))


class TopRankBonus(Section):
    """Bonus for the first ranks of a list (QMD)."""

    rank1: float = param(0.05, **within(0, 10, step=0.005, soft=(0, 0.2)), exports=cems("RRF_TOP_RANK_BONUS_R1"))
    rank2_3: float = param(0.02, **within(0, 10, step=0.005, soft=(0, 0.2)), exports=cems("RRF_TOP_RANK_BONUS_R23"))
    mode: Literal["per_list", "best_rank"] = param("per_list")


FUSION_METHOD_MODULES = "cems_workbench.pipeline.fusion_methods"
FUSION_METHODS = extensions.names(extensions.FUSION_METHODS, FUSION_METHOD_MODULES, first=("rrf", "combsum", "combmax"))
"""Allowed values of `fusion.method`: our methods, then those of other packages."""

if TYPE_CHECKING:
    FusionMethodName = str
else:
    FusionMethodName = Literal[FUSION_METHODS]


def _method_help() -> str:
    """ "rrf: Σ weight/(k+rank); combsum: Σ weight·score.": what each of our modules says after its name."""
    summaries = extensions.summaries(FUSION_METHOD_MODULES)
    formulas = [
        f"{name}: {summaries[name].partition(': ')[2].rstrip('.')}" for name in FUSION_METHODS if name in summaries
    ]
    return "; ".join(formulas) + "."


class FusionConfig(Section):
    """How the lists become one score."""

    method: FusionMethodName = param("rrf", help=_method_help())
    k: WholeOrFraction = param(60, **within(0, 10_000, step=1, soft=(1, 200)), by_ones=True, exports=engram("K"))
    rank_base: Literal[1, 0] = param(1)
    top_rank_bonus: TopRankBonus = TopRankBonus()
    multi_list_boost: float = param(0.0, **within(0, 10, step=0.01, soft=(0, 1)))
    importance_bonus_ranks: int = param(
        0,
        **within(0, 10_000, step=1, soft=(0, 50), unit="ranks"),
        exports=engram("bonus of importance high, 1.0 / (K + 1) - 1.0 / (K + …)", codec="bonus_constant"),
    )
    normalize: Literal["minmax", "none"] = param("minmax")
    score_blend: float = param(0.5, **within(0, 1, step=0.01))
    blend_with: Literal["searched", "all"] = param("searched")
    single_list: Literal["fuse", "bypass", "bypass_searched"] = param("fuse")
    candidates_from: Sources = param(())
    divisor: Literal["none", "active_lists"] = param("none")
    cap: float | None = param(None, **within(0, 100, step=0.05, soft=(0, 2)), null="no cap", on=1.0)
    importance_floor: float | None = param(None, **within(0, 100, step=0.01, soft=(0, 1)), null="none", on=0.15)
    tie_break: Literal["id", "first_seen", "newest"] = param("id")
    seen_first: SeenFirst = param("as_listed")


class FilterConfig(Section):
    """Relevance filter on the fused score."""

    min_score: float | None = param(
        0.005, **within(-100, 100, step=0.005, soft=(0, 1)), exports=cems("RELEVANCE_THRESHOLD", low=0, high=1, null=0)
    )
    percentile: float = param(0, **within(0, 100, step=1))


class Band(Section):
    """Share of the retrieval score up to a rank before reranking; `max_rank` null is the rest."""

    max_rank: int | None = param(None, ge=1)
    retrieval: float = param(0.5, **within(0, 1, step=0.01))


Bands = Annotated[tuple[Band, ...], BeforeValidator(as_tuple), AsList]
RERANKERS = extensions.names(
    extensions.RERANKERS,
    "cems_workbench.pipeline.rerankers",
    first=("late_interaction", "cross_encoder", "ollama", "llama_server", "llm"),
)
"""Values of `rerank.backend` other than none: our rerankers, the least demanding first, then those of other packages."""

if TYPE_CHECKING:
    RerankBackend = str
else:
    RerankBackend = Literal["none", *RERANKERS]


class Brief(Section):
    """Where many candidates are long, one short passage is read of the first few."""

    long_chars: int | None = gathered(
        None, **within(1, 1_000_000, step=50, soft=(100, 3000), unit="characters"), null="never", on=500
    )
    chunk_chars: int = gathered(600, **within(1, 100_000, step=10, soft=(50, 2000), unit="characters"))
    total_chars: int = param(
        10_000, cost="deepen", **within(1, 10_000_000, step=500, soft=(1000, 50_000), unit="characters")
    )


class RerankConfig(Section):
    """Second opinion of a model on the first candidates."""

    backend: RerankBackend = gathered(
        "none",
        exports=planned("RERANKER_BACKEND", codec="cems_backend")
        + agent("ENABLED", codec="llama_server")
        + mem0("search.rerank", codec="mem0_rerank"),
    )
    model: str | None = gathered(
        None,
        null="the default",
        exports=planned("RERANKER_MODEL") + agent("MODEL") + mem0("config.reranker.config.model"),
    )
    instruction: str = gathered(
        "Given a query, retrieve relevant facts that answer the query", exports=agent("INSTRUCTION")
    )
    query: str | None = gathered(None, null="the query")
    oversample_factor: float = gathered(1.0, **within(0, 100, step=0.5, soft=(1, 10)), exports=agent("OVERSAMPLE"))
    skip_if_few: bool = param(False)
    max_concurrent: int = gathered(10, **within(1, 256, step=1, soft=(1, 32)), exports=agent("MAX_CONCURRENT"))
    timeout_s: float = gathered(30, **above(0, 3600, step=1, soft=(1, 120), unit="s"), exports=agent("TIMEOUT"))
    depth: int | None = param(
        40, cost="deepen", **within(1, 10_000, step=1, soft=(1, 150)), exports=planned("RERANK_INPUT_LIMIT")
    )
    score_window: float = param(1.0, cost="deepen", **SHARE)
    expected_misses: float | None = param(None, **above(0, 10, step=0.05, soft=(0.05, 2)), null="read all", on=0.15)
    read_step: int = param(4, **within(1, 1000, step=1, soft=(1, 32)))
    position: Literal["before_adjust", "returned"] = param("before_adjust")
    below_depth: Literal["drop", "below"] = param("drop")
    chunk_chars: int = gathered(
        300, **within(1, 100_000, step=10, soft=(50, 2000), unit="characters"), exports=planned("RERANK_CHUNK_SIZE")
    )
    text_source: Literal["memory", "chunk"] = gathered("memory")
    chunk_selection: Literal["seed_overlap", "term_overlap", "head", "passages"] = gathered("seed_overlap")
    passages: int | None = gathered(3, **within(1, 1000, step=1, soft=(1, 10)))
    prepend_question: bool = gathered(False)
    question_for: Literal["every", "whole"] = gathered("every")
    brief: Brief = Brief()
    text_fields: TextFields = gathered(())
    raw_scale: Literal["divide_by_10", "sigmoid", "sigmoid_outside_unit", "minmax", "identity", "raw"] = param(
        "divide_by_10"
    )
    combine: Literal["position_bands", "replace"] = param("position_bands")
    bands: Bands = param(
        (Band(max_rank=3, retrieval=0.75), Band(max_rank=10, retrieval=0.60), Band(max_rank=None, retrieval=0.40)),
        exports=planned("RERANK_TOP3_RETRIEVAL_WEIGHT", codec="band", place=0)
        + planned("RERANK_TOP10_RETRIEVAL_WEIGHT", codec="band", place=1)
        + planned("RERANK_REST_RETRIEVAL_WEIGHT", codec="band", place=2),
    )
    retrieval_score: Literal["rrf", "inverse_rank", "normalized_rrf", "fused"] = param("rrf")
    on_error: Literal["neutral", "drop"] = param("neutral")
    neutral_unit: float = param(0.5, **within(0, 1, step=0.01))


SupersessionMode = Annotated[
    Literal["off", "demote", "drop", "follow"],
    BeforeValidator(lambda value: "off" if value is False else value),  # YAML reads an unquoted off as false
]


class TimeDecay(Section):
    """Old memories lose score."""

    mode: Literal["none", "hyperbolic", "exponential", "linear"] = param("hyperbolic")
    half_life_days: float = param(60, **above(0, 36500, step=1, soft=(1, 365), unit="days"))
    clock: Literal["last_accessed", "created_at", "accessed_or_created"] = param("last_accessed")
    whole_days: bool = param(True)
    tiers: Tiers = param(())
    floor: float = param(0.0, **SHARE)
    future: Literal["age_0", "grows"] = param("age_0")
    alpha: float | None = param(None, **within(0, 2, step=0.05, soft=(0, 1)), null="the decay itself")


class ProjectFactors(Section):
    """Factors by the query's project."""

    enabled: bool = param(True, exports=cems("ENABLE_PROJECT_PENALTY"))
    same: float = param(1.3, **within(0, 10, step=0.05, soft=(0.5, 2)), exports=cems("PROJECT_BOOST_FACTOR"))
    different: float = param(0.8, **within(0, 10, step=0.05, soft=(0, 1.5)), exports=cems("PROJECT_PENALTY_FACTOR"))
    untagged: float = param(0.9, **within(0, 10, step=0.05, soft=(0, 1.5)))
    match: Literal["exact", "prefix", "source_ref"] = param("exact")


class Feedback(Section):
    """Factor from shown-and-useful against shown-and-noise counts."""

    enabled: bool = param(False)
    base: float = param(0.85, **within(0, 10, step=0.01, soft=(0, 1.5)))
    span: float = param(0.30, **within(0, 10, step=0.01, soft=(0, 1)))
    min_signals: int = param(3, **within(1, 10_000, step=1, soft=(1, 20)))


class CountFactor(Section):
    """Factor from how often a memory was used or confirmed."""

    of: Literal["none", "accesses", "relevant"] = param("none")
    alpha: float = param(0.1, **within(0, 2, step=0.05, soft=(0, 1)))


class AdjustConfig(Section):
    """Factors multiplied onto the score."""

    priority: bool = param(True)
    time_decay: TimeDecay = TimeDecay()
    pinned_factor: float = param(1.1, **within(0, 10, step=0.05, soft=(0.5, 2)))
    project: ProjectFactors = ProjectFactors()
    feedback: Feedback = Feedback()
    count: CountFactor = CountFactor()
    clamp: bool = param(True)
    metadata_of: Literal["memory", "version"] = param("memory")


class SupersessionConfig(Section):
    """What becomes of memories that a later one supersedes, or that have expired."""

    mode: SupersessionMode = param("off")
    expired: Literal["keep", "drop"] = param("keep")


class GapConfig(Section):
    """Drop what is far below the top."""

    ratio: float = param(0.0, **within(0, 1, step=0.01), exports=cems("SCORE_GAP_RATIO"))
    keep: int = param(2, **within(0, 10_000, step=1, soft=(0, 20)))
    aggregation: bool = param(True)


class DedupConfig(Section):
    """Drop near-duplicates of better ranked memories."""

    enabled: bool = param(False)
    similarity: float = param(0.90, **within(-1, 1, step=0.01, soft=(0.5, 1)))


class AbstainConfig(Section):
    """Return nothing if the confidence signals say that the store has no answer; a threshold of null is off."""

    rule: Literal["any", "all"] = param("any")
    vector: float | None = param(None, **within(-1000, 1000, step=0.01, soft=(0, 1)), null="off")
    lexical: float | None = param(None, **within(-1000, 1000, step=0.1, soft=(0, 30)), null="off")
    reranker: float | None = param(None, **within(-1000, 1000, step=0.1, soft=(-12, 12)), null="off")
    judge: float | None = param(None, **within(-1000, 1000, step=0.1, soft=(-12, 12)), null="off")
    margin: float | None = param(None, **within(0, 100, step=0.005, soft=(0, 0.5)), null="off")
    agreement: float | None = param(None, **SHARE, null="off")
    agreement_k: int = param(5, **WORDS)


class AssemblyConfig(Section):
    """The results and the context text within a token budget."""

    limit: int | None = param(
        10, **within(1, 10_000, step=1, soft=(1, 50)), exports=mem0("search.top_k") + engram("scored.slice(0, …)")
    )
    max_tokens: int | None = param(
        2000, **within(0, 10_000_000, step=50, soft=(100, 8000), unit="tokens"), exports=cems("DEFAULT_MAX_TOKENS")
    )
    aggregation_tokens: int = param(0, **within(0, 10_000_000, step=50, soft=(0, 8000), unit="tokens"))
    text: Literal["memory", "version"] = param("memory")
    strategy: Literal["auto", "greedy", "mmr"] = param("auto")
    mmr_lambda: float = param(0.6, **within(0, 1, step=0.01))
    mmr_similarity: Literal["jaccard", "cosine"] = param("jaccard")
    mmr_procedure: Literal["guide", "cems", "plain", "one_pass"] = param("guide")
    mmr_relevance: Literal["score", "vector"] = param("score")
    mmr_min_value: float | None = param(None, **within(-100, 100, step=0.01, soft=(-1, 1)), null="off")
    min_vector_score: float | None = param(
        None, **within(-1000, 1000, step=0.01, soft=(0, 1)), null="off", exports=engram("MIN_VECTOR_SIM")
    )
    token_counter: Literal["chars4", "cl100k"] = param("chars4")


class JudgeConfig(Section):
    """Relevance judgment of the results; never changes the ranking."""

    backend: Literal["auto", "none", "cross_encoder", "llama_server", "late_interaction"] = gathered("auto")
    model: str | None = gathered(None, null="the default")
    threshold: float | None = param(None, **within(-1000, 1000, step=0.5, soft=(-15, 15)), null="the judge's own")
    bands: JudgeBands | None = param(None, null="the judge's own")
    max_chars: int | None = gathered(
        None, **within(1, 100_000, step=50, soft=(100, 4000), unit="characters"), null="as the reranker"
    )
