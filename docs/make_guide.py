"""The pictures of docs/start/guide.md, taken from the app itself on the sample store.

    python -m docs.make_guide [--folder docs/start/guide] [--store STORE]

Needs Chromium, as the browser tests do. The walk is on a copy of STORE, which holds the sample set, or on a new import; what was gathered
there before, such as by `python -m benchmarks.sample_figures`, need not be gathered again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from cems_workbench import formats
from cems_workbench.builtin import FIRST
from cems_workbench.jobs.factory import open_resources
from cems_workbench.settings import Settings
from tests.browser.conftest import serving
from tests.browser.pages import Window
from tests.browser.whole_way import walk

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Walk through the app and keep a picture of each station."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "start" / "guide")
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["CEMS_WORKBENCH_PRESET"] = FIRST  # what `make run` opens, whatever the environment says

    def shoot(page: Page, name: str, selector: str) -> None:
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
        with serving(store) as url:
            page = browser.new_page(
                viewport={"width": 1280, "height": 900}, color_scheme="light", accept_downloads=True
            )
            walk(Window(page, url), Path(name) / "tuned.yaml", shoot, trials=120)
        browser.close()
    for picture in sorted(folder.glob("*.png")):
        print(picture)


def _import(store: Path) -> None:
    resources = open_resources(Settings(store=store))
    for parsed in formats.read_path(ROOT / "sample_data"):
        resources.store.add(parsed)
    resources.refresh()
    resources.close()


if __name__ == "__main__":
    main()
