"""The derived indexes: built, refreshed in lasting steps, filtered, and honest about being behind."""

from __future__ import annotations

import shutil
import tempfile
import threading

import numpy as np
import pytest

from cems_workbench.errors import InputError, StoreError
from cems_workbench.progress import Cancelled
from cems_workbench.records import Memory
from cems_workbench.store import ANY, Filter, Store
from cems_workbench.store.search import chroma, tokenizer, vector_index
from cems_workbench.store.search.chroma import connect


def fresh(store, embedder):
    return [state.fresh for state in store.indexes.states(embedder.model_id)]


def lexical_ids(store, embedder, query, where=ANY):
    return [memory_id for memory_id, _ in store.indexes.open(embedder).lexical.search(query, 10, where)]


def test_searching_an_empty_store_finds_nothing(store, embedder):
    for indexes in (store.indexes.open(embedder), store.indexes.refresh(embedder) and store.indexes.open(embedder)):
        assert indexes.lexical.search("anything", 10) == []
        assert indexes.vectors.search(np.ones(16), 10) == []
        assert indexes.vectors.embeddings(["a"]) == {}
        assert (len(indexes.vectors), indexes.lexical.document_count, dict(indexes.lexical.vocabulary)) == (0, 0, {})


def test_indexes_say_that_they_are_behind_until_refreshed(store, embedder, rows):
    store.add(rows([Memory("a", "alpha")]))
    assert [state.note for state in store.indexes.states(embedder.model_id)] == ["never built", "never built"]
    report = store.indexes.refresh(embedder)
    assert (report.embedded, report.lexical_rebuilt, report.content_version) == (1, True, 1)
    assert fresh(store, embedder) == [True, True]
    store.add(rows([Memory("b", "beta")]))
    states = store.indexes.states(embedder.model_id)
    for state in states:
        assert (state.version, state.content_version, state.fresh, state.rows) == (1, 2, False, 1)
    assert "1 change behind" in states[0].note


def test_the_full_text_index_follows_the_content_in_the_order_of_import(store, embedder, rows):
    store.add(rows([Memory("b", "alpha one"), Memory("a", "alpha two")]))
    store.indexes.refresh(embedder)
    first = store.indexes.full_text(embedder.dimension)
    assert [hit[0] for hit in first.search("alpha", 9, ties="window")] == ["b", "a"]
    assert store.indexes.full_text(embedder.dimension) is first
    store.add(rows([Memory("c", "alpha beta")]))
    store.indexes.refresh(embedder)
    again = store.indexes.full_text(embedder.dimension)
    assert [hit[0] for hit in again.search("alpha beta", 9, ties="window")] == ["c", "b", "a"]
    store.memories.delete("b")
    assert [hit[0] for hit in again.search("alpha", 9, ties="window")] == ["a", "c"]


def lexical_files(store) -> int:
    return len(list((store.path / "lexical").iterdir()))


def test_a_stale_lexical_index_is_brought_up_to_date_and_a_fresh_one_is_not(store, embedder, rows):
    store.add(rows([Memory("a", "alpha")]))
    store.indexes.refresh(embedder)
    assert not store.indexes.refresh(embedder).lexical_rebuilt
    store.add(rows([Memory("b", "beta")]))
    assert lexical_ids(store, embedder, "beta") == []
    assert store.indexes.refresh(embedder).lexical_rebuilt
    assert lexical_ids(store, embedder, "beta") == ["b"]
    assert lexical_files(store) == 4, "the manifest, what was verified and two segments"
    store.memories.delete("a")
    store.indexes.refresh(embedder)
    assert lexical_files(store) == 3, "a segment of which nothing is left is gone"


def test_an_index_of_another_tokenizer_version_is_not_used(store, embedder, rows, monkeypatch):
    store.add(rows([Memory("a", "alpha")]))
    with monkeypatch.context() as patch:
        patch.setattr(tokenizer, "VERSION", "0")
        store.indexes.refresh(embedder)
    with Store.open(store.path) as later:
        assert lexical_ids(later, embedder, "alpha") == []
        assert "tokenizer" in later.indexes.states()[0].note
        assert later.indexes.refresh(embedder).lexical_rebuilt
        assert lexical_ids(later, embedder, "alpha") == ["a"]


