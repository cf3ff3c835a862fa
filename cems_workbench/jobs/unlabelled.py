"""Tuning without judgments on the queries of a store: gathered, scored by a reranker, searched, and compared with judgments.

`unlabelled_selection` selects the queries of a set, judged or not, or a sample of them. `gather_reference` gathers their evidence and
lets a reranker read the head of every list, so that each list is measured on its own hits too. `jobs.tuning.unlabelled_data` turns its
order into grades, and `jobs.tuning` searches. `by_judgments` then measures the proposal by the available judgments, and compares it with
a search on judgments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import missing_score_lines
from cems_workbench.jobs import tuning
from cems_workbench.jobs.evaluation import LabelledEvidence
from cems_workbench.jobs.factory import Cache, uncached
from cems_workbench.jobs.query_set_evidence import QuerySelection, gather_evidence, read_evidence, sample_queries
from cems_workbench.jobs.scoring import score_evidence
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.progress import Progress, silent
from cems_workbench.tuning import unlabelled
from cems_workbench.tuning.holdout import Gain, gain
from cems_workbench.tuning.objective import parse_goal
from cems_workbench.tuning.scorer import BatchScorer, Score
from cems_workbench.tuning.space import replaced
from cems_workbench.tuning.tune import WatchFactory, unwatched

if TYPE_CHECKING:
    from cems_workbench.store import Store

MAX_QUERIES = 200
"""Maximum number of queries of a set; a hundred distinguish weights well enough (benchmarks/RESULTS/unlabelled.md)."""
RERANKED_PER_LIST = 20
"""Hits of each list that the reranker reads, in addition to those under the config itself."""
PACKAGED_RERANKER = {"rerank.backend": "cross_encoder", "rerank.model": "workbench/minilm-judge"}
"""The fallback for a config without a suitable reranker."""


def unlabelled_selection(query_set: str, store: Store, only_project: bool = False) -> QuerySelection:
    """The queries of a set of the store, judged or not; of a large set a fixed random sample of `MAX_QUERIES`."""
    queries = sample_queries(store.query_sets.queries(query_set), MAX_QUERIES, seed=0)
    return QuerySelection(query_set, tuple(queries), only_project)


def with_reference_reranker(config: PipelineConfig) -> PipelineConfig:
    """The config with the reranker whose order replaces judgments: its own, or the packaged one if that is unsuitable."""
    return config if unlabelled.has_reference_reranker(config) else with_values(config, PACKAGED_RERANKER)


def gather_reference(
    config: PipelineConfig, selection: QuerySelection, resources: Resources, progress: Progress = silent
) -> None:
    """Gather the evidence of a config, or resume, and let the reranker read the head of its ranking and of each of its
    lists. Raises as `gather_evidence` and `score_evidence` do."""
    asking = with_values(with_reference_reranker(config), {"rerank.expected_misses": None})
    if read_evidence(config, selection, resources) is None:
        gather_evidence(config, selection, resources.store.judgments.read(), resources, progress)
    evidence = read_evidence(config, selection, resources)
    if evidence is None:
        raise InputError(f"{config.name}: its evidence could not be gathered")
    heads = [_head_of(asking, name) for name in unlabelled.candidate_lists(config)]
    score_evidence(evidence, [asking, *heads], resources, progress)


def store_data(
    config: PipelineConfig, selection: QuerySelection, resources: Resources, cache: Cache = uncached
) -> tuning.TuningData | None:
    """The data of a search without judgments; None if evidence must be gathered first, or a query has no score of the
    reranker. Raises InputError for damaged evidence."""
    evidence = read_evidence(config, selection, resources, cache)
    if evidence is None:
        return None
    key = model_key(with_reference_reranker(config).rerank)
    found = [one for one in evidence.evidences.values() if one.memories]
    if not found or any(not one.model_scores.get(key) for one in found):
        return None
    return tuning.unlabelled_data(config, selection.query_set, evidence, cache)


def _head_of(config: PipelineConfig, source: str) -> PipelineConfig:
    """The config with one list, whose head its reranker reads."""
    reading = {"rerank.backend": config.rerank.backend, "rerank.depth": RERANKED_PER_LIST, "rerank.skip_if_few": False}
    reading |= {"rerank.expected_misses": None}
    return replaced(unlabelled.with_one_list(config, source), reading | {"name": f"{config.name}, {source} list"})


def trust_in_lists(data: tuning.TuningData, measure: str = "nDCG@10", seed: int = 0) -> Sequence[unlabelled.ListTrust]:
    """The figures of each list of the baseline without judgments."""
    return unlabelled.list_trust(data.batch, data.baseline, data.stands_in, parse_goal([measure]).objectives[0], seed)


def by_judgments(
    result: tuning.SearchResult,
    labelled: LabelledEvidence,
    settings: tuning.SearchSettings,
    relevant_from: int = 1,
    watch_for: WatchFactory = lambda name: unwatched,
) -> tuning.SearchResult:
    """The result with the gains of its proposal by judgments, compared with a search on judgments. Queries that a
    labelled search with these settings would seal stay sealed. Raises InputError for too few judged queries;
    `Cancelled` of a watch passes through."""
    planned = result.planned
    asked, baseline = planned.plan.goal, planned.plan.space.baseline
    goal = parse_goal([str(replace(each, grade=1)) for each in asked.objectives], grade=relevant_from)
    data = tuning.TuningData(baseline, planned.data.query_set, labelled, relevant_from, before_reranker=True)
    queries = tuning.scored_queries(data, goal.measures, settings.seed)
    if not queries.batch.queries:
        raise InputError("none of its queries has a memory that was judged relevant")
    found = tuning.run_search(tuning.plan_search(data, queries, planned.plan.space, goal, settings), watch_for)
    if found.tuned.validation is None:
        raise InputError("the search with judgments was stopped before it was cross-validated")
    rows, direction = found.planned.plan.split.open, goal.objectives[0].direction

    def gained(config: PipelineConfig, score: Score) -> Gain:
        return gain(score(baseline, rows)[:, 0], score(config, rows)[:, 0], settings.seed, direction)

    whole = BatchScorer(queries.batch, goal.measures, settings.seed)
    configs = [baseline, *([] if result.tuned.kept else [result.tuned.config])]
    space, proposal = found.planned.plan.space, found.tuned.proposal
    values = {axis.path: value for axis, value in zip(space.axes, proposal.values, strict=True)}
    own, as_ranked = gained(result.tuned.config, queries), gained(result.tuned.config, whole)
    hindsight, validation = gained(found.tuned.config, queries), found.tuned.validation
    lacking = missing_score_lines((config.name, queries.batch.rankings(config).needs) for config in configs)
    name = planned.data.query_set
    judged = tuning.ByJudgments(name, own, as_ranked, validation, hindsight, values, lacking)
    return replace(result, by_judgments=judged)
