"""A log of queries: what counts as one query, and the three ways to sample it."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.evaluation.log_sampling import distinct, sample
from cems_workbench.formats.logs import Asking
from cems_workbench.records import RecordedAnswer, Returned

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


def test_of_entries_without_time_the_last_one_counts():
    assert distinct([entry("a", None, ("m",)), entry("A", None, ("n",))])[0].results == ("n",)


def test_the_most_frequent_come_first():
    assert words(sample(LOG, "frequent", 2)) == ["deploy now", "who?"]


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
