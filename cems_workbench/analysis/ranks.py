"""Ranks in every list and after every stage, and how they differ from those of another config on the same evidence.

A delta is `before - now` places: the baseline's rank less the present one, so that a positive number is a gain. Memories
without a rank in the baseline are new; those with a rank only there are gone. All of it is read from two traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cems_workbench.analysis.losses import NEVER_FOUND, Branch, lost
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import ABSTAIN, FILTER, FUSION, RANKING_STAGES, THRESHOLD
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.result import StageRow
from cems_workbench.pipeline.stages.stage import AnyStage
from cems_workbench.pipeline.wording import list_label, ordinal

RANKED_STAGES = tuple(stage.name for stage in RANKING_STAGES)
"""The stages after which candidates have a rank; the ranks after the last are those of the results. See `ranked_stages` for their order."""
RESULTS = RANKED_STAGES[-1]

Ranks = dict[str, tuple[int, float | None]]
"""Rank and score by memory id, best first."""

Move = Literal["up", "down", "same", "new", "gone", "absent"]


@dataclass(frozen=True, slots=True)
class RankDelta:
    """A memory's rank now and in the baseline; None without one."""

    now: int | None
    before: int | None

    @property
    def move(self) -> Move:
        """The change from the baseline; absent if neither ranks it."""
        if self.now is None:
            return "absent" if self.before is None else "gone"
        if self.before is None:
            return "new"
        return "same" if self.now == self.before else "up" if self.now < self.before else "down"

    @property
    def places(self) -> int:
        """Places gained, negative if lost; 0 unless both rank it."""
        return 0 if self.now is None or self.before is None else self.before - self.now


def ranked_stages(trace: Trace) -> tuple[str, ...]:
    """The names of a trace's stages after which candidates have a rank, in order; the last has the ranks of the results."""
    return tuple(stage.name for stage in trace.ranking_stages)


NO_LIMIT_K = 10
"""The target rank if the results have no limit."""


def target_rank(config: PipelineConfig) -> int:
    """The default target rank of a memory: the result limit."""
    return config.assembly.limit or NO_LIMIT_K


@dataclass(frozen=True, slots=True)
class Loss:
    """A stage that lost or dropped a memory, and why; rank and score are those it left with, or entered with if it was dropped.

    `in_lists` says that no list has it within reach: "below 10 in every list (best: 23rd in vector)"; empty for another loss.
    """

    stage: str
    rank: int | None
    score: float | None
    reason: str
    in_lists: str = ""

    @property
    def words(self) -> str:
        """ "lost at fusion", or what `in_lists` says: a clause."""
        return self.in_lists or f"lost at {self.stage}"


def lists_in_use(trace: Trace) -> list[str]:
    """Names of the lists that take part and have a hit within their depth, in the order of the evidence."""
    return trace.stage(LISTS).fields.in_use


def ranked_ids(trace: Trace) -> list[str]:
    """The memories that got a rank: as fusion leaves them, of an external trace those that came furthest first."""
    if not trace.external:
        return [row.memory_id for row in trace.stage(FUSION).rows]
    places = [*reversed(ranked_stages(trace)), *lists_in_use(trace)]
    return list(dict.fromkeys(key for name in places for key in ranks_in(trace, name)))


def ranks_in(trace: Trace, name: str) -> Ranks:
    """Rank and score by memory id in a list that takes part, or after a stage that ranks; best first. `RESULTS` is the last of these.

    A list's score is the normalised one; an unknown list is empty.
    """
    name = trace.run.last.name if name == RESULTS else name
    if name in ranked_stages(trace):
        rows = trace.stage(name).rows
        return {row.memory_id: (row.rank_out, row.score) for row in rows if row.rank_out is not None}
    found = [
        (entry.rank, row.memory_id, entry.normalized)
        for row in trace.stage(LISTS).rows
        for entry in row.lists
        if entry.list == name and entry.kept
    ]
    return {memory_id: (rank, score) for rank, memory_id, score in sorted(found)}


def loss(trace: Trace, memory_id: str, k: int | None = None) -> Loss | None:
    """The stage that lost the memory: the definition of lost for every page and command.

    It is the first one after which the memory is never again within the first `k`, or `lists` if no list has it there
    (`losses.lost`, which decides it for whole query sets too). None if it ends within the first k, or was in no list. `k` is
    `target_rank` of the config by default.
    """
    k = target_rank(trace.config) if k is None else k
    branch = branch_of(trace, memory_id, k)
    if branch is None or branch == NEVER_FOUND:
        return None
    end = dropped(trace, memory_id)
    if end is not None and end.stage == branch.stage:
        return end
    later = "" if end is None else f"; {end.stage} dropped it: {end.reason}"
    if branch.stage == LISTS.name and branch.manner == "below":
        rank, score, name = _best_in_lists(trace, memory_id)
        words = f"{branch.words(k)} (best: {ordinal(rank or 0)} in {list_label(name)})"
        return Loss(branch.stage, rank, score, words + later, words)
    row = trace.stage(branch.stage).by_id[memory_id]
    return Loss(
        branch.stage, row.rank_out, row.score, stage_words(trace, trace.record(branch.stage), memory_id) + later
    )


