"""Memories in any table or view with an id, a text and a vector in each row.

A mapping in YAML names the columns:

    table: public.notes
    id: note_id
    text: body
    vector: embedding
    title: subject         # any field of a memory: a column
    distance: cosine       # or l2, ip; default: that of the index

Without a mapping it is guessed by names and types, and a note shows the guess. The marker of a row is its ctid and last transaction
(xmin); views have neither, so theirs is a hash of the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from cems_workbench.errors import InputError, nearest
from cems_workbench.formats.base.memory_fields import NAMES, OPTIONAL_FIELDS, SHARED_WORDS, STATE_NAMES, memory_of
from cems_workbench.records import DELETED_MARK, SUPERSEDES, TIMES, VALIDITY, Relation, TakenMemory
from cems_workbench.sources.postgres import catalog, plans
from cems_workbench.sources.postgres.catalog import Column, Table
from cems_workbench.sources.postgres.connection import Database, Reader
from cems_workbench.sources.postgres.snapshot import (
    Page,
    batches,
    block_ranges,
    python_time,
    vector_literal,
    vectors,
    wrong_dimension,
)
from cems_workbench.sources.source import (
    NO_TRIAL,
    Batch,
    Changed,
    Distance,
    EngineHit,
    EngineList,
    EngineQuery,
    RowProblem,
    SourceError,
    SourceInfo,
    Trial,
    too_long,
)

if TYPE_CHECKING:
    from psycopg import sql

    from cems_workbench.sources.postgres.connection import Row

PAGE_ROWS = 20_000
"""Rows of a view per request."""
REQUIRED = ("table", "id", "text", "vector")
TEXT_TYPES = ("text", "varchar", "bpchar")
TIME_TYPES = ("timestamptz", "timestamp", "date")
GUESSED = ("title", "category", "project", "author", "session", "created_at", "updated_at", *VALIDITY)
"""Fields whose columns can be guessed by name and type."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The expressions over columns of one table that make up a memory."""

    kind: str
    table: Table
    id: sql.Composable
    id_type: str
    unique: bool
    text: sql.Composable
    vector: Column
    distance: Distance | None
    fields: Mapping[str, sql.Composable]
    user: sql.Composable | None = None
    """Compared with the address's user."""
    notes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    """The columns or keys that fields come from, where that changes what they mean."""
    deleted: sql.Composable | None = None
    """Whether its system has deleted the row."""
    state: Mapping[str, sql.Composable] = field(default_factory=dict)
    """Of STATE_NAMES, those that the table has: is it active, what supersedes it, since when."""

    @property
    def read(self) -> Mapping[str, sql.Composable]:
        """Everything that is read of a row besides id, text and vector, by name."""
        return {**self.fields, **self.state}


