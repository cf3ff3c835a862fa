"""Live sources of a store: which memories are from which source, when they were imported, and their vectors.

Memories are stored with the chunks and vectors of the source; nothing is embedded, and the vector index uses the imported vectors. A batch
is one transaction, so an interrupted snapshot can be resumed. A memory that its source no longer has is deleted, and restored when the
source has it again; one that a user deleted stays deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench import records
from cems_workbench.errors import StoreError
from cems_workbench.store import memories, relations
from cems_workbench.store import rows as tables
from cems_workbench.store.chunks import given_tables, put_given
from cems_workbench.store.database import Database
from cems_workbench.store.search.entries import WHOLE_MEMORY, EntryId, entry_id
from cems_workbench.store.text_rule import chunk_text, searched_text

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_COLUMNS = "id, address, mapping, probe, secret_from, dimension, embedder, model_id, begun_at, taken_at, text_form"


DUCKDB_VECTOR_ROWS = 2_048
"""Rows whose texts DuckDB holds in memory at once when it writes a table to its file (one of its vectors)."""
TEXT_MEMORY_FACTOR = 2
"""Memory for that, relative to the size of the texts; measured: below 1.2 for 600 texts of 1 MB."""
KEY_BYTES = 240
"""Memory for the two keys of a row while rows are written; 195 bytes were measured."""
MAX_AROUND_CHARS = 20_000
"""More text around a content is not kept."""
UPDATE_BYTES = 128_000_000
"""Additional memory for updates, which keep the old texts until the commit; inserts do not."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A source as saved in the store, with the number of its memories, and of those that a user deleted."""

    id: int
    address: str
    mapping: Mapping[str, Any] | None
    probe: Mapping[str, Any]
    """Its SourceInfo at the last import, as JSON values."""
    secret_from: str
    dimension: int | None
    embedder: str | None
    """The setting of the embedder that made its vectors; None while unknown."""
    model_id: str | None
    begun_at: datetime
    taken_at: datetime | None
    """Start of the last complete snapshot; None before the first."""
    memories: int = 0
    deleted: int = 0
    text_form: str | None = None
    """What the vectors are made of (CONTENT, a name of `SampleText.embedded`, one of TITLE_FORMS); empty if no text reproduces them, None
    if that was not examined."""

    @property
    def distance(self) -> str:
        """How the source compares vectors, by its last import: cosine, l2 or ip."""
        return str(self.probe.get("distance", "cosine"))

    @property
    def complete(self) -> bool:
        return self.taken_at is not None and self.taken_at >= self.begun_at


UNIT_TOLERANCE = 1e-3
"""Largest difference from 1 of a length that counts as 1: a half-precision vector is off by less than 5e-4."""


@dataclass(frozen=True, slots=True)
class VectorLengths:
    """The lengths of `count` vectors: the least and the greatest but for those of `zeros`, which have length 0."""

    count: int = 0
    zeros: int = 0
    least: float = 0.0
    most: float = 0.0

    @property
    def unit(self) -> bool:
        """Whether all but the zeros have length 1; of no vectors it is so."""
        return self.count == self.zeros or max(abs(self.least - 1), abs(self.most - 1)) <= UNIT_TOLERANCE

    @property
    def words(self) -> str:
        """ "0.8 to 2.1", or one number."""
        least, most = f"{self.least:.3g}", f"{self.most:.3g}"
        return least if least == most else f"{least} to {most}"


NO_VECTORS = VectorLengths()


CONTENT, UNPROVEN = "content", ""
"""The text that is the content, or that of a chunk, alone; and none, for vectors that are searched although no text reproduces them."""
AROUND = "around the content"
"""The name, in `source_texts`, of what the only chunk of a memory has around the memory's content."""
TITLE_FORMS: Mapping[str, str] = {
    "title and content": "\n",
    "title, a blank line and content": "\n\n",
    "title, a full stop and content": ". ",
    "title, a colon and content": ": ",
    "title, a space and content": " ",
}
"""What is between title and content, by the name of the text."""
PREFIXES = ("passage: ", "search_document: ", "document: ", "title: none | text: ")
"""What models want before a text that is stored: E5, nomic-embed-text, Jina and Arctic's relatives, EmbeddingGemma."""
PREFIX_FORMS: Mapping[str, str] = {f"content after {prefix!r}": prefix for prefix in PREFIXES}


@dataclass(frozen=True, slots=True, eq=False)
class SampleText:
    """A text of a source with its vector, and the other texts by name that it may be made of."""

    id: EntryId
    content: str
    title: str | None
    vector: NDArray[np.float32]
    embedded: Mapping[str, records.EmbeddedText]

    def of(self, form: str) -> str:
        """The text of this name; the content if this row has none of it."""
        return embedded_as(form, self.embedded, self.title).of(self.content)


