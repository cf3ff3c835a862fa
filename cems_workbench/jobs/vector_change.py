"""Another embedder, or another chunk rule, on the judged queries of a store before all vectors are made: `analysis.vector_change` has the
estimate.

Another embedder gets the chunks as they are. For a rule, a copy of the store in a temporary folder is cut by it, which needs no vectors:
memories whose texts stay the same keep theirs, and the lists of words are those of the copy. End to end the searches of a config run with
the vector list as it is drawn, and then its stages; a memory that is not embedded is in that list by its first chunk. How similar two
memories are is of the store's vectors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cems_workbench.analysis.vector_change import (
    ALONE,
    DRAWS,
    NDCG,
    PIPELINE_DRAWS,
    Cosines,
    K,
    Known,
    VectorChange,
    chosen_memories,
    estimated,
    least_of_list,
    of_list,
)
from cems_workbench.config import PipelineConfig, asks_source, list_depths, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.jobs import factory
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.query_set_evidence import request_for, selected
from cems_workbench.models.protocol import Embedder, Float32, QueryEmbedder
from cems_workbench.models.resolve import resolve
from cems_workbench.models.tokens import TokenCounts
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.evidence import QUESTIONS, Hit, RankedList
from cems_workbench.pipeline.gather import (
    MAX_DEPTH,
    gather,
    gather_lists,
    gather_scores,
    inner_depth,
    metadata_lists,
    notes_superseded,
    search_filter,
)
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.table import Floats, Ints
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Query
from cems_workbench.settings import Settings
from cems_workbench.store import Filter, Indexes, Store
from cems_workbench.store.chunks import known_rule
from cems_workbench.store.filter import ANY
from cems_workbench.store.search.entries import ChunkHits, Entry, EntryId, truncate_to_memories
from cems_workbench.store.search.vector_index import VectorIndex

SHARE = 0.1
"""Of the vectors, the share that is made."""
PORTION = 2_000
"""Memories whose vectors are read at once."""
NEAREST = 1_000
"""Memories of each list that may be chosen as its first."""
OF_STORE = "how similar two memories are (dedup, MMR) is of the store's vectors"
SAME_COSINE = 0.9999
"""Of two vectors of one text, at least."""


def embedder_named(asked: str, settings: Settings) -> QueryEmbedder:
    """The embedder `asked`: a path, a name, or server:model as the setting has it. Raises InputError for one that is not there."""
    named = settings.model_copy(update={"embedder": asked})
    if named.served_embedder is None and resolve(asked).fallback:
        raise InputError(
            f"--embedder {asked[:80]}: not found; name a folder with its weights, the packaged model, or ollama:MODEL"
        )
    return factory.embedder(named)


def vector_change(
    query_set: str,
    resources: Resources,
    config: PipelineConfig,
    *,
    other: QueryEmbedder | None = None,
    rule: str | None = None,
    share: float = SHARE,
    seed: int = 0,
    progress: Progress = silent,
) -> VectorChange:
    """What another embedder, or another chunk rule, would do to the vector list and to the results of a config. Nothing is stored but
    model scores.

    Raises InputError for a set without relevant memories, a share that is too small, an unknown rule, and an embedder or a rule that the
    store has; ModelError when the embedder fails.
    """
    if not 0 < share <= 1:
        raise InputError(f"--share {share:g}: expected a share of the vectors, above 0 and at most 1")
    store, model = resources.store, other or resources.embedder
    if other is not None and other.model_id == resources.embedder.model_id:
        raise InputError(f"--embedder {other.model_id}: the store's vectors are of this model")
    if rule is not None and known_rule(rule) == store.chunks.rule:
        raise InputError(f"--chunks {rule}: the store's chunks are made by this rule")
    selection, judgments = selected(query_set, resources, judged=True)
    grades, ids = agreed(judgments, None).grades, resources.indexes.vectors.ids()
    place = {key: number for number, key in enumerate(ids)}
    own = {
        query.qid: {place[key]: grade for key, grade in grades.get(query.qid, {}).items() if key in place}
        for query in selection.queries
    }
    queries = [query for query in selection.queries if any(grade > 0 for grade in own[query.qid].values())]
    if not queries:
        raise InputError(f"{query_set}: no query has a relevant memory with a vector")
    of_queries = [own[query.qid] for query in queries]
    lacking = _not_told(config)
    moment, now = datetime.now(UTC), dict[str, Evidence]()
    for at, query in enumerate(queries if not lacking else ()):
        progress("gathering queries", at, len(queries))
        now[query.qid] = gather(request_for(query, moment), config, resources, judge="decisive")
    searched = [one.text_for("vector", i) for one in now.values() for i in range(len(one.variants))]
    texts = [query.query for query in queries]
    texts += [text for text in dict.fromkeys(searched) if text not in texts]
    with _as_it_would_be(resources, rule, progress) as side:
        found = _Vectors(resources, side, ids, other is None)
        found.read(texts, config, progress)
        judged = sorted({number for one in of_queries for number in one})
        vectors = sum(map(len, found.pieces))
        orders = [*np.argsort(-found.before, axis=1)[:, :NEAREST].tolist()]
        orders += [np.argsort(-row)[: int((row > 0).sum())].tolist() for row in found.words]
        chosen = chosen_memories(orders, judged, found.sizes, round(share * vectors), seed)
        known = found.embed(model, texts, chosen, progress)
        mean, _ = of_list(of_queries)(found.before)
        least = least_of_list(known, of_queries)
        alone = estimated(ALONE, known, least, of_list(of_queries), mean, DRAWS, capped=True, seed=seed)
        whole = None
        if not lacking:
            replayed = _Replayed(_Changed(side, model, found), texts, queries, grades, config, moment, place, progress)
            mean, _ = replayed.measured(now)
            name = f"end to end under {config.name}"
            whole = estimated(name, known, replayed.least(known), replayed, mean, PIPELINE_DRAWS, seed=seed)
        names = (f"chunks by {rule}", store.chunks.rule) if rule else (model.model_id, resources.embedder.model_id)
        made, changed = int(found.sizes[chosen[0]].sum()), int((found.sizes > 0).sum())
        said = (*lacking, *((OF_STORE,) if other is not None and whole is not None else ()))
        return VectorChange(" instead of ".join(names), len(queries), changed, made, vectors, alone, whole, said)


def _not_told(config: PipelineConfig) -> tuple[str, ...]:
    """Why the results of a config cannot be told; empty if they can."""
    section = config.lists.vector
    why = f"its vectors are of {section.text} (lists.vector.text)" if section.text != "indexed" else ""
    why = "a running system answers its lists" if asks_source(config) else why
    return (f"end to end under {config.name} cannot be told: {why}",) if why else ()


class _NotMade:
    """Zeros for each vector that is not made."""

    def of(self, entries: Sequence[Entry], embedder: Embedder) -> dict[EntryId, Float32]:
        return {entry.id: np.zeros(embedder.dimension, np.float32) for entry in entries}


@contextmanager
def _as_it_would_be(resources: Resources, rule: str | None, progress: Progress) -> Iterator[Resources]:
    """The store, or a copy of it that is cut by a rule."""
    if rule is None:
        yield resources
        return
    with tempfile.TemporaryDirectory(prefix="what-if-", ignore_cleanup_errors=True) as folder:
        resources.store.copy(path := Path(folder) / "store")
        with Store.open(path, create=False) as store:
            store.chunks.choose(rule)
            store.indexes.refresh(resources.embedder, progress, precomputed=_NotMade())
            yield Resources(store, resources.embedder, resources.servers)


@dataclass
class _Vectors:
    """The cosines of R texts with N memories, before and after."""

    store: Resources
    side: Resources
    ids: Sequence[str]
    kept: bool
    """Whether a memory whose texts stay the same keeps its vectors."""
    pieces: list[list[int | None]] = field(default_factory=list)
    """The chunks of each memory, (None) of a whole one, as it would be."""
    parts: dict[int, Cosines] = field(default_factory=dict)
    """Of the known memories with several chunks the cosines, (R, chunks)."""

    def read(self, texts: Sequence[str], config: PipelineConfig, progress: Progress) -> None:
        """Read the cosines with the store's vectors, how many vectors of each memory are to be made, and the BM25 of each memory's best
        chunk over that of the text's best memory, of the first `NEAREST`: `before`, `sizes`, `words`."""
        queries = np.stack([self.store.embedder.encode_query(text) for text in texts])
        self.before: Cosines = np.zeros((len(texts), len(self.ids)), dtype=np.float32)
        self.sizes: Ints = np.zeros(len(self.ids), dtype=np.int64)
        for start in range(0, len(self.ids), PORTION):
            progress("reading vectors", start, len(self.ids))
            part = self.ids[start : start + PORTION]
            stored = self.store.indexes.vectors.chunk_embeddings(part)
            was, now = (one.store.indexes.texts(part) for one in (self.store, self.side))
            for at, key in enumerate(part, start):
                cosines = queries @ np.stack([*stored[key].values()]).T
                self.before[:, at] = cosines.max(axis=1)
                same = self.kept and [*was[key].values()] == [*now[key].values()] and len(stored[key]) == len(now[key])
                self.sizes[at] = 0 if same else len(now[key])
                self.pieces.append([*now[key]])
                if same and len(now[key]) > 1:
                    self.parts[at] = cosines
        found = np.zeros(self.before.shape, dtype=np.float32)
        place, index = {key: number for number, key in enumerate(self.ids)}, self.side.lexical(config.lists.lexical)
        for row, text in enumerate(texts):
            for key, score, _ in index.search_chunks(text, NEAREST):
                if key in place:
                    found[row, place[key]] = max(score, found[row, place[key]])
        self.words: Cosines = found / np.maximum(found.max(axis=1, keepdims=True), 1e-9)

    def embed(self, model: QueryEmbedder, texts: Sequence[str], chosen: tuple[Ints, int], progress: Progress) -> Known:
        """The cosines that are known when the chosen memories are embedded."""
        self.queries = queries = np.stack([model.encode_query(text) for text in texts])
        numbers, judged = chosen
        after = np.where(self.sizes > 0, np.nan, self.before)
        of = self.side.store.indexes.texts([self.ids[number] for number in numbers.tolist()])
        rows = iter(model.encode([text for own in of.values() for text in own.values()], progress)) if of else iter(())
        made = {key: np.stack([next(rows) for _ in own]) for key, own in of.items()}
        for number in numbers.tolist():
            cosines = queries @ made[self.ids[number]].T
            after[:, number] = cosines.max(axis=1)
            if cosines.shape[1] > 1:
                self.parts[number] = cosines
        return Known(self.before, after, self.words, numbers[judged:])


