"""The address of each page: reload, Back and a second tab show what was shown; a search and a reviewer's name outlive the session."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import BrowserContext, expect

from .pages import Inspect, Label, Memories, Window, window_on

QUERY, OTHER = "when are we moving house", "browser eats all the RAM"


def shown(window: Window) -> dict[str, list[str]]:
    """The parameters of the address."""
    return parse_qs(urlsplit(window.page.url).query)


def test_back_goes_from_query_to_query_and_a_moved_slider_is_no_entry(window: Window) -> None:
    inspect = Inspect.open(window)
    first = inspect.search(QUERY)
    inspect.slide("Score blend", "End")
    moved = inspect.order()
    assert moved != first
    entries = window.page.evaluate("history.length")
    other = inspect.search(OTHER)
    assert window.page.evaluate("history.length") == entries + 1
    inspect.section("Why, and what if")
    window.back()
    assert inspect.order() == other
    window.back()
    expect(inspect.query).to_have_value(QUERY)
    assert inspect.order() == moved, "with the slider as it was left there"
    expect(inspect.changed(1)).to_be_visible()
    window.back()
    expect(inspect.query).to_have_value("")
    window.page.go_forward()
    window.settled()
    expect(inspect.query).to_have_value(QUERY)


def act_on_evaluate(window: Window) -> Callable[[Window], None]:
    window.choose("Query set", re.compile("^six · "))
    window.view("Over time")
    return lambda other: expect(other.page.get_by_role("radio", name="Over time")).to_be_checked()


def act_on_tune(window: Window) -> Callable[[Window], None]:
    window.choose("Query set", re.compile("^six · "))
    window.view("History")
    return lambda other: expect(other.page.get_by_role("radio", name="History")).to_be_checked()


def act_on_memories(window: Window) -> Callable[[Window], None]:
    memories = Memories(window)
    memories.search("tea")
    memories.pick_first()
    title = memories.title.inner_text()
    return lambda other: expect(Memories(other).title).to_have_text(title)


def act_on_label(window: Window) -> Callable[[Window], None]:
    window.choose("Queue", re.compile("^more ·"))
    window.view("Queue")
    return lambda other: expect(other.page.get_by_role("combobox", name="Queue", exact=True)).to_have_value(
        re.compile("^more ·")
    )


def act_on_inspect(window: Window) -> Callable[[Window], None]:
    inspect = Inspect(window)
    inspect.search(QUERY)
    inspect.slide("Score blend", "End")
    order = inspect.order()

    def as_before(other: Window) -> None:
        expect(Inspect(other).results).to_have_text(order)
        expect(other.page.get_by_role("button", name="Undo", exact=True)).to_be_enabled()

    return as_before


@pytest.mark.parametrize("name", ["", "label", "evaluate", "tune", "memories"])
def test_a_reload_back_and_another_tab_show_a_page_as_it_was(
    window: Window, windows: BrowserContext, name: str
) -> None:
    acts = (act_on_inspect, act_on_label, act_on_evaluate, act_on_tune, act_on_memories)
    act = {"": acts[0]} | {one.__name__.removeprefix("act_on_"): one for one in acts}
    window.open(name)
    as_before = act[name](window)
    address = window.page.url
    assert shown(window)
    window.reload()
    as_before(window)
    assert window.page.url == address
    window.switch("Memories" if name != "memories" else "Tune")
    with window_on(windows, window.url) as other:
        other.open(address)
        as_before(other)
    window.back()
    as_before(window)
    assert window.page.url == address


def test_a_reviewers_name_and_queue_outlive_the_session(window: Window) -> None:
    label = Label.open(window, "Zoë", "long")
    window.reload()
    label.card.wait_for()
    assert shown(window)["queue"] == ["long"]


def test_another_tab_shows_a_running_search_and_stops_it(window: Window, windows: BrowserContext) -> None:
    space = "space=lists.vector.weight%3D0:3:0.01&space=lists.lexical.weight%3D0:3:0.01&space=fusion.k%3D1:200:1"
    setup = f"tune?queries=six&config=recollection&trials=20000&sealed=0.0&group_by=query&folds=2&{space}"
    window.open(setup)
    start = window.page.get_by_role("button", name="Start the search")
    if not start.is_visible():
        window.page.get_by_role("button", name="Gather", exact=True).click()
    start.click()
    stop = window.page.get_by_role("button", name="Stop", exact=True)
    stop.wait_for()
    with window_on(windows, window.url) as other:
        other.open("tune")
        other.page.get_by_role("button", name="Stop", exact=True).click()
        for tab in (other, window):
            tab.page.get_by_text("Stopped early").wait_for()
    window.open("tune?view=Result")
    window.page.get_by_text("Stopped early").wait_for()
