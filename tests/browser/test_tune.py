"""The way through the Tune page: gather, search, set the sliders, take the YAML away."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from cems_workbench.config import difference, load_config, preset
from cems_workbench.store import Store
from tests.browser.conftest import START_SECONDS, serving

pytestmark = [pytest.mark.browser, pytest.mark.models]
QUERIES, WAIT = 24, 60_000


@pytest.fixture
def few_store(sample_store: Path, tmp_path: Path) -> Path:
    """The sample store with a set of some judged queries, the first that the page offers."""
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store:
        judged = {judgment.qid for judgment in store.judgments.read() if judgment.grade > 0}
        store.query_sets.put(
            "a few", [query for query in store.queries.read() if query.qid in judged][:QUERIES], "test"
        )
    return path


def test_from_judged_queries_to_sliders_and_an_exported_file(browser: Browser, few_store: Path, tmp_path: Path) -> None:
    with serving(few_store) as url:
        page = browser.new_page(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
        page.goto(f"{url}/tune")
        page.get_by_role("button", name="Gather").click(timeout=1000 * START_SECONDS)
        page.get_by_text("What may change").wait_for(timeout=WAIT)
        type_number(page, "Configs", "24")
        page.get_by_role("button", name="Start the search").click()
        page.get_by_text("What the proposal changes").wait_for(timeout=WAIT)
        expect(page.locator(".wb-verdict p")).to_contain_text("configs of 6 parameters")
        expect(page.locator(".wb-tune-axes > div")).to_have_count(7)  # the head and six parameters
        page.locator("button", has_text="Take it away").click()
        page.get_by_role("button", name="To the sliders").click()
        page.get_by_text("Set on the sliders of Inspect").wait_for(timeout=WAIT)
        with page.expect_download() as download:
            page.get_by_role("button", name="Download YAML").click()
        file = tmp_path / "tuned.yaml"
        download.value.save_as(file)
        page.get_by_role("link", name="Inspect").click()
        changed = page.get_by_role("button", name=re.compile(r"parameters? changed · reset"))
        changed.wait_for(timeout=WAIT)
        count = int(changed.inner_text().split("parameter")[0].split()[-1])
        page.close()
    tuned = load_config(file)
    assert len([row for row in difference(preset("cems").config, tuned) if row[0] != "name"]) == count > 0
    assert "Evidence card" in file.read_text(encoding="utf-8")


def type_number(page: Page, label: str, value: str) -> None:
    box = page.get_by_label(label, exact=True).first
    box.fill(value)
    box.press("Enter")
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for(timeout=WAIT)
