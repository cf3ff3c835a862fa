"""BEIR: a folder, or one of its files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, read, read_path
from cems_workbench.records import Judgment, Memory, Query

SCIFACT = Path(__file__).parents[4] / "shared" / "data" / "scifact"
CORPUS = [{"_id": "4983", "title": "T", "text": "words"}, {"_id": "d 2", "title": "Only a title", "text": ""}]
QUERIES = [{"_id": "1", "text": "what?", "metadata": {}}, {"_id": "2", "text": "why?"}]
HEADER = "query-id\tcorpus-id\tscore"


def lines(*rows):
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)


@pytest.fixture
def folder(tmp_path):
    """`folder(name, test=..., ...)`: a BEIR folder with the given qrels."""

    def make(name="set", **qrels):
        home = tmp_path / name
        (home / "qrels").mkdir(parents=True)
        (home / "corpus.jsonl").write_text(lines(*CORPUS))
        (home / "queries.jsonl").write_text(lines(*QUERIES))
        for split, rows in qrels.items():
            (home / "qrels" / f"{split}.tsv").write_text(lines(HEADER, *rows), newline="\r\n")
        return home

    return make


def problems(parsed):
    return [(Path(error.source).name, error.row, error.field, error.reason) for error in parsed.errors]


def test_a_folder_is_read_as_one(folder):
    (parsed,) = read_path(folder(test=["1\t4983\t1", "2\td 2\t0"]))
    assert parsed.memories == (Memory("4983", "words", "T"), Memory("d 2", "Only a title", "Only a title"))
    assert parsed.queries == (Query("1", "what?", type="beir"), Query("2", "why?", type="beir"))
    assert parsed.judgments == (Judgment("1", "4983", 1), Judgment("2", "d 2", 0))
    assert (parsed.format, parsed.errors) == ("beir", ())
    assert parsed.notes == ("the judgments are those of qrels/test.tsv",)
    assert parsed.extra["rows"] == {"memories": [1, 2], "queries": [1, 2], "judgments": [2, 3]}


@pytest.mark.parametrize(
    ("splits", "note"),
    [
        (("train", "dev", "test"), "qrels/test.tsv; import qrels/dev.tsv and qrels/train.tsv by name"),
        (("train", "dev"), "qrels/dev.tsv; import qrels/train.tsv by name"),
        (("train",), "qrels/train.tsv"),
    ],
)
def test_one_split_is_read_test_before_dev_before_train(folder, splits, note):
    (parsed,) = read_path(folder(**{split: [f"1\t{split}\t1"] for split in splits}))
    assert parsed.judgments[0].memory_id == note[6:].split(".")[0]
    assert parsed.notes == (
        f"the judgments are those of {note}",
        f"1 of 2 queries have no judgment in {note.split(';')[0]}",
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test.csv", "query-id,corpus-id,score\n1,4983,1\n"),
        ("test.tsv", "1 0 4983 1\n"),
        ("test.tsv", "query_id\tdoc_id\trelevance\titeration\n1\t4983\t1\t0\n"),
    ],
)
def test_judgments_of_a_folder_may_be_a_table_of_other_tools(folder, name, text):
    home = folder()
    (home / "qrels").mkdir(exist_ok=True)
    (home / "qrels" / name).write_text(text)
    (parsed,) = read_path(home)
    assert (parsed.judgments, parsed.errors) == ((Judgment("1", "4983", 1),), ())


def test_a_folder_without_judgments_says_so(folder):
    (parsed,) = read_path(folder())
    assert parsed.notes == ("there are no judgments: qrels has none of test, dev and train as .tsv or .jsonl",)


def test_the_rest_of_a_folder_is_read_by_its_own_readers_or_noted(folder):
    home = folder(test=["1\t4983\t1"])
    (home / "relations.jsonl").write_text(lines({"source_id": "4983", "target_id": "d 2"}))
    (home / "README.md").write_text("words")
    (home / "more").mkdir()
    parsed = read_path(home)
    assert [one.format for one in parsed] == ["beir", "relations-jsonl"]
    assert "README.md: markdown-notes is read from a file alone" in parsed[0].skipped[0]
    assert parsed[0].skipped[1] == "more: is a directory with nothing in it; import it by its own path"


def test_folders_in_a_directory_are_read_and_other_directories_are_not_descended_into(folder, tmp_path):
    folder("b", test=["1\t4983\t1"])
    folder("a")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "memories.jsonl").write_text(lines({"id": "x", "content": "y"}))
    parsed = read_path(tmp_path)
    assert [Path(one.source).name for one in parsed] == ["a", "b"]
    assert parsed[0].skipped == ("c: is a directory of 1 .jsonl; import it by its own path",)
    assert len(read_path(tmp_path, "beir")) == 2
    with pytest.raises(InputError, match="has no file to read"):
        read_path(tmp_path, "memories-jsonl")


def test_rows_that_cannot_be_used_are_reported_with_their_file(folder):
    home = folder(test=["1\t4983", "1\t4983\thigh", "1\t4983\t1", "1\t4983\t2", "1\t4983\t1"])
    (home / "corpus.jsonl").write_text(
        lines({"_id": 7, "text": "x", "metadata": {"a": 1}}, {"text": "x"}, {"_id": "e", "title": " "}, "{")
    )
    (home / "queries.jsonl").write_text(lines({"_id": "1", "text": "x"}, {"_id": "1", "text": "y"}, {"_id": "3"}))
    (parsed,) = read_path(home)
    assert [memory.id for memory in parsed.memories] == ["7"]
    assert problems(parsed) == [
        ("corpus.jsonl", 2, "_id", "is missing"),
        ("corpus.jsonl", 3, "text", "is missing"),
        ("corpus.jsonl", 4, None, "is not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("queries.jsonl", 2, "_id", "'1' stands already in row 1"),
        ("queries.jsonl", 3, "text", "is missing"),
        ("test.tsv", 2, None, "must have the 3 columns query-id corpus-id score, found 2"),
        ("test.tsv", 3, "score", "must be a whole number, found 'high'; state its grade: --grade high=1"),
    ]
    assert parsed.notes[:2] == (
        "corpus.jsonl: field 'metadata' is not known and was left out (1 rows)",
        "test.tsv: row 6 repeats row 4",
    )


@pytest.mark.parametrize(
    ("name", "rows", "counts"),
    [
        ("corpus.jsonl", [{"_id": "1", "text": "x"}], (1, 0, 0)),
        ("queries.jsonl", QUERIES, (0, 2, 0)),
        ("nq_docs.jsonl", CORPUS, (2, 0, 0)),
        ("nq_questions.jsonl", QUERIES, (0, 2, 0)),
        ("dev.tsv", [HEADER, "1\t4983\t1"], (0, 0, 1)),
        ("qrels.txt", ["query-id corpus-id score", "1 4983 1"], (0, 0, 1)),
    ],
)
def test_a_single_file(write, name, rows, counts):
    path = write(name, *rows)
    parsed = read(path)
    assert (len(parsed.memories), len(parsed.queries), len(parsed.judgments)) == counts
    assert (parsed.format, parsed.errors) == ("beir", ())
    assert detect(path) == "beir"


def test_single_files_of_a_directory_come_in_an_order_in_which_references_resolve(write, tmp_path):
    write("a.tsv", HEADER, "1\t4983\t1")
    write("b_questions.jsonl", *QUERIES)
    write("c_docs.jsonl", *CORPUS)
    assert [Path(one.source).name for one in read_path(tmp_path)] == ["c_docs.jsonl", "b_questions.jsonl", "a.tsv"]


def test_a_directory_that_is_no_beir_folder_is_an_input_error(tmp_path, write):
    write("corpus.jsonl", {"id": "a", "content": "x"})
    with pytest.raises(InputError, match=r"no corpus\.jsonl whose rows have an _id"):
        read(tmp_path, "beir")
    assert [one.format for one in read_path(tmp_path)] == ["memories-jsonl"]


@pytest.mark.skipif(not SCIFACT.exists(), reason="the shared data are not here")
def test_scifact():
    (parsed,) = read_path(SCIFACT)
    assert (len(parsed.memories), len(parsed.queries), len(parsed.judgments)) == (5_183, 1_409, 339)
    assert len({judgment.qid for judgment in parsed.judgments}) == 300
    assert parsed.errors == ()
    assert {judgment.memory_id for judgment in parsed.judgments} <= {memory.id for memory in parsed.memories}
    assert len(read(SCIFACT / "qrels" / "train.tsv").judgments) == 919


def parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


TABLE = [{"_id": "d1", "title": "", "text": "one"}, {"_id": "d2", "title": "Two", "text": "two"}]
JUDGED = [{"query-id": "q1", "corpus-id": "d2", "score": 1.0}]


@pytest.mark.parametrize("ids", ["_id", "id"])
@pytest.mark.parametrize("qrels", ["data", "qrels", "default"])
def test_tables_of_mteb_are_read_a_split_of_each(tmp_path, ids, qrels):
    home = tmp_path / "nfcorpus"
    rows = [{ids: row["_id"], "title": row["title"], "text": row["text"]} for row in TABLE]
    for number, row in enumerate(rows):
        parquet(home / "corpus" / f"corpus-0000{number}-of-00002.parquet", [row])
    parquet(home / "queries" / "test-00000-of-00001.parquet", [{ids: "q1", "text": "which?"}])
    parquet(home / "queries" / "dev-00000-of-00001.parquet", [{ids: "q9", "text": "other?"}])
    parquet(home / qrels / "test-00000-of-00001.parquet", JUDGED)
    parquet(home / qrels / "dev-00000-of-00001.parquet", [{"query-id": "q9", "corpus-id": "d1", "score": 2}])
    parquet(home / "top_ranked" / "test-00000-of-00001.parquet", [{"query-id": "q1", "corpus-ids": ["d1", "d2"]}])
    (home / "README.md").write_text("# card")
    (parsed,) = read_path(home)
    assert parsed.format == "beir"
    assert [(memory.id, memory.title, memory.content) for memory in parsed.memories] == [
        ("d1", None, "one"),
        ("d2", "Two", "two"),
    ]
    assert [(query.qid, query.query) for query in parsed.queries] == [("q1", "which?")]
    assert parsed.judgments == (Judgment("q1", "d2", 1),)
    assert parsed.notes == (
        "top_ranked is not read: what a first search found for each query, for rerankers",
        "of queries test is read; import dev by name",
        f"the judgments are those of {qrels}/test-00000-of-00001.parquet; import {qrels}/dev-00000-of-00001.parquet by name",
    )
    assert [line.partition(":")[0] for line in parsed.skipped] == ["README.md"]
    (dev,) = read_path(home / qrels / "dev-00000-of-00001.parquet")
    assert dev.judgments == (Judgment("q9", "d1", 2),)


def test_one_of_several_data_sets_is_read_and_several_are_refused(tmp_path):
    for name in ("go", "python"):
        parquet(tmp_path / f"{name}-corpus" / "test-00000-of-00001.parquet", TABLE)
        parquet(tmp_path / f"{name}-queries" / "test-00000-of-00001.parquet", [{"_id": "q1", "text": "which?"}])
        parquet(tmp_path / f"{name}-qrels" / "test-00000-of-00001.parquet", JUDGED)
    with pytest.raises(InputError, match=r"holds 2 data sets, go, python: put the folders of one \(go-corpus"):
        read_path(tmp_path)
    for table in ("corpus", "queries", "qrels"):
        (tmp_path / f"go-{table}").rename(tmp_path / f".go-{table}")
    (parsed,) = read_path(tmp_path)
    assert (len(parsed.memories), len(parsed.queries), parsed.judgments) == (2, 1, (Judgment("q1", "d2", 1),))


def test_a_folder_called_data_without_judgments_has_none(folder):
    home = folder()
    (home / "data").mkdir()
    (home / "data" / "train.jsonl").write_text('{"text": "anything"}')
    parsed = read_path(home)[0]
    assert parsed.notes[-1].startswith("there are no judgments")
    assert any(line.startswith("data: ") for line in parsed.skipped)


def test_judgments_beside_the_corpus_are_those_of_its_splits(folder):
    home = folder()
    (home / "qrels").rmdir()
    for split, grade in (("test", 1), ("train", 2)):
        (home / f"{split}.tsv").write_text(lines(HEADER, f"1\t4983\t{grade}"))
    (parsed,) = read_path(home)
    assert parsed.judgments == (Judgment("1", "4983", 1),)
    assert parsed.notes[0] == "the judgments are those of test.tsv; import train.tsv by name"


def test_a_pointer_of_git_lfs_is_named(tmp_path):
    (tmp_path / "corpus.jsonl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(InputError, match="is a pointer of Git LFS and not the file itself: git lfs pull brings it"):
        read_path(tmp_path / "corpus.jsonl")
