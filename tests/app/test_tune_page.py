"""The Tune page: search in the background, result, hold-out, export, history; without judgments; and beside the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from cems_workbench import formats
from cems_workbench.cli.main import commands
from cems_workbench.config import FORMS, import_config
from cems_workbench.config.forms.targets import BY_FORM
from cems_workbench.config.sections import FUSION_METHODS
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.jobs.tuning import SearchResult
from cems_workbench.records import ParsedInput, Query
from cems_workbench.store import Store
from cems_workbench.ui.kit import session
from cems_workbench.ui.tune.page import NO_JUDGMENTS, OWN
from cems_workbench.ui.tune.state import TuneState, last_result, last_search
from tests.sample import NO_ANSWER, answered_queries, copied

from .inspect_page import config_of, state_of
from .pages import OpenPage, all_html, captions, checked, plainly

QUERIES, CONFIGS, WAIT = 24, 30, 60


def tune_state_of(page: AppTest) -> TuneState:
    value: TuneState = page.session_state["tune:state"]
    return value


def set_tune_state(page: AppTest, **changes: Any) -> None:
    """Replace some of it; the next run shows it."""
    page.session_state["tune:state"] = replace(tune_state_of(page), **changes)


@pytest.fixture(scope="module")
def small_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a query set "few" of some of its answered queries, and "both" with questions that nothing answers."""
    with copied(sample_store, tmp_path_factory.mktemp("tune")) as store:
        answered = answered_queries(store)
        store.query_sets.put("few", answered[:QUERIES], "test")
        store.query_sets.put("six", answered[:6], "test")
        store.query_sets.put("both", [*answered[:10], *formats.read(NO_ANSWER).queries[:6]], "test")
        return store.path


@pytest.fixture
def page(open_page: OpenPage, small_store: Path) -> AppTest:
    """The page on the small set, gathered; its baseline is the preset that the tests open with."""
    return on_set(open_page(small_store, page="tune"), "few")


def on_set(opened: AppTest, name: str) -> AppTest:
    """The page on this query set, gathered."""
    opened.selectbox(key="tune:set").select(name).run()
    if any(button.key == "tune:gather" for button in opened.button):
        opened.button(key="tune:gather").click().run()
    opened.selectbox(key="tune:group_by").select("query")
    opened.number_input(key="tune:trials").set_value(CONFIGS)
    return checked(opened.run())


@pytest.fixture
def tuned(page: AppTest) -> AppTest:
    """The page after a search over two weights."""
    return searched(page, "lists.vector.weight", "fusion.score_blend")


def searched(page: AppTest, *paths: str) -> AppTest:
    """Search these parameters to the end; the page then shows the result."""
    page.multiselect(key="tune:paths").set_value(list(paths)).run()
    page.button(key="tune:start").click().run()
    return ended(page)


def ended(page: AppTest) -> AppTest:
    """Wait for the search at work, and draw the page with what it found."""
    running = last_search()
    if running is not None:
        running.wait(WAIT)
        assert running.over
        assert not running.problem
    return checked(page.run())


def show(page: AppTest, view: str) -> AppTest:
    set_tune_state(page, next_view=view)
    return checked(page.run())


def found(page: AppTest) -> SearchResult:
    value = last_result()
    assert value is not None
    return value


def test_the_space_is_what_is_chosen_with_its_range_and_the_rest_is_fixed(page: AppTest) -> None:
    page.multiselect(key="tune:paths").set_value(["fusion.k", "fusion.method"]).run()
    page.number_input(key="tune:from:fusion.k").set_value(20)
    page.number_input(key="tune:to:fusion.k").set_value(60)
    page.number_input(key="tune:step:fusion.k").set_value(20)
    checked(page.run())
    assert f"{3 * len(FUSION_METHODS)} of {3 * len(FUSION_METHODS)} combinations, all of them" in captions(page)
    assert any("other parameters, as in the baseline" in box.label for box in page.expander)


