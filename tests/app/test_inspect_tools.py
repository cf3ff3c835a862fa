"""Tools and views of Inspect: abstain, across queries, blame, diversity, expansion, index check, text evidence, production."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import streamlit
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Selectbox

from cems_workbench.config import preset, with_values
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.memory_use import MemoryReport, uses_in_store
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.replay import single_table
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.store.search.vector_index import VectorIndex
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.state import WHY_TOOL
from cems_workbench.ui.kit import session
from cems_workbench.ui.memories import across
from tests.sample import MOVING, STAYING, store_with_set
from workbench_inspect import index_check

from .inspect_page import (
    DEPLOY,
    PLAIN,
    config_of,
    configured,
    control,
    evidence_of,
    follow,
    open_group,
    order,
    search,
    set_config,
    show,
    tool,
)
from .pages import OpenPage, all_html, bodies, buttons, captions, checked, html, markdown, press, table_with

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


QUERIES = 12


@pytest.fixture(scope="module")
def small_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a query set "few" of some of its answered queries."""
    return store_with_set(sample_store, tmp_path_factory.mktemp("across"), "few", QUERIES)


def uses(memory_id: str | None = None) -> MemoryReport:
    """What the core counts under preset cems on the store that the page has open."""
    followed = () if memory_id is None else (memory_id,)
    return uses_in_store(preset("cems").config, session.resources(), "few", followed=followed)


def chosen(page: AppTest, key: str) -> AppTest:
    """Choose set and config in the panel, and gather what is missing."""
    page.selectbox(key=f"{key}:set").select("few").run()
    page.selectbox(key=f"{key}:config").select("cems").run()
    if any(button.key == f"{key}:gather" for button in page.button):
        press(page, f"{key}:gather")
    return checked(page)


def picked(page: AppTest, memory_id: str) -> AppTest:
    """Memories with a memory selected and its panel open."""
    page.session_state["memories:state"] = replace(page.session_state["memories:state"], selected=memory_id)
    page.session_state["memories:across"] = True
    return checked(page.run())


