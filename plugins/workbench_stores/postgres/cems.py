"""The database of a CEMS server: memory_documents, memory_chunks with vectors, memory_relations.

Columns that older servers lack are optional, and reported. A user sees their own memories and those shared with their team (CEMS's
`FilterBuilder`); live lists use the two statements of `hybrid_search_chunks`, unchanged.

Source: CEMS, src/cems/db/document_store.py at dded756
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from cems_workbench.errors import InputError
from cems_workbench.formats.base import fields
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.records import CEMS_SCOPES, Memory, Relation, TakenChunk, TakenMemory, cems_memory, place_of_chunk
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
from workbench_stores.postgres import catalog, plans
from workbench_stores.postgres.connection import Database, Reader
from workbench_stores.postgres.snapshot import (
    Page,
    batches,
    block_ranges,
    non_blank,
    python_time,
    to_utc,
    vector_literal,
    vectors,
    wrong_dimension,
)

if TYPE_CHECKING:
    from workbench_stores.postgres.connection import Row

TABLES = ("memory_documents", "memory_chunks")
RELATION_WEIGHT = 0.3
"""CEMS's weight of a relation without a similarity."""
RELATIONS_PER_READ = 5_000

REQUIRED_COLUMNS = {
    "memory_documents": ("id", "content"),
    "memory_chunks": ("document_id", "seq", "content", "embedding"),
}
DOCUMENT_COLUMNS = (
    "title",
    "category",
    "source_ref",
    "user_id",
    "tags",
    "scope",
    "created_at",
    "updated_at",
    "last_shown_at",
    "shown_count",
    "relevant_count",
    "noise_count",
)
"""Columns of a memory, in the order of `cems_memory`."""
_CHUNK_STATISTICS = (
    "SELECT p.document_id, count(*) AS chunks, sum(p.change)::text AS changes, sum(p.size) AS bytes, count(p.has) AS vectors "
    "FROM (SELECT c.document_id, c.xmin::text::bigint AS change, octet_length(c.content) AS size, "
    "CASE WHEN c.embedding IS NOT NULL THEN 1 END AS has FROM memory_chunks c "
    "WHERE c.document_id IN (SELECT d.id FROM memory_documents d WHERE {}) OFFSET 0) p GROUP BY p.document_id"
)
"""By document: number of chunks, a sum that changes with any chunk, their size, and number of vectors.

The inner query keeps the vectors out of the sort; OFFSET 0 prevents that the planner merges it into the outer one.
"""
_TIMES = ("created_at", "updated_at", "last_shown_at")
_CONSEQUENCES: Mapping[str, str] = {
    "user_id": "memories have no owner, and no user can be chosen",
    "team_id": "memories shared with a team are visible to their owner only",
    "scope": "every memory is personal",
    "deleted_at": "deleted memories are included",
    "source_ref": "no memory has a project",
    "shown_count": "every memory counts as never shown",
    "last_shown_at": "ages count from the last change",
    "relevant_count": "there is no feedback",
    "noise_count": "there is no feedback",
    "content_tsv": "there is no full-text list, neither here nor in CEMS",
}


@dataclass(frozen=True, slots=True)
class _Schema:
    """The tables and columns that exist, and whose memories are visible."""

    documents: catalog.Table
    chunks: catalog.Table
    relations: catalog.Table | None
    user: uuid.UUID | None
    team: uuid.UUID | None

    def has(self, column: str) -> bool:
        found = self.documents.columns.get(column)
        return found is not None and found.readable

    @property
    def vector(self) -> catalog.Column:
        return self.chunks.columns["embedding"]

    @property
    def full_text(self) -> bool:
        found = self.chunks.columns.get("content_tsv")
        return found is not None and found.readable

    def visible(self, scope: str | None = None) -> tuple[sql.Composed, dict[str, Any]]:
        """CEMS's condition on documents `d` in its searches, and its parameters."""
        conditions = [sql.SQL("d.deleted_at IS NULL")] if self.has("deleted_at") else []
        if self.user is None or not self.has("user_id"):
            conditions += [sql.SQL("d.scope = %(scope)s")] if scope else []
        elif self.team is None or scope == "personal" or not self.has("team_id"):
            conditions += [sql.SQL("d.user_id = %(user)s"), *([sql.SQL("d.scope = %(scope)s")] if scope else [])]
        elif scope == "shared":
            conditions += [sql.SQL("(d.user_id = %(user)s OR d.team_id = %(team)s)"), sql.SQL("d.scope = %(scope)s")]
        else:
            conditions += [sql.SQL("(d.user_id = %(user)s OR (d.team_id = %(team)s AND d.scope = 'shared'))")]
        parameters = {"user": self.user, "team": self.team, "scope": scope}
        clause = sql.SQL(" AND ").join(conditions or [sql.SQL("TRUE")])
        values = {name: value for name, value in parameters.items() if f"%({name})s" in clause.as_string()}
        return clause, values