def embedded_as(form: str, embedded: Mapping[str, records.EmbeddedText], title: str | None) -> records.EmbeddedText:
    """The text of this name, of a row with these texts and title; the content alone if the row has none of that name."""
    if form in TITLE_FORMS and title:
        return records.EmbeddedText(title + TITLE_FORMS[form])
    if form in PREFIX_FORMS:
        return records.EmbeddedText(PREFIX_FORMS[form])
    return embedded.get(form) or records.EmbeddedText()


@dataclass(frozen=True, slots=True)
class TextPart:
    """An entry to embed: the memory's title, the content of the memory or chunk, and its text by the store's own rules."""

    id: EntryId
    title: str | None
    content: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class ImportRows:
    """Memories as rows of the store's tables, built without the store, so that a thread can do it during writes."""

    ids: list[str]
    kept: list[str]
    """The ids that the source does not keep as deleted."""
    sizes: NDArray[np.int64]
    """Bytes of every text, of memories and of chunks."""
    memories: pa.Table
    chunks: pa.Table
    cut: pa.Table
    vectors: pa.Table
    texts: pa.Table
    """Of `source_texts`."""
    markers: pa.Table

    @classmethod
    def of(cls, taken: Sequence[records.TakenMemory], rule: records.TextRule = records.DEFAULT_TEXT_RULE) -> ImportRows:
        """Rows by the store's text `rule`. Chunks are numbered from 0 in the order of the source's numbers; a memory
        without chunks is marked, so that it is not chunked."""
        sha = cache(tables.text_sha)  # a document of one chunk has the same text twice
        ids = [each.memory.id for each in taken]
        texts = [text for each in taken for text in (each.memory.content, *(chunk.text for chunk in each.chunks))]
        chunks, cut = given_tables(
            {
                each.memory.id: [
                    (
                        records.Chunk(each.memory.id, i, chunk.text, chunk.start),
                        chunk.titled,
                        sha(_searched(each, chunk, rule)),
                    )
                    for i, chunk in enumerate(_ordered(each))
                ]
                for each in taken
            },
            {each.memory.id: sha(each.memory.content) for each in taken},
        )
        return cls(
            ids=ids,
            kept=[each.memory.id for each in taken if not each.marker.startswith(records.DELETED_MARK)],
            # ASCII text has as many bytes as characters, and need not be encoded.
            sizes=np.array([len(text) if text.isascii() else len(text.encode()) for text in texts], np.int64),
            memories=memories.staging([each.memory for each in taken], sha, rule),
            chunks=chunks,
            cut=cut,
            vectors=_vectors_table(list(_vectors(taken, sha, rule))),
            texts=_texts_table(taken),
            markers=_markers_table(ids, [each.marker for each in taken]),
        )


