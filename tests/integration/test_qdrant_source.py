"""Qdrant as a source: collections over REST and folders, its lists by words and fused ones, compared with its own answers."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import qdrant_rest
from collection_rows import files_of, memories, taken, vectors
from model_server import HANG, Reply, serving

from cems_workbench.errors import InputError
from cems_workbench.sources.address import Address, parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineList, EngineQuery, ListName, SourceError, Trial
from tests.lazily import Lazy

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

    from workbench_stores.qdrant import QueryWeight

library, qdrant, bm25 = Lazy("qdrant_client"), Lazy("qdrant_client.models"), Lazy("workbench_stores.qdrant")
ROWS, DIMENSION = 80, 16
KEY = "a-key-that-nobody-shows"


def ids(n: int) -> str:
    return str(uuid.UUID(int=n + 1))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "qdrant"


@contextmanager
def written(directory: Path) -> Iterator[QdrantClient]:
    client = library.QdrantClient(path=str(directory))
    yield client
    client.close()


def fill(
    directory: Path, distance: str = "Dot", users: Sequence[str | int] = ("ann",)
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
    fill(directory, "Cosine", ("ann", "bob", 42))


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
    assert probe.index is None and probe.settings == () and probe.preset == "mem0"
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


@pytest.mark.parametrize("distance", ["Cosine", "Euclid", "Dot"])
def test_a_search_gives_the_engines_list(directory, distance: str) -> None:
    fill(directory, distance)
    rows = vectors(ROWS, DIMENSION)
    query = rows[5] + 0.1
    expected = {
        "Cosine": rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query),
        "Euclid": -np.linalg.norm(rows - query, axis=1),
        "Dot": rows @ query,
    }[distance]
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
    reply = Reply(body.encode(), status)
    with serving(lambda *asked: reply) as server, pytest.raises(SourceError) as error:
        open_source(parse(f"qdrant:{server.url[5:]}/mem0", {"QDRANT_API_KEY": KEY}), timeout=5)
    assert line in str(error.value) and KEY not in str(error.value) and "\n" not in str(error.value)


def test_a_server_that_hangs_or_is_away_is_one_line() -> None:
    with (
        serving(lambda *asked: HANG) as server,
        pytest.raises(SourceError, match=r"no answer in 0.5 s|did not answer in time"),
    ):
        open_source(parse(f"qdrant:{server.url[5:]}/mem0", {}), timeout=0.5)
    with pytest.raises(SourceError, match=r"qdrant://127.0.0.1:9/mem0: nothing answers at this address"):
        open_source(parse("qdrant://127.0.0.1:9/mem0", {}), timeout=5)


TEXTS = (
    "Roll back a deploy with make undo.",
    "A deploy is rolled back by the release captain.",
    "Deploys happen on Tuesdays, a deploy an hour.",
    "The gateway limits requests for each tenant.",
    "Tea is green.",
    "The harbor dashboard has dark mode.",
    "Tests run in containers, on port 5433.",
    "Rate limits of the gateway are in gateway.yaml.",
)
QUERIES = ("who rolls back a deploy", "gateway limits", "port 5433 of the tests", "dark green tea", "release")
HYBRID_DIMENSION = 8
BOTH: tuple[ListName, ...] = ("vector", "sparse", "source_hybrid")


def dense(text: str) -> list[float]:
    """A vector that depends on the text alone."""
    return np.random.default_rng(sum(map(ord, text))).normal(size=HYBRID_DIMENSION).astype(np.float32).tolist()


def as_sparse(vector: Mapping[int, float]) -> Any:
    return qdrant.SparseVector(indices=list(vector), values=list(vector.values()))


def fill_hybrid(
    directory: Path, name: str = "sparse", idf: bool = True, factor: float = 1.0, key: str = "page_content"
) -> None:
    client = library.QdrantClient(path=str(directory))
    client.create_collection(
        "notes",
        vectors_config={"dense": qdrant.VectorParams(size=HYBRID_DIMENSION, distance=qdrant.Distance.COSINE)},
        sparse_vectors_config={name: qdrant.SparseVectorParams(modifier=qdrant.Modifier.IDF if idf else None)},
    )
    client.upsert(
        "notes",
        [
            qdrant.PointStruct(
                id=i,
                vector={
                    "dense": dense(text),
                    name: as_sparse({number: factor * weight for number, weight in bm25.document_vector(text).items()}),
                },
                payload={key: text, "scope": "team" if i % 2 else "private"},
            )
            for i, text in enumerate(TEXTS)
        ],
    )
    client.close()


def asked(
    client: QdrantClient, query: str, k: int, weight: QueryWeight = "one", name: str = "sparse"
) -> dict[str, Any]:
    """What langchain-qdrant's three modes ask for a query."""
    vector, words = dense(query), as_sparse(bm25.query_vector(query, weight))
    parts = [
        qdrant.Prefetch(using="dense", query=vector, limit=k),
        qdrant.Prefetch(using=name, query=words, limit=k),
    ]
    fused = qdrant.FusionQuery(fusion=qdrant.Fusion.RRF)
    return {
        "vector": client.query_points("notes", query=vector, using="dense", limit=k),
        "sparse": client.query_points("notes", query=words, using=name, limit=k),
        "source_hybrid": client.query_points("notes", prefetch=parts, query=fused, limit=k),
    }


