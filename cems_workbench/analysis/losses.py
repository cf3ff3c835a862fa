"""The stage that loses a candidate, decided on the arrays of a replay for one query or a thousand.

A candidate is lost at the first stage from which on it is never again within the first `k`: the stage ranked it worse than k, or dropped
it. Before fusion there are no ranks, so a candidate that is kept can still reach them. `analysis/ranks.py:loss` reads one memory's loss
from here, and `evaluation/losses.py` counts those of a query set, so that one query and the whole set agree.

What a loss is depends on the stage that made it (`Branch`):

    never     in no list of the evidence, and not fetched as a successor (a fetched one can only be lost from there on)
    depth     in a list, but past its depth, or the list is off
    dropped   by a threshold, a filter, the gap, a duplicate, the budget, or because nothing was returned
    below     kept, and ranked worse than k; or cut off by the result limit
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.stages import ASSEMBLY, STAGES
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.stage import AnyStage, PipelineRun
from cems_workbench.pipeline.table import Bools, CandidateTable, Ints

Manner = Literal["never", "depth", "dropped", "below"]
RETURNED, NEVER = -1, -2
"""Values of `LossArrays.at` that are no stage."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Where relevant memories leave: the stage, and what it did to them. The stage of what no list found is empty."""

    stage: str
    manner: Manner

    def words(self, k: int) -> str:
        """ "pushed below 10 by adjust": a label."""
        if self.manner == "never":
            return "never a candidate"
        if self.manner == "depth":
            return "kept by no list"
        if self.manner == "dropped":
            return f"dropped by {self.stage}"
        # Its limit may be less than k, and then nothing pushed them.
        return (
            f"left out of the first {k} by assembly"
            if self.stage == ASSEMBLY.name
            else f"pushed below {k} by {self.stage}"
        )

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: pipeline order, of one stage the dropped first."""
        names = [stage.name for stage in STAGES]
        return names.index(self.stage) if self.stage in names else -1, int(self.manner == "below")

    def to_json(self) -> dict[str, Any]:
        """Stage and manner as plain values."""
        return {"stage": self.stage, "manner": self.manner}


NEVER_FOUND = Branch("", "never")
"""The branch of memories that no list of the evidence has."""


def in_pipeline_order(branches: Iterable[Branch], stages: Sequence[str]) -> list[Branch]:
    """The branches in the order of these stages, of one stage the dropped first; what was never a candidate comes before all."""
    place = {name: i for i, name in enumerate(stages)}
    return sorted(branches, key=lambda branch: (place.get(branch.stage, -1), branch.manner == "below"))


@dataclass(frozen=True, eq=False)
class LossArrays:
    """The losses of candidates: (Q, C) of all, or (P) of those that were asked for."""

    stages: tuple[str, ...]
    """The stages that can lose a memory, in the order of the config."""
    at: NDArray[np.int8]
    """Index into `stages` of the one that lost it; RETURNED if it ends within the first k, NEVER if no list of the evidence has it and
    no stage brought it in."""
    dropped: Bools
    """Whether that stage dropped it; False if it ranked it worse than k, or cut it off at the result limit."""
    rank: Ints
    """The rank that the stage gave it, or with which it was dropped; of the returned the one in the results. 0 before fusion."""

    def branch(self, at: int, dropped: bool) -> Branch | None:
        """The branch of a value of `at` and one of `dropped`; None for the returned."""
        if at == RETURNED:
            return None
        if at == NEVER:
            return NEVER_FOUND
        stage = self.stages[at]
        if stage == LISTS.name:
            return Branch(stage, "depth")
        return Branch(stage, "dropped" if dropped else "below")


def lost(
    done: PipelineRun,
    table: CandidateTable,
    config: PipelineConfig,
    k: int,
    of: tuple[Ints, Ints] | None = None,
) -> LossArrays:
    """Where each candidate of a replay is lost at `k`.

    `done` is what the stages did with the queries of `table`, under `config` or as recorded; `of` are the rows (P) and columns (P) of the
    candidates that are asked for, all (Q, C) when None. Few of them are cheap: no stage has to rank everything.
    """
    if of is None:
        queries, columns = np.indices(table.shape)
        flat = lost(done, table, config, k, (queries.ravel(), columns.ravel()))
        shape = table.shape
        return LossArrays(flat.stages, flat.at.reshape(shape), flat.dropped.reshape(shape), flat.rank.reshape(shape))
    q, c = of
    stages = done.candidate_stages
    at: NDArray[np.int8] = np.full(len(q), RETURNED, dtype=np.int8)
    dropped: Bools = np.zeros(len(q), dtype=bool)
    rank: Ints = np.zeros(len(q), dtype=np.int64)
    first = _first_entered(done, stages, q, c)
    at[first == len(stages)] = NEVER
    left: Ints = np.flatnonzero(first < len(stages))  # those that no later stage has within k
    for i in reversed(range(len(stages))):
        arrays = done.of(stages[i])
        if arrays.passed and i:  # as the stage before left it
            continue
        kept = arrays.entered[q[left], c[left]] & arrays.after.alive[q[left], c[left]]
        after = arrays.after.rank_of(q[left], c[left])
        within = kept & (after <= k)
        if arrays.waiting is not None:
            within |= arrays.waiting[q[left], c[left]]
        returned = within & (at[left] == RETURNED)
        rank[left[returned]] = after[returned]
        left = left[~within]
        at[left], dropped[left], rank[left] = i, ~kept[~within], after[~within]
        left = left[first[left] < i]
        if not len(left):
            break
    # Only now is it known which stage lost each, and few are left to ask why.
    for i in np.unique(at[dropped]).tolist():
        arrays, out = done.of(stages[i]), np.flatnonzero(dropped & (at == i))
        rank[out] = arrays.before.rank_of(q[out], c[out])
        for p in out.tolist():
            dropped[p] = not arrays.past_limit(int(q[p]), int(c[p]))
    return LossArrays(tuple(stage.name for stage in stages), at, dropped, rank)


def _first_entered(done: PipelineRun, stages: Sequence[AnyStage], q: Ints, c: Ints) -> Ints:
    """(P) index of the first stage that each candidate entered, the number of stages if none.

    That is `lists`, but for a candidate that no list has and a later stage brought in, as supersession brings successors.
    """
    entered = done.of(LISTS).entered[q, c]
    first: Ints = np.where(entered, 0, len(stages))
    for i, stage in enumerate(stages):
        absent = np.flatnonzero(first == len(stages))
        if not len(absent):
            break
        first[absent[done.of(stage).entered[q[absent], c[absent]]]] = i
    return first
