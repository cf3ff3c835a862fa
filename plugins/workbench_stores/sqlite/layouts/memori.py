"""Memori: `memori_entity_fact` (uuid, entity_id, content, content_embedding float32), the facts of each `memori_entity`.

A fact's author is its entity's external_id, whose facts Memori searches by cosine: `?user=ID` takes those.

Source: memorisdk 3.2.8, storage/migrations/_sqlite.py and search/_faiss.py, and a file that it wrote.
"""

from __future__ import annotations

from dataclasses import replace

from cems_workbench.sources.address import Address
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Layout, SqliteLayout
from workbench_stores.sqlite.schema import Schema
from workbench_stores.sqlite.table import ALIAS, table_layout, vectors_of

FACTS, ENTITIES = "memori_entity_fact", "memori_entity"
OWN = ("id", "entity_id", "uniq", "date_created", "date_updated")
"""Columns that are read otherwise, or that no memory has a use for."""


def recognises(schema: Schema) -> bool:
    """Whether a file has its tables."""
    return schema.has(FACTS, ("uuid", "entity_id", "content", "content_embedding", "date_created")) and schema.has(
        ENTITIES, ("id", "external_id")
    )


def read(reader: Reader, schema: Schema, address: Address) -> Layout:
    """The facts."""
    table = schema.tables[FACTS]
    vectors = vectors_of(reader, schema, table, "content_embedding", "cosine")
    layout = table_layout(reader, schema, table, "uuid", "content", vectors, kind=LAYOUT.name, known=OWN)
    columns = {
        "user_id": "e.external_id",
        "created_at": f"{ALIAS}.date_created",
        "updated_at": f"{ALIAS}.date_updated",
    }
    return replace(
        layout,
        source=f"{layout.source} JOIN {ENTITIES} AS e ON e.id = {ALIAS}.entity_id",
        columns={**layout.columns, **columns},
        unread=tuple(name for name in layout.unread if name not in OWN),
    )


LAYOUT = SqliteLayout("memori", "Memori", recognises, read)
