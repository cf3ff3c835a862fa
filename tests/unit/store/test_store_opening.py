"""Opening a store, sharing it with other processes, and surviving their death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from cems_workbench.errors import StoreError, StoreLockedError
from cems_workbench.models.protocol import PairScore
from cems_workbench.records import Memory
from cems_workbench.store import Store
from cems_workbench.store.database import Database
from cems_workbench.store.rows import text_sha

ROOT = Path(__file__).parents[3]


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run code in another process whose standard input and output are pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


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


def test_a_store_of_the_first_schema_is_brought_up_to_date_and_keeps_its_scores(tmp_path, store_of_schema):
    store_of_schema(tmp_path / "s", 1, f"INSERT INTO score_cache VALUES ('m', 'q', '{text_sha('old')}', 0.25)")
    for _ in range(2):
        with Store.open(tmp_path / "s") as store:
            store.scores.write("m", "q", [("new", PairScore(0.5, detail={"seconds": 1.5}))])
            found = store.scores.read("m", "q", ["old", "new"])
            assert found == [PairScore(0.25), PairScore(0.5, detail={"seconds": 1.5})]


def test_a_newer_schema_asks_for_an_update(tmp_path):
    Store.open(tmp_path).close()
    with duckdb.connect(str(tmp_path / "workbench.duckdb")) as database:
        database.execute("UPDATE workbench_meta SET value = '99' WHERE key = 'schema'")
    with pytest.raises(StoreError, match=r"schema 99.*update cems-workbench"):
        Store.open(tmp_path)


def test_a_closed_store_says_so(tmp_path):
    store = Store.open(tmp_path)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.memories.count()


def test_a_store_held_by_another_process_is_named_in_one_line(tmp_path):
    holder = python(
        "import sys, pathlib; from cems_workbench.store import Store\n"
        "store = Store.open(pathlib.Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()",
        tmp_path / "store",
    )
    assert holder.stdout.readline() == "open\n"
    try:
        with pytest.raises(StoreLockedError) as error:
            Store.open(tmp_path / "store")
    finally:
        holder.communicate()
    assert f"PID {holder.pid}" in str(error.value)
    assert str(error.value).endswith("close the app or pass another --store")
    Store.open(tmp_path / "store").close()


IMPORT_FOR_EVER = """
import sys, pathlib
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Store
from cems_workbench.store.database import Database
store = Store.open(pathlib.Path(sys.argv[1]))
for batch in range(10**6):
    rows = tuple(Memory(f"{batch}-{i}", "content " * 20) for i in range(200))
    def stop_in_the_middle(label, done, total):
        if batch == 3 and done == total:
            print("inside", flush=True)
            sys.stdin.read()
    store.add(ParsedInput("t", "t", memories=rows), stop_in_the_middle)
    print("committed", batch, flush=True)
"""


def test_killing_an_import_loses_nothing_committed_and_leaves_nothing_half_done(tmp_path):
    importer = python(IMPORT_FOR_EVER, tmp_path / "store")
    lines = [importer.stdout.readline() for _ in range(4)]
    assert lines[-1] == "inside\n"
    importer.send_signal(signal.SIGKILL)
    importer.communicate()
    with Store.open(tmp_path / "store") as store:
        assert store.memories.count() == 600
        assert store.content_version == 3
        assert not [name for name in store.memories.read() if name.startswith("3-")]


REFRESH_AND_HANG = """
import sys, pathlib
import numpy as np
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Store
from cems_workbench.store.search import vector_refresh
vector_refresh.STEP_TEXTS = 10

class Hanging:
    model_id, dimension, calls = "hanging", 4, 0
    def encode(self, texts, progress=None):
        self.calls += 1
        if self.calls == 4:
            print("inside", flush=True)
            sys.stdin.read()
        return np.tile(np.float32([0.5, 0.5, 0.5, 0.5]), (len(texts), 1))

store = Store.open(pathlib.Path(sys.argv[1]))
store.add(ParsedInput("t", "t", memories=tuple(Memory(f"m{i:02}", f"content {i}") for i in range(50))))
store.indexes.refresh(Hanging())
"""


def test_killing_a_refresh_keeps_the_vectors_written_and_the_next_goes_on(tmp_path, embedder):
    refreshing = python(REFRESH_AND_HANG, tmp_path / "store")
    assert refreshing.stdout.readline() == "inside\n"
    refreshing.send_signal(signal.SIGKILL)
    refreshing.communicate()
    embedder.model_id, embedder.dimension = "hanging", 4
    with Store.open(tmp_path / "store") as store:
        assert store.indexes.refresh(embedder).embedded == 20
        assert len(store.indexes.open(embedder).vectors.embeddings([f"m{i:02}" for i in range(50)])) == 50
        assert all(state.fresh for state in store.indexes.states("hanging"))


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
