"""Evaluate and Tune open Inspect with the exact request they measured: its project, its time, no typed queries."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import streamlit
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset, with_values
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.pipeline import replay
from tests.sample import answered_queries, copied

from .inspect_page import config_of, set_config
from .pages import OpenPage, checked
from .test_tune_page import ended

pytestmark = [pytest.mark.models]
QUERIES, FEWER = 24, 8
"""Of the sets "few" and "fewer": as many as a search needs, and as many as show the way."""
TYPED = preset("cems").config.model_copy(update={"name": "typed"})
"""Further queries are typed by hand under it."""


@pytest.fixture(scope="module")
def store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with sets of answered queries that have a project; the first of them has no time."""
    folder = tmp_path_factory.mktemp("request")
    with copied(sample_store, folder) as opened:
        first, *others = [query for query in answered_queries(opened) if query.project][:QUERIES]
        for name, count in (("few", QUERIES), ("fewer", FEWER)):
            opened.query_sets.put(name, [replace(first, as_of=None), *others[: count - 1]], "test")
    return folder / "store"


@pytest.fixture
def page(open_page: OpenPage, store: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """Inspect after a search in all projects with a further typed query."""
    monkeypatch.setattr(streamlit, "switch_page", lambda target: None)  # AppTest goes there itself
    opened = open_page(store)
    set_config(opened, with_values(TYPED, {"expansion.backend": "manual"}))
    opened.run()
    labelled(opened, "text_input", "Query").set_value("who pays?")
    labelled(opened, "text_area", "Further queries, one per line").set_value("billing by seats")
    return checked(opened.run())


def labelled(page: AppTest, kind: str, label: str):  # type: ignore[no-untyped-def]
    """The one widget of a kind that bears a label."""
    (widget,) = [widget for widget in page.get(kind) if widget.label == label]
    return widget


def gather(page: AppTest) -> None:
    """Gather what is missing."""
    labelled(page, "button", "Gather").click().run()


def measured(store: Path, config: str, queries: int) -> EvidenceSet:
    """The evidence of so many queries that was gathered within projects for a config."""
    (evidence,) = [
        evidence
        for file in (store / "evidence").glob("*.evidence")
        if (evidence := read_evidence_file(file)).header.only_project
        and evidence.header.config.name == config
        and len(evidence.queries) == queries
    ]
    return evidence


def assert_shows(page: AppTest, evidence: EvidenceSet, query: str) -> None:
    """Inspect has the request of the evidence in its boxes, and ranks what that evidence gives under the config on the sliders."""
    qid = next(known.qid for known in evidence.queries if known.query == query)
    gathered = evidence.evidences[qid]
    page = checked(page.switch_page("pages/inspect.py").run())
    assert labelled(page, "text_input", "Query").value == query
    assert labelled(page, "toggle", "Only this project").value is True
    assert labelled(page, "text_area", "Further queries, one per line").value == ""
    assert labelled(page, "date_input", "As of").value == gathered.as_of.date()  # type: ignore[union-attr]
    (results,) = [str(html.proto.body) for html in page.get("html") if 'class="wb-results"' in html.proto.body]
    expected = [row.memory_id for row in replay(gathered, config_of(page)).results]
    shown = re.findall(r"<code>(.+?)</code>", results)[: len(expected)]  # what is missing is named behind them
    assert shown == expected


def test_a_query_of_evaluate_opens_as_it_was_measured(page: AppTest, store: Path) -> None:
    page.switch_page("pages/evaluate.py").run()
    labelled(page, "selectbox", "Query set").select("fewer")
    labelled(page, "toggle", "Within the project").set_value(True)
    labelled(page, "multiselect", "Configs").set_value(["cems", "as set in Inspect"]).run()
    gather(page)
    labelled(page, "segmented_control", "View").set_value("By query").run()
    evidence = measured(store, "typed", FEWER)
    (query,) = [query.query for query in evidence.queries if query.as_of is None]
    row = list(checked(page).dataframe[0].value["query"]).index(query)
    page.session_state["evaluate:queries"] = {"selection": {"rows": [row], "columns": [], "cells": []}}
    checked(page.run())
    assert_shows(page, evidence, query)


@pytest.mark.thorough
def test_a_query_of_tune_opens_as_it_was_measured(page: AppTest, store: Path) -> None:
    page.switch_page("pages/tune.py").run()
    labelled(page, "selectbox", "Query set").select("few")
    labelled(page, "toggle", "Within the project").set_value(True).run()
    gather(page)
    labelled(page, "selectbox", "Never split").select("query")
    labelled(page, "number_input", "Configs").set_value(30)
    labelled(page, "multiselect", "Parameters to search").set_value(["lists.vector.weight", "lists.lexical.weight"])
    page.run()
    labelled(page, "button", "Start the search").click().run()
    page = ended(page)
    labelled(page, "segmented_control", "View").set_value("By query").run()
    evidence = measured(store, "typed", QUERIES)
    (query,) = [query.query for query in evidence.queries if query.as_of is None]
    row = next(list(table.value["query"]).index(query) for table in page.dataframe if "query" in table.value)
    page.session_state["tune:queries"] = {"selection": {"rows": [row], "columns": [], "cells": []}}
    labelled(checked(page.run()), "button", "Open in Inspect").click().run()
    assert_shows(page, evidence, query)
