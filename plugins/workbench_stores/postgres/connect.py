"""The layout of a database: by its tables, or as a mapping states.

The database of a CEMS server: memory_documents, memory_chunks with vectors, memory_relations.

Columns that older servers lack are optional, and reported. A user sees their own memories and those shared with their team (CEMS's
`FilterBuilder`); live lists use the two statements of `hybrid_search_chunks`.

Source: CEMS, src/cems/db/document_store.py at dded756
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import sql

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import data_beside
from cems_workbench.formats.base.payload import Names
from cems_workbench.records import RowProblem
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import SourceError
from workbench_stores.mapping import checked_distance
from workbench_stores.postgres import catalog, lexical
from workbench_stores.postgres.catalog import Table
from workbench_stores.postgres.connection import FUSION_OPTIONS, Database, Reader, Row
from workbench_stores.postgres.layout import EVERY, Chunks, Layout, PostgresLayout, python_time
from workbench_stores.postgres.libraries import LANGGRAPH, LIBRARIES
from workbench_stores.postgres.mapping import corrected, guessed, mapped, mapped_table, validate
from workbench_stores.postgres.source import TableSource

TABLES = ("memory_documents", "memory_chunks")
REQUIRED: Mapping[str, Sequence[str]] = {
    "memory_documents": ("id", "content"),
    "memory_chunks": ("document_id", "seq", "content", "embedding"),
}
RELATION_WEIGHT = 0.3
"""CEMS's weight of a relation without a similarity."""
_NAMES: Mapping[str, Any] = data_beside(__file__, "names.json")["cems"]
FIELDS: Mapping[str, str] = _NAMES["fields"]
"""The column of each field of a memory."""
OTHERS: Sequence[str] = _NAMES["others"]
"""Columns that are read otherwise, or that no memory has a use for."""
TIMES = ("last_shown_at", "updated_at", "created_at")
"""A memory was last accessed when it was last shown, else changed, else made."""
CONSEQUENCES: Mapping[str, str] = _NAMES["consequences"]
"""Of a column of memory_documents that is missing."""


def cems_layout(reader: Reader, address: Address) -> Layout:
    """The documents with their chunks; `user` and `team` of the address choose whose. Raises InputError and SourceError."""
    user, team = (_id_of(address, option) for option in ("user", "team"))
    if team and not user:
        raise InputError(f"{address.plain}: team= adds the memories shared with a user, so user= is needed too")
    documents, chunks = (catalog.table(reader, name) for name in TABLES)
    if documents is None or chunks is None:
        raise SourceError(f"{address.plain}: no longer has the tables {' and '.join(TABLES)}")
    for table in (documents, chunks):
        if lacking := [name for name in REQUIRED[table.name] if name not in table.columns]:
            raise SourceError(f"{address.plain}: {table} lacks {', '.join(lacking)}; without it CEMS cannot be read")
        catalog.refuse_unless_readable(reader, table, address.plain, REQUIRED[table.name])
    there = {name for name, column in documents.columns.items() if column.readable}
    if user and "user_id" not in there:
        raise InputError(f"{address.plain}: memory_documents has no user_id, so user= has no effect")
    only = user
    if user is None and "user_id" in there and len(users := _users(reader, 2)) == 1:
        only = users[0][0]
    relations = catalog.table(reader, "memory_relations")
    if relations and not all(column.readable for column in relations.columns.values()):
        relations = None
    words = chunks.columns.get("content_tsv")
    missing = [
        f"{name} of memory_documents may not be read: {follows}"
        if name in documents.columns
        else f"memory_documents has no {name}: {follows}"
        for name, follows in CONSEQUENCES.items()
        if name not in there
    ]
    if words is None or not words.readable:
        words = None
        missing.append("memory_chunks has no content_tsv: there is no full-text list, neither here nor in CEMS")
    if relations is None:
        missing.append("memory_relations is missing or may not be read: no memory is related to another")
    visible = {scope: _visible(there, only, team, scope) for scope in (None, "personal", "shared")}
    left = [name for name in documents.columns if name not in (*OTHERS, *FIELDS.values())]
    notes = (f"columns of memory_documents that are not imported: {', '.join(left)}",) if left else ()

    def counted(reader: Reader, where: sql.Composable) -> tuple[list[str], list[str]]:
        return ([] if user or "user_id" not in there else _of_several_users(reader)), []

    return Layout(
        kind="cems",
        table=documents,
        id=sql.SQL("m.id"),
        id_type="uuid",
        unique=True,
        text=sql.SQL("m.content"),
        vector=chunks.columns["embedding"],
        distance="cosine",
        columns={name: _expression(name, there) for name in FIELDS.values() if name in there or name == TIMES[0]},
        names=Names({field: name for field, name in FIELDS.items() if name in there or name == TIMES[0]}, (), True),
        condition=visible[None],
        scopes={scope: condition for scope, condition in visible.items() if scope},
        own_search=True,
        relations=() if relations is None else (_relations(relations, visible[None]),),
        lexical=lexical.Lexical("ts_rank", sql.SQL("c.content_tsv"), lexical.ENGLISH, "any") if words else None,
        missing=tuple(missing),
        notes=notes,
        counted=counted,
        chunks=Chunks(
            chunks,
            sql.SQL("c.document_id = m.id"),
            sql.SQL("c.seq"),
            sql.SQL("c.content"),
            sql.SQL("c.seq"),
            RowProblem("", "chunks", "has no chunks, so CEMS's search does not find it"),
        ),
    )


