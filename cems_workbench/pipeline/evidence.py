"""A request, and its evidence: everything slow about one query, gathered once so that it can be replayed any number of times.

A bundle is this as JSON (`format: cems-workbench-evidence/1`). Scores in lists are raw, best first. Model scores are per
model and memory; a failed score carries its error and no number. What a bundle lacks (a missing optional
field) takes the default of `records.Memory`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from cems_workbench.pipeline.list_sources import Source
from cems_workbench.pipeline.recorded import RECORDED, RecordedStages, read_recorded
from cems_workbench.pipeline.supersession import Successor, superseded
from cems_workbench.records import ENGLISH, Chunk, Memory, Relation

FORMAT = "cems-workbench-evidence/1"
VariantKind = Literal["original", "expansion", "decomposed", "hyde"]
LANGUAGE = "language"
"""The note of the store's language."""
ENGINES = "engines"
"""The note of what the engine of a list answered besides its hits, by the list's name: the query as it got it, matches, words."""
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
    """One ranked list; `variant` is an index into the evidence's variants, None for query-independent sources.

    A memory may occur once per chunk. The order of hits counts if the source says so
    (`ListSource.ordered`), or the list (`as_given`: the order of the system that gave it); otherwise they are sorted by descending
    score, ties by id.
    """

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

    @property
    def searched(self) -> str:
        """The query as searched: as typed, with typos corrected; or the text that was searched instead of it."""
        return self.variants[0].text if self.variants else self.query

    @property
    def corrected(self) -> str:
        """The query as typed, with typos corrected: what rerankers and judges read, also where another text was searched instead."""
        understood = self.notes.get("query")
        noted = understood.get("corrected") if isinstance(understood, Mapping) else None
        return noted if isinstance(noted, str) else self.searched

    def text_for(self, source: Source, variant: int = 0) -> str:
        """What the list of a source searched for a variant: the text of the variant, or what was given for that list."""
        understood = self.notes.get("query")
        given = understood.get("engine_queries") if isinstance(understood, Mapping) else None
        by_list = given if isinstance(given, Mapping) else {}
        named = by_list.get(f"{source}:{variant}")
        if named is None and variant == 0:
            named = by_list.get(source)
        return str(named) if named is not None else self.variants[variant].text

    def query_words(self, name: str, variant: int | None) -> int:
        """Number of the query's words in a list: as its engine counted them, else of the text of its variant, of the query without one."""
        engines = self.notes.get(ENGINES)
        answer = engines.get(name) if isinstance(engines, Mapping) else None
        counted = answer.get("words") if isinstance(answer, Mapping) else None
        if isinstance(counted, int):
            return counted
        text = self.searched if variant is None else self.text_for(name.partition(":")[0], variant)
        return len(text.split())

    @property
    def language(self) -> str:
        """The language of the store's lexical search; evidence has no note of it for English."""
        return str(self.notes.get(LANGUAGE, ENGLISH))

    @property
    def questions(self) -> Mapping[str, str]:
        """By id of a candidate the question that it follows in its session; empty if `rerank.prepend_question` is off."""
        found = self.notes.get(QUESTIONS, {})
        return found if isinstance(found, Mapping) else {}

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


@dataclass(frozen=True, slots=True)
class Request:
    """A search request: the query, its project and moment, and further variants typed by hand.

    `searched` is a text that every list searches instead of the query: as given, without typo correction or expansion. `engine_queries`
    has, by list source ("lexical"; of variant 2 "lexical:2"), what that list searches instead of its variant's text, as given. Rerankers
    and judges read the query. Both are what a recording of another system says was searched.
    """

    query: str
    project: str | None = None
    as_of: datetime | None = None
    only_project: bool = False
    variants: tuple[str, ...] = ()
    searched: str | None = None
    engine_queries: Mapping[str, str] = field(default_factory=dict, hash=False)
