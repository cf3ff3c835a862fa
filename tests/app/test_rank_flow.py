"""The rank flow on the page: number of lines, baseline, following by click, and an empty chart."""

from __future__ import annotations

import json
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.config import preset, with_values
from cems_workbench.ui.inspect.views import rank_flow as view

from .inspect_page import QUERY, order, search, set_config
from .pages import OpenPage, captions, html

pytestmark = [pytest.mark.models]


def opened(page: AppTest, query: str = QUERY) -> AppTest:
    page.session_state["inspect:view"] = "Rank flow"
    return search(page, query)


def figure(page: AppTest) -> dict[str, Any]:
    (chart,) = page.get("plotly_chart")
    return dict(json.loads(chart.proto.spec))


def test_a_judged_query_is_drawn_by_human_grade_with_all_its_judged_memories(open_page: OpenPage) -> None:
    page = opened(open_page())
    legend = html(page, "wb-legend")
    assert "grade 3, answers it" in legend and "grade 0, not relevant" in legend and "lost there" in legend
    assert "and every judged one" in captions(
        page
    ) and "no change in filter, rerank, supersession, gap, dedup, abstain" in captions(page)
    labels = [note["text"] for note in figure(page)["layout"]["annotations"]]
    assert labels == [f"{rank}  {memory_id}" for rank, memory_id in enumerate(order(page), 1)]


def test_more_memories_are_drawn_when_more_are_asked_for(open_page: OpenPage) -> None:
    page = opened(open_page(), "which invoices are still open")
    counts = []
    for top in view.TOPS:
        page.session_state["inspect:flow_top"] = top
        page.run()
        assert not page.exception
        counts.append(len(figure(page)["data"]))
    assert counts == sorted(set(counts))


def test_without_grades_the_judge_gives_the_colours_and_without_both_nothing_does(open_page: OpenPage) -> None:
    page = opened(open_page(), "a query that nobody judged about invoices")
    assert "grade" not in html(page, "wb-legend") and "not judged" in html(page, "wb-legend")
    set_config(page, with_values(preset("cems").config, {"judge.backend": "auto"}))
    page.session_state["inspect:view"] = "Judge"
    page.run()
    page.session_state["inspect:view"] = "Rank flow"
    page.run()
    assert not page.exception
    assert "judge: " in html(page, "wb-legend")


def test_a_followed_memory_is_drawn_wherever_it_stands(open_page: OpenPage) -> None:
    page = opened(open_page(), "which invoices are still open")
    drawn = figure(page)["data"]
    relations = map(json.loads, (SAMPLE_DATA / "relations.jsonl").read_text("utf-8").splitlines())
    successors = {edge["source_id"] for edge in relations if edge["kind"] == "supersedes"}  # some are in no list
    options = [option.split("  ")[0] for option in page.selectbox(key="inspect:follow").options]
    last = [option for option in options if option not in successors][-1]
    page.session_state["inspect:follow"] = last
    page.run()
    assert not page.exception
    assert any(f"<b>{last}</b>" in line.get("hovertext", "") for line in figure(page)["data"])
    assert not any(f"<b>{last}</b>" in line.get("hovertext", "") for line in drawn)


def test_a_click_follows_the_memory_of_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, Any] = {"chart": {"selection": {"points": [{"curve_number": 1}]}}, "inspect:follow": None}
    monkeypatch.setattr(st, "session_state", state)
    view.follow_selected("chart", ("m1", "m2"))
    assert state["inspect:follow"] == "m2"
    state["chart"] = {"selection": {"points": []}}
    view.follow_selected("chart", ("m1", "m2"))
    assert state["inspect:follow"] == "m2"  # clearing the selection changes nothing
    state["chart"] = {"selection": {"points": [{"curve_number": 2}]}}
    view.follow_selected("chart", ("m1", "m2"))
    assert state["inspect:follow"] == "m2"  # a line without a memory


def test_nothing_to_draw_is_said(open_page: OpenPage) -> None:
    page = open_page()
    off = {f"lists.{name}.enabled": False for name in ("vector", "lexical", "recency", "access", "relations")}
    set_config(page, with_values(preset("cems").config, off))
    page = opened(page)
    assert "No enabled list has candidates" in captions(page)
    assert not page.get("plotly_chart")


def test_one_list_alone_is_drawn(open_page: OpenPage) -> None:
    page = open_page()
    set_config(page, with_values(preset("cems").config, {"lists.lexical.enabled": False}))
    page = opened(page)
    columns = figure(page)["layout"]["xaxis"]["ticktext"]
    assert columns[0] == "vector:0" and columns[-1] == "assembly" and "lexical:0" not in columns
