"""fusion: each method by hand, what a weight comes to, and the fusions of peers' libraries (docs/internals/specification.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from cases import NOW, column, configured, dropped, evidence, falling, kept, stage, trace, warned

from cems_workbench.config import PipelineConfig, field_spec, field_specs
from cems_workbench.config.sections import Band, FusionConfig
from cems_workbench.errors import InputError
from cems_workbench.pipeline import Evidence, ModelScore, Variant
from cems_workbench.pipeline.effects import idle_parameters
from cems_workbench.pipeline.fusion_methods import FUSION_METHODS, FusionMethod, Hits, own_parameters
from cems_workbench.pipeline.fusion_methods.rrf import FUSION_METHOD as RRF
from cems_workbench.pipeline.scoring import without_failures
from cems_workbench.pipeline.stages import FUSION
from cems_workbench.pipeline.stages.fusion import linear_in_weights
from cems_workbench.pipeline.stages.rerank import (
    BandWeight,
    RerankRow,
    account,
    effective_weights,
    is_compressed,
    unit_spread,
)
from cems_workbench.pipeline.table import Floats

BONUS: dict[str, Any] = {"fusion.top_rank_bonus.rank1": 0.05, "fusion.top_rank_bonus.rank2_3": 0.02}
TWO_VARIANTS = (Variant("query"), Variant("other words", "expansion"))


def raw(subject: Evidence, changes: dict[str, Any] | None = None) -> dict[str, float]:
    return column(stage("fusion", subject, changes), "raw")


ON = {f"lists.{name}.enabled": True for name in ("recency", "access", "relations")}
THREE_FOUR = {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"x": 9.0, "y": 8.0, "a": 7.0, "b": 6.0}}
"""a: rank 1 and rank 3; b: rank 2 and rank 4."""


@pytest.mark.parametrize(
    ("lists", "changes", "expected"),
    [
        (
            {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 7.0, "a": 3.0}},
            {"lists.vector.weight": 1.5, "lists.lexical.weight": 0.5, "fusion.k": 10},
            {"a": 1.5 / 11 + 0.5 / 12, "b": 1.5 / 12 + 0.5 / 11},
        ),
        (  # list weight times variant weight
            {"vector": {"a": 0.9}, "vector@1": {"a": 0.8}},
            {"lists.vector.weight": 0.5, "variants.original_weight": 2.0, "variants.expansion_weight": 0.7},
            {"a": 1.0 / 61 + 0.35 / 61},
        ),
        (  # lists of no variant have no variant weight
            {"recency": {"a": 5.0}, "access": {"a": 1.0}, "relations": {"a": 0.5}},
            {**ON, "variants.original_weight": 50.0},
            {"a": (0.6 + 0.4 + 0.5) / 61},
        ),
        (  # the bonus of every list is not weighted
            THREE_FOUR,
            {**BONUS, "lists.vector.weight": 2.0},
            {"a": 2 / 61 + 0.05 + 1 / 63 + 0.02, "b": 2 / 62 + 0.02 + 1 / 64},
        ),
        (
            {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 8.0, "a": 4.0}},
            {"fusion.method": "combsum", "lists.vector.weight": 2.0, **BONUS},
            {"a": 1.8 + 0.5, "b": 1.6 + 1.0},
        ),
    ],
)
def test_fusion_by_hand(lists: dict[str, Any], changes: dict[str, Any], expected: dict[str, float]) -> None:
    found = raw(evidence(lists, variants=TWO_VARIANTS), changes)
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-15)


def test_memory_absent_from_a_list_contributes_nothing_for_it() -> None:
    row = stage("fusion", evidence({"vector": {"a": 0.9}, "lexical": {"b": 7.0}})).by_id["a"]
    assert row.raw == 1 / 61
    assert [entry.list for entry in row.contributions] == ["vector"]


def test_best_rank_bonus_is_added_once_by_the_best_rank() -> None:
    fusion = stage("fusion", evidence(THREE_FOUR), {**BONUS, "fusion.top_rank_bonus.mode": "best_rank"})
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


def test_a_list_emptied_by_the_threshold_leaves_a_single_list() -> None:
    subject = evidence({"vector": {"a": 0.3}, "lexical": {"a": 2.0, "b": 1.5}})
    changes = {"fusion.single_list": "bypass", "threshold.mode": "fixed", "threshold.fixed": 0.5}
    assert column(stage("fusion", subject, changes), "score") == {"a": 1.0, "b": 0.75}


def test_equal_scores_may_stand_by_date_then_by_falling_id() -> None:
    """The memory agent's messages: (score, timestamp, message id), all descending."""
    days = {"a": 1, "b": 3, "c": 3, "d": None}
    memories = {key: {"created_at": None if day is None else NOW - timedelta(days=day)} for key, day in days.items()}
    subject = evidence({"vector": dict.fromkeys("abcd", 0.5)}, memories=memories)
    changes = {"lists.vector.ties": "dense", "fusion.tie_break": "newest"}
    assert kept(stage("fusion", subject, changes)) == ["a", "c", "b", "d"]


