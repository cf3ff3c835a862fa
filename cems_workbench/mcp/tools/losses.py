"""Where judged queries lose memories: all relevant ones by stage, or one memory across queries."""

from __future__ import annotations

from typing import Literal

from mcp.server.mcpserver import Context
from pydantic import Field

from cems_workbench.analysis.losses_of_set import in_words
from cems_workbench.analysis.memory_use import memory_uses
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.api.measures import evaluate
from cems_workbench.api.results import collect_warnings
from cems_workbench.errors import InputError
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.jobs.catalogue import named
from cems_workbench.jobs.evaluation import evidence_of, measured_losses
from cems_workbench.mcp.arguments import (
    Changes,
    ConfigName,
    Cutoff,
    FollowedId,
    Limit,
    Offset,
    OwnCutoff,
    Queries,
    QuerySet,
    Seconds,
)
from cems_workbench.mcp.responses import UNTRUSTED, Paged, Reply, Text, moment, page, query_text
from cems_workbench.mcp.served_store import ServedStore
from cems_workbench.mcp.tools.allowance import Allowance, Searching, unfinished
from cems_workbench.mcp.tools.measuring import MEASURES
from cems_workbench.progress import Cancelled


class LossBranch(Reply):
    """Where relevant memories leave the pipeline, and how many of each config; of two what the second saves and breaks."""

    stage: str | None = None
    manner: str | None = None
    words: str
    lost: dict[str, int]
    saved: int | None = None
    broken: int | None = None


class LostPair(Reply):
    """A relevant memory that a config does not return, with what happened in the words of `why`."""

    qid: str
    memory_id: str
    config: str
    stage: str | None = None
    manner: str
    rank: int | None = None
    words: str
    untrusted: Text


class Lost(Paged):
    """Which stage loses the relevant memories of a query set, and which ones; or the progress so far."""

    state: Literal["counted", "searching"]
    searching: Searching | None = None
    configs: tuple[str, ...]
    cutoff: int
    relevant: int | None = None
    returned: dict[str, int] = Field(default_factory=dict)
    branches: tuple[LossBranch, ...] = ()
    lost: tuple[LostPair, ...] = ()
    said: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted_note: str = UNTRUSTED


class UsingQuery(Reply):
    """A query that wants or returns a memory; pass its text and the memory's id to why."""

    qid: str
    status: str
    grade: int | None = None
    rank: int | None = None
    stage: str | None = None
    what: str
    as_of: str | None = None
    untrusted: Text


class UseCounts(Reply):
    """How many queries want, find and return a memory."""

    memory_id: str
    wanted: int
    found: int
    returned: int
    returned_irrelevant: int


