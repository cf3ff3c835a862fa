"""A SQLite file as a source: the rows of a `Layout`, and the lists that its engine answers.

A marker is a digest of the row, its chunks and their vectors: a second snapshot reads every row, and gives on only what changed.
The vector list is exact over the file's vectors, by the distance that its system ranks by; FTS5 is asked as it is.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import mmh3
import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.memory_fields import SHARED_WORDS, is_true
from cems_workbench.formats.base.payload import SAMPLE_ROWS, Payload, memory_of
from cems_workbench.records import DELETED_MARK, Relation
from cems_workbench.sources import source as base
from cems_workbench.sources.rows import (
    Page,
    PagedSnapshot,
    Recognised,
    embedded_texts,
    recognise,
    usable_vector,
)
from workbench_stores.sqlite import vec0
from workbench_stores.sqlite.file import DatabaseFile, Reader, Row
from workbench_stores.sqlite.layout import Chunks, Fts5, Layout, Vectors
from workbench_stores.sqlite.schema import json_at, quoted
from workbench_stores.sqlite.vec0 import decoded, distances, matrix_of, score

PAGE_BYTES = base.BATCH_BYTES // 4
"""Bytes of texts and vectors in a page of rows."""
RELATION_ROWS = 20_000
MARKER_VERSION = "3"
"""Part of every marker: another version makes every row count as changed."""
SHORT_TEXT = 500_000
"""Characters that never have more bytes than a memory may have."""
HIT_ROWS = 500
"""Fewest candidates of the vector list whose rows are looked up at once."""

LayoutOf = Callable[[Reader], Layout]
Part = tuple[int, str | None, int | None, base.Vector | None]
"""The number, text, start and vector of a chunk."""


@dataclass(frozen=True)
class _Read:
    """A layout with what a sample of its rows shows, and the condition of the rows that are read."""

    layout: Layout
    found: Recognised
    where: str
    values: Mapping[str, Any]

    @property
    def scan_key(self) -> str:
        """What tells the rows with vectors apart."""
        return self.layout.chunks.key if self.layout.chunks is not None else self.layout.key or self.layout.id

    @cached_property
    def digest(self) -> bytes:
        """It differs if the same row would become another memory."""
        layout = self.layout
        # A function is written with its place in memory, which is another one in each process.
        chunks = layout.chunks and replace(layout.chunks, cut=None, embedded=None)
        said = [MARKER_VERSION, layout.id, layout.text, repr(layout.columns), repr(layout.vectors), repr(chunks)]
        said.append(json.dumps({name: list(paths) for name, paths in layout.names.known.items()}))
        return hashlib.blake2b("|".join(said).encode(), digest_size=8).digest()


class SqliteSource:
    """The memories of a SQLite file."""

    def __init__(self, file: DatabaseFile, layout: LayoutOf) -> None:
        self._file, self._layout_of = file, layout

    @property
    def address(self) -> str:
        return self._file.plain

    def close(self) -> None:
        self._file.close()

    def probe(self) -> base.SourceInfo:
        """Counts, vectors and lists. Raises SourceError."""
        with self._file.reading() as reader:
            read = self._read(reader)
            layout = read.layout
            memories = _count(reader, read)
            vectors = layout.found_vectors
            found, missing = read.found, [*layout.missing]
            notes = [*layout.notes, *filter(None, (found.fields_note, *found.unread_notes, self._file.note))]
            if layout.hidden is not None and (count := _count(reader, read, f" AND ({layout.hidden})")):
                notes.append(f"{count:,} are kept there and returned in no search; they are read, and in no live list")
            if vectors is None:
                missing.append("no vectors, so it has no vector list of its own")
            elif not vectors.stated:
                notes.append("nothing says the distance: cosine is assumed; set `distance:` in a mapping for another")
            if vectors is not None and vectors.form.distance is None:
                metric = vectors.vec0[1].metric if vectors.vec0 else "no distance"
                ranked = "vectors there are not ranked by cosine or l2"
                missing.append(f"{ranked}, so its own vector list is not asked for ({metric})")
            if vectors is not None and layout.model is None:
                notes.append("the source does not name the model of its vectors: some are compared with the embedder's")
            if layout.relations is None:
                missing.append("no relations between memories but what superseded_by names, so no others are followed")
            return base.SourceInfo(
                kind=layout.kind,
                engine=f"SQLite {sqlite3.sqlite_version}",
                memories=memories,
                vectors=self._vector_count(reader, read),
                dimension=vectors.form.dimension if vectors else None,
                distance=(vectors.form.distance if vectors else None) or "cosine",
                model=layout.model,
                lists=_lists(layout),
                missing=tuple(missing),
                notes=tuple(notes),
            )

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """The rows as of now, unless a note says otherwise. Raises SourceError."""
        with self._file.reading() as reader:
            yield SqliteSnapshot(reader, self._read(reader))

    def search(self, query: base.EngineQuery, trial: base.Trial = base.NO_TRIAL) -> tuple[base.EngineList, ...]:
        """The lists that the file's engine gives. Raises SourceError."""
        if trial.settings:
            raise base.SourceError(f"{self.address}: SQLite has no settings of a search; its vector list is exact")
        found = []
        with self._file.reading() as reader:
            read = self._read(reader)
            where = read.where
            for gone in (read.layout.hidden, read.layout.deleted):
                where += f" AND NOT COALESCE(({gone}), 0)" if gone is not None else ""
            where += self._scope(read, query.scope)
            lists = _lists(read.layout)
            if (asked := query.depths.get("vector", 0)) > 0 and "vector" in lists:
                found.append(self._nearest(reader, read, where, query.vector, asked))
            if (asked := query.depths.get(FTS5, 0)) > 0 and FTS5 in lists:
                found.append(self._matching(reader, read, where, query.text, asked))
        return tuple(found)

    def _read(self, reader: Reader) -> _Read:
        layout = self._layout_of(reader)
        where, values = f"({layout.condition})", dict(layout.values)
        names = list(layout.columns)
        payloads: list[Payload] = []
        if names:
            chosen = ", ".join(layout.columns.values())
            rows = reader.rows(f"SELECT {chosen} FROM {layout.source} WHERE {where} LIMIT {SAMPLE_ROWS}", values)
            payloads = [layout.payload(row, "", []) for row in rows]
        found = recognise(payloads, layout.names, names, layout.unread, layout.known)
        user = self._file.address.options.get("user")
        if user is not None and "user" not in layout.values:
            path = layout.names.given.get("author") or found.user
            if path is None:
                none = "no column has the user of a row, so user= has no effect"
                raise InputError(f"{self.address}: {none}; map `author`")
            where += f" AND CAST({expression_at(layout, path)} AS TEXT) = :_user"
            values["_user"] = user
        return _Read(layout, found, where, values)

    def _scope(self, read: _Read, scope: str | None) -> str:
        if scope is None:
            return ""
        path = read.found.fields.get("scope")
        if path is None:
            return " AND 0" if scope == "shared" else ""
        shared = ", ".join(f"'{word}'" for word in SHARED_WORDS)
        operator = "IN" if scope == "shared" else "NOT IN"
        return f" AND COALESCE(CAST({expression_at(read.layout, path)} AS TEXT), '') {operator} ({shared})"

    def _vector_count(self, reader: Reader, read: _Read) -> int:
        vectors, chunks = read.layout.found_vectors, read.layout.chunks
        if vectors is None:
            return 0
        key = chunks.key if chunks is not None else read.layout.key
        source, where = _vector_rows(read, read.where)
        if vectors.value is not None:
            # typeof() does not read the value, and it is never null.
            where += f" AND typeof({vectors.value}) <> 'null'"
        elif vectors.vec0 is not None:
            match = f"rowid = {vectors.rowid}" if vectors.rowid is not None else f"id = {vectors.vec0_id}"
            where += f" AND EXISTS (SELECT 1 FROM {vectors.vec0[0].shadow('rowids')} AS _v WHERE _v.{match})"
        return _counted(reader, f"SELECT {key or '1'} FROM {source} WHERE {where}", key, read.values)

    def _nearest(self, reader: Reader, read: _Read, where: str, query: base.Vector, asked: int) -> base.EngineList:
        """Every vector is compared, then the best are looked up."""
        vectors = read.layout.found_vectors
        assert vectors is not None and vectors.form.distance is not None
        if query.size != (own := vectors.form.dimension):
            raise base.SourceError(f"{self.address}: vectors there have {own} numbers, that of the query {query.size}")
        started = time.perf_counter()
        keys: list[NDArray[Any]] = []
        far: list[NDArray[np.float64]] = []
        for names, rows in _scanned(reader, read, where):
            keys.append(names)
            far.append(distances(rows, query, vectors.form.distance))
        hits: list[base.EngineHit] = []
        if keys:
            names, all_far = np.concatenate(keys), np.concatenate(far)
            # NaN, as of a zero vector by cosine, is last and no hit.
            order = np.argsort(all_far, kind="stable")
            order = order[: np.count_nonzero(~np.isnan(all_far))]
            step = max(asked, HIT_ROWS)
            for start in range(0, len(order), step):
                part = order[start : start + step]
                known = _hits_of(reader, read, where, [names[i] for i in part])
                for i in part:
                    near = score(float(all_far[i]), vectors.form.distance)
                    hits += [base.EngineHit(memory_id, near, number) for memory_id, number in known.get(names[i], ())]
                if len(hits) >= asked:
                    break
        return base.EngineList("vector", asked, tuple(hits[:asked]), time.perf_counter() - started)

    def _matching(self, reader: Reader, read: _Read, where: str, text: str, asked: int) -> base.EngineList:
        layout, fts = read.layout, read.layout.fts5
        assert fts is not None
        started = time.perf_counter()
        rows: list[Row] = []
        for ask in (fts.match, fts.relaxed):
            match = ask(text) if ask is not None and not rows else None
            if match is not None:
                values = {**read.values, "_match": match, "_asked": asked}
                try:
                    rows = reader.rows(_matching_rows(layout, fts, where), values)
                except base.SourceError as error:
                    # Words that are no query, as one parenthesis: systems answer with nothing.
                    if "fts5: syntax error" not in str(error):
                        raise
        hits = tuple(base.EngineHit(row[0], -float(row[2]), row[1]) for row in rows if row[0] is not None)
        return base.EngineList(FTS5, asked, hits, time.perf_counter() - started)


