"""Likeness of results, and the limits and λ at which they change, on vectors and words made by hand."""

from __future__ import annotations

from itertools import pairwise as pairwise_of
from math import cos, inf, isnan, nextafter, radians, sin
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.analysis.diversity import (
    DedupThreshold,
    Duplicate,
    ResultInterval,
    current_interval,
    dedup_thresholds,
    dropped_duplicates,
    lambda_intervals,
    lambda_value,
    limit_intervals,
    limit_value,
    merged,
    pairwise,
)
from cems_workbench.config import with_values
from cems_workbench.pipeline import Evidence, Trace, replay
from tests.unit.pipeline.cases import configured, evidence, trace

AB, CD, AC = cos(radians(10)), cos(radians(5)), 0.5


def angled(degrees: dict[str, float]) -> Evidence:
    """Memories in this order by score, their embeddings at these angles."""
    embeddings = {key: np.array([cos(radians(angle)), sin(radians(angle))]) for key, angle in degrees.items()}
    scores = {key: 0.9 - 0.01 * place for place, key in enumerate(degrees)}
    return evidence({"vector": scores}, embeddings=embeddings)


def four(**changes: Any) -> Trace:
    """a and b are 10 degrees apart, c and d 5, a and c 60; three are shown."""
    subject = angled({"a": 0, "b": 10, "c": 60, "d": 65})
    return trace(subject, {"assembly.limit": 3, **{key.replace("__", "."): value for key, value in changes.items()}})


def test_pairs_are_compared_as_dedup_and_mmr_compare_them() -> None:
    words = {"a": {"content": "Red fox"}, "b": {"content": "red, DOG"}, "c": {"content": "bird"}}
    vectors = {"a": np.array([1.0, 0.0]), "b": np.array([3.0, 4.0])}
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.7}}, memories=words, embeddings=vectors)
    found = pairwise(subject, ["b", "a", "c"])
    assert found.cosine[0, 1] == pytest.approx(0.6)
    assert found.overlap[0].tolist()[1:] == pytest.approx([1 / 3, 0])
    assert isnan(found.cosine[0, 2])  # c has no embedding
    assert isnan(found.overlap[1, 1])
    assert found.mean_cosine == pytest.approx(0.6)
    assert found.mean_overlap == pytest.approx(1 / 9)


def test_one_memory_has_no_mean() -> None:
    found = pairwise(angled({"a": 0}), ["a"])
    assert (found.mean_cosine, found.mean_overlap) == (None, None)


def test_what_dedup_took_is_named_with_its_original() -> None:
    assert dropped_duplicates(four()) == []
    found = dropped_duplicates(four(dedup__enabled=True, dedup__similarity=0.97))
    assert found == [Duplicate("b", "a", found[0].cosine), Duplicate("d", "c", found[1].cosine)]
    assert [duplicate.cosine for duplicate in found] == pytest.approx([AB, CD])


def test_limits_are_walked_from_one_cosine_of_kept_memories_to_the_next() -> None:
    """d is past the results until b makes room for it; c falls to a at 0.5, and d, 65 degrees from a, does not."""
    found = limit_intervals(four())
    assert [stretch.results for stretch in found] == [("a", "b", "c"), ("a", "c"), ("a", "d")]
    assert [stretch.high for stretch in found] == [inf, pytest.approx(AB), pytest.approx(AC)]
    assert [stretch.low for stretch in found][:2] == [pytest.approx(AB), pytest.approx(AC)]
    assert [dict(stretch.dropped) for stretch in found] == [{}, {"b": "a", "d": "c"}, {"b": "a", "c": "a"}]


def test_each_result_falls_at_the_highest_limit_that_takes_it() -> None:
    found = limit_intervals(four())
    assert dedup_thresholds(found, 0) == [
        DedupThreshold("b", found[1].high, "a"),
        DedupThreshold("c", found[2].high, "a"),
    ]
    assert dedup_thresholds(found, 1) == [DedupThreshold("c", found[2].high, "a")]


def test_the_present_limit_stands_in_its_stretch() -> None:
    found = limit_intervals(four())
    for limit, place in ((0.99, 0), (0.98, 1), (0.51, 1), (0.5, 2), (0.1, 2)):
        assert current_interval(found, configured({"dedup.enabled": True, "dedup.similarity": limit})) == place
    assert current_interval(found, configured({"dedup.similarity": 0.1})) == 0  # dedup is off


def test_without_embeddings_no_limit_changes_anything() -> None:
    found = limit_intervals(trace(evidence({"vector": {"a": 0.9, "b": 0.8}})))
    assert [(stretch.high, stretch.results) for stretch in found] == [(inf, ("a", "b"))]


@given(st.lists(st.integers(0, 90), min_size=2, max_size=9), st.integers(1, 5), st.booleans())
def test_replays_at_both_ends_of_every_stretch_show_its_results(angles: list[int], limit: int, mmr: bool) -> None:
    subject = angled({f"m{i}": angle for i, angle in enumerate(angles)})
    config = configured({"assembly.limit": limit, "assembly.strategy": "mmr" if mmr else "greedy"})
    found = limit_intervals(replay(subject, config))
    for stretch in found:
        ends = [nextafter(stretch.low, inf)] + ([stretch.high] if stretch.high < inf else [])
        for value in ends:
            if -1 <= value <= 1:
                again = replay(subject, with_values(config, {"dedup.enabled": True, "dedup.similarity": value}))
                assert tuple(row.memory_id for row in again.results) == stretch.results
    assert all(above.low == below.high for above, below in pairwise_of(found))


def test_lambda_changes_where_score_and_overlap_weigh_the_same() -> None:
    """b says what a says: 0.8λ − (1 − λ) = 0.5λ at λ = 1/1.3."""
    words = {"a": {"content": "x y"}, "b": {"content": "x y"}, "c": {"content": "z"}}
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.5}}, memories=words)
    diverse, scored = lambda_intervals(trace(subject, {"assembly.limit": 2, "fusion.single_list": "bypass"}))
    assert (set(diverse.results), set(scored.results)) == ({"a", "c"}, {"a", "b"})
    assert (diverse.low, scored.high) == (0, 1)
    assert diverse.high == pytest.approx(1 / 1.3, abs=2e-4)
    assert scored.low == pytest.approx(1 / 1.3, abs=2e-4)
    assert 0 < scored.low - diverse.high <= 1e-4


def test_neighbours_with_the_same_results_are_one() -> None:
    rows = [
        ResultInterval(0.9, inf, ("a", "b"), {}),
        ResultInterval(0.8, 0.9, ("b", "a"), {"x": "y"}),
        ResultInterval(0.5, 0.8, ("a",), {}),
    ]
    assert [(stretch.low, stretch.high) for stretch in merged(rows)] == [(0.8, inf), (0.5, 0.8)]


def test_values_to_apply_have_as_few_decimals_as_fit() -> None:
    assert limit_value(ResultInterval(0.8045, 0.8191, (), {})) == 0.81
    assert limit_value(ResultInterval(0.8149, 0.814957, (), {})) == pytest.approx(0.81495)
    assert limit_value(ResultInterval(0.7, 0.75, (), {})) == 0.75  # the upper end belongs to it
    assert limit_value(ResultInterval(0.9, inf, (), {})) is None
    assert lambda_value(ResultInterval(0.31, 0.42, (), {})) == 0.4
    assert lambda_value(ResultInterval(0.3342, 0.3349, (), {})) == pytest.approx(0.3345, abs=1e-4)
