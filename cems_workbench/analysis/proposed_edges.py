"""Proposed `supersedes` edges: pairs of memories of which the later one seems to replace the earlier one, from the store alone.

Candidates are the NEAREST nearest earlier memories of each memory and the NEAREST nearest later ones, among its NEIGHBOURS nearest in the
vector index: of the same project where both have one, and of different sessions where both have one, since within a session the later
memory resumes the earlier one. A pair scores

    score = 1 / (1 + exp(-(bias + sum of weight(f) * f))), f in FEATURES

where near = (1/r + 1/s) / 2, r the rank of the older memory among the newer one's earlier neighbours and s that of the newer one among the
older one's later neighbours; the others are the signs in the texts (analysis/supersession_signals.py). A score is comparable between
pairs; it is a probability only in stores like the one that WEIGHTS were fitted on (docs/use/labelling.md says how, and how well it works).

A pair is never proposed that shows no sign, is stored as superseding in either direction, follows from stored edges, or was accepted or
rejected by a person.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from cems_workbench.analysis.supersession import days_later
from cems_workbench.analysis.supersession_signals import Profile, Signals, profile_of, signals_of, word_lists
from cems_workbench.errors import InputError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.progress import Progress, silent
from cems_workbench.records import NEWER_FIRST, OLDER_FIRST, Memory
from cems_workbench.store.memories import Origin

NEIGHBOURS, NEAREST = 20, 5
"""Neighbours of a memory that are read from the index, and the earlier and later ones of them that make pairs."""
BATCH_PAIRS = 2_000
"""Pairs whose texts are in memory at once."""
MOST = 200
"""Proposals by default."""
MINIMUM = 0.1
"""Score from which a pair is proposed by default."""
READ_BY_MODEL = 500
"""Pairs, best first, that a contradiction model reads."""
CONTRADICTION_WEIGHT = 4.0
"""Log-odds between a contradiction of 0 and of 1, set by hand: no such model was available to fit it."""

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


class ContradictionModel(Protocol):
    """Scores whether a text contradicts another."""

    @property
    def label(self) -> str:
        """What scores, in words."""

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The probability, 0..1, that the second text of each pair contradicts the first."""


@dataclass(frozen=True, slots=True)
class ProposedEdge:
    """A pair that may be a `supersedes` edge from `newer` to `older`, with the reasons.

    `days` is the time between them, `contradiction` the probability of a model that was named, None without one.
    """

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


@dataclass(frozen=True, slots=True)
class Proposals:
    """The best proposals, best first, and what they were chosen from.

    `total` pairs reach the minimum, of `compared` pairs among `memories` memories. `notes` say what was left out, a line each.
    """

    edges: tuple[ProposedEdge, ...]
    total: int
    compared: int
    memories: int
    minimum: float
    notes: tuple[str, ...] = ()
    texts: Mapping[str, Memory] = field(default_factory=dict, repr=False)
    """The memories of the proposals, by id."""

    def text_of(self, memory_id: str) -> str:
        """Title and content of a memory of the proposals."""
        return _text(self.texts[memory_id])

    @property
    def sentence(self) -> str:
        """The outcome in a line."""
        of = f"{self.compared:,} compared pairs among {self.memories:,} memories"
        return f"{self.total:,} of {of} may be superseding (score {self.minimum:g} or more)"

    def to_json(self) -> dict[str, Any]:
        """The proposals as JSON values."""
        return plain_fields(self, "total compared memories minimum notes") | {
            "proposals": [edge.to_json() for edge in self.edges]
        }


def proposed_edges(
    resources: Resources,
    *,
    most: int = MOST,
    minimum: float = MINIMUM,
    model: ContradictionModel | None = None,
    progress: Progress = silent,
) -> Proposals:
    """The pairs of a store's memories that may be superseding, best first, ties by ids, at most `most`.

    Raises InputError if there are no two memories with a date and an embedding, or for a minimum outside 0..1, and what `progress` raises.
    Memory is bounded: per memory NEIGHBOURS numbers, per pair none beyond BATCH_PAIRS and the best ones.
    """
    if not 0 <= minimum <= 1:
        raise InputError(f"minimum must be between 0 and 1, found {minimum:g}")
    if most < 1:
        raise InputError(f"most must be at least 1, found {most}")
    excluded = excluded_pairs(resources)
    kept = max(most, READ_BY_MODEL) if model else most
    best: list[tuple[float, _Descending, ProposedEdge]] = []
    total = compared = 0
    found = candidate_pairs(resources, progress)
    for edge in scored_pairs(
        resources, (pair for pair in found.pairs if pair.ids not in excluded), progress, found.size
    ):
        compared += 1
        # A model may find a contradiction that no sign shows.
        if model is None and (edge.score < minimum or not edge.signals.words):
            continue
        total += edge.score >= minimum
        entry = (edge.score, _Descending((edge.newer, edge.older)), edge)
        (heapq.heappush if len(best) < kept else heapq.heappushpop)(best, entry)
    edges = [edge for _, _, edge in best]
    texts = resources.store.memories.read({end for edge in edges for end in (edge.newer, edge.older)})
    notes = [*found.notes]
    if model is not None:
        edges = [edge for edge in _with_contradictions(edges, texts, model, progress) if edge.score >= minimum]
        total = len(edges)
        notes.append(f"{model.label} read the best {len(best):,} pairs")
    else:
        notes.append("no contradiction model was named: only words, numbers and dates count")
    edges.sort(key=lambda edge: (-edge.score, edge.newer, edge.older))
    edges = edges[:most]
    ends = {end for edge in edges for end in (edge.newer, edge.older)}
    return Proposals(
        tuple(edges),
        total,
        compared,
        found.memories,
        minimum,
        tuple(notes),
        {key: memory for key, memory in texts.items() if key in ends},
    )


