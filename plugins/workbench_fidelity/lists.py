"""The lists of a recording instead of the evidence's: what comes after the lists is then tested exactly.

    own        our lists as they were searched
    ties       our lists, with neighbours of equal score in the recorded order: an engine leaves them in an order that nobody can compute
    recorded   the recorded lists, with their rows in the recorded order, for every list that the recording names; the others stay ours

A recorded list stands for one of ours by its name: what a system calls vector, semantic, cosine or dense is our vector list, what it
calls lexical, keyword, bm25 or sparse the lexical list that the config has, entity the entities list or an added one, and a name of ours
is that list. A list that the recording has for other queries and not for this one was not searched: it is empty here. Recorded vector
scores are on the scale that the config gives its vector list, and are mapped back to cosines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from cems_workbench.config import PipelineConfig, list_depths
from cems_workbench.config.sections import ADDED_LISTS
from cems_workbench.errors import InputError
from cems_workbench.models.tokens import TokenCounts
from cems_workbench.pipeline import Evidence, RankedList
from cems_workbench.pipeline.evidence import Hit, Variant
from cems_workbench.pipeline.gather import Request, metadata_lists, search_filter, successors_of
from cems_workbench.pipeline.list_sources import LIST_SOURCES, VECTOR_SCALES, ListSource
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.records import RankedIds, RecordedAnswer, Recording
from workbench_fidelity.answer import equal

WhichLists = Literal["own", "ties", "recorded"]
WHICH_LISTS: tuple[WhichLists, ...] = get_args(WhichLists)

BY_MEANING = frozenset({"vector", "vectors", "semantic", "cosine", "dense", "embedding", "embeddings", "knn"})
BY_WORDS = frozenset(
    {"lexical", "keyword", "keywords", "bm25", "sparse", "fts", "fulltext", "full_text", "text", "words"}
)
VECTOR_PARTS = ("vector", "semantic", "dense", "embed", "cosine", "faiss", "chroma", "hnsw")
WORD_PARTS = ("bm25", "keyword", "lexical", "sparse", "fulltext", "full_text", "tfidf", "tf_idf")
"""Parts of the names of retrievers that say which kind of list it is."""
NORMALISED_WORDS = frozenset({"keyword_unit"})
"""Scores of words that were made comparable already: used only where the recording has no raw ones."""
BY_ENTITY = frozenset({"entity", "entities"})
EQUAL_SCORES = 1e-6
"""Relative difference of two scores of a list that count as equal: engines compute them in single precision."""
_SOURCES: Mapping[str, ListSource] = {source.name: source for source in LIST_SOURCES}
_ORDERED = frozenset(source.name for source in LIST_SOURCES if source.ordered)
_PLAIN = [one for one in LIST_SOURCES if one.per_variant and one.relevance and not (one.nested or one.engine_fusion)]
WORD_SOURCES = tuple(source.name for source in _PLAIN if source.name != "vector")
"""Our lists by words, in the order of the list sources."""
DATED = frozenset(source.name for source in LIST_SOURCES if not source.finds)
"""Lists that only rank what the others found."""


@dataclass(frozen=True, slots=True)
class ListMap:
    """By the name of a recorded list the source of ours that it stands for, and lines about those that stand for none.
    `normalised` are sources whose recorded scores are normalised already, `unscored` recorded lists of which only the
    order is known."""

    sources: Mapping[str, str]
    normalised: frozenset[str] = frozenset()
    unscored: frozenset[str] = frozenset()
    doubts: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Our lists, each with the recorded one that it is from."""
        return [f"{source} from {name}" for name, source in self.sources.items()]


NO_LISTS = ListMap({})


def list_map(recording: Recording, config: PipelineConfig, chosen: Mapping[str, str] | None = None) -> ListMap:
    """Which recorded list stands for which of ours under a config; `chosen` names the source of a recorded list. Raises
    InputError for a chosen list that the recording does not have, or a source that does not exist."""
    names = list(dict.fromkeys(name for answer in recording.answers for name in answer.lists))
    given = dict(chosen or {})
    for name, source in given.items():
        if name not in names:
            raise InputError(f"{recording.name}: no list {name}; its lists: {', '.join(names) or 'none'}")
        if source not in _SOURCES or _SOURCES[source].nested:
            raise InputError(f"{source} is no list source; use one of {', '.join(_SOURCES)}")
    if config.lists.hybrid.enabled:
        return ListMap({}, doubts=("the lists stay ours: a hybrid list is made of chunks, which no recording has",))

    def rows(name: str) -> Iterator[RankedIds]:
        return (ranked for answer in recording.answers for ranked in answer.lists.get(name, ()))

    raw_words = any(name.lower() in BY_WORDS for name in names)
    sources: dict[str, str] = {}
    doubts = []
    for name in names:
        found = given.get(name) or _source_of(name.lower(), config, raw_words)
        if found is None or found in sources.values():
            if not (name.lower() in NORMALISED_WORDS and raw_words) and any(rows(name)):
                taken = f"{found} is taken already" if found else "no list of the config stands for it"
                doubts.append(f"the recorded list {name} is not used: {taken}")
            continue
        sources[name] = found
    normalised = frozenset(source for name, source in sources.items() if name.lower() in NORMALISED_WORDS)
    unscored = frozenset(name for name in sources if not any(score for ranked in rows(name) for _, score in ranked))
    return ListMap(sources, normalised, unscored, tuple(doubts))


