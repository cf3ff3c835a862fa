"""Config sections: what is searched, how deep, what each list weighs, and what ranks, drops, assembles and judges the candidates.

An added retriever, a module of `pipeline/retrievers` or of another package, has a section `lists.<name>` like any other,
with the parameters that every added list has. Only its name is needed for that; its code is loaded when it is searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, create_model

from cems_workbench import extensions
from cems_workbench.config.fields import (
    BOOST,
    DEPTH,
    FACTOR,
    FACTOR_OR_0,
    FEW,
    SHARE,
    WEIGHT,
    WORDS,
    AsList,
    JudgeBands,
    Section,
    Tiers,
    WholeOrFraction,
    above,
    as_tuple,
    gathered,
    param,
    within,
)

Ties = Literal["ordinal", "dense", "competition"]
Normalization = Literal["none", "max", "minmax", "saturating", "logistic"]
BY_LANGUAGE = "language"
"""The stems, or the stop words, of the store's language."""


class TypoCorrection(Section):
    """Correction against the store's own terms (ACE)."""

    enabled: bool = gathered(False)
    similarity_threshold: float = gathered(0.80, **within(0, 1, step=0.01))
    auto_learn: bool = gathered(True)
    validate_: bool = gathered(True, alias="validate")
    max_learned: int = gathered(1000, **within(0, 1_000_000, step=50, soft=(0, 5000)))


class Conversational(Section):
    """Detection of vague, stopword-heavy queries (ACE)."""

    enabled: bool = gathered(False)
    max_domain_signal: float = gathered(0.15, **within(0, 1, step=0.01))
    min_stopword_ratio: float = gathered(0.40, **within(0, 1, step=0.01))


class Detectors(Section):
    """Preference, temporal and aggregation signals in the query's words (CEMS)."""

    enabled: bool = gathered(True)
    matching: Literal["substring", "word"] = gathered("substring")
    words: Literal["guide", "cems"] = gathered("guide")


class QueryConfig(Section):
    """Query understanding and routing."""

    mode: Literal["vector", "hybrid", "auto"] = gathered("auto")
    typo_correction: TypoCorrection = TypoCorrection()
    conversational: Conversational = Conversational()
    detectors: Detectors = Detectors()
    scope: Literal["personal", "shared", "both"] = gathered("both")
    author: str | None = gathered(None, null="everybody")
    raw: bool = gathered(False)


class SkipOnStrongSignal(Section):
    """The lexical probe that saves an expansion when the first hit is already clear (CEMS plan, QMD)."""

    enabled: bool = gathered(True)
    threshold: float = gathered(0.85, **within(0, 100, step=0.01, soft=(0, 10)))
    gap: float = gathered(0.15, **within(0, 100, step=0.01, soft=(0, 5)))
    scale: Literal["raw", "max", "saturating"] = gathered("raw")


class ExpansionConfig(Section):
    """Query expansion."""

    backend: Literal["none", "manual", "dictionary", "feedback", "llm"] = gathered("none")
    max_expansions: int = gathered(3, **within(0, 20, step=1, soft=(0, 8)))
    repeats: bool = gathered(False)
    hyde: bool = gathered(False)
    decompose: bool = gathered(False)
    max_decomposed: int = gathered(3, **within(0, 20, step=1, soft=(0, 8)))
    profile_context: bool = gathered(False)
    skip_on_strong_signal: SkipOnStrongSignal = SkipOnStrongSignal()
    skip_if_conversational: bool = gathered(False)


class VectorList(Section):
    """Nearest memories by embedding cosine."""

    enabled: bool = param(True)
    depth: int | None = param(150, **DEPTH)
    weight: float = param(1.0, **WEIGHT)
    ties: Ties = param("ordinal")
    first_stage_factor: int = param(1, **FACTOR)
    text: Literal["indexed", "content", "object", "plain_text", "fact"] = gathered("indexed")
    index: Literal["exact", "graph"] = gathered("exact")
    ef_search: int | None = gathered(None, **within(1, 10_000, step=10, soft=(10, 1000)), null="the collection's own")
    scale: Literal["cosine", "half_cosine", "inverse_l2", "negative_distance", "squared_l2"] = param("cosine")
    normalization: Normalization = param("none")


