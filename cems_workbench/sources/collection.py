"""A collection of a vector database as a source: rows with an id, a payload and a vector.

`CollectionSource` is the source; what differs between products is its `Engine` (`chroma`, `qdrant`). Rows are listed first and then
taken by their ids, so that rows which come or go meanwhile move no page. A vector database says of no row when it was changed, so every
row is read and its marker is a digest of all it has.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from cems_workbench.errors import InputError, nearest, one_line
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.records import Memory, Relation
from cems_workbench.sources.address import Address
from cems_workbench.sources.payload import (
    USER_NAMES,
    Payload,
    canonical,
    chunk_key,
    memory_of,
    names_of,
    text_of,
    used_names,
    user_path,
)
from cems_workbench.sources.requests import ask
from cems_workbench.sources.source import (
    BATCH_BYTES,
    BATCH_ROWS,
    NO_TRIAL,
    Batch,
    Changed,
    EngineHit,
    EngineList,
    EngineQuery,
    RowProblem,
    SourceError,
    SourceInfo,
    TakenChunk,
    TakenMemory,
    Trial,
    Vector,
    too_long,
)


class _Closable(Protocol):
    def close(self) -> Any: ...


T = TypeVar("T")
Client = TypeVar("Client", bound=_Closable)
Collection = TypeVar("Collection")

SAMPLE_ROWS = 200
"""Rows that are looked at to see how the collection is used."""
FIRST_PAGE_ROWS = 64
"""Rows of the first page, whose size is not known yet."""
PAGE_BYTES = BATCH_BYTES // 4
"""Bytes of texts and vectors of a page: numbers travel as JSON and are Python's meanwhile, at many times their size."""
MAX_LISTED = 10
"""Collections that a message lists."""
MAX_COPIES = 3
"""How often a directory that is written to meanwhile is copied anew."""
MARKER_VERSION = "1"
"""Part of every marker: another number takes all rows anew."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A row as the engine has it. `text` is what it keeps as the document itself, None where it has no such thing."""

    id: str
    payload: Payload
    text: str | None = None
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose rows are meant: those with one of `values` at the path `field` of the payload; an id of digits may be a number there."""

    field: str
    values: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ClientHit:
    """A row that a search found, with its payload, which may be only the fields that were asked for."""

    id: str
    payload: Payload
    score: float


class ServerOrDirectoryClient(ABC, Generic[Client, Collection]):
    """What a product answers about one collection. Methods may raise anything; `reason` says in words what it was."""

    sign: ClassVar[str]
    """A file that a directory of this product has."""
    owner: Owner | None = None
    """The only rows that are counted, listed and searched; None is all."""

    def __init__(self, address: Address, timeout: float) -> None:
        """Open the collection of a server, or of a copy of a directory. Raises InputError where none is meant, and SourceError."""
        self._address = address
        with ExitStack() as opened:
            if address.host:
                name, client = address.path, ask(address, timeout, lambda: self.server(timeout), self.reason)
            else:
                directory, name = find_directory(address, self.sign)
                copy = opened.enter_context(temporary_copy(address, directory))
                client = ask(address, timeout, lambda: self.directory(str(copy)), self.reason)
            opened.callback(client.close)
            self._client = client
            self._collection = ask(
                address, timeout, lambda: self.collection(choose_collection(address, name, self.names())), self.reason
            )
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Let go of connections and copies."""
        self._opened.close()

    @abstractmethod
    def server(self, timeout: float) -> Client:
        """A client of the server at the address."""

    @abstractmethod
    def directory(self, path: str) -> Client:
        """A client of a directory that may be written to."""

    @abstractmethod
    def names(self) -> Sequence[str]:
        """The collections that the client finds."""

    @abstractmethod
    def collection(self, name: str) -> Collection:
        """One of them. Raises InputError when it is none that can be taken."""

    @abstractmethod
    def reason(self, error: Exception) -> str | None:
        """What an error of this product means, on one line; None for what is not the product's, which is a bug."""

    @abstractmethod
    def describe(self) -> SourceInfo:
        """The collection; `memories` counts its rows."""

    @abstractmethod
    def sample(self, rows: int) -> Sequence[Row]:
        """Some rows, without vectors."""

    @abstractmethod
    def list_rows(self, names: Sequence[str]) -> Iterator[Sequence[tuple[str, Payload]]]:
        """Every row's id in portions, with at least these fields of its payload."""

    @abstractmethod
    def take(self, ids: Sequence[str]) -> Sequence[Row]:
        """These rows, with vectors, in any order; those that are gone are absent."""

    @abstractmethod
    def search(self, query: ClientQuery) -> Sequence[ClientHit]:
        """The engine's own list, best first. Raises SourceError for a trial that it cannot do."""