def test_of_equal_scores_those_of_the_list_read_first_come_first() -> None:
    """k 0, weight 1: v and l have 1 each, and w (2nd by meaning) and x (2nd by words) 0.5 each."""
    subject = evidence({"vector": {"v": 0.9, "w": 0.8}, "lexical": {"l": 7.0, "x": 3.0}})
    values = {"fusion.k": 0, "fusion.tie_break": "first_seen"}
    assert kept(stage("fusion", subject, values)) == ["v", "l", "w", "x"]
    assert kept(stage("fusion", subject, {**values, "fusion.seen_first": "lexical"})) == ["l", "v", "x", "w"]


LISTS = {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 8.0, "a": 4.0}}
METHOD_BONUS = {"fusion.top_rank_bonus.rank1": 0.5, "fusion.top_rank_bonus.mode": "per_list"}


def use(monkeypatch: pytest.MonkeyPatch, method: FusionMethod, origin: str | None = None) -> None:
    """Let the name rrf stand for another method, of the package `origin`."""
    monkeypatch.setattr(FUSION_METHODS, "_items", {**FUSION_METHODS, "rrf": method})
    monkeypatch.setattr(FUSION_METHODS, "_origins", {} if origin is None else {"rrf": origin})


def test_own_parameters_are_parameters_or_sections() -> None:
    paths = {spec.path for spec in field_specs()}
    assert all(path in paths or any(known.startswith(f"{path}.") for known in paths) for path in own_parameters())


def test_help_of_the_parameter_names_every_method_of_ours() -> None:
    assert [text.partition(":")[0] for text in field_spec("fusion.method").help.split("; ")] == [
        *field_spec("fusion.method").choices
    ]


def test_max_counts_the_largest_base_with_its_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, replace(RRF, combine="max"))
    rows = stage("fusion", evidence(LISTS), METHOD_BONUS).by_id
    assert {key: rows[key].raw for key in "ab"} == pytest.approx({"a": 1 / 61 + 0.5, "b": 1 / 61 + 0.5})


def test_bonus_is_left_out_and_idle_without_its_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, replace(RRF, parameters=("fusion.k",)))
    rows = stage("fusion", evidence(LISTS), METHOD_BONUS).by_id
    assert rows["a"].raw == pytest.approx(1 / 61 + 1 / 62)
    idle = idle_parameters(PipelineConfig())
    assert "fusion.k" not in idle
    monkeypatch.setattr(FUSION_METHODS, "_items", {**FUSION_METHODS, "other": RRF})
    idle = idle_parameters(PipelineConfig())
    assert idle["fusion.top_rank_bonus.rank1"] == idle["fusion.importance_bonus_ranks"] == "No effect under rrf"
    assert next(part for part in FUSION.parts if part.name == "top-rank bonus").is_off(PipelineConfig())


def test_failing_method_of_a_package_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def base(hits: Hits, weight: Floats, config: FusionConfig) -> Floats:
        return np.ones(1 + len(weight))

    use(monkeypatch, FusionMethod("rrf", base), "plugin 1.0")
    with pytest.raises(
        InputError, match=r"^rrf of plugin 1\.0 failed: ValueError: base has shape \(5,\); expected \(4,\)"
    ):
        stage("fusion", evidence(LISTS))


