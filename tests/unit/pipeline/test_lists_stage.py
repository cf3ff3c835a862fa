"""lists: which lists take part, how deep, and how lexical scores are made comparable (docs/internals/specification.md, "lists")."""

from __future__ import annotations

import numpy as np
import pytest
from cases import column, configured, dropped, evidence, falling, kept, stage, trace, warned

from cems_workbench.pipeline import Variant
from cems_workbench.pipeline.list_scores import VECTOR_SCALES, cosine_remarks


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


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("cosine", [0.9, 0.0, -1.0]),
        ("half_cosine", [0.95, 0.5, 0.0]),
        ("inverse_l2", [1 / 1.2, 1 / 3, 0.2]),
        ("negative_distance", [-0.1, -1.0, -2.0]),
    ],
)
def test_vector_scores_are_on_the_scale_and_evidence_keeps_cosines(scale: str, expected: list[float]) -> None:
    """inverse_l2 by the squared distance of unit vectors: 1 / (1 + 2 - 2 · 0.9); mem0 on Chroma gives an opposite vector 0.2."""
    lists = stage("lists", evidence({"vector": {"a": 0.9, "b": 0.0, "c": -1.0}}), {"lists.vector.scale": scale})
    assert [lists.by_id[key].lists[0].normalized for key in "abc"] == pytest.approx(expected, abs=1e-15)
    assert [lists.by_id[key].lists[0].raw for key in "abc"] == [0.9, 0.0, -1.0]
    assert warned(lists, "negative cosine") == (scale == "cosine")


def test_a_vector_list_is_normalised_after_it_is_scaled() -> None:
    """`max` of a negative scale would turn the order round, so it leaves the scores; of a positive one it divides by 0.95."""
    subject = evidence({"vector": {"a": 0.9, "b": 0.0}})
    changes = {"lists.vector.normalization": "max", "lists.vector.scale": "half_cosine"}
    assert stage("lists", subject, changes).by_id["b"].lists[0].normalized == pytest.approx(0.5 / 0.95, rel=1e-15)


@pytest.mark.parametrize(
    ("score", "cosine"),
    [(0.95, "0.9"), (0.75, "0.5"), (0.60, "0.2"), (0.50, "0"), (0.40, "-0.2"), (0.35, "-0.3")],
)
def test_a_threshold_says_what_it_is_as_a_cosine(score: float, cosine: str) -> None:
    """The table of Neo4j's scores in MEMORY_AGENT.md."""
    changes = {"lists.vector.scale": "half_cosine", "threshold.mode": "fixed", "threshold.fixed": score}
    assert cosine_remarks(configured(changes)) == {"threshold.fixed": f"as a cosine: {cosine}"}
    assert cosine_remarks(configured({**changes, "lists.vector.scale": "cosine"})) == {}
    subject = evidence({"vector": {"a": 2 * score - 1.1, "b": 1.0}})
    (reason,) = dropped(stage("threshold", subject, changes)).values()
    assert reason.endswith(f"is below the threshold {score:.4g} (as a cosine: {cosine})")


@pytest.mark.parametrize(
    ("scale", "score", "words"),
    [
        ("inverse_l2", 0.1, "below -1, so that every vector passes"),
        ("half_cosine", 1.5, "2, which no vector reaches"),
        ("negative_distance", -0.4, "0.6"),
    ],
)
def test_a_threshold_outside_the_scale_says_so(scale: str, score: float, words: str) -> None:
    config = configured({"lists.vector.scale": scale, "threshold.mode": "adaptive", "threshold.adaptive.max": score})
    assert cosine_remarks(config)["threshold.adaptive.max"] == f"as a cosine: {words}"


@pytest.mark.parametrize("scale", VECTOR_SCALES)
def test_the_cosine_of_a_score_is_the_one_it_was_made_of(scale: str) -> None:
    cosines = np.linspace(-0.99, 1, 41)
    scores = VECTOR_SCALES[scale].of_cosine(cosines)
    assert [VECTOR_SCALES[scale].cosine(float(score)) for score in scores] == pytest.approx(cosines.tolist(), abs=1e-12)
    assert (np.diff(scores) > 0).all()


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


def test_a_list_by_metadata_that_tells_nothing_apart_says_so_and_what_it_costs() -> None:
    subject = evidence({"vector": {"a": 0.9, "b": 0.8}, "access": {"a": 0.0, "b": 0.0}, "recency": {}})
    lists = stage("lists", subject, {"lists.access.enabled": True, "lists.recency.enabled": True})
    assert warned(
        lists, "access tells nothing apart: every candidate has a count of 0, and it gives all of them the same rank"
    )
    assert warned(lists, "recency is empty: no candidate has a date of creation, so its weight does nothing")
    by_id = {"lists.access.enabled": True, "lists.access.ties": "ordinal"}
    assert warned(stage("lists", subject, by_id), "its ranks are the order of ids")
    used = evidence({"vector": {"a": 0.9, "b": 0.8}, "access": {"a": 3.0, "b": 0.0}})
    assert not warned(stage("lists", used, by_id), "tells nothing apart")


def test_dates_of_lists_in_use_are_ranked_without_gaps() -> None:
    lists = {
        "vector": {"a": 0.9, "b": 0.8, "c": 0.7},
        "lexical": {"x": 3.0},
        "recency": {"x": 9.0, "c": 8.0, "b": 7.0, "a": 7.0},
    }
    changes = {"lists.lexical.enabled": False, "lists.recency.enabled": True, "lists.recency.ties": "competition"}
    subject = evidence(lists)
    gathered = stage("fusion", subject, changes)
    in_use = stage("fusion", subject, {**changes, "lists.metadata_ranks": "in_use"})
    ranks = [
        {row.memory_id: term.rank for row in fusion.rows for term in row.contributions if term.list == "recency"}
        for fusion in (gathered, in_use)
    ]
    assert ranks == [{"x": 1, "c": 2, "b": 3, "a": 3}, {"c": 1, "b": 2, "a": 2}]
    assert warned(stage("lists", subject, changes), "only in recency or access")
    assert not warned(stage("lists", subject, {**changes, "lists.metadata_ranks": "in_use"}), "only in recency")
    shallow = stage("fusion", subject, {**changes, "lists.metadata_ranks": "in_use", "lists.vector.depth": 1})
    assert {row.memory_id for row in shallow.kept} == {"a"}
