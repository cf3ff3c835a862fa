"""Blame: from what an agent said back to the memories that say so, and what became of each of them.

The text is split into claims (analysis/support.py). For each claim the SEARCHED best memories of the vector index and of the lexical index
are scored and judged by how far their text supports it (analysis/support.py); those below MIN_SCORE, or below MIN_SHARE of the best, are
left out. The best SHOWN, those that support the claim first, then those of which it cannot tell, get:

    standing      for the query: rank among the results, or the stage that lost it (analysis/ranks.py: the definition of `why`)
    stale         superseded by a memory that existed at the moment of the query, or expired
    irrelevant    judged so by people for this query
    otherwise     its successors by stored edges; else near memories that differ in a number, date, name or negation, scored as a proposed
                  edge (analysis/proposed_edges.py; near is 1/r, r the rank among the neighbours of the memory alone), at least its
                  MINIMUM, unless a person decided on the pair
    next          the command that goes on: `why` for the memory that should have been returned

MIN_SCORE was chosen on the answers of benchmarks/bench_blame.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from cems_workbench.analysis.proposed_edges import (
    MINIMUM,
    NEIGHBOURS,
    CandidatePair,
    ProposedEdge,
    decided_pairs,
    scored_pairs,
)
from cems_workbench.analysis.ranks import loss
from cems_workbench.analysis.supersession import days_later, excluded_words, stale_words, stored_standings
from cems_workbench.analysis.supersession_signals import Span as MarkedSpan
from cems_workbench.analysis.support import Claim, Claims, ClaimWords, Overlap, Span, Verdict, base_score, judged
from cems_workbench.command_words import ProposedCommand, asked_options, why_command
from cems_workbench.config import PipelineConfig
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.pipeline.supersession import Successor, find_successors
from cems_workbench.progress import Progress, silent
from cems_workbench.records import DEFAULT_SCALE, Memory
from cems_workbench.store.filter import ANY
from cems_workbench.store.relations import SupersedingEdge

SEARCHED = 30
"""Memories of each index that are compared with a claim."""
SHOWN = 3
"""Memories of a claim that are looked up further, and shown."""
MIN_SCORE, MIN_SHARE = 0.4, 0.6
VERDICTS: tuple[Verdict, ...] = ("supports", "cannot tell", "no")
MAX_OTHERWISE = 3
COMPARING = "comparing claims"


@dataclass(frozen=True, slots=True)
class Support:
    """A memory that may support a claim: `score` ranks it, 0..1, with its parts; `cosine` is None for one without an
    embedding. `reason` says why it does not support it, or why nobody can tell."""

    memory: Memory
    score: float
    cosine: float | None
    overlap: Overlap
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What the pipeline did with a memory for the query: its rank among the results, or None and the stage that lost
    it. `lost_at` is empty for a memory that no list found, None for a result."""

    rank: int | None
    lost_at: str | None
    words: str
    reason: str = ""
    """What the stage that lost it did, as `why` has it."""


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A memory that says something else: a successor by a stored edge, or a near memory; `newer` than the one that
    supports the claim. `spans` are the places of its content that differ, `title_spans` of its title; `words` are the
    reason."""

    memory: Memory
    source: Literal["edge", "near"]
    newer: bool
    words: str
    spans: tuple[Span, ...] = ()
    title_spans: tuple[Span, ...] = ()
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """What to do now: in words, the memory it is about, the command, and the parameters that it changes."""

    words: str
    memory_id: str
    proposed: ProposedCommand
    changes: Mapping[str, Any] = field(default_factory=dict)

    def command(self, options: Sequence[str] = ()) -> str:
        """The command for a shell, with the options that chose store and config."""
        return self.proposed.line(options)

    def to_json(self, options: Sequence[str]) -> dict[str, Any]:
        return {"words": self.words, "memory_id": self.memory_id, "command": self.command(options)}


class Clause(NamedTuple):
    """Something about a memory; a `warning` may explain a wrong answer, `standing` says that it is the memory's standing."""

    words: str
    warning: bool = False
    standing: bool = False


