"""Memories in tables or views of PostgreSQL, read as a `Layout` says.

The layout is that of a library or server (`layouts`), of a mapping, or a guess by names and types (`mapping`), which a note shows. The
marker of a row is its ctid and last transaction (xmin), with those of its chunks; views have neither, so theirs is a hash of the row.
A table is read by blocks of its file, in physical order: every page costs the same, and only one page is in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from cems_workbench.errors import InputError
from cems_workbench.formats.base import memory_fields
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.memory_fields import SHARED_WORDS
from cems_workbench.formats.base.payload import found_values
from cems_workbench.records import DELETED_MARK, SUPERSEDES, Relation, RowProblem, TakenChunk, TakenMemory
from cems_workbench.sources import source as base
from cems_workbench.sources.rows import Page, PagedSnapshot, Recognised, embedded_texts, usable_vector
from workbench_stores.postgres import catalog
from workbench_stores.postgres.connection import FUSION_OPTIONS, Database, Reader, Row
from workbench_stores.postgres.layout import Layout, recognise
from workbench_stores.postgres.lexical import Fusion, with_settings

PAGE_BLOCKS = 1_024
"""Blocks of 8 KiB per page: some thousands of rows with vectors."""
PAGE_ROWS = 20_000
"""Rows of a view per request."""
RELATIONS_PER_READ = 5_000
NEVER = sql.SQL("FALSE")
WITHIN = sql.SQL("m.ctid >= %(from)s::tid AND m.ctid < %(to)s::tid")
"""The condition of a page of blocks."""


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
        if self.layout.deleted is not None or path is None or self.layout.chunks is not None:
            return self.layout.deleted
        return sql.SQL("COALESCE(lower({}) IN ('true', '1', 't'), FALSE)").format(self.layout.at(path))

    def searched(self, scope: str | None) -> tuple[sql.Composable, dict[str, Any]]:
        """The condition, and its values, of rows that the system's search returns; rows without a scope are personal."""
        values = dict(self.values)
        if scope and scope in self.layout.scopes:
            return self.layout.scopes[scope], values
        hidden = (self.deleted, self.layout.hidden)
        conditions = [self.where, *(sql.SQL("NOT {}").format(each) for each in hidden if each is not None)]
        path = self.recognised.fields.get("scope")
        if scope and path:
            shared = sql.SQL("= ANY" if scope == "shared" else "<> ALL")
            conditions.append(sql.SQL("COALESCE({}, '') {}(%(shared)s)").format(self.layout.at(path), shared))
            values["shared"] = list(SHARED_WORDS)
        elif scope == "shared":
            conditions.append(NEVER)
        return sql.SQL(" AND ").join(conditions), values


