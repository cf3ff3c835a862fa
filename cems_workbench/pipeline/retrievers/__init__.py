"""Retrievers: each makes one ranked list a query.

A retriever is a module here that declares `RETRIEVER = Retriever(...)` and has the name of its list, or an entry point of another
package in the group `cems_workbench.retrievers`. They are discovered: the config reads the names of the modules and entry points and
makes a section `lists.<name>` for each; RETRIEVERS loads the code. The result is filtered by the query's project and scope, sorted, and
cut to the list's depth. If an added retriever fails, its list is empty and the stage `lists` has a warning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import perf_counter

from cems_workbench import extensions
from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections import ADDED_LISTS
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.pipeline.evidence import Hit, RankedList, Variant
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.store import Filter


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Input of a retriever: the query as searched, its variants, and the lists retrieved before this one. `where` is
    the filter on project and scope; memories that do not pass it are removed from the result."""

    query: str
    variants: Sequence[Variant]
    lists: Sequence[RankedList]
    config: PipelineConfig
    resources: Resources
    where: Filter
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class Retriever:
    """One retriever: `search` returns (memory id, score) pairs, each memory once, in any order; higher is better."""

    name: str
    search: Callable[[SearchRequest], Iterable[tuple[str, float]]]


RETRIEVERS = extensions.Registry(extensions.RETRIEVERS, Retriever, "cems_workbench.pipeline.retrievers", "RETRIEVER")
"""All retrievers by the name of their list."""


def retrieve(name: str, request: SearchRequest, depth: int) -> RankedList:
    """The list of one retriever. Raises InputError if there is no such retriever."""
    if name not in RETRIEVERS:
        raise InputError(f"retriever {name} is not available; `doctor` says why")
    scores = {str(key): float(score) for key, score in RETRIEVERS[name].search(request)}
    scores = passing(scores, request.where, request.resources)
    return ranked_list(name, {key: score for key, score in scores.items() if math.isfinite(score)}, depth)


def added_lists(
    request: SearchRequest, depths: Mapping[str, int], since: Callable[[str, float], None] = lambda name, begun: None
) -> tuple[list[RankedList], list[str]]:
    """The list of each added retriever, and a warning for each that failed; a failed one has an empty list. `since` hears when each
    began."""
    lists, warnings = [], []
    for name in ADDED_LISTS:
        begun = perf_counter()
        try:
            with RETRIEVERS.guarded(name, InputError, own=True):
                lists.append(retrieve(name, request, depths[name]))
        except WorkbenchError as error:
            lists.append(ranked_list(name, {}))
            warnings.append(str(error))
        since(name, begun)
    return lists, warnings


def ranked_list(name: str, scores: Mapping[str, float], depth: int | None = None) -> RankedList:
    """A list of no query variant: best first, ties by id."""
    ordered = sorted(scores, key=lambda memory_id: (-scores[memory_id], memory_id))
    return RankedList(name, name, None, tuple(Hit(memory_id, scores[memory_id]) for memory_id in ordered[:depth]))


def passing(scores: dict[str, float], where: Filter, resources: Resources) -> dict[str, float]:
    """The scores of the memories that pass a filter."""
    if where.trivial:
        return scores
    memories = resources.store.memories.read(scores)
    return {key: scores[key] for key, memory in memories.items() if passes(memory, where)}


def passes(memory: Memory, where: Filter) -> bool:
    """Whether a memory passes a filter."""
    return where.passes(memory.id, memory.project, memory.scope)
