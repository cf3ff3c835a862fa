"""The relations between memories: directed, weighted edges in the `relations` table, read in both directions.

Decisions of people on proposed `supersedes` edges: accepted, rejected or skipped, each undoable.

The table `supersession_decisions` is the team's and keeps every decision. Of two memories the latest one that is not undone counts,
in whichever direction. An accepted pair is an edge of `relations` with its author. Edges stay in each store: `apply` writes those that
colleagues accepted, and removes those whose decision was undone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from cems_workbench.errors import InputError
from cems_workbench.records import NEWER_FIRST, OLDER_FIRST, SUPERSEDES, Relation
from cems_workbench.store import memories
from cems_workbench.store import rows as tables
from cems_workbench.store.database import Database
from cems_workbench.store.memories import LOOKUP_BATCH
from cems_workbench.store.team import Session, TeamTables, persistent, rows_of

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class SupersedingEdge:
    """An edge by which `newer` supersedes `older`, with what is known of `newer`; `live` is whether it is in the store."""

    older: str
    newer: str
    kind: str
    author: str | None
    created_at: datetime | None
    project: str | None
    scope: str
    live: bool


class Relations:
    """The relations of an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache = tables.VersionedCache(database)

    def read(self) -> list[Relation]:
        """All edges between live memories, by source, target and kind."""
        rows = self._database.rows(
            "SELECT source_id, target_id, kind, weight, r.author FROM relations AS r "
            "JOIN memories AS s ON s.id = source_id AND s.deleted_at IS NULL "
            "JOIN memories AS t ON t.id = target_id AND t.deleted_at IS NULL ORDER BY source_id, target_id, kind"
        )
        return [Relation(*row) for row in rows]

    def of_memory(self, memory_id: str) -> list[Relation]:
        """The edges from and to a memory, outgoing first, strongest first, ties by the other end; without deleted memories."""
        rows = self._database.rows(
            "SELECT source_id, target_id, kind, weight, r.author FROM relations AS r "
            "JOIN memories AS m ON m.id = CASE WHEN r.source_id = $id THEN r.target_id ELSE r.source_id END "
            "WHERE (r.source_id = $id OR r.target_id = $id) AND m.deleted_at IS NULL "
            "ORDER BY r.source_id <> $id, weight DESC, m.id, kind",
            {"id": memory_id},
        )
        return [Relation(*row) for row in rows]

    def leading_from(self, sources: Sequence[str], most: int) -> list[Relation]:
        """The outgoing edges of each of `sources`, in that order, at most `most` each, strongest first. Ties by the
        import order of the targets. Deleted targets are left out; parallel edges are not merged. Without authors."""
        wanted = list(dict.fromkeys(sources))
        rows = self._database.rows(
            "SELECT source_id, target_id, kind, weight FROM relations JOIN memories AS t ON t.id = target_id "
            "WHERE t.deleted_at IS NULL AND source_id IN (SELECT unnest(?)) "
            "QUALIFY row_number() OVER (PARTITION BY source_id ORDER BY weight DESC, t.rowid, kind) <= ? "
            "ORDER BY source_id, weight DESC, t.rowid, kind",
            [wanted, most],
        )
        place = {source: position for position, source in enumerate(wanted)}
        return [Relation(*row) for row in sorted(rows, key=lambda row: place[row[0]])]

    def neighbours(self, seeds: Sequence[str], per_seed: int) -> list[tuple[str, str, float]]:
        """(seed, neighbour, weight), seeds in the given order, at most `per_seed` each, highest weight first, ties by
        id. Edges count in both directions; several edges between two memories count once, with the highest weight.
        Deleted memories are no neighbours, and a memory is not its own."""
        wanted = list(dict.fromkeys(seeds))
        rows = self._database.rows(_NEIGHBOURS, [wanted, per_seed])
        place = {seed: position for position, seed in enumerate(wanted)}
        return sorted(rows, key=lambda row: (place[row[0]], -row[2], row[1]))

    def superseding(self, memory_ids: Collection[str]) -> list[SupersedingEdge]:
        """The edges by which these memories are superseded, those by which their successors are, and so on; by older, newer and kind."""
        known = self._cache.get("superseding", _superseding)
        reached = self._database.rows(_REACHED, [sorted(memory_ids)]) if known is None else _walked(known, memory_ids)
        if not reached:
            return []
        about = self._database.read(_about, sorted({newer for _, newer, _, _ in reached}))
        return [
            SupersedingEdge(older, newer, kind, author, *about.get(newer, (None, None, "", False)))
            for older, newer, kind, author in sorted(reached, key=lambda edge: edge[:3])
        ]

    def has_superseding(self) -> bool:
        known = self._cache.get("superseding", _superseding)
        return known is None or bool(known)