def check_equal(found: EngineList, answer: Any, first: int | None = None) -> None:
    """The same points in the same order, with the same scores."""
    assert [hit.memory_id for hit in found.hits[:first]] == [str(point.id) for point in answer.points], found.name
    scores = [point.score for point in answer.points]
    assert [hit.score for hit in found.hits[:first]] == pytest.approx(scores, rel=1e-6), found.name


def lists(where: str, query: str, depths: Mapping[ListName, int], scope: str | None = None) -> dict[str, EngineList]:
    with closing(open_source(parse(where, {}))) as source:
        found = source.search(EngineQuery(query, np.array(dense(query), np.float32), depths, scope))
    return {each.name: each for each in found}


def test_lists_are_those_that_the_client_answers(tmp_path: Path) -> None:
    fill_hybrid(tmp_path / "q")
    before = files_of(tmp_path / "q")
    with closing(open_source(parse(f"qdrant:{tmp_path / 'q'}/notes", {}))) as source:
        probe = source.probe()
        answers = {
            (query, k): source.search(EngineQuery(query, np.array(dense(query), np.float32), dict.fromkeys(BOTH, k)))
            for query in QUERIES
            for k in (2, 6)
        }
    assert probe.lists == BOTH and files_of(tmp_path / "q") == before
    assert any("BM25 as fastembed makes it, 8 of 8 reproduced" in note for note in probe.notes)
    assert "source_hybrid is Qdrant's RRF of dense and sparse, each cut to the rows wanted first" in probe.notes
    client = library.QdrantClient(path=str(tmp_path / "q"))
    for (query, k), found in answers.items():
        own = asked(client, query, k)
        assert [each.name for each in found] == list(BOTH)
        for each in found:
            check_equal(each, own[each.name])
    client.close()
    # Constant 2, positions from 0: first in both lists is 1/2 + 1/2, as Qdrant documents it.
    best = max(found[2].hits[0].score for found in answers.values())
    assert best == pytest.approx(1.0)


def test_options_choose_fusion_prefetch_and_the_weight_of_a_querys_words(tmp_path: Path) -> None:
    fill_hybrid(tmp_path / "q")
    where, query = f"qdrant:{tmp_path / 'q'}/notes", QUERIES[0]
    client = library.QdrantClient(path=str(tmp_path / "q"))
    fixed, weighed = asked(client, query, 2), asked(client, query, 6, "document")
    parts = [
        qdrant.Prefetch(using="dense", query=dense(query), limit=6),
        qdrant.Prefetch(using="sparse", query=as_sparse(bm25.query_vector(query, "one")), limit=6),
    ]
    dbsf = client.query_points("notes", prefetch=parts, query=qdrant.FusionQuery(fusion=qdrant.Fusion.DBSF), limit=6)
    client.close()
    found = lists(f"{where}?prefetch=2", query, {"source_hybrid": 6})["source_hybrid"]
    # Both lists are cut to two before they are fused, so no more than their union comes back.
    check_equal(found, fixed["source_hybrid"], first=2)
    assert len(found.hits) <= 4
    check_equal(lists(f"{where}?sparse_query=document", query, {"sparse": 6})["sparse"], weighed["sparse"])
    check_equal(lists(f"{where}?fusion=dbsf", query, {"source_hybrid": 6})["source_hybrid"], dbsf)


def test_a_scope_restricts_both_parts_of_a_fused_list(tmp_path: Path) -> None:
    fill_hybrid(tmp_path / "q")
    found = lists(f"qdrant:{tmp_path / 'q'}/notes", "gateway limits", dict.fromkeys(BOTH, 8), "shared")
    for each in found.values():
        assert each.hits and {int(hit.memory_id) % 2 for hit in each.hits} == {1}


