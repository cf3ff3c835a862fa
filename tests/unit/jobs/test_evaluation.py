"""Evaluating configs on labelled evidence: which judges count, what is replayed again, and what has to be gathered first."""

from __future__ import annotations

import pytest

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs.evaluation import agreed, evaluate_configs, labelled, labelled_file
from cems_workbench.jobs.kept_resources import RecentCache
from cems_workbench.records import Judgment
from tests.planted import PLANTED, planted_file

MEASURES = parse_measures("hit@1 recall@3")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> EvidenceSet:
    return read_evidence_file(planted_file(tmp_path_factory.mktemp("planted"), 16))


def test_a_person_goes_before_a_model_unless_one_kind_is_asked_for() -> None:
    judgments = [Judgment("q", "a", 0), Judgment("q", "a", 3, "m", "model"), Judgment("q", "b", 2, "m", "model")]
    assert agreed(judgments, None).grades == {"q": {"a": 0, "b": 2}}
    assert agreed(judgments, "human").grades == {"q": {"a": 0}}
    assert agreed(judgments, "model").grades == {"q": {"a": 3, "b": 2}}


def test_equal_grades_have_one_digest_in_whatever_order_they_were_given() -> None:
    judgments = [Judgment("q1", "a", 1), Judgment("q1", "b", 2), Judgment("q2", "a", 0)]
    assert agreed(judgments, None).digest == agreed(judgments[::-1], None).digest
    assert agreed(judgments, None).digest != agreed(judgments[1:], None).digest


def test_the_config_that_labels_were_planted_by_finds_all_of_them(evidence: EvidenceSet) -> None:
    on_file = labelled_file(evidence, None)
    measured, missing = evaluate_configs([("planted", PLANTED), ("plain", fusion_only())], lambda _: on_file, MEASURES)
    assert missing == [] and [row.name for row in measured] == ["planted", "plain"]
    best, plain = (row.evaluation for row in measured)
    assert [summary.mean for summary in best.summaries] == [1.0, 1.0]
    assert plain.summaries[1].mean < 1.0
    assert best.config.name == "planted" and measured[0].content_hash == evidence.content_hash


def test_a_config_whose_evidence_is_not_there_is_named_and_the_others_are_measured(evidence: EvidenceSet) -> None:
    on_file = labelled_file(evidence, None)
    measured, missing = evaluate_configs(
        [("deep", fusion_only({"lists.vector.depth": 7})), ("planted", PLANTED)],
        lambda config: None if config.lists.vector.depth == 7 else on_file,
        MEASURES,
    )
    assert [row.name for row in measured] == ["planted"]
    assert [(name, config.lists.vector.depth) for name, config in missing] == [("deep", 7)]


def test_a_cache_gives_the_batch_and_the_evaluation_again_until_a_grade_changes(evidence: EvidenceSet) -> None:
    cache = RecentCache(8)
    first, second = (labelled(evidence, agreed(evidence.judgments, None), cache) for _ in range(2))
    assert second.batch is first.batch
    changed = labelled(evidence, agreed(evidence.judgments[1:], None), cache)
    assert changed.batch is not first.batch and changed.key != first.key
    (once,), _ = evaluate_configs([("a", PLANTED)], lambda _: first, MEASURES, cache=cache)
    (again,), _ = evaluate_configs([("a", PLANTED)], lambda _: second, MEASURES, cache=cache)
    assert again.evaluation is once.evaluation
    (renamed,), _ = evaluate_configs([("b", PLANTED)], lambda _: first, MEASURES, cache=cache)
    assert renamed.evaluation.config.name == "b"


def test_cost_holds_the_time_of_gathering_only_where_it_is_asked_for(evidence: EvidenceSet) -> None:
    grades = agreed(evidence.judgments, None)
    for timed in (True, False):
        on = labelled(evidence, grades, timed=timed)
        (row,), _ = evaluate_configs([("a", PLANTED)], lambda _, on=on: on, MEASURES)
        assert (row.evaluation.cost.get("ms_per_query") is not None) == timed
