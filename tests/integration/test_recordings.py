"""The recorded answers of CEMS, out of a real PostgreSQL that was loaded from the same files.

What is searched comes from the server, with statements that say what CEMS's say: chunks by cosine, chunks by ts_rank of any of the
words, edges of a memory by similarity. What is made of it is replay. From the files alone, `fidelity` does the same
(tests/integration/test_fidelity_command.py; docs/cems.md has the figures).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import postgres_server
import pytest
from postgres_server import LoadedChunk, Server, load, relate, uuid_of

from cems_workbench.config import PipelineConfig, import_config, preset, with_values
from cems_workbench.formats import read_path
from cems_workbench.models import tokens
from cems_workbench.models.chunking import cems_pieces
from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.evidence import Hit, RankedList, Variant
from cems_workbench.records import Chunk, ParsedInput, Query, Relation
from cems_workbench.runs.importing import SAMPLE_DATA
from cems_workbench.settings import Settings

if TYPE_CHECKING:
    from postgres_server import Connection

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing())),
]

BY_COSINE = (
    "SELECT document_id, seq, 1 - (embedding <=> %(v)s::vector) FROM memory_chunks ORDER BY embedding <=> %(v)s::vector"
)
BY_WORDS = """
WITH asked AS (
    SELECT to_tsquery('english', string_agg(lexeme, ' | ' ORDER BY lexeme)) AS words
    FROM unnest(to_tsvector('english', %(q)s)) AS found(lexeme, positions, weights)
)
SELECT document_id, seq, ts_rank(content_tsv, words) AS rank FROM memory_chunks, asked WHERE content_tsv @@ words ORDER BY rank DESC
"""
EDGES = """
SELECT d.id, r.relation_type, r.similarity FROM memory_relations AS r JOIN memory_documents AS d ON r.target_id = d.id
WHERE r.source_id = %(s)s ORDER BY r.similarity DESC NULLS LAST LIMIT 8
"""


class Loaded:
    """A server that holds what is in a folder, and what it answers."""

    def __init__(self, connection: Connection, folder: Path, embedder: QueryEmbedder) -> None:
        self.connection, self.embedder = connection, embedder
        parsed: Sequence[ParsedInput] = [part for part in read_path(folder)]
        self.memories = {memory.id: memory for part in parsed for memory in part.memories}
        self.queries = [query for part in parsed for query in part.queries]
        self.texts = {
            key: [piece.text for piece in cems_pieces(memory.content)] for key, memory in self.memories.items()
        }
        self.names = {uuid_of(key): key for key in self.memories}
        every = [text for texts in self.texts.values() for text in texts]
        vectors = iter(embedder.encode(every))
        rows = [json.loads(line) for line in (folder / "memories.jsonl").read_text("utf-8").splitlines()]
        for row in rows:
            load(connection, row, [LoadedChunk(text, next(vectors)) for text in self.texts[row["id"]]])
            # Dates and counts were written after the document: every update leaves a hole for a later row.
            for _ in range(2):
                connection.execute(
                    "UPDATE memory_documents SET updated_at = created_at WHERE id = %s", (uuid_of(row["id"]),)
                )
        for line in (folder / "relations.jsonl").read_text("utf-8").splitlines():
            relate(connection, json.loads(line))
        connection.execute("SET enable_indexscan = off")  # exact search, as a small table is scanned
        # The recorded server joined an edge's memories from the documents, whose order decides between equal edges.
        connection.execute("SET enable_nestloop = off")
        connection.execute("SET enable_mergejoin = off")
        self.edges = [edge for key in self.memories for edge in self._edges(key)]

    def _edges(self, key: str) -> list[Relation]:
        rows = self.connection.execute(EDGES, {"s": uuid_of(key)}).fetchall()
        return [Relation(key, self.names[target], kind, weight or 0.3) for target, kind, weight in rows]

    def evidence(self, query: Query, as_of: datetime) -> Evidence:
        vector = "[" + ",".join(f"{value:.9g}" for value in self.embedder.encode_query(query.query)) + "]"
        lists = []
        for source, statement in (("vector", BY_COSINE), ("ts_rank", BY_WORDS)):
            rows = self.connection.execute(statement, {"v": vector, "q": query.query}).fetchall()
            hits = tuple(Hit(self.names[document], float(score), seq) for document, seq, score in rows)
            lists.append(RankedList(f"{source}:0", source, 0, hits))
        return Evidence(
            query=query.query,
            memories=self.memories,
            variants=(Variant(query.query),),
            lists=tuple(lists),
            as_of=as_of,
            project=query.project,
            chunks={
                key: tuple(Chunk(key, i, text) for i, text in enumerate(texts)) for key, texts in self.texts.items()
            },
            relations=tuple(self.edges),
            tokens={
                key: (tokens.count(self.memories[key].content), *map(tokens.count, texts))
                for key, texts in self.texts.items()
            },
        )


@pytest.fixture(scope="module")
def embedder() -> QueryEmbedder:
    return SentenceTransformerEmbedder(Settings().embedder)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server.running() as found:
        yield found


def setting(recording: Mapping[str, Any]) -> PipelineConfig:
    variables = "\n".join(f"CEMS_{name.upper()}={value}" for name, value in recording["config"].items())
    config = import_config(variables, source=".env").config if variables else preset("cems_head").config
    return with_values(config, {"assembly.max_tokens": recording["max_tokens"]})


@pytest.mark.parametrize(
    ("folder", "recordings"),
    [("sample_data", ("sample", "sample_b", "sample_c", "sample_d")), ("cems/sessions", ("sessions", "sessions_b"))],
)
def test_the_order_is_the_recorded_one(
    folder: str,
    recordings: Sequence[str],
    shared: Path,
    server: Server,
    embedder: QueryEmbedder,
    subtests: pytest.Subtests,
) -> None:
    with server.cems(recordings[0]) as connection:
        loaded = Loaded(connection, SAMPLE_DATA if folder == "sample_data" else shared / folder, embedder)
        asked = {query.qid: query for query in loaded.queries}
        evidence: dict[str, Evidence] = {}
        for name in recordings:
            with subtests.test(recording=name):
                recording = json.loads((shared / "cems" / f"{name}.json").read_text("utf-8"))
                config, as_of = setting(recording), datetime.fromisoformat(recording["answered_at"])
                same = exact = 0
                for answer in recording["answers"]:
                    qid = answer["qid"]
                    if qid not in evidence:
                        evidence[qid] = loaded.evidence(asked[qid], as_of)
                    results = replay(replace(evidence[qid], as_of=as_of), config).results
                    if [row.memory_id for row in results] == [row["id"] for row in answer["results"]]:
                        same += 1
                        pairs = zip(results, answer["results"], strict=True)
                        exact += all(abs((row.score or 0.0) - theirs["score"]) <= 1e-6 for row, theirs in pairs)
                print(f"{name}: {same} of {len(recording['answers'])} in order, {exact} of them with equal scores")
                assert same / len(recording["answers"]) >= 0.98
                assert (
                    exact / same >= 0.95
                )  # an edge that ties with another may give its rank to it, and the order stays
