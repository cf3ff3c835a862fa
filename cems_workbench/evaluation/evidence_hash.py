"""The hash of an evidence file, over everything that replay can see of it.

Source: DESIGN.md, "The one idea": evidence and config give the same numbers anywhere, so that a hash of both names a result.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from cems_workbench.evaluation.evidence_rows import arrow, flat

if TYPE_CHECKING:
    import duckdb


def content_hash(cursor: duckdb.DuckDBPyConnection) -> str:
    """SHA-256, in hex, of everything that replay can see of the file and of its queries; judgments are not part of it."""
    digest = hashlib.sha256()
    for select in (
        "SELECT * FROM queries ORDER BY position",
        "SELECT * FROM memories ORDER BY number",
        "SELECT * EXCLUDE (seconds) FROM evidence ORDER BY qid",
        "SELECT * FROM lists ORDER BY qid, position",
        "SELECT * FROM scores ORDER BY qid, role, model, member",
        "SELECT * FROM texts ORDER BY number",
    ):
        table = arrow(cursor, select)
        for name in table.column_names:
            digest.update(f"\x00{name}\x00".encode())
            digest.update(_bytes(table[name]))
    return digest.hexdigest()


def _bytes(column: Any) -> bytes:
    import pyarrow as pa

    if pa.types.is_list(column.type):
        values, starts = flat(column)
        return bytes(values.tobytes() + starts.tobytes())
    if pa.types.is_floating(column.type) and not column.null_count:
        return bytes(column.to_numpy().tobytes())
    return "\x1f".join("\x00" if value is None else str(value) for value in column.to_pylist()).encode()
