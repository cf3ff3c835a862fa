"""Configs measured and compared on judged queries.

Gathering some hundred queries takes minutes, and a client waits about one. So a call works for `seconds`, saves what it gathered in the
store's evidence cache, and reports its progress; the next call with the same arguments resumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

from anyio import from_thread
from mcp.server.mcpserver import Context
from pydantic import Field

from cems_workbench.api.measures import ComparisonReport, EvaluationReport, compare, evaluate
from cems_workbench.api.results import collect_warnings
from cems_workbench.errors import InputError
from cems_workbench.evaluation.comparison import BETTER, LEVEL, WORSE, verdict
from cems_workbench.evaluation.evaluate import number, stale_lines
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.losses import in_words
from cems_workbench.evaluation.memory_use import memory_uses
from cems_workbench.jobs.catalogue import named
from cems_workbench.jobs.evaluation import evidence_of, measured_losses
from cems_workbench.jobs.query_set_evidence import PROGRESS_LABEL
from cems_workbench.mcp.arguments import (
    Changes,
    ConfigName,
    Cutoff,
    FollowedId,
    Limit,
    Measures,
    Offset,
    Queries,
    QuerySet,
    Seconds,
)
from cems_workbench.mcp.responses import TITLE, UNTRUSTED, Paged, Reply, Text, cut, page, rounded
from cems_workbench.mcp.served_store import ServedStore
from cems_workbench.progress import Cancelled
from cems_workbench.records import Query

MEASURES = "nDCG@10 hit@5 recall@5"
MAX_MISSING = 3
MAX_QUERY_CHARS = 200
PROGRESS_INTERVAL_S = 1.0


class Searching(Reply):
    """Progress of searching a query set."""

    queries_searched: int
    queries_in_all: int


class Mean(Reply):
    """The mean of a measure, with its 95 % interval."""

    measure: str
    mean: float | None = None
    low: float | None = None
    high: float | None = None


class WorstQuery(Reply):
    """A query with its values, and the relevant memories that it did not return, for `why`."""

    qid: str
    value: float | None = None
    type: str | None = None
    as_of: str | None = None
    not_returned: tuple[str, ...] = ()
    untrusted: Text


class Evaluated(Paged):
    """The means of a config, and its worst queries by the first measure; or the progress so far."""

    state: Literal["measured", "searching"]
    searching: Searching | None = None
    config: str
    queries: int | None = None
    means: tuple[Mean, ...] = ()
    by_type: dict[str, dict[str, float | None]] = Field(default_factory=dict)
    worst: tuple[WorstQuery, ...] = ()
    said: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted_note: str = UNTRUSTED


class MeasureDifference(Reply):
    """A measure of the changed config against the baseline: 95 % interval of the difference, p of a paired randomisation test."""

    measure: str
    baseline: float | None = None
    value: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    better: int
    worse: int
    same: int


class ChangedQuery(Reply):
    """A query whose value of the first measure changed."""

    qid: str
    baseline: float | None = None
    value: float | None = None
    type: str | None = None
    as_of: str | None = None
    untrusted: Text


class Compared(Paged):
    """Effect of changes on every judged query: the verdict, by measure, and the queries that changed most; or the progress so far."""

    state: Literal["measured", "searching"]
    searching: Searching | None = None
    baseline: str
    compared: str
    changes: dict[str, Any] = Field(default_factory=dict)
    verdict: Literal["pass", "fail", "cannot tell"] | None = None
    queries: int | None = None
    differences: tuple[MeasureDifference, ...] = ()
    changed: tuple[ChangedQuery, ...] = ()
    said: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted_note: str = UNTRUSTED


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


@dataclass
class Allowance:
    """Progress of work with a time limit: reports to the client, and cancels at the limit.

    The time counts from the first query, so that each call makes progress, however busy the machine is.
    """

    seconds: int
    context: Context
    done: int = 0
    total: int = 0
    _ends: float | None = None
    _told: float = 0.0

    def __call__(self, label: str, done: int, total: int) -> None:
        """Count a step. Raises Cancelled at the time limit, or if the client cancelled the call."""
        if label != PROGRESS_LABEL:
            return
        self.done, self.total, now = done, total, monotonic()
        self._ends = now + self.seconds if self._ends is None else self._ends
        from_thread.check_cancelled()
        if now > self._told + PROGRESS_INTERVAL_S:
            self._told = now
            from_thread.run(self.context.report_progress, done, total, label)
        if now > self._ends and done < total:
            raise Cancelled


class MeasuringTools:
    """`evaluate`, `compare` and `losses` of a served store."""

    def __init__(self, served: ServedStore) -> None:
        self._served = served

    def evaluate(
        self,
        context: Context,
        query_set: QuerySet = "all",
        config: ConfigName = "",
        changes: Changes = None,
        measures: Measures = MEASURES,
        queries: Queries = 0,
        seconds: Seconds = 40,
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> Evaluated:
        """Evaluate a config on judged queries: measures with intervals, and the worst queries with what they miss."""
        chosen, allowance = self._served.config(config, changes), Allowance(seconds, context)
        with collect_warnings() as noted:
            try:
                with self._served.measuring(seconds):
                    evidence = self._served.evidence(query_set, chosen, queries, allowance)
            except Cancelled:
                return Evaluated(state="searching", config=chosen.name, **_unfinished(allowance))
            report = evaluate(evidence, chosen, measures or MEASURES)
        values = report.evaluation.values[:, 0]
        order = sorted(
            (i for i, value in enumerate(values) if number(value) is not None),
            key=lambda i: (values[i], report.evaluation.qids[i]),
        )
        rows, counts = page(order, offset, limit)
        return Evaluated(
            state="measured",
            config=report.config.name,
            queries=len(report.evaluation.qids),
            means=[
                Mean(measure=str(row.measure), mean=rounded(row.mean), low=rounded(row.low), high=rounded(row.high))
                for row in report.evaluation.summaries
            ],
            by_type=_by_type(report),
            worst=[_worst(report, i) for i in rows],
            said=[
                f"worst: by {report.evaluation.measures[0]}, the lowest first; not_returned: relevant memories to pass to why"
            ],
            notes=[*noted, report.evaluation.relevance, *stale_lines([report.evaluation]), *report.evaluation.remarks],
            **counts,
        )

    def compare(
        self,
        context: Context,
        query_set: QuerySet = "all",
        config: ConfigName = "",
        changes: Changes = None,
        against: ConfigName = "",
        measures: Measures = MEASURES,
        queries: Queries = 0,
        seconds: Seconds = 40,
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> Compared:
        """Compare on all judged queries: `config` with `changes` against the config `against`, by default `config` unchanged."""
        compared = self._served.config(config, changes)
        baseline = self._served.config(against or config)
        if compared == baseline:
            raise InputError("changes: nothing to compare; name changes, or another config as against")
        if compared.name == baseline.name:
            compared = named(f"{baseline.name} with changes", compared)
        allowance = Allowance(seconds, context)
        with collect_warnings() as noted:
            try:
                with self._served.measuring(seconds):
                    # One after the other: the second reuses what the first gathered.
                    found = [
                        self._served.evidence(query_set, each, queries, allowance) for each in (baseline, compared)
                    ]
            except Cancelled:
                return Compared(
                    state="searching", baseline=baseline.name, compared=compared.name, **_unfinished(allowance)
                )
            reports = [
                evaluate(each, config, measures or MEASURES)
                for each, config in zip(found, (baseline, compared), strict=True)
            ]
            report = compare(*reports)
        first, decided = str(report.comparison.evaluations[0].measures[0]), report.verdict()
        asked = {query.qid: query for query in reports[0].measured.batch.queries}
        rows, counts = page(report.changed(first).rows, offset, limit)
        return Compared(
            state="measured",
            baseline=report.baseline,
            changes=changes or {},
            compared=report.comparison.compared[0].name,
            queries=len(report.comparison.evaluations[0].qids),
            differences=_differences(report),
            changed=[
                ChangedQuery(
                    qid=qid,
                    type=kind,
                    baseline=rounded(was),
                    value=rounded(now),
                    as_of=_moment(asked[qid]),
                    untrusted=_query_text(asked[qid]),
                )
                for qid, _, kind, _, was, now, _ in rows
            ],
            verdict=decided.kind,
            said=[decided.sentence, _significant(report), f"changed: by {first}, the largest differences first"],
            notes=[*noted, *report.notes],
            **counts,
        )

    def memory(
        self,
        context: Context,
        memory_id: FollowedId = "",
        query_set: QuerySet = "all",
        config: ConfigName = "",
        changes: Changes = None,
        cutoff: Cutoff = 10,
        queries: Queries = 0,
        seconds: Seconds = 40,
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> UsedMemory:
        """One memory across judged queries: wanted, returned, returned although judged irrelevant, lost where. Without an id: the hubs."""
        chosen, allowance = self._served.config(config, changes), Allowance(seconds, context)
        if memory_id:
            self._served.store.memory(memory_id)
        with collect_warnings() as noted:
            try:
                with self._served.measuring(seconds):
                    evidence = self._served.evidence(query_set, chosen, queries, allowance)
            except Cancelled:
                return UsedMemory(state="searching", config=chosen.name, cutoff=cutoff, **_unfinished(allowance))
        uses = memory_uses(
            evidence.evidence.queries,
            evidence.evidence.evidences,
            agreed_grades(evidence.judgments),
            chosen,
            evidence.relevant_from,
            k=cutoff,
            followed=(memory_id,) if memory_id else (),
        )
        hubs = [] if memory_id else uses.hubs()
        rows, counts = page(uses.rows.get(memory_id, ()) if memory_id else (), offset, limit)
        shown, hub_counts = page(hubs, offset, limit)
        return UsedMemory(
            state="counted",
            config=chosen.name,
            cutoff=cutoff,
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
                    as_of=_moment(row.query),
                    untrusted=_query_text(row.query),
                )
                for row in rows
            ],
            notes=noted,
            **(counts if memory_id else hub_counts),
        )

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
                return Lost(state="searching", configs=names, cutoff=cutoff, **_unfinished(allowance))
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
                    untrusted=_query_text(asked[i][row.qid]),
                )
                for i, row in told
            ],
            said=[
                *losses.sentences,
                "lost: by config and branch, in pipeline order; why(query, memory_id) says what would return one",
            ],
            notes=[*noted, *losses.remarks],
            **counts,
        )


def _unfinished(allowance: Allowance) -> dict[str, object]:
    left = allowance.total - allowance.done
    if not allowance.total:
        return {"said": ["Another call is still searching this store; call again with the same arguments."]}
    return {
        "searching": Searching(queries_searched=allowance.done, queries_in_all=allowance.total),
        "said": [
            f"{left} of {allowance.total} queries are not searched yet; progress is saved. Call again with the same arguments to resume, "
            "or with `queries` for a sample."
        ],
    }


def _by_type(report: EvaluationReport) -> dict[str, dict[str, float | None]]:
    """The number of queries of each type and their mean of the first measure; empty without types."""
    kinds, first = report.evaluation.by_type(), str(report.evaluation.measures[0])
    if len(kinds) < 2:
        return {}
    return {kind: {"queries": row["queries"], first: rounded(row[first])} for kind, row in kinds.items()}


def _worst(report: EvaluationReport, i: int) -> WorstQuery:
    found = report.evaluation
    query, grades = report.measured.batch.queries[i], report.measured.batch.grades[i]
    returned = set(found.results[i])
    relevant = sorted(
        (key for key, grade in grades.items() if grade >= found.relevant_from), key=lambda key: (-grades[key], key)
    )
    return WorstQuery(
        qid=found.qids[i],
        value=rounded(found.values[i, 0]),
        type=found.types[i] or None,
        as_of=_moment(query),
        not_returned=[key for key in relevant if key not in returned][:MAX_MISSING],
        untrusted=_query_text(query),
    )


def _moment(query: Query) -> str | None:
    return None if query.as_of is None else query.as_of.isoformat()


def _query_text(query: Query) -> Text:
    """The arguments of `why`: the query's text and project."""
    return Text(text=cut(query.query, MAX_QUERY_CHARS), project=query.project and cut(query.project, TITLE))


def _differences(report: ComparisonReport) -> list[MeasureDifference]:
    return [
        MeasureDifference(
            measure=str(row.measure),
            baseline=rounded(row.baseline),
            value=rounded(row.value),
            difference=rounded(row.difference),
            low=rounded(row.low),
            high=rounded(row.high),
            p=rounded(row.p_holm),
            better=len(row.wins),
            worse=len(row.losses),
            same=row.ties,
        )
        for row in report.comparison.compared[0].differences
    ]


def _significant(report: ComparisonReport) -> str:
    """The significantly better or worse measures, in a sentence, at the level of p that every table marks."""
    sure: dict[str, list[str]] = {BETTER: [], WORSE: []}
    for row in report.comparison.compared[0].differences:
        sure.get(verdict(row), []).append(str(row.measure))
    if not any(sure.values()):
        return f"No measure is significantly better or worse: p, after Holm, is {LEVEL:g} or more for each."
    parts = [f"{word} by {', '.join(sure[up])}" for up, word in ((BETTER, "better"), (WORSE, "worse")) if sure[up]]
    return f"Surely {' and '.join(parts)}: p, after Holm, is below {LEVEL:g}."
