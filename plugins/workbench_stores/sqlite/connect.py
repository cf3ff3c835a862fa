"""The layout of a SQLite file: by its tables, or as a mapping or `?table=` says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cems_workbench.errors import InputError, nearest
from cems_workbench.formats.base.memory_fields import OPTIONAL_FIELDS
from cems_workbench.sources.address import Address
from cems_workbench.sources.connect import check_options
from cems_workbench.sources.source import Source
from workbench_stores.sqlite import table
from workbench_stores.sqlite.chroma_beside import JoinedSource
from workbench_stores.sqlite.file import DatabaseFile, Reader
from workbench_stores.sqlite.layout import Layout, SqliteLayout
from workbench_stores.sqlite.libraries import LIBRARIES
from workbench_stores.sqlite.schema import Schema, read_schema
from workbench_stores.sqlite.source import SqliteSource
from workbench_stores.sqlite.tools import TOOLS

LAYOUTS = (*TOOLS, *LIBRARIES)
OPTIONS = ("table", "user")
OTHER_KINDS = (("embeddings_queue", ("seq_id", "topic"), "chroma"), ("points", ("id", "point"), "qdrant"))
"""Tables of stores that another kind reads whole, by their folder."""


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    """Open a file: the table of a mapping or of `table=`, else a known layout, else the only table that looks like memories.

    Raises InputError for a file, an option or a mapping that does not fit, and SourceError.
    """
    file = DatabaseFile(address, timeout)
    try:
        with file.reading() as reader:
            schema = read_schema(reader)
            layout_of(reader, schema, address, mapping)
            known = known_layout(schema, address, mapping)
        beside = None if known is None else known.beside
        chroma = None if beside is None else beside.opened(address, timeout)

        def layout(reader: Reader) -> Layout:
            made = layout_of(reader, read_schema(reader), address, mapping)
            return replace(made, missing=(*made.missing, chroma)) if isinstance(chroma, str) else made

        source = SqliteSource(file, layout)
        return (
            source
            if beside is None or chroma is None or isinstance(chroma, str)
            else JoinedSource(source, chroma, beside.place)
        )
    except BaseException:
        file.close()
        raise


def known_layout(schema: Schema, address: Address, mapping: Mapping[str, Any] | None) -> SqliteLayout | None:
    """The layout that is known by the file's tables; None if a mapping or `table=` says another."""
    if "table" in address.options or "table" in (mapping or {}):
        return None
    return next((each for each in LAYOUTS if each.recognises(schema)), None)


def layout_of(reader: Reader, schema: Schema, address: Address, mapping: Mapping[str, Any] | None) -> Layout:
    """The layout. Raises InputError and SourceError."""
    known = known_layout(schema, address, mapping)
    check_options(address, (*OPTIONS, *(known.options if known is not None else ())))
    if known is not None:
        return corrected(known.read(reader, schema, address), mapping or {}, known.title)
    if mapping is not None and not table.corrects(mapping):
        return table.mapped(reader, schema, mapping)
    for name, columns, kind in OTHER_KINDS:
        if "table" not in address.options and schema.has(name, columns):
            raise InputError(f"{reader.plain}: is part of a folder of {kind}; connect to that folder, {kind}:/FOLDER")
    return table.guessed(reader, schema, address.options.get("table"), mapping)


def corrected(layout: Layout, mapping: Mapping[str, Any], title: str) -> Layout:
    """A known layout with fields from other columns, or from keys of those that hold JSON. Raises InputError for what is not there."""
    columns = dict(layout.columns)
    for field, path in mapping.items():
        if field not in OPTIONAL_FIELDS:
            like = nearest(str(field), OPTIONAL_FIELDS)
            raise InputError(
                f"mapping: {field} is no field of a memory of {title}{f'; did you mean {like}?' if like else '.'} It may be one of "
                f"{', '.join(OPTIONAL_FIELDS)}; with table, id and text a mapping describes any other table"
            )
        head = str(path).partition(".")[0]
        if head in layout.more and head not in columns:
            columns[head] = layout.more[head]
        if path not in columns and head not in layout.json:
            known = ", ".join(dict.fromkeys([*layout.columns, *layout.more]))
            raise InputError(f"mapping: {field}: {title} has no column {path!r}; it may be one of {known}")
    unread = tuple(name for name in layout.unread if name not in columns)
    names = replace(layout.names, given={**layout.names.given, **mapping})
    return replace(layout, columns=columns, names=names, unread=unread)
