"""The layout of a database: by its tables, or as a mapping states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cems_workbench.sources.address import Address
from cems_workbench.sources.postgres import catalog, mem0
from cems_workbench.sources.postgres.cems import TABLES, CemsSource
from cems_workbench.sources.postgres.connection import Database, Reader
from cems_workbench.sources.postgres.table import Layout, TableSource, guessed, mapped, with_state
from cems_workbench.sources.source import Source, SourceError


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    """Open a database: the table of a mapping or of `table=`, else CEMS's tables, else the only table with vectors.

    Raises InputError for a mapping or an option that does not fit, and SourceError.
    """
    database = Database(address, timeout)
    try:
        with database.transaction() as reader:
            catalog.engine(reader, database)
            source = _source(reader, database, mapping)
        if isinstance(source, TableSource):
            with database.transaction() as reader:
                source.layout(reader)
    except BaseException:
        database.close()
        raise
    return source


def _source(reader: Reader, database: Database, mapping: Mapping[str, Any] | None) -> Source:
    if mapping is not None:
        plain = database.address.plain
        return TableSource(database, lambda reader: with_state(mapped(reader, mapping, plain)))
    name = database.address.options.get("table")
    if name is None and all(catalog.table(reader, each) for each in TABLES):
        return CemsSource(database)
    name = name or _only(reader, database.address.plain)
    return TableSource(database, lambda reader: _layout(reader, name, database.address.plain))


def _only(reader: Reader, plain: str) -> str:
    """The only table with vectors; raises SourceError if there is none or more than one."""
    tables = catalog.tables_with_vectors(reader)
    tables = mem0.collections(tables) or tables
    if len(tables) == 1:
        return f"{tables[0].schema}.{tables[0].name}"
    if not tables:
        raise SourceError(
            f"{plain}: has neither CEMS's tables ({' and '.join(TABLES)}) nor another with a column of vectors"
        )
    raise SourceError(
        f"{plain}: has several tables with vectors ({', '.join(map(str, tables))}); ?table=NAME chooses one"
    )


def _layout(reader: Reader, name: str, plain: str) -> Layout:
    """mem0's if the table has its columns, else a guess, which its notes show."""
    table = catalog.table(reader, name)
    if table is None:
        tables = ", ".join(map(str, catalog.tables_with_vectors(reader)))
        raise SourceError(f"{plain}: there is no table {name!r}; tables with vectors: {tables or 'none'}")
    if mem0.is_mem0(table):
        return mem0.layout(reader, table)
    mapping = guessed(reader, table, plain)
    guess = ", ".join(f"{field}: {column}" for field, column in mapping.items())
    guessed_notes = (f"guessed by names and types; a mapping can correct it: {guess}",)
    return with_state(replace(mapped(reader, mapping, plain), notes=guessed_notes))
