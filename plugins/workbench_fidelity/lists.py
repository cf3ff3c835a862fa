"""The lists of a recording instead of the evidence's: what comes after the lists is then tested exactly.

    own        our lists as they were searched
    ties       our lists, with neighbours of equal score in the recorded order: an engine leaves them in an order that nobody can compute
    recorded   the recorded lists, with their rows in the recorded order, for every list that the recording names; the others stay ours

A recorded list stands for one of ours by its name: what a system calls vector, semantic, cosine or dense is our vector list, what it
calls lexical, keyword, bm25 or sparse the lexical list that the config has, entity the entities list or an added one, and a name of ours
is that list. A list that the recording has for other queries and not for this one was not searched: it is empty here. Recorded vector
scores are on the scale that the config gives its vector list, and are mapped back to cosines.

Comparison of a production system's answer with the trace of one query, and where the two diverge.

    overlap   memories in common of the first n, n the length of what production returned
    tau, rbo  of production's order and ours cut to n (`why.trial`)

Order up to ties: a recorded order, where results with equal recorded scores may come in any order.

    groups     neighbours of the recorded order with equal recorded scores; a result without a score is a group alone
    at the cut a result of ours that the recording lacks counts as one that it has, if the two have equal scores before the last cut:
               which of them got in was chance; their places among results of other scores do not count

Engines leave equal scores in the order of a heap, a hash map or a hash seed, which may differ from call to call. The scores before the
last cut are those of the recording, where it has them for both, else ours for both: a score of ours that equals a recorded one is no
tie, since every list gives its tenth the same share.

Divergence of a trace from a recorded answer: the first stage that cannot be right.

The two diverge at a stage if it drops a recorded result, or if it is the first after which the recorded results among ours are in
another order up to the end: an order that a later stage corrects does not count. A result of ours that is not in the recording was
dropped in the real system by an unknown stage; it is reported only if there is no other divergence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from cems_workbench.analysis.ranks import RESULTS, dropped, kendall, lists_in_use, loss, ranked_stages, ranks_in, rbo
from cems_workbench.config import PipelineConfig, list_depths
from cems_workbench.config.sections import ADDED_LISTS
from cems_workbench.errors import InputError
from cems_workbench.jobs.recorded_answers import Production
from cems_workbench.models.tokens import TokenCounts
from cems_workbench.pipeline import Evidence, RankedList, Trace
from cems_workbench.pipeline.evidence import Hit, Variant
from cems_workbench.pipeline.gather import Request, metadata_lists, search_filter, successors_of
from cems_workbench.pipeline.list_sources import LIST_SOURCES, VECTOR_SCALES, ListSource
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import LISTS, stages_in_order
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.records import RankedIds, RecordedAnswer, Recording


def equal(one: float, other: float, tolerance: float) -> bool:
    """Do two scores differ by no more than the tolerance?"""
    return abs(one - other) <= tolerance


def tied_groups(order: Sequence[str], scores: Mapping[str, float], tolerance: float = 0.0) -> Iterator[list[str]]:
    """The order as runs of neighbours whose scores are equal to within the tolerance."""
    group: list[str] = []
    for key in order:
        known = group and key in scores and group[0] in scores
        if group and not (known and equal(scores[key], scores[group[0]], tolerance)):
            yield group
            group = []
        group.append(key)
    if group:
        yield group


def same_up_to_ties(
    recorded: Sequence[str],
    ours: Sequence[str],
    scores: Mapping[str, float],
    before_cut: Mapping[str, float],
    our_scores: Mapping[str, float],
    tolerance: float,
) -> bool:
    """Is ours the recorded order, if results with equal scores may be exchanged? `scores` are those of the recorded
    results, `before_cut` and `our_scores` those of memories before the last cut, recorded and ours."""
    missing = [key for key in recorded if key not in set(ours)]
    extra = [key for key in ours if key not in set(recorded)]
    known = dict(scores) | dict(before_cut)
    if not all(key in known for key in extra):
        known = dict(our_scores)
    lost, gained = ([known.get(key, math.nan) for key in keys] for keys in (missing, extra))
    pairs = zip(sorted(lost), sorted(gained), strict=False)
    if len(lost) != len(gained) or not all(equal(one, other, tolerance) for one, other in pairs):
        return False
    kept = [key for key in recorded if key not in set(missing)]
    own = iter(key for key in ours if key not in set(extra))
    groups = tied_groups(kept, scores, tolerance)
    return all(Counter(group) == Counter(next(own, None) for _ in group) for group in groups)


How = Literal["lost", "order", "extra"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The stage of the divergence, the memory that shows it, and how: it is lost, has another rank, or is only in our results."""

    stage: str
    memory_id: str
    how: How
    reason: str


def first_divergence(trace: Trace, recorded: Sequence[str], ours: Sequence[str] | None = None) -> Divergence | None:
    """The first stage after which the recorded results can no longer be reproduced; None if they are. `ours` are our
    results cut to the recorded length; by default all results of the trace."""
    results = list(trace.ranks if ours is None else ours)
    if list(recorded) == results:
        return None
    found = [*_lost(trace, recorded, results), *_reordered(trace, recorded, results)]
    if found:
        place = {stage.name: number for number, stage in enumerate(stages_in_order(trace.config))}
        # Of one stage: a loss before an order, the best ranked first.
        return min(found, key=lambda one: place[one.stage])
    extra = next(key for key in results if key not in set(recorded))
    return Divergence(RESULTS, extra, "extra", "we return it; the recording does not")


