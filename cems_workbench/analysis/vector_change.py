"""What other vectors would do to a store's judged queries, from the vectors of a part of the memories: those of another embedder, or of
other chunks.

Under the store's vectors the cosine of every query with every memory is known; under the others that of the memories whose vectors were
made: all judged ones, the first of each query's lists, and a random sample of the rest; and of those whose texts stay as they are. For each
query a line is fitted from the known cosines to the others, and for all queries together how much a memory is moved by the words that it
shares with a query (its BM25). The cosine of any other memory is drawn: the line and the words, plus the residual of an embedded memory
whose cosine was about as high, in units of the query's own standard deviation. Each draw gives the rank of every memory
in the whole store, so the vector list, and so nDCG@k, of the list alone or of the pipeline that is replayed with it.

Lines and residuals are fitted again in each draw with random weights of the embedded memories, which are Dirichlet distributed (Rubin, The
Bayesian bootstrap, Annals of Statistics 1981). That alone is too narrow, since queries differ in more than their line: by how much the
residuals change the mean is itself uncertain by `UNCERTAIN` of it (a standard deviation, measured on some of the pairs of
benchmarks/bench_vector_change.py; its figures are of others). End to end `FUSED` is added, a standard deviation of nDCG times the share
that is not embedded: what else a rank depends on is not drawn. Of the list alone the upper end is never above the value among the
embedded memories alone, which no further memory can raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.metrics import GradedRankings, Measure, ideal_grades
from cems_workbench.pipeline.table import Floats, Ints
from cems_workbench.results import Result, Table

Cosines = NDArray[np.floating[Any]]
Grades = Sequence[Mapping[int, int]]
"""Of each query by number of the memory; each has one above 0."""
Measured = Callable[[Cosines], tuple[float, Ints]]
"""From (R, N) cosines the mean of nDCG@k, and the numbers of all memories among the first k, with repeats."""
K = 10
NDCG = Measure("nDCG", K)
DRAWS, PIPELINE_DRAWS = 200, 40
NEAREST_SHARE = 0.85
"""Of the memories that are embedded beside the judged ones, the share that the store has nearest to a query."""
LEAST_BIN = 50
"""Pairs of query and memory of the highest cosines among which a residual is drawn; each further group has half as many more."""
UNCERTAIN, FUSED = 0.3, 0.0133
Z = 1.959964
"""The quantile of the normal distribution at 0.975."""
LEAST_EMBEDDED = 20
"""Memories that are to be embedded beside the judged ones, for lines and residuals."""
LEFT_OVER = 0.05
"""Share of the expected entries among the first k, of memories that are not embedded, that may remain."""
ALONE = "the vector list alone"


@dataclass(frozen=True)
class Estimate:
    """nDCG@k now and its change over all memories, with the interval of the change."""

    name: str
    before: float
    change: float
    low: float
    high: float
    further: int
    """How many memories more leave at most `LEFT_OVER` of what is not known; 0 if all are known."""

    @property
    def line(self) -> str:
        """The change in a sentence, and what would settle it."""
        side = "better" if self.low > 0 else "worse" if self.high < 0 else "the same" if self.low == self.high else ""
        verdict = f"it is {side}" if side else "it cannot tell better from worse"
        more = f"; {counted(self.further, 'memories')} more would settle most of the interval" if self.further else ""
        return f"{self.name}: nDCG@{K} {self.change:+.3f} [{self.low:+.3f}, {self.high:+.3f}], {verdict}{more}"


@dataclass(frozen=True, eq=False, repr=False)
class VectorChange(Result):
    """The change of nDCG@k with other vectors: of the vector list alone, and end to end where it can be told."""

    changed: str
    """What is other, in words."""
    queries: int
    memories: int
    """How many of the store would have other vectors."""
    embedded: int
    """How many vectors were made, of how many in all: `vectors`."""
    vectors: int
    alone: Estimate
    whole: Estimate | None
    said: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What is other."""
        return self.changed

    @property
    def lines(self) -> tuple[str, ...]:
        """Both changes, and what they are estimated from."""
        share = (
            f"{self.embedded:,} of {counted(self.vectors, 'vectors')} were made ({self.embedded / self.vectors:.0%})"
        )
        of = f"{counted(self.queries, 'queries')}; {counted(self.memories, 'memories')} would have other vectors; {share}"
        return (*(one.line for one in (self.alone, self.whole) if one is not None), of)

    @property
    def tables(self) -> tuple[Table, ...]:
        """A row for the list alone, and one end to end."""
        columns = ("of", "measure", "before", "change", "low", "high", "more memories")
        found = [one for one in (self.alone, self.whole) if one is not None]
        rows = ((one.name, f"nDCG@{K}", one.before, one.change, one.low, one.high, one.further) for one in found)
        return (Table(columns, tuple(rows)),)

    @property
    def notes(self) -> tuple[str, ...]:
        """How to read the intervals, and what is left out."""
        return (*self.said, "each interval holds the change over all memories in about 95 of 100 such comparisons")


