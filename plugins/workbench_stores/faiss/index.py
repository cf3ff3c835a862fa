"""A FAISS index in a file: its vectors by label, and its own search.

    IndexFlat…, IndexIVF…, IndexHNSW…, also within IndexIDMap or IndexPreTransform

An index is read whole into memory, as every program that uses it does. Quantised indexes return the vectors that they can reconstruct,
which are near those that were added.

Source: faiss-cpu 1.15.1, recorded by running it; https://github.com/facebookresearch/faiss/wiki
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cems_workbench.sources.source import Distance, Setting, SourceError, Vector

Labels = NDArray[np.int64]
NPROBE, EF_SEARCH = "nprobe", "efSearch"


class FaissIndex:
    """An index that was read from a file."""

    def __init__(self, path: Path) -> None:
        """Raises RuntimeError for a file that is no index, and SourceError for one that cannot be read as a source."""
        self._index = faiss.read_index(str(path))
        if self._index.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2):
            raise SourceError(f"{path.name}: its metric {self._index.metric_type} is neither the inner product nor L2")

    @property
    def size(self) -> int:
        """Vectors in the index."""
        return int(self._index.ntotal)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._index.d)

    @property
    def distance(self) -> Distance:
        """How it compares."""
        return "ip" if self._index.metric_type == faiss.METRIC_INNER_PRODUCT else "l2"

    @cached_property
    def _inner(self) -> Any:
        """The index that has the vectors: without the wrapper that gives them labels."""
        index = faiss.downcast_index(self._index)
        return faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2) else index

    @cached_property
    def _innermost(self) -> Any:
        """The same behind a transformation of the vectors."""
        return (
            faiss.downcast_index(self._inner.index) if isinstance(self._inner, faiss.IndexPreTransform) else self._inner
        )

    @cached_property
    def labels(self) -> Labels:
        """The label of each vector, shape (size,)."""
        index = faiss.downcast_index(self._index)
        if isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2):
            return np.asarray(faiss.vector_to_array(index.id_map), np.int64)
        if self._is_ivf:
            # Its own lists have the labels; they are numbered in order unless the program gave others.
            lists = self._innermost.invlists
            parts = [
                faiss.rev_swig_ptr(lists.get_ids(i), lists.list_size(i)).copy()
                for i in range(lists.nlist)
                if lists.list_size(i)
            ]
            return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        return np.arange(self.size, dtype=np.int64)

    @cached_property
    def _positions(self) -> Mapping[int, int]:
        """By label the number that the inner index knows a vector by."""
        if self._inner is not self._index and self._has_labels:
            return {int(label): place for place, label in enumerate(self.labels)}
        return {int(label): int(label) for label in self.labels}

    @property
    def _has_labels(self) -> bool:
        return isinstance(faiss.downcast_index(self._index), faiss.IndexIDMap | faiss.IndexIDMap2)

    @property
    def _is_ivf(self) -> bool:
        return isinstance(self._innermost, faiss.IndexIVF)

    @property
    def _is_hnsw(self) -> bool:
        return isinstance(self._innermost, faiss.IndexHNSW)

    @property
    def exact(self) -> bool:
        """Whether every search compares every whole vector."""
        return isinstance(self._inner, faiss.IndexFlat)

    @property
    def line(self) -> str:
        """The index with its sizes: "IndexIVFFlat, 100 partitions"."""
        name = type(self._innermost).__name__
        if self._is_ivf:
            return f"{name}, {self._innermost.nlist} partitions"
        return f"{name}, {self._innermost.hnsw.nb_neighbors(1)} neighbours" if self._is_hnsw else name

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What one search may change."""
        if self._is_ivf:
            most = self._innermost.nlist
            tries = tuple(str(value) for value in (1, 8, 32, most) if value <= most)
            return (Setting(NPROBE, str(self._innermost.nprobe), "partitions looked at", tries),)
        if self._is_hnsw:
            tries = tuple(str(value) for value in (64, 256) if value < self.size)
            own = str(self._innermost.hnsw.efSearch)
            return (Setting(EF_SEARCH, own, "nodes of the graph looked at", (*tries, *self.widest().values())),)
        return ()

    def vectors(self, labels: Sequence[int]) -> list[Vector | None]:
        """The vectors of these labels; None for one that is not there."""
        found = [self._positions.get(label) for label in labels]
        known = np.array([place for place in found if place is not None], np.int64)
        if self._is_ivf:
            # An array of places wants labels without gaps, which a deletion leaves.
            self._innermost.set_direct_map_type(faiss.DirectMap.Hashtable)
        rows = iter(self._inner.reconstruct_batch(known) if len(known) else ())
        return [None if place is None else np.array(next(rows), np.float32) for place in found]

    def search(
        self, vector: Vector, rows: int, among: Labels | None, settings: Mapping[str, str]
    ) -> list[tuple[int, float]]:
        """(label, number of the engine) of the nearest vectors, best first, only `among` these labels if given.

        The number is the inner product, or the squared L2 distance. Raises SourceError for an unknown setting.
        """
        for name in settings:
            if name not in {each.name for each in self.settings}:
                known = ", ".join(each.name for each in self.settings) or "none"
                raise SourceError(f"{name} is no setting of this index; it has {known}")
        most = self.size if among is None else len(among)
        return self._nearest(vector, min(rows, most), among, settings) if min(rows, most) else []

    def widest(self) -> dict[str, str]:
        """The settings by which a search looks at every vector; none of an index whose searches do."""
        if self._is_ivf:
            return {NPROBE: str(self._innermost.nlist)}
        return {EF_SEARCH: str(max(self.size, 1))} if self._is_hnsw else {}

    def _nearest(
        self, vector: Vector, rows: int, among: Labels | None, settings: Mapping[str, str]
    ) -> list[tuple[int, float]]:
        chosen: dict[str, Any] = {} if among is None else {"sel": faiss.IDSelectorBatch(among)}
        if self._is_ivf:
            params = faiss.SearchParametersIVF(nprobe=int(settings.get(NPROBE, self._innermost.nprobe)), **chosen)
        elif self._is_hnsw:
            ef = int(settings.get(EF_SEARCH, self._innermost.hnsw.efSearch))
            params = faiss.SearchParametersHNSW(efSearch=ef, **chosen)
        else:
            params = faiss.SearchParameters(**chosen)
        if self._innermost is not self._inner:
            params = faiss.SearchParametersPreTransform(index_params=params)
        numbers, labels = self._index.search(np.asarray(vector, np.float32).reshape(1, -1), rows, params=params)
        return [(int(label), float(number)) for label, number in zip(labels[0], numbers[0], strict=True) if label != -1]