def _id_of(address: Address, option: str) -> uuid.UUID | None:
    given = address.options.get(option)
    try:
        return None if given is None else uuid.UUID(given)
    except ValueError:
        raise InputError(f"{address.plain}: {option}= is a UUID in CEMS, found {given!r}") from None


def _users(reader: Reader, most: int) -> list[Row]:
    return reader.rows(
        "SELECT user_id, count(*) FROM memory_documents GROUP BY user_id ORDER BY 2 DESC, 1 LIMIT %(most)s",
        {"most": most},
    )


def _of_several_users(reader: Reader) -> list[str]:
    users = _users(reader, 6)
    if len(users) < 2:
        return []
    named = ", ".join(f"{user} ({count})" for user, count in users[:5]) + (", …" if len(users) > 5 else "")
    return [
        f"memories of several users are imported and searched together, as no user of CEMS searches; "
        f"?user=ID at the end of the address chooses one: {named}"
    ]


def _visible(there: set[str], user: uuid.UUID | None, team: uuid.UUID | None, scope: str | None) -> sql.Composed:
    """CEMS's condition on documents in its searches."""
    conditions = ["m.deleted_at IS NULL"] if "deleted_at" in there else []
    of_scope = ["m.scope = {scope}"] if scope else []
    if user is None or "user_id" not in there:
        conditions += of_scope
    elif team is None or scope == "personal" or "team_id" not in there:
        conditions += ["m.user_id = {user}", *of_scope]
    elif scope == "shared":
        conditions += ["(m.user_id = {user} OR m.team_id = {team})", *of_scope]
    else:
        conditions += ["(m.user_id = {user} OR (m.team_id = {team} AND m.scope = 'shared'))"]
    return sql.SQL(" AND ".join(conditions or ["TRUE"])).format(
        user=sql.Literal(user), team=sql.Literal(team), scope=sql.Literal(scope)
    )


def _expression(name: str, there: set[str]) -> sql.Composable:
    """A column to select: times outside Python's range are NULL, identifiers are text, counts at least 0."""
    column = sql.Identifier("m", name)
    if name == TIMES[0]:
        times = [python_time(sql.Identifier("m", each)) for each in TIMES if each in there]
        return sql.SQL("COALESCE({})").format(sql.SQL(", ").join([*times, sql.SQL("NULL::timestamptz")]))
    if name in TIMES:
        return python_time(column)
    if name.endswith("_count"):
        return sql.SQL("GREATEST({}, 0)").format(column)
    return sql.SQL("{}::text").format(column) if name in ("user_id", "scope") else column


def _relations(table: Table, visible: sql.Composable) -> sql.Composed:
    """The relations between visible documents, in physical order, which decides between equal ones."""
    kind = sql.SQL("r.relation_type" if "relation_type" in table.columns else "NULL::text")
    weight = sql.SQL("r.similarity" if "similarity" in table.columns else "NULL::real")
    return sql.SQL(
        "SELECT r.source_id::text, r.target_id::text, COALESCE(NULLIF({kind}, ''), 'similar'), COALESCE({weight}::float8, {usual}) "
        "FROM memory_relations r WHERE r.source_id IN ({ends}) AND r.target_id IN ({ends}) ORDER BY r.ctid"
    ).format(
        kind=kind,
        weight=weight,
        usual=sql.Literal(RELATION_WEIGHT),
        ends=sql.SQL("SELECT m.id FROM memory_documents m WHERE {}").format(visible),
    )


LAYOUTS: Sequence[PostgresLayout] = sorted((*LIBRARIES, LANGGRAPH), key=lambda each: each.place)
"""Every layout; the first that finds a table has it."""


def recognised(tables: Sequence[Table]) -> list[tuple[PostgresLayout, Table]]:
    """(layout, table) of the tables that a layout finds, in the order of the tables."""
    found: dict[int, PostgresLayout] = {}
    for layout in LAYOUTS:
        for table in layout.found(tables):
            found.setdefault(table.oid, layout)
    return [(found[table.oid], table) for table in tables if table.oid in found]


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> TableSource:
    """Open a database: the table of a mapping or of `table=`, else CEMS's tables, else the only table of a known layout
    or with vectors. Raises InputError for a mapping or an option that does not fit, and SourceError."""
    database = Database(address, timeout)
    try:
        with database.transaction() as reader:
            catalog.engine(reader, database)
            source = _source(reader, database, mapping or {})
        with database.transaction() as reader:
            source.layout(reader)
    except BaseException:
        database.close()
        raise
    return source


