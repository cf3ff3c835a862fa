"""Labelling: labels of single queries, and queues of pairs to judge: the pooled results of configs for a query set, without judged pairs.

The evidence of a config is read from its file, or gathered first; ranking is replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.grades import agreed_grades, relevant
from cems_workbench.evaluation.labelling import pooling
from cems_workbench.evaluation.labelling.judge_calibration import judge_name
from cems_workbench.evaluation.labelling.queue import decisive_first, make_queue
from cems_workbench.formats.base.records import derived_id
from cems_workbench.jobs.factory import Cache, uncached
from cems_workbench.jobs.query_grades import stored_query
from cems_workbench.jobs.query_set_evidence import QuerySelection, ensure_evidence, read_evidence
from cems_workbench.jobs.traced_sets import is_external, traced_header
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.judge import scale_of
from cems_workbench.progress import Progress, silent
from cems_workbench.records import HUMAN, WHOLE_STORE, Judgment, Query
from cems_workbench.store import QueueRecord, Store

Evidences = Mapping[str, Mapping[str, Evidence]]
"""Evidence by config and qid."""
TYPED_SET = "typed by hand"
"""The query set for queries that were graded on Inspect and are in no set."""
TYPED_SOURCE = "Inspect"


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """The content and order of a queue: the first `depth` results of configs (by name) for the selected queries.
    `overlap` is the number of people who grade each pair; `leave_out_judged` leaves out pairs that a person has
    judged."""

    name: str
    selection: QuerySelection
    configs: Mapping[str, PipelineConfig]
    depth: int = 10
    strategy: pooling.Strategy = "query"
    overlap: int = 1
    leave_out_judged: bool = True
    seed: int = 0
    ready_made: bool = False
    """Made by the app, for a store without a queue."""


def assemble(plan: QueuePlan, resources: Resources, progress: Progress = silent) -> QueueRecord:
    """Build the queue of a plan; the caller saves it. Raises InputError if there is nothing to judge, and as gathering does."""
    if not plan.configs:
        raise InputError("a queue needs a config whose results are judged")
    if plan.strategy == "decisive" and len(plan.configs) < 2:
        raise InputError("decisive first needs two configs: what could decide between them")
    header = traced_header(resources.store.path, plan.selection.query_set)
    if header is not None:  # what was returned; recorded stages are the same under every config
        own = {header.config.name: header.config}
        plan = replace(plan, configs=own if is_external(header) else own | dict(plan.configs))
    judgments = resources.store.judgments.read()
    begun = datetime.now(UTC)
    evidences: dict[str, Mapping[str, Evidence]] = {}
    rankings: dict[str, pooling.Ranked] = {}
    for name, config in plan.configs.items():
        step = partial(lambda under, _, done, total: progress(under, done, total), name)
        found = ensure_evidence(config, plan.selection, judgments, resources, step, since=begun)
        rankings[name], evidences[name] = _ranked(found.evidences, config, plan.depth), found.evidences
    pairs = _pooled(rankings, plan, judgments)
    if not pairs and plan.leave_out_judged:
        raise InputError("people have judged every result of these configs within this depth")
    settings = {"query_set": plan.selection.query_set, "configs": list(plan.configs), "depth": plan.depth}
    settings |= {"only_project": plan.selection.only_project, "ready_made": plan.ready_made}
    ordered = _ordered(pairs, plan, evidences, judgments)
    return make_queue(plan.name, ordered, plan.strategy, plan.overlap, plan.seed, settings, rankings)


def expected_pairs(plan: QueuePlan, resources: Resources, cache: Cache = uncached) -> tuple[int, bool]:
    """How many pairs the queue of a plan will have, and whether that is exact: otherwise they are at most so many, since
    the evidence of a config must be gathered first, or only pairs that decide are dealt."""
    rankings: dict[str, pooling.Ranked] = {}
    for name, config in plan.configs.items():
        if (found := read_evidence(config, plan.selection, resources, cache)) is None:
            return len(plan.selection.queries) * plan.depth * len(plan.configs), False
        rankings[name] = _ranked(found.evidences, config, plan.depth)
    return len(_pooled(rankings, plan, resources.store.judgments.read())), plan.strategy != "decisive"


def _ranked(evidences: Mapping[str, Evidence], config: PipelineConfig, depth: int) -> pooling.Ranked:
    results = {qid: replay(evidence, config).results for qid, evidence in evidences.items()}
    return {qid: tuple(row.memory_id for row in rows[:depth]) for qid, rows in results.items()}


def _pooled(
    rankings: Mapping[str, pooling.Ranked], plan: QueuePlan, judgments: Sequence[Judgment]
) -> list[pooling.PooledPair]:
    pairs = pooling.pool(rankings, plan.depth)
    return pooling.without_judged(pairs, judgments) if plan.leave_out_judged else pairs


def _ordered(
    pairs: Sequence[pooling.PooledPair], plan: QueuePlan, evidences: Evidences, judgments: Sequence[Judgment]
) -> list[pooling.PooledPair]:
    if plan.strategy == "decisive":
        first, second = list(plan.configs)[:2]
        agreed = agreed_grades(judgments, "human").items()
        grades = {(qid, key): grade for qid, row in agreed for key, grade in row.items()}
        return decisive_first(pairs, first, second, grades)
    if plan.strategy == "uncertain":
        return _uncertain(pairs, evidences, plan.configs)
    if plan.strategy == "query":
        return pooling.query_by_query(pairs, plan.seed)
    return pooling.shuffled(pairs, plan.seed) if plan.strategy == "shuffled" else pooling.top_first(pairs)


def _uncertain(
    pairs: Sequence[pooling.PooledPair], evidences: Evidences, configs: Mapping[str, PipelineConfig]
) -> list[pooling.PooledPair]:
    """Order by the judges' scores in the evidence, each relative to its own threshold, so that several judges can be mixed."""
    doubts: dict[pooling.Pair, float] = {}
    for name, by_query in evidences.items():
        for qid, evidence in by_query.items():
            judge = judge_name(evidence, configs[name])
            if judge is None:
                continue
            threshold = scale_of(evidence.notes, judge, configs[name].judge).threshold
            for key, score in evidence.judge_scores[judge].items():
                if score.good and score.raw is not None:
                    doubts[qid, key] = score.raw - threshold
    if not doubts:
        raise InputError("uncertain first needs a judge: choose configs whose judge is not off")
    return pooling.uncertain_first(pairs, doubts, 0.0)


