"""Every page, view, tool and tooltip of the app on a store whose every name and text is an attack; ends with 1 where one acts.

Usage: python -m benchmarks.crawl [PAGE …]

Prints each place with what is not shown to the letter there, what an attack made, and how many tooltips were read. A test walks two of
the pages.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser import hostile
from tests.browser.conftest import CHROMIUM, serving
from tests.browser.crawl import PAGES, tooltips
from tests.browser.pages import window_on


def main() -> int:
    """Walk, and say what was found."""
    found = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(hostile.stock(Path(folder))) as url,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for page in sys.argv[1:] or PAGES:
            with window_on(browser, url) as window:
                for place in PAGES[page](window):
                    window.expect_no_error()
                    faults, count = hostile.faults(window.page), 0
                    for _ in tooltips(window):
                        count += 1
                        faults += hostile.faults(window.page)
                    print(
                        f"{place}: {count} tooltips, {len(set(faults))} faults",
                        *dict.fromkeys(faults),
                        sep="\n  ",
                        flush=True,
                    )
                    found += len(faults)
        browser.close()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
