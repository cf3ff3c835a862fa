"""Imports on record: what each command brought, and its undo.

The inputs of one command, such as the files of a folder, are one event with a number. `Recorder` puts an input on record in the very
transaction that writes its first rows, so that an import that was cancelled or killed can be undone too. An undo removes what the event
added, restores what it replaced, and leaves what was changed after it. It works by the marks on the rows (`marks`), in portions of which
each is one transaction, and repeating it does nothing twice: one that was killed is continued by the next. Query sets get a new version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.errors import InputError, counted
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Chunk, ParsedInput
from cems_workbench.store import chunks, label_events, memories, queries, query_sets
from cems_workbench.store import rows as tables
from cems_workbench.store.database import Database
from cems_workbench.store.judgments import WORKBENCH
from cems_workbench.store.query_sets import Member
from cems_workbench.store.rebase import REBASE, UNDO
from cems_workbench.store.team import Session, TeamTables, read_of
from cems_workbench.store.text_rule import text_rule

if TYPE_CHECKING:
    import duckdb

    from cems_workbench.store.memories import Memories

KINDS = ("memories", "chunks", "relations", "queries", "answers", "judgments")
"""What an import can bring, in the order of its report."""
STAGES = "files of recorded stages"
PORTION_ROWS = 20_000
"""Memories that an undo removes or restores in one transaction."""
NAMED = 3
"""Ids that are named of those that stay."""
_INPUTS = "(SELECT id FROM imports WHERE event = $event)"
_ADDED = f"m.added_by IN {_INPUTS}"
_WRITTEN = f"m.origin IN {_INPUTS}"
_FROM_SOURCE = "EXISTS (FROM source_rows AS l WHERE l.memory_id = m.id AND l.marker IS NOT NULL)"


@dataclass(frozen=True, slots=True)
class ImportedInput:
    """One input of an event: its file and format, its counts by kind (None while it runs, or where it was cut off), and the options."""

    name: str
    format: str
    counts: Mapping[str, tables.RowCounts] | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ImportEvent:
    number: int
    imported_at: datetime
    inputs: tuple[ImportedInput, ...]
    undone_at: datetime | None = None

    @property
    def name(self) -> str:
        """The first file, and how many more."""
        first, *more = self.inputs
        return f"{first.name} and {len(more):,} more" if more else first.name

    @property
    def rebased(self) -> bool:
        """Whether it moved judgments to other memories."""
        return any(each.format == REBASE for each in self.inputs)

    @property
    def outcome(self) -> Mapping[str, int]:
        """What it did to the judgments (`Rebase.outcome`); empty if it moved none."""
        outcome: Mapping[str, int] = self._rebase.get("outcome", {})
        return outcome

    @property
    def queue(self) -> str:
        """The labelling queue of its doubtful moves; empty if it has none."""
        return str(self._rebase.get("queue", ""))

    @property
    def _rebase(self) -> Mapping[str, Any]:
        return next((each.options for each in self.inputs if each.format == REBASE), {})

    @property
    def words(self) -> str:
        added, updated = self.totals("added"), self.totals("updated")
        parts = ["added " + ", ".join(added)] if added else []
        parts += ["updated " + ", ".join(updated)] if updated else []
        if any(each.counts is None for each in self.inputs):
            parts.append("cut off before its end")
        return "; ".join(parts) or "put queries into a set"

    def totals(self, effect: str) -> list[str]:
        """Counts of all inputs, "added" or "updated", a kind each."""
        sums = {kind: 0 for kind in KINDS}
        for each in self.inputs:
            for kind, counts in (each.counts or {}).items():
                sums[kind] += getattr(counts, effect)
        return [counted(count, kind) for kind, count in sums.items() if count]


@dataclass(frozen=True, slots=True)
class Undo:
    """What the undo of an event does, or did: rows by kind, and a line for each kind of which some stay."""

    event: ImportEvent
    removed: Mapping[str, int] = field(default_factory=dict)
    restored: Mapping[str, int] = field(default_factory=dict)
    stay: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """ "removes 12 memories, 4 relations; restores 3 memories"."""
        return self._words("removes", "restores", "changes nothing")

    @property
    def done_words(self) -> str:
        return self._words("removed", "restored", "nothing was left to change")

    def _words(self, removes: str, restores: str, nothing: str) -> str:
        parts = [
            f"{verb} {', '.join(counted(count, kind) for kind, count in rows.items() if count)}"
            for verb, rows in ((removes, self.removed), (restores, self.restored))
            if any(rows.values())
        ]
        return "; ".join(parts) or nothing


class Recorder:
    """Puts one input on record while it is imported. The inputs of one command have the same `when`."""

    def __init__(self, parsed: ParsedInput, options: Mapping[str, Any], when: datetime) -> None:
        path = Path(parsed.source)
        # A name alone is that of an upload, unless the file is here.
        folder = path.resolve().parent.name if path.exists() else path.parent.name
        self._source, self._format = parsed.source, parsed.format
        self._folder, self._name = folder, path.name
        self._options, self._when = json.dumps(options, ensure_ascii=False), tables.to_naive(when) or when
        self._there = False

    def mark(self, cursor: duckdb.DuckDBPyConnection) -> tables.Mark:
        """The mark of this input's rows. It holds in this transaction, and from `keep` on."""
        every = cursor.execute(
            "SELECT id, event, source, imported_at = $when AND undone_at IS NULL, "
            "name = $name AND (folder = $folder OR folder = '' OR $folder = '') FROM imports ORDER BY id",
            {"when": self._when, "name": self._name, "folder": self._folder},
        ).fetchall()
        rows = [row for row in every if row[3]]
        known = next((row[:2] for row in rows if row[2] == self._source), None)
        self._there = known is not None
        last, last_event = (max((row[at] for row in every), default=0) for at in (0, 1))
        number, event = known or (last + 1, rows[0][1] if rows else last_event + 1)
        inputs = sorted({number, *(row[0] for row in rows)})
        store = tables.read_meta(cursor, tables.STORE_ID) or ""
        own_inputs = [number, *(row[0] for row in every if row[4])]
        return tables.Mark(number, event, inputs, own_inputs, store, self._when, self._folder, self._name)

    def keep(self, cursor: duckdb.DuckDBPyConnection, mark: tables.Mark, counts: str | None = None) -> None:
        if not self._there:
            own = self._when, self._source, self._folder, self._name, self._format, self._options
            cursor.execute(
                "INSERT INTO imports (id, event, imported_at, source, folder, name, format, options, counts) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [mark.id, mark.event, *own, counts],
            )
            self._there = True

    def finish(
        self,
        cursor: duckdb.DuckDBPyConnection,
        mark: tables.Mark,
        counts: Mapping[str, tables.RowCounts],
        changed: bool,
    ) -> int:
        """Save the counts of the import; returns the event's number, 0 if nothing changed: that is no event."""
        before = tables.scalar(cursor, "SELECT max(counts) FROM imports WHERE id = ?", [mark.id]) if self._there else None
        if not changed and before is None:
            cursor.execute("DELETE FROM imports WHERE id = ?", [mark.id])
            return 0
        known = _counts(before) or {}  # a file that is written in several portions
        total = {kind: known.get(kind, tables.RowCounts()) + counts[kind] for kind in counts}
        text = json.dumps({kind: [one.added, one.updated, one.unchanged] for kind, one in total.items() if one.total})
        if self._there:
            cursor.execute("UPDATE imports SET counts = ? WHERE id = ?", [text, mark.id])
        self.keep(cursor, mark, text)
        return mark.event


