"""Chroma access: clients (embedded or server), one collection per store and embedder, and what a folder holds, read without Chroma.

A process that dies while it writes leaves a mark; the next one then reads every vector in a subprocess first, because a damaged file can
crash the library, and so does a refresh that takes vectors from it. A folder that cannot be read stays as it is until somebody asks
for a new one (`reindex --chroma`): then it is moved aside.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import numpy as np

from cems_workbench.errors import ModelError, StoreError
from cems_workbench.models.http import server_name
from cems_workbench.platform.http_limits import ResponseError, connection_reason
from cems_workbench.platform.process_lock import SharedLock
from cems_workbench.store.duckdb_file import run_in_subprocess

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection


HNSW: dict[str, Any] = {
    "space": "cosine",
    # Chroma's default. 200 finds 0.974 instead of 0.957 of the nearest 10 of 100,000, and links them in twice the time.
    "ef_construction": 100,
    "ef_search": 300,
    "max_neighbors": 32,
}

BATCH_SIZE = 2_000
DAMAGED = "damaged"
READ_FAILED, WRITE_FAILED = "the vectors cannot be read", "the vectors cannot be written"


def connect(directory: Path, url: str | None) -> ClientAPI:
    """A client for the embedded database in `directory`, or for the server at `url`. Telemetry is off and no embedding
    function is used. Raises StoreError if the server does not respond or the directory cannot be read."""
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient
    from chromadb.config import Settings

    from cems_workbench.platform.http_limits import chroma_client

    settings = Settings(anonymized_telemetry=False)
    try:
        if url is None:
            with convert_panics():
                return chromadb.PersistentClient(str(directory), settings=settings)
        address = urlsplit(url if "://" in url else f"http://{url}")
        secure = address.scheme == "https"
        port = address.port or (443 if secure else 8000)
        return chroma_client(address.hostname or "", port, secure)
    except Exception as error:  # Chroma raises ValueError, its own errors and its Rust core's, by version.
        if url is None:
            # Chroma keeps what failed to start, and would use it at the next attempt.
            SharedSystemClient._identifier_to_system.pop(str(directory), None)
        problem = "cannot be used" if isinstance(error, ResponseError) else "cannot be reached"
        target = f"index {directory} cannot be opened"
        if url:
            target = f"server of the settings {problem}"
            with suppress(ModelError):
                target = f"server {server_name(url)} {problem}"  # without credentials and query string
        raise StoreError(f"Chroma {target}: {connection_reason(error) or _first_line(error)}") from error


@contextmanager
def convert_panics() -> Iterator[None]:
    """Turn a panic of Chroma's Rust core into a RuntimeError: it is a BaseException, which `except Exception` misses."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as panic:
        raise RuntimeError(_first_line(panic)) from panic


@contextmanager
def store_errors(message: str) -> Iterator[None]:
    """Turn errors of Chroma inside the block into a StoreError that starts with `message` and names an unreachable server."""
    from chromadb.errors import ChromaError
    from httpx import TransportError

    try:
        with convert_panics():
            yield
    except TransportError as error:
        raise StoreError(
            f"{message}: Chroma server {error.request.url.netloc.decode()}: {connection_reason(error)}"
        ) from error
    except (ChromaError, ResponseError, ValueError, RuntimeError, OSError, TypeError, KeyError) as error:
        raise StoreError(f"{message}: {_first_line(error)}") from error


def find_collection(client: ClientAPI, name: str) -> Collection | None:
    from chromadb.errors import NotFoundError

    with store_errors("Chroma cannot list its collections"):
        try:
            return client.get_collection(name, embedding_function=None)
        except NotFoundError:
            return None


def create_collection(
    client: ClientAPI, name: str, embedder_id: str, hnsw: Mapping[str, int] = MappingProxyType({})
) -> Collection:
    """A collection with `HNSW`, or with other values of its settings in `hnsw`."""
    configuration: Any = {"hnsw": {**HNSW, **hnsw}}
    with store_errors(WRITE_FAILED):
        return client.create_collection(
            name, embedding_function=None, metadata={"embedder": embedder_id}, configuration=configuration
        )


@dataclass(frozen=True, slots=True)
class Held:
    """What a collection holds: its id, its number of records and, of a folder, who wrote it. `seq` is Chroma's number
    of the last write to it, `since` the keys that were written after the one asked for, `form` the versions of the
    database's tables and of chromadb."""

    id: str
    count: int
    seq: int | None = None
    since: tuple[str, ...] = ()
    form: str = ""


