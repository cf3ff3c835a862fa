"""A store with vectors of an unknown embedder: every searching page shows one line with the remedy."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.jobs.connecting import take_snapshot
from cems_workbench.records import Judgment, Query
from cems_workbench.store import Store
from tests.planted_source import Planted, taken
from tests.small_store import empty_store, parsed

from .pages import OpenPage, drawn, markdown, plainly

__all__ = ["empty_store"]
pytestmark = [pytest.mark.models]


@pytest.fixture
def page(open_page: OpenPage, empty_store: Path, tmp_path: Path) -> AppTest:
    """The Inspect page on a store whose memories came with vectors that nobody named the embedder of."""
    folder = Path(shutil.copytree(empty_store, tmp_path / "store"))
    with Store.open(folder) as store:
        take_snapshot(store, Planted({name: taken(name, f"{name} deploys often") for name in "abc"}), datetime.now(UTC))
        queries = [Query("q1", "who deploys"), Query("q2", "how often")]
        judged = [Judgment(query.qid, "a", 3, judge="ada", kind="human") for query in queries]
        store.add(parsed(queries=queries, judgments=judged))
    return drawn(open_page(folder))


def refused(page: AppTest) -> None:
    assert len(drawn(page).error) == 1
    said = plainly(page.error[0].value)
    assert "nothing says which model made the 3 numbers" in said and "\n" not in said
    assert "--embedder MODEL, or Sources on the Memories page" in said


def test_inspect(page: AppTest) -> None:
    refused(page.text_input(key="inspect:query").set_value("who deploys").run())


@pytest.mark.parametrize("name", ["evaluate", "tune"])
def test_measuring(page: AppTest, name: str) -> None:
    opened = drawn(page.switch_page(f"pages/{name}.py").run())
    refused(opened.button(key=f"{name}:gather").click().run())


def test_labelling(page: AppTest) -> None:
    drawn(page.switch_page("pages/evaluate.py").run())
    opened = drawn(page.switch_page("pages/label.py").run())
    refused(opened.button(key="label:unjudged").click().run())


def test_memories_can_be_looked_at_and_the_store_view_says_it(page: AppTest) -> None:
    opened = page.switch_page("pages/memories.py").run()
    assert not drawn(opened).error and len(opened.dataframe[0].value) == 3
    opened.session_state["memories:view"] = "Store"
    refused(opened.run())
    assert "Sources" in markdown(opened)  # the rest of the view is there
    opened = drawn(opened.button(key="memories:rebuild").click().run())
    assert {plainly(error.value).removeprefix("No search is possible: ") for error in opened.error} == {
        plainly(opened.error[-1].value)
    }