def _counts(text: str | None) -> dict[str, tables.RowCounts] | None:
    return None if text is None else {kind: tables.RowCounts(*numbers) for kind, numbers in json.loads(text).items()}


class Imports:
    """The imports of an open store, and their undo. Thread-safe."""

    def __init__(self, database: Database, team: TeamTables, store_id: str, memories: Memories) -> None:
        self._database = database
        self._team = team
        self._store_id = store_id
        self._memories = memories

    def read(self) -> list[ImportEvent]:
        """All imports that changed anything, newest first, undone ones included."""
        rows = self._database.rows(
            "SELECT event, imported_at, folder, name, format, options, counts, undone_at FROM imports ORDER BY event DESC, id"
        )
        events: dict[int, ImportEvent] = {}
        for event, at, folder, name, form, options, counts, undone_at in rows:
            one = ImportedInput(f"{folder}/{name}" if folder else name, form, _counts(counts), json.loads(options))
            earlier = events[event].inputs if event in events else ()
            events[event] = ImportEvent(event, at.replace(tzinfo=UTC), (*earlier, one), tables.to_aware(undone_at))
        return list(events.values())

    def get(self, number: int | None = None) -> ImportEvent:
        """The import of a number, by default the last that was not undone. Raises InputError, with the numbers there are."""
        events = self.read()
        left = [event for event in events if event.undone_at is None]
        if number is None and left:
            return left[0]
        found = next((event for event in events if event.number == number), None)
        if found is None:
            there = ", ".join(str(event.number) for event in left[:10]) or "none"
            raise InputError(
                f"no import {number} on record; there are {there}"
                if number is not None
                else "there is no import to undo: none is on record, or all were undone"
            )
        return found

    def plan(self, number: int | None = None) -> Undo:
        """What the undo of an import would do; nothing is changed. Raises InputError and StoreError. One that was
        undone is undone again where the undo of a later one has brought rows of it back."""
        event = self.get(number)
        with self._database.reading() as cursor:
            removed, restored, stay = _own_plan(cursor, event.number)
            marks = self._marks(cursor, event.number)

        team = read_of(self._team, _team_plan, marks, event)
        removed |= {"queries": len(team.queries), "judgments": team.judgments}
        restored |= {"queries": team.reworded, "judgments": team.regraded, "query sets": len(team.sets)}
        if event.undone_at is not None and not any((*removed.values(), *restored.values())):
            raise InputError(f"import {event.number} was undone on {event.undone_at:%Y-%m-%d %H:%M} UTC")
        return Undo(event, removed, restored, (*stay, *team.stay))

    def undo(self, number: int | None = None, progress: Progress = silent) -> Undo:
        """Undo an import; returns what that did. Raises InputError, StoreError, and what `progress` raises: another
        call continues. The indexes follow at their next refresh, as after a deletion."""
        plan = self.plan(number)
        event = plan.event
        total = plan.removed["memories"] + plan.restored["memories"]

        def share() -> None:
            with self._team.transaction() as session:
                _undo_shared(session, marks, event)

        marks = self._database.read(self._marks, event.number)
        self._team.persist(share)
        done = 0
        for portion in (_remove_memories, _restore_memories):
            while True:
                progress(f"undoing import {event.number}", min(done, total), total)
                with self._database.transaction() as cursor:
                    count = portion(cursor, event.number)
                    if count:
                        tables.bump_content_version(cursor)
                done += count
                if not count:
                    break
        with self._database.transaction() as cursor:
            if _undo_own(cursor, event.number):
                tables.bump_content_version(cursor)
            cursor.execute(f"DELETE FROM judged_texts WHERE input IN {_INPUTS}", {"event": event.number})
            cursor.execute(
                "UPDATE imports SET undone_at = ? WHERE event = ?", [tables.to_naive(datetime.now(UTC)), event.number]
            )
        with self._database.reading() as cursor:
            self._memories.reload_hidden(cursor)
        progress(f"undoing import {event.number}", total, total)
        return plan

    def _marks(self, cursor: duckdb.DuckDBPyConnection, event: int) -> list[str]:
        rows = cursor.execute("SELECT id, imported_at FROM imports WHERE event = ?", [event]).fetchall()
        return [tables.in_team(self._store_id, number, when) for number, when in rows]


