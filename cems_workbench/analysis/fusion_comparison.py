"""The running system's fused answer beside our fusion of the same lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isclose

import numpy as np

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_sources import list_label
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.lists import LISTS

FIRST = 10
"""Places that are compared."""
EQUAL = 1e-6
"""Relative difference of scores that count as equal: engines compute them in single precision."""


@dataclass(frozen=True, slots=True)
class FusionComparison:
    """The first `k` of the engine's answer beside those of our fusion. `others` are memories of the answer that are not
    among ours, `moved` those that are, at another place; of both, equal scores explain none. `tied` are those whose
    place equal scores explain."""

    list: str
    k: int
    others: tuple[str, ...]
    moved: tuple[str, ...]
    tied: tuple[str, ...]

    @property
    def line(self) -> str:
        """ "Fused by the source (source_hybrid:0) and fused here: 3 of the first 10 are others, 2 at other places, 1 only tied"."""
        said = [f"{len(self.others)} of the first {self.k} are others" if self.others else f"the same first {self.k}"]
        said += [f"{len(self.moved)} at other places"] if self.moved else []
        said += [f"{len(self.tied)} only tied"] if self.tied else []
        return f"Fused by the source ({list_label(self.list)}) and fused here: {', '.join(said)}"


def compare_fusions(trace: Trace, k: int = FIRST) -> FusionComparison | None:
    """Compare the engine's own fused answer to the original query with our ranking after fusion; None without one of them."""
    if trace.external:
        return None
    name = next((one.name for one in trace.evidence.lists if one.source == "source_hybrid" and one.hits), None)
    uses = {use.name for use in trace.stage(LISTS).fields.lists}
    fused = trace.run.of(FUSION)
    if name is None or name not in uses or not fused.after.rank[0].any():
        return None
    own = [(row.memory_id, entry) for row in trace.stage(LISTS).rows for entry in row.lists if entry.list == name]
    own.sort(key=lambda pair: pair[1].rank)
    engine = [(memory_id, float(entry.raw or 0.0)) for memory_id, entry in own]
    rank, score = fused.after.rank[0], fused.after.score[0]
    order = np.flatnonzero(rank > 0)
    order = order[np.argsort(rank[order], kind="stable")].tolist()
    ours = [(trace.table.ids[0][c], float(score[c])) for c in order]
    note = (trace.evidence.notes.get("engine") or {}).get("lists", {}).get(name, {})
    return compared(name, engine, ours, k, cut=note.get("returned") == note.get("asked"))


def compared(
    name: str, engine: Sequence[tuple[str, float]], ours: Sequence[tuple[str, float]], k: int = FIRST, cut: bool = False
) -> FusionComparison:
    """Compare the first `k` of two rankings of (memory id, score), best first; the engine's may be shorter, and then
    decides. `cut`: the engine has more rows than it was asked for, so its last ones may tie with others."""
    there, _ = _intervals(engine, cut)
    here, absent_here = _intervals(ours, False)
    k = min(k, len(engine))
    ranked_there, ranked_here = ({key: i for i, (key, _) in enumerate(ranking)} for ranking in (engine, ours))
    others, moved, tied = [], [], []
    for memory_id, _ in engine[:k]:
        a, b = there[memory_id], here.get(memory_id, absent_here)
        place = ranked_here.get(memory_id)
        if a[0] <= b[1] and b[0] <= a[1]:
            if place != ranked_there[memory_id]:
                tied.append(memory_id)
        elif place is not None and place < k:
            moved.append(memory_id)
        else:
            others.append(memory_id)
    return FusionComparison(name, k, tuple(others), tuple(moved), tuple(tied))


Interval = tuple[float, float]
"""The first and the last possible place, from 0."""


def _intervals(ranking: Sequence[tuple[str, float]], cut: bool) -> tuple[dict[str, Interval], Interval]:
    """The places by memory id, which go on beyond the end for the last of a `cut` ranking, and those of a memory that is not in it."""
    found: dict[str, Interval] = {}
    start = 0
    for place in range(1, len(ranking) + 1):
        if place < len(ranking) and isclose(ranking[place][1], ranking[start][1], rel_tol=EQUAL):
            continue
        last = inf if cut and place == len(ranking) else place - 1
        for memory_id, _ in ranking[start:place]:
            found[memory_id] = (start, last)
        start = place
    return found, (len(ranking), inf)