class UsedMemory(Paged):
    """A memory across judged queries, or the hubs: memories returned for many queries that judge them irrelevant."""

    state: Literal["counted", "searching"]
    searching: Searching | None = None
    config: str
    cutoff: int
    said: tuple[str, ...] = ()
    memories: tuple[UseCounts, ...] = ()
    rows: tuple[UsingQuery, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted_note: str = UNTRUSTED


class LossTools:
    """`losses` and `memory` of a served store."""

    def __init__(self, served: ServedStore) -> None:
        self._served = served

    def losses(
        self,
        context: Context,
        query_set: QuerySet = "all",
        config: ConfigName = "",
        changes: Changes = None,
        against: ConfigName = "",
        cutoff: Cutoff = 10,
        queries: Queries = 0,
        seconds: Seconds = 40,
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> Lost:
        """Which stage loses the relevant memories of judged queries. With `against`, what `config` saves and breaks compared with it."""
        configs = [self._served.config(config, changes)]
        if against:
            configs.insert(0, self._served.config(against))
        if len(configs) == 2 and configs[0] == configs[1]:
            raise InputError("against: nothing to compare; name changes, or another config as against")
        if len(configs) == 2 and configs[0].name == configs[1].name:
            configs[1] = named(f"{configs[0].name} with changes", configs[1])
        allowance, names = Allowance(seconds, context), [one.name for one in configs]
        with collect_warnings() as noted:
            try:
                with self._served.measuring(seconds):
                    found = [self._served.evidence(query_set, each, queries, allowance) for each in configs]
            except Cancelled:
                return Lost(state="searching", configs=names, cutoff=cutoff, **unfinished(allowance))
            if not against:
                configs = [self._served.measured_config(found[0], configs[0], config or changes)]
                names = [configs[0].name]
            reports = [evaluate(each, one, MEASURES) for each, one in zip(found, configs, strict=True)]
            measured = [report.measured for report in reports]
            losses = measured_losses(measured, reports[0].evaluation.relevant_from, cutoff, None)
        listed = [(i, row) for i, one in enumerate(losses.maps) for row in one.rows]
        rows, counts = page(listed, offset, limit)
        asked = [{query.qid: query for query in one.batch.queries} for one in measured]
        told = [(i, in_words([row], configs[i], cutoff, evidence_of(measured[i]))[0]) for i, row in rows]
        change = losses.differences[0] if losses.differences else None
        return Lost(
            state="counted",
            configs=names,
            cutoff=cutoff,
            relevant=losses.maps[-1].relevant,
            returned={one.config_name: one.returned for one in losses.maps},
            branches=[
                LossBranch(
                    stage=branch.stage or None,
                    manner=branch.manner,
                    words=branch.words(cutoff),
                    lost={one.config_name: one.branches.get(branch, 0) for one in losses.maps},
                    saved=None if change is None else change.saved.get(branch, 0),
                    broken=None if change is None else change.broken.get(branch, 0),
                )
                for branch in losses.branches
            ],
            lost=[
                LostPair(
                    qid=row.qid,
                    memory_id=row.memory_id,
                    config=names[i],
                    stage=row.branch.stage or None,
                    manner=row.branch.manner,
                    rank=row.rank,
                    words=row.words,
                    untrusted=query_text(asked[i][row.qid]),
                )
                for i, row in told
            ],
            said=[
                *losses.sentences,
                *losses.mistakes,
                "lost: by config and branch, in pipeline order; why(query, memory_id) says what would return one",
            ],
            notes=[*noted, *losses.remarks],
            **counts,
        )

    def memory(
        self,
        context: Context,
        memory_id: FollowedId = "",
        query_set: QuerySet = "all",
        config: ConfigName = "",
        changes: Changes = None,
        cutoff: OwnCutoff = 0,
        queries: Queries = 0,
        seconds: Seconds = 40,
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> UsedMemory:
        """One memory across judged queries: wanted, returned, returned although judged irrelevant, lost where. Without an id: the hubs."""
        chosen, allowance = self._served.config(config, changes), Allowance(seconds, context)
        k = cutoff or target_rank(chosen)
        if memory_id:
            self._served.store.memory(memory_id)
        with collect_warnings() as noted:
            try:
                with self._served.measuring(seconds):
                    evidence = self._served.evidence(query_set, chosen, queries, allowance)
            except Cancelled:
                return UsedMemory(state="searching", config=chosen.name, cutoff=k, **unfinished(allowance))
        chosen = self._served.measured_config(evidence, chosen, config or changes)
        uses = memory_uses(
            evidence.evidence.queries,
            evidence.evidence.evidences,
            agreed_grades(evidence.judgments),
            chosen,
            evidence.relevant_from,
            k=k,
            followed=(memory_id,) if memory_id else (),
        )
        hubs = [] if memory_id else uses.hubs()
        rows, counts = page(uses.rows.get(memory_id, ()) if memory_id else (), offset, limit)
        shown, hub_counts = page(hubs, offset, limit)
        return UsedMemory(
            state="counted",
            config=chosen.name,
            cutoff=k,
            said=[uses.sentence(memory_id)] if memory_id else [uses.hubs_sentence],
            memories=[
                UseCounts(
                    memory_id=use.memory_id,
                    wanted=use.wanted,
                    found=use.found,
                    returned=use.returned,
                    returned_irrelevant=use.irrelevant,
                )
                for use in ([uses.of(memory_id)] if memory_id else shown)
            ],
            rows=[
                UsingQuery(
                    qid=row.query.qid,
                    status=row.status,
                    grade=row.grade,
                    rank=row.rank,
                    stage=row.branch.stage or None if row.branch else None,
                    what=row.words,
                    as_of=moment(row.query),
                    untrusted=query_text(row.query),
                )
                for row in rows
            ],
            notes=noted,
            **(counts if memory_id else hub_counts),
        )
