"""Layouts of PostgreSQL tables as memory libraries make them, recognised by their columns.

A layout is a module here, named as it, that declares `LAYOUT = PostgresLayout(...)`. LAYOUTS finds them; the first by `place` that finds a
table has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from cems_workbench import extensions
from cems_workbench.sources.address import Address
from workbench_stores.postgres.catalog import Table
from workbench_stores.postgres.connection import Reader
from workbench_stores.postgres.layout import Layout

EVERY = "*"
"""The collection of an address that takes all of them."""


@dataclass(frozen=True, slots=True)
class PostgresLayout:
    """Tables of one library.

    `found` picks its tables with memories among tables that have a column of vectors. `layout` says where in such a table the memories are;
    it raises InputError for an address whose options do not fit, and SourceError.
    """

    name: str
    title: str
    found: Callable[[Sequence[Table]], Sequence[Table]]
    layout: Callable[[Reader, Table, Address], Layout]
    collections: bool = False
    """Whether one table has several collections, which `?collection=NAME` chooses from."""
    options: tuple[str, ...] = ()
    """Options of an address that this layout has."""
    joined: bool = False
    """Whether a memory is in several tables, so that a mapping of one of them is of any table."""
    place: int = extensions.DEFAULT_PLACE


@cache
def layouts() -> Mapping[str, PostgresLayout]:
    """Every layout by name, in the order of their places."""
    found = [import_module(f"{__name__}.{name}").LAYOUT for _, name, _ in iter_modules(__path__)]
    return {layout.name: layout for layout in sorted(found, key=lambda each: (each.place, each.name))}


def recognised(tables: Iterable[Table]) -> list[tuple[PostgresLayout, Table]]:
    """(layout, table) of the tables that a layout finds, in the order of the tables."""
    tables = [*tables]
    found: dict[int, PostgresLayout] = {}
    for layout in layouts().values():
        for table in layout.found(tables):
            found.setdefault(table.oid, layout)
    return [(found[table.oid], table) for table in tables if table.oid in found]


def has_columns(table: Table, columns: Mapping[str, Collection[str]]) -> bool:
    """Whether a table has each of these columns with one of its types."""
    return all(name in table.columns and table.columns[name].type in types for name, types in columns.items())
