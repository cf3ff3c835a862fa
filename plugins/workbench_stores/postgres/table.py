"""Memories in a table or view with an id, a text and a vector in each row, read as a `Layout` says.

The layout is that of a library (`layouts`), of a mapping, or a guess by names and types (`mapping`), which a note shows. The marker of a
row is its ctid and last transaction (xmin); views have neither, so theirs is a hash of the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.memory_fields import SHARED_WORDS, memory_of
from cems_workbench.formats.base.payload import found_values
from cems_workbench.records import DELETED_MARK, SUPERSEDES, Relation, RowProblem, TakenMemory
from cems_workbench.sources.embedded_text import embedded_texts
from cems_workbench.sources.recognised import Recognised
from cems_workbench.sources.source import (
    BATCH_BYTES,
    NO_TRIAL,
    Batch,
    Changed,
    Distance,
    EngineHit,
    EngineList,
    EngineQuery,
    ListName,
    SourceError,
    SourceInfo,
    Trial,
    Vector,
    too_long,
)
from workbench_stores.postgres import catalog, plans
from workbench_stores.postgres.connection import FUSION_OPTIONS, Database, Reader
from workbench_stores.postgres.layout import Layout, recognise, relation
from workbench_stores.postgres.lexical import Fusion, with_settings
from workbench_stores.postgres.snapshot import (
    Page,
    batches,
    block_ranges,
    vector_literal,
    vectors,
    wrong_dimension,
)

if TYPE_CHECKING:
    from workbench_stores.postgres.connection import Row

PAGE_ROWS = 20_000
"""Rows of a view per request."""
WITHIN_PLACE = "ctid >= %(from)s::tid AND ctid < %(to)s::tid"
"""The condition of a page of `block_ranges`."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a layout that belong to the source: those of the address's user, if it names one."""

    layout: Layout
    recognised: Recognised
    where: sql.Composable
    """The condition of these rows, deleted and expired ones among them."""
    values: Mapping[str, Any]

    @property
    def deleted(self) -> sql.Composable | None:
        """Whether the system has deleted the row; None if no row says so."""
        path = self.recognised.states.get("deleted")
        if self.layout.deleted is not None or path is None:
            return self.layout.deleted
        return sql.SQL("COALESCE(lower({}) IN ('true', '1', 't'), FALSE)").format(self.layout.at(path))

    def searched(self, scope: str | None) -> tuple[sql.Composable, dict[str, Any]]:
        """The condition, and its values, of rows that the system's search returns; rows without a scope are personal."""
        conditions, values = [self.where], dict(self.values)
        conditions += [
            sql.SQL("NOT {}").format(each) for each in (self.deleted, self.layout.hidden) if each is not None
        ]
        path = self.recognised.fields.get("scope")
        if scope and path:
            shared = sql.SQL("= ANY" if scope == "shared" else "<> ALL")
            conditions.append(sql.SQL("COALESCE({}, '') {}(%(shared)s)").format(self.layout.at(path), shared))
            values["shared"] = list(SHARED_WORDS)
        elif scope == "shared":
            conditions.append(sql.SQL("FALSE"))
        return sql.SQL(" AND ").join(conditions), values


