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
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.formats.base.memory_fields import SHARED_WORDS
from cems_workbench.formats.base.payload import Payload, value_at
from cems_workbench.sources.address import Address
from cems_workbench.sources.collection import ClientHit, ClientQuery, CollectionClient, CollectionSource, Row
from cems_workbench.sources.requests import ask, check_options
from cems_workbench.sources.source import Setting, SourceError, SourceInfo
from workbench_stores.faiss.documents import Documents, documents, named
from workbench_stores.faiss.index import FaissIndex, Labels

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
        """The index and the memories as the files are now."""
        for attempt in range(TRIES):
            stamp = self._files()
            if stamp == self._stamp:
                break
            try:
                path, beside = self._found()
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

    def _found(self) -> tuple[Path, Documents]:
        name = self._address.options.get("name")
        return documents(self._folder) if name is None else named(self._folder, name)

    def _files(self) -> tuple[tuple[str, int, int], ...]:
        """Name, time and size of every file."""
        found = [(each.name, each.stat()) for each in sorted(self._folder.iterdir()) if each.is_file()]
        return tuple((name, state.st_mtime_ns, state.st_size) for name, state in found)

    def describe(self) -> SourceInfo:
        index, beside = self._read()
        notes = list(beside.notes)
        held = {int(label) for label in index.labels}
        if gone := len(held - self._ids.keys()):
            notes.append(
                f"{gone:,} vectors of the index belong to no memory (deleted ones stay in it); searches leave them out"
            )
        ids = self._owned()
        if self._filters_after:
            notes.append(
                f"mem0 takes the nearest {FETCHED_PER_ROW} k vectors of all users and filters by user after that, so that a user far "
                f"from a query gets fewer than k results, or none; the live list does the same, {FILTER} {WITHIN} shows what it misses"
            )
        return SourceInfo(
            kind="faiss",
            engine=f"{beside.library}'s folder, FAISS {_version()}",
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
            yield (
                [(row_id, payload) for row_id, _, payload in beside.read(part)]
                if names
                else [(each, {}) for each in part]
            )

    def take(self, ids: Sequence[str]) -> Sequence[Row]:
        # As it was listed: files that changed since are for the next snapshot.
        index, beside = self._index, self._documents
        found = list(beside.read([each for each in ids if each in beside.labels]))
        vectors = index.vectors([beside.labels[row_id] for row_id, *_ in found])
        return [
            Row(row_id, payload, text, vector) for (row_id, text, payload), vector in zip(found, vectors, strict=True)
        ]

    def search(self, query: ClientQuery) -> Sequence[ClientHit]:
        index, beside = self._read()
        if query.trial.exact and not index.exact:
            raise SourceError(
                f"{self._address.plain}: {index.line} has no exact search; the exact list is computed here"
            )
        if query.vector.shape != (index.dimension,):
            raise SourceError(
                f"{self._address.plain}: the query has {query.vector.size} numbers, the index {index.dimension}"
            )
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
        ids = [self._ids[label] for label, _ in near if label in self._ids]
        payloads = {row_id: payload for row_id, _, payload in beside.read(ids)} if query.names else {}
        return [
            ClientHit(self._ids[label], payloads.get(self._ids[label], {}), score(number))
            for label, number in near
            if label in self._ids
        ]

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
            shared = {
                row_id
                for row_id, _, payload in beside.read(ids)
                if value_at(payload, query.scope_field) in SHARED_WORDS
            }
            ids = [each for each in ids if (each in shared) == (query.scope == "shared")]
        labels = np.array(sorted(beside.labels[each] for each in ids), np.int64)
        return None if np.array_equal(labels, np.sort(index.labels)) else labels

    def _owned(self) -> list[str]:
        """The ids of all memories, or of the owner's."""
        ids, owner = list(self._documents.labels), self.owner
        if owner is None:
            return ids
        return [
            row_id for row_id, _, payload in self._documents.read(ids) if value_at(payload, owner.field) in owner.values
        ]


def _version() -> str:
    return str(faiss.__version__)
