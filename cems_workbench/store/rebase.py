"""Judgments that follow their memories: what was judged of a memory counts for the memories that have its text now (`judged_texts`).

A moved judgment keeps its judge, its time and its grade, and its note says how it moved. It is an import on record, which an undo takes
back. The old one stays, as its memory may return; it is taken away only where another text has the id now. Where several judgments of a
judge meet on one memory, the highest grade counts. A move that a person has removed is not repeated, and one that was undone only by the
command.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING

from cems_workbench.errors import counted
from cems_workbench.records import WHOLE_STORE, Judgment, ParsedInput, RowError
from cems_workbench.store import judged_texts, judgments, label_events
from cems_workbench.store.claims import Pair
from cems_workbench.store.judged_texts import UNJUDGED, Found, Judged
from cems_workbench.store.judgments import key_of
from cems_workbench.store.label_events import Key
from cems_workbench.store.rows import Mark

if TYPE_CHECKING:
    import duckdb

    from cems_workbench.store.database import Database
    from cems_workbench.store.team import Session, TeamTables

REBASE = "rebase"
"""The format of such an import."""
STALE = "stale"
"""In an input's `extra`: the keys of judgments whose memory has another text now."""
MOVES = "moves"
"""In an input's `extra`, and in the settings of a labelling queue: (one of the queries, memory, judged memory whose text it may have)."""
ACCEPTED = "accepted by "
"""How the note of a judgment ends that moved by a person's word, before the name."""
UNDO = "undo of import "
"""How the source of a label event begins that an undo made."""
Numbered = Sequence[tuple[int, Judgment]]


@dataclass(frozen=True, slots=True)
class Rebase:
    """What happens to the judgments: where their memories are, those that are new, those that go as their id has another text, and the
    pairs that a person has to tell. `ways` counts the judgments by status and how that was told. `moves` are as `MOVES`, and `texts` those
    of their judged memories that the store has not kept. `unkept` are memories that the store lacks and whose text it never had."""

    found: Mapping[str, Found] = field(default_factory=dict)
    ways: Mapping[tuple[str, str], int] = field(default_factory=dict)
    moved: tuple[Judgment, ...] = ()
    stale: tuple[Key, ...] = ()
    doubtful: tuple[Pair, ...] = ()
    moves: tuple[tuple[str, str, str], ...] = ()
    texts: Mapping[str, Judged] = field(default_factory=dict)
    unkept: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """The judgments by status, the most first."""
        counts = Counter[str]()
        for (status, _), count in self.ways.items():
            counts[status] += count
        return dict(counts.most_common())

    @property
    def outcome(self) -> dict[str, int]:
        """What is on record of it: the judgments by status and way, such as "moved: same text"."""
        return {f"{status}: {how}" if how else status: count for (status, how), count in self.ways.items()}

    @property
    def changes(self) -> bool:
        return bool(self.moved or self.stale or self.doubtful)

    @property
    def words(self) -> str:
        """What happens to the judgments, in one line."""
        parts = [f"{count:,} {status}" for status, count in self.counts.items()]
        doubts = f"; doubtful, for a person to label: {counted(len(self.doubtful), 'pairs')}" if self.doubtful else ""
        return f"judgments: {', '.join(parts) or 'none'}{doubts}"

    def as_input(self) -> tuple[ParsedInput, str | None]:
        """The judgments as an input of the store, and the name of the labelling queue for the doubtful pairs."""
        extra = {"pairs": list(self.doubtful), STALE: self.stale, MOVES: self.moves, "texts": self.texts}
        parsed = ParsedInput("judgments rebase", REBASE, judgments=self.moved, extra=extra)
        return parsed, f"{REBASE}-{datetime.now(UTC):%Y%m%d-%H%M%S}" if self.doubtful else None


