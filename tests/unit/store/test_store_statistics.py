"""Statistics against counts made by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from cems_workbench.records import Memory

NOW = datetime(2024, 8, 1, tzinfo=UTC)


def test_an_empty_store_has_statistics_too(store):
    statistics = store.memories.statistics(NOW)
    assert (statistics.memories, statistics.longest, statistics.first_created) == (0, 0, None)
    assert (statistics.categories, statistics.months, statistics.lengths) == ((), (), ())
    assert store.memories.exact_duplicates(10) == ([], 0)


def test_counts_leave_deleted_memories_out(store, rows):
    store.add(
        rows([Memory("a", "x", category="fact"), Memory("b", "x", pinned=True), Memory("c", "x", access_count=1)])
    )
    store.memories.delete("a")
    statistics = store.memories.statistics(NOW)
    assert (statistics.memories, statistics.deleted, statistics.pinned, statistics.never_accessed) == (2, 1, 1, 1)
    assert statistics.categories == ((None, 2),)


def test_months_have_no_gaps_and_undated_memories_are_counted_apart(store, rows):
    days = [datetime(2023, 12, 31, 23, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 3, 31, tzinfo=UTC)]
    store.add(rows([*(Memory(f"m{i}", "x", created_at=day) for i, day in enumerate(days)), Memory("n", "x")]))
    statistics = store.memories.statistics(NOW)
    assert statistics.months == (
        (date(2023, 12, 1), 1),
        (date(2024, 1, 1), 0),
        (date(2024, 2, 1), 0),
        (date(2024, 3, 1), 2),
    )
    assert statistics.undated == 1
    assert (statistics.first_created, statistics.last_created) == (days[0], days[2])


def test_ages_fall_in_the_class_that_their_last_day_belongs_to(store, rows):
    ages = [0, 7, 8, 365, 366, 9_000]
    store.add(rows([Memory(f"m{age}", "x", created_at=NOW - timedelta(days=age)) for age in ages]))
    assert dict(store.memories.statistics(NOW).ages) == {
        "up to a week": 2,
        "a month": 1,
        "3 months": 0,
        "6 months": 0,
        "a year": 1,
        "2 years": 1,
        "older": 1,
    }


def test_length_classes_double(store, rows):
    store.add(rows([Memory(f"m{length}", "x" * length) for length in (1, 49, 50, 99, 100, 399)]))
    statistics = store.memories.statistics(NOW)
    assert statistics.lengths == (("0–49", 2), ("50–99", 2), ("100–199", 1), ("200–399", 1))
    assert (statistics.median_length, statistics.longest) == (74, 399)


def test_exact_duplicates_are_equal_to_the_character(store, rows):
    texts = {"a": "same", "b": "same", "c": "Same", "d": "other", "e": "other", "f": "other", "g": "same"}
    store.add(rows([Memory(name, text) for name, text in texts.items()]))
    store.memories.delete("g")
    groups, total = store.memories.exact_duplicates(10)
    assert [(group.content, group.ids) for group in groups] == [("other", ("d", "e", "f")), ("same", ("a", "b"))]
    assert total == 2
    assert len(store.memories.exact_duplicates(1)[0]) == 1
