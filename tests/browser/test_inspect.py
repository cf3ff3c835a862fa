"""Inspect with mouse and keys: a query, sliders, the first screen, the rank flow, sensitivity, links, undo, blame, and a slow reranker."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from cems_workbench.builtin import DEFAULT_PRESET
from tests.sample import FAILING

from .conftest import as_on_disk, serving
from .pages import DRAWN, RESULT_ROW, WAIT, Inspect, Window, standing, window_on
from .whole_way import case

QUERY = "how many different doctors did I visit?"
STAGES = [
    "query",
    "expansion",
    "lists",
    "threshold",
    "fusion",
    "filter",
    "rerank",
    "adjust",
    "supersession",
    "gap",
    "dedup",
    "abstain",
    "assembly",
    "judge",
]
RUNS = """() => { const app = document.querySelector(".stApp").cloneNode(false);
  wbPart = document.querySelector("[data-testid=stElementContainer]:has(.wb-strip)").cloneNode(true);
  document.body.append(app); app.append(wbPart); app.dataset.testScriptState = "running"; wbPart.dataset.stale = "true";
  return [getComputedStyle(wbPart).opacity, wbPart.getAnimations().length,
    getComputedStyle(document.querySelector("[data-testid=stExpander] details")).transitionDuration]; }"""
"""Marks a copy of the strip as Streamlit does in a run that has not drawn it again: its opacity, and what fades."""


@pytest.fixture
def inspect(window: Window) -> Inspect:
    """A new session on the page."""
    return Inspect.open(window)


def test_a_query_shows_markup_literally_the_strip_and_ten_results_within_the_window_and_qmd_its_blend_table(
    inspect: Inspect,
) -> None:
    inspect.search("invoice memo script alert cross-site")
    assert inspect.page.locator(".wb-sbs script").count() == 0
    inspect.form("Cards")
    texts = " ".join(inspect.page.locator(".wb-text").all_text_contents())  # folded parts too
    assert "<script>alert(1)</script>" in texts
    assert inspect.page.locator(".wb-result script").count() == 0
    assert len(inspect.search(QUERY)) == 10
    assert inspect.page.locator(".wb-strip .wb-name").all_inner_texts() == STAGES
    for width in (900, 1440):
        inspect.window.resize(width, "light")
        inspect.window.expect_fit(f"{width} wide", ".wb-cell")
    inspect.form("Side by side")
    inspect.preset("qmd")
    expect(inspect.page.locator(".wb-cell", has_text="rerank")).not_to_contain_text("off", timeout=WAIT)
    inspect.view("Rerank")
    expect(inspect.page.get_by_text("candidates scored, 0 failed")).to_be_visible()


def test_what_a_run_may_change_is_faint_after_a_while_and_does_not_fade_frame_by_frame(inspect: Inspect) -> None:
    inspect.search(QUERY)
    assert inspect.page.evaluate(RUNS) == ["1", 0, "0s"]
    inspect.page.wait_for_function("getComputedStyle(wbPart).opacity < 1")


CONTROLS = (
    "[data-testid=stSidebar] :is([data-testid=stSlider], [data-testid=stCheckbox], [data-testid=stSelectbox], [data-testid=stMultiSelect], "
    "[data-testid=stTextInput], [data-testid=stDataFrame], [data-testid=stButton], [data-testid=stPopover], [data-testid=stButtonGroup])"
)


def test_basic_parameters_are_few_with_every_group_open(inspect: Inspect) -> None:
    closed = inspect.page.locator("[data-testid=stSidebar] details:not([open]) > summary")
    assert inspect.page.locator("[data-testid=stSidebar] details[open]").count() == 0
    while closed.count():
        with inspect.window.rerun():
            closed.first.press("Enter")  # a click may meet a group that still moves while the one above it opens
    assert inspect.page.locator(CONTROLS).count() <= 40
    assert inspect.page.locator(".st-key-inspect-group-lists").locator(CONTROLS.split("] ", 1)[1]).count() <= 15
    assert inspect.page.get_by_test_id("stSidebarUserContent").evaluate("element => element.scrollHeight") <= 3500


def test_sliders_change_the_order_in_groups_that_stay_open_and_reset_brings_it_back(inspect: Inspect) -> None:
    before = inspect.search(QUERY)
    for group in ("All", "Fusion", "Adjust"):
        inspect.group(group)
    inspect.window.slide("Score blend", "End")
    expect(inspect.changed(1)).to_be_visible()
    assert inspect.order() != before
    inspect.window.slide("Half-life (days)", "ArrowRight")
    expect(inspect.changed(2)).to_be_visible()
    expect(inspect.page.get_by_role("slider", name="Half-life (days) ●")).to_be_visible()
    with inspect.window.rerun():
        inspect.changed(2).click()
    expect(inspect.changed(2)).to_be_hidden()
    assert inspect.order() == before


HIGH = {1440: 900, 900: 1200}
"""Height of the first screen by its width, in pixels."""
BOTTOM = "element => element.getBoundingClientRect().bottom"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_first_screen_has_query_strip_next_step_and_five_rows_without_scrolling(inspect: Inspect, scheme: str) -> None:
    page = inspect.page
    inspect.search(FAILING)
    for width, high in HIGH.items():
        page.set_viewport_size({"width": width, "height": high})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        inspect.window.settled()
        page.evaluate(DRAWN)
        bar = page.locator(".st-key-inspect-row_actions").evaluate("element => element.getBoundingClientRect().top")
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") == 0
        for part in (
            inspect.query,
            page.locator(".wb-strip"),
            page.locator(".wb-next"),
            page.locator(RESULT_ROW).nth(4),
        ):
            assert part.evaluate(BOTTOM) < bar < high, (width, part)
        inspect.window.expect_fit(f"{width} wide", ".wb-next, .wb-cell")


LAST_POINT = """(plot, id) => {
    const line = plot.data.find((line) => (line.hovertext || "").startsWith(`<b>${id}</b>`));
    const {xaxis, yaxis} = plot._fullLayout, box = plot.getBoundingClientRect();
    const x = Array.from(line.x).at(-1), y = Array.from(line.y).at(-1);
    return [box.x + xaxis._offset + xaxis.c2p(x), box.y + yaxis._offset + yaxis.c2p(y)];
}"""
"""The place on the screen of the last point of a memory's line."""


