"""The arithmetic of the decisive-first benchmark, and its claim on made-up rankings, without a model."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from benchmarks.bench_decisive import differences, reached, reviewer
from cems_workbench.evaluation.labelling.pooling import PooledPair, pool, top_first
from cems_workbench.evaluation.labelling.queue import decisive_first


def test_a_verdict_is_reached_where_the_sign_is_the_last_one_and_stays():
    assert reached([0.0, 0.1, -0.1, 0.2, 0.1]) == 4
    assert reached([0.1, 0.2]) == 1
    assert reached([0.1, 0.0]) == 2
    assert reached([-0.1, -0.1, 0.3]) == 3


def test_the_difference_after_each_label_is_the_one_of_the_formula():
    order = [
        PooledPair("q", "m", {"a": 1, "b": 3}),
        PooledPair("q", "n", {"b": 1}),
        PooledPair("r", "x", {"a": 2, "b": 2}),
    ]
    after = differences(order, {("q", "m"): 1, ("q", "n"): 1, ("r", "x"): 1}, queries=2)
    one, two = 1.0, 1 + 1 / math.log2(3)
    assert after == pytest.approx([(1 - 0.5) / one / 2, (1 - 0.5 - 1) / two / 2, (1 - 0.5 - 1) / two / 2])


def test_a_simulated_reviewer_says_the_same_again_and_is_seldom_wrong():
    pairs = [PooledPair(f"q{n}", "m", {"a": 1}) for n in range(4000)]
    relevant = {f"q{n}": {"m"} for n in range(2000)}
    said = reviewer(pairs, relevant, 1)
    assert said == reviewer(pairs[::-1], relevant, 1)
    right = [said[f"q{n}", "m"] == (n < 2000) for n in range(4000)]
    assert 0.87 < statistics.fmean(right[:2000]) < 0.93
    assert 0.98 < statistics.fmean(right[2000:]) < 1.0


def test_on_made_up_rankings_decisive_first_needs_at_most_half_the_labels_of_top_first():
    random_ = random.Random(7)
    shares = []
    for _ in range(20):
        rankings: dict[str, dict[str, list[str]]] = {"a": {}, "b": {}}
        relevant = {}
        for number in range(80):
            qid, found = f"q{number}", [f"m{n}" for n in range(14)]
            relevant[qid] = {found[min(int(random_.expovariate(0.4)), 13)]}
            rankings["a"][qid] = found[:10]
            other = list(found)
            for _ in range(random_.choice((0, 0, 1, 2))):  # many queries on which both rank alike
                at = random_.randrange(12)
                other[at], other[at + 1] = other[at + 1], other[at]
            rankings["b"][qid] = other[:10]
        pairs = pool(rankings, 10)
        said = reviewer(pairs, relevant, 3)
        decisive = decisive_first(pairs, "a", "b")
        kept = {one.pair for one in decisive}
        order = [*decisive, *(one for one in top_first(pairs) if one.pair not in kept)]
        top, first = differences(top_first(pairs), said, 80), differences(order, said, 80)
        assert top[-1] == pytest.approx(first[-1], abs=1e-9)
        shares.append((reached(first), reached(top)))
    assert sum(first for first, _ in shares) <= 0.5 * sum(top for _, top in shares)
