"""Staleness of one ranked memory in words: which memory superseded it, when, and where that one is now; or when it expired or begins.

A memory is stale as `pipeline/stages/supersession.py` and the measure `stale` have it: it does not hold at the moment of the query, or is
superseded and none of its successors ranks above it. One whose successors the query's scope or project excludes is stale here too; the
measure and the stage see only what was searched, and do not count it. Everything is read from the trace; the store is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cems_workbench.analysis.ranks import loss
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.pipeline.supersession import Successor, excluded_successor, find_successors
from cems_workbench.records import Memory
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.relations import SupersedingEdge

NO_LIST = "no list found"
"""Where a successor is that is in no list."""


@dataclass(frozen=True, slots=True)
class Staleness:
    """How a memory of a trace is out of date.

    `rank` is its rank among the results, None if it is not among them. `successor` is the best ranked of its successors, the latest one
    if none is among the results; None if the memory has only expired. `later` says how much later that one was written, `where` where it
    is: "is 12th", "is lost at rerank". `stale`: the memory misleads, because no successor ranks above it, or because it has expired.
    """

    memory_id: str
    rank: int | None
    successor: str | None = None
    successor_rank: int | None = None
    later: str = ""
    where: str = ""
    expired: datetime | None = None
    validity: str = ""
    stale: bool = False

    @property
    def words(self) -> str:
        """ "superseded by m312 (157 days later), which is 12th; expired 2026-03-01"."""
        return "; ".join(part for part in (self._superseded, self.validity) if part)

    @property
    def clause(self) -> str:
        """The words with their verb: "is superseded by m312 …", "expired 2026-03-01", "is not valid before 2027-08-02"."""
        return self.words if self.words.startswith("expired") else f"is {self.words}"

    @property
    def in_a_list(self) -> bool:
        """Whether a list found the successor."""
        return self.successor is not None and self.where.startswith("is ")

    @property
    def excluded(self) -> bool:
        """Whether the query's scope or project excludes every successor."""
        return self.where.startswith("the query's")

    @property
    def short(self) -> str:
        """The badge: "superseded by m312", "expired 2026-03-01" or "not valid before 2027-08-02"."""
        return superseded_words(self.successor) if self.successor else self.validity

    @property
    def _superseded(self) -> str:
        if self.successor is None:
            return ""
        later = f" ({self.later})" if self.later else ""
        return f"superseded by {self.successor}{later}, which {self.where}"

    def to_json(self) -> dict[str, Any]:
        """The same as plain values; absent ones are left out."""
        said = {
            "words": self.words,
            "stale": self.stale,
            "validity": self.validity or None,
            "superseded_by": self.successor,
            "successor_rank": self.successor_rank,
            "expired": self.expired and self.expired.isoformat(),
        }
        return {name: value for name, value in said.items() if value is not None}


def staleness(trace: Trace, memory_id: str, k: int | None = None) -> Staleness | None:
    """How a memory of the trace is out of date; None if nothing supersedes it and it has not expired. `k` is the rank
    from which on a successor counts as lost, as in `analysis/ranks.py:loss`."""
    memory = trace.evidence.memories.get(memory_id)
    successors = trace.evidence.superseded.get(memory_id, ())
    if memory is None:
        return None
    as_of = trace.evidence.as_of
    expired = memory.valid_until if as_of is not None and memory.expired(as_of) else None
    validity = "" if as_of is None else memory.out_of_date(as_of)
    hidden = excluded_successor(trace.evidence.notes, memory_id)
    if not successors and hidden is None and not validity:
        return None
    ranks = trace.ranks
    rank = ranks.get(memory_id)
    if not successors and hidden is not None:
        later, where = days_later(memory.created_at, hidden[0].created_at), f"the query's {hidden[1]} excludes"
        return Staleness(memory_id, rank, hidden[0].memory_id, None, later, where, expired, validity, True)
    if not successors:
        return Staleness(memory_id, rank, expired=expired, validity=validity, stale=True)
    chosen = _chosen(trace, successors, ranks)
    place = ranks.get(chosen.memory_id)
    above = place is not None and (rank is None or place < rank)
    return Staleness(
        memory_id,
        rank,
        chosen.memory_id,
        place,
        days_later(memory.created_at, chosen.created_at),
        _where(trace, chosen.memory_id, place, k),
        expired,
        validity,
        bool(validity) or not above,
    )


def stale_words(trace: Trace, memory_id: str, k: int | None = None) -> str | None:
    """ "superseded by m312 (157 days later), which is 12th", "… which no list found", "… which is lost at adjust",
    "expired 2026-03-01". None for a memory that nothing supersedes and that has not expired. Said also of one whose
    successor ranks above it, which is not stale."""
    found = staleness(trace, memory_id, k)
    return None if found is None else found.words


def stale_badges(trace: Trace) -> dict[str, str]:
    """The badge of every candidate that is out of date, by id: `Staleness.short`, which needs no search for where a successor is."""
    ranks, as_of, superseded = trace.ranks, trace.evidence.as_of, trace.evidence.superseded
    said = {}
    for memory_id, memory in trace.evidence.memories.items():
        if successors := superseded.get(memory_id):
            said[memory_id] = superseded_words(_chosen(trace, successors, ranks).memory_id)
        elif (hidden := excluded_successor(trace.evidence.notes, memory_id)) is not None:
            said[memory_id] = superseded_words(hidden[0].memory_id)
        elif as_of is not None and (validity := memory.out_of_date(as_of)):
            said[memory_id] = validity
    return said


