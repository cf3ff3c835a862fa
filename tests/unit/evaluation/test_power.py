"""Labels needed, against numbers worked out by hand: `sets`, of which one config ranks a to h and the other h to a."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sets import AS_LISTED, JUDGMENTS, OTHER_WAY, QUERIES, evidences

from cems_workbench.errors import InputError
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.evaluation.power import Power, power_of
from cems_workbench.evaluation.verdict import queries_to_exclude


def found(name: str = "MRR@3", shown: int = 20) -> Power:
    grades = agreed_grades(JUDGMENTS, None)
    configs = [AS_LISTED, OTHER_WAY]
    return power_of(QUERIES, [evidences()] * 2, grades, configs, parse_measure(name), shown=shown)


def test_a_query_can_reach_what_its_unjudged_results_allow() -> None:
    movable = {one.qid: one for one in found().movable}
    assert set(movable) == {"q1", "q2", "q3", "q5", "q6"}, "q4 has no results"
    best = movable["q2"]  # a is unjudged: the first of one way, and g is the second of the other
    assert {pair.memory_id: pair.best_rank for pair in best.unjudged} == {"a": 1, "h": 1, "b": 2, "c": 3, "f": 3}
    assert (best.now, best.lowest, best.highest) == (0.5, -0.5, 1.0)
    nothing = movable["q6"]
    assert math.isnan(nothing.now) and (nothing.lowest, nothing.highest) == (-1, 1)
    judged = movable["q1"]  # a is relevant and h is not: the first places are known
    assert [pair.memory_id for pair in judged.unjudged] == ["b", "g", "c", "f"]
    assert (judged.now, judged.lowest, judged.highest) == (-1, -1, -0.5)


def test_the_number_of_queries_is_that_of_the_spread_and_of_what_is_rare() -> None:
    spread = np.array([0.1, -0.1] * 10)
    deviation = float(spread.std(ddof=1))
    assert queries_to_exclude(spread, 0.02) == math.ceil(((1.959964 + 0.841621) * deviation / 0.02) ** 2)
    assert queries_to_exclude(np.zeros(20), 0.01) == 296, "until 1 % / 99 % of the queries were seen"
    assert queries_to_exclude(spread[:9], 0.01) is None


@pytest.mark.parametrize("name", ["AUROC", "tokens"])
def test_a_measure_that_no_label_of_a_query_changes_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="power needs one that labels of single queries change"):
        found(name)
