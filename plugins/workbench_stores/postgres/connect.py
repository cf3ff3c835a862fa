"""The layout of a database: by its tables, or as a mapping states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import SourceError
from workbench_stores.mapping import checked_distance
from workbench_stores.postgres import catalog, cems, langgraph, lexical
from workbench_stores.postgres.catalog import Table
from workbench_stores.postgres.cems import TABLES
from workbench_stores.postgres.connection import FUSION_OPTIONS, Database, Reader
from workbench_stores.postgres.layout import EVERY, Layout, PostgresLayout
from workbench_stores.postgres.libraries import LIBRARIES
from workbench_stores.postgres.mapping import corrected, guessed, mapped, mapped_table, validate
from workbench_stores.postgres.source import TableSource

LAYOUTS: Sequence[PostgresLayout] = sorted((*LIBRARIES, langgraph.LAYOUT), key=lambda each: each.place)
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
        return TableSource(database, lambda reader: cems.layout(reader, address))
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
