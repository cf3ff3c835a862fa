"""Evaluating and comparing configs, assertions, ablations and the honest view, on a set small enough to count by hand.

Labels needed, against numbers worked out by hand: `sets`, of which one config ranks a to h and the other h to a.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sets import AS_LISTED, JUDGMENTS, OTHER_WAY, QUERIES, evidence, evidence_file, evidences

from cems_workbench.config import preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.assertions import Asserted, NoLoss, check, check_no_loss, parse_assertion, parse_no_loss
from cems_workbench.evaluation.batch import UNSCORED, LabelledBatch, missing_score_lines
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evaluate import ablations, cems_phases, evaluate
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.labelling.judge_calibration import JudgeAgreement, relevance_sources
from cems_workbench.evaluation.metrics import parse_measure, parse_measures
from cems_workbench.evaluation.power import Power, power_of
from cems_workbench.evaluation.report import markdown_report
from cems_workbench.evaluation.verdict import queries_to_exclude
from cems_workbench.jobs.regression import floor_lines, got_worse
from cems_workbench.pipeline import ModelScore

MEASURES = parse_measures("hit@1 hit@5 MRR")


@pytest.fixture
def batch() -> LabelledBatch:
    return LabelledBatch(QUERIES, evidences(), agreed_grades(JUDGMENTS))


def test_means_count_every_query_that_has_something_relevant(batch: LabelledBatch) -> None:
    found = evaluate(batch, AS_LISTED, MEASURES)
    hit1, hit5, mrr = found.summaries
    assert [hit1.mean, hit5.mean, mrr.mean] == pytest.approx([1 / 4, 2 / 4, (1 + 1 / 7 + 1 / 2 + 0) / 4])
    assert hit1.queries == 4
    assert (found.without_relevant, found.not_judged, found.not_gathered) == (("q5",), ("q6",), ())
    assert found.by_type()["temporal"] == pytest.approx({"queries": 2, "hit@1": 0.5, "hit@5": 0.5, "MRR": 4 / 7})
    assert found.mean(parse_measure("hit@1"), "other") == 0.0
    assert found.rankings.needs == {}
    per_query = found.to_json()["per_query"]
    assert per_query["q4"]["MRR"] == 0.0 and per_query["q5"]["MRR"] is None


def test_a_relevant_memory_counts_as_found_where_its_successor_is_returned() -> None:
    """q2's g is the 7th; a, the 1st, supersedes it. q1's a is the 1st: that it is superseded by the 2nd changes nothing."""
    noted = {"q2": {"g": [{"id": "a", "kind": "supersedes"}]}, "q1": {"a": [{"id": "b", "kind": "supersedes"}]}}
    gathered = {qid: replace(one, notes={**one.notes, "superseded": noted.get(qid, {})}) for qid, one in evidences().items()}
    found = [evaluate(LabelledBatch(QUERIES, gathered, agreed_grades(JUDGMENTS), None, on), AS_LISTED, MEASURES) for on in (False, True)]
    assert [one.to_json()["per_query"]["q2"]["MRR"] for one in found] == pytest.approx([1 / 7, 1])
    assert [one.to_json()["per_query"]["q1"]["MRR"] for one in found] == [1, 1]
    assert [one.to_json().get("credit") for one in found] == [None, "successors"]
    assert ["successor" in one.relevance for one in found] == ["credited" in one.table.title for one in found] == [False, True]


@pytest.mark.parametrize(("measure", "floors"), [("hit@1", ['--assert "hit@1>=0.00"']), ("AUROC", [])])
def test_a_floor_is_proposed_for_a_measure_with_a_value(batch: LabelledBatch, measure: str, floors: list[str]) -> None:
    then, now = (evaluate(batch, config, parse_measures(measure)) for config in (AS_LISTED, OTHER_WAY))
    lines = floor_lines(got_worse(compare([then, now]), Asserted()).verdicts, now)
    assert [line.partition(": ")[2] for line in lines] == floors


def test_holm_counts_what_can_be_a_finding() -> None:
    """Measures that are all ties, and Judged, raised hit@1's p from 0.0625 to 0.3125 (tried by users, 29 November 2026)."""
    queries = [replace(QUERIES[0], qid=f"q{i}") for i in range(12)]
    gathered = {query.qid: evidences()["q1"] for query in queries}
    grades = {query.qid: {"a": 3} for query in queries}
    base = evaluate(LabelledBatch(queries, gathered, grades), AS_LISTED, parse_measures("hit@1 hit@5 Judged@10"))
    values = base.values.copy()
    values[:5, 0] -= 1
    values[:, 2] -= 0.1
    hit1, hit5, judged = compare([base, replace(base, values=values)]).compared[0].differences
    assert (hit1.p, hit1.p_holm) == (0.0625, 0.0625)
    assert (hit5.ties, hit5.p_holm) == (12, 1.0) and judged.p_holm == judged.p < 0.001


