"""Index entries, one per chunk of a memory and one for a memory without chunks: their keys, which of them pass a filter, and the hits of
both indexes, sorted, grouped by memory and without memories deleted since the refresh.

An entry is identified by memory id and chunk number. As a single key, a whole memory is its id, and a chunk is the id, U+001F and the
number. An id that contains U+001F gets another one appended, so that keys are unique.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.records import Memory, TextRule
from cems_workbench.store.filter import Filter
from cems_workbench.store.memories import partial_record, rows_of, text_columns
from cems_workbench.store.rows import portions, read_content_version
from cems_workbench.store.text_rule import chunk_text, searched_text, text_rule

if TYPE_CHECKING:
    import duckdb

    from cems_workbench.store.database import Database


MAX_CACHED_MASKS = 16


class FilterMasks:
    """The cached masks of one index."""

    def __init__(
        self,
        filters: NDArray[np.int32],
        labels: Mapping[str, Sequence[str | None]],
        rows_of: Callable[[Set[str]], NDArray[Any]],
    ) -> None:
        """`filters`, shape (rows, 2), has each row's project and scope as positions in `labels["projects"]` and `labels["scopes"]`;
        `rows_of` gives the rows of memories, by their ids."""
        self._filters, self._labels, self._rows_of = filters, labels, rows_of
        self._cache: dict[Filter, NDArray[np.bool_]] = {}

    def mask(self, where: Filter) -> NDArray[np.bool_] | None:
        """The rows that pass, shape (rows,); None if all do."""
        if where.trivial:
            return None
        mask = self._cache.get(where)
        if mask is None:
            if len(self._cache) >= MAX_CACHED_MASKS:
                self._cache.clear()
            mask = self._cache[where] = self._compute(where)
        return mask

    def _compute(self, where: Filter) -> NDArray[np.bool_]:
        mask = np.ones(len(self._filters), bool)
        wanted = [("projects", where.required_project), ("scopes", where.required_scope)]
        for column, (name, value) in enumerate(wanted):
            if value is not None:
                labels = self._labels[name]
                mask &= self._filters[:, column] == (labels.index(value) if value in labels else -1)
        if where.ids is not None:
            others = np.ones(len(mask), bool)
            others[self._rows_of(where.ids)] = False
            mask &= ~others
        return mask


class Labels:
    """Projects and scopes as numbers, in the order of their first use."""

    def __init__(self) -> None:
        self.codes: dict[str, dict[str | None, int]] = {"projects": {}, "scopes": {}}

    def numbers(self, project: str | None, scope: str | None) -> tuple[int, int]:
        """Those of a project and a scope."""
        projects, scopes = self.codes["projects"], self.codes["scopes"]
        return projects.setdefault(project, len(projects)), scopes.setdefault(scope, len(scopes))

    @property
    def listed(self) -> dict[str, list[str | None]]:
        """The projects and the scopes by their numbers, as `FilterMasks` takes them."""
        return {name: list(codes) for name, codes in self.codes.items()}


EntryId = tuple[str, int | None]
"""Memory id and chunk number; None for a whole memory."""

KEY_SEPARATOR = "\x1f"
WHOLE_MEMORY = -1
"""The chunk number of a whole memory in tables."""
BATCH_SIZE = 10_000

_LIVE_ENTRIES = """
    SELECT m.id AS memory_id, -1 AS seq, m.text_sha, m.project, m.scope, length(m.content) + coalesce(length(m.title), 0) AS size
    FROM memories AS m WHERE m.deleted_at IS NULL {of} AND m.id NOT IN (SELECT memory_id FROM chunks AS m WHERE TRUE {chunk_of})
    UNION ALL
    SELECT c.memory_id, c.seq, c.text_sha, m.project, m.scope, length(c.content) AS size
    FROM chunks AS c JOIN memories AS m ON m.id = c.memory_id WHERE m.deleted_at IS NULL {of}