# The store's own tables


_TABLES = {"memories": ("memories", "id"), "relations": ("relations", "source_id || ' → ' || target_id")}


def _own_plan(cursor: duckdb.DuckDBPyConnection, event: int) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """The rows that an undo removes and restores, by kind, and a line for those that stay."""
    values = {"event": event}

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return cursor.execute(sql, values).fetchall()

    removed, restored, stay = dict[str, int](), dict[str, int](), list[str]()
    for kind, (table, key) in _TABLES.items():
        kept = f" OR {_FROM_SOURCE}" if kind == "memories" else ""
        ((removed[kind], restored[kind]),) = rows(
            f"SELECT count(*) FILTER ({_ADDED}{f' AND NOT {_FROM_SOURCE}' if kept else ''}), "
            f"count(*) FILTER (NOT coalesce({_ADDED}, FALSE)) FROM {table} AS m WHERE {_WRITTEN}"
        )
        ids = (
            "m.id = b.id"
            if kind == "memories"
            else "(m.source_id, m.target_id, m.kind) = (b.source_id, b.target_id, b.kind)"
        )
        changed = (
            f"FROM {table} AS m WHERE ({_ADDED} AND (NOT coalesce({_WRITTEN}, FALSE){kept})) OR (NOT coalesce({_WRITTEN}, FALSE) "
            f"AND EXISTS (FROM {table}_before AS b WHERE {ids} AND b.input IN {_INPUTS}))"
        )
        ((count, names),) = rows(f"SELECT count(*), list({key} ORDER BY {key})[:{NAMED}] {changed}")
        stay += _stays(kind, names, "changed after it or of a live source", count)
    ((removed["chunks"], restored["chunks"]),) = rows(
        "SELECT count(*) FILTER (m.given IS NOT TRUE), count(*) FILTER (m.given) FROM chunks AS p JOIN (SELECT c.memory_id, "
        "b.given FROM chunked AS c LEFT JOIN chunked_before AS b ON b.memory_id = c.memory_id "
        f"AND b.input IN {_INPUTS} WHERE c.rule = '{chunks.GIVEN}' AND c.origin IN {_INPUTS}) AS m USING (memory_id)"
    )
    ((removed["answers"], restored["answers"]),) = rows(
        f"SELECT (SELECT count(*) FROM recorded_answers AS m WHERE {_WRITTEN}), (SELECT count(*) {_LOST_ANSWERS})"
    )
    return removed, restored, stay