def _lost(trace: Trace, recorded: Sequence[str], results: Sequence[str]) -> list[Divergence]:
    """The recorded memories that are not in our results, each with the stage that dropped it."""
    partings = []
    for memory_id in (key for key in recorded if key not in results):
        if (end := dropped(trace, memory_id)) is not None:
            stage, reason = end.stage, end.reason
        elif memory_id not in trace.stage(LISTS).by_id:
            stage, reason = LISTS.name, "no list returned it"
        else:  # it is a result past the cut
            stage, reason = RESULTS, "it stands further down"
        partings.append(Divergence(stage, memory_id, "lost", reason))
    return partings


def _reordered(trace: Trace, recorded: Sequence[str], results: Sequence[str]) -> list[Divergence]:
    """The first stage from which the common memories stay in another order; None if the final order is the same."""
    common = [memory_id for memory_id in recorded if memory_id in results]
    wrong: Divergence | None = None
    for stage in reversed(ranked_stages(trace)):
        ranks = ranks_in(trace, stage)
        order = sorted((key for key in common if key in ranks), key=lambda key: ranks[key][0])
        first = next((theirs for theirs, own in zip(common, order, strict=False) if theirs != own), None)
        if first is None:
            break
        before = order[common.index(first)]
        reason = f"{before} stands before it; there it stands before {before}"
        wrong = Divergence(stage, first, "order", reason)
    return [wrong] if wrong is not None else []


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of the first `depth`: memories in common, Kendall's tau, rank-biased overlap. `first` is what was cut away beyond."""

    depth: int
    shared: int
    tau: float
    rbo: float

    @property
    def nearness(self) -> float:
        """Closeness of the two rankings, as used by the search for an explanation."""
        return self.rbo


@dataclass(frozen=True, slots=True)
class Placement:
    """A memory of production's answer or of our results: its rank in each, and where our trace lost it, if it did."""

    memory_id: str
    production: int | None
    ours: int | None
    lost_at: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StageSimilarity:
    """Similarity of the order of a list or stage to production's; `shared` of production's memories are in it. `tau` is
    over those, None with fewer than two."""

    name: str
    stage: bool
    shared: int
    tau: float | None
    rbo: float


def agreement(production: Sequence[str], ours: Sequence[str]) -> Agreement:
    """Agreement of our order with production's, both cut to production's length."""
    depth = len(production)
    cut = ours[:depth]
    return Agreement(depth, len(set(production) & set(cut)), kendall(production, cut), rbo(production, cut))


def overlap_at(production: Sequence[str], ours: Sequence[str], depths: Iterable[int]) -> dict[int, int]:
    """Memories in common of the first k, for each k that either order reaches."""
    longest = max(len(production), len(ours))
    return {k: len(set(production[:k]) & set(ours[:k])) for k in depths if k <= longest}


def placements(production: Production, trace: Trace, k: int | None = None) -> list[Placement]:
    """Every memory of production's answer in its order, then those of our results that it lacks; `k` is the target rank of `loss`."""
    ours = trace.ranks
    rows = []
    for memory_id in production.order:
        lost = loss(trace, memory_id, k)
        stage, reason = (lost.stage, lost.reason) if lost else (None, "")
        if memory_id not in ours and lost is None:
            stage, reason = "lists", "no list returned it"
        rows.append(Placement(memory_id, production.ranks[memory_id], ours.get(memory_id), stage, reason))
    return rows + [Placement(key, None, rank) for key, rank in ours.items() if key not in production.ranks]


def stage_similarities(production: Sequence[str], trace: Trace) -> list[StageSimilarity]:
    """Every list that takes part and every stage that ranks, in the order of the pipeline."""
    names = [(name, False) for name in lists_in_use(trace)] + [(name, True) for name in ranked_stages(trace)]
    found = []
    for name, stage in names:
        order = sorted(ranks_in(trace, name).items(), key=lambda item: item[1][0])
        ids = [memory_id for memory_id, _ in order]
        inside = set(ids) & set(production)
        both = ([key for key in ranked if key in inside] for ranked in (production, ids))
        tau = kendall(*both) if len(inside) > 1 else None
        found.append(StageSimilarity(name, stage, len(inside), tau, rbo(production, ids[: len(production)])))
    return found


def most_similar(found: Collection[StageSimilarity]) -> StageSimilarity | None:
    """The list or stage that is most similar to production; of equal ones the last stage, because it includes the earlier ones."""

    def key(one: StageSimilarity) -> tuple[float, float, bool, bool]:
        return round(one.rbo, 9), -2.0 if one.tau is None else one.tau, one.stage, one.name == RESULTS

    return max(found, key=key, default=None)


def half_unit(scores: Iterable[float]) -> float:
    """Half a unit of the last digit that any of the scores has."""
    digits = 0
    for score in scores:
        mantissa, _, exponent = f"{score!r}".partition("e")
        digits = max(digits, len(mantissa.partition(".")[2]) - int(exponent or 0))
    return float(0.5 * 10.0**-digits)


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
