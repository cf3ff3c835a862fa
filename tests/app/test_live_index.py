"""Systems beside the store: the live index, whose lists say where they are from, and external traces, whose stages have no controls."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.jobs.catalogue import PRESENT_NAME
from cems_workbench.jobs.connecting import take_snapshot
from cems_workbench.jobs.importing import import_files
from cems_workbench.jobs.traced_sets import traced_sets
from cems_workbench.pipeline.list_sources import provenance_of
from cems_workbench.progress import silent
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, TakenMemory
from cems_workbench.settings import Settings
from cems_workbench.sources.source import (
    NO_TRIAL,
    EngineHit,
    EngineList,
    EngineQuery,
    Setting,
    SourceError,
    SourceInfo,
    Trial,
)
from cems_workbench.store import Store
from cems_workbench.ui.inspect.state import InspectState, TracedQuery
from cems_workbench.ui.kit import session
from tests.planted_source import Planted, planted
from tests.small_store import empty_store

from .conftest import loaded_once
from .inspect_page import PLAIN, STATE, configured, evidence_of, open_group, order, ranks, search, show, tool
from .pages import OpenPage, all_html, captions, checked, html, markdown, plainly, press, table_with

__all__ = ["empty_store"]

TEXTS = {
    f"m{i}": text
    for i, text in enumerate(
        (
            "Roll back a deploy with make undo.",
            "A deploy is rolled back by the release captain.",
            "Deploys happen on Tuesdays.",
            "Tea is green.",
            "The harbor dashboard has dark mode.",
            "Tests run in containers.",
        )
    )
}
QUERY = "how do we roll back a deploy"


@dataclass
class Cut(Planted):
    """A source that searches exactly, and returns `ef` rows; `strangers` stand first and are not in the snapshot."""

    ef: int = 2
    strangers: tuple[str, ...] = ()
    away: bool = False
    asked: list[Trial] = field(default_factory=list)

    def probe(self) -> SourceInfo:
        return SourceInfo(
            "planted",
            "a test 1.0",
            len(self.memories),
            len(self.memories),
            384,
            index="hnsw",
            settings=(Setting("hnsw.ef_search", str(self.ef), "rows an index scan returns", ("4", "100")),),
        )

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        if self.away:
            raise SourceError(f"{self.address}: nothing answers at this address")
        self.asked.append(trial)
        scored = {
            key: float(np.dot(each.vector, query.vector))
            for key, each in self.memories.items()
            if each.vector is not None
        }
        most = int(trial.settings.get("hnsw.ef_search", self.ef))
        best = sorted(scored, key=lambda key: -scored[key])[: min(most, query.depths["vector"])]
        hits = [EngineHit(key, 1.0) for key in self.strangers] + [EngineHit(key, scored[key]) for key in best]
        return (EngineList("vector", query.depths["vector"], tuple(hits), 0.002),)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Cut:
    vectors = loaded_once(Settings()).encode(list(TEXTS.values()))
    made = {
        key: TakenMemory(Memory(key, text), "1", (), vector)
        for (key, text), vector in zip(TEXTS.items(), vectors, strict=True)
    }
    found = Cut(made, address="postgresql://me@db.example/cems")
    planted(monkeypatch, found)
    monkeypatch.setattr("cems_workbench.pipeline.live_engine.open_source", lambda *given: found)
    return found


@pytest.fixture
def page(open_page: OpenPage, source: Cut, empty_store: Path, tmp_path: Path) -> Callable[..., AppTest]:
    def start(**changes: object) -> AppTest:
        folder = Path(shutil.copytree(empty_store, tmp_path / "store"))
        with Store.open(folder) as store:
            report = take_snapshot(store, source, datetime.now(UTC))
            embedder = loaded_once(Settings())
            store.sources.name_embedder(report.source_id, Settings().embedder, embedder.model_id)
        changed = {**PLAIN, **{name.replace("__", "."): value for name, value in changes.items()}}
        return search(configured(open_page(folder), changed), QUERY)

    return start


def test_the_cut_list_is_found_with_its_cause_and_the_setting_that_mends_it(
    page: Callable[..., AppTest], source: Cut
) -> None:
    opened = tool(page(), "Index check")
    assert not source.asked  # a running system is asked when somebody wants it
    assert plainly(opened.button(key="inspect:index_check:ask").label) == "Query cems"
    opened = press(opened, "inspect:index_check:ask")
    said = markdown(opened)
    assert "vector of cems missed 4 of the 6 exact nearest memories; the first of them has rank 3." in said
    assert "hnsw.ef_search is 2, rows an index scan returns" in said
    live = next(frame.value for frame in opened.dataframe if "rows requested" in str(frame.value.get("how")))
    assert "2 returned in 2 ms" in live["how"][0] and live["at depth"][0] == "✕ 2 of 6"
    assert table_with(opened, "exact cosine").iloc[0]["exact rank"] == 3
    opened = press(opened, "inspect:index_check:try")
    assert "hnsw.ef_search = 100 finds all 6." in markdown(opened)
    tried = table_with(opened, "setting")
    assert list(tried["setting"]) == ["current", "hnsw.ef_search = 4", "hnsw.ef_search = 100"]
    assert list(tried["rows"]) == [2, 4, 6] and list(tried["recall"]) == ["✕ 2 of 6", "✕ 4 of 6", "✓ 6 of 6"]
    count = len(source.asked)
    checked(opened.run())
    assert len(source.asked) == count  # kept: it is not asked again


def test_rows_that_came_since_the_snapshot_and_a_source_that_is_away_are_one_line(
    page: Callable[..., AppTest], source: Cut
) -> None:
    source.strangers = ("new",)
    opened = press(tool(page(), "Index check"), "inspect:index_check:ask")
    assert "1 of its rows are not in the snapshot, the first at position 1: import" in opened.warning[0].value
    source.away = True
    opened = opened.button(key="inspect:index_check:try").click().run()
    assert len(opened.error) == 1 and "nothing answers at this address" in plainly(opened.error[0].value)


def test_the_views_say_whose_list_it_is(page: Callable[..., AppTest]) -> None:
    opened = show(page(lists__answered_by="source"), "Lists")
    assert "vector:0" in markdown(opened) and "as answered by cems at 2" in markdown(opened)
    assert markdown(opened).count("as answered by") == 1  # the lexical list is the workbench's own
    said = tool(opened, "Index check")
    assert table_with(said, "at depth")["how"][0].startswith("as answered by cems at 2")


def test_other_views_say_whose_list_it_is_in_the_words_of_the_lists_view(page: Callable[..., AppTest]) -> None:
    opened = page(lists__answered_by="source", threshold__mode="fixed", threshold__fixed=0.0)
    views = ("Contributions", "Rank flow", "Threshold")
    for view in views:
        show(opened, view)
        whose = provenance_of(evidence_of(opened).notes, "vector:0")
        assert whose and f"vector:0: {whose}" in captions(opened)  # and no other list
        charts = "".join(chart.proto.spec for chart in opened.get("plotly_chart"))
        assert view == "Threshold" or whose in charts  # on hover
    own = search(configured(opened, {**PLAIN, "threshold.mode": "fixed"}), QUERY)
    for view in views:
        assert "as answered by" not in captions(show(own, view)) + markdown(own)


def test_the_page_says_when_it_was_answered_and_asks_again_on_request(
    page: Callable[..., AppTest], source: Cut
) -> None:
    opened = page(lists__answered_by="source")
    assert len(source.asked) == 1
    assert f"vector:0: {provenance_of(evidence_of(opened).notes, 'vector:0')}" in captions(opened)
    first = evidence_of(opened).notes["engine"]["at"]
    opened = checked(opened.run())
    assert len(source.asked) == 1  # what was answered is shown until somebody asks again
    source.ef = 6
    opened = press(opened, "inspect:ask_again")
    assert len(source.asked) == 2 and evidence_of(opened).notes["engine"]["at"] > first
    assert evidence_of(opened).notes["engine"]["lists"]["vector:0"]["returned"] == 6
    source.away = True
    opened = press(opened, "inspect:ask_again")
    assert "No list was returned by the live system" in captions(opened)
    assert any(button.key == "inspect:ask_again" for button in opened.button)


@pytest.mark.thorough
def test_evaluate_says_when_lists_were_answered_and_asks_again_on_request(
    page: Callable[..., AppTest], source: Cut
) -> None:
    opened = page(lists__answered_by="source")
    resources = session.open_or_explain()
    assert resources is not None
    resources.store.add(
        ParsedInput("asked", "queries", queries=[Query("q1", QUERY)], judgments=[Judgment("q1", "m0", 3)])
    )
    resources.store.query_sets.put("asked", [Query("q1", QUERY)], "a test")
    opened = checked(opened.switch_page("pages/evaluate.py").run())
    opened.session_state["evaluate:configs"] = [PRESENT_NAME]
    opened = press(checked(opened.run()), "evaluate:gather")
    count = len(source.asked)
    opened = checked(opened.run())
    assert "lists as answered by cems at 2" in captions(opened) and len(source.asked) == count
    opened = press(opened, "evaluate:ask_again")
    assert "as answered by" not in captions(opened)
    opened = press(opened, "evaluate:gather")
    assert "lists as answered by cems at 2" in captions(opened) and len(source.asked) == count + 1


def test_without_a_source_the_control_says_that_it_has_no_effect(open_page: OpenPage) -> None:
    opened = open_group(open_page(), "lists")
    assert "no live source" in captions(opened)
    opened = tool(search(opened), "Index check")
    assert not any(button.key == "inspect:index_check:ask" for button in opened.button)


TRACED = "how do we roll back a failed deploy?"
FOUND = {"bm25": ["m001", "m002", "m003"], "dense": ["m004", "m002"]}


def span(number: int, name: str, kind: str, parent: int | None, documents: list[str], **more: Any) -> dict[str, Any]:
    field = "reranker.output_documents" if kind == "RERANKER" else "retrieval.documents"
    attributes = {"openinference.span.kind": kind, "input.value": TRACED, **more}
    for i, key in enumerate(documents):
        attributes |= {f"{field}.{i}.document.id": key, f"{field}.{i}.document.score": 1.0 / (i + 1)}
    return {
        "trace_id": "t1",
        "span_id": f"s{number}",
        "parent_id": None if parent is None else f"s{parent}",
        "name": name,
        "start_time": f"2026-11-22T10:00:0{number}Z",
        "end_time": f"2026-11-22T10:00:0{number}.5Z",
        "status_code": "OK",
        "attributes": attributes,
    }


def spans() -> str:
    """A pipeline of two lists, a fusion, and a reranker that drops m002."""
    rows = [
        span(0, "search", "CHAIN", None, ["m004", "m001"]),
        span(1, "bm25", "RETRIEVER", 0, FOUND["bm25"]),
        span(2, "dense", "RETRIEVER", 0, FOUND["dense"]),
        span(3, "rerank", "RERANKER", 0, ["m004", "m001"], **{"reranker.query": TRACED}),
    ]
    return "\n".join(json.dumps(row) for row in rows)


@pytest.fixture(scope="module")
def traced_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with the trace, imported as the Memories page imports an upload."""
    path = Path(shutil.copytree(sample_store, tmp_path_factory.mktemp("traced") / "store"))
    store = Store.open(path)
    (imported,) = import_files([("pipeline.jsonl", io.BytesIO(spans().encode()))], store, silent)
    assert imported.problem == ""
    assert imported.report is not None
    assert traced_sets(store) == {"pipeline": 1}
    (query,) = store.query_sets.queries("pipeline")
    qrels = f"{query.qid} 0 m002 3\n{query.qid} 0 m004 1\n".encode()
    (judged,) = import_files([("judged.qrels", io.BytesIO(qrels))], store, silent)
    assert judged.problem == ""
    store.close()
    return path


