"""Breakpoints of a fusion weight, solved instead of searched.

Every candidate's raw fused score is a straight line in a list weight, a variant weight, a top-rank bonus or the boost.
With minmax the final numerator of candidate c,

    g_c(w) = factors_c · [(1 - blend)·(raw_c(w) - lowest(w)) + blend·best_c·(highest(w) - lowest(w))],

is a straight line wherever the same candidates are lowest and highest, so all weights at which the memory and a rival change
places are roots of straight lines. Between two roots the order is fixed. The lines are read off two replays, so the formula
of a stage stays in its stage; what comes after adjust (budget, diversity) is not solved, so every answer is verified by replay.

Source: RRF is linear in the list weights (Cormack et al. 2009); docs/internals/specification.md, "fusion" and "adjust".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cems_workbench.analysis.why.trial import Trials, changed
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.evidence import VARIANT_KINDS
from cems_workbench.pipeline.fusion_methods import fusion_method
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages import ADJUST, DEDUP, FUSION, RERANK, SUPERSESSION
from cems_workbench.pipeline.stages.fusion import linear_in_weights
from cems_workbench.pipeline.table import Floats

LINEAR = frozenset(
    {
        # Another system's fused list takes no part at all at weight 0, so its line has a step there.
        *(f"lists.{source.name}.weight" for source in LIST_SOURCES if not source.engine_fusion),
        *(f"variants.{kind}_weight" for kind in VARIANT_KINDS),
        "fusion.top_rank_bonus.rank1",
        "fusion.top_rank_bonus.rank2_3",
        "fusion.multi_list_boost",
    }
)


@dataclass(frozen=True, eq=False)
class Lines:
    """(C) per living candidate: raw = intercept + slope·w, best list score, product of the factors; `target` is the memory."""

    intercept: Floats
    slope: Floats
    best: Floats
    factor: Floats
    target: int


@dataclass(frozen=True, slots=True)
class RankInterval:
    """An interval of weights without a change of ranks; `rank` is the memory's in it."""

    low: float
    high: float
    rank: int


def solvable(config: PipelineConfig, path: str) -> bool:
    """Whether scores are linear after fusion, and only factors change them before assembly."""
    return (
        path in LINEAR
        and _linear_in_ranks(config)
        and RERANK.is_off(config)
        and DEDUP.is_off(config)
        and SUPERSESSION.is_off(config)
        and (not path.endswith("multi_list_boost") or config.fusion.normalize in ("none", "minmax"))
    )


def _linear_in_ranks(config: PipelineConfig) -> bool:
    return linear_in_weights(config.fusion) and fusion_method(config.fusion).reads == "ranks"


def rank_intervals(trials: Trials, config: PipelineConfig, path: str, low: float, high: float) -> list[RankInterval]:
    """The cells of the range low..high in ascending order; empty if the memory is not in fusion."""
    lines = _lines(trials, config, path)
    if lines is None or high <= low:
        return []
    bounds = {low, high}
    pieces = _pieces(lines, low, high) if config.fusion.normalize == "minmax" else [(low, high, None, None)]
    for start, end, lowest, highest in pieces:
        bounds |= {start, end, *_roots(lines, config, start, end, lowest, highest)}
    edges = np.array(sorted(bounds))
    middles = (edges[:-1] + edges[1:]) / 2
    ranks = [_rank(lines, config, float(middle)) for middle in middles]
    return _joined(
        [RankInterval(float(a), float(b), rank) for a, b, rank in zip(edges[:-1], edges[1:], ranks, strict=True)]
    )


def _joined(found: list[RankInterval]) -> list[RankInterval]:
    joined: list[RankInterval] = []
    for cell in found:
        if joined and joined[-1].rank == cell.rank:
            joined[-1] = RankInterval(joined[-1].low, cell.high, cell.rank)
        else:
            joined.append(cell)
    return joined