_Edge = tuple[str, str, str, str | None]
"""Older, newer, kind, author."""
MOST_CACHED = 250_000
"""Superseding edges that are kept in memory, about 300 bytes each: a scan of the table takes a tenth of a second at a million edges."""


def _superseding(cursor: duckdb.DuckDBPyConnection) -> dict[str, list[_Edge]] | None:
    """All superseding edges by the older memory; None if they are too many to be kept."""
    rows = cursor.execute(f"{_EDGES} LIMIT {MOST_CACHED + 1}").fetchall()
    if len(rows) > MOST_CACHED:
        return None
    found: dict[str, list[_Edge]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def _walked(known: Mapping[str, Sequence[_Edge]], memory_ids: Collection[str]) -> list[_Edge]:
    found: list[_Edge] = []
    left, seen = list(memory_ids), set(memory_ids)
    while left:
        for edge in known.get(left.pop(), ()):
            found.append(edge)
            if edge[1] not in seen:
                seen.add(edge[1])
                left.append(edge[1])
    return found


def _about(
    cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]
) -> dict[str, tuple[datetime | None, str | None, str, bool]]:
    """When some memories were created, their project and scope, and whether they are live."""
    about: dict[str, tuple[datetime | None, str | None, str, bool]] = {}
    for some in tables.portions(ids, LOOKUP_BATCH):
        # With a list as one parameter, DuckDB would scan all rows.
        rows = cursor.execute(
            f"SELECT id, created_at, project, scope, deleted_at FROM memories WHERE id IN ({', '.join('?' * len(some))})",
            some,
        ).fetchall()
        about |= {row[0]: (tables.to_aware(row[1]), row[2], row[3], row[4] is None) for row in rows}
    return about


_EDGES = f"""
SELECT target_id AS older, source_id AS newer, kind, author FROM relations WHERE kind IN {NEWER_FIRST}
UNION ALL
SELECT source_id AS older, target_id AS newer, kind, author FROM relations WHERE kind IN {OLDER_FIRST}
"""
_REACHED = f"""
WITH RECURSIVE edges AS MATERIALIZED ({_EDGES}),
reached AS (
    SELECT unnest(?) AS id
    UNION
    SELECT newer FROM edges JOIN reached ON older = id
)
SELECT edges.* FROM edges JOIN reached ON older = reached.id
"""
_NEIGHBOURS = """
WITH seeds AS (SELECT unnest(?) AS seed),
edges AS (
    SELECT seed, target_id AS other, weight FROM relations JOIN seeds ON source_id = seed
    UNION ALL
    SELECT seed, source_id AS other, weight FROM relations JOIN seeds ON target_id = seed
)
SELECT seed, other, max(weight) AS best FROM edges JOIN memories ON memories.id = other
WHERE other <> seed AND deleted_at IS NULL
GROUP BY seed, other
QUALIFY row_number() OVER (PARTITION BY seed ORDER BY best DESC, other) <= ?
"""


