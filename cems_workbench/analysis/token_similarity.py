"""Token similarity: how strongly the tokens of a query match each token of a text: late interaction, seen from the text.

    strength(s) = max over query tokens t of idf(t) * max(0, cos(t, s)) / largest idf        0..1; for one token t alone: max(0, cos(t, s))

A query token matches the text token nearest to it; only these matches make the score (models/late_interaction.py).

Source: ColBERT's MaxSim (Khattab & Zaharia 2020) weighted by idf.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.late_interaction import TokenCosines


@dataclass(frozen=True, eq=False)
class TokenSimilarity:
    """Per text token (S): strength 0..1, the query token of that strength and their cosine; `met_by`: query tokens that matched it."""

    strength: NDArray[np.float64]
    nearest: NDArray[np.int64]
    cosine: NDArray[np.float64]
    met_by: tuple[tuple[int, ...], ...]


def token_similarity(cosines: TokenCosines, only: int | None = None) -> TokenSimilarity:
    """The heat of every query token together, or of the one at place `only`. Query and text have at least one token each."""
    warm = np.maximum(cosines.cosine, 0.0)
    if only is None:
        most = float(cosines.idf.max())
        weighted = warm * (cosines.idf / most if most > 0 else np.zeros(len(cosines.idf)))[:, None]
    else:
        weighted = np.where(np.arange(len(warm))[:, None] == only, warm, -1.0)
    nearest = weighted.argmax(axis=0)
    places = np.arange(weighted.shape[1])
    met = cosines.cosine.argmax(axis=1)
    asked = range(len(met)) if only is None else (only,)
    met_by = tuple(tuple(t for t in asked if met[t] == s) for s in places)
    return TokenSimilarity(
        np.clip(weighted[nearest, places], 0.0, 1.0), nearest, cosines.cosine[nearest, places], met_by
    )
