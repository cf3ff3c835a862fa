"""Products that run as a server or open a directory: the client of one collection of either.

Their clients write to the directory that they open, so it is read from a temporary copy.
"""

from __future__ import annotations

import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from cems_workbench.errors import InputError, nearest, one_line, some
from cems_workbench.sources.address import Address
from cems_workbench.sources.collection import CollectionClient
from cems_workbench.sources.connect import ask
from cems_workbench.sources.source import SourceError


class _Closable(Protocol):
    def close(self) -> Any: ...


Client = TypeVar("Client", bound=_Closable)
Collection = TypeVar("Collection")

MAX_LISTED = 10
"""Collections that a message lists."""
MAX_COPIES = 3
"""Attempts to copy a directory that is written to meanwhile."""


class ServerOrDirectoryClient(CollectionClient, Generic[Client, Collection]):
    """One collection, by the product's own client of a server or of a directory."""

    marker_file: ClassVar[str]
    """A file that every directory of this product has."""

    def __init__(self, address: Address, timeout: float) -> None:
        """Open the collection. Raises InputError if the address names none, and SourceError."""
        self._address = address
        with ExitStack() as opened:
            if address.host:
                name, client = address.path, ask(address, timeout, lambda: self.server(timeout), self.reason)
            else:
                directory, name = find_directory(address, self.marker_file)
                copy = opened.enter_context(temporary_copy(address, directory))
                client = ask(address, timeout, lambda: self.directory(str(copy)), self.reason)
            # Registered after the copy, so it closes before the copy is deleted.
            opened.callback(client.close)
            self._client = client
            self._collection = ask(
                address, timeout, lambda: self.collection(choose_collection(address, name, self.names())), self.reason
            )
            # Only now: an error above closes everything.
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    @abstractmethod
    def server(self, timeout: float) -> Client:
        """A client of the server at the address."""

    @abstractmethod
    def directory(self, path: str) -> Client:
        """A client of a directory that may be written to."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """The names of all collections."""

    @abstractmethod
    def collection(self, name: str) -> Collection:
        """A collection by name. Raises InputError for one that cannot be imported."""


def choose_collection(address: Address, name: str, collections: Sequence[str]) -> str:
    """The collection of this name, or the only one if the name is empty. Raises InputError that lists the collections."""
    listed = some(sorted(collections), MAX_LISTED)
    if name in collections:
        return name
    if not collections:
        raise InputError(f"{address.plain} has no collection")
    if name:
        close = nearest(name, collections)
        hint = f"did you mean {close}? There are" if close else "there are"
        raise InputError(f"{address.plain} has no collection {name}; {hint}: {listed}")
    if len(collections) == 1:
        return collections[0]
    first = f"{address.plain.partition('?')[0].rstrip('/')}/{sorted(collections)[0]}"
    raise InputError(f"{address.plain} names no collection: add its name, as in {first}; there are: {listed}")


def find_directory(address: Address, marker_file: str) -> tuple[Path, str]:
    """The directory of an address without a host, and the name of the collection in it. Raises InputError if neither
    the path nor its parent has the file `marker_file`."""
    path = Path(address.path)
    for directory, name in ((path, ""), (path.parent, path.name)):
        if (directory / marker_file).is_file():
            return directory, name
    raise InputError(
        f"{address.plain}: neither {path} nor {path.parent} has {marker_file}, so no such database is there"
    )


@contextmanager
def temporary_copy(address: Address, directory: Path) -> Iterator[Path]:
    """A copy of a directory, deleted at the end; copied again if it changes meanwhile. Raises SourceError."""
    with tempfile.TemporaryDirectory(prefix="cems-workbench-source-") as place:
        try:
            before = _state(directory)
            for _ in range(MAX_COPIES):
                need, free = sum(size for size, _ in before.values()), shutil.disk_usage(place).free
                if need > free:
                    raise SourceError(
                        f"{address.plain}: a copy of its {need / 1e9:.1f} GB is read, and {place} has {free / 1e9:.1f} GB"
                    )
                copy = Path(shutil.copytree(directory, Path(place) / "copy"))
                after = _state(directory)
                # Otherwise the copy may mix two states of the directory.
                if after == before:
                    break
                before = after
                shutil.rmtree(copy)
            else:
                raise SourceError(f"{address.plain}: it is written to all the time; connect to its server instead")
            for each in (copy, *copy.rglob("*")):
                # The copy has the original's permissions, which may forbid writing.
                each.chmod(0o700 if each.is_dir() else 0o600)
        except (OSError, shutil.Error) as error:
            raise SourceError(
                f"{address.plain}: it cannot be read: {one_line(getattr(error, 'strerror', None) or str(error))}"
            ) from None
        yield copy


def _state(directory: Path) -> dict[str, tuple[int, int]]:
    """(size, modification time in ns) of every file."""
    files = (file for file in directory.rglob("*") if file.is_file())
    return {str(file): (stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()]}
