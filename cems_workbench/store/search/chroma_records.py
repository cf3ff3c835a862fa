"""Records of a collection of Chroma that this workbench writes.

A record is an entry of the indexes, with the vector and the text that was embedded. Its metadata are the fields of its memory, and what
`import` needs to make the same memory and chunks of it (`sources/collection.py`):

    memory, chunk    the memory's id, and the number of the chunk; a memory without chunks has none
    length           how many characters at the end of the text are the content, or the chunk; absent if all are
    start            where the chunk begins in the content
    content          of the first chunk, and where the text does not end with it: the whole content
    relations        of the first record of a memory: kind, other memory, weight and author of each edge from it, as JSON
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cems_workbench.records import Memory
from cems_workbench.store import chunks, memories
from cems_workbench.store.search import entries
from cems_workbench.store.search.entries import EntryId

if TYPE_CHECKING:
    import duckdb

_DEFAULTS = Memory("", "")
_OWN = ("id", "content")
FIELDS = ("title", "project", "session", "author", "tags", "scope", "created_at", "updated_at")
"""The fields in the store's own collection, which is written again when one changes: those that do not change with each use."""


def read(
    cursor: duckdb.DuckDBPyConnection, keys: Sequence[EntryId], fields: Sequence[str] | None = None
) -> list[tuple[EntryId, str, dict[str, Any]]]:
    """(entry, text, metadata) of the live ones among these entries, in order; of a memory its first entry comes first.
    With all fields of the memory and its relations, or with these `fields` alone. Absent values are None, which an
    upsert removes."""
    ids = list(dict.fromkeys(memory_id for memory_id, _ in keys))
    full, starts = memories.read(cursor, ids), chunks.read(cursor, ids)
    edges: dict[str, list[str]] = {}
    for memory_id, *edge in cursor.execute(
        "SELECT source_id, kind, target_id, weight, author FROM relations WHERE source_id IN (SELECT unnest(?)) ORDER BY ALL",
        [ids],
    ).fetchall():
        edges.setdefault(memory_id, []).append(json.dumps(edge, ensure_ascii=False))
    found = []
    for entry in entries.read(cursor, keys):
        memory_id, seq = entry.id
        split = seq == 0 or not entry.text.endswith(entry.content)
        metadata = {
            "memory": memory_id,
            "chunk": seq,
            **_fields(full[memory_id], fields or memories.FIELDS),
            "length": len(entry.content) if len(entry.content) < len(entry.text) else None,
            "start": next((each.start for each in starts.get(memory_id, ()) if each.seq == seq), None),
            "content": full[memory_id].content if split else None,
        }
        if fields is None:
            metadata["relations"] = edges.pop(memory_id, None)
        found.append((entry.id, entry.text, metadata))
    return found


def _fields(memory: Memory, names: Sequence[str]) -> dict[str, Any]:
    """The fields of a memory as metadata of Chroma, which has no empty list; None for those that are as in any."""
    found: dict[str, Any] = {}
    for name in names:
        value = getattr(memory, name)
        if name not in _OWN:
            plain = value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
            plain = list(plain) if isinstance(plain, tuple) else plain
            found[name] = plain if value != getattr(_DEFAULTS, name) or name == "scope" else None
    return found
