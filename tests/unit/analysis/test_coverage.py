"""Whether a memory covers what a turn says: by rules alone, on texts written for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cems_workbench.records import Memory
from workbench_transcripts.coverage import Pair, Reading, compared, normal, point_of
from workbench_transcripts.ways import _decided

READING = Reading(lambda _: 3.0, speakers=frozenset({"mira", "jo"}))
DAY = datetime(2026, 5, 4, 10, tzinfo=UTC)
TURN = "Mira: Hey Jo! I signed the lease for the flat in Pankow yesterday, the rent is 940 euros. How is your knee?"
DATED = ("When did Mira sign the lease?", "3 May 2026")
RENT = ("What is the rent of Mira's flat?", "940 euros")
WHERE = ("Where is Mira's new flat?", "Pankow")


def verdict(asked: tuple[str, str], content: str, cosine: float, days: int = 0, turn: str = TURN) -> str:
    point = point_of(Memory("t", turn, author="Mira", created_at=DAY), *asked, READING)
    memory = Memory("m", content, created_at=DAY + timedelta(days=days))
    return compared(point, memory, cosine, READING).coverage


@pytest.mark.parametrize(
    ("asked", "content", "cosine", "right"),
    [
        (RENT, TURN, 1.0, "covers"),
        (RENT, "Mira signed the lease for the flat in Pankow; the rent is 940 euros.", 0.8, "covers"),
        (RENT, TURN.replace("940", "490"), 0.99, "says otherwise"),
        (RENT, TURN.replace("is 940", "is not 940"), 0.99, "says otherwise"),
        (WHERE, TURN.replace("Pankow", "Wedding"), 0.95, "says otherwise"),
        (RENT, "Mira signed the lease for a flat in Pankow.", 0.8, "left out"),
        (DATED, "Mira signed the lease for a flat in Pankow recently; the rent is high.", 0.8, "left out"),
        (RENT, "Jo's knee hurts after the run.", 0.1, "no"),
        (
            RENT,
            "Never mind. I signed the lease for the flat in Pankow yesterday, the rent is 940 euros.",
            0.9,
            "covers",
        ),
        (RENT, "What is the rent of your flat in Pankow, 940 euros?", 0.9, "left out"),
        (
            RENT,
            "We talked. I never signed the lease for the flat in Pankow, the rent is 940 euros.",
            0.9,
            "says otherwise",
        ),
        (RENT, "Jo: The flat in Pankow at a rent of 940 euros sounds great.", 0.9, "cannot tell"),
        (RENT, TURN.replace("Mira:", "Jo:"), 0.95, "says otherwise"),
        (RENT, "Jo: I pay a rent of 940 euros.", 0.8, "no"),
        (RENT, "Pankow flat: the rent is 940 euros, Mira signed the lease.", 0.8, "covers"),
    ],
)
def test_coverage_is_told_from_words_values_and_negations(
    asked: tuple[str, str], content: str, cosine: float, right: str
) -> None:
    assert verdict(asked, content, cosine) == right


LONG = "Mira: Here are tips. The fight in Cobra Kai is in a style of karate. Cobra Kai has four seasons. Karate is fun."
STYLE = ("What style has the fight in Cobra Kai?", "karate")


@pytest.mark.parametrize(
    ("gone", "instead", "right"),
    [("fight in Cobra", "fight in Martini", "says otherwise"), ("style of", "kind of", "covers")],
)
def test_a_copy_of_a_long_turn_with_one_word_changed_is_compared_with_it_word_by_word(
    gone: str, instead: str, right: str
) -> None:
    assert verdict(STYLE, LONG.replace(gone, instead), 0.95, turn=LONG) == right


def test_forms_of_an_irregular_verb_are_one_term() -> None:
    assert READING.terms("we won it and it paid off") == READING.terms("We win it and it pays off.")


def test_the_cross_encoder_decides_what_words_leave_open_by_how_far_a_memory_is_from_its_turn() -> None:
    open_ = Pair("cannot tell", 0.5, 1.0, 0.6, "", weak=True, answered=True)
    decided = [_decided(open_, beside).coverage for beside in (0.5, -1.0, -2.5)]
    assert decided == ["covers", "cannot tell", "no"]
    assert _decided(open_._replace(stranger=True), 0.5).coverage == "cannot tell"
    assert _decided(open_._replace(coverage="covers"), -1.0).coverage == "cannot tell"


def test_a_day_told_from_another_day_is_another_time() -> None:
    memory = "Mira signed the lease of the other flat, in Pankow, yesterday."
    assert verdict(DATED, memory, 0.9) == "covers"
    assert verdict(DATED, memory, 0.9, days=30) == "left out"


@pytest.mark.parametrize("speaker", ["Mira", "user", "assistant"])
def test_who_speaks_is_no_word_of_a_turn(speaker: str) -> None:
    point = point_of(Memory("t", f"{speaker}: My boat is called Alba."), "", "", READING)
    assert point.text == "My boat is called Alba."


@pytest.mark.parametrize(
    ("turn", "memory"),
    [
        ("My salary is 5,000 euros now.", "Mira has a salary of 5000 euros now."),
        ("We have two kids.", "Mira has 2 kids."),
        ("The train leaves at 3 pm.", "Mira's train leaves at 15:00."),
        ("It costs 20k dollars.", "It costs $20,000 dollars."),
        ("The film took 3 hours and 50 minutes.", "The film took 3h50m."),
    ],
)
def test_numbers_and_times_are_compared_in_one_form(turn: str, memory: str) -> None:
    answer = normal(turn).rstrip(".").split(" is ")[-1].split(" has ")[-1]
    assert verdict(("What is it?", answer), memory, 0.8, turn=f"Mira: {turn}") == "covers"
