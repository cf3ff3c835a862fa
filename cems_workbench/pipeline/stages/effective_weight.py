"""Effective weight: which side of the reranker's blend decides the order, against the share that the bands name.

A term that is nearly the same for every candidate decides nothing, however large its weight. So per band

    retrieval side  =  sd(w * retrieval_score)           reranker side  =  sd((1 - w) * unit)
    effective       =  retrieval side / (retrieval side + reranker side)

over the reranked candidates whose rank before reranking lies in the band; sd is the population standard deviation, which
one odd candidate moves less than the range. A band is inverted when its weight gives one side the majority and the spread
gives it to the other. Nothing here changes a ranking.

Source: PIPELINE.md, "Why four retrieval scores"; CEMS plan, phase 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.config.ranking import Band, RerankConfig

Row = Mapping[str, Any]
SAME = 1e-12
"""A spread below this is rounding."""


@dataclass(frozen=True, slots=True)
class BandWeight:
    """One band: ranks first..last before reranking (last None: the rest), and the spread that each side has in it."""

    first: int
    last: int | None
    candidates: int
    nominal: float
    retrieval_spread: float
    reranker_spread: float

    @property
    def effective(self) -> float | None:
        """Retrieval's share of the spread, 0..1; None where neither side tells two candidates apart."""
        total = self.retrieval_spread + self.reranker_spread
        return self.retrieval_spread / total if total > SAME else None

    @property
    def inverted(self) -> bool:
        """Does the side with the nominal majority have the minority of the effect?"""
        return self.effective is not None and (self.nominal - 0.5) * (self.effective - 0.5) < 0


@dataclass(frozen=True, slots=True)
class Overtaking:
    """A candidate of the last band that passed rank 1, and the most that rank 1 could have had."""

    rank: int
    weight: float
    retrieval: float
    unit: float
    score: float
    first_weight: float
    first_retrieval: float
    first_unit: float
    first_score: float

    @property
    def first_at_most(self) -> float:
        """The score of rank 1 had the reranker given it a unit score of 1."""
        return self.first_weight * self.first_retrieval + (1 - self.first_weight)


def effective_weights(rows: Sequence[Row], bands: Sequence[Band]) -> list[BandWeight]:
    """Each band that has reranked candidates, in order. `rows` are those of the rerank stage."""
    found = []
    first = 1
    for i, band in enumerate(bands):
        last = None if i == len(bands) - 1 else band.max_rank
        inside = [row for row in _blended(rows) if first <= row["rank_before"] <= (last or np.inf)]
        if inside:
            retrieval = np.std([row["retrieval_weight"] * row["retrieval_score"] for row in inside])
            reranker = np.std([(1 - row["retrieval_weight"]) * row["unit"] for row in inside])
            found.append(BandWeight(first, last, len(inside), band.retrieval, float(retrieval), float(reranker)))
        if last is None:
            break
        first = max(first, last + 1)
    return found


def overtaking(rows: Sequence[Row], config: RerankConfig) -> Overtaking | None:
    """An example of a candidate of the last band that passed rank 1 under 1/(k + r); None when there is none.

    Of several, one that the reranker liked less than rank 1 says most; of those the one it liked least.
    """
    if config.combine != "position_bands" or config.retrieval_score != "rrf" or len(config.bands) < 2:
        return None
    blended = _blended(rows)
    first = next((row for row in blended if row["rank_before"] == 1), None)
    past = config.bands[-2].max_rank
    if first is None or past is None:
        return None
    passed = [row for row in blended if row["rank_before"] > past and row["score"] > first["score"]]
    if not passed:
        return None
    example = min(passed, key=lambda row: (row["unit"], row["rank_before"]))
    return Overtaking(*_terms(example), *_terms(first)[1:])


def _blended(rows: Sequence[Row]) -> list[Row]:
    keys = ("rank_before", "retrieval_weight", "retrieval_score", "unit")
    return [row for row in rows if all(row.get(key) is not None for key in keys)]


def _terms(row: Row) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("rank_before", "retrieval_weight", "retrieval_score", "unit", "score"))
