"""Weights without judgments: the grades of a reranker's order, what may be chosen by them, and what is known of each list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic_queries import NOW, evidences, fusion_only
from cems_workbench.config import PipelineConfig, dump_config, preset, with_values
from cems_workbench.config.evidence_card import parse_card
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evidence_file import EvidenceSet, Header
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.jobs.evaluation import labelled_file
from cems_workbench.jobs.tuning import SearchResult, SearchSettings, card_of, plan_search, run_search, scored_queries
from cems_workbench.jobs.tuning import unlabelled_data as data_of
from cems_workbench.jobs.unlabelled import by_judgments, with_reference_reranker
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.pipeline.stages.abstain import ABSTAIN
from cems_workbench.records import Judgment, Memory, Query
from cems_workbench.tuning.objective import parse_goal
from cems_workbench.tuning.space import SearchSpace, axis_for, parse_axis
from cems_workbench.tuning.unlabelled import (
    before_reranker,
    list_trust,
    reference_reranker,
    require_tunable_unlabelled,
    reranker_grades,
)

READER = "cross_encoder"


def scored(raw: Mapping[str, float | None], reader: str = READER) -> Evidence:
    """Evidence of one query whose candidates a reranker scored so; None where it failed."""
    scores = {key: ModelScore(value, error=None if value is not None else "refused") for key, value in raw.items()}
    return Evidence("query", {key: Memory(key, key) for key in raw}, model_scores={reader: scores})


def test_the_first_three_of_the_reranker_have_grades_and_equal_scores_have_equal_ones() -> None:
    evidence = scored({"a": 5.0, "b": 4.0, "c": 4.0, "d": 2.0, "e": 1.0})
    assert reranker_grades({"q": evidence}, READER) == {"q": {"a": 3, "b": 2, "c": 2}}


@pytest.mark.parametrize(
    "raw",
    [
        {"a": 3.0, "b": 2.0, "c": 1.0},
        {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0},
        {"a": 3.0, "b": 2.0, "c": 1.0, "d": None},
    ],
    ids=["three", "equal", "failed"],
)
def test_a_query_that_the_reranker_tells_nothing_of_is_left_out(raw: dict[str, float | None]) -> None:
    assert reranker_grades({"q": scored(raw)}, READER) == {}


def test_the_configs_own_reranker_stands_in_or_else_the_one_that_scored_the_most() -> None:
    own = fusion_only({"rerank.backend": "cross_encoder", "rerank.model": "mine"})
    found = [scored({"a": 1.0}, "small"), scored({"a": 1.0, "b": 2.0}, "large")]
    assert reference_reranker(fusion_only(), found) == "large"
    assert reference_reranker(own, found) is None
    assert reference_reranker(own, [*found, scored({"a": 1.0}, "mine")]) == "mine"


def test_a_reranker_that_reads_with_the_embedder_of_the_vector_list_does_not_stand_in() -> None:
    config = fusion_only({"rerank.backend": "late_interaction"})
    found = [scored({"a": 1.0, "b": 2.0}, "late_interaction"), scored({"a": 1.0}, "small")]
    assert reference_reranker(config, found) == reference_reranker(fusion_only(), found) == "small"
    assert reference_reranker(config, found[:1]) is None
    assert with_reference_reranker(config).rerank.backend == "cross_encoder"


@pytest.mark.parametrize("name", ["workbench", "cems", "ace"])
def test_nothing_after_the_fusion_is_measured(name: str) -> None:
    whole = preset(name).config
    config = before_reranker(whole)
    assert RERANK.is_off(config) and ABSTAIN.is_off(config)
    assert config.filter.min_score is None and not config.adjust.priority and config.assembly.max_tokens is None
    assert (config.lists, config.fusion, config.variants) == (whole.lists, whole.fusion, whole.variants)


@pytest.mark.parametrize("path", ["rerank.bands.0", "rerank.depth", "adjust.project.same", "filter.min_score"])
def test_what_the_order_of_a_reranker_says_nothing_of_is_refused(path: str) -> None:
    require_tunable_unlabelled([axis_for("lists.vector.weight"), axis_for("fusion.k")])
    with pytest.raises(InputError, match="without labels"):
        require_tunable_unlabelled([axis_for("lists.vector.weight"), axis_for(path)])


def two_lists(vector: Mapping[str, float], lexical: Mapping[str, float], raw: Mapping[str, float]) -> Evidence:
    lists = [
        RankedList(f"{name}:0", name, 0, tuple(Hit(key, score) for key, score in hits.items()))
        for name, hits in (("vector", vector), ("lexical", lexical))
    ]
    memories = {key: Memory(key, key) for key in {*vector, *lexical}}
    read = {READER: {key: ModelScore(score) for key, score in raw.items()}}
    return Evidence("query", memories, (Variant("query"),), tuple(lists), NOW, model_scores=read)


def test_trust_in_a_list_is_worked_out_by_hand() -> None:
    """The vector list has the reranker's order, the lexical one its first alone, at rank 2: 3 / log2(3) of 3 + 2 / log2(3) + 1 / 2."""
    vector = {f"m{i}": 1.0 - i / 20 for i in range(10)} | {"m0": 1.5}
    lexical = {"x": 9.0, "m0": 3.0}
    evidence = two_lists(vector, lexical, {"m0": 9.0, "m1": 5.0, "m2": 3.0, "m3": 1.0})
    batch = LabelledBatch([Query("q", "query")], {"q": evidence}, reranker_grades({"q": evidence}, READER))
    rows = {row.source: row for row in list_trust(batch, fusion_only(), READER, parse_measure("nDCG@10"))}
    assert rows["vector"].agreement == pytest.approx(1.0)
    assert rows["lexical"].agreement == pytest.approx((3 / np.log2(3)) / (3 + 2 / np.log2(3) + 1 / 2))
    assert (rows["vector"].read, rows["lexical"].read) == pytest.approx((0.4, 0.5))
    assert (rows["vector"].shared, rows["lexical"].shared) == pytest.approx((0.1, 0.5))
    assert rows["vector"].lead == pytest.approx((1.5 - 0.95) / (1.5 - 0.55))
    assert np.isnan(rows["lexical"].lead)  # too few hits to tell


