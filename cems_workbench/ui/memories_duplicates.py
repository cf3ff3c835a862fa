"""Memories that say almost the same: pairs whose vectors are close, found in blocks of a matrix product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.protocol import Float32
from cems_workbench.records import Memory
from cems_workbench.ui.memories_terms import COSINE

BLOCK = 512


@dataclass(frozen=True)
class NearPairs:
    """The closest pairs of distinct memories as (id, id, cosine), closest first, and how many reach the threshold."""

    pairs: tuple[tuple[str, str, float], ...]
    total: int


def near_pairs(ids: Sequence[str], vectors: Float32, contents: Sequence[str], threshold: float, most: int) -> NearPairs:
    """Pairs with cosine ≥ `threshold`, at most `most` of them, ties by the order of `ids`.

    `vectors` are unit vectors, shape (len(ids), dimension). Pairs of equal content are left out: they are exact
    duplicates, which are listed apart.
    """
    _, same = np.unique(np.asarray(contents, object), return_inverse=True)
    total = 0
    best = np.empty((0, 3))
    for start in range(0, len(ids), BLOCK):
        left, right, cosines = _block(vectors, np.asarray(same).reshape(-1), start, threshold)
        total += len(cosines)
        best = np.vstack([best, np.column_stack([left, right, cosines])])
        best = best[np.lexsort((best[:, 1], best[:, 0], -best[:, 2]))][:most]
    return NearPairs(tuple((ids[int(a)], ids[int(b)], float(cosine)) for a, b, cosine in best), total)


def _block(
    vectors: Float32, same: NDArray[np.intp], start: int, threshold: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], Float32]:
    """The pairs (i, j > i) of BLOCK rows from `start` with the rows from there on."""
    rows = vectors[start : start + BLOCK]
    cosines = np.minimum(rows @ vectors[start:].T, 1.0)
    cosines[same[start : start + BLOCK, None] == same[None, start:]] = -1.0
    left, right = np.nonzero(cosines >= threshold)
    later = right > left
    left, right = left[later], right[later]
    return left + start, right + start, cosines[left, right]


def pairs_html(pairs: Sequence[tuple[str, str, float]], memories: Mapping[str, Memory]) -> str:
    """The pairs side by side with their cosine; texts are escaped."""
    rows = []
    for first, second, cosine in pairs:
        sides = "".join(_side(memories[name]) for name in (first, second))
        rows.append(
            f'<div class="wb-mem-pair"><div class="wb-mem-cosine" title="{COSINE}">{cosine:.3f}</div>{sides}</div>'
        )
    return f'<div class="wb-mem-pairs">{"".join(rows)}</div>'


def _side(memory: Memory) -> str:
    created = memory.created_at.date().isoformat() if memory.created_at else None
    facts = "".join(f"<span>{escape(fact)}</span>" for fact in (memory.category, memory.project, created) if fact)
    title = f"<b>{escape(memory.title)}</b>\n" if memory.title else ""
    return (
        f'<div><div class="wb-facts"><code>{escape(memory.id)}</code>{facts}</div>'
        f'<div class="wb-text wb-mem-scroll">{title}{escape(memory.content)}</div></div>'
    )
