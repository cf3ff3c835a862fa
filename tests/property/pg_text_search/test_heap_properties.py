"""What holds for the physical order of any rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pg_text_search.heap import MAX_ROW_BYTES, HeapRow, compressed_size, order_of_lengths, row_length

LENGTHS = st.lists(st.integers(93, MAX_ROW_BYTES) | st.sampled_from([200, 1700, 1900]), max_size=120)


@given(LENGTHS)
def test_order_is_a_permutation(lengths: list[int]) -> None:
    assert sorted(order_of_lengths(lengths)) == list(range(len(lengths)))


@given(st.integers(93, MAX_ROW_BYTES), st.integers(0, 200))
def test_rows_of_one_length_lie_in_the_order_of_insertion(length: int, count: int) -> None:
    assert order_of_lengths([length] * count) == list(range(count))


@given(LENGTHS, LENGTHS)
def test_later_rows_leave_earlier_ones_where_they_lie(lengths: list[int], later: list[int]) -> None:
    assert [row for row in order_of_lengths(lengths + later) if row < len(lengths)] == order_of_lengths(lengths)


@given(LENGTHS)
def test_lengths_that_fill_up_to_the_same_multiple_of_eight_are_the_same(lengths: list[int]) -> None:
    assert order_of_lengths(lengths) == order_of_lengths([-(-length // 8) * 8 for length in lengths])


@given(st.text(max_size=800), st.integers(1, 900), st.integers(0, 3))
def test_no_row_is_longer_than_a_quarter_of_a_page(text: str, dimension: int, repeats: int) -> None:
    lexemes = {word.replace("\0", ""): [1] for word in text.split()}
    assert row_length(HeapRow(text * repeats, dimension, lexemes)) <= MAX_ROW_BYTES


@given(st.binary(max_size=600) | st.text("ab ", max_size=600).map(str.encode), st.integers(0, 500))
def test_compression_saves_a_quarter_or_nothing_and_may_end_early(value: bytes, enough: int) -> None:
    size = compressed_size(value)
    assert size is None or size < len(value) * 3 / 4
    partly = compressed_size(value, enough)
    assert partly == size or (partly is not None and partly > enough)