class CemsSource:
    """A CEMS server's database; `user` and `team` of the address choose whose memories are visible."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._user = _id_of(database, "user")
        self._team = _id_of(database, "team")
        if self._team and not self._user:
            raise InputError(f"{self.address}: team= adds the memories shared with a user, so user= is needed too")

    @property
    def address(self) -> str:
        """The address without any secret."""
        return self._database.address.plain

    def probe(self) -> SourceInfo:
        """Counts, columns and index of visible memories. Raises SourceError."""
        with self._database.transaction() as reader:
            engine = catalog.engine(reader, self._database)
            shape = self._shape(reader)
            clause, values = shape.visible()
            (memories,) = reader.row(sql.SQL("SELECT count(*) FROM memory_documents d WHERE {}").format(clause), values)
            found = reader.row(
                sql.SQL(
                    "SELECT count(c.embedding) FROM memory_chunks c JOIN memory_documents d ON c.document_id = d.id WHERE {}"
                ).format(clause),
                values,
            )
            dimension = self._dimension(reader, shape)
            planned = self._plan(reader, shape, dimension)
            notes = [*self._notes(reader, shape), *planned.notes(found[0])]
            return SourceInfo(
                kind="cems",
                engine=engine,
                memories=memories,
                vectors=found[0],
                dimension=dimension,
                index=planned.index_line,
                lists=("vector", "ts_rank") if shape.full_text else ("vector",),
                settings=catalog.settings(reader, planned.index),
                missing=_missing(shape),
                notes=tuple(notes),
            )

    @contextmanager
    def snapshot(self) -> Iterator[CemsSnapshot]:
        """The visible memories as of now, on a separate connection. Raises SourceError."""
        own = self._database.new_connection()
        try:
            with own.transaction() as reader:
                shape = self._shape(reader)
                yield CemsSnapshot(reader, shape, self._dimension(reader, shape))
        finally:
            own.close()

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        """CEMS's vector and ts_rank lists, of one point in time. Raises SourceError, InputError for an unknown setting."""
        with self._database.transaction() as reader:
            catalog.engine(reader, self._database)
            shape = self._shape(reader)
            dimension = self._dimension(reader, shape)
            catalog.prepare(reader, query, trial, dimension, self.address)
            lists = []
            if (asked := query.depths.get("ts_rank")) and shape.full_text:
                lists.append(_full_text_list(reader, shape, query, asked))
            if asked := query.depths.get("vector"):
                if trial.exact:  # After the ts_rank list, which may use indexes.
                    catalog.scan_exactly(reader)
                lists.insert(0, _vector_list(reader, shape, query, asked))
            return tuple(lists)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _shape(self, reader: Reader) -> _Schema:
        documents, chunks = (catalog.table(reader, name) for name in TABLES)
        if documents is None or chunks is None:
            raise SourceError(f"{self.address}: no longer has the tables {' and '.join(TABLES)}")
        for table in (documents, chunks):
            lacking = [name for name in REQUIRED_COLUMNS[table.name] if name not in table.columns]
            if lacking:
                raise SourceError(f"{self.address}: {table} lacks {', '.join(lacking)}; without it CEMS cannot be read")
            closed = [name for name in REQUIRED_COLUMNS[table.name] if not table.columns[name].readable]
            if closed:
                raise SourceError(
                    f"{self.address}: {reader.role} may not read {table}; to allow it: GRANT SELECT ON {table} TO {reader.role}"
                )
        relations = catalog.table(reader, "memory_relations")
        if relations and not all(column.readable for column in relations.columns.values()):
            relations = None
        shape = _Schema(documents, chunks, relations, self._user, self._team)
        if self._user and not shape.has("user_id"):
            raise InputError(f"{self.address}: memory_documents has no user_id, so user= has no effect")
        if self._user is None and shape.has("user_id") and len(users := _users(reader, 2)) == 1:
            return _Schema(documents, chunks, relations, users[0][0], None)
        return shape

    def _dimension(self, reader: Reader, shape: _Schema) -> int | None:
        return catalog.dimension(reader, shape.chunks, shape.vector)

    def _plan(self, reader: Reader, shape: _Schema, dimension: int | None) -> plans.SearchPlan:
        """How PostgreSQL makes the vector list; CEMS's distance is cosine."""
        clause, values = shape.visible()
        nought = vector_literal(np.zeros(dimension or 1, np.float32))
        values = {"vector": nought, "asked": plans.PLANNED_ROWS, **values}
        return plans.plan(reader, lambda distance: _vector_statement(shape, clause, distance), values, "cosine")

    def _notes(self, reader: Reader, shape: _Schema) -> list[str]:
        notes = []
        if not self._user and shape.has("user_id"):
            users = _users(reader, 6)
            if len(users) > 1:
                named = ", ".join(f"{user} ({count})" for user, count in users[:5]) + (", …" if len(users) > 5 else "")
                notes.append(
                    f"memories of several users are imported and searched together, as no user of CEMS searches; "
                    f"?user=ID at the end of the address chooses one: {named}"
                )
        kept = {"id", "content", "team_id", "deleted_at", *DOCUMENT_COLUMNS}
        left = [
            name for name in shape.documents.columns if name not in kept | {"source", "content_hash", "content_bytes"}
        ]
        if left:
            notes.append(f"columns of memory_documents that are not imported: {', '.join(left)}")
        return notes


