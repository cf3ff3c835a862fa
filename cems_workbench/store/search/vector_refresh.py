"""Bringing the vectors of one embedder up to the store's content, in steps that last.

Each step writes to Chroma first and to the `embedded` table after it, so a crash in between repeats the step and
never skips one. A cancelled refresh keeps what it has written; the next one goes on from there. Writing in a thread
beside the encoder was tried and is slower: the encoder's own threads wait for each other at every layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cems_workbench.errors import StoreError
from cems_workbench.models.protocol import Embedder, Float32
from cems_workbench.progress import Progress
from cems_workbench.records import Memory, indexed_text
from cems_workbench.store import memories as memories_table
from cems_workbench.store.database import Database
from cems_workbench.store.search import embedded

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


STEP_TEXTS = 512
STEP_CHARS = 8_000_000
"""A step is written and recorded as a whole: at most this many texts, and about this many characters."""


def refresh_vectors(
    database: Database, collection: Collection, embedder: Embedder, progress: Progress
) -> tuple[int, int, int]:
    """Embed, relabel and remove what is pending; returns how many of each.

    Raises what `progress` raises (Cancelled) and StoreError when the embedder returns something unusable.
    """
    key = str(collection.id)
    _reconcile(database, collection)
    with database.reading() as cursor:
        waiting = embedded.pending(cursor, key)
    for ids in _slices(waiting.remove, STEP_TEXTS):
        collection.delete(ids=list(ids))
        with database.transaction() as cursor:
            embedded.forget(cursor, key, ids)
    for ids in _slices(waiting.relabel, STEP_TEXTS):
        memories = _read(database, ids)
        collection.update(ids=[memory.id for memory in memories], metadatas=[_labels(memory) for memory in memories])
        with database.transaction() as cursor:
            embedded.record(cursor, key, memories)
    _embed(database, collection, embedder, waiting.embed, progress)
    return len(waiting.embed), len(waiting.relabel), len(waiting.remove)


def _embed(
    database: Database, collection: Collection, embedder: Embedder, ids: Sequence[str], progress: Progress
) -> None:
    done = 0
    for memories in (part for step in _slices(ids, STEP_TEXTS) for part in _by_size(_read(database, step))):
        progress("embedding memories", done, len(ids))
        texts = [indexed_text(memory) for memory in memories]
        vectors = embedder.encode(texts, _shifted(progress, done, len(ids)))
        _write(database, collection, memories, _checked(vectors, len(texts), embedder))
        done += len(memories)
    if ids:
        progress("embedding memories", done, len(ids))


def _shifted(progress: Progress, done: int, total: int) -> Progress:
    """The embedder's progress within a step as progress of the whole."""

    def within(_: str, count: int, __: int) -> None:
        progress("embedding memories", done + count, total)

    return within


def _write(database: Database, collection: Collection, memories: Sequence[Memory], vectors: Float32) -> None:
    collection.upsert(
        ids=[memory.id for memory in memories],
        embeddings=vectors,
        metadatas=[_labels(memory) for memory in memories],
    )
    with database.transaction() as cursor:
        embedded.record(cursor, str(collection.id), memories)


def _labels(memory: Memory) -> dict[str, str | None]:
    """What filters need; an untagged memory's project is null, which removes an earlier one."""
    return {"project": memory.project, "scope": memory.scope}


def _checked(vectors: Float32, rows: int, embedder: Embedder) -> Float32:
    if vectors.shape != (rows, embedder.dimension):
        raise StoreError(f"{embedder.model_id} returned shape {vectors.shape} for {rows} texts")
    if not np.isfinite(vectors).all():
        raise StoreError(f"{embedder.model_id} returned vectors with values that are not finite")
    return np.ascontiguousarray(vectors, np.float32)


def _reconcile(database: Database, collection: Collection) -> None:
    """When the two counts disagree (a crash, a restored backup), believe Chroma about which ids it holds."""
    key = str(collection.id)
    with database.reading() as cursor:
        if embedded.count(cursor, key) == collection.count():
            return
        said = embedded.held_ids(cursor, key)
    held = set(collection.get(include=[])["ids"])
    for ids in _slices(sorted(held - said), STEP_TEXTS):
        collection.delete(ids=list(ids))
    with database.transaction() as cursor:
        embedded.forget(cursor, key, sorted(said - held))


def _read(database: Database, ids: Sequence[str]) -> list[Memory]:
    with database.reading() as cursor:
        return list(memories_table.read(cursor, ids).values())


def _by_size(memories: Sequence[Memory]) -> Iterator[Sequence[Memory]]:
    """Split a step whose texts are huge, so that progress and cancelling stay responsive."""
    start = chars = 0
    for position, memory in enumerate(memories):
        chars += len(memory.content)
        if chars >= STEP_CHARS:
            yield memories[start : position + 1]
            start, chars = position + 1, 0
    if start < len(memories):
        yield memories[start:]


def _slices(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
