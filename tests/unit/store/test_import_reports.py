"""A file of judgments with everything wrong in it: what is kept and what is said, in each form that judgments come in."""

from __future__ import annotations

import json

import pytest

from cems_workbench.formats import read
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.store import RowCounts, Store

MEMORIES = tuple(Memory(name, name) for name in ("good", "twice", "rival", "rescued", "mine", "theirs"))
BY_WORDS = ("quepid-csv", "srw-csv", "quepid-book")

ROWS: list[tuple[str, str, object]] = [
    ("q", "good", 1),
    ("q", "good", "high"),  # no grade
    ("nobody", "good", 1),  # a query the store does not have
    ("q", "gone", 1),  # a memory it does not have
    ("q", "rescued", 7),  # off the scale, before a good row of the same pair
    ("q", "rescued", 2),
    ("q", "twice", 3),
    ("q", "twice", 3),  # the same again
    ("q", "rival", 0),
    ("q", "rival", 3),  # another grade of the same judge
    ("q", "mine", 3),  # given here as 1
    ("q", "theirs", 3),  # Ann says 0 here
    ("q", "good", None),  # a row cut short
]
KEPT = {"good": 1, "rescued": 2, "twice": 3, "rival": 0, "mine": 1, "theirs": 3}


def lines_of(form: str) -> tuple[str, list[str], int, dict[str, str]]:
    """(file name, lines, lines before the first row, what qid, memory_id and grade are called) of the rows in a form."""
    if form == "judgments-jsonl":
        whole = [json.dumps({"qid": q, "memory_id": m, "grade": g}) for q, m, g in ROWS[:-1]]
        return "j.jsonl", [*whole, '{"qid": "q", "memory_id"'], 0, dict(qid="qid", memory_id="memory_id", grade="grade")
    mark, header, names = {
        "judgments-csv": (",", ["qid,memory_id,grade"], ("qid", "memory_id", "grade")),
        "qrels": (" 0 ", [], ("qid", "docno", "rel")),
        "beir": ("\t", ["query-id\tcorpus-id\tscore"], ("query-id", "corpus-id", "score")),
        "quepid-csv": (",", ["query,docid,rating"], ("query", "docid", "rating")),
        "srw-csv": (",", [], ("query", "docid", "rating")),
        "quepid-book": (",", ["query,docid,human"], ("query", "docid", "human")),
    }[form]
    last = " " if form == "qrels" else mark
    rows = [f"{q}{mark}{m}{last}{g}" for q, m, g in ROWS[:-1]]
    name = {"qrels": "j.qrels", "beir": "test.tsv"}.get(form, "j.csv")
    return name, [*header, *rows, "q"], len(header), dict(zip(("qid", "memory_id", "grade"), names, strict=True))


FORMS = ("judgments-jsonl", "judgments-csv", "qrels", "beir", *BY_WORDS)


@pytest.fixture
def store(tmp_path):
    """One query, six memories, a label of "human" and one of Ann given here."""
    with Store.open(tmp_path / "store") as opened:
        opened.add(ParsedInput("team.jsonl", "test", memories=MEMORIES, queries=(Query("q", "q"),)))
        opened.labels.give(Judgment("q", "mine", 1))
        opened.labels.give(Judgment("q", "theirs", 0, "Ann"))
        yield opened


@pytest.mark.parametrize("form", FORMS)
def test_every_bad_row_is_named_with_its_field_and_every_good_one_is_used(store, tmp_path, form):
    name, lines, head, called = lines_of(form)
    path = tmp_path / name
    path.write_text("\n".join(lines))
    report = store.add(read(path, form))
    kept = {one.memory_id: one.grade for one in store.judgments.read("q") if one.judge == "human"}
    assert kept == KEPT
    said = {error.row - head: (error.field, error.reason) for error in report.errors}
    assert all(error.source == str(path) for error in report.errors)
    assert said[2][0] == called["grade"] and "must be a whole number, found 'high'" in said[2][1]
    assert said[4] == (called["memory_id"], "no memory 'gone' in the store; import it first")
    assert said[5] == (
        called["grade"],
        "grade 7 is not on the scale of query set team, which has 0 to 3; --scale 0..7 --query-set team gives it this grade",
    )
    assert said[10] == (called["grade"], f"q rival has grade 0 in row {9 + head}, which is kept")
    assert said[11] == (called["grade"], "human gave q mine grade 1 here, which is kept")
    short = set() if form == "quepid-csv" else {13}  # there words alone are a query to be judged
    if form in BY_WORDS:  # unknown words are a new query
        assert report.queries == RowCounts(added=1, unchanged=not short) and set(said) == {2, 4, 5, 10, 11} | short
    else:
        assert said[3] == (called["qid"], "no query 'nobody' in the store; import it first")
        assert set(said) == {2, 3, 4, 5, 10, 11, 13}
    assert f"row {8 + head} repeats row {7 + head}" in report.notes
    assert [note for note in report.notes if "Ann" in note] == [
        f"row {12 + head}: {called['grade']}: human says 3 of q theirs, in the store: Ann 0; all are kept"
    ]
    assert [one.grade for one in store.judgments.read("q") if one.judge == "Ann"] == [0]


