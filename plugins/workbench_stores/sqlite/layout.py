"""Where the memories of a SQLite file are: `Layout`, SQL expressions over its tables.

A row becomes a payload: its columns by name, those that hold JSON as the objects. `payload.Names` finds the fields in it: a column's name
is a path, and so is `column.key`.

Every string that ends up in a statement is SQL: quote names with `schema.quoted`, pass values in `values`. In `source` the rows of memories
are `FROM` something: name its tables with aliases, and use these in all expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import data_beside
from cems_workbench.formats.base.payload import ANY_NAMES, Names, Payload
from cems_workbench.records import EmbeddedText, RowProblem
from cems_workbench.sources.address import Address
from cems_workbench.sources.rows import payload_of
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.schema import Schema
from workbench_stores.sqlite.vec0 import Vec0Column, Vec0Table, VectorForm


@dataclass(frozen=True, slots=True)
class Vectors:
    """Where the vector of a row (a memory, or a chunk) is: in an expression `value`, or in a vec0 table. In a vec0
    table it is found by `rowid`, an expression, or by `vec0_id`, one for its primary key if that is a text."""

    form: VectorForm
    value: str | None = None
    vec0: tuple[Vec0Table, Vec0Column] | None = None
    rowid: str | None = None
    vec0_id: str | None = None
    condition: str = "1"
    """Of the rows whose vectors take part in the vector list, over `source`."""
    partition: Mapping[str, Any] = field(default_factory=dict)
    """Values of the vec0 table's partition columns: only those chunks are searched."""
    stated: bool = True
    """Whether something says the distance; without, it is cosine, which a note says."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Rows that are chunks of memories. `source` is what follows FROM; expressions are over it. `key` is unique and has
    an index, such as a rowid. `memory` is equal to the `key` of the memory's row. Chunks are in order of `number`, a
    whole number that is unique within a memory."""

    source: str
    key: str
    memory: str
    number: str
    text: str | None = None
    """None: the text is cut from the memory's content by `cut`."""
    start: str | None = None
    """Where it begins in the content, in characters."""
    cut: Callable[[str, Sequence[int]], Sequence[tuple[int, str]]] | None = None
    """(content, starts as the file has them) -> (start in characters, text) of each."""
    vectors: Vectors | None = None
    condition: str = "1"
    embedded: Callable[[Payload], Mapping[str, EmbeddedText]] | None = None
    """The payload of the memory -> other texts than its own that a chunk's vector may be made of."""


@dataclass(frozen=True, slots=True)
class Fts5:
    """An FTS5 table over memories or chunks. `rowid` is an expression over the memories' `source` (or the chunks', if
    `chunks`) that is equal to the table's rowid."""

    table: str
    rowid: str
    match: Callable[[str], str | None]
    """A query's text -> the FTS5 query; None if there is nothing to search."""
    weights: tuple[float, ...] = ()
    """Of bm25(), by column; empty: the table's own `rank`."""
    chunks: bool = False
    condition: str = "1"
    """Further condition, also over the table, whose alias is `fts`."""
    columns: tuple[str, ...] = ()
    """Columns that are searched apart: a row has the bm25 of the first that matches, as `a MATCH q OR b MATCH q` gives."""
    source: str | None = None
    """What follows FROM instead of the memories' `source`, with the same names: the only one of its parts that the table is over."""
    relaxed: Callable[[str], str | None] | None = None
    """The query where `match` finds nothing."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The memories of a file."""

    kind: str
    """`SourceInfo.kind`: the name of a `SqliteLayout`, or "sqlite"."""
    source: str
    """What follows FROM: a table with an alias, perhaps with joins."""
    key: str | None
    """An expression that is unique in `source`, never null and has an index, such as a rowid; None if there is none."""
    id: str
    text: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """Expressions of what else is read of a row, by the column's name."""
    json: frozenset[str] = frozenset()
    """The columns that hold JSON, as TEXT or BLOB."""
    names: Names = ANY_NAMES
    """Where in the columns the fields are."""
    unique: bool = True
    """Whether no two rows have the same id."""
    condition: str = "1"
    """The rows that belong to it, such as those of one collection."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of all expressions, written `:name`."""
    hidden: str | None = None
    """Whether its system keeps the row and returns it in no search, as an expired one. It is read, and in no live list."""
    deleted: str | None = None
    """Whether its system has deleted the row and keeps it."""
    vectors: Vectors | None = None
    """Of whole memories."""
    chunks: Chunks | None = None
    fts5: Fts5 | None = None
    relations: str | None = None
    """A statement that gives (id, id, type) of every relation."""
    model: str | None = None
    known: frozenset[str] = frozenset()
    """Columns and paths that are read otherwise or that no memory has a use for: they are not called unread."""
    unread: tuple[str, ...] = ()
    """Columns that are not among `columns`."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Expressions of those of them that a mapping of fields can take."""
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def found_vectors(self) -> Vectors | None:
        """The vectors of chunks, else of memories."""
        return self.chunks.vectors if self.chunks is not None else self.vectors

    def payload(self, values: Sequence[Any], memory_id: str, problems: list[RowProblem]) -> dict[str, Any]:
        """The payload of a row with these values of `columns`; JSON that cannot be read is a problem."""
        return payload_of(self.columns, self.json, values, memory_id, problems)


@dataclass(frozen=True, slots=True)
class SqliteLayout:
    """The files of one program, known by their tables. `read` describes the memories, with the address's options, of
    which `options` are its own besides `table` and `user`; it raises InputError for one that does not fit. `user=`
    restricts to rows whose `author`, or user by name, is that one, unless `Layout.values` has `user`."""

    name: str
    title: str
    tables: Mapping[str, Sequence[str]]
    """Tables that a file must have, with columns that they must have at least."""
    read: Callable[[Reader, Schema, Address], Layout]
    either: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Tables of which it must have one."""
    options: Sequence[str] = ()
    beside: str = ""
    """The collection that has its vectors, in the folder `chroma` beside the file or that of `?chroma=`; empty: the file has them."""
    place: Callable[[str], tuple[str, int] | None] = lambda row_id: None
    """(memory, number) of a row of that collection by its id; None if it is none of this program's."""

    def recognises(self, schema: Schema) -> bool:
        """Whether a file has its tables."""
        return all(schema.has(*each) for each in self.tables.items()) and (
            not self.either or any(schema.has(*each) for each in self.either.items())
        )


def layouts(readers: Mapping[str, Callable[[Reader, Schema, Address], Layout]]) -> tuple[SqliteLayout, ...]:
    """The files of these programs, whose tables layouts.json has."""
    rows = data_beside(__file__, "layouts.json")
    return tuple(SqliteLayout(name, read=read, **rows[name]) for name, read in readers.items())


def chosen(address: Address, option: str, known: Sequence[str]) -> str | None:
    """The value of an option that names one of several; None if it is not given. Raises InputError for an unknown one."""
    value = address.options.get(option)
    if value is not None and value not in known:
        raise InputError(f"{address.plain}: there is no {option} {value!r}; there are {', '.join(known) or 'none'}")
    return value
