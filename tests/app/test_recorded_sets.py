"""A log of production's answers: imported, chosen on Evaluate, picked on Inspect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.formats import read
from cems_workbench.store import Store

from .pages import OpenPage, captions, checked, press, table_with

pytestmark = [pytest.mark.models]
ASKED = [
    ("how do we roll back a failed deploy?", ["m002", "m001"], [0.9, 0.4]),
    ("how do I run the tests?", [], []),
    ("who is on call this week?", ["m003", "elsewhere"], [0.2, 0.1]),
]


@pytest.fixture(scope="module")
def logged_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a log of three questions."""
    folder = tmp_path_factory.mktemp("logged")
    path = folder / "production.jsonl"
    rows = [
        {"time": f"2026-11-22T10:0{n}:00Z", "query": query, "results": ids, "scores": scores}
        for n, (query, ids, scores) in enumerate(ASKED)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    place = shutil.copytree(sample_store, folder / "store")
    with Store.open(place) as store:
        store.add(read(path))
    return place


def evaluated(open_page: OpenPage, store: Path) -> AppTest:
    page = open_page(store).switch_page("pages/evaluate.py")
    page.session_state["evaluate:against"] = "Recorded answers"
    checked(page.run())
    page.multiselect(key="evaluate:fidelity_sets").select("production").run()
    if any(button.key == "evaluate:fidelity:gather" for button in page.button):
        press(page, "evaluate:fidelity:gather")
    return checked(page)


def test_a_kept_set_is_measured_and_its_failing_queries_stand_first(open_page: OpenPage, logged_store: Path) -> None:
    page = evaluated(open_page, logged_store)
    row = table_with(page, "same order").iloc[0]
    assert (row["answers"], row["queries"]) == ("production, cems_head", 3)
    listed = table_with(page, "diverges at")
    assert listed["query"][0] == "how do I run the tests?"
    assert "Listed first: 1 without a recorded result." in captions(page)
    assert list(listed["RBO"][1:]) == sorted(listed["RBO"][1:])
    page.session_state["evaluate:fidelity_order"] = "Lowest recorded score first"
    listed = table_with(checked(page.run()), "diverges at")
    assert list(listed["query"]) == [ASKED[1][0], ASKED[2][0], ASKED[0][0]]
    assert listed["cause"][1] == "not here"


@pytest.mark.thorough
def test_recorded_queries_are_listed_failing_first_and_beside_the_config_on_request(
    open_page: OpenPage, logged_store: Path
) -> None:
    page = open_page(logged_store)
    page.session_state["inspect:picker"] = True
    page.run()
    picker = page.selectbox(key="inspect:picker_set")
    assert picker.options[1] == "production · 3 recorded"
    picker.select("production").run()
    listed = table_with(checked(page), "top score")
    assert list(listed["query"]) == [ASKED[1][0], ASKED[2][0], ASKED[0][0]]
    assert "First those without a result (1), then the lowest scores." in captions(page)
    press(page, "inspect:picker_compare")
    listed = table_with(page, "RBO")
    assert listed["query"][0] == ASKED[1][0]
    assert list(listed["RBO"][1:]) == sorted(listed["RBO"][1:])


def test_without_a_log_nothing_is_offered(open_page: OpenPage) -> None:
    page = open_page().switch_page("pages/evaluate.py")
    page.session_state["evaluate:against"] = "Recorded answers"
    checked(page.run())
    assert "evaluate:fidelity_sets" not in {box.key for box in page.multiselect}
