"""Weight map: the first memory at each pair of values of two parameters, and the rank of the first relevant one.

Each cell is one replay. The present values are on the grid, so that the present cell is exact; results between grid
points are unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.analysis.why.counterfactual import slider
from cems_workbench.analysis.why.trial import changed
from cems_workbench.config import FieldSpec, PipelineConfig, field_spec
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.replay import run, single_table
from cems_workbench.pipeline.stages import ASSEMBLY
from cems_workbench.pipeline.table import Ints
from cems_workbench.progress import Progress, silent


@dataclass(frozen=True, eq=False)
class WeightMap:
    """`first` (Y)(X) is the memory at rank 1, None without results; `rank` (Y, X) that of the first relevant one, 0 for none.

    `judged` says whether there is any relevant memory.
    """

    x: FieldSpec
    y: FieldSpec
    xs: Sequence[Any]
    ys: Sequence[Any]
    now: tuple[Any, Any]
    first: Sequence[Sequence[str | None]]
    rank: Ints
    judged: bool

    @property
    def winners(self) -> list[tuple[str, int]]:
        """The memories at rank 1 with their number of cells, most cells first, then by id."""
        counts: dict[str, int] = {}
        for row in self.first:
            for memory_id in row:
                if memory_id is not None:
                    counts[memory_id] = counts.get(memory_id, 0) + 1
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))

    def succeeds(self, k: int) -> int:
        """The number of cells with a relevant memory within the first k."""
        return int(((self.rank > 0) & (self.rank <= k)).sum())


def grid(spec: FieldSpec, config: PipelineConfig, count: int) -> list[Any]:
    """About `count` values over the slider's range, evenly spaced; the current value replaces its nearest."""
    low, high = slider(spec, config)
    spaced = [low + (high - low) * i / max(1, count - 1) for i in range(count)]
    values = sorted({round(value) for value in spaced}) if spec.by_ones else [round(value, 10) for value in spaced]
    now = config.get(spec.path)
    if now is not None and now not in values:
        values[min(range(len(values)), key=lambda i: abs(values[i] - now))] = now
    return values


def weight_map(
    evidence: Evidence,
    config: PipelineConfig,
    x: str,
    y: str,
    size: int,
    relevant: Collection[str] = (),
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> WeightMap:
    """Replay a grid of about size by size over the parameters at paths x and y.

    Args:
        relevant: the ids judged relevant.
        progress: called after each row; a `Cancelled` from it passes through.
    """
    table, off = single_table(evidence), tuple(sorted(switched_off))
    ids = table.ids[0]
    across, up = field_spec(x), field_spec(y)
    xs, ys = grid(across, config, size), grid(up, config, size)
    first: list[list[str | None]] = []
    rank = np.zeros((len(ys), len(xs)), dtype=np.int64)
    for i, above in enumerate(ys):
        progress("replaying the map", i * len(xs), len(ys) * len(xs))
        row = changed(config, y, above)
        cells: list[str | None] = []
        for j, beside in enumerate(xs):
            order = [ids[int(c)] for c in run(table, changed(row, x, beside), off).of(ASSEMBLY).after.order(0)]
            cells.append(order[0] if order else None)
            rank[i, j] = next((place for place, key in enumerate(order, 1) if key in relevant), 0)
        first.append(cells)
    progress("replaying the map", len(ys) * len(xs), len(ys) * len(xs))
    return WeightMap(across, up, xs, ys, (config.get(x), config.get(y)), first, rank, bool(relevant))
