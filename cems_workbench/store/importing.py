"""Import of one parsed input into the store, in one transaction, or several if it is large.

Memories come first, then chunks, relations and recorded answers, and finally queries and judgments (the team's tables), so that rows can
refer to others of the same input. A row that refers to something unknown or repeats a key is reported and skipped. Queries and recorded
answers belong to a query set; judgments.py has the rules for judgments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cems_workbench.errors import StoreError
from cems_workbench.progress import Progress
from cems_workbench.records import (
    WHOLE_STORE,
    Chunk,
    GradeScale,
    Memory,
    ParsedInput,
    Query,
    Relation,
    RowError,
    TextRule,
)
from cems_workbench.store import (
    chunks,
    language,
    memories,
    queries,
    query_matching,
    query_sets,
    recorded_answers,
    relations,
    scales,
    stated_grades,
)
from cems_workbench.store.judgments import capped, import_judgments, without_unmade
from cems_workbench.store.meta import bump_content_version, read_content_version
from cems_workbench.store.query_matching import Match
from cems_workbench.store.query_sets import QuerySet
from cems_workbench.store.rows import NO_ROWS, RowCounts
from cems_workbench.store.scales import StatedScale
from cems_workbench.store.text_rule import searched_text, text_rule

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from cems_workbench.store.database import Database
    from cems_workbench.store.team.session import Session, TeamTables

BATCH_ROWS = 10_000
BATCH_CHARS = 64_000_000
Row = TypeVar("Row")
Numbered = list[tuple[int, Row]]
DEFAULT_SET = "all"
"""The query set for inputs without a name."""
ANYTHING = ("queries", "query", "test", "dev", "train", "questions", "qrels", "")
"""Generic file names; the folder's name is used instead."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What one import is asked to do, the same for a command, a page and the API; every field has a default.

    The queries go into `query_set`, by default one named after the input; `scale` changes its scale, or that of the judged queries
    (`scales.py`). Inputs imported with the same `when` (default: now) make one version of a set. `match` says whether words that differ
    only by case, blanks or marks are the same query (`query_matching.py`). `grades` states the grades of ratings that are fractions or
    words, by value or range (`stated_grades.py`). `relevant_from` is the lowest relevant grade of the set whose scale it is.
    """

    query_set: str | None = None
    scale: GradeScale | None = None
    when: datetime | None = None
    match: Match = "relaxed"
    grades: Mapping[str, int] | None = None
    relevant_from: int | None = None

    @property
    def stated(self) -> StatedScale | None:
        """What the import states of a set's scale, None if it states nothing."""
        if self.scale is None and self.relevant_from is None:
            return None
        return StatedScale(self.scale, self.relevant_from)