def test_method_that_is_not_available_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FUSION_METHODS, "_items", {})
    with pytest.raises(InputError, match=r"fusion\.method: rrf is not available; `doctor` says why"):
        stage("fusion", evidence(LISTS))


BANDS = (Band(max_rank=2, retrieval=0.75), Band(max_rank=None, retrieval=0.4))


def row(rank: int, weight: float | None, retrieval: float | None, unit: float | None, score: float = 0.0) -> RerankRow:
    return RerankRow(
        f"m{rank}",
        rank,
        rank,
        0.0,
        score,
        kept=True,
        reason=None,
        rank_before=rank,
        retrieval_weight=weight,
        retrieval_score=retrieval,
        unit=unit,
        outcome="scored",
    )


def test_spread_of_each_side_is_its_standard_deviation_times_its_weight() -> None:
    (band,) = effective_weights([row(1, 0.75, 0.8, 0.1), row(2, 0.75, 0.4, 0.9)], BANDS)
    # 0.75 * (0.8, 0.4) = (0.6, 0.3): sd 0.15.   0.25 * (0.1, 0.9) = (0.025, 0.225): sd 0.1.
    assert (band.retrieval_spread, band.reranker_spread) == pytest.approx((0.15, 0.1))
    assert band.effective == pytest.approx(0.6)
    assert (band.first, band.last, band.candidates, band.nominal) == (1, 2, 2, 0.75)
    assert not band.inverted


def test_a_band_whose_majority_has_the_minority_of_the_spread_is_inverted() -> None:
    (band,) = effective_weights([row(1, 0.75, 1 / 61, 0.1), row(2, 0.75, 1 / 62, 0.9)], BANDS)
    assert band.effective is not None
    assert band.effective < 0.01
    assert band.inverted
    assert BandWeight(1, 3, 3, 0.4, 0.3, 0.1).inverted
    assert not BandWeight(1, 3, 3, 0.5, 0.3, 0.1).inverted  # half and half names no majority


def test_a_band_that_tells_nothing_apart_has_no_effective_weight() -> None:
    (band,) = effective_weights([row(1, 0.75, 1.0, 0.3)], BANDS)
    assert band.effective is None
    assert not band.inverted


def test_bands_without_reranked_candidates_are_left_out_and_the_last_takes_the_rest() -> None:
    rows = [row(1, None, None, None), row(5, 0.4, 0.2, 0.5), row(50, 0.4, 0.1, 0.5)]
    assert [(band.first, band.last, band.candidates) for band in effective_weights(rows, BANDS)] == [(3, None, 2)]
    assert effective_weights(rows, ()) == []


def test_an_account_counts_causes_outcomes_cache_and_latency() -> None:
    scores = [
        ModelScore(0.5, detail={"outcome": "only no seen", "seconds": 1.0}),
        ModelScore(0.9, detail={"outcome": "both", "seconds": 3.0, "cached": True, "truncated": True}),
        ModelScore(None, error="timeout: 30 s", detail={"seconds": 30.0}),
        ModelScore(None, error="refused: not asked", detail={"seconds": 0.0}),
        ModelScore(float("inf")),
    ]
    found = account(scores)
    assert (found.scores, found.failed, found.cached, found.truncated) == (5, 3, 1, 1)
    assert found.causes == {"timeout": 1, "refused": 1, "not finite": 1}
    assert found.outcomes == {"only no seen": 1, "both": 1}
    assert found.seconds == pytest.approx((2.0, 1.0 + 0.95 * 2.0))
    assert (found.failed_share, found.cached_share) == pytest.approx((0.6, 0.2))


def test_compressed_is_a_narrow_spread_and_not_one_of_zero() -> None:
    rows = [row(1, None, None, 0.50), row(2, None, None, 0.53)]
    assert unit_spread(rows) == pytest.approx(0.03)
    assert is_compressed(unit_spread(rows))
    assert not is_compressed(0.0)
    assert not is_compressed(None)
    assert unit_spread(rows[:1]) is None