def add_to_set(request: Request, name: str, store: Store) -> Query:
    """Add a request to a query set, which is created if needed; returns the query. A stored query of the same text,
    project and moment is reused; a new one has an id derived from these. Raises InputError for an invalid name."""
    query = stored_query(request, store)
    if query is None or (query.project, query.as_of) != (request.project, request.as_of):
        moment = "" if request.as_of is None else request.as_of.isoformat()
        qid = derived_id("typed", request.query, request.project or "", moment)
        query = Query(qid, request.query, request.project, request.as_of)
    store.query_sets.add(name, query, TYPED_SOURCE)
    return query


def give_grade(
    store: Store,
    qid: str,
    memory_id: str,
    grade: int,
    reviewer: str,
    *,
    shown: Mapping[str, Any] | None = None,
    note: str | None = None,
) -> None:
    """Save a person's grade of a memory for a query; `shown` is what the person saw. Raises as `Labels.give`."""
    store.labels.give(Judgment(qid, memory_id, grade, reviewer, "human", judged_at=datetime.now(UTC), note=note), shown)


def give_no_answer(
    store: Store, qid: str, reviewer: str, *, at_hand: str, shown: Mapping[str, Any], note: str | None = None
) -> list[str]:
    """Save a person's judgment that the store has no answer to a query, with the memories that this person looked at.
    These are the graded and skipped ones, and the one `at_hand`. Returns memories that people judged relevant
    nevertheless: those grades count. Raises as `Labels.give`."""
    judged = store.judgments.read(qid, HUMAN)
    looked_at = {judgment.memory_id for judgment in judged if judgment.judge == reviewer}
    looked_at |= {mark.memory_id for mark in store.labels.marks() if (mark.qid, mark.judge) == (qid, reviewer)}
    looked_at = (looked_at | {at_hand}) - {WHOLE_STORE}
    judgment = Judgment(qid, WHOLE_STORE, 0, reviewer, HUMAN, judged_at=datetime.now(UTC), note=note)
    store.labels.give(judgment, {**shown, "looked_at": sorted(looked_at)})
    grades = agreed_grades(judged, HUMAN).get(qid, {})
    return sorted(relevant(grades, store.query_sets.relevant_from_of([qid])[qid]))


def own_grade(store: Store, qid: str, memory_id: str, reviewer: str) -> int | None:
    """This person's grade of a memory for a query; None without one."""
    given = store.judgments.read(qid, "human")
    return next((one.grade for one in given if (one.memory_id, one.judge) == (memory_id, reviewer)), None)
