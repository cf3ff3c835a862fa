"""Why is it missing, what if it were different, sensitivity and effective weights, on the page."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset, with_values
from cems_workbench.config.sections import FUSION_METHODS
from cems_workbench.pipeline import replay
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.ui.inspect import fetch_evidence
from cems_workbench.ui.inspect.tools import choose_memory
from cems_workbench.ui.kit import session
from tests.sample import FAILING
from tests.thoroughly import first_of
from workbench_inspect.sensitivity import MEMBERS, NOW, RELEVANT, label_of, map_figure, sweep_figure
from workbench_inspect.sweeps import sweep

from .inspect_page import (
    choose_tool,
    config_of,
    configured,
    evidence_of,
    gathered,
    order,
    remembered,
    search,
    set_config,
    set_state,
    tool,
)
from .pages import OpenPage, bodies, buttons, captions, field, html, markdown, plainly, press

ROOT = Path(__file__).resolve().parents[2]


def open_tool(page: AppTest, query: str = FAILING, **state: object) -> AppTest:
    """The tool on a query, as of its date if it is judged."""
    stored = next((one for one in session.resources().store.queries.read() if one.query == query), None)
    choose_tool(page, "Why is it missing?")
    if stored is not None and stored.as_of is not None:
        page.session_state["inspect:as_of"] = stored.as_of.date()
    if stored is not None and stored.project is not None:
        page.session_state["inspect:project"] = stored.project
    for name, value in state.items():
        page.session_state[f"inspect:{name}"] = value
    return search(page, query)


def pick(page: AppTest, memory_id: str) -> AppTest:
    return page.button(key=f"inspect:why:pick:{memory_id}").click().run()


def wanted(qid: str) -> tuple[str, str]:
    """The words of a failing sample query, and the memory that should have come."""
    text = (ROOT / "sample_data" / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {qid} \|[^|]+\| (m\d+)", text, re.MULTILINE)
    assert found
    return next(one.query for one in session.resources().store.queries.read() if one.qid == qid), found[1]


@pytest.mark.parametrize("qid", first_of(["q09", "q53", "q116", "q128"]))
def test_a_failing_query_gets_a_cause_and_its_rescue_brings_the_memory_in(open_page: OpenPage, qid: str) -> None:
    page = open_page()
    query, memory_id = wanted(qid)
    page = open_tool(page, query)
    assert memory_id not in order(page)[:10]
    page = pick(page, memory_id)
    cause = html(page, "wb-cause")
    assert f'title="{memory_id}"' in cause and re.search(r"fusion|adjust|assembly", cause)
    fix = re.search(
        r'<p class="wb-fix">[^<]+ = [^<]+ [^<]*becomes (\d+)\w\w; [^<]+</p>\s*<p class="wb-sentence">', cause
    )
    assert fix is not None, cause
    assert " ".join(bodies(page)).count("lost here: ") == 1
    page = press(page, "inspect:why:apply:0")
    assert memory_id in order(page)[:10]
    assert order(page).index(memory_id) + 1 == int(fix[1])
    assert "It needs no change" in html(page, "wb-cause")
    assert config_of(page) != preset("cems").config


def test_taking_it_back_restores_every_parameter(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    before = order(page)
    page = press(pick(page, "m089"), "inspect:why:apply:0")
    assert any("Applied" in text.value for text in page.markdown)
    assert order(page) != before
    page = press(page, "inspect:why:back")
    assert order(page) == before
    assert config_of(page) == preset("cems").config
    assert not buttons(page, "inspect:why:back")


@pytest.mark.thorough
def test_a_term_to_search_for_too_is_typed_into_the_box_and_taken_back(open_page: OpenPage) -> None:
    page = open_page()
    query, memory_id = wanted("q11")
    page = pick(open_tool(page, query, **{"why:k": 3}), memory_id)  # words are tried where no parameter helps
    term = next(one.key for one in page.button if one.label.startswith("Apply ") and "search for" in one.label)
    page = press(page, str(term))
    assert memory_id in order(page)[:3]
    assert page.text_area(key="inspect:manual").value
    page = press(page, "inspect:why:back")
    assert config_of(page).expansion.backend == "none"
    assert memory_id not in order(page)[:3]


def test_any_memory_is_found_by_words_or_id_and_explained(open_page: OpenPage) -> None:
    page = open_tool(open_page())
    page = page.text_input(key="inspect:why:search").set_value("m322").run()
    assert buttons(page, "inspect:why:match:")[0] == "inspect:why:match:m322"
    page = page.text_input(key="inspect:why:search").set_value("NAT gateway egress").run()
    assert 1 <= len(buttons(page, "inspect:why:match:")) <= choose_memory.MAX_MATCHES
    page = press(page, buttons(page, "inspect:why:match:")[0])
    assert html(page, "wb-cause")
    assert page.text_input(key="inspect:why:search").value == ""
    page = page.text_input(key="inspect:why:search").set_value("xyzzyqqq").run()
    assert "No memory has" in captions(page)


def test_a_query_with_no_candidates_still_explains_a_chosen_memory(
    open_page: OpenPage, app_store: Path, tmp_path: Path
) -> None:
    page = open_page(shutil.copytree(app_store, tmp_path / "store"))
    lonely = Memory("lonely", "Nothing to do with it.", project="lone/one", scope="personal")
    session.resources().store.add(ParsedInput("lonely", "test", memories=(lonely,)))
    set_config(page, with_values(preset("cems").config, {"query.scope": "shared"}))
    page.run()  # the project is among the options from here on
    page = open_tool(page, FAILING, project="lone/one", only_project=True)
    assert "No list returned a candidate" in captions(page)
    page = page.text_input(key="inspect:why:search").set_value("m089").run()
    page = press(page, "inspect:why:match:m089")
    assert "No list returned “" in html(page, "wb-cause")


def test_searching_every_project_is_a_rescue_that_moves_the_switch(open_page: OpenPage) -> None:
    page = open_tool(open_page(), "postgres upgrade", project="harbor/dashboard", only_project=True)
    page = page.text_input(key="inspect:why:search").set_value("m322").run()
    page = press(page, "inspect:why:match:m322")
    assert "and only harbor/dashboard is searched" in html(page, "wb-cause")
    page = press(page, "inspect:why:apply:0")
    assert page.session_state["inspect:only_project"] is False and "m322" in order(page)[:10]
    page = press(page, "inspect:why:back")
    assert page.session_state["inspect:only_project"] is True and "m322" not in order(page)


def test_the_judged_queries_are_weighed_when_asked_for(
    open_page: OpenPage, sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On ten queries, for the sake of time, in a store where nothing was gathered before."""
    everyone = fetch_evidence.judged_queries
    monkeypatch.setattr(fetch_evidence, "judged_queries", lambda of: (everyone(of)[0][:10], everyone(of)[1]))
    page = open_page(shutil.copytree(sample_store, tmp_path / "store"))
    query, memory_id = wanted("q116")
    page = pick(open_tool(page, query), memory_id)
    assert not [body for body in bodies(page) if "hits +" in body and "wb-change" in body]
    page = press(page, "inspect:why:weigh")
    assert [body for body in bodies(page) if "hits +" in body and "wb-change" in body]
    assert not buttons(page, "inspect:why:weigh")


