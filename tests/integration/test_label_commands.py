"""`import`, `judgments`, `agreement`, `sample`, `dataset` and `supersessions` on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cems_workbench as wb
from cems_workbench.formats import read, read_path
from cems_workbench.records import SUPERSEDES, Judgment, Memory, ParsedInput, Query, Relation
from cems_workbench.store import ImportOptions, Store

if TYPE_CHECKING:
    from conftest import Command


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


def test_a_log_is_sampled_into_a_set_and_the_set_is_written(command: Command, labelled: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = [{"query": "how do we roll back a failed deploy?", "results": ["m001"]}] * 2 + [
        {"query": "who is on call?", "results": []}
    ]
    log.write_text("\n".join(map(json.dumps, rows)))
    finished = command("sample", log, "--query-set", "bad", "--strategy", "worst", "--size", 1, "--store", labelled)
    assert finished.code == 0, finished.err
    assert "query set bad, version 1: 1 query" in finished.out
    written = command("judgments", "--format", "queries-jsonl", "--query-set", "bad", "--store", labelled)
    assert json.loads(written.out)["query"] == "who is on call?"


CONVERSATION = {
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [{"speaker": "Ann", "dia_id": f"D1:{n}", "text": f"words {n}"} for n in range(1, 13)],
    "qa": [{"question": "When?", "evidence": ["D1:2", "D1:11"], "category": 2}],
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A store with a LoCoMo conversation and two memories of another project, one relation and one label of Ann."""
    (tmp_path / "7.json").write_text(json.dumps(CONVERSATION))
    (parsed,) = read_path(tmp_path / "7.json")
    with Store.open(tmp_path / "small") as store:
        store.add(parsed, options=ImportOptions("talk"))
        others = (Memory("a", "=1+1", project="p"), Memory("b", "x", project="p"))
        query = Query("q", "what?", "p")
        store.add(ParsedInput("p.jsonl", "test", memories=others, relations=(Relation("a", "b"),), queries=(query,)))
        store.labels.give(Judgment("q", "a", 3, "Ann"))
    return tmp_path / "small"


def test_a_conversation_leaves_the_store_and_comes_into_another_unchanged(
    command: Command, small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("--format", "beir", "--query-set", "talk", "--project", "locomo/7", "--out", out, "--store", small)
    finished = command("dataset", *arguments)
    assert (finished.code, finished.err) == (0, "")
    said = " ".join(finished.out.split())
    assert said.startswith(f"12 memories, 1 queries, 2 judgments written to {out} as beir next:")
    (parsed,) = read_path(out)
    with Store.open(tmp_path / "other") as other, Store.open(small, create=False) as first:
        other.add(parsed)
        assert other.memories.read() == {memory.id: memory for memory in first.memories.iterate("locomo/7")}
        assert other.queries.read() == first.query_sets.queries("talk")
        assert [(one.qid, one.memory_id) for one in other.judgments.read()] == [
            ("7/q001", "7/D1:11"),
            ("7/q001", "7/D1:2"),
        ]


def test_what_a_form_cannot_hold_is_said_and_the_exit_code_tells(command: Command, small: Path, tmp_path: Path) -> None:
    told = command(
        "dataset", "--format", "beir", "--project", "p", "--json", "--out", tmp_path / "beir", "--store", small
    )
    assert told.code == 1
    found = json.loads(told.out)
    assert found["rows"] == {"memories": 2, "queries": 1, "judgments": 1}
    assert found["not_kept"] == [f"{field} of 1 judgments, e.g. q a by Ann" for field in ("judge", "judged_at")]
    assert found["no_place_for"] == {"relations": 1}


def without_edges(store: Path) -> set[tuple[str, str]]:
    """Remove the stored supersessions, and return them."""
    with Store.open(store) as opened:
        edges = {(one.source_id, one.target_id) for one in opened.relations.read() if one.kind == SUPERSEDES}
        with opened._database.transaction() as cursor:
            cursor.execute("DELETE FROM relations WHERE kind = ?", [SUPERSEDES])
    return edges


def test_proposals_are_written_filled_in_and_become_edges_under_a_name(
    command: Command, store: Path, tmp_path: Path
) -> None:
    known = without_edges(store)
    out = tmp_path / "pairs.csv"
    finished = command("supersessions", "--out", out, "--show", 20, "--store", store)
    assert finished.code == 0 and "compared pairs" in finished.out
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20 and sum((row["newer"], row["older"]) in known for row in rows) >= 10
    verdicts = {0: "accept", 1: "Reject", 2: "swap", 3: "perhaps"}
    for number, row in enumerate(rows):
        row["verdict"] = verdicts.get(number, "")
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    finished = command("supersessions", "--accept", out, "--reviewer", "Ann", "--store", store)
    assert finished.code == 1 and "2 accepted, 1 rejected, 1 rows not used; saved under Ann" in finished.out
    assert "'perhaps' is not one of accept, reject, swap" in finished.err
    with Store.open(store) as opened:
        edges = [one for one in opened.relations.read() if one.kind == SUPERSEDES]
    one, other = rows[0], rows[2]
    assert sorted(edges, key=str) == sorted(
        [
            Relation(one["newer"], one["older"], SUPERSEDES, 1.0, "Ann"),
            Relation(other["older"], other["newer"], SUPERSEDES, 1.0, "Ann"),
        ],
        key=str,
    )
    again = json.loads(command("supersessions", "--json", "--store", store).out)
    pairs = {frozenset((row["newer"], row["older"])) for row in again["proposals"]}
    assert pairs and not pairs & {frozenset((row["newer"], row["older"])) for row in rows[:3]}
    with wb.open_store(store) as opened:
        report = wb.supersessions(opened, most=50)
    assert report.to_json() == again and report.to_pandas().shape == (len(again["proposals"]), 4)
