"""Refresh of one embedder's vectors, in durable batches.

Each batch is written to Chroma first and to the `embedded` table second, so a crash in between repeats it and never skips it.
A cancelled refresh keeps its batches, and the next one continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from cems_workbench.errors import StoreError
from cems_workbench.models.embedder_match import other_dimension
from cems_workbench.models.protocol import Embedder, Float32
from cems_workbench.progress import Progress
from cems_workbench.store import memories, sources
from cems_workbench.store.database import Database
from cems_workbench.store.precomputed_embeddings import PrecomputedVectors
from cems_workbench.store.search import entries as entries_table
from cems_workbench.store.search.entries import Entry, EntryId, key_of, parse_key
from cems_workbench.store.search.vectors import chroma, embedded
from cems_workbench.store.search.vectors.write_buffer import BufferedCollection

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


Row = TypeVar("Row")
BATCH_TEXTS = 512
BATCH_CHARS = 8_000_000
"""A batch has at most this many texts, and about this many characters."""

SMALL_REFRESH, SMALL_BATCH = 4_096, 128
"""A refresh of up to SMALL_REFRESH vectors writes SMALL_BATCH per call, because Chroma's upsert blocks every other thread (0.1 s at a
million vectors). A larger refresh writes whole batches, which is 12 % faster."""


def refresh_vectors(
    database: Database,
    collection: Collection,
    embedder: Embedder,
    progress: Progress,
    since: int | None = None,
    dimension: int | None = None,
    precomputed: PrecomputedVectors | None = None,
) -> tuple[int, int, int]:
    """Embed, relabel and remove pending entries; returns the number of each.

    `since`: the content version of a complete collection (`counts_match`); memories that did not change later are skipped.
    `dimension`: that of its vectors, if known.
    An entry with a vector from its source uses that one; a whole memory in `precomputed` uses that one, if it matches the embedder
    (else InputError). Raises what `progress` raises (Cancelled), StoreError if the embedder returns unusable vectors, and
    EmbedderMismatchError if its dimension differs from the collection's.
    """
    name = str(collection.id)
    # Nothing is known about the collection, for example after a crash.
    if since is None:
        _reconcile(database, collection)
    with database.reading() as cursor:
        changed = None if since is None else memories.changed_since(cursor, since)
        pending = embedded.pending(cursor, name, changed)
        rows = embedded.count(cursor, name)
    if changes := len(pending.embed) + len(pending.relabel) + len(pending.remove):
        _prepare_buffer(collection, changes, rows)
    for entry_ids in _slices(pending.remove, BATCH_TEXTS):
        with chroma.store_errors(chroma.WRITE_FAILED):
            # Chroma first: a crash in between repeats the batch and never skips it.
            collection.delete(ids=[key_of(entry_id) for entry_id in entry_ids])
        with database.transaction() as cursor:
            embedded.remove(cursor, name, entry_ids)
    for entry_ids in _slices(pending.relabel, BATCH_TEXTS):
        entries = _read(database, entry_ids)
        with chroma.store_errors(chroma.WRITE_FAILED):
            collection.update(ids=[entry.key for entry in entries], metadatas=[_labels(entry) for entry in entries])
        _record(database, collection, entries)
    if pending.embed and (dimension := dimension or chroma.dimension(collection)) not in (None, embedder.dimension):
        raise other_dimension(embedder.model_id, dimension or 0, embedder.model_id, embedder.dimension)
    count = _embed(database, collection, embedder, pending.embed, progress, precomputed)
    return count, len(pending.relabel), len(pending.remove)


def _prepare_buffer(collection: Collection, changes: int, rows: int) -> None:
    """Buffer this many changes of a collection with this many rows, if it is buffered and has room."""
    if isinstance(collection, BufferedCollection):
        with chroma.store_errors(chroma.WRITE_FAILED):
            collection.prepare(changes, rows)


def _embed(
    database: Database,
    collection: Collection,
    embedder: Embedder,
    entry_ids: Sequence[EntryId],
    progress: Progress,
    precomputed: PrecomputedVectors | None,
) -> int:
    """Embed these entries; returns how many texts were encoded."""
    done = embedded_now = 0
    batch_size = SMALL_BATCH if len(entry_ids) <= SMALL_REFRESH else BATCH_TEXTS
    for entries in (part for step in _slices(entry_ids, BATCH_TEXTS) for part in _split_by_size(_read(database, step))):
        progress("embedding memories", done, len(entry_ids))
        with database.reading() as cursor:
            source_vectors, without = sources.given_vectors(cursor, {entry.id: entry.text_sha for entry in entries})
        from_source = [entry for entry in entries if entry.id in source_vectors]
        if from_source:
            vectors = np.stack([source_vectors[entry.id] for entry in from_source])
            _write(
                database,
                collection,
                from_source,
                # A source's vectors need not have length 1; those of an embedder have it.
                _normalise(_validate(vectors, len(from_source), embedder)),
                batch_size,
            )
        missing = [entry for entry in entries if entry.id not in source_vectors and entry.id not in without]
        if precomputed is not None:
            ready = [entry for entry in missing if entry.id[1] is None and entry.id[0] in precomputed]
            if ready:
                ids, texts = [entry.id[0] for entry in ready], [entry.text for entry in ready]
                vectors = _validate(precomputed.take(ids, texts, embedder), len(ready), embedder)
                _write(database, collection, ready, vectors, batch_size)
            missing = [entry for entry in missing if entry.id[1] is not None or entry.id[0] not in precomputed]
        if missing:
            with database.reading() as cursor:
                texts = sources.embedded_texts(
                    cursor, [sources.TextPart(entry.id, entry.title, entry.content, entry.text) for entry in missing]
                )
            vectors = embedder.encode(texts, _offset_progress(progress, done, len(entry_ids)))
            _write(database, collection, missing, _validate(vectors, len(missing), embedder), batch_size)
        embedded_now += len(missing)
        done += len(entries)
    if entry_ids:
        progress("embedding memories", done, len(entry_ids))
    return embedded_now


def _normalise(vectors: Float32) -> Float32:
    """Normalise each vector; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float32 = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit


