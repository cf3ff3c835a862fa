"""Chroma's embedded database in a store: opened only when it is whole, thrown away when it is not.

Its files change whenever it is opened. So their checksums, the seal, are written when it is closed and taken away when it is opened.
Where they do not hold, after a kill or because somebody changed a file, another process reads every vector first: a damaged file can
crash the library. Everything in it is derived from the store, so what cannot be read is deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.errors import StoreError
from cems_workbench.store.apart import run_apart
from cems_workbench.store.search import chroma
from cems_workbench.store.search.index_directory import checksums, difference, files_below

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

DATABASE = "chroma.sqlite3"
SEAL = "chroma.seal"
PROBE_SECONDS = 300.0
_open: Counter[Path] = Counter()
_opening = threading.RLock()


class ChromaHome:
    """Where a store's vectors are: a directory of it, or the server at `url`."""

    def __init__(self, path: Path, url: str | None) -> None:
        self.path = path
        self.url = url
        self.sealed = False
        """Whether every file was as it had been left when it was opened."""
        self.damage = ""
        """Why what was there was thrown away; empty when it was not."""
        self._client: ClientAPI | None = None
        self._inode: int | None = None

    def client(self) -> ClientAPI:
        """Chroma, opened when it is first asked for. Raises StoreError when it cannot be."""
        with _opening:
            if self._client is None:
                self._client = chroma.connect(self.path, self.url) if self.url else self._opened()
            return self._client

    def gone(self) -> bool:
        """Whether the files of the open database were removed or replaced under it."""
        return self._inode is not None and _inode(self.path) != self._inode

    def close(self) -> None:
        """Release Chroma's files, and write down what they are."""
        with _opening:
            if self._client is None:
                return
            client: Any = self._client  # `close` is missing from the declared interface.
            self._client = None
            replaced = self.gone()
            with suppress(Exception), chroma.no_panic():
                client.close()
            if self.url is None:
                self._inode = None
                _open[self.path] -= 1
                if _open[self.path] <= 0 and not replaced:
                    self._write_seal()

    def discard(self, why: str) -> None:
        """Delete the database with all that is in it. Raises StoreError."""
        with _opening:
            self.close()
            self.damage = self.damage or why
            _remove(self.path)
            _remove(self._seal)

    @property
    def _seal(self) -> Path:
        return self.path.with_name(SEAL)

    def _opened(self) -> ClientAPI:
        alone = _open[self.path] <= 0
        self.sealed = not alone
        if alone and (self.path.exists() or self.path.is_symlink()):
            problem = self._problem()
            if problem:
                self.discard(problem)
        try:
            _remove(self._seal)
            client = chroma.connect(self.path, None)
        except StoreError as error:
            if not alone or not self.path.exists():
                raise
            self.discard(str(error))
            client = chroma.connect(self.path, None)
        _open[self.path] += 1
        self._inode = _inode(self.path)
        return client

    def _problem(self) -> str:
        """Why it must not be opened; empty when it may."""
        if not self.path.is_dir():
            return "it is no directory"
        try:
            if not files_below(self.path):
                return ""
            said = json.loads(self._seal.read_text("utf-8"))
            self.sealed = not difference(self.path, said)
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            self.sealed = False
        if self.sealed:
            return ""
        return run_apart(__name__, str(self.path), seconds=PROBE_SECONDS).problem

    def _write_seal(self) -> None:
        draft = self._seal.with_suffix(".new")
        with suppress(OSError):  # without it the next opening looks closer
            draft.write_text(json.dumps(checksums(self.path)), "utf-8")
            os.replace(draft, self._seal)


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


def read_everything(path: Path) -> None:
    """Read every vector of every collection. Raises whatever is wrong with the files, or crashes."""
    client = chroma.connect(path, None)
    for listed in client.list_collections():
        collection = client.get_collection(listed.name, embedding_function=None)
        read = 0
        for _, vector in chroma.read_vectors(collection):
            read += 1
            if read == 1 or not read % 1_000:
                collection.query(query_embeddings=vector[None, :], n_results=1)
        if read != collection.count():
            raise StoreError(f"{chroma.UNREADABLE}: {read} of {collection.count()} are there")


if __name__ == "__main__":
    try:
        with chroma.no_panic():
            read_everything(Path(sys.argv[1]))
    except Exception as problem:
        print(f"{problem}".splitlines()[0] if str(problem) else type(problem).__name__, file=sys.stderr)
        sys.exit(1)
