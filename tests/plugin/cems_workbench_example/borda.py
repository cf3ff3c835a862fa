"""Borda count: Σ weight·(size − rank + 1)/size, the size of a list being its number of candidates.

    base = weight * (size - rank + 1) / size

Source: Aslam & Montague, Models for metasearch, SIGIR 2001; the weights and the division by the size are added.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.config.sections import FusionConfig
from cems_workbench.pipeline.fusion_methods import FusionMethod, Hits
from cems_workbench.pipeline.table import Floats


def base(hits: Hits, weight: Floats, config: FusionConfig) -> Floats:
    """(H) weight · share of the list that ranks no better."""
    _, of_list, count = np.unique(hits.slot, return_inverse=True, return_counts=True)
    size = count[of_list]
    return weight * (size - hits.rank + 1) / size


FUSION_METHOD = FusionMethod("borda", base, reads="ranks", linear=True)