"""
LIVE_ENTRIES = _LIVE_ENTRIES.format(of="", chunk_of="")
"""The entries that should be indexed, as a query."""
AMONG = "IN (SELECT unnest($among))"
LIVE_ENTRIES_AMONG = _LIVE_ENTRIES.format(of=f"AND m.id {AMONG}", chunk_of=f"AND m.memory_id {AMONG}")
"""The same for the memory ids in the parameter `among`; DuckDB would apply a condition on LIVE_ENTRIES only after joining all."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry with its indexed text and filter labels; `content` is that of the memory or chunk alone."""

    id: EntryId
    text: str
    text_sha: str
    project: str | None
    scope: str
    title: str | None
    content: str

    @property
    def key(self) -> str:
        """Its key in the vector index."""
        return key_of(self.id)


@dataclass(frozen=True, slots=True)
class Document:
    """A memory as the lexical index takes it: its text, and the (number, text) of its chunks, if any."""

    id: str
    text: str
    project: str | None
    scope: str
    chunks: tuple[tuple[int, str], ...] = ()


def key_of(entry_id: EntryId) -> str:
    memory_id, seq = entry_id
    if seq is not None:
        return f"{memory_id}{KEY_SEPARATOR}{seq}"
    # Otherwise the end of such an id would be read as a chunk number.
    return memory_id + KEY_SEPARATOR if KEY_SEPARATOR in memory_id else memory_id


def parse_key(name: str) -> EntryId:
    memory_id, separator, seq = name.rpartition(KEY_SEPARATOR)
    if not separator:
        return name, None
    return memory_id, int(seq) if seq else None


def sort_key(entry_id: EntryId) -> tuple[str, int]:
    """The sort key of an entry: memory id, then chunk number."""
    return entry_id[0], WHOLE_MEMORY if entry_id[1] is None else entry_id[1]


def entry_id(memory_id: str, seq: int) -> EntryId:
    return memory_id, None if seq == WHOLE_MEMORY else seq


def read(cursor: duckdb.DuckDBPyConnection, entry_ids: Sequence[EntryId]) -> list[Entry]:
    """The live entries with these ids, in order; missing ones are absent."""
    ids = list(dict.fromkeys(memory_id for memory_id, _ in entry_ids))
    rule = text_rule(cursor)
    columns = text_columns(rule)
    rows = rows_of(cursor, f"{', '.join(columns)}, project, scope, text_sha", ids)
    entries: dict[EntryId, Entry] = {}
    memories: dict[str, tuple[Memory, str | None, str]] = {}
    for *values, project, scope, sha in rows:
        memory = partial_record(columns, values)
        memories[memory.id] = memory, project, scope
        text = searched_text(memory, rule)
        entries[memory.id, None] = Entry((memory.id, None), text, sha, project, scope, memory.title, memory.content)
    chunks = cursor.execute(
        "SELECT memory_id, seq, content, titled, text_sha FROM chunks WHERE memory_id IN (SELECT unnest(?))", [ids]
    ).fetchall()
    for memory_id, seq, content, titled, sha in chunks:
        if memory_id in memories:
            memory, project, scope = memories[memory_id]
            text = _text_of_chunk(memory, content, titled, rule)
            entries[memory_id, seq] = Entry((memory_id, seq), text, sha, project, scope, memory.title, content)
    return [entries[place] for place in entry_ids if place in entries]


def _text_of_chunk(memory: Memory, content: str, titled: bool, rule: TextRule) -> str:
    return chunk_text(memory, content, rule) if titled else content


class ContentChangedError(Exception):
    """Memories changed while they were read in batches."""


def documents(database: Database, order: Literal["id", "rowid"] = "id") -> Iterator[Document]:
    """The live memories by id or in import order, all of one content version; the database lock is released between
    batches. Raises ContentChangedError if a memory changes before the last one is read."""
    version = database.read(read_content_version)
    yield from documents_of(database, live_ids(database, order), order, version)


def live_ids(database: Database, order: Literal["id", "rowid"] = "id") -> list[str]:
    """The ids of the live memories, sorted or in import order, which is faster for reading all of them."""
    rows = database.rows(f"SELECT id FROM memories WHERE deleted_at IS NULL ORDER BY {order}")
    return [memory_id for (memory_id,) in rows]


