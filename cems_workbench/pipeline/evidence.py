"""A request, and its evidence: everything slow about one query, gathered once so that it can be replayed any number of times.

A bundle is this as JSON (`format: cems-workbench-evidence/1`). Scores in lists are raw, best first. Model scores are per
model and memory; a failed score carries its error and no number. What a bundle lacks (a missing optional
field) takes the default of `records.Memory`.

Bundles and evidence files are checked by the same rules (`check`). A fault is one line that names the field as a bundle writes it; those
that only one format can have (a hit on a missing memory by its number) are reported by its reader.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, TypeVar

import numpy as np

from cems_workbench.errors import InputError, one_line, short
from cems_workbench.pipeline.list_sources import SOURCES, Source
from cems_workbench.pipeline.recorded import RECORDED, read_recorded
from cems_workbench.pipeline.supersession import EXCLUDED, SUPERSEDED, Successor, check_excluded, check_note, superseded
from cems_workbench.records import ENGLISH, LANGUAGES, Chunk, Judgment, Memory, Query, RecordedStages, Relation
from cems_workbench.records import Request as Request

FORMAT = "cems-workbench-evidence/1"
VariantKind = Literal["original", "expansion", "decomposed", "hyde"]
LANGUAGE = "language"
"""The note of the store's language."""
ENGINES = "engines"
"""The note of what the engine of a list answered besides its hits, by the list's name: the query as it got it, matches, words."""
GRAPH = "graph"
"""The note of the memories that Chroma's graph missed, with their exact ranks, by the name of the vector list."""
QUESTIONS = "questions"
"""The note of the questions that candidates follow in their sessions."""
VARIANT_KINDS: tuple[VariantKind, ...] = ("original", "expansion", "decomposed", "hyde")


@dataclass(frozen=True, slots=True)
class Variant:
    """One form of the query that was searched."""

    text: str
    kind: VariantKind = "original"


@dataclass(frozen=True, slots=True)
class Hit:
    """One memory in a ranked list with its raw score; `chunk` is the one that was found, by its `seq`, None for the whole memory."""

    memory_id: str
    score: float
    chunk: int | None = None


@dataclass(frozen=True, slots=True)
class RankedList:
    """One ranked list; `variant` is an index into the evidence's variants, None for query-independent sources. A memory
    may occur once per chunk. The order of hits counts if the source says so (`ListSource.ordered`), or the list
    (`as_given`: the order of the system that gave it); otherwise they are sorted by descending score, ties by id."""

    name: str
    source: Source
    variant: int | None
    hits: tuple[Hit, ...]
    as_given: bool = False


@dataclass(frozen=True, slots=True)
class ModelScore:
    """A model's score of one memory: a raw score, or why there is none. `chunk` is the exact text it read."""

    raw: float | None
    chunk: str | None = None
    error: str | None = None
    detail: Mapping[str, Any] | None = None

    @property
    def good(self) -> bool:
        """A finite number without an error."""
        return self.raw is not None and self.error is None and math.isfinite(self.raw)


