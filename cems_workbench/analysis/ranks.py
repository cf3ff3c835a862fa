"""Ranks in every list and after every stage, where a memory is lost, and how ranks differ from those of another config.

A delta is `before - now` places, so that a positive number is a gain. Memories without a rank in the baseline are new; those with a rank
only there are gone. How alike two top-k lists of results are is

tau   Kendall's: 1 - 2·K / pairs over the union of both; a pair in opposite orders costs 1, a pair of which only one list knows
      the order 1/2, a pair that neither knows together 1 (Fagin et al. 2003, p = 1/2)
rbo   rank-biased overlap, extrapolated, p = 0.9: a change at the top weighs more (Webber et al. 2010, eq. 32)

Rank flow draws the memories among the first N after fusion or any later stage, so that replaced ones are shown next to their replacements,
and the requested memories (followed and judged ones). Stages without an effect are folded. Everything is read from traces.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np

from cems_workbench.analysis.losses import NEVER_FOUND, Branch, lost
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_sources import list_label, ordinal
from cems_workbench.pipeline.stages import ABSTAIN, FILTER, FUSION, RANKING_STAGES, THRESHOLD
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.result import StageRow
from cems_workbench.pipeline.stages.stage import AnyStage

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
    return lost(trace.run, trace.table, trace.config, k, (np.array([0]), np.array([c]))).branches[0]


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

    None for one that only dates or counts have, in lists that rank what others return, and for one that a later stage of a trace added.
    """
    row = trace.stage(LISTS).by_id.get(memory_id)
    entry = min(row.lists if row else (), key=lambda entry: (not entry.kept, entry.rank), default=None)
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


RBO_PERSISTENCE = 0.9


def kendall(old: Sequence[str], new: Sequence[str]) -> float:
    """Kendall's tau of two top-k lists, 1 to -1; 1 for lists of fewer than two."""
    first, second = ({key: rank for rank, key in enumerate(results)} for results in (old, new))
    pairs = list(combinations(sorted(first.keys() | second.keys()), 2))
    return 1 - 2 * sum(_cost(a, b, first, second) for a, b in pairs) / len(pairs) if pairs else 1.0


def _cost(a: str, b: str, first: dict[str, int], second: dict[str, int]) -> float:
    """0 for the same order, 1 for opposite orders, 1/2 if a list has neither; a list ranks its members before others."""
    orders = []
    for ranks in (first, second):
        if a not in ranks and b not in ranks:
            return 0.5
        orders.append(ranks.get(a, len(ranks)) < ranks.get(b, len(ranks)))
    return float(orders[0] != orders[1])


def rbo(old: Sequence[str], new: Sequence[str], p: float = RBO_PERSISTENCE) -> float:
    """Rank-biased overlap, 0 to 1; 1 for empty lists. Memories beyond the end of the shorter list are not shared."""
    depth = max(len(old), len(new))
    if not depth:
        return 1.0
    total, agreement = 0.0, 0.0
    for d in range(1, depth + 1):
        agreement = len(set(old[:d]) & set(new[:d])) / d
        total += agreement * p**d
    return min(1.0, (1 - p) / p * total + agreement * p**depth)


MAX_LINES = 80
MAX_LISTS = 8
"""Readability limits of lines and columns; the flow says how many it leaves out."""


@dataclass(frozen=True, slots=True)
class FlowPoint:
    """Rank and score of a memory in one column; a list's score is the normalised one."""

    column: str
    rank: int
    score: float | None


@dataclass(frozen=True, slots=True)
class FlowLine:
    """One memory: its points in the order of the columns, where it was lost (None: it ends within the target rank), and where it
    was dropped (None: it is in the results)."""

    memory_id: str
    points: tuple[FlowPoint, ...]
    loss: Loss | None
    dropped: Loss | None

    @property
    def final_rank(self) -> int | None:
        """Its rank in the results."""
        return self.points[-1].rank if self.dropped is None and self.points else None