class LexicalList(Section):
    """BM25 hits."""

    enabled: bool = param(True)
    depth: int | None = param(50, **DEPTH)
    weight: float = param(1.0, **WEIGHT)
    ties: Ties = param("ordinal")
    first_stage_factor: int = param(1, **FACTOR)
    normalization: Normalization = param("max")
    k1: float = gathered(1.5, **within(0, 100, step=0.1, soft=(0, 3)))
    b: float = gathered(0.75, **SHARE)
    stemming: Literal["language", "none"] = gathered(BY_LANGUAGE)
    stop_words: str = gathered(BY_LANGUAGE)
    skip_if_conversational: bool = gathered(False)


class HybridList(Section):
    """A list that is itself the weighted RRF of two lists of chunks, by meaning and by ts_rank (CEMS's "vector" list)."""

    enabled: bool = param(False, cost="deepen")
    depth: int = param(150, **DEPTH)
    weight: float = param(1.0, **WEIGHT)
    ties: Ties = param("ordinal")
    vector_weight: float = param(0.4, **SHARE)
    k: int = param(60, **within(0, 10_000, step=1, soft=(1, 200)))
    inner_factor: float = param(4.0, cost="deepen", **within(0.01, 100, step=0.5, soft=(1, 8)))
    pool_factor: float = param(2.0, **within(0.01, 100, step=0.5, soft=(1, 4)))
    index_rows: int | None = param(None, **within(1, 10_000, step=5, soft=(5, 600)), null="exact")
    aggregation_factor: float = param(1.0, cost="deepen", **within(1, 10, step=0.5, soft=(1, 4)))


class TsRankList(Section):
    """Chunks by PostgreSQL's ts_rank of any of the query's words."""

    enabled: bool = param(False, cost="deepen")
    depth: int = param(50, **DEPTH)
    first_stage_factor: int = param(0, **FACTOR_OR_0)
    chunk_depth: int = param(100, cost="deepen", **within(1, 100_000, step=5, soft=(5, 600)))
    weight: float = param(1.0, **WEIGHT)
    ties: Ties = param("ordinal")
    normalization: Normalization = param("max")


class DeepList(Section):
    """A list with a depth that the result limit may raise."""

    list_title: ClassVar[str]
    """What its labels call it: {title} in `parameters.json`."""

    enabled: bool = param(False)
    depth: int | None = param(50, **DEPTH)
    first_stage_factor: int = param(0, **FACTOR_OR_0)
    weight: float = param(1.0, **WEIGHT)
    ties: Ties = param("ordinal")
    normalization: Normalization = param("none")


class EngineList(DeepList):
    """The list of a lexical engine (`pipeline/lexical_engines`): every subclass in `ListsConfig` is one."""

    enabled: bool = gathered(False)
    first_stage_factor: int = param(1, **FACTOR)


class Fts5Columns(Section):
    """Columns of the FTS5 table with their bm25 weights."""

    text: float = gathered(1.0, **BOOST)
    id: float = gathered(0.0, **BOOST)
    content: float = gathered(0.0, **BOOST)
    title: float = gathered(0.0, **BOOST)
    tags: float = gathered(0.0, **BOOST)
    category: float = gathered(0.0, **BOOST)
    project: float = gathered(0.0, **BOOST)
    author: float = gathered(0.0, **BOOST)


class Fts5Shares(Section):
    """What is added to a row's score for the query's words that it has, and for its length; all 0 leaves the engine's score."""

    words: float = gathered(0.0, **SHARE)
    density: float = gathered(0.0, **SHARE)
    path: float = gathered(0.0, **SHARE)
    length: float = gathered(0.0, **SHARE)

    @property
    def used(self) -> bool:
        """Whether any is above 0."""
        return bool(self.words or self.density or self.path or self.length)


class Fts5List(EngineList):
    """Hits of SQLite's FTS5 by its bm25."""

    list_title = "FTS5"
    columns: Fts5Columns = Fts5Columns()
    tokenizer: Literal["unicode61", "porter"] = gathered("unicode61")
    match: Literal["any", "all", "all_then_each"] = gathered("any")
    max_key_words: int = gathered(6, **WORDS)
    parted_at: Literal["blanks", "signs"] = gathered("blanks")
    shares: Fts5Shares = Fts5Shares()
    path: str | None = gathered(None, null="no paths")
    prefix: bool = gathered(False)
    cut: Literal["score", "row"] = gathered("score")
    rows: Literal["created", "store"] = gathered("created")
    outside_ascii: Literal["kept", "blanked", "removed"] = gathered("kept")
    stop_words: str | None = gathered(None, null="keep all")
    operator_words: Literal["dropped", "searched"] = gathered("dropped")
    split_at_dots: bool = gathered(False)
    max_words: int | None = gathered(None, **WORDS)


