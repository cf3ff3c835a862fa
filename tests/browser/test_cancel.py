"""Slow reranking: progress with a count, a cancel that does not wait for the model, and a second run that scores only the rest."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import BrowserContext, expect

from .conftest import as_on_disk, serving
from .pages import Inspect, window_on
from .test_inspect import QUERY

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

    def scored(self) -> list[list[str]]:
        """The texts of every batch scored so far."""
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []

    def open_gate(self) -> None:
        """Let the batches after the first be scored."""
        Path(f"{self.record}.gate").touch()


@pytest.fixture
def slow_server(sample_store: Path, tmp_path: Path) -> Iterator[SlowServer]:
    """The app on a separate store, whose reranker scores one batch and then waits for the gate."""
    store = Path(shutil.copytree(sample_store, tmp_path / "store"))
    script, record = tmp_path / "slow_app.py", tmp_path / "scored.jsonl"
    script.write_text(SLOW_APP)
    with serving(store, str(script), str(record)) as url:
        yield SlowServer(url, store, record)


@pytest.mark.thorough
def test_scoring_is_cancelled_at_once_and_gone_on_with_where_it_stopped(
    windows: BrowserContext, slow_server: SlowServer, tmp_path: Path
) -> None:
    server = slow_server
    with window_on(windows, server.url) as window:
        inspect = Inspect.open(window)
        inspect.search(QUERY)
        assert server.scored() == []
        presets = inspect.page.get_by_test_id("stSidebar").get_by_role("combobox").first
        presets.click()
        presets.fill("qmd")
        inspect.page.get_by_role("option", name="qmd", exact=True).click()

        count = inspect.page.get_by_test_id("stProgress").get_by_text(re.compile(rf"reranking: {BATCH} of \d+"))
        expect(count).to_be_visible()
        soon = inspect.page.locator(".wb-soon")
        expect(soon).to_have_count(10)  # the order so far is there while the model is busy
        expect(inspect.page.locator(".wb-settling-note")).to_contain_text(f"has scored {BATCH} of")
        total = int(count.inner_text().split(" of ")[1])
        assert total > 2 * BATCH, "too few candidates to cancel before the last batch"
        cancel = inspect.page.get_by_role("button", name="Cancel", exact=True)
        cancel.click()
        go_on = inspect.page.get_by_role("button", name="Resume")
        expect(go_on).to_be_visible()  # while the model is still busy with the second batch
        window.settled()
        assert [len(batch) for batch in server.scored()] == [BATCH]
        expect(cancel).to_have_count(0)
        expect(soon).to_have_count(0)
        expect(inspect.results).to_have_count(10)
        expect(inspect.page.locator(".wb-notes")).to_contain_text("candidates were not scored by late_interaction")

        server.open_gate()
        go_on.click()
        expect(go_on).to_have_count(0)
        expect(inspect.page.get_by_text("candidates were not scored")).to_have_count(0)
        window.settled()
        expect(inspect.results).to_have_count(10)
        window.expect_no_error()
    every = [text for batch in server.scored() for text in batch]
    assert len(every) == len(set(every)) == total, "a text was scored twice"
    with duckdb.connect(str(as_on_disk(server.store, tmp_path) / "workbench.duckdb")) as connection:
        assert connection.execute("SELECT count(*) FROM score_cache").fetchone() == (total,)
