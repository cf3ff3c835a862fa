"""Scores of live vector lists: cosines of vectors of length 1, otherwise on their own scale, which no threshold on a cosine cuts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.live_engine import order_note, own_scale_remarks, rescaled, scale_note
from cems_workbench.store.sources import VectorLengths
from tests.unit.pipeline.cases import configured, evidence, kept, trace, warned

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
        "1 hit has no distance (NaN): left out",
        "1 hit has a vector of zeros, and no cosine: left out",
        "1 hit repeats an id of the list: left out",
    )


def test_notes_name_the_distance_and_the_lengths_only_where_they_matter() -> None:
    assert scale_note("cosine", UNEVEN) == order_note("cosine", UNEVEN) == order_note("l2", UNIT) == ""
    assert "lengths 0.5 to 2: scores of its live list are inner products" in scale_note("ip", UNEVEN)
    assert "given as cosines" in scale_note("l2", UNIT)
    assert order_note("ip", UNEVEN).startswith("by cosine; the source compares by inner product")


def test_thresholds_say_that_they_leave_the_live_list_alone_only_where_it_has_no_cosines() -> None:
    cut = configured({"threshold.mode": "fixed", "abstain.vector": 0.3, "filter.min_score": 0.1})
    assert own_scale_remarks(cut, "l2", UNIT) == own_scale_remarks(cut, "cosine", UNEVEN) == {}
    found = own_scale_remarks(cut, "ip", UNEVEN)
    assert list(found) == ["threshold.fixed", "abstain.vector"]
    assert found["abstain.vector"].endswith("which has inner products: vectors of lengths 0.5 to 2")


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
