"""Does Side by side cost more than the cards? Slider moves on both, in turns, in a real browser; and scrolling through 900 rows.

Two windows on one app show the same query, one as cards and one side by side. Each move drags the score-blend slider of one window and
then of the other to the same place; the next move begins with the other one. The time is that from the release of the slider to the
frame with another ranking. The page of 900 rows is `benchmarks/side_by_side_page.py`; its frames are timed while its table is scrolled
from the first row to the last.

Needs Chromium. Run from the checkout: python -m benchmarks.bench_side_by_side [--moves 60] [--only slider] [--only rows]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Browser, Page

from benchmarks.serving import AT_REST, QUERY_BOX, ROOT, WORKBENCH, chromium, free_port, sample_store, serving
from benchmarks.turns import summary

QUERY = "how many different doctors did I visit?"
FORMS = {"Cards": ".wb-results", "Side by side": ".wb-sbs tbody"}
TARGET = 1.1
WATCH = """selector => {
  const text = () => document.querySelector(selector)?.textContent;
  window.wb = {release: 0, painted: 0};
  let last = text();
  addEventListener('pointerup', () => { wb.release = performance.now(); wb.painted = 0; }, true);
  new MutationObserver(() => {
    const now = text();
    if (now === undefined || now === last) return;
    last = now;
    if (wb.release && !wb.painted) requestAnimationFrame(() => { wb.painted ||= performance.now(); });
  }).observe(document.body, {childList: true, subtree: true, characterData: true});
}"""
SCROLL = """async () => {
  const at = document.querySelector('.wb-sbs-scroll'), view = at.closest('.wb-sbs').parentElement.wbSideBySide;
  const frames = [], idle = [], rows = [], draws = [], draw = Object.getPrototypeOf(view).draw;
  const frame = () => new Promise(done => requestAnimationFrame(done));
  view.draw = () => { const from = performance.now(); draw.call(view); draws.push(performance.now() - from); };
  let before = performance.now();
  const timed = async list => { await frame(); const now = performance.now(); list.push(now - before); before = now; };
  for (let step = 0; step < 60; step++) await timed(idle);
  for (let step = 0, high = at.scrollHeight - at.clientHeight; step <= 120; step++) {
    at.scrollTop = high * step / 120;
    await timed(frames);
    rows.push(at.querySelectorAll('tbody tr[data-id]').length);
  }
  delete view.draw;
  return {frames, idle, draws, rows: Math.max(...rows), count: at.querySelector('table').getAttribute('aria-rowcount') - 1};
}"""


def window(browser: Browser, url: str, form: str) -> Page:
    """A window on the query in this form of the ranking, at rest."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(url)
    page.locator(QUERY_BOX).wait_for(timeout=60_000)
    page.locator(QUERY_BOX).fill(QUERY)
    page.locator(QUERY_BOX).press("Enter")
    page.get_by_role("radio", name=form, exact=True).wait_for(timeout=60_000)
    page.wait_for_timeout(4000)
    page.locator(AT_REST).wait_for(timeout=60_000)
    page.get_by_role("radio", name=form, exact=True).click()
    page.locator(FORMS[form]).wait_for(timeout=60_000)
    find = page.get_by_placeholder("Find a parameter")
    find.fill("score_blend")  # which is not among the basic parameters
    find.press("Enter")
    page.locator('[data-testid="stSlider"]', has_text="Score blend").wait_for(timeout=60_000)
    page.wait_for_timeout(2000)
    page.evaluate(WATCH, FORMS[form])
    return page


def move(page: Page, share: float) -> float | None:
    """Milliseconds from release to paint after dragging the slider to a share of its width; None when the ranking stayed as it was."""
    slider = page.locator('[data-testid="stSlider"]', has_text="Score blend")
    slider.scroll_into_view_if_needed()
    thumb, track = slider.get_by_role("slider").bounding_box(), slider.bounding_box()
    assert thumb and track
    page.bring_to_front()
    page.evaluate("() => { wb.release = wb.painted = 0; }")
    page.mouse.move(thumb["x"], thumb["y"] + thumb["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + 6 + share * (track["width"] - 12), thumb["y"] + thumb["height"] / 2, steps=4)
    page.mouse.up()
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        found = page.evaluate("wb")
        if found["painted"]:
            page.locator(AT_REST).wait_for()
            page.wait_for_timeout(250)  # until the charts are there too, so that moves do not overlap
            return float(found["painted"] - found["release"])
        time.sleep(0.01)
    return None


def sliders(browser: Browser, url: str, moves: int) -> float:
    """Print what a move costs in each form; the ratio of the medians."""
    pages = {form: window(browser, url, form) for form in FORMS}
    times: dict[str, list[float]] = {form: [] for form in FORMS}
    rng = random.Random(7)
    for number in range(2 * moves):  # a move may leave the ranking as it was
        if min(map(len, times.values())) >= moves:
            break
        share = rng.random()
        forms = list(FORMS) if number % 2 == 0 else list(FORMS)[::-1]
        took = {form: move(pages[form], share) for form in forms}
        for form, ms in took.items():
            if None not in took.values() and ms is not None:
                times[form].append(ms)
    for page in pages.values():
        page.close()
    if not all(times.values()):
        raise SystemExit("no move changed the ranking: nothing was measured")
    print(f"{len(times['Cards'])} moves in turns, release to repainted ranking    median     p95")
    for form, values in times.items():
        median, p95 = summary(values)
        print(f"{form:48s} {median:10.1f} {p95:7.1f} ms")
    cards, side = (summary(values)[0] for values in times.values())
    return side / cards


def rows(browser: Browser) -> None:
    """Print how long a frame takes while 900 rows are scrolled, and how many of them are drawn."""
    launch = ("streamlit", "run", str(ROOT / "benchmarks/side_by_side_page.py"), "--server.headless", "true")
    with tempfile.TemporaryDirectory() as folder, serving((*launch, "--server.port"), free_port(), Path(folder)) as url:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(url)
        page.locator(".wb-sbs tbody tr[data-id]").first.wait_for(timeout=60_000)
        page.wait_for_timeout(1500)
        page.evaluate(SCROLL)  # the first time compiles
        found = page.evaluate(SCROLL)
        page.close()
    print(f"{found['count']} rows, at most {found['rows']} in the document           median     p95")
    for name, key in (
        ("a frame at rest", "idle"),
        ("a frame while scrolling", "frames"),
        ("of it drawing rows", "draws"),
    ):
        median, p95 = summary(found[key])
        print(f"{name:48s} {median:10.1f} {p95:7.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=60)
    parser.add_argument("--only", choices=("slider", "rows"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, chromium() as launched, closing(launched()) as browser:
        if options.only != "slider":
            rows(browser)
        if options.only != "rows":
            with serving(WORKBENCH, free_port(), sample_store(Path(name))) as url:
                ratio = sliders(browser, url, options.moves)
            print(f"side by side / cards {ratio:.3f} (target: at most {TARGET})")
            if ratio > TARGET:
                raise SystemExit(f"a slider repaints Side by side more than {TARGET} times as slowly as the cards")


if __name__ == "__main__":
    main()