@pytest.fixture
def traced_page(open_page: OpenPage, traced_store: Path) -> AppTest:
    return open_page(traced_store)


def opened_trace(traced_page: AppTest, store: Path) -> AppTest:
    """The traced query, as the picker opens it."""
    from cems_workbench.evaluation.evidence_file import read_evidence_file
    from cems_workbench.jobs.traces import traced_path

    (query,) = read_evidence_file(traced_path(store, "pipeline")).queries
    held: InspectState = traced_page.session_state[STATE]
    traced_page.session_state[STATE] = replace(held, traced=TracedQuery("pipeline", query.qid, query.query))
    traced_page.session_state["inspect:query"] = query.query
    return checked(traced_page.run())


def test_recorded_stages_are_shown_without_controls(traced_page: AppTest, traced_store: Path) -> None:
    assert traced_page.slider, "a query of this store has sliders"
    opened_trace(traced_page, traced_store)
    assert order(traced_page) == ["m004", "m001"]
    assert "rerank" in html(traced_page, "wb-strip")
    assert (
        "1 of 2 memories judged relevant is missing: “Layout of the billing API” (grade 3), dropped by rerank."
        in html(traced_page, "wb-next")
    )
    assert (len(traced_page.slider), len(traced_page.selectbox)) == (0, 1), "only the memory to follow is chosen"
    assert "no setting changes them" in captions(traced_page)
    show(traced_page, "Lists")
    lost = ranks(traced_page).set_index("memory")["lost at"]
    assert lost["m002"] == "rerank"
    press(traced_page, "inspect:traced:search")
    assert len(traced_page.slider) > 0


def test_why_names_the_stage_that_lost_a_memory(traced_page: AppTest, traced_store: Path) -> None:
    opened_trace(traced_page, traced_store)
    traced_page.session_state["inspect:section"] = "Why, and what if"
    traced_page.session_state["inspect:why:chosen"] = (TRACED, "m002")
    traced_page.run()
    checked(traced_page)
    assert traced_page.get("button_group") or traced_page.pills
    assert "rerank" in all_html(traced_page)
    assert "nearest" in plainly(all_html(traced_page) + captions(traced_page) + markdown(traced_page))


def test_losses_are_those_of_the_recorded_stages(traced_page: AppTest, traced_store: Path) -> None:
    traced_page.switch_page("pages/evaluate.py")
    traced_page.session_state["evaluate:set"] = "pipeline"
    checked(traced_page.run())
    assert "no config changes them" in captions(traced_page)
    assert not [box for box in traced_page.multiselect if box.key == "evaluate:configs"]
    assert "rerank" in all_html(traced_page) + markdown(traced_page)
    traced_page.session_state["evaluate:against"] = "Recorded answers"
    checked(traced_page.run())
    assert "pipeline · 1 answers" in traced_page.multiselect(key="evaluate:fidelity_sets").options
