"""Evaluate with recorded answers: input, differences, and opening a query in Inspect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset, with_values
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.ui.evaluate import fidelity
from cems_workbench.ui.kit import session

from .inspect_page import config_of
from .pages import OpenPage, all_html, captions, checked, drawn, markdown, plainly, press, table_with

pytestmark = [pytest.mark.models]
RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "sample_cut.json"
QUERIES = 10


@pytest.fixture(scope="module")
def own_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store, in which this module gathers."""
    return shutil.copytree(sample_store, tmp_path_factory.mktemp("fidelity") / "store")


@pytest.fixture
def page(open_page: OpenPage, own_store: Path) -> AppTest:
    """The view, with nothing brought yet."""
    opened = open_page(own_store).switch_page("pages/evaluate.py")
    opened.session_state["evaluate:against"] = "Recorded answers"
    return checked(opened.run())


def brought(page: AppTest, path: Path) -> AppTest:
    page.text_input(key="evaluate:fidelity_path").set_value(str(path)).run()
    if any(button.key == "evaluate:fidelity:gather" for button in page.button):
        press(page, "evaluate:fidelity:gather")
    return page


def test_with_nothing_brought_the_page_says_what_to_bring(page: AppTest) -> None:
    assert "Compare a config with a real system" in all_html(page)
    assert "TREC run" in all_html(page)
    assert not page.dataframe


def test_what_is_asked_is_gathered_once_and_measured_by_setting(page: AppTest) -> None:
    checked(brought(page, RECORDING))
    row = table_with(page, "same order").iloc[0]
    assert (row["answers"], row["queries"]) == ("sample_cut, cems_head", QUERIES)
    assert row["same first"].split(" · ")[0].isdigit()
    assert "laid over cems_head: max_tokens 4000" in captions(page)
    page.multiselect(key="evaluate:fidelity_configs").select("recollection").run()
    if any(button.key == "evaluate:fidelity:gather" for button in page.button):
        press(page, "evaluate:fidelity:gather")
    assert list(table_with(page, "same order")["answers"]) == ["sample_cut, cems_head", "sample_cut, recollection"]
    page.selectbox(key="evaluate:fidelity_setting").select("sample_cut, recollection").run()
    listed = table_with(checked(page), "diverges at")
    assert list(listed["RBO"]) == sorted(listed["RBO"])
    assert set(listed["cause"]) <= {"lexical scores", "other", "equal relations", "equal scores"}


@pytest.mark.thorough
def test_a_row_opens_its_query_in_inspect_with_the_recorded_answer_beside_it(page: AppTest) -> None:
    brought(page, RECORDING)
    page.multiselect(key="evaluate:fidelity_configs").set_value(["recollection"]).run()
    if any(button.key == "evaluate:fidelity:gather" for button in page.button):
        press(page, "evaluate:fidelity:gather")
    listed = table_with(page, "diverges at")
    page.session_state["evaluate:fidelity_queries"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    checked(page.run())
    asked = next(row for row in json.loads(RECORDING.read_text())["answers"] if row["qid"] == listed["qid"][0])
    assert page.session_state["inspect:query"] == asked["query"]
    assert config_of(page).assembly.max_tokens == 4000
    placed = table_with(page, "lost at")
    recorded = [row["id"] for row in asked["results"]]
    assert list(placed["memory"])[: len(recorded)] == recorded


def test_what_the_config_itself_answers_has_no_differences(page: AppTest, tmp_path: Path) -> None:
    config = preset("cems_head").config
    resources = session.resources()
    results = replay(gather(Request("how do we roll back a failed deploy?"), config, resources), config).results
    path = tmp_path / "own.json"
    answer = {"query": "how do we roll back a failed deploy?", "results": [row.memory_id for row in results]}
    path.write_text(json.dumps(answer))
    checked(brought(page, path))
    assert "All queries match the recorded order and scores" in plainly(" ".join(box.value for box in page.success))


def test_a_single_change_that_explains_the_answers_is_found(page: AppTest, tmp_path: Path) -> None:
    config = with_values(preset("cems_head").config, {"gap.ratio": 0.0})
    query = "how do we roll back a failed deploy?"
    resources = session.resources()
    found = replay(gather(Request(query), config, resources), config).results
    answers = [{"qid": "x", "query": query, "results": [row.memory_id for row in found]}]
    path = tmp_path / "gap.json"
    path.write_text(json.dumps({"answers": answers}))
    brought(page, path)
    press(page, "evaluate:fidelity_explain")
    assert "0 to 1" in set(table_with(page, "would be")["same order"])


def test_plain_ids_ask_for_their_query(page: AppTest, tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("m001\nm002\n")
    brought(page, path)
    assert not page.dataframe
    page.text_input(key="evaluate:fidelity_query").set_value("how may one roll back a deploy?").run()
    press(page, "evaluate:fidelity:gather")
    assert table_with(page, "same order")["queries"][0] == 1
    assert "1 query differs" in markdown(page)


def test_bad_input_is_one_line(page: AppTest, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for text, line in (
        (
            '{"answers": [{"qid": "q1", "query": "x", "results": [{"score": 1}]}]}',
            "bad.json:1: results[0]: has neither an id",
        ),
        (
            '{"answers": [{"qid": "q1", "query": "x", "results": ["elsewhere"]}]}',
            "none of its memories is in the store",
        ),
    ):
        path.write_text(text)
        drawn(brought_anyway(page, path))
        assert [line in plainly(error.value) for error in page.error] == [True], text
    drawn(brought_anyway(page, tmp_path / "none.json"))
    assert "does not exist" in plainly(page.error[0].value)


def brought_anyway(page: AppTest, path: Path) -> AppTest:
    """Bring a file that may be refused."""
    page.text_input(key="evaluate:fidelity_path").set_value("").run()
    page.text_input(key="evaluate:fidelity_path").set_value(str(path)).run()
    for button in page.button:
        if button.key == "evaluate:fidelity:gather":
            button.click().run()
            break
    return page


@pytest.mark.thorough
def test_the_nearest_preset_is_found_with_its_changed_parameters(
    page: AppTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fidelity, "preset_names", lambda: ("engram_search", "mem0"))
    config = with_values(preset("mem0").config, {"assembly.limit": 3})
    resources = session.resources()
    answers = []
    for query in (
        "roll back a failed deploy",
        "who owns billing?",
        "run the tests",
        "log format",
        "rotate a secret",
        "flaky",
    ):
        found = replay(gather(Request(query), config, resources), config).results
        answers.append({"qid": query, "query": query, "results": [row.memory_id for row in found]})
    path = tmp_path / "of_mem0.json"
    path.write_text(json.dumps({"engine": "elsewhere", "answers": answers}))
    brought(page, path)
    press(page, "evaluate:nearest")
    assert "Nearest: mem0, changed parameters: 1" in plainly(markdown(page))
    changed = table_with(page, "nearest")
    assert (changed["mem0"][0], changed["nearest"][0]) == ("20", "3")
    assert "Nothing is held out of 6 queries" in captions(page)
