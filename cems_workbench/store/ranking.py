"""Top k of an array of scores, in the one order every search here promises."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def top_k(scores: NDArray[np.float32], k: int, above: float = -np.inf) -> NDArray[np.intp]:
    """Positions of the k highest scores greater than `above`, best first, equal scores by position; at most k.

    Rows are kept in the order of their ids, so ties by position are ties by id. Takes time linear in len(scores).
    """
    if k <= 0:
        return np.empty(0, np.intp)
    cut = np.partition(scores, len(scores) - k)[len(scores) - k] if len(scores) > k else above
    # All that tie with the k-th stay in until the stable sort has put the lower positions first.
    candidates = np.flatnonzero(scores >= cut if cut > above else scores > above)
    order = np.argsort(-scores[candidates], kind="stable")[:k]
    return candidates[order]
