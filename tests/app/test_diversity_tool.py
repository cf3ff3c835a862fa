"""The tool "Diversity": the matrix, duplicates now and at other limits, and applying another limit or λ."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.pipeline.replay import single_table
from cems_workbench.ui.kit import session

from .inspect_page import DEPLOY, config_of, configured, evidence_of, order, search, tool
from .pages import OpenPage, bodies, html
from .test_text_evidence_tool import stored

pytestmark = [pytest.mark.models]


def opened(page: AppTest, **changes: object) -> AppTest:
    values = {path.replace("__", "."): value for path, value in changes.items()}
    return tool(search(configured(page, values), DEPLOY), "Diversity")


def rows(page: AppTest) -> list[tuple[str, str, str]]:
    """(memory, when, duplicates) of the table of duplicates."""
    pattern = (
        r"<tr><th><b>.*?</b> <code[^>]*>(.*?)</code></th><td[^>]*>(.*?)</td><td><b>.*?</b> <code[^>]*>(.*?)</code>"
    )
    found = re.findall(pattern, " ".join(body for body in bodies(page) if "wb-duplicates" in body))
    return [(memory, when, of) for memory, when, of in found]


def test_the_matrix_has_the_cosines_and_overlaps_of_the_results(open_page: OpenPage) -> None:
    page = opened(open_page())
    evidence = evidence_of(page)
    table, ids = single_table(evidence), order(page)
    places = [table.ids[0].index(memory_id) for memory_id in ids]
    cosines, _ = table.cosines(0)
    said = dict(
        re.findall(
            r'<td title="(cosine of \S+ and \S+|word overlap of \S+ and \S+): (-?[0-9.]+)"', html(page, "wb-matrix")
        )
    )
    assert len(said) == len(ids) * (len(ids) - 1)
    assert float(said[f"cosine of {ids[0]} and {ids[2]}"]) == pytest.approx(cosines[places[0], places[2]], abs=5e-5)
    overlap = table.overlaps(0, places[2])[places[0]]
    assert float(said[f"word overlap of {ids[2]} and {ids[0]}"]) == pytest.approx(overlap, abs=5e-5)


def test_a_near_duplicate_falls_at_its_cosine_and_is_taken_when_applied(open_page: OpenPage) -> None:
    page = opened(open_page())
    assert "Dedup is off." in html(page, "Dedup is off")
    memory, when, original = rows(page)[0]
    limit = float(when.removeprefix("at ≤ "))
    assert "▼ removed" in html(page, "wb-trial")
    page = page.button(key="inspect:diversity:apply").click().run()
    assert not page.exception
    config = config_of(page).dedup
    assert config.enabled
    assert config.similarity <= limit
    assert memory not in order(page)
    assert (memory, "✕ dropped", original) in rows(page)


def test_a_lambda_is_applied_with_mmr_and_shows_what_it_said(open_page: OpenPage) -> None:
    page = opened(open_page())
    before = order(page)
    page.session_state["inspect:diversity:of"] = "MMR λ"
    page.run()
    assert not page.exception
    trial = html(page, "wb-trial").partition("<h2>then")[2]
    promised = re.findall(r'<code title="(.*?)">', trial)
    assert set(promised) != set(before)
    page = page.button(key="inspect:diversity:apply").click().run()
    assert not page.exception
    assert config_of(page).assembly.strategy == "mmr"
    assert set(order(page)) == set(promised)


def test_a_higher_limit_gives_back_what_dedup_took(open_page: OpenPage) -> None:
    page = opened(open_page(), dedup__enabled=True, dedup__similarity=0.8)
    lost = [memory for memory, when, _ in rows(page) if when == "✕ dropped"]
    box = next(box for box in page.selectbox if box.label == "Range")
    assert box.options[0].startswith("off, or above")
    assert lost[0] in html(page, "wb-trial").partition("<h2>then")[2]
    page = page.button(key="inspect:diversity:apply").click().run()
    assert not config_of(page).dedup.enabled
    assert lost[0] in order(page)


def test_judged_results_are_counted_before_and_after(open_page: OpenPage) -> None:
    page = open_page()
    stored_query = next(
        query
        for query in session.resources().store.queries.read()
        if query.query == "how many different doctors did I visit?"
    )
    page = tool(
        search(configured(page, {"dedup.enabled": True, "dedup.similarity": 0.4}), stored_query.query), "Diversity"
    )
    assert "judged relevant" in html(page, "wb-trial")


def test_one_result_has_nothing_to_be_compared_with(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(stored(tmp_path, {"one": "the only memory"}))
    page = tool(search(page, "only memory"), "Diversity")
    assert any("Fewer than two results" in info.value for info in page.info)


def test_results_that_no_limit_takes_are_said_to_be_none(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(stored(tmp_path, {"one": "the gateway was deployed", "two": "a cat sleeps on the piano"}))
    every = {"fusion.normalize": "none", "filter.min_score": None}
    page = tool(search(configured(page, every), "gateway deployed"), "Diversity")
    assert "No result would be dropped at any limit down to 0.5." in html(page, "No result would")
    assert any("No other limit down to 0.5 changes the results." in caption.value for caption in page.caption)