class TableSource:
    """A table of memories with their vectors."""

    def __init__(self, database: Database, layout: Callable[[Reader], Layout]) -> None:
        self._database, self.layout = database, layout

    @property
    def address(self) -> str:
        """The address without any secret."""
        return self._database.address.plain

    def probe(self) -> SourceInfo:
        """Counts, dimension, distance and index. Raises SourceError."""
        from psycopg import sql

        with self._database.transaction() as reader:
            engine = catalog.engine(reader, self._database)
            layout = self._readable_layout(reader)
            where, values = self._condition(layout)
            count = sql.SQL("SELECT count(*), count({}) FROM {} WHERE {}")
            memories, with_vector = reader.row(count.format(_vector(layout), _from(layout), where), values)
            dimension = catalog.dimension(reader, layout.table, layout.vector)
            planned = self._plan(reader, layout, dimension)
            notes = [*layout.notes, *planned.notes(with_vector)]
            if layout.distance is None and planned.index is None:
                notes.append("no index tells the distance: cosine is assumed; set `distance:` in a mapping for another")
            return SourceInfo(
                kind=layout.kind,
                engine=engine,
                memories=memories,
                vectors=with_vector,
                dimension=dimension,
                distance=planned.distance,
                index=planned.index_line,
                settings=catalog.settings(reader, planned.index),
                notes=tuple(notes),
            )

    @contextmanager
    def snapshot(self) -> Iterator[TableSnapshot]:
        """The rows as of now, on a separate connection. Raises SourceError."""
        own = self._database.new_connection()
        try:
            with own.transaction() as reader:
                layout = self._readable_layout(reader)
                where, values = self._condition(layout)
                yield TableSnapshot(reader, layout, where, values)
        finally:
            own.close()

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        """The rows by distance. Raises SourceError, InputError for an unknown setting."""

        asked = query.depths.get("vector")
        with self._database.transaction() as reader:
            catalog.engine(reader, self._database)
            layout = self._readable_layout(reader)
            dimension = catalog.dimension(reader, layout.table, layout.vector)
            catalog.prepare(reader, query, trial, dimension, self.address)
            if not asked:
                return ()
            distance = layout.distance or self._plan(reader, layout, dimension).distance
            if trial.exact:
                catalog.scan_exactly(reader)
            where, values = self._condition(layout, query.scope)
            statement = _search(layout, distance, where)
            started = time.perf_counter()
            rows = reader.rows(statement, {"vector": vector_literal(query.vector), "asked": asked, **values})
            seconds = time.perf_counter() - started
        high = 1.0 if distance == "cosine" else 0.0
        hits = tuple(EngineHit(id, high - far) for id, far in rows if far is not None)
        return (EngineList("vector", asked, hits, seconds),)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _plan(self, reader: Reader, layout: Layout, dimension: int | None) -> plans.SearchPlan:
        """How PostgreSQL searches the rows that a query without a scope may find."""
        where, values = self._condition(layout)
        # Of the right length, because an index scan could check it.
        nought = vector_literal(np.zeros(dimension or 1, np.float32))
        values = {"vector": nought, "asked": plans.PLANNED_ROWS, **values}
        return plans.plan(reader, lambda distance: _search(layout, distance, where), values, layout.distance)

    def _readable_layout(self, reader: Reader) -> Layout:
        layout = self.layout(reader)
        if not all(column.readable for column in layout.table.columns.values()):
            table = layout.table
            raise SourceError(
                f"{self.address}: {reader.role} may not read {table}; to allow it: GRANT SELECT ON {table} TO {reader.role}"
            )
        return layout

    def _condition(self, layout: Layout, scope: str | None = None) -> tuple[sql.Composed, dict[str, Any]]:
        """The condition for the address's user and a scope; rows without a scope are personal."""
        from psycopg import sql

        conditions: list[sql.Composed] = []
        values: dict[str, Any] = {}
        if user := self._database.address.options.get("user"):
            if layout.user is None:
                raise InputError(
                    f"{self.address}: no column has the user of a row, so user= has no effect; map `author`"
                )
            conditions.append(sql.SQL("({})::text = %(user)s").format(layout.user))
            values["user"] = user
        if scope and "scope" in layout.fields:
            shared = sql.SQL("= ANY" if scope == "shared" else "<> ALL")
            conditions.append(sql.SQL("COALESCE(({})::text, '') {}(%(shared)s)").format(layout.fields["scope"], shared))
            values["shared"] = list(SHARED_WORDS)
        elif scope == "shared":
            conditions.append(sql.SQL("FALSE").format())
        return sql.SQL(" AND ").join(conditions or [sql.SQL("TRUE").format()]), values


