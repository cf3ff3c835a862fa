"""Chunks of memories, which are indexed separately, and the store's chunking rule.

The rule is chosen at import. Memories are chunked when the indexes are refreshed, because one rule depends on the embedder; the current
content and the current rule apply. Chunks imported with a memory are kept until its content changes. A memory without chunks is
indexed as one text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cems_workbench.errors import InputError, did_you_mean
from cems_workbench.models.chunking import Cutter, cutter
from cems_workbench.models.protocol import Embedder
from cems_workbench.progress import Progress
from cems_workbench.records import CHUNK_RULES, DEFAULT_CHUNK_RULE, Chunk, ChunkRule, Memory
from cems_workbench.store import memories
from cems_workbench.store import rows as tables
from cems_workbench.store.database import Database
from cems_workbench.store.text_rule import chunk_text, parts_to_cut, rule_suffix, searched_text, text_rule

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

GIVEN = "given"
_RULE, _LABEL = "chunk_rule", "chunk_label"
_CUT = "chunks_cut"
"""The content version up to which all memories are chunked by the current rule and the chunker of `_LABEL`."""
BEFORE_FIRST_VERSION = -1
"""A content version before the first."""
MAX_UNSPLIT_CHARS = 1_500
"""Longer texts may be truncated by an embedder of unknown limit: about 256 wordpieces, in characters."""
BATCH_MEMORIES = 4_000
"""Memories chunked in one transaction."""


@dataclass(frozen=True, slots=True)
class ChunkStatistics:
    """The rule, the number of live memories with chunks, and the number of chunks, of which `given` were imported."""

    rule: ChunkRule
    memories: int
    chunks: int
    given: int

    def __str__(self) -> str:
        """One line: "chunks: rule cems, 3 memories have 12, of which 4 were imported"."""
        given = f", of which {self.given} were imported" if self.given else ""
        there = f"{self.memories} memories have {self.chunks}{given}" if self.chunks else "no memory has any"
        return f"chunks: rule {self.rule}, {there}"


class Chunks:
    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def rule(self) -> ChunkRule:
        return self._database.read(rule)

    def choose(self, name: str) -> bool:
        """Set the chunking rule; False if it is already set. Raises InputError for an unknown rule. The chunks change
        at the next refresh of the indexes."""
        chosen = known_rule(name)
        with self._database.transaction() as cursor:
            if rule(cursor) == chosen:
                return False
            tables.write_meta(cursor, _RULE, chosen)
            # An empty store has no index that could become stale.
            if memories.count(cursor):
                tables.bump_content_version(cursor)
        return True

    def read(self, ids: Iterable[str]) -> dict[str, tuple[Chunk, ...]]:
        """By memory id the chunks in their order; memories that have none are absent."""
        return self._database.read(read, list(ids))

    def preview(self, memory: Memory, embedder: Embedder) -> tuple[tuple[Chunk, ...], dict[int | None, str]]:
        """The chunks that this memory would have if it were stored, and its indexed texts by chunk number. The key None
        has the text of a memory that would be indexed whole."""
        with self._database.reading() as cursor:
            by, texts = _cutter(cursor, embedder), text_rule(cursor)
            row = cursor.execute(
                "SELECT 1 FROM chunked WHERE memory_id = ? AND rule = ? AND text_sha = ?",
                [memory.id, GIVEN, tables.text_sha(memory.content)],
            ).fetchall()
            given = read(cursor, [memory.id]).get(memory.id, ()) if row else ()
        if given:
            return given, {chunk.seq: chunk.text for chunk in given}
        (pieces,) = by.cut([parts_to_cut(memory, texts)])
        cut = tuple(Chunk(memory.id, i, piece.text, piece.start) for i, piece in enumerate(pieces))
        if not cut:
            return (), {None: searched_text(memory, texts)}
        return cut, {chunk.seq: chunk_text(memory, chunk.text, texts) if by.titled else chunk.text for chunk in cut}

    def statistics(self) -> ChunkStatistics:
        with self._database.reading() as cursor:
            row = cursor.execute(
                "SELECT count(DISTINCT c.memory_id), count(c.memory_id), count(*) FILTER (c.given) "
                "FROM chunks AS c JOIN memories AS m ON m.id = c.memory_id WHERE m.deleted_at IS NULL"
            ).fetchall()[0]
            return ChunkStatistics(rule(cursor), *map(int, row))


def known_rule(name: str) -> ChunkRule:
    """The rule of that name. Raises InputError, with the nearest name, for an unknown one."""
    for each in CHUNK_RULES:
        if each == name:
            return each
    hint = did_you_mean(name, CHUNK_RULES)
    raise InputError(f"chunks: {name!r} is not one of {', '.join(CHUNK_RULES)}{hint}")


def rule(cursor: duckdb.DuckDBPyConnection) -> ChunkRule:
    return known_rule(tables.read_meta(cursor, _RULE) or DEFAULT_CHUNK_RULE)


def read(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> dict[str, tuple[Chunk, ...]]:
    """By memory id the chunks in their order; memories that have none are absent."""
    rows = cursor.execute(
        "SELECT memory_id, seq, content, start FROM chunks WHERE memory_id IN (SELECT unnest(?)) ORDER BY memory_id, seq",
        [list(ids)],
    ).fetchall()
    found: dict[str, list[Chunk]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(Chunk(*row))
    return {memory_id: tuple(chunks) for memory_id, chunks in found.items()}


def give(
    cursor: duckdb.DuckDBPyConnection,
    given: Sequence[Chunk],
    by: int | tables.Mark | None = tables.EDITED,
    *,
    replace: bool = True,
) -> tuple[tables.RowCounts, dict[str, str]]:
    """Store imported chunks unmodified, for memories that have a row; they replace the memories' earlier chunks.

    The chunks of a memory are renumbered from 0 in the order of their `seq`. The counts are of chunks. `by` as in `memories.upsert`; unless
    `replace`, the chunks that another import gave a memory stay: these memories are returned, by id with what brought their chunks.
    """
    by_memory: dict[str, list[Chunk]] = {}
    for chunk in sorted(given, key=lambda chunk: chunk.seq):
        by_memory.setdefault(chunk.memory_id, []).append(chunk)
    wanted = {
        memory_id: tuple(Chunk(memory_id, i, chunk.text, chunk.start) for i, chunk in enumerate(chunks))
        for memory_id, chunks in by_memory.items()
    }
    had = read(cursor, list(wanted))
    contents = dict(
        cursor.execute("SELECT id, content FROM memories WHERE id IN (SELECT unnest(?))", [list(wanted)]).fetchall()
    )
    known_as, theirs = dict[str, str](), dict[str, str]()
    for memory_id, sha, origin, brought_by in cursor.execute(
        f"SELECT c.memory_id, c.text_sha, c.origin, {tables.BROUGHT_BY} FROM chunked AS c LEFT JOIN imports AS i ON i.id = c.origin "
        "WHERE c.rule = ? AND c.memory_id IN (SELECT unnest(?))",
        [GIVEN, list(wanted)],
    ).fetchall():
        known_as[memory_id] = sha
        if isinstance(by, tables.Mark) and origin not in by.own:
            theirs[memory_id] = brought_by or tables.NOT_RECORDED
    new = [
        memory_id
        for memory_id, chunks in wanted.items()
        if had.get(memory_id) != chunks or known_as.get(memory_id) != tables.text_sha(contents[memory_id])
    ]
    left = {} if replace else {memory_id: theirs[memory_id] for memory_id in new if memory_id in theirs}
    new = [memory_id for memory_id in new if memory_id not in left]
    if isinstance(by, tables.Mark) and new:
        _keep_before(cursor, by, new)
    rows = [(chunk, True, False, tables.text_sha(chunk.text)) for memory_id in new for chunk in wanted[memory_id]]
    writer = by.id if isinstance(by, tables.Mark) else by
    marks = _marks([(memory_id, GIVEN, tables.text_sha(contents[memory_id])) for memory_id in new], writer)
    _replace(cursor, _table(rows), marks, tables.next_version(cursor))
    added = sum(len(wanted[memory_id]) for memory_id in new if memory_id not in had)
    changed = {*new, *left}
    unchanged = sum(len(chunks) for memory_id, chunks in wanted.items() if memory_id not in changed)
    return tables.RowCounts(added, len(rows) - added, unchanged), left


def _keep_before(cursor: duckdb.DuckDBPyConnection, by: tables.Mark, ids: Sequence[str]) -> None:
    """Keep the imported chunks of these memories, for an undo; chunks that are cut here are cut again."""
    foreign = "m.id IN (SELECT unnest(?)) AND (c.memory_id IS NULL OR " + tables.FOREIGN.format("c") + ")"
    values = [by.id, GIVEN, list(ids), by.inputs]
    cursor.execute(
        "INSERT INTO chunked_before (input, origin, memory_id, given, text_sha) "
        "SELECT ?, c.origin, m.id, c.memory_id IS NOT NULL, c.text_sha "
        f"FROM memories AS m LEFT JOIN chunked AS c ON c.memory_id = m.id AND c.rule = ? WHERE {foreign}",
        values,
    )
    cursor.execute(
        "INSERT INTO chunks_before (input, memory_id, seq, content, start) SELECT ?, c.memory_id, p.seq, p.content, p.start "
        "FROM chunked AS c JOIN chunks AS p USING (memory_id) JOIN memories AS m ON m.id = c.memory_id "
        f"WHERE c.rule = ? AND {foreign}",
        values,
    )


def take_back(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> None:
    """Remove the chunks of memories, so that the rule cuts them again."""
    memories.mark_changed(cursor, ids, tables.next_version(cursor))
    for table in ("chunks", "chunked"):
        cursor.execute(f"DELETE FROM {table} WHERE memory_id IN (SELECT unnest(?))", [list(ids)])


def given_tables(
    given: Mapping[str, Sequence[tuple[Chunk, bool, str]]], shas: Mapping[str, str]
) -> tuple[pa.Table, pa.Table]:
    """Chunks of memories, by id, as `put_given` takes them: each with whether its title is before it, and the sha of
    its searched text. `shas` are of the contents of these memories."""
    rows = [(chunk, True, titled, sha) for own in given.values() for chunk, titled, sha in own]
    return _table(rows), _marks([(memory_id, GIVEN, digest) for memory_id, digest in shas.items()], tables.FROM_SOURCE)


def put_given(cursor: duckdb.DuckDBPyConnection, chunks: pa.Table, cut: pa.Table, *, new: bool = False) -> None:
    """Replace the chunks of memories by these imported ones: the tables of `given_tables`. A memory without any is
    indexed whole under every rule, until its content changes. `new`: none of them had a row before."""
    _replace(cursor, chunks, cut, tables.next_version(cursor), new=new)


def cut_until(cursor: duckdb.DuckDBPyConnection) -> int:
    """The content version up to which all memories are chunked by the current rule, with the last embedder; -1 before the first time."""
    return int(tables.read_meta(cursor, _CUT) or BEFORE_FIRST_VERSION)


def refresh_chunks(database: Database, embedder: Embedder, progress: Progress) -> tuple[str, ...]:
    """Chunk the memories whose chunks are missing or outdated, in durable batches; returns notes. Raises what
    `progress` raises. The content version grows if unchanged memories are chunked differently, because the embedder
    changed."""
    with database.reading() as cursor:
        by = _cutter(cursor, embedder)
        before = tables.read_meta(cursor, _LABEL)
        version = tables.read_content_version(cursor)
        since = cut_until(cursor) if before == by.label else BEFORE_FIRST_VERSION
        waiting = _waiting(cursor, by, since)
        long = "SELECT count(*) FROM memories WHERE deleted_at IS NULL AND changed > ? AND length(content) > ?"
        unread = int(tables.scalar(cursor, long, [since, MAX_UNSPLIT_CHARS])) if by.note else 0
    if before != by.label:
        with database.transaction() as cursor:
            tables.write_meta(cursor, _LABEL, by.label)
            if before is not None and waiting:
                # A concurrent change since `version` must stay newer than the refresh.
                alone = tables.read_content_version(cursor) == version
                bumped = tables.bump_content_version(cursor)
                version = bumped if alone else version
    for start in range(0, len(waiting), BATCH_MEMORIES):
        progress("cutting chunks", start, len(waiting))
        _cut(database, waiting[start : start + BATCH_MEMORIES], by)
    if waiting:
        progress("cutting chunks", len(waiting), len(waiting))
    if since != version:
        with database.transaction() as cursor:
            tables.write_meta(cursor, _CUT, str(version))
    return (f"{unread} memories are long, and {by.note}",) if unread else ()


def _cutter(cursor: duckdb.DuckDBPyConnection, embedder: Embedder) -> Cutter:
    """The store's chunk rule, ready to cut what its text rule searches."""
    by, texts = cutter(rule(cursor), embedder), text_rule(cursor)
    # Lines before a text have a length that no column has.
    over = 0 if texts.fields and by.rule != "whole" else by.over
    return replace(by, label=by.label + rule_suffix(texts), over=over)


