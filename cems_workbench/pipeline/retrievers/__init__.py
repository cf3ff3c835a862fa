"""Lists that are searched once a query, each by a source of its own: the relations, and those that are added.

A source is a module here that declares `LIST_SEARCH = ListSearch(...)` and is called as its list, or an entry point of another package
in the group `cems_workbench.list_sources`. Nothing lists them: the config takes the names of the modules and the entry points, makes a
section `lists.<name>` of each, and LIST_SEARCHES finds the code. What a source returns is put in order, cut to its depth, and freed of
what the query's filter does not let through; a source that fails is a warning of the stage `lists`, and its list is empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from cems_workbench import extensions
from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections.gathering import ADDED_LISTS
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.pipeline.evidence import Hit, RankedList, Variant
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.store import Filter


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What a list source is asked: the query as it is searched, its variants, and the lists that were searched before it.

    `where` says which memories the query is about; what it does not let through is taken out of what a source returns.
    """

    query: str
    variants: Sequence[Variant]
    lists: Sequence[RankedList]
    config: PipelineConfig
    resources: Resources
    where: Filter
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class ListSearch:
    """A list source: `search` gives (memory id, score) of what it finds, each memory once, in any order; higher is better."""

    name: str
    search: Callable[[SearchRequest], Iterable[tuple[str, float]]]


LIST_SEARCHES = extensions.Registry(
    extensions.LIST_SOURCES, ListSearch, "cems_workbench.pipeline.retrievers", "LIST_SEARCH"
)
"""The sources of lists that are searched once a query, by the name of their list."""


def search_list(name: str, request: SearchRequest, depth: int) -> RankedList:
    """The list of one source. Raises InputError when the source is not here, or fails."""
    if name not in LIST_SEARCHES:
        raise InputError(f"the list source {name} is not here; `doctor` says why")
    with LIST_SEARCHES.answerable(name, InputError):
        scores = {str(key): float(score) for key, score in LIST_SEARCHES[name].search(request)}
    if not request.where.trivial:
        memories = request.resources.store.memories.read(scores)
        scores = {key: scores[key] for key, memory in memories.items() if passes(memory, request.where)}
    return ranked_list(name, {key: score for key, score in scores.items() if math.isfinite(score)}, depth)


def added_lists(request: SearchRequest, depths: Mapping[str, int]) -> tuple[list[RankedList], list[str]]:
    """The list of each source that is added, and a warning for each that failed, whose list is empty."""
    lists, warnings = [], []
    for name in ADDED_LISTS:
        try:
            lists.append(search_list(name, request, depths[name]))
        except WorkbenchError as error:
            lists.append(ranked_list(name, {}))
            warnings.append(str(error))
    return lists, warnings


def ranked_list(name: str, scores: Mapping[str, float], depth: int | None = None) -> RankedList:
    """A list that belongs to no query variant: best first, ties by id."""
    ordered = sorted(scores, key=lambda memory_id: (-scores[memory_id], memory_id))
    return RankedList(name, name, None, tuple(Hit(memory_id, scores[memory_id]) for memory_id in ordered[:depth]))


def passes(memory: Memory, where: Filter) -> bool:
    """Does a filter let this memory through?"""
    return where.required_project in (None, memory.project) and where.required_scope in (None, memory.scope)
