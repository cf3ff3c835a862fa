"""A collection of rows with an id, a payload and a vector as a source: `CollectionSource` over a product's `CollectionClient`.

The ids are listed first and rows read by id, so that rows added or deleted meanwhile shift no page. Vector databases keep no time of
change: every row is read each time, and its marker is a digest of all its values.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.memory_fields import EXPIRATION_DATE, mem0_hides
from cems_workbench.formats.base.payload import (
    SAMPLE_ROWS,
    USER_NAMES,
    Payload,
    canonical,
    chunk_key,
    is_deleted,
    memory_of,
    names_of,
    text_of,
    unread,
    unread_note,
    used_names,
    user_path,
    value_at,
)
from cems_workbench.records import DELETED_MARK, OWN_TEXT, EmbeddedText, Relation
from cems_workbench.sources import source as base
from cems_workbench.sources.address import Address
from cems_workbench.sources.connect import ask
from cems_workbench.sources.rows import (
    Page,
    PagedSnapshot,
    date_note,
    embedded_texts,
    fields_note,
    usable_vector,
)

T = TypeVar("T")

FIRST_PAGE_ROWS = 64
"""Rows of the first page, before the size of a row is known."""
PAGE_BYTES = base.BATCH_BYTES // 4
"""Bytes of texts and vectors in a page. Smaller than a batch: while JSON is parsed, numbers take many times their size."""
HAYSTACK_ID = "id"
"""Where Haystack keeps a document's id on Qdrant, whose points are named by UUIDs made of it."""
NOT_NAMED = ("_node_content", "_node_type", "text_lemmatized", "hash", "id")
"""What libraries keep for themselves: a note of what was not read does not name it."""
OWN_FIELDS = {"document": "memory", "number": "chunk"}
OWN_NAMES = (*NOT_NAMED, "content", "length", "start", "relations")
OWN_SEPARATOR = "\x1f"
"""What is between memory and chunk in the ids of rows that this workbench wrote."""
VECTORS, NO_VECTORS = "vectors", "none"
"""The option of an address, with its value, that leaves the vectors of the rows: their texts are embedded here."""
MARKER_VERSION = "3"
"""Part of every marker: another version makes every row count as changed."""


SCORES: Mapping[base.Distance, Callable[[float], float]] = {
    "cosine": lambda distance: 1.0 - float(distance),
    "ip": lambda distance: 1.0 - float(distance),
    # Rounding can make the squared distance slightly negative.
    "l2": lambda distance: -math.sqrt(max(float(distance), 0.0)),
}
"""Cosine, inner product, or negated Euclidean distance by what Chroma and LanceDB return: 1 - cosine, 1 - product, the squared distance."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A row. `text` is the document itself, None if the product keeps it in the payload."""

    id: str
    payload: Payload
    text: str | None = None
    vector: base.Vector | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """The rows of one user: one of `values` at the path `field` of the payload; an id of digits may be stored as a number."""

    field: str
    values: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ClientHit:
    """A hit with its score and payload, which may be limited to the requested fields."""

    id: str
    payload: Payload
    score: float


class RefusedTextError(base.SourceError):
    """A text that the product does not search for: it costs this list of this query, and nothing else."""


