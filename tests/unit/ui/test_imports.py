"""Uploaded files: every row is reported, with any file name, and files finished before a cancel are kept."""

from __future__ import annotations

import io
import json

import pytest

from cems_workbench.jobs.importing import import_files
from cems_workbench.progress import Cancelled, silent
from cems_workbench.records import Memory, ParsedInput, Query
from cems_workbench.store import Store
from cems_workbench.ui.kit.forms import count_rows, errors_csv


def test_two_uploads_of_one_name_are_both_read(tmp_path):
    files = [
        ("a/x.jsonl", io.BytesIO(b'{"id":"1","content":"x"}')),
        ("..\\x.jsonl", io.BytesIO(b'{"id":"2","content":"=y"}\n{}')),
    ]
    with Store.open(tmp_path / "store") as store:
        outcomes = list(import_files(files, store, silent))
        assert store.memories.count() == 2
    assert [outcome.name for outcome in outcomes] == ["x.jsonl", "x.jsonl"]
    assert [len(outcome.report.errors) for outcome in outcomes] == [0, 1]
    assert str(tmp_path) not in errors_csv(outcomes).decode()


def test_a_cancelled_import_keeps_the_files_before(tmp_path):
    files = [(f"{i}.jsonl", io.BytesIO(b'{"id":"%d","content":"x"}' % i)) for i in range(3)]

    def cancel(label, done, total):
        if "1.jsonl" in label:
            raise Cancelled

    with Store.open(tmp_path / "store") as store:
        outcomes = []
        with pytest.raises(Cancelled):
            outcomes.extend(import_files(files, store, cancel))
        assert list(store.memories.read()) == ["0"]


def test_left_out_rows_are_counted_once_per_file(tmp_path):
    files = [("x.jsonl", io.BytesIO(b'{"id":"1","content":"x"}\n{}\nno json'))]
    with Store.open(tmp_path / "store") as store:
        ((name, report, kind, counts),) = count_rows(list(import_files(files, store, silent)))
    assert (name, len(report.errors), kind, counts.added) == ("x.jsonl", 2, "memories", 1)


def test_who_may_bring_no_labels_of_others_brings_their_own(tmp_path):
    rows = [
        ("q", {"memory_id": "m", "grade": 1, "judge": "ada", "kind": "human"}),
        ("q", {"memory_id": "n", "grade": 2, "judge": "bo", "kind": "human"}),
        ("q", {"memory_id": "n", "grade": 3, "judge": "ada", "kind": "model"}),
    ]
    labels = "\n".join(json.dumps({"qid": qid, **row}) for qid, row in rows).encode()
    files = [
        ("l.jsonl", io.BytesIO(labels)),
        ("l.qrels", io.BytesIO(b"q 0 n 0\n")),
        ("m.jsonl", io.BytesIO(b'{"id":"x","content":"x"}')),
    ]
    with Store.open(tmp_path / "store") as store:
        store.add(ParsedInput("s", "t", (Memory("m", "tea"), Memory("n", "milk")), queries=(Query("q", "drinks"),)))
        outcomes = {one.name: one.report for one in import_files(files, store, silent, judge="ada")}
        kept = {(one.memory_id, one.judge, one.kind, one.grade) for one in store.judgments.read()}
        assert store.memories.count() == 2
    assert kept == {("m", "ada", "human", 1), ("n", "ada", "human", 0)}
    assert [(error.row, error.field) for error in outcomes["l.jsonl"].errors] == [(2, "judge"), (3, "judge")]
    assert outcomes["m.jsonl"].notes == ("1 memories of the file were left out: an operator imports them",)
