"""Where memories are: `Layout`, expressions over the columns of a table, and the fields recognised in a sample of its rows.

In all expressions `m` is the row of a memory, and `c` one of its chunks, if they are in another table. A row becomes a payload: its columns
by name, those of type json or jsonb as the objects that they hold. `payload.Names` then finds the fields in it, as in a collection of a
vector database: a column's name is a path, and so is `column.key`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from psycopg import sql

from cems_workbench.errors import InputError, did_you_mean, some
from cems_workbench.formats.base.files import data_beside
from cems_workbench.formats.base.memory_fields import DELETED_AT, NAMES, STATE_NAMES
from cems_workbench.formats.base.payload import ANY_NAMES, NESTED, SAMPLE_ROWS, Names, Payload
from cems_workbench.records import TIMES, RowProblem, TakenChunk, place_of_chunk
from cems_workbench.sources.address import Address
from cems_workbench.sources.rows import Recognised, payload_of
from cems_workbench.sources.rows import recognise as recognise_in
from cems_workbench.sources.source import Distance, Vector
from workbench_stores.mapping import FIELD_NAMES
from workbench_stores.postgres.catalog import VECTOR_TYPES, Column, Table
from workbench_stores.postgres.connection import Reader

if TYPE_CHECKING:
    from workbench_stores.postgres.lexical import Fusion, Lexical

MAX_SAMPLE_BYTES = 100_000
"""Bytes of JSON in a column from which a row is not sampled."""
JSON_TYPES = ("json", "jsonb")
TEXT_TYPES = ("text", "varchar", "bpchar")
TIME_TYPES = ("timestamptz", "timestamp", "date")
NUMBER_TYPES = ("int2", "int4", "int8", "float4", "float8", "numeric")
PLAIN_TYPES = (*TEXT_TYPES, *NUMBER_TYPES, "uuid", "bool", "_text", "_varchar")
"""Types whose values psycopg returns as Python's; others are selected as text."""
UNNAMED_TYPES = ("vector", "halfvec", "sparsevec", "tsvector")
"""Types of columns that are no fields of a memory, so that they are not called unread."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """Rows of another table that are texts of the memories, each with its vector. A library's own are a subclass."""

    table: Table
    on: sql.Composable
    """Whether the chunk `c` is one of the memory `m`; both columns have an index."""
    name: sql.Composable
    """What tells the chunks of a memory apart and puts them in order: here a number."""
    text: sql.Composable
    place: sql.Composable
    """What `number` makes the chunk's number of, for a hit."""
    without_chunks: RowProblem
    """The problem, but for its id, of a memory that has no chunk."""
    WITHOUT_TEXT: ClassVar[str] = "has no text; it was left out"

    def number(self, place: Any) -> int | None:
        """The number of a hit's chunk; None if the hit is the memory."""
        return int(place)

    def label(self, name: Any) -> str:
        """What problems call a chunk."""
        return f"chunk {name}"

    def order(self, name: Any) -> Any:
        """Sorts the chunks of a memory."""
        return name

    def text_of(self, name: Any, text: str | None, payload: Payload) -> str | None:
        """The text of a chunk; None if it has none."""
        return text

    def content(self, text: str | None, texts: Mapping[Any, str], payload: Payload) -> str:
        """The content of a memory, whose own text is `text`, with these texts of its chunks."""
        return text if text and text.strip() else "\n".join(texts.values())

    def numbered(self, content: str, parts: Sequence[tuple[int, Any, str, Vector | None]]) -> Sequence[TakenChunk]:
        """The chunks from (place in the order, name, text, vector); none if the memory is its only text."""
        chunks, start = [], 0
        for _, name, text, vector in parts:
            place = place_of_chunk(content, text, start)
            chunks.append(TakenChunk(int(name), text, vector, place))
            start = place or 0
        return chunks


