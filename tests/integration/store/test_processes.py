"""Several processes at one store: what `benchmarks.processes` does for minutes, for seconds and without the pages."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks import processes
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.records import Memory, ParsedInput, Query
from cems_workbench.store import Store

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
