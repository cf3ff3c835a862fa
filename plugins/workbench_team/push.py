"""Push: an idempotent copy of the team's tables from a store's own database to the team's.

The team's rows win, except for a label (one judge, one pair): the later state wins, a grade or an undo; and a query without an answer gets
one. Ids differ between databases, so equal rows are matched by content: an event by its judgment, person and time; a config by its text,
author and time; a set by its digest.
A qid with another text at the team is a different query and is not pushed, nor is anything that refers to it. Looks at hold-outs are
added, each store's once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from cems_workbench.store import query_sets
from cems_workbench.store.team import PushedRows, PushReport, Row, Session, TeamTables, table_of

_JUDGMENT = ("qid", "memory_id", "judge", "kind", "grade", "judged_at", "note", "source", "shown")
_EVENT = ("qid", "memory_id", "judge", "kind", "action", "recorded_at", "grade", "note", "source", "shown", "before")
_EVENT_KEY_COLUMNS = 6
"""Events are equal if the first columns are."""
_DECISION = ("qid", "memory_id", "decided_by", "decided_at", "grade", "note")
_SUPERSESSION = ("newer_id", "older_id", "decided_by", "decided_at", "verdict", "why", "undone_at")
_SUPERSESSION_KEY_COLUMNS = 4
"""Decisions on supersession are equal if the first columns are."""
_CONFIG = ("kind", "config_yaml", "author", "saved_at", "name", "base", "why", "card")
_NUMBERED = {"history": "config", "experiment": "experiment"}
"""The kinds of configs that users refer to by number."""
_QUERY = ("qid", "query", "project", "as_of", "type", "answerable", "given")
_TIMES = ("as_of", "created_at", "judged_at", "recorded_at", "decided_at", "saved_at", "last_at", "undone_at")
_NUMBERS = ("grade", "version", "position", "rank", "overlap", "id", "undoes", "looks")


def push(own: TeamTables, team: TeamTables, store_id: str) -> PushReport:
    """Copy the rows of `own` to `team`, in one transaction. Raises StoreError."""

    def pushed() -> PushReport:
        with own.reading() as source, team.transaction() as target:
            return _push(source, target, store_id, datetime.now(UTC))

    return team.persist(pushed)


def missing_queries(own: TeamTables, team: TeamTables) -> int:
    """Number of queries in `own` that `team` lacks."""
    with own.reading() as source:
        qids = [qid for (qid,) in source.rows("SELECT qid FROM queries")]
    if not qids:
        return 0

    def asked() -> int:
        with team.reading() as target:
            ((there,),) = target.rows("SELECT count(*) FROM queries WHERE qid IN (SELECT unnest(?::text[]))", [qids])
        return len(qids) - int(there)

    return team.persist(asked)


def _push(source: Session, target: Session, store_id: str, when: datetime) -> PushReport:
    report = PushReport()
    strange = _push_queries(source, target, report)
    _push_sets(source, target, strange, when, report)
    _push_judgments(source, target, strange, report)
    _push_once(source, target, "adjudications", _DECISION, 4, "decisions", strange, report)
    _push_queues(source, target, strange, report)
    _push_configs(source, target, report)
    _push_looks(source, target, store_id, report)
    _push_supersessions(source, target, report)
    return report


def _push_queries(source: Session, target: Session, report: PushReport) -> set[str]:
    """The qids that are a different query at the team."""
    columns = ", ".join(_QUERY)
    own = source.rows(f"SELECT {columns} FROM queries ORDER BY qid")
    there = {row[0]: row for row in target.rows(f"SELECT {columns} FROM queries")}
    strange = {row[0] for row in own if row[0] in there and row[1:4] != there[row[0]][1:4]}
    new = [row for row in own if row[0] not in there]
    _insert(target, "queries", _QUERY, new)
    given = [(row[0], *(json.loads(one[-1] or "{}") for one in (row, there[row[0]]))) for row in own if row[0] in there]
    answered = [
        (json.dumps({**theirs, "answer": mine["answer"]}, ensure_ascii=False, sort_keys=True), qid)
        for qid, mine, theirs in given
        if "answer" in mine and "answer" not in theirs and qid not in strange
    ]
    for row in answered:
        target.change("UPDATE queries SET given = ? WHERE qid = ?", row)
    copied = len(new) + len(answered)
    report.rows.append(PushedRows("queries", copied, len(own) - copied - len(strange), len(strange)))
    lines = [
        f"query {qid} is a different query at the team; it and its judgments are not pushed" for qid in sorted(strange)
    ]
    report.say(lines, "more queries are different at the team")
    return strange


def _push_sets(source: Session, target: Session, strange: set[str], when: datetime, report: PushReport) -> None:
    names = {each.name: each for each in query_sets.latest(source)}
    copied = there = 0
    lines = []
    for name, latest in names.items():
        known = query_sets.versions(target, name)
        members = [member for member in query_sets.members(source, name) if member[0].qid not in strange]
        if any(each.digest == latest.digest for each in known):
            there += 1
        elif not known and not strange & {query.qid for query, _ in query_sets.members(source, name)}:
            _copy_set(source, target, name)
            copied += 1
        else:
            now = query_sets.join(target, name, members, latest.scale, when)
            before = known[0].size if known else 0
            copied, there = copied + (now.size > before), there + (now.size == before)
            if now.size > before:
                lines.append(f"query set {name} gained {now.size - before} queries there, and is version {now.version}")
            elif known[0].scale != latest.scale:
                lines.append(f"query set {name} is graded {known[0].scale} there, {latest.scale} here")
    report.rows.append(PushedRows("query sets", copied, there))
    report.say(lines, "more query sets differ")


def _copy_set(source: Session, target: Session, name: str) -> None:
    versions = ("name", "version", "created_at", "digest", "scale")
    members = ("set_name", "version", "qid", "query", "project", "as_of", "type", "source", "answerable", "given")
    for table, columns in (("query_sets", versions), ("query_set_members", members)):
        rows = source.rows(f"SELECT {', '.join(columns)} FROM {table} WHERE {columns[0]} = ?", [name])
        _insert(target, table, columns, rows)


def _push_judgments(source: Session, target: Session, strange: set[str], report: PushReport) -> None:
    """The labels with their history; the later of two states of one judge's label wins."""

    def read(session: Session) -> tuple[dict[Row, Row], dict[Row, datetime]]:
        """The judgments by key, and the time of each key's last event."""
        given = session.rows(f"SELECT {', '.join(_JUDGMENT)} FROM judgments")
        last = session.rows(
            "SELECT qid, memory_id, judge, kind, max(recorded_at) FROM label_events GROUP BY 1, 2, 3, 4"
        )
        times = {row[:4]: row[5] for row in given if row[5] is not None}
        return {row[:4]: row for row in given}, times | {row[:4]: row[4] for row in last}

    own, own_times = read(source)
    there, their_times = read(target)
    keys = [key for key in {**own, **own_times} if key[0] not in strange]
    new, changed, gone, lines = list[Row](), list[Row](), list[Row](), list[str]()
    for key in keys:
        mine, theirs = own.get(key), there.get(key)
        if mine == theirs:
            continue
        later = key in own_times and key in their_times and own_times[key] > their_times[key]
        if theirs is None and mine is not None and (later or key not in their_times):
            new.append(mine)
        elif theirs is not None and later:
            if mine is None:
                gone.append(key)
            else:
                changed.append(mine)
        elif theirs is not None and mine is not None and mine[4] != theirs[4]:
            lines.append(f"{key[2]} gave {key[0]} {key[1]} {mine[4]} here, and later {theirs[4]} there, which stands")
    for key in [*gone, *(row[:4] for row in changed)]:
        target.change("DELETE FROM judgments WHERE qid = ? AND memory_id = ? AND judge = ? AND kind = ?", key)
    _insert(target, "judgments", _JUDGMENT, [*new, *changed])
    left = sum(key[0] in strange for key in own)
    copied = len(new) + len(changed)
    report.rows.append(PushedRows("judgments", copied, len(own) - left - copied, left))
    lines += [f"{key[2]}'s label of {key[0]} {key[1]} was taken back here, and is now there too" for key in gone]
    report.say(sorted(lines), "more labels differ")
    _push_events(source, target, strange, report)


