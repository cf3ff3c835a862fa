"""Measures of fidelity: agreement of the results of a set of queries with a real system's answers; and causes of differences.

MEASURES says what each is: a share of queries, a mean over them, or the largest difference. A memory that we cut has its score before the
cut; two empty answers are the same. `up_to_ties` and `same_scores` are of our results with equal scores of our lists in the recorded
order, where the recording has those lists: what an engine makes of equal scores is chance, and their ranks change scores further down.

Intervals are those of evaluation: a bootstrap over queries (`evaluation.statistics`).

A difference from the recorded order or scores of a query has the first of these causes (`Cause.kind`) that can be shown:

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
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Literal, TypeVar

import numpy as np

from cems_workbench.analysis.ranks import kendall, ranks_in, rbo
from cems_workbench.evaluation.statistics import bootstrap, means
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages import LISTS
from cems_workbench.pipeline.table import Floats
from workbench_fidelity.lists import equal, same_up_to_ties

SHARES = ("same_order", "same_set", "same_first", "up_to_ties", "same_scores")
MEANS = ("overlap", "rbo", "tau")
SCORE_DIFFERENCE = "score_difference"
MEASURES: Mapping[str, str] = {
    "same_order": "share of queries with the same memories in the same order, to the end",
    "same_set": "share of queries with the same memories, in any order",
    "same_first": "share of queries with the same first memory",
    "up_to_ties": "share of queries with the same order, if equal scores may come in any order",
    "same_scores": "share of queries in which every recorded score is ours, memory by memory",
    "overlap": "mean Jaccard overlap of the first ten",
    "rbo": "mean rank-biased overlap, 0 to 1: the top counts most",
    "tau": "mean Kendall's tau: 1 the same order, −1 reversed",
    SCORE_DIFFERENCE: "largest difference of two scores where the order is the same",
}
DEPTH = 10
EXACT_PRECISION = 1e-6
"""Scores that differ by less are the same: a real system computes some of its numbers in single precision."""


@dataclass(frozen=True, slots=True)
class QueryFidelity:
    """One query: the recorded memories, ours (cut to the recorded length), and their scores.

    `unknown` are recorded results that are no memory of the store; `recorded` has them under their original id. Scores
    that differ by no more than `precision` are the same. `settled` are our results and scores with equal scores of our lists in the
    recorded order, None where that changes nothing. `before_cut` are the recorded scores before the last cut, `ours_before_cut` our scores
    of the same moment, those of the settled lists if there are any. `depth` is the k of the overlap.
    """

    qid: str
    query: str
    recorded: tuple[str, ...]
    ours: tuple[str, ...]
    recorded_scores: Mapping[str, float]
    our_scores: Mapping[str, float]
    unknown: tuple[str, ...] = ()
    precision: float = EXACT_PRECISION
    settled: Mapping[str, float] | None = None
    before_cut: Mapping[str, float] = field(default_factory=dict)
    ours_before_cut: Mapping[str, float] = field(default_factory=dict)
    depth: int = DEPTH

    @property
    def same_order(self) -> bool:
        return self.recorded == self.ours

    @property
    def same_set(self) -> bool:
        """The same memories, in any order."""
        return set(self.recorded) == set(self.ours)

    @property
    def same_first(self) -> bool:
        """The same first memory, or none in both."""
        return self.recorded[:1] == self.ours[:1]

    @property
    def overlap(self) -> float:
        """Jaccard overlap of the first `depth`."""
        theirs, own = set(self.recorded[: self.depth]), set(self.ours[: self.depth])
        return len(theirs & own) / len(theirs | own) if theirs | own else 1.0

    @property
    def up_to_ties(self) -> bool:
        """The same order, where results of equal recorded scores may come in any order."""
        scores, cut, precision = self.recorded_scores, self.before_cut, self.precision
        ours = [self.ours] if self.settled is None else [self.ours, tuple(self.settled)]
        return self.same_order or any(
            same_up_to_ties(self.recorded, one, scores, cut, self.ours_before_cut, precision) for one in ours
        )

    @property
    def same_scores(self) -> float:
        """1 if every recorded score is ours, memory by memory, else 0; NaN without a recorded score."""
        if not self.recorded_scores:
            return 1.0 if not self.recorded and not self.ours else math.nan
        same, of = self.equal_scores
        return float(same == of)

    @property
    def equal_scores(self) -> tuple[int, int]:
        """How many of the recorded scores are ours, memory by memory, and how many there are."""
        own = self.our_scores if self.settled is None else self.settled
        # One that is no result here was cut, and had its score before that.
        return self._equal(self.recorded_scores, {**self.ours_before_cut, **own})

    @property
    def equal_before_cut(self) -> tuple[int, int]:
        """Of the recorded results with a recorded score before the last cut: how many have ours, and how many there are."""
        known = {key: self.before_cut[key] for key in self.recorded if key in self.before_cut}
        return self._equal(known, self.ours_before_cut)

    def _equal(self, recorded: Mapping[str, float], ours: Mapping[str, float]) -> tuple[int, int]:
        same = sum(equal(score, ours.get(key, math.nan), self.precision) for key, score in recorded.items())
        return same, len(recorded)

    @property
    def rbo(self) -> float:
        return rbo(self.recorded, self.ours)

    @property
    def tau(self) -> float:
        return kendall(self.recorded, self.ours)

    @property
    def score_difference(self) -> float | None:
        """The largest difference of a score, None if the order differs or no scores were recorded."""
        both = [key for key in self.recorded if key in self.recorded_scores and key in self.our_scores]
        if not self.same_order or not both:
            return None
        return max(abs(self.recorded_scores[key] - self.our_scores[key]) for key in both)

    @property
    def top_score(self) -> float | None:
        """The best recorded score, None without one."""
        return max(self.recorded_scores.values(), default=None)

    @property
    def same(self) -> bool:
        """The same order, and the same scores if they were recorded."""
        return self.same_order and (self.score_difference or 0.0) <= self.precision


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over queries with its 95 % interval, NaN without queries; `count` is the number of queries of a share, else None."""

    mean: float
    low: float
    high: float
    count: int | None = None


