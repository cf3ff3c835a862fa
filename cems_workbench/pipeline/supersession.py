"""Supersession: which candidates a later memory replaces, noted in evidence when it is gathered.

A `supersedes` or `replaces` edge leads from the newer memory to the older one, `superseded_by` and `replaced_by` the other way. A memory
is superseded by the ends of its edges, by theirs, and so on. What did not exist at the moment of the query supersedes nothing: an edge
counts only if the newer memory was created by then (a memory without a date counts). An edge in a cycle is ignored, with a warning.
A successor that the query's filter or a deletion hides is none, but the chain goes on behind it. Where the filter hides all of them, a
second note names the latest, and whether scope or project excludes it: it takes no part, and is only named.

The note names of each superseded candidate its successors, and gathering adds these to the candidates although no list found them,
so that replay can use them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cems_workbench.records import SUPERSEDES

if TYPE_CHECKING:
    from cems_workbench.store.filter import Filter
    from cems_workbench.store.relations import SupersedingEdge

SUPERSEDED = "superseded"
"""The note of the superseded candidates."""
EXCLUDED = "superseded_by_excluded"
"""The note of candidates whose successors are all outside the query's scope or project."""
_EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Successor:
    """A memory that supersedes another: its id and date, the kind of the edge that leads to it, and the person who accepted that edge,
    None for an edge of a file or a source."""

    memory_id: str
    created_at: datetime | None = None
    kind: str = SUPERSEDES
    author: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The successor as it is noted; without the author if there is none."""
        noted = {"id": self.memory_id, "created_at": self.created_at and self.created_at.isoformat(), "kind": self.kind}
        return noted if self.author is None else noted | {"author": self.author}


@dataclass(frozen=True, slots=True)
class Supersession:
    """Of memory ids that are superseded their successors, latest first, and the ids on cycles, sorted."""

    successors: Mapping[str, tuple[Successor, ...]]
    cyclic: tuple[str, ...] = ()
    excluded: Mapping[str, tuple[Successor, str]] = field(default_factory=dict)
    """Of memories whose successors the filter hides the latest of them, and what excludes it: "scope" or "project"."""

    @property
    def added(self) -> set[str]:
        """The ids of all successors."""
        return {one.memory_id for own in self.successors.values() for one in own}

    @property
    def warnings(self) -> list[str]:
        """A line about the ignored edges, if there are any."""
        if not self.cyclic:
            return []
        some = ", ".join(self.cyclic[:4]) + (" …" if len(self.cyclic) > 4 else "")
        return [
            f"{len(self.cyclic)} memories supersede each other in a circle; the edges between them are ignored: {some}"
        ]

    def noted_in(self, notes: Mapping[str, Any]) -> dict[str, Any]:
        """Notes of evidence with those of what is superseded."""
        found: dict[str, Any] = {
            SUPERSEDED: {key: [one.to_json() for one in own] for key, own in sorted(self.successors.items())}
        }
        hidden = {key: one.to_json() | {"excluded_by": by} for key, (one, by) in sorted(self.excluded.items())}
        others = {name: note for name, note in notes.items() if name != EXCLUDED}
        return others | found | ({EXCLUDED: hidden} if hidden else {})


def superseded(notes: Mapping[str, Any]) -> dict[str, tuple[Successor, ...]]:
    """Of each superseded candidate the successors, latest first, as the notes of evidence have them; empty without the note."""
    noted = notes.get(SUPERSEDED) or {}
    return {str(key): tuple(map(_read, own)) for key, own in noted.items()}


def excluded_successor(notes: Mapping[str, Any], memory_id: str) -> tuple[Successor, str] | None:
    """The latest successor of a candidate whose successors the query's filter hides, and what excludes it; None for others."""
    one = (notes.get(EXCLUDED) or {}).get(memory_id)
    return None if one is None else (_read(one), str(one["excluded_by"]))


