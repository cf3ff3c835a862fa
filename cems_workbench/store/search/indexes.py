"""The two derived indexes of a store: opening, refreshing, and saying whether they are up to date.

Each carries the content version it was built from. The lexical one keeps it in its manifest; the vectors of an
embedder keep it in the store's meta table, with the id of the Chroma collection it was said of, so that a collection
which was lost and made anew is not taken for the old one. Beside it stands how many values a vector has.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.models.embedder_match import other_dimension, other_model
from cems_workbench.models.protocol import Embedder
from cems_workbench.progress import Progress, silent
from cems_workbench.store import chunks, memories, sources
from cems_workbench.store.database import Database
from cems_workbench.store.filter import Filter
from cems_workbench.store.meta import content_version, delete_meta, read_meta, write_meta
from cems_workbench.store.search import chroma, embedded, entries, lexical_refresh, ts_rank_refresh
from cems_workbench.store.search.entries import Place
from cems_workbench.store.search.index_directory import Manifest, discard
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.ts_rank_index import TsRankIndex
from cems_workbench.store.search.vector_index import VectorIndex
from cems_workbench.store.search.vector_refresh import refresh_vectors
from cems_workbench.store.search.vocabulary import CurrentVocabulary, Vocabulary

if TYPE_CHECKING:
    import duckdb
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

_KEY = "vectors:"
OLLAMA, REVISION = "ollama:", "@"
"""Ids of models on Ollama end with a revision, which grows stale when the model is pulled anew."""


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """What a refresh of the derived indexes did; `seconds` is wall time.

    `embedded` texts (memories, and chunks of those that have any) were encoded and written, `relabelled` only changed project or scope,
    `removed` left the index.
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
    """One derived index: `version` is the content it was built from (None: never), `fresh` whether that is today's."""

    name: str
    version: int | None
    content_version: int
    fresh: bool
    rows: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Indexes:
    """Both indexes, open, with their states at that moment."""

    vectors: VectorIndex
    lexical: LexicalIndex
    states: tuple[IndexState, ...] = ()


