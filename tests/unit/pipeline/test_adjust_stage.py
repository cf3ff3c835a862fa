"""adjust: metadata factors, against the numbers of docs/internals/specification.md, "adjust"."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cases import NOW, column, evidence, kept, stage, warned

ALONE = {"fusion.single_list": "bypass"}
"""The score before adjust is the vector score."""


def ago(**duration: float) -> dict[str, Any]:
    moment = NOW - timedelta(**duration)
    return {"last_accessed": moment, "created_at": moment}


def adjust(memory: dict[str, Any], changes: dict[str, Any], score: float = 0.5, **fields: Any) -> dict[str, Any]:
    """The adjust row of one memory whose score was `score`."""
    subject = evidence({"vector": {"a": score}}, memories={"a": memory}, **fields)
    return stage("adjust", subject, {**ALONE, **changes}).by_id["a"]


def decay(memory: dict[str, Any], **changes: Any) -> float:
    settings = {"adjust.time_decay.mode": "hyperbolic"} | {f"adjust.time_decay.{key}": v for key, v in changes.items()}
    return float(adjust(memory, settings).factors["time_decay"])


@pytest.mark.parametrize(("days", "factor"), [(0, 1.0), (30, 0.667), (60, 0.5), (120, 0.333)])
def test_hyperbolic_decay(days: int, factor: float) -> None:
    assert round(decay(ago(days=days)), 3) == factor


@pytest.mark.parametrize(("days", "factor"), [(0, 1.0), (30, 0.5**0.5), (60, 0.5), (120, 0.25)])
def test_exponential_decay(days: int, factor: float) -> None:
    assert decay(ago(days=days), mode="exponential") == pytest.approx(factor, rel=1e-15)


def test_whole_days_floors_the_age() -> None:
    assert decay(ago(days=30, hours=23)) == 1 / (1 + 30 / 60)
    assert decay(ago(days=30, hours=12), whole_days=False) == pytest.approx(1 / (1 + 30.5 / 60), rel=1e-15)


def test_the_clock_is_last_accessed_or_created_at() -> None:
    memory = {"created_at": NOW - timedelta(days=120), "last_accessed": NOW - timedelta(days=60)}
    assert decay(memory) == 0.5
    assert decay(memory, clock="created_at") == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("category", "factor"), [("preferences", 0.5), ("observation", 21 / 141), ("else", 60 / 180), (None, 60 / 180)]
)
def test_tiers_give_a_half_life_per_category(category: str | None, factor: float) -> None:
    memory = {**ago(days=120), "category": category}
    assert decay(memory, tiers={"preferences": 120.0, "observation": 21.0}) == pytest.approx(factor, rel=1e-12)


def test_no_date_is_factor_one_and_a_warning() -> None:
    subject = evidence({"vector": {"a": 0.5}})
    found = stage("adjust", subject, {**ALONE, "adjust.time_decay.mode": "hyperbolic"})
    assert found.by_id["a"].factors["time_decay"] == 1.0
    assert found.by_id["a"].age_days is None
    assert warned(found, "1 candidates have no last_accessed date")


def test_a_future_date_counts_as_age_zero_and_warns() -> None:
    subject = evidence({"vector": {"a": 0.5}}, memories={"a": ago(days=-10)})
    found = stage("adjust", subject, {**ALONE, "adjust.time_decay.mode": "hyperbolic"})
    assert found.by_id["a"].factors["time_decay"] == 1.0
    assert warned(found, "dated after as_of")


def test_age_is_against_as_of_whatever_the_time_zone() -> None:
    memory = {"last_accessed": datetime(2026, 7, 3, 2, tzinfo=UTC)}
    as_of = datetime.fromisoformat("2026-09-01T04:00:00+02:00")
    row = adjust(memory, {"adjust.time_decay.mode": "hyperbolic"}, as_of=as_of)
    assert row.age_days == 60.0
    assert row.factors["time_decay"] == 0.5


def test_without_as_of_there_is_no_decay_and_a_warning() -> None:
    subject = evidence({"vector": {"a": 0.5}}, memories={"a": ago(days=60)}, as_of=None)
    found = stage("adjust", subject, {**ALONE, "adjust.time_decay.mode": "hyperbolic"})
    assert found.by_id["a"].factors["time_decay"] == 1.0
    assert warned(found, "the evidence has no as_of")


def test_priority_multiplies() -> None:
    assert adjust({"priority": 1.6}, {"adjust.priority": True}).score == pytest.approx(0.8)
    assert adjust({"priority": 1.6}, {}).score == 0.5


def test_the_pinned_factor_is_for_pinned_memories_alone() -> None:
    assert adjust({"pinned": True}, {"adjust.pinned_factor": 1.1}).factors == {"pinned": 1.1}
    assert adjust({"pinned": False}, {"adjust.pinned_factor": 1.1}).factors == {}


@pytest.mark.parametrize(
    ("own", "match", "factor"),
    [
        ("org/repo", "exact", 1.3),
        ("org/other", "exact", 0.8),
        (None, "exact", 0.9),
        ("org/repo2", "exact", 0.8),
        ("org/repo2", "prefix", 1.3),  # the seed's mistake, kept as an option
        ("org", "prefix", 0.8),
        ("org/repo", "prefix", 1.3),
    ],
)
def test_project_factor(own: str | None, match: str, factor: float) -> None:
    changes = {"adjust.project.enabled": True, "adjust.project.match": match}
    assert adjust({"project": own}, changes, project="org/repo").factors == {"project": factor}


def test_a_query_without_project_has_no_project_factor() -> None:
    assert adjust({"project": "org/repo"}, {"adjust.project.enabled": True}).factors == {}


@pytest.mark.parametrize(
    ("relevant", "noise", "factors"),
    [(2, 0, {}), (3, 0, {"feedback": 1.15}), (0, 3, {"feedback": 0.85}), (1, 2, {"feedback": 0.95}), (0, 0, {})],
)
def test_feedback_counts_from_the_third_signal_on(relevant: int, noise: int, factors: dict[str, float]) -> None:
    row = adjust({"relevant_count": relevant, "noise_count": noise}, {"adjust.feedback.enabled": True})
    assert row.factors == pytest.approx(factors)


def test_all_factors_multiply() -> None:
    memory = {**ago(days=60), "priority": 1.5, "pinned": True, "project": "org/repo", "relevant_count": 4}
    changes = {
        "adjust.priority": True,
        "adjust.pinned_factor": 1.1,
        "adjust.time_decay.mode": "hyperbolic",
        "adjust.project.enabled": True,
        "adjust.feedback.enabled": True,
    }
    row = adjust(memory, changes, project="org/repo")
    assert row.score == pytest.approx(0.5 * 1.5 * 1.1 * 0.5 * 1.3 * 1.15, rel=1e-12)


def test_clamping_makes_ties_by_id_and_warns() -> None:
    subject = evidence({"vector": {"b": 0.9, "a": 0.8}}, memories={key: {"priority": 2.0} for key in "ab"})
    changes = {**ALONE, "adjust.priority": True}
    clamped = stage("adjust", subject, {**changes, "adjust.clamp": True})
    assert kept(clamped) == ["a", "b"]
    assert column(clamped, "score") == {"a": 1.0, "b": 1.0}
    assert warned(clamped, "2 candidates were clamped to 1.0")
    free = stage("adjust", subject, changes)
    assert column(free, "score") == {"b": 1.8, "a": 1.6}
    assert not free.warnings


def test_negative_scores_are_clamped_to_zero() -> None:
    assert adjust({}, {"adjust.clamp": True}, score=-0.3).score == 0.0


def test_adjusted_scores_rank_again() -> None:
    subject = evidence({"vector": {"a": 0.6, "b": 0.5}}, memories={"b": {"priority": 2.0}})
    found = stage("adjust", subject, {**ALONE, "adjust.priority": True})
    assert kept(found) == ["b", "a"]
    assert [(row.rank_in, row.rank_out) for row in found.rows] == [(2, 1), (1, 2)]


@pytest.mark.parametrize(("days", "factor"), [(0, 1.0), (30, 0.75), (60, 0.5), (90, 0.25), (400, 0.0)])
def test_linear_decay_is_half_at_the_half_life_and_nothing_at_twice(days: int, factor: float) -> None:
    assert decay(ago(days=days), mode="linear") == pytest.approx(factor, abs=1e-15)


@pytest.mark.parametrize(
    ("mode", "days", "factor"), [("linear", 400, 0.1), ("hyperbolic", 6000, 0.1), ("linear", 60, 0.5)]
)
def test_the_decay_has_a_floor(mode: str, days: int, factor: float) -> None:
    assert decay(ago(days=days), mode=mode, floor=0.1) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("days", "factor"), [(0, 1.1), (365, 1 + 0.2 * (0.1 - 0.5)), (182.5, 1.0), (73, 1 + 0.2 * 0.3)]
)
def test_with_a_strength_time_moves_the_score_around_one(days: float, factor: float) -> None:
    """Hindsight: 1 + 0.2 (max(0.1, 1 − age / 365) − 0.5)."""
    hindsight = {"mode": "linear", "half_life_days": 182.5, "floor": 0.1, "alpha": 0.2, "whole_days": False}
    assert decay(ago(days=days), **hindsight) == pytest.approx(factor)
    assert decay({"last_accessed": None}, **hindsight) == 1.0


@pytest.mark.parametrize(("of", "field"), [("accesses", "access_count"), ("relevant", "relevant_count")])
def test_a_count_lifts_by_its_logarithm(of: str, field: str) -> None:
    """1 + 0.1 ln(20) / 10; once and never are 1."""
    factor = {"adjust.count.of": of}
    assert adjust({field: 20}, factor).factors["count"] == pytest.approx(1 + 0.1 * math.log(20) / 10)
    assert adjust({field: 1}, factor).factors["count"] == adjust({field: 0}, factor).factors["count"] == 1.0
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}})
    assert warned(stage("adjust", subject, factor), "the count factor is 1 for all")


def test_factors_say_what_the_store_lacks_for_them() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}}, project="org/repo")
    changes = {"adjust.feedback.enabled": True, "adjust.project.enabled": True, "adjust.project.untagged": 0.9}
    found = stage("adjust", subject, changes)
    assert warned(found, "no candidate has 3 votes: the feedback factor does nothing")
    assert warned(found, "no candidate belongs to a project: every one has the factor 0.9")
    assert warned(stage("fusion", subject, {"fusion.importance_bonus_ranks": 10}), "the bonus of 10 ranks does nothing")


def test_a_future_date_grows_where_the_config_says_so() -> None:
    growing = {"mode": "exponential", "half_life_days": 30.0, "clock": "created_at", "future": "grows"}
    assert decay({"created_at": ago(days=-60)["created_at"]}, **growing) == pytest.approx(4.0, rel=1e-12)
    assert decay({"created_at": ago(days=60)["created_at"]}, **growing) == pytest.approx(0.25, rel=1e-12)
    assert decay({"created_at": ago(days=-60)["created_at"]}, **growing | {"mode": "linear"}) == 1.0
