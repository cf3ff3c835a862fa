"""The derived indexes of a store (vectors, lexical, full text): opening, refreshing, verifying.

Each records the content version it was built from: the lexical index in its manifest, an embedder's vectors in the meta table, together
with their dimension and the id of the Chroma collection, so that a recreated collection is not mistaken for the lost one.

Both are verified before use: complete files, of this store and its content. A damaged index is rebuilt by the next refresh, with a line
in `notices`.
"""

from __future__ import annotations

import json
import logging
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cems_workbench.errors import StoreError, StoreLockedError
from cems_workbench.models.embedder_match import other_dimension, other_model
from cems_workbench.models.protocol import Embedder
from cems_workbench.platform.process_lock import Holder, SharedLock
from cems_workbench.progress import Progress, silent
from cems_workbench.store import chunks, language, memories, sources
from cems_workbench.store.database import Database
from cems_workbench.store.filter import Filter
from cems_workbench.store.meta import (
    content_identity,
    delete_meta,
    earlier_identity,
    read_content_version,
    read_meta,
    write_meta,
)
from cems_workbench.store.precomputed_embeddings import PrecomputedVectors
from cems_workbench.store.search import (
    entries,
)
from cems_workbench.store.search.directory.index_directory import (
    DirectoryState,
    IndexDirectory,
    Manifest,
    discard,
    read_manifest,
)
from cems_workbench.store.search.directory.segment_directory import SegmentDirectory, segments_of
from cems_workbench.store.search.entries import EntryId, key_of
from cems_workbench.store.search.lexical import lexical_refresh, tokenizer
from cems_workbench.store.search.lexical.lexical_index import LexicalIndex
from cems_workbench.store.search.lexical.tokenizer import Analysis
from cems_workbench.store.search.lexical.vocabulary import CurrentVocabulary, Vocabulary
from cems_workbench.store.search.postgres import VERSION as FULL_TEXT_VERSION
from cems_workbench.store.search.vectors import chroma, embedded, quantized_refresh, write_buffer
from cems_workbench.store.search.vectors.chroma_directory import ChromaDirectory
from cems_workbench.store.search.vectors.quantized_vectors import QuantizedVectors
from cems_workbench.store.search.vectors.vector_cache import VectorCache
from cems_workbench.store.search.vectors.vector_check import VectorCheck, verify
from cems_workbench.store.search.vectors.vector_index import EXACT_ROWS, VectorIndex
from cems_workbench.store.search.vectors.vector_refresh import counts_match, refresh_vectors
from cems_workbench.store.search.vectors.write_buffer import FLUSH_THRESHOLD, BufferedCollection

if TYPE_CHECKING:
    import duckdb
    from chromadb.api.models.Collection import Collection

    from cems_workbench.store.search.postgres.ts_rank_index import TsRankIndex

log = logging.getLogger(__name__)
IndexMark = tuple[str | None, str | None]
"""The directory of the lexical index, and the record of the vectors."""
_META_PREFIX = "vectors:"
FLUSH_LABEL = "flushing vectors into the graph"
QUANTIZED_COPY = "the int8 copy for filtered searches"
MAX_BUILD_ATTEMPTS = 3
"""Attempts to build an index while other processes change the content; the last one blocks writers."""
SERVER_RETRY_S = 5.0
"""How long an unreachable server is not verified again."""
FLUSH_SLICE_S = 1.0
"""Time of one flush slice; after each, other processes reload the graph."""
FLUSH_DELAY_S = 2.0
"""Delay of the background flush after a refresh, so that the caller has the processor first."""
OLLAMA_PREFIX, REVISION_SEPARATOR = "ollama:", "@"
"""Ids of Ollama models end with a revision, which changes when the model is pulled again."""


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """What a refresh of the derived indexes did; `seconds` is wall time.

    `embedded` texts (memories or their chunks) were encoded and written, `relabelled` entries changed project or scope only, `removed`
    entries left the index.
    """

    content_version: int
    embedded: int = 0
    relabelled: int = 0
    removed: int = 0
    lexical_rebuilt: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexState:
    """One derived index: the content `version` it was built from (None: never), and whether it is complete and current (`fresh`).

    `damaged`: its files were changed or lost.
    """

    name: str
    version: int | None
    content_version: int
    fresh: bool
    rows: int
    note: str = ""
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Content:
    """The input of an index: content version and identity, number of live memories, and language."""

    version: int
    identity: str
    memories: int
    language: str