def test_a_file_evaluates_like_what_was_put_into_it(batch: LabelledBatch, tmp_path: Path) -> None:
    read = LabelledBatch.of(read_evidence_file(evidence_file(tmp_path)))
    values = evaluate(read, AS_LISTED, MEASURES).to_json()
    assert values["cost"].pop("ms_per_query") == pytest.approx(100)  # each query of the file took 0.1 s
    assert values["cost"].pop("queries_from_cache") == 0
    assert values == evaluate(batch, AS_LISTED, MEASURES).to_json()
    models = LabelledBatch.of(read_evidence_file(tmp_path / "small.evidence"), "model")
    assert models.qids == ["q1"]


def test_a_config_that_wants_more_than_was_gathered_says_so(batch: LabelledBatch) -> None:
    reranked = with_values(AS_LISTED, {"rerank.backend": "cross_encoder", "rerank.below_depth": "below"})
    found = evaluate(batch, reranked, MEASURES)
    assert found.rankings.needs == {UNSCORED: 4}
    line = "as_listed: 4 queries lack reranker scores of some candidates"
    assert missing_score_lines([found.lacking]) == [line]
    assert any(line in said for said in found.remarks) and line in markdown_report(compare([found]), "s", "h")
    several = [(name, {"scores": 1}) for name in "abcdea"] + [("f", {"scores": 2})]
    assert missing_score_lines(several) == ["a, b, c, d and 1 more: 1 query lacks scores", "f: 2 queries lack scores"]
    gathered = {
        qid: replace(one, notes={"gathered": {"lists.vector.depth": 3, "lists.lexical.depth": 50}})
        for qid, one in evidences().items()
    }
    found = evaluate(LabelledBatch(QUERIES, gathered, agreed_grades(JUDGMENTS)), AS_LISTED, MEASURES)
    assert found.rankings.needs == {"lists.vector.depth: gathered with 3, wanted 150": 5}


def test_a_reranker_that_failed_is_named_once_with_the_number_of_queries() -> None:
    away = "Ollama at localhost:11434: nothing answers at this address"
    errors = {
        "a": f"refused: {away}",
        "b": f"refused: not asked, since {away}",
        "c": f"refused: not asked, since refused: {away}",
    }
    scores = {"qwen": {key: ModelScore(None, error=error) for key, error in errors.items()} | {"d": ModelScore(7.0)}}
    gathered = {qid: replace(one, model_scores=scores) for qid, one in evidences().items()}
    reranked = with_values(AS_LISTED, {"rerank.backend": "ollama", "rerank.model": "qwen"})
    batch = LabelledBatch(QUERIES, gathered, agreed_grades(JUDGMENTS))
    found = evaluate(batch, reranked, MEASURES)
    assert found.failed == {away: 5}
    assert found.to_json()["failed_scores"] == {away: 5}
    assert evaluate(batch, AS_LISTED, MEASURES).failed == {}


def test_the_cost_counts_calls_of_the_language_model_and_pairs_that_the_reranker_reads() -> None:
    notes = {"q1": {"llm": {"calls": 2, "cached": 1}}, "q2": {"llm": None}}
    gathered = {qid: replace(one, notes=notes.get(qid, {})) for qid, one in evidences().items()}
    batch = LabelledBatch(QUERIES, gathered, agreed_grades(JUDGMENTS), seconds_per_query=0.25)
    cost = {"llm_calls": 2.0, "llm_replies_cached": 1.0, "ms_per_query": 250.0, "queries_from_cache": 1.0}
    assert evaluate(batch, AS_LISTED, MEASURES).cost == cost | {"reranked": 0.0}
    head = with_values(AS_LISTED, {"rerank.backend": "cross_encoder", "rerank.depth": 3})
    assert evaluate(batch, head, MEASURES).cost == cost | {"reranked": 4 * 3.0}  # q4 found nothing
    few = with_values(head, {"rerank.skip_if_few": True, "assembly.limit": 10})
    assert evaluate(batch, few, MEASURES).cost["reranked"] == 0.0


def test_comparing_names_every_query_that_won_or_lost(batch: LabelledBatch) -> None:
    (one,) = compare([evaluate(batch, config, MEASURES) for config in (AS_LISTED, OTHER_WAY)]).compared
    hit5 = one.differences[1]
    assert (hit5.wins, hit5.losses, hit5.ties) == (("q2",), ("q1", "q3"), 1)
    assert hit5.difference == pytest.approx(-1 / 4)
    assert hit5.p == 1.0  # of three queries that differ by one, no sign pattern gives less than one net
    assert hit5.by_type["other"] == pytest.approx(-1 / 2)
    assert 0 < one.overlap < 1