class TableSource:
    """The memories of a layout with their vectors."""

    def __init__(self, database: Database, layout: Callable[[Reader], Layout]) -> None:
        self._database, self.layout = database, layout
        self._recognised: Recognised | None = None

    @property
    def address(self) -> str:
        return self._database.address.plain

    def probe(self) -> base.SourceInfo:
        """Counts, dimension, distance and index. Raises SourceError."""
        with self._database.transaction() as reader:
            engine = catalog.engine(reader, self._database)
            rows = self._rows(reader)
            layout = rows.layout
            own = "count({vector}) FILTER (WHERE NOT {hidden})"
            joined = "(SELECT count({vector}) FROM {searched} WHERE {where} AND NOT {deleted} AND NOT {hidden})"
            count = sql.SQL(
                "SELECT count(*), count(*) FILTER (WHERE {hidden}), "
                + (own if layout.chunks is None else joined)
                + " FROM {rows} WHERE {where} AND NOT {deleted}"
            ).format(
                vector=layout.vector_column,
                searched=layout.searched,
                hidden=layout.hidden or NEVER,
                rows=layout.rows,
                where=rows.where,
                deleted=rows.deleted or NEVER,
            )
            memories, hidden, with_vector = reader.row(count, rows.values)
            dimension = _dimension(reader, layout)
            planned = self._plan(reader, rows, dimension)
            fusion = self._fusion(layout, {})
            more, missing = layout.counted(reader, rows.where)
            notes = [*_notes(rows), *more, *planned.notes(with_vector)]
            if layout.lexical is not None and not layout.own_search:
                notes.append(layout.lexical.fact)
            if said := catalog.stated_note(self._database.address.options, layout.client_sets, planned.index):
                notes.append(said)
            if hidden:
                notes.append(f"{hidden:,} of the memories {'has' if hidden == 1 else 'have'} expired: in no live list")
            if layout.distance is None and planned.index is None:
                assumed = "no index tells the distance: cosine is assumed"
                notes.append(f"{assumed}; ?distance=l2 or ?distance=ip says another")
            return base.SourceInfo(
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
                missing=(*layout.missing, *missing),
                notes=tuple(notes),
            )

    @contextmanager
    def snapshot(self) -> Iterator[TableSnapshot]:
        """The rows as of now, on a separate connection. Raises SourceError."""
        own = Database(self._database.address, self._database.timeout)
        try:
            with own.transaction() as reader:
                rows = self._rows(reader)
                yield TableSnapshot(reader, rows, _dimension(reader, rows.layout))
        finally:
            own.close()

    def search(self, query: base.EngineQuery, trial: base.Trial = base.NO_TRIAL) -> tuple[base.EngineList, ...]:
        """The rows by distance, by words, and as the library fuses both, without deleted and expired ones. Raises
        SourceError, InputError for an unknown setting."""
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
            if (
                trial.exact
            ):  # After the lexical lists, which may use indexes. Without index scans no vector index is used.
                for name, value in (("enable_indexscan", "off"), ("enable_seqscan", "on"), ("enable_sort", "on")):
                    reader.set(name, value)
            lists = []
            for name in names:
                if name == "source_hybrid" and fusion:
                    near, seconds = search.by_distance(near_rows)
                    hits = fusion.fused(
                        # The distance to a zero vector is no number (NaN).
                        [(id, far) for id, far, _ in near if far == far],
                        [(id, rank) for id, rank, _ in fused_words[0]],
                        distance,
                        asked[name],
                    )
                    seconds += fused_words[1]
                elif name in by_words:
                    found, seconds = by_words[name]
                    hits = [base.EngineHit(*hit) for hit in found]
                else:
                    near, seconds = search.by_distance(asked[name])
                    high = 1.0 if distance == "cosine" else 0.0
                    hits = [base.EngineHit(id, high - far, number) for id, far, number in near]
                lists.append(base.EngineList(name, asked[name], tuple(hits), seconds))
        return tuple(lists)

    def _fusion(self, layout: Layout, settings: Mapping[str, str]) -> Fusion | None:
        """The library's fusion, with what the address and a trial say of it. Raises InputError."""
        options = self._database.address.options
        given = {name: value for name, value in {**options, **settings}.items() if name in FUSION_OPTIONS}
        if layout.fusion is None or layout.fusion.kind == "appended":
            if given:
                name = next(iter(given))
                raise InputError(f"{self.address}: no list of {layout.table} is fused so, and {name} has no effect")
            return layout.fusion
        try:
            return with_settings(layout.fusion, given)
        except ValueError as error:
            raise InputError(f"{self.address}: {error}") from None

    def close(self) -> None:
        self._database.close()

    def _plan(self, reader: Reader, rows: Rows, dimension: int | None) -> catalog.SearchPlan:
        where, values = rows.searched(None)
        # Of the right length, because an index scan could check it.
        nought = _literal(np.zeros(dimension or 1, np.float32), rows.layout)
        values = {"vector": nought, "asked": catalog.PLANNED_ROWS, **values}
        layout = rows.layout
        return catalog.plan(reader, lambda distance: _nearest(layout, distance, where), values, layout.distance)

    def _rows(self, reader: Reader, recognised: Recognised | None = None) -> Rows:
        """The rows of the source; fields are recognised again unless they are given."""
        layout = self.layout(reader)
        condition = sql.SQL("TRUE") if layout.condition is None else layout.condition
        if layout.own_search:
            return Rows(layout, Recognised({}, None, {}, ()), condition, {})
        for table in (layout.table, *([layout.chunks.table] if layout.chunks is not None else [])):
            catalog.refuse_unless_readable(reader, table, self.address)
        self._recognised = recognised or recognise(reader, layout, condition)
        user = self._database.address.options.get("user")
        if not user:
            return Rows(layout, self._recognised, condition, {})
        path = self._recognised.user
        if path is None:
            none = "no column and no key has the user of a row, so user= has no effect"
            raise InputError(f"{self.address}: {none}; map `author`")
        of_user = sql.SQL("{} AND {} = %(user)s").format(condition, layout.at(path))
        return Rows(layout, self._recognised, of_user, {"user": user})


