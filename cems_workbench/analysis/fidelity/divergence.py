"""Where our trace of a query parts from what a real system answered: the first stage that cannot be right.

A stage is where the two part when a recorded result does not leave it, or when it is the first after which the recorded results that
we have stand in another order, and go on doing so to the end: an order that a later stage puts right was none of its business. What
we have and the recording lacks was dropped there by a stage that cannot be seen from here; it is named only where nothing else parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cems_workbench.analysis.ranks import RANKED_STAGES, dropped, ranks_in
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import LISTS, STAGES

How = Literal["lost", "order", "extra"]
_PLACE = {stage.name: place for place, stage in enumerate(STAGES)}


@dataclass(frozen=True, slots=True)
class Divergence:
    """The stage at which the two part, which memory shows it, and how: it is lost, stands elsewhere, or is ours alone."""

    stage: str
    memory_id: str
    how: How
    reason: str


def first_divergence(trace: Trace, recorded: Sequence[str], ours: Sequence[str] | None = None) -> Divergence | None:
    """The first stage after which the recorded results can no longer be reproduced; None when they are.

    `ours` are our results where they were cut to the recorded ones' length; else all of the trace.
    """
    results = [result.memory_id for result in trace.results] if ours is None else list(ours)
    if list(recorded) == results:
        return None
    found = [*_lost(trace, recorded, results), *_reordered(trace, recorded, results)]
    if found:
        return min(
            found, key=lambda one: _PLACE[one.stage]
        )  # of one stage: a loss before an order, the best ranked first
    extra = next(key for key in results if key not in set(recorded))
    return Divergence(RANKED_STAGES[-1], extra, "extra", "we return it; the recording does not")


def _lost(trace: Trace, recorded: Sequence[str], results: Sequence[str]) -> list[Divergence]:
    """The recorded memories that we do not return, each with the stage that dropped it."""
    partings = []
    for memory_id in recorded:
        if memory_id in results:
            continue
        end = dropped(trace, memory_id)
        if end is not None:
            partings.append(Divergence(end.stage, memory_id, "lost", end.reason))
        elif memory_id not in trace.stage(LISTS).by_id:
            partings.append(Divergence(LISTS.name, memory_id, "lost", "no list returned it"))
        else:  # it is a result, past the place where ours were cut
            partings.append(Divergence(RANKED_STAGES[-1], memory_id, "lost", "it stands further down"))
    return partings


def _reordered(trace: Trace, recorded: Sequence[str], results: Sequence[str]) -> list[Divergence]:
    """The first stage from which the common memories stay in another order; None when the final order is the same."""
    common = [memory_id for memory_id in recorded if memory_id in results]
    wrong: Divergence | None = None
    for stage in reversed(RANKED_STAGES):
        ranks = ranks_in(trace, stage)
        order = sorted((key for key in common if key in ranks), key=lambda key: ranks[key][0])
        first = next((theirs for theirs, own in zip(common, order, strict=False) if theirs != own), None)
        if first is None:
            break
        before = order[common.index(first)]
        reason = f"{before} stands before it; there it stands before {before}"
        wrong = Divergence(stage, first, "order", reason)
    return [wrong] if wrong is not None else []
