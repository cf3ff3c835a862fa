"""Tables of a tuning result: contents, and escaping."""

from __future__ import annotations

import pytest

from cems_workbench.jobs.tuning_summary import GainRow, stable_words, verdict
from cems_workbench.tuning.holdout import Gain
from cems_workbench.tuning.learned import Region
from cems_workbench.tuning.space import Axis
from cems_workbench.ui.tune.result import axes_html, gains_html


def a_gain(low: float, high: float, p: float) -> Gain:
    middle = (low + high) / 2
    return Gain(40, 0.4, 0.4 + middle, low, high, p)


@pytest.mark.parametrize(
    ("low", "high", "p", "word"),
    [
        (0.01, 0.05, 0.01, "▲ better"),
        (-0.05, -0.01, 0.01, "▼ worse"),
        (-0.01, 0.05, 0.3, "not certain"),
        (0, 0, 1, "= same"),
    ],
)
def test_a_verdict_is_sign_and_certainty(low: float, high: float, p: float, word: str) -> None:
    assert verdict(a_gain(low, high, p)) == word


@pytest.mark.parametrize(
    ("region", "words"),
    [
        (Region("x", 0.5, 0.4, 1.2), "0.4 to 1.2"),
        (Region("x", 0.5, 0.0, 1.2, at_low_edge=True), "up to 1.2"),
        (Region("x", 0.5, 0.4, 3.0, at_high_edge=True), "from 0.4 on"),
        (Region("x", 0.5, 0.0, 3.0, True, True), "any value"),
        (Region("x", "max", choices=("max", "none")), "max, none"),
        (None, "–"),
    ],
)
def test_a_region_is_said_by_where_it_ends(region: Region | None, words: str) -> None:
    assert stable_words(region) == words


def test_what_was_searched_on_has_no_p_and_what_is_sealed_no_numbers() -> None:
    table = gains_html(
        [GainRow("seen", "", a_gain(0.01, 0.05, 0.0123), fair=False), GainRow("sealed", "", None, "9 queries")],
        "nDCG@10",
    )
    assert "0.0123" not in table
    assert "better" not in table
    assert "9 queries" in table


def test_intervals_stand_on_one_scale_with_zero_in_the_middle() -> None:
    table = gains_html([GainRow("a", "", a_gain(0.0, 0.1, 0.01)), GainRow("b", "", a_gain(-0.1, 0.0, 0.01))], "hit@5")
    assert 'style="left:50.00%;width:46.30%"' in table  # 0 to 0.1, where 0.108 is the edge
    assert 'style="left:3.70%;width:46.30%"' in table


def test_names_and_values_are_shown_and_not_read() -> None:
    evil = "<img src=x onerror=alert(1)>"
    table = axes_html([Axis("a", choices=(evil, "b"))], [evil], [evil], ["b"], []) + gains_html(
        [GainRow(evil, evil, None, evil)], evil
    )
    assert "<img" not in table
