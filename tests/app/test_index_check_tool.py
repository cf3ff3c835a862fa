"""The tool "Index check": recall of the list and of Chroma's graph, missed memories, and large stores on request."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cems_workbench.store.search.vectors.vector_index import VectorIndex
from cems_workbench.ui.inspect.tools import index_check

from .inspect_page import DEPLOY, PLAIN, configured, evidence_of, search, set_state, tool
from .pages import OpenPage, html, markdown
from .test_text_evidence_tool import stored

pytestmark = [pytest.mark.models]


def test_a_list_that_is_exact_says_that_nothing_was_missed(open_page: OpenPage) -> None:
    page = tool(search(open_page(), DEPLOY), "Index check")
    assert "No misses: vector:0 contains the 150 exact nearest of 438 memories." in markdown(page)
    rows = re.findall(r"<b>(.*?)</b></th><td>(.*?)</td>", html(page, "wb-recall"))
    assert rows == [("vector:0", "exact: all embeddings compared"), ("Chroma alone", "Chroma&#39;s graph")]
    assert html(page, "wb-recall").count("✓ 150 of 150") >= 1
    assert ">at 150</th>" in html(page, "wb-recall")


def test_a_graph_that_misses_is_named_with_exact_rank_and_cosine(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph itself, cut short: its third hit is lost on the way."""
    whole = VectorIndex.approximate
    monkeypatch.setattr(
        VectorIndex, "approximate", lambda *asked: [hit for i, hit in enumerate(whole(*asked)) if i != 2]
    )
    page = tool(search(open_page(), DEPLOY), "Index check")
    evidence = evidence_of(page)
    third = next(ranked for ranked in evidence.lists if ranked.name == "vector:0").hits[2]
    missed = next(frame.value for frame in page.dataframe if "exact rank" in frame.value)
    assert missed.iloc[0]["exact rank"] == 3
    assert missed.iloc[0]["memory"] == third.memory_id
    assert missed.iloc[0]["exact cosine"] == pytest.approx(third.score, abs=1e-6)
    assert "Missed by Chroma alone" in markdown(page)
    assert "✕ 9 of 10" in html(page, "wb-recall")


def test_a_large_store_is_compared_on_request(open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_check, "MAX_IMMEDIATE", 400)
    page = tool(search(open_page(), DEPLOY), "Index check")
    assert not [
        body
        for body in (element.proto.body for element in page.get("html"))
        if "wb-recall" in body and "<style" not in body
    ]
    button = page.button(key="inspect:index_check")
    assert button.label == "Compare all 438 embeddings"
    page = button.click().run()
    assert not page.exception
    assert "No misses" in markdown(page)
    page = page.run()  # kept: it is not asked for again
    assert "No misses" in markdown(page)


def test_the_pool_of_a_preset_is_named_as_what_lost_a_memory(open_page: OpenPage) -> None:
    page = tool(search(configured(open_page(), {}, "recollection"), DEPLOY), "Index check")
    assert "of the 200 most recently accessed memories and the lexical hits" in html(page, "wb-recall")
    assert "The candidate set left out" in markdown(page)
    assert any("Chroma alone would not have missed any." in caption.value for caption in page.caption)


def test_the_filter_of_the_query_is_that_of_the_check(open_page: OpenPage) -> None:
    page = open_page()
    page.session_state["inspect:project"] = "harbor/dashboard"
    page.session_state["inspect:only_project"] = True
    page = tool(search(page, DEPLOY), "Index check")
    assert "nearest of 64 memories" in markdown(page)


def test_each_variants_list_is_checked_on_its_own(open_page: OpenPage) -> None:
    page = search(configured(open_page(), {**PLAIN, "expansion.backend": "manual"}), DEPLOY)
    page = tool(page.text_area(key="inspect:manual").set_value("undo a release").run(), "Index check")
    box = next(box for box in page.selectbox if box.label == "Vector list")
    page = box.select_index(1).run()
    assert not page.exception
    assert "vector:1 contains" in markdown(page)


def test_a_store_with_one_memory_and_one_with_none_to_find(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(stored(tmp_path, {"one": "the only memory is personal"}))
    page = tool(search(page, "only memory"), "Index check")
    assert "contains the 1 exact nearest of 1 memories" in markdown(page)
    set_state(page, gathered=None)
    page = tool(search(configured(page, {"query.scope": "shared"}), "only"), "Index check")
    assert any("No memory in the scope of this query" in info.value for info in page.info)
