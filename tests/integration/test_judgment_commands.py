"""`import --set`, `judgments`, `agreement` and `sample` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cems_workbench.formats import read
from cems_workbench.records import Judgment
from cems_workbench.store import Store

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [pytest.mark.models]


@pytest.fixture
def labelled(store: Path) -> Path:
    """The sample store with the labels of two people on three pairs."""
    with Store.open(store) as opened:
        pairs = [(label.qid, label.memory_id) for label in opened.judgments.read()[:3]]
        for number, (qid, memory_id) in enumerate(pairs):
            opened.labels.give(Judgment(qid, memory_id, number, "Ann"))
            opened.labels.give(Judgment(qid, memory_id, 0, "Bo"))
    return store


def test_judgments_are_written_and_read_again(command: Command, labelled: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert command("judgments", "--judge", "Ann", "--out", out, "--store", labelled).code == 0
    assert [(one.judge, one.grade) for one in read(out).judgments] == [("Ann", 0), ("Ann", 1), ("Ann", 2)]
    assert command("import", out, "--store", labelled).code == 0


def test_a_form_of_one_grade_names_what_conflicts_and_takes_a_rule(
    command: Command, labelled: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.qrels"
    finished = command("judgments", "--format", "qrels", "--out", out, "--store", labelled)
    assert finished.code == 1
    assert "Ann 2" in finished.err and "adjudicate" in finished.err
    assert command("judgments", "--format", "qrels", "--rule", "strictest", "--out", out, "--store", labelled).code == 0
    assert len(read(out).judgments) == 1241


def test_agreement_is_a_table_or_json(command: Command, labelled: Path) -> None:
    finished = command("agreement", "--json", "--store", labelled)
    assert finished.code == 0
    found = json.loads(finished.out)
    kappa = found["coefficients"]["Cohen’s kappa, Ann and Bo"]
    assert kappa["pairs"] == 3 and "reading" in kappa
    assert any({"Ann": 2, "Bo": 0}.items() <= one["grades"].items() for one in found["disagreements"])
    assert "Krippendorff’s alpha, all" in command("agreement", "--store", labelled).out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["judgments", "--format", "qrel"], "did you mean qrels"),
        (["judgments", "--judge", "Zoe"], "no label of 'Zoe'"),
        (["judgments", "--rule", "loudest"], "majority, strictest, decided"),
        (["judgments", "--query-set", "none"], "no query set 'none'"),
        (["agreement", "--level", "ratio"], "nominal, ordinal, interval"),
        (["import", "x.jsonl", "--scale", "3..1"], "is not LOW..HIGH"),
    ],
)
def test_a_bad_argument_is_one_line(command: Command, labelled: Path, arguments: list[str], part: str) -> None:
    finished = command(*arguments, "--store", labelled)
    assert (finished.code, len(finished.err.splitlines())) == (2, 1)
    assert part in finished.err


def test_a_log_is_sampled_into_a_set_and_the_set_is_written(command: Command, labelled: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = [{"query": "how do we roll back a failed deploy?", "results": ["m001"]}] * 2 + [
        {"query": "who is on call?", "results": []}
    ]
    log.write_text("\n".join(map(json.dumps, rows)))
    finished = command("sample", log, "--query-set", "bad", "--strategy", "worst", "--size", 1, "--store", labelled)
    assert finished.code == 0, finished.err
    assert "query set bad, version 1: 1 queries" in finished.out
    written = command("judgments", "--format", "queries-jsonl", "--query-set", "bad", "--store", labelled)
    assert json.loads(written.out)["query"] == "who is on call?"
