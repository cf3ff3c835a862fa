"""Another embedder, where it can be worked out: vectors of two kinds of which one is known to rank as the other does."""

from __future__ import annotations

import numpy as np
import pytest

from cems_workbench.analysis.embedder_change import EmbedderChange, change_of, chosen_memories
from cems_workbench.errors import InputError
from cems_workbench.evaluation.metrics import graded, parse_measure
from cems_workbench.pipeline.table import Floats

QUERIES, MEMORIES, DIMENSION = 20, 600, 16


def unit(shape: tuple[int, int], seed: int) -> Floats:
    rows = np.random.default_rng(seed).standard_normal(shape)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def estimated(before: Floats, after: Floats, share: float = 0.1) -> tuple[EmbedderChange, float]:
    """The estimate, and the true change; relevant is what is 1st to 20th under the first kind."""
    relevant = np.argsort(-before, axis=1)[np.arange(QUERIES), np.arange(QUERIES) % 20]
    grades = [{int(number): 1} for number in relevant]
    chosen = chosen_memories(before, sorted({*relevant.tolist()}), round(share * MEMORIES))
    found = change_of(("a", "b"), before, chosen, after[:, chosen[0]], grades, draws=40)

    def value(cosines: Floats) -> float:
        ranked = [[str(number) for number in np.argsort(-row)] for row in cosines]
        own = [{str(number): grade for number, grade in one.items()} for one in grades]
        return float(parse_measure("nDCG@10").values(graded(ranked, own)).mean())

    assert found.before == pytest.approx(value(before))
    return found, value(after) - value(before)


def test_vectors_turned_alike_change_nothing_and_that_is_known_from_a_tenth() -> None:
    queries, memories, turn = (
        unit((QUERIES, DIMENSION), 1),
        unit((MEMORIES, DIMENSION), 2),
        np.linalg.qr(unit((16, 16), 3))[0],
    )
    found, true = estimated(queries @ memories.T, (queries @ turn) @ (memories @ turn).T)
    assert true == 0 and max(map(abs, (found.change, found.low, found.high))) < 0.002
    assert found.embedded == 60 and found.memories == MEMORIES


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_the_interval_holds_the_true_change_where_vectors_get_worse(noise: float) -> None:
    queries, memories = unit((QUERIES, DIMENSION), 1), unit((MEMORIES, DIMENSION), 2)
    found, true = estimated(queries @ memories.T, queries @ (memories + noise * unit((MEMORIES, DIMENSION), 4)).T)
    assert found.low <= true <= found.high and 0 < found.further <= MEMORIES - found.embedded


def test_all_memories_give_the_value_itself() -> None:
    queries, memories = unit((QUERIES, DIMENSION), 1), unit((MEMORIES, DIMENSION), 2)
    found, true = estimated(queries @ memories.T, unit((QUERIES, DIMENSION), 5) @ memories.T, share=1)
    assert found.change == found.low == found.high == pytest.approx(true) and found.further == 0


def test_a_share_that_the_judged_memories_use_up_is_refused() -> None:
    cosines = unit((QUERIES, MEMORIES), 1)
    with pytest.raises(InputError, match=r"50 memories are judged; embed at least 0\.12 of the 600, or fewer queries"):
        chosen_memories(cosines, range(50), 60)
