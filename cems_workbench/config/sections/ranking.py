"""Config sections that rank the candidates: threshold, fusion, filter and reranking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator

from cems_workbench import extensions
from cems_workbench.config.fields import (
    SHARE,
    AsList,
    Section,
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
from cems_workbench.config.sections.gathering import ListsConfig

LISTS = tuple(name for name, section in ListsConfig() if "weight" in getattr(type(section), "model_fields", ()))
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

    max: float = param(0.75, "Adaptive max", "First threshold tried.", **within(-100, 100, step=0.01, soft=(0, 1)))
    min: float = param(
        0.35,
        "Adaptive min",
        "Last threshold tried; with exact steps always tried.",
        **within(-100, 100, step=0.01, soft=(0, 1)),
    )
    step: float = param(
        0.05, "Adaptive step", "Distance between thresholds.", **within(0.001, 100, step=0.01, soft=(0.01, 0.5))
    )
    steps: Literal["exact", "float"] = param(
        "exact",
        "Adaptive steps",
        "exact: max − i × step, rounded to ten digits, and min itself at last. float (memory agent): the step is subtracted in floating "
        "point, at most int((max − min) / step) + 1 times, so that 0.95 by 0.05 ends at 0.39999999999999963 and 0.35 is never tried.",
    )
    target_ratio: float = param(
        0.8,
        "Target ratio",
        "Stop at the first threshold with int(limit × ratio) distinct memories.",
        **within(0, 10, step=0.05, soft=(0, 2)),
    )


class ThresholdConfig(Section):
    """Similarity threshold on the lists, before fusion."""

    mode: Literal["none", "fixed", "adaptive"] = param(
        "none", "Threshold", "none, one fixed cut, or the first of falling cuts that finds enough."
    )
    fixed: float = param(
        0.6,
        "Fixed threshold",
        "Hits with a list score below this are cut; 0.0 means 0.0. It speaks the scale of each list that it applies to, after that list's "
        "normalisation.",
        **within(-100, 100, step=0.01, soft=(0, 1)),
        exports=mem0("search.threshold", codec="mem0_threshold", low=0, high=1),
    )
    adaptive: Adaptive = Adaptive()
    applies_to: Sources = param(("vector", "lexical"), "Applies to", "Lists that are cut; the others pass whole.")


class TopRankBonus(Section):
    """Bonus for the first ranks of a list (QMD)."""

    rank1: float = param(
        0.05,
        "Bonus rank 1",
        "Added for rank 1; not weighted.",
        **within(0, 10, step=0.005, soft=(0, 0.2)),
        exports=cems("RRF_TOP_RANK_BONUS_R1"),
    )
    rank2_3: float = param(
        0.02,
        "Bonus ranks 2–3",
        "Added for ranks 2 and 3; not weighted.",
        **within(0, 10, step=0.005, soft=(0, 0.2)),
        exports=cems("RRF_TOP_RANK_BONUS_R23"),
    )
    mode: Literal["per_list", "best_rank"] = param(
        "per_list", "Bonus mode", "per_list: in every list (CEMS); best_rank: once, by the best rank (QMD)."
    )


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

    method: FusionMethodName = param("rrf", "Fusion method", _method_help())
    k: WholeOrFraction = param(
        60,
        "RRF k",
        "Larger k flattens the difference between ranks. Any number from 0 (Graphiti: 0, Qdrant: 1 or 2, most others: 60).",
        **within(0, 10_000, step=1, soft=(1, 200)),
        by_ones=True,
        exports=engram("K"),
    )
    rank_base: Literal[1, 0] = param(
        1,
        "Ranks from",
        "Rank of a list's first hit in k + rank: 1 (the paper), or 0, as where positions of an array are summed (LlamaIndex, Qdrant).",
    )
    top_rank_bonus: TopRankBonus = TopRankBonus()
    multi_list_boost: float = param(
        0.0,
        "Multi-list boost",
        "Score × (1 + boost × (lists containing it − 1)).",
        **within(0, 10, step=0.01, soft=(0, 1)),
    )
    importance_bonus_ranks: int = param(
        0,
        "Importance bonus",
        "High importance adds 1/(k+1) − 1/(k+1+ranks); 0 is off.",
        **within(0, 10_000, step=1, soft=(0, 50), unit="ranks"),
        exports=engram("bonus of importance high, 1.0 / (K + 1) - 1.0 / (K + …)", codec="bonus_constant"),
    )
    normalize: Literal["minmax", "none"] = param(
        "minmax", "Normalise fused", "minmax over the candidates (all equal → 1.0), or none."
    )
    score_blend: float = param(
        0.5, "Score blend", "Share of the best vector/lexical list score in the fused score.", **within(0, 1, step=0.01)
    )
    blend_with: Literal["searched", "all"] = param(
        "searched",
        "Blend with the best of",
        "searched: lists of the query's variants; all: relations too, whose strength then counts as a score (CEMS).",
    )
    single_list: Literal["fuse", "bypass", "bypass_searched"] = param(
        "fuse",
        "Single list",
        "bypass: with one non-empty list, keep its scores and order (ACE). bypass_searched: only when no other was searched, even "
        "in vain (CEMS).",
    )
    candidates_from: Sources = param(
        (),
        "Candidates from",
        "Lists whose hits may become results; hits of the others only add to the scores of those. None chosen: every list (mem0: the vector "
        "list alone, so that a keyword hit outside it cannot enter).",
    )
    divisor: Literal["none", "active_lists"] = param(
        "none",
        "Divisor",
        "active_lists divides every score of a query by the sum of the weights of its lists that have a hit, of any memory (mem0: one "
        "keyword hit halves all scores). The order stays, what a minimum score lets through does not.",
    )
    cap: float | None = param(
        None,
        "Score cap",
        "Largest fused score before it is normalised; candidates that reach it are equal (mem0: 1).",
        **within(0, 100, step=0.05, soft=(0, 2)),
        null="no cap",
        on=1.0,
    )
    importance_floor: float | None = param(
        None,
        "Importance floor",
        "A memory of high importance gets at least this from the lists that measure relevance together, all but recency and access (engram's "
        "memory_recall: 0.15, of its relevance of 0.3 at a weight of 0.5).",
        **within(0, 100, step=0.01, soft=(0, 1)),
        null="none",
        on=0.15,
    )
    tie_break: Literal["id", "first_seen", "newest"] = param(
        "id",
        "Equal scores",
        "id: by memory id; first_seen: by list, then place in it, and stable from then on (CEMS); newest: by date of creation, the newest "
        "first, then by id downwards, and stable from then on (the memory agent's messages).",
    )
    seen_first: SeenFirst = param(
        "as_listed",
        "List read first",
        "Of equal scores under first_seen, those of this list come first, then those of the others. as_listed: in the order in which lists "
        "are shown, vector first (Graphiti reads its full-text list first).",
    )


class FilterConfig(Section):
    """Relevance filter on the fused score."""

    min_score: float | None = param(
        0.005,
        "Minimum score",
        "Candidates below this are dropped; null is off.",
        **within(-100, 100, step=0.005, soft=(0, 1)),
        exports=cems("RELEVANCE_THRESHOLD", low=0, high=1, null=0),
    )
    percentile: float = param(
        0, "Percentile", "Then drops candidates below this percentile of the rest; 0 is off.", **within(0, 100, step=1)
    )


class Band(Section):
    """Share of the retrieval score up to a rank before reranking; `max_rank` null is the rest."""

    max_rank: int | None = param(None, "Up to rank", "Last rank before reranking that this band covers.", ge=1)
    retrieval: float = param(
        0.5, "Retrieval share", "Share of the retrieval score; the reranker has the rest.", **within(0, 1, step=0.01)
    )


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
        None,
        "Brief above",
        "Where a quarter of the candidates are longer than so many characters, a reranker reads in brief: of each the one passage with most of "
        "the query's words, the question before it only with what fits whole, and in their order until the characters in all.",
        **within(1, 1_000_000, step=50, soft=(100, 3000), unit="characters"),
        null="never",
        on=500,
    )
    chunk_chars: int = gathered(
        600,
        "Brief chunk size",
        "In brief, characters of a memory that are sent: all of it where it fits, otherwise one passage.",
        **within(1, 100_000, step=10, soft=(50, 2000), unit="characters"),
    )
    total_chars: int = param(
        10_000,
        "Brief characters in all",
        "In brief, candidates are reranked in their order until what is read of them comes to so many characters; the others are below the "
        "rerank depth. A pair costs by its length, so that this bounds what a query costs.",
        cost="deepen",
        **within(1, 10_000_000, step=500, soft=(1000, 50_000), unit="characters"),
    )


class RerankConfig(Section):
    """Second opinion of a model on the first candidates."""

    backend: RerankBackend = gathered(
        "none",
        "Reranker",
        "Model that scores query and memory together.",
        exports=planned("RERANKER_BACKEND", codec="cems_backend")
        + agent("ENABLED", codec="llama_server")
        + mem0("search.rerank", codec="mem0_rerank"),
    )
    model: str | None = gathered(
        None,
        "Reranker model",
        "Model id or path; null is the backend's default.",
        null="the default",
        exports=planned("RERANKER_MODEL") + agent("MODEL") + mem0("config.reranker.config.model"),
    )
    instruction: str = gathered(
        "Given a query, retrieve relevant facts that answer the query",
        "Instruction",
        "Task given to an instructed reranker.",
        exports=agent("INSTRUCTION"),
    )
    query: str | None = gathered(
        None,
        "Rerank query",
        "Score against another query than the one searched; null is the query.",
        null="the query",
    )
    oversample_factor: float = gathered(
        1.0,
        "Oversample",
        "List depth is at least this × result limit (memory agent: 3.0).",
        **within(0, 100, step=0.5, soft=(1, 10)),
        exports=agent("OVERSAMPLE"),
    )
    skip_if_few: bool = param(
        False, "Skip if few", "Do not rerank when there are no more candidates than the result limit."
    )
    max_concurrent: int = gathered(
        10,
        "Concurrent requests",
        "Requests in flight to a model server.",
        **within(1, 256, step=1, soft=(1, 32)),
        exports=agent("MAX_CONCURRENT"),
    )
    timeout_s: float = gathered(
        30,
        "Timeout",
        "Per request to a model server.",
        **above(0, 3600, step=1, soft=(1, 120), unit="s"),
        exports=agent("TIMEOUT"),
    )
    depth: int | None = param(
        40,
        "Rerank depth",
        "Candidates that are reranked.",
        cost="deepen",
        **within(1, 10_000, step=1, soft=(1, 150)),
        exports=planned("RERANK_INPUT_LIMIT"),
    )
    score_window: float = param(
        1.0,
        "Score window",
        "Only candidates whose score is at most this share below the first's are reranked; 1 reranks all down to the rerank depth.",
        cost="deepen",
        **SHARE,
    )
    expected_misses: float | None = param(
        None,
        "Expected misses",
        "Reading ends once fewer than this many unread candidates are expected among the results, by the scores of those read and how similar "
        "memories are; the rest is “not read: could not enter”. 0.15 leaves the first ten as they were for 95 % of the sample’s queries.",
        **above(0, 10, step=0.05, soft=(0.05, 2)),
        null="read all",
        on=0.15,
    )
    read_step: int = param(
        4,
        "Read at a time",
        "With expected misses, candidates that are read before it is decided again; a model server with concurrent requests wants more.",
        **within(1, 1000, step=1, soft=(1, 32)),
    )
    position: Literal["before_adjust", "returned"] = param(
        "before_adjust",
        "Reranker’s place",
        "before_adjust: the reranker reads the first candidates after the filter, and adjust, gap and dedup work on its order (CEMS, QMD). "
        "returned: it reads only what would be returned, after dedup and cut to the result limit, so that it can reorder the results but "
        "bring nothing in (ACE, mem0). The rest is dropped, and one candidate alone is not read.",
    )
    below_depth: Literal["drop", "below"] = param(
        "drop", "Below the rerank depth", "Candidates that are not reranked: drop, or keep them below the reranked."
    )
    chunk_chars: int = gathered(
        300,
        "Chunk size",
        "Characters of a memory that are sent.",
        **within(1, 100_000, step=10, soft=(50, 2000), unit="characters"),
        exports=planned("RERANK_CHUNK_SIZE"),
    )
    text_source: Literal["memory", "chunk"] = gathered(
        "memory",
        "Text source",
        "memory: the text sent is chosen from the whole memory. chunk: from its highest-ranked chunk. Memories that are indexed whole are the "
        "same under both.",
    )
    chunk_selection: Literal["seed_overlap", "term_overlap", "head", "passages"] = gathered(
        "seed_overlap",
        "Chunk choice",
        "seed_overlap: as the CEMS plan (substring counts); term_overlap: stemmed words; head: the beginning; passages: the whole text where "
        "it fits, else several parts of it, of which the best score counts.",
    )
    passages: int | None = gathered(
        3,
        "Passages",
        "With chunk choice passages, the number of parts of a long memory that are scored, those with most of the query's words; null: all.",
        **within(1, 1000, step=1, soft=(1, 10)),
    )
    prepend_question: bool = gathered(
        False,
        "Prepend question",
        "If the memory before it in its session ends with a question, a memory is scored a second time with that question in front; the better "
        "score counts.",
    )
    question_for: Literal["every", "whole"] = gathered(
        "every",
        "Question read with",
        "With prepend question, what is scored with the question a second time: every memory that follows one, a long one by its first part; "
        "or whole: only what fits into the chunk size. A long turn that answers says itself what it is about.",
    )
    brief: Brief = Brief()
    text_fields: TextFields = gathered(
        (),
        "Fields read with it",
        "What a reranker reads of a memory besides its text: the title before it, as “title. text”, and lines “field: value” (Hindsight: date "
        "and context). None chosen: the text alone.",
    )
    raw_scale: Literal["divide_by_10", "sigmoid", "sigmoid_outside_unit", "minmax", "identity", "raw"] = param(
        "divide_by_10",
        "Raw → unit",
        "How the model's score becomes 0–1; a logit needs sigmoid. sigmoid_outside_unit: only if a score of the query lies outside 0–1 (Hindsight). "
        "raw: it stays as it is, below 0 and above 1 too, which fits where it replaces the score (ACE).",
    )
    combine: Literal["position_bands", "replace"] = param(
        "position_bands",
        "Combine",
        "position_bands: blend with the retrieval score by rank; replace: the reranker alone.",
    )
    bands: Bands = param(
        (Band(max_rank=3, retrieval=0.75), Band(max_rank=10, retrieval=0.60), Band(max_rank=None, retrieval=0.40)),
        "Bands",
        "Share of retrieval by the rank before reranking.",
        exports=planned("RERANK_TOP3_RETRIEVAL_WEIGHT", codec="band", place=0)
        + planned("RERANK_TOP10_RETRIEVAL_WEIGHT", codec="band", place=1)
        + planned("RERANK_REST_RETRIEVAL_WEIGHT", codec="band", place=2),
    )
    retrieval_score: Literal["rrf", "inverse_rank", "normalized_rrf", "fused"] = param(
        "rrf",
        "Retrieval score",
        "rrf 1/(k+r) inverts the bands; inverse_rank 1/r makes rank 1 unbeatable; normalized_rrf (k+1)/(k+r); fused.",
    )
    on_error: Literal["neutral", "drop"] = param(
        "neutral", "On error", "A failed score becomes neutral, or the candidate is dropped. Both are flagged."
    )
    neutral_unit: float = param(0.5, "Neutral score", "Unit score of a failed candidate.", **within(0, 1, step=0.01))
