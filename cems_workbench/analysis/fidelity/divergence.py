"""Divergence of a trace from a recorded answer: the first stage that cannot be right.

The two diverge at a stage if it drops a recorded result, or if it is the first after which the recorded results among ours are in
another order up to the end: an order that a later stage corrects does not count. A result of ours that is not in the recording was
dropped in the real system by an unknown stage; it is reported only if there is no other divergence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cems_workbench.analysis.ranks import RESULTS, dropped, ranked_stages, ranks_in
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import LISTS, stages_in_order

How = Literal["lost", "order", "extra"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The stage of the divergence, the memory that shows it, and how: it is lost, has another rank, or is only in our results."""

    stage: str
    memory_id: str
    how: How
    reason: str


def first_divergence(trace: Trace, recorded: Sequence[str], ours: Sequence[str] | None = None) -> Divergence | None:
    """The first stage after which the recorded results can no longer be reproduced; None if they are.

    `ours` are our results cut to the recorded length; by default all results of the trace.
    """
    results = [result.memory_id for result in trace.results] if ours is None else list(ours)
    if list(recorded) == results:
        return None
    found = [*_lost(trace, recorded, results), *_reordered(trace, recorded, results)]
    if found:
        place = {stage.name: number for number, stage in enumerate(stages_in_order(trace.config))}
        return min(
            found, key=lambda one: place[one.stage]
        )  # of one stage: a loss before an order, the best ranked first
    extra = next(key for key in results if key not in set(recorded))
    return Divergence(RESULTS, extra, "extra", "we return it; the recording does not")


def _lost(trace: Trace, recorded: Sequence[str], results: Sequence[str]) -> list[Divergence]:
    """The recorded memories that are not in our results, each with the stage that dropped it."""
    partings = []
    for memory_id in recorded:
        if memory_id in results:
            continue
        end = dropped(trace, memory_id)
        if end is not None:
            partings.append(Divergence(end.stage, memory_id, "lost", end.reason))
        elif memory_id not in trace.stage(LISTS).by_id:
            partings.append(Divergence(LISTS.name, memory_id, "lost", "no list returned it"))
        else:  # it is a result past the cut
            partings.append(Divergence(RESULTS, memory_id, "lost", "it stands further down"))
    return partings


def _reordered(trace: Trace, recorded: Sequence[str], results: Sequence[str]) -> list[Divergence]:
    """The first stage from which the common memories stay in another order; None if the final order is the same."""
    common = [memory_id for memory_id in recorded if memory_id in results]
    wrong: Divergence | None = None
    for stage in reversed(ranked_stages(trace)):
        ranks = ranks_in(trace, stage)
        order = sorted((key for key in common if key in ranks), key=lambda key: ranks[key][0])
        first = next((theirs for theirs, own in zip(common, order, strict=False) if theirs != own), None)
        if first is None:
            break
        before = order[common.index(first)]
        reason = f"{before} stands before it; there it stands before {before}"
        wrong = Divergence(stage, first, "order", reason)
    return [wrong] if wrong is not None else []
