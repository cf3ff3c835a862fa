"""Directory of Chroma's embedded database: verified before it is opened, deleted if damaged.

The last process that closes the database writes the files' checksums (`chroma.seal`); opening it removes them. If they are missing
or do not match (a killed process, a changed file), a subprocess reads every vector first, because a damaged file can crash the library.
Everything in it is derived from the store, so a damaged database is deleted and rebuilt.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cems_workbench.errors import StoreError
from cems_workbench.platform.process_lock import Presence, SharedLock
from cems_workbench.store.search.directory.index_directory import (
    FileSignature,
    checksum,
    directory_signature,
    files_in,
    mismatch,
)
from cems_workbench.store.search.vectors import chroma
from cems_workbench.store.subprocess_worker import run_in_subprocess

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

DATABASE = "chroma.sqlite3"
CHECKSUMS_FILE = "chroma.seal"
DUMMY_ID = "-"
"""An id that need not exist, requested to make a client load its graph."""
VERIFY_TIMEOUT_S, VERIFY_BYTES_PER_S = 300.0, 10e6
"""Timeout of reading every vector: the longer of VERIFY_TIMEOUT_S and the time at this rate (46e6 were measured)."""
_open_lock = threading.RLock()


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
        self.presence = Presence(path.with_name(".chroma.open"))
        self.write_interrupted = False
        """Whether a process died during a write and the vectors were not verified since."""
        self._change_file = path.with_name(".chroma.changes")
        self._change_number: int | None = None

    def _sync(self) -> None:
        """After acquiring the lock: release clients that other processes' writes made stale."""
        changes, self.write_interrupted = self._read()
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
            self._write("broken off" if self.write_interrupted else "")

    def mark_intact(self) -> None:
        """Record that the database was verified or deleted."""
        if self.write_interrupted:
            self.write_interrupted = False
            self._write("")

    def _read(self) -> tuple[int, bool]:
        try:
            number, _, state = self._change_file.read_text("ascii").partition(" ")
            return int(number), bool(state.strip())
        except (OSError, ValueError):
            return 0, False

    def _write(self, state: str) -> None:
        with suppress(OSError):
            self._change_file.write_text(f"{self._change_number or 0} {state}", "ascii")


_shared_files: dict[Path, _SharedFiles] = {}


class ChromaDirectory:
    """The location of a store's vectors: a directory, or the server at `url`."""

    def __init__(self, path: Path, url: str | None) -> None:
        self.path = path
        self.url = url
        self.verified = False
        """Whether every file matched its checksum when the database was opened."""
        self.discard_reason = ""
        """Why the database was deleted; empty if it was not."""
        self._files = None if url else _shared_files.setdefault(path.resolve(), _SharedFiles(path))
        self._client: ClientAPI | None = None
        self._inode: int | None = None
        self._verified_files: dict[str, tuple[FileSignature, str]] = {}
        """The signature and checksum of each file when the database was opened verified."""

    @contextmanager
    def client(self, *, writing: bool = False) -> Iterator[ClientAPI]:
        """The Chroma client, opened on first use, while this process holds the lock on the files; for short work only.

        Raises StoreError if it cannot be opened.
        """
        if self._client is None:
            chroma.load()  # before acquiring the lock: importing takes a second
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
            if self._client is None:
                self._client = (
                    chroma.connect(self.path, self.url) if self._files is None else self._open_embedded(self._files)
                )
            return self._client

    def find(self, name: str) -> Collection | None:
        """The collection of that name, or None. Raises StoreError."""
        with self.client() as client:
            collection = chroma.find_collection(client, name)
            return None if collection is None else self._shared(collection, client)

    def create(self, name: str, embedder_id: str) -> Collection:
        """Create a collection for an embedder's vectors. Raises StoreError."""
        with self.client(writing=True) as client:
            return self._shared(chroma.create_collection(client, name, embedder_id), client)

    def drop(self, name: str) -> None:
        """Delete a collection, if it exists. Raises StoreError."""
        with self.client(writing=True) as client:
            chroma.drop_collection(client, name)

    def _shared(self, collection: Collection, client: ClientAPI) -> Collection:
        return cast("Collection", SharedCollection(self, collection, client)) if self.url is None else collection

    def replaced(self) -> bool:
        """Whether the files of the open database were removed or replaced."""
        return self._inode is not None and _inode(self.path) != self._inode

    def close(self) -> None:
        """Release Chroma's files and write their checksums."""
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
            replaced = self.replaced()
            # The client is given up either way.
            with suppress(Exception), chroma.convert_panics():
                client.close()
            if self._files is not None:
                self._inode = None
                self._files.clients.remove(self)
                if (
                    not self._files.clients
                    and self._files.presence.leave()
                    and not replaced
                    and not self._files.write_interrupted
                ):
                    self._write_checksums()

    def discard(self, reason: str) -> None:
        """Delete the database. Raises StoreError."""
        with self._lock(), self._files.writing() if self._files else nullcontext(), _open_lock:
            self.release()
            # The first reason is the cause; later ones follow from it.
            self.discard_reason = self.discard_reason or reason
            _remove(self.path)
            _remove(self._checksums_path)
            if self._files:
                self._files.mark_intact()

    @property
    def _checksums_path(self) -> Path:
        return self.path.with_name(CHECKSUMS_FILE)

    def _open_embedded(self, files: _SharedFiles) -> ClientAPI:
        # Other processes that have it open have verified it.
        alone = not files.clients and files.presence.enter()
        self.verified = not alone and not files.write_interrupted
        if not self.verified:
            if (self.path.exists() or self.path.is_symlink()) and (problem := self._verify()):
                self.discard(problem)
            files.mark_intact()
        try:
            # Missing checksums tell the next opening that this process never closed the database.
            _remove(self._checksums_path)
            client = chroma.connect(self.path, None)
        except StoreError as error:
            if not alone or not self.path.exists():
                raise
            # Everything in it is derived, so a database that cannot be opened is rebuilt.
            self.discard(str(error))
            client = chroma.connect(self.path, None)
        files.clients.append(self)
        self._inode = _inode(self.path)
        return client

    def _verify(self) -> str:
        """Why the database must not be opened; empty if it may."""
        if not self.path.is_dir():
            return "it is not a directory"
        try:
            if not files_in(self.path):
                return ""
            expected, signature = json.loads(self._checksums_path.read_text("utf-8")), directory_signature(self.path)
            self.verified = not mismatch(self.path, expected)
            # Kept for the next checksums: a million vectors have 2.5 GB.
            self._verified_files = {one[0]: (one, expected[one[0]]) for one in signature} if self.verified else {}
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            self.verified = False
        if self.verified:
            return ""
        size = 0
        with suppress(OSError):
            size = sum(path.stat().st_size for path in files_in(self.path).values())
        return run_in_subprocess(
            __name__, str(self.path), seconds=max(VERIFY_TIMEOUT_S, size / VERIFY_BYTES_PER_S)
        ).problem

    def _write_checksums(self) -> None:
        """Write the files' checksums; those of unchanged files are reused."""
        draft = self._checksums_path.with_suffix(".new")
        with suppress(OSError):  # without checksums the next opening reads every vector
            now = {one[0]: one for one in directory_signature(self.path)}
            unchanged = {
                name: checksum_then
                for name, (one, checksum_then) in self._verified_files.items()
                if now.get(name) == one
            }
            draft.write_text(
                json.dumps({name: unchanged.get(name) or checksum(self.path / name) for name in now}), "utf-8"
            )
            os.replace(draft, self._checksums_path)


