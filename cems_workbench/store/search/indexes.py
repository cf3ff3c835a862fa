"""The derived indexes of a store (vectors, lexical, full text): opening, refreshing, verifying.

Each records the content version it was built from: the lexical index in its manifest, an embedder's vectors in the meta table
(vector_files.py).

Both are verified before use: complete files, of this store and its content. A damaged index is rebuilt by the next refresh, with a line
in `notices`.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cems_workbench.errors import StoreError, StoreLockedError, counted
from cems_workbench.models.embedder_match import other_dimension, other_model
from cems_workbench.models.protocol import Embedder, Float32
from cems_workbench.platform.process_lock import Holder, SharedLock
from cems_workbench.progress import Cancelled, Progress, silent
from cems_workbench.store import chunks, language, memories, sources
from cems_workbench.store.database import Database
from cems_workbench.store.precomputed_embeddings import KnownVectors
from cems_workbench.store.rows import content_identity, earlier_identity, read_content_version
from cems_workbench.store.search import TS_RANK_VERSION, chroma_records, embedded, entries, lexical_segment, tokenizer
from cems_workbench.store.search.directory import DirectoryState, Manifest, SegmentDirectory, discard, segments_of
from cems_workbench.store.search.entries import EntryId
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.tokenizer import Analysis
from cems_workbench.store.search.vector_files import VectorFiles, VectorRecord, records
from cems_workbench.store.search.vector_index import VectorIndex, refresh_vectors
from cems_workbench.store.search.vocabulary import CurrentVocabulary, Vocabulary

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

    from cems_workbench.store.search.chroma import ChromaDirectory
    from cems_workbench.store.search.chroma_collection import ChromaCollection, ChromaState
    from cems_workbench.store.search.postgres import TsRankIndex

log = logging.getLogger(__name__)
CHROMA_LABEL = "writing to Chroma"
MOST_AT_ONCE = 200_000
"""So many changes of Chroma are left to `reindex --chroma`: some 10 minutes."""
WRITE_ROWS = 1_024
"""Records written at a time, in a second or two, for which a refresh waits."""
YIELD_S = 0.01
"""Between two batches, for threads that wait for the build lock."""
IndexMark = tuple[str | None, VectorRecord | None]
"""The directory of the lexical index, and the record of the vectors."""
CLOSE_WAIT_S = 10.0
"""Seconds that closing waits for a thread that works on the indexes."""
OLLAMA_PREFIX, REVISION_SEPARATOR = "ollama:", "@"
"""Ids of Ollama models end with a revision, which changes when the model is pulled again."""


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """What a refresh of the derived indexes did; `seconds` is wall time. `embedded` texts (memories or their chunks)
    were encoded and written, `relabelled` entries changed project or scope only, `removed` entries left the index."""

    content_version: int
    embedded: int = 0
    relabelled: int = 0
    removed: int = 0
    lexical_rebuilt: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexState:
    """One derived index: the content `version` it was built from (None: never), and whether it is complete and current
    (`fresh`). `damaged`: its files were changed or lost."""

    name: str
    version: int | None
    content_version: int
    fresh: bool
    rows: int
    note: str = ""
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Indexes:
    """Both indexes, open, with their states at that moment."""

    vectors: VectorIndex
    lexical: LexicalIndex
    states: tuple[IndexState, ...] = ()


class DerivedIndexes:
    """Vectors and lexical index of one store."""

    def __init__(self, path: Path, database: Database, store_id: str, chroma_url: str | None, hidden: set[str]) -> None:
        self._path, self._chroma_url = path, chroma_url
        self._chroma: ChromaDirectory | None = None
        self._graphs: dict[str, tuple[VectorRecord, Collection]] = {}
        self._closed = False
        self._copies: dict[str, ChromaCollection] = {}
        self._graph_copy: tuple[object, Collection] | None = None
        self._lexical_directory = SegmentDirectory(path / "lexical")
        self._full_text_directory = SegmentDirectory(path / "ts_rank")
        self._vector_files: dict[str, VectorFiles] = {}
        self._database = database
        self._store_id = store_id
        self._hidden = hidden
        self._refresh_lock = threading.Lock()
        self._build_lock = SharedLock(path / ".indexes.lock", f"the work on the indexes of {path}", _noop, _noop)
        self._opened: dict[str, tuple[IndexMark, Indexes]] = {}
        self._vocabulary = CurrentVocabulary(
            lambda: (self._lexical_directory.path, self._lexical_state().manifest), database
        )
        self._full_text: tuple[int, TsRankIndex] | None = None
        self._check_lock = threading.RLock()
        self.stale_reason = ""
        """Why searches miss the latest changes (another process is refreshing the indexes), one line; empty if they do not."""
        self.notices: list[str] = []
        """Damaged indexes that were rebuilt since the store was opened, a line each."""

    def close(self) -> None:
        """Stops what writes to Chroma after the present batch."""
        self._closed, self._graphs, self._graph_copy = True, {}, None
        if self._refresh_lock.acquire(timeout=CLOSE_WAIT_S):
            self._refresh_lock.release()
        if self._chroma is not None:
            self._chroma.close()
        self._build_lock.close()

    @contextmanager
    def _exclusive(self, timeout_s: float | None = None, *, wait: bool = True) -> Iterator[None]:
        """Hold the build lock. Raises StoreLockedError if another process keeps it longer than `timeout_s`. Without
        `wait`, also if another thread of this process has it."""
        if not self._refresh_lock.acquire(blocking=wait):
            raise StoreLockedError(f"{self.builder()} is refreshing the indexes")
        try:
            with self._build_lock.acquire(timeout_s):
                yield
        finally:
            self._refresh_lock.release()

    def builder(self) -> Holder:
        """The process that builds the indexes, or did so last."""
        return self._build_lock.holder()

    def files_changed(self) -> bool:
        """Whether index files were changed or removed since they were verified, by their sizes and times."""
        directories = [self._lexical_directory, *(files.directory for files in list(self._vector_files.values()))]
        return any(each.verified_signature() not in (None, each.signature()) for each in directories)

    def open(self, embedder: Embedder) -> Indexes:
        """Both indexes as of the last refresh; empty if never built. `states` tells whether they are current. Open
        again after a refresh: earlier objects stay usable, but show the earlier content."""
        opened, states, mark = self._opened, self.states(embedder.model_id), self._mark(embedder)
        known = opened.get(embedder.model_id)
        # A refresh may replace the indexes while they are opened.
        while known is None or known[0] != mark:
            try:
                # Stored in the dict read above: a refresh that ended in the meantime replaced `self._opened`.
                known = opened[embedder.model_id] = mark, self._open(embedder)
            except StoreError:
                before, mark = mark, self._mark(embedder)
                # Nothing was replaced, so the files are damaged and another attempt cannot help.
                if before == mark:
                    raise
        return replace(known[1], states=tuple(states))

    def _mark(self, embedder: Embedder) -> IndexMark:
        """A value that changes when the indexes are rebuilt, also by another process."""
        # Only the name is needed: `states` has verified the files.
        manifest = self._lexical_directory.manifest()
        return manifest.directory if manifest else None, self._database.read(records).get(embedder.model_id)

    def _open(self, embedder: Embedder) -> Indexes:
        with self._database.reading() as cursor:
            words = language.language(cursor)
            segments = segments_of(self._lexical_directory.state(cursor, tokenizer.version(words)).manifest)
        lexical = LexicalIndex.open(self._lexical_directory.path, segments, self._hidden, words)
        graph = partial(self.graph, embedder, silent)
        return Indexes(VectorIndex(self._files(embedder.model_id).open(), self._hidden, graph), lexical)

    def _files(self, embedder_id: str) -> VectorFiles:
        files = self._vector_files.get(embedder_id)
        if files is None:
            name = hashlib.sha256(embedder_id.encode()).hexdigest()[:12]
            directory = SegmentDirectory(self._path / "vectors" / name)
            files = self._vector_files.setdefault(embedder_id, VectorFiles(self._database, directory, embedder_id))
        return files

    def full_text(self, dimension: int, progress: Progress = silent) -> TsRankIndex:
        """The ts_rank index over the chunks of the last refresh, built on demand. Its row order is that of a PostgreSQL
        server filled in import order with embeddings of `dimension` values, which decides how equal ranks are ordered.
        Raises what `progress` raises."""
        from cems_workbench.store.search.postgres import TsRankIndex

        with self._exclusive():
            version = self._database.cached_content_version()
            if self._full_text is None or self._full_text[0] != version:
                state = self._full_text_state()
                manifest = state.manifest
                if manifest is None or manifest.content_version != version:
                    manifest = self._build_full_text(dimension, progress)
                    if state.damage:
                        self._notice(f"the full-text index was damaged ({state.problem}) and was rebuilt")
                (segment,) = segments_of(manifest)
                index = TsRankIndex(self._full_text_directory.path / segment.name, self._hidden)
                self._full_text = manifest.content_version, index
            return self._full_text[1]

    def refresh(
        self,
        embedder: Embedder,
        progress: Progress = silent,
        timeout_s: float | None = None,
        precomputed: KnownVectors | None = None,
    ) -> RefreshReport:
        """Refresh both indexes to the current content, in durable batches: the next refresh continues a cancelled one.

        `precomputed` vectors replace embedding; InputError if one does not match its text. Raises what `progress` raises, StoreError if
        vectors from a source were made by another embedder, and StoreLockedError if another process refreshes for more than `timeout_s`.
        """
        with self._exclusive(timeout_s):
            return self._refresh(embedder, progress, precomputed)

    def check(self, embedder_id: str, dimension: int | None) -> None:
        """Raise EmbedderMismatchError if the store's vectors were made by another embedder or have another `dimension` (None: unknown).

        Each embedder has its own vectors, so any embedder used before matches, also of an earlier revision. A store without vectors
        accepts any. Raises StoreError if vectors came with a source's memories and were made by another embedder.
        """
        with self._database.reading() as cursor:
            sources.check_embedder(cursor, embedder_id)
            recorded = records(cursor)
            known = {name: value for name, value in recorded.items() if embedded.count(cursor, value.collection)}
        if embedder_id in recorded:
            dimension_then = known[embedder_id].dimension if embedder_id in known else None
            if None not in (dimension_then, dimension) and dimension_then != dimension:
                raise other_dimension(embedder_id, dimension_then or 0, embedder_id, dimension or 0)
            return
        revisions = {name.partition(REVISION_SEPARATOR)[0] for name in known if name.startswith(OLLAMA_PREFIX)}
        if known and embedder_id.partition(REVISION_SEPARATOR)[0] not in revisions:
            latest = max(known, key=lambda name: (known[name].version or 0, name))
            raise other_model(latest, known[latest].dimension, embedder_id)

    def rebuild(
        self, embedder: Embedder, progress: Progress = silent, precomputed: KnownVectors | None = None
    ) -> RefreshReport:
        """Delete both indexes and rebuild them from the memories. Raises what `progress` raises; `refresh` then
        continues. Indexes opened before may fail; open them again."""
        with self._exclusive():
            self._opened = {}
            self._full_text = None
            discard(self._full_text_directory.path)
            discard(self._lexical_directory.path)
            self._files(embedder.model_id).discard()
            return self._refresh(embedder, progress, precomputed)

    def _refresh(
        self, embedder: Embedder, progress: Progress, precomputed: KnownVectors | None = None
    ) -> RefreshReport:
        started = time.perf_counter()
        with self._database.reading() as cursor:
            sources.check_embedder(cursor, embedder.model_id)
        try:
            messages = chunks.refresh_chunks(self._database, embedder, progress)
            version = self._database.read(chunks.cut_until)  # later changes are cut and indexed by the next refresh
            # Before the vectors: a cancelled embedding then leaves a current lexical index.
            rebuilt = self._refresh_lexical(version, progress)
            counts, notes = self._refresh_vectors(embedder, version, progress, precomputed)
            self._forget_removed(version)
        finally:
            # Even after an error: the batches written before it changed the indexes.
            self._opened = {}
        for note in (*(rebuilt or ()), *notes):
            self._notice(note)
        return RefreshReport(
            version, *counts, rebuilt is not None, time.perf_counter() - started, (*messages, *(rebuilt or ()), *notes)
        )

    def _forget_removed(self, version: int) -> None:
        """Drop the record of memories that an undo removed, once the indexes of every embedder are without them."""
        with self._database.reading() as cursor:
            if not cursor.execute("SELECT 1 FROM removed_memories LIMIT 1").fetchall():
                return
            recorded = records(cursor).values()
        versions = [each.version for each in recorded if each.version is not None]
        if len(versions) < len(recorded):
            return
        with self._database.transaction() as cursor:
            gone = memories.forget_removed(cursor, min([version, *versions]))
            deleted = memories.deleted_ids(cursor)
        # Opened indexes are from before this refresh, and are opened again.
        self._hidden.difference_update(set(gone) - deleted)

    def states(self, embedder_id: str | None = None, deep: bool = False) -> list[IndexState]:
        """The states of the lexical index and of one embedder's vectors (None: of all known embedders), verified. Each
        is verified once, and again when its files change; `deep` verifies every file and every vector again."""
        with self._check_lock:
            with self._database.reading() as cursor:
                version, recorded = read_content_version(cursor), records(cursor)
            wanted = list(recorded) if embedder_id is None else [embedder_id]
            if deep:
                for directory in (self._lexical_directory, *(self._files(name).directory for name in wanted)):
                    directory.invalidate()
            vectors = [self._vector_state(name, recorded.get(name), version) for name in wanted]
            return [_index_state("lexical", self._lexical_state(), version), *vectors]

    def _vector_state(self, name: str, record: VectorRecord | None, version: int) -> IndexState:
        built = record.version if record is not None else None
        state = self._files(name).state(record)
        note = "" if built == version else "never built" if record is None else _staleness(built, version)
        if record is None:
            return IndexState(f"vectors {name}", None, version, False, 0, note)
        rows = self._database.read(embedded.count, record.collection)
        fresh = built == version and not state.problem
        note = state.problem if state.damage or not note else note
        return IndexState(f"vectors {name}", built, version, fresh, rows, note, state.damage)

    def full_text_state(self, deep: bool = False) -> IndexState:
        """The state of the ts_rank index, which is built on demand."""
        if deep:
            self._full_text_directory.invalidate()
        return _index_state("full text", self._full_text_state(), self._database.cached_content_version())

    def _full_text_state(self) -> DirectoryState:
        return self._database.read(self._full_text_directory.state, TS_RANK_VERSION)

    def _lexical_state(self) -> DirectoryState:
        with self._database.reading() as cursor:
            return self._lexical_directory.state(cursor, tokenizer.version(language.language(cursor)))

    def _notice(self, line: str) -> None:
        if line not in self.notices:
            self.notices.append(line)
            log.warning("%s", line)

    def documents(self) -> list[entries.Document]:
        """Every live memory with its texts, in import order, all of one content version."""
        while True:
            with suppress(entries.ContentChangedError):
                return list(entries.documents(self._database, "rowid"))

    def analysed(self, analysis: Analysis) -> LexicalIndex:
        """A lexical index of every live memory in another analysis: in a temporary directory, for as long as it is
        used. Raises StoreError if it cannot be written."""
        directory = tempfile.TemporaryDirectory(prefix="lexical-", ignore_cleanup_errors=True)
        try:
            ids = entries.live_ids(self._database, "rowid")
            read = entries.documents_of(self._database, ids, "rowid")
            segments = lexical_segment.write_segments(Path(directory.name), read, len(ids), silent, analysis)
            index = LexicalIndex.open(Path(directory.name), segments, frozenset(), analysis)
        except OSError as error:
            raise StoreError(f"cannot write a lexical index to {directory.name}: {error}") from error
        weakref.finalize(index, directory.cleanup)
        return index

    def texts(self, ids: Sequence[str]) -> dict[str, dict[int | None, str]]:
        """The indexed texts by memory id: those of its chunks by number, or its own under None; unknown ids are absent."""
        with self._database.reading() as cursor:
            numbers = {key: [chunk.seq for chunk in own] for key, own in chunks.read(cursor, ids).items()}
            entry_ids: list[EntryId] = [(key, seq) for key in dict.fromkeys(ids) for seq in numbers.get(key) or (None,)]
            texts: dict[str, dict[int | None, str]] = {}
            for entry in entries.read(cursor, entry_ids):
                texts.setdefault(entry.id[0], {})[entry.id[1]] = entry.text
        return texts

    def chroma_records(self, keys: Sequence[EntryId]) -> list[tuple[EntryId, str, dict[str, Any]]]:
        """(entry, text, metadata) as a collection of Chroma has them, of the live ones among these entries."""
        return self._database.read(chroma_records.read, keys)

    def vocabulary(self) -> Vocabulary:
        """The words of the live memories with their document frequency, computed once per content version."""
        return self._vocabulary.read()

    def _refresh_lexical(self, version: int, progress: Progress) -> tuple[str, ...] | None:
        """None if it was current; otherwise the notices about the rebuild."""
        state = self._lexical_state()
        if state.manifest is not None and state.manifest.content_version == version:
            return None
        self._update_lexical(state.manifest, version, progress)
        return (f"the lexical index was damaged ({state.problem}) and was rebuilt",) if state.damage else ()

    def _update_lexical(self, manifest: Manifest | None, version: int, progress: Progress) -> None:
        """Index the memories that changed since the index's content version, or all without one. The result has the
        content version at which the memories were cut. Concurrent changes may or may not be in it; they are newer than
        that version, so the next refresh reads them again."""
        with self._database.reading() as cursor:
            identity, lexical_language = earlier_identity(cursor, version), language.language(cursor)
            changed = [] if manifest is None else memories.changed_since(cursor, manifest.content_version)
        ids = entries.live_ids(self._database, "rowid") if manifest is None else changed
        read = entries.documents_of(self._database, ids, "rowid" if manifest is None else "id")
        directory, segments = self._lexical_directory.path, segments_of(manifest)
        lexical_segment.update(
            directory, segments, changed, read, len(ids), version, progress, identity or "", lexical_language
        )

    def _build_full_text(self, dimension: int, progress: Progress) -> Manifest:
        from cems_workbench.store.search import postgres

        with self._database.reading() as cursor:
            version, identity = read_content_version(cursor), content_identity(cursor)
        # Changes of other processes may or may not be in it; they are newer than this version, so the next use builds it again.
        rows = postgres.in_server_order(self.documents(), dimension)
        return postgres.build(self._full_text_directory.path, rows, len(rows), version, progress, identity)

    def _refresh_vectors(
        self, embedder: Embedder, version: int, progress: Progress, precomputed: KnownVectors | None
    ) -> tuple[tuple[int, int, int], list[str]]:
        """The numbers of embedded, relabelled and removed entries, and notes."""
        files = self._files(embedder.model_id)
        record, notes = files.begin(version), list[str]()
        if not files.consistent(record):
            notes = self._reconcile(files, record, progress)
            record = replace(files.record() or record, version=None)
            files.save(record)
        counts = refresh_vectors(self._database, files, record, embedder, progress, precomputed)
        # Last: a crash before this repeats the refresh, and never skips a change.
        files.complete()
        return counts, notes

    def _reconcile(self, files: VectorFiles, record: VectorRecord, progress: Progress) -> list[str]:
        """Make an embedder's files and records agree after a crash or damage; returns notes."""
        state = files.state(record)
        copy = self._copy(files.embedder_id)
        recovered, lost = files.reconcile(partial(self._in_chroma, copy, record), progress)
        if state.damage:
            found = f"{recovered:,} were recovered from Chroma, {lost:,} are embedded again"
            return [f"the vectors of {files.embedder_id} were damaged ({state.problem}): {found}"]
        return []

    def _in_chroma(
        self, copy: ChromaCollection, record: VectorRecord, entry_ids: Sequence[EntryId]
    ) -> Iterator[tuple[EntryId, Float32]]:
        """Those of these vectors that Chroma has; none if it cannot be read."""
        try:
            yield from copy.stored_vectors(record, entry_ids)
        except StoreError:
            # A server may be back later; what cannot be read here is embedded again, and reported.
            if self._chroma_url:
                raise

    def chroma_state(self, embedder_id: str) -> ChromaState:
        """What the store's Chroma collection of an embedder holds and lacks; no Chroma is loaded for that."""
        return self._copy(embedder_id).state(self._files(embedder_id).record())

    def catch_up_chroma(self, embedder_id: str, progress: Progress = silent, most: int | None = MOST_AT_ONCE) -> str:
        """Write to the store's Chroma collection what it lacks, unless these are more than `most` changes; loads
        nothing if it is current. Returns one line about what was left undone and why, or an empty string. Raises what
        `progress` raises; what was written stays."""
        copy = self._copy(embedder_id)
        try:
            self._write_chroma(copy, progress, most)
        except StoreError as error:
            return copy.refused(str(error)).line
        return "" if self._is_complete(copy) else self.chroma_state(embedder_id).line

    def renew_chroma(
        self, embedder_id: str, progress: Progress = silent, hnsw: Mapping[str, int] = MappingProxyType({})
    ) -> str:
        """As `catch_up_chroma` without a limit; a collection that cannot be written to, or lacks nothing, is replaced
        by a new one. So is any collection if `hnsw` has settings of the graph: Chroma takes them when a collection is
        made. A folder that cannot be read is moved aside, which the returned line says."""
        copy, said = self._copy(embedder_id), ""
        try:
            try:
                if not hnsw and not self._is_complete(copy):
                    self._write_chroma(copy, progress, None)
                    return ""
            except StoreError:
                log.info("the Chroma collection %s is replaced", copy.name, exc_info=True)
            self._graphs.pop(embedder_id, None)
            with self._exclusive():
                said = copy.renew(hnsw)
            self._write_chroma(copy, progress, None)
        except StoreError as error:
            return f"Chroma at {copy.place}: {error}"
        return said

    def compare_chroma(self, embedder_id: str, progress: Progress = silent) -> tuple[int, list[str]]:
        """Compare every record of Chroma with the store's: their number, and a line for each kind of difference. Raises StoreError."""
        with self._exclusive():
            record, vectors = self._files(embedder_id).record(), self._files(embedder_id).open()
            if record is None or vectors is None:
                return 0, []
            return self._copy(embedder_id).compare(record, vectors, progress)

    def _is_complete(self, copy: ChromaCollection) -> bool:
        record = self._files(copy.embedder_id).record()
        return record is None or not record.files or copy.complete_for(record)

    def _write_chroma(
        self, copy: ChromaCollection, progress: Progress, most: int | None, rows: int = WRITE_ROWS
    ) -> int:
        """Write it, `rows` at a time. Returns how many changes are left: none unless they are more than `most`. Raises
        Cancelled once it is closed."""
        files, done, left = self._files(copy.embedder_id), 0, 0
        while True:
            if self._closed:
                raise Cancelled
            if self._is_complete(copy):
                return 0
            progress(CHROMA_LABEL, done, done + left)
            # For each batch, so that a refresh need not wait for all.
            with self._exclusive():
                record, vectors = files.record(), files.open()
                if record is None or vectors is None or not files.consistent(record):
                    return 0
                written, left = copy.write(record, vectors, most, rows)
            done += written
            if not written:
                return left
            time.sleep(YIELD_S)

    def graph(
        self, embedder: Embedder, progress: Progress = silent, ef_search: int | None = None, rows: int = WRITE_ROWS
    ) -> Collection:
        """The store's Chroma collection, brought up to date to search its graph. Raises as `_write_chroma` does, and
        StoreError. With an `ef_search` it is a temporary copy of its files, which is kept for others; of a server the
        collection, for its own or more."""
        copy = self._copy(embedder.model_id)
        if self._write_chroma(copy, progress, MOST_AT_ONCE, rows):
            raise StoreError(self.chroma_state(embedder.model_id).line)
        record, collection = self._files(embedder.model_id).record(), copy.collection()
        if record is not None:
            self._graphs[embedder.model_id] = record, collection
        if ef_search is None:
            return collection
        if self._chroma_url:
            if ef_search >= (own := self._hnsw(collection)["ef_search"]):
                return collection
            raise StoreError(
                f"a Chroma server cannot be searched with ef_search {ef_search}, below its collection's {own}"
            )
        with self._exclusive():
            state = str(collection.id), record
            if self._graph_copy is None or self._graph_copy[0] != state:
                self._graph_copy = None  # its files first
                self._graph_copy = state, copy.directory.copy(copy.name)
            return self._graph_copy[1]

    def graph_settings(self, embedder: Embedder) -> Mapping[str, int]:
        """The ef_search, ef_construction and max_neighbors of Chroma's graph. Raises as `graph` does."""
        return self._hnsw(self.graph(embedder))

    @staticmethod
    def _hnsw(collection: Collection) -> Mapping[str, int]:
        found: Any = collection.configuration.get("hnsw")
        if not found:
            raise StoreError(f"Chroma's collection {collection.name} has no HNSW graph")
        return {name: found[name] for name in ("ef_search", "ef_construction", "max_neighbors")}

    def open_graph(self, embedder_id: str) -> Collection | None:
        """The collection if this process has it open with the vectors that are searched; None otherwise, and nothing is loaded."""
        known = self._graphs.get(embedder_id)
        return known[1] if known and known[0] == self._database.read(records).get(embedder_id) else None

    def _copy(self, embedder_id: str) -> ChromaCollection:
        """The Chroma collection of an embedder, which most processes never open."""
        from cems_workbench.store.search.chroma_collection import ChromaCollection

        if embedder_id not in self._copies:
            copy = ChromaCollection(self._database, self._chroma_directory(), self._collection_name(embedder_id), embedder_id)
            self._copies[embedder_id] = copy
        return self._copies[embedder_id]

    def _chroma_directory(self) -> ChromaDirectory:
        from cems_workbench.store.search.chroma import ChromaDirectory

        if self._chroma is None:
            self._chroma = ChromaDirectory(self._path / "chroma", self._chroma_url)
        return self._chroma

    def held_in_chroma(self, memory_id: str, text: str) -> Iterator[tuple[str, int, int]]:
        """The store's collections, of every embedder it had: name, records, and how many are of a memory or contain a
        text. Raises StoreError."""
        directory = self._chroma_directory()
        if not directory.exists():
            return
        with directory.client() as client:
            for collection in client.list_collections():
                if collection.name.startswith(f"cems-{self._store_id}-"):
                    own: Any = collection.get(where={"memory": memory_id}, include=[])
                    same: Any = collection.get(where_document={"$contains": text}, include=[]) if text else {"ids": []}
                    yield collection.name, collection.count(), len({*own["ids"], *same["ids"]})

    def erase(self, memory_id: str) -> list[str]:
        """Write all vectors again without a memory and all that is deleted; remove the lexical indexes and the files of Chroma, which the
        next refresh makes again. No text is embedded. Returns the embedders whose records on a Chroma server `renew_chroma`
        removes after that refresh. Raises StoreError."""
        with self._exclusive():
            self._opened, self._graphs, self._graph_copy, self._full_text = {}, {}, None, None
            for directory in (self._full_text_directory, self._lexical_directory):
                discard(directory.path)
            known = [*self._database.read(records)]
            for embedder_id in known:
                self._files(embedder_id).erase(memory_id)
            if self._chroma_url:
                return known
            self._chroma_directory().discard()
            return []

    def _collection_name(self, embedder_id: str) -> str:
        return f"cems-{self._store_id}-{hashlib.sha256(embedder_id.encode()).hexdigest()[:12]}"


def _noop() -> None:
    """The build lock opens and closes no file."""


def _index_state(name: str, directory: DirectoryState, version: int) -> IndexState:
    if directory.manifest is None:
        return IndexState(name, None, version, False, 0, directory.problem or "never built", directory.damage)
    built = directory.manifest.content_version
    note = "" if built == version else _staleness(built, version)
    return IndexState(name, built, version, built == version, directory.manifest.rows, note)


def _staleness(built: int | None, version: int) -> str:
    return (
        "partly built; refresh to continue"
        if built is None
        else f"{counted(version - built, 'changes')} behind; refresh to catch up"
    )
