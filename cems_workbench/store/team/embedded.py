"""The team's tables in the store's own database, the default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from cems_workbench.store.claims import CLAIMS_FILE, FileClaims
from cems_workbench.store.database import Database
from cems_workbench.store.rows import staged
from cems_workbench.store.team.session import Row, counts

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EmbeddedState:
    """The state of tables in the store's own database."""

    counts: Mapping[str, int] = field(default_factory=dict)
    line: str = "in the store's own database"


class CursorSession:
    """A session on a DuckDB cursor."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """See Session."""
        # fetchall, not fetchone: a partly read result blocks the connection.
        return self._cursor.execute(sql, list(values)).fetchall()

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """See Session."""
        return int(self._cursor.execute(sql, list(values)).fetchall()[0][0])

    def staged(self, name: str, table: pa.Table) -> AbstractContextManager[None]:
        """See Session."""
        return staged(self._cursor, name, table)


class EmbeddedTables:
    """The team's tables in the store's own database."""

    place = ""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.claims = FileClaims(path=database.directory / CLAIMS_FILE, process_lock=database.lock)

    @contextmanager
    def reading(self) -> Iterator[CursorSession]:
        """See TeamTables."""
        with self._database.reading() as cursor:
            yield CursorSession(cursor)

    @contextmanager
    def transaction(self, of: str = "") -> Iterator[CursorSession]:
        """See TeamTables; one writer at a time, regardless of `of`."""
        with self._database.transaction() as cursor:
            yield CursorSession(cursor)

    def persist(self, call: Callable[[], T]) -> T:
        """See TeamTables; this database is never away."""
        return call()

    def beside(self, cursor: duckdb.DuckDBPyConnection) -> CursorSession:
        """See TeamTables."""
        return CursorSession(cursor)

    def version(self) -> int:
        """See TeamTables."""
        return self._database.commits()

    def state(self) -> EmbeddedState:
        """See TeamTables."""
        with self.reading() as session:
            return EmbeddedState(counts(session))

    def close(self) -> None:
        """See TeamTables; the store closes its database."""