@dataclass(frozen=True)
class SetFidelity:
    """The measures of a set of queries under one setting."""

    queries: tuple[QueryFidelity, ...]
    seed: int = 0

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Every share and mean by name."""
        names = (*SHARES, *MEANS)
        values: Floats = np.array([[float(getattr(query, name)) for name in names] for query in self.queries])
        values = values.reshape(len(self.queries), len(names))
        mean, (low, high) = means(values), bootstrap(values, self.seed)
        found = {}
        for m, name in enumerate(names):
            count = int(np.nansum(values[:, m])) if name in SHARES else None
            found[name] = Estimate(float(mean[m]), float(low[m]), float(high[m]), count)
        return found

    @cached_property
    def score_difference(self) -> float | None:
        """The largest difference of two scores among queries with the same order; None without any to compare."""
        return max(self._differences, default=None)

    def counted(self, name: Literal["equal_scores", "equal_before_cut"]) -> tuple[int, int]:
        """How many recorded scores are ours, memory by memory, and how many there are: all, or those before the last cut."""
        counts = [getattr(query, name) for query in self.queries]
        return sum(same for same, _ in counts), sum(of for _, of in counts)

    @property
    def precise(self) -> tuple[int, int]:
        """Queries with the same order and the same scores to `precision`, of those that have scores."""
        return sum(difference <= self.precision for difference in self._differences), len(self._differences)

    @property
    def precision(self) -> float:
        """Maximum difference of two scores that count as equal."""
        return max((query.precision for query in self.queries), default=EXACT_PRECISION)

    @cached_property
    def _differences(self) -> list[float]:
        return [found for query in self.queries if (found := query.score_difference) is not None]

    def value(self, name: str) -> float:
        """A measure by its name; NaN without a value. Raises KeyError for an unknown name."""
        if name == SCORE_DIFFERENCE:
            return math.nan if self.score_difference is None else self.score_difference
        return self.estimates[name].mean


Row = TypeVar("Row")
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

    kind: str
    text: str = ""


def cause_of(query: QueryFidelity, trace: Trace, lists: Lists) -> Cause:
    """The cause of a difference in the order or the scores of a query."""
    if query.unknown:
        more = f" and {len(query.unknown) - 1} more" if len(query.unknown) > 1 else ""
        return Cause("not here", f"{query.unknown[0]}{more}: no memory of this store")
    if tied := _equal_scores(query):
        return Cause("equal scores", f"{' and '.join(tied)} have equal scores in the recording")
    if query.settled is not None and query.same_scores == 1.0 if query.same_order else query.up_to_ties:
        missing = [key for key in query.recorded if key not in query.ours]
        extra = [key for key in query.ours if key not in query.recorded]
        if missing and extra:
            return Cause(
                "equal scores", f"{missing[0]} there and {extra[0]} here have equal scores before the last cut"
            )
        return Cause("tied lists", "equal scores of the lists in the recorded order give the recorded answer")
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
    text = f"{off[0]} has {there:.4f} of the best lexical score there and {here:.4f} here{more}"
    return Cause("lexical scores", text)


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

    kind: str
    name: str
    value: float
    members: tuple[str, ...]

    def words(self) -> str:
        shown = ", ".join(self.members[:4]) + (f" and {len(self.members) - 4} more" if len(self.members) > 4 else "")
        what = f"edges of {self.name} to" if self.kind == "equal relations" else f"scores in {self.name} of"
        return f"equal {what} {shown}: in another order they give the recorded one"


def _other_order(query: QueryFidelity, trace: Trace, lists: Lists) -> Cause | None:
    """A tie that gives the recorded answer in another order, alone or after other ties that bring it nearer; None
    without one. Where the recorded lists say how its ties were settled, that was tried already."""
    if query.overlap < CLOSE_OVERLAP or any(name in lists for name in WORDS):
        return None
    evidence, best, tried, moved = trace.evidence, _nearness(query, query.ours, query.our_scores), 0, True
    concerned = set(query.recorded) | set(query.ours)
    ties = list(_ties(evidence, concerned))
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
    known = (key for key in query.recorded if key in theirs)
    return [key for key in known if key not in own or abs(theirs[key] - own[key]) > query.precision]


def _equal_within(query: QueryFidelity, trace: Trace) -> Cause | None:
    """In the recorded order: every different score belongs to a memory with a tied score in a nested list."""
    off = _off(query)
    if not query.same_order or not off:
        return None
    entries = [(row.memory_id, entry) for row in trace.stage(LISTS).rows for entry in row.lists if entry.kept]
    for listed in (one for one in trace.stage(LISTS).fields.lists if one.source in _NESTED and one.variant is not None):
        scores = {key: entry.raw for key, entry in entries if entry.list == listed.name}
        equals = [next((one for one in scores if one != key and scores[one] == scores.get(key)), None) for key in off]
        if all(equals):
            text = f"{off[0]} has the same score in {listed.name} as {equals[0]}; their order is undefined"
            return Cause("equal hybrid", text)
    return None


SAME_ORDER = 2.0


def _nearness(query: QueryFidelity, found: tuple[str, ...], scores: Mapping[str, float]) -> tuple[float, float]:
    """Closeness of results to the recorded ones: their overlap, `SAME_ORDER` if equal; then the largest score difference."""
    if found != query.recorded:
        return rbo(query.recorded, found), 0.0
    off = max((abs(score - scores[key]) for key, score in query.recorded_scores.items() if key in scores), default=0.0)
    return SAME_ORDER, -off


def _ties(evidence: Evidence, concerned: set[str]) -> Iterator[_Tie]:
    """Edges of a source with equal similarity, and hits of an ordered list with equal scores, at least one of which is a result."""
    edges = sorted(evidence.relations, key=lambda edge: (edge.source_id, -edge.weight))
    found = [
        _Tie("equal relations", source, weight, tuple(edge.target_id for edge in equal))
        for (source, weight), equal in groupby(edges, key=lambda edge: (edge.source_id, edge.weight))
    ]
    for ranked in (one for one in evidence.lists if one.source in _ORDERED):
        for score, hits in groupby(ranked.hits, key=lambda hit: hit.score):
            found.append(_Tie("equal ts_rank", ranked.name, score, tuple(hit.memory_id for hit in hits)))
    return (tie for tie in found if len(tie.members) > 1 and concerned.intersection(tie.members))


def _orders(evidence: Evidence, tie: _Tie, target: str) -> Iterator[Evidence]:
    """The evidence with one memory of a tie moved to each other position among its equals, the nearest first."""
    if tie.kind == "equal relations":
        edges, pairs = evidence.relations, {(tie.name, member) for member in tie.members}
        places = [i for i, edge in enumerate(edges) if (edge.source_id, edge.target_id) in pairs]
        own = next(at for at, i in enumerate(places) if edges[i].target_id == target)
        for relations in _moved(edges, places, own):
            yield replace(evidence, relations=relations)
        return
    ranked = next(ranked for ranked in evidence.lists if ranked.name == tie.name)
    places = [i for i, hit in enumerate(ranked.hits) if hit.score == tie.value]
    own = next(at for at, i in enumerate(places) if ranked.hits[i].memory_id == target)
    for hits in _moved(ranked.hits, places, own):
        settled = replace(ranked, hits=hits)
        yield replace(evidence, lists=tuple(settled if one is ranked else one for one in evidence.lists))


def _moved(rows: Sequence[Row], places: Sequence[int], own: int) -> Iterator[tuple[Row, ...]]:
    """The rows with that at one of the places at each of the others, the nearest first."""
    for to in sorted(range(len(places)), key=lambda i: abs(i - own)):
        if to != own:
            order = [*places[:own], *places[own + 1 :]]
            order.insert(to, places[own])
            moved = list(rows)
            for i, taken in zip(places, order, strict=True):
                moved[i] = rows[taken]
            yield tuple(moved)