@dataclass(frozen=True, slots=True)
class Layout:
    """What makes up a memory in the rows of a table, and of one with its chunks. Expressions are over the columns of
    the table. `columns` are read of every row; `names` says where in them the fields are."""

    kind: str
    """`SourceInfo.kind`: the name of a `PostgresLayout`, "cems" or "table"."""
    table: Table
    id: sql.Composable
    id_type: str
    unique: bool
    text: sql.Composable
    vector: Column
    """Of the table, or of that of its chunks."""
    distance: Distance | None
    columns: Mapping[str, sql.Composable]
    """What is read of a row besides id, text and vector, by the column's name."""
    names: Names = ANY_NAMES
    condition: sql.Composable | None = None
    """The rows that belong to it, such as those of one collection; None: all."""
    hidden: sql.Composable | None = None
    """Whether its system returns the row in no search although it keeps it, as an expired one. It is read, and in no live list."""
    deleted: sql.Composable | None = None
    """Whether its system has deleted the row."""
    width: int | None = None
    """The numbers of a vector that its system has padded with zeros; None: vectors are stored as they are."""
    padded: sql.Composable | None = None
    """Whether a vector is zero after `width` numbers."""
    model: str | None = None
    """The embedding model, if the table names it."""
    known: frozenset[str] = frozenset()
    """Columns, and paths of keys, that are read otherwise or that no memory has a use for: they are not called unread."""
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    guess: str = ""
    """id, text and vector by column, if they are a guess."""
    arms: tuple[sql.Composable, ...] = ()
    """Conditions of rows that its system searches apart, each to the depth of the whole, before it joins their lists by distance."""
    relations: tuple[sql.Composed, ...] = ()
    """Queries of the relations between its memories: (source, target, kind, weight)."""
    lexical: Lexical | None = None
    """How its system ranks the rows by words; None: it cannot."""
    fusion: Fusion | None = None
    """How its library fuses the vector list and the lexical list."""
    client_sets: str = ""
    """What the library itself sets for a search by vector, which the database does not record."""
    chunks: Chunks | None = None
    more: Callable[[str], sql.Composable | None] = lambda path: None
    """An expression for a path that only a mapping can take."""
    own_search: bool = False
    """Whether its server ranks by a window function, which decides plan and ties, reads fields by fixed names and chooses the user."""
    scopes: Mapping[str, sql.Composable] = field(default_factory=dict)
    """Instead of `condition`: the rows of a query with a scope; without, what the field `scope` says counts."""
    counted: Callable[[Reader, sql.Composable], tuple[list[str], list[str]]] = lambda reader, where: ([], [])
    """Notes and what is missing, of the rows that meet a condition: what takes a look at all of them."""

    @property
    def rows(self) -> sql.Composed:
        """FROM of the memories."""
        return sql.SQL("{} m").format(self.table.sql)

    @property
    def searched(self) -> sql.Composed:
        """FROM of the rows with vectors."""
        if self.chunks is None:
            return self.rows
        return sql.SQL("{} JOIN {} c ON {}").format(self.rows, self.chunks.table.sql, self.chunks.on)

    @property
    def vector_column(self) -> sql.Identifier:
        """The vector as it is stored."""
        return sql.Identifier("m" if self.chunks is None else "c", self.vector.name)

    @property
    def json_columns(self) -> frozenset[str]:
        """The columns among `columns` that hold JSON."""
        types = self.table.columns
        return frozenset(name for name in self.columns if name in types and types[name].type in JSON_TYPES)

    @property
    def vector_read(self) -> sql.Composable:
        """The vector without padding."""
        column = self.vector_column
        return column if self.width is None else sql.SQL("subvector({}, 1, {})").format(column, sql.Literal(self.width))

    @property
    def digest(self) -> str:
        """It differs if the same row would become another memory."""
        said = [each.as_string() for each in (self.text, self.vector_read, *self.columns.values())]
        said += [json.dumps({name: list(paths) for name, paths in self.names.known.items()})]
        return hashlib.blake2b("|".join(said).encode(), digest_size=4).hexdigest()

    def payload(self, values: Sequence[Any], memory_id: str, problems: list[RowProblem]) -> dict[str, Any]:
        """The payload of a row with these values of `columns`; JSON that Python cannot read is a problem."""
        return payload_of([*self.columns], self.json_columns, values, memory_id, problems)

    def at(self, path: str) -> sql.Composable:
        """An expression for the text at a path: a column, or a key in one of its JSON columns."""
        if path in self.columns and path not in self.table.columns:
            return sql.SQL("({})::text").format(self.columns[path])
        return text_at(self.table, path)


