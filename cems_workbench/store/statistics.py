"""Statistics of a store: counts by kind, age and length, and duplicate contents.

Selection of memories to list: literal search, filters and sorting, as SQL for speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Literal

from cems_workbench.store.rows import scalar, to_aware

if TYPE_CHECKING:
    import duckdb


Sort = Literal["created", "accessed", "accesses", "priority", "importance", "length", "id"]

SORTS: dict[Sort, str] = {
    "created": "created_at",
    "accessed": "last_accessed",
    "accesses": "access_count",
    "priority": "priority",
    "importance": "list_position(['low', 'normal', 'high'], importance)",
    "length": "size",
    "id": "id",
}
"""Sort keys as SQL; ties by id, missing values last."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The memories to list, and their order. Empty fields restrict nothing; None in a tuple means "has none". `text` is
    matched literally, ignoring case, in id, title, content and tags. `created_from` and `created_to` are days in UTC,
    both included."""

    text: str = ""
    categories: tuple[str | None, ...] = ()
    projects: tuple[str | None, ...] = ()
    sessions: tuple[str | None, ...] = ()
    authors: tuple[str | None, ...] = ()
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
            terms.append("contains(folded, ?)")
            parameters.append(self.text.casefold())
        for column, values in (
            ("category", self.categories),
            ("project", self.projects),
            ("session", self.sessions),
            ("author", self.authors),
            ("importance", self.importance),
        ):
            if values:
                # `IN` never matches NULL, so "has none" is a separate condition.
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
        return f"{SORTS[self.sort]} {'DESC' if self.descending else 'ASC'} NULLS LAST, id"


FIRST_LENGTH = 50
"""Upper bound of the first length class, in characters; each further bound is twice the previous one."""
_LIVE = "FROM memories WHERE deleted_at IS NULL"

Counts = tuple[tuple[str | None, int], ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of the live memories. Lengths are characters of the content. `months` is (first day, count) without gaps;
    `lengths` are classes in order, empty ones included."""

    memories: int
    deleted: int
    pinned: int
    never_accessed: int
    undated: int
    first_created: datetime | None
    last_created: datetime | None
    median_length: int
    longest: int
    categories: Counts
    projects: Counts
    months: tuple[tuple[date, int], ...]
    lengths: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Duplicates:
    """A content shared by several live memories, with their ids."""

    content: str
    ids: tuple[str, ...]


def read(cursor: duckdb.DuckDBPyConnection) -> Statistics:
    *numbers, first, last, median, longest = cursor.execute(
        "SELECT count(*), (SELECT count(*) FROM memories WHERE deleted_at IS NOT NULL), count(*) FILTER (pinned), "
        # CEMS dates the last access of a new memory by its creation.
        "count(*) FILTER (access_count = 0 AND coalesce(last_accessed = created_at, last_accessed IS NULL)), "
        "count(*) FILTER (created_at IS NULL), "
        f"min(created_at), max(created_at), coalesce(median(size), 0), coalesce(max(size), 0) {_LIVE}"
    ).fetchall()[0]
    of = (counts(cursor, "category"), counts(cursor, "project"), _months(cursor), _lengths(cursor))
    values: tuple[Any, ...] = (*numbers, to_aware(first), to_aware(last), int(median), longest, *of)
    return Statistics(*values)


def exact_duplicates(cursor: duckdb.DuckDBPyConnection, limit: int) -> tuple[list[Duplicates], int]:
    """Contents shared exactly by several live memories, most first, and the total number of such contents."""
    # Grouped by digest, so that texts are not held in memory; a fast hash preselects the candidates.
    hashed = f"SELECT hash(content) AS hashed {_LIVE} GROUP BY ALL HAVING count(*) > 1"
    cursor.execute(
        f"CREATE TEMP TABLE repeated AS SELECT list(id ORDER BY id) AS ids {_LIVE} AND hash(content) IN ({hashed}) "
        "GROUP BY sha256(content) HAVING count(*) > 1"
    )
    total = scalar(cursor, "SELECT count(*) FROM repeated")
    rows = cursor.execute(
        "SELECT m.content, d.ids FROM (FROM repeated ORDER BY len(ids) DESC, ids[1] LIMIT ?) AS d "
        "JOIN memories AS m ON m.id = d.ids[1] ORDER BY len(d.ids) DESC, d.ids[1]",
        [limit],
    ).fetchall()
    cursor.execute("DROP TABLE repeated")
    return [Duplicates(content, tuple(ids)) for content, ids in rows], int(total)


def counts(cursor: duckdb.DuckDBPyConnection, column: str, most: int | None = None) -> Counts:
    """The values of a column (the `most` frequent, or all) with their number of live memories, most first, ties by name, None last."""
    return tuple(
        cursor.execute(
            f"SELECT {column}, count(*) AS n {_LIVE} GROUP BY {column} ORDER BY n DESC, {column} NULLS LAST LIMIT ?",
            [most],
        ).fetchall()
    )


def _months(cursor: duckdb.DuckDBPyConnection) -> tuple[tuple[date, int], ...]:
    by_month = f"SELECT date_trunc('month', created_at)::DATE, count(*) {_LIVE} AND created_at IS NOT NULL GROUP BY ALL"
    counts = dict(cursor.execute(by_month).fetchall())
    if not counts:
        return ()
    months = [min(counts)]
    while months[-1] < max(counts):
        months.append((months[-1] + timedelta(days=31)).replace(day=1))
    return tuple((month, counts.get(month, 0)) for month in months)


def _lengths(cursor: duckdb.DuckDBPyConnection) -> tuple[tuple[str, int], ...]:
    number = f"greatest(0, floor(log2(greatest(size, 1) / {FIRST_LENGTH})) + 1)::INT"
    counts = dict(cursor.execute(f"SELECT {number}, count(*) {_LIVE} GROUP BY ALL").fetchall())
    if not counts:
        return ()
    classes = range(min(counts), max(counts) + 1)
    bounds = ((n, FIRST_LENGTH * 2 ** (n - 1) if n else 0, FIRST_LENGTH * 2**n - 1) for n in classes)
    return tuple((f"{low:,}–{high:,}", counts.get(n, 0)) for n, low, high in bounds)
