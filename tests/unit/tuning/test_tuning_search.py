"""The search itself: a planted optimum is found, the same seed gives the same, and cancelling loses nothing."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks.synthetic_queries import evidences, fusion_only, planted
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.progress import Cancelled
from cems_workbench.tuning.objective import Goal, parse_guard
from cems_workbench.tuning.optimizer import Search, Trial, optimize, pareto_front, simplest_of_best, statistical_ties
from cems_workbench.tuning.scorer import BatchScorer
from cems_workbench.tuning.space import SearchSpace, parse_axis

NDCG, HIT = parse_measure("nDCG@10"), parse_measure("hit@1")
GRID = ("lists.vector.weight=0.5:2.5:0.5", "fusion.score_blend=0:0.5:0.25")
WIDE = (
    "lists.vector.weight=0:3",
    "lists.lexical.weight=0:3",
    "fusion.k=1:121:5",
    "fusion.score_blend",
    "fusion.normalize",
)
PLANTED = {"lists.vector.weight": 2.0, "fusion.score_blend": 0.25}


@cache
def batch() -> LabelledBatch:
    return planted(evidences(150, lists=2, hits=20), fusion_only(PLANTED))


def space(*texts: str) -> SearchSpace:
    return SearchSpace.of(fusion_only(), [parse_axis(text) for text in texts])


def scorer(*measures: object, part: int = 50) -> BatchScorer:
    return BatchScorer(batch(), measures or (NDCG,), part=part)  # type: ignore[arg-type]


def run(score: BatchScorer, *texts: str, trials: int = 60, seed: int = 3, **options: object) -> Search:
    rows = np.arange(len(batch().queries))
    return optimize(space(*texts), score, Goal((NDCG,)), rows, trials=trials, seed=seed, **options)  # type: ignore[arg-type]


def trace(found: Search) -> list[tuple[object, ...]]:
    return [(t.values, t.pruned, t.phase, t.reached.tolist(), t.scores.tolist()) for t in found.trials]


def test_a_planted_optimum_on_a_grid_is_found() -> None:
    found = run(scorer(), *GRID)
    assert len(found.trials) == 1 + 5 * 3 - 1  # the baseline is one of the grid
    assert found.best.values == (2.0, 0.25)
    assert found.best.reached[0] == pytest.approx(1.0)
    assert found.baseline.reached[0] < 0.99


def test_a_planted_optimum_in_a_wide_space_is_approached_and_refined() -> None:
    found = run(scorer(), *WIDE, trials=120)
    assert found.best.reached[0] > max(0.97, found.baseline.reached[0])
    assert {trial.phase for trial in found.trials} == {"baseline", "search", "refine"}
    assert len(found.trials) <= 121 and len({trial.values for trial in found.trials}) == len(found.trials)


def test_the_same_seed_gives_the_same_search_and_another_seed_another() -> None:
    one, same, other = (run(scorer(), *WIDE, trials=40, seed=seed) for seed in (1, 1, 2))
    assert trace(one) == trace(same)
    assert trace(one) != trace(other)


@pytest.mark.parametrize("texts", [GRID, WIDE], ids=["grid", "wide"])
def test_a_cancelled_search_that_is_run_again_equals_an_uninterrupted_one(texts: tuple[str, ...]) -> None:
    score, stop_at = scorer(), 9

    def stop(done: int, total: int, best: Trial) -> None:
        assert done <= total and best.usable
        if done == stop_at:
            raise Cancelled

    cut = run(score, *texts, trials=30, watch=stop)
    assert cut.cancelled and len(cut.trials) == stop_at
    before = score.evaluations
    resumed, whole = run(score, *texts, trials=30), run(scorer(), *texts, trials=30)
    assert trace(resumed) == trace(whole) and trace(resumed)[:stop_at] == trace(cut)
    again = score.evaluations
    run(score, *texts, trials=30)
    assert again > before and score.evaluations == again, "what is known is not scored again"


def test_a_config_is_given_up_when_the_first_queries_say_enough() -> None:
    found = run(scorer(part=50), *WIDE, trials=60)
    given_up = [trial for trial in found.trials if trial.pruned]
    assert given_up and all(len(trial.scores) == 50 for trial in given_up)
    whole = scorer()
    rows = np.arange(len(batch().queries))
    for trial in given_up[:8]:
        assert whole(trial.config, rows)[:, 0].mean() < found.best.reached[0]


def test_scores_of_parts_are_those_of_the_whole_batch_in_any_order() -> None:
    config = fusion_only({"fusion.k": 7})
    rows = np.random.default_rng(0).permutation(len(batch().queries))
    values = NDCG.values(batch().rankings(config).graded)
    assert scorer(part=37)(config, rows)[:, 0].tolist() == values[rows].tolist()
    assert scorer(part=1000)(config.model_copy(update={"name": "other"}), rows)[:, 0].tolist() == values[rows].tolist()


def test_a_guard_keeps_the_search_from_a_config_that_breaks_it() -> None:
    rows = np.arange(len(batch().queries))
    types = ["temporal" if row % 3 == 0 else "other" for row in rows]
    goal = Goal((NDCG,), (parse_guard("temporal:hit@1"),))
    found = optimize(space(*GRID), BatchScorer(batch(), goal.measures), goal, rows, types=types, trials=20)
    temporal = np.array([kind == "temporal" for kind in types])
    base = found.baseline.scores[temporal, 1].mean()
    broken = [trial for trial in found.trials if trial.broken]
    for trial in found.trials:
        assert bool(trial.broken) == (trial.scores[temporal, 1].mean() < base - 1e-12)
    assert found.best not in broken
    assert str(goal.guards[0]) == "temporal hit@1 not below the baseline"


def test_several_objectives_have_a_front_that_nothing_dominates() -> None:
    rows = np.arange(len(batch().queries))
    goal = Goal((NDCG, HIT))
    found = optimize(space(*WIDE), BatchScorer(batch(), goal.measures), goal, rows, trials=30)
    points = np.stack([trial.reached for trial in found.trials])
    assert found.front
    for i in found.front:
        assert not ((points >= points[i]).all(axis=1) & (points > points[i]).any(axis=1)).any()


def test_the_front_of_four_points() -> None:
    points = np.array([[1.0, 0.0], [0.5, 0.5], [0.4, 0.5], [0.0, 1.0]])
    assert pareto_front(points).tolist() == [True, True, False, True]


def test_the_nearest_of_those_the_best_cannot_be_told_from_is_proposed() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(200)
    best, close, worse = base + 0.1, base + 0.1 + rng.normal(0, 0.05, 200) - 0.001, base - 0.1
    assert statistical_ties(best, [best, close, worse, base]).tolist() == [True, True, False, False]
    assert simplest_of_best([base, worse, best, close], [0.0, 0.1, 0.5, 0.2]) == 3
    assert simplest_of_best([base, best], [0.0, 0.0]) == 1


def test_the_best_so_far_that_is_watched_is_the_best_of_the_trials_so_far() -> None:
    watched: list[Trial] = []
    found = run(scorer(), *WIDE, watch=lambda done, total, best: watched.append(best))
    assert len(watched) == len(found.trials) and any(trial.pruned for trial in found.trials)
    for done, best in enumerate(watched, 1):
        assert best.values == Search(found.trials[:done]).best.values
    guarded = Goal((NDCG,), (parse_guard("hit@1"),))
    watched.clear()
    rows = np.arange(len(batch().queries))
    found = optimize(
        space(*GRID),
        scorer(NDCG, HIT),
        guarded,
        rows,
        trials=30,
        seed=3,
        watch=lambda done, total, best: watched.append(best),
    )
    for done, best in enumerate(watched, 1):
        assert best.values == Search(found.trials[:done]).best.values