def _offset_progress(progress: Progress, done: int, total: int) -> Progress:
    """The embedder's progress in a batch as progress of the whole refresh."""

    def within(_: str, count: int, __: int) -> None:
        progress("embedding memories", done + count, total)

    return within


def _write(
    database: Database, collection: Collection, entries: Sequence[Entry], vectors: Float32, batch_size: int
) -> None:
    with chroma.store_errors(chroma.WRITE_FAILED):
        for start in range(0, len(entries), batch_size):
            batch = entries[start : start + batch_size]
            collection.upsert(
                ids=[entry.key for entry in batch],
                embeddings=vectors[start : start + batch_size],
                metadatas=[_labels(entry) for entry in batch],
            )
    _record(database, collection, entries)


def _record(database: Database, collection: Collection, entries: Sequence[Entry]) -> None:
    """Record the hashes of the vectors as Chroma returns them, because it may round them."""
    hashes = {
        parse_key(name): embedded.vector_hash(vector)
        for name, vector in chroma.read_vectors(collection, [entry.key for entry in entries])
    }
    if len(hashes) != len({entry.id for entry in entries}):
        raise StoreError(f"{chroma.WRITE_FAILED}: Chroma stored {len(hashes)} of {len(entries)}")
    with database.transaction() as cursor:
        embedded.record(cursor, str(collection.id), entries, hashes)


def _labels(entry: Entry) -> dict[str, str | None]:
    """The metadata that filters need; a null project removes an earlier one."""
    return {"project": entry.project, "scope": entry.scope}


def _validate(vectors: Float32, rows: int, embedder: Embedder) -> Float32:
    if vectors.shape != (rows, embedder.dimension):
        raise StoreError(f"{embedder.model_id} returned shape {vectors.shape} for {rows} texts")
    if not np.isfinite(vectors).all():
        raise StoreError(f"{embedder.model_id} returned vectors with values that are not finite")
    return np.ascontiguousarray(vectors, np.float32)


def counts_match(database: Database, collection: Collection) -> bool:
    """Whether the collection has as many vectors as the store has recorded."""
    with database.reading() as cursor, chroma.store_errors(chroma.READ_FAILED):
        return embedded.count(cursor, str(collection.id)) == collection.count()


def _reconcile(database: Database, collection: Collection) -> None:
    """If the counts differ (a crash, a restored backup), adjust the records to the entries in Chroma."""
    if counts_match(database, collection):
        return
    name = str(collection.id)
    with database.reading() as cursor:
        recorded = {key_of(entry_id): entry_id for entry_id in embedded.recorded_entries(cursor, name)}
    with chroma.store_errors(chroma.WRITE_FAILED):
        held = set(collection.get(include=[])["ids"])
        for names in _slices(sorted(held - recorded.keys()), BATCH_TEXTS):
            collection.delete(ids=list(names))
    with database.transaction() as cursor:
        embedded.remove(cursor, name, [recorded[key] for key in sorted(recorded.keys() - held)])


def _read(database: Database, entry_ids: Sequence[EntryId]) -> list[Entry]:
    with database.reading() as cursor:
        return entries_table.read(cursor, entry_ids)


def _split_by_size(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Split a batch of very long texts, so that progress and cancelling stay responsive."""
    start = chars = 0
    for position, entry in enumerate(entries):
        chars += len(entry.text)
        if chars >= BATCH_CHARS:
            yield entries[start : position + 1]
            start, chars = position + 1, 0
    if start < len(entries):
        yield entries[start:]


def _slices(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
