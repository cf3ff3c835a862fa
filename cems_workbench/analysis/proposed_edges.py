"""Pairs of memories of which the later one may replace the earlier one, scored from the store alone.

    score = 1 / (1 + exp(-(bias + sum of weight(f) * f))), f in FEATURES

where near = (1/r + 1/s) / 2, r the rank of the older memory among the newer one's earlier neighbours and s that of the newer one among the
older one's later neighbours; the others are the signs in the texts (analysis/supersession_signals.py). A score is comparable between
pairs; it is a probability only in stores like the one that WEIGHTS were fitted on (docs/use/labelling.md says how, and how well it works).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cems_workbench.analysis.supersession import days_later
from cems_workbench.analysis.supersession_signals import Profile, Signals, profile_of, signals_of
from cems_workbench.pipeline.effects import written_later
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.progress import Progress, silent
from cems_workbench.records import NEWER_FIRST, OLDER_FIRST

if TYPE_CHECKING:
    from cems_workbench.pipeline.replay import Trace

NEIGHBOURS = 20
"""Neighbours of a memory that are read from the index."""
BATCH_PAIRS = 2_000
"""Pairs whose texts are in memory at once."""
MINIMUM = 0.1
"""Score from which a pair is proposed by default."""

ASKED, ASKED_FIRST = 0.2, 3
"""Score from which a person is asked beside a query, and first results of which one must be the earlier memory. Of a pair whose earlier
memory is the first result, `MINIMUM` is enough. Measured with the grades of the sample's 121 queries with a relevant memory, under preset
mem0: of 12 pairs from `MINIMUM` on that grades contradict, 11 are stored as superseding."""

FEATURES = ("cosine", "near", "slot", "change", "negation", "same", "length")
BIAS = -6.67
WEIGHTS: Mapping[str, float] = {
    "cosine": 1.78,
    "near": 3.84,
    "slot": 2.40,
    "change": 1.06,
    "negation": 0.27,
    "same": -0.69,
    "length": -2.58,
}
"""Fitted on the sample's edges by benchmarks/proposed_edges.py; how well they do elsewhere is in docs/use/labelling.md."""


