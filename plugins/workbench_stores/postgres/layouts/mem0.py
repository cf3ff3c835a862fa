"""mem0 on pgvector: (id uuid, vector vector(N), payload jsonb), one row per memory.

The text is the payload's `data`; a search is `ORDER BY vector <=> query`, for one user if the address has one. Past the day of
`expiration_date` (UTC) a memory is in no search and no list of mem0, which keeps its row.

Source: mem0ai 2.2.1, vector_stores/pgvector.py and memory/main.py (`_payload_is_expired`), run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from psycopg import sql

from cems_workbench.formats.base.memory_fields import EXPIRATION_DATE
from cems_workbench.sources.address import Address
from cems_workbench.sources.recognised import SAMPLE_ROWS
from workbench_stores.postgres import lexical
from workbench_stores.postgres.catalog import VECTOR_TYPES, Table
from workbench_stores.postgres.connection import Reader
from workbench_stores.postgres.layout import Layout, table_layout
from workbench_stores.postgres.layouts import PostgresLayout, has_columns

COLUMNS = {"id": ("uuid",), "vector": VECTOR_TYPES, "payload": ("jsonb",)}
NO_MEMORIES = ("mem0migrations",)
LEMMATISED = "text_lemmatized"
"""The key of the text that keyword searches read."""
EXPIRES = f"payload.{EXPIRATION_DATE}"


def found(tables: Sequence[Table]) -> list[Table]:
    """Tables with memories, without mem0's tables of entities and migrations."""
    own = [table for table in tables if has_columns(table, COLUMNS) and table.name not in NO_MEMORIES]
    names = {(table.schema, table.name) for table in own}
    return [
        table
        for table in own
        if not (table.name.endswith("_entities") and (table.schema, table.name.removesuffix("_entities")) in names)
    ]


def layout(reader: Reader, table: Table, address: Address) -> Layout:
    """The layout of such a table."""
    made = table_layout(
        reader,
        "mem0",
        table,
        "id",
        "payload.data",
        "vector",
        columns=("payload",),
        given={"valid_until": EXPIRES},
        known=(f"payload.{LEMMATISED}",),
    )
    expires = made.at(EXPIRES)
    hidden = sql.SQL(
        r"COALESCE({0} ~ '^\d\d\d\d-\d\d-\d\d$' AND {0} COLLATE "
        "\"C\" < to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD'), FALSE)"
    ).format(expires)
    return replace(made, distance="cosine", hidden=hidden, lexical=_lexical(reader, table))


def _lexical(reader: Reader, table: Table) -> lexical.Lexical | None:
    """mem0's keyword search; None if no row has the text that it searches."""
    if not table.columns["payload"].readable:
        return None
    text = sql.SQL("{} ->> {}").format(sql.Identifier("payload"), sql.Literal(LEMMATISED))
    name = table.sql
    first = "SELECT 1 FROM (SELECT payload FROM {} LIMIT {}) first WHERE {} IS NOT NULL LIMIT 1"
    if not reader.rows(sql.SQL(first).format(name, sql.Literal(SAMPLE_ROWS), text)):
        return None
    note = "mem0 takes the lemmas of the query where spaCy is installed, here it is asked as typed"
    document = sql.SQL("to_tsvector('simple', {})").format(text)
    return lexical.Lexical("ts_rank_cd", document, "simple", "plain", note)


LAYOUT = PostgresLayout("mem0", "mem0", found, layout, place=10)
