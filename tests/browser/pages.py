"""Page objects: user actions on each page of the app, and waiting for the response.

Nothing here waits for a number of seconds. `Window.rerun` waits for the rerun that an action asks the server for, and
`Window.settled` until no rerun is at work and the last one is drawn; everything else waits for an element to appear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, FloatRect, Locator, Page, WebSocket, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

WAIT = 120_000
"""Milliseconds after which a test gives up: far more than anything takes, for machines that are busy with something else."""
ROW = 30
"""Height of a table's rows in pixels; they are drawn on a canvas and can only be clicked by place."""

RESULT_ROW = ".wb-sbs tr[data-id]:not(.wb-sbs-cut)"
"""A result in Side by side, of those that are in view."""

COUNT_FRAMES = """
window.wbFrames = 0;
window.WebSocket = class extends window.WebSocket {
  constructor(...given) {
    super(...given);
    if (this.url.includes("_stcore/stream")) this.addEventListener("message", () => { window.wbFrames += 1; });
  }
};
"""
DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
SETTLED = """async ([frames, most]) => {
  const frame = () => new Promise(done => requestAnimationFrame(done)), until = performance.now() + most;
  const state = () => document.querySelector("[data-testid=stApp]")?.dataset.testScriptState;
  while (window.wbFrames < frames && performance.now() < until) await frame();
  await frame();
  await frame();
  while (state() !== "notRunning" && performance.now() < until) await frame();
  return performance.now() < until;
}"""
"""Whether so many messages arrived and were drawn and no rerun is at work, asked in every frame; `expect` asks ten times a second."""
CHOSEN = "element => element.ariaChecked === 'true' || element.querySelector('input:checked') !== null"
NOT_CHOSEN = "options => options.some(option => option.ariaSelected !== 'true')"
OVERFLOWING = """selector => [...document.querySelectorAll(selector)]
  .filter(element => element.scrollWidth > element.clientWidth + 1).map(element => element.innerText)"""