def test_overlap_is_of_memories_whatever_evidence_they_were_found_in() -> None:
    """A candidate's number is its place among the ids of its evidence; here every one is moved by the extra memory A."""
    found = {qid: evidence(qid) for qid in ("q1", "q2")}
    more = {qid: evidence(qid, cosines={key: 0.8 - 0.1 * i for i, key in enumerate("abcdefghA")}) for qid in found}
    grades = {"q1": {"a": 2}, "q2": {"b": 2}}
    few = with_values(AS_LISTED, {"lists.vector.depth": 8})
    evaluations = [evaluate(LabelledBatch(QUERIES[:2], one, grades), few, MEASURES) for one in (found, more)]
    assert evaluations[0].results == evaluations[1].results == (tuple("abcdefgh"),) * 2
    assert compare(evaluations).compared[0].overlap == pytest.approx(1.0)


def test_evaluations_of_other_queries_are_not_compared(batch: LabelledBatch) -> None:
    fewer = LabelledBatch(QUERIES[:2], evidences(), agreed_grades(JUDGMENTS))
    with pytest.raises(InputError, match="not measured alike"):
        compare([evaluate(batch, AS_LISTED, MEASURES), evaluate(fewer, OTHER_WAY, MEASURES)])


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("hit@5>=0.5", True),
        ("hit@5>0.5", False),
        ("hit@5 >= 0.51", False),
        ("temporal:MRR<=0.6", True),
        ("MRR<0.2", False),
    ],
)
def test_assertions(batch: LabelledBatch, text: str, holds: bool) -> None:
    outcome = check(*parse_assertion(text), evaluate(batch, AS_LISTED, MEASURES))
    assert outcome.holds is holds
    assert outcome.line.startswith("holds: " if holds else "FAILED: ")


@pytest.mark.parametrize("text", ["hit@5", "hit@5=0.8", "hit@5>=many", "R@5>=0.8", "hit(rel=2)>=0.8"])
def test_what_is_no_assertion_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_assertion(text)


def test_an_assertion_on_a_type_that_no_query_has_is_bad_input(batch: LabelledBatch) -> None:
    with pytest.raises(InputError, match="no query of type 'tempral'; types: other, temporal"):
        check(*parse_assertion("tempral:hit@5>=0.1"), evaluate(batch, AS_LISTED, MEASURES))


def test_no_loss_of_a_type(batch: LabelledBatch) -> None:
    comparison = compare([evaluate(batch, config, MEASURES) for config in (AS_LISTED, OTHER_WAY)])
    hit5 = parse_measure("hit@5")
    (outcome,) = check_no_loss(comparison, NoLoss(hit5, "other"))
    assert not outcome.holds and outcome.undecided and not outcome.failed
    assert outcome.line.endswith("-0.500. 2 queries cannot exclude a loss of more than 0.01; at least 10 are needed.")
    assert check_no_loss(comparison, NoLoss(hit5, "other"), cannot_tell="pass")[0].holds
    assert check_no_loss(comparison, NoLoss(hit5, "other"), cannot_tell="fail")[0].failed


def test_a_loss_within_chance_is_none_where_a_p_is_named(batch: LabelledBatch) -> None:
    comparison = compare([evaluate(batch, config, MEASURES) for config in (AS_LISTED, OTHER_WAY)])
    (outcome,) = check_no_loss(comparison, parse_no_loss("other:hit@5 p<0.05"))  # one of two queries lost: p = 1
    assert outcome.holds and outcome.line.endswith(", p 1, not below 0.05.") and outcome.name == "other:hit@5 p<0.05"
    for text in ("hit@5 p<0", "hit@5 p<1", "hit@5 p<x", "hit@5 p>0.05"):
        with pytest.raises(InputError):
            parse_no_loss(text)


def test_the_phases_of_the_cems_plan_add_up_to_the_plan_and_end_in_the_config_at_hand() -> None:
    config = with_values(preset("cems").config, {"rerank.backend": "late_interaction", "fusion.k": 10})
    phases = cems_phases(config)
    assert [one.name.split(" (")[0] for one in phases] == [f"phase {i}" for i in range(7)]
    assert not phases[1].lists.lexical.enabled and phases[2].lists.lexical.enabled
    assert (phases[2].fusion.top_rank_bonus.rank1, phases[3].fusion.top_rank_bonus.rank1) == (0.0, 0.05)
    assert (phases[3].rerank.backend, phases[4].rerank.backend) == ("none", "late_interaction")
    plan = with_values(preset("cems").config, {"rerank.backend": "late_interaction", "name": phases[5].name})
    assert phases[5] == plan
    assert phases[6].fusion.k == 10
    assert [one.name for one in ablations("ace", config)] == ["ace_a", "ace_b", "ace_c", "ace_d"]
    with pytest.raises(InputError, match="expected one of stages, cems, ace"):
        ablations("everything", config)