@dataclass(frozen=True, slots=True)
class Indexes:
    """Both indexes, open, with their states at that moment."""

    vectors: VectorIndex
    lexical: LexicalIndex
    states: tuple[IndexState, ...] = ()


class DerivedIndexes:
    """Vectors and lexical index of one store."""

    def __init__(self, path: Path, database: Database, store_id: str, chroma_url: str | None, hidden: set[str]) -> None:
        self._chroma = ChromaDirectory(path / "chroma", chroma_url)
        self._lexical_directory = SegmentDirectory(path / "lexical", tokenizer.VERSION)
        self._full_text_directory = IndexDirectory(path / "ts_rank", FULL_TEXT_VERSION)
        self._quantized_path = path / "codes"
        self._quantized_directories: dict[str, SegmentDirectory] = {}
        self._database = database
        self._store_id = store_id
        self._hidden = hidden
        self._refresh_lock = threading.Lock()
        self._build_lock = SharedLock(path / ".indexes.lock", f"the work on the indexes of {path}", _noop, _noop)
        self._opened: dict[str, tuple[IndexMark, Indexes]] = {}
        self._vector_caches: dict[str, VectorCache] = {}
        self._vocabulary = CurrentVocabulary(self._lexical_manifest, database)
        self._full_text: tuple[int, TsRankIndex] | None = None
        self._check_lock = threading.RLock()
        self._checks: dict[str, VectorCheck] = {}
        self._checked_at: dict[str, float] = {}
        """When the vectors of an embedder were last verified."""
        self._flusher: threading.Thread | None = None
        self._closing = threading.Event()
        self.stale_reason = ""
        """Why searches miss the latest changes (another process is refreshing the indexes), one line; empty if they do not."""
        self.notices: list[str] = []
        """Damaged indexes that were rebuilt since the store was opened, a line each."""

    def close(self) -> None:
        """Release Chroma's files. Buffered changes stay buffered."""
        self._closing.set()
        if self._flusher is not None:
            # Before Chroma closes: the thread writes into its graph.
            self._flusher.join()
        self._chroma.close()
        self._build_lock.close()

    @contextmanager
    def _exclusive(self, timeout_s: float | None = None, *, wait: bool = True) -> Iterator[None]:
        """Hold the build lock. Raises StoreLockedError if another process keeps it longer than `timeout_s`.

        Without `wait`, also if another thread of this process has it.
        """
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
        return (
            self._chroma.replaced()
            or self._lexical_directory.signature() != self._lexical_directory.verified_signature()
            or any(
                home.verified_signature() not in (None, home.signature())
                for home in self._quantized_directories.values()
            )
        )

    def open(self, embedder: Embedder) -> Indexes:
        """Both indexes as of the last refresh; empty if never built. `states` tells whether they are current.

        Open again after a refresh: earlier objects stay usable, but show the earlier content.
        """
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
        manifest = read_manifest(self._lexical_directory.path)
        with self._database.reading() as cursor:
            return manifest.directory if manifest else None, read_meta(cursor, _META_PREFIX + embedder.model_id)

    def _open(self, embedder: Embedder) -> Indexes:
        with self._database.reading() as cursor:
            words = language.language(cursor)
        segments = segments_of(self._lexical_state(words).manifest)
        lexical = LexicalIndex.open(self._lexical_directory.path, segments, self._hidden, words)
        collection = self._find(embedder.model_id)
        key = "" if collection is None else str(collection.id)
        quantized = None if collection is None else self._open_quantized(embedder.model_id, key)
        with self._database.reading() as cursor:
            chunked = embedded.chunks_of(cursor, key) if quantized is None else {}
        cache = self._vector_caches.setdefault(embedder.model_id, VectorCache())
        vectors = VectorIndex(
            collection,
            lambda where: self._passing(key, where),
            partial(cache.read, self._database),
            chunked,
            self._hidden,
            quantized,
        )
        return Indexes(vectors, lexical)

    def _open_quantized(self, embedder_id: str, collection_id: str) -> QuantizedVectors | None:
        """The quantized vectors of a collection; None if it is small or they are not current."""
        with self._database.reading() as cursor:
            recorded = _recorded(cursor).get(embedder_id, {})
        manifest = self._quantized_state(embedder_id, collection_id).manifest
        if manifest is None or recorded.get("version") != manifest.content_version:
            return None
        return quantized_refresh.open_vectors(self._quantized_directory(embedder_id).path, segments_of(manifest))

    def _quantized_directory(self, embedder_id: str) -> SegmentDirectory:
        """The directory of an embedder's quantized vectors."""
        name = self._collection_name(embedder_id).rpartition("-")[2]
        return self._quantized_directories.setdefault(
            embedder_id, SegmentDirectory(self._quantized_path / name, quantized_refresh.VERSION)
        )

    def _quantized_state(self, embedder_id: str, collection_id: str) -> DirectoryState:
        """The state of the quantized vectors; empty for a small collection."""
        with self._database.reading() as cursor:
            if embedded.count(cursor, collection_id) <= EXACT_ROWS:
                return DirectoryState(None)
            kind, known = quantized_refresh.manifest_version(collection_id), partial(earlier_identity, cursor)
            directory = self._quantized_directory(embedder_id)
            return directory.refreshable_state(read_content_version(cursor), content_identity(cursor), kind, known)

    def full_text(self, dimension: int, progress: Progress = silent) -> TsRankIndex:
        """The ts_rank index over the chunks of the last refresh, built on demand.

        Its row order is that of a PostgreSQL server filled in import order with embeddings of `dimension` values, which decides how
        equal ranks are ordered. Raises what `progress` raises.
        """
        from cems_workbench.store.search.postgres.ts_rank_index import TsRankIndex

        with self._exclusive():
            version = self._content_version()
            if self._full_text is None or self._full_text[0] != version:
                state = self._state(self._full_text_directory)
                manifest = state.manifest
                if manifest is None or manifest.content_version != version:
                    manifest = self._build_consistent(
                        lambda content: self._build_full_text(content, dimension, progress)
                    )
                    version = manifest.content_version
                    if state.damage:
                        self._notice(f"the full-text index was damaged ({state.problem}) and was rebuilt")
                self._full_text = (
                    version,
                    TsRankIndex(self._full_text_directory.path / manifest.directory, self._hidden),
                )
            return self._full_text[1]

    def refresh(
        self,
        embedder: Embedder,
        progress: Progress = silent,
        timeout_s: float | None = None,
        precomputed: PrecomputedVectors | None = None,
    ) -> RefreshReport:
        """Refresh both indexes to the current content, in durable batches: the next refresh continues a cancelled one.

        `precomputed` vectors replace embedding; InputError if one does not match its text. Raises what `progress` raises, StoreError if
        vectors from a source were made by another embedder, and StoreLockedError if another process refreshes for more than `timeout_s`.
        """
        with self._exclusive(timeout_s):
            report = self._refresh(embedder, progress, precomputed)
        self._flush_later()
        return report

    def check(self, embedder_id: str, dimension: int | None) -> None:
        """Raise EmbedderMismatchError if the store's vectors were made by another embedder or have another `dimension` (None: unknown).

        Each embedder has its own vectors, so any embedder used before matches, also of an earlier revision. A store without vectors
        accepts any. Raises StoreError if vectors came with a source's memories and were made by another embedder.
        """
        with self._database.reading() as cursor:
            sources.check_embedder(cursor, embedder_id)
            recorded = _recorded(cursor)
            known = {name: value for name, value in recorded.items() if embedded.count(cursor, value["collection"])}
        if embedder_id in recorded:
            dimension_then = (
                self._recorded_dimension(embedder_id, recorded[embedder_id]) if embedder_id in known else None
            )
            if None not in (dimension_then, dimension) and dimension_then != dimension:
                raise other_dimension(embedder_id, dimension_then or 0, embedder_id, dimension or 0)
            return
        revisions = {name.partition(REVISION_SEPARATOR)[0] for name in known if name.startswith(OLLAMA_PREFIX)}
        if known and embedder_id.partition(REVISION_SEPARATOR)[0] not in revisions:
            latest = max(known, key=lambda name: (known[name]["version"] or 0, name))
            raise other_model(latest, self._recorded_dimension(latest, known[latest]), embedder_id)

    def _recorded_dimension(self, embedder_id: str, recorded: dict[str, Any]) -> int | None:
        """The dimension of an embedder's vectors, read from the collection if an earlier version did not record it."""
        if "dimension" not in recorded:
            collection = self._find(embedder_id)
            return None if collection is None else chroma.dimension(collection)
        return int(recorded["dimension"])

    def rebuild(self, embedder: Embedder, progress: Progress = silent) -> RefreshReport:
        """Delete both indexes and rebuild them from the memories. Raises what `progress` raises; `refresh` then continues.

        Indexes opened before may fail; open them again.
        """
        with self._exclusive():
            self._opened = {}
            self._full_text = None
            discard(self._full_text_directory.path)
            discard(self._lexical_directory.path)
            self._discard_vectors(embedder)
            discard(self._quantized_directory(embedder.model_id).path)
            return self._refresh(embedder, progress)

    def _refresh(
        self, embedder: Embedder, progress: Progress, precomputed: PrecomputedVectors | None = None
    ) -> RefreshReport:
        started = time.perf_counter()
        with self._database.reading() as cursor:
            sources.check_embedder(cursor, embedder.model_id)
        try:
            messages = chunks.refresh_chunks(self._database, embedder, progress)
            with self._database.reading() as cursor:
                version = chunks.cut_until(cursor)  # later changes are cut and indexed by the next refresh
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
            versions = [each["version"] for each in _recorded(cursor).values()]
        if None in versions:
            return
        with self._database.transaction() as cursor:
            gone = memories.forget_removed(cursor, min([version, *versions]))
            deleted = memories.deleted_ids(cursor)
        # Opened indexes are from before this refresh, and are opened again.
        self._hidden.difference_update(set(gone) - deleted)

    def _discard_vectors(self, embedder: Embedder) -> None:
        """Delete the records of the embedder's vectors, then the vectors: a crash in between leaves a collection that is cleaned later."""
        name = self._collection_name(embedder.model_id)
        with self._database.transaction() as cursor:
            recorded = read_meta(cursor, _META_PREFIX + embedder.model_id)
            if recorded is not None:
                embedded.remove_collection(cursor, json.loads(recorded)["collection"])
                write_buffer.clear(cursor, json.loads(recorded)["collection"])
                delete_meta(cursor, _META_PREFIX + embedder.model_id)
        try:
            self._chroma.drop(name)
        except StoreError as error:
            if self._chroma.url:
                raise
            self._chroma.discard(str(error))
        self._chroma.discard_reason = ""  # a rebuild is no news
        self._checks.clear()

    def states(self, embedder_id: str | None = None, deep: bool = False) -> list[IndexState]:
        """The states of the lexical index and of one embedder's vectors (None: of all known embedders), verified.

        Each is verified once, and again when its files change; `deep` verifies every file and every vector again.
        """
        with self._check_lock:
            # A client of removed files would still answer from memory.
            if self._chroma.replaced():
                self._chroma.close()
                self._opened, self._checks = {}, {}
            if deep:
                for directory in (self._lexical_directory, *self._quantized_directories.values()):
                    directory.invalidate()
                self._checks = {}
            with self._database.reading() as cursor:
                version = read_content_version(cursor)
                recorded = _recorded(cursor)
            wanted = list(recorded) if embedder_id is None else [embedder_id]
            checks = {name: self._check(name, recorded.get(name), deep) for name in wanted}
            quantized = {name: self._quantized_problem(name, recorded.get(name)) for name in wanted}
            with self._database.reading() as cursor:
                vectors = [
                    _vector_state(
                        name,
                        recorded.get(name),
                        version,
                        embedded.count(cursor, recorded[name]["collection"]) if name in recorded else 0,
                        checks[name],
                        quantized[name],
                        write_buffer.count(cursor, recorded[name]["collection"]) if name in recorded else 0,
                    )
                    for name in wanted
                ]
            return [_index_state("lexical", self._lexical_state(), version), *vectors]

    def full_text_state(self, deep: bool = False) -> IndexState:
        """The state of the ts_rank index, which is built on demand."""
        if deep:
            self._full_text_directory.invalidate()
        return _index_state("full text", self._state(self._full_text_directory), self._content_version())

    def _quantized_problem(self, embedder_id: str, recorded: dict[str, Any] | None) -> DirectoryState:
        """Why the quantized copy of intact vectors is missing or stale, in `problem`; empty if it is not."""
        if recorded is None or recorded["version"] is None:
            return DirectoryState(None)
        state = self._quantized_state(embedder_id, recorded["collection"])
        with self._database.reading() as cursor:
            few = embedded.count(cursor, recorded["collection"]) <= EXACT_ROWS
        if few or (state.manifest is not None and state.manifest.content_version == recorded["version"]):
            return DirectoryState(None)
        return DirectoryState(None, state.problem or "not built", state.damage)

    def _check(self, embedder_id: str, recorded: dict[str, Any] | None, deep: bool) -> VectorCheck:
        """The verification result of an embedder's vectors, cached until a refresh fails.

        An unreachable server is verified again after SERVER_RETRY_S, because each attempt may take long.
        """
        if recorded is None:
            return VectorCheck()
        known = self._checks.get(embedder_id)
        since_check_s = time.monotonic() - self._checked_at.get(embedder_id, 0.0)
        if known is None or (known.unreadable and self._chroma.url and since_check_s > SERVER_RETRY_S):
            known = self._checks[embedder_id] = self._verify_vectors(embedder_id, recorded["collection"], deep)
            self._checked_at[embedder_id] = time.monotonic()
        return known

    def _verify_vectors(self, embedder_id: str, collection_id: str, deep: bool) -> VectorCheck:
        directory = self._chroma
        try:
            collection = self._find(embedder_id)
        except StoreError as error:
            return VectorCheck(str(error), unreadable=True)
        if collection is None or str(collection.id) != collection_id:
            with self._database.reading() as cursor:
                if not embedded.count(cursor, collection_id):
                    return VectorCheck()  # it was empty
            return VectorCheck(
                f"they are gone ({directory.discard_reason})" if directory.discard_reason else "they are gone"
            )
        with self._database.reading() as cursor:
            few = embedded.count(cursor, collection_id) <= EXACT_ROWS and not directory.url
        return verify(self._database, collection, deep or few or not (directory.verified or directory.url))

    def _state(self, directory: IndexDirectory) -> DirectoryState:
        with self._database.reading() as cursor:
            return directory.state(read_content_version(cursor), content_identity(cursor))

    def _lexical_state(self, lexical_language: str | None = None) -> DirectoryState:
        """The state of the lexical index in a language, by default the store's."""
        with self._database.reading() as cursor:
            wanted = tokenizer.version(lexical_language or language.language(cursor))
            known = partial(earlier_identity, cursor)
            return self._lexical_directory.refreshable_state(
                read_content_version(cursor), content_identity(cursor), wanted, known
            )

    def _lexical_manifest(self) -> tuple[Path, Manifest | None]:
        """The path of the lexical index, and its manifest."""
        return self._lexical_directory.path, self._lexical_state().manifest

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
        """A lexical index of every live memory in another analysis: in a temporary directory, for as long as it is used.

        Raises StoreError if it cannot be written.
        """
        directory = tempfile.TemporaryDirectory(prefix="lexical-", ignore_cleanup_errors=True)
        try:
            ids = entries.live_ids(self._database, "rowid")
            read = entries.documents_of(self._database, ids, "rowid")
            segments = lexical_refresh.write_segments(Path(directory.name), read, len(ids), silent, analysis)
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
        """Index the memories that changed since the index's content version, or all without one.

        The result has the content version at which the memories were cut. Concurrent changes may or may not be in it; they are newer
        than that version, so the next refresh reads them again.
        """
        with self._database.reading() as cursor:
            identity, lexical_language = earlier_identity(cursor, version), language.language(cursor)
            changed = [] if manifest is None else memories.changed_since(cursor, manifest.content_version)
        ids = entries.live_ids(self._database, "rowid") if manifest is None else changed
        read = entries.documents_of(self._database, ids, "rowid" if manifest is None else "id")
        directory, segments = self._lexical_directory.path, segments_of(manifest)
        lexical_refresh.update(
            directory, segments, changed, read, len(ids), version, progress, identity or "", lexical_language
        )

    def _build_full_text(self, content: Content, dimension: int, progress: Progress) -> Manifest:
        from cems_workbench.store.search.postgres import ts_rank_refresh

        rows = ts_rank_refresh.in_server_order(entries.documents(self._database, "rowid"), dimension)
        directory = self._full_text_directory.path
        return ts_rank_refresh.build(directory, rows, len(rows), content.version, progress, content.identity)

    def _build_consistent(self, build: Callable[[Content], Manifest]) -> Manifest:
        """Call `build`, again if the content changes in the meantime, and finally with writers blocked."""
        for _ in range(MAX_BUILD_ATTEMPTS):
            with suppress(entries.ContentChangedError):
                return build(self._content())
        # Otherwise constant writes could prevent the build forever.
        with self._database.writing():
            return build(self._content())

    def _content(self) -> Content:
        with self._database.reading() as cursor:
            version, identity = read_content_version(cursor), content_identity(cursor)
            return Content(version, identity, memories.count(cursor), language.language(cursor))

    def _refresh_vectors(
        self, embedder: Embedder, version: int, progress: Progress, precomputed: PrecomputedVectors | None
    ) -> tuple[tuple[int, int, int], list[str]]:
        """The numbers of embedded, relabelled and removed entries, and notes."""
        with self._database.reading() as cursor:
            recorded = read_meta(cursor, _META_PREFIX + embedder.model_id)
        known: dict[str, Any] = json.loads(recorded) if recorded else {}
        with self._check_lock:
            if self._chroma.url:
                self._checks.pop(embedder.model_id, None)  # the server may be back
            check = self._check(embedder.model_id, known or None, False)
            if check.unreadable and self._chroma.url:
                raise StoreError(check.problem)
            if check.unreadable:
                self._chroma.discard(check.problem)
            self._checks.pop(embedder.model_id, None)
        collection, notes = self._collection(embedder, known.get("collection"))
        if str(collection.id) != known.get("collection"):
            with self._database.transaction() as cursor:
                write_buffer.clear(cursor, known.get("collection", ""))
            known = {"collection": str(collection.id), "version": None}
            self._record(embedder, known)
        elif check.problem or (known["version"] is not None and not counts_match(self._database, collection)):
            # Recorded first: removed vectors did not change since that version, so a refresh from it would skip them.
            known = {**known, "version": None}
            self._record(embedder, known)
            if check.problem:
                self._remove_damaged(collection, check)
                notes.append(
                    f"the vectors of {embedder.model_id} were damaged ({check.problem}); they are embedded again"
                )
        dimension = known.get("dimension")
        counts = refresh_vectors(
            self._database, collection, embedder, progress, known["version"], dimension, precomputed
        )
        dimension = dimension or chroma.dimension(collection)
        # After the vectors, which it reads back from Chroma.
        notes += self._refresh_quantized(embedder.model_id, collection, version, bool(check.problem), progress)
        # Last: a crash before this repeats the refresh, and never skips a change.
        self._record(embedder, {**known, "version": version} | ({"dimension": dimension} if dimension else {}))
        self._checks[embedder.model_id] = VectorCheck()
        return counts, notes

    def _refresh_quantized(
        self, embedder_id: str, collection: Collection, version: int, reembedded: bool, progress: Progress
    ) -> list[str]:
        """Refresh the quantized vectors to this content version; `reembedded`: rebuild them. Returns notes."""
        directory, name = self._quantized_directory(embedder_id), str(collection.id)
        state = self._quantized_state(embedder_id, name)
        with self._database.reading() as cursor:
            rows, identity = embedded.count(cursor, name), earlier_identity(cursor, version) or ""
        if rows <= EXACT_ROWS:
            discard(directory.path)
            return []
        before = None if reembedded else state.manifest
        if before is not None and before.content_version == version and before.rows == rows:
            return []
        # If an update leaves another number of rows, all segments are rebuilt.
        for manifest in [None] if before is None else [before, None]:
            with self._database.reading() as cursor:
                changed = None if manifest is None else memories.changed_since(cursor, manifest.content_version)
            updated = quantized_refresh.update(
                directory.path, segments_of(manifest), changed, self._database, collection, version, identity, progress
            )
            if updated.rows == rows:
                break
        return [f"{QUANTIZED_COPY} was damaged ({state.problem}) and was rebuilt"] if state.damage else []

    def _remove_damaged(self, collection: Collection, check: VectorCheck) -> None:
        """Delete damaged vectors and their records, so that they are embedded again."""
        with chroma.store_errors(chroma.WRITE_FAILED):
            # Chroma first: a crash in between leaves records without vectors, which the next refresh finds.
            collection.delete(ids=[*map(key_of, check.lost), *check.unknown])
        with self._database.transaction() as cursor:
            embedded.remove(cursor, str(collection.id), check.lost)

    def _collection(self, embedder: Embedder, known_id: str | None) -> tuple[Collection, list[str]]:
        """The embedder's collection, created if missing, and a note if its vectors were lost."""
        collection = self._find(embedder.model_id)
        notes = []
        if known_id is not None and (collection is None or str(collection.id) != known_id):
            why = f" ({self._chroma.discard_reason})" if self._chroma.discard_reason else ""
            notes.append(f"the vectors of {embedder.model_id} were lost{why}; all memories are embedded again")
        if collection is None:
            name = self._collection_name(embedder.model_id)
            collection = self._buffered(self._chroma.create(name, embedder.model_id))
        return collection, notes

    def _find(self, embedder_id: str) -> Collection | None:
        """The buffered collection of an embedder's vectors, or None. Raises StoreError."""
        collection = self._chroma.find(self._collection_name(embedder_id))
        return None if collection is None else self._buffered(collection)

    def _buffered(self, collection: Collection) -> Collection:
        """The collection with its write buffer; a server's collection, which others read too, has none."""
        if self._chroma.url:
            return collection
        return cast("Collection", BufferedCollection(self._database, collection))

    def buffered_changes(self) -> int:
        """Number of vector changes that are not in Chroma's graph yet."""
        with self._database.reading() as cursor:
            return sum(write_buffer.count(cursor, each["collection"]) for each in _recorded(cursor).values())

    def flush(self, progress: Progress = silent, threshold: int = FLUSH_THRESHOLD) -> int:
        """Flush the buffered changes into Chroma's graph if there are at least `threshold`; returns how many were flushed.

        Raises what `progress` raises, and StoreError.
        """
        done, total = 0, self.buffered_changes()
        # In slices, so that other processes can use Chroma's files in between.
        while total >= threshold and (count := self._flush_slice()):
            done += count
            progress(FLUSH_LABEL, min(done, total), total)
        return done

    def _flush_later(self) -> None:
        """Start the background flush if enough changes are buffered."""
        if self._closing.is_set() or (self._flusher is not None and self._flusher.is_alive()):
            return
        if self.buffered_changes() >= FLUSH_THRESHOLD:
            self._flusher = threading.Thread(target=self._flush_loop, name="vectors into the graph", daemon=True)
            self._flusher.start()

    def _flush_loop(self) -> None:
        pause, count = FLUSH_DELAY_S, 1
        while count and not self._closing.wait(pause):
            began = time.monotonic()
            try:
                # A refresh in this process has priority over the background flush.
                count = self._flush_slice(1.0, wait=False)
                pause = time.monotonic() - began  # leave half of the time to other threads
            except StoreLockedError:
                pause = FLUSH_DELAY_S
            except StoreError as error:
                log.warning("buffered vectors were not flushed: %s", error)
                return

    def _flush_slice(self, timeout_s: float | None = None, *, wait: bool = True) -> int:
        """Flush for FLUSH_SLICE_S under one lock on Chroma's files; returns how many changes. Raises as `_exclusive` does."""
        count = 0
        with self._exclusive(timeout_s, wait=wait):
            with self._database.reading() as cursor:
                collection_ids = {name: each["collection"] for name, each in _recorded(cursor).items()}
                buffered = [
                    name for name, collection in collection_ids.items() if write_buffer.count(cursor, collection)
                ]
            for name in buffered:
                collection = self._chroma.find(self._collection_name(name))
                if collection is None or str(collection.id) != collection_ids[name]:
                    continue  # lost; the next refresh reports it
                count += write_buffer.flush(self._database, collection, FLUSH_SLICE_S, self._chroma.client())
        return count

    def _record(self, embedder: Embedder, value: dict[str, Any]) -> None:
        with self._database.transaction() as cursor:
            write_meta(cursor, _META_PREFIX + embedder.model_id, json.dumps(value))

    def _passing(self, collection: str, where: Filter) -> frozenset[EntryId]:
        with self._database.reading() as cursor:
            return embedded.passing(cursor, collection, where)

    def _content_version(self) -> int:
        return self._database.cached_content_version()

    def _collection_name(self, embedder_id: str) -> str:
        return chroma.collection_name(self._store_id, embedder_id)


