"""Wins and losses of a proposal against its baseline, per query."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.synthetic_queries import evidences, fusion_only, planted
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.records import Query
from cems_workbench.tuning.folds import split
from cems_workbench.tuning.objective import Goal
from cems_workbench.tuning.scorer import BatchScorer
from cems_workbench.tuning.space import SearchSpace, parse_axis
from cems_workbench.tuning.tune import Plan, tune
from cems_workbench.tuning.wins import QueryChange, Tally, tally, tally_by_type, wins_and_losses

NDCG = parse_measure("nDCG@10")


def change(qid: str, baseline: float, proposal: float, kind: str | None = None) -> QueryChange:
    return QueryChange(qid, f"about {qid}", None, kind, baseline, proposal)


def test_a_tally_counts_won_lost_and_same_and_averages_over_all() -> None:
    changes = [
        change("a", 0.2, 0.5, "temporal"),
        change("b", 0.5, 0.4),
        change("c", 1.0, 1.0),
        change("d", 0.1, 0.1 + 1e-12),
    ]
    assert tally(changes) == Tally(1, 1, 2, pytest.approx(0.05))
    assert list(tally_by_type(changes)) == ["temporal", None]
    assert tally_by_type(changes)["temporal"] == Tally(1, 0, 0, pytest.approx(0.3))
    assert tally([]) == Tally(0, 0, 0, 0.0)


def test_every_open_query_is_there_with_its_scores_the_greatest_gain_first_and_no_sealed_one() -> None:
    made = evidences(60, lists=2, hits=12)
    plain = planted(made, fusion_only({"lists.vector.weight": 2.5, "fusion.score_blend": 0.0}), noise=0.2)
    queries = [
        Query(q.qid, q.query, f"p{i % 6}", None, "even" if i % 2 == 0 else None) for i, q in enumerate(plain.queries)
    ]
    batch = LabelledBatch(
        queries, dict(zip(plain.qids, plain.evidences, strict=True)), dict(zip(plain.qids, plain.grades, strict=True))
    )
    parts = split([query.project or "" for query in queries], folds=3, seed=2)
    axes = [parse_axis("lists.vector.weight=0.5:2.5:1.0"), parse_axis("fusion.score_blend=0:0.5:0.5")]
    tuned = tune(
        Plan(SearchSpace.of(fusion_only(), axes), Goal((NDCG,)), parts, batch.types),
        score := BatchScorer(batch, [NDCG]),
    )
    changes = wins_and_losses(tuned, score, batch)
    assert {one.qid for one in changes} == {batch.qids[row] for row in parts.open}
    differences = [one.difference for one in changes]
    assert differences == sorted(differences, reverse=True) and differences[0] > 0
    first = changes[0]
    at = batch.qids.index(first.qid)
    for config, value in ((tuned.plan.space.baseline, first.baseline), (tuned.config, first.proposal)):
        assert NDCG.values(batch.rankings(config).graded)[at] == value
    assert first.query == queries[at].query and first.type == queries[at].type and first.outcome == "won"
    assert tally(changes).difference == pytest.approx(
        np.mean(tuned.proposal.scores[:, 0]) - np.mean(tuned.search.baseline.scores[:, 0])
    )
