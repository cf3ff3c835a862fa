"""Evidence with a running system's lists: a command asks anew, a page says when it was answered, and nothing is passed off as live."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.jobs.connecting import take_snapshot
from cems_workbench.jobs.evidence_memory import EvidenceMemory
from cems_workbench.jobs.query_set_evidence import (
    QuerySelection,
    discard_evidence,
    ensure_evidence,
    evidence_path,
    gather_evidence,
    read_evidence,
)
from cems_workbench.models.http import CircuitBreaker
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.list_sources import asked_between, provenance
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.records import ParsedInput, Query
from cems_workbench.sources.source import NO_TRIAL, EngineHit, EngineList, EngineQuery, SourceError, Trial
from cems_workbench.store import Store
from cems_workbench.store.sources import UNPROVEN
from tests.planted_source import Counting, Planted, planted, taken
from tests.small_store import empty_store, store

__all__ = ["empty_store", "store"]
QUERIES = (Query("q1", "a query"), Query("q2", "another query"))
SELECTION = QuerySelection("asked", QUERIES)
OWN = with_values(
    preset("cems").config, {"rerank.backend": "none", "judge.backend": "none", "expansion.backend": "none"}
)
LIVE = with_values(OWN, {"lists.answered_by": "source"})


@dataclass
class Changing(Planted):
    """A source that answers with the memories in `order`; `texts` are those that it was asked for."""

    order: str = "ab"
    away: bool = False
    texts: list[str] = field(default_factory=list)

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        if self.away:
            raise SourceError(f"{self.address}: here does not answer")
        self.texts.append(query.text)
        hits = tuple(EngineHit(key, 1 - i / 10) for i, key in enumerate(self.order))
        return (EngineList("vector", query.depths["vector"], hits, 0.001),)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Changing:
    found = Changing({name: taken(name) for name in "abc"})
    planted(monkeypatch, found)
    monkeypatch.setattr("cems_workbench.pipeline.live_engine.open_source", lambda *given: found)
    return found


@pytest.fixture
def resources(store: Store, source: Changing) -> Resources:
    report = take_snapshot(store, source, datetime.now(UTC))
    store.sources.name_embedder(report.source_id, "counting", "counting")
    store.add(ParsedInput("queries", "queries", queries=list(QUERIES)))
    found = Resources(store, Counting(), Servers("", "http://localhost:9", "http://localhost:9", None, None, None))
    found.breaker = CircuitBreaker(clock=lambda: 1e9 * len(source.texts))  # a source that was away is asked at once
    return found


def order(config: PipelineConfig, resources: Resources) -> list[str]:
    evidence = read_evidence(config, SELECTION, resources)
    assert evidence is not None
    (ranked,) = [each for each in evidence.evidences["q1"].lists if each.name == "vector:0"]
    return [hit.memory_id for hit in ranked.hits]


def test_a_command_asks_the_running_system_anew_and_takes_its_own_lists_from_the_shelf(resources, source):
    for config, asked in ((LIVE, 2), (OWN, 0)):
        source.texts, source.order = [], "ab"
        ensure_evidence(config, SELECTION, (), resources)
        before = evidence_path(config, SELECTION, resources).stat().st_mtime_ns
        assert len(source.texts) == asked
        source.order = "ba"
        ensure_evidence(config, SELECTION, (), resources)
        assert len(source.texts) == 2 * asked
        assert (evidence_path(config, SELECTION, resources).stat().st_mtime_ns != before) == (asked > 0)
    assert order(LIVE, resources) == ["b", "a"]


def test_configs_of_one_command_share_what_was_answered_since_it_began(resources: Resources, source: Changing) -> None:
    begun = datetime.now(UTC)
    for k in (60, 30):
        ensure_evidence(with_values(LIVE, {"fusion.k": k}), SELECTION, (), resources, since=begun)
    assert source.texts == [query.query for query in QUERIES]


def test_a_page_shows_what_was_answered_says_when_and_asks_again_on_request(resources, source):
    begun = datetime.now(UTC)
    gather_evidence(LIVE, SELECTION, (), resources)
    source.order = "ba"
    assert order(LIVE, resources) == ["a", "b"] and len(source.texts) == 2
    evidence = read_evidence(LIVE, SELECTION, resources)
    assert evidence is not None
    between = asked_between(one.notes for one in evidence.evidences.values())
    assert between is not None and begun <= between[0] <= between[1] <= datetime.now(UTC)
    assert evidence.answered.startswith("as answered by cems ") and f"{between[1]:%Y-%m-%d %H:%M}" in evidence.answered
    discard_evidence(LIVE, SELECTION, resources)
    assert read_evidence(LIVE, SELECTION, resources) is None
    gather_evidence(LIVE, SELECTION, (), resources)
    assert order(LIVE, resources) == ["b", "a"]


def test_asking_again_leaves_the_evidence_of_other_configs(resources: Resources) -> None:
    gather_evidence(OWN, SELECTION, (), resources)
    discard_evidence(LIVE, SELECTION, resources)
    found = read_evidence(OWN, SELECTION, resources)
    assert found is not None and found.answered == ""


def test_a_system_that_is_away_ends_the_gather_and_no_list_of_the_store_stands_for_its(resources, source):
    source.away = True
    with pytest.raises(
        SourceError,
        match=r"lists.answered_by is source, and of “a query” the lists are the store's own.*does not answer",
    ):
        gather_evidence(LIVE, SELECTION, (), resources)
    assert read_evidence(LIVE, SELECTION, resources) is None
    with pytest.raises(SourceError, match=r"lists.answered_by is source"):
        EvidenceMemory().get(QUERIES, LIVE, resources)


def test_a_store_of_no_running_system_has_no_such_evidence(store: Store) -> None:
    store.add(ParsedInput("memories", "memories", memories=[taken("a").memory]))
    alone = Resources(store, Counting(), Servers("", "", "", None, None, None))
    with pytest.raises(SourceError, match="these memories were taken from no running system"):
        gather_evidence(LIVE, SELECTION, (), alone)


def test_in_memory_it_is_asked_once_by_this_process_never_from_the_shelf_and_again_on_request(resources, source):
    gather_evidence(LIVE, SELECTION, (), resources)
    source.texts, source.order = [], "ba"
    memory = EvidenceMemory()
    for _ in range(2):
        found = memory.get(QUERIES, LIVE, resources)
    assert len(source.texts) == 2 and [hit.memory_id for hit in found[0].lists[0].hits] == ["b", "a"]
    memory.forget(LIVE, resources)
    assert not memory.has(QUERIES, LIVE, resources)
    assert (
        "as answered by cems" in provenance(*(one.notes for one in memory.get(QUERIES, LIVE, resources)))
        and len(source.texts) == 4
    )


def test_vectors_that_no_text_reproduces_are_a_warning_of_every_search(resources: Resources) -> None:
    (record,) = resources.store.sources.read()
    for form, warned in (("content", False), (UNPROVEN, True), ("content", False)):
        resources.store.sources.name_embedder(record.id, "counting", "counting", form)
        evidence = gather_lists(Request("a query"), OWN, resources)
        said = "the vectors of cems were not reproduced by counting: another text was embedded, or by another model"
        assert (said in evidence.notes.get("warnings", {}).get("lists", ())) == warned
