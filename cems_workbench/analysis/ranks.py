"""Ranks in every list and after every stage, and how they differ from those of another config on the same evidence.

A delta is `before - now` places: the baseline's rank less the present one, so that a positive number is places won. What the
baseline did not rank is new; what only the baseline ranks is gone. All of it is read from two traces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import RANKING_STAGES
from cems_workbench.pipeline.stages.lists import LISTS

RANKED_STAGES = tuple(stage.name for stage in RANKING_STAGES)
"""The stages after which candidates have a rank, in order; the ranks after the last are those of the results."""
RESULTS = RANKED_STAGES[-1]

Ranks = dict[str, tuple[int, float | None]]
"""Rank and score by memory id, best first."""

Move = Literal["up", "down", "same", "new", "gone", "absent"]


@dataclass(frozen=True, slots=True)
class RankDelta:
    """A memory's rank now and in the baseline; None where it has none."""

    now: int | None
    before: int | None

    @property
    def move(self) -> Move:
        """What became of it against the baseline; absent when neither ranks it."""
        if self.now is None:
            return "absent" if self.before is None else "gone"
        if self.before is None:
            return "new"
        return "same" if self.now == self.before else "up" if self.now < self.before else "down"

    @property
    def places(self) -> int:
        """Places won, negative when lost; 0 unless both rank it."""
        return 0 if self.now is None or self.before is None else self.before - self.now


@dataclass(frozen=True, slots=True)
class Loss:
    """Where a memory was dropped: the stage, its rank and score on the way in, and why."""

    stage: str
    rank: int | None
    score: float | None
    reason: str


def lists_in_use(trace: Trace) -> list[str]:
    """Names of the lists that take part and have a hit within their depth, in the order of the evidence."""
    return trace.stage(LISTS).fields.in_use


def ranks_in(trace: Trace, name: str) -> Ranks:
    """Rank and score by memory id in a list that takes part, or after a stage that ranks; best first.

    A list's score is the normalised one; KeyError never: an unknown list is empty.
    """
    if name in RANKED_STAGES:
        rows = trace.stage(name).rows
        return {row.memory_id: (row.rank_out, row.score) for row in rows if row.rank_out is not None}
    found = [
        (entry.rank, row.memory_id, entry.normalized)
        for row in trace.stage(LISTS).rows
        for entry in row.lists
        if entry.list == name and entry.kept
    ]
    return {memory_id: (rank, score) for rank, memory_id, score in sorted(found)}


def loss(trace: Trace, memory_id: str) -> Loss | None:
    """Where the memory was dropped; None when it is in the results or was in no list.

    Before fusion nobody has a rank: then it is the best one that a list gave it, of those that take part if any has it.
    """
    # The last stage first: most are lost there, and the rows of a stage that nobody looks at are not made.
    last = next((stage for stage in reversed(trace.stages) if memory_id in stage.by_id), None)
    if last is None or (row := last.by_id[memory_id]).kept:
        return None
    rank, score = row.rank_in, row.score_in
    if rank is None:
        entry = min(trace.stage(LISTS).by_id[memory_id].lists, key=lambda entry: (not entry.kept, entry.rank))
        rank, score = entry.rank, entry.raw if entry.normalized is None else entry.normalized
    return Loss(last.name, rank, score, row.reason or "")


def rank_deltas(now: Trace, before: Trace, name: str) -> dict[str, RankDelta]:
    """The delta of every memory that either trace ranks in the list or stage `name`: the present ones first, best first."""
    present, former = ranks_in(now, name), ranks_in(before, name)
    return {
        memory_id: RankDelta(_rank(present, memory_id), _rank(former, memory_id))
        for memory_id in [*present, *(key for key in former if key not in present)]
    }


def _rank(ranks: Ranks, memory_id: str) -> int | None:
    found = ranks.get(memory_id)
    return None if found is None else found[0]


@dataclass(frozen=True)
class Against:
    """A trace beside that of a pinned baseline config, on the same evidence or on what that config asks for."""

    name: str
    now: Trace
    before: Trace
    _kept: dict[str, dict[str, RankDelta]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def deltas(self, name: str = RESULTS) -> dict[str, RankDelta]:
        """`rank_deltas` of a list or stage, worked out once."""
        if name not in self._kept:
            self._kept[name] = rank_deltas(self.now, self.before, name)
        return self._kept[name]

    def delta(self, memory_id: str, name: str = RESULTS) -> RankDelta:
        """One memory's delta; absent when neither ranks it."""
        return self.deltas(name).get(memory_id, RankDelta(None, None))

    def gone(self) -> list[str]:
        """Who is in the baseline's results and not in the present ones, by the baseline's rank."""
        return [memory_id for memory_id, delta in self.deltas().items() if delta.move == "gone"]