DEFAULT_OPTIONS = ImportOptions()


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The outcome of importing one input: counts per kind, skipped rows, notes, and the query sets with a new version."""

    source: str
    format: str
    memories: RowCounts = NO_ROWS
    relations: RowCounts = NO_ROWS
    queries: RowCounts = NO_ROWS
    judgments: RowCounts = NO_ROWS
    chunks: RowCounts = NO_ROWS
    answers: RowCounts = NO_ROWS
    errors: tuple[RowError, ...] = ()
    notes: tuple[str, ...] = ()
    content_version: int = 0
    query_sets: tuple[QuerySet, ...] = ()


def import_input(
    database: Database,
    team: TeamTables,
    parsed: ParsedInput,
    progress: Progress,
    options: ImportOptions = DEFAULT_OPTIONS,
) -> ImportReport:
    """Write the valid rows of `parsed` in one transaction and report on them; none if an error is raised.

    Exception: full batches of memories are committed first, one by one, so that other processes wait for one batch at most; they are kept.
    Queries and judgments are in the same transaction, or with a team's database in a separate one after it. Raises what
    `progress` raises (Cancelled).
    """
    parsed = stated_grades.with_stated_grades(parsed, options.grades)
    problems: list[RowError] = []
    rows = _rows(_distinct(parsed, "memories", _memory_id, problems))
    with database.reading() as cursor:
        rule = text_rule(cursor)
    *early, last = _batches(rows)
    added = updated = done = 0
    for batch in early:
        progress("importing memories", done, len(rows))
        # Outside the transaction: other processes wait only for the write.
        staged = memories.staging(batch, rule=rule)
        with database.transaction() as cursor:
            language.detect_once(cursor, (searched_text(memory, rule) for memory in parsed.memories))
            counts = memories.upsert(cursor, staged)
            if counts.added or counts.updated:
                bump_content_version(cursor)
        added, updated, done = added + counts.added, updated + counts.updated, done + len(batch)
    before, staged = RowCounts(added, updated, done - added - updated), memories.staging(last, rule=rule)
    put = _Put(options.when or datetime.now(UTC), options.query_set or set_name(parsed.source), options)
    with database.transaction() as cursor:
        own = _import_own(cursor, parsed, rows, (staged, before), problems, progress, put.name, rule)
        # In one database all rows of an input are committed together.
        session = team.beside(cursor)
        if session is not None:
            return _import_shared(session, own, put)

    def share() -> ImportReport:
        with team.transaction() as session:
            return _import_shared(session, own, put)

    if not (own.parsed.queries or own.parsed.judgments):
        return own.report
    try:
        return team.persist(share)
    except StoreError as error:
        raise StoreError(f"{error}; memories are stored, queries and judgments are not: repeat the import") from None


@dataclass(frozen=True, slots=True)
class _Put:
    """The target query set and the time of the import."""

    when: datetime
    name: str
    options: ImportOptions


@dataclass(frozen=True, slots=True)
class _Own:
    """The result for the rows in the store's own tables; `parsed` is the input with the store's ids.

    `known` are the judged memories that exist in the store, `problems` the rows skipped so far.
    """

    parsed: ParsedInput
    known: set[str]
    report: ImportReport
    problems: tuple[RowError, ...]


def _import_own(
    cursor: duckdb.DuckDBPyConnection,
    parsed: ParsedInput,
    rows: Sequence[Memory],
    left: tuple[pa.Table, RowCounts],
    problems: list[RowError],
    progress: Progress,
    name: str,
    rule: TextRule,
) -> _Own:
    """Write the remaining rows of the store's own tables: memories (the table in `left`, with the counts of the committed ones), chunks,
    relations and answers."""
    if parsed.memories:
        language.detect_once(cursor, (searched_text(memory, rule) for memory in parsed.memories))
    memory_counts, notes = _import_memories(cursor, rows, left, progress)
    chunk_counts = _import_chunks(cursor, parsed, problems)
    version = read_content_version(cursor)
    changed_now = memory_counts.added + memory_counts.updated > left[1].added + left[1].updated
    if changed_now or chunk_counts.added or chunk_counts.updated:
        version = bump_content_version(cursor)
    relation_counts = _import_relations(cursor, parsed, problems)
    # After the memories: answers refer to them by id.
    parsed, answer_notes = recorded_answers.resolve(cursor, parsed, problems)
    answer_counts = RowCounts()
    if parsed.answers:
        answer_counts = recorded_answers.put(cursor, name, Path(parsed.source).name, parsed.answers)
    known = memories.known_ids(cursor, list({judgment.memory_id for judgment in parsed.judgments}))
    report = ImportReport(
        source=parsed.source,
        format=parsed.format,
        memories=memory_counts,
        relations=relation_counts,
        chunks=chunk_counts,
        answers=answer_counts,
        errors=_by_row(parsed.errors, problems),
        notes=(*parsed.notes, *notes, *answer_notes),
        content_version=version,
    )
    return _Own(parsed, known, report, tuple(problems))


def _import_shared(session: Session, own: _Own, put: _Put) -> ImportReport:
    """Write queries and judgments, the team's tables; returns the whole report."""
    parsed, matched = query_matching.resolve_words(session, own.parsed, put.name, put.options.match)
    problems = list(own.problems)
    scale = scales.settled(session, put.name, put.options.stated or StatedScale()) if parsed.queries else None
    if scale is not None:
        parsed = without_unmade(parsed, own.known, put.name, scale, problems)
    asked = _rows(_distinct(parsed, "queries", _qid, problems))
    query_counts, changed = RowCounts(), list[QuerySet]()
    if asked:
        query_counts = queries.upsert(session, asked)
        changed = _put_in_sets(session, parsed, asked, put, scale)
    elif put.options.stated is not None and parsed.judgments:
        changed = _rescaled(session, parsed, put.options.stated, put)
    judgment_counts, judgment_notes = import_judgments(session, parsed, own.known, problems, put.when)
    return replace(
        own.report,
        queries=query_counts,
        judgments=judgment_counts,
        errors=_by_row(parsed.errors, problems),
        notes=(
            *own.report.notes,
            *matched,
            *_about_scales(session, parsed, put),
            *judgment_notes,
            *_contradicted(session, parsed),
        ),
        query_sets=tuple(changed),
    )


