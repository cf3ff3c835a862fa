"""A rerun of the Inspect page repeats no work."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from markupsafe import Markup
from streamlit.testing.v1 import AppTest

from cems_workbench import pipeline
from cems_workbench.config import preset
from cems_workbench.jobs.background import FOREGROUND
from cems_workbench.pipeline import Trace, gather
from cems_workbench.pipeline.replay import replay
from cems_workbench.store.judgments import Judgments
from cems_workbench.store.queries import Queries
from cems_workbench.ui.inspect import fetch_evidence
from cems_workbench.ui.inspect import page as page_module
from cems_workbench.ui.kit import session

from .inspect_page import set_config
from .test_inspect_page import OpenPage, control, search

pytestmark = [pytest.mark.models]


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A name for every replay: `gather`, `page` or `baseline`."""
    seen: list[str] = []
    modules = (("gather", gather), ("page", fetch_evidence), ("baseline", pipeline))
    for name, module in modules:

        def counted(*args: Any, of: str = name, **options: Any) -> Any:
            seen.append(of)
            return replay(*args, **options)

        monkeypatch.setattr(module, "replay", counted)
    return seen


def slide(page: AppTest) -> None:
    control(page, "slider", "fusion.score_blend").set_value(1.0).run()  # type: ignore[attr-defined]
    assert not page.exception


def test_a_new_query_without_a_reranker_replays_once_and_so_does_a_moved_slider(
    open_page: OpenPage, replays: list[str]
) -> None:
    page = search(open_page(), "a query that nobody has asked before")
    assert replays == ["gather"]
    slide(page)
    assert replays == ["gather", "page"]


def test_a_new_query_with_a_reranker_replays_once_more_for_each_order_on_screen_and_with_all_scores(
    open_page: OpenPage, replays: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: list[tuple[int, int] | None] = []
    monkeypatch.setattr(fetch_evidence, "settling_html", lambda trace, read, off: painted.append(read) or Markup(""))  # type: ignore[func-returns-value]
    page = open_page()
    set_config(page, preset("qmd").config)
    search(page.run(), "another query that nobody has asked before")
    batches = [read for read in painted if read is not None]
    assert painted[0] is None and batches == sorted(set(batches)) and len(batches) == len(painted) - 1
    assert replays == ["gather"] * (1 + len(batches)) + ["page"]


@pytest.mark.parametrize("loaded", [True, False])
def test_the_order_of_the_lists_is_painted_before_the_controls_where_it_is_there_at_once(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    page, real = open_page().run(), page_module._draw_sidebar
    drawn: list[object] = []
    monkeypatch.setattr(session.warm_up_state(), "state", "ready" if loaded else "loading")
    monkeypatch.setattr(page_module, "_draw_sidebar", lambda resources: (drawn.append("controls"), real(resources)))

    def painted(trace: Trace, read: tuple[int, int] | None, off: Collection[int]) -> Markup:
        drawn.append("lists" if read is None else read)
        assert FOREGROUND.active == 1, "what is done in the background gives way to a page"
        return Markup("<p></p>")

    monkeypatch.setattr(fetch_evidence, "settling_html", painted)
    monkeypatch.setattr(fetch_evidence, "MAX_STALE_CONTROLS_S", 600)
    set_config(page, preset("qmd").config)
    search(page, "another query that nobody has asked before")
    assert drawn[:2] == (["lists", "controls"] if loaded else ["controls", "lists"]) and drawn.count("controls") == 1
    assert FOREGROUND.active == 0


def test_a_pinned_baseline_is_replayed_once_for_a_query(open_page: OpenPage, replays: list[str]) -> None:
    page = search(open_page())
    page.session_state["inspect:baseline:False"] = True
    page = page.run().button(key="inspect:pin").click().run()
    slide(page)
    assert replays.count("baseline") == 1


def test_a_moved_slider_reads_no_whole_query_set(open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    page = search(open_page())
    asked: list[tuple[object, ...]] = []
    read = Judgments.read

    def counted(self: Judgments, qid: str | None = None, kind: str | None = None) -> Any:
        asked.append((qid, kind))
        return read(self, qid, kind)

    monkeypatch.setattr(Judgments, "read", counted)
    monkeypatch.setattr(Queries, "read", lambda self: pytest.fail("every query was read"))
    slide(page)
    assert len(asked) == 1 and asked[0][0] is not None
