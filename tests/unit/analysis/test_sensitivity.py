"""Sensitivity against breakpoints worked out by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cems_workbench.analysis.sensitivity.exact import BoundarySearch
from cems_workbench.analysis.sensitivity.scan import sweep
from cems_workbench.config import PipelineConfig, field_spec, with_values
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.records import Memory

NOW = datetime(2026, 9, 1, tzinfo=UTC)
BARE: dict[str, Any] = {
    "fusion.top_rank_bonus.rank1": 0.0,
    "fusion.top_rank_bonus.rank2_3": 0.0,
    "fusion.normalize": "none",
    "fusion.score_blend": 0.0,
    "filter.min_score": None,
    "adjust.priority": False,
    "adjust.time_decay.mode": "none",
    "adjust.project.enabled": False,
    "adjust.clamp": False,
    "variants.original_weight": 1.0,
    "assembly.strategy": "greedy",
}


def evidence(lists: dict[str, list[tuple[str, float]]], ages: dict[str, float] | None = None, **extra: Any) -> Evidence:
    ids = {key for hits in lists.values() for key, _ in hits}
    ages = ages or {}
    memories = {
        key: Memory(id=key, content="x" * 40, last_accessed=NOW - timedelta(days=ages.get(key, 0))) for key in ids
    }
    ranked = tuple(
        RankedList(f"{source}:0", source, 0, tuple(Hit(*hit) for hit in hits))  # type: ignore[arg-type]
        for source, hits in lists.items()
    )
    return Evidence(query="q", memories=memories, variants=(Variant("q"),), lists=ranked, as_of=NOW, **extra)


CROSSED = evidence({"vector": [("a", 0.9), ("b", 0.8), ("c", 0.7)], "lexical": [("b", 9.0), ("c", 5.0), ("a", 4.0)]})


def config(**values: Any) -> PipelineConfig:
    return with_values(PipelineConfig(), BARE | {path.replace("__", "."): value for path, value in values.items()})


def test_a_list_weight_has_its_breakpoints_where_two_fused_scores_are_equal() -> None:
    """a = w/61 + 1/63, b = w/62 + 1/61, c = w/63 + 1/62; a = b at w (1/61 - 1/62) = 1/61 - 1/63, so w = 124/63.

    a = c at w (1/61 - 1/63) = 1/62 - 1/63, so w = 61/124; b stays above c.
    """
    found = sweep(CROSSED, config(), "lists.vector.weight", 3)
    assert found.method == "solved"
    assert [one.results for one in found.segments] == [("b", "c", "a"), ("b", "a", "c"), ("a", "b", "c")]
    values = [point.value for point in found.breakpoints]
    assert values == pytest.approx([61 / 124, 124 / 63], abs=1e-8)
    swapped = found.breakpoints[1]
    assert (swapped.entered, swapped.left, swapped.moved) == ([], [], ["a", "b"])
    assert found.present.results == ("b", "a", "c")


def test_only_the_first_k_count() -> None:
    found = sweep(CROSSED, config(), "lists.vector.weight", 1)
    assert [one.results for one in found.segments] == [("b",), ("a",)]
    assert (found.breakpoints[0].entered, found.breakpoints[0].left) == (["a"], ["b"])


def test_with_minmax_the_normalised_scores_cross_where_the_blend_says() -> None:
    """Only the lexical weight counts: raw 1/61, 1/62, 1/63, minmax 1, 61/124, 0. Best list scores: a 3/4 (saturating), b 0.9.

    1 - s + 0.75 s = (1 - s) 61/124 + 0.9 s at s = (63/124) / (63/124 + 0.15).
    """
    two = evidence({"lexical": [("a", 3.0), ("b", 2.0), ("c", 1.0)], "vector": [("b", 0.9), ("a", 0.5), ("c", 0.1)]})
    values = {"fusion.normalize": "minmax", "lists.vector.weight": 0.0, "lists.lexical.normalization": "saturating"}
    crossing = (63 / 124) / (63 / 124 + 0.15)
    found = sweep(two, with_values(config(), values), "fusion.score_blend", 2)
    assert found.method == "solved"
    assert [point.value for point in found.breakpoints] == pytest.approx([crossing], abs=1e-8)


def test_a_dropped_score_is_a_breakpoint_of_the_minimum() -> None:
    one_list = evidence({"vector": [("a", 0.9), ("b", 0.8)]})
    found = sweep(one_list, config(fusion__normalize="none"), "filter.min_score", 5)
    assert [point.value for point in found.breakpoints] == pytest.approx([1 / 62, 1 / 61])
    assert [len(one.results) for one in found.segments] == [2, 1, 0]
    assert found.off is not None and found.off.results == ("a", "b") == found.present.results


def test_a_drop_by_a_later_stage_is_a_breakpoint_of_a_weight() -> None:
    """a = w/61, c = w/62 and b = 1/61, with everything below half of the top dropped: a comes in at w = 1/2 and c at 31/61;

    a passes b at 1 and c does at 62/61; b is dropped past w = 2.
    """
    two = evidence({"vector": [("a", 0.9), ("c", 0.7)], "lexical": [("b", 9.0)]})
    found = sweep(two, config(gap__ratio=0.5, gap__keep=0), "lists.vector.weight", 3)
    assert found.method == "solved"
    results = ["".join(one.results) for one in found.segments]
    assert results == ["b", "ba", "bac", "abc", "acb", "ac"]
    values = [point.value for point in found.breakpoints]
    assert values == pytest.approx([1 / 2, 31 / 61, 1.0, 62 / 61, 2.0], abs=1e-7)


def test_half_life_hyperbolic_crosses_where_the_decayed_scores_are_equal() -> None:
    """a 1/61 at 2 days, b 1/62 at 0 days: h/(h + 2)/61 = 1/62 at h = 122."""
    aged = evidence({"vector": [("a", 0.9), ("b", 0.8)]}, {"a": 2})
    decayed = config(adjust__time_decay__mode="hyperbolic")
    found = sweep(aged, decayed, "adjust.time_decay.half_life_days", 2)
    assert found.method == "solved"
    assert [point.value for point in found.breakpoints] == pytest.approx([122], abs=1e-6)


def test_half_life_exponential_crosses_where_the_decayed_scores_are_equal() -> None:
    """0.5 ** (2/h) / 61 = 1/62 at h = 2 ln 2 / ln(62/61)."""
    aged = evidence({"vector": [("a", 0.9), ("b", 0.8)]}, {"a": 2})
    decayed = config(adjust__time_decay__mode="exponential")
    found = sweep(aged, decayed, "adjust.time_decay.half_life_days", 2)
    assert found.method == "solved"
    assert [point.value for point in found.breakpoints] == pytest.approx(
        [2 * math.log(2) / math.log(62 / 61)], abs=1e-6
    )


def test_a_token_budget_has_a_breakpoint_where_one_more_memory_fits() -> None:
    """Three memories of 10 tokens each; the slider begins at 100, so the present budget of 5 widens the range."""
    found = sweep(CROSSED, config(assembly__max_tokens=5), "assembly.max_tokens", 3)
    assert found.method == "solved"
    assert [(point.below, point.above) for point in found.breakpoints] == [(9, 10), (19, 20), (29, 30)]


def test_a_similarity_has_a_breakpoint_at_the_cosine_of_two_neighbours() -> None:
    vectors = {"a": [1.0, 0.0], "b": [0.6, 0.8], "c": [0.0, 1.0]}  # cosines 0.6, 0.8 and 0
    found = sweep(
        evidence({"vector": [("a", 0.9), ("b", 0.8), ("c", 0.7)]}, embeddings=vectors),
        config(dedup__enabled=True),
        "dedup.similarity",
        3,
    )
    assert found.method == "solved"
    assert [one.results for one in found.segments] == [("a", "c"), ("a", "b"), ("a", "b", "c")]
    assert [point.value for point in found.breakpoints] == pytest.approx([0.6, 0.8], abs=1e-8)


def test_every_value_of_a_switch_a_choice_and_a_small_whole_number_is_replayed() -> None:
    methods = sweep(CROSSED, config(), "fusion.method", 3)
    assert [one.first for one in methods.segments] == [*field_spec("fusion.method").choices]
    assert (methods.method, methods.breakpoints, methods.present.first) == ("every value", [], "rrf")
    switch = sweep(CROSSED, config(), "lists.lexical.enabled", 3)
    assert {one.first: one.results for one in switch.segments} == {False: ("a", "b", "c"), True: ("b", "a", "c")}
    limit = sweep(CROSSED, config(), "assembly.limit", 3)
    assert [(point.below, point.above) for point in limit.breakpoints] == [(1, 2), (2, 3)]
    assert (limit.method, limit.replays, limit.now) == ("every value", 51, 10)


def test_a_parameter_of_a_part_that_is_off_changes_nothing_and_that_is_certain() -> None:
    found = sweep(CROSSED, config(), "threshold.adaptive.min", 3)
    assert (found.method, found.breakpoints) == ("solved", [])


def test_what_is_no_line_is_bracketed_to_the_stated_tolerance() -> None:
    """combmax: b = max(0.8 w, 1), a = max(0.9 w, 4/9): a passes b at w = 1/0.9."""
    found = sweep(CROSSED, config(fusion__method="combmax"), "lists.vector.weight", 2)
    assert (found.method, found.tolerance) == ("bracketed", pytest.approx(3e-6))
    first = next(point for point in found.breakpoints if point.after[0] == "a")
    assert first.below <= 1 / 0.9 <= first.above and first.above - first.below <= 3e-6


def test_candidates_that_were_never_scored_are_counted() -> None:
    scores = {"cross_encoder": {"a": ModelScore(1.0)}}
    reranked = config(rerank__backend="cross_encoder", rerank__raw_scale="sigmoid", rerank__depth=2)
    found = sweep(
        evidence({"vector": [("a", 0.9), ("b", 0.8), ("c", 0.7)]}, model_scores=scores), reranked, "fusion.k", 2
    )
    assert found.unscored == 1


def test_the_present_value_on_a_tie_is_a_segment_of_its_own() -> None:
    """Mirrored lists at equal weights: three pairs meet at once, ties fall by id, on either side by the heavier list."""
    mirrored = evidence(
        {
            "vector": [("b", 0.9), ("a", 0.8), ("d", 0.7), ("c", 0.6)],
            "lexical": [("a", 9.0), ("b", 8.0), ("c", 7.0), ("d", 6.0)],
        }
    )
    found = sweep(mirrored, config(), "lists.vector.weight", 4)
    assert found.present.results == ("a", "b", "c", "d")
    assert found.segments[-1].results == ("b", "a", "d", "c")
    assert found.segments[-1].first == pytest.approx(1, abs=1e-6)


def test_closing_in_finds_each_change_between_two_samples() -> None:
    calls: list[float] = []

    def results(value: float) -> tuple[str, ...]:
        calls.append(value)
        return (str(sum(value > edge for edge in (0.21, 0.5, 0.77))),)

    segments, searched = BoundarySearch(results, 1e-6, False, 1e-9).segments([0.0, 1.0])
    assert [one.results for one in segments] == [("0",), ("1",), ("2",), ("3",)]
    assert searched == 1
    for one, edge in zip(segments[1:], (0.21, 0.5, 0.77), strict=True):
        assert edge < one.first <= edge + 1e-6
    assert len(calls) < 400
