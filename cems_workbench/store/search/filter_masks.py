"""Which rows of an index a filter lets pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cems_workbench.store.filter import Filter

MAX_CACHED_MASKS = 16


class FilterMasks:
    """The masks of one index, each computed once."""

    def __init__(self, filters: NDArray[np.int32], labels: Mapping[str, Sequence[str | None]]) -> None:
        """`filters`, shape (rows, 2), has project and scope of each row as places in the labels of `projects` and `scopes`."""
        self._filters, self._labels = filters, labels
        self._cache: dict[Filter, NDArray[np.bool_]] = {}

    def mask(self, where: Filter) -> NDArray[np.bool_] | None:
        """Which rows pass, shape (rows,); None when all do."""
        if where.trivial:
            return None
        mask = self._cache.get(where)
        if mask is None:
            if len(self._cache) >= MAX_CACHED_MASKS:
                self._cache.clear()
            mask = self._cache[where] = self._compute(where)
        return mask

    def _compute(self, where: Filter) -> NDArray[np.bool_]:
        mask = np.ones(len(self._filters), bool)
        wanted = [("projects", where.required_project), ("scopes", where.required_scope)]
        for column, (name, value) in enumerate(wanted):
            if value is not None:
                labels = self._labels[name]
                mask &= self._filters[:, column] == (labels.index(value) if value in labels else -1)
        return mask