def recognise(reader: Reader, layout: Layout, condition: sql.Composable) -> Recognised:
    """Recognise the fields in the first rows that meet the condition."""
    rows = []
    if layout.columns:
        short = [is_short(layout.columns[name]) for name in sorted(layout.json_columns)]
        query = sql.SQL("SELECT {} FROM {} WHERE {} LIMIT {}").format(
            sql.SQL(", ").join(layout.columns.values()),
            layout.rows,
            sql.SQL(" AND ").join([condition, *short]),
            sql.Literal(SAMPLE_ROWS),
        )
        rows = reader.rows(query)
    columns = layout.table.columns.items()
    others = [name for name, column in columns if name not in layout.columns and column.type not in UNNAMED_TYPES]
    payloads = [layout.payload(row, "", []) for row in rows]
    return recognise_in(payloads, layout.names, [*layout.columns], others, layout.known)


def is_short(json: sql.Composable) -> sql.Composed:
    """Whether JSON, as text, is short enough for a sample."""
    return sql.SQL("COALESCE(octet_length({}), 0) < {}").format(json, sql.Literal(MAX_SAMPLE_BYTES))


def column_names(table: Table, without: Sequence[str] = ()) -> list[str]:
    """The columns of a table that may be a field of a memory by name and type, and those that hold JSON."""
    times = {STATE_NAMES["superseded_at"], *(name for field in TIMES for name in NAMES[field])}

    def may_be_field(column: Column) -> bool:
        name, type = column.name, column.type
        by_name = (name in FIELD_NAMES and type in PLAIN_TYPES) or (name in times and type in TIME_TYPES)
        return type in JSON_TYPES or by_name

    return [name for name, column in table.columns.items() if name not in without and may_be_field(column)]


def outers_of(table: Table, columns: Sequence[str]) -> tuple[str, ...]:
    """The objects whose keys count as fields: each JSON column, then the metadata in it."""
    roots = [name for name in columns if table.columns[name].type in JSON_TYPES]
    return (*roots, *(f"{root}.{inner}" for root in roots for inner in NESTED))


def read_columns(table: Table, names: Sequence[str]) -> dict[str, sql.Composable]:
    """These columns, as text unless psycopg returns a value of Python; JSON too, because Python's parser may refuse it."""
    found: dict[str, sql.Composable] = {}
    for name in names:
        column, type = sql.Identifier("m", name), table.columns[name].type
        plain = column if type in PLAIN_TYPES else sql.SQL("{}::text").format(column)
        found[name] = python_time(column) if type in TIME_TYPES else plain
    return found


def python_time(column: sql.Composable) -> sql.Composed:
    """An expression for a time; NULL if Python has no such time, as for infinity."""
    return sql.SQL("CASE WHEN {0} BETWEEN '0001-01-02' AND '9999-12-30' THEN {0} END").format(column)


def text_at(table: Table, path: str) -> sql.Composable:
    """An expression for the text at a path. KeyError if no column is at its beginning."""
    if path in table.columns:
        return sql.SQL("({})::text").format(sql.Identifier("m", path))
    head, keys = split_path(table, path)
    column = sql.Identifier("m", head)
    nested = sql.SQL("{} #>> {}::text[]").format(column, sql.Literal(keys.split(".")))
    # A key may itself contain dots.
    whole = sql.SQL("{} ->> {}").format(column, sql.Literal(keys))
    return sql.SQL("({})").format(nested if "." not in keys else sql.SQL("COALESCE({}, {})").format(whole, nested))


def split_path(table: Table, path: str) -> tuple[str, str]:
    """(column, keys with dots) of a path into a JSON column. KeyError if there is no such column."""
    dot = path.find(".")
    while dot > 0:
        column = table.columns.get(path[:dot])
        if column is not None and column.type in JSON_TYPES and path[dot + 1 :]:
            return column.name, path[dot + 1 :]
        dot = path.find(".", dot + 1)
    raise KeyError(path)


def id_type(reader: Reader, table: Table, column: str) -> str:
    """The type of a column in SQL."""
    (name,) = reader.row(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %(table)s::oid AND attname = %(column)s",
        {"table": table.oid, "column": column},
    )
    return str(name)


def unique_columns(reader: Reader, table: Table) -> list[str]:
    """The columns of which a unique index guarantees that no two rows have the same value, the primary key first."""
    rows = reader.rows(
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE i.indrelid = %(table)s::oid AND i.indisunique AND i.indnkeyatts = 1 AND i.indpred IS NULL ORDER BY i.indisprimary DESC",
        {"table": table.oid},
    )
    return [row[0] for row in rows]


