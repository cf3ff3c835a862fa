"""Chroma as a source: a real server, and a directory of which no byte changes.

Folders that Chroma wrote: a store made of one, and one written of a store, through which nothing is lost.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import chroma_server
import collection_rows
import numpy as np
import pytest
from collection_rows import all_new, files_of, memories, taken

from cems_workbench.errors import InputError
from cems_workbench.jobs.chroma_export import COLLECTION, export_chroma
from cems_workbench.jobs.connecting import connect, folder_address, source_specs
from cems_workbench.jobs.factory import servers
from cems_workbench.jobs.store_status import ask_sources
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory, ParsedInput, Relation
from cems_workbench.settings import Settings
from cems_workbench.sources.address import Address, parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineQuery, SourceError, Trial
from cems_workbench.store import Store
from tests.small_store import HashEmbedder

if TYPE_CHECKING:
    from conftest import Command


ROWS, DIMENSION = 300, 16
KEY = "a-key-that-nobody-shows"


def vectors(rows: int = ROWS) -> np.ndarray:
    return collection_rows.vectors(rows, DIMENSION)


def fill(client: Any, name: str = "notes", space: str = "cosine", users: Sequence[str | int] = ("ann",)) -> Any:
    collection = client.create_collection(
        name,
        embedding_function=None,
        metadata={"embedding_model": "some-model"},
        configuration={"hnsw": {"space": space, "ef_search": 57}},
    )
    collection.add(
        ids=[f"m{n}" for n in range(ROWS)],
        embeddings=vectors(),
        documents=[f"text {n}" for n in range(ROWS)],
        metadatas=[
            {"title": f"Title {n}", "user_id": users[n % len(users)], "scope": "shared" if n % 2 else "personal"}
            for n in range(ROWS)
        ],
    )
    return collection


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with chroma_server.running(tmp_path_factory.mktemp("chroma") / "db") as port:
        yield port


@pytest.fixture
def client(port: int) -> Iterator[Any]:
    import chromadb

    client = chromadb.HttpClient("127.0.0.1", port)
    yield client
    for each in client.list_collections():
        client.delete_collection(each.name)
    client.close()


def address(port: int, rest: str = "notes") -> Address:
    return parse(f"chroma://127.0.0.1:{port}/{rest}", {"CHROMA_API_KEY": KEY})


@pytest.mark.parametrize(("user", "place"), [("ann", 0), ("bob", 1), ("42", 2)])
def test_only_the_memories_of_a_user_are_taken_counted_and_found(client: Any, port: int, user: str, place: int) -> None:
    fill(client, "several", users=("ann", "bob", 42))
    own = {f"m{n}" for n in range(ROWS) if n % 3 == place}
    with closing(open_source(address(port, f"several?user={user}"))) as source:
        probe, found = source.probe(), memories(taken(source))
        (answer,) = source.search(EngineQuery("", vectors()[1], {"vector": 20}))
        (shared,) = source.search(EngineQuery("", vectors()[1], {"vector": 20}, "shared"))
    assert (probe.memories, probe.vectors) == (len(own), len(own)) and set(found) == own
    assert len(answer.hits) == 20 and {hit.memory_id for hit in answer.hits} <= own
    assert {hit.memory_id for hit in shared.hits} <= {name for name in own if int(name[1:]) % 2} and shared.hits


def test_a_user_whom_no_row_names_and_rows_that_name_nobody_are_one_line(client: Any, port: int) -> None:
    fill(client)
    with pytest.raises(InputError, match=r"notes\?user=eve: no row is of the user eve \(by user_id\)$"):
        open_source(address(port, "notes?user=eve"))
    bare = client.create_collection("bare", embedding_function=None)
    bare.add(ids=["a"], embeddings=vectors()[:1], documents=["x"])
    with pytest.raises(
        InputError, match=r"no row names its user \(user_id, .*\), so user= has no effect; map `author`$"
    ):
        open_source(address(port, "bare?user=ann"))


def test_a_collection_says_what_it_is(client, port) -> None:
    fill(client)
    with closing(open_source(address(port))) as source:
        probe = source.probe()
    assert (probe.kind, probe.memories, probe.vectors, probe.dimension, probe.distance) == (
        "chroma",
        ROWS,
        ROWS,
        DIMENSION,
        "cosine",
    )
    assert probe.engine.startswith("Chroma 1") and probe.index and "ef_search 57" in probe.index
    assert probe.model == "some-model"
    assert [(each.name, each.value, each.tries) for each in probe.settings] == [("hnsw.ef_search", "57", ())]
    assert any('collection.modify(configuration={"hnsw": {"ef_search": N}})' in note for note in probe.notes)
    assert any("title, author from user_id, scope" in note for note in probe.notes), probe.notes
    assert any("relations" in line for line in probe.missing)


def test_unread_keys_are_named_in_one_order(client, port) -> None:
    """chromadb 1.5.9 returns the keys of a row in another order at each call: findings/chroma_metadata_keys_in_any_order.sh."""
    keys = ("user_mood", "hash", "kind", "lang", "page", "note")
    collection = client.get_or_create_collection("keys")
    collection.add(
        ids=["a"], documents=["text"], embeddings=[[1.0] * DIMENSION], metadatas=[{key: key for key in keys}]
    )
    address = parse(f"chroma://localhost:{port}/keys")
    notes = set()
    for _ in range(5):
        with closing(open_source(address)) as source:
            notes.add(tuple(source.probe().notes))
    assert len(notes) == 1 and any("not read: " in note for note in notes.pop())


def test_a_snapshot_has_every_row_with_its_vector(client, port) -> None:
    fill(client)
    with closing(open_source(address(port))) as source:
        batches = taken(source)
    found = memories(batches)
    assert len(batches) > 1 and [problem for batch in batches for problem in batch.problems] == []
    assert sorted(found) == sorted(f"m{n}" for n in range(ROWS))
    for n, vector in enumerate(vectors()):
        each = found[f"m{n}"]
        assert (each.memory.content, each.memory.title, each.memory.author) == (f"text {n}", f"Title {n}", "ann")
        assert each.memory.scope == ("shared" if n % 2 else "personal")
        assert each.vector is not None and each.vector.dtype == np.float32
        np.testing.assert_allclose(each.vector, vector, rtol=1e-6)  # numbers travel as JSON


def test_only_what_changed_is_taken_again(client, port) -> None:
    collection = fill(client)
    with closing(open_source(address(port))) as source:
        before = {each.memory.id: each.marker for each in memories(taken(source)).values()}

        def changed(ids: Sequence[str], markers: Sequence[str]) -> list[str]:
            return [each for each, marker in zip(ids, markers, strict=True) if before.get(each) != marker]

        assert memories(taken(source, changed)) == {}
        collection.update(ids=["m1"], documents=["another text"], embeddings=vectors()[1:2])
        collection.update(ids=["m2"], metadatas=[{"title": "Another title"}])
        collection.update(ids=["m3"], embeddings=[np.ones(DIMENSION)])
        collection.add(ids=["new"], documents=["new"], embeddings=[np.ones(DIMENSION)])
        collection.delete(ids=["m4"])
        batches = taken(source, changed)
    assert sorted(memories(batches)) == ["m1", "m2", "m3", "new"]
    assert {each for batch in batches for each in batch.seen} == ({f"m{n}" for n in range(ROWS)} | {"new"}) - {"m4"}


def test_rows_that_no_memory_can_be_made_of_are_named(client, port) -> None:
    collection = fill(client)
    collection.add(ids=["none"], embeddings=[np.ones(DIMENSION)])
    collection.add(
        ids=["mem0"], embeddings=[np.ones(DIMENSION)], metadatas=[{"data": "likes tea", "created_at": 5, "priority": 9}]
    )
    collection.add(ids=["large"], embeddings=[np.ones(DIMENSION)], documents=["long " * 200_000])
    collection.add(ids=["longer"], embeddings=[np.ones(DIMENSION)], documents=["é" * 1_000_001])
    with closing(open_source(address(port))) as source:
        batches = taken(source)
    found = memories(batches)
    problems = [(each.memory_id, each.field) for batch in batches for each in batch.problems]
    assert problems == [("none", "document"), ("mem0", "priority"), ("longer", "content")]
    assert "none" not in found and "longer" not in found and found["mem0"].memory.content == "likes tea"
    assert len(found["large"].memory.content) == 1_000_000


@pytest.mark.parametrize("space", ["cosine", "l2", "ip"])
def test_a_search_gives_the_engines_list(client, port, space) -> None:
    fill(client, space=space)
    query = vectors()[5] + 0.1
    with closing(open_source(address(port))) as source:
        (answer,) = source.search(EngineQuery("", query, {"vector": 10}))
        (shared,) = source.search(EngineQuery("", query, {"vector": 10}, scope="shared"))
    expected = {
        "cosine": vectors() @ query / np.linalg.norm(vectors(), axis=1) / np.linalg.norm(query),
        "l2": -np.linalg.norm(vectors() - query, axis=1),
        "ip": vectors() @ query,
    }[space]
    assert (answer.name, answer.asked, len(answer.hits)) == ("vector", 10, 10)
    for hit in answer.hits:
        assert hit.score == pytest.approx(expected[int(hit.memory_id[1:])], abs=1e-4)
    assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
    assert all(int(hit.memory_id[1:]) % 2 for hit in shared.hits) and len(shared.hits) == 10


@pytest.mark.parametrize("trial", [Trial(exact=True), Trial({"hnsw.ef_search": "100"})])
def test_what_chroma_cannot_do_is_said(client, port, trial) -> None:
    fill(client)
    with closing(open_source(address(port))) as source, pytest.raises(SourceError) as error:
        source.search(EngineQuery("", vectors()[0], {"vector": 10}, None), trial)
    assert "exact list is computed here" in str(error.value) or "only for the whole collection" in str(error.value)


def test_collections_that_are_there_are_named(client, port) -> None:
    fill(client)
    client.create_collection("other", embedding_function=None)
    with pytest.raises(InputError, match=r"no collection noted; did you mean notes\? There are: notes, other"):
        open_source(address(port, "noted"))
    with pytest.raises(
        InputError, match=r"names no collection: add its name, as in \S+/notes; there are: notes, other"
    ):
        open_source(address(port, ""))


def test_a_vector_of_another_length_is_refused(client, port) -> None:
    fill(client)
    with closing(open_source(address(port))) as source, pytest.raises(SourceError, match="dimension of 16, got 3"):
        source.search(EngineQuery("", np.ones(3, np.float32), {"vector": 10}))


def test_rows_that_cannot_be_told_apart_are_named(client, port) -> None:
    collection = client.create_collection("chunks", embedding_function=None)
    places = [("a", number) for number in range(200)]
    collection.add(
        ids=[f"r{n}" for n in range(200)],
        embeddings=vectors(200),
        documents=[f"text {n}" for n in range(200)],
        metadatas=[{"doc_id": document, "seq": number} for document, number in places],
    )
    collection.add(
        ids=["twice", "a", "alone"],
        embeddings=vectors(3),
        documents=["twice", "a", "alone"],
        metadatas=[{"doc_id": "a", "seq": 7}, {"title": "named as the document is"}, {"title": "by itself"}],
    )
    with closing(open_source(address(port, "chunks"))) as source:
        probe, batches = source.probe(), taken(source)
    found = memories(batches)
    problems = [(each.memory_id, each.reason) for batch in batches for each in batch.problems]
    assert [each for each, _ in problems] == ["twice", "a"] and "chunk 7 of a" in problems[0][1]
    assert sorted(found) == ["a", "alone"] and probe.memories == 2
    assert [chunk.seq for chunk in found["a"].chunks] == list(range(200)) and found["alone"].chunks == ()


def test_a_server_that_stops_meanwhile_is_one_line(tmp_path: Path) -> None:
    import chromadb

    with chroma_server.running(tmp_path / "db") as own:
        client = chromadb.HttpClient("127.0.0.1", own)
        fill(client)
        client.close()
        source = open_source(address(own))
        snapshot = source.snapshot()
        batches = snapshot.__enter__().batches(all_new)
        next(batches)
    with pytest.raises(SourceError, match=rf"^chroma://127.0.0.1:{own}/notes: (nothing answers|the connection broke)"):
        list(batches)
    source.close()


def test_a_collection_that_goes_away_meanwhile_is_one_line(client, port) -> None:
    fill(client)
    with closing(open_source(address(port))) as source, source.snapshot() as snapshot:
        batches = snapshot.batches(all_new)
        next(batches)
        client.delete_collection("notes")
        with pytest.raises(SourceError) as error:
            list(batches)
    assert "\n" not in str(error.value) and "notes" in str(error.value)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"HTTP/1.1 401 no\r\nConnection: close\r\nContent-Length: 12\r\n\r\nUnauthorized",
    ],
)
def test_a_server_that_hangs_breaks_off_or_refuses_is_one_line_without_the_key(reply) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                if reply:
                    requests.append(connection.recv(65536).decode().lower())
                    connection.sendall(reply)
                    connection.close()

        kept: list[socket.socket] = []
        requests: list[str] = []
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(SourceError) as error:
            open_source(address(server.getsockname()[1]), timeout=1)
        server.shutdown(socket.SHUT_RDWR)
    said = str(error.value)
    assert "\n" not in said and KEY not in said
    assert all(f"x-chroma-token: {KEY}" in each and f"authorization: bearer {KEY}" in each for each in requests)
    assert bool(requests) == bool(reply)
    assert {b"": "no answer in 1 s", b"H": "key is refused" if b"401" in reply else "broke"}[reply[:1]] in said


def test_a_server_that_is_away_is_one_line() -> None:
    with pytest.raises(SourceError, match=r"chroma://127.0.0.1:9/notes: nothing answers at this address"):
        open_source(address(9))


def test_no_byte_of_a_directory_is_changed(tmp_path: Path) -> None:
    import chromadb

    directory = tmp_path / "my chroma"
    client = chromadb.PersistentClient(str(directory))
    fill(client)
    client.close()

    before = files_of(directory)
    with closing(open_source(parse(f"chroma:{str(directory).replace(' ', '%20')}/notes", {}))) as source:
        probe, found = source.probe(), memories(taken(source))
        (answer,) = source.search(EngineQuery("", vectors()[3], {"vector": 5}))
    assert files_of(directory) == before
    assert (len(found), probe.memories, answer.hits[0].memory_id) == (ROWS, ROWS, "m3")
    assert any("copy" in note for note in probe.notes)


def test_a_path_that_is_no_directory_of_chroma_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither .*notes nor .* has chroma.sqlite3"):
        open_source(parse(f"chroma:{tmp_path}/notes", {}))


MEMORIES = (
    Memory("a", "the harbor crane", "Crane", project="port", tags=("dock", "iron"), session="s1", author="ann"),
    Memory("b", "Crane parts are kept in hall two", "Crane", pinned=True, importance="high", access_count=3),
    Memory("c", " ".join(f"word{n}, line {n}.\n\n" for n in range(400)), "A long one", scope="shared", priority=1.5),
    Memory("d 1", "an id with a blank", created_at=datetime(2026, 5, 1, 12, 30, tzinfo=UTC), category="note"),
)
EDGES = (Relation("b", "a", "supersedes"), Relation("a", "c", "related", 0.25, "ann"))


def resources(path: Path) -> Resources:
    return Resources(Store.open(path), HashEmbedder(), servers(Settings()))


def taken_from(folder: Path, to: Resources, **options: Any) -> Any:
    address = folder_address(folder, re_embed=options.pop("re_embed", False))
    return connect(to, Settings(), source_specs(to, address), only_searchable=True, **options)


def everything(found: Resources) -> Sequence[Any]:
    store = found.store
    ids = store.memories.ids()
    query: Float32 = HashEmbedder().encode(["crane"])[0]
    texts = store.indexes.texts(ids)
    hits = [memory_id for memory_id, _ in found.indexes.vectors.search(query, 10)]
    return (
        store.memories.read(),
        store.chunks.read(ids),
        texts,
        store.relations.read(),
        hits,
        found.indexes.lexical.search("crane", 9),
    )


def test_a_store_through_a_folder_of_chroma_is_the_same_and_embeds_no_memory(tmp_path: Path) -> None:
    import chromadb

    with closing(resources(tmp_path / "one")) as one, closing(resources(tmp_path / "two")) as two:
        one.store.add(ParsedInput("a.jsonl", "test", memories=MEMORIES, relations=EDGES))
        with pytest.raises(InputError, match="no current vectors of hash-16"):
            export_chroma(one.store, one.embedder, tmp_path / "out")
        one.store.chunks.choose("cems")
        one.refresh()
        report = export_chroma(one.store, one.embedder, tmp_path / "out")
        before = files_of(tmp_path / "out")
        refreshed, refresh = [], two.refresh
        two.refresh = lambda *given: refreshed.append(refresh(*given))  # type: ignore[method-assign]
        taken_from(tmp_path / "out", two)
        assert [each.embedded for each in refreshed] == [0]
        two.refresh = refresh  # type: ignore[method-assign]
        assert files_of(tmp_path / "out") == before
        for here, there in zip(everything(two), everything(one), strict=True):
            assert here == there
        chunks = two.store.chunks.statistics().chunks
        assert chunks > len(MEMORIES) and report.values["vectors"] == chunks
        assert [(each.problem, each.difference) for each in ask_sources(two.store)()] == [("", 0)]
        assert (two.refresh(), taken_from(tmp_path / "out", two).sources[0].read) == (None, 0)
        with pytest.raises(InputError, match="must be a new or empty folder"):
            export_chroma(one.store, one.embedder, tmp_path / "out")
    client = chromadb.PersistentClient(str(tmp_path / "out"))
    collection = client.get_collection(COLLECTION)
    assert (collection.count(), collection.metadata["embedder"]) == (chunks, "hash-16")
    found = collection.get(where={"tags": {"$contains": "iron"}})
    assert (found["ids"], found["documents"]) == (["a\x1f0"], ["the harbor crane"])
    nearest: Any = collection.query(query_embeddings=HashEmbedder().encode(["the harbor crane"]), n_results=1)
    assert (nearest["ids"], nearest["distances"][0][0]) == ([["a\x1f0"]], pytest.approx(0, abs=1e-6))


def folder_of(path: Path, rows: Mapping[str, str], vectors: Float32, names: Sequence[str] = ("notes",)) -> Path:
    import chromadb

    client: Any = chromadb.PersistentClient(str(path))
    for name in names:
        collection = client.create_collection(name, embedding_function=None, configuration={"hnsw": {"space": "l2"}})
        collection.add(ids=list(rows), documents=list(rows.values()), embeddings=vectors)
    client.close()
    return path


TEXTS = {"x": "one text", "y": "another", "z": "a third"}


def test_vectors_that_are_longer_than_1_are_searched_as_they_are(tmp_path: Path) -> None:
    embedder = HashEmbedder()
    folder = folder_of(tmp_path / "chroma", TEXTS, embedder.encode(list(TEXTS.values())) * 7)
    with closing(resources(tmp_path / "store")) as to:
        report = taken_from(folder / "notes", to)
        assert "3 of 3 stored vectors reproduced" in report.sources[0].embedder
        ((memory_id, cosine), *_) = to.indexes.vectors.search(embedder.encode(["another"])[0], 3)
        assert (memory_id, cosine) == ("y", pytest.approx(1.0, abs=1e-6))


@pytest.mark.parametrize("dimension", [16, 24])
def test_vectors_of_another_embedder_change_nothing_unless_the_texts_are_embedded_here(
    dimension: int, tmp_path: Path
) -> None:
    vectors = np.random.default_rng(0).normal(size=(3, dimension)).astype(np.float32)
    folder = folder_of(tmp_path / "chroma", TEXTS, vectors)
    with closing(resources(tmp_path / "store")) as to:
        to.store.add(ParsedInput("a.jsonl", "test", memories=MEMORIES[:1]))
        to.refresh()
        with pytest.raises(InputError, match=r"nothing was imported: --embedder MODEL .* --re-embed"):
            taken_from(folder, to)
        assert (to.store.memories.ids(), to.store.sources.read(), to.refresh()) == (["a"], [], None)
        taken_from(folder, to, re_embed=True)
        assert to.indexes.vectors.search(HashEmbedder().encode(["another"])[0], 1)[0][0] == "y"


def test_a_folder_that_cannot_be_imported_is_one_line(command: Command, tmp_path: Path) -> None:
    two = folder_of(tmp_path / "two", TEXTS, np.eye(3, dtype=np.float32), ("one", "other"))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "chroma.sqlite3").write_bytes(b"not a database " * 999)
    (empty := tmp_path / "empty").mkdir()
    said = {
        (two,): "names no collection: add its name, as in chroma:",
        (two / "ohter",): "did you mean other? There are: one, other",
        (two / "one", "--language", "german"): "only --embedder, --re-embed and --store are for one",
        (tmp_path / "damaged",): "file is not a database",
        (empty,): "it is empty",
        (empty, "--re-embed"): "is no folder of Chroma",
    }
    for words, line in said.items():
        done = command("import", *words, "--store", tmp_path / "store")
        assert (done.code, done.out) == (2, "") and line in done.err.splitlines()[-1], words
    done = command("export", "--store", tmp_path / "store")
    assert done.code == 2 and "--chroma DIR" in done.err


def test_the_texts_of_a_folder_without_its_vectors_can_still_be_taken(tmp_path: Path) -> None:
    rows = {f"r{n}": f"text {n}" for n in range(1_100)}  # from a thousand on Chroma writes files of vectors
    folder = folder_of(tmp_path / "chroma", rows, np.random.default_rng(0).normal(size=(1_100, 16)).astype(np.float32))
    for file in folder.glob("*/*"):
        file.unlink()
    with closing(resources(tmp_path / "store")) as to:
        with pytest.raises(SourceError, match=r"files of its vectors are damaged; import --re-embed"):
            taken_from(folder, to)
        assert (to.store.memories.count(), to.store.sources.read()) == (0, [])
        assert taken_from(folder, to, re_embed=True).sources[0].memories.added == len(rows)