@pytest.mark.thorough
def test_a_click_on_a_line_of_the_rank_flow_follows_its_memory(window: Window) -> None:
    inspect = Inspect.open(window)
    first, *_ = inspect.search(QUERY)
    inspect.view("Rank flow")
    chart = inspect.page.locator('[class*="st-key-inspect-rank_flow"] .js-plotly-plot')
    chart.locator(".annotation-text").first.wait_for()
    chart.scroll_into_view_if_needed()
    standing(chart)
    place = chart.evaluate(LAST_POINT, first)
    inspect.page.mouse.move(*place)
    expect(chart.locator(".hoverlayer")).to_contain_text("fusion: rank")
    with window.rerun():
        inspect.page.mouse.click(*place)
    expect(inspect.page.locator(".wb-path code").first).to_have_text(first)
    expect(inspect.page.locator(".wb-sbs-followed .wb-sbs-text code")).to_have_text(first)
    expect(inspect.page.locator('[class*="st-key-inspect-rank_flow"] .annotation-text').first).to_contain_text("◆")


@pytest.mark.thorough
def test_a_segment_and_a_cell_of_the_map_are_applied_by_a_click(window: Window) -> None:
    inspect = Inspect.open(window)
    before = inspect.search(QUERY)[:5]

    inspect.tool("Sensitivity")
    expect(inspect.page.get_by_text(re.compile(r"\d+ breakpoints from 0 to 3"))).to_be_visible()
    chart = inspect.page.locator(".st-key-inspect-sensitivity-chart").first
    expect(chart.locator(".barlayer .point").first).to_be_visible()
    expect(chart.locator(".scatterlayer .trace").first).to_be_attached()
    with window.rerun():
        inspect.page.get_by_role("button", name=re.compile("^.*Set to ")).last.click()
    expect(inspect.changed(1)).to_be_visible()
    assert inspect.order()[:5] != before

    second = inspect.page.get_by_role("combobox", name="Second parameter")
    second.fill("RRF k")
    with window.rerun():
        second.press("Enter")
    expect(inspect.page.get_by_text(re.compile("came first somewhere in"))).to_be_visible()
    plot = inspect.page.locator(".st-key-inspect-map-chart .nsewdrag").first
    plot.scroll_into_view_if_needed()
    size = standing(plot)
    with window.rerun():
        inspect.page.mouse.click(size["x"] + 0.9 * size["width"], size["y"] + 0.1 * size["height"])
    window.press(re.compile("Apply Lexical weight"))
    expect(inspect.changed(2)).to_be_visible()

    inspect.tool("Effective weights")
    expect(inspect.page.get_by_text("has the largest effect on this ranking")).to_be_visible()