def _by_row(*errors: Sequence[RowError]) -> tuple[RowError, ...]:
    return tuple(sorted((each for some in errors for each in some), key=lambda error: (error.source, error.row)))


def _contradicted(session: Session, parsed: ParsedInput) -> list[str]:
    """A line for each query of the input that is marked unanswerable and has a relevant memory: the judgment counts."""
    qids = {query.qid for query in parsed.queries} | {judgment.qid for judgment in parsed.judgments}
    rows = session.rows(
        "SELECT q.qid, j.memory_id, j.grade, j.judge FROM queries AS q JOIN judgments AS j ON j.qid = q.qid "
        f"WHERE q.qid IN (SELECT unnest(?::text[])) AND j.memory_id <> '{WHOLE_STORE}' AND (q.answerable = FALSE OR EXISTS "
        f"(SELECT 1 FROM judgments AS s WHERE s.qid = j.qid AND s.memory_id = '{WHOLE_STORE}' AND s.grade = 0)) "
        "ORDER BY q.qid, j.memory_id, j.grade, j.judge",
        [list(qids)],
    )
    of_sets = query_sets.scales_of(session, [row[0] for row in rows])
    lines: dict[str, str] = {}
    for qid, memory_id, grade, judge in rows:
        if grade >= query_sets.relevant_from_among(of_sets.get(qid)):
            said = f"query {qid} is marked unanswerable, but {judge} judged {memory_id} {grade}"
            lines.setdefault(qid, f"{said}; both are kept, and the judgment counts")
    return capped(list(lines.values()), "more queries marked unanswerable have a relevant memory")


def set_name(source: str) -> str:
    """The query set's name for an input: that of the file, or of its folder if the file name is generic."""
    path = Path(source)
    stem, folder = path.stem.strip(), path.parent.name.strip()
    if stem.lower() in ANYTHING:
        return folder or stem or DEFAULT_SET
    return f"{folder}-{stem}" if folder and stem.isdigit() else stem


def _rescaled(session: Session, parsed: ParsedInput, stated: StatedScale, put: _Put) -> list[QuerySet]:
    """Give the set of judged queries that the store has the stated scale; returns the set if that changes it. Raises InputError."""
    judged = {judgment.qid for judgment in parsed.judgments}
    name = scales.judged_set(session, judged, put.options.query_set, stated)
    before = query_sets.get(session, name)
    after = scales.change(session, name, stated, put.when)
    return [after] if before is None or before.digest != after.digest else []


def _about_scales(session: Session, parsed: ParsedInput, put: _Put) -> list[str]:
    """The scale of each set of the judged queries if one was stated, and what to know of it."""
    of_sets: dict[str, GradeScale] = {}
    for each in query_sets.scales_of(session, list({judgment.qid for judgment in parsed.judgments})).values():
        of_sets |= each
    stated = put.options.stated
    said = [
        f"query set {name}: grades {scale}, relevant from {scale.relevant_from}"
        for name, scale in of_sets.items()
        if stated is not None and (stated.scale is None or str(scale) == str(stated.scale))
    ]
    remarks = [line for name, scale in of_sets.items() for line in scales.remarks(name, scale)]
    return capped([*said, *remarks], "more notes on scales")


