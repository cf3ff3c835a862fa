"""Where a chunk stands in a memory, and where a model stopped reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.analysis.text_evidence import Room, chunk_place, read_until
from cems_workbench.pipeline.scoring import best_chunk


def words(tokens: int) -> Room:
    """A model that counts every word as one token."""
    return Room(tokens, lambda text: len(text.split()))


@pytest.mark.parametrize("selection", ["seed_overlap", "term_overlap", "head"])
@pytest.mark.parametrize("size", [20, 26, 27, 28, 45, 300])
def test_a_chunk_is_found_where_it_was_cut(selection: str, size: int) -> None:
    content = "The first sentence is here. We roll back the deploy at once. Nothing else."
    chunk = best_chunk(content, "roll back a deploy", size, selection)
    place = chunk_place(content, chunk)
    assert place is not None
    assert chunk.startswith(content[place[0] : place[1]])
    assert chunk[place[1] - place[0] :] in ("", ".", ". ")


def test_a_chunk_of_another_text_has_no_place() -> None:
    assert chunk_place("what it says now", "what it said") is None


def test_an_end_that_was_put_there_is_no_part_of_the_place() -> None:
    assert chunk_place("one. two", "two. ") == (5, 8)
    assert chunk_place("one. two", "one. two.") == (0, 8)


def test_the_cut_is_the_end_of_the_last_word_that_fits() -> None:
    text = "one two  three four"
    assert read_until(text, words(3)) == len("one two  three")
    assert read_until(text, words(4)) is None
    assert read_until(text, words(0)) == 0


def test_a_word_of_several_tokens_counts_as_such() -> None:
    room = Room(5, lambda text: len(text.replace(" ", "")))
    assert read_until("ab cd ef", room) == len("ab cd")


@given(st.lists(st.text("abc", min_size=1, max_size=6), max_size=40), st.integers(0, 45))
def test_what_is_read_fits_and_one_word_more_does_not(listed: list[str], tokens: int) -> None:
    text, room = " ".join(listed), words(tokens)
    cut = read_until(text, room)
    if cut is None:
        assert len(listed) <= tokens
    else:
        assert room.count(text[:cut]) == tokens