def table_layout(
    reader: Reader,
    kind: str,
    table: Table,
    id: str,
    text: str,
    vector: str,
    *,
    columns: Sequence[str] | None = None,
    given: Mapping[str, str] | None = None,
    closed: bool = False,
    known: Sequence[str] = (),
) -> Layout:
    """The layout of a table with these columns; `text` may be a path. `columns` default to those that may be fields by name."""
    chosen = column_names(table, (id, text, vector)) if columns is None else list(columns)
    names = Names(given or {}, outers_of(table, chosen), closed)
    deleted, since = table.columns.get(STATE_NAMES["deleted"]), table.columns.get(DELETED_AT)
    flag: sql.Composable | None = None
    notes: tuple[str, ...] = ()
    if deleted is not None and deleted.type == "bool":
        flag = sql.SQL("COALESCE({}, FALSE)").format(sql.Identifier("m", deleted.name))
    elif deleted is None and since is not None and since.type in TIME_TYPES:
        flag = sql.SQL("({} IS NOT NULL)").format(sql.Identifier("m", since.name))
        known, notes = (*known, DELETED_AT), (f"a row with {DELETED_AT} is a deleted memory",)
    return Layout(
        kind,
        table,
        sql.Identifier("m", id),
        id_type(reader, table, id),
        id in unique_columns(reader, table),
        sql.Identifier("m", text) if text in table.columns else text_at(table, text),
        table.columns[vector],
        None,
        read_columns(table, chosen),
        names,
        deleted=flag,
        known=frozenset((id, text, vector, *known)),
        notes=notes,
    )


EVERY = "*"
"""The collection or bank of an address that takes all of them."""
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class PostgresLayout:
    """Tables of one library or server, known by their columns. `layout` says where in such a table the memories are; it
    raises InputError for an address whose options do not fit, and SourceError."""

    name: str
    title: str
    layout: Callable[[Reader, Table, Address], Layout]
    columns: Mapping[str, Collection[str]]
    """Columns that a table with a column of vectors must have, with their types."""
    chosen: Callable[[Sequence[Table]], Sequence[Table]] = lambda tables: tables
    """Which of several such tables have memories."""
    collections: bool = False
    """Whether one table has several collections, which `?collection=NAME` chooses from."""
    options: Sequence[str] = ()
    """Options of an address that this layout has."""
    joined: bool = False
    """Whether a memory is in several tables, so that a mapping of one of them is of any table."""
    place: int = 50

    def found(self, tables: Sequence[Table]) -> Sequence[Table]:
        """Its tables with memories among tables that have a column of vectors."""
        wanted = self.columns.items()

        def fits(table: Table) -> bool:
            return all(name in table.columns and table.columns[name].type in types for name, types in wanted)

        return self.chosen(list(filter(fits, tables)))


def layouts(functions: Mapping[str, Sequence[Callable[..., Any]]]) -> tuple[PostgresLayout, ...]:
    """The libraries whose tables layouts.json has; of each the function that reads a table, and which of several tables
    are read. A column's type is one of a list, or "text", "json" or "vector" for all that are such."""
    rows = data_beside(__file__, "layouts.json")
    kinds = {"text": TEXT_TYPES, "json": JSON_TYPES, "vector": VECTOR_TYPES}
    found = []
    for name, (layout, *chosen) in functions.items():
        about: dict[str, Any] = dict(rows[name])
        named = about.pop("columns").items()
        columns = {column: kinds[kind] if isinstance(kind, str) else kind for column, kind in named}
        about |= {"chosen": chosen[0]} if chosen else {}
        found.append(PostgresLayout(name, layout=layout, columns=columns, **about))
    return tuple(found)


def listed(names: Iterable[str]) -> str:
    """Names in one line."""
    return some([*names], MOST_NAMED)


def wrong_choice(address: Address, option: str, counts: Mapping[str, int]) -> InputError:
    """The error of an address whose `option` names none of these (by their memories), or nothing where there are several."""
    named, wanted = listed(f"{name} ({count:,})" for name, count in counts.items()), address.options.get(option)
    if wanted is None:
        line = f"several {option}s: {named}; ?{option}=NAME chooses one, ?{option}={EVERY} takes all"
    else:
        line = f"there is no {option} {wanted!r}{did_you_mean(wanted, counts)}; there are {named or 'none'}"
    return InputError(f"{address.plain}: {line}")
