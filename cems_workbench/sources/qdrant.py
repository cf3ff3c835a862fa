"""Qdrant: a collection on a server, or in a directory that Qdrant's client wrote in its local mode.

    qdrant://HOST[:6333]/COLLECTION   qdrant+https://HOST/COLLECTION?vector=NAME   qdrant:/DIRECTORY/COLLECTION

`vector` chooses one of several vectors of a point, `user` the points of one user. The client locks and rewrites a directory that it opens,
so it is read from a copy. The directory holds pickled Python objects: open only your own. Without a server every search is exact.

Source: https://qdrant.tech/documentation/concepts/search/#search-api (hnsw_ef, exact, indexed_only)
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cems_workbench.errors import InputError, server_message
from cems_workbench.formats.base.memory_fields import SHARED_WORDS
from cems_workbench.formats.base.payload import Payload
from cems_workbench.platform.http_limits import HEADERS, ResponseError, connection_reason, event_hooks
from cems_workbench.sources.address import Address
from cems_workbench.sources.collection import ClientHit, ClientQuery, CollectionSource, Row
from cems_workbench.sources.requests import check_options
from cems_workbench.sources.server_or_directory import ServerOrDirectoryClient
from cems_workbench.sources.source import Distance, Setting, SourceError, SourceInfo, Trial

if TYPE_CHECKING:
    from qdrant_client import QdrantClient
    from qdrant_client.models import CollectionInfo, Filter, SearchParams, VectorParams

OPTIONS = ("vector", "user")
PORT = 6333
ID_PAGE_ROWS = 5_000
"""Points per request for ids."""
DISTANCES: Mapping[str, Distance] = {"Cosine": "cosine", "Euclid": "l2", "Dot": "ip"}
EF_CHOICES = (64, 128, 256, 512)
"""Values of hnsw_ef worth trying."""
SETTINGS = ("hnsw_ef", "indexed_only")


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> CollectionSource:
    """Open a collection. Raises InputError if it does not exist or a mapping does not fit, and SourceError."""
    check_options(address, OPTIONS)
    return CollectionSource(address, mapping, timeout, _Qdrant)


@dataclass(frozen=True, slots=True)
class _Collection:
    """A collection and one of its vectors: the name, empty if it has none, and parameters."""

    name: str
    vector: str
    parameters: VectorParams


def _vector(address: Address, found: CollectionInfo) -> tuple[str, VectorParams]:
    """The vector that the address chooses, or the only one. Raises InputError that lists the vectors."""
    vectors, asked = found.config.params.vectors, address.options.get("vector", "")
    if isinstance(vectors, dict):
        if asked not in vectors and (asked or len(vectors) != 1):
            which = f"no vector {asked}" if asked else f"{len(vectors)} vectors"
            raise InputError(
                f"{address.plain}: a point has {which}; add ?vector= with one of: {', '.join(sorted(vectors))}"
            )
        name = asked or next(iter(vectors))
        parameters = vectors[name]
    elif vectors is None or asked:
        what = (
            "only sparse vectors, which cannot be imported"
            if vectors is None
            else "one vector, which has no name: leave ?vector= out"
        )
        raise InputError(f"{address.plain}: a point has {what}")
    else:
        name, parameters = "", vectors
    if parameters.multivector_config is not None:
        raise InputError(f"{address.plain}: the vector {name} of a point is a multivector, which cannot be imported")
    if parameters.distance.value not in DISTANCES:
        raise InputError(
            f"{address.plain}: its vectors are compared by {parameters.distance.value}, which is none of {', '.join(DISTANCES)}"
        )
    return name, parameters


class _Qdrant(ServerOrDirectoryClient["QdrantClient", "_Collection"]):
    """A collection of Qdrant."""

    marker_file = "meta.json"

    def server(self, timeout: float) -> QdrantClient:
        from qdrant_client import QdrantClient

        address = self._address
        secure = address.scheme.endswith("https")
        port = address.port or (443 if secure else PORT)
        key = address.secret.get_secret_value() if address.secret else None
        with warnings.catch_warnings():
            # It warns about a key without TLS: the address chose http, on the user's machine or network.
            warnings.simplefilter("ignore", UserWarning)
            return QdrantClient(
                host=address.host,
                port=port,
                https=secure,
                api_key=key,
                # The client takes whole seconds.
                timeout=max(1, math.ceil(timeout)),
                check_compatibility=False,
                headers=HEADERS,
                event_hooks=event_hooks(),
            )

    def directory(self, path: str) -> QdrantClient:
        from qdrant_client import QdrantClient

        with warnings.catch_warnings():
            # It warns that local mode is slow with many points.
            warnings.simplefilter("ignore", UserWarning)
            return QdrantClient(path=path)

    def names(self) -> Sequence[str]:
        return [each.name for each in self._client.get_collections().collections]

    def collection(self, name: str) -> _Collection:
        return _Collection(name, *_vector(self._address, self._client.get_collection(name)))

    def reason(self, error: Exception) -> str | None:
        from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

        if isinstance(error, UnexpectedResponse):
            message = server_message(error.content.decode("utf-8", "replace")) or error.reason_phrase
            if error.status_code in (401, 403):
                return f"the key is refused or missing: set QDRANT_API_KEY ({message})"
            return f"HTTP {error.status_code}: {message}"
        cause = error.source if isinstance(error, ResponseHandlingException) else error
        if isinstance(cause, ResponseError):
            return str(cause)
        if (broken := connection_reason(cause)) is not None:
            return broken
        if isinstance(error, ResponseHandlingException) or isinstance(cause, json.JSONDecodeError):
            return f"not an answer of Qdrant: {cause}"
        if isinstance(error, AssertionError):  # of the client: a reply without a result
            return f"not an answer of Qdrant: {error}"
        if isinstance(error, (ApiException, ValueError, KeyError, RuntimeError, OSError)):
            return str(error) or type(error).__name__
        return None

    def describe(self) -> SourceInfo:
        found = self._client.get_collection(self._collection.name)
        parameters, graph = self._collection.parameters, found.config.hnsw_config
        own = parameters.hnsw_config
        m, ef, scanned = (
            getattr(own, name, None) or getattr(graph, name) for name in ("m", "ef_construct", "full_scan_threshold")
        )
        points = self._client.count(self._collection.name, count_filter=self._filter(), exact=True).count
        indexed = found.indexed_vectors_count or 0
        notes = []
        if not self._address.host:
            notes.append("a directory of Qdrant's local mode is read from a copy: connect again to see changes")
        elif indexed:
            notes.append(
                f"{indexed} vectors are in the index; the others are scanned, and left out of a search with indexed_only"
            )
        else:
            notes.append("no vector is indexed yet, so every search is exact")
        quantized = parameters.quantization_config or found.config.quantization_config
        if quantized is not None:
            notes.append(
                f"its vectors are quantised ({type(quantized).__name__}), so scores may differ from exact ones"
            )
        if found.config.params.sparse_vectors:
            notes.append(f"sparse vectors are not taken: {', '.join(sorted(found.config.params.sparse_vectors))}")
        if parameters.distance.value == "Cosine":
            notes.append("Qdrant keeps vectors of a cosine collection with length 1")
        return SourceInfo(
            kind="qdrant",
            engine=f"Qdrant {self._client.info().version}" if self._address.host else "Qdrant's local mode",
            memories=points,
            vectors=points,
            dimension=parameters.size,
            distance=DISTANCES[parameters.distance.value],
            index=f"HNSW (m {m}, ef_construct {ef}, full_scan_threshold {scanned} KB)" if indexed else None,
            settings=(Setting("hnsw_ef", str(ef), "nodes of the graph looked at", _others(ef)),) if indexed else (),
            notes=tuple(notes),
        )

    def sample(self, rows: int) -> Sequence[Row]:
        points, _ = self._client.scroll(
            self._collection.name, scroll_filter=self._filter(), limit=rows, with_payload=True, with_vectors=False
        )
        return [Row(str(point.id), point.payload or {}) for point in points]

    def list_rows(self, names: Sequence[str]) -> Iterator[Sequence[tuple[str, Payload]]]:
        offset: Any = None
        while True:
            points, offset = self._client.scroll(
                self._collection.name,
                scroll_filter=self._filter(),
                limit=ID_PAGE_ROWS,
                offset=offset,
                with_payload=list(names) or False,
                with_vectors=False,
            )
            yield [(str(point.id), point.payload or {}) for point in points]
            if offset is None:
                return

    def take(self, ids: Sequence[str]) -> Sequence[Row]:
        name = self._collection.vector
        # Qdrant's ids are numbers or UUIDs, and "7" is not 7.
        wanted = [int(each) if each.isdigit() else each for each in ids]
        points = self._client.retrieve(
            self._collection.name, wanted, with_payload=True, with_vectors=[name] if name else True
        )
        rows = []
        for point in points:
            given: Any = point.vector.get(name) if isinstance(point.vector, dict) else point.vector
            rows.append(
                Row(str(point.id), point.payload or {}, None, None if given is None else np.asarray(given, np.float32))
            )
        return rows

    def search(self, query: ClientQuery) -> Sequence[ClientHit]:
        if query.vector.size != self._collection.parameters.size:
            raise SourceError(
                f"{self._address.plain}: the query's vector has {query.vector.size} numbers, "
                f"those of the collection {self._collection.parameters.size}"
            )
        with warnings.catch_warnings():
            # It warns that local mode has no index for the parameters.
            warnings.simplefilter("ignore", UserWarning)
            found = self._client.query_points(
                self._collection.name,
                query=query.vector.tolist(),
                using=self._collection.vector or None,
                limit=query.rows,
                query_filter=self._filter(query),
                search_params=self._parameters(query.trial),
                with_payload=list(query.names) or False,
            )
        # Qdrant's Euclidean score is a distance: smaller is better.
        sign = -1.0 if self._collection.parameters.distance.value == "Euclid" else 1.0
        return [ClientHit(str(point.id), point.payload or {}, sign * point.score) for point in found.points]

    def _filter(self, query: ClientQuery | None = None) -> Filter | None:
        """The filter for the owner's points and the query's scope; None: all points."""
        from qdrant_client.models import FieldCondition, Filter, MatchAny, MatchValue

        must: list[Any] = []
        must_not: list[Any] = []
        if self.owner is not None:
            of_user = [FieldCondition(key=self.owner.field, match=MatchValue(value=each)) for each in self.owner.values]
            must.append(Filter(should=of_user))
        if query is not None and query.scope is not None:
            shared = FieldCondition(key=query.scope_field, match=MatchAny(any=list(SHARED_WORDS)))
            (must if query.scope == "shared" else must_not).append(shared)
        return Filter(must=must, must_not=must_not) if must or must_not else None

    def _parameters(self, trial: Trial) -> SearchParams | None:
        """Search parameters of a trial; None for none. Raises SourceError for an unknown setting."""
        from qdrant_client.models import SearchParams

        for name, value in trial.settings.items():
            if name not in SETTINGS:
                raise SourceError(
                    f"{self._address.plain}: {name} is no setting of a search; there are {', '.join(SETTINGS)}"
                )
            if name == "hnsw_ef" and not (value.isascii() and value.isdigit() and int(value) > 0):
                raise SourceError(f"{self._address.plain}: hnsw_ef must be a whole number from 1, found {value!r}")
            if name == "indexed_only" and value not in ("true", "false"):
                raise SourceError(f"{self._address.plain}: indexed_only must be true or false, found {value!r}")
        if not trial.settings and not trial.exact:
            return None
        ef = trial.settings.get("hnsw_ef")
        return SearchParams(
            hnsw_ef=int(ef) if ef else None,
            exact=trial.exact,
            indexed_only=trial.settings.get("indexed_only") == "true",
        )


def _others(present: int) -> tuple[str, ...]:
    return tuple(str(value) for value in EF_CHOICES if value != present)
