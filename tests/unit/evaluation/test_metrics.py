"""Measures and statistics against numbers worked out by hand, of queries with an answer and without one."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sets import AS_LISTED, IDS, OTHER_WAY, evidence, evidence_file

from cems_workbench.analysis.losses_of_set import losses_of
from cems_workbench.config import PipelineConfig, parse_config
from cems_workbench.errors import InputError
from cems_workbench.evaluation.assertions import NoLoss, check, check_no_loss, parse_assertion
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import compare, significance, significantly_lower
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.evidence_file import read_evidence_file, replace_relevant_from
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.labelling.pooling import coverage
from cems_workbench.evaluation.metrics import (
    NO_ANSWER,
    GradedRankings,
    Measure,
    graded,
    offered_measures,
    parse_measure,
    parse_measures,
    rbo,
)
from cems_workbench.evaluation.metrics.confidence import curve
from cems_workbench.evaluation.report import experiment_card, read_comparison
from cems_workbench.evaluation.statistics import (
    bootstrap,
    bootstrap_test,
    bounds,
    effect_size,
    holm,
    interval,
    means,
    randomisation_test,
    resample,
)
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.records import DEFAULT_SCALE, GradeScale, Judgment, Memory, Query
from cems_workbench.tuning.objective import parse_goal

RANKING = ["x", "a", "b", "y", "c"]
GRADES = {"a": 3, "b": 1, "c": 2, "y": 0, "lost": 2}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hit@1", 0.0),
        ("hit@5", 1.0),
        ("recall@3", 2 / 4),
        ("all@5", 0.0),
        ("all(rel=3)@2", 1.0),
        ("all(rel=3)@1", 0.0),
        ("recall@5", 3 / 4),
        ("P@3", 2 / 3),
        ("P@10", 3 / 10),
        ("MRR", 1 / 2),
        ("MRR@1", 0.0),
        ("AP", (1 / 2 + 2 / 3 + 3 / 5) / 4),
        ("Judged@5", 4 / 5),
        ("Judged@10", 4 / 5),
        ("hit(rel=3)@1", 0.0),
        ("recall(rel=2)@5", 2 / 3),
        (
            "nDCG@5",
            (3 / math.log2(3) + 1 / math.log2(4) + 2 / math.log2(6))
            / (3 + 2 / math.log2(3) + 2 / math.log2(4) + 1 / math.log2(5)),
        ),
    ],
)
def test_measures_by_hand(name: str, expected: float) -> None:
    assert parse_measure(name).values(graded([RANKING], [GRADES]))[0] == pytest.approx(expected, abs=1e-12)


# LongMemEval's evaluate_retrieval (src/retrieval/eval_utils.py at 9e0b455), run on 12 documents in this order, of which these are
# relevant: recall_any and recall_all at 1, 3, 5 and 10.
LONGMEMEVAL = [
    ("b78a39462105", [9], [0, 0, 0, 1], [0, 0, 0, 1]),
    ("31904b72586a", [3], [1, 1, 1, 1], [1, 1, 1, 1]),
    ("329a68407b51", [3, 10], [1, 1, 1, 1], [0, 0, 1, 1]),
    ("6943015ab782", [3, 9], [0, 1, 1, 1], [0, 0, 1, 1]),
    ("73195b6a4028", [1, 3, 9], [0, 1, 1, 1], [0, 0, 1, 1]),
    ("69405371ab82", [1, 4, 9], [0, 1, 1, 1], [0, 0, 0, 1]),
    ("807b962a1543", [0, 7, 8, 11], [1, 1, 1, 1], [0, 0, 1, 1]),
    ("5379482ba160", [1, 2, 3, 5, 6, 9], [1, 1, 1, 1], [0, 0, 0, 0]),
]


def test_all_at_k_and_hit_at_k_are_longmemevals_recall_all_and_recall_any() -> None:
    rankings = [[f"s{int(place, 16)}" for place in order] for order, *_ in LONGMEMEVAL]
    grades = [{f"s{number}": 1 for number in relevant} | {"s99": 0} for _, relevant, *_ in LONGMEMEVAL]
    # _abs: no target, and in no mean of run_retrieval.py
    found = graded([*rankings, rankings[0]], [*grades, {"s1": 0}])
    for name, column in (("recall_any", 2), ("recall_all", 3)):
        for place, k in enumerate((1, 3, 5, 10)):
            values = parse_measure(f"{name}@{k}").values(found)
            assert values[:-1].tolist() == [row[column][place] for row in LONGMEMEVAL], (name, k)
            assert math.isnan(values[-1])


def test_a_query_without_results_counts_0_and_one_without_anything_relevant_is_left_out() -> None:
    found = graded([[], ["a"]], [{"a": 1}, {"a": 0}])
    for measure in parse_measures("hit@5 recall@5 all@5 P@3 MRR nDCG@10 AP"):
        assert measure.values(found).tolist() == pytest.approx([0.0, math.nan], nan_ok=True)
    assert parse_measure("Judged@10").values(found).tolist() == [0.0, 1.0]
    assert means(np.array([[0.0], [math.nan]])).tolist() == [0.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hit@5", Measure("hit", 5)),
        ("Success@5", Measure("hit", 5)),
        ("recall_any@5", Measure("hit", 5)),
        ("recall_all@5", Measure("all", 5)),
        ("ndcg@10", Measure("nDCG", 10)),
        ("mrr", Measure("MRR")),
        ("AP(rel=2)", Measure("AP", None, 2)),
    ],
)
def test_names_of_measures(text: str, expected: Measure) -> None:
    assert parse_measure(text) == expected
    assert parse_measure(str(expected)) == expected


def test_the_lowest_relevant_grade_can_be_set_for_all() -> None:
    assert [str(measure) for measure in parse_measures("hit@5, nDCG@10 P(rel=3)@3", 2)] == [
        "hit(rel=2)@5",
        "nDCG@10",
        "P(rel=3)@3",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("R@5", "write hit@5 .* or recall@5"),
        ("hit", "needs a cut-off, such as hit@5"),
        ("hit@0", "at least 1"),
        ("hits@5", "did you mean hit"),
        ("nDCG@ten", "expected a name such as"),
        (" ", "no measure"),
    ],
)
def test_what_is_no_measure_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_measures(text)


def test_tokens_are_those_of_the_first_k_and_relevant_ones_a_share_of_them() -> None:
    found = replace(graded([RANKING, []], [GRADES, GRADES]), tokens=np.array([[10, 30, 20, 5, 35], [0] * 5]))
    for name, expected in (
        ("tokens", [100, 0]),
        ("tokens@3", [60, 0]),
        ("tokens_relevant@3", [50 / 60, 0]),
        ("tokens_relevant(rel=3)", [0.3, 0]),
    ):
        assert parse_measure(name).values(found).tolist() == pytest.approx(expected)
    assert np.isnan(parse_measure("tokens").values(graded([RANKING], [GRADES]))).all()


def test_bounds_of_what_is_not_judged() -> None:
    """x is not judged: as relevant it makes the first rank a hit and adds one to all that are relevant."""
    found = graded([RANKING], [GRADES])
    low, high = bounds(found, parse_measures("hit@1 P@3 recall@3 MRR"))
    assert low.tolist() == pytest.approx([0, 2 / 3, 2 / 4, 1 / 2])
    assert high.tolist() == pytest.approx([1, 1, 3 / 5, 1])


def test_the_bootstrap_is_seeded_and_holds_the_mean() -> None:
    values = np.array([[1.0], [0.0]] * 50)
    low, high = bootstrap(values, seed=1)
    assert (low, high) == pytest.approx((0.4, 0.6), abs=0.021)  # 0.5 ± 1.96 · 0.5 / 10
    assert bootstrap(values, seed=1).tolist() == bootstrap(values, seed=1).tolist()
    assert bootstrap(np.ones((5, 1))).tolist() == [[1.0], [1.0]]


def test_randomisation_by_hand() -> None:
    """Three queries that all gain: of 8 sign patterns two are as extreme. Ten: 2 of 1024."""
    assert randomisation_test(np.full((3, 1), 0.5)).tolist() == [0.25]
    assert randomisation_test(np.full((10, 1), 0.1))[0] == pytest.approx(2 / 1024)
    assert randomisation_test(np.array([[0.3, 0.0], [-0.3, 0.0]])).tolist() == [1.0, 1.0]


def test_the_drawn_test_agrees_with_the_exact_one() -> None:
    d = np.random.default_rng(5).normal(0.15, 0.5, size=(40, 1))
    found = randomisation_test(d, seed=1)[0]
    z = abs(d.sum()) / math.sqrt((d**2).sum())
    normal = math.erfc(z / math.sqrt(2))
    assert found == pytest.approx(normal, abs=0.015)
    assert randomisation_test(d, seed=1)[0] == found
    assert randomisation_test(np.full((40, 1), 1.0))[0] == pytest.approx(1 / 10_001)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_effect_size_by_hand() -> None:
    assert effect_size(np.array([1.0, 0.0, math.nan])) == pytest.approx(0.5 / math.sqrt(0.5))
    assert effect_size(np.zeros(4)) == 0.0
    assert effect_size(np.ones(4)) == math.inf


def test_rbo_by_hand() -> None:
    """Equal rankings 1, nothing in common 0; [1, 2] and [1, 3] share half at depth two."""
    assert rbo(np.array([[0, 1]]), np.array([[0, 1]]))[0] == pytest.approx(1.0)
    assert rbo(np.array([[0, 1]]), np.array([[2, 3]]))[0] == pytest.approx(0.0)
    p = 0.9
    expected = (1 - p) / p * (1 * p + 0.5 * p**2) + 0.5 * p**2
    assert rbo(np.array([[0, 1]]), np.array([[0, 2]]))[0] == pytest.approx(expected)
    assert rbo(np.array([[-1, -1]]), np.array([[-1, -1]]))[0] == 1.0


def test_people_go_before_models_and_judges_are_not_overruled_by_one() -> None:
    rows = [
        Judgment("q", "a", 3, "anna"),
        Judgment("q", "a", 0, "ben"),
        Judgment("q", "a", 2, "carl"),
        Judgment("q", "a", 0, "m", "model"),
        Judgment("q", "b", 1, "m", "model"),
        Judgment("q", "c", 3, "anna"),
        Judgment("q", "c", 1, "ben"),
    ]
    assert agreed_grades(rows) == {"q": {"a": 2, "b": 1, "c": 1}}
    assert agreed_grades(rows, "model") == {"q": {"a": 0, "b": 1}}


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
def test_measures_of_queries_without_an_answer_by_hand(name: str, expected: float) -> None:
    assert mean(name, TABLE) == pytest.approx(expected, abs=1e-12)
    assert str(parse_measure(name)) == name


def test_the_risk_coverage_curve_by_hand() -> None:
    coverage, risk = curve(TABLE, 1, 1)
    assert coverage.tolist() == pytest.approx([1 / 6, 2 / 6, 4 / 6, 1])
    assert risk.tolist() == pytest.approx([0, 1 / 2, 3 / 4, 4 / 6])


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


def gathered(found: dict[str, float]) -> Evidence:
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
    "q1": gathered({"a": 0.9}),
    "q2": gathered({"a": 0.5, "b": 0.4}),
    "q3": gathered({}),
    "q4": gathered({"a": 0.3}),
}
NO_ANSWER_GRADES = {"q1": {"a": 1}, "q3": {"a": 0}}


def test_a_batch_measures_queries_without_an_answer_and_says_how_many_there_are() -> None:
    batch = LabelledBatch(QUERIES, EVIDENCE, NO_ANSWER_GRADES)
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
        check(*parse_assertion("noise@5<=0.2"), found).holds
        and not check(*parse_assertion("answered<0.5"), found).holds
    )


def test_another_signal_than_the_first_score_can_be_measured() -> None:
    """The first score is highest where two memories are equally near, which the margin tells from an answer."""
    found = {
        "q1": gathered({"a": 0.9}),
        "q2": gathered({"a": 0.95, "b": 0.94}),
        "q3": gathered({"a": 0.4}),
    }
    batch = LabelledBatch(QUERIES[:3], found, NO_ANSWER_GRADES)
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
    noisy = {**EVIDENCE, "q3": gathered({"a": 0.9})}
    quiet, loud = (
        evaluate(
            LabelledBatch(QUERIES, given_evidence, NO_ANSWER_GRADES),
            PipelineConfig(name=name),
            parse_measures("noise@5 AUROC"),
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


def graded_batch(queries: int = 200) -> LabelledBatch:
    """Queries with lists and grades at random; some have nothing relevant from grade 1, more from 2 and 3."""
    rng = np.random.default_rng(0)
    asked = [Query(f"q{i}", f"query {i}", type="abc"[i % 3]) for i in range(queries)]
    found = {
        one.qid: evidence(one.query, cosines=dict(zip(rng.permutation(list(IDS)), rng.random(8), strict=True)))
        for one in asked
    }
    grades = {
        one.qid: {
            str(key): int(rng.choice(4, p=(0.7, 0.1, 0.1, 0.1))) for key in rng.choice(list(IDS), 3, replace=False)
        }
        for one in asked
    }
    return LabelledBatch(asked, found, grades)


BATCH = graded_batch()


def test_the_grade_is_kept_with_the_scale_and_with_the_evidence(tmp_path: Path) -> None:
    chosen = GradeScale(DEFAULT_SCALE.grades, 2)
    assert GradeScale.from_dict(chosen.to_dict()) == chosen
    assert "relevant_from" not in DEFAULT_SCALE.to_dict()  # a set made before keeps its digest
    path = evidence_file(tmp_path)
    before = read_evidence_file(path)
    replace_relevant_from(path, 2)
    after = read_evidence_file(path)
    assert (before.header.relevant_from, after.header.relevant_from) == (1, 2)
    assert after.replay_hash == before.replay_hash and after.content_hash != before.content_hash


def test_by_type_names_only_losses_that_are_more_than_chance() -> None:
    measures = parse_measures("nDCG@10")
    both = [evaluate(BATCH, config, measures, with_bounds=False) for config in (AS_LISTED, OTHER_WAY)]
    by_chance = significantly_lower(both, measures[0])
    assert by_chance == {"a": [], "b": [], "c": []}
    assert any(
        both[1].mean(measures[0], kind) < both[0].mean(measures[0], kind) for kind in "abc"
    )  # lower, and still not named
    best_first = {qid: evidence(qid) for qid in BATCH.qids[:60]}
    planted = LabelledBatch(BATCH.queries[:60], best_first, {qid: {"a": 3} for qid in BATCH.qids[:60]})
    sure = [evaluate(planted, config, measures, with_bounds=False) for config in (AS_LISTED, OTHER_WAY)]
    assert significantly_lower(sure, measures[0]) == {kind: ["other_way"] for kind in "abc"}


CLAIM, ANSWER = "Homework makes children study on their own.", "Homework is done by parents."
CONFIG = "version: 2\nname: plain\nfusion: {top_rank_bonus: {rank1: 0, rank2_3: 0}}\nrerank: {backend: none}\n"
RERANKED = CONFIG.replace("backend: none", "backend: cross_encoder, depth: 2")
MRR = parse_measure("MRR")


def documents(query: str, **memories: str) -> Evidence:
    """One list of memories in this order, of which all but the last have a reranker's score."""
    hits = tuple(Hit(key, 1.0 - place / 10) for place, key in enumerate(memories))
    lists = (RankedList("vector:0", "vector", 0, hits),)
    return Evidence(query, {key: Memory(key, text) for key, text in memories.items()}, (Variant(query),), lists)