class SparseList(EngineList):
    """Hits of sparse BM25 vectors, as encoders of vector databases make them."""

    list_title = "Sparse"
    k1: float = gathered(1.2, **within(0, 100, step=0.1, soft=(0, 3)))
    b: float = gathered(0.75, **SHARE)
    mean_length: float | None = gathered(
        None, **above(0, 1_000_000, step=1, soft=(1, 512), unit="words"), null="the true mean"
    )
    idf: Literal["none", "lucene"] = gathered("lucene")
    query_weight: Literal["one", "count", "document"] = gathered("one")
    statistics: Literal["store", "filtered"] = gathered("store")
    tokens: Literal["identifiers", "words", "ascii"] = gathered("words")
    stems: Literal["none", "english", "porter", "suffixes"] = gathered("none")
    keep_ing: bool = gathered(False)
    words_counted: Literal["text", "terms"] = gathered("text")
    lemmas: Literal["none", "spacy"] = gathered("none")
    stop_words: str | None = gathered(None, null="keep all")
    min_token_length: int | None = gathered(None, **within(1, 100, step=1, soft=(1, 5), unit="characters"))
    max_token_length: int | None = gathered(None, **within(1, 10_000, step=1, soft=(10, 100), unit="characters"))
    rows: Literal["created", "store"] = gathered("created")
    skip_if_conversational: bool = gathered(False)


class LuceneFields(Section):
    """Fields (Neo4j: properties) of the Lucene index with their boosts."""

    text: float = gathered(1.0, **BOOST)
    plain_text: float = gathered(0.0, **BOOST)
    content: float = gathered(0.0, **BOOST)
    title: float = gathered(0.0, **BOOST)
    object: float = gathered(0.0, **BOOST)
    fact: float = gathered(0.0, **BOOST)
    tags: float = gathered(0.0, **BOOST)
    category: float = gathered(0.0, **BOOST)
    project: float = gathered(0.0, **BOOST)
    author: float = gathered(0.0, **BOOST)


class LuceneList(EngineList):
    """Hits of Lucene's BM25, as Neo4j and Elasticsearch have it."""

    list_title = "Lucene"
    fields: LuceneFields = LuceneFields()
    k1: float = gathered(1.2, **within(0, 10, step=0.05, soft=(0, 3)))
    b: float = gathered(0.75, **SHARE)
    fuzzy: int = gathered(0, **within(0, 2, step=1))
    max_clauses: int | None = gathered(1024, **within(1, 1_000_000, step=64, soft=(64, 8192)))
    equal_scores: Literal["insertion", "heap"] = gathered("insertion")
    documents: Literal["chunks", "memories"] = gathered("chunks")
    rows: Literal["created", "store"] = gathered("created")
    outside_ascii: Literal["kept", "blanked", "removed"] = gathered("kept")
    min_characters: int = gathered(1, **within(1, 20, step=1, soft=(1, 5)))
    repeats: bool = gathered(True)
    stop_words: str | None = gathered(None, null="keep all")
    max_words: int | None = gathered(None, **WORDS)


class TsRankCdList(EngineList):
    """Hits of PostgreSQL's full-text search by ts_rank_cd."""

    list_title = "ts_rank_cd"
    text_config: Literal["english", "simple"] = gathered("english")
    match: Literal["any", "all"] = gathered("any")
    rank_normalization: int = gathered(0, **within(0, 63, step=1))
    rows: Literal["created", "store"] = gathered("created")
    max_words: int | None = gathered(None, **WORDS)


class SourceHybridList(DeepList):
    """The running system's own fused answer, beside ours."""

    list_title = "Source's hybrid"
    enabled: bool = gathered(False)
    weight: float = param(0.0, **WEIGHT)


class RecencyList(Section):
    """The candidates ranked by created_at, newest first."""

    enabled: bool = param(False)
    weight: float = param(0.6, **WEIGHT)
    ties: Ties = param("dense")
    normalization: Literal["none", "exponential"] = param("none")
    half_life_days: float = param(30.0, **above(0, 36500, step=1, soft=(1, 365), unit="days"))


class AccessList(Section):
    """The candidates ranked by access_count."""

    enabled: bool = param(False)
    weight: float = param(0.4, **WEIGHT)
    ties: Ties = param("dense")
    normalization: Literal["none", "smoothed_share"] = param("none")


class RelationsList(Section):
    """Neighbours, in the relation graph, of the first hits."""

    enabled: bool = param(False)
    weight: float = param(0.5, **WEIGHT)
    mode: Literal["strongest", "each"] = gathered("strongest")
    seeds: int = param(5, **FEW)
    per_seed: int = param(8, **FEW)


