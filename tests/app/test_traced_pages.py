"""External traces on the pages: import, the recorded stages on Inspect without controls, the loss that Why names, losses and labels."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.jobs.importing import import_files
from cems_workbench.jobs.traced_sets import traced_sets
from cems_workbench.progress import silent
from cems_workbench.store import Store
from cems_workbench.ui.inspect.state import InspectState, TracedQuery

from .inspect_page import STATE, order, ranks, show
from .pages import OpenPage, all_html, captions, checked, html, markdown, plainly, press

QUERY = "how do we roll back a failed deploy?"
FOUND = {"bm25": ["m001", "m002", "m003"], "dense": ["m004", "m002"]}


def span(number: int, name: str, kind: str, parent: int | None, documents: list[str], **more: Any) -> dict[str, Any]:
    field = "reranker.output_documents" if kind == "RERANKER" else "retrieval.documents"
    attributes = {"openinference.span.kind": kind, "input.value": QUERY, **more}
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
        span(3, "rerank", "RERANKER", 0, ["m004", "m001"], **{"reranker.query": QUERY}),
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
def page(open_page: OpenPage, traced_store: Path) -> AppTest:
    return open_page(traced_store)


def opened(page: AppTest, store: Path) -> AppTest:
    """The traced query, as the picker opens it."""
    from cems_workbench.evaluation.evidence_file import read_evidence_file
    from cems_workbench.jobs.traces import traced_path

    (query,) = read_evidence_file(traced_path(store, "pipeline")).queries
    held: InspectState = page.session_state[STATE]
    page.session_state[STATE] = replace(held, traced=TracedQuery("pipeline", query.qid, query.query))
    page.session_state["inspect:query"] = query.query
    return checked(page.run())


def test_recorded_stages_are_shown_without_controls(page: AppTest, traced_store: Path) -> None:
    assert page.slider, "a query of this store has sliders"
    opened(page, traced_store)
    assert order(page) == ["m004", "m001"]
    assert "rerank" in html(page, "wb-strip")
    assert "1 of 2 memories judged relevant is missing: m002 (grade 3), dropped by rerank." in html(page, "wb-next")
    assert (len(page.slider), len(page.selectbox)) == (0, 1), "only the memory to follow is chosen"
    assert "no setting changes them" in captions(page)
    show(page, "Lists")
    lost = ranks(page).set_index("memory")["lost at"]
    assert lost["m002"] == "rerank"
    press(page, "inspect:traced:search")
    assert len(page.slider) > 0


def test_why_names_the_stage_that_lost_a_memory(page: AppTest, traced_store: Path) -> None:
    opened(page, traced_store)
    page.session_state["inspect:section"] = "Why, and what if"
    page.session_state["inspect:why:chosen"] = (QUERY, "m002")
    page.run()
    checked(page)
    assert page.get("button_group") or page.pills
    assert "rerank" in all_html(page)
    assert "nearest" in plainly(all_html(page) + captions(page) + markdown(page))


def test_losses_are_those_of_the_recorded_stages(page: AppTest, traced_store: Path) -> None:
    page.switch_page("pages/evaluate.py")
    page.session_state["evaluate:set"] = "pipeline"
    checked(page.run())
    assert "no config changes them" in captions(page)
    assert not [box for box in page.multiselect if box.key == "evaluate:configs"]
    assert "rerank" in all_html(page) + markdown(page)
    page.session_state["evaluate:against"] = "Recorded answers"
    checked(page.run())
    assert "pipeline · 1 answers" in page.multiselect(key="evaluate:fidelity_sets").options
