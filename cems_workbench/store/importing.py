"""Import of one parsed input into the store, in one transaction, or several if it is large.

Memories come first, then chunks, relations and recorded answers, and finally queries and judgments (the team's tables), so that rows can
refer to others of the same input. A row that refers to something unknown or repeats a key is reported and skipped. Queries and recorded
answers belong to a query set; judgments.py has the rules for judgments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from cems_workbench import records
from cems_workbench.errors import StoreError, counted
from cems_workbench.progress import Progress
from cems_workbench.store import (
    chunks,
    judged_texts,
    language,
    memories,
    queries,
    query_matching,
    query_sets,
    queues,
    rebase,
    recorded_answers,
    relations,
    scales,
    stated_grades,
)
from cems_workbench.store.imports import KINDS, NAMED, Recorder
from cems_workbench.store.judgments import capped, import_judgments, without_unmade
from cems_workbench.store.query_matching import Match, envelope_notes
from cems_workbench.store.query_sets import QuerySet
from cems_workbench.store.rows import NO_ROWS, Mark, RowCounts, bump_content_version, read_content_version
from cems_workbench.store.scales import StatedScale
from cems_workbench.store.text_rule import searched_text, text_rule

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from cems_workbench.store.database import Database
    from cems_workbench.store.team import Session, TeamTables

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
    (`scales.py`). Inputs imported with the same `when` (default: now) are one event, and make one version of a set. `match` says whether
    words that differ only by case, blanks or marks are the same query (`query_matching.py`). `grades` states the grades of ratings that
    are fractions or words, by value or range (`stated_grades.py`). `relevant_from` is the lowest relevant grade of the set whose scale it
    is. Without `replace`, memories and queries that another file, a live source or an edit brought stay as they are.
    `queue` is a labelling queue to make of the pairs that the input lists without a judgment.
    """

    query_set: str | None = None
    scale: records.GradeScale | None = None
    when: datetime | None = None
    match: Match = "relaxed"
    grades: Mapping[str, int] | None = None
    relevant_from: int | None = None
    replace: bool = False
    queue: str | None = None
    texts: Mapping[str, str] | None = None
    """By id the texts of the judged memories, where the store has these under other ids."""
    outcome: Mapping[str, int] | None = None
    """What a rebase did to the judgments (`Rebase.outcome`), for the record."""

    @property
    def stated(self) -> StatedScale | None:
        """What the import states of a set's scale, None if it states nothing."""
        if self.scale is None and self.relevant_from is None:
            return None
        return StatedScale(self.scale, self.relevant_from)

    def recorded(self) -> dict[str, Any]:
        found = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in ("when", "texts") and value not in (each.default, {}):
                found[each.name] = str(value) if isinstance(value, records.GradeScale) else value
        return found


