"""A batch of labelled queries replays to what each query gives alone, under every config."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import configs, evidences

from cems_workbench.evaluation import batch as batch_module
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.metrics import graded, standard_measures
from cems_workbench.pipeline import replay
from cems_workbench.records import Query


@given(st.lists(evidences(), min_size=1, max_size=5), configs(), st.integers(1, 3))
def test_a_batch_gives_the_results_scores_and_measures_of_single_replays(found, config, block):
    queries = [Query(f"q{i}", one.query or "empty") for i, one in enumerate(found)]
    grades = {f"q{i}": {"m00": i % 4, "m01": 1, "Z": 0, "elsewhere": 2} for i in range(len(found))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "BLOCK_QUERIES", block)
        batch = LabelledBatch(queries, {query.qid: one for query, one in zip(queries, found, strict=True)}, grades)
        rankings = batch.rankings(config)
    alone = [replay(one, config) for one in found]
    expected = [[row.memory_id for row in trace.results] for trace in alone]
    assert batch.result_ids(rankings) == expected
    for q, trace in enumerate(alone):
        scores = [row.score for row in trace.results]
        assert rankings.score[q, : len(scores)].tolist() == pytest.approx(scores, abs=1e-9)
    measures = standard_measures()
    many = evaluate(batch, config, measures).values
    for m, measure in enumerate(measures):
        single = measure.values(graded(expected, [grades[query.qid] for query in queries]))
        assert many[:, m].tolist() == pytest.approx(single.tolist(), abs=1e-9, nan_ok=True)
    unscored = sum(len({need.stage for need in trace.stage_needs}) for trace in alone)
    assert sum(rankings.needs.values()) == unscored