def test_failures_are_dropped_so_that_they_are_asked_again() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}}, model={"a": 1.0, "b": None})
    again = without_failures(subject, "oracle")
    assert set(again.model_scores["oracle"]) == {"a"}
    assert set(subject.model_scores["oracle"]) == {"a", "b"}


QDRANT: dict[str, dict[str, float]] = {
    "vector": {"1": 0.9, "2": 0.5, "3": 0.4, "4": 0.1},
    "lexical": {"2": 7.0, "5": 4.0, "1": 1.5},
}
"""Dot products of one-dimensional vectors, asked as prefetches of qdrant-client 1.20.0 (local mode) and of qdrant-edge-py 0.9.0 (the Rust
engine); both returned the numbers below, to the seven digits of the single precision in which they hold the vectors."""
SINGLE = 1e-7
RAW = {"lists.lexical.normalization": "none"}


def scores(subject: Evidence, changes: dict[str, Any]) -> dict[str, float]:
    return {row.memory_id: row.score for row in stage("fusion", subject, changes).kept}


def test_dbsf_gives_the_scores_of_qdrant() -> None:
    expected = {
        "1": 1.0529901293499586,
        "2": 1.1840919685597777,
        "3": 0.46216750836411147,
        "4": 0.3108375192706322,
        "5": 0.4899128744555199,
    }
    changes = {**RAW, "fusion.method": "dbsf"}
    assert scores(evidence(QDRANT), changes) == pytest.approx(expected, abs=SINGLE)
    alone = {**QDRANT, "relations": {"3": 2.0}}
    counted = scores(evidence(alone), {**changes, "lists.relations.enabled": True, "lists.relations.weight": 1.0})
    assert counted == pytest.approx(expected | {"3": 0.9621675083641115}, abs=SINGLE)  # one hit counts 0.5


def test_dbsf_of_equal_scores_is_one_half() -> None:
    """0.1 three times has a mean that is off by one rounding."""
    subject = evidence({"vector": {"a": 0.1, "b": 0.1, "c": 0.1}, "lexical": {}})
    assert set(scores(subject, {"fusion.method": "dbsf"}).values()) == {0.5}


def test_dbsf_explains_a_contribution_and_weights_it() -> None:
    changes = {**RAW, "fusion.method": "dbsf", "lists.vector.weight": 0.5}
    first, second = stage("fusion", evidence(QDRANT), changes).by_id["1"].contributions
    words = FUSION_METHODS["dbsf"].explain(first, configured(changes).fusion)
    assert words == f"0.5 × {2 * first.base:.4f} within mean ± 3 standard deviations = {first.base:.4f}"
    assert first.base + first.base + second.base == pytest.approx(1.0529901293499586, abs=SINGLE)


@pytest.mark.parametrize(
    ("k", "weights", "expected"),
    [
        (2, (3.0, 0.5), {"1": 0.8928571428571428, "2": 0.9333333333333333, "3": 0.5, "4": 3 / 7, "5": 0.2}),
        (2, (3.0, 0.0), {"1": 0.75, "2": 0.6, "3": 0.5, "4": 3 / 7, "5": 0.0}),
        (
            60,
            (1.0, 1.0),
            {
                "1": 0.03279569892473118,
                "2": 0.03306010928961749,
                "3": 0.016129032258064516,
                "4": 0.015873015873015872,
                "5": 0.01639344262295082,
            },
        ),
    ],
    ids=["weights", "weight 0", "k 60"],
)
def test_rank_divided_rrf_gives_the_scores_of_qdrant(k, weights, expected):
    changes = {
        "fusion.method": "rank_divided_rrf",
        "fusion.k": k,
        "lists.vector.weight": weights[0],
        "lists.lexical.weight": weights[1],
    }
    assert scores(evidence(QDRANT), changes) == pytest.approx(expected, abs=1e-12)
    first = stage("fusion", evidence(QDRANT), changes).by_id["1"].contributions[0]
    words = FUSION_METHODS["rank_divided_rrf"].explain(first, configured(changes).fusion)
    assert words == f"1 / (1 / {weights[0]:g} + {k} − 1) = {first.base:.4f}"


