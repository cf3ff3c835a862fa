"""Scales of the vector score: what a system's engine makes of the cosine before thresholds and sums read it.

    cosine             c
    half_cosine        max((1 + c) / 2, 0)          Neo4j, Graphiti on FalkorDB, k-nearest-neighbour fields of Lucene
    inverse_l2         1 / (1 + squared L2) = 1 / (3 - 2c)   mem0 on Chroma and FAISS, of vectors of length 1
    negative_distance  c - 1                        stores that return minus the cosine distance

Every one of them rises with the cosine, so the order of a list stays; a threshold and a sum read other numbers. Evidence keeps cosines,
but for live lists of sources whose vectors make none (`live_scores`): those stay on the source's own scale, which a note names.

Source: MEMORY_AGENT.md and PEERS.md of the recorded systems; docs/internals/specification.md, "lists".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, memoized

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
