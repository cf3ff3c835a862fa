"""Proposed supersessions on the Label page: a pair at a time, accepted under the reviewer's name, undoable, never proposed again."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.analysis.supersession_signals import Span
from cems_workbench.records import SUPERSEDES, Memory, ParsedInput, Relation
from cems_workbench.store import Store
from cems_workbench.ui.kit import session
from cems_workbench.ui.label.superseded import marked_parts

from .pages import OpenPage, checked, press

pytestmark = [pytest.mark.models]


@pytest.fixture
def page(open_page: OpenPage, sample_store: Path, tmp_path: Path) -> AppTest:
    """The view at work as ada, on the sample without its supersedes edges."""
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store, store._database.transaction() as cursor:
        cursor.execute("DELETE FROM relations WHERE kind = ?", [SUPERSEDES])
    return opened(open_page, path)


def opened(open_page: OpenPage, path: Path) -> AppTest:
    page = open_page(path)
    page.session_state["label:view"] = "Superseded"
    page.switch_page("pages/label.py").run()
    page.text_input(key="reviewer:name").set_value("ada").run()
    return checked(page)


def html(page: AppTest) -> str:
    """The pair with its progress, without styles and scripts."""
    bodies = (str(one.proto.body) for one in page.get("html"))
    return "\n".join(body for body in bodies if not body.startswith(("<style>", "<script>")))


def answer(page: AppTest, name: str) -> None:
    (button,) = (one for one in page.button if str(one.key).startswith(f"label:{name}:p"))
    button.click().run()
    checked(page)


def edges() -> list[Relation]:
    return [one for one in session.resources().store.relations.read() if one.kind == SUPERSEDES]


def shown(page: AppTest) -> tuple[str, ...]:
    """The ids of the pair shown, older first."""
    return tuple(part.split("</code>")[0] for part in html(page).split("<code>")[1:])


def test_pairs_are_accepted_rejected_swapped_skipped_and_undone_by_name(page: AppTest) -> None:
    assert "Press Find pairs" in page.info[0].value and "wb-pair" not in html(page)
    press(page, "label:superseded:find")
    assert "<mark>" in html(page) and "days later" in html(page) and "Older" in html(page)
    assert any("no contradiction model was named" in one.value for one in page.caption)
    first = shown(page)
    answer(page, "accept")
    assert edges() == [Relation(first[1], first[0], SUPERSEDES, 1.0, "ada")]
    assert "<b>1</b> accepted" in html(page) and shown(page) != first
    press(page, "label:undo")
    assert not edges() and shown(page) == first
    answer(page, "reject")
    second = shown(page)
    answer(page, "swap")
    assert edges() == [Relation(second[0], second[1], SUPERSEDES, 1.0, "ada")]
    third = shown(page)
    answer(page, "skip")
    assert "1 rejected" in html(page) and "1 skipped" in html(page)
    assert len({first, second, third, shown(page)}) == 4
    press(page, "label:superseded:find")
    assert "1 skipped" in html(page) and shown(page) not in {first, second, third}


def test_a_late_press_reaches_no_other_pair(page: AppTest) -> None:
    press(page, "label:superseded:find")
    late = next(one for one in page.button if str(one.key).startswith("label:accept:p"))
    answer(page, "reject")
    late.click().run()
    assert not edges()


def test_what_has_nothing_to_propose_says_so(open_page: OpenPage, tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        day = datetime(2026, 1, 1, tzinfo=UTC)
        one = Memory("a", "a text of one memory", created_at=day)
        store.add(ParsedInput("m.jsonl", "t", memories=(one, Memory("b", "of another one"))))
    page = opened(open_page, tmp_path / "store")
    page.button(key="label:superseded:find").click().run()
    assert "1 of 2 has one" in page.error[0].value
    with Store.open(tmp_path / "more") as store:
        rows = tuple(Memory(name, f"{name} alone", created_at=day.replace(day=n)) for n, name in enumerate("ab", 1))
        store.add(ParsedInput("m.jsonl", "t", memories=rows))
    page = opened(open_page, tmp_path / "more")
    press(page, "label:superseded:find")
    assert "No pair reaches the minimum score" in page.info[0].value


def test_marks_are_parts_of_the_text_whatever_the_spans() -> None:
    spans = [Span("content", 4, 7), Span("content", 5, 9), Span("title", 0, 2), Span("content", 20, 99)]
    assert marked_parts("abcdefghijk", spans, "content") == [
        ("abcd", False),
        ("efg", True),
        ("hi", True),
        ("jk", False),
    ]
    assert marked_parts("", spans, "content") == [] and marked_parts("ab", spans, "title") == [("ab", True)]