def test_the_honest_view_scores_one_run_by_three_judges() -> None:
    """Two queries, results a to e count: cosine calls a to d relevant (0.80 .. 0.50), the model b, people c."""
    found = {
        qid: evidence(qid, judged={"a": -11.0, "b": -3.0, "c": -11.0, "d": -11.0, "e": -11.0}) for qid in ("q1", "q2")
    }
    grades = {"q1": {"a": 0, "b": 1, "c": 3}, "q2": {"a": 0, "z": 3}}
    batch = LabelledBatch(QUERIES[:2], found, grades)
    view = relevance_sources(batch, evaluate(batch, AS_LISTED, MEASURES))
    by_name = {one.name: one for one in view.judges}
    assert by_name["cosine ≥ 0.45"].values == pytest.approx({"hit@1": 1.0, "hit@5": 1.0, "P@3": 1.0})
    assert by_name["model judge"].values == pytest.approx({"hit@1": 0.0, "hit@5": 1.0, "P@3": 1 / 3})
    assert by_name["people"].values == pytest.approx({"hit@1": 0.0, "hit@5": 0.5, "P@3": 1 / 3})
    assert by_name["people"].labelled == pytest.approx(4 / 10)
    pairs = {one.judges: one for one in view.agreements}
    cosine_people = pairs["cosine ≥ 0.45", "people"]
    assert (cosine_people.both, cosine_people.first, cosine_people.second, cosine_people.neither) == (2, 2, 0, 0)
    assert any("misleads" in line for line in view.warnings)
    assert not any("circular" in line for line in view.warnings)


def test_a_judge_that_ranked_is_marked_as_circular() -> None:
    config = with_values(AS_LISTED, {"rerank.backend": "cross_encoder"})
    batch = LabelledBatch(QUERIES[:1], {"q1": evidence("q1", judged={"a": 1.0})}, {"q1": {"a": 2}})
    view = relevance_sources(batch, evaluate(batch, config, MEASURES))
    assert any(line.startswith("circular: the judge a judge also ranked") for line in view.warnings)


def test_kappa_by_hand() -> None:
    """Observed 0.7; by chance 0.6 · 0.5 + 0.4 · 0.5 = 0.5; kappa 0.4."""
    found = JudgeAgreement(("a", "b"), both=40, first=20, second=10, neither=30)
    assert (found.share, found.kappa) == (pytest.approx(0.7), pytest.approx(0.4))
    assert JudgeAgreement(("a", "b"), 0, 0, 0, 0).kappa is None
    assert JudgeAgreement(("a", "b"), 5, 0, 0, 0).kappa is None


def found(name: str = "MRR@3", shown: int = 20) -> Power:
    grades = agreed_grades(JUDGMENTS, None)
    configs = [AS_LISTED, OTHER_WAY]
    return power_of(QUERIES, [evidences()] * 2, grades, configs, parse_measure(name), shown=shown)


def test_a_query_can_reach_what_its_unjudged_results_allow() -> None:
    movable = {one.qid: one for one in found().movable}
    assert set(movable) == {"q1", "q2", "q3", "q5", "q6"}, "q4 has no results"
    best = movable["q2"]  # a is unjudged: the first of one way, and g is the second of the other
    assert {pair.memory_id: pair.best_rank for pair in best.unjudged} == {"a": 1, "h": 1, "b": 2, "c": 3, "f": 3}
    assert (best.now, best.lowest, best.highest) == (0.5, -0.5, 1.0)
    nothing = movable["q6"]
    assert math.isnan(nothing.now) and (nothing.lowest, nothing.highest) == (-1, 1)
    judged = movable["q1"]  # a is relevant and h is not: the first places are known
    assert [pair.memory_id for pair in judged.unjudged] == ["b", "g", "c", "f"]
    assert (judged.now, judged.lowest, judged.highest) == (-1, -1, -0.5)


def test_the_number_of_queries_is_that_of_the_spread_and_of_what_is_rare() -> None:
    spread = np.array([0.1, -0.1] * 10)
    deviation = float(spread.std(ddof=1))
    assert queries_to_exclude(spread, 0.02) == math.ceil(((1.959964 + 0.841621) * deviation / 0.02) ** 2)
    assert queries_to_exclude(np.zeros(20), 0.01) == 296, "until 1 % / 99 % of the queries were seen"
    assert queries_to_exclude(spread[:9], 0.01) is None


@pytest.mark.parametrize("name", ["AUROC", "tokens"])
def test_a_measure_that_no_label_of_a_query_changes_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="power needs one that labels of single queries change"):
        found(name)
