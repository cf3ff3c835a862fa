"""Published data sets: LoCoMo, LongMemEval, BEAM, ConvoMem, MemoryAgentBench, BEIR and MTEB, read and written."""

from __future__ import annotations

import sqlite3
from base64 import b64decode
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import (
    DataSet,
    read,
    read_path,
    write_dataset,
)
from cems_workbench.progress import Cancelled
from cems_workbench.records import Judgment, Memory


def test_a_directory_that_is_no_beir_folder_is_an_input_error(tmp_path, write):
    write("corpus.jsonl", {"id": "a", "content": "x"})
    with pytest.raises(InputError, match=r"no corpus\.jsonl whose rows have an _id"):
        read(tmp_path, "beir")
    assert [one.format for one in read_path(tmp_path)] == ["memories-jsonl"]


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


DATA = Path(__file__).parents[4] / "shared" / "data"
SAID = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "m.jsonl").write_text("mine")

    def stop(label: str, done: int, total: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        write_dataset("memories-jsonl", DataSet([Memory("m", "x")], 1), tmp_path / "m.jsonl", stop)
    with pytest.raises(InputError, match="no memories to write"):
        write_dataset("memories-jsonl", DataSet([]), tmp_path / "m.jsonl")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("m.jsonl", "mine")]


@pytest.mark.parametrize(
    ("form", "name", "part"),
    [
        ("beir", "full", "new or an empty directory"),
        ("memories-jsonl", "full", "is a directory"),
        ("memories-csv", "none/m.csv", "cannot be written"),
        ("memories_csv", "m.csv", "did you mean memories-csv"),
        ("qrels", "q.txt", "judgments --format qrels"),
    ],
)
def test_what_cannot_be_written_is_one_line(tmp_path, form, name, part):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("x")
    with pytest.raises(InputError, match=part) as said:
        write_dataset(form, DataSet([Memory("m", "x")], 1), tmp_path / name)
    assert "\n" not in str(said.value)
    assert (tmp_path / "full" / "kept").read_text() == "x"


def test_memories_are_gone_through_once_and_not_gathered(tmp_path):
    alive = 0
    most = 0

    class Counted(str):
        def __new__(cls, text):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, text)

        def __del__(self):
            nonlocal alive
            alive -= 1

    memories = (Memory(f"m{n}", Counted(f"text {n}")) for n in range(3_000))
    assert write_dataset("memories-jsonl", DataSet(memories, 3_000), tmp_path / "m.jsonl").rows == {"memories": 3_000}
    assert most < 10