def test_a_query_of_stop_words_has_no_sparse_list_and_the_fused_one_is_the_dense(tmp_path: Path) -> None:
    fill_hybrid(tmp_path / "q")
    found = lists(f"qdrant:{tmp_path / 'q'}/notes", "of the", dict.fromkeys(BOTH, 3))
    assert found["sparse"].hits == ()
    assert [hit.memory_id for hit in found["source_hybrid"].hits] == [hit.memory_id for hit in found["vector"].hits]


@pytest.mark.parametrize(
    ("filled", "options", "line"),
    [
        (
            {"key": "page_content", "factor": 2.0},
            "?sparse_query=document",
            "weighted otherwise, and sparse_query=document",
        ),
        ({"key": "words_of_it"}, "", "could not be compared with texts: no point has both"),
        ({"name": "bm25", "factor": 2.0}, "", "weighted otherwise"),
    ],
)
def test_sparse_vectors_that_no_query_vector_fits_are_not_asked(
    tmp_path: Path, filled: dict[str, Any], options: str, line: str
) -> None:
    fill_hybrid(tmp_path / "q", **filled)
    with closing(open_source(parse(f"qdrant:{tmp_path / 'q'}/notes{options}", {}))) as source:
        probe = source.probe()
        (only,) = source.search(EngineQuery("gateway", np.ones(HYBRID_DIMENSION, np.float32), dict.fromkeys(BOTH, 3)))
    assert probe.lists == ("vector",) and only.name == "vector"
    assert any(line in note for note in probe.notes)


def test_vectors_of_another_encoder_are_named_with_what_follows(tmp_path: Path) -> None:
    fill_hybrid(tmp_path / "q")
    client = library.QdrantClient(path=str(tmp_path / "q"))
    strange = qdrant.SparseVector(indices=[1, 2], values=[0.5, 0.5])
    client.update_vectors("notes", [qdrant.PointVectors(id=3, vector={"sparse": strange})])
    client.close()
    with closing(open_source(parse(f"qdrant:{tmp_path / 'q'}/notes", {}))) as source:
        probe = source.probe()
    assert probe.lists == ("vector",)
    assert (
        "sparse vectors sparse (idf by Qdrant) are of another encoder (7 of 8 reproduced from their texts): neither their list nor a "
        "fused one is asked"
    ) in probe.notes


def test_bm25_of_a_text_index_is_the_list_by_words_where_it_is_named(tmp_path: Path) -> None:
    fill_hybrid(tmp_path / "q")
    where, query = f"qdrant:{tmp_path / 'q'}/notes?text_index=page_content", QUERIES[0]
    with pytest.raises(SourceError, match=r"text_index=page_content: .* needs a text index with `scoring`"):
        open_source(parse(where, {}))
    client = library.QdrantClient(path=str(tmp_path / "q"))
    scoring = qdrant.TextScoringParams(type=qdrant.TextScoringType.BM25)
    client.create_payload_index("notes", "page_content", qdrant.TextIndexParams(type="text", scoring=scoring))
    words = {"query": qdrant.TextQuery(text=query), "using": "page_content"}
    alone = client.query_points("notes", limit=3, **words)
    parts = [qdrant.Prefetch(query=dense(query), using="dense", limit=3), qdrant.Prefetch(limit=3, **words)]
    fused = client.query_points("notes", prefetch=parts, query=qdrant.FusionQuery(fusion=qdrant.Fusion.RRF), limit=3)
    client.close()
    found = lists(where, query, dict.fromkeys(BOTH, 3))
    check_equal(found["sparse"], alone)
    check_equal(found["source_hybrid"], fused)
    assert len(alone.points) > 1


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("sparse=words", "a point has no sparse vector words; there are: sparse"),
        ("fusion=sum", "fusion is sum; allowed: rrf, dbsf"),
        ("sparse_query=two", "sparse_query is two; allowed: one, document"),
        ("prefetch=0", "prefetch is 0; allowed: a whole number from 1 to 10,000"),
        ("sparse=sparse&text_index=page_content", "text_index and sparse are two lists by words; name one"),
        ("prefetch=many", "prefetch is many; allowed"),
    ],
)
def test_an_option_that_is_none_is_one_line(tmp_path: Path, options: str, line: str) -> None:
    fill_hybrid(tmp_path / "q")
    with pytest.raises(InputError, match=line):
        open_source(parse(f"qdrant:{tmp_path / 'q'}/notes?{options}", {}))


