"""Judgments of other tools by example: Quepid, OpenSearch, JSONL, CSV, CEMS feedback, TREC runs.

Judgments as the tools of the field write them: recognised by their header and their shape, with ids as ids and words as words.

The files are those of public reports, made small (quepid#364, quepid#758, search-relevance#44), and the forms of ir_datasets 0.5,
PyTerrier 1.0, MTEB 2 and ranx 0.3.21.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import FORMATS, judgment_writers, judgments, read, read_path, runs, write_judgments
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


def test_ranx_gets_back_what_was_read(write):
    writer = FORMATS["ranx-json"].judgments
    assert writer is not None
    text = writer.write([Judgment("q1", "m01", 2), Judgment("q1", "m07", 0)], {})
    assert json.loads(text) == {"q1": {"m01": 2, "m07": 0}}
    assert [each.grade for each in read(write("x.json", text)).judgments] == [2, 0]
    assert judgments.parse_judgment({"qid": "q", "memory_id": "m", "grade": 1.0}).grade == 1


def test_a_query_set_of_the_search_relevance_workbench_is_queries(write):
    """opensearch-project/dashboards-search-relevance, test data at 1fa64734."""
    asked = [{"queryText": "where is the key"}, {"queryText": "which lamp", "referenceAnswer": "the green one"}]
    parsed = read(write("queryset.json", {"name": "depot", "sampling": "manual", "querySetQueries": asked}))
    assert (parsed.format, parsed.errors, parsed.judgments) == ("quepid-json", (), ())
    assert [query.query for query in parsed.queries] == ["where is the key", "which lamp"]
    assert parsed.notes[1:] == ("referenceAnswer of 1 query is left out: a query set has no answers",)
