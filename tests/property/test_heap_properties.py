"""What holds for the physical order of any rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.store.search.pglz import compressed_size
from cems_workbench.store.search.postgres_heap import LONGEST_ROW, HeapRow, heap_order, row_length

ROWS = [
    HeapRow(text, dimension, {word: [place] for place, word in enumerate(sorted(set(text.split())), start=1)})
    for dimension in (3, 384, 768)
    for text in [
        " ".join(f"w{i * i % period}" for i in range(count))
        for count in (0, 1, 9, 40, 90, 200, 700)
        for period in (7, 997)
    ]
]
TABLES = st.lists(st.sampled_from(ROWS), max_size=60)


@given(TABLES)
def test_order_is_a_permutation(rows: list[HeapRow]) -> None:
    assert sorted(heap_order(rows)) == list(range(len(rows)))


@given(st.sampled_from(ROWS), st.integers(0, 60))
def test_rows_of_one_size_lie_in_the_order_of_insertion(row: HeapRow, count: int) -> None:
    assert heap_order([row] * count) == list(range(count))


@given(TABLES, TABLES)
def test_later_rows_leave_earlier_ones_where_they_lie(rows: list[HeapRow], later: list[HeapRow]) -> None:
    assert [i for i in heap_order(rows + later) if i < len(rows)] == heap_order(rows)


@given(st.text(max_size=800), st.integers(1, 900), st.integers(0, 3))
def test_no_row_is_longer_than_a_quarter_of_a_page(text: str, dimension: int, repeats: int) -> None:
    lexemes = {word.replace("\0", ""): [1] for word in text.split()}
    assert row_length(HeapRow(text * repeats, dimension, lexemes)) <= LONGEST_ROW


@given(st.binary(max_size=600) | st.text("ab ", max_size=600).map(str.encode), st.integers(0, 500))
def test_compression_saves_a_quarter_or_nothing_and_may_end_early(value: bytes, enough: int) -> None:
    size = compressed_size(value)
    assert size is None or size < len(value) * 3 / 4
    partly = compressed_size(value, enough)
    assert partly == size or (partly is not None and partly > enough)
