"""Judgments as files on the Label page: imported with a report on every row, exported in every form."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, judgment_writers
from cems_workbench.records import Judgment
from cems_workbench.store import Store
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain
from tests.app.test_label_views import checked, press, table_with

pytestmark = [pytest.mark.models]


@pytest.fixture
def page(open_page: Callable[..., AppTest], sample_store: Path, tmp_path: Path) -> AppTest:
    """The files view, on a store in which ada and bo contradict each other on one pair."""
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store:
        for judge, grade in (("ada", 3), ("bo", 0)):
            store.labels.give(Judgment(*pair(store), grade, judge))
    opened = open_page(path)
    opened.session_state["label:view"] = "Files"  # the first view would begin a ready-made queue
    return checked(opened.switch_page("pages/label.py").run())


def pair(store: Store) -> tuple[str, str]:
    """A pair that the sample does not judge."""
    judged = {(one.qid, one.memory_id) for one in store.judgments.read() if one.judge == "human"}
    qid = store.queries.read()[0].qid
    return next((qid, key) for key in sorted(store.memories.read()) if (qid, key) not in judged)


def upload(page: AppTest, name: str, *rows: Any) -> AppTest:
    text = "\n".join(json.dumps(row) for row in rows).encode()
    page.file_uploader[0].set_value([(name, text, "application/octet-stream")]).run()
    return press(page, "label:files:import")


def test_an_import_reports_added_rows_conflicts_and_what_was_left_out(page: AppTest) -> None:
    store = session.resources().store
    qid, memory_id = pair(store)
    row = {"qid": qid, "memory_id": memory_id, "kind": "human"}
    upload(
        page,
        "theirs.jsonl",
        {**row, "grade": 1, "judge": "cy"},
        {**row, "grade": 1, "judge": "ada"},
        {**row, "grade": 9, "judge": "cy2"},
        {**row, "memory_id": "<b>gone", "grade": 1, "judge": "cy"},
    )
    counts = table_with(page, "added")
    assert (counts["added"][0], counts["left out"][0]) == (1, 3)
    reasons = " ".join(table_with(page, "reason")["reason"])
    assert "which is kept" in reasons  # ada's own label here
    assert "not on the scale" in reasons
    assert "<b>gone" in reasons
    grades = {one.judge: one.grade for one in store.judgments.read(qid) if one.memory_id == memory_id}
    assert grades == {"ada": 3, "bo": 0, "cy": 1}


def test_the_format_is_named_and_a_refusal_has_the_words_of_the_command(page: AppTest, tmp_path: Path) -> None:
    qid, memory_id = pair(session.resources().store)
    upload(page, "mine.jsonl", {"query-id": qid, "corpus-id": memory_id, "score": 1})
    assert table_with(page, "added")["format"][0] == "judgments-jsonl"
    (tmp_path / "none.jsonl").write_text('{"qid": "q", "doc_id": "d"}')
    with pytest.raises(InputError) as refusal:
        detect(tmp_path / "none.jsonl")
    page.file_uploader[0].set_value([("none.jsonl", b'{"qid": "q", "doc_id": "d"}', "application/octet-stream")]).run()
    page.button(key="label:files:import").click().run()
    words = str(refusal.value).replace(f"{tmp_path}/", "")
    assert [one.value for one in page.error] == [plain(words)] and "judgments-jsonl needs a field grade" in words


@pytest.mark.parametrize("form", judgment_writers())
def test_every_form_is_offered_and_says_what_it_cannot_hold(page: AppTest, form: str) -> None:
    checked(page.selectbox(key="label:out:form").set_value(form).run())
    labels = " ".join(one.value for one in page.caption)
    assert "judgments can be exported" in labels
    one_grade_each = form in ("qrels", "ranx-json", "quepid-csv", "quepid-json", "srw-csv", "srw-json")
    assert any("adjudicate, or choose a judge" in one.value for one in page.code) == one_grade_each


def test_a_rule_settles_what_a_form_of_one_grade_cannot_hold(page: AppTest) -> None:
    page.selectbox(key="label:out:form").set_value("qrels")
    checked(page.selectbox(key="label:out:rule").set_value("Strictest").run())
    assert not any("adjudicate" in one.value for one in page.code)


def test_counted_feedback_is_what_the_selection_says(page: AppTest) -> None:
    checked(page.selectbox(key="label:out:judge").set_value("ada").run())
    press(page, "label:out:feedback")
    store = session.resources().store
    memory = store.memories.read()[pair(store)[1]]
    assert (memory.relevant_count, memory.noise_count) == (1, 0)