class CollectionClient(ABC):
    """What a product answers about one collection. Methods may raise anything; `reason` turns it into a message. A
    constructor opens the collection, as `CollectionSource` calls it: `client(address, timeout)`."""

    owner: Owner | None = None
    """The only rows that are counted, listed and searched; None: all. Set for the option `user=`, if the kind has it."""
    with_vectors: bool = True
    """Whether `take` returns vectors. Set for the option `vectors=none`, if the kind has it."""
    by_words: bool = False
    """Whether rows have sparse vectors of their words."""
    text_of: Callable[[Row], str | None] = staticmethod(lambda row: row.text)
    """The text of a row, by the names or the mapping of its fields."""

    def close(self) -> None:  # noqa: B027  (a file that is opened for each read has nothing to release)
        """Release connections and copies; none unless a client has some."""

    @abstractmethod
    def reason(self, error: Exception) -> str | None:
        """One line for an error of this product; None for one that it does not raise, which is a bug."""

    @abstractmethod
    def describe(self) -> base.SourceInfo:
        """The collection; `memories` is the number of its rows."""

    @abstractmethod
    def sample(self, rows: int) -> Sequence[Row]:
        """Up to so many rows, without vectors."""

    @abstractmethod
    def list_rows(self, names: Sequence[str]) -> Iterator[Sequence[tuple[str, Payload]]]:
        """Pages of (id, payload) of every row; payloads have at least the fields `names`."""

    @abstractmethod
    def take(self, ids: Sequence[str]) -> Sequence[Row]:
        """These rows with vectors, in any order; rows that no longer exist are missing."""

    @abstractmethod
    def search(self, query: ClientQuery) -> Sequence[ClientHit]:
        """The product's own list `query.name`, best first. Raises SourceError for a trial that it cannot do, and RefusedTextError."""

    def lists(self) -> tuple[base.ListName, ...]:
        return ("vector",)


@dataclass(frozen=True, slots=True, eq=False)
class ClientQuery:
    """A search of one collection. `names` are payload fields to return. The payload's `scope_field` must be one of
    SHARED_WORDS for the scope "shared", anything else or missing for "personal"."""

    vector: base.Vector
    rows: int
    names: Sequence[str] = ()
    trial: base.Trial = base.NO_TRIAL
    scope: str | None = None
    scope_field: str = ""
    name: base.ListName = "vector"
    text: str = ""
    said: list[str] = field(default_factory=list)
    """Lines that the client adds about this list, for `EngineList.notes`."""


@dataclass(frozen=True, slots=True)
class _Schema:
    """Fields of a collection, recognised from a sample: the path of each field, and whether rows are chunks of documents."""

    fields: Mapping[str, str]
    chunked: bool
    without_text: int
    own: bool = False
    """Whether the rows are of this workbench (`store/search/chroma_records.py`)."""
    id: str | None = None
    """The path of the id that the library gives its rows, where the product has another one for them."""
    expires: str | None = None
    """The path of mem0's expiration_date, past which mem0 hides a row."""
    unread: tuple[str, ...] = ()
    """Paths that no field is read from."""
    date_note: str | None = None


_Entry = tuple[str, Sequence[tuple[int | None, str]]]
"""A memory to import: its id and its (number, row id) pairs; the number is None for a memory that is one row."""
_Parts = Sequence[tuple[int | None, Row, str]]
"""(number, row, text) of the rows of a memory; the number is None for a memory that is one row."""


