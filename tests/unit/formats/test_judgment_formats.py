"""Judgments of other tools by example: Quepid, OpenSearch, JSONL, CSV, CEMS feedback, TREC runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import judgment_writers, read, runs, write_judgments
from cems_workbench.formats.runs import RunRow
from cems_workbench.records import WHOLE_STORE, Judgment, Memory, ParsedInput, Query
from cems_workbench.store import RowCounts, Store

ANN3, BO0 = Judgment("q", "m", 3, "Ann"), Judgment("q", "m", 0, "Bo")
QUERIES = {"q": Query("q", "what, exactly?"), "r": Query("r", "who?"), "s": Query("s", "who?")}


def grades(parsed):
    words = {query.qid: query.query for query in parsed.queries}
    return [(words[one.qid], one.memory_id, one.grade, one.judge) for one in parsed.judgments]


def problems(parsed):
    return [(error.row, error.field, error.reason) for error in parsed.errors]


def test_a_quepid_export_with_an_unrated_row_and_whole_decimals(write):
    parsed = read(
        write("case.csv", "query,docid,rating", '"what, exactly?",m1,3', "who?,m1,", "who?,m2,1.0", "who?,m3,good")
    )
    assert parsed.format == "quepid-csv"
    assert grades(parsed) == [("what, exactly?", "m1", 3, "human"), ("who?", "m2", 1, "human")]
    assert parsed.notes == ("1 row has no rating; its query is there to be judged",)
    assert problems(parsed) == [(5, "rating", "must be a whole number, found 'good'; state its grade: --grade good=1")]


def test_opensearch_judgments_with_and_without_a_header(write):
    bare = read(write("bare.csv", "who?,m1,3", '"a, b",m2,0', "x,y"))
    assert bare.format == "srw-csv"
    assert grades(bare) == [("who?", "m1", 3, "human"), ("a, b", "m2", 0, "human")]
    assert problems(bare) == [(3, None, "has 2 cells, the header has 3")]
    assert grades(read(write("head.csv", "Query,DocID,Rating", "who?,m1,3"), "srw-csv")) == [("who?", "m1", 3, "human")]


def test_a_quepid_book_has_a_column_per_judge(write):
    parsed = read(write("book.csv", "query,docid,Ann B.,Bo", "who?,m1,3,0", "who?,m2,,1", "who?,m3,x,2", "who?,m1,2,0"))
    assert parsed.format == "quepid-book"
    assert [(one.memory_id, one.judge, one.grade) for one in parsed.judgments] == [
        ("m1", "Ann B.", 3),
        ("m1", "Bo", 0),
        ("m2", "Bo", 1),
        ("m3", "Bo", 2),
        ("m1", "Ann B.", 2),
    ]
    assert len({one.qid for one in parsed.judgments}) == 1
    assert problems(parsed) == [
        (4, "Ann B.", "must be a whole number, found 'x'; state its grade: --grade x=1"),
    ]
    assert parsed.notes == ("row 5 repeats row 2",)


def test_jsonl_keeps_judge_kind_time_and_note(write):
    full = {
        "qid": "q",
        "memory_id": "m",
        "grade": 2,
        "judge": "Ann",
        "kind": "model",
        "judged_at": "2026-01-01T10:00:00+01:00",
        "note": "n",
    }
    parsed = read(
        write(
            "j.jsonl",
            full,
            {"qid": "q", "memory_id": "m", "grade": 1},
            {**full, "grade": 0},
            {"qid": "q", "memory_id": "m", "grade": "2.5"},
            {**full, "kind": "x"},
        )
    )
    assert parsed.judgments == (
        Judgment("q", "m", 2, "Ann", "model", datetime(2026, 1, 1, 9, tzinfo=UTC), "n"),
        Judgment("q", "m", 1),
        Judgment("q", "m", 0, "Ann", "model", datetime(2026, 1, 1, 9, tzinfo=UTC), "n"),
    )
    assert problems(parsed) == [
        (4, "grade", "must be a whole number, found '2.5'; state its grade: --grade 2.5=1"),
        (5, "kind", "must be one of human, model, found 'x'"),
    ]


def test_jsonl_keeps_that_nothing_answers_a_query_and_other_forms_say_that_they_cannot(write, store):
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
    store.add(ParsedInput("q.jsonl", "t", queries=tuple(QUERIES.values())))
    assert store.add(parsed).judgments == RowCounts(added=2)
    assert store.judgments.read() == told
    both = read(write("both.jsonl", '{"qid": "q", "memory_id": "m", "grade": 2, "answerable": true}'))
    assert problems(both) == [(1, "answerable", "is of the whole store, and stands without memory_id and grade")]


def test_csv_columns_stand_in_any_order_and_unknown_ones_are_noted(write):
    parsed = read(write("j.csv", "grade;qid;extra;memory_id;judge", "2;q;?;m;Ann", ";q;?;n;Ann"))
    assert parsed.judgments == (Judgment("q", "m", 2, "Ann"),)
    assert parsed.notes == ("columns not known and left out: 'extra'",)
    assert problems(parsed) == [] and parsed.extra["pairs"] == (("q", "n"),)


def test_cems_feedback_becomes_judgments_of_a_model(write):
    parsed = read(
        write("log.jsonl", {"qid": "q", "relevant_ids": ["a"], "noise_ids": ["b", "a"]}, {"relevant_ids": ["a"]})
    )
    assert [(one.memory_id, one.grade) for one in parsed.judgments] == [("a", 2), ("b", 0), ("a", 0)]
    assert {(one.qid, one.judge, one.kind) for one in parsed.judgments} == {("q", "cems", "model")}
    assert problems(parsed) == [(2, "qid", "is missing")]


def test_a_run_cannot_hold_an_id_with_a_blank():
    with pytest.raises(ValueError, match="blanks"):
        runs.write([RunRow("q", "m n", 1, 0.5, "tag")])


def test_where_judges_disagree_a_format_of_one_grade_says_so_and_leaves_the_pair_out():
    written = write_judgments("qrels", [ANN3, BO0, Judgment("q", "n", 1, "Ann"), Judgment("q", "n", 1, "Bo")], QUERIES)
    assert written.text == "q 0 n 1\n"
    assert written.left_out == ("q m: Ann 3, Bo 0; the format has one grade per pair: adjudicate, or choose a judge",)


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
def store(tmp_path):
    """Two queries of the same words, one of its own words, two memories."""
    with Store.open(tmp_path / "store") as opened:
        memories = (Memory("m", "text"), Memory("n", "text"))
        opened.add(ParsedInput("team.jsonl", "t", memories=memories, queries=tuple(QUERIES.values())))
        yield opened


def test_a_query_named_by_words_is_the_stores_own_where_there_is_exactly_one(store, write):
    parsed = read(
        write("case.csv", "query,docid,rating", '"what, exactly?",m,3', "who?,m,2", "new one,n,1", "new one,gone,1")
    )
    report = store.add(parsed)
    assert [(error.row, error.field) for error in report.errors] == [(3, "query"), (5, "docid")]
    assert "the queries r, s have these words" in report.errors[0].reason
    assert report.queries == RowCounts(added=1)
    new = next(query for query in store.queries.read() if query.query == "new one")
    found = {(one.qid, one.memory_id, one.grade) for one in store.judgments.read()}
    assert found == {("q", "m", 3), (new.qid, "n", 1)}


def test_what_the_store_exports_it_takes_back_unchanged(store, write):
    store.labels.give(Judgment("q", "m", 3, "Ann", note="=1+1"))
    store.labels.give(Judgment("q", "m", 1, "Bo"))
    store.labels.give(Judgment("q", "n", 0, "Bo"))
    before = store.judgments.read()
    for format in ("judgments-jsonl", "judgments-csv", "quepid-book"):
        written = write_judgments(format, before, QUERIES)
        assert written.left_out == ()
        report = store.add(read(write(f"{format}.{'jsonl' if 'jsonl' in format else 'csv'}", written.text)))
        assert (report.errors, report.judgments) == ((), RowCounts(unchanged=3))
        assert store.judgments.read() == before
