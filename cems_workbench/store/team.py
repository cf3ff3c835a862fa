"""Access to the team's tables, independent of the database that has them, by default the store's own.

Each statement is written once, in the common SQL of DuckDB and PostgreSQL, with `?` for a value and `?::text[]` for a list of texts.
Not allowed: QUALIFY, GROUP BY ALL, FROM without SELECT, `list`. In ON CONFLICT, qualify a column of the existing row with its table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from cems_workbench import extensions
from cems_workbench.errors import StoreError
from cems_workbench.store.claims import CLAIMS_FILE, Claims, FileClaims
from cems_workbench.store.database import Database
from cems_workbench.store.rows import staged
from cems_workbench.store.rows import table_of as table_of

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


P = ParamSpec("P")
T = TypeVar("T")
Row = tuple[Any, ...]

TABLES = (
    "queries",
    "query_sets",
    "query_set_members",
    "judgments",
    "label_events",
    "adjudications",
    "label_queues",
    "label_queue_pairs",
    "label_queue_rankings",
    "configs",
    "holdout_looks",
    "holdout_lookers",
    "supersession_decisions",
)
"""The tables that a team shares."""


class TeamAwayError(StoreError):
    """The team's database is unreachable and the transaction was not committed, so it can be retried."""


class Session(Protocol):
    """A transaction on the team's tables. Times are UTC without a zone."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows of a SELECT or a RETURNING clause."""

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute a change; returns the number of changed rows."""

    def staged(self, name: str, table: pa.Table) -> AbstractContextManager[None]:
        """Make an Arrow table readable as `name` during the block; only in a write transaction."""


class TeamTables(Protocol):
    """The team's tables, open. Thread-safe."""

    @property
    def claims(self) -> Claims:
        """The claims on cards."""

    @property
    def place(self) -> str:
        """The address of the team's database without its password; empty if the tables are in the store's own database."""

    def reading(self) -> AbstractContextManager[Session]:
        """A session that reads one committed state from its first statement on."""

    def transaction(self, of: str = "") -> AbstractContextManager[Session]:
        """A write transaction: committed at the end of the block, rolled back if it raises. It blocks all other
        writers; with `of` (a person), only those that write the same person's rows."""

    def persist(self, call: Callable[[], T]) -> T:
        """The result of `call`, retried for a limited time while it raises TeamAwayError."""

    def beside(self, cursor: duckdb.DuckDBPyConnection) -> Session | None:
        """A session in the transaction of a cursor of the store's own database, if these tables are in it; otherwise None."""

    def version(self) -> object:
        """A value that changes with every write."""

    def state(self) -> TeamState:
        """The state of the tables. Raises StoreError."""

    def close(self) -> None:
        """Close the connections."""


def rows_of(team: TeamTables, sql: str, values: Sequence[Any] = ()) -> list[Row]:
    """The rows of one query of the team's tables."""
    with team.reading() as session:
        return session.rows(sql, values)


def read_of(team: TeamTables, function: Callable[Concatenate[Session, P], T], *values: P.args, **named: P.kwargs) -> T:
    """What a function reads of the team's tables; retried as `persistent` methods are."""

    def read() -> T:
        with team.reading() as session:
            return function(session, *values, **named)

    return team.persist(read)


@dataclass(frozen=True, slots=True)
class TeamState:
    """Where the team's tables are, with the server's version but without the password, and the rows of each."""

    line: str
    counts: Mapping[str, int]


MAX_LINES = 20
"""Lines of one kind that are reported; further ones are counted."""


@dataclass(frozen=True, slots=True)
class PushedRows:
    """Counts of one kind of rows: copied, already at the team, not pushed."""

    what: str
    copied: int = 0
    there: int = 0
    left: int = 0


@dataclass(slots=True)
class PushReport:
    """The result of a push: counts by kind, and lines about rows not pushed and conflicts."""

    rows: list[PushedRows] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def say(self, lines: Sequence[str], rest: str) -> None:
        """Add the first lines of one kind, then the number of further ones; `rest` names them."""
        self.lines += lines[:MAX_LINES]
        if len(lines) > MAX_LINES:
            self.lines.append(f"{len(lines) - MAX_LINES} {rest}")


@dataclass(frozen=True, slots=True)
class SharedTables:
    """A database that several stores share: the tables at an address, and how the rows of a store's own tables come there.

    `open` raises InputError, without the address in its message, for an address that does not look like `address_form`. `push` takes the
    store's own tables, those of the team and the store's id; `missing` the first two, and counts the queries that the team lacks.
    """

    name: str
    address_form: str
    open: Callable[[str], TeamTables]
    push: Callable[[TeamTables, TeamTables, str], PushReport]
    missing: Callable[[TeamTables, TeamTables], int]


SHARED_TABLES = extensions.Registry(extensions.TEAMS, SharedTables)
"""Every kind of shared database by name; the first opens the addresses."""
ENV_VARIABLE = "CEMS_WORKBENCH_TEAM"


class HasTeam(Protocol):
    """An aggregate whose tables are the team's."""

    _team: TeamTables


A = TypeVar("A", bound=HasTeam)


def persistent(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[A, P], T]:
    """Decorator of an aggregate's method: retried for a limited time while the team's database is unreachable. Retries
    do not write twice: a transaction that raised TeamAwayError was not committed."""

    def called(self: A, /, *arguments: P.args, **named: P.kwargs) -> T:
        return self._team.persist(lambda: method(self, *arguments, **named))

    update_wrapper(called, method)
    return called


def counts(session: Session) -> dict[str, int]:
    selects = " UNION ALL ".join(f"SELECT '{name}' AS name, count(*) AS rows FROM {name}" for name in TABLES)
    return {str(name): int(rows) for name, rows in session.rows(selects)}


class CursorSession:
    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        # fetchall, not fetchone: a partly read result blocks the connection.
        return self._cursor.execute(sql, list(values)).fetchall()

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        return int(self._cursor.execute(sql, list(values)).fetchall()[0][0])

    def staged(self, name: str, table: pa.Table) -> AbstractContextManager[None]:
        return staged(self._cursor, name, table)


class EmbeddedTables:
    """The team's tables in the store's own database."""

    place = ""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.claims = FileClaims(path=database.directory / CLAIMS_FILE, process_lock=database.lock)

    @contextmanager
    def reading(self) -> Iterator[CursorSession]:
        with self._database.reading() as cursor:
            yield CursorSession(cursor)

    @contextmanager
    def transaction(self, of: str = "") -> Iterator[CursorSession]:
        """See TeamTables; one writer at a time, regardless of `of`."""
        with self._database.transaction() as cursor:
            yield CursorSession(cursor)

    def persist(self, call: Callable[[], T]) -> T:
        return call()

    def beside(self, cursor: duckdb.DuckDBPyConnection) -> CursorSession:
        return CursorSession(cursor)

    def version(self) -> int:
        return self._database.commits()

    def state(self) -> TeamState:
        with self.reading() as session:
            return TeamState("in the store's own database", counts(session))

    def close(self) -> None:
        """See TeamTables; the store closes its database."""