class CollectionSource:
    """A collection as a `source.Source`."""

    def __init__(
        self,
        address: Address,
        mapping: Mapping[str, Any] | None,
        timeout: float,
        client: Callable[[Address, float], CollectionClient],
    ) -> None:
        """Open it with `client`. Raises InputError for a mapping that does not fit and SourceError if it cannot be reached."""
        self._address, self._mapping, self._timeout = address, mapping, timeout
        self._names = names_of(mapping)
        self._embedded_here = VECTORS in address.options
        if address.options.get(VECTORS, NO_VECTORS) != NO_VECTORS:
            raise InputError(f"{address.plain}: {VECTORS} may be {NO_VECTORS} alone")
        self._client = client(address, timeout)
        self._client.with_vectors = not self._embedded_here
        self._client.text_of = lambda row: text_of(row.text, row.payload, self._names)
        if "user" in address.options:
            try:
                self._restrict_to(address.options["user"])
            except BaseException:
                self._client.close()
                raise

    def _restrict_to(self, user: str) -> None:
        """Restrict everything to one user's rows. Raises InputError if rows have no user, or none is of that user."""
        rows = self._ask(lambda: self._client.sample(SAMPLE_ROWS))
        path = user_path([row.payload for row in rows], self._names)
        if path is None:
            raise InputError(
                f"{self.address}: no row names its user ({', '.join(USER_NAMES)}), so user= has no effect; map `author`"
            )
        self._client.owner = Owner(path, (user, int(user)) if user.isascii() and user.isdigit() else (user,))
        if not self._ask(lambda: self._client.sample(1)):
            raise InputError(f"{self.address}: no row is of the user {user} (by {path})")

    @property
    def address(self) -> str:
        """The address without any secret."""
        return self._address.plain

    def close(self) -> None:
        self._client.close()

    def probe(self) -> base.SourceInfo:
        """The collection; its fields are recognised from a sample. Raises SourceError."""
        found = self._described()
        missing, notes = list(found.missing), list(found.notes)
        if self._client.owner is not None:
            notes.append(f"only the rows of {self._client.owner.values[0]}, by {self._client.owner.field}")
        memories = found.memories
        if memories:
            use = self._use
            notes.append(
                fields_note({name: path for name, path in use.fields.items() if name not in ("document", "number")})
            )
            notes += filter(None, ((use.date_note or "").replace("ADDRESS", self.address), unread_note(use.unread)))
            if use.own:
                notes.append(
                    "the rows are of another store of this workbench: its memories and chunks are taken as they were"
                )
            elif use.id:
                notes.append(f"a memory's id is {use.id}, as the library that wrote the rows names them")
            if use.expires:
                notes.append(f"the live list leaves out what is past its {use.expires}, as mem0 does")
            memories = len(self._entries([])) if use.chunked else memories
            if use.chunked and not use.own:
                names = f"{use.fields['document']} and {use.fields['number']}"
                notes.append(
                    f"rows are chunks of documents by {names}; a document's content is its chunks one below the other, "
                    "with what they share twice"
                )
            missing += [
                f"mapping: {field}: none of the first {SAMPLE_ROWS} rows has {self._names.known[field][0]}"
                for field in self._names.given
                if field not in use.fields
            ]
            if use.without_text:
                missing.append(f"{use.without_text} of the first rows have no text; such rows are not taken")
        if found.model is None and not self._embedded_here:
            notes.append("the source does not name the model of its vectors: some are compared with the embedder's")
        if not memories or not self._use.own:
            missing.append("no relations between memories but what superseded_by names, so no others are followed")
        first = self._ask(lambda: self._client.sample(1)) if memories else ()
        mem0 = any({"data", "hash"} <= row.payload.keys() for row in first)
        made_by = ("mem0_keyword" if self._client.by_words else "mem0") if mem0 else ""
        return replace(found, memories=memories, missing=tuple(missing), notes=tuple(notes), preset=made_by)

    def _described(self) -> base.SourceInfo:
        found = self._ask(self._client.describe)
        if not self._embedded_here:
            return found
        return replace(found, vectors=0, dimension=None, model=None, lists=(), settings=())

    @contextmanager
    def snapshot(self) -> Iterator[CollectionSnapshot]:
        """Its memories; a vector database has no snapshots, so rows may change while others are read. Raises SourceError."""
        problems: list[base.RowProblem] = []
        found = self._described()
        yield CollectionSnapshot(self, found, self._entries(problems), problems)

    def search(self, query: base.EngineQuery, trial: base.Trial = base.NO_TRIAL) -> tuple[base.EngineList, ...]:
        """The product's own lists. Raises SourceError."""
        wanted = {name: rows for name, rows in query.depths.items() if rows > 0}
        if not wanted:
            return ()
        answered = self._ask(self._client.lists)
        return tuple(self._list(name, rows, query, trial) for name, rows in wanted.items() if name in answered)

    def row_ids(self) -> Iterator[Sequence[str]]:
        """The ids of all rows, in pages. Raises SourceError."""
        pages = iter(self._client.list_rows([]))
        while (page := self._ask(lambda: next(pages, None))) is not None:
            yield [row_id for row_id, _ in page]

    def rows(self, ids: Sequence[str]) -> Sequence[Row]:
        """These rows with texts and vectors; rows that no longer exist are missing. Raises SourceError."""
        return self._ask(lambda: self._client.take(ids))

    def _list(self, name: base.ListName, rows: int, query: base.EngineQuery, trial: base.Trial) -> base.EngineList:
        use = self._use
        scope_field = use.fields.get("scope", "")
        started = time.perf_counter()
        near: Sequence[ClientHit] = ()
        hidden, said = 0, list[str]()
        if scope_field or query.scope != "shared":
            names = tuple(use.fields[name] for name in ("document", "number")) if use.chunked else ()
            names += tuple(name for name in (use.id, use.expires) if name)
            scope = query.scope if scope_field else None
            vector = np.asarray(query.vector, np.float32)
            asked = ClientQuery(vector, rows, names, trial, scope, scope_field, name, query.text, said)
            try:
                near, hidden = self._visible(asked)
            except RefusedTextError as error:
                said.append(str(error))
        hits = []
        for each in near:
            place = chunk_key(each.payload, self._names) if use.chunked else None
            if place:
                hits.append(base.EngineHit(place[0], each.score, place[1]))
            else:
                hits.append(base.EngineHit(self._id_of(each.id, each.payload), each.score))
        notes = tuple(dict.fromkeys(said))
        return base.EngineList(name, rows, tuple(hits), time.perf_counter() - started, hidden, notes)

    def _visible(self, asked: ClientQuery) -> tuple[Sequence[ClientHit], int]:
        """The best rows without those that the library hides, for which more are asked, and how many it hides. Of a
        fusion none are asked again: more rows change the order."""
        use = self._use
        if use.expires is None:
            return self._ask(lambda: self._client.search(asked)), 0
        today = datetime.now(UTC).date()
        rows = asked.rows
        while True:
            query = replace(asked, rows=rows)
            near = self._ask(lambda query=query: self._client.search(query))  # type: ignore[misc]
            shown = [each for each in near if not mem0_hides(value_at(each.payload, use.expires), today)]
            if len(shown) >= asked.rows or len(near) < rows or asked.name == "source_hybrid":
                return shown[: asked.rows], len(near) - len(shown)
            rows *= 2

    def _id_of(self, row_id: str, payload: Payload) -> str:
        value = None if self._use.id is None else value_at(payload, self._use.id)
        return value if isinstance(value, str) and value else row_id

    def _ask(self, call: Callable[[], T]) -> T:
        return ask(self._address, self._timeout, call, self._client.reason)

    @cached_property
    def _use(self) -> _Schema:
        rows = self._ask(lambda: self._client.sample(SAMPLE_ROWS))
        payloads = [row.payload for row in rows]
        own = bool(rows) and not self._names.given and all(map(_is_own, rows))
        if own:
            self._names = names_of(OWN_FIELDS)
        places = [chunk_key(payload, self._names) for payload in payloads]
        chunked = own or (bool(places) and None not in places and len(set(places)) == len(places))
        without = sum(text_of(row.text, row.payload, self._names) is None for row in rows)
        found = {**used_names(payloads, self._names), **(OWN_FIELDS if own else {})}
        if any(row.text for row in rows) and (not self._mapping or "content" not in self._mapping):
            found.pop("content", None)
        expires = found.get("valid_until", "")
        left = [path for payload in payloads for path in unread(payload, self._names, OWN_NAMES if own else NOT_NAMED)]
        return _Schema(
            found,
            chunked,
            without,
            own,
            OWN_FIELDS["document"] if own else HAYSTACK_ID if payloads and all(map(_is_haystack, payloads)) else None,
            expires if expires.rpartition(".")[2] == EXPIRATION_DATE else None,
            tuple(left),
            date_note(payloads, self._names, left, {} if own else self._names.given),
        )

    def _entries(self, problems: list[base.RowProblem]) -> list[_Entry]:
        """All memories; rows that duplicate another are added to `problems`."""
        use = self._use
        names = [use.fields[name] for name in ("document", "number")] if use.chunked else []
        names += [use.id] if use.id else []
        portions = iter(self._client.list_rows(names))
        documents: dict[str, dict[int | None, str]] = {}
        while (portion := self._ask(lambda: next(portions, None))) is not None:
            for row_id, payload in portion:
                document, number = (chunk_key(payload, self._names) if use.chunked else None) or (
                    self._id_of(row_id, payload),
                    None,
                )
                rows = documents.setdefault(document, {})
                if number in rows or (rows and (number is None) != (None in rows)):
                    what = f"chunk {number} of {document}" if number is not None else f"the row {document}"
                    reason = f"another row is {what} already; this one was not taken"
                    problems.append(base.RowProblem(row_id, "id", reason, duplicate=True))
                    continue
                rows[number] = row_id
        return [(name, sorted(rows.items(), key=lambda item: item[0] or 0)) for name, rows in documents.items()]


