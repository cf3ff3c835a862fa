"""Searches over two weights on a planted query set, small enough for a second."""

from __future__ import annotations

from pathlib import Path

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.jobs.evaluation import labelled_file
from cems_workbench.jobs.tuning import PlannedSearch, SearchSettings, TuningData, plan_search, scored_queries
from cems_workbench.tuning.objective import parse_goal
from cems_workbench.tuning.space import SearchSpace, parse_axis

GRID = ("lists.vector.weight=0.5:2.5:0.5", "fusion.score_blend=0:0.5:0.25")
SETTINGS = SearchSettings("project", folds=3, sealed=0.25, trials=40)


def planned(evidence: Path, *axes: str, settings: SearchSettings = SETTINGS) -> PlannedSearch:
    """A search for a better nDCG@10 than `fusion_only()` has, over the axes, a grid of 15 unless others are named."""
    goal = parse_goal(["nDCG@10"])
    read = read_evidence_file(evidence)
    data = TuningData(fusion_only(), read.header.query_set, labelled_file(read, None))
    queries = scored_queries(data, goal.measures, settings.seed)
    space = SearchSpace.of(data.baseline, [parse_axis(text, read.header.config) for text in axes or GRID])
    return plan_search(data, queries, space, goal, settings)