def _waiting(
    cursor: duckdb.DuckDBPyConnection, by: Cutter, since: int, among: Sequence[str] | None = None
) -> list[str]:
    """The live memories whose chunks are missing, or made by another rule or from another text. Only memories changed
    after the content version `since`, and only those in `among` if given."""
    return tables.column(
        cursor,
        "SELECT m.id FROM memories AS m LEFT JOIN chunked AS k ON k.memory_id = m.id "
        "WHERE m.deleted_at IS NULL AND m.changed > ? AND CASE "
        "WHEN k.memory_id IS NULL THEN length(m.content) + coalesce(length(m.title) + 2, 0) > ? "
        "WHEN k.rule = ? THEN k.text_sha <> sha256(m.content) ELSE k.rule <> ? OR k.text_sha <> m.text_sha END "
        f"{'' if among is None else 'AND m.id IN (SELECT unnest(?))'} ORDER BY m.id",
        [since, by.over, GIVEN, by.label, *([] if among is None else [list(among)])],
    )


def _cut(database: Database, ids: Sequence[str], by: Cutter) -> None:
    """Chunk these memories; those that change concurrently are left for the next refresh."""
    with database.reading() as cursor:
        found, rule_of_texts = memories.texts(cursor, ids), text_rule(cursor)
    # Outside the transaction: an embedder's tokenizer may take long, and writers would wait.
    cut = by.cut([parts_to_cut(text.memory, rule_of_texts) for text in found.values()])
    with database.transaction() as cursor:
        # Again, inside the transaction: a concurrent refresh may have chunked some of them.
        waiting = set(_waiting(cursor, by, BEFORE_FIRST_VERSION, ids))
        now = memories.texts(cursor, ids) if text_rule(cursor) == rule_of_texts else {}
        pairs = [
            (memory_id, text, own)
            for (memory_id, text), own in zip(found.items(), cut, strict=True)
            if memory_id in waiting and now.get(memory_id) == text
        ]
        rows = [
            (
                Chunk(memory_id, i, piece.text, piece.start),
                False,
                by.titled,
                tables.text_sha(chunk_text(text.memory, piece.text, rule_of_texts) if by.titled else piece.text),
            )
            for memory_id, text, pieces in pairs
            for i, piece in enumerate(pieces)
        ]
        marks = _marks([(memory_id, by.label, text.sha) for memory_id, text, _ in pairs])
        _replace(cursor, _table(rows), marks, tables.read_content_version(cursor), all_changed=False)


