"""Causes of a difference from the recorded order or scores of a query; only those that can be shown.

    not here         a recorded result is no memory of this store
    equal scores     the two orders differ only among results that the recording itself gives equal scores, or that it gave equal scores
                     before the last cut, of which one of us has the one and one the other
    tied lists       with equal scores of our lists in the recorded order, the replay gives the recorded order, up to such ties
    equal relations  with edges of equal similarity read in another order, the replay gives the recorded order; which of them comes first
    equal ts_rank    ... with equal scores in an ordered list, in another order ...    a database settles as it likes
    equal hybrid     the order is the recorded one, and a score that is not is of a memory that shares its score in the hybrid list
    lexical scores   the recording holds its own lexical list, and scores of it are not ours: words are cut otherwise (`ts_rank`'s parser)
    vector list      the recording holds its own vector list, and its order is not that of ours
    user filter      the source filters by user after its search, and its own list of that length has just the recorded results
    other            none of these

They are looked for in this order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from cems_workbench.analysis.fidelity.measures import EXACT_PRECISION, QueryFidelity
from cems_workbench.analysis.ranks import ranks_in, rbo
from cems_workbench.pipeline import Evidence, RankedList, Trace, replay
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages import LISTS
from cems_workbench.records import Relation

Kind = Literal[
    "not here",
    "equal scores",
    "tied lists",
    "equal relations",
    "equal ts_rank",
    "equal hybrid",
    "lexical scores",
    "vector list",
    "user filter",
    "other",
]
Lists = Mapping[str, Sequence[Sequence[tuple[str, float]]]]
"""The recorded lists: by source, one a query variant, (memory id, score) best first; that of the query itself is the last."""

CLOSE_OVERLAP = 0.6
"""Minimum overlap to try another order of equal values: larger differences have another cause."""
MAX_ORDERS = 150
"""Maximum number of replays with another order of equal values, per query."""
LEXICAL, VECTOR = ("ts_rank", "lexical"), ("hybrid", "vector")
"""Our lists for a recorded one: the first that the evidence has is used."""
WORDS = tuple(
    source.name for source in LIST_SOURCES if source.per_variant and not (source.nested or source.engine_fusion)
)[2:]
"""Our lists by words other than the plain lexical one."""
_ORDERED = {source.name for source in LIST_SOURCES if source.ordered}
_NESTED = {source.name for source in LIST_SOURCES if source.nested}


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a difference, and the sentence that shows it; empty for `other`."""

    kind: Kind
    text: str = ""


def cause_of(query: QueryFidelity, trace: Trace, lists: Lists) -> Cause:
    """The cause of a difference in the order or the scores of a query."""
    if query.unknown:
        more = f" and {len(query.unknown) - 1} more" if len(query.unknown) > 1 else ""
        return Cause("not here", f"{query.unknown[0]}{more}: no memory of this store")
    tied = _equal_scores(query)
    if tied is not None:
        return Cause("equal scores", f"{' and '.join(tied)} have equal scores in the recording")
    by_ties = query.settled is not None and query.same_scores == 1.0 if query.same_order else query.up_to_ties
    if by_ties:
        return _tied(query)
    return (
        _other_order(query, trace, lists)
        or _equal_within(query, trace)
        or _lexical(trace, lists)
        or _vector(trace, lists)
        or Cause("other")
    )


def _equal_scores(query: QueryFidelity) -> tuple[str, str] | None:
    """Two results with equal recorded scores in another order here, if nothing else differs."""
    scores = query.recorded_scores
    if query.same_order or not query.same_set or any(key not in scores for key in query.recorded):
        return None
    ours = [scores[key] for key in query.ours]
    if ours != [scores[key] for key in query.recorded]:
        return None
    return next((a, b) for a, b in zip(query.recorded, query.ours, strict=True) if a != b)


def _tied(query: QueryFidelity) -> Cause:
    missing = [key for key in query.recorded if key not in query.ours]
    extra = [key for key in query.ours if key not in query.recorded]
    if missing and extra:
        return Cause("equal scores", f"{missing[0]} there and {extra[0]} here have equal scores before the last cut")
    return Cause("tied lists", "equal scores of the lists in the recorded order give the recorded answer")


