"""Making, changing and reading query sets: the part of the store's face that is about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from cems_workbench.errors import InputError, StoreError, nearest
from cems_workbench.records import GradeScale, Query
from cems_workbench.store import query_rows, query_set_rows
from cems_workbench.store.database import Database
from cems_workbench.store.reports import QuerySet

LONGEST_NAME = 200


class QuerySets:
    """The query sets of an open store; methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def latest(self) -> list[QuerySet]:
        """The latest version of every set, by name."""
        with self._database.reading() as cursor:
            return query_set_rows.read(cursor)

    def one(self, name: str, version: int | None = None) -> QuerySet:
        """One set in one version, the latest when None. Raises StoreError when there is none, naming those there are."""
        with self._database.reading() as cursor:
            found = query_set_rows.read_one(cursor, name, version)
            if found is not None:
                return found
            if version is not None and (last := query_set_rows.read_one(cursor, name)) is not None:
                raise StoreError(f"query set {name} has no version {version}; the latest is {last.version}")
            names = [one.name for one in query_set_rows.read(cursor)]
        near = nearest(name, names)
        known = (
            f"; did you mean {near}?"
            if near
            else f"; there are {', '.join(names)}"
            if names
            else "; there are none yet"
        )
        raise StoreError(f"no query set {name!r} in the store{known}")

    def versions(self, name: str) -> list[QuerySet]:
        """All versions of a set, newest first; raises StoreError when there is no such set."""
        self.one(name)
        with self._database.reading() as cursor:
            return query_set_rows.versions(cursor, name)

    def queries(self, name: str, version: int | None = None) -> list[Query]:
        """The queries of a set by qid, as they were in that version (the latest when None); raises StoreError."""
        self.one(name, version)
        with self._database.reading() as cursor:
            return [query for query, _ in query_set_rows.members(cursor, name, version)]

    def put(self, name: str, queries: Sequence[Query], source: str, scale: GradeScale | None = None) -> QuerySet:
        """Put queries into the store and into a set, in place of what that set held of `source` before.

        Returns the set as it is now. Raises InputError for a name that cannot be one, or a qid that stands twice.
        """
        check_name(name)
        if len({query.qid for query in queries}) < len(queries):
            raise InputError(f"query set {name}: a qid stands more than once")
        when = datetime.now(UTC)
        with self._database.transaction() as cursor:
            if queries:
                query_rows.upsert(cursor, queries)
            query_set_rows.put(cursor, name, {source: queries}, when, scale)
            query_set_rows.follow_queries(cursor, when)
        return self.one(name)

    def take_out(self, name: str, qids: Sequence[str]) -> QuerySet:
        """Take queries out of a set (they stay in the store and in its earlier versions); raises StoreError."""
        self.one(name)
        with self._database.transaction() as cursor:
            return query_set_rows.take_out(cursor, name, qids, datetime.now(UTC))

    def set_scale(self, name: str, scale: GradeScale) -> QuerySet:
        """Grade a set on another scale from now on; labels off the new scale stay as they are. Raises StoreError."""
        self.one(name)
        with self._database.transaction() as cursor:
            return query_set_rows.put(cursor, name, {}, datetime.now(UTC), scale)


def check_name(name: str) -> None:
    """Raise InputError unless `name` can name a set, a queue or a reviewer: printable, not blank, not too long."""
    if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME or name != name.strip():
        raise InputError(
            f"{name[:60]!r} is not a name: 1 to {LONGEST_NAME} printable characters, no blanks at the ends"
        )