class Window:
    """A browser window on a running app. `strangers` and `problems` are what no window may end with."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.strangers: list[str] = []
        """Addresses of other hosts that the page asked for something."""
        self.problems: list[str] = []
        """Errors of the page's scripts, and dialogs."""
        self._socket: WebSocket | None = None
        self._received = 0
        self._running = False
        page.set_default_timeout(WAIT)
        page.add_init_script(COUNT_FRAMES)
        page.on("websocket", self._follow)
        page.on("request", lambda request: self.strangers.append(request.url) if is_elsewhere(request.url) else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def _follow(self, socket: WebSocket) -> None:
        if "_stcore/stream" in socket.url:
            self._socket, self._received, self._running = socket, 0, True
            socket.on("framesent", self._sent)
            socket.on("framereceived", self._arrived)

    def _sent(self, frame: str | bytes) -> None:
        self._running |= asks_for_rerun(frame)

    def _arrived(self, frame: str | bytes) -> None:
        self._received += 1
        assert isinstance(frame, bytes)
        message = ForwardMsg.FromString(frame)
        if message.WhichOneof("type") == "script_finished":
            self._running = message.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN

    def open(self, path: str = "") -> None:
        """Load a page of the app as a new session, by its path or a whole address, and wait until it is drawn."""
        with self.page.expect_websocket(lambda socket: "_stcore/stream" in socket.url):
            self.page.goto(path if path.startswith("http") else f"{self.url}/{path}")
        self.settled()

    def reload(self) -> None:
        """Load the address again, as a new session."""
        self.open(self.page.url)

    def back(self) -> None:
        """Go back in the browser's history."""
        with self.rerun():
            self.page.go_back()

    def switch(self, name: str) -> None:
        """Go to another page of the app within the session."""
        with self.rerun():
            self.page.get_by_role("link", name=name).click()

    @contextmanager
    def rerun(self) -> Iterator[None]:
        """Do something that asks the server for a rerun, and wait until that rerun is drawn."""
        assert self._socket is not None, "the window was not opened"
        with self._socket.expect_event("framesent", asks_for_rerun, timeout=WAIT):
            yield
        self.settled()

    def settled(self) -> None:
        """Wait until no rerun is at work and what the last one sent is drawn."""
        assert self._socket is not None, "the window was not opened"
        if self._running:
            with self._socket.expect_event("framereceived", lambda _: not self._running, timeout=WAIT):
                pass
        assert self.page.evaluate(SETTLED, [self._received, WAIT]), "the page did not settle"

    def report(self) -> str:
        """The report that the page writes, as its button gives it."""
        self.page.get_by_role("button", name="Report", exact=True).click()
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name="Download HTML").click()
        self.page.keyboard.press("Escape")
        self.settled()
        return download.value.path().read_text("utf-8")

    def press(self, name: str | re.Pattern[str], place: Locator | None = None) -> None:
        """Press the first button of this name, which asks for a rerun."""
        with self.rerun():
            (place or self.page).get_by_role("button", name=name, exact=True).first.click()

    def view(self, name: str) -> None:
        """Choose a view of the page by its name in the row of views."""
        self.switch_to(name, self.page.get_by_test_id("stButtonGroup"))

    def switch_to(self, name: str, row: Locator) -> None:
        """Choose a button of a row of which one is chosen at a time; nothing happens where it is chosen already."""
        choice = row.locator("button, label", has=self.page.get_by_text(name, exact=True))
        if not choice.evaluate(CHOSEN):
            with self.rerun():
                choice.click()
        self.expect_no_error()

    def choose(self, box: str | Locator, option: str | re.Pattern[str]) -> None:
        """Choose an option of a select box, given by its label or itself; nothing happens where it is chosen already."""
        place = self.page.get_by_role("combobox", name=box, exact=True) if isinstance(box, str) else box
        place.click()
        choice = self.page.get_by_role("option", name=option, exact=True)
        if isinstance(option, str) and not choice.is_visible():
            place.fill(option)  # a long list draws only its first options
        if choice.get_attribute("aria-selected") == "true":
            place.press("Escape")
            return
        with self.rerun():
            choice.click()
            # A list redrawn during the click is still open with the old option; checked without waiting, as it may close.
            while not self._running and choice.evaluate_all(NOT_CHOSEN):
                with suppress(PlaywrightTimeout):  # it may have closed in this very moment
                    choice.click(timeout=1000)

    def type(self, box: Locator, text: str) -> None:
        """Type a text into a box and commit it by the Enter key."""
        box.fill(text)
        with self.rerun():
            box.press("Enter")

    def slide(self, name: str, key: str) -> None:
        """Move a slider by a key."""
        slider = self.page.get_by_role("slider", name=name)
        slider.focus()
        with self.rerun():
            slider.press(key)

    def download(self, button: str, path: Path) -> None:
        """Press a download button and keep its file."""
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name=button).click()
        download.value.save_as(path)

    def table(self, number: int = 0) -> Locator:
        """The table of this place on the page."""
        return self.page.get_by_test_id("stDataFrame").nth(number)

    def pick_row(self, table: Locator, row: int = 0) -> None:
        """Pick a row of a table by a click on the box before it."""
        table.scroll_into_view_if_needed()
        box = standing(table)
        with self.rerun():
            self.page.mouse.click(box["x"] + 15, box["y"] + (row + 1.5) * ROW)

    def expect_no_error(self) -> None:
        """No exception is shown on the page."""
        expect(self.page.get_by_test_id("stException")).to_have_count(0)

    def expect_fit(self, name: str, elements: str = "") -> None:
        """Neither the page nor any of these elements is wider than its place."""
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
        assert not elements or self.page.evaluate(OVERFLOWING, elements) == [], name

    def resize(self, width: int, scheme: str) -> None:
        """Give the window another width and colour scheme, and wait until it is drawn so."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        self.settled()
        self.page.evaluate(DRAWN)


class Inspect:
    """The Inspect page."""

    def __init__(self, window: Window) -> None:
        self.window, self.page = window, window.page
        self.query = self.page.locator(".st-key-inspect-query input")
        self.results = self.page.locator(f".wb-result .wb-facts code, {RESULT_ROW} .wb-sbs-text code")
        """The ids of the results, the first first, in either form of the ranking."""
        self.deltas = self.page.locator(".wb-result .wb-delta")
        self.against = self.page.locator(".wb-against")

    @classmethod
    def open(cls, window: Window) -> Inspect:
        """A new session on the page."""
        window.open()
        inspect = cls(window)
        inspect.query.wait_for()
        return inspect

    def search(self, query: str) -> list[str]:
        """Search, and give the ids of the results."""
        self.window.type(self.query, query)
        self.results.first.wait_for()
        return self.order()

    def order(self) -> list[str]:
        """The ids of the results, once the page stands still."""
        self.window.settled()
        return self.results.all_inner_texts()

    def form(self, name: str) -> None:
        """Choose the form of the ranking: Cards or Side by side."""
        self.window.switch_to(name, self.page.locator(".st-key-inspect-form"))

    def view(self, name: str) -> None:
        """Choose a view of the stages."""
        self.window.switch_to(name, self.page.locator(".st-key-inspect-view"))

    def section(self, name: str) -> None:
        """Choose what is shown below the ranking."""
        self.window.switch_to(name, self.page.locator(".st-key-inspect-section"))

    def tool(self, name: str) -> None:
        """Choose a tool of "Why, and what if", which is opened where it is not; one that is not in the row under More."""
        self.section("Why, and what if")
        row = self.page.locator(".st-key-inspect-tool")
        if row.get_by_text(name, exact=True).count():
            self.window.switch_to(name, row)
            return
        self.page.locator(".st-key-inspect-more button:visible").click()
        with self.window.rerun():
            self.page.get_by_role("menuitem", name=name, exact=True).click()
        self.window.expect_no_error()

    def preset(self, name: str) -> None:
        """Choose a preset in the sidebar."""
        with self.window.rerun():
            self.page.get_by_role("button", name="Preset: ").first.click()
        with self.window.rerun():
            self.page.locator("label", has=self.page.get_by_text(name, exact=True)).click()

    def group(self, name: str) -> None:
        """Open a group of parameters in the sidebar."""
        with self.window.rerun():
            self.page.get_by_test_id("stSidebar").get_by_text(name, exact=True).first.click()

    def find(self, words: str) -> None:
        """Find parameters in the sidebar."""
        with self.window.rerun():
            self.page.get_by_placeholder("Find a parameter").fill(words)

    def slide(self, name: str, key: str) -> None:
        """Find a parameter and move its slider by a key."""
        self.find(name)
        self.window.slide(name, key)

    def changed(self, count: int) -> Locator:
        """The button that says how many parameters differ from the preset, and resets them."""
        return self.page.get_by_role("button", name=f"Reset to preset (changed: {count})")


class Label:
    """The Label page."""

    def __init__(self, window: Window) -> None:
        self.window, self.page = window, window.page
        self.card = self.page.locator(".wb-card")
        self.count = self.page.locator(".wb-card-progress b")
        """How many cards the reviewer has graded."""

    @classmethod
    def open(cls, window: Window, reviewer: str, queue: str) -> Label:
        """A new session on the page, with a card of the queue before the reviewer, which keys answer: no box keeps them."""
        window.open("label")
        label = cls(window)
        label.sign(reviewer)
        window.choose("Queue", re.compile(f"^{queue} ·"))
        label.card.wait_for()
        return label

    def sign(self, reviewer: str) -> None:
        """Give the reviewer's name."""
        self.window.type(self.page.get_by_test_id("stTextInputField").first, reviewer)