class _Drawn(VectorIndex):
    """A vector index whose cosines are as they were drawn."""

    def __init__(self, found: _Vectors) -> None:
        super().__init__(None)
        self._found, self.cosines = found, found.before
        self._allowed: dict[Filter, NDArray[np.bool_]] = {}

    def _row(self, embedding: ArrayLike) -> int | None:
        """The number of the text with this vector; one that is embedded in another batch differs in the last digits."""
        near = self._found.queries @ np.asarray(embedding)
        return int(near.argmax()) if near.max() > SAME_COSINE else None

    def search_chunks(self, embedding: ArrayLike, k: int, where: Filter = ANY) -> ChunkHits:
        """As `VectorIndex.search_chunks`; nothing for a text that was not drawn."""
        row = self._row(embedding)
        return [] if row is None else self.first(row, k, where)

    def first(self, row: int, k: int, where: Filter) -> ChunkHits:
        """The chunks that are nearest to a text, as many as cover k memories."""
        cosines = self.cosines[row]
        if not where.trivial:
            if where not in self._allowed:
                allowed = {*self._found.store.indexes.vectors.ids(where)}
                self._allowed[where] = np.array([key in allowed for key in self._found.ids])
            cosines = np.where(self._allowed[where], cosines, -np.inf)
        found = np.argpartition(-cosines, min(k, len(cosines)) - 1)[:k]
        return truncate_to_memories(self.hits(row, found[cosines[found] > -np.inf].tolist()), k)

    def hits(self, row: int, numbers: Sequence[int]) -> ChunkHits:
        """Every known chunk of these memories for a text, and the first of one that is not known; best first."""
        found: ChunkHits = []
        for number in numbers:
            key, pieces, parts = self._found.ids[number], self._found.pieces[number], self._found.parts.get(number)
            known = [float(self.cosines[row, number])] if parts is None else parts[row].tolist()
            found += [(key, cosine, piece) for cosine, piece in zip(known, pieces, strict=False)]
        return sorted(found, key=lambda hit: (-hit[1], hit[0], hit[2] or 0))

    def of_ids(self, embedding: ArrayLike, ids: Collection[str]) -> ChunkHits:
        """The chunks of these memories, best first."""
        row, wanted = self._row(embedding), {*ids}
        numbers = [number for number, key in enumerate(self._found.ids) if key in wanted]
        return [] if row is None else self.hits(row, numbers)

    def embeddings(self, ids: Sequence[str]) -> dict[str, Float32]:
        """Those of the store."""
        return self._found.store.indexes.vectors.embeddings(ids)


