"""The Inspect page: a query goes in, every stage is shown, a control changes the ranking."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cems_workbench.config import field_specs, preset, preset_names, with_values
from cems_workbench.formats import read
from cems_workbench.pipeline.effects import folded_words, idle_parameters
from cems_workbench.pipeline.stages import STAGES
from cems_workbench.store import Store
from cems_workbench.ui.kit.html import plain
from tests.sample import FAILING
from tests.thoroughly import first_of

from .inspect_page import config_of, configured, control, evidence_of, open_group, order, search, set_config
from .pages import OpenPage, all_html, html, plainly, press

pytestmark = [pytest.mark.models]


def test_the_first_page_asks_for_a_query_and_offers_judged_ones(open_page: OpenPage) -> None:
    page = open_page()
    assert not page.exception
    assert "See why a memory was found" in html(page, "wb-empty")
    assert len([button for button in page.button if button.key and button.key.startswith("inspect:example:")]) >= 5


def test_a_query_shows_every_stage_and_the_results(open_page: OpenPage) -> None:
    page = search(open_page())
    strip = html(page, "wb-strip")
    assert all(f'<div class="wb-name">{stage.name}</div>' in strip for stage in STAGES)
    assert len(order(page)) == 10


def test_an_example_fills_the_query_box_and_is_searched(open_page: OpenPage) -> None:
    page = open_page()
    example = next(button for button in page.button if button.key and button.key.startswith("inspect:example:"))
    page = example.click().run()
    assert plain(page.text_input(key="inspect:query").value) == example.label
    assert order(page)
    assert "memories judged relevant are in the results" in " ".join(text.value for text in page.caption)


def test_a_slider_changes_the_ranking_and_reset_brings_it_back(open_page: OpenPage) -> None:
    page = search(open_page())
    before = order(page)
    page = control(page, "slider", "fusion.score_blend").set_value(1.0).run()  # type: ignore[attr-defined]
    assert order(page) != before
    reset = next(button for button in page.button if "reset" in button.label)
    assert "1 parameter changed" in reset.label
    page = reset.click().run()
    assert order(page) == before


def test_choosing_a_preset_sets_its_values_and_its_stages(open_page: OpenPage) -> None:
    page = search(open_page())
    page = page.selectbox(key="inspect:preset:0").select("qmd").run()
    assert not page.exception
    rerank = html(page, "wb-strip").split('<div class="wb-name">rerank</div>')[1].split("</div></div>")[0]
    assert "off" not in rerank
    assert control(page, "selectbox", "fusion.top_rank_bonus.mode").value == "best_rank"  # type: ignore[attr-defined]


SYSTEMS = ("cems_head", "recollection", "memory_agent", "ace", "workbench")


@pytest.mark.parametrize("name", first_of(dict.fromkeys((*SYSTEMS, *preset_names())), len(SYSTEMS)))
def test_every_preset_draws_every_view(open_page: OpenPage, name: str) -> None:
    page = search(open_page())
    page = page.selectbox(key="inspect:preset:0").select(name).run()
    for view in ("Contributions", "Rank flow", "Rerank", "Adjust", "Context"):
        page.session_state["inspect:view"] = view
        page.run()
        assert not page.exception, f"{name}: {view}"


def test_the_rerank_view_shows_the_blend(open_page: OpenPage) -> None:
    page = search(open_page())
    page = page.selectbox(key="inspect:preset:0").select("qmd").run()
    page.session_state["inspect:view"] = "Rerank"
    page.run()
    table = page.dataframe[0].value
    row = table.iloc[0]
    assert row["score"] == pytest.approx(row["from retrieval"] + row["from reranker"])
    assert row["from retrieval"] == pytest.approx(row["weight"] * row["retrieval"])


def test_every_parameter_that_works_has_a_control(open_page: OpenPage) -> None:
    page = open_page()
    for section in {spec.section for spec in field_specs()}:
        page.session_state[f"inspect:group:{section}"] = True
        page.session_state[f"inspect:idle:{section}"] = True
    page = page.run()
    assert not page.exception
    kinds = ("slider", "toggle", "selectbox", "multiselect", "text_input")
    widgets = [widget for kind in kinds for widget in page.get(kind) if widget.key and ":" in widget.key]
    keys = {widget.key.split(":", 2)[2] for widget in widgets if widget.key.count(":") > 1}
    config = preset("cems").config
    for spec in field_specs():
        drawn_otherwise = spec.row is not None or spec.path == "adjust.time_decay.tiers"
        single = len(spec.choices) == 1
        if not drawn_otherwise and not single:
            present = spec.path in keys or f"{spec.path}:on" in keys
            assert present, f"{spec.path} ({config.get(spec.path)}) has no control"


def test_parameters_without_effect_are_folded_into_a_line_that_opens_them(open_page: OpenPage) -> None:
    page = open_page()
    set_config(page, with_values(preset("cems").config, {"fusion.method": "combsum"}))
    page.session_state["inspect:idle:fusion"] = False
    page = page.run()
    idle = {path: why for path, why in idle_parameters(config_of(page)).items() if path.startswith("fusion.")}
    assert [box.label for box in page.expander if "without effect" in box.label] == [folded_words(idle.values())]
    keys = {str(widget.key).split(":", 2)[-1] for widget in page.slider}
    assert keys.isdisjoint(idle)
    page.session_state["inspect:idle:fusion"] = True
    keys = {str(widget.key).split(":", 2)[-1] for widget in page.run().slider}
    assert "fusion.k" in keys


def test_first_screen_is_side_by_side_with_the_next_step_and_a_link_to_why(open_page: OpenPage) -> None:
    page = search(open_page(form="Side by side"))
    assert "wb-results" not in all_html(page)
    page = search(page, FAILING)
    assert "missing" in html(page, "wb-next")
    page = press(page, "inspect:next:why")
    assert page.session_state["inspect:tool"] == "Why is it missing?"
    (memory,) = re.findall(r"(m\d+) \(grade", html(page, "wb-next"))
    assert memory in html(page, "wb-cause")
    page = search(page, "is this wired up and nobody ever asked it")
    assert "No result is judged" in html(page, "wb-next")
    first = page.session_state["inspect:follow"]
    page = press(page, "inspect:next:grade")
    assert page.session_state["inspect:follow"] != first


def test_threshold_slider_says_what_it_is_as_a_cosine_and_bands_have_sliders(open_page: OpenPage) -> None:
    changes = {
        "lists.vector.scale": "half_cosine",
        "threshold.mode": "fixed",
        "lists.lexical.normalization": "logistic",
    }
    page = open_group(configured(search(open_page()), changes), "threshold")
    assert any("as a cosine: 0.2" in caption.value for caption in page.caption)
    page = open_group(page, "lists")
    band = next(slider for slider in page.slider if slider.key and slider.key.endswith("bands:0:midpoint"))
    assert (band.label, band.value) == ("Midpoint, words 1–3", 5.0)
    page = band.set_value(6.5).run()
    assert not page.exception
    assert config_of(page).lists.logistic.bands[0].midpoint == 6.5


def test_raising_a_depth_gathers_again_and_says_nothing_is_missing(open_page: OpenPage) -> None:
    page = open_group(search(open_page()), "lists")
    page = control(page, "slider", "lists.vector.depth").set_value(180).run()  # type: ignore[attr-defined]
    assert not page.exception
    assert "but the evidence was gathered with" not in html(page, "wb-strip")
    evidence = evidence_of(page)
    assert len({hit.memory_id for hit in evidence.lists[0].hits}) == 180


def test_a_stage_that_drops_everyone_is_named(open_page: OpenPage) -> None:
    page = open_page()
    set_config(page, with_values(preset("cems").config, {"filter.min_score": 2.0}))
    page = search(page)
    assert "Nothing returned: filter dropped all " in html(page, "wb-next")
    for view in ("Contributions", "Rank flow", "Rerank", "Adjust", "Context"):
        page.session_state["inspect:view"] = view
        page.run()
        assert not page.exception, view


def test_a_query_that_nothing_matches_is_not_an_error(open_page: OpenPage) -> None:
    page = open_page()
    set_config(page, with_values(preset("cems").config, {"lists.vector.enabled": False}))
    page = search(page, "zzzqqq xxyyzz")
    assert "Nothing returned: no list that is switched on has a hit" in html(page, "wb-next")


def test_an_empty_store_offers_the_sample(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(tmp_path / "new")
    assert not page.exception
    assert "This store is empty" in html(page, "wb-empty")
    assert any(button.label == "Load the sample memories" for button in page.button)


def test_a_path_that_is_not_a_store_is_one_clear_line(open_page: OpenPage, tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a store")
    page = open_page(occupied)
    assert not page.exception
    assert "is a file, not a directory" in plainly(page.error[0].value)


def test_markup_in_a_memory_is_escaped(open_page: OpenPage, tmp_path: Path) -> None:
    source = tmp_path / "memories.jsonl"
    content = "zebra <script>alert(1)</script> **bold** <img src=x onerror=alert(2)>"
    source.write_text(json.dumps({"id": "<b>x</b>", "content": content, "title": "<i>t</i>"}) + "\n")
    store = tmp_path / "store"
    with Store.open(store) as opened:
        opened.add(read(source))
    page = search(open_page(store), "zebra")
    body = html(page, "wb-results")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; **bold** &lt;img" in body
    assert "<script>" not in body and "<img" not in body and "<i>t</i>" not in body and "<b>x</b>" not in body
