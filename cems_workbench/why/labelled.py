"""What a change does to every labelled query: replayed as one batch, compared query by query.

    hit@k    any relevant memory (grade 2 or 3; grade 1 where there is none) in the first k
    nDCG@10  sum of (2^grade - 1) / log2(1 + rank), divided by the best there could be (Burges et al. 2005)

Queries without a relevant memory count for neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.query_status import helpful
from cems_workbench.pipeline.encode import encode
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.replay import run
from cems_workbench.pipeline.table import Bools, Floats, Ints
from cems_workbench.why.trial import ASSEMBLY

NDCG_DEPTH = 10
SAME = 1e-9


@dataclass(frozen=True, slots=True)
class LabelledEffect:
    """Queries that gain and lose a hit, that get a better and a worse nDCG@10, and its mean before and after."""

    queries: int
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    better: int
    worse: int
    before: float
    after: float

    @property
    def net_lost(self) -> int:
        """Hits lost less hits gained."""
        return len(self.lost) - len(self.gained)


class LabelledSet:
    """The evidence of labelled queries, kept; `grades` are judgments by qid and memory id."""

    def __init__(self, evidences: Mapping[str, Evidence], grades: Mapping[str, Mapping[str, int]]) -> None:
        self.qids = sorted(qid for qid in evidences if helpful(grades.get(qid, {})))
        self.table = encode([evidences[qid] for qid in self.qids])
        self._gain = np.zeros(self.table.shape)
        self._helps = np.zeros(self.table.shape, dtype=bool)
        self._ideal = np.array([_ideal(list(grades[qid].values())) for qid in self.qids])
        for q, qid in enumerate(self.qids):
            helping = helpful(grades[qid])
            for c, memory_id in enumerate(self.table.ids[q]):
                self._gain[q, c] = 2.0 ** max(0, grades[qid].get(memory_id, 0)) - 1
                self._helps[q, c] = memory_id in helping
        self._measured = lru_cache(maxsize=8)(self._measure)

    def effect(self, before: PipelineConfig, after: PipelineConfig, k: int) -> LabelledEffect:
        """What the change from one config to the other does; hits are counted at k."""
        (old_hit, old), (new_hit, new) = self._measured(before, k), self._measured(after, k)
        return LabelledEffect(
            queries=len(self.qids),
            gained=tuple(self.qids[q] for q in np.flatnonzero(new_hit & ~old_hit)),
            lost=tuple(self.qids[q] for q in np.flatnonzero(old_hit & ~new_hit)),
            better=int((new > old + SAME).sum()),
            worse=int((new < old - SAME).sum()),
            before=float(old.mean()) if len(old) else 0.0,
            after=float(new.mean()) if len(new) else 0.0,
        )

    def means(self, config: PipelineConfig, k: int) -> tuple[float, float]:
        """(hit@k, nDCG@10): the share of queries with a hit in the first k, and the mean; zeros without queries."""
        hit, gained = self._measure(config, k)
        return (float(hit.mean()), float(gained.mean())) if self.qids else (0.0, 0.0)

    def _measure(self, config: PipelineConfig, k: int) -> tuple[Bools, Floats]:
        rank: Ints = run(self.table, config)[ASSEMBLY].after.rank
        hit: Bools = np.any(self._helps & (rank > 0) & (rank <= k), axis=1)
        shown = (rank > 0) & (rank <= NDCG_DEPTH)
        gained: Floats = np.where(shown, self._gain / np.log2(1 + np.maximum(rank, 1)), 0.0).sum(axis=1)
        return hit, gained / self._ideal


def _ideal(grades: Sequence[int]) -> float:
    best = sorted((max(0, grade) for grade in grades), reverse=True)[:NDCG_DEPTH]
    return float(sum((2.0**grade - 1) / np.log2(1 + rank) for rank, grade in enumerate(best, 1)))
