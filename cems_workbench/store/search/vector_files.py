"""The files and records of one embedder's vectors: every write goes to a segment first and to the `embedded` table second.

A crash in between leaves files of a newer state than the records name; the next refresh notices that by the manifest's label in the
record, and `reconcile` compares every vector with its recorded hash and recovers those of damaged files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from cems_workbench.errors import StoreError
from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress
from cems_workbench.store.database import Database
from cems_workbench.store.rows import earlier_identity, portions, read_meta, write_meta
from cems_workbench.store.search import embedded, vector_segments
from cems_workbench.store.search.directory import (
    DirectoryState,
    Segment,
    SegmentDirectory,
    discard,
    publish,
    segments_of,
)
from cems_workbench.store.search.entries import Entry, EntryId, sort_key
from cems_workbench.store.search.vector_segments import SegmentVectors, VectorRows, concatenate

if TYPE_CHECKING:
    import duckdb


META_PREFIX = "vectors:"
BLOCK_ROWS = 8_192
"""Vectors that are compared or recovered at a time."""
RECOVERY_LABEL = "reading vectors"
_NO_ROWS = concatenate([])

ReadElsewhere = Callable[[Sequence[EntryId]], Iterator[tuple[EntryId, Float32]]]
"""The vectors of these entries that another place than the store's own files holds, verified there."""


@dataclass(frozen=True, slots=True)
class VectorRecord:
    """What the store records of an embedder's vectors. `collection` is the id under which the `embedded` table has
    them, `version` the content version at which they were complete (None: never), `files` the label of the manifest
    that belongs to the records, empty before the first."""

    collection: str
    version: int | None = None
    dimension: int | None = None
    files: str = ""


def records(cursor: duckdb.DuckDBPyConnection) -> dict[str, VectorRecord]:
    rows = cursor.execute(
        "SELECT key, value FROM workbench_meta WHERE starts_with(key, ?) ORDER BY key", [META_PREFIX]
    ).fetchall()
    return {key.removeprefix(META_PREFIX): VectorRecord(**json.loads(value)) for key, value in rows}


