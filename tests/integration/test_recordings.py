"""The recorded answers of CEMS, out of a real PostgreSQL that was loaded from the same files and connected to.

The memories, chunks, vectors and relations are taken from the server (`connect`), and both lists of every query are its own answer
(`lists.answered_by` source). What is made of them is replay. From the files alone, `fidelity` does the same
(tests/integration/test_fidelity_command.py; docs/use/cems.md has the figures). Every sixth query is asked, and all by `make thorough`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import postgres_server
import pytest
from postgres_server import LoadedChunk, Server, load, relate, uuid_of

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.config import PipelineConfig, import_config, preset, with_values
from cems_workbench.formats import read_path
from cems_workbench.jobs.connecting import identify_embedder, take_snapshot
from cems_workbench.jobs.factory import servers
from cems_workbench.models.chunking import cems_pieces
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.missing_evidence import unmet
from cems_workbench.pipeline.resources import Resources
from cems_workbench.settings import Settings
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.store import Store
from tests.sample import SampleEmbedder
from tests.thoroughly import partly, some

if TYPE_CHECKING:
    from postgres_server import Connection

pytestmark = [
    pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing())),
]


def load_folder(connection: Connection, folder: Path, embedder: QueryEmbedder, when: str) -> None:
    """Put the memories and relations of a folder into the tables of CEMS, as a server that was filled at `when` has them."""
    rows = [json.loads(line) for line in (folder / "memories.jsonl").read_text("utf-8").splitlines()]
    texts = [[piece.text for piece in cems_pieces(row["content"])] for row in rows]
    vectors = iter(embedder.encode([text for own in texts for text in own]))
    for row, own in zip(rows, texts, strict=True):
        dated = {"created_at": when} | {name: value for name, value in row.items() if value is not None}
        load(connection, dated, [LoadedChunk(text, next(vectors)) for text in own])
        # Dates and counts were written after the document: every update leaves a hole for a later row.
        for _ in range(2):
            connection.execute(
                "UPDATE memory_documents SET updated_at = created_at WHERE id = %s", (uuid_of(row["id"]),)
            )
    for line in (folder / "relations.jsonl").read_text("utf-8").splitlines():
        relate(connection, json.loads(line))


@pytest.fixture(scope="module")
def embedder() -> QueryEmbedder:
    return local_embedder(Settings().embedder)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server.running() as found:
        yield found


def setting(recording: Mapping[str, Any]) -> PipelineConfig:
    variables = "\n".join(f"CEMS_{name.upper()}={value}" for name, value in recording["config"].items())
    config = import_config(variables, source=".env").config if variables else preset("cems_head").config
    return with_values(config, {"assembly.max_tokens": recording["max_tokens"], "lists.answered_by": "source"})


@partly
@pytest.mark.parametrize(
    ("folder", "recordings"),
    [
        pytest.param("sample_data", ("sample", "sample_b", "sample_c", "sample_d"), marks=pytest.mark.thorough),
        ("cems/sessions", ("sessions", "sessions_b")),
    ],
)
def test_the_order_is_the_recorded_one(
    folder: str,
    recordings: Sequence[str],
    shared: Path,
    server: Server,
    embedder: QueryEmbedder,
    sample_embedder: SampleEmbedder,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    place = SAMPLE_DATA if folder == "sample_data" else shared / folder
    asked = {query.qid: query for part in read_path(place) for query in part.queries}
    recorded = {name: json.loads((shared / "cems" / f"{name}.json").read_text("utf-8")) for name in recordings}
    with server.cems(recordings[0]) as connection:
        load_folder(connection, place, sample_embedder, min(each["answered_at"] for each in recorded.values()))
        # Exact search, as a small table is scanned, and joined as the recorded server did: that decides between equal ranks.
        for plan in ("enable_indexscan", "enable_nestloop", "enable_mergejoin"):
            connection.execute(f"ALTER DATABASE {recordings[0]} SET {plan} = off")
        address = parse(server.uri.replace("/postgres?", f"/{recordings[0]}?"))
        with closing(Resources(Store.open(tmp_path / "store"), embedder, servers(Settings()))) as resources:
            with closing(open_source(address)) as source:
                take_snapshot(resources.store, source, datetime.now(UTC))
            (record,) = resources.store.sources.read()
            said = identify_embedder(resources.store, record, embedder, Settings().embedder, stated=False)
            assert "20 of 20 stored vectors reproduced" in said
            names = {str(uuid_of(key)): key for part in read_path(place) for key in (m.id for m in part.memories)}
            gathered: dict[str, Evidence] = {}
            for name in recordings:
                with subtests.test(recording=name):
                    recording = recorded[name]
                    config, as_of = setting(recording), datetime.fromisoformat(recording["answered_at"])
                    same = exact = 0
                    answers = some(recording["answers"], 6)
                    for answer in answers:
                        query = asked[answer["qid"]]
                        evidence = gathered.get(query.qid)
                        if evidence is None or unmet(config, evidence.notes, evidence.in_brief):
                            assert name == recordings[0], "the answers of every setting are replayed from one gather"
                            evidence = gather_lists(Request(query.query, query.project, as_of), config, resources)
                            assert set(evidence.notes["engine"]["lists"]) == {"vector:0", "ts_rank:0"}
                            gathered[query.qid] = evidence
                        results = replay(replace(evidence, as_of=as_of), config).results
                        if [names[row.memory_id] for row in results] == [row["id"] for row in answer["results"]]:
                            same += 1
                            pairs = zip(results, answer["results"], strict=True)
                            exact += all(abs((row.score or 0.0) - theirs["score"]) <= 1e-6 for row, theirs in pairs)
                    print(f"{name}: {same} of {len(answers)} in order, {exact} of them with equal scores")
                    assert same >= min(0.98 * len(answers), len(answers) - 1)
                    # An edge that ties with another may give its rank to it, and the order stays.
                    assert exact / same >= 0.95
