"""A superseded memory is said to be one: above the ranking, on its row, in the journey, on Memories and on the label card."""

from __future__ import annotations

import re

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import with_values
from cems_workbench.records import indexed_text
from cems_workbench.ui.inspect import fetch_evidence
from cems_workbench.ui.kit import session
from cems_workbench.ui.memories.detail import standing_lines
from cems_workbench.ui.memories.page import standings

from .inspect_page import config_of, order, search, set_config
from .pages import OpenPage, all_html, captions, html, press

pytestmark = [pytest.mark.models]
STALE = "superseded by m312 (157 days later), which "


def search_for_the_old_one(page: AppTest) -> AppTest:
    """The query is the superseded memory's own text, which every embedder puts first in the vector list."""
    old = session.resources().store.memories.get("m249")
    assert old is not None
    set_config(page, with_values(config_of(page), {"lists.lexical.enabled": False, "rerank.backend": "none"}))
    return search(page, indexed_text(old))


def test_first_result_that_is_superseded_is_said_with_what_to_do_about_it(open_page: OpenPage) -> None:
    page = search_for_the_old_one(open_page())
    assert order(page)[0] == "m249"
    assert f"The first result, m249, is {STALE}" in html(page, "wb-stale-first")
    assert f'class="wb-stale" title="{STALE.capitalize()}' in html(page, "wb-results")
    # Successors that no list found are no candidates.
    entered = re.search(r">lists<.*?(\d+)", html(page, "wb-strip"), re.DOTALL)
    assert entered is not None and f"· {entered[1]} candidates" in captions(page)
    page = press(page, "inspect:next:follow")
    assert config_of(page).supersession.mode == "follow"
    assert order(page)[0] == "m312" and "wb-stale-first" not in all_html(page)


def test_why_is_opened_on_the_successor(open_page: OpenPage) -> None:
    page = press(search_for_the_old_one(open_page()), "inspect:next:why")
    assert "m312 supersedes m249, which is 1st" in html(page, "wb-cause")


def test_fix_is_named_below_the_step_after_a_search_and_applied_by_a_click(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fetch_evidence, "may_start_unasked", lambda config: False
    )  # the judged queries are not searched
    monkeypatch.setenv("CEMS_WORKBENCH_GATHER_AHEAD", "true")
    page = search_for_the_old_one(open_page())
    assert "Fix: supersession.mode = demote. m312 becomes 1st; not checked on other queries" in html(
        page, "wb-next-fix"
    )
    former = config_of(page)
    set_config(page, with_values(former, {"fusion.score_blend": 0.1}))  # not searched under these settings
    assert "Fix:" not in html(page.run(), "wb-next-fix")
    set_config(page, former)
    page = press(page.run(), "inspect:next:apply")
    assert config_of(page).supersession.mode == "demote" and order(page)[:2] == ["m312", "m249"]


def test_memories_say_what_supersedes_them_and_what_they_supersede(open_page: OpenPage) -> None:
    open_page()
    resources = session.resources()
    older, newer = resources.store.memories.read(["m249", "m312"]).values()
    assert standings(resources, [older, newer]) == {"m249": "superseded by m312 (157 days later)"}
    assert standing_lines(resources, older) == ["superseded by m312 (157 days later)"]
    assert standing_lines(resources, newer) == ["supersedes m249"]
