"""What is derived from the memories is proven before it is used: damaged, foreign or lost, it is built anew, and that is said."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from chromadb.api.rust import RustBindingsAPI

from cems_workbench.records import Memory
from cems_workbench.store import Store
from cems_workbench.store.search import entries
from cems_workbench.store.search.directory.index_directory import checksum, checksums
from cems_workbench.store.search.vectors import chroma, chroma_directory
from cems_workbench.store.search.vectors.vector_check import VectorCheck, verify
from tests.thoroughly import first_of

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


@pytest.fixture
def indexed(tmp_path, embedder, rows):
    """A closed store of 30 memories with both indexes, and what it answers; the lexical one is in two segments, with memories deleted."""
    with Store.open(tmp_path / "whole") as store:
        memories = [Memory(f"m{i:02}", f"{WORDS[i % 10]} {WORDS[i % 7]} number{i}") for i in range(32)]
        store.add(rows(memories[:20]))
        store.indexes.refresh(embedder)
        store.add(rows(memories[20:]))
        store.memories.delete("m30")
        store.memories.delete("m05")
        store.indexes.refresh(embedder)
        return tmp_path / "whole", answers(store, embedder)


def answers(store, embedder):
    indexes = store.indexes.open(embedder)
    return (
        indexes.lexical.search("alpha gamma number7", 30),
        indexes.vectors.search(np.ones(16), 30),
        dict(store.indexes.vocabulary()),
    )


def copy_of(indexed, folder: Path) -> Path:
    return Path(shutil.copytree(indexed[0], folder / f"copy{random.random()}"))


def repaired(path, embedder):
    """What a store finds wrong, and what it answers and says after a refresh."""
    with Store.open(path, create=False) as store:
        damaged = [state.name.split()[0] for state in store.indexes.states(embedder.model_id) if state.damaged]
        store.indexes.refresh(embedder)
        return damaged, answers(store, embedder), store.notices


def damage(path: Path, how: str, drawn: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if how == "removed":
        path.unlink()
        return
    if how == "flipped":
        content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
    path.write_bytes(
        {"emptied": b"", "halved": bytes(content[: len(content) // 2]), "random": drawn.randbytes(len(content))}.get(
            how, bytes(content)
        )
    )


@pytest.mark.parametrize("how", first_of(["flipped", "removed", "emptied"]))
def test_every_damaged_file_of_the_lexical_index_is_found_said_and_made_good(indexed, tmp_path, embedder, how):
    drawn = random.Random(19)
    whole, expected = indexed
    names = sorted(path.relative_to(whole) for path in (whole / "lexical").rglob("*") if path.is_file())
    assert len(names) == 4, "the manifest, two segments and what is deleted in the first"
    for name in names:
        path = copy_of(indexed, tmp_path)
        damage(path / name, how, drawn)
        damaged, found, notices = repaired(path, embedder)
        assert found == expected, name
        assert damaged == ["lexical"] and "rebuilt" in notices[0], name


def test_a_chroma_directory_that_was_removed_or_emptied_is_found_and_made_again(indexed, tmp_path, embedder):
    for emptied in (False, True):
        path = copy_of(indexed, tmp_path)
        shutil.rmtree(path / "chroma")
        if emptied:
            (path / "chroma").mkdir()
        damaged, found, notices = repaired(path, embedder)
        assert (damaged, found) == (["vectors"], indexed[1])
        assert "lost" in notices[0]


@pytest.mark.thorough
def test_a_garbage_chroma_database_is_made_again_by_a_refresh_and_by_a_rebuild(indexed, tmp_path, embedder):
    path = copy_of(indexed, tmp_path)
    damage(path / "chroma" / "chroma.sqlite3", "random", random.Random(1))
    damaged, found, _ = repaired(path, embedder)
    assert (damaged, found) == (["vectors"], indexed[1])
    damage(path / "chroma" / "chroma.sqlite3", "random", random.Random(2))
    with Store.open(path) as store:
        store.indexes.rebuild(embedder)
        assert answers(store, embedder) == indexed[1]


def test_vectors_that_are_not_as_they_were_written_are_embedded_again_alone(indexed, embedder):
    with Store.open(indexed[0]) as store:
        collection = store.indexes.open(embedder).vectors._collection
        collection.update(ids=["m03"], embeddings=[[1.0] * 16])
        embedder.texts.clear()
    damaged, found, notices = repaired(indexed[0], embedder)
    assert (damaged, found, len(embedder.texts)) == (["vectors"], indexed[1], 1)
    assert "1 of 30 vectors" in notices[0]


def test_indexes_under_the_database_of_another_store_are_not_used(indexed, tmp_path, embedder, rows):
    with Store.open(tmp_path / "other") as other:
        other.add(rows([Memory("x", "alpha of another")]))
    shutil.copy(tmp_path / "other" / "workbench.duckdb", indexed[0])
    damaged, found, notices = repaired(indexed[0], embedder)
    assert damaged == ["lexical"] and "another store" in notices[0]
    assert [memory_id for memory_id, _ in found[0] + found[1]] == ["x", "x"]


def test_indexes_of_a_copy_that_went_another_way_are_not_used(indexed, tmp_path, embedder, rows):
    path = copy_of(indexed, tmp_path)
    for one, text in ((path, "alpha one"), (indexed[0], "alpha two")):
        with Store.open(one) as store:
            store.add(rows([Memory("new", text)]))
            store.indexes.refresh(embedder)
            there = answers(store, embedder)
    shutil.copy(indexed[0] / "workbench.duckdb", path)
    damaged, found, _ = repaired(path, embedder)
    assert (damaged, found) == (["lexical", "vectors"], there)


def test_an_index_of_a_copy_that_went_another_way_is_not_brought_up_to_date(indexed, tmp_path, embedder, rows):
    path = copy_of(indexed, tmp_path)
    for one, texts in ((path, ["alpha one"]), (indexed[0], ["alpha two", "alpha three"])):
        with Store.open(one) as store:
            for number, text in enumerate(texts):
                store.add(rows([Memory(f"new{number}", text)]))
                store.indexes.refresh(embedder)
            there = answers(store, embedder)
    # The index knows of one change, the database of two others; by number it is just one behind.
    shutil.copy(indexed[0] / "workbench.duckdb", path)
    damaged, found, notices = repaired(path, embedder)
    assert (damaged, found) == (["lexical", "vectors"], there)
    assert any("other content than the store has had" in line for line in notices)


def test_what_a_killed_process_left_of_a_segment_is_no_damage_and_goes(indexed, embedder, rows):
    left = indexed[0] / "lexical" / "0123456789ab.segment"
    left.write_bytes(b"half a segment")
    with Store.open(indexed[0], create=False) as store:
        assert not any(state.damaged for state in store.indexes.states(embedder.model_id))
        store.memories.delete("m01")
        store.indexes.refresh(embedder)
        assert not left.exists() and store.notices == ()


def test_a_change_reads_and_writes_only_what_changed(indexed, embedder, rows, monkeypatch):
    with Store.open(indexed[0], create=False) as store:
        before = {path.name: path.stat().st_mtime_ns for path in (indexed[0] / "lexical").glob("*.segment")}
        read = []
        documents_of = entries.documents_of
        monkeypatch.setattr(
            entries, "documents_of", lambda db, ids, *rest: read.append(ids) or documents_of(db, ids, *rest)
        )
        store.add(rows([Memory("m02", "alpha changed")]))
        store.indexes.refresh(embedder)
        after = {path.name: path.stat().st_mtime_ns for path in (indexed[0] / "lexical").glob("*.segment")}
        assert read == [["m02"]]
        assert before.items() < after.items() and len(after) == len(before) + 1
        assert store.indexes.open(embedder).lexical.search("changed", 5)[0][0] == "m02"
        assert store.indexes.vocabulary()["changed"] == 1


def test_indexes_that_vanish_while_the_store_is_open_are_noticed(indexed, embedder):
    with Store.open(indexed[0]) as store:
        store.indexes.open(embedder)
        assert not store.indexes.files_changed()
        shutil.rmtree(indexed[0] / "lexical")
        assert store.indexes.files_changed()
        store.indexes.refresh(embedder)
        assert answers(store, embedder) == indexed[1]


def test_a_sealed_chroma_is_opened_without_a_look_by_another_process(indexed, embedder, monkeypatch):
    monkeypatch.setattr(
        chroma_directory, "run_in_subprocess", lambda *_, **__: pytest.fail("looked at by another process")
    )
    assert repaired(indexed[0], embedder) == ([], indexed[1], ())


def test_the_graph_is_read_by_a_call_beside_which_other_threads_go_on(indexed, embedder, monkeypatch):
    """Chroma's `count` and its writing calls hold the interpreter, `get` and `query` do not; whichever is first reads the graph."""
    called: list[str] = []
    for name in ("_count", "_get", "_query", "_add", "_upsert", "_update", "_delete"):
        real = getattr(RustBindingsAPI, name)
        monkeypatch.setattr(
            RustBindingsAPI,
            name,
            lambda *args, _name=name, _real=real, **more: called.append(_name) or _real(*args, **more),
        )
    assert repaired(indexed[0], embedder)[1] == indexed[1]
    assert called[0] == "_get" and "_count" in called


