"""Effective weight of retrieval against reranker, and the account of a model's scores, on numbers worked out by hand."""

from __future__ import annotations

import pytest
from cases import evidence, stage

from cems_workbench.config.sections.ranking import Band, RerankConfig
from cems_workbench.pipeline import ModelScore
from cems_workbench.pipeline.scoring import without_failures
from cems_workbench.pipeline.stages.rerank import (
    BandWeight,
    RerankRow,
    account,
    effective_weights,
    is_compressed,
    overtaking,
    unit_spread,
)

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


def test_the_example_of_the_plan_rank_11_overtakes_rank_1_that_the_reranker_liked_more() -> None:
    hits = {f"m{i:02d}": 1 - i / 100 for i in range(1, 13)}
    scores = dict.fromkeys(hits, 0.1) | {"m01": 0.9, "m11": 0.6, "m12": 0.95}
    changes = {"rerank.backend": "cross_encoder", "rerank.model": "oracle", "rerank.raw_scale": "identity"}
    rows = stage("rerank", evidence({"vector": hits}, model=scores), changes).rows
    found = overtaking(rows, RerankConfig())
    assert found is not None
    passed, first = found
    assert (passed.rank, passed.unit, first.unit) == (11, 0.6, 0.9)
    assert passed.score == pytest.approx(0.4 / 71 + 0.6 * 0.6)
    assert first.at_most == pytest.approx(0.75 / 61 + 0.25)
    assert overtaking(rows, RerankConfig(combine="replace")) is None
    assert overtaking(rows, RerankConfig(retrieval_score="inverse_rank")) is None
    assert overtaking([row for row in rows if row.rank_before <= 10], RerankConfig()) is None


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


def test_an_account_of_nothing_is_all_zeros() -> None:
    found = account([])
    assert (found.scores, found.failed_share, found.cached_share, found.seconds) == (0, 0.0, 0.0, None)


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