def plan(database: Database, team: TeamTables, texts: Mapping[str, str] | None = None, by_itself: bool = False) -> Rebase:
    """What a rebase would do; nothing is changed. `texts` are those of an older store or file, by id. One that is made
    `by_itself`, after an import, leaves what was undone."""
    with team.reading() as session:
        rows = session.rows(f"SELECT {', '.join(judgments.FIELDS)} FROM judgments WHERE memory_id <> '{WHOLE_STORE}'")
        queued = "SELECT qid, memory_id, NULL, NULL FROM label_queue_pairs"
        taken = "SELECT qid, memory_id, judge, kind FROM label_events WHERE action = 'remove'"
        left = session.rows(f"{queued} UNION ALL {taken}" if by_itself else f"{queued} UNION ALL {taken} AND source NOT LIKE '{UNDO}%'")
    unwanted: set[Pair] = {(qid, memory_id) for qid, memory_id, judge, _ in left if judge is None}
    removed: set[Key] = {(qid, memory_id, judge, kind) for qid, memory_id, judge, kind in left if judge is not None}
    given = [judgments.record(row) for row in rows]
    ids = {one.memory_id for one in given}
    old = {key: Judged(text) for key, text in (texts or {}).items() if key in ids}
    with database.reading() as cursor:
        kept = judged_texts.kept(cursor, ids)
        known = kept | old
        found = judged_texts.found_in(cursor, known)
        unkept = ids - known.keys()  # a live memory has a text
    told = set[Pair]()
    if any(one.doubtful for one in found.values()):
        with team.reading() as session:
            told = _told(session)
    at = {one.memory_id: found.get(one.memory_id, UNJUDGED) for one in given}
    stale = {
        key_of(one)
        for one in given
        if at[one.memory_id].reused and removed.isdisjoint((one.qid, to, one.judge, one.kind) for to in at[one.memory_id].targets)
    }
    there = {key_of(one) for one in given} - stale | removed
    moved = [one for _, one in follow(list(enumerate(given)), found) if key_of(one) not in there]
    unwanted |= {(one.qid, one.memory_id) for one in (*given, *moved)}
    asked: dict[Pair, str] = {}  # a person tells once for all queries
    for one in given:
        for other in at[one.memory_id].doubtful:
            if (one.qid, other) not in unwanted and (other, one.memory_id) not in told:
                asked[other, one.memory_id] = min(one.qid, asked.get((other, one.memory_id), one.qid))
    moves = sorted((qid, *both) for both, qid in asked.items())
    ways = Counter(("orphaned", "") if one.memory_id in unkept else _way(at[one.memory_id]) for one in given)
    return Rebase(
        found,
        dict(ways.most_common()),
        tuple(moved),
        tuple(sorted(stale)),
        tuple(dict.fromkeys(move[:2] for move in moves)),
        tuple(moves),
        {key: known[key] for _, _, key in moves if key not in kept},
        tuple(sorted(unkept)),
    )


def _told(session: Session) -> set[Pair]:
    """The memories of which a person told, or is asked, whether they have what was judged of others, with these."""
    told = {(target, key) for target, note in session.rows(label_events.REJECTED) for key in json.loads(note)}
    for (settings,) in session.rows("SELECT settings FROM label_queues"):
        told |= {(target, key) for _, target, key in json.loads(settings).get(MOVES, ())}
    return told


PERHAPS = "perhaps"
"""How judgments are found of which a person has to tell."""


def _way(found: Found) -> tuple[str, str]:
    how = "says most of it" if found.how.startswith("says") else found.how
    return found.status, how or PERHAPS * bool(found.doubtful)


def accepted(session: Session, target: str, judged: Sequence[str], reviewer: str) -> list[Judgment]:
    """The judgments that move from these judged memories to one that has their text by a person's word; those that it has itself stay."""
    names = f"SELECT {', '.join(judgments.FIELDS)} FROM judgments WHERE memory_id IN (SELECT unnest(?::text[]))"
    given = [judgments.record(row) for row in session.rows(names, [[target, *judged]])]
    there = {key_of(one) for one in given if one.memory_id == target}
    found = {key: Found("moved", (target,), f"{ACCEPTED}{reviewer}") for key in judged}
    rows = [one for one in given if one.memory_id != target]
    return [one for _, one in follow(list(enumerate(rows)), found) if key_of(one) not in there]


