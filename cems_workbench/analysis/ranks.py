"""Where a memory ranks in every list and after every stage, where it is lost, and how ranks differ from those of another config.

A candidate is within reach after a stage if it is kept and ranks within the first `k`: after the lists, and stages that cut these, in
one list at least, from fusion on in the ranking. It is lost at the first stage after which it is never again within reach. One that never
was is lost at `lists`, unless a stage dropped it: what leaves it below k, as the result limit does, took nothing away. One that fusion left
below k is lost where it is dropped if a reranker behind that reads as far as its rank, and might have lifted it. `lost` decides this on the
arrays of a replay, for one memory (`loss`) and for those of a query set (`losses_of_set.py`) alike. What a loss is depends on the stage:

    never     in no list of the evidence, and not fetched as a successor (a fetched one can only be lost from there on)
    graph     lost at `lists`, where the exact vector list has it within its depth, and within k if others have it below, and Chroma's
              graph missed it (`at_graph`)
    depth     in a list, but past its depth, or the list is off
    dropped   by a threshold, a filter, the gap, a duplicate, the budget, or because nothing was returned
    below     kept, and ranked worse than k; or cut off by the result limit; at `lists`: worse than k in every list that has it

A trace often has no reason for a drop. A stage that ranks then kept as many as its limit, and so did the last one if it cut off the end of
what it read. Where one list is all that ranks there is no other order to look for: whatever stage dropped the candidate lost it.

A delta is `before - now` places, so that a positive number is a gain. How alike two top-k lists of results are is

tau   Kendall's: 1 - 2·K / pairs over the union of both; a pair in opposite orders costs 1, a pair of which only one list knows
      the order 1/2, a pair that neither knows together 1 (Fagin et al. 2003, p = 1/2)
rbo   rank-biased overlap, extrapolated, p = 0.9: a change at the top weighs more (Webber et al. 2010, eq. 32)

Rank flow draws the memories among the first N after fusion or any later stage, so that replaced ones are shown next to their replacements,
and the requested memories. Stages without an effect are folded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.config import PipelineConfig, list_depths
from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.pipeline.list_sources import list_label, ordinal
from cems_workbench.pipeline.recorded import NOT_READ, NOT_RETURNED
from cems_workbench.pipeline.stages import ABSTAIN, ASSEMBLY, FILTER, FUSION, RANKING_STAGES, THRESHOLD
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow
from cems_workbench.pipeline.stages.stage import AnyStage, PipelineRun
from cems_workbench.pipeline.table import NO_RANK, Bools, CandidateTable, Ints, ListArrays
from cems_workbench.records import StageKind

Manner = Literal["never", "graph", "depth", "dropped", "below"]
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
        if self.manner == "graph":
            return "missed by Chroma's graph"
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
        return {"stage": self.stage, "manner": self.manner}


NEVER_FOUND = Branch("", "never")
"""The branch of memories that no list of the evidence has."""
GRAPH_LOST = Branch(LISTS.name, "graph")


def at_graph(
    branch: Branch | None, memory_id: str, evidence: Evidence, config: PipelineConfig, k: int
) -> Branch | None:
    """The branch, or that of the graph if it missed a memory which is lost at the lists, and an exact list would keep within reach."""
    if branch is None or branch.stage not in ("", LISTS.name) or not config.lists.vector.enabled:
        return branch
    reach = k if branch.manner == "below" else list_depths(config)["vector"] or NO_RANK
    missed = evidence.missed_by_graph.get(memory_id)
    return GRAPH_LOST if missed is not None and missed[1] <= reach else branch


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


def lost(done: PipelineRun, table: CandidateTable, config: PipelineConfig, k: int, of: tuple[Ints, Ints]) -> LossArrays:
    """Where candidates of a replay are lost at `k`. `done` is what the stages did with the queries of `table`, under
    `config` or as recorded; `of` are the rows (P) and columns (P) of the candidates. Few of them are cheap: no stage
    has to rank everything."""
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
    """A stage that lost or dropped a memory, and why; rank and score are those it left with, or entered with if it was
    dropped. `in_lists` says that no list has it within reach: "below 10 in every list (best: 23rd in vector)"; empty
    for another loss."""

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
    """Rank and score by memory id in a list that takes part, or after a stage that ranks; best first. `RESULTS` is the
    last of these. A list's score is the normalised one; an unknown list is empty."""
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
    """The stage that dropped the memory, at any rank; None if it is in the results or was in no list. Before fusion
    there are no ranks: then its rank is the best one in a list, of those that take part if any contains it."""
    # The last stage first: most are lost there, and rows are only made for the stages that are read.
    last = next((stage for stage in reversed(trace.stages) if memory_id in stage.by_id), None)
    if last is None or (row := last.by_id[memory_id]).kept:
        return None
    rank, score = row.rank_in, row.score_in
    if rank is None:
        rank, score, _ = _best_in_lists(trace, memory_id)
    return Loss(last.name, rank, score, row.reason or "")