class TableSource:
    """A table of memories with their vectors."""

    def __init__(self, database: Database, layout: Callable[[Reader], Layout]) -> None:
        self._database, self.layout = database, layout
        self._recognised: Recognised | None = None

    @property
    def address(self) -> str:
        """The address without any secret."""
        return self._database.address.plain

    def probe(self) -> SourceInfo:
        """Counts, dimension, distance and index. Raises SourceError."""
        with self._database.transaction() as reader:
            engine = catalog.engine(reader, self._database)
            rows = self._rows(reader)
            layout = rows.layout
            count = sql.SQL(
                "SELECT count(*), count({vector}) FILTER (WHERE NOT {hidden}), count(*) FILTER (WHERE {hidden}) "
                "FROM {table} WHERE {where} AND NOT {deleted}"
            )
            never = sql.SQL("FALSE")
            memories, with_vector, hidden = reader.row(
                count.format(
                    vector=_vector(layout),
                    hidden=layout.hidden or never,
                    table=relation(layout),
                    where=rows.where,
                    deleted=rows.deleted or never,
                ),
                rows.values,
            )
            dimension = _dimension(reader, layout)
            planned = self._plan(reader, rows, dimension)
            fusion = self._fusion(layout, {})
            notes = [*_notes(rows), *planned.notes(with_vector)]
            notes += _list_notes(layout, self._database.address.options, planned.index)
            if hidden:
                notes.append(f"{hidden:,} of the memories {'has' if hidden == 1 else 'have'} expired: in no live list")
            if layout.distance is None and planned.index is None:
                notes.append(
                    "no index tells the distance: cosine is assumed; ?distance=l2 or ?distance=ip says another"
                )
            return SourceInfo(
                kind=layout.kind,
                engine=engine,
                memories=memories,
                vectors=with_vector,
                dimension=dimension,
                distance=planned.distance,
                index=planned.index_line,
                model=layout.model,
                lists=_lists(layout),
                settings=(*catalog.settings(reader, planned.index), *(fusion.settings() if fusion else ())),
                missing=layout.missing,
                notes=tuple(notes),
            )

    @contextmanager
    def snapshot(self) -> Iterator[TableSnapshot]:
        """The rows as of now, on a separate connection. Raises SourceError."""
        own = self._database.new_connection()
        try:
            with own.transaction() as reader:
                yield TableSnapshot(reader, self._rows(reader))
        finally:
            own.close()

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        """The rows by distance, by words, and as the library fuses both, without deleted and expired ones.

        Raises SourceError, InputError for an unknown setting.
        """
        asked = query.depths
        with self._database.transaction() as reader:
            catalog.engine(reader, self._database)
            rows = self._rows(reader, self._recognised)
            layout = rows.layout
            dimension = _dimension(reader, layout)
            fusion = self._fusion(layout, trial.settings)
            catalog.prepare(reader, query, trial, dimension, self.address, FUSION_OPTIONS if fusion else ())
            names = [name for name in _lists(layout) if asked.get(name)]
            if not names:
                return ()
            distance = layout.distance or self._plan(reader, rows, dimension).distance
            search = _Search(reader, rows, query, distance)
            by_words = {name: search.by_words(asked[name]) for name in names if name in ("ts_rank", "ts_rank_cd")}
            near_rows, words_rows = fusion.rows(asked.get("source_hybrid", 0)) if fusion else (0, 0)
            fused_words = search.by_words(words_rows) if "source_hybrid" in names else ([], 0.0)
            if trial.exact:  # After the lexical lists, which may use indexes.
                catalog.scan_exactly(reader)
            lists = []
            for name in names:
                if name == "source_hybrid" and fusion:
                    near, seconds = search.by_distance(near_rows)
                    # The distance to a zero vector is no number (NaN).
                    near = [(id, far) for id, far in near if far == far]
                    hits = fusion.fused(near, fused_words[0], distance, asked[name])
                    lists.append(EngineList(name, asked[name], tuple(hits), seconds + fused_words[1]))
                elif name in by_words:
                    found, seconds = by_words[name]
                    lists.append(EngineList(name, asked[name], tuple(EngineHit(*hit) for hit in found), seconds))
                else:
                    near, seconds = search.by_distance(asked[name])
                    high = 1.0 if distance == "cosine" else 0.0
                    lists.append(
                        EngineList(name, asked[name], tuple(EngineHit(id, high - far) for id, far in near), seconds)
                    )
        return tuple(lists)

    def _fusion(self, layout: Layout, settings: Mapping[str, str]) -> Fusion | None:
        """The library's fusion, with what the address and a trial say of it. Raises InputError."""
        options = self._database.address.options
        given = {name: value for name, value in {**options, **settings}.items() if name in FUSION_OPTIONS}
        if layout.fusion is None or layout.fusion.kind == "appended":
            if given:
                raise InputError(
                    f"{self.address}: no list of {layout.table} is fused so, and {next(iter(given))} has no effect"
                )
            return layout.fusion
        try:
            return with_settings(layout.fusion, given)
        except ValueError as error:
            raise InputError(f"{self.address}: {error}") from None

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _plan(self, reader: Reader, rows: Rows, dimension: int | None) -> plans.SearchPlan:
        """How PostgreSQL searches the rows that a query without a scope may find."""
        where, values = rows.searched(None)
        # Of the right length, because an index scan could check it.
        nought = _literal(np.zeros(dimension or 1, np.float32), rows.layout)
        values = {"vector": nought, "asked": plans.PLANNED_ROWS, **values}
        return plans.plan(reader, lambda distance: _search(rows.layout, distance, where), values, rows.layout.distance)

    def _rows(self, reader: Reader, recognised: Recognised | None = None) -> Rows:
        """The rows of the source; fields are recognised again unless they are given."""
        layout = self.layout(reader)
        if not all(column.readable for column in layout.table.columns.values()):
            table = layout.table
            raise SourceError(
                f"{self.address}: {reader.role} may not read {table}; to allow it: GRANT SELECT ON {table} TO {reader.role}"
            )
        condition = sql.SQL("TRUE") if layout.condition is None else layout.condition
        self._recognised = recognised or recognise(reader, layout, condition)
        user = self._database.address.options.get("user")
        if not user:
            return Rows(layout, self._recognised, condition, {})
        path = self._recognised.user
        if path is None:
            raise InputError(
                f"{self.address}: no column and no key has the user of a row, so user= has no effect; map `author`"
            )
        of_user = sql.SQL("{} AND {} = %(user)s").format(condition, layout.at(path))
        return Rows(layout, self._recognised, of_user, {"user": user})


