"""What changed lately in a large store waits outside of Chroma's graph: searches, proofs and counts know no difference."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from cems_workbench.errors import StoreError
from cems_workbench.records import Memory
from cems_workbench.store import ANY, Filter, Store
from cems_workbench.store.search import indexes
from cems_workbench.store.search.vectors import embedded, vector_cache, vector_index, write_buffer

COUNT = 300
FILTERS = (ANY, Filter("p1", True), Filter(scope="shared"))


@pytest.fixture(autouse=True, params=[100, 1_000], ids=["by the graph and the codes", "exactly"])
def few_are_many(monkeypatch, request):
    monkeypatch.setattr(write_buffer, "MIN_ROWS", 100)
    for module in (indexes, vector_index):
        monkeypatch.setattr(module, "EXACT_ROWS", request.param)


def memory(number, text=None):
    return Memory(
        f"m{number:04}",
        text or f"text {number}",
        project=f"p{number % 3}",
        scope="shared" if number % 2 else "personal",
    )


@pytest.fixture
def filled(store, embedder, rows):
    store.add(rows([memory(i) for i in range(COUNT)]))
    store.indexes.refresh(embedder)
    assert store.indexes.buffered_changes() == 0, (
        "the first vectors of a store, and more than can wait, go into the graph at once"
    )
    return store


def change(store, rows, seed):
    """Edit, move, delete and add some; the numbers that changed can come again."""
    rng = random.Random(seed)
    there = store.memories.read()
    edited, labelled, *deleted = rng.sample(sorted(there), 5)
    store.memories.update(replace(there[edited], content=f"edited {seed}"))
    store.memories.update(replace(there[labelled], project="p1" if there[labelled].project != "p1" else "p2"))
    for name in deleted:
        store.memories.delete(name)
    store.add(rows([memory(1000 + 10 * seed), memory(1001 + 10 * seed)]))


def agrees(store, embedder):
    """Searches, by the graph, by the codes and without them, are the exact ones, and every vector is as the store says."""
    vectors = store.indexes.open(embedder).vectors
    there = store.memories.read()
    assert len(vectors) == len(there) and set(vectors.embeddings(list(there))) == set(there)
    for where in FILTERS:
        kept = sorted(each.id for each in there.values() if passes(each, where))
        texts = embedder.encode([there[name].content for name in kept])
        for query in embedder.encode([f"query {i}" for i in range(3)]):
            cosines = texts @ query
            order = sorted(range(len(kept)), key=lambda i: (-cosines[i], kept[i]))[:7]
            expected = [(kept[i], pytest.approx(float(cosines[i]), abs=1e-5)) for i in order]
            assert vectors.search(query, 7, where) == expected, where
            by_chroma = vectors._query(query, 7, where)
            assert [(name, cosine) for name, cosine, _ in by_chroma] == expected, where
    assert all(state.fresh for state in store.indexes.states(embedder.model_id, deep=True))


def passes(each, where):
    return where.required_project in (None, each.project) and where.required_scope in (None, each.scope)


def test_a_search_knows_what_waits_before_it_is_moved_and_after(filled, embedder, rows):
    for seed in range(3):
        change(filled, rows, seed)
        filled.indexes.refresh(embedder)
        assert filled.indexes.buffered_changes()
        agrees(filled, embedder)
    there = filled.indexes.buffered_changes()
    assert filled.indexes.states(embedder.model_id)[-1].note == f"the latest {there} changes are buffered"
    assert filled.indexes.flush(threshold=there + 1) == 0
    assert filled.indexes.flush(threshold=1) == there and filled.indexes.buffered_changes() == 0
    assert filled.indexes.states(embedder.model_id)[-1].note == ""
    agrees(filled, embedder)
    assert filled.indexes.refresh(embedder).embedded == 0


def test_a_store_that_is_opened_again_still_has_it(filled, embedder, rows):
    change(filled, rows, 1)
    filled.indexes.refresh(embedder)
    there = filled.indexes.buffered_changes()
    filled.close()
    with Store.open(filled.path) as again:
        assert again.indexes.buffered_changes() == there
        agrees(again, embedder)
        report = again.indexes.refresh(embedder)
        assert (report.embedded, report.relabelled, report.removed, report.notes) == (0, 0, 0, ())


@pytest.mark.parametrize("where", ["before", "after"])
def test_what_is_broken_off_is_moved_again(filled, embedder, rows, monkeypatch, where):
    change(filled, rows, 1)
    filled.indexes.refresh(embedder)
    there = filled.indexes.buffered_changes()

    def broken(*_):
        raise StoreError("broken off")

    with monkeypatch.context() as patch:
        patch.setattr(
            *((write_buffer.chroma, "read_vectors") if where == "before" else (embedded, "record_hashes")), broken
        )
        with pytest.raises(StoreError, match="broken off"):
            filled.indexes.flush(threshold=1)
    assert filled.indexes.buffered_changes() == there
    agrees(filled, embedder)
    change(filled, rows, 2)
    filled.indexes.refresh(embedder)
    agrees(filled, embedder)
    filled.indexes.flush(threshold=1)
    agrees(filled, embedder)


def test_more_than_can_wait_makes_way_for_what_comes(filled, embedder, rows, monkeypatch):
    change(filled, rows, 1)
    filled.indexes.refresh(embedder)
    monkeypatch.setattr(write_buffer, "MAX_BUFFERED", 8)
    change(filled, rows, 2)
    filled.indexes.refresh(embedder)
    assert filled.indexes.buffered_changes() == 0
    agrees(filled, embedder)


def test_it_is_moved_beside_the_rest_when_there_is_enough(filled, embedder, rows, monkeypatch):
    monkeypatch.setattr(indexes, "FLUSH_DELAY_S", 0.0)
    monkeypatch.setattr(write_buffer, "UPSERT_BATCH_SIZE", 2)
    monkeypatch.setattr(indexes, "FLUSH_SLICE_S", 0.0)
    monkeypatch.setattr(indexes, "FLUSH_THRESHOLD", 9)
    change(filled, rows, 1)
    filled.indexes.refresh(embedder)
    assert filled.indexes.buffered_changes() == 7 and filled.indexes._flusher is None
    change(filled, rows, 2)
    filled.indexes.refresh(embedder)
    filled.indexes._flusher.join(60)
    assert filled.indexes.buffered_changes() == 0
    agrees(filled, embedder)


def test_of_a_store_that_is_searched_exactly_only_what_changed_is_read_again(filled, embedder, rows, monkeypatch):
    monkeypatch.setattr(vector_index, "EXACT_ROWS", 1_000)
    (query,) = embedder.encode(["query"])
    read = vector_cache.chroma.read_vectors
    for seed, number in enumerate((COUNT, 3, 3)):
        vectors, asked = filled.indexes.open(embedder).vectors, []
        with monkeypatch.context() as patch:
            patch.setattr(vector_cache.chroma, "read_vectors", lambda of, keys: (asked.extend(keys), read(of, keys))[1])  # noqa: B023
            vectors.search(query, 5)
        assert len(asked) == number, "at first all, then what was edited and what is new"
        agrees(filled, embedder)
        change(filled, rows, seed)
        filled.indexes.refresh(embedder)


@pytest.mark.parametrize("how", ["rebuilt", "lost"])
def test_nothing_waits_for_a_collection_that_is_gone(filled, embedder, rows, how):
    change(filled, rows, 1)
    filled.indexes.refresh(embedder)
    if how == "rebuilt":
        filled.indexes.rebuild(embedder)
    else:
        filled.indexes._chroma.discard("for this test")
        filled.indexes._checks.clear()
        assert filled.indexes.refresh(embedder).notes
    with filled._database.reading() as cursor:
        assert cursor.execute("SELECT count(*) FROM waiting_vectors").fetchall() == [(0,)]
    agrees(filled, embedder)


def test_a_vector_that_is_not_as_it_was_written_is_found_while_others_wait(filled, embedder, rows):
    change(filled, rows, 1)
    filled.indexes.refresh(embedder)
    collection = filled.indexes._chroma.find(filled.indexes._collection_name(embedder.model_id))
    some = next(name for name in filled.memories.read() if name < "m0300")
    collection.upsert(
        ids=[some], embeddings=np.ones((1, 16), np.float32), metadatas=[{"project": "p0", "scope": "shared"}]
    )
    state = filled.indexes.states(embedder.model_id, deep=True)[-1]
    assert state.damaged and "1 of" in state.note
    assert filled.indexes.refresh(embedder).embedded == 1
    agrees(filled, embedder)
