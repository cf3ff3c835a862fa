"""One sentence on every surface: the fix that `why` names, and the verdict on two configs."""

from __future__ import annotations

import html
import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from typer.testing import CliRunner

from cems_workbench import open_store, search, why
from cems_workbench.api.measures import compare, evaluate
from cems_workbench.cli.main import commands
from cems_workbench.config import dump_config, preset, with_values
from cems_workbench.jobs.catalogue import history_name
from cems_workbench.mcp.protocol import ServedStore
from cems_workbench.mcp.server import WorkbenchServer
from cems_workbench.store import Store
from tests.sample import MOVING, STAYING, store_with_set

from .pages import OpenPage, checked, plainly

pytestmark = pytest.mark.thorough
QUERIES = 12


@pytest.fixture
def store(sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample store with a query set "few"; the terminal is wide enough for a sentence."""
    monkeypatch.setenv("COLUMNS", "2000")
    return store_with_set(sample_store, tmp_path, "few", QUERIES)


def over_mcp(store: Path, tool: str, **arguments: Any) -> Any:
    served = ServedStore(store)

    async def ask() -> Any:
        async with Client(WorkbenchServer(served)) as client:
            answer = await client.call_tool(tool, arguments)
            assert not answer.is_error, answer.content[0].text
            return json.loads(answer.content[0].text)

    with ThreadPoolExecutor(1) as threads:  # a browser's loop may run in this one
        found = threads.submit(anyio.run, ask).result()
    served.close()
    return found


def command(*arguments: object) -> str:
    return CliRunner().invoke(commands, list(map(str, arguments))).stdout


def reported(path: Path, kind: str) -> str:
    found = re.search(rf'<p class="{kind}[^"]*">(.*?)</p>', path.read_text("utf-8"))
    assert found is not None
    return html.unescape(found[1])


def test_fix_before_and_after_judged_queries_are_gathered(store: Path, tmp_path: Path) -> None:
    chosen = ["--preset", "workbench", "--store", store]
    asked, out = [MOVING, STAYING, *chosen], tmp_path / "why.html"

    def everywhere() -> tuple[str, bool]:
        printed = command("why", *asked, "--ids")
        command("report", "why", *asked, "--out", out)
        with open_store(store) as opened:
            fix = why(search(opened, MOVING, "workbench"), STAYING, store=opened).fix
        asked_mcp = over_mcp(store, "why", query=MOVING, memory_id=STAYING, config="workbench")
        said = {
            "command": printed.splitlines()[0],
            "json": json.loads(command("why", *asked, "--json"))["fix"]["sentence"],
            "report": reported(out, "lead"),
            "api": str(fix),
            "mcp": asked_mcp["fix"],
        }
        assert len(set(said.values())) == 1, said
        return said["api"], "gather all --judged" in printed

    fix, proposed = everywhere()
    assert proposed and fix.endswith("not gathered yet.")
    assert "12 gathered now" in command("gather", "few", "--judged", *chosen)
    fix, proposed = everywhere()
    assert not proposed and f"on {QUERIES} of 121 queries with a relevant memory: " in fix


def test_verdict(open_page: OpenPage, store: Path, tmp_path: Path) -> None:
    names = ("first", "second")
    configs = {
        "first": with_values(preset("cems").config, {"name": "first", "fusion.k": 10}),
        "second": with_values(preset("cems").config, {"name": "second", "lists.lexical.weight": 2.0}),
    }
    with Store.open(store) as opened:
        kept = {name: opened.configs.add(name, dump_config(one), author="ada") for name, one in configs.items()}
    listed = {name: history_name(name, record.id) for name, record in kept.items()}
    files = {name: tmp_path / f"{name}.yaml" for name in names}
    for name, file in files.items():
        file.write_text(dump_config(configs[name]))

    def unlisted(text: str) -> str:
        """The sentence with the names of the files: a config of the history is listed with its number."""
        for name in names:
            text = text.replace(listed[name], name)
        return text

    asked = {"query_set": "few", "config": listed["second"], "against": listed["first"], "measures": "nDCG@10"}
    said = {"mcp": unlisted(over_mcp(store, "compare", **asked, seconds=50)["said"][0])}
    (evidence,) = (store / "evidence").glob("*.evidence")
    both = ["--config", files["first"], "--config", files["second"], "--metric", "nDCG@10"]
    for name in ("compare", "evaluate"):
        said[name] = command(name, evidence, *both).splitlines()[0]
    command("report", "compare", evidence, *both, "--out", tmp_path / "report.html")
    said["report"] = reported(tmp_path / "report.html", "lead verdict")
    said["ci"] = checked_in(tmp_path / "repository", evidence, files)
    page = open_page(store, page="evaluate")
    page.selectbox(key="evaluate:set").select("few").run()
    page.session_state["evaluate:view"] = "Compare"
    page.multiselect(key="evaluate:configs").set_value([listed[name] for name in names])
    shown = [plainly(one.value) for one in checked(page.run()).markdown if "material/" in one.value]
    (of_page,) = (re.sub(r"^:\w+\[:material/\w+:\] ", "", one) for one in shown if "nDCG@10" in one)
    said["page"] = unlisted(of_page)
    wanted = compare(*(evaluate(evidence, files[name], "nDCG@10") for name in names)).verdict().sentence
    assert said == dict.fromkeys(said, wanted)


def checked_in(repository: Path, evidence: Path, files: dict[str, Path]) -> str:
    """What `ci check` says where the second config stands in a repository whose last commit has the first."""
    repository.mkdir()
    file = repository / "config.yaml"
    file.write_text(files["first"].read_text())
    for step in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        user = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(["git", *user, *step], cwd=repository, check=True, capture_output=True)
    file.write_text(files["second"].read_text())
    gate = ["--config", file, "--against", "HEAD", "--fail-on-regression", "nDCG@10"]
    found = command("ci", "check", evidence, *gate).splitlines()[0]
    return found.replace("config.yaml now", "second").replace("config.yaml at HEAD", "first")
