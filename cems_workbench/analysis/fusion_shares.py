"""Which list, and which variant of the query, the fused scores are of: of one candidate, and over a set of recorded fusions.

    share(variant, candidate) = sum of base + bonus over the variant's lists that hold the candidate

Recency, access and relations, and bonuses for the best rank or for importance, belong to no variant.

The scores of a recorded fusion over a set are fitted as a linear combination of those of its lists, by least squares on every other query;
the weights hold if they give the scores of the rest (R² of at least `FITS`). A list's share is then what its part of the score differs by
within a query, of the sum over the lists: weights alone say nothing where scales differ. Where no combination fits, or no share is small,
the first results are compared with those of each list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cems_workbench.pipeline.replay import Trace
from cems_workbench.pipeline.stages.fusion import FUSION, FusionRow
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.table import Floats, Ints


@dataclass(frozen=True, slots=True)
class VariantContribution:
    """Of one candidate: its share by variant (absent: the variant did not find it), and the rest."""

    memory_id: str
    by_variant: dict[int, float]
    decisive: int | None
    """If the method takes the largest contribution: the variant of its list."""
    other: float
    boost: float
    raw: float


def variant_contributions(trace: Trace) -> list[VariantContribution]:
    """The candidates that fusion kept, in its order; none of an external trace, whose contributions are not recorded."""
    if trace.external:
        return []
    variant = {listed.name: listed.variant for listed in trace.stage(LISTS).fields.lists}
    largest = trace.stage(FUSION).fields.combine == "max"
    return [_shares(row, variant, largest) for row in trace.stage(FUSION).rows if row.kept]


def _shares(row: FusionRow, variant: dict[str, int | None], largest: bool) -> VariantContribution:
    by_variant: dict[int, float] = {}
    other = row.best_rank_bonus + row.importance_bonus + row.importance_floor
    for entry in row.contributions:
        gave, which = entry.base + entry.bonus, variant[entry.list]
        if which is None:
            other += gave
        elif largest:
            by_variant[which] = max(gave, by_variant.get(which, gave))
        else:
            by_variant[which] = by_variant.get(which, 0.0) + gave
    top = max(row.contributions, key=lambda entry: entry.base + entry.bonus) if largest and row.contributions else None
    decisive = None if top is None else variant[top.list]
    return VariantContribution(row.memory_id, by_variant, decisive, other, row.boost_factor, row.raw)


FITS = 0.99
"""R² on the queries that the weights were not fitted on."""
FEW_QUERIES = 6
SMALL = 0.1
"""A share below this is named."""
FIRST = 10
MAX_QUERIES = 500
"""Queries that are kept."""


OTHER_SCALE = 2.0
"""A weight that is so many times the share that it gives, of scores as they are, says that the lists have different scales."""
RAW = "scores as they are"


def _low(scores: Floats) -> Floats:
    low: Floats = np.fmin.reduce(scores, axis=0)
    return low


def _span(scores: Floats) -> Floats:
    span: Floats = np.fmax.reduce(scores, axis=0) - _low(scores)
    return span


SCALES: Mapping[str, Callable[[Floats, Floats], Floats]] = {
    RAW: lambda scores, ranks: scores,
    "scores from 0 to 1": lambda scores, ranks: (
        (scores - _low(scores)) / np.where(_span(scores) > 0, _span(scores), 1.0)
    ),
    "scores by the highest": lambda scores, ranks: scores / np.fmax.reduce(np.abs(scores), axis=0),
    "1 / (60 + rank)": lambda scores, ranks: 1 / (60 + ranks),
}
"""(N, L) what is added, from scores and ranks that are NaN where a list has not the candidate."""


@dataclass
class FusionShares:
    """One fusion over the queries of a set."""

    names: tuple[str, ...] = ()
    scores: list[Floats] = field(default_factory=list)
    ranks: list[Floats] = field(default_factory=list)
    fused: list[Floats] = field(default_factory=list)
    """Of each query (N, L) scores and ranks in the lists, NaN where not in one, and (N) scores of the fusion, in its order."""
    gains: list[list[float]] = field(default_factory=list)
    """Of each judged query the nDCG of each list."""

    def add(self, lists: Mapping[str, Mapping[int, tuple[int, float | None]]], fused: Ints, scores: Floats) -> None:
        """One query: by list and column rank and score, and the columns that the fusion returned, best first, with
        their scores. Queries in which a list did not run, or the fusion returned less than two, are left out."""
        self.names = self.names or tuple(lists)
        if tuple(lists) != self.names or len(lists) < 2 or len(fused) < 2 or len(self.fused) == MAX_QUERIES:
            return
        of = [[one.get(c, (None, None)) for one in lists.values()] for c in fused.tolist()]
        self.ranks.append(np.array([[rank for rank, _ in row] for row in of], dtype=float))
        self.scores.append(np.array([[score for _, score in row] for row in of], dtype=float))
        self.fused.append(scores)

    def _fit(self) -> tuple[str, Floats, Floats] | None:
        """Scale, and of the lists weights and what their scaled scores differ by in a query; None if no combination gives the scores."""
        target = np.concatenate(self.fused)
        if np.isnan(target).any():
            return None
        query = np.repeat(np.arange(len(self.fused)), [len(one) for one in self.fused])
        odd = query % 2 == 1
        spread = float(np.square(target[odd] - target[odd].mean()).sum())
        best: tuple[float, str, Floats, Floats] | None = None
        for scale, scaled in SCALES.items():
            with np.errstate(all="ignore"):
                parts = [scaled(*one) for one in zip(self.scores, self.ranks, strict=True)]
                if any((np.isnan(part) & ~np.isnan(rank)).any() for part, rank in zip(parts, self.ranks, strict=True)):
                    continue
                known = np.nan_to_num(np.concatenate(parts))
                half = np.linalg.lstsq(known[~odd], target[~odd])[0]
                fits = 1 - float(np.square(target[odd] - known[odd] @ half).sum()) / max(spread, 1e-300)
                # Of all queries, so that their order changes no weight.
                weights: Floats = np.asarray(np.linalg.lstsq(known, target)[0], dtype=float)
                ranges: Floats = np.nan_to_num([_span(part) for part in parts]).mean(axis=0)
            if fits >= FITS and (best is None or fits > best[0]):
                best = fits, scale, weights, ranges
        return best and best[1:]

    def _agreement(self) -> list[int]:
        """Of each list in how many queries its first are those of the fusion."""
        return [
            sum(int(np.isfinite(rank[:, i]).sum() >= FIRST and rank[:FIRST, i].max() <= FIRST) for rank in self.ranks)
            for i in range(len(self.names))
        ]

    def words(self) -> str:
        """Which list has next to nothing of the score, or which the first results are of; empty if neither, or if judgments say that
        the list that counts ranks better."""
        count = len(self.fused)
        if count < FEW_QUERIES:
            return ""
        same, fitted = self._agreement(), self._fit()
        leading = int(np.argmax(same))
        follows = f"follows {self.names[leading]}: the same first {FIRST} in {same[leading]} of {count} queries"
        if sorted(same)[-2] * 2 > count or same[leading] < 0.8 * count:
            follows = ""
        if fitted is not None:
            scale, weights, ranges = fitted
            shares = np.abs(weights) * ranges / max(float(np.abs(weights) @ ranges), 1e-300)
            least, most = int(np.argmin(shares)), int(np.argmax(shares))
            stated = abs(float(weights[least])) / max(float(np.abs(weights).sum()), 1e-300)
            apart = scale == RAW and stated >= OTHER_SCALE * shares[least]
            if apart or shares[least] < min(SMALL, 0.5 / len(shares)):
                if apart:
                    by = [
                        f"{self.names[most]} differ by {ranges[most]:.2g}",
                        f"{self.names[least]} by {ranges[least]:.2g}",
                    ]
                    scale += f", on different scales: in a query those of {', of '.join(by)}"
                total = " + ".join(f"{weight:.2g} × {name}" for weight, name in zip(weights, self.names, strict=True))
                judged = self._judged(least, most)
                share = f"{self.names[least]} has {100 * shares[least]:.0f} % of the score"
                return "" if judged is None else f"{total} ({scale}): {share}{judged}"
        if not follows:
            return ""
        judged = self._judged(int(np.argmin(same)), leading)
        return "" if judged is None else f"{follows}{judged}"

    def _judged(self, least: int, most: int) -> str | None:
        """What judgments say for the list that counts little; None if they say that it ranks worse."""
        if not self.gains:
            return ""
        means = np.mean(self.gains, axis=0)
        if means[least] < means[most]:
            return None
        named: Sequence[str] = [f"{self.names[i]} {means[i]:.4f}" for i in (least, most)]
        return f", and ranks the judged memories as well: nDCG@{FIRST} of {', of '.join(named)}"
