"""The app in a real browser: a server on a copy of the sample store, and Debian's Chromium driven by Playwright."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium")
START_SECONDS = 60


@pytest.fixture(scope="session")
def server(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the app on a copy of the sample store, started as `make run` starts it."""
    with serving(shutil.copytree(sample_store, tmp_path_factory.mktemp("browser") / "store")) as url:
        yield url


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """Start the app on a store; it is ended afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "cems_workbench", "app", "--headless", "--port", str(port)]
    environment = {**os.environ, "CEMS_WORKBENCH_STORE": str(store), "HF_HUB_OFFLINE": "1"}
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
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the app did not start within {START_SECONDS} s:\n{log.read_text()}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, server: str) -> Iterator[Page]:
    """A new window on the app, light, 1440 wide; the test fails when the page asked any other host for something."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="light")
    opened = context.new_page()
    strangers: list[str] = []
    problems: list[str] = []
    opened.on("request", lambda request: strangers.append(request.url) if is_elsewhere(request.url) else None)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    opened.goto(server)
    query_box(opened).wait_for(timeout=START_SECONDS * 1000)
    yield opened
    context.close()
    assert not strangers, f"the page asked elsewhere: {strangers}"
    assert not problems


def is_elsewhere(url: str) -> bool:
    return url.startswith(("http://", "https://", "ws://", "wss://")) and "//localhost" not in url


def query_box(page: Page):  # type: ignore[no-untyped-def]
    return page.get_by_placeholder("What should the agent remember?")
