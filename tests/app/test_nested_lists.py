"""The Inspect page with CEMS's default config: lists derived by replay, and several lists of relations."""

from __future__ import annotations

import pytest

from cems_workbench.analysis.component_effects import parts
from cems_workbench.config import preset
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.list_sources import list_label
from cems_workbench.ui.inspect.context import about, views_in
from cems_workbench.ui.inspect.searched import TOOLS, VIEWS
from cems_workbench.ui.kit.charts import list_colour

from .inspect_page import QUERY, config_of, evidence_of, order, search, set_config, set_state, show, tool
from .pages import OpenPage

pytestmark = [pytest.mark.models]


@pytest.mark.thorough
def test_every_view_and_tool_opens_under_cems_head(open_page: OpenPage) -> None:
    page = open_page()
    set_config(page, preset("cems_head").config)
    set_state(page, preset="cems_head")
    page = search(page, QUERY)
    assert order(page)
    for view in views_in(VIEWS):
        show(page, view)
    for name in views_in(TOOLS):
        tool(page, name)
        assert not page.error, (name, page.error)


def test_a_list_of_further_relations_is_called_in_words() -> None:
    assert [list_label(name) for name in ("vector:2", "relations", "relations:2", "relations:11", "fusion")] == [
        "vector:2",
        "relations",
        "relations (2nd)",
        "relations (11th)",
        "fusion",
    ]
    assert "2nd relation" in about("relations:2")
    assert list_colour("relations", None) == list_colour("relations", 1)


def test_without_ts_rank_the_hybrid_list_keeps_what_it_found_by_words(open_page: OpenPage) -> None:
    page = open_page()
    set_config(page, preset("cems_head").config)
    page = search(page, QUERY)
    gathered = evidence_of(page)
    found = {part.name: part for part in parts(replay(gathered, config_of(page)))}
    assert {"hybrid:0", "ts_rank:0", "relations"} <= found.keys()
    assert found["ts_rank:0"].lists == ("ts_rank:0",)
