"""mem0's pgvector table: (id uuid, vector vector(N), payload jsonb), one row per memory.

The text is the payload's `data`; a search is `ORDER BY vector <=> query`, for one user if the address has one.

Source: mem0/vector_stores/pgvector.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cems_workbench.formats.base.memory_fields import EXPIRATION_DATE, NAMES, OPTIONAL_FIELDS
from cems_workbench.sources.postgres.catalog import Table
from cems_workbench.sources.postgres.connection import Reader
from cems_workbench.sources.postgres.table import Layout, id_type

COLUMNS: Mapping[str, str] = {"id": "uuid", "vector": "vector", "payload": "jsonb"}
NO_MEMORIES = ("mem0migrations",)


def is_mem0(table: Table) -> bool:
    """Whether a table has mem0's columns."""
    return all(table.columns.get(name) and table.columns[name].type == type for name, type in COLUMNS.items())


def collections(tables: Sequence[Table]) -> list[Table]:
    """Tables with memories, without mem0's tables of entities and migrations."""
    found = [table for table in tables if is_mem0(table) and table.name not in NO_MEMORIES]
    names = {table.name for table in found}
    return [table for table in found if not (table.name.endswith("_entities") and table.name[:-9] in names)]


def layout(reader: Reader, table: Table) -> Layout:
    """The layout of such a table."""
    from psycopg import sql

    def key(name: str) -> sql.Composed:
        return sql.SQL("{} ->> {}").format(sql.Identifier("payload"), sql.Literal(name))

    fields = {
        field: sql.SQL("COALESCE({})").format(sql.SQL(", ").join(key(name) for name in NAMES[field]))
        for field in OPTIONAL_FIELDS
    }
    fields["valid_until"] = key(EXPIRATION_DATE)
    return Layout(
        "mem0",
        table,
        sql.Identifier("id"),
        id_type(reader, table, "id"),
        True,
        key("data"),
        table.columns["vector"],
        "cosine",
        fields,
        user=key("user_id"),
        names={"valid_until": EXPIRATION_DATE},
    )
