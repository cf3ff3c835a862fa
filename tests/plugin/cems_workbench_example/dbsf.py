"""Distribution-based score fusion: Σ weight·score, the scores of each list scaled by mean ± 3 standard deviations.

    base = weight * (score - (mean - 3 * deviation)) / (6 * deviation),  the fraction clamped to 0..1

A list whose scores are all equal gives 0.5.

Source: Qdrant, "Hybrid queries", distribution-based score fusion (DBSF).
"""

from __future__ import annotations

import numpy as np

from cems_workbench.config.sections.ranking import FusionConfig
from cems_workbench.pipeline.fusion_methods import FusionMethod, Hits
from cems_workbench.pipeline.table import Floats


def base(hits: Hits, weight: Floats, config: FusionConfig) -> Floats:
    """(H) weight · scaled score."""
    _, of_list, count = np.unique(hits.slot, return_inverse=True, return_counts=True)
    distance = hits.score - (np.bincount(of_list, hits.score) / count)[of_list]
    variance = np.bincount(of_list, distance**2) / np.maximum(count - 1, 1)
    spread = 6 * np.sqrt(variance)[of_list]
    scaled = 0.5 + np.divide(distance, spread, out=np.zeros(len(distance)), where=spread > 1e-12)
    return weight * np.clip(scaled, 0, 1)


FUSION_METHOD = FusionMethod("dbsf", base, linear=True)