@dataclass(frozen=True, slots=True)
class _Search:
    """The statements of one query."""

    reader: Reader
    rows: Rows
    query: EngineQuery
    distance: Distance

    def by_distance(self, asked: int) -> tuple[list[tuple[str, float]], float]:
        """(id, distance) of the nearest rows, and the seconds that took."""
        layout = self.rows.layout
        where, values = self.rows.searched(self.query.scope)
        values |= {"vector": _literal(self.query.vector, layout), "asked": asked}
        started = time.perf_counter()
        found = self.reader.rows(_search(layout, self.distance, where), values)
        # LlamaIndex's node_id may be NULL.
        return [(id, far) for id, far in found if far is not None and id is not None], time.perf_counter() - started

    def by_words(self, asked: int) -> tuple[list[tuple[str, float]], float]:
        """(id, rank) of the best rows by the layout's lexical list, and the seconds that took."""
        layout = self.rows.layout
        if layout.lexical is None:
            return [], 0.0
        where, values = self.rows.searched(self.query.scope)
        if layout.arms:
            where = sql.SQL("{} AND ({})").format(where, sql.SQL(" OR ").join(layout.arms))
        values |= {"text": layout.lexical.prepared(self.query.text, self.reader, layout.table), "asked": asked}
        started = time.perf_counter()
        found = self.reader.rows(layout.lexical.statement(layout.id, relation(layout), where), values)
        return [(id, rank) for id, rank in found if id is not None], time.perf_counter() - started


