"""The layout of a SQLite file: by its tables, or as a mapping or `?table=` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cems_workbench.sources.address import Address
from cems_workbench.sources.requests import check_options
from cems_workbench.sources.source import Source
from cems_workbench.sources.sqlite import table
from cems_workbench.sources.sqlite.file import DatabaseFile, Reader
from cems_workbench.sources.sqlite.layout import Layout, SqliteLayout
from cems_workbench.sources.sqlite.layouts import layouts
from cems_workbench.sources.sqlite.schema import Schema, read_schema
from cems_workbench.sources.sqlite.source import SqliteSource

OPTIONS = ("table", "user")


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    """Open a file: the table of a mapping or of `table=`, else a known layout, else the only table that looks like memories.

    Raises InputError for a file, an option or a mapping that does not fit, and SourceError.
    """
    file = DatabaseFile(address, timeout)
    try:
        with file.reading() as reader:
            layout_of(reader, address, mapping)
            known = known_layout(read_schema(reader), address, mapping)
        source = SqliteSource(file, lambda reader: layout_of(reader, address, mapping))
        return source if known is None or known.beside is None else known.beside.joined(source, address, timeout)
    except BaseException:
        file.close()
        raise


def known_layout(schema: Schema, address: Address, mapping: Mapping[str, Any] | None) -> SqliteLayout | None:
    """The layout that is known by the file's tables; None if a mapping or `table=` says another."""
    if mapping is not None or "table" in address.options:
        return None
    return next((each for each in layouts() if each.recognises(schema)), None)


def layout_of(reader: Reader, address: Address, mapping: Mapping[str, Any] | None) -> Layout:
    """The layout. Raises InputError and SourceError."""
    schema = read_schema(reader)
    known = known_layout(schema, address, mapping)
    check_options(address, (*OPTIONS, *(known.options if known is not None else ())))
    if known is not None:
        return known.read(reader, schema, address)
    if mapping is not None:
        return table.mapped(reader, schema, mapping)
    return table.guessed(reader, schema, address.options.get("table"))
