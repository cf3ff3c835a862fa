"""Record Hindsight: `MemoryEngine.recall_async` with its trace for every query, no language model.

    python -m benchmarks.record.hindsight --data FOLDER --out hindsight.jsonl --database postgresql://… --embeddings http://127.0.0.1:8766/v1

Run with the Python that has hindsight-api-slim (seen with 0.6.2, 0.7.2, 0.8.2 and 0.8.3) and a database with pgvector that is empty, or
filled by this before. Each memory is one document, kept in pieces as they are (provider `none`) and mentioned when it was written. Vectors
and the reranker's scores come from `benchmarks.record.embeddings`. A line of the recording is an explanation: query, qid, and the trace,
with the ids of the memories.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from datetime import datetime
from typing import Any

from benchmarks.record.recording import Row, arguments, memories_of, queries_of, with_vectors

BANK = "recorder"
PORTION = 40
UNUSED: Row = {"visits": [], "entry_points": [], "summary": {}}
"""Parts of a trace that no reader needs."""


def settings(given: Any) -> dict[str, str]:
    """The environment under which Hindsight asks for vectors and scores at one address, and for nothing else."""
    return {
        "HINDSIGHT_API_DATABASE_URL": given.database,
        "HINDSIGHT_API_LLM_PROVIDER": "none",
        "HINDSIGHT_API_EMBEDDINGS_PROVIDER": "openai",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_API_KEY": "none",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL": given.embeddings,
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL": given.model,
        "HINDSIGHT_API_RERANKER_PROVIDER": "tei",
        "HINDSIGHT_API_RERANKER_TEI_URL": given.embeddings.removesuffix("/v1"),
        "HINDSIGHT_API_LOG_LEVEL": "error",
        "HINDSIGHT_API_WORKER_ENABLED": "false",
    }


def moment(text: str) -> datetime:
    """A moment as Hindsight takes it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def named(trace: Any, ids: dict[str, str]) -> Any:
    """A trace with the memories' ids for those of the program, its texts cut to what a reader shows, without what none needs."""
    if isinstance(trace, dict):
        return {key: named(value, ids) for key, value in trace.items() if key != "query_embedding"}
    if isinstance(trace, list):
        return [named(value, ids) for value in trace]
    return ids.get(trace, trace) if isinstance(trace, str) else trace


async def record(given: Any) -> list[Row]:
    """Fill a bank with what it lacks, and what it answers to each query."""
    engine = importlib.import_module("hindsight_api.engine.memory_engine").MemoryEngine()
    await engine.initialize()
    context = importlib.import_module("hindsight_api.models").RequestContext()
    rows = "SELECT id::text, document_id FROM memory_units WHERE bank_id = $1"
    held = {row["document_id"] for row in await engine._pool.fetch(rows, BANK)}
    memories = [row for row in memories_of(given.data) if row["id"] not in held]
    for start in range(0, len(memories), PORTION):
        documents = [
            {"content": row["content"], "event_date": moment(row["created_at"]), "document_id": row["id"]}
            for row in memories[start : start + PORTION]
        ]
        await engine.retain_batch_async(BANK, documents, request_context=context)
    if given.events:
        await engine._pool.execute("UPDATE memory_units SET occurred_start = mentioned_at WHERE bank_id = $1", BANK)
    ids = {row["id"]: row["document_id"] for row in await engine._pool.fetch(rows, BANK)}
    answers = []
    for query in queries_of(given.data, given.first):
        asked_at = {} if given.events else {"question_date": moment(query["as_of"])}
        found = await engine.recall_async(BANK, query["query"], enable_trace=True, request_context=context, **asked_at)
        trace = found.trace if isinstance(found.trace, dict) else found.trace.model_dump(mode="json")
        answers.append({"query": query["query"], "qid": query["qid"], "trace": named(trace | UNUSED, ids)})
    return answers


def main() -> None:
    """Fill a bank, ask it, and write the recording."""
    parser = with_vectors(arguments("Record the answers of Hindsight."))
    parser.add_argument("--database", required=True, help="the address of a PostgreSQL database with pgvector")
    parser.add_argument(
        "--events", action="store_true", help="each memory happened when it was written, and is asked for now"
    )
    given = parser.parse_args()
    os.environ.update(settings(given))  # read when hindsight_api is imported
    answers = asyncio.run(record(given))
    given.out.write_text("".join(json.dumps(row, default=str) + "\n" for row in answers), "utf-8")
    print(f"{len(answers)} answers in {given.out}", flush=True)
    os._exit(0)  # its workers do not end


if __name__ == "__main__":
    main()
