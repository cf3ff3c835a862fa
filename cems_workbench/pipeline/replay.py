"""replay(evidence, config) -> Trace: every stage after gathering, as a pure function.

No model, no search, no file, no clock, no randomness: the same evidence and config give the same trace on any machine.
`run` is the same thing over a batch of queries without making traces; a single query is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig, list_depths
from cems_workbench.pipeline.encode import encode_one
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.stages.adjust import apply_adjust
from cems_workbench.pipeline.stages.assembly import apply_assembly
from cems_workbench.pipeline.stages.dedup import apply_dedup
from cems_workbench.pipeline.stages.filter import apply_filter
from cems_workbench.pipeline.stages.fusion import apply_fusion
from cems_workbench.pipeline.stages.gap import apply_gap
from cems_workbench.pipeline.stages.judge import apply_judge
from cems_workbench.pipeline.stages.lists import apply_lists
from cems_workbench.pipeline.stages.query import cuts_a_word, detect, is_aggregation
from cems_workbench.pipeline.stages.rerank import apply_rerank, model_key
from cems_workbench.pipeline.stages.threshold import apply_threshold
from cems_workbench.pipeline.table import Bools, CandidateTable, StageArrays, Standing, remembered, unranked
from cems_workbench.pipeline.trace import StageTrace, Trace

STAGES = (
    "query", "expansion", "lists", "threshold", "fusion", "filter", "rerank", "adjust", "gap", "dedup", "assembly", "judge",
)  # fmt: skip
"""The stages of every trace, in order."""

Clock = Callable[[], float]
"""Seconds from any origin; handed in by whoever wants the stages timed."""


def replay(
    evidence: Evidence,
    config: PipelineConfig,
    *,
    switched_off: Collection[int] = (),
    clock: Clock | None = None,
) -> Trace:
    """Run the pipeline over gathered evidence.

    Args:
        evidence: what gather found, or a bundle; it is not changed.
        config: every parameter. Gather parameters that differ from what was gathered are listed in `trace.needs`.
        switched_off: indices of query variants whose lists are left out.
        clock: when given, each stage's `elapsed_ms` is measured with it; otherwise it is None.
    """
    table = encode_one(evidence)
    marks: list[float] = []
    stages = run(table, config, switched_off, clock, marks)
    elapsed = np.diff(marks) * 1000 if marks else [None] * len(stages)
    views = [
        StageTrace(stage, table, 0, None if ms is None else float(ms))
        for stage, ms in zip(stages, elapsed, strict=True)
    ]
    return Trace(evidence, config, views, [need for stage in stages for need in stage.needs(0)])


def run(
    table: CandidateTable,
    config: PipelineConfig,
    switched_off: Collection[int] = (),
    clock: Clock | None = None,
    marks: list[float] | None = None,
) -> list[StageArrays]:
    """Every stage over a batch of Q queries, in order; `marks` receives the clock before and after each stage."""

    def tick() -> None:
        if clock is not None and marks is not None:
            marks.append(clock())

    stages: list[StageArrays] = []

    def done(stage: StageArrays) -> Standing:
        stages.append(stage)
        tick()
        return stage.after

    limit = config.assembly.limit
    tick()
    aggregation = remembered(table.memo, "aggregation", config.query.detectors, lambda: _aggregation(table, config))
    done(_query(table, config))
    done(_expansion(table, switched_off))
    lists = apply_lists(table, config.lists, list_depths(config), switched_off)
    done(lists.stage)
    lists = apply_threshold(table, lists, config.threshold, limit)
    done(lists.stage)
    standing = done(apply_fusion(table, lists, config.fusion, config.lists, config.variants))
    standing = done(apply_filter(standing, config.filter, config.query.raw))
    standing = done(apply_rerank(table, standing, config.rerank, config.fusion.k, limit))
    standing = done(apply_adjust(table, standing, config.adjust))
    standing = done(apply_gap(standing, config.gap))
    standing = done(apply_dedup(table, standing, config.dedup))
    standing = done(apply_assembly(table, standing, config.assembly, aggregation))
    ranked_by = None if config.rerank.backend == "none" else model_key(config.rerank)
    done(apply_judge(table, standing, config.judge, ranked_by))
    return stages


def _aggregation(table: CandidateTable, config: PipelineConfig) -> Bools:
    return np.array([is_aggregation(query, config.query.detectors) for query in table.queries], dtype=bool)


def _nobody(table: CandidateTable) -> Standing:
    make = lambda: unranked(np.zeros(table.shape, dtype=bool), np.full(table.shape, np.nan))  # noqa: E731
    return remembered(table.memo, "nobody", None, make)


def _query(table: CandidateTable, config: PipelineConfig) -> StageArrays:
    """Reports the query's signals; candidates do not exist yet."""
    standing = _nobody(table)

    def fields(q: int) -> dict[str, Any]:
        query = table.queries[q]
        matches = detect(query, config.query.detectors)
        found = [
            {
                "detector": match.detector,
                "signal": match.signal,
                "start": match.start,
                "end": match.end,
                "cuts_word": cuts_a_word(query, match),
            }
            for match in matches
        ]
        return {"query": query, "mode": config.query.mode, "matches": found, **table.notes[q].get("query", {})}

    def warnings(q: int) -> list[str]:
        query = table.queries[q]
        return [
            f"{match.detector}: “{match.signal}” was found inside a word (“{_word_around(query, match.start, match.end)}”)"
            for match in detect(query, config.query.detectors)
            if cuts_a_word(query, match)
        ]

    return StageArrays("query", standing.alive, standing, standing, fields=fields, warnings=warnings)


def _expansion(table: CandidateTable, switched_off: Collection[int]) -> StageArrays:
    """Reports the variants that gather searched and what its strong-signal probe saw."""
    standing = _nobody(table)

    def fields(q: int) -> dict[str, Any]:
        return {"switched_off": sorted(switched_off), **table.notes[q].get("expansion", {})}

    return StageArrays("expansion", standing.alive, standing, standing, fields=fields)


def _word_around(query: str, start: int, end: int) -> str:
    while start > 0 and query[start - 1].isalnum():
        start -= 1
    while end < len(query) and query[end].isalnum():
        end += 1
    return query[start:end]
