"""What is written is read by the tools it is for: those that are installed here read it, the answers of the others are recorded."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cems_workbench.formats import DataSet, read_path, write_dataset, write_judgments
from cems_workbench.formats.runs import RunRow
from cems_workbench.formats.runs import write as write_run
from cems_workbench.records import Judgment, Memory, Query

WORDS = {"q1": "-no-cache, image “build”", "2": "Größe 文書", "q 3": "three", "q4": "four"}
QUERIES = {qid: Query(qid, words) for qid, words in WORDS.items()}
GRADES = {
    "q1": {"m01": 3, "größe/7": 1, "文書": 0},
    "2": {"007": 2, "-x": -1},
    "q 3": {"m01": 1},
    "q4": {"a b": 1},
}
JUDGMENTS = [Judgment(qid, name, grade) for qid, grades in GRADES.items() for name, grade in grades.items()]
MEMORIES = [
    Memory("m01", "Releases reach the cluster"),
    Memory("größe/7", "Größe", title="T", tags=("a",), created_at=datetime(2025, 1, 1, tzinfo=UTC)),
    Memory("文書", "文書 です", valid_until=datetime(2026, 1, 1, tzinfo=UTC)),
    Memory("007", "seven", project="p", priority=1.5),
    Memory("-x", "minus"),
    Memory("a b", "blank"),
]
WITHOUT_BLANKS = {qid: grades for qid, grades in GRADES.items() if qid in ("q1", "2")}
"""What TREC's columns can hold. PyTerrier 1.1.2 (io.read_qrels) gave the same of the file below."""
QRELS = "q1 0 m01 3\nq1 0 größe/7 1\nq1 0 文書 0\n2 0 007 2\n2 0 -x -1\n"


def test_qrels_are_what_the_readers_of_trec_files_read(tmp_path: Path) -> None:
    written = write_judgments("qrels", JUDGMENTS, QUERIES)
    assert written.text == QRELS
    assert len(written.left_out) == 2 and all("ids with blanks" in line for line in written.left_out)
    path = tmp_path / "q.qrels"
    path.write_bytes(written.text.encode())
    ir = pytest.importorskip("ir_measures")
    found: dict[str, dict[str, int]] = {}
    for qrel in ir.read_trec_qrels(str(path)):
        found.setdefault(qrel.query_id, {})[qrel.doc_id] = qrel.relevance
    assert found == WITHOUT_BLANKS
    pytrec_eval = pytest.importorskip("pytrec_eval")
    with path.open(encoding="utf-8") as file:
        assert dict(pytrec_eval.parse_qrel(file)) == WITHOUT_BLANKS
    ranx = pytest.importorskip("ranx")
    assert dict(ranx.Qrels.from_file(str(path), kind="trec").to_dict()) == WITHOUT_BLANKS
    formats, util = pytest.importorskip("ir_datasets.formats"), pytest.importorskip("ir_datasets.util")
    rows = formats.TrecQrels(util.LocalDownload(path), {}).qrels_iter()
    assert [(row.query_id, row.doc_id, row.relevance) for row in rows] == [
        (qid, name, grade) for qid, grades in WITHOUT_BLANKS.items() for name, grade in grades.items()
    ]


def test_ranx_reads_every_id_and_a_run(tmp_path: Path) -> None:
    ranx = pytest.importorskip("ranx")
    (tmp_path / "q.json").write_bytes(write_judgments("ranx-json", JUDGMENTS, QUERIES).text.encode())
    assert dict(ranx.Qrels.from_file(str(tmp_path / "q.json"), kind="json").to_dict()) == GRADES
    run = write_run([RunRow("q1", "größe/7", 1, 0.75, "cems"), RunRow("q1", "文書", 2, 0.1, "cems")])
    (tmp_path / "r.trec").write_bytes(run.encode())
    assert dict(ranx.Run.from_file(str(tmp_path / "r.trec"), kind="trec").to_dict()) == {
        "q1": {"größe/7": 0.75, "文書": 0.1}
    }
    ir = pytest.importorskip("ir_measures")
    assert [(row.doc_id, row.score) for row in ir.read_trec_run(str(tmp_path / "r.trec"))] == [
        ("größe/7", 0.75),
        ("文書", 0.1),
    ]