def measured(evidences: dict[str, Evidence], grades: dict[str, dict[str, int]], config: str = CONFIG):
    queries = [Query(qid, one.query) for qid, one in evidences.items()]
    batch = LabelledBatch(queries, evidences, grades)
    return batch, evaluate(batch, parse_config(config, "test"), [MRR])


def test_a_query_that_is_a_document_is_left_out_of_its_own_results() -> None:
    evidences = {
        "pro": documents(CLAIM, pro=CLAIM, con=ANSWER),
        "q2": documents("who", con=ANSWER),
    }
    batch, found = measured(evidences, {"pro": {"con": 1}, "q2": {"con": 1}})
    assert (found.mean(MRR), found.results[0]) == (1.0, ("con",))
    assert found.remarks == [
        "1 of 2 queries are memories of the store, such as pro: each was left out of its own results, as BEIR does"
    ]
    assert losses_of([batch], [found.config], 1, k=1).maps[0].returned == 2
    assert batch.of_queries({"pro"}).left_out == ("pro",)


def test_the_last_candidate_that_moves_up_is_not_called_unscored() -> None:
    given = documents(CLAIM, pro=CLAIM, con=ANSWER, other="Schools close at four.")
    _, plain = measured({"pro": given}, {"pro": {"con": 1}}, RERANKED)
    assert any("reranker scores" in line for line in plain.remarks)
    scores = {model_key(plain.config.rerank): {name: ModelScore(1.0) for name in ("pro", "con")}}
    _, scored = measured({"pro": replace(given, model_scores=scores)}, {"pro": {"con": 1}}, RERANKED)
    assert not any("reranker scores" in line for line in scored.remarks)


