"""The other views of the Label page: people and the judge, queues at large, and judgments as files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset
from cems_workbench.evaluation.prejudging import PairScores, score_pairs
from cems_workbench.records import Judgment, ParsedInput
from cems_workbench.store import Store
from cems_workbench.ui import handles

pytestmark = [pytest.mark.models, pytest.mark.xdist_group("app")]
OpenPage = Callable[..., AppTest]


@pytest.fixture
def few_store(sample_store: Path, tmp_path: Path) -> Path:
    """The sample store with a query set of two of its judged queries."""
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store:
        judged = sorted({one.qid for one in store.judgments()})[:2]
        queries = tuple(query for query in store.queries() if query.qid in judged)
        store.add(ParsedInput("few.jsonl", "t", queries=queries))
    return path


@pytest.fixture
def page(open_page: OpenPage, few_store: Path) -> AppTest:
    """The page, opened by ada."""
    opened = open_page(few_store).switch_page("pages/label.py").run()
    opened.text_input(key="lb:name").set_value("ada").run()
    return checked(opened)


def checked(page: AppTest) -> AppTest:
    assert not page.exception, page.exception
    assert not page.error, page.error
    return page


def view(page: AppTest, name: str) -> AppTest:
    page.session_state["lb:view"] = name
    return checked(page.run())


def press(page: AppTest, key: str) -> AppTest:
    page.button(key=key).click()
    return checked(page.run())


def frame(page: AppTest, key: str) -> Any:
    return next(one.value for one in page.dataframe if key in str(one.proto.id))


def judged(page: AppTest) -> AppTest:
    """People and the judge, asked about the two queries."""
    view(page, "People and judge")
    page.selectbox(key="lb:judge:set").set_value("few").run()
    return press(page, "lb:judge:ask")


def expected() -> PairScores:
    """What the judge says of the two queries' labelled pairs."""
    resources = handles.resources()
    qids = {query.qid for query in resources.store.queries("few")}
    pairs = [(one.qid, one.memory_id) for one in resources.store.judgments(kind="human") if one.qid in qids]
    return score_pairs(pairs, preset("cems").config, resources)


def test_people_and_judge_compares_every_labelled_pair_and_keeps_no_judgment(page: AppTest) -> None:
    judged(page)
    scores = expected()
    assert f"{len(scores.scores)} pairs graded by people and by" in " ".join(one.value for one in page.caption)
    assert [one.label.split(",")[0].split(":")[0] for one in page.metric] == ["Agreement now", "Best"]
    assert handles.resources().store.judgments(kind="model") == []
    assert "wb-confusion" in " ".join(str(one.proto.body) for one in page.get("html"))


def test_the_best_threshold_is_applied_to_the_config_and_can_be_undone(page: AppTest) -> None:
    before = judged(page).session_state["config"].judge.threshold
    press(page, "lb:judge:apply")
    applied = page.session_state["config"].judge.threshold
    assert before is None
    assert page.session_state["lb:judge:made"][1].calibration.threshold == applied
    assert page.button(key="lb:judge:apply").disabled
    assert page.session_state["history"].past[-1].config.judge.threshold is None


def test_a_difference_is_marked_judge_wrong_by_name_and_taken_back(page: AppTest) -> None:
    judged(page)
    chosen(page)
    press(page, "lb:differ:wrong")
    (mark,) = handles.resources().store.labels.judged_wrong()
    assert (mark.judge, mark.note) == ("ada", expected().judge)
    chosen(page)
    press(page, "lb:differ:wrong")
    assert handles.resources().store.labels.judged_wrong() == []


def test_a_difference_is_labelled_again_under_the_reviewers_name(page: AppTest) -> None:
    judged(page)
    chosen(page)
    press(page, "lb:differ:1")
    (label,) = [one for one in handles.resources().store.judgments() if one.judge == "ada"]
    assert isinstance(label, Judgment)
    assert (label.grade, label.kind) == (1, "human")


def chosen(page: AppTest) -> None:
    """Select the first difference, as a click in its row does."""
    page.session_state["lb:differences"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    checked(page.run())
