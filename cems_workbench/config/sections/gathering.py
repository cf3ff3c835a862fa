"""Config sections of the lists: what is searched, how deep, and what each list and query variant weighs.

An added retriever, a module of `pipeline/retrievers` or of another package, has a section `lists.<name>` like any other,
with the parameters that every added list has. Only its name is needed for that; its code is loaded when it is searched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, create_model

from cems_workbench import extensions
from cems_workbench.config.fields import (
    DEPTH,
    FACTOR,
    FACTOR_OR_0,
    FEW,
    SHARE,
    AsList,
    Section,
    above,
    as_tuple,
    cems,
    engram,
    gathered,
    mem0,
    param,
    within,
)
from cems_workbench.config.sections.lexical_engines import (
    EngineList,
    Fts5List,
    LuceneList,
    Normalization,
    SparseList,
    Ties,
    TsRankCdList,
    normalization,
    ties,
    weight,
)

SHARED_RANK = "dense: they share one rank, and the next hit has the next (1 1 2); competition: the next hit's rank counts them all (1 1 3)"
"""What `ties` may do with equal scores other than number them."""


BY_LANGUAGE = "language"
"""The stems, or the stop words, of the store's language."""


class VectorList(Section):
    """Nearest memories by embedding cosine."""

    enabled: bool = param(True, "Vector list", "Use the vector list.")
    depth: int | None = param(150, "Vector depth", "Hits kept of each vector list.", **DEPTH)
    weight: float = weight("Vector", "Weight of vector lists in the fusion.", exports=engram("W_VECTOR"))
    ties: Ties = ties("Vector", f"ordinal: equal scores get consecutive ranks by id; {SHARED_RANK}.")
    first_stage_factor: int = param(
        1,
        "Vector first-stage factor",
        "Multiplies the first-stage factor of the lists for this one (ACE: 2). With a factor of 1 there, the depth is at least this × the "
        "result limit.",
        **FACTOR,
    )
    text: Literal["indexed", "content", "object", "plain_text", "fact"] = gathered(
        "indexed",
        "Vector text",
        "What is embedded of each memory. indexed: the store's text, its chunks or title and content; the others are embedded whole at the "
        "first search, and kept. content: without the title; object: the title, or the content without one; plain_text: the indexed text "
        "without Markdown signs (memory agent, messages); fact: a sentence of author, category, title and content (memory agent, facts).",
    )
    index: Literal["exact", "graph"] = gathered(
        "exact",
        "Vector index",
        "exact compares the query with every memory and misses none. graph searches Chroma's HNSW graph, as a system on it does, and loses "
        "some: of the 150 nearest it found 97 % in a store of 16,000 memories and 93 % in one of 100,000. Each list says how many it missed. The "
        "first such search makes the graph from the store's vectors, or `reindex --graph` does.",
    )
    scale: Literal["cosine", "half_cosine", "inverse_l2", "negative_distance"] = param(
        "cosine",
        "Vector scale",
        "What thresholds, sums and normalisation read as the score of a vector hit. cosine; half_cosine (1 + cosine) / 2 (Neo4j, Lucene's "
        "k-nearest neighbours, Graphiti on FalkorDB, which itself reports 1 − cosine: 0.5 is a cosine of 0); inverse_l2 1 / (1 + squared "
        "distance) (mem0 on Chroma and FAISS: 0.333 is a cosine of 0); negative_distance cosine − 1. The order of the list does not change.",
        exports=mem0("config.vector_store.provider", codec="mem0_store"),
    )
    normalization: Normalization = normalization(
        "Vector",
        "none keeps the score on the vector scale; minmax spreads the hits over 0 to 1, so that the last of them counts as much as a memory that was not found.",
    )


