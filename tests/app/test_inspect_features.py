"""The Inspect page beyond its basics: follow, reset of one, variants, query and lists views, picker, transfer, cancel."""

from __future__ import annotations

import re

import pytest

from cems_workbench.config import difference, export_config, parse_config, preset, with_values
from cems_workbench.evaluation.grades import relevant
from cems_workbench.jobs.evidence_memory import judged_queries
from cems_workbench.pipeline.gather import Request
from cems_workbench.ui.inspect.context import views_in
from cems_workbench.ui.inspect.picker_tables import SIGNS
from cems_workbench.ui.inspect.searched import VIEWS
from cems_workbench.ui.inspect.toolbar import DIFFERENCES
from cems_workbench.ui.kit import session
from tests.thoroughly import first_of

from .inspect_page import (
    PLAIN,
    QUERY,
    WIRED,
    config_of,
    configured,
    control,
    evidence_of,
    follow,
    order,
    ranks,
    search,
    set_config,
    set_state,
    show,
    state_of,
)
from .pages import OpenPage, buttons, captions, html, press

pytestmark = [pytest.mark.models]


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
    for view in views_in(VIEWS):
        show(page, view)
    assert f"◆ {third}" in set(ranks(page)["memory"])


def test_a_followed_memory_that_was_dropped_says_where(open_page: OpenPage) -> None:
    page = search(open_page())
    trace_ids = {option.split("  ")[0] for option in page.selectbox(key="inspect:follow").options}
    lost = sorted(trace_ids - set(order(page)))[0]
    page = follow(page, lost)
    assert "dropped" in html(page, "wb-path")
    assert f"◆ {lost}" in set(ranks(page)["memory"])


def test_a_followed_memory_is_let_go_when_it_is_no_candidate(open_page: OpenPage) -> None:
    page = search(configured(open_page(), {}, "qmd"))
    page = follow(page, order(page)[0])
    followed = page.session_state["inspect:follow"]
    page = search(page, "wired deploy rollback")
    evidence = evidence_of(page)
    assert followed not in evidence.memories
    assert page.session_state["inspect:follow"] is None
    assert "wb-followed" not in html(page, "wb-results")


def test_one_parameter_is_reset_and_the_other_stays(open_page: OpenPage) -> None:
    page = search(open_page())
    page = control(page, "slider", "fusion.score_blend").set_value(1.0).run()  # type: ignore[attr-defined]
    page = control(page, "slider", "fusion.k").set_value(30).run()  # type: ignore[attr-defined]
    assert {"inspect:reset:fusion.score_blend", "inspect:reset:fusion.k"} <= set(buttons(page))
    page = page.button(key="inspect:reset:fusion.score_blend").click().run()
    assert not page.exception
    config = config_of(page)
    assert config == with_values(preset(state_of(page).preset).config, {"fusion.k": 30})
    assert control(page, "slider", "fusion.score_blend").value == config.fusion.score_blend  # type: ignore[attr-defined]
    assert buttons(page, "inspect:reset:") == ["inspect:reset:fusion.k"]
    assert "1 parameter changed" in page.button(key="inspect:reset").label


def test_many_changed_parameters_are_counted(open_page: OpenPage) -> None:
    page = open_page()
    set_config(page, preset("qmd").config)
    set_state(page, preset="recollection")
    page.run()
    assert not page.exception
    assert len(buttons(page, "inspect:reset:")) == 12
    assert re.search(r"and \d+ more", captions(page))


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
def test_the_picker_lists_judged_queries_failing_first(open_page: OpenPage) -> None:
    page = search(open_page())
    page.session_state["inspect:picker"] = True
    page.run()
    assert not page.exception
    table = page.dataframe[0].value
    order_of_signs = list(SIGNS.values())
    places = [order_of_signs.index(sign) for sign in table["status"]]
    assert places == sorted(places)
    resources = session.resources()
    assert len(table) == len(judged_queries(resources)[1]) > 50
    for sign in order_of_signs:
        assert f"{sign} {(table['status'] == sign).sum()}" in captions(page)


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


def test_an_exported_config_comes_back_and_its_differences_are_named(open_page: OpenPage) -> None:
    page = search(open_page())
    present = config_of(page)
    other = with_values(present, {"fusion.k": 17, "lists.vector.depth": 33})
    assert [[column.cell(row) for column in DIFFERENCES] for row in difference(present, other)] == [
        ["lists.vector.depth", str(present.lists.vector.depth), "33", "gathers"],
        ["fusion.k", str(present.fusion.k), "17", "instant"],
    ]
    for form in ("yaml", "json"):
        assert parse_config(export_config(other, form)) == other  # type: ignore[arg-type]


def test_a_config_file_is_offered_with_its_differences_and_taken(open_page: OpenPage) -> None:
    page = search(open_page())
    imported = with_values(config_of(page), {"fusion.score_blend": 1.0, "fusion.k": 17})
    page.session_state["inspect:transfer"] = True
    page.run()
    page.file_uploader(key="inspect:config_file").upload(
        "mine.yaml", export_config(imported, "yaml").encode(), "text/yaml"
    )
    page.run()
    assert not page.exception
    assert "2 parameters would change" in captions(page)
    page = page.button(key="inspect:take").click().run()
    assert not page.exception
    assert config_of(page) == imported
    assert control(page, "slider", "fusion.k").value == 17  # type: ignore[attr-defined]
    assert "The file has the same values as the current config." in captions(page)


