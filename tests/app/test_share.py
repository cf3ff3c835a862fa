"""A saved link, and the command line of the page."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from datetime import date

import pytest
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from cems_workbench.cli.main import commands
from cems_workbench.config import preset, with_values
from cems_workbench.pipeline.effects import as_of_effect, project_effect
from cems_workbench.ui.kit import session

from .conftest import release
from .inspect_page import PLAIN, QUERY, WIRED, config_of, configured, follow, order, search, set_state, state_of
from .pages import OpenPage, captions, html

pytestmark = [pytest.mark.models]


def opened(open_page: OpenPage, state_id: str) -> AppTest:
    """A new session that opens the page with a link."""
    page = open_page()
    fresh = AppTest.from_file(page._script_path, default_timeout=60)
    fresh.query_params["state"] = state_id
    fresh.run()
    assert not fresh.exception
    return fresh


def saved(page: AppTest) -> str:
    """Open the popover, save, and read the id off the shown link."""
    page.session_state["inspect:share"] = True
    page.run()
    page.button(key="inspect:save_link").click().run()
    assert not page.exception
    shown = [code.value for code in page.code if "state=" in code.value]
    assert len(shown) == 1
    state_id = shown[0].partition("?state=")[2]
    assert page.query_params["state"] in (state_id, [state_id])
    return state_id


def said(page: AppTest) -> list[str]:
    return [info.value.replace("\\", "") for info in page.info]


def kept(change: Callable[[dict[str, object]], None], state_id: str) -> str:
    """The id of a state as another version would have kept it."""
    store = session.resources().store
    values = store.links.read(state_id)
    assert values is not None
    change(values)
    return store.links.save(values)


def test_a_link_brings_back_query_settings_and_what_was_looked_at(open_page: OpenPage) -> None:
    page = configured(open_page(), {"expansion.backend": "manual", "fusion.k": 17, **PLAIN}, "recollection")
    set_state(page, preset="recollection")
    page = search(page)
    page.text_area(key="inspect:manual").set_value("doctor visits\nclinics").run()
    page.selectbox(key="inspect:project").select_index(0).run()
    page.toggle(key="inspect:only_project").set_value(False).run()
    page.date_input(key="inspect:as_of").set_value(date(2026, 8, 1)).run()
    assert as_of_effect(config_of(page)).words in captions(page)
    assert project_effect(config_of(page)).words in captions(page)
    page = follow(page, order(page)[2])
    page.session_state["inspect:section"] = "What happened"
    page.session_state["inspect:view"] = "Query"
    page.run()
    switches = [toggle for toggle in page.toggle if toggle.key and toggle.key.startswith("inspect:variant:")]
    page = switches[2].set_value(False).run()
    state_id = saved(page)
    assert saved_again(page) == state_id
    fresh = opened(open_page, state_id)
    assert order(fresh) == order(page)
    assert html(fresh, "wb-path") == html(page, "wb-path")
    assert state_of(fresh).setting == state_of(page).setting
    for name in ("query", "project", "as_of", "manual", "follow", "form", "view"):
        assert fresh.session_state[f"inspect:{name}"] == page.session_state[f"inspect:{name}"], name
    switches = [toggle for toggle in fresh.toggle if toggle.key and toggle.key.startswith("inspect:variant:")]
    assert [switch.value for switch in switches] == [True, True, False]
    assert said(fresh) == []


def saved_again(page: AppTest) -> str:
    """The id after something else was set and set back."""
    page.date_input(key="inspect:as_of").set_value(date(2026, 8, 2)).run()
    assert "state" not in page.query_params, "the link is no longer true"
    page.date_input(key="inspect:as_of").set_value(date(2026, 8, 1)).run()
    for toggle in [toggle for toggle in page.toggle if toggle.key and toggle.key.startswith("inspect:variant:")][2:]:
        toggle.set_value(False).run()
    return saved(page)


def test_a_link_survives_that_the_store_is_closed(open_page: OpenPage) -> None:
    state_id = saved(search(open_page()))
    release()
    assert order(opened(open_page, state_id))


def test_an_unknown_link_is_one_line_and_the_page_opens_as_usual(open_page: OpenPage) -> None:
    page = opened(open_page, "nowhere<b>" + "x" * 500)
    assert said(page) == [f"This store has no saved state {('nowhere<b>' + 'x' * 500)[:40]}…; the page opens as usual."]
    assert "See why a memory was found" in html(page, "wb-empty")
    assert "state" not in page.query_params
    page = search(page)
    assert said(page) == []


def test_a_link_of_another_version_opens_as_far_as_it_can_and_says_what_is_missing(open_page: OpenPage) -> None:
    state_id = saved(search(open_page()))

    def older(values: dict[str, object]) -> None:
        config = json.loads(str(values["config"]))
        config["fusion"] |= {"k": 30, "gone": 1}
        config["gap"]["ratio"] = 7
        values |= {
            "config": json.dumps(config),
            "preset": "lost",
            "project": "not/there",
            "only_project": False,
            "view": "None such",
            "follow": "no-such-memory",
            "places": {"form": "Cards", "section": "Elsewhere", "view": "No such view", "tool": "No such tool"},
        }

    fresh = opened(open_page, kept(older, state_id))
    assert order(fresh)
    assert config_of(fresh) == with_values(preset("cems").config, {"fusion.k": 30})
    assert fresh.session_state["inspect:project"] == "not/there"
    assert said(fresh) == [
        "Of this link there is no preset lost; workbench is used instead.",
        "Of this link unknown or not allowed in this version, and ignored: fusion.gone, gap.ratio.",
        "Of this link the followed memory no-such-memory is no longer in this store.",
    ]


def test_a_link_that_holds_nothing_of_use_opens_the_page(open_page: OpenPage) -> None:
    open_page()
    for values in ({}, {"query": 3, "config": "[", "as_of": "yesterday", "off": "x", "places": [], "preset": None}):
        fresh = opened(open_page, session.resources().store.links.save(values))
        assert "See why a memory was found" in html(fresh, "wb-empty")
        assert said(fresh)


@pytest.mark.parametrize(
    ("name", "changes", "query"),
    [
        ("cems", {"fusion.k": 7, "adjust.time_decay.half_life_days": 12.5}, QUERY),
        ("recollection", {"assembly.limit": 6, "expansion.backend": "dictionary", **PLAIN}, WIRED),
    ],
)
def test_the_command_line_of_the_page_gives_its_ranking(
    open_page: OpenPage, name: str, changes: dict[str, object], query: str
) -> None:
    page = configured(open_page(), changes, name)
    set_state(page, preset=name)
    page.session_state["inspect:share"] = True
    page = search(page, query)
    if "expansion.backend" in changes:
        page.session_state["inspect:view"] = "Query"
        page.run()
        switches = [toggle for toggle in page.toggle if toggle.key and toggle.key.startswith("inspect:variant:")]
        page = switches[1].set_value(False).run()
    ranked, scores = order(page), re.findall(r"after the last stage: ([^\"]+)", html(page, "wb-results"))
    command = next(code.value for code in page.code if code.value.startswith("python -m cems_workbench search"))
    release()
    result = CliRunner().invoke(commands, [*shlex.split(command)[3:], "--json"])
    assert result.exit_code == 0, result.output
    trace = json.loads(result.stdout)
    assert [row["memory_id"] for row in trace["results"]] == ranked
    assert [row["score"] for row in trace["results"]] == [float(score) for score in scores]
