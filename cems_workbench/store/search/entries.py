"""What stands in both indexes: an entry for each chunk of a memory, and one for a memory that has none.

An entry is named by the memory's id and the chunk's number. Where a single key is needed, that of a whole memory is its id, as it was
before there were chunks, and that of a chunk the id, the character U+001F and the number. An id that holds U+001F itself gets one
more behind it, so that no two entries share a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cems_workbench.records import Memory, indexed_text
from cems_workbench.store.chunks import searched
from cems_workbench.store.memories import rows_of
from cems_workbench.store.meta import content_version

if TYPE_CHECKING:
    import duckdb

    from cems_workbench.store.database import Database

EntryId = tuple[str, int | None]
"""A memory's id, and the number of its chunk; None for the whole memory."""

KEY_SEPARATOR = "\x1f"
WHOLE_MEMORY = -1
"""The number that stands in a table for None."""
BATCH_SIZE = 10_000

_LIVE_ENTRIES = """
    SELECT m.id AS memory_id, -1 AS seq, m.text_sha, m.project, m.scope, length(m.content) + coalesce(length(m.title), 0) AS size
    FROM memories AS m WHERE m.deleted_at IS NULL {of} AND m.id NOT IN (SELECT memory_id FROM chunks AS m WHERE TRUE {chunk_of})
    UNION ALL
    SELECT c.memory_id, c.seq, c.text_sha, m.project, m.scope, length(c.content) AS size
    FROM chunks AS c JOIN memories AS m ON m.id = c.memory_id WHERE m.deleted_at IS NULL {of}
"""
LIVE_ENTRIES = _LIVE_ENTRIES.format(of="", chunk_of="")
"""The entries there should be, as a query."""
AMONG = "IN (SELECT unnest($among))"
LIVE_ENTRIES_AMONG = _LIVE_ENTRIES.format(of=f"AND m.id {AMONG}", chunk_of=f"AND m.memory_id {AMONG}")
"""The same of the memories whose ids are the parameter `among`; a condition on LIVE would be looked at after all are joined."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry with the text it is found by, and what filters ask of it."""

    id: EntryId
    text: str
    text_sha: str
    project: str | None
    scope: str

    @property
    def key(self) -> str:
        """Its name in the vector index."""
        return key_of(self.id)


@dataclass(frozen=True, slots=True)
class Document:
    """A memory as the lexical index takes it: its whole text, and the (number, text) of its chunks where it has any."""

    id: str
    text: str
    project: str | None
    scope: str
    chunks: tuple[tuple[int, str], ...] = ()


def key_of(entry_id: EntryId) -> str:
    """The one name of an entry."""
    memory_id, seq = entry_id
    if seq is not None:
        return f"{memory_id}{KEY_SEPARATOR}{seq}"
    return memory_id + KEY_SEPARATOR if KEY_SEPARATOR in memory_id else memory_id


def parse_key(name: str) -> EntryId:
    """The entry of a key."""
    memory_id, separator, seq = name.rpartition(KEY_SEPARATOR)
    if not separator:
        return name, None
    return memory_id, int(seq) if seq else None


def sort_key(entry_id: EntryId) -> tuple[str, int]:
    """By which entries are sorted: the memory's id, then the chunk's number."""
    return entry_id[0], WHOLE_MEMORY if entry_id[1] is None else entry_id[1]


def entry_id(memory_id: str, seq: int) -> EntryId:
    """The entry of a row of a table."""
    return memory_id, None if seq == WHOLE_MEMORY else seq


def read(cursor: duckdb.DuckDBPyConnection, entry_ids: Sequence[EntryId]) -> list[Entry]:
    """The entries of live memories at these places, in their order; absent where there is none any more."""
    ids = list(dict.fromkeys(memory_id for memory_id, _ in entry_ids))
    rows = rows_of(cursor, "id, content, title, project, scope, text_sha", ids)
    entries: dict[EntryId, Entry] = {}
    memories: dict[str, tuple[Memory, str | None, str]] = {}
    for memory_id, content, title, project, scope, sha in rows:
        memory = Memory(memory_id, content, title)
        memories[memory_id] = memory, project, scope
        entries[memory_id, None] = Entry((memory_id, None), indexed_text(memory), sha, project, scope)
    chunks = cursor.execute(
        "SELECT memory_id, seq, content, titled, text_sha FROM chunks WHERE memory_id IN (SELECT unnest(?))", [ids]
    ).fetchall()
    for memory_id, seq, content, titled, sha in chunks:
        if memory_id in memories:
            memory, project, scope = memories[memory_id]
            entries[memory_id, seq] = Entry(
                (memory_id, seq), searched(memory.title, content, titled), sha, project, scope
            )
    return [entries[place] for place in entry_ids if place in entries]


class ContentChangedError(Exception):
    """Memories were changed while all of them were read in several steps."""


def documents(database: Database, order: Literal["id", "rowid"] = "id") -> Iterator[Document]:
    """The live memories by id, or as they were imported, all of one content version; other processes have their turns in between.

    Raises ContentChangedError when a memory was changed before the last was read.
    """
    with database.reading() as cursor:
        version = content_version(cursor)
    yield from documents_of(database, live_ids(database, order), order, version)


def live_ids(database: Database, order: Literal["id", "rowid"] = "id") -> list[str]:
    """The ids of the live memories, in order or as they were imported, which is the quicker one to read all of them."""
    with database.reading() as cursor:
        rows = cursor.execute(f"SELECT id FROM memories WHERE deleted_at IS NULL ORDER BY {order}").fetchall()
    return [memory_id for (memory_id,) in rows]


def documents_of(
    database: Database, ids: Sequence[str], order: Literal["id", "rowid"] = "id", version: int | None = None
) -> Iterator[Document]:
    """Those of `ids` that are live memories, in portions, each as it is then, or all of one content version.

    `ids` are in `order`. Raises ContentChangedError when a memory was changed after `version` before the last was read.
    """
    for start in range(0, len(ids), BATCH_SIZE):
        with database.reading() as cursor:
            if version is not None and content_version(cursor) != version:
                raise ContentChangedError
            batch = ids[start : start + BATCH_SIZE]
            rowids = cursor.execute("SELECT rowid FROM memories WHERE id IN (SELECT unnest(?))", [batch]).fetchall()
            rows = cursor.execute(
                "SELECT m.id, m.content, m.title, m.project, m.scope, c.seqs, c.texts, c.titled FROM memories AS m LEFT JOIN ("
                "SELECT memory_id, list(seq ORDER BY seq) AS seqs, list(content ORDER BY seq) AS texts, bool_or(titled) AS titled "
                "FROM chunks WHERE memory_id IN (SELECT unnest($portion)) GROUP BY memory_id"
                ") AS c ON c.memory_id = m.id WHERE m.rowid IN (SELECT unnest($places)) AND m.deleted_at IS NULL "
                f"ORDER BY m.{order}",
                {"portion": batch, "places": [rowid for (rowid,) in rowids]},
            ).fetchall()
        for memory_id, content, title, project, scope, seqs, texts, titled in rows:
            memory = Memory(memory_id, content, title)
            chunks = zip(seqs or (), (searched(title, text, titled) for text in texts or ()), strict=True)
            yield Document(memory_id, indexed_text(memory), project, scope, tuple(chunks))
