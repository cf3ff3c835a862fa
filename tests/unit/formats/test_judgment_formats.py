"""Queries and judgments in every form, read and written, and what other tools read of ours.

Published data sets: LoCoMo, LongMemEval, BEAM, ConvoMem, MemoryAgentBench, BEIR and MTEB, read and written.
"""

from __future__ import annotations

import json
import sqlite3
from base64 import b64decode
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import DataSet, judgment_writers, read, read_path, write_dataset, write_judgments
from cems_workbench.formats.judgments import RunRow, run_text
from cems_workbench.progress import Cancelled
from cems_workbench.records import WHOLE_STORE, Judgment, Memory, ParsedInput, Query
from cems_workbench.store import RowCounts, Store
from workbench_fidelity.recordings import read_recording

ANN3 = Judgment("q", "m", 3, "Ann")
QUERIES = {"q": Query("q", "what, exactly?"), "r": Query("r", "who?"), "s": Query("s", "who?")}


def problems(parsed):
    return [(error.row, error.field, error.reason) for error in parsed.errors]


def test_jsonl_keeps_that_nothing_answers_a_query_and_other_forms_say_that_they_cannot(write, known):
    told = [Judgment("q", WHOLE_STORE, 0, "Ann", note="no"), Judgment("s", WHOLE_STORE, 1, "Bo", "model")]
    written = write_judgments("judgments-jsonl", [*told, ANN3], QUERIES)
    assert (
        written.text.splitlines()[0]
        == '{"qid": "q", "judge": "Ann", "kind": "human", "note": "no", "answerable": false}'
    )
    parsed = read(write("labels.jsonl", *written.text.splitlines()[:2]))
    assert (parsed.format, parsed.judgments, parsed.errors) == ("judgments-jsonl", tuple(told), ())
    qrels = write_judgments("qrels", [told[0], ANN3], QUERIES)
    assert (qrels.rows, qrels.left_out) == (1, ("q: whether anything answers it has no place in this format",))
    known.add(ParsedInput("q.jsonl", "t", queries=tuple(QUERIES.values())))
    assert known.add(parsed).judgments == RowCounts(added=2)
    assert known.judgments.read() == told
    both = read(write("both.jsonl", '{"qid": "q", "memory_id": "m", "grade": 2, "answerable": true}'))
    assert problems(both) == [(1, "answerable", "is of the whole store, and stands without memory_id and grade")]


def test_a_run_cannot_hold_an_id_with_a_blank():
    with pytest.raises(ValueError, match="blanks"):
        run_text([RunRow("q", "m n", 1, 0.5, "tag")])


def test_a_format_by_words_leaves_out_queries_it_cannot_tell_apart():
    judged = [Judgment("q", "m", -1), Judgment("r", "m", 2), Judgment("s", "m", 1), Judgment("t", "m", 1)]
    written = write_judgments("quepid-csv", judged, QUERIES)
    assert written.text == 'query,docid,rating\n"what, exactly?",m,-1\n'
    assert written.left_out == (
        "r: has the same words as s, and the format has nothing else",
        "s: has the same words as r, and the format has nothing else",
        "t: the words of this query are not known",
    )


def test_an_unknown_format_names_the_known_ones():
    with pytest.raises(InputError, match="did you mean qrels"):
        write_judgments("qrel", [], {})
    assert len(judgment_writers()) == 10


@pytest.fixture
def known(tmp_path):
    """Two queries of the same words, one of its own words, two memories."""
    with Store.open(tmp_path / "store") as opened:
        memories = (Memory("m", "text"), Memory("n", "text"))
        opened.add(ParsedInput("team.jsonl", "t", memories=memories, queries=tuple(QUERIES.values())))
        yield opened


