"""Live lists: which are asked for, who answered, scores that are no cosines, and memories that are valid for a time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cems_workbench.analysis.edited_evidence import Edit, edited_evidence
from cems_workbench.analysis.fusion_comparison import compare_fusions
from cems_workbench.analysis.side_by_side import side_by_side
from cems_workbench.analysis.what_if import approximated
from cems_workbench.analysis.why.regather import list_ranks
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.connecting import SnapshotReport, take_snapshot
from cems_workbench.jobs.query_set_evidence import require_answered
from cems_workbench.models.http import CircuitBreaker
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.list_sources import OWN, answered_by, answered_lists, score_meaning
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.pipeline.stages import LISTS
from cems_workbench.records import Memory, Relation
from cems_workbench.sources.address import Address, parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import (
    NO_TRIAL,
    EngineHit,
    EngineList,
    EngineQuery,
    ListName,
    SourceError,
    SourceInfo,
    Trial,
)
from cems_workbench.store import Store
from tests.lazily import Lazy
from tests.planted_source import Counting, Planted, planted, taken
from tests.small_store import empty_store, store

__all__ = ["empty_store", "store"]
chromadb, library, qdrant = Lazy("chromadb"), Lazy("qdrant_client"), Lazy("qdrant_client.models")
REQUEST = Request("text of a")
BASE = with_values(
    preset("cems").config, {"rerank.backend": "none", "judge.backend": "none", "expansion.backend": "none"}
)
LIVE = with_values(
    BASE, {"lists.answered_by": "source", "lists.sparse.enabled": True, "lists.source_hybrid.enabled": True}
)
ANSWERS = {"vector": "ba", "sparse": "cb", "source_hybrid": "dca"}


@dataclass
class Hybrid(Planted):
    """A source with three lists of its own; `away`: it does not answer."""

    lists: tuple[ListName, ...] = ("vector", "sparse", "source_hybrid")
    away: bool = False
    asked: list[dict[ListName, int]] = field(default_factory=list)

    def probe(self) -> SourceInfo:
        return SourceInfo("planted", "a test 1.0", 4, 4, 3, lists=self.lists)

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        if self.away:
            raise SourceError(f"{self.address}: nothing answers")
        self.asked.append(dict(query.depths))
        return tuple(
            EngineList(name, depth, tuple(EngineHit(key, 9.0 - i) for i, key in enumerate(ANSWERS[name])), 0.001)
            for name, depth in query.depths.items()
        )


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Hybrid:
    found = Hybrid({name: taken(name) for name in "abcd"})
    planted(monkeypatch, found)
    monkeypatch.setattr("cems_workbench.pipeline.live_engine.open_source", lambda *given: found)
    return found


@pytest.fixture
def resources(store: Store, source: Hybrid) -> Resources:
    report = take_snapshot(store, source, datetime.now(UTC))
    store.sources.name_embedder(report.source_id, "counting", "counting")
    found = Resources(store, Counting(), Servers("", "http://localhost:9", "http://localhost:9", None, None, None))
    found.breaker = CircuitBreaker(clock=lambda: 1e9 * len(source.asked))
    return found


def gathered(resources: Resources, config: PipelineConfig = LIVE, **changes: Any) -> Evidence:
    changed = {f"lists.{path.replace('__', '.')}": value for path, value in changes.items()}
    return gather(REQUEST, with_values(config, changed), resources)


def ids(evidence: Evidence, name: str) -> str:
    return next(("".join(hit.memory_id for hit in one.hits) for one in evidence.lists if one.name == name), "none")


def test_each_list_that_is_on_is_the_sources_where_it_has_one(resources: Resources, source: Hybrid) -> None:
    evidence = gathered(resources, fts5__enabled=True, sparse__depth=7)
    assert source.asked == [{"vector": 150, "sparse": 7, "source_hybrid": 50}]
    assert {name: ids(evidence, f"{name}:0") for name in ANSWERS} == ANSWERS
    assert set(evidence.notes["engine"]["lists"]) == {f"{name}:0" for name in ANSWERS}
    assert answered_by(evidence.notes, "fts5:0") == OWN and answered_by(evidence.notes, "sparse:0").startswith(
        "as answered by"
    )
    said = answered_lists(evidence.notes, [ranked.name for ranked in evidence.lists])
    assert said.startswith("vector:0, sparse:0, source_hybrid:0: as answered by")
    assert said.endswith(f"; fts5:0: {OWN}")


def test_the_sources_fused_answer_alone_is_asked_beside_the_workbenchs_lists(
    resources: Resources, source: Hybrid
) -> None:
    evidence = gathered(resources, answered_by="workbench")
    assert source.asked == [{"source_hybrid": 50}]
    assert ids(evidence, "source_hybrid:0") == "dca" and ids(evidence, "vector:0") not in ("ba", "none")
    gathered(resources, answered_by="workbench", source_hybrid__enabled=False)
    assert len(source.asked) == 1  # nothing of it is on


def test_what_the_source_does_not_have_is_said_and_stays_the_workbenchs(resources: Resources, source: Hybrid) -> None:
    source.lists = ("vector",)
    evidence = gathered(resources)
    assert source.asked == [{"vector": 150}] and ids(evidence, "source_hybrid:0") == "none"
    assert (
        "there is no list source_hybrid: the source has no fused answer of its own"
        in (evidence.notes["warnings"]["lists"])
    )
    assert answered_by(evidence.notes, "sparse:0") == OWN
    require_answered(evidence, LIVE)  # it is only shown
    with pytest.raises(SourceError, match="source_hybrid is on, and of “text of a” there is no list"):
        require_answered(evidence, with_values(LIVE, {"lists.source_hybrid.weight": 1.0}))


def test_no_list_is_from_a_source_that_is_away(resources: Resources, source: Hybrid) -> None:
    source.away = True
    evidence = gathered(resources, answered_by="workbench")
    assert "engine" not in evidence.notes and ids(evidence, "source_hybrid:0") == "none"
    (line,) = [line for line in evidence.notes["warnings"]["lists"] if "source_hybrid" in line]
    assert line.startswith("there is no list source_hybrid: ") and line.endswith("nothing answers")


def test_a_source_that_is_no_longer_there_costs_its_own_lists_only(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*given: Any) -> None:
        raise InputError("planted:/folder: there is no file /folder")

    monkeypatch.setattr("cems_workbench.pipeline.live_engine.open_source", gone)
    evidence = gathered(resources, answered_by="workbench")
    assert ids(evidence, "vector:0") != "none"
    assert any("there is no list source_hybrid" in line for line in evidence.notes["warnings"]["lists"])


def test_without_a_weight_the_fused_answer_is_shown_and_changes_nothing(resources: Resources) -> None:
    evidence = gathered(resources, sparse__enabled=False, lexical__enabled=False, vector__depth=2)
    shown = with_values(LIVE, {"lists.vector.depth": 2, "lists.sparse.enabled": False, "lists.lexical.enabled": False})
    before, beside = (
        replay(evidence, with_values(shown, {"lists.source_hybrid.enabled": False})),
        replay(evidence, shown),
    )
    assert before.results and [(one.memory_id, one.score) for one in before.results] == [
        (one.memory_id, one.score) for one in beside.results
    ]
    table = side_by_side(beside)
    assert [column.key for column in table.columns if column.kind == "list"] == ["vector:0", "source_hybrid:0"]
    (row,) = [row for row in table.rows if row.memory_id == "d"]
    assert (row.cells["source_hybrid:0"].rank, row.cells["source_hybrid:0"].score) == (1, 9.0)
    assert row.dropped_words is not None and "only shown: its weight is 0" in row.dropped_words
    fusions = compare_fusions(beside)
    assert fusions is not None and (fusions.k, fusions.others, fusions.tied) == (3, ("d", "c"), ())
    weighed = replay(evidence, with_values(shown, {"lists.source_hybrid.weight": 1.0}))
    assert "d" in [one.memory_id for one in weighed.results]
    assert {one.name: one.active for one in weighed.stage(LISTS).fields.lists}["source_hybrid:0"]


def test_a_live_list_is_not_computed_for_why_or_for_an_edit(resources: Resources) -> None:
    evidence = gathered(resources)
    found = {each.list: each for each in list_ranks("d", evidence, LIVE, REQUEST, resources)}["vector:0"]
    assert (found.rank, found.returned, found.deeper) == (None, False, ())
    assert found.words.startswith("not returned, as answered by") and "Index check says why" in found.words
    there = {each.list: each for each in list_ranks("a", evidence, LIVE, REQUEST, resources)}["vector:0"]
    assert (there.rank, there.score, there.returned) == (2, 8.0, True)
    edited = Memory("b", "another text altogether")
    edit = Edit(resources.store.memories.get("b"), edited, resources)
    after = edited_evidence(edit, evidence, LIVE, REQUEST)
    assert (ids(after, "sparse:0"), ids(after, "source_hybrid:0")) == ("cb", "dca")
    said = approximated(edit, evidence)
    assert any(line.startswith("A running system answered vector:0, sparse:0, source_hybrid:0:") for line in said)


NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
UNIT = [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8], [-1.0, 0.0, 0.0]]
UNEVEN = [[0.5, 0.0, 0.0], [6.0, 8.0, 0.0], [0.0, 0.6, 0.8], [-2.0, 0.0, 0.0]]
COSINES = {"m0": 1.0, "m1": 0.6, "m2": 0.0, "m3": -1.0}
TEXTS = ["one text", "two texts", "three texts", "four texts", "five texts"]
DISTANCES = with_values(
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
        configuration={"hnsw": {"space": space}},
    )
    ids = [f"m{i}" for i in range(len(vectors))]
    made.add(ids=ids, embeddings=vectors, documents=TEXTS[: len(vectors)])
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
    evidence = gather(Request("a query"), DISTANCES, resources)
    assert scores(evidence) == pytest.approx(COSINES, abs=1e-6) and warnings(evidence) == []
    assert any("given as cosines" in line for line in report.lines) == (space != "cosine")
    assert any(line.startswith("the engine's scores, vector: distance: ") for line in report.lines)
    meaning = score_meaning(evidence.notes, "vector:0")
    assert meaning.startswith(f"Chroma, space {space}") and meaning.endswith(" Shown here as a cosine.")
    cut = with_values(DISTANCES, {"threshold.mode": "fixed", "threshold.fixed": 0.5})
    assert {result.memory_id for result in replay(evidence, cut).results} == {"m0", "m1"}


def test_distances_to_vectors_of_other_lengths_stay_and_every_list_says_what_it_is(
    connected: Connect, tmp_path: Path
) -> None:
    resources, report = connected(chroma(tmp_path / "db", "l2", UNEVEN))
    found = [line for line in report.lines if "lengths 0.5 to 10" in line]
    assert len(found) == 1 and "thresholds on a cosine do not apply" in found[0]
    evidence = gather(Request("a query"), DISTANCES, resources)
    expected = {f"m{i}": -float(np.linalg.norm(np.array(each) - [1, 0, 0])) for i, each in enumerate(UNEVEN)}
    assert scores(evidence) == pytest.approx(expected, abs=1e-5)
    assert evidence.notes["engine"]["lists"]["vector:0"]["scale"] == "negated_distance"
    cut = with_values(DISTANCES, {"threshold.mode": "fixed", "threshold.fixed": 0.5})
    assert len(replay(evidence, cut).results) == 4
    own = gather(Request("a query"), with_values(DISTANCES, {"lists.answered_by": "workbench"}), resources)
    assert scores(own) == pytest.approx(COSINES, abs=1e-6)
    assert warnings(own) == [
        "vector:0: by cosine; the source compares by Euclidean distance and its vectors have lengths 0.5 to 10, so its own order is "
        "another (lists.answered_by: source)"
    ]


def test_inner_products_of_qdrant_stay_products_of_vectors_of_other_lengths(connected: Connect, tmp_path: Path) -> None:
    client = library.QdrantClient(path=str(tmp_path / "db"))
    client.create_collection("notes", vectors_config=qdrant.VectorParams(size=3, distance=qdrant.Distance.DOT))
    points = [qdrant.PointStruct(id=i, vector=each, payload={"text": TEXTS[i]}) for i, each in enumerate(UNEVEN)]
    client.upsert("notes", points)
    client.close()
    resources, _ = connected(parse(f"qdrant:{tmp_path}/db#notes", {}))
    evidence = gather(Request("a query"), DISTANCES, resources)
    assert scores(evidence) == pytest.approx({"1": 6.0, "0": 0.5, "2": 0.0, "3": -2.0}, abs=1e-6)
    assert evidence.notes["engine"]["lists"]["vector:0"]["scale"] == "product"


def test_vectors_of_zeros_are_counted_and_in_no_live_list(connected: Connect, tmp_path: Path) -> None:
    resources, report = connected(chroma(tmp_path / "db", "l2", [*UNIT, [0.0, 0.0, 0.0]]))
    assert (report.lengths.count, report.lengths.zeros, report.lengths.unit) == (5, 1, True)
    assert any(line.startswith("1 with a vector of zeros, which has no cosine") for line in report.lines)
    evidence = gather(Request("a query"), DISTANCES, resources)
    assert scores(evidence) == pytest.approx(COSINES, abs=1e-6)
    assert warnings(evidence) == ["vector:0: hits left out, with a vector of zeros, which has no cosine: 1"]


@pytest.fixture
def valid_store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


def put(folder: Path, payloads: dict[int, dict[str, Any]]) -> Address:
    """Write rows into a collection of Qdrant, made if it is not there; its address."""
    client = library.QdrantClient(path=str(folder))
    if not client.collection_exists("c"):
        client.create_collection("c", vectors_config=qdrant.VectorParams(size=2, distance=qdrant.Distance.COSINE))
    points = [
        qdrant.PointStruct(id=str(uuid.UUID(int=n)), vector=[1.0, float(n)], payload=payload)
        for n, payload in payloads.items()
    ]
    client.upsert("c", points)
    client.close()
    return parse(f"qdrant:{folder}#c", {})


def connected_valid(valid_store: Store, address: Address) -> SnapshotReport:
    source = open_source(address)
    try:
        return take_snapshot(valid_store, source, NOW)
    finally:
        source.close()


def name(n: int) -> str:
    return str(uuid.UUID(int=n))


def test_expiration_date_is_the_last_valid_day(valid_store: Store, tmp_path: Path) -> None:
    rows = {
        1: {"data": "past", "user_id": "ann", "expiration_date": "2026-11-27"},
        2: {"data": "today", "user_id": "ann", "expiration_date": "2026-11-28"},
        3: {"data": "always", "user_id": "ann"},
        4: {"data": "no date", "user_id": "ann", "expiration_date": "soon"},
    }
    report = connected_valid(valid_store, put(tmp_path / "q", rows))
    found = valid_store.memories.read()
    assert found[name(1)].valid_until == datetime(2026, 11, 28, tzinfo=UTC)
    assert [found[name(n)].expired(NOW) for n in (1, 2, 3, 4)] == [True, False, False, False]
    assert any(line.startswith("1 expired there") for line in report.lines)
    assert [(problem.memory_id, problem.field) for problem in report.problems] == [(name(4), "expiration_date")]


def test_superseded_and_inactive_memories_keep_their_edge_and_their_end(valid_store: Store, tmp_path: Path) -> None:
    rows = {
        1: {
            "content": "port 5432",
            "original_id": "ctx-1",
            "is_active": False,
            "superseded_by": "ctx-2",
            "superseded_at": "2026-05-01T00:00:00Z",
        },
        2: {"content": "port 5433", "original_id": "ctx-2", "is_active": True, "superseded_by": None},
        3: {"content": "old", "original_id": "ctx-3", "is_active": False, "updated_at": "2026-04-01T00:00:00Z"},
        4: {"content": "dangling", "original_id": "ctx-4", "superseded_by": "ctx-9"},
    }
    connected_valid(valid_store, put(tmp_path / "q", rows))
    assert valid_store.relations.read() == [Relation(name(2), name(1), "supersedes")]
    found = valid_store.memories.read()
    assert found[name(1)].valid_until == datetime(2026, 5, 1, tzinfo=UTC)
    assert found[name(3)].valid_until == datetime(2026, 4, 1, tzinfo=UTC)
    assert found[name(2)].valid_until is None and found[name(4)].valid_until is None


def test_deleted_there_is_deleted_here_until_somebody_restores_it(valid_store: Store, tmp_path: Path) -> None:
    rows = {1: {"text": "kept"}, 2: {"text": "gone", "is_deleted": True}}
    report = connected_valid(valid_store, put(tmp_path / "q", rows))
    assert set(valid_store.memories.read()) == {name(1)}
    assert any(line.startswith("1 deleted there") for line in report.lines)
    assert valid_store.memories.restore(name(2))
    connected_valid(valid_store, put(tmp_path / "q", {1: {"text": "kept, changed"}}))
    assert set(valid_store.memories.read()) == {name(1), name(2)}, "an unchanged row does not undo the restoring"
    connected_valid(valid_store, put(tmp_path / "q", {1: {"text": "kept", "is_deleted": True}}))
    assert set(valid_store.memories.read()) == {name(2)}
    connected_valid(valid_store, put(tmp_path / "q", {1: {"text": "kept", "is_deleted": False}}))
    assert set(valid_store.memories.read()) == {name(1), name(2)}


def test_facts_of_graphiti_hold_between_valid_at_and_invalid_at(valid_store: Store, tmp_path: Path) -> None:
    rows = {
        1: {"fact": "x", "text": "a", "valid_at": "2026-01-01", "invalid_at": "2026-02-01", "expired_at": "2026-03-01"},
        2: {"text": "b", "valid_at": "2026-01-01", "expired_at": "2026-03-01"},
        3: {"text": "c", "valid_at": "2026-03-01", "invalid_at": "2026-02-01"},
    }
    report = connected_valid(valid_store, put(tmp_path / "q", rows))
    found = valid_store.memories.read()
    assert [found[name(n)].valid_until and found[name(n)].valid_until.month for n in (1, 2, 3)] == [2, 3, None]
    assert all(found[name(n)].valid_from is not None for n in (1, 2, 3))
    assert [(problem.field, problem.reason) for problem in report.problems] == [
        ("invalid_at", "is before the memory is valid")
    ]
