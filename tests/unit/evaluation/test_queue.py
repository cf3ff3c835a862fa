"""The queue at work: orders, overlap, skips, undo, progress, and several reviewers at once."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cems_workbench.errors import InputError
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import LabelQueue, make_queue, pace
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.store import Store

MEMORIES = tuple(Memory(f"m{n}", f"text {n}") for n in range(6))
FILLED = ParsedInput("t.jsonl", "t", memories=MEMORIES, queries=(Query("q", "what?"), Query("r", "who?")))
"""Two queries and six memories."""


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "store") as opened:
        opened.add(FILLED)
        yield opened


def pairs(*names):
    return [PooledPair(name[0], f"m{name[1:]}", {"a": n}) for n, name in enumerate(names, start=1)]


def queue(store, names=("q0", "q1", "r2"), strategy="top", overlap=1, seed=0):
    store.queues.save(make_queue("work", pairs(*names), strategy, overlap, seed))
    return LabelQueue(store, "work")


def grade(store, card, reviewer, value=1):
    store.labels.give(Judgment(card.query.qid, card.memory.id, value, reviewer), card.shown())


def place(card):
    return None if card is None else (card.query.qid, card.memory.id)


def test_cards_come_in_the_queues_order_until_nothing_is_left(store):
    work = queue(store)
    seen = []
    while (card := work.next_card("Ann")) is not None:
        seen.append(place(card))
        grade(store, card, "Ann")
    assert seen == [("q", "m0"), ("q", "m1"), ("r", "m2")]


def test_the_same_card_stays_until_it_is_labelled_and_undo_brings_it_back(store):
    work = queue(store)
    card = work.next_card("Ann")
    assert work.next_card("Ann") == card
    grade(store, card, "Ann")
    assert place(work.next_card("Ann")) == ("q", "m1")
    store.labels.undo("Ann")
    assert work.next_card("Ann") == card


def test_a_card_is_blind_and_says_what_was_shown(store):
    card = queue(store).next_card("Ann")
    assert (card.query.query, card.memory.content) == ("what?", "text 0")
    assert set(card.shown()) == {"queue", "query", "text_sha", "blind"}


def test_a_skipped_pair_and_an_unclear_query_are_not_dealt_again_to_that_reviewer(store):
    work = queue(store, overlap=2)
    store.labels.skip("q", "m0", "Ann")
    assert place(work.next_card("Ann")) == ("q", "m1")
    store.labels.unclear("q", "Ann")
    assert place(work.next_card("Ann")) == ("r", "m2")
    assert place(work.next_card("Bo")) == ("q", "m0")
    store.labels.undo("Ann")
    assert place(work.next_card("Ann")) == ("q", "m1")


def test_every_pair_goes_to_as_many_reviewers_as_the_overlap_says(store):
    work = queue(store, overlap=2)
    for reviewer in ("Ann", "Bo", "Cy"):
        while (card := work.next_card(reviewer)) is not None:
            grade(store, card, reviewer)
    labels = store.queues.labels("work")
    assert len(labels) == 6
    assert {label.judge for label in labels} == {"Ann", "Bo"}


def test_one_who_graded_a_pair_and_still_looks_at_it_counts_once(store):
    work = queue(store, names=("q0", "q1"), overlap=2)
    grade(store, work.next_card("Ann"), "Ann")
    assert place(work.next_card("Bo")) == ("q", "m0")


def test_two_reviewers_at_once_are_dealt_different_cards_and_the_last_one_waits(store):
    work = queue(store, names=("q0", "q1"))
    first, second = work.next_card("Ann"), work.next_card("Bo")
    assert {place(first), place(second)} == {("q", "m0"), ("q", "m1")}
    assert work.next_card("Cy") is None
    store.queues.claims.release("Bo")
    assert work.next_card("Cy") == second


def test_a_label_given_while_another_asks_for_a_card_is_seen_before_the_card_is_dealt(store, monkeypatch):
    work = queue(store)
    first = work.next_card("Bo")
    claim = store.queues.claims.claim

    def late(reviewer, choose):
        if reviewer == "Ann":  # Bo finishes and moves on just before Ann's claim
            grade(store, first, "Bo")
            work.next_card("Bo")
        return claim(reviewer, choose)

    monkeypatch.setattr(store.queues.claims, "claim", late)
    assert place(work.next_card("Ann")) == ("r", "m2")


def test_in_a_shuffled_queue_every_reviewer_has_an_order_of_their_own(store):
    work = queue(store, [f"q{n}" for n in range(6)], "shuffled", overlap=3, seed=5)

    def order(reviewer):
        seen = []
        while (card := work.next_card(reviewer)) is not None:
            seen.append(card.memory.id)
            grade(store, card, reviewer)
        return seen

    orders = [order(reviewer) for reviewer in ("Ann", "Bo", "Cy")]
    assert all(sorted(one) == [f"m{n}" for n in range(6)] for one in orders)
    assert len({tuple(one) for one in orders}) == 3


def test_progress_counts_what_is_done_put_aside_and_left(store):
    work = queue(store, ["q0", "q1", "r2", "r3"], overlap=2)
    grade(store, work.next_card("Ann"), "Ann")
    grade(store, work.next_card("Bo"), "Bo")
    store.labels.skip("q", "m1", "Ann")
    store.labels.unclear("r", "Bo")
    store.labels.give(Judgment("r", "m5", 1, "Ann"))  # not of this queue
    ann, bo = work.progress("Ann"), work.progress("Bo")
    assert (ann.graded, ann.skipped, ann.unclear, ann.left, ann.done_by_all, ann.total) == (1, 1, 0, 2, 1, 4)
    assert (bo.graded, bo.skipped, bo.unclear, bo.left) == (1, 0, 1, 1)
    assert (ann.seconds_per_label, ann.seconds_left) == (None, None)


def test_the_pace_is_the_median_between_labels_without_pauses():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    at = [0, 4, 10, 4000, 4006]
    labels = [Judgment("q", f"m{n}", 1, judged_at=start + timedelta(seconds=second)) for n, second in enumerate(at)]
    assert pace(labels) == 6
    assert pace(labels[:1]) is None
    assert pace([replace(label, judged_at=None) for label in labels]) is None


def test_what_cannot_be_a_queue_is_refused(store):
    with pytest.raises(InputError, match="no pair"):
        make_queue("work", [], "top")
    with pytest.raises(InputError, match="strategy"):
        make_queue("work", pairs("q0"), "best")
    with pytest.raises(InputError, match="no labelling queue 'x'"):
        LabelQueue(store, "x")


def test_eight_reviewers_working_off_one_queue_label_every_pair_once(tmp_path):
    """Sessions of one app: threads over one store. None is lost, none doubled, nobody meets a lock."""
    with Store.open(tmp_path / "store") as store:
        memories = tuple(Memory(f"m{n}", f"text {n}") for n in range(60))
        store.add(ParsedInput("t.jsonl", "t", memories=memories, queries=(Query("q", "what?"),)))
        work = queue(store, [f"q{n}" for n in range(60)])
        failures: list[BaseException] = []

        def session(reviewer: str) -> None:
            try:
                while (card := work.next_card(reviewer)) is not None:
                    grade(store, card, reviewer)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=session, args=(f"r{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        labels = store.judgments.read()
        assert sorted(label.memory_id for label in labels) == sorted(memory.id for memory in memories)
        assert len({label.judge for label in labels}) > 1


def decisive(store, names, ranked, **more):
    """A decisive queue of configs a and b with these rankings."""
    pooled = [PooledPair(name[0], f"m{name[1:]}", {}) for name in names]
    settings = {"configs": ["a", "b"]}
    store.queues.save(make_queue("work", pooled, "decisive", settings=settings, rankings=ranked, **more))
    return LabelQueue(store, "work")


RANKED = {"a": {"q": ("m0", "m1"), "r": ("m2",)}, "b": {"q": ("m3",), "r": ("m4", "m2")}}


def test_decisive_first_is_put_in_order_anew_when_a_relevant_memory_is_found(store):
    work = decisive(store, ("q0", "q3", "q1", "r2", "r4"), RANKED)
    assert place(work.next_card("Ann")) == ("q", "m0")
    grade(store, work.next_card("Ann"), "Ann", 0)
    assert place(work.next_card("Ann")) == ("q", "m3")  # nothing found yet: as kept, q before r on a tie
    grade(store, work.next_card("Ann"), "Ann", 3)
    assert place(work.next_card("Ann"))[0] == "r"  # three of gain in q make the rest of it worth a quarter
    assert place(work.next_card("Ann")) == ("r", "m4")


def test_gain_that_was_known_before_a_decisive_queue_counts_too(store):
    store.labels.give(Judgment("q", "m5", 3, "Bo"))
    work = decisive(store, ("q0", "q3", "q1", "r2", "r4"), RANKED)
    assert place(work.next_card("Ann")) == ("r", "m4")


def test_a_decisive_queue_without_its_rankings_keeps_its_order(store):
    work = decisive(store, ("q1", "q0"), {})
    assert place(work.next_card("Ann")) == ("q", "m1")


def test_the_rankings_of_a_queue_are_kept_without_deleted_memories_and_go_with_it(store):
    decisive(store, ("q0",), RANKED)
    assert store.queues.rankings("work") == RANKED
    store.memories.delete("m0")
    assert store.queues.rankings("work")["a"]["q"] == ("m1",)
    store.queues.remove("work")
    assert store.queues.rankings("work") == {}


def test_progress_can_be_told_from_the_moment_a_card_was_dealt(store):
    work = queue(store)
    card, snapshot = work.deal("Ann")
    grade(store, card, "Ann")
    assert work.progress("Ann", snapshot).graded == 0
    assert work.progress("Ann").graded == 1
