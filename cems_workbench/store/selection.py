"""Selection of memories to list: literal search, filters and sorting, as SQL for speed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Literal

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

TIMES = ("created", "accessed")


@dataclass(frozen=True, slots=True)
class Selection:
    """The memories to list, and their order. Empty fields restrict nothing; None in a tuple means "has none".

    `text` is matched literally, ignoring case, in id, title, content and tags. `created_from` and `created_to` are
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
            terms.append("contains(folded, ?)")
            parameters.append(self.text.casefold())
        for column, values in (
            ("category", self.categories),
            ("project", self.projects),
            ("session", self.sessions),
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

    def number(self) -> str:
        """The sort key as SQL of type DOUBLE; NULL if the value is not a number."""
        sorted_by = SORTS[self.sort]
        if self.sort == "id":
            return "NULL::DOUBLE"
        return f"{f'epoch_us({sorted_by})' if self.sort in TIMES else sorted_by}::DOUBLE"

    def order(self) -> str:
        """The ORDER BY list."""
        return f"{SORTS[self.sort]} {'DESC' if self.descending else 'ASC'} NULLS LAST, id"
