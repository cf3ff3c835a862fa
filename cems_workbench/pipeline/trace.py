"""The trace: what every stage did to every candidate, as rows.

Rows are made from the stage arrays when somebody looks at them and kept; a trace nobody reads costs nothing. Every chart,
"why not", export and test reads the trace and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.needs import unmet
from cems_workbench.pipeline.table import CandidateTable, StageArrays

Row = dict[str, Any]


class StageTrace:
    """One stage of one query: `rows`, `warnings`, `fields` of its own, and `elapsed_ms` (None when not timed)."""

    def __init__(self, arrays: StageArrays, table: CandidateTable, q: int, elapsed_ms: float | None) -> None:
        self.name = arrays.name
        self.elapsed_ms = elapsed_ms
        self._arrays = arrays
        self._table = table
        self._q = q

    @cached_property
    def rows(self) -> list[Row]:
        """One row per candidate that entered: the kept in their order, then the dropped in theirs."""
        return [self._row(int(c)) for c in self._ordered()]

    @cached_property
    def warnings(self) -> list[str]:
        """What a user should know about this stage: what gathering had to say of it, then what replay has."""
        noted = self._table.notes[self._q].get("warnings", {})
        return [*(str(line) for line in noted.get(self.name, ())), *self._arrays.warnings(self._q)]

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Fields of the stage beside its rows, such as the thresholds visited."""
        return self._arrays.fields(self._q)

    @property
    def candidates_in(self) -> int:
        """How many candidates entered."""
        return int(self._arrays.entered[self._q].sum())

    @property
    def candidates_out(self) -> int:
        """How many left."""
        return int(self._arrays.after.alive[self._q].sum())

    @cached_property
    def by_id(self) -> dict[str, Row]:
        """The rows by memory id."""
        return {row["memory_id"]: row for row in self.rows}

    def to_json(self) -> dict[str, Any]:
        """The stage as plain values."""
        head = {"name": self.name, "rows": self.rows, "warnings": self.warnings, "elapsed_ms": self.elapsed_ms}
        return head | {key: value for key, value in self.fields.items() if key not in head}

    def _ordered(self) -> np.ndarray:
        q, arrays = self._q, self._arrays
        entered = np.flatnonzero(arrays.entered[q])
        kept = arrays.after.alive[q, entered]
        rank = np.where(kept, arrays.after.rank[q, entered], arrays.before.rank[q, entered])
        score = np.nan_to_num(arrays.after.score[q, entered], nan=-np.inf)
        return entered[np.lexsort((entered, -score, rank, ~kept))]

    def _row(self, c: int) -> Row:
        q, arrays = self._q, self._arrays
        kept = bool(arrays.after.alive[q, c])
        row: Row = {
            "memory_id": self._table.ids[q][c],
            "rank_in": int(arrays.before.rank[q, c]) or None,
            "rank_out": (int(arrays.after.rank[q, c]) or None) if kept else None,
            "score_in": _number(arrays.before.score[q, c]),
            "score": _number(arrays.after.score[q, c]),
            "kept": kept,
            "reason": None if kept else arrays.reason(q, c),
        }
        for name, read in arrays.columns.items():
            row[name] = read(q, c)
        return row


class Trace:
    """What the pipeline did with one query under one config."""

    def __init__(
        self, evidence: Evidence, config: PipelineConfig, stages: Sequence[StageTrace], needs: Sequence[dict[str, Any]]
    ) -> None:
        self.evidence = evidence
        self.config = config
        self.stages = tuple(stages)
        self.stage_needs = tuple(needs)
        self._by_name = {stage.name: stage for stage in self.stages}

    def stage(self, name: str) -> StageTrace:
        """The stage of that name; KeyError when there is none."""
        return self._by_name[name]

    @cached_property
    def results(self) -> list[Row]:
        """The results in order: memory_id, score, rank, tokens, content and what a reader needs of the metadata."""
        rows = []
        for row in self.stage("assembly").rows:
            if row["kept"]:
                memory = self.evidence.memories[row["memory_id"]]
                rows.append(
                    {
                        "memory_id": row["memory_id"],
                        "score": row["score"],
                        "rank": row["rank_out"],
                        "tokens": row["tokens"],
                        "title": memory.title,
                        "category": memory.category,
                        "project": memory.project,
                        "session": memory.session,
                        "content": memory.content,
                    }
                )
        return rows

    @property
    def tokens_used(self) -> int:
        """Tokens of the assembled context."""
        return int(self.stage("assembly").fields["tokens_used"])

    @property
    def skipped_for_budget(self) -> list[str]:
        """Ids of memories that did not fit the token budget, sorted."""
        return list(self.stage("assembly").fields["skipped_for_budget"])

    @cached_property
    def needs(self) -> list[dict[str, Any]]:
        """What this config asks for that the evidence does not hold; empty when the trace is complete."""
        return [*unmet(self.config, self.evidence.notes), *self.stage_needs]

    @cached_property
    def warnings(self) -> list[tuple[str, str]]:
        """Every warning as (stage, text)."""
        return [(stage.name, text) for stage in self.stages for text in stage.warnings]

    def path(self, memory_id: str) -> list[tuple[str, Row]]:
        """A memory's rows through the stages it entered, as (stage name, row)."""
        return [(stage.name, stage.by_id[memory_id]) for stage in self.stages if memory_id in stage.by_id]

    def to_json(self) -> dict[str, Any]:
        """The trace as plain values, as `replay --json` prints it."""
        evidence = self.evidence
        return {
            "query": evidence.query,
            "as_of": evidence.as_of.isoformat() if evidence.as_of else None,
            "project": evidence.project,
            "config": self.config.name,
            "stages": [stage.to_json() for stage in self.stages],
            "results": self.results,
            "tokens_used": self.tokens_used,
            "skipped_for_budget": self.skipped_for_budget,
            "needs": self.needs,
        }

    def same_as(self, other: Trace) -> bool:
        """Equal in everything but the time the stages took."""
        return _untimed(self) == _untimed(other)


def _untimed(trace: Trace) -> str:
    values = trace.to_json()
    for stage in values["stages"]:
        stage.pop("elapsed_ms")
    return json.dumps(values, sort_keys=True)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