def _push_events(source: Session, target: Session, strange: set[str], report: PushReport) -> None:
    """The history of labels; the event that an undo refers to is matched by content."""
    columns = ", ".join(_EVENT)

    def ids() -> dict[Row, int]:
        same = ", ".join(_EVENT[:_EVENT_KEY_COLUMNS])
        return {row[:-1]: row[-1] for row in target.rows(f"SELECT {same}, id FROM label_events")}

    own = [
        row
        for row in source.rows(f"SELECT {columns}, id, undoes FROM label_events ORDER BY recorded_at, id")
        if row[0] not in strange
    ]
    there = ids()
    new = list({row[:_EVENT_KEY_COLUMNS]: row for row in own if row[:_EVENT_KEY_COLUMNS] not in there}.values())
    if new:
        _insert(target, "label_events", _EVENT, [row[:-2] for row in new], order="recorded_at")
        said = {row[-2]: row[:_EVENT_KEY_COLUMNS] for row in own}
        # Again: the new events got their ids from the team's database.
        there = ids()
        undone = [
            (there[row[:_EVENT_KEY_COLUMNS]], there[said[row[-1]]])
            for row in new
            if row[-1] is not None and row[-1] in said
        ]
        with target.staged("pushed_rows", table_of("id int64, undoes int64", undone)):
            target.change("UPDATE label_events AS e SET undoes = s.undoes FROM pushed_rows AS s WHERE e.id = s.id")
    report.rows.append(PushedRows("steps of labels' history", len(new), len(own) - len(new)))