def test_a_document_with_the_id_by_chance_or_judged_relevant_stays() -> None:
    """beir 2.2.0 leaves out every document with the id of the query: 0.0 where both are counted from 1."""
    evidences = {
        "1": documents(CLAIM, **{"1": ANSWER, "2": CLAIM}),
        "3": documents(CLAIM, **{"3": CLAIM}),
    }
    batch, found = measured(evidences, {"1": {"1": 1}, "3": {"3": 1}})
    assert (found.mean(MRR), batch.left_out, batch.by_chance) == (1.0, (), ("1", "3"))
    _, found = measured({"1": documents(CLAIM, **{"1": "Schools close at four.", "2": ANSWER})}, {"1": {"2": 1}})
    assert found.mean(MRR) == 0.5
    assert found.remarks[0] == (
        "1 of 1 queries have the id of a memory with another text, or one that is relevant to them (1): it was kept; BEIR leaves out "
        "every document with the id of the query, so its figures differ"
    )


RANKINGS = {"a": {"q": ("m1", "m2", "m3"), "r": ("m1",)}, "b": {"q": ("m3", "m4")}}


def test_each_config_has_the_share_of_its_first_k_that_is_judged() -> None:
    q, r = coverage(RANKINGS, {("q", "m1"), ("r", "m1")}, k=2)
    assert (q.qid, q.judged, q.unjudged) == ("q", {"a": 0.5, "b": 0.0}, ("m3", "m2", "m4"))
    assert (r.qid, r.judged, r.unjudged) == ("r", {"a": 1.0}, ())


def test_k_is_at_least_one() -> None:
    with pytest.raises(InputError, match="k: must be at least 1"):
        coverage(RANKINGS, set(), 0)


results = st.lists(st.sampled_from("abcdef"), unique=True).map(tuple)


@given(st.dictionaries(st.sampled_from("AB"), st.dictionaries(st.sampled_from("qr"), results)), st.integers(1, 7))
def test_a_judgment_of_what_was_unjudged_makes_everything_judged(rankings, k) -> None:
    first = coverage(rankings, set(), k)
    then = coverage(rankings, {(one.qid, memory_id) for one in first for memory_id in one.unjudged}, k)
    assert all(share == 1.0 for one in then for share in one.judged.values())
    assert not [one for one in then if one.unjudged]
