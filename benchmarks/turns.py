"""Peers asked in turn, call by call, so that what else the machine does falls on all of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Summary = tuple[float, float]
"""Median and 95th percentile, in milliseconds."""


def summary(ms: Sequence[float]) -> Summary:
    """Of what calls took."""
    return float(np.median(ms)), float(np.percentile(ms, 95))


@dataclass(frozen=True, slots=True)
class Turns:
    """What one peer took for each call, in milliseconds, and answered."""

    ms: list[float]
    answers: list[Any]

    @property
    def summary(self) -> Summary:
        return summary(self.ms)


def in_turn(rounds: int, *peers: Callable[[int], Any], warm: int = 0) -> list[Turns]:
    """Each peer called with 0 to `rounds` - 1; another one begins each time. What the first `warm` calls took is left out."""
    found = [Turns([], []) for _ in peers]
    order = deque(zip(found, peers, strict=True))
    for number in range(rounds):
        for own, call in order:
            began = time.perf_counter()
            answer = call(number)
            took = 1e3 * (time.perf_counter() - began)
            if number >= warm:
                own.ms.append(took)
                own.answers.append(answer)
        order.rotate()
    return found
