"""Why the order of a query differs from the recorded one, as far as the recording shows it. Nothing is claimed that it does not.

not here         a recorded result is no memory of this store
equal scores     the two orders differ only among results that the recording itself gives equal scores
equal relations  with edges of equal similarity read in another order, the replay gives the recorded order; which one a database
                 takes is its own business
lexical scores   the recording holds its own lexical list, and scores of it are not ours: words are cut otherwise (`ts_rank`'s parser)
other            none of these
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from cems_workbench.analysis.fidelity.measures import PRECISE, QueryFidelity
from cems_workbench.analysis.why.disturbance import rbo
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.records import Relation

Kind = Literal["not here", "equal scores", "equal relations", "lexical scores", "other"]
Lists = Mapping[str, Sequence[Sequence[tuple[str, float]]]]
"""The recorded lists: by source, one a query variant, (memory id, score) best first."""

CLOSE = 0.6
"""Overlap from which on another order of equal relations is tried: what differs by more has another cause."""
TRIED = 200
"""Replays with another order of equal relations, a query."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What makes the order differ, and the sentence that shows it; empty for `other`."""

    kind: Kind
    text: str = ""


def cause_of(query: QueryFidelity, trace: Trace, lists: Lists) -> Cause:
    """The cause of a query whose order differs."""
    if query.unknown:
        more = f" and {len(query.unknown) - 1} more" if len(query.unknown) > 1 else ""
        return Cause("not here", f"{query.unknown[0]}{more}: no memory of this store")
    tied = _equal_scores(query)
    if tied is not None:
        return Cause("equal scores", f"{' and '.join(tied)} have equal scores in the recording")
    found = _lexical(trace, lists)
    if found is not None:
        return Cause("lexical scores", found)
    group = _equal_relations(query, trace)
    if group is not None:
        source, targets = group
        return Cause(
            "equal relations", f"{source} is as similar to {' as to '.join(targets)}; their other order gives it"
        )
    return Cause("other")


def _equal_scores(query: QueryFidelity) -> tuple[str, str] | None:
    """Two results of equal recorded scores that stand in another order with us, when nothing else differs."""
    scores = query.recorded_scores
    if not query.same_set or any(key not in scores for key in query.recorded):
        return None
    ours = [scores[key] for key in query.ours]
    if ours != [scores[key] for key in query.recorded]:
        return None
    return next((a, b) for a, b in zip(query.recorded, query.ours, strict=True) if a != b)


def _lexical(trace: Trace, lists: Lists) -> str | None:
    """The first memory of the recorded lexical list whose score there is not ours, both as a share of the highest; None when all are."""
    recorded = lists.get("lexical")
    if not recorded or not recorded[-1]:
        return None
    theirs = dict(recorded[-1])
    ours: dict[str, float] = {}
    for ranked in trace.evidence.lists:
        if ranked.source == "lexical" and ranked.variant == 0:
            for hit in ranked.hits:
                ours[hit.memory_id] = max(hit.score, ours.get(hit.memory_id, 0.0))
    best, top = max(theirs.values()), max(ours.values(), default=0.0)
    if best <= 0 or top <= 0:
        return None if not ours else "the recorded lexical list has no score above 0"
    shares = {key: (score / best, ours.get(key, 0.0) / top) for key, score in theirs.items()}
    off = [key for key, (there, here) in shares.items() if abs(there - here) > PRECISE]
    if not off:
        return None
    there, here = shares[off[0]]
    more = f", and {len(off) - 1} more" if len(off) > 1 else ""
    return f"{off[0]} has {there:.4f} of the best lexical score there and {here:.4f} here{more}"


def _equal_relations(query: QueryFidelity, trace: Trace) -> tuple[str, list[str]] | None:
    """A source and its targets of equal similarity whose other order gives the recorded one; None when none was found to."""
    if query.overlap < CLOSE:
        return None
    evidence, best = trace.evidence, query.rbo
    groups = _tied(evidence.relations)
    tried, moved = 0, True
    while moved:
        moved = False
        for source, members in groups:
            for target in members:
                for first in (True, False):
                    tried += 1
                    if tried > TRIED:
                        return None
                    other = _moved(evidence, source, target, members, first)
                    found = [result.memory_id for result in replay(other, trace.config).results]
                    if tuple(found) == query.recorded:
                        return source, sorted(members)
                    nearness = rbo(query.recorded, found)
                    if nearness > best + PRECISE:
                        evidence, best, moved = other, nearness, True
    return None


def _tied(relations: Sequence[Relation]) -> list[tuple[str, list[str]]]:
    """(source, targets) of the edges that no similarity tells apart, two targets at least."""
    ordered = sorted(relations, key=lambda edge: (edge.source_id, -edge.weight))
    groups = []
    for (source, _), edges in groupby(ordered, key=lambda edge: (edge.source_id, edge.weight)):
        targets = [edge.target_id for edge in edges]
        if len(targets) > 1:
            groups.append((source, targets))
    return groups


def _moved(evidence: Evidence, source: str, target: str, members: Sequence[str], first: bool) -> Evidence:
    """The evidence with one of the tied edges of a source read before, or after, the others."""
    places = [
        i for i, edge in enumerate(evidence.relations) if edge.source_id == source and edge.target_id in set(members)
    ]
    edges = [evidence.relations[i] for i in places]
    edges.sort(key=lambda edge: (edge.target_id != target) if first else (edge.target_id == target))
    relations = list(evidence.relations)
    for i, edge in zip(places, edges, strict=True):
        relations[i] = edge
    return replace(evidence, relations=tuple(relations))
