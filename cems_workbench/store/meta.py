"""The `workbench_meta` table: schema version, store id, content version, and the records of the vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    import duckdb

SCHEMA, STORE_ID, CONTENT_VERSION, CONTENT_MARK = "schema", "store_id", "content_version", "content_mark"
COMMITS = "commits"
"""The number of committed transactions, since they are counted."""


def read_meta(cursor: duckdb.DuckDBPyConnection, key: str) -> str | None:
    """The value of a meta key, or None."""
    # fetchall, not fetchone: a partly read result blocks the connection.
    row = next(iter(cursor.execute("SELECT value FROM workbench_meta WHERE key = ?", [key]).fetchall()), None)
    return None if row is None else str(row[0])


def write_meta(cursor: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    """Set a meta key."""
    cursor.execute("INSERT OR REPLACE INTO workbench_meta VALUES (?, ?)", [key, value])


def delete_meta(cursor: duckdb.DuckDBPyConnection, key: str) -> None:
    """Delete a meta key, if it exists."""
    cursor.execute("DELETE FROM workbench_meta WHERE key = ?", [key])


def count_commit(cursor: duckdb.DuckDBPyConnection) -> int:
    """Increment and return the number of committed transactions; call it last in each transaction."""
    rows = cursor.execute(
        "INSERT INTO workbench_meta VALUES (?, '1') "
        "ON CONFLICT DO UPDATE SET value = CAST(CAST(value AS BIGINT) + 1 AS VARCHAR) RETURNING value",
        [COMMITS],
    ).fetchall()
    return int(rows[0][0])


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
