"""The way of the guide: open a failing query, label, tune, compare, export. What is exported is what was set on the sliders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from cems_workbench.config import difference, load_config, preset
from cems_workbench.store import Store
from tests.browser.conftest import serving
from tests.browser.whole_way import QUERY, walk

pytestmark = [pytest.mark.browser, pytest.mark.models]
QUERIES = 24


@pytest.fixture
def few_store(sample_store: Path, tmp_path: Path) -> Path:
    """The sample store with a set of some judged queries, the first that every page offers; the failing one is among them."""
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store:
        judged = {judgment.qid for judgment in store.judgments.read() if judgment.grade > 0}
        queries = sorted((one for one in store.queries.read() if one.qid in judged), key=lambda one: one.query != QUERY)
        store.query_sets.put("a few", queries[:QUERIES], "test")
    return path


def test_from_a_failing_query_to_a_tuned_config_in_a_file(browser: Browser, few_store: Path, tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    with serving(few_store) as url:
        page = browser.new_page(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
        walk(page, url, file)
        page.close()
    assert difference(preset("cems").config, load_config(file))
    assert "Evidence card" in file.read_text(encoding="utf-8")
    with Store.open(few_store) as store:
        labels = [label for queue in store.queues.read() for label in store.queues.labels(queue.name)]
    assert [(label.judge, label.grade) for label in labels] == [("ada", 1), ("ada", 0), ("ada", 2)]