@dataclass(frozen=True, slots=True)
class BlamedMemory:
    """A memory that supports a claim or comes close, and what became of it."""

    support: Support
    standing: Standing | None = None
    stale: str | None = None
    grade: int | None = None
    irrelevant: bool = False
    otherwise: tuple[Otherwise, ...] = ()
    next: Next | None = None
    fix: Next | None = None
    """The parameter that puts a successor in its place, for a stale result."""
    returned_for: tuple[str, ...] | None = None
    """Without a query: the queries of the store's sets that return it; None if they were not looked at."""

    @property
    def id(self) -> str:
        return self.support.memory.id

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """What became of it, clause by clause."""
        verdict, reason = self.support.verdict, self.support.reason
        said = f"{'does not support it' if verdict == 'no' else verdict}: {reason}"
        parts = [] if verdict == "supports" else [Clause(said, True)]
        parts += [Clause(self.standing.words, self.standing.rank is None, True)] if self.standing else []
        parts += [Clause(self.stale, True)] if self.stale else []
        parts += [Clause(f"judged irrelevant (grade {self.grade})", True)] if self.irrelevant else []
        if self.returned_for is not None:
            some = ", ".join(f"“{query}”" for query in self.returned_for[:3])
            more = f" and {len(self.returned_for) - 3} more" if len(self.returned_for) > 3 else ""
            parts.append(Clause(f"returned for {some}{more}" if some else "returned for none of the judged queries"))
        return tuple(parts)

    @property
    def words(self) -> str:
        return "; ".join(clause.words for clause in self.clauses)


@dataclass(frozen=True, slots=True)
class BlamedClaim:
    """A claim with the memories that support it, best first, and those that come close."""

    claim: Claim
    memories: tuple[BlamedMemory, ...]

    @property
    def verdict(self) -> Verdict:
        """Whether a memory supports it: that of the first."""
        return self.memories[0].support.verdict if self.memories else "no"

    @property
    def supporting(self) -> BlamedMemory | None:
        """The memory that supports it best, None if none does for sure."""
        return self.memories[0] if self.verdict == "supports" else None

    @property
    def about(self) -> str:
        """Whether a memory supports it, in fixed words."""
        if self.verdict == "cannot tell":
            return "Cannot tell whether a memory supports this"
        return "The agent said" if self.supporting else "No memory supports this"

    @property
    def sentence(self) -> str:
        """Which memory supports it best and what became of it; else that none does, or which may."""
        if not self.memories:
            return f"{self.about}: “{self.claim.text}”"
        first = self.memories[0]
        if self.supporting:
            return f"{first.id} supports “{self.claim.text}”" + (f": {first.words}" if first.words else "")
        return f"{self.about}: “{self.claim.text}”; the closest is {first.id}: {first.support.reason}"


@dataclass(frozen=True, slots=True)
class Blame:
    """What an agent said, claim by claim; `query` is None if only support was looked for."""

    query: str | None
    config_name: str
    claims: tuple[BlamedClaim, ...]
    split_by: str
    notes: tuple[str, ...] = field(default=())

    @property
    def sentence(self) -> str:
        """How many of the claims a memory supports, and of those how many rest on a stale or irrelevant one."""
        found = [first for blamed in self.claims if (first := blamed.supporting)]
        unclear = sum(blamed.verdict == "cannot tell" for blamed in self.claims)
        said = f"{len(found)} of {len(self.claims)} claims are supported by a memory"
        if len(self.claims) == 1:
            return self.claims[0].sentence
        counts = {
            "by a stale one": sum(first.stale is not None for first in found),
            "by one judged irrelevant": sum(first.irrelevant for first in found),
            "by one that the query does not return": sum(
                first.standing is not None and first.standing.rank is None for first in found
            ),
        }
        said += f", of {unclear} it cannot tell" if unclear else ""
        return "; ".join([said, *(f"{count} {what}" for what, count in counts.items() if count)])

    def to_json(self, options: Sequence[str] = ()) -> dict[str, Any]:
        """The whole result as plain values; `options` belong to the commands."""
        return plain_fields(self, "query") | {
            "config": self.config_name,
            **plain_fields(self, "sentence split_by"),
            "claims": [
                {
                    "claim": blamed.claim.text,
                    "verdict": blamed.verdict,
                    **plain_fields(blamed.claim, "start end"),
                    "sentence": blamed.sentence,
                    "memories": [_memory_json(found, options) for found in blamed.memories],
                }
                for blamed in self.claims
            ],
            "notes": list(self.notes),
        }