def _lines(trials: Trials, config: PipelineConfig, path: str) -> Lines | None:
    at = (0.0, 1.0)
    first, second = (trials.stages(changed(config, path, value)) for value in at)
    fusions = [stages.of(FUSION) for stages in (first, second)]
    alive = np.flatnonzero(fusions[0].after.alive[0])
    target = np.flatnonzero(alive == trials.column)
    if not len(target) or not np.array_equal(alive, np.flatnonzero(fusions[1].after.alive[0])):
        return None
    raw = [fusion.raw[0, alive] for fusion in fusions]
    best, factor = fusions[0].best_list_score[0, alive], first.of(ADJUST).product()[0, alive]
    return Lines(raw[0], raw[1] - raw[0], best, factor, int(target[0]))


def _pieces(lines: Lines, low: float, high: float) -> list[tuple[float, float, int | None, int | None]]:
    """(start, end, lowest, highest): pieces with the same candidates of lowest and highest raw score."""
    pieces: list[tuple[float, float, int | None, int | None]] = []
    start = low
    while start < high:
        value = lines.intercept + lines.slope * start
        top = int(np.lexsort((-lines.slope, -np.round(value, 15)))[0])
        bottom = int(np.lexsort((lines.slope, np.round(value, 15)))[0])
        end = min(high, _meets(lines, top, start, 1), _meets(lines, bottom, start, -1))
        pieces.append((start, end, bottom, top))
        start = end
    return pieces


def _meets(lines: Lines, leader: int, start: float, sign: int) -> float:
    """The first weight past `start` at which another line overtakes the leader's."""
    steeper = sign * (lines.slope - lines.slope[leader])
    behind = sign * (lines.intercept[leader] - lines.intercept)
    at = np.divide(behind, steeper, out=np.full(len(steeper), np.inf), where=steeper > 1e-15)
    later = at[at > start + 1e-12]
    return float(later.min()) if len(later) else np.inf


def _roots(
    lines: Lines, config: PipelineConfig, start: float, end: float, lowest: int | None, highest: int | None
) -> list[float]:
    """Weights within start..end at which the memory's numerator meets a rival's, or the clamp."""
    at = np.array([start, end])
    values, top = _numerators(lines, config, at, lowest, highest)
    rivals = values - values[lines.target]
    if config.adjust.clamp:
        rivals = np.vstack([rivals, top - values[lines.target]])
    first, last = rivals[:, 0], rivals[:, 1]
    crossing = (first * last) < 0
    share = first[crossing] / (first[crossing] - last[crossing])
    return [float(root) for root in start + share * (end - start)]


def _numerators(
    lines: Lines, config: PipelineConfig, at: Floats, lowest: int | None, highest: int | None
) -> tuple[Floats, Floats]:
    """(C, W) numerators at W weights, and (W) what a score of 1 is in them."""
    raw = lines.intercept[:, None] + lines.slope[:, None] * at
    blend = config.fusion.score_blend
    if lowest is None or highest is None:
        return lines.factor[:, None] * ((1 - blend) * raw + blend * lines.best[:, None]), np.ones(len(at))
    spread = raw[highest] - raw[lowest]
    inside = (1 - blend) * (raw - raw[lowest]) + blend * lines.best[:, None] * spread
    return lines.factor[:, None] * inside, spread


def _rank(lines: Lines, config: PipelineConfig, weight: float) -> int:
    raw = lines.intercept + lines.slope * weight
    ends = (int(raw.argmin()), int(raw.argmax())) if config.fusion.normalize == "minmax" else (None, None)
    if config.fusion.normalize == "minmax" and raw.min() == raw.max():  # all equal: each normalises to 1
        lines, ends = replace(lines, intercept=np.ones(len(raw)), slope=np.zeros(len(raw))), (None, None)
    values, top = _numerators(lines, config, np.array([weight]), *ends)
    score = np.minimum(values[:, 0], top[0]) if config.adjust.clamp else values[:, 0]
    own = score[lines.target]
    before = (score > own) | ((score == own) & (np.arange(len(score)) < lines.target))
    return 1 + int(before.sum())
