"""The Inspect page: a query goes in, every stage is shown, a control changes the ranking; picker, transfer, chunks, stale results."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cems_workbench.analysis.proposed_edges import ProposedEdge
from cems_workbench.analysis.supersession_signals import Signals
from cems_workbench.config import export_config, field_specs, preset, preset_names, with_values
from cems_workbench.evaluation.grades import relevant
from cems_workbench.jobs.evidence_memory import judged_queries
from cems_workbench.jobs.factory import open_resources
from cems_workbench.models import tokens
from cems_workbench.pipeline.effects import folded_words, idle_parameters
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.understanding import SHIPPED, read_dictionary, write_dictionary
from cems_workbench.records import SUPERSEDES, Chunk, Memory, ParsedInput
from cems_workbench.settings import SavedTarget, Settings
from cems_workbench.store import Store
from cems_workbench.store.text_rule import searched_text
from cems_workbench.ui.inspect import context, fetch_evidence, searched, toolbar
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.views import views_in
from cems_workbench.ui.memories.page import standing_lines, standings
from tests.sample import FAILING
from tests.thoroughly import first_of

from .inspect_page import (
    PLAIN,
    QUERY,
    WIRED,
    choose_preset,
    config_of,
    configured,
    control,
    evidence_of,
    follow,
    open_group,
    order,
    ranks,
    search,
    set_config,
    set_state,
    show,
    state_of,
    tool,
)
from .pages import OpenPage, all_html, buttons, captions, html, markdown, plainly, press, table_with


def test_the_first_page_offers_judged_queries_and_one_fills_the_box_and_is_searched(open_page: OpenPage) -> None:
    page = open_page()
    assert "<b>438 memories</b> from" in html(page, "wb-start") and "438" in html(page, "wb-start")
    assert "when are we moving house" in page.text_input(key="inspect:query").placeholder
    example, *others = [one for one in page.button if one.key and one.key.startswith("inspect:example:")]
    assert len(others) >= 4
    page = example.click().run()
    assert plain(page.text_input(key="inspect:query").value) == example.label
    assert order(page)
    assert "judged relevant" in " ".join(text.value for text in page.caption)


def test_a_slider_changes_the_ranking_before_the_page_runs_and_reset_brings_it_back(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = search(open_page())
    before = order(page)
    with monkeypatch.context() as patched:
        patched.setattr(searched, "_draw_ranking", lambda *_: st.stop())
        moved = order(control(page, "slider", "fusion.score_blend").set_value(1.0).run())
    assert order(page.run()) == moved != before
    reset = next(button for button in page.button if "reset" in button.label)
    assert "(changed: 1)" in reset.label
    page = reset.click().run()
    assert order(page) == before


SYSTEMS = ("cems_head", "memory_agent", "workbench")


@pytest.mark.parametrize("name", first_of(dict.fromkeys((*SYSTEMS, *preset_names())), len(SYSTEMS)))
def test_every_preset_draws_every_view(open_page: OpenPage, name: str) -> None:
    page = search(open_page())
    page = choose_preset(page, name)
    for view in ("Contributions", "Rank flow", "Rerank", "Adjust", "Context", "Query", "Threshold", "Judge"):
        page.session_state["inspect:view"] = view
        page.run()


def test_the_rerank_view_shows_the_blend(open_page: OpenPage) -> None:
    page = search(open_page())
    page = choose_preset(page, "qmd")
    page.session_state["inspect:view"] = "Rerank"
    page.run()
    table = page.dataframe[0].value
    row = table.iloc[0]
    assert row["score"] == pytest.approx(row["from retrieval"] + row["from reranker"])
    assert row["from retrieval"] == pytest.approx(row["weight"] * row["retrieval"])


def drawn(page: AppTest) -> set[str]:
    """The parameters that have a control on the page."""
    kinds = ("slider", "toggle", "selectbox", "multiselect", "text_input")
    keys = [str(widget.key).split(":", 2) for kind in kinds for widget in page.get(kind)]
    return {key[2].removesuffix(":on").split(":")[0] for key in keys if len(key) == 3 and key[1].isdecimal()}


def test_all_has_a_control_of_every_parameter_and_of_a_list_that_is_off_its_switch(open_page: OpenPage) -> None:
    page = open_page()
    for section in {spec.section for spec in field_specs()}:
        page.session_state[f"inspect:group:{section}"] = True
        page.session_state[f"inspect:idle:{section}"] = True
    found, config = drawn(page.run()), config_of(page)
    for spec in field_specs():
        name, _, own = spec.path.removeprefix("lists.").partition(".")
        off = (
            spec.path == f"lists.{name}.{own}"
            and own != "enabled"
            and not getattr(getattr(config.lists, name), "enabled", True)
        )
        if spec.path != "adjust.time_decay.tiers" and len(spec.choices) != 1:
            assert (spec.path in found) != off, spec.path


def test_basic_has_few_controls_and_any_that_is_changed_with_why_it_has_no_effect(open_page: OpenPage) -> None:
    page = open_page()
    page.session_state["inspect:controls"] = "Basic"
    set_state(page, preset="workbench", config=preset("workbench").config)
    for section in {spec.section for spec in field_specs()}:
        page.session_state[f"inspect:group:{section}"] = True
    basic = drawn(page.run())
    assert {"lists.vector.weight", "fusion.method", "rerank.bands", "supersession.mode", "assembly.limit"} <= basic
    assert len(basic) <= 18 and sum(path.startswith("lists.") for path in basic) == 6
    set_config(page, with_values(preset("workbench").config, {"lists.lucene.k1": 0.9, "fusion.normalize": "none"}))
    page = page.run()
    assert drawn(page) - basic == {"lists.lucene.k1", "fusion.normalize"}
    assert captions(page).count("No effect: this list is off") == 2, "beside the reset and below the control"
    assert "new search" not in page.button(key="inspect:reset:lists.lucene.k1").label


def test_search_finds_parameters_by_label_name_and_help(open_page: OpenPage) -> None:
    page = open_page()
    assert "rerank.bands" in drawn(page.text_input(key="inspect:find").set_value("retrieval share").run())
    found = drawn(page.text_input(key="inspect:find").set_value("lucene.k1").run())
    assert found == {"lists.lucene.k1"} and "this list is off" in captions(page)
    page = page.text_input(key="inspect:find").set_value("no such thing").run()
    assert not drawn(page) and "No parameter has these words" in captions(page)


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
    (memory,) = re.findall(r"(“[^”]+”) \(grade", html(page, "wb-next"))
    assert f"{memory} was" in html(page, "wb-cause")
    page = search(page, "is this wired up and nobody ever asked it")
    assert "No result is judged" in html(page, "wb-next")
    page.session_state["inspect:next:grade"], page.session_state["reviewer:name"] = True, "ada"
    assert [key[-1] for key in buttons(page.run(), "inspect:next:grade:")] == ["0", "1", "2", "3"]


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
    assert config_of(page).lists.logistic.bands[0].midpoint == 6.5


def test_raising_a_depth_gathers_again_and_says_nothing_is_missing(open_page: OpenPage) -> None:
    page = open_group(search(open_page()), "lists")
    page = control(page, "slider", "lists.vector.depth").set_value(180).run()  # type: ignore[attr-defined]
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


def test_an_empty_store_offers_the_sample_and_what_is_none_is_one_line(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(tmp_path / "new")
    assert "This store is empty" in html(page, "wb-empty")
    ways = ["Load the sample memories", "Import files", "Connect a live system", "Import a trace"]
    assert [button.label for button in page.button] == ways and not page.sidebar.expander
    page = page.button(key="inspect:start:Import a trace").click().run()
    assert page.selectbox(key="memories:format").value == "openinference-traces"
    (tmp_path / "file").write_text("not a store")
    assert "is a file, not a directory" in plainly(open_page(tmp_path / "file").error[0].value)


def test_a_followed_memory_is_marked_and_its_path_is_shown(open_page: OpenPage) -> None:
    page = search(open_page())
    third = order(page)[2]
    assert "wb-followed" not in html(page, "wb-results")
    page = follow(page, third)
    cards = html(page, "wb-results").split('<div class="wb-result')[1:]
    assert [card.startswith(" wb-followed") for card in cards] == [
        card.count(f"<code>{third}</code>") == 1 for card in cards
    ]
    path = html(page, "wb-path")
    assert f"<code>{third}</code>" in path
    assert re.findall(r"<th>(\w+)</th>", path)[:4] == ["stage", "lists", "threshold", "fusion"]
    for view in views_in("inspect.views"):
        show(page, view)
    assert third in set(ranks(page)["memory"])


def test_one_parameter_is_reset_and_the_other_stays(open_page: OpenPage) -> None:
    page = search(open_page())
    page = control(page, "slider", "fusion.score_blend").set_value(1.0).run()  # type: ignore[attr-defined]
    page = control(page, "slider", "fusion.k").set_value(30).run()  # type: ignore[attr-defined]
    assert {"inspect:reset:fusion.score_blend", "inspect:reset:fusion.k"} <= set(buttons(page))
    page = page.button(key="inspect:reset:fusion.score_blend").click().run()
    config = config_of(page)
    assert config == with_values(preset(state_of(page).preset).config, {"fusion.k": 30})
    assert control(page, "slider", "fusion.score_blend").value == config.fusion.score_blend  # type: ignore[attr-defined]
    assert buttons(page, "inspect:reset:") == ["inspect:reset:fusion.k"]
    assert "(changed: 1)" in page.button(key="inspect:reset").label


def test_the_query_view_marks_signals_and_shows_the_probe(open_page: OpenPage) -> None:
    page = show(search(open_page(), "restart elasticsearch"), "Query")
    spans = html(page, "wb-spans")
    assert 'restart e<mark title="temporal: last">last</mark>icsearch' in spans
    assert "“last” (inside a word)" in spans
    assert html(page, "Strong-signal probe")
    assert "Routed to **hybrid**: simple, reasoning" in captions(page)
    assert "One variant was searched" in captions(page)


def test_the_lists_view_has_a_table_per_list_with_raw_and_normalised(open_page: OpenPage) -> None:
    page = show(search(open_page()), "Lists")
    evidence = evidence_of(page)
    gathered = [ranked for ranked in evidence.lists if ranked.hits]
    tables = [frame.value for frame in page.dataframe]
    assert len(tables) == len(gathered)
    for ranked, table in zip(gathered, tables, strict=True):
        best = {hit.memory_id: hit.score for hit in reversed(ranked.hits)}  # a memory by its best chunk
        assert list(table["memory"]) == list(dict.fromkeys(hit.memory_id for hit in ranked.hits)), ranked.name
        if ranked.source == "recency":
            days = [evidence.memories[memory_id].created_at for memory_id in table["memory"]]
            assert list(table["created"]) == [day.date().isoformat() for day in days if day is not None]
        else:
            assert list(table["raw"]) == pytest.approx([best[memory_id] for memory_id in table["memory"]])


@pytest.mark.thorough
def test_the_pickers_status_is_what_the_page_shows_for_the_query(open_page: OpenPage) -> None:
    """The best rank in the picker is the rank in the results of a search for the same query."""
    page = open_page()
    page.session_state["inspect:picker"] = True
    page.run()
    row = page.dataframe[0].value.query("rank > 1").iloc[0]
    stored = next(query for query in session.resources().store.queries.read() if query.query == row["query"])
    page.session_state["inspect:picker"] = False
    page.session_state["inspect:project"] = stored.project
    page.session_state["inspect:as_of"] = stored.as_of.date() if stored.as_of else None
    page = search(page, stored.query)
    grades = judged_queries(session.resources())[1][stored.qid]
    assert order(page)[int(row["rank"]) - 1] in relevant(grades, 1)
    assert not relevant(grades, 1) & set(order(page)[: int(row["rank"]) - 1])


def test_a_config_file_is_offered_with_its_differences_and_taken(open_page: OpenPage) -> None:
    page = search(open_page())
    imported = with_values(config_of(page), {"fusion.score_blend": 1.0, "fusion.k": 17})
    page.session_state["inspect:transfer"] = True
    page.run()
    page.file_uploader(key="inspect:config_file").upload(
        "mine.yaml", export_config(imported, "yaml").encode(), "text/yaml"
    )
    page.run()
    assert "2 parameters" in captions(page)
    page = page.button(key="inspect:take").click().run()
    assert config_of(page) == with_values(imported, {"name": "cems-mine"}), "named after its file, not as the preset"
    assert control(page, "slider", "fusion.k").value == 17  # type: ignore[attr-defined]
    assert "The file has the same values as the current config." in captions(page)


def test_a_config_file_that_is_none_is_one_clear_line(open_page: OpenPage) -> None:
    page = open_page()
    page.session_state["inspect:transfer"] = True
    page.run()
    for content, part in ((b"fusion: {kk: 1}", "fusion.kk"), (b"\xff\xfe", "UTF-8"), (b"[1", "mine.yaml"), (b"", "")):
        page.file_uploader(key="inspect:config_file").upload("mine.yaml", content, "text/yaml")
        page.run()
        if part:
            assert part in plainly(page.error[0].value) and "inspect:take" not in buttons(page)


@pytest.mark.parametrize("backend", first_of(["manual", "feedback", "dictionary"]))
def test_every_view_draws_with_an_expansion(open_page: OpenPage, backend: str) -> None:
    page = configured(open_page(), {**PLAIN, "expansion.backend": backend})
    page.run()
    if backend == "manual":
        page = page.text_area(key="inspect:manual").set_value("architecture").run()
    page = search(page, WIRED)
    evidence = evidence_of(page)
    assert len(evidence.variants) == 2
    for view in views_in("inspect.views"):
        show(page, view)


def test_a_broken_dictionary_is_one_clear_line(open_page: OpenPage) -> None:
    page = open_page()
    path = session.resources().dictionary_path
    path.write_text("[")
    try:
        page = configured(page, {**PLAIN, "expansion.backend": "dictionary"})
        page.session_state["inspect:picker"] = True
        page = search(page, WIRED)
        assert page.error
        assert all("not readable as YAML" in error.value and "expansions" in error.value for error in page.error)
    finally:
        path.unlink()


def test_scoring_that_was_cancelled_can_be_gone_on_with(open_page: OpenPage) -> None:
    request = Request("where did we go for dinner?")
    page = search(open_page(), request.query)
    evidence = evidence_of(page)
    changed = with_values(preset("qmd").config, {"rerank.chunk_chars": 77})  # nobody else scored these chunks
    set_config(page, changed)
    set_state(page, attempted=(request, changed))  # what a cancelled run leaves
    page.run()
    assert any("Not scored yet: " in info.value for info in page.info)
    assert "late_interaction did not score" in html(page, "wb-notes")
    assert len(order(page)) == 10
    show(page, "Rerank")
    page = page.button(key="inspect:go_on").click().run()
    assert "inspect:go_on" not in buttons(page)
    assert not [body for body in (e.proto.body for e in page.get("html")) if "did not score" in body]
    scored = evidence_of(page)
    assert scored.notes["rerank_scores"]["scored"] > 0
    assert scored.as_of == evidence.as_of
    assert "0 never scored" in captions(page)


def test_several_queries_at_once_show_what_each_of_them_gave(open_page: OpenPage) -> None:
    changes = {"rerank.backend": "none", "fusion.method": "combmax", "fusion.multi_list_boost": 0.5}
    page = configured(open_page(), changes, "memory_agent")
    page = search(page, "how do releases reach the cluster")
    assert not [frame for frame in page.dataframe if "found" in frame.value]
    page.text_area(key="inspect:manual").set_value("\n".join(f"deploy on day {i}" for i in range(25))).run()
    frame = next(frame.value for frame in page.dataframe if "found" in frame.value)
    assert list(frame["query"][:2]) == ["0  how do releases reach the cluster", "1  deploy on day 0"]
    assert len([text for text in frame["query"] if text[0].isdigit()]) == 20
    assert list(frame["query"][-2:]) == ["× boost", "= raw score"]
    assert (frame.iloc[:20, 2:].apply(lambda column: column.str.startswith("◆")).sum() == 1).all()
    page = show(page, "Lists")
    assert "vector goes 30 deep: oversample 3 × limit 10, more than the 10 set" in captions(page)


def test_a_result_is_graded_and_its_query_kept_without_leaving_the_page(open_page: OpenPage) -> None:
    """The bar follows, explains and grades; the judged line of the page says what the store holds."""
    page = open_page()
    page.session_state["reviewer:name"] = "ada"
    page = search(page, "typed by hand about doctors")
    second = order(page)[1]
    page = follow(page, second)
    page = press(page, "inspect:row_grade:3")
    store = session.resources().store
    query = next(query for query in store.queries.read() if query.query == "typed by hand about doctors")
    assert store.query_sets.holding(query.qid) == ["typed by hand"]
    [label] = store.judgments.read(query.qid)
    assert (label.memory_id, label.grade, label.judge, label.kind) == (second, 3, "ada", "human")
    assert "1 of 1 memory judged relevant" in captions(page)
    assert order(page)[1] == second
    page = press(page, "inspect:row_why")
    assert page.session_state["inspect:tool"] == "Why is it missing?"
    asked = next(button for button in page.button if button.key == f"inspect:why:pick:{second}")
    assert asked.proto.type == "primary"


def test_rows_become_entries_and_half_filled_rows_do_not() -> None:
    rows = [
        {"word": " wired ", "replacement": "plugged in"},
        {"word": "x", "replacement": None},
        {"word": None, "replacement": "y"},
    ]
    assert toolbar.entries_of(rows) == {"wired": "plugged in"}


def test_the_dictionary_opens_and_a_saved_entry_is_searched(open_page: Callable[..., AppTest]) -> None:
    page = open_page()
    set_config(
        page,
        with_values(
            preset("cems").config, {"expansion.backend": "dictionary", "expansion.skip_on_strong_signal.enabled": False}
        ),
    )
    page.session_state["inspect:dictionary"] = True
    page.text_input(key="inspect:query").set_value("is this wired up").run()
    path: Path = session.resources().dictionary_path
    try:
        assert read_dictionary(path) == dict(SHIPPED)
        write_dictionary(path, {"wired": "plugged in"})
        set_state(page, gathered=None)
        page.run()
        evidence = evidence_of(page)
        assert [variant.text for variant in evidence.variants] == ["is this wired up", "is this plugged in up"]
    finally:
        path.unlink(missing_ok=True)


def test_the_settings_name_the_preset_the_app_opens_with_or_workbench_stands_in(
    open_page: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_PRESET", "ace_b")
    page = open_page()
    assert config_of(page) == preset("ace_b").config
    assert state_of(page).preset == "ace_b"
    monkeypatch.setenv("CEMS_WORKBENCH_PRESET", "cmes")
    page = open_page()
    assert state_of(page).preset == "workbench"
    assert any("no preset cmes" in error.value and "recollection" in error.value for error in page.error)


@pytest.mark.thorough
def test_every_view_and_tool_opens_under_cems_head(open_page: OpenPage) -> None:
    page = open_page()
    set_config(page, preset("cems_head").config)
    set_state(page, preset="cems_head")
    page = search(page, QUERY)
    assert order(page)
    for view in views_in("inspect.views"):
        show(page, view)
    for name in views_in("inspect.tools"):
        tool(page, name)
        assert not page.error, (name, page.error)


MOVING, STAYING = "“Moving in November”", "“Staying in our flat”"
STALE = f"superseded by {STAYING} (157 days later), which "


def search_for_the_old_one(page: AppTest) -> AppTest:
    """The query is the superseded memory's own text, which every embedder puts first in the vector list."""
    old = session.resources().store.memories.get("m249")
    assert old is not None
    set_config(page, with_values(config_of(page), {"lists.lexical.enabled": False, "rerank.backend": "none"}))
    return search(page, searched_text(old))


