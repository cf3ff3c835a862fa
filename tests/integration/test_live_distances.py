"""Lists of sources that compare by distance or inner product, answered by real engines: as cosines where that holds, and said where not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from qdrant_client import QdrantClient
from qdrant_client import models as qdrant

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.jobs.connecting import SnapshotReport, take_snapshot
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.list_provenance import score_meaning
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.sources.address import Address, parse
from cems_workbench.sources.connect import open_source
from cems_workbench.store import Store
from tests.planted_source import Counting

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
UNIT = [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8], [-1.0, 0.0, 0.0]]
UNEVEN = [[0.5, 0.0, 0.0], [6.0, 8.0, 0.0], [0.0, 0.6, 0.8], [-2.0, 0.0, 0.0]]
COSINES = {"m0": 1.0, "m1": 0.6, "m2": 0.0, "m3": -1.0}
TEXTS = ["one text", "two texts", "three texts", "four texts", "five texts"]
LIVE = with_values(
    PipelineConfig(),
    {"lists.answered_by": "source", "rerank.backend": "none", "judge.backend": "none", "filter.min_score": None},
)


class Along(Counting):
    """An embedder whose query is the first axis."""

    def encode_query(self, text: str) -> Any:
        return np.array([1, 0, 0], np.float32)


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[Callable[[Address], tuple[Resources, SnapshotReport]]]:
    stores: list[Store] = []

    def connect(address: Address) -> tuple[Resources, SnapshotReport]:
        stores.append(Store.open(tmp_path / f"store{len(stores)}"))
        with closing(open_source(address)) as source:
            report = take_snapshot(stores[-1], source, NOW, secret_from=address.secret_from)
        stores[-1].sources.name_embedder(report.source_id, "counting", "counting")
        resources = Resources(stores[-1], Along(), Servers("", "", "", None, None, None))
        resources.know_address(address)
        return resources, report

    yield connect
    for each in stores:
        each.close()


Connect = Callable[[Address], tuple[Resources, SnapshotReport]]


def chroma(folder: Path, space: str, vectors: list[list[float]]) -> Address:
    made = chromadb.PersistentClient(str(folder)).create_collection(
        "notes",
        embedding_function=None,
        configuration={"hnsw": {"space": space}},  # type: ignore[arg-type]
    )
    ids = [f"m{i}" for i in range(len(vectors))]
    made.add(ids=ids, embeddings=vectors, documents=TEXTS[: len(vectors)])  # type: ignore[arg-type]
    return parse(f"chroma:{folder}/notes", {})


def scores(evidence: Evidence) -> dict[str, float]:
    (found,) = [ranked for ranked in evidence.lists if ranked.name == "vector:0"]
    return {hit.memory_id: hit.score for hit in found.hits}


def warnings(evidence: Evidence) -> list[str]:
    return [line for line in evidence.notes["warnings"].get("lists", []) if line.startswith("vector:0")]


@pytest.mark.parametrize("space", ["l2", "ip", "cosine"])
def test_lists_of_chroma_are_cosines_of_unit_vectors_in_every_space(
    space: str, connected: Connect, tmp_path: Path
) -> None:
    resources, report = connected(chroma(tmp_path / "db", space, UNIT))
    evidence = gather(Request("a query"), LIVE, resources)
    assert scores(evidence) == pytest.approx(COSINES, abs=1e-6) and warnings(evidence) == []
    assert any("given as cosines" in line for line in report.lines) == (space != "cosine")
    assert any(line.startswith("the engine's scores, vector: distance: ") for line in report.lines)
    meaning = score_meaning(evidence.notes, "vector:0")
    assert meaning.startswith(f"Chroma, space {space}") and meaning.endswith(" Shown here as a cosine.")
    cut = with_values(LIVE, {"threshold.mode": "fixed", "threshold.fixed": 0.5})
    assert {result.memory_id for result in replay(evidence, cut).results} == {"m0", "m1"}


def test_distances_to_vectors_of_other_lengths_stay_and_every_list_says_what_it_is(
    connected: Connect, tmp_path: Path
) -> None:
    resources, report = connected(chroma(tmp_path / "db", "l2", UNEVEN))
    found = [line for line in report.lines if "lengths 0.5 to 10" in line]
    assert len(found) == 1 and "thresholds on a cosine do not apply" in found[0]
    evidence = gather(Request("a query"), LIVE, resources)
    expected = {f"m{i}": -float(np.linalg.norm(np.array(each) - [1, 0, 0])) for i, each in enumerate(UNEVEN)}
    assert scores(evidence) == pytest.approx(expected, abs=1e-5)
    assert evidence.notes["engine"]["lists"]["vector:0"]["scale"] == "negated_distance"
    cut = with_values(LIVE, {"threshold.mode": "fixed", "threshold.fixed": 0.5})
    assert len(replay(evidence, cut).results) == 4
    own = gather(Request("a query"), with_values(LIVE, {"lists.answered_by": "workbench"}), resources)
    assert scores(own) == pytest.approx(COSINES, abs=1e-6)
    assert warnings(own) == [
        "vector:0: by cosine; the source compares by Euclidean distance and its vectors have lengths 0.5 to 10, so its own order is "
        "another (lists.answered_by: source)"
    ]


def test_inner_products_of_qdrant_stay_products_of_vectors_of_other_lengths(connected: Connect, tmp_path: Path) -> None:
    client = QdrantClient(path=str(tmp_path / "db"))
    client.create_collection("notes", vectors_config=qdrant.VectorParams(size=3, distance=qdrant.Distance.DOT))
    points = [qdrant.PointStruct(id=i, vector=each, payload={"text": TEXTS[i]}) for i, each in enumerate(UNEVEN)]
    client.upsert("notes", points)
    client.close()
    resources, _ = connected(parse(f"qdrant:{tmp_path}/db#notes", {}))
    evidence = gather(Request("a query"), LIVE, resources)
    assert scores(evidence) == pytest.approx({"1": 6.0, "0": 0.5, "2": 0.0, "3": -2.0}, abs=1e-6)
    assert evidence.notes["engine"]["lists"]["vector:0"]["scale"] == "product"


def test_vectors_of_zeros_are_counted_and_in_no_live_list(connected: Connect, tmp_path: Path) -> None:
    resources, report = connected(chroma(tmp_path / "db", "l2", [*UNIT, [0.0, 0.0, 0.0]]))
    assert (report.lengths.count, report.lengths.zeros, report.lengths.unit) == (5, 1, True)
    assert any(line.startswith("1 with a vector of zeros, which has no cosine") for line in report.lines)
    evidence = gather(Request("a query"), LIVE, resources)
    assert scores(evidence) == pytest.approx(COSINES, abs=1e-6)
    assert warnings(evidence) == ["vector:0: 1 hit has a vector of zeros, and no cosine: left out"]
