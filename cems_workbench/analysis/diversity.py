"""Diversity: how similar the results are, and the results under another limit of dedup or another λ of MMR.

Pairs are compared as the pipeline compares them: dedup by the cosine of the embeddings, MMR by the overlap of the words (Jaccard).

Limits of dedup are exact. With the memories K that it keeps at a limit, no pair of K is as near as that limit; lowering it changes
nothing until it reaches the largest cosine within K, and there it does. So the walk goes from one such cosine to the next, each step a
replay. λ is sampled on a grid of `LAMBDA_STEP`, and every change of the results between two of its points is then bisected.

Source: ACE stage 4 (dedup); Carbonell and Goldstein 1998 (MMR); docs/internals/specification.md, "dedup" and "assembly".

Near duplicates: pairs of memories with close embeddings, found in blocks of a matrix product.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, nan

import numpy as np
from numpy.typing import NDArray

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.pipeline.replay import run, single_table
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.dedup import DEDUP
from cems_workbench.pipeline.stages.stage import PipelineRun
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory
from cems_workbench.store import Selection

BLOCK_ROWS = 512
"""Rows per block; each is compared with all later ones."""
MAX_MEMORIES = 5_000
"""Maximum number of memories compared; of a larger store the newest."""
MAX_PAIRS = 30


@dataclass(frozen=True)
class NearPairs:
    """The closest pairs of distinct memories as (id, id, cosine), closest first, and how many reach the threshold."""

    pairs: tuple[tuple[str, str, float], ...]
    total: int


@dataclass(frozen=True)
class NearDuplicates:
    """The near pairs of a store, the memories in them by id, and how many memories were compared."""

    closest: NearPairs
    memories: Mapping[str, Memory]
    compared: int


def near_duplicates(resources: Resources, threshold: float) -> NearDuplicates:
    """Pairs of a store's newest memories with cosine ≥ `threshold`, by the embeddings in its index."""
    newest = resources.store.memories.find(Selection(), MAX_MEMORIES).memories
    by_id = {memory.id: memory for memory in newest}
    vectors = resources.indexes.vectors.embeddings(list(by_id))
    ids = list(vectors)
    matrix = np.stack(list(vectors.values())) if ids else np.empty((0, 1), np.float32)
    matrix = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    closest = near_pairs(ids, matrix, [by_id[name].content for name in ids], threshold, MAX_PAIRS)
    return NearDuplicates(closest, {name: by_id[name] for pair in closest.pairs for name in pair[:2]}, len(ids))


def near_pairs(ids: Sequence[str], vectors: Float32, contents: Sequence[str], threshold: float, most: int) -> NearPairs:
    """Pairs with cosine ≥ `threshold`, at most `most` of them, ties by the order of `ids`.

    `vectors` are unit vectors, shape (len(ids), dimension). Pairs of equal content are excluded: they are exact
    duplicates, which are listed separately.
    """
    _, same = np.unique(np.asarray(contents, object), return_inverse=True)
    total = 0
    best = np.empty((0, 3))
    for start in range(0, len(ids), BLOCK_ROWS):
        left, right, cosines = _block(vectors, np.asarray(same).reshape(-1), start, threshold)
        total += len(cosines)
        best = np.vstack([best, np.column_stack([left, right, cosines])])
        best = best[np.lexsort((best[:, 1], best[:, 0], -best[:, 2]))][:most]
    return NearPairs(tuple((ids[int(a)], ids[int(b)], float(cosine)) for a, b, cosine in best), total)


def _block(
    vectors: Float32, same: NDArray[np.intp], start: int, threshold: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], Float32]:
    """The pairs (i, j > i) of BLOCK_ROWS rows from `start` with the rows from there on."""
    rows = vectors[start : start + BLOCK_ROWS]
    cosines = np.minimum(rows @ vectors[start:].T, 1.0)
    cosines[same[start : start + BLOCK_ROWS, None] == same[None, start:]] = -1.0
    left, right = np.nonzero(cosines >= threshold)
    later = right > left
    left, right = left[later], right[later]
    return left + start, right + start, cosines[left, right]


