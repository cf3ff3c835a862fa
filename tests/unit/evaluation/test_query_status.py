"""Found, low, missed or without an answer: how a judged query fares (evaluation/query_status.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.evaluation.grades import K, QueryStatus, query_statuses, relevant
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant
from cems_workbench.records import Memory, Query

RANKED_AS_LISTED = with_values(
    PipelineConfig(), {"adjust.priority": False, "adjust.time_decay.mode": "none", "filter.min_score": None}
)
RESULTS = "abcdefgh"


def evidence(results: Sequence[str] = RESULTS) -> Evidence:
    hits = tuple(Hit(key, 0.9 - 0.01 * i) for i, key in enumerate(results))
    return Evidence(
        query="q",
        memories={key: Memory(key, f"text {key}") for key in results},
        variants=(Variant("q"),),
        lists=(RankedList("vector:0", "vector", 0, hits),),
    )


def status(grades: Mapping[str, int], results: Sequence[str] = RESULTS, relevant_from: int = 2) -> QueryStatus:
    (row,) = query_statuses(
        [Query("q1", "q")], [evidence(results)], {"q1": grades}, RANKED_AS_LISTED, {"q1": relevant_from}
    )
    return row


def said(row: QueryStatus) -> tuple[str, int | None, str | None]:
    return row.status, row.best_rank, row.best_id


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        ({"a": 3}, ("found", 1, "a")),
        ({"c": 3, "d": 2}, ("found", 3, "c")),
        ({"b": 3, "c": 3}, ("found", 2, "b")),
        ({"e": 2}, ("found", 5, "e")),
        ({"a": 2, "b": 3}, ("low", 1, "a")),
        ({"a": 0, "b": 3}, ("low", 2, "b")),
        ({"a": 1, "b": 3}, ("low", 2, "b")),
        ({"a": 2, "absent": 3}, ("low", 1, "a")),
        ({"f": 3}, ("missed", 6, "f")),
        ({"a": 1, "f": 2}, ("missed", 6, "f")),
        ({"absent": 3}, ("missed", None, None)),
        ({"a": 0}, ("none known", None, None)),
        ({}, ("none known", None, None)),
    ],
)
def test_statuses(grades: dict[str, int], expected: tuple[str, int | None, str | None]) -> None:
    """Results are a, b, c, ... in this order, and K is 5."""
    assert K == 5
    assert said(status(grades)) == expected


@pytest.mark.parametrize(
    ("relevant_from", "expected"), [(1, ("low", 1, "a")), (2, ("low", 2, "b")), (3, ("missed", 6, "f"))]
)
def test_the_query_set_says_from_which_grade_on_is_relevant(relevant_from, expected):
    grades = {"a": 1, "b": 2, "f": 3}
    assert relevant(grades, relevant_from) == {"f"} | ({"b"} if relevant_from < 3 else set()) | (
        {"a"} if relevant_from < 2 else set()
    )
    assert said(status(grades, relevant_from=relevant_from)) == expected


def test_nothing_found_is_missed() -> None:
    assert said(status({"a": 3}, results="")) == ("missed", None, None)


def test_failing_queries_come_first_then_by_qid() -> None:
    grades: dict[str, dict[str, int]] = {
        "q1": {"a": 3},
        "q2": {},
        "q3": {"a": 2, "b": 3},
        "q4": {"absent": 2},
        "q5": {"a": 3},
        "q0": {"h": 3},
    }
    queries = [Query(qid, "q") for qid in grades]
    rows = query_statuses(queries, [evidence() for _ in queries], grades, RANKED_AS_LISTED, dict.fromkeys(grades, 1))
    assert [(row.query.qid, row.status) for row in rows] == [
        ("q0", "missed"),
        ("q4", "missed"),
        ("q3", "low"),
        ("q1", "found"),
        ("q5", "found"),
        ("q2", "none known"),
    ]


def test_a_query_without_judgments_of_its_own_has_none_known() -> None:
    (row,) = query_statuses([Query("q9", "q")], [evidence()], {"q1": {"a": 3}}, RANKED_AS_LISTED, {"q9": 1})
    assert said(row) == ("none known", None, None)


def test_that_there_is_no_answer_is_said_and_a_relevant_judgment_wins() -> None:
    grades: dict[str, dict[str, int]] = {"q1": {"a": 0}, "q2": {}, "q3": {"a": 3}}
    queries = [Query(qid, "q", answerable=False) for qid in grades]
    rows = query_statuses(queries, [evidence() for _ in queries], grades, RANKED_AS_LISTED, dict.fromkeys(grades, 1))
    assert [(row.query.qid, row.status) for row in rows] == [("q3", "found"), ("q1", "no answer"), ("q2", "no answer")]


def test_the_config_decides_what_is_in_the_results() -> None:
    two = with_values(RANKED_AS_LISTED, {"assembly.limit": 2})
    (row,) = query_statuses([Query("q1", "q")], [evidence()], {"q1": {"c": 3}}, two, {"q1": 1})
    assert said(row) == ("missed", None, None)


def test_no_queries_no_rows() -> None:
    assert query_statuses([], [], {}, PipelineConfig(), {}) == []
