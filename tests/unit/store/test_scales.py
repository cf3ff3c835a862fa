"""The scale that an import states for a query set, and the grades that it states for fractions and words."""

from __future__ import annotations

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import read
from cems_workbench.records import GradeScale, Memory, ParsedInput, Query
from cems_workbench.store import ImportOptions, Store
from cems_workbench.store.scales import parse_scale
from cems_workbench.store.stated_grades import parse_grades

QRELS = ["q1 0 m1 2", "q1 0 m2 -1", "q2 0 m1 -2"]


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store") as opened:
        memories = tuple(Memory(name, name) for name in ("m1", "m2", "m3"))
        opened.add(ParsedInput("base.jsonl", "t", memories=memories, queries=(Query("q1", "one"), Query("q2", "two"))))
        yield opened


def given(tmp_path, *lines: str, name: str = "web.qrels"):
    (tmp_path / name).write_text("\n".join(lines))
    return read(tmp_path / name)


def grades_of(store):
    return [(one.qid, one.memory_id, one.grade) for one in store.judgments.read()]


def test_a_scale_of_known_queries_acts_on_their_set_and_says_from_where_on_grades_are_relevant(store, tmp_path):
    parsed = given(tmp_path, *QRELS)
    refused = store.add(parsed)
    assert [error.reason.split("; ")[1] for error in refused.errors] == [
        "--scale -2..3 --query-set base gives it this grade"
    ] * 2
    report = store.add(parsed, options=ImportOptions(scale=parse_scale("-2..3")))
    assert report.errors == () and grades_of(store) == [("q1", "m1", 2), ("q1", "m2", -1), ("q2", "m1", -2)]
    assert report.notes == ("query set base: grades -2 to 3, relevant from 1",)
    [base] = report.query_sets
    assert (base.name, base.version, dict(base.scale.grades)[3][:7]) == ("base", 2, "Answers")


def test_a_scale_that_existing_judgments_do_not_fit_is_refused_with_one_that_they_do(store, tmp_path):
    store.add(given(tmp_path, *QRELS), options=ImportOptions(scale=parse_scale("-2..3")))
    with pytest.raises(
        InputError, match=r"has 2 judgments with other grades, such as -1 of q1 m2 by human; --scale -2..4 has them all"
    ):
        store.add(given(tmp_path, "q2 0 m2 4"), options=ImportOptions(scale=parse_scale("0..4")))
    assert store.query_sets.get("base").version == 2 and len(grades_of(store)) == 3


def test_whose_scale_it_is_must_be_clear(store, tmp_path):
    store.add(ParsedInput("more.jsonl", "t", queries=(Query("q2", "two"),)))
    parsed, wider = given(tmp_path, *QRELS), parse_scale("-2..3")
    with pytest.raises(InputError, match=r"in the sets base, more; --query-set says whose scale it is"):
        store.add(parsed, options=ImportOptions(scale=wider))
    with pytest.raises(
        InputError, match=r"query set other has none of the judged queries; they are in base, more: --query-set base"
    ):
        store.add(parsed, options=ImportOptions("other", wider))
    assert store.add(parsed, options=ImportOptions("base", wider)).errors == ()
    assert str(store.query_sets.get("more").scale) == "0 to 3"


def test_a_scale_without_an_irrelevant_grade_is_said_and_its_lowest_relevant_grade_can_be_set(store, tmp_path):
    parsed = given(tmp_path, "query,docid,rating", "new,m1,10", "new,m2,1", name="ten.csv")
    report = store.add(parsed, options=ImportOptions(scale=parse_scale("1..10")))
    every = "query set ten: every grade of 1 to 10 counts as relevant, 1 too; --relevant-from N sets the lowest relevant grade"
    assert every in report.notes and report.errors == ()
    report = store.add(parsed, options=ImportOptions(query_set="ten", relevant_from=6))
    assert report.notes == ("query set ten: grades 1 to 10, relevant from 6",)
    assert store.query_sets.relevant_from("ten") == 6
    assert store.add(parsed, options=ImportOptions(scale=parse_scale("0..10"))).query_sets[0].scale.relevant_from == 6
    for wrong in (0, 11):
        with pytest.raises(InputError, match="--relevant-from"):
            store.add(parsed, options=ImportOptions(relevant_from=wrong))


def test_a_changed_scale_keeps_the_meanings_of_its_set(store, tmp_path):
    store.query_sets.set_scale("base", GradeScale(((0, "no"), (1, "yes"))))
    report = store.add(given(tmp_path, "q1 0 m1 2"), options=ImportOptions(scale=parse_scale("0..2")))
    assert [text[:7] for _, text in report.query_sets[0].scale.grades] == ["no", "yes", "Grade 2"]


def test_grades_mean_what_they_mean_by_default_only_on_a_scale_that_ends_as_the_default():
    assert [text.split(":")[0] for _, text in parse_scale("-1..3").grades] == [
        "Grade -1",
        "Not relevant",
        "Related",
        "Helpful",
        "Answers the question, or is a necessary part of the answer",
    ]
    assert [text for _, text in parse_scale("1..10").grades] == [f"Grade {grade}" for grade in range(1, 11)]


FRACTIONS = ["query,docid,rating", "one,m1,0.0", "one,m2,0.5", "two,m1,0.95", "two,m2,1.0", 'two,m3,"0,33"']


def test_fractions_become_the_grades_that_are_stated_and_nothing_without(store, tmp_path):
    parsed = given(tmp_path, *FRACTIONS, name="llm.csv")
    report = store.add(parsed)
    assert [error.row for error in report.errors] == [3, 4, 6]
    assert "state the grades of such values: --grade 0..0.5=0 --grade 0.5..1=1" in report.errors[0].reason
    assert "2 ratings in whole numbers became grades as they are, beside 3 fractions, such as 0.5" in report.notes[0]
    stated = parse_grades(["0..0.33=0", "0.33..0.95=1", "0.95..1=3"])
    report = store.add(parsed, options=ImportOptions(grades=stated))
    assert report.errors == ()
    assert sorted(grades_of(store)) == [
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


def test_words_and_truth_values_become_the_grades_that_are_stated(store, tmp_path):
    lines = [
        '{"qid": "q1", "memory_id": "m1", "grade": "Relevant"}',
        '{"qid": "q1", "memory_id": "m2", "grade": false}',
        '{"qid": "q2", "memory_id": "m1", "grade": "relevant"}',
        '{"qid": "q2", "memory_id": "m2", "grade": "perhaps"}',
    ]
    parsed = given(tmp_path, *lines, name="words.jsonl")
    assert parsed.judgments == () and "state its grade: --grade Relevant=1" in parsed.errors[0].reason
    report = store.add(parsed, options=ImportOptions(grades=parse_grades(["Relevant=3", "FALSE=0", "maybe=1"])))
    assert grades_of(store) == [("q1", "m1", 3), ("q1", "m2", 0), ("q2", "m1", 3)]
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
