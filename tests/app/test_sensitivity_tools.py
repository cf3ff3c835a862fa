"""The tools Sensitivity, with one parameter and with two, and Effective weights on the Inspect page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.analysis.sensitivity.scan import sweep
from cems_workbench.config import preset, with_values
from cems_workbench.config.sections.ranking import FUSION_METHODS
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.ui.inspect import fetch_evidence
from cems_workbench.ui.inspect.tools.sensitivity import MEMBERS, NOW, label_of, sweep_figure
from cems_workbench.ui.inspect.tools.weight_map import RELEVANT, map_figure
from cems_workbench.ui.kit import session
from tests.sample import FAILING

from .inspect_page import config_of, configured, evidence_of, gathered, order, remembered, search, set_state, tool
from .pages import OpenPage, buttons, captions, markdown

pytestmark = [pytest.mark.models]
FUSION = {"adjust.time_decay.mode": "none", "judge.backend": "none"}


def opened(open_page: OpenPage, name: str, changes: dict[str, Any] | None = None) -> AppTest:
    return tool(search(configured(open_page(), FUSION | (changes or {})), FAILING), name)


def chosen(page: AppTest, path: str) -> AppTest:
    page = page.selectbox(key="inspect:sensitivity:path").set_value(path).run()
    assert not page.exception
    return page


def test_the_table_has_the_breakpoints_and_a_step_into_the_next_segment_gives_its_results(open_page: OpenPage) -> None:
    page = opened(open_page, "Sensitivity")
    evidence = evidence_of(page)
    found = sweep(evidence, config_of(page), "lists.lexical.weight", 5)
    assert len(found.breakpoints) > 2
    assert f"**{len(found.breakpoints)} breakpoints** from 0 to 3" in markdown(page)
    table = page.dataframe[0].value
    assert list(table["to"]) == [one.last for one in found.segments]
    at = found.segments.index(found.present)
    assert list(table[""]) == ["▶" if i == at else "" for i in range(len(table))]
    page = page.button(key="inspect:sensitivity:above").click().run()
    assert not page.exception
    assert order(page)[:5] == list(found.segments[at + 1].results)
    value = config_of(page).lists.lexical.weight
    assert found.segments[at + 1].first <= value <= found.segments[at + 1].last
    page = page.button(key="inspect:sensitivity:below").click().run()
    assert order(page)[:5] == list(found.present.results)


def test_counting_members_only_has_fewer_breakpoints(open_page: OpenPage) -> None:
    page = opened(open_page, "Sensitivity")
    every = len(page.dataframe[0].value)
    page = page.segmented_control(key="inspect:sensitivity:counted").set_value("a new memory").run()
    assert not page.exception
    table = page.dataframe[0].value
    assert 1 < len(table) < every
    assert all("+" in change for change in table["change"][1:])


def test_a_choice_has_a_row_and_a_button_for_each_value(open_page: OpenPage) -> None:
    page = chosen(opened(open_page, "Sensitivity"), "fusion.method")
    assert f"{len(FUSION_METHODS)} values give" in markdown(page)
    assert set(buttons(page, "inspect:sensitivity:value:")) == {
        f"inspect:sensitivity:value:{name}" for name in FUSION_METHODS
    }
    assert page.button(key="inspect:sensitivity:value:rrf").disabled
    page = page.button(key="inspect:sensitivity:value:combmax").click().run()
    assert not page.exception
    assert config_of(page).fusion.method == "combmax"
    evidence = evidence_of(page)
    assert order(page) == [row.memory_id for row in replay(evidence, config_of(page)).results]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("fusion.k", "every value replayed"),
        ("assembly.max_tokens", "exact"),
        ("filter.min_score", "exact"),
        ("assembly.mmr_lambda", "No change in the first 5"),
        ("dedup.enabled", "2 values give"),
    ],
)
def test_every_kind_of_parameter_says_how_sure_it_is(open_page: OpenPage, path: str, words: str) -> None:
    assert words in markdown(chosen(opened(open_page, "Sensitivity"), path))


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
    assert not page.exception
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
    assert not page.exception
    found = remembered(page, "weight_map")
    assert (len(found.xs), found.x.path, found.y.path) == (12, "lists.lexical.weight", "fusion.k")
    assert f"somewhere among {len(found.xs) * len(found.ys)} cells" in markdown(page)
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
    assert not page.exception
    assert any(
        "No list found candidates" in info.value or "no component has an effect" in info.value for info in page.info
    )


def test_labels_on_the_charts_are_literal() -> None:
    """Ids and contents come from outside: what Plotly reads as markup is escaped."""
    from cems_workbench.analysis.sensitivity.scan import weight_map
    from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant
    from cems_workbench.records import Memory

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


def test_every_parameter_of_the_choice_has_a_label_with_its_stage() -> None:
    assert label_of("fusion.k") == "Fusion: RRF k"


def test_a_query_of_the_sample_has_the_same_sweep_on_the_page_as_in_the_library(open_page: OpenPage) -> None:
    """The page replays its own evidence; a fresh gather gives the same breakpoints."""
    page = opened(open_page, "Sensitivity")
    config = with_values(preset("cems").config, FUSION)
    evidence = gather_lists(Request(FAILING), config, session.resources())
    fresh = sweep(evidence, config, "lists.lexical.weight", 5)
    shown = remembered(page, "sensitivity:sweep")
    assert [one.results for one in fresh.segments] == [one.results for one in shown.segments]
