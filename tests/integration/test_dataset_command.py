"""`dataset` on the command line: from a store to a file and into another store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cems_workbench.formats import read_path
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, Relation
from cems_workbench.store import ImportOptions, Store

if TYPE_CHECKING:
    from conftest import Command

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
    out = tmp_path / "out.json"
    arguments = ("--format", "locomo", "--query-set", "talk", "--project", "locomo/7", "--out", out, "--store", small)
    finished = command("dataset", *arguments)
    assert (finished.code, finished.err) == (0, "")
    assert finished.out.startswith(f"12 memories, 1 queries, 2 judgments written to {out} as locomo\n")
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
    finished = command("dataset", "--format", "locomo", "--out", tmp_path / "out.json", "--store", small)
    assert finished.code == 1
    assert "left out: a: is no turn of a LoCoMo conversation" in finished.err
    assert "cannot hold the 1 relations" in finished.out
    told = command(
        "dataset", "--format", "beir", "--project", "p", "--json", "--out", tmp_path / "beir", "--store", small
    )
    assert told.code == 1
    found = json.loads(told.out)
    assert found["rows"] == {"memories": 2, "queries": 1, "judgments": 1}
    assert found["not_kept"] == [f"{field} of 1 judgments, e.g. q a by Ann" for field in ("judge", "judged_at")]
    assert found["no_place_for"] == {"relations": 1}


@pytest.mark.parametrize("form", ["memories-jsonl", "memories-csv", "relations-jsonl", "queries-jsonl"])
def test_one_kind_of_rows_leaves_whole(command: Command, small: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / f"out.{'csv' if 'csv' in form else 'jsonl'}"
    finished = command("dataset", "--format", form, "--out", out, "--store", small)
    assert (finished.code, finished.err) == (0, "")
    (parsed,) = read_path(out)
    with Store.open(small, create=False) as store:
        kept = {
            "memories": tuple(store.memories.iterate()),
            "relations": tuple(store.relations.read()),
            "queries": tuple(store.queries.read()),
        }
    kind = form.split("-")[0]
    assert getattr(parsed, kind) == kept[kind]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--format", "beam2"], "did you mean beam"),
        (["--format", "qrels"], "judgments --format qrels"),
        (["--format", "beir", "--project", "none"], "no memory of project 'none'; there are locomo/7, p"),
        (["--format", "longmemeval"], "there is no conversation to write"),
    ],
)
def test_a_bad_argument_is_one_line(
    command: Command, small: Path, tmp_path: Path, arguments: list[str], part: str
) -> None:
    finished = command("dataset", *arguments, "--out", tmp_path / "x", "--store", small)
    assert (finished.code, len(finished.err.splitlines())) == (2, 1)
    assert part in finished.err
    assert not (tmp_path / "x").exists()