def _stays(kind: str, names: Sequence[str] | None, why: str, count: int | None = None) -> list[str]:
    """ "kept 2 memories changed after it: a, b"; empty without any. `names` are all of them, or the first of `count`."""
    if not names:
        return []
    count = count or len(names)
    return [f"kept {counted(count, kind)} {why}: {', '.join(names[:NAMED])}{', …' if count > NAMED else ''}"]


_LOST_ANSWERS = (
    f"FROM answers_before AS b WHERE b.input IN {_INPUTS} AND NOT EXISTS (FROM recorded_answers AS m "
    f"WHERE m.set_name = b.set_name AND m.qid = b.qid AND NOT coalesce({_WRITTEN}, FALSE))"
)
"""Answers that an undo puts back: those whose place no later import has taken."""


def _remove_memories(cursor: duckdb.DuckDBPyConnection, event: int) -> int:
    """Remove a portion of the memories that an event added and nothing changed since; returns their number."""
    rows = cursor.execute(
        f"SELECT m.id FROM memories AS m WHERE {_ADDED} AND {_WRITTEN} AND NOT {_FROM_SOURCE} LIMIT {PORTION_ROWS}",
        {"event": event},
    ).fetchall()
    ids = [memory_id for (memory_id,) in rows]
    if ids:
        memories.remove(cursor, ids)
    return len(ids)


def _restore_memories(cursor: duckdb.DuckDBPyConnection, event: int) -> int:
    """Restore a portion of the memories that an event changed and nothing changed since; returns their number."""
    found = cursor.execute(
        f"SELECT b.origin, {', '.join(f'b.{name}' for name in memories.FIELDS)} FROM memories_before AS b "
        f"JOIN memories AS m ON m.id = b.id WHERE b.input IN {_INPUTS} AND {_WRITTEN} LIMIT {PORTION_ROWS}",
        {"event": event},
    ).fetchall()
    before = {row[1]: row for row in found}
    if before:
        rows = [memories.record(row[1:]) for row in before.values()]
        memories.upsert(cursor, memories.staging(rows, rule=text_rule(cursor)))
        origins = tables.table_of("id string, origin int64", [(key, row[0]) for key, row in before.items()])
        with tables.staged(cursor, "staged_origins", origins):
            cursor.execute("UPDATE memories SET origin = s.origin FROM staged_origins AS s WHERE memories.id = s.id")
    return len(before)


