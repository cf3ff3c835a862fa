"""The store's Chroma collection as a program sees it that knows nothing of the store, and what keeps it from being written to.

Several processes at one store, and processes that are killed in the middle of an import or a refresh.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import chroma_server
import pytest

from benchmarks import processes
from cems_workbench.errors import StoreError
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.records import Memory, ParsedInput, Query
from cems_workbench.store import Store
from cems_workbench.store.search import chroma_collection
from tests.integration.postgres_server import Server
from tests.processes import python
from tests.small_store import HashEmbedder

ROOT = Path(__file__).parents[3]
QUERY = HashEmbedder().encode(["which"])[0]
STRANGER = """
import json, os, sys
import chromadb

for line in sys.stdin:  # each request has its own process: Chroma keeps what it has read in memory
    place, query, code = json.loads(line)
    if not os.fork():
        client = chromadb.HttpClient("127.0.0.1", place) if isinstance(place, int) else chromadb.PersistentClient(place)
        (listed,) = client.list_collections()
        collection = client.get_collection(listed.name)
        exec(code)
        found = collection.query(query_embeddings=[query], n_results=10)
        print(json.dumps([collection.count(), found["ids"][0]]), flush=True)
        os._exit(0)
    if os.wait()[1]:
        print("null", flush=True)
"""
Ask = Callable[..., list[object]]


@pytest.fixture(scope="module")
def stranger() -> Iterator[Ask]:
    """Asks another program for the number of records at a place and the first ten of QUERY; `code` may change `collection` before."""
    command = [sys.executable, "-c", STRANGER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None and program.stdout is not None

        def ask(place: object, code: str = "") -> list[object]:
            asked = place if isinstance(place, int) else str(place)
            print(json.dumps([asked, QUERY.tolist(), code]), file=program.stdin, flush=True)
            found: list[object] = json.loads(program.stdout.readline())
            return found

        yield ask
        program.stdin.close()


@pytest.fixture(params=["alone", "server", pytest.param("team", marks=pytest.mark.thorough)])
def opened(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> Iterator[tuple[Store, object]]:
    """A store and where its collection is: the store's folder, also of one whose labels are a team's, or a server."""
    path = shutil.copytree(empty_store, tmp_path / "store")
    if request.param == "server":
        with (
            chroma_server.running(tmp_path / "server") as port,
            Store.open(path, chroma_url=f"http://127.0.0.1:{port}") as store,
        ):
            yield store, port
        return
    team = None
    if request.param == "team":
        server: Server = request.getfixturevalue("postgres")
        team = server.uri
    with Store.open(path, team=team) as store:
        yield store, path / "chroma"


def test_another_program_counts_and_finds_the_same_after_every_kind_of_change(
    opened, embedder, stranger, monkeypatch
) -> None:
    store, place = opened

    def same() -> None:
        """What another program sees: as many records as doctor says, and the first ten of the graph."""
        said = store.indexes.chroma_state(embedder.model_id)
        assert said.problem == "" and said.outstanding == 0 and said.records == len(store.memories.ids())
        assert stranger(place) == [
            said.records,
            [memory_id for memory_id, _ in store.indexes.open(embedder).vectors.approximate(QUERY, 10)],
        ]

    def caught_up() -> None:
        store.indexes.refresh(embedder)
        assert store.indexes.catch_up_chroma(embedder.model_id) == ""

    store.add(ParsedInput("one", "test", tuple(Memory(f"m{n:02}", f"text {n}", tags=("t",)) for n in range(40))))
    caught_up()
    same()
    store.memories.update(replace(store.memories.read()["m05"], content="which"))
    store.memories.delete("m07")
    caught_up()
    same()
    store.add(ParsedInput("two", "test", tuple(Memory(f"n{n:02}", f"more {n}") for n in range(30))))
    store.indexes.refresh(embedder)
    write = chroma_collection.ChromaCollection.write
    monkeypatch.setattr(chroma_collection.ChromaCollection, "write", lambda *given: write(*given[:-1], 8))
    record, calls = chroma_collection.embedded.record, []

    def dies(*given: object) -> None:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt  # after Chroma has the batch, and before DuckDB records it
        record(*given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(chroma_collection.embedded, "record", dies)
        store.indexes.catch_up_chroma(embedder.model_id)
    assert store.indexes.chroma_state(embedder.model_id).outstanding == 22
    assert store.indexes.catch_up_chroma(embedder.model_id) == ""
    same()
    store.imports.undo()
    caught_up()
    same()
    assert store.indexes.compare_chroma(embedder.model_id) == (39, [])


@pytest.fixture(scope="module")
def template(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with 30 memories, all in Chroma."""
    path, embedder = shutil.copytree(empty_store, tmp_path_factory.mktemp("template") / "store"), HashEmbedder()
    with Store.open(path) as store:
        store.add(ParsedInput("one", "test", tuple(Memory(f"m{n:02}", f"text {n}") for n in range(30))))
        store.indexes.refresh(embedder)
        assert store.indexes.catch_up_chroma(embedder.model_id) == ""
    return path


@pytest.fixture
def written(template: Path, tmp_path: Path) -> Iterator[Store]:
    """A copy of it, open."""
    with Store.open(shutil.copytree(template, tmp_path / "written")) as store:
        yield store