class VectorFiles:
    """The vectors of one embedder."""

    def __init__(self, database: Database, directory: SegmentDirectory, embedder_id: str) -> None:
        self.directory = directory
        self.embedder_id = embedder_id
        self._database = database
        self._version = 0

    def record(self) -> VectorRecord | None:
        """What the store records of the vectors; None if there never were any."""
        value = self._database.read(read_meta, META_PREFIX + self.embedder_id)
        return None if value is None else VectorRecord(**json.loads(value))

    def save(self, record: VectorRecord) -> None:
        with self._database.transaction() as cursor:
            self._save(cursor, record)

    def state(self, record: VectorRecord | None) -> DirectoryState:
        """The verified state of the files: a manifest, or why there is none ("": there are no vectors)."""
        if record is None:
            return DirectoryState(None)
        with self._database.reading() as cursor:
            state = self.directory.state(cursor, vector_segments.manifest_version(record.collection))
            rows = embedded.count(cursor, record.collection)
        if state.manifest is None and not rows:
            return DirectoryState(None)
        if state.manifest is None and not state.problem:
            return DirectoryState(None, "they are gone", True)
        if state.manifest is not None and record.version is not None and record.files != state.manifest.directory:
            return DirectoryState(state.manifest, "they are of another state of the store")
        return state

    def open(self) -> SegmentVectors | None:
        """The vectors as of the last write; None without any. Raises StoreError."""
        manifest = self.state(self.record()).manifest
        return None if manifest is None else vector_segments.open_vectors(self.directory.path, segments_of(manifest))

    def begin(self, version: int) -> VectorRecord:
        """Start a refresh that leads to this content version; returns the record."""
        self._version = version
        record = self.record()
        if record is None:
            record = VectorRecord(uuid4().hex)
            self.save(record)
        return record

    def put(self, entries: Sequence[Entry], vectors: Float32) -> None:
        """Write the vectors of these entries, shape (entries, dimension), instead of their earlier ones."""
        rows = VectorRows(
            [entry.id for entry in entries],
            [entry.project for entry in entries],
            [entry.scope for entry in entries],
            vectors,
        )
        hashes = embedded.hashes_of(rows.entry_ids, vectors)
        self._replace(rows, rows.entry_ids, lambda cursor, name: embedded.record(cursor, name, entries, hashes))

    def relabel(self, entries: Sequence[Entry]) -> None:
        own = vector_segments.open_vectors(self.directory.path, segments_of(self.directory.manifest())).rows_of(
            list({entry.id[0] for entry in entries})
        )
        row_of = {entry_id: row for row, entry_id in enumerate(own.entry_ids)}
        present = [entry for entry in entries if entry.id in row_of]
        if present:
            self.put(present, own.vectors[[row_of[entry.id] for entry in present]])

    def remove(self, entry_ids: Sequence[EntryId]) -> None:
        self._replace(_NO_ROWS, entry_ids, lambda cursor, name: embedded.remove(cursor, name, entry_ids))

    def erase(self, memory_id: str) -> None:
        """Write the files again without a memory and all that is deleted in them."""
        record, manifest = self.record(), self.directory.manifest()
        if record is not None and manifest is not None:
            self._version = manifest.content_version
            held = list(self._recorded(record.collection, [(memory_id, None)]))
            files, gone = segments_of(manifest), [memory_id]
            self._publish(record.collection, files, gone, _NO_ROWS, lambda at, name: embedded.remove(at, name, held), kept=1)

    def complete(self) -> None:
        """Record that the vectors are those of the content version that `begin` was called with."""
        record, manifest = self.record(), self.directory.manifest()
        assert record is not None
        if manifest is not None and manifest.content_version != self._version:
            self._publish(record.collection, segments_of(manifest), [], _NO_ROWS)
            record = self.record() or record
        self.save(replace(record, version=self._version))

    def discard(self) -> None:
        record = self.record()
        if record is not None:
            with self._database.transaction() as cursor:
                embedded.remove_collection(cursor, record.collection)
                cursor.execute("DELETE FROM workbench_meta WHERE key = ?", [META_PREFIX + self.embedder_id])
        discard(self.directory.path)

    def consistent(self, record: VectorRecord) -> bool:
        """Whether the files are intact and those that the record names."""
        manifest = self.directory.manifest()
        return not self.state(record).problem and (manifest is None or manifest.directory == record.files)

    def reconcile(self, elsewhere: ReadElsewhere, progress: Progress) -> tuple[int, int]:
        """Make files and records agree: each vector that matches its recorded hash is kept or recovered, the rest loses
        its record. Looked for in intact segments and `elsewhere`. Returns the numbers of vectors recovered from there
        and of lost ones, which are embedded again. Raises StoreError, and what `progress` raises."""
        record = self.record()
        assert record is not None
        path, name = self.directory.path, record.collection
        rows_recorded = self._database.read(embedded.count, name)
        if not rows_recorded:
            discard(path)
            return 0, 0
        intact = [each for each in self.directory.intact_segments() if _opened(path, [each]) is not None]
        found: set[EntryId] = set()
        stray: set[str] = set()
        for rows in vector_segments.open_vectors(path, intact).blocks(BLOCK_ROWS):
            known = self._recorded(name, rows.entry_ids)
            for row, (entry_id, number) in enumerate(embedded.hashes_of(rows.entry_ids, rows.vectors).items()):
                was = known.get(entry_id)
                if was is not None and was.vector_hash == number and (was.project, was.scope) == rows.labels(row):
                    found.add(entry_id)
                else:
                    stray.add(entry_id[0])
        # A memory's vectors are in one segment, so those of a stray one are looked for with it.
        found = {entry_id for entry_id in found if entry_id[0] not in stray}
        self._publish(name, intact, list(stray), _NO_ROWS)
        missing = sorted(self._database.read(embedded.recorded_entries, name) - found, key=sort_key)
        recovered = self._recover(name, elsewhere, missing, progress)
        lost = [entry_id for entry_id in missing if entry_id not in recovered]
        with self._database.transaction() as cursor:
            embedded.remove(cursor, name, lost)
        return len(recovered), len(lost)

    def _recover(
        self, name: str, elsewhere: ReadElsewhere, missing: Sequence[EntryId], progress: Progress
    ) -> set[EntryId]:
        """Write those of the `missing` vectors that are found elsewhere; returns them."""
        recovered: set[EntryId] = set()
        for some in portions(missing, BLOCK_ROWS):
            progress(RECOVERY_LABEL, len(recovered), len(missing))
            held = dict(elsewhere(some))
            if held:
                known, ids = self._recorded(name, list(held)), list(held)
                labels = [known[each] for each in ids]
                rows = VectorRows(
                    ids,
                    [each.project for each in labels],
                    [each.scope for each in labels],
                    np.stack(list(held.values())),
                )
                # Chroma rounds vectors, so the hash may be another.
                hashes = embedded.hashes_of(ids, rows.vectors)
                self._replace(rows, ids, partial(embedded.set_hashes, hashes=hashes))
                recovered.update(ids)
        progress(RECOVERY_LABEL, len(missing), len(missing))
        return recovered

    def _recorded(self, name: str, entry_ids: Sequence[EntryId]) -> dict[EntryId, embedded.Recorded]:
        return self._database.read(embedded.recorded, name, list({memory_id for memory_id, _ in entry_ids}))

    def _replace(
        self, rows: VectorRows, entry_ids: Sequence[EntryId], commit: Callable[[duckdb.DuckDBPyConnection, str], None]
    ) -> None:
        """Replace the vectors of `entry_ids` by `rows`, and `commit` that with the label of the new files."""
        record = self.record()
        assert record is not None
        held = self._database.read(
            embedded.memories_among, record.collection, list({entry_id[0] for entry_id in entry_ids})
        )
        segments = segments_of(self.directory.manifest())
        if held:
            # A memory's vectors stay together, so the unchanged ones are written again.
            replaced = set(entry_ids)
            own = vector_segments.open_vectors(self.directory.path, segments).rows_of(held)
            rows = concatenate([own.take([i for i, each in enumerate(own.entry_ids) if each not in replaced]), rows])
        self._publish(record.collection, segments, held, rows, commit)

    def _publish(
        self,
        name: str,
        segments: Sequence[Segment],
        replaced: Sequence[str],
        rows: VectorRows,
        commit: Callable[[duckdb.DuckDBPyConnection, str], None] = lambda cursor, name: None,
        kept: int = 2,
    ) -> None:
        identity = self._database.read(earlier_identity, self._version) or ""
        path = self.directory.path
        manifest = publish(
            path,
            self._version,
            vector_segments.manifest_version(name),
            identity,
            lambda: vector_segments.replace_rows(path, segments, replaced, rows, kept),
        )
        record = self.record()
        assert record is not None
        dimension = rows.vectors.shape[1] if len(rows) else record.dimension
        with self._database.transaction() as cursor:
            # One transaction: the label says that the records are those of these files.
            commit(cursor, name)
            self._save(cursor, replace(record, files=manifest.directory, dimension=dimension))

    def _save(self, cursor: duckdb.DuckDBPyConnection, record: VectorRecord) -> None:
        write_meta(cursor, META_PREFIX + self.embedder_id, json.dumps(asdict(record)))


def _opened(directory: Path, segments: Sequence[Segment]) -> SegmentVectors | None:
    with suppress(StoreError):
        return vector_segments.open_vectors(directory, segments)
    return None
