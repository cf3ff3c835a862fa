"""The search space and the search itself: a planted optimum, the same seed, and costs as objectives."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from benchmarks.synthetic_queries import NOW, evidences, fusion_only, planted
from cems_workbench.config import PipelineConfig, field_specs, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.progress import Cancelled
from cems_workbench.records import Memory, Query
from cems_workbench.tuning.holdout import split
from cems_workbench.tuning.objective import Goal, RerankedCost, parse_goal, parse_guard
from cems_workbench.tuning.scorer import BatchScorer, measurable, search_marks
from cems_workbench.tuning.space import SearchSpace, axis_for, parse_axis, replaced, searchable
from cems_workbench.tuning.tune import Search, Trial, choose, optimize, simplest_of_best, statistical_ties
from tests.unit.tuning.made_up_scores import Formula

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


def test_scores_that_were_kept_are_not_used_once_somebody_judged_anew() -> None:
    grades = dict(zip(batch().qids, batch().grades, strict=True))
    (qid, first), *_ = grades.items()
    evidences = dict(zip(batch().qids, batch().evidences, strict=True))
    same, other = (
        LabelledBatch(batch().queries, evidences, grades | {qid: each}) for each in (first, dict.fromkeys(first, 3))
    )
    kept = search_marks("hash", batch(), [NDCG], 0)
    assert search_marks("hash", same, [NDCG], 0) == kept != search_marks("hash", other, [NDCG], 0)


@pytest.mark.parametrize("more", [(), ("fusion.k", "fusion.score_blend", "lists.lexical.weight")])
def test_a_parameter_that_changes_no_score_is_proposed_as_the_baseline_has_it(more: tuple[str, ...]) -> None:
    """`filter.min_score` is null in most presets, which is no value of its axis: every config of a search had a number."""
    searched = space("filter.min_score", "lists.vector.weight=0:3:0.5", *more)
    score = Formula(lambda config: [config.lists.vector.weight / 3 - each for each in (0.1, 0.2, 0.3, 0.4)])
    found = optimize(searched, score, Goal((NDCG,)), np.arange(4), trials=40)
    none, weight, *rest = choose(searched, found.trials).values
    assert (none, weight) == (None, 3.0) and rest == [searched.baseline.get(path) for path in more]


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
    assert {trial.phase for trial in found.trials} == {"baseline", "search", "refine", "settle"}
    assert len(found.trials) <= 121 + len(WIDE) and len({trial.values for trial in found.trials}) == len(found.trials)


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


def test_the_nearest_of_those_the_best_cannot_be_told_from_is_proposed() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(200)
    best, close, worse = base + 0.1, base + 0.1 + rng.normal(0, 0.05, 200) - 0.001, base - 0.1
    assert statistical_ties(best, [best, close, worse, base]).tolist() == [True, True, False, False]
    assert simplest_of_best([base, worse, best, close], [0.0, 0.1, 0.5, 0.2]) == 3
    assert simplest_of_best([base, best], [0.0, 0.0]) == 1
    noisy = base + rng.normal(0, 5, 200)  # too noisy to be told from the best, and on average below the baseline
    noisy += base.mean() - 0.05 - noisy.mean()
    assert statistical_ties(best, [noisy])[0] and simplest_of_best([base, noisy, best], [0.0, 0.1, 0.5]) == 2


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


REFUSED = {
    "fusion.kk": "the nearest known one is fusion.k",
    "rerank.model": "needs new evidence",
    "lists.candidate_set.size": "needs new evidence",
    "threshold.applies_to": "cannot be searched",
    "rerank.bands": "search rerank.bands.0",
    "fusion.k=5:1": "allowed: 0 to 10000, low first",
    "fusion.k=1:9:0": "a step above 0",
    "lists.vector.depth=1:9:0.5": "is a whole number",
    "fusion.k=a:b": "'a' is not a number",
    "fusion.k=1:2:3:4": "expected LOW:HIGH",
    "fusion.k=20|20": "duplicate value",
    "fusion.score_blend=0.5|2": "2 is not allowed",
    "fusion.method=rrf|best": "'best' is not one of rrf",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=list(REFUSED))
def test_a_parameter_that_cannot_be_searched_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_axis(text)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_every_replay_parameter_with_a_range_or_choices_has_an_axis_of_allowed_values() -> None:
    names = {spec.path for spec in searchable()}
    assert {"fusion.method", "lists.vector.weight", "rerank.retrieval_score", "lists.lexical.normalization"} <= names
    assert not {spec.path for spec in field_specs() if spec.cost == "gather"} & names
    for spec in searchable():
        axis = axis_for(spec.path)
        for place in {0, axis.size // 2, axis.size - 1}:
            config = with_values(PipelineConfig(), {spec.path: axis.value(place)})
            assert config.get(spec.path) == axis.value(place)
            assert axis.place(axis.value(place)) == place


def test_an_axis_is_narrowed_and_its_values_are_round() -> None:
    axis = parse_axis("fusion.score_blend=0.1:0.7:0.2")
    assert [axis.value(place) for place in range(axis.size)] == [0.1, 0.3, 0.5, 0.7]
    assert parse_axis("fusion.k=20|40|60").choices == (20, 40, 60)
    assert parse_axis("adjust.priority").choices == (False, True)
    assert axis.distance(0.1, 0.4) == pytest.approx(0.5)
    assert parse_axis("fusion.method").distance("rrf", "combsum") == 1.0


def test_a_depth_is_not_searched_beyond_what_was_gathered() -> None:
    gathered = with_values(PipelineConfig(), {"lists.vector.depth": 80})
    assert axis_for("lists.vector.depth", gathered).high == 80
    assert axis_for("lists.vector.depth").high == 300


def test_a_value_is_replaced_as_validation_would_do_it() -> None:
    config = preset("cems").config
    changes = {"fusion.k": 17, "fusion.top_rank_bonus.rank1": 0.1, "lists.vector.weight": 2.0, "filter.min_score": 0.2}
    assert replaced(config, changes) == with_values(config, changes)
    assert replaced(config, {"rerank.bands.1": 0.2}).rerank.bands[1].retrieval == 0.2


def test_a_space_knows_its_constraints_its_size_and_what_is_fixed() -> None:
    config = preset("cems").config
    space = SearchSpace.of(config, [parse_axis("rerank.bands.0"), parse_axis("rerank.bands.1"), parse_axis("fusion.k")])
    assert [rule.words for rule in space.constraints] == ["the retrieval share does not rise with the rank"]
    assert space.keeps(space.config((0.9, 0.5, 60))) and not space.keeps(space.config((0.3, 0.5, 60)))
    assert space.values_of(config) == (0.75, 0.6, 60) and space.distance((0.75, 0.5, 60)) == pytest.approx(0.1)
    assert space.size == 101 * 101 * 200 and len(list(space.grid(200))) <= 200
    fixed = dict(space.fixed())
    assert "fusion.k" not in fixed and fixed["fusion.score_blend"] == 0.5
    with pytest.raises(InputError, match="is in the space twice"):
        SearchSpace.of(config, [parse_axis("fusion.k")] * 2)
    with pytest.raises(InputError, match="the baseline has 3 bands"):
        SearchSpace.of(config, [parse_axis("rerank.bands.3")])


def test_no_group_is_on_two_sides_and_every_query_is_on_one() -> None:
    groups = [f"g{i % 11}" for i in range(200)] + ["large"] * 60
    made = split(groups, folds=5, holdout=0.2, seed=4)
    sides = [*made.folds, made.holdout]
    assert sorted(row for side in sides for row in side.tolist()) == list(range(260))
    names = [{groups[row] for row in side} for side in sides]
    for i, one in enumerate(names):
        assert all(not one & other for other in names[i + 1 :])
    assert 0.1 < len(made.holdout) / 260 < 0.3
    assert len(made.folds) == 5 and sorted(made.training(0).tolist() + made.folds[0].tolist()) == made.open.tolist()
    assert [side.tolist() for side in split(groups, seed=4).folds] == [side.tolist() for side in made.folds]
    assert split(groups, seed=5).holdout.tolist() != made.holdout.tolist()


def test_too_few_groups_are_refused_and_few_make_few_folds() -> None:
    with pytest.raises(InputError, match="1 groups of queries are too few"):
        split(["a"] * 50)
    assert len(split([f"g{i % 3}" for i in range(90)], folds=5, holdout=0.0).folds) == 3


def test_a_guard_is_written_with_its_type_and_tolerance() -> None:
    guard = parse_guard("temporal:hit@5-0.01")
    assert (guard.query_type, str(guard.measure), guard.tolerance) == ("temporal", "hit@5", 0.01)
    assert parse_guard("nDCG@10").query_type is None
    with pytest.raises(InputError):
        parse_guard("a:b:c:d")


@pytest.mark.parametrize("cost", ["reranked", "-reranked", "-candidates", " candidates "])
def test_fewer_candidates_to_the_reranker_are_an_objective_beside_a_measure(cost: str) -> None:
    goal = parse_goal(["nDCG@10", cost, "hit@5", "nDCG@10"], ["temporal:hit@5"])
    assert goal.names == ("nDCG@10", "hit@5", "reranked") and goal.fewer_reranked and len(goal.guards) == 1
    assert not parse_goal(["nDCG@10"]).fewer_reranked


def test_a_cost_alone_is_refused() -> None:
    with pytest.raises(InputError, match="a cost alone is lowest without reranking"):
        parse_goal(["-reranked"])
    with pytest.raises(InputError, match="name a measure"):
        parse_goal([])


SIZES = (3, 6)
"""Candidates of each query."""


def cost_batch() -> LabelledBatch:
    """Two queries; relevant is the last candidate by fusion, which the reranker puts first when it reads it."""
    evidences, grades, queries = {}, {}, []
    for q, size in enumerate(SIZES):
        ids = [f"m{q}{i}" for i in range(size)]
        scores = {key: ModelScore(float(i)) for i, key in enumerate(ids)}
        hits = tuple(Hit(key, 1 - i / 10) for i, key in enumerate(ids))
        evidences[f"q{q}"] = Evidence(
            f"query {q}",
            {key: Memory(key, f"content {key}") for key in ids},
            (Variant(f"query {q}"),),
            (RankedList("vector:0", "vector", 0, hits),),
            NOW,
            model_scores={"cross_encoder": scores},
        )
        grades[f"q{q}"] = {ids[-1]: 1}
        queries.append(Query(f"q{q}", f"query {q}"))
    return LabelledBatch(queries, evidences, grades)


def config(**changes: object) -> PipelineConfig:
    reranking = {
        "rerank.backend": "cross_encoder",
        "rerank.combine": "replace",
        "rerank.raw_scale": "divide_by_10",
        "rerank.depth": 4,
        "rerank.skip_if_few": False,
        "rerank.below_depth": "below",
        "threshold.mode": "none",
    }
    return with_values(
        fusion_only(), {**reranking, **{key.replace("__", "."): value for key, value in changes.items()}}
    )


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        ({}, [3, 4]),
        ({"rerank__depth": None}, [3, 6]),
        ({"rerank__depth": 1}, [1, 1]),
        ({"rerank__score_window": 0.0}, [1, 1]),
        ({"rerank__skip_if_few": True, "assembly__limit": 5}, [0, 4]),
        ({"rerank__skip_if_few": True, "assembly__limit": 6}, [0, 0]),
        ({"rerank__backend": "none"}, [0, 0]),
        ({"lists__vector__depth": 2}, [2, 2]),
    ],
)
def test_what_is_sent_is_what_replay_sends(changes: dict[str, object], sent: list[int]) -> None:
    found = cost_batch().rankings(config(**changes))
    assert found.sent.tolist() == sent and found.reranked == sum(sent)
    score = BatchScorer(cost_batch(), [RerankedCost()])
    assert score(config(**changes), np.array([1, 0]))[:, 0].tolist() == [-float(one) for one in reversed(sent)]


def test_the_front_weighs_quality_against_what_is_sent() -> None:
    goal = parse_goal(["hit@1", "-candidates"])
    made = measurable(cost_batch(), goal.measures)
    space = SearchSpace.of(config(), [parse_axis("rerank.depth=1:6:1")])
    found = optimize(space, BatchScorer(made, goal.measures), goal, np.arange(2), trials=6)
    reached = {trial.values[0]: trial.reached.tolist() for trial in found.trials}
    assert reached == {1: [0.0, -1.0], 2: [0.0, -2.0], 3: [0.5, -3.0], 4: [0.5, -3.5], 5: [0.5, -4.0], 6: [1.0, -4.5]}
    assert sorted(found.trials[i].values[0] for i in found.front) == [1, 3, 6]


def test_the_cost_stands_last_among_the_objectives_and_before_what_only_guards_read() -> None:
    hit, ndcg, recall = map(parse_measure, ("hit@1", "nDCG@10", "recall@10"))
    goal = parse_goal(["hit@1", "reranked", "nDCG@10"], ["recall@10", "hit@1"])
    assert goal.measures == (hit, ndcg, RerankedCost(), recall) and goal.names == ("hit@1", "nDCG@10", "reranked")
    scores = np.array([[1.0, 0.5, -4.0, 0.0], [0.0, 0.5, -2.0, 1.0]])
    assert goal.reached(scores).tolist() == [0.5, 0.5, -3.0]
    assert Goal((hit,)).reached(scores).tolist() == [0.5]
    worse = scores - np.array([0.0, 0.0, 9.0, 0.5])
    assert goal.shortfalls(worse, scores, [None, None]).tolist() == [0.5, 0.0]
