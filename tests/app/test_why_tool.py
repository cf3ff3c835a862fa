"""Why is it missing, on the page: choose a memory, read the cause, apply a change, undo it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset, with_values
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.ui.inspect import fetch_evidence
from cems_workbench.ui.inspect.tools import choose_memory
from cems_workbench.ui.kit import session
from tests.sample import FAILING
from tests.thoroughly import first_of

from .inspect_page import choose_tool, config_of, order, remembered, search, set_config
from .pages import OpenPage, bodies, buttons, captions, html, press

pytestmark = [pytest.mark.models]
ROOT = Path(__file__).resolve().parents[2]


def open_tool(page: AppTest, query: str = FAILING, **state: object) -> AppTest:
    """The tool on a query, as of its date if it is judged."""
    stored = next((one for one in session.resources().store.queries.read() if one.query == query), None)
    choose_tool(page, "Why is it missing?")
    if stored is not None and stored.as_of is not None:
        page.session_state["inspect:as_of"] = stored.as_of.date()
    if stored is not None and stored.project is not None:
        page.session_state["inspect:project"] = stored.project
    for name, value in state.items():
        page.session_state[f"inspect:{name}"] = value
    return search(page, query)


def pick(page: AppTest, memory_id: str) -> AppTest:
    page = page.button(key=f"inspect:why:pick:{memory_id}").click().run()
    assert not page.exception
    return page


def wanted(qid: str) -> tuple[str, str]:
    """The words of a failing sample query, and the memory that should have come."""
    text = (ROOT / "sample_data" / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {qid} \|[^|]+\| (m\d+)", text, re.MULTILINE)
    assert found
    return next(one.query for one in session.resources().store.queries.read() if one.qid == qid), found[1]


@pytest.mark.parametrize("qid", first_of(["q09", "q53", "q116", "q128"]))
def test_a_failing_query_gets_a_cause_and_its_rescue_brings_the_memory_in(open_page: OpenPage, qid: str) -> None:
    page = open_page()
    query, memory_id = wanted(qid)
    page = open_tool(page, query)
    assert memory_id not in order(page)[:10]
    page = pick(page, memory_id)
    cause = html(page, "wb-cause")
    assert f"<code>{memory_id}</code>" in cause and re.search(r"fusion|adjust|assembly", cause)
    fix = re.search(
        rf'<p class="wb-fix">[^<]+ = [^<]+ {memory_id} becomes (\d+)\w\w; [^<]+</p>\s*<p class="wb-sentence">', cause
    )
    assert fix is not None, cause
    assert " ".join(bodies(page)).count("lost here: ") == 1
    page = press(page, "inspect:why:apply:0")
    assert memory_id in order(page)[:10]
    assert order(page).index(memory_id) + 1 == int(fix[1])
    assert "It needs no change" in html(page, "wb-cause")
    assert config_of(page) != preset("cems").config


def test_taking_it_back_restores_every_parameter(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    before = order(page)
    page = press(pick(page, "m089"), "inspect:why:apply:0")
    assert any("Applied" in text.value for text in page.markdown)
    assert order(page) != before
    page = press(page, "inspect:why:back")
    assert order(page) == before
    assert config_of(page) == preset("cems").config
    assert not buttons(page, "inspect:why:back")


def test_the_line_of_what_was_applied_goes_when_another_parameter_is_moved(open_page: OpenPage) -> None:
    page = press(pick(open_tool(open_page()), "m089"), "inspect:why:apply:0")
    slider = next(one for one in page.slider if one.key and one.key.endswith(":fusion.k"))
    page = slider.set_value(30).run()
    assert not page.exception and not buttons(page, "inspect:why:back")


@pytest.mark.thorough
def test_a_term_to_search_for_too_is_typed_into_the_box_and_taken_back(open_page: OpenPage) -> None:
    page = open_page()
    query, memory_id = wanted("q11")
    page = pick(open_tool(page, query), memory_id)
    term = next(one.key for one in page.button if one.label.startswith("Apply ") and "search for" in one.label)
    page = press(page, str(term))
    assert memory_id in order(page)[:10]
    assert page.text_area(key="inspect:manual").value
    page = press(page, "inspect:why:back")
    assert config_of(page).expansion.backend == "none"
    assert memory_id not in order(page)[:10]


def test_judged_memories_are_offered_best_grade_first(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    labels = [button.label for button in page.button if button.key and button.key.startswith("inspect:why:pick:")]
    grades = [int(label[-1]) for label in labels]
    assert grades == sorted(grades, reverse=True) and grades[0] == 3
    assert "not within the first 10 results" in captions(page)


def test_how_far_up_it_should_be_is_a_choice(open_page: OpenPage) -> None:
    page = open_tool(open_page(), "how many different doctors did I visit?")
    page = page.number_input(key="inspect:why:k").set_value(1).run()
    assert not page.exception
    assert "not within the first result" in captions(page)
    assert not set(buttons(page, "inspect:why:pick:")) & {f"inspect:why:pick:{order(page)[0]}"}


def test_nothing_is_computed_before_a_memory_is_chosen(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    assert "inspect:why:answers" not in page.session_state
    page = pick(page, "m089")
    kept = remembered(page, "why:answers")
    page = page.run()
    assert remembered(page, "why:answers") is kept


def test_any_memory_is_found_by_words_or_id_and_explained(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    page = page.text_input(key="inspect:why:search").set_value("m322").run()
    assert buttons(page, "inspect:why:match:")[0] == "inspect:why:match:m322"
    page = page.text_input(key="inspect:why:search").set_value("NAT gateway egress").run()
    assert 1 <= len(buttons(page, "inspect:why:match:")) <= choose_memory.MAX_MATCHES
    page = press(page, buttons(page, "inspect:why:match:")[0])
    assert html(page, "wb-cause")
    assert page.text_input(key="inspect:why:search").value == ""
    page = page.text_input(key="inspect:why:search").set_value("xyzzyqqq").run()
    assert "No memory has" in captions(page)


def test_the_followed_memory_is_the_first_choice(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    followed = order(page)[0]
    page.session_state["inspect:follow"] = followed
    page.run()
    assert not page.exception
    assert f"{followed} is in the top 10" in html(page, "wb-cause")
    assert not buttons(page, "inspect:why:apply:")


def test_a_query_without_judgments_says_how_to_go_on(open_page: OpenPage) -> None:
    page = open_tool(open_page(), "which egress addresses do customers allow")
    assert "This query has no judgments" in captions(page)


def test_a_query_without_a_relevant_memory_says_so(open_page: OpenPage) -> None:
    page = open_page()
    store = session.resources().store
    judged: dict[str, int] = {}
    for judgment in store.judgments.read():
        judged[judgment.qid] = max(judged.get(judgment.qid, 0), judgment.grade)
    query = next(one.query for one in store.queries.read() if judged.get(one.qid) == 0)
    assert "No memory was judged relevant" in captions(open_tool(page, query))


def test_a_memory_that_was_deleted_meanwhile_is_said_to_be_gone(open_page: OpenPage) -> None:
    page = pick(open_tool(open_page()), "m089")
    store = session.resources().store
    assert store.memories.delete("m089")
    try:
        page = page.run()
        assert not page.exception
        assert any("no longer in the store" in info.value for info in page.info)
    finally:
        store.memories.restore("m089")


def test_a_query_with_no_candidates_still_explains_a_chosen_memory(
    open_page: OpenPage, app_store: Path, tmp_path: Path
) -> None:
    page = open_page(shutil.copytree(app_store, tmp_path / "store"))
    lonely = Memory("lonely", "Nothing to do with it.", project="lone/one", scope="personal")
    session.resources().store.add(ParsedInput("lonely", "test", memories=(lonely,)))
    set_config(page, with_values(preset("cems").config, {"query.scope": "shared"}))
    page.run()  # the project is among the options from here on
    page = open_tool(page, FAILING, project="lone/one", only_project=True)
    assert "No list returned a candidate" in captions(page)
    page = page.text_input(key="inspect:why:search").set_value("m089").run()
    page = press(page, "inspect:why:match:m089")
    assert "No list returned m089" in html(page, "wb-cause")


def test_searching_every_project_is_a_rescue_that_moves_the_switch(open_page: OpenPage) -> None:
    page = open_tool(open_page(), "postgres upgrade", project="harbor/dashboard", only_project=True)
    page = page.text_input(key="inspect:why:search").set_value("m322").run()
    page = press(page, "inspect:why:match:m322")
    assert "and only harbor/dashboard is searched" in html(page, "wb-cause")
    page = press(page, "inspect:why:apply:0")
    assert page.session_state["inspect:only_project"] is False and "m322" in order(page)[:10]
    page = press(page, "inspect:why:back")
    assert page.session_state["inspect:only_project"] is True and "m322" not in order(page)


def test_the_judged_queries_are_weighed_when_asked_for(
    open_page: OpenPage, sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On ten queries, for the sake of time, in a store where nothing was gathered before."""
    everyone = fetch_evidence.judged_queries
    monkeypatch.setattr(fetch_evidence, "judged_queries", lambda of: (everyone(of)[0][:10], everyone(of)[1]))
    page = open_page(shutil.copytree(sample_store, tmp_path / "store"))
    query, memory_id = wanted("q116")
    page = pick(open_tool(page, query), memory_id)
    assert not [body for body in bodies(page) if "hits +" in body and "wb-change" in body]
    page = press(page, "inspect:why:weigh")
    assert [body for body in bodies(page) if "hits +" in body and "wb-change" in body]
    assert not buttons(page, "inspect:why:weigh")
