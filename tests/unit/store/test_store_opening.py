"""Opening a store, of any schema, and sharing it with other processes and threads; and room for many rows at once."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from cems_workbench.errors import StoreError, StoreLockedError
from cems_workbench.platform import process_lock
from cems_workbench.platform.waiting import NOTICES
from cems_workbench.records import Memory, ParsedInput, TakenMemory
from cems_workbench.store import Store, database, duckdb_file, sources
from cems_workbench.store.rows import staged
from cems_workbench.store.schema import migrations
from cems_workbench.store.sources import ImportRows
from tests.processes import python
from tests.small_store import empty_store, store


def test_a_store_is_created_and_opened_again(tmp_path, rows):
    with Store.open(tmp_path / "deep" / "store") as store:
        store.add(rows([Memory("a", "1")]))
    with Store.open(tmp_path / "deep" / "store", create=False) as store:
        assert store.memories.get("a") == Memory("a", "1")


def test_without_create_a_missing_store_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="no store at"):
        Store.open(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


def test_a_file_is_not_a_store(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file, not a directory"):
        Store.open(tmp_path / "file")


def test_a_directory_of_other_things_is_not_made_a_store(tmp_path):
    (tmp_path / "letters.txt").write_text("x")
    with pytest.raises(StoreError, match=r"is not a store \(it has letters.txt"):
        Store.open(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["letters.txt"]


def test_a_damaged_database_file_is_an_error_of_one_line(tmp_path):
    (tmp_path / "workbench.duckdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError) as error:
        Store.open(tmp_path)
    assert "not a DuckDB database" in str(error.value)
    assert "\n" not in str(error.value)


def test_somebody_elses_database_is_left_alone(tmp_path):
    with duckdb.connect(str(tmp_path / "workbench.duckdb")) as other:
        other.execute("CREATE TABLE theirs (x INT)")
    with pytest.raises(StoreError, match="not one of CEMS Workbench"):
        Store.open(tmp_path)


def test_a_store_that_another_process_does_not_let_go_of_is_named_in_one_line(tmp_path, monkeypatch):
    holder = python(
        "import sys, pathlib; from cems_workbench.store import Store\n"
        "store = Store.open(pathlib.Path(sys.argv[1]))\n"
        "with store._database.lock(): print('open', flush=True); sys.stdin.read()",
        tmp_path / "store",
    )
    monkeypatch.setattr(process_lock, "ACQUIRE_TIMEOUT_S", 0.4)
    said: list[str] = []
    monkeypatch.setattr(NOTICES, "_notifier", said.append)
    assert holder.stdout.readline() == "open\n"
    try:
        with pytest.raises(StoreLockedError) as error:
            Store.open(tmp_path / "store")
    finally:
        holder.communicate()
    assert f"pid {holder.pid} (" in str(error.value)
    assert str(error.value).endswith("end that one, or pass another --store")
    assert said == [f"waiting for pid {holder.pid} (-c …), which uses this store too"]
    Store.open(tmp_path / "store").close()


def filled(path: Path) -> Store:
    store = Store.open(path)
    store.add(ParsedInput("test", "test", memories=tuple(Memory(id=f"m{i}", content=f"text {i}") for i in range(20))))
    return store


def test_closing_while_others_read_ends_them_with_a_clear_error(tmp_path: Path) -> None:
    for attempt in range(10):
        store = filled(tmp_path / f"store{attempt}")
        unexpected: list[BaseException] = []
        started = threading.Barrier(5)

        def read(store=store, unexpected=unexpected, started=started):
            started.wait()
            try:
                while True:
                    store.memories.count()
            except StoreError as error:
                if "closed" not in str(error):
                    unexpected.append(error)
            except BaseException as error:
                unexpected.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        store.close()
        for thread in threads:
            thread.join(20)
        assert unexpected == []
        assert not any(thread.is_alive() for thread in threads)


@pytest.fixture
def stored(tmp_path, rows):
    """The directory of a store with a memory."""
    with Store.open(tmp_path / "s") as store:
        store.add(rows([Memory("a", "1")]))
    return tmp_path / "s"


def next_file(tmp_path, monkeypatch, text):
    """A further schema file, as a later version would have."""
    (tmp_path / "next.sql").write_text(text)
    known = {**migrations.migrations(), max(migrations.migrations()) + 1: tmp_path / "next.sql"}
    monkeypatch.setattr(migrations, "migrations", lambda: known)


@pytest.mark.parametrize("package", ["cems_workbench.store.schema", "workbench_team"])
def test_the_files_number_the_schemas_without_a_gap(package):
    known = migrations.migrations(package)
    assert list(known) == list(range(1, len(known) + 1))


def test_an_older_store_keeps_its_rows_and_gains_what_a_later_file_makes(stored, tmp_path, monkeypatch):
    next_file(tmp_path, monkeypatch, "ALTER TABLE memories ADD COLUMN colour VARCHAR; CREATE TABLE further (x INT)")
    for directory in (stored, stored, tmp_path / "new"):
        Store.open(directory).close()
        with duckdb.connect(str(directory / "workbench.duckdb")) as database:
            assert database.execute("FROM further").fetchall() == []
            found = database.execute("SELECT value FROM workbench_meta WHERE key = 'schema'").fetchall()
            assert found == [(f"{max(migrations.migrations())}",)]
    with duckdb.connect(str(stored / "workbench.duckdb")) as database:
        assert database.execute("SELECT id, colour FROM memories").fetchall() == [("a", None)]


def test_an_upgrade_that_fails_leaves_the_older_store_as_it_was(stored, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        next_file(tmp_path, patch, "DROP TABLE relations; SELECT nonsense FROM nowhere")
        with pytest.raises(duckdb.Error, match="nowhere"):
            Store.open(stored)
    with Store.open(stored) as store:
        assert (store.memories.get("a"), store.relations.read()) == (Memory("a", "1"), [])


@pytest.mark.parametrize("version", ["99", "0", None])
def test_an_unknown_schema_is_one_line_with_what_to_do(stored, version):
    with duckdb.connect(str(stored / "workbench.duckdb")) as database:
        database.execute("UPDATE workbench_meta SET value = ? WHERE key = 'schema'", [version or ""])
        if version is None:
            database.execute("DELETE FROM workbench_meta WHERE key = 'schema'")
    with pytest.raises(StoreError) as error:
        Store.open(stored)
    assert str(error.value) == (
        f"store {stored} has schema {version or 0}, this version reads {max(migrations.migrations())}: update cems-workbench, "
        "or import its inputs into a new store"
    )


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


def test_what_many_rows_have_no_room_for_is_written_with_all_the_memory_of_the_store(two_threads, store, monkeypatch):
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


def test_memory_that_does_not_do_is_one_line_and_what_was_committed_stays(store, monkeypatch):
    monkeypatch.setattr(database, "BULK_MEMORY_BYTES", 16_000_000)
    monkeypatch.setattr(duckdb_file, "MEMORY_LIMIT", "16MB")
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