class SharedCollection:
    """A collection of a database shared with other processes: each call holds the lock and sees their writes."""

    def __init__(self, directory: ChromaDirectory, collection: Collection, client: ClientAPI) -> None:
        self.id, self.name = collection.id, collection.name
        self._directory = directory
        self._handle = collection, client
        self._warm_client: ClientAPI | None = None

    def count(self) -> int:
        """As Chroma's."""
        with self._current() as collection:
            return collection.count()

    def get(self, **arguments: Any) -> Any:
        """As Chroma's."""
        with self._current() as collection:
            return collection.get(**arguments)

    def query(self, **arguments: Any) -> Any:
        """As Chroma's."""
        with self._current() as collection:
            return collection.query(**arguments)

    def upsert(self, **arguments: Any) -> None:
        """As Chroma's."""
        with self._current(writing=True) as collection:
            collection.upsert(**arguments)

    def update(self, **arguments: Any) -> None:
        """As Chroma's."""
        with self._current(writing=True) as collection:
            collection.update(**arguments)

    def delete(self, **arguments: Any) -> None:
        """As Chroma's."""
        with self._current(writing=True) as collection:
            collection.delete(**arguments)

    @contextmanager
    def _current(self, *, writing: bool = False) -> Iterator[Collection]:
        with self._directory.client(writing=writing) as client:
            collection, owner = self._handle
            if owner is not client:
                found = chroma.find_collection(client, self.name)
                if found is None:
                    raise StoreError(f"{chroma.READ_FAILED}: another process has dropped them")
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


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be removed: {error.strerror}") from error


def read_all_vectors(path: Path) -> None:
    """Read every vector of every collection. Raises, or crashes, if the files are damaged."""
    client = chroma.connect(path, None)
    for listed in client.list_collections():
        collection = client.get_collection(listed.name, embedding_function=None)
        read = 0
        for _, vector in chroma.read_vectors(collection):
            read += 1
            # Reading does not use the graph; a query does, and a damaged graph crashes here.
            if read == 1 or not read % 1_000:
                collection.query(query_embeddings=vector[None, :], n_results=1)
        if read != collection.count():
            raise StoreError(f"{chroma.READ_FAILED}: {read} of {collection.count()} are there")


if __name__ == "__main__":
    try:
        with chroma.convert_panics():
            read_all_vectors(Path(sys.argv[1]))
    except Exception as problem:
        print(f"{problem}".splitlines()[0] if str(problem) else type(problem).__name__, file=sys.stderr)
        sys.exit(1)
