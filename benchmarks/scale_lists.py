"""Both lists of a store of made-up memories, and what changes take, for bench_scale.py: words out of a memory, vectors near one.

Queries are the first 150, with filters that very unlike shares of the memories pass; without one the engines alone are asked the same, in
turn. For vectors the share of the exact nearest is reported; lexical search is exact. A change is timed from the database until a query by
its words and one by its vector both have it, embedded here.
What is changed is changed back before the next, which is not timed, so that the store can be measured again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale_lexical import Bm25s, spelled
from benchmarks.scale_memories import BLOCK, DIMENSION, memories, memory_id, vectors
from benchmarks.scale_vectors import ALONE, chroma_alone, filters_of
from benchmarks.turns import Summary, in_turn
from cems_workbench.models.chunking import LimitedEmbedder
from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import PACKAGED_ID, resolve
from cems_workbench.progress import Progress, silent
from cems_workbench.records import ParsedInput
from cems_workbench.store import Store
from cems_workbench.store.memories import staging
from cems_workbench.store.search import chroma
from cems_workbench.store.text_rule import searched_text

K, QUERIES, WARM = 150, 100, 5
EDITS, PORTIONS = 5, 3


class PreparedVectors:
    """An embedder for queries, and for texts that were not made here; vectors made beforehand for the others."""

    def __init__(self, count: int, model: str) -> None:
        self._model = local_embedder(model)
        self.rows: Float32 = np.vstack(list(vectors(count)))
        self.model_id, self.line, self.dimension = self._model.model_id, self._model.line, self._model.dimension
        assert isinstance(self._model, LimitedEmbedder)
        self.room, self.spans, self.truncated = self._model.room, self._model.spans, self._model.truncated

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """By the number that a text begins with; the model reads a text without one."""
        numbers = [re.search(r"\bnote(\d+)\b", text) for text in texts]
        out = self.rows[[int(number[1]) if number else 0 for number in numbers]]
        others = [place for place, number in enumerate(numbers) if number is None]
        if others:
            out[others] = self._model.encode([texts[place] for place in others], progress)
        return out


@dataclass(frozen=True, slots=True)
class Asked:
    """What is searched for: six words out of a memory each, and vectors near one, (QUERIES, DIMENSION)."""

    words: Sequence[str]
    vectors: Float32

    @classmethod
    def of(cls, count: int) -> Asked:
        """Out of the first `count` memories."""
        rng = np.random.default_rng(4)
        rows = rng.integers(0, count, QUERIES + WARM).tolist()
        words = [" ".join(rng.permutation(next(memories(1, row)).content.split()[1:])[:6]) for row in rows]
        near = np.vstack([next(iter(vectors(1, row))) for row in rows])
        near += 0.02 * rng.normal(size=(len(rows), DIMENSION)).astype(np.float32)
        return cls(words, near / np.linalg.norm(near, axis=1, keepdims=True))


def timed(search: Callable[[Any], object], queries: Sequence[Any] | Float32) -> Summary:
    """Of all but the first few, which read files."""
    return in_turn(len(queries), lambda i: search(queries[i]), warm=WARM)[0].summary


@dataclass(frozen=True, slots=True)
class Engines:
    """bm25s and Chroma alone, with the texts and vectors of a store."""

    bm25s: Bm25s
    chroma: Any

    @classmethod
    def open(cls, place: Path) -> Engines:
        """Those of a folder, where `build` left them."""
        return cls(Bm25s(place / "bm25s"), chroma.connect(place / "chroma", None).get_collection(ALONE, None))

    @staticmethod
    def build(place: Path, count: int) -> float:
        """Both of them for `count` memories, in a folder; seconds of the processor."""
        _, seconds = chroma_alone(count, np.vstack(list(vectors(count))), place / "chroma")
        texts = [searched_text(one) for one in memories(count)]
        return seconds + Bm25s.built(texts, place / "bm25s").seconds

    def nearest(self, vector: Float32) -> object:
        """Chroma's own query."""
        return self.chroma.query(query_embeddings=vector[None, :], n_results=K, include=["distances"])

    def take(self, texts: Sequence[str], encode: Callable[[Sequence[str]], Float32]) -> float:
        """Seconds until `encode` and Chroma have new texts, and a query finds one; bm25s, which takes none, is left out. Then they go."""
        began = time.perf_counter()
        made, ids = encode(texts), [f"new{place}" for place in range(len(texts))]
        labels = [{"project": "new", "scope": "shared"}] * len(texts)
        for start in range(0, len(texts), chroma.BATCH_SIZE):
            some = slice(start, start + chroma.BATCH_SIZE)
            self.chroma.add(ids=ids[some], embeddings=made[some], metadatas=labels[some])
        found = self.chroma.query(query_embeddings=made[:1], n_results=1, include=[])
        seconds = time.perf_counter() - began
        assert found["ids"] == [["new0"]], found
        self.chroma.delete(ids=ids)
        return seconds


