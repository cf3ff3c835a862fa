"""Refresh of one embedder's vectors, in durable batches.

Each batch is written to a segment first and to the `embedded` table second, so a crash in between repeats it and never skips it.
A cancelled refresh keeps its batches, and the next one continues.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from cems_workbench.errors import StoreError
from cems_workbench.models.embedder_match import other_dimension
from cems_workbench.models.protocol import Embedder, Float32
from cems_workbench.progress import Progress
from cems_workbench.store import memories, sources
from cems_workbench.store.database import Database
from cems_workbench.store.precomputed_embeddings import PrecomputedVectors
from cems_workbench.store.search import entries as entries_table
from cems_workbench.store.search.entries import Entry, EntryId
from cems_workbench.store.search.vectors import embedded
from cems_workbench.store.search.vectors.vector_files import VectorFiles, VectorRecord

Row = TypeVar("Row")
BATCH_TEXTS = 512
BATCH_CHARS = 8_000_000
"""A batch has at most this many texts, and about this many characters."""
WRITE_ROWS, WRITE_SECONDS = 8_192, 2.0
"""Vectors are written when there are this many, or after this time: each write makes a segment, which is merged later."""

UNIT_TOLERANCE = 1e-6
"""A vector's length may differ from 1 by this much."""


def refresh_vectors(
    database: Database,
    files: VectorFiles,
    record: VectorRecord,
    embedder: Embedder,
    progress: Progress,
    precomputed: PrecomputedVectors | None = None,
) -> tuple[int, int, int]:
    """Embed, relabel and remove pending entries; returns the number of each.

    With a version in `record`, memories that did not change later are skipped. An entry with a vector from its source uses that one; a
    whole memory in `precomputed` uses that one, if it matches the embedder (else InputError). Raises what `progress` raises (Cancelled),
    StoreError if the embedder returns unusable vectors, and EmbedderMismatchError if its dimension differs from the collection's.
    """
    with database.reading() as cursor:
        changed = None if record.version is None else memories.changed_since(cursor, record.version)
        pending = embedded.pending(cursor, record.collection, changed)
    if pending.embed and record.dimension not in (None, embedder.dimension):
        raise other_dimension(embedder.model_id, record.dimension or 0, embedder.model_id, embedder.dimension)
    for entry_ids in _slices(pending.remove, WRITE_ROWS):
        files.remove(entry_ids)
    for entry_ids in _slices(pending.relabel, WRITE_ROWS):
        files.relabel(_read(database, entry_ids))
    count = _embed(database, files, embedder, pending.embed, progress, precomputed)
    return count, len(pending.relabel), len(pending.remove)


class _Writer:
    """Vectors that are not written yet."""

    def __init__(self, files: VectorFiles) -> None:
        self._files = files
        self._batches: list[tuple[Sequence[Entry], Float32]] = []
        self._written = time.monotonic()

    def add(self, entries: Sequence[Entry], vectors: Float32) -> None:
        """Add vectors, and write if it is time to."""
        lengths = np.linalg.norm(vectors, axis=1)
        # A server may return longer ones. The others stay as they are, to the last digit.
        unit = np.abs(lengths - 1) <= UNIT_TOLERANCE
        self._batches.append((entries, np.where(unit[:, None], vectors, _normalise(vectors))))
        rows = sum(len(entries) for entries, _ in self._batches)
        if rows >= WRITE_ROWS or time.monotonic() - self._written >= WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        """Write what was added. Raises StoreError."""
        batches, self._batches = self._batches, []
        if batches:
            entries = [entry for own, _ in batches for entry in own]
            self._files.put(entries, np.concatenate([vectors for _, vectors in batches]))
        self._written = time.monotonic()


def _embed(
    database: Database,
    files: VectorFiles,
    embedder: Embedder,
    entry_ids: Sequence[EntryId],
    progress: Progress,
    precomputed: PrecomputedVectors | None,
) -> int:
    """Embed these entries; returns how many texts were encoded."""
    writer = _Writer(files)
    try:
        return _encode(database, writer, embedder, entry_ids, progress, precomputed)
    finally:
        # Also what was encoded before an error or a cancellation.
        writer.write()


def _encode(
    database: Database,
    writer: _Writer,
    embedder: Embedder,
    entry_ids: Sequence[EntryId],
    progress: Progress,
    precomputed: PrecomputedVectors | None,
) -> int:
    done = embedded_now = 0
    for entries in (part for step in _slices(entry_ids, BATCH_TEXTS) for part in _split_by_size(_read(database, step))):
        progress("embedding memories", done, len(entry_ids))
        with database.reading() as cursor:
            source_vectors, without = sources.given_vectors(cursor, {entry.id: entry.text_sha for entry in entries})
        from_source = [entry for entry in entries if entry.id in source_vectors]
        if from_source:
            vectors = np.stack([source_vectors[entry.id] for entry in from_source])
            # A source's vectors need not have length 1; those of an embedder have it.
            writer.add(from_source, _normalise(_validate(vectors, len(from_source), embedder)))
        missing = [entry for entry in entries if entry.id not in source_vectors and entry.id not in without]
        if precomputed is not None:
            ready = [entry for entry in missing if entry.id[1] is None and entry.id[0] in precomputed]
            if ready:
                ids, texts = [entry.id[0] for entry in ready], [entry.text for entry in ready]
                vectors = _validate(precomputed.take(ids, texts, embedder), len(ready), embedder)
                writer.add(ready, vectors)
            missing = [entry for entry in missing if entry.id[1] is not None or entry.id[0] not in precomputed]
        if missing:
            with database.reading() as cursor:
                texts = sources.embedded_texts(
                    cursor, [sources.TextPart(entry.id, entry.title, entry.content, entry.text) for entry in missing]
                )
            vectors = embedder.encode(texts, _offset_progress(progress, done, len(entry_ids)))
            writer.add(missing, _validate(vectors, len(missing), embedder))
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


def _validate(vectors: Float32, rows: int, embedder: Embedder) -> Float32:
    if vectors.shape != (rows, embedder.dimension):
        raise StoreError(f"{embedder.model_id} returned shape {vectors.shape} for {rows} texts")
    if not np.isfinite(vectors).all():
        raise StoreError(f"{embedder.model_id} returned vectors with values that are not finite")
    return np.ascontiguousarray(vectors, np.float32)


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