def _noop() -> None:
    """The build lock opens and closes no file."""


def _recorded(cursor: duckdb.DuckDBPyConnection) -> dict[str, dict[str, Any]]:
    """The records of the vectors by embedder id: collection, content version and dimension."""
    rows = cursor.execute(
        "SELECT key, value FROM workbench_meta WHERE starts_with(key, ?) ORDER BY key", [_META_PREFIX]
    ).fetchall()
    return {key.removeprefix(_META_PREFIX): json.loads(value) for key, value in rows}


def _vector_state(
    name: str,
    recorded: dict[str, Any] | None,
    version: int,
    rows: int,
    check: VectorCheck,
    quantized: DirectoryState,
    buffered: int,
) -> IndexState:
    built = recorded["version"] if recorded else None
    fresh = built == version and not check.problem and not quantized.problem
    note = "" if built == version else "never built" if recorded is None else _staleness(built, version)
    problem = check.problem or (f"{QUANTIZED_COPY}: {quantized.problem}" if quantized.damage else "")
    note = note or (f"{QUANTIZED_COPY}: {quantized.problem}" if quantized.problem else "")
    note = note or (f"the latest {buffered:,} changes are buffered" if buffered else "")
    return IndexState(f"vectors {name}", built, version, fresh, rows, problem or note, bool(problem))


def _index_state(name: str, directory: DirectoryState, version: int) -> IndexState:
    if directory.manifest is None:
        return IndexState(name, None, version, False, 0, directory.problem or "never built", directory.damage)
    built = directory.manifest.content_version
    return IndexState(
        name,
        built,
        version,
        built == version,
        directory.manifest.rows,
        "" if built == version else _staleness(built, version),
    )


def _staleness(built: int | None, version: int) -> str:
    return (
        "partly built; refresh to continue"
        if built is None
        else f"{version - built} changes behind; refresh to catch up"
    )
