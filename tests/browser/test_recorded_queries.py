"""A log of production: queries are picked on Inspect with their recorded answers, and compared with configs on Evaluate."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from .conftest import EMPTY, RECORDING
from .pages import Inspect, Window, cells, column


@pytest.mark.thorough
def test_a_recorded_query_is_picked_with_its_answer_beside_the_trace(window: Window) -> None:
    inspect = Inspect.open(window)
    with window.rerun():
        window.page.get_by_role("button", name=re.compile("11 recorded queries")).click()
    window.choose("Queries", "production · 11 recorded")
    listed = cells(window.table())
    queries, scores = column(listed, "query"), [float(score) for score in column(listed, "top score")[1:]]
    assert queries[0] == EMPTY
    assert scores == sorted(scores)
    window.press("Compare with this config")
    expect(window.table().locator("table tr").first).to_contain_text(
        "RBO"
    )  # its accessible text is set after it is painted
    listed = cells(window.table())
    near = [float(rbo) for rbo in column(listed, "RBO")[1:]]
    assert near == sorted(near)
    picked = column(listed, "query")[1]
    window.pick_row(window.table(), 1)
    expect(inspect.query).to_have_value(picked)
    asked = next(answer for answer in json.loads(RECORDING.read_text())["answers"] if answer["query"] == picked)
    tables = [cells(table) for table in window.page.get_by_test_id("stDataFrame").all()]
    placed = next(table for table in tables if "lost at" in table[0])
    assert column(placed, "memory")[: len(asked["results"])] == [row["id"] for row in asked["results"]]


@pytest.mark.thorough
def test_a_kept_set_is_held_against_a_config(window: Window) -> None:
    window.open("evaluate")
    window.view("Recorded answers")
    window.choose("Query sets with recorded answers", "production · 11 answers")
    window.page.keyboard.press("Escape")
    window.page.get_by_role("button", name="Gather", exact=True).click()
    expect(window.page.get_by_text("Not gathered yet")).to_have_count(0)
    window.settled()
    assert column(cells(window.table(0)), "answers") == ["production, cems_head"]
    assert column(cells(window.table(1)), "query")[0] == EMPTY
    window.view("Lowest recorded score first")
    lowest = min(
        json.loads(RECORDING.read_text())["answers"], key=lambda answer: max(row["score"] for row in answer["results"])
    )
    expect(window.table(1).locator("table tr").nth(2)).to_contain_text(lowest["query"])
    scores: list[float] = []
    for _ in range(200):  # the accessible texts of cells are set after they are painted, in any order
        scores = [float(score) for score in column(cells(window.table(1)), "top score")[1:]]
        if scores == sorted(scores):
            break
        window.page.wait_for_timeout(50)
    assert scores == sorted(scores)
    for width, scheme in ((900, "dark"), (1440, "light")):
        window.resize(width, scheme)
        window.expect_fit(f"{width} wide, {scheme}")
