"""The tool "Against production" on the Inspect page."""

from __future__ import annotations

import json
import re

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset, with_values
from cems_workbench.ui.kit import session

from .inspect_page import QUERY, config_of, order, search, set_config, tool
from .pages import OpenPage, captions, html, markdown

pytestmark = [pytest.mark.models]
TOOL = "Against production"


def pasted(page: AppTest, text: str) -> AppTest:
    box = next(area for area in page.text_area if area.key and area.key.startswith("inspect:production:"))
    box.set_value(text).run()
    assert not page.exception
    return page


def test_without_an_answer_the_tool_says_what_it_wants(open_page: OpenPage) -> None:
    page = tool(search(open_page()), TOOL)
    assert "Paste or upload the live system’s answer" in captions(page)
    assert not page.error


def test_our_own_results_agree_in_everything(open_page: OpenPage) -> None:
    page = tool(search(open_page()), TOOL)
    ids = order(page)
    page = pasted(page, json.dumps({"results": [{"memory_id": key} for key in ids]}))
    assert f"The first {len(ids)} are the same, in the same order." in markdown(page)
    assert "<b>10 of 10</b>" in html(page, "wb-numbers")
    assert "nothing to explain" in captions(page)
    placed = next(frame.value for frame in page.dataframe if "production" in frame.value)
    assert list(placed["production"]) == list(placed["ours"]) == list(range(1, 11))
    assert set(placed["lost at"]) == {""}


def test_what_chroma_answered_is_matched_by_its_ids_and_its_distances_are_named(open_page: OpenPage) -> None:
    page = tool(search(open_page()), TOOL)
    ids = order(page)
    texts = [f"cut text {n}" for n in range(len(ids))]
    distances = [n / 10 for n in range(len(ids))]
    page = pasted(page, json.dumps({"ids": [ids], "documents": [texts], "metadatas": None, "distances": [distances]}))
    assert f"The first {len(ids)} are the same, in the same order." in markdown(page)
    assert "distance is smaller for what is nearer: its negative was read as the score" in captions(page)


@pytest.mark.thorough
def test_a_departure_is_located_and_explained_and_applying_it_makes_us_agree(open_page: OpenPage) -> None:
    page = search(open_page())
    first = order(page)
    set_config(page, with_values(preset("cems").config, {"fusion.score_blend": 1.0}))
    there = order(page.run())
    assert there != first
    set_config(page, preset("cems").config)
    page = tool(page.run(), TOOL)
    page = pasted(page, "\n".join(there))
    assert re.search(r"They differ from rank \d+:", markdown(page))
    stages = next(frame.value for frame in page.dataframe if "RBO" in frame.value)
    assert (stages["list or stage"].str.startswith("◆")).sum() == 1
    placed = next(frame.value for frame in page.dataframe if "production" in frame.value)
    lost = placed[placed["production"].notna() & placed["ours"].isna()]
    assert set(lost["memory"]) == set(there) - set(first)
    assert (lost["lost at"] != "").all()
    page = page.button(key="inspect:production:search").click().run()
    assert not page.exception
    assert "settings tried" in captions(page)
    page = page.button(key="inspect:production:apply:0").click().run()
    assert not page.exception
    assert order(page) == there
    assert "are the same, in the same order" in markdown(page)
    page = page.button(key="inspect:undo").click().run()
    assert config_of(page) == preset("cems").config


def test_scores_unknown_memories_and_bad_rows_are_said(open_page: OpenPage) -> None:
    page = tool(search(open_page()), TOOL)
    ids = order(page)
    memory = session.resources().store.memories.get(ids[2])
    assert memory is not None
    scores = re.findall(r"after the last stage: ([^\"]+)", html(page, "wb-results"))
    rows: list[object] = [{"id": key, "score": float(score)} for key, score in zip(ids, scores, strict=False)]
    rows[2] = {"id": "chunk-7", "content": memory.content, "score": float(scores[2])}
    page = pasted(page, json.dumps({"results": [*rows, {"id": "gone", "content": "<b>x</b>"}, 2.5]}))
    placed = next(frame.value for frame in page.dataframe if "production" in frame.value)
    assert list(placed[placed["lost at"] == "not in this store"]["memory"]) == ["gone"]
    assert "matched by text; id there: chunk-7" in " ".join(placed["why"])
    assert "<span>unknown</span>" in html(page, "wb-numbers")
    assert any("must be an object or an id" in code.value for code in page.code)
    assert "Production’s scores equal" in captions(page)


def test_an_answer_that_cannot_be_read_is_one_line(open_page: OpenPage) -> None:
    page = pasted(tool(search(open_page()), TOOL), '{"answer": "<i>*x*</i>"}')
    assert [error.value.replace("\\", "") for error in page.error] == [
        "pasted: has no list of results; looked for results, memories, hits, documents, items"
    ]


def test_an_answer_of_another_store_says_so(open_page: OpenPage) -> None:
    page = pasted(tool(search(open_page()), TOOL), "x1 0.5\nx2 0.4")
    assert "None of these memories is in this store" in page.warning[0].value


def test_a_run_of_several_queries_takes_that_of_this_one_and_another_on_choice(open_page: OpenPage) -> None:
    page = tool(search(open_page()), TOOL)
    qid = next(query.qid for query in session.resources().store.queries.read() if query.query == QUERY)
    ids = order(page)
    lines = [f"other-query Q0 {ids[-1]} 1 0.9 prod"]
    lines += [f"{qid} Q0 {key} {rank} {1 / rank:.4f} prod" for rank, key in enumerate(ids, start=1)]
    page = pasted(page, "\n".join(lines))
    assert "are the same, in the same order" in markdown(page)
    box = next(box for box in page.selectbox if box.label == "Query of the run")
    assert box.value == qid
    page = box.set_value("other-query").run()
    assert "They differ from rank 1" in markdown(page)


def test_an_answer_belongs_to_its_query(open_page: OpenPage) -> None:
    page = pasted(tool(search(open_page()), TOOL), "x1\nx2")
    page = search(page, "restart elasticsearch")
    assert "Paste or upload the live system’s answer" in captions(page)
    page = search(page, QUERY)
    assert page.warning
