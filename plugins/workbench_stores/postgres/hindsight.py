"""Hindsight: memory_units(id, bank_id, text, fact_type, dates, tags, embedding, search_vector), memory_links, entities, unit_entities.

A memory is a fact of a bank. Hindsight searches each kind of fact by its own index, words joined by OR with ts_rank_cd, and follows links
and shared entities. `?bank=NAME` chooses a bank, `?bank=*` takes all.

Source: hindsight-api-slim 1.1.0, engine/sql/postgresql.py, engine/search/retrieval.py, engine/retain/embedding_processing.py, run.
"""

from __future__ import annotations

from dataclasses import replace

from psycopg import sql

from cems_workbench.sources.address import Address
from workbench_stores.postgres import catalog, lexical
from workbench_stores.postgres.catalog import VECTOR_TYPES, Table
from workbench_stores.postgres.connection import Reader
from workbench_stores.postgres.layout import (
    EVERY,
    TEXT_TYPES,
    Layout,
    PostgresLayout,
    listed,
    table_layout,
    wrong_choice,
)

COLUMNS = {
    "id": ("uuid",),
    "bank_id": TEXT_TYPES,
    "text": TEXT_TYPES,
    "fact_type": TEXT_TYPES,
    "embedding": VECTOR_TYPES,
}
READ = ("bank_id", "fact_type", "tags", "document_id", "metadata", "context", "mentioned_at", "updated_at")
UNUSED = (
    "event_date",
    "created_at",
    "chunk_id",
    "proof_count",
    "source_memory_ids",
    "consolidated_at",
    "observation_scopes",
    "text_signals",
    "consolidation_failed_at",
    "edited_at",
    "attachment_ids",
)
"""Columns for its own bookkeeping."""
FACT_TYPES = ("world", "experience", "observation")
MOST_SHARING = 50
"""Facts of an entity from which on the entity relates none to another: all would be related to all."""


def layout(reader: Reader, table: Table, address: Address) -> Layout:
    """The layout of the facts of a bank. Raises InputError if the address does not say which."""
    columns = [name for name in READ if name in table.columns]
    given = {"category": "fact_type", "project": "bank_id", "source_ref": "document_id", "created_at": "mentioned_at"}
    given = {field: column for field, column in given.items() if column in columns}
    made = table_layout(
        reader, LAYOUT.name, table, "id", "text", "embedding", columns=columns, given=given, known=UNUSED
    )
    bank, note = _bank(reader, table, address)
    condition = None if bank is None else sql.SQL("m.bank_id = {}").format(sql.Literal(bank))
    if table.columns.get("search_vector") and table.columns["search_vector"].type == "tsvector":
        words = lexical.Lexical("ts_rank_cd", sql.Identifier("search_vector"), lexical.ENGLISH, "tokens")
        made = replace(made, lexical=words)
    notes = (
        note,
        "Hindsight embeds a text with its date and entities behind it, as in `(happened in June 2025) [Ann]`",
        "Hindsight leaves out what is below a cosine of 0.3 (semantic_min_similarity); the live list shows it",
    )
    return replace(
        made,
        distance="cosine",
        condition=condition,
        arms=tuple(sql.SQL("fact_type = {}").format(sql.Literal(each)) for each in FACT_TYPES),
        relations=tuple(_relations(reader, table, bank)),
        notes=notes,
    )


def _bank(reader: Reader, table: Table, address: Address) -> tuple[str | None, str]:
    """(bank, note) of the bank that the address names, or that is the only one; None for all."""
    catalog.refuse_unless_readable(reader, table, address.plain, ("bank_id",))
    facts, wanted = table.sql, address.options.get("bank")
    if wanted is not None and wanted != EVERY:
        # Not counted: each live search comes here.
        there = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE bank_id = {})").format(facts, sql.Literal(wanted))
        if reader.row(there)[0]:
            return wanted, f"the bank {wanted}"
    counts = sql.SQL("SELECT bank_id, count(*) FROM {} GROUP BY 1 ORDER BY 2 DESC, 1").format(facts)
    banks: dict[str, int] = dict(reader.rows(counts))
    if wanted in (None, EVERY) and (wanted or len(banks) < 2):
        named = listed([f"{name} ({count:,})" for name, count in banks.items()])
        return (next(iter(banks)), f"the only bank, {named}") if len(banks) == 1 else (None, f"the banks {named}")
    raise wrong_choice(address, "bank", banks)


def _relations(reader: Reader, table: Table, bank: str | None) -> list[sql.Composed]:
    """Queries of (source, target, kind, weight): the links between facts of the bank, and the facts that share an entity."""
    facts = sql.SQL("SELECT id FROM {} WHERE {}").format(
        table.sql,
        sql.SQL("TRUE") if bank is None else sql.SQL("bank_id = {}").format(sql.Literal(bank)),
    )
    queries = []
    links = catalog.table(reader, f"{table.schema}.memory_links")
    if links is not None and all(column.readable for column in links.columns.values()):
        queries.append(
            sql.SQL(
                "SELECT from_unit_id::text, to_unit_id::text, link_type, weight::float8 FROM {} "
                "WHERE from_unit_id IN ({facts}) AND to_unit_id IN ({facts}) ORDER BY 1, 2, 3"
            ).format(links.sql, facts=facts)
        )
    shared = catalog.table(reader, f"{table.schema}.unit_entities")
    if shared is not None and all(column.readable for column in shared.columns.values()):
        queries.append(
            sql.SQL(
                "WITH few AS (SELECT entity_id, unit_id FROM (SELECT entity_id, unit_id, count(*) OVER (PARTITION BY entity_id) AS n "
                "FROM {} WHERE unit_id IN ({facts})) e WHERE n <= {most}) "
                "SELECT a.unit_id::text, b.unit_id::text, 'entity', tanh(0.5 * count(*))::float8 FROM few a JOIN few b "
                "ON a.entity_id = b.entity_id AND a.unit_id < b.unit_id GROUP BY 1, 2 ORDER BY 1, 2"
            ).format(shared.sql, facts=facts, most=sql.Literal(MOST_SHARING))
        )
    return queries


LAYOUT = PostgresLayout("hindsight", "Hindsight", layout, COLUMNS, options=("bank",), place=15)