@pytest.mark.skipif(not DATA.exists(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("name", "counts"),
    [("locomo/26.json", (419, 199, 251)), ("locomo/42.json", (629, 260, 373)), ("scifact", (5183, 1409, 339))],
)
def test_the_shared_data_are_read_written_and_read_again(tmp_path, name, counts):
    (first,) = read_path(DATA / name)
    dataset = DataSet(first.memories, len(first.memories), (), first.queries, first.judgments)
    done = write_dataset("beir", dataset, tmp_path / "beir")
    (second,) = read_path(tmp_path / "beir")
    assert (done.left_out, done.not_kept, done.notes) == ((), (), ())
    assert tuple(done.rows.values()) == counts == (len(second.memories), len(second.queries), len(second.judgments))
    assert (second.memories, second.queries, second.judgments) == (first.memories, first.queries, first.judgments)


@pytest.mark.parametrize("form", ["memories-jsonl", "memories-csv"])
def test_validity_comes_back_and_takes_no_place_where_no_memory_has_it(tmp_path, form):
    plain, bounded = (
        Memory("p", "always"),
        Memory("b", "for a day", valid_from=SAID, valid_until=SAID + timedelta(days=1)),
    )
    write_dataset(form, DataSet([plain, bounded], 2), tmp_path / "both")
    assert read(tmp_path / "both", form).memories == (plain, bounded)
    done = write_dataset(form, DataSet([plain], 1, validity=False), tmp_path / "plain")
    assert "valid" not in (tmp_path / "plain").read_text() and not done.not_kept


CHECKPOINT = b64decode(
    "h6F2BKJ0c9kgMjAyNi0xMS0zMFQxMToyNDoxMy4zNTkxNTMrMDA6MDCiaWTZJDFmMWVjYjA5LTIwN2YtNmE4Yy04MDAxLTNmYTQxNzlkMWRkNq5jaGFubmVsX3ZhbHVlc4"
    "GobWVzc2FnZXOSx9EFlL1sYW5nY2hhaW5fY29yZS5tZXNzYWdlcy5odW1hbqxIdW1hbk1lc3NhZ2WGp2NvbnRlbnTZJkkgYW0gTWlyYSwgYW5kIG15IGJvYXQgaXMgY2Fs"
    "bGVkIEFsYmEusWFkZGl0aW9uYWxfa3dhcmdzgLFyZXNwb25zZV9tZXRhZGF0YYCkdHlwZaVodW1hbqRuYW1lwKJpZNkkNGNkOGVkODQtZjc3Mi00YTcyLTlmYjgtNTljMm"
    "IxOGJiMTk1s21vZGVsX3ZhbGlkYXRlX2pzb27H6AWUumxhbmdjaGFpbl9jb3JlLm1lc3NhZ2VzLmFpqUFJTWVzc2FnZYmnY29udGVudLdOaWNlIHRvIG1lZXQgeW91LCBN"
    "aXJhLrFhZGRpdGlvbmFsX2t3YXJnc4CxcmVzcG9uc2VfbWV0YWRhdGGApHR5cGWiYWmkbmFtZcCiaWTZJDcyYTBjOTlmLTExODctNDFhYy1hMzRlLWMxYzI3MDc1ODhiZq"
    "p0b29sX2NhbGxzkLJpbnZhbGlkX3Rvb2xfY2FsbHOQrnVzYWdlX21ldGFkYXRhwLNtb2RlbF92YWxpZGF0ZV9qc29usGNoYW5uZWxfdmVyc2lvbnODqV9fc3RhcnRfX9kz"
    "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDIuMC40MzI2OTkwMDYwMzI2NjY0qG1lc3NhZ2Vz2TQwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMy4wLj"
    "Q5MDQ4MjgzNjYzNDYxNDY3q2JyYW5jaDp0bzpu2TQwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMy4wLjQ5MDQ4MjgzNjYzNDYxNDY3rXZlcnNpb25zX3NlZW6D"
    "qV9faW5wdXRfX4CpX19zdGFydF9fgalfX3N0YXJ0X1/ZMjAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAxLjAuNzUwNzUwNjE3MzYwOTgxoW6Bq2JyYW5jaDp0bz"
    "pu2TMwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMi4wLjQzMjY5OTAwNjAzMjY2NjSwdXBkYXRlZF9jaGFubmVsc5GobWVzc2FnZXM="
)
"""Of a thread of two messages, as langgraph-checkpoint-sqlite 3.1.2 wrote it."""


def test_checkpoints_of_langgraph_are_read_without_loading_a_class(tmp_path):
    path = tmp_path / "graph.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint)")
        rows = [("mira-1", "", "2", "pickle", b"x"), ("mira-1", "", "1", "msgpack", CHECKPOINT)]
        rows += [("mira-1", "", "3", "msgpack", CHECKPOINT), ("mira-1", "", "4", "msgpack", CHECKPOINT[:200])]
        database.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
    parsed = read(path)
    said = [(turn.session, turn.content) for turn in parsed.memories]
    assert said == [
        ("mira-1", "user: I am Mira, and my boat is called Alba."),
        ("mira-1", "assistant: Nice to meet you, Mira."),
    ]
    assert parsed.memories[0].created_at == datetime(2026, 11, 30, 11, 24, 13, 359153, tzinfo=UTC)
    pickled, cut = map(str, parsed.errors)
    assert "must be msgpack or json, found 'pickle'; json.dump(" in pickled
    assert "checkpoint of mira-1: cannot be decoded" in cut
    assert [one.name for one in tmp_path.iterdir()] == ["graph.sqlite"]
