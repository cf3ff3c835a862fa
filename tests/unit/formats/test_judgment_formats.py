"""Queries and judgments in every form, read and written, and what other tools read of ours."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import (
    DataSet,
    detect,
    judgment_writers,
    read,
    read_path,
    write_dataset,
    write_judgments,
)
from cems_workbench.formats.judgments import RunRow, run_text
from cems_workbench.records import WHOLE_STORE, Judgment, Memory, ParsedInput, Query
from cems_workbench.store import RowCounts, Store
from workbench_fidelity.recordings import read_recording

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


def test_cems_feedback_becomes_judgments_of_a_model(write):
    parsed = read(
        write("log.jsonl", {"qid": "q", "relevant_ids": ["a"], "noise_ids": ["b", "a"]}, {"relevant_ids": ["a"]})
    )
    assert [(one.memory_id, one.grade) for one in parsed.judgments] == [("a", 2), ("b", 0), ("a", 0)]
    assert {(one.qid, one.judge, one.kind) for one in parsed.judgments} == {("q", "cems", "model")}
    assert problems(parsed) == [(2, "qid", "is missing")]


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


IRDS = '{"query_id": "%s", "doc_id": "%s", "relevance": %d, "iteration": "0"}'
MTEB = '{"query-id": "%s", "corpus-id": "%s", "score": %.1f}'
BOTH = [("q1", "m01", 2), ("q2", "m02", 1)]


def of_ids(parsed):
    assert parsed.queries == () and parsed.errors == ()
    return [(each.qid, each.memory_id, each.grade) for each in parsed.judgments]


def by_words(parsed):
    words = {query.qid: query.query for query in parsed.queries}
    return [(words[each.qid], each.memory_id, each.grade, each.judge) for each in parsed.judgments]


@pytest.mark.parametrize(
    ("name", "lines", "form"),
    [
        ("header.qrels", ["query_id 0 doc_id relevance", "q1 0 m01 2", "q2 0 m02 1"], "qrels"),
        ("swapped.qrels", ["docno qid iteration label", "m01 q1 0 2", "m02 q2 0 1"], "qrels"),
        ("export.tsv", ["q1\tm01\t2\t0", "q2\tm02\t1\t0"], "qrels"),
        ("powers.qrels", ["q1 0 m01 2e0", "q2\t0\tm02\t+1"], "qrels"),
        ("pandas.csv", [",qid,docno,label", "0,q1,m01,2.0", "1,q2,m02,1"], "judgments-csv"),
        ("comment.qrels", ["# judged by three people", "q1 0 m01 2", "q2 0 m02 1"], "qrels"),
        ("floats.txt", ["q1 0 m01 2.0", "", "q2 0 m02 1.0"], "qrels"),
        ("headerless.tsv", ["q1\tm01\t2", "q2\tm02\t1"], "qrels"),
        ("pyterrier.csv", ["qid,docno,label", "q1,m01,2", "q2,m02,1"], "judgments-csv"),
        ("irds.tsv", ["query_id\tdoc_id\trelevance\titeration", "q1\tm01\t2\t0", "q2\tm02\t1\t0"], "judgments-csv"),
        ("excel.csv", ["sep=;", "qid;docno;label", "q1;m01;2", "q2;m02;1"], "judgments-csv"),
        ("comment.tsv", ["# judged", "query-id\tcorpus-id\tscore", "q1\tm01\t2", "q2\tm02\t1"], "beir"),
        ("blanks.csv", ["Query ID; Doc-ID; Relevance", "q1 ; m01; 2,0", "q2; m02; 1"], "judgments-csv"),
        ("irds.jsonl", [IRDS % ("q1", "m01", 2), IRDS % ("q2", "m02", 1)], "judgments-jsonl"),
        ("mteb.jsonl", [MTEB % ("q1", "m01", 2), MTEB % ("q2", "m02", 1)], "judgments-jsonl"),
        ("ranx.json", ['{"q1": {"m01": 2}, "q2": {"m02": 1}}'], "ranx-json"),
    ],
)
def test_a_header_decides_and_ids_stay_ids(write, name, lines, form):
    parsed = read(write(name, *lines))
    assert (parsed.format, of_ids(parsed)) == (form, BOTH)


def test_numbers_as_ids_are_not_mixed_up_with_grades(write):
    lines = ["query_id\tdoc_id\trelevance\titeration", "10\t1\t2\t0", "11\t3\t1\t0"]
    assert of_ids(read(write("numeric.tsv", *lines))) == [("10", "1", 2), ("11", "3", 1)]
    swapped = write("no_header.tsv", "10 1 2 0", "11 3 1 0")
    with pytest.raises(InputError, match="may be qid, iteration, docno and grade, or qid, docno, grade and iteration"):
        read(swapped)
    assert "no iteration is 0" in read(swapped, "qrels").notes[0]


def test_columns_without_a_header_are_refused_where_they_may_be_something_else(write):
    for name, line, said in [
        ("ids.csv", "q1,m01,2", "'q1' may be the words of a query or its id"),
        ("numbers.tsv", "10\t1\t2", "3 columns of numbers without a header may be judgments"),
        ("rows.jsonl", '{"_id": "1", "text": "x"}', "may be a corpus"),
    ]:
        with pytest.raises(InputError, match=said):
            read(write(name, line))
    assert by_words(read(write("words.csv", "who pays,m1,2"))) == [("who pays", "m1", 2, "human")]
    assert of_ids(read(write("numbers.qrels", "10 1 2"))) == [("10", "1", 2)]


def test_a_table_by_words_has_the_names_of_other_tools(write):
    for header, row in [
        ("query,doc_id,relevance", "who pays,m1,2"),
        ("docno;query;label", "m1;who pays;2"),
        ("# exported\nquery,docid,rating,remark", "who pays,m1,2,sure"),
        ("docid;Ann;query", "m1;2;who pays"),
    ]:
        [judged] = by_words(read(write("x.csv", header, row)))
        assert judged[:3] == ("who pays", "m1", 2)
    with pytest.raises(InputError, match=r"fits quepid-csv .* and quepid-book"):
        read(write("x.csv", "query,docid,rating,Ann", "who pays,m1,2,1"))


def test_results_of_a_system_are_no_judgments(write):
    for name, lines in {
        "run.csv": ["qid,docno,rank,score", "q1,m01,1,3"],
        "run.json": ['{"q1": {"m01": 0.9}}'],
    }.items():
        with pytest.raises(InputError, match=r"or a run: what a system returned|a column rank, so it is a run"):
            read(write(name, *lines))


def test_queries_without_a_rating_are_there_to_be_judged(write):
    parsed = read(write("case.csv", "query,docid,rating", "what,m1,3", "when,,", "where", "who,m2,", " -no-cache,m4,1"))
    assert by_words(parsed) == [("what", "m1", 3, "human"), ("-no-cache", "m4", 1, "human")]
    assert {query.query for query in parsed.queries} == {"what", "when", "where", "who", "-no-cache"}
    assert parsed.errors == () and parsed.notes == ("3 rows have no rating; their queries are there to be judged",)
    book = read(write("book.csv", "query,docid", "what,m1", "where,m2"))
    assert [query.query for query in book.queries] == ["what", "where"] and "no judge" in book.notes[0]


def test_judges_of_one_name_are_two(write):
    parsed = read(write("book.csv", "query,docid,Kim Lee,Kim Lee,Unknown", "what,m1,3,2,"))
    assert by_words(parsed) == [("what", "m1", 3, "Kim Lee"), ("what", "m1", 2, "Kim Lee (2)")]
    assert parsed.notes == ("'Kim Lee' names 2 judges; the others are Kim Lee (2) and so on",)
    parsed = read(write("book.csv", "query,docid,Kim,Kim,Kim (2),,", "what,m1,3,2,1,2,"))
    assert by_words(parsed) == [("what", "m1", 3, "Kim"), ("what", "m1", 2, "Kim (3)"), ("what", "m1", 1, "Kim (2)")]
    assert [error.reason for error in parsed.errors] == ["has a grade in a column without the name of a judge"]


def test_other_exports_of_quepid_and_the_search_relevance_workbench(write):
    book = {
        "query_doc_pairs": [
            {"query_text": "what", "doc_id": "m1", "judgements": [{"rating": 3.0, "user_email": "a@x.example"}]},
            {"query_text": "where", "doc_id": "m2", "judgements": []},
        ]
    }
    rre = {"query_groups": [{"name": "what", "relevant_documents": {"m1": {"gain": 3}}}]}
    srw = {
        "judgmentRatings": [
            {"query": "what", "ratings": [{"docId": "m1", "rating": "3.000"}, {"docId": "m2", "rating": "0.7"}]}
        ]
    }
    parsed = read(write("book.json", book))
    assert by_words(parsed) == [("what", "m1", 3, "a@x.example")]
    assert [query.query for query in parsed.queries] == ["what", "where"]
    assert by_words(read(write("rre.json", rre))) == [("what", "m1", 3, "human")]
    parsed = read(write("srw.json", srw))
    assert by_words(parsed) == [("what", "m1", 3, "human")]
    assert [error.reason for error in parsed.errors] == [
        "must be a whole number, found '0.7'; state the grades of such values: --grade 0..0.5=0 --grade 0.5..1=1"
    ]
    for line in ("3\tqid:1\t# m1\twhat", "3 qid:1 # m1 what"):
        assert by_words(read(write("ltr.txt", line))) == [("what", "m1", 3, "human")]
    detailed = "Team Name,Case Name,Case ID,Query Text,Doc ID,Title,Rating"
    assert by_words(read(write("detailed.csv", detailed, "T,C,1,what,m1,x,3"))) == [("what", "m1", 3, "human")]


def test_a_case_of_quepid_in_each_of_its_forms_and_groups_of_rre(write):
    alone = {"queries": [{"query": "what", "ratings": {"m1": 3.0}}, {"query": "where", "ratings": {}}]}
    rated = [{"doc_id": "m1", "rating": 3.0, "user_email": "a@x.example"}]
    whole = {
        "case_name": "c",
        "queries": [{"query_text": "what", "ratings": rated}, {"query_text": "where", "ratings": []}],
    }
    for name, document, judge in (("alone.json", alone, "human"), ("whole.json", whole, "a@x.example")):
        parsed = read(write(name, document))
        assert by_words(parsed) == [("what", "m1", 3, judge)] and {query.query for query in parsed.queries} == {
            "what",
            "where",
        }
    asked = {"template": "t.json", "placeholders": {"$query": "what"}}
    groups = [{"name": "g", "queries": [asked], "relevant_documents": {"3": ["m1"], "1": ["m2"]}}]
    of_case = {
        "queries": [{"placeholders": {"$query": "what"}, "relevant_documents": {"m1": {"gain": 3}, "m2": {"gain": 1}}}]
    }
    for name, document in {"rre.json": {"topics": [{"query_groups": groups}]}, "case_rre.json": of_case}.items():
        assert by_words(read(write(name, document))) == [("what", "m1", 3, "human"), ("what", "m2", 1, "human")]
    found = {
        "hits": {
            "hits": [
                {"_source": {"judgmentRatings": [{"query": "what", "ratings": [{"docId": "m1", "rating": "3.0"}]}]}}
            ]
        }
    }
    assert by_words(read(write("hits.json", found))) == [("what", "m1", 3, "human")]


def test_ratings_that_are_no_whole_numbers_say_how_to_state_their_grades(write):
    for name, lines in {
        "srw.csv": ["what is it,m1,0.7", "who is it,m2,0.2"],
        "excel.csv": ["query;docid;rating", "what is it;m1;0,7", "who is it;m2;0,2"],
        "llm.csv": ["query,doc_id,relevance,reasoning", 'what is it,m1,0.7,"so, so"', "who is it,m2,0.2,no"],
    }.items():
        parsed = read(write(name, *lines))
        assert parsed.judgments == () and [(one.words, one.judgment.memory_id) for one in parsed.ungraded] == [
            ("what is it", "m1"),
            ("who is it", "m2"),
        ]
        assert all("--grade 0..0.5=0 --grade 0.5..1=1" in error.reason for error in parsed.errors)


def test_the_folder_of_mteb_has_judgments_as_json_lines(tmp_path):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": 4, "title": "Sleep", "text": "Short sleep."}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "P1", "text": "what?"}\n')
    (tmp_path / "qrels" / "test.jsonl").write_text('{"query-id": "P1", "corpus-id": "4", "score": 1.0}\n')
    [parsed] = read_path(tmp_path)
    assert parsed.judgments == (Judgment("P1", "4", 1),) and parsed.memories[0].id == "4"
    assert parsed.notes == ("the judgments are those of qrels/test.jsonl",)


def test_queries_with_an_empty_title_are_no_corpus(write):
    rows = [{"_id": "P1", "title": "", "text": "what lowers blood pressure"}]
    assert [query.qid for query in read(write("nf_queries.jsonl", *rows)).queries] == ["P1"]
    assert [memory.id for memory in read(write("my_corpus.jsonl", *rows)).memories] == ["P1"]
    for title in ("", None, rows[0]["text"]):
        with pytest.raises(InputError, match=r"may be a corpus .* or queries"):
            read(write("dev.jsonl", {**rows[0], "title": title}))


def test_a_query_set_of_the_search_relevance_workbench_is_queries(write):
    """opensearch-project/dashboards-search-relevance, test data at 1fa64734."""
    asked = [{"queryText": "where is the key"}, {"queryText": "which lamp", "referenceAnswer": "the green one"}]
    parsed = read(write("queryset.json", {"name": "depot", "sampling": "manual", "querySetQueries": asked}))
    assert (parsed.format, parsed.errors, parsed.judgments) == ("quepid-json", (), ())
    assert [query.query for query in parsed.queries] == ["where is the key", "which lamp"]
    assert parsed.notes[1:] == ("referenceAnswer of 1 query is left out: a query set has no answers",)


def test_queries(write):
    full = {"qid": "q1", "query": "when?", "project": "p", "as_of": "2024-01-01T00:00:00", "type": "temporal"}
    parsed = read(write("q.jsonl", full, {"qid": 2, "query": "what?"}, {"qid": "q1", "query": "x"}, {"qid": "q3"}))
    assert parsed.queries == (
        Query("q1", "when?", "p", datetime(2024, 1, 1, tzinfo=UTC), "temporal"),
        Query("2", "what?"),
    )
    assert problems(parsed) == [(3, "qid", "'q1' stands already in row 1"), (4, "query", "is missing")]


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
JUDGED = {(KEY, "a", 1), (KEY, "b", 1), (LAMP, "c", 1)}
ROWS = [{"query": KEY, "expected_ids": ["a", "b"]}, {"query": LAMP, "expected_ids": ["c"]}]


def renamed(**names: str) -> list[dict[str, object]]:
    return [{names.get(name, name): value for name, value in row.items()} for row in ROWS]


def lines(rows: list[dict[str, object]]) -> str:
    return "\n".join(map(json.dumps, rows))


def judged(parsed: ParsedInput) -> set[tuple[str, str, int]]:
    words = {query.qid: query.query for query in parsed.queries}
    return {(words[each.qid], each.memory_id, each.grade) for each in parsed.judgments}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", lines(ROWS)),
        ("a.json", json.dumps(renamed(expected_ids="relevant_ids"))),
        ("a.jsonl", lines([{"qid": f"q{n}", **row} for n, row in enumerate(renamed(expected_ids="gold_ids"))])),
        ("a.jsonl", lines(renamed(query="question", expected_ids="expectedMemoryIds"))),
        ("a.json", json.dumps({"_comment": "draft", "needles": renamed(expected_ids="expected")})),
        ("a.json", json.dumps({"q1": {**ROWS[0], "type": "alias"}, "q2": ROWS[1]})),
        ("a.json", json.dumps([{**ROWS[0], "expected_ids": "a, b"}, {**ROWS[1], "expected_ids": [{"id": "c"}]}])),
        (
            "a.json",
            json.dumps(
                {"queries": {"1": KEY, "2": LAMP}, "corpus": {}, "relevant_docs": {"1": ["a", "b"], "2": ["c"]}}
            ),
        ),
        ("a.csv", f"id,query,expected_ids\nq1,{KEY},a;b\nq2,{LAMP},c\n"),
        ("a.csv", f"question;gold\n{KEY};a | b\n{LAMP};c\n"),
        ("a.tsv", f'query\trelevant_doc_ids\n{KEY}\t"[""a"", ""b""]"\n{LAMP}\t[\'c\']\n'),
        ("a.csv", f"query,expected_id\n{KEY},a\n{KEY},b\n{LAMP},c\n"),
    ],
)
def test_a_row_with_expected_ids_is_a_query_with_judgments_of_grade_1(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    parsed = read(path)
    assert (parsed.format, parsed.errors, judged(parsed)) == ("expected-ids", (), JUDGED)


def test_grades_unwanted_ids_and_the_kind_of_a_query_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows: list[dict[str, object]] = [
        {"id": 1, "query": KEY, "relevant": {"a": 3, "b": "1.0"}, "noise_ids": ["c"], "category": "alias"},
        {"id": 2, "query": LAMP, "relevant": [{"doc_id": "c", "relevance": 2}], "top": 5},
        {"id": 3, "query": "who came", "relevant": []},
        {"id": 2, "query": "who left", "relevant": ["a"]},
    ]
    path.write_text(lines(rows))
    parsed = read(path)
    assert judged(parsed) == {(KEY, "a", 3), (KEY, "b", 1), (KEY, "c", 0), (LAMP, "c", 2)}
    assert [(query.qid, query.type) for query in parsed.queries] == [("1", "alias"), ("2", None), ("3", None)]
    assert [error.reason for error in parsed.errors] == ["'2' stands already in row 2 with other words"]
    assert parsed.notes == (
        "field 'top' is not known and was left out (1 rows)",
        '1 query expects nothing, such as 3, and has no judgment; "answerable": false says that the store has no answer',
    )


@pytest.mark.parametrize(
    ("row", "form"),
    [
        ({"qid": "q", "relevant_ids": ["a"], "noise_ids": ["b"]}, "cems-feedback"),
        ({"id": "m", "content": "The lamp is broken.", "evidence_ids": ["t1"]}, "memories-jsonl"),
        ({"user_input": KEY, "reference_context_ids": ["a"]}, "rag-samples"),
        ({"query": KEY, "gold_ids": ["a"], "retrieved_ids": ["b", "a"]}, "rag-samples"),
        ({"query": KEY, "expected_ids": ["a"], "results": ["b", "a"]}, "rag-samples"),
        ({"query": KEY, "results": ["b", "a"]}, "query-log"),
        ({"qid": "q", "docid": "a", "relevance": 1}, "judgments-jsonl"),
    ],
)
def test_rows_of_other_formats_are_taken_for_none(row: dict[str, object], form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines([row]))
    parsed = read(path)
    assert (parsed.format, parsed.errors) == (form, ())
    if "gold_ids" in row:
        assert [row.memory_id for row in parsed.answers[0].returned] == ["b", "a"]
        assert judged(parsed) == {(KEY, "a", 1)}


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
    said = "2 judgments name 2 ids of memories that the store does not have, such as notes/lamp.md, gone.md"
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
EMPTY = {"user_input": "who hands over the phone", "retrieved_contexts": [], "reference": "x"}
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


def table(*rows: dict[str, object]) -> str:
    names = dict.fromkeys(name for row in rows for name in row)
    return json.dumps({name: {str(n): row.get(name) for n, row in enumerate(rows)} for name in names})


CSV = f"""user_input,retrieved_contexts,reference_contexts,retrieved_context_ids,reference_context_ids,response,reference
{ROUNDING},"['x', ""{TEXT}""]","[""{TEXT}""]","['m05', 'm06']",['m05'],half up,half up
who hands over the phone,[],,,,,x
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", samples(RAGAS, EMPTY)),
        ("a.json", json.dumps([RAGAS, EMPTY])),
        ("a.json", table(RAGAS, EMPTY)),
        ("a.csv", CSV),
    ],
    ids=["jsonl", "records", "columns", "csv"],
)
def test_ragas_samples_with_ids(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert detect(path) == "rag-samples"
    parsed = read(path)
    first, second = parsed.queries
    assert (first.query, second.query) == (ROUNDING, "who hands over the phone")
    assert [[row.memory_id for row in answer.returned] for answer in parsed.answers] == [["m05", "m06"], []]
    assert [(one.qid, one.memory_id, one.grade) for one in parsed.judgments] == [(first.qid, "m05", 1)]
    assert not parsed.errors and not parsed.notes


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


def test_ids_beside_a_golden_and_the_samples_of_earlier_versions(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        samples(
            {**GOLDEN, "additional_metadata": {"reference_ids": ["m05"]}},
            {**GOLDEN, "input": "b", "custom_column_key_values": '{"reference_context_ids": [7]}'},
            {"question": "c", "contexts": [TEXT], "ground_truth": "half up", "answer": "half up"},
            {"user_input": [{"content": "d", "type": "human"}, {"content": "ok", "type": "ai"}], "response": "x"},
            {**RAGAS, "reference_context_ids": "[1"},
        )
    )
    parsed = read(path)
    assert [query.query for query in parsed.queries] == [ROUNDING, "b", "c", "d"]
    assert [one.memory_id for one in parsed.judgments] == ["m05", "7"]
    assert [error.field for error in parsed.errors] == ["reference_context_ids"]


def test_a_judged_id_that_the_store_does_not_have_is_named(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(samples({**RAGAS, "reference_context_ids": ["m05", "m99"]}))
    store.add(ParsedInput("m", "test", memories=(Memory("m05", TEXT), Memory("m06", "b"))))
    report = store.add(read(path))
    assert [one.memory_id for one in store.judgments.read()] == ["m05"]
    assert any("m99" in str(error) for error in report.errors)