BETTER = "The browser eats all the RAM when it is left open until evening."


def open_what_if(page: AppTest, query: str = FAILING) -> AppTest:
    return search(choose_tool(page, "What if it were different?"), query)


def test_the_first_judged_missing_memory_is_offered_with_its_stored_values(open_page: OpenPage) -> None:
    page = open_what_if(open_page())
    stored = session.resources().store.memories.get("m089")
    assert stored is not None
    assert field(page, "text_area", "content").value == stored.content
    assert field(page, "number_input", "access_count").value == stored.access_count
    assert "Change a field and press Try" in captions(page)


def test_a_better_text_brings_the_copy_in_and_the_ranking_above_stays(open_page: OpenPage) -> None:
    page = open_what_if(open_page())
    before = order(page)
    version = session.resources().store.content_version
    field(page, "text_area", "content").set_value(BETTER)
    field(page, "text_input", "created_at").set_value("2026-11-20")
    page = press(page, "inspect:what_if:try")
    outcome = html(page, "wb-line")
    assert "before not in the results." in outcome and "Changed: content" in outcome
    assert all(title in outcome for title in ("other results that move", "in the lists", "through the stages"))
    assert "lexical:0" in outcome and "assembly" in outcome
    assert "Exact: every rank" in captions(page)
    assert order(page) == before
    assert session.resources().store.content_version == version
    assert getattr(session.resources().store.memories.get("m089"), "content", "") != BETTER


def test_a_date_that_is_none_is_one_line_that_names_the_field(open_page: OpenPage) -> None:
    page = open_what_if(open_page())
    field(page, "text_input", "created_at").set_value("yesterday")
    page = page.button(key="inspect:what_if:try").click().run()
    assert any("Created" in error.value for error in page.error)
    assert not [body for body in bodies(page) if 'class="wb-line"' in body]


