"""The vector lists of a query as a search of Chroma's graph gives them, beside the exact ones.

A search here compares all vectors and misses none; most systems search an HNSW graph, which passes some near memories by. The recall at k
is found / k: of the k exactly nearest, those among the first k of the answer; if several tie with the k-th, any of them counts.

Nothing here opens Chroma: ask `Resources.graph_open` first where the user has not asked for the graph.

Source: the recall of ANN-Benchmarks (Aumüller et al. 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import ModelError, StoreError
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.evidence import Evidence, RankedList, Request
from cems_workbench.pipeline.explained import explained
from cems_workbench.pipeline.gather import search_filter
from cems_workbench.pipeline.list_sources import provenance_of
from cems_workbench.pipeline.resources import Resources
from cems_workbench.store.search.entries import Hits, best_per_memory

COSINE_TOLERANCE = 1e-6
"""Cosines closer than this are equal: single precision has about 7 digits."""
CHROMA_EF = 100
"""Chroma's ef_search where a system sets none."""
TIES = 10
"""Rows asked for past a memory's exact rank: the graph may order near ties otherwise."""
MAX_NAMED = 3
"""Missed memories that a line names."""


@dataclass(frozen=True, eq=False)
class ExactRanking:
    """The memories of an exact search, nearest first, ties by id, with their cosines (N)."""

    ids: tuple[str, ...]
    cosines: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Missed:
    """A memory that belongs to the first k and is not in the answer: its exact rank (1-based) and cosine."""

    memory_id: str
    rank: int
    cosine: float


@dataclass(frozen=True, slots=True)
class Recall:
    """How many of the `k` exactly nearest are among the first k of an answer, and the missed memories, nearest first."""

    k: int
    found: int
    missed: tuple[Missed, ...]

    @property
    def value(self) -> float:
        """found / k; 1 for k = 0."""
        return self.found / self.k if self.k else 1.0


def recall_at(exact: ExactRanking, answer: Sequence[tuple[str, float]], k: int) -> Recall:
    """The recall of the answer's first k hits; k is at most the number of memories."""
    k = max(0, min(k, len(exact)))
    if not k:
        return Recall(0, 0, ())
    last = float(exact.cosines[k - 1])
    given = {memory_id for memory_id, _ in answer[:k]}
    sure = int((exact.cosines > last + COSINE_TOLERANCE).sum())
    tied = range(sure, int((exact.cosines >= last - COSINE_TOLERANCE).sum()))
    places = k - sure
    filled = min(places, sum(exact.ids[i] in given for i in tied))
    absent = [i for i in range(sure) if exact.ids[i] not in given]
    absent += [i for i in tied if exact.ids[i] not in given][: places - filled]
    missed = tuple(Missed(exact.ids[i], i + 1, float(exact.cosines[i])) for i in absent)
    return Recall(k, k - len(absent), missed)


@dataclass(frozen=True, slots=True)
class GraphList:
    """What the graph gives for the vector list `list`: the ranks of its memories, and its recall at the list's length."""

    list: str
    ranks: Mapping[str, int]
    recall: Recall

    @property
    def line(self) -> str:
        """ "graph: 148 of the 150 nearest; m312, m41 missed"."""
        missed = [one.memory_id for one in self.recall.missed]
        more = f" and {len(missed) - MAX_NAMED} more" if len(missed) > MAX_NAMED else ""
        named = f"; {', '.join(missed[:MAX_NAMED])}{more} missed" if missed else ""
        return f"graph: {self.recall.found:,} of the {self.recall.k:,} nearest{named}"


def compared_lists(evidence: Evidence, config: PipelineConfig) -> list[str]:
    """The vector lists that were searched exactly, over all memories and their indexed texts: what the graph searches too."""
    vector = config.lists.vector
    if (vector.index, vector.text, config.lists.candidate_set.mode) != ("exact", "indexed", "all") or evidence.external:
        return []
    if explained(evidence) is not None:  # of another system's memories
        return []
    names = (ranked.name for ranked in evidence.lists if ranked.source == "vector" and ranked.hits)
    return [name for name in names if not provenance_of(evidence.notes, name)]


def graph_lists(
    evidence: Evidence, config: PipelineConfig, request: Request, resources: Resources
) -> Iterator[GraphList]:
    """Each of `compared_lists` as the graph gives it. Raises StoreError, and ModelError of a server's embedder."""
    vectors, ef = resources.indexes.vectors, config.lists.vector.ef_search
    for ranked, exact, query in _exact(evidence, config, resources):
        found = vectors.approximate(query, len(exact), search_filter(request, config, resources), ef)
        yield GraphList(ranked.name, _ranks(found), recall_of(exact, found))


@dataclass(frozen=True, slots=True)
class GraphPlace:
    """Where a search of the graph with `ef` has a memory that the vector list `list` has at `exact`; `rank` is None if it misses it."""

    list: str
    exact: int
    rank: int | None
    ef: int

    @property
    def words(self) -> str:
        """What a table says of it."""
        if self.rank is not None:
            return f"a search of Chroma's graph with ef {self.ef} has it too"
        return f"found exactly at {self.exact}; a system that searches the graph with ef {self.ef} would have missed it"


def graph_places(
    memory_id: str, evidence: Evidence, config: PipelineConfig, request: Request, resources: Resources
) -> tuple[GraphPlace, ...]:
    """The memory in the graph's answers, of each of `compared_lists` that has it; none unless `Resources.graph_open`.
    Raises nothing. As many rows are asked for as `ef`, which is CHROMA_EF, or more where the memory is further down: no
    system finds it with less."""
    if not resources.graph_open:
        return ()
    places = []
    with suppress(StoreError, ModelError):  # what the lists say of the memory holds without a graph
        for ranked, exact, query in _exact(evidence, config, resources):
            place = _ranks(exact).get(memory_id)
            if place is not None:
                ef = max(config.lists.vector.ef_search or CHROMA_EF, place + TIES)
                found = resources.indexes.vectors.approximate(query, ef, search_filter(request, config, resources), ef)
                places.append(GraphPlace(ranked.name, place, _ranks(found).get(memory_id), ef))
    return tuple(places)


def _exact(
    evidence: Evidence, config: PipelineConfig, resources: Resources
) -> Iterator[tuple[RankedList, Hits, Float32]]:
    """Each of `compared_lists`, its hits by memory, and the vector of its query."""
    names = compared_lists(evidence, config)
    for ranked in evidence.lists:
        if ranked.name in names:
            hits = best_per_memory([(hit.memory_id, hit.score, hit.chunk) for hit in ranked.hits])
            yield ranked, hits, resources.embedder.encode_query(evidence.text_for("vector", ranked.variant or 0))


def _ranks(hits: Hits) -> dict[str, int]:
    return {memory_id: i for i, (memory_id, _) in enumerate(hits, 1)}


def recall_of(exact: Hits, found: Hits) -> Recall:
    """The recall at the length of `exact`, which ends among equals: those of them that only the graph returned count too."""
    known = {memory_id for memory_id, _ in exact}
    equals = [hit for hit in found if hit[0] not in known and hit[1] >= exact[-1][1] - COSINE_TOLERANCE]
    ids, cosines = zip(*exact, *equals, strict=True)
    return recall_at(ExactRanking(ids, np.array(cosines)), found, len(exact))
