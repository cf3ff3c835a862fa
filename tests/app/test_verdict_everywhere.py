"""The verdict on two configs is the same sentence on the page, on the command line, in the report, over MCP, in the API and in CI.

`VERDICT_PAIRS=200` compares as many random pairs on all judged queries of the sample, or on `VERDICT_QUERIES` of them; another
`VERDICT_SEED` draws others.
"""

from __future__ import annotations

import html
import json
import os
import random
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from typer.testing import CliRunner

from cems_workbench.api.measures import compare, evaluate
from cems_workbench.cli.main import commands
from cems_workbench.config import PipelineConfig, dump_config, preset, with_values
from cems_workbench.jobs.catalogue import history_name
from cems_workbench.mcp.protocol import ServedStore
from cems_workbench.mcp.server import WorkbenchServer
from cems_workbench.store import Store
from tests.sample import store_with_set

from .pages import OpenPage, checked, plainly

pytestmark = pytest.mark.models
PAIRS = int(os.environ.get("VERDICT_PAIRS", "3"))
QUERIES = 12 if PAIRS < 50 else int(os.environ.get("VERDICT_QUERIES", "10000"))
SET = "few"
CHANGES: dict[str, tuple[Any, ...]] = {
    "lists.lexical.weight": (0.5, 1.0, 2.0),
    "lists.vector.weight": (0.5, 1.0, 2.0),
    "fusion.k": (10, 60, 200),
    "assembly.limit": (3, 8, 10, 20),
    "gap.ratio": (0.0, 0.3, 0.6),
    "adjust.priority": (True, False),
    "adjust.time_decay.mode": ("none", "linear"),
    "dedup.enabled": (True, False),
}
"""Replayed from the evidence of one gather."""


def random_config(rng: random.Random, name: str) -> PipelineConfig:
    changed = rng.sample(sorted(CHANGES), rng.randint(1, 3))
    values = {path: rng.choice(CHANGES[path]) for path in changed}
    return with_values(preset("cems").config, {"name": name, **values})


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def sentence(output: str) -> str:
    """The first sentence of an output; the terminal is wide enough for it."""
    return output.splitlines()[0]


@pytest.mark.thorough
def test_verdict_sentence_is_the_same_everywhere(
    open_page: OpenPage, sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    rng, repository = random.Random(int(os.environ.get("VERDICT_SEED", "0"))), tmp_path / "repository"
    store = store_with_set(sample_store, tmp_path, SET, QUERIES)
    configs = [random_config(rng, f"c{i}") for i in range(max(4, PAIRS // 4))]
    files = {one.name: tmp_path / f"{one.name}.yaml" for one in configs}
    for one in configs:
        files[one.name].write_text(dump_config(one))
    listed: dict[str, str] = {}
    with Store.open(store) as opened:
        for one in configs:
            record = opened.configs.add(one.name, dump_config(one), author="ada")
            listed[one.name] = history_name(one.name, record.id)
    pairs = [tuple(rng.sample([one.name for one in configs], 2)) for _ in range(PAIRS)]
    over_mcp = asked_of_mcp(store, pairs, listed)
    (evidence,) = (store / "evidence").glob("*.evidence")
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    said: dict[str, dict[tuple[str, str], str]] = {"mcp": over_mcp, "page": {}}
    for pair in pairs:
        for place, one in outside_the_page(evidence, pair, files, repository, tmp_path).items():
            said.setdefault(place, {})[pair] = one
    page = open_page(store).switch_page("pages/evaluate.py").run()
    page.selectbox(key="evaluate:set").select(SET).run()
    page.session_state["evaluate:view"] = "Compare"
    for pair in pairs:
        page.multiselect(key="evaluate:configs").set_value([listed[name] for name in pair])
        checked(page.run())
        shown = [plainly(one.value) for one in page.markdown if "material/" in one.value]
        (of_page,) = (re.sub(r"^:\w+\[:material/\w+:\] ", "", one) for one in shown if "nDCG@10" in one)
        said["page"][pair] = unlisted(of_page, pair, listed)
    wanted = said.pop("api")
    assert len({one.split()[0] for one in wanted.values()}) > 1 or PAIRS < 50, "all verdicts are of one kind"
    for place, of_place in said.items():
        assert of_place == wanted, place


def asked_of_mcp(store: Path, pairs: list[tuple[str, str]], listed: dict[str, str]) -> dict[tuple[str, str], str]:
    served, found = ServedStore(store), {}

    async def ask() -> None:
        async with Client(WorkbenchServer(served)) as client:
            for first, second in pairs:
                arguments = {
                    "query_set": SET,
                    "config": listed[second],
                    "against": listed[first],
                    "measures": "nDCG@10",
                    "seconds": 50,
                }
                answer = await client.call_tool("compare", arguments)
                assert not answer.is_error, answer.content[0].text
                said = json.loads(answer.content[0].text)["said"][0]
                found[first, second] = unlisted(said, (first, second), listed)

    with ThreadPoolExecutor(1) as threads:  # a browser's loop may run in this one
        threads.submit(anyio.run, ask).result()
    served.close()
    return found


def unlisted(text: str, pair: tuple[str, str], listed: dict[str, str]) -> str:
    """The sentence with the names of the files: a config of the history is listed with its number."""
    for name in pair:
        text = text.replace(listed[name], name)
    return text


def outside_the_page(
    evidence: Path, pair: tuple[str, str], files: dict[str, Path], repository: Path, folder: Path
) -> dict[str, str]:
    first, second = pair
    named = ["--config", str(files[first]), "--config", str(files[second]), "--metric", "nDCG@10"]
    found = {}
    for command in ("compare", "evaluate"):
        found[command] = sentence(CliRunner().invoke(commands, [command, str(evidence), *named]).output)
    page = folder / "report.html"
    CliRunner().invoke(commands, ["report", "compare", str(evidence), *named, "--out", str(page)])
    shown = re.search(r'<p class="lead verdict[^"]*">(.*?)</p>', page.read_text("utf-8"))
    assert shown is not None
    found["report"] = html.unescape(shown[1])
    reports = [evaluate(evidence, files[name], "nDCG@10") for name in pair]
    found["api"] = compare(*reports).verdict().sentence
    (repository / "config.yaml").write_text(files[first].read_text())
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "--allow-empty", "-m", "one")
    (repository / "config.yaml").write_text(files[second].read_text())
    checked_in = ["ci", "check", str(evidence), "--config", str(repository / "config.yaml"), "--against", "HEAD"]
    checked_in += ["--fail-on-regression", "nDCG@10"]
    ci = sentence(CliRunner().invoke(commands, checked_in).output)
    found["ci"] = ci.replace("config.yaml now", second).replace("config.yaml at HEAD", first)
    return found