def _push_once(
    source: Session,
    target: Session,
    table: str,
    columns: Sequence[str],
    same: int,
    what: str,
    strange: set[str],
    report: PushReport,
) -> None:
    """The rows of a table; their first `same` columns are the key, and the first is the qid."""
    own = source.rows(f"SELECT {', '.join(columns)} FROM {table} ORDER BY id")
    there = set(target.rows(f"SELECT {', '.join(columns[:same])} FROM {table}"))
    good = [row for row in own if row[0] not in strange]
    new = [row for row in good if row[:same] not in there]
    _insert(target, table, columns, new)
    report.rows.append(PushedRows(what, len(new), len(good) - len(new), len(own) - len(good)))


def _push_queues(source: Session, target: Session, strange: set[str], report: PushReport) -> None:
    columns = ("name", "created_at", "overlap", "settings")
    tables = {
        "label_queue_pairs": ("queue", "position", "qid", "memory_id"),
        "label_queue_rankings": ("queue", "config", "qid", "rank", "memory_id"),
    }
    own = source.rows(f"SELECT {', '.join(columns)} FROM label_queues ORDER BY name")
    there = {row[0]: row for row in target.rows(f"SELECT {', '.join(columns)} FROM label_queues")}
    new = [row for row in own if row[0] not in there]
    _insert(target, "label_queues", columns, new)
    for table, names in tables.items():
        place = names.index("qid")
        for name, *_ in new:
            rows = source.rows(f"SELECT {', '.join(names)} FROM {table} WHERE queue = ?", [name])
            _insert(target, table, names, [row for row in rows if row[place] not in strange])
    other = [row[0] for row in own if row[0] in there and row != there[row[0]]]
    report.rows.append(PushedRows("labelling queues", len(new), len(own) - len(new) - len(other), len(other)))
    report.say([f"labelling queue {name} is different at the team and is not pushed" for name in other], "more queues")


