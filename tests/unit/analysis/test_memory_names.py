"""Sentences for people name memories by their first words."""

from __future__ import annotations

from cems_workbench.analysis.memory_names import in_words
from cems_workbench.records import Memory

MEMORIES = {
    "7c9e6679-7425-40de-944b-e07fc1f90ae7": Memory("7c9e6679-7425-40de-944b-e07fc1f90ae7", "We moved to\nBerlin."),
    "notes/move.md": Memory("notes/move.md", "The move is on.", title="Move"),
    "m1": Memory("m1", "Tea"),
    "m2": Memory("m2", "Tea"),
    "house": Memory("house", "A key of letters is a word too."),
}


def test_ids_become_first_words_and_ids_of_letters_stay() -> None:
    said = "7c9e6679-7425-40de-944b-e07fc1f90ae7 supersedes notes/move.md, which is 1st: house, m12."
    assert in_words(said, MEMORIES) == "“We moved to Berlin.” supersedes “Move”, which is 1st: house, m12."


def test_memories_that_begin_alike_keep_their_ids() -> None:
    assert in_words("m1 supersedes m2.", MEMORIES) == "“Tea” (m1) supersedes “Tea” (m2)."


def test_figures_and_values_of_parameters_are_no_ids() -> None:
    memories = {key: Memory(key, "Tea") for key in ("2", "0.5", "v1")}
    said = "It is 2nd of 2, by 0.5; set lists.model=v1."
    assert in_words(said, memories) == said
