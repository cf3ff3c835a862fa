"""filter: minimum score, then the percentile of what is left (docs/internals/specification.md, "filter")."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import dropped, evidence, kept, stage, warned

SCORES = {"a": 0.91, "b": 0.73, "c": 0.5, "d": 0.42, "e": 0.11, "f": 0.02}
BYPASS: dict[str, Any] = {"fusion.single_list": "bypass"}


def test_scores_below_the_minimum_are_dropped_and_equal_ones_kept() -> None:
    found = stage("filter", evidence({"vector": SCORES}), {**BYPASS, "filter.min_score": 0.42})
    assert kept(found) == ["a", "b", "c", "d"]
    assert dropped(found)["e"] == "score 0.1100 is below the minimum 0.42"


def test_a_minimum_of_null_is_off_and_of_zero_is_zero() -> None:
    subject = evidence({"vector": {"a": 0.5, "b": -0.5}})
    assert kept(stage("filter", subject, {**BYPASS, "filter.min_score": None})) == ["a", "b"]
    assert kept(stage("filter", subject, {**BYPASS, "filter.min_score": 0.0})) == ["a"]


@pytest.mark.parametrize("percent", [1, 10, 25, 33.3, 50, 66.6, 75, 90, 99, 100])
def test_percentile_interpolates_linearly_as_numpy_does(percent: float) -> None:
    floor = np.percentile(list(SCORES.values()), percent)
    expected = [key for key, score in SCORES.items() if score >= floor]
    found = stage("filter", evidence({"vector": SCORES}), {**BYPASS, "filter.percentile": float(percent)})
    assert kept(found) == expected
    for reason in dropped(found).values():
        assert reason.endswith(f"which is {floor:.4f}")


def test_the_percentile_is_of_what_the_minimum_left() -> None:
    """Left: 0.91, 0.73, 0.5, 0.42; their median is 0.615."""
    changes = {**BYPASS, "filter.min_score": 0.4, "filter.percentile": 50.0}
    found = stage("filter", evidence({"vector": SCORES}), changes)
    assert kept(found) == ["a", "b"]
    assert dropped(found)["c"].endswith("percentile 50, which is 0.6150")


def test_dropping_everyone_warns() -> None:
    found = stage("filter", evidence({"vector": SCORES}), {**BYPASS, "filter.min_score": 2.0})
    assert kept(found) == []
    assert warned(found, "dropped every candidate")


def test_raw_mode_switches_the_filter_off_and_says_so() -> None:
    changes = {**BYPASS, "filter.min_score": 0.5, "filter.percentile": 90.0, "query.raw": True}
    found = stage("filter", evidence({"vector": SCORES}), changes)
    assert kept(found) == list(SCORES)
    assert warned(found, "raw mode")