def _id_of(database: Database, option: str) -> uuid.UUID | None:
    given = database.address.options.get(option)
    if given is None:
        return None
    try:
        return uuid.UUID(given)
    except ValueError:
        raise InputError(f"{database.address.plain}: {option}= is a UUID in CEMS, found {given!r}") from None


def _users(reader: Reader, most: int) -> list[Row]:
    """(user, number of documents), most first."""
    return reader.rows(
        "SELECT user_id, count(*) FROM memory_documents GROUP BY user_id ORDER BY 2 DESC, 1 LIMIT %(most)s",
        {"most": most},
    )


def _missing(shape: _Schema) -> tuple[str, ...]:
    lines = [
        f"memory_documents has no {name}: {follows}"
        if name not in shape.documents.columns
        else f"{name} of memory_documents may not be read: {follows}"
        for name, follows in _CONSEQUENCES.items()
        if name != "content_tsv" and not shape.has(name)
    ]
    if not shape.full_text:
        lines.append(f"memory_chunks has no content_tsv: {_CONSEQUENCES['content_tsv']}")
    if shape.relations is None:
        lines.append("memory_relations is missing or may not be read: no memory is related to another")
    return tuple(lines)


class CemsSnapshot:
    """The visible documents with their chunks, in physical order, which decides between equal relations."""

    def __init__(self, reader: Reader, shape: _Schema, dimension: int | None) -> None:
        self._reader, self._shape, self._dimension = reader, shape, dimension
        self._clause, self._values = shape.visible()
        self._columns = [name for name in DOCUMENT_COLUMNS if shape.has(name)]
        # Part of every marker: with other columns the same rows are other memories.
        self._prefix = format(sum(1 << DOCUMENT_COLUMNS.index(name) for name in self._columns), "x")
        count = sql.SQL("SELECT count(*) FROM memory_documents d WHERE {}").format(self._clause)
        self._total: int = reader.row(count, self._values)[0]

    @property
    def total(self) -> int:
        """Number of visible documents."""
        return self._total

    def batches(self, changed: Changed) -> Iterator[Batch]:
        """Every visible document as seen, and changed ones with their chunks. Raises SourceError."""
        return batches(self._pages(), changed, self._read)

    def relations(self) -> Iterator[Sequence[Relation]]:
        """The relations between visible documents, in physical order."""
        table = self._shape.relations
        if table is None:
            return
        kind = sql.SQL("r.relation_type" if "relation_type" in table.columns else "NULL::text")
        weight = sql.SQL("r.similarity" if "similarity" in table.columns else "NULL::real")
        ends = sql.SQL("SELECT d.id FROM memory_documents d WHERE {}").format(self._clause)
        query = sql.SQL(
            "SELECT r.source_id::text, r.target_id::text, {}, {}::float8 FROM memory_relations r "
            "WHERE r.source_id IN ({}) AND r.target_id IN ({}) ORDER BY r.ctid"
        ).format(kind, weight, ends, ends)
        for rows in self._reader.pages(query, self._values, RELATIONS_PER_READ):
            yield [
                Relation(
                    source, target, kind or "similar", RELATION_WEIGHT if weight is None else min(max(weight, 0.0), 1.0)
                )
                for source, target, kind, weight in rows
            ]

    def _pages(self) -> Iterator[Page]:
        """Documents in physical order, with statistics of their chunks."""
        within = sql.SQL("d.ctid >= %(from)s::tid AND d.ctid < %(to)s::tid AND {}").format(self._clause)
        query = sql.SQL(
            "SELECT d.id::text, d.xmin::text, octet_length(d.content), s.* FROM memory_documents d LEFT JOIN ({}) s "
            "ON s.document_id = d.id WHERE {} ORDER BY d.ctid"
        ).format(sql.SQL(_CHUNK_STATISTICS).format(within), within)
        for place in block_ranges(self._reader, self._shape.documents.oid):
            yield self._page(self._reader.rows(query, {**self._values, **place}))

    def _page(self, documents: Sequence[Row]) -> Page:
        width = 4 * (self._dimension or 0)
        lost = "has no chunks, so CEMS's search does not find it"
        long = [too_long(row[0], row[2] or row[6] or 0, int(row[6] or 0)) for row in documents]
        documents = [row for row, problem in zip(documents, long, strict=True) if problem is None]
        return Page(
            [row[0] for row in documents],
            [f"{self._prefix}.{row[1]}.{row[4] or 0}.{row[5] or 0}" for row in documents],
            [(row[2] or 0) + (row[6] or 0) + (row[7] or 0) * width for row in documents],
            [
                *filter(None, long),
                *(RowProblem(row[0], "chunks", lost) for row in documents if row[3] is None),
            ],
        )

    def _read(self, ids: Sequence[str], markers: Sequence[str]) -> tuple[list[TakenMemory], list[RowProblem]]:
        """Documents with their chunks; vectors of another dimension and unusable rows are problems."""
        wanted = {"ids": _array(ids)}
        query = sql.SQL("SELECT d.id::text, d.content{} FROM memory_documents d WHERE d.id = ANY(%(ids)s::uuid[])")
        named = sql.SQL("").join(
            sql.SQL(", ") + (_selected(name) if name in self._columns else sql.SQL("NULL")) for name in DOCUMENT_COLUMNS
        )
        rows = {row[0]: row for row in self._reader.rows(query.format(named), wanted)}
        chunks, problems = self._chunks(wanted)
        taken = []
        for id, marker in zip(ids, markers, strict=True):
            _, content, *values = rows[id]
            found = chunks.get(id, [])
            content = content if content and content.strip() else "\n".join(text for _, text, _ in found)
            if not content.strip():
                problems.append(RowProblem(id, "content", "is empty, and so are its chunks"))
                continue
            try:
                memory = _memory(id, content, *values)
            except FieldError as error:
                problems.append(RowProblem(id, error.field, error.reason))
                continue
            taken.append(TakenMemory(memory, marker, _with_offsets(content, found)))
        return taken, problems

    def _chunks(self, wanted: Mapping[str, Any]) -> tuple[dict[str, list[tuple[int, str, Any]]], list[RowProblem]]:
        rows = self._reader.rows(
            "SELECT c.document_id::text, c.seq, c.content, c.embedding FROM memory_chunks c WHERE c.document_id = ANY(%(ids)s::uuid[])",
            wanted,
        )
        chunks: dict[str, list[tuple[int, str, Any]]] = defaultdict(list)
        problems: list[RowProblem] = []
        found = vectors([row[3] for row in rows], self._shape.vector.type)
        for (id, seq, text, _), vector in zip(rows, found, strict=True):
            if text is None or not text.strip():
                problems.append(RowProblem(id, f"chunk {seq}", "has no text; it was left out"))
                continue
            if vector is None:
                problems.append(RowProblem(id, f"chunk {seq}", "has no vector"))
            elif len(vector) != self._dimension:
                problems.append(RowProblem(id, f"chunk {seq}", wrong_dimension(vector, self._dimension)))
                vector = None
            chunks[id].append((seq, text, vector))
        for several in chunks.values():
            several.sort(key=lambda chunk: chunk[0])
        return chunks, problems


