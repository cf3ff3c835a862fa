"""Connect a live CEMS, search its own lists, see what its index missed, and try the setting that fixes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from cems_workbench.store import Store
from tests.integration.postgres_server import missing
from tests.live_postgres import CUT, cut_short
from tests.small_store import empty_store

from .conftest import serving
from .pages import Inspect, Sources, Window, cells, column, window_on

__all__ = ["empty_store"]
pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
MEMORIES = 80
ROLL_BACK = "how do we roll back a failed deploy?"


@pytest.fixture
def live(
    windows: BrowserContext,
    empty_store: Path,
    sample_store: Path,
    sample_vectors: dict[str, list[float]],
    tmp_path: Path,
) -> Iterator[tuple[Window, str]]:
    """A window on the app with an empty store, and the address of a CEMS with the first of the sample's memories."""
    with Store.open(shutil.copytree(sample_store, tmp_path / "sample")) as store:
        memories = [each for each in store.memories.read().values() if each.content in sample_vectors][:MEMORIES]
    texts = [(each.id, each.content) for each in memories]
    store_folder = Path(shutil.copytree(empty_store, tmp_path / "app" / "store"))
    with (
        cut_short("cems", texts, [sample_vectors[text] for _, text in texts]) as address,
        serving(store_folder) as url,
        window_on(windows, url) as window,
    ):
        yield window, address


def _open_lists(window: Window) -> None:
    """Open the section of the lists; click again if the page was redrawn during the click."""
    for _ in range(3):
        with window.rerun():
            window.page.get_by_test_id("stSidebar").get_by_text("Lists", exact=True).click()
        try:
            window.page.get_by_role("combobox", name="Lists answered by", exact=True).wait_for(timeout=20_000)
        except PlaywrightTimeoutError:
            continue
        return


@pytest.mark.thorough
def test_connect_search_and_the_live_list_beside_the_exact_one(live: tuple[Window, str]) -> None:
    window, address = live
    sources = Sources.open(window)
    sources.take(address)
    expect(sources.card).to_contain_text(f"{MEMORIES} there, {MEMORIES} here")
    expect(sources.card).to_contain_text("20 of 20 stored vectors reproduced")

    window.switch("Inspect")
    inspect = Inspect(window)
    inspect.search(ROLL_BACK)
    inspect.preset("cems_head")
    exact = inspect.order()
    window.page.set_viewport_size({"width": 1440, "height": 2400})
    window.settled()
    _open_lists(window)
    window.choose_by_keys("Lists answered by", "source")
    live_order = inspect.order()
    expect(window.page.locator(".wb-notes").first).to_contain_text(f"rows were asked for and {CUT} came")
    assert live_order and live_order != exact

    inspect.view("Lists")
    expect(window.page.get_by_text("as answered by cems").first).to_be_visible()

    inspect.tool("Index check")
    window.press("Query cems")
    verdict = window.page.get_by_text(f"and {CUT} came: hnsw.ef_search is {CUT}")
    expect(verdict).to_be_visible()
    window.press("Try settings on the live engine")
    mended = window.page.locator("strong", has_text="hnsw.ef_search = 100")
    expect(mended.locator("xpath=..")).to_contain_text(f"find all {MEMORIES}.")
    tried = cells(window.page.get_by_test_id("stDataFrame").last)
    assert column(tried, "setting")[:2] == ["current", "hnsw.ef_search = 100"]
    assert column(tried, "rows")[:2] == [str(CUT), str(MEMORIES)]
    window.expect_no_error()
