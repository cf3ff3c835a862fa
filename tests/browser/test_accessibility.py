"""Every page and view: no rule of WCAG 2.2 AA is broken, in light and dark, and the keyboard comes to the query.

The views and tools of Inspect are looked at in test_crawler.py, which walks through them anyway.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .accessibility import MAIN, violations
from .pages import Inspect, Label, Window

pytestmark = [pytest.mark.browser, pytest.mark.models]
VIEWS = '[data-testid="stButtonGroup"]'


def views(window: Window, row: str) -> list[str]:
    """The names of the buttons in the first row of this place, once it is drawn."""
    place = window.page.locator(row).first
    buttons = place.get_by_role("radio").or_(place.get_by_role("button"))
    buttons.first.wait_for()
    window.settled()
    return buttons.all_inner_texts()


def test_inspect(window: Window) -> None:
    inspect = Inspect.open(window)
    assert window.page.title() == "Inspect · CEMS Workbench"
    for key in ("Tab", "Enter", "Tab"):  # past the navigation and the sidebar, to the page's own content
        window.page.keyboard.press(key)
    expect(inspect.query).to_be_focused()
    first = inspect.search("browser eats all the RAM if I leave it open until evening")[0]
    expect(window.page.get_by_role("status").filter(has_text="results; first")).to_contain_text(first[:6])
    assert violations(window.page) == []


@pytest.mark.parametrize("page", ["label", "tune", "memories"])
def test_page(window: Window, page: str) -> None:
    if page == "label":
        Label.open(window, "axe", "ten")
    else:
        window.open(page)
    assert window.page.title() == f"{page.title()} · CEMS Workbench"
    found = {"page": violations(window.page)}
    for name in views(window, VIEWS):
        window.view(name)
        found[name] = violations(window.page, MAIN)
    assert len(found) >= 4
    assert {name: broken for name, broken in found.items() if broken} == {}