@dataclass(frozen=True, eq=False)
class Known:
    """Cosines of R texts with N memories."""

    before: Cosines
    """(R, N) under the store's vectors."""
    after: Cosines
    """(R, N) under the others, NaN where they are not known."""
    words: Cosines
    """(R, N) the scores of the words, from 0 to 1: what two embedders differ in may be how much they are moved by words."""
    fitted: Ints
    """Numbers of the embedded memories beside the judged ones, which have the lines and residuals."""

    @cached_property
    def unknown(self) -> Ints:
        """Numbers of the memories whose cosines are to be drawn."""
        return np.flatnonzero(np.isnan(self.after[0]))

    @cached_property
    def alone(self) -> Cosines:
        """(R, N) the cosines that are known, the others below all."""
        return np.where(np.isnan(self.after), -np.inf, self.after)

    def at_rank(self, k: int) -> Floats:
        """(R) the k-th highest known cosine of each text."""
        if k > self.alone.shape[1]:
            return np.full(len(self.alone), -np.inf)
        return np.asarray(np.partition(self.alone, -k, axis=1)[:, -k], dtype=np.float64)


def chosen_memories(
    orders: Sequence[Sequence[int]], judged: Sequence[int], sizes: Ints, vectors: int, seed: int = 0
) -> tuple[Ints, int]:
    """Which memories to embed, (E) numbers, judged ones first, and how many those are.

    Args:
        orders: rankings of the queries, best first: numbers of memories.
        judged: numbers of the judged memories.
        sizes: (N) how many vectors each memory is to get; 0: it keeps its own, and is never chosen.
        vectors: how many to make.

    Raises:
        InputError: `vectors` leaves fewer than `LEAST_EMBEDDED` memories beside the judged ones.
    """
    chosen = dict.fromkeys(number for number in judged if sizes[number])
    own, room = len(chosen), vectors - int(sizes[[*chosen]].sum())
    open_ = int((sizes > 0).sum()) - own
    typical = float(sizes[sizes > 0].mean()) if open_ else 0.0
    if room < typical * min(LEAST_EMBEDDED, open_):
        least = min(1.0, (vectors - room + typical * LEAST_EMBEDDED) / max(1, int(sizes.sum())))
        raise InputError(
            f"share: {own:,} memories are judged; embed at least {least:.2f} of the {int(sizes.sum()):,} vectors, or fewer queries"
        )
    rest, random = room * (1 - NEAREST_SHARE), np.random.default_rng(seed)
    ranks = (number for rank in zip_longest(*orders) for number in rank if number is not None)
    for numbers, kept in ((ranks, rest), (random.permutation(len(sizes)).tolist(), 0.0)):
        for number in numbers:  # rank by rank, a query after another
            if room <= kept:
                break
            if 0 < sizes[number] <= room - kept and number not in chosen:
                chosen[number] = None
                room -= int(sizes[number])
    return np.array([*chosen], dtype=np.int64), own


def of_list(grades: Grades) -> Measured:
    """nDCG@k of the vector list alone, whose queries are the first texts."""

    def measured(cosines: Cosines) -> tuple[float, Ints]:
        rows = cosines[: len(grades)]
        first = np.argpartition(-rows, min(K, rows.shape[1]) - 1, axis=1)[:, :K]
        return float(_ndcg(list(zip(grades, rows, strict=True))).mean()), first.ravel()

    return measured


def least_of_list(known: Known, grades: Grades) -> Floats:
    """(R) the cosine below which another memory changes no gain: that of the last gaining memory, or of the k-th of all."""
    least, kth = np.full(len(known.before), np.inf), known.at_rank(K)
    for q, own in enumerate(grades):
        least[q] = max(kth[q], min(float(known.after[q, at]) for at, grade in own.items() if grade > 0))
    return least