def test_first_result_that_is_superseded_is_said_with_what_to_do_about_it(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = search_for_the_old_one(open_page())
    assert "cannot:" not in captions(page)
    with monkeypatch.context() as patch:
        patch.setattr(context, "saved_target", lambda store: SavedTarget("mem0", "mem0", {}))
        assert "mem0 cannot: supersession.mode = follow, supersession.mode = demote" in captions(page.run())
        page = press(page, "inspect:next:why")
        assert "mem0 cannot: supersession.mode = " in html(page, "wb-cause")
    assert order(page)[0] == "m249"
    assert f"The first result, {MOVING}, is {STALE}" in html(page, "wb-stale-first")
    assert f'class="wb-stale" title="{STALE.replace(STAYING, "m312").capitalize()}' in html(page, "wb-results")
    # Successors that no list found are no candidates.
    entered = re.search(r">lists<.*?(\d+)", html(page, "wb-strip"), re.DOTALL)
    assert entered is not None and f"· {entered[1]} candidates" in captions(page)
    page = press(page, "inspect:next:follow")
    assert config_of(page).supersession.mode == "follow"
    assert order(page)[0] == "m312" and "wb-stale-first" not in all_html(page)


def test_an_accepted_pair_is_followed_where_it_was_accepted(
    open_page: OpenPage, sample_store: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store, store._database.transaction() as cursor:
        cursor.execute("DELETE FROM relations WHERE kind = ?", [SUPERSEDES])
    page = search_for_the_old_one(open_page(path))
    assert "Does it replace it?" in markdown(page) and "inspect:next:pair:accepted" not in buttons(page)
    page.session_state["inspect:next:pair:name"] = True
    page.run().text_input(key="reviewer:name").set_value("ada").run()
    page = press(page, "inspect:next:pair:accepted")
    (edge,) = (one for one in session.resources().store.relations.read() if one.kind == SUPERSEDES)
    assert edge.target_id == order(page)[0]
    assert "inspect:next:stale:script" in buttons(page) and "Fix:" not in all_html(page)
    page = press(page, "inspect:next:follow")
    assert edge.target_id not in order(page) and edge.source_id in order(page)


def test_why_is_opened_on_the_successor(open_page: OpenPage) -> None:
    page = press(search_for_the_old_one(open_page()), "inspect:next:why")
    assert f"{STAYING} supersedes {MOVING}, which is 1st" in html(page, "wb-cause")


def test_fix_is_named_below_the_step_after_a_search_and_applied_by_a_click(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fetch_evidence, "may_start_unasked", lambda config: False
    )  # the judged queries are not searched
    monkeypatch.setenv("CEMS_WORKBENCH_GATHER_AHEAD", "true")
    page = search_for_the_old_one(open_page())
    assert f"Fix: “Demote it”, above, which sets supersession.mode = demote. {STAYING} becomes 1st; not checked" in html(
        page, "wb-next-fix"
    )
    former = config_of(page)
    set_config(page, with_values(former, {"fusion.score_blend": 0.1}))  # not searched under these settings
    assert "Fix:" not in html(page.run(), "wb-next-fix")
    set_config(page, former)
    page = page.run()
    assert not [one for one in page.button if one.key == "inspect:next:apply"]  # the same as Demote it, above
    page = press(page, "inspect:next:demote")
    assert config_of(page).supersession.mode == "demote" and order(page)[:2] == ["m312", "m249"]


def test_a_pair_that_explains_the_step_is_asked_about_instead_of_a_fix(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_evidence, "may_start_unasked", lambda config: False)
    monkeypatch.setenv("CEMS_WORKBENCH_GATHER_AHEAD", "true")
    pair = ProposedEdge(
        "m312", "m249", 0.9, 157.0, "157 days later", {"cosine": 0.8}, Signals(0, 0, 0, 0, 0, (), (), ())
    )
    monkeypatch.setattr(context, "contradicting", lambda *asked: pair)
    page = open_page()
    page.session_state["reviewer:name"] = "ada"
    page = search_for_the_old_one(page)
    assert f"{STAYING} is later than {MOVING}, which is above it. Does it replace it?" in markdown(page)
    assert "Fix:" not in all_html(page)
    page = press(page, "inspect:next:pair:rejected")
    assert "Does it replace it?" not in markdown(page) and "Fix:" in html(page, "wb-next-fix")


def test_memories_say_what_supersedes_them_and_what_they_supersede(open_page: OpenPage) -> None:
    open_page()
    resources = session.resources()
    older, newer = resources.store.memories.read(["m249", "m312"]).values()
    assert standings(resources, [older, newer]) == {"m249": f"superseded by {STAYING} (157 days later)"}
    assert standing_lines(resources, older) == [f"superseded by {STAYING} (157 days later)"]
    assert standing_lines(resources, newer) == [f"supersedes {MOVING}"]


PIECES = (
    "The kitchen was painted green in spring. ",
    "The zebra ledger is kept in the blue cabinet. ",
    "Nobody has a key to the cellar.",
)
SHORT = "A cat sleeps on the piano."


@pytest.fixture(params=[True, False], ids=["in its place", "place unknown"])
def placed(request: pytest.FixtureRequest) -> bool:
    """Does the store know where chunks stand?"""
    return bool(request.param)


@pytest.fixture
def chunked(tmp_path: Path, placed: bool) -> Path:
    """A store of a memory in three chunks, and one that is searched as a whole."""
    content = "".join(PIECES) if placed else "A house with much in it."
    starts = [sum(map(len, PIECES[:i])) if placed else None for i in range(3)]
    chunks = tuple(
        Chunk("long", seq, text.strip(), start) for seq, (text, start) in enumerate(zip(PIECES, starts, strict=True))
    )
    opened = open_resources(Settings(store=tmp_path / "small"))
    opened.store.add(ParsedInput("test", "test", (Memory("long", content), Memory("short", SHORT)), chunks=chunks))
    opened.refresh()
    opened.close()
    return tmp_path / "small"


@pytest.fixture
def found(open_page: OpenPage, chunked: Path) -> AppTest:
    """The page after a query that the second chunk answers."""
    page = open_page(chunked)
    set_config(page, preset("cems_head").config)
    return search(page, "where is the zebra ledger")


def test_cards_path_lists_and_text_evidence_say_which_chunk_was_found(found: AppTest, placed: bool) -> None:
    cards = html(found, "wb-results")
    assert cards.count("2nd of 3 chunks") == 1 and "found it by this one" in cards
    assert f'<span class="wb-chunk">{PIECES[1].strip()}</span>' in cards
    assert (f'<span class="wb-rest wb-before">{PIECES[0]}</span>' in cards) == placed
    page = follow(found, "long")
    assert "2nd of 3 chunks" in html(page, "wb-path")
    table = table_with(show(page, "Lists"), "chunk")
    row = table[[name.endswith("long") for name in table["memory"]]].iloc[0]
    assert (row["chunk"], row["chunk #"]) == ("2 of 3", 1) and PIECES[1].strip() in row["content"]
    assert "Counted in the 2nd of 3 chunks" in markdown(tool(page, "Text evidence"))


def test_the_memories_page_lists_the_chunks_and_the_rule(found: AppTest, placed: bool) -> None:
    page = found.switch_page("pages/memories.py").run()
    page.session_state["memories:state"] = replace(page.session_state["memories:state"], selected="long")
    page = page.run()
    table = table_with(page, "start")
    assert list(table["#"]) == [1, 2, 3] and list(table["tokens"]) == [tokens.count(text.strip()) for text in PIECES]
    assert list(table["start"].dropna()) == ([0, len(PIECES[0]), len(PIECES[0] + PIECES[1])] if placed else [])
    page.session_state["memories:view"] = "Store"
    page = page.run()
    assert "Chunks: **embedder**" in captions(
        page
    ) and "1 memory in 3 chunks (3 imported with the memories)" in captions(page)


def test_a_pair_that_a_colleague_decided_since_is_said_and_keeps_that_decision(
    open_page: OpenPage, tmp_path: Path
) -> None:
    texts = {"old": "I live in Hamburg, at Grindelallee 12.", "tea": "My favourite tea is Assam."}
    texts["new"] = "I moved: I now live in Berlin, at Kantstrasse 4, no longer in Hamburg."
    memories = (
        Memory(key, text, created_at=datetime(2026, 1, i, tzinfo=UTC)) for i, (key, text) in enumerate(texts.items(), 1)
    )
    with Store.open(tmp_path / "store") as store:
        store.add(ParsedInput("m.jsonl", "t", memories=tuple(memories)))
    ada, bob = open_page(tmp_path / "store"), open_page(tmp_path / "store")
    for page, name in ((ada, "ada"), (bob, "bob")):
        page.session_state[session.NAME] = name
        search(page, "where in Hamburg do I live")
    press(ada, "inspect:next:pair:accepted")
    press(bob, "inspect:next:pair:rejected")
    assert "ada has accepted this pair" in bob.toast[0].value
    (decision,) = session.resources().store.supersessions.standing()
    assert (decision.newer, decision.older, decision.verdict, decision.author) == ("new", "old", "accepted", "ada")
