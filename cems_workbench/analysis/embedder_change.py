"""What another embedder would do to the vector list, from the vectors of a part of the memories.

Under the store's embedder A the cosine of every query with every memory is known; under B that of the memories that are embedded: all
judged ones, the first of each query's list under A, and a random sample of the rest. For each query a line is fitted from A's cosines to
B's. The cosine of a memory that is not embedded is drawn: the line, plus the residual of an embedded memory whose cosine under A is about
as high, in units of the query's own standard deviation. Each draw gives the rank of every judged memory in the whole store, and so nDCG@k.

Lines and residuals are fitted again in each draw with random weights of the embedded memories, which are Dirichlet distributed (Rubin, The
Bayesian bootstrap, Annals of Statistics 1981). That alone is too narrow, since queries differ in more than their line: by how much the
residuals change the mean is itself uncertain by `UNCERTAIN` of it (a standard deviation, measured on some of the pairs of
benchmarks/bench_embedder_change.py; its figures are of others). The upper end is never above the value among the embedded memories alone,
which no further memory can raise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.metrics import GradedRankings, Measure, ideal_grades
from cems_workbench.pipeline.table import Ints
from cems_workbench.results import Result, Table

Cosines = NDArray[np.floating[Any]]
K = 10
NDCG = Measure("nDCG", K)
DRAWS = 200
NEAREST_SHARE = 0.85
"""Of the memories that are embedded beside the judged ones, the share that the store's embedder has nearest to a query."""
LEAST_BIN = 50
"""Pairs of query and memory of the highest cosines among which a residual is drawn; each further group has half as many more."""
UNCERTAIN = 0.3
Z = 1.959964
"""The quantile of the normal distribution at 0.975."""
LEAST_EMBEDDED = 20
"""Memories that are to be embedded beside the judged ones, for lines and residuals."""
LEFT_OVER = 0.05
"""Share of the expected entries among the first k, of memories that are not embedded, that may remain."""


@dataclass(frozen=True, eq=False, repr=False)
class EmbedderChange(Result):
    """nDCG@k of the vector list alone under both embedders; the interval is of the change over all memories."""

    names: tuple[str, str]
    """The store's embedder, and the other."""
    queries: int
    memories: int
    embedded: int
    before: float
    change: float
    low: float
    high: float
    further: int
    """How many memories more leave at most `LEFT_OVER` of what is not known; 0 if all are embedded."""

    @property
    def title(self) -> str:
        return f"{self.names[1]} instead of {self.names[0]}, the vector list alone"

    @property
    def lines(self) -> tuple[str, ...]:
        side = "better" if self.low > 0 else "worse" if self.high < 0 else ""
        verdict = f"it is {side}" if side else "it cannot tell better from worse"
        said = f"nDCG@{K} {self.change:+.3f} [{self.low:+.3f}, {self.high:+.3f}] over {counted(self.queries, 'queries')}: {verdict}"
        share = f"{self.embedded:,} of {self.memories:,} memories were embedded ({self.embedded / self.memories:.0%})"
        more = f"; {self.further:,} more would settle most of the interval" if self.further else ""
        return said, share + more

    @property
    def tables(self) -> tuple[Table, ...]:
        columns = ("measure", "before", "change", "low", "high", "embedded", "memories")
        row = (f"nDCG@{K}", self.before, self.change, self.low, self.high, self.embedded, self.memories)
        return (Table(columns, (row,)),)

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            "the interval holds the change over all memories in about 95 of 100 such comparisons; lists of words, fusion and rerankers "
            "are left out",
        )


def chosen_memories(cosines: Cosines, judged: Sequence[int], count: int, seed: int = 0) -> tuple[Ints, int]:
    """Which memories to embed, (E) numbers, judged ones first, and how many those are.

    Args:
        cosines: (Q, N) of the queries with all memories under the store's embedder.
        judged: numbers of the judged memories.
        count: how many to embed.

    Raises:
        InputError: `count` leaves fewer than `LEAST_EMBEDDED` beside the judged ones.
    """
    memories = cosines.shape[1]
    chosen = dict.fromkeys(judged)
    if min(count, memories) - len(chosen) < min(LEAST_EMBEDDED, memories - len(chosen)):
        least = min(1.0, (len(chosen) + LEAST_EMBEDDED) / memories)
        raise InputError(
            f"share: {len(chosen):,} memories are judged; embed at least {least:.2f} of the {memories:,}, or fewer queries"
        )
    own, nearest = len(chosen), len(chosen) + round((count - len(chosen)) * NEAREST_SHARE)
    order = np.argsort(-cosines, axis=1)
    for number in order.T.ravel().tolist():  # rank by rank, a query after another
        if len(chosen) >= nearest:
            break
        chosen.setdefault(number)
    rest = np.setdiff1d(np.arange(memories), [*chosen])
    drawn = np.random.default_rng(seed).choice(rest, min(len(rest), count - len(chosen)), replace=False)
    return np.array([*chosen, *drawn.tolist()], dtype=np.int64), own