MEM0: dict[str, Any] = {
    "fusion.method": "combsum",
    "fusion.candidates_from": ["vector"],
    "fusion.divisor": "active_lists",
    "fusion.cap": 1.0,
    "fusion.tie_break": "first_seen",
    "lists.lexical.normalization": "logistic",
    "lists.relations.enabled": True,
    "lists.relations.weight": 0.5,
    "threshold.mode": "fixed",
    "threshold.fixed": 0.1,
    "threshold.applies_to": ["vector"],
}
"""The pieces of mem0 2.2.1 (PEERS.md 1, steps 5 to 9); relations stand for its entity list, whose boost is similarity × 0.5."""


def squashed(raw: float, words: int) -> float:
    """PEERS.md 1, step 5, written again."""
    limits = [(3, 5, 0.7), (6, 7, 0.6), (9, 9, 0.5), (15, 10, 0.5), (math.inf, 12, 0.5)]
    midpoint, slope = next((m, s) for most, m, s in limits if words <= most)
    return 1 / (1 + math.exp(-slope * (raw - midpoint)))


@pytest.mark.parametrize("words", [1, 3, 4, 6, 7, 9, 10, 15, 16, 40])
def test_mem0s_sum_of_similarity_keyword_and_boost(words: int) -> None:
    """d = 2.5: the keyword list and the entity list have a hit, neither of which needs to be a candidate."""
    text = " ".join(["word"] * words)
    lists = {
        "vector": {"a": 0.9, "b": 0.6, "c": 0.3, "d": 0.05},
        "lexical": {"a": 12.0, "k": 30.0, "c": 6.5},
        "relations": {"e": 0.9, "b": 0.7},
    }
    fusion = stage("fusion", evidence(lists, variants=(Variant(text),)), MEM0)
    expected = {
        "a": min(1, (0.9 + squashed(12.0, words)) / 2.5),
        "b": min(1, (0.6 + 0.35) / 2.5),
        "c": min(1, (0.3 + squashed(6.5, words)) / 2.5),
    }
    assert {row.memory_id: row.score for row in fusion.kept} == pytest.approx(expected, abs=1e-15)
    assert fusion.fields.divisor == 2.5
    assert dropped(fusion) == dict.fromkeys("ek", "only in lists whose hits cannot enter; candidates come from vector")
    for row in fusion.kept:
        assert sum(part.value for part in fusion.score_parts(row.memory_id)) == pytest.approx(row.score, rel=1e-12)


def test_mem0s_score_is_at_most_1_and_alone_it_is_not_divided() -> None:
    """Without a keyword or entity hit d is 1; a score above 1 is cut, which makes ties that keep the order of the vector list."""
    lists = {"vector": {"z": 1.0, "a": 0.9}, "lexical": {}, "relations": {}}
    assert scores(evidence(lists), MEM0) == {"z": 1.0, "a": 0.9}
    both = {"vector": {"z": 1.0, "a": 0.99}, "lexical": {"z": 90.0, "a": 80.0}, "relations": {}}
    fusion = stage("fusion", evidence(both), {**MEM0, "fusion.divisor": "none"})
    assert [(row.memory_id, row.score) for row in fusion.kept] == [("z", 1.0), ("a", 1.0)]


def test_a_list_counts_the_words_that_its_engine_counted() -> None:
    """Lemmas without stop words, say; the text as typed has ten words, another band."""
    lists = {"vector": {"a": 0.5}, "lexical": {"a": 8.0}}
    typed = Variant("a b c d e f g h i j")
    notes = {"engines": {"lexical": {"query": "g h", "words": 2}}}
    counted = scores(evidence(lists, variants=(typed,), notes=notes), MEM0)
    assert counted["a"] == pytest.approx((0.5 + squashed(8.0, 2)) / 2, abs=1e-15)
    assert scores(evidence(lists, variants=(typed,)), MEM0)["a"] == pytest.approx((0.5 + squashed(8.0, 10)) / 2)


