"""A changed config is held against its last commit: by hand, by the workflow's own steps and by the pre-commit hook."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as XML

import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema import Draft7Validator
from sets import AS_LISTED, NOW, evidence
from typer.testing import CliRunner

from cems_workbench.cli.ci import HOOKS, WORKFLOW
from cems_workbench.cli.main import commands
from cems_workbench.config import dump_config, with_values
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header
from cems_workbench.records import Judgment, Query
from tests.conftest import ROOT

EVIDENCE, CONFIG = "search/twelve queries.evidence", "search/config.yaml"
WORSE = {"lists.lexical.enabled": True, "lists.vector.enabled": False}
"""The relevant memory is first in the vector list, and last in the lexical one."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with a config and evidence of twelve queries, and the two files that `ci init` writes."""
    origin = tmp_path / "origin"
    (origin / "search").mkdir(parents=True)
    queries = [Query(f"q{i}", f"query {i}") for i in range(12)]
    header = Header("twelve", "store1", 1, "minilm", dump_config(AS_LISTED), NOW.isoformat())
    with EvidenceFile.create(origin / EVIDENCE, header, queries, [Judgment(q.qid, "a", 3) for q in queries]) as file:
        for query in queries:
            file.add(query.qid, evidence(query.query), 0.1)
        file.finish()
    (origin / CONFIG).write_text(dump_config(AS_LISTED))
    git(origin, "init", "-q", "-b", "main")
    commit(origin, "first")
    git(tmp_path, "clone", "-q", str(origin), "clone")
    clone = tmp_path / "clone"
    monkeypatch.chdir(clone)
    monkeypatch.setenv("COLUMNS", "300")
    told = ask("init", EVIDENCE, "--config", CONFIG, "--fail-on-regression", "nDCG@10 p<0.01", "--assert", "hit@1>=0.1")
    assert told[0] == 0
    assert told[1].startswith(f"wrote {WORKFLOW} and {HOOKS}; commit them with {EVIDENCE} and {CONFIG}\n")
    commit(clone, "gate")
    return clone


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)


def ask(*arguments: str) -> tuple[int, str]:
    """Exit code and output of a command of `ci`; an error meant for the user is its line."""
    ended = CliRunner().invoke(commands, ["ci", *arguments])
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        return 2, str(ended.exception)
    return ended.exit_code, ended.output


def change(folder: Path, values: dict[str, object]) -> None:
    (folder / CONFIG).write_text(dump_config(with_values(AS_LISTED, values)))


def run_step(step: dict[str, object], folder: Path, tmp_path: Path) -> int:
    """A step of the workflow in bash, as the runner runs it, with our command in place of an installed one."""
    command = tmp_path / "bin" / "cems-workbench"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cems_workbench "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "BASE": "main",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    shell = ["bash", "-eo", "pipefail", "-c", str(step["run"])]
    return subprocess.run(shell, cwd=folder, env=environment, check=False, capture_output=True).returncode


@pytest.mark.thorough
def test_the_steps_of_the_workflow_fail_on_a_sure_loss_and_say_which(repository: Path, tmp_path: Path) -> None:
    workflow = yaml.safe_load((repository / WORKFLOW).read_text())
    workflow["on"] = workflow.pop(True)  # YAML 1.1 reads the word so, GitHub does not
    assert not list(Draft7Validator(get_builtin_schema("vendor.github-workflows")).iter_errors(workflow))
    assert workflow["on"]["pull_request"]["paths"] == [CONFIG, EVIDENCE, str(WORKFLOW)]
    steps = {step["name"]: step for step in workflow["jobs"]["retrieval"]["steps"] if "name" in step}
    held, summary = steps["Hold the config against the base branch"], steps["Summary"]
    assert not re.search(
        r"\$\{\{", held["run"] + summary["run"] + steps["Comment"]["run"]
    )  # no script is made of a pull request
    change(repository, WORSE)
    commit(repository, "worse")
    assert run_step(held, repository, tmp_path) == 1
    assert run_step(summary, repository, tmp_path) == 0
    told = (tmp_path / "summary.md").read_text()
    assert (
        "❌ `` Fail: config.yaml now loses nDCG@10 against config.yaml at origin/main: -0.685 over 12 queries, p 0.0"
        in told
    )
    assert "lists.vector.enabled: True → False" in told and "12 queries" in told
    page = (repository / "memory-retrieval.html").read_text("utf-8")
    assert "✗ fails" in page and "lists.vector.enabled: True → False" in page
    cases = XML.parse(repository / "memory-retrieval.xml").getroot().findall("testcase")
    assert [(case.get("name"), case.find("failure") is not None) for case in cases] == [
        ("hit@1>=0.1", True),
        ("nDCG@10 p<0.01", True),
    ]
    change(repository, {"fusion.k": 30})
    assert run_step(held, repository, tmp_path) == 0