@pytest.mark.parametrize(
    ("code", "said", "compared"),
    [
        (
            "collection.add(ids=['x'], embeddings=[[1.0] * 16])",
            "another client changed 1 record ('x')",
            "not in the store: 1 record ('x')",
        ),
        (
            "collection.update(ids=['m03'], embeddings=[[1.0] * 16])",
            "changed 1 record ('m03')",
            "vector differs: 1 record ('m03')",
        ),
        pytest.param(
            "collection.update(ids=['m03'], metadatas=[{'scope': 'x'}])",
            "changed 1 record ('m03')",
            "metadata differs: 1 record ('m03')",
            marks=pytest.mark.thorough,
        ),
        (
            "collection.delete(ids=['m03'])",
            "it holds 29 records, and 30 were written here",
            "missing: 2 records ('m03', 'new')",
        ),
    ],
    ids=("added", "vector", "metadata", "deleted"),
)
def test_what_another_client_changed_is_named_and_overwritten_only_on_request(
    written, embedder, stranger, code, said, compared
) -> None:
    path = written.path
    written.close()
    before = stranger(path / "chroma", code)
    with Store.open(path) as store:
        state = store.indexes.chroma_state(embedder.model_id)
        assert said in state.problem and "reindex --chroma" in state.line and "\n" not in state.line
        store.add(ParsedInput("two", "test", (Memory("new", "which"),)))
        store.indexes.refresh(embedder)
        assert said in store.indexes.catch_up_chroma(embedder.model_id)
        assert store.indexes.open(embedder).vectors.search(QUERY, 1)[0][0] == "new"
        with pytest.raises(StoreError, match="another client"):
            store.indexes.open(embedder).vectors.approximate(QUERY, 1)
        assert compared in store.indexes.compare_chroma(embedder.model_id)[1]
    assert stranger(path / "chroma") == before
    with Store.open(path) as store:
        assert store.indexes.renew_chroma(embedder.model_id) == ""
        assert store.indexes.compare_chroma(embedder.model_id) == (31, [])


def damaged(path: Path) -> None:
    (path / "chroma" / "chroma.sqlite3").write_bytes(b"nothing" * 1_000)


def killed_while_it_wrote(path: Path) -> None:
    with sqlite3.connect(path / "chroma" / "chroma.sqlite3") as database:
        database.execute("UPDATE embeddings_queue SET vector = x'00'")
    (path / ".chroma.changes").write_text("9 writing")


def of_another_version(path: Path) -> None:
    with sqlite3.connect(path / "chroma" / "chroma.sqlite3") as database:
        database.execute("INSERT INTO migrations VALUES ('sysdb', 99, 'x', 'x', 'x')")


@pytest.mark.parametrize(
    ("spoil", "said", "aside"),
    [
        (damaged, "not a database", True),
        (killed_while_it_wrote, "damaged: ", True),
        (of_another_version, "sysdb 99", False),
        (lambda path: shutil.rmtree(path / "chroma"), "", False),
    ],
    ids=("damaged", "torn", "newer", "missing"),
)
def test_a_folder_that_is_not_as_it_was_left(
    written, embedder, spoil: Callable[[Path], None], said: str, aside: bool
) -> None:
    path = written.path
    written.close()
    spoil(path)
    with Store.open(path) as store:
        store.memories.delete("m03")
        store.indexes.refresh(embedder)
        if said:
            line = store.indexes.catch_up_chroma(embedder.model_id)
            assert said in line and "\n" not in line
            assert said in store.indexes.chroma_state(embedder.model_id).problem
            assert (
                ("chroma.1" in store.indexes.renew_chroma(embedder.model_id)) == aside == (path / "chroma.1").exists()
            )
        else:
            assert store.indexes.catch_up_chroma(embedder.model_id) == ""
        assert store.indexes.compare_chroma(embedder.model_id)[1] == []


def test_a_large_difference_is_left_to_a_command_that_is_named(written, embedder) -> None:
    said = ""
    written.add(ParsedInput("two", "test", tuple(Memory(f"n{n:02}", f"more {n}") for n in range(3))))
    written.indexes.refresh(embedder)
    said = written.indexes.catch_up_chroma(embedder.model_id, most=2)
    assert "30 records, 3 changes not written yet; reindex --chroma, about 1 min" in said
    assert (
        written.indexes.renew_chroma(embedder.model_id) == ""
        and written.indexes.chroma_state(embedder.model_id).records == 33
    )


def test_sequences_killed_at_random_moments_end_with_chroma_equal_to_the_store(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.chroma_history", "1", "7", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr


MEMORIES, QUERIES = 25, 4


def test_two_reviewers_and_an_import_lose_and_double_nothing_also_when_one_is_killed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        memories = tuple(Memory(f"m{i:02}", f"memory {i}") for i in range(MEMORIES))
        queries = tuple(Query(f"q{i}", f"query {i}") for i in range(QUERIES))
        store.add(ParsedInput("given", "test", memories=memories, queries=queries))
        pairs = [PooledPair(query.qid, memory.id, {"a": 1}) for memory in memories for query in queries]
        store.queues.save(make_queue(processes.QUEUE, pairs, "top"))
        ada, bo = (processes.started(tmp_path, "labeller", name) for name in ("ada", "bo"))
        count = 0
        while sum(line[:1] == ["label"] for line in processes.noted(tmp_path, processes.CONFIRMED)) < MEMORIES:
            store.add(ParsedInput("more", "test", memories=(Memory(f"more {count}", "text"),)))
            count += 1
            time.sleep(0.01)
        ada.kill()
        ada.wait()
        assert bo.wait(60) == 0, processes.said(tmp_path, "bo")
        assert store.memories.count() == MEMORIES + count
        assert len(store.labels.history("ada")) + len(store.labels.history("bo")) == len(pairs)
        assert {(each.qid, each.memory_id) for each in store.judgments.read()} == {pair.pair for pair in pairs}
    assert processes.verify(tmp_path) == []


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
from cems_workbench.store.search import vector_index
vector_index.BATCH_TEXTS, vector_index.WRITE_SECONDS = 10, 0.0

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


@pytest.mark.thorough
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