def held_in(path: Path, name: str, after: int) -> Held | None:
    """What the collection `name` of a folder holds, and what was written after number `after`; None without one. Reads
    the folder's database and loads no Chroma. Raises StoreError if it cannot be read."""
    if not (path / DATABASE).exists():
        return None
    # Writable, so that what a killed process left half done is rolled back, as Chroma itself would do.
    address = f"{(path / DATABASE).absolute().as_uri()}?mode=rw"
    try:
        # Closing the file ends the locks that Chroma has on it in this process, so not while that writes.
        with _file_lock, closing(sqlite3.connect(address, uri=True, timeout=30)) as database:
            tables = database.execute("SELECT dir || ' ' || max(version) FROM migrations GROUP BY dir ORDER BY dir")
            form = ", ".join(table for (table,) in tables)
            both = "collections AS c JOIN segments AS s ON collection = c.id"
            ours = f"SELECT collection, s.id FROM {both} WHERE name = ? AND scope = 'METADATA'"
            found = database.execute(ours, [name]).fetchall()
            if not found:
                return None
            collection, segment = found[0]
            (count,) = database.execute("SELECT count(*) FROM embeddings WHERE segment_id = ?", [segment]).fetchone()
            applied, queued = "max_seq_id WHERE segment_id = ?", "embeddings_queue WHERE topic LIKE ?"
            last = f"SELECT max(seq_id) FROM (SELECT seq_id FROM {applied} UNION SELECT seq_id FROM {queued})"
            (seq,) = database.execute(last, [segment, f"%{collection}"]).fetchone()
            keys: list[tuple[str]] = []
            if (seq or 0) != after:
                written = "SELECT embedding_id FROM embeddings WHERE segment_id = ? AND seq_id > ?"
                keys = database.execute(written, [segment, after]).fetchall()
    except (sqlite3.Error, OSError, ValueError) as error:
        raise StoreError(f"{READ_FAILED}: {path / DATABASE}: {_first_line(error)}") from error
    form += f"; chromadb {importlib.metadata.version('chromadb')}"
    return Held(str(collection), int(count), int(seq or 0), tuple(key for (key,) in keys), form)


def batches(collection: Collection, keys: Sequence[str] | None = None, include: Any = ("embeddings",)) -> Iterator[Any]:
    """Chroma's answers for every record, or for the existing ones among `keys`, `BATCH_SIZE` at a time. Raises StoreError."""
    if keys is None:
        # Batches by id: paging by offset scans from the start each time, which takes minutes for a million vectors.
        with store_errors(READ_FAILED):
            keys = collection.get(include=[])["ids"]
    for start in range(0, len(keys), BATCH_SIZE):
        with store_errors(READ_FAILED):
            found: Any = collection.get(ids=list(keys[start : start + BATCH_SIZE]), include=list(include))
            found["embeddings"] = np.asarray(found["embeddings"], np.float32)
            if len(found["embeddings"]) != len(found["ids"]):
                raise StoreError(f"{READ_FAILED}: {len(found['ids'])} ids and {len(found['embeddings'])} vectors")
        yield found


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


DATABASE = "chroma.sqlite3"
DUMMY_ID = "-"
"""An id that need not exist, requested to make a client load its graph."""
VERIFY_TIMEOUT_S, VERIFY_BYTES_PER_S = 300.0, 10e6
"""Timeout of reading every vector: the longer of VERIFY_TIMEOUT_S and the time at this rate (46e6 were measured)."""
_open_lock = threading.RLock()
_file_lock = threading.RLock()
"""Held while Chroma writes, and while a folder's database is read without it."""


