"""Live engine: the running system that a store's memories are from, queried for its own lists.

Its lists are those that its users get, including what its index misses. They are translated to the store's ids and chunk numbers; a hit
that the store does not know was added to the system after the snapshot.

Scores of a live vector list: cosines where the lengths of the vectors allow it, otherwise the source's own numbers.

    l2: cosine = (|q|² + 1 − distance²) / (2 |q|)        ip: cosine = product / |q|        q the query's vector, the others of length 1

Both keep the order. Of vectors of other lengths neither holds, and the order is not that of cosines: such a list keeps its scores, a note
of the evidence names their scale, and thresholds, blends and floors that expect a cosine leave it alone (`list_sources.own_scale`).
A vector of zeros has no direction: its hits are left out, and counted, as are hits without a distance.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.models.http import CircuitBreaker
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.list_sources import SCALE_WORDS, Scale
from cems_workbench.sources.address import Address, parse_saved, short_name
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.score_meanings import meaning_of
from cems_workbench.sources.source import (
    NO_TRIAL,
    Distance,
    EngineQuery,
    ListName,
    Source,
    SourceError,
    SourceInfo,
    Trial,
)
from cems_workbench.store import Store
from cems_workbench.store.search.entries import ChunkHits
from cems_workbench.store.sources import SourceRecord, VectorLengths

SCALES: Mapping[Distance, Scale] = {"cosine": "cosine", "ip": "product", "l2": "negated_distance"}
"""The scale of a live vector list as its source answers it, by the source's distance."""
DISTANCE_WORDS: Mapping[str, str] = {"cosine": "cosine", "ip": "inner product", "l2": "Euclidean distance"}


class Rescaled(NamedTuple):
    """A live vector list: its hits, the scale of their scores, and a line about each kind of hit that was left out."""

    hits: ChunkHits
    scale: Scale
    left_out: tuple[str, ...]


def rescaled(
    hits: ChunkHits, query: Float32, distance: Distance, lengths: VectorLengths, zero: Set[str] = frozenset()
) -> Rescaled:
    """The hits with cosines, if the source's vectors have length 1; otherwise with the scores they have. `zero` are the
    memories among them whose vectors are zeros."""
    finite = [hit for hit in hits if math.isfinite(hit[1])]
    kept = [hit for hit in finite if hit[0] not in zero]
    first: dict[tuple[str, int | None], tuple[str, float, int | None]] = {}
    for hit in kept:
        first.setdefault((hit[0], hit[2]), hit)
    once = list(first.values())
    counts = {
        "without a distance (NaN)": len(hits) - len(finite),
        "with a vector of zeros, which has no cosine": len(finite) - len(kept),
        "with an id that came already": len(kept) - len(once),
    }
    left_out = tuple(f"hits left out, {why}: {count:,}" for why, count in counts.items() if count)
    norm = float(np.linalg.norm(query))
    if distance == "cosine" or not lengths.unit or not norm:
        return Rescaled(once, SCALES[distance], left_out)
    if distance == "ip":
        return Rescaled([(key, score / norm, seq) for key, score, seq in once], "cosine", left_out)
    top = (norm * norm + 1) / (2 * norm)
    return Rescaled([(key, top - score * score / (2 * norm), seq) for key, score, seq in once], "cosine", left_out)


def scale_note(distance: Distance, lengths: VectorLengths) -> str:
    """What the scores of the source's live vector list are, in a sentence; empty if they are cosines as they come, or there are none."""
    if distance == "cosine" or lengths.count == lengths.zeros:
        return ""
    by = DISTANCE_WORDS[distance]
    if lengths.unit:
        return f"it compares by {by}; its vectors have length 1, so scores of its live list are given as cosines"
    return (
        f"it compares by {by}, and its vectors have lengths {lengths.words}: scores of its live list are "
        f"{SCALE_WORDS[SCALES[distance]]}, to which thresholds on a cosine do not apply, and a vector list of the workbench, which is by "
        "cosine, has another order"
    )