@pytest.mark.thorough
def test_a_link_shows_another_person_the_same_ranking_and_slider(
    window: Window, browser: Browser, tmp_path: Path
) -> None:
    inspect = Inspect.open(window)
    plain = inspect.search(QUERY)
    inspect.slide("Score blend", "End")
    expect(inspect.changed(1)).to_be_visible()
    inspect.page.get_by_role("button", name="Share").click()
    address = inspect.page.url
    inspect.page.get_by_test_id("stCode").get_by_text(address.replace("/?", "?"), exact=True).wait_for()
    window.download("CSV", tmp_path / "ranking.csv")
    with (tmp_path / "ranking.csv").open(encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.DictReader(lines))
    mine = inspect.order()
    assert mine != plain
    assert [int(row["final rank"]) for row in rows[: len(mine)]] == list(range(1, len(mine) + 1))
    assert all(row["dropped by"] and not row["final rank"] for row in rows[len(mine) :])
    assert all(row["memory id"] in text for row, text in zip(rows, mine, strict=False))
    with window_on(browser, window.url) as elsewhere:
        elsewhere.open(address)
        other = Inspect(elsewhere)
        expect(other.results).to_have_text(mine)
        other.find("Score blend")
        expect(other.page.get_by_role("slider", name="Score blend")).to_have_attribute("aria-valuetext", "1.00")
        expect(other.changed(1)).to_be_visible()
        assert other.page.url == address
        with elsewhere.rerun():
            other.changed(1).click()
        expect(other.changed(0)).to_be_visible()
        expect(other.results).to_have_text(plain)
        assert not re.search("[?&]set=", other.page.url)


def test_undo_and_redo_by_button_and_by_key(window: Window) -> None:
    inspect = Inspect.open(window)
    before = inspect.search(QUERY)
    inspect.slide("Score blend", "End")
    expect(inspect.changed(1)).to_be_visible()
    after = inspect.order()
    with window.rerun():
        inspect.page.locator(".st-key-inspect-undo button:visible").click()
    expect(inspect.changed(0)).to_be_visible()
    assert inspect.order() == before
    with window.rerun():
        inspect.page.locator(".st-key-inspect-redo button:visible").click()
    expect(inspect.changed(1)).to_be_visible()
    assert inspect.order() == after
    with window.rerun():
        inspect.page.keyboard.press("Alt+z")
    expect(inspect.changed(0)).to_be_visible()
    assert inspect.order() == before


@pytest.mark.thorough
def test_from_a_wrong_answer_to_the_successor_of_its_memory(window: Window) -> None:
    Inspect.open(window).preset(DEFAULT_PRESET)
    case(window, prove=False)
    window.expect_no_error()


