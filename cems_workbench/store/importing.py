"""Putting one parsed input into the store: what can be kept, in what order, inside one transaction.

The order is memories, relations, queries, judgments, so that rows may refer to others of the same input. A row that
names something unknown or repeats another row's key is reported and kept out; the rest goes in. Queries are put into a query
set; judgments have rules of their own (importing_judgments).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cems_workbench.progress import Progress
from cems_workbench.records import GradeScale, Memory, ParsedInput, Query, Relation, RowError
from cems_workbench.store import (
    importing_judgments,
    memory_rows,
    queries_by_words,
    query_rows,
    query_set_rows,
    relation_rows,
    schema,
)
from cems_workbench.store.reports import ImportReport, QuerySet, RowCounts

if TYPE_CHECKING:
    import duckdb

BATCH_ROWS = 10_000
BATCH_CHARS = 64_000_000
Row = TypeVar("Row")
Numbered = list[tuple[int, Row]]


ANYTHING = ("queries", "query", "test", "dev", "train", "questions", "qrels", "")
"""File names that say nothing about what is in the file; its folder's name says more."""


def import_rows(
    cursor: duckdb.DuckDBPyConnection,
    parsed: ParsedInput,
    progress: Progress,
    when: datetime,
    query_set: str | None = None,
    scale: GradeScale | None = None,
) -> ImportReport:
    """Write the rows of `parsed` with the caller's transaction and report on them.

    Its queries go into `query_set`, by default one named after the input. Raises whatever `progress` raises (Cancelled);
    the caller rolls back.
    """
    problems: list[RowError] = []
    parsed = queries_by_words.resolved(cursor, parsed)
    memories, notes = _memories(cursor, parsed, progress, problems)
    version = int(schema.read_meta(cursor, "content_version") or 0)
    if memories.added or memories.updated:
        version = schema.bump_content_version(cursor)
    relations = _relations(cursor, parsed, problems)
    queries = _rows(_distinct(parsed, "queries", _qid, problems))
    query_counts = query_rows.upsert(cursor, queries) if queries else RowCounts()
    sets = _put_in_sets(cursor, parsed, queries, query_set or set_name(parsed.source), scale, when) if queries else ()
    judgments, judgment_notes = importing_judgments.put(cursor, parsed, problems, when)
    return ImportReport(
        source=parsed.source,
        format=parsed.format,
        memories=memories,
        relations=relations,
        queries=query_counts,
        judgments=judgments,
        errors=tuple(sorted((*parsed.errors, *problems), key=lambda error: (error.source, error.row))),
        notes=(*parsed.notes, *notes, *judgment_notes),
        content_version=version,
        query_sets=tuple(sets),
    )


def set_name(source: str) -> str:
    """The name of the query set an input's queries are put into: that of the file, or of its folder where that says more."""
    path = Path(source)
    stem, folder = path.stem.strip(), path.parent.name.strip()
    if stem.lower() in ANYTHING:
        return folder or stem or query_set_rows.ALL
    return f"{folder}-{stem}" if folder and stem.isdigit() else stem


def _put_in_sets(
    cursor: duckdb.DuckDBPyConnection,
    parsed: ParsedInput,
    queries: Sequence[Query],
    name: str,
    scale: GradeScale | None,
    when: datetime,
) -> list[QuerySet]:
    """Put the queries into the set, and give other sets that share one of them its new words; returns what changed."""
    before = {one.name: one.digest for one in query_set_rows.read(cursor)}
    put = query_set_rows.put(cursor, name, {Path(parsed.source).name: queries}, when, scale)
    changed = (put, *query_set_rows.follow_queries(cursor, when))
    return [one for one in changed if before.get(one.name) != one.digest]


def _memories(
    cursor: duckdb.DuckDBPyConnection, parsed: ParsedInput, progress: Progress, problems: list[RowError]
) -> tuple[RowCounts, list[str]]:
    rows = _rows(_distinct(parsed, "memories", _memory_id, problems))
    if not rows:
        return RowCounts(), []
    added = updated = done = 0
    for batch in _batches(rows):
        progress("importing memories", done, len(rows))
        counts = memory_rows.upsert(cursor, batch)
        added, updated, done = added + counts.added, updated + counts.updated, done + len(batch)
    progress("importing memories", done, len(rows))
    deleted = memory_rows.deleted_ids(cursor).intersection(memory.id for memory in rows)
    notes = [f"{len(deleted)} of these memories were deleted here and stay so, e.g. {min(deleted)}"] if deleted else []
    return RowCounts(added, updated, done - added - updated), notes


def _batches(memories: Sequence[Memory]) -> list[Sequence[Memory]]:
    """Slices small enough in rows and characters that progress moves and a batch fits in memory twice."""
    batches: list[Sequence[Memory]] = []
    start = chars = 0
    for position, memory in enumerate(memories):
        if position - start >= BATCH_ROWS or (chars and chars + len(memory.content) > BATCH_CHARS):
            batches.append(memories[start:position])
            start, chars = position, 0
        chars += len(memory.content)
    return [*batches, memories[start:]]


def _relations(cursor: duckdb.DuckDBPyConnection, parsed: ParsedInput, problems: list[RowError]) -> RowCounts:
    def key(relation: Relation) -> tuple[str, str, str]:
        return relation.source_id, relation.target_id, relation.kind

    rows: Numbered[Relation] = _distinct(parsed, "relations", key, problems)
    if not rows:
        return RowCounts()
    known = memory_rows.known_ids(cursor, [end for _, row in rows for end in (row.source_id, row.target_id)])
    kept = []
    for number, relation in rows:
        if relation.source_id not in known:
            problems.append(_unknown(parsed.source, number, "source_id", "memory", relation.source_id))
        elif relation.target_id not in known:
            problems.append(_unknown(parsed.source, number, "target_id", "memory", relation.target_id))
        else:
            kept.append(relation)
    return relation_rows.upsert(cursor, kept) if kept else RowCounts()


def _unknown(source: str, row: int, field: str, kind: str, name: str) -> RowError:
    return RowError(source, row, f"no {kind} {name!r} in the store; import it first", field)


def _memory_id(memory: Memory) -> str:
    return memory.id


def _qid(query: Query) -> str:
    return query.qid


def _rows(numbered: Numbered[Row]) -> list[Row]:
    return [row for _, row in numbered]


def _distinct(
    parsed: ParsedInput, kind: str, key: Callable[[Row], Hashable], problems: list[RowError]
) -> Numbered[Row]:
    """The rows of one kind with the first of each key; a later one that differs is reported, a repetition is not.

    Rows are numbered by `parsed.extra["rows"][kind]` (line numbers, where the reader gives them), else by position.
    """
    rows: Sequence[Row] = getattr(parsed, kind)
    numbers = parsed.extra.get("rows", {}).get(kind) or range(1, len(rows) + 1)
    first: dict[Hashable, tuple[int, Row]] = {}
    for number, row in zip(numbers, rows, strict=True):
        name = key(row)
        kept = first.setdefault(name, (number, row))
        if kept[1] is not row and kept[1] != row:
            reason = f"{name!r} stands already in row {kept[0]} with other values; the first is kept"
            problems.append(RowError(parsed.source, number, reason))
    return list(first.values())
