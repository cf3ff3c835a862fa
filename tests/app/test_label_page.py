"""The Label page: cards that are graded blind, people and judge, queues, judgments as files, proposed supersessions."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.analysis.supersession_signals import Span
from cems_workbench.config import preset
from cems_workbench.errors import InputError
from cems_workbench.evaluation.labelling.agreement import (
    adjudicate,
    kappa_reading,
    label_table,
    pairwise_kappa,
    settled,
)
from cems_workbench.evaluation.labelling.pooling import PairScores, PooledPair, score_pairs
from cems_workbench.evaluation.labelling.queue import Card, make_queue
from cems_workbench.formats import detect, judgment_writers, write_judgments
from cems_workbench.jobs.background import QUEUE_THREAD, fast_config
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import gather_lists
from cems_workbench.records import SUPERSEDES, WHOLE_STORE, GradeScale, Judgment, Memory, ParsedInput, Query, Relation
from cems_workbench.store import Store
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.label.agreement import judgments_file
from cems_workbench.ui.label.card import card_html, dates_text, help_text, mark_words
from tests.app.conftest import ROOT, release
from workbench_supersession.review import marked_parts

from .inspect_page import config_of, state_of
from .pages import OpenPage, captions, checked, markdown, press, table_with


@pytest.fixture
def queue_store(sample_store: Path, tmp_path: Path) -> Path:
    """The sample store with a queue of three pairs of one query and one of another."""
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store:
        first, second = (query.qid for query in store.queries.read()[:2])
        ids = sorted(store.memories.read())[:3]
        pairs = [PooledPair(first, key, {"cems": 1}) for key in ids] + [PooledPair(second, ids[0], {"cems": 1})]
        store.queues.save(make_queue("four", pairs, "top"))
    return path


@pytest.fixture
def page(open_page: OpenPage, queue_store: Path) -> AppTest:
    """The page at work as ada."""
    opened = open_page(queue_store, page="label")
    opened.text_input(key="reviewer:name").set_value("ada").run()
    return checked(opened)


def labels() -> list[Judgment]:
    return session.resources().store.queues.labels("four")


def card(page: AppTest) -> str:
    """The current card, without its number and the progress above it."""
    found = next(text for text in (str(one.proto.body) for one in page.get("html")) if 'class="wb-card-query"' in text)
    return re.sub(r' data-card="-?\d+"', "", found[found.index('<div class="wb-card"') :])


def test_a_store_without_queues_gets_a_ready_made_one_of_what_inspect_ranks_first(
    open_page: OpenPage, sample_store: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store:
        judged = {judgment.qid for judgment in store.judgments.read()}
        asked = [query for query in store.queries.read() if query.qid in judged][:3]
        for query_set in store.query_sets.latest():
            for source in query_set.sources:
                store.query_sets.put(query_set.name, [], source)
        store.query_sets.put("three", asked, "test")
    opened = checked(open_page(path, page="label"))
    next(thread for thread in threading.enumerate() if thread.name == QUEUE_THREAD).join(60)
    opened.text_input(key="reviewer:name").set_value("ada").run()
    assert opened.selectbox(key="label:chosen").options == ["three-ready · ready-made · 1 reviewer per pair"]
    assert "Memory 1 of" in card(opened)
    resources = session.resources()
    people = {(one.qid, one.memory_id) for one in resources.store.judgments.read(kind="human")}
    first = {
        (query.qid, row.memory_id)
        for query in asked
        for row in replay(
            gather_lists(request_for(query, datetime.now(UTC)), fast_config("cems"), resources), preset("cems").config
        ).results[:10]
    }
    assert set(resources.store.queues.pairs("three-ready")) == first - people


def test_a_grade_is_in_the_store_under_its_author_before_the_next_card_and_is_undone(page: AppTest) -> None:
    before = card(page)
    press(page, "label:grade:2")
    assert [(one.grade, one.judge, one.kind) for one in labels()] == [(2, "ada", "human")] and card(page) != before
    press(page, "label:undo")
    assert labels() == [] and card(page) == before


def test_an_unclear_query_puts_all_its_cards_aside(page: AppTest) -> None:
    press(page, "label:unclear")
    press(page, "label:grade:0")
    assert "Nothing is left for you" in page.success[0].value
    assert len(labels()) == 1


def test_that_nothing_answers_a_query_puts_its_cards_aside_and_is_undone(page: AppTest) -> None:
    press(page, "label:grade:0")
    press(page, "label:open_note")
    page.text_area(key="label:note").set_value("looked everywhere").run()
    press(page, "label:nothing")
    store = session.resources().store
    first = labels()[0].qid
    (said,) = (one for one in store.judgments.read(first, "human") if one.memory_id == WHOLE_STORE)
    assert (said.judge, said.grade, said.note) == ("ada", 0, "looked everywhere")
    assert "1 query without an answer" in " ".join(str(one.proto.body) for one in page.get("html"))
    press(page, "label:grade:0")
    assert "Nothing is left for you" in page.success[0].value
    press(page, "label:undo")
    press(page, "label:undo")
    assert not [one for one in store.judgments.read(first, "human") if one.memory_id == WHOLE_STORE]
    assert "card" in card(page)


def test_a_note_is_kept_with_the_label_it_was_written_for(page: AppTest) -> None:
    press(page, "label:open_note")
    page.text_area(key="label:note").set_value("out of date").run()
    press(page, "label:grade:0")
    press(page, "label:grade:1")
    assert sorted((one.grade, one.note) for one in labels()) == [(0, "out of date"), (1, None)]


def test_the_card_tells_no_rank_score_config_or_grade(page: AppTest) -> None:
    assert not [word for word in ("cems", "rank", "score", "grade") if word in card(page).casefold()]


def graded_by_two() -> list[tuple[str, str]]:
    """The pairs of the queue, of which two people disagree on all but the first."""
    store = session.resources().store
    pairs = list(store.queues.pairs("four"))
    for place, (qid, memory_id) in enumerate(pairs):
        for judge, grade in (("bo", 3), ("cy", 3 if place == 0 else 0)):
            store.labels.give(Judgment(qid, memory_id, grade, judge))
    return pairs


def test_agreement_needs_two_people(page: AppTest) -> None:
    graded_by_two()
    page.session_state["label:view"] = "Agreement"
    checked(page.run())
    shown = table_with(page, "reviewers").set_index("reviewers").loc["bo and cy"]
    said = pairwise_kappa(label_table(session.resources().store.judgments.read(kind="human")))["bo", "cy"]
    assert (shown["coefficient"], shown["read as"]) == (str(said), kappa_reading(said))  # as the command says it
    checked(page.selectbox(key="label:agreement:of").select("four").run())
    assert table_with(page, "reviewers").set_index("reviewers").loc["bo and cy"]["pairs"] == 4


def test_a_conflict_is_decided_as_a_card_and_leaves(page: AppTest) -> None:
    graded_by_two()
    page.session_state["label:view"] = "Agreement"
    page.session_state["label:agreement:of"] = "four"
    checked(page.run())

    def left() -> str:
        found = re.search(
            r"wb-card-progress.*?<b>(\d+)</b> left", " ".join(str(one.proto.body) for one in page.get("html"))
        )
        assert found is not None
        return found[1]

    assert left() == "3"
    first = card(page)
    press(page, "label:skip")
    assert card(page) != first and left() == "3", "a skipped one comes last"
    second = card(page)
    press(page, "label:grade:2")
    assert card(page) != second and left() == "2"
    (decision,) = session.resources().store.decisions.read()
    assert (decision.grade, decision.decided_by) == (2, "ada")
    press(page, "label:undo")
    assert (card(page), left(), session.resources().store.decisions.read()) == (second, "3", [])
    for _ in range(3):
        press(page, "label:grade:1")
    assert left() == "0" and "All conflicts are decided." in captions(page)
    (export,) = page.get("download_button")
    assert export.proto.label == "Export 3 decided grades"
    rows = settled(adjudicate((), "decided", session.resources().store.decisions.read()))
    assert {(row.grade, row.judge, row.note) for row in rows} == {(1, "ada", "decided")}
    assert '"note": "decided"' in write_judgments(next(iter(judgment_writers())), rows, {}).text


def test_a_queue_that_is_done_shows_its_agreement_and_exports_its_own_rows(page: AppTest) -> None:
    pairs = graded_by_two()
    queues = session.resources().store.queues
    queues.save(
        make_queue("four", [PooledPair(*pair, {"cems": 1}) for pair in pairs], "top", 2, 0, {"query_set": "judged"})
    )
    page.text_input(key="reviewer:name").set_value("bo").run()
    checked(page)
    button = next(one for one in page.get("download_button") if one.proto.label.startswith("Export"))
    assert button.proto.label == "Export its 8 judgments"
    assert judgments_file("judged-four", "judgments-jsonl").startswith(f"judged-four-{datetime.now(UTC):%Y-%m-%d}.")
    assert "Krippendorff’s alpha" in markdown(page) and len(page.get("plotly_chart")) == 1
    assert "label:end:evaluate" not in {one.key for one in page.button}  # the store has no such set
    press(page, "label:end:decide")
    assert page.session_state["label:view"] == "Agreement" and page.session_state["label:agreement:of"] == "four"


def test_the_name_of_a_reviewer_is_the_one_that_the_browser_keeps(
    open_page: OpenPage, queue_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_kept_name", lambda: "Zoë")
    opened = checked(open_page(queue_store, page="label"))
    assert opened.text_input(key="reviewer:name").value == "Zoë" and card(opened)


def test_words_of_the_query_are_marked_and_markup_stays_text() -> None:
    card = Card("q", Query("q1", "tide & table"), Memory("m<1>", "A <b>Tide</b> table", title="<i>"))
    html = card_html(card, 1, datetime(2026, 9, 1, tzinfo=UTC))
    assert "<p>A &lt;b&gt;<mark>Tide</mark>&lt;/b&gt; <mark>table</mark></p>" in html
    assert "<p>tide &amp; table</p>" in html
    assert "<h2>&lt;i&gt;</h2>" in html
    assert "<code>m&lt;1&gt;</code>" in html


def test_a_card_says_how_long_before_its_query_the_memory_was_written() -> None:
    asked = datetime(2026, 9, 1, tzinfo=UTC)
    old = Memory(
        "m", "text", created_at=datetime(2026, 6, 1, 23, tzinfo=UTC), updated_at=datetime(2026, 7, 2, tzinfo=UTC)
    )
    assert dates_text(old, asked) == "written 2026-06-01, changed 2026-07-02, 92 days before the query"
    assert dates_text(Memory("m", "text", created_at=datetime(2026, 9, 2, tzinfo=UTC)), asked).endswith(
        "1 day after the query"
    )
    assert dates_text(Memory("m", "text"), asked) == "no date"
    dated, undated = (card_html(Card("q", Query("q1", "tide", as_of=when), old), 1, asked) for when in (asked, None))
    assert "asked 2026-09-01" in dated and "asked today, 2026-09-01" in undated


def test_stopwords_of_the_query_are_marked_only_where_it_has_no_others() -> None:
    assert mark_words("what is the tide", "the tide") == [("what is the ", False), ("tide", True)]
    assert mark_words("the tide", "the") == [("the", True), (" tide", False)]


def test_a_press_for_a_card_that_is_gone_labels_nothing(page: AppTest) -> None:
    press(page, "label:grade:1")
    now = page.session_state["label:state"]
    page.session_state["label:state"] = replace(
        now, card_no=now.card_no + 1
    )  # another card is dealt while the press is on its way
    press(page, "label:grade:3")
    assert [one.grade for one in labels()] == [1]


def test_labelling_loads_no_model(queue_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_STORE", str(queue_store))
    alone = AppTest.from_file(str(ROOT / "pages" / "label.py"), default_timeout=60).run()
    alone.text_input(key="reviewer:name").set_value("ada").run()
    press(alone, "label:grade:1")
    assert (len(labels()), session.warm_up_state().state) == (1, "cold")
    release()


def graded(pair: tuple[str, str]) -> bool:
    return any((one.qid, one.memory_id) == pair for one in session.resources().store.judgments.read())


def signed_in_as(monkeypatch: pytest.MonkeyPatch, **user: object) -> None:
    """What `st.user` says where [auth] is configured."""
    monkeypatch.setattr("streamlit.user_info._get_user_info", lambda: user)
    monkeypatch.setattr("streamlit.secrets", {"auth": {"client_id": "x"}})


def test_where_sign_in_is_configured_labels_carry_the_signed_in_name_and_none_is_asked(
    open_page: OpenPage, queue_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_in_as(monkeypatch, is_logged_in=True, email="grace@example.org", name="Grace")
    opened = checked(open_page(queue_store, page="label"))
    assert not [box for box in opened.text_input if box.key == "reviewer:name"]
    press(opened, "label:grade:2")
    assert [one.judge for one in labels()] == ["grace@example.org"]


def test_where_sign_in_is_configured_nothing_is_shown_before_it_on_any_page(
    open_page: OpenPage, queue_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_in_as(monkeypatch, is_logged_in=False)
    opened = open_page(queue_store)
    opened.session_state["reviewer:name"] = "somebody else"
    for name in ("inspect", "label", "evaluate", "tune", "memories"):
        checked(opened.switch_page(f"pages/{name}.py").run())
        assert [info.value for info in opened.info] == ["Sign in to see this store."]
        assert [button.label for button in opened.button] == ["Sign in"]
        assert not [*opened.text_input, *opened.text_area, *opened.selectbox, *opened.get("file_uploader")]


def test_a_reader_looks_and_a_reviewer_labels(
    open_page: OpenPage, queue_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role is what the claim says when the button is pressed."""
    monkeypatch.setenv("CEMS_WORKBENCH_ROLE_CLAIM", "role")
    signed_in_as(monkeypatch, is_logged_in=True, email="grace@example.org", role="reader")
    opened = checked(open_page(queue_store, page="label"))
    with pytest.raises(AssertionError, match="Error"):
        press(opened, "label:grade:2")
    assert "a reader may not label" in opened.error[0].value
    assert labels() == []
    signed_in_as(monkeypatch, is_logged_in=True, email="grace@example.org", role="reviewer")
    press(opened, "label:grade:2")
    assert [one.judge for one in labels()] == ["grace@example.org"]
    checked(opened.switch_page("pages/memories.py").run())
    (views,) = [each for each in opened.get("button_group") if each.key == "memories:view"]
    assert views.options == ["Browse", "Statistics", "Coverage"]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0, 10, "**10** (no key)"),
        (1, 10, "**10** (key **0**)"),
        (-2, 3, "**-2** (keys **Shift 2**)"),
        (5, 15, "**15** (no key)"),
    ],
)
def test_the_help_names_the_key_of_each_grade_that_is_no_digit(low: int, high: int, said: str) -> None:
    assert said in help_text(GradeScale(tuple((grade, f"Grade {grade}") for grade in range(low, high + 1))))


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
def few(open_page: OpenPage, few_store: Path) -> AppTest:
    """The page, opened by ada."""
    opened = open_page(few_store, page="label")
    opened.text_input(key="reviewer:name").set_value("ada").run()
    return checked(opened)