def test_where_it_runs_takes_the_program_and_offers_what_that_can_set(open_page: OpenPage, small_store: Path) -> None:
    page = on_set(open_page(small_store, page="tune"), "six")
    assert page.selectbox(key="tune:where").value == OWN
    checked(page.selectbox(key="tune:where").select("mem0").run())
    assert page.selectbox(key="tune:baseline").value == "mem0"
    checked(page.button(key="tune:gather").click().run())
    paths = page.multiselect(key="tune:paths")
    assert paths.value == ["threshold.fixed"] and len(paths.options) < 6
    assert any("Not there: " in box.label and "mem0 has no setting for" in box.label for box in page.expander)
    assert not any("is no program of" in one.value for one in page.warning)
    page.selectbox(key="tune:baseline").select("engram_head").run()
    if any(button.key == "tune:gather" for button in page.button):
        page.button(key="tune:gather").click().run()
    assert any(
        "engram_head is no program of mem0; its presets: mem0" in plainly(one.value) for one in checked(page).warning
    )


def test_a_range_that_is_none_is_named_and_nothing_can_be_started(page: AppTest) -> None:
    page.multiselect(key="tune:paths").set_value(["fusion.k"]).run()
    page.number_input(key="tune:from:fusion.k").set_value(90)
    page.number_input(key="tune:to:fusion.k").set_value(30)
    page.run()
    assert "low first" in page.error[0].value
    assert not [button for button in page.button if button.key == "tune:start"]


def test_a_search_runs_beside_the_page_and_ends_in_a_result(tuned: AppTest) -> None:
    result = found(tuned)
    assert tuned.session_state["tune:view"] == "Result"
    assert not result.tuned.search.cancelled
    assert result.tuned.validation is not None
    assert f"{len(result.tuned.search.trials) - 1} configs of 2 parameters" in all_html(tuned)
    assert f"{result.tuned.validation.tuned:.3f}" in all_html(tuned)
    assert len(result.regions) == 2


def test_a_finished_search_is_that_of_the_chosen_set_and_baseline(tuned: AppTest) -> None:
    first = found(tuned)
    tuned.session_state["tune:baseline"] = "mem0"
    assert "Nothing has been searched yet for mem0" in all_html(show(tuned, "Export"))
    tuned.session_state["tune:baseline"] = first.planned.data.baseline.name
    assert f"{len(first.tuned.search.trials) - 1} configs of 2 parameters" in all_html(show(tuned, "Result"))


def test_a_stopped_search_is_resumed_to_its_end(page: AppTest) -> None:
    page.multiselect(key="tune:paths").set_value(["lists.vector.weight", "lists.lexical.weight"]).run()
    page.button(key="tune:start").click()
    page.run()
    if (running := last_search()) is not None:
        running.stop()
    page = ended(page)
    if found(page).tuned.search.cancelled:
        page = ended(page.button(key="tune:go_on").click().run())
    assert not found(page).tuned.search.cancelled


def test_the_holdout_is_sealed_until_it_is_opened_and_every_look_is_counted(tuned: AppTest) -> None:
    planned = found(tuned).planned
    store = session.resources().store
    before = store.holdouts.count("few", planned.sealed)
    assert found(tuned).tuned.holdout is None
    assert f"{len(planned.sealed)} queries, sealed" in all_html(tuned)
    page = checked(tuned.button(key="tune:open").click().run())
    assert found(page).tuned.holdout is not None
    assert found(page).tuned.holdout.queries == len(planned.sealed)
    assert store.holdouts.count("few", planned.sealed) == before + 1
    assert f"Look {before + 1} at these sealed queries" in captions(page)


def test_a_space_of_the_baseline_alone_proposes_the_baseline_and_says_so(page: AppTest) -> None:
    page = searched(page, "judge.threshold")  # the judge ranks nothing
    assert not found(page).better
    assert "Nothing significantly better than cems: the baseline is proposed" in all_html(page)
    assert "no query changes" in show(page, "By query").info[0].value


def test_what_it_learned_names_every_parameter_and_replays_a_curve(tuned: AppTest) -> None:
    page = show(tuned, "What it learned")
    assert set(page.selectbox(key="tune:curve_path").options) == {"Lists › Vector weight", "Fusion › Score blend"}
    assert len(page.get("plotly_chart")) == 2


