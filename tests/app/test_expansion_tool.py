"""The tool "Expansion": switches, the contribution of each query variant, the results without it, and a typed variant."""

from __future__ import annotations

import re

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request

from .inspect_page import DEPLOY, PLAIN, QUERY, config_of, configured, evidence_of, order, search, state_of, tool
from .pages import OpenPage, captions, html

pytestmark = [pytest.mark.models]
TYPED = "undo a release\ngo back to the previous version"


def with_two(page: AppTest, **changes: object) -> AppTest:
    values = {**PLAIN, "expansion.backend": "manual", "variants.expansion_weight": 3.0, **changes}
    page = search(configured(page, values), DEPLOY)
    return tool(page.text_area(key="inspect:manual").set_value(TYPED).run(), "Expansion")


def rows(page: AppTest) -> list[str]:
    return html(page, "wb-ablation").partition("<tbody>")[2].split("<tr>")[1:]


def ids(row: str, sign: str) -> list[str]:
    found = re.search(rf'<span title="([^"]*)">{sign} ', row)
    return found.group(1).split(", ") if found else []


def test_each_row_is_the_replay_without_that_form(open_page: OpenPage) -> None:
    page = with_two(open_page())
    evidence = evidence_of(page)
    before = order(page)
    assert len(rows(page)) == 3
    changed = 0
    for i, row in enumerate(rows(page)):
        after = [result.memory_id for result in replay(evidence, config_of(page), switched_off={i}).results]
        assert ids(row, "▼") == [key for key in before if key not in after]
        assert ids(row, "▲") == [key for key in after if key not in before]
        changed += before != after
    assert changed >= 2
    assert "changes the results most" in html(page, "wb-said")
    assert any("found" in frame.value for frame in page.dataframe)  # what each gave each candidate


def test_switching_one_off_changes_the_ranking_and_its_row_puts_it_back(open_page: OpenPage) -> None:
    page = with_two(open_page())
    before = order(page)
    switch = next(toggle for toggle in page.toggle if toggle.key and toggle.key.endswith(":1"))
    page = switch.set_value(False).run()
    assert not page.exception
    assert order(page) != before
    assert "<b>1</b> off" in rows(page)[1]
    assert set(ids(rows(page)[1], "▲")) == set(before) - set(order(page))


def test_a_typed_form_is_searched_beside_those_that_were_typed(open_page: OpenPage) -> None:
    page = with_two(open_page())
    page = type_in(page, "restore the last build")
    evidence = evidence_of(page)
    assert [variant.text for variant in evidence.variants] == [DEPLOY, *TYPED.splitlines(), "restore the last build"]
    assert page.text_area(key="inspect:manual").value == f"{TYPED}\nrestore the last build"
    assert len(rows(page)) == 4


def test_expansions_of_another_backend_stay_when_one_is_typed(open_page: OpenPage) -> None:
    page = configured(open_page(), {**PLAIN, "expansion.backend": "feedback"})
    page = tool(search(page, DEPLOY), "Expansion")
    evidence = evidence_of(page)
    made = [variant.text for variant in evidence.variants]
    assert len(made) == 2
    page = type_in(page, "undo a release")
    assert config_of(page).expansion.backend == "manual"
    evidence = evidence_of(page)
    assert [variant.text for variant in evidence.variants] == [*made, "undo a release"]


def test_a_switched_off_form_stays_off_when_another_is_typed(open_page: OpenPage) -> None:
    page = with_two(open_page())
    page = next(toggle for toggle in page.toggle if toggle.key and toggle.key.endswith(":1")).set_value(False).run()
    page = type_in(page, "restore the last build")
    lines = (*TYPED.splitlines(), "restore the last build")
    assert state_of(page).variants_off == (Request(DEPLOY, variants=lines), frozenset({1}))
    assert "<b>1</b> off" in rows(page)[1]


def test_a_form_that_is_searched_already_is_said(open_page: OpenPage) -> None:
    page = type_in(with_two(open_page()), "Undo A Release")
    assert "is already searched" in captions(page)
    assert len(rows(page)) == 3


def test_with_the_query_alone_the_tool_offers_to_type_one(open_page: OpenPage) -> None:
    page = tool(search(open_page(), QUERY), "Expansion")
    assert "One variant was searched" in captions(page)
    assert not [body for body in (element.proto.body for element in page.get("html")) if 'wb-ablation"' in body]
    page = type_in(page, "appointments with a doctor")
    assert len(rows(page)) == 2


def type_in(page: AppTest, text: str) -> AppTest:
    page.text_input(key="inspect:expansion:typed").set_value(text)
    page = next(button for button in page.button if button.label == "Search this too").click().run()
    assert not page.exception
    return page
