"""supersession: what a later memory supersedes, or what has expired, loses its rank.

    demote   a superseded candidate moves right below its best ranked successor, if that is ranked lower, and takes its score
    drop     a superseded candidate is dropped if a successor is ranked
    follow   the latest successor at an end of the chain takes rank and score of the best ranked candidate that it supersedes, also if no
             list found it or a stage dropped it; the superseded ones are dropped. A memory that has expired is no end

With `expired: drop`, candidates whose valid_until is not after the query's as_of, or whose valid_from is after it, are dropped first.
Successors are those of the evidence, all along the chain: `pipeline/supersession.py`. A pin does not protect a memory.

Source: docs/internals/specification.md, "supersession".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from cems_workbench.config.sections import SupersessionConfig
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.pipeline.stages.result import (
    RowContract,
    StageArrays,
    StageFields,
    StageRow,
    StageTrace,
    pass_through,
)
from cems_workbench.pipeline.stages.stage import Stage, Switch
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, Ranking, SuccessionTable, memoized

NONE = -1


@dataclass(frozen=True, slots=True)
class SupersessionRow(StageRow):
    """The successor that moved or replaced the memory, with its rank before the stage (None: it had none), and the memory whose rank
    it took as a successor."""

    successor: str | None = None
    successor_rank: int | None = None
    in_place_of: str | None = None


@dataclass(frozen=True, eq=False)
class _Moves:
    """What a mode does: who stays, their scores and sort keys, and (Q, C) who moved or replaced each candidate, and whose rank it took."""

    alive: Bools
    score: Floats
    key: Callable[[], Floats | Ints]
    by: Ints
    in_place_of: Ints


def apply_supersession(
    table: CandidateTable, before: Ranking, config: SupersessionConfig
) -> StageArrays[SupersessionRow, StageFields]:
    """Move, drop or replace what is superseded, and drop what has expired."""
    expired = before.alive & table.expired if config.expired == "drop" else np.zeros(table.shape, dtype=bool)
    moves = _moved(table, before, before.alive & ~expired, config)
    if moves is None:
        if not expired.any():
            return pass_through(before, SupersessionRow, StageFields)
        nobody = np.full(table.shape, NONE)
        moves = _Moves(before.alive & ~expired, before.score, lambda: before.key, nobody, nobody)

    def reason(q: int, c: int) -> str:
        if expired[q, c]:
            return table.memories[q][c].out_of_date(datetime.fromtimestamp(table.as_of[q], UTC))
        if config.mode == "follow":
            return f"superseded by {_successor(table, before, moves.by, q, c)}; it takes the rank"
        return f"superseded by {_successor(table, before, moves.by, q, c)}"

    def row(q: int) -> Callable[[int, RowContract], SupersessionRow]:
        ids, rank = table.ids[q], before.rank[q]
        by, of = moves.by[q], moves.in_place_of[q]
        return lambda c, contract: SupersessionRow(
            *contract,
            ids[by[c]] if by[c] >= 0 else None,
            int(rank[by[c]]) or None if by[c] >= 0 else None,
            ids[of[c]] if of[c] >= 0 else None,
        )

    return StageArrays(
        entered=before.alive | moves.alive,
        before=before,
        after=Ranking(moves.alive, moves.score, moves.key, stable=True, placed=True),
        row=row,
        reason=reason,
    )


def _moved(table: CandidateTable, before: Ranking, alive: Bools, config: SupersessionConfig) -> _Moves | None:
    if config.mode == "off" or table.succession is None:
        return None
    return {"demote": _demoted, "drop": _dropped, "follow": _followed}[config.mode](
        table, before, alive, table.succession
    )


def _demoted(table: CandidateTable, before: Ranking, alive: Bools, pairs: SuccessionTable) -> _Moves | None:
    q, older, newer, level = _ranked_pairs(alive, pairs)
    if not len(q):
        return None
    # The rank that each candidate ends up at or right below: its own, or that of its best successor if that is lower.
    anchor = np.where(alive, before.rank, 0).astype(np.float64)
    depth = np.zeros(table.shape, dtype=np.int64)
    for n in np.unique(level).tolist():  # successors before what they supersede: their number grows along a chain
        here = level == n
        best = np.full(table.shape, np.inf)
        np.minimum.at(best, (q[here], older[here]), anchor[q[here], newer[here]])
        below = np.isfinite(best) & (best > anchor)
        anchor[below], depth[below] = best[below], n
    moved = depth > 0
    if not moved.any():
        return None
    # The candidate of that rank has not moved, so it is one of the pairs.
    by = np.full(table.shape, NONE)
    own = moved[q, older] & (before.rank[q, newer] == anchor[q, older])
    by[q[own], older[own]] = newer[own]
    score = before.score.copy()
    rows, columns = np.nonzero(moved)
    score[rows, columns] = before.score[rows, by[rows, columns]]
    return _Moves(alive, score, lambda: _places(before, alive, anchor, depth), by, np.full(table.shape, NONE))


def _places(before: Ranking, alive: Bools, anchor: Floats, depth: Ints) -> Floats:
    """(Q, C) sort key: by anchor, who has moved after who has not, then newer before older."""
    key = before.key.copy()
    for q in np.flatnonzero(depth.any(axis=1)).tolist():
        columns = np.flatnonzero(alive[q])
        order = np.lexsort((before.rank[q, columns], depth[q, columns], anchor[q, columns]))
        key[q, columns[order]] = np.arange(len(columns))
    return key


def _dropped(table: CandidateTable, before: Ranking, alive: Bools, pairs: SuccessionTable) -> _Moves | None:
    q, older, newer, _ = _ranked_pairs(alive, pairs)
    if not len(q):
        return None
    by = _best(table, before, q, older, newer)
    return _Moves(alive & (by < 0), before.score, lambda: before.key, by, np.full(table.shape, NONE))


def _followed(table: CandidateTable, before: Ranking, alive: Bools, pairs: SuccessionTable) -> _Moves | None:
    ends = memoized(table.memo, "ends of chains", None, lambda: _ends(table, pairs))
    own = alive[ends.query, ends.older]
    q, older, newer = ends.query[own], ends.older[own], ends.newer[own]
    if not len(q):
        return None
    by, of = np.full(table.shape, NONE), np.full(table.shape, NONE)
    by[q, older] = newer
    alive = alive & (by < 0)
    score, key = before.score.copy(), before.rank.astype(np.float64)
    key[~before.alive] = np.inf
    alive[q, newer] = True
    for i in np.argsort(before.rank[q, older], kind="stable").tolist():
        row, old, new = q[i], older[i], newer[i]
        if key[row, old] < key[row, new]:
            key[row, new], score[row, new], of[row, new] = key[row, old], before.score[row, old], old
    return _Moves(alive, score, lambda: key, by, of)


def _ends(table: CandidateTable, pairs: SuccessionTable) -> SuccessionTable:
    """Of each superseded candidate the pair with the latest successor that is valid and that no valid one supersedes."""
    valid = ~table.expired[pairs.query, pairs.newer]
    replaced = {(q, older) for q, older in zip(pairs.query[valid].tolist(), pairs.older[valid].tolist(), strict=True)}
    chosen: dict[tuple[int, int], int] = {}
    for i in np.flatnonzero(valid).tolist():
        q, older, newer = int(pairs.query[i]), int(pairs.older[i]), int(pairs.newer[i])
        if (q, newer) not in replaced:
            chosen.setdefault((q, older), i)  # the latest comes first
    kept = np.array(list(chosen.values()), dtype=np.int64)
    return SuccessionTable(pairs.query[kept], pairs.older[kept], pairs.newer[kept], pairs.level[kept])


def _ranked_pairs(alive: Bools, pairs: SuccessionTable) -> tuple[Ints, Ints, Ints, Ints]:
    both = alive[pairs.query, pairs.older] & alive[pairs.query, pairs.newer]
    return pairs.query[both], pairs.older[both], pairs.newer[both], pairs.level[both]


def _best(table: CandidateTable, before: Ranking, q: Ints, older: Ints, newer: Ints) -> Ints:
    """(Q, C) the best ranked successor of each candidate, -1 without one."""
    best = np.full(table.shape, NONE)
    worst_first = np.argsort(-before.rank[q, newer], kind="stable")
    best[q[worst_first], older[worst_first]] = newer[worst_first]  # the last assignment stays
    return best


def _successor(table: CandidateTable, before: Ranking, by: Ints, q: int, c: int) -> str:
    rank = int(before.rank[q, by[q, c]])
    return f"{table.ids[q][by[q, c]]}, which {f'is {ordinal(rank)}' if rank else 'is not ranked'}"


def stale_results(table: CandidateTable, order: Ints) -> Bools:
    """(Q, R) which results are stale; `order` has their candidates, best first, -1 past the end. A result is stale if
    it has expired, is not valid yet, or if it is superseded and none of its successors is ranked above it."""
    filled, rows = order >= 0, np.arange(len(order))[:, None]
    candidates = np.maximum(order, 0)
    if not order.size:
        return filled
    found: Bools = filled & table.expired[rows, candidates]
    pairs = table.succession
    if pairs is None:
        return found
    rank = np.full(table.shape, order.shape[1])
    q, r = np.nonzero(filled)
    rank[q, order[q, r]] = r
    best = np.full(table.shape, NONE)  # of the candidates that are not superseded
    best[pairs.query, pairs.older] = order.shape[1]
    np.minimum.at(best, (pairs.query, pairs.older), rank[pairs.query, pairs.newer])
    found |= filled & (best[rows, candidates] > rank[rows, candidates])
    return found


def _words(row: SupersessionRow, stage: StageTrace[SupersessionRow, StageFields]) -> str:
    if row.in_place_of is not None:
        return f"takes the rank of {row.in_place_of}, which it supersedes"
    if row.successor is not None and row.successor_rank is not None:
        return f"superseded by {row.successor}, which is {ordinal(row.successor_rank)}; moved below it"
    return "kept"


SUPERSESSION = Stage(
    name="supersession",
    title="Supersession",
    description="Demotes, drops or replaces superseded memories, and drops expired ones.",
    reads=("supersession",),
    apply=lambda given: apply_supersession(given.table, given.ranking, given.config.supersession),
    row=SupersessionRow,
    fields=StageFields,
    switch=Switch("supersession", {"supersession.mode": "off", "supersession.expired": "keep"}),
    words=_words,
)