def blame(
    split: Claims,
    resources: Resources,
    config: PipelineConfig,
    trace: Trace | None = None,
    *,
    grades: Mapping[str, int] | None = None,
    relevant_from: int = DEFAULT_SCALE.relevant_from,
    progress: Progress = silent,
) -> Blame:
    """The memories that support the claims, and what became of them for the query that `trace` is of. Without a trace
    only support is looked for. `grades` are those of the query by memory id. Raises as the embedder and the indexes
    do."""
    language = resources.store.language.current
    vectors = resources.embedder.encode([claim.text for claim in split.claims])
    supports = []
    for done, (claim, vector) in enumerate(zip(split.claims, vectors, strict=True)):
        progress(COMPARING, done, len(split.claims))
        supports.append(supporting(claim, vector, language, resources))
    progress(COMPARING, len(split.claims), len(split.claims))
    about = _About(resources, trace, grades or {}, relevant_from, decided_pairs(resources))
    claims = tuple(
        BlamedClaim(claim, tuple(about.blamed(found, [each.memory for each in of_claim]) for found in of_claim[:SHOWN]))
        for claim, of_claim in zip(split.claims, supports, strict=True)
    )
    query = None if trace is None else trace.evidence.query
    return Blame(query, config.name, claims, split.split_by, tuple(dict.fromkeys(split.notes)))


def judged_memories(
    claim: Claim, vector: Float32, ids: Iterable[str], language: str, resources: Resources
) -> Iterable[Support]:
    """How far each memory supports a claim, and whether that is enough."""
    memories = resources.store.memories.read(dict.fromkeys(ids))
    cosines: dict[str, float] = {}
    for memory_id, cosine, _ in resources.cosines(vector, list(memories)):
        cosines.setdefault(memory_id, cosine)  # the best chunk is first
    words = ClaimWords(claim.text, resources.indexes.lexical, language)
    for memory_id, memory in memories.items():
        overlap, near = words.overlap(memory), cosines.get(memory_id)
        yield Support(memory, base_score(near, overlap), near, overlap, *judged(overlap, near))


def supporting(claim: Claim, vector: Float32, language: str, resources: Resources) -> list[Support]:
    """The memories that either index has for a claim with at least MIN_SCORE, and MIN_SHARE of the best. Those that
    support the claim come first, then by score, ties by id."""
    indexes = resources.indexes
    hits = [*indexes.vectors.search(vector, SEARCHED), *indexes.lexical.search(claim.text, SEARCHED)]
    found = list(judged_memories(claim, vector, [memory_id for memory_id, _ in hits], language, resources))
    least = max(MIN_SCORE, MIN_SHARE * max((one.score for one in found), default=0.0))
    kept = [one for one in found if one.score >= least]
    return sorted(kept, key=lambda one: (VERDICTS.index(one.verdict), -one.score, one.memory.id))


