"""What libraries keep beside a FAISS index: the memories, and the label of each one's vector.

    mem0      NAME.faiss, NAME.json     {"docstore": {id: payload}, "index_to_id": {label: id}}
    txtai     embeddings, documents     SQLite: sections(indexid, id, text, tags, entry), documents(id, data); config.json

What holds pickled Python objects is never read, because reading one runs what it says: index.pkl of LangChain, and NAME.pkl of mem0 before
its docstore was JSON.

Source: mem0ai 2.2.1 and txtai 9.14.0, recorded by running them.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.payload import Payload
from cems_workbench.sources.source import SourceError

IDS_PER_QUERY = 500
EXPORT = (
    "a pickle runs what it says when it is read, so it is not: where it was written, save the documents as JSON beside the index, "
    '{"docstore": {id: {"data": text, …}}, "index_to_id": {label: id}} in NAME.json'
)
"""What to do with a folder that keeps its documents in a pickle; docs/use/sources.md has the lines that do it."""


class Documents(ABC):
    """The memories beside an index."""

    library: str
    notes: tuple[str, ...] = ()
    model: str | None = None
    filters_after: bool = False
    """Whether the library searches everything, and filters by user what that returned."""

    @property
    @abstractmethod
    def labels(self) -> Mapping[str, int]:
        """The label of each memory's vector, by id."""

    @abstractmethod
    def read(self, ids: Sequence[str]) -> Iterator[tuple[str, str | None, Payload]]:
        """(id, text, payload) of these memories; the text is None if it is in the payload."""


class Mem0Documents(Documents):
    """The docstore of mem0, a JSON file that is read whole."""

    library = "mem0"
    filters_after = True

    def __init__(self, path: Path) -> None:
        """Raises SourceError for a file that has another form."""
        try:
            found = json.loads(path.read_text("utf-8"))
            self._rows: Mapping[str, Any] = found["docstore"]
            rows = {row_id for row_id, row in self._rows.items() if isinstance(row, dict)}
            labels = {str(row_id): int(label) for label, row_id in found["index_to_id"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise SourceError(f"{path.name} is no docstore of mem0 ({type(error).__name__}: {error})") from None
        self._labels = {row_id: label for row_id, label in labels.items() if row_id in rows}
        if missing := len(self._rows) - len(self._labels):
            self.notes = (f"{missing:,} memories of {path.name} have no vector in the index; they are not taken",)

    @property
    def labels(self) -> Mapping[str, int]:
        return self._labels

    def read(self, ids: Sequence[str]) -> Iterator[tuple[str, str | None, Payload]]:
        for row_id in ids:
            if row_id in self._labels:
                yield row_id, None, self._rows[row_id]


class TxtaiDocuments(Documents):
    """The SQLite database of txtai, which is written as a whole when an index is saved."""

    library = "txtai"

    def __init__(self, folder: Path) -> None:
        """Raises SourceError for a folder without content, or with another index than FAISS."""
        self._path = folder / "documents"
        config = _config(folder / "config.json")
        backend = config.get("backend", "faiss")
        if backend != "faiss":
            raise SourceError(f"its index is of {backend}; only FAISS is read")
        if isinstance(config.get("path"), str):
            self.model = config["path"]
        if (folder / "scoring").exists():
            self.notes = (
                "its keyword index, and so its hybrid search, is not read: the live list is that of the vectors",
            )
        with closing(self._open()) as connection:
            self._labels = {
                str(row_id): label
                for row_id, label in _rows(connection, "SELECT id, indexid FROM sections ORDER BY indexid DESC")
            }

    def _open(self) -> sqlite3.Connection:
        # Immutable: no lock and no file beside it. txtai works on another copy, and replaces the file when it saves.
        return sqlite3.connect(f"{self._path.absolute().as_uri()}?immutable=1", uri=True, check_same_thread=False)

    @property
    def labels(self) -> Mapping[str, int]:
        return self._labels

    def read(self, ids: Sequence[str]) -> Iterator[tuple[str, str | None, Payload]]:
        with closing(self._open()) as connection:
            for start in range(0, len(ids), IDS_PER_QUERY):
                part = list(ids[start : start + IDS_PER_QUERY])
                marks = ", ".join("?" * len(part))
                # SQLite takes the other columns from the row of the minimum.
                rows = _rows(
                    connection,
                    "SELECT s.id, s.text, s.tags, s.entry, d.data, min(s.indexid) "
                    "FROM sections AS s LEFT JOIN documents AS d ON d.id = s.id "
                    f"WHERE s.id IN ({marks}) GROUP BY s.id",
                    part,
                )
                for row_id, text, tags, entry, data, _ in rows:
                    yield str(row_id), text, {"tags": tags, "created_at": entry, **_object(data)}


def documents(folder: Path) -> tuple[Path, Documents]:
    """The index file of a folder, and the memories beside it. Raises InputError for a folder of another form, and SourceError."""
    if (folder / "embeddings").is_file():
        if not (folder / "documents").is_file():
            raise InputError(f"{folder}: txtai saved this index without its texts; index with content=True")
        return folder / "embeddings", TxtaiDocuments(folder)
    indexes = sorted(folder.glob("*.faiss"))
    pairs = [(path, path.with_suffix(".json")) for path in indexes if path.with_suffix(".json").is_file()]
    if len(pairs) == 1:
        return pairs[0][0], Mem0Documents(pairs[0][1])
    if pairs:
        names = ", ".join(path.stem for path, _ in pairs)
        raise InputError(f"{folder}: several indexes ({names}); add name= with one of them")
    pickled = [path.with_suffix(".pkl") for path in indexes if path.with_suffix(".pkl").is_file()]
    if pickled:
        raise InputError(f"{folder}: the documents are in {pickled[0].name}; {EXPORT}")
    wanted = "NAME.faiss with NAME.json (mem0), or embeddings with documents (txtai)"
    raise InputError(f"{folder}: no folder of FAISS that is known: it should have {wanted}")


def named(folder: Path, name: str) -> tuple[Path, Documents]:
    """As `documents`, of the index NAME.faiss. Raises InputError if it is not there."""
    path, beside = folder / f"{name}.faiss", folder / f"{name}.json"
    if "/" in name or not (path.is_file() and beside.is_file()):
        raise InputError(f"{folder}: no {name}.faiss with {name}.json")
    return path, Mem0Documents(beside)


def _rows(connection: sqlite3.Connection, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The rows of a query. Raises SourceError for a database of another form."""
    try:
        return connection.execute(query, values).fetchall()
    except sqlite3.Error as error:
        raise SourceError(f"documents is no database of txtai: {error}") from None


def _config(path: Path) -> Mapping[str, Any]:
    """The configuration of txtai; empty if it is not JSON: an older one is a pickle, and nothing in it is needed."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _object(data: str | None) -> dict[str, Any]:
    try:
        found = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    return {name: value for name, value in found.items() if name != "text"} if isinstance(found, dict) else {}
