"""A plugin package beside the workbench: its format, measure, reranker and retriever work, and no file of ours is touched.

The plugin is tests/plugin. It is installed as pip would install it: its package and a .dist-info with its entry points on the path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.settings import Settings
from tests.strangers import install

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "tests" / "plugin"
NOTES = {
    "deploy": "The release train leaves on Tuesday.",
    "lunch": "The kitchen closes at two.",
    "rollback": "roll a bad release back\nThen tell the channel.",
}
QUERY = "roll a release back"
SECONDS = 300


DRIVER = """
import contextlib, io, json, sys
from functools import lru_cache
from cems_workbench.cli import main
from cems_workbench.jobs import factory
factory.local_embedder = lru_cache(factory.local_embedder)  # the weights are read once
for arguments in json.load(sys.stdin):
    sys.argv, out, err = ["cems_workbench", *arguments], io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


@dataclass(frozen=True)
class Finished:
    """A command that ended: exit code and what it wrote."""

    code: int
    out: str
    err: str


class Shell:
    """The command line in a process of its own, with a store and with what is installed in `site`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site-packages"
        self.site.mkdir()

    def run(self, *commands: Sequence[str]) -> list[Finished]:
        """Each command after the other, in one process: loading a model takes seconds."""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.site}{os.pathsep}{ROOT}",
            "HF_HUB_OFFLINE": "1",
            "COLUMNS": "200",
            "CEMS_WORKBENCH_STORE": str(self.folder / "store"),
        }
        done = subprocess.run(
            [sys.executable, "-c", DRIVER],
            input=json.dumps(commands),
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        finished = [Finished(*json.loads(line)) for line in done.stdout.splitlines()]
        # What is read when the program starts, before the first command, is the first one's to report.
        return [replace(finished[0], err=done.stderr + finished[0].err), *finished[1:]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.models
def test_a_plugin_adds_a_format_a_measure_a_reranker_and_a_retriever(shell: Shell) -> None:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    install(shell.site, project["name"], project["entry-points"], PLUGIN / "cems_workbench_example")
    (shell.folder / "team.notes").write_text("".join(f"# {key}\n{text}\n" for key, text in NOTES.items()))
    (shell.folder / "more.jsonl").write_text(
        '{"id": "titled", "title": "Roll release back", "content": "See the wiki."}\n'
    )
    asked = [{"qid": "q", "query": QUERY}]
    asked += [{"qid": f"p{n}", "query": QUERY, "project": f"p{n}"} for n in range(12)]  # tuning splits by project
    (shell.folder / "queries.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in asked))
    (shell.folder / "judged.qrels").write_text(
        "".join(f"{row['qid']} 0 {key} 1\n" for row in asked for key in ("rollback", "titled"))
    )

    sets = ["--preset", "cems", "--set", "lists.titles.enabled=true", "--set", "rerank.backend=shared_words"]
    sets += ["--set", "rerank.combine=replace", "--set", "rerank.raw_scale=identity", "--set", "filter.min_score=null"]
    *imports, written, searched, fused_by_borda, gathered, evaluated, tuned, exported, doctor = shell.run(
        *(["import", name] for name in ("team.notes", "more.jsonl", "queries.jsonl", "judged.qrels")),
        ["dataset", "--format", "headed-notes", "--out", "out.notes"],
        ["search", QUERY, *sets, "--json"],
        ["search", QUERY, "--preset", "cems", "--set", "fusion.method=borda", "--json"],
        ["gather", "all", *sets, "--out", "all.evidence"],
        ["evaluate", "all.evidence", *sets, "--metric", "RBP", "--metric", "RBP@1", "--json"],
        ["tune", "all.evidence", "--preset", "cems", "--metric", "RBP", "--trials", "2", "--out", "tuned.yaml"],
        ["export", "cems", "--format", "yaml"],
        ["doctor"],
    )
    assert [finished.code for finished in imports] == [0] * 4, imports
    assert written.code == 1  # the format has no place for a title
    assert "4 memories written to out.notes as headed-notes" in written.out
    assert (shell.folder / "out.notes").read_text() == "".join(
        f"# {key}\n{text}\n" for key, text in sorted([*NOTES.items(), ("titled", "See the wiki.")])
    )

    trace = json.loads(searched.out)
    stages = {stage["name"]: stage for stage in trace["stages"]}
    fused = {row["memory_id"]: row["contributions"] for row in stages["fusion"]["rows"]}
    (given,) = [term for term in fused["titled"] if term["list"] == "titles"]
    assert (given["rank"], given["weight"]) == (1, 1.0)
    assert given["base"] == pytest.approx(1 / 61)
    assert not any(term["list"] == "titles" for key in fused if key != "titled" for term in fused[key])
    scores = {row["memory_id"]: row["raw"] for row in stages["rerank"]["rows"]}
    assert scores["rollback"] == pytest.approx(1.0)  # roll, a, release, back
    assert scores["lunch"] == 0.0
    assert trace["results"][0]["memory_id"] == "rollback"

    stages = {stage["name"]: stage for stage in json.loads(fused_by_borda.out)["stages"]}
    assert stages["fusion"]["method"] == "borda"

    assert gathered.code == 0, gathered.err
    values = json.loads(evaluated.out)["evaluations"][0]["per_query"]["q"]
    assert values["RBP"] == pytest.approx(0.2 * (1 + 0.8**3))  # those that are relevant stand first and fourth
    assert values["RBP@1"] == pytest.approx(0.2)
    assert tuned.code == 0, tuned.err
    assert "titles: {enabled: false, depth: 50," in exported.out
    assert "retriever titles of cems-workbench-example 0.1" in " ".join(doctor.out.split())


@pytest.mark.models
def test_plugin_adds_a_live_source(shell: Shell) -> None:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    install(shell.site, project["name"], project["entry-points"], PLUGIN / "cems_workbench_example")
    embedder = local_embedder(Settings().embedder)
    vectors = embedder.encode([*NOTES.values()]).tolist()
    rows = [{"id": id, "text": NOTES[id], "vector": vector} for id, vector in zip(NOTES, vectors, strict=True)]
    (shell.folder / "notes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    address = f"jsonl:{shell.folder}/notes.jsonl"
    live = ["--set", "lists.answered_by=source", "--preset", "letta", "--json"]
    probed, kinds, connected, found, unknown, helped, doctor = shell.run(
        ["connect", address, "--probe", "--json"],
        ["connect", "--list-kinds", "--json"],
        ["connect", address],
        ["search", QUERY, *live],
        ["connect", "nosuch:/notes.db", "--probe"],
        ["connect", "--help"],
        ["doctor"],
    )
    info = json.loads(probed.out)
    assert (info["kind"], info["memories"], info["dimension"]) == ("jsonl", 3, 384)
    [added] = [kind for kind in json.loads(kinds.out) if kind["from"]]
    assert (added["kind"], added["from"], added["missing"]) == ("jsonl", "cems-workbench-example 0.1", None)
    assert connected.code == 0, connected.err
    assert found.code == 0, found.err
    assert json.loads(found.out)["results"][0]["memory_id"] == "rollback"
    assert unknown.code == 2 and "begins with 'nosuch'" in unknown.err and "jsonl:/FOLDER/FILE.jsonl" in unknown.err
    assert "jsonl:/FOLDER/FILE.jsonl" in helped.out
    assert "source jsonl of cems-workbench-example 0.1" in " ".join(doctor.out.split())


def test_without_the_plugin_its_names_are_unknown(shell: Shell) -> None:
    (refused,) = shell.run(["search", "q", "--set", "lists.titles.enabled=true"])
    assert refused.code == 2
    assert "lists.titles.enabled: unknown key" in refused.err


@pytest.mark.thorough
@pytest.mark.models
def test_what_cannot_be_used_is_a_warning_that_names_its_package_and_all_else_works(shell: Shell) -> None:
    install(shell.site, "broken", {"cems_workbench.retrievers": {"gone": "no_such_module:RETRIEVER"}})
    install(shell.site, "one", {"cems_workbench.measures": {"twice": "json:loads"}})
    install(shell.site, "two", {"cems_workbench.measures": {"twice": "json:dumps"}})
    install(shell.site, "ours", {"cems_workbench.formats": {"qrels": "json:loads"}})
    (shell.folder / "more.jsonl").write_text('{"id": "m", "content": "Roll the release back."}\n')
    imported, searched, doctor = shell.run(
        ["import", "more.jsonl"], ["search", QUERY, "--set", "lists.gone.enabled=true", "--json"], ["doctor"]
    )
    assert imported.code == searched.code == 0
    assert "qrels of ours 0.1 is left out: CEMS Workbench has a qrels itself" in imported.err
    assert searched.err.count("gone of broken 0.1 is left out: no_such_module:RETRIEVER does not load") == 1
    lists = next(stage for stage in json.loads(searched.out)["stages"] if stage["name"] == "lists")
    assert "retriever gone is not available; `doctor` says why" in lists["warnings"]
    told = " ".join(doctor.out.split())
    for problem in ("gone of broken 0.1", "twice is left out: one 0.1 and two 0.1 both have one", "qrels of ours 0.1"):
        assert problem in told
