"""Judged queries: configs measured and compared, and where relevant memories are lost, all of them or one across all queries.

Gathering some hundred queries takes minutes, and a client waits about one. So a call works for `seconds`, saves what it gathered in the
store's evidence cache, and reports its progress; the next call with the same arguments resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TypeVar

from anyio import from_thread
from mcp.server.mcpserver import Context
from pydantic import Field

from cems_workbench.analysis import swaps
from cems_workbench.analysis.losses_of_set import in_words
from cems_workbench.analysis.memory_use import memory_uses
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.analysis.vector_change import VectorChange
from cems_workbench.api import measures
from cems_workbench.api.evidence import LoadedEvidence
from cems_workbench.api.memories import what_if_vectors
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.comparison import BETTER, LEVEL, WORSE, significance
from cems_workbench.evaluation.evaluate import number, stale_lines
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.jobs.access import allowed_path
from cems_workbench.jobs.catalogue import named
from cems_workbench.jobs.compare_stores import AT_IMPORT, Asked, StoresCompared, compare_stores
from cems_workbench.jobs.evaluation import EvaluationReport, evidence_of, measured_losses
from cems_workbench.jobs.memory_use import FEW_MEASURES, MemoryReport
from cems_workbench.jobs.query_set_evidence import PROGRESS_LABEL
from cems_workbench.mcp import protocol
from cems_workbench.progress import Cancelled

MAX_MISSING = 3
Found = TypeVar("Found")
PROGRESS_INTERVAL_S = 1.0
NOT_SAVED = "The time is up, and nothing of it is saved: call again with more seconds or a smaller query set."


class OfSet(protocol.Page, protocol.WithConfig):
    """Arguments of a tool that measures judged queries."""

    query_set: str = Field(
        "all", min_length=1, max_length=protocol.MAX_NAME, description="Or evidence file."
    )
    queries: int = Field(0, ge=0, le=protocol.MAX_NUMBER, description="Sample size; 0: all.")
    seconds: int = Field(40, ge=1, le=600, description="Time limit.")


class Evaluate(OfSet):
    """Arguments of `evaluate`."""

    measures: protocol.Name = FEW_MEASURES


def evaluate(served: protocol.ServedStore, asked: Evaluate, context: Context) -> protocol.Reply:
    """Measures of a config on judged queries, with 95 % intervals; the worst queries, lowest first. not_returned: for why.
    "searching": call again."""
    chosen = served.config(asked.config, asked.changes)
    found = _gathered(served, asked, [chosen], context)
    if not isinstance(found, list):
        return protocol.reply(state="searching", config=chosen.name, **found)
    chosen = served.measured_config(found[0], chosen, asked.config or asked.changes)
    report = measures.evaluate(found[0], chosen, asked.measures or FEW_MEASURES)
    evaluation = report.evaluation
    values = evaluation.values[:, 0]
    measured = [i for i, value in enumerate(values) if number(value) is not None]
    rows, counts = protocol.page(sorted(measured, key=lambda i: (values[i], evaluation.qids[i])), asked)
    return protocol.reply(
        **counts,
        state="measured",
        config=report.config.name,
        queries=len(evaluation.qids),
        means=protocol.rows_of(evaluation.table),
        by_type=protocol.rows_of(report.by_type) if len(report.by_type) > 1 else (),
        worst=[_worst(report, i) for i in rows],
        said=[f"worst: by {evaluation.measures[0]}, the lowest first; not_returned: relevant memories to pass to why"],
        notes=[evaluation.relevance, *stale_lines([evaluation]), *evaluation.remarks],
    )


def _worst(report: EvaluationReport, i: int) -> protocol.Reply:
    found = report.evaluation
    query, grades = report.batch.queries[i], report.batch.grades[i]
    relevant = {key for key, grade in grades.items() if grade >= found.relevant_from}
    missing = sorted(relevant.difference(found.results[i]), key=lambda key: (-grades[key], key))[:MAX_MISSING]
    return protocol.query_row(query, value=found.values[i, 0], type=found.types[i], not_returned=missing)


class Compare(OfSet):
    """Arguments of `compare`."""

    against: protocol.Name = Field("", description="Baseline; empty: config.")
    measures: protocol.Name = FEW_MEASURES
    since_import: int = Field(0, ge=0, le=protocol.MAX_NUMBER, description="After this import, against now.")
    embedder: protocol.Name = Field("", description="Estimated.")
    chunks: protocol.Name = Field("", description="Estimated.")


def compare(served: protocol.ServedStore, asked: Compare, context: Context) -> protocol.Reply:
    """config with changes against a baseline on judged queries: verdict (pass, fail, cannot tell), differences with
    95 % interval and p, the queries that changed most. "searching": call again."""
    compared = served.config(asked.config, asked.changes)
    if asked.since_import:
        return _since_import(served, asked, compared, context)
    if asked.embedder or asked.chunks:
        return _estimated(served, asked, compared, context)
    baseline = served.config(asked.against or asked.config)
    if compared == baseline:
        raise InputError("changes: nothing to compare; name changes, or another config as against")
    compared = _renamed(compared, baseline)
    configs = [baseline, compared]
    # One after the other: the second reuses what the first gathered.
    found = _gathered(served, asked, configs, context)
    if not isinstance(found, list):
        return protocol.reply(state="searching", baseline=baseline.name, compared=compared.name, **found)
    names, both = asked.measures or FEW_MEASURES, zip(found, configs, strict=True)
    report = measures.compare(*(measures.evaluate(each, config, names) for each, config in both))
    first, decided = str(report.comparison.evaluations[0].measures[0]), report.verdict()
    changed = report.changed(first)
    rows, counts = protocol.page(changed.rows, asked)
    return protocol.reply(
        **counts,
        state="measured",
        baseline=report.baseline,
        compared=report.comparison.compared[0].name,
        changes=asked.changes,
        verdict=decided.kind,
        queries=len(report.comparison.evaluations[0].qids),
        differences=[
            protocol.picked(row, "baseline value difference low high", measure=str(row.measure), p=row.p_holm)
            | protocol.reply(better=len(row.wins), worse=len(row.losses), same=row.ties)
            for row in report.comparison.compared[0].differences
        ],
        changed=protocol.rows_of(replace(changed, rows=tuple(rows)), "config"),
        said=[decided.sentence, _significant(report), f"changed: by {first}, the largest differences first"],
        notes=report.notes,
    )


def _estimated(served: protocol.ServedStore, asked: Compare, config: PipelineConfig, context: Context) -> protocol.Reply:
    """Another embedder or chunk rule, from a part of its vectors."""
    if Path(asked.embedder).exists():
        allowed_path(asked.embedder, served.settings)

    def work(allowance: Allowance) -> VectorChange:
        return what_if_vectors(
            served.store,
            embedder=asked.embedder or None,
            chunks=asked.chunks or None,
            config=config,
            query_set=asked.query_set,
            progress=lambda _, done, total: allowance(PROGRESS_LABEL, done, total),
        )

    found = within_time(served, asked.seconds, context, work)
    if not isinstance(found, VectorChange):
        return protocol.reply(state="searching", said=[NOT_SAVED])
    return protocol.shown(found, asked, state="estimated", config=config.name)


def _since_import(served: protocol.ServedStore, asked: Compare, config: PipelineConfig, context: Context) -> protocol.Reply:
    """The store against itself as it was after an import: verdict, what differs, and why each query was won or lost."""
    path, of = str(served.resources.store.path), Asked(asked.query_set, asked.measures or FEW_MEASURES)
    states, settings = (f"{path}{AT_IMPORT}{asked.since_import}", path), served.settings
    found = within_time(
        served, asked.seconds, context, lambda allowance: compare_stores(*states, (config, config), settings, of, allowance)
    )
    if not isinstance(found, StoresCompared):
        return protocol.reply(**{**found, "state": "searching", "said": [NOT_SAVED]})
    rows, counts = protocol.page(swaps.in_order(found.changed), asked)
    return protocol.reply(
        **counts,
        state="measured",
        verdict=found.verdicts[0].kind,
        differs=found.difference.counts,
        changed=[protocol.picked(one, "qid query before now", cause=one.cause_words) for one in rows],
        said=found.lines,
        notes=found.notes,
    )


def _significant(report: measures.ComparisonReport) -> str:
    """The significantly better or worse measures, in a sentence, at the level of p that every table marks."""
    sure: dict[str, list[str]] = {BETTER: [], WORSE: []}
    for row in report.comparison.compared[0].differences:
        sure.get(significance(row), []).append(str(row.measure))
    if not any(sure.values()):
        return f"No measure is significantly better or worse: p, after Holm, is {LEVEL:g} or more for each."
    parts = [f"{word} by {', '.join(sure[up])}" for up, word in ((BETTER, "better"), (WORSE, "worse")) if sure[up]]
    return f"Surely {' and '.join(parts)}: p, after Holm, is below {LEVEL:g}."


class Losses(OfSet):
    """Arguments of `losses`."""

    against: protocol.Name = Field("", description="Baseline config.")
    cutoff: int = Field(10, ge=1, le=protocol.MAX_NUMBER, description="Lost below this rank.")


def losses(served: protocol.ServedStore, asked: Losses, context: Context) -> protocol.Reply:
    """Which stage loses the relevant memories of judged queries: branches counts, lost lists them. With against also how many
    config saves and breaks. "searching": call again."""
    configs = [served.config(asked.config, asked.changes)]
    if asked.against:
        configs.insert(0, served.config(asked.against))
        if configs[0] == configs[1]:
            raise InputError("against: nothing to compare; name changes, or another config as against")
        configs[1] = _renamed(configs[1], configs[0])
    names = [one.name for one in configs]
    found = _gathered(served, asked, configs, context)
    if not isinstance(found, list):
        return protocol.reply(state="searching", configs=names, cutoff=asked.cutoff, **found)
    if not asked.against:
        configs = [served.measured_config(found[0], configs[0], asked.config or asked.changes)]
        names = [configs[0].name]
    reports = [measures.evaluate(each, one, FEW_MEASURES) for each, one in zip(found, configs, strict=True)]
    counted = measured_losses(reports, reports[0].evaluation.relevant_from, asked.cutoff, None)
    rows, counts = protocol.page([(i, row) for i, one in enumerate(counted.maps) for row in one.rows], asked)
    queries = {query.qid: query for one in reports for query in one.batch.queries}
    of_config = {
        i: iter(in_words([row for at, row in rows if at == i], config, asked.cutoff, evidence_of(reports[i])))
        for i, config in enumerate(configs)
    }
    told = [(i, next(of_config[i])) for i, _ in rows]
    change = counted.differences[0] if counted.differences else None
    return protocol.reply(
        **counts,
        state="counted",
        configs=names,
        cutoff=asked.cutoff,
        relevant=counted.maps[-1].relevant,
        returned={one.config_name: one.returned for one in counted.maps},
        branches=[
            protocol.picked(
                branch,
                "stage manner",
                words=branch.words(asked.cutoff),
                lost={one.config_name: one.branches.get(branch, 0) for one in counted.maps},
                saved=change and change.saved.get(branch, 0),
                broken=change and change.broken.get(branch, 0),
            )
            for branch in counted.branches
        ],
        lost=[
            protocol.query_row(
                queries[row.qid],
                **protocol.picked(row, "memory_id rank words"),
                **row.branch.to_json(),
                config=names[i],
            )
            for i, row in told
        ],
        said=[
            *counted.sentences,
            *counted.mistakes,
            "lost: by config and branch, in pipeline order; why(query, memory_id) says what would return one",
        ],
        notes=counted.remarks,
    )


class MemoryUse(OfSet):
    """Arguments of `memory`."""

    memory_id: protocol.FollowedId = ""
    cutoff: int = Field(0, ge=0, le=protocol.MAX_NUMBER, description="Lost below it; 0: the config's limit.")


def memory(served: protocol.ServedStore, asked: MemoryUse, context: Context) -> protocol.Reply:
    """One memory across judged queries: how many want, find and return it, or return it although judged irrelevant; where it
    is lost. Without memory_id hubs (returned for many of those) and orphans (for none). "searching": call again."""
    chosen, followed = served.config(asked.config, asked.changes), asked.memory_id
    k = asked.cutoff or target_rank(chosen)
    if followed:
        served.store.memory(followed)
    found = _gathered(served, asked, [chosen], context)
    if not isinstance(found, list):
        return protocol.reply(state="searching", config=chosen.name, cutoff=k, **found)
    evidence = found[0]
    chosen = served.measured_config(evidence, chosen, asked.config or asked.changes)
    read, grades, ids = evidence.evidence, agreed_grades(evidence.judgments), (followed,) if followed else ()
    uses = memory_uses(read.queries, read.evidences, grades, chosen, evidence.relevant_from, k=k, followed=ids)
    report = MemoryReport(asked.query_set, uses, memory_id=followed or None)
    return protocol.shown(report, asked, state="counted", config=chosen.name, cutoff=k)


def _renamed(config: PipelineConfig, baseline: PipelineConfig) -> PipelineConfig:
    return named(f"{baseline.name} with changes", config) if config.name == baseline.name else config


def _gathered(
    served: protocol.ServedStore, asked: OfSet, configs: Sequence[PipelineConfig], context: Context
) -> list[LoadedEvidence] | protocol.Reply:
    """The evidence of each config; or, when the time is up, the progress so far as fields of the reply."""

    def evidence(allowance: Allowance) -> list[LoadedEvidence]:
        return [served.evidence(asked.query_set, each, asked.queries, allowance) for each in configs]

    return within_time(served, asked.seconds, context, evidence)


def within_time(
    served: protocol.ServedStore, seconds: int, context: Context, work: Callable[[Allowance], Found]
) -> Found | protocol.Reply:
    """What work gives that gathers queries; or, when the time is up, the progress so far as fields of the reply."""
    allowance = Allowance(seconds, context)
    try:
        with served.measuring(seconds):
            return work(allowance)
    except Cancelled:
        done, total = allowance.done, allowance.total
    if not total:
        return {"said": ["Another call is still searching this store; call again with the same arguments."]}
    return {
        "searching": {"queries_searched": done, "queries_in_all": total},
        "said": [
            f"{total - done} of {total} queries are not searched yet; progress is saved. Call again with the same arguments to resume, "
            "or with `queries` for a sample."
        ],
    }


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
