"""From search to proposal: cross-validation by group, the sealed hold-out, and labels from which nothing can be learned."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench_shuffled import one_seed
from benchmarks.synthetic_queries import evidences, fusion_only, planted
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.pipeline.table import Ints
from cems_workbench.progress import Cancelled
from cems_workbench.tuning.holdout import LooksFile, gain, looks_path, split
from cems_workbench.tuning.objective import Goal
from cems_workbench.tuning.optimizer import Trial, Watch, unwatched
from cems_workbench.tuning.scorer import BatchScorer
from cems_workbench.tuning.space import SearchSpace, parse_axis
from cems_workbench.tuning.tune import Plan, open_holdout, tune

NDCG = parse_measure("nDCG@10")
GRID = ("lists.vector.weight=0.5:2.5:0.5", "fusion.score_blend=0:0.5:0.25")
WIDE = ("lists.vector.weight=0:3", "lists.lexical.weight=0:3", "fusion.k=1:121:5", "fusion.score_blend")


@cache
def batch() -> LabelledBatch:
    best = fusion_only({"lists.vector.weight": 2.5, "fusion.score_blend": 0.0})
    return planted(evidences(200, lists=2, hits=15), best, noise=0.2)


class Recording(BatchScorer):
    """A scorer that remembers which queries it was asked about."""

    asked: set[int] = set()  # noqa: RUF012 - set anew by `recording`

    def __call__(self, config: object, queries: Ints) -> np.ndarray:  # type: ignore[override]
        self.asked |= set(queries.tolist())
        return super().__call__(config, queries)  # type: ignore[arg-type]


def recording() -> Recording:
    score = Recording(batch(), [NDCG])
    score.asked = set()
    return score


def plan(*texts: str, trials: int = 24) -> Plan:
    groups = [f"conversation {row % 10}" for row in range(200)]
    space = SearchSpace.of(fusion_only(), [parse_axis(text) for text in texts])
    return Plan(space, Goal((NDCG,)), split(groups, folds=4, seed=1), [None] * 200, trials=trials, seed=1)


@pytest.mark.parametrize("texts", [GRID, WIDE], ids=["grid", "wide"])
def test_a_real_gain_is_proposed_validated_and_confirmed_on_queries_nobody_saw(texts: tuple[str, ...]) -> None:
    score, one = recording(), plan(*texts)
    tuned = tune(one, score)
    assert not score.asked & set(one.split.holdout.tolist()), "the hold-out stays sealed"
    assert tuned.validation is not None and tuned.validation.queries == len(one.split.open)
    assert tuned.validation.difference > 0 and tuned.validation.p_greater < 0.01 and tuned.validation.low > 0
    assert tuned.holdout is None and tuned.looks == 0
    opened = open_holdout(tuned, score, LooksFile(), "set", [f"q{row}" for row in one.split.holdout.tolist()])
    assert opened.holdout is not None and opened.holdout.queries == len(one.split.holdout)
    assert opened.holdout.p_greater < 0.01 and opened.looks == 1
    assert opened.config.name == "cems-tuned" and opened.config.fusion != one.space.baseline.fusion


def test_a_fold_never_scores_its_queries_before_its_choice_is_made() -> None:
    one, score = plan(*WIDE, trials=12), recording()
    seen: dict[str, set[int]] = {}

    def stage(name: str) -> Watch:
        score.asked = set()

        def watch(done: int, total: int, best: Trial) -> None:
            seen[name] = set(score.asked)

        return watch

    tune(one, score, stage)
    for fold, held in enumerate(one.split.folds):
        assert seen[f"fold {fold + 1}"] == set(one.split.training(fold).tolist())
        assert not seen[f"fold {fold + 1}"] & set(held.tolist())


def test_the_same_seed_gives_the_same_proposal() -> None:
    one, again = (tune(plan(*WIDE, trials=16), BatchScorer(batch(), [NDCG])) for _ in range(2))
    assert one.config == again.config and one.validation == again.validation and one.train == again.train


def test_cancelling_keeps_the_best_so_far_and_says_that_it_is_not_validated() -> None:
    def stage(name: str) -> Watch:
        def stop(done: int, total: int, best: Trial) -> None:
            if name == "fold 2":
                raise Cancelled

        return stop

    tuned = tune(plan(*WIDE, trials=10), BatchScorer(batch(), [NDCG]), stage)
    assert tuned.search.cancelled and tuned.validation is None
    assert len(tuned.search.trials) > 5 and tuned.proposal.usable
    assert stage("search") is not unwatched


def test_looks_are_counted_in_a_file_per_query_set_and_query(tmp_path: Path) -> None:
    path = looks_path(tmp_path / "x.evidence", "my set/v2")
    assert path == tmp_path / "my-set-v2.looks.json" == looks_path(tmp_path / "gathered-again.evidence", "my set/v2")
    assert looks_path(tmp_path / "x.evidence", "") == tmp_path / "x.evidence.looks.json"
    assert LooksFile(path).look("s", ["q2", "q1"]) == 1
    assert LooksFile(path).look("s", ["q1", "q2"]) == 2
    looks = LooksFile(path)
    assert (looks.count("s", ["q2", "q1"]), looks.count("s", ["q3"]), looks.count("other", ["q1"])) == (2, 0, 0)
    assert looks.look("s", ["q2", "q3"]) == 3, "one of these queries was looked at twice before"
    assert (looks.count("s", ["q1"]), looks.count("s", ["q3"]), looks.count("s", [])) == (2, 1, 0)


@pytest.mark.parametrize("text", ["[]", "{", '{"looks": {"s": 3}}', '{"looks": {"s": {"q": "x"}}}', "[" * 100_000])
def test_a_count_of_looks_that_is_not_one_is_refused_and_never_started_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "looks.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"looks\.json: the count of looks cannot be read"):
        LooksFile(tmp_path / "looks.json")


def test_a_gain_has_its_difference_and_a_one_sided_p() -> None:
    better = gain(np.zeros(40), np.full(40, 0.1))
    assert better.difference == pytest.approx(0.1) and better.p_greater < 0.001
    assert gain(np.full(40, 0.1), np.zeros(40)).p_greater > 0.999
    assert gain(np.ones(40), np.ones(40)).p_greater == 0.5


def test_labels_dealt_at_random_give_no_significant_gain_on_the_hold_out() -> None:
    """Six seeds of the benchmark of a hundred; under chance alone one in a hundred would be significant."""
    made = evidences(120, lists=2, hits=15, seed=5)
    results = [one_seed(made, seed, trials=40) for seed in range(6)]
    assert sum(found.p_greater < 0.01 for found in results) <= 1
    assert all(found.queries > 10 for found in results)
