"""A folder with a FAISS index and the memories beside it.

    faiss:/FOLDER   faiss:/FOLDER?name=NAME   faiss:/FOLDER?user=ID

Nothing is written to it, and it is reread when its files change. A vector whose memory is gone stays in the index (mem0 deletes only
the memory): searches leave it out within FAISS, so that the list is as long as it was asked for. mem0 filters by user after its search:
of the nearest 2 k vectors of all users, deleted ones too, it returns the first k of the user's. The live list of its folder does the same,
unless the setting `filter` is tried as `within`: then FAISS searches among the user's vectors alone, as for other libraries. There a graph
or partitions are searched near the query, where few or none may pass a filter: a search that finds too few looks at all, and says so,
unless settings of the index are tried.

Source: mem0ai 2.2.1, its FAISS store run with faiss-cpu 1.15.1: of 40 memories of another user nearer to the query and 6 of the asked one,
a search for 20 returns none, one for 21 two, one for 23 all six.

Beside an index are the memories, and the label of each one's vector:

    mem0      NAME.faiss, NAME.json     {"docstore": {id: payload}, "index_to_id": {label: id}}
    txtai     embeddings, documents     SQLite: sections(indexid, id, text, tags, entry), documents(id, data); config.json

What holds pickled Python objects is never read, because reading one runs what it says: index.pkl of LangChain, and NAME.pkl of mem0 before
its docstore was JSON. An index (IndexFlat…, IndexIVF…, IndexHNSW…, also within IndexIDMap or IndexPreTransform) is read whole into memory,
as every program that uses it does. Quantised ones return vectors that they can reconstruct, which are near those that were added.

Source: faiss-cpu 1.15.1, mem0ai 2.2.1 and txtai 9.14.0, recorded by running them; https://github.com/facebookresearch/faiss/wiki
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import as_object
from cems_workbench.formats.base.memory_fields import SHARED_WORDS
from cems_workbench.formats.base.payload import Payload, value_at
from cems_workbench.sources.address import Address
from cems_workbench.sources.collection import ClientHit, ClientQuery, CollectionClient, CollectionSource, Row
from cems_workbench.sources.connect import ask, check_options
from cems_workbench.sources.source import Distance, Setting, SourceError, SourceInfo, Vector

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
    labels: Mapping[str, int]
    """The label of each memory's vector, by id."""
    filters_after: bool = False
    """Whether the library searches everything, and filters by user what that returned."""

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
        self.labels = {row_id: label for row_id, label in labels.items() if row_id in rows}
        if missing := len(self._rows) - len(self.labels):
            self.notes = (f"{missing:,} memories of {path.name} have no vector in the index; they are not taken",)

    def read(self, ids: Sequence[str]) -> Iterator[tuple[str, str | None, Payload]]:
        for row_id in ids:
            if row_id in self.labels:
                yield row_id, None, self._rows[row_id]


class TxtaiDocuments(Documents):
    """The SQLite database of txtai, which is written as a whole when an index is saved."""

    library = "txtai"

    def __init__(self, folder: Path) -> None:
        """Raises SourceError for a folder without content, or with another index than FAISS."""
        self._path = folder / "documents"
        config: Mapping[str, Any] = {}
        with suppress(OSError, ValueError):  # an older one is a pickle, and nothing in it is needed
            config = as_object((folder / "config.json").read_text("utf-8"))
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
            rows = _rows(connection, "SELECT id, indexid FROM sections ORDER BY indexid DESC")
        self.labels = {str(row_id): label for row_id, label in rows}

    def _open(self) -> sqlite3.Connection:
        # Immutable: no lock and no file beside it. txtai works on another copy, and replaces the file when it saves.
        return sqlite3.connect(f"{self._path.absolute().as_uri()}?immutable=1", uri=True, check_same_thread=False)

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
                    more = {name: value for name, value in as_object(data).items() if name != "text"}
                    yield str(row_id), text, {"tags": tags, "created_at": entry, **more}


def documents(folder: Path, name: str | None = None) -> tuple[Path, Documents]:
    """The index file of a folder, the only one or NAME.faiss, and the memories beside it. Raises InputError for a
    folder of another form, or without that file, and SourceError."""
    if name is not None:
        path, beside = folder / f"{name}.faiss", folder / f"{name}.json"
        if "/" in name or not (path.is_file() and beside.is_file()):
            raise InputError(f"{folder}: no {name}.faiss with {name}.json")
        return path, Mem0Documents(beside)
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


