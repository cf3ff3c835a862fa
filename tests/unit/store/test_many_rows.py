"""Writing many memories of a source: how much memory that takes, and what is said where it was not enough."""

from __future__ import annotations

from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest

from cems_workbench.errors import StoreError
from cems_workbench.records import Memory, TakenMemory
from cems_workbench.store import Store, database, duckdb_file, sources
from cems_workbench.store.rows import staged
from cems_workbench.store.sources import ImportRows
from tests.small_store import empty_store, store

__all__ = ["empty_store", "store"]


def begun(store: Store) -> int:
    return store.sources.begin("postgresql://h/d", {}, None, None, "", datetime(2026, 11, 1, tzinfo=UTC))


def whole(store: Store, content: str) -> ImportRows:
    return ImportRows.of([TakenMemory(Memory(f"m{store.memories.count()}", content), "1")])


def memory_limit(store: Store) -> str:
    with store._database.reading() as cursor:
        return str(cursor.execute("SELECT current_setting('memory_limit')").fetchall()[0][0])


def test_the_error_inside_staged_rows_is_the_one_that_is_seen(store: Store) -> None:
    rows = pa.table({"id": ["a", "a"]})
    with pytest.raises(duckdb.ConstraintException), store._database.transaction() as cursor:
        cursor.execute("CREATE TABLE once (id VARCHAR PRIMARY KEY)")
        with staged(cursor, "staged_once", rows):
            cursor.execute("INSERT INTO once SELECT id FROM staged_once")


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """For databases that are opened from here on; those of other tests have one."""
    monkeypatch.setattr(duckdb_file, "SETTINGS", {**duckdb_file.SETTINGS, "threads": 2})


def put_changed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put many texts, and others in their place; the old ones are kept until the commit, for which nothing is allowed here."""
    monkeypatch.setattr(database, "BULK_MEMORY_BYTES", 8_000_000)
    monkeypatch.setattr(sources, "UPDATE_BYTES", 0)
    monkeypatch.setattr(sources, "TEXT_MEMORY_FACTOR", 1)
    before, source = memory_limit(store), begun(store)
    for turn in "12":
        given = [TakenMemory(Memory(f"m{i}", f"{turn} {i} {'words ' * 50_000}"), turn) for i in range(100)]
        with store.sources.bulk_writes():
            assert memory_limit(store) != before
            store.sources.put(source, ImportRows.of(given))
        assert memory_limit(store) == before


def test_what_many_rows_have_no_room_for_is_written_with_all_the_memory_of_the_store(
    two_threads: None, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_changed(store, monkeypatch)
    assert store.memories.read(["m99"])["m99"].content.startswith("2 99 words")


def test_what_has_no_room_at_the_commit_is_one_line_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one thread DuckDB finds out at the commit, and breaks off for good."""
    with pytest.raises(StoreError, match=r"exceeded its memory limit .*; committed batches are kept, start again"):
        put_changed(store, monkeypatch)


def test_what_long_texts_need_is_allowed_and_taken_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is written with 80 texts of 300 KB in memory at once, for which 16 MB do not do; DuckDB would break off for good."""
    monkeypatch.setattr(database, "BULK_MEMORY_BYTES", 16_000_000)
    before, source = memory_limit(store), begun(store)
    for turn in "12":  # the second finds them there, and all of them changed
        with store.sources.bulk_writes():
            first = memory_limit(store)
            for start in range(0, 80, 20):
                texts = [(f"m{i}", f"{turn} {i} {'words ' * 50_000}") for i in range(start, start + 20)]
                store.sources.put(source, ImportRows.of([TakenMemory(Memory(i, text), turn) for i, text in texts]))
            assert memory_limit(store) != first != before
        assert memory_limit(store) == before
    assert store.memories.count() == 80


def test_a_content_that_takes_its_title_on_is_another_one(store: Store) -> None:
    """Both are searched as "tea. green", so their sha is the same."""
    source = begun(store)
    for content in ("green", "tea. green"):
        counts = store.sources.put(source, ImportRows.of([TakenMemory(Memory("m", content, title="tea"), content)]))
    assert counts.updated == 1
    assert store.memories.read(["m"])["m"].content == "tea. green"


def test_memory_that_does_not_do_is_one_line_and_what_was_committed_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BULK_MEMORY_BYTES", 16_000_000)
    monkeypatch.setattr(database, "MEMORY_LIMIT", "16MB")
    before, source = memory_limit(store), begun(store)
    says = r"exceeded its memory limit .*; committed batches are kept"
    with pytest.raises(StoreError, match=says), store.sources.bulk_writes():
        store.sources.put(source, whole(store, "first"))
        long = TakenMemory(Memory("long", "second", title="title " * 10_000_000), "1")
        store.sources.put(source, ImportRows.of([long]))
    assert memory_limit(store) == before
    monkeypatch.undo()
    assert store.memories.count() == 1
    with store.sources.bulk_writes():
        store.sources.put(source, whole(store, "second"))
    assert store.memories.count() == 2