def test_a_process_that_ends_without_closing_its_store_leaves_it_sealed(indexed):
    """As the app does when it is told to end: of vectors that were left open each would be read at the next opening."""
    path = indexed[0]
    code = (
        "import sys; from pathlib import Path; from cems_workbench.store import Store\n"
        "left = Store.open(Path(sys.argv[1])); left.indexes.states(deep=True)\n"
        "print((left.path / 'chroma.seal').exists())"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False"]
    assert (path / chroma_directory.CHECKSUMS_FILE).exists()


def test_of_files_that_nobody_wrote_the_seal_is_not_reckoned_again(indexed, embedder, monkeypatch):
    """Chroma leaves the large files of a large store as they are; it writes those of a small one anew, so another stands for them."""
    reckoned: list[str] = []
    monkeypatch.setattr(chroma_directory, "checksum", lambda path: reckoned.append(path.name) or checksum(path))
    large = indexed[0] / "chroma" / "large.bin"
    for written in (b"new", None, b"other"):
        reckoned.clear()
        with Store.open(indexed[0]) as store:
            assert store.indexes.open(embedder).vectors.search(np.ones(16), 3)
            if written is not None:
                large.write_bytes(written)
        assert ("large.bin" in reckoned) == (written is not None), reckoned
        assert json.loads((indexed[0] / chroma_directory.CHECKSUMS_FILE).read_text()) == checksums(
            indexed[0] / "chroma"
        )


def test_what_another_process_writes_while_the_vectors_are_proven_is_no_damage(indexed, embedder, rows, monkeypatch):
    with Store.open(indexed[0]) as store:
        collection, read = store.indexes.open(embedder).vectors._collection, chroma.read_vectors

        def meanwhile(*arguments):
            monkeypatch.setattr(chroma, "read_vectors", read)
            store.add(rows([Memory("new", "omega")]))
            store.memories.delete("m01")
            store.indexes.refresh(embedder)
            return read(*arguments)

        monkeypatch.setattr(chroma, "read_vectors", meanwhile)
        assert verify(store.indexes._database, collection, True) == VectorCheck()
        collection.upsert(ids=["nobody's"], embeddings=[[1.0] * 16])
        assert verify(store.indexes._database, collection, True).unknown == ("nobody's",)
