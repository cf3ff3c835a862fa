"""BM25 and Chroma, reciprocal rank fusion, a scope filter and a cross-encoder: functions as in any project, traced with decorators.

python -m examples.plain_python trace.jsonl
"""

from __future__ import annotations

from collections import defaultdict

import chromadb

from cems_workbench import trace
from examples.sample import Bm25, embed, memories, relevance, run

TEXTS = memories()
DEPTH, RERANKED, RETURNED, MINIMUM_SCORE = 20, 10, 5, -4.0

bm25_index = Bm25(TEXTS)
collection = chromadb.EphemeralClient().create_collection("memories", metadata={"hnsw:space": "cosine"})
collection.add(ids=list(TEXTS), documents=list(TEXTS.values()), embeddings=embed(list(TEXTS.values())))


@trace.stage("bm25", kind="list")
def bm25(query: str) -> list[tuple[str, float]]:
    return bm25_index.search(query, DEPTH)


@trace.stage("chroma", kind="list", results=lambda found: [(i, 1 - d, t) for i, d, t in zip(*found, strict=True)])
def chroma(query: str) -> tuple[list[str], list[float], list[str]]:
    found = collection.query(query_embeddings=embed([query]), n_results=DEPTH, include=["distances", "documents"])
    return found["ids"][0], found["distances"][0], found["documents"][0]


@trace.stage("rrf", kind="fusion")
def rrf(*lists: list[str]) -> list[tuple[str, float]]:
    scores: dict[str, float] = defaultdict(float)
    for ranking in lists:
        for rank, memory in enumerate(ranking, 1):
            scores[memory] += 1 / (60 + rank)
    return sorted(scores.items(), key=lambda pair: -pair[1])


@trace.stage("cross-encoder", kind="rerank")
def rerank(query: str, candidates: list[tuple[str, float]]) -> list[tuple[str, float]]:
    ids = [memory for memory, _ in candidates[:RERANKED]]
    scores = relevance(query, [TEXTS[memory] for memory in ids])
    return sorted(zip(ids, scores, strict=True), key=lambda pair: -pair[1])


@trace.stage("minimum score", kind="filter")
def confident(candidates: list[tuple[str, float]]) -> list[tuple[str, float]]:
    return [(memory, score) for memory, score in candidates if score >= MINIMUM_SCORE]


@trace.retrieval
def retrieve(query: str) -> list[tuple[str, float]]:
    fused = rrf([memory for memory, _ in bm25(query)], chroma(query)[0])
    return confident(rerank(query, fused))[:RETURNED]


if __name__ == "__main__":
    run(retrieve)