@dataclass(frozen=True, slots=True, eq=False)
class ClientQuery:
    """What an engine is asked. `names` are payload fields to return.

    `scope_field` of the payload should hold one of SHARED_WORDS for "shared", anything else or nothing for "personal".
    """

    vector: Vector
    rows: int
    names: Sequence[str] = ()
    trial: Trial = NO_TRIAL
    scope: str | None = None
    scope_field: str = ""


@dataclass(frozen=True, slots=True)
class _Schema:
    """How a collection is used, as far as a sample shows: by field the name it has, and whether rows are chunks of documents."""

    fields: Mapping[str, str]
    chunked: bool
    without_text: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """A memory that is to be taken: its rows, by their numbers when it is a document in chunks, else one row without a number."""

    id: str
    rows: Sequence[tuple[int | None, str]]


class CollectionSource:
    """A collection as a `source.Source`."""

    def __init__(
        self,
        address: Address,
        mapping: Mapping[str, Any] | None,
        timeout: float,
        engine: Callable[[Address, float], ServerOrDirectoryClient[Any, Any]],
    ) -> None:
        """Open it with `engine`; raises InputError for a mapping that does not fit and SourceError when it cannot be reached."""
        self._address, self._mapping, self._timeout = address, mapping, timeout
        self._names = names_of(mapping)
        self._engine = engine(address, timeout)
        if "user" in address.options:
            try:
                self._choose(address.options["user"])
            except BaseException:
                self._engine.close()
                raise

    def _choose(self, user: str) -> None:
        """Take and search the rows of one user alone. Raises InputError where rows do not say whose they are, or none is of that user."""
        rows = self._ask(lambda: self._engine.sample(SAMPLE_ROWS))
        path = user_path([row.payload for row in rows], self._names)
        if path is None:
            raise InputError(
                f"{self.address}: no row says whose it is ({', '.join(USER_NAMES)}), so user= chooses nothing; map `author`"
            )
        self._engine.owner = Owner(path, (user, int(user)) if user.isascii() and user.isdigit() else (user,))
        if not self._ask(lambda: self._engine.sample(1)):
            raise InputError(f"{self.address}: no row is of the user {user} (by {path})")

    @property
    def address(self) -> str:
        """Where it is, without any secret."""
        return self._address.plain

    def __enter__(self) -> CollectionSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections and of what was copied."""
        self._engine.close()

    def probe(self) -> SourceInfo:
        """What it is; a sample of its rows says what their fields are. Raises SourceError."""
        found = self._ask(self._engine.describe)
        missing, notes = list(found.missing), list(found.notes)
        if self._engine.owner is not None:
            notes.append(f"only the rows of {self._engine.owner.values[0]}, by {self._engine.owner.field}")
        memories = found.memories
        if memories:
            use = self._use
            notes.append(_fields_note(use.fields))
            if use.chunked:
                memories = len(self._entries([]))
                names = f"{use.fields['document']} and {use.fields['number']}"
                notes.append(
                    f"rows are chunks of documents by {names}; a document's content is its chunks one below the other, "
                    "with what they share twice"
                )
            if use.without_text:
                missing.append(f"{use.without_text} of the first rows have no text; such rows are not taken")
        if found.model is None:
            missing.append("nothing says which embedding model made the vectors: it has to be named to search them")
        missing.append("no relations between memories, so none are followed")
        return replace(found, memories=memories, missing=tuple(missing), notes=tuple(notes))

    @contextmanager
    def snapshot(self) -> Iterator[CollectionSnapshot]:
        """Its memories; a vector database holds no moment, so a row may change while others are taken. Raises SourceError."""
        problems: list[RowProblem] = []
        found = self._ask(self._engine.describe)
        yield CollectionSnapshot(self, found, self._entries(problems), problems)

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        """The engine's list by vectors. Raises SourceError."""
        rows = query.depths.get("vector", 0)
        if rows <= 0:
            return ()
        use = self._use
        scope_field = use.fields.get("scope", "")
        started = time.perf_counter()
        near: Sequence[ClientHit] = ()
        if scope_field or query.scope != "shared":
            names = tuple(use.fields[name] for name in ("document", "number")) if use.chunked else ()
            scope = query.scope if scope_field else None
            asked = ClientQuery(np.asarray(query.vector, np.float32), rows, names, trial, scope, scope_field)
            near = self._ask(lambda: self._engine.search(asked))
        hits = []
        for each in near:
            place = chunk_key(each.payload, self._names) if use.chunked else None
            hits.append(EngineHit(place[0], each.score, place[1]) if place else EngineHit(each.id, each.score))
        return (EngineList("vector", rows, tuple(hits), time.perf_counter() - started),)

    def _ask(self, call: Callable[[], T]) -> T:
        return ask(self._address, self._timeout, call, self._engine.reason)

    @cached_property
    def _use(self) -> _Schema:
        rows = self._ask(lambda: self._engine.sample(SAMPLE_ROWS))
        payloads = [row.payload for row in rows]
        places = [chunk_key(payload, self._names) for payload in payloads]
        chunked = bool(places) and None not in places and len(set(places)) == len(places)
        without = sum(text_of(row.text, row.payload, self._names) is None for row in rows)
        found = used_names(payloads, self._names)
        if any(row.text for row in rows) and (not self._mapping or "content" not in self._mapping):
            found.pop("content", None)
        return _Schema(found, chunked, without)

    def _entries(self, problems: list[RowProblem]) -> list[_Entry]:
        """What is there, listed; rows that cannot be told from others are put among the `problems`."""
        names = [self._use.fields[name] for name in ("document", "number")] if self._use.chunked else []
        portions = iter(self._engine.list_rows(names))
        documents: dict[str, dict[int | None, str]] = {}
        while (portion := self._ask(lambda: next(portions, None))) is not None:
            for row_id, payload in portion:
                document, number = (chunk_key(payload, self._names) if names else None) or (row_id, None)
                rows = documents.setdefault(document, {})
                if number in rows or (rows and (number is None) != (None in rows)):
                    what = f"chunk {number} of {document}" if number is not None else f"the row {document}"
                    problems.append(RowProblem(row_id, "id", f"another row is {what} already; this one was not taken"))
                    continue
                rows[number] = row_id
        return [_Entry(name, sorted(rows.items(), key=lambda item: item[0] or 0)) for name, rows in documents.items()]


