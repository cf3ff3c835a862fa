"""Events of parameters that are compared with numbers the parameter does not change, and ranges that a walk stays in.

    filter.min_score         the fused scores                     gap.ratio    score / top score after adjust
    filter.percentile        100 i / (n - 1), n scores left       threshold.fixed       the normalised list scores
    threshold.adaptive.target_ratio   j / limit

    assembly.max_tokens      the first k selected with a budget B, which use U tokens, are the same for every budget U..B
    dedup.similarity         the walk at s is the same from the closest pair it kept to the closest that it met as a duplicate

Source: PIPELINE.md, "filter", "gap", "threshold", "assembly", "dedup".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cems_workbench.analysis.sensitivity_replays import ADJUST, ASSEMBLY, DEDUP, FUSION, Turned
from cems_workbench.pipeline import STAGES
from cems_workbench.pipeline.table import Floats


def _fused(turned: Turned, value: float) -> Floats:
    after = turned.stages(value)[FUSION].after
    scores: Floats = after.score[0, after.alive[0]]
    return scores


def _percentiles(turned: Turned, value: float) -> Floats:
    scores = _fused(turned, value)
    least = turned.config.filter.min_score
    left = len(scores) if least is None else int((scores >= least).sum())
    return np.array([100 * i / (left - 1) for i in range(left)]) if left > 1 else np.array([])


def _gaps(turned: Turned, value: float) -> Floats:
    after = turned.stages(value)[ADJUST].after
    scores = after.score[0, after.alive[0]]
    top = scores.max(initial=0.0)
    return scores / top if top > 0 else np.array([])


def _list_scores(turned: Turned, value: float) -> Floats:
    if turned.config.threshold.mode != "fixed":
        return np.array([])
    stage = turned.stages(value)[STAGES.index("lists")]
    entries = [
        entry["normalized"] for c in np.flatnonzero(stage.after.alive[0]) for entry in stage.columns["lists"](0, int(c))
    ]
    return np.array([score for score in entries if score is not None])


def _shares(turned: Turned, value: float) -> Floats:
    limit = turned.config.assembly.limit
    if turned.config.threshold.mode != "adaptive" or limit is None:
        return np.array([])
    return np.arange(2 * limit + 1) / limit


LEVELS: dict[str, Callable[[Turned, float], Floats]] = {
    "filter.min_score": _fused,
    "filter.percentile": _percentiles,
    "gap.ratio": _gaps,
    "threshold.fixed": _list_scores,
    "threshold.adaptive.target_ratio": _shares,
}


def idle(turned: Turned, value: float) -> bool:
    """Is the parameter one of a part that is off under this config, so that no value of it changes anything?"""
    if turned.path.startswith("threshold.adaptive."):
        return turned.config.threshold.mode != "adaptive"
    if turned.path == "assembly.mmr_lambda":
        return bool(turned.stages(value)[ASSEMBLY].fields(0)["strategy"] != "mmr")
    return False


def budget_samples(turned: Turned, low: int, high: int) -> list[int]:
    """The first and the last token budget of each selection of the first k in low..high, ascending."""
    samples: set[int] = set()
    budget = high
    while budget >= low:
        first = turned.stages(budget)[ASSEMBLY].after.order(0)[: turned.k]
        used = int(turned.table.tokens[0, first].sum())
        samples |= {max(low, used), budget}
        budget = used - 1
    return sorted(samples)


def similarity_samples(turned: Turned, low: float, high: float) -> list[float]:
    """The first and the last similarity of each walk in low..high, ascending."""
    if not turned.config.dedup.enabled:
        return [low, high]
    cosines, has = turned.table.cosines(0)
    samples: set[float] = {high}
    value = low
    while value <= high:
        stage = turned.stages(value)[DEDUP]
        order = [int(c) for c in stage.before.order(0) if has[c]]
        kept: list[int] = []
        closest = np.inf
        for c in order:
            if stage.after.alive[0, c]:
                kept.append(c)
            else:
                closest = min(closest, float(cosines[c, kept].max()))
        last = min(high, closest)
        samples |= {value, last}
        value = float(np.nextafter(last, np.inf))
    return sorted(samples)