def test_feedback_that_contradicts_itself_keeps_the_first_and_says_so(store, tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [
        {"qid": "q", "relevant_ids": ["good", "gone"], "noise_ids": ["good"]},
        {"qid": "?", "noise_ids": ["good"]},
        {"qid": "q", "relevant_ids": "good"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    report = store.add(read(path))
    assert [one.grade for one in store.judgments.read("q", "model")] == [2]
    lists = "relevant_ids, noise_ids"
    assert [(error.row, error.field, error.reason) for error in report.errors] == [
        (1, lists, "no memory 'gone' in the store; import it first"),
        (1, lists, "q good has grade 2 by cems in row 1, which is kept"),
        (2, "qid", "no query '?' in the store; import it first"),
        (3, "relevant_ids", "must be a list of memory ids"),
    ]


def test_a_good_row_behind_one_off_the_scale_is_used_whatever_their_order(store):
    rows = [Judgment("q", "good", 9), Judgment("q", "good", -9), Judgment("q", "good", 2), Judgment("q", "good", 8)]
    report = store.add(ParsedInput("x", "test", judgments=tuple(rows)))
    assert [one.grade for one in store.judgments.read("q") if one.memory_id == "good"] == [2]
    assert [error.row for error in report.errors] == [1, 2, 4]


def test_the_same_grade_with_another_note_is_a_repetition_that_says_what_is_lost(store):
    rows = (Judgment("q", "good", 2, note="a"), Judgment("q", "good", 2, note="b"))
    report = store.add(ParsedInput("x", "test", judgments=rows))
    assert report.errors == ()
    assert report.notes == ("row 2 repeats row 1; its time and note are left out",)


def test_differences_between_judges_of_one_file_are_no_conflict_with_the_store(store):
    rows = (Judgment("q", "good", 2, "Bo"), Judgment("q", "good", 0, "Cy"))
    assert store.add(ParsedInput("x", "test", judgments=rows)).notes == ()
    report = store.add(ParsedInput("y", "test", judgments=(Judgment("q", "good", 3, "Bo"),)))
    assert report.notes == (
        "row 1: grade: Bo says 3 of q good, in the store: Cy 0; all are kept",
        "judgment q / good by Bo: grade 2 (from x) replaced by 3",
    )


def test_a_label_given_here_is_told_against_other_rows_of_the_file_too(store):
    rows = (Judgment("q", "theirs", 2, "Bo"), Judgment("q", "theirs", 3, "Ann"))  # Ann said 0 here, which is kept
    report = store.add(ParsedInput("x", "test", judgments=rows))
    assert report.notes == ("row 1: grade: Bo says 2 of q theirs, in the store: Ann 0; all are kept",)
    assert [(error.row, error.reason) for error in report.errors] == [
        (2, "Ann gave q theirs grade 0 here, which is kept")
    ]


def test_many_differences_are_counted_after_the_first_twenty(store):
    many = tuple(Memory(f"m{n}", "text") for n in range(25))
    store.add(ParsedInput("m", "test", memories=many))
    store.add(ParsedInput("x", "test", judgments=tuple(Judgment("q", one.id, 1, "Bo") for one in many)))
    report = store.add(ParsedInput("y", "test", judgments=tuple(Judgment("q", one.id, 2, "Cy") for one in many)))
    assert len(report.notes) == 21
    assert report.notes[-1] == "5 more grades differ from those of other judges"
