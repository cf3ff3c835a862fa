"""The path of a memory and the stage that lost it: one hand-made case for every stage that can."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cems_workbench.analysis.ranks import branch_of
from cems_workbench.analysis.why import ListEntry, cause, memory_path
from cems_workbench.pipeline.stages import CANDIDATE_STAGES
from tests.unit.pipeline.cases import NOW, evidence, trace

VECTOR = {"vector": {"a": 0.9, "b": 0.8, "c": 0.7}}


def explained(subject, memory_id, k, changes=None):
    made = trace(subject, changes)
    path = memory_path(made, memory_id, k)
    return path, cause(path, made)


def test_a_result_within_k_lost_nothing() -> None:
    path, sentence = explained(evidence(VECTOR), "b", 2)
    assert (path.status, path.rank, path.lost_at) == ("in the top k", 2, None)
    assert sentence == "b is in the top 2, at rank 2."
    assert explained(evidence(VECTOR), "a", 1)[1] == "a is the first result."


def test_steps_carry_rank_and_score_of_every_stage() -> None:
    path, _ = explained(evidence(VECTOR), "b", 2)
    assert [step.stage for step in path.steps] == [stage.name for stage in CANDIDATE_STAGES]
    fusion = path.step("fusion")
    assert fusion is not None
    assert (fusion.rank_in, fusion.rank, fusion.score) == (None, 2, pytest.approx(1 / 62))
    assert fusion.words == "2nd of 3: vector 0.0161"


def test_a_memory_in_no_list_has_no_path() -> None:
    path, sentence = explained(evidence(VECTOR), "z", 2)
    assert (path.status, path.rank, path.lost_at, path.steps) == ("in no list", None, None, ())
    assert sentence == "No list returned z."


def test_the_sentence_says_where_each_list_would_have_ranked_it() -> None:
    places = [
        ListEntry("vector:0", 163, 0.12, 150, False, "it would be 163rd (cosine 0.120), past the depth of 150"),
        ListEntry("lexical:0", None, 0.0, 50, False, "it shares no term with the query"),
    ]
    made = trace(evidence(VECTOR))
    assert cause(memory_path(made, "z", 2, places), made) == (
        "No list returned z (vector:0: it would be 163rd (cosine 0.120), past the depth of 150; "
        "lexical:0: it shares no term with the query)."
    )


def test_lost_in_the_lists_past_the_depth() -> None:
    path, sentence = explained(evidence(VECTOR), "c", 3, {"lists.vector.depth": 2})
    assert (path.status, path.lost_at) == ("dropped", "lists")
    assert sentence == "Lost at lists: no list keeps c (vector: rank 3 is past the depth 2)."


def test_lost_in_a_list_that_is_off() -> None:
    path, sentence = explained(evidence({**VECTOR, "relations": {"r": 1.0}}), "r", 3)
    assert path.lost_at == "lists"
    assert sentence == "Lost at lists: no list keeps r (relations: list is off)."


def test_lost_by_the_threshold() -> None:
    path, sentence = explained(evidence(VECTOR), "c", 3, {"threshold.mode": "fixed", "threshold.fixed": 0.75})
    assert (path.status, path.lost_at) == ("dropped", "threshold")
    assert sentence == (
        "Lost at threshold: c was 3rd in vector (0.7); its best list score 0.7000 is below the threshold 0.75."
    )


def test_lost_by_the_lists_when_none_has_it_within_k() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.8, "c": 0.7}, "lexical": {"b": 2.0, "a": 1.0}}
    path, sentence = explained(evidence(lists), "c", 2)
    assert (path.status, path.rank, path.lost_at) == ("below the top k", 3, "lists")
    assert sentence == (
        "Lost at lists: below 2 in every list (best: 3rd in vector); "
        "c was 3rd after fusion (3rd in vector (0.7), not in lexical); it ended 3rd."
    )


def test_lost_in_fusion_when_a_list_has_it_within_k() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.8, "c": 0.7}, "lexical": {"c": 3.0, "b": 2.0, "a": 1.0}}
    path, sentence = explained(evidence(lists), "c", 1, {"lists.lexical.weight": 0.01})
    assert (path.status, path.lost_at) == ("below the top k", "fusion")
    assert sentence == "Lost at fusion: c was 3rd after fusion (3rd in vector (0.7), 1st in lexical (3)); it ended 3rd."


def test_lost_by_a_threshold_that_takes_it_from_the_list_that_has_it_within_k() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.8, "c": 0.7}, "lexical": {"c": 3.0, "b": 2.0}}
    cut = {"threshold.mode": "fixed", "threshold.fixed": 2.5, "threshold.applies_to": ["lexical"]}
    raw = {"lists.lexical.normalization": "none"}
    path, sentence = explained(evidence(lists), "b", 1, raw | cut)
    assert path.lost_at == "lists"
    path, sentence = explained(evidence(lists), "c", 1, raw | cut | {"threshold.fixed": 3.5})
    assert path.lost_at == "threshold"
    assert sentence == (
        "Lost at threshold: it took c from lexical; "
        "c was 3rd after fusion (3rd in vector (0.7), 1st in lexical (3)); it ended 3rd."
    )


def test_what_happened_after_fusion_is_told_too() -> None:
    ages = {key: {"last_accessed": NOW} for key in "ab"} | {"c": {"last_accessed": NOW - timedelta(days=60)}}
    lists = {"vector": {"a": 0.9, "c": 0.8, "b": 0.7}}
    path, sentence = explained(evidence(lists, memories=ages), "c", 1, {"adjust.time_decay.mode": "hyperbolic"})
    assert path.lost_at == "lists"
    assert sentence == (
        "Lost at lists: below 1 in every list (best: 2nd in vector); c was 2nd after fusion (2nd in vector (0.8)); "
        "time decay over 60 days since last access multiplied it by 0.50 and put it 3rd."
    )


def test_left_out_by_fusion_with_a_date_alone() -> None:
    lists = {"vector": {"a": 0.9}, "recency": {"a": 2.0, "b": 1.0}}
    changes = {"fusion.method": "combsum", "lists.recency.enabled": True}
    path, sentence = explained(evidence(lists), "b", 1, changes)
    assert (path.status, path.lost_at) == ("dropped", "fusion")
    assert sentence == "Lost at fusion: b is only in recency or access lists, which combsum leaves out."


def test_lost_by_the_filter() -> None:
    path, sentence = explained(evidence(VECTOR), "c", 3, {"filter.min_score": 0.016})
    assert (path.status, path.lost_at) == ("dropped", "filter")
    assert (
        sentence
        == "Lost at filter: c was 3rd after fusion; filter dropped it: score 0.0159 is below the minimum 0.016."
    )


RERANKED = {"rerank.backend": "cross_encoder", "rerank.model": "oracle", "rerank.combine": "replace"}


def test_dropped_past_the_rerank_depth() -> None:
    subject = evidence(VECTOR, model={"a": 9, "b": 5, "c": 7})
    path, sentence = explained(subject, "c", 3, {**RERANKED, "rerank.depth": 2})
    assert (path.status, path.lost_at) == ("dropped", "rerank")
    assert (
        sentence == "Lost at rerank: c was 3rd after fusion; rerank dropped it: rank 3 is past the rerank depth of 2."
    )


def test_put_down_by_the_reranker() -> None:
    path, sentence = explained(evidence(VECTOR, model={"a": 9, "b": 5, "c": 7}), "b", 2, RERANKED)
    assert (path.rank, path.lost_at) == (3, "rerank")
    assert sentence == "Lost at rerank: b was 2nd after fusion; the reranker gave it 0.500 and put it 3rd."


def test_a_failed_score_is_not_the_rerankers_word() -> None:
    path, sentence = explained(evidence(VECTOR, model={"a": 9, "b": None, "c": 7}), "b", 2, RERANKED)
    assert path.lost_at == "rerank"
    assert (
        sentence == "Lost at rerank: b was 2nd after fusion; scoring it failed, which counts as 0.500 and put it 3rd."
    )


def test_a_list_that_was_not_searched_is_told() -> None:
    places = [ListEntry("lexical:0", 1, 9.0, 50, False, "it would be 1st (BM25 9.00), but this list was not searched")]
    made = trace(evidence(VECTOR))
    assert cause(memory_path(made, "c", 2, places), made) == (
        "Lost at lists: below 2 in every list (best: 3rd in vector); "
        "c was 3rd after fusion (3rd in vector (0.7), lexical:0: it would be 1st (BM25 9.00), but this list was not searched); "
        "it ended 3rd."
    )


def test_lost_in_adjust_by_its_age() -> None:
    # 1/61 · 1/(1 + 151/60) = 0.0047 against 1/62 = 0.0161 and 1/63 = 0.0159
    ages = {"a": {"last_accessed": NOW - timedelta(days=151)}} | {key: {"last_accessed": NOW} for key in "bc"}
    changes = {"adjust.time_decay.mode": "hyperbolic"}
    path, sentence = explained(evidence(VECTOR, memories=ages), "a", 2, changes)
    assert (path.status, path.rank, path.lost_at) == ("below the top k", 3, "adjust")
    assert (
        sentence
        == "Lost at adjust: a was 1st after fusion; time decay over 151 days since last access multiplied it by 0.28 and put it 3rd."
    )


def test_lost_in_adjust_by_what_lifted_others() -> None:
    subject = evidence(VECTOR, memories={"c": {"priority": 2.0}})
    path, sentence = explained(subject, "a", 1, {"adjust.priority": True})
    assert path.lost_at == "adjust"
    assert sentence == (
        "Lost at adjust: a was 1st after fusion; the factors of others, c first among them, lifted them past it and put it 2nd."
    )


def test_lost_by_the_gap() -> None:
    path, sentence = explained(evidence(VECTOR), "c", 3, {"gap.ratio": 0.98, "gap.keep": 1})
    assert (path.status, path.lost_at) == ("dropped", "gap")
    assert (
        sentence
        == "Lost at gap: c was 3rd after fusion; gap dropped it: score 0.0159 is below 0.98 × the top score 0.0164."
    )


def test_lost_as_a_duplicate() -> None:
    subject = evidence(VECTOR, embeddings={"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [0.0, 1.0]})
    path, sentence = explained(subject, "b", 3, {"dedup.enabled": True})
    assert (path.status, path.lost_at) == ("dropped", "dedup")
    assert sentence == "Lost at dedup: b was 2nd after fusion; dedup dropped it: duplicates a (cosine 1.000)."


def test_lost_for_the_token_budget() -> None:
    subject = evidence(VECTOR, memories={"b": {"content": "x" * 400}})
    path, sentence = explained(subject, "b", 3, {"assembly.max_tokens": 50})
    assert (path.status, path.lost_at) == ("dropped", "assembly")
    assert (
        sentence
        == "Lost at assembly: b was 2nd after fusion; assembly dropped it: 100 tokens do not fit the budget of 50."
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"assembly.min_vector_score": 0.75}, "vector score 0.7000: below the floor of 0.75, and nobody moves up"),
        ({"assembly.strategy": "mmr", "assembly.mmr_min_value": 0.9}, "is below the least of 0.9"),
    ],
)
def test_dropped_by_assembly_for_its_value_is_no_loss_of_rank(changes: dict[str, Any], why: str) -> None:
    made = trace(evidence(VECTOR), changes)
    path, branch = memory_path(made, "c", 3), branch_of(made, "c", 3)
    assert branch is not None and (branch.stage, branch.manner) == ("assembly", "dropped")
    assert (path.status, path.lost_at) == ("dropped", "assembly")
    assert cause(path, made).endswith(f"{why}.") and "assembly dropped it: " in cause(path, made)


def test_lost_to_diversity() -> None:
    sessions = {"a": {"session": "s1"}, "b": {"session": "s1"}, "c": {"session": "s2"}}
    changes = {"assembly.strategy": "mmr", "assembly.limit": 2}
    path, sentence = explained(evidence(VECTOR, memories=sessions), "b", 2, changes)
    assert (path.status, path.lost_at) == ("below the top k", "assembly")
    assert sentence == (
        "Lost at assembly: b was 2nd after fusion; assembly chose for diversity (mmr) and left it out: a stands for its session s1."
    )


def test_past_the_limit_is_lost_where_it_was_below_k_first() -> None:
    path, _ = explained(evidence(VECTOR), "c", 2, {"assembly.limit": 2})
    assert (path.status, path.rank, path.lost_at) == ("below the top k", None, "lists")
