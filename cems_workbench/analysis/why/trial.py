"""Trial: configs replayed on one query's evidence, with the outcome for one memory; outcomes are cached.

A memory that is level with others counts as the last of them, so that no change brings it in by its id. A change that leaves fewer than
half as many results, or fewer than half as many different scores among them, or replaces them all, removes what ranks instead of moving
the memory: no fix.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.fields import Section
from cems_workbench.config.model import attribute_name
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.missing_evidence import gathered_parameters
from cems_workbench.pipeline.replay import run, single_table, table_against
from cems_workbench.pipeline.stages import ASSEMBLY, CANDIDATE_STAGES, FUSION, RERANK, STAGES
from cems_workbench.pipeline.stages.stage import PipelineRun
from cems_workbench.pipeline.table import CandidateTable, Ranking

_TO_SURVIVE = CANDIDATE_STAGES[: CANDIDATE_STAGES.index(ASSEMBLY)]
"""The stages that can lose a memory before assembly."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one config: the results in order, the memory's rank among them (None: not in them).

    `stood` is that rank, otherwise the one with which the memory reached assembly (None: it did not). `distance` compares
    outcomes, lower is nearer: the number of stages after its drop, then the share of the k-th score that it lacks before assembly.
    `levels` are the different scores among the results, or before normalisation those of fusion if they are fewer.
    """

    rank: int | None
    stood: int | None
    distance: tuple[int, float]
    results: tuple[str, ...]
    scores: bytes
    levels: int


MANY = 3
"""Results of which at least one must stay."""
SCORE_DECIMALS = 12
"""Scores of results are different if they are at this many decimals."""


class Trials:
    """The replays of one evidence, with `switched_off` query variants left out as in `replay`.

    `k`: the memory must be among the first k results. `present` is the config that is explained; without it no change spoils anything.
    """

    def __init__(
        self,
        evidence: Evidence,
        memory_id: str,
        k: int,
        switched_off: Collection[int] = (),
        present: PipelineConfig | None = None,
    ) -> None:
        self.evidence = evidence
        self.memory_id = memory_id
        self.k = k
        self.switched_off = tuple(sorted(switched_off))
        self.gathered = gathered_parameters(evidence)
        """By path, the depths and other parameters that the evidence was gathered with; empty without a record."""
        self.table = table_against(evidence, memory_id)
        self.column = len(self.table.ids[0]) - 1 if memory_id in self.table.ids[0] else None
        self.older = frozenset(
            key for key, own in evidence.superseded.items() if any(one.memory_id == memory_id for one in own)
        )
        """The candidates that the memory supersedes."""
        self.count = 0
        self._kept: dict[PipelineConfig, Outcome] = {}
        self._shown: dict[PipelineConfig, Outcome] = {}
        self.now = None if present is None else self.outcome(present)

    def on(self, evidence: Evidence) -> Trials:
        """The same on other evidence of the query, with variants that begin with the same ones."""
        other = Trials(evidence, self.memory_id, self.k, self.switched_off)
        other.now = self.now
        return other

    def stages(self, config: PipelineConfig) -> PipelineRun:
        """Every stage's arrays."""
        self.count += 1
        return run(self.table, config, self.switched_off)

    def outcome(self, config: PipelineConfig) -> Outcome:
        """The outcome of a config, ties against the memory; replayed at most once."""
        if config not in self._kept:
            self._kept[config] = self._replayed(self.table, self.column, config)
        return self._kept[config]

    def shown(self, config: PipelineConfig) -> Outcome:
        """The outcome as a search shows it, ties by id; replayed at most once."""
        if config not in self._shown:
            table = single_table(self.evidence)
            column = None if self.column is None else table.ids[0].index(self.memory_id)
            self._shown[config] = self._replayed(table, column, config)
        return self._shown[config]

    def succeeds(self, config: PipelineConfig) -> bool:
        """Whether the memory is among the first k results, level with none past them, and the change spoils no ranking."""
        found = self.outcome(config)
        return found.rank is not None and found.rank <= self.k and not self.spoils(found)

    def spoils(self, found: Outcome) -> bool:
        """Whether fewer than half of the present results, or of the different scores among them, are left, or none of `MANY` or more."""
        now = self.now
        if now is None:
            return False
        others = set(now.results) - {self.memory_id}
        replaced = len(others) >= MANY and others.isdisjoint(found.results)
        return replaced or 2 * len(found.results) < len(now.results) or 2 * found.levels < now.levels

    def stale_above(self, config: PipelineConfig) -> str | None:
        """The best ranked result shown that the memory supersedes and that is above it; None if there is none."""
        if not self.older:
            return None
        for result in self.shown(config).results:
            if result == self.memory_id:
                return None
            if result in self.older:
                return result
        return None

    def needs(self, config: PipelineConfig) -> int:
        """How many scores of the reranker this config lacks; its outcome may change with them."""
        if RERANK.is_off(config):
            return 0
        return sum(len(need.memory_ids) for need in self.stages(config).of(RERANK).needs(0))

    def _replayed(self, table: CandidateTable, column: int | None, config: PipelineConfig) -> Outcome:
        self.count += 1
        stages = run(table, config, self.switched_off)
        assembly = stages.of(ASSEMBLY)
        results, before = assembly.after, assembly.before
        order = results.order(0)
        names = tuple(table.ids[0][int(c)] for c in order)
        scores = results.score[0, order]
        fused = stages.of(FUSION).raw[0, order]
        levels = min(len(np.unique(np.round(values, SCORE_DECIMALS))) for values in (scores, fused))
        if column is None:
            return Outcome(None, None, (len(STAGES), 1.0), names, b"", levels)
        rank = int(results.rank[0, column]) or None
        stood = rank or int(before.rank[0, column]) or None
        survived = sum(bool(stages.of(stage).after.alive[0, column]) for stage in _TO_SURVIVE)
        distance = len(_TO_SURVIVE) - survived, self._lacks(before, column)
        return Outcome(rank, stood, distance, names, scores.tobytes(), levels)

    def _lacks(self, before: Ranking, column: int) -> float:
        """1 - own score / score of the k-th (the last, if there are fewer); 1 if the memory is absent."""
        order = before.order(0)
        if not before.alive[0, column]:
            return 1.0
        wanted = float(before.score[0, order[min(self.k, len(order)) - 1]])
        return 1 - float(before.score[0, column]) / wanted if wanted > 0 else 1.0


def changed(config: PipelineConfig, path: str, value: Any) -> PipelineConfig:
    """A copy with one value replaced, without validation: callers pass thousands of valid values."""
    return cast(PipelineConfig, _changed(config, path.split("."), value))


def _changed(section: Section, segments: Sequence[str], value: Any) -> Section:
    name = attribute_name(segments[0])
    new = value if len(segments) == 1 else _changed(getattr(section, name), segments[1:], value)
    return section.model_copy(update={name: new})