def test_wins_and_losses_count_every_open_query(tuned: AppTest) -> None:
    page = show(tuned, "By query")
    assert found(page).better
    rows, result = page.dataframe[-1].value, found(page)
    assert set(rows["qid"]) == {result.planned.batch.qids[row] for row in result.planned.plan.split.open}
    assert rows["difference"].abs().is_monotonic_decreasing
    gained = result.tuned.proposal.scores[:, 0] - result.tuned.search.baseline.scores[:, 0]
    assert rows["difference"].mean() == pytest.approx(gained.mean())


def test_the_proposal_is_set_on_the_sliders_and_can_be_undone(tuned: AppTest) -> None:
    page = checked(show(tuned, "Export").button(key="tune:take").click().run())
    assert config_of(page) == found(page).tuned.config
    assert len(state_of(page).history.past) == 1


def test_every_form_is_exported_with_its_card_and_what_it_cannot_say(tuned: AppTest) -> None:
    page = show(tuned, "Export")
    for form in FORMS:
        page.session_state["tune:form"] = form
        checked(page.run())
        shown = next(code.value for code in page.code if "cems" in code.value.lower())
        assert ("Evidence card" in shown) == (form != "json"), form
        if form in BY_FORM:  # what these systems have no setting for
            assert "Not exactly in its file" in captions(page), form
        else:
            assert import_config(shown, source=f"x.{form.removesuffix('thon')}").config == found(page).tuned.config


def test_a_config_is_kept_with_who_and_why_and_restored(tuned: AppTest) -> None:
    page = show(tuned, "Export")
    page.button(key="tune:keep").click().run()
    assert "Enter your name" in page.error[0].value
    page.text_input(key="tune:name").set_value("better blend")
    page.text_input(key="tune:why").set_value("paraphrases were missed")
    page.text_input(key="tune:author").set_value("ada")
    page.run()
    checked(page.button(key="tune:keep").click().run())
    kept = session.resources().store.configs.history()[0]
    assert (kept.name, kept.author, kept.why, kept.base) == ("better blend", "ada", "paraphrases were missed", "cems")
    assert page.session_state["tune:view"] == "History"
    assert "same" in set(page.dataframe[0].value["store"])
    checked(page.button(key="tune:restore").click().run())
    assert config_of(page).name == "better blend"
    assert f"better blend (history {kept.id})" in show(page, "Set up").selectbox(key="tune:baseline").options


