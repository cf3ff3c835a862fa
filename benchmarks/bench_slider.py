"""From slider release to repainted ranking, in a real browser: 50 moves on a query with about 150 candidates.

The breakdown is taken inside the page: release -> websocket send (browser, before), send -> the message that carries the
ranking (server and transfer; `python` and `replay` are the server's own account of it), message -> ranking in the DOM (browser,
after). Needs Chromium. Run from the checkout: python -m benchmarks.bench_slider [--moves 50]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from benchmarks.serving import AT_REST, QUERY_BOX, WORKBENCH, chromium, free_port, sample_store, serving
from benchmarks.turns import summary

QUERY = "how many different doctors did I visit?"
WATCH = """
window.wb = {release: 0, send: 0, message: 0, painted: 0};
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) { if (wb.release && !wb.send) wb.send = performance.now(); return send.call(this, data); };
const Native = window.WebSocket;
window.WebSocket = class extends Native { constructor(...a) { super(...a);
  this.addEventListener('message', () => { if (wb.send && !wb.painted) wb.message = performance.now(); }); } };
addEventListener('pointerup', () => { wb.release = performance.now(); wb.send = wb.message = wb.painted = 0; }, true);
addEventListener('mouseup', () => { if (!wb.send) wb.release = performance.now(); }, true);
"""
OBSERVE = """() => { new MutationObserver(() => {
  const strip = document.querySelector('.wb-strip'); const results = document.querySelector('.wb-results');
  const now = (strip ? strip.dataset.pythonMs : '') + (results ? results.innerText : '');
  if (now !== wb.last) { wb.last = now; if (wb.send && results && results.innerText !== wb.results) {
      wb.results = results.innerText; requestAnimationFrame(() => { if (!wb.painted) wb.painted = performance.now(); }); } }
}).observe(document.body, {childList: true, subtree: true, characterData: true, attributes: true}); }"""


def move(page: Page, share: float) -> dict[str, Any] | None:
    """Drag the score-blend slider to a share of its width; None when the ranking was the same as before."""
    page.locator('[data-testid="stSlider"]', has_text="Score blend").scroll_into_view_if_needed()
    track = page.locator('[data-testid="stSlider"]', has_text="Score blend").get_by_role("slider")
    box = track.bounding_box()
    root = page.locator('[data-testid="stSlider"]', has_text="Score blend").bounding_box()
    assert box and root
    page.mouse.move(box["x"], box["y"] + box["height"] / 2)  # the input begins at the thumb's centre
    page.mouse.down()
    page.mouse.move(root["x"] + 6 + share * (root["width"] - 12), box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        found = page.evaluate("wb")
        if found["painted"]:
            page.locator(AT_REST).wait_for()  # until then the strip shows the previous ranking
            strip = page.locator(".wb-strip")
            found["python"] = float(strip.get_attribute("data-python-ms") or 0)
            found["replay"] = float(strip.get_attribute("data-replay-ms") or 0)
            page.wait_for_timeout(250)  # until the charts are there too, so that moves do not overlap
            return dict(found)
        time.sleep(0.01)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=50)
    moves = parser.parse_args().moves
    with (
        tempfile.TemporaryDirectory() as name,
        serving(WORKBENCH, free_port(), sample_store(Path(name))) as url,
        chromium() as launched,
        closing(launched()) as browser,
    ):
        samples = measure(browser, url, moves)
    report(samples)


def measure(browser: Browser, url: str, moves: int, query: str = QUERY) -> list[dict[str, Any]]:
    """One entry per move that changed the ranking: moments in milliseconds of the page's clock."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.add_init_script(WATCH)
    page.goto(url)
    page.locator(QUERY_BOX).wait_for(timeout=60_000)
    page.locator(QUERY_BOX).fill(query)
    page.locator(QUERY_BOX).press("Enter")
    page.locator(".wb-result").first.wait_for(timeout=60_000)
    page.wait_for_timeout(4000)
    page.locator(AT_REST).wait_for(timeout=60_000)
    page.evaluate(OBSERVE)
    rng = random.Random(7)
    samples: list[dict[str, Any]] = []
    for _ in range(2 * moves):  # a move may leave the ranking as it was
        if len(samples) == moves:
            break
        found = move(page, rng.random())
        if found:
            samples.append(found)
    page.close()
    return samples


def report(samples: list[dict[str, Any]]) -> None:
    if not samples:
        raise SystemExit("no move changed the ranking: nothing was measured")
    parts = {
        "release to repainted ranking": [s["painted"] - s["release"] for s in samples],
        "  browser, before (release to send)": [s["send"] - s["release"] for s in samples],
        "  server and transfer (send to message)": [s["message"] - s["send"] for s in samples],
        "    of it Python until the strip": [s["python"] for s in samples],
        "      of it replay": [s["replay"] for s in samples],
        "  browser, after (message to paint)": [s["painted"] - s["message"] for s in samples],
    }
    print(f"{len(samples)} moves{'':34s} median     p95")
    for label, values in parts.items():
        median, p95 = summary(values)
        print(f"{label:40s} {median:8.1f} {p95:8.1f} ms")
    print(f"p95 {summary(parts['release to repainted ranking'])[1]:.0f} ms (target: at most 250 ms)")


if __name__ == "__main__":
    main()