class DerivedIndexes:
    """Vectors and lexical index of one store."""

    def __init__(self, path: Path, database: Database, store_id: str, chroma_url: str | None, hidden: Set[str]) -> None:
        self._chroma_home = path / "chroma"
        self._lexical_home = path / "lexical"
        self._full_text_home = path / "ts_rank"
        self._database = database
        self._store_id = store_id
        self._url = chroma_url
        self._hidden = hidden
        self._client: ClientAPI | None = None
        self._refreshing = threading.Lock()
        self._opened: dict[str, Indexes] = {}
        self._vocabulary = CurrentVocabulary(self._lexical_home, database)

        self._full_text: tuple[int, TsRankIndex] | None = None

    def close(self) -> None:
        """Release Chroma's files."""
        if self._client is not None:
            client: Any = self._client  # `close` is missing from the declared interface.
            client.close()
            self._client = None

    def open(self, embedder: Embedder) -> Indexes:
        """Both indexes as the last refresh left them; empty ones where nothing was built. Their `states` say if they are up to date.

        Ask again after a refresh: the objects given before stay usable, but show the content before it.
        """
        opened = self._opened
        indexes = opened.get(embedder.model_id)
        if indexes is None:
            # Kept in the dict seen above: a refresh that ended meanwhile has put another in its place.
            indexes = opened[embedder.model_id] = self._open(embedder)
        return replace(indexes, states=tuple(self.states(embedder.model_id)))

    def _open(self, embedder: Embedder) -> Indexes:
        manifest = lexical_refresh.read_manifest(self._lexical_home)
        usable = manifest is not None and lexical_refresh.usable(manifest)
        lexical = LexicalIndex(self._lexical_home / manifest.directory if manifest and usable else None, self._hidden)
        collection = chroma.find_collection(self._chroma(), self._collection_name(embedder.model_id))
        key = "" if collection is None else str(collection.id)
        with self._database.reading() as cursor:
            chunked = embedded.chunks_of(cursor, key)
        vectors = VectorIndex(collection, lambda where: self._passing(key, where), chunked, self._hidden)
        return Indexes(vectors, lexical)

    def full_text(self, dimension: int, progress: Progress = silent) -> TsRankIndex:
        """The index by PostgreSQL's ts_rank over the chunks as the last refresh cut them, built when it is asked for after a change.

        Its rows lie as a server's would that was given the memories in the order of import, with embeddings of `dimension` numbers:
        that decides how equal ranks are ordered. Raises what `progress` raises.
        """
        with self._refreshing:
            version = self._content_version()
            if self._full_text is None or self._full_text[0] != version:
                manifest = ts_rank_refresh.read_manifest(self._full_text_home)
                if manifest is None or not ts_rank_refresh.usable(manifest) or manifest.content_version != version:
                    with self._database.reading() as cursor:
                        rows = ts_rank_refresh.as_on_a_server(entries.documents(cursor, "rowid"), dimension)
                    manifest = ts_rank_refresh.build(self._full_text_home, rows, len(rows), version, progress)
                self._full_text = version, TsRankIndex(self._full_text_home / manifest.directory, self._hidden)
            return self._full_text[1]

    def refresh(self, embedder: Embedder, progress: Progress = silent) -> RefreshReport:
        """Bring both to the content as it is now; durable in steps, so that a cancelled refresh is continued by the next.

        Raises what `progress` raises, and StoreError when vectors that came with memories were made by another embedder.
        """
        with self._refreshing:
            return self._bring_up_to_date(embedder, progress)

    def check(self, embedder_id: str, dimension: int | None) -> None:
        """Raises EmbedderMismatchError when the store's vectors were made by another embedder, or have another length than `dimension`.

        Every embedder has vectors of its own, so one that was used before, also of an earlier revision, is none other. `dimension`
        None: it is not known yet. A store without vectors takes any. StoreError when vectors came with a source's memories, and were
        made by another embedder.
        """
        with self._database.reading() as cursor:
            sources.check_embedder(cursor, embedder_id)
            recorded = _recorded(cursor)
            known = {name: value for name, value in recorded.items() if embedded.count(cursor, value["collection"])}
        if embedder_id in recorded:
            length = self._length(embedder_id, recorded[embedder_id]) if embedder_id in known else None
            if None not in (length, dimension) and length != dimension:
                raise other_dimension(embedder_id, length or 0, embedder_id, dimension or 0)
            return
        revisions = {name.partition(REVISION)[0] for name in known if name.startswith(OLLAMA)}
        if known and embedder_id.partition(REVISION)[0] not in revisions:
            latest = max(known, key=lambda name: (known[name]["version"] or 0, name))
            raise other_model(latest, self._length(latest, known[latest]), embedder_id)

    def _length(self, embedder_id: str, recorded: dict[str, Any]) -> int | None:
        """How many values a vector of that embedder has; a store of an earlier version did not write it down, and the vectors say it."""
        if "dimension" not in recorded:
            collection = chroma.find_collection(self._chroma(), self._collection_name(embedder_id))
            return None if collection is None else chroma.dimension(collection)
        return int(recorded["dimension"])

    def rebuild(self, embedder: Embedder, progress: Progress = silent) -> RefreshReport:
        """Drop both and build them anew from the memories. Raises what `progress` raises; `refresh` goes on from there.

        Indexes opened before may fail from then on; ask for them again afterwards.
        """
        with self._refreshing:
            self._opened = {}
            self._full_text = None
            discard(self._full_text_home)
            discard(self._lexical_home)
            self._discard_vectors(embedder)
            return self._bring_up_to_date(embedder, progress)

    def _bring_up_to_date(self, embedder: Embedder, progress: Progress) -> RefreshReport:
        started = time.perf_counter()
        with self._database.reading() as cursor:
            sources.check_embedder(cursor, embedder.model_id)
        try:
            said = chunks.bring_up_to_date(self._database, embedder, progress)
            version = self._content_version()
            rebuilt = self._refresh_lexical(version, progress)
            counts, notes = self._refresh_vectors(embedder, version, progress)
        finally:
            self._opened = {}
        return RefreshReport(version, *counts, rebuilt, time.perf_counter() - started, (*said, *notes))

    def _discard_vectors(self, embedder: Embedder) -> None:
        """Forget the embedder's vectors, then drop them: a crash in between leaves a collection that is cleaned later."""
        name = self._collection_name(embedder.model_id)
        with self._database.transaction() as cursor:
            recorded = read_meta(cursor, _KEY + embedder.model_id)
            if recorded is not None:
                embedded.forget_all(cursor, json.loads(recorded)["collection"])
                delete_meta(cursor, _KEY + embedder.model_id)
        chroma.drop_collection(self._chroma(), name)

    def states(self, embedder_id: str | None = None) -> list[IndexState]:
        """The lexical index and the vectors of one embedder (of all known ones when None).

        States are read from the store alone: Chroma is neither loaded nor asked.
        """
        with self._database.reading() as cursor:
            version = content_version(cursor)
            recorded = _recorded(cursor)
            wanted = list(recorded) if embedder_id is None else [embedder_id]
            vectors = [
                _vector_state(
                    name,
                    recorded.get(name),
                    version,
                    embedded.count(cursor, recorded[name]["collection"]) if name in recorded else 0,
                )
                for name in wanted
            ]
        return [_lexical_state(lexical_refresh.read_manifest(self._lexical_home), version), *vectors]

    def texts(self, ids: Sequence[str]) -> dict[str, dict[int | None, str]]:
        """By memory the texts it is found by: those of its chunks by their number, or its own under None; unknown ids are absent."""
        with self._database.reading() as cursor:
            numbers = {key: [chunk.seq for chunk in own] for key, own in chunks.read(cursor, ids).items()}
            places: list[Place] = [(key, seq) for key in dict.fromkeys(ids) for seq in numbers.get(key) or (None,)]
            found: dict[str, dict[int | None, str]] = {}
            for entry in entries.read(cursor, places):
                found.setdefault(entry.place[0], {})[entry.place[1]] = entry.text
        return found

    def vocabulary(self) -> Vocabulary:
        """The words of the live memories with the number of memories each stands in, computed once per content version."""
        return self._vocabulary.read()

    def _refresh_lexical(self, version: int, progress: Progress) -> bool:
        manifest = lexical_refresh.read_manifest(self._lexical_home)
        if manifest is not None and lexical_refresh.usable(manifest) and manifest.content_version == version:
            return False
        with self._database.reading() as cursor:
            version = content_version(cursor)
            total = memories.count(cursor)
            lexical_refresh.build(self._lexical_home, entries.documents(cursor), total, version, progress)
        return True

    def _refresh_vectors(
        self, embedder: Embedder, version: int, progress: Progress
    ) -> tuple[tuple[int, int, int], list[str]]:
        """How many were embedded, relabelled and removed, and notes."""
        with self._database.reading() as cursor:
            recorded = read_meta(cursor, _KEY + embedder.model_id)
        known: dict[str, Any] = json.loads(recorded) if recorded else {}
        collection, notes = self._collection(embedder, known.get("collection"))
        if str(collection.id) != known.get("collection"):
            known = {"collection": str(collection.id), "version": None}
            self._record(embedder, known)
        counts = refresh_vectors(self._database, collection, embedder, progress)
        length = chroma.dimension(collection)
        self._record(embedder, {**known, "version": version} | ({"dimension": length} if length else {}))
        return counts, notes

    def _collection(self, embedder: Embedder, known_id: str | None) -> tuple[Collection, list[str]]:
        """The embedder's collection, made when missing; a note when one that was built is gone."""
        client, name = self._chroma(), self._collection_name(embedder.model_id)
        collection = chroma.find_collection(client, name)
        notes = []
        if known_id is not None and (collection is None or str(collection.id) != known_id):
            notes.append(f"the vectors of {embedder.model_id} were lost; all memories are embedded again")
        return collection or chroma.create_collection(client, name, embedder.model_id), notes

    def _record(self, embedder: Embedder, value: dict[str, Any]) -> None:
        with self._database.transaction() as cursor:
            write_meta(cursor, _KEY + embedder.model_id, json.dumps(value))

    def _passing(self, collection: str, where: Filter) -> frozenset[Place]:
        with self._database.reading() as cursor:
            return embedded.passing(cursor, collection, where)

    def _content_version(self) -> int:
        with self._database.reading() as cursor:
            return content_version(cursor)

    def _collection_name(self, embedder_id: str) -> str:
        return chroma.collection_name(self._store_id, embedder_id)

    def _chroma(self) -> ClientAPI:
        if self._client is None:
            self._client = chroma.connect(self._chroma_home, self._url)
        return self._client