ENGRAM_RECALL: dict[str, Any] = {
    "fusion.method": "combsum",
    "fusion.importance_floor": 0.15,
    "lists.vector.weight": 0.35,
    "lists.lexical.weight": 0.15,
    "lists.lexical.normalization": "minmax",
    "lists.equal_scores": 0.5,
    "lists.recency.enabled": True,
    "lists.recency.weight": 0.3,
    "lists.recency.normalization": "exponential",
    "lists.recency.half_life_days": 30.0,
    "lists.access.enabled": True,
    "lists.access.weight": 0.2,
    "lists.access.normalization": "smoothed_share",
}
"""memory_recall of engram (ENGRAM.md, L): 0.5 relevance + 0.3 recency + 0.2 (n + 1)/(largest + 1)."""
DAY = 86400.0


def recalled(cosine: float, words: float, days: float, share: float, floor: float = 0.0) -> float:
    """The formula of ENGRAM.md, L, written again."""
    relevance = max(0.7 * cosine + 0.3 * words, floor)
    return 0.5 * relevance + 0.3 * math.exp(-math.log(2) * days / 30) + 0.2 * share


def test_engrams_recall_sums_relevance_recency_and_access() -> None:
    now = 1_788_220_800.0  # 2026-09-01, the moment of the evidence
    lists = {
        "vector": {"a": 0.8, "b": 0.2, "c": 0.1},
        "lexical": {"a": 4.0, "b": 1.0},
        "recency": {"a": now - 30 * DAY, "b": now, "c": now - 60 * DAY},
        "access": {"a": 3.0, "b": 0.0, "c": 1.0},
    }
    subject = evidence(lists, memories={"c": {"importance": "high"}})
    fusion = stage("fusion", subject, ENGRAM_RECALL)
    assert column(fusion, "score") == pytest.approx(
        {"a": recalled(0.8, 1, 30, 1), "b": recalled(0.2, 0, 0, 1 / 4), "c": recalled(0.1, 0, 60, 2 / 4, floor=0.3)},
        abs=1e-12,
    )
    assert fusion.by_id["c"].importance_floor == pytest.approx(0.15 - 0.35 * 0.1)
    for row in fusion.rows:
        assert sum(part.value for part in fusion.score_parts(row.memory_id)) == pytest.approx(row.score, rel=1e-12)
    assert not warned(fusion, "leaves out")


def test_equal_scores_are_what_the_config_says_and_the_warning_too() -> None:
    lists = stage("lists", evidence({"lexical": {"a": 4.0}, "vector": {"a": 0.3}}), ENGRAM_RECALL)
    assert [entry.normalized for entry in lists.by_id["a"].lists if entry.list == "lexical"] == [0.5]
    assert warned(lists, "lexical has one hit, which minmax scales to 0.5 however weak it is")


def test_a_store_that_was_never_used_shares_1_over_2() -> None:
    subject = evidence({"vector": {"a": 0.8}, "access": {"a": 0.0}})
    lists = stage("lists", subject, ENGRAM_RECALL)
    assert [entry.normalized for entry in lists.by_id["a"].lists if entry.list == "access"] == [0.5]


@pytest.mark.parametrize("single_list", ["fuse", "bypass"])
def test_minmax_runs_over_the_candidates_that_may_enter(single_list: str) -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.5}, "lexical": {"k": 9.0, "a": 3.0}})
    changes = {"fusion.normalize": "minmax", "fusion.candidates_from": ["vector"], "fusion.single_list": single_list}
    assert scores(subject, changes) == {"a": 1.0, "b": 0.0}
    alone = trace(subject, {**changes, "lists.vector.enabled": False})
    assert alone.results == []


def test_scores_are_straight_lines_in_weights_unless_divided_capped_or_floored() -> None:
    lines = [
        linear_in_weights(configured(changes).fusion)
        for changes in (
            {"fusion.method": "dbsf"},
            {"fusion.method": "rank_divided_rrf"},
            {"fusion.divisor": "active_lists"},
            {"fusion.cap": 1.0},
            {"fusion.importance_floor": 0.2},
        )
    ]
    assert lines == [True, False, False, False, False]


def test_kept_candidates_are_in_a_list_that_they_may_come_from() -> None:
    subject = evidence({"vector": {"a": 0.9}, "lexical": {"b": 3.0}})
    assert sorted(kept(stage("fusion", subject, {"fusion.candidates_from": ["vector", "lexical"]}))) == ["a", "b"]