def estimated(
    name: str,
    known: Known,
    least: Floats,
    measured: Measured,
    before: float,
    draws: int,
    *,
    capped: bool = False,
    seed: int = 0,
) -> Estimate:
    """The change of a measure over all memories.

    Args:
        name: what is measured, in words.
        known: the cosines.
        least: (R) no memory with a lower cosine changes the measure.
        measured: the measure.
        before: its value now.
        draws: how many.
        capped: whether no further memory can raise it.
        seed: of the draws.
    """
    unknown, random = known.unknown, np.random.default_rng(seed)
    if not len(unknown):
        exact = measured(known.after)[0] - before
        return Estimate(name, before, exact, exact, exact, 0)
    x, y, words = (of[:, known.fitted] for of in (known.before, known.after, known.words))
    order = np.argsort(x, axis=None)
    donor = np.tile(np.arange(x.shape[1]), len(x))[order]
    cuts = _groups(order.size)
    limits = x.ravel()[order][cuts[1:-1]]
    entered = np.zeros(known.before.shape[1])
    means = np.zeros(draws + 1)
    # Only what may pass `least` is drawn; a residual is at most the highest.
    for draw in range(draws + 1):  # the last has equal weights and no residuals: the lines alone
        weights = random.dirichlet(np.ones(x.shape[1])) if draw < draws else np.full(x.shape[1], 1 / x.shape[1])
        centre = x @ weights
        off = x - centre[:, None]
        lines, residuals = list[tuple[Floats, Floats]](), list[Cosines]()
        for of in (y, words):
            middle = of @ weights
            slope = ((off * (of - middle[:, None])) @ weights) / np.maximum((off**2) @ weights, 1e-12)
            lines.append((middle - slope * centre, slope))
            residuals.append(of - middle[:, None] - slope[:, None] * off)
        spread = np.sqrt((residuals[0] ** 2) @ weights) + 1e-9
        # How much the words of a query move a memory, in units of the residuals, is one number for all queries.
        per_word = spread * float(((residuals[0] / spread[:, None] * residuals[1]) @ weights).sum())
        per_word /= max(float(((residuals[1] ** 2) @ weights).sum()), 1e-12)
        residual = residuals[0] - per_word[:, None] * residuals[1]
        spread = np.sqrt((residual**2) @ weights) + 1e-9
        unit = (residual / spread[:, None]).ravel()[order]
        base, slope = (of - per_word * off_words for of, off_words in zip(*lines, strict=True))
        cumulated = np.concatenate([[0.0], np.cumsum(weights[donor])])
        after = known.alone.copy()
        for row in np.flatnonzero(least < np.inf).tolist():
            fitted = base[row] + slope[row] * known.before[row, unknown] + per_word[row] * known.words[row, unknown]
            near = np.flatnonzero(fitted + spread[row] * unit.max() > least[row])
            group = np.searchsorted(limits, known.before[row, unknown[near]], side="right")
            low, high = cumulated[cuts[group]], cumulated[cuts[group + 1]]
            at = np.searchsorted(cumulated, low + random.random(len(near)) * (high - low), side="right") - 1
            drawn = unit[at.clip(cuts[group], cuts[group + 1] - 1)]
            after[row, unknown[near]] = fitted[near] + (spread[row] * drawn if draw < draws else 0)
        means[draw], first = measured(after)
        np.add.at(entered, first, float(draw < draws))
    *drawn_means, of_lines = means.tolist()
    mean = float(np.mean(drawn_means))
    half = Z * math.hypot(float(np.std(drawn_means)), UNCERTAIN * (of_lines - mean), 0.0 if capped else FUSED * len(unknown) / len(entered))
    most = measured(known.alone)[0] if capped else np.inf
    left = np.cumsum(np.sort(entered[unknown])[::-1])
    further = int(np.searchsorted(left, (1 - LEFT_OVER) * left[-1])) + 1 if left[-1] else 0
    return Estimate(name, before, mean - before, mean - half - before, min(mean + half, most) - before, further)


def _groups(pairs: int) -> Ints:
    """Where the groups of pairs in the order of their cosine begin, and the end: the highest cosines in small groups, the others in
    larger ones."""
    cuts, size = [pairs], float(LEAST_BIN)
    while cuts[-1] > 0:
        cuts.append(max(0, cuts[-1] - int(size)))
        size *= 1.5
    if len(cuts) > 2 and cuts[-2] < LEAST_BIN:
        cuts.pop(-2)
    return np.array(cuts[::-1], dtype=np.int64)


def _ndcg(ranked: Sequence[tuple[Mapping[int, int], Cosines]]) -> NDArray[np.float64]:
    """(Q) nDCG@k: of each query its grades by number of the memory, and the cosines of all memories."""
    shape = len(ranked), K
    grade, judged = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    for q, (grades, cosines) in enumerate(ranked):
        for at, given in grades.items():
            rank = int((cosines > cosines[at]).sum())
            while rank < K and judged[q, rank]:
                rank += 1  # of equal cosines one comes after the other
            if rank < K:
                grade[q, rank], judged[q, rank] = given, True
    ideal = ideal_grades([list(grades.values()) for grades, _ in ranked])
    return NDCG.values(GradedRankings(grade, judged, judged, ideal))