def result_staleness(trace: Trace) -> Mapping[str, Staleness]:
    """The staleness of the results that have one, by id, best first."""
    found = {result.memory_id: staleness(trace, result.memory_id) for result in trace.results}
    return {memory_id: one for memory_id, one in found.items() if one is not None}


def first_result_stale(trace: Trace, anywhere: bool = False) -> Staleness | None:
    """The staleness of the first result, or with `anywhere` of the best one that is stale; None if there is none."""
    found = (staleness(trace, result.memory_id) for result in trace.results[: None if anywhere else 1])
    return next((one for one in found if one is not None and one.stale), None)


def first_result_words(found: Staleness) -> str:
    """ "The first result, m249, is superseded by m312 (157 days later), which is lost at rerank." """
    which = "first" if found.rank in (None, 1) else ordinal(found.rank)
    return f"The {which} result, {found.memory_id}, {found.clause}."


def supersedes_words(trace: Trace, memory_id: str) -> str | None:
    """ "supersedes m249, which is 1st": the best ranked of the memories that it supersedes; None if none of them is a result."""
    ranks = trace.ranks
    older = [key for key, own in trace.evidence.superseded.items() if any(one.memory_id == memory_id for one in own)]
    ranked = sorted((ranks[key], key) for key in older if key in ranks)
    return f"supersedes {ranked[0][1]}, which is {ordinal(ranked[0][0])}" if ranked else None


def standing_sentence(trace: Trace, memory_id: str, k: int | None = None) -> str:
    """ "m249 is superseded by m312 (157 days later), which is 12th." or "m312 supersedes m249, which is 1st."; empty for other memories."""
    found, newer = staleness(trace, memory_id, k), supersedes_words(trace, memory_id)
    parts = [found.clause] if found is not None else []
    parts += [newer] if newer else []
    return f"{memory_id} {'; it '.join(parts)}." if parts else ""


def stored_standings(
    memories: Iterable[Memory], superseding: Iterable[SupersedingEdge], now: datetime
) -> dict[str, str]:
    """By id "superseded by m312 (157 days later); expired 2026-03-01" of stored memories, at a moment; absent if
    neither is so. `superseding` are the edges by which they and their successors are superseded
    (`store.relations.Relations.superseding`)."""
    successors, said = find_successors(superseding, now, ANY).successors, {}
    for memory in memories:
        parts = []
        if own := successors.get(memory.id):
            later = days_later(memory.created_at, own[0].created_at)
            parts.append(f"superseded by {own[0].memory_id}" + (f" ({later})" if later else ""))
        if validity := memory.out_of_date(now):
            parts.append(validity)
        if parts:
            said[memory.id] = "; ".join(parts)
    return said


def excluded_words(trace: Trace, memory: Memory) -> str:
    """ "excluded by the scope": why the search of a trace could not find a memory of the store; empty if its filter lets it pass."""
    evidence = trace.evidence
    only_project = bool((evidence.notes.get("query") or {}).get("only_project"))
    asked = trace.config.query
    ids = None if asked.author is None else frozenset([memory.id] * (memory.author == asked.author))
    where = Filter(evidence.project, only_project, asked.scope, asked.author, ids)
    by = where.excluded_by(memory.id, memory.project, memory.scope)
    return f"excluded by the {by}" if by else ""


def days_later(older: datetime | None, newer: datetime | None) -> str:
    """ "157 days later", by calendar days; empty if one of the dates is not known."""
    if older is None or newer is None:
        return ""
    days = (newer.date() - older.date()).days
    if days == 0:
        return "the same day"
    return f"{abs(days)} day{'' if abs(days) == 1 else 's'} {'later' if days > 0 else 'earlier, by its date'}"


def superseded_words(successor: str) -> str:
    """ "superseded by m312"."""
    return f"superseded by {successor}"


def _chosen(trace: Trace, successors: tuple[Successor, ...], ranks: Mapping[str, int]) -> Successor:
    """The best ranked successor, else the latest one that has not expired, else the latest."""
    ranked = [one for one in successors if one.memory_id in ranks]
    if ranked:
        return min(ranked, key=lambda one: ranks[one.memory_id])
    as_of, memories = trace.evidence.as_of, trace.evidence.memories

    def holds(one: Successor) -> bool:
        memory = memories.get(one.memory_id)
        return memory is None or as_of is None or not memory.out_of_date(as_of)

    return next(filter(holds, successors), successors[0])


def _where(trace: Trace, memory_id: str, rank: int | None, k: int | None) -> str:
    if rank is not None:
        return f"is {ordinal(rank)}"
    found = any(hit.memory_id == memory_id for ranked in trace.evidence.lists for hit in ranked.hits)
    if not found:
        return NO_LIST
    lost = loss(trace, memory_id, k)
    return "is not returned" if lost is None else f"is {lost.words}"