def _noted(notes: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A note that is an object; empty where it is none."""
    found = notes.get(name)
    return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything `replay` may look at. Treat it as immutable; `notes` are gather's records (probe, warnings)."""

    query: str
    memories: Mapping[str, Memory]
    variants: tuple[Variant, ...] = ()
    lists: tuple[RankedList, ...] = ()
    as_of: datetime | None = None
    project: str | None = None
    model_scores: Mapping[str, Mapping[str, ModelScore]] = field(default_factory=dict)
    judge_scores: Mapping[str, Mapping[str, ModelScore]] = field(default_factory=dict)
    embeddings: Mapping[str, Any] = field(default_factory=dict)
    chunks: Mapping[str, tuple[Chunk, ...]] = field(default_factory=dict)
    """By memory id, in order, the chunks of those candidates that have any."""
    relations: tuple[Relation, ...] = ()
    """Edges that replay may follow, of each source in the order in which they are read."""
    tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By memory id the cl100k tokens of its content, then of each of its chunks; empty when they were not counted."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    ms: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds that parts of its gathering took (`list_sources.TIMED`), under "" the whole; no stage reads them."""

    @property
    def searched(self) -> str:
        """The query as searched: as typed, with typos corrected; or the text that was searched instead of it."""
        return self.variants[0].text if self.variants else self.query

    @property
    def corrected(self) -> str:
        """The query as typed, with typos corrected: what rerankers and judges read, also where another text was searched instead."""
        noted = _noted(self.notes, "query").get("corrected")
        return noted if isinstance(noted, str) else self.searched

    def text_for(self, source: Source, variant: int = 0) -> str:
        """What the list of a source searched for a variant: the text of the variant, or what was given for that list."""
        by_list = _noted(_noted(self.notes, "query"), "engine_queries")
        named = by_list.get(f"{source}:{variant}")
        if named is None and variant == 0:
            named = by_list.get(source)
        return str(named) if named is not None else self.variants[variant].text

    def query_words(self, name: str, variant: int | None) -> int:
        """Number of the query's words in a list: as its engine counted them, else of the text of its variant, of the query without one."""
        counted = _noted(_noted(self.notes, ENGINES), name).get("words")
        if isinstance(counted, int):
            return counted
        text = self.searched if variant is None else self.text_for(name.partition(":")[0], variant)
        return len(text.split())

    @cached_property
    def missed_by_graph(self) -> Mapping[str, tuple[str, int]]:
        """By id of a memory that Chroma's graph missed that vector list and its exact rank there; of several lists the best rank."""
        ranked = [(rank, key, name) for name, own in _noted(self.notes, GRAPH).items() for key, rank in own.items()]
        return {key: (name, rank) for rank, key, name in sorted(ranked, reverse=True)}

    @property
    def language(self) -> str:
        """The language of the store's lexical search; evidence has no note of it for English."""
        return str(self.notes.get(LANGUAGE, ENGLISH))

    @property
    def questions(self) -> Mapping[str, str]:
        """By id of a candidate the question that it follows in its session; empty if `rerank.prepend_question` is off."""
        return _noted(self.notes, QUESTIONS)

    @property
    def external(self) -> bool:
        """Whether another pipeline made it: its stages are recorded, and no config changes them."""
        return RECORDED in self.notes

    @cached_property
    def recorded(self) -> RecordedStages | None:
        """The recorded stages of an external trace; None for evidence that replay runs the stages on."""
        return read_recorded(self.notes[RECORDED]) if self.external else None

    @cached_property
    def superseded(self) -> Mapping[str, tuple[Successor, ...]]:
        """Of each candidate that others supersede these, latest first; empty if no edge was found, or none was looked for."""
        held = self.memories  # evidence that was cut down may hold fewer than the note names
        noted = superseded(self.notes)
        found = {key: tuple(one for one in own if one.memory_id in held) for key, own in noted.items() if key in held}
        return {key: own for key, own in found.items() if own}

    def in_brief(self, long_chars: int | None) -> bool:
        """Whether a quarter of the candidates is longer than `long_chars` (`rerank.brief`)."""
        if long_chars is None:
            return False
        longer = len(self._lengths) - bisect_right(self._lengths, long_chars)
        return 4 * longer >= max(1, len(self._lengths))

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(sorted(len(self.memories[key].content) for key in self.candidate_ids))

    @property
    def candidate_ids(self) -> list[str]:
        """Sorted ids of every memory that is in a list or a recorded stage, that an edge leads to, or that supersedes another candidate."""
        found = {hit.memory_id for ranked in self.lists for hit in ranked.hits}
        found |= {relation.target_id for relation in self.relations}
        for own in self.superseded.values():
            found |= {successor.memory_id for successor in own}
        if self.recorded is not None:
            found |= self.recorded.ids
        return sorted(found)


MAX_GRADE = 1_000_000_000
"""Larger grades, of either sign, are faults; sums within it stay exact."""
KINDS = ("human", "model")
_COUNTS = ("access_count", "relevant_count", "noise_count")
PIECES = "pieces"
"""The note of chunks that are separate candidates: of each the memory that it is of (`lists.units: chunks`)."""
NOTES = ("query", "expansion", "gathered", "models", "warnings", "rerankers", "judges", GRAPH)
"""Notes that are objects."""
_MEMBER = attrgetter("memory_id", "chunk")
_SCORE = attrgetter("score")


def fault(source: str, where: str, problem: str) -> InputError:
    """The error of a field."""
    return InputError(f"{source}: {one_line(where)}: {problem}")


def check(evidence: Evidence, source: str) -> None:
    """Raise InputError as `<source>: <field>: <what is wrong>` for the first fault."""
    check_memories(evidence.memories.values(), evidence.embeddings, evidence.chunks, evidence.tokens, source)
    check_query(evidence, source)


def check_memories(
    memories: Iterable[Memory],
    embeddings: Mapping[str, Any],
    chunks: Mapping[str, Sequence[Chunk]],
    tokens: Mapping[str, Sequence[int]],
    source: str,
) -> None:
    """Raise InputError for an invalid memory, embedding, chunk or token count."""
    known = set()
    for memory in memories:
        known.add(memory.id)
        if not math.isfinite(memory.priority):
            raise fault(source, f"memories.{memory.id}.priority", f"expected a finite number, found {memory.priority}")
        for name in _COUNTS:
            count = getattr(memory, name)
            if count < 0:
                raise fault(source, f"memories.{memory.id}.{name}", f"expected a count from 0, found {short(count)}")
    for what, rows in (("embeddings", embeddings), ("chunks", chunks), ("tokens", tokens)):
        for key in rows.keys() - known:
            raise fault(source, f"{what}.{key}", f"{short(key)} is not among the memories")
    lengths = {len(row) for row in embeddings.values()}
    if len(lengths) > 1:
        raise fault(source, "embeddings", "vectors of different lengths")
    for key, row in embeddings.items():
        if not np.isfinite(row).all():
            raise fault(source, f"embeddings.{key}", "expected finite numbers")
    for key, own in chunks.items():
        for i, chunk in enumerate(own):
            if chunk.seq != i:
                raise fault(source, f"chunks.{key}[{i}].seq", f"expected {i}: chunks must be in order")
            if chunk.start is not None and chunk.start < 0:
                raise fault(source, f"chunks.{key}[{i}].start", f"expected a whole number from 0, found {chunk.start}")
    for key, counts in tokens.items():
        if len(counts) != 1 + len(chunks.get(key, ())):
            raise fault(source, f"tokens.{key}", "expected the tokens of the content, then those of each chunk")
        if min(counts) < 0:
            raise fault(source, f"tokens.{key}", f"expected whole numbers from 0, found {min(counts)}")


def check_query(evidence: Evidence, source: str) -> None:
    """Raise InputError for invalid variants, lists, relations, scores or notes of a query."""
    for i, variant in enumerate(evidence.variants):
        if variant.kind not in VARIANT_KINDS:
            raise fault(
                source,
                f"variants[{i}].kind",
                f"{short(variant.kind)} is not known; allowed: {' | '.join(VARIANT_KINDS)}",
            )
    names = [ranked.name for ranked in evidence.lists]
    for i, ranked in enumerate(evidence.lists):
        _check_list(ranked, evidence, f"lists[{i}]", source)
    if len(set(names)) < len(names):
        raise fault(source, "lists", f"two lists are named {short(max(names, key=names.count))}")
    for i, relation in enumerate(evidence.relations):
        for name in ("source_id", "target_id"):
            if getattr(relation, name) not in evidence.memories:
                unknown = short(getattr(relation, name))
                raise fault(source, f"relations[{i}].{name}", f"{unknown} is not among the memories")
        if not math.isfinite(relation.weight):
            raise fault(source, f"relations[{i}].weight", f"expected a finite number, found {relation.weight}")
    _check_notes(evidence.notes, source)
    try:
        named = set() if evidence.recorded is None else evidence.recorded.ids
    except ValueError as error:
        raise fault(source, f"notes.{RECORDED}", str(error)) from None
    if named - evidence.memories.keys():
        unknown = min(named - evidence.memories.keys())
        raise fault(source, f"notes.{RECORDED}", f"{short(unknown)} is not among the memories")
    if SUPERSEDED in evidence.notes:
        problem = check_note(evidence.notes[SUPERSEDED], evidence.memories)
        if problem:
            raise fault(source, f"notes.{SUPERSEDED}", problem)
    if problem := check_excluded(evidence.notes.get(EXCLUDED, {})):
        raise fault(source, f"notes.{EXCLUDED}", problem)


def _check_list(ranked: RankedList, evidence: Evidence, where: str, source: str) -> None:
    if ranked.source not in SOURCES:
        raise fault(source, f"{where}.source", f"{short(ranked.source)} is not known; allowed: {' | '.join(SOURCES)}")
    variants = max(len(evidence.variants), 1)
    if ranked.variant is not None and not 0 <= ranked.variant < variants:
        problem = f"{short(ranked.variant)} is not an index into variants (0 to {variants - 1})"
        raise fault(source, f"{where}.variant", problem)
    for i, hit in enumerate(ranked.hits):
        if hit.memory_id not in evidence.memories:
            unknown = short(hit.memory_id)
            raise fault(source, f"{where}.hits[{i}].memory_id", f"{unknown} is not among the memories")
        if hit.chunk is not None and not 0 <= hit.chunk < len(evidence.chunks.get(hit.memory_id, ())):
            raise fault(source, f"lists.{ranked.name}", f"{short(hit.memory_id)} has no chunk {hit.chunk}")
    # The common case runs without a Python frame per hit; only a fault looks for its place.
    if not all(map(math.isfinite, map(_SCORE, ranked.hits))):
        i, score = next((i, hit.score) for i, hit in enumerate(ranked.hits) if not math.isfinite(hit.score))
        raise fault(source, f"{where}.hits[{i}].score", f"expected a finite number, found {score}")
    if len(set(map(_MEMBER, ranked.hits))) < len(ranked.hits):
        raise fault(source, f"{where}.hits", "a memory, or a chunk of it, is in the list twice")


def _check_notes(notes: Mapping[str, Any], source: str) -> None:
    for name in NOTES:
        if name in notes:
            _typed(notes[name], dict, f"notes.{name}", "an object", source)
    if LANGUAGE in notes and notes[LANGUAGE] not in LANGUAGES:
        raise fault(source, f"notes.{LANGUAGE}", f"{short(notes[LANGUAGE])} is not one of {', '.join(LANGUAGES)}")
    for stage, lines in notes.get("warnings", {}).items():
        _typed(lines, list, f"notes.warnings.{stage}", "an array", source)
    for name, missed in notes.get(GRAPH, {}).items():
        for rank in _typed(missed, dict, f"notes.{GRAPH}.{name}", "an object", source).values():
            _number(rank, f"notes.{GRAPH}.{name}", source)
    for judge, about in notes.get("judges", {}).items():
        where = f"notes.judges.{judge}"
        _typed(about, dict, where, "an object", source)
        if about.get("threshold") is not None:
            _number(about["threshold"], f"{where}.threshold", source)
        bands = about.get("bands")
        if bands is not None:
            for low in _typed(bands, list, where, "an array", source):
                _number(low, f"{where}.bands", source)
            if len(bands) != 3:
                raise fault(source, f"{where}.bands", "a judge has three")
    try:
        json.dumps(notes, allow_nan=False)  # the trace repeats them, and its JSON has no NaN
    except ValueError:
        raise fault(source, "notes", "a number in them is not finite") from None


def _typed(value: Any, kind: type, where: str, words: str, source: str) -> Any:
    if not isinstance(value, kind):
        raise fault(source, where, f"expected {words}, found {short(value)}")
    return value


def _number(value: Any, where: str, source: str) -> None:
    # bool is a subclass of int, and JSON's true is no number.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise fault(source, where, f"expected a number, found {short(value)}")
    if not math.isfinite(value):
        raise fault(source, where, f"expected a finite number, found {value}")


def check_query_set(queries: Sequence[Query], judgments: Sequence[Judgment], source: str) -> None:
    """Raise InputError for queries with the same qid, and for duplicate judgments or invalid grades."""
    if (twice := _twice(queries, lambda query: query.qid)) is not None:
        raise fault(source, f"queries.{twice.qid}", "the query is in the file twice")
    for judgment in judgments:
        where = f"judgments.{judgment.qid} {judgment.memory_id} by {judgment.judge}"
        if judgment.kind not in KINDS:
            raise fault(source, where, f"kind {short(judgment.kind)} is not known; allowed: {' | '.join(KINDS)}")
        if not -MAX_GRADE <= judgment.grade <= MAX_GRADE:
            raise fault(source, where, f"grade {judgment.grade} is beyond {MAX_GRADE:,}")
    label = _twice(judgments, lambda judgment: (judgment.qid, judgment.memory_id, judgment.judge, judgment.kind))
    if label is not None:
        raise fault(
            source, f"judgments.{label.qid} {label.memory_id} by {label.judge}", "the judgment is in the file twice"
        )


Row = TypeVar("Row")


def _twice(rows: Iterable[Row], key: Callable[[Row], object]) -> Row | None:
    seen = set()
    for row in rows:
        if (own := key(row)) in seen:
            return row
        seen.add(own)
    return None
