"""Judgments: one grade per query, memory, judge and kind of judge; and the rules for importing them.

Judge and kind are part of the key, so a person's label never replaces a model's or another person's. An import replaces imported
judgments, whose old state is kept in `label_events`, and never labels given in the workbench.

A row is first validated against the store (query, memory, grade on the scale) and then compared with the other rows of its file, so
that an invalid row never replaces a valid one. Of several valid grades of one judge for a pair the first is kept. Different grades of
other judges of the same kind are kept too, with a note.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError, counted
from cems_workbench.records import WHOLE_STORE, GradeScale, Judgment, ParsedInput, RowError
from cems_workbench.store import judged_texts, label_events, memories, queries, query_sets
from cems_workbench.store.database import Database
from cems_workbench.store.label_events import Key
from cems_workbench.store.rows import EDITED, TEAM_FOREIGN, Mark, RowCounts, table_of, to_aware, to_naive
from cems_workbench.store.scales import with_these
from cems_workbench.store.team import Session, TeamTables, persistent, rows_of

MAX_NOTES = 20
"""Notes of one kind that an import lists; further ones are counted."""
WORKBENCH = "workbench"
"""The source of a label given in the workbench."""
FIELDS = ("qid", "memory_id", "grade", "judge", "kind", "judged_at", "note")
Numbered = Sequence[tuple[int, Judgment]]
_SAME = "j.qid = s.qid AND j.memory_id = s.memory_id AND j.judge = s.judge AND j.kind = s.kind"
_DIFFERS = (
    "(j.grade <> s.grade OR j.judged_at IS DISTINCT FROM coalesce(s.judged_at, j.judged_at) "
    "OR j.note IS DISTINCT FROM coalesce(s.note, j.note))"
)


@dataclass(frozen=True, slots=True)
class Strangers:
    """Judgments of memories unknown to the store, and the number of those memories."""

    judgments: int
    memories: int


class Judgments:
    """The judgments of an open store. Thread-safe. People's labels are written by `Labels`."""

    def __init__(self, database: Database, team: TeamTables) -> None:
        self._database = database
        self._team = team
        self._counted: dict[str, tuple[object, int]] = {}

    @persistent
    def read(self, qid: str | None = None, kind: str | None = None) -> list[Judgment]:
        """Judgments of live memories and of the whole store, of one query or of all, of kind "human" or "model" or
        both. Sorted by qid, memory, judge and kind."""
        rows = rows_of(
            self._team,
            f"SELECT {', '.join(FIELDS)} FROM judgments WHERE coalesce(qid = ?, TRUE) AND coalesce(kind = ?, TRUE) "
            "ORDER BY qid, memory_id, judge, kind",
            [qid, kind],
        )
        # A team's table has judgments of memories that this store never had.
        live = memories.live(self._database, {row[1] for row in rows})
        return [record(row) for row in rows if row[1] in live or row[1] == WHOLE_STORE]

    @persistent
    def count_queries(self, kind: str) -> int:
        """Number of queries with a judgment of this kind of a live memory, or judged or said to have no answer; counted again only after a
        write."""
        version = self._team.version(), self._database.cached_content_version()
        known = self._counted.get(kind)
        if known is not None and known[0] == version:
            return known[1]
        rows = rows_of(
            self._team,
            "SELECT qid, memory_id FROM judgments WHERE kind = ? UNION SELECT qid, ? FROM queries WHERE NOT answerable",
            [kind, WHOLE_STORE],
        )
        live = {WHOLE_STORE} | memories.live(self._database, {memory_id for _, memory_id in rows})
        count = len({qid for qid, memory_id in rows if memory_id in live})
        self._counted[kind] = version, count
        return count

    @persistent
    def strangers(self) -> Strangers:
        """The judgments of memories unknown to this store: a team's members may have different memories."""
        counts: dict[str, int] = dict(
            rows_of(
                self._team,
                f"SELECT memory_id, count(*) FROM judgments WHERE memory_id <> '{WHOLE_STORE}' GROUP BY memory_id",
            )
        )
        unknown = counts.keys() - self._database.read(memories.known_ids, list(counts))
        return Strangers(sum(counts[memory_id] for memory_id in unknown), len(unknown))

    @persistent
    def of_memory(self, memory_id: str) -> list[tuple[Judgment, str]]:
        """The judgments of one memory, each with its query's text, highest grade first, ties by qid and judge."""
        rows = rows_of(
            self._team,
            f"SELECT {', '.join(f'j.{name}' for name in FIELDS)}, q.query "
            "FROM judgments AS j JOIN queries AS q USING (qid) "
            "WHERE j.memory_id = ? ORDER BY j.grade DESC, j.qid, j.judge",
            [memory_id],
        )
        return [(record(row), row[-1]) for row in rows]

    @persistent
    def record(self, judgments: Sequence[Judgment], source: str) -> RowCounts:
        """Write many judgments of models at once; earlier ones of the same models are replaced. Raises InputError for a
        person's judgment: people label one pair at a time. Pairs must be distinct per judge."""
        if any(judgment.kind != "model" for judgment in judgments):
            raise InputError("only judgments of a model are recorded in bulk")
        if not judgments:
            return RowCounts()
        judged_texts.keep_present(self._database, {judgment.memory_id for judgment in judgments})
        with self._team.transaction() as session:
            return upsert(session, judgments, source, datetime.now(UTC))[0]

    @persistent
    def remove(self, qid: str, memory_id: str, judge: str = "human", kind: str = "human") -> bool:
        """Delete one judgment; False if there was none. Its state is kept in the judge's history."""
        removed: Key = (qid, memory_id, judge, kind)
        with self._team.transaction() as session:
            before = label_events.present(session, removed)
            if before is None:
                return False
            delete(session, removed)
            when = datetime.now(UTC)
            label_events.append(session, removed, "remove", when, grade=None, source=WORKBENCH, before=before)
        return True


