"""Normalisations: how the raw scores of a list become comparable with those of other lists.

    max             s / largest                                  as they are where the largest is not positive
    minmax          (s - least) / (largest - least)              `lists.equal_scores` where all are equal
    saturating      s / (1 + s)                                  0 for s <= 0
    logistic        1 / (1 + exp(-slope * (s - midpoint)))       0 for s <= 0; midpoint and slope by the number of the query's words
    exponential     0.5 ** (age / half_life_days)                of dates (recency); above 1 for a memory written after the query's moment
    smoothed_share  (n + 1) / (max(largest, 1) + 1)              of counts (access)

Each takes (Q, L, C) scores and the mask of the hits that it scales. A list is cut to its depth first, so extremes are those of its hits.

Source: CEMS plan, phase 2 (max, which its documents call min-max); mem0 2.2.1 (logistic); engram, memory_recall (exponential,
smoothed_share, 0.5 for equal scores); docs/internals/specification.md, "lists".

Scales of the vector score: what a system's engine makes of the cosine before thresholds and sums read it.

    cosine             c
    half_cosine        max((1 + c) / 2, 0)          Neo4j, Graphiti on FalkorDB, k-nearest-neighbour fields of Lucene
    inverse_l2         1 / (1 + squared L2) = 1 / (3 - 2c)   mem0 on Chroma and FAISS, of vectors of length 1
    negative_distance  c - 1                        stores that return minus the cosine distance

Every one of them rises with the cosine, so the order of a list stays; a threshold and a sum read other numbers. Evidence keeps cosines,
but for live lists of sources whose vectors make none (`live_engine`): those stay on the source's own scale, which a note names.

Source: MEMORY_AGENT.md and PEERS.md of the recorded systems; docs/internals/specification.md, "lists".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections.gathering import ListsConfig
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, memoized

DAY = 86400.0
MOST_DOUBLINGS = 100.0
"""Half-lives into the future that count: a wrong date must not make a score infinite."""


def _largest(raw: Floats, mask: Bools) -> Floats:
    """(Q, L, 1) the largest score of each list, -inf for an empty one."""
    largest: Floats = np.where(mask, raw, -np.inf).max(axis=2, keepdims=True, initial=-np.inf)
    return largest


def _max(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    high = _largest(raw, mask)
    # Without a positive maximum, division would flip the order or fail: the raw scores stay.
    normalised: Floats = np.divide(raw, high, out=raw.copy(), where=np.isfinite(high) & (high > 0))
    return normalised


def _minmax(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    high = _largest(raw, mask)
    low = np.where(mask, raw, np.inf).min(axis=2, keepdims=True, initial=np.inf)
    # An empty list has low inf and high -inf; their difference must not become a spread.
    spread = np.where(high > low, high - low, 0.0)
    normalised: Floats = np.divide(
        raw - np.where(mask, low, 0.0), spread, out=np.full_like(raw, config.equal_scores), where=spread > 0
    )
    return normalised


def _saturating(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    safe = np.where(mask & (raw > 0), raw, 0.0)
    normalised: Floats = safe / (1 + safe)
    return normalised


def _logistic(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    midpoint, slope = (values[:, :, None] for values in logistic_of(table.lists.words, config))
    # exp overflows to inf far below the midpoint, which is the right 0.
    with np.errstate(over="ignore"):
        normalised: Floats = np.where(mask & (raw > 0), 1 / (1 + np.exp(-slope * (raw - midpoint))), 0.0)
    return normalised


def logistic_of(words: Ints, config: ListsConfig) -> tuple[Floats, Floats]:
    """Midpoint and slope for numbers of words, of any one shape: the first band that covers a number, else the last.

    0 without bands.
    """
    midpoint, slope = np.zeros(words.shape), np.zeros(words.shape)
    for i, band in reversed(list(enumerate(config.logistic.bands))):
        last = i == len(config.logistic.bands) - 1
        covers = np.ones(words.shape, dtype=bool) if last or band.max_words is None else words <= band.max_words
        midpoint, slope = np.where(covers, band.midpoint, midpoint), np.where(covers, band.slope, slope)
    return midpoint, slope


def _exponential(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    # Without a moment there is no age, and nothing is older than another.
    age = np.nan_to_num(table.as_of[:, None, None] - raw, nan=0.0) / DAY
    normalised: Floats = 0.5 ** np.maximum(age / config.recency.half_life_days, -MOST_DOUBLINGS)
    return normalised


def _smoothed_share(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    normalised: Floats = (raw + 1) / (np.maximum(_largest(raw, mask), 1.0) + 1)
    return normalised


NORMALISATIONS: Mapping[str, Callable[[Floats, Bools, ListsConfig, CandidateTable], Floats]] = {
    "max": _max,
    "minmax": _minmax,
    "saturating": _saturating,
    "logistic": _logistic,
    "exponential": _exponential,
    "smoothed_share": _smoothed_share,
}
"""Every normalisation but none, by the name that `lists.<source>.normalization` gives it."""


Scale = Literal["cosine", "product", "negated_distance"]
"""What the scores of a live vector list are."""
SCALE_WORDS: Mapping[str, str] = {"product": "inner products", "negated_distance": "negated distances"}


@dataclass(frozen=True, slots=True)
class VectorScale:
    """One scale: its formula in words, the score of cosines, and the cosine of a score (-inf below the scale)."""

    formula: str
    of_cosine: Callable[[Floats], Floats]
    cosine: Callable[[float], float]


def _half(cosine: Floats) -> Floats:
    half: Floats = np.maximum((1 + cosine) / 2, 0.0)
    return half


VECTOR_SCALES: Mapping[str, VectorScale] = {
    "cosine": VectorScale("cosine", lambda cosine: cosine, lambda score: score),
    # A score of 0 or less is below every vector's, so that a threshold there keeps all.
    "half_cosine": VectorScale("(1 + cosine) / 2", _half, lambda score: 2 * score - 1 if score > 0 else -np.inf),
    "inverse_l2": VectorScale(
        "1 / (3 − 2 · cosine)",
        lambda cosine: 1 / (3 - 2 * np.minimum(cosine, 1.0)),
        lambda score: (3 - 1 / score) / 2 if score > 0 else -np.inf,
    ),
    "negative_distance": VectorScale("cosine − 1", lambda cosine: cosine - 1, lambda score: score + 1),
}
"""Every scale by the name that `lists.vector.scale` gives it."""


def as_cosine(config: PipelineConfig, score: float, *, before_normalization: bool = False) -> str | None:
    """What a score of the vector list is as a cosine, in words; None where that is the score itself, or the list is normalised."""
    vector = config.lists.vector
    normalized = vector.normalization != "none" and not before_normalization
    if vector.scale == "cosine" or normalized or not vector.enabled:
        return None
    cosine = VECTOR_SCALES[vector.scale].cosine(score)
    # Half a unit in the last shown digit, so that rounding makes no limit of a limit.
    if cosine > 1 + 5e-7:
        return f"as a cosine: {cosine:.4g}, which no vector reaches"
    if cosine <= -1:
        return "as a cosine: below -1, so that every vector passes"
    return f"as a cosine: {cosine:.4g}"


def cosine_remarks(config: PipelineConfig) -> dict[str, str]:
    """By path of a threshold on the vector list's scores, what it is as a cosine; empty where the scores are cosines."""
    threshold, floor = config.threshold, config.assembly.min_vector_score
    read = {
        "none": {},
        "fixed": {"threshold.fixed": threshold.fixed},
        "adaptive": {
            "threshold.adaptive.max": threshold.adaptive.max,
            "threshold.adaptive.min": threshold.adaptive.min,
        },
    }[threshold.mode if "vector" in threshold.applies_to else "none"]
    remarks = {path: as_cosine(config, score) for path, score in read.items()}
    if floor is not None:
        remarks["assembly.min_vector_score"] = as_cosine(config, floor, before_normalization=True)
    return {path: said for path, said in remarks.items() if said is not None}