class TableSnapshot:
    """The rows of a table in physical order, of a view by id."""

    def __init__(self, reader: Reader, rows: Rows) -> None:
        self._reader, self._rows_of, self._layout = reader, rows, rows.layout
        self._where, self._values = rows.where, rows.values
        self._dimension = _dimension(reader, rows.layout)
        # Part of every marker: another mapping makes every row count as changed.
        self._prefix = rows.layout.digest
        self._seen: set[str] = set()
        self._place: Mapping[str, str] = {}
        """The blocks of the page that is being read."""
        count = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(relation(rows.layout), rows.where)
        self._total: int = reader.row(count, rows.values)[0]

    @property
    def total(self) -> int:
        """Number of rows."""
        return self._total

    def batches(self, changed: Changed) -> Iterator[Batch]:
        """Every row as seen, and changed ones with their vectors. Raises SourceError."""
        self._seen.clear()
        return batches(map(self._page, self._rows()), changed, self._read)

    def relations(self) -> Iterator[Sequence[Relation]]:
        """What the rows say supersedes them, and the relations of the layout."""
        newer = self._rows_of.recognised.states.get("superseded_by")
        if newer is not None:
            yield from self._superseding(self._layout.at(newer))
        for query in self._layout.relations:
            for rows in self._reader.pages(query, None, PAGE_ROWS):
                yield [
                    Relation(source, target, kind, 1.0 if weight is None else min(max(weight, 0.0), 1.0))
                    for source, target, kind, weight in rows
                ]

    def _superseding(self, newer: sql.Composable) -> Iterator[Sequence[Relation]]:
        layout = self._layout
        query = sql.SQL(
            "SELECT ({newer})::text, {id}::text FROM {table} WHERE {where} AND {newer} IS NOT NULL ORDER BY 1, 2"
        )
        rows = self._reader.rows(
            query.format(newer=newer, id=layout.id, table=relation(layout), where=self._where), self._values
        )
        for start in range(0, len(rows), PAGE_ROWS):
            yield [Relation(new, old, SUPERSEDES) for new, old in rows[start : start + PAGE_ROWS] if new != old]

    def _rows(self) -> Iterator[list[Row]]:
        """Id, marker and sizes of every row, a page at a time."""
        layout = self._layout
        length = sql.SQL("COALESCE(octet_length(({})::text), 0)")
        others: list[sql.Composable] = [length.format(layout.columns[name]) for name in layout.json_columns]
        sizes = sql.SQL("{}, {}").format(length.format(layout.text), sql.SQL(" + ").join([sql.SQL("0"), *others]))
        head = sql.SQL("SELECT {id}::text, {marker}, {sizes} FROM {table} WHERE {where} AND {page}")
        if layout.table.has_blocks:
            query = head.format(
                id=layout.id,
                sizes=sizes,
                table=relation(layout),
                where=self._where,
                marker=self._marker(sql.SQL("xmin::text || ctid::text")),
                page=sql.SQL("{} ORDER BY ctid").format(sql.SQL(WITHIN_PLACE)),
            )
            for place in block_ranges(self._reader, layout.table.oid):
                self._place = place
                yield self._reader.rows(query, {**self._values, **place})
            return
        every = sql.SQL(", ").join([layout.text, _vector(layout), *layout.columns.values()])
        query = head.format(
            id=layout.id,
            sizes=sizes,
            table=relation(layout),
            where=self._where,
            marker=self._marker(sql.SQL("to_hex(hashtextextended(ROW({})::text, 0))").format(every)),
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

    def _marker(self, plain: sql.Composable) -> sql.Composable:
        """The marker of a row; it begins with DELETED_MARK for a deleted one."""
        deleted = self._rows_of.deleted
        if deleted is None:
            return plain
        marked = sql.SQL("CASE WHEN {} THEN {} ELSE '' END || {}")
        return marked.format(deleted, sql.Literal(DELETED_MARK), plain)

    def _page(self, rows: Sequence[Row]) -> Page:
        """The rows with an id that no earlier row has."""
        good, problems = [], []
        for row in rows:
            if row[0] is None or not row[0].strip():
                problems.append(RowProblem("(none)", "id", "is empty; the row was left out"))
            elif row[0] in self._seen:
                reason = "is the id of more than one row; the first was imported"
                problems.append(RowProblem(row[0], "id", reason, duplicate=True))
            elif problem := too_long(row[0], row[2]):
                problems.append(problem)
            elif row[3] > BATCH_BYTES:
                reason = f"{row[3]:,} bytes exceed the limit of {BATCH_BYTES:,}; the row was left out"
                problems.append(RowProblem(row[0], ", ".join(sorted(self._layout.json_columns)), reason))
            else:
                good.append(row)
                if not self._layout.unique:
                    self._seen.add(row[0])
        width = 4 * (self._dimension or 0)
        return Page(
            [row[0] for row in good],
            [_prefixed(self._prefix, row[1]) for row in good],
            [row[2] + row[3] + width for row in good],
            problems,
        )

    def _read(self, ids: Sequence[str], markers: Sequence[str]) -> tuple[list[TakenMemory], list[RowProblem]]:
        layout = self._layout
        query = sql.SQL(
            "SELECT {id}::text, ({text})::text, {vector}, {padded}{columns} FROM {table} "
            "WHERE {id} = ANY(%(ids)s::{type}[]) AND {where} {order}"
        )
        in_place = sql.SQL("AND {} ORDER BY ctid").format(sql.SQL(WITHIN_PLACE))
        found = self._reader.rows(
            query.format(
                id=layout.id,
                text=layout.text,
                vector=layout.vector_read,
                padded=sql.SQL("TRUE") if layout.padded is None else layout.padded,
                columns=sql.SQL("").join(sql.SQL(", {}").format(each) for each in layout.columns.values()),
                table=relation(layout),
                where=self._where,
                type=sql.SQL(layout.id_type),
                order=in_place if layout.table.has_blocks else sql.SQL(""),
            ),
            {**self._values, **self._place, "ids": list(ids)},
        )
        problems: list[RowProblem] = []
        rows: dict[str, tuple[Row, Vector | None]] = {}
        for row, vector in zip(found, vectors([row[2] for row in found], layout.vector.type), strict=True):
            rows.setdefault(row[0], (row, vector))
        taken = []
        for id, marker in zip(ids, markers, strict=True):
            row, vector = rows[id]
            if row[1] is None or not row[1].strip():
                problems.append(RowProblem(id, "text", "is empty; the row was left out"))
                continue
            vector, problem = self._usable(id, vector, row[3])
            problems += [problem] if problem else []
            payload = layout.payload(row[4:], id, problems)
            paths, values = found_values(payload, layout.names)
            called = {field: path for field, path in paths.items() if "." in path or field == "valid_until"}
            try:
                memory, unused = memory_of(id, row[1], values, called)
            except FieldError as error:
                problems.append(RowProblem(id, error.field, f"{error.reason}; the row was left out"))
                continue
            problems += unused
            embedded = embedded_texts(payload, row[1])
            taken.append(TakenMemory(memory, marker, vector=vector, embedded=embedded))
        return taken, problems

    def _usable(self, id: str, vector: Vector | None, padded: bool | None) -> tuple[Vector | None, RowProblem | None]:
        """The vector if it can be searched, else None and why."""
        name = self._layout.vector.name
        if vector is None:
            return None, RowProblem(id, name, "has no vector")
        if len(vector) != self._dimension:
            return None, RowProblem(id, name, wrong_dimension(vector, self._dimension))
        if not padded:
            return None, RowProblem(
                id,
                name,
                f"its vector is not of {self._dimension} numbers and then zeros, as the others there; it was left out",
            )
        return vector, None


def _prefixed(prefix: str, marker: str) -> str:
    deleted = marker.startswith(DELETED_MARK)
    return f"{DELETED_MARK if deleted else ''}{prefix}.{marker.removeprefix(DELETED_MARK)}"


def _notes(rows: Rows) -> list[str]:
    """What was recognised, and what was not read."""
    layout, recognised = rows.layout, rows.recognised
    notes = [*layout.notes]
    fields = ", ".join(f"{field}: {path}" for field, path in recognised.fields.items())
    if layout.guess:
        notes.append(
            f"guessed by names and types; a mapping can correct it: {', '.join(filter(None, (layout.guess, fields)))}"
        )
    elif not layout.names.closed and recognised.fields_note:
        notes.append(recognised.fields_note)
    states = [path for name, path in recognised.states.items() if name != "original_id"]
    if states:
        notes.append(f"the state of a memory is read from {', '.join(states)}")
    if rows.values:
        notes.append(f"only the rows of {rows.values['user']}, by {recognised.user}")
    return [*notes, *([recognised.unread_note] if recognised.unread_note else [])]


def _dimension(reader: Reader, layout: Layout) -> int | None:
    """The numbers of a vector, without padding."""
    return layout.width or catalog.dimension(reader, layout.table, layout.vector, layout.condition)


def _lists(layout: Layout) -> tuple[ListName, ...]:
    """The live lists of a layout."""
    found: list[ListName] = ["vector"]
    if layout.lexical is not None:
        found += [layout.lexical.list, *(["source_hybrid"] if layout.fusion else [])]  # type: ignore[list-item]
    return tuple(found)


def _list_notes(layout: Layout, options: Mapping[str, str], index: catalog.VectorIndex | None) -> list[str]:
    """How the live lists are made."""
    notes = [layout.lexical.fact] if layout.lexical is not None else []
    if said := catalog.stated_note(options, layout.client_sets, index):
        notes.append(said)
    return notes


def _search(layout: Layout, distance: Distance, where: sql.Composable) -> sql.Composed:
    """The statement of a search, with the parameters `vector` and `asked`."""

    def nearest(condition: sql.Composable) -> sql.Composed:
        return sql.SQL(
            "SELECT {id}::text, {vector} {operator} %(vector)s::{type} AS distance FROM {table} WHERE {where} "
            "ORDER BY distance LIMIT %(asked)s"
        ).format(
            id=layout.id,
            vector=_vector(layout),
            operator=sql.SQL(catalog.OPERATORS[distance]),
            table=relation(layout),
            type=sql.SQL("halfvec" if layout.vector.type == "halfvec" else "vector"),
            where=condition,
        )

    if not layout.arms:
        return nearest(where)
    arms = [sql.SQL("({})").format(nearest(sql.SQL("{} AND {}").format(where, arm))) for arm in layout.arms]
    every = sql.SQL("SELECT * FROM ({}) arms ORDER BY distance LIMIT %(asked)s")
    return every.format(sql.SQL(" UNION ALL ").join(arms))


def _vector(layout: Layout) -> sql.Identifier:
    return sql.Identifier(layout.vector.name)


def _literal(vector: Vector, layout: Layout) -> str:
    """The vector of a query as a literal, padded as those of the table."""
    stored = layout.vector.dimension
    if layout.width is not None and stored is not None:
        vector = np.concatenate([vector, np.zeros(stored - layout.width, np.float32)])
    return vector_literal(vector)
