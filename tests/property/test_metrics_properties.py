"""Measures against their oracle, ir-measures over pytrec_eval, on random runs; and the laws of bounds, RBO and the tests of chance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.evaluation.metrics import Measure, graded, parse_measures, rbo
from cems_workbench.evaluation.statistics import bounds, holm, means, randomisation_test
from cems_workbench.pipeline.table import _places
from tests.oracle import judged_run, oracle

IDS = [f"d{i}" for i in range(8)]
MEASURES = parse_measures(
    "hit@1 hit@5 hit@10 recall@1 recall@5 recall@10 P@3 P@5 MRR nDCG@3 nDCG@10 nDCG AP AP@5 Judged@10 Judged@3 "
    "hit(rel=2)@5 recall(rel=2)@5 P(rel=2)@3 MRR(rel=2) AP(rel=2)"
)
GRADES = st.dictionaries(st.sampled_from(IDS), st.integers(0, 3), min_size=1)
SCORES = st.dictionaries(st.sampled_from(IDS), st.sampled_from([0.1, 0.5, 0.5, 0.9, 0.25]), min_size=1)


def ranked(scores: Mapping[str, float]) -> list[str]:
    """Best first, ties by id: the pipeline's own order."""
    ids = sorted(scores)
    places = _places(-np.array([[scores[key] for key in ids]]))[0]
    return [ids[i] for i in np.argsort(places)]


def by_oracle(rankings, grades):
    """Value by measure and query."""
    ir = pytest.importorskip("ir_measures")
    qrels, run = judged_run(rankings, grades)
    meant = {str(oracle(measure)): str(measure) for measure in MEASURES}
    found: dict[str, dict[str, float]] = {}
    for metric in ir.iter_calc([oracle(measure) for measure in MEASURES], qrels, run):
        found.setdefault(meant[str(metric.measure)], {})[metric.query_id] = metric.value
    return found


@given(st.lists(st.tuples(SCORES, GRADES), min_size=1, max_size=5))
def test_measures_equal_the_oracle_on_every_query_with_something_relevant(batch):
    qids = [f"q{i}" for i in range(len(batch))]
    rankings = {qid: ranked(scores) for qid, (scores, _) in zip(qids, batch, strict=True)}
    grades = {qid: given_grades for qid, (_, given_grades) in zip(qids, batch, strict=True)}
    expected = by_oracle(rankings, grades)
    found = graded(list(rankings.values()), list(grades.values()))
    for measure in MEASURES:
        for qid, value in zip(qids, measure.values(found), strict=True):
            if math.isnan(value):  # nothing relevant: the oracle says 0, and so it is left out of the mean
                assert expected[str(measure)][qid] == 0.0
            else:
                assert value == pytest.approx(expected[str(measure)][qid], abs=1e-9), measure


@given(SCORES, GRADES, st.integers(1, 9))
def test_all_at_k_is_whether_the_first_k_hold_everything_relevant(scores, grades, k):
    ranking, relevant = ranked(scores), {key for key, grade in grades.items() if grade >= 1}
    measures = parse_measures(f"hit@{k} recall@{k} all@{k}")
    hit, recall, everything = (float(measure.values(graded([ranking], [grades]))[0]) for measure in measures)
    if relevant:
        assert everything == float(relevant <= set(ranking[:k])) == float(recall == 1.0)
        assert hit >= recall >= everything


@given(st.lists(st.tuples(SCORES, GRADES), min_size=1, max_size=3))
def test_the_bounds_are_those_of_every_way_to_judge_what_is_not_judged(batch):
    measures = parse_measures("hit@3 recall@3 all@3 P@3 MRR nDCG@3 nDCG AP recall(rel=2)@5")
    rankings = [ranked(scores) for scores, _ in batch]
    grades = [row for _, row in batch]
    found = graded(rankings, grades)
    highest = max(1, *(grade for row in grades for grade in row.values()))
    low, high = bounds(found, measures)
    for m, measure in enumerate(measures):
        top = max(highest, measure.grade)
        point = measure.values(found)
        ends = np.stack([_extremes(ranking, row, measure, top) for ranking, row in zip(rankings, grades, strict=True)])
        ends[np.isnan(point)] = np.nan
        assert [low[m], high[m]] == pytest.approx(means(ends).tolist(), abs=1e-9, nan_ok=True), measure


def _extremes(ranking: Sequence[str], grades: Mapping[str, int], measure: Measure, top: int) -> tuple[float, float]:
    loose = [key for key in ranking[: measure.k] if key not in grades]
    values = []
    for chosen in itertools.product([False, True], repeat=len(loose)):
        row = {**grades, **{key: top for key, taken in zip(loose, chosen, strict=True) if taken}}
        values.append(float(np.nan_to_num(measure.values(graded([list(ranking)], [row]))[0])))
    return min(values), max(values)


@given(st.permutations(range(6)), st.permutations(range(6)), st.integers(0, 6), st.integers(0, 6))
def test_rbo_is_symmetric_lies_in_0_to_1_and_equals_its_formula(one, other, short, long):
    a, b = one[:short], other[:long]
    arrays = [np.array([row + [-1] * (6 - len(row))]) for row in (a, b)]
    found = float(rbo(*arrays)[0])
    assert found == pytest.approx(float(rbo(*reversed(arrays))[0]), abs=1e-12)
    assert -1e-12 <= found <= 1 + 1e-12
    assert found == pytest.approx(_rbo(a, b), abs=1e-12)
    assert float(rbo(arrays[0], arrays[0])[0]) == pytest.approx(1.0)


def _rbo(a: Sequence[int], b: Sequence[int], p: float = 0.9) -> float:
    """Equation 32 of Webber et al., term by term."""
    short, long = sorted((a, b), key=len)
    s, l = len(short), len(long)  # noqa: E741 - the paper's letters
    if not l:
        return 1.0
    if not s:
        return 0.0
    x = [len(set(short[:d]) & set(long[:d])) for d in range(l + 1)]
    total = sum(x[d] / d * p**d for d in range(1, l + 1))
    total += sum(x[s] * (d - s) / (s * d) * p**d for d in range(s + 1, l + 1))
    return (1 - p) / p * total + ((x[l] - x[s]) / l + x[s] / s) * p**l


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.0, 0.25, 1.0]), min_size=2, max_size=9))
def test_the_exact_randomisation_test_equals_scipys(differences: list[float]) -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    found = float(randomisation_test(np.array(differences)[:, None])[0])
    expected = scipy_stats.permutation_test(
        (np.array(differences),), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert found == pytest.approx(float(expected), abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_a_p_and_keeps_their_order(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(a >= b for a, b in zip(adjusted, p, strict=True))
    assert all(0 <= a <= 1 for a in adjusted)
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)
