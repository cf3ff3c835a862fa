"""Judgments of queries named by their words: which query of the store they hang on, and what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import read
from cems_workbench.records import Memory, ParsedInput, Query
from cems_workbench.store import ImportOptions, RowCounts, Store
from cems_workbench.store.query_matching import near_words, same_words

KNOWN = {
    "q1": "how do releases reach the cluster",
    "q2": "-no-cache image build",
    "q3": "café menu",
    "q4": "C++ or Rust?",
}
MEMORIES = tuple(Memory(name, name) for name in ("m1", "m2", "m3"))


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store") as opened:
        queries = tuple(Query(qid, words) for qid, words in KNOWN.items())
        opened.add(ParsedInput("base.jsonl", "t", memories=MEMORIES, queries=queries))
        yield opened


def ratings(tmp_path, *rows: str, name: str = "case.csv"):
    path = tmp_path / name
    path.write_text("\n".join(["query,docid,rating", *rows]))
    return read(path)


NEAR = [
    ("How do releases reach the cluster", "q1"),
    ("how do  releases reach the\u00a0cluster", "q1"),
    ("how do releases reach the cluster?", "q1"),
    ("how do releases reach the cluster …", "q1"),
    ("how do releases reach the cluster？", "q1"),
    ("'-no-cache image build", "q2"),
    ("Ｃ＋＋ or rust", "q4"),
]


@pytest.mark.parametrize(("words", "qid"), NEAR)
def test_words_that_are_near_a_known_query_are_taken_for_it_and_a_note_names_the_pair(store, tmp_path, words, qid):
    parsed = ratings(tmp_path, f'"{words}",m1,2')
    words = parsed.queries[0].query
    if same_words(words) == KNOWN[qid]:
        return  # a guard of the table, taken off by its reader
    report = store.add(parsed)
    assert [(each.qid, each.grade) for each in store.judgments.read()] == [(qid, 2)]
    assert report.queries == RowCounts() and report.errors == ()
    [note] = report.notes
    assert repr(words) in note and f"is taken for {qid}, {KNOWN[qid]!r}" in note and "--match exact" in note


@pytest.mark.parametrize("words", [" how do releases reach the cluster ", "cafe\u0301 menu", "  -no-cache image build"])
def test_blanks_around_guards_and_another_unicode_form_are_the_same_words(store, tmp_path, words):
    report = store.add(ratings(tmp_path, f'"{words}",m1,2'), options=ImportOptions(match="exact"))
    assert report.queries == RowCounts() and report.notes == () and len(store.judgments.read()) == 1


def test_exact_keeps_near_words_apart_and_says_so(store, tmp_path):
    report = store.add(ratings(tmp_path, "Café Menu,m1,2"), options=ImportOptions(match="exact"))
    assert report.queries == RowCounts(added=1)
    assert "'Café Menu' is a new query, though q3, 'café menu', differs only" in report.notes[0]
    assert store.judgments.read()[0].qid not in KNOWN


def test_two_near_queries_are_not_guessed_between(store, tmp_path):
    store.add(ParsedInput("more.jsonl", "t", queries=(Query("q5", "Café menu?"),)))
    report = store.add(ratings(tmp_path, "CAFÉ MENU,m1,2"))
    assert report.notes == ("'CAFÉ MENU' is a new query: q3, q5 differ from it only by case, blanks or marks",)
    assert store.judgments.read()[0].qid not in (*KNOWN, "q5")
    # Words that one of them has to the letter are no question.
    assert store.add(ratings(tmp_path, "café menu,m1,2", name="b.csv")).notes == ()
    assert {one.qid for one in store.judgments.read()} >= {"q3"}


def test_of_queries_with_the_same_words_the_one_of_the_imports_set_is_meant(store, tmp_path):
    store.add(ParsedInput("other.jsonl", "t", queries=(Query("x1", KNOWN["q1"], "shop"),)))
    parsed = ratings(tmp_path, f"{KNOWN['q1']},m1,2")
    refused = store.add(parsed)
    assert store.judgments.read() == [] and refused.queries == RowCounts()
    assert [(error.row, error.field) for error in refused.errors] == [(2, "query")]
    assert "the queries q1, x1 have these words: --query-set" in refused.errors[0].reason
    assert store.add(parsed, options=ImportOptions("other")).errors == ()
    assert [one.qid for one in store.judgments.read()] == ["x1"]


def test_no_query_is_made_for_judgments_that_failed(store, tmp_path):
    rows = ["gone,mX,2", "off,m1,9", "both,mX,1", "both,m1,1", "listed,m1,", "bad,m2,high"]
    report = store.add(ratings(tmp_path, *rows))
    assert {query.query for query in store.queries.read()} - {*KNOWN.values()} == {"both", "listed"}
    assert [(error.row, error.field) for error in report.errors] == [
        (2, "docid"),
        (3, "rating"),
        (4, "docid"),
        (7, "rating"),
    ]
    assert report.errors[1].reason.endswith(
        "grade 9 is not on the scale of query set case, which has 0 to 3; --scale 0..9 --query-set case gives it this grade"
    )
    taken = store.add(ratings(tmp_path, *rows), options=ImportOptions(grades={"high": 3, "9": 3}))
    assert {query.query for query in store.queries.read()} - {*KNOWN.values()} == {"both", "listed", "off", "bad"}
    assert taken.notes[1] == "by --grade: high is grade 3 (1 row), 9 is grade 3 (1 row)"


def test_notes_on_many_near_words_are_counted(store, tmp_path):
    many = 60
    queries = tuple(Query(f"k{n}", f"query number {n} of many") for n in range(many))
    store.add(ParsedInput("many.jsonl", "t", queries=queries))
    rows = (f"Query number {n % many} of MANY?,m{n // many + 1},{n % 4}" for n in range(3 * many))
    report = store.add(ratings(tmp_path, *rows))
    assert report.judgments == RowCounts(added=3 * many) and report.queries == RowCounts()
    assert len(report.notes) == 21 and report.notes[-1].startswith(f"{many - 20} more")


def test_near_words_ignore_only_case_blanks_guards_and_final_marks():
    assert near_words("???") == "???" and near_words("a?b") != near_words("ab")
    assert near_words("don't") != near_words("dont") and near_words("- list") != near_words("list")
    assert near_words("どこ。") == near_words("どこ")


def test_words_beside_ids_find_the_query_that_the_store_has_under_another_id(store, tmp_path):
    path = tmp_path / "both.csv"
    path.write_text(
        f"qid,query,docno,label\n1,{KNOWN['q1']},m1,2\n2,brand new,m2,1\nq3,other words,m1,1\nq4,c++ or rust,m3,3\n"
    )
    report = store.add(read(path))
    judged = [(one.qid, one.memory_id, one.grade) for one in store.judgments.read()]
    assert judged == [("2", "m2", 1), ("q1", "m1", 2), ("q4", "m3", 3)]
    assert [query.qid for query in store.queries.with_words("brand new")] == ["2"]
    [error] = report.errors
    assert (error.row, error.field, error.reason) == (4, "qid", "query q3 of the store has other words, 'café menu'")


def test_words_in_json_lines_need_no_id(store, tmp_path):
    path = tmp_path / "judged.jsonl"
    path.write_text(
        '{"query": "café menu", "doc_id": "m1", "relevance": 2}\n{"query": "new", "doc_id": "m2", "relevance": 0.5}\n'
    )
    assert [error.row for error in store.add(read(path)).errors] == [2]
    assert [one.qid for one in store.judgments.read()] == ["q3"] and not store.queries.with_words("new")
    assert store.add(read(path), options=ImportOptions(grades={"0.5": 1})).errors == ()
    assert len(store.queries.with_words("new")) == 1


def test_ids_that_the_store_does_not_have_come_with_the_way_that_works(store, tmp_path):
    path = tmp_path / "quepid_trec.txt"
    path.write_text("\n\n1 0 m1 3.0\n\n1 0 m2 0.0\n\n2 0 m2 2.0\n")
    report = store.add(read(path))
    assert [error.reason for error in report.errors] == [
        f"no query '{n}' in the store; import it first" for n in (1, 1, 2)
    ]
    assert report.notes[0].startswith(
        "3 judgments name 2 queries by ids that the store does not have, such as 1, 2: import"
    )


def test_a_query_whose_words_were_edited_here_keeps_them(store, tmp_path):
    store.add(ratings(tmp_path, "teh menu,m1,2"))
    [known] = store.queries.with_words("teh menu")
    store.query_sets.add("case", Query(known.qid, "the menu"), "edit")
    assert store.add(ratings(tmp_path, "teh menu,m2,1")).queries == RowCounts()
    assert [query.query for query in store.queries.read() if query.qid == known.qid] == ["the menu"]
    assert len(store.judgments.read(known.qid)) == 2


def test_pairs_that_a_file_lists_without_a_judgment_become_a_queue_where_one_is_wanted(store, tmp_path):
    path = tmp_path / "book.csv"
    path.write_text(f"query,docid\n{KNOWN['q1']}?,m1\nnew,m2\nnew,gone\n")
    parsed = read(path)
    report = store.add(parsed)
    assert (
        "pairs without a judgment: 2; 1 name memories or queries that the store does not have; --queue NAME"
        in report.notes[-1]
    )
    assert report.queries == RowCounts(added=1, unchanged=1) and store.queues.read() == []
    once = ImportOptions(queue="mine", when=datetime.now(UTC))
    assert store.add(ratings(tmp_path, "new,m3,"), options=once).queue == "mine"  # another file of the same import
    report = store.add(parsed, options=once)
    assert report.queue == "mine" and "labelling queue mine: 2 pairs" in report.notes[-1]
    [new] = store.queries.with_words("new")
    assert set(store.queues.pairs("mine")) == {("q1", "m1"), (new.qid, "m2"), (new.qid, "m3")}
    with pytest.raises(InputError, match="there is a queue mine already"):
        store.add(parsed, options=ImportOptions(queue="mine"))


def test_an_id_in_the_column_of_words_makes_no_query(store, tmp_path):
    report = store.add(ratings(tmp_path, "q1,m1,2", "q2,,", "how are you,m1,1"))
    assert [error.reason for error in report.errors] == [
        "'q1' is the id of a query, 'how do releases reach the cluster', and no words: call the column qid"
    ]
    assert report.notes[-1].startswith("'q2' is the id of a query") and report.queries.added == 1


def test_rows_of_ids_without_a_grade_are_pairs_to_be_judged_and_no_error(store, tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_text("qid,docno,label\nq1,m1,2\nq1,m2,\nq9,m2,\n,m1,\n")
    report = store.add(read(path), options=ImportOptions(queue="left"))
    assert [(error.row, error.field) for error in report.errors] == [(5, "qid")]
    assert store.queues.pairs("left") == (("q1", "m2"),) and "1 name memories or queries" in report.notes[-1]


@pytest.mark.parametrize("name", ["cells.csv", "words.csv", "ids.jsonl"])
def test_blanks_around_ids_that_the_store_knows_are_no_part_of_them(store, tmp_path, name):
    lines = {
        "cells.csv": "qid,docno,label\nq1 , m1, 2\n",
        "words.csv": f"query,docid,rating\n{KNOWN['q1']} , m1, 2\n",
        "ids.jsonl": '{"qid": "q1 ", "docid": "m1\\u00a0", "rating": 2}\n',
    }
    (tmp_path / name).write_text(lines[name])
    report = store.add(read(tmp_path / name))
    assert (report.errors, report.queries) == ((), RowCounts())
    assert [(each.qid, each.memory_id, each.grade) for each in store.judgments.read()] == [("q1", "m1", 2)]


def test_judgments_with_the_words_of_their_queries_are_no_queries(store, tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text(f'{{"qid": "x1", "query": "{KNOWN["q1"]}", "docno": "m1", "label": 2, "judged_at": 1704061531}}\n')
    report = store.add(read(path))
    [judgment] = store.judgments.read()
    assert (judgment.qid, judgment.memory_id, judgment.grade) == ("q1", "m1", 2) and report.queries == RowCounts()
    assert judgment.judged_at is not None and judgment.judged_at.year == 2023


def test_a_time_of_a_judgment_that_cannot_be_read_costs_the_time(store, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("qid,memory_id,grade,judged_at\nq1,m1,2,2024-13-01\nq1,m2,1,2024-05-08\n")
    report = store.add(read(path))
    assert [(judgment.grade, judgment.judged_at is None) for judgment in store.judgments.read()] == [
        (2, True),
        (1, False),
    ]
    assert [(error.row, error.field, error.taken) for error in report.errors] == [(2, "judged_at", True)]