FTS5: base.ListName = "fts5"


def _matching_rows(layout: Layout, fts: Fts5, where: str) -> str:
    """The statement that gives (memory id, chunk number, bm25) of the best rows for :_match."""
    table = quoted(fts.table)
    rank = f"bm25({table}, {', '.join(map(repr, fts.weights))})" if fts.weights else "fts.rank"
    source, number = fts.source or layout.source, "NULL"
    if fts.chunks:
        assert layout.chunks is not None
        source, number = _joined(layout, layout.chunks), layout.chunks.number
        where += f" AND ({layout.chunks.condition})"
    matched, ranked = f"{table} AS fts", f"fts.{table} MATCH :_match"
    if fts.columns:
        apart = " UNION ALL ".join(
            f"SELECT rowid AS _row, bm25({table}) AS _rank, {place} AS _column FROM {table} WHERE {quoted(column)} MATCH :_match"
            for place, column in enumerate(fts.columns)
        )
        # With min() the other values are those of its row.
        first = f"(SELECT _row, _rank, min(_column) FROM ({apart}) GROUP BY _row)"
        matched = f"{first} AS _found CROSS JOIN {table} AS fts"
        ranked, rank = "fts.rowid = _found._row", "_found._rank"
    # CROSS: the engine's order of the loops, which is that of the ranking.
    return (
        f"SELECT CAST({layout.id} AS TEXT), {number}, {rank} FROM {matched} CROSS JOIN {source} "
        f"WHERE fts.rowid = {fts.rowid} AND {ranked} AND ({fts.condition}) AND {where} ORDER BY {rank} LIMIT :_asked"
    )


