"""The other views of the Label page: people and judge, queues, and judgments as files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset
from cems_workbench.evaluation.labelling.pooling import PairScores, PooledPair, score_pairs
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.records import Judgment, ParsedInput
from cems_workbench.store import Store
from cems_workbench.ui.kit import session

from .inspect_page import config_of, state_of
from .pages import OpenPage, checked, press, table_with

pytestmark = [pytest.mark.models]


@pytest.fixture
def few_store(sample_store: Path, tmp_path: Path) -> Path:
    """The sample store with a query set of two of its judged queries, and a queue, so that none is made ready."""
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store:
        judged = sorted({one.qid for one in store.judgments.read()})[:2]
        queries = tuple(query for query in store.queries.read() if query.qid in judged)
        store.add(ParsedInput("few.jsonl", "t", queries=queries))
        store.queues.save(
            make_queue("a first", [PooledPair(judged[0], min(store.memories.read()), {"cems": 1})], "top")
        )
    return path


@pytest.fixture
def page(open_page: OpenPage, few_store: Path) -> AppTest:
    """The page, opened by ada."""
    opened = open_page(few_store).switch_page("pages/label.py").run()
    opened.text_input(key="reviewer:name").set_value("ada").run()
    return checked(opened)


def view(page: AppTest, name: str) -> AppTest:
    page.session_state["label:view"] = name
    return checked(page.run())


def judged(page: AppTest) -> AppTest:
    """People and the judge, asked about the two queries."""
    view(page, "People and judge")
    page.selectbox(key="label:judge:set").set_value("few").run()
    return press(page, "label:judge:ask")


def expected() -> PairScores:
    """What the judge says of the two queries' labelled pairs."""
    resources = session.resources()
    qids = {query.qid for query in resources.store.query_sets.queries("few")}
    pairs = [(one.qid, one.memory_id) for one in resources.store.judgments.read(kind="human") if one.qid in qids]
    return score_pairs(pairs, preset("cems").config, resources)


def test_people_and_judge_compares_every_labelled_pair_and_keeps_no_judgment(page: AppTest) -> None:
    judged(page)
    scores = expected()
    assert f"{len(scores.scores)} pairs graded by people and by" in " ".join(one.value for one in page.caption)
    assert [one.label.split(",")[0].split(":")[0] for one in page.metric] == ["Agreement now", "Best"]
    assert session.resources().store.judgments.read(kind="model") == []
    assert "wb-confusion" in " ".join(str(one.proto.body) for one in page.get("html"))


def test_the_best_threshold_is_applied_to_the_config_and_can_be_undone(page: AppTest) -> None:
    before = config_of(judged(page)).judge.threshold
    press(page, "label:judge:apply")
    applied = config_of(page).judge.threshold
    assert before is None
    assert page.session_state["label:judge:calibration"][1].threshold == applied
    assert page.button(key="label:judge:apply").disabled
    assert state_of(page).history.past[-1].config.judge.threshold is None


def test_a_difference_is_marked_judge_wrong_by_name_and_taken_back(page: AppTest) -> None:
    judged(page)
    chosen(page)
    press(page, "label:differ:wrong")
    (mark,) = session.resources().store.labels.judged_wrong()
    assert (mark.judge, mark.note) == ("ada", expected().judge)
    chosen(page)
    press(page, "label:differ:wrong")
    assert session.resources().store.labels.judged_wrong() == []


def test_a_difference_is_labelled_again_under_the_reviewers_name(page: AppTest) -> None:
    judged(page)
    chosen(page)
    press(page, "label:differ:1")
    (label,) = [one for one in session.resources().store.judgments.read() if one.judge == "ada"]
    assert isinstance(label, Judgment)
    assert (label.grade, label.kind) == (1, "human")


