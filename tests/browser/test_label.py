"""Labelling by keyboard: a hundred cards, each on disk once under its author when the next one appears."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

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
    took = []
    with serving(queue_store) as url:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(f"{url}/label")
        name = page.get_by_test_id("stTextInputField").first
        name.wait_for(timeout=1000 * START_SECONDS)
        name.fill("ada")
        page.keyboard.press("Tab")
        page.locator(".wb-card-progress b").wait_for(timeout=WAIT)
        page.evaluate("document.activeElement.blur()")
        page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for(timeout=WAIT)
        for i in range(CARDS):
            before = page.locator(".wb-card-progress b").inner_text()
            assert before == str(i)
            started = time.perf_counter()
            page.keyboard.press(str(i % 4))
            page.wait_for_function(
                "b => {const n = document.querySelector('.wb-card-progress b'); return n && n.innerText !== b}",
                arg=before, polling=10, timeout=WAIT,
            )  # fmt: skip
            took.append(1000 * (time.perf_counter() - started))
        page.get_by_text("Nothing is left for you").wait_for(timeout=WAIT)
        page.close()
    record_property("key to next card, ms, p95", round(statistics.quantiles(took, n=20)[-1]))
    with Store.open(queue_store) as store:
        labels = store.labels.queue_labels("hundred")
    assert len({(one.qid, one.memory_id) for one in labels}) == len(labels) == CARDS
    assert {one.judge for one in labels} == {"ada"}
    assert [sum(one.grade == grade for one in labels) for grade in range(4)] == [CARDS // 4] * 4
