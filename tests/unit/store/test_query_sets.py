"""Query sets: named after their input, versioned by what changes them, each with its own scale of grades."""

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
        "query set set no longer has 1 queries of an earlier set.jsonl, which this one replaces there: q1; "
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
    assert store.query_sets.take_out("hand", ["q1", "unknown"]).version == 2
    assert store.query_sets.queries("hand") == [Q2]
    assert store.query_sets.put("hand", [Q2], "typed").version == 2
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
