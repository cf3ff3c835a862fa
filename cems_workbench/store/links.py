"""States of the Inspect page under short links (`saved_states`). The id of a link is kept for good:

    id = the first 8 characters of the lower-case base32 of SHA-256(state), more of them on a collision

A state is JSON with sorted keys, so that equal states have equal ids.
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
"""Characters of an id: 40 bits, so that an id of another store practically never matches a state of this one."""


class Links:
    """The saved states of an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, state: Mapping[str, Any]) -> str:
        """Save a page's state (JSON values) unless it exists; returns its short id, equal for equal states."""
        text = json.dumps(state, sort_keys=True, separators=(",", ":"))  # ASCII: encodes lone surrogates too
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
        text = self._database.read(_text, state_id)
        return None if text is None else dict(json.loads(text))


def _text(cursor: duckdb.DuckDBPyConnection, state_id: str) -> str | None:
    rows = cursor.execute("SELECT state FROM saved_states WHERE id = ?", [state_id]).fetchall()
    return str(rows[0][0]) if rows else None