def test_the_workflow_offers_nothing_to_abuse(repository: Path, tmp_path: Path) -> None:
    rules = tmp_path / "zizmor.yml"  # whoever uses the workflow pins by tag or by hash, as they like
    rules.write_text("rules: {unpinned-uses: {config: {policies: {'actions/*': ref-pin}}}}")
    zizmor = Path(sys.executable).with_name("zizmor")
    arguments = [zizmor, "--offline", "--no-progress", "--config", rules, repository / WORKFLOW]
    looked = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert looked.returncode == 0, looked.stdout


@pytest.mark.thorough
def test_the_hook_asks_of_the_last_commit_where_the_config_changed(repository: Path, tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((repository / HOOKS).read_text())["repos"][0]["hooks"]
    assert re.search(hook["files"], CONFIG) and not re.search(hook["files"], "search/configXyaml")
    assert run_step({"run": hook["entry"]}, repository, tmp_path) == 0
    change(repository, WORSE)
    assert run_step({"run": hook["entry"]}, repository, tmp_path) == 1


def test_a_loss_that_chance_explains_passes_and_what_was_not_measured_fails(repository: Path) -> None:
    change(repository, WORSE)
    code, told = ask(
        "check", EVIDENCE, "--config", CONFIG, "--against", "HEAD", "--fail-on-regression", "hit@1 p<0.0001"
    )
    said = "Pass: config.yaml now shows no significant loss of hit@1 against config.yaml at HEAD: -1.000 over 12 queries, p 0.0"
    assert code == 0 and " ".join(told.split()).startswith(said)
    assert "ot tell" not in told and "LOSS" not in told
    change(repository, {"rerank.backend": "cross_encoder"})
    code, told = ask("check", EVIDENCE, "--config", CONFIG, "--against", "HEAD")
    said = (
        "Not measured: config.yaml now: 12 queries lack reranker scores of some candidates; without that nDCG@10 +0.000"
    )
    assert code == 1 and " ".join(told.split()).startswith(said)
    code, told = ask("check", EVIDENCE, "--config", CONFIG, "--assert", "hit@1>=0.1")
    assert code == 1 and "holds: " in told and said.partition(";")[0] in " ".join(told.split())


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--against", "nowhere"], "--against nowhere: there is no such commit here (a shallow clone has few)"),
        (["--against", "-x"], "--against -x: expected a branch, tag or commit"),
        ([], "ci check: name a commit to compare the config with (--against origin/main), or --assert a bound"),
        (["--against", "HEAD", "--fail-on-regression", "nDCG@10 p<5"], "p is between 0 and 1"),
    ],
)
def test_what_cannot_be_checked_is_one_line(repository: Path, arguments: list[str], line: str) -> None:
    code, told = ask("check", EVIDENCE, "--config", CONFIG, *arguments)
    assert code == 2 and line in told and "\n" not in told.strip()


def test_files_that_are_there_are_kept_and_a_new_config_has_only_bounds(repository: Path) -> None:
    (repository / HOOKS).write_text("repos: []\n")
    code, told = ask(
        "init", EVIDENCE, "--config", CONFIG, "--fail-on-regression", "nDCG@10 p<0.01", "--assert", "hit@1>=0.1"
    )
    assert code == 2 and f"{HOOKS} exists" in told and (repository / HOOKS).read_text() == "repos: []\n"
    (repository / "new.yaml").write_text(dump_config(AS_LISTED))
    code, told = ask("check", EVIDENCE, "--config", "new.yaml", "--against", "HEAD", "--assert", "hit@1>=0.9")
    assert code == 0 and "it is not at HEAD" in told and "holds: new.yaml now: hit@1>=0.9" in told
    assert ask("init", EVIDENCE, "--config", "/dev/null")[0] == 2
