"""What benchmarks/deeper_pool.py draws, and how it says that a place changed."""

from __future__ import annotations

import numpy as np

from benchmarks.deeper_pool import Row, by_score, places, unjudged
from cems_workbench.pipeline import Evidence, ModelScore
from cems_workbench.records import Judgment


def test_what_nobody_judged_is_drawn_by_id_whoever_returned_it() -> None:
    judged = [Judgment("q2", "b", 0), Judgment("q1", "a", 3, "deeper-pool", "model")]
    assert unjudged({"q2": {"c", "b", "a"}, "q1": {"a"}}, judged) == [("q2", "a"), ("q2", "c")]


def test_a_reranker_alone_orders_what_it_scored_and_leaves_out_what_failed() -> None:
    scores = {
        "low": ModelScore(-1.0),
        "tied": ModelScore(2.0),
        "best": ModelScore(2.0),
        "lost": ModelScore(None, error="x"),
    }
    assert by_score(Evidence("q", {}, model_scores={"m": scores}), "m") == ["best", "tied", "low"]


def test_a_place_changes_where_the_order_of_two_means_does() -> None:
    def row(name: str, before: list[float], after: list[float]) -> Row:
        values = [np.stack([np.array(of)] * 2, axis=1) for of in (before, after)]
        return Row(name, *values)

    unknown = float("nan")
    still = [row("a", [0.9, 0.5], [0.8, 0.5]), row("b", [0.4, 0.4], [0.4, 0.4])]
    assert places(still, 0) == "By nDCG@10 every place stays as it was."
    moved = [*still, row("c", [0.3, unknown], [0.7, unknown]), row("d", [0.3, 0.3], [0.65, 0.65])]
    said = "By hit@5 these change: c is above a; a and d are level; c is above b; d is above b; c is no longer level with, but above d."
    assert places(moved, 1) == said
