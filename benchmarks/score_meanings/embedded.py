"""Vector engines that run in this process and that only an extra, or nothing of the workbench, installs."""

from __future__ import annotations

import struct
import tempfile
from typing import Any

from benchmarks.score_meanings import QUERY, TIED, VECTORS, Facts, number, of_vectors, probe, threshold_rule, tie_order


@probe("lancedb")
def lancedb() -> dict[str, Facts]:
    """The three distances, full-text scores before and after optimize(), and a hybrid search under two limits."""
    import lancedb

    with tempfile.TemporaryDirectory() as folder:
        database = lancedb.connect(folder)
        table = database.create_table("v", [{"name": name, "vector": list(each)} for name, each in VECTORS.items()])
        found: dict[str, Facts] = {}
        for metric in ("l2", "cosine", "dot"):
            rows = table.search(list(QUERY)).distance_type(metric).limit(9).to_list()
            found[f"lancedb_{metric}"] = of_vectors((row["name"], row["_distance"]) for row in rows)
        found["lancedb_cosine_quantised"] = _lancedb_quantised(database)
        texts = ["tea and cake", "tea with milk", "coffee", "running shoes"]
        words = database.create_table(
            "w", [{"id": i, "text": text, "vector": [1.0, i / 10]} for i, text in enumerate(texts)]
        )
        words.create_fts_index("text")

        def scores(word: str) -> dict[int, float]:
            return {row["id"]: row["_score"] for row in words.search(word, query_type="fts").limit(9).to_list()}

        before, stemmed = scores("tea"), scores("run")
        words.add([{"id": 9, "text": "tea again please", "vector": [0.0, 1.0]}])
        added = scores("tea")
        words.optimize()
        after = scores("tea")
        found["lancedb_fts"] = {
            "one word once": number(before[0]),
            "the same row after another was added": number(added[0]),
            "the same row after optimize()": number(after[0]),
            "the added row before and after optimize()": "the same score" if added[9] == after[9] else "another score",
            "a word is found by its stem": "yes" if 3 in stemmed else "no",
        } | _lancedb_texts(database)
        found["lancedb_hybrid"] = _lancedb_hybrid(database)
        return found


def _lancedb_quantised(database: Any) -> Facts:
    import numpy as np
    from lancedb.index import HnswSq, IvfPq, IvfSq

    rows = np.random.default_rng(1).normal(size=(301, 16))
    query = rows[0] / np.linalg.norm(rows[0])
    far = 1 - rows @ query / np.linalg.norm(rows, axis=1)
    facts: Facts = {}
    for config in (
        IvfPq(distance_type="cosine", num_sub_vectors=8),
        IvfSq(distance_type="cosine"),
        HnswSq(distance_type="cosine"),
    ):
        table = database.create_table(
            "q", [{"id": i, "vector": row} for i, row in enumerate(rows[:-1])], mode="overwrite"
        )
        table.create_index("vector", config=config)

        def times(table: Any = table) -> str:
            found = table.search(query).distance_type("cosine").limit(50).to_list()
            true = [far[row["id"]] for row in found]
            return f"{np.dot([row['_distance'] for row in found], true) / np.dot(true, true):.0f}"

        seen = [times()]
        table.add([{"id": 300, "vector": rows[300]}])
        seen.append(times())
        table.optimize()
        facts[f"times 1 − cosine, {type(config).__name__}: all rows in the index, one not, after optimize()"] = (
            ", ".join([*seen, times()])
        )
    return facts


def _lancedb_texts(database: Any) -> Facts:
    table = database.create_table(
        "t", [{"id": 0, "title": "tea", "text": "milk"}, {"id": 1, "title": "soup", "text": "tea"}]
    )
    table.create_fts_index("title")
    try:
        table.search('"tea"', query_type="fts").to_list()
        quoted = "an answer"
    except ValueError:
        quoted = "an error"
    table.create_fts_index("text")
    return {
        "rows by a word, of two indexed columns": len(table.search("tea", query_type="fts").to_list()),
        "a text in double quotes, without positions in the index": quoted,
    }