def _array(ids: Sequence[str]) -> str:
    """Ids as an array literal, which is much faster than a list of UUIDs."""
    return "{" + ",".join(ids) + "}"


def _selected(name: str) -> sql.Composed:
    """A column to select: times outside Python's range are NULL, identifiers are text."""
    column = sql.Identifier("d", name)
    if name in _TIMES:
        return python_time(column)
    return sql.SQL("{}::text").format(column) if name in ("user_id", "scope") else sql.Composed([column])


def _memory(id: str, content: str, *row: Any) -> Memory:
    """The memory of a row of DOCUMENT_COLUMNS; raises FieldError for an unknown scope."""
    title, category, source_ref, user_id, tags, scope, created_at, updated_at, last_shown_at, shown, relevant, noise = (
        row
    )
    return cems_memory(
        id,
        content,
        non_blank(title),
        non_blank(category),
        non_blank(source_ref),
        user_id,
        tuple(tag for tag in tags if tag is not None) if tags else (),
        fields.choice({"scope": scope}, "scope", CEMS_SCOPES, "personal"),
        to_utc(created_at),
        to_utc(updated_at),
        to_utc(last_shown_at),
        max(0, shown or 0),
        max(0, relevant or 0),
        max(0, noise or 0),
    )


def _with_offsets(content: str, chunks: Sequence[tuple[int, str, Any]]) -> tuple[TakenChunk, ...]:
    taken = []
    start: int | None = 0
    for seq, text, vector in chunks:
        start = place_of_chunk(content, text, start or 0)
        taken.append(TakenChunk(seq, text, vector, start))
    return tuple(taken)


