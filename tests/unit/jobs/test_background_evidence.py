"""The background gather of the judged queries: it goes on after a stop, says what went wrong, and asks nobody without being asked."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cems_workbench.config import preset, with_values
from cems_workbench.jobs import background, evidence_memory
from cems_workbench.jobs.background import BackgroundEvidence, ForegroundGate, may_start_unasked
from cems_workbench.jobs.evidence_memory import EvidenceMemory
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.pipeline.scoring import RERANKING
from cems_workbench.records import Memory, Query
from cems_workbench.store import Store
from tests.planted_source import Counting
from tests.small_store import empty_store, parsed, store

__all__ = ["empty_store", "store"]
CONFIG = with_values(preset("cems").config, {"rerank.backend": "none", "judge.backend": "none"})
QUERIES = [Query(f"q{i}", f"red cache {i}") for i in range(3)]


@pytest.fixture
def resources(store: Store) -> Resources:
    store.add(parsed([Memory("m1", "a red cache"), Memory("m2", "a blue door")], queries=QUERIES))
    return Resources(store, Counting(), Servers("", "", "", None, None, None))


def test_a_stopped_gather_keeps_what_it_has_and_the_next_goes_on(resources, monkeypatch):
    memory, asked, real = EvidenceMemory(), [], evidence_memory.gather_lists
    first = BackgroundEvidence(memory, QUERIES, CONFIG, resources)

    def searched(request: Any, *given: Any) -> Any:
        asked.append(request.query)
        first.stop()
        return real(request, *given)

    monkeypatch.setattr(evidence_memory, "gather_lists", searched)
    first.start().wait(30)
    assert not first.problem and first.stopped and asked == ["red cache 0"]
    assert not memory.has(QUERIES, CONFIG, resources)
    second = BackgroundEvidence(memory, QUERIES, CONFIG, resources).start()
    second.wait(30)
    assert second.over and not second.stopped and not second.problem
    assert memory.has(QUERIES, CONFIG, resources) and len(asked) == 3
    assert second.key == first.key and second.total == 3


def test_it_stands_still_between_batches_while_a_page_is_at_work(resources, monkeypatch):
    foreground, searched = ForegroundGate(quiet_s=0, max_wait_s=600), []
    real_lists, real_scores = evidence_memory.gather_lists, evidence_memory.gather_scores

    def lists(request: Any, *given: Any) -> Any:
        searched.append(request.query)
        return real_lists(request, *given)

    def scores(evidence: Any, config: Any, resources: Any, progress: Any, **options: Any) -> Any:
        page.__enter__()  # somebody opens a page while a batch is read
        threading.Timer(0.05, page.__exit__, (None, None, None)).start()
        progress("embedding", 1, 2)  # the reranker is locked: no time to stand still
        assert foreground.active == 1
        progress(RERANKING, 1, 2)
        assert foreground.active == 0
        return real_scores(evidence, config, resources, **options)

    monkeypatch.setattr(background, "FOREGROUND", foreground)
    monkeypatch.setattr(evidence_memory, "gather_lists", lists)
    monkeypatch.setattr(evidence_memory, "gather_scores", scores)
    page = foreground.foreground_work()
    with foreground.foreground_work():
        gather = BackgroundEvidence(EvidenceMemory(), QUERIES[:1], CONFIG, resources).start()
        gather.wait(0.05)
        assert not gather.over and not searched
    gather.wait(30)
    assert gather.over and not gather.problem and searched == ["red cache 0"]


def test_what_goes_wrong_is_said(resources: Resources, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Any:
        raise OSError("disk is gone")

    monkeypatch.setattr(evidence_memory, "gather_lists", broken)
    gather = BackgroundEvidence(EvidenceMemory(), QUERIES, CONFIG, resources).start()
    gather.wait(30)
    assert gather.over and gather.problem == "OSError: disk is gone"


def test_servers_and_running_systems_are_not_asked_without_being_asked_for() -> None:
    assert may_start_unasked(CONFIG) and may_start_unasked(preset("workbench").config)
    for changes in ({"rerank.backend": "llama_server"}, {"lists.answered_by": "source"}, {"expansion.backend": "llm"}):
        assert not may_start_unasked(with_values(CONFIG, changes))
