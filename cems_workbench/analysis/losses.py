"""The stage that loses a candidate, decided on the arrays of a replay for one query or a thousand.

A candidate is within reach after a stage if it is kept and ranks within the first `k`: after the lists, and stages that cut these, in
one list at least, from fusion on in the ranking. It is lost at the first stage after which it is never again within reach. One that never
was is lost at `lists`, unless a stage dropped it: what leaves it below k, as the result limit does, took nothing away. One that fusion left
below k is lost where it is dropped if a reranker behind that reads as far as its rank, and might have lifted it.
`analysis/ranks.py:loss` reads one memory's loss from here, and `analysis/losses_of_set.py` counts those of a query set, so that a query and
the whole set agree.

What a loss is depends on the stage that made it (`Branch`):

    never     in no list of the evidence, and not fetched as a successor (a fetched one can only be lost from there on)
    depth     in a list, but past its depth, or the list is off
    dropped   by a threshold, a filter, the gap, a duplicate, the budget, or because nothing was returned
    below     kept, and ranked worse than k; or cut off by the result limit; at `lists`: worse than k in every list that has it

A trace often has no reason for a drop. A stage that ranks then kept as many as its limit, and so did the last one if it cut off the end of
what it read. Where one list is all that ranks there is no other order to look for: whatever stage dropped the candidate lost it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.recorded import NOT_READ, NOT_RETURNED
from cems_workbench.pipeline.stages import ASSEMBLY
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow
from cems_workbench.pipeline.stages.stage import AnyStage, PipelineRun
from cems_workbench.pipeline.table import NO_RANK, Bools, CandidateTable, Ints, ListArrays
from cems_workbench.records import StageKind

Manner = Literal["never", "depth", "dropped", "below"]
RETURNED, NEVER = -1, -2
"""Values of `LossArrays.at` that are no stage."""
RANKING_KINDS: tuple[StageKind, ...] = ("fusion", "rerank", "adjust")


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
        if self.stage == LISTS.name:
            return f"below {k} in every list"
        # Its limit may be less than k, and then nothing pushed them.
        return (
            f"left out of the first {k} by assembly"
            if self.stage == ASSEMBLY.name
            else f"pushed below {k} by {self.stage}"
        )

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
    """The losses of P candidates."""

    stages: tuple[str, ...]
    """The stages that can lose a memory, in the order of the config."""
    at: NDArray[np.int8]
    """Index into `stages` of the one that lost it; RETURNED if it ends within the first k, NEVER if no list of the evidence has it and
    no stage brought it in."""
    dropped: Bools
    """Whether that stage dropped it; False if it ranked it worse than k, or cut it off at the result limit."""
    rank: Ints
    """The rank that the stage gave it, or with which it was dropped; at `lists` the best in a list, 0 where no list keeps it; of the
    returned the one in the results."""

    @property
    def branches(self) -> list[Branch | None]:
        """(P) the branches; None for the returned."""
        made: dict[tuple[int, bool], Branch | None] = {}
        for dropped in (False, True):
            made |= {(RETURNED, dropped): None, (NEVER, dropped): NEVER_FOUND}
            for at, stage in enumerate(self.stages):
                drops: Manner = "depth" if stage == LISTS.name else "dropped"
                made[at, dropped] = Branch(stage, drops if dropped else "below")
        return [made[pair] for pair in zip(self.at.tolist(), self.dropped.tolist(), strict=True)]


def lost(
    done: PipelineRun,
    table: CandidateTable,
    config: PipelineConfig,
    k: int,
    of: tuple[Ints, Ints],
) -> LossArrays:
    """Where candidates of a replay are lost at `k`.

    `done` is what the stages did with the queries of `table`, under `config` or as recorded; `of` are the rows (P) and columns (P) of the
    candidates. Few of them are cheap: no stage has to rank everything.
    """
    q, c = of
    stages = done.candidate_stages
    at: NDArray[np.int8] = np.full(len(q), NEVER, dtype=np.int8)
    dropped: Bools = np.zeros(len(q), dtype=bool)
    rank: Ints = np.zeros(len(q), dtype=np.int64)
    final = done.results.after
    rank[:] = np.where(final.alive[q, c], final.rank_of(q, c), 0)
    returned = (rank > 0) & (rank <= k)
    at[returned] = RETURNED
    left: Ints = np.flatnonzero(~returned)
    lists: ListArrays | None = None
    for i, stage in enumerate(stages):
        arrays = done.of(stage)
        lists = arrays.lists or lists
        if arrays.passed and i:  # as the stage before left it
            continue
        ql, cl, was = q[left], c[left], at[left]
        entered = arrays.entered[ql, cl]
        kept = entered & arrays.after.alive[ql, cl]
        after = _best(table, lists, ql, cl) if stage.works_on == "lists" else arrays.after.rank_of(ql, cl)
        within = kept & (after <= k)
        at[left[within]] = RETURNED  # so far
        leaves = ~within & ((was == RETURNED) | (entered & (was == NEVER)))
        if arrays.waiting is not None:
            leaves &= ~arrays.waiting[ql, cl]
        # Never within reach so far, or still to be read.
        gone = entered & ~kept & ~dropped[left]
        if gone.any():
            place = arrays.before.rank_of(ql, cl)
            gone &= (was == 0) | ((place > 0) & (place <= _read_later(done, table, config, i)[ql]))
        gone[gone] = [not _past_limit(table, stages, i, arrays, *pair) for pair in zip(ql[gone], cl[gone], strict=True)]
        lost_here = leaves | gone
        places = left[lost_here]
        at[places], dropped[places], rank[places] = i, ~kept[lost_here], after[lost_here]
        out = places[dropped[places]]
        rank[out] = arrays.before.rank_of(q[out], c[out])
        for p in left[leaves & ~kept].tolist():
            dropped[p] = not arrays.past_limit(int(q[p]), int(c[p]))
    return LossArrays(tuple(stage.name for stage in stages), at, dropped, rank)


def _read_later(done: PipelineRun, table: CandidateTable, config: PipelineConfig, i: int) -> Ints:
    """(Q) to which rank the rerankers after stage `i` read, 0 without any."""
    read: Ints = np.zeros(table.shape[0], dtype=np.int64)
    later = done.candidate_stages[i + 1 :]
    if table.recorded is None:
        own = config.rerank
        return read if own.backend == "none" or RERANK not in later else read + (own.depth or NO_RANK)
    for stage, head in zip(later, table.recorded.heads[i:], strict=True):
        if head.kind == "rerank":
            arrays = done.of(stage)
            taken = arrays.entered.sum(axis=1)
            for q, c in np.argwhere(arrays.entered & ~arrays.after.alive).tolist():
                taken[q] -= arrays.reason(q, c) == NOT_READ
            read = np.maximum(read, taken)
    return read


def _best(table: CandidateTable, lists: ListArrays | None, q: Ints, c: Ints) -> Ints:
    """(P) the best rank of each candidate in the lists that take part, `NO_RANK` in none."""
    if table.recorded is not None:
        return table.recorded.best[q, c]
    assert lists is not None
    found = np.where(lists.present[q, :, c], lists.places.position[q, :, c], NO_RANK)
    best: Ints = found.min(axis=1, initial=NO_RANK)
    return best


def _past_limit(
    table: CandidateTable,
    stages: Sequence[AnyStage],
    i: int,
    arrays: StageArrays[StageRow, StageFields],
    q: int,
    c: int,
) -> bool:
    """Whether a candidate is past the limit of stage `i`; of a trace that gives no reason, as the module says."""
    if table.recorded is None:
        return arrays.past_limit(q, c)
    heads = table.recorded.heads
    if len(table.recorded.lists[q]) == 1 and not any(head.kind in RANKING_KINDS for head in heads):
        return False
    kind, reason = heads[i - 1].kind, arrays.reason(q, c)
    if reason not in (NOT_RETURNED, NOT_READ):
        return arrays.past_limit(q, c)
    if kind in RANKING_KINDS:
        return reason == NOT_RETURNED or kind != "rerank"  # what a reranker never read has no rank of it
    ends = kind == "assembly" or (kind == "other" and i == len(stages) - 1)
    before = arrays.before.rank[q]
    return ends and bool(before[arrays.after.alive[q]].max(initial=0) < (before[c] or NO_RANK))