def scale_of(notes: Mapping[str, Any], name: str) -> str:
    """The scale of a list's scores by the notes of its evidence; "cosine" for every list of the workbench."""
    engine = notes.get("engine")
    lists = engine.get("lists", {}) if isinstance(engine, Mapping) else {}
    return str(lists.get(name, {}).get("scale", "cosine"))


def own_scale(table: CandidateTable) -> Bools:
    """(Q, L) the live lists whose scores are on the source's own scale, not cosines."""

    def found() -> Bools:
        own = np.zeros(table.lists.source.shape, dtype=bool)
        for q, notes in enumerate(table.notes):
            if "engine" in notes:
                for i, name in enumerate(table.lists.names[q]):
                    own[q, i] = scale_of(notes, name) != "cosine"
        return own

    return memoized(table.memo, "own scale", None, found)


def expecting_cosines(config: PipelineConfig) -> list[str]:
    """The parameters of a config that expect a cosine in the vector list, so that they leave a list on another scale alone."""
    raw = config.lists.vector.normalization == "none"
    threshold = config.threshold
    read: Sequence[tuple[str, bool]] = (
        (
            "threshold.fixed" if threshold.mode == "fixed" else "threshold.adaptive.max",
            raw and threshold.mode != "none" and "vector" in threshold.applies_to,
        ),
        ("fusion.score_blend", raw and bool(config.fusion.score_blend)),
        ("fusion.single_list", raw and config.fusion.single_list != "fuse"),
        ("assembly.min_vector_score", config.assembly.min_vector_score is not None),
        ("abstain.vector", config.abstain.vector is not None),
        ("lists.vector.scale", config.lists.vector.scale != "cosine"),
    )
    return [path for path, reads in read if reads]
