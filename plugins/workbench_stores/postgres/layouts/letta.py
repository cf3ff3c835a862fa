"""Letta's archival_passages and source_passages: text, embedding vector(4096), embedding_config, tags, metadata_, is_deleted, archive_id.

Letta fills every vector up with zeros to 4,096 numbers; `embedding_config` says how many its model makes. They are cut to that number where
the rest is zero. A query is filled up in the same way, so distances are those of the cut vectors. A deleted passage stays in the table.

Here: project is the archive (of source_passages: the source), author the organisation; a mapping can choose others.

A search is by cosine distance.

Source: letta 0.16.8, orm/passage.py and services/helpers/agent_manager_helper.py (`build_agent_passage_query`), whose ORM and managers were
run on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from psycopg import sql

from cems_workbench.sources.address import Address
from cems_workbench.sources.recognised import SAMPLE_ROWS
from workbench_stores.postgres.catalog import VECTOR_TYPES, Table
from workbench_stores.postgres.connection import Reader
from workbench_stores.postgres.layout import JSON_TYPES, TEXT_TYPES, Layout, table_layout
from workbench_stores.postgres.layouts import PostgresLayout, has_columns

COLUMNS = {
    "text": TEXT_TYPES,
    "embedding": VECTOR_TYPES,
    "embedding_config": JSON_TYPES,
    "is_deleted": ("bool",),
    "organization_id": TEXT_TYPES,
}
OWNERS = ("archive_id", "source_id")


def found(tables: Sequence[Table]) -> list[Table]:
    """Tables of passages."""
    return [
        table
        for table in tables
        if has_columns(table, COLUMNS) and "id" in table.columns and any(name in table.columns for name in OWNERS)
    ]


def layout(reader: Reader, table: Table, address: Address) -> Layout:
    """The layout of such a table."""
    project = next(name for name in OWNERS if name in table.columns)
    columns = ("tags", "metadata_", "created_at", "updated_at", "file_name", "is_deleted", project, "organization_id")
    passages = table_layout(
        reader,
        LAYOUT.name,
        table,
        "id",
        "text",
        "embedding",
        columns=[name for name in columns if name in table.columns],
        given={"project": project, "author": "organization_id"},
        known=("embedding_config",),
    )
    made = replace(passages, distance="cosine")
    rows = reader.rows(
        sql.SQL(
            "SELECT embedding_config ->> 'embedding_dim', embedding_config ->> 'embedding_model', count(*) FROM "
            "(SELECT embedding_config FROM {} WHERE embedding IS NOT NULL AND NOT is_deleted LIMIT {}) s GROUP BY 1, 2 ORDER BY 3 DESC, 1"
        ).format(table.sql, sql.Literal(SAMPLE_ROWS))
    )
    if not rows:
        return made
    width, model, _ = rows[0]
    missing = made.missing
    if len({(each[0], each[1]) for each in rows}) > 1:
        named = ", ".join(f"{name} of {numbers} numbers ({count})" for numbers, name, count in rows)
        missing = (
            *missing,
            f"passages of several embedding models are in one table: {named}; a search compares all of them",
        )
    made = replace(made, model=model, missing=missing)
    stored = made.vector.dimension
    if width is None or not width.isdecimal() or stored is None or not 0 < int(width) < stored:
        return made
    padded = sql.SQL(
        "(embedding_config ->> 'embedding_dim' = {} AND vector_norm(subvector(embedding, {}, {})::vector) = 0)"
    ).format(sql.Literal(width), sql.Literal(int(width) + 1), sql.Literal(stored - int(width)))
    note = f"vectors are filled up with zeros to {stored:,} numbers: cut to {width}, as embedding_config says"
    return replace(made, width=int(width), padded=padded, notes=(*made.notes, note))


LAYOUT = PostgresLayout("letta", "Letta", found, layout, place=60)
