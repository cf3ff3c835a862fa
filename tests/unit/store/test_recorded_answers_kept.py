"""Recorded answers in the store: which memories they mean, what is reported, what another import of a log changes, and their order."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RecordedAnswer, Returned
from cems_workbench.store import ImportOptions, Store

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
A, B, C = "abc12345-0000", "abc12345-1111", "def67890-0000"
MEMORIES = (Memory(A, "first"), Memory(B, "second"), Memory(C, "third"), Memory("m1", "fourth"))


@pytest.fixture
def filled(store: Store) -> Store:
    store.add(ParsedInput("m", "test", memories=MEMORIES))
    return store


def answer(qid, *results, row=1):
    """An answer of (id, score) or (id, score, content)."""
    returned = tuple(Returned(n, *result) for n, result in enumerate(results, 1))
    return RecordedAnswer(row, qid, f"words of {qid}", None, returned, asked_at=NOON)


def log(*answers, source="logs/hook.jsonl", judgments=(), **extra):
    queries = tuple(Query(one.qid, one.query, one.project, one.asked_at, "log") for one in answers)
    return ParsedInput(source, "test", queries=queries, answers=answers, judgments=judgments, extra=extra)


def kept(store, name="hook"):
    return {
        one.qid: [(row.memory_id, row.score, row.content) for row in one.returned]
        for one in store.recorded_answers.read(name)
    }


def test_a_log_becomes_a_query_set_with_its_answers(filled: Store) -> None:
    report = filled.add(log(answer("q1", (C, 0.5, "third"), ("m1", None)), answer("q2")))
    assert [one.name for one in report.query_sets] == ["hook"]
    assert (report.answers.added, report.errors) == (2, ())
    assert report.notes == ("2 recorded answers with 2 results, 0 ids not in the store",)
    assert kept(filled) == {"q2": [], "q1": [(C, 0.5, None), ("m1", None, None)]}
    (_, one) = filled.recorded_answers.read("hook")
    assert (one.query, one.asked_at) == ("words of q1", NOON)
    assert filled.recorded_answers.sets() == {"hook": 2}


@pytest.mark.parametrize(("forced", "kept_of_it", "lines"), [
    (False, [(C, 0.5, None)], ["query 'q1' has other words in the store, so its answer is left out; --replace takes it"]),
    (True, [("m1", None, None)], []),
])  # fmt: skip
def test_an_answer_to_other_words_needs_replace(filled: Store, forced, kept_of_it, lines) -> None:
    filled.add(log(answer("q1", (C, 0.5))))
    other = log(replace(answer("q1", ("m1", None)), query="something else"), source="other/hook.jsonl")
    report = filled.add(other, options=ImportOptions(replace=forced))
    assert [error.reason for error in report.errors if error.reason in lines or "answer" in error.reason] == lines
    assert kept(filled)["q1"] == kept_of_it


def test_an_id_that_fits_none_or_several_is_reported_by_its_row_and_its_answer_kept(filled: Store) -> None:
    parsed = log(
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
    assert kept(filled) == {
        "q1": [(C, 0.9, None), ("abc12345", 0.8, "y"), ("00000000", 0.7, "z")],
        "q2": [("m1", 0.5, None), (None, 0.25, "fourth")],
    }


def test_a_whole_id_is_not_taken_for_the_begin_of_another(filled: Store) -> None:
    report = filled.add(log(answer("q1", ("abc12345", 0.8), (C, 0.5), ("m", 0.1))))
    assert [error.field for error in report.errors] == ["results[0].id", "results[2].id"]


def test_a_memory_is_meant_by_the_uuid_that_cems_makes_of_its_id_and_by_the_begin_of_that(filled: Store) -> None:
    loaded = str(UUID(hashlib.md5(b"m1").hexdigest()))
    assert filled.add(log(answer("q1", (loaded, 1.0)))).errors == ()
    assert filled.add(log(answer("q2", (loaded[:8], 1.0)), source="short", id_length=8)).errors == ()
    assert kept(filled) | kept(filled, "short") == {"q1": [("m1", 1.0, None)], "q2": [("m1", 1.0, None)]}


def test_a_log_that_has_grown_takes_the_place_of_what_was_read_of_it_before(filled: Store) -> None:
    first, second = answer("q1", (C, 0.5)), answer("q2", ("m1", 0.5))
    other = answer("q9", (C, 0.1))
    filled.add(log(other, source="other.jsonl"), options=ImportOptions("hook"))
    filled.add(log(first, second))
    again = filled.add(log(first, replace(second, returned=()), answer("q3")))
    assert (again.answers.added, again.answers.updated, again.answers.unchanged) == (1, 1, 1)
    assert filled.add(log(first)).answers.unchanged == 1
    assert kept(filled) == {"q9": [(C, 0.1, None)], "q1": [(C, 0.5, None)]}
    assert filled.recorded_answers.read("nowhere") == []


def test_the_failing_ones_stand_first(filled: Store) -> None:
    scored = {"low": 0.1, "high": 0.9, "none": None, "middle": 0.5}
    answers = [answer(qid, (C, score), ("m1", None)) for qid, score in scored.items()]
    filled.add(log(*answers, answer("empty")))
    assert list(kept(filled)) == ["empty", "low", "middle", "high", "none"]


def test_judgments_that_come_with_a_log_are_of_the_memories_it_means(filled: Store) -> None:
    judgments = tuple(Judgment("q1", key, 0, "cems", "model") for key in ("def67890", "abc12345"))
    rows = {"queries": [3], "judgments": [4, 4]}
    parsed = log(answer("q1", ("def67890", 0.9), ("abc12345", 0.8)), judgments=judgments, id_length=8, rows=rows)
    report = filled.add(parsed)
    assert [(one.qid, one.memory_id, one.grade) for one in filled.judgments.read()] == [("q1", C, 0)]
    assert len(report.errors) == 1
