"""The guide's workflow: open a failing query, label, tune, compare, export. The exported config equals the sliders."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from cems_workbench.builtin import DEFAULT_PRESET
from cems_workbench.config import difference, load_config, preset
from cems_workbench.store import Store
from tests.sample import LOST

from .conftest import ROOT, as_on_disk
from .pages import Window
from .whole_way import GRADES, walk

TRIALS = 40
BOUND = "nDCG@10>=0.05"


@pytest.mark.thorough
def test_from_a_failing_query_to_a_tuned_config_in_a_file(window: Window, stocked_store: Path, tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    walk(window, file, trials=TRIALS, preset=DEFAULT_PRESET)
    with Store.open(as_on_disk(stocked_store, tmp_path)) as store:
        made = next(queue.name for queue in store.queues.read() if queue.name.startswith("a few"))
        labels = store.queues.labels(made)
    assert [(label.judge, label.grade) for label in labels] == [("ada", int(grade)) for grade in GRADES]
    window.view("Result")
    expect(window.page.locator(".wb-verdict p")).to_contain_text("configs of 6 parameters")
    expect(window.page.locator(".wb-tune-axes > div")).to_have_count(7)  # the head and six parameters
    guide = (ROOT / "docs" / "start" / "guide.md").read_text(encoding="utf-8")
    assert " ".join(LOST.split()) in " ".join(guide.split())
    assert "Evidence card" in file.read_text(encoding="utf-8")
    changes = [row for row in difference(preset(DEFAULT_PRESET).config, load_config(file)) if row[0] != "name"]
    _a_bound_that_is_typed_stays(window)
    window.switch("Inspect")
    assert changes
    expect(window.page.get_by_role("button", name=f"Reset to preset (changed: {len(changes)})")).to_be_visible()


def _a_bound_that_is_typed_stays(window: Window) -> None:
    """A guard with a bound is offered nowhere: it is typed, and is still what was typed after another page was open."""
    window.view("Set up")
    guards = window.page.get_by_role("combobox", name="Must not get worse")
    guards.fill(BOUND)
    with window.rerun():
        guards.press("Enter")
    window.page.keyboard.press("Escape")
    for page in ("Label", "Tune"):
        window.switch(page)
    expect(window.page.get_by_text(BOUND, exact=True)).to_be_visible()
    window.expect_no_error()
    expect(window.page.get_by_role("button", name="Start the search")).to_be_visible()
