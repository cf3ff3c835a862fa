"""Queries with and without an answer: measures on a table worked out by hand, against scikit-learn, and what they may never do."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.assertions import NoLoss, check, check_no_loss, parse_assertion
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import compare, significance
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.metrics import GradedRankings, graded, offered_measures, parse_measure, parse_measures
from cems_workbench.evaluation.metrics.confidence import curve
from cems_workbench.evaluation.metrics.measure import NO_ANSWER
from cems_workbench.evaluation.report import experiment_card, read_comparison
from cems_workbench.evaluation.statistics import bootstrap_test, bounds, interval, means, resample
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant
from cems_workbench.records import Memory, Query
from cems_workbench.tuning.objective import parse_goal
from cems_workbench.ui.evaluate.compare import risk_figure

MEASURES = parse_measures(NO_ANSWER + " AURC@1 nDCG@10")
RANKED = [
    (["a"], [0.9], {"a": 1}, False),
    (["x", "b"], [0.6, 0.5], {"b": 2, "x": 0}, False),
    ([], [], {"c": 1}, False),
    (["x", "y"], [0.6, 0.1], {}, True),
    ([], [], {"x": 0}, True),
    (list("uvwxyz"), [0.8, 0.5, 0.4, 0.3, 0.2, 0.1], {}, True),
    (
        ["x"],
        [0.95],
        {"x": 0},
        False,
    ),  # nothing relevant is known, and nobody said that there is nothing: of neither kind
    (["d"], [0.99], {"d": 1}, True),  # said to have no answer, and judged otherwise: answerable
]


def table(rows: list[tuple[list[str], list[float], dict[str, int], bool]]) -> GradedRankings:
    ranked, scores, grades, unanswerable = (list(column) for column in zip(*rows, strict=True))
    return graded(ranked, grades, unanswerable, scores)


TABLE = table(RANKED[:7])


def mean(name: str, rankings: GradedRankings) -> float:
    return float(means(parse_measure(name).values(rankings)[:, None])[0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("noise@5", (2 / 5 + 0 + 5 / 5) / 3),
        ("answered", 2 / 3),
        ("refused", 1 / 3),
        ("P", (1 + 1 / 2 + 0) / 3),
        ("AUROC", (3 / 3 + 1.5 / 3 + 0.5 / 3) / 3),
        ("AUPRC", (1 / 1 + 2 / 4 + 3 / 6) / 3),
        ("AURC@1", (0 + 1 / 2 + 2 * 3 / 4 + 2 * 4 / 6) / 6),
        ("nDCG@10", (1 + 1 / math.log2(3) + 0) / 3),
    ],
)
def test_measures_by_hand(name: str, expected: float) -> None:
    assert mean(name, TABLE) == pytest.approx(expected, abs=1e-12)
    assert str(parse_measure(name)) == name


def test_the_risk_coverage_curve_by_hand() -> None:
    coverage, risk = curve(TABLE, 1, 1)
    assert coverage.tolist() == pytest.approx([1 / 6, 2 / 6, 4 / 6, 1])
    assert risk.tolist() == pytest.approx([0, 1 / 2, 3 / 4, 4 / 6])


def test_the_curve_is_drawn_of_every_config() -> None:
    drawn = risk_figure({"base": curve(TABLE, 1, 1), "<b>": curve(TABLE, 5, 1)})
    assert [list(line.x) for line in drawn.data] == [pytest.approx([1 / 6, 2 / 6, 4 / 6, 1])] * 2
    assert list(drawn.data[0].y) == pytest.approx([0, 1 / 2, 3 / 4, 4 / 6])
    assert drawn.data[1].name == "&lt;b&gt;"
    assert drawn.data[0].hovertext[1] == "base<br>33% answered<br>50% of them failed"


def test_a_judgment_wins_against_no_answer_and_what_nobody_said_counts_nowhere() -> None:
    rankings = table(RANKED)
    for measure in MEASURES:
        assert math.isnan(measure.values(rankings)[6])
    assert parse_measure("nDCG@10").values(rankings)[7] == 1.0
    assert math.isnan(parse_measure("noise@5").values(rankings)[7])
    assert parse_measure("noise(rel=2)@5").values(rankings)[7] == 1 / 5  # from grade 2 on nothing relevant is known


def test_without_a_query_of_either_kind_there_is_no_value() -> None:
    answerable, unanswerable = table(RANKED[:2]), table(RANKED[3:6])
    for name in ("noise@5", "answered", "AUROC", "AUPRC", "AURC@5"):
        assert math.isnan(mean(name, answerable))
    for name in ("refused", "P", "nDCG@10", "AUROC", "AUPRC"):
        assert math.isnan(mean(name, unanswerable))
    assert all(measure.values(graded([], [])).shape == (0,) for measure in MEASURES)


SIGNALS = st.lists(st.tuples(st.sampled_from([None, 0.1, 0.2, 0.5, 0.9]), st.booleans()), min_size=2, max_size=12)


def of_signals(rows: list[tuple[float | None, bool]]) -> GradedRankings:
    return table(
        [([] if s is None else ["m"], [] if s is None else [s], {"m": 1} if good else {}, not good) for s, good in rows]
    )


@given(SIGNALS)
@settings(max_examples=60)
def test_areas_are_those_of_scikit_learn(rows: list[tuple[float | None, bool]]) -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    if len({good for _, good in rows}) < 2:
        return
    labels, scores = [good for _, good in rows], [-1.0 if score is None else score for score, _ in rows]
    rankings = of_signals(rows)
    assert mean("AUROC", rankings) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert mean("AUPRC", rankings) == pytest.approx(average_precision_score(labels, scores), abs=1e-12)


@given(SIGNALS, st.data())
@settings(max_examples=40)
def test_a_resample_is_measured_as_the_queries_it_draws(rows, data):
    drawn = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=len(rows)))
    counts = np.bincount(drawn, minlength=len(rows)).astype(float)[None, :]
    rankings = of_signals(rows)
    for measure in parse_measures("AUROC AUPRC AURC"):
        sampled = measure.resampled(rankings, counts)
        there = rankings.of_queries(np.array(drawn))
        if sampled is not None and not math.isnan(mean(str(measure), there)):
            assert sampled[0] == pytest.approx(mean(str(measure), there), abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=8), st.data())
@settings(max_examples=60)
def test_more_results_for_a_query_without_an_answer_never_measure_better(shape, data):
    def row(count: int, unanswerable: bool, first: float) -> tuple[list[str], list[float], dict[str, int], bool]:
        return (
            list("abcd"[:count]),
            [first - 0.1 * i for i in range(count)],
            {} if unanswerable else {"a": 1},
            unanswerable,
        )

    firsts = [data.draw(st.sampled_from([0.2, 0.5, 0.9])) for _ in shape]
    before = [row(count, kind, first) for (count, kind), first in zip(shape, firsts, strict=True)]
    after = [
        row(count + unanswerable, unanswerable, first)
        for (count, unanswerable), first in zip(shape, firsts, strict=True)
    ]
    for measure in MEASURES:
        change = mean(str(measure), table(after)) - mean(str(measure), table(before))
        assert math.isnan(change) or measure.direction * change <= 1e-12


def test_what_is_not_judged_cannot_move_what_does_not_read_it() -> None:
    low, high = bounds(TABLE, MEASURES)
    for m, measure in enumerate(MEASURES):
        if str(measure) not in ("P", "nDCG@10"):
            assert [low[m], high[m]] == pytest.approx([mean(str(measure), TABLE)] * 2)


def test_intervals_and_p_of_a_measure_of_all_queries_come_from_resamples() -> None:
    sure = of_signals([(0.9, True), (0.8, True), (0.1, False), (0.2, False)] * 10)
    unsure = of_signals([(0.5, True), (0.1, True), (0.1, False), (0.5, False)] * 10)
    auroc = parse_measure("AUROC")
    good, bad = resample(auroc, sure), resample(auroc, unsure)
    assert good is not None and bad is not None and resample(parse_measure("refused"), sure) is None
    assert interval(good) == (1.0, 1.0)
    low, high = interval(bad)
    assert low < 0.5 < high
    assert bootstrap_test(good - bad) == pytest.approx(2 / 1001)
    assert bootstrap_test(good - good) == 1.0
    assert all(map(math.isnan, interval(np.array([math.nan, math.nan, 1.0]))))


def evidence(found: dict[str, float]) -> Evidence:
    hits = tuple(Hit(key, score) for key, score in found.items())
    memories = {key: Memory(key, f"text {key}") for key in found}
    return Evidence("q", memories, (Variant("q"),), (RankedList("vector:0", "vector", 0, hits),))


QUERIES = [
    Query("q1", "one"),
    Query("q2", "two", answerable=False),
    Query("q3", "three", answerable=False),
    Query("q4", "four"),
]
EVIDENCE = {
    "q1": evidence({"a": 0.9}),
    "q2": evidence({"a": 0.5, "b": 0.4}),
    "q3": evidence({}),
    "q4": evidence({"a": 0.3}),
}
GRADES = {"q1": {"a": 1}, "q3": {"a": 0}}


def test_a_batch_measures_queries_without_an_answer_and_says_how_many_there_are() -> None:
    batch = LabelledBatch(QUERIES, EVIDENCE, GRADES)
    assert (batch.qids, batch.not_judged) == (["q1", "q2", "q3"], ("q4",))
    assert batch.of_queries({"q2"}).qids == ["q2"]
    found = evaluate(batch, PipelineConfig(), parse_measures("hit@5 noise@5 answered AUROC"))
    assert [row.queries for row in found.summaries] == [1, 2, 2, 1]
    assert [row.mean for row in found.summaries] == pytest.approx([1, (2 / 5 + 0) / 2, 1 / 2, 1])
    assert (found.unanswerable, found.without_relevant) == (("q2", "q3"), ())
    assert found.relevance.startswith(
        "Relevant from grade 1; means of 1 of 3 judged queries; 2 without an answer count in noise"
    )
    assert (
        check(parse_assertion("noise@5<=0.2"), found).holds and not check(parse_assertion("answered<0.5"), found).holds
    )


def test_another_signal_than_the_first_score_can_be_measured() -> None:
    """The first score is highest where two memories are equally near, which the margin tells from an answer."""
    found = {"q1": evidence({"a": 0.9}), "q2": evidence({"a": 0.95, "b": 0.94}), "q3": evidence({"a": 0.4})}
    batch = LabelledBatch(QUERIES[:3], found, GRADES)
    first, vector, margin, lexical = evaluate(
        batch, PipelineConfig(), parse_measures("AUROC AUROC(by=vector) AUROC(by=margin) AUROC(by=lexical)")
    ).summaries
    assert [first.mean, vector.mean, margin.mean] == [0.5, 0.5, 1.0]
    assert math.isnan(lexical.mean)  # it was not searched
    assert str(parse_measure("AURC(rel=2;by=margin)@5")) == "AURC(rel=2;by=margin)@5"
    for text, why in {
        "AUROC(by=luck)": "by is one of vector, lexical",
        "hit(by=vector)@5": "hit is not of a signal",
    }.items():
        with pytest.raises(InputError, match=why):
            parse_measure(text)


def test_less_noise_is_a_win_and_more_a_loss() -> None:
    noisy = {**EVIDENCE, "q3": evidence({"a": 0.9})}
    quiet, loud = (
        evaluate(
            LabelledBatch(QUERIES, given_evidence, GRADES), PipelineConfig(name=name), parse_measures("noise@5 AUROC")
        )
        for name, given_evidence in (("quiet", EVIDENCE), ("loud", noisy))
    )
    noise, auroc = compare([quiet, loud]).compared[0].differences
    assert (noise.wins, noise.losses, noise.difference) == ((), ("q3",), pytest.approx(0.1))
    assert significance(replace(noise, p_holm=0.01)) == "▼ worse"
    assert auroc.difference == pytest.approx(-0.25)
    guard = NoLoss(parse_measure("noise@5"), level=0.5)
    assert check_no_loss(compare([quiet, loud]), guard)[0].line.startswith(
        "Pass: loud shows no significant rise of noise@5 against quiet: +0.100 over 2 queries"
    )
    assert check_no_loss(compare([loud, quiet]), guard)[0].line.startswith("Pass: quiet ")
    kept = read_comparison(experiment_card(compare([quiet, loud]), "set", "hash"))
    assert kept.figures[0].relevance == quiet.relevance


def test_every_measure_can_be_chosen_and_tuning_refuses_those_of_all_queries_together() -> None:
    assert set(NO_ANSWER.split()) < set(offered_measures())
    for name in ("AUROC", "AUPRC", "AURC@5"):
        with pytest.raises(InputError, match=f"{name} is of all queries together"):
            parse_goal([name])
        with pytest.raises(InputError, match=f"{name} is of all queries together"):
            parse_goal(["nDCG@10"], [name])
