"""What a running system hides is imported as it means it: mem0's expired, Letta's deleted, ACE's superseded and inactive memories.

The rows are written by hand: mem0's as its stores have them, the others' by the systems' sources."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient
from qdrant_client import models as qdrant

from cems_workbench.jobs.connecting import SnapshotReport, take_snapshot
from cems_workbench.records import Relation
from cems_workbench.sources.address import Address, parse
from cems_workbench.sources.connect import open_source
from cems_workbench.store import Store

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


def put(folder: Path, payloads: dict[int, dict[str, Any]]) -> Address:
    """Write rows into a collection of Qdrant, made if it is not there; its address."""
    client = QdrantClient(path=str(folder))
    if not client.collection_exists("c"):
        client.create_collection("c", vectors_config=qdrant.VectorParams(size=2, distance=qdrant.Distance.COSINE))
    points = [
        qdrant.PointStruct(id=str(uuid.UUID(int=n)), vector=[1.0, float(n)], payload=payload)
        for n, payload in payloads.items()
    ]
    client.upsert("c", points)
    client.close()
    return parse(f"qdrant:{folder}#c", {})


def connected(store: Store, address: Address) -> SnapshotReport:
    source = open_source(address)
    try:
        return take_snapshot(store, source, NOW)
    finally:
        source.close()


def name(n: int) -> str:
    return str(uuid.UUID(int=n))


def test_expiration_date_is_the_last_valid_day(store: Store, tmp_path: Path) -> None:
    rows = {
        1: {"data": "past", "user_id": "ann", "expiration_date": "2026-11-27"},
        2: {"data": "today", "user_id": "ann", "expiration_date": "2026-11-28"},
        3: {"data": "always", "user_id": "ann"},
        4: {"data": "no date", "user_id": "ann", "expiration_date": "soon"},
    }
    report = connected(store, put(tmp_path / "q", rows))
    found = store.memories.read()
    assert found[name(1)].valid_until == datetime(2026, 11, 28, tzinfo=UTC)
    assert [found[name(n)].expired(NOW) for n in (1, 2, 3, 4)] == [True, False, False, False]
    assert any(line.startswith("1 expired there") for line in report.lines)
    assert [(problem.memory_id, problem.field) for problem in report.problems] == [(name(4), "expiration_date")]


def test_superseded_and_inactive_memories_keep_their_edge_and_their_end(store: Store, tmp_path: Path) -> None:
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
    connected(store, put(tmp_path / "q", rows))
    assert store.relations.read() == [Relation(name(2), name(1), "supersedes")]
    found = store.memories.read()
    assert found[name(1)].valid_until == datetime(2026, 5, 1, tzinfo=UTC)
    assert found[name(3)].valid_until == datetime(2026, 4, 1, tzinfo=UTC)
    assert found[name(2)].valid_until is None and found[name(4)].valid_until is None


def test_deleted_there_is_deleted_here_until_somebody_restores_it(store: Store, tmp_path: Path) -> None:
    rows = {1: {"text": "kept"}, 2: {"text": "gone", "is_deleted": True}}
    report = connected(store, put(tmp_path / "q", rows))
    assert set(store.memories.read()) == {name(1)}
    assert any(line.startswith("1 deleted there") for line in report.lines)
    assert store.memories.restore(name(2))
    connected(store, put(tmp_path / "q", {1: {"text": "kept, changed"}}))
    assert set(store.memories.read()) == {name(1), name(2)}, "an unchanged row does not undo the restoring"
    connected(store, put(tmp_path / "q", {1: {"text": "kept", "is_deleted": True}}))
    assert set(store.memories.read()) == {name(2)}
    connected(store, put(tmp_path / "q", {1: {"text": "kept", "is_deleted": False}}))
    assert set(store.memories.read()) == {name(1), name(2)}


def test_facts_of_graphiti_hold_between_valid_at_and_invalid_at(store: Store, tmp_path: Path) -> None:
    rows = {
        1: {"fact": "x", "text": "a", "valid_at": "2026-01-01", "invalid_at": "2026-02-01", "expired_at": "2026-03-01"},
        2: {"text": "b", "valid_at": "2026-01-01", "expired_at": "2026-03-01"},
        3: {"text": "c", "valid_at": "2026-03-01", "invalid_at": "2026-02-01"},
    }
    report = connected(store, put(tmp_path / "q", rows))
    found = store.memories.read()
    assert [found[name(n)].valid_until and found[name(n)].valid_until.month for n in (1, 2, 3)] == [2, 3, None]
    assert all(found[name(n)].valid_from is not None for n in (1, 2, 3))
    assert [(problem.field, problem.reason) for problem in report.problems] == [
        ("invalid_at", "is before the memory is valid")
    ]
