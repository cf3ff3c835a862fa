"""Measures of fidelity: agreement of the results of a set of queries with a real system's answers.

    same_order   share of queries with the same memories in the same order, to the end
    same_set     share with the same memories, in any order
    same_first   share with the same first memory; two empty answers are the same
    up_to_ties   share with the same order, where results of equal recorded scores may come in any order (`ties`)
    same_scores  share in which every recorded score is ours, memory by memory, whatever the order; a memory that we cut has its score
                 before the cut
    overlap      mean Jaccard overlap of the first k (ten): memories in both / memories in either, 1 for two empty answers
    rbo          mean rank-biased overlap of the whole orders (`why.side_effects`)
    tau          mean Kendall's tau of the whole orders (`why.side_effects`)
    score_difference   the largest difference of two scores, over the queries with the same order and recorded scores

`up_to_ties` and `same_scores` are of our results with equal scores of our lists in the recorded order, where the recording has those
lists: what an engine makes of equal scores is chance, and their ranks change scores further down.

Intervals are those of evaluation: a bootstrap over queries (`evaluation.statistics`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cems_workbench.analysis.fidelity.answer import equal, same_up_to_ties
from cems_workbench.analysis.ranks import kendall, rbo
from cems_workbench.evaluation.statistics import bootstrap, means
from cems_workbench.pipeline.table import Floats

SHARES = ("same_order", "same_set", "same_first", "up_to_ties", "same_scores")
MEANS = ("overlap", "rbo", "tau")
SCORE_DIFFERENCE = "score_difference"
MEASURES: Mapping[str, str] = {
    "same_order": "share of queries with the same memories in the same order, to the end",
    "same_set": "share of queries with the same memories, in any order",
    "same_first": "share of queries with the same first memory",
    "up_to_ties": "share of queries with the same order, if equal scores may come in any order",
    "same_scores": "share of queries in which every recorded score is ours, memory by memory",
    "overlap": "mean Jaccard overlap of the first ten",
    "rbo": "mean rank-biased overlap, 0 to 1: the top counts most",
    "tau": "mean Kendall's tau: 1 the same order, −1 reversed",
    SCORE_DIFFERENCE: "largest difference of two scores where the order is the same",
}
DEPTH = 10
EXACT_PRECISION = 1e-6
"""Scores that differ by less are the same: a real system computes some of its numbers in single precision."""


@dataclass(frozen=True, slots=True)
class QueryFidelity:
    """One query: the recorded memories, ours (cut to the recorded length), and their scores.

    `unknown` are recorded results that are no memory of the store; `recorded` has them under their original id. Scores
    that differ by no more than `precision` are the same. `settled` are our results and scores with equal scores of our lists in the
    recorded order, None where that changes nothing. `before_cut` are the recorded scores before the last cut, `ours_before_cut` our scores
    of the same moment, those of the settled lists if there are any. `depth` is the k of the overlap.
    """

    qid: str
    query: str
    recorded: tuple[str, ...]
    ours: tuple[str, ...]
    recorded_scores: Mapping[str, float]
    our_scores: Mapping[str, float]
    unknown: tuple[str, ...] = ()
    precision: float = EXACT_PRECISION
    settled: Mapping[str, float] | None = None
    before_cut: Mapping[str, float] = field(default_factory=dict)
    ours_before_cut: Mapping[str, float] = field(default_factory=dict)
    depth: int = DEPTH

    @property
    def same_order(self) -> bool:
        """The same memories in the same order."""
        return self.recorded == self.ours

    @property
    def same_set(self) -> bool:
        """The same memories."""
        return set(self.recorded) == set(self.ours)

    @property
    def same_first(self) -> bool:
        """The same first memory, or none in both."""
        return self.recorded[:1] == self.ours[:1]

    @property
    def overlap(self) -> float:
        """Jaccard overlap of the first `depth`."""
        theirs, own = set(self.recorded[: self.depth]), set(self.ours[: self.depth])
        return len(theirs & own) / len(theirs | own) if theirs | own else 1.0

    @property
    def up_to_ties(self) -> bool:
        """The same order, where results of equal recorded scores may come in any order."""
        if self.same_order:
            return True
        return self._same_up_to_ties(self.ours) or (
            self.settled is not None and self._same_up_to_ties(tuple(self.settled))
        )

    def _same_up_to_ties(self, ours: tuple[str, ...]) -> bool:
        scores, cut, precision = self.recorded_scores, self.before_cut, self.precision
        return same_up_to_ties(self.recorded, ours, scores, cut, self.ours_before_cut, precision)

    @property
    def same_scores(self) -> float:
        """1 if every recorded score is ours, memory by memory, else 0; NaN without a recorded score."""
        if not self.recorded_scores:
            return 1.0 if not self.recorded and not self.ours else math.nan
        same, of = self.equal_scores
        return float(same == of)

    @property
    def equal_scores(self) -> tuple[int, int]:
        """How many of the recorded scores are ours, memory by memory, and how many there are."""
        own = self.our_scores if self.settled is None else self.settled
        ours = {**self.ours_before_cut, **own}  # one that is no result here was cut, and had its score before that
        same = sum(equal(score, ours.get(key, math.nan), self.precision) for key, score in self.recorded_scores.items())
        return same, len(self.recorded_scores)

    @property
    def equal_before_cut(self) -> tuple[int, int]:
        """Of the recorded results with a recorded score before the last cut: how many have ours, and how many there are."""
        known = {key: self.before_cut[key] for key in self.recorded if key in self.before_cut}
        ours = self.ours_before_cut
        same = sum(equal(score, ours.get(key, math.nan), self.precision) for key, score in known.items())
        return same, len(known)

    @property
    def rbo(self) -> float:
        """Rank-biased overlap of the two orders."""
        return rbo(self.recorded, self.ours)

    @property
    def tau(self) -> float:
        """Kendall's tau of the two orders."""
        return kendall(self.recorded, self.ours)

    @property
    def score_difference(self) -> float | None:
        """The largest difference of a score, None if the order differs or no scores were recorded."""
        both = [key for key in self.recorded if key in self.recorded_scores and key in self.our_scores]
        if not self.same_order or not both:
            return None
        return max(abs(self.recorded_scores[key] - self.our_scores[key]) for key in both)

    @property
    def top_score(self) -> float | None:
        """The best recorded score, None without one."""
        return max(self.recorded_scores.values(), default=None)

    @property
    def same(self) -> bool:
        """The same order, and the same scores if they were recorded."""
        return self.same_order and (self.score_difference or 0.0) <= self.precision


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over queries with its 95 % interval, NaN without queries; `count` is the number of queries of a share, else None."""

    mean: float
    low: float
    high: float
    count: int | None = None


@dataclass(frozen=True)
class SetFidelity:
    """The measures of a set of queries under one setting."""

    queries: tuple[QueryFidelity, ...]
    seed: int = 0

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Every share and mean by name."""
        names = (*SHARES, *MEANS)
        values: Floats = np.array([[float(getattr(query, name)) for name in names] for query in self.queries])
        values = values.reshape(len(self.queries), len(names))
        mean, (low, high) = means(values), bootstrap(values, self.seed)
        return {
            name: Estimate(
                float(mean[m]), float(low[m]), float(high[m]), int(np.nansum(values[:, m])) if name in SHARES else None
            )
            for m, name in enumerate(names)
        }

    @cached_property
    def score_difference(self) -> float | None:
        """The largest difference of two scores among queries with the same order; None without any to compare."""
        return max(self._differences, default=None)

    @property
    def equal_scores(self) -> tuple[int, int]:
        """How many recorded scores are ours, memory by memory, of all queries together, and how many there are."""
        counts = [query.equal_scores for query in self.queries]
        return sum(same for same, _ in counts), sum(of for _, of in counts)

    @property
    def equal_before_cut(self) -> tuple[int, int]:
        """As `equal_scores`, of the scores before the last cut, which a reranker replaces; of those that were recorded."""
        counts = [query.equal_before_cut for query in self.queries]
        return sum(same for same, _ in counts), sum(of for _, of in counts)

    @property
    def precise(self) -> tuple[int, int]:
        """Queries with the same order and the same scores to `precision`, of those that have scores."""
        return sum(difference <= self.precision for difference in self._differences), len(self._differences)

    @property
    def precision(self) -> float:
        """Maximum difference of two scores that count as equal."""
        return max((query.precision for query in self.queries), default=EXACT_PRECISION)

    @cached_property
    def _differences(self) -> list[float]:
        return [found for query in self.queries if (found := query.score_difference) is not None]

    def value(self, name: str) -> float:
        """A measure by its name; NaN without a value. Raises KeyError for an unknown name."""
        if name == SCORE_DIFFERENCE:
            return math.nan if self.score_difference is None else self.score_difference
        return self.estimates[name].mean
