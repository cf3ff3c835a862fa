"""Progress texts: count and time left."""

from __future__ import annotations

import pytest

from cems_workbench.ui.kit.widgets import progress_text, time_left


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("embedding", 0, 2_000, 0.0), "embedding: 0 of 2,000"),
        (("embedding", 500, 2_000, 10.0), "embedding: 500 of 2,000 · about 30 s left"),
        (("embedding", 10, 2_000, 10.0), "embedding: 10 of 2,000 · about 33 min left"),
        (("embedding", 1_000, 2_000, 10.0, 500), "embedding: 1,000 of 2,000 · about 20 s left"),
        (("embedding", 2_000, 2_000, 10.0), "embedding: 2,000 of 2,000"),
        (("reading x", 50, 200, 0.1), "reading x: 25 %"),
        (("embedding", 0, 0, 0.0), "embedding"),
    ],
)
def test_progress_has_a_count_and_an_estimate(arguments: tuple[str, int, int, float], text: str) -> None:
    assert progress_text(*arguments) == text


def test_no_time_left_is_told_while_it_would_be_a_guess() -> None:
    assert time_left(1.0, 10, 10) == ""
    assert time_left(3.0, 0, 10) == ""
    assert time_left(3.0, 10, 10) == " · about 3 s left"
