"""The replays of one evidence under one config with a single parameter turned; each value is replayed at most once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import STAGES, Evidence
from cems_workbench.pipeline.encode import encode_one
from cems_workbench.pipeline.replay import run
from cems_workbench.pipeline.table import StageArrays
from cems_workbench.why.trial import changed

FUSION, FILTER, RERANK, ADJUST, GAP, DEDUP, ASSEMBLY = (
    STAGES.index(stage) for stage in ("fusion", "filter", "rerank", "adjust", "gap", "dedup", "assembly")
)


class Turned:
    """What the results are at each value of the parameter at `path`.

    `k`: results that count. `unscored` is the largest number of candidates that the reranker was asked for and had never scored.
    """

    def __init__(
        self, evidence: Evidence, config: PipelineConfig, path: str, k: int, switched_off: Collection[int] = ()
    ) -> None:
        self.table = encode_one(evidence)
        self.config = config
        self.path = path
        self.k = k
        self.count = 0
        self.unscored = 0
        self._off = tuple(sorted(switched_off))
        self._kept: dict[Any, tuple[tuple[str, ...], int]] = {}

    def stages(self, value: Any) -> list[StageArrays]:
        """Every stage's arrays at a value."""
        self.count += 1
        return run(self.table, changed(self.config, self.path, value), self._off)

    def results(self, value: Any) -> tuple[str, ...]:
        """The first k results at a value."""
        return self._outcome(value)[0]

    def depth(self, value: Any) -> int:
        """How far down the order after adjust these results depend on: the rank there of the last of them.

        With fewer than k (and fewer than the limit), everything that survived the score gap was looked at.
        """
        return self._outcome(value)[1]

    def _outcome(self, value: Any) -> tuple[tuple[str, ...], int]:
        if value not in self._kept:
            stages = self.stages(value)
            order = stages[ASSEMBLY].after.order(0)
            limit = changed(self.config, self.path, value).assembly.limit
            wanted = self.k if limit is None else min(self.k, limit)
            order = order[: self.k]
            ranks = stages[ADJUST].after.rank[0, order]
            depth = int(ranks.max()) if len(order) >= wanted else int(stages[GAP].after.alive[0].sum())
            ids = self.table.ids[0]
            self.unscored = max(self.unscored, sum(len(need["memory_ids"]) for need in stages[RERANK].needs(0)))
            self._kept[value] = tuple(ids[int(c)] for c in order), depth
        return self._kept[value]
