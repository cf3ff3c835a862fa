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

Place = tuple[str, int | None]
"""A memory's id, and the number of its chunk; None for the whole memory."""

SEPARATOR = "\x1f"
WHOLE = -1
"""The number that stands in a table for None."""
PORTION = 10_000

_LIVE = """
    SELECT m.id AS memory_id, -1 AS seq, m.text_sha, m.project, m.scope, length(m.content) + coalesce(length(m.title), 0) AS size
    FROM memories AS m WHERE m.deleted_at IS NULL {of} AND m.id NOT IN (SELECT memory_id FROM chunks AS m WHERE TRUE {chunk_of})
    UNION ALL
    SELECT c.memory_id, c.seq, c.text_sha, m.project, m.scope, length(c.content) AS size
    FROM chunks AS c JOIN memories AS m ON m.id = c.memory_id WHERE m.deleted_at IS NULL {of}
"""
LIVE = _LIVE.format(of="", chunk_of="")
"""The entries there should be, as a query."""
AMONG = "IN (SELECT unnest($among))"
LIVE_AMONG = _LIVE.format(of=f"AND m.id {AMONG}", chunk_of=f"AND m.memory_id {AMONG}")
"""The same of the memories whose ids are the parameter `among`; a condition on LIVE would be looked at after all are joined."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry with the text it is found by, and what filters ask of it."""

    place: Place
    text: str
    text_sha: str
    project: str | None
    scope: str

    @property
    def key(self) -> str:
        """Its name in the vector index."""
        return key(self.place)


@dataclass(frozen=True, slots=True)
class Document:
    """A memory as the lexical index takes it: its whole text, and the (number, text) of its chunks where it has any."""

    id: str
    text: str
    project: str | None
    scope: str
    chunks: tuple[tuple[int, str], ...] = ()


def key(place: Place) -> str:
    """The one name of an entry."""
    memory_id, seq = place
    if seq is not None:
        return f"{memory_id}{SEPARATOR}{seq}"
    return memory_id + SEPARATOR if SEPARATOR in memory_id else memory_id


def place_of(name: str) -> Place:
    """The entry of a key."""
    memory_id, found, seq = name.rpartition(SEPARATOR)
    if not found:
        return name, None
    return memory_id, int(seq) if seq else None


def in_order(place: Place) -> tuple[str, int]:
    """By which entries are sorted: the memory's id, then the chunk's number."""
    return place[0], WHOLE if place[1] is None else place[1]


def from_row(memory_id: str, seq: int) -> Place:
    """The entry of a row of a table."""
    return memory_id, None if seq == WHOLE else seq


def read(cursor: duckdb.DuckDBPyConnection, places: Sequence[Place]) -> list[Entry]:
    """The entries of live memories at these places, in their order; absent where there is none any more."""
    ids = list(dict.fromkeys(memory_id for memory_id, _ in places))
    rows = rows_of(cursor, "id, content, title, project, scope, text_sha", ids)
    found: dict[Place, Entry] = {}
    memories: dict[str, tuple[Memory, str | None, str]] = {}
    for memory_id, content, title, project, scope, sha in rows:
        memory = Memory(memory_id, content, title)
        memories[memory_id] = memory, project, scope
        found[memory_id, None] = Entry((memory_id, None), indexed_text(memory), sha, project, scope)
    chunks = cursor.execute(
        "SELECT memory_id, seq, content, titled, text_sha FROM chunks WHERE memory_id IN (SELECT unnest(?))", [ids]
    ).fetchall()
    for memory_id, seq, content, titled, sha in chunks:
        if memory_id in memories:
            memory, project, scope = memories[memory_id]
            found[memory_id, seq] = Entry(
                (memory_id, seq), searched(memory.title, content, titled), sha, project, scope
            )
    return [found[place] for place in places if place in found]


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
    for start in range(0, len(ids), PORTION):
        with database.reading() as cursor:
            if version is not None and content_version(cursor) != version:
                raise ContentChangedError
            portion = ids[start : start + PORTION]
            places = cursor.execute("SELECT rowid FROM memories WHERE id IN (SELECT unnest(?))", [portion]).fetchall()
            rows = cursor.execute(
                "SELECT m.id, m.content, m.title, m.project, m.scope, c.seqs, c.texts, c.titled FROM memories AS m LEFT JOIN ("
                "SELECT memory_id, list(seq ORDER BY seq) AS seqs, list(content ORDER BY seq) AS texts, bool_or(titled) AS titled "
                "FROM chunks WHERE memory_id IN (SELECT unnest($portion)) GROUP BY memory_id"
                ") AS c ON c.memory_id = m.id WHERE m.rowid IN (SELECT unnest($places)) AND m.deleted_at IS NULL "
                f"ORDER BY m.{order}",
                {"portion": portion, "places": [place for (place,) in places]},
            ).fetchall()
        for memory_id, content, title, project, scope, seqs, texts, titled in rows:
            memory = Memory(memory_id, content, title)
            chunks = zip(seqs or (), (searched(title, text, titled) for text in texts or ()), strict=True)
            yield Document(memory_id, indexed_text(memory), project, scope, tuple(chunks))