def test_a_query_named_by_words_is_the_stores_own_where_there_is_exactly_one(known, write):
    parsed = read(
        write("case.csv", "query,docid,rating", '"what, exactly?",m,3', "who?,m,2", "new one,n,1", "new one,gone,1")
    )
    report = known.add(parsed)
    assert [(error.row, error.field) for error in report.errors] == [(3, "query"), (5, "docid")]
    assert "the queries r, s have these words" in report.errors[0].reason
    assert report.queries == RowCounts(added=1)
    new = next(query for query in known.queries.read() if query.query == "new one")
    found = {(one.qid, one.memory_id, one.grade) for one in known.judgments.read()}
    assert found == {("q", "m", 3), (new.qid, "n", 1)}


def test_what_the_store_exports_it_takes_back_unchanged(known, write):
    known.labels.give(Judgment("q", "m", 3, "Ann", note="=1+1"))
    known.labels.give(Judgment("q", "m", 1, "Bo"))
    known.labels.give(Judgment("q", "n", 0, "Bo"))
    before = known.judgments.read()
    for format in ("judgments-jsonl", "judgments-csv", "quepid-book"):
        written = write_judgments(format, before, QUERIES)
        assert written.left_out == ()
        report = known.add(read(write(f"{format}.{'jsonl' if 'jsonl' in format else 'csv'}", written.text)))
        assert (report.errors, report.judgments) == ((), RowCounts(unchanged=3))
        assert known.judgments.read() == before


WORDS = {"q1": "-no-cache, image “build”", "2": "Größe 文書", "q 3": "three", "q4": "four"}
TOOL_QUERIES = {qid: Query(qid, words) for qid, words in WORDS.items()}
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
    written = write_judgments("qrels", JUDGMENTS, TOOL_QUERIES)
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
    (tmp_path / "q.json").write_bytes(write_judgments("ranx-json", JUDGMENTS, TOOL_QUERIES).text.encode())
    assert dict(ranx.Qrels.from_file(str(tmp_path / "q.json"), kind="json").to_dict()) == GRADES
    run = run_text([RunRow("q1", "größe/7", 1, 0.75, "cems"), RunRow("q1", "文書", 2, 0.1, "cems")])
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
    document = json.loads(write_judgments("srw-json", JUDGMENTS, TOOL_QUERIES).text)
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
    written = write_judgments("quepid-json", of, TOOL_QUERIES)
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
    dataset = DataSet(MEMORIES, len(MEMORIES), (), list(TOOL_QUERIES.values()), JUDGMENTS, True)
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


KEY, LAMP = "where is the key", "which lamp is broken"
ROWS = [{"query": KEY, "expected_ids": ["a", "b"]}, {"query": LAMP, "expected_ids": ["c"]}]


def lines(rows: list[dict[str, object]]) -> str:
    return "\n".join(map(json.dumps, rows))


def judged(parsed: ParsedInput) -> set[tuple[str, str, int]]:
    words = {query.qid: query.query for query in parsed.queries}
    return {(words[each.qid], each.memory_id, each.grade) for each in parsed.judgments}


def test_ranked_ids_by_query_are_a_run_which_import_refuses(tmp_path: Path) -> None:
    path = tmp_path / "retrieved.jsonl"
    path.write_text(lines([{"query_id": "q1", "retrieved_ids": ["b", "a"]}, {"query_id": "q2", "retrieved_ids": []}]))
    with pytest.raises(InputError, match=r"has a column retrieved_ids, so it is a run.*fidelity FILE reads it"):
        read(path)
    answers = read_recording(path).answers
    assert [(one.qid, [row.memory_id for row in one.returned]) for one in answers] == [("q1", ["b", "a"]), ("q2", [])]


