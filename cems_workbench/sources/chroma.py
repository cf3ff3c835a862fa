"""Chroma: a collection on a server, or in a directory that Chroma wrote.

    chroma://HOST[:8000]/COLLECTION   chroma+https://HOST/COLLECTION?tenant=T&database=D   chroma:/DIRECTORY/COLLECTION?user=ID&vectors=none

The key is sent as `x-chroma-token` and as a Bearer token; a user before the @ selects basic authentication. Chroma's client migrates and
rewrites what it opens, so a directory is read from a copy. The settings of the HNSW (or SPANN) index belong to the collection: Chroma has
neither an exact search nor an `ef_search` for one query.

Source: https://docs.trychroma.com/docs/collections/configure
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cems_workbench.formats.base.memory_fields import SHARED_WORDS
from cems_workbench.formats.base.payload import Payload
from cems_workbench.platform.http_limits import connection_reason
from cems_workbench.sources.address import Address
from cems_workbench.sources.collection import SCORES, VECTORS, ClientHit, ClientQuery, CollectionSource, Row
from cems_workbench.sources.connect import check_options
from cems_workbench.sources.server_or_directory import ServerOrDirectoryClient
from cems_workbench.sources.source import Distance, Setting, SourceError, SourceInfo

if TYPE_CHECKING:
    from chromadb.api.client import Client
    from chromadb.api.models.Collection import Collection

OPTIONS = ("tenant", "database", "user", VECTORS)
MARKER = "chroma.sqlite3"
"""A file that every directory of Chroma has."""
PORT = 8000
ID_PAGE_ROWS = 50_000
"""Rows per request for ids."""
FIELD_PAGE_ROWS = 1_000
"""Rows per request for metadata."""
DISTANCES: Mapping[str, Distance] = {"cosine": "cosine", "l2": "l2", "ip": "ip"}
DEFAULT_MODEL, DEFAULT_DIMENSION = "all-MiniLM-L6-v2 (Chroma's default)", 384
"""Of a collection that was made without an embedding function."""
MODEL_FIELDS = ("model_name", "model", "model_id", "embedding_model", "embedder", "deployment_id")


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> CollectionSource:
    """Open a collection. Raises InputError if it does not exist or a mapping does not fit, and SourceError."""
    check_options(address, OPTIONS)
    return CollectionSource(address, mapping, timeout, _Chroma)


def _headers(address: Address) -> dict[str, str]:
    if address.secret is None:
        return {}
    secret = address.secret.get_secret_value()
    if address.user:
        return {"Authorization": "Basic " + base64.b64encode(f"{address.user}:{secret}".encode()).decode()}
    # Servers take the key in either header; which one is their setting.
    return {"x-chroma-token": secret, "Authorization": f"Bearer {secret}"}


class _Chroma(ServerOrDirectoryClient["Client", "Collection"]):
    marker_file = MARKER

    def server(self, timeout: float) -> Client:
        from cems_workbench.platform.http_limits import chroma_client

        address = self._address
        secure = address.scheme.endswith("https")
        port = address.port or (443 if secure else PORT)
        where = {name: address.options[name] for name in ("tenant", "database") if name in address.options}
        return chroma_client(address.host, port, secure, _headers(address), timeout, **where)

    def directory(self, path: str) -> Client:
        import chromadb
        from chromadb.config import Settings

        return cast("Client", chromadb.PersistentClient(path, Settings(anonymized_telemetry=False)))

    def names(self) -> Sequence[str]:
        return [each.name for each in self._client.list_collections()]

    def collection(self, name: str) -> Collection:
        return self._client.get_collection(name, embedding_function=None)

    def reason(self, error: Exception) -> str | None:
        from chromadb.errors import ChromaError

        # Chroma's client rewrites some connection errors as ValueError.
        broken = connection_reason(error.__context__) or connection_reason(error)
        if broken is not None:
            return broken
        message = str(error) or type(error).__name__
        if any(word in message.lower() for word in ("not authenticated", "unauthorized", "forbidden")):
            return f"the key is refused or missing: set CHROMA_API_KEY ({message})"
        if "Error getting embedding" in message or "Error finding id" in message:
            return (
                f"the files of its vectors are damaged; import --re-embed (?{VECTORS}=none) takes its texts ({message})"
            )
        # Chroma raises plain exceptions for replies that it does not understand.
        if isinstance(error, (ChromaError, ValueError, KeyError, OSError)) or type(error) is Exception:
            return message
        return None

    def describe(self) -> SourceInfo:
        collection = self._collection
        rows = collection.count() if self.owner is None else len(collection.get(where=self._where(), include=[])["ids"])
        configuration = _configuration(collection)
        labels = collection.metadata or {}
        graph, clusters = configuration.get("hnsw") or {}, configuration.get("spann") or {}
        space = self._space()
        if space not in DISTANCES:
            raise SourceError(f"{self._address.plain}: its distance {space} is not supported")
        kind, parameters = ("HNSW", graph) if graph or not clusters else ("SPANN", clusters)
        shown = ", ".join(
            f"{name} {value}" for name, value in parameters.items() if name != "space" and value is not None
        )
        names = ("ef_search",) if kind == "HNSW" else ("search_nprobe", "ef_search")
        settings = [
            Setting(f"{kind.lower()}.{name}", str(parameters[name]), _UNITS[name])
            for name in names
            if parameters.get(name)
        ]
        notes = []
        if settings:
            change = f'{{"{kind.lower()}": {{"{names[0]}": N}}}}'
            notes.append(
                f"{settings[0].name} is set for the whole collection: collection.modify(configuration={change})"
            )
        if not self._address.host:
            notes.append(
                "Chroma writes to a directory that it opens, so a copy of it is read: connect again to see changes"
            )
        dimension = self._dimension() if rows and self.with_vectors else None
        model = _model(configuration, labels)
        if model == DEFAULT_MODEL and dimension not in (None, DEFAULT_DIMENSION):
            # A library that sends vectors itself leaves the function as it is.
            notes.append(
                f"the collection names Chroma's default embedding function, which makes {DEFAULT_DIMENSION} numbers; these vectors "
                f"have {dimension:,}, so another model made them"
            )
            model = None
        return SourceInfo(
            kind="chroma",
            engine=f"Chroma {self._client.get_version()}"
            if self._address.host
            else f"Chroma directory, read by Chroma {metadata.version('chromadb')}",
            memories=rows,
            vectors=rows,
            dimension=dimension,
            distance=DISTANCES[space],
            index=f"{kind} ({shown})" if shown else kind,
            model=model,
            settings=tuple(settings),
            missing=(
                "Chroma has no exact search and no settings for one search: the exact list is computed here",
                "Chroma outside its cloud refuses sparse vectors and its fused search: the vector list is the only live one",
            ),
            notes=tuple(notes),
        )

    def sample(self, rows: int) -> Sequence[Row]:
        return self._rows(self._collection.get(where=self._where(), limit=rows, include=["documents", "metadatas"]))

    def list_rows(self, names: Sequence[str]) -> Iterator[Sequence[tuple[str, Payload]]]:
        size = FIELD_PAGE_ROWS if names else ID_PAGE_ROWS
        # Rows added or deleted meanwhile shift the pages, so a row may come twice.
        seen: set[str] = set()
        # Not by count: rows may be added meanwhile. A page that is not full is the last.
        for offset in range(0, 2**62, size):
            found = self._collection.get(
                where=self._where(), limit=size, offset=offset, include=["metadatas"] if names else []
            )
            rows: Sequence[Payload | None] = found["metadatas"] or [None] * len(found["ids"])
            fresh = [
                (each, payload or {}) for each, payload in zip(found["ids"], rows, strict=True) if each not in seen
            ]
            seen.update(found["ids"])
            yield fresh
            if len(found["ids"]) < size:
                return

    def take(self, ids: Sequence[str]) -> Sequence[Row]:
        parts = ["documents", "metadatas", *(["embeddings"] if self.with_vectors else [])]
        return self._rows(self._collection.get(ids=list(ids), include=cast(Any, parts)))

    def search(self, query: ClientQuery) -> Sequence[ClientHit]:
        if query.trial.exact:
            raise SourceError(f"{self._address.plain}: Chroma has no exact search; the exact list is computed here")
        if query.trial.settings:
            raise SourceError(
                f"{self._address.plain}: {', '.join(query.trial.settings)} cannot be set for one search, only for the whole collection"
            )
        scope = None
        if query.scope is not None:
            scope = {query.scope_field: {"$in" if query.scope == "shared" else "$nin": list(SHARED_WORDS)}}
        found = self._collection.query(
            query_embeddings=cast(Any, query.vector.reshape(1, -1)),
            n_results=query.rows,
            where=self._where(scope),
            include=["distances", "metadatas"] if query.names else ["distances"],
        )
        ids, distances = found["ids"][0], cast(Any, found["distances"])[0]
        payloads: Sequence[Payload | None] = found["metadatas"][0] if found["metadatas"] else [None] * len(ids)
        score = SCORES[DISTANCES[self._space()]]
        return [
            ClientHit(each, payload or {}, score(d)) for each, payload, d in zip(ids, payloads, distances, strict=True)
        ]

    def _where(self, further: Mapping[str, Any] | None = None) -> Any:
        """Chroma's filter for the owner's rows and a further condition; None: all rows."""
        conditions: list[Mapping[str, Any]] = [] if further is None else [further]
        if self.owner is not None:
            values = [{self.owner.field: {"$eq": value}} for value in self.owner.values]
            conditions.append({"$or": values} if len(values) > 1 else values[0])
        return {"$and": conditions} if len(conditions) > 1 else conditions[0] if conditions else None

    def _space(self) -> str:
        configuration = _configuration(self._collection)
        parameters = configuration.get("hnsw") or configuration.get("spann") or {}
        return str(parameters.get("space") or (self._collection.metadata or {}).get("hnsw:space") or "l2")

    def _dimension(self) -> int | None:
        first = self._collection.get(limit=1, include=["embeddings"])["embeddings"]
        return None if first is None or not len(first) else len(first[0])

    @staticmethod
    def _rows(found: Any) -> list[Row]:
        ids = found["ids"]
        nothing = [None] * len(ids)
        texts, payloads = found["documents"] or nothing, found["metadatas"] or nothing
        vectors = nothing if found["embeddings"] is None else found["embeddings"]
        # Chroma's keys are in another order at each call (findings/chroma_metadata_keys_in_any_order.sh); notes name them in one.
        return [
            Row(
                each,
                dict(sorted((payload or {}).items())),
                text,
                None if vector is None else np.asarray(vector, np.float32),
            )
            for each, text, payload, vector in zip(ids, texts, payloads, vectors, strict=True)
        ]


_UNITS = {"ef_search": "nodes of the graph looked at", "search_nprobe": "clusters looked at"}


def _configuration(collection: Collection) -> dict[str, Any]:
    found = collection.configuration_json
    return dict(found) if isinstance(found, Mapping) else {}


def _model(configuration: Mapping[str, Any], labels: Mapping[str, Any]) -> str | None:
    function = configuration.get("embedding_function") or {}
    name, config = function.get("name"), function.get("config") or {}
    model = next((str(place[field]) for place in (config, labels) for field in MODEL_FIELDS if place.get(field)), None)
    if name == "default":
        return DEFAULT_MODEL
    return f"{model} ({name})" if model and name else model or name
