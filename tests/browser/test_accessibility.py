"""Every page: no violation of WCAG 2.2 AA, the query by keyboard; a store of attacks is shown to the letter; accepted host names."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.thoroughly import first_of

from . import hostile
from .accessibility import MAIN, WHOLE, violations
from .conftest import serving
from .crawl import PAGES
from .pages import Inspect, Label, Window, window_on

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


def answered(server: str, path: str, host: str, **headers: str) -> int:
    """The status of what the app answers to a request for this name, its origin the same."""
    place = urlsplit(server)
    connection = http.client.HTTPConnection("localhost", place.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": host, "Origin": f"http://{host}", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def test_only_configured_names_get_a_session(server: str) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    port = urlsplit(server).port
    hosts = ("localhost", "127.0.0.1", "evil.example", "localhost.evil.example")
    assert [answered(server, "/_stcore/stream", f"{host}:{port}", **upgrade) for host in hosts] == [101, 101, 403, 403]


def test_streamlits_own_agent_endpoints_are_off(server: str) -> None:
    """What they would do is what `mcp` does with a store, and not with pages (docs/internals/decisions/0023)."""
    at = urlsplit(server)
    for path, status in (("interact", 403), ("mcp", 400)):
        connection = http.client.HTTPConnection("localhost", at.port, timeout=30)
        try:
            connection.request("POST", f"/_stcore/agent/{path}", "{}", {"Content-Type": "application/json"})
            reply = connection.getresponse()
            assert reply.status == status and b"does not serve the agent API" in reply.read()
        finally:
            connection.close()
