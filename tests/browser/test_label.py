"""Labelling by keyboard: a hundred cards, each on disk once under its author when the next one appears."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.records import ParsedInput
from cems_workbench.store import Store
from tests.browser.conftest import START_SECONDS, serving

pytestmark = [pytest.mark.browser, pytest.mark.models]
CARDS = 100
WAIT = 20_000
NEXT_CARD = """count => {
  const said = document.querySelector('.wb-card-progress b'), card = document.querySelector('.wb-card');
  const fresh = !card || card.dataset.turn !== window.wbTurn;
  if (!said || said.innerText !== count || !fresh) return false;
  window.wbTurn = card?.dataset.turn;
  return true;
}"""
"""The count says so many, and another card can be seen, or none is left; the browser may show the one a moment before the other."""

TWICE = """key => { for (const _ of [1, 2])
  document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})); }"""
"""A bouncing key: the second press comes before anything can have been drawn."""


@pytest.fixture
def queue_store(sample_store: Path, tmp_path: Path) -> Path:
    """The sample store with a queue of a hundred pairs."""
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store:
        judged = {(one.qid, one.memory_id) for one in store.judgments.read()}
        every = [
            (query.qid, memory_id)
            for query in store.queries.read()[:20]
            for memory_id in sorted(store.memories.read())[:10]
        ]
        pairs = [PooledPair(*pair, {"cems": 1}) for pair in every if pair not in judged][:CARDS]
        store.queues.save(make_queue("hundred", pairs, "top"))
    return path


def test_a_hundred_cards_are_graded_by_keyboard_alone(
    browser: Browser, queue_store: Path, record_property: Callable[[str, object], None]
) -> None:
    """The first key comes with the first card, and every fifth is pressed twice: none is lost, none counts twice."""
    took = []
    with serving(queue_store) as url:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(f"{url}/label")
        name = page.get_by_test_id("stTextInputField").first
        name.wait_for(timeout=1000 * START_SECONDS)
        name.fill("ada")
        page.keyboard.press("Enter")
        page.locator(".wb-card").wait_for(timeout=WAIT)
        page.evaluate("document.activeElement.blur()")
        page.evaluate("window.wbTurn = document.querySelector('.wb-card').dataset.turn")
        for i in range(CARDS):
            started = time.perf_counter()
            if i % 5:
                page.keyboard.press(str(i % 4))
            else:
                page.evaluate(TWICE, str(i % 4))
            page.wait_for_function(NEXT_CARD, arg=str(i + 1), polling=10, timeout=WAIT)
            took.append(1000 * (time.perf_counter() - started))
        page.get_by_text("Nothing is left for you").wait_for(timeout=WAIT)
        page.close()
    record_property("key to next card, ms, median", round(statistics.median(took)))
    record_property("key to next card, ms, p95", round(statistics.quantiles(took, n=20)[-1]))
    with Store.open(queue_store) as store:
        labels = store.queues.labels("hundred")
    assert len({(one.qid, one.memory_id) for one in labels}) == len(labels) == CARDS
    assert {one.judge for one in labels} == {"ada"}
    assert [sum(one.grade == grade for one in labels) for grade in range(4)] == [CARDS // 4] * 4


@pytest.fixture(scope="module")
def few_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a queue, and a set of two judged queries."""
    path = shutil.copytree(sample_store, tmp_path_factory.mktemp("label") / "store")
    with Store.open(path) as store:
        queries = store.queries.read()
        judged = {(one.qid, one.memory_id) for one in store.judgments.read()}
        pairs = [(queries[0].qid, key) for key in sorted(store.memories.read()) if (queries[0].qid, key) not in judged]
        store.queues.save(make_queue("few", [PooledPair(*pair, {"cems": 1}) for pair in pairs[:10]], "top"))
        store.add(ParsedInput("two.jsonl", "t", queries=tuple(queries[:2])))
    return path


@pytest.fixture(scope="module")
def few_url(few_store: Path) -> Iterator[str]:
    with serving(few_store) as url:
        yield url


@pytest.fixture
def labelling(browser: Browser, few_url: str) -> Iterator[Page]:
    """A window with a card before ada."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(f"{few_url}/label")
    page.get_by_test_id("stTextInputField").first.fill("ada", timeout=1000 * START_SECONDS)
    page.keyboard.press("Enter")
    page.locator(".wb-card").wait_for(timeout=WAIT)
    page.evaluate("document.activeElement.blur()")
    yield page
    page.close()


def test_the_other_keys_work_and_what_is_typed_into_the_note_is_no_key(labelling: Page) -> None:
    labelling.keyboard.press("?")
    labelling.get_by_text("is on disk before the next card").wait_for(timeout=WAIT)
    labelling.keyboard.press("n")
    labelling.locator(".st-key-label-note textarea:focus").wait_for(timeout=WAIT)
    labelling.keyboard.type("2 or 3?")
    labelling.keyboard.press("Escape")
    labelling.keyboard.press("3")
    labelling.locator(".wb-card-progress b", has_text="1").wait_for(timeout=WAIT)
    labelling.keyboard.press("s")
    labelling.get_by_text("1 skipped").wait_for(timeout=WAIT)
    labelling.keyboard.press("u")
    labelling.get_by_text("Taken back").wait_for(timeout=WAIT)
    view(labelling, "Files")
    labelling.get_by_text("Preview").click()
    labelling.get_by_text("judgments fit").wait_for(timeout=WAIT)
    line = '"judge": "ada"'
    labelling.get_by_role("combobox", name="Judge").nth(1).click()
    labelling.get_by_role("option", name="ada").click()
    labelling.locator("code", has_text=line).wait_for(timeout=WAIT)
    text = labelling.locator("code", has_text=line).inner_text()
    assert '"grade": 3' in text
    assert '"note": "2 or 3?"' in text


def test_the_judge_is_compared_with_people_and_called_wrong(labelling: Page, few_url: str) -> None:
    view(labelling, "People and judge")
    labelling.get_by_role("combobox", name="Labels of people for").click()
    labelling.get_by_role("option", name="two").click()
    labelling.get_by_role("button", name="Ask the judge").click()
    labelling.locator(".wb-confusion").wait_for(timeout=3 * WAIT)
    labelling.locator(".js-plotly-plot").nth(1).wait_for(timeout=WAIT)
    table = labelling.get_by_test_id("stDataFrame").last
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    assert box is not None
    labelling.mouse.click(box["x"] + 18, box["y"] + 45)
    labelling.get_by_role("button", name="Judge is wrong").click(timeout=WAIT)
    labelling.get_by_role("button", name="Take “judge wrong” back").wait_for(timeout=WAIT)


def view(page: Page, name: str) -> None:
    page.get_by_test_id("stButtonGroup").get_by_text(name, exact=True).click()