Hits = tuple[list[tuple[str, float, int | None]], float]
"""(id, distance or rank, number of the chunk) of the best rows, and the seconds that took."""


@dataclass(frozen=True, slots=True)
class _Search:
    reader: Reader
    rows: Rows
    query: base.EngineQuery
    distance: base.Distance

    def by_distance(self, asked: int) -> Hits:
        where, values = self.rows.searched(self.query.scope)
        values |= {"vector": _literal(self.query.vector, self.rows.layout), "asked": asked}
        return self._hits(_nearest(self.rows.layout, self.distance, where), values)

    def by_words(self, asked: int) -> Hits:
        layout = self.rows.layout
        if layout.lexical is None:
            return [], 0.0
        where, values = self.rows.searched(self.query.scope)
        if layout.arms:
            where = sql.SQL("{} AND ({})").format(where, sql.SQL(" OR ").join(layout.arms))
        values |= {"text": layout.lexical.prepared(self.query.text, self.reader, layout.table), "asked": asked}
        source = sql.SQL("{} CROSS JOIN {}").format(layout.searched, layout.lexical.words_from)
        where = sql.SQL("{} AND {} @@ words.q").format(where, layout.lexical.document)
        ranked = sql.SQL("{}::float8").format(layout.lexical.rank)
        return self._hits(_best(layout, ranked, layout.lexical.rank, "DESC", source, where), values)

    def _hits(self, statement: sql.Composed, values: Mapping[str, Any]) -> Hits:
        layout, started = self.rows.layout, time.perf_counter()
        found = self.reader.rows(statement, values)
        if layout.own_search:
            # The rank of the window function decides ties; the rows may come in another order.
            found.sort(key=lambda row: row[-1])
        chunks = layout.chunks
        # LlamaIndex's node_id may be NULL.
        hits = [
            (row[0], float(row[1]), None if chunks is None else chunks.number(row[2]))
            for row in found
            if row[0] is not None and row[1] is not None
        ]
        return hits, time.perf_counter() - started


