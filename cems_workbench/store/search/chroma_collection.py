"""The store's collection in Chroma of one embedder: a record for each entry, with text, vector and metadata, for any client of Chroma.

The `embedded` table has what the collection holds, by a hash of all of it, so a write is the difference. Rows are voided in DuckDB before
they are written to Chroma, and recorded after it: a process killed in between leaves them to be written again, and whatever else changed
in Chroma was another client. Nothing of that is overwritten unasked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cems_workbench.errors import ModelError, StoreError, counted
from cems_workbench.models.http import server_name
from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress
from cems_workbench.store.database import Database
from cems_workbench.store.rows import read_content_version, read_meta, write_meta
from cems_workbench.store.search import chroma, embedded
from cems_workbench.store.search.chroma import ChromaDirectory, Held
from cems_workbench.store.search.entries import EntryId, key_of, parse_key
from cems_workbench.store.search.vector_files import VectorRecord
from cems_workbench.store.search.vector_segments import SegmentVectors

if TYPE_CHECKING:
    import duckdb
    from chromadb.api.models.Collection import Collection


META_PREFIX = "graph:"
RECORDS_PER_MINUTE = 25_000
AGAIN = "reindex --chroma"
_NAMED = 3
_ALL = ("documents", "metadatas", "embeddings")


@dataclass(frozen=True, slots=True)
class ChromaState:
    """What the collection holds (`records`; None: there is none), how many changes it lacks, and why it is not written to, if so."""

    place: str
    records: int | None = None
    outstanding: int = 0
    problem: str = ""

    @property
    def current(self) -> bool:
        return self.records is not None and not self.advice

    @property
    def finding(self) -> str:
        have = "no records" if self.records is None else counted(self.records, "records")
        late = f", {counted(self.outstanding, 'changes')} not written yet" if self.outstanding else ""
        return f"{self.place}: {self.problem or have + late}"

    @property
    def advice(self) -> str:
        """What to do about it; empty without a need."""
        minutes = max(1, round(self.outstanding / RECORDS_PER_MINUTE))
        return (
            f"{AGAIN} writes it again" if self.problem else f"{AGAIN}, about {minutes} min" if self.outstanding else ""
        )

    @property
    def line(self) -> str:
        return f"Chroma at {self.finding}{self.advice and '; '}{self.advice}"


@dataclass(frozen=True, slots=True)
class _Saved:
    """What the store recorded of the collection: its id and place, Chroma's number of the last write, and what it was complete for."""

    collection: str = ""
    place: str = ""
    seq: int | None = None
    form: str = ""
    complete: list[Any] = field(default_factory=list)


