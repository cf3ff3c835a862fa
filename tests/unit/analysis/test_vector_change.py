"""Other vectors, where it can be worked out: vectors of two kinds of which one is known to rank as the other does."""

from __future__ import annotations

import numpy as np
import pytest

from cems_workbench.analysis.vector_change import Estimate, Known, chosen_memories, estimated, least_of_list, of_list
from cems_workbench.errors import InputError
from cems_workbench.evaluation.metrics import graded, parse_measure
from cems_workbench.pipeline.table import Floats

QUERIES, MEMORIES, DIMENSION = 20, 600, 16


def unit(shape: tuple[int, int], seed: int) -> Floats:
    rows = np.random.default_rng(seed).standard_normal(shape)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def estimate(before: Floats, after: Floats, share: float = 0.1) -> tuple[Estimate, float, int]:
    """The estimate, the true change, and how many were embedded; relevant is what is 1st to 20th under the first kind."""
    relevant = np.argsort(-before, axis=1)[np.arange(QUERIES), np.arange(QUERIES) % 20]
    grades = [{int(number): 1} for number in relevant]
    orders, judged = np.argsort(-before, axis=1).tolist(), sorted({*relevant.tolist()})
    chosen, own = chosen_memories(orders, judged, np.ones(MEMORIES, np.int64), round(share * MEMORIES))
    held = np.full(after.shape, np.nan)
    held[:, chosen] = after[:, chosen]
    known, measured = Known(before, held, np.zeros(before.shape), chosen[own:]), of_list(grades)
    now, _ = measured(before)
    found = estimated("the list", known, least_of_list(known, grades), measured, now, 40, capped=True)

    def value(cosines: Floats) -> float:
        ranked = [[str(number) for number in np.argsort(-row)] for row in cosines]
        own = [{str(number): grade for number, grade in one.items()} for one in grades]
        return float(parse_measure("nDCG@10").values(graded(ranked, own)).mean())

    assert found.before == pytest.approx(value(before))
    return found, value(after) - value(before), len(chosen)


def test_vectors_turned_alike_change_nothing_and_that_is_known_from_a_tenth() -> None:
    queries, memories, turn = (
        unit((QUERIES, DIMENSION), 1),
        unit((MEMORIES, DIMENSION), 2),
        np.linalg.qr(unit((16, 16), 3))[0],
    )
    found, true, embedded = estimate(queries @ memories.T, (queries @ turn) @ (memories @ turn).T)
    assert true == 0 and max(map(abs, (found.change, found.low, found.high))) < 0.002
    assert embedded == 60


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_the_interval_holds_the_true_change_where_vectors_get_worse(noise: float) -> None:
    queries, memories = unit((QUERIES, DIMENSION), 1), unit((MEMORIES, DIMENSION), 2)
    found, true, embedded = estimate(
        queries @ memories.T, queries @ (memories + noise * unit((MEMORIES, DIMENSION), 4)).T
    )
    assert found.low <= true <= found.high and 0 < found.further <= MEMORIES - embedded


def test_all_memories_give_the_value_itself() -> None:
    queries, memories = unit((QUERIES, DIMENSION), 1), unit((MEMORIES, DIMENSION), 2)
    found, true, _ = estimate(queries @ memories.T, unit((QUERIES, DIMENSION), 5) @ memories.T, share=1)
    assert found.change == found.low == found.high == pytest.approx(true) and found.further == 0


def test_a_share_that_the_judged_memories_use_up_is_refused() -> None:
    sizes = np.ones(MEMORIES, np.int64)
    with pytest.raises(
        InputError, match=r"50 memories are judged; embed at least 0\.12 of the 600 vectors, or fewer queries"
    ):
        chosen_memories([], range(50), sizes, 60)


def test_a_memory_that_keeps_its_vectors_is_not_chosen_and_one_with_many_counts_for_all() -> None:
    sizes = np.array([0, 5, 1, 1, *[0] * 596], np.int64)
    chosen, own = chosen_memories([[0, 1, 2, 3]], [0, 2], sizes, 7)
    assert chosen.tolist() == [2, 1, 3] and own == 1
