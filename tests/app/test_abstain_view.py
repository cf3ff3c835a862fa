"""Abstain view: the query's signals, the decision, and the comparison with judged queries of both kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cems_workbench.config import preset, with_values
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.store import Store

from .inspect_page import configured, search, set_config, show
from .pages import OpenPage, captions, markdown, table_with
from .test_text_evidence_tool import stored

pytestmark = [pytest.mark.models]
TEXTS = {
    "deploy": "The release train leaves on Tuesday.",
    "lunch": "The kitchen closes at two.",
    "tea": "Green tea is kept on the left.",
}
ASKED = {"when does the kitchen close": "lunch", "where is the green tea": "tea", "what is the price of diesel": None}
OFF = {"lists.recency.enabled": False, "lists.access.enabled": False, "judge.backend": "none"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three memories, two queries with an answer and one without."""
    path = stored(tmp_path, TEXTS)
    queries = tuple(
        Query(f"q{i}", text, answerable=None if key else False) for i, (text, key) in enumerate(ASKED.items())
    )
    judgments = tuple(Judgment(f"q{i}", key, 1) for i, key in enumerate(ASKED.values()) if key)
    with Store.open(path) as opened:
        opened.add(ParsedInput("test", "test", queries=queries, judgments=judgments))
    return path


def test_a_threshold_refuses_and_the_view_says_which_signal_and_where_it_stands(
    open_page: OpenPage, store: Path
) -> None:
    page = show(search(configured(open_page(store), OFF), "what is the price of diesel"), "Abstain")
    assert "Off." in markdown(page)
    signals = table_with(page, "this query").set_index("signal")
    assert (signals["says"] == "off").all()
    here = signals.loc["best vector score", "this query"]
    page = page.button(key="inspect:abstain:judged").click().run()
    assert not page.exception
    signals = table_with(page, "this query").set_index("signal")
    # It is itself the one without an answer; both others are nearer to a memory.
    assert tuple(signals.loc["best vector score", ["below: with an answer", "below: without an answer"]]) == (0.0, 0.0)
    assert len(page.get("plotly_chart")) == 1
    set_config(page, with_values(preset("cems").config, OFF | {"abstain.vector": round(here + 0.1, 3)}))
    page.run()
    assert "Nothing is returned:" in markdown(page) and "best vector score" in markdown(page)
    assert table_with(page, "this query").set_index("signal").loc["best vector score", "says"] == "no answer"
    page = search(page, "where is the green tea")
    assert "Answered." in markdown(page)


def test_without_queries_that_have_no_answer_it_says_how_to_have_some(open_page: OpenPage, tmp_path: Path) -> None:
    path = stored(tmp_path, TEXTS | {"more": "The gate is shut at night."})
    with Store.open(path) as opened:
        opened.add(
            ParsedInput(
                "test", "test", (Memory("m", "x"),), queries=(Query("q", "tea"),), judgments=(Judgment("q", "tea", 1),)
            )
        )
    page = show(search(configured(open_page(path), OFF), "tea"), "Abstain")
    page = page.button(key="inspect:abstain:judged").click().run()
    assert "No query of this store is marked as without an answer" in page.info[-1].value
    assert "below: with an answer" not in table_with(page, "this query")
    assert not page.get("plotly_chart") and not captions(page).count("Traceback")