class LexicalList(Section):
    """BM25 hits."""

    enabled: bool = param(True, "Lexical list", "Use the lexical (BM25) list.")
    depth: int | None = param(50, "Lexical depth", "Hits kept of each lexical list.", **DEPTH)
    weight: float = weight("Lexical", "Weight of lexical lists in the fusion.")
    ties: Ties = ties("Lexical", f"ordinal: equal scores get consecutive ranks by id; {SHARED_RANK}.")
    first_stage_factor: int = param(
        1,
        "Lexical first-stage factor",
        "Multiplies the first-stage factor of the lists for this one (ACE: 5). With a factor of 1 there, the depth is at least this × the "
        "result limit.",
        **FACTOR,
    )
    normalization: Normalization = normalization(
        "Lexical",
        "max divides by the list's best (CEMS calls it min-max; its first hit is always 1.0); saturating is s/(1+s); logistic is mem0's, with midpoint and slope "
        "by the number of the query's words (Logistic bands).",
        "max",
    )
    k1: float = gathered(
        1.5,
        "BM25 k1",
        "How much more a word counts that a text has several times: 0 counts it once, at 1.5 the second time adds 43 %, and no number "
        "adds more than k1 times the first. Lucene, SQLite and Qdrant have 1.2.",
        **within(0, 100, step=0.1, soft=(0, 3)),
    )
    b: float = gathered(
        0.75,
        "BM25 b",
        "How much a long text loses against a short one: 0 is nothing, 1 in full proportion to its length.",
        **SHARE,
    )
    stemming: Literal["language", "none"] = gathered(
        BY_LANGUAGE,
        "Lexical stems",
        "language: words match by the stem that the store's language gives them (“releases” finds “release”); none: as written, in lower case "
        "(Lucene's standard analyser, letta). With other stems or stop words than the language's, the first search makes another index.",
    )
    stop_words: str = gathered(
        BY_LANGUAGE,
        "Lexical stop words",
        "Words that are not searched. language: those of the store's language; none: every word counts; else a file with the words: a plain "
        "list, or a source file and the name of its list (FILE#NAME).",
    )
    skip_if_conversational: bool = gathered(
        False,
        "No lexical if conversational",
        "ACE: BM25 is polluted by stopwords on conversational queries.",
    )


class HybridList(Section):
    """A list that is itself the weighted RRF of two lists of chunks, by meaning and by ts_rank (CEMS's "vector" list)."""

    enabled: bool = param(
        False,
        "Hybrid list",
        "CEMS's “vector” list: chunks by meaning and chunks by ts_rank, fused by their ranks before anything else. Its scores end at "
        "1 / (k inside + 1), 0.0164 at k 60. The lists inside are searched for it whether or not they are enabled.",
        cost="deepen",
    )
    depth: int = param(
        150,
        "Hybrid depth",
        "Memories kept of each hybrid list (CEMS: 150). Both lists inside and the pool are multiples of it, in chunks.",
        **DEPTH,
        exports=cems("MAX_CANDIDATES_PER_QUERY"),
    )
    weight: float = weight(
        "Hybrid",
        "Weight of hybrid lists in the fusion with the other lists, times the variant's weight. CEMS has no such setting: it is 1.",
    )
    ties: Ties = ties(
        "Hybrid",
        f"Rank of equal scores in the fusion. ordinal: consecutive ranks, in the order of the list (CEMS); {SHARED_RANK}.",
    )
    vector_weight: float = param(
        0.4,
        "Vector share inside",
        "Share w inside the hybrid list: a chunk scores w / (k + rank by meaning) + (1 − w) / (k + rank by ts_rank). 1 is meaning alone, "
        "0 is words alone (CEMS: 0.4). It does not weight one list against another.",
        **SHARE,
        exports=cems("HYBRID_VECTOR_WEIGHT"),
    )
    k: int = param(
        60,
        "RRF k inside",
        "k of the fusion inside the hybrid list, apart from the fusion's own: the larger it is, the less the first ranks count. CEMS "
        "has 60, fixed.",
        **within(0, 10_000, step=1, soft=(1, 200)),
    )
    inner_factor: float = param(
        4.0,
        "Inner depth",
        "Chunks ranked by meaning, and as many by ts_rank, as a multiple of the hybrid depth (CEMS: 4, so 600 at depth 150). A chunk past "
        "it has no rank on that side and gets nothing for it.",
        cost="deepen",
        **within(0.01, 100, step=0.5, soft=(1, 8)),
    )
    pool_factor: float = param(
        2.0,
        "Chunk pool",
        "Chunks kept of the nested fusion, as a multiple of the hybrid depth (CEMS: 2, so 300 at depth 150). Then each memory takes its "
        "best chunk; with many chunks a memory, a small pool leaves fewer memories than the depth.",
        **within(0.01, 100, step=0.5, soft=(1, 4)),
    )
    index_rows: int | None = param(
        None,
        "Rows of the vector index",
        "Most chunks ranked by meaning inside the hybrid list. On a large table PostgreSQL takes the HNSW index, whose scan returns 40 rows "
        "at most (hnsw.ef_search), whatever depth is asked for, and before users and scopes are filtered; null is an exact scan, as of a "
        "small table.",
        **within(1, 10_000, step=5, soft=(5, 600)),
        null="exact",
    )
    aggregation_factor: float = param(
        1.0,
        "Depth for aggregation",
        "For aggregation queries (“how many”, “list all”: Query → Detectors) the hybrid depth is multiplied by this and is at least 50; the "
        "depths inside grow with it. 1 leaves it unchanged (CEMS: 2).",
        cost="deepen",
        **within(1, 10, step=0.5, soft=(1, 4)),
    )


