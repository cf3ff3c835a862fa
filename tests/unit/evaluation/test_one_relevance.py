"""One relevance grade and one denominator: Inspect, Evaluate, the comparison of judges and Tune say the same of one config."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cems_workbench.analysis.why import LabelledSet
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import significantly_lower
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.evidence_file import read_evidence_file, replace_relevant_from
from cems_workbench.evaluation.grades import query_statuses
from cems_workbench.evaluation.labelling.judge_calibration import relevance_sources
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.records import DEFAULT_SCALE, GradeScale, Query
from cems_workbench.tuning.objective import parse_goal
from cems_workbench.tuning.scorer import BatchScorer, measurable
from tests.unit.evaluation.sets import AS_LISTED, IDS, OTHER_WAY, evidence, evidence_file


def graded_batch(queries: int = 200) -> LabelledBatch:
    """Queries with lists and grades at random; some have nothing relevant from grade 1, more from 2 and 3."""
    rng = np.random.default_rng(0)
    asked = [Query(f"q{i}", f"query {i}", type="abc"[i % 3]) for i in range(queries)]
    found = {
        one.qid: evidence(one.query, cosines=dict(zip(rng.permutation(list(IDS)), rng.random(8), strict=True)))
        for one in asked
    }
    grades = {
        one.qid: {
            str(key): int(rng.choice(4, p=(0.7, 0.1, 0.1, 0.1))) for key in rng.choice(list(IDS), 3, replace=False)
        }
        for one in asked
    }
    return LabelledBatch(asked, found, grades)


BATCH = graded_batch()


@pytest.mark.parametrize("config", [AS_LISTED, OTHER_WAY])
@pytest.mark.parametrize("grade", [1, 2, 3])
def test_four_screens_have_one_hit_rate_one_ndcg_and_one_denominator(config, grade: int) -> None:  # type: ignore[no-untyped-def]
    hit, ndcg = measures = parse_measures("hit@5 nDCG@10", grade)
    said = evaluate(BATCH, config, measures, with_bounds=False)
    counted = len(said.qids) - len(said.without_relevant)
    assert 0 < counted < len(said.qids)
    assert {summary.queries for summary in said.summaries} == {counted}

    inspect = LabelledSet(
        dict(zip(BATCH.qids, BATCH.evidences, strict=True)),
        dict(zip(BATCH.qids, BATCH.grades, strict=True)),
        dict.fromkeys(BATCH.qids, grade),
    )
    assert inspect.means(config, 5) == pytest.approx((said.mean(hit), said.mean(ndcg)))
    assert inspect.relevance == said.relevance

    rows = query_statuses(
        BATCH.queries,
        BATCH.evidences,
        dict(zip(BATCH.qids, BATCH.grades, strict=True)),
        config,
        dict.fromkeys(BATCH.qids, grade),
    )
    answerable_rows = [row for row in rows if row.status != "none known"]
    helped = sum(row.status in ("found", "low") for row in answerable_rows)
    assert (len(answerable_rows), helped / counted) == (counted, pytest.approx(said.mean(hit)))

    view = relevance_sources(BATCH, said)
    people = next(judge for judge in view.judges if judge.name == "people")
    assert (people.values["hit@5"], view.queries) == (pytest.approx(said.mean(hit)), counted)

    goal = parse_goal(["hit@5", "nDCG@10"], grade=grade)
    scored = measurable(BATCH, goal.measures)
    tuned = BatchScorer(scored, goal.measures)(config, np.arange(len(scored.queries))).mean(axis=0)
    assert (len(scored.queries), tuned.tolist()) == (counted, pytest.approx([said.mean(hit), said.mean(ndcg)]))


def test_the_grade_is_kept_with_the_scale_and_with_the_evidence(tmp_path: Path) -> None:
    chosen = GradeScale(DEFAULT_SCALE.grades, 2)
    assert GradeScale.from_dict(chosen.to_dict()) == chosen
    assert "relevant_from" not in DEFAULT_SCALE.to_dict()  # a set made before keeps its digest
    path = evidence_file(tmp_path)
    before = read_evidence_file(path)
    replace_relevant_from(path, 2)
    after = read_evidence_file(path)
    assert (before.header.relevant_from, after.header.relevant_from) == (1, 2)
    assert after.replay_hash == before.replay_hash and after.content_hash != before.content_hash


def test_by_type_names_only_losses_that_are_more_than_chance() -> None:
    measures = parse_measures("nDCG@10")
    both = [evaluate(BATCH, config, measures, with_bounds=False) for config in (AS_LISTED, OTHER_WAY)]
    by_chance = significantly_lower(both, measures[0])
    assert by_chance == {"a": [], "b": [], "c": []}
    assert any(
        both[1].mean(measures[0], kind) < both[0].mean(measures[0], kind) for kind in "abc"
    )  # lower, and still not named
    best_first = {qid: evidence(qid) for qid in BATCH.qids[:60]}
    planted = LabelledBatch(BATCH.queries[:60], best_first, {qid: {"a": 3} for qid in BATCH.qids[:60]})
    sure = [evaluate(planted, config, measures, with_bounds=False) for config in (AS_LISTED, OTHER_WAY)]
    assert significantly_lower(sure, measures[0]) == {kind: ["other_way"] for kind in "abc"}
