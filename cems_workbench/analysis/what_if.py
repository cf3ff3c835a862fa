"""What if one memory were different? Its way through the pipeline as it is stored and as edited, side by side; nothing is written.

The evidence is made anew for that one memory (analysis/scratch_lists.py), the scores that a reranker or judge had for it are asked
for again, and both evidences are replayed under the same config.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

from cems_workbench.analysis.scratch_lists import scratch_evidence
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.judging import judge_missing
from cems_workbench.pipeline.rescoring import score_missing
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, indexed_text
from cems_workbench.store.vector_index import EXACT_ROWS
from cems_workbench.why.path import PATH_STAGES, memory_path


@dataclass(frozen=True, slots=True)
class Standing:
    """Rank and score in a list or after a stage, and what was done there in words; kept False where it was dropped."""

    rank: int | None
    score: float | None
    kept: bool
    words: str


@dataclass(frozen=True, slots=True)
class Pair:
    """The same list or stage before and after the edit; None where the memory is not there."""

    name: str
    before: Standing | None
    after: Standing | None

    @property
    def same(self) -> bool:
        """Nothing is different."""
        return self.before == self.after


@dataclass(frozen=True, slots=True)
class Moved:
    """Another result that changed its rank; None: it is not among the results."""

    memory_id: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class WhatIf:
    """One edit and what it does; `approximated` says in plain sentences what is not exactly as after a real edit."""

    stored: Memory
    edited: Memory
    before: Trace
    after: Trace
    approximated: tuple[str, ...]

    @property
    def changes(self) -> list[tuple[str, Any, Any]]:
        """The fields that differ, as (name, stored, edited)."""
        pairs = (
            (field.name, getattr(self.stored, field.name), getattr(self.edited, field.name)) for field in fields(Memory)
        )
        return [(name, was, now) for name, was, now in pairs if was != now]

    @property
    def rank(self) -> tuple[int | None, int | None]:
        """The memory's rank among the results, before and after."""
        before, after = (_ranks(trace).get(self.edited.id) for trace in (self.before, self.after))
        return before, after

    def lists(self) -> list[Pair]:
        """The memory's place in every list of either evidence."""
        before, after = (_in_lists(trace, self.edited.id) for trace in (self.before, self.after))
        names = dict.fromkeys(ranked.name for trace in (self.before, self.after) for ranked in trace.evidence.lists)
        return [Pair(name, before.get(name), after.get(name)) for name in names]

    def stages(self) -> list[Pair]:
        """The memory's way through the stages after the lists."""
        before, after = (_in_stages(trace, self.edited.id) for trace in (self.before, self.after))
        return [Pair(stage, before.get(stage), after.get(stage)) for stage in PATH_STAGES[1:]]

    def others(self) -> list[Moved]:
        """The other results whose rank is another one, by their rank afterwards; those that are gone come last."""
        before, after = _ranks(self.before), _ranks(self.after)
        moved = [
            Moved(key, before.get(key), after.get(key))
            for key in before.keys() | after.keys()
            if key != self.edited.id and before.get(key) != after.get(key)
        ]
        return sorted(moved, key=lambda one: (one.after is None, one.after or 0, one.before or 0, one.memory_id))


def what_if(
    edited: Memory, evidence: Evidence, config: PipelineConfig, request: Request, resources: Resources, *,
    switched_off: Collection[int] = (), progress: Progress = silent,
) -> WhatIf:  # fmt: skip
    """What the pipeline would do with `evidence` were the stored memory of that id as `edited`.

    Raises InputError when there is no such memory, ModelError when its text cannot be embedded. Only scores of a reranker or judge
    for the changed text are kept, in their cache; no memory is written.
    """
    stored = resources.store.memory(edited.id)
    if stored is None:
        raise InputError(f"{edited.id}: no such memory; it may have been deleted")
    scratch = scratch_evidence(edited, evidence, config, request, resources)
    scratch = score_missing(scratch, config, resources, progress, switched_off=switched_off)
    if any(edited.id in scores for scores in evidence.judge_scores.values()):
        scratch = judge_missing(scratch, config, resources, progress, switched_off=switched_off)
    before, after = (replay(one, config, switched_off=switched_off) for one in (evidence, scratch))
    return WhatIf(stored, edited, before, after, tuple(_approximated(stored, edited, evidence, resources)))


def _approximated(stored: Memory, edited: Memory, evidence: Evidence, resources: Resources) -> list[str]:
    if indexed_text(stored) == indexed_text(edited):
        return []
    said = []
    if any(ranked.source == "lexical" for ranked in evidence.lists):
        said.append(
            "BM25 takes word frequencies and mean length from the store as it is; a real edit would shift them a little."
        )
    if len(evidence.variants) > 1:
        said.append(
            "The query variants are those that were searched; expansion might choose other words after a real edit."
        )
    if len(resources.indexes.vectors) > EXACT_ROWS:
        said.append(
            "The vector index searches approximately in a store of this size; the edited memory is placed by its exact cosine."
        )
    return said


def _ranks(trace: Trace) -> dict[str, int]:
    return {row["memory_id"]: row["rank"] for row in trace.results}


def _in_lists(trace: Trace, memory_id: str) -> dict[str, Standing]:
    row = trace.stage("lists").by_id.get(memory_id)
    return {
        entry["list"]: Standing(
            entry["rank"], entry["raw"], entry["kept"], "" if entry["kept"] else "off, or past its depth"
        )
        for entry in (row["lists"] if row else ())
    }


def _in_stages(trace: Trace, memory_id: str) -> dict[str, Standing]:
    path = memory_path(trace, memory_id, max(1, len(trace.results)))
    return {step.stage: Standing(step.rank, step.score, step.kept, step.words) for step in path.steps}
