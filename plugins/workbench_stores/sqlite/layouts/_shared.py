"""What layouts share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cems_workbench.errors import InputError
from cems_workbench.sources.address import Address
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Layout
from workbench_stores.sqlite.schema import Schema, quoted


def left_out(layout: Layout, *columns: str) -> Layout:
    """The layout without columns that are called as a field of memories and mean something else."""
    kept = {name: value for name, value in layout.columns.items() if name not in columns}
    return replace(layout, columns=kept, known=layout.known | set(columns))


def rows_note(reader: Reader, schema: Schema, table: str, what: str) -> list[str]:
    """A note with the number of rows of a table, if there are any: "3 beliefs are not taken"."""
    if not schema.has(table):
        return []
    (count,) = reader.row(f"SELECT count(*) FROM {quoted(table)}")
    return [f"{count:,} {what}"] if count else []


def chosen(address: Address, option: str, known: Sequence[str]) -> str | None:
    """The value of an option that names one of several; None if it is not given. Raises InputError for an unknown one."""
    value = address.options.get(option)
    if value is not None and value not in known:
        raise InputError(f"{address.plain}: there is no {option} {value!r}; there are {', '.join(known) or 'none'}")
    return value
