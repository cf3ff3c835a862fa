"""From slider release to repainted ranking, in a real browser: 50 moves on a query with about 150 candidates.

The breakdown is taken inside the page: release -> websocket send (browser, before), send -> the message that carries the
ranking (server and transfer; `python` and `replay` are the server's own account of it), message -> ranking in the DOM (browser,
after). With `--open` every group of parameters is open. With `--against CHECKOUT` the same moves are made there in turns.
Needs Chromium. Run from the checkout: python -m benchmarks.bench_slider [--moves 50] [--open] [--against CHECKOUT]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from benchmarks.serving import AT_REST, QUERY_BOX, ROOT, WORKBENCH, chromium, free_port, sample_store, serving
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
  const now = document.querySelector('.wb-sbs tbody')?.textContent;
  if (now === undefined || now === wb.last) return;
  wb.last = now;
  if (wb.send) requestAnimationFrame(() => { wb.painted ||= performance.now(); });
}).observe(document.body, {childList: true, subtree: true, characterData: true}); }"""
BLEND, WEIGHT = "Score blend", "Vector weight"
FOLDED = "[data-testid=stSidebar] details:not([open]) > summary"


def move(page: Page, name: str, share: float) -> dict[str, Any] | None:
    """Drag a slider to a share of its width; None when the ranking was the same as before."""
    slider = page.locator('[data-testid="stSlider"]', has_text=name)
    slider.scroll_into_view_if_needed()
    box, root = slider.get_by_role("slider").bounding_box(), slider.bounding_box()
    assert box and root
    page.bring_to_front()
    page.mouse.move(box["x"], box["y"] + box["height"] / 2)  # the input begins at the thumb's centre
    page.mouse.down()
    page.mouse.move(root["x"] + 6 + share * (root["width"] - 12), box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    deadline = time.monotonic() + 10
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
    parser.add_argument("--open", action="store_true", help="with every group of parameters open")
    parser.add_argument("--against", type=Path, help="another checkout")
    asked = parser.parse_args()
    trees = [ROOT, *([asked.against] if asked.against else [])]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        stores = [sample_store(Path(name) / str(number), tree) for number, tree in enumerate(trees)]
        urls = [
            stack.enter_context(serving(WORKBENCH, free_port(), store, tree=tree))
            for store, tree in zip(stores, trees, strict=True)
        ]
        browser = stack.enter_context(closing(stack.enter_context(chromium())()))
        samples = measure(
            [window(browser, url, asked.open) for url in urls], WEIGHT if asked.open else BLEND, asked.moves
        )
    for tree, rows in zip(trees, samples, strict=True):
        print(tree)
        report(rows)
    if asked.against:
        now, before = (summary([row["painted"] - row["release"] for row in rows])[0] for rows in samples)
        print(f"median here / there: {now / before:.2f}")


def window(browser: Browser, url: str, opened: bool, query: str = QUERY) -> Page:
    """A page with the ranking of a query, at rest, and the slider that is moved."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.add_init_script(WATCH)
    page.goto(url)
    page.locator(QUERY_BOX).wait_for(timeout=60_000)
    page.locator(QUERY_BOX).fill(query)
    page.locator(QUERY_BOX).press("Enter")
    page.locator(".wb-sbs tbody tr[data-id]").first.wait_for(timeout=60_000)
    page.wait_for_timeout(4000)
    find = page.get_by_placeholder("Find a parameter")
    if not opened and find.count():
        find.fill(BLEND)
    while opened and page.locator(FOLDED).count():
        page.locator(FOLDED).first.click()
        page.wait_for_timeout(700)
        page.locator(AT_REST).wait_for(timeout=60_000)
    page.wait_for_timeout(2000)
    page.locator(AT_REST).wait_for(timeout=60_000)
    page.evaluate(OBSERVE)
    return page


def measure(pages: Sequence[Page], slider: str, moves: int) -> list[list[dict[str, Any]]]:
    """Of each page one entry per move that changed the ranking: moments in milliseconds of its clock. Each move is made on every page."""
    rng, samples = random.Random(7), [list[dict[str, Any]]() for _ in pages]
    for _ in range(2 * moves):  # a move may leave the ranking as it was
        if min(map(len, samples)) == moves:
            break
        share = rng.random()
        for page, rows in zip(pages, samples, strict=True):
            found = move(page, slider, share)
            if found:
                rows.append(found)
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