key_of: Callable[[Judgment], Key] = attrgetter("qid", "memory_id", "judge", "kind")
"""The key of a judgment: query, memory, judge and kind."""


def record(row: Sequence[Any]) -> Judgment:
    return Judgment(row[0], row[1], row[2], row[3], row[4], to_aware(row[5]), row[6])


def check_gradable(database: Database, team: TeamTables, qid: str, memory_id: str, grade: int) -> None:
    """Raise InputError unless query and memory exist and the grade is on one of the query's scales."""
    with team.reading() as session:
        known, scales = queries.known_qids(session, [qid]), query_sets.scales_of(session, [qid])
    if not known:
        raise InputError(f"no query {qid!r} in the store")
    if memory_id == WHOLE_STORE:
        if grade not in (0, 1):
            raise InputError(f"whether anything answers {qid!r} is 0 or 1, found {grade}")
        return
    with database.reading() as cursor:
        if not memories.known_ids(cursor, [memory_id]):
            raise InputError(f"no memory {memory_id!r} in the store")
    reason = off_scale(grade, scales.get(qid, {}))
    if reason:
        raise InputError(reason)


def off_scale(grade: int, scales: Mapping[str, GradeScale]) -> str | None:
    """The error for a grade that is on none of these scales (by set name); None if there are no scales."""
    if not scales or any(grade in scale for scale in scales.values()):
        return None
    name, scale = next(iter(scales.items()))
    return f"grade {grade} is not on the scale of query set {name}, which has {scale}"


def upsert(
    session: Session, judgments: Sequence[Judgment], source: str, when: datetime, by: Mark | None = None
) -> tuple[RowCounts, list[str]]:
    """Insert judgments and replace those with another grade; the keys of `judgments` must be distinct. An input on
    record, `by`, keeps what it replaces. Returns the counts and a note for each replaced grade (the first MAX_NOTES,
    then how many more)."""
    with session.staged("staged_judgments", _staging(judgments)):
        return _upsert_staged(session, len(judgments), source, when, by)