class TableSnapshot:
    """The rows of a table in physical order, of a view by id."""

    def __init__(self, reader: Reader, layout: Layout, where: sql.Composed, values: dict[str, Any]) -> None:
        from psycopg import sql

        self._reader, self._layout, self._where, self._values = reader, layout, where, values
        self._dimension = catalog.dimension(reader, layout.table, layout.vector)
        # Part of every marker: another mapping makes every row count as changed.
        (self._prefix,) = reader.row(
            "SELECT to_hex(hashtext(%(said)s))",
            {"said": "|".join(each.as_string() for each in (layout.text, _vector(layout), *layout.read.values()))},
        )
        self._seen: set[str] = set()
        count = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(_from(layout), where)
        self._total: int = reader.row(count, values)[0]

    @property
    def total(self) -> int:
        """Number of rows."""
        return self._total

    def batches(self, changed: Changed) -> Iterator[Batch]:
        """Every row as seen, and changed ones with their vectors. Raises SourceError."""
        self._seen.clear()
        return batches(map(self._page, self._rows()), changed, self._read)

    def relations(self) -> Iterator[Sequence[Relation]]:
        """What the rows say supersedes them; a table of memories has no other relations."""
        newer = self._layout.state.get("superseded_by")
        return iter(()) if newer is None else self._superseding(newer)

    def _superseding(self, newer: sql.Composable) -> Iterator[Sequence[Relation]]:
        from psycopg import sql

        layout = self._layout
        query = sql.SQL(
            "SELECT ({newer})::text, {id}::text FROM {table} WHERE {where} AND {newer} IS NOT NULL ORDER BY 1, 2"
        )
        rows = self._reader.rows(
            query.format(newer=newer, id=layout.id, table=_from(layout), where=self._where), self._values
        )
        for start in range(0, len(rows), PAGE_ROWS):
            yield [Relation(new, old, SUPERSEDES) for new, old in rows[start : start + PAGE_ROWS] if new != old]

    def _rows(self) -> Iterator[list[Row]]:
        """Id, marker and size of every row, a page at a time."""
        from psycopg import sql

        layout = self._layout
        size = sql.SQL("octet_length(({})::text)").format(layout.text)
        head = sql.SQL("SELECT {id}::text, {marker}, {size} FROM {table} WHERE {where} AND {page}")
        if layout.table.has_blocks:
            query = head.format(
                id=layout.id,
                size=size,
                table=_from(layout),
                where=self._where,
                marker=_marker(layout, sql.SQL("xmin::text || ctid::text")),
                page=sql.SQL("ctid >= %(from)s::tid AND ctid < %(to)s::tid ORDER BY ctid"),
            )
            for place in block_ranges(self._reader, layout.table.oid):
                yield self._reader.rows(query, {**self._values, **place})
            return
        every = sql.SQL(", ").join([layout.text, _vector(layout), *layout.read.values()])
        query = head.format(
            id=layout.id,
            size=size,
            table=_from(layout),
            where=self._where,
            marker=_marker(layout, sql.SQL("to_hex(hashtextextended(ROW({})::text, 0))").format(every)),
            page=sql.SQL("(%(last)s::text IS NULL OR {id} > %(last)s::{type}) ORDER BY {id} LIMIT %(most)s").format(
                id=layout.id, type=sql.SQL(layout.id_type)
            ),
        )
        last = None
        while rows := self._reader.rows(query, {**self._values, "last": last, "most": PAGE_ROWS}):
            yield rows
            last = rows[-1][0]
            if last is None or len(rows) < PAGE_ROWS:
                return

    def _page(self, rows: Sequence[Row]) -> Page:
        """The rows with an id that no earlier row has."""
        good, problems = [], []
        for row in rows:
            if row[0] is None or not row[0].strip():
                problems.append(RowProblem("(none)", "id", "is empty; the row was left out"))
            elif row[0] in self._seen:
                problems.append(RowProblem(row[0], "id", "is the id of more than one row; the first was imported"))
            elif problem := too_long(row[0], row[2] or 0):
                problems.append(problem)
            else:
                good.append(row)
                if not self._layout.unique:
                    self._seen.add(row[0])
        width = 4 * (self._dimension or 0)
        return Page(
            [row[0] for row in good],
            [_prefixed(self._prefix, row[1]) for row in good],
            [(row[2] or 0) + width for row in good],
            problems,
        )

    def _read(self, ids: Sequence[str], markers: Sequence[str]) -> tuple[list[TakenMemory], list[RowProblem]]:
        from psycopg import sql

        layout = self._layout
        columns = [layout.id, layout.text, *layout.read.values()]
        named = sql.SQL(", ").join([_vector(layout), *(sql.SQL("({})").format(each) for each in columns[2:])])
        query = sql.SQL(
            "SELECT {id}::text, ({text})::text, {named} FROM {table} WHERE {id} = ANY(%(ids)s::{type}[]) AND {where} {order}"
        )
        found = self._reader.rows(
            query.format(
                id=layout.id,
                text=layout.text,
                named=named,
                table=_from(layout),
                where=self._where,
                type=sql.SQL(layout.id_type),
                order=sql.SQL("ORDER BY ctid" if layout.table.has_blocks else ""),
            ),
            {**self._values, "ids": list(ids)},
        )
        problems: list[RowProblem] = []
        rows: dict[str, tuple[Row, Any]] = {}
        for row, vector in zip(found, vectors([row[2] for row in found], layout.vector.type), strict=True):
            rows.setdefault(row[0], (row, vector))
        taken = []
        for id, marker in zip(ids, markers, strict=True):
            row, vector = rows[id]
            if row[1] is None or not row[1].strip():
                problems.append(RowProblem(id, "text", "is empty; the row was left out"))
                continue
            if vector is None:
                problems.append(RowProblem(id, layout.vector.name, "has no vector"))
            elif len(vector) != self._dimension:
                problems.append(RowProblem(id, layout.vector.name, wrong_dimension(vector, self._dimension)))
                vector = None
            memory, unused = memory_of(id, row[1], dict(zip(layout.read, row[3:], strict=True)), layout.names)
            problems += unused
            taken.append(TakenMemory(memory, marker, vector=vector))
        return taken, problems