def test_a_server_is_asked_for_the_same(tmp_path: Path) -> None:
    fill_hybrid(tmp_path / "q")
    client = library.QdrantClient(path=str(tmp_path / "q"))
    with qdrant_rest.running(client, "key", indexed=0) as rest:
        where = parse(f"qdrant://127.0.0.1:{rest.port}/notes", {"QDRANT_API_KEY": "key"})
        with closing(open_source(where)) as source:
            query = EngineQuery(QUERIES[0], np.array(dense(QUERIES[0]), np.float32), dict.fromkeys(BOTH, 4))
            found = source.search(query)
    own = asked(client, QUERIES[0], 4)
    client.close()
    for each in found:
        check_equal(each, own[each.name])
    assert [part["limit"] for part in rest.searches[-1]["prefetch"]] == [4, 4]
    assert rest.searches[-1]["query"] == {"fusion": "rrf"}


def as_shard(folder: Path) -> Any:
    """The same points in a shard of Qdrant Edge."""
    import qdrant_edge as edge

    vectors = {"dense": edge.EdgeVectorParams(size=HYBRID_DIMENSION, distance=edge.Distance.Cosine)}
    sparse = {"sparse": edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)}
    folder.mkdir()
    shard = edge.EdgeShard.create(str(folder), edge.EdgeConfig(vectors=vectors, sparse_vectors=sparse))
    points = []
    for i, text in enumerate(TEXTS):
        words = bm25.document_vector(text)
        vector = edge.SparseVector(indices=list(words), values=list(words.values()))
        payload = {"page_content": text, "scope": "team" if i % 2 else "private"}
        points.append(edge.Point(i, {"dense": dense(text), "sparse": vector}, payload))
    shard.update(edge.UpdateOperation.upsert_points(points))
    shard.flush()
    shard.close()


@pytest.mark.thorough
def test_a_shard_of_qdrant_edge_answers_as_the_engine_does(tmp_path: Path) -> None:
    edge = pytest.importorskip("qdrant_edge")
    as_shard(tmp_path / "shard")
    before = files_of(tmp_path / "shard")
    with closing(open_source(parse(f"qdrant:{tmp_path / 'shard'}", {}))) as source:
        probe = source.probe()
        found = {
            query: source.search(EngineQuery(query, np.array(dense(query), np.float32), dict.fromkeys(BOTH, 4)))
            for query in QUERIES
        }
        scoped = source.search(
            EngineQuery(QUERIES[1], np.array(dense(QUERIES[1]), np.float32), {"vector": 8}, "shared")
        )
        with source.snapshot() as snapshot:
            taken = [each for batch in snapshot.batches(lambda ids, markers: ids) for each in batch.taken]
    assert files_of(tmp_path / "shard") == before
    assert (probe.lists, probe.memories) == (BOTH, len(TEXTS)) and probe.engine.startswith("Qdrant Edge ")
    assert {each.memory.content for each in taken} == set(TEXTS)
    assert {int(hit.memory_id) % 2 for hit in scoped[0].hits} == {1}
    shard = edge.EdgeShard.load(str(tmp_path / "shard"))
    for query, answers in found.items():
        words = bm25.query_vector(query, "one")
        near = edge.Query.Nearest(dense(query), using="dense")
        sparse = edge.SparseVector(indices=list(words), values=list(words.values()))
        by_words = edge.Query.Nearest(sparse, using="sparse")
        both = [edge.Prefetch(query=near, limit=4), edge.Prefetch(query=by_words, limit=4)]
        asked = {
            "vector": edge.QueryRequest(query=near, limit=4),
            "sparse": edge.QueryRequest(query=by_words, limit=4),
            "source_hybrid": edge.QueryRequest(prefetches=both, query=edge.Fusion.Rrf(k=2), limit=4),
        }
        for each in answers:
            own = shard.query(asked[each.name])
            # Equal scores come in another order from call to call, and a cut may fall between them.
            assert [hit.score for hit in each.hits] == pytest.approx([point.score for point in own], rel=1e-6)
            unique = [hit.memory_id for hit in each.hits if sum(hit.score == other.score for other in each.hits) == 1]
            assert set(unique[:-1]) <= {str(point.id) for point in own}
    shard.close()


def test_a_shard_without_the_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qdrant_edge", None)
    (tmp_path / "edge_config.json").write_text("{}")
    with pytest.raises(InputError, match="needs the package qdrant-edge-py: pip install qdrant-edge-py"):
        open_source(parse(f"qdrant:{tmp_path}", {}))