def _replace(
    cursor: duckdb.DuckDBPyConnection,
    chunks: pa.Table,
    cut: pa.Table,
    version: int,
    *,
    new: bool = False,
    all_changed: bool = True,
) -> None:
    """Replace the chunks of the memories in `cut` (`_marks`) by `_table` in a content version; `new` memories have none
    yet. Unless `all_changed`, a memory without chunks before and after is not marked as changed: its index entry is the
    same, and marking costs more than the rest."""
    if not cut.num_rows:
        return
    if not new:
        ids = cut["memory_id"].to_pylist()
        deleted = "DELETE FROM chunks WHERE memory_id IN (SELECT unnest(?)) RETURNING memory_id"
        had = {*tables.column(cursor, deleted, [ids])}
        changed = ids if all_changed else sorted(had | set(chunks["memory_id"].to_pylist()))
        memories.mark_changed(cursor, changed, version)
    if chunks.num_rows:
        with tables.staged(cursor, "staged_chunks", chunks):
            cursor.execute("INSERT INTO chunks SELECT * FROM staged_chunks")
    with tables.staged(cursor, "staged_chunked", cut):
        cursor.execute(f"INSERT {'' if new else 'OR REPLACE '}INTO chunked BY NAME SELECT * FROM staged_chunked")


def _marks(cut: Sequence[tuple[str, str, str]], origin: int | None = None) -> pa.Table:
    """(id, rule, sha of the chunked text) of each memory, and who gave the chunks; None: they are cut here."""
    columns = "memory_id large_string, rule large_string, text_sha large_string, origin int64"
    return tables.table_of(columns, [(*row, origin) for row in cut])


def _table(rows: Sequence[tuple[Chunk, bool, bool, str]]) -> pa.Table:
    """Chunks of the table `chunks`: (chunk, given, titled, sha) each."""
    columns = "memory_id large_string, seq int64, start int64, content large_string, given bool, titled bool, text_sha large_string"
    return tables.table_of(
        columns,
        [
            (chunk.memory_id, chunk.seq, chunk.start, chunk.text, given, titled, sha)
            for chunk, given, titled, sha in rows
        ],
    )
