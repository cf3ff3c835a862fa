"""The Label page: a name, a queue, cards that are graded blind, undo, skip, unclear, and agreement."""

from __future__ import annotations

import re
import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset
from cems_workbench.evaluation.labelling.agreement import kappa_reading, label_table, pairwise_kappa
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import Card, make_queue
from cems_workbench.jobs.background import QUEUE_THREAD, fast_config
from cems_workbench.jobs.evidence_memory import judged_queries
from cems_workbench.jobs.query_grades import query_grades
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.records import WHOLE_STORE, GradeScale, Judgment, Memory, Query
from cems_workbench.store import Store
from cems_workbench.ui.kit import session
from cems_workbench.ui.label.card import card_html, dates_text, help_text, mark_words, split_meaning
from tests.app.conftest import ROOT, release

from .pages import OpenPage, checked, press

pytestmark = [pytest.mark.models]


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
    opened = open_page(queue_store).switch_page("pages/label.py").run()
    opened.text_input(key="reviewer:name").set_value("ada").run()
    return checked(opened)


def labels() -> list[Judgment]:
    return session.resources().store.queues.labels("four")


def card(page: AppTest) -> str:
    """The current card, without its number and the progress above it."""
    found = next(text for text in (str(one.proto.body) for one in page.get("html")) if 'class="wb-card-query"' in text)
    return re.sub(r' data-card="\d+"', "", found[found.index('<div class="wb-card"') :])


def test_without_a_name_there_is_no_card(open_page: OpenPage, queue_store: Path) -> None:
    opened = checked(open_page(queue_store).switch_page("pages/label.py").run())
    assert "Enter your name" in opened.info[0].value


def test_a_store_without_queues_gets_a_ready_made_one_of_what_inspect_ranks_first(
    open_page: OpenPage, sample_store: Path, tmp_path: Path
) -> None:
    path = shutil.copytree(sample_store, tmp_path / "store")
    with Store.open(path) as store:
        judged = {judgment.qid for judgment in store.judgments.read()}
        asked = [query for query in store.queries.read() if query.qid in judged][:3]
        for query_set in store.query_sets.latest():
            store.query_sets.take_out(query_set.name, [query.qid for query in store.query_sets.queries(query_set.name)])
        store.query_sets.put("three", asked, "test")
    opened = checked(open_page(path).switch_page("pages/label.py").run())
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
            gather_lists(request_for(query, datetime.now(UTC)), fast_config(), resources), preset("cems").config
        ).results[:10]
    }
    assert set(resources.store.queues.pairs("three-ready")) == first - people


def test_a_grade_is_in_the_store_under_its_author_before_the_next_card(page: AppTest) -> None:
    before = card(page)
    press(page, "label:grade:2")
    assert [(one.grade, one.judge, one.kind) for one in labels()] == [(2, "ada", "human")]
    assert card(page) != before


def test_undo_takes_the_label_back_and_shows_its_card_again(page: AppTest) -> None:
    before = card(page)
    press(page, "label:grade:3")
    press(page, "label:undo")
    assert labels() == []
    assert card(page) == before


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


def test_a_skipped_card_is_not_dealt_again(page: AppTest) -> None:
    for _ in range(4):
        press(page, "label:skip")
    assert labels() == []
    assert "4 skipped" in page.success[0].value


def test_a_note_is_kept_with_the_label_it_was_written_for(page: AppTest) -> None:
    press(page, "label:open_note")
    page.text_area(key="label:note").set_value("out of date").run()
    press(page, "label:grade:0")
    press(page, "label:grade:1")
    assert sorted((one.grade, one.note) for one in labels()) == [(0, "out of date"), (1, None)]


def test_the_card_tells_no_rank_score_config_or_grade(page: AppTest) -> None:
    assert not [word for word in ("cems", "rank", "score", "grade") if word in card(page).casefold()]


def test_agreement_needs_two_people(page: AppTest) -> None:
    store = session.resources().store
    for judge, grade in (("bo", 3), ("cy", 0)):
        for qid, memory_id in store.queues.pairs("four"):
            store.labels.give(Judgment(qid, memory_id, grade, judge))
    page.session_state["label:view"] = "Agreement"
    checked(page.run())
    shown = page.dataframe[0].value.set_index("reviewers").loc["bo and cy"]
    kappas = pairwise_kappa(label_table(store.judgments.read(kind="human")))
    said = next(one.kappa for one in kappas if (one.first, one.second) == ("bo", "cy"))
    assert (shown["coefficient"], shown["read as"]) == (str(said), kappa_reading(said))  # as the command says it
    assert len(page.dataframe[2].value) >= 4


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


def test_a_grade_is_named_by_what_stands_before_the_colon() -> None:
    assert split_meaning("Related: about the same thing") == ("Related", "about the same thing")
    assert split_meaning("Answers the question") == ("Answers", "Answers the question")


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


def test_two_reviewers_of_one_pair_count_by_the_rule_of_evaluation_wherever_grades_are_read(page: AppTest) -> None:
    resources = session.resources()
    qid, memory_id = next(pair for pair in resources.store.queues.pairs("four") if not graded(pair))
    for judge, grade in (("ann", 0), ("bo", 0), ("cy", 3)):
        resources.store.labels.give(Judgment(qid, memory_id, grade, judge))
    assert judged_queries(resources)[1][qid][memory_id] == 0  # the median, not the latest grade
    query = next(one for one in resources.store.queries.read() if one.qid == qid)
    assert query_grades(Request(query.query, query.project, query.as_of), resources.store).grades[memory_id] == 0


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
    opened = checked(open_page(queue_store).switch_page("pages/label.py").run())
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
    opened = checked(open_page(queue_store).switch_page("pages/label.py").run())
    with pytest.raises(AssertionError, match="Error"):
        press(opened, "label:grade:2")
    assert "a reader may not label" in opened.error[0].value
    assert labels() == []
    signed_in_as(monkeypatch, is_logged_in=True, email="grace@example.org", role="reviewer")
    press(opened, "label:grade:2")
    assert [one.judge for one in labels()] == ["grace@example.org"]
    checked(opened.switch_page("pages/memories.py").run())
    (views,) = [each for each in opened.get("button_group") if each.key == "memories:view"]
    assert views.options == ["Browse", "Statistics"]


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
