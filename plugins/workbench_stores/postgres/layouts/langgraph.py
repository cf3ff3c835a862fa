"""LangGraph's PostgresStore: the tables `store` and `store_vectors`; see `postgres/langgraph.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cems_workbench.sources.source import Source
from workbench_stores.postgres.catalog import VECTOR_TYPES, Table
from workbench_stores.postgres.connection import Database
from workbench_stores.postgres.langgraph import KIND, LangGraphSource
from workbench_stores.postgres.layout import TEXT_TYPES
from workbench_stores.postgres.layouts import PostgresLayout, has_columns

COLUMNS = {"prefix": TEXT_TYPES, "key": TEXT_TYPES, "field_name": TEXT_TYPES, "embedding": VECTOR_TYPES}


def found(tables: Sequence[Table]) -> list[Table]:
    """Tables of vectors of a store."""
    return [table for table in tables if has_columns(table, COLUMNS)]


def opened(database: Database, table: Table, mapping: Mapping[str, Any]) -> Source:
    """The source of such a store."""
    return LangGraphSource(database, f"{table.schema}.{table.name}", mapping)


LAYOUT = PostgresLayout(KIND, "LangGraph", found, options=("namespace", "omit_expired"), opened=opened, place=60)