def _upsert_staged(
    session: Session, size: int, source: str, when: datetime, by: Mark | None
) -> tuple[RowCounts, list[str]]:
    """As `upsert`, of the `size` rows of `staged_judgments`."""
    mark = str(EDITED) if by is None else by.in_team
    added = session.change(
        "INSERT INTO judgments (qid, memory_id, grade, judge, kind, judged_at, note, source, origin, added_by) "
        "SELECT qid, memory_id, grade, judge, kind, judged_at, note, ?, ?, ? FROM staged_judgments AS s "
        f"WHERE NOT EXISTS (SELECT 1 FROM judgments AS j WHERE {_SAME})",
        [source, mark, mark],
    )
    replaced = [] if added == size else session.rows(
        "SELECT j.qid, j.memory_id, j.grade, j.judge, j.kind, j.judged_at, j.note, j.source, j.shown, s.grade "
        f"FROM staged_judgments AS s JOIN judgments AS j ON {_SAME} WHERE {_DIFFERS} "
        "ORDER BY j.qid, j.memory_id, j.judge, j.kind"
    )
    if by is not None and replaced:
        session.change(
            "INSERT INTO judgments_before (input, origin, qid, memory_id, judge, kind, grade, judged_at, note, source, shown) "
            "SELECT ?, j.origin, j.qid, j.memory_id, j.judge, j.kind, j.grade, j.judged_at, j.note, j.source, j.shown "
            f"FROM staged_judgments AS s JOIN judgments AS j ON {_SAME} WHERE {_DIFFERS} AND {TEAM_FOREIGN.format('j')}",
            [mark, by.inputs_in_team],
        )
    for row in replaced:
        # Before the update, which overwrites the old grade.
        before, key = label_events.state(row[2], row[6], row[5], row[7], row[8]), (row[0], row[1], row[3], row[4])
        label_events.append(session, key, "import", when, grade=row[9], source=source, before=before)
    if replaced:
        session.change(
            "UPDATE judgments AS j SET grade = s.grade, judged_at = coalesce(s.judged_at, j.judged_at), "
            f"note = coalesce(s.note, j.note), source = ?, origin = ? FROM staged_judgments AS s WHERE {_SAME} AND {_DIFFERS}",
            [source, mark],
        )
    counts = RowCounts(added, len(replaced), size - added - len(replaced))
    notes = [
        f"judgment {qid} / {memory_id} by {judge}: grade {old} (from {brought_by or 'before'}) replaced by {new}"
        for qid, memory_id, old, judge, _, _, _, brought_by, _, new in replaced
        if old != new
    ]
    return counts, capped(notes, "more judgments were replaced by another grade")


def _staging(judgments: Sequence[Judgment]) -> Any:
    return table_of(
        "qid string, memory_id string, grade int64, judge string, kind string, judged_at timestamp[us], note string",
        [
            (one.qid, one.memory_id, one.grade, one.judge, one.kind, to_naive(one.judged_at), one.note)
            for one in judgments
        ],
    )


def delete(session: Session, key: Key) -> None:
    """Delete one judgment; the caller records its state."""
    session.change("DELETE FROM judgments WHERE qid = ? AND memory_id = ? AND judge = ? AND kind = ?", list(key))


@dataclass
class _Import:
    """The validation of an input's judgments; `first` has the valid ones so far."""

    source: str
    names: Mapping[str, str]
    problems: list[RowError]
    repeated: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """A note on queries that the store does not have."""
    first: dict[Key, tuple[int, Judgment]] = field(default_factory=dict)

    def report(self, row: int, judgment: Judgment, field: str, reason: str) -> None:
        self.problems.append(RowError(self.source, row, reason, self.named(judgment, field)))

    def named(self, judgment: Judgment, field: str) -> str:
        """A field's name in the file; in a judgment book each judge has a column of grades."""
        return self.names.get(field, field) or judgment.judge


