"""LlamaIndex's PGVectorStore: data_NAME(id bigserial, text, metadata_ json or jsonb, node_id, embedding[, text_search_tsv]).

A row is a node, and LlamaIndex returns it by its node_id; `id` is only a row number. Nodes with the same `ref_doc_id` are parts of one
document, which LlamaIndex deletes together and never searches as one.

Source: llama-index-vector-stores-postgres 0.9.0, base.py (`get_data_model`, `_db_rows_to_query_result`), run.
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

COLUMNS = {"text": TEXT_TYPES, "metadata_": JSON_TYPES, "node_id": TEXT_TYPES, "embedding": VECTOR_TYPES}
OF_NODES = ("_node_content", "_node_type", "doc_id", "document_id", "ref_doc_id")
"""Keys that LlamaIndex adds to a node's own metadata."""


def found(tables: Sequence[Table]) -> list[Table]:
    """Tables of nodes."""
    return [table for table in tables if has_columns(table, COLUMNS)]


def layout(reader: Reader, table: Table, address: Address) -> Layout:
    """The layout of such a table."""
    known = ("id", *(f"metadata_.{key}" for key in OF_NODES))
    made = table_layout(reader, "llamaindex", table, "node_id", "text", "embedding", known=known)
    document = lexical.found(reader, table)
    if document is not None:
        words = lexical.Lexical("ts_rank", document[0], document[1] or lexical.ENGLISH, "pieces")
        made = replace(made, lexical=words, fusion=lexical.Fusion("appended"))
    return replace(made, client_sets="LlamaIndex sets hnsw.ef_search for each query (hnsw_kwargs)")


LAYOUT = PostgresLayout("llamaindex", "LlamaIndex", found, layout, place=40)