def test_a_query_picked_in_the_panel_opens_in_inspect_where_the_memory_is_explained(
    open_page: OpenPage, small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(streamlit, "switch_page", lambda page, query_params: opened.append(page))
    page = picked(open_page(small_store, page="memories"), "m001")
    # What the callback of a picked row leaves; AppTest has no hands for the rows of a table.
    asked = (Request("who is on call"), preset("recollection").config, ("m001", 7))
    page.session_state["memories:state"] = replace(page.session_state["memories:state"], opening=asked)
    checked(page.run())
    assert opened == ["pages/inspect.py"]
    assert page.session_state["inspect:query"] == "who is on call"
    assert page.session_state["inspect:why:chosen"] == ("who is on call", "m001")
    assert (page.session_state["inspect:tool"], page.session_state["inspect:why:k"]) == (WHY_TOOL, 7)
    assert config_of(page) == asked[1]
    checked(page.run())
    assert len(opened) == 1, "it is opened once"


def test_many_queries_are_counted_on_request_only(
    open_page: OpenPage, small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(across, "MAX_QUERIES_UNASKED", QUERIES - 1)
    page = open_page(small_store, page="memories")
    page = chosen(picked(page, "m002"), "memories:across")
    assert "m002 is" not in markdown(page)
    page = press(page, "memories:across:count")
    assert uses("m002").uses.sentence("m002") in markdown(page)
    assert uses("m002").uses.sentence("m002") in markdown(checked(page.run()))


def test_lists_and_the_grid_show_what_the_graph_missed_once_it_is_open(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = show(search(open_page(), DEPLOY), "Lists")
    assert "is brought up to date in the background" in captions(page) and "graph #" not in table_with(page, "raw")
    session.resources().graph()
    ranked = list(dict.fromkeys(hit.memory_id for hit in evidence_of(page).lists[0].hits))
    missed = ranked[2]  # the graph itself, cut short
    whole = VectorIndex.approximate
    monkeypatch.setattr(VectorIndex, "approximate", lambda *asked: [hit for hit in whole(*asked) if hit[0] != missed])
    page = checked(page.run())
    assert f"graph: {len(ranked) - 1} of the {len(ranked)} nearest; {missed} missed" in captions(page)
    table = table_with(page, "graph #").drop_duplicates("memory").set_index("memory")["graph #"]
    assert table.isna()[missed] and table[ranked[0]] == 1 and table[ranked[3]] == 3
    page.session_state["inspect:form"] = "Side by side"
    data = json.loads(unescape(html(page.run(), "wb-sbs-data").partition("hidden>")[2].partition("</div>")[0]))
    column = next(column for column in data["columns"] if column["key"] == "vector:0 graph")
    place = data["memory_id"].index(missed)
    assert (column["rank"][place], column["missed"][place]) == (None, 3)


BLAME = "Blame"
WRONG = "You are moving in November."


def pasted_answer(page: AppTest, text: str) -> AppTest:
    page.text_area(key="inspect:blame:text").set_value(text)
    next(button for button in page.button if "Find the memories behind it" in button.label).click()
    return page.run()


def blame(open_page: OpenPage) -> AppTest:
    page = open_page()
    set_config(page, preset("workbench").config)
    page = tool(search(page.run(), MOVING), BLAME)
    assert "Paste the agent’s answer" in captions(page)
    return page


def test_a_wrong_answer_leads_to_the_stale_memory_and_to_its_successor(open_page: OpenPage) -> None:
    page = pasted_answer(blame(open_page), WRONG)
    first = next(body for body in bodies(page) if "wb-blamed" in body)
    assert "<b>m249</b>" in first and "Moving</mark> in" in first
    assert "1st of 10 results" in first and f"superseded by {STAYING}" in first
    assert ">November</mark>" in first and f"<b>{STAYING}</b> Staying in our flat says otherwise" in first
    assert "inspect:blame:0:0:apply" in buttons(page)
    page = press(page, "inspect:blame:0:0:why")
    assert page.session_state[state.TOOL] == state.WHY_TOOL
    assert STAYING in all_html(page)


def test_the_successor_can_take_the_rank_of_the_stale_memory(open_page: OpenPage) -> None:
    page = blame(open_page)
    set_config(
        page,
        preset("workbench").config.model_copy(
            update={"assembly": preset("workbench").config.assembly.model_copy(update={"limit": 20})}
        ),
    )
    page = pasted_answer(page.run(), WRONG)
    page = press(page, "inspect:blame:0:0:apply")
    assert config_of(page).supersession.mode == "follow"
    assert order(page)[0] == STAYING
    assert "m249" not in order(page)


def test_unsupported_and_hostile_and_long_texts_are_shown_as_such(open_page: OpenPage) -> None:
    page = pasted_answer(blame(open_page), "You play the cello in an <img src=x onerror=alert(1)> orchestra. " * 40)
    drawn_html = all_html(page)
    assert "No memory supports this" in drawn_html and "<img" not in drawn_html
    assert "first 20 of 40 claims" in captions(page)
    assert not buttons(page, "inspect:blame:0")


def diversity(page: AppTest, **changes: object) -> AppTest:
    values = {path.replace("__", "."): value for path, value in changes.items()}
    return tool(search(configured(page, values), DEPLOY), "Diversity")


def test_the_matrix_has_the_cosines_and_overlaps_of_the_results(open_page: OpenPage) -> None:
    page = diversity(open_page())
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


def test_what_dedup_dropped_is_named_with_its_original(open_page: OpenPage) -> None:
    page = diversity(open_page())
    assert "Dedup is off." in captions(page)
    page = diversity(page, dedup__enabled=True, dedup__similarity=0.6)
    rows = replay(evidence_of(page), config_of(page)).stage("dedup").rows
    dropped = [row for row in rows if row.duplicate_of is not None]
    assert dropped
    named = [f"{row.memory_id} (of {row.duplicate_of}, {row.similarity:.4f})" for row in dropped]
    assert f"Dedup dropped {', '.join(named)} at the limit of 0.6." in captions(page)


def test_one_result_has_nothing_to_be_compared_with(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(stored(tmp_path, {"one": "the only memory"}))
    page = tool(search(page, "only memory"), "Diversity")
    assert any("Fewer than two results" in info.value for info in page.info)


TYPED = "undo a release\ngo back to the previous version"


def with_two(page: AppTest, **changes: object) -> AppTest:
    values = {**PLAIN, "expansion.backend": "manual", "variants.expansion_weight": 3.0, **changes}
    page = search(configured(page, values), DEPLOY)
    return tool(page.text_area(key="inspect:manual").set_value(TYPED).run(), "Expansion")


def variants(page: AppTest) -> Any:
    return table_with(page, "only it")


def test_switching_one_off_changes_the_ranking_and_its_row_puts_it_back(open_page: OpenPage) -> None:
    page = with_two(open_page())
    before = order(page)
    switch = next(toggle for toggle in page.toggle if toggle.key and toggle.key.endswith(":1"))
    page = switch.set_value(False).run()
    assert order(page) != before
    row = variants(page).iloc[1]
    assert row["variant"].startswith("1 off")
    assert {f"+ {key}" for key in set(before) - set(order(page))} <= set(row["without it"].split("  "))


def test_a_typed_form_is_searched_beside_those_that_were_typed(open_page: OpenPage) -> None:
    page = with_two(open_page())
    page = type_in(page, "restore the last build")
    evidence = evidence_of(page)
    assert [variant.text for variant in evidence.variants] == [DEPLOY, *TYPED.splitlines(), "restore the last build"]
    assert page.text_area(key="inspect:manual").value == f"{TYPED}\nrestore the last build"
    assert len(variants(page)) == 4


def type_in(page: AppTest, text: str) -> AppTest:
    page.text_input(key="inspect:expansion:typed").set_value(text)
    return next(button for button in page.button if button.label == "Search this too").click().run()


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
    assert table_with(page, "at depth")["at 10"][1] == "✕ 9 of 10"


def test_a_large_store_is_compared_on_request(open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_check, "MAX_IMMEDIATE", 400)
    page = tool(search(open_page(), DEPLOY), "Index check")
    assert not [frame for frame in page.dataframe if "at depth" in frame.value]
    button = page.button(key="inspect:index_check")
    assert button.label == "Compare all 438 embeddings"
    page = button.click().run().run()  # kept: it is not asked for again
    assert "No misses: vector:0 contains the 150 exact nearest of 438 memories." in markdown(page)
    rows = table_with(page, "at depth")
    assert list(rows["answer"]) == ["vector:0", "Chroma alone"]
    assert list(rows["how"]) == ["exact: all embeddings compared", "Chroma's graph"]
    assert rows["at depth"][0] == "✓ 150 of 150"


def candidate(page: AppTest) -> Selectbox[str]:
    return next(box for box in page.selectbox if box.key and box.key.startswith("inspect:text_evidence:"))


def looked_at(page: AppTest) -> str:
    return str(candidate(page).value)


def test_the_parts_of_the_first_result_sum_to_its_score_in_the_list(open_page: OpenPage) -> None:
    page = tool(search(open_page(), DEPLOY), "Text evidence")
    first = order(page)[0]
    assert looked_at(page) == first
    evidence = evidence_of(page)
    raw = next(
        hit.score
        for ranked in evidence.lists
        if ranked.name == "lexical:0"
        for hit in ranked.hits
        if hit.memory_id == first
    )
    assert sum(table_with(page, "idf")["part"]) == pytest.approx(raw, rel=1e-6)
    assert f"score {raw:.4f}" in markdown(page)
    assert "Stop words, never searched: how, do, we, a" in captions(page)
    assert "<mark" in html(page, "wb-whole")


def test_the_followed_memory_is_looked_at_and_its_terms_are_marked(open_page: OpenPage) -> None:
    page = search(open_page(), DEPLOY)
    third = order(page)[2]
    page = tool(follow(page, third), "Text evidence")
    assert looked_at(page) == third
    marked = re.findall(r"<mark[^>]*>(.*?)</mark>", html(page, "wb-whole").partition('class="wb-whole"')[2])
    assert marked
    assert all(re.match(r"(?i)roll|back|fail|.*deploy", word) for word in marked)


def test_the_candidate_is_kept_with_its_new_rank_where_the_ranking_changes(open_page: OpenPage) -> None:
    """The browser keeps the words of a chosen option: the box with another rank has to be another box."""
    page = search(open_page(), DEPLOY)
    first = order(page)[0]
    box = candidate(tool(page, "Text evidence"))
    key, shown = box.key, box.options[box.index or 0]
    box = candidate(configured(page, {"lists.lexical.weight": 0.0}).run())
    assert order(page)[0] != first == box.value
    assert box.options[box.index or 0] != shown
    assert box.key != key


def test_tokens_are_compared_on_request(open_page: OpenPage) -> None:
    page = tool(search(open_page(), DEPLOY), "Text evidence")
    assert "reranking is off" in captions(page)
    assert not [body for body in bodies(page) if "wb-heat-text" in body]
    page = page.button(key="inspect:token_heat").click().run()
    heat = html(page, "wb-heat-text")
    numbers = {int(number) for found in re.findall(r"<sup>([0-9, ]+)</sup>", heat) for number in found.split(", ")}
    tint = next(box for box in page.selectbox if (box.key or "").startswith("inspect:token_heat:"))
    assert numbers == set(range(1, len(tint.options) + 1))  # every query token met one text token
    assert "Late-interaction score" in captions(page)


def test_the_part_that_the_reranker_read_stands_between_its_edges(open_page: OpenPage) -> None:
    changes = {"rerank.chunk_chars": 60, "rerank.chunk_selection": "term_overlap"}
    page = search(configured(open_page(), changes, "qmd"), DEPLOY)
    evidence = evidence_of(page)
    scored = evidence.model_scores["late_interaction"]
    page = tool(page, "Text evidence")
    memory = evidence.memories[looked_at(page)]
    whole = re.sub(r"<[^>]+>", "", html(page, 'class="wb-whole"'))
    between = whole[whole.rindex("reranker ▸") + len("reranker ▸") : whole.rindex("◂ reranker")]
    assert between.split() == scored[memory.id].chunk.split()
    assert f"of {len(memory.content):,} characters" in captions(page)
    assert html(page, "wb-heat-text")  # the score has its tokens, nothing was asked for


def test_a_memory_whose_score_is_that_with_its_question_shows_both(open_page: OpenPage, tmp_path: Path) -> None:
    question, answer = "Where did you spend the summer holidays?", "By the lake, as ever."
    said = [
        Memory(f"t{n}", text, session="s", created_at=datetime(2026, 1, 1, 9, n, tzinfo=UTC))
        for n, text in enumerate((question, answer))
    ]
    changes = {"rerank.prepend_question": True, "filter.min_score": None, "rerank.score_window": 1.0}
    page = search(configured(open_page(with_memories(tmp_path, said)), changes, "workbench"), "summer holidays")
    scored = evidence_of(page).model_scores["workbench/minilm-judge"]
    assert scored["t1"].chunk == f"{question}\n{answer}"  # alone it says nothing of holidays
    page = tool(follow(page, "t1"), "Text evidence")
    assert "Scored together with the preceding question" in captions(page)
    assert "read all of it" in captions(page) and captions(page).count("the preceding question") == 1
    assert question in [block.value for block in page.code]
    assert (
        answer.split()
        == re.sub(r"<[^>]+>|[▸◂]|reranker", "", html(page, 'class="wb-whole"')).split()[-len(answer.split()) :]
    )


def stored(folder: Path, texts: Mapping[str, str]) -> Path:
    """A closed store of memories with these texts, indexed."""
    return with_memories(folder, [Memory(key, text) for key, text in texts.items()])


def with_memories(folder: Path, memories: Sequence[Memory]) -> Path:
    """A closed store of these memories, indexed."""
    opened = open_resources(Settings(store=folder / "small"))
    opened.store.add(ParsedInput("test", "test", tuple(memories)))
    opened.refresh()
    opened.close()
    return folder / "small"


PRODUCTION = "Against production"


def pasted(page: AppTest, text: str) -> AppTest:
    box = next(area for area in page.text_area if area.key and area.key.startswith("inspect:production:"))
    box.set_value(text).run()
    return page


def test_our_own_results_agree_in_everything(open_page: OpenPage) -> None:
    page = tool(search(open_page()), PRODUCTION)
    ids = order(page)
    page = pasted(page, json.dumps({"results": [{"memory_id": key} for key in ids]}))
    assert f"The first {len(ids)} are the same, in the same order." in markdown(page)
    assert "<b>10 of 10</b>" in html(page, "wb-numbers")
    assert "nothing to explain" in captions(page)
    placed = next(frame.value for frame in page.dataframe if "production" in frame.value)
    assert list(placed["production"]) == list(placed["ours"]) == list(range(1, 11))
    assert set(placed["lost at"]) == {""}


@pytest.mark.thorough
def test_a_departure_is_located_and_explained_and_applying_it_makes_us_agree(open_page: OpenPage) -> None:
    page = search(open_page())
    first = order(page)
    set_config(page, with_values(preset("cems").config, {"fusion.score_blend": 1.0}))
    there = order(page.run())
    assert there != first
    set_config(page, preset("cems").config)
    page = tool(page.run(), PRODUCTION)
    page = pasted(page, "\n".join(there))
    assert re.search(r"They differ from rank \d+:", markdown(page))
    stages = next(frame.value for frame in page.dataframe if "RBO" in frame.value)
    assert (stages["list or stage"].str.startswith("◆")).sum() == 1
    placed = next(frame.value for frame in page.dataframe if "production" in frame.value)
    lost = placed[placed["production"].notna() & placed["ours"].isna()]
    assert set(lost["memory"]) == set(there) - set(first)
    assert (lost["lost at"] != "").all()
    page = page.button(key="inspect:production:search").click().run()
    assert "settings tried" in captions(page)
    page = page.button(key="inspect:production:apply:0").click().run()
    assert order(page) == there
    assert "are the same, in the same order" in markdown(page)
    page = page.button(key="inspect:undo").click().run()
    assert config_of(page) == preset("cems").config


def test_unknown_memories_and_bad_rows_are_said(open_page: OpenPage) -> None:
    page = tool(search(open_page()), PRODUCTION)
    ids = order(page)
    memory = session.resources().store.memories.get(ids[2])
    assert memory is not None
    rows: list[object] = [{"id": key} for key in ids]
    rows[2] = {"id": "chunk-7", "content": memory.content}
    page = pasted(page, json.dumps({"results": [*rows, {"id": "gone", "content": "<b>x</b>"}, 2.5]}))
    placed = next(frame.value for frame in page.dataframe if "production" in frame.value)
    assert list(placed[placed["lost at"] == "not in this store"]["memory"]) == ["gone"]
    assert "matched by text; id there: chunk-7" in " ".join(placed["why"])
    assert "<span>unknown</span>" in html(page, "wb-numbers")
    assert any("must be an object or an id" in code.value for code in page.code)


def test_an_answer_that_cannot_be_read_is_one_line(open_page: OpenPage) -> None:
    page = pasted(tool(search(open_page()), PRODUCTION), '{"answer": "<i>*x*</i>"}')
    assert [error.value.replace("\\", "") for error in page.error] == [
        "pasted: has no list of results; looked for results, memories, hits, documents, items"
    ]


def test_a_pasted_explanation_replays_in_an_empty_store_and_a_slider_moves_it(open_page: OpenPage, tmp_path: Path) -> None:
    recorded = Path(__file__).parents[1] / "recordings" / "explanations" / "mem0.jsonl"
    document = json.loads(recorded.read_text("utf-8").splitlines()[0])
    rows = document["results"]
    rows[0]["memory"] = "<script>alert(1)</script>" + rows[0]["memory"]
    page = open_page(tmp_path / "empty")
    page.session_state["inspect:explanation"] = True  # the popover, as the browser opens it
    page.run().text_area(key="inspect:explanation:text").set_value(json.dumps(document)[:-9]).run()
    press(page, "inspect:explanation:replay")
    assert any("is cut off" in one.value for one in page.warning)
    page.text_area(key="inspect:explanation:text").set_value(json.dumps(document)).run()
    press(page, "inspect:explanation:replay")
    assert order(page) == [row["id"] for row in rows]
    assert "explained by mem0: 20 memories" in captions(page)
    assert not any("<script>alert" in str(one.proto.body) for one in page.get("html"))
    control(open_group(page, "assembly"), "slider", "assembly.limit").set_value(5).run()
    assert order(page) == [row["id"] for row in rows[:5]]
    tool(page, "Why is it missing?").text_input(key="inspect:why:search").set_value("m999").run()
    assert any("m999 is not among the 20 it shows" in one.value for one in page.info)