class EntitiesList(Section):
    """Memories that are linked to entities of the query."""

    enabled: bool = gathered(False)
    depth: int | None = param(500, cost="deepen", **within(1, 10_000, step=5, soft=(5, 500)))
    first_stage_factor: int = param(0, **FACTOR_OR_0)
    weight: float = param(1.0, **WEIGHT)
    ties: Ties = param("ordinal")
    min_similarity: float = gathered(0.5, **within(-1, 1, step=0.05, soft=(0, 1)))
    max_entities: int = param(8, **FEW)


class CandidateSet(Section):
    """Which memories the vector list may rank."""

    mode: Literal["all", "recent_access", "newest_created", "lexical_or_newest"] = gathered("all")
    size: int = gathered(200, **within(1, 1_000_000, step=10, soft=(10, 1000)))
    size_factor: int = gathered(0, **within(0, 1000, step=1, soft=(0, 20)))


class LogisticBand(Section):
    """Midpoint and slope up to a number of words; `max_words` null is the rest."""

    max_words: int | None = param(None, ge=1)
    midpoint: float = param(5.0, **within(-10_000, 10_000, step=0.1, soft=(0, 20)))
    slope: float = param(0.7, **within(0, 100, soft=(0, 2)))


LogisticBands = Annotated[tuple[LogisticBand, ...], BeforeValidator(as_tuple), AsList]


class LogisticConfig(Section):
    """The logistic normalisation of the lists that have it."""

    bands: LogisticBands = param(
        (
            LogisticBand(max_words=3, midpoint=5.0, slope=0.7),
            LogisticBand(max_words=6, midpoint=7.0, slope=0.6),
            LogisticBand(max_words=9, midpoint=9.0, slope=0.5),
            LogisticBand(max_words=15, midpoint=10.0, slope=0.5),
            LogisticBand(max_words=None, midpoint=12.0, slope=0.5),
        )
    )


class ListsConfig(Section):
    """The ranked lists that are fused."""

    vector: VectorList = VectorList()
    lexical: LexicalList = LexicalList()
    hybrid: HybridList = HybridList()
    ts_rank: TsRankList = TsRankList()
    fts5: Fts5List = Fts5List()
    sparse: SparseList = SparseList()
    lucene: LuceneList = LuceneList()
    ts_rank_cd: TsRankCdList = TsRankCdList()
    source_hybrid: SourceHybridList = SourceHybridList()
    recency: RecencyList = RecencyList()
    access: AccessList = AccessList()
    relations: RelationsList = RelationsList()
    entities: EntitiesList = EntitiesList()
    candidate_set: CandidateSet = CandidateSet()
    units: Literal["memories", "chunks"] = gathered("memories")
    answered_by: Literal["workbench", "source"] = gathered("workbench")
    first_stage_factor: int = param(1, **FEW)
    metadata_ranks: Literal["gathered", "in_use"] = param("gathered")
    logistic: LogisticConfig = LogisticConfig()
    equal_scores: float = param(1.0, **SHARE)


OUR_LISTS = tuple(name for name, section in ListsConfig() if hasattr(section, "weight"))
ENGINE_LISTS = tuple(
    name
    for name, info in ListsConfig.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, EngineList)
)
"""The lists of lexical engines (`pipeline/lexical_engines`)."""
ADDED_LISTS = tuple(
    name
    for name in extensions.names(
        extensions.RETRIEVERS, "cems_workbench.pipeline.retrievers", also_taken=tuple(ListsConfig.model_fields)
    )
    if name not in OUR_LISTS
)
"""The added retrievers, in the order of their sections."""


def _added_list(name: str) -> Any:
    """(type, default) of the section of an added list: one list a query, whose labels call it by its name."""
    title = name.replace("_", " ").capitalize()
    section = create_model(
        f"{title.title().replace(' ', '')}List",
        __base__=DeepList,
        __module__=__name__,
        enabled=(bool, param(False, help=f"Use the list of the added source {name}.")),
    )
    section.list_title = title
    return section, section()


if not TYPE_CHECKING and ADDED_LISTS:
    ListsConfig = create_model(
        "ListsConfig",
        __base__=ListsConfig,
        __module__=__name__,
        __doc__=ListsConfig.__doc__,
        **{name: _added_list(name) for name in ADDED_LISTS},
    )