DEFAULT_OPTIONS = ImportOptions()


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The outcome of importing one input: counts per kind, skipped rows, notes, and the query sets with a new version.
    `event` is its number among the imports on record, 0 if it changed nothing; `clashes` counts the rows that stayed as
    another import brought them, `queue` is the labelling queue that it made."""

    source: str
    format: str
    memories: RowCounts = NO_ROWS
    relations: RowCounts = NO_ROWS
    queries: RowCounts = NO_ROWS
    judgments: RowCounts = NO_ROWS
    chunks: RowCounts = NO_ROWS
    answers: RowCounts = NO_ROWS
    errors: tuple[records.RowError, ...] = ()
    notes: tuple[str, ...] = ()
    content_version: int = 0
    query_sets: tuple[QuerySet, ...] = ()
    event: int = 0
    clashes: int = 0
    queue: str = ""

    @property
    def counts(self) -> dict[str, RowCounts]:
        return {kind: getattr(self, kind) for kind in KINDS}

    @property
    def changed(self) -> bool:
        return bool(self.query_sets) or any(counts.added or counts.updated for counts in self.counts.values())


def import_input(
    database: Database,
    team: TeamTables,
    parsed: records.ParsedInput,
    progress: Progress,
    options: ImportOptions = DEFAULT_OPTIONS,
) -> ImportReport:
    """Write the valid rows of `parsed` in one transaction and report on them; none if an error is raised.

    Exception: full batches of memories are committed first, one by one, so that other processes wait for one batch at most; they are kept.
    Queries and judgments are in the same transaction, or with a team's database in a separate one after it. Raises what
    `progress` raises (Cancelled).
    """
    of = _Import(stated_grades.with_stated_grades(parsed, options.grades), options, database.read(text_rule))
    rows = _rows(_distinct(of.parsed, "memories", attrgetter("id"), of.problems))
    if of.parsed.answers and not options.replace:
        # Before they are written: an answer belongs to its query, which may be another one in the store.
        of.mark = database.read(of.recorder.mark)
        team.persist(lambda: of.leave_others(team))
    *early, last = _batches(rows)
    before, done = RowCounts(), 0
    for batch in early:
        progress("importing memories", done, len(rows))
        # Outside the transaction: other processes wait only for the write.
        staged = memories.staging(batch, rule=of.rule)
        with database.transaction() as cursor:
            counts = of.put_memories(cursor, staged)
            if counts.added or counts.updated:
                of.recorder.keep(cursor, of.mark)
                bump_content_version(cursor)
        before, done = before + counts, done + len(batch)
    staged = memories.staging(last, rule=of.rule)
    with database.transaction() as cursor:
        of.put_own(cursor, rows, staged, before, progress)
        # In one database all rows of an input are committed together.
        session = team.beside(cursor)
        if session is not None:
            return of.finished(cursor, of.put_shared(session))
        if not (of.parsed.queries or of.parsed.judgments or of.parsed.extra.get("pairs")):
            return of.finished(cursor, of.report)
        of.recorder.keep(cursor, of.mark)

    def share() -> ImportReport:
        with team.transaction() as session:
            return of.put_shared(session)

    try:
        report = team.persist(share)
    except StoreError as error:
        raise StoreError(f"{error}; memories are stored, queries and judgments are not: repeat the import") from None
    with database.transaction() as cursor:
        of.mark = of.recorder.mark(cursor)
        return of.finished(cursor, report)


class _Import:
    """One input on its way into the store. `parsed` has the store's ids after `put_own`; `known` are then the judged
    memories that exist in the store, `problems` the rows skipped so far."""

    mark: Mark
    report: ImportReport
    known: set[str]

    def __init__(self, parsed: records.ParsedInput, options: ImportOptions, rule: records.TextRule) -> None:
        self.parsed, self.options, self.rule = parsed, options, rule
        self.when, self.name = options.when or datetime.now(UTC), options.query_set or set_name(parsed.source)
        self.file = Path(parsed.source).name
        self.recorder = Recorder(parsed, options.recorded(), self.when)
        self.clashes, self.problems = _Clashes(parsed, options.replace), list[records.RowError]()

    def leave_others(self, team: TeamTables) -> None:
        """Leave out the answers to queries that have other words in the store."""
        with team.reading() as session:
            others = queries.would_replace(session, self.parsed.queries, self.mark)
        other = {qid for qid, each in others.items() if not each.same_words}
        for answer in self.parsed.answers:
            if answer.qid in other:
                self.problems.append(
                    records.RowError(self.parsed.source, answer.row, _other_words(answer.qid, "answer"), "qid")
                )
        self.parsed = replace(
            self.parsed, answers=tuple(answer for answer in self.parsed.answers if answer.qid not in other)
        )

    def put_memories(self, cursor: duckdb.DuckDBPyConnection, staged: pa.Table) -> RowCounts:
        if self.parsed.memories:
            language.detect_once(cursor, (searched_text(memory, self.rule) for memory in self.parsed.memories))
        self.mark = self.recorder.mark(cursor)
        return self.clashes.upsert(cursor, staged, self.mark) if staged.num_rows else RowCounts()

    def put_own(
        self,
        cursor: duckdb.DuckDBPyConnection,
        rows: Sequence[records.Memory],
        staged: pa.Table,
        before: RowCounts,
        progress: Progress,
    ) -> None:
        """Write the rest of the store's own tables; `staged` is left of `rows`, `before` counts what is committed of them."""
        if rows:
            progress("importing memories", before.total, len(rows))
        put = self.put_memories(cursor, staged)
        deleted, notes = set[str](), list[str]()
        if rows:
            progress("importing memories", len(rows), len(rows))
            deleted = memories.deleted_ids(cursor).intersection(memory.id for memory in rows)
        if deleted:
            notes = [f"{len(deleted)} of these memories were deleted here and stay deleted, e.g. {min(deleted)}"]
        chunk_counts = self._put_chunks(cursor)
        version = read_content_version(cursor)
        if put.added or put.updated or chunk_counts.added or chunk_counts.updated:
            version = bump_content_version(cursor)
        relation_counts = self._put_relations(cursor)
        # After the memories: answers refer to them by id.
        parsed, answer_notes = recorded_answers.resolve(cursor, self.parsed, self.problems)
        answer_counts = RowCounts()
        if parsed.answers:
            answer_counts = recorded_answers.put(cursor, self.name, self.file, parsed.answers, self.mark)
        named = rebase.named(parsed)
        known = memories.known_ids(cursor, [*named | {name.strip() for name in named}])
        files = [name for name in named - known if "/" in name or Path(name).suffix]
        meant = memories.of_paths(cursor, files) if files else {}
        self.known = known | {*meant.values()}
        parsed = _renamed(parsed, "memory_id", {**_without_blanks(named, self.known), **meant})
        rebased = parsed.format == rebase.REBASE
        if parsed.judgments and not rebased:
            parsed, moves = rebase.followed(cursor, parsed, self.known, self.options.texts or {}, self.problems)
            notes += moves
            self.known |= memories.known_ids(cursor, [*(rebase.named(parsed) - self.known)]) if moves else set()
        self.parsed = parsed
        judged_texts.keep(cursor, {one.memory_id for one in parsed.judgments} & self.known, self.mark.id if rebased else 0)
        judged_texts.keep_given(cursor, parsed.extra.get("texts", {}), self.mark.id)
        self.report = ImportReport(
            source=parsed.source,
            format=parsed.format,
            memories=before + put,
            relations=relation_counts,
            chunks=chunk_counts,
            answers=answer_counts,
            errors=_by_row(parsed.errors, self.problems),
            notes=(*parsed.notes, *notes, *answer_notes, *envelope_notes(query.query for query in parsed.queries)),
            content_version=version,
        )

    def _put_chunks(self, cursor: duckdb.DuckDBPyConnection) -> RowCounts:
        rows: Numbered[records.Chunk] = _distinct(self.parsed, "chunks", attrgetter("memory_id", "seq"), self.problems)
        if not rows:
            return RowCounts()
        known = memories.known_ids(cursor, list({chunk.memory_id for _, chunk in rows}))
        for number, chunk in rows:
            if chunk.memory_id not in known:
                self.problems.append(_unknown(self.parsed.source, number, "document_id", chunk.memory_id))
        # The chunks of a memory that stays as it is stay with it.
        known -= self.clashes.of("memories")
        given = [chunk for _, chunk in rows if chunk.memory_id in known]
        counts, left = chunks.give(cursor, given, self.mark, replace=self.clashes.replace)
        self.clashes.add("chunks", left)
        return counts

    def _put_relations(self, cursor: duckdb.DuckDBPyConnection) -> RowCounts:
        rows: Numbered[records.Relation] = _distinct(
            self.parsed, "relations", attrgetter("source_id", "target_id", "kind"), self.problems
        )
        if not rows:
            return RowCounts()
        known = memories.known_ids(cursor, [end for _, row in rows for end in (row.source_id, row.target_id)])
        good = []
        for number, relation in rows:
            unknown = [end for end in ("source_id", "target_id") if getattr(relation, end) not in known]
            if unknown:
                self.problems.append(_unknown(self.parsed.source, number, unknown[0], getattr(relation, unknown[0])))
            else:
                good.append(relation)
        return relations.upsert(cursor, good, by=self.mark) if good else RowCounts()

    def put_shared(self, session: Session) -> ImportReport:
        """Write queries and judgments, the team's tables; returns the whole report. It may be repeated."""
        parsed, matched = query_matching.resolve_words(session, self.parsed, self.name, self.options.match)
        problems = list(self.problems)
        scale = scales.settled(session, self.name, self.options.stated or StatedScale()) if parsed.queries else None
        if scale is not None:
            parsed = without_unmade(parsed, self.known, self.name, scale, problems)
        asked = _rows(_distinct(parsed, "queries", attrgetter("qid"), problems))
        query_counts, changed = RowCounts(unchanged=len(parsed.extra.get("known", ()))), list[QuerySet]()
        others = {} if self.clashes.replace else queries.would_replace(session, asked, self.mark)
        self.clashes.add("queries", {qid: each.brought_by for qid, each in others.items() if each.contradicted})
        if asked:
            query_counts += queries.upsert(session, [query for query in asked if query.qid not in others], self.mark)
            query_counts += RowCounts(unchanged=sum(not each.contradicted for each in others.values()))
            # A query with the same words is in the set as the store has it; one with others is another query, unless the set has it.
            members = [others[query.qid].query if query.qid in others else query for query in asked]
            other = {qid for qid, each in others.items() if not each.same_words}
            had = {query.qid for query, _ in query_sets.members(session, self.name)} if other else set()
            of_set = [query for query in members if query.qid not in other - had]
            if self.parsed.extra.get("queries_by_words") and not self.parsed.extra.get("is_set"):
                # Such an input is without the queries that the store has; they stay in the set.
                new = {query.qid for query in of_set}
                earlier = query_sets.members(session, self.name)
                of_set = [
                    *(query for query, source in earlier if source == self.file and query.qid not in new),
                    *of_set,
                ]
            if of_set:
                matched += self._no_longer_in(session, of_set)
                changed = self._put_in_sets(session, of_set, scale)
            parsed = _without_judgments(parsed, other, problems)
        elif self.options.stated is not None and parsed.judgments:
            changed = self._rescaled(session, parsed, self.options.stated)
        blank = [judgment.qid for judgment in parsed.judgments if judgment.qid != judgment.qid.strip()]
        if blank:
            there = queries.known_qids(session, [*blank, *map(str.strip, blank)])
            parsed = _renamed(parsed, "qid", _without_blanks(blank, there))
        rebase.retire(session, parsed.extra.get(rebase.STALE, ()), self.when, self.mark)
        # A grade that moves is on the scale that it was given on.
        judged = {one.qid for one in parsed.judgments} if parsed.format != rebase.REBASE else set[str]()
        of_sets = query_sets.scales_of(session, list(judged))
        judgment_counts, judgment_notes = import_judgments(
            session, parsed, self.known, of_sets, problems, self.when, self.mark
        )
        return replace(
            self.report,
            queries=query_counts,
            judgments=judgment_counts,
            errors=_by_row(parsed.errors, problems),
            notes=(
                *self.report.notes,
                *matched,
                *self._about_scales(of_sets),
                *self._queue_of_pairs(session, parsed),
                *judgment_notes,
                *_contradicted(session, parsed),
            ),
            query_sets=tuple(changed),
            queue=(self.options.queue or "") if parsed.extra.get("pairs") else "",
        )

    def _rescaled(self, session: Session, parsed: records.ParsedInput, stated: StatedScale) -> list[QuerySet]:
        """Give the set of judged queries that the store has the stated scale; returns the set if that changes it. Raises InputError."""
        judged = {judgment.qid for judgment in parsed.judgments}
        name = scales.judged_set(session, judged, self.options.query_set, stated)
        before = query_sets.get(session, name)
        after = scales.change(session, name, stated, self.when)
        return [after] if before is None or before.digest != after.digest else []

    def _put_in_sets(
        self, session: Session, asked: Sequence[records.Query], scale: records.GradeScale | None
    ) -> list[QuerySet]:
        """Put the queries into the set, and update the other sets that contain them; returns the changed sets."""
        before = {each.name: each.digest for each in query_sets.latest(session)}
        put = query_sets.put(session, self.name, {self.file: asked}, self.when, scale)
        changed = (put, *query_sets.follow_queries(session, self.when))
        return [each for each in changed if before.get(each.name) != each.digest]

    def _no_longer_in(self, session: Session, members: Sequence[records.Query]) -> list[str]:
        """A note on the queries that a set loses: those of the input before it that has the same file name, be it another file."""
        kept = {query.qid for query in members}
        gone = [
            query.qid
            for query, source in query_sets.members(session, self.name)
            if source == self.file and query.qid not in kept
        ]
        if not gone:
            return []
        shown = ", ".join(gone[:NAMED]) + (" …" if gone[NAMED:] else "")
        return [
            f"query set {self.name} no longer has {counted(len(gone), 'queries')} of an earlier {self.file}, which this one replaces "
            f"there: {shown}; --query-set NAME puts a file into another set"
        ]

    def _about_scales(self, of_sets: Mapping[str, Mapping[str, records.GradeScale]]) -> list[str]:
        """The scale of each set of the judged queries if one was stated, and what to know of it."""
        scale_of = {name: scale for each in of_sets.values() for name, scale in each.items()}
        stated = self.options.stated
        said = [
            f"query set {name}: grades {scale}, relevant from {scale.relevant_from}"
            for name, scale in scale_of.items()
            if stated is not None and (stated.scale is None or str(scale) == str(stated.scale))
        ]
        remarks = [line for name, scale in scale_of.items() for line in scales.remarks(name, scale)]
        return capped([*said, *remarks], "more notes on scales")

    def _queue_of_pairs(self, session: Session, parsed: records.ParsedInput) -> list[str]:
        """Make a labelling queue of the pairs without a judgment, if the import asks for one; a note on it, or on how to get it."""
        pairs = list(dict.fromkeys(parsed.extra.get("pairs", ())))
        qids = queries.known_qids(session, list({qid for qid, _ in pairs})) if pairs else set()
        there = [pair for pair in pairs if pair[1] in self.known and pair[0] in qids]
        there.sort(key=lambda pair: pair[0])  # a reviewer judges one query after the other
        name = self.options.queue
        if not pairs:
            return [] if name is None else [f"--queue {name}: there is no pair without a judgment"]
        gone = (
            f"; left out: {counted(len(pairs) - len(there), 'pairs')} of a memory or query that the store does not have"
            if len(there) < len(pairs)
            else ""
        )
        if name is None or not there:
            way = "; --queue NAME makes a labelling queue of them" if there else ""
            return [f"pairs without a judgment: {len(there):,}{gone}{way}"]
        about = {rebase.MOVES: list(parsed.extra[rebase.MOVES])} if rebase.MOVES in parsed.extra else {"query_set": self.name}
        queues.make(session, name, there, self.when, {**about, "source": self.file})
        return [f"labelling queue {name}: {counted(len(there), 'pairs')} without a judgment{gone}"]

    def finished(self, cursor: duckdb.DuckDBPyConnection, report: ImportReport) -> ImportReport:
        """Put the counts of the import on record; returns the report with what is known only now."""
        event = self.recorder.finish(cursor, self.mark, report.counts, report.changed)
        notes, errors = (*self.clashes.summary(), *report.notes), _by_row(report.errors, self.clashes.errors())
        return replace(report, event=event, clashes=len(self.clashes), notes=notes, errors=errors)