def import_judgments(
    session: Session,
    parsed: ParsedInput,
    known: Collection[str],
    of_sets: Mapping[str, Mapping[str, GradeScale]],
    problems: list[RowError],
    when: datetime,
    by: Mark | None = None,
) -> tuple[RowCounts, list[str]]:
    """Import the judgments of `parsed` and add skipped rows to `problems`; returns the counts and the notes. `known`
    are the judged memories that exist in the store, `of_sets` the scales of the judged queries."""
    rows = parsed.numbered("judgments")
    if not rows:
        return RowCounts(), []
    place = parsed.extra.get("sources", {}).get("judgments", parsed.source)
    state = _Import(place, parsed.extra.get("fields", {}), problems)
    possible = _possible(session, rows, known, of_sets, state)
    state.first = {key_of(row[1]): row for row in possible}
    if len(state.first) < len(possible):  # some are repeated
        state.first = {}
        for number, judgment in possible:
            _take(state, number, judgment)
    source = Path(parsed.source).name
    counts, replaced, differing = RowCounts(), list[str](), list[str]()
    with session.staged("staged_judgments", _staging([judgment for _, judgment in state.first.values()])):
        there = session.rows(
            "SELECT s.qid, s.memory_id, s.judge, s.kind, j.judge, j.grade FROM staged_judgments AS s JOIN judgments AS j "
            "ON j.qid = s.qid AND j.memory_id = s.memory_id AND j.kind = s.kind "
            "WHERE CASE WHEN j.judge = s.judge THEN j.source = ? ELSE j.grade <> s.grade END ORDER BY 1, 2, 3, 4, 5, 6",
            [WORKBENCH],
        )
        wanted, unchanged = _not_given_here(there, state)
        if not wanted and not unchanged:
            return RowCounts(), [*state.unknown, *capped(state.repeated, "more rows repeat earlier ones")]
        differing = capped(_differing(there, state, wanted), "more grades differ from those of other judges")
        if len(wanted) == len(state.first):
            counts, replaced = _upsert_staged(session, len(wanted), source, when, by)
    if wanted and len(wanted) < len(state.first):
        counts, replaced = upsert(session, wanted, source, when, by)
    notes = [*state.unknown, *capped(state.repeated, "more rows repeat earlier ones"), *differing, *replaced]
    return RowCounts(counts.added, counts.updated, counts.unchanged + unchanged), notes


def without_unmade(
    parsed: ParsedInput, known: Collection[str], name: str, scale: GradeScale, problems: list[RowError]
) -> ParsedInput:
    """The input without those new queries, named by their words, of which no judgment is usable; `name` is the set that
    would get them. Their judgments are added to `problems`. A query that the file lists without a judgment stays."""
    new = {query.qid for query in parsed.queries} - parsed.extra.get("listed", frozenset())
    if not new or not parsed.extra.get("queries_by_words"):
        return parsed
    rows = parsed.numbered("judgments")
    of_new = [(number, judgment) for number, judgment in rows if judgment.qid in new]
    good, wrong = _checked(of_new, known, new, {qid: {name: scale} for qid in new})
    unmade = new - {judgment.qid for _, judgment in good}
    state = _Import(parsed.source, parsed.extra.get("fields", {}), problems)
    for number, judgment, field_, reason in wrong:
        if judgment.qid in unmade:
            state.report(number, judgment, field_, reason)
    kept = [(number, judgment) for number, judgment in rows if judgment.qid not in unmade]
    asked = [row for row in parsed.numbered("queries") if row[1].qid not in unmade]
    return parsed.with_rows(queries=asked, judgments=kept)


def _possible(
    session: Session,
    rows: Numbered,
    known: Collection[str],
    scales: Mapping[str, Mapping[str, GradeScale]],
    state: _Import,
) -> Numbered:
    """The rows whose query and memory exist and whose grade is on one of the query's scales."""
    qids = queries.known_qids(session, list({row.qid for _, row in rows}))
    good, wrong = _checked(rows, known, qids, scales)
    for number, judgment, field_, reason in wrong:
        state.report(number, judgment, field_, reason)
    unknown = [judgment.qid for _, judgment in rows if judgment.qid not in qids]
    if unknown:
        names = ", ".join([*dict.fromkeys(unknown)][:3])
        state.unknown.append(
            f"the store does not have {counted(len({*unknown}), 'queries')} of {counted(len(unknown), 'judgments')}, such as {names}: "
            "import queries with these ids first (qid, query), or judgments with the words of their queries (query, docid, rating), as "
            "Quepid's exports as CSV, JSON and LTR have them"
        )
    strange = [row.memory_id for _, row, name, _ in wrong if name == "memory_id"]
    if len(strange) > 1:
        ids = [*dict.fromkeys(strange)]
        state.unknown.append(
            f"the store does not have {counted(len(ids), 'memories')} of {counted(len(strange), 'judgments')}, such as {', '.join(ids[:3])}"
        )
    return good


