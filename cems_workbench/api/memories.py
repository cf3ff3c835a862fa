"""Memories: one across all queries, one left out or added; an answer traced to its memories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.api.open_store import collect_warnings
from cems_workbench.errors import InputError, counted
from cems_workbench.progress import Progress, silent
from cems_workbench.results import Report, Result, Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from cems_workbench.analysis.blame import Blame, BlamedMemory
    from cems_workbench.analysis.vector_change import VectorChange
    from cems_workbench.analysis.what_if import SetEffect, WhatIf
    from cems_workbench.api.open_store import ConfigLike, OpenStore
    from cems_workbench.api.single_query import Answer
    from cems_workbench.jobs.memory_use import MemoryReport


def memory_use(
    source: OpenStore | str | Path | Sequence[Path],
    memory_id: str | None = None,
    config: ConfigLike | None = None,
    *,
    query_set: str = "all",
    k: int | None = None,
    judges: str | None = None,
    progress: Progress = silent,
) -> MemoryReport:
    """Where queries want a memory, return it, return it although it is judged irrelevant, and lose it, as the command `memory` does.

    Args:
        source: an open store, whose judged queries are read, or the path of an evidence file of any size, or several paths.
        memory_id: the memory whose queries are listed; None: hubs and orphans alone.
        config: a config, the name of a preset, or the path of a config file; None is that of the evidence, of a store the default preset.
        query_set: the name of a set of the store, or `all`.
        k: it counts as returned within rank k; None is the config's limit of results.
        judges: `human`, `model`, or None for people before models.
        progress: called with a label, a count and a total.

    Raises:
        InputError: there is no such memory, naming the nearest; or there are no queries with evidence.
    """
    from cems_workbench.api.open_store import OpenStore, load_config
    from cems_workbench.jobs.memory_use import uses_in_files, uses_in_store

    if k is not None and k < 1:
        raise InputError(f"k {k}: it is counted from 1")
    if judges not in (None, "human", "model"):
        raise InputError(f"judges {judges}: expected human or model")
    followed = () if memory_id is None else (memory_id,)
    if isinstance(source, OpenStore):
        chosen = load_config(config)
        found = uses_in_store(
            chosen, source.resources, query_set, kind=judges, k=k, followed=followed, progress=progress
        )
    else:
        paths = [Path(source)] if isinstance(source, str | Path) else list(source)
        of_files = None if config is None else load_config(config)
        found = uses_in_files(paths, of_files, kind=judges, k=k, followed=followed, progress=progress)
    return replace(found, memory_id=memory_id)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WhatIfReport(Report):
    """A query without a memory, or with one that does not exist yet.

    Attributes:
        found: the query before and after.
        effect: the same on all judged queries; None if it was not asked for.
    """

    found: WhatIf
    effect: SetEffect | None = None


def what_if(
    store: OpenStore,
    answer: Answer,
    *,
    without: str | None = None,
    text: str | None = None,
    title: str | None = None,
    project: str | None = None,
    scope: str = "personal",
    queries: str | None = None,
    progress: Progress = silent,
) -> WhatIfReport:
    """A query without a memory, or with one that does not exist yet, as the command `what-if` does. Nothing is stored.

    Args:
        store: the open store that was searched.
        answer: what `search` gave.
        without: the memory to leave out.
        text: or the text of a memory that does not exist yet, with its `title` and `project`.
        title: its title.
        project: its project, org/repo.
        scope: its scope, personal or shared.
        queries: also try it on the judged queries of this set, or of `all`; missing evidence is gathered.
        progress: called with a label, a count and a total.

    Raises:
        InputError: there is no such memory, naming the nearest; the text is empty or too long; or the answer was read from a file.
    """
    from cems_workbench.analysis.what_if import absence, applied, new_memory, presence
    from cems_workbench.jobs.memory_use import effect_on_queries

    if (without is None) == (text is None):
        raise InputError("pass one of without, a memory's id, and text, that of a new memory")
    if answer.request is None:
        raise InputError("this answer was read from a file; search the store for the query")
    resources = store.resources
    if without is not None:
        edit = absence(without, resources)
    else:
        edit = presence(new_memory(text or "", resources, title=title, project=project, scope=scope), resources)
    found = applied(edit, answer.evidence, answer.config, answer.request, switched_off=answer.off, progress=progress)
    effect = None if queries is None else effect_on_queries(edit, answer.config, queries, progress=progress)
    judged = {} if effect is None else {"queries": effect.to_json()}
    return WhatIfReport(
        title=f"what if, for “{answer.query}” under {answer.config.name}",
        lines=[*found.lines, *([effect.sentence] if effect else [])],
        tables=[*found.tables, *(effect.tables if effect else [])],
        notes=[found.certainty, *(effect.notes if effect else [])],
        values=found.to_json() | judged,
        found=found,
        effect=effect,
    )


def what_if_vectors(
    store: OpenStore,
    *,
    embedder: str | None = None,
    chunks: str | None = None,
    config: ConfigLike | None = None,
    query_set: str = "all",
    share: float = 0.1,
    progress: Progress = silent,
) -> VectorChange:
    """What another embedder or chunk rule would do to judged queries, from a part of its vectors, as the command `what-if` does.

    Args:
        store: an open store.
        embedder: the folder or name of a model, or `ollama:MODEL`; or
        chunks: the name of a rule.
        config: of which the results are measured too, as `evaluate` takes it.
        query_set: the name of a set of the store, or `all`.
        share: of the vectors, the share that is made.
        progress: called with a label, a count and a total.

    Raises:
        InputError: an unknown embedder or rule, no judged queries, or a share that is too small.
        ModelError: the embedder fails.
    """
    from cems_workbench.api.open_store import load_config
    from cems_workbench.jobs.vector_change import embedder_named, vector_change
    from cems_workbench.settings import settings_for

    if (embedder is None) == (chunks is None):
        raise InputError("pass one of embedder and chunks")
    other = None if embedder is None else embedder_named(embedder, settings_for(store.path))
    chosen = load_config(config)
    return vector_change(query_set, store.resources, chosen, other=other, rule=chunks, share=share, progress=progress)


MARGIN, MAX_TEXT = 60, 320
"""Characters of a text that are shown before the first and after the last word in common, and in all."""


@dataclass(frozen=True, eq=False, repr=False)
class BlameReport(Result):
    """The memories that support what an agent said, and what became of them.

    Attributes:
        found: the claims with their memories, best first.
        warnings: what to read it with.
        options: those of the commands that go on.
    """

    found: Blame
    warnings: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str | None, ...]:
        """Of each claim the memory that supports it best; None where none does, or it cannot tell."""
        return tuple(claim.memories[0].id if claim.supporting else None for claim in self.found.claims)

    @property
    def title(self) -> str:
        """How many claims of an answer to which query."""
        of = f" for “{self.found.query}” under {self.found.config_name}" if self.found.query is not None else ""
        return f"{counted(len(self.found.claims), 'claims')}{of}"

    @property
    def lines(self) -> tuple[str, ...]:
        """How many claims are supported; of each which memory supports it best, that none does, or that it cannot tell."""
        return tuple(dict.fromkeys((self.found.sentence, *(claim.sentence for claim in self.found.claims))))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The memories of each claim, the words in common with it in [brackets]; those that say otherwise."""
        several = len(self.found.claims) > 1
        memories = [(claim.claim.text, one) for claim in self.found.claims for one in claim.memories]
        rows, others = [], []
        for text, one in memories:
            support, at, then = one.support, one.standing, one.next and one.next.command(self.options)
            shown = (text if several else None, one.id, support.score, one.words or None, _marked(one))
            place = (support.verdict, at and at.rank, at and at.lost_at, one.stale, one.irrelevant)
            rows.append((*shown, *place, then, support.memory.content))
            for other in one.otherwise:
                memory, at = other.memory, other.standing
                said = (one.id, memory.id, other.words, at and at.words, memory.content)
                others.append((*said, other.source, at and at.rank))
        further = ("verdict", "rank", "lost at", "stale", "irrelevant", "next", "content")
        columns = ("claim", "memory", "support", "what became of it", "text", *further)
        otherwise = ("memory", "other", "why", "what became of it", "content", "by", "rank")
        return (
            Table(columns, tuple(rows), "memories that support it or come close", unshown=further),
            *([Table(otherwise, tuple(others), "what says otherwise", unshown=("by", "rank"))] if others else []),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """How the text was split, under which config, and what was left out."""
        split = f"claims split by {self.found.split_by}"
        under = f"; config {self.found.config_name}" if self.found.query is not None else ""
        return (*self.warnings, split + under, *(f"note: {note}" for note in self.found.notes))

    def to_json(self) -> dict[str, Any]:
        """The whole result as plain values, as `blame --json` prints it."""
        return self.found.to_json(self.options)


def _marked(one: BlamedMemory) -> str:
    """The stretch of the content with the words in common, each in brackets."""
    from cems_workbench.analysis.support import marked_pieces

    pieces = marked_pieces(one.support.memory.content, one.support.overlap.content, MAX_TEXT, MARGIN)
    return " ".join("".join(f"[{text}]" if common else text for text, common in pieces).split())


def blame(
    store: OpenStore,
    text: str,
    query: str | Answer | None = None,
    config: ConfigLike | None = None,
    *,
    project: str | None = None,
    only_project: bool = False,
    as_of: datetime | str | None = None,
    returned: bool = False,
    progress: Progress = silent,
) -> BlameReport:
    """The memories that support what an agent said, and what became of them, as the command `blame` does.

    Args:
        store: an open store.
        text: what the agent said, one sentence or more.
        query: what it was asked, or what `search` gave for it; None: only support is looked for.
        config: a config, the name of a preset, or the path of a config file; None is that of the answer, else the default preset.
        project: project of the query, org/repo.
        only_project: search only memories of that project.
        as_of: the moment of the query, a datetime or ISO 8601 text; None is now.
        returned: without a query, name the judged queries of the store that return each memory; missing evidence is gathered.
        progress: called with a label, a count and a total.

    Returns:
        The claims with their memories.

    Raises:
        InputError: the text is empty, one word or states nothing; or as `search` does.
        ModelError, StoreError: a model or the store cannot be used.
    """
    from cems_workbench.api import single_query
    from cems_workbench.api.open_store import load_config
    from cems_workbench.jobs.memory_use import blame_answer

    if query is None:
        if project is not None or only_project or as_of is not None:
            raise InputError("project, only_project and as_of belong to a query: blame(store, text, query)")
        found = blame_answer(text, store.resources, load_config(config), returned=returned, progress=progress)
        return BlameReport(found)
    with collect_warnings() as said:
        if isinstance(query, str):
            answer = single_query.search(
                store, query, config, project=project, only_project=only_project, as_of=as_of, progress=progress
            )
        elif config is None:
            answer = query
        else:
            answer = single_query.search(store, query.query, config, as_of=query.evidence.as_of)
    if answer.request is None:
        raise InputError("this answer was read from a file; pass its query as text, so that the store is searched")
    config, trace = answer.config, answer.trace
    found = blame_answer(
        text, store.resources, config, answer.request, trace=trace, returned=returned, progress=progress
    )
    return BlameReport(found, tuple(said))
