"""Agreement, decisions on conflicts, which judgments count, and judges: calibrated, and labelling first."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import krippendorff
import numpy as np
import pytest

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError, ModelError
from cems_workbench.evaluation.labelling import agreement, pooling
from cems_workbench.evaluation.labelling.agreement import (
    Estimate,
    Verdict,
    adjudicate,
    choose_judgments,
    kappa_reading,
    label_table,
    settled,
)
from cems_workbench.evaluation.labelling.judge_calibration import (
    GradedScore,
    band_confusion,
    calibrate,
    calibration_error,
    differences,
    graded_scores,
    probabilities,
    reliability,
    wilson,
)
from cems_workbench.evaluation.labelling.pooling import band, grade_of, score_pairs
from cems_workbench.jobs.factory import servers
from cems_workbench.models.protocol import PairScore
from cems_workbench.pipeline.rerankers import ScorerRequest
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Cancelled
from cems_workbench.records import GradeScale, JudgeScale, Judgment, Memory, ParsedInput, Query
from cems_workbench.settings import Settings
from cems_workbench.store import Decision, ImportOptions, Store

SCALE = (0, 1, 2, 3)


def judged(grades: np.ndarray, missing: np.ndarray | None = None, per_query: int = 3) -> list[Judgment]:
    """Judgments of a table (reviewers, pairs), `per_query` pairs a query."""
    return [
        Judgment(f"q{pair // per_query:03d}", f"m{pair:03d}", int(grades[who, pair]), f"r{who}")
        for who in range(grades.shape[0])
        for pair in range(grades.shape[1])
        if missing is None or not missing[who, pair]
    ]


def test_alpha_of_the_published_example():
    """Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), example C: four observers, twelve units."""
    gap = -1
    grades = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, gap, gap, gap],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, gap, 3],
            [gap, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, gap],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, gap],
        ]
    )
    table = label_table(judged(grades, grades == gap))
    assert agreement.alpha(table, "nominal", draws=5).value == pytest.approx(0.743, abs=5e-4)
    assert agreement.alpha(table, "ordinal", draws=5).value == pytest.approx(0.815, abs=5e-4)
    assert agreement.alpha(table, "interval", draws=5).value == pytest.approx(0.849, abs=5e-4)


def test_kappa_equals_scikit_learn_on_random_tables(subtests):
    from sklearn.metrics import cohen_kappa_score  # a second: not while every worker collects

    for seed in range(25):
        for weights in ["linear", "quadratic"]:
            with subtests.test(seed=seed, weights=weights):
                random = np.random.default_rng(seed)
                grades = random.integers(0, 4, (2, random.integers(2, 60)))
                (found,) = agreement.pairwise_kappa(label_table(judged(grades), SCALE), weights, draws=5).values()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    expected = cohen_kappa_score(grades[0], grades[1], weights=weights, labels=list(SCALE))
                assert found.value == pytest.approx(expected, abs=1e-12)
                assert found.pairs == grades.shape[1]


def test_alpha_equals_krippendorff_on_random_tables_with_gaps(subtests):
    for seed in range(25):
        for level in ["nominal", "ordinal", "interval"]:
            with subtests.test(seed=seed, level=level):
                random = np.random.default_rng(seed)
                shape = (random.integers(2, 6), random.integers(3, 50))
                grades, missing = random.integers(0, 4, shape), random.random(shape) < 0.3
                found = agreement.alpha(label_table(judged(grades, missing), SCALE), level, draws=5)
                values = np.where(missing, np.nan, grades)
                try:
                    expected = krippendorff.alpha(
                        reliability_data=values, level_of_measurement=level, value_domain=list(SCALE)
                    )
                except ValueError:  # nobody shared a pair, or one grade in all
                    expected = None
                assert found.value == (
                    None if expected is None or np.isnan(expected) else pytest.approx(expected, abs=1e-9)
                )


def test_the_interval_holds_the_value_and_is_the_same_for_the_same_seed():
    random = np.random.default_rng(1)
    truth = random.integers(0, 4, 90)
    noisy = np.stack([np.clip(truth + random.integers(-1, 2, 90), 0, 3) for _ in range(3)])
    table = label_table(judged(noisy), SCALE)
    found = agreement.alpha(table)
    assert found.low < found.value < found.high
    assert found == agreement.alpha(table)
    assert found != agreement.alpha(table, seed=1)
    few = agreement.alpha(label_table(judged(noisy[:, :30]), SCALE))
    assert few.high - few.low > found.high - found.low


def test_the_interval_is_drawn_over_queries_not_over_pairs():
    random = np.random.default_rng(2)
    bad = np.repeat(random.random(10) < 0.5, 9)  # whole queries on which the two differ
    first = random.integers(0, 2, 90)
    table = np.stack([first, np.where(bad, 1 - first, first)])
    by_query = agreement.alpha(label_table(judged(table, per_query=9)))
    by_pair = agreement.alpha(label_table(judged(table, per_query=1)))
    assert by_query.value == pytest.approx(by_pair.value)
    assert by_query.high - by_query.low > 1.5 * (by_pair.high - by_pair.low)


@pytest.mark.parametrize(
    "judgments",
    [
        [],
        [Judgment("q", "m", 1, "Ann")],
        [Judgment("q", "m", 1, "Ann"), Judgment("q", "n", 1, "Bo")],
        [Judgment("q", "m", 2, "Ann"), Judgment("q", "m", 2, "Bo")],
    ],
)
def test_without_a_shared_pair_or_a_second_grade_nothing_is_defined(judgments):
    table = label_table(judgments, SCALE)
    assert agreement.alpha(table).value is None
    assert [kappa.value for kappa in agreement.pairwise_kappa(table).values()] in ([], [None])


def test_alpha_by_type_of_query_and_how_krippendorff_reads_it():
    grades = np.array([[0, 3, 0, 3, 0, 3], [0, 3, 0, 0, 3, 0]])
    found = agreement.alpha_by_type(judged(grades), {"q000": "temporal", "q001": None}, SCALE, draws=50)
    assert found["temporal"].value == pytest.approx(1.0) and found[""].value < 0
    read = [agreement.alpha_reading(Estimate(value, None, None, 9)) for value in (0.5, 0.667, 0.8)]
    assert read == ["unreliable", "tentative", "reliable"]


@pytest.mark.parametrize(
    ("kappa", "read"),
    [
        (Estimate(0.41, 0.19, 0.63, 9), "moderate (slight to substantial)"),
        (Estimate(-0.1, -0.3, 0.0, 9), "none"),
        (Estimate(0.9, 0.85, 1.0, 9), "almost perfect"),
        (Estimate(None, None, None, 0), ""),
    ],
)
def test_a_kappa_is_read_by_landis_and_koch_and_so_are_the_ends_of_its_interval(kappa: Estimate, read: str) -> None:
    assert kappa_reading(kappa) == read


LABELS = [
    Judgment("q", "a", 2, "Ann"),
    Judgment("q", "a", 2, "Bo"),
    Judgment("q", "b", 3, "Ann"),
    Judgment("q", "b", 3, "Bo"),
    Judgment("q", "b", 0, "Cy"),
    Judgment("q", "c", 1, "Ann"),
    Judgment("q", "c", 2, "Bo"),
]


def grades(rule, decisions=()):
    return {one.memory_id: (one.grade, one.how) for one in adjudicate(LABELS, rule, decisions)}


def decided(memory_id, grade):
    return Decision("q", memory_id, grade, "Dee", None, datetime(2026, 1, 1, tzinfo=UTC))


def test_the_majority_is_more_than_half_and_a_tie_stays_open():
    assert grades("majority") == {"a": (2, "agreed"), "b": (3, "majority"), "c": (None, "open")}


def test_the_strictest_is_the_lowest_grade():
    assert grades("strictest") == {"a": (2, "agreed"), "b": (0, "strictest"), "c": (1, "strictest")}


def test_under_decided_every_conflict_waits_for_a_person():
    assert grades("decided") == {"a": (2, "agreed"), "b": (None, "open"), "c": (None, "open")}


def test_a_persons_decision_stands_above_every_rule_and_above_agreement():
    for rule in ("majority", "strictest", "decided"):
        found = grades(rule, [decided("a", 0), decided("c", 3), decided("z", 1), decided("b", None)])
        assert (found["a"], found["c"], found["z"]) == ((0, "decided"), (3, "decided"), (1, "decided"))
        assert found["b"] == grades(rule)["b"]


def test_verdicts_become_one_judgment_per_pair_and_open_ones_none():
    verdicts = adjudicate(LABELS, "majority", [decided("c", 1)])
    assert settled(verdicts) == [
        Judgment("q", "a", 2, "agreed"),
        Judgment("q", "b", 3, "majority"),
        Judgment("q", "c", 1, "Dee", note="decided"),
    ]
    assert verdicts[2] == Verdict("q", "c", 1, "decided", {"Ann": 1, "Bo": 2}, "Dee")
    assert settled(adjudicate(LABELS, "decided")) == [Judgment("q", "a", 2, "agreed")]


def test_an_unknown_rule_is_refused():
    with pytest.raises(InputError, match="majority, strictest, decided"):
        adjudicate(LABELS, "loudest")


JUDGE_SCALE = JudgeScale(0.0, (2.0, 0.0, -2.0))


def scored(*rows: tuple[int, float], per_query: int = 2) -> list[GradedScore]:
    """Pairs of (grade, raw score), `per_query` a query."""
    return [GradedScore(f"q{n // per_query:03d}", f"m{n:03d}", grade, raw) for n, (grade, raw) in enumerate(rows)]


def drawn(seed: int, size: int = 60) -> list[GradedScore]:
    random = np.random.default_rng(seed)
    grades = random.integers(0, 4, size)
    return scored(*((int(grade), float(grade + random.normal(0, 1.5))) for grade in grades), per_query=5)


def test_kappa_of_every_threshold_equals_scikit_learn(subtests: pytest.Subtests) -> None:
    from sklearn.metrics import cohen_kappa_score  # a second: not while every worker collects

    for seed in range(10):
        with subtests.test(seed=seed):
            pairs = drawn(seed)
            found = calibrate(pairs, present=0.7, relevant_from=2, draws=5)
            people = [one.grade >= 2 for one in pairs]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for threshold, kappa in zip(
                    [*found.thresholds, 0.7], [*found.kappas, found.present.value], strict=True
                ):
                    judge = [one.raw > threshold for one in pairs]
                    assert kappa == pytest.approx(cohen_kappa_score(people, judge), nan_ok=True)
            assert found.kappa.value == pytest.approx(np.nanmax(found.kappas))


def test_scores_that_tell_grades_apart_give_a_threshold_between_them_and_kappa_one() -> None:
    found = calibrate(scored((0, -3.0), (1, -1.0), (2, 2.0), (3, 4.0)), present=-5.0, relevant_from=2)
    assert found.threshold is not None
    assert -1.0 <= found.threshold < 2.0
    assert found.kappa.value == 1.0
    assert found.present.value == 0.0  # everything is above -5


def test_the_interval_holds_the_threshold_and_is_a_function_of_the_seed() -> None:
    found = calibrate(drawn(3), 0.0, 2, seed=7)
    assert found.threshold is not None and found.low is not None and found.high is not None
    assert found.low <= found.threshold <= found.high
    again = calibrate(drawn(3), 0.0, 2, seed=7)
    assert (again.low, again.high, again.kappa) == (found.low, found.high, found.kappa)


@pytest.mark.parametrize("pairs", [[], scored((3, 1.0)), scored((0, 1.0), (0, 2.0))], ids=["none", "one", "one side"])
def test_without_both_sides_nothing_is_defined_and_nothing_fails(pairs: list[GradedScore]) -> None:
    found = calibrate(pairs, 0.0, 2, draws=10)
    assert (found.threshold, found.kappa.value) == (None, None)


def test_bands_and_their_grades_by_hand() -> None:
    assert [band(raw, JUDGE_SCALE) for raw in (2.1, 2.0, 0.1, 0.0, -2.0)] == [0, 1, 1, 2, 3]
    assert [grade_of(raw, JUDGE_SCALE) for raw in (3.0, 1.0, -1.0, -3.0)] == [3, 2, 1, 0]
    yes_no = GradeScale(((0, "no"), (1, "yes")))
    assert [grade_of(raw, JUDGE_SCALE, yes_no) for raw in (3.0, 1.0, -1.0, -3.0)] == [1, 1, 0, 0]


def test_confusion_counts_each_pair_once_under_its_grade_and_band() -> None:
    confusion = band_confusion(scored((3, 3.0), (3, 1.0), (0, 1.0), (0, -5.0)), JUDGE_SCALE)
    assert confusion == {3: [1, 1, 0, 0], 0: [0, 1, 0, 1]}
    assert list(confusion) == [3, 0]


def test_only_pairs_that_both_graded_count() -> None:
    found = graded_scores({"q": {"a": 3, "b": 0}}, {("q", "a"): 1.0, ("q", "c"): 2.0, ("r", "a"): 2.0})
    assert found == [GradedScore("q", "a", 3, 1.0)]


@pytest.mark.parametrize("seed", range(5))
def test_reliability_equals_scikit_learns_quantile_curve(seed: int) -> None:
    from sklearn.calibration import calibration_curve

    random = np.random.default_rng(seed)
    probability = random.uniform(size=200)
    relevant = random.uniform(size=200) < probability
    bins = reliability(probability, list(relevant), 8)
    share, mean = calibration_curve(relevant, probability, n_bins=8, strategy="quantile")
    assert [one.share for one in bins] == pytest.approx(list(share))
    assert [one.probability for one in bins] == pytest.approx(list(mean))
    assert sum(one.pairs for one in bins) == 200


def test_calibration_error_by_hand() -> None:
    bins = reliability(np.array([0.2, 0.2, 0.8, 0.8]), [False, False, True, False], 2)
    assert [(one.probability, one.share, one.pairs) for one in bins] == [(0.2, 0.0, 2), (0.8, 0.5, 2)]
    assert calibration_error(bins) == pytest.approx(0.25)
    assert calibration_error([]) is None


def test_wilsons_interval_by_hand() -> None:
    """z² = 3.8415: (0 + 1.9207 -+ 1.9207) / 8.8415 of five trials without success."""
    assert wilson(0, 5) == pytest.approx((0.0, 3.8415 / 8.8415), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_scores_within_zero_and_one_are_probabilities_and_others_logits() -> None:
    assert probabilities(scored((0, 0.2), (1, 0.9)))[1] is True
    found, own = probabilities(scored((0, 0.0), (1, -1000.0)))
    assert not own
    assert list(found) == pytest.approx([0.5, 0.0])


def test_the_widest_difference_comes_first_and_agreement_is_none() -> None:
    found = differences(scored((3, 3.0), (2, -0.5), (3, -4.0), (0, 0.5), (0, -9.0)), JUDGE_SCALE, relevant_from=2)
    assert [(one.scored.grade, one.band, one.steps) for one in found] == [
        (3, "irrelevant", 3),
        (0, "relevant", 2),
        (2, "weak", 1),
    ]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        memories = (Memory("m", "one"), Memory("n", "two"))
        opened.add(ParsedInput("t.jsonl", "t", memories=memories, queries=(Query("q", "what?"), Query("r", "who?"))))
        for qid, memory_id, grade, judge in (
            ("q", "m", 3, "ann"),
            ("q", "m", 1, "bo"),
            ("q", "n", 2, "ann"),
            ("r", "m", 0, "bo"),
        ):
            opened.labels.give(Judgment(qid, memory_id, grade, judge))
        opened.judgments.record([Judgment("q", "m", 0, "minilm", "model")], "here")
        yield opened


def said(judgments: tuple[Judgment, ...]) -> list[tuple[str, str, int, str]]:
    return [(one.qid, one.memory_id, one.grade, one.judge) for one in judgments]


def test_people_alone_unless_models_are_asked_for(store: Store) -> None:
    assert {one.kind for one in choose_judgments(store, {"q", "r"}).judgments} == {"human"}
    assert said(choose_judgments(store, {"q", "r"}, kind="model").judgments) == [("q", "m", 0, "minilm")]
    assert len(choose_judgments(store, {"q", "r"}, kind="all").judgments) == 5


def test_of_some_queries_and_of_one_judge(store: Store) -> None:
    assert said(choose_judgments(store, {"r"}).judgments) == [("r", "m", 0, "bo")]
    assert said(choose_judgments(store, {"q", "r"}, judge="ann").judgments) == [
        ("q", "m", 3, "ann"),
        ("q", "n", 2, "ann"),
    ]


def test_a_rule_leaves_one_grade_a_pair_and_names_what_stays_open(store: Store) -> None:
    found = choose_judgments(store, {"q", "r"}, rule="majority")
    assert said(found.judgments) == [("q", "n", 2, "agreed"), ("r", "m", 0, "agreed")]
    assert found.still_open == ("q m: ann 3, bo 1",)
    strict = choose_judgments(store, {"q", "r"}, rule="strictest")
    assert (strict.still_open, len(strict.judgments)) == ((), 3)


def test_a_decision_by_name_settles_its_pair(store: Store) -> None:
    store.decisions.decide("q", "m", 2, "eve")
    assert ("q", "m", 2, "eve") in said(choose_judgments(store, {"q"}, rule="decided").judgments)


def test_an_unknown_judge_and_kind_are_one_clear_line(store: Store) -> None:
    with pytest.raises(InputError, match="no label of 'zoe'; there are labels of ann, bo, minilm"):
        choose_judgments(store, {"q"}, judge="zoe")
    with pytest.raises(InputError, match="kind: 'dogs'"):
        choose_judgments(store, {"q"}, kind="dogs")


prelabel = partial(score_pairs, keep=True)
PAIRS = [("q", "m0"), ("q", "m3"), ("r", "m1")]


class Lengthy:
    """A judge for whom longer is more relevant; it says what it was asked."""

    batch, label, scale = 8, "lengthy", JudgeScale(10.0, (30.0, 10.0, 5.0))

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def cache_model(self, query: str) -> str:
        return "lengthy"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        self.asked += [(query, text) for text in texts]
        return [PairScore(None, "empty reply: nothing") if text == "mute" else PairScore(len(text)) for text in texts]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Lengthy:
    found = Lengthy()

    def instead(backend: str, request: ScorerRequest, use: Callable[[Lengthy], Any]) -> Any:
        return found, None, use(found)

    monkeypatch.setattr(pooling, "score_with", instead)
    return found


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[Resources]:
    with Store.open(tmp_path / "store") as store:
        memories = (*tuple(Memory(f"m{n}", "x" * (10 * n + 1)) for n in range(5)), Memory("silent", "mute"))
        store.add(ParsedInput("t.jsonl", "t", memories=memories, queries=(Query("q", " what? "), Query("r", "who?"))))
        yield Resources(store, None, servers(Settings()))  # type: ignore[arg-type]


def test_scores_are_of_the_stripped_query_and_the_start_of_the_memory(resources: Resources, judge: Lengthy) -> None:
    config = with_values(PipelineConfig(), {"judge.max_chars": 12})
    found = score_pairs(PAIRS, config, resources)
    assert found.scores == {("q", "m0"): 1.0, ("q", "m3"): 12.0, ("r", "m1"): 11.0}
    assert {query for query, _ in judge.asked} == {"what?", "who?"}
    assert resources.store.judgments.read() == []


def test_a_score_is_asked_for_once(resources: Resources, judge: Lengthy) -> None:
    score_pairs(PAIRS, PipelineConfig(), resources)
    score_pairs(PAIRS, PipelineConfig(), resources)
    assert len(judge.asked) == 3


def test_prelabels_are_the_models_by_band_and_beside_a_persons(resources: Resources, judge: Lengthy) -> None:
    resources.store.labels.give(Judgment("q", "m3", 0, "ada"))
    prelabel(PAIRS, PipelineConfig(), resources)
    kept = resources.store.judgments.read(kind="model")
    assert [(one.qid, one.memory_id, one.grade, one.judge) for one in kept] == [
        ("q", "m0", 0, "lengthy"),
        ("q", "m3", 3, "lengthy"),
        ("r", "m1", 2, "lengthy"),
    ]
    assert kept[1].note == "score 31"
    assert [one.grade for one in resources.store.judgments.read(kind="human")] == [0]


def test_prelabels_are_on_the_scale_of_the_querys_set(resources: Resources, judge: Lengthy) -> None:
    yes_no = GradeScale(((0, "no"), (1, "yes")))
    resources.store.add(
        ParsedInput("u.jsonl", "t", queries=(Query("z", "why?"),)), options=ImportOptions("binary", yes_no)
    )
    prelabel([("z", "m0"), ("z", "m1")], PipelineConfig(), resources)
    assert [one.grade for one in resources.store.judgments.read("z")] == [0, 1]


def test_what_was_judged_before_a_cancel_stays(resources: Resources, judge: Lengthy) -> None:
    def cancel(label: str, done: int, total: int) -> None:
        if done == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        prelabel([*PAIRS, ("r", "m2")], PipelineConfig(), resources, cancel)
    assert [query for query, _ in judge.asked] == ["what?", "what?"]
    prelabel([*PAIRS, ("r", "m2")], PipelineConfig(), resources)
    assert len(judge.asked) == len(resources.store.judgments.read(kind="model")) == 4


def test_a_threshold_and_bands_of_the_config_go_before_the_judges_own(resources: Resources, judge: Lengthy) -> None:
    config = with_values(PipelineConfig(), {"judge.threshold": 3.0, "judge.bands": [40.0, 35.0, 0.0]})
    assert prelabel(PAIRS, config, resources).scale(config.judge) == JudgeScale(3.0, (40.0, 35.0, 0.0))
    assert {one.grade for one in resources.store.judgments.read(kind="model")} == {1}


def test_pairs_without_a_score_are_named_and_a_judge_of_nothing_is_an_error(resources, judge):
    found = prelabel([("q", "m0"), ("q", "silent"), ("gone", "m0"), ("q", "gone")], PipelineConfig(), resources)
    assert (set(found.scores), found.failed) == ({("q", "m0")}, {("q", "silent"): "empty reply: nothing"})
    with pytest.raises(ModelError, match="lengthy judged nothing: empty reply"):
        score_pairs([("q", "silent")], PipelineConfig(), resources)


def test_a_config_without_a_judge_is_refused(resources: Resources) -> None:
    with pytest.raises(InputError, match="the judge is off"):
        prelabel(PAIRS, with_values(PipelineConfig(), {"judge.backend": "none"}), resources)