def _checked(
    rows: Numbered, known: Collection[str], qids: Collection[str], scales: Mapping[str, Mapping[str, GradeScale]]
) -> tuple[Numbered, list[tuple[int, Judgment, str, str]]]:
    """The rows whose query and memory exist and whose grade is on one of the query's scales, and the others with field and reason."""
    good: list[tuple[int, Judgment]] = []
    wrong: list[tuple[int, Judgment, str, str]] = []
    off: list[tuple[int, Judgment]] = []
    fits: dict[tuple[str, int], bool] = {}
    for row in rows:
        number, judgment = row
        if judgment.qid not in qids:
            wrong.append((number, judgment, "qid", f"no query {judgment.qid!r} in the store; import it first"))
        elif judgment.memory_id not in known and judgment.memory_id != WHOLE_STORE:
            missing = f"no memory {judgment.memory_id!r} in the store; import it first"
            wrong.append((number, judgment, "memory_id", missing))
        else:
            given = judgment.qid, judgment.grade
            if given not in fits:
                fits[given] = off_scale(judgment.grade, scales.get(judgment.qid, {})) is None
            (good if fits[given] or judgment.memory_id == WHOLE_STORE else off).append(row)
    grades = {judgment.grade for _, judgment in off}
    for number, judgment in off:
        reason = off_scale(judgment.grade, scales[judgment.qid])
        way = with_these(*next(iter(scales[judgment.qid].items())), grades)
        wrong.append((number, judgment, "grade", f"{reason}; {way}"))
    return good, wrong


def _take(state: _Import, number: int, judgment: Judgment) -> None:
    """Keep a valid row, unless its judge graded the pair in an earlier row."""
    before, first = state.first.setdefault(key_of(judgment), (number, judgment))
    if first is judgment:
        return
    if first.grade != judgment.grade:
        by = "" if (judgment.judge, judgment.kind) == ("human", "human") else f" by {judgment.judge}"
        reason = f"{_named(judgment)} has grade {first.grade}{by} in row {before}, which is kept"
        state.report(number, judgment, "grade", reason)
    else:
        more = "" if first == judgment else "; its time and note are left out"
        state.repeated.append(f"row {number} repeats row {before}{more}")


There = Sequence[tuple[str, str, str, str, str, int]]
"""Query, memory, judge and kind of a judgment of an import; judge and grade of one in the store: given here by the same
judge, or another grade of another judge."""


def _not_given_here(there: There, state: _Import) -> tuple[list[Judgment], int]:
    """The judgments to write, and the number that equal a label given here; those that contradict one are reported."""
    given: dict[Key, int] = {(qid, memory_id, judge, kind): grade for qid, memory_id, judge, kind, by, grade in there if by == judge}
    wanted, same = [], 0
    for key, (number, judgment) in state.first.items():
        if key not in given:
            wanted.append(judgment)
        elif given[key] == judgment.grade:
            same += 1
        else:
            reason = f"{judgment.judge} gave {_named(judgment)} grade {given[key]} here, which is kept"
            state.report(number, judgment, "grade", reason)
    return wanted, same


def _differing(there: There, state: _Import, wanted: Sequence[Judgment]) -> list[str]:
    """A line for each grade that differs from that of another judge of the same kind in the store."""
    changing, others = set(map(key_of, wanted)), dict[Key, list[str]]()
    for qid, memory_id, judge, kind, other, grade in there:
        if other != judge and (qid, memory_id, other, kind) not in changing:
            others.setdefault((qid, memory_id, judge, kind), []).append(f"{other} {grade}")
    lines = []
    for key, (number, judgment) in state.first.items():
        if key in others:
            given = ", ".join(others[key])
            field = state.named(judgment, "grade")
            lines.append(
                f"row {number}: {field}: {judgment.judge} says {judgment.grade} of {_named(judgment)}, "
                f"in the store: {given}; all are kept"
            )
    return lines


def _named(judgment: Judgment) -> str:
    return f"{judgment.qid} {judgment.memory_id if judgment.memory_id != WHOLE_STORE else 'and the whole store'}"


def capped(lines: list[str], rest: str) -> list[str]:
    """The first MAX_NOTES lines, then the number of further ones; `rest` names them."""
    return lines if len(lines) <= MAX_NOTES else [*lines[:MAX_NOTES], f"{len(lines) - MAX_NOTES} {rest}"]