class _Descending(tuple[str, str]):
    """Ids in reverse order, so that the heap drops the last of equal scores."""

    __slots__ = ()

    def __lt__(self, other: tuple[str, ...]) -> bool:
        return tuple(self) > tuple(other)


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


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidate pairs, computed as they are read; `size` is their number at most."""

    pairs: Iterator[CandidatePair]
    size: int
    memories: int
    notes: tuple[str, ...]


def candidate_pairs(resources: Resources, progress: Progress = silent) -> Candidates:
    """The pairs that are compared, by the newer memory's id. Raises as `proposed_edges`."""
    origins = resources.store.memories.origins()
    if len(origins) < 2:
        raise InputError(f"proposals need two memories with dates; the store has {len(origins)}")
    dated = [origin for origin in origins if origin.created_at is not None]
    if len(dated) < 2:
        raise InputError(
            f"proposals need two memories with a date (created_at); {len(dated)} of {len(origins):,} has one"
        )
    vectors = resources.indexes.vectors
    index = {origin.id: number for number, origin in enumerate(dated)}
    near = np.full((len(dated), NEIGHBOURS), -1, np.int32)
    cosines = np.zeros((len(dated), NEIGHBOURS), np.float32)
    embedded = 0
    for embedded, (memory_id, hits) in enumerate(vectors.neighbours(list(index), NEIGHBOURS), 1):
        if embedded % 256 == 0:
            progress("finding neighbours", embedded, len(dated))
        row = index[memory_id]
        known = [(index[other], cosine) for other, cosine in hits if other in index]
        for column, (other, cosine) in enumerate(known):
            near[row, column], cosines[row, column] = other, cosine
    progress("finding neighbours", len(dated), len(dated))
    if embedded < 2:
        raise InputError(
            f"proposals need two memories with an embedding; {embedded} of {len(dated):,} has one: run reindex"
        )
    notes = []
    if len(dated) < len(origins):
        notes.append(f"{len(origins) - len(dated):,} memories without a date are left out")
    if embedded < len(dated):
        notes.append(f"{len(dated) - embedded:,} memories without an embedding are left out")
    language = resources.store.language.current
    if not word_lists(language):
        notes.append(
            f"the word lists are English and the store is {language}: only digits, ISO dates and likeness count"
        )
    return Candidates(_pairs(dated, near, cosines), len(dated) * NEAREST * 2, embedded, tuple(notes))


def _pairs(origins: Sequence[Origin], near: Any, cosines: Any) -> Iterator[CandidatePair]:
    """Each pair once, by the newer memory, then by rank."""
    earlier = [_admissible(origins, row, near[row], earlier=True) for row in range(len(origins))]
    later = [_admissible(origins, row, near[row], earlier=False) for row in range(len(origins))]
    # Of each memory, who has it among its first later ones.
    called: dict[int, list[int]] = {}
    for older, newer_ones in enumerate(later):
        for newer in newer_ones[:NEAREST]:
            called.setdefault(newer, []).append(older)
    for newer, olders in enumerate(earlier):
        for older in dict.fromkeys([*olders[:NEAREST], *called.get(newer, ())]):
            rank = olders.index(older) + 1 if older in olders else math.inf
            back = later[older].index(newer) + 1 if newer in later[older] else math.inf
            row, other = (newer, older) if rank < math.inf else (older, newer)
            cosine = float(cosines[row][near[row].tolist().index(other)])
            one, two = origins[newer].created_at, origins[older].created_at
            assert one is not None and two is not None
            days = (one - two).total_seconds() / 86_400
            near_ranks = (1 / rank + 1 / back) / 2
            yield CandidatePair(origins[newer].id, origins[older].id, days, days_later(two, one), cosine, near_ranks)