def upsert(
    cursor: duckdb.DuckDBPyConnection, relations: Sequence[Relation], *, by: int | tables.Mark = tables.EDITED
) -> tables.RowCounts:
    """Insert edges and update weight and author of known ones; (source, target, kind) must be distinct in `relations`.
    An edge without an author keeps the one it has in the store. `by` as in `memories.upsert`."""
    table = tables.table_of(
        "source_id string, target_id string, kind string, weight double, author string",
        [(edge.source_id, edge.target_id, edge.kind, edge.weight, edge.author) for edge in relations],
    )
    same = "r.source_id = s.source_id AND r.target_id = s.target_id AND r.kind = s.kind"
    changes = f"{same} AND (r.weight <> s.weight OR r.author IS DISTINCT FROM coalesce(s.author, r.author))"
    writer = by.id if isinstance(by, tables.Mark) else by
    with tables.staged(cursor, "staged_relations", table):
        if isinstance(by, tables.Mark):
            cursor.execute(
                "INSERT INTO relations_before (input, origin, source_id, target_id, kind, weight, author) "
                "SELECT ?, r.origin, r.source_id, r.target_id, r.kind, r.weight, r.author FROM relations AS r "
                f"JOIN staged_relations AS s ON {changes} WHERE {tables.FOREIGN.format('r')}",
                [by.id, by.inputs],
            )
        updated = tables.scalar(
            cursor,
            "UPDATE relations AS r SET weight = s.weight, author = coalesce(s.author, r.author), origin = ? "
            f"FROM staged_relations AS s WHERE {changes}",
            [writer],
        )
        added = tables.scalar(
            cursor,
            "INSERT INTO relations (source_id, target_id, kind, weight, author, origin, added_by) "
            "SELECT source_id, target_id, kind, weight, author, ?, ? FROM staged_relations AS s "
            f"WHERE NOT EXISTS (FROM relations AS r WHERE {same})",
            [writer, writer],
        )
    return tables.RowCounts(added, updated, len(relations) - added - updated)


Verdict = Literal["accepted", "rejected", "skipped"]
_COLUMNS = "newer_id, older_id, verdict, decided_by, decided_at, why"


@dataclass(frozen=True, slots=True)
class SupersessionDecision:
    """A person's verdict on whether `newer` supersedes `older`; `why` are the words of the proposal that the person saw."""

    newer: str
    older: str
    verdict: Verdict
    author: str
    decided_at: datetime
    why: str | None = None

    @property
    def pair(self) -> frozenset[str]:
        """The two memories, without direction."""
        return frozenset((self.newer, self.older))