def _marker(layout: Layout, plain: sql.Composable) -> sql.Composable:
    """The marker of a row; it begins with DELETED_MARK for a deleted one."""
    from psycopg import sql

    if layout.deleted is None:
        return plain
    marked = sql.SQL("CASE WHEN {} THEN {} ELSE '' END || {}")
    return marked.format(layout.deleted, sql.Literal(DELETED_MARK), plain)


def _prefixed(prefix: str, marker: str) -> str:
    deleted = marker.startswith(DELETED_MARK)
    return f"{DELETED_MARK if deleted else ''}{prefix}.{marker.removeprefix(DELETED_MARK)}"


def with_state(layout: Layout) -> Layout:
    """The layout with the table's columns that say whether a row is deleted, active or superseded; a note says which were found."""
    from psycopg import sql

    columns = layout.table.columns
    found = {name: columns[column] for name, column in STATE_NAMES.items() if column in columns}
    deleted = found.pop("deleted", None)
    found.pop("original_id", None)
    if deleted is not None and deleted.type != "bool":
        deleted = None
    if deleted is None and not found:
        return layout
    named = ", ".join(column.name for column in (*([deleted] if deleted else []), *found.values()))
    return replace(
        layout,
        deleted=None if deleted is None else sql.SQL("COALESCE({}, FALSE)").format(sql.Identifier(deleted.name)),
        state={name: _expression(column) for name, column in found.items()},
        notes=(*layout.notes, f"the state of a memory is read from {named}"),
    )


def mapped(reader: Reader, mapping: Mapping[str, Any], plain: str) -> Layout:
    """The layout of a mapping. Raises InputError if it does not fit the table."""
    from psycopg import sql

    known = (*REQUIRED, "distance", *OPTIONAL_FIELDS)
    for name, value in mapping.items():
        if name not in known:
            like = nearest(str(name), known)
            hint = f" (did you mean {like}?)" if like else ""
            raise InputError(f"mapping: unknown field {str(name)!r}{hint}; known are {', '.join(known)}")
        if not isinstance(value, str) or not value:
            raise InputError(f"mapping: {name}: must be a name, found {value!r}")
    if missing := [name for name in REQUIRED if name not in mapping]:
        raise InputError(f"mapping: {', '.join(missing)} missing: table, id, text and vector are required")
    if mapping.get("distance") not in (None, *get_args(Distance)):
        raise InputError(
            f"mapping: distance: must be one of {', '.join(get_args(Distance))}, found {mapping['distance']!r}"
        )
    table = catalog.table(reader, mapping["table"])
    if table is None:
        tables = [str(each) for each in catalog.tables_with_vectors(reader)]
        raise InputError(
            f"mapping: table: {plain} has no {mapping['table']!r}; tables with vectors: {', '.join(tables) or 'none'}"
        )
    for name, column in mapping.items():
        if name not in ("table", "distance") and column not in table.columns:
            like = nearest(column, table.columns)
            hint = f" (did you mean {like}?)" if like else ""
            raise InputError(
                f"mapping: {name}: {table} has no column {column!r}{hint}; it has {', '.join(table.columns)}"
            )
    vector = table.columns[mapping["vector"]]
    if vector.type not in catalog.VECTOR_TYPES:
        raise InputError(f"mapping: vector: {vector.name} is of type {vector.type}, not vector or halfvec")
    given = {field: mapping[field] for field in OPTIONAL_FIELDS if field in mapping}
    return Layout(
        "table",
        table,
        sql.Identifier(mapping["id"]),
        id_type(reader, table, mapping["id"]),
        _unique(reader, table, mapping["id"]),
        sql.Identifier(mapping["text"]),
        vector,
        mapping.get("distance"),
        {field: _expression(table.columns[name]) for field, name in given.items()},
        user=sql.Identifier(given["author"]) if "author" in given else None,
        names={name: given[name] for name in ("valid_until",) if name in given},
    )