def _undo_own(cursor: duckdb.DuckDBPyConnection, event: int) -> bool:
    """Undo an event's chunks, relations and answers; whether any chunk or relation changed."""
    values = {"event": event}
    changed = _undo_chunks(cursor, event)
    for sql in (
        f"DELETE FROM relations AS m WHERE {_ADDED} AND {_WRITTEN}",
        "UPDATE relations AS m SET weight = b.weight, author = b.author, origin = b.origin FROM relations_before AS b "
        f"WHERE (m.source_id, m.target_id, m.kind) = (b.source_id, b.target_id, b.kind) AND b.input IN {_INPUTS} AND {_WRITTEN}",
    ):
        changed |= bool(cursor.execute(sql, values).fetchall()[0][0])
    cursor.execute(
        "CREATE OR REPLACE TEMP TABLE answers_again AS "
        f"SELECT b.set_name, b.qid, b.source, b.row, b.results, b.origin {_LOST_ANSWERS}",
        values,
    )
    cursor.execute(f"DELETE FROM recorded_answers AS m WHERE {_WRITTEN}", values)
    cursor.execute("INSERT INTO recorded_answers BY NAME SELECT * FROM answers_again")
    # The others stay kept: where a later import has taken their place, its undo leads back to here.
    cursor.execute(
        f"DELETE FROM answers_before WHERE input IN {_INPUTS} AND (set_name, qid) IN (SELECT set_name, qid FROM answers_again)",
        values,
    )
    cursor.execute("DROP TABLE answers_again")
    return changed


def _undo_chunks(cursor: duckdb.DuckDBPyConnection, event: int) -> bool:
    rows = cursor.execute(
        "SELECT c.memory_id, b.given, b.origin FROM chunked AS c LEFT JOIN chunked_before AS b "
        f"ON b.memory_id = c.memory_id AND b.input IN {_INPUTS} WHERE c.rule = '{chunks.GIVEN}' AND c.origin IN {_INPUTS}",
        {"event": event},
    ).fetchall()
    gone = [memory_id for memory_id, given, _ in rows if not given]
    for start in range(0, len(gone), PORTION_ROWS):
        chunks.take_back(cursor, gone[start : start + PORTION_ROWS])
    by_origin: dict[int | None, list[str]] = {}
    for memory_id, given, origin in rows:
        if given:
            by_origin.setdefault(origin, []).append(memory_id)
    for origin, ids in by_origin.items():
        before = cursor.execute(
            f"SELECT memory_id, seq, content, start FROM chunks_before WHERE input IN {_INPUTS} AND memory_id IN (SELECT unnest($ids))",
            {"event": event, "ids": ids},
        ).fetchall()
        chunks.give(cursor, [Chunk(*row) for row in before], origin)
        # Chunks of an earlier content were waiting to be cut again.
        cursor.execute(
            "UPDATE chunked AS c SET text_sha = b.text_sha FROM chunked_before AS b "
            f"WHERE b.memory_id = c.memory_id AND b.input IN {_INPUTS} AND c.memory_id IN (SELECT unnest($ids))",
            {"event": event, "ids": ids},
        )
    return bool(rows)


# The team's tables


@dataclass(frozen=True, slots=True)
class _TeamPlan:
    """What an undo does to the team's tables; `sets` has the new members and scale of each set that changes."""

    queries: Sequence[str]
    reworded: int
    judgments: int
    regraded: int
    sets: Mapping[str, tuple[list[Member], Any]]
    stay: tuple[str, ...]


_IN_TEAM = "IN (SELECT unnest(?::text[]))"
_UNCHANGED = f"(m.origin {_IN_TEAM} AND m.source <> '{WORKBENCH}')"
"""That a judgment is as an import wrote it: a label that was given here since has another source."""