def _lancedb_hybrid(database: Any) -> Facts:
    # 0 is first by words and third by vector; 1 is first by vector and second by words.
    rows = [
        {"id": 0, "text": "tea tea tea", "vector": [0.6, 0.8]},
        {"id": 1, "text": "milk", "vector": [1.0, 0.0]},
        {"id": 2, "text": "water", "vector": [0.9, 0.1]},
        {"id": 3, "text": "tea with a lot of other words", "vector": [-1.0, 0.0]},
        {"id": 4, "text": "soup", "vector": [0.0, 1.0]},
    ]
    table = database.create_table("h", rows)
    table.create_fts_index("text")

    def asked(limit: int) -> list[tuple[int, float]]:
        found = table.search(query_type="hybrid").vector(list(QUERY)).text("tea").limit(limit).to_list()
        return [(row["id"], row["_relevance_score"]) for row in found]

    five, two = asked(5), asked(2)
    return {
        "first of both lists would have": number(2 / 61),
        "best, limit 5": number(five[0][1]),
        "best, limit 2": number(two[0][1]),
        "list of 2 is the head of the list of 5": "yes"
        if [key for key, _ in two] == [key for key, _ in five[:2]]
        else "no",
    }


@probe("sqlite-vec", "apsw")
def sqlite_vec() -> dict[str, Facts]:
    """The three distances, equal ones within a chunk, and a partition key with IN."""
    import apsw
    import sqlite_vec

    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())

    def packed(vector: Any) -> bytes:
        return struct.pack(f"{len(vector)}f", *vector)

    found: dict[str, Facts] = {}
    for metric in ("l2", "cosine", "l1"):
        connection.execute(f"CREATE VIRTUAL TABLE t_{metric} USING vec0(v float[2] distance_metric={metric})")
        for i, vector in enumerate(VECTORS.values(), 1):
            connection.execute(f"INSERT INTO t_{metric} (rowid, v) VALUES (?, ?)", (i, packed(vector)))
        rows = list(
            connection.execute(f"SELECT rowid, distance FROM t_{metric} WHERE v MATCH ? AND k = 9", (packed(QUERY),))
        )
        found[f"sqlite_vec_{metric}"] = of_vectors((list(VECTORS)[row - 1], distance) for row, distance in rows)
    connection.execute("CREATE VIRTUAL TABLE tied USING vec0(v float[2], chunk_size=8)")
    for i in range(1, TIED + 1):
        connection.execute("INSERT INTO tied (rowid, v) VALUES (?, ?)", (i, packed((0.0, 1.0))))
    order = [row[0] for row in connection.execute("SELECT rowid FROM tied WHERE v MATCH ? AND k = 6", (packed(QUERY),))]
    for metric in ("l2", "cosine", "l1"):
        found[f"sqlite_vec_{metric}"]["ties"] = tie_order(order)
    connection.execute("CREATE VIRTUAL TABLE parts USING vec0(who text partition key, v float[2])")
    for i, (who, distance) in enumerate((("a", 1), ("b", 2), ("a", 3), ("b", 4)), 1):
        connection.execute(
            "INSERT INTO parts (rowid, who, v) VALUES (?, ?, ?)", (i, who, packed((1.0 + distance, 0.0)))
        )
    rows = list(
        connection.execute(
            "SELECT distance FROM parts WHERE v MATCH ? AND k = 2 AND who IN ('a', 'b')", (packed(QUERY),)
        )
    )
    found["sqlite_vec_partition"] = {
        "rows of k = 2 in two partitions": len(rows),
        "their distances": ", ".join(f"{row[0]:g}" for row in rows),
    }
    return found


@probe("faiss-cpu")
def faiss() -> dict[str, Facts]:
    """The flat indexes of L2 and of inner products."""
    import faiss
    import numpy as np

    found = {}
    names = list(VECTORS)
    for key, make in (("faiss_l2", faiss.IndexFlatL2), ("faiss_ip", faiss.IndexFlatIP)):
        index = make(2)
        index.add(np.array(list(VECTORS.values()), np.float32))
        scores, rows = index.search(np.array([QUERY], np.float32), 9)
        answer = [(names[row], float(score)) for row, score in zip(rows[0], scores[0], strict=True) if row >= 0]
        tied = make(2)
        tied.add(np.array([[0.0, 1.0]] * TIED, np.float32))
        orders = [tied.search(np.array([QUERY], np.float32), k)[1][0] for k in (1, TIED)]
        ties = tie_order(orders[1])
        found[key] = of_vectors(answer) | {
            "rows beyond the index": "id -1" if rows[0][-1] == -1 else "none",
            "ties": ties if orders[0][0] == orders[1][0] else f"{ties}, but the list of 1 has the first",
        }
    return found