def view(few: AppTest, name: str) -> AppTest:
    few.session_state["label:view"] = name
    return checked(few.run())


def judged(few: AppTest) -> AppTest:
    """People and the judge, asked about the two queries."""
    view(few, "People and judge")
    few.selectbox(key="label:judge:set").set_value("few").run()
    return press(few, "label:judge:ask")


def expected() -> PairScores:
    """What the judge says of the two queries' labelled pairs."""
    resources = session.resources()
    qids = {query.qid for query in resources.store.query_sets.queries("few")}
    pairs = [(one.qid, one.memory_id) for one in resources.store.judgments.read(kind="human") if one.qid in qids]
    return score_pairs(pairs, preset("cems").config, resources)


def test_people_and_judge_compares_every_labelled_pair_and_keeps_no_judgment(few: AppTest) -> None:
    judged(few)
    scores = expected()
    assert f"{len(scores.scores)} pairs graded by people and by" in " ".join(one.value for one in few.caption)
    assert [one.label.split(",")[0].split(":")[0] for one in few.metric] == ["Agreement now", "Best"]
    assert session.resources().store.judgments.read(kind="model") == []
    assert "Matrix of people’s grades" in str(few.get("plotly_chart")[0].proto)


def test_the_best_threshold_is_applied_to_the_config_and_can_be_undone(few: AppTest) -> None:
    before = config_of(judged(few)).judge.threshold
    press(few, "label:judge:apply")
    applied = config_of(few).judge.threshold
    assert before is None
    assert few.session_state["label:judge:calibration"][1].threshold == applied
    assert few.button(key="label:judge:apply").disabled
    assert state_of(few).history.past[-1].config.judge.threshold is None


