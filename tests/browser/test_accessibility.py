"""Every page: no violation of WCAG 2.2 AA, in light and dark themes, and the query is reachable by keyboard.

The views of each are looked at by `make thorough`, those of Inspect in test_crawler.py, those of Evaluate in test_evaluate.py.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .accessibility import MAIN, violations
from .pages import Inspect, Label, Window

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


@pytest.fixture
def opened(window: Window, request: pytest.FixtureRequest) -> Window:
    """The window on the page of this parameter; on Label with a card."""
    if request.param == "label":
        Label.open(window, "axe", "ten")
    else:
        window.open(request.param)
    assert window.page.title() == f"{request.param.title()} · CEMS Workbench"
    return window


@pytest.mark.parametrize("opened", ["label", "evaluate", "tune", "memories"], indirect=True)
def test_page(opened: Window) -> None:
    assert violations(opened.page) == []


@pytest.mark.thorough
@pytest.mark.parametrize("opened", ["label", "tune", "memories"], indirect=True)
def test_every_view_of_a_page(opened: Window) -> None:
    window, found = opened, dict[str, list[str]]()
    for name in views(window, VIEWS):
        window.view(name)
        found[name] = violations(window.page, MAIN)
    assert len(found) >= 3
    assert {name: broken for name, broken in found.items() if broken} == {}
