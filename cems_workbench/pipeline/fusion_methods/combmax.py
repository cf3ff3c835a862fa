"""CombMAX: the largest weight·score.

    base = weight * score, of which the largest counts

Source: Fox & Shaw, Combination of multiple searches, TREC-2, 1994; the weights are added.
"""

from __future__ import annotations

from cems_workbench.pipeline.fusion_methods import FusionMethod
from cems_workbench.pipeline.fusion_methods.combsum import base

FUSION_METHOD = FusionMethod("combmax", base, combine="max")