class ChromaCollection:
    """The collection of one embedder."""

    def __init__(self, database: Database, directory: ChromaDirectory, name: str, embedder_id: str) -> None:
        self.directory, self.name = directory, name
        self._database, self.embedder_id = database, embedder_id
        self._collection: Collection | None = None
        self._hnsw: Mapping[str, int] = {}
        self._planned: tuple[Any, list[EntryId], list[EntryId]] | None = None
        self.place = str(directory.path)
        if directory.url:
            with suppress(ModelError):
                self.place = server_name(directory.url)

    def refused(self, problem: str) -> ChromaState:
        return ChromaState(self.place, problem=problem)

    def state(self, record: VectorRecord | None) -> ChromaState:
        """What it holds and lacks, without loading Chroma: of a server what was written to it."""
        saved = self._saved()
        if record is None:
            return ChromaState(self.place)
        try:
            if self.directory.url:
                rows = self._database.read(embedded.count, saved.collection)
                held = Held(saved.collection, rows) if saved.collection else None
            else:
                held = self._held(saved)
        except StoreError as error:
            return self.refused(str(error))
        with self._database.reading() as cursor:
            late = embedded.difference(cursor, record.collection, held.id if held else "")
            problem = self._problem(cursor, saved, held) if held and not self.directory.url else ""
        lacks = len(late.embed) + len(late.relabel) + len(late.remove)
        return ChromaState(self.place, held.count if held else None, lacks, problem)

    def collection(self) -> Collection:
        """The collection itself. Raises StoreError, also if there is none."""
        self._collection = self._collection or self.directory.find(self.name)
        if self._collection is None:
            raise StoreError(f"Chroma at {self.place} has no records")
        return self._collection

    def complete_for(self, record: VectorRecord) -> bool:
        """Whether nothing changed since it was complete, as far as the store's own records say."""
        version = self._database.cached_content_version()
        return bool(self._saved().complete == [version, record.files] and self.directory.exists())

    def write(self, record: VectorRecord, vectors: SegmentVectors, most: int | None, rows: int) -> tuple[int, int]:
        """Write the next `rows` changes; returns how many, and how many are left. None is written if there are more
        than `most`. Raises StoreError, also if another client wrote to the collection."""
        saved, held = self._saved(), None
        if self.directory.exists() and (held := self._held(saved)) is not None and held.id != saved.collection:
            saved = _Saved(held.id, self.directory.url or "")
        with self._database.reading() as cursor:
            if held is not None and (problem := self._problem(cursor, saved, held)):
                raise StoreError(problem)
            version = read_content_version(cursor)
            mark = version, record, held and held.id
            if self._planned is None or self._planned[0] != mark:
                late = embedded.difference(cursor, record.collection, held.id if held else "")
                # By id: a batch then reads neighbouring rows of the files.
                self._planned = mark, late.remove, sorted([*late.embed, *late.relabel], key=key_of)
        _, remove, add = self._planned
        left = len(remove) + len(add)
        if most is not None and left > most:
            return 0, left
        if held is None:
            gone = saved.collection
            self._collection = self.directory.create(self.name, self.embedder_id, self._hnsw)
            saved = _Saved(str(self._collection.id), self.directory.url or "")
            with self._database.transaction() as cursor:
                embedded.remove_collection(cursor, gone)
            self._planned = (version, record, saved.collection), remove, add
        if left:
            saved = self._write(saved, self.collection(), record, vectors, remove[:rows], add[:rows])
            del remove[:rows], add[:rows]
        rest = len(remove) + len(add)
        with self._database.transaction() as cursor:
            self._save(cursor, replace(saved, complete=[] if rest else [version, record.files]))
        return left - rest, rest

    def _write(
        self,
        saved: _Saved,
        collection: Collection,
        record: VectorRecord,
        vectors: SegmentVectors,
        remove: Sequence[EntryId],
        add: Sequence[EntryId],
    ) -> _Saved:
        with self._database.transaction() as cursor:
            records = embedded.as_written(cursor, record.collection, add)
            embedded.void(cursor, saved.collection, [*remove, *records])
            self._save(cursor, saved)
        own = vectors.rows_of(list({memory_id for memory_id, _ in records}))
        rows = own.take([row for row, entry in enumerate(own.entry_ids) if entry in records])
        written = [records[entry] for entry in rows.entry_ids]
        with chroma.store_errors(chroma.WRITE_FAILED):
            if remove:
                collection.delete(ids=list(map(key_of, remove)))
            if written:
                collection.upsert(
                    ids=[key_of(each.id) for each in written],
                    embeddings=rows.vectors,
                    documents=[each.text for each in written],
                    metadatas=[each.metadata for each in written],
                )
        held = self._held(saved)
        with self._database.transaction() as cursor:
            if held is None or (problem := self._problem(cursor, saved, held)):
                raise StoreError(problem if held else f"{chroma.WRITE_FAILED}: another client removed the collection")
            embedded.remove(cursor, saved.collection, remove)
            sketches = (
                dict(zip(rows.entry_ids, embedded.sketches(rows.vectors).tolist(), strict=True)) if written else {}
            )
            embedded.record(cursor, saved.collection, written, sketches)
            saved = replace(saved, seq=held.seq, form=held.form)
            self._save(cursor, saved)
        return saved

    def renew(self, hnsw: Mapping[str, int]) -> str:
        """Drop the collection, to be written again with these settings of its graph, or move aside a folder that cannot
        be read. Returns what was moved, and why. Raises StoreError."""
        saved, aside = self._saved(), ""
        self._collection, self._hnsw = None, hnsw
        try:
            if self.directory.exists():
                self._held(saved)
                with self.directory.client(writing=True) as client, chroma.store_errors(chroma.WRITE_FAILED):
                    if chroma.find_collection(client, self.name) is not None:
                        client.delete_collection(self.name)
        except StoreError as error:
            if self.directory.url:
                raise
            aside = f"{error}; the folder was moved to {self.directory.move_aside()}"
        with self._database.transaction() as cursor:
            embedded.remove_collection(cursor, saved.collection)
            self._save(cursor, _Saved())
        return aside

    def stored_vectors(self, record: VectorRecord, entry_ids: Sequence[EntryId]) -> Iterator[tuple[EntryId, Float32]]:
        """The vectors of these entries that Chroma holds as they were written. Raises StoreError."""
        self.directory.verify()
        if not self.directory.exists() or (collection := self.directory.find(self.name)) is None:
            return
        with self._database.reading() as cursor:
            written = embedded.as_written(cursor, record.collection, entry_ids)
            there = embedded.recorded(cursor, str(collection.id), list({memory_id for memory_id, _ in entry_ids}))
        keys = [key_of(each) for each, own in written.items() if each in there and there[each].text_sha == own.text_sha]
        for found in chroma.batches(collection, keys):
            vectors = found["embeddings"]
            for key, vector, sketch in zip(found["ids"], vectors, embedded.sketches(vectors).tolist(), strict=True):
                if embedded.alike(there[parse_key(key)].vector_hash, sketch):
                    yield parse_key(key), vector

    def compare(self, record: VectorRecord, vectors: SegmentVectors, progress: Progress) -> tuple[int, list[str]]:
        """Compare every record of the collection with the store: how many it has, and a line for each kind of
        difference. Raises StoreError if it cannot be read."""
        self.directory.verify()
        live = {key_of(each) for each in self._database.read(embedded.live_entries, record.collection)}
        kinds = ("not in the store", "text differs", "vector differs", "metadata differs")
        wrong: dict[str, list[str]] = {"missing": [], **{kind: [] for kind in kinds}}
        total, seen = len(live), set[str]()
        collection = self.directory.find(self.name) if self.directory.exists() else None
        for found in () if collection is None else chroma.batches(collection, None, _ALL):
            progress("comparing Chroma", len(seen), total)
            ids = [parse_key(key) for key in found["ids"] if key in live]
            records = self._database.read(embedded.as_written, record.collection, ids)
            own = vectors.rows_of(list({memory_id for memory_id, _ in ids}))
            row_of = {entry: row for row, entry in enumerate(own.entry_ids)}
            for key, text, said, vector in zip(*map(found.get, ("ids", *_ALL)), strict=True):
                entry, each = parse_key(key), records.get(parse_key(key))
                seen.add(key)
                if each is None or entry not in row_of:
                    wrong[kinds[0]].append(key)
                    continue
                here = own.vectors[row_of[entry]]
                length = max(float(np.linalg.norm(here)), 1e-12)
                equal = (
                    text == each.text,
                    here.shape == vector.shape and np.abs(here / length - vector).max() <= embedded.SKETCH_TOLERANCE,
                    said == {name: value for name, value in each.metadata.items() if value is not None},
                )
                for kind, same in zip(kinds[1:], equal, strict=True):
                    if not same:
                        wrong[kind].append(key)
        wrong["missing"] = sorted(live - seen)
        return len(seen), [f"{kind}: {_some(keys)}" for kind, keys in wrong.items() if keys]

    def _saved(self) -> _Saved:
        value = self._database.read(read_meta, META_PREFIX + self.embedder_id)
        known = {name: each for name, each in json.loads(value or "{}").items() if name in _Saved.__slots__}
        saved = _Saved(**known)
        return saved if saved.place == (self.directory.url or "") else _Saved()

    def _save(self, cursor: duckdb.DuckDBPyConnection, saved: _Saved) -> None:
        values = {name: getattr(saved, name) for name in _Saved.__slots__}
        write_meta(cursor, META_PREFIX + self.embedder_id, json.dumps(values))

    def _held(self, saved: _Saved) -> Held | None:
        """What Chroma holds now; only of a server does that load Chroma."""
        if self.directory.url is None:
            if self.directory.damage:
                raise StoreError(self.directory.damage)
            return chroma.held_in(self.directory.path, self.name, saved.seq or 0)
        if (collection := self.directory.find(self.name)) is None:
            return None
        with chroma.store_errors(chroma.READ_FAILED):
            return Held(str(collection.id), collection.count())

    def _problem(self, cursor: duckdb.DuckDBPyConnection, saved: _Saved, held: Held) -> str:
        """Why what Chroma holds is not what was written here; empty if it is."""
        if held.id != saved.collection:
            saved = _Saved()
        rows, open_keys = embedded.count(cursor, held.id), set(map(key_of, embedded.voided(cursor, held.id)))
        tables, _, version = held.form.partition("; ")
        tables_then, _, version_then = saved.form.partition("; ")
        if saved.form and tables != tables_then and version == version_then:
            return f"it was converted by another version of Chroma ({tables}, and here {tables_then})"
        others = sorted({*held.since} - open_keys) if saved.seq is not None else []
        if others:
            return f"another client changed {_some(others)}"
        if not rows - len(open_keys) <= held.count <= rows:
            return f"it holds {counted(held.count, 'records')}, and {rows - len(open_keys):,} were written here: another client changed it"
        if saved.seq not in (None, held.seq) and not open_keys:
            return "another client changed it"
        return ""


def _some(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
    return f"{counted(len(keys), 'records')} ({', '.join(map(repr, keys[:_NAMED]))}{more})"
