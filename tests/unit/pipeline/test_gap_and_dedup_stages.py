"""gap and dedup (docs/internals/specification.md)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from cases import column, dropped, evidence, kept, stage, warned

ALONE: dict[str, Any] = {"fusion.single_list": "bypass"}
DEDUP: dict[str, Any] = {**ALONE, "dedup.enabled": True}
LIST = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}


def test_gap_drops_below_a_share_of_the_top() -> None:
    subject = evidence({"vector": {"a": 0.8, "b": 0.41, "c": 0.4, "d": 0.39}})
    gap = stage("gap", subject, {**ALONE, "gap.ratio": 0.5, "gap.keep": 0})
    assert kept(gap) == ["a", "b", "c"]
    assert dropped(gap) == {"d": "score 0.3900 is below 0.5 × the top score 0.8000"}


@pytest.mark.parametrize(
    ("keep", "expected"), [(0, ["a"]), (1, ["a"]), (2, ["a", "b"]), (3, ["a", "b", "c"]), (9, ["a", "b", "c"])]
)
def test_gap_always_keeps_the_first(keep: int, expected: list[str]) -> None:
    subject = evidence({"vector": {"a": 0.8, "b": 0.2, "c": 0.1}})
    assert kept(stage("gap", subject, {**ALONE, "gap.ratio": 0.9, "gap.keep": keep})) == expected


def test_gap_of_zero_is_off() -> None:
    subject = evidence({"vector": {"a": 0.8, "b": -0.2}})
    assert kept(stage("gap", subject, {**ALONE, "gap.ratio": 0.0, "gap.keep": 0})) == ["a", "b"]


def test_dedup_names_the_better_ranked_memory_it_duplicates() -> None:
    embeddings = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.95, math.sqrt(1 - 0.95**2)], "d": [0.0, 2.0]}
    dedup = stage("dedup", evidence({"vector": LIST}, embeddings=embeddings), DEDUP)
    assert kept(dedup) == ["a", "b"]
    assert dedup.by_id["c"].duplicate_of == "a"
    assert dedup.by_id["c"].similarity == pytest.approx(0.95, abs=1e-12)
    assert dedup.by_id["d"].duplicate_of == "b"  # cosine, not dot product
    assert dedup.by_id["d"].reason == "duplicates b (cosine 1.000)"


def test_a_duplicate_of_a_dropped_memory_is_kept_when_it_differs_from_the_kept() -> None:
    """b is 0.92 to a and dropped; c is 0.92 to b but 0.693 to a, so c stays."""
    angle = math.acos(0.92)
    embeddings = {"a": [1.0, 0.0], "b": [0.92, math.sin(angle)], "c": [math.cos(2 * angle), math.sin(2 * angle)]}
    dedup = stage("dedup", evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.7}}, embeddings=embeddings), DEDUP)
    assert kept(dedup) == ["a", "c"]


def test_ranks_close_after_dropping() -> None:
    embeddings = {"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [0.0, 1.0], "d": [0.5, 0.5]}
    assert column(stage("dedup", evidence({"vector": LIST}, embeddings=embeddings), DEDUP), "rank_out") == {
        "a": 1,
        "c": 2,
        "d": 3,
        "b": None,
    }


def test_a_memory_without_embedding_is_kept_with_a_warning() -> None:
    dedup = stage("dedup", evidence({"vector": LIST}, embeddings={"a": [1.0, 0.0], "b": [1.0, 0.0]}), DEDUP)
    assert kept(dedup) == ["a", "c", "d"]
    assert warned(dedup, "2 candidates have no embedding")


def test_equal_vectors_are_duplicates_at_similarity_one() -> None:
    """The cosine of a vector with itself is 1, whatever rounding makes of its norm."""
    vector = [0.1, 0.2, 0.3]
    subject = evidence({"vector": LIST}, embeddings={key: list(vector) for key in LIST})
    assert kept(stage("dedup", subject, {**DEDUP, "dedup.similarity": 1.0})) == ["a"]


def test_dedup_is_off_by_default() -> None:
    subject = evidence({"vector": LIST}, embeddings={key: [1.0, 0.0] for key in LIST})
    assert kept(stage("dedup", subject, ALONE)) == ["a", "b", "c", "d"]
