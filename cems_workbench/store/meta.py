"""The `workbench_meta` table: the schema's version, the store's identity, its content version, what the vectors were built from."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    import duckdb

SCHEMA, STORE_ID, CONTENT_VERSION, CONTENT_MARK = "schema", "store_id", "content_version", "content_mark"
COMMITS = "commits"
"""How many transactions were committed since that is counted."""


def read_meta(cursor: duckdb.DuckDBPyConnection, key: str) -> str | None:
    """The value of a meta key, None when it was never written."""
    # fetchall, not fetchone: a result that was not read to its end blocks the connection.
    row = next(iter(cursor.execute("SELECT value FROM workbench_meta WHERE key = ?", [key]).fetchall()), None)
    return None if row is None else str(row[0])


def write_meta(cursor: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    """Set a meta key."""
    cursor.execute("INSERT OR REPLACE INTO workbench_meta VALUES (?, ?)", [key, value])


def delete_meta(cursor: duckdb.DuckDBPyConnection, key: str) -> None:
    """Take a meta key away, if it is there."""
    cursor.execute("DELETE FROM workbench_meta WHERE key = ?", [key])


def count_commit(cursor: duckdb.DuckDBPyConnection) -> int:
    """Add one to the number of transactions that were committed and return it; to be called as the last thing in each."""
    rows = cursor.execute(
        "INSERT INTO workbench_meta VALUES (?, '1') "
        "ON CONFLICT DO UPDATE SET value = CAST(CAST(value AS BIGINT) + 1 AS VARCHAR) RETURNING value",
        [COMMITS],
    ).fetchall()
    return int(rows[0][0])


def read_content_version(cursor: duckdb.DuckDBPyConnection) -> int:
    """How many transactions have changed a memory."""
    return int(read_meta(cursor, CONTENT_VERSION) or 0)


def bump_content_version(cursor: duckdb.DuckDBPyConnection) -> int:
    """Add one to the content version and return it; to be called in the transaction that changes a memory."""
    version, mark = next_version(cursor), uuid4().hex[:12]
    write_meta(cursor, CONTENT_VERSION, str(version))
    write_meta(cursor, CONTENT_MARK, mark)
    cursor.execute("INSERT OR REPLACE INTO content_marks VALUES (?, ?)", [version, mark])
    return version


def next_version(cursor: duckdb.DuckDBPyConnection) -> int:
    """The content version that `bump_content_version` will make: what is changed in this transaction has it as `memories.changed`."""
    return read_content_version(cursor) + 1


def content_identity(cursor: duckdb.DuckDBPyConnection) -> str:
    """Whose content this is: the store's identity and the mark of its last change, which two copies that went apart do not share."""
    return f"{read_meta(cursor, STORE_ID)}:{read_meta(cursor, CONTENT_MARK) or ''}"


def earlier_identity(cursor: duckdb.DuckDBPyConnection, version: int) -> str | None:
    """`content_identity` as it was at a content version; None for one that the store has not had, or not kept the mark of."""
    if version == read_content_version(cursor):
        return content_identity(cursor)
    rows = cursor.execute("SELECT mark FROM content_marks WHERE version = ?", [version]).fetchall()
    return f"{read_meta(cursor, STORE_ID)}:{rows[0][0]}" if rows else None
