"""threshold: fixed and adaptive cuts on list scores (docs/internals/specification.md, "threshold")."""

from __future__ import annotations

from typing import Any

import pytest
from cases import configured, dropped, evidence, kept, stage, warned

from cems_workbench.pipeline.stages.threshold import adaptive_thresholds

TOP = "threshold.adaptive.max"
FLOAT = {"threshold.adaptive.steps": "float"}
DEFAULT_STEPS = [0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35]


def fixed(value: float, **more: Any) -> dict[str, Any]:
    return {"threshold.mode": "fixed", "threshold.fixed": value, **more}


def adaptive(limit: int | None, **more: Any) -> dict[str, Any]:
    return {"threshold.mode": "adaptive", "assembly.limit": limit, **more}


def test_fixed_keeps_scores_that_reach_it() -> None:
    threshold = stage("threshold", evidence({"vector": {"a": 0.7, "b": 0.6, "c": 0.5999}}), fixed(0.6))
    assert kept(threshold) == ["a", "b"]
    assert dropped(threshold) == {"c": "best list score 0.5999 is below the threshold 0.6"}


def test_a_fixed_threshold_of_zero_means_zero() -> None:
    """Not 0.6, which the seed's `threshold or 0.6` made of it: 0.1 stays, a negative cosine goes."""
    threshold = stage("threshold", evidence({"vector": {"a": 0.1, "b": 0.0, "c": -0.1}}), fixed(0.0))
    assert kept(threshold) == ["a", "b"]
    assert threshold.fields.search.final == 0.0


def test_lists_it_does_not_apply_to_pass_whole() -> None:
    subject = evidence({"vector": {"a": 0.1}, "relations": {"r": 0.01}})
    changes = fixed(0.5, **{"lists.relations.enabled": True, "threshold.applies_to": ["vector"]})
    assert kept(stage("threshold", subject, changes)) == ["r"]


def test_it_cuts_the_normalised_lexical_score() -> None:
    threshold = stage("threshold", evidence({"lexical": {"a": 10.0, "b": 6.0, "c": 5.0}}), fixed(0.6))
    assert kept(threshold) == ["a", "b"]


def test_a_memory_cut_from_one_list_stays_through_another() -> None:
    subject = evidence({"vector": {"a": 0.2}, "lexical": {"a": 5.0}})
    row = stage("threshold", subject, fixed(0.6)).by_id["a"]
    assert row.kept
    assert [(entry.list, entry.kept) for entry in row.lists] == [("vector", False), ("lexical", True)]


def test_the_thresholds_fall_to_the_minimum_itself() -> None:
    """The seed's float loop ends at 0.4000000000000001 and never tests 0.35."""
    assert adaptive_thresholds(configured().threshold) == DEFAULT_STEPS


def test_an_uneven_step_still_ends_with_the_minimum() -> None:
    config = configured({"threshold.adaptive.max": 0.7, "threshold.adaptive.step": 0.15}).threshold
    assert adaptive_thresholds(config) == [0.7, 0.55, 0.4, 0.35]


def test_float_steps_end_where_the_memory_agent_ends() -> None:
    """MEMORY_AGENT.md, step 3, measured: 12 passes from 0.95 and 8 from 0.75, and the minimum 0.35 is never tried."""
    visited = [adaptive_thresholds(configured(values).threshold) for values in ({**FLOAT, TOP: 0.95}, FLOAT)]
    assert [(len(each), each[-1]) for each in visited] == [(12, 0.39999999999999963), (8, 0.39999999999999986)]
    assert visited[0][:2] == [0.95, 0.8999999999999999]


def test_a_threshold_may_be_of_any_scale() -> None:
    subject = evidence({"lexical": {"a": 14.0, "b": 9.0}, "vector": {"c": -0.5, "d": -0.7}})
    raw = {"lists.lexical.normalization": "none"}
    assert kept(stage("threshold", subject, fixed(10.0, **raw))) == ["a"]
    assert kept(stage("threshold", subject, fixed(-0.6, **raw))) == ["a", "b", "c"]


@pytest.mark.parametrize("maximum", [0.35, 0.2])
def test_a_maximum_not_above_the_minimum_tries_the_minimum_alone(maximum: float) -> None:
    assert adaptive_thresholds(configured({"threshold.adaptive.max": maximum}).threshold) == [0.35]


def test_adaptive_stops_at_the_first_threshold_with_enough_memories() -> None:
    """int(5 · 0.8) = 4 memories: three reach 0.7, four reach 0.65."""
    subject = evidence({"vector": {"a": 0.9, "b": 0.72, "c": 0.7, "d": 0.65, "e": 0.6}})
    threshold = stage("threshold", subject, adaptive(5))
    assert threshold.fields.search.final == 0.65
    assert threshold.fields.search.visited == (0.75, 0.7, 0.65)
    assert threshold.fields.search.counts == (1, 3, 4)
    assert threshold.fields.search.unique == 4
    assert kept(threshold) == ["a", "b", "c", "d"]


def test_the_target_is_rounded_down() -> None:
    """int(4 · 0.8) = 3."""
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.76, "d": 0.4}})
    assert stage("threshold", subject, adaptive(4)).fields.search.final == 0.75


def test_adaptive_reaches_the_minimum() -> None:
    subject = evidence({"vector": {"a": 0.35, "b": 0.36, "c": 0.34}})
    threshold = stage("threshold", subject, adaptive(2, **{"threshold.adaptive.target_ratio": 1.0}))
    assert threshold.fields.search.final == 0.35
    assert threshold.fields.search.visited == tuple(DEFAULT_STEPS)
    assert sorted(kept(threshold)) == ["a", "b"]


def test_when_none_has_enough_the_first_with_the_most_is_taken() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.52, "c": 0.2}})
    threshold = stage("threshold", subject, adaptive(10))
    assert threshold.fields.search.final == 0.5
    assert threshold.fields.search.unique == 2
    assert threshold.fields.search.visited == tuple(DEFAULT_STEPS)
    assert warned(threshold, "no threshold found 8 memories; 0.5 had the most, 2")


def test_memories_count_once_over_the_lists_it_applies_to() -> None:
    """a in both lists is one memory; r is in a list that is not cut and does not count."""
    subject = evidence({"vector": {"a": 0.9, "b": 0.5}, "lexical": {"a": 5.0}, "relations": {"r": 0.9}})
    changes = adaptive(2, **{"threshold.adaptive.target_ratio": 1.0, "lists.relations.enabled": True})
    threshold = stage("threshold", subject, changes)
    assert threshold.fields.search.counts == (1, 1, 1, 1, 1, 2)
    assert threshold.fields.search.final == 0.5