class TsRankList(Section):
    """Chunks by PostgreSQL's ts_rank of any of the query's words."""

    enabled: bool = param(
        False,
        "ts_rank list",
        "CEMS's lexical list: chunks that have any of the query's words, by PostgreSQL's ts_rank. A word that stands often counts little "
        "more, length and rarity not at all; many chunks tie. The hybrid list searches by ts_rank whether this is on or off.",
        cost="deepen",
        exports=cems("ENABLE_LEXICAL_IN_INFERENCE"),
    )
    depth: int = param(
        50, "ts_rank depth", "Memories kept of each ts_rank list, after each took its best chunk (CEMS: 50).", **DEPTH
    )
    first_stage_factor: int = param(
        0,
        "ts_rank first-stage factor",
        "Depth is at least this × the first-stage factor of the lists × the result limit, in memories; 0 leaves the depth unchanged.",
        **FACTOR_OR_0,
    )
    chunk_depth: int = param(
        100,
        "ts_rank chunks",
        "Chunks read of each ts_rank list before each memory takes its best (CEMS: 100). It cuts before the depth does where memories have "
        "many chunks.",
        cost="deepen",
        **within(1, 100_000, step=5, soft=(5, 600)),
    )
    weight: float = weight(
        "ts_rank",
        "Weight of ts_rank lists in the fusion, times the variant's weight. CEMS has no such setting: it is 1.",
    )
    ties: Ties = ties(
        "ts_rank",
        "Rank of equal ts_ranks, of which there are many. ordinal: consecutive ranks, in the order in which PostgreSQL leaves them (CEMS); "
        f"{SHARED_RANK}.",
    )
    normalization: Normalization = normalization(
        "ts_rank",
        "What makes a ts_rank (mostly below 0.1) comparable with other scores, for the threshold and the score blend. max divides by the "
        "list's best, whose first is then 1.0 however weak it is (CEMS); minmax also takes the list's least to 0; saturating is s / (1 + s).",
        "max",
    )


class SourceHybridList(Section):
    """The running system's own fused answer, beside ours."""

    enabled: bool = gathered(
        False,
        "Source's own hybrid list",
        "The running system's own answer of several lists that it fuses itself (Qdrant, Chroma, a library's hybrid search), asked also if the "
        "workbench answers the other lists. Lists and Side by side show it beside ours.",
    )
    depth: int | None = param(
        50,
        "Source's hybrid depth",
        "Memories kept of each list. The rows that are asked for may decide how the system fuses: many cut every list to them first.",
        **DEPTH,
    )
    first_stage_factor: int = param(
        0,
        "Source's hybrid first-stage factor",
        "Depth is at least this × the first-stage factor of the lists × the result limit; 0 leaves the depth unchanged.",
        **FACTOR_OR_0,
    )
    weight: float = weight(
        "Source's hybrid",
        "Weight of the lists in the fusion, times the variant's weight. At 0 they are only shown: they add no candidate and change nothing.",
        0.0,
    )
    ties: Ties = ties(
        "Source's hybrid",
        f"Rank of equal scores. ordinal: consecutive, in the order in which they came; {SHARED_RANK}.",
    )
    normalization: Normalization = normalization(
        "Source's hybrid", "none keeps the system's own score; the others make it comparable with those of other lists."
    )


class RecencyList(Section):
    """The candidates ranked by created_at, newest first."""

    enabled: bool = param(False, "Recency list", "Rank the candidates by age and fuse that list too.")
    weight: float = weight("Recency", "Weight of the recency list in the fusion.", 0.6, exports=engram("W_RECENCY"))
    ties: Ties = ties("Recency", f"Ranks of equal dates. ordinal: consecutive, by id; {SHARED_RANK}.", "dense")
    normalization: Literal["none", "exponential"] = normalization(
        "Recency",
        "none: a date is no score, and fusion methods that sum scores leave the list out. exponential: 0.5 ^ (age / half-life), 1 for a new "
        "memory; the list then joins those sums and the threshold, with its weight (engram's memory_recall).",
    )
    half_life_days: float = param(
        30.0,
        "Recency half-life",
        "Age since creation at which the exponential normalisation is one half.",
        **above(0, 36500, step=1, soft=(1, 365), unit="days"),
    )


