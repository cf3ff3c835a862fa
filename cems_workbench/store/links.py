"""Short links: states of the Inspect page, kept for good in the `saved_states` table.

    id = the first 8 characters of the lower-case base32 of SHA-256(state), more of them where another state has those

A state is JSON text with sorted keys, so that the same state always has the same id.
"""

from __future__ import annotations

import json
from base64 import b32encode
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cems_workbench.store.database import Database
from cems_workbench.store.rows import to_naive

if TYPE_CHECKING:
    import duckdb

MIN_ID_CHARS = 8
"""Characters of an id: 40 bits, so that an id of another store is as good as never the id of a state of this one."""


class Links:
    """The states kept in an open store; methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, state: Mapping[str, Any]) -> str:
        """Keep a state of a page (JSON values) unless it is there; its short id, which is the same for the same state."""
        text = json.dumps(state, sort_keys=True, separators=(",", ":"))  # ASCII, half an emoji included
        digest = b32encode(sha256(text.encode()).digest()).decode().lower().rstrip("=")
        with self._database.transaction() as cursor:
            for length in range(MIN_ID_CHARS, len(digest) + 1):
                present = _text(cursor, digest[:length])
                if present is None:
                    row = [digest[:length], text, to_naive(datetime.now(UTC))]
                    cursor.execute("INSERT INTO saved_states VALUES (?, ?, ?)", row)
                if present in (None, text):
                    return digest[:length]
        raise AssertionError("two states with one SHA-256")

    def read(self, state_id: str) -> dict[str, Any] | None:
        """The state kept under a short id, None when there is none."""
        with self._database.reading() as cursor:
            text = _text(cursor, state_id)
        return None if text is None else dict(json.loads(text))


def _text(cursor: duckdb.DuckDBPyConnection, state_id: str) -> str | None:
    rows = cursor.execute("SELECT state FROM saved_states WHERE id = ?", [state_id]).fetchall()
    return str(rows[0][0]) if rows else None