@probe("qdrant-edge-py")
def qdrant_edge() -> dict[str, Facts]:
    """Scores, thresholds, fusions and pages of Qdrant's Rust engine, without a server."""
    import qdrant_edge as edge

    with tempfile.TemporaryDirectory() as folder:
        return _edge(edge, folder)


def _edge(edge: Any, folder: str) -> dict[str, Facts]:
    import os

    def shard(name: str, config: Any) -> Any:
        path = os.path.join(folder, name)
        os.makedirs(path)
        return (
            edge.EdgeShard.create(path, config) if hasattr(edge.EdgeShard, "create") else edge.EdgeShard(path, config)
        )

    names, found = list(VECTORS), {}
    for distance in ("Cosine", "Dot", "Euclid"):
        params = edge.EdgeVectorParams(size=2, distance=getattr(edge.Distance, distance))
        made = shard(distance, edge.EdgeConfig(vectors=params))
        points = [edge.Point(i, list(each), {}) for i, each in enumerate(VECTORS.values())]
        made.update(edge.UpdateOperation.upsert_points(points))

        def asked(limit: float | None = None, made: Any = made) -> list[Any]:
            return list(
                made.query(edge.QueryRequest(limit=9, query=edge.Query.Nearest(list(QUERY)), score_threshold=limit))
            )

        rows = asked()
        score = next(row.score for row in rows if names[row.id] == "orthogonal")

        def passes(limit: float, asked: Any = asked) -> list[str]:
            return ["tied" for row in asked(limit) if names[row.id] == "orthogonal"]

        found[f"qdrant_edge_{distance.lower()}"] = of_vectors((names[row.id], row.score) for row in rows) | {
            "threshold": threshold_rule(passes, score, score - 0.5, score + 0.5)
        }
    return found | _edge_fusions(edge, shard) | _edge_texts(edge, shard)


def _edge_fusions(edge: Any, shard: Any) -> dict[str, Facts]:
    cosine, euclid = (
        edge.EdgeVectorParams(size=2, distance=each) for each in (edge.Distance.Cosine, edge.Distance.Euclid)
    )
    made = shard("two", edge.EdgeConfig(vectors={"a": cosine, "b": cosine, "far": euclid}))
    rows: dict[int, Any] = {
        0: {"a": [1.0, 0.0], "far": [1.0, 0.0]},
        1: {"a": [0.8, 0.6], "b": [1.0, 0.0], "far": [3.0, 0.0]},
        2: {"a": [0.6, 0.8], "b": [0.8, 0.6], "far": [9.0, 0.0]},
    }
    made.update(edge.UpdateOperation.upsert_points([edge.Point(key, vector, {}) for key, vector in rows.items()]))

    def asked(query: Any, *names: str, limit: float | None = None) -> dict[int, float]:
        prefetches = [edge.Prefetch(limit=3, query=edge.Query.Nearest(list(QUERY), using=name)) for name in names]
        request = edge.QueryRequest(limit=9, query=query, prefetches=prefetches, score_threshold=limit)
        return {row.id: number(row.score) for row in made.query(request)}  # type: ignore[misc]

    rrf, dbsf = edge.Fusion.Rrf(k=2), edge.Fusion.Dbsf()
    one, both, heavy = asked(rrf, "a"), asked(rrf, "a", "b"), asked(edge.Fusion.Rrf(k=2, weights=[3.0]), "a")
    ends = {0: "the nearest", 2: "the farthest"}
    tied = shard("tied", edge.EdgeConfig(vectors=edge.EdgeVectorParams(size=2, distance=edge.Distance.Cosine)))
    tied.update(edge.UpdateOperation.upsert_points([edge.Point(i, [0.6, 0.8], {}) for i in range(10)]))
    pages = [
        row.id
        for offset in range(0, 10, 2)
        for row in tied.query(edge.QueryRequest(limit=2, offset=offset, query=edge.Query.Nearest(list(QUERY))))
    ]
    close = {0: [1.0, 0.0], 1: [0.99, 0.14], 2: [0.7, -0.7]}
    near = shard("near", edge.EdgeConfig(vectors=edge.EdgeVectorParams(size=2, distance=edge.Distance.Cosine)))
    near.update(edge.UpdateOperation.upsert_points([edge.Point(key, each, {}) for key, each in close.items()]))

    def mmr(lambda_: float) -> list[Any]:
        query = edge.Mmr(vector=list(QUERY), lambda_=lambda_, candidates_limit=3)
        return list(near.query(edge.QueryRequest(limit=3, query=query)))

    diverse = [row.score for row in mmr(0.1)]
    return {
        "qdrant_edge_rrf": {
            "first of one list": one[0],
            "second of one list": one[1],
            "second and first": both[1],
            "threshold": threshold_rule(
                lambda limit: ["tied" for key in asked(rrf, "a", limit=limit) if key == 0],
                one[0],
                one[0] - 0.1,
                one[0] + 0.1,
            ),
        },
        "qdrant_edge_weighted_rrf": {
            "first of one list, weight 3": heavy[0],
            "second of one list, weight 3": heavy[1],
        },
        "qdrant_edge_dbsf": {
            "in both lists": asked(dbsf, "a", "b")[1],
            "first of one Euclidean list": ends.get(next(iter(asked(dbsf, "far"))), ""),
            "first of one Euclidean list by rrf": ends.get(next(iter(asked(rrf, "far"))), ""),
        },
        "qdrant_edge_ties": {
            "different points of ten equal ones on five pages of two": "all ten"
            if len(set(pages)) == 10
            else "fewer than ten"
        },
        "qdrant_edge_mmr": {
            "second at lambda 1": mmr(1.0)[1].id,
            "second at lambda 0.1": mmr(0.1)[1].id,
            "scores fall": "yes" if diverse == sorted(diverse, reverse=True) else "no",
        },
    }


