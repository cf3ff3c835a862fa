"""lists: which lists take part, how deep, and how lexical scores are made comparable (docs/internals/specification.md, "lists")."""

from __future__ import annotations

import pytest
from cases import column, dropped, evidence, falling, kept, stage, trace, warned

from cems_workbench.pipeline import Variant


def normalized(method: str, **scores: float) -> dict[str, float]:
    rows = stage("lists", evidence({"lexical": scores}), {"lists.lexical.normalization": method}).by_id
    return {key: row.lists[0].normalized for key, row in rows.items()}


def test_max_divides_by_the_largest_score() -> None:
    assert normalized("max", a=8.0, b=6.0, c=2.0) == {"a": 1.0, "b": 0.75, "c": 0.25}


def test_minmax_maps_the_smallest_to_zero_and_the_largest_to_one() -> None:
    assert normalized("minmax", a=8.0, b=5.0, c=2.0) == {"a": 1.0, "b": 0.5, "c": 0.0}


def test_minmax_of_equal_scores_is_one_for_all() -> None:
    assert normalized("minmax", a=3.0, b=3.0) == {"a": 1.0, "b": 1.0}


def test_saturating_is_s_over_one_plus_s() -> None:
    assert normalized("saturating", a=4.0, b=1.0, c=0.25) == pytest.approx({"a": 0.8, "b": 0.5, "c": 0.2}, abs=1e-15)


def test_none_leaves_scores_alone() -> None:
    assert normalized("none", a=8.0, b=5.5) == {"a": 8.0, "b": 5.5}


def test_a_list_is_cut_to_its_depth_before_it_is_normalised() -> None:
    subject = evidence({"lexical": {"a": 8.0, "b": 4.0, "c": 2.0}})
    rows = stage("lists", subject, {"lists.lexical.normalization": "minmax", "lists.lexical.depth": 2}).by_id
    assert rows["b"].lists[0].normalized == 0.0  # the smallest of the two that are left, not (4 − 2) / (8 − 2)
    assert rows["c"].lists[0].normalized is None
    assert rows["c"].reason == "lexical: rank 3 is past the depth 2"


@pytest.mark.parametrize("method", ["max", "minmax"])
def test_a_lexical_list_of_one_hit_warns_that_it_is_always_one(method: str) -> None:
    subject = evidence({"lexical": {"a": 0.01}, "vector": {"b": 0.5}})
    assert warned(stage("lists", subject, {"lists.lexical.normalization": method}), "lexical has one hit")
    assert not warned(stage("lists", subject, {"lists.lexical.normalization": "saturating"}), "one hit")


def test_negative_cosines_are_kept_raw_with_a_warning() -> None:
    lists = stage("lists", evidence({"vector": {"a": 0.5, "b": -0.2}}))
    assert lists.by_id["b"].lists[0].raw == -0.2
    assert lists.by_id["b"].lists[0].normalized == -0.2
    assert warned(lists, "1 negative cosine")


def test_cosines_are_spread_where_a_config_says_so_and_none_is_shown_raw() -> None:
    subject = evidence({"vector": {"a": 0.5, "b": 0.1, "c": -0.3}})
    lists = stage("lists", subject, {"lists.vector.normalization": "minmax"})
    assert [lists.by_id[key].lists[0].normalized for key in "abc"] == [1.0, 0.5, 0.0]
    assert not warned(lists, "negative cosine")


def test_a_disabled_list_takes_no_part_and_says_so() -> None:
    subject = evidence({"vector": {"a": 0.5}, "lexical": {"b": 3.0}})
    lists = stage("lists", subject, {"lists.lexical.enabled": False})
    assert kept(lists) == ["a"]
    assert dropped(lists) == {"b": "lexical: list is off"}


def test_a_variant_that_is_switched_off_takes_its_lists_with_it() -> None:
    subject = evidence(
        {"vector": {"a": 0.5}, "vector@1": {"b": 0.6}}, variants=(Variant("query"), Variant("other", "expansion"))
    )
    assert kept(trace(subject, switched_off=[1]).stage("lists")) == ["a"]
    assert sorted(kept(trace(subject).stage("lists"))) == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "depth"),
    [
        ({"lists.vector.depth": 3}, 3),
        ({"lists.vector.depth": 30}, 12),
        ({"lists.vector.depth": None}, 12),
        (
            {
                "lists.vector.depth": 3,
                "lists.first_stage_factor": 2,
                "lists.vector.first_stage_factor": 2,
                "assembly.limit": 2,
            },
            8,
        ),
        ({"lists.vector.depth": 3, "rerank.oversample_factor": 3.0, "assembly.limit": 2}, 6),
        ({"lists.vector.depth": 10, "rerank.oversample_factor": 3.0, "assembly.limit": 2}, 10),
        ({"lists.vector.depth": 1, "rerank.oversample_factor": 1.5, "assembly.limit": 3}, 5),
    ],
    ids=["cut", "short", "unlimited", "coarse", "oversample", "deeper-anyway", "oversample-rounds-up"],
)
def test_depth_is_the_largest_of_depth_coarse_fetch_and_oversampling(changes: dict[str, object], depth: int) -> None:
    assert stage("lists", evidence({"vector": falling(12)}), changes).candidates_out == depth


def test_empty_lists_are_no_error() -> None:
    result = trace(evidence({"vector": {}, "lexical": {}}))
    assert result.results == []
    assert warned(result.stage("lists"), "vector is empty")


def test_no_lists_at_all_give_an_empty_result() -> None:
    result = trace(evidence({}))
    assert result.results == []
    assert result.tokens_used == 0
    assert {stage.candidates_in for stage in result.stages} == {0}


def test_score_is_the_best_list_score() -> None:
    subject = evidence({"vector": {"a": 0.3}, "lexical": {"a": 4.0, "b": 8.0}})
    assert column(stage("lists", subject), "score") == {"a": 0.5, "b": 1.0}