def _lists(layout: Layout) -> tuple[base.ListName, ...]:
    vectors = layout.found_vectors
    has_vectors = vectors is not None and vectors.form.distance is not None
    return (*(("vector",) if has_vectors else ()), *((FTS5,) if layout.fts5 is not None else ()))


def expression_at(layout: Layout, path: str) -> str:
    """SQL for the value at a path: a column, or a key in one of those that hold JSON. InputError if there is none."""
    if path in layout.columns:
        return f"({layout.columns[path]})"
    column, _, keys = path.partition(".")
    if column not in layout.json or not keys:
        raise InputError(f"{path}: no column that is read, and no key in one that holds JSON")
    return json_at(layout.columns[column], keys)


def _count(reader: Reader, read: _Read, further: str = "") -> int:
    """The number of rows, of those that meet a further condition."""
    layout = read.layout
    select = f"SELECT {layout.key or '1'} FROM {layout.source} WHERE {read.where}{further}"
    return _counted(reader, select, layout.key, read.values)


def _counted(reader: Reader, select: str, key: str | None, values: Mapping[str, Any]) -> int:
    if not reader.stepped:
        return int(reader.row(f"SELECT count(*) FROM ({select})", values)[0])
    return sum(len(page) for page in reader.pages(select, key, values))


def _joined(layout: Layout, chunks: Chunks) -> str:
    return f"{chunks.source} JOIN {layout.source} ON {chunks.memory} = {layout.key}"