class _Clashes:
    """The rows of an input that would replace what another file, a live source or an edit brought."""

    def __init__(self, parsed: records.ParsedInput, replace: bool) -> None:
        self.replace = replace
        self._parsed = parsed
        self._brought_by: dict[tuple[str, str], str] = {}

    def add(self, kind: str, found: Mapping[str, str]) -> None:
        """Note rows of a kind ("memories", "chunks", "queries") by id, with what brought the stored ones."""
        self._brought_by |= {(kind, key): who for key, who in found.items()}

    def upsert(self, cursor: duckdb.DuckDBPyConnection, staged: pa.Table, by: Mark) -> RowCounts:
        """Write staged memories but for those that stay as they are."""
        if self.replace:
            return memories.upsert(cursor, staged, by=by)
        found = memories.differing(cursor, staged, by.own)
        if found is None:
            return memories.upsert(cursor, staged, by=by, new=True)
        if found.others:
            import pyarrow as pa

            self.add("memories", found.others)
            staged = staged.filter(pa.array([key not in found.others for key in staged["id"].to_pylist()]))
        return memories.upsert(cursor, staged, by=by, same=not found.own)

    def __len__(self) -> int:
        return len(self._brought_by)

    def of(self, kind: str) -> set[str]:
        return {key for each, key in self._brought_by if each == kind}

    def errors(self) -> list[records.RowError]:
        found = []
        for kind in ("memories", "chunks", "queries"):
            if keys := self.of(kind):
                for number, row in self._parsed.numbered(kind):
                    key = row.qid if kind == "queries" else row.id if kind == "memories" else row.memory_id
                    if key in keys:
                        keys.discard(key)  # of repeated rows the first counts
                        what = {"memories": "memory", "queries": "query"}.get(kind, "the chunks of memory")
                        who = self._brought_by[kind, key]
                        reason = f"would replace {what} {key!r}, which {who} brought; --replace takes this row"
                        found.append(records.RowError(self._parsed.source, number, reason))
        return found

    def summary(self) -> list[str]:
        """One line about all of them, if there are any."""
        if not self._brought_by:
            return []
        counts = [counted(len(self.of(kind)), kind) for kind in ("memories", "chunks", "queries") if self.of(kind)]
        names, who = [key for _, key in self._brought_by], list(dict.fromkeys(self._brought_by.values()))
        such = f"{', '.join(names[:NAMED])}{', …' if len(names) > NAMED else ''}"
        whose = f"{', '.join(who[:NAMED])}{' and others' if len(who) > NAMED else ''}"
        return [f"left as before: {' and '.join(counts)} that {whose} brought: {such}; --replace takes the new ones"]