@dataclass
class TableSnapshot(PagedSnapshot):
    """The rows of a table in physical order, of a view by id."""

    _reader: Reader
    _rows: Rows
    _dimension: int | None

    @cached_property
    def total(self) -> int:
        count = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(self._rows.layout.rows, self._rows.where)
        return int(self._reader.row(count, self._rows.values)[0])

    def relations(self) -> Iterator[Sequence[Relation]]:
        """What the rows say supersedes them, and the relations of the layout."""
        rows, layout, queries = self._rows, self._rows.layout, []
        if (newer := rows.recognised.states.get("superseded_by")) is not None:
            query = "SELECT ({new})::text, {id}::text, {kind}, 1.0::float8 FROM {rows} WHERE {where} AND"
            of_rows = sql.SQL(query + " ({new})::text <> {id}::text ORDER BY 1, 2").format(
                new=layout.at(newer), id=layout.id, kind=sql.Literal(SUPERSEDES), rows=layout.rows, where=rows.where
            )
            queries.append((of_rows, rows.values))
        for statement, values in (*queries, *((each, None) for each in layout.relations)):
            for page in self._reader.pages(statement, values, RELATIONS_PER_READ):
                yield [
                    Relation(source, target, kind, 1.0 if weight is None else min(max(weight, 0.0), 1.0))
                    for source, target, kind, weight in page
                ]

    def pages(self) -> Iterator[Page]:
        """Id, marker and sizes of every row."""
        self._seen.clear()
        rows, layout = self._rows, self._rows.layout
        length = sql.SQL("COALESCE(octet_length(({})::text), 0)")
        others = [length.format(layout.columns[name]) for name in sorted(layout.json_columns)]
        plain: sql.Composable = sql.SQL("m.xmin::text || m.ctid::text")
        joined: sql.Composable = sql.SQL("")
        sizes = sql.SQL("0, 1")
        if (chunks := layout.chunks) is not None:
            plain = sql.SQL("m.xmin::text || m.ctid::text || '.' || s.chunks || '.' || s.changes")
            # LATERAL: the planner looks the chunks of each row up by their index and never reads the whole table.
            joined = sql.SQL(
                " LEFT JOIN LATERAL (SELECT count(*) AS chunks, COALESCE(sum(c.xmin::text::int8), 0)::text AS changes, "
                "COALESCE(sum(octet_length({})), 0)::int8 AS bytes, count({}) AS vectors FROM {} c WHERE {}) s ON TRUE"
            ).format(chunks.text, layout.vector_column, chunks.table.sql, chunks.on)
            sizes = sql.SQL("s.bytes, s.vectors")
        every = sql.SQL(", ").join([layout.text, layout.vector_column, *layout.columns.values()])
        if not layout.table.has_blocks:
            plain = sql.SQL("to_hex(hashtextextended(ROW({})::text, 0))").format(every)
        page: sql.Composable = WITHIN + sql.SQL(" ORDER BY m.ctid")
        if not layout.table.has_blocks:
            page = sql.SQL("(%(last)s::text IS NULL OR {id} > %(last)s::{type}) ORDER BY {id} LIMIT %(most)s").format(
                id=layout.id, type=sql.SQL(layout.id_type)
            )
        query = sql.SQL(
            "SELECT {id}::text, {marker}, {text}, {others}, {sizes} FROM {rows}{joined} WHERE {where} AND {page}"
        ).format(
            id=layout.id,
            marker=self._marker(plain),
            text=length.format(layout.text),
            others=sql.SQL(" + ").join([sql.SQL("0"), *others]),
            sizes=sizes,
            rows=layout.rows,
            joined=joined,
            where=rows.where,
            page=page,
        )
        if layout.table.has_blocks:
            for place in _block_ranges(self._reader, layout.table.oid):
                yield self._page(self._reader.rows(query, {**rows.values, **place}), place)
            return
        last = None
        while found := self._reader.rows(query, {**rows.values, "last": last, "most": PAGE_ROWS}):
            yield self._page(found, {})
            last = found[-1][0]
            if last is None or len(found) < PAGE_ROWS:
                return

    def _marker(self, plain: sql.Composable) -> sql.Composable:
        """The marker of a row; it begins with DELETED_MARK for a deleted one, and has the layout, which makes rows other memories."""
        marker = sql.SQL("{} || {}").format(sql.Literal(f"{self._rows.layout.digest}."), plain)
        if self._rows.deleted is None:
            return marker
        marked = sql.SQL("CASE WHEN {} THEN {} ELSE '' END || {}")
        return marked.format(self._rows.deleted, sql.Literal(DELETED_MARK), marker)

    def _page(self, rows: Sequence[Row], place: Mapping[str, str]) -> Page:
        layout = self._rows.layout
        good, problems = [], []
        for row in rows:
            id, _, size, others, in_chunks, _ = row
            if (problem := self.id_problem(id)) or (problem := base.too_long(id, size or in_chunks, in_chunks)):
                problems.append(problem)
            elif others > base.BATCH_BYTES:
                reason = f"{others:,} bytes exceed the limit of {base.BATCH_BYTES:,}; the row was left out"
                problems.append(RowProblem(id, ", ".join(sorted(layout.json_columns)), reason))
            else:
                good.append(row)
                if not layout.unique:
                    self._seen.add(id)
        width = 4 * (self._dimension or 0)

        def read(places: Sequence[int]) -> tuple[list[TakenMemory], list[RowProblem]]:
            return self._taken([good[each][0] for each in places], [good[each][1] for each in places], place)

        sizes = [row[2] + row[3] + row[4] + row[5] * width for row in good]
        return Page([row[0] for row in good], [row[1] for row in good], read, sizes, problems)

    def _taken(
        self, ids: Sequence[str], markers: Sequence[str], place: Mapping[str, str]
    ) -> tuple[list[TakenMemory], list[RowProblem]]:
        layout, blocks = self._rows.layout, self._rows.layout.table.has_blocks
        chosen = sql.SQL("{rows} WHERE {id} = ANY(%(ids)s::{type}[]) AND {where}{within}").format(
            rows=layout.rows,
            id=layout.id,
            type=sql.SQL(layout.id_type),
            where=self._rows.where,
            within=sql.SQL(" AND ") + WITHIN if blocks else sql.SQL(""),
        )
        values = {**self._rows.values, **place, "ids": list(ids)}
        own = (layout.vector_read, layout.padded or sql.SQL("TRUE"))
        head = [layout.text, *(own if layout.chunks is None else (sql.NULL, sql.SQL("m.ctid::text")))]
        query = sql.SQL("SELECT {id}::text, ({text})::text, {rest} FROM {chosen}{order}").format(
            id=layout.id,
            text=head[0],
            rest=sql.SQL(", ").join([*head[1:], *layout.columns.values()]),
            chosen=chosen,
            order=sql.SQL(" ORDER BY m.ctid" if blocks else ""),
        )
        found = self._reader.rows(query, values)
        parts = self._chunks(chosen, values)
        rows: dict[str, tuple[Row, base.Vector | None]] = {}
        for row, vector in zip(found, vectors([row[2] for row in found], layout.vector.type), strict=True):
            rows.setdefault(row[0], (row, vector))
        problems: list[RowProblem] = []
        made = [self._memory(*rows[id], marker, parts, problems) for id, marker in zip(ids, markers, strict=True)]
        return [each for each in made if each is not None], problems

    def _chunks(self, chosen: sql.Composed, values: Mapping[str, Any]) -> dict[str, list[tuple[Any, str | None, Any]]]:
        """(name, text, vector) of the chunks of memories, by their row's ctid."""
        parts: dict[str, list[tuple[Any, str | None, Any]]] = {}
        if (chunks := self._rows.layout.chunks) is None:
            return parts
        query = sql.SQL(
            "SELECT m.place, found.* FROM (SELECT m.ctid::text AS place, m.* FROM {chosen}) m CROSS JOIN LATERAL "
            "(SELECT {name}, {text}, {vector} FROM {table} c WHERE {on} OFFSET 0) found"
        ).format(
            chosen=chosen,
            name=chunks.name,
            text=chunks.text,
            vector=self._rows.layout.vector_column,
            table=chunks.table.sql,
            on=chunks.on,
        )
        found = self._reader.rows(query, values)
        of_rows = vectors([row[3] for row in found], self._rows.layout.vector.type)
        for (at, name, text, _), vector in zip(found, of_rows, strict=True):
            parts.setdefault(at, []).append((name, text, vector))
        return parts

    def _memory(
        self,
        row: Row,
        vector: base.Vector | None,
        marker: str,
        parts: Mapping[str, list[tuple[Any, str | None, Any]]],
        problems: list[RowProblem],
    ) -> TakenMemory | None:
        """The memory of a row (id, text, vector, whether it is padded or ctid, columns); None, with a problem, if it cannot be stored."""
        layout, (id, text) = self._rows.layout, row[:2]
        payload = layout.payload(row[4:], id, problems)
        chunks = None
        if layout.chunks is not None:
            text, chunks, vector = self._parts(id, text, payload, parts.get(row[3], []), problems)
        if text is None or not text.strip():
            problems.append(RowProblem(id, "text", "is empty; the row was left out"))
            return None
        if layout.chunks is None and vector is not None and not row[3]:
            reason = f"its vector is not of {self._dimension} numbers and then zeros, as the others there"
            problems.append(RowProblem(id, layout.vector.name, f"{reason}; it was left out"))
            vector = None
        elif layout.chunks is None:
            # pgvector stores numbers only.
            vector = usable_vector(id, layout.vector.name, vector, self._dimension, problems, finite=True)
        paths, values = found_values(payload, layout.names)
        called = {field: path for field, path in paths.items() if "." in path or field == "valid_until"}
        try:
            memory, unused = memory_fields.memory_of(id, text, values, called)
        except FieldError as error:
            problems.append(RowProblem(id, error.field, f"{error.reason}; the row was left out"))
            return None
        problems += unused
        embedded = embedded_texts(payload, text) if layout.chunks is None else {}
        return TakenMemory(memory, marker, tuple(chunks or ()), vector, embedded)

    def _parts(
        self,
        id: str,
        text: str | None,
        payload: Mapping[str, Any],
        parts: list[tuple[Any, str | None, Any]],
        problems: list[RowProblem],
    ) -> tuple[str, Sequence[TakenChunk], base.Vector | None]:
        """The content of a memory, its chunks, and its vector if it is its only text."""
        layout = self._rows.layout.chunks
        assert layout is not None
        if not parts:
            problems.append(replace(layout.without_chunks, memory_id=id))
        kept = []
        for number, (name, own, vector) in enumerate(sorted(parts, key=lambda part: layout.order(part[0]))):
            found = layout.text_of(name, own, payload)
            if found is None or not found.strip():
                problems.append(RowProblem(id, layout.label(name), layout.WITHOUT_TEXT))
            else:
                vector = usable_vector(id, layout.label(name), vector, self._dimension, problems, finite=True)
                kept.append((number, name, found, vector))
        content = layout.content(text, {name: found for _, name, found, _ in kept}, payload)
        chunks = layout.numbered(content, kept)
        return content, chunks, kept[0][3] if kept and not chunks else None


