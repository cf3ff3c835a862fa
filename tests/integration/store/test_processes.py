"""Several processes at one store, and processes that are killed in the middle of an import or a refresh."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from benchmarks import processes
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.records import Memory, ParsedInput, Query
from cems_workbench.store import Store
from tests.processes import python

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