def test_a_store_without_judgments_says_how_to_begin(open_page: OpenPage, tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty") as store:
        store.add(ParsedInput("none", "jsonl"))
    page = checked(open_page(tmp_path / "empty", page="tune"))
    assert "no queries yet" in all_html(page)
    assert "Nothing has been searched yet" in all_html(show(page, "Result"))


def test_a_guard_is_kept_by_the_proposal_and_shown(page: AppTest) -> None:
    kind = next(option for option in page.multiselect(key="tune:guards").options if " of " in option)
    page.multiselect(key="tune:guards").select(kind).run()
    page = searched(page, "lists.vector.weight", "fusion.score_blend")
    assert not found(page).tuned.proposal.broken
    assert f"Guarded: {kind.rpartition(' of ')[2]}" in captions(page).replace("\\", "")


def test_a_result_says_when_the_store_has_changed_since(tuned: AppTest) -> None:
    store = session.resources().store
    memory = store.memories.get(next(iter(store.memories.read())))
    assert memory is not None
    store.memories.update(replace(memory, content=f"{memory.content} And more."))
    page = show(tuned, "Result")
    assert "has changed since this search" in page.warning[0].value


LONG = 60


@pytest.fixture(scope="module")
def eight_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a query set of eight of its answered queries."""
    with copied(sample_store, tmp_path_factory.mktemp("unlabelled")) as store:
        store.query_sets.put("eight", answered_queries(store)[:8], "test")
        return store.path


@pytest.fixture
def unlabelled(open_page: OpenPage, eight_store: Path) -> AppTest:
    """The page on the small set without judgments, read by the reranker."""
    opened = open_page(eight_store, page="tune")
    opened.selectbox(key="tune:set").select("eight").run()
    opened.selectbox(key="tune:judges").select(NO_JUDGMENTS).run()
    if any(button.key == "tune:stand_in" for button in opened.button):
        opened.button(key="tune:stand_in").click().run(timeout=300)
    opened.selectbox(key="tune:group_by").select("query")
    opened.number_input(key="tune:trials").set_value(20)
    return checked(opened.run())


def test_without_judgments_it_is_said_everywhere_and_only_lists_and_fusion_may_change(unlabelled: AppTest) -> None:
    assert any("no judgments are used here" in info.value for info in unlabelled.info)
    assert "Reliability of each list" in " ".join(element.value for element in unlabelled.markdown)
    trust = unlabelled.dataframe[0].value
    assert set(trust["list"]) == {"vector", "lexical"} and (trust["read"] == 100).all()
    offered = unlabelled.multiselect(key="tune:paths").options
    assert not [option for option in offered if option.startswith(("Rerank", "Adjust"))]
    assert "no judgments to seal" in captions(unlabelled)
    assert not [box for box in unlabelled.number_input if box.key == "tune:sealed"]


def test_a_proposal_is_held_against_judgments_and_taken_away_as_unlabelled(unlabelled: AppTest) -> None:
    unlabelled.multiselect(key="tune:paths").set_value(["lists.vector.weight", "lists.lexical.weight"]).run()
    unlabelled.button(key="tune:start").click().run()
    running = last_search()
    if running is not None:
        running.wait(LONG)
    unlabelled = checked(unlabelled.run())
    assert any("no judgments are used here" in info.value for info in unlabelled.info)
    unlabelled = checked(unlabelled.button(key="tune:by_judgments").click().run(timeout=120))
    found = last_result()
    assert found is not None and found.by_judgments is not None
    assert found.tuned.config.name in ("cems", "cems-unlabelled")
    assert "With, in hindsight" in all_html(unlabelled) and "Without judgments:" in captions(unlabelled)
    set_tune_state(unlabelled, next_view="Export")
    unlabelled = checked(unlabelled.run())
    card = next(code.value for code in unlabelled.code if code.value.startswith("Evidence card"))
    assert "no judgment chose it" in card and "tuned against" not in card


def test_a_store_with_queries_and_no_judgment_offers_it(open_page: OpenPage, tmp_path: Path) -> None:
    with Store.open(tmp_path / "asked") as store:
        store.add(ParsedInput("asked", "jsonl", queries=(Query("q", "which editor do I use"),)))
        store.query_sets.put("asked", store.queries.read(), "test")
    unlabelled = checked(open_page(tmp_path / "asked", page="tune"))
    assert "None of its queries is judged yet" in all_html(unlabelled)
    unlabelled = checked(unlabelled.button(key="tune:without").click().run())
    assert unlabelled.selectbox(key="tune:judges").value == NO_JUDGMENTS
    assert unlabelled.button(key="tune:stand_in")


SPACE = ("lists.vector.weight", "fusion.score_blend")


def test_looks_at_the_sealed_queries_are_one_count_with_the_command(
    tuned: AppTest, small_store: Path, tmp_path: Path
) -> None:
    page = checked(tuned.button(key="tune:open").click().run())
    look = re.search(r"Look (\d+) at these sealed queries", captions(page))
    files = (small_store / "evidence").glob("*.evidence")
    evidence = next(file for file in files if read_evidence_file(file).header.query_set == "few")
    asked = ["tune", evidence, "--out", tmp_path / "best.yaml", "--preset", "cems", "--trials", CONFIGS, "--json"]
    asked += [
        "--space",
        "lists.vector.weight",
        "--space",
        "fusion.score_blend",
        "--group-by",
        "query",
        "--open-holdout",
    ]
    done = CliRunner().invoke(commands, [*map(str, asked)])
    assert look and json.loads(done.stdout)["looks"] == int(look[1]) + 1, "the app holds the store; its look is known"