@pytest.mark.thorough
def test_without_a_memory_another_comes_in_its_place_here_and_in_the_judged_queries(open_page: OpenPage) -> None:
    page = open_what_if(open_page())
    first = order(page)[0]
    version = session.resources().store.content_version
    page.session_state["inspect:what_if:mode"] = "Without it"
    page = page.text_input(key="inspect:what_if:search").set_value(first).run()
    page = press(page, f"inspect:what_if:match:{first}")
    assert f"Without {first} (1st)" in html(page, "wb-line")
    page = press(page, "inspect:what_if:set")
    outcomes = [body for body in bodies(page) if 'class="wb-line"' in body]
    assert f"Without {first}, " in outcomes[-1] and "judged queries change their first 10 results" in outcomes[-1]
    assert "nDCG@10" in outcomes[-1]
    assert session.resources().store.content_version == version


def test_a_note_that_does_not_exist_yet_is_ranked_and_a_wrong_text_is_one_line(open_page: OpenPage) -> None:
    page = open_what_if(open_page())
    page.session_state["inspect:what_if:mode"] = "A new memory"
    page = page.run()
    page = page.button(key="inspect:what_if:new:try").click().run()
    assert [plainly(error.value) for error in page.error] == ["text: it is empty; write what the memory would say"]
    page.text_area(key="inspect:what_if:new:text").set_value(BETTER)
    page = press(page, "inspect:what_if:new:try")
    assert "This memory would be " in html(page, "wb-line")
    page.text_area(key="inspect:what_if:new:text").set_value("x" * 100_001)
    page = page.button(key="inspect:what_if:new:try").click().run()
    assert "at most 100,000 can be tried" in plainly(page.error[0].value)


FUSION = {"adjust.time_decay.mode": "none", "judge.backend": "none"}


def opened(open_page: OpenPage, name: str, changes: dict[str, Any] | None = None) -> AppTest:
    return tool(search(configured(open_page(), FUSION | (changes or {})), FAILING), name)


def chosen(page: AppTest, path: str) -> AppTest:
    return page.selectbox(key="inspect:sensitivity:path").set_value(path).run()


def test_the_table_has_the_breakpoints_and_a_step_into_the_next_segment_gives_its_results(open_page: OpenPage) -> None:
    page = opened(open_page, "Sensitivity")
    evidence = evidence_of(page)
    found = sweep(evidence, config_of(page), "lists.lexical.weight", 5)
    assert len(found.breakpoints) > 2
    assert f"**{len(found.breakpoints)} breakpoints from 0 to 3**" in markdown(page)
    table = page.dataframe[0].value
    assert list(table["to"]) == [one.last for one in found.segments]
    at = found.segments.index(found.present)
    assert list(table[""]) == ["▶" if i == at else "" for i in range(len(table))]
    page = page.button(key="inspect:sensitivity:above").click().run()
    assert order(page)[:5] == list(found.segments[at + 1].results)
    value = config_of(page).lists.lexical.weight
    assert found.segments[at + 1].first <= value <= found.segments[at + 1].last
    page = page.button(key="inspect:sensitivity:below").click().run()
    assert order(page)[:5] == list(found.present.results)


def test_a_choice_has_a_row_and_a_button_for_each_value(open_page: OpenPage) -> None:
    page = chosen(opened(open_page, "Sensitivity"), "fusion.method")
    assert f"with {len(FUSION_METHODS)} values." in markdown(page)
    assert set(buttons(page, "inspect:sensitivity:value:")) == {
        f"inspect:sensitivity:value:{name}" for name in FUSION_METHODS
    }
    assert page.button(key="inspect:sensitivity:value:rrf").disabled
    page = page.button(key="inspect:sensitivity:value:combmax").click().run()
    assert config_of(page).fusion.method == "combmax"
    evidence = evidence_of(page)
    assert order(page) == [row.memory_id for row in replay(evidence, config_of(page)).results]


