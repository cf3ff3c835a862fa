"""`evaluate` and `compare` on an evidence file: exit codes, JSON, runs, and no store or model anywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sets import AS_LISTED, OTHER_WAY, evidence_file
from sets import evidence as one_evidence

from cems_workbench.config import dump_config

ROOT = Path(__file__).resolve().parents[3]


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
def evidence(tmp_path: Path) -> Path:
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


def test_without_a_config_the_one_it_was_gathered_with_is_measured(command: Command, evidence: Path) -> None:
    done = command("evaluate", evidence, "--metric", "hit@1", "--metric", "MRR", "--json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["evaluations"]
    assert found["config"] == "as_listed"
    assert found["measures"]["hit@1"]["mean"] == 0.25
    assert found["without_relevant"] == ["q5"]


@pytest.mark.parametrize(("bound", "code", "word"), [("0.5", 0, "holds: "), ("0.6", 1, "FAILED: ")])
def test_an_assertion_decides_the_exit_code(command: Command, evidence: Path, bound: str, code: int, word: str) -> None:
    done = command("evaluate", evidence, "--metric", "MRR", "--assert", f"hit@5>={bound}", "--assert", "MRR>0.1")
    assert done.code == code
    assert f"{word}as_listed: hit@5>={bound} (0.5000; relevant from grade 1, 4 queries)" in done.out
    assert "means of 4 of 5 judged queries; 1 without a relevant memory is excluded" in " ".join(done.out.split())


def test_several_configs_are_measured_each(command: Command, evidence: Path, other_way: Path) -> None:
    done = command("evaluate", evidence, "--config", other_way, "--preset", "cems", "--preset", "cems", "--json")
    assert [one["config"] for one in json.loads(done.out)["evaluations"]] == ["other_way", "cems", "cems (2)"]


def test_a_run_reads_back_as_the_results(command: Command, evidence: Path, tmp_path: Path) -> None:
    run = tmp_path / "out.run"
    assert command("evaluate", evidence, "--metric", "MRR", "--run-out", run).code == 0
    rows = [line.split() for line in run.read_text().splitlines()]
    assert [row[2] for row in rows if row[0] == "q1"] == list("abcdefgh")
    scores = [float(row[4]) for row in rows if row[0] == "q1"]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == len(scores)
    assert {row[5] for row in rows} == {"as_listed"}


def test_an_ablation_measures_the_config_without_each_stage(command: Command, evidence: Path) -> None:
    done = command("evaluate", evidence, "--metric", "MRR", "--ablate", "stages", "--json")
    names = [one["config"] for one in json.loads(done.out)["evaluations"]]
    assert names[0] == "as_listed" and "as_listed without score blend" in names


def test_the_honest_view_is_printed(command: Command, evidence: Path) -> None:
    done = command("evaluate", evidence, "--metric", "MRR", "--compare-judges")
    assert done.code == 0
    assert "cosine ≥ 0.45" in done.out and "share labelled" in done.out


def test_compare_says_what_the_evidence_cost_and_what_each_reranker_reads(command: Command, evidence: Path) -> None:
    arguments = ("compare", evidence, "--preset", "recollection", "--preset", "cems", "--metric", "hit@5")
    said = command(*arguments)
    assert said.code == 0, said.err
    assert "ms/query" in said.out and "LLM calls" in said.out and "pairs reranked" in said.out
    assert "as recorded when the evidence was gathered" in said.out and "gathered with as_listed" in said.out
    costs = [one["cost"] for one in json.loads(command(*arguments, "--json").out)["configs"]]
    assert [one["ms_per_query"] for one in costs] == pytest.approx([100, 100])
    assert costs[0]["reranked"] == 0


def test_compare_names_who_lost_and_guards_a_type(command, evidence, as_listed, other_way):
    arguments = (
        "compare",
        evidence,
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
        "Cannot tell whether other_way loses more than 0.01 hit@5 against as_listed: +0.000 over 2 temporal"
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
def test_bad_input_is_one_line_and_exit_code_2(command, evidence, arguments, reason):
    done = command(*(text.format(evidence=evidence) for text in arguments))
    assert done.code == 2
    assert reason in done.err and len(done.err.splitlines()) == 1


def test_an_evidence_file_is_measured_without_loading_a_model(evidence: Path) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['cems_workbench', 'evaluate', {str(evidence)!r}, '--json']\n"
        "from cems_workbench.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "heavy = {'torch', 'sentence_transformers', 'transformers', 'chromadb', 'onnxruntime'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_losses_are_told_first_and_their_rows_say_what_happened(command: Command, evidence: Path) -> None:
    done = command("evaluate", evidence, "--losses", "--cutoff", 5)
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
    command: Command, evidence: Path, as_listed: Path, other_way: Path
) -> None:
    both = ["--config", as_listed, "--config", other_way, "--losses", "--cutoff", 5]
    found = json.loads(command("evaluate", evidence, *both, "--json").out)["losses"]
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


def test_losses_of_a_stream_are_those_of_the_file_in_memory(command, evidence, as_listed, other_way, monkeypatch):
    from cems_workbench.jobs import evaluation

    asked = ["evaluate", evidence, "--config", as_listed, "--config", other_way, "--losses", "--cutoff", 5, "--json"]
    whole = json.loads(command(*asked).out)["losses"]
    monkeypatch.setattr(evaluation, "MAX_QUERIES_IN_MEMORY", 1)
    assert json.loads(command(*asked).out)["losses"] == whole


def test_losses_need_a_relevant_memory_and_their_options_need_losses(command: Command, evidence: Path) -> None:
    none = command("evaluate", evidence, "--losses", "--grade", 9)
    assert none.code == 2 and "no query has a relevant memory (grade 9 or higher)" in none.err
    alone = command("evaluate", evidence, "--cutoff", 5)
    assert alone.code == 2 and "--cutoff and --show are for --losses" in alone.err


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