def change_of(
    names: tuple[str, str],
    cosines: Cosines,
    chosen: tuple[Ints, int],
    found: Cosines,
    grades: Sequence[Mapping[int, int]],
    draws: int = DRAWS,
    seed: int = 0,
) -> EmbedderChange:
    """The change of nDCG@10 over all memories.

    Args:
        names: the store's embedder and the other.
        cosines: (Q, N) under the store's embedder.
        chosen: as `chosen_memories` gives them.
        found: (Q, E) cosines of the chosen memories under the other embedder.
        grades: of each query by number of the memory; each has one above 0.
    """
    (embedded, judged), random = chosen, np.random.default_rng(seed)
    before = float(_ndcg([(own, cosines[q], cosines[q]) for q, own in enumerate(grades)]).mean())
    place = {number: at for at, number in enumerate(embedded.tolist())}
    own = [{place[number]: grade for number, grade in of_query.items()} for of_query in grades]
    rest = np.setdiff1d(np.arange(cosines.shape[1]), embedded)
    if not len(rest):
        after = float(_ndcg([(graded, found[q], found[q]) for q, graded in enumerate(own)]).mean()) - before
        return EmbedderChange(names, len(grades), cosines.shape[1], len(embedded), before, after, after, after, 0)
    x, y = cosines[:, embedded[judged:]], found[:, judged:]
    order = np.argsort(x, axis=None)
    donor = np.tile(np.arange(x.shape[1]), len(x))[order]
    cuts = _groups(order.size)
    limits = x.ravel()[order][cuts[1:-1]]
    entered = np.zeros(len(rest))
    means = np.zeros(draws + 1)
    # Only what may pass the least judged memory within reach can change a measure; a residual is at most the highest.
    for draw in range(draws + 1):  # the last has equal weights and no residuals: the lines alone
        weights = random.dirichlet(np.ones(x.shape[1])) if draw < draws else np.full(x.shape[1], 1 / x.shape[1])
        centre_x, centre_y = x @ weights, y @ weights
        off = x - centre_x[:, None]
        slope = ((off * (y - centre_y[:, None])) @ weights) / np.maximum((off**2) @ weights, 1e-12)
        residual = y - centre_y[:, None] - slope[:, None] * off
        spread = np.sqrt((residual**2) @ weights) + 1e-9
        unit = (residual / spread[:, None]).ravel()[order]
        cumulated = [np.cumsum(weights[donor[low:high]]) for low, high in pairwise(cuts)]
        placed = []
        for q, graded in enumerate(own):
            least = _least_of_use(found[q], graded)
            fitted = centre_y[q] + slope[q] * (cosines[q, rest] - centre_x[q])
            near = np.flatnonzero(fitted + spread[q] * unit.max() > least)
            group = np.searchsorted(limits, cosines[q, rest[near]], side="right")
            drawn = np.empty(len(near))
            for g in np.unique(group).tolist():
                of_group = np.flatnonzero(group == g)
                at = np.searchsorted(cumulated[g], random.random(len(of_group)) * cumulated[g][-1])
                drawn[of_group] = unit[cuts[g] + at.clip(0, len(cumulated[g]) - 1)]
            others = fitted[near] + (spread[q] * drawn if draw < draws else 0)
            entered[near[others > least]] += 1 / draws
            placed.append((graded, found[q], np.concatenate([found[q], others])))
        means[draw] = _ndcg(placed).mean()
    *drawn_means, of_lines = means.tolist()
    after, most = (
        float(np.mean(drawn_means)),
        float(_ndcg([(one, found[q], found[q]) for q, one in enumerate(own)]).mean()),
    )
    half = Z * float(np.hypot(np.std(drawn_means), UNCERTAIN * (of_lines - after)))
    ends = after - half - before, min(after + half, most) - before
    left = np.cumsum(np.sort(entered)[::-1])
    further = int(np.searchsorted(left, (1 - LEFT_OVER) * left[-1])) + 1 if left[-1] else 0
    return EmbedderChange(names, len(grades), cosines.shape[1], len(embedded), before, after - before, *ends, further)


def _groups(pairs: int) -> list[int]:
    """Where the groups of pairs in the order of their cosine begin, and the end: the highest cosines in small groups, the others in
    larger ones."""
    cuts, size = [pairs], float(LEAST_BIN)
    while cuts[-1] > 0:
        cuts.append(max(0, cuts[-1] - int(size)))
        size *= 1.5
    if len(cuts) > 2 and cuts[-2] < LEAST_BIN:
        cuts.pop(-2)
    return cuts[::-1]


def _least_of_use(cosines: Cosines, grades: Mapping[int, int]) -> float:
    """The cosine below which another memory changes no gain: that of the last gaining memory, or of the k-th of all."""
    kth = float(np.partition(cosines, -K)[-K]) if len(cosines) > K else -np.inf
    return max(kth, min(float(cosines[at]) for at, grade in grades.items() if grade > 0))


def _ndcg(placed: Sequence[tuple[Mapping[int, int], Cosines, Cosines]]) -> NDArray[np.float64]:
    """(Q) nDCG@k: of each query its grades by number of the memory, the cosines of these, and those of all memories."""
    shape = len(placed), K
    grade, judged = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    for q, (grades, cosines, everything) in enumerate(placed):
        for at, given in grades.items():
            rank = int((everything > cosines[at]).sum())
            while rank < K and judged[q, rank]:
                rank += 1  # of equal cosines one comes after the other
            if rank < K:
                grade[q, rank], judged[q, rank] = given, True
    ideal = ideal_grades([list(grades.values()) for grades, *_ in placed])
    return NDCG.values(GradedRankings(grade, judged, judged, ideal))
