"""Lexical engines: list sources that answer as another engine does.

An engine is a module here with the name of its list, which declares `LEXICAL_ENGINE = LexicalEngine(search)`, or an entry point with that
name (`extensions.LEXICAL_ENGINES`). Its section is in `config/sections.py`, its row in `pipeline/list_sources.py`. It is
imported when a config first enables its list; each query variant then gets a separate list, in the order of the engine.

    documents (one per chunk, else per memory) in order of insertion -> the engine's index -> hits, best first

What an engine got as a query, and how many documents matched, is kept in the evidence (`EngineAnswer.note`).

Source: docs/internals/specification.md, "lists".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import Any, Literal

from cems_workbench.config import PipelineConfig
from cems_workbench.config.forms.targets import system_behind
from cems_workbench.extensions import LEXICAL_ENGINES, declared, module_names
from cems_workbench.pipeline.mismatches import NO_STOP_WORDS
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.store import Filter
from cems_workbench.store.search.entries import ChunkHits, truncate_to_memories
from cems_workbench.store.search.stop_lists import NotInstalledError, stop_list

Rows = Literal["created", "store"]
"""Order of insertion: by created_at, equal ones as imported; or as imported."""


@dataclass(frozen=True, slots=True)
class Document:
    """A searched text: a chunk of a memory, or the whole memory (`chunk` None)."""

    memory: Memory
    chunk: int | None
    text: str


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A search: the text of a query variant and how many memories to return. `given` is the engine's own query as it
    was recorded: it replaces what the engine would make of the text."""

    text: str
    depth: int
    config: PipelineConfig
    resources: Resources
    where: Filter
    given: str | None = None

    def stop_words(self, list_name: str, name: str | None) -> tuple[frozenset[str], tuple[str, ...]]:
        """The words that a list leaves out: none where they are those of an installation that was not found, with a warning unless
        `mismatches` has the line, as for a list that the target of the config reads."""
        try:
            return stop_list(name, self.resources.store.path), ()
        except NotInstalledError as error:
            path, system = f"lists.{list_name}.stop_words", system_behind(self.config)
            told = system is not None and path in system.needs
            return frozenset(), () if told else (f"{list_name}: {NO_STOP_WORDS}: {error} (--set {path}=FILE#NAME)",)

    def hits(self, found: ChunkHits) -> ChunkHits:
        """The hits that pass the filter, down to the depth."""
        if not self.where.trivial:
            memories = self.resources.store.memories.read({memory_id for memory_id, _, _ in found})
            passing = {key for key, memory in memories.items() if self.where.passes(key, memory.project, memory.scope)}
            found = [hit for hit in found if hit[0] in passing]
        return truncate_to_memories(found, self.depth)


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """Hits in the engine's order; the query as the engine got it, its number of words, and how many documents matched.

    `note` has what else is worth showing, as plain values; `warnings` are lines for the stage `lists`. `searched` is False if nothing was
    left to search: then there is no list, which is something else than an empty one (`fusion.single_list: bypass_searched`).
    """

    hits: ChunkHits
    query: str
    words: int
    matches: int
    note: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    searched: bool = True

    def to_json(self) -> dict[str, Any]:
        """What the evidence keeps beside the hits."""
        return {"query": self.query, "words": self.words, "matches": self.matches, **self.note}


@dataclass(frozen=True, slots=True)
class LexicalEngine:
    """One engine. `search` raises InputError if the request cannot be answered; its list is then empty, with a warning."""

    search: Callable[[EngineRequest], EngineAnswer]


def lexical_engine(name: str) -> LexicalEngine:
    """The engine of a list; imports it alone."""
    entry = declared(LEXICAL_ENGINES, module_names(__name__)).get(name)
    engine: LexicalEngine = import_module(f"{__name__}.{name}").LEXICAL_ENGINE if entry is None else entry.load()
    return engine


def documents(resources: Resources, rows: Rows) -> list[Document]:
    """Every searched text of the store in order of insertion; the chunks of a memory follow each other."""
    store = resources.store
    memories = store.memories.read()
    texts = [(found, memories[found.id]) for found in store.indexes.documents() if found.id in memories]
    if rows == "created":
        texts.sort(key=lambda pair: _created(pair[1]))  # stable, so that equal dates stay as imported
    return [
        Document(memory, seq, text) for found, memory in texts for seq, text in (found.chunks or ((None, found.text),))
    ]


def _created(memory: Memory) -> tuple[bool, float]:
    moment: datetime | None = memory.created_at
    return moment is None, moment.timestamp() if moment is not None else 0.0
