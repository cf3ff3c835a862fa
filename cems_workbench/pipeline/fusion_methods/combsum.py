"""CombSUM: Σ weight·score.

    base = weight * score

Source: Fox & Shaw, Combination of multiple searches, TREC-2, 1994; the weights are added.
"""

from __future__ import annotations

from cems_workbench.config.sections import FusionConfig
from cems_workbench.pipeline.fusion_methods import FusionMethod, Hits
from cems_workbench.pipeline.table import Floats


def base(hits: Hits, weight: Floats, config: FusionConfig) -> Floats:
    """(H) weight · score."""
    weight *= hits.score
    return weight


FUSION_METHOD = FusionMethod("combsum", base, linear=True)