def take_back(session: Session, target: str, judged: Sequence[str], reviewer: str, when: datetime) -> None:
    """Remove the judgments that a person's word moved to a memory from these."""
    moved = "SELECT qid, memory_id, judge, kind, note FROM judgments WHERE memory_id = ? AND note IS NOT NULL ORDER BY 1, 2, 3, 4"
    endings = tuple(f"moved from {key}: {ACCEPTED}{reviewer}" for key in judged)
    for *of, note in session.rows(moved, [target]):
        if not note.endswith(endings):
            continue
        key = of[0], of[1], of[2], of[3]
        before = label_events.present(session, key)
        judgments.delete(session, key)
        label_events.append(session, key, "remove", when, grade=None, source=REBASE, before=before)


def follow(rows: Numbered, found: Mapping[str, Found]) -> list[tuple[int, Judgment]]:
    """The judgments under the ids that their memories have now, without those whose id has another text that nobody judged. Of several of
    a judge that meet on a memory that they moved to, the one with the highest grade; one of the memory itself comes first."""
    followed, best = list[tuple[int, Judgment]](), dict[Key, tuple[int, Judgment]]()
    for number, one in rows:
        at = found.get(one.memory_id, UNJUDGED)
        if at.status in ("valid", "orphaned"):
            followed.append((number, one))
            continue
        for target in at.targets:
            note = f"{f'{one.note}; ' if one.note else ''}{at.status} from {one.memory_id}: {at.how}"
            key = one.qid, target, one.judge, one.kind
            if key not in best or best[key][1].grade < one.grade:
                best[key] = number, Judgment(one.qid, target, one.grade, one.judge, one.kind, one.judged_at, note)
    there = {key_of(one) for _, one in followed}
    return [*followed, *(row for key, row in best.items() if key not in there)]


def named(parsed: ParsedInput) -> set[str]:
    """The memories of an input's judgments, and of its pairs without one."""
    return {one.memory_id for one in parsed.judgments} | {memory_id for _, memory_id in parsed.extra.get("pairs", ())}


def followed(
    cursor: duckdb.DuckDBPyConnection,
    parsed: ParsedInput,
    known: Collection[str],
    texts: Mapping[str, str],
    problems: list[RowError],
) -> tuple[ParsedInput, list[str]]:
    """The input with its judgments of memories that have other ids here, and a note. `known` are the judged ids that the store has, `texts`
    those of the input's own memories, by id; without them the store has kept what was judged here before."""
    rows = parsed.numbered("judgments")
    named = {one.memory_id for _, one in rows}
    judged = {key: Judged(texts[key]) for key in named if key in texts}
    judged = judged_texts.kept(cursor, named.difference(known, judged)) | judged
    found = {key: one for key, one in judged_texts.found_in(cursor, judged).items() if one.status != "valid"}
    if not any(one.doubtful or one.status != "orphaned" for one in found.values()):
        return parsed, []
    of_them = [(number, one, found[one.memory_id]) for number, one in rows if one.memory_id in found]
    reason = "memory {!r} has another text here, and no memory has the one that was judged"
    problems += [
        RowError(parsed.source, number, reason.format(one.memory_id), "memory_id")
        for number, one, at in of_them
        if at.status == "changed"
    ]
    doubtful = [(one.qid, other) for _, one, at in of_them for other in at.doubtful]
    counts = Counter(at.status for _, _, at in of_them)
    note = ", ".join(f"{count:,} {status}" for status, count in counts.most_common())
    parsed = parsed.with_rows(judgments=sorted(follow(rows, found), key=itemgetter(0)))
    parsed = replace(parsed, extra={**parsed.extra, "pairs": [*parsed.extra.get("pairs", ()), *doubtful]})
    return parsed, [f"judgments of memories with another id or text here: {note}"]


def retire(session: Session, stale: Iterable[Key], when: datetime, by: Mark) -> None:
    """Take away the judgments whose id has another text now; the input on record keeps them."""
    same = "qid = ? AND memory_id = ? AND judge = ? AND kind = ?"
    for key in stale:
        before = label_events.present(session, key)
        session.change(
            "INSERT INTO judgments_before (input, origin, qid, memory_id, judge, kind, grade, judged_at, note, source, shown) "
            f"SELECT ?, origin, qid, memory_id, judge, kind, grade, judged_at, note, source, shown FROM judgments WHERE {same}",
            [by.in_team, *key],
        )
        judgments.delete(session, key)
        label_events.append(session, key, "import", when, grade=None, source=REBASE, before=before)
