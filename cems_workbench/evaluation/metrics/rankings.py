"""What measures read: Q rankings as the grades that stand at each rank, beside every grade that was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cems_workbench.pipeline.table import Bools, Floats, Ints

NO_GRADE = np.iinfo(np.int64).min
"""Stands where `ideal` has no further grade: below every threshold, and no gain."""


@dataclass(frozen=True, eq=False)
class GradedRankings:
    """Q rankings of at most R results. A result that nobody judged has grade 0 and is not `judged`."""

    grade: Ints
    """(Q, R) grade of the result at each rank, 0 where unjudged or past the end."""
    judged: Bools
    """(Q, R) is the result at this rank judged?"""
    filled: Bools
    """(Q, R) is there a result at this rank?"""
    ideal: Ints
    """(Q, J) every grade given for the query, highest first, then NO_GRADE."""

    def relevant(self, grade: int) -> Bools:
        """(Q, R) judged results of at least this grade."""
        relevant: Bools = self.judged & (self.grade >= grade)
        return relevant

    def relevant_count(self, grade: int) -> Ints:
        """(Q) judged memories of at least this grade, found or not."""
        count: Ints = (self.ideal >= grade).sum(axis=1)
        return count


def graded(rankings: Sequence[Sequence[str]], grades: Sequence[Mapping[str, int]]) -> GradedRankings:
    """From rankings of memory ids, best first, and the grades of each query by memory id."""
    depth = max((len(ranking) for ranking in rankings), default=0)
    grade = np.zeros((len(rankings), depth), dtype=np.int64)
    judged, filled = (np.zeros(grade.shape, dtype=bool) for _ in range(2))
    for q, ranking in enumerate(rankings):
        filled[q, : len(ranking)] = True
        judged[q, : len(ranking)] = [key in grades[q] for key in ranking]
        grade[q, : len(ranking)] = [grades[q].get(key, 0) for key in ranking]
    return GradedRankings(grade, judged, filled, ideal_grades([list(of_query.values()) for of_query in grades]))


def ideal_grades(grades: Sequence[Sequence[int]]) -> Ints:
    """(Q, J) the grades of each query, highest first, padded with NO_GRADE."""
    out = np.full((len(grades), max((len(row) for row in grades), default=0)), NO_GRADE, dtype=np.int64)
    for q, row in enumerate(grades):
        out[q, : len(row)] = sorted(row, reverse=True)
    return out


def discounts(depth: int) -> Floats:
    """(depth) 1 / log2(1 + rank) of ranks 1, 2, ..."""
    weights: Floats = 1 / np.log2(np.arange(2, depth + 2))
    return weights
