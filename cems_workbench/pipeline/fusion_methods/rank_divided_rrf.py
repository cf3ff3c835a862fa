"""RRF whose weights divide the rank: Σ 1/(rank/weight + k − 1).

    base = 1 / (rank / weight + k - 1),   0 for weight 0

No weight lifts a hit above 1 / (k - 1), and a heavy list is flatter as well as higher: weight 3 makes a first place at k 2 0.75, not 1.5.
With weight 1 it is rrf at k - 1. The denominator is at least `LEAST_DENOMINATOR`.

Source: weighted RRF of Qdrant (k 2 by default); qdrant-client 1.20.0, hybrid/fusion.py, and qdrant-edge-py 0.9.0.
"""

from __future__ import annotations

import numpy as np

from cems_workbench.config.sections import FusionConfig
from cems_workbench.pipeline.fusion_methods import LEAST_DENOMINATOR, Contribution, FusionMethod, Hits
from cems_workbench.pipeline.table import Floats


def base(hits: Hits, weight: Floats, config: FusionConfig) -> Floats:
    """(H) 1 / (rank / weight + k - 1)."""
    counts = weight > 0
    divided = np.divide(hits.rank, weight, out=np.ones_like(weight), where=counts)
    share: Floats = np.where(counts, 1 / np.maximum(divided + config.k - 1, LEAST_DENOMINATOR), 0.0)
    return share


def explain(term: Contribution, config: FusionConfig) -> str:
    """ "1 / (3 / 0.5 + 60 − 1) = 0.0154" """
    return f"1 / ({term.rank} / {term.weight:g} + {config.k:g} − 1) = {term.base:.4f}"


FUSION_METHOD = FusionMethod("rank_divided_rrf", base, reads="ranks", parameters=("fusion.k",), explain=explain)
