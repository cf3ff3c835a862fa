"""Scores of a live vector list: cosines where the lengths of the vectors allow it, otherwise the source's own numbers.

    l2: cosine = (|q|² + 1 − distance²) / (2 |q|)        ip: cosine = product / |q|        q the query's vector, the others of length 1

Both keep the order. Of vectors of other lengths neither holds, and the order is not that of cosines: such a list keeps its scores, a note
of the evidence names their scale, and thresholds, blends and floors that expect a cosine leave it alone (`vector_scales.own_scale`).
A vector of zeros has no direction: its hits are left out, and counted, as are hits without a distance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import NamedTuple, cast

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.vector_scales import SCALE_WORDS, Scale, expecting_cosines
from cems_workbench.sources.source import Distance
from cems_workbench.store.search.entries import ChunkHits
from cems_workbench.store.sources import VectorLengths

SCALES: Mapping[Distance, Scale] = {"cosine": "cosine", "ip": "product", "l2": "negated_distance"}
"""The scale of a live vector list as its source answers it, by the source's distance."""
DISTANCE_WORDS: Mapping[str, str] = {"cosine": "cosine", "ip": "inner product", "l2": "Euclidean distance"}


class Rescaled(NamedTuple):
    """A live vector list: its hits, the scale of their scores, and a line about each kind of hit that was left out."""

    hits: ChunkHits
    scale: Scale
    left_out: tuple[str, ...]


def rescaled(
    hits: ChunkHits, query: Float32, distance: Distance, lengths: VectorLengths, zero: Set[str] = frozenset()
) -> Rescaled:
    """The hits with cosines, if the source's vectors have length 1; otherwise with the scores they have.

    `zero` are the memories among them whose vectors are zeros.
    """
    finite = [hit for hit in hits if math.isfinite(hit[1])]
    kept = [hit for hit in finite if hit[0] not in zero]
    seen = set()
    once: ChunkHits = []
    for hit in kept:
        if (hit[0], hit[2]) not in seen:
            seen.add((hit[0], hit[2]))
            once.append(hit)
    left_out = (
        *_counted(len(hits) - len(finite), "has no distance (NaN)", "have no distance (NaN)"),
        *_counted(
            len(finite) - len(kept), "has a vector of zeros, and no cosine", "have vectors of zeros, and no cosine"
        ),
        *_counted(len(kept) - len(once), "repeats an id of the list", "repeat an id of the list"),
    )
    norm = float(np.linalg.norm(query))
    if distance == "cosine" or not lengths.unit or not norm:
        return Rescaled(once, SCALES[distance], left_out)
    if distance == "ip":
        return Rescaled([(key, score / norm, seq) for key, score, seq in once], "cosine", left_out)
    top = (norm * norm + 1) / (2 * norm)
    return Rescaled([(key, top - score * score / (2 * norm), seq) for key, score, seq in once], "cosine", left_out)


def _counted(count: int, one: str, several: str) -> list[str]:
    return [f"{count:,} {f'hit {one}' if count == 1 else f'hits {several}'}: left out"] if count else []


def scale_note(distance: Distance, lengths: VectorLengths) -> str:
    """What the scores of the source's live vector list are, in a sentence; empty if they are cosines as they come, or there are none."""
    if distance == "cosine" or lengths.count == lengths.zeros:
        return ""
    by = DISTANCE_WORDS[distance]
    if lengths.unit:
        return f"it compares by {by}; its vectors have length 1, so scores of its live list are given as cosines"
    return (
        f"it compares by {by}, and its vectors have lengths {lengths.words}: scores of its live list are "
        f"{SCALE_WORDS[SCALES[distance]]}, to which thresholds on a cosine do not apply, and a vector list of the workbench, which is by "
        "cosine, has another order"
    )


def order_note(distance: Distance, lengths: VectorLengths) -> str:
    """Why a vector list of the workbench is in another order than the source's; empty if the order is the same."""
    if distance == "cosine" or lengths.unit or not lengths.count:
        return ""
    return (
        f"by cosine; the source compares by {DISTANCE_WORDS[distance]} and its vectors have lengths {lengths.words}, so its own order is "
        "another (lists.answered_by: source)"
    )


def own_scale_remarks(config: PipelineConfig, distance: str, lengths: VectorLengths) -> dict[str, str]:
    """By path, that a parameter which expects a cosine leaves the source's live list alone; empty where that has cosines."""
    if distance not in SCALES or distance == "cosine" or lengths.unit:
        return {}
    scores = SCALE_WORDS[SCALES[cast("Distance", distance)]]
    said = f"does not apply to the source's vector list, which has {scores}: vectors of lengths {lengths.words}"
    return dict.fromkeys(expecting_cosines(config), said)