def documents_of(
    database: Database, ids: Sequence[str], order: Literal["id", "rowid"] = "id", version: int | None = None
) -> Iterator[Document]:
    """The live memories among `ids`, read in batches; with `version`, all of that content version. `ids` are in
    `order`. Raises ContentChangedError if a memory changes after `version` before the last one is read."""
    for batch in portions(ids, BATCH_SIZE):
        with database.reading() as cursor:
            # The lock is released between batches, so another process may have written.
            if version is not None and read_content_version(cursor) != version:
                raise ContentChangedError
            # Row numbers first: reading by them skips the text blocks of other rows.
            rowids = cursor.execute("SELECT rowid FROM memories WHERE id IN (SELECT unnest(?))", [batch]).fetchall()
            rule = text_rule(cursor)
            columns = text_columns(rule)
            rows = cursor.execute(
                f"SELECT {', '.join(f'm.{name}' for name in columns)}, m.project, m.scope, c.seqs, c.texts, c.titled "
                "FROM memories AS m LEFT JOIN ("
                "SELECT memory_id, list(seq ORDER BY seq) AS seqs, list(content ORDER BY seq) AS texts, bool_or(titled) AS titled "
                "FROM chunks WHERE memory_id IN (SELECT unnest($portion)) GROUP BY memory_id"
                ") AS c ON c.memory_id = m.id WHERE m.rowid IN (SELECT unnest($places)) AND m.deleted_at IS NULL "
                f"ORDER BY m.{order}",
                {"portion": batch, "places": [rowid for (rowid,) in rowids]},
            ).fetchall()
        for *values, project, scope, seqs, texts, titled in rows:
            memory = partial_record(columns, values)
            chunks = zip(seqs or (), (_text_of_chunk(memory, text, titled, rule) for text in texts or ()), strict=True)
            yield Document(memory.id, searched_text(memory, rule), project, scope, tuple(chunks))


Hits = list[tuple[str, float]]
"""(memory id, score), best first, equal scores by id."""

ChunkHits = list[tuple[str, float, int | None]]
"""(memory id, score, chunk), best first, equal scores by id and chunk; the chunk is None for a whole memory."""


def top_memories(
    scores: NDArray[np.float32], starts: NDArray[np.intp] | None, k: int, above: float = -np.inf
) -> NDArray[np.intp]:
    """Positions of the highest scores greater than `above`, best first, as many as cover k memories. A memory's rows
    are contiguous; `starts` has the first row of each memory, None if each has one row. With fewer than k memories, all
    positions are returned. Equal scores by position."""
    if k <= 0 or not len(scores):
        return np.empty(0, np.intp)
    best = scores if starts is None else np.maximum.reduceat(scores, starts)
    cut = np.partition(best, len(best) - k)[len(best) - k] if len(best) > k else above
    # All ties with the k-th; rows are sorted by id, so ties by position are ties by id.
    candidates = np.flatnonzero(scores >= cut if cut > above else scores > above)
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    if starts is None:
        return order[:k]
    # The position of each memory's first row in `order`; the k-th smallest ends the list.
    _, first = np.unique(np.searchsorted(starts, order, side="right"), return_index=True)
    return order if len(first) < k else order[: np.sort(first)[k - 1] + 1]


def group_starts(ids: Sequence[str]) -> NDArray[np.intp] | None:
    """The first row of each memory, for rows sorted by id; None if each has one row."""
    starts = [i for i, memory_id in enumerate(ids) if not i or memory_id != ids[i - 1]]
    return None if len(starts) == len(ids) else np.array(starts, np.intp)


def truncate_to_memories(hits: ChunkHits, k: int) -> ChunkHits:
    """The first hits that cover k memories; all if there are fewer."""
    seen: set[str] = set()
    for position, (memory_id, _, _) in enumerate(hits):
        seen.add(memory_id)
        if len(seen) >= k:
            return hits[: position + 1]
    return hits


def best_per_memory(hits: ChunkHits) -> Hits:
    best: dict[str, float] = {}
    for memory_id, score, _ in hits:
        best.setdefault(memory_id, score)
    return list(best.items())


def search_visible(search: Callable[[int], ChunkHits], k: int, hidden: Set[str]) -> ChunkHits:
    """The hits of the first k visible memories of `search(depth)`; searches again only if some were hidden."""
    hits = search(k)
    if hidden.isdisjoint(memory_id for memory_id, _, _ in hits):
        return hits
    # At worst all hidden memories rank first.
    hits = search(k + len(hidden))
    return truncate_to_memories([hit for hit in hits if hit[0] not in hidden], k)