class Supersessions:
    """The decisions on supersession in an open store. Thread-safe."""

    def __init__(self, database: Database, team: TeamTables) -> None:
        self._database = database
        self._team = team

    def decide(
        self, newer: str, older: str, verdict: Verdict, author: str, why: str | None = None
    ) -> SupersessionDecision:
        """Save a verdict on a pair, which replaces the earlier one; an accepted pair becomes an edge at once. A skip
        replaces no verdict. Raises InputError for a person without a name, an unknown memory, or a memory with
        itself."""
        tables.check_name(author)
        if newer == older:
            raise InputError(f"memory {newer} cannot supersede itself")
        decision = SupersessionDecision(newer, older, verdict, author, datetime.now(UTC), why)
        known = self._database.read(memories.live_ids, [newer, older])
        if missing := [name for name in (newer, older) if name not in known]:
            raise InputError(f"no memory {missing[0]!r} in the store")
        self._write(decision)
        if verdict != "skipped":
            self.apply([decision.pair])
        return decision

    @persistent
    def _write(self, decision: SupersessionDecision) -> None:
        *verdict, moment, why = astuple(decision)
        with self._team.transaction(of=decision.author) as session:
            session.change(
                f"INSERT INTO supersession_decisions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                [*verdict, tables.to_naive(moment), why],
            )

    def undo(self, author: str, given: SupersessionDecision | None = None) -> SupersessionDecision | None:
        """Undo a decision that this person gave, or the latest that is not undone, and return it; None if there is none.
        The pair's earlier decision, of anybody, counts again."""
        undone = self._undo(author, given)
        if undone is not None and undone.verdict != "skipped":
            self.apply([undone.pair])
        return undone

    @persistent
    def _undo(self, author: str, given: SupersessionDecision | None) -> SupersessionDecision | None:
        with self._team.transaction(of=author) as session:
            latest = "decided_by = ? AND undone_at IS NULL ORDER BY decided_at DESC, newer_id, older_id"
            rows = _decisions(session, latest, [author])
            last = next((one for one in rows if given is None or one == given), None)
            if last is None:
                return None
            session.change(
                "UPDATE supersession_decisions SET undone_at = ? "
                "WHERE newer_id = ? AND older_id = ? AND decided_by = ? AND decided_at = ?",
                [
                    tables.to_naive(datetime.now(UTC)),
                    last.newer,
                    last.older,
                    last.author,
                    tables.to_naive(last.decided_at),
                ],
            )
            return last

    @persistent
    def standing(self) -> list[SupersessionDecision]:
        """The decision that counts of each accepted or rejected pair, by its ids."""
        with self._team.reading() as session:
            rows = _decisions(session, "undone_at IS NULL AND verdict <> 'skipped' ORDER BY decided_at, decided_by")
        found = {one.pair: one for one in rows}  # of each pair the last
        return [found[pair] for pair in sorted(found, key=sorted)]

    def standing_of(self, pair: frozenset[str]) -> SupersessionDecision | None:
        """The decision that counts of two memories; None while there is none."""
        return next((one for one in self.standing() if one.pair == pair), None)

    @persistent
    def skipped(self, author: str) -> list[SupersessionDecision]:
        """The pairs that this person skipped, not undone, oldest first."""
        own = "decided_by = ? AND verdict = 'skipped' AND undone_at IS NULL ORDER BY decided_at, newer_id, older_id"
        with self._team.reading() as session:
            return _decisions(session, own, [author])

    @persistent
    def history(self, one: str, other: str) -> list[SupersessionDecision]:
        """Every decision on two memories in either direction, undone ones too, oldest first."""
        of_both = "newer_id IN (?, ?) AND older_id IN (?, ?) AND newer_id <> older_id ORDER BY decided_at, decided_by"
        with self._team.reading() as session:
            return _decisions(session, of_both, [one, other, one, other])

    def apply(self, pairs: Sequence[frozenset[str]] | None = None) -> int:
        """Make the store's edges agree with the decisions on `pairs` (None: all pairs); returns the number of changed
        edges. Only edges with an author are removed: those of files and sources stay, whatever was decided.
        Idempotent."""
        decided, standing = self._decided(), {one.pair: one for one in self.standing()}
        wanted = set(decided) if pairs is None else set(pairs) & set(decided)
        if not wanted:
            return 0
        with self._database.transaction() as cursor:
            known = memories.live_ids(cursor, sorted({end for pair in wanted for end in pair}))
            edges = [
                Relation(one.newer, one.older, SUPERSEDES, 1.0, one.author)
                for pair, one in standing.items()
                if pair in wanted and one.verdict == "accepted" and pair <= known
            ]
            changed = _remove(cursor, wanted, edges)
            stored = "SELECT source_id, target_id FROM relations WHERE kind = ?"
            there = {*cursor.execute(stored, [SUPERSEDES]).fetchall()}
            new = [edge for edge in edges if (edge.source_id, edge.target_id) not in there]
            if new:
                upsert(cursor, new)
            if changed or new:
                tables.bump_content_version(cursor)
        return changed + len(new)

    @persistent
    def _decided(self) -> set[frozenset[str]]:
        rows = rows_of(
            self._team, "SELECT DISTINCT newer_id, older_id FROM supersession_decisions WHERE verdict <> 'skipped'"
        )
        return {frozenset(row) for row in rows}


def _decisions(session: Session, which: str, values: Sequence[Any] = ()) -> list[SupersessionDecision]:
    rows = session.rows(f"SELECT {_COLUMNS} FROM supersession_decisions WHERE {which}", values)
    return [
        SupersessionDecision(newer, older, verdict, author, moment.replace(tzinfo=UTC), why)
        for newer, older, verdict, author, moment, why in rows
    ]


def _remove(cursor: duckdb.DuckDBPyConnection, pairs: set[frozenset[str]], kept: Sequence[Relation]) -> int:
    """Delete the accepted edges between the memories of `pairs` that are not in `kept`; returns how many."""
    rows = cursor.execute(
        "SELECT source_id, target_id FROM relations WHERE kind = ? AND author IS NOT NULL", [SUPERSEDES]
    ).fetchall()
    wanted = {(edge.source_id, edge.target_id) for edge in kept}
    gone = [row for row in rows if frozenset(row) in pairs and row not in wanted]
    one = "DELETE FROM relations WHERE source_id = ? AND target_id = ? AND kind = ?"
    for edge in gone:
        cursor.execute(one, [*edge, SUPERSEDES])
    return len(gone)
