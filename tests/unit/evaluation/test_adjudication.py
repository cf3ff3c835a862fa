"""Conflicts: majority, strictest, or decided by name, above the raw labels and apart from them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.evaluation.labelling.agreement import Verdict, adjudicate, settled
from cems_workbench.records import Judgment
from cems_workbench.store import Decision

LABELS = [
    Judgment("q", "a", 2, "Ann"),
    Judgment("q", "a", 2, "Bo"),
    Judgment("q", "b", 3, "Ann"),
    Judgment("q", "b", 3, "Bo"),
    Judgment("q", "b", 0, "Cy"),
    Judgment("q", "c", 1, "Ann"),
    Judgment("q", "c", 2, "Bo"),
]


def grades(rule, decisions=()):
    return {one.memory_id: (one.grade, one.how) for one in adjudicate(LABELS, rule, decisions)}


def decided(memory_id, grade):
    return Decision("q", memory_id, grade, "Dee", None, datetime(2026, 1, 1, tzinfo=UTC))


def test_the_majority_is_more_than_half_and_a_tie_stays_open():
    assert grades("majority") == {"a": (2, "agreed"), "b": (3, "majority"), "c": (None, "open")}


def test_the_strictest_is_the_lowest_grade():
    assert grades("strictest") == {"a": (2, "agreed"), "b": (0, "strictest"), "c": (1, "strictest")}


def test_under_decided_every_conflict_waits_for_a_person():
    assert grades("decided") == {"a": (2, "agreed"), "b": (None, "open"), "c": (None, "open")}


def test_a_persons_decision_stands_above_every_rule_and_above_agreement():
    for rule in ("majority", "strictest", "decided"):
        found = grades(rule, [decided("a", 0), decided("c", 3), decided("z", 1), decided("b", None)])
        assert (found["a"], found["c"], found["z"]) == ((0, "decided"), (3, "decided"), (1, "decided"))
        assert found["b"] == grades(rule)["b"]


def test_verdicts_become_one_judgment_per_pair_and_open_ones_none():
    verdicts = adjudicate(LABELS, "majority", [decided("c", 1)])
    assert settled(verdicts) == [
        Judgment("q", "a", 2, "agreed"),
        Judgment("q", "b", 3, "majority"),
        Judgment("q", "c", 1, "Dee"),
    ]
    assert verdicts[2] == Verdict("q", "c", 1, "decided", {"Ann": 1, "Bo": 2}, "Dee")
    assert settled(adjudicate(LABELS, "decided")) == [Judgment("q", "a", 2, "agreed")]


def test_an_unknown_rule_is_refused():
    with pytest.raises(InputError, match="majority, strictest, decided"):
        adjudicate(LABELS, "loudest")
