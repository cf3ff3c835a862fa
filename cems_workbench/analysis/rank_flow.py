"""Rank flow: the rank of the first memories in every list and after every stage, and where each was lost.

Drawn are memories among the first N after fusion or any later stage, so that replaced ones are shown next to their replacements,
and the requested memories (followed and judged ones). Stages without an effect are folded.
Everything is read from the trace.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cems_workbench.analysis.ranks import Loss, Ranks, dropped, lists_in_use, loss, ranked_stages, ranks_in
from cems_workbench.pipeline import Trace

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
