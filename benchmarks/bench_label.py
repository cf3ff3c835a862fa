"""From key press to the next card on the Label page, in a real browser: a hundred cards graded by keyboard alone.

The clock is the page's own: from the key's event to the frame after which the next card and the new count are on screen. The label is
on disk by then, since the page counts a label only after its commit. The first card is graded as soon as it can be seen, and no pause
is made between cards, which is faster than anybody reads. The breakdown is taken inside the page: key -> websocket send (browser,
before), send -> the message that carries the next card (server and transfer), message -> next card (browser, after). Needs Chromium.
Run from the checkout: python -m benchmarks.bench_label [--cards 100] [--runs 3]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Browser

from benchmarks.serving import WORKBENCH, chromium, free_port, sample_store, serving
from benchmarks.turns import summary
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.store import Store

TARGET = 200
WATCH = """
window.wb = {key: 0, send: 0, message: 0, shown: 0, card: null, count: null};
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (data) { if (wb.key && !wb.send) wb.send = performance.now(); return send.call(this, data); };
const Native = window.WebSocket;
window.WebSocket = class extends Native { constructor(...a) { super(...a);
  this.addEventListener('message', () => { if (wb.send && !wb.shown) wb.message = performance.now(); }); } };
addEventListener('keydown', () => { const c = document.querySelector('.wb-card'), n = document.querySelector('.wb-card-progress b');
  Object.assign(wb, {key: performance.now(), send: 0, message: 0, shown: 0, card: c && c.innerText, count: n && n.innerText}); }, true);
const look = () => { const c = document.querySelector('.wb-card'), n = document.querySelector('.wb-card-progress b');
  if (wb.key && !wb.shown && n && n.innerText !== wb.count && (!c || c.innerText !== wb.card))
    requestAnimationFrame(() => { if (!wb.shown) wb.shown = performance.now(); }); };
addEventListener('DOMContentLoaded', () =>
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true}));
"""


def queue_of(store: Path, cards: int) -> None:
    """A queue of that many pairs nobody judged."""
    with Store.open(store) as opened:
        judged = {(one.qid, one.memory_id) for one in opened.judgments.read()}
        ids = sorted(opened.memories.read())
        every = [(query.qid, key) for query in opened.queries.read() for key in ids if (query.qid, key) not in judged]
        opened.queues.save(make_queue("bench", [PooledPair(*pair, {"cems": 1}) for pair in every[:cards]], "shuffled"))


def graded(browser: Browser, url: str, cards: int) -> list[dict[str, float]]:
    """The moments of each key press, in milliseconds of the page's clock."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.add_init_script(WATCH)
    page.goto(f"{url}/label")
    name = page.get_by_test_id("stTextInputField").first
    name.wait_for(timeout=60_000)
    name.fill("bench")
    page.keyboard.press("Enter")
    page.locator(".wb-card").wait_for(timeout=60_000)
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(2000)  # until the page listens to keys
    found = []
    for i in range(cards):
        page.keyboard.press(str(i % 4))
        page.wait_for_function("wb.shown", polling=10, timeout=20_000)
        found.append({name: page.evaluate(f"wb.{name}") for name in ("key", "send", "message", "shown")})
    page.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cards", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3, help="servers started anew, each with a queue of its own")
    options = parser.parse_args()
    samples: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name, chromium() as launched, closing(launched()) as browser:
        sample = sample_store(Path(name))
        for run in range(options.runs):
            store = shutil.copytree(sample, Path(name) / f"run-{run}")
            queue_of(store, options.cards + 1)  # the last card graded is followed by one
            with serving(WORKBENCH, free_port(), store) as url:
                samples += graded(browser, url, options.cards)
            check(store, options.cards)
    report(samples)


def check(store: Path, cards: int) -> None:
    """Every label once, in the store, under its author."""
    with Store.open(store) as opened:
        labels = opened.queues.labels("bench")
    if len(labels) != cards or {one.judge for one in labels} != {"bench"}:
        raise SystemExit(f"{cards} keys were pressed, {len(labels)} labels are in the store")


def report(samples: list[dict[str, float]]) -> None:
    parts = {
        "key to next card": [one["shown"] - one["key"] for one in samples],
        "  browser, before (key to send)": [one["send"] - one["key"] for one in samples],
        "  server and transfer (send to message)": [one["message"] - one["send"] for one in samples],
        "  browser, after (message to card)": [one["shown"] - one["message"] for one in samples],
    }
    print(f"{len(samples)} cards{'':33s} median     p95     max")
    for label, values in parts.items():
        median, p95 = summary(values)
        print(f"{label:40s} {median:8.0f} {p95:7.0f} {max(values):7.0f} ms")
    print(f"p95 {summary(parts['key to next card'])[1]:.0f} ms (target: below {TARGET} ms)")


if __name__ == "__main__":
    main()
