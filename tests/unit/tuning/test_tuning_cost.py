"""Candidates sent to the reranker as an objective: counted by replay, per query, and weighed against quality on a Pareto front."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.synthetic_queries import NOW, fusion_only
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.records import Memory, Query
from cems_workbench.tuning.objective import Goal, RerankedCost, parse_goal
from cems_workbench.tuning.optimizer import optimize
from cems_workbench.tuning.scorer import BatchScorer, measurable
from cems_workbench.tuning.space import SearchSpace, parse_axis

SIZES = (3, 6)
"""Candidates of each query."""


def batch() -> LabelledBatch:
    """Two queries; relevant is the last candidate by fusion, which the reranker puts first when it reads it."""
    evidences, grades, queries = {}, {}, []
    for q, size in enumerate(SIZES):
        ids = [f"m{q}{i}" for i in range(size)]
        scores = {key: ModelScore(float(i)) for i, key in enumerate(ids)}
        hits = tuple(Hit(key, 1 - i / 10) for i, key in enumerate(ids))
        evidences[f"q{q}"] = Evidence(
            f"query {q}",
            {key: Memory(key, f"content {key}") for key in ids},
            (Variant(f"query {q}"),),
            (RankedList("vector:0", "vector", 0, hits),),
            NOW,
            model_scores={"cross_encoder": scores},
        )
        grades[f"q{q}"] = {ids[-1]: 1}
        queries.append(Query(f"q{q}", f"query {q}"))
    return LabelledBatch(queries, evidences, grades)


def config(**changes: object) -> PipelineConfig:
    reranking = {
        "rerank.backend": "cross_encoder",
        "rerank.combine": "replace",
        "rerank.raw_scale": "divide_by_10",
        "rerank.depth": 4,
        "rerank.skip_if_few": False,
        "rerank.below_depth": "below",
        "threshold.mode": "none",
    }
    return with_values(
        fusion_only(), {**reranking, **{key.replace("__", "."): value for key, value in changes.items()}}
    )


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        ({}, [3, 4]),
        ({"rerank__depth": None}, [3, 6]),
        ({"rerank__depth": 1}, [1, 1]),
        ({"rerank__score_window": 0.0}, [1, 1]),
        ({"rerank__skip_if_few": True, "assembly__limit": 5}, [0, 4]),
        ({"rerank__skip_if_few": True, "assembly__limit": 6}, [0, 0]),
        ({"rerank__backend": "none"}, [0, 0]),
        ({"lists__vector__depth": 2}, [2, 2]),
    ],
)
def test_what_is_sent_is_what_replay_sends(changes: dict[str, object], sent: list[int]) -> None:
    found = batch().rankings(config(**changes))
    assert found.sent.tolist() == sent and found.reranked == sum(sent)
    score = BatchScorer(batch(), [RerankedCost()])
    assert score(config(**changes), np.array([1, 0]))[:, 0].tolist() == [-float(one) for one in reversed(sent)]


def test_the_front_weighs_quality_against_what_is_sent() -> None:
    goal = parse_goal(["hit@1", "-candidates"])
    made = measurable(batch(), goal.measures)
    space = SearchSpace.of(config(), [parse_axis("rerank.depth=1:6:1")])
    found = optimize(space, BatchScorer(made, goal.measures), goal, np.arange(2), trials=6)
    reached = {trial.values[0]: trial.reached.tolist() for trial in found.trials}
    assert reached == {1: [0.0, -1.0], 2: [0.0, -2.0], 3: [0.5, -3.0], 4: [0.5, -3.5], 5: [0.5, -4.0], 6: [1.0, -4.5]}
    assert sorted(found.trials[i].values[0] for i in found.front) == [1, 3, 6]


def test_the_cost_stands_last_among_the_objectives_and_before_what_only_guards_read() -> None:
    hit, ndcg, recall = map(parse_measure, ("hit@1", "nDCG@10", "recall@10"))
    goal = parse_goal(["hit@1", "reranked", "nDCG@10"], ["recall@10", "hit@1"])
    assert goal.measures == (hit, ndcg, RerankedCost(), recall) and goal.names == ("hit@1", "nDCG@10", "reranked")
    scores = np.array([[1.0, 0.5, -4.0, 0.0], [0.0, 0.5, -2.0, 1.0]])
    assert goal.reached(scores).tolist() == [0.5, 0.5, -3.0]
    assert Goal((hit,)).reached(scores).tolist() == [0.5]
    worse = scores - np.array([0.0, 0.0, 9.0, 0.5])
    assert goal.shortfalls(worse, scores, [None, None]).tolist() == [0.5, 0.0]