def test_only_new_and_changed_texts_are_embedded(store, embedder, rows):
    store.add(rows([Memory(name, name) for name in "abc"]))
    store.indexes.refresh(embedder)
    embedder.texts.clear()
    changed = [Memory("a", "a", pinned=True), Memory("b", "changed"), Memory("c", "c", project="p"), Memory("d", "d")]
    store.add(rows(changed))
    store.memories.delete("a")
    report = store.indexes.refresh(embedder)
    assert sorted(embedder.texts) == ["changed", "d"]
    assert (report.embedded, report.relabelled, report.removed) == (2, 1, 1)
    vectors = store.indexes.open(embedder).vectors
    assert set(vectors.embeddings("abcd")) == {"b", "c", "d"}
    assert [hit[0] for hit in vectors.search(np.ones(16), 9, Filter("p", only_project=True))] == ["c"]


def test_another_embedder_gets_vectors_of_its_own(store, embedder, other_embedder, rows):
    store.add(rows([Memory("a", "alpha")]))
    store.indexes.refresh(embedder)
    assert fresh(store, other_embedder) == [True, False]
    assert store.indexes.open(other_embedder).vectors.search(np.ones(8), 5) == []
    assert store.indexes.refresh(other_embedder).embedded == 1
    assert store.indexes.open(other_embedder).vectors.embeddings(["a"])["a"].shape == (8,)
    assert [state.name for state in store.indexes.states()] == ["lexical", "vectors hash-16", "vectors hash-8"]


def test_a_cancelled_refresh_keeps_its_vectors_and_the_next_goes_on(store, embedder, rows, monkeypatch):
    monkeypatch.setattr(vector_index, "BATCH_TEXTS", 10)
    store.add(rows([Memory(f"m{i:02}", f"text {i}") for i in range(35)]))

    def cancel_in_the_third_step(label: str, done: int, total: int) -> None:
        assert total == 35
        if label == "embedding memories" and done >= 20:
            raise Cancelled

    with pytest.raises(Cancelled):
        store.indexes.refresh(embedder, cancel_in_the_third_step)
    state = store.indexes.states(embedder.model_id)[1]
    assert (state.rows, state.fresh, state.note) == (20, False, "partly built; refresh to continue")
    assert store.indexes.refresh(embedder).embedded == 15
    assert len(embedder.texts) == len(set(embedder.texts)) == 35
    assert fresh(store, embedder) == [True, True]