class _Changed(Resources):
    """A store whose vectors are as they were drawn."""

    def __init__(self, side: Resources, model: QueryEmbedder, found: _Vectors) -> None:
        super().__init__(side.store, model, side.servers)
        self._side, self.drawn = side, _Drawn(found)
        self._shared = found.store._shared

    @property
    def indexes(self) -> Indexes:
        """Those of the store, with the drawn vectors."""
        return replace(self._side.indexes, vectors=self.drawn)

    def refresh(self, *_: object, **__: object) -> None:
        """Nothing: the store stays as it is."""

    def cosines(self, query: Float32, ids: Sequence[str]) -> ChunkHits:
        """As drawn."""
        return self.drawn.of_ids(query, ids)


@dataclass
class _Replayed:
    """nDCG@k of a config's results on the queries, with the vector list of cosines."""

    resources: _Changed
    texts: Sequence[str]
    """That have the cosines."""
    queries: Sequence[Query]
    grades: Mapping[str, Mapping[str, int]]
    config: PipelineConfig
    moment: datetime
    place: Mapping[str, int]
    progress: Progress
    evidences: dict[str, Evidence] = field(default_factory=dict)
    """The latest of each query, with all scores so far."""
    done: int = 0

    def __post_init__(self) -> None:
        """A graph is taken for exact: nobody knows what one of other vectors misses."""
        self.exact = with_values(self.config, {"lists.vector.index": "exact"})
        lists = self.config.lists
        self.follows = lists.relations.enabled or lists.units == "chunks" or lists.candidate_set.mode != "all"
        """Whether all lists are searched again, since other things depend on the vector list."""
        self.follows |= notes_superseded(self.config, self.resources)
        self.where = search_filter(request_for(self.queries[0], self.moment), self.config, self.resources)
        depth, language = list_depths(self.config)["vector"] or MAX_DEPTH, self.resources.store.language.current
        inner = {query.qid: inner_depth(self.config, query.query, language) for query in self.queries}
        self.depths = {qid: max(depth, one) for qid, one in inner.items()}

    def least(self, known: Known) -> Floats:
        """The lowest cosine that can be in the vector list."""
        if self.config.lists.candidate_set.mode != "all" or not self.where.trivial:
            return np.full(len(known.before), -np.inf)
        return known.at_rank(max(self.depths.values()))

    def measured(self, evidences: Mapping[str, Evidence]) -> tuple[float, Ints]:
        """The mean over the queries, and the numbers of the memories among the first k."""
        batch = LabelledBatch(self.queries, evidences, self.grades)
        rankings = batch.rankings(self.config)
        first = [self.place[key] for ids in batch.result_ids(rankings) for key in ids[:K] if key in self.place]
        return float(np.nanmean(NDCG.values(rankings.graded))), np.array(first, dtype=np.int64)

    def __call__(self, cosines: Cosines) -> tuple[float, Ints]:
        self.progress("replaying with drawn lists", self.done, PIPELINE_DRAWS + 1)
        self.done += 1
        self.resources.drawn.cosines = cosines
        for query in self.queries:
            before = self.evidences.get(query.qid)
            lists = before
            if lists is None or self.follows:
                lists = gather_lists(request_for(query, self.moment), self.exact, self.resources)
            if not self.follows:
                lists = self._with_vector_lists(lists, query)
            reads_chunks = self.config.rerank.text_source != "memory"  # another one when the lists are others
            scores = {} if before is None or reads_chunks else before.model_scores
            self.evidences[query.qid] = gather_scores(
                replace(lists, model_scores=scores), self.exact, self.resources, judge="decisive"
            )
        return self.measured(self.evidences)

    def _with_vector_lists(self, evidence: Evidence, query: Query) -> Evidence:
        """The evidence with the vector lists that are drawn now."""
        listed, resources, depth = list[RankedList](), self.resources, self.depths[query.qid]
        rows = {text: row for row, text in enumerate(self.texts)}
        for ranked in evidence.lists:
            if ranked.source == "vector" and ranked.variant is not None:
                row = rows.get(evidence.text_for("vector", ranked.variant))
                hits = [] if row is None else resources.drawn.first(row, depth, self.where)
                listed.append(replace(ranked, hits=tuple(Hit(key, float(score), chunk) for key, score, chunk in hits)))
            elif ranked.source not in ("recency", "access"):
                listed.append(ranked)
        ids = {hit.memory_id: None for ranked in listed for hit in ranked.hits}
        memories, chunks, embeddings = {**evidence.memories}, {**evidence.chunks}, {**evidence.embeddings}
        if fresh := [key for key in ids if key not in memories]:  # those of earlier draws stay: no list names them
            memories |= resources.store.memories.read(fresh)
            chunks |= resources.store.chunks.read(fresh)
            embeddings |= resources.drawn.embeddings(fresh)
        return replace(
            evidence,
            memories=memories,
            lists=(*listed, *metadata_lists(memories, listed, self.config)),
            embeddings=embeddings,
            chunks=chunks,
            tokens=TokenCounts(memories, chunks),
            notes={name: note for name, note in evidence.notes.items() if name != QUESTIONS},
        )