def _edge_texts(edge: Any, shard: Any) -> dict[str, Facts]:
    import bm25s

    texts = ["tea and cake", "tea with milk", "coffee", "tea tea tea water"]
    made = shard("texts", edge.EdgeConfig(vectors=edge.EdgeVectorParams(size=2, distance=edge.Distance.Cosine)))
    scoring = edge.TextIndexParams(tokenizer=edge.TokenizerType.Word, lowercase=True, scoring=True)
    made.update(edge.UpdateOperation.create_field_index("text", scoring))
    points = [edge.Point(i, [1.0, 0.0], {"text": text}) for i, text in enumerate(texts)]
    made.update(edge.UpdateOperation.upsert_points(points))

    def asked(words: str) -> dict[int, float]:
        query = edge.TextQuery("text", words, edge.Bm25Params(k=1.2, b=0.75))
        return {row.id: row.score for row in made.query(edge.QueryRequest(limit=9, query=query))}

    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index(bm25s.tokenize(texts, show_progress=False, stopwords=None), show_progress=False)
    words = bm25s.tokenize(["tea"], show_progress=False, stopwords=None)
    ids, scores = index.retrieve(words, k=4, show_progress=False)
    lucene = {int(key): float(score) for key, score in zip(ids[0], scores[0], strict=True) if score}
    found = asked("tea")
    return {
        "qdrant_edge_bm25": {
            "times Lucene's": round(found[0] / lucene[0], 4),
            "a word twice in the query": "counts once" if asked("tea tea") == found else "counts twice",
        }
    }


@probe("tantivy")
def tantivy() -> dict[str, Facts]:
    """The score of a fuzzy word, exact or not."""
    import tantivy

    schema = tantivy.SchemaBuilder().add_text_field("body", stored=True).build()
    index = tantivy.Index(schema)
    writer = index.writer()
    for text in ("deploy", "deploi", "tea"):
        writer.add_document(tantivy.Document(body=text))
    writer.commit()
    index.reload()
    query = tantivy.Query.fuzzy_term_query(schema, "body", "deploy")
    hits = index.searcher().search(query, 9).hits
    return {
        "tantivy_fuzzy": {"the word itself, and one letter off": ", ".join(str(number(score)) for score, _ in hits)}
    }
