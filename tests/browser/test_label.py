"""Labelling by keyboard: a hundred cards, each on disk once under its author when the next one appears."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from cems_workbench.evaluation.pooling import PooledPair
from cems_workbench.evaluation.queue import make_queue
from cems_workbench.store import Store
from tests.browser.conftest import START_SECONDS, serving

pytestmark = [pytest.mark.models, pytest.mark.xdist_group("browser")]
CARDS = 100
WAIT = 20_000


@pytest.fixture
def queue_store(sample_store: Path, tmp_path: Path) -> Path:
    """The sample store with a queue of a hundred pairs."""
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store:
        judged = {(one.qid, one.memory_id) for one in store.judgments()}
        every = [
            (query.qid, memory_id) for query in store.queries()[:20] for memory_id in sorted(store.memories())[:10]
        ]
        pairs = [PooledPair(*pair, {"cems": 1}) for pair in every if pair not in judged][:CARDS]
        store.labels.keep_queue(make_queue("hundred", pairs, "top"))
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
        for i in range(CARDS):
            started = time.perf_counter()
            page.keyboard.press(str(i % 4))
            if i % 5 == 0:
                page.keyboard.press(str(i % 4))
            page.wait_for_function(
                "n => {const b = document.querySelector('.wb-card-progress b'); return b && b.innerText === n}",
                arg=str(i + 1), polling=10, timeout=WAIT,
            )  # fmt: skip
            took.append(1000 * (time.perf_counter() - started))
        page.get_by_text("Nothing is left for you").wait_for(timeout=WAIT)
        page.close()
    record_property("key to next card, ms, median", round(statistics.median(took)))
    record_property("key to next card, ms, p95", round(statistics.quantiles(took, n=20)[-1]))
    with Store.open(queue_store) as store:
        labels = store.labels.queue_labels("hundred")
    assert len({(one.qid, one.memory_id) for one in labels}) == len(labels) == CARDS
    assert {one.judge for one in labels} == {"ada"}
    assert [sum(one.grade == grade for one in labels) for grade in range(4)] == [CARDS // 4] * 4


def test_the_other_keys_work_and_what_is_typed_into_the_note_is_no_key(browser: Browser, queue_store: Path) -> None:
    with serving(queue_store) as url:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(f"{url}/label")
        page.get_by_test_id("stTextInputField").first.fill("ada", timeout=1000 * START_SECONDS)
        page.keyboard.press("Enter")
        page.locator(".wb-card").wait_for(timeout=WAIT)
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("?")
        page.get_by_text("is on disk before the next card").wait_for(timeout=WAIT)
        page.keyboard.press("n")
        page.locator(".st-key-lb-note textarea:focus").wait_for(timeout=WAIT)
        page.keyboard.type("2 or 3?")
        page.keyboard.press("Escape")
        page.keyboard.press("3")
        graded(page, 1)
        page.keyboard.press("s")
        page.get_by_text("1 skipped").wait_for(timeout=WAIT)
        page.keyboard.press("u")
        page.get_by_text("Taken back").wait_for(timeout=WAIT)
        page.close()
    with Store.open(queue_store) as store:
        assert [(one.grade, one.note) for one in store.labels.queue_labels("hundred")] == [(3, "2 or 3?")]
        assert store.labels.marks() == []


def graded(page: Page, count: int) -> None:
    page.locator(".wb-card-progress b", has_text=str(count)).wait_for(timeout=WAIT)
