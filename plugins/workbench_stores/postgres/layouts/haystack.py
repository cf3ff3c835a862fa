"""Haystack's PgvectorDocumentStore: (id, embedding, content, blob_data, blob_meta, blob_mime_type, meta jsonb).

Source: pgvector-haystack 8.1.2, document_store.py (`CREATE_TABLE_STATEMENT`), run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cems_workbench.sources.address import Address
from workbench_stores.postgres import lexical
from workbench_stores.postgres.catalog import VECTOR_TYPES, Table
from workbench_stores.postgres.connection import Reader
from workbench_stores.postgres.layout import JSON_TYPES, TEXT_TYPES, Layout, table_layout
from workbench_stores.postgres.layouts import PostgresLayout, has_columns

COLUMNS = {
    "id": TEXT_TYPES,
    "embedding": VECTOR_TYPES,
    "content": TEXT_TYPES,
    "meta": JSON_TYPES,
    "blob_data": ("bytea",),
}


def found(tables: Sequence[Table]) -> list[Table]:
    """Tables of documents."""
    return [table for table in tables if has_columns(table, COLUMNS)]


def layout(reader: Reader, table: Table, address: Address) -> Layout:
    """The layout of such a table."""
    made = table_layout(reader, "haystack", table, "id", "content", "embedding", columns=("meta",))
    document = lexical.found(reader, table)
    if document is not None:
        words = lexical.Lexical("ts_rank_cd", document[0], document[1] or lexical.ENGLISH, "plain")
        made = replace(made, lexical=words)
    return replace(made, client_sets="Haystack sets hnsw.ef_search if its program has hnsw_ef_search")


LAYOUT = PostgresLayout("haystack", "Haystack", found, layout, place=50)