@dataclass(frozen=True, slots=True)
class RankFlow:
    """Lines by final rank, then the dropped ones by the last stage they reached.

    `folded` are stages that changed nothing; `lists_left_out` and `lines_left_out` exceed the limits; `unranked` were
    requested and are in no list.
    """

    lists: tuple[str, ...]
    stages: tuple[str, ...]
    lines: tuple[FlowLine, ...]
    folded: tuple[str, ...]
    lists_left_out: int
    lines_left_out: int
    unranked: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Lists, then stages, from left to right."""
        return (*self.lists, *self.stages)


def rank_flow(trace: Trace, top: int, asked: Collection[str] = (), k: int | None = None) -> RankFlow:
    """The flow of the first `top` memories and of those `asked` for, in order of priority; `k` is the target rank of `loss`.

    Above `MAX_LINES` lines the requested ones come first, in their order, then the best ranked.
    """
    every = ranked_stages(trace)
    results = every[-1]
    folded = tuple(name for name in every if name not in ("fusion", results) and _changes_nothing(trace, name))
    stages = [name for name in every if name not in folded]
    ranks = {name: ranks_in(trace, name) for name in (*lists_in_use(trace), *stages)}
    # A later stage may have brought one in, as supersession fetches successors.
    entered = {key for stage in trace.candidate_stages for key in trace.stage(stage).by_id}
    wanted = [memory_id for memory_id in dict.fromkeys(asked) if memory_id in entered]
    wanted += [memory_id for memory_id in _first(ranks, stages, top, results) if memory_id not in set(wanted)]
    shown = wanted[:MAX_LINES]
    lists = _fullest(ranks, lists_in_use(trace), shown)
    ends = {memory_id: dropped(trace, memory_id) for memory_id in shown}
    unranked = [stage.name for stage in trace.candidate_stages if stage.works_on == "lists"]
    before = [name for name in unranked if any(end and end.stage == name for end in ends.values())]
    columns = (*lists, *before, *stages)
    lines = [
        FlowLine(memory_id, _points(ranks, columns, memory_id), loss(trace, memory_id, k), ends[memory_id])
        for memory_id in shown
    ]
    return RankFlow(
        lists=tuple(lists),
        stages=(*before, *stages),
        lines=tuple(sorted(lines, key=lambda line: _order(line, columns))),
        folded=folded,
        lists_left_out=len(lists_in_use(trace)) - len(lists),
        lines_left_out=len(wanted) - len(shown),
        unranked=tuple(memory_id for memory_id in dict.fromkeys(asked) if memory_id not in entered),
    )


def _changes_nothing(trace: Trace, name: str) -> bool:
    return all(row.kept and row.rank_in == row.rank_out for row in trace.stage(name).rows)


def _first(ranks: dict[str, Ranks], stages: Sequence[str], top: int, results: str) -> list[str]:
    """The memories among the first `top` after any stage, by their best rank; results before others of equal rank."""
    best: dict[str, tuple[int, bool]] = {}
    for name in stages:
        for memory_id, (rank, _) in ranks[name].items():
            if rank <= top:
                found = (rank, memory_id not in ranks[results])
                best[memory_id] = min(best.get(memory_id, found), found)
    return sorted(best, key=lambda memory_id: (*best[memory_id], memory_id))


def _fullest(ranks: dict[str, Ranks], names: list[str], shown: list[str]) -> list[str]:
    """The lists that contain most of the memories shown, in their original order."""
    if len(names) <= MAX_LISTS:
        return names
    held = {name: sum(memory_id in ranks[name] for memory_id in shown) for name in names}
    chosen = set(sorted(names, key=lambda name: -held[name])[:MAX_LISTS])
    return [name for name in names if name in chosen]


def _points(ranks: dict[str, Ranks], columns: Sequence[str], memory_id: str) -> tuple[FlowPoint, ...]:
    return tuple(
        FlowPoint(name, *ranks[name][memory_id]) for name in columns if name in ranks and memory_id in ranks[name]
    )


def _order(line: FlowLine, columns: Sequence[str]) -> tuple[int, int, str]:
    if line.dropped is None:
        return (-len(columns), line.final_rank or 0, line.memory_id)
    return (-columns.index(line.dropped.stage), line.dropped.rank or 0, line.memory_id)