class _SharedFiles:
    """The database in one directory as this process sees it, shared by all its clients.

    Chroma keeps its index in memory, so a client is stale once another process has written. Processes therefore hold a lock, each writer
    increments a change number, and a client that has seen another number is reopened. A writer marks the start and end of a write;
    if it died in between, the next process verifies every vector.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = SharedLock(path.with_name(".chroma.lock"), f"index {path}", self._sync, lambda: None)
        self.clients: list[ChromaDirectory] = []
        """The directories with an open client."""
        self.interrupted = ""
        """The mark of a process that died during a write, until the vectors are verified; then how that failed."""
        self._change_file = path.with_name(".chroma.changes")
        self._change_number: int | None = None

    def _sync(self) -> None:
        """After acquiring the lock: release clients that other processes' writes made stale."""
        changes, self.interrupted = self.read()
        if self._change_number not in (None, changes):
            # A copy: a released directory removes itself.
            for directory in list(self.clients):
                directory.release()
        self._change_number = changes

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Mark a write as in progress during the block."""
        self._change_number = (self._change_number or 0) + 1
        # Before the first change: a process that dies in between leaves this mark.
        self._write("writing")
        try:
            yield
        finally:
            # The mark of an earlier crash stays until every vector is verified.
            self._write(self.interrupted and "broken off")

    def mark(self, problem: str = "") -> None:
        """Record that the database was verified or moved aside, or the problem of verifying it."""
        if self.interrupted != problem:
            self.interrupted = problem
            self._write(problem)

    def read(self) -> tuple[int, str]:
        """The change number, and the mark."""
        try:
            number, _, state = self._change_file.read_text("utf-8").partition(" ")
            return int(number), state.strip()
        except (OSError, ValueError):
            return 0, ""

    def _write(self, state: str) -> None:
        with suppress(OSError):
            self._change_file.write_text(f"{self._change_number or 0} {state}", "utf-8")


_shared_files: dict[Path, _SharedFiles] = {}


class ChromaDirectory:
    """The location of a store's vectors: a directory, or the server at `url`."""

    def __init__(self, path: Path, url: str | None) -> None:
        self.path = path
        self.url = url
        self._files = None if url else _shared_files.setdefault(path.resolve(), _SharedFiles(path))
        self._client: ClientAPI | None = None
        self._inode: int | None = None
        self._verified = False
        """Whether this process has read every vector."""

    def exists(self) -> bool:
        """Whether there may be a database."""
        return self.url is not None or (self.path / DATABASE).exists()

    def verify(self) -> None:
        """Read every vector of the embedded database in a subprocess, once. Raises StoreError if that fails."""
        if self._files is None or self._verified or not self.exists():
            return
        with self._lock():
            size = sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())
            seconds = max(VERIFY_TIMEOUT_S, size / VERIFY_BYTES_PER_S)
            problem = run_in_subprocess(__name__, str(self.path), seconds=seconds).problem
            self._files.mark(problem and f"{DAMAGED}: {problem}")
            if problem:
                raise StoreError(f"{self.path} is {DAMAGED}: {problem}")
            self._verified = True

    @property
    def damage(self) -> str:
        """How reading every vector failed, if it was tried after a process died while it wrote; else empty."""
        mark = self._files.read()[1] if self._files is not None else ""
        return mark if mark.startswith(DAMAGED) else ""

    @contextmanager
    def client(self, *, writing: bool = False) -> Iterator[ClientAPI]:
        """The Chroma client, opened on first use, while this process holds the lock on the files; for short work only.
        Raises StoreError if it cannot be opened."""
        if self._client is None:
            import chromadb  # noqa: F401 (before acquiring the lock: importing takes a second)
        with self._lock():
            client = self._open_client()
            if self._files is not None and writing:
                with self._files.writing():
                    yield client
            else:
                yield client

    def _lock(self) -> AbstractContextManager[None]:
        return nullcontext() if self._files is None else self._files.lock.acquire()

    def _open_client(self) -> ClientAPI:
        with _open_lock:
            if self._client is not None and self._inode not in (None, _inode(self.path)):
                # A client of removed files would still answer from memory.
                self.release()
            if self._client is None:
                self._client = connect(self.path, self.url) if self._files is None else self._open_embedded(self._files)
            return self._client

    def find(self, name: str) -> Collection | None:
        """The collection of that name, or None. Raises StoreError."""
        with self.client() as client:
            collection = find_collection(client, name)
            return None if collection is None else self._shared(collection, client)

    def create(self, name: str, embedder_id: str, hnsw: Mapping[str, int]) -> Collection:
        """Create a collection for an embedder's vectors. Raises StoreError."""
        with self.client(writing=True) as client:
            return self._shared(create_collection(client, name, embedder_id, hnsw), client)

    def _shared(self, collection: Collection, client: ClientAPI) -> Collection:
        return cast("Collection", SharedCollection(self, collection, client)) if self.url is None else collection

    def copy(self, name: str) -> Collection:
        """A collection of the embedded database in a temporary copy of its files, with the same graph, which searches with any ef_search.

        HNSW keeps as many candidates as the larger of ef_search and the rows asked for, and the copy's ef_search is 1: asking it for n rows
        searches with an ef_search of n. Chroma reads ef_search when it loads a graph, so another number has no effect in an open client.
        What Chroma has not written to its graph's files yet, fewer than 1,000 records, each client links again when it opens it.
        The copy is deleted when it is no longer used. Raises StoreError.
        """
        folder = tempfile.TemporaryDirectory(prefix="chroma-", ignore_cleanup_errors=True)
        try:
            with self._lock():
                shutil.copytree(self.path, folder.name, dirs_exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be copied to {folder.name}: {error}") from error
        client: Any = connect(Path(folder.name), None)
        collection = find_collection(client, name)
        if collection is None:
            raise StoreError(f"{READ_FAILED}: {self.path} has no collection {name}")
        with store_errors(WRITE_FAILED):
            collection.modify(configuration={"hnsw": {"ef_search": 1}})
        weakref.finalize(collection, folder.cleanup)
        weakref.finalize(collection, client.close)  # the last one is called first
        return collection

    def close(self) -> None:
        if self._client is not None:
            with self._lock():
                self.release()
        if self._files is not None and not self._files.clients:
            self._files.lock.close()

    def release(self) -> None:
        """As `close`, but keep the lock."""
        with _open_lock:
            if self._client is None:
                return
            client: Any = self._client  # `close` is missing from the declared interface.
            self._client = None
            # The client is given up either way.
            with suppress(Exception), convert_panics():
                client.close()
            if self._files is not None:
                self._inode = None
                self._files.clients.remove(self)

    def discard(self) -> None:
        """Remove the database; the vectors are its source."""
        with self._lock():
            self.release()
            shutil.rmtree(self.path, ignore_errors=True)

    def move_aside(self) -> Path:
        """Rename the folder; returns its new path. Raises StoreError."""
        assert self._files is not None
        with self._lock(), self._files.writing(), _open_lock:
            self.release()
            number = next(n for n in itertools.count(1) if not os.path.lexists(f"{self.path}.{n}"))
            try:
                aside = self.path.rename(f"{self.path}.{number}")
            except OSError as error:
                raise StoreError(f"{self.path} cannot be moved aside: {error.strerror}") from error
            self._files.mark()
            return aside

    def _open_embedded(self, files: _SharedFiles) -> ClientAPI:
        if files.interrupted:
            self.verify()
        client = connect(self.path, None)
        files.clients.append(self)
        self._inode = _inode(self.path)
        return client


READS, WRITES = ("count", "get", "query"), ("upsert", "update", "delete")


class SharedCollection:
    """A collection of a database shared with other processes: each call holds the lock and sees their writes."""

    def __init__(self, directory: ChromaDirectory, collection: Collection, client: ClientAPI) -> None:
        self.id, self.name = collection.id, collection.name
        self._directory = directory
        self._handle = collection, client
        self._warm_client: ClientAPI | None = None

    @property
    def configuration(self) -> Any:
        """Its settings, as they were when it was opened."""
        return self._handle[0].configuration

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method as Chroma's; raises AttributeError for one of which it is not known here whether it writes."""
        if name not in READS + WRITES:
            raise AttributeError(name)

        def call(**arguments: Any) -> Any:
            with self._current(writing=name in WRITES) as collection:
                return getattr(collection, name)(**arguments)

        return call

    @contextmanager
    def _current(self, *, writing: bool = False) -> Iterator[Collection]:
        with self._directory.client(writing=writing) as client, _file_lock if writing else nullcontext():
            collection, owner = self._handle
            if owner is not client:
                found = find_collection(client, self.name)
                if found is None:
                    raise StoreError(f"{READ_FAILED}: another process has dropped them")
                collection, self._handle = found, (found, client)
            if self._warm_client is not client:
                # The first call of a client loads the graph, which takes seconds for a million vectors. Only `get` and `query` release the
                # interpreter lock while it loads.
                collection.get(ids=[DUMMY_ID], include=[])
                self._warm_client = client
            yield collection


def _inode(path: Path) -> int:
    try:
        return (path / DATABASE).stat().st_ino
    except OSError:
        return 0


def read_all_vectors(path: Path) -> None:
    """Read every vector of every collection. Raises, or crashes, if the files are damaged."""
    client = connect(path, None)
    for listed in client.list_collections():
        collection = client.get_collection(listed.name, embedding_function=None)
        read = 0
        for found in batches(collection):
            read += len(found["ids"])
            # Reading does not use the graph; a query does, and a damaged graph crashes here.
            collection.query(query_embeddings=found["embeddings"][::1_000], n_results=1)
        if read != collection.count():
            raise StoreError(f"{READ_FAILED}: {read} of {collection.count()} are there")


if __name__ == "__main__":
    try:
        with convert_panics():
            read_all_vectors(Path(sys.argv[1]))
    except Exception as problem:
        print(_first_line(problem), file=sys.stderr)
        sys.exit(1)
