"""Decisions of people on proposed `supersedes` edges: accepted, rejected or skipped, each undoable.

The table `supersession_decisions` is the team's and keeps every decision. Of two memories the latest one that is not undone counts,
in whichever direction. An accepted pair is an edge of `relations` with its author. Edges stay in each store: `apply` writes those that
colleagues accepted, and removes those whose decision was undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from cems_workbench.errors import InputError
from cems_workbench.records import SUPERSEDES, Relation
from cems_workbench.store import memories, relations
from cems_workbench.store.database import Database
from cems_workbench.store.meta import bump_content_version
from cems_workbench.store.rows import check_name, to_aware, to_naive
from cems_workbench.store.team.session import Row, Session, TeamTables, persistent

if TYPE_CHECKING:
    import duckdb

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
        """Save a verdict on a pair, which replaces the earlier one; an accepted pair becomes an edge at once.

        A skip replaces no verdict. Raises InputError for a person without a name, an unknown memory, or a memory with itself.
        """
        check_name(author)
        if newer == older:
            raise InputError(f"memory {newer} cannot supersede itself")
        decision = SupersessionDecision(newer, older, verdict, author, datetime.now(UTC), why)
        with self._database.reading() as cursor:
            known = memories.live_ids(cursor, [newer, older])
        if missing := [name for name in (newer, older) if name not in known]:
            raise InputError(f"no memory {missing[0]!r} in the store")
        self._write(decision)
        if verdict != "skipped":
            self.apply([decision.pair])
        return decision

    @persistent
    def _write(self, decision: SupersessionDecision) -> None:
        with self._team.transaction(of=decision.author) as session:
            session.change(
                f"INSERT INTO supersession_decisions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    decision.newer,
                    decision.older,
                    decision.verdict,
                    decision.author,
                    to_naive(decision.decided_at),
                    decision.why,
                ],
            )

    def undo(self, author: str) -> SupersessionDecision | None:
        """Undo this person's latest decision that is not undone and return it, None without one.

        The pair's earlier decision, of anybody, counts again.
        """
        undone = self._undo(author)
        if undone is not None and undone.verdict != "skipped":
            self.apply([undone.pair])
        return undone

    @persistent
    def _undo(self, author: str) -> SupersessionDecision | None:
        with self._team.transaction(of=author) as session:
            rows = session.rows(
                f"SELECT {_COLUMNS} FROM supersession_decisions WHERE decided_by = ? AND undone_at IS NULL "
                "ORDER BY decided_at DESC, newer_id, older_id LIMIT 1",
                [author],
            )
            if not rows:
                return None
            last = _decision(rows[0])
            session.change(
                "UPDATE supersession_decisions SET undone_at = ? "
                "WHERE newer_id = ? AND older_id = ? AND decided_by = ? AND decided_at = ?",
                [to_naive(datetime.now(UTC)), last.newer, last.older, last.author, to_naive(last.decided_at)],
            )
            return last

    @persistent
    def standing(self) -> list[SupersessionDecision]:
        """The decision that counts of each accepted or rejected pair, by its ids."""
        with self._team.reading() as session:
            return list(_standing(session).values())

    @persistent
    def skipped(self, author: str) -> list[SupersessionDecision]:
        """The pairs that this person skipped, not undone, oldest first."""
        with self._team.reading() as session:
            rows = session.rows(
                f"SELECT {_COLUMNS} FROM supersession_decisions WHERE decided_by = ? AND verdict = 'skipped' "
                "AND undone_at IS NULL ORDER BY decided_at, newer_id, older_id",
                [author],
            )
        return [_decision(row) for row in rows]

    @persistent
    def history(self, one: str, other: str) -> list[SupersessionDecision]:
        """Every decision on two memories in either direction, undone ones too, oldest first."""
        with self._team.reading() as session:
            rows = session.rows(
                f"SELECT {_COLUMNS} FROM supersession_decisions WHERE (newer_id = ? AND older_id = ?) "
                "OR (newer_id = ? AND older_id = ?) ORDER BY decided_at, decided_by",
                [one, other, other, one],
            )
        return [_decision(row) for row in rows]

    def apply(self, pairs: Sequence[frozenset[str]] | None = None) -> int:
        """Make the store's edges agree with the decisions on `pairs` (None: all pairs); returns the number of changed edges.

        Only edges with an author are removed: those of files and sources stay, whatever was decided. Idempotent.
        """
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
            there = _stored(cursor)
            new = [edge for edge in edges if (edge.source_id, edge.target_id) not in there]
            if new:
                relations.upsert(cursor, new)
            if changed or new:
                bump_content_version(cursor)
        return changed + len(new)

    @persistent
    def _decided(self) -> set[frozenset[str]]:
        """Every pair that was ever accepted or rejected."""
        with self._team.reading() as session:
            rows = session.rows(
                "SELECT DISTINCT newer_id, older_id FROM supersession_decisions WHERE verdict <> 'skipped'"
            )
        return {frozenset(row) for row in rows}


def _standing(session: Session) -> dict[frozenset[str], SupersessionDecision]:
    rows = session.rows(
        f"SELECT {_COLUMNS} FROM supersession_decisions WHERE undone_at IS NULL AND verdict <> 'skipped' "
        "ORDER BY decided_at, decided_by"
    )
    found = {one.pair: one for one in map(_decision, rows)}  # of each pair the last
    return dict(sorted(found.items(), key=lambda item: sorted(item[0])))


def _stored(cursor: duckdb.DuckDBPyConnection) -> set[tuple[str, str]]:
    rows = cursor.execute("SELECT source_id, target_id FROM relations WHERE kind = ?", [SUPERSEDES]).fetchall()
    return {(source, target) for source, target in rows}


def _remove(cursor: duckdb.DuckDBPyConnection, pairs: set[frozenset[str]], kept: Sequence[Relation]) -> int:
    """Delete the accepted edges between the memories of `pairs` that are not in `kept`; returns how many."""
    rows = cursor.execute(
        "SELECT source_id, target_id FROM relations WHERE kind = ? AND author IS NOT NULL", [SUPERSEDES]
    ).fetchall()
    wanted = {(edge.source_id, edge.target_id) for edge in kept}
    gone = [row for row in rows if frozenset(row) in pairs and row not in wanted]
    for source, target in gone:
        cursor.execute(
            "DELETE FROM relations WHERE source_id = ? AND target_id = ? AND kind = ?", [source, target, SUPERSEDES]
        )
    return len(gone)


def _decision(row: Row) -> SupersessionDecision:
    newer, older, verdict, author, decided_at, why = row
    moment = to_aware(decided_at)
    assert moment is not None  # the column is NOT NULL
    return SupersessionDecision(newer, older, verdict, author, moment, why)
