"""Queues of labelling: what is pooled and drawn, and who is dealt what."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.evaluation.labelling import queue as decisive
from cems_workbench.evaluation.labelling.pooling import (
    PooledPair,
    pool,
    query_by_query,
    shuffled,
    top_first,
    uncertain_first,
    without_judged,
)
from cems_workbench.evaluation.labelling.queue import LabelQueue, make_queue
from cems_workbench.evaluation.log_sampling import distinct, sample
from cems_workbench.formats.logs import Asking
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RecordedAnswer, Returned
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
    while (card := work.deal("Ann")[0]) is not None:
        seen.append(place(card))
        grade(store, card, "Ann")
    assert seen == [("q", "m0"), ("q", "m1"), ("r", "m2")]


def test_the_same_card_stays_until_it_is_labelled_and_undo_brings_it_back(store):
    work = queue(store)
    card = work.deal("Ann")[0]
    assert work.deal("Ann")[0] == card
    grade(store, card, "Ann")
    assert place(work.deal("Ann")[0]) == ("q", "m1")
    store.labels.undo("Ann")
    assert work.deal("Ann")[0] == card


def test_a_card_is_blind_and_says_what_was_shown(store):
    card = queue(store).deal("Ann")[0]
    assert (card.query.query, card.memory.content) == ("what?", "text 0")
    assert set(card.shown()) == {"queue", "query", "text_sha", "blind"}


def test_a_skipped_pair_and_an_unclear_query_are_not_dealt_again_to_that_reviewer(store):
    work = queue(store, overlap=2)
    store.labels.skip("q", "m0", "Ann")
    assert place(work.deal("Ann")[0]) == ("q", "m1")
    store.labels.unclear("q", "Ann")
    assert place(work.deal("Ann")[0]) == ("r", "m2")
    assert place(work.deal("Bo")[0]) == ("q", "m0")
    store.labels.undo("Ann")
    assert place(work.deal("Ann")[0]) == ("q", "m1")


def test_every_pair_goes_to_as_many_reviewers_as_the_overlap_says(store):
    work = queue(store, overlap=2)
    for reviewer in ("Ann", "Bo", "Cy"):
        while (card := work.deal(reviewer)[0]) is not None:
            grade(store, card, reviewer)
    labels = store.queues.labels("work")
    assert len(labels) == 6
    assert {label.judge for label in labels} == {"Ann", "Bo"}


def test_one_who_graded_a_pair_and_still_looks_at_it_counts_once(store):
    work = queue(store, names=("q0", "q1"), overlap=2)
    grade(store, work.deal("Ann")[0], "Ann")
    assert place(work.deal("Bo")[0]) == ("q", "m0")


def test_two_reviewers_at_once_are_dealt_different_cards_and_the_last_one_waits(store):
    work = queue(store, names=("q0", "q1"))
    first, second = work.deal("Ann")[0], work.deal("Bo")[0]
    assert {place(first), place(second)} == {("q", "m0"), ("q", "m1")}
    assert work.deal("Cy")[0] is None
    store.queues.claims.release("Bo")
    assert work.deal("Cy")[0] == second


def test_a_label_given_while_another_asks_for_a_card_is_seen_before_the_card_is_dealt(store, monkeypatch):
    work = queue(store)
    first = work.deal("Bo")[0]
    claim = store.queues.claims.claim

    def late(reviewer, choose):
        if reviewer == "Ann":  # Bo finishes and moves on just before Ann's claim
            grade(store, first, "Bo")
            work.deal("Bo")[0]
        return claim(reviewer, choose)

    monkeypatch.setattr(store.queues.claims, "claim", late)
    assert place(work.deal("Ann")[0]) == ("r", "m2")


def test_eight_reviewers_working_off_one_queue_label_every_pair_once(tmp_path):
    """Sessions of one app: threads over one store. None is lost, none doubled, nobody meets a lock."""
    with Store.open(tmp_path / "store") as store:
        ids = [f"m{n}" for n in range(60)]
        memories = tuple(Memory(key, f"text {key}") for key in ids)
        store.add(ParsedInput("t.jsonl", "t", memories=memories, queries=(Query("q", "what?"),)))
        work = queue(store, [f"q{n}" for n in range(60)])

        def session(reviewer):
            while (card := work.deal(reviewer)[0]) is not None:
                grade(store, card, reviewer)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(session, (f"r{n}" for n in range(8))))
        labels = store.judgments.read()
        assert sorted(label.memory_id for label in labels) == sorted(ids)
        assert len({label.judge for label in labels}) > 1


def test_in_a_shuffled_queue_every_reviewer_has_an_order_of_their_own(store):
    work = queue(store, [f"q{n}" for n in range(6)], "shuffled", overlap=3, seed=5)

    def order(reviewer):
        seen = []
        while (card := work.deal(reviewer)[0]) is not None:
            seen.append(card.memory.id)
            grade(store, card, reviewer)
        return seen

    orders = [order(reviewer) for reviewer in ("Ann", "Bo", "Cy")]
    assert all(sorted(one) == [f"m{n}" for n in range(6)] for one in orders)
    assert len({tuple(one) for one in orders}) == 3


def test_progress_counts_what_is_done_put_aside_and_left(store):
    work = queue(store, ["q0", "q1", "r2", "r3"], overlap=2)
    grade(store, work.deal("Ann")[0], "Ann")
    grade(store, work.deal("Bo")[0], "Bo")
    store.labels.skip("q", "m1", "Ann")
    store.labels.unclear("r", "Bo")
    store.labels.give(Judgment("r", "m5", 1, "Ann"))  # not of this queue
    ann, bo = work.progress("Ann"), work.progress("Bo")
    assert (ann.graded, ann.skipped, ann.unclear, ann.left, ann.done_by_all, ann.total) == (1, 1, 0, 2, 1, 4)
    assert (bo.graded, bo.skipped, bo.unclear, bo.left) == (1, 0, 1, 1)
    assert (ann.seconds_per_label, ann.seconds_left) == (None, None)


def test_what_cannot_be_a_queue_is_refused(store):
    with pytest.raises(InputError, match="no pair"):
        make_queue("work", [], "top")
    with pytest.raises(InputError, match="strategy"):
        make_queue("work", pairs("q0"), "best")
    with pytest.raises(InputError, match="no labelling queue 'x'"):
        LabelQueue(store, "x")


def decisive_queue(store, names, ranked, **more):
    """A decisive queue of configs a and b with these rankings."""
    pooled = [PooledPair(name[0], f"m{name[1:]}", {}) for name in names]
    settings = {"configs": ["a", "b"]}
    store.queues.save(make_queue("work", pooled, "decisive", settings=settings, rankings=ranked, **more))
    return LabelQueue(store, "work")


RANKED = {"a": {"q": ("m0", "m1"), "r": ("m2",)}, "b": {"q": ("m3",), "r": ("m4", "m2")}}


def test_decisive_first_is_put_in_order_anew_when_a_relevant_memory_is_found(store):
    work = decisive_queue(store, ("q0", "q3", "q1", "r2", "r4"), RANKED)
    assert place(work.deal("Ann")[0]) == ("q", "m0")
    grade(store, work.deal("Ann")[0], "Ann", 0)
    assert place(work.deal("Ann")[0]) == ("q", "m3")  # nothing found yet: as kept, q before r on a tie
    grade(store, work.deal("Ann")[0], "Ann", 3)
    assert place(work.deal("Ann")[0])[0] == "r"  # three of gain in q make the rest of it worth a quarter
    assert place(work.deal("Ann")[0]) == ("r", "m4")


def test_the_rankings_of_a_queue_are_kept_without_deleted_memories_and_go_with_it(store):
    decisive_queue(store, ("q0",), RANKED)
    assert store.queues.rankings("work") == RANKED
    store.memories.delete("m0")
    assert store.queues.rankings("work")["a"]["q"] == ("m1",)
    store.queues.remove("work")
    assert store.queues.rankings("work") == {}


RANKINGS = {"a": {"q": ["m", "n", "o"], "r": ["m"]}, "b": {"q": ["n", "m", "p"], "r": ["m"]}}


def ids(pairs):
    return [(one.qid, one.memory_id) for one in pairs]


def test_a_pool_is_what_any_config_has_within_the_depth_with_each_rank():
    pairs = pool(RANKINGS, 2)
    assert pairs == [
        PooledPair("q", "m", {"a": 1, "b": 2}),
        PooledPair("q", "n", {"a": 2, "b": 1}),
        PooledPair("r", "m", {"a": 1, "b": 1}),
    ]
    assert len(pool(RANKINGS, 3)) == 5
    with pytest.raises(InputError, match="at least 1"):
        pool(RANKINGS, 0)


def test_top_first_goes_down_the_ranks_shared_ones_before_others():
    assert ids(top_first(pool(RANKINGS, 3))) == [("q", "m"), ("q", "n"), ("r", "m"), ("q", "o"), ("q", "p")]


@given(
    st.lists(
        st.tuples(st.sampled_from("qrs"), st.sampled_from("mnopx"), st.integers(1, 9)), unique_by=lambda one: one[:2]
    ),
    st.integers(),
)
def test_query_by_query_keeps_the_cards_of_a_query_together_and_their_order_depends_on_no_rank(drawn, seed):
    pairs = [PooledPair(qid, key, {"a": rank}) for qid, key, rank in drawn]
    ordered = query_by_query(pairs, seed)
    assert [one.qid for one in ordered] == sorted(one.qid for one in pairs)
    assert sorted(ids(ordered)) == sorted(ids(pairs))
    assert ids(ordered) == ids(query_by_query([PooledPair(*one.pair, {"a": 1}) for one in pairs[::-1]], seed))


def test_a_shuffle_depends_on_the_seed_and_not_on_the_order_it_gets():
    pairs = pool(RANKINGS, 3)
    assert ids(shuffled(pairs, 1)) == ids(shuffled(pairs[::-1], 1))
    assert {tuple(ids(shuffled(pairs, seed))) for seed in range(20)} != {tuple(ids(shuffled(pairs, 1)))}
    assert sorted(ids(shuffled(pairs, 7))) == ids(pairs)


def test_uncertain_first_is_nearest_to_the_threshold_and_unscored_last():
    scores = {("q", "m"): 0.9, ("q", "n"): 0.45, ("q", "o"): math.nan, ("q", "p"): 0.3}
    assert ids(uncertain_first(pool(RANKINGS, 3), scores, 0.5)) == [
        ("q", "n"),
        ("q", "p"),
        ("q", "m"),
        ("r", "m"),
        ("q", "o"),
    ]


def test_what_people_judged_leaves_the_pool_and_what_a_model_judged_stays():
    judged = [Judgment("q", "m", 0, "Ann"), Judgment("q", "n", 3, "net", "model")]
    assert ids(without_judged(pool(RANKINGS, 2), judged)) == [("q", "n"), ("r", "m")]


def test_a_swing_is_the_difference_of_both_discounts():
    assert decisive.swing(PooledPair("q", "m", {"a": 1, "b": 2}), "a", "b") == pytest.approx(1 - 1 / math.log2(3))
    assert decisive.swing(PooledPair("q", "m", {"b": 3}), "a", "b") == pytest.approx(-0.5)
    assert decisive.swing(PooledPair("q", "m", {"a": 11, "b": 12}), "a", "b") == 0


def test_what_both_configs_rank_alike_cannot_decide_and_is_left_out():
    found = decisive.decisive_first(pool(RANKINGS, 3), "a", "b")
    assert ("r", "m") not in ids(found)
    assert set(ids(found)) == {("q", "m"), ("q", "n"), ("q", "o"), ("q", "p")}


def test_a_query_with_relevant_memories_is_worth_less():
    pairs = pool({"a": {"q": ["m", "n"], "r": ["x", "y"]}, "b": {"q": ["n", "m"], "r": ["y", "x"]}}, 2)
    known = {("q", "m"): 2}
    assert ids(decisive.decisive_first(pairs, "a", "b", known)) == [("r", "x"), ("r", "y"), ("q", "n")]


def ndcg_gap(rankings, grades, k=10):
    """Mean nDCG@k of config a less that of b, by the formula."""
    total = 0.0
    for qid in rankings["a"]:
        gains = {memory_id: grade for (q, memory_id), grade in grades.items() if q == qid}
        ideal = sum(
            gain * decisive.discount(rank)
            for rank, gain in enumerate(sorted(gains.values(), reverse=True), 1)
            if rank <= k
        )
        for sign, name in ((1, "a"), (-1, "b")):
            reached = sum(gains.get(m, 0) * decisive.discount(rank, k) for rank, m in enumerate(rankings[name][qid], 1))
            total += sign * reached / ideal if ideal else 0.0
    return total / len(rankings["a"])


LISTS = st.permutations([f"m{n}" for n in range(12)]).map(lambda order: list(order)[:9])


@given(first=LISTS, second=LISTS, data=st.data())
def test_what_is_left_out_indeed_cannot_decide_which_config_is_better_on_a_query(first, second, data):
    """Whatever the other grades are, grading a pair that is left out never turns the sign of the query's difference."""
    rankings = {"a": {"q": first}, "b": {"q": second}}
    pairs = pool(rankings, 10)
    kept = set(ids(decisive.decisive_first(pairs, "a", "b")))
    grades = {one.pair: data.draw(st.integers(0, 3)) for one in pairs}
    without = {pair: grade for pair, grade in grades.items() if pair in kept}
    whole, part = ndcg_gap(rankings, grades), ndcg_gap(rankings, without)
    if abs(whole) < 1e-9 or abs(part) < 1e-9:
        assert abs(part) < 1e-9 and abs(whole) < 1e-9
    else:
        assert math.copysign(1, part) == math.copysign(1, whole)


