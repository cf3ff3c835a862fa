"""Record Graphiti on embedded Kuzu: the hybrid search for facts (edges) of every query.

    python -m benchmarks.record.graphiti --data FOLDER --out graphiti.json --embeddings http://127.0.0.1:8766/v1

Run with the Python that has graphiti-core with Kuzu (seen with graphiti-core 0.29.3, 0.30.1 and 0.31.2, kuzu 0.11.3; its client of OpenAI
also needs httpx). A recipe with a cross-encoder gets the scores of `benchmarks.record.embeddings`.
Each memory is one fact between two entities of one pair, made without a language model: the fact is the memory's content. The rows of
Graphiti's own two searches are written as the lists `bm25` and `cosine`; they come without scores. A recipe's breadth-first search is left
out: over one pair of entities it finds any facts.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.record.recording import (
    TIMEOUT_S,
    Row,
    arguments,
    asked,
    embedded,
    memories_of,
    milliseconds,
    queries_of,
    result,
    with_vectors,
)
from benchmarks.record.recording import written as write_recording

GROUP = "recorder"
BREADTH_FIRST = "breadth_first_search"
SEARCHES = {"edge_fulltext_search": "bm25", "edge_similarity_search": "cosine"}
"""Graphiti's own searches, and what their lists are called."""


def watch(lists: dict[str, list[str]]) -> None:
    """Have each search of edges put the ids that it returns into `lists`."""
    module = importlib.import_module("graphiti_core.search.search")
    for name, called in SEARCHES.items():
        setattr(module, name, _watched(getattr(module, name), called, lists))


def _watched(
    search: Callable[..., Awaitable[list[Any]]], name: str, lists: dict[str, list[str]]
) -> Callable[..., Awaitable[list[Any]]]:
    async def watched(*args: Any, **named: Any) -> list[Any]:
        found = await search(*args, **named)
        lists[name] = [edge.uuid for edge in found]
        return found

    return watched


def cross_encoder(address: str) -> Any:
    """A client of Graphiti's that asks `/rerank` of an address, in the form of Text Embeddings Inference."""
    client = importlib.import_module("graphiti_core.cross_encoder.client").CrossEncoderClient

    async def rank(self: Any, query: str, passages: list[str]) -> list[tuple[str, float]]:
        body = json.dumps({"query": query, "texts": passages}).encode()
        request = urllib.request.Request(f"{address.removesuffix('/v1')}/rerank", body)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return [(passages[row["index"]], row["score"]) for row in json.load(answer)] if passages else []

    return type("CrossEncoder", (client,), {"rank": rank})()


async def fill(driver: Any, memories: list[Row], vectors: list[list[float]], name_vector: list[float]) -> None:
    """Put each memory into the graph as a fact, and make the full-text indices, which a fresh Kuzu driver does not."""
    edges, nodes = (importlib.import_module(f"graphiti_core.{name}") for name in ("edges", "nodes"))
    now = datetime.now(timezone.utc)  # noqa: UP017
    ends = [
        nodes.EntityNode(name=name, group_id=GROUP, created_at=now, name_embedding=name_vector) for name in ("a", "b")
    ]
    for node in ends:
        await node.save(driver)
    for row, vector in zip(memories, vectors, strict=True):
        created = datetime.fromtimestamp(milliseconds(row.get("created_at"), now) / 1000, timezone.utc)  # noqa: UP017
        edge = edges.EntityEdge(
            uuid=row["id"],
            group_id=GROUP,
            source_node_uuid=ends[0].uuid,
            target_node_uuid=ends[1].uuid,
            created_at=created,
            name="SAYS",
            fact=row["content"],
            fact_embedding=vector,
        )
        await edge.save(driver)
    queries = importlib.import_module("graphiti_core.graph_queries")
    for statement in queries.get_fulltext_indices(driver.provider):
        await driver.execute_query(statement)


async def record(given: Any, folder: Path) -> list[Row]:
    """Fill a graph, and what it answers to each query."""
    memories, queries = memories_of(given.data), queries_of(given.data, given.first)
    texts = [row["content"].replace("\n", " ") for row in memories]  # as Graphiti embeds a fact
    vectors = embedded([*texts, "a"], given.embeddings, given.model)
    embedder = importlib.import_module("graphiti_core.embedder.openai")
    config = embedder.OpenAIEmbedderConfig(
        api_key="none", base_url=given.embeddings, embedding_model=given.model, embedding_dim=len(vectors[0])
    )
    driver = importlib.import_module("graphiti_core.driver.kuzu_driver").KuzuDriver(db=str(folder / "graph"))
    await fill(driver, memories, vectors[:-1], vectors[-1])
    graph = importlib.import_module("graphiti_core").Graphiti(
        graph_driver=driver,
        embedder=embedder.OpenAIEmbedder(config=config),
        cross_encoder=cross_encoder(given.embeddings),
    )
    recipes = importlib.import_module("graphiti_core.search.search_config_recipes")
    recipe = getattr(recipes, given.recipe)
    methods = [one for one in recipe.edge_config.search_methods if one.value != BREADTH_FIRST]
    edges = recipe.edge_config.model_copy(update={"search_methods": methods})
    recipe = recipe.model_copy(update={"limit": given.limit, "edge_config": edges})
    lists: dict[str, list[str]] = {}
    watch(lists)
    answers = []
    for query in queries:
        lists.clear()
        found = await graph.search_(query["query"], config=recipe, group_ids=[GROUP])
        results = [
            result(edge.uuid, score) for edge, score in zip(found.edges, found.edge_reranker_scores, strict=True)
        ]
        answers.append(asked(query, results=results, lists={name: list(ids) for name, ids in lists.items()}))
    return answers


def main() -> None:
    """Fill a graph, ask it, and write the recording."""
    parser = with_vectors(arguments("Record the answers of Graphiti on Kuzu."))
    parser.add_argument("--recipe", default="EDGE_HYBRID_SEARCH_RRF", help="a search config for edges")
    parser.add_argument("--limit", type=int, default=10)
    given = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "none")  # its language model is made, and never asked
    os.environ.setdefault("GRAPHITI_TELEMETRY_ENABLED", "false")
    with tempfile.TemporaryDirectory(prefix="record-graphiti-") as folder:
        answers = asyncio.run(record(given, Path(folder)))
    config = {"recipe": given.recipe, "limit": given.limit}
    engine = f"graphiti-core {version('graphiti-core')} on kuzu {version('kuzu')}"
    count = write_recording(given.out, engine, config, iter(answers), given.model)
    print(f"{count} answers in {given.out}")


if __name__ == "__main__":
    main()