def _read(noted: Mapping[str, Any]) -> Successor:
    return Successor(str(noted["id"]), _moment(noted.get("created_at")), str(noted["kind"]), noted.get("author"))


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def find_successors(edges: Iterable[SupersedingEdge], as_of: datetime | None, where: Filter) -> Supersession:
    """The successors of every memory that an edge supersedes; `edges` are all that can be reached from the candidates."""
    leading: dict[str, dict[str, SupersedingEdge]] = {}
    for edge in edges:
        if edge.created_at is None or as_of is None or edge.created_at <= as_of:
            leading.setdefault(edge.older, {}).setdefault(edge.newer, edge)
    reached = {older: _reached(older, leading) for older in leading}
    cyclic = {key for key, own in reached.items() if key in own}
    if cyclic:
        # Both ends of an edge in a cycle reach each other; other edges of these memories stay.
        leading = {
            older: {newer: edge for newer, edge in own.items() if older not in (*reached.get(newer, ()), newer)}
            for older, own in leading.items()
        }
        reached = {older: _reached(older, leading) for older in leading}
    by_newer = {newer: edge for own in leading.values() for newer, edge in sorted(own.items())}
    found, excluded = {}, {}
    for older, newer in reached.items():
        # The own edge tells more than the one by which the chain goes on.
        live = [_successor(leading[older].get(key, by_newer[key])) for key in newer if by_newer[key].live]
        hidden = {
            one.memory_id: by
            for one in live
            if (edge := by_newer[one.memory_id]) and (by := where.excluded_by(one.memory_id, edge.project, edge.scope))
        }
        if own := [one for one in live if one.memory_id not in hidden]:
            found[older] = tuple(latest_first(own))
        elif live:
            latest = latest_first(live)[0]
            excluded[older] = (latest, hidden[latest.memory_id])
    return Supersession(found, tuple(sorted(cyclic)), excluded)


def latest_first(successors: Iterable[Successor]) -> list[Successor]:
    """By falling date, those without a date last, ties by id."""
    by_id = sorted(successors, key=lambda one: one.memory_id)
    return sorted(by_id, key=lambda one: one.created_at or _EARLIEST, reverse=True)


def _successor(edge: SupersedingEdge) -> Successor:
    return Successor(edge.newer, edge.created_at, edge.kind, edge.author)


def _reached(older: str, leading: Mapping[str, Collection[str]]) -> set[str]:
    """Every memory that the edges lead to from `older`; itself too if it is on a cycle."""
    found: set[str] = set()
    left = list(leading.get(older, ()))
    while left:
        key = left.pop()
        if key not in found:
            found.add(key)
            left += leading.get(key, ())
    return found


def check_note(note: Any, memories: Collection[str]) -> str | None:
    """What is wrong with a note of superseded candidates; None if nothing is."""
    if not isinstance(note, Mapping):
        return "expected an object"
    for key, own in note.items():
        if key not in memories:
            return f"{key!r:.60} is not among the memories"
        problem = _fault_of(own, memories)
        if problem:
            return f"{key}: {problem}"
    return None


def check_excluded(note: Any) -> str | None:
    """What is wrong with a note of excluded successors; None if nothing is."""
    if not isinstance(note, Mapping):
        return "expected an object"
    for key, one in note.items():
        if not isinstance(one, Mapping) or one.get("excluded_by") not in ("scope", "project"):
            return f"{key!r:.60}: expected a successor that scope or project excludes"
        if problem := _fault_of([one], [str(one.get("id"))]):
            return f"{key!r:.60}: {problem}"
    return None


def _fault_of(own: Any, memories: Collection[str]) -> str | None:
    if not isinstance(own, Sequence) or isinstance(own, str) or not own:
        return "expected an array of successors"
    for one in own:
        if not isinstance(one, Mapping) or not isinstance(one.get("id"), str) or one["id"] not in memories:
            return "expected successors that are among the memories"
        if not isinstance(one.get("kind"), str) or not isinstance(one.get("author"), str | None):
            return "expected a successor's kind of edge, and its author, as text"
        try:
            moment = _moment(one.get("created_at"))
        except (TypeError, ValueError):
            return f"expected an ISO 8601 time, found {one.get('created_at')!r:.60}"
        if moment is not None and moment.tzinfo is None:
            return f"expected a time with its zone, found {one.get('created_at')!r:.60}"
    return None