def branch_of(trace: Trace, memory_id: str, k: int | None = None) -> Branch | None:
    """Where the memory leaves the pipeline, as `losses_of_set.py` counts it over a query set; None if it is within the first `k`."""
    c = trace.columns.get(memory_id)
    if c is None:
        return NEVER_FOUND
    k = target_rank(trace.config) if k is None else k
    found = lost(trace.run, trace.table, trace.config, k, (np.array([0]), np.array([c])))
    return found.branch(int(found.at[0]), bool(found.dropped[0]))


def stage_words(trace: Trace, stage: AnyStage, memory_id: str) -> str:
    """A stage's effect on a memory that entered it, as one short clause; the reason if it dropped the memory."""
    traced = trace.stage(stage)
    row = traced.by_id[memory_id]
    if not row.kept:
        return str(row.reason)
    return "off" if stage.is_off(trace.config) else stage.words(row, traced)


def dropped(trace: Trace, memory_id: str) -> Loss | None:
    """The stage that dropped the memory, at any rank; None if it is in the results or was in no list.

    Before fusion there are no ranks: then its rank is the best one in a list, of those that take part if any contains it.
    """
    # The last stage first: most are lost there, and rows are only made for the stages that are read.
    last = next((stage for stage in reversed(trace.stages) if memory_id in stage.by_id), None)
    if last is None or (row := last.by_id[memory_id]).kept:
        return None
    rank, score = row.rank_in, row.score_in
    if rank is None:
        rank, score, _ = _best_in_lists(trace, memory_id)
    return Loss(last.name, rank, score, row.reason or "")


def _best_in_lists(trace: Trace, memory_id: str) -> tuple[int | None, float | None, str]:
    """Best rank of the memory in a list, of those that keep it if any does, with the score and the list.

    None for one that only dates or counts have, in lists that rank what others return.
    """
    entries = trace.stage(LISTS).by_id[memory_id].lists
    entry = min(entries, key=lambda entry: (not entry.kept, entry.rank), default=None)
    if entry is None:
        return None, None, ""
    return entry.rank, entry.raw if entry.normalized is None else entry.normalized, entry.list


def nothing_returned(trace: Trace) -> tuple[str, str] | None:
    """The stage that left no result, empty if all lists are empty, and why, as a clause; None if there are results.

    The reason is that of the best memory it dropped, with the parameters that decided: "filter dropped all 6 candidates by
    filter.min_score (the best, m2: score 0.3100 is below the minimum 0.45)".
    """
    if trace.results:
        return None
    for stage in trace.candidate_stages:
        traced = trace.stage(stage)
        if traced.candidates_in and not traced.candidates_out:
            if stage.name == LISTS.name:
                break
            best = _best_in(stage, traced.rows)
            if stage is ABSTAIN:
                return stage.name, str(best.reason)
            count = traced.candidates_in
            named = [] if trace.external else _deciding(stage, trace.config)
            by = f" by {' and '.join(named)}" if named else ""
            if count == 1:
                return stage.name, f"{stage.name} dropped the only candidate{by} ({best.memory_id}: {best.reason})"
            said = f"the best, {best.memory_id}: {best.reason}"
            return stage.name, f"{stage.name} dropped all {count} candidates{by} ({said})"
    return "", "no list has a hit" if trace.external else "no list that is switched on has a hit"


def _best_in(stage: AnyStage, rows: Sequence[StageRow]) -> StageRow:
    """The best row as it entered: by rank, or by score where there are no ranks yet or scores decide; of equal ones the first."""

    def order(row: StageRow) -> tuple[float, float]:
        score = np.inf if row.score_in is None else -row.score_in
        rank = np.inf if row.rank_in is None else float(row.rank_in)
        return (score, rank) if stage is FILTER else (rank, score)

    return min(rows, key=order)


def _deciding(stage: AnyStage, config: PipelineConfig) -> list[str]:
    """The parameters by which a stage drops candidates under this config; empty where its reasons alone say it."""
    if stage is THRESHOLD:
        return ["threshold.fixed" if config.threshold.mode == "fixed" else "threshold.adaptive.min"]
    off = {} if stage.switch is None else stage.switch.off
    return [path for path, value in off.items() if config.get(path) != value]


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
class RankComparison:
    """A trace compared with that of a pinned baseline config, on the same evidence or on the baseline's."""

    name: str
    now: Trace
    before: Trace
    _kept: dict[str, dict[str, RankDelta]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def deltas(self, name: str = RESULTS) -> dict[str, RankDelta]:
        """`rank_deltas` of a list or stage, computed once."""
        if name not in self._kept:
            self._kept[name] = rank_deltas(self.now, self.before, name)
        return self._kept[name]

    def delta(self, memory_id: str, name: str = RESULTS) -> RankDelta:
        """One memory's delta; absent if neither ranks it."""
        return self.deltas(name).get(memory_id, RankDelta(None, None))

    def gone(self) -> list[str]:
        """The memories in the baseline's results and not in the present ones, by the baseline's rank."""
        return [memory_id for memory_id, delta in self.deltas().items() if delta.move == "gone"]