def _other_words(qid: str, kind: str) -> str:
    return f"query {qid!r} has other words in the store, so its {kind} is left out; --replace takes it"


def _without_blanks(names: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """The known ids that names have blanks around, as `q1, m1, 2` without quotes has."""
    return {name: name.strip() for name in names if name not in known and name.strip() in known}


def _renamed(
    parsed: records.ParsedInput, field: Literal["qid", "memory_id"], meant: Mapping[str, str]
) -> records.ParsedInput:
    """The input with the ids of the store in its judgments and pairs, by the names there."""
    if not meant:
        return parsed
    ids: dict[str, dict[str, Any]] = {name: {field: key} for name, key in meant.items()}
    judgments = tuple(
        replace(each, **ids[name]) if (name := getattr(each, field)) in ids else each for each in parsed.judgments
    )
    pairs = [(qid, meant.get(docid, docid)) for qid, docid in parsed.extra.get("pairs", ())]
    return replace(parsed, judgments=judgments, extra={**parsed.extra, "pairs": pairs})


def _without_judgments(
    parsed: records.ParsedInput, other: Collection[str], problems: list[records.RowError]
) -> records.ParsedInput:
    """The input without judgments of queries that have other words in the store."""
    if not other:
        return parsed
    rows = parsed.numbered("judgments")
    problems += [
        records.RowError(parsed.source, number, _other_words(row.qid, "judgment"), "qid")
        for number, row in rows
        if row.qid in other
    ]
    return parsed.with_rows(judgments=[(number, row) for number, row in rows if row.qid not in other])


def _by_row(*errors: Sequence[records.RowError]) -> tuple[records.RowError, ...]:
    return tuple(sorted((each for some in errors for each in some), key=lambda error: (error.source, error.row)))


def _contradicted(session: Session, parsed: records.ParsedInput) -> list[str]:
    """A line for each query of the input that is marked unanswerable and has a relevant memory: the judgment counts."""
    qids = {query.qid for query in parsed.queries} | {judgment.qid for judgment in parsed.judgments}
    marked = session.rows(
        "SELECT qid FROM queries WHERE answerable = FALSE UNION "
        f"SELECT qid FROM judgments WHERE memory_id = '{records.WHOLE_STORE}' AND grade = 0"
    )
    qids &= {qid for (qid,) in marked}
    if not qids:
        return []
    rows = session.rows(
        "SELECT qid, memory_id, grade, judge FROM judgments WHERE qid IN (SELECT unnest(?::text[])) "
        f"AND memory_id <> '{records.WHOLE_STORE}' ORDER BY qid, memory_id, grade, judge",
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


def _batches(rows: Sequence[records.Memory]) -> list[Sequence[records.Memory]]:
    """Slices limited in rows and characters, so that progress is visible and a batch fits in memory twice."""
    batches: list[Sequence[records.Memory]] = []
    start = chars = 0
    for position, memory in enumerate(rows):
        # `chars`: otherwise a text above the limit would leave an empty batch before it.
        if position - start >= BATCH_ROWS or (chars and chars + len(memory.content) > BATCH_CHARS):
            batches.append(rows[start:position])
            start, chars = position, 0
        chars += len(memory.content)
    return [*batches, rows[start:]]


def _unknown(source: str, row: int, field: str, name: str) -> records.RowError:
    return records.RowError(source, row, f"no memory {name!r} in the store; import it first", field)


def _rows(numbered: Numbered[Row]) -> list[Row]:
    return [row for _, row in numbered]


def _distinct(
    parsed: records.ParsedInput, kind: str, key: Callable[[Row], Hashable], problems: list[records.RowError]
) -> Numbered[Row]:
    """The first row of each key of one kind; a later, different one is reported, an identical one is not. Rows are
    numbered by `parsed.extra["rows"][kind]` (line numbers, if the reader has them), otherwise by position."""
    numbered = parsed.numbered(kind)
    first: dict[Hashable, tuple[int, Row]] = {key(row[1]): row for row in numbered}
    if len(first) == len(numbered):  # hardly a file repeats a key
        return numbered
    first = {}
    for number, row in numbered:
        name = key(row)
        earlier, same = first.setdefault(name, (number, row))
        # Identity first: most keys occur once, and comparing long rows takes time.
        if same is not row and same != row:
            reason = f"{name!r} is already in row {earlier} with other values; the first is kept"
            problems.append(records.RowError(parsed.source, number, reason))
    return list(first.values())
