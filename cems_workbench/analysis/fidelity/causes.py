"""Why the order of a query, or a score, is not the recorded one, as far as that can be shown; nothing else is claimed.

    not here         a recorded result is no memory of this store
    equal scores     the two orders differ only among results that the recording itself gives equal scores
    equal relations  with edges of equal similarity read in another order, the replay gives the recorded order; which of them comes first
    equal ts_rank    ... with equal scores of an ordered list standing in another order ...    a database settles as it likes
    lexical scores   the recording holds its own lexical list, and scores of it are not ours: words are cut otherwise (`ts_rank`'s parser)
    vector list      the recording holds its own vector list, and its order is not that of ours
    other            none of these

They are looked for in this order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from cems_workbench.analysis.fidelity.measures import PRECISE, QueryFidelity
from cems_workbench.analysis.ranks import ranks_in
from cems_workbench.analysis.why.disturbance import rbo
from cems_workbench.pipeline import Evidence, RankedList, Trace, replay
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.records import Relation

Kind = Literal["not here", "equal scores", "equal relations", "equal ts_rank", "lexical scores", "vector list", "other"]
Lists = Mapping[str, Sequence[Sequence[tuple[str, float]]]]
"""The recorded lists: by source, one a query variant, (memory id, score) best first; that of the query itself is the last."""

CLOSE = 0.6
"""Overlap from which on another order of equal values is tried: what differs by more has another cause."""
TRIED = 200
"""Replays with another order of equal values, a query."""
LEXICAL, VECTOR = ("ts_rank", "lexical"), ("hybrid", "vector")
"""Our lists for a recorded one: the first of them that the evidence has."""
_ORDERED = {source.name for source in LIST_SOURCES if source.ordered}


@dataclass(frozen=True, slots=True)
class Cause:
    """What makes the order differ, and the sentence that shows it; empty for `other`."""

    kind: Kind
    text: str = ""


def cause_of(query: QueryFidelity, trace: Trace, lists: Lists) -> Cause:
    """The cause of a query whose order, or one of whose scores, differs."""
    if query.unknown:
        more = f" and {len(query.unknown) - 1} more" if len(query.unknown) > 1 else ""
        return Cause("not here", f"{query.unknown[0]}{more}: no memory of this store")
    tied = _equal_scores(query)
    if tied is not None:
        return Cause("equal scores", f"{' and '.join(tied)} have equal scores in the recording")
    return _other_order(query, trace) or _lexical(trace, lists) or _vector(trace, lists) or Cause("other")


def _equal_scores(query: QueryFidelity) -> tuple[str, str] | None:
    """Two results of equal recorded scores that stand in another order with us, when nothing else differs."""
    scores = query.recorded_scores
    if query.same_order or not query.same_set or any(key not in scores for key in query.recorded):
        return None
    ours = [scores[key] for key in query.ours]
    if ours != [scores[key] for key in query.recorded]:
        return None
    return next((a, b) for a, b in zip(query.recorded, query.ours, strict=True) if a != b)


def _lexical(trace: Trace, lists: Lists) -> Cause | None:
    """The first memory of the recorded lexical list whose score there is not ours, both as a share of the highest; None when all are."""
    recorded = lists.get("lexical")
    ours = _best_scores(trace.evidence)
    if not recorded or not recorded[-1] or not ours:
        return None
    theirs = dict(recorded[-1])
    best, top = max(theirs.values()), max(ours.values())
    if best <= 0 or top <= 0:
        return None
    shares = {key: (score / best, ours.get(key, 0.0) / top) for key, score in theirs.items()}
    off = [key for key, (there, here) in shares.items() if abs(there - here) > PRECISE]
    if not off:
        return None
    there, here = shares[off[0]]
    more = f", and {len(off) - 1} more" if len(off) > 1 else ""
    return Cause(
        "lexical scores", f"{off[0]} has {there:.4f} of the best lexical score there and {here:.4f} here{more}"
    )


def _best_scores(evidence: Evidence) -> dict[str, float]:
    """The best score of each memory in our lexical list of the query itself."""
    sources = {ranked.source for ranked in evidence.lists}
    own = next((name for name in LEXICAL if name in sources), None)
    found: dict[str, float] = {}
    for ranked in evidence.lists:
        if ranked.source == own and ranked.variant == 0:
            for hit in ranked.hits:
                found[hit.memory_id] = max(hit.score, found.get(hit.memory_id, 0.0))
    return found


def _vector(trace: Trace, lists: Lists) -> Cause | None:
    """The first place at which the recorded vector list has another memory than ours; None where they go together."""
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
    """Values that nothing tells apart: edges of a source (`list` None), or hits of a list, by the memories they lead to."""

    kind: Kind
    name: str
    members: tuple[str, ...]

    def words(self) -> str:
        """What is equal, in a sentence that ends with what was shown."""
        shown = ", ".join(self.members[:4]) + (f" and {len(self.members) - 4} more" if len(self.members) > 4 else "")
        what = f"edges of {self.name} to" if self.kind == "equal relations" else f"scores in {self.name} of"
        return f"equal {what} {shown}: in another order they give the recorded one"


def _other_order(query: QueryFidelity, trace: Trace) -> Cause | None:
    """A tie whose other order gives the recorded answer, alone or after others that bring it nearer; None when none was found to."""
    if query.overlap < CLOSE:
        return None
    evidence, best, tried, moved = trace.evidence, _nearness(query, query.ours, query.our_scores), 0, True
    concerned = set(query.recorded) | set(query.ours)
    ties = [*_equal_edges(evidence.relations, concerned), *_equal_hits(evidence.lists, concerned)]
    while moved:
        moved = False
        for tie in ties:
            for target in (key for key in tie.members if key in concerned):
                for first in (True, False):
                    tried += 1
                    if tried > TRIED:
                        return None
                    other = _moved(evidence, tie, target, first)
                    results = replay(other, trace.config).results
                    found = _nearness(
                        query,
                        tuple(result.memory_id for result in results),
                        {one.memory_id: one.score for one in results},
                    )
                    if found >= (SAME, -PRECISE if query.same_order else -math.inf):
                        return Cause(tie.kind, tie.words())
                    if found > best:
                        evidence, best, moved = other, found, True
    return None


SAME = 2.0


def _nearness(query: QueryFidelity, found: tuple[str, ...], scores: Mapping[str, float]) -> tuple[float, float]:
    """How near results are to the recorded ones: the overlap of the orders, `SAME` for the same; then how far the worst score is off."""
    if found != query.recorded:
        return rbo(query.recorded, found), 0.0
    off = max((abs(score - scores[key]) for key, score in query.recorded_scores.items() if key in scores), default=0.0)
    return SAME, -off


def _equal_edges(relations: Sequence[Relation], concerned: set[str]) -> Iterator[_Tie]:
    """Edges of a source that no similarity tells apart, of which one at least leads to a result."""
    ordered = sorted(relations, key=lambda edge: (edge.source_id, -edge.weight))
    for (source, _), edges in groupby(ordered, key=lambda edge: (edge.source_id, edge.weight)):
        members = tuple(edge.target_id for edge in edges)
        if len(members) > 1 and concerned.intersection(members):
            yield _Tie("equal relations", source, members)


def _equal_hits(lists: Sequence[RankedList], concerned: set[str]) -> Iterator[_Tie]:
    """Hits of a list whose order is its own that no score tells apart, of which one at least is a result."""
    for ranked in lists:
        if ranked.source not in _ORDERED:
            continue
        for _, hits in groupby(ranked.hits, key=lambda hit: hit.score):
            members = tuple(hit.memory_id for hit in hits)
            if len(members) > 1 and concerned.intersection(members):
                yield _Tie("equal ts_rank", ranked.name, members)


def _moved(evidence: Evidence, tie: _Tie, target: str, first: bool) -> Evidence:
    """The evidence with what leads to one memory of a tie read before, or after, the others."""
    members = set(tie.members)

    def late(key: str) -> bool:
        return (key != target) if first else (key == target)

    if tie.kind == "equal relations":
        places = [
            i for i, edge in enumerate(evidence.relations) if edge.source_id == tie.name and edge.target_id in members
        ]
        edges = sorted((evidence.relations[i] for i in places), key=lambda edge: late(edge.target_id))
        relations = list(evidence.relations)
        for i, edge in zip(places, edges, strict=True):
            relations[i] = edge
        return replace(evidence, relations=tuple(relations))
    lists = tuple(
        replace(
            ranked,
            hits=tuple(
                sorted(ranked.hits, key=lambda hit: (-hit.score, hit.memory_id in members and late(hit.memory_id)))
            ),
        )
        if ranked.name == tie.name
        else ranked
        for ranked in evidence.lists
    )
    return replace(evidence, lists=lists)
