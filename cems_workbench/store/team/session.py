"""What the tables of a team are read and written through, whichever database has them.

A statement is written once, in the SQL that DuckDB and PostgreSQL both speak, with `?` for a value and `?::text[]` for a list of texts.
What they do not both speak is not written: QUALIFY, GROUP BY ALL, FROM without SELECT, `list`; in ON CONFLICT a column that is added
to is named with its table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from cems_workbench.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    import pyarrow as pa

    from cems_workbench.store.claims import Claims

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
)
"""The tables of a team."""


class TeamAwayError(StoreError):
    """The database of the team is away, and nothing was stored of what was under way: it may be done again."""


class Session(Protocol):
    """A transaction on the tables of a team. Times are UTC without a zone."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows of a SELECT, or of what RETURNING says."""

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Change rows; how many were changed."""

    def staged(self, name: str, table: pa.Table) -> AbstractContextManager[None]:
        """Let SQL read an Arrow table as `name` while the block runs; where it is a transaction that writes."""


class TeamTables(Protocol):
    """The tables of a team, open; from any thread."""

    @property
    def claims(self) -> Claims:
        """Who looks at which card."""

    @property
    def place(self) -> str:
        """The address of the team's database without its password; empty where the tables are the store's own."""

    def reading(self) -> AbstractContextManager[Session]:
        """One committed state from the first statement on."""

    def transaction(self, of: str = "") -> AbstractContextManager[Session]:
        """What is changed is committed when the block ends, and none of it when it raises.

        Nobody else writes meanwhile; with `of`, what belongs to one person, those may go on who write what belongs to others.
        """

    def persist(self, call: Callable[[], T]) -> T:
        """What `call` returns, called again for a while as long as it raises AwayError."""

    def beside(self, cursor: duckdb.DuckDBPyConnection) -> Session | None:
        """A session in the transaction of a cursor of the store's own database, where these tables stand in that; else None."""

    def version(self) -> object:
        """What it is equal to as long as nobody writes."""

    def state(self) -> TeamState:
        """Where they are and how they stand. Raises StoreError."""

    def close(self) -> None:
        """Let go of connections."""


class TeamState(Protocol):
    """Where the tables of a team are, in words."""

    @property
    def line(self) -> str:
        """Where they are, and what has them."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The rows of each table."""


class HasTeam(Protocol):
    """An aggregate of a store that is kept in the tables of a team."""

    _team: TeamTables


A = TypeVar("A", bound=HasTeam)


def persistent(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[A, P], T]:
    """A method of an aggregate that is called again while the database of the team is away, for a while.

    It may be called several times, and stores what it stores once: a transaction that raised AwayError was not committed.
    """

    def called(self: A, /, *arguments: P.args, **named: P.kwargs) -> T:
        return self._team.persist(lambda: method(self, *arguments, **named))

    update_wrapper(called, method)
    return called


def counts(session: Session) -> dict[str, int]:
    """The rows of each table."""
    selects = " UNION ALL ".join(f"SELECT '{name}' AS name, count(*) AS rows FROM {name}" for name in TABLES)
    return {str(name): int(rows) for name, rows in session.rows(selects)}