def _admissible(origins: Sequence[Origin], row: int, near: Any, *, earlier: bool) -> list[int]:
    """The neighbours of a memory that are earlier (or later) and can be of the same subject, nearest first."""
    return [
        other
        for other in near.tolist()
        if other >= 0 and _may_follow(*((origins[other], origins[row]) if earlier else (origins[row], origins[other])))
    ]


def _may_follow(older: Origin, newer: Origin) -> bool:
    assert older.created_at is not None and newer.created_at is not None
    return (
        older.created_at < newer.created_at
        and (older.project is None or newer.project is None or older.project == newer.project)
        and (older.session is None or newer.session is None or older.session != newer.session)
    )


def scored_pairs(
    resources: Resources, pairs: Iterable[CandidatePair], progress: Progress = silent, size: int = 0
) -> Iterator[ProposedEdge]:
    """The pairs with their signs and scores, in their order."""
    language = resources.store.language.current
    rarity = term_rarity(resources)
    profiles: dict[str, Profile] = {}
    done = 0
    for batch in _batches(pairs):
        wanted = {end for pair in batch for end in (pair.newer, pair.older)}
        profiles = {key: profile for key, profile in profiles.items() if key in wanted}
        for key, memory in resources.store.memories.read(wanted - profiles.keys()).items():
            profiles[key] = profile_of(memory, language)
        for pair in batch:
            if pair.newer in profiles and pair.older in profiles:  # not deleted meanwhile
                signals = signals_of(profiles[pair.older], profiles[pair.newer], rarity)
                features = features_of(pair, signals)
                yield ProposedEdge(pair.newer, pair.older, score_of(features), pair.days, pair.later, features, signals)
        done += len(batch)
        progress("comparing pairs", min(done, size), size)


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


def features_of(pair: CandidatePair, signals: Signals) -> dict[str, float]:
    """The values of FEATURES."""
    return {name: getattr(pair if name in ("cosine", "near") else signals, name) for name in FEATURES}


def score_of(features: Mapping[str, float]) -> float:
    """The logistic score, 0..1."""
    return _logistic(BIAS + sum(WEIGHTS[name] * features[name] for name in FEATURES))


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, value))))


def _with_contradictions(
    edges: Sequence[ProposedEdge], texts: Mapping[str, Memory], model: ContradictionModel, progress: Progress
) -> Iterator[ProposedEdge]:
    for start in range(0, len(edges), 32):
        some = edges[start : start + 32]
        progress("reading pairs", start, len(edges))
        read = model.contradictions([(_text(texts[edge.older]), _text(texts[edge.newer])) for edge in some])
        for edge, probability in zip(some, read, strict=True):
            odds = math.log(max(edge.score, 1e-12) / max(1 - edge.score, 1e-12))
            score = _logistic(odds + CONTRADICTION_WEIGHT * (probability - 0.5))
            yield replace(edge, score=score, contradiction=probability)
    progress("reading pairs", len(edges), len(edges))


def _text(memory: Memory) -> str:
    return f"{memory.title}\n{memory.content}" if memory.title else memory.content


def excluded_pairs(resources: Resources) -> Excluded:
    """The pairs that are not proposed: stored, following from stored ones, or decided by a person."""
    after: dict[str, set[str]] = {}
    for edge in resources.store.relations.read():
        if edge.kind in NEWER_FIRST:
            after.setdefault(edge.source_id, set()).add(edge.target_id)
        elif edge.kind in OLDER_FIRST:
            after.setdefault(edge.target_id, set()).add(edge.source_id)
    return Excluded(after, decided_pairs(resources))


def decided_pairs(resources: Resources) -> frozenset[frozenset[str]]:
    """The pairs that a person accepted or rejected."""
    return frozenset(one.pair for one in resources.store.supersessions.standing())


@dataclass(frozen=True)
class Excluded:
    """Stored edges (newer → older ones) and decided pairs; `pair in excluded` also follows chains of edges."""

    stored: Mapping[str, set[str]]
    decided: frozenset[frozenset[str]]

    def __contains__(self, pair: object) -> bool:
        if pair in self.decided:
            return True
        one, other = sorted(pair)  # type: ignore[call-overload]
        return self._reaches(one, other) or self._reaches(other, one)

    def _reaches(self, start: str, end: str) -> bool:
        seen, ahead = {start}, [start]
        while ahead:
            for target in self.stored.get(ahead.pop(), ()):
                if target == end:
                    return True
                if target not in seen:
                    seen.add(target)
                    ahead.append(target)
        return False