class Memories:
    """The Memories page."""

    def __init__(self, window: Window) -> None:
        self.window, self.page = window, window.page
        self.words = self.page.get_by_placeholder("exact text")
        self.title = self.page.locator(".wb-mem-title")

    @classmethod
    def open(cls, window: Window) -> Memories:
        """A new session on the page."""
        window.open("memories")
        return cls(window)

    def search(self, words: str) -> None:
        """Look for memories that hold these words."""
        self.window.type(self.words, words)
        expect(self.page.locator(".wb-mem-hint").first).to_contain_text("memories match", timeout=WAIT)

    def pick_first(self) -> None:
        """Pick the first memory of the table."""
        self.window.pick_row(self.window.table())
        self.title.wait_for()


def cells(table: Locator) -> list[list[str]]:
    """The cells of a table as assistive technology reads them, header first; the canvas itself says nothing."""
    table.locator("table tr").nth(1).wait_for(state="attached")
    lines = [line.locator("th, td").all_text_contents() for line in table.locator("table tr").all()]
    return [line for line in lines if line]


def column(rows: Sequence[Sequence[str]], name: str) -> list[str]:
    """One column of such cells, without its header."""
    place = rows[0].index(name)
    return [row[place] for row in rows[1:]]


def standing(element: Locator) -> FloatRect:
    """The place of an element once it is the same in two frames that follow each other."""
    element.wait_for()
    before, box = None, element.bounding_box()
    while box is None or box != before:
        element.page.evaluate(DRAWN)
        before, box = box, element.bounding_box()
    return box


def asks_for_rerun(frame: str | bytes) -> bool:
    """Whether a frame that the page sent asks the server to run the script."""
    return isinstance(frame, bytes) and BackMsg.FromString(frame).WhichOneof("type") == "rerun_script"


def is_elsewhere(url: str) -> bool:
    """Whether an address is of another host than the app's."""
    return url.startswith(("http://", "https://", "ws://", "wss://")) and "//localhost" not in url


LIKE_THIS = {"viewport": {"width": 1440, "height": 1000}, "color_scheme": "light", "accept_downloads": True}
"""How a window is."""
FORGET = """if (location.protocol.startsWith("http") && !sessionStorage.wbOpened) {
  localStorage.clear();
  sessionStorage.wbOpened = "yes";
}"""


@contextmanager
def window_on(place: Browser | BrowserContext, url: str) -> Iterator[Window]:
    """A new window on the app, light and 1440 wide, closed afterwards; it asked no other host and had no error.

    In a browser it is somebody else's who was never there. In a context with a page it is opened by that page, and knows as little; but
    such windows share a process, which has compiled the app's scripts: they open in two thirds of the time.
    """
    context = place if isinstance(place, BrowserContext) else place.new_context(**LIKE_THIS)
    window = Window(context.new_page() if context is not place else _opened_by(context.pages[0], url), url)
    try:
        yield window
    finally:
        (window.page if context is place else context).close()
    assert not window.strangers, f"the page asked elsewhere: {window.strangers}"
    assert not window.problems


def _opened_by(opener: Page, url: str) -> Page:
    """A window that another opened, with nothing kept of those before it."""
    if opener.url == "about:blank":  # of the same site, as only that shares a process
        opener.goto(f"{url}/_stcore/health")
    opener.context.clear_cookies()
    with opener.expect_popup() as popup:
        opener.evaluate("() => { window.open('about:blank'); }")
    popup.value.add_init_script(FORGET)
    return popup.value
