"""Connecting to a source: what is taken, followed and searched, and whether it is well."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cems_workbench.config import preset
from cems_workbench.errors import InputError, StoreError
from cems_workbench.jobs import connecting, diagnosis, factory, store_status
from cems_workbench.jobs.connecting import (
    connect,
    forget,
    identify_embedder,
    rate_limited,
    read_mapping,
    source_specs,
    take_snapshot,
)
from cems_workbench.jobs.diagnosis import Check, diagnose, source_checks
from cems_workbench.jobs.embedder_match import match_source
from cems_workbench.jobs.store_status import ask_sources
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Cancelled
from cems_workbench.records import Memory, Relation, TakenMemory
from cems_workbench.settings import Settings
from cems_workbench.sources import connect as sources
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import Batch, SourceError, SourceInfo
from cems_workbench.store import Store
from tests.planted_source import Counting, Planted, Shorter, planted, taken, vector
from tests.small_store import empty_store, store
from tests.thoroughly import EXAMPLES, partly

__all__ = ["empty_store", "store"]
NOW = datetime(2026, 11, 1, tzinfo=UTC)


def vectors_of(store: Store, embedder: Counting, ids: Sequence[str]) -> Mapping[str, Mapping[int | None, Float32]]:
    return store.indexes.open(embedder).vectors.chunk_embeddings(ids)


def test_a_snapshot_is_searched_by_the_vectors_that_came(store: Store) -> None:
    source = Planted({"a": taken("a"), "b": taken("b", "one two three", chunks=("one two", "two three"))})
    report = take_snapshot(store, source, NOW)
    store.sources.name_embedder(report.source_id, "counting", "counting")
    embedder = Counting()
    store.indexes.refresh(embedder)
    assert embedder.texts == []
    assert (report.memories.added, report.vectors, report.without) == (2, 3, 0)
    found = vectors_of(store, embedder, ["a", "b"])
    assert set(found["b"]) == {0, 1} and set(found["a"]) == {None}
    for own in (*found["b"].values(), found["a"][None]):
        assert float(np.linalg.norm(own)) == pytest.approx(1.0)
    assert store.sources.chunk_numbers({"a", "b"}) == {("b", 10): 0, ("b", 11): 1}
    assert [chunk.start for chunk in store.chunks.read(["b"])["b"]] == [0, 4]


class Waiting:
    """A clock that only waiting moves; reading a batch takes `reading` seconds."""

    def __init__(self, reading: float = 0.0) -> None:
        self.now, self.reading, self.waits = 100.0, reading, 0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.waits += 1
        self.now += min(seconds, 0.5)

    def read(self, sizes: Sequence[int]) -> Iterator[Batch]:
        for i, size in enumerate(sizes):
            self.now += self.reading
            yield Batch(taken=[taken(f"{i}-{n}", "one two", chunks=("one", "two")) for n in range(size)])


@pytest.mark.parametrize(("reading", "seconds", "waited"), [(0.0, 5.0, True), (1.25, 5.25, True), (9.0, 27.0, False)])
def test_no_more_rows_are_read_a_second_than_was_said(reading: float, seconds: float, waited: bool) -> None:
    """5, 3 and 2 memories of 2 chunks at 4 a second: the second batch is asked for after 2.5 s, the third after 4, the end is at 5 s."""
    clock = Waiting(reading)
    begun, asked, rows = clock.now, [], 0
    for batch in rate_limited(clock.read([5, 3, 2]), 4, clock.pause, clock):
        asked.append(clock.now - begun - reading)
        assert rows <= 4 * asked[-1] + 1e-9  # when it was asked for, what came before had had its time
        rows += 2 * len(batch.taken)
    assert clock.now - begun == pytest.approx(seconds) and bool(clock.waits) == waited


def test_a_snapshot_keeps_to_its_rate_and_can_be_cancelled_while_it_waits(store, monkeypatch):
    slept: list[float] = []
    clock = Waiting()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.pause(seconds)

    monkeypatch.setattr(connecting, "time", SimpleNamespace(perf_counter=time.perf_counter, sleep=sleep))
    monkeypatch.setattr(connecting, "rate_limited", partial(rate_limited, clock=clock))
    source = Planted({name: taken(name) for name in "abcde"})  # two a batch
    take_snapshot(store, source, NOW, rows_per_second=2)
    assert sum(slept) == pytest.approx(2.5) and max(slept) <= connecting.CANCEL_POLL_S
    assert store.memories.ids() == list("abcde")
    source.memories |= {name: taken(name) for name in "fgh"}

    def cancel(label: str, done: int, total: int) -> None:
        if label == "importing memories" and done >= 7:
            raise Cancelled

    with pytest.raises(Cancelled):
        take_snapshot(store, source, NOW, cancel, rows_per_second=0.001)
    assert store.memories.ids() == list("abcdefg")  # what was taken by then stays


def test_only_what_changed_is_read_and_what_is_gone_leaves(store: Store) -> None:
    source = Planted({name: taken(name) for name in "abcde"}, [Relation("a", "b"), Relation("b", "c")])
    first = take_snapshot(store, source, NOW)
    assert first.relations.added == 2
    store.memories.delete("e")  # by a user, who stays right
    del source.memories["b"]
    source.memories["c"] = taken("c", "c was changed", marker="2")
    source.edges = [Relation("a", "c")]
    second = take_snapshot(store, source, NOW + timedelta(hours=1))
    assert source.read == ["c"]
    assert (second.memories.updated, second.memories.unchanged, second.deleted) == (1, 3, 1)
    assert (second.relations.added, second.relations_deleted) == (1, 2)
    assert store.memories.ids() == ["a", "c", "d"]
    assert store.memories.read(["c"])["c"].content == "c was changed"
    source.memories["b"] = taken("b", marker="1")  # it is there again
    take_snapshot(store, source, NOW + timedelta(hours=2))
    assert store.memories.ids() == ["a", "b", "c", "d"]
    assert not store.memories.hidden - {"e"}


def test_a_new_vector_of_the_same_text_reaches_the_index(store: Store) -> None:
    source = Planted({"a": taken("a"), "b": taken("b")})
    report = take_snapshot(store, source, NOW)
    store.sources.name_embedder(report.source_id, "counting", "counting")
    embedder = Counting()
    store.indexes.refresh(embedder)
    source.memories["a"] = TakenMemory(source.memories["a"].memory, "2", (), vector(0, 0, 5))
    take_snapshot(store, source, NOW)
    store.indexes.refresh(embedder)
    np.testing.assert_allclose(vectors_of(store, embedder, ["a"])["a"][None], [0, 0, 1], atol=1e-6)
    assert embedder.texts == []


def test_a_text_without_a_vector_is_in_no_vector_list_and_an_edited_one_is_embedded(store: Store) -> None:
    source = Planted({"a": taken("a"), "n": TakenMemory(Memory("n", "no vector"), "1")})
    report = take_snapshot(store, source, NOW)
    store.sources.name_embedder(report.source_id, "counting", "counting")
    embedder = Counting()
    store.indexes.refresh(embedder)
    assert (report.without, embedder.texts) == (1, [])
    assert set(vectors_of(store, embedder, ["a", "n"])) == {"a"}
    store.memories.update(Memory("a", "edited here"))
    store.indexes.refresh(embedder)
    assert embedder.texts == ["edited here"]


def test_texts_of_a_source_without_vectors_are_embedded_here(store: Store) -> None:
    source = Planted({"n": TakenMemory(Memory("n", "no vector"), "1")}, dimension=None)
    report = take_snapshot(store, source, NOW)
    embedder = Counting()
    store.indexes.refresh(embedder)
    assert embedder.texts == ["no vector"] and set(vectors_of(store, embedder, ["n"])) == {"n"}
    assert any("embedded here" in line for line in report.lines)


def test_a_snapshot_that_breaks_off_goes_on_where_it_was(store: Store) -> None:
    source = Planted({name: taken(name) for name in "abcdefg"}, fails_after=4)
    with pytest.raises(SourceError, match="lost; 4 memories were imported, connect again to resume"):
        take_snapshot(store, source, NOW)
    assert store.memories.count() == 4 and not store.sources.read()[0].complete
    source.fails_after = None

    def stop(label: str, done: int, total: int) -> None:
        if store.memories.count() == 6:
            raise Cancelled

    with pytest.raises(Cancelled):
        take_snapshot(store, source, NOW, stop)
    assert store.memories.count() == 6
    report = take_snapshot(store, source, NOW)
    assert source.read == ["g"] and store.sources.read()[0].complete
    assert report.memories.added == 1 and store.memories.ids() == list("abcdefg")


@pytest.mark.parametrize("named", [None, "another"])
def test_vectors_of_another_model_are_refused_with_both_named(store: Store, named: str | None) -> None:
    report = take_snapshot(store, Planted({"a": taken("a")}), NOW)
    if named:
        store.sources.name_embedder(report.source_id, named, named)
    with pytest.raises(StoreError, match="counting") as refused:
        store.indexes.refresh(Counting())
    assert "postgresql://me@here/cems" in str(refused.value) and (named or "name it") in str(refused.value)


def test_another_dimension_is_refused_before_anything_is_written(store: Store) -> None:
    take_snapshot(store, Planted({"a": taken("a")}), NOW)
    with pytest.raises(StoreError, match=r"vectors of 5 numbers, and the store those of .* with 3"):
        take_snapshot(store, Planted({"b": taken("b")}, dimension=5), NOW)
    assert store.memories.ids() == ["a"]


def test_an_embedder_is_known_by_making_the_same_vectors(store: Store) -> None:
    source = Planted({name: taken(name, f"{name} is a text of some length") for name in "abc"})
    take_snapshot(store, source, NOW)
    (record,) = store.sources.read()
    match = match_source(store, record, Counting())
    assert match.same and str(match).startswith("3 of 3 stored vectors reproduced, lowest cosine 1.0000")
    assert "3 of 3" in identify_embedder(store, record, Counting(), "counting", stated=False)
    assert store.sources.read()[0].model_id == "counting"
    source.memories = {"a": TakenMemory(Memory("a", "short"), "9", (), vector(0, 0, 1))}
    take_snapshot(store, source, NOW)
    (record,) = store.sources.read()
    assert "is not the embedder" in identify_embedder(store, record, Counting(), "counting", stated=False)


States = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 4), max_size=6)


@partly
@settings(max_examples=EXAMPLES // 2)
@given(st.lists(States, min_size=2, max_size=3))
def test_the_store_follows_the_source(tmp_path_factory, empty_store, states):
    with Store.open(shutil.copytree(empty_store, tmp_path_factory.mktemp("followed") / "store")) as store:
        source = Planted()
        for state in states:
            source.memories = {
                name: taken(name, f"{name} in state {n}", f"{n}", chunks=(f"{name} in", f"state {n}")[: n % 3])
                for name, n in state.items()
            }
            take_snapshot(store, source, NOW)
            live = store.memories.read()
            assert {key: memory.content for key, memory in live.items()} == {
                name: each.memory.content for name, each in source.memories.items()
            }
            chunks = {key: tuple(c.text for c in own) for key, own in store.chunks.read(live).items()}
            assert chunks == {
                name: tuple(chunk.text for chunk in each.chunks)
                for name, each in source.memories.items()
                if each.chunks
            }
            assert store.sources.read()[0].memories == len(state)


@pytest.fixture
def resources(store: Store, monkeypatch: pytest.MonkeyPatch) -> Resources:
    """The store with the embedder that the settings name, `shorter`; `counting` is to be had as well."""
    made = {"shorter": Shorter, "counting": Counting}
    monkeypatch.setattr(factory, "embedder", lambda settings: made[settings.embedder]())
    return Resources(store, Shorter(), factory.servers(SETTINGS))


SETTINGS = Settings.model_construct(set(), embedder="shorter")


def test_connecting_searches_with_the_embedder_that_was_stated(resources, monkeypatch):
    planted(monkeypatch, Planted({"a": taken("a")}))
    wanted = source_specs(resources, "postgresql://me:s3cret@here/cems")
    found = connect(resources, SETTINGS, wanted)
    assert (
        "makes 2 numbers, the source has 3" in found.sources[0].embedder and "nothing says which model" in found.problem
    )
    found = connect(resources, SETTINGS, wanted, embedder="counting")
    assert found.problem == "" and "1 of 1 stored vectors reproduced" in found.sources[0].embedder
    assert resources.embedder.model_id == "counting" and len(resources.indexes.vectors) == 1
    known = resources.address("postgresql://me@here/cems")
    assert known is not None and known.secret is not None and known.secret.get_secret_value() == "s3cret"
    assert connect(resources, SETTINGS, source_specs(resources, None)).problem == ""  # it is remembered
    assert forget(resources, SETTINGS, "postgresql://me@here/cems") == 1
    assert resources.embedder.model_id == "shorter" and resources.store.memories.count() == 0
    with pytest.raises(InputError, match="it has none"):
        forget(resources, SETTINGS, "postgresql://me@here/cems")
    connect(resources, SETTINGS, wanted, embedder="counting")
    assert resources.store.memories.count() == 1


def test_what_was_taken_before_a_source_failed_stays_and_its_mapping_is_remembered(resources, monkeypatch):
    source = Planted({name: taken(name) for name in "abc"}, fails_after=2)
    planted(monkeypatch, source)
    mapping = read_mapping("id: key", "the mapping")
    with pytest.raises(SourceError, match="2 memories were imported"):
        connect(resources, SETTINGS, source_specs(resources, source.address, mapping), embedder="counting")
    source.fails_after = None
    (again,) = source_specs(resources, source.address)
    assert again.mapping == {"id": "key"}
    assert connect(resources, SETTINGS, [again], embedder="counting").sources[0].read == 1


@pytest.mark.parametrize("text", ["- a list", "key: [", "words"])
def test_a_mapping_that_is_none_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"^notes\.yaml: ") as refused:
        read_mapping(text, "notes.yaml")
    assert "\n" not in str(refused.value)


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


def test_the_age_of_a_snapshot_is_told_in_the_largest_unit_that_tells_enough(store: Store) -> None:
    passed = [timedelta(seconds=59), timedelta(minutes=119), timedelta(hours=47), timedelta(days=9)]
    assert [store_status.age(each) for each in passed] == ["just now", "119 min ago", "47 h ago", "9 days ago"]
    source = Planted({name: taken(name) for name in "abcd"})
    take_snapshot(store, source, NOW)
    source.memories, source.fails_after = {name: taken(name, marker="2") for name in "abcd"}, 2
    with pytest.raises(SourceError):
        take_snapshot(store, source, NOW + timedelta(hours=4))
    (record,) = store.sources.read()
    line = store_status.snapshot_line(record, NOW + timedelta(hours=5))
    assert line == "interrupted 60 min ago; the last complete one 5 h ago"


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


def test_a_folder_and_its_only_collection_are_one_source(store):
    for address in ("qdrant:/f", "qdrant:/f/memories", "qdrant:/f2", "qdrant:/f"):
        last = take_snapshot(store, Planted({"a": taken("a")}, address=address), NOW)
    assert [each.address for each in store.sources.read()] == ["qdrant:/f2", "qdrant:/f"]
    assert last.replaced == {"qdrant:/f2": 1}


def test_a_folder_without_a_newer_file_answers_at_once_and_another_is_asked(store, tmp_path, monkeypatch):
    (tmp_path / "meta.json").write_text("{}")
    source = Planted({"a": taken("a")}, address=f"qdrant:{tmp_path}/memories")
    taken_at = datetime.fromtimestamp((tmp_path / "meta.json").stat().st_mtime + 5, UTC)
    take_snapshot(store, source, taken_at)
    monkeypatch.setattr(sources, "open_source", lambda *_: pytest.fail("opened"))
    assert [(each.problem, each.difference) for each in ask_sources(store)()] == [("", 0)]
    os.utime(tmp_path / "meta.json", (taken_at.timestamp() + 1,) * 2)
    source.memories["b"] = taken("b")
    planted(monkeypatch, source)
    assert [each.difference for each in ask_sources(store)()] == [1]


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
    settings = Settings(store=path, llama_server_url=nobody, ollama_url=nobody)
    found = {each.name: each for each in diagnose(settings, preset("cems_head").config)}
    assert "1 of 1 stored vectors reproduced" in found[f"source {source.address}"].finding
    assert "embedder match" not in found
    with Store.open(path) as opened:
        opened.sources.forget(report.source_id)
    assert not [name for name in (each.name for each in diagnose(settings)) if name.startswith("source ")]