BATCH = 16

# The app itself, with a reranker that writes down what it was asked, and from its second batch on waits for the gate.
SLOW_APP = """
import json, os, sys, time
from cems_workbench.cli import main
from cems_workbench.models.late_interaction import LateInteraction

record, *arguments = sys.argv[1:]
quick = LateInteraction.score

def slow(self, query, texts, *rest):
    while os.path.exists(record) and not os.path.exists(record + ".gate"):
        time.sleep(0.02)
    scores = quick(self, query, texts, *rest)
    with open(record, "a") as lines:
        lines.write(json.dumps(list(texts)) + "\\n")
    return scores

LateInteraction.score = slow
sys.argv = ["cems_workbench", *arguments]
main()
"""


@dataclass(frozen=True)
class SlowServer:
    """The app with a slow reranker: its address, its store, and how to see what was scored."""

    url: str
    store: Path
    record: Path

    def scored(self) -> list[list[str]]:
        """The texts of every batch scored so far."""
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []

    def open_gate(self) -> None:
        """Let the batches after the first be scored."""
        Path(f"{self.record}.gate").touch()


@pytest.fixture
def slow_server(sample_store: Path, tmp_path: Path) -> Iterator[SlowServer]:
    """The app on a separate store, whose reranker scores one batch and then waits for the gate."""
    store = Path(shutil.copytree(sample_store, tmp_path / "store"))
    script, record = tmp_path / "slow_app.py", tmp_path / "scored.jsonl"
    script.write_text(SLOW_APP)
    with serving(store, str(script), str(record)) as url:
        yield SlowServer(url, store, record)


@pytest.mark.thorough
def test_scoring_is_cancelled_at_once_and_gone_on_with_where_it_stopped(
    windows: BrowserContext, slow_server: SlowServer, tmp_path: Path
) -> None:
    server = slow_server
    with window_on(windows, server.url) as window:
        inspect = Inspect.open(window)
        inspect.search(QUERY)
        assert server.scored() == []
        with window.rerun():
            inspect.page.get_by_role("button", name="Preset: ").first.click()
        inspect.page.locator("label", has=inspect.page.get_by_text("qmd", exact=True)).click()
        count = inspect.page.get_by_test_id("stProgress").get_by_text(re.compile(rf"reranking: {BATCH} of \d+"))
        expect(count).to_be_visible()
        soon = inspect.page.locator(".wb-soon")
        expect(soon).to_have_count(10)  # the order so far is there while the model is busy
        expect(inspect.page.locator(".wb-settling-note")).to_contain_text(f"has scored {BATCH} of")
        total = int(count.inner_text().split(" of ")[1])
        assert total > 2 * BATCH, "too few candidates to cancel before the last batch"
        cancel = inspect.page.get_by_role("button", name="Cancel", exact=True)
        cancel.click()
        go_on = inspect.page.get_by_role("button", name="Resume")
        expect(go_on).to_be_visible()  # while the model is still busy with the second batch
        window.settled()
        assert [len(batch) for batch in server.scored()] == [BATCH]
        expect(cancel).to_have_count(0)
        expect(soon).to_have_count(0)
        expect(inspect.results).to_have_count(10)
        expect(inspect.page.locator(".wb-notes")).to_contain_text("late_interaction did not score")

        server.open_gate()
        go_on.click()
        expect(go_on).to_have_count(0)
        expect(inspect.page.get_by_text("did not score")).to_have_count(0)
        window.settled()
        expect(inspect.results).to_have_count(10)
        window.expect_no_error()
    every = [text for batch in server.scored() for text in batch]
    assert len(every) == len(set(every)) == total, "a text was scored twice"
    with duckdb.connect(str(as_on_disk(server.store, tmp_path) / "workbench.duckdb")) as connection:
        assert connection.execute("SELECT count(*) FROM score_cache").fetchone() == (total,)
