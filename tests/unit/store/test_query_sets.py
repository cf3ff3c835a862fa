"""Query sets: named after their input, versioned by what changes them, each with its own scale of grades, told or stated."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError, StoreError
from cems_workbench.formats import read
from cems_workbench.records import DEFAULT_SCALE, WHOLE_STORE, GradeScale, Judgment, Memory, ParsedInput, Query
from cems_workbench.store import ImportOptions, Store
from cems_workbench.store.importing import set_name
from cems_workbench.store.query_sets import digest
from cems_workbench.store.scales import parse_scale
from cems_workbench.store.stated_grades import parse_grades

Q1, Q2, Q3 = (
    Query("q1", "one"),
    Query("q2", "two", "p", datetime(2024, 1, 1, tzinfo=UTC), "temporal"),
    Query("q3", "three"),
)


def source(name: str, *queries: Query, judgments: tuple[Judgment, ...] = ()) -> ParsedInput:
    return ParsedInput(name, "queries-jsonl", queries=queries, judgments=judgments)


def names(store: Store) -> list[tuple[str, int, int]]:
    return [(one.name, one.version, one.size) for one in store.query_sets.latest()]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("data/bad_queries.jsonl", "bad_queries"),
        ("sample_data/queries.jsonl", "sample_data"),
        ("scifact", "scifact"),
        ("locomo/26.json", "locomo-26"),
        ("queries.jsonl", "queries"),
        ("26.json", "26"),
    ],
)
def test_a_set_is_named_after_its_input(path, name):
    assert set_name(path) == name


def test_an_import_makes_a_set_and_the_same_import_again_no_new_version(store):
    report = store.add(source("a/team.jsonl", Q1, Q2))
    assert [(one.name, one.version, one.sources) for one in report.query_sets] == [("team", 1, ("team.jsonl",))]
    assert store.add(source("a/team.jsonl", Q2, Q1)).query_sets == ()
    made = store.query_sets.get("team")
    assert (made.version, made.size, made.scale) == (1, 2, DEFAULT_SCALE)
    assert store.query_sets.queries("team") == [Q1, Q2]


def test_a_changed_input_makes_a_version_and_the_earlier_one_stays_as_it_was(store):
    store.add(source("team.jsonl", Q1, Q2))
    reworded = replace(Q1, query="ONE")
    store.add(source("team.jsonl", reworded, Q3))
    assert store.query_sets.queries("team") == [reworded, Q3]
    assert store.query_sets.queries("team", version=1) == [Q1, Q2]
    assert store.queries.read() == [reworded, Q2, Q3]  # none is deleted
    assert [one.version for one in store.query_sets.versions("team")] == [2, 1]
    assert store.query_sets.get("team").digest != store.query_sets.get("team", 1).digest


def test_a_set_is_the_union_of_its_inputs_and_one_import_makes_one_version(store):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    store.add(source("d/1.json", Q1), options=ImportOptions("d", when=now))
    store.add(source("d/2.json", Q2), options=ImportOptions("d", when=now))
    assert names(store) == [("d", 1, 2)]
    store.add(source("d/2.json", Q3), options=ImportOptions("d"))
    assert names(store) == [("d", 2, 2)]
    assert store.query_sets.queries("d") == [Q1, Q3]
    assert store.query_sets.get("d").sources == ("1.json", "2.json")


def test_a_query_in_two_sets_is_one_query_and_both_follow_its_words(store):
    store.add(source("a.jsonl", Q1, Q2))
    store.add(source("b.jsonl", Q1))
    changed = source("b.jsonl", replace(Q1, query="new words"))
    left = store.add(changed)
    assert left.query_sets == ()
    assert [error.reason for error in left.errors] == [
        "would replace query 'q1', which a.jsonl brought; --replace takes this row"
    ]
    report = store.add(changed, options=ImportOptions(replace=True))
    assert {(one.name, one.version) for one in report.query_sets} == {("a", 2), ("b", 2)}
    assert store.query_sets.queries("a")[0].query == "new words"
    assert store.query_sets.queries("a", 1)[0].query == "one"


def test_what_is_searched_as_given_is_part_of_its_set(store):
    store.add(source("team.jsonl", Q1, Q2))
    before = store.query_sets.get("team").digest
    given = replace(Q1, searched="one more", engine_queries={"lexical": "one"}, wordings=("eins",))
    store.add(source("team.jsonl", given, Q2))
    assert store.query_sets.queries("team") == store.queries.read() == [given, Q2]
    assert store.query_sets.queries("team", version=1) == [Q1, Q2]
    assert store.query_sets.get("team").digest == digest([given, Q2], DEFAULT_SCALE) != before


@pytest.mark.parametrize("answer", ["940 euros", None])
def test_an_answer_is_written_to_the_present_version_of_every_set_of_its_query(store, answer):
    for name in ("a.jsonl", "b.jsonl"):
        store.add(source(name, replace(Q1, answer="900 euros"), Q2))
    before = store.query_sets.latest()
    report = store.add(source("a.jsonl", replace(Q1, answer=answer), Q2))
    assert (report.query_sets, store.query_sets.latest()) == ((), before)
    assert [store.query_sets.queries(name)[0].answer for name in "ab"] == [answer, answer]
    store.imports.undo(3)
    assert [store.query_sets.queries(name)[0].answer for name in "ab"] == ["900 euros", "900 euros"]


def test_that_nothing_answers_a_query_is_part_of_its_set(store):
    store.add(source("a.jsonl", Q1, Q2))
    before = store.query_sets.get("a")
    unanswerable = replace(Q2, answerable=False)
    report = store.add(source("b.jsonl", unanswerable), options=ImportOptions(replace=True))
    assert [(one.name, one.version) for one in report.query_sets] == [("b", 1), ("a", 2)]
    assert store.query_sets.queries("a") == [Q1, unanswerable]
    assert store.query_sets.queries("a", 1) == [Q1, Q2]
    assert store.queries.read() == [Q1, unanswerable]
    assert before.digest == digest([Q1, Q2], DEFAULT_SCALE) != store.query_sets.get("a").digest


def test_queries_that_a_file_of_the_same_name_drops_from_a_set_are_named(store):
    store.add(source("first/set.jsonl", Q1, Q2))
    report = store.add(source("second/set.jsonl", Q2))
    assert names(store) == [("set", 2, 1)]
    assert report.notes == (
        "query set set no longer has 1 query of an earlier set.jsonl, which this one replaces there: q1; "
        "--query-set NAME puts a file into another set",
    )
    assert store.add(source("second/set.jsonl", Q2)).notes == ()


def test_a_file_of_words_with_one_query_more_keeps_the_others_in_its_set(store, tmp_path):
    store.add(ParsedInput("m", "m", memories=(Memory("m1", "text"),)))
    rows = ["query,docid,rating", "how,m1,1", "why,m1,2", "who,m1,1"]
    for size in (3, 4):
        (tmp_path / "case.csv").write_text("\n".join(rows[:size]))
        report = store.add(read(tmp_path / "case.csv"))
        assert (names(store), report.notes) == ([("case", size - 2, size - 1)], ())


def test_a_relevant_judgment_against_no_answer_is_said_and_both_are_kept(store):
    store.add(ParsedInput("m.jsonl", "memories-jsonl", memories=(Memory("m1", "text"), Memory("m2", "text"))))
    unanswerable = replace(Q2, answerable=False)
    judged = (Judgment("q2", "m1", 0), Judgment("q2", "m2", 2, "ann"))
    report = store.add(source("a.jsonl", unanswerable, judgments=judged))
    assert report.notes == (
        "query q2 is marked unanswerable, but ann judged m2 2; both are kept, and the judgment counts",
    )
    assert store.queries.read() == [unanswerable]
    assert store.judgments.read() == list(judged)
    assert store.add(source("b.jsonl", judgments=(Judgment("q2", "m1", 0, "ben"),))).notes == report.notes
    store.add(source("c.jsonl", Q1, judgments=(Judgment("q1", WHOLE_STORE, 0, "ann"),)))
    against = store.add(source("d.jsonl", judgments=(Judgment("q1", "m1", 3, "ben"),)))
    assert against.notes == (
        "query q1 is marked unanswerable, but ben judged m1 3; both are kept, and the judgment counts",
    )


def test_equal_sets_have_equal_digests_in_any_store_and_order(tmp_path, store):
    store.add(source("a.jsonl", Q1, Q2, Q3))
    with Store.open(tmp_path / "other") as other:
        other.add(source("b.jsonl", Q3, Q1))
        other.add(source("c.jsonl", Q2), options=ImportOptions("b"))
        assert other.query_sets.get("b").digest == store.query_sets.get("a").digest


def test_queries_are_put_and_taken_out_by_hand(store):
    made = store.query_sets.put("hand", [Q1, Q2], "typed")
    assert (made.version, made.size) == (1, 2)
    assert [store.query_sets.put("hand", [Q2], "typed").version for _ in range(2)] == [2, 2]
    assert store.query_sets.queries("hand") == [Q2]
    with pytest.raises(InputError, match="duplicate qid"):
        store.query_sets.put("hand", [Q1, Q1], "typed")


@pytest.mark.parametrize("name", ["", " ", "a\nb", " a", "x" * 201])
def test_what_cannot_name_a_set_is_refused(store, name):
    with pytest.raises(InputError, match="not a name"):
        store.query_sets.put(name, [Q1], "typed")


def test_an_unknown_set_or_version_names_what_there_is(store):
    with pytest.raises(StoreError, match="no query set 'x' in the store; there are none yet"):
        store.query_sets.get("x")
    store.add(source("team.jsonl", Q1))
    with pytest.raises(StoreError, match="did you mean team"):
        store.query_sets.queries("taem")
    with pytest.raises(StoreError, match="no version 7; the latest is 1"):
        store.query_sets.get("team", 7)


def test_a_set_has_its_own_scale_and_keeps_it_over_imports(store):
    scale = GradeScale(((0, "no"), (1, "yes")))
    store.add(source("team.jsonl", Q1), options=ImportOptions(scale=scale))
    store.add(source("team.jsonl", Q1, Q2))
    assert store.query_sets.get("team").scale == scale
    wider = store.query_sets.set_scale("team", GradeScale(((0, "no"), (1, "yes"), (2, "very"))))
    assert (wider.version, str(wider.scale)) == (3, "0 to 2")


def test_a_grade_off_the_scale_of_every_set_of_its_query_is_reported_and_the_rest_used(store):
    store.add(ParsedInput("m", "m", memories=(Memory("m", "text"), Memory("n", "text"))))
    grades = (Judgment("q1", "m", 4), Judgment("q1", "n", 3), Judgment("q2", "m", -1))
    report = store.add(source("team.jsonl", Q1, Q2, judgments=grades))
    assert [(error.row, error.field) for error in report.errors] == [(1, "grade"), (3, "grade")]
    assert (
        report.errors[0].reason
        == "grade 4 is not on the scale of query set team, which has 0 to 3; --scale -1..4 --query-set team gives it this grade"
    )
    assert store.judgments.read() == [Judgment("q1", "n", 3)]
    store.query_sets.put("spam", [Q2], "typed", GradeScale(((-2, "spam"), (-1, "off topic"), (0, "no"))))
    assert store.add(source("qrels", judgments=grades[2:])).errors == ()


QRELS = ["q1 0 m1 2", "q1 0 m2 -1", "q2 0 m1 -2"]


@pytest.fixture
def scaled(tmp_path):
    with Store.open(tmp_path / "store") as opened:
        memories = tuple(Memory(name, name) for name in ("m1", "m2", "m3"))
        opened.add(ParsedInput("base.jsonl", "t", memories=memories, queries=(Query("q1", "one"), Query("q2", "two"))))
        yield opened


def given(tmp_path, *lines: str, name: str = "web.qrels"):
    (tmp_path / name).write_text("\n".join(lines))
    return read(tmp_path / name)


def grades_of(scaled):
    return [(one.qid, one.memory_id, one.grade) for one in scaled.judgments.read()]


def test_a_scale_of_known_queries_acts_on_their_set_and_says_from_where_on_grades_are_relevant(scaled, tmp_path):
    parsed = given(tmp_path, *QRELS)
    refused = scaled.add(parsed)
    assert [error.reason.split("; ")[1] for error in refused.errors] == [
        "--scale -2..3 --query-set base gives it this grade"
    ] * 2
    report = scaled.add(parsed, options=ImportOptions(scale=parse_scale("-2..3")))
    assert report.errors == () and grades_of(scaled) == [("q1", "m1", 2), ("q1", "m2", -1), ("q2", "m1", -2)]
    assert report.notes == ("query set base: grades -2 to 3, relevant from 1",)
    [base] = report.query_sets
    assert (base.name, base.version, dict(base.scale.grades)[3][:7]) == ("base", 2, "Answers")


def test_a_scale_that_existing_judgments_do_not_fit_is_refused_with_one_that_they_do(scaled, tmp_path):
    scaled.add(given(tmp_path, *QRELS), options=ImportOptions(scale=parse_scale("-2..3")))
    with pytest.raises(
        InputError, match=r"has 2 judgments with other grades, such as -1 of q1 m2 by human; --scale -2..4 has them all"
    ):
        scaled.add(given(tmp_path, "q2 0 m2 4"), options=ImportOptions(scale=parse_scale("0..4")))
    assert scaled.query_sets.get("base").version == 2 and len(grades_of(scaled)) == 3


def test_whose_scale_it_is_must_be_clear(scaled, tmp_path):
    scaled.add(ParsedInput("more.jsonl", "t", queries=(Query("q2", "two"),)))
    parsed, wider = given(tmp_path, *QRELS), parse_scale("-2..3")
    with pytest.raises(InputError, match=r"in the sets base, more; --query-set says whose scale it is"):
        scaled.add(parsed, options=ImportOptions(scale=wider))
    with pytest.raises(
        InputError, match=r"query set other has none of the judged queries; they are in base, more: --query-set base"
    ):
        scaled.add(parsed, options=ImportOptions("other", wider))
    assert scaled.add(parsed, options=ImportOptions("base", wider)).errors == ()
    assert str(scaled.query_sets.get("more").scale) == "0 to 3"


def test_a_scale_without_an_irrelevant_grade_is_said_and_its_lowest_relevant_grade_can_be_set(scaled, tmp_path):
    parsed = given(tmp_path, "query,docid,rating", "new,m1,10", "new,m2,1", name="ten.csv")
    report = scaled.add(parsed, options=ImportOptions(scale=parse_scale("1..10")))
    every = "query set ten: every grade of 1 to 10 counts as relevant, 1 too; --relevant-from N sets the lowest relevant grade"
    assert every in report.notes and report.errors == ()
    report = scaled.add(parsed, options=ImportOptions(query_set="ten", relevant_from=6))
    assert report.notes == ("query set ten: grades 1 to 10, relevant from 6",)
    assert scaled.query_sets.relevant_from("ten") == 6
    assert scaled.add(parsed, options=ImportOptions(scale=parse_scale("0..10"))).query_sets[0].scale.relevant_from == 6
    for wrong in (0, 11):
        with pytest.raises(InputError, match="--relevant-from"):
            scaled.add(parsed, options=ImportOptions(relevant_from=wrong))


def test_a_changed_scale_keeps_the_meanings_of_its_set(scaled, tmp_path):
    scaled.query_sets.set_scale("base", GradeScale(((0, "no"), (1, "yes"))))
    report = scaled.add(given(tmp_path, "q1 0 m1 2"), options=ImportOptions(scale=parse_scale("0..2")))
    assert [text[:7] for _, text in report.query_sets[0].scale.grades] == ["no", "yes", "Grade 2"]


FRACTIONS = ["query,docid,rating", "one,m1,0.0", "one,m2,0.5", "two,m1,0.95", "two,m2,1.0", 'two,m3,"0,33"']


def test_fractions_become_the_grades_that_are_stated_and_nothing_without(scaled, tmp_path):
    parsed = given(tmp_path, *FRACTIONS, name="llm.csv")
    report = scaled.add(parsed)
    assert [error.row for error in report.errors] == [3, 4, 6]
    assert "state the grades of such values: --grade 0..0.5=0 --grade 0.5..1=1" in report.errors[0].reason
    assert "2 ratings in whole numbers became grades as they are, beside 3 fractions, such as 0.5" in report.notes[0]
    stated = parse_grades(["0..0.33=0", "0.33..0.95=1", "0.95..1=3"])
    report = scaled.add(parsed, options=ImportOptions(grades=stated))
    assert report.errors == ()
    assert sorted(grades_of(scaled)) == [
        ("q1", "m1", 0),
        ("q1", "m2", 1),
        ("q2", "m1", 3),
        ("q2", "m2", 3),
        ("q2", "m3", 1),
    ]
    assert (
        report.notes[0]
        == "by --grade: 0..0.33 is grade 0 (1 row), 0.33..0.95 is grade 1 (2 rows), 0.95..1 is grade 3 (2 rows)"
    )


def test_words_and_truth_values_become_the_grades_that_are_stated(scaled, tmp_path):
    lines = [
        '{"qid": "q1", "memory_id": "m1", "grade": "Relevant"}',
        '{"qid": "q1", "memory_id": "m2", "grade": false}',
        '{"qid": "q2", "memory_id": "m1", "grade": "relevant"}',
        '{"qid": "q2", "memory_id": "m2", "grade": "perhaps"}',
    ]
    parsed = given(tmp_path, *lines, name="words.jsonl")
    assert parsed.judgments == () and "state its grade: --grade Relevant=1" in parsed.errors[0].reason
    report = scaled.add(parsed, options=ImportOptions(grades=parse_grades(["Relevant=3", "FALSE=0", "maybe=1"])))
    assert grades_of(scaled) == [("q1", "m1", 3), ("q1", "m2", 0), ("q2", "m1", 3)]
    assert [error.row for error in report.errors] == [4]
    assert report.notes[0] == "by --grade: Relevant is grade 3 (2 rows), FALSE is grade 0 (1 row)"
    assert report.notes[1] == "--grade: no rating is maybe"


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        (["0.5"], "is not VALUE=GRADE"),
        (["a=b"], "is not VALUE=GRADE"),
        (["a=1", "a=2"], "a has the grades 1 and 2"),
        (["2=1", "2.0=3"], "2.0 has the grades 1 and 3"),
        (["Yes=1", "yes=2"], "yes has the grades 1 and 2"),
        (["0..0.5=0", "0.4..1=1"], "the ranges 0..0.5 and 0.4..1 overlap"),
        (["1..0=0"], "ends before it begins"),
        (["a..b=0"], "is no range of numbers"),
    ],
)
def test_a_mapping_that_says_nothing_clear_is_refused(stated, reason):
    with pytest.raises(InputError, match="--grade: .*" + reason):
        parse_grades(stated)