def _vector_rows(read: _Read, where: str) -> tuple[str, str]:
    layout, chunks = read.layout, read.layout.chunks
    vectors = layout.found_vectors
    assert vectors is not None
    where += f" AND ({vectors.condition})"
    if chunks is None:
        return layout.source, where
    return _joined(layout, chunks), f"{where} AND ({chunks.condition})"


def _scanned(reader: Reader, read: _Read, where: str) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
    vectors = read.layout.found_vectors
    assert vectors is not None
    if vectors.vec0 is not None:
        yield from vec0.chunks(reader, *vectors.vec0, vectors.partition)
        return
    source, where = _vector_rows(read, where)
    key = read.layout.chunks.key if read.layout.chunks is not None else read.layout.key
    select = f"SELECT {read.scan_key}, {vectors.value} FROM {source} WHERE {where} AND {vectors.value} IS NOT NULL"
    for page in reader.pages(select, key, read.values, PAGE_BYTES):
        rows, places = matrix_of([row[1] for row in page], vectors.form)
        names = np.empty(len(places), object)
        names[:] = [page[i][0] for i in places]
        yield names, rows


def _hits_of(reader: Reader, read: _Read, where: str, keys: Sequence[Any]) -> dict[Any, list[tuple[str, int | None]]]:
    """(memory id, chunk number) by key of `_scanned`, of the rows that are in the list."""
    layout, vectors = read.layout, read.layout.found_vectors
    assert vectors is not None
    number = layout.chunks.number if layout.chunks is not None else "NULL"
    source, where = _vector_rows(read, where)
    back: dict[str, Any] = {}
    wanted: list[Any]
    if vectors.vec0 is None:
        wanted, key = list(keys), read.scan_key
    elif vectors.rowid is not None:
        wanted, key = [int(each) for each in keys], vectors.rowid
    else:
        names = vec0.ids_of(reader, vectors.vec0[0], [int(each) for each in keys])
        wanted, key, back = list(names.values()), str(vectors.vec0_id), {name: rowid for rowid, name in names.items()}
    if any(isinstance(each, bytes) for each in wanted):
        back = {each.hex(): each for each in wanted}
        wanted, key = list(back), f"lower(hex({key}))"
    found: dict[Any, list[tuple[str, int | None]]] = {}
    rows = reader.rows(
        f"SELECT {key}, CAST({layout.id} AS TEXT), {number} FROM {source} "
        f"WHERE {key} IN (SELECT value FROM json_each(:_keys)) AND {where}",
        {**read.values, "_keys": json.dumps(wanted)},
    )
    for name, memory_id, chunk in rows:
        if memory_id is not None:
            found.setdefault(back.get(name, name), []).append((memory_id, chunk))
    return found


