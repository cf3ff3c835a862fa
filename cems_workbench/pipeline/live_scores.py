"""Scores of a live vector list: cosines where the lengths of the vectors allow it, otherwise the source's own numbers.

    l2: cosine = (|q|² + 1 − distance²) / (2 |q|)        ip: cosine = product / |q|        q the query's vector, the others of length 1

Both keep the order. Of vectors of other lengths neither holds, and the order is not that of cosines: such a list keeps its scores, a note
of the evidence names their scale, and thresholds, blends and floors that expect a cosine leave it alone (`own_scale`).
A vector of zeros has no direction: its hits are left out, and counted, as are hits without a distance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.table import Bools, CandidateTable, memoized
from cems_workbench.sources.source import Distance
from cems_workbench.store.search.hits import ChunkHits
from cems_workbench.store.sources import VectorLengths

Scale = Literal["cosine", "product", "negated_distance"]
SCALES: Mapping[Distance, Scale] = {"cosine": "cosine", "ip": "product", "l2": "negated_distance"}
"""The scale of a live vector list as its source answers it, by the source's distance."""
SCALE_WORDS: Mapping[str, str] = {"product": "inner products", "negated_distance": "negated distances"}
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
    """What the scores of the source's live vector list are, in a sentence; empty if they are cosines as they come."""
    if distance == "cosine" or not lengths.count:
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


def left_alone(config: PipelineConfig) -> list[str]:
    """The parameters of a config that expect a cosine in the vector list, so that they leave a list on another scale alone."""
    raw = config.lists.vector.normalization == "none"
    threshold = config.threshold
    read: Sequence[tuple[str, bool]] = (
        (f"threshold.{threshold.mode}", raw and threshold.mode != "none" and "vector" in threshold.applies_to),
        ("fusion.score_blend", raw and bool(config.fusion.score_blend)),
        ("fusion.single_list", raw and config.fusion.single_list != "fuse"),
        ("assembly.min_vector_score", config.assembly.min_vector_score is not None),
        ("abstain.vector", config.abstain.vector is not None),
        ("lists.vector.scale", config.lists.vector.scale != "cosine"),
    )
    return [path for path, reads in read if reads]
