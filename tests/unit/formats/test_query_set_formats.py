"""queries.jsonl, relations.jsonl and TREC qrels."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import read
from cems_workbench.formats.queries import as_row
from cems_workbench.records import Judgment, Query, Relation


def problems(parsed):
    return [(error.row, error.field, error.reason) for error in parsed.errors]


def test_queries(write):
    full = {"qid": "q1", "query": "when?", "project": "p", "as_of": "2024-01-01T00:00:00", "type": "temporal"}
    parsed = read(write("q.jsonl", full, {"qid": 2, "query": "what?"}, {"qid": "q1", "query": "x"}, {"qid": "q3"}))
    assert parsed.queries == (
        Query("q1", "when?", "p", datetime(2024, 1, 1, tzinfo=UTC), "temporal"),
        Query("2", "what?"),
    )
    assert problems(parsed) == [(3, "qid", "'q1' stands already in row 1"), (4, "query", "is missing")]


def test_queries_with_what_is_searched_as_given_are_read_and_written_alike(write):
    rows = (
        {"qid": "q1", "query": "when?", "searched": "when time", "engine_queries": {"lexical": "time"}},
        {"qid": "q2", "queries": ["what?", "which one?", "what of it?"]},
        {"qid": "q3", "query": "who?", "queries": ["who?", "which person?"]},
    )
    parsed = read(write("q.jsonl", *rows))
    assert parsed.queries == (
        Query("q1", "when?", searched="when time", engine_queries={"lexical": "time"}),
        Query("q2", "what?", wordings=("which one?", "what of it?")),
        Query("q3", "who?", wordings=("which person?",)),
    )
    again = read(write("again.jsonl", *(as_row(query) for query in parsed.queries)))
    assert again.queries == parsed.queries
    wrong = read(write("w.jsonl", {"qid": "a", "query": "x", "engine_queries": ["y"]}, {"qid": "b", "queries": [""]}))
    assert [row[:2] for row in problems(wrong)] == [(1, "engine_queries"), (2, "queries")]


def test_relations(write):
    parsed = read(
        write(
            "r.jsonl",
            {"source_id": "a", "target_id": "b"},
            {"source_id": "a", "target_id": "b", "kind": "cites", "weight": 0.5},
            {"source_id": "a", "target_id": "b", "weight": 0.1},
            {"source_id": "a", "target_id": "c", "weight": 1.1},
            {"source_id": "a", "target_id": "a"},
            {"source_id": "a"},
        )
    )
    assert parsed.relations == (Relation("a", "b"), Relation("a", "b", "cites", 0.5))
    assert [(row, field) for row, field, _ in problems(parsed)] == [
        (3, "source_id, target_id, kind"),
        (4, "weight"),
        (5, "target_id"),
        (6, "target_id"),
    ]


def test_qrels_with_blanks_or_tabs_and_any_whole_grade(write):
    parsed = read(write("test.qrels", "q1 0 m1 3", "q1\t0\tm2\t-2", "  q2   Q0  m1   0 \r", "q2 0 m3 +1"))
    assert parsed.judgments == (
        Judgment("q1", "m1", 3),
        Judgment("q1", "m2", -2),
        Judgment("q2", "m1", 0),
        Judgment("q2", "m3", 1),
    )
    assert parsed.format == "qrels"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("q1 0 m1", "must have the 4 columns qid 0 docno rel, found 3"),
        ("q1 0 m1 1 extra", "must have the 4 columns qid 0 docno rel, found 5"),
        ("q1 0 m1 high", "must be a whole number, found 'high'; state its grade: --grade high=1"),
        ("q1 0 m1 1.5", "must be a whole number, found '1.5'; state its grade: --grade 1.5=1"),
        ("q1 0 m1 " + "9" * 30, f"must be a whole number, found '{'9' * 30}'; state its grade: --grade {'9' * 30}=1"),
    ],
)
def test_lines_that_are_no_judgment_are_reported(write, line, reason):
    parsed = read(write("test.qrels", "q 0 m 1", line, "q 0 n 0"))
    assert len(parsed.judgments) == 2
    assert [(row, text) for row, _, text in problems(parsed)] == [(2, reason)]


def test_two_grades_for_one_pair_are_both_handed_on_and_repetitions_are_noted(write):
    parsed = read(write("test.qrels", "q 0 m 1", "q 0 m 2", "q 0 m 1"))
    assert parsed.judgments == (Judgment("q", "m", 1), Judgment("q", "m", 2))
    assert parsed.extra["rows"] == {"judgments": [1, 2]}
    assert (parsed.errors, parsed.notes) == ((), ("row 3 repeats row 1",))


def test_a_table_of_queries_is_read_under_the_names_of_other_tools(write):
    lines = [
        "Query ID\tText\ttype\tanswerable\tsource",
        "10\twho is on call\tteam\tno\tweb",
        "\twho\t\t\t",
        "11\tx\t\tperhaps\t",
    ]
    parsed = read(write("topics.tsv", *lines))
    assert parsed.format == "queries-csv"
    assert parsed.queries == (Query("10", "who is on call", type="team", answerable=False),)
    assert [(error.row, error.field) for error in parsed.errors] == [(3, "Query ID"), (4, "answerable")]
    assert parsed.notes == ("columns not known and left out: 'source'",)
    bare = read(write("bare.tsv", "10\twho is on call", "11\twhere, and when"), "queries-csv")
    assert [(query.qid, query.query) for query in bare.queries] == [("10", "who is on call"), ("11", "where, and when")]
    with pytest.raises(InputError, match="has no column qid and no column query"):
        read(write("other.csv", "a,b", "1,2"), "queries-csv")
