"""Slow reranking: progress with a count, a cancel that does not wait for the model, and a second run that does only the rest."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import ROOT, START_SECONDS, query_box, wait_until_healthy
from .test_inspect import WAIT, search, settle

pytestmark = [pytest.mark.browser, pytest.mark.models]
BATCH = 16

# The app itself, with a reranker that writes down what it was asked, and from its second batch on waits for the gate.
SLOW_APP = """
import json, os, sys, time
from cems_workbench.cli import main
from cems_workbench.models.late_interaction import LateInteraction

record, *arguments = sys.argv[1:]
quick = LateInteraction.score

def slow(self, query, texts, *rest):
    while os.path.exists(record) and not os.path.exists(record + ".gate"):
        time.sleep(0.02)
    scores = quick(self, query, texts, *rest)
    with open(record, "a") as lines:
        lines.write(json.dumps(list(texts)) + "\\n")
    return scores

LateInteraction.score = slow
sys.argv = ["cems_workbench", *arguments]
main()
"""


@dataclass(frozen=True)
class SlowServer:
    """The app with a slow reranker: its address, its store, and how to see what was scored."""

    url: str
    store: Path
    record: Path
    process: subprocess.Popen[bytes]

    def scored(self) -> list[list[str]]:
        """The texts of every batch scored so far."""
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []

    def open_gate(self) -> None:
        """Let the batches after the first be scored."""
        Path(f"{self.record}.gate").touch()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def cached(self) -> int:
        """The scores in the store's cache; the server has to be stopped."""
        with duckdb.connect(str(self.store / "workbench.duckdb"), read_only=True) as connection:
            row = connection.execute("SELECT count(*) FROM score_cache").fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def slow_server(sample_store: Path, tmp_path: Path) -> Iterator[SlowServer]:
    store = shutil.copytree(sample_store, tmp_path / "store")
    script, record, log = tmp_path / "slow_app.py", tmp_path / "scored.jsonl", tmp_path / "server.log"
    script.write_text(SLOW_APP)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(script), str(record), "app", "--headless", "--port", str(port)]
    environment = {
        **os.environ, "CEMS_WORKBENCH_STORE": str(store), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        server = SlowServer(f"http://localhost:{port}", Path(store), record, process)
        try:
            wait_until_healthy(server.url, process, log)
            yield server
        finally:
            server.stop()


@pytest.fixture
def slow_page(browser: Browser, slow_server: SlowServer) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.goto(slow_server.url)
    query_box(page).wait_for(timeout=START_SECONDS * 1000)
    yield page
    context.close()


def test_scoring_is_cancelled_at_once_and_gone_on_with_where_it_stopped(
    slow_page: Page, slow_server: SlowServer
) -> None:
    page, server = slow_page, slow_server
    search(page)
    assert server.scored() == []
    page.get_by_test_id("stSidebar").get_by_role("combobox").first.click()
    page.get_by_role("option", name="qmd").click()

    count = page.get_by_text(re.compile(rf"reranking: {BATCH} of \d+"))
    expect(count).to_be_visible(timeout=WAIT)
    total = int(count.inner_text().split(" of ")[1])
    assert total > 2 * BATCH, "too few candidates to cancel before the last batch"
    page.get_by_role("button", name="Cancel", exact=True).click()
    go_on = page.get_by_role("button", name="Go on")
    expect(go_on).to_be_visible(timeout=WAIT)  # while the model is still busy with the second batch
    settle(page)
    first = [text for batch in server.scored() for text in batch]
    assert len(first) == BATCH
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    expect(page.locator(".wb-result")).to_have_count(10)
    expect(page.locator(".wb-notes")).to_contain_text("candidates were not scored by late_interaction")

    server.open_gate()
    go_on.click()
    expect(go_on).to_have_count(0, timeout=WAIT)
    expect(page.get_by_text("candidates were not scored")).to_have_count(0, timeout=WAIT)
    settle(page)
    expect(page.locator(".wb-result")).to_have_count(10)
    assert page.get_by_test_id("stException").count() == 0
    every = [text for batch in server.scored() for text in batch]
    assert len(every) == len(set(every)) == total, "a text was scored twice"

    server.stop()
    assert server.cached() == total
