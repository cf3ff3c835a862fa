"""engram (claude-memory): `episodes` with their embeddings, and episodes_fts over (summary, entities).

The lexical list is that of memory_recall: the best by bm25 of the words, joined by OR. Words are of ASCII letters and digits, so
`Gdańsk` is `Gda OR sk`. engram's recollections take the same rows, but those of the 50 lowest rowids, without stop words. Dates are
milliseconds.

Here: tags are the entities, the category is source_type. An episode has no project if its scope is global.

Source: EthanGabis/claude-memory at 10a2fe6, schema version 11, run
"""

from __future__ import annotations

import re
from dataclasses import replace

from cems_workbench.sources.address import Address
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Fts5, Layout, SqliteLayout
from workbench_stores.sqlite.layouts._shared import left_out, rows_note
from workbench_stores.sqlite.schema import Schema
from workbench_stores.sqlite.table import table_layout, vectors_of

COLUMNS = ("id", "session_id", "summary", "entities", "source_type", "embedding", "accessed_at", "access_count")
RESERVED = frozenset(("OR", "AND", "NOT", "NEAR"))
NO_WORD = re.compile(r"[^a-zA-Z0-9\s]")


def recognises(schema: Schema) -> bool:
    """Whether a file has engram's tables."""
    return schema.has("episodes", COLUMNS) and schema.has("episodes_fts")


def match(text: str) -> str | None:
    """The words that memory_recall asks for."""
    words = [word for word in NO_WORD.sub(" ", text).split() if word.upper() not in RESERVED]
    return " OR ".join(words) or None


def read(reader: Reader, schema: Schema, address: Address) -> Layout:
    """The episodes."""
    table = schema.tables["episodes"]
    vectors = vectors_of(reader, schema, table, "embedding", "cosine")
    layout = table_layout(
        reader,
        schema,
        table,
        "id",
        "summary",
        vectors,
        kind=LAYOUT.name,
        given={"last_accessed": "accessed_at", "tags": "entities", "category": "source_type"},
    )
    # Not CEMS's scope: 'global' or 'project'.
    layout = left_out(layout, "scope")
    assert layout.key is not None
    notes = [
        *rows_note(reader, schema, "beliefs", "beliefs are not taken: conclusions from episodes"),
        *rows_note(
            reader, schema, "chunks", "parts of Markdown notes are not taken: memory_search searches them apart"
        ),
    ]
    return replace(layout, fts5=Fts5("episodes_fts", layout.key, match), notes=tuple(notes))


LAYOUT = SqliteLayout("engram", "engram", recognises, read)
