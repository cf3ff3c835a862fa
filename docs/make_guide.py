"""The pictures of docs/start/guide.md and README.md, taken from the app on the sample store.

    python -m docs.make_guide [--folder docs/start/guide] [--store STORE] [--only case|walk|overview]

Needs Chromium, as the browser tests do. It runs on a copy of STORE, which holds the sample set, or on a new import. Evidence in STORE
is reused.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright

from cems_workbench import formats
from cems_workbench.builtin import DEFAULT_PRESET
from cems_workbench.jobs.factory import open_resources
from cems_workbench.settings import Settings
from cems_workbench.ui.inspect.next_step import LOOKING
from tests.browser.conftest import serving
from tests.browser.pages import Inspect, Window
from tests.browser.whole_way import GATHERED, case, walk
from tests.sample import MOVING

ROOT = Path(__file__).resolve().parents[1]
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def main() -> None:
    """Walk through the app and take a picture at each station."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "start" / "guide")
    parser.add_argument("--store", type=Path)
    parser.add_argument(
        "--only",
        choices=("case", "walk", "overview"),
        help="take only the pictures of the stale memory, of README, or the others",
    )
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["CEMS_WORKBENCH_PRESET"] = DEFAULT_PRESET  # what `make run` opens, whatever the environment says

    def shoot(page: Page, name: str, selector: str) -> None:
        _wait_for_work(page)
        page.locator(selector).first.evaluate("element => element.scrollIntoView()")
        page.mouse.move(0, 0)
        page.wait_for_timeout(1000)  # charts fade in
        page.screenshot(path=folder / f"{name}.png")

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        store = Path(name) / "store"
        if options.store is not None:
            shutil.copytree(options.store, store)
        else:
            _import(store)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with serving(store, gather_ahead=True) as url:
            page = browser.new_page(
                viewport={"width": 1280, "height": 900}, color_scheme="light", accept_downloads=True
            )
            if options.only in (None, "case"):
                case(Inspect.open(Window(page, url)).window, shoot)
            if options.only != "case":
                _overview(browser, url, folder)
            if options.only in (None, "walk"):
                walk(Window(page, url), Path(name) / "tuned.yaml", shoot, trials=120)
        browser.close()
    for picture in sorted(folder.glob("*.png")):
        print(picture)


def _wait_for_work(page: Page) -> None:
    """Wait until the judged queries are searched, the fix is named and no notice covers the page."""
    for work in (page.get_by_test_id("stProgress"), page.get_by_text(LOOKING), page.get_by_test_id("stToast")):
        expect(work).to_have_count(0, timeout=GATHERED)


def _overview(browser: Browser, url: str, folder: Path) -> None:
    """README's picture: Inspect with a failing query, in light and dark."""
    for scheme in SCHEMES:
        page = browser.new_page(viewport={"width": 1440, "height": 960}, color_scheme=scheme)
        Inspect.open(Window(page, url)).search(MOVING)
        _wait_for_work(page)
        page.mouse.move(0, 0)
        page.wait_for_timeout(1000)  # charts fade in
        page.screenshot(path=folder / f"inspect-{scheme}.png")
        page.close()


def _import(store: Path) -> None:
    resources = open_resources(Settings(store=store))
    for parsed in formats.read_path(ROOT / "sample_data"):
        resources.store.add(parsed)
    resources.refresh()
    resources.close()


if __name__ == "__main__":
    main()
