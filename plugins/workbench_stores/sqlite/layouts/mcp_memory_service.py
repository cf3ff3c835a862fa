"""mcp-memory-service: `memories` by content_hash, with tags, metadata JSON and deleted_at, and vectors in the vec0 table memory_embeddings.

A deleted memory keeps its row with deleted_at, and its vector is gone. Searches leave out what `superseded_by` names a successor of.

Source: mcp-memory-service 12.4.0, storage/sqlite_vec.py and storage/mixins/retrieve.py, and a file that it wrote.
"""

from __future__ import annotations

from dataclasses import replace

from cems_workbench.sources.address import Address
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Layout, SqliteLayout
from workbench_stores.sqlite.schema import Schema
from workbench_stores.sqlite.table import ALIAS, table_layout, vectors_of

COLUMNS = ("content_hash", "content", "tags", "memory_type", "metadata", "created_at", "deleted_at")
VECTORS = "memory_embeddings"
OWN = ("id", "created_at_iso", "updated_at_iso", "deleted_at", "superseded_by", "embedding_pending", "version", "store")
"""Columns that are read otherwise, or that no memory has a use for."""


def recognises(schema: Schema) -> bool:
    """Whether a file has its tables."""
    return schema.has("memories", COLUMNS) and schema.has(VECTORS)


def read(reader: Reader, schema: Schema, address: Address) -> Layout:
    """The memories."""
    table = schema.tables["memories"]
    vectors = vectors_of(reader, schema, table, VECTORS)
    layout = table_layout(reader, schema, table, "content_hash", "content", vectors, kind=LAYOUT.name, known=OWN)
    hidden = f"coalesce({ALIAS}.superseded_by, '') != ''" if "superseded_by" in table.columns else None
    return replace(
        layout,
        deleted=f"{ALIAS}.deleted_at IS NOT NULL",
        hidden=hidden,
        unread=tuple(name for name in layout.unread if name not in OWN),
    )


LAYOUT = SqliteLayout("mcp_memory_service", "mcp-memory-service", recognises, read)
