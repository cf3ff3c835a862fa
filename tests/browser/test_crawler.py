"""A store whose every text is an attack: all is shown to the letter, nothing acts, and no view breaks a rule of WCAG 2.2 AA.

`benchmarks/crawl.py` walks the other pages too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.thoroughly import first_of

from . import hostile
from .accessibility import MAIN, WHOLE, violations
from .conftest import serving
from .crawl import PAGES
from .pages import window_on


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the app on such a store."""
    with serving(hostile.stock(tmp_path_factory.mktemp("hostile"))) as url:
        yield url


WALKED = {"label": 5, "inspect": 21}
"""How many views a walk over a page comes to."""


def expect_no_fault(windows: BrowserContext, url: str, page: str, look: Callable[[Page, bool], list[str]]) -> None:
    """The findings of `look` on each view of a page; its argument: whether the view is the first."""
    with window_on(windows, url) as window:
        faults: dict[str, list[str]] = {}
        for place in PAGES[page](window):
            faults[place] = look(window.page, not faults)
            window.expect_no_error()
    assert len(faults) >= WALKED[page]
    assert {place: found for place, found in faults.items() if found} == {}


@pytest.mark.parametrize("page", first_of(WALKED, 0))
def test_no_name_or_text_acts_on_a_page(windows: BrowserContext, attacked: str, page: str) -> None:
    expect_no_fault(windows, attacked, page, lambda drawn, _: hostile.faults(drawn))


@pytest.mark.thorough
@pytest.mark.parametrize("page", WALKED)
def test_every_view_is_accessible(windows: BrowserContext, attacked: str, page: str) -> None:
    expect_no_fault(windows, attacked, page, lambda drawn, first: violations(drawn, WHOLE if first else MAIN))
