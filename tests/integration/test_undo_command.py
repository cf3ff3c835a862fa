"""Undo of imports; labels of several sessions and of a process that is killed; a search while another session indexes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.bench_durability import concurrent_sessions, killed_process
from cems_workbench.jobs.importing import plan_undo, undo_import
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.progress import Cancelled, Progress, silent
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, TakenMemory
from cems_workbench.store import ImportOptions, Store
from cems_workbench.store import importing as importing_module
from cems_workbench.store.sources import ImportRows
from tests.planted_source import Counting
from tests.small_store import HashEmbedder, empty_store, parsed, store

if TYPE_CHECKING:
    from conftest import Command

__all__ = ["empty_store", "store"]


def given(source: str, *memories: Memory) -> ParsedInput:
    return ParsedInput(source, "test", memories=memories)


def test_searches_find_neither_what_an_undo_removed_nor_its_new_text(tmp_path: Path) -> None:
    embedder = HashEmbedder()
    with Store.open(tmp_path / "store") as store:
        store.add(given("a.jsonl", Memory("one", "blue kettle"), Memory("two", "red cache")))
        store.add(
            given("b.jsonl", Memory("one", "green lamp"), Memory("three", "old clock")),
            options=ImportOptions(replace=True),
        )
        store.indexes.refresh(embedder)

        def found(words: str) -> list[str]:
            opened = store.indexes.open(embedder)
            return [hit[0] for hit in opened.lexical.search(words, 10)]

        assert found("lamp") == ["one"]
        plan = plan_undo(store)
        assert plan.words == "removes 1 memory; restores 1 memory"
        assert undo_import(store).done_words == "removed 1 memory; restored 1 memory"
        assert found("clock") == []  # hidden until the indexes are refreshed
        report = store.indexes.refresh(embedder)
        assert (report.embedded, report.removed) == (1, 1)
        assert (found("lamp"), found("kettle"), found("clock")) == ([], ["one"], [])
        assert store.memories.hidden == set()
        store.add(given("b.jsonl", Memory("three", "old clock")))
        store.indexes.refresh(embedder)
        assert found("clock") == ["three"]


def test_what_was_changed_after_an_import_stays_and_is_named(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        queries = (Query("q1", "which kettle"), Query("q2", "which cache"))
        brought = ParsedInput(
            "a.jsonl",
            "test",
            memories=(Memory("one", "blue kettle"), Memory("two", "red cache")),
            queries=queries,
            judgments=(Judgment("q1", "one", 2, "ada"), Judgment("q2", "two", 1, "ada")),
        )
        first = store.add(brought).event
        store.memories.update(Memory("one", "edited here"))
        store.labels.give(Judgment("q2", "two", 3, "bo"))
        # The file is imported again: the edit is not replaced.
        again = store.add(given("a.jsonl", Memory("one", "newer text"), Memory("two", "newer text")))
        assert [error.reason for error in again.errors] == [
            "would replace memory 'one', which an edit here brought; --replace takes this row"
        ]
        assert again.notes[0] == (
            "left as before: 1 memory that an edit here brought: one; --replace takes the new ones"
        )
        assert store.imports.undo().words == "restores 1 memory"
        done = store.imports.undo(first)
        assert done.stay == (
            "kept 1 memory changed after it or of a live source: one",
            "kept 1 query judged after it or put into a query set: q2",
        )
        assert list(store.memories.read()) == ["one"]
        assert [query.qid for query in store.queries.read()] == ["q2"]


def test_an_import_that_was_cancelled_between_its_portions_can_be_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing_module, "BATCH_ROWS", 10)

    def cancel(label: str, done: int, total: int) -> None:
        if done >= 20:
            raise Cancelled

    with Store.open(tmp_path / "store") as store:
        store.add(given("a.jsonl", Memory("m05", "as it was")))
        with pytest.raises(Cancelled):
            store.add(
                given("b.jsonl", *(Memory(f"m{i:02}", "new") for i in range(40))), cancel, ImportOptions(replace=True)
            )
        assert store.memories.count() == 20
        assert store.imports.get().words == "cut off before its end"
        assert undo_import(store).done_words == "removed 19 memories; restored 1 memory"
        assert store.memories.read() == {"m05": Memory("m05", "as it was")}


def test_an_undo_that_was_killed_is_continued(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        store.add(given("a.jsonl", *(Memory(f"m{i:02}", "text") for i in range(30))))
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from cems_workbench.store import Store, imports\n"
        "imports.PORTION_ROWS = 10\n"
        "def stop(label, done, total):\n"
        "    if done == 20: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Store.open(Path(sys.argv[1])).imports.undo(None, stop)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "store")], check=False)
    assert ended.returncode == -signal.SIGKILL
    with Store.open(tmp_path / "store") as store:
        assert store.memories.count() == 10
        assert store.imports.undo().words == "removes 10 memories"
        assert store.memories.count() == 0


def test_a_memory_of_a_live_source_is_replaced_only_when_told_and_stays_after_an_undo(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        store.add(given("a.jsonl", Memory("ours", "of the file"), Memory("both", "of both")))
        source = store.sources.begin("qdrant://host/notes", {}, None, None, "", datetime(2026, 11, 1, tzinfo=UTC))
        taken = [TakenMemory(Memory("both", "of both"), "1"), TakenMemory(Memory("theirs", "of the source"), "1")]
        store.sources.put(source, ImportRows.of(taken))
        left = store.add(given("b.jsonl", Memory("theirs", "of a file")))
        assert [error.reason for error in left.errors] == [
            "would replace memory 'theirs', which qdrant://host/notes brought; --replace takes this row"
        ]
        done = store.imports.undo()
        assert done.words == "removes 1 memory"
        assert done.stay == ("kept 1 memory changed after it or of a live source: both",)
        assert list(store.memories.read()) == ["both", "theirs"]


def test_two_processes_that_import_at_once_are_two_events(tmp_path: Path) -> None:
    Store.open(tmp_path / "store").close()
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from cems_workbench.records import Memory, ParsedInput\n"
        "from cems_workbench.store import Store, importing\n"
        "importing.BATCH_ROWS = 5\n"
        "name = sys.argv[2]\n"
        "rows = tuple(Memory(f'{name}{i}', 'text') for i in range(40))\n"
        "Store.open(Path(sys.argv[1])).add(ParsedInput(f'{name}.jsonl', 'test', memories=rows))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "store"), name]) for name in "ab"]
    with Store.open(tmp_path / "store") as store:  # an app that has the store open
        assert [process.wait(60) for process in running] == [0, 0]
        assert store.memories.count() == 80
        first, last = store.imports.read()[::-1]
        assert store.imports.undo(first.number).words == "removes 40 memories"
        assert {key[0] for key in store.memories.read()} == {last.inputs[0].name[0]}


def test_the_command_line_replaces_only_when_told_and_takes_it_back(command: Command, tmp_path: Path) -> None:
    store, ours, theirs = (
        tmp_path / "store",
        tmp_path / "ours.jsonl",
        tmp_path / "theirs-of-a-very-long-name-indeed.jsonl",
    )
    ours.write_text('{"id": "m1", "content": "how releases reach the cluster"}\n', "utf-8")
    theirs.write_text('{"id": "m1", "content": "a query of theirs"}\n', "utf-8")
    assert command("import", ours, "--store", store).code == 0
    left = command("import", theirs, "--store", store)
    assert left.code == 2
    assert "theirs-of-a-very-long-name-indeed.jsonl: left as before: 1 memory" in " ".join(left.out.split())
    assert "error: nothing was imported: the only row was left out" in left.err
    assert f"import {theirs} --store {store} --replace" in left.out.splitlines()[-1]
    taken = command("import", theirs, "--replace", "--store", store)
    assert (taken.code, "theirs-of-a-v…e-indeed.jsonl  memories" in taken.out) == (0, True)
    listed = json.loads(command("imports", "--json", "--store", store).out)
    assert [(one["import"], one["inputs"][0]["counts"]) for one in listed] == [
        (2, {"memories": {"added": 0, "updated": 1, "unchanged": 0}}),
        (1, {"memories": {"added": 1, "updated": 0, "unchanged": 0}}),
    ]
    undone = command("import", "--undo", "--store", store)
    assert (undone.code, "is undone: restored 1 memory" in " ".join(undone.out.split())) == (0, True)
    with Store.open(store) as opened:
        assert opened.memories.read() == {"m1": Memory("m1", "how releases reach the cluster")}
    assert (command("import", "1", "--undo", "--store", store).code, command("imports", "--store", store).code) == (
        0,
        0,
    )
    again = command("import", "2", "--undo", "--store", store)
    assert (again.code, "import 2 was undone on" in again.err) == (2, True)


def test_labels_of_eight_sessions_are_all_there_once_with_their_author(tmp_path):
    wrong, times = concurrent_sessions(tmp_path / "store", sessions=8, labels=12)
    assert wrong == []
    assert len(times) == 96


def test_a_killed_process_loses_no_label_it_had_confirmed(tmp_path):
    wrong, confirmed = killed_process(tmp_path / "store", kills=3, seed=1)
    assert wrong == []
    assert confirmed > 0


class Slow(Counting):
    """Embeds once `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.asked = threading.Event(), threading.Event()

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        self.asked.set()
        assert self.go.wait(20)
        return super().encode(texts, progress)


def test_search_uses_the_indexes_from_before_and_says_so(store: Store) -> None:
    embedder = Slow()
    embedder.go.set()
    resources = Resources(store, embedder, Servers("", "", "", None, None, None))
    store.add(parsed([Memory("old", "what was there")]))
    before = resources.indexes
    embedder.go.clear()
    embedder.asked.clear()

    def imports() -> None:
        with resources.changing():
            store.add(parsed([Memory("new", "what came")]))
            resources.refresh()

    session = threading.Thread(target=imports)
    session.start()
    assert embedder.asked.wait(20)
    assert resources.indexes is before
    assert resources.behind == "this process is refreshing the indexes: the latest change is not found yet"
    assert resources.engine() is None, "what every page asks for waits for nobody"
    embedder.go.set()
    session.join(20)
    assert resources.indexes is not before and not resources.behind


def test_current_indexes_lack_nothing_while_a_thread_holds_them(store: Store) -> None:
    """Abstain of Inspect once lost its columns: evidence of current indexes was not kept."""
    embedder, servers = HashEmbedder(), Servers("", "", "", None, None, None)
    store.add(parsed([Memory("old", "what was there")]))
    Resources(store, embedder, servers).refresh()
    resources = Resources(store, embedder, servers)
    with resources.changing(), ThreadPoolExecutor(1) as page:
        assert page.submit(lambda: resources.indexes).result(20).vectors
    assert not resources.behind
