"""Qdrant Edge: a shard in a folder, asked through the methods of Qdrant's client that a source calls.

Edge is Qdrant's engine within the process; its requests are those of a server under other names. A shard has no collection, user or port,
and its folder is locked and written to by what opens it, so a source opens a copy.

Source: qdrant-edge-py 0.9.0, by running.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from qdrant_client import models

from cems_workbench.errors import InputError

CONFIG_FILE = "edge_config.json"
"""A file that every shard has."""
PACKAGE = "qdrant-edge-py"


def is_shard(folder: str) -> bool:
    """Whether a folder is a shard of Qdrant Edge."""
    return (Path(folder) / CONFIG_FILE).is_file()


class EdgeClient:
    """A shard with the methods of `QdrantClient` that reading needs; every argument for a collection is ignored."""

    def __init__(self, folder: str) -> None:
        """Open a shard that may be written to. Raises InputError if the package is missing."""
        try:
            import qdrant_edge
        except ImportError:
            raise InputError(f"a shard of Qdrant Edge needs the package {PACKAGE}: pip install {PACKAGE}") from None
        self._edge = qdrant_edge
        self._config = json.loads((Path(folder) / CONFIG_FILE).read_text("utf-8"))
        self._shard = qdrant_edge.EdgeShard.load(folder)

    def close(self) -> None:
        """Close the shard."""
        self._shard.close()

    def get_collection(self, name: str) -> SimpleNamespace:
        """What a source reads of a collection; what Edge does not name has the defaults of a server. Raises InputError
        for a configuration that is not known."""
        known = ("size", "distance", "multivector_config")
        vectors = {
            key: models.VectorParams(**{name: each[name] for name in known if name in each})
            for key, each in self._config.get("vectors", {}).items()
        }
        sparse = {
            key: models.SparseVectorParams(modifier=each.get("modifier"))
            for key, each in self._config.get("sparse_vectors", {}).items()
        }
        config = SimpleNamespace(
            params=models.CollectionParams(vectors=vectors or None, sparse_vectors=sparse or None),
            hnsw_config=models.HnswConfig(m=16, ef_construct=100, full_scan_threshold=10_000),
            quantization_config=None,
        )
        # A plain segment counts its vectors too, and scans them.
        return SimpleNamespace(config=config, indexed_vectors_count=0, payload_schema={})

    def count(self, name: str, count_filter: models.Filter | None = None, exact: bool = True) -> SimpleNamespace:
        """The number of points that pass."""
        request = self._edge.CountRequest(exact=exact, filter=self._filter(count_filter))
        return SimpleNamespace(count=self._shard.count(request))

    def scroll(
        self,
        name: str,
        scroll_filter: Any = None,
        limit: int = 10,
        offset: Any = None,
        with_payload: Any = True,
        with_vectors: Any = False,
    ) -> tuple[list[SimpleNamespace], Any]:
        """A page of points, and where the next one begins."""
        what: Any = {"with_payload": with_payload, "with_vector": with_vectors}
        request = self._edge.ScrollRequest(offset=offset, limit=limit, filter=self._filter(scroll_filter), **what)
        records, following = self._shard.scroll(request)
        return [_point(each) for each in records], following

    def retrieve(
        self, name: str, ids: Sequence[Any], with_payload: Any = True, with_vectors: Any = False
    ) -> list[SimpleNamespace]:
        """Points by id."""
        own = [each if isinstance(each, int) else UUID(each) for each in ids]
        records = self._shard.retrieve(own, with_payload, with_vectors)
        return [_point(each) for each in records]

    def query_points(
        self,
        name: str,
        query: Any = None,
        using: str | None = None,
        prefetch: Sequence[Any] = (),
        query_filter: models.Filter | None = None,
        search_params: Any = None,
        limit: int = 10,
        with_payload: Any = True,
    ) -> SimpleNamespace:
        """Points by a query, best first."""
        parts = [
            self._edge.Prefetch(
                limit=each.limit,
                query=self._query(each.query, each.using),
                filter=self._filter(each.filter),
                params=self._parameters(each.params),
            )
            for each in prefetch
        ]
        request = self._edge.QueryRequest(
            limit=limit,
            query=self._query(query, using),
            prefetches=parts,
            filter=self._filter(query_filter),
            params=self._parameters(search_params),
            with_payload=with_payload,
        )
        return SimpleNamespace(points=[_point(each) for each in self._shard.query(request)])

    def _query(self, query: Any, using: str | None) -> Any:
        if isinstance(query, models.FusionQuery):
            # The server's constant: positions count from 0, the first is worth 1/2.
            return self._edge.Fusion.Rrf(k=2) if query.fusion == models.Fusion.RRF else self._edge.Fusion.Dbsf()
        if isinstance(query, models.SparseVector):
            query = self._edge.SparseVector(indices=query.indices, values=query.values)
        elif hasattr(query, "text"):
            return self._edge.TextQuery(using or "", query.text)
        return self._edge.Query.Nearest(query, using=using)

    def _parameters(self, given: Any) -> Any:
        if given is None:
            return None
        return self._edge.SearchParams(
            hnsw_ef=given.hnsw_ef, exact=bool(given.exact), indexed_only=bool(given.indexed_only)
        )

    def _filter(self, given: Any) -> Any:
        if given is None:
            return None
        parts: dict[str, Any] = {
            name: [self._condition(each) for each in getattr(given, name) or ()] or None
            for name in ("must", "should", "must_not")
        }
        return self._edge.Filter(**parts)

    def _condition(self, given: Any) -> Any:
        if not hasattr(given, "key"):
            return self._filter(given)
        match = given.match
        of = self._edge.MatchAny(match.any) if hasattr(match, "any") else self._edge.MatchValue(match.value)
        return self._edge.FieldCondition(given.key, match=of)


def _point(found: Any) -> SimpleNamespace:
    score = getattr(found, "score", 0.0)
    return SimpleNamespace(id=found.id, payload=found.payload or {}, vector=found.vector, score=score)
