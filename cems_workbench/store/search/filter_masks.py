"""Filter masks: which rows of an index pass a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cems_workbench.store.filter import Filter

MAX_CACHED_MASKS = 16


class FilterMasks:
    """The cached masks of one index."""

    def __init__(self, filters: NDArray[np.int32], labels: Mapping[str, Sequence[str | None]]) -> None:
        """`filters`, shape (rows, 2), has each row's project and scope as positions in `labels["projects"]` and `labels["scopes"]`."""
        self._filters, self._labels = filters, labels
        self._cache: dict[Filter, NDArray[np.bool_]] = {}

    def mask(self, where: Filter) -> NDArray[np.bool_] | None:
        """The rows that pass, shape (rows,); None if all do."""
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
