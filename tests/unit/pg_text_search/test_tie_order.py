"""Orders of tied rows as a PostgreSQL 18 gave them (`ORDER BY x DESC` over unnest)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pg_text_search.inverted_index import full_order, limited_order

TWELVE = np.array([1, 2, 1, 0, 2, 1, 2, 0, 1, 1, 2, 0], np.float32)
SCORES = st.lists(st.integers(0, 5), max_size=120).map(lambda scores: np.array(scores, np.float32))


@given(SCORES, st.integers(0, 60))
def test_both_orders_are_by_score_and_name_every_place_once(scores, k) -> None:
    for order in (full_order(scores, k), limited_order(scores, k)):
        assert len(order) == len(set(order)) == min(k, len(scores))
        assert sorted(scores, reverse=True)[:k] == [scores[place] for place in order]


@given(SCORES, st.integers(1, 60))
def test_fewer_of_the_full_order_are_its_beginning(scores, k) -> None:
    assert full_order(scores, k) == full_order(scores, len(scores))[:k]


def test_few_rows_and_rows_in_order_keep_their_places_among_equals() -> None:
    assert full_order(np.array([1, 2, 1, 2], np.float32), 4) == [1, 3, 0, 2]
    assert full_order(np.ones(1_000, np.float32), 3) == [0, 1, 2]


def test_equal_rows_fall_as_in_the_server_s_quicksort() -> None:
    assert full_order(TWELVE, 12) == [4, 1, 6, 10, 0, 2, 5, 8, 9, 11, 7, 3]


def test_equal_rows_under_a_limit_fall_as_in_the_server_s_heap() -> None:
    assert limited_order(TWELVE, 4) == [4, 6, 1, 10]
