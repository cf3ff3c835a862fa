"""Qdrant as a source: its client's local mode, of whose directory no byte changes, and servers that fail."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import qdrant_rest
from collection_rows import files_of, memories, taken, vectors
from qdrant_client import QdrantClient
from qdrant_client import models as qdrant

from cems_workbench.errors import InputError
from cems_workbench.sources.address import Address, parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineQuery, SourceError, Trial

ROWS, DIMENSION = 80, 16
KEY = "a-key-that-nobody-shows"


def ids(n: int) -> str:
    return str(uuid.UUID(int=n + 1))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "qdrant"


@contextmanager
def written(directory: Path) -> Iterator[QdrantClient]:
    client = QdrantClient(path=str(directory))
    yield client
    client.close()


def fill(
    directory: Path, distance: qdrant.Distance = qdrant.Distance.DOT, users: Sequence[str | int] = ("ann",)
) -> None:
    """As mem0 writes it."""
    with written(directory) as client:
        client.create_collection("mem0", vectors_config=qdrant.VectorParams(size=DIMENSION, distance=distance))
        rows = [
            {
                "data": f"text {n}",
                "user_id": users[n % len(users)],
                "run_id": "r1",
                "hash": "x",
                "created_at": "2026-01-02T03:04:05-08:00",
                "scope": "team" if n % 2 else "private",
            }
            for n in range(ROWS)
        ]
        near = vectors(ROWS, DIMENSION).tolist()
        client.upsert(
            "mem0", [qdrant.PointStruct(id=ids(n), vector=near[n], payload=row) for n, row in enumerate(rows)]
        )


def address(directory: Path, rest: str = "mem0") -> Address:
    return parse(f"qdrant:{directory}/{rest}", {})


def of_several(directory: Path) -> None:
    """What mem0 keeps of several users: of each their id as a text, of one as a number."""
    fill(directory, qdrant.Distance.COSINE, ("ann", "bob", 42))


@pytest.mark.parametrize(("user", "place"), [("ann", 0), ("bob", 1), ("42", 2)])
def test_only_the_memories_of_a_user_are_taken_counted_and_found(directory: Path, user: str, place: int) -> None:
    of_several(directory)
    own = [n for n in range(ROWS) if n % 3 == place]
    with closing(open_source(address(directory, f"mem0?user={user}"))) as source:
        probe, found = source.probe(), memories(taken(source))
        query = vectors(ROWS, DIMENSION)[1]
        (answer,) = source.search(EngineQuery("", query, {"vector": ROWS}))
        (shared,) = source.search(EngineQuery("", query, {"vector": ROWS}, "shared"))
    assert (probe.memories, probe.vectors) == (len(own), len(own))
    assert f"only the rows of {user}, by user_id" in probe.notes
    assert set(found) == {ids(n) for n in own}
    cosines = vectors(ROWS, DIMENSION) @ query / np.linalg.norm(vectors(ROWS, DIMENSION), axis=1)
    best = sorted(own, key=lambda n: -cosines[n])
    assert [hit.memory_id for hit in answer.hits] == [ids(n) for n in best]
    assert [hit.memory_id for hit in shared.hits] == [ids(n) for n in best if n % 2]


def test_a_user_whom_no_row_names_is_one_line(directory: Path) -> None:
    of_several(directory)
    with pytest.raises(InputError, match=r"mem0\?user=eve: no row is of the user eve \(by user_id\)$"):
        open_source(address(directory, "mem0?user=eve"))
    mapped = {"author": "scope"}
    with closing(open_source(address(directory, "mem0?user=team"), mapped)) as source:
        assert source.probe().memories == ROWS // 2


def test_memories_of_mem0_are_taken_and_no_byte_is_changed(directory) -> None:
    fill(directory)
    before = files_of(directory)
    with closing(open_source(address(directory))) as source:
        probe, found = source.probe(), memories(taken(source))
        (answer,) = source.search(EngineQuery("", vectors(ROWS, DIMENSION)[3], {"vector": 5}))
    assert files_of(directory) == before
    assert (probe.kind, probe.memories, probe.vectors, probe.dimension, probe.distance) == (
        "qdrant",
        ROWS,
        ROWS,
        DIMENSION,
        "ip",
    )
    assert probe.index is None and probe.settings == ()
    assert any("author from user_id" in note and "session from run_id" in note for note in probe.notes), probe.notes
    assert sorted(found) == sorted(map(ids, range(ROWS)))
    each = found[ids(7)]
    assert (each.memory.content, each.memory.author, each.memory.session, each.memory.scope) == (
        "text 7",
        "ann",
        "r1",
        "shared",
    )
    assert each.memory.created_at is not None and each.memory.created_at.isoformat() == "2026-01-02T11:04:05+00:00"
    assert each.vector is not None and np.array_equal(each.vector, vectors(ROWS, DIMENSION)[7])
    rows = vectors(ROWS, DIMENSION)
    assert [hit.memory_id for hit in answer.hits] == [ids(int(n)) for n in np.argsort(-(rows @ rows[3]))[:5]]


def test_a_mapping_says_what_a_field_is_and_takes_all_anew(directory) -> None:
    fill(directory)
    with closing(open_source(address(directory))) as source:
        before = {each.memory.id: each.marker for each in memories(taken(source)).values()}
    with closing(open_source(address(directory), {"title": "hash"})) as source:
        found = memories(taken(source))
    assert found[ids(1)].memory.title == "x" and found[ids(1)].marker != before[ids(1)]
    with pytest.raises(InputError, match="titel is no field of a memory; did you mean title"):
        open_source(address(directory), {"titel": "hash"})


@pytest.mark.parametrize("distance", [qdrant.Distance.COSINE, qdrant.Distance.EUCLID, qdrant.Distance.DOT])
def test_a_search_gives_the_engines_list(directory, distance) -> None:
    fill(directory, distance)
    rows = vectors(ROWS, DIMENSION)
    query = rows[5] + 0.1
    expected = {
        "Cosine": rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query),
        "Euclid": -np.linalg.norm(rows - query, axis=1),
        "Dot": rows @ query,
    }[distance.value]
    with closing(open_source(address(directory))) as source:
        (answer,) = source.search(EngineQuery("", query, {"vector": 10}))
        (tried,) = source.search(EngineQuery("", query, {"vector": 10}), Trial({"hnsw_ef": "64"}, exact=True))
        (shared,) = source.search(EngineQuery("", query, {"vector": ROWS}, scope="shared"))
        (personal,) = source.search(EngineQuery("", query, {"vector": ROWS}, scope="personal"))
    best = np.argsort(-expected)[:10]
    assert (
        [hit.memory_id for hit in answer.hits] == [ids(int(n)) for n in best] == [hit.memory_id for hit in tried.hits]
    )
    np.testing.assert_allclose([hit.score for hit in answer.hits], expected[best], rtol=1e-4)
    assert {hit.memory_id for hit in shared.hits} == {ids(n) for n in range(1, ROWS, 2)}
    assert {hit.memory_id for hit in personal.hits} == {ids(n) for n in range(0, ROWS, 2)}


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"ef": "1"}, "ef is no setting of a search; there are hnsw_ef, indexed_only"),
        ({"hnsw_ef": "many"}, "hnsw_ef must be a whole number from 1, found 'many'"),
        ({"indexed_only": "1"}, "indexed_only must be true or false, found '1'"),
    ],
)
def test_a_setting_that_is_none_is_refused(directory, settings, line) -> None:
    fill(directory)
    with closing(open_source(address(directory))) as source, pytest.raises(SourceError, match=line):
        source.search(EngineQuery("", vectors(1, DIMENSION)[0], {"vector": 10}), Trial(settings))


def test_a_vector_of_another_length_is_refused(directory) -> None:
    fill(directory)
    with (
        closing(open_source(address(directory))) as source,
        pytest.raises(SourceError, match="has 3 numbers, those of the collection 16"),
    ):
        source.search(EngineQuery("", np.ones(3, np.float32), {"vector": 10}))


def test_of_several_vectors_one_is_named(directory) -> None:
    with written(directory) as client:
        parameters = {
            name: qdrant.VectorParams(size=size, distance=qdrant.Distance.DOT)
            for name, size in (("title", 2), ("body", 3))
        }
        said = {"page_content": "one", "metadata": {"source": "a.md"}}
        client.create_collection("two", vectors_config=parameters)
        client.upsert(
            "two",
            [
                qdrant.PointStruct(id=1, vector={"title": [1, 2], "body": [1, 2, 3]}, payload=said),
                qdrant.PointStruct(id=2, vector={"title": [1, 2]}, payload={"page_content": "two"}),
                qdrant.PointStruct(id=3, vector={"body": [3, 2, 1]}, payload={}),
            ],
        )
    with pytest.raises(InputError, match=r"a point has 2 vectors; add \?vector= with one of: body, title"):
        open_source(address(directory, "two"))
    with pytest.raises(InputError, match=r"a point has no vector bdy; add \?vector= with one of: body, title"):
        open_source(address(directory, "two?vector=bdy"))
    with closing(open_source(address(directory, "two?vector=body"))) as source:
        probe, batches = source.probe(), taken(source)
    found = memories(batches)
    assert probe.dimension == 3 and any("source_ref from metadata.source" in note for note in probe.notes)
    assert found["1"].memory.source_ref == "a.md" and list(found["1"].vector) == [1, 2, 3]
    assert found["2"].vector is None
    assert [(each.memory_id, each.field) for batch in batches for each in batch.problems] == [
        ("3", "document"),
        ("2", "vector"),
    ]


def test_rows_of_one_document_are_its_chunks_wherever_the_payload_says_so(directory) -> None:
    with written(directory) as client:
        client.create_collection("chunks", vectors_config=qdrant.VectorParams(size=4, distance=qdrant.Distance.DOT))
        places = [("a", 1), ("a", 0), ("b", 0)]
        client.upsert(
            "chunks",
            [
                qdrant.PointStruct(
                    id=n,
                    vector=vectors(3, 4)[n].tolist(),
                    payload={"page_content": f"text {n}", "metadata": {"document_id": document, "chunk_index": number}},
                )
                for n, (document, number) in enumerate(places)
            ],
        )
    with closing(open_source(address(directory, "chunks"))) as source:
        probe, found = source.probe(), memories(taken(source))
        (answer,) = source.search(EngineQuery("", vectors(3, 4)[0], {"vector": 3}))
    assert (probe.memories, probe.vectors) == (2, 3)
    assert [(chunk.seq, chunk.text) for chunk in found["a"].chunks] == [(0, "text 1"), (1, "text 0")]
    assert {(hit.memory_id, hit.seq) for hit in answer.hits} == {("a", 0), ("a", 1), ("b", 0)}


def test_collections_that_are_there_are_named(directory) -> None:
    fill(directory)
    with pytest.raises(InputError, match=r"no collection mem1; did you mean mem0\? There are: mem0"):
        open_source(address(directory, "mem1"))
    with closing(open_source(parse(f"qdrant:{directory}", {}))) as source:
        assert source.probe().memories == ROWS
    with pytest.raises(InputError, match=r"neither .* has meta.json"):
        open_source(address(directory.parent / "elsewhere"))


def test_a_server_is_only_read_and_its_index_may_be_tried_for_one_search(directory) -> None:
    fill(directory)
    with written(directory) as client, qdrant_rest.running(client, KEY, indexed=70) as rest:
        where = parse(f"qdrant://127.0.0.1:{rest.port}/mem0", {"QDRANT_API_KEY": KEY})
        with closing(open_source(where)) as source:
            probe, found = source.probe(), memories(taken(source))
            query = EngineQuery("", vectors(ROWS, DIMENSION)[3], {"vector": 5}, scope="shared")
            (answer,) = source.search(query)
            (tried,) = source.search(query, Trial({"hnsw_ef": "256", "indexed_only": "true"}))
            (exact,) = source.search(query, Trial(exact=True))
        with pytest.raises(
            SourceError, match=r"the key is refused or missing: set QDRANT_API_KEY \(Invalid API key or JWT\)$"
        ):
            open_source(parse(f"qdrant://127.0.0.1:{rest.port}/mem0", {"QDRANT_API_KEY": "another"}))
    assert (probe.engine, probe.memories, probe.dimension) == ("Qdrant 1.16.0", ROWS, DIMENSION)
    assert probe.index == "HNSW (m 16, ef_construct 100, full_scan_threshold 10000 KB)"
    assert [(each.name, each.value, each.tries) for each in probe.settings] == [
        ("hnsw_ef", "100", ("64", "128", "256", "512"))
    ]
    assert any(note.startswith("70 vectors are in the index") for note in probe.notes)
    assert sorted(found) == sorted(map(ids, range(ROWS)))
    np.testing.assert_allclose(found[ids(5)].vector, vectors(ROWS, DIMENSION)[5], rtol=1e-6)
    assert answer.hits == tried.hits == exact.hits and len(answer.hits) == 5
    parameters = [search.get("params") or {} for search in rest.searches]
    assert [(each.get("hnsw_ef"), bool(each.get("indexed_only")), bool(each.get("exact"))) for each in parameters] == [
        (None, False, False),
        (256, True, False),
        (None, False, True),
    ]
    assert {path.removeprefix("/collections/mem0") for _, path in rest.asked} == {
        "/",
        "/collections",
        "",
        "/points",
        "/points/count",
        "/points/scroll",
        "/points/query",
    }
    assert {method for method, _ in rest.asked} == {"GET", "POST"}, (
        "points are written by PUT, and by POST to none of these"
    )


@contextmanager
def answering(status: int, body: str, wait: threading.Event | None = None) -> Iterator[int]:
    """The port of an HTTP server that answers this to everything, after `wait`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if wait:
                wait.wait(20)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        if wait:
            wait.set()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "line"),
    [
        (401, f"bad key {KEY}", "the key is refused or missing: set QDRANT_API_KEY"),
        (500, json.dumps({"status": {"error": f"broken\n{KEY}"}}), "HTTP 500: broken"),
        (200, "{", "not an answer of Qdrant"),
        (200, "<html>", "not an answer of Qdrant"),
    ],
)
def test_a_server_that_fails_is_one_line_without_the_key(status, body, line) -> None:
    with answering(status, body) as port, pytest.raises(SourceError) as error:
        open_source(parse(f"qdrant://127.0.0.1:{port}/mem0", {"QDRANT_API_KEY": KEY}), timeout=5)
    assert line in str(error.value) and KEY not in str(error.value) and "\n" not in str(error.value)


def test_a_server_that_hangs_or_is_away_is_one_line() -> None:
    with (
        answering(200, "{}", threading.Event()) as port,
        pytest.raises(SourceError, match=r"no answer in 0.5 s|did not answer in time"),
    ):
        open_source(parse(f"qdrant://127.0.0.1:{port}/mem0", {}), timeout=0.5)
    with pytest.raises(SourceError, match=r"qdrant://127.0.0.1:9/mem0: nothing answers at this address"):
        open_source(parse("qdrant://127.0.0.1:9/mem0", {}), timeout=5)
