"""fusion: from ranked lists to one score, against numbers worked out by hand (docs/internals/specification.md, "fusion")."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from cases import NOW, column, configured, dropped, evidence, falling, kept, stage, warned

from cems_workbench.config import nested
from cems_workbench.pipeline import Evidence, Variant
from cems_workbench.pipeline.fusion_methods.rrf import FUSION_METHOD as RRF

BONUS: dict[str, Any] = {"fusion.top_rank_bonus.rank1": 0.05, "fusion.top_rank_bonus.rank2_3": 0.02}
TWO_VARIANTS = (Variant("query"), Variant("other words", "expansion"))


def raw(subject: Evidence, changes: dict[str, Any] | None = None) -> dict[str, float]:
    return column(stage("fusion", subject, changes), "raw")


def test_rrf_adds_weight_over_k_plus_rank() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 7.0, "a": 3.0}})
    changes = {"lists.vector.weight": 1.5, "lists.lexical.weight": 0.5, "fusion.k": 10}
    assert raw(subject, changes) == pytest.approx({"a": 1.5 / 11 + 0.5 / 12, "b": 1.5 / 12 + 0.5 / 11}, rel=1e-15)


def test_memory_absent_from_a_list_contributes_nothing_for_it() -> None:
    row = stage("fusion", evidence({"vector": {"a": 0.9}, "lexical": {"b": 7.0}})).by_id["a"]
    assert row.raw == 1 / 61
    assert [entry.list for entry in row.contributions] == ["vector"]


def test_list_weight_times_variant_weight() -> None:
    subject = evidence({"vector": {"a": 0.9}, "vector@1": {"a": 0.8}}, variants=TWO_VARIANTS)
    changes = {"lists.vector.weight": 0.5, "variants.original_weight": 2.0, "variants.expansion_weight": 0.7}
    assert raw(subject, changes)["a"] == pytest.approx(1.0 / 61 + 0.35 / 61, rel=1e-15)


def test_recency_access_and_relations_are_not_weighted_by_the_variant() -> None:
    subject = evidence({"recency": {"a": 5.0}, "access": {"a": 1.0}, "relations": {"a": 0.5}})
    on = {f"lists.{name}.enabled": True for name in ("recency", "access", "relations")}
    assert raw(subject, {**on, "variants.original_weight": 50.0})["a"] == pytest.approx(
        (0.6 + 0.4 + 0.5) / 61, rel=1e-15
    )


def test_per_list_bonus_is_added_in_every_list_and_not_weighted() -> None:
    """a: rank 1 and rank 3; b: rank 2 and rank 4."""
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}, "lexical": {"x": 9.0, "y": 8.0, "a": 7.0, "b": 6.0}})
    found = raw(subject, {**BONUS, "lists.vector.weight": 2.0})
    assert found["a"] == pytest.approx(2 / 61 + 0.05 + 1 / 63 + 0.02, rel=1e-15)
    assert found["b"] == pytest.approx(2 / 62 + 0.02 + 1 / 64, rel=1e-15)


def test_best_rank_bonus_is_added_once_by_the_best_rank() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}, "lexical": {"x": 9.0, "y": 8.0, "a": 7.0, "b": 6.0}})
    fusion = stage("fusion", subject, {**BONUS, "fusion.top_rank_bonus.mode": "best_rank"})
    assert fusion.by_id["a"].raw == pytest.approx(1 / 61 + 1 / 63 + 0.05, rel=1e-15)
    assert fusion.by_id["b"].raw == pytest.approx(1 / 62 + 1 / 64 + 0.02, rel=1e-15)
    assert fusion.by_id["a"].best_rank_bonus == 0.05
    assert [entry.bonus for entry in fusion.by_id["a"].contributions] == [0.0, 0.0]


def test_importance_bonus_is_0_0023_at_ten_ranks_and_k_60() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}}, memories={"b": {"importance": "high"}})
    rows = stage("fusion", subject, {"fusion.importance_bonus_ranks": 10}).by_id
    assert rows["b"].importance_bonus == pytest.approx(1 / 61 - 1 / 71, rel=1e-15)
    assert round(rows["b"].importance_bonus, 4) == 0.0023
    assert rows["b"].raw == pytest.approx(1 / 62 + 1 / 61 - 1 / 71, rel=1e-15)
    assert rows["a"].importance_bonus == 0.0


def test_ordinal_ties_get_consecutive_ranks_by_id_and_dense_ties_share_one() -> None:
    subject = evidence({"vector": {"c": 0.5, "b": 0.9, "a": 0.9}})
    ordinal = stage("fusion", subject, {"lists.vector.ties": "ordinal"}).by_id
    dense = stage("fusion", subject, {"lists.vector.ties": "dense"}).by_id
    assert [ordinal[key].contributions[0].rank for key in "abc"] == [1, 2, 3]
    assert [dense[key].contributions[0].rank for key in "abc"] == [1, 1, 2]


def test_competition_ties_share_the_rank_of_the_first_of_them() -> None:
    """1 1 3, as in engram: text and comment there say dense, the program counts so (ENGRAM.md, step 5)."""
    subject = evidence({"vector": {"c": 0.5, "b": 0.9, "a": 0.9, "d": 0.5, "e": 0.1}, "lexical": {"e": 3.0, "a": 3.0}})
    rows = stage("fusion", subject, {"lists.vector.ties": "competition"}).by_id
    assert [rows[key].contributions[0].rank for key in "abcde"] == [1, 1, 3, 3, 5]
    assert [rows[key].contributions[1].rank for key in "ae"] == [1, 2]


@pytest.mark.parametrize(
    ("k", "base", "expected"),
    [(0.5, 1, [1 / 1.5, 1 / 2.5]), (60, 0, [1 / 60, 1 / 61]), (1, 0, [1.0, 0.5]), (0, 0, [1000.0, 1.0])],
    ids=["a fraction", "LlamaIndex", "from 0 with k 1", "no division by 0"],
)
def test_k_is_any_number_and_ranks_may_count_from_0(k: float, base: int, expected: list[float]) -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}})
    changes = {"fusion.k": k, "fusion.rank_base": base, "fusion.importance_bonus_ranks": 10}
    assert list(raw(subject, changes).values()) == pytest.approx(expected, rel=1e-15)
    (first,) = stage("fusion", subject, changes).by_id["a"].contributions
    assert RRF.explain(first, configured(changes).fusion) == f"1 / ({k:g} + {base}) = {expected[0]:.4f}"


def test_a_whole_k_is_kept_as_a_whole_number() -> None:
    """So that a config and its digest are what they were when k had to be whole."""
    assert repr(configured({"fusion.k": 60.0}).fusion.k) == "60"
    assert [nested(configured({"fusion.k": k}))["fusion"]["k"] for k in (60, 0.5)] == [60, 0.5]


def test_combsum_adds_weight_times_score() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 8.0, "a": 4.0}})
    changes = {"fusion.method": "combsum", "lists.vector.weight": 2.0, **BONUS}
    assert raw(subject, changes) == pytest.approx({"a": 1.8 + 0.5, "b": 1.6 + 1.0}, rel=1e-15)


def test_combmax_takes_the_largest_weighted_score() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.2}, "lexical": {"b": 8.0, "a": 4.0}})
    assert raw(subject, {"fusion.method": "combmax", "lists.lexical.weight": 0.5}) == {"a": 0.9, "b": 0.5}


@pytest.mark.parametrize("method", ["combsum", "combmax"])
def test_score_methods_leave_recency_and_access_out_and_warn(method: str) -> None:
    subject = evidence(
        {"vector": {"a": 0.9}, "lexical": {"a": 2.0}, "recency": {"a": 1e9, "z": 2e9}, "access": {"a": 7.0}}
    )
    changes = {"fusion.method": method, "lists.recency.enabled": True, "lists.access.enabled": True}
    fusion = stage("fusion", subject, changes)
    assert fusion.by_id["a"].raw == pytest.approx(1.9 if method == "combsum" else 1.0)
    assert dropped(fusion) == {"z": f"only in recency or access lists, which {method} leaves out"}
    assert warned(fusion, f"{method} leaves out recency, access")


def test_multi_list_boost_counts_the_lists_beyond_the_first() -> None:
    subject = evidence(
        {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"a": 5.0}, "vector@1": {"a": 0.7}}, variants=TWO_VARIANTS
    )
    rows = stage("fusion", subject, {"fusion.multi_list_boost": 0.1}).by_id
    assert rows["a"].boost_factor == pytest.approx(1.2)
    assert rows["a"].raw == pytest.approx(1.2 * 3 / 61, rel=1e-15)
    assert rows["b"].boost_factor == 1.0


def test_minmax_runs_over_the_candidates() -> None:
    """1/61, 1/62, 1/63: the middle is (1/62 − 1/63) / (1/61 − 1/63) = 61/124."""
    rows = stage("fusion", evidence({"vector": falling(3)}), {"fusion.normalize": "minmax"}).by_id
    assert [rows[key].normalized for key in ("m01", "m02", "m03")] == pytest.approx([1.0, 61 / 124, 0.0], abs=1e-12)


def test_minmax_of_equal_scores_is_one_for_all_and_warns() -> None:
    subject = evidence({"vector": {"a": 0.5, "b": 0.5}, "lexical": {"a": 2.0, "b": 2.0}})
    changes = {"fusion.normalize": "minmax", "lists.vector.ties": "dense", "lists.lexical.ties": "dense"}
    fusion = stage("fusion", subject, changes)
    assert column(fusion, "normalized") == {"a": 1.0, "b": 1.0}
    assert warned(fusion, "same fused score")


@pytest.mark.parametrize(("method", "ranks_alone"), [("rrf", True), ("combsum", False)])
def test_one_list_is_warned_of_only_where_its_ranks_are_fused(method: str, ranks_alone: bool) -> None:
    """Preset mem0 was warned of, whose fused score is the cosine (found beside peers, 29 November 2026)."""
    fusion = stage("fusion", evidence({"vector": {"a": 0.9, "b": 0.8}}), {"fusion.method": method})
    assert warned(fusion, "one non-empty list") is ranks_alone


def test_score_blends_the_best_vector_or_lexical_score() -> None:
    subject = evidence({"vector": {"a": 0.6}, "lexical": {"b": 8.0, "a": 6.0}})
    rows = stage("fusion", subject, {"fusion.score_blend": 0.25}).by_id
    assert rows["a"].score == pytest.approx(0.75 * (1 / 61 + 1 / 62) + 0.25 * 0.75, rel=1e-15)
    assert rows["b"].score == pytest.approx(0.75 / 61 + 0.25 * 1.0, rel=1e-15)


def test_a_memory_in_neither_vector_nor_lexical_blends_zero() -> None:
    subject = evidence({"vector": {"a": 0.6}, "relations": {"r": 0.9}})
    row = stage("fusion", subject, {"lists.relations.enabled": True, "fusion.score_blend": 0.5}).by_id["r"]
    assert row.score == pytest.approx(0.5 * 0.5 / 61, rel=1e-15)


def test_a_negative_cosine_blends_as_zero() -> None:
    row = stage("fusion", evidence({"vector": {"a": 0.5, "b": -0.4}}), {"fusion.score_blend": 1.0}).by_id["b"]
    assert row.best_list_score == 0.0
    assert row.score == 0.0


def test_bypass_keeps_the_scores_and_the_order_of_a_single_list() -> None:
    subject = evidence({"vector": {"a": 0.3, "b": 0.9, "c": -0.1}, "lexical": {}})
    changes = {"fusion.single_list": "bypass", "fusion.normalize": "minmax", "fusion.score_blend": 0.5, **BONUS}
    fusion = stage("fusion", subject, changes)
    assert kept(fusion) == ["b", "a", "c"]
    assert column(fusion, "score") == {"a": 0.3, "b": 0.9, "c": -0.1}
    (only,) = fusion.by_id["a"].contributions
    assert (only.list, only.rank, only.base, only.bonus) == ("vector", 2, 0.3, 0.0)
    assert fusion.fields.bypassed is True


def test_bypass_needs_a_single_list() -> None:
    subject = evidence({"vector": {"a": 0.3}, "lexical": {"a": 2.0}})
    assert stage("fusion", subject, {"fusion.single_list": "bypass"}).by_id["a"].score == pytest.approx(2 / 61)


def test_a_list_emptied_by_the_threshold_leaves_a_single_list() -> None:
    subject = evidence({"vector": {"a": 0.3}, "lexical": {"a": 2.0, "b": 1.5}})
    changes = {"fusion.single_list": "bypass", "threshold.mode": "fixed", "threshold.fixed": 0.5}
    assert column(stage("fusion", subject, changes), "score") == {"a": 1.0, "b": 0.75}


def test_a_list_of_weight_zero_has_base_zero_everywhere() -> None:
    subject = evidence({"vector": falling(5), "lexical": {"m02": 3.0}})
    rows = stage("fusion", subject, {"lists.vector.weight": 0.0}).rows
    bases = [entry.base for row in rows for entry in row.contributions if entry.list == "vector"]
    assert bases == [0.0] * 5


def test_equal_scores_stand_by_id() -> None:
    subject = evidence({"vector": {"b": 0.5}, "lexical": {"a": 2.0}})
    assert kept(stage("fusion", subject)) == ["a", "b"]


def test_equal_scores_may_stand_by_date_then_by_falling_id() -> None:
    """The memory agent's messages: (score, timestamp, message id), all descending."""
    days = {"a": 1, "b": 3, "c": 3, "d": None}
    memories = {key: {"created_at": None if day is None else NOW - timedelta(days=day)} for key, day in days.items()}
    subject = evidence({"vector": dict.fromkeys("abcd", 0.5)}, memories=memories)
    changes = {"lists.vector.ties": "dense", "fusion.tie_break": "newest"}
    assert kept(stage("fusion", subject, changes)) == ["a", "c", "b", "d"]


