"""LangChain's PGVector: langchain_pg_embedding(id, collection_id, embedding, document, cmetadata) and langchain_pg_collection(uuid, name).

All collections of a database share the two tables; `?collection=NAME` chooses one, `?collection=*` takes all. No column and no index says
which distance the application was set to.

Source: langchain-postgres 0.0.19, vectorstores.py (`_get_embedding_collection_store`), run; earlier versions call the id `uuid`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from psycopg import sql

from cems_workbench.errors import InputError, nearest
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import SourceError
from workbench_stores.postgres import catalog
from workbench_stores.postgres.catalog import VECTOR_TYPES, Table
from workbench_stores.postgres.connection import Reader
from workbench_stores.postgres.layout import JSON_TYPES, TEXT_TYPES, Layout, table_layout
from workbench_stores.postgres.layouts import EVERY, PostgresLayout, has_columns

COLUMNS = {"collection_id": ("uuid",), "embedding": VECTOR_TYPES, "document": TEXT_TYPES, "cmetadata": JSON_TYPES}
MOST_NAMED = 8


def found(tables: Sequence[Table]) -> list[Table]:
    """Tables of documents of collections."""
    return [table for table in tables if has_columns(table, COLUMNS)]


def layout(reader: Reader, table: Table, address: Address) -> Layout:
    """The layout of one collection. Raises InputError if the address does not say which, and SourceError if there is none."""
    id = "id" if "id" in table.columns else "uuid"
    if id not in table.columns:
        raise SourceError(f"{address.plain}: {table} has neither id nor uuid")
    made = table_layout(
        reader,
        LAYOUT.name,
        table,
        id,
        "document",
        "embedding",
        columns=("cmetadata",),
        known=("collection_id", "custom_id"),
    )
    chosen, note = _collection(reader, table, address)
    condition = None
    if chosen is not None:
        condition = sql.SQL("collection_id = {}::uuid").format(sql.Literal(chosen))
    return replace(made, condition=condition, notes=(note,))


def _collection(reader: Reader, table: Table, address: Address) -> tuple[str | None, str]:
    """(uuid, note) of the collection that the address names, or that is the only one; None for all."""
    owner = _owner(reader, table, address)
    uuids = _uuids(reader, owner)
    wanted = address.options.get("collection")
    if not uuids:
        raise SourceError(f"{address.plain}: {owner} has no collection yet")
    if wanted is None and len(uuids) == 1:
        wanted = next(iter(uuids))
    if wanted in uuids:
        others = [name for name in uuids if name != wanted]
        return uuids[wanted], f"the collection {wanted}" + (f"; others there: {_listed(others)}" if others else "")
    if wanted == EVERY:
        return None, f"the documents of all {len(uuids)} collections are taken together: {_listed(uuids)}"
    counted = _listed([f"{name} ({count:,})" for name, count in _counts(reader, table, owner)])
    if wanted is None:
        raise InputError(
            f"{address.plain}: several collections: {counted}; ?collection=NAME chooses one, ?collection={EVERY} takes all"
        )
    like = nearest(wanted, uuids)
    hint = f" (did you mean {like}?)" if like else ""
    raise InputError(f"{address.plain}: there is no collection {wanted!r}{hint}; there are {counted}")


def _listed(names: Collection[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join([*names][:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _owner(reader: Reader, table: Table, address: Address) -> Table:
    """The table that names the collections: that of the foreign key, else by its usual name. Raises SourceError."""
    rows = reader.rows(
        "SELECT c.confrelid::int8 FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1] "
        "WHERE c.conrelid = %(table)s::oid AND c.contype = 'f' AND a.attname = 'collection_id'",
        {"table": table.oid},
    )
    owner = catalog.table_of(reader, rows[0][0]) if rows else None
    owner = owner or catalog.table(reader, f"{table.schema}.langchain_pg_collection")
    if owner is None or not {"uuid", "name"} <= owner.columns.keys():
        raise SourceError(f"{address.plain}: {table} belongs to collections, and there is no table that names them")
    if not all(owner.columns[name].readable for name in ("uuid", "name")):
        raise SourceError(
            f"{address.plain}: {reader.role} may not read {owner}; to allow it: GRANT SELECT ON {owner} TO {reader.role}"
        )
    return owner


def _uuids(reader: Reader, owner: Table) -> dict[str, str]:
    """The uuid of each collection by name; a name that is NULL, which early versions allow, cannot be asked for."""
    query = sql.SQL("SELECT name, uuid::text FROM {} WHERE name IS NOT NULL ORDER BY 1, 2")
    return dict(reader.rows(query.format(owner.sql)))


def _counts(reader: Reader, table: Table, owner: Table) -> list[tuple[str, int]]:
    """(name, documents) of every collection, largest first."""
    query = sql.SQL(
        "SELECT c.name, count(d.collection_id) FROM {} c LEFT JOIN {} d ON d.collection_id = c.uuid "
        "WHERE c.name IS NOT NULL GROUP BY c.uuid, c.name ORDER BY 2 DESC, 1"
    )
    return reader.rows(query.format(owner.sql, table.sql))


LAYOUT = PostgresLayout("langchain_pgvector", "LangChain PGVector", found, layout, collections=True, place=20)