LOWEST_LIMIT = 0.5
"""Lowest limit of a walk: memories on the same subject are this similar."""
LAMBDA_STEP, LIMIT_PRECISION = 0.02, 1e-4


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Similarities (n, n) of memories to each other; NaN on the diagonal, and for a pair without both embeddings."""

    ids: tuple[str, ...]
    cosine: NDArray[np.float64]
    overlap: NDArray[np.float64]

    @property
    def mean_cosine(self) -> float | None:
        """Over all pairs with a value; None without such a pair."""
        return _mean(self.cosine)

    @property
    def mean_overlap(self) -> float | None:
        """Over all pairs; None for fewer than two memories."""
        return _mean(self.overlap)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A memory that dedup dropped, the better ranked one it duplicates, and their cosine."""

    memory_id: str
    of: str
    cosine: float


@dataclass(frozen=True, slots=True)
class ResultInterval:
    """Values of a parameter between which the same memories are the results: low < limit <= high; for λ low <= λ <= high.

    `dropped`: the memories that dedup drops in it (above the last result), each with the memory it duplicates.
    """

    low: float
    high: float
    results: tuple[str, ...]
    dropped: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DedupThreshold:
    """The highest limit at which dedup drops a memory, and the memory that it then duplicates."""

    memory_id: str
    limit: float
    of: str


def pairwise(evidence: Evidence, ids: Sequence[str]) -> Pairwise:
    """Every pair of these candidates. Raises ValueError for an id that is no candidate."""
    table = single_table(evidence)
    places = [table.ids[0].index(memory_id) for memory_id in ids]
    cosines, has = table.cosines(0)
    known = np.outer(has[places], has[places])
    cosine = np.where(known, cosines[np.ix_(places, places)], nan)
    overlap = np.array([table.overlaps(0, place)[places] for place in places]).reshape(len(ids), len(ids))
    for matrix in (cosine, overlap):
        np.fill_diagonal(matrix, nan)
    return Pairwise(tuple(ids), cosine, overlap)


def _mean(matrix: NDArray[np.float64]) -> float | None:
    known = matrix[~np.isnan(matrix)]
    return float(known.mean()) if len(known) else None


def dropped_duplicates(trace: Trace) -> list[Duplicate]:
    """The memories that dedup dropped, in the order of the ranking."""
    return [
        Duplicate(row.memory_id, row.duplicate_of, row.similarity)
        for row in trace.stage(DEDUP).rows
        if row.duplicate_of is not None and row.similarity is not None
    ]


def limit_intervals(
    trace: Trace, switched_off: Collection[int] = (), lowest: float = LOWEST_LIMIT
) -> list[ResultInterval]:
    """The stretches of dedup's limit from high to low; the first has dedup off, or its limit past every pair (high is inf)."""
    ids = single_table(trace.evidence).ids[0]
    found: list[ResultInterval] = []
    high, config = inf, with_values(trace.config, {"dedup.enabled": False})
    while True:
        stages = _replayed(trace.evidence, config, switched_off)
        low = _next_limit(trace.evidence, stages)
        results = tuple(ids[int(c)] for c in stages.of(ASSEMBLY).after.order(0))
        least = lowest if high > lowest else -1.0
        found.append(
            ResultInterval(max(low, least), high, results, {} if high == inf else _dropped(trace.evidence, stages))
        )
        if low < lowest:
            return found
        high, config = low, with_values(trace.config, {"dedup.enabled": True, "dedup.similarity": low})


def _replayed(evidence: Evidence, config: PipelineConfig, switched_off: Collection[int]) -> PipelineRun:
    return run(single_table(evidence), config, switched_off)


def _next_limit(evidence: Evidence, stages: PipelineRun) -> float:
    """The largest cosine between two memories that dedup keeps; -inf without a pair.

    Candidates below the last result matter only to MMR.
    """
    cosines, has = single_table(evidence).cosines(0)
    dedup, assembly = stages.of(DEDUP), stages.of(ASSEMBLY)
    before, after, shown = dedup.before, dedup.after, assembly.after.alive[0]
    if not shown.any():
        return -inf
    mmr = assembly.fields(0).strategy == "mmr"  # MMR may select any of them, by session
    last = before.rank[0].max() if mmr else before.rank[0, shown].max()
    kept = np.flatnonzero(after.alive[0] & has & (before.rank[0] <= last))
    if len(kept) < 2:
        return -inf
    pairs = cosines[np.ix_(kept, kept)][np.triu_indices(len(kept), 1)]
    return float(pairs.max())