def test_search_relevance_workbench_takes_the_document() -> None:
    """The casts and checks of ImportJudgmentsProcessor.java and TextValidationUtil.java (search-relevance at d8be5d1)."""
    document = json.loads(write_judgments("srw-json", JUDGMENTS, QUERIES).text)
    assert document["type"] == "IMPORT_JUDGMENT"
    for name in ("name", "description"):
        assert 0 < len(document[name]) <= 2000 and not set(document[name]) & set('"\\<>')
    found = {}
    for each in document["judgmentRatings"]:
        for row in each["ratings"]:
            assert isinstance(row["docId"], str) and row["docId"] and isinstance(row["rating"], str)
            found[each["query"], row["docId"]] = float(row["rating"])
    assert found == {(WORDS[one.qid], one.memory_id): one.grade for one in JUDGMENTS}


def test_quepid_takes_the_book() -> None:
    """What BookImporter passes on to `create` (quepid at f80322f): columns of query_doc_pairs and judgements, and nothing else."""
    of = [*JUDGMENTS[:2], Judgment("q1", "m01", 2, "ann@example.org"), Judgment("q1", "m01", 1, "Bo")]
    written = write_judgments("quepid-json", of, QUERIES)
    assert written.left_out == (
        "q1 m01: human 3, Bo 1; the format has one grade per pair: adjudicate, or choose a judge",
    )
    book = json.loads(written.text)
    assert book.keys() == {
        *("name", "show_rank", "support_implicit_judgements", "scale", "scale_with_labels", "query_doc_pairs")
    }
    assert [int(grade) for grade in book["scale"].split(",")] == [0, 1, 2]
    assert book["query_doc_pairs"] == [
        {
            "query_text": WORDS["q1"],
            "doc_id": "m01",
            "judgements": [{"rating": 2.0, "user_email": "ann@example.org"}],
        },
        {"query_text": WORDS["q1"], "doc_id": "größe/7", "judgements": [{"rating": 1.0}]},
    ]


def test_mteb_loads_the_folder_and_it_is_read_here_as_beir(tmp_path: Path) -> None:
    """RetrievalDatasetLoader of mteb 2.26.24 gave of these files 6 documents, 4 queries and GRADES; GenericDataLoader of beir 2.2.0 gave
    the same of the folder in form `beir`."""
    dataset = DataSet(MEMORIES, len(MEMORIES), (), list(QUERIES.values()), JUDGMENTS, True)
    for form in ("beir", "mteb"):
        done = write_dataset(form, dataset, tmp_path / form)
        assert (done.left_out, done.not_kept, done.notes) == ((), (), ())
        parsed = read_path(tmp_path / form)[0]
        assert (parsed.format, list(parsed.memories)) == ("beir", MEMORIES)
        assert {one.qid: one.query for one in parsed.queries} == WORDS
        assert [(one.qid, one.memory_id, one.grade) for one in parsed.judgments] == [
            (one.qid, one.memory_id, one.grade) for one in JUDGMENTS
        ]
    files = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "mteb").rglob("*") if path.is_file()}
    assert files["README.md"] == (
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: qrels/test.jsonl\n"
        "- config_name: corpus\n  data_files:\n  - split: corpus\n    path: corpus.jsonl\n"
        "- config_name: queries\n  data_files:\n  - split: queries\n    path: queries.jsonl\n---\n"
    )
    assert files["test.jsonl"].splitlines()[1] == '{"query-id": "q1", "corpus-id": "größe/7", "score": 1}'
    rows = [json.loads(line) for line in files["corpus.jsonl"].splitlines()]
    assert all({name: type(value) for name, value in row.items()} == dict.fromkeys(rows[0], str) for row in rows)
    assert [*rows[0]] == ["_id", "title", "text", "metadata"]


def test_ids_that_are_all_dates_are_named(tmp_path: Path) -> None:
    """mteb 2.26.24 over datasets gave the id 2025-01-01 as 2025-01-01 00:00:00 where all ids of the corpus are dates."""
    notes = write_dataset("mteb", DataSet([Memory(f"2025-01-0{n}", "x") for n in (1, 2)]), tmp_path / "a").notes
    assert len(notes) == 1 and "every id of the memories is a date, such as 2025-01-01" in notes[0]
    assert write_dataset("mteb", DataSet([Memory("2025-01-01", "x"), Memory("b", "x")]), tmp_path / "b").notes == ()
