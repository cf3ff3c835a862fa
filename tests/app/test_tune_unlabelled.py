"""The Tune page without judgments: setup, scoring by the packaged reranker, search, validation on judgments, export."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.records import ParsedInput, Query
from cems_workbench.store import Store
from cems_workbench.ui.tune.page import NO_JUDGMENTS
from tests.sample import answered_queries, copied

from .pages import OpenPage, all_html, captions, checked
from .tune_page import set_tune_state, tune_state_of

pytestmark = [pytest.mark.models]
WAIT = 60


@pytest.fixture(scope="module")
def small_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a query set of eight of its answered queries."""
    with copied(sample_store, tmp_path_factory.mktemp("unlabelled")) as store:
        store.query_sets.put("eight", answered_queries(store)[:8], "test")
        return store.path


@pytest.fixture
def page(open_page: OpenPage, small_store: Path) -> AppTest:
    """The page on the small set without judgments, read by the reranker."""
    opened = open_page(small_store).switch_page("pages/tune.py").run()
    opened.selectbox(key="tune:set").select("eight").run()
    opened.selectbox(key="tune:judges").select(NO_JUDGMENTS).run()
    if any(button.key == "tune:stand_in" for button in opened.button):
        opened.button(key="tune:stand_in").click().run(timeout=300)
    opened.selectbox(key="tune:group_by").select("query")
    opened.number_input(key="tune:trials").set_value(20)
    return checked(opened.run())


def test_without_judgments_it_is_said_everywhere_and_only_lists_and_fusion_may_change(page: AppTest) -> None:
    assert any("no judgments are used here" in info.value for info in page.info)
    assert "Reliability of each list" in " ".join(element.value for element in page.markdown)
    trust = page.dataframe[0].value
    assert set(trust["list"]) == {"vector", "lexical"} and (trust["read"] == 100).all()
    offered = page.multiselect(key="tune:paths").options
    assert not [option for option in offered if option.startswith(("Rerank", "Adjust"))]
    assert "no judgments to seal" in captions(page)
    assert not [box for box in page.number_input if box.key == "tune:sealed"]


def test_a_proposal_is_held_against_judgments_and_taken_away_as_unlabelled(page: AppTest) -> None:
    page.multiselect(key="tune:paths").set_value(["lists.vector.weight", "lists.lexical.weight"]).run()
    page.button(key="tune:start").click().run()
    running = tune_state_of(page).running
    if running is not None:
        running.wait(WAIT)
    page = checked(page.run())
    assert any("no judgments are used here" in info.value for info in page.info)
    page = checked(page.button(key="tune:by_judgments").click().run(timeout=120))
    found = tune_state_of(page).result
    assert found is not None and found.by_judgments is not None
    assert found.tuned.config.name in ("cems", "cems-unlabelled")
    assert "With, in hindsight" in all_html(page) and "Without judgments:" in captions(page)
    set_tune_state(page, next_view="Export")
    page = checked(page.run())
    card = next(code.value for code in page.code if code.value.startswith("Evidence card"))
    assert "no judgment chose it" in card and "tuned against" not in card


def test_a_store_with_queries_and_no_judgment_offers_it(open_page: OpenPage, tmp_path: Path) -> None:
    with Store.open(tmp_path / "asked") as store:
        store.add(ParsedInput("asked", "jsonl", queries=(Query("q", "which editor do I use"),)))
        store.query_sets.put("asked", store.queries.read(), "test")
    page = checked(open_page(tmp_path / "asked").switch_page("pages/tune.py").run())
    assert "None of its queries is judged yet" in all_html(page)
    page = checked(page.button(key="tune:without").click().run())
    assert page.selectbox(key="tune:judges").value == NO_JUDGMENTS
    assert page.button(key="tune:stand_in")