@dataclass(frozen=True)
class _About:
    """What became of memories: for one query, or in the store alone."""

    resources: Resources
    trace: Trace | None
    grades: Mapping[str, int]
    relevant_from: int
    decided: Collection[frozenset[str]]

    @property
    def as_of(self) -> datetime | None:
        return None if self.trace is None else self.trace.evidence.as_of

    def blamed(self, support: Support, others: Iterable[Memory]) -> BlamedMemory:
        """A supporting memory; `others` are what else supports its claim."""
        memory = support.memory
        edges = self.resources.store.relations.superseding([memory.id])
        successors = find_successors(edges, self.as_of, ANY).successors.get(memory.id, ())
        otherwise = self._by_edges(memory, successors) or self._near(memory, others)
        grade = self.grades.get(memory.id)
        stale, irrelevant = self._stale(memory, edges), grade is not None and grade < self.relevant_from
        found = BlamedMemory(support, self._standing(memory), stale, grade, irrelevant, tuple(otherwise))
        if support.verdict == "no":
            return found
        return replace(found, next=self._next(found), fix=self._fix(found))

    def _standing(self, memory: Memory) -> Standing | None:
        return None if self.trace is None else standing(self.trace, memory)

    def _stale(self, memory: Memory, edges: Sequence[SupersedingEdge]) -> str | None:
        """In the words of every page, for a candidate with the rank of its successor."""
        if self.trace is not None and memory.id in self.trace.evidence.memories:
            return stale_words(self.trace, memory.id)
        return stored_standings([memory], edges, self.as_of or datetime.now(UTC)).get(memory.id)

    def _by_edges(self, memory: Memory, successors: Sequence[Successor]) -> list[Otherwise]:
        texts = self.resources.store.memories.read([one.memory_id for one in successors])
        return [
            Otherwise(
                texts[one.memory_id],
                "edge",
                True,
                f"{one.kind.replace('_', ' ')}{_later(memory, one)}" + (f", by {one.author}" if one.author else ""),
                standing=self._standing(texts[one.memory_id]),
            )
            for one in successors[:MAX_OTHERWISE]
            if one.memory_id in texts
        ]

    def _near(self, memory: Memory, others: Iterable[Memory]) -> list[Otherwise]:
        """Near memories that differ, the later ones first, then by score."""
        if memory.created_at is None:
            return []
        neighbours = self.resources.indexes.vectors.neighbours([memory.id], NEIGHBOURS)
        near = {key: cosine for _, hits in neighbours for key, cosine in hits}
        known = {other.id: other for other in others if other.id != memory.id}
        missing = [key for key in near if key not in known]
        known |= self.resources.store.memories.read(missing)
        ranked = list(near)
        pairs = []
        for key, other in known.items():
            same = memory.project is None or other.project is None or memory.project == other.project
            if other.created_at in (None, memory.created_at) or not same or frozenset((key, memory.id)) in self.decided:
                continue  # neither may have replaced the other
            assert other.created_at is not None
            days = (other.created_at - memory.created_at).total_seconds() / 86_400
            newer, older = (other, memory) if days > 0 else (memory, other)
            later, rank = (
                days_later(older.created_at, newer.created_at),
                ranked.index(key) + 1 if key in near else math.inf,
            )
            pairs.append(CandidatePair(newer.id, older.id, abs(days), later, near.get(key, 0.0), 1 / rank))
        edges = [edge for edge in scored_pairs(self.resources, pairs) if edge.score >= MINIMUM and edge.signals.words]
        edges.sort(key=lambda edge: (edge.older != memory.id, -edge.score, edge.newer, edge.older))
        return [self._differing(edge, memory, known) for edge in edges[:MAX_OTHERWISE]]

    def _differing(self, edge: ProposedEdge, memory: Memory, known: Mapping[str, Memory]) -> Otherwise:
        newer = edge.older == memory.id
        other = known[edge.newer if newer else edge.older]
        spans = edge.signals.newer_spans if newer else edge.signals.older_spans
        when = edge.later if newer else edge.later.replace("later", "earlier")
        content, title = (_of_field(spans, name) for name in ("content", "title"))
        words = f"{when}; {'; '.join(edge.signals.words)}"
        return Otherwise(other, "near", newer, words, content, title, self._standing(other))

    def _next(self, found: BlamedMemory) -> Next | None:
        right = next((one for one in found.otherwise if one.newer), None)
        memory_id = found.id if right is None else right.memory.id
        if self.trace is None:
            words = f"see for which queries {memory_id} is wanted and returned"
            return Next(words, memory_id, ProposedCommand("memory", (memory_id,)))
        query, place = self.trace.evidence.query, found.standing if right is None else right.standing
        assert place is not None and found.standing is not None
        if place.rank is None:
            words = f"find out why {memory_id} is not returned"
            return Next(words, memory_id, why_command(query, memory_id, options=self._asked))
        if right is None or found.standing.rank is None or found.standing.rank > place.rank:
            return None
        words = f"find out why {memory_id} is below {found.id}"
        return Next(words, memory_id, why_command(query, memory_id, cutoff=found.standing.rank, options=self._asked))

    def _fix(self, found: BlamedMemory) -> Next | None:
        right = next((one for one in found.otherwise if one.source == "edge"), None)
        if self.trace is None or right is None or found.standing is None or found.standing.rank is None:
            return None
        place = right.standing
        if place is not None and place.rank is not None and place.rank < found.standing.rank:
            return None
        if excluded_words(self.trace, right.memory):  # no mode brings in what was not searched
            return None
        words = f"let {right.memory.id} take the rank of {found.id}"
        query, options = self.trace.evidence.query, (*self._asked, "--set", "supersession.mode=follow")
        return Next(
            words, right.memory.id, ProposedCommand("search", (query,), options), {"supersession.mode": "follow"}
        )

    @property
    def _asked(self) -> list[str]:
        assert self.trace is not None
        return asked_options(self.trace.evidence.project, self.trace.evidence.as_of)


