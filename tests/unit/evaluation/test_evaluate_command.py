"""Commands on evidence files: evaluate, compare, ci and drift, without the store and without a model."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as XML

import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema import Draft7Validator
from sets import AS_LISTED, NOW, OTHER_WAY, QUERIES, evidence, evidence_file
from sets import evidence as one_evidence
from typer.testing import CliRunner

import cems_workbench as cw
from cems_workbench.cli import main
from cems_workbench.cli.ci import HOOKS, WORKFLOW
from cems_workbench.cli.main import commands
from cems_workbench.config import dump_config, with_values
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header
from cems_workbench.jobs import regression
from cems_workbench.records import Judgment, Query
from tests.conftest import ROOT


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


Command = Callable[..., Finished]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    from cems_workbench.cli import main

    def run(*arguments: object) -> Finished:
        monkeypatch.setattr(sys, "argv", ["cems_workbench", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return Finished(int(stopped.value.code or 0), out, err)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return run


@pytest.fixture
def evidence_path(tmp_path: Path) -> Path:
    return evidence_file(tmp_path)


@pytest.fixture
def other_way(tmp_path: Path) -> Path:
    path = tmp_path / "other_way.yaml"
    path.write_text(dump_config(OTHER_WAY))
    return path


@pytest.fixture
def as_listed(tmp_path: Path) -> Path:
    path = tmp_path / "as_listed.yaml"
    path.write_text(dump_config(AS_LISTED))
    return path


def test_without_a_config_the_one_it_was_gathered_with_is_measured(command: Command, evidence_path: Path) -> None:
    done = command("evaluate", evidence_path, "--metric", "hit@1", "--metric", "MRR", "--json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["evaluations"]
    assert found["config"] == "as_listed"
    assert found["measures"]["hit@1"]["mean"] == 0.25
    assert found["without_relevant"] == ["q5"]


@pytest.mark.parametrize(("bound", "code", "word"), [("0.5", 0, "holds: "), ("0.6", 1, "FAILED: ")])
def test_an_assertion_decides_the_exit_code(
    command: Command, evidence_path: Path, bound: str, code: int, word: str
) -> None:
    done = command("evaluate", evidence_path, "--metric", "MRR", "--assert", f"hit@5>={bound}", "--assert", "MRR>0.1")
    assert done.code == code
    assert f"{word}as_listed: hit@5>={bound} (0.5000; relevant from grade 1, 4 queries)" in done.out
    assert "means of 4 of 5 judged queries; 1 without a relevant memory is excluded" in " ".join(done.out.split())


def test_compare_says_what_the_evidence_cost_and_what_each_reranker_reads(
    command: Command, evidence_path: Path
) -> None:
    arguments = (
        "compare",
        evidence_path,
        "--preset",
        "recollection",
        "--preset",
        "cems",
        "--metric",
        "hit@5",
    )
    said = command(*arguments)
    assert said.code == 0, said.err
    assert "ms/query" in said.out and "LLM calls" in said.out and "pairs reranked" in said.out
    assert "as recorded when the evidence was gathered" in said.out and "gathered with as_listed" in said.out
    costs = [one["cost"] for one in json.loads(command(*arguments, "--json").out)["configs"]]
    assert [one["ms_per_query"] for one in costs] == pytest.approx([100, 100])
    assert costs[0]["reranked"] == 0


def test_compare_names_who_lost_and_guards_a_type(command, evidence_path, as_listed, other_way):
    arguments = (
        "compare",
        evidence_path,
        "--config",
        as_listed,
        "--config",
        other_way,
        "--metric",
        "hit@5",
        "--metric",
        "MRR",
    )
    kept = command(*arguments, "--fail-on-regression", "temporal:hit@5", "--cannot-tell", "pass")
    assert kept.code == 0, kept.err
    assert kept.out.startswith(
        "1 better, 1 worse, 0 the same of 2 temporal queries by hit@5, other_way against as_listed: +0.000."
    )
    assert "worse by hit@5: q1, q3" in kept.out and "better by hit@5: q2" in kept.out
    lost = command(*arguments, "--fail-on-regression", "other:hit@5", "--json")
    assert lost.code == 3
    values = json.loads(lost.out)
    by_type = values["compared"][0]["measures"]["hit@5"]["by_type"]
    table = kept.out[kept.out.index("difference by type") :]
    for kind, difference in by_type.items():  # the table and the JSON hold the same
        row = next(line for line in table.splitlines() if line.startswith(kind))
        assert row.removeprefix(kind).split()[0] == ("–" if difference is None else f"{difference:.4f}")
    assert values["baseline"] == "as_listed"
    assert values["compared"][0]["measures"]["hit@5"]["losses"] == ["q1", "q3"]
    (decided,) = values["verdicts"]
    assert (decided["verdict"], decided["type"], decided["queries"]) == ("cannot tell", "other", 2)
    assert values["assertions"] == [{"holds": False, "line": decided["sentence"], "verdict": "cannot tell"}]
    assert command(*arguments, "--fail-on-regression", "other:hit@5", "--cannot-tell", "fail").code == 1
    assert command(*arguments, "--fail-on-regression", "other:hit@5 p<0.05").code == 0
    assert command(*arguments).code == 0  # a verdict that nobody asserts


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("evaluate", "{evidence}", "--metric", "R@5"), "write hit@5"),
        (("evaluate", "{evidence}", "--assert", "hit@5"), "such as hit@5>=0.80"),
        (("evaluate", "{evidence}", "--assert", "nobody:hit@5>=0"), "no query of type 'nobody'"),
        (("evaluate", "{evidence}", "--config", "cemss"), "neither a config file nor a preset"),
        (
            ("compare", "{evidence}", "--preset", "cems", "--preset", "ace", "--cannot-tell", "ok"),
            "is not one of 'pass', 'fail'",
        ),
        (("evaluate", "{evidence}", "--judge-kind", "robot"), "is not one of 'human', 'model'"),
        (("evaluate", "{evidence}", "--ablate", "all"), "expected one of stages, cems, ace"),
        (("evaluate", "{evidence}", "--limit", "3"), "gathered already"),
        (("evaluate", "{evidence}", "--preset", "cems", "--preset", "qmd", "--run-out", "r"), "holds one run"),
        (("compare", "{evidence}", "--config", "cems"), "needs at least two configs"),
        (("compare", "nothing.evidence", "--config", "cems", "--config", "qmd"), "no such evidence file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(command, evidence_path, arguments, reason):
    done = command(*(text.format(evidence=evidence_path) for text in arguments))
    assert done.code == 2
    assert reason in done.err and len(done.err.splitlines()) == 1


def test_a_stream_names_the_run_that_cannot_be_written_and_blames_no_other_fault_on_it(
    command: Command, evidence_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cems_workbench.jobs.evaluation.MAX_QUERIES_IN_MEMORY", 0)
    done = command("evaluate", evidence_path, "--run-out", "no/such/folder/run")
    assert done.code == 2 and "no/such/folder/run: cannot be written: " in done.err

    def unreadable(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error", "disk")

    monkeypatch.setattr("cems_workbench.jobs.evaluation.evaluate_streamed", unreadable)
    done = command("evaluate", evidence_path)
    assert done.code == 2 and "Input/output error" in done.err and "cannot be written" not in done.err


def test_losses_are_told_first_and_their_rows_say_what_happened(command: Command, evidence_path: Path) -> None:
    done = command("evaluate", evidence_path, "--losses", "--cutoff", 5)
    lines = done.out.splitlines()
    assert lines[0] == "lost 2 of 4 relevant memories from the first 5: never a candidate 1, lists 1"
    assert done.out.index("below 5 in every list") < done.out.index("as_listed: 5 queries")
    assert "Lost at lists: below 5 in every list (best: 7th in" in done.out and "No list returned a." in done.out
    rows = {name: count for name, _, count in (line.strip().rpartition("  ") for line in lines[3:7])}
    assert {name.strip(): int(count) for name, count in rows.items()} == {
        "returned in the first 5": 2,
        "never a candidate": 1,
        "below 5 in every list": 1,
        "all relevant memories": 4,
    }


def test_two_configs_are_put_side_by_side_with_what_the_second_saves_and_breaks(
    command: Command, evidence_path: Path, as_listed: Path, other_way: Path
) -> None:
    both = ["--config", as_listed, "--config", other_way, "--losses", "--cutoff", 5]
    found = json.loads(command("evaluate", evidence_path, *both, "--json").out)["losses"]
    first, second = found["maps"]
    assert (first["relevant"], first["returned"], second["returned"]) == (4, 2, 1)
    assert first["branches"] == [
        {"stage": "", "manner": "never", "count": 1},
        {"stage": "lists", "manner": "below", "count": 1},
    ]
    (change,) = found["differences"]
    assert change["sentence"] == "other_way against as_listed: saves 1 (lists 1), breaks 2 (lists 2)"
    assert [(row["qid"], row["memory_id"], row["rank"]) for row in change["saved_rows"]] == [("q2", "g", 7)]
    assert [(row["qid"], row["memory_id"], row["rank"]) for row in change["broken_rows"]] == [
        ("q1", "a", 8),
        ("q3", "b", 7),
    ]
    assert all(row["words"].startswith("Lost at lists: below 5 in every list") for row in change["broken_rows"])
    assert {name: row["relevant"] for name, row in first["by_type"].items()} == {"temporal": 2, "other": 2}


def test_evidence_without_a_list_that_the_config_asks_for_says_how_that_is_counted() -> None:
    from cems_workbench.analysis.losses_of_set import losses_of
    from cems_workbench.config import with_values
    from cems_workbench.evaluation.batch import LabelledBatch
    from cems_workbench.records import Query

    gathered = replace(one_evidence("one"), notes={"gathered": {"lists.vector.depth": 20}})
    batch = LabelledBatch([Query("q1", "one")], {"q1": gathered}, {"q1": {"a": 1}})
    config = with_values(AS_LISTED, {"lists.vector.depth": 50})
    lacking, counted = losses_of([batch], [config], 1).remarks
    assert "1 query lacks lists.vector.depth: gathered with 20, wanted 50" in lacking
    assert counted.endswith("counts as never a candidate: gather with the config to know better")
    assert losses_of([batch], [with_values(config, {"lists.vector.depth": 20})], 1).remarks == []


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
    told = ask(
        "init",
        EVIDENCE,
        "--config",
        CONFIG,
        "--fail-on-regression",
        "nDCG@10 p<0.01",
        "--assert",
        "hit@1>=0.1",
        "--install",
        "cems-workbench",
    )
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
    said = "Not measured: config.yaml now: 12 queries lack reranker scores of some candidates. Without that: 0 better, 0 worse, 12"
    assert code == 1 and " ".join(told.split()).startswith(said)
    code, told = ask("check", EVIDENCE, "--config", CONFIG, "--assert", "hit@1>=0.1")
    assert code == 1 and "holds: " in told and said.partition(". Without")[0] in " ".join(told.split())


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
        *("init", EVIDENCE, "--config", CONFIG, "--fail-on-regression", "nDCG@10 p<0.01", "--assert", "hit@1>=0.1"),
        *("--install", "cems-workbench"),
    )
    assert code == 2 and f"{HOOKS} exists" in told and (repository / HOOKS).read_text() == "repos: []\n"
    (repository / "new.yaml").write_text(dump_config(AS_LISTED))
    code, told = ask("check", EVIDENCE, "--config", "new.yaml", "--against", "HEAD", "--assert", "hit@1>=0.9")
    assert code == 0 and "it is not at HEAD" in told and "holds: new.yaml now: hit@1>=0.9" in told
    assert ask("init", EVIDENCE, "--config", "/dev/null", "--install", "cems-workbench")[0] == 2


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://example.org/ours/bench.git", "git+https://example.org/ours/bench.git@"),
        ("git@example.org:ours/bench.git", "git+https://example.org/ours/bench.git@"),
        ("/srv/bench", "this copy is of no https address"),
        ("https://mira:word@example.org/bench.git", "this copy is of no https address"),
    ],
)
def test_the_workflow_installs_the_commit_of_this_checkout(
    address: str, expected: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regression, "APP_ROOT", repository)
    git(repository, "remote", "set-url", "origin", address)
    code, told = ask("init", EVIDENCE, "--config", CONFIG, "--assert", "hit@1>=0.1", "--print")
    assert expected in told and "mira" not in told and code == (0 if expected.startswith("git") else 2)
    monkeypatch.setattr(regression, "APP_ROOT", repository / "search")  # an installed package in somebody's repository
    code, told = ask("init", EVIDENCE, "--config", CONFIG, "--assert", "hit@1>=0.1", "--print")
    assert code == 2 and "this copy is of no https address" in told


def gathered_later(path, queries, cosines, version=2):
    """A file of these queries after the store has changed; `cosines` are the lists of some of them."""
    header = Header("small", "store1", version, "minilm-2", dump_config(AS_LISTED), NOW.isoformat())
    with EvidenceFile.create(path, header, queries, []) as file:
        for query in queries:
            file.add(query.qid, evidence(query.query, cosines=cosines.get(query.qid)), 0.1)
        file.finish()
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return evidence_file(tmp_path)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    """q1 has the new memory z on top; b and a of q2 have changed places; q3 and q5 are the same, q6 is worded otherwise, q4 is gone."""
    falling = {key: 0.8 - 0.1 * i for i, key in enumerate("abcdefgh")}
    swapped = falling | {"a": falling["b"], "b": falling["a"]}
    queries = [query for query in QUERIES if query.qid not in ("q4", "q6")] + [Query("q6", "half a dozen")]
    cosines = {"q1": {"z": 0.9} | falling, "q2": dict(sorted(swapped.items(), key=lambda row: -row[1]))}
    return gathered_later(tmp_path / "later.evidence", queries, cosines)


def test_the_queries_that_changed_most_come_first(before: Path, after: Path) -> None:
    report = cw.drift(before, after, k=3)
    assert [query.qid for query in report.queries] == ["q1", "q2", "q3", "q5"]
    first, second, third, _ = report.queries
    assert (first.came, first.left, first.new, first.first_changed) == (("z",), ("c",), ("z",), True)
    assert (second.came, second.left, second.first_changed) == ((), (), True)
    assert (third.overlap, third.score_change, third.first_changed) == (1.0, 0.0, False)
    assert first.overlap == pytest.approx(0.1 / 0.9 * (0.9 * 0 + 0.81 * 1 / 2 + 0.729 * 2 / 3) + 2 / 3 * 0.729)
    assert report.overlap == pytest.approx((first.overlap + second.overlap + 2) / 4)
    assert report.title.startswith("as_listed: 2 of 4 queries return something else in their first 3, 2 have another")


def test_what_is_different_between_the_gathers_is_said(before: Path, after: Path) -> None:
    lines = cw.drift(before, after).lines
    assert lines == (
        "between them: content of the store: version 1, then 2",
        "between them: embedder: minilm, then minilm-2",
    )


def test_files_without_a_common_query_are_refused(before: Path, tmp_path: Path) -> None:
    other = gathered_later(tmp_path / "other.evidence", [Query("x", "else")], {})
    with pytest.raises(cw.InputError, match="have no query in common"):
        cw.drift(before, other)


def test_the_command_says_it_and_asserts(before, after, monkeypatch, capsys):
    def command(*further: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["cems_workbench", "drift", str(before), str(after), *further])
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), capsys.readouterr().out

    code, said = command("--cutoff", "3")
    assert code == 0 and "2 of 4 queries return something else" in said and "only before, not compared: q4, q6" in said
    code, said = command("--cutoff", "3", "--json")
    drifted = json.loads(json.dumps(cw.drift(before, after, k=3).to_json()))
    assert json.loads(said) == drifted | {"assertions": []}
    assert "q1" not in command("--show", "0", "--preset", "cems")[1]
    assert command("--assert-overlap", "0.99")[0] == 1 and command("--assert-overlap", "0.5")[0] == 0


def test_power_lists_what_to_label_first_and_refuses_a_loss_of_nothing(
    command: Command, evidence_path: Path, as_listed: Path, other_way: Path
) -> None:
    asked = "power", evidence_path, "--config", as_listed, "--config", other_way
    listed = command(*asked, "--show", 1)
    assert (
        listed.code == 0
        and "labels of the first 1 query" in listed.out
        and "and 4 more; --json lists them all" in listed.out
    )
    refused = command(*asked, "--loss", 0)
    assert refused.code == 2 and "loss 0: expected a number above 0" in refused.err