def _lexical(trace: Trace, lists: Lists) -> Cause | None:
    """The first memory of the recorded lexical list with another score than ours, both as a share of the highest; None if all are equal."""
    name = next((name for name in (*WORDS, LEXICAL[-1]) if lists.get(name)), "")
    recorded = lists.get(name)
    ours = _best_scores(trace.evidence, name)
    if not recorded or not recorded[-1] or not ours:
        return None
    theirs = dict(recorded[-1])
    best, top = max(theirs.values()), max(ours.values())
    if best <= 0 or top <= 0:
        return None
    shares = {key: (score / best, ours.get(key, 0.0) / top) for key, score in theirs.items()}
    off = [key for key, (there, here) in shares.items() if abs(there - here) > EXACT_PRECISION]
    if not off:
        return None
    there, here = shares[off[0]]
    more = f", and {len(off) - 1} more" if len(off) > 1 else ""
    return Cause(
        "lexical scores", f"{off[0]} has {there:.4f} of the best lexical score there and {here:.4f} here{more}"
    )


def _best_scores(evidence: Evidence, name: str) -> dict[str, float]:
    """The best score of each memory in our list of that name of the query itself; for `lexical` the one that the evidence has."""
    sources = {ranked.source for ranked in evidence.lists}
    own = next((source for source in (LEXICAL if name == LEXICAL[-1] else (name,)) if source in sources), None)
    found: dict[str, float] = {}
    for ranked in evidence.lists:
        if ranked.source == own and ranked.variant == 0:
            for hit in ranked.hits:
                found[hit.memory_id] = max(hit.score, found.get(hit.memory_id, 0.0))
    return found


def _vector(trace: Trace, lists: Lists) -> Cause | None:
    """The first rank at which the recorded vector list has another memory than ours; None if they agree."""
    recorded = lists.get("vector")
    ours = next((found for name in VECTOR if (found := ranks_in(trace, f"{name}:0"))), None)
    if not recorded or ours is None:
        return None
    theirs = [memory_id for memory_id, _ in recorded[-1]]
    place = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), None)
    if place is None:
        return None
    key = theirs[place]
    here = f"at {ours[key][0]}" if key in ours else "not in it"
    return Cause("vector list", f"{key} is at {place + 1} of the vector list there, {here} here")


