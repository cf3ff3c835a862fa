"""The search space comes from the config's own metadata."""

from __future__ import annotations

import pytest

from cems_workbench.config import PipelineConfig, field_specs, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.tuning.holdout import split
from cems_workbench.tuning.objective import parse_goal, parse_guard
from cems_workbench.tuning.space import SearchSpace, axis_for, parse_axis, replaced, searchable

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