def test_judged_queries_are_measured_along_the_range_once_they_are_gathered(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six judged queries stand for the set: gathering all of them is what the picker's tests do."""
    everyone = fetch_evidence.judged_queries
    monkeypatch.setattr(fetch_evidence, "judged_queries", lambda of: (everyone(of)[0][:6], everyone(of)[1]))
    page = opened(open_page, "Sensitivity")
    page = page.toggle(key="inspect:sensitivity:labelled").set_value(True).run()
    assert "inspect:sensitivity:gather" in buttons(page)
    page = page.button(key="inspect:sensitivity:gather").click().run()
    curve = remembered(page, "sensitivity:curve")
    assert curve.queries > 0 and len(curve.values) == 25
    assert config_of(page).lists.lexical.weight in curve.values
    assert all(0 <= value <= 1 for value in (*curve.hit, *curve.ndcg))
    page = page.run()
    assert "inspect:sensitivity:gather" not in buttons(page)
    measured = page.session_state["inspect:labelled"][1][0]
    assert measured.means(config_of(page), 5)[0] in curve.hit


def test_the_map_names_the_winners_and_how_often_the_query_succeeds(open_page: OpenPage) -> None:
    page = opened(open_page, "Sensitivity")
    page = page.selectbox(key="inspect:sensitivity:second").set_value("fusion.k").run()
    page = page.segmented_control(key="inspect:map:size").set_value(12).run()
    found = remembered(page, "weight_map")
    assert (len(found.xs), found.x.path, found.y.path) == (12, "lists.lexical.weight", "fusion.k")
    assert f"somewhere in {len(found.xs) * len(found.ys)} cells" in markdown(page)
    assert found.judged and "A relevant memory is first in" in markdown(page)
    at = found.xs.index(found.now[0]), found.ys.index(found.now[1])
    assert found.first[at[1]][at[0]] == order(page)[0]
    options = page.selectbox(key="inspect:sensitivity:second").options
    assert label_of("fusion.k") in options and label_of("lists.lexical.weight") not in options


def test_the_weights_name_what_moved_the_ranking_most(open_page: OpenPage) -> None:
    page = opened(open_page, "Effective weights", {"gap.ratio": 0.3})
    table = page.dataframe[0].value
    assert list(table["part"][:2]) == ["vector:0", "lexical:0"]
    assert "score gap" in set(table["part"]) and "dedup" not in set(table["part"])
    assert sum(table["nominal"].dropna()) == pytest.approx(1)
    assert "has the largest effect on this ranking" in markdown(page)
    assert "For the first 10 results" in captions(page)


@pytest.mark.parametrize("name", ["Sensitivity", "Effective weights"])
def test_without_results_and_without_candidates_each_tool_says_so(open_page: OpenPage, name: str) -> None:
    page = opened(open_page, name, {"filter.min_score": 100.0})
    if name == "Effective weights":
        assert any("no component has an effect" in info.value for info in page.info)
    evidence = evidence_of(page)
    set_state(page, gathered=replace(gathered(page), evidence=replace(evidence, lists=(), memories={})))
    page.run()
    assert any(
        "No list found candidates" in info.value or "no component has an effect" in info.value for info in page.info
    )


def test_labels_on_the_charts_are_literal() -> None:
    """Ids and contents come from outside: what Plotly reads as markup is escaped."""
    from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant
    from cems_workbench.records import Memory
    from workbench_inspect.sweeps import weight_map

    ids = ("<b>x</b>", "<i>y</i>")
    memories = {key: Memory(id=key, content="<a href='javascript:1'>z</a>") for key in ids}
    lists = [("vector", ids), ("lexical", ids[::-1])]
    evidence = Evidence(
        query="q",
        memories=memories,
        variants=(Variant("q"),),
        lists=tuple(
            RankedList(f"{s}:0", s, 0, tuple(Hit(key, 9.0 - i) for i, key in enumerate(row))) for s, row in lists
        ),  # type: ignore[arg-type]
    )
    found = sweep(evidence, preset("cems").config, "lists.vector.weight", 2)
    texts = {key: memory.content for key, memory in memories.items()}
    drawn = sweep_figure(found, ids, texts, {}, None).to_json()
    drawn += map_figure(
        weight_map(evidence, preset("cems").config, "lists.vector.weight", "fusion.k", 3), "first result", texts
    ).to_json()
    drawn += map_figure(
        weight_map(evidence, preset("cems").config, "lists.vector.weight", "fusion.k", 3), RELEVANT, texts
    ).to_json()
    assert "&lt;b&gt;" in drawn or "\\u0026lt;b" in drawn
    for markup in ("<i>y", "<a href", "\\u003ci\\u003ey", "\\u003ca href"):
        assert markup not in drawn
    names = {trace.name for trace in sweep_figure(found, ids, texts, {}, None).data if trace.showlegend}
    assert NOW in names and MEMBERS not in names
