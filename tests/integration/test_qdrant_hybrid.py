"""Qdrant's sparse list and its own fusion as live lists: asked as langchain-qdrant asks, equal to what the client answers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import qdrant_rest
from collection_rows import files_of
from qdrant_client import QdrantClient
from qdrant_client import models as qdrant

from cems_workbench.errors import InputError
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import EngineList, EngineQuery, ListName, SourceError
from workbench_stores.qdrant import QueryWeight, document_vector, query_vector

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
DIMENSION = 8
BOTH: tuple[ListName, ...] = ("vector", "sparse", "source_hybrid")


def dense(text: str) -> list[float]:
    """A vector that depends on the text alone."""
    return np.random.default_rng(sum(map(ord, text))).normal(size=DIMENSION).astype(np.float32).tolist()


def as_sparse(vector: Mapping[int, float]) -> qdrant.SparseVector:
    return qdrant.SparseVector(indices=list(vector), values=list(vector.values()))


def fill(
    directory: Path, name: str = "sparse", idf: bool = True, factor: float = 1.0, key: str = "page_content"
) -> None:
    client = QdrantClient(path=str(directory))
    client.create_collection(
        "notes",
        vectors_config={"dense": qdrant.VectorParams(size=DIMENSION, distance=qdrant.Distance.COSINE)},
        sparse_vectors_config={name: qdrant.SparseVectorParams(modifier=qdrant.Modifier.IDF if idf else None)},
    )
    client.upsert(
        "notes",
        [
            qdrant.PointStruct(
                id=i,
                vector={
                    "dense": dense(text),
                    name: as_sparse({number: factor * weight for number, weight in document_vector(text).items()}),
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
    vector, words = dense(query), as_sparse(query_vector(query, weight))
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
    fill(tmp_path / "q")
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
    client = QdrantClient(path=str(tmp_path / "q"))
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
    fill(tmp_path / "q")
    where, query = f"qdrant:{tmp_path / 'q'}/notes", QUERIES[0]
    client = QdrantClient(path=str(tmp_path / "q"))
    fixed, weighed = asked(client, query, 2), asked(client, query, 6, "document")
    parts = [
        qdrant.Prefetch(using="dense", query=dense(query), limit=6),
        qdrant.Prefetch(using="sparse", query=as_sparse(query_vector(query, "one")), limit=6),
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
    fill(tmp_path / "q")
    found = lists(f"qdrant:{tmp_path / 'q'}/notes", "gateway limits", dict.fromkeys(BOTH, 8), "shared")
    for each in found.values():
        assert each.hits and {int(hit.memory_id) % 2 for hit in each.hits} == {1}


def test_a_query_of_stop_words_has_no_sparse_list_and_the_fused_one_is_the_dense(tmp_path: Path) -> None:
    fill(tmp_path / "q")
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
    fill(tmp_path / "q", **filled)
    with closing(open_source(parse(f"qdrant:{tmp_path / 'q'}/notes{options}", {}))) as source:
        probe = source.probe()
        (only,) = source.search(EngineQuery("gateway", np.ones(DIMENSION, np.float32), dict.fromkeys(BOTH, 3)))
    assert probe.lists == ("vector",) and only.name == "vector"
    assert any(line in note for note in probe.notes)


def test_vectors_of_another_encoder_are_named_with_what_follows(tmp_path: Path) -> None:
    fill(tmp_path / "q")
    client = QdrantClient(path=str(tmp_path / "q"))
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
    fill(tmp_path / "q")
    where, query = f"qdrant:{tmp_path / 'q'}/notes?text_index=page_content", QUERIES[0]
    with pytest.raises(SourceError, match=r"text_index=page_content: .* needs a text index with `scoring`"):
        open_source(parse(where, {}))
    client = QdrantClient(path=str(tmp_path / "q"))
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
    fill(tmp_path / "q")
    with pytest.raises(InputError, match=line):
        open_source(parse(f"qdrant:{tmp_path / 'q'}/notes?{options}", {}))


def test_a_server_is_asked_for_the_same(tmp_path: Path) -> None:
    fill(tmp_path / "q")
    client = QdrantClient(path=str(tmp_path / "q"))
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

    vectors = {"dense": edge.EdgeVectorParams(size=DIMENSION, distance=edge.Distance.Cosine)}
    sparse = {"sparse": edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)}
    folder.mkdir()
    shard = edge.EdgeShard.create(str(folder), edge.EdgeConfig(vectors=vectors, sparse_vectors=sparse))
    points = []
    for i, text in enumerate(TEXTS):
        words = document_vector(text)
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
        words = query_vector(query, "one")
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