def _best_in_lists(trace: Trace, memory_id: str) -> tuple[int | None, float | None, str]:
    """Best rank of the memory in a list, of those that keep it if any does, with the score and the list. None for one
    that only dates or counts have, in lists that rank what others return, and for one that a later stage of a trace
    added."""
    row = trace.stage(LISTS).by_id.get(memory_id)
    entry = min(row.lists if row else (), key=lambda entry: (not entry.kept, entry.rank), default=None)
    if entry is None:
        return None, None, ""
    return entry.rank, entry.raw if entry.normalized is None else entry.normalized, entry.list


def nothing_returned(trace: Trace) -> tuple[str, str] | None:
    """The stage that left no result, empty if all lists are empty, and why, as a clause; None if there are results. The
    reason is that of the best memory it dropped, with the parameters that decided: "filter dropped all 6 candidates by
    filter.min_score (the best, m2: score 0.3100 is below the minimum 0.45)"."""
    if trace.results:
        return None
    for stage in trace.candidate_stages:
        traced = trace.stage(stage)
        if traced.candidates_in and not traced.candidates_out:
            if stage.name == LISTS.name:
                break
            best = min(traced.rows, key=lambda row: _entered(row, by_score=stage is FILTER))
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


def _entered(row: StageRow, by_score: bool) -> tuple[float, float]:
    """How far ahead a candidate was: by rank, or by score where there are no ranks yet or scores decide."""
    score = np.inf if row.score_in is None else -row.score_in
    rank = np.inf if row.rank_in is None else float(row.rank_in)
    return (score, rank) if by_score else (rank, score)


def _deciding(stage: AnyStage, config: PipelineConfig) -> list[str]:
    """The parameters by which a stage drops candidates under this config; empty where its reasons alone say it."""
    if stage is THRESHOLD:
        return ["threshold.fixed" if config.threshold.mode == "fixed" else "threshold.adaptive.min"]
    off = {} if stage.switch is None else stage.switch.off
    return [path for path, value in off.items() if config.get(path) != value]


def rank_deltas(now: Trace, before: Trace, name: str) -> dict[str, RankDelta]:
    """The delta of every memory that either trace ranks in the list or stage `name`: the present ones first, best first."""
    present, former = ({key: rank for key, (rank, _) in ranks_in(one, name).items()} for one in (now, before))
    return {key: RankDelta(present.get(key), former.get(key)) for key in present | former}


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
        return self.points[-1].rank if self.dropped is None and self.points else None


@dataclass(frozen=True, slots=True)
class RankFlow:
    """Lines by final rank, then the dropped ones by the last stage they reached. `folded` are stages that changed
    nothing; `lists_left_out` and `lines_left_out` exceed the limits; `unranked` were requested and are in no list."""

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
    """The flow of the first `top` memories and of those `asked` for, in order of priority; `k` is the target rank of
    `loss`. Above `MAX_LINES` lines the requested ones come first, in their order, then the best ranked."""
    every = ranked_stages(trace)
    results = every[-1]
    folded = tuple(
        name
        for name in every
        if name not in ("fusion", results)
        and all(row.kept and row.rank_in == row.rank_out for row in trace.stage(name).rows)
    )
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
    lines = []
    for memory_id in shown:
        ranked = ((name, ranks[name].get(memory_id)) for name in columns if name in ranks)
        points = tuple(FlowPoint(name, *place) for name, place in ranked if place is not None)
        lines.append(FlowLine(memory_id, points, loss(trace, memory_id, k), ends[memory_id]))
    return RankFlow(
        lists=tuple(lists),
        stages=(*before, *stages),
        lines=tuple(sorted(lines, key=lambda line: _order(line, columns))),
        folded=folded,
        lists_left_out=len(lists_in_use(trace)) - len(lists),
        lines_left_out=len(wanted) - len(shown),
        unranked=tuple(memory_id for memory_id in dict.fromkeys(asked) if memory_id not in entered),
    )


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


def _order(line: FlowLine, columns: Sequence[str]) -> tuple[int, int, str]:
    if line.dropped is None:
        return (-len(columns), line.final_rank or 0, line.memory_id)
    return (-columns.index(line.dropped.stage), line.dropped.rank or 0, line.memory_id)
