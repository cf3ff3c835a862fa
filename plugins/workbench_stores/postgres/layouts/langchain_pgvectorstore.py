"""LangChain's PGVectorStore: a separate table (langchain_id, content, embedding, own columns, langchain_metadata json).

Every column can be renamed; a table with none of LangChain's names is guessed as any other, with the same fields.

Source: langchain-postgres 0.0.19, v2/engine.py (`_ainit_vectorstore_table`) and v2/async_vectorstore.py, run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cems_workbench.sources.address import Address
from workbench_stores.postgres import lexical
from workbench_stores.postgres.catalog import Table
from workbench_stores.postgres.connection import Reader
from workbench_stores.postgres.layout import JSON_TYPES, Layout, table_layout
from workbench_stores.postgres.layouts import PostgresLayout
from workbench_stores.postgres.mapping import guessed

DEFAULT, TOP_K = "pg_catalog.english", 4
"""HybridSearchConfig's tsv_lang, and its primary_top_k and secondary_top_k."""
ID, CONTENT, EMBEDDING, METADATA = "langchain_id", "content", "embedding", "langchain_metadata"


def found(tables: Sequence[Table]) -> list[Table]:
    """Tables with an id or metadata that is called as LangChain calls it."""
    return [
        table
        for table in tables
        if ID in table.columns or (METADATA in table.columns and table.columns[METADATA].type in JSON_TYPES)
    ]


def layout(reader: Reader, table: Table, address: Address) -> Layout:
    """The layout of such a table. Raises InputError if it cannot tell which column has the text."""
    if {ID, CONTENT, EMBEDDING} <= table.columns.keys():
        made = table_layout(reader, LAYOUT.name, table, ID, CONTENT, EMBEDDING)
    else:
        made = replace(guessed(reader, table, address.plain), kind=LAYOUT.name)
    document = lexical.found(reader, table)
    if document is not None:
        note = "" if document[1] else f"nothing says the text search configuration: its default {DEFAULT} is assumed"
        words = lexical.Lexical("ts_rank_cd", document[0], document[1] or DEFAULT, "plain", note)
        made = replace(made, lexical=words, fusion=lexical.Fusion("weighted_sum", TOP_K, TOP_K))
    return replace(
        made, client_sets="PGVectorStore sets hnsw.ef_search if its program has index_query_options (40 by default)"
    )


LAYOUT = PostgresLayout("langchain_pgvectorstore", "LangChain PGVectorStore", found, layout, place=30)