class AccessList(Section):
    """The candidates ranked by access_count."""

    enabled: bool = param(
        False, "Access list", "Rank the candidates by how often they were used and fuse that list too."
    )
    weight: float = weight("Access", "Weight of the access list in the fusion.", 0.4, exports=engram("W_ACCESS"))
    ties: Ties = ties("Access", f"Ranks of equal counts. ordinal: consecutive, by id; {SHARED_RANK}.", "dense")
    normalization: Literal["none", "smoothed_share"] = normalization(
        "Access",
        "none: a count is no score, and fusion methods that sum scores leave the list out. smoothed_share: (n + 1) / (largest n of the "
        "candidates, at least 1, + 1); the list then joins those sums and the threshold, with its weight (engram's memory_recall).",
    )


class RelationsList(Section):
    """Neighbours, in the relation graph, of the first hits."""

    enabled: bool = param(False, "Relations list", "Add the neighbours of the first hits as a list.")
    weight: float = weight("Relations", "Weight of the relations list in the fusion.", 0.5)
    mode: Literal["strongest", "each"] = gathered(
        "strongest",
        "Relations counted",
        "How often a neighbour counts. strongest: once, by its strongest relation to a seed, in either direction; seeds are the first of a "
        "plain fusion of vector and lexical. each (CEMS): once for every relation that leads to it from a seed, so that a memory with three "
        "gets three ranks and bonuses; seeds are the first of the hybrid list, else of the vector list, and follow its sliders.",
    )
    seeds: int = param(5, "Relation seeds", "Number of first hits whose neighbours are added (CEMS: 5).", **FEW)
    per_seed: int = param(
        8, "Neighbours per seed", "Maximum number of neighbours per seed, strongest relations first (CEMS: 8).", **FEW
    )


class EntitiesList(Section):
    """Memories that are linked to entities of the query."""

    enabled: bool = gathered(
        False,
        "Entities list",
        "Add the memories that the store links to entities of the query: names, identifiers and quoted text. Links are read from "
        "entities.jsonl in the store's directory; without it the list is empty, and a warning says so.",
    )
    depth: int | None = param(
        500, "Entities depth", "Memories kept of the list.", cost="deepen", **within(1, 10_000, step=5, soft=(5, 500))
    )
    first_stage_factor: int = param(
        0,
        "Entities first-stage factor",
        "Above 1, the list is at least this × the first-stage factor of the lists × the result limit deep.",
        **FACTOR_OR_0,
    )
    weight: float = weight(
        "Entities",
        "Weight of the entities list in the fusion. A score is at most 0.5, so the divisor counts the list with half its weight (mem0).",
    )
    ties: Ties = ties("Entities", f"Ranks of equal scores. ordinal: consecutive, by id; {SHARED_RANK}.")
    min_similarity: float = gathered(
        0.5,
        "Entity similarity",
        "Cosine from which an entity of the store counts as one of the query (mem0: 0.5).",
        **within(-1, 1, step=0.05, soft=(0, 1)),
    )
    max_entities: int = param(
        8, "Entities searched", "Entities of the query that are looked up, the first ones (mem0: 8).", **FEW
    )


class CandidateSet(Section):
    """Which memories the vector list may rank."""

    mode: Literal["all", "recent_access", "newest_created", "lexical_or_newest"] = gathered(
        "all",
        "Candidate set",
        "all: the vector list ranks every memory. recent_access: only the newest by last access, and every lexical hit (two-stage RRF). "
        "newest_created: only the newest by creation, and every lexical hit (engram's memory_recall). lexical_or_newest: the lexical hits "
        "alone, or where there are none the newest by creation (engram's memory_search). Lexical hits are those of the BM25 list and of "
        "the lexical engines that are on; of the BM25 list also where it is off, if no engine is on.",
    )
    size: int = gathered(
        200,
        "Candidate set size",
        "Newest memories in the candidate set, which all modes but “all” have.",
        **within(1, 1_000_000, step=10, soft=(10, 1000)),
        exports=engram("ORDER BY accessed_at DESC LIMIT"),
    )
    size_factor: int = gathered(
        0,
        "Candidate set × limit",
        "The candidate set has at least this many times the result limit (engram's tools: 3); 0 leaves its size unchanged.",
        **within(0, 1000, step=1, soft=(0, 20)),
    )