def order_note(distance: Distance, lengths: VectorLengths) -> str:
    """Why a vector list of the workbench is in another order than the source's; empty if the order is the same."""
    if distance == "cosine" or lengths.unit or not lengths.count:
        return ""
    return (
        f"by cosine; the source compares by {DISTANCE_WORDS[distance]} and its vectors have lengths {lengths.words}, so its own order is "
        "another (lists.answered_by: source)"
    )


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class LiveList:
    """A list of the engine: (memory id, score, chunk), best first; `asked` rows were requested, `returned` were
    returned. `returned` counts every row. `unknown` are the hits, with their 1-based rank, that the store does not
    know."""

    name: ListName
    asked: int
    returned: int
    hits: ChunkHits
    unknown: tuple[tuple[int, str], ...]
    seconds: float
    scale: Scale = "cosine"
    """What the scores of a vector list are."""
    meaning: str = ""
    """The key of what the engine's scores mean (`sources.score_meanings`); empty if it was never run."""
    notes: tuple[str, ...] = ()
    """The engine's notes, and a line about each kind of hit without a score, or with an id that came already."""

    def shortfall(self, vectors: int) -> str:
        """By how much a vector list is too short, for an engine with `vectors` vectors; empty if it is complete."""
        if self.name != "vector" or self.returned >= min(self.asked, vectors):
            return ""
        return f"{self.asked:,} rows were asked for and {self.returned:,} came"


class LiveEngine:
    """The running system of one source of a store, connected at the first request. Thread-safe."""

    def __init__(
        self, store: Store, record: SourceRecord, breaker: CircuitBreaker, address: Address | None = None
    ) -> None:
        """`address` has the secret if the environment does not."""
        self.record = record
        self._store = store
        self._breaker = breaker
        self._address = address
        self._source: Source | None = None
        self._probe: SourceInfo | None = None
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """Its address without secrets."""
        return self.record.address

    @property
    def name(self) -> str:
        """The name of its database or collection."""
        return short_name(self.record.address)

    def info(self) -> SourceInfo:
        """Its description, requested once. Raises SourceError."""
        with self._lock:
            if self._probe is None:
                self._probe = self._asked(lambda source: source.probe())
            return self._probe

    def search(
        self, text: str, vector: Float32, depths: Mapping[ListName, int], scope: str | None, trial: Trial = NO_TRIAL
    ) -> dict[ListName, LiveList]:
        """The engine's lists of one text, by name; `depths` are rows (chunks, if it has any). Raises SourceError."""
        query = EngineQuery(text, vector, depths, scope)
        with self._lock:
            answered = self._asked(lambda source: source.search(query, trial))
        info = self.info()
        ids = {hit.memory_id for found in answered for hit in found.hits}
        numbers = self._store.sources.chunk_numbers(ids)
        known = self._store.memories.known(ids)
        lists: dict[ListName, LiveList] = {}
        for found in answered:
            hits: ChunkHits = []
            unknown = []
            for place, hit in enumerate(found.hits, start=1):
                chunk = None if hit.seq is None else numbers.get((hit.memory_id, hit.seq))
                if hit.memory_id not in known or (hit.seq is not None and chunk is None):
                    unknown.append((place, hit.memory_id))
                else:
                    hits.append((hit.memory_id, hit.score, chunk))
            if found.name == "vector":
                zero = self._store.sources.with_zero_vector(ids) if self.lengths.zeros else set()
                hits, scale, left_out = rescaled(hits, vector, info.distance, self.lengths, zero)
            else:
                scale, left_out = "cosine", ()
            row = meaning_of(info.engine, info.distance, found.name)
            rows, meaning = len(found.hits) + found.hidden, row.key if row is not None else ""
            lists[found.name] = LiveList(
                found.name,
                found.asked,
                rows,
                hits,
                tuple(unknown),
                found.seconds,
                scale,
                meaning,
                (*found.notes, *left_out),
            )
        return lists

    @cached_property
    def lengths(self) -> VectorLengths:
        """The lengths of its vectors in the snapshot."""
        return self._store.sources.vector_lengths(self.record.id)

    def close(self) -> None:
        """Close its connections."""
        with self._lock:
            if self._source is not None:
                self._source.close()
                self._source = None

    def _asked(self, question: Callable[[Source], Answer]) -> Answer:
        """The answer to a request; an unreachable engine is skipped for a while by the circuit breaker."""
        refused = self._breaker.refusal(self.address)
        if refused is not None:
            raise SourceError(refused)
        started = time.monotonic()
        try:
            if self._source is None:
                address = self._address or parse_saved(self.address, self.record.secret_from)
                try:
                    self._source = open_source(address, self.record.mapping)
                except InputError as error:  # What was there at the snapshot is gone.
                    raise SourceError(str(error)) from None
            answer = question(self._source)
        except SourceError as error:
            if self._source is not None:
                self._source.close()
                self._source = None
            self._breaker.failed(self.address, str(error), time.monotonic() - started)
            raise
        self._breaker.answered(self.address)
        return answer