class _MemoryNeed:
    """The memory that DuckDB needs while rows are written: for keys, and for the texts that it holds at once."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        longest = f"SELECT strlen(content) AS size FROM {{}} ORDER BY size DESC LIMIT {DUCKDB_VECTOR_ROWS}"
        sizes = [size for table in ("memories", "chunks") for size in tables.column(cursor, longest.format(table))]
        self._longest = np.sort(np.array(sizes, np.int64))[-DUCKDB_VECTOR_ROWS:]
        """Bytes of the longest texts: at worst DuckDB puts them into one of its vectors."""
        self._memories = int(tables.scalar(cursor, "SELECT count(*) FROM memories"))
        self._changing = self._memories > 0
        self.allow: Callable[[int], None] = lambda _: None

    @property
    def bytes(self) -> int:
        texts = TEXT_MEMORY_FACTOR * int(self._longest.sum())
        return KEY_BYTES * self._memories + texts + self._changing * UPDATE_BYTES

    def grow(self, memories: int, sizes: NDArray[np.int64]) -> None:
        """Add the need of further memories with texts of these sizes, and allow it."""
        self._memories += memories
        self._longest = np.sort(np.concatenate([self._longest, sizes]))[-DUCKDB_VECTOR_ROWS:]
        self.allow(self.bytes)


_SEARCHED = (
    "source_vectors AS v JOIN source_rows AS r ON r.memory_id = v.memory_id AND r.source_id = ? AND r.marker IS NOT NULL "
    "JOIN memories AS m ON m.id = v.memory_id LEFT JOIN chunks AS c ON c.memory_id = v.memory_id AND c.seq = v.seq "
    "LEFT JOIN source_texts AS t ON t.memory_id = v.memory_id AND t.seq = v.seq "
    "WHERE v.text_sha = coalesce(c.text_sha, m.text_sha) AND m.deleted_at IS NULL "
)
"""Tables of the vectors of a source that are searched: those of texts which were not edited or re-embedded here."""
ORIGINS = "origins of the vectors of source "
"""The beginning of a key in the table of meta values."""
COMPARED_CHARS = 400
"""Beginning of a text that every model reads."""


class Sources:
    """The sources of an open store; methods may be called from any thread."""

    def __init__(self, database: Database, hidden: set[str]) -> None:
        """`hidden` are the ids of deleted memories, shared with the open indexes."""
        self._database = database
        self._hidden = hidden
        self._needed: _MemoryNeed | None = None

    def read(self) -> list[SourceRecord]:
        """Every source, in the order of their first import."""
        with self._database.reading() as cursor:
            counted = {
                source_id: (live, deleted)
                for source_id, live, deleted in cursor.execute(
                    "SELECT s.source_id, count(*) FILTER (m.deleted_at IS NULL), count(m.deleted_at) FROM source_rows AS s "
                    "JOIN memories AS m ON m.id = s.memory_id WHERE s.marker IS NOT NULL GROUP BY s.source_id"
                ).fetchall()
            }
            rows = cursor.execute(f"SELECT {_COLUMNS} FROM sources ORDER BY id").fetchall()
        return [_record(row, counted.get(row[0], (0, 0))) for row in rows]

    def with_memories(self) -> list[SourceRecord]:
        return [record for record in self.read() if record.memories]

    def begin(
        self,
        address: str,
        probe: Mapping[str, Any],
        dimension: int | None,
        mapping: Mapping[str, Any] | None,
        secret_from: str,
        when: datetime,
    ) -> int:
        """Save the start of a snapshot; returns the id of the source. Raises StoreError if the store's vectors have
        another dimension than the source's."""
        text = None if mapping is None else json.dumps(mapping, ensure_ascii=False)
        with self._database.transaction() as cursor:
            others = cursor.execute(
                "SELECT address, dimension FROM sources WHERE dimension IS NOT NULL AND dimension <> ? "
                "AND (address = ? OR id IN (SELECT source_id FROM source_rows WHERE marker IS NOT NULL))",
                [dimension, address],
            ).fetchall()
            if dimension is not None and others:
                other, size = others[0]
                raise StoreError(
                    f"{address} has vectors of {dimension} numbers, and the store those of {other} with {size}; "
                    "connect it with another --store"
                )
            known = cursor.execute("SELECT id FROM sources WHERE address = ?", [address]).fetchall()
            values = [
                text,
                json.dumps(probe, ensure_ascii=False),
                secret_from,
                dimension,
                tables.to_naive(when),
                address,
            ]
            if known:
                cursor.execute(
                    "UPDATE sources SET mapping = ?, probe = ?, secret_from = ?, dimension = coalesce(?, dimension), begun_at = ? "
                    "WHERE address = ?",
                    values,
                )
                return int(known[0][0])
            columns = "mapping, probe, secret_from, dimension, begun_at, address"
            return int(
                tables.scalar(cursor, f"INSERT INTO sources ({columns}) VALUES (?, ?, ?, ?, ?, ?) RETURNING id", values)
            )

    @contextmanager
    def bulk_writes(self) -> Iterator[None]:
        """A context for writing many memories quickly and with little memory. Raises StoreError."""
        needed = self._database.read(_MemoryNeed)
        try:
            with self._database.bulk_write(needed.bytes) as needed.allow:
                self._needed = needed
                yield
        finally:
            self._needed = None

    def finish(self, source_id: int, when: datetime) -> None:
        """Save that the snapshot started at `when` is complete."""
        with self._database.transaction() as cursor:
            cursor.execute("UPDATE sources SET taken_at = ? WHERE id = ?", [tables.to_naive(when), source_id])

    def name_embedder(self, source_id: int, embedder: str, model_id: str, text_form: str | None = None) -> None:
        """Save the embedder of a source's vectors: its setting and its model, and which text it embedded (`SourceRecord.text_form`)."""
        with self._database.transaction() as cursor:
            cursor.execute(
                "UPDATE sources SET embedder = ?, model_id = ?, text_form = ? WHERE id = ?",
                [embedder, model_id, text_form, source_id],
            )
            tables.bump_content_version(cursor)

    def forget(self, source_id: int) -> int:
        """Remove a source and its memories; returns their number."""
        with self._database.transaction() as cursor:
            ids = tables.column(cursor, "SELECT memory_id FROM source_rows WHERE source_id = ?", [source_id])
            # Its rows stay, without a marker: a later import restores the memories.
            count = self._delete(cursor, ids)
            cursor.execute("DELETE FROM sources WHERE id = ?", [source_id])
            tables.delete_meta(cursor, f"{ORIGINS}{source_id}")
        return count

    def changed(self, source_id: int, ids: Sequence[str], markers: Sequence[str]) -> list[str]:
        """The `ids` that are new or have another marker in the store, in their order."""
        same = (
            "SELECT s.id FROM staged_markers AS s JOIN source_rows AS r ON r.memory_id = s.id "
            "WHERE r.source_id = ? AND r.marker = s.marker"
        )
        with self._database.reading() as cursor, tables.staged(cursor, "staged_markers", _markers_table(ids, markers)):
            known = {*tables.column(cursor, same, [source_id])}
        return [each for each in ids if each not in known]

    def addresses(self, ids: Sequence[str]) -> dict[str, str]:
        """By memory the address of the live source that it is from; others are absent."""
        rows = self._database.rows(
            "SELECT r.memory_id, s.address FROM source_rows AS r JOIN sources AS s ON s.id = r.source_id "
            "WHERE r.marker IS NOT NULL AND r.memory_id IN (SELECT unnest(?))",
            [list(ids)],
        )
        return dict(rows)

    def put(self, source_id: int, rows: ImportRows) -> tables.RowCounts:
        """Write memories of a source in one transaction; they replace memories with the same ids."""
        import duckdb

        if not rows.ids:
            return tables.RowCounts()
        if self._needed:
            self._needed.grow(len(rows.ids), rows.sizes)
        try:
            return self._put(source_id, rows)
        except duckdb.OutOfMemoryException:  # long texts, compared with the existing ones
            with self._database.full_memory():
                return self._put(source_id, rows)

    def _put(self, source_id: int, rows: ImportRows) -> tables.RowCounts:
        with self._database.transaction() as cursor:
            with tables.staged(cursor, "staged_ids", rows.markers):
                existing = {*tables.column(cursor, "SELECT id FROM staged_ids SEMI JOIN memories USING (id)")}
            counts = memories.upsert(cursor, rows.memories, new=not existing, by=tables.FROM_SOURCE)
            # What the source keeps as deleted, unless a user has restored it since.
            newly_deleted = _mark_deleted(cursor, sorted(set(rows.ids) - set(rows.kept)))
            restore = (
                "UPDATE memories SET deleted_at = NULL, changed = ? WHERE deleted_at IS NOT NULL AND id IN "
                "(SELECT memory_id FROM source_rows WHERE (marker IS NULL OR starts_with(marker, ?)) AND memory_id IN "
                "(SELECT unnest(?))) RETURNING id"
            )
            kept = [tables.next_version(cursor), records.DELETED_MARK, rows.kept]
            restored = tables.column(cursor, restore, kept) if existing else []
            put_given(cursor, rows.chunks, rows.cut, new=not existing)
            _write_vectors(cursor, rows.vectors, existing)
            for table in ("source_texts", "source_rows"):
                if existing:
                    cursor.execute(f"DELETE FROM {table} WHERE memory_id IN (SELECT unnest(?))", [list(existing)])
            if rows.texts.num_rows:
                with tables.staged(cursor, "staged_texts", rows.texts):
                    cursor.execute("INSERT INTO source_texts SELECT * FROM staged_texts")
            with tables.staged(cursor, "staged_rows", rows.markers):
                cursor.execute("INSERT INTO source_rows SELECT id, ?, marker FROM staged_rows", [source_id])
            tables.delete_meta(cursor, f"{ORIGINS}{source_id}")
            tables.bump_content_version(cursor)
        # Only after the commit: the open indexes share this set.
        self._hidden.difference_update(restored, set(rows.kept) - existing)
        self._hidden.update(newly_deleted)
        return counts

    def hidden_there(self, source_id: int, when: datetime) -> tuple[int, int]:
        """How many live memories of a source have expired at a moment, and how many the source itself keeps as deleted."""
        expired, deleted = self._database.rows(
            "SELECT count(*) FILTER (m.deleted_at IS NULL AND m.valid_until <= ?), count(*) FILTER (starts_with(s.marker, ?)) "
            "FROM source_rows AS s JOIN memories AS m ON m.id = s.memory_id WHERE s.source_id = ? AND s.marker IS NOT NULL",
            [tables.to_naive(when), records.DELETED_MARK, source_id],
        )[0]
        return int(expired), int(deleted)

    def remove_absent(self, source_id: int, seen: Iterable[pa.Array]) -> int:
        """Delete the memories of a source that are not among the `seen` ids; returns their number."""
        import pyarrow as pa

        table = pa.table({"id": pa.chunked_array([*seen], pa.string())})
        with self._database.transaction() as cursor:
            with tables.staged(cursor, "staged_seen", table):
                gone = tables.column(
                    cursor,
                    "SELECT memory_id FROM source_rows WHERE source_id = ? AND marker IS NOT NULL "
                    "AND memory_id NOT IN (SELECT id FROM staged_seen)",
                    [source_id],
                )
            return self._delete(cursor, gone)

    def _delete(self, cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> int:
        if not ids:
            return 0
        # No marker tells a memory that the source lost, which may return, from one that a user deleted.
        cursor.execute("UPDATE source_rows SET marker = NULL WHERE memory_id IN (SELECT unnest(?))", [ids])
        for table in ("source_vectors", "source_texts"):
            cursor.execute(f"DELETE FROM {table} WHERE memory_id IN (SELECT unnest(?))", [ids])
        deleted = _mark_deleted(cursor, ids)
        if deleted:
            tables.bump_content_version(cursor)
            self._hidden.update(deleted)
        return len(deleted)

    def put_relations(
        self, source_id: int, edges: Iterable[Sequence[records.Relation]]
    ) -> tuple[tables.RowCounts, int]:
        """Replace the relations of a source; returns counts, and how many were deleted."""
        added = updated = total = 0
        seen: list[pa.Table] = []
        for portion in edges:
            with self._database.transaction() as cursor:
                ends = memories.known_ids(
                    cursor, list({end for edge in portion for end in (edge.source_id, edge.target_id)})
                )
                good = [edge for edge in portion if edge.source_id in ends and edge.target_id in ends]
                counts = relations.upsert(cursor, good, by=tables.FROM_SOURCE) if good else tables.RowCounts()
                if counts.added or counts.updated:
                    tables.bump_content_version(cursor)
            added, updated, total = added + counts.added, updated + counts.updated, total + len(good)
            seen.append(_keys(good))
        with self._database.transaction() as cursor:
            gone = self._unrelate(cursor, source_id, seen)
        return tables.RowCounts(added, updated, total - added - updated), gone

    def _unrelate(self, cursor: duckdb.DuckDBPyConnection, source_id: int, seen: Sequence[pa.Table]) -> int:
        """Delete the relations from memories of the source that were not seen."""
        import pyarrow as pa

        # The empty table gives the columns if nothing was seen.
        table = pa.concat_tables([*seen, _keys(())])
        with tables.staged(cursor, "staged_edges", table):
            gone = tables.scalar(
                cursor,
                "DELETE FROM relations AS r WHERE r.source_id IN (SELECT memory_id FROM source_rows WHERE source_id = ?) "
                # An edge that a person accepted here is not in the source.
                "AND r.author IS NULL AND NOT EXISTS "
                "(FROM staged_edges AS s WHERE s.source_id = r.source_id AND s.target_id = r.target_id AND s.kind = r.kind)",
                [source_id],
            )
        if gone:
            tables.bump_content_version(cursor)
        return int(gone)

    def vector_lengths(self, source_id: int) -> VectorLengths:
        """The lengths of a source's vectors, as they were imported."""
        found = self._database.rows(
            "SELECT count(*), count(*) FILTER (v.length = 0), min(v.length) FILTER (v.length > 0), max(v.length) "
            "FROM source_vectors AS v JOIN source_rows AS r ON r.memory_id = v.memory_id "
            "WHERE r.source_id = ? AND r.marker IS NOT NULL",
            [source_id],
        )[0]
        return VectorLengths(int(found[0]), int(found[1]), float(found[2] or 0), float(found[3] or 0))

    def with_zero_vector(self, ids: Set[str]) -> set[str]:
        """Those of these memories that have a vector of zeros."""
        zero = "SELECT memory_id FROM source_vectors WHERE length = 0 AND memory_id IN (SELECT unnest(?))"
        return {*self._database.read(tables.column, zero, [list(ids)])}

    def chunk_numbers(self, ids: Set[str]) -> dict[tuple[str, int], int]:
        """(memory id, source's number) -> store's number of each chunk with a vector."""
        rows = self._database.rows(
            "SELECT memory_id, source_seq, seq FROM source_vectors WHERE seq <> ? AND memory_id IN (SELECT unnest(?))",
            [WHOLE_MEMORY, list(ids)],
        )
        return {(memory_id, source_seq): seq for memory_id, source_seq, seq in rows}

    def sample(self, source_id: int, most: int) -> list[SampleText]:
        """`most` different texts of a source with their vectors, spread over its memories; long ones only if there are
        not enough others. Texts without a word and vectors of zeros prove nothing, and are left out."""
        distinct = (
            r"AND regexp_matches(coalesce(c.content, m.content), '\S') "
            "QUALIFY row_number() OVER (PARTITION BY coalesce(c.content, m.content) ORDER BY v.memory_id, v.seq) = 1 "
            "ORDER BY length(coalesce(c.content, m.content)) > 1000, hash(v.memory_id), v.seq LIMIT ?"
        )
        return [each for each in self._texts(source_id, distinct, [2 * most]) if each.vector.any()][:most]

    def embedded(self, source_id: int, most: int, first: Iterable[EntryId] = ()) -> list[SampleText]:
        """At most `most` texts with a word, with their vectors: those of `first`, then of memories edited after they
        were created. The others follow by chance, in the same order at every call, those of `sample` last."""
        names = [f"{memory_id}\x1f{WHOLE_MEMORY if seq is None else seq}" for memory_id, seq in first]
        order = (
            r"AND regexp_matches(coalesce(c.content, m.content), '\S') "
            "ORDER BY NOT list_contains(?, concat(v.memory_id, chr(31), v.seq)), coalesce(m.updated_at <= m.created_at, true), "
            "hash(v.memory_id) DESC, v.memory_id, v.seq LIMIT ?"
        )
        return self._texts(source_id, order, [names, most])

    def memories_embedded(self, ids: Sequence[str]) -> list[tuple[SourceRecord, SampleText]]:
        """The vectors of sources that are searched for these memories, with their texts."""
        return [
            (record, each)
            for record in self.read()
            if record.dimension is not None
            for each in self._texts(
                record.id, "AND v.memory_id IN (SELECT unnest(?)) ORDER BY v.memory_id, v.seq", [ids]
            )
        ]

    def _texts(self, source_id: int, rest: str, values: Sequence[object]) -> list[SampleText]:
        """Texts whose vectors are searched, with these; `rest` ends the query."""
        rows = self._database.rows(
            "SELECT v.memory_id, v.seq, coalesce(c.content, m.content), m.title, v.vector, t.texts FROM "
            + _SEARCHED
            + rest,
            [source_id, *values],
        )
        return [
            SampleText(entry_id(memory_id, seq), text, title, as_vector(blob), _read_texts(texts))
            for memory_id, seq, text, title, blob, texts in rows
        ]

    def faulty(self, source_id: int) -> tuple[list[EntryId], dict[EntryId, str]]:
        """Entries with a vector of zeros; and those with the vector of a different text, each with a memory of such a
        text. Texts differ if their first characters do without case, accents and spaces, which many models do not
        read."""
        text = f"left(regexp_replace(lower(strip_accents(coalesce(c.content, m.content))), '\\s', '', 'g'), {COMPARED_CHARS})"
        with self._database.reading() as cursor:
            zeros = cursor.execute(
                f"SELECT v.memory_id, v.seq FROM {_SEARCHED} AND v.length = 0 ORDER BY v.memory_id, v.seq", [source_id]
            ).fetchall()
            alike = cursor.execute(
                f"SELECT list([v.memory_id, v.seq::VARCHAR, {text}] ORDER BY v.memory_id, v.seq) FROM {_SEARCHED} AND v.length > 0 "
                f"GROUP BY v.vector HAVING count(DISTINCT {text}) > 1",
                [source_id],
            ).fetchall()
        shared = {}
        for (group,) in alike:
            for memory_id, seq, own in group:
                shared[entry_id(memory_id, int(seq))] = next(other for other, _, its in group if its != own)
        return [entry_id(*row) for row in zeros], shared

    def entries(self, source_id: int) -> set[EntryId]:
        rows = self._database.rows(f"SELECT v.memory_id, v.seq FROM {_SEARCHED}", [source_id])
        return {entry_id(*row) for row in rows}

    def keep_origins(self, source_id: int, found: Mapping[str, Any] | None) -> None:
        """Keep what was found of the origins of a source's vectors (`analysis/vector_origins.py`); None forgets it."""
        with self._database.transaction() as cursor:
            if found is None:
                tables.delete_meta(cursor, f"{ORIGINS}{source_id}")
            else:
                tables.write_meta(cursor, f"{ORIGINS}{source_id}", json.dumps(found, ensure_ascii=False))

    def kept_origins(self, source_id: int) -> dict[str, Any] | None:
        """What `keep_origins` kept; None if nothing was found since the last import."""
        kept = self._database.read(tables.read_meta, f"{ORIGINS}{source_id}")
        return None if kept is None else dict(json.loads(kept))

    def re_embed(self, ids: Sequence[str]) -> int:
        """Let the next refresh embed these memories instead of taking the vectors of their source; returns how many
        have one. A later import that finds the memory changed in the source takes that vector again."""
        with self._database.transaction() as cursor:
            forget = "UPDATE {} SET text_sha = '' WHERE text_sha <> '' AND memory_id IN (SELECT unnest(?)) RETURNING memory_id"
            found = sorted({*tables.column(cursor, forget.format("source_vectors"), [ids])})
            if found:
                cursor.execute(forget.format("embedded"), [found])
                memories.mark_changed(cursor, found, tables.next_version(cursor))
                tables.bump_content_version(cursor)
        return len(found)

    def embedded_texts(self, parts: Sequence[TextPart]) -> list[str]:
        """What an embedder gets for these entries; see `embedded_texts`."""
        return self._database.read(embedded_texts, parts)


def embedded_texts(cursor: duckdb.DuckDBPyConnection, parts: Sequence[TextPart]) -> list[str]:
    """What an embedder gets for entries: of a memory of a source the text that its vectors are made of, else their own
    text. An edited memory is so embedded as its source does it, with the metadata that it had there."""
    ids = list({part.id[0] for part in parts})
    forms = dict(
        cursor.execute(
            "SELECT r.memory_id, s.text_form FROM source_rows AS r JOIN sources AS s ON s.id = r.source_id "
            "WHERE s.text_form <> '' AND r.memory_id IN (SELECT unnest(?))",
            [ids],
        ).fetchall()
    )
    if not forms:
        return [part.text for part in parts]
    rows = cursor.execute(
        "SELECT memory_id, seq, texts FROM source_texts WHERE memory_id IN (SELECT unnest(?)) ORDER BY seq",
        [list(forms)],
    ).fetchall()
    own = {entry_id(memory_id, seq): _read_texts(texts) for memory_id, seq, texts in rows}
    # An edited content may be cut otherwise than the source did.
    first: dict[str, Mapping[str, records.EmbeddedText]] = {}
    for (memory_id, _), texts in own.items():
        if forms[memory_id] in texts:
            first.setdefault(memory_id, texts)

    def text_of(part: TextPart) -> str:
        form = forms.get(part.id[0])
        if form == CONTENT and AROUND in (around := own.get((part.id[0], None), {})):
            return around[AROUND].of(part.content)
        # A chunk that is cut here has its title before it as the chunk rule says.
        if form in (None, records.OWN_TEXT) or (form == CONTENT and part.id[1] is not None):
            return part.text
        texts: Mapping[str, records.EmbeddedText] = own.get(part.id, {})
        texts = texts if form in texts else first.get(part.id[0], {})
        return embedded_as(form, texts, part.title).of(part.content)

    return [text_of(part) for part in parts]


def _read_texts(texts: str | None) -> dict[str, records.EmbeddedText]:
    return {} if texts is None else {name: records.EmbeddedText(*values) for name, values in json.loads(texts).items()}


def as_vector(blob: bytes) -> NDArray[np.float32]:
    """A stored vector, shape (dimension,)."""
    # The stored bytes are little-endian on every machine.
    return np.frombuffer(blob, "<f4").astype(np.float32, copy=False)


def given_vectors(
    cursor: duckdb.DuckDBPyConnection, texts: Mapping[EntryId, str]
) -> tuple[dict[EntryId, NDArray[np.float32]], set[EntryId]]:
    """Imported vectors of these entries (each with the sha of its text), and the entries that must have no vector.

    A vector counts only if it was made from the present text. An entry that the source has without a vector must have none; an entry
    whose text was edited here, and every one of a source without any vectors, is in neither result, and is embedded.
    """
    ids = list({memory_id for memory_id, _ in texts})
    imported = tables.column(
        cursor,
        "SELECT r.memory_id FROM source_rows AS r JOIN sources AS s ON s.id = r.source_id "
        "WHERE s.dimension IS NOT NULL AND r.marker IS NOT NULL AND r.memory_id IN (SELECT unnest(?))",
        [ids],
    )
    if not imported:
        return {}, set()
    rows = cursor.execute(
        "SELECT memory_id, seq, text_sha, vector FROM source_vectors WHERE rowid IN (SELECT unnest(?))",
        [_vector_rows(cursor, imported)],
    ).fetchall()
    made_of = {entry_id(memory_id, seq): (sha, blob) for memory_id, seq, sha, blob in rows}
    found = {place: as_vector(made_of[place][1]) for place, sha in texts.items() if made_of.get(place, ("",))[0] == sha}
    known = set(imported)
    absent = {place for place in texts if place[0] in known and place not in made_of}
    return found, absent - _cut_here(cursor, absent, {memory_id for memory_id, seq in made_of if seq is not None})


def _cut_here(cursor: duckdb.DuckDBPyConnection, places: Set[EntryId], chunked: Set[str]) -> set[EntryId]:
    """Those entries that the source does not have because their memory was edited, and cut otherwise than there.
    `chunked` are the memories of which the source has chunks with vectors."""
    if not places:
        return set()
    rows = cursor.execute(
        "SELECT memory_id, seq FROM chunks WHERE NOT given AND memory_id IN (SELECT unnest(?))",
        [list({memory_id for memory_id, _ in places})],
    ).fetchall()
    cut = {entry_id(memory_id, seq) for memory_id, seq in rows}
    return {place for place in places if place in cut or (place[1] is None and place[0] in chunked)}


def check_embedder(cursor: duckdb.DuckDBPyConnection, model_id: str) -> None:
    """Raise StoreError if the vectors of a source are from another model than this one, or from an unknown one."""
    rows = cursor.execute(
        "SELECT address, dimension, model_id FROM sources AS s WHERE dimension IS NOT NULL AND model_id IS DISTINCT FROM ? "
        "AND EXISTS (FROM source_rows AS r WHERE r.source_id = s.id AND r.marker IS NOT NULL) ORDER BY id",
        [model_id],
    ).fetchall()
    for address, dimension, made_by in rows:
        if made_by is None:
            raise StoreError(
                f"nothing says which model made the {dimension} numbers of each vector of {address}, so they cannot be searched with "
                f"{model_id}; name it: connect {address} --embedder MODEL, or Sources on the Memories page"
            )
        raise StoreError(
            f"the vectors of {address} were made by {made_by}, and the embedder is {model_id}; set CEMS_WORKBENCH_EMBEDDER to the first"
        )


def _record(row: tuple[Any, ...], counts: tuple[int, int]) -> SourceRecord:
    id_, address, mapping, probe, secret_from, dimension, embedder, model_id, begun_at, taken_at, text_form = row
    begun, read = tables.to_aware(begun_at), None if mapping is None else json.loads(mapping)
    assert begun is not None
    made_by = secret_from, dimension, embedder, model_id
    return SourceRecord(
        id_, address, read, json.loads(probe), *made_by, begun, tables.to_aware(taken_at), *counts, text_form
    )


def _searched(taken: records.TakenMemory, chunk: records.TakenChunk, rule: records.TextRule) -> str:
    return chunk_text(taken.memory, chunk.text, rule) if chunk.titled else chunk.text


def _ordered(taken: records.TakenMemory) -> list[records.TakenChunk]:
    return sorted(taken.chunks, key=lambda chunk: chunk.seq)


def _vectors(
    taken: Sequence[records.TakenMemory], sha: Callable[[str], str], rule: records.TextRule
) -> Iterator[tuple[str, int, int | None, str, NDArray[np.float32]]]:
    for each in taken:
        if each.vector is not None and not each.chunks:
            yield each.memory.id, WHOLE_MEMORY, None, sha(searched_text(each.memory, rule)), each.vector
        for i, chunk in enumerate(_ordered(each)):
            if chunk.vector is not None:
                yield each.memory.id, i, chunk.seq, sha(_searched(each, chunk, rule)), chunk.vector


def _markers_table(ids: Sequence[str], markers: Sequence[str]) -> pa.Table:
    return tables.table_of("id string, marker string", list(zip(ids, markers, strict=True)))


def _vectors_table(rows: Sequence[tuple[str, int, int | None, str, NDArray[np.float32]]]) -> pa.Table:
    """Rows of `source_vectors`, with the lengths of the vectors; those of one dimension are written as one buffer, which is faster."""
    import pyarrow as pa

    vectors = [row[-1] for row in rows]
    if len({vector.size for vector in vectors}) == 1:
        matrix = np.ascontiguousarray(np.stack(vectors), "<f4")
        lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
        ends = pa.py_buffer(np.arange(len(rows) + 1, dtype=np.int64) * matrix[:1].nbytes)
        blobs = pa.Array.from_buffers(pa.large_binary(), len(rows), [None, ends, pa.py_buffer(matrix)])
    else:
        lengths = np.array([np.linalg.norm(vector) for vector in vectors], np.float64)
        blobs = pa.array([np.ascontiguousarray(vector, "<f4").tobytes() for vector in vectors], pa.large_binary())
    keys = tables.table_of("memory_id string, seq int64, source_seq int64, text_sha string", [row[:-1] for row in rows])
    return keys.append_column("vector", blobs).append_column("length", pa.array(lengths, pa.float32()))


def _around(taken: records.TakenMemory) -> dict[str, records.EmbeddedText]:
    """What the only chunk of a memory has around its content, as LangGraph's whole value; nothing if the content is not in it once."""
    content, text = taken.memory.content, taken.chunks[0].text
    if len(taken.chunks) > 1 or text == content or len(text) - len(content) > MAX_AROUND_CHARS:
        return {}
    # In JSON any other content would have to be escaped, whatever this one is.
    escapes: tuple[records.TextEscape, ...] = ("json", "ascii_json") if text.startswith(("{", "[")) else ("",)
    for escape in escapes:
        before, found, after = text.partition(records.EmbeddedText(escape=escape).of(content))
        if found and found not in after:
            return {AROUND: records.EmbeddedText(before, after, escape)}
    return {}


def _texts_table(taken: Sequence[records.TakenMemory]) -> pa.Table:
    rows = []
    for each in taken:
        own = enumerate(chunk.embedded for chunk in _ordered(each))
        for seq, texts in (*own, (WHOLE_MEMORY, _around(each) if each.chunks else each.embedded)):
            if texts:
                parts = {name: [text.before, text.after, text.escape] for name, text in texts.items()}
                rows.append((each.memory.id, seq, json.dumps(parts, ensure_ascii=False)))
    return tables.table_of("memory_id string, seq int64, texts large_string", rows)


def _vector_rows(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> list[int]:
    """The row numbers of the vectors of memories, read first: one query would read every vector of the table."""
    return tables.column(cursor, "SELECT rowid FROM source_vectors WHERE memory_id IN (SELECT unnest(?))", [ids])


def _mark_deleted(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> list[str]:
    """Mark memories deleted; returns the ids of those that were not."""
    mark = "UPDATE memories SET deleted_at = ?, changed = ? WHERE deleted_at IS NULL AND id IN (SELECT unnest(?)) RETURNING id"
    return (
        tables.column(cursor, mark, [tables.to_naive(datetime.now(UTC)), tables.next_version(cursor), ids])
        if ids
        else []
    )


def _write_vectors(cursor: duckdb.DuckDBPyConnection, table: pa.Table, existing: Set[str]) -> None:
    with tables.staged(cursor, "staged_vectors", table):
        if existing:
            # Mark changed vectors as stale in the vector index.
            cursor.execute(
                "UPDATE embedded AS e SET text_sha = '' FROM source_vectors AS v, staged_vectors AS s WHERE v.memory_id = e.memory_id "
                "AND v.seq = e.seq AND s.memory_id = v.memory_id AND s.seq = v.seq AND s.vector <> v.vector "
                "AND v.rowid IN (SELECT unnest(?))",
                [_vector_rows(cursor, list(existing))],
            )
            # Only after the comparison with the new vectors above.
            cursor.execute("DELETE FROM source_vectors WHERE memory_id IN (SELECT unnest(?))", [list(existing)])
        cursor.execute("INSERT INTO source_vectors BY NAME SELECT * FROM staged_vectors")


def _keys(edges: Sequence[records.Relation]) -> pa.Table:
    columns = "source_id string, target_id string, kind string"
    return tables.table_of(columns, [(edge.source_id, edge.target_id, edge.kind) for edge in edges])
