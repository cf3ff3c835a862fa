"""An engine's fused answer beside our fusion, worked out by hand: equal scores are ties, in whichever order an engine leaves them."""

from __future__ import annotations

import pytest

from cems_workbench.analysis.engine_fusion import compared

OURS = [("a", 0.9), ("b", 0.8), ("c", 0.7), ("d", 0.6)]


@pytest.mark.parametrize(
    ("engine", "cut", "different", "tied", "words"),
    [
        ([("a", 5.0), ("b", 4.0), ("c", 3.0)], False, "", "", "the same first 3"),
        ([("a", 5.0), ("c", 4.0), ("b", 4.0)], False, "", "cb", "the same first 3 but for ties of 2"),
        ([("a", 5.0), ("c", 4.0), ("b", 3.0)], False, "cb", "", "2 of the first 3 differ"),
        ([("b", 5.0), ("c", 4.0), ("a", 4.0)], False, "ba", "c", "2 of the first 3 differ, 1 only by a tie"),
        # d is not among our first three, and c not among the engine's: where the answer was cut, c may tie with d there.
        ([("a", 5.0), ("b", 4.0), ("d", 3.0)], False, "dc", "", "2 of the first 3 differ"),
        ([("a", 5.0), ("b", 4.0), ("d", 3.0)], True, "", "dc", "the same first 3 but for ties of 2"),
        ([("a", 5.0), ("x", 4.0), ("b", 4.0)], False, "xc", "b", "2 of the first 3 differ, 1 only by a tie"),
    ],
)
def test_places_differ_unless_equal_scores_explain_them(
    engine: list[tuple[str, float]], cut: bool, different: str, tied: str, words: str
) -> None:
    found = compared("source_hybrid:0", engine, OURS, 10, cut)
    assert ("".join(found.different), "".join(found.tied)) == (different, tied)
    assert found.line == f"Fused by the source (source_hybrid:0) and fused here: {words}"


def test_our_equal_scores_are_ties_too() -> None:
    found = compared("source_hybrid:0", [("a", 5.0), ("b", 4.0)], [("b", 0.5), ("a", 0.5 + 1e-9)])
    assert (found.k, found.different, found.tied) == (2, (), ("a", "b"))
