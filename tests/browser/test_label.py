"""Labelling by keyboard: each label on disk once, with its author, before the next card appears; and the views of Memories."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from cems_workbench.store import Store

from .conftest import as_on_disk
from .pages import WAIT, Label, Memories, Window

CARDS = 40
NEXT_CARD = """count => {
  const said = document.querySelector('.wb-card-progress b'), card = document.querySelector('.wb-card');
  const fresh = !card || card.dataset.card !== window.wbCard;
  if (!said || said.innerText !== count || !fresh) return false;
  window.wbCard = card?.dataset.card;
  return true;
}"""
"""The count says so many, and another card can be seen, or none is left; the browser may show the one a moment before the other."""
TWICE = """key => { for (const _ of [1, 2])
  document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})); }"""
"""A bouncing key: the second press comes before anything can have been drawn."""


def test_forty_cards_are_graded_by_keyboard_alone(
    window: Window, stocked_store: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The first key comes with the first card, and every fifth is pressed twice: none is lost, none counts twice."""
    took = []
    label = Label.open(window, "ada", "forty")
    label.page.evaluate("window.wbCard = document.querySelector('.wb-card').dataset.card")
    for i in range(CARDS):
        started = time.perf_counter()
        if i % 5:
            label.page.keyboard.press(str(i % 4))
        else:
            label.page.evaluate(TWICE, str(i % 4))
        label.page.wait_for_function(NEXT_CARD, arg=str(i + 1), polling=10, timeout=WAIT)
        took.append(1000 * (time.perf_counter() - started))
    label.page.get_by_text("Nothing is left for you").wait_for()
    record_property("key to next card, ms, median", round(statistics.median(took)))
    record_property("key to next card, ms, p95", round(statistics.quantiles(took, n=20)[-1]))
    with Store.open(as_on_disk(stocked_store, tmp_path)) as store:
        labels = store.queues.labels("forty")
    assert len({(one.qid, one.memory_id) for one in labels}) == len(labels) == CARDS
    assert {one.judge for one in labels} == {"ada"}
    assert [sum(one.grade == grade for one in labels) for grade in range(4)] == [CARDS // 4] * 4


def test_the_other_keys_work_and_what_is_typed_into_the_note_is_no_key(window: Window) -> None:
    page = Label.open(window, "bea", "ten").page
    page.keyboard.press("?")
    page.keyboard.press("n")
    page.get_by_text("is on disk before the next card").wait_for()
    page.locator(".st-key-label-note textarea:focus").wait_for()
    page.keyboard.type("2 or 3?")
    page.keyboard.press("Escape")
    page.keyboard.press("3")
    page.locator(".wb-card-progress b", has_text="1").wait_for()
    page.keyboard.press("s")
    page.get_by_text("1 skipped").wait_for()
    page.keyboard.press("u")
    page.get_by_text("Undone.").wait_for()
    page.keyboard.press("x")
    page.get_by_text("1 query without an answer").wait_for()
    window.view("Files")
    page.get_by_text("Preview").click()
    page.get_by_text("judgments can be exported").wait_for()
    window.choose(page.get_by_role("combobox", name="Judge").nth(1), "bea")
    text = page.locator("code", has_text='"judge": "bea"').inner_text()
    assert '"grade": 3' in text
    assert '"note": "2 or 3?"' in text


def test_on_a_phone_query_and_grades_stay_in_sight_and_each_card_opens_at_its_top(window: Window) -> None:
    """The keys are free after Enter in the name box; the help lies over a long card; nothing is wider than the phone."""
    page = window.page
    page.set_viewport_size({"width": 390, "height": 844})
    window.open("label")
    label = Label(window)
    label.sign("dee")  # first: a card of "long" that is dealt to another name would be held for a minute
    window.choose("Queue", re.compile("^long ·"))
    label.card.wait_for()
    page.keyboard.press("?")
    keys = page.get_by_text("is on disk before the next card")
    expect(keys).to_be_in_viewport(ratio=1)
    window.press("Close the help")
    expect(keys).to_be_hidden()
    for graded in ("1",):  # another name may hold the last card for a minute
        window.settled()
        page.locator(".wb-card details").scroll_into_view_if_needed()
        expect(page.locator(".wb-card h2")).not_to_be_in_viewport()
        expect(page.locator(".wb-card-query p")).to_be_in_viewport(ratio=1)
        for button in page.locator(".st-key-label-grades button").all():
            expect(button).to_be_in_viewport(ratio=1)
        page.keyboard.press("1")
        expect(label.count).to_have_text(graded)
        expect(page.locator(".wb-card h2")).to_be_in_viewport(ratio=1)
        expect(page.locator(".wb-card-query p")).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_proposed_supersessions_are_decided_by_keyboard(window: Window, stocked_store: Path, tmp_path: Path) -> None:
    """Accept, reject, other way round, skip and undo; keys of cards do nothing, and a bouncing key counts once."""
    page = window.page
    window.open("label")
    label = Label(window)
    label.sign("sue")
    window.view("Superseded")
    window.press("Find pairs")
    label.card.wait_for()
    left = page.locator(".wb-card-progress span")
    total = int(re.search(r"(\d+) left", left.inner_text())[1])
    for key in "23qn":
        page.keyboard.press(key)
    ids = [page.locator(".wb-card-memory code").nth(side).inner_text() for side in (0, 1)]
    page.evaluate(TWICE, "a")
    expect(left).to_contain_text(f"1 accepted · 0 rejected · {total - 1} left")
    with Store.open(as_on_disk(stocked_store, tmp_path / "one")) as store:
        edges = [one for one in store.relations.read() if one.author == "sue"]
    assert [(one.target_id, one.source_id) for one in edges] == [tuple(ids)]
    for key, words in (("x", "1 rejected"), ("w", "2 accepted"), ("s", "1 skipped")):
        page.keyboard.press(key)
        expect(left).to_contain_text(words)
    page.keyboard.press("?")
    page.get_by_text("is on disk before the next pair").wait_for()
    page.keyboard.press("h")
    for count in (3, 2, 1, 0):
        page.keyboard.press("u")
        expect(left).to_contain_text(f"{total - count} left")
    expect(left).to_contain_text("0 accepted · 0 rejected")
    with Store.open(as_on_disk(stocked_store, tmp_path / "two")) as store:
        assert not [one for one in store.relations.read() if one.author == "sue"]


@pytest.fixture
def memories(window: Window) -> Memories:
    """A new session on the page."""
    return Memories.open(window)


@pytest.mark.thorough
def test_every_view_fits_the_window_and_a_table_offers_no_csv_that_a_spreadsheet_would_run(memories: Memories) -> None:
    memories.window.table().hover()
    expect(memories.page.get_by_label("Fullscreen").first).to_be_visible()
    expect(memories.page.get_by_label("Download as CSV").first).to_be_hidden()
    memories.pick_first()
    for name in ("Import", "Sources", "Statistics", "Deleted", "Store", "Browse"):
        memories.window.view(name)
        for width, scheme in ((900, "dark"), (1440, "light")):
            memories.window.resize(width, scheme)
            buttons = '[data-testid="stMainBlockContainer"] .stButton button'
            memories.window.expect_fit(f"{name}, {width} wide, {scheme}", buttons)
