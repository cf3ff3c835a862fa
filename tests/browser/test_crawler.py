"""A store whose every text is an attack: all is shown to the letter, nothing acts, and no rule of WCAG 2.2 AA is broken on the way.

`benchmarks/crawl.py` walks the other pages too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext

from . import hostile
from .accessibility import MAIN, WHOLE, violations
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
def test_no_name_or_text_acts_on_a_page_and_every_view_is_accessible(
    windows: BrowserContext, attacked: str, page: str
) -> None:
    with window_on(windows, attacked) as window:
        faults: dict[str, list[str]] = {}
        for place in PAGES[page](window):
            looked_at = MAIN if faults else WHOLE
            faults[place] = [*hostile.faults(window.page), *violations(window.page, looked_at)]
            window.expect_no_error()
    assert len(faults) >= {"inspect": 21, "label": 5}[page]
    assert {place: found for place, found in faults.items() if found} == {}
