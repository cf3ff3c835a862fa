"""Undo of imports on the command line and in the indexes: what an import brought is gone, what it replaced is back, later work stays."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cems_workbench.errors import InputError
from cems_workbench.jobs.importing import plan_undo, undo_import
from cems_workbench.progress import Cancelled
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, TakenMemory
from cems_workbench.store import ImportOptions, Store
from cems_workbench.store import importing as importing_module
from cems_workbench.store.sources import ImportRows
from tests.small_store import HashEmbedder

if TYPE_CHECKING:
    from conftest import Command


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
            "1 memory would be replaced, which an edit here brought: one; it stays as before, --replace takes it"
        )
        assert store.imports.undo().words == "restores 1 memory"
        done = store.imports.undo(first)
        assert done.stay == (
            "1 memory stays, because it was changed after it, or a live source has it: one",
            "1 query stays, because it was judged after it, or put into a query set: q2",
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


def test_imports_undone_in_their_order_leave_nothing_of_the_undone(tmp_path: Path) -> None:
    def two(name: str, text: str, qid: str) -> ParsedInput:
        return ParsedInput(name, "test", memories=(Memory("one", text),), queries=(Query(qid, "which kettle"),))

    with Store.open(tmp_path / "store") as store:
        store.add(two("a/queries.jsonl", "blue kettle", "q1"), options=ImportOptions("set"))
        store.add(two("b/queries.jsonl", "green lamp", "q2"), options=ImportOptions("set", replace=True))
        # The set has the second file in place of the first, which has the same name.
        assert len(store.imports.undo(1).stay) == 1
        assert store.imports.undo(2).restored["memories"] == 1
        assert store.query_sets.queries("set") == []
        # It is as the first import left it, which its undo could not take back before.
        assert store.imports.undo(1).words == "removes 1 memory"
        assert store.memories.count() == 0
        with pytest.raises(InputError, match="import 1 was undone on"):
            store.imports.undo(1)


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
        assert done.stay == ("1 memory stays, because it was changed after it, or a live source has it: both",)
        assert list(store.memories.read()) == ["both", "theirs"]


def test_files_of_one_folder_do_not_replace_each_other_and_are_undone_together(tmp_path: Path) -> None:
    when = datetime(2026, 11, 28, tzinfo=UTC)
    with Store.open(tmp_path / "store") as store:
        one = store.add(given("f/a.jsonl", Memory("m", "first"), Memory("a", "a")), options=ImportOptions(when=when))
        two = store.add(given("f/b.jsonl", Memory("m", "second"), Memory("b", "b")), options=ImportOptions(when=when))
        assert (one.event, two.event, len(two.errors)) == (1, 1, 1)
        forced = ImportOptions(when=when, replace=True)
        assert store.add(given("f/c.jsonl", Memory("m", "third")), options=forced).memories.updated == 1
        assert store.imports.get().name == "f/a.jsonl and 2 more"
        assert store.imports.undo().words == "removes 3 memories"
        assert store.memories.count() == 0


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


@pytest.mark.models
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
    assert "note: theirs-of-a-very-long-name-indeed.jsonl: 1 memory would be replaced" in left.out
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
    assert (undone.code, "is undone: restored 1 memory" in undone.out) == (0, True)
    with Store.open(store) as opened:
        assert opened.memories.read() == {"m1": Memory("m1", "how releases reach the cluster")}
    assert (command("import", "1", "--undo", "--store", store).code, command("imports", "--store", store).code) == (
        0,
        0,
    )
    again = command("import", "2", "--undo", "--store", store)
    assert (again.code, "import 2 was undone on" in again.err) == (2, True)
