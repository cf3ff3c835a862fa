"""How a store's sources stand, as doctor and the Memories page tell it: asked side by side, and never an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from cems_workbench.config import preset
from cems_workbench.jobs import diagnosis, factory, store_status
from cems_workbench.jobs.connecting import take_snapshot
from cems_workbench.jobs.diagnosis import Check, diagnose, source_checks
from cems_workbench.jobs.store_status import age, ask_sources, snapshot_line
from cems_workbench.settings import Settings
from cems_workbench.sources import connect as sources
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import SourceError, SourceInfo
from cems_workbench.store import Store
from tests.planted_source import Counting, Planted, Shorter, planted, taken
from tests.small_store import empty_store, store

__all__ = ["empty_store", "store"]
NOW = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class Silent(Planted):
    """A source that does not answer until the test is over."""

    over: threading.Event | None = None

    def probe(self) -> SourceInfo:
        assert self.over is not None
        self.over.wait()
        raise SourceError("too late")


@pytest.fixture
def over() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def check(store: Store, embedder: Counting | None = None, after: timedelta = timedelta(hours=3)) -> Check:
    (found,) = source_checks(ask_sources(store, embedder)(), NOW + after)
    return found


def test_a_source_that_is_as_the_store_has_it_is_well(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Planted({name: taken(name) for name in "abc"})
    report = take_snapshot(store, source, NOW)
    store.sources.name_embedder(report.source_id, "counting", "counting")
    store.memories.delete("c")
    planted(monkeypatch, source)
    found = check(store, Counting())
    assert (found.name, found.status, found.advice) == (f"source {source.address}", "ok", "")
    assert found.finding == (
        "a test answers; memories: 3 there, 2 here, 1 more deleted here; snapshot complete, 3 h ago; "
        "3 numbers of counting; 2 of 2 stored vectors reproduced, lowest cosine 1.0000"
    )


def test_what_changed_there_and_whose_vectors_nobody_named_is_said_with_what_to_do(store, monkeypatch):
    source = Planted({"a": taken("a")})
    take_snapshot(store, source, NOW)
    source.memories["b"] = taken("b")
    planted(monkeypatch, source)
    found = check(store)
    assert found.status == "warning" and "memories: 2 there, 1 here" in found.finding
    assert "which takes what changed" in found.advice and "--embedder MODEL" in found.advice


def test_an_embedder_of_another_model_is_named_beside_the_one_that_made_them(store, monkeypatch):
    source = Planted({"a": taken("a")})
    report = take_snapshot(store, source, NOW)
    store.sources.name_embedder(report.source_id, "ollama:counting", "counting")
    planted(monkeypatch, source)
    found = check(store, Shorter())
    assert "3 numbers of counting; shorter: 0 of 1 stored vectors reproduced" in found.finding
    assert found.advice == "set CEMS_WORKBENCH_EMBEDDER to ollama:counting"


def test_sources_that_are_away_or_silent_are_asked_side_by_side_and_only_warn(store, monkeypatch, over):
    broken = Planted({name: taken(name) for name in "abcd"}, fails_after=2, address="chroma://away:1/x")
    with pytest.raises(SourceError):
        take_snapshot(store, broken, NOW)
    silent = [Silent({name: taken(name)}, address=f"qdrant://silent/{name}", over=over) for name in "uvw"]
    for each in silent:
        take_snapshot(store, Planted(each.memories, address=each.address), NOW)
    by_address = {each.address: each for each in silent}

    def opened(address: Address, mapping: object, timeout: float) -> Planted:
        if address.plain not in by_address:
            raise SourceError("chroma://away:1/x: nobody answers")
        return by_address[address.plain]

    monkeypatch.setattr(sources, "open_source", opened)
    monkeypatch.setattr(store_status, "PROBE_TIMEOUT_S", 0.3)
    away, *rest = source_checks(ask_sources(store)(), NOW)
    assert away.status == "warning" and away.finding.startswith("chroma://away:1/x: nobody answers; memories: 2 here; ")
    assert "snapshot interrupted just now" in away.finding
    assert [each.finding.partition(";")[0] for each in rest] == ["no answer within 0.3 s"] * 3


def test_doctor_has_a_check_for_each_source_and_none_where_there_is_no_source(store, monkeypatch):
    source = Planted({"a": taken("a")})
    report = take_snapshot(store, source, NOW)
    store.sources.name_embedder(report.source_id, "counting", "counting")
    planted(monkeypatch, source)
    path = store.path
    store.close()
    monkeypatch.setattr(diagnosis, "embedder", lambda settings: Counting())
    monkeypatch.setattr(factory, "embedder", lambda settings: Counting())
    nobody = "http://127.0.0.1:1"
    settings = Settings(_env_file=None, store=path, llama_server_url=nobody, ollama_url=nobody)  # type: ignore[call-arg]
    found = {each.name: each for each in diagnose(settings, preset("cems_head").config)}
    assert "1 of 1 stored vectors reproduced" in found[f"source {source.address}"].finding
    assert "embedder match" not in found
    with Store.open(path) as opened:
        opened.sources.forget(report.source_id)
    assert not [name for name in (each.name for each in diagnose(settings)) if name.startswith("source ")]


def test_ages_are_told_in_the_largest_unit_that_tells_enough(store: Store) -> None:
    passed = [timedelta(seconds=59), timedelta(minutes=119), timedelta(hours=47), timedelta(days=9)]
    assert [age(each) for each in passed] == ["just now", "119 min ago", "47 h ago", "9 days ago"]
    source = Planted({name: taken(name) for name in "abcd"})
    take_snapshot(store, source, NOW)
    source.memories = {name: taken(name, marker="2") for name in "abcd"}
    source.fails_after = 2
    with pytest.raises(SourceError):
        take_snapshot(store, source, NOW + timedelta(hours=4))
    (record,) = store.sources.read()
    assert snapshot_line(record, NOW + timedelta(hours=5)) == "interrupted 60 min ago; the last complete one 5 h ago"
