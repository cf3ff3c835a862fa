"""replay(evidence, config) -> Trace: every stage after gathering, as a pure function.

No model, no search, no file, no clock, no randomness: the same evidence and config give the same trace on any machine.
`run` is the same thing over a batch of queries without making traces; a single query is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.stages import stages_of
from cems_workbench.pipeline.stages.query import no_candidates
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow, StageTrace
from cems_workbench.pipeline.stages.stage import PipelineRun, StageInput
from cems_workbench.pipeline.table import CandidateTable, gathered_lists
from cems_workbench.pipeline.tabulate import single_table
from cems_workbench.pipeline.trace import Trace

Clock = Callable[[], float]
"""Seconds from any origin; passed by callers that time the stages."""


def replay(
    evidence: Evidence,
    config: PipelineConfig,
    *,
    switched_off: Collection[int] = (),
    lists_off: Collection[str] = (),
    clock: Clock | None = None,
) -> Trace:
    """Run the pipeline over gathered evidence; of an external trace, return its recorded stages.

    Args:
        evidence: the result of gather, or a bundle; it is not changed.
        config: every parameter. Gather parameters that differ from what was gathered are listed in `trace.needs`.
        switched_off: indices of query variants whose lists are left out.
        lists_off: names of lists that are left out; lists made from one of them are unchanged.
        clock: when given, each stage's `elapsed_ms` is measured with it; otherwise it is None.
    """
    table = single_table(evidence)
    marks: list[float] = []
    done = run(table, config, switched_off, clock, marks, lists_off)
    # Without a clock replay stays a pure function: None, not 0.
    elapsed: Sequence[float | None] = (np.diff(marks) * 1000).tolist() if marks else [None] * len(done.stages)
    if table.recorded is not None:
        elapsed = [None, *[way.ms[0] for way in table.recorded.ways]]
    traces = [StageTrace(name, arrays, table, 0, ms) for (name, arrays), ms in zip(done.items(), elapsed, strict=True)]
    return Trace(
        evidence, config, traces, [need for _, arrays in done.items() for need in arrays.needs(0)], done, table
    )


def run(
    table: CandidateTable,
    config: PipelineConfig,
    switched_off: Collection[int] = (),
    clock: Clock | None = None,
    marks: list[float] | None = None,
    lists_off: Collection[str] = (),
) -> PipelineRun:
    """Every stage over a batch of Q queries, in order; `marks` receives the clock before and after each stage.

    Of external traces the recorded stages, under any config.
    """

    def tick() -> None:
        if clock is not None and marks is not None:
            marks.append(clock())

    given = StageInput(
        table, config, frozenset(switched_off), no_candidates(table), gathered_lists(table), frozenset(lists_off)
    )
    done: dict[str, StageArrays[StageRow, StageFields]] = {}
    tick()
    stages = stages_of(table, config)
    for stage in stages:
        arrays = done[stage.name] = stage(given)
        if not arrays.passed:
            given = given._replace(ranking=arrays.after, lists=arrays.lists or given.lists)
        tick()
    return PipelineRun(stages, done)