@dataclass
class CollectionSnapshot:
    """The rows of a collection that were there when it was listed."""

    _source: CollectionSource
    _found: SourceInfo
    _entries: Sequence[_Entry]
    _problems: list[RowProblem]
    _page: int = FIRST_PAGE_ROWS
    _form: bytes = field(init=False, default=b"")

    def __post_init__(self) -> None:
        self._form = f"{MARKER_VERSION} {json.dumps(dict(self._source._names.given), sort_keys=True)}".encode()

    @property
    def total(self) -> int:
        """Memories that are there."""
        return len(self._entries)

    def batches(self, changed: Changed) -> Iterator[Batch]:
        """Every memory once as seen, unless it has no text or is gone; see `source.Snapshot`. Raises SourceError."""
        if self._problems:
            yield Batch(problems=self._problems)
        start = 0
        while start < len(self._entries):
            end, rows = start, 0
            while end < len(self._entries) and (end == start or rows + len(self._entries[end].rows) <= self._page):
                rows += len(self._entries[end].rows)
                end += 1
            yield self._batch(self._entries[start:end], changed)
            start = end

    def relations(self) -> Iterator[Sequence[Relation]]:
        """None: a vector database knows none."""
        return iter(())

    def _batch(self, entries: Sequence[_Entry], changed: Changed) -> Batch:
        source = self._source
        ids = [row_id for entry in entries for _, row_id in entry.rows]
        taken = source._ask(lambda: source._engine.take(ids))
        sizes = 0
        rows: dict[str, Row] = {}
        markers: dict[str, bytes] = {}
        for row in taken:
            digest, size = _digest(row)
            rows[row.id], markers[row.id], sizes = row, digest, sizes + size
        self._page = max(
            1, min(BATCH_ROWS, 2 * self._page, PAGE_BYTES * len(rows) // max(sizes, 1) if rows else BATCH_ROWS)
        )
        problems: list[RowProblem] = []
        seen: dict[str, str] = {}
        kept: dict[str, list[tuple[int | None, Row, str]]] = {}
        for entry in entries:
            parts = self._parts(entry, rows, problems)
            if parts:
                kept[entry.id] = parts
                whole = hashlib.blake2b(self._form, digest_size=16)
                for number, row, _ in parts:
                    whole.update(f"{number} ".encode() + markers[row.id])
                seen[entry.id] = whole.hexdigest()
        wanted = changed(list(seen), list(seen.values())) if seen else ()
        memories = [made for each in wanted if (made := self._made(each, kept[each], seen, problems)) is not None]
        return Batch(list(seen), memories, problems)

    def _parts(
        self, entry: _Entry, rows: Mapping[str, Row], problems: list[RowProblem]
    ) -> list[tuple[int | None, Row, str]]:
        """The rows of a memory that are still there and have a text, with it."""
        parts = []
        for number, row_id in entry.rows:
            row = rows.get(row_id)
            if row is None:
                continue
            text = text_of(row.text, row.payload, self._source._names)
            if text is None:
                problems.append(
                    RowProblem(row_id, "document" if not row.payload else "content", "has no text; it was not taken")
                )
            else:
                parts.append((number, row, text))
        return parts

    def _made(
        self,
        memory_id: str,
        parts: Sequence[tuple[int | None, Row, str]],
        seen: dict[str, str],
        problems: list[RowProblem],
    ) -> TakenMemory | None:
        """A memory of its rows; None, with a problem and no longer seen, when no store can hold it."""
        payload, content = parts[0][1].payload, "\n".join(text for *_, text in parts)
        if problem := too_long(memory_id, len(content.encode())):
            del seen[memory_id]
            problems.append(problem)
            return None
        try:
            memory, found = memory_of(memory_id, content, payload, self._source._names)
        except FieldError as error:
            del seen[memory_id]
            problems.append(RowProblem(memory_id, error.field, f"{error.reason}; it was not taken"))
            return None
        problems += found
        if parts[0][0] is None:
            return TakenMemory(memory, seen[memory_id], vector=self._vector(parts[0][1], problems))
        return TakenMemory(memory, seen[memory_id], tuple(self._chunks(memory, parts, problems)))

    def _chunks(
        self, memory: Memory, parts: Sequence[tuple[int | None, Row, str]], problems: list[RowProblem]
    ) -> Iterator[TakenChunk]:
        start = 0
        for number, row, text in parts:
            yield TakenChunk(number or 0, text, self._vector(row, problems), start)
            start += len(text) + 1

    def _vector(self, row: Row, problems: list[RowProblem]) -> Vector | None:
        if row.vector is None:
            problems.append(RowProblem(row.id, "vector", "is missing: the row can be read and not found by its vector"))
            return None
        if self._found.dimension is not None and row.vector.shape != (self._found.dimension,):
            raise SourceError(
                f"{self._source.address}: the vector of {row.id} has {row.vector.size} numbers, and the collection had "
                f"{self._found.dimension} when it was opened; it was replaced meanwhile"
            )
        if not np.isfinite(row.vector).all():
            problems.append(RowProblem(row.id, "vector", "has values that are no numbers; it was left out"))
            return None
        return row.vector


def choose_collection(address: Address, asked: str, there: Sequence[str]) -> str:
    """The collection that is asked for, or the only one. Raises InputError that names those that are there."""
    listed = ", ".join(sorted(there)[:MAX_LISTED]) + (
        f" and {len(there) - MAX_LISTED} more" if len(there) > MAX_LISTED else ""
    )
    if asked in there:
        return asked
    if not there:
        raise InputError(f"{address.plain} has no collection")
    if asked:
        close = nearest(asked, there)
        hint = f"; did you mean {close}?" if close else ""
        raise InputError(f"{address.plain} has no collection {asked}{hint} There are: {listed}")
    if len(there) == 1:
        return there[0]
    raise InputError(f"{address.plain} names no collection; there are: {listed}")


def find_directory(address: Address, sign: str) -> tuple[Path, str]:
    """The directory of an address without a host, and the collection in it; `sign` is a file that such a directory has.

    Raises InputError when neither the path nor the one above it is such a directory.
    """
    path = Path(address.path)
    for directory, name in ((path, ""), (path.parent, path.name)):
        if (directory / sign).is_file():
            return directory, name
    raise InputError(f"{address.plain}: neither {path} nor {path.parent} has {sign}, so no such database is there")


@contextmanager
def temporary_copy(address: Address, directory: Path) -> Iterator[Path]:
    """A copy of a directory whose client writes to what it opens; it is deleted at the end. Raises SourceError.

    A directory that is written to meanwhile is copied again.
    """
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
                if after == before:
                    break
                before = after
                shutil.rmtree(copy)
            else:
                raise SourceError(f"{address.plain}: it is written to all the time; connect to its server instead")
            for each in (copy, *copy.rglob("*")):
                each.chmod(0o700 if each.is_dir() else 0o600)
        except (OSError, shutil.Error) as error:
            raise SourceError(
                f"{address.plain}: it cannot be read: {one_line(getattr(error, 'strerror', None) or str(error))}"
            ) from None
        yield copy


def _state(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file."""
    files = (file for file in directory.rglob("*") if file.is_file())
    return {str(file): (stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()]}


def _digest(row: Row) -> tuple[bytes, int]:
    """A digest of all that a row has, and its bytes."""
    said = json.dumps(row.text, ensure_ascii=False).encode("utf-8", "surrogatepass")
    said += canonical(row.payload).encode("utf-8", "surrogatepass")
    vector = b"" if row.vector is None else np.ascontiguousarray(row.vector, "<f4").tobytes()
    return hashlib.blake2b(said + b"\0" + vector, digest_size=16).digest(), len(said) + len(vector)


def _fields_note(found: Mapping[str, str]) -> str:
    """Which fields of memories are taken from where, in words."""
    pairs = [
        f"{field} from {name}" if field != name else field
        for field, name in found.items()
        if field not in ("document", "number")
    ]
    return (
        f"fields taken: {', '.join(pairs)}"
        if pairs
        else "no field of the rows is one of memories: only texts and vectors are taken"
    )