@dataclass
class CollectionSnapshot(PagedSnapshot):
    """The rows that existed when the collection was listed."""

    _source: CollectionSource
    _found: base.SourceInfo
    _entries: Sequence[_Entry]
    _problems: list[base.RowProblem]
    _page_rows: int = FIRST_PAGE_ROWS
    _relations: list[Relation] = field(default_factory=list)
    """Of rows of this workbench."""

    @cached_property
    def _form(self) -> bytes:
        return f"{MARKER_VERSION} {json.dumps(dict(self._source._names.given), sort_keys=True)}".encode()

    @property
    def total(self) -> int:
        return len(self._entries)

    def pages(self) -> Iterator[Page]:
        """Every memory once, unless it has no text or was deleted. Raises SourceError."""
        if self._problems:
            yield Page((), (), lambda places: ((), ()), problems=self._problems)
        start = 0
        while start < len(self._entries):
            end, rows = start, 0
            while end < len(self._entries) and (end == start or rows + len(self._entries[end][1]) <= self._page_rows):
                rows += len(self._entries[end][1])
                end += 1
            yield self._page(self._entries[start:end])
            start = end

    def relations(self) -> Iterator[Sequence[Relation]]:
        yield from [self._relations] if self._relations else super().relations()

    def _page(self, entries: Sequence[_Entry]) -> Page:
        source = self._source
        ids = [row_id for _, of_memory in entries for _, row_id in of_memory]
        sizes = 0
        rows: dict[str, Row] = {}
        digests: dict[str, bytes] = {}
        for row in source._ask(lambda: source._client.take(ids)):
            digest, size = _digest(row)
            rows[row.id], digests[row.id], sizes = row, digest, sizes + size
        # At most doubled: the rows of one page may be unusually short.
        self._page_rows = max(
            1,
            min(
                base.BATCH_ROWS,
                2 * self._page_rows,
                PAGE_BYTES * len(rows) // max(sizes, 1) if rows else base.BATCH_ROWS,
            ),
        )
        problems: list[base.RowProblem] = []
        markers: list[str] = []
        kept: list[tuple[str, _Parts]] = []
        for memory_id, of_memory in entries:
            if parts := self._parts(of_memory, rows, problems):
                kept.append((memory_id, parts))
                whole = hashlib.blake2b(self._form, digest_size=16)
                for number, row, _ in parts:
                    whole.update(f"{number} ".encode() + digests[row.id])
                payload = parts[0][1].payload
                markers.append((DELETED_MARK if is_deleted(payload) else "") + whole.hexdigest())
                self.note_state(memory_id, payload)
                if source._use.own:
                    self._relations += _relations(memory_id, payload, problems)

        def read(places: Sequence[int]) -> tuple[list[base.TakenMemory], list[base.RowProblem]]:
            found: list[base.RowProblem] = []
            made = (self._made(*kept[place], markers[place], found) for place in places)
            return [each for each in made if each is not None], found

        return Page([memory_id for memory_id, _ in kept], markers, read, problems=problems)

    def _parts(
        self, of_memory: Sequence[tuple[int | None, str]], rows: Mapping[str, Row], problems: list[base.RowProblem]
    ) -> _Parts:
        parts = []
        for number, row_id in of_memory:
            row = rows.get(row_id)
            # Deleted since the rows were listed.
            if row is None:
                continue
            text = text_of(row.text, row.payload, self._source._names)
            if text is None:
                problems.append(
                    base.RowProblem(
                        row_id, "document" if not row.payload else "content", "has no text; it was not taken"
                    )
                )
            else:
                parts.append((number, row, text))
        return parts

    def _made(
        self, memory_id: str, parts: _Parts, marker: str, problems: list[base.RowProblem]
    ) -> base.TakenMemory | None:
        """The memory of these rows; None, with a problem, if it cannot be stored."""
        (number, first, _), own = parts[0], self._source._use.own
        texts = [_own_text(row, text) if own else text for _, row, text in parts]
        whole = first.payload.get("content") if own else None
        content = whole if isinstance(whole, str) else "\n".join(texts)
        if problem := base.too_long(memory_id, len(content.encode())):
            problems.append(problem)
            return None
        try:
            memory, found = memory_of(memory_id, content, first.payload, self._source._names)
        except FieldError as error:
            problems.append(base.RowProblem(memory_id, error.field, f"{error.reason}; it was not taken"))
            return None
        problems += found
        if number is None:
            vector = self._vector(first, problems)
            embedded = _before(parts[0][2], content) if own else embedded_texts(first.payload, content)
            return base.TakenMemory(memory, marker, vector=vector, embedded=embedded)
        chunks, start = [], 0
        for (number, row, searched), text in zip(parts, texts, strict=True):
            place = row.payload.get("start") if own else start
            embedded = _before(searched, text) if own else embedded_texts(row.payload, text)
            vector = self._vector(row, problems)
            chunks.append(base.TakenChunk(number or 0, text, vector, place, embedded, titled=text != searched))
            # The newline between two chunks.
            start += len(text) + 1
        return base.TakenMemory(memory, marker, tuple(chunks))

    def _vector(self, row: Row, problems: list[base.RowProblem]) -> base.Vector | None:
        if self._source._embedded_here:
            return None
        dimension = self._found.dimension
        if row.vector is not None and dimension is not None and row.vector.shape != (dimension,):
            raise base.SourceError(
                f"{self._source.address}: the vector of {row.id} has {row.vector.size} numbers, and the collection had "
                f"{dimension} when it was opened; it was replaced meanwhile"
            )
        return usable_vector(row.id, "vector", row.vector, dimension, problems)