class VariantWeights(Section):
    """How query variants are searched, and the weight of each kind, which multiplies the list weight."""

    search: Literal["beside", "replaced"] = gathered("beside")
    original_weight: float = param(2.0, **within(0, 100, step=0.05, soft=(0, 5)))
    expansion_weight: float = param(1.0, **within(0, 100, step=0.05, soft=(0, 5)))
    decomposed_weight: float = param(1.5, **within(0, 100, step=0.05, soft=(0, 5)))
    hyde_weight: float = param(1.0, **within(0, 100, step=0.05, soft=(0, 5)))


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
    fixed: float = param(0.6, **within(-100, 100, step=0.01, soft=(0, 1)))
    adaptive: Adaptive = Adaptive()
    applies_to: Sources = param(("vector", "lexical"))


class TopRankBonus(Section):
    """Bonus for the first ranks of a list (QMD)."""

    rank1: float = param(0.05, **within(0, 10, step=0.005, soft=(0, 0.2)))
    rank2_3: float = param(0.02, **within(0, 10, step=0.005, soft=(0, 0.2)))
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
    k: WholeOrFraction = param(60, **within(0, 10_000, step=1, soft=(1, 200)), by_ones=True)
    rank_base: Literal[1, 0] = param(1)
    top_rank_bonus: TopRankBonus = TopRankBonus()
    multi_list_boost: float = param(0.0, **within(0, 10, step=0.01, soft=(0, 1)))
    importance_bonus_ranks: int = param(0, **within(0, 10_000, step=1, soft=(0, 50), unit="ranks"))
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

    min_score: float | None = param(0.005, **within(-100, 100, step=0.005, soft=(0, 1)))
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

    backend: RerankBackend = gathered("none")
    model: str | None = gathered(None, null="the default")
    instruction: str = gathered("Given a query, retrieve relevant facts that answer the query")
    query: str | None = gathered(None, null="the query")
    oversample_factor: float = gathered(1.0, **within(0, 100, step=0.5, soft=(1, 10)))
    skip_if_few: bool = param(False)
    max_concurrent: int = gathered(10, **within(1, 256, step=1, soft=(1, 32)))
    timeout_s: float = gathered(30, **above(0, 3600, step=1, soft=(1, 120), unit="s"))
    depth: int | None = param(40, cost="deepen", **within(1, 10_000, step=1, soft=(1, 150)))
    score_window: float = param(1.0, cost="deepen", **SHARE)
    expected_misses: float | None = param(None, **above(0, 10, step=0.05, soft=(0.05, 2)), null="read all", on=0.15)
    read_step: int = param(4, **within(1, 1000, step=1, soft=(1, 32)))
    position: Literal["before_adjust", "returned"] = param("before_adjust")
    below_depth: Literal["drop", "below"] = param("drop")
    chunk_chars: int = gathered(300, **within(1, 100_000, step=10, soft=(50, 2000), unit="characters"))
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
        (Band(max_rank=3, retrieval=0.75), Band(max_rank=10, retrieval=0.60), Band(max_rank=None, retrieval=0.40))
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

    enabled: bool = param(True)
    same: float = param(1.3, **within(0, 10, step=0.05, soft=(0.5, 2)))
    different: float = param(0.8, **within(0, 10, step=0.05, soft=(0, 1.5)))
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

    ratio: float = param(0.0, **within(0, 1, step=0.01))
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

    limit: int | None = param(10, **within(1, 10_000, step=1, soft=(1, 50)))
    max_tokens: int | None = param(2000, **within(0, 10_000_000, step=50, soft=(100, 8000), unit="tokens"))
    aggregation_tokens: int = param(0, **within(0, 10_000_000, step=50, soft=(0, 8000), unit="tokens"))
    text: Literal["memory", "version"] = param("memory")
    strategy: Literal["auto", "greedy", "mmr"] = param("auto")
    mmr_lambda: float = param(0.6, **within(0, 1, step=0.01))
    mmr_similarity: Literal["jaccard", "cosine"] = param("jaccard")
    mmr_procedure: Literal["guide", "cems", "plain", "one_pass"] = param("guide")
    mmr_relevance: Literal["score", "minmax", "vector"] = param("score")
    mmr_characters: int | None = param(
        None, **within(1, 1_000_000, step=50, soft=(100, 3000), unit="characters"), null="the whole text", on=700
    )
    mmr_min_value: float | None = param(None, **within(-100, 100, step=0.01, soft=(-1, 1)), null="off")
    min_score: float | None = param(None, **within(-100, 100, step=0.01, soft=(0, 1)), null="off")
    fill_from: Sources = param(())
    min_vector_score: float | None = param(None, **within(-1000, 1000, step=0.01, soft=(0, 1)), null="off")
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
