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


def read(cursor: duckdb.DuckDBPyConnection, keys: Sequence[EntryId]) -> list[tuple[EntryId, str, dict[str, Any]]]:
    """(entry, text, metadata) of the live ones among these entries, in order; of a memory its first entry comes first."""
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
        metadata = {
            "memory": memory_id,
            "chunk": seq,
            **_fields(full[memory_id]),
            "relations": edges.pop(memory_id, None),
        }
        if seq is not None:
            metadata["start"] = next((each.start for each in starts[memory_id] if each.seq == seq), None)
        if seq == 0 or not entry.text.endswith(entry.content):
            metadata["content"] = full[memory_id].content
        if len(entry.content) < len(entry.text):
            metadata["length"] = len(entry.content)
        found.append((entry.id, entry.text, {name: value for name, value in metadata.items() if value is not None}))
    return found


def _fields(memory: Memory) -> dict[str, Any]:
    """The fields of a memory that are not as in any, as metadata of Chroma."""
    found: dict[str, Any] = {}
    for name in memories.FIELDS:
        value = getattr(memory, name)
        if name not in _OWN and (value != getattr(_DEFAULTS, name) or name == "scope"):
            plain = value.isoformat() if isinstance(value, datetime) else value
            found[name] = list(plain) if isinstance(plain, tuple) else plain
    return found
