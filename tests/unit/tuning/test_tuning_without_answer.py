"""Tuning for queries with an answer and without one: objectives and guards of either kind, on a batch of both."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.synthetic_queries import NOW, fusion_only
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant
from cems_workbench.records import Memory, Query
from cems_workbench.tuning.holdout import split
from cems_workbench.tuning.objective import Goal, parse_goal, parse_guard
from cems_workbench.tuning.optimizer import optimize
from cems_workbench.tuning.scorer import BatchScorer, measurable
from cems_workbench.tuning.space import SearchSpace, parse_axis
from cems_workbench.tuning.tune import Plan, tune

SPACE = "abstain.vector=0:1:0.1"


def batch(each: int = 20) -> LabelledBatch:
    """Queries whose first cosine is 0.55 to 0.75 with an answer, and 0.35 to 0.65 without one; the first hit is the answer."""
    queries, evidences, grades = [], {}, {}
    for kind, low, high in ((True, 0.55, 0.75), (False, 0.35, 0.65)):
        for i, top in enumerate(np.linspace(low, high, each)):
            qid, ids = f"{kind}{i}", [f"{kind}{i}-{n}" for n in range(5)]
            hits = tuple(Hit(key, float(top) - n / 100) for n, key in enumerate(ids))
            evidences[qid] = Evidence(
                qid,
                {key: Memory(key, key) for key in ids},
                (Variant(qid),),
                (RankedList("vector:0", "vector", 0, hits),),
                NOW,
            )
            queries.append(Query(qid, qid, answerable=None if kind else False))
            if kind:
                grades[qid] = {ids[0]: 1}
    return LabelledBatch(queries, evidences, grades)


def searched(goal: Goal) -> dict[float | None, tuple[list[float], bool]]:
    """By threshold what was reached, as the measures give it, and whether every guard holds."""
    made = measurable(batch(), goal.measures)
    found = optimize(
        SearchSpace.of(fusion_only(), [parse_axis(SPACE)]),
        BatchScorer(made, goal.measures),
        goal,
        np.arange(40),
        trials=20,
    )
    return {
        None if trial.values[0] is None else round(trial.values[0], 1): (
            goal.as_measured(trial.reached).tolist(),
            trial.usable,
        )
        for trial in found.trials
    }


def test_means_are_over_the_queries_that_a_measure_is_of() -> None:
    """At 0.6: 5 of 20 answers and 16 of 20 noises have a cosine below it."""
    goal = parse_goal(["hit@1", "noise@5"])
    assert goal.directions.tolist() == [1, -1]
    reached = searched(goal)
    assert reached[None] == ([1.0, 1.0], True)
    assert reached[0.6][0] == pytest.approx([0.75, 0.2], abs=0.05)
    assert reached[0.8] == ([0.0, 0.0], True)
    front = sorted(tuple(values) for values, _ in reached.values())
    assert len(set(front)) > 3


@pytest.mark.parametrize(
    ("metric", "guard"), [("hit@1", "noise@5<=0.5"), ("noise@5", "hit@1>=0.9"), ("noise@5", "refused<=0.1")]
)
def test_the_best_within_a_bound_is_proposed_and_measured_in_the_measures_own_scale(metric: str, guard: str) -> None:
    goal = parse_goal([metric], [guard])
    made = measurable(batch(), goal.measures)
    space, score = SearchSpace.of(fusion_only(), [parse_axis(SPACE)]), BatchScorer(made, goal.measures)
    groups = [f"g{i % 8}" for i in range(40)]
    tuned = tune(Plan(space, goal, split(groups, 4, 0.0, 1), [None] * 40, 20, 1), score)
    # 0.5 lets half the noise through and refuses no answer; 0.6 refuses a quarter of them.
    assert tuned.proposal.values[0] == pytest.approx(0.5)
    assert tuned.validation is not None
    assert (tuned.validation.queries, tuned.validation.direction) == (20, goal.objectives[0].direction)
    if metric == "noise@5":
        assert tuned.validation.difference < 0 < tuned.validation.improvement
        assert tuned.validation.baseline == 1.0 and tuned.validation.p_greater < 0.01
        assert 0 < tuned.train == pytest.approx(tuned.validation.tuned, abs=0.1)


def test_a_bound_that_nothing_holds_leaves_the_baseline() -> None:
    goal = parse_goal(["hit@1"], ["noise@5<=0.1", "hit@1>=0.9"])
    made = measurable(batch(), goal.measures)
    space, score = SearchSpace.of(fusion_only(), [parse_axis(SPACE)]), BatchScorer(made, goal.measures)
    tuned = tune(Plan(space, goal, split([str(i) for i in range(40)], 4, 0.0, 1), [None] * 40, 20, 1), score)
    assert tuned.kept and {str(guard) for guard in tuned.proposal.broken} == {"noise@5 at most 0.1"}
    assert not any(trial.usable for trial in tuned.search.trials)


def test_queries_without_an_answer_count_only_where_a_measure_is_of_them() -> None:
    sizes = {text: len(measurable(batch(), parse_goal([text]).measures).queries) for text in ("hit@1", "noise@5")}
    assert sizes == {"hit@1": 20, "noise@5": 20}
    assert len(measurable(batch(), parse_goal(["hit@1"], ["answered"]).measures).queries) == 40


@pytest.mark.parametrize(
    ("guard", "says"),
    [
        ("noise@5", "noise@5 not above the baseline"),
        ("temporal:noise@5-0.1", "temporal noise@5 not above the baseline + 0.1"),
        ("noise@5 <= 0.25", "noise@5 at most 0.25"),
        ("hit@1>=.5", "hit@1 at least 0.5"),
    ],
)
def test_guards_say_which_side_is_worse(guard: str, says: str) -> None:
    assert str(parse_guard(guard)) == says


@pytest.mark.parametrize(
    ("guard", "reason"),
    [
        ("noise@5>=0.2", "less of noise@5 is better: write noise@5<=0.2"),
        ("hit@1<=0.2", "more of hit@1 is better"),
        ("hit@1>=1.2.3", "1.2.3 is not a number"),
        ("AUROC>=0.8", "of all queries together"),
    ],
)
def test_a_guard_that_says_nothing_is_one_line(guard: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_guard(guard)
