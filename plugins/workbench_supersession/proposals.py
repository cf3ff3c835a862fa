"""Proposed `supersedes` edges: the pairs of a store's memories of which the later one seems to replace the earlier one.

Candidates are the NEAREST nearest earlier memories of each memory and the NEAREST nearest later ones, among its NEIGHBOURS nearest in the
vector index: of the same project where both have one, and of different sessions where both have one, since within a session the later
memory resumes the earlier one. Scores and signs: analysis/proposed_edges.py of the core.

A pair is never proposed that shows no sign, is stored as superseding in either direction, follows from stored edges, or was accepted or
rejected by a person.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from cems_workbench.analysis.memory_names import memory_name
from cems_workbench.analysis.proposed_edges import (
    MINIMUM,
    NEIGHBOURS,
    CandidatePair,
    ProposedEdge,
    decided_pairs,
    logistic,
    ranks_of,
    scored_pairs,
)
from cems_workbench.analysis.supersession import days_later
from cems_workbench.analysis.supersession_signals import word_lists
from cems_workbench.errors import InputError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.progress import Progress, silent
from cems_workbench.records import NEWER_FIRST, OLDER_FIRST, Memory
from cems_workbench.results import Report, Result, Table
from cems_workbench.store.memories import Origin

if TYPE_CHECKING:
    from cems_workbench.api.open_store import OpenStore
    from workbench_supersession.contradiction import ContradictionScorer

NEAREST = 5
"""Earlier and later neighbours of a memory that make pairs."""
MOST = 200
"""Proposals by default."""
READ_BY_MODEL = 500
"""Pairs, best first, that a contradiction model reads."""
CONTRADICTION_WEIGHT = 4.0
"""Log-odds between a contradiction of 0 and of 1, set by hand: no such model was available to fit it."""


@dataclass(frozen=True, eq=False, repr=False)
class SupersessionReport(Result):
    """The best proposals, best first, and what they were chosen from. `total` pairs reach the minimum, of `compared`
    pairs among `memories` memories. `left_out` says what is not among them, a line each."""

    edges: tuple[ProposedEdge, ...]
    total: int
    compared: int
    memories: int
    minimum: float
    left_out: tuple[str, ...] = ()
    texts: Mapping[str, Memory] = field(default_factory=dict)
    """The memories of the proposals, by id."""

    @property
    def title(self) -> str:
        """The outcome in a line."""
        of = f"{self.compared:,} compared pairs among {self.memories:,} memories"
        return f"{self.total:,} of {of} may be superseding (score {self.minimum:g} or more)"

    @property
    def tables(self) -> tuple[Table, ...]:
        """A row for each proposal."""
        rows = tuple((edge.newer, edge.older, edge.score, edge.why) for edge in self.edges)
        return (Table(("newer", "older", "score", "why"), rows),)

    @property
    def in_words(self) -> Report:
        """The same for people: with the first words of both memories instead of their ids."""
        rows = [
            (*(memory_name(self.texts[end], 60) for end in (edge.newer, edge.older)), edge.score, edge.why)
            for edge in self.edges
        ]
        return Report(self.title, tables=[replace(self.tables[0], rows=tuple(rows))], notes=self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        return self.left_out

    def to_json(self) -> dict[str, Any]:
        """The proposals as plain values, as `supersessions --json` prints them."""
        return plain_fields(self, "total compared memories minimum notes") | {
            "proposals": [edge.to_json() for edge in self.edges]
        }


def proposed_edges(
    resources: Resources,
    *,
    most: int = MOST,
    minimum: float = MINIMUM,
    model: ContradictionScorer | None = None,
    progress: Progress = silent,
) -> SupersessionReport:
    """The pairs of a store's memories that may be superseding, best first, ties by ids, at most `most`.

    Raises InputError if there are no two memories with a date and an embedding, or for a minimum outside 0..1, and what `progress` raises.
    Memory is bounded: per memory NEIGHBOURS numbers, per pair none beyond a batch of texts and the best ones.
    """
    if not 0 <= minimum <= 1:
        raise InputError(f"minimum must be between 0 and 1, found {minimum:g}")
    if most < 1:
        raise InputError(f"most must be at least 1, found {most}")
    excluded = excluded_pairs(resources)
    found = candidate_pairs(resources, progress)
    total = compared = 0

    def read() -> Iterator[ProposedEdge]:
        nonlocal total, compared
        pairs = (pair for pair in found.pairs if pair.ids not in excluded)
        for edge in scored_pairs(resources, pairs, progress, found.size):
            compared += 1
            # A model may find a contradiction that no sign shows.
            if model is not None or (edge.score >= minimum and edge.signals.words):
                total += edge.score >= minimum
                yield edge

    edges = heapq.nsmallest(max(most, READ_BY_MODEL) if model else most, read(), key=_rank)
    texts = resources.store.memories.read({end for edge in edges for end in (edge.newer, edge.older)})
    notes = [*found.notes]
    if model is None:
        notes.append("no contradiction model was named: only words, numbers and dates count")
    else:
        notes.append(f"{model.label} read the best {len(edges):,} pairs")
        edges = [edge for edge in _with_contradictions(edges, texts, model, progress) if edge.score >= minimum]
        total = len(edges)
        edges = sorted(edges, key=_rank)[:most]
    ends = {end for edge in edges for end in (edge.newer, edge.older)}
    texts = {key: memory for key, memory in texts.items() if key in ends}
    return SupersessionReport(tuple(edges), total, compared, found.memories, minimum, tuple(notes), texts)


def supersessions(
    store: OpenStore, *, most: int = MOST, minimum: float | None = None, contradiction_model: str | None = None
) -> SupersessionReport:
    """Propose which memories supersede earlier ones, as the command `supersessions` does; nothing is stored.

    Args:
        store: an open store. `store.resources.store.supersessions.decide(newer, older, "accepted", author)` accepts a proposal.
        most: the number of proposals at most.
        minimum: the score, 0 to 1, from which a pair is proposed; None is 0.1.
        contradiction_model: a natural language inference cross-encoder that reads the best pairs, a folder or model id.

    Raises:
        InputError: there are no two memories with a date and an embedding, or an argument is out of range.
        ModelError: the model cannot be loaded.
    """
    from workbench_supersession.contradiction import ContradictionScorer

    model = ContradictionScorer(contradiction_model) if contradiction_model else None
    return proposed_edges(store.resources, most=most, minimum=MINIMUM if minimum is None else minimum, model=model)


def _rank(edge: ProposedEdge) -> tuple[float, str, str]:
    return -edge.score, edge.newer, edge.older


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
        found = f"{len(dated)} of {len(origins):,} has one"
        raise InputError(f"proposals need two memories with a date (created_at); {found}")
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
        found = f"{embedded} of {len(dated):,} has one"
        raise InputError(f"proposals need two memories with an embedding; {found}: run reindex")
    notes = []
    if len(dated) < len(origins):
        notes.append(f"{len(origins) - len(dated):,} memories without a date are left out")
    if embedded < len(dated):
        notes.append(f"{len(dated) - embedded:,} memories without an embedding are left out")
    language = resources.store.language.current
    if not word_lists(language):
        lists = f"the word lists are English and the store is {language}"
        notes.append(f"{lists}: only digits, ISO dates and likeness count")
    return Candidates(_pairs(dated, near, cosines), len(dated) * NEAREST * 2, embedded, tuple(notes))


def _pairs(origins: Sequence[Origin], near: Any, cosines: Any) -> Iterator[CandidatePair]:
    """Each pair once, by the newer memory, then by rank."""
    earlier, later = (
        [_admissible(origins, row, near[row], cosines[row], earlier=which) for row in range(len(origins))]
        for which in (True, False)
    )
    # Of each memory, who has it among its first later ones.
    called: dict[int, list[int]] = {}
    for older, newer_ones in enumerate(later):
        for newer in islice(newer_ones, NEAREST):
            called.setdefault(newer, []).append(older)
    for newer, olders in enumerate(earlier):
        for older in dict.fromkeys([*islice(olders, NEAREST), *called.get(newer, ())]):
            rank, back = olders.get(older, math.inf), later[older].get(newer, math.inf)
            row, other = (newer, older) if rank < math.inf else (older, newer)
            cosine = float(cosines[row][near[row].tolist().index(other)])
            one, two = origins[newer].created_at, origins[older].created_at
            assert one is not None and two is not None
            days = (one - two).total_seconds() / 86_400
            near_ranks = (1 / rank + 1 / back) / 2
            yield CandidatePair(origins[newer].id, origins[older].id, days, days_later(two, one), cosine, near_ranks)


def _admissible(origins: Sequence[Origin], row: int, near: Any, cosines: Any, *, earlier: bool) -> dict[int, int]:
    """The neighbours of a memory that are earlier (or later) and can be of the same subject, nearest first, with their ranks."""
    return ranks_of(
        (other, cosine)
        for other, cosine in zip(near.tolist(), cosines.tolist(), strict=True)
        if other >= 0 and _may_follow(*((origins[other], origins[row]) if earlier else (origins[row], origins[other])))
    )


def _may_follow(older: Origin, newer: Origin) -> bool:
    assert older.created_at is not None and newer.created_at is not None
    return (
        older.created_at < newer.created_at
        and (older.project is None or newer.project is None or older.project == newer.project)
        and (older.session is None or newer.session is None or older.session != newer.session)
    )


def _with_contradictions(
    edges: Sequence[ProposedEdge], texts: Mapping[str, Memory], model: ContradictionScorer, progress: Progress
) -> Iterator[ProposedEdge]:
    for start in range(0, len(edges), 32):
        some = edges[start : start + 32]
        progress("reading pairs", start, len(edges))
        read = model.contradictions([(text_of(texts[edge.older]), text_of(texts[edge.newer])) for edge in some])
        for edge, probability in zip(some, read, strict=True):
            odds = math.log(max(edge.score, 1e-12) / max(1 - edge.score, 1e-12))
            score = logistic(odds + CONTRADICTION_WEIGHT * (probability - 0.5))
            yield replace(edge, score=score, contradiction=probability)
    progress("reading pairs", len(edges), len(edges))


def text_of(memory: Memory) -> str:
    """Title and content."""
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
