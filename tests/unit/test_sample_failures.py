"""When an answer to a judged sample query counts as wrong."""

from __future__ import annotations

from benchmarks.sample_failures import replacements, wrong
from cems_workbench.records import Relation

RELATIONS = [
    Relation("new", "old", "supersedes"),
    Relation("twin", "copy", "duplicates"),
    Relation("a", "b", "related"),
]
REPLACED = replacements(RELATIONS)


def test_what_supersedes_replaces_one_way_and_a_duplicate_both_ways() -> None:
    assert replacements(RELATIONS) == {"old": {"new"}, "copy": {"twin"}, "twin": {"copy"}}


def test_a_helpful_memory_among_the_first_five_makes_an_answer_right() -> None:
    grades = {"help": 2, "about": 1}
    assert not wrong(["x", "y", "z", "about", "help"], grades, REPLACED)
    assert wrong(["x", "y", "z", "w", "about", "help"], grades, REPLACED)


def test_an_answer_below_what_it_supersedes_is_wrong() -> None:
    grades = {"new": 3, "old": 0}
    assert wrong(["old", "new"], grades, REPLACED)
    assert not wrong(["new", "old"], grades, REPLACED)


def test_an_answer_below_a_duplicate_that_answers_too_is_right() -> None:
    assert not wrong(["copy", "twin"], {"twin": 3, "copy": 3}, REPLACED)
    assert wrong(["copy", "twin"], {"twin": 3, "copy": 0}, REPLACED)
