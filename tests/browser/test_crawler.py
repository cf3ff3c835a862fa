"""A store whose every text is an attack: all is shown to the letter, and nothing acts. `benchmarks/crawl.py` walks the other pages too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from . import hostile
from .conftest import serving
from .crawl import PAGES
from .pages import window_on

pytestmark = [pytest.mark.browser, pytest.mark.models]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the app on such a store."""
    with serving(hostile.stock(tmp_path_factory.mktemp("hostile"))) as url:
        yield url


@pytest.mark.parametrize("page", ["inspect", "label"])
def test_no_name_or_text_acts_on_a_page(browser: Browser, attacked: str, page: str) -> None:
    with window_on(browser, attacked) as window:
        faults = {}
        for place in PAGES[page](window):
            faults[place] = hostile.faults(window.page)
            window.expect_no_error()
    assert len(faults) >= 5
    assert {place: found for place, found in faults.items() if found} == {}