def test_k_of_zero_is_one_over_rank() -> None:
    assert list(raw(evidence({"vector": falling(4)}), {"fusion.k": 0}).values()) == [1, 1 / 2, 1 / 3, 1 / 4]


def test_every_row_accounts_for_its_raw_score() -> None:
    subject = evidence(
        {"vector": falling(4), "lexical": {"m03": 3.0, "m09": 2.0}}, memories={"m03": {"importance": "high"}}
    )
    changes = {**BONUS, "fusion.multi_list_boost": 0.3, "fusion.importance_bonus_ranks": 5}
    for row in stage("fusion", subject, changes).rows:
        terms = math.fsum(entry.base + entry.bonus for entry in row.contributions)
        account = row.boost_factor * (terms + row.best_rank_bonus + row.importance_bonus)
        assert row.raw == pytest.approx(account, rel=1e-12)


def test_of_equal_scores_those_of_the_list_read_first_come_first() -> None:
    """k 0, weight 1: v and l have 1 each, and w (2nd by meaning) and x (2nd by words) 0.5 each."""
    subject = evidence({"vector": {"v": 0.9, "w": 0.8}, "lexical": {"l": 7.0, "x": 3.0}})
    values = {"fusion.k": 0, "fusion.tie_break": "first_seen"}
    assert kept(stage("fusion", subject, values)) == ["v", "l", "w", "x"]
    assert kept(stage("fusion", subject, {**values, "fusion.seen_first": "lexical"})) == ["l", "v", "x", "w"]
