"""Live lists by name: which of them a gather asks for, who answered each, and that none of them is ever computed as ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from cems_workbench.analysis.edited_evidence import Edit, edited_evidence
from cems_workbench.analysis.engine_check import compare_fusions
from cems_workbench.analysis.side_by_side import side_by_side
from cems_workbench.analysis.what_if import approximated
from cems_workbench.analysis.why.regather import list_ranks
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.connecting import take_snapshot
from cems_workbench.jobs.query_set_evidence import require_answered
from cems_workbench.models.http import CircuitBreaker
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.list_provenance import OWN, answered_by, answered_lists
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.pipeline.stages import LISTS
from cems_workbench.records import Memory
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
from tests.planted_source import Counting, Planted, planted, taken
from tests.small_store import empty_store, store

__all__ = ["empty_store", "store"]
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