@dataclass
class SqliteSnapshot(PagedSnapshot):
    """The rows of a file; `_reader` has one moment unless it is stepped."""

    _reader: Reader
    _read: _Read

    @cached_property
    def total(self) -> int:
        return _count(self._reader, self._read)

    def pages(self) -> Iterator[Page]:
        """Every row, with its chunks and vectors where its marker needs them. Raises SourceError."""
        self._seen.clear()
        self._edges.clear()
        layout = self._read.layout
        flag = f"({layout.deleted})" if layout.deleted is not None else "NULL"
        own = layout.vectors
        vector = "NULL"
        if own is not None and layout.chunks is None:
            vector = own.value or own.rowid or own.vec0_id or "NULL"
        head = [layout.key or "NULL", f"CAST({layout.id} AS TEXT)", layout.text, flag, vector]
        chosen = ", ".join([*head, *layout.columns.values()])
        select = f"SELECT {chosen} FROM {layout.source} WHERE {self._read.where}"
        kept = vec0.Vec0Vectors(self._reader, *own.vec0) if own is not None and own.vec0 is not None else None
        for page in self._reader.pages(select, layout.key, self._read.values, PAGE_BYTES):
            yield self._page(page, kept)

    def relations(self) -> Iterator[Sequence[Relation]]:
        """What the layout's statement gives, and what rows say supersedes them. Raises SourceError."""
        if self._read.layout.relations is not None:
            rows = self._reader.rows(self._read.layout.relations, dict(self._read.layout.values))
            for start in range(0, len(rows), RELATION_ROWS):
                part = [row for row in rows[start : start + RELATION_ROWS] if None not in row[:2] and row[0] != row[1]]
                yield [Relation(str(a), str(b), str(kind)) for a, b, kind in part]
        yield from super().relations()

    def _page(self, page: Sequence[Row], kept: vec0.Vec0Vectors | None) -> Page:
        """A page of usable rows: ids, a digest of each row with its vectors or chunks as its marker, and the memories, made when read."""
        layout, problems = self._read.layout, list[base.RowProblem]()
        rows = [row for row in page if self._usable(row, problems)]
        parts = self._chunks([row[0] for row in rows]) if layout.chunks is not None else {}
        # Vectors of the row itself are decoded when they are taken.
        vectors = self._vectors(rows, kept) if kept is not None else []
        more: list[Any] = [_bytes(vector) for vector in vectors] or [
            [(*part[:3], _bytes(part[3])) for part in parts.get(row[0], ())] for row in rows
        ]
        # Version 0 writes equal values as equal bytes, whatever else refers to them.
        said = [marshal.dumps((*row[2:], each), 0) for row, each in zip(rows, more, strict=True)]
        gone = [layout.deleted is not None and row[3] is not None and is_true(row[3]) for row in rows]
        markers = [
            DELETED_MARK * deleted + mmh3.hash_bytes(self._read.digest + each).hex()
            for deleted, each in zip(gone, said, strict=True)
        ]
        if {"superseded_by", "original_id"} & self._read.found.states.keys():
            for row in rows:
                self.note_state(row[1], layout.payload(row[5:], row[1], []), layout.names)

        def read(places: Sequence[int]) -> tuple[Sequence[base.TakenMemory], Sequence[base.RowProblem]]:
            chosen, found = [rows[place] for place in places], list[base.RowProblem]()
            own = [vectors[place] for place in places] if vectors else self._vectors(chosen, kept)
            made = [
                self._made(row, markers[place], vector, parts.get(row[0], ()), found)
                for row, place, vector in zip(chosen, places, own, strict=True)
            ]
            return [each for each in made if each is not None], found

        return Page([row[1] for row in rows], markers, read, problems=problems)

    def _usable(self, row: Row, problems: list[base.RowProblem]) -> bool:
        memory_id, text = row[1], row[2]
        short = isinstance(text, str) and 0 < len(text) < SHORT_TEXT and not text.isspace()
        if short and memory_id and self._read.layout.unique and not memory_id.isspace():
            return True
        if problem := self.id_problem(memory_id):
            problems.append(problem)
        elif text is None or not str(text).strip():
            problems.append(base.RowProblem(memory_id, "text", "is empty; the row was left out"))
        elif not isinstance(text, str | int | float):
            problems.append(base.RowProblem(memory_id, "text", "is a BLOB; the row was left out"))
        elif problem := base.too_long(memory_id, len(str(text).encode("utf-8", "surrogatepass"))):
            problems.append(problem)
        else:
            if not self._read.layout.unique:
                self._seen.add(memory_id)
            return True
        return False

    def _vectors(self, rows: Sequence[Row], kept: vec0.Vec0Vectors | None) -> list[base.Vector | None]:
        own = self._read.layout.vectors
        if own is None or self._read.layout.chunks is not None:
            return [None] * len(rows)
        if kept is None:
            return _decoded([row[4] for row in rows], own)
        return _from_vec0(self._reader, kept, own, [row[4] for row in rows])

    def _chunks(self, keys: Sequence[Any]) -> dict[Any, list[Part]]:
        """The chunks of memories, by key."""
        chunks = self._read.layout.chunks
        assert chunks is not None
        where = chunks.vectors
        value = (where.value or where.rowid or where.vec0_id if where is not None else None) or "NULL"
        rows = self._reader.rows(
            f"SELECT {chunks.memory}, {chunks.number}, {chunks.text or 'NULL'}, {chunks.start or 'NULL'}, {value} FROM {chunks.source} "
            f"WHERE {chunks.memory} IN (SELECT value FROM json_each(:_keys)) AND ({chunks.condition})",
            {**self._read.values, "_keys": json.dumps(list(keys))},
        )
        values: list[Any] = [row[4] for row in rows]
        found: list[base.Vector | None] = [None] * len(rows)
        if where is not None and where.vec0 is not None:
            found = _from_vec0(self._reader, vec0.Vec0Vectors(self._reader, *where.vec0), where, values)
        elif where is not None:
            found = _decoded(values, where)
        parts: dict[Any, list[Part]] = {}
        for row, vector in zip(rows, found, strict=True):
            parts.setdefault(row[0], []).append((int(row[1]), row[2], row[3], vector))
        for each in parts.values():
            each.sort(key=lambda part: part[0])
        return parts

    def _made(
        self, row: Row, marker: str, own: base.Vector | None, parts: Sequence[Part], problems: list[base.RowProblem]
    ) -> base.TakenMemory | None:
        layout, content = self._read.layout, str(row[2])
        payload = layout.payload(row[5:], row[1], problems)
        try:
            memory, found = memory_of(row[1], content, payload, layout.names)
        except FieldError as error:
            problems.append(base.RowProblem(row[1], error.field, f"{error.reason}; it was not taken"))
            return None
        problems += found

        def usable(vector: base.Vector | None, where: Vectors | None) -> base.Vector | None:
            return None if where is None else usable_vector(row[1], "vector", vector, where.form.dimension, problems)

        if layout.chunks is None:
            # A system may drop the vector of a row that it keeps as deleted.
            dropped = own is None and marker.startswith(DELETED_MARK)
            vector = None if dropped else usable(own, layout.vectors)
            return base.TakenMemory(memory, marker, vector=vector, embedded=embedded_texts(payload, content))
        starts, texts = [part[2] for part in parts], [part[1] for part in parts]
        if layout.chunks.cut is not None:
            cut = layout.chunks.cut(content, [start or 0 for start in starts])
            starts, texts = [start for start, _ in cut], [text for _, text in cut]
        if problem := base.too_long(
            row[1], 0, sum(len(str(text or "").encode("utf-8", "surrogatepass")) for text in texts)
        ):
            problems.append(problem)
            return None
        embedded = layout.chunks.embedded(payload) if layout.chunks.embedded is not None else {}
        chunks = [
            base.TakenChunk(number, str(text), usable(vector, layout.chunks.vectors), start, embedded)
            for (number, _, _, vector), start, text in zip(parts, starts, texts, strict=True)
            if text is not None
        ]
        return base.TakenMemory(memory, marker, tuple(chunks))


def _bytes(vector: base.Vector | None) -> bytes | None:
    return None if vector is None else np.ascontiguousarray(vector, "<f4").tobytes()


def _decoded(values: Sequence[Any], where: Vectors) -> list[base.Vector | None]:
    """The vectors of values, one by one where a few are of another form."""
    rows, places = matrix_of(values, where.form)
    if len(places) == len(values):
        return list(rows)
    found: list[base.Vector | None] = [None if each is None else decoded(each, where.form) for each in values]
    for place, row in zip(places, rows, strict=True):
        found[place] = row
    return found


def _from_vec0(
    reader: Reader, kept: vec0.Vec0Vectors, where: Vectors, names: Sequence[Any]
) -> list[base.Vector | None]:
    if where.rowid is None:
        rowids = vec0.rowids_of(reader, kept.table, [str(name) for name in names if name is not None])
        numbers = [rowids.get(str(name)) for name in names]
    else:
        numbers = [name if isinstance(name, int) else None for name in names]
    found = kept.take([number for number in numbers if number is not None])
    return [None if number is None else found.get(number) for number in numbers]