def _source_of(name: str, config: PipelineConfig, raw_words: bool) -> str | None:
    def on(source: str) -> bool:
        return bool(config.get(f"lists.{source}.enabled"))

    if name in BY_MEANING or _of_kind(name) == "vector":
        return "vector"
    if name in BY_WORDS or _of_kind(name) == "words" or (name in NORMALISED_WORDS and not raw_words):
        # The config's own choice of engine; with several, the first is not better known than the others.
        return next((source for source in WORD_SOURCES if on(source)), None)
    if name in BY_ENTITY:
        return next((source for source in ("entities", *ADDED_LISTS) if on(source)), None)
    return name if name in _SOURCES and not _SOURCES[name].nested else None


def _of_kind(name: str) -> str | None:
    """Whether a name such as `VectorStoreRetriever` or `bm25_search` has a part that names vectors or words, and not both."""
    if name in NORMALISED_WORDS or name in _SOURCES:
        return None
    vector, words = (any(part in name for part in parts) for parts in (VECTOR_PARTS, WORD_PARTS))
    return None if vector == words else "vector" if vector else "words"


def with_map(config: PipelineConfig, mapping: ListMap) -> dict[str, object]:
    """Changes of the config under which the recorded lists are used: scores that are normalised already are not normalised again."""
    paths = (f"lists.{source}.normalization" for source in sorted(mapping.normalised))
    return {path: "none" for path in paths if config.get(path) != "none"}


def with_lists(
    evidence: Evidence,
    answer: RecordedAnswer,
    mapping: ListMap,
    which: WhichLists,
    config: PipelineConfig,
    resources: Resources,
) -> Evidence:
    """The evidence of an answer's query with the recorded lists, or the recorded order of equal scores; the same object
    for `own`. The memories of the lists are read from the store, and lists by date and count are made again from what
    was found. Rows that are no memory of the store are left out."""
    if which == "own" or not mapping.sources:
        return evidence
    if which == "ties":
        lists = [_settled(ranked, _recorded_for(ranked, answer, mapping), config) for ranked in evidence.lists]
        return evidence if tuple(lists) == evidence.lists else _with_candidates(evidence, lists, config, resources)
    variants = _variants(evidence, answer, mapping)
    replaced = set(mapping.sources.values())
    lists = [ranked for ranked in evidence.lists if ranked.source not in replaced | DATED]
    given = [one for name, source in mapping.sources.items() for one in _given(name, source, answer, variants, config)]
    unscored = {mapping.sources[name] for name in mapping.unscored}
    given = [_with_our_scores(one, evidence) if one.source in unscored else one for one in given]
    found = _with_candidates(replace(evidence, variants=variants), _in_order([*lists, *given]), config, resources)
    dated = [one for one in metadata_lists(found.memories, found.lists, config) if one.source not in replaced]
    said = {"recorded_lists": {one.name: len(one.hits) for one in given}}
    return replace(found, lists=tuple(_in_order([*found.lists, *dated])), notes={**found.notes, **said})


def _with_candidates(
    evidence: Evidence, lists: Sequence[RankedList], config: PipelineConfig, resources: Resources
) -> Evidence:
    """The evidence with other lists, and what it lacks of their memories; hits that are no memory of the store are left out."""
    wanted = {hit.memory_id for ranked in lists for hit in ranked.hits} - evidence.memories.keys()
    fresh = resources.store.memories.read(wanted) if wanted else {}
    if lacking := wanted - fresh.keys():
        hits = [tuple(hit for hit in ranked.hits if hit.memory_id not in lacking) for ranked in lists]
        lists = [replace(ranked, hits=kept) for ranked, kept in zip(lists, hits, strict=True)]
    if not fresh:
        return replace(evidence, lists=tuple(lists))
    notes = evidence.notes
    if SUPERSEDED in notes:
        within = bool(notes.get("query", {}).get("only_project"))
        where = search_filter(Request(evidence.query, evidence.project, only_project=within), config, resources)
        found, later = successors_of({**evidence.memories, **fresh}, evidence.as_of, where, resources)
        fresh |= later
        notes = found.noted_in(notes)
    chunks = resources.store.chunks.read(fresh)
    return replace(
        evidence,
        memories={**evidence.memories, **fresh},
        lists=tuple(lists),
        embeddings={**evidence.embeddings, **resources.indexes.vectors.embeddings(sorted(fresh))},
        chunks={**evidence.chunks, **chunks},
        tokens={**evidence.tokens, **TokenCounts(fresh, chunks)},
        notes=notes,
    )