def standing(trace: Trace, memory: Memory) -> Standing:
    """The rank of a memory among the results of a trace, or where it is lost, in words."""
    rank = trace.ranks.get(memory.id)
    if rank is not None:
        return Standing(rank, None, f"{ordinal(rank)} of {len(trace.results)} results")
    lost = loss(trace, memory.id)
    if lost is None:
        return Standing(None, "", excluded_words(trace, memory) or "no list found it")
    rank_words = "" if lost.in_lists or lost.rank is None else f", {ordinal(lost.rank)} there"
    return Standing(None, lost.stage, lost.words + rank_words, lost.reason)


def _of_field(spans: Iterable[MarkedSpan], name: str) -> tuple[Span, ...]:
    """The spans of a field in order; of two that overlap the first."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.field == name and (not found or span.start >= found[-1][1]):
            found.append((span.start, span.end))
    return tuple(found)


def _later(memory: Memory, successor: Successor) -> str:
    later = days_later(memory.created_at, successor.created_at)
    return f" ({later})" if later else ""


def _memory_json(found: BlamedMemory, options: Sequence[str]) -> dict[str, Any]:
    support, overlap = found.support, found.support.overlap
    return {
        **_text_json(support.memory),
        **plain_fields(support, "verdict reason"),
        "score": round(support.score, 4),
        "cosine": None if support.cosine is None else round(support.cosine, 4),
        "overlap": round(overlap.share, 4),
        **_spans_json(claim=overlap.claim, title=overlap.title, content=overlap.content),
        "lacking": list(overlap.lacking),
        "words": found.words,
        **_standing_json(found.standing),
        **plain_fields(found, "stale grade irrelevant returned_for"),
        "otherwise": [
            {
                **_text_json(one.memory),
                **plain_fields(one, "source newer words"),
                **_spans_json(content=one.spans, title=one.title_spans),
                **_standing_json(one.standing),
            }
            for one in found.otherwise
        ],
        "next": found.next and found.next.to_json(options),
        "fix": found.fix and found.fix.to_json(options),
    }


def _text_json(memory: Memory) -> dict[str, Any]:
    return {"memory_id": memory.id, "title": memory.title, "content": memory.content}


def _spans_json(**spans: Sequence[Span]) -> dict[str, Any]:
    return {f"{name}_spans": [list(span) for span in of] for name, of in spans.items()}


def _standing_json(place: Standing | None) -> dict[str, Any]:
    if place is None:
        return {}
    return plain_fields(place, "rank lost_at") | {"standing": place.words, "reason": place.reason}
