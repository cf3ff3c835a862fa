"""Putting one parsed input into the store: what can be kept, in what order, inside one transaction.

The order is memories, relations, queries, judgments, so that rows may refer to others of the same input. A row that
names something unknown, or that repeats another row's key, is reported and kept out; the rest goes in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, Relation, RowError
from cems_workbench.store import judgment_rows, memory_rows, query_rows, relation_rows, schema
from cems_workbench.store.reports import ImportReport, RowCounts

if TYPE_CHECKING:
    import duckdb

BATCH_ROWS = 10_000
BATCH_CHARS = 64_000_000
Row = TypeVar("Row")
Numbered = list[tuple[int, Row]]


def import_rows(cursor: duckdb.DuckDBPyConnection, parsed: ParsedInput, progress: Progress) -> ImportReport:
    """Write the rows of `parsed` with the caller's transaction and report on them.

    Raises whatever `progress` raises (Cancelled); the caller rolls back.
    """
    problems: list[RowError] = []
    memories, notes = _memories(cursor, parsed, progress, problems)
    version = int(schema.read_meta(cursor, "content_version") or 0)
    if memories.added or memories.updated:
        version = schema.bump_content_version(cursor)
    relations = _relations(cursor, parsed, problems)
    queries = _rows(_distinct(parsed, "queries", _qid, problems))
    query_counts = query_rows.upsert(cursor, queries) if queries else RowCounts()
    judgments, judgment_notes = _judgments(cursor, parsed, problems)
    return ImportReport(
        source=parsed.source,
        format=parsed.format,
        memories=memories,
        relations=relations,
        queries=query_counts,
        judgments=judgments,
        errors=(*parsed.errors, *problems),
        notes=(*parsed.notes, *notes, *judgment_notes),
        content_version=version,
    )


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


def _judgments(
    cursor: duckdb.DuckDBPyConnection, parsed: ParsedInput, problems: list[RowError]
) -> tuple[RowCounts, list[str]]:
    def key(judgment: Judgment) -> tuple[str, str, str]:
        return judgment.qid, judgment.memory_id, judgment.judge

    rows: Numbered[Judgment] = _distinct(parsed, "judgments", key, problems)
    if not rows:
        return RowCounts(), []
    memories = memory_rows.known_ids(cursor, [row.memory_id for _, row in rows])
    qids = query_rows.known_qids(cursor, [row.qid for _, row in rows])
    kept = []
    for number, judgment in rows:
        if judgment.qid not in qids:
            problems.append(_unknown(parsed.source, number, "qid", "query", judgment.qid))
        elif judgment.memory_id not in memories:
            problems.append(_unknown(parsed.source, number, "memory_id", "memory", judgment.memory_id))
        else:
            kept.append(judgment)
    return judgment_rows.upsert(cursor, kept) if kept else (RowCounts(), [])


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