def test_a_difference_is_marked_judge_wrong_by_name_and_taken_back(few: AppTest) -> None:
    judged(few)
    chosen(few)
    press(few, "label:differ:wrong")
    (mark,) = session.resources().store.labels.judged_wrong()
    assert (mark.judge, mark.note) == ("ada", expected().judge)
    chosen(few)
    press(few, "label:differ:wrong")
    assert session.resources().store.labels.judged_wrong() == []


def chosen(few: AppTest) -> None:
    """Select the first difference, as a click in its row does."""
    few.session_state["label:differences"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    checked(few.run())


@pytest.fixture
def queued(few: AppTest) -> AppTest:
    """The page with a queue of what two cheap configs return for the two queries, made in the form."""
    few.session_state["label:new"] = True
    checked(few.run())
    few.selectbox(key="label:new:set").set_value("few")
    few.multiselect(key="label:new:configs").set_value(["recollection", "ace_a"])
    few.selectbox(key="label:new:order").set_value("Decisive first")
    few.number_input(key="label:new:depth").set_value(5)
    few.toggle(key="label:new:fresh").set_value(False)
    checked(few.run())
    few.text_input(key="label:new:name").set_value("made").run()
    assert "At most 20 pairs, at most 3 minutes per reviewer at 10 s a card." in captions(few)
    return press(few, "label:new:make")


def test_a_queue_is_made_is_at_work_and_keeps_what_its_configs_returned(queued: AppTest) -> None:
    queues = session.resources().store.queues
    assert queued.session_state["label:chosen"] == "made"
    record = next(queue for queue in queues.read() if queue.name == "made")
    assert (record.settings["strategy"], record.settings["configs"]) == ("decisive", ["recollection", "ace_a"])
    rankings = queues.rankings("made")
    assert {len(results) for results in rankings["ace_a"].values()} == {5}
    pooled = {(qid, key) for by_qid in rankings.values() for qid, results in by_qid.items() for key in results}
    assert set(queues.pairs("made")) <= pooled
    queued.session_state["label:new"] = True
    checked(queued.run())
    queued.multiselect(key="label:new:configs").set_value(["recollection", "ace_a"])
    queued.number_input(key="label:new:depth").set_value(5)
    queued.toggle(key="label:new:fresh").set_value(False)
    checked(queued.run())
    assert f"{len(pooled)} pairs, " in captions(queued), "gathered by now, so the number is exact"
    assert any("wb-card-query" in str(one.proto.body) for one in queued.get("html"))


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


def test_what_a_comparison_left_unjudged_is_queued_in_one_click(few: AppTest) -> None:
    few.session_state["evaluate:configs"], few.session_state["evaluate:set"] = ["recollection", "ace_a"], "few"
    checked(few.run())
    press(few, "label:unjudged")
    store = session.resources().store
    judged = {(one.qid, one.memory_id) for one in store.judgments.read(kind="human")}
    assert few.session_state["label:chosen"] == "few-unjudged"
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


@pytest.fixture
def files(open_page: Callable[..., AppTest], sample_store: Path, tmp_path: Path) -> AppTest:
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


def upload(files: AppTest, name: str, *rows: Any) -> AppTest:
    text = "\n".join(json.dumps(row) for row in rows).encode()
    files.file_uploader[0].set_value([(name, text, "application/octet-stream")]).run()
    return press(files, "label:files:import")


def test_an_import_reports_added_rows_conflicts_and_what_was_left_out(files: AppTest) -> None:
    store = session.resources().store
    qid, memory_id = pair(store)
    row = {"qid": qid, "memory_id": memory_id, "kind": "human"}
    upload(
        files,
        "theirs.jsonl",
        {**row, "grade": 1, "judge": "cy"},
        {**row, "grade": 1, "judge": "ada"},
        {**row, "grade": 9, "judge": "cy2"},
        {**row, "memory_id": "<b>gone", "grade": 1, "judge": "cy"},
    )
    counts = table_with(files, "added")
    assert (counts["added"][0], counts["left out"][0]) == (1, 3)
    reasons = " ".join(table_with(files, "reason")["reason"])
    assert "which is kept" in reasons  # ada's own label here
    assert "not on the scale" in reasons
    assert "<b>gone" in reasons
    grades = {one.judge: one.grade for one in store.judgments.read(qid) if one.memory_id == memory_id}
    assert grades == {"ada": 3, "bo": 0, "cy": 1}


def test_the_format_is_named_and_a_refusal_has_the_words_of_the_command(files: AppTest, tmp_path: Path) -> None:
    qid, memory_id = pair(session.resources().store)
    upload(files, "mine.jsonl", {"query-id": qid, "corpus-id": memory_id, "score": 1})
    assert table_with(files, "added")["format"][0] == "judgments-jsonl"
    (tmp_path / "none.jsonl").write_text('{"qid": "q", "doc_id": "d"}')
    with pytest.raises(InputError) as refusal:
        detect(tmp_path / "none.jsonl")
    files.file_uploader[0].set_value([("none.jsonl", b'{"qid": "q", "doc_id": "d"}', "application/octet-stream")]).run()
    files.button(key="label:files:import").click().run()
    words = str(refusal.value).replace(f"{tmp_path}/", "")
    assert [one.value for one in files.error] == [plain(words)] and "judgments-jsonl needs a field grade" in words


def test_every_form_is_offered_and_says_what_it_cannot_hold(files: AppTest) -> None:
    for form in judgment_writers():
        checked(files.selectbox(key="label:out:form").set_value(form).run())
        assert "judgments can be exported" in captions(files), form
        one_grade_each = form in ("qrels", "ranx-json", "quepid-csv", "quepid-json", "srw-csv", "srw-json")
        assert any("adjudicate, or choose a judge" in one.value for one in files.code) == one_grade_each, form


def test_counted_feedback_is_what_the_selection_says(files: AppTest) -> None:
    checked(files.selectbox(key="label:out:judge").set_value("ada").run())
    press(files, "label:out:feedback")
    store = session.resources().store
    memory = store.memories.read()[pair(store)[1]]
    assert (memory.relevant_count, memory.noise_count) == (1, 0)


@pytest.fixture
def unsuperseded(open_page: OpenPage, sample_store: Path, tmp_path: Path) -> AppTest:
    """The view at work as ada, on the sample without its supersedes edges."""
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store, store._database.transaction() as cursor:
        cursor.execute("DELETE FROM relations WHERE kind = ?", [SUPERSEDES])
    return opened(open_page, path)


def opened(open_page: OpenPage, path: Path) -> AppTest:
    unsuperseded = open_page(path)
    unsuperseded.session_state["label:view"] = "Superseded"
    unsuperseded.switch_page("pages/label.py").run()
    unsuperseded.text_input(key="reviewer:name").set_value("ada").run()
    return checked(unsuperseded)


def html(unsuperseded: AppTest) -> str:
    """The pair with its progress, without styles and scripts."""
    bodies = (str(one.proto.body) for one in unsuperseded.get("html"))
    return "\n".join(body for body in bodies if not body.startswith(("<style>", "<script>")))


def answer(unsuperseded: AppTest, name: str) -> None:
    (button,) = (one for one in unsuperseded.button if str(one.key).startswith(f"label:{name}:p"))
    button.click().run()
    checked(unsuperseded)


def edges() -> list[Relation]:
    return [one for one in session.resources().store.relations.read() if one.kind == SUPERSEDES]


def shown(unsuperseded: AppTest) -> tuple[str, ...]:
    """The ids of the pair shown, older first."""
    return tuple(re.findall(r'<code title="(.+?)">', html(unsuperseded)))


def test_pairs_are_accepted_rejected_swapped_skipped_and_undone_by_name(unsuperseded: AppTest) -> None:
    assert "Press Find pairs" in unsuperseded.info[0].value and "wb-pair" not in html(unsuperseded)
    press(unsuperseded, "label:superseded:find")
    assert "<mark>" in html(unsuperseded) and "days later" in html(unsuperseded) and "Older" in html(unsuperseded)
    assert any("no contradiction model was named" in one.value for one in unsuperseded.caption)
    first = shown(unsuperseded)
    answer(unsuperseded, "accept")
    assert edges() == [Relation(first[1], first[0], SUPERSEDES, 1.0, "ada")]
    assert "<b>1</b> accepted" in html(unsuperseded) and shown(unsuperseded) != first
    press(unsuperseded, "label:undo")
    assert not edges() and shown(unsuperseded) == first
    answer(unsuperseded, "reject")
    second = shown(unsuperseded)
    answer(unsuperseded, "swap")
    assert edges() == [Relation(second[0], second[1], SUPERSEDES, 1.0, "ada")]
    third = shown(unsuperseded)
    answer(unsuperseded, "skip")
    assert "1 rejected" in html(unsuperseded) and "1 skipped" in html(unsuperseded)
    assert len({first, second, third, shown(unsuperseded)}) == 4
    press(unsuperseded, "label:superseded:find")
    assert "1 skipped" in html(unsuperseded) and shown(unsuperseded) not in {first, second, third}


def test_undo_takes_back_the_decision_of_its_own_window(unsuperseded: AppTest) -> None:
    press(unsuperseded, "label:superseded:find")
    older, newer = shown(unsuperseded)
    store = session.resources().store
    answer(unsuperseded, "accept")
    store.supersessions.decide(newer, older, "rejected", "ada")  # another window of the same person
    press(unsuperseded, "label:undo")
    assert not edges() and "Undone. The pair stays rejected, as ada decided." in captions(unsuperseded)
    older, newer = shown(unsuperseded)
    store.supersessions.decide(newer, older, "accepted", "bo")
    answer(unsuperseded, "reject")
    assert "Rejected. In another window bo had accepted this pair" in captions(unsuperseded)
    press(unsuperseded, "label:undo")
    assert edges() == [Relation(newer, older, SUPERSEDES, 1.0, "bo")]
    press(unsuperseded, "label:undo")
    assert "your last decision, of another window" in captions(unsuperseded)


def test_what_has_nothing_to_propose_says_so(open_page: OpenPage, tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        day = datetime(2026, 1, 1, tzinfo=UTC)
        one = Memory("a", "a text of one memory", created_at=day)
        store.add(ParsedInput("m.jsonl", "t", memories=(one, Memory("b", "of another one"))))
    unsuperseded = opened(open_page, tmp_path / "store")
    unsuperseded.button(key="label:superseded:find").click().run()
    assert "1 of 2 has one" in unsuperseded.error[0].value
    with Store.open(tmp_path / "more") as store:
        rows = tuple(Memory(name, f"{name} alone", created_at=day.replace(day=n)) for n, name in enumerate("ab", 1))
        store.add(ParsedInput("m.jsonl", "t", memories=rows))
    unsuperseded = opened(open_page, tmp_path / "more")
    press(unsuperseded, "label:superseded:find")
    assert "No pair reaches the minimum score" in unsuperseded.info[0].value
    session.resources().store.supersessions.decide("b", "a", "accepted", "bo")
    press(unsuperseded, "label:superseded:find")
    assert "No further pair" in unsuperseded.info[0].value and "1 accepted before" in html(unsuperseded)


def test_marks_are_parts_of_the_text_whatever_the_spans() -> None:
    spans = [Span("content", 4, 7), Span("content", 5, 9), Span("title", 0, 2), Span("content", 20, 99)]
    assert marked_parts("abcdefghijk", spans, "content") == [
        ("abcd", False),
        ("efg", True),
        ("hi", True),
        ("jk", False),
    ]
    assert marked_parts("", spans, "content") == [] and marked_parts("ab", spans, "title") == [("ab", True)]