def _rows(connection: sqlite3.Connection, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(query, values).fetchall()
    except sqlite3.Error as error:
        raise SourceError(f"documents is no database of txtai: {error}") from None


OPTIONS = ("name", "user")
PAGE_ROWS = 10_000
FETCHED_PER_ROW = 2
"""Vectors that mem0 takes for each result, where it filters."""
FILTER, AFTER, WITHIN = "filter", "after", "within"
FILTER_SETTING = Setting(FILTER, AFTER, "the search, where the user's filter acts", (WITHIN,))
TRIES, PAUSE_S = 3, 0.2
"""Attempts to read files that are being written, and the time between two."""


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> CollectionSource:
    """Open a folder. Raises InputError for one of another form, or an option or a mapping that does not fit, and SourceError."""
    check_options(address, OPTIONS)
    return CollectionSource(address, mapping, timeout, FaissFolder)


class FaissFolder(CollectionClient):
    """A folder with an index and its memories, reread when one of the files changes."""

    def __init__(self, address: Address, timeout: float) -> None:
        """Read it. Raises InputError for a folder that is not there or of another form, and SourceError."""
        self._address, self._folder = address, Path(address.path)
        if address.host or not self._folder.is_dir():
            raise InputError(f"{address.plain}: no such folder")
        self._stamp: object = None
        ask(address, timeout, self._read, self.reason)

    def reason(self, error: Exception) -> str | None:
        """FAISS raises RuntimeError with the place in its code; the part behind it says what happened."""
        if isinstance(error, RuntimeError):
            return f"FAISS cannot read the index: {str(error).strip().splitlines()[0].rpartition(': ')[2]}"
        return str(error) if isinstance(error, OSError) else None

    def _read(self) -> tuple[FaissIndex, Documents]:
        for attempt in range(TRIES):
            stamp = self._files()
            if stamp == self._stamp:
                break
            try:
                path, beside = documents(self._folder, self._address.options.get("name"))
                index = FaissIndex(path)
            except (SourceError, RuntimeError) as error:
                # Written at this moment, perhaps.
                if attempt == TRIES - 1:
                    raise SourceError(f"{self._address.plain}: {self.reason(error) or error}") from None
                time.sleep(PAUSE_S)
                continue
            if self._files() == stamp or attempt == TRIES - 1:
                self._index, self._documents, self._stamp = index, beside, stamp
                self._ids = {label: row_id for row_id, label in beside.labels.items()}
                break
        return self._index, self._documents

    def _files(self) -> tuple[tuple[str, int, int], ...]:
        found = [(each.name, each.stat()) for each in sorted(self._folder.iterdir()) if each.is_file()]
        return tuple((name, state.st_mtime_ns, state.st_size) for name, state in found)

    def describe(self) -> SourceInfo:
        index, beside = self._read()
        notes = list(beside.notes)
        held = {int(label) for label in index.labels}
        if gone := len(held - self._ids.keys()):
            belong = f"{gone:,} vectors of the index belong to no memory"
            notes.append(f"{belong} (deleted ones stay in it); searches leave them out")
        ids = self._owned()
        if self._filters_after:
            notes.append(
                f"mem0 takes the nearest {FETCHED_PER_ROW} k vectors of all users and filters by user after that, so that a user far "
                f"from a query gets fewer than k results, or none; the live list does the same, {FILTER} {WITHIN} shows what it misses"
            )
        return SourceInfo(
            kind="faiss",
            engine=f"{beside.library}'s folder, FAISS {faiss.__version__}",
            memories=len(ids),
            vectors=sum(beside.labels[each] in held for each in ids),
            dimension=index.dimension,
            distance=index.distance,
            index=None if index.exact else index.line,
            model=beside.model,
            settings=(*index.settings, *((FILTER_SETTING,) if self._filters_after else ())),
            notes=tuple(notes),
        )

    def sample(self, rows: int) -> Sequence[Row]:
        _, beside = self._read()
        return [Row(row_id, payload, text) for row_id, text, payload in beside.read(self._owned()[:rows])]

    def list_rows(self, names: Sequence[str]) -> Iterator[Sequence[tuple[str, Payload]]]:
        _, beside = self._read()
        ids = self._owned()
        for start in range(0, len(ids), PAGE_ROWS):
            part = ids[start : start + PAGE_ROWS]
            found = ((row_id, payload) for row_id, _, payload in beside.read(part))
            yield list(found) if names else [(each, {}) for each in part]

    def take(self, ids: Sequence[str]) -> Sequence[Row]:
        # As it was listed: files that changed since are for the next snapshot.
        index, beside = self._index, self._documents
        found = list(beside.read([each for each in ids if each in beside.labels]))
        vectors = index.vectors([beside.labels[row_id] for row_id, *_ in found])
        pairs = zip(found, vectors, strict=True)
        return [Row(row_id, payload, text, vector) for (row_id, text, payload), vector in pairs]

    def search(self, query: ClientQuery) -> Sequence[ClientHit]:
        index, beside = self._read()
        plain = self._address.plain
        if query.trial.exact and not index.exact:
            raise SourceError(f"{plain}: {index.line} has no exact search; the exact list is computed here")
        if query.vector.shape != (index.dimension,):
            raise SourceError(f"{plain}: the query has {query.vector.size} numbers, the index {index.dimension}")
        among = self._among(query)
        settings = {name: value for name, value in query.trial.settings.items() if name != FILTER}
        within = not self._filters_after or query.trial.settings.get(FILTER, AFTER) == WITHIN
        if among is None or within:
            near = index.search(query.vector, query.rows, among, settings)
        else:
            near = self._filtered_after(query, index, among, settings)
        if among is not None and within and not settings and len(near) < min(query.rows, len(among)):
            widest = index.widest()
            found, near = len(near), index.search(query.vector, query.rows, among, widest)
            if widest:
                ((name, value),) = widest.items()
                query.said.append(
                    f"of the {len(among):,} memories that pass the filter, FAISS found {found:,} near the query with its own {name}: it "
                    f"was asked again with {name} {value}, which looks at all; {index.line}"
                )
        score = (lambda number: -math.sqrt(max(number, 0.0))) if index.distance == "l2" else float
        hits = [(self._ids[label], number) for label, number in near if label in self._ids]
        rows = beside.read([row_id for row_id, _ in hits]) if query.names else ()
        payloads = {row_id: payload for row_id, _, payload in rows}
        return [ClientHit(row_id, payloads.get(row_id, {}), score(number)) for row_id, number in hits]

    @property
    def _filters_after(self) -> bool:
        """Whether the library filters by user after the search."""
        return self._documents.filters_after and self.owner is not None

    def _filtered_after(
        self, query: ClientQuery, index: FaissIndex, among: Labels, settings: Mapping[str, str]
    ) -> list[tuple[int, float]]:
        """The first of the nearest 2 k of all that pass the filter, and a note where that are fewer than k."""
        passing, fetched = set(among.tolist()), FETCHED_PER_ROW * query.rows
        near = [hit for hit in index.search(query.vector, fetched, None, settings) if hit[0] in passing][: query.rows]
        if len(near) < min(query.rows, len(passing)):
            everybody = index.search(query.vector, index.size, None, index.widest())
            first = next((place for place, (label, _) in enumerate(everybody, 1) if label in passing), None)
            where = "" if first is None else f"; the first is at rank {first:,} of all"
            query.said.append(
                f"mem0 takes the nearest {fetched:,} of all users and filters by user after that: {len(near):,} of the {len(passing):,} "
                f"memories that pass are among these{where}"
            )
        return near

    def _among(self, query: ClientQuery) -> Labels | None:
        """The labels to search, None for all: of memories that exist, of the owner, and of the scope."""
        index, beside = self._index, self._documents
        ids = self._owned()
        if query.scope is not None:
            rows, path = beside.read(ids), query.scope_field
            shared = {row_id for row_id, _, payload in rows if value_at(payload, path) in SHARED_WORDS}
            ids = [each for each in ids if (each in shared) == (query.scope == "shared")]
        labels = np.array(sorted(beside.labels[each] for each in ids), np.int64)
        return None if np.array_equal(labels, np.sort(index.labels)) else labels

    def _owned(self) -> list[str]:
        ids, owner = list(self._documents.labels), self.owner
        if owner is None:
            return ids
        rows = self._documents.read(ids)
        return [row_id for row_id, _, payload in rows if value_at(payload, owner.field) in owner.values]


Labels = NDArray[np.int64]
NPROBE, EF_SEARCH = "nprobe", "efSearch"


class FaissIndex:
    """An index that was read from a file."""

    def __init__(self, path: Path) -> None:
        """Raises RuntimeError for a file that is no index, and SourceError for one that cannot be read as a source."""
        self._index = faiss.read_index(str(path))
        if self._index.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2):
            raise SourceError(f"{path.name}: its metric {self._index.metric_type} is neither the inner product nor L2")
        self.size, self.dimension = int(self._index.ntotal), int(self._index.d)
        """Vectors in the index, and the length of one."""
        self.distance: Distance = "ip" if self._index.metric_type == faiss.METRIC_INNER_PRODUCT else "l2"

    @cached_property
    def _inner(self) -> Any:
        """The index that has the vectors: without the wrapper that gives them labels."""
        index = faiss.downcast_index(self._index)
        return faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2) else index

    @cached_property
    def _innermost(self) -> Any:
        """The same behind a transformation of the vectors."""
        transforms = isinstance(self._inner, faiss.IndexPreTransform)
        return faiss.downcast_index(self._inner.index) if transforms else self._inner

    @cached_property
    def labels(self) -> Labels:
        """The label of each vector, shape (size,)."""
        index = faiss.downcast_index(self._index)
        if isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2):
            return np.asarray(faiss.vector_to_array(index.id_map), np.int64)
        if self._is_ivf:
            # Its own lists have the labels; they are numbered in order unless the program gave others.
            lists = self._innermost.invlists
            sizes = [(i, size) for i in range(lists.nlist) if (size := lists.list_size(i))]
            parts = [faiss.rev_swig_ptr(lists.get_ids(i), size).copy() for i, size in sizes]
            return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        return np.arange(self.size, dtype=np.int64)

    @cached_property
    def _positions(self) -> Mapping[int, int]:
        labelled = isinstance(faiss.downcast_index(self._index), faiss.IndexIDMap | faiss.IndexIDMap2)
        if self._inner is not self._index and labelled:
            return {int(label): place for place, label in enumerate(self.labels)}
        return {int(label): int(label) for label in self.labels}

    @property
    def _is_ivf(self) -> bool:
        return isinstance(self._innermost, faiss.IndexIVF)

    @property
    def _is_hnsw(self) -> bool:
        return isinstance(self._innermost, faiss.IndexHNSW)

    @property
    def exact(self) -> bool:
        """Whether every search compares every whole vector."""
        return isinstance(self._inner, faiss.IndexFlat)

    @property
    def line(self) -> str:
        """The index with its sizes: "IndexIVFFlat, 100 partitions"."""
        name = type(self._innermost).__name__
        if self._is_ivf:
            return f"{name}, {self._innermost.nlist} partitions"
        return f"{name}, {self._innermost.hnsw.nb_neighbors(1)} neighbours" if self._is_hnsw else name

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What one search may change."""
        if self._is_ivf:
            most = self._innermost.nlist
            tries = tuple(str(value) for value in (1, 8, 32, most) if value <= most)
            return (Setting(NPROBE, str(self._innermost.nprobe), "partitions looked at", tries),)
        if self._is_hnsw:
            tries = tuple(str(value) for value in (64, 256) if value < self.size)
            own = str(self._innermost.hnsw.efSearch)
            return (Setting(EF_SEARCH, own, "nodes of the graph looked at", (*tries, *self.widest().values())),)
        return ()

    def vectors(self, labels: Sequence[int]) -> list[Vector | None]:
        """The vectors of these labels; None for one that is not there."""
        found = [self._positions.get(label) for label in labels]
        known = np.array([place for place in found if place is not None], np.int64)
        if self._is_ivf:
            # An array of places wants labels without gaps, which a deletion leaves.
            self._innermost.set_direct_map_type(faiss.DirectMap.Hashtable)
        rows = iter(self._inner.reconstruct_batch(known) if len(known) else ())
        return [None if place is None else np.array(next(rows), np.float32) for place in found]

    def search(
        self, vector: Vector, rows: int, among: Labels | None, settings: Mapping[str, str]
    ) -> list[tuple[int, float]]:
        """(label, number of the engine) of the nearest vectors, best first, only `among` these labels if given. The
        number is the inner product, or the squared L2 distance. Raises SourceError for an unknown setting."""
        for name in settings:
            if name not in {each.name for each in self.settings}:
                known = ", ".join(each.name for each in self.settings) or "none"
                raise SourceError(f"{name} is no setting of this index; it has {known}")
        most = self.size if among is None else len(among)
        return self._nearest(vector, min(rows, most), among, settings) if min(rows, most) else []

    def widest(self) -> dict[str, str]:
        """The settings by which a search looks at every vector; none of an index whose searches do."""
        if self._is_ivf:
            return {NPROBE: str(self._innermost.nlist)}
        return {EF_SEARCH: str(max(self.size, 1))} if self._is_hnsw else {}

    def _nearest(
        self, vector: Vector, rows: int, among: Labels | None, settings: Mapping[str, str]
    ) -> list[tuple[int, float]]:
        chosen: dict[str, Any] = {} if among is None else {"sel": faiss.IDSelectorBatch(among)}
        if self._is_ivf:
            params = faiss.SearchParametersIVF(nprobe=int(settings.get(NPROBE, self._innermost.nprobe)), **chosen)
        elif self._is_hnsw:
            ef = int(settings.get(EF_SEARCH, self._innermost.hnsw.efSearch))
            params = faiss.SearchParametersHNSW(efSearch=ef, **chosen)
        else:
            params = faiss.SearchParameters(**chosen)
        if self._innermost is not self._inner:
            params = faiss.SearchParametersPreTransform(index_params=params)
        numbers, labels = self._index.search(np.asarray(vector, np.float32).reshape(1, -1), rows, params=params)
        return [(int(label), float(number)) for label, number in zip(labels[0], numbers[0], strict=True) if label != -1]
