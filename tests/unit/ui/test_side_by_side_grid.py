"""What the grid is given: the table of the trace, and nothing in it that a page would read as HTML."""

from __future__ import annotations

import json
from html import unescape
from html.parser import HTMLParser

from benchmarks.side_by_side_page import MARKUP, trace
from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.analysis.side_by_side import side_by_side
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.recorded import RECORDED, RecordedList, RecordedStage, RecordedStages
from cems_workbench.records import Memory
from cems_workbench.ui.inspect.results import message
from cems_workbench.ui.kit.html import render


class Tags(HTMLParser):
    """The tags of a page, and the text in the one that holds the data."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=False)
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.text = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def test_message_columns_are_those_of_the_trace() -> None:
    found = trace(30)
    given = message(found, {"m003": 2}, "m003")
    table = side_by_side(found, {"m003": 2}).to_columns()
    assert {name: given[name] for name in table} == table
    assert len(given["colours"]) == len(next(each for each in given["columns"] if each["kind"] == "fusion")["parts"])
    assert given["detail"]["id"] == "m003" and MARKUP in "".join(text for _, text in given["detail"]["pieces"])
    assert ("Grade by a person for this query", "grade 2, helps", "wb-grade") in given["detail"]["facts"]
    assert message(found, {}, "elsewhere")["detail"] is None


def test_message_moves_are_from_the_baseline() -> None:
    now, before = trace(30), trace(30, bonus=0.0)
    given = message(now, {}, None, RankComparison("plain", now=now, before=before))
    ranks = {result.memory_id: result.rank for result in before.results}
    assert given["former_rank"] == [ranks.get(memory_id) for memory_id in given["memory_id"]]
    assert "baseline plain" in given["compared"]


def test_message_text_is_no_markup() -> None:
    found = trace(3)
    html = render("inspect/side_by_side.html", results=found.results, data=message(found, {}, "m001"))
    page = Tags(html)
    assert page.tags == ["p", "div"]
    assert json.loads(unescape(page.text))["detail"]["pieces"] == [["", f"{MARKUP} text of m001"]]


def test_message_of_an_external_trace() -> None:
    hits = (("a", 0.9), ("b", 0.8), ("c", 0.7))
    stages = (RecordedStage("rrf", "fusion", hits[:2]), RecordedStage("first", "assembly", hits[:1]))
    recorded = RecordedStages((RecordedList("bm25", hits),), stages)
    memories = {name: Memory(name, f"text of {name}") for name, _ in hits}
    found = replay(Evidence("q", memories, notes={RECORDED: recorded.to_json()}), PipelineConfig())
    given = message(found, {}, "c")
    assert given["memory_id"] == ["a", "b", "c"]
    assert given["dropped_by"] == [None, "first", "rrf"]
    assert given["detail"]["pieces"] == [("", "text of c")]
