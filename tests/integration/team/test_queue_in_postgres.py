"""A queue at work on a team's database: the same tests as on a store's own."""

# ruff: noqa: F401 (pytest runs what is imported, and finds the fixtures by their names)

from __future__ import annotations

import pytest

from cems_workbench.store import Store
from tests.unit.evaluation.test_queue import (
    FILLED,
    test_a_label_given_while_another_asks_for_a_card_is_seen_before_the_card_is_dealt,
    test_decisive_first_is_put_in_order_anew_when_a_relevant_memory_is_found,
    test_every_pair_goes_to_as_many_reviewers_as_the_overlap_says,
    test_progress_counts_what_is_done_put_aside_and_left,
    test_the_rankings_of_a_queue_are_kept_without_deleted_memories_and_go_with_it,
    test_the_same_card_stays_until_it_is_labelled_and_undo_brings_it_back,
    test_two_reviewers_at_once_are_dealt_different_cards_and_the_last_one_waits,
)


@pytest.fixture
def store(store: Store) -> Store:
    store.add(FILLED)
    return store
