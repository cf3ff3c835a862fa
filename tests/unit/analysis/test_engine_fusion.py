"""An engine's fused answer beside our fusion, worked out by hand: equal scores are ties, in whichever order an engine leaves them."""

from __future__ import annotations

import pytest

from cems_workbench.analysis.engine_check import compared

OURS = [("a", 0.9), ("b", 0.8), ("c", 0.7), ("d", 0.6)]


@pytest.mark.parametrize(
    ("engine", "cut", "sorts", "words"),
    [
        ([("a", 5.0), ("b", 4.0), ("c", 3.0)], False, ("", "", ""), "the same first 3"),
        ([("a", 5.0), ("c", 4.0), ("b", 4.0)], False, ("", "", "cb"), "the same first 3, 2 only tied"),
        (
            [("a", 5.0), ("c", 4.0), ("b", 3.0)],
            False,
            ("", "cb", ""),
            "the same first 3, 2 at other places",
        ),
        (
            [("b", 5.0), ("c", 4.0), ("a", 4.0)],
            False,
            ("", "ba", "c"),
            "the same first 3, 2 at other places, 1 only tied",
        ),
        # d is our fourth: where the answer was cut, others may tie with it there, so that it may be fourth there too.
        ([("a", 5.0), ("b", 4.0), ("d", 3.0)], False, ("d", "", ""), "1 of the first 3 are others"),
        ([("a", 5.0), ("b", 4.0), ("d", 3.0)], True, ("", "", "d"), "the same first 3, 1 only tied"),
        ([("a", 5.0), ("x", 4.0), ("b", 4.0)], False, ("x", "", "b"), "1 of the first 3 are others, 1 only tied"),
    ],
)
def test_places_differ_unless_equal_scores_explain_them(engine, cut, sorts, words):
    found = compared("source_hybrid:0", engine, OURS, 10, cut)
    assert ("".join(found.others), "".join(found.moved), "".join(found.tied)) == sorts
    assert found.line == f"Fused by the source (source_hybrid:0) and fused here: {words}"


def test_our_equal_scores_are_ties_too() -> None:
    found = compared("source_hybrid:0", [("a", 5.0), ("b", 4.0)], [("b", 0.5), ("a", 0.5 + 1e-9)])
    assert (found.k, found.others, found.moved, found.tied) == (2, (), (), ("a", "b"))
