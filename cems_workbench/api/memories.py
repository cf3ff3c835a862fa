"""Memories: one across all queries, a query without one or with one that does not exist yet, and those that may supersede earlier ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.errors import InputError
from cems_workbench.progress import Progress, silent
from cems_workbench.results import MAX_ROWS, Result, Table

if TYPE_CHECKING:
    from cems_workbench.analysis.memory_use import MemoryUse
    from cems_workbench.analysis.proposed_edges import Proposals
    from cems_workbench.analysis.what_if import WhatIf
    from cems_workbench.analysis.what_if_set import SetEffect
    from cems_workbench.api.open_store import ConfigLike, OpenStore
    from cems_workbench.api.single_query import Answer
    from cems_workbench.jobs.memory_use import UsesOf


MAX_SHOWN = 40
"""Memories or queries that a person is shown."""


@dataclass(frozen=True, eq=False, repr=False)
class MemoryReport(Result):
    """How judged queries use the memories, and the queries of one memory.

    Attributes:
        found: the counts of every memory.
        memory_id: the memory whose queries are listed; None for none.
        options: those of the commands that explain a query.
    """

    found: UsesOf
    memory_id: str | None = None
    options: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Of which memory, queries and config it is."""
        uses, of = self.found.uses, f"{self.memory_id} across" if self.memory_id else "memories of"
        return f"{of} {uses.queries} queries under {uses.config_name}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What the queries do with the memory, under which config, and how many of them are judged; how many hubs and orphans there are."""
        uses = self.found.uses
        if self.memory_id is None:
            return uses.hubs_sentence, self.found.orphans_sentence
        judged = f"config {uses.config_name}, {uses.judged:,} of {uses.queries:,} queries have a judged memory"
        return uses.sentence(self.memory_id), judged

    @property
    def hubs(self) -> Table:
        """The memories returned for many queries that judge them irrelevant, those of most queries first."""
        return self._counts(self.found.uses.hubs(), "hubs")

    @property
    def orphans(self) -> Table:
        """The memories that no query returns, those that most queries want first."""
        return self._counts(self.found.orphans(), "orphans")

    def _counts(self, uses: list[MemoryUse], title: str) -> Table:
        k = self.found.uses.k
        rows = (
            (
                use.memory_id,
                use.candidate,
                use.returned,
                use.irrelevant,
                use.wanted,
                use.found,
                ", ".join(f"{count:,} {branch.words(k)}" for branch, count in use.lost.items()) or None,
            )
            for use in uses
        )
        columns = ("memory", "candidate", "returned", "judged irrelevant", "wanted", "found", "lost")
        return Table(columns, tuple(rows), title, shown=MAX_SHOWN)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The queries of the memory, each with the command that explains it; without a memory hubs and orphans."""
        if self.memory_id is None:
            return self.hubs, self.orphans
        rows = tuple(
            (row.query.qid, row.status, row.grade, row.rank, row.words, row.next_command(self.options))
            for row in self.found.uses.rows.get(self.memory_id, ())
        )
        columns = ("qid", "status", "grade", "rank", "what happened", "next")
        return (Table(columns, rows, shown=MAX_SHOWN),)

    def to_json(self) -> dict[str, Any]:
        """The counts as plain values, as `memory --json` prints them."""
        uses = self.found.uses
        if self.memory_id is not None:
            return uses.to_json(self.memory_id, self.options)
        hubs, orphans = uses.hubs(), self.found.orphans()
        return uses.over() | {
            "hubs": [use.to_json(uses.k) for use in hubs],
            "orphans": [use.to_json(uses.k) for use in orphans],
        }


def memory_use(
    source: OpenStore | str | Path,
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
        source: an open store, whose judged queries are read, or the path of an evidence file of any size.
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
        found = uses_in_store(
            load_config(config), source.resources, query_set, kind=judges, k=k, followed=followed, progress=progress
        )
    else:
        chosen = None if config is None else load_config(config)
        found = uses_in_files([Path(source)], chosen, kind=judges, k=k, followed=followed, progress=progress)
    return MemoryReport(found, memory_id)


@dataclass(frozen=True, eq=False, repr=False)
class WhatIfReport(Result):
    """A query without a memory, or with one that does not exist yet.

    Attributes:
        found: the query before and after.
        effect: the same on all judged queries; None if it was not asked for.
    """

    found: WhatIf
    effect: SetEffect | None = None

    @property
    def title(self) -> str:
        """Which query and config it is of."""
        return f"what if, for “{self.found.after.evidence.query}” under {self.found.after.config.name}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What changes in this query, and in all judged ones."""
        return (self.found.sentence, *((self.effect.sentence,) if self.effect else ()))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The other results that move, the ranks of the memory in the lists, and the judged queries that change."""
        others = (
            (one.memory_id, one.before, one.after, self.found.text_of(one.memory_id)) for one in self.found.others()
        )
        lists = (
            (pair.name, pair.before and pair.before.rank, pair.after and pair.after.rank)
            for pair in self.found.lists()
            if pair.before or pair.after
        )
        tables = (
            Table(("memory", "rank before", "rank", "text"), tuple(others), "other results that move", shown=MAX_ROWS),
            Table(("list", "rank before", "rank"), tuple(lists)),
        )
        if self.effect is None:
            return tables
        rows = tuple(
            (
                row.query.qid,
                row.before,
                row.after,
                ", ".join(row.came) or None,
                ", ".join(row.left) or None,
                row.difference,
            )
            for row in self.effect.changed
        )
        columns = ("qid", "rank before", "rank", "came", "left", str(self.effect.first.measure))
        return (*tables, Table(columns, rows, "judged queries that change", shown=MAX_ROWS))

    @property
    def notes(self) -> tuple[str, ...]:
        """Which ranks are exact and which estimated."""
        return (self.found.certainty, *(self.effect.notes if self.effect else ()))

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain values, as `what-if --json` prints it."""
        return self.found.to_json() | ({"queries": self.effect.to_json()} if self.effect else {})


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
    return WhatIfReport(found, effect)


@dataclass(frozen=True, eq=False, repr=False)
class SupersessionReport(Result):
    """Proposed `supersedes` edges, best first.

    Attributes:
        found: the proposals, with spans and texts.
    """

    found: Proposals

    @property
    def title(self) -> str:
        """The outcome in a sentence."""
        return self.found.sentence

    @property
    def tables(self) -> tuple[Table, ...]:
        """A row for each proposal."""
        rows = tuple((edge.newer, edge.older, edge.score, edge.why) for edge in self.found.edges)
        return (Table(("newer", "older", "score", "why"), rows),)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        return self.found.notes

    def to_json(self) -> dict[str, Any]:
        """The proposals as plain values, as `supersessions --json` prints them."""
        return self.found.to_json()


def supersessions(
    store: OpenStore, *, most: int = 200, minimum: float | None = None, contradiction_model: str | None = None
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
    from cems_workbench.analysis.proposed_edges import MINIMUM, proposed_edges
    from cems_workbench.models.cross_encoder import ContradictionScorer

    model = ContradictionScorer(contradiction_model) if contradiction_model else None
    return SupersessionReport(
        proposed_edges(store.resources, most=most, minimum=MINIMUM if minimum is None else minimum, model=model)
    )