def test_expected_files_are_the_notes_of_a_vault_and_unknown_ones_are_counted(store: Store, tmp_path: Path) -> None:
    ids = ["notes/the-key", "old/notes/lamp", "new/notes/lamp"]
    store.add(ParsedInput("vault", "t", memories=tuple(Memory(one, f"Text of {one}.") for one in ids)))
    path = tmp_path / "bench.json"
    wanted = ["notes/The Key.md", "new/notes/lamp.md", "notes/lamp.md", "gone.md"]
    queries = [{"id": "q1", "query": KEY, "expected_files": wanted, "expected_in_top_k": 3}]
    path.write_text(json.dumps({"collection": "depot", "queries": queries}))
    report = store.add(read(path))
    assert {each.memory_id for each in store.judgments.read()} == {"notes/the-key", "new/notes/lamp"}
    assert [error.reason for error in report.errors] == [
        f"no memory {name!r} in the store; import it first" for name in ("notes/lamp.md", "gone.md")
    ]
    said = "the store does not have 2 memories of 2 judgments, such as notes/lamp.md, gone.md"
    assert said in report.notes


def test_a_set_has_the_queries_that_the_store_had_and_ids_of_its_own_stay(store: Store, tmp_path: Path) -> None:
    store.add(ParsedInput("memories", "t", memories=tuple(Memory(one, f"Text {one}.") for one in "abc")))
    for name, rows in (
        ("first", [{"id": "k", **ROWS[0]}]),
        ("second", ROWS),
        ("third", [{"id": f"q{n}", **row} for n, row in enumerate(ROWS)]),
        ("fourth", ROWS),
    ):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(lines(rows))
        assert not store.add(read(path)).errors
    sets = {
        each.name: {query.qid for query in store.query_sets.queries(each.name)} for each in store.query_sets.latest()
    }
    assert sets["first"] == {"k"} and "k" in sets["second"] and len(sets["second"]) == 2
    assert sets["third"] == {"q0", "q1"}
    assert len(sets["fourth"]) == 2 and not sets["fourth"] & {"q0", "q1"}  # its words are of several now


ROUNDING = "how are invoices rounded"
TEXT = "The invoice service rounds half up, never banker's rounding."
RAGAS = {
    "user_input": ROUNDING,
    "retrieved_contexts": ["x", TEXT],
    "reference_contexts": [TEXT],
    "retrieved_context_ids": ["m05", "m06"],
    "reference_context_ids": ["m05"],
    "response": "half up",
}
GOLDEN = {
    "input": ROUNDING,
    "actual_output": None,
    "expected_output": "half up",
    "retrieval_context": ["a", TEXT],
    "context": [TEXT],
    "additional_metadata": None,
}

UNKNOWN = {**GOLDEN, "input": "b", "retrieval_context": None, "context": ["none"]}


def samples(*rows: object) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps([GOLDEN, UNKNOWN])),
        (
            "a.jsonl",
            samples({**GOLDEN, "retrieval_context": f"a|{TEXT}", "context": TEXT}, {**UNKNOWN, "context": "none"}),
        ),
    ],
    ids=["json", "jsonl"],
)
def test_deepeval_texts_are_the_memories_with_them(name: str, text: str, tmp_path: Path, store: Store) -> None:
    path = tmp_path / name
    path.write_text(text)
    parsed = read(path, "rag-samples")
    assert [[row.content for row in answer.returned] for answer in parsed.answers] == [["a", TEXT]]
    assert parsed.notes == ("1 query of 2: answer not recorded",)
    store.add(ParsedInput("m", "test", memories=(Memory("m05", f"{TEXT}\n"), Memory("m06", "none of these"))))
    report = store.add(parsed)
    (judged,) = store.judgments.read()
    assert (judged.qid, judged.memory_id, judged.grade) == (parsed.queries[0].qid, "m05", 1)
    assert [(error.row, error.field, error.reason) for error in report.errors] == [
        (2, "context[0]", "no single memory has this text: 'none'")
    ]


def test_a_judged_id_that_the_store_does_not_have_is_named(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(samples({**RAGAS, "reference_context_ids": ["m05", "m99"]}))
    store.add(ParsedInput("m", "test", memories=(Memory("m05", TEXT), Memory("m06", "b"))))
    report = store.add(read(path))
    assert [one.memory_id for one in store.judgments.read()] == ["m05"]
    assert any("m99" in str(error) for error in report.errors)


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