def _dropped(evidence: Evidence, stages: PipelineRun) -> dict[str, str]:
    rows = stages.of(DEDUP).rows(single_table(evidence), 0)
    return {row.memory_id: row.duplicate_of for row in rows if row.duplicate_of is not None}


def current_interval(stretches: Sequence[ResultInterval], config: PipelineConfig) -> int:
    """The stretch of the present limit; the first one if dedup is off."""
    if DEDUP.is_off(config):
        return 0
    limit = config.dedup.similarity
    return next((i for i, stretch in enumerate(stretches) if limit > stretch.low), len(stretches) - 1)


def dedup_thresholds(stretches: Sequence[ResultInterval], present: int) -> list[DedupThreshold]:
    """For each result of the present stretch that a lower limit drops: the highest such limit, from high to low."""
    found: dict[str, DedupThreshold] = {}
    for stretch in stretches[present + 1 :]:
        for memory_id in stretches[present].results:
            if memory_id in stretch.dropped and memory_id not in found:
                found[memory_id] = DedupThreshold(memory_id, stretch.high, stretch.dropped[memory_id])
    return list(found.values())


def merged(stretches: Sequence[ResultInterval]) -> list[ResultInterval]:
    """Neighbouring stretches with the same results, merged: drops far below the results have no visible effect."""
    found: list[ResultInterval] = []
    for stretch in stretches:
        if found and set(found[-1].results) == set(stretch.results):
            last = found[-1]
            found[-1] = ResultInterval(
                min(last.low, stretch.low), max(last.high, stretch.high), last.results, stretch.dropped
            )
        else:
            found.append(stretch)
    return found


def lambda_intervals(
    trace: Trace, switched_off: Collection[int] = (), progress: Progress = silent
) -> list[ResultInterval]:
    """The stretches of MMR's λ from 0 (diversity alone) to 1 (score alone), with MMR in force."""
    ids = single_table(trace.evidence).ids[0]

    def results(value: float) -> tuple[str, ...]:
        config = with_values(trace.config, {"assembly.strategy": "mmr", "assembly.mmr_lambda": value})
        return tuple(ids[int(c)] for c in _replayed(trace.evidence, config, switched_off).of(ASSEMBLY).after.order(0))

    points = [round(i * LAMBDA_STEP, 10) for i in range(round(1 / LAMBDA_STEP) + 1)]
    found = [ResultInterval(points[0], points[0], results(points[0]), {})]
    for done, value in enumerate(points[1:], 1):
        progress("trying λ", done, len(points) - 1)
        now, last = results(value), found[-1]
        if set(now) == set(last.results):
            found[-1] = ResultInterval(last.low, value, last.results, {})
            continue
        below, above = last.high, value
        while above - below > LIMIT_PRECISION:
            middle = (below + above) / 2
            below, above = (middle, above) if set(results(middle)) == set(last.results) else (below, middle)
        found[-1] = ResultInterval(last.low, below, last.results, {})
        found.append(ResultInterval(above, value, now, {}))
    return found


def limit_value(stretch: ResultInterval) -> float | None:
    """A limit of the stretch with as few decimals as fit, the highest of those; None if dedup is off in it."""
    if stretch.high == inf:
        return None
    for digits in range(2, 9):
        value: float = floor(stretch.high * 10.0**digits + 1e-9) / 10.0**digits
        if stretch.low < value <= stretch.high:
            return value
    return stretch.high


def lambda_value(stretch: ResultInterval) -> float:
    """A λ in the middle of the stretch with as few decimals as fit."""
    middle = (stretch.low + stretch.high) / 2
    for digits in range(1, 9):
        value: float = round(middle, digits)
        if stretch.low <= value <= stretch.high:
            return value
    return middle
