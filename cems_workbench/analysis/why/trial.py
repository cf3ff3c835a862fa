"""Trial: configs replayed on one query's evidence, with the outcome for one memory; outcomes are cached."""

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
from cems_workbench.pipeline.replay import run
from cems_workbench.pipeline.stages import ASSEMBLY, CANDIDATE_STAGES, RERANK, STAGES
from cems_workbench.pipeline.stages.stage import PipelineRun
from cems_workbench.pipeline.table import Floats, Ranking
from cems_workbench.pipeline.tabulate import single_table

_TO_SURVIVE = CANDIDATE_STAGES[: CANDIDATE_STAGES.index(ASSEMBLY)]
"""The stages that can lose a memory before assembly."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one config: the results in order, the memory's rank among them (None: not in them).

    `stood` is that rank, otherwise the one with which the memory reached assembly (None: it did not). `distance` compares
    outcomes, lower is nearer: the number of stages after its drop, then the share of the k-th score that it lacks before assembly.
    """

    rank: int | None
    stood: int | None
    distance: tuple[int, float]
    results: tuple[str, ...]
    scores: bytes


class Trials:
    """The replays of one evidence, with `switched_off` query variants left out as in `replay`.

    `k`: the memory must be among the first k results.
    """

    def __init__(self, evidence: Evidence, memory_id: str, k: int, switched_off: Collection[int] = ()) -> None:
        self.evidence = evidence
        self.memory_id = memory_id
        self.k = k
        self.switched_off = tuple(sorted(switched_off))
        self.gathered = gathered_parameters(evidence)
        """By path, the depths and other parameters that the evidence was gathered with; empty without a record."""
        self.table = single_table(evidence)
        ids = self.table.ids[0]
        self.column = ids.index(memory_id) if memory_id in ids else None
        self.older = frozenset(
            key for key, own in evidence.superseded.items() if any(one.memory_id == memory_id for one in own)
        )
        """The candidates that the memory supersedes."""
        self.count = 0
        self._kept: dict[PipelineConfig, Outcome] = {}

    def on(self, evidence: Evidence) -> Trials:
        """The same on other evidence of the query, with variants that begin with the same ones."""
        return Trials(evidence, self.memory_id, self.k, self.switched_off)

    def stages(self, config: PipelineConfig) -> PipelineRun:
        """Every stage's arrays."""
        self.count += 1
        return run(self.table, config, self.switched_off)

    def outcome(self, config: PipelineConfig) -> Outcome:
        """The outcome of a config; replayed at most once."""
        if config not in self._kept:
            self._kept[config] = self._replayed(config)
        return self._kept[config]

    def succeeds(self, config: PipelineConfig) -> bool:
        """Whether the memory is among the first k results."""
        rank = self.outcome(config).rank
        return rank is not None and rank <= self.k

    def stale_above(self, config: PipelineConfig) -> str | None:
        """The best ranked result that the memory supersedes and that is above it; None if there is none."""
        if not self.older:
            return None
        for result in self.outcome(config).results:
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

    def _replayed(self, config: PipelineConfig) -> Outcome:
        stages = self.stages(config)
        assembly = stages.of(ASSEMBLY)
        results, before = assembly.after, assembly.before
        order = results.order(0)
        ids = self.table.ids[0]
        names = tuple(ids[int(c)] for c in order)
        if self.column is None:
            return Outcome(None, None, (len(STAGES), 1.0), names, b"")
        rank = int(results.rank[0, self.column]) or None
        stood = rank or int(before.rank[0, self.column]) or None
        survived = sum(bool(stages.of(stage).after.alive[0, self.column]) for stage in _TO_SURVIVE)
        lacks = self._lacks(before)
        return Outcome(rank, stood, (len(_TO_SURVIVE) - survived, lacks), names, _fingerprint(results.score, order))

    def _lacks(self, before: Ranking) -> float:
        """1 - own score / score of the k-th (the last, if there are fewer); 1 if the memory is absent."""
        order = before.order(0)
        if self.column is None or not before.alive[0, self.column]:
            return 1.0
        wanted = float(before.score[0, order[min(self.k, len(order)) - 1]])
        return 1 - float(before.score[0, self.column]) / wanted if wanted > 0 else 1.0


def _fingerprint(score: Floats, order: np.ndarray) -> bytes:
    return bytes(score[0, order].tobytes())


def changed(config: PipelineConfig, path: str, value: Any) -> PipelineConfig:
    """A copy with one value replaced, without validation: callers pass thousands of valid values."""
    return cast(PipelineConfig, _changed(config, path.split("."), value))


def _changed(section: Section, segments: Sequence[str], value: Any) -> Section:
    name = attribute_name(segments[0])
    new = value if len(segments) == 1 else _changed(getattr(section, name), segments[1:], value)
    return section.model_copy(update={name: new})
