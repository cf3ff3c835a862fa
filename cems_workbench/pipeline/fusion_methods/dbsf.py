"""Distribution-based score fusion: Σ weight·(0.5 + (score − mean)/(6·sd)) of each list.

    base = weight * (score - (mean - 3 * sd)) / (6 * sd),   mean and sample standard deviation of the hits of the list
           weight * 0.5 where a list has one hit, or all of its scores are equal

A score three standard deviations above the mean counts 1, one as far below it 0; further ones are outside 0 to 1. It reads the scores as
they are normalised, so lists are best left raw.

Source: Mazzeschi, Distribution-based score fusion, 2023; qdrant-client 1.20.0, hybrid/fusion.py, which has no weights.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.config.sections import FusionConfig
from cems_workbench.pipeline.fusion_methods import Contribution, FusionMethod, Hits
from cems_workbench.pipeline.table import Floats


def base(hits: Hits, weight: Floats, config: FusionConfig) -> Floats:
    """(H) weight · place of the score in its list's distribution."""
    if not len(hits.slot):
        return weight
    _, of = np.unique(hits.slot, return_inverse=True)
    count = np.bincount(of)
    centred = hits.score - (np.bincount(of, weights=hits.score) / count)[of]
    variance = np.bincount(of, weights=centred**2) / np.maximum(count - 1, 1)
    lowest, highest = np.full(len(count), np.inf), np.full(len(count), -np.inf)
    np.minimum.at(lowest, of, hits.score)
    np.maximum.at(highest, of, hits.score)
    # Equal scores may have a mean that is off by one rounding, hence a variance above 0.
    spread = np.where(highest > lowest, 6 * np.sqrt(variance), 0.0)[of]
    weight *= 0.5 + np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)
    return weight


def explain(term: Contribution, config: FusionConfig) -> str:
    """ "0.5 × 0.6400 within mean ± 3 standard deviations = 0.3200" """
    place = term.base / term.weight if term.weight else 0
    return f"{term.weight:g} × {place:.4f} within mean ± 3 standard deviations = {term.base:.4f}"


FUSION_METHOD = FusionMethod("dbsf", base, linear=True, explain=explain)
