"""Work behind the pages, and who may do what."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from searches import planned

from cems_workbench.config import preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs import background, evidence_memory
from cems_workbench.jobs.access import ROLES, allowed_path, may, require, role_of
from cems_workbench.jobs.background import (
    STABILITY,
    BackgroundChroma,
    BackgroundEvidence,
    BackgroundSearch,
    may_start_unasked,
)
from cems_workbench.jobs.evidence_memory import EvidenceMemory
from cems_workbench.jobs.foreground import ForegroundGate
from cems_workbench.jobs.tuning import run_search
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.pipeline.scoring import RERANKING
from cems_workbench.records import Memory, Query
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.store.search.chroma_collection import ChromaCollection
from tests.planted import planted_file
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


@pytest.fixture
def paused(resources: Resources, monkeypatch: pytest.MonkeyPatch) -> tuple[BackgroundChroma, Any]:
    """A writer of the Chroma collection that stands still after its first entry of two, and the page at work that it waits for."""
    foreground, write = ForegroundGate(quiet_s=0, max_wait_s=600), ChromaCollection.write
    page, opened = foreground.foreground_work(), threading.Event()

    def written(*given: Any) -> Any:
        found = write(*given)
        if not opened.is_set():
            page.__enter__()  # somebody opens a page while the first entry is written
            opened.set()
        return found

    monkeypatch.setattr(background, "FOREGROUND", foreground)
    monkeypatch.setattr(background, "CHROMA_ROWS", 1)
    monkeypatch.setattr(ChromaCollection, "write", written)
    resources.refresh()
    writer = BackgroundChroma(resources).start()
    assert opened.wait(30)
    return writer, page


def test_chroma_is_written_while_no_page_is_at_work_and_is_then_open(resources, paused) -> None:
    writer, page = paused
    resources.store.add(parsed([Memory("m3", "a green hat")]))
    assert resources.refresh() is not None, "the writer holds no lock while it waits"
    assert not writer.over and not resources.graph_open
    page.__exit__(None, None, None)
    writer.wait(30)
    assert writer.over and not writer.problem and resources.graph_open
    assert writer.version == resources.indexed
    assert resources.store.indexes.graph(resources.embedder).count() == 3
    resources.store.memories.delete("m1")
    resources.refresh()
    assert not resources.graph_open, "the collection is behind"


def test_a_store_that_closes_ends_the_writing(resources: Resources, paused: tuple[BackgroundChroma, Any]) -> None:
    writer, page = paused
    resources.close()
    page.__exit__(None, None, None)
    writer.wait(30)
    assert writer.over and writer.stopped


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


LONG = 600.0


def started(foreground: ForegroundGate) -> threading.Thread:
    thread = threading.Thread(target=foreground.wait_while_busy, daemon=True)
    thread.start()
    return thread


def test_a_step_waits_until_nobody_is_waited_for() -> None:
    foreground = ForegroundGate(quiet_s=0, max_wait_s=LONG)
    foreground.wait_while_busy()  # nobody ever was
    with foreground.foreground_work():
        with foreground.foreground_work():
            step = started(foreground)
        step.join(0.05)
        assert step.is_alive(), "one of the two is at work still"
    step.join(30)
    assert not step.is_alive()


def test_a_moment_later_it_still_waits_and_what_takes_long_gets_no_more_than_the_longest_time() -> None:
    after = ForegroundGate(quiet_s=LONG, max_wait_s=LONG)
    with after.foreground_work():
        pass
    step = started(after)
    step.join(0.05)
    assert step.is_alive()
    bounded = ForegroundGate(quiet_s=LONG, max_wait_s=0.01)
    with bounded.foreground_work():
        began = time.monotonic()
        bounded.wait_while_busy()
        assert time.monotonic() - began >= 0.01


WAIT = 60


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    return planted_file(tmp_path, 24)


def test_a_search_ends_as_one_in_the_foreground_with_stability_measured(evidence: Path) -> None:
    search = BackgroundSearch(planned(evidence))
    assert not search.over and search.result is None
    search.start().wait(WAIT)
    assert search.over and search.problem == ""
    assert search.result is not None and len(search.result.regions) == 2
    assert search.part == STABILITY
    assert search.tried == len(search.best) == 15  # a grid is searched once, folds included
    assert search.best == sorted(search.best) and search.best[0] < search.best[-1]
    assert search.result.tuned.config == run_search(planned(evidence)).tuned.config


def test_a_search_that_is_stopped_at_once_has_a_result_or_says_why_not(evidence: Path) -> None:
    search = BackgroundSearch(planned(evidence))
    search.stop()
    search.start().wait(WAIT)
    assert search.over and search.stopping
    assert search.tried <= 1
    if search.result is None:
        assert search.problem == "Stopped before the baseline was scored."
    else:
        assert search.result.tuned.search.cancelled and search.result.regions == ()


@pytest.mark.parametrize(
    ("identity", "settings", "role"),
    [
        ({"email": "ada@x.example"}, {}, "reviewer"),
        ({"email": "ada@x.example"}, {"operators": "bob@x.example, ada@x.example"}, "operator"),
        ({"email": None}, {"operators": ""}, "reviewer"),
        ({"groups": "operator"}, {"role_claim": "groups"}, "operator"),
        ({"groups": ["staff", "reader", "reviewer"]}, {"role_claim": "groups"}, "reviewer"),
        ({"groups": ["Operator", "admin"]}, {"role_claim": "groups"}, "reader"),
        ({"groups": {"operator": True}}, {"role_claim": "groups"}, "reader"),
        ({}, {"role_claim": "groups"}, "reader"),
        ({"email": "ada@x.example"}, {"role_claim": "groups", "operators": "ada@x.example"}, "operator"),
    ],
)
def test_the_highest_role_that_the_claim_names(identity: dict[str, Any], settings: dict[str, str], role: str) -> None:
    assert role_of(identity, Settings(**settings)) == role  # type: ignore[arg-type]


def test_each_role_has_the_rights_of_those_before_it() -> None:
    assert [[may(role, needed) for needed in ROLES] for role in ROLES] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    require("operator", "operator")
    with pytest.raises(
        InputError, match="a reviewer may not change memories and the store: it takes the role operator"
    ):
        require("reviewer", "operator")


def test_only_named_folders_are_opened(tmp_path: Path) -> None:
    home, more, other = tmp_path / "home", tmp_path / "more", tmp_path / "other"
    for folder in (home, more, other):
        folder.mkdir()
    (home / "out").symlink_to(other)
    settings = Settings(store=home / "store", folders=f"{more}, {tmp_path / 'none'}")
    for inside in (home / "store", home / "another" / "store", more, more / "a.evidence"):
        assert allowed_path(str(inside), settings) == inside
    for outside in (other, tmp_path, home / ".." / "other", home / "out" / "x", more.with_name("more2"), Path("/")):
        with pytest.raises(InputError, match=r"is not in a folder that pages may open .*CEMS_WORKBENCH_FOLDERS"):
            allowed_path(str(outside), settings)
    for no_path in ("a\0b", "~nobody-of-this-name/x", "x" * 5_000):
        with pytest.raises(InputError):
            allowed_path(no_path, settings)
