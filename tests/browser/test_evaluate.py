"""From a query set to a verdict and back into Inspect: gathered once, compared with significance, one click on a query."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect

from cems_workbench.store import Store

from .conftest import START_SECONDS, is_elsewhere, query_box, serving
from .test_inspect import WAIT, settle

pytestmark = [pytest.mark.browser, pytest.mark.models]
QUERIES = 6
CONFIGS = ("cems", "recollection", "cems_head")
ROW = 30


@pytest.fixture(scope="module")
def gathered(browser: Browser, sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A window on Evaluate where three configs were gathered for a query set of six; every test here goes on in it."""
    store = shutil.copytree(sample_store, tmp_path_factory.mktemp("evaluate-browser") / "store")
    with Store.open(store) as opened:
        judged = {judgment.qid for judgment in opened.judgments.read()}
        opened.query_sets.put(
            "few", [query for query in opened.queries.read() if query.qid in judged][:QUERIES], "test"
        )
    strangers: list[str] = []
    with serving(Path(store)) as url:
        context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="light")
        page = context.new_page()
        page.on("request", lambda request: strangers.append(request.url) if is_elsewhere(request.url) else None)
        page.goto(f"{url}/evaluate")
        page.get_by_role("combobox", name="Configs").wait_for(timeout=START_SECONDS * 1000)
        settle(page)
        choose(page, "Configs", CONFIGS[2], f"Not gathered yet: {', '.join(CONFIGS)}.")
        page.keyboard.press("Escape")
        choose(page, "Query set", "few · 6 queries · version 1", f"Each of {QUERIES} queries is searched once")
        gather(page)
        yield page
        context.close()
    assert not strangers, f"the page asked elsewhere: {strangers}"


def choose(page: Page, box: str, option: str, shown: str) -> None:
    """Choose an option until the page shows that it arrived: a list opened while the page is being drawn may close again."""
    arrived = page.get_by_text(shown).first
    for _ in range(3):
        with contextlib.suppress(TimeoutError, AssertionError):
            page.get_by_role("combobox", name=box).click(timeout=WAIT)
            page.get_by_role("option", name=option, exact=True).click(timeout=WAIT / 3)
            expect(arrived).to_be_visible(timeout=WAIT / 3)
            break
    expect(arrived).to_be_visible(timeout=WAIT)
    settle(page)


def gather(page: Page) -> None:
    expect(page.get_by_text(f"Not gathered yet: {', '.join(CONFIGS)}.")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Gather", exact=True).click()
    progress = page.get_by_text(re.compile(rf"{CONFIGS[0]} \(1 of 3\): \d of {QUERIES}"))
    expect(progress).to_be_visible(timeout=WAIT)
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
    expect(page.get_by_text("Not gathered yet")).to_have_count(0, timeout=2 * WAIT)
    settle(page)


def view(page: Page, name: str) -> None:
    page.get_by_test_id("stButtonGroup").get_by_text(name, exact=True).click()
    settle(page)
    assert page.get_by_test_id("stException").count() == 0, name


def table(page: Page, number: int = 0) -> Locator:
    return page.get_by_test_id("stDataFrame").nth(number)


def rows(found: Locator) -> list[list[str]]:
    """The cells of a table as assistive technology reads them; the canvas itself says nothing."""
    found.locator("table tr").nth(1).wait_for(state="attached", timeout=WAIT)
    lines = [line.locator("th, td").all_text_contents() for line in found.locator("table tr").all()]
    return [line for line in lines if line]


def test_three_configs_are_compared_with_intervals_significance_and_cost(gathered: Page) -> None:
    view(gathered, "Compare")
    header, *means = rows(table(gathered))
    assert [line[header.index("config")] for line in means] == list(CONFIGS)
    for line in means:
        assert re.fullmatch(r"\d\.\d{3} \(\d\.\d{3}–\d\.\d{3}\)", line[header.index("nDCG@10")])
        assert float(line[header.index("ms a query")]) > 0
    header, *differences = rows(table(gathered, 1))
    assert {line[header.index("config")] for line in differences} == set(CONFIGS[1:])
    for line in differences:
        counts = [int(line[header.index(name)]) for name in ("wins", "losses", "ties")]
        assert 0 <= sum(counts) <= QUERIES
        assert 0 < float(line[header.index("p (Holm)")]) <= 1


@pytest.mark.parametrize(("width", "scheme"), [(900, "dark"), (1440, "light")])
def test_every_view_fits_the_window(gathered: Page, width: int, scheme: str) -> None:
    gathered.set_viewport_size({"width": width, "height": 1000})
    gathered.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for name in ("By type", "By query", "Honest view", "Ablation", "Experiments", "Compare"):
        view(gathered, name)
        assert gathered.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        assert gathered.get_by_test_id("stAlert").get_by_text("Error").count() == 0, name


def test_one_click_on_a_query_opens_it_in_inspect_under_both_configs(gathered: Page) -> None:
    view(gathered, "By query")
    header, first, *_ = rows(table(gathered))
    query = first[header.index("query")]
    box = table(gathered).bounding_box()
    assert box is not None
    gathered.mouse.click(box["x"] + 15, box["y"] + 1.5 * ROW)
    query_box(gathered).wait_for(timeout=WAIT)
    expect(query_box(gathered)).to_have_value(query, timeout=WAIT)
    expect(gathered.locator(".wb-result").first).to_be_visible(timeout=WAIT)
    settle(gathered)
    expect(gathered.locator(".wb-against")).to_contain_text(CONFIGS[0], timeout=WAIT)
    expect(gathered.locator(".wb-against")).to_contain_text("differ")
    gathered.get_by_role("link", name="Evaluate").click()
    expect(gathered.get_by_text("A click on the box before a row")).to_be_visible(timeout=WAIT)
    settle(gathered)
    expect(gathered.get_by_text("A click on the box before a row")).to_be_visible()  # the row is not picked any more
