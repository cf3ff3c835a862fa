"""Browsing the memories: literal search, filters, sorting and pages, all of it in SQL so that 100,000 stay quick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Literal

from cems_workbench.records import Memory
from cems_workbench.store import memory_rows

if TYPE_CHECKING:
    import duckdb

Sort = Literal["created", "accessed", "accesses", "priority", "importance", "length", "id"]

SORTS: dict[Sort, str] = {
    "created": "created_at",
    "accessed": "last_accessed",
    "accesses": "access_count",
    "priority": "priority",
    "importance": "list_position(['low', 'normal', 'high'], importance)",
    "length": "length(content)",
    "id": "id",
}
"""What memories can be sorted by, as SQL; ties stand by id, missing values last."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which memories to list, and in what order. An empty field restricts nothing; None in a tuple means "has none".

    `text` is looked for literally, ignoring case, in id, title, content and tags. `created_from` and `created_to` are
    days in UTC, both included.
    """

    text: str = ""
    categories: tuple[str | None, ...] = ()
    projects: tuple[str | None, ...] = ()
    sessions: tuple[str | None, ...] = ()
    importance: tuple[str, ...] = ()
    pinned: bool | None = None
    created_from: date | None = None
    created_to: date | None = None
    sort: Sort = "created"
    descending: bool = True

    def sql(self) -> tuple[str, list[object]]:
        """A WHERE fragment over the live memories, and its parameters."""
        terms, parameters = ["deleted_at IS NULL"], list[object]()
        if self.text:
            fields = ("id", "title", "content", "array_to_string(from_json(tags, '[\"VARCHAR\"]'), chr(10))")
            found = " OR ".join(f"contains(lower({field}), lower(?))" for field in fields)
            terms.append(f"coalesce({found}, FALSE)")
            parameters += [self.text] * len(fields)
        for column, values in (
            ("category", self.categories),
            ("project", self.projects),
            ("session", self.sessions),
            ("importance", self.importance),
        ):
            if values:
                # `IN` never finds a NULL, so "has none" is asked for apart.
                terms.append(f"({column} IN (SELECT unnest(?::VARCHAR[])) OR ({column} IS NULL AND ?))")
                parameters += [[value for value in values if value is not None], None in values]
        if self.pinned is not None:
            terms.append("pinned = ?")
            parameters.append(self.pinned)
        if self.created_from is not None:
            terms.append("created_at >= ?")
            parameters.append(datetime.combine(self.created_from, time()))
        if self.created_to is not None:
            terms.append("created_at < ?")
            parameters.append(datetime.combine(self.created_to, time()) + timedelta(days=1))
        return " AND ".join(terms), parameters

    def order(self) -> str:
        """The ORDER BY list."""
        return f"{SORTS[self.sort]} {'DESC' if self.descending else 'ASC'} NULLS LAST, id"


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the memories of a selection, in its order, and how many there are in all."""

    memories: tuple[Memory, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Facets:
    """The values that occur, with their number of live memories, most first; None is "has none"."""

    categories: tuple[tuple[str | None, int], ...]
    projects: tuple[tuple[str | None, int], ...]
    sessions: tuple[tuple[str | None, int], ...]


@dataclass(frozen=True, slots=True)
class DeletedMemory:
    """A memory that was deleted and can be restored."""

    memory: Memory
    deleted_at: datetime


def find(cursor: duckdb.DuckDBPyConnection, selection: Selection, limit: int, offset: int) -> Page:
    """`limit` memories of the selection from `offset` on, and the size of the whole selection."""
    condition, parameters = selection.sql()
    total = cursor.execute(f"SELECT count(*) FROM memories WHERE {condition}", parameters).fetchall()[0][0]
    # The ids first: sorting whole rows would carry every text through the sort.
    ids = cursor.execute(
        f"SELECT id FROM memories WHERE {condition} ORDER BY {selection.order()} LIMIT ? OFFSET ?",
        [*parameters, limit, offset],
    ).fetchall()
    return Page(tuple(memory_rows.read(cursor, [row[0] for row in ids]).values()), int(total))


def facets(cursor: duckdb.DuckDBPyConnection, most: int) -> Facets:
    """The categories, projects and sessions of the live memories; the `most` frequent of each."""

    def counted(column: str) -> tuple[tuple[str | None, int], ...]:
        return tuple(
            cursor.execute(
                f"SELECT {column}, count(*) AS n FROM memories WHERE deleted_at IS NULL "
                f"GROUP BY {column} ORDER BY n DESC, {column} NULLS LAST LIMIT ?",
                [most],
            ).fetchall()
        )

    return Facets(counted("category"), counted("project"), counted("session"))


def deleted(cursor: duckdb.DuckDBPyConnection, limit: int, offset: int) -> tuple[list[DeletedMemory], int]:
    """`limit` deleted memories from `offset` on, latest deletion first, and how many there are."""
    total = cursor.execute("SELECT count(*) FROM memories WHERE deleted_at IS NOT NULL").fetchall()[0][0]
    rows: Sequence[tuple[object, ...]] = cursor.execute(
        f"SELECT deleted_at, {', '.join(memory_rows.FIELDS)} FROM memories WHERE deleted_at IS NOT NULL "
        "ORDER BY deleted_at DESC, id LIMIT ? OFFSET ?",
        [limit, offset],
    ).fetchall()
    found = []
    for when, *fields in rows:
        assert isinstance(when, datetime)
        moment = memory_rows.to_aware(when)
        assert moment is not None
        found.append(DeletedMemory(memory_rows.record(tuple(fields)), moment))
    return found, int(total)