def without_words(evidence: Evidence) -> Evidence:
    """The evidence without its lists by words: the recording says that the query was searched by vector alone."""
    lists = tuple(ranked for ranked in evidence.lists if ranked.source not in WORD_SOURCES)
    return evidence if len(lists) == len(evidence.lists) else replace(evidence, lists=lists)


def _in_order(lists: Sequence[RankedList]) -> list[RankedList]:
    """Lists in the order in which gathering leaves them: by variant, then by source; those without a variant last."""
    place = {name: i for i, name in enumerate(_SOURCES)}

    def key(one: RankedList) -> tuple[bool, int, int, str]:
        return one.variant is None, one.variant or 0, place.get(one.source, len(place)), one.name

    return sorted(lists, key=key)


def _variants(evidence: Evidence, answer: RecordedAnswer, mapping: ListMap) -> tuple[Variant, ...]:
    """The variants of the evidence, and as many more as the recording has lists for."""
    most = max((len(answer.lists.get(name, ())) for name in mapping.sources), default=0)
    texts = answer.wordings or (answer.query or evidence.query,)
    more = (Variant(texts[min(i, len(texts) - 1)], "expansion") for i in range(len(evidence.variants), most))
    return (*evidence.variants, *more)


def _given(
    name: str, source: str, answer: RecordedAnswer, variants: Sequence[Variant], config: PipelineConfig
) -> list[RankedList]:
    """The recorded lists of a name as lists of a source, one a variant where the source has that."""
    recorded = answer.lists.get(name, ())
    if not _SOURCES[source].per_variant:
        return [RankedList(source, source, None, _hits(recorded[0] if recorded else (), source, config), True)]
    padded = [*recorded, *[()] * len(variants)][: len(variants)]
    hits = [_hits(ranked, source, config) for ranked in padded]
    return [RankedList(f"{source}:{i}", source, i, found, as_given=True) for i, found in enumerate(hits)]


def _with_our_scores(ranked: RankedList, evidence: Evidence) -> RankedList:
    """A recorded list without scores, with those of our list; a memory that ours lacks has the score of the one before it."""
    ours = {
        hit.memory_id: hit.score
        for own in evidence.lists
        if (own.source, own.variant) == (ranked.source, ranked.variant)
        for hit in reversed(own.hits)  # of several chunks the best, which is the first
    }
    hits: list[Hit] = []
    for hit in ranked.hits:
        otherwise = hits[-1].score if hits else hit.score
        hits.append(replace(hit, score=ours.get(hit.memory_id, otherwise)))
    return replace(ranked, hits=tuple(hits))


def _hits(ranked: RankedIds, source: str, config: PipelineConfig) -> tuple[Hit, ...]:
    scaled = cosine_of(config) if source == "vector" else None
    return tuple(Hit(key, score if scaled is None else scaled(score)) for key, score in ranked)


def cosine_of(config: PipelineConfig) -> Callable[[float], float]:
    """The cosine of a vector score on the scale of the config."""
    cosine = VECTOR_SCALES[config.lists.vector.scale].cosine
    return lambda score: max(cosine(score), -1.0)


def _recorded_for(ranked: RankedList, answer: RecordedAnswer, mapping: ListMap) -> RankedIds | None:
    """The recorded list in the place of one of ours; None if the recording has none."""
    for name, source in mapping.sources.items():
        lists = answer.lists.get(name, ())
        at = ranked.variant or 0
        if source == ranked.source and at < len(lists):
            return lists[at]
    return None


def _settled(ranked: RankedList, recorded: RankedIds | None, config: PipelineConfig) -> RankedList:
    """Our list with equal scores in the recorded order; of equal ones at its end, those that the recorded list has."""
    if not recorded or not ranked.hits or any(hit.chunk is not None for hit in ranked.hits):
        return ranked
    place = {key: i for i, (key, _) in enumerate(recorded)}
    hits = list(ranked.hits)
    groups: list[list[Hit]] = []
    for hit in sorted(hits, key=lambda hit: -hit.score) if ranked.source not in _ORDERED else hits:
        if not groups or not _equal(hit.score, groups[-1][0].score):
            groups.append([])
        groups[-1].append(hit)
    last = list_depths(config).get(ranked.source) or len(hits)
    if groups and len(hits) >= last:
        tied = {hit.memory_id for hit in hits}
        scaled = cosine_of(config) if ranked.source == "vector" else float
        end = groups[-1][0].score
        groups[-1] += [Hit(key, end) for key, score in recorded if key not in tied and _equal(scaled(score), end)]
    settled = [hit for group in groups for hit in sorted(group, key=lambda hit: place.get(hit.memory_id, len(place)))]
    return replace(ranked, hits=tuple(settled[: len(hits)]), as_given=True)


def _equal(one: float, other: float) -> bool:
    return equal(one, other, EQUAL_SCORES * max(1.0, abs(one)))