def reading(evidence: Evidence, source: str) -> Evidence:
    """Evidence whose reranker thinks as one of the lists does."""
    hits = next(ranked.hits for ranked in evidence.lists if ranked.source == source)
    return replace(evidence, model_scores={READER: {hit.memory_id: ModelScore(hit.score) for hit in hits}})


def evidence_set(tmp_path: Path, config: PipelineConfig, teacher: str, judge: str) -> EvidenceSet:
    """Sixty queries whose reranker thinks as one list does, and judgments that prefer the first hits of one."""
    made = [reading(one, teacher) for one in evidences(60, lists=2, hits=12)]
    queries = tuple(Query(f"q{i}", one.query, project=f"p{i % 8}") for i, one in enumerate(made))
    judgments = tuple(
        Judgment(query.qid, hit.memory_id, 1)
        for query, one in zip(queries, made, strict=True)
        for hit in next(ranked.hits for ranked in one.lists if ranked.source == judge)[:2]
    )
    header = Header("made up", "store1", 1, "none", dump_config(config), NOW.isoformat())
    found = {query.qid: one for query, one in zip(queries, made, strict=True)}
    return EvidenceSet(tmp_path / "set.evidence", header, queries, judgments, found, "hash", True, 1.0)


def proposal(evidence: EvidenceSet, config: PipelineConfig) -> SearchResult:
    """What is proposed without judgments of the weights of both lists."""
    data = data_of(config, "made up", evidence)
    goal = parse_goal(["nDCG@10"])
    axes = [parse_axis(f"lists.{name}.weight=0:2:0.5") for name in ("vector", "lexical")]
    settings = SearchSettings("query", sealed=0.0)
    queries = scored_queries(data, goal.measures, 0)
    return run_search(plan_search(data, queries, SearchSpace.of(config, axes), goal, settings))


RERANKING = {"rerank.backend": "cross_encoder", "rerank.model": None, "fusion.score_blend": 0.0}


@pytest.mark.parametrize(("teacher", "other"), [("vector", "lexical"), ("lexical", "vector")])
def test_the_list_that_the_reranker_agrees_with_is_given_more_weight_also_where_it_reranks(tmp_path, teacher, other):
    config = fusion_only(RERANKING)
    result = proposal(evidence_set(tmp_path, config, teacher, teacher), config)
    found = result.tuned.config
    assert found.get(f"lists.{teacher}.weight") > found.get(f"lists.{other}.weight")
    assert found.name == "cems-unlabelled" and found.rerank == config.rerank
    assert result.planned.sealed == []


def test_judgments_choose_nothing_and_are_not_rewritten(tmp_path: Path) -> None:
    config = fusion_only(RERANKING)
    one, other = (proposal(evidence_set(tmp_path, config, "vector", judge), config) for judge in ("vector", "lexical"))
    assert one.tuned.config == other.tuned.config and one.tuned.train == other.tuned.train
    assert one.planned.data.labelled.grades.judgments == one.planned.data.evidence.judgments


def test_a_proposal_is_held_against_judgments_and_its_card_never_says_tuned(tmp_path: Path) -> None:
    config = fusion_only(RERANKING)
    evidence = evidence_set(tmp_path, config, "vector", "vector")
    before = proposal(evidence, config)
    assert "it was not measured by judgments" in card_of(before, "2026-11-23").text
    result = by_judgments(before, labelled_file(evidence, None), SearchSettings("query"))
    held = result.by_judgments
    assert held is not None and held.proposal.queries == 48 and held.proposal.low > 0  # a fifth stays sealed
    assert held.share == pytest.approx(held.proposal.improvement / held.hindsight.improvement)
    card = card_of(result, "2026-11-23")
    assert "UNLABELLED" in card.text and "tuned against" not in card.text
    assert [row.metric for row in card.measured] == ["nDCG@10 against the reranker’s order", "nDCG@10", "nDCG@10"]
    assert "chose nothing" in card.measured[1].split and parse_card(card.to_json(), "card") == card


def test_a_reranker_that_is_wrong_gains_nothing_by_judgments(tmp_path: Path) -> None:
    config = fusion_only(RERANKING)
    evidence = evidence_set(tmp_path, config, "vector", "lexical")
    result = by_judgments(proposal(evidence, config), labelled_file(evidence, None), SearchSettings("query"))
    assert result.by_judgments is not None
    assert result.by_judgments.proposal.high < 0 < result.by_judgments.labelled.low
    assert result.by_judgments.share is not None and result.by_judgments.share < 0


def test_evidence_without_scores_of_the_reranker_says_what_to_do(tmp_path: Path) -> None:
    config = fusion_only(RERANKING)
    other = with_values(config, {"rerank.model": "another"})
    with pytest.raises(InputError, match=r"rerank\.backend=cross_encoder"):
        data_of(other, "made up", evidence_set(tmp_path, config, "vector", "vector"))
