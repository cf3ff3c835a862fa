"""Input of measures: Q rankings as the grade at each rank, and all judged grades.

A query is answerable where a memory was judged relevant for it, and unanswerable if it is marked as having no answer and nothing was
judged relevant. It is neither while all that was judged is irrelevant and nobody said so: what was not looked at may answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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
    unanswerable: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """(Q) is the query marked as having no answer? Empty if none is."""
    score: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """(Q, R) final score of the result at each rank, NaN past the end; empty where scores are not known."""
    signals: Callable[[str], Floats] | None = None
    """(Q) of a signal of abstain, by its name, NaN where a query has none; None where they are not known."""
    stale: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    """(Q, R) has the result at this rank expired, or is it superseded by memories of which none is ranked above it? Empty where that is
    not known of any query."""
    stale_known: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """(Q) whether it is known; empty where it is of none."""
    chosen: str = ""
    """Which of the signals says how sure a ranking is; empty: the score of the first result."""

    def relevant(self, grade: int) -> Bools:
        """(Q, R) judged results of at least this grade."""
        relevant: Bools = self.judged & (self.grade >= grade)
        return relevant

    def relevant_count(self, grade: int) -> Ints:
        """(Q) judged memories of at least this grade, found or not."""
        count: Ints = (self.ideal >= grade).sum(axis=1)
        return count

    def answerable(self, grade: int) -> Bools:
        """(Q) is a memory of at least this grade known?"""
        known: Bools = self.relevant_count(grade) > 0
        return known

    def without_answer(self, grade: int) -> Bools:
        """(Q) was it said that nothing answers the query, and is no memory of at least this grade known? A judgment wins."""
        said = self.unanswerable if len(self.unanswerable) else np.zeros(len(self.filled), dtype=bool)
        without: Bools = said & ~self.answerable(grade)
        return without

    def signal(self) -> Floats:
        """(Q) how sure the ranking is of an answer: the score of the first result, -inf without results or scores; or the chosen
        signal, NaN where a query has none."""
        if self.chosen:
            return self.signals(self.chosen) if self.signals is not None else np.full(len(self.filled), np.nan)
        if not self.score.shape[1]:
            return np.full(len(self.filled), -np.inf)
        return np.where(self.filled[:, 0] & ~np.isnan(self.score[:, 0]), self.score[:, 0], -np.inf)

    def of_queries(self, rows: Ints) -> GradedRankings:
        """Those of some queries, by their numbers."""
        signals = self.signals
        return GradedRankings(
            self.grade[rows],
            self.judged[rows],
            self.filled[rows],
            self.ideal[rows],
            self.unanswerable[rows] if len(self.unanswerable) else self.unanswerable,
            self.score[rows] if len(self.score) else self.score,
            None if signals is None else lambda name: signals(name)[rows],
            self.stale[rows] if len(self.stale) else self.stale,
            self.stale_known[rows] if len(self.stale_known) else self.stale_known,
            self.chosen,
        )


def graded(
    rankings: Sequence[Sequence[str]],
    grades: Sequence[Mapping[str, int]],
    unanswerable: Sequence[bool] = (),
    scores: Sequence[Sequence[float]] = (),
) -> GradedRankings:
    """From rankings of memory ids, best first, and the grades of each query by memory id.

    `unanswerable` marks the queries without an answer, none if it is empty; `scores` are those of the results.
    """
    depth = max((len(ranking) for ranking in rankings), default=0)
    grade = np.zeros((len(rankings), depth), dtype=np.int64)
    judged, filled = (np.zeros(grade.shape, dtype=bool) for _ in range(2))
    for q, ranking in enumerate(rankings):
        filled[q, : len(ranking)] = True
        judged[q, : len(ranking)] = [key in grades[q] for key in ranking]
        grade[q, : len(ranking)] = [grades[q].get(key, 0) for key in ranking]
    score = np.full(grade.shape, np.nan) if len(scores) else np.zeros((0, 0))
    for q, given in enumerate(scores):
        score[q, : len(given)] = given
    ideal = ideal_grades([list(of_query.values()) for of_query in grades])
    return GradedRankings(grade, judged, filled, ideal, np.array(unanswerable, dtype=bool), score)


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
