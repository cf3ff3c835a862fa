"""Vectors in segments: above the size of a matrix their codes find what an exact search finds, with every filter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cems_workbench.records import Memory
from cems_workbench.store import ANY, Filter
from cems_workbench.store.search import vector_index, vector_segments

COUNT = 300
FILTERS = (ANY, Filter("rare", True), Filter("p1", True), Filter(scope="shared"), Filter("p1", True, "shared"))


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(vector_index, "EXACT_ROWS", 100)
    monkeypatch.setattr(vector_segments, "MIN_CODED_ROWS", 200)


def memory(number, text=None, project=None):
    named = project or ("rare" if number % 100 == 3 else f"p{number % 3}")
    return Memory(
        f"m{number:04}", text or f"text {number}", project=named, scope="shared" if number % 2 else "personal"
    )


@pytest.fixture
def filled(store, embedder, rows):
    store.add(rows([memory(i) for i in range(COUNT)]))
    store.indexes.refresh(embedder)
    return store


def exact(store, embedder, query, k, where):
    kept = [each for each in store.memories.read().values() if passes(each, where)]
    cosines = embedder.encode([each.content for each in kept]) @ query
    order = sorted(range(len(kept)), key=lambda i: (-cosines[i], kept[i].id))[:k]
    return [(kept[i].id, pytest.approx(float(cosines[i]), abs=1e-5)) for i in order]


def agrees(store, embedder, filters=FILTERS):
    vectors = store.indexes.open(embedder).vectors
    assert len(vectors) == store.memories.count()
    for where in filters:
        for query in embedder.encode([f"query {i}" for i in range(5)]):
            assert vectors.search(query, 7, where) == exact(store, embedder, query, 7, where)
        assert vectors.ids(where) == sorted(each.id for each in store.memories.read().values() if passes(each, where))


def passes(each, where):
    return where.required_project in (None, each.project) and where.required_scope in (None, each.scope)


@pytest.mark.parametrize("taken", [0.0, 1.0], ids=("read where they lie", "copied"))
def test_a_filtered_search_is_the_exact_one(filled, embedder, monkeypatch, taken):
    monkeypatch.setattr(vector_segments, "MAX_COPY_SHARE", taken)
    agrees(filled, embedder, (*FILTERS, *FILTERS))
    assert filled.indexes.open(embedder).vectors.search(np.ones(16), 5, Filter("nobody", True)) == []


def test_no_more_rows_are_copied_than_there_are(filled, embedder, monkeypatch):
    monkeypatch.setattr(vector_segments, "MAX_COPY_SHARE", 1.0)
    codes = filled.indexes.open(embedder).vectors._vectors
    for where in (Filter(scope="shared"), Filter(scope="personal"), *FILTERS):
        codes.candidates(np.ones(16, np.float32), 5, where)
        copied = [part.count for parts in codes._filtered_cache.values() for part in parts if part.copied]
        assert 0 < sum(copied) <= COUNT or where == ANY
        assert where in codes._filtered_cache, "the one that is asked is kept"


def test_after_edits_moves_deletions_and_new_memories_it_still_is_and_nothing_old_is_read_again(
    filled, embedder, rows, monkeypatch
):
    written = []
    write = vector_segments._write_segment
    counted = lambda directory, rows: (written.append(len(rows)), write(directory, rows))[1]  # noqa: E731
    monkeypatch.setattr(vector_segments, "_write_segment", counted)
    for step in range(4):
        some = filled.memories.read()[f"m{step:04}"]
        filled.memories.update(replace(some, content=f"edited {step}", project="rare"))
        filled.memories.update(replace(filled.memories.read()[f"m{step + 50:04}"], project="rare"))
        filled.memories.delete(f"m{step + 100:04}")
        filled.add(rows([memory(1000 + step), memory(2000 + step)]))
        filled.indexes.refresh(embedder)
        agrees(filled, embedder)
    assert sum(written) == 4 * 4, "an edit, a move and two new memories are read each time, and no other"


def test_memories_in_chunks_are_found_by_their_nearest_chunk(store, embedder, rows):
    store.chunks.choose("cems")
    store.add(
        rows([memory(i, " ".join(f"{i}word{j}" for j in range(900)) if i % 40 == 1 else None) for i in range(COUNT)])
    )
    store.indexes.refresh(embedder)
    vectors = store.indexes.open(embedder).vectors
    assert len(vectors) > COUNT
    chunk = store.chunks.read(["m0041"])["m0041"][2]
    (hit, *_) = vectors.search_chunks(embedder.encode([chunk.text])[0], 3, Filter(scope="shared"))
    assert (hit[0], hit[2]) == ("m0041", chunk.seq) and hit[1] == pytest.approx(1, abs=1e-5)
    assert len(vectors.chunk_embeddings(["m0041"])["m0041"]) == len(store.chunks.read(["m0041"])["m0041"])


@pytest.mark.parametrize(
    ("ids", "near", "found"),
    [
        ([(f"m{i:04}", None) for i in range(5_000)], 0, ["m4999", "m0000", "m0001"]),
        ([*(("a", i) for i in range(4_999)), ("b", None)], 1, ["a", "b"]),
    ],
    ids=("equal vectors", "chunks of one memory"),
)
def test_thousands_of_candidates_hide_no_result(tmp_path, ids, near, found):
    axes = np.eye(16, dtype=np.float32)
    between = (axes[0] + axes[1]) / np.float32(np.sqrt(2))
    vectors = np.tile((between, axes[0])[near], (len(ids), 1))
    vectors[-1] = (axes[0], between)[near]
    rows = vector_segments.VectorRows(ids, [None] * len(ids), ["shared"] * len(ids), vectors)
    segments, _ = vector_segments.replace_rows(tmp_path, [], [], rows)
    hits = vector_segments.open_vectors(tmp_path, segments).search(axes[0], len(found), ANY)
    assert list(dict.fromkeys(hit[0] for hit in hits)) == found