@dataclass(frozen=True, slots=True)
class Changes:
    """Seconds, the longest of several: until both lists have a change, and the engines."""

    found_s: dict[str, float]
    engines_s: float


@dataclass(frozen=True, slots=True)
class Lists:
    """By filter, named by the share that passes it: times of both lists, and how many of the exact nearest were found."""

    lexical_ms: dict[str, Summary]
    vector_ms: dict[str, Summary]
    recall: dict[str, float]
    bm25s_ms: Summary
    chroma_ms: Summary


def lists(store: Store, embedder: PreparedVectors, engines: Engines) -> Lists:
    """Both lists with every filter, beside the engines without one; `embedder` has the vectors of the store's memories."""
    rows, asked, filters = embedder.rows.copy(), Asked.of(len(embedder.rows)), filters_of(len(embedder.rows))
    rows[999::1000] = rows[998::1000]  # these say the same as the one before
    opened = store.indexes.open(embedder)
    terms = [engines.bm25s.terms(words) for words in asked.words]  # cut beforehand
    lexical, of_bm25s = in_turn(
        len(terms),
        lambda i: opened.lexical.search(asked.words[i], K),
        lambda i: engines.bm25s.search(terms[i], K),
        warm=WARM,
    )
    nearest, of_chroma = in_turn(
        len(terms),
        lambda i: opened.vectors.search(asked.vectors[i], K),
        lambda i: engines.nearest(asked.vectors[i]),
        warm=WARM,
    )
    found = Lists({"all": lexical.summary}, {"all": nearest.summary}, {}, of_bm25s.summary, of_chroma.summary)
    for name, (where, _) in filters.items():
        if name != "all":
            found.lexical_ms[name] = timed(partial(opened.lexical.search, k=K, where=where), asked.words)
            found.vector_ms[name] = timed(partial(opened.vectors.search, k=K, where=where), asked.vectors)
    shares: dict[str, list[float]] = {name: [] for name in filters}
    for vector in asked.vectors[WARM:]:
        cosines = rows @ vector
        for name, (where, passing) in filters.items():
            depth = min(K, len(passing))
            least = float(np.partition(cosines[passing], -depth)[-depth]) - 1e-5
            hits = opened.vectors.search(vector, K, where)
            shares[name].append(min(1.0, sum(score >= least for _, score in hits) / depth))
    found.recall.update((name, float(np.mean(values))) for name, values in shares.items())
    return found


def changes(store: Store, embedder: PreparedVectors, engines: Engines) -> Changes:
    """An edit, a delete and 1,000 new memories; those in turn with `SentenceTransformer.encode` and Chroma alone."""
    taken: dict[str, list[float]] = {}
    alone: list[float] = []
    model = SentenceTransformerEmbedder(resolve(PACKAGED_ID), device="cpu").model
    model.encode(["warm"])

    def by_itself(texts: Sequence[str]) -> Float32:
        return np.asarray(model.encode(list(texts), normalize_embeddings=True), np.float32)

    run = time.time_ns()  # ids that were deleted are not given again
    embedder.encode(["warm"])
    staging([])  # for its first array Arrow imports pandas, which the app has

    def until_found(name: str, change: Callable[[], object], text: str, expected: str, there: bool = True) -> None:
        began = time.perf_counter()
        change()
        store.indexes.refresh(embedder)
        opened = store.indexes.open(embedder)
        hits = opened.lexical.search(text, 1), opened.vectors.search(embedder.encode([text])[0], 1)
        taken.setdefault(name, []).append(time.perf_counter() - began)
        assert all((hit[0][0] == expected) is there for hit in hits), (name, hits)

    for number in np.random.default_rng(5).choice(len(embedder.rows), EDITS, replace=False).tolist():
        memory = store.memories.read([memory_id(number)])[memory_id(number)]
        text = f"{spelled(number)} {' '.join(memory.content.split()[1:])}"
        edited = replace(memory, title=None, content=text)
        until_found("edit", lambda edited=edited: store.memories.update(edited), text, memory.id)  # type: ignore[misc]
        store.memories.update(memory)
        store.indexes.refresh(embedder)
    for turn in range(PORTIONS):
        drawn = memories(1_000, (len(embedder.rows) // BLOCK + 1 + turn) * BLOCK)
        new = [
            replace(
                one,
                id=f"new{turn}-{run}-{one.id}",
                title=None,
                content=f"{spelled(turn)} {one.content.partition(' ')[2]}",
            )
            for one in drawn
        ]
        parsed = ParsedInput("new", "scale", memories=tuple(new))
        one = new[7]
        until_found("1,000 new", lambda parsed=parsed: store.add(parsed), one.content, one.id)  # type: ignore[misc]
        until_found("delete", lambda key=one.id: store.memories.delete(key), one.content, one.id, there=False)  # type: ignore[misc]
        for other in new:
            if other is not one:
                store.memories.delete(other.id)
        store.indexes.refresh(embedder)
        alone.append(engines.take([searched_text(other) for other in new], by_itself))
    return Changes({name: max(times) for name, times in taken.items()}, max(alone))
