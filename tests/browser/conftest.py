"""The app in a real browser: one server and one Debian Chromium per worker, driven by Playwright through tests/browser/pages.py."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import make_queue
from tests.sample import FAILING, answered_queries, copied

from .pages import LIKE_THIS, WAIT, Window, window_on

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium")
START_SECONDS = 120

expect.set_options(timeout=WAIT)


@pytest.fixture(scope="session")
def stocked_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with query sets and queues for the tests: each takes its own, so that all can share one server.

    Set "a few", the first that pages offer, has ten answered queries with the failing one of the whole way; "six" has six others
    and "two" two. Queue "forty" has forty unjudged pairs, "ten" and "more" ten each, "long" the three longest memories for one query.
    """
    folder = tmp_path_factory.mktemp("browser")
    with copied(sample_store, folder) as store:
        queries, answered = store.queries.read(), answered_queries(store, first=FAILING)
        store.query_sets.put("a few", answered[:10], "test")
        store.query_sets.put("six", answered[14:20], "test")
        store.query_sets.put("two", queries[:2], "test")
        known = {(judgment.qid, judgment.memory_id) for judgment in store.judgments.read()}
        texts = store.memories.read()
        memories, longest = sorted(texts), sorted(texts, key=lambda key: -len(texts[key].content))
        pairs = [(query.qid, memory_id) for query in queries[:30] for memory_id in memories[:10]]
        fresh = [PooledPair(*pair, {"cems": 1}) for pair in pairs if pair not in known]
        unread = [
            PooledPair(queries[30].qid, key, {"cems": 1}) for key in longest if (queries[30].qid, key) not in known
        ]
        for name, chosen in (
            ("forty", fresh[:40]),
            ("ten", fresh[40:50]),
            ("more", fresh[50:60]),
            ("long", unread[:3]),
        ):
            store.queues.save(make_queue(name, chosen, "top"))
    return folder / "store"


def as_on_disk(store: Path, folder: Path) -> Path:
    """A copy of a store that a server holds open: what would be found if the server were killed now."""
    return Path(shutil.copytree(store, folder / "as-on-disk"))


@pytest.fixture(scope="session")
def server(stocked_store: Path) -> Iterator[str]:
    """URL of the app on the stocked store, started as `make run` starts it."""
    with serving(stocked_store) as url:
        yield url


@contextmanager
def serving(store: Path, *launch: str, gather_ahead: bool = False) -> Iterator[str]:
    """Start the app on a store, by `launch` instead of the package where that is given; it is ended afterwards.

    With `gather_ahead` it searches the judged queries in the background and looks for fixes unasked, as it does for a user.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments: Sequence[str] = launch or ("-m", "cems_workbench")
    command = [sys.executable, *arguments, "app", "--headless", "--port", str(port)]
    environment = {
        **os.environ,
        "CEMS_WORKBENCH_STORE": str(store),
        "CEMS_WORKBENCH_GATHER_AHEAD": str(gather_ahead).lower(),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
    }
    log = store.parent / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until_healthy(f"http://localhost:{port}", process, log)
            yield f"http://localhost:{port}"
        finally:
            process.terminate()
            process.wait(20)


def wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the server answers; an AssertionError with its log when it ends or never does."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"the app did not start within {START_SECONDS} s:\n{log.read_text()}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; the tests skip where there is none."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def windows(browser: Browser) -> BrowserContext:
    """Where windows are opened that share a process: a context with a page that opens them."""
    context = browser.new_context(**LIKE_THIS)
    context.new_page()
    return context


@pytest.fixture
def window(windows: BrowserContext, server: str) -> Iterator[Window]:
    """A new window on the app, with nothing opened yet."""
    with window_on(windows, server) as opened:
        yield opened