def _team_plan(session: Session, marks: list[str], event: ImportEvent) -> _TeamPlan:
    def number(sql: str, values: Sequence[Any]) -> int:
        return int(session.rows(f"SELECT count(*) FROM {sql}", values)[0][0])

    added = f"m.added_by {_IN_TEAM} AND {_UNCHANGED}"
    same = " AND ".join(f"b.{name} = m.{name}" for name in ("qid", "memory_id", "judge", "kind"))
    judged = number(f"judgments AS m WHERE {added}", [marks, marks])
    regraded = number(
        f"judgments AS m JOIN judgments_before AS b ON {same} WHERE b.input {_IN_TEAM} AND {_UNCHANGED}", [marks, marks]
    )
    regraded += number(f"judgments_before AS b WHERE {_TAKEN}", [marks, marks, marks]) if event.rebased else 0
    labelled = session.rows(
        f"SELECT m.qid || ' / ' || m.memory_id FROM judgments AS m WHERE (m.added_by {_IN_TEAM} OR EXISTS (SELECT 1 FROM "
        f"judgments_before AS b WHERE {same} AND b.input {_IN_TEAM})) AND NOT coalesce({_UNCHANGED}, FALSE) ORDER BY 1",
        [marks, marks, marks],
    )
    stay = _stays("judgments", [row[0] for row in labelled], "changed after it")
    sets = _sets_before(session, event)
    own = f"SELECT m.qid FROM queries AS m WHERE m.added_by {_IN_TEAM} AND m.origin {_IN_TEAM} ORDER BY m.qid"
    asked = [qid for (qid,) in session.rows(own, [marks, marks])]
    used = _used(session, asked, sets, marks)
    stay += _stays("queries", [qid for qid in asked if qid in used], "judged after it or put into a query set")
    reworded = number(
        f"queries AS m JOIN queries_before AS b ON b.qid = m.qid WHERE b.input {_IN_TEAM} AND m.origin {_IN_TEAM}",
        [marks, marks],
    )
    changed = session.rows(
        f"SELECT m.qid FROM queries AS m WHERE NOT coalesce(m.origin {_IN_TEAM}, FALSE) AND (m.added_by {_IN_TEAM} OR EXISTS "
        f"(SELECT 1 FROM queries_before AS b WHERE b.qid = m.qid AND b.input {_IN_TEAM})) ORDER BY 1",
        [marks, marks, marks],
    )
    stay += _stays("queries", [row[0] for row in changed], "changed after it")
    return _TeamPlan([qid for qid in asked if qid not in used], reworded, judged, regraded, sets, tuple(stay))


_TAKEN = (
    f"b.input {_IN_TEAM} AND NOT EXISTS (SELECT 1 FROM judgments AS m WHERE (m.qid, m.memory_id, m.judge, m.kind) = "
    f"(b.qid, b.memory_id, b.judge, b.kind) AND NOT coalesce(m.added_by {_IN_TEAM} AND {_UNCHANGED}, FALSE))"
)
"""Judgments that a rebase took away, and that are not there again."""


def _used(
    session: Session, qids: list[str], sets: Mapping[str, tuple[list[Member], Any]], marks: list[str]
) -> set[str]:
    """Those of the queries that have a judgment of another import or of a person, or are in a set after the undo."""
    if not qids:
        return set()
    judged = session.rows(
        f"SELECT DISTINCT m.qid FROM judgments AS m WHERE m.qid {_IN_TEAM} "
        f"AND NOT coalesce(m.added_by {_IN_TEAM} AND {_UNCHANGED}, FALSE)",
        [qids, marks, marks],
    )
    scales = query_sets.scales_of(session, qids)
    left = {query.qid for members, _ in sets.values() for query, _ in members}
    return {qid for (qid,) in judged} | {qid for qid in qids if qid in left or scales.get(qid, {}).keys() - sets.keys()}