def _put_in_sets(
    session: Session, parsed: ParsedInput, asked: Sequence[Query], to: _Put, scale: GradeScale | None
) -> list[QuerySet]:
    """Put the queries into the set, and update the other sets that contain them; returns the changed sets."""
    before = {each.name: each.digest for each in query_sets.latest(session)}
    put = query_sets.put(session, to.name, {Path(parsed.source).name: asked}, to.when, scale)
    changed = (put, *query_sets.follow_queries(session, to.when))
    return [each for each in changed if before.get(each.name) != each.digest]


def _import_memories(
    cursor: duckdb.DuckDBPyConnection, rows: Sequence[Memory], left: tuple[pa.Table, RowCounts], progress: Progress
) -> tuple[RowCounts, list[str]]:
    if not rows:
        return RowCounts(), []
    last, before = left
    progress("importing memories", before.total, len(rows))
    counts = memories.upsert(cursor, last)
    progress("importing memories", len(rows), len(rows))
    deleted = memories.deleted_ids(cursor).intersection(memory.id for memory in rows)
    notes = (
        [f"{len(deleted)} of these memories were deleted here and stay deleted, e.g. {min(deleted)}"] if deleted else []
    )
    return RowCounts(
        before.added + counts.added, before.updated + counts.updated, before.unchanged + counts.unchanged
    ), notes


def _batches(rows: Sequence[Memory]) -> list[Sequence[Memory]]:
    """Slices limited in rows and characters, so that progress is visible and a batch fits in memory twice."""
    batches: list[Sequence[Memory]] = []
    start = chars = 0
    for position, memory in enumerate(rows):
        # `chars`: otherwise a text above the limit would leave an empty batch before it.
        if position - start >= BATCH_ROWS or (chars and chars + len(memory.content) > BATCH_CHARS):
            batches.append(rows[start:position])
            start, chars = position, 0
        chars += len(memory.content)
    return [*batches, rows[start:]]


def _import_chunks(cursor: duckdb.DuckDBPyConnection, parsed: ParsedInput, problems: list[RowError]) -> RowCounts:
    def key(chunk: Chunk) -> tuple[str, int]:
        return chunk.memory_id, chunk.seq

    rows: Numbered[Chunk] = _distinct(parsed, "chunks", key, problems)
    if not rows:
        return RowCounts()
    known = memories.known_ids(cursor, list({chunk.memory_id for _, chunk in rows}))
    for number, chunk in rows:
        if chunk.memory_id not in known:
            problems.append(_unknown(parsed.source, number, "document_id", "memory", chunk.memory_id))
    return chunks.give(cursor, [chunk for _, chunk in rows if chunk.memory_id in known])


def _import_relations(cursor: duckdb.DuckDBPyConnection, parsed: ParsedInput, problems: list[RowError]) -> RowCounts:
    def key(relation: Relation) -> tuple[str, str, str]:
        return relation.source_id, relation.target_id, relation.kind

    rows: Numbered[Relation] = _distinct(parsed, "relations", key, problems)
    if not rows:
        return RowCounts()
    known = memories.known_ids(cursor, [end for _, row in rows for end in (row.source_id, row.target_id)])
    good = []
    for number, relation in rows:
        if relation.source_id not in known:
            problems.append(_unknown(parsed.source, number, "source_id", "memory", relation.source_id))
        elif relation.target_id not in known:
            problems.append(_unknown(parsed.source, number, "target_id", "memory", relation.target_id))
        else:
            good.append(relation)
    return relations.upsert(cursor, good) if good else RowCounts()


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
    """The first row of each key of one kind; a later, different one is reported, an identical one is not.

    Rows are numbered by `parsed.extra["rows"][kind]` (line numbers, if the reader has them), otherwise by position.
    """
    rows: Sequence[Row] = getattr(parsed, kind)
    numbers = parsed.extra.get("rows", {}).get(kind) or range(1, len(rows) + 1)
    first: dict[Hashable, tuple[int, Row]] = {}
    for number, row in zip(numbers, rows, strict=True):
        name = key(row)
        earlier, same = first.setdefault(name, (number, row))
        # Identity first: most keys occur once, and comparing long rows takes time.
        if same is not row and same != row:
            reason = f"{name!r} is already in row {earlier} with other values; the first is kept"
            problems.append(RowError(parsed.source, number, reason))
    return list(first.values())
