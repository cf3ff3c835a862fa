"""The trace: what every stage did to every candidate of one query, as typed rows.

Rows are made from the stage arrays on first access; an unread trace costs nothing. Every chart,
"why not", export and test reads the trace and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.missing_evidence import Need, unmet
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.result import (
    FieldsT,
    RowT,
    ScoreNeed,
    StageFields,
    StageRow,
    StageTrace,
    field_names,
    plain_fields,
)
from cems_workbench.pipeline.stages.stage import AnyStage, PipelineRun, Stage
from cems_workbench.pipeline.table import CandidateTable, chars4


@dataclass(frozen=True, slots=True)
class Result:
    """One result: its rank and score, the tokens of its content, and metadata for display."""

    memory_id: str
    score: float | None
    """None only where an external trace has none."""
    rank: int
    tokens: int
    title: str | None
    category: str | None
    project: str | None
    session: str | None
    content: str

    def to_json(self) -> dict[str, Any]:
        """The result as plain values."""
        return plain_fields(self, field_names(Result))


class Trace:
    """One query's way through the pipeline under one config."""

    def __init__(
        self,
        evidence: Evidence,
        config: PipelineConfig,
        stages: Sequence[StageTrace[StageRow, StageFields]],
        needs: Sequence[ScoreNeed],
        run: PipelineRun,
        table: CandidateTable,
    ) -> None:
        """`run` and `table` are what the stages are a view of: a batch of one query."""
        self.evidence = evidence
        self.config = config
        self.run = run
        self.table = table
        self.stages = tuple(stages)
        self.stage_needs = tuple(needs)
        self._by_name = {stage.name: stage for stage in self.stages}

    @overload
    def stage(self, stage: Stage[RowT, FieldsT, Any]) -> StageTrace[RowT, FieldsT]: ...

    @overload
    def stage(self, stage: str) -> StageTrace[StageRow, StageFields]: ...

    def stage(self, stage: Stage[Any, Any, Any] | str) -> StageTrace[Any, Any]:
        """The trace of one stage: for a record typed with the stage's rows, for a name with the row contract.

        KeyError when there is no stage of that name. An external trace has no stage of ours but for the lists, whatever its stages are
        called.
        """
        if self.external and not isinstance(stage, str) and stage not in self.run.stages and stage.name != LISTS.name:
            raise KeyError(f"{stage.name} is no stage of an external trace")
        return self._by_name[stage if isinstance(stage, str) else stage.name]

    @property
    def external(self) -> bool:
        """Whether the stages were recorded by another pipeline, so that the config has no effect."""
        return self.table.recorded is not None

    @property
    def candidate_stages(self) -> tuple[AnyStage, ...]:
        """The stages that can drop a memory, in order."""
        return self.run.candidate_stages

    @property
    def ranking_stages(self) -> tuple[AnyStage, ...]:
        """The stages after which candidates have a rank, in order; the ranks after the last are those of the results."""
        return self.run.ranking_stages

    def record(self, name: str) -> AnyStage:
        """The record of the stage of a name. KeyError when there is none."""
        return self._records[name]

    @cached_property
    def _records(self) -> Mapping[str, AnyStage]:
        return {stage.name: stage for stage in self.run.stages}

    @cached_property
    def columns(self) -> Mapping[str, int]:
        """The candidates' columns in the table, by memory id."""
        return {memory_id: c for c, memory_id in enumerate(self.table.ids[0])}

    @cached_property
    def results(self) -> list[Result]:
        """The results in order."""
        memories = self.evidence.memories
        if self.external:
            return self._recorded_results()
        return [
            Result(
                row.memory_id,
                row.score,
                row.rank_out,
                row.tokens,
                memory.title,
                memory.category,
                memory.project,
                memory.session,
                memory.content,
            )
            for row in self.stage(ASSEMBLY).rows
            if row.rank_out is not None and row.score is not None and (memory := memories[row.memory_id])
        ]

    def _recorded_results(self) -> list[Result]:
        found = [(row, self.evidence.memories[row.memory_id]) for row in self.stage(self.run.last.name).kept]
        return [
            Result(
                row.memory_id,
                row.score,
                rank,
                chars4(memory.content),
                memory.title,
                memory.category,
                memory.project,
                memory.session,
                memory.content,
            )
            for rank, (row, memory) in enumerate(found, 1)
        ]

    @property
    def tokens_used(self) -> int:
        """Tokens of the assembled context; of an external trace those of its results."""
        if self.external:
            return sum(result.tokens for result in self.results)
        return self.stage(ASSEMBLY).fields.tokens_used

    @property
    def skipped_for_budget(self) -> list[str]:
        """Ids of memories that did not fit the token budget, sorted."""
        return [] if self.external else list(self.stage(ASSEMBLY).fields.skipped_for_budget)

    @cached_property
    def needs(self) -> list[Need]:
        """What this config needs and the evidence lacks; empty if the trace is complete."""
        return [] if self.external else [*unmet(self.config, self.evidence), *self.stage_needs]

    @cached_property
    def warnings(self) -> list[tuple[str, str]]:
        """Every warning as (stage, text)."""
        return [(stage.name, text) for stage in self.stages for text in stage.warnings]

    def path(self, memory_id: str) -> list[tuple[str, StageRow]]:
        """A memory's rows through the stages it entered, as (stage name, row)."""
        return [(stage.name, stage.by_id[memory_id]) for stage in self.stages if memory_id in stage.by_id]

    def to_json(self) -> dict[str, Any]:
        """The trace as plain values, as `replay --json` prints it."""
        evidence = self.evidence
        return (
            {
                "query": evidence.query,
                "as_of": evidence.as_of.isoformat() if evidence.as_of else None,
                "project": evidence.project,
                "config": self.config.name,
                "stages": [stage.to_json() for stage in self.stages],
                "results": [result.to_json() for result in self.results],
                "tokens_used": self.tokens_used,
                "skipped_for_budget": self.skipped_for_budget,
                "needs": [need.to_json() for need in self.needs],
            }
            | ({"external": True} if self.external else {})
            | ({"engine": evidence.notes["engine"]} if evidence.notes.get("engine") else {})
        )

    def same_as(self, other: Trace) -> bool:
        """Equal in everything but the time the stages took."""
        return _untimed(self) == _untimed(other)


def _untimed(trace: Trace) -> str:
    values = trace.to_json()
    for stage in values["stages"]:
        stage.pop("elapsed_ms")
    return json.dumps(values, sort_keys=True)
