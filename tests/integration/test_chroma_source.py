"""Chroma as a source: a real server, and a directory of which no byte changes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import chroma_server
import collection_rows
import numpy as np
import pytest
from collection_rows import all_new, files_of, memories, taken

from cems_workbench.errors import InputError
from cems_workbench.sources.address import Address, parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineQuery, SourceError, Trial

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