def chosen(page: AppTest) -> None:
    """Select the first difference, as a click in its row does."""
    page.session_state["label:differences"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    checked(page.run())


@pytest.fixture
def queued(page: AppTest) -> AppTest:
    """The page with a queue of what two cheap configs return for the two queries, made in the form."""
    page.session_state["label:new"] = True
    checked(page.run())
    page.selectbox(key="label:new:set").set_value("few")
    page.multiselect(key="label:new:configs").set_value(["recollection", "ace_a"])
    page.selectbox(key="label:new:order").set_value("Decisive first")
    page.number_input(key="label:new:depth").set_value(5)
    page.toggle(key="label:new:fresh").set_value(False)
    checked(page.run())
    page.text_input(key="label:new:name").set_value("made").run()
    return press(page, "label:new:make")


def test_a_queue_is_made_is_at_work_and_keeps_what_its_configs_returned(queued: AppTest) -> None:
    queues = session.resources().store.queues
    assert queued.session_state["label:chosen"] == "made"
    record = next(queue for queue in queues.read() if queue.name == "made")
    assert (record.settings["strategy"], record.settings["configs"]) == ("decisive", ["recollection", "ace_a"])
    rankings = queues.rankings("made")
    assert {len(results) for results in rankings["ace_a"].values()} == {5}
    pooled = {(qid, key) for by_qid in rankings.values() for qid, results in by_qid.items() for key in results}
    assert set(queues.pairs("made")) <= pooled
    assert any("wb-card-query" in str(one.proto.body) for one in queued.get("html"))


def test_a_second_queue_can_be_made_beside_the_first(queued: AppTest) -> None:
    queued.session_state["label:new"] = True
    checked(queued.run())
    queued.multiselect(key="label:new:configs").set_value(["recollection"])
    queued.text_input(key="label:new:name").set_value("again")
    queued.toggle(key="label:new:fresh").set_value(False)
    press(queued, "label:new:make")
    assert queued.session_state["label:chosen"] == "again"


def test_coverage_is_of_the_configs_of_the_queue(queued: AppTest) -> None:
    view(queued, "Queue")
    table = table_with(queued, "unjudged")
    assert list(table.columns) == ["query", "recollection", "ace_a", "unjudged"]
    queued.number_input(key="label:cover:k").set_value(1).run()
    first = table_with(checked(queued), "unjudged")
    assert set(first["recollection"]) <= {0.0, 100.0}


def test_prelabelling_keeps_a_models_judgments_and_leaves_peoples_and_the_cards(queued: AppTest) -> None:
    store = session.resources().store
    before = store.judgments.read(kind="human")
    view(queued, "Queue")
    press(queued, "label:prelabel")
    pairs = store.queues.pairs("made")
    given = store.judgments.read(kind="model")
    assert sorted((one.qid, one.memory_id) for one in given) == sorted(pairs)
    assert {one.judge for one in given} == {expected().judge}
    assert store.judgments.read(kind="human") == before
    assert f"{len(pairs)} pairs judged by" in queued.success[0].value
    view(queued, "Label")
    assert any("<b>0</b> graded by you" in str(one.proto.body) for one in queued.get("html"))


def test_what_a_comparison_left_unjudged_is_queued_in_one_click(page: AppTest) -> None:
    page.session_state["evaluate:configs"], page.session_state["evaluate:set"] = ["recollection", "ace_a"], "few"
    checked(page.run())
    press(page, "label:unjudged")
    store = session.resources().store
    judged = {(one.qid, one.memory_id) for one in store.judgments.read(kind="human")}
    assert page.session_state["label:chosen"] == "few-unjudged"
    assert store.queues.pairs("few-unjudged")
    assert not set(store.queues.pairs("few-unjudged")) & judged


def test_a_queue_is_deleted_and_its_labels_stay(queued: AppTest) -> None:
    next(one for one in queued.button if str(one.key).startswith("label:grade:1:")).click()
    checked(queued.run())
    view(queued, "Queue")
    queued.session_state["label:forget"] = True
    press(queued, "label:forget:sure")
    store = session.resources().store
    assert [queue.name for queue in store.queues.read()] == ["a first"]
    assert [one.grade for one in store.judgments.read() if one.judge == "ada"] == [1]
