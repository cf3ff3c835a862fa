"""The Pareto front: what no other beats in one objective without losing in another."""

from __future__ import annotations

import numpy as np

from cems_workbench.pipeline.table import Bools, Floats


def pareto_front(values: Floats) -> Bools:
    """(T) which of T rows of (T, M) values, larger is better, no other row dominates. Equal rows are all on the front."""
    front = np.ones(len(values), dtype=bool)
    for row in range(len(values)):
        at_least = (values >= values[row]).all(axis=1)
        better = (values > values[row]).any(axis=1)
        front[row] = not (at_least & better).any()
    return front