DAY = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 9)]


def words(chosen):
    return [one.query.query for one in chosen]


def entry(query, moment=None, results=(), project=None):
    """An asking as a log reads it."""
    returned = tuple(Returned(rank, key) for rank, key in enumerate(results, 1))
    return RecordedAnswer(1, "", query, project, returned, asked_at=moment)


LOG = [
    entry("Deploy  now", DAY[0], ("m",)),
    entry("deploy now", DAY[3], ("n",)),
    entry("deploy now", DAY[1]),
    entry("who?", DAY[2]),
    entry("who?", None, ("x",)),
    entry("who?", None, project="p"),
    entry("rare", DAY[5]),
]


def test_a_query_is_taken_once_in_the_words_and_with_the_results_of_its_latest_entry():
    found = distinct(LOG)
    assert [(one.query.query, one.query.project, one.times, one.query.as_of) for one in found] == [
        ("deploy now", None, 3, DAY[3]),
        ("who?", None, 2, DAY[2]),
        ("rare", None, 1, DAY[5]),
        ("who?", "p", 1, None),
    ]
    assert found[0].results == ("n",)
    assert len({one.query.qid for one in found}) == 4


def test_an_answer_that_was_not_recorded_is_no_empty_one():
    unknown = Asking(1, "", "who?", None, DAY[4])
    assert [one.results for one in distinct([unknown])] == [None]
    assert [one.results for one in distinct([entry("who?", DAY[1], ("m",)), unknown])] == [("m",)]
    by_text = RecordedAnswer(1, "", "who?", None, (Returned(1, None, content="it is"),))
    assert [one.results for one in distinct([by_text])] == [None]
    assert [one.results for one in distinct([entry("who?")])] == [()]


def test_a_random_sample_depends_on_its_seed_and_prefers_the_frequent():
    assert sample(LOG, "random", 2, seed=3) == sample(LOG, "random", 2, seed=3)
    log = [entry("often")] * 90 + [entry(f"once {n}") for n in range(10)]
    first = [words(sample(log, "random", 1, seed))[0] for seed in range(200)]
    assert 0.8 < first.count("often") / 200 < 0.98
    assert len(sample(LOG, "random", 99)) == 4


def test_the_worst_are_those_whose_best_result_scores_lowest():
    found = {one.query.query: one.query.qid for one in distinct(LOG)}
    scores = {found["deploy now"]: 2.0, found["rare"]: -math.inf, found["who?"]: -4.0}
    assert words(sample(LOG, "worst", 2, scores=scores)) == ["rare", "who?"]
    with pytest.raises(InputError, match="scores"):
        sample(LOG, "worst", 2)


@pytest.mark.parametrize(("way", "size"), [("best", 1), ("random", 0)])
def test_what_cannot_be_sampled_is_refused(way, size):
    with pytest.raises(InputError):
        sample(LOG, way, size)