def _notes(rows: Rows) -> list[str]:
    layout, recognised = rows.layout, rows.recognised
    notes = [*layout.notes]
    fields = ", ".join(f"{field}: {path}" for field, path in recognised.fields.items())
    if layout.guess:
        guess = ", ".join(filter(None, (layout.guess, fields)))
        notes.append(f"guessed by names and types; a mapping can correct it: {guess}")
    elif not layout.names.closed and recognised.fields_note:
        notes.append(recognised.fields_note)
    states = [path for name, path in recognised.states.items() if name != "original_id"]
    if states:
        notes.append(f"the state of a memory is read from {', '.join(states)}")
    if rows.values:
        notes.append(f"only the rows of {rows.values['user']}, by {recognised.user}")
    return [*notes, *recognised.unread_notes]


def _dimension(reader: Reader, layout: Layout) -> int | None:
    if layout.chunks is not None:
        return catalog.dimension(reader, layout.chunks.table, layout.vector)
    return layout.width or catalog.dimension(reader, layout.table, layout.vector, layout.condition)


def _lists(layout: Layout) -> tuple[base.ListName, ...]:
    found: list[base.ListName] = ["vector"]
    if layout.lexical is not None:
        found += [layout.lexical.list, *(["source_hybrid"] if layout.fusion else [])]  # type: ignore[list-item]
    return tuple(found)