def test_a_cancelled_lexical_build_leaves_the_index_before(store, embedder, rows):
    store.add(rows([Memory("a", "alpha")]))
    store.indexes.refresh(embedder)
    store.add(rows([Memory("b", "beta")]))

    def cancel(label: str, done: int, total: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        store.indexes.refresh(embedder, cancel)
    assert lexical_ids(store, embedder, "alpha") == ["a"]
    assert lexical_files(store) == 3


def test_cosine_is_exact_in_small_stores_and_ties_are_by_id(store, embedder, rows):
    memories = [Memory(f"m{i:03}", f"text {i // 2}") for i in range(300)]
    store.add(rows(memories))
    store.indexes.refresh(embedder)
    vectors = store.indexes.open(embedder).vectors
    (query,) = embedder.encode(["text 7"])
    hits = vectors.search(3 * query, 300)
    assert [name for name, _ in hits[:2]] == ["m014", "m015"]
    assert hits[0][1] == pytest.approx(1.0, abs=1e-6)
    expected = embedder.encode([memory.content for memory in memories]) @ query
    assert [score for _, score in hits] == pytest.approx(sorted(expected.tolist(), reverse=True), abs=1e-6)
    assert hits == sorted(hits, key=lambda hit: (-hit[1], hit[0]))


def test_graph_search_agrees_with_exact_search(store, embedder, rows, monkeypatch):
    store.add(rows([Memory(f"m{i:03}", f"text {i}", project=f"p{i % 3}") for i in range(400)]))
    store.indexes.refresh(embedder)
    (query,) = embedder.encode(["anything"])
    for where in (Filter(), Filter("p1", only_project=True), Filter("p0", True, "personal")):
        vectors = store.indexes.open(embedder).vectors
        exact, graph = vectors.search(query, 50, where), vectors.approximate(query, 50, where)
        monkeypatch.setattr(vector_index, "EXACT_ROWS", 0)
        scanned = vectors.search(query, 50, where)
        monkeypatch.undo()
        for found in (scanned, graph):
            assert [name for name, _ in found] == [name for name, _ in exact]
            assert [score for _, score in found] == pytest.approx([score for _, score in exact], abs=1e-5)


def test_an_ef_search_finds_what_the_same_graph_with_that_setting_finds_and_the_collection_stays(
    store, embedder, rows, monkeypatch, tmp_path
):
    monkeypatch.setitem(chroma.HNSW, "max_neighbors", 3)
    monkeypatch.setitem(chroma.HNSW, "ef_construction", 4)
    monkeypatch.setitem(chroma.HNSW, "ef_search", 50)
    monkeypatch.setitem(chroma.HNSW, "sync_threshold", 500)  # each client links what is not in the graph files again
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    store.add(rows([Memory(f"m{i:04}", f"text {i}", project=f"p{i % 3}") for i in range(1_536)]))
    store.indexes.refresh(embedder)
    vectors, found = store.indexes.open(embedder).vectors, {}
    queries, where = embedder.encode([f"query {i}" for i in range(20)]), Filter("p1", only_project=True)
    for ef_search in (None, 7, 30, 200):
        found[ef_search] = [
            [name for name, _ in vectors.approximate(query, 10, each, ef_search)]
            for query in queries
            for each in (ANY, where)
        ]
    exact = [[name for name, _ in vectors.search(query, 10, each)] for query in queries for each in (ANY, where)]
    assert found[7] != exact
    assert store.indexes.graph_settings(embedder) == {"ef_search": 50, "ef_construction": 4, "max_neighbors": 3}
    folder, name = store.path / "chroma", store.indexes.graph(embedder).name
    assert list((tmp_path / "temporary").iterdir())
    store.close()
    assert not list((tmp_path / "temporary").iterdir())
    for ef_search, ours in found.items():
        client = connect(shutil.copytree(folder, tmp_path / f"ef{ef_search}"), None)
        collection = client.get_collection(name, embedding_function=None)
        if ef_search:
            collection.modify(configuration={"hnsw": {"ef_search": ef_search}})
        answers = [
            collection.query(query_embeddings=query[None, :], n_results=10, where=each, include=[])["ids"][0]
            for query in queries
            for each in (None, {"project": "p1"})
        ]
        assert [set(ids) for ids in answers] == [set(ids) for ids in ours], ef_search
        client.close()


def test_settings_of_the_graph_make_the_collection_again(store, embedder, rows):
    store.add(rows([Memory(f"m{i}", f"text {i}") for i in range(40)]))
    store.indexes.refresh(embedder)
    first = store.indexes.graph(embedder).id
    assert store.indexes.renew_chroma(embedder.model_id, hnsw={"max_neighbors": 5, "ef_construction": 7}) == ""
    settings = {"ef_search": 300, "ef_construction": 7, "max_neighbors": 5}
    assert (store.indexes.graph_settings(embedder), store.indexes.graph(embedder).count()) == (settings, 40)
    assert store.indexes.graph(embedder).id != first


@pytest.mark.parametrize("exact_rows", [0, 10_000])
def test_neighbours_are_what_a_search_for_each_memory_finds(store, embedder, rows, monkeypatch, exact_rows):
    monkeypatch.setattr(vector_index, "EXACT_ROWS", exact_rows)
    monkeypatch.setattr(vector_index, "NEIGHBOUR_BATCH", 7)
    store.add(rows([Memory(f"m{i:03}", f"text {i // 2}") for i in range(60)]))
    store.indexes.refresh(embedder)
    vectors = store.indexes.open(embedder).vectors
    ids = [f"m{i:03}" for i in reversed(range(60))]
    found = dict(vectors.neighbours([*ids, "nowhere"], 5))
    assert list(found) == ids
    for memory_id, vector in vectors.embeddings(ids).items():
        expected = [hit for hit in vectors.search(vector, 7) if hit[0] != memory_id][:5]
        assert found[memory_id][0][0] == expected[0][0]
        assert [score for _, score in found[memory_id]] == pytest.approx([score for _, score in expected], abs=1e-5)
    store.memories.delete("m000")
    assert all(name != "m000" for _, hits in vectors.neighbours(ids, 5) for name, _ in hits)
    assert "m000" not in dict(vectors.neighbours(ids, 5))


@pytest.mark.parametrize("exact_rows", [0, 10_000])
def test_filters_restrict_to_project_scope_and_author(store, embedder, rows, monkeypatch, exact_rows):
    monkeypatch.setattr(vector_index, "EXACT_ROWS", exact_rows)
    store.add(
        rows(
            [
                Memory("mine", "duck one", project="p", author="ann"),
                Memory("ours", "duck two", project="p", scope="shared", author="ann"),
                Memory("other", "duck three", project="q", scope="shared"),
                Memory("untagged", "duck four"),
            ]
        )
    )
    store.indexes.refresh(embedder)
    indexes = store.indexes.open(embedder)
    cases = [
        (Filter(), {"mine", "ours", "other", "untagged"}),
        (Filter("p"), {"mine", "ours", "other", "untagged"}),
        (Filter(only_project=True), {"mine", "ours", "other", "untagged"}),
        (Filter("p", only_project=True), {"mine", "ours"}),
        (Filter("p", only_project=True, scope="shared"), {"ours"}),
        (Filter(scope="shared"), {"ours", "other"}),
        (Filter(scope="personal"), {"mine", "untagged"}),
        (Filter("nowhere", only_project=True), set()),
        (Filter(author="ann", ids=(ids := store.memories.ids_by("ann"))), {"mine", "ours"}),
        (Filter(scope="shared", author="ann", ids=ids), {"ours"}),
        (Filter(author="bo", ids=store.memories.ids_by("bo")), set()),
    ]
    for where, expected in cases:
        assert {name for name, _ in indexes.lexical.search("duck", 10, where)} == expected, where
        assert {name for name, _ in indexes.vectors.search(np.ones(16), 10, where)} == expected, where


def test_an_unknown_scope_is_an_error():
    with pytest.raises(InputError, match="personal, shared, both"):
        Filter(scope="public")


def test_deleted_memories_leave_the_results_before_the_next_refresh(store, embedder, rows):
    store.add(rows([Memory(name, f"duck {name}") for name in "abcd"]))
    store.indexes.refresh(embedder)
    indexes = store.indexes.open(embedder)
    store.memories.delete("a")
    assert [name for name, _ in indexes.lexical.search("duck", 2)] == ["b", "c"]
    assert len(indexes.vectors.search(np.ones(16), 3)) == 3
    assert "a" not in indexes.vectors.embeddings("ab")
    store.memories.restore("a")
    assert [name for name, _ in indexes.lexical.search("duck", 2)] == ["a", "b"]


def test_a_query_vector_of_another_length_is_an_error(store, embedder, rows):
    store.add(rows([Memory("a", "alpha")]))
    store.indexes.refresh(embedder)
    with pytest.raises(StoreError, match="has 3 values, the index has 16"):
        store.indexes.open(embedder).vectors.search(np.ones(3), 1)
    with pytest.raises(StoreError, match="not finite"):
        store.indexes.open(embedder).vectors.search(np.full(16, np.nan), 1)


def test_an_embedder_that_returns_nonsense_is_an_error(store, embedder, rows):
    store.add(rows([Memory("a", "alpha")]))
    embedder.encode = lambda texts, progress=None: np.full((1, 16), np.nan, np.float32)
    with pytest.raises(StoreError, match="not finite"):
        store.indexes.refresh(embedder)
    embedder.encode = lambda texts, progress=None: np.ones((2, 16), np.float32)
    with pytest.raises(StoreError, match="shape"):
        store.indexes.refresh(embedder)


def test_an_unreachable_chroma_server_is_one_clear_line(tmp_path, embedder, rows):
    with (
        Store.open(tmp_path, chroma_url="http://me:hunter2hunter2@127.0.0.1:9?token=hunter3") as store,
    ):
        store.add(rows([Memory("a", "alpha")]))
        assert store.indexes.refresh(embedder).embedded == 1
        said = store.indexes.catch_up_chroma(embedder.model_id)
        assert "Chroma server 127.0.0.1:9 cannot be reached" in said and "\n" not in said and "hunter" not in said
        assert len(store.indexes.open(embedder).vectors.search(np.ones(16), 3)) == 1


@pytest.mark.parametrize("url", ["ftp://h/x?token=SECRET", "http://h:99999/?token=SECRET", "http://a:SECRET@h:99999/"])
def test_a_url_that_is_none_is_not_named(url, tmp_path):
    with pytest.raises(StoreError, match="Chroma server of the settings cannot be reached") as error:
        connect(tmp_path, url)
    assert "SECRET" not in str(error.value)


def test_only_matching_memories_are_lexical_hits_and_ties_are_by_id(store, embedder, rows):
    store.add(rows([Memory(name, "same words") for name in ("c", "a", "b")] + [Memory("z", "nothing alike")]))
    store.indexes.refresh(embedder)
    assert lexical_ids(store, embedder, "same") == ["a", "b", "c"]
    assert lexical_ids(store, embedder, "absent") == []
    assert lexical_ids(store, embedder, "the of and") == []
    assert lexical_ids(store, embedder, "") == []


def test_identifiers_are_found_whole_and_by_their_words(store, embedder, rows):
    store.add(rows([Memory("code", "call getUserById in src/api/main.py"), Memory("prose", "the user went home")]))
    store.indexes.refresh(embedder)
    for query in ("getUserById", "getuserbyid", "user by id", "main.py", "src/api/main.py"):
        assert lexical_ids(store, embedder, query)[0] == "code", query


def test_a_rebuild_drops_both_indexes_and_gives_the_same_answers(store, embedder, rows):
    store.add(rows([Memory("a", "alpha"), Memory("b", "beta")]))
    store.indexes.refresh(embedder)
    collection = store.indexes.open(embedder).vectors
    report = store.indexes.rebuild(embedder)
    assert (report.embedded, report.lexical_rebuilt, report.notes) == (2, True, ())
    assert fresh(store, embedder) == [True, True]
    rebuilt = store.indexes.open(embedder)
    assert rebuilt.vectors is not collection
    assert rebuilt.vectors.search(embedder.encode(["beta"])[0], 1)[0][0] == "b"
    assert lexical_ids(store, embedder, "alpha") == ["a"]
    assert store.indexes.refresh(embedder).embedded == 0


def test_a_rebuild_repairs_an_index_whose_files_were_damaged(store, embedder, rows):
    store.add(rows([Memory("a", "alpha")]))
    store.indexes.refresh(embedder)
    for file in (store.path / "lexical").iterdir():
        file.write_bytes(b"")
    store.indexes.rebuild(embedder)
    assert lexical_ids(store, embedder, "alpha") == ["a"]


def test_a_cancelled_rebuild_says_it_is_half_done_and_a_refresh_completes_it(store, embedder, rows):
    store.add(rows([Memory("a", "alpha"), Memory("b", "beta")]))
    store.indexes.refresh(embedder)

    def cancel(label, done, total):
        if label == "embedding memories":
            raise Cancelled

    with pytest.raises(Cancelled):
        store.indexes.rebuild(embedder, cancel)
    assert fresh(store, embedder) == [True, False]
    assert store.indexes.refresh(embedder).embedded == 2
    assert fresh(store, embedder) == [True, True]


def test_a_store_whose_folder_was_removed_is_closed_all_the_same(store, embedder, rows):
    def looking_out() -> int:
        return sum(thread.name == "lock-watcher" for thread in threading.enumerate())

    before = looking_out()
    with Store.open(store.path.with_name("another")) as another:
        another.add(rows([Memory("a", "alpha")]))
        another.indexes.refresh(embedder)
        shutil.rmtree(another.path)
    assert looking_out() == before, "a thread that looks fifty times a second whether somebody waits"