@dataclass(frozen=True, slots=True)
class ProposedEdge:
    """A pair that may be a `supersedes` edge from `newer` to `older`, with the reasons. `days` is the time between
    them, `contradiction` the probability of a model that was named, None without one."""

    newer: str
    older: str
    score: float
    days: float
    later: str
    """The same in words, by calendar days as on every page."""
    features: Mapping[str, float]
    signals: Signals
    contradiction: float | None = None

    @property
    def pair(self) -> frozenset[str]:
        """The two memories, without direction."""
        return frozenset((self.newer, self.older))

    @property
    def question(self) -> str:
        """What a person is asked about a pair of which the older is above the newer."""
        return f"{self.newer} is later than {self.older}, which is above it. Does it replace it?"

    @property
    def why(self) -> str:
        """The reasons in words: time, likeness and signs."""
        parts = [self.later, f"cosine {self.features['cosine']:.2f}", *self.signals.words]
        if self.contradiction is not None:
            parts.append(f"contradiction {self.contradiction:.2f}")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The proposal as JSON values."""
        values = plain_fields(self, "newer older") | {
            "score": round(self.score, 4),
            "days": round(self.days, 2),
            "why": self.why,
            "older_spans": [list(span) for span in self.signals.older_spans],
            "newer_spans": [list(span) for span in self.signals.newer_spans],
            "features": {name: round(value, 4) for name, value in self.features.items()},
        }
        return values | ({} if self.contradiction is None else {"contradiction": round(self.contradiction, 4)})


class CandidatePair(NamedTuple):
    """Two neighbours, the later one first."""

    newer: str
    older: str
    days: float
    later: str
    cosine: float
    near: float

    @property
    def ids(self) -> frozenset[str]:
        """The two memories, without direction."""
        return frozenset((self.newer, self.older))


def scored_pairs(
    resources: Resources, pairs: Iterable[CandidatePair], progress: Progress = silent, size: int = 0
) -> Iterator[ProposedEdge]:
    """The pairs with their signs and scores, in their order, without those of personal memories of two people."""
    language = resources.store.language.current
    rarity = term_rarity(resources)
    profiles: dict[str, Profile] = {}
    owners: dict[str, str | None] = {}
    done = 0
    for batch in _batches(pairs):
        wanted = {end for pair in batch for end in (pair.newer, pair.older)}
        profiles = {key: profile for key, profile in profiles.items() if key in wanted}
        for key, memory in resources.store.memories.read(wanted - profiles.keys()).items():
            profiles[key] = profile_of(memory, language)
            owners[key] = memory.author if memory.scope == "personal" else None
        for pair in batch:
            two_people = len({owners.get(pair.newer), owners.get(pair.older)} - {None}) == 2
            if pair.newer in profiles and pair.older in profiles and not two_people:  # not deleted meanwhile
                signals = signals_of(profiles[pair.older], profiles[pair.newer], rarity)
                features = {name: getattr(pair if name in ("cosine", "near") else signals, name) for name in FEATURES}
                yield ProposedEdge(pair.newer, pair.older, score_of(features), pair.days, pair.later, features, signals)
        done += len(batch)
        progress("comparing pairs", min(done, size), size)


Neighbour = TypeVar("Neighbour", int, str)
EQUAL_COSINES = 1e-6
"""Neighbours whose cosines differ by no more are equally near."""


def ranks_of(neighbours: Iterable[tuple[Neighbour, float]]) -> dict[Neighbour, int]:
    """The ranks of neighbours with their cosines, nearest first; equally near ones, such as equal texts, have one rank."""
    ranks: dict[Neighbour, int] = {}
    rank, last = 0, math.inf
    for one, cosine in neighbours:
        rank += last - cosine > EQUAL_COSINES
        ranks[one], last = rank, cosine
    return ranks


def contradicting(
    trace: Trace, resources: Resources, grades: Mapping[str, int] = MappingProxyType({}), relevant_from: int = 1
) -> ProposedEdge | None:
    """The best pair of the query's first candidates whose later memory is below the earlier one, one of the first results, and may replace
    it; None if no pair reaches `ASKED`, or all are stored as superseding or were decided. Neighbours are those among the candidates.
    What was written after the query's moment is left out. Before all others are pairs of which people judged the later memory relevant
    and the earlier one not: of these `MINIMUM` is enough, and the earlier one may be any result."""
    results = [row.memory_id for row in trace.results]
    listed = (hit.memory_id for hits in zip_longest(*(one.hits for one in trace.evidence.lists)) for hit in hits if hit)
    ids = list(dict.fromkeys([*results, *listed]))[: len(results) + NEIGHBOURS]
    memories, moment = trace.evidence.memories, trace.evidence.as_of
    right = {key for key, grade in grades.items() if grade >= relevant_from}
    doubted = {*results[:ASKED_FIRST], *(grades.keys() - right).intersection(results)}
    dated = (key for key in ids if memories[key].created_at is not None and not written_later(memories[key], moment))
    vectors = resources.indexes.vectors.embeddings([*dated])
    near = {
        # Without the memory itself, by its id: it is not the first where another has its text.
        key: ranks_of(
            sorted(
                ((one, float(vectors[key] @ vectors[one])) for one in vectors if one != key), key=lambda one: -one[1]
            )
        )
        for key in vectors
    }
    pairs = []
    for place, older in enumerate(one for one in ids if one in vectors):
        for newer in list(vectors)[place + 1 :] if older in doubted else ():
            one, two = memories[newer].created_at, memories[older].created_at
            if one is not None and two is not None and one > two:
                rank = (1 / near[newer][older] + 1 / near[older][newer]) / 2
                days, cosine = (one - two).total_seconds() / 86_400, float(vectors[newer] @ vectors[older])
                pairs.append(CandidatePair(newer, older, days, days_later(two, one), cosine, rank))

    def judged(edge: ProposedEdge | CandidatePair) -> bool:
        return edge.newer in right and edge.older in grades and edge.older not in right

    def least(edge: ProposedEdge) -> float:
        return min(ASKED, MINIMUM) if judged(edge) or edge.older == results[0] else ASKED

    found = [edge for edge in scored_pairs(resources, pairs) if edge.score >= least(edge) and edge.signals.words]
    if not found:
        return None
    kinds = {*NEWER_FIRST, *OLDER_FIRST}
    known = decided_pairs(resources) | {
        frozenset((edge.source_id, edge.target_id)) for edge in resources.store.relations.read() if edge.kind in kinds
    }
    left = [edge for edge in found if edge.pair not in known]
    return max(left, key=lambda edge: (judged(edge), edge.score), default=None)


def _batches(pairs: Iterable[CandidatePair]) -> Iterator[list[CandidatePair]]:
    batch: list[CandidatePair] = []
    for pair in pairs:
        batch.append(pair)
        if len(batch) >= BATCH_PAIRS:
            yield batch
            batch = []
    if batch:
        yield batch


def term_rarity(resources: Resources) -> Callable[[str], float]:
    """0..1 for a term: log(N / n) / log N, with the counts of the lexical index; 1 for a term of one text."""
    lexical = resources.indexes.lexical
    texts = max(2, lexical.document_count)

    @lru_cache(200_000)
    def rarity(term: str) -> float:
        return max(0.0, math.log(texts / max(1, lexical.document_frequency(term))) / math.log(texts))

    return rarity


def score_of(features: Mapping[str, float]) -> float:
    """The logistic score, 0..1."""
    return logistic(BIAS + sum(WEIGHTS[name] * features[name] for name in FEATURES))


def logistic(value: float) -> float:
    """0..1 of log-odds, which are cut at 50."""
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, value))))


def decided_pairs(resources: Resources) -> frozenset[frozenset[str]]:
    """The pairs that a person accepted or rejected."""
    return frozenset(one.pair for one in resources.store.supersessions.standing())
