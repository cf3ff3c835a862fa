"""Configs measured and compared on judged queries."""

from __future__ import annotations

from typing import Any, Literal

from mcp.server.mcpserver import Context
from pydantic import Field

from cems_workbench.api.measures import ComparisonReport, EvaluationReport, compare, evaluate
from cems_workbench.api.results import collect_warnings
from cems_workbench.errors import InputError
from cems_workbench.evaluation.comparison import BETTER, LEVEL, WORSE, significance
from cems_workbench.evaluation.evaluate import number, stale_lines
from cems_workbench.jobs.catalogue import named
from cems_workbench.mcp.arguments import (
    Changes,
    ConfigName,
    Limit,
    Measures,
    Offset,
    Queries,
    QuerySet,
    Seconds,
)
from cems_workbench.mcp.responses import UNTRUSTED, Paged, Reply, Text, moment, page, query_text, rounded
from cems_workbench.mcp.served_store import ServedStore
from cems_workbench.mcp.tools.allowance import Allowance, Searching, unfinished
from cems_workbench.progress import Cancelled

MEASURES = "nDCG@10 hit@5 recall@5"
MAX_MISSING = 3


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


class MeasuringTools:
    """`evaluate` and `compare` of a served store."""

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
                return Evaluated(state="searching", config=chosen.name, **unfinished(allowance))
            chosen = self._served.measured_config(evidence, chosen, config or changes)
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
                    state="searching", baseline=baseline.name, compared=compared.name, **unfinished(allowance)
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
                    as_of=moment(asked[qid]),
                    untrusted=query_text(asked[qid]),
                )
                for qid, _, kind, _, was, now, _ in rows
            ],
            verdict=decided.kind,
            said=[decided.sentence, _significant(report), f"changed: by {first}, the largest differences first"],
            notes=[*noted, *report.notes],
            **counts,
        )


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
        as_of=moment(query),
        not_returned=[key for key in relevant if key not in returned][:MAX_MISSING],
        untrusted=query_text(query),
    )


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
        sure.get(significance(row), []).append(str(row.measure))
    if not any(sure.values()):
        return f"No measure is significantly better or worse: p, after Holm, is {LEVEL:g} or more for each."
    parts = [f"{word} by {', '.join(sure[up])}" for up, word in ((BETTER, "better"), (WORSE, "worse")) if sure[up]]
    return f"Surely {' and '.join(parts)}: p, after Holm, is below {LEVEL:g}."
