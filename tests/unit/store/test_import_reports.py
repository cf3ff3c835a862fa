"""What an import keeps and what it says: judgments with everything wrong in them, queries by their words, recorded answers of a log."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import read
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RecordedAnswer, Returned
from cems_workbench.store import ImportOptions, RowCounts, Store
from cems_workbench.store.query_matching import envelope_notes, near_words, same_words

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
def judged(tmp_path):
    """One query, six memories, a label of "human" and one of Ann given here."""
    with Store.open(tmp_path / "store") as opened:
        opened.add(ParsedInput("team.jsonl", "test", memories=MEMORIES, queries=(Query("q", "q"),)))
        opened.labels.give(Judgment("q", "mine", 1))
        opened.labels.give(Judgment("q", "theirs", 0, "Ann"))
        yield opened


@pytest.mark.parametrize("form", FORMS)
def test_every_bad_row_is_named_with_its_field_and_every_good_one_is_used(judged, tmp_path, form):
    name, lines, head, called = lines_of(form)
    path = tmp_path / name
    path.write_text("\n".join(lines))
    report = judged.add(read(path, form))
    kept = {one.memory_id: one.grade for one in judged.judgments.read("q") if one.judge == "human"}
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
    assert [one.grade for one in judged.judgments.read("q") if one.judge == "Ann"] == [0]


def test_feedback_that_contradicts_itself_keeps_the_first_and_says_so(judged, tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [
        {"qid": "q", "relevant_ids": ["good", "gone"], "noise_ids": ["good"]},
        {"qid": "?", "noise_ids": ["good"]},
        {"qid": "q", "relevant_ids": "good"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    report = judged.add(read(path))
    assert [one.grade for one in judged.judgments.read("q", "model")] == [2]
    lists = "relevant_ids, noise_ids"
    assert [(error.row, error.field, error.reason) for error in report.errors] == [
        (1, lists, "no memory 'gone' in the store; import it first"),
        (1, lists, "q good has grade 2 by cems in row 1, which is kept"),
        (2, "qid", "no query '?' in the store; import it first"),
        (3, "relevant_ids", "must be a list of memory ids"),
    ]


def test_a_good_row_behind_one_off_the_scale_is_used_whatever_their_order(judged):
    rows = [Judgment("q", "good", 9), Judgment("q", "good", -9), Judgment("q", "good", 2), Judgment("q", "good", 8)]
    report = judged.add(ParsedInput("x", "test", judgments=tuple(rows)))
    assert [one.grade for one in judged.judgments.read("q") if one.memory_id == "good"] == [2]
    assert [error.row for error in report.errors] == [1, 2, 4]


def test_the_same_grade_with_another_note_is_a_repetition_that_says_what_is_lost(judged):
    rows = (Judgment("q", "good", 2, note="a"), Judgment("q", "good", 2, note="b"))
    report = judged.add(ParsedInput("x", "test", judgments=rows))
    assert report.errors == ()
    assert report.notes == ("row 2 repeats row 1; its time and note are left out",)


def test_differences_between_judges_of_one_file_are_no_conflict_with_the_store(judged):
    rows = (Judgment("q", "good", 2, "Bo"), Judgment("q", "good", 0, "Cy"))
    assert judged.add(ParsedInput("x", "test", judgments=rows)).notes == ()
    report = judged.add(ParsedInput("y", "test", judgments=(Judgment("q", "good", 3, "Bo"),)))
    assert report.notes == (
        "row 1: grade: Bo says 3 of q good, in the store: Cy 0; all are kept",
        "judgment q / good by Bo: grade 2 (from x) replaced by 3",
    )


def test_a_label_given_here_is_told_against_other_rows_of_the_file_too(judged):
    rows = (Judgment("q", "theirs", 2, "Bo"), Judgment("q", "theirs", 3, "Ann"))  # Ann said 0 here, which is kept
    report = judged.add(ParsedInput("x", "test", judgments=rows))
    assert report.notes == ("row 1: grade: Bo says 2 of q theirs, in the store: Ann 0; all are kept",)
    assert [(error.row, error.reason) for error in report.errors] == [
        (2, "Ann gave q theirs grade 0 here, which is kept")
    ]


def test_many_differences_are_counted_after_the_first_twenty(judged):
    many = tuple(Memory(f"m{n}", "text") for n in range(25))
    judged.add(ParsedInput("m", "test", memories=many))
    judged.add(ParsedInput("x", "test", judgments=tuple(Judgment("q", one.id, 1, "Bo") for one in many)))
    report = judged.add(ParsedInput("y", "test", judgments=tuple(Judgment("q", one.id, 2, "Cy") for one in many)))
    assert len(report.notes) == 21
    assert report.notes[-1] == "5 more grades differ from those of other judges"


KNOWN = {
    "q1": "how do releases reach the cluster",
    "q2": "-no-cache image build",
    "q3": "café menu",
    "q4": "C++ or Rust?",
}
THREE = tuple(Memory(name, name) for name in ("m1", "m2", "m3"))


@pytest.fixture
def asked(tmp_path):
    with Store.open(tmp_path / "store") as opened:
        queries = tuple(Query(qid, words) for qid, words in KNOWN.items())
        opened.add(ParsedInput("base.jsonl", "t", memories=THREE, queries=queries))
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
def test_words_that_are_near_a_known_query_are_taken_for_it_and_a_note_names_the_pair(asked, tmp_path, words, qid):
    parsed = ratings(tmp_path, f'"{words}",m1,2')
    words = parsed.queries[0].query
    if same_words(words) == KNOWN[qid]:
        return  # a guard of the table, taken off by its reader
    report = asked.add(parsed)
    assert [(each.qid, each.grade) for each in asked.judgments.read()] == [(qid, 2)]
    assert report.queries == RowCounts() and report.errors == ()
    [note] = report.notes
    assert repr(words) in note and f"is taken for {qid}, {KNOWN[qid]!r}" in note and "--match exact" in note


@pytest.mark.parametrize("words", [" how do releases reach the cluster ", "cafe\u0301 menu", "  -no-cache image build"])
def test_blanks_around_guards_and_another_unicode_form_are_the_same_words(asked, tmp_path, words):
    report = asked.add(ratings(tmp_path, f'"{words}",m1,2'), options=ImportOptions(match="exact"))
    assert report.queries == RowCounts() and report.notes == () and len(asked.judgments.read()) == 1


def test_exact_keeps_near_words_apart_and_says_so(asked, tmp_path):
    report = asked.add(ratings(tmp_path, "Café Menu,m1,2"), options=ImportOptions(match="exact"))
    assert report.queries == RowCounts(added=1)
    assert "'Café Menu' is a new query, though q3, 'café menu', differs only" in report.notes[0]
    assert asked.judgments.read()[0].qid not in KNOWN


def test_two_near_queries_are_not_guessed_between(asked, tmp_path):
    asked.add(ParsedInput("more.jsonl", "t", queries=(Query("q5", "Café menu?"),)))
    report = asked.add(ratings(tmp_path, "CAFÉ MENU,m1,2"))
    assert report.notes == ("'CAFÉ MENU' is a new query: q3, q5 differ from it only by case, blanks or marks",)
    assert asked.judgments.read()[0].qid not in (*KNOWN, "q5")
    # Words that one of them has to the letter are no question.
    assert asked.add(ratings(tmp_path, "café menu,m1,2", name="b.csv")).notes == ()
    assert {one.qid for one in asked.judgments.read()} >= {"q3"}


def test_of_queries_with_the_same_words_the_one_of_the_imports_set_is_meant(asked, tmp_path):
    asked.add(ParsedInput("other.jsonl", "t", queries=(Query("x1", KNOWN["q1"], "shop"),)))
    parsed = ratings(tmp_path, f"{KNOWN['q1']},m1,2")
    refused = asked.add(parsed)
    assert asked.judgments.read() == [] and refused.queries == RowCounts()
    assert [(error.row, error.field) for error in refused.errors] == [(2, "query")]
    assert "the queries q1, x1 have these words: --query-set" in refused.errors[0].reason
    assert asked.add(parsed, options=ImportOptions("other")).errors == ()
    assert [one.qid for one in asked.judgments.read()] == ["x1"]


def test_no_query_is_made_for_judgments_that_failed(asked, tmp_path):
    rows = ["gone,mX,2", "off,m1,9", "both,mX,1", "both,m1,1", "listed,m1,", "bad,m2,high"]
    report = asked.add(ratings(tmp_path, *rows))
    assert {query.query for query in asked.queries.read()} - {*KNOWN.values()} == {"both", "listed"}
    assert [(error.row, error.field) for error in report.errors] == [
        (2, "docid"),
        (3, "rating"),
        (4, "docid"),
        (7, "rating"),
    ]
    assert report.errors[1].reason.endswith(
        "grade 9 is not on the scale of query set case, which has 0 to 3; --scale 0..9 --query-set case gives it this grade"
    )
    taken = asked.add(ratings(tmp_path, *rows), options=ImportOptions(grades={"high": 3, "9": 3}))
    assert {query.query for query in asked.queries.read()} - {*KNOWN.values()} == {"both", "listed", "off", "bad"}
    assert taken.notes[1] == "by --grade: high is grade 3 (1 row), 9 is grade 3 (1 row)"


def test_near_words_ignore_only_case_blanks_guards_and_final_marks():
    assert near_words("???") == "???" and near_words("a?b") != near_words("ab")
    assert near_words("don't") != near_words("dont") and near_words("- list") != near_words("list")
    assert near_words("どこ。") == near_words("どこ")


def test_words_beside_ids_find_the_query_that_the_store_has_under_another_id(asked, tmp_path):
    path = tmp_path / "both.csv"
    path.write_text(
        f"qid,query,docno,label\n1,{KNOWN['q1']},m1,2\n2,brand new,m2,1\nq3,other words,m1,1\nq4,c++ or rust,m3,3\n"
    )
    report = asked.add(read(path))
    judged = [(one.qid, one.memory_id, one.grade) for one in asked.judgments.read()]
    assert judged == [("2", "m2", 1), ("q1", "m1", 2), ("q4", "m3", 3)]
    assert [query.qid for query in asked.queries.with_words("brand new")] == ["2"]
    [error] = report.errors
    assert (error.row, error.field, error.reason) == (4, "qid", "query q3 of the store has other words, 'café menu'")


def test_words_in_json_lines_need_no_id(asked, tmp_path):
    path = tmp_path / "judged.jsonl"
    path.write_text(
        '{"query": "café menu", "doc_id": "m1", "relevance": 2}\n{"query": "new", "doc_id": "m2", "relevance": 0.5}\n'
    )
    assert [error.row for error in asked.add(read(path)).errors] == [2]
    assert [one.qid for one in asked.judgments.read()] == ["q3"] and not asked.queries.with_words("new")
    assert asked.add(read(path), options=ImportOptions(grades={"0.5": 1})).errors == ()
    assert len(asked.queries.with_words("new")) == 1


def test_ids_that_the_store_does_not_have_come_with_the_way_that_works(asked, tmp_path):
    path = tmp_path / "quepid_trec.txt"
    path.write_text("\n\n1 0 m1 3.0\n\n1 0 m2 0.0\n\n2 0 m2 2.0\n")
    report = asked.add(read(path))
    assert [error.reason for error in report.errors] == [
        f"no query '{n}' in the store; import it first" for n in (1, 1, 2)
    ]
    assert report.notes[0].startswith("the store does not have 2 queries of 3 judgments, such as 1, 2: import")


def test_a_query_whose_words_were_edited_here_keeps_them(asked, tmp_path):
    asked.add(ratings(tmp_path, "teh menu,m1,2"))
    [known] = asked.queries.with_words("teh menu")
    asked.query_sets.add("case", Query(known.qid, "the menu"), "edit")
    assert asked.add(ratings(tmp_path, "teh menu,m2,1")).queries == RowCounts()
    assert [query.query for query in asked.queries.read() if query.qid == known.qid] == ["the menu"]
    assert len(asked.judgments.read(known.qid)) == 2


def test_pairs_that_a_file_lists_without_a_judgment_become_a_queue_where_one_is_wanted(asked, tmp_path):
    path = tmp_path / "book.csv"
    path.write_text(f"query,docid\n{KNOWN['q1']}?,m1\nnew,m2\nnew,gone\n")
    parsed = read(path)
    report = asked.add(parsed)
    assert (
        "pairs without a judgment: 2; left out: 1 pair of a memory or query that the store does not have; --queue NAME"
        in report.notes[-1]
    )
    assert report.queries == RowCounts(added=1, unchanged=1) and asked.queues.read() == []
    once = ImportOptions(queue="mine", when=datetime.now(UTC))
    assert asked.add(ratings(tmp_path, "new,m3,"), options=once).queue == "mine"  # another file of the same import
    report = asked.add(parsed, options=once)
    assert report.queue == "mine" and "labelling queue mine: 2 pairs" in report.notes[-1]
    [new] = asked.queries.with_words("new")
    assert set(asked.queues.pairs("mine")) == {("q1", "m1"), (new.qid, "m2"), (new.qid, "m3")}
    with pytest.raises(InputError, match="there is a queue mine already"):
        asked.add(parsed, options=ImportOptions(queue="mine"))


def test_an_id_in_the_column_of_words_makes_no_query(asked, tmp_path):
    report = asked.add(ratings(tmp_path, "q1,m1,2", "q2,,", "how are you,m1,1"))
    assert [error.reason for error in report.errors] == [
        "'q1' is the id of a query, 'how do releases reach the cluster', and no words: call the column qid"
    ]
    assert report.notes[-1].startswith("'q2' is the id of a query") and report.queries.added == 1


def test_rows_of_ids_without_a_grade_are_pairs_to_be_judged_and_no_error(asked, tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_text("qid,docno,label\nq1,m1,2\nq1,m2,\nq9,m2,\n,m1,\n")
    report = asked.add(read(path), options=ImportOptions(queue="left"))
    assert [(error.row, error.field) for error in report.errors] == [(5, "qid")]
    assert asked.queues.pairs("left") == (("q1", "m2"),) and "left out: 1 pair" in report.notes[-1]


@pytest.mark.parametrize("name", ["cells.csv", "words.csv", "ids.jsonl"])
def test_blanks_around_ids_that_the_store_knows_are_no_part_of_them(asked, tmp_path, name):
    lines = {
        "cells.csv": "qid,docno,label\nq1 , m1, 2\n",
        "words.csv": f"query,docid,rating\n{KNOWN['q1']} , m1, 2\n",
        "ids.jsonl": '{"qid": "q1 ", "docid": "m1\\u00a0", "rating": 2}\n',
    }
    (tmp_path / name).write_text(lines[name])
    report = asked.add(read(tmp_path / name))
    assert (report.errors, report.queries) == ((), RowCounts())
    assert [(each.qid, each.memory_id, each.grade) for each in asked.judgments.read()] == [("q1", "m1", 2)]


def test_judgments_with_the_words_of_their_queries_are_no_queries(asked, tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text(f'{{"qid": "x1", "query": "{KNOWN["q1"]}", "docno": "m1", "label": 2, "judged_at": 1704061531}}\n')
    report = asked.add(read(path))
    [judgment] = asked.judgments.read()
    assert (judgment.qid, judgment.memory_id, judgment.grade) == ("q1", "m1", 2) and report.queries == RowCounts()
    assert judgment.judged_at is not None and judgment.judged_at.year == 2023


def test_a_time_of_a_judgment_that_cannot_be_read_costs_the_time(asked, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("qid,memory_id,grade,judged_at\nq1,m1,2,2024-13-01\nq1,m2,1,2024-05-08\n")
    report = asked.add(read(path))
    assert [(judgment.grade, judgment.judged_at is None) for judgment in asked.judgments.read()] == [
        (2, True),
        (1, False),
    ]
    assert [(error.row, error.field, error.taken) for error in report.errors] == [(2, "judged_at", True)]


ENVELOPE = 'Message: {{"id": "{0}", "sender": "U0{0}", "channel": "#ops", "thread": null, "mentioned": true}}\nFrom: ops@acme\n\n'
ASKED = ["which port does the database use", "are the keys in the vault", "say who is on call", "name the release"]


def test_an_import_names_what_its_queries_begin_with(store: Store) -> None:
    queries = tuple(Query(f"q{n}", ENVELOPE.format(7) + text) for n, text in enumerate(ASKED))
    (note,) = store.add(ParsedInput("log.jsonl", "t", queries=queries)).notes
    size = len(ENVELOPE.format(7))
    assert note == (
        f"4 queries begin with the same {size} characters, {ENVELOPE.format(7)[:40] + '…'!r}: if that is the envelope of a message, "
        'take it off, or give what is to be searched as "searched"'
    )


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([ENVELOPE.format(n) + text for n, text in enumerate(ASKED, 1)], ["4 queries begin", "but for numbers"]),
        ([f"{text}\n\n{ENVELOPE.format(7)}" for text in ASKED], ["4 queries end"]),
        ([*(ENVELOPE.format(7) + text for text in ASKED), "how", "what", "why"], ["4 queries begin"]),
        ([ENVELOPE.format(7) + ASKED[0], ENVELOPE.format(7) + ASKED[1]], ["2 queries begin"]),
        ([ENVELOPE.format(7) + ASKED[0], *ASKED], []),
        ([f"what is the port of the {name}" for name in ("database", "cache", "proxy", "queue")], []),
        ([ENVELOPE.format(7) + ASKED[0]] * 3, []),
        ([], []),
    ],
)
def test_only_what_half_of_the_queries_share_is_an_envelope(texts: list[str], said: list[str]) -> None:
    notes = envelope_notes(texts)
    assert len(notes) == bool(said) and all(part in notes[0] for part in said)


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
A, B, C = "abc12345-0000", "abc12345-1111", "def67890-0000"
HOOKED = (Memory(A, "first"), Memory(B, "second"), Memory(C, "third"), Memory("m1", "fourth"))


@pytest.fixture
def filled(store: Store) -> Store:
    store.add(ParsedInput("m", "test", memories=HOOKED))
    return store


def answer(qid, *results, row=1):
    """An answer of (id, score) or (id, score, content)."""
    returned = tuple(Returned(n, *result) for n, result in enumerate(results, 1))
    return RecordedAnswer(row, qid, f"words of {qid}", None, returned, asked_at=NOON)


def logged(*answers, source="logs/hook.jsonl", judgments=(), **extra):
    queries = tuple(Query(one.qid, one.query, one.project, one.asked_at, "log") for one in answers)
    return ParsedInput(source, "test", queries=queries, answers=answers, judgments=judgments, extra=extra)


def kept_of(store, name="hook"):
    return {
        one.qid: [(row.memory_id, row.score, row.content) for row in one.returned]
        for one in store.recorded_answers.read(name)
    }


def test_an_answer_of_another_file_stays_and_a_first_one_is_taken(filled: Store) -> None:
    for source, answer in (("a.jsonl", None), ("b.jsonl", "Gera"), ("c.jsonl", None), ("d.jsonl", "Jena")):
        filled.add(ParsedInput(source, "test", queries=(Query("w", "where?", answer=answer),)))
    assert next(query.answer for query in filled.queries.read() if query.qid == "w") == "Gera"


def test_a_log_becomes_a_query_set_with_its_answers(filled: Store) -> None:
    report = filled.add(logged(answer("q1", (C, 0.5, "third"), ("m1", None)), answer("q2")))
    assert [one.name for one in report.query_sets] == ["hook"]
    assert (report.answers.added, report.errors) == (2, ())
    assert report.notes == ("2 recorded answers with 2 results, 0 ids not in the store",)
    assert kept_of(filled) == {"q2": [], "q1": [(C, 0.5, None), ("m1", None, None)]}
    (_, one) = filled.recorded_answers.read("hook")
    assert (one.query, one.asked_at) == ("words of q1", NOON)
    assert filled.recorded_answers.sets() == {"hook": 2}


@pytest.mark.parametrize(("forced", "kept_of_it", "lines"), [
    (False, [(C, 0.5, None)], ["query 'q1' has other words in the store, so its answer is left out; --replace takes it"]),
    (True, [("m1", None, None)], []),
])  # fmt: skip
def test_an_answer_to_other_words_needs_replace(filled: Store, forced, kept_of_it, lines) -> None:
    filled.add(logged(answer("q1", (C, 0.5))))
    other = logged(replace(answer("q1", ("m1", None)), query="something else"), source="other/hook.jsonl")
    report = filled.add(other, options=ImportOptions(replace=forced))
    assert [error.reason for error in report.errors if error.reason in lines or "answer" in error.reason] == lines
    assert kept_of(filled)["q1"] == kept_of_it


def test_an_id_that_fits_none_or_several_is_reported_by_its_row_and_its_answer_kept(filled: Store) -> None:
    parsed = logged(
        answer("q1", ("def67890", 0.9, "x"), ("abc12345", 0.8, "y"), ("00000000", 0.7, "z"), row=7),
        answer("q2", ("m1", 0.5), (None, 0.25, "fourth"), row=9),
        id_length=8,
        fields={"results": "details"},
    )
    report = filled.add(parsed)
    assert [str(error) for error in report.errors] == [
        f"logs/hook.jsonl:7: details[1].id: 'abc12345' matches 2 memories of the store: {A}, {B}",
        "logs/hook.jsonl:7: details[2].id: no memory begins with '00000000'; the answer is kept with an unmatched result",
    ]
    assert report.notes == (
        "2 recorded answers with 5 results, 2 ids not in the store, 1 without an id, to be found by their texts",
    )
    assert kept_of(filled) == {
        "q1": [(C, 0.9, None), ("abc12345", 0.8, "y"), ("00000000", 0.7, "z")],
        "q2": [("m1", 0.5, None), (None, 0.25, "fourth")],
    }


def test_a_whole_id_is_not_taken_for_the_begin_of_another(filled: Store) -> None:
    report = filled.add(logged(answer("q1", ("abc12345", 0.8), (C, 0.5), ("m", 0.1))))
    assert [error.field for error in report.errors] == ["results[0].id", "results[2].id"]


def test_a_memory_is_meant_by_the_uuid_that_cems_makes_of_its_id_and_by_the_begin_of_that(filled: Store) -> None:
    loaded = str(UUID(hashlib.md5(b"m1").hexdigest()))
    assert filled.add(logged(answer("q1", (loaded, 1.0)))).errors == ()
    assert filled.add(logged(answer("q2", (loaded[:8], 1.0)), source="short", id_length=8)).errors == ()
    assert kept_of(filled) | kept_of(filled, "short") == {"q1": [("m1", 1.0, None)], "q2": [("m1", 1.0, None)]}


def test_a_log_that_has_grown_takes_the_place_of_what_was_read_of_it_before(filled: Store) -> None:
    first, second = answer("q1", (C, 0.5)), answer("q2", ("m1", 0.5))
    other = answer("q9", (C, 0.1))
    filled.add(logged(other, source="other.jsonl"), options=ImportOptions("hook"))
    filled.add(logged(first, second))
    again = filled.add(logged(first, replace(second, returned=()), answer("q3")))
    assert (again.answers.added, again.answers.updated, again.answers.unchanged) == (1, 1, 1)
    assert filled.add(logged(first)).answers.unchanged == 1
    assert kept_of(filled) == {"q9": [(C, 0.1, None)], "q1": [(C, 0.5, None)]}
    assert filled.recorded_answers.read("nowhere") == []


def test_the_failing_ones_stand_first(filled: Store) -> None:
    scored = {"low": 0.1, "high": 0.9, "none": None, "middle": 0.5}
    answers = [answer(qid, (C, score), ("m1", None)) for qid, score in scored.items()]
    filled.add(logged(*answers, answer("empty")))
    assert list(kept_of(filled)) == ["empty", "low", "middle", "high", "none"]


def test_judgments_that_come_with_a_log_are_of_the_memories_it_means(filled: Store) -> None:
    judgments = tuple(Judgment("q1", key, 0, "cems", "model") for key in ("def67890", "abc12345"))
    rows = {"queries": [3], "judgments": [4, 4]}
    parsed = logged(answer("q1", ("def67890", 0.9), ("abc12345", 0.8)), judgments=judgments, id_length=8, rows=rows)
    report = filled.add(parsed)
    assert [(one.qid, one.memory_id, one.grade) for one in filled.judgments.read()] == [("q1", C, 0)]
    assert len(report.errors) == 1