class LogisticBand(Section):
    """Midpoint and slope up to a number of words; `max_words` null is the rest."""

    max_words: int | None = param(None, "Up to words", "Largest number of words that this band covers.", ge=1)
    midpoint: float = param(
        5.0, "Midpoint", "The score that becomes one half.", **within(-10_000, 10_000, step=0.1, soft=(0, 20))
    )
    slope: float = param(
        0.7,
        "Slope",
        "How steeply it rises there: 1 / (1 + exp(−slope · (score − midpoint))).",
        **within(0, 100, soft=(0, 2)),
    )


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
        ),
        "Logistic bands",
        "Midpoint and slope of the logistic normalisation by the number of the query's words, as the list's engine counts them, else as typed. "
        "The numbers are mem0's, for its BM25, whose scores are 1.66 times the usual.",
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
    answered_by: Literal["workbench", "source"] = gathered(
        "workbench",
        "Lists answered by",
        "workbench: its own indexes. source: the running system that the memories were imported from, whose engine is asked again for "
        "those of the vector, ts_rank, ts_rank_cd, fts5 and sparse lists that it has (connect); the others stay the workbench's.",
    )
    first_stage_factor: int = param(
        1,
        "First-stage factor",
        "Where this factor × the list's own factor is above 1, depth = max(depth, both factors × result limit) (ACE: 10). It does not "
        "change lists whose own factor is 0.",
        **FEW,
    )
    metadata_ranks: Literal["gathered", "in_use"] = param(
        "gathered",
        "Ranked by date and use",
        "Which candidates the recency and access lists rank. gathered: every memory that a gathered list found, also of lists that are off or "
        "that reach deeper than the depths, so that ranks may have gaps; in_use: those of the lists in use, within their depths (engram).",
    )
    logistic: LogisticConfig = LogisticConfig()
    equal_scores: float = param(
        1.0,
        "Minmax of equal scores",
        "What the minmax normalisation makes of a list with one hit, or with equal scores only (engram's memory_recall: 0.5).",
        **SHARE,
    )


OUR_LISTS = (
    "vector",
    "lexical",
    "hybrid",
    "ts_rank",
    "fts5",
    "sparse",
    "lucene",
    "ts_rank_cd",
    "source_hybrid",
    "recency",
    "access",
    "relations",
    "entities",
)
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
        __base__=Section,
        __module__=__name__,
        enabled=(bool, param(False, f"{title} list", f"Use the list of the added source {name}.")),
        depth=(
            int | None,
            param(50, f"{title} depth", "Hits kept of the list.", **DEPTH),
        ),
        first_stage_factor=(
            int,
            param(
                0,
                f"{title} first-stage factor",
                "Depth is at least this × the first-stage factor of the lists × the result limit; 0 leaves the depth unchanged.",
                **FACTOR_OR_0,
            ),
        ),
        weight=(
            float,
            weight(title, "Weight of the list in the fusion."),
        ),
        ties=(
            Ties,
            ties(title, f"ordinal: equal scores get consecutive ranks by id; {SHARED_RANK}."),
        ),
        normalization=(
            Normalization,
            normalization(
                title, "none keeps the retriever's scores; the others make them comparable with those of other lists."
            ),
        ),
    )
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

    search: Literal["beside", "replaced"] = gathered(
        "beside",
        "Search expansions",
        "beside: the query and its expansions, a list each. replaced: the last expansion instead of the query, as ACE does; "
        "rerankers and judges read the query as typed, with typos corrected.",
    )
    original_weight: float = param(
        2.0,
        "Original query",
        "Weight of the original query's lists.",
        **within(0, 100, step=0.05, soft=(0, 5)),
        exports=cems("RRF_ORIGINAL_WEIGHT"),
    )
    expansion_weight: float = param(
        1.0,
        "Expansions",
        "Weight of the expansions' lists.",
        **within(0, 100, step=0.05, soft=(0, 5)),
        exports=cems("RRF_EXPANSION_WEIGHT"),
    )
    decomposed_weight: float = param(
        1.5,
        "Sub-questions",
        "Weight of the sub-questions' lists.",
        **within(0, 100, step=0.05, soft=(0, 5)),
        exports=cems("RRF_DECOMPOSITION_WEIGHT"),
    )
    hyde_weight: float = param(
        1.0, "HyDE", "Weight of the hypothetical memory's lists.", **within(0, 100, step=0.05, soft=(0, 5))
    )
