"""Rows of the store's tables, for all aggregates: column values, bulk insertion, reads and counts cached by content version, marks of who
wrote a row, and the `workbench_meta` table (schema version, store id, content version, records of the vectors).

Pages need reads and counts on every rerun. Cached values are shared by all callers and must not be modified.

Imports, edits and live sources mark memories, relations, chunks, answers, queries and judgments. A row has the mark of what wrote its
values last (`origin`) and first (`added_by`). By them an import can be undone, and an import does not replace what another one brought.
"Another" is a file of another name: a file that was edited and is imported again updates its own rows.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from cems_workbench.errors import InputError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from cems_workbench.store.database import Database


Read = TypeVar("Read")
Item = TypeVar("Item")


MAX_ENTRIES = 16
"""The most recently used values of one store that are kept."""


class VersionedCache:
    """Values of the current content version, by name. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()

    def get(self, name: Hashable, read: Callable[[duckdb.DuckDBPyConnection], Read]) -> Read:
        """The cached result of `read` for the current content version, which another process may just have changed."""
        version = self._database.cached_content_version()
        with self._lock:
            kept = self._entries.get(name)
        if kept is None or kept[0] != version:
            # Outside the lock: a slow read must not block the readers of other values.
            with self._database.reading() as cursor:
                # The version of the same transaction: another process may have written since `version` was read.
                kept = read_content_version(cursor), read(cursor)
        with self._lock:
            self._entries[name] = kept
            self._entries.move_to_end(name)
            while len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
        found: Read = kept[1]
        return found


MAX_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Counts of one kind's valid rows by their effect on the store."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0

    @property
    def total(self) -> int:
        """Rows of the input that are now in the store."""
        return self.added + self.updated + self.unchanged

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(self.added + other.added, self.updated + other.updated, self.unchanged + other.unchanged)


NO_ROWS = RowCounts()


def text_sha(text: str) -> str:
    """SHA-256 of the exact text, in hex, by which embeddings and scores detect changes."""
    return hashlib.sha256(text.encode()).hexdigest()


def to_naive(moment: datetime | None) -> datetime | None:
    """An aware time in the stored form: UTC without a zone."""
    if moment is None:
        return None
    return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).replace(tzinfo=None)


def to_aware(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)