def guessed(reader: Reader, table: Table, plain: str) -> dict[str, str]:
    """A mapping guessed by names and types. Raises InputError if that is ambiguous."""
    rows = reader.rows(
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE i.indrelid = %(table)s::oid AND i.indisunique AND i.indnkeyatts = 1 AND i.indpred IS NULL ORDER BY i.indisprimary DESC",
        {"table": table.oid},
    )
    ids = [*(row[0] for row in rows), *(name for name in ("id", "uuid", "key") if name in table.columns)]
    texts = [
        column.name for column in table.columns.values() if column.type in TEXT_TYPES and column.name not in ids[:1]
    ]
    # Last: `data` is the text in mem0, but rarely in other tables.
    likely = sorted(NAMES["content"], key=lambda name: name == "data")
    text = next((name for name in likely if name in texts), texts[0] if len(texts) == 1 else None)
    if len(table.vectors) != 1 or not ids or text is None:
        unknown = "id" if not ids else "text" if text is None else "vector"
        raise InputError(
            f"{plain}: cannot tell which column of {table} is the {unknown}; use a mapping (table, id, text, vector); "
            f"it has {', '.join(table.columns)}"
        )
    found = {"table": f"{table.schema}.{table.name}", "id": ids[0], "text": text, "vector": table.vectors[0].name}
    for wanted in GUESSED:
        allowed = TIME_TYPES if wanted in TIMES else (*TEXT_TYPES, "uuid", "int4", "int8")
        names = (name for name in NAMES[wanted] if name in table.columns)
        name = next((name for name in names if table.columns[name].type in allowed), None)
        if name and name not in found.values():
            found[wanted] = name
    return found


def id_type(reader: Reader, table: Table, column: str) -> str:
    """The type of a column in SQL."""
    (name,) = reader.row(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %(table)s::oid AND attname = %(column)s",
        {"table": table.oid, "column": column},
    )
    return str(name)


def _unique(reader: Reader, table: Table, column: str) -> bool:
    rows = reader.rows(
        "SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE i.indrelid = %(table)s::oid AND a.attname = %(column)s AND i.indisunique AND i.indnkeyatts = 1 AND i.indpred IS NULL",
        {"table": table.oid, "column": column},
    )
    return bool(rows)


def _search(layout: Layout, distance: Distance, where: sql.Composable) -> sql.Composed:
    """The statement of a search, with the parameters `vector` and `asked`; rows that are deleted are left out."""
    from psycopg import sql

    if layout.deleted is not None:
        where = sql.SQL("{} AND NOT {}").format(where, layout.deleted)
    return sql.SQL(
        "SELECT {id}::text, {vector} {operator} %(vector)s::{type} AS distance FROM {table} WHERE {where} "
        "ORDER BY distance LIMIT %(asked)s"
    ).format(
        id=layout.id,
        vector=_vector(layout),
        operator=sql.SQL(catalog.OPERATORS[distance]),
        table=_from(layout),
        type=sql.SQL("halfvec" if layout.vector.type == "halfvec" else "vector"),
        where=where,
    )


def _from(layout: Layout) -> sql.Identifier:
    from psycopg import sql

    return sql.Identifier(layout.table.schema, layout.table.name)


def _vector(layout: Layout) -> sql.Identifier:
    from psycopg import sql

    return sql.Identifier(layout.vector.name)


def _expression(column: Column) -> sql.Composable:
    from psycopg import sql

    name = sql.Identifier(column.name)
    if column.type in TIME_TYPES:
        return python_time(name)
    # psycopg returns other types as bytes: select them as text.
    plain = (
        *TEXT_TYPES,
        "uuid",
        "int2",
        "int4",
        "int8",
        "float4",
        "float8",
        "numeric",
        "bool",
        "_text",
        "_varchar",
        "json",
        "jsonb",
    )
    return name if column.type in plain else sql.SQL("{}::text").format(name)