def _digest(row: Row) -> tuple[bytes, int]:
    """A digest of all values of a row, and their size in bytes."""
    said = json.dumps(row.text, ensure_ascii=False).encode("utf-8", "surrogatepass")
    said += canonical(row.payload).encode("utf-8", "surrogatepass")
    # Little-endian on every machine: the marker is stored.
    vector = b"" if row.vector is None else np.ascontiguousarray(row.vector, "<f4").tobytes()
    return hashlib.blake2b(said + b"\0" + vector, digest_size=16).digest(), len(said) + len(vector)


def _is_own(row: Row) -> bool:
    """Whether a row is as this workbench writes them: its id is that of its memory, or begins with it."""
    memory = row.payload.get("memory")
    return isinstance(memory, str) and f"{row.id}{OWN_SEPARATOR}".startswith(f"{memory}{OWN_SEPARATOR}")


def _own_text(row: Row, text: str) -> str:
    """The content or chunk of such a row: the end of its text."""
    length = row.payload.get("length")
    return text[-length:] if isinstance(length, int) and 0 < length < len(text) else text


def _relations(memory_id: str, payload: Payload, problems: list[base.RowProblem]) -> Iterator[Relation]:
    """The edges from the memory of such a row."""
    for edge in payload.get("relations") or ():
        try:
            kind, target, weight, author = json.loads(edge)
            yield Relation(memory_id, str(target), str(kind), float(weight), author)
        except (TypeError, ValueError):
            problems.append(base.RowProblem(memory_id, "relations", "has an edge that cannot be read; it was left out"))


def _before(searched: str, text: str) -> dict[str, EmbeddedText]:
    return {OWN_TEXT: EmbeddedText(searched[: -len(text)])} if searched.endswith(text) else {}


def _is_haystack(payload: Payload) -> bool:
    return (
        isinstance(payload.get(HAYSTACK_ID), str) and "content" in payload and isinstance(payload.get("meta"), Mapping)
    )
