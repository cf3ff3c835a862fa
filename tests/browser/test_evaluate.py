"""From a query set to a verdict and back into Inspect: gathered once, compared with significance, one click on a query.

By `make thorough`: the whole way comes through the page too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from .accessibility import MAIN, violations
from .pages import Inspect, Memories, Window, cells, column, standing, window_on

pytestmark = pytest.mark.thorough
QUERIES = 6
CONFIGS = ("cems", "recollection", "cems_head")


@pytest.fixture(scope="module")
def gathered(windows: BrowserContext, server: str) -> Iterator[Window]:
    """A window on Evaluate where three configs were gathered for a query set of six; shared by all tests here."""
    with window_on(windows, server) as window:
        window.open("evaluate")
        window.choose("Configs", CONFIGS[2])
        expect(window.page.get_by_text(f"Not gathered yet: {', '.join(CONFIGS)}.")).to_be_visible()
        window.page.keyboard.press("Escape")
        window.choose("Query set", re.compile("^six · "))
        expect(window.page.get_by_text(f"Each of {QUERIES} queries is searched once")).to_be_visible()
        window.page.get_by_role("button", name="Gather", exact=True).click()
        progress = window.page.get_by_test_id("stProgress").get_by_text(
            re.compile(rf"{CONFIGS[0]} \(1 of 3\): \d of {QUERIES}")
        )
        expect(progress).to_be_visible()
        expect(window.page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
        expect(window.page.get_by_text("Not gathered yet")).to_have_count(0)
        window.settled()
        yield window


VIEWS = ("Losses", "By type", "By query", "Compare judges", "Calibrate", "Ablation", "Experiments", "Compare")


def test_every_view_fits_the_window_and_breaks_no_rule_of_accessibility(gathered: Window) -> None:
    for name in VIEWS:
        gathered.view(name)
        assert gathered.page.get_by_test_id("stAlert").get_by_text("Error").count() == 0, name
        for width, scheme in ((900, "dark"), (1440, "light")):
            gathered.resize(width, scheme)
            gathered.expect_fit(f"{name}, {width} wide, {scheme}")
        assert violations(gathered.page, MAIN) == [], name


def test_a_click_on_a_branch_lists_its_memories_and_a_row_is_explained_in_inspect(gathered: Window) -> None:
    gathered.view("Losses")
    page = gathered.page
    expect(page.get_by_text("relevant memories from the first 10").first).to_be_visible()
    chosen = page.get_by_role("combobox", name="Lost memories")
    before = chosen.input_value()
    end = page.locator(".js-plotly-plot").nth(1).locator(".scatterlayer .trace").first.locator("path.point").last
    end.scroll_into_view_if_needed()
    box = standing(end)
    words = page.locator(".js-plotly-plot").nth(1).locator(".annotation-text").all_text_contents()
    with gathered.rerun():
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    listed = chosen.input_value()
    assert listed != before and listed.startswith(f"{CONFIGS[1]}: ")
    assert "".join(listed.removeprefix(f"{CONFIGS[1]}: ").split()) == "".join(words[0].split())
    table = gathered.table(1)
    query, memory = (column(cells(table), name)[0] for name in ("query", "memory"))
    gathered.pick_row(table)
    inspect = Inspect(gathered)
    expect(inspect.query).to_have_value(query)
    expect(page.locator(f'.wb-about [title="{memory}"]')).to_be_visible()
    expect(inspect.against).to_contain_text(CONFIGS[0])
    gathered.switch("Evaluate")


def test_a_lost_memory_is_looked_up_across_queries_and_back_in_inspect(gathered: Window) -> None:
    gathered.view("Losses")
    memory = column(cells(gathered.table(1)), "memory")[0]
    gathered.switch("Memories")
    memories = Memories(gathered)
    memories.search(memory)
    memories.pick_first()
    with gathered.rerun():
        gathered.page.get_by_text("Across queries", exact=True).click()
    panel = gathered.page.locator(".st-key-memories-across")
    expect(panel.get_by_text(f"{memory} is wanted by")).to_be_visible()  # of the set and config that Evaluate compares
    for width, scheme in ((900, "dark"), (1440, "light")):
        gathered.resize(width, scheme)
        gathered.expect_fit(f"Across queries, {width} wide, {scheme}")
    assert violations(gathered.page, MAIN) == []
    table = panel.get_by_test_id("stDataFrame")
    rows = cells(table)
    lost = column(rows, "outcome").index("lost")
    gathered.pick_row(table, lost)
    inspect = Inspect(gathered)
    expect(inspect.query).to_have_value(column(rows, "query")[lost])
    expect(gathered.page.locator(f'.wb-about [title="{memory}"]')).to_be_visible()
    inspect.tool("Across queries")
    expect(gathered.page.get_by_text(f"{memory} is wanted by")).to_be_visible()
    gathered.switch("Evaluate")


def test_one_click_on_a_query_opens_it_in_inspect_under_both_configs(gathered: Window) -> None:
    gathered.view("By query")
    query = column(cells(gathered.table()), "query")[0]
    gathered.pick_row(gathered.table())
    inspect = Inspect(gathered)
    expect(inspect.query).to_have_value(query)
    expect(inspect.results.first).to_be_visible()
    expect(inspect.against).to_contain_text(CONFIGS[0])
    expect(inspect.against).to_contain_text("differ")
    gathered.switch("Evaluate")
    unpicked = inspect.page.get_by_text("Tick the box of a row")
    expect(unpicked).to_be_visible()
    gathered.settled()
    expect(unpicked).to_be_visible()  # the row is not picked any more