def _push_configs(source: Session, target: Session, report: PushReport) -> None:
    """The saved configs; they get new numbers at the team."""
    own = source.rows(f"SELECT {', '.join(_CONFIG)}, id FROM configs ORDER BY saved_at, id")
    there = set(target.rows(f"SELECT {', '.join(_CONFIG[:4])} FROM configs"))
    highest: dict[str, int] = dict(target.rows("SELECT kind, max(id) FROM configs GROUP BY kind"))
    new, lines = list[Row](), list[str]()
    for row in own:
        if row[:4] not in there:
            highest[row[0]] = highest.get(row[0], 0) + 1
            new.append((*row[:-1], highest[row[0]]))
            if row[-1] != highest[row[0]] and row[0] in _NUMBERED:
                lines.append(f"{_NUMBERED[row[0]]} {row[-1]} ({row[4]}) has the number {highest[row[0]]} there")
    _insert(target, "configs", (*_CONFIG, "id"), new)
    report.rows.append(PushedRows("configs and experiments", len(new), len(own) - len(new)))
    report.say(lines, "more have other numbers there")


def _push_looks(source: Session, target: Session, store_id: str, report: PushReport) -> None:
    """Looks at hold-outs: this store's looks since its last push are added."""
    copied = there = 0
    for table, column in (("holdout_looks", "qid"), ("holdout_lookers", "who")):
        own = source.rows(f"SELECT set_name, {column}, looks, last_at FROM {table}")
        pushed = "SELECT set_name, of, looks FROM pushed_looks WHERE store_id = ? AND kind = ?"
        known = {(name, of): looks for name, of, looks in target.rows(pushed, [store_id, column])}
        for name, of, looks, last_at in own:
            # Only the looks since this store's last push, so that a repeated push adds nothing.
            more = looks - known.get((name, of), 0)
            if more <= 0:
                there += 1
                continue
            copied += 1
            target.change(
                f"INSERT INTO {table} VALUES (?, ?, ?, ?) ON CONFLICT (set_name, {column}) DO UPDATE SET "
                f"looks = {table}.looks + excluded.looks, last_at = greatest({table}.last_at, excluded.last_at)",
                [name, of, more, last_at],
            )
            target.change(
                "INSERT INTO pushed_looks VALUES (?, ?, ?, ?, ?) ON CONFLICT (store_id, kind, set_name, of) "
                "DO UPDATE SET looks = excluded.looks",
                [store_id, column, name, of, looks],
            )
    report.rows.append(PushedRows("counts of looks at hold-outs", copied, there))


def _push_supersessions(source: Session, target: Session, report: PushReport) -> None:
    """The decisions on supersession; one that was undone here after it was pushed is undone there too."""
    same = _SUPERSESSION_KEY_COLUMNS
    columns = ", ".join(_SUPERSESSION)
    own = source.rows(f"SELECT {columns} FROM supersession_decisions ORDER BY decided_at, decided_by")
    there = {row[:same]: row[-1] for row in target.rows(f"SELECT {columns} FROM supersession_decisions")}
    new = [row for row in own if row[:same] not in there]
    _insert(target, "supersession_decisions", _SUPERSESSION, new)
    undone = [row for row in own if row[:same] in there and row[-1] is not None and there[row[:same]] is None]
    for row in undone:
        target.change(
            "UPDATE supersession_decisions SET undone_at = ? "
            "WHERE newer_id = ? AND older_id = ? AND decided_by = ? AND decided_at = ?",
            [row[-1], *row[:same]],
        )
    copied = len(new) + len(undone)
    report.rows.append(PushedRows("decisions on supersession", copied, len(own) - copied))


def _insert(session: Session, table: str, columns: Sequence[str], rows: Sequence[Row], order: str = "") -> None:
    if not rows:
        return
    kinds = {"answerable": "bool", **dict.fromkeys(_TIMES, "timestamp[us]"), **dict.fromkeys(_NUMBERS, "int64")}
    pushed = table_of(", ".join(f"{name} {kinds.get(name, 'string')}" for name in columns), rows)
    names = ", ".join(columns)
    with session.staged("pushed_rows", pushed):
        session.change(
            f"INSERT INTO {table} ({names}) SELECT {names} FROM pushed_rows" + (f" ORDER BY {order}" if order else "")
        )
