"""The fix that `why` names is the same sentence on the command line, in the report, over MCP and in the API."""

from __future__ import annotations

import html as entities
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
from mcp import Client
from typer.testing import CliRunner

from cems_workbench import open_store, search, why
from cems_workbench.cli.main import commands
from cems_workbench.mcp.protocol import ServedStore
from cems_workbench.mcp.server import WorkbenchServer
from tests.sample import MOVING, STAYING, store_with_set

pytestmark = pytest.mark.models
SET, QUERIES, PRESET = "few", 12, "workbench"


def over_mcp(store: Path) -> str:
    served = ServedStore(store)

    async def ask() -> str:
        async with Client(WorkbenchServer(served)) as client:
            arguments = {"query": MOVING, "memory_id": STAYING, "config": PRESET}
            answer = await client.call_tool("why", arguments)
            assert not answer.is_error, answer.content[0].text
            return str(json.loads(answer.content[0].text)["fix"])

    with ThreadPoolExecutor(1) as threads:  # a browser's loop may run in this one
        found = threads.submit(anyio.run, ask).result()
    served.close()
    return found


def command(*arguments: str) -> str:
    done = CliRunner().invoke(commands, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.thorough
def test_fix_is_the_same_sentence_everywhere_before_and_after_judged_queries_are_gathered(
    sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    store = store_with_set(sample_store, tmp_path, SET, QUERIES)
    chosen = ["--preset", PRESET, "--store", str(store)]
    asked = [MOVING, STAYING, *chosen]
    out = tmp_path / "why.html"

    def everywhere() -> dict[str, str]:
        printed = command("why", *asked)
        command("report", "why", *asked, "--out", str(out))
        report = re.search(r'<p class="lead">(.*?)</p>', out.read_text("utf-8"))
        assert report is not None
        with open_store(store) as opened:
            fix = why(search(opened, MOVING, PRESET), STAYING, store=opened).fix
        return {
            "command": printed.splitlines()[0],
            "json": json.loads(command("why", *asked, "--json"))["fix"]["sentence"],
            "report": entities.unescape(report[1]),
            "api": str(fix),
            "mcp": over_mcp(store),
            "next": "gather all --judged" if "gather all --judged" in printed else "",
        }

    before = everywhere()
    assert before.pop("next") and before["command"].endswith("not checked on other queries: not gathered yet.")
    assert len(set(before.values())) == 1, before

    assert "12 gathered now" in command("gather", SET, "--judged", *chosen)
    after = everywhere()
    assert not after.pop("next") and f"on {QUERIES} of 121 judged queries nDCG@10 " in after["command"]
    assert len(set(after.values())) == 1, after