def _nearest(layout: Layout, distance: base.Distance, where: sql.Composable) -> sql.Composed:
    """The statement of a search by distance, with the parameters `vector` and `asked`."""
    far = sql.SQL("{} {} %(vector)s::{}").format(
        layout.vector_column,
        sql.SQL(catalog.OPERATORS[distance]),
        sql.SQL("halfvec" if layout.vector.type == "halfvec" else "vector"),
    )
    if not layout.arms:
        return _best(layout, far, far, "ASC", layout.searched, where)
    arms = [
        sql.SQL("({})").format(_best(layout, far, far, "ASC", layout.searched, sql.SQL("{} AND {}").format(where, arm)))
        for arm in layout.arms
    ]
    every = sql.SQL("SELECT * FROM ({}) arms ORDER BY found LIMIT %(asked)s")
    return every.format(sql.SQL(" UNION ALL ").join(arms))


def _best(
    layout: Layout,
    value: sql.Composable,
    order: sql.Composable,
    direction: Literal["ASC", "DESC"],
    source: sql.Composable,
    where: sql.Composable,
) -> sql.Composed:
    """(id, value, what a chunk's number is made of, rank of an own search) of the best rows, with the parameter `asked`."""
    window = ", ROW_NUMBER() OVER (ORDER BY {order} {direction})" if layout.own_search else ""
    return sql.SQL(
        "SELECT {id}::text, {value} AS found, {place}" + window + " FROM {source} WHERE {where} "
        "ORDER BY {order} {direction} LIMIT %(asked)s"
    ).format(
        id=layout.id,
        value=value,
        place=sql.SQL("NULL::int") if layout.chunks is None else layout.chunks.place,
        order=order,
        direction=sql.SQL(direction),
        source=source,
        where=where,
    )


