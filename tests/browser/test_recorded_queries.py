"""A log of production: its queries are picked on Inspect with their answers beside the trace, and held against configs on Evaluate."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from cems_workbench.formats import read
from tests.sample import copied

from .conftest import serving
from .pages import Inspect, Window, cells, column, window_on

pytestmark = [pytest.mark.browser, pytest.mark.models]
RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "sample_cut.json"
EMPTY = "what was never answered at all?"


@pytest.fixture(scope="module")
def logged(windows: BrowserContext, sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    """A window on a store with a log of ten answers that CEMS gave, and one that was empty."""
    folder = tmp_path_factory.mktemp("logged")
    answers = json.loads(RECORDING.read_text())["answers"]
    rows = [
        {
            "time": f"2026-11-22T10:{n:02}:00Z",
            "query": answer["query"],
            "project": answer["project"],
            "results": answer["results"],
        }
        for n, answer in enumerate(answers)
    ]
    log = folder / "production.jsonl"
    log.write_text("\n".join(map(json.dumps, [*rows, {"query": EMPTY, "results": []}])))
    with copied(sample_store, folder) as store:
        assert store.add(read(log)).errors == ()
    with serving(folder / "store") as url, window_on(windows, url) as window:
        yield window


def test_a_recorded_query_is_picked_with_its_answer_beside_the_trace(logged: Window) -> None:
    inspect = Inspect.open(logged)
    with logged.rerun():
        logged.page.get_by_role("button", name=re.compile("11 recorded queries")).click()
    logged.choose("Queries", "production · 11 recorded")
    listed = cells(logged.table())
    queries, scores = column(listed, "query"), [float(score) for score in column(listed, "top score")[1:]]
    assert queries[0] == EMPTY
    assert scores == sorted(scores)
    logged.press("Compare with this config")
    expect(logged.table().locator("table tr").first).to_contain_text("RBO")  # it is told after it is painted
    listed = cells(logged.table())
    near = [float(rbo) for rbo in column(listed, "RBO")[1:]]
    assert near == sorted(near)
    picked = column(listed, "query")[1]
    logged.pick_row(logged.table(), 1)
    expect(inspect.query).to_have_value(picked)
    asked = next(answer for answer in json.loads(RECORDING.read_text())["answers"] if answer["query"] == picked)
    tables = [cells(table) for table in logged.page.get_by_test_id("stDataFrame").all()]
    placed = next(table for table in tables if "lost at" in table[0])
    assert column(placed, "memory")[: len(asked["results"])] == [row["id"] for row in asked["results"]]


def test_a_kept_set_is_held_against_a_config(logged: Window) -> None:
    logged.open("evaluate")
    logged.view("Recorded answers")
    logged.choose("Query sets with recorded answers", "production · 11 answers")
    logged.page.keyboard.press("Escape")
    logged.page.get_by_role("button", name="Gather", exact=True).click()
    expect(logged.page.get_by_text("Not gathered yet")).to_have_count(0)
    logged.settled()
    assert column(cells(logged.table(0)), "answers") == ["production, cems_head"]
    assert column(cells(logged.table(1)), "query")[0] == EMPTY
    logged.view("Lowest recorded score first")
    lowest = min(
        json.loads(RECORDING.read_text())["answers"], key=lambda answer: max(row["score"] for row in answer["results"])
    )
    expect(logged.table(1).locator("table tr").nth(2)).to_contain_text(lowest["query"])
    scores: list[float] = []
    for _ in range(200):  # the cells are told after they are painted, some before others
        scores = [float(score) for score in column(cells(logged.table(1)), "top score")[1:]]
        if scores == sorted(scores):
            break
        logged.page.wait_for_timeout(50)
    assert scores == sorted(scores)
    for width, scheme in ((900, "dark"), (1440, "light")):
        logged.resize(width, scheme)
        logged.expect_fit(f"{width} wide, {scheme}")