@pytest.mark.parametrize(
    ("content", "part"), [(b"fusion: {kk: 1}", "fusion.kk"), (b"\xff\xfe", "UTF-8"), (b"[1", "mine.yaml"), (b"", "")]
)
def test_a_config_file_that_is_none_is_one_clear_line(open_page: OpenPage, content: bytes, part: str) -> None:
    page = open_page()
    page.session_state["inspect:transfer"] = True
    page.run()
    page.file_uploader(key="inspect:config_file").upload("mine.yaml", content, "text/yaml")
    page.run()
    assert not page.exception
    if part:
        assert part in page.error[0].value.replace("\\", "")
        assert "inspect:take" not in buttons(page)


def test_two_lines_typed_by_hand_give_three_variants(open_page: OpenPage) -> None:
    page = configured(open_page(), {**PLAIN, "expansion.backend": "manual"})
    page = search(page)
    assert "nothing was typed" in html(page, "wb-notes")
    page = page.text_area(key="inspect:manual").set_value("doctor appointments\n\n  dentist visit  \n").run()
    assert not page.exception
    evidence = evidence_of(page)
    assert [variant.text for variant in evidence.variants] == [QUERY, "doctor appointments", "dentist visit"]
    assert "<b>3</b> variants" in html(page, "wb-strip")
    show(page, "Lists")
    assert len(page.dataframe) >= 6


@pytest.mark.parametrize("backend", first_of(["manual", "feedback", "dictionary"]))
def test_every_view_draws_with_an_expansion(open_page: OpenPage, backend: str) -> None:
    page = configured(open_page(), {**PLAIN, "expansion.backend": backend})
    page.run()
    if backend == "manual":
        page = page.text_area(key="inspect:manual").set_value("architecture").run()
    page = search(page, WIRED)
    evidence = evidence_of(page)
    assert len(evidence.variants) == 2
    for view in views_in(VIEWS):
        show(page, view)


def test_a_variant_that_is_switched_off_changes_the_ranking_and_comes_back(open_page: OpenPage) -> None:
    changes = {**PLAIN, "expansion.backend": "dictionary", "variants.expansion_weight": 3.0}
    page = show(search(configured(open_page(), changes), WIRED), "Query")
    before = order(page)
    switches = [toggle for toggle in page.toggle if toggle.key and toggle.key.startswith("inspect:variant:")]
    assert [(switch.value, switch.disabled) for switch in switches] == [(True, True), (True, False)]
    page = switches[1].set_value(False).run()
    assert not page.exception
    assert order(page) != before
    switches = [toggle for toggle in page.toggle if toggle.key and toggle.key.startswith("inspect:variant:")]
    assert switches[1].value is False
    page = switches[1].set_value(True).run()
    assert order(page) == before


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
    assert not page.exception
    assert any("candidates are not scored yet; the other scores are kept" in info.value for info in page.info)
    assert "were not scored by late_interaction" in html(page, "wb-notes")
    assert len(order(page)) == 10
    show(page, "Rerank")
    page = page.button(key="inspect:go_on").click().run()
    assert not page.exception
    assert "inspect:go_on" not in buttons(page)
    assert not [body for body in (e.proto.body for e in page.get("html")) if "were not scored" in body]
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
    assert not page.exception
    frame = next(frame.value for frame in page.dataframe if "found" in frame.value)
    assert list(frame["query"][:2]) == ["0  how do releases reach the cluster", "1  deploy on day 0"]
    assert len([text for text in frame["query"] if text[0].isdigit()]) == 20
    assert list(frame["query"][-2:]) == ["× boost", "= raw score"]
    assert (frame.iloc[:20, 2:].apply(lambda column: column.str.startswith("◆")).sum() == 1).all()
    page = show(page, "Lists")
    assert "vector goes 30 deep: oversample 3 × limit 10, more than the 10 set" in captions(page)


def test_the_sums_of_several_queries_keep_their_order_past_one(open_page: OpenPage) -> None:
    changes = {"rerank.backend": "none", "fusion.method": "combsum", "threshold.adaptive.min": 0.2}
    page = search(configured(open_page(), changes, "memory_agent"), "deploy a release")
    page.text_area(key="inspect:manual").set_value("\n".join(f"deploy release {i}" for i in range(8))).run()
    frame = next(frame.value for frame in page.dataframe if "found" in frame.value)
    raw = [float(value) for value in frame.iloc[-1, 2:]]
    assert raw[1] > 1
    assert raw == sorted(raw, reverse=True)
    assert [name.split("  ")[1] for name in frame.columns[2:]] == order(page)


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
    assert "1 of 1 memories judged relevant" in captions(page)
    assert order(page)[1] == second
    page = press(page, "inspect:row_why")
    assert page.session_state["inspect:tool"] == "Why is it missing?"
    asked = next(button for button in page.button if button.key == f"inspect:why:pick:{second}")
    assert asked.proto.type == "primary"
