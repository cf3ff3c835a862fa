"""Opening a store, and sharing it with other processes and threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from cems_workbench.errors import StoreError, StoreLockedError
from cems_workbench.platform import process_lock
from cems_workbench.platform.waiting import NOTICES
from cems_workbench.records import Memory
from cems_workbench.store import Store
from cems_workbench.store.database import Database
from tests.processes import python


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


def test_a_closed_store_says_so(tmp_path):
    store = Store.open(tmp_path)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.memories.count()


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


def test_importing_the_package_loads_no_database_or_model_library():
    code = "import sys, cems_workbench.store; print(sorted({'duckdb','chromadb','bm25s','torch'} & set(sys.modules)))"
    assert python(code).communicate()[0] == "[]\n"


def test_a_store_is_closed_while_another_thread_reads_from_it(tmp_path):
    database = Database(tmp_path)
    reading = threading.Event()

    def read() -> int:
        with database.reading() as cursor:
            reading.set()
            [(total,)] = cursor.execute("SELECT count(*) FROM range(30000000) t(i) WHERE hash(i) % 3 = 0").fetchall()
            return int(total)

    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(read)
        reading.wait()
        database.close()
        outcome = counted.exception() or counted.result()
    assert isinstance(outcome, duckdb.Error) or outcome > 9_000_000
    with pytest.raises(StoreError, match="closed"), database.reading():
        pass
