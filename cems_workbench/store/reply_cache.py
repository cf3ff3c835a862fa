"""The `reply_cache` table: what a language model answered, by model, prompt version and the words that were sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

Key = tuple[str, str, str]
"""(model, prompt version, digest of what was sent)"""


def read(cursor: duckdb.DuckDBPyConnection, key: Key) -> str | None:
    """The reply kept for a key, None when there is none."""
    rows = cursor.execute(
        "SELECT reply FROM reply_cache WHERE model = ? AND prompt = ? AND sent = ?", list(key)
    ).fetchall()
    return str(rows[0][0]) if rows else None


def write(cursor: duckdb.DuckDBPyConnection, key: Key, reply: str) -> None:
    """Keep a reply, in place of an earlier one."""
    cursor.execute("INSERT OR REPLACE INTO reply_cache VALUES (?, ?, ?, ?)", [*key, reply])