def _source(reader: Reader, database: Database, mapping: Mapping[str, Any]) -> TableSource:
    address = database.address
    distance = checked_distance(address.options.get("distance"), f"{address.plain}: distance=")
    whole = validate(mapping)
    name = mapping.get("table") or address.options.get("table")
    if name is None and not mapping and all(catalog.table(reader, each) for each in TABLES):
        _refuse(address, ("collection", "distance"), "CEMS has no collections, and searches by cosine")
        others = [name for layout in LAYOUTS for name in layout.options]
        _refuse(address, (*others, *FUSION_OPTIONS), "the tables are CEMS's")
        return TableSource(database, lambda reader: cems_layout(reader, address))
    if name is None:
        only = _only(reader, address.plain)
        name = f"{only.schema}.{only.name}"

    def layout(reader: Reader) -> Layout:
        made = _layout(reader, name, address, mapping, whole)
        return replace(made, distance=distance) if distance else made

    return TableSource(database, layout)


def _refuse(address: Address, options: Sequence[str], reason: str) -> None:
    for name in options:
        if name in address.options:
            raise InputError(f"{address.plain}: {reason}, so {name}= has no effect")


def _only(reader: Reader, plain: str) -> Table:
    """The only table of a known layout, else with vectors; raises SourceError if there is none or more than one. Among
    several, the only one with rows counts: Letta, for one, makes two."""
    tables = catalog.tables_with_vectors(reader)
    tables = [table for _, table in recognised(tables)] or tables
    if not tables:
        own = f"CEMS's tables ({' and '.join(TABLES)})"
        raise SourceError(f"{plain}: has neither {own} nor another with a column of vectors")
    filled = tables if len(tables) == 1 else [table for table in tables if catalog.has_rows(reader, table)]
    if len(filled) == 1:
        return filled[0]
    several = ", ".join(map(str, tables))
    raise SourceError(f"{plain}: has several tables with vectors ({several}); ?table=NAME chooses one")


def _layout(reader: Reader, name: str, address: Address, mapping: Mapping[str, Any], whole: bool) -> Layout:
    """The layout of a table: that of a library if it has its columns, else a guess, which its notes show; as the mapping corrects it."""
    plain = address.plain
    if "table" in mapping:
        table = mapped_table(reader, name, plain)
    elif (found := catalog.table(reader, name)) is not None:
        table = found
    else:
        tables = ", ".join(map(str, catalog.tables_with_vectors(reader)))
        raise SourceError(f"{plain}: there is no table {name!r}; tables with vectors: {tables or 'none'}")
    known = _known(table, address)
    if known is None or (whole and known.joined):
        made = mapped(reader, mapping, table) if whole else guessed(reader, table, plain)
        made = replace(made, lexical=lexical.over_texts(reader, table, "ts_rank", "any", assumed=lexical.ENGLISH))
        return corrected(made, mapping) if mapping and not whole else made
    if whole:
        return _with_rows_of(mapped(reader, mapping, table), known, reader, address)
    made = known.layout(reader, table, address)
    return corrected(made, mapping) if mapping else made


def _known(table: Table, address: Address) -> PostgresLayout | None:
    """The library's layout of a table; raises InputError for an option that only tables of other libraries have."""
    known = next((layout for layout, _ in recognised([table])), None)
    if known is None or not known.collections:
        _refuse(address, ("collection",), f"{table} has no collections")
    for other in LAYOUTS:
        own = known.options if known else ()
        _refuse(address, [name for name in other.options if name not in own], f"{table} is no table of {other.title}")
    return known


def _with_rows_of(made: Layout, known: PostgresLayout, reader: Reader, address: Address) -> Layout:
    """A mapped layout of a library's table: the rows are those that the library has in it, and vectors are stored as it
    does. A mapping names the table, so it takes every collection unless the address names one."""
    if known.collections and "collection" not in address.options:
        address = replace(address, options={**address.options, "collection": EVERY})
    theirs = known.layout(reader, made.table, address)
    if theirs.vector.name == made.vector.name:
        made = replace(made, width=theirs.width, padded=theirs.padded, model=theirs.model)
    names = ("condition", "hidden", "lexical", "fusion", "client_sets", "notes", "missing")
    taken: dict[str, Any] = {name: getattr(theirs, name) for name in names}
    return replace(made, distance=made.distance or theirs.distance, known=made.known | theirs.known, **taken)
