"""Sizes of compressed values, as PostgreSQL 18 recorded them (pg_column_size less the header of 8)."""

from __future__ import annotations

import random

import pytest

from pg_text_search.heap import compressed_size

PROSE = "The retry budget of worker {} is {} seconds and the queue drains every {} minutes."


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("x" * 5000, 61),
        ("abcdefgh " * 60, 17),
        ("w7 " * 100, 10),
        (" ".join(PROSE.format(i, i * 7 % 60, i * 3 % 20) for i in range(8)), 179),
        (" ".join(PROSE.format(i, i * 7 % 60, i * 3 % 20) for i in range(30)), 388),
        (" ".join(PROSE.format(i * i, i * 7 % 60, i * 3 % 20) for i in range(60)), 641),
        (" ".join(f"w{i}" for i in range(450)), 1509),
    ],
    ids=["a run", "a phrase", "a word", "8 sentences", "30 sentences", "60 sentences", "numbered words"],
)
def test_size_is_the_servers(text: str, size: int) -> None:
    assert compressed_size(text.encode()) == size


def test_value_that_saves_less_than_a_quarter_stays_as_it_is() -> None:
    assert compressed_size(" ".join(f"w{i}" for i in range(200)).encode()) is None


def test_value_without_a_repetition_in_the_first_kilobyte_stays_as_it_is() -> None:
    random_ = random.Random(3)
    different = bytes(random_.randrange(33, 127) for _ in range(950))
    assert compressed_size(different[:900] + b"x" * 9000) is not None
    assert compressed_size(different + b"x" * 9000) is None


def test_short_value_stays_as_it_is() -> None:
    assert compressed_size(b"x" * 31) is None
    assert compressed_size(b"x" * 32) is not None


def test_work_ends_once_enough_is_out() -> None:
    numbered = " ".join(f"w{i}" for i in range(450)).encode()
    assert compressed_size(numbered, enough=1509) == 1509
    partly = compressed_size(numbered, enough=700)
    assert partly is not None
    assert 700 < partly < 720