def _sets_before(session: Session, event: ImportEvent) -> dict[str, tuple[list[Member], Any]]:
    """The sets of which an import made a version, by name with the members and scale that they have without it. What
    was changed after it stays: only members that it put in are taken out, and those that it took out are put back."""
    found = {}
    made = session.rows(
        "SELECT name, version, (SELECT max(version) FROM query_sets AS l WHERE l.name = s.name) FROM query_sets AS s "
        "WHERE created_at = ? ORDER BY name",
        [tables.to_naive(event.imported_at)],
    )
    for name, version, last in made:
        before, after, now = (query_sets.get(session, name, each) for each in (version - 1, version, last))
        assert after is not None  # just read
        assert now is not None
        former, written, members = (
            {query.qid: (query, source) for query, source in query_sets.members(session, name, each)}
            for each in (version - 1, version, last)
        )
        for qid, (_, source) in written.items():
            if qid in members and members[qid][1] == source:
                if qid not in former:
                    del members[qid]
                else:
                    query = former[qid][0] if members[qid] == written[qid] else members[qid][0]
                    members[qid] = query, former[qid][1]
        # They were put back by an undo before this one; a query that another undo removed since is not put back.
        gone = [] if event.undone_at else list(former.keys() - written.keys() - members.keys())
        out = queries.known_qids(session, gone)
        members |= {qid: member for qid, member in former.items() if qid in out}
        scale = before.scale if before is not None and now.scale == after.scale else now.scale
        rows = list(members.values())
        if query_sets.digest([query for query, _ in rows], scale) != now.digest:
            found[name] = rows, scale
    return found


def _undo_shared(session: Session, marks: list[str], event: ImportEvent) -> None:
    """Undo an event's judgments, query sets and queries, the team's tables."""
    when = datetime.now(UTC)
    plan = _team_plan(session, marks, event)
    moved = f"judgments AS m WHERE m.added_by {_IN_TEAM} AND {_UNCHANGED} ORDER BY 1, 2, 3, 4"
    for key in session.rows(f"SELECT qid, memory_id, judge, kind FROM {moved}", [marks, marks]) if event.rebased else ():
        label_events.append(
            session, key, "remove", when, grade=None, source=f"{UNDO}{event.number}", before=label_events.present(session, key)
        )
    session.change(f"DELETE FROM judgments AS m WHERE m.added_by {_IN_TEAM} AND {_UNCHANGED}", [marks, marks])
    keys = ("qid", "memory_id", "judge", "kind")
    columns = ("grade", "note", "judged_at", "source", "shown")
    if event.rebased:
        names = ", ".join((*keys, *columns))
        session.change(
            f"INSERT INTO judgments ({names}, origin, added_by) SELECT {names}, origin, origin FROM judgments_before AS b WHERE {_TAKEN}",
            [marks, marks, marks],
        )
    same = " AND ".join(f"b.{name} = m.{name}" for name in keys)
    for row in session.rows(
        f"SELECT {', '.join(f'm.{name}' for name in (*keys, *columns))}, b.grade FROM judgments AS m JOIN judgments_before AS b "
        f"ON {same} WHERE b.input {_IN_TEAM} AND {_UNCHANGED} ORDER BY 1, 2, 3, 4",
        [marks, marks],
    ):
        label_events.append(
            session,
            (row[0], row[1], row[2], row[3]),
            "import",
            when,
            grade=row[-1],
            source=f"{UNDO}{event.number}",
            before=label_events.state(*row[4:9]),
        )
    session.change(
        f"UPDATE judgments AS m SET {', '.join(f'{name} = b.{name}' for name in (*columns, 'origin'))} FROM judgments_before AS b "
        f"WHERE {same} AND b.input {_IN_TEAM} AND {_UNCHANGED}",
        [marks, marks],
    )
    for name, (rows, scale) in plan.sets.items():
        query_sets.write(session, name, rows, scale, when)
    session.change(f"DELETE FROM queries WHERE qid {_IN_TEAM}", [list(plan.queries)])
    restored = ", ".join(f"{name} = b.{name}" for name in (*queries.COLUMNS, "origin", "brought_by"))
    session.change(
        f"UPDATE queries AS m SET {restored} FROM queries_before AS b WHERE b.qid = m.qid AND b.input {_IN_TEAM} "
        f"AND m.origin {_IN_TEAM}",
        [marks, marks],
    )
    query_sets.follow_queries(session, when)