def _vector_list(reader: Reader, shape: _Schema, query: EngineQuery, asked: int) -> EngineList:
    """The vector half of CEMS's search."""
    clause, values = shape.visible(query.scope)
    statement = _vector_statement(shape, clause, "cosine")
    return _ranked_list("vector", reader, statement, {"vector": vector_literal(query.vector), "asked": asked, **values})


def _vector_statement(shape: _Schema, clause: sql.Composable, distance: Distance) -> sql.Composed:
    """CEMS's statement; its window function affects the plan and the order of ties."""
    kind = sql.SQL("halfvec" if shape.vector.type == "halfvec" else "vector")
    return sql.SQL(
        "SELECT c.document_id::text, c.seq, 1 - (c.embedding {operator} %(vector)s::{kind}) AS vector_score, "
        "ROW_NUMBER() OVER (ORDER BY c.embedding {operator} %(vector)s::{kind}) AS vector_rank "
        "FROM memory_chunks c JOIN memory_documents d ON c.document_id = d.id WHERE {clause} "
        "ORDER BY c.embedding {operator} %(vector)s::{kind} LIMIT %(asked)s"
    ).format(kind=kind, clause=clause, operator=sql.SQL(catalog.OPERATORS[distance]))


def _full_text_list(reader: Reader, shape: _Schema, query: EngineQuery, asked: int) -> EngineList:
    """The full-text half: chunks with any lexeme of the query."""
    clause, values = shape.visible(query.scope)
    statement = sql.SQL(
        "WITH or_tsquery AS (SELECT to_tsquery('english', string_agg((t).lexeme::text, ' | ' ORDER BY (t).lexeme)) AS q "
        "FROM unnest(to_tsvector('english', %(text)s)) t) "
        "SELECT c.document_id::text, c.seq, ts_rank(c.content_tsv, oq.q)::float8 AS text_score, "
        "ROW_NUMBER() OVER (ORDER BY ts_rank(c.content_tsv, oq.q) DESC) AS text_rank "
        "FROM memory_chunks c JOIN memory_documents d ON c.document_id = d.id CROSS JOIN or_tsquery oq "
        "WHERE {clause} AND c.content_tsv @@ oq.q ORDER BY ts_rank(c.content_tsv, oq.q) DESC LIMIT %(asked)s"
    ).format(clause=clause)
    # PostgreSQL refuses text with a NUL character.
    return _ranked_list("ts_rank", reader, statement, {"text": query.text.replace("\0", " "), "asked": asked, **values})


def _ranked_list(name: Any, reader: Reader, statement: sql.Composed, values: Mapping[str, Any]) -> EngineList:
    """Hits in the order of the statement's window function."""
    started = time.perf_counter()
    # The rank of the window function decides ties; the rows may come in another order.
    rows = sorted(reader.rows(statement, values), key=lambda row: row[3])
    hits = tuple(EngineHit(id, float(score), seq) for id, seq, score, _ in rows)
    return EngineList(name, values["asked"], hits, time.perf_counter() - started)