@contextmanager
def staged(cursor: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    """Register an Arrow table as the view `name` during the block, for bulk insertion into DuckDB."""
    import duckdb

    cursor.register(name, table)
    try:
        yield
    except BaseException:
        # An aborted transaction refuses further statements; closing the cursor drops the view.
        with suppress(duckdb.Error):
            cursor.unregister(name)
        raise
    cursor.unregister(name)


def portions(rows: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The rows in their order, at most `size` at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def table_of(columns: str, rows: Collection[Sequence[Any]]) -> pa.Table:
    """Rows as an Arrow table, for `staged`; `columns` are their names and Arrow's types, as "id string, at timestamp[us]"."""
    import pyarrow as pa

    names, kinds = zip(*(column.split() for column in columns.split(", ")), strict=True)
    values = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(each, pa.type_for_alias(kind)) for kind, each in zip(kinds, values, strict=True)]
    return pa.table(arrays, names)


def column(cursor: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
    """The first value of each row of a query."""
    return [row[0] for row in cursor.execute(sql, values).fetchall()]


def scalar(cursor: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
    """The first value of the first row of a query, or how many rows a statement changed."""
    return cursor.execute(sql, values).fetchall()[0][0]


def check_name(name: str) -> None:
    """Raise InputError unless `name` is valid for a set, queue, config or reviewer: printable, not blank, not too long."""
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME_CHARS or name != name.strip():
        raise InputError(
            f"{name[:60]!r} is not a name: 1 to {MAX_NAME_CHARS} printable characters, no blanks at the ends"
        )


EDITED, FROM_SOURCE = 0, -1
"""The marks of a person's edit and of a live source; those of inputs are `imports.id`, from 1."""
AN_EDIT, NOT_RECORDED = "an edit here", "an import that is not on record"
FOREIGN = "({0}.origin IS NULL OR {0}.origin NOT IN (SELECT unnest(?)))"
"""The condition that a row of an alias was written by none of some inputs."""
TEAM_FOREIGN = "({0}.origin IS NULL OR {0}.origin NOT IN (SELECT unnest(?::text[])))"
"""The same of a team's tables, for the marks of the inputs there."""
BROUGHT_BY = "CASE folder WHEN '' THEN name ELSE folder || '/' || name END"
"""What users read of an input in `imports`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An input on record, while it is imported.

    `inputs` are those of its event, itself included: what one of them writes over another's rows is no change to undo. `own` are all inputs
    of the same file, whose rows it updates freely. `store` is the store's id, and `when` the moment of the import: together they tell
    inputs apart in a team's tables, also those of copies of a store.
    """

    id: int
    event: int
    inputs: Sequence[int]
    own: Sequence[int]
    store: str
    when: datetime
    folder: str
    name: str

    @property
    def brought_by(self) -> str:
        """The file's name after its folder's."""
        return f"{self.folder}/{self.name}" if self.folder else self.name

    def is_own(self, brought_by: str | None) -> bool:
        """Whether a row that this file brought is this input's own; of an upload only the name is known."""
        if not brought_by:
            return False
        folder, _, name = brought_by.rpartition("/")
        return name == self.name and (not folder or not self.folder or folder == self.folder)

    @property
    def in_team(self) -> str:
        """The mark in a team's tables."""
        return in_team(self.store, self.id, self.when)

    @property
    def inputs_in_team(self) -> list[str]:
        """The marks of the event's inputs in a team's tables."""
        return [in_team(self.store, each, self.when) for each in self.inputs]


def in_team(store: str, number: int, when: datetime) -> str:
    """The mark of a store's input in a team's tables; `when` is UTC without a zone, the same of all inputs of an event."""
    return f"{store}:{number}:{when.isoformat()}"


SCHEMA, STORE_ID, CONTENT_VERSION, CONTENT_MARK = "schema", "store_id", "content_version", "content_mark"
COMMITS = "commits"
"""The number of committed transactions, since they are counted."""


def read_meta(cursor: duckdb.DuckDBPyConnection, key: str) -> str | None:
    # fetchall, not fetchone: a partly read result blocks the connection.
    row = next(iter(cursor.execute("SELECT value FROM workbench_meta WHERE key = ?", [key]).fetchall()), None)
    return None if row is None else str(row[0])


def write_meta(cursor: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    cursor.execute("INSERT OR REPLACE INTO workbench_meta VALUES (?, ?)", [key, value])


def delete_meta(cursor: duckdb.DuckDBPyConnection, key: str) -> None:
    cursor.execute("DELETE FROM workbench_meta WHERE key = ?", [key])


def count_commit(cursor: duckdb.DuckDBPyConnection) -> int:
    """Increment and return the number of committed transactions; call it last in each transaction."""
    one_more = "UPDATE workbench_meta SET value = CAST(CAST(value AS BIGINT) + 1 AS VARCHAR) WHERE key = ? RETURNING value"
    number = next(iter(column(cursor, one_more, [COMMITS])), None)
    if number is None:
        write_meta(cursor, COMMITS, "1")
    return int(number or 1)


def read_content_version(cursor: duckdb.DuckDBPyConnection) -> int:
    """The number of transactions that changed a memory."""
    return int(read_meta(cursor, CONTENT_VERSION) or 0)


def bump_content_version(cursor: duckdb.DuckDBPyConnection) -> int:
    """Increment and return the content version; call it in each transaction that changes a memory."""
    version, mark = next_version(cursor), uuid4().hex[:12]
    write_meta(cursor, CONTENT_VERSION, str(version))
    write_meta(cursor, CONTENT_MARK, mark)
    cursor.execute("INSERT OR REPLACE INTO content_marks VALUES (?, ?)", [version, mark])
    return version


def next_version(cursor: duckdb.DuckDBPyConnection) -> int:
    """The content version that `bump_content_version` will create; this transaction writes it to `memories.changed`."""
    return read_content_version(cursor) + 1


def content_identity(cursor: duckdb.DuckDBPyConnection) -> str:
    """The identity of the content: store id and the mark of the last change, which differs between diverged copies of a store."""
    rows = cursor.execute(
        "SELECT key, value FROM workbench_meta WHERE key IN (?, ?)", [STORE_ID, CONTENT_MARK]
    ).fetchall()
    values = dict(rows)
    return f"{values.get(STORE_ID)}:{values.get(CONTENT_MARK) or ''}"


def earlier_identity(cursor: duckdb.DuckDBPyConnection, version: int) -> str | None:
    """`content_identity` at an earlier content version; None if the store has no mark of that version."""
    if version == read_content_version(cursor):
        return content_identity(cursor)
    rows = cursor.execute("SELECT mark FROM content_marks WHERE version = ?", [version]).fetchall()
    return f"{read_meta(cursor, STORE_ID)}:{rows[0][0]}" if rows else None
