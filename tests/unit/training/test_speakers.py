"""Texts as somebody's turn of a conversation, and questions that name who spoke."""

from __future__ import annotations

import random

import pytest

from training import speakers


def test_the_person_of_a_question_gets_the_speakers_name() -> None:
    assert (
        speakers.naming("What did the reviewer buy for the user's desk?", "Mia") == "What did Mia buy for Mia's desk?"
    )
    assert not speakers.names_a_person("Which users are named?")


def test_a_turn_begins_with_its_speaker_and_keeps_what_was_said() -> None:
    for seed in range(30):
        turn = speakers.said("I moved to Porto.", "Mia", "Theo", random.Random(seed))
        assert turn.startswith("Mia: ") and "I moved to Porto." in turn


def test_ones_own_question_says_i() -> None:
    asked = "Where does the reviewer keep the user's bike, and is this person glad?"
    assert speakers.in_first_person(asked) == "Where do I keep my bike, and am I glad?"


def test_asking_back_is_the_other_persons_turn_and_speaks_to_the_first() -> None:
    turn = speakers.asked_back("Where does Mia keep her bike?", "Mia", "Theo", random.Random(0))
    assert turn.startswith("Theo: ")
    assert "do you keep your bike" in turn


def test_a_reaction_is_the_other_persons_and_holds_a_word_of_the_question_or_none() -> None:
    turns = {
        speakers.reaction("Where does Mia keep the bike?", "Mia", "Theo", random.Random(seed)) for seed in range(40)
    }
    assert all(turn.startswith("Theo: ") for turn in turns)
    assert any("bike" in turn or "keep" in turn for turn in turns)


@pytest.mark.parametrize(
    ("statement", "part"),
    [
        ("I bought a new kettle last week.", "Mia buy a new kettle"),
        ("Yesterday I finally visited my sister in Lyon.", "Mia visit their sister in Lyon"),
    ],
)
def test_a_first_person_statement_is_turned_into_a_question(statement: str, part: str) -> None:
    made = {speakers.question_from(statement, "Mia", random.Random(seed)) for seed in range(30)}
    assert any(question and part in question for question in made)
    assert all(question and question.endswith("?") for question in made)


@pytest.mark.parametrize("statement", ["The kettle is new.", "I am glad.", "I bought it.", ""])
def test_what_states_no_deed_makes_no_question(statement: str) -> None:
    assert speakers.question_from(statement, "Mia", random.Random(0)) is None