def _recorded(cursor: duckdb.DuckDBPyConnection) -> dict[str, dict[str, Any]]:
    """By embedder id what is written down of its vectors: the collection, the content version and the length of one."""
    rows = cursor.execute(
        "SELECT key, value FROM workbench_meta WHERE starts_with(key, ?) ORDER BY key", [_KEY]
    ).fetchall()
    return {key.removeprefix(_KEY): json.loads(value) for key, value in rows}


def _vector_state(name: str, recorded: dict[str, Any] | None, version: int, rows: int) -> IndexState:
    built = recorded["version"] if recorded else None
    note = "" if built == version else "never built" if recorded is None else _behind(built, version)
    return IndexState(f"vectors {name}", built, version, built == version, rows, note)


def _lexical_state(manifest: Manifest | None, version: int) -> IndexState:
    if manifest is None:
        return IndexState("lexical", None, version, False, 0, "never built")
    if not lexical_refresh.usable(manifest):
        return IndexState("lexical", manifest.content_version, version, False, 0, "built by another tokenizer version")
    fresh = manifest.content_version == version
    note = "" if fresh else _behind(manifest.content_version, version)
    return IndexState("lexical", manifest.content_version, version, fresh, manifest.rows, note)


def _behind(built: int | None, version: int) -> str:
    return "half built; refresh to go on" if built is None else f"{version - built} changes behind; refresh to catch up"