def _block_ranges(reader: Reader, table: int) -> Iterator[dict[str, str]]:
    """Ranges of ctid that cover the file of a table, as parameters `from` and `to` (exclusive)."""
    (blocks,) = reader.row(
        "SELECT pg_relation_size(%(table)s::oid::regclass) / current_setting('block_size')::bigint", {"table": table}
    )
    for start in range(0, blocks, PAGE_BLOCKS):
        yield {"from": f"({start},0)", "to": f"({start + PAGE_BLOCKS},0)"}


def vectors(sent: Sequence[bytes | None], kind: str) -> list[base.Vector | None]:
    """Vectors from pgvector's binary form: int16 dimension, int16 0, then big-endian float4 (`vector`) or float2
    (`halfvec`). Vectors of equal length are rows of one matrix, which is much faster than one by one."""
    number = np.dtype(">f4" if kind == "vector" else ">f2")
    there = [value for value in sent if value is not None]
    if len({len(value) for value in there}) == 1 and (width := (len(there[0]) - 4) // number.itemsize):
        raw = np.frombuffer(b"".join(there), np.uint8).reshape(len(there), -1)[:, 4:]
        matrix: NDArray[np.float32] = np.ascontiguousarray(raw).view(number).reshape(-1, width).astype(np.float32)
        rows = iter(matrix)
    else:
        rows = iter([np.frombuffer(value, number, offset=4).astype(np.float32) for value in there])
    return [None if value is None else next(rows) for value in sent]


def _literal(vector: base.Vector, layout: Layout) -> str:
    """The vector of a query as a literal of pgvector without loss, padded as those of the table."""
    stored = layout.vector.dimension
    if layout.width is not None and stored is not None:
        vector = np.concatenate([vector, np.zeros(stored - layout.width, np.float32)])
    # Nine digits identify every single-precision number.
    return "[" + ",".join(f"{value:.9g}" for value in vector.tolist()) + "]"