@dataclass(frozen=True, slots=True)
class _Tie:
    """Equal values: edges of a source (`list` None), or hits of a list, by the memories they lead to, in their order."""

    kind: Kind
    name: str
    value: float
    members: tuple[str, ...]

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Source and target of each edge."""
        return {(self.name, member) for member in self.members}

    def words(self) -> str:
        """The equal values, in a sentence that ends with the effect."""
        shown = ", ".join(self.members[:4]) + (f" and {len(self.members) - 4} more" if len(self.members) > 4 else "")
        what = f"edges of {self.name} to" if self.kind == "equal relations" else f"scores in {self.name} of"
        return f"equal {what} {shown}: in another order they give the recorded one"


def _other_order(query: QueryFidelity, trace: Trace, lists: Lists) -> Cause | None:
    """A tie that gives the recorded answer in another order, alone or after other ties that bring it nearer; None without one.

    Where the recorded lists say how its ties were settled, that was tried already.
    """
    if query.overlap < CLOSE_OVERLAP or any(name in lists for name in WORDS):
        return None
    evidence, best, tried, moved = trace.evidence, _nearness(query, query.ours, query.our_scores), 0, True
    concerned = set(query.recorded) | set(query.ours)
    ties = [*_equal_edges(evidence.relations, concerned), *_equal_hits(evidence.lists, concerned)]
    while moved:
        moved = False
        for tie, place in _doubted(ties, query, concerned):
            for other in _orders(evidence, tie, tie.members[place]):
                tried += 1
                if tried > MAX_ORDERS:
                    return None
                results = replay(other, trace.config).results
                scores = {result.memory_id: result.score or 0.0 for result in results}
                found = _nearness(query, tuple(scores), scores)
                if found >= (SAME_ORDER, -query.precision if query.same_order else -math.inf):
                    return Cause(tie.kind, tie.words())
                if found > best:
                    evidence, best, moved = other, found, True
    return None


def _doubted(ties: Sequence[_Tie], query: QueryFidelity, concerned: set[str]) -> Iterator[tuple[_Tie, int]]:
    """Every tie with the ranks of its members in the results, those with another score than the recorded one first."""
    off = set(_off(query))
    for tie in ties:
        places = [i for i, key in enumerate(tie.members) if key in concerned]
        yield from ((tie, place) for place in sorted(places, key=lambda i: tie.members[i] not in off))


def _off(query: QueryFidelity) -> list[str]:
    theirs, own = query.recorded_scores, query.our_scores
    return [
        key
        for key in query.recorded
        if key in theirs and (key not in own or abs(theirs[key] - own[key]) > query.precision)
    ]


def _equal_within(query: QueryFidelity, trace: Trace) -> Cause | None:
    """In the recorded order: every different score belongs to a memory with a tied score in a nested list."""
    off = _off(query)
    if not query.same_order or not off:
        return None
    for listed in (one for one in trace.stage(LISTS).fields.lists if one.source in _NESTED and one.variant is not None):
        scores = {
            row.memory_id: entry.raw
            for row in trace.stage(LISTS).rows
            for entry in row.lists
            if entry.list == listed.name and entry.kept
        }
        equals = [
            next((other for other in scores if other != key and scores[other] == scores.get(key)), None) for key in off
        ]
        if all(equals):
            return Cause(
                "equal hybrid", f"{off[0]} has the same score in {listed.name} as {equals[0]}; their order is undefined"
            )
    return None


SAME_ORDER = 2.0


def _nearness(query: QueryFidelity, found: tuple[str, ...], scores: Mapping[str, float]) -> tuple[float, float]:
    """Closeness of results to the recorded ones: their overlap, `SAME_ORDER` if equal; then the largest score difference."""
    if found != query.recorded:
        return rbo(query.recorded, found), 0.0
    off = max((abs(score - scores[key]) for key, score in query.recorded_scores.items() if key in scores), default=0.0)
    return SAME_ORDER, -off


def _equal_edges(relations: Sequence[Relation], concerned: set[str]) -> Iterator[_Tie]:
    """Edges of a source with equal similarity, at least one of which leads to a result."""
    ordered = sorted(relations, key=lambda edge: (edge.source_id, -edge.weight))
    for (source, weight), edges in groupby(ordered, key=lambda edge: (edge.source_id, edge.weight)):
        members = tuple(edge.target_id for edge in edges)
        if len(members) > 1 and concerned.intersection(members):
            yield _Tie("equal relations", source, weight, members)


def _equal_hits(lists: Sequence[RankedList], concerned: set[str]) -> Iterator[_Tie]:
    """Hits of an ordered list with equal scores, at least one of which is a result."""
    for ranked in lists:
        if ranked.source not in _ORDERED:
            continue
        for score, hits in groupby(ranked.hits, key=lambda hit: hit.score):
            members = tuple(hit.memory_id for hit in hits)
            if len(members) > 1 and concerned.intersection(members):
                yield _Tie("equal ts_rank", ranked.name, score, members)


def _orders(evidence: Evidence, tie: _Tie, target: str) -> Iterator[Evidence]:
    """The evidence with one memory of a tie moved to each other position among its equals, the nearest first."""
    if tie.kind == "equal relations":
        relations = evidence.relations
        places = [i for i, edge in enumerate(relations) if (edge.source_id, edge.target_id) in tie.pairs]
        for order in _with_moved(places, next(i for i in places if relations[i].target_id == target)):
            other = list(relations)
            for i, taken in zip(places, order, strict=True):
                other[i] = relations[taken]
            yield replace(evidence, relations=tuple(other))
        return
    at = next(i for i, ranked in enumerate(evidence.lists) if ranked.name == tie.name)
    ranked = evidence.lists[at]
    first = next(i for i, hit in enumerate(ranked.hits) if hit.memory_id == target and hit.score == tie.value)
    places = [i for i, hit in enumerate(ranked.hits) if hit.score == tie.value]
    for order in _with_moved(places, first):
        hits = list(ranked.hits)
        for i, taken in zip(places, order, strict=True):
            hits[i] = ranked.hits[taken]
        lists = (*evidence.lists[:at], replace(ranked, hits=tuple(hits)), *evidence.lists[at + 1 :])
        yield replace(evidence, lists=lists)


def _with_moved(places: Sequence[int], one: int) -> Iterator[list[int]]:
    """The places with one of them at each other position, the nearest first."""
    own = places.index(one)
    rest = [place for place in places if place != one]
    for to in sorted(range(len(places)), key=lambda i: abs(i - own)):
        if to != own:
            yield [*rest[:to], one, *rest[to:]]
