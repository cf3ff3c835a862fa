"""lists, threshold and filter: which lists take part, how scores are made comparable, and what is cut (docs/internals/specification.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import configured, dropped, evidence, falling, kept, stage, trace, warned

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Variant, retrievers
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.list_sources import VECTOR_SCALES, cosine_remarks
from cems_workbench.pipeline.live_engine import order_note, rescaled, scale_note
from cems_workbench.pipeline.retrievers import RETRIEVERS, Retriever, SearchRequest, added_lists
from cems_workbench.store import Filter
from cems_workbench.store.sources import VectorLengths


@pytest.mark.parametrize(
    ("method", "scores", "expected"),
    [
        ("max", [8.0, 6.0, 2.0], [1.0, 0.75, 0.25]),
        ("minmax", [8.0, 5.0, 2.0], [1.0, 0.5, 0.0]),
        ("saturating", [4.0, 1.0, 0.25], [0.8, 0.5, 0.2]),
    ],
)
def test_normalisations_by_hand(method: str, scores: list[float], expected: list[float]) -> None:
    subject = evidence({"lexical": dict(zip("abc", scores, strict=True))})
    rows = stage("lists", subject, {"lists.lexical.normalization": method}).by_id
    assert [rows[key].lists[0].normalized for key in "abc"] == pytest.approx(expected, abs=1e-15)


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
        ("squared_l2", [0.2, 2.0, 4.0]),
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
    assert (np.diff(scores) * (-1 if scale == "squared_l2" else 1) > 0).all()


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


DEFAULT_STEPS = [0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35]


def fixed(value: float, **more: Any) -> dict[str, Any]:
    return {"threshold.mode": "fixed", "threshold.fixed": value, **more}


def adaptive(limit: int | None, **more: Any) -> dict[str, Any]:
    return {"threshold.mode": "adaptive", "assembly.limit": limit, **more}


@pytest.mark.parametrize(
    ("lists", "changes", "left"),
    [
        ({"vector": {"a": 0.7, "b": 0.6, "c": 0.5999}}, fixed(0.6), ["a", "b"]),
        # Not 0.6, which the seed's `threshold or 0.6` made of it: 0.1 stays, a negative cosine goes.
        ({"vector": {"a": 0.1, "b": 0.0, "c": -0.1}}, fixed(0.0), ["a", "b"]),
        ({"lexical": {"a": 10.0, "b": 6.0, "c": 5.0}}, fixed(0.6), ["a", "b"]),  # normalised
        (
            {"vector": {"a": 0.1}, "relations": {"r": 0.01}},
            fixed(0.5, **{"lists.relations.enabled": True, "threshold.applies_to": ["vector"]}),
            ["r"],
        ),
    ],
)
def test_a_fixed_threshold_keeps_scores_that_reach_it(lists, changes, left) -> None:
    threshold = stage("threshold", evidence(lists), changes)
    assert kept(threshold) == left and threshold.fields.search.final == changes["threshold.fixed"]
    best = {key: score for hits in lists.values() for key, score in hits.items()}
    for key, reason in dropped(threshold).items():
        score = best[key] / max(best.values()) if "lexical" in lists else best[key]
        assert reason == f"best list score {score:.4f} is below the threshold {changes['threshold.fixed']:.4g}"


def test_a_memory_cut_from_one_list_stays_through_another() -> None:
    subject = evidence({"vector": {"a": 0.2}, "lexical": {"a": 5.0}})
    row = stage("threshold", subject, fixed(0.6)).by_id["a"]
    assert row.kept
    assert [(entry.list, entry.kept) for entry in row.lists] == [("vector", False), ("lexical", True)]


def test_adaptive_stops_at_the_first_threshold_with_enough_memories() -> None:
    """int(5 · 0.8) = 4 memories: three reach 0.7, four reach 0.65."""
    subject = evidence({"vector": {"a": 0.9, "b": 0.72, "c": 0.7, "d": 0.65, "e": 0.6}})
    threshold = stage("threshold", subject, adaptive(5))
    assert threshold.fields.search.final == 0.65
    assert threshold.fields.search.visited == (0.75, 0.7, 0.65)
    assert threshold.fields.search.counts == (1, 3, 4)
    assert threshold.fields.search.unique == 4
    assert kept(threshold) == ["a", "b", "c", "d"]


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


UNIT = VectorLengths(4, 0, 1.0, 1.0)
UNEVEN = VectorLengths(4, 0, 0.5, 2.0)
NAN = float("nan")


@pytest.mark.parametrize("length", [1.0, 3.0])
def test_distances_and_products_to_vectors_of_length_one_become_cosines_in_the_same_order(length: float) -> None:
    rng = np.random.default_rng(7)
    stored = rng.normal(size=(9, 5))
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    query = rng.normal(size=5)
    query *= length / np.linalg.norm(query)
    cosine = stored @ query / length
    order = np.argsort(-cosine)
    by_distance = [(f"m{i}", -float(np.linalg.norm(stored[i] - query)), None) for i in order]
    by_product = [(f"m{i}", float(stored[i] @ query), None) for i in order]
    for hits, distance in ((by_distance, "l2"), (by_product, "ip")):
        found = rescaled(hits, query.astype(np.float32), distance, UNIT)  # type: ignore[arg-type]
        assert found.scale == "cosine" and [key for key, *_ in found.hits] == [f"m{i}" for i in order]
        assert [score for _, score, _ in found.hits] == pytest.approx(cosine[order].tolist(), abs=1e-6)


def test_vectors_of_other_lengths_keep_the_source_s_scores() -> None:
    hits = [("a", -0.5, None), ("b", -3.0, None)]
    assert rescaled(hits, np.ones(2, np.float32), "l2", UNEVEN) == (hits, "negated_distance", ())
    assert rescaled(hits, np.ones(2, np.float32), "ip", UNEVEN).scale == "product"
    assert rescaled(hits, np.ones(2, np.float32), "cosine", UNEVEN).scale == "cosine"


def test_hits_without_a_distance_of_zero_vectors_and_repeated_ids_are_left_out_and_counted() -> None:
    hits = [("a", 0.9, None), ("nan", NAN, None), ("zero", 0.5, None), ("a", 0.4, None), ("a", 0.3, 1)]
    found = rescaled(hits, np.ones(2, np.float32), "cosine", replace(UNIT, zeros=1), {"zero"})
    assert found.hits == [("a", 0.9, None), ("a", 0.3, 1)]
    assert found.left_out == (
        "hits left out, without a distance (NaN): 1",
        "hits left out, with a vector of zeros, which has no cosine: 1",
        "hits left out, with an id that came already: 1",
    )


def test_notes_name_the_distance_and_the_lengths_only_where_they_matter() -> None:
    assert scale_note("cosine", UNEVEN) == order_note("cosine", UNEVEN) == order_note("l2", UNIT) == ""
    assert "lengths 0.5 to 2: scores of its live list are inner products" in scale_note("ip", UNEVEN)
    assert "given as cosines" in scale_note("l2", UNIT)
    assert order_note("ip", UNEVEN).startswith("by cosine; the source compares by inner product")


def live(scale: str | None) -> Evidence:
    """Two lists, the vector one answered by a source on this scale; None: with cosines."""
    found = evidence({"vector": {"a": -1.0, "b": -2.0, "c": -7.0}})
    one = {"asked": 3, "returned": 3, "unknown": 0, "seconds": 0.0, **({"scale": scale} if scale else {})}
    note = {"source": "s", "kind": "chroma", "at": "2026-11-28T00:00:00+00:00", "lists": {found.lists[0].name: one}}
    return replace(found, notes={**found.notes, "engine": note})


def ranked(scale: str | None, changes: dict[str, Any]) -> list[str]:
    return [result.memory_id for result in trace(live(scale), changes).results]


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold.mode": "fixed", "threshold.fixed": 0.4},
        {"assembly.min_vector_score": 0.2},
        {"abstain.vector": 0.3},
        {"fusion.single_list": "bypass", "filter.min_score": 0.001},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_cuts_on_a_cosine_leave_a_list_on_another_scale_alone(changes: dict[str, Any]) -> None:
    assert ranked(None, changes) == []
    assert ranked("negated_distance", changes) == ["a", "b", "c"]


def test_trace_says_that_scores_are_no_cosines_and_cuts_normalised_ones() -> None:
    cut = {"threshold.mode": "fixed", "threshold.fixed": 0.4}
    found = trace(live("negated_distance"), cut)
    assert warned(
        found.stage("lists"), "vector has negated distances, not cosines: thresholds, blends and floors leave it alone"
    )
    assert warned(found.stage("threshold"), "the vector list has no cosines: it passes whole")
    assert ranked("negated_distance", {**cut, "lists.vector.normalization": "minmax"}) == ["a", "b"]
    assert kept(trace(live("negated_distance"), {"lists.vector.scale": "inverse_l2"}).stage("lists")) == ["a", "b", "c"]


SCORES = {"a": 0.91, "b": 0.73, "c": 0.5, "d": 0.42, "e": 0.11, "f": 0.02}
BYPASS: dict[str, Any] = {"fusion.single_list": "bypass"}


@pytest.mark.parametrize(
    ("scores", "changes", "left", "reason"),
    [
        (SCORES, {"filter.min_score": 0.42}, "abcd", "score 0.1100 is below the minimum 0.42"),
        ({"a": 0.5, "e": -0.5}, {"filter.min_score": None}, "ae", None),
        ({"a": 0.5, "e": -0.5}, {"filter.min_score": 0.0}, "a", "score -0.5000 is below the minimum 0"),
        # Left: 0.91, 0.73, 0.5, 0.42; their median is 0.615.
        (SCORES, {"filter.min_score": 0.4, "filter.percentile": 50.0}, "ab", "score 0.1100 is below the minimum 0.4"),
    ],
)
def test_filter_by_hand(scores: dict[str, float], changes: dict[str, Any], left: str, reason: str | None) -> None:
    found = stage("filter", evidence({"vector": scores}), {**BYPASS, **changes})
    assert "".join(kept(found)) == left and dropped(found).get("e") == reason
    assert dropped(found).get("c", "percentile 50, which is 0.6150").endswith("percentile 50, which is 0.6150")


@pytest.mark.parametrize("percent", [1, 10, 25, 33.3, 50, 66.6, 75, 90, 99, 100])
def test_percentile_interpolates_linearly_as_numpy_does(percent: float) -> None:
    floor = np.percentile(list(SCORES.values()), percent)
    expected = [key for key, score in SCORES.items() if score >= floor]
    found = stage("filter", evidence({"vector": SCORES}), {**BYPASS, "filter.percentile": float(percent)})
    assert kept(found) == expected
    for reason in dropped(found).values():
        assert reason.endswith(f"which is {floor:.4f}")


def test_dropping_everyone_warns() -> None:
    found = stage("filter", evidence({"vector": SCORES}), {**BYPASS, "filter.min_score": 2.0})
    assert kept(found) == []
    assert warned(found, "dropped every candidate")


def test_raw_mode_switches_the_filter_off_and_says_so() -> None:
    changes = {**BYPASS, "filter.min_score": 0.5, "filter.percentile": 90.0, "query.raw": True}
    found = stage("filter", evidence({"vector": SCORES}), changes)
    assert kept(found) == list(SCORES)
    assert warned(found, "raw mode")


def test_failing_retriever_of_ours_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(request: SearchRequest) -> Iterable[tuple[str, float]]:
        raise KeyError("no such column")

    monkeypatch.setattr(retrievers, "ADDED_LISTS", ("broken", "fine", "gone"))
    items = {
        "broken": Retriever("broken", search),
        "fine": Retriever("fine", lambda request: [("b", 1.0), ("a", 2.0), ("c", float("nan"))]),
    }
    monkeypatch.setattr(RETRIEVERS, "_items", items)
    request = SearchRequest("q", (), (), PipelineConfig(), None, Filter())  # type: ignore[arg-type]
    lists, warnings = added_lists(request, dict.fromkeys(("broken", "fine", "gone"), 50))
    assert [[hit.memory_id for hit in ranked.hits] for ranked in lists] == [[], ["a", "b"], []]
    assert warnings == [
        "broken failed: KeyError: 'no such column'",
        "retriever gone is not available; `doctor` says why",
    ]
