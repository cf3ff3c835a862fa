"""Qdrant: a collection on a server, or in a directory that Qdrant's client wrote in its local mode.

    qdrant://HOST[:6333]/COLLECTION   qdrant+https://HOST/COLLECTION?vector=NAME   qdrant:/DIRECTORY/COLLECTION   qdrant:/SHARD

A directory is one of the client's local mode, or a shard of Qdrant Edge, Qdrant's engine within the process (qdrant-edge-py 0.9.0, run),
which has no collection, user or port and is asked through the same methods. `vector` chooses one of several vectors of a point, `user`
the points of one user. The client locks and rewrites a directory that it opens, so it is read from
a copy. The directory holds pickled Python objects: open only your own. Without a server every search is exact.

Sparse vectors are the live list `sparse` if they are BM25 as fastembed makes it (below): a sample of them has to be reproduced from
the texts, because a query needs a vector of the same encoder. Dense and sparse list fused by Qdrant itself are `source_hybrid`, asked as
langchain-qdrant asks: both prefetched to the rows that are wanted. Options:

    sparse=NAME                   one of several sparse vectors
    sparse_query=one|document     weight of a query's words (LangChain: one; mem0: document)
    fusion=rrf|dbsf               rrf: Σ 1 / (2 + rank from 0); dbsf: scores within three standard deviations, summed
    prefetch=N                    rows of each list that are fused; default: as many as are wanted of the fused list
    text_index=FIELD              Qdrant's own BM25 over the text index of a field of the payload, instead of sparse vectors; the default
                                  where a collection has no sparse vectors and one such index (a server says so, local mode does not)

Source: https://qdrant.tech/documentation/concepts/search/#search-api (hnsw_ef, exact, indexed_only); langchain-qdrant 1.1.0
(similarity_search, HYBRID); mem0 2.2.1 (keyword_search).

Sparse vectors of fastembed's model Qdrant/bm25:

    text -> words in lower case -> without stop words and words of more than 40 letters -> stems -> numbers |murmur3(stem)|
    weight of a stored word   f (k1 + 1) / (f + k1 (1 - b + b L / 256)),   k1 1.2, b 0.75; f times in a text of L words
    weight of a query's word  1, however often it occurs (query_embed: LangChain), or that of a stored one (embed: mem0)

The rarity of a word is not in the vectors: the collection has it multiplied in (modifier idf), or has not.

Source: fastembed 0.9.1, fastembed/sparse/bm25.py, compared by running (tests/recordings/fastembed_bm25.json).
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast
from uuid import UUID

import mmh3
import numpy as np
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from cems_workbench.errors import InputError, server_message
from cems_workbench.formats.base.memory_fields import SHARED_WORDS
from cems_workbench.formats.base.payload import Payload
from cems_workbench.platform.http_limits import HEADERS, ResponseError, connection_reason, event_hooks
from cems_workbench.platform.sparse_terms import SparseAnalysis
from cems_workbench.sources.address import Address
from cems_workbench.sources.collection import ClientHit, ClientQuery, CollectionSource, Row
from cems_workbench.sources.connect import check_options
from cems_workbench.sources.server_or_directory import ServerOrDirectoryClient
from cems_workbench.sources.source import Distance, ListName, Setting, SourceError, SourceInfo, Trial

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


QueryWeight = Literal["one", "document"]
K1, B, MEAN_LENGTH, MAX_WORD_LENGTH = 1.2, 0.75, 256.0, 40
CLOSE = 1e-4
"""Relative difference of two weights that count as equal: engines keep them in single precision or less."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """How many of the stored vectors are those of their texts: with the same words, and with the same weights too."""

    compared: int
    words: int
    weights: int

    @property
    def known(self) -> bool:
        """Whether every stored vector has the words of its text, so that a query's vector can be made."""
        return 0 < self.compared == self.words


@cache
def _analysis() -> SparseAnalysis:
    from bm25s.stopwords import STOPWORDS_EN_PLUS  # NLTK's, as fastembed's file english.txt

    return SparseAnalysis("words", "english", frozenset(STOPWORDS_EN_PLUS), max_length=MAX_WORD_LENGTH)


def document_vector(text: str) -> dict[int, float]:
    """The weights of a text's words by number; empty if no word is left."""
    terms = _analysis().terms(text)
    norm = K1 * (1 - B + B * len(terms) / MEAN_LENGTH)
    # The number of a term in a vector: the absolute value of its signed 32-bit murmur3 hash
    return {abs(mmh3.hash(term)): count * (K1 + 1) / (count + norm) for term, count in Counter(terms).items()}


def query_vector(text: str, weight: QueryWeight) -> dict[int, float]:
    """The weights of a query's words by number; empty if no word is left."""
    found = document_vector(text)
    return found if weight == "document" else dict.fromkeys(found, 1.0)


def reproduced(stored: Iterable[tuple[str, Mapping[int, float]]]) -> Reproduction:
    """Compare stored vectors with those of their texts; a text of which no word is left is not compared."""
    compared = words = weights = 0
    for text, vector in stored:
        own = document_vector(text)
        if not own:
            continue
        compared += 1
        if own.keys() == vector.keys():
            words += 1
            weights += all(abs(vector[number] - value) <= CLOSE * value for number, value in own.items())
    return Reproduction(compared, words, weights)


OPTIONS = ("vector", "user", "sparse", "sparse_query", "fusion", "prefetch", "text_index")
CHOICES: Mapping[str, tuple[str, ...]] = {"sparse_query": ("one", "document"), "fusion": ("rrf", "dbsf")}
"""Options that have one of a few values; the first is the default."""
SAMPLED_VECTORS = 20
"""Sparse vectors that are compared with their texts."""
PORT = 6333
ID_PAGE_ROWS = 5_000
"""Points per request for ids."""
DISTANCES: Mapping[str, Distance] = {"Cosine": "cosine", "Euclid": "l2", "Dot": "ip"}
EF_CHOICES = (64, 128, 256, 512)
"""Values of hnsw_ef worth trying."""
SETTINGS = ("hnsw_ef", "indexed_only")
MAX_PREFETCH = 10_000


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> CollectionSource:
    """Open a collection. Raises InputError if it does not exist or a mapping does not fit, and SourceError."""
    check_options(address, OPTIONS)
    for name, allowed in CHOICES.items():
        if address.options.get(name, allowed[0]) not in allowed:
            raise InputError(f"{address.plain}: {name} is {address.options[name]}; allowed: {', '.join(allowed)}")
    prefetch = address.options.get("prefetch", "1")
    if not (prefetch.isascii() and prefetch.isdigit() and 1 <= int(prefetch) <= MAX_PREFETCH):
        raise InputError(f"{address.plain}: prefetch is {prefetch}; allowed: a whole number from 1 to {MAX_PREFETCH:,}")
    edge = not address.host and is_shard(address.path)
    return CollectionSource(address, mapping, timeout, _Shard if edge else _Qdrant)


@dataclass(frozen=True, slots=True)
class _Collection:
    """A collection and one of its vectors: the name, empty if it has none, and parameters."""

    name: str
    vector: str
    parameters: models.VectorParams
    sparse: str = ""
    """The name of the sparse vector; empty if it has none."""
    idf: bool = False
    """Whether the rarity of a word is multiplied in by Qdrant."""
    text: str = ""
    """The field of the payload whose text index ranks by BM25, instead of sparse vectors; empty without one."""


def _vector(address: Address, found: models.CollectionInfo) -> tuple[str, models.VectorParams]:
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
    elif vectors is None:
        raise InputError(f"{address.plain}: a point has only sparse vectors, which cannot be imported")
    elif asked:
        raise InputError(f"{address.plain}: a point has one vector, which has no name: leave ?vector= out")
    else:
        name, parameters = "", vectors
    if parameters.multivector_config is not None:
        raise InputError(f"{address.plain}: the vector {name} of a point is a multivector, which cannot be imported")
    if (distance := parameters.distance.value) not in DISTANCES:
        known = ", ".join(DISTANCES)
        raise InputError(f"{address.plain}: its vectors are compared by {distance}, which is none of {known}")
    return name, parameters


def _sparse(address: Address, found: models.CollectionInfo) -> tuple[str, bool]:
    """The sparse vector that the address chooses, or the only one, and whether it has idf; an empty name without one.
    Raises InputError that lists the sparse vectors."""
    vectors, asked = found.config.params.sparse_vectors or {}, address.options.get("sparse", "")
    if asked and asked not in vectors:
        named = f"there are: {', '.join(sorted(vectors))}" if vectors else "it has none"
        raise InputError(f"{address.plain}: a point has no sparse vector {asked}; {named}")
    if not asked and len(vectors) != 1:
        return "", False
    name = asked or next(iter(vectors))
    return name, vectors[name].modifier == models.Modifier.IDF


def _text_index(address: Address, found: models.CollectionInfo) -> str:
    """The field whose text index the address names, or without sparse vectors the only one that ranks; empty without one."""
    if asked := address.options.get("text_index", ""):
        if "sparse" in address.options:
            raise InputError(f"{address.plain}: text_index and sparse are two lists by words; name one of them")
        return asked
    schemas = found.payload_schema.items()
    ranked = [name for name, schema in schemas if getattr(schema.params, "scoring", None) is not None]
    return ranked[0] if len(ranked) == 1 and not found.config.params.sparse_vectors else ""


class _Qdrant(ServerOrDirectoryClient[QdrantClient, "_Collection"]):
    marker_file = "meta.json"

    def server(self, timeout: float) -> QdrantClient:
        address = self._address
        secure = address.scheme.endswith("https")
        port = address.port or (443 if secure else PORT)
        key = address.secret.get_secret_value() if address.secret else None
        # It warns about a key without TLS: the address chose http, on the user's machine or network.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
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
        # It warns that local mode is slow with many points.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return QdrantClient(path=path)

    def names(self) -> Sequence[str]:
        return [each.name for each in self._client.get_collections().collections]

    def collection(self, name: str) -> _Collection:
        found = self._client.get_collection(name)
        text = _text_index(self._address, found)
        if text:
            # Refused here, in one line, if there is no such index.
            self._client.query_points(name, query=_text_query("a"), using=text, limit=1, with_payload=False)
        return _Collection(name, *_vector(self._address, found), *_sparse(self._address, found), text)

    def reason(self, error: Exception) -> str | None:
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
        names = ("m", "ef_construct", "full_scan_threshold")
        m, ef, scanned = (getattr(own, name, None) or getattr(graph, name) for name in names)
        points = self._client.count(self._collection.name, count_filter=self._filter(), exact=True).count
        indexed = found.indexed_vectors_count or 0
        notes = []
        if not self._address.host:
            notes.append(f"a directory of {self._product()} is read from a copy: connect again to see changes")
        elif indexed:
            notes.append(
                f"{indexed} vectors are in the index; the others are scanned, and left out of a search with indexed_only"
            )
        else:
            notes.append("no vector is indexed yet, so every search is exact")
        quantized = parameters.quantization_config or found.config.quantization_config
        if quantized is not None:
            kind = type(quantized).__name__
            notes.append(f"its vectors are quantised ({kind}), so scores may differ from exact ones")
        notes += self._sparse_notes(found)
        tries = tuple(str(value) for value in EF_CHOICES if value != ef)
        if parameters.distance.value == "Cosine":
            notes.append("Qdrant keeps vectors of a cosine collection with length 1")
        return SourceInfo(
            kind="qdrant",
            engine=self._product(),
            memories=points,
            vectors=points,
            dimension=parameters.size,
            distance=DISTANCES[parameters.distance.value],
            index=f"HNSW (m {m}, ef_construct {ef}, full_scan_threshold {scanned} KB)" if indexed else None,
            lists=self.lists(),
            settings=(Setting("hnsw_ef", str(ef), "nodes of the graph looked at", tries),) if indexed else (),
            notes=tuple(notes),
        )

    @property
    def by_words(self) -> bool:  # type: ignore[override]
        """Whether points have sparse vectors of their texts."""
        return bool(self._collection.sparse) and self._compared[0].compared > 0

    def _product(self) -> str:
        return f"Qdrant {self._client.info().version}" if self._address.host else "Qdrant's local mode"

    def lists(self) -> tuple[ListName, ...]:
        """The vector list; with sparse vectors that can be made for a query also those, and both fused by Qdrant."""
        by_words = self._collection.text or self._encoder is not None
        return ("vector", "sparse", "source_hybrid") if by_words else ("vector",)

    @cached_property
    def _compared(self) -> tuple[Reproduction, bool]:
        """How many of the first sparse vectors are those of their texts, and whether these are the lemmas that mem0 keeps."""
        name = self._collection.sparse
        points, _ = self._page(SAMPLED_VECTORS, with_vectors=[name])
        texts, lemmas = [], []
        for point in points:
            stored: Any = point.vector.get(name) if isinstance(point.vector, dict) else None
            payload = point.payload or {}
            text = self.text_of(Row(str(point.id), payload))
            if stored is None or text is None:
                continue
            vector = dict(zip(stored.indices, stored.values, strict=True))
            texts.append((text, vector))
            lemma = payload.get("text_lemmatized")
            lemmas.append((lemma if isinstance(lemma, str) and lemma else text, vector))
        found = reproduced(texts)
        return (found, False) if found.known or not lemmas else (reproduced(lemmas), True)

    @cached_property
    def _encoder(self) -> QueryWeight | None:
        """How the words of a query are weighted; None if no vector of a query can be made that fits the stored ones."""
        if not self._collection.sparse:
            return None
        found, lemmas = self._compared
        # The lemmas of a query are made by a model, which a source has not.
        if not found.known or lemmas:
            return None
        return self._query_weight if self._query_weight == "one" or found.weights == found.compared else None

    @property
    def _query_weight(self) -> QueryWeight:
        # mem0 embeds a query as it embeds a text; its sparse vectors are called bm25.
        usual: QueryWeight = "document" if self._collection.sparse == "bm25" else "one"
        return cast(QueryWeight, self._address.options.get("sparse_query", usual))

    def _sparse_notes(self, found: models.CollectionInfo) -> list[str]:
        """The facts about the sparse vectors or the text index, with the consequence."""
        if text := self._collection.text:
            return [
                f"the list sparse is Qdrant's BM25 over the text index of {text}",
                self._fused_note(f"the index of {text}"),
            ]
        names = sorted(found.config.params.sparse_vectors or {})
        if not names:
            return []
        name = self._collection.sparse
        if not name:
            return [f"{len(names)} sparse vectors: add ?sparse= with one of: {', '.join(names)}, to ask for its list"]
        compared, lemmas = self._compared
        idf = "idf by Qdrant" if self._collection.idf else "no idf: a common word counts as much as a rare one"
        counts = f"{compared.words} of {compared.compared} reproduced from their texts"
        if not compared.compared:
            return [
                f"sparse vectors {name} could not be compared with texts: no point has both, so their list is not asked"
            ]
        if self._encoder is None:
            why = "the lemmas of mem0, which are not made here" if lemmas and compared.known else "of another encoder"
            if compared.known and not lemmas:
                why = "weighted otherwise, and sparse_query=document needs the same weights"
            return [f"sparse vectors {name} ({idf}) are {why} ({counts}): neither their list nor a fused one is asked"]
        return [
            f"sparse vectors {name} are BM25 as fastembed makes it, {counts}; {idf}; a query's words weigh as {self._query_weight}",
            self._fused_note(name),
        ]

    def _fused_note(self, words: str) -> str:
        rows = self._address.options.get("prefetch", "the rows wanted")
        vector = self._collection.vector or "the vector"
        return f"source_hybrid is Qdrant's {self._fusion.upper()} of {vector} and {words}, each cut to {rows} first"

    @property
    def _fusion(self) -> str:
        return self._address.options.get("fusion", CHOICES["fusion"][0])

    def _page(self, rows: int, **options: Any) -> tuple[Sequence[models.Record], Any]:
        asked: dict[str, Any] = {"with_payload": True, "with_vectors": False, **options}
        return self._client.scroll(self._collection.name, scroll_filter=self._filter(), limit=rows, **asked)

    def sample(self, rows: int) -> Sequence[Row]:
        points, _ = self._page(rows)
        return [Row(str(point.id), point.payload or {}) for point in points]

    def list_rows(self, names: Sequence[str]) -> Iterator[Sequence[tuple[str, Payload]]]:
        offset: Any = None
        while True:
            points, offset = self._page(ID_PAGE_ROWS, offset=offset, with_payload=list(names) or False)
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
            vector = None if given is None else np.asarray(given, np.float32)
            rows.append(Row(str(point.id), point.payload or {}, None, vector))
        return rows

    def search(self, query: ClientQuery) -> Sequence[ClientHit]:
        if query.vector.size != self._collection.parameters.size:
            raise SourceError(
                f"{self._address.plain}: the query's vector has {query.vector.size} numbers, "
                f"those of the collection {self._collection.parameters.size}"
            )
        asked = self._question(query)
        if asked is None:
            return []
        # It warns that local mode has no index for the parameters.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            found = self._client.query_points(
                self._collection.name, limit=query.rows, with_payload=list(query.names) or False, **asked
            )
        # Qdrant's Euclidean score is a distance: smaller is better.
        distance = query.name == "vector" and self._collection.parameters.distance.value == "Euclid"
        sign = -1.0 if distance else 1.0
        return [ClientHit(str(point.id), point.payload or {}, sign * point.score) for point in found.points]

    def _question(self, query: ClientQuery) -> dict[str, Any] | None:
        """What `query_points` is asked for a list; None for sparse vectors of a query of which no word is left."""
        condition, parameters = self._filter(query), self._parameters(query.trial)
        dense = {"query": query.vector.tolist(), "using": self._collection.vector or None}
        if query.name == "vector":
            return {**dense, "query_filter": condition, "search_params": parameters}
        sparse: dict[str, Any] | None = None
        if self._collection.text:
            sparse = {"query": _text_query(query.text), "using": self._collection.text}
        elif words := query_vector(query.text, self._query_weight):
            vector = models.SparseVector(indices=list(words), values=list(words.values()))
            sparse = {"query": vector, "using": self._collection.sparse}
        if query.name == "sparse":
            return None if sparse is None else {**sparse, "query_filter": condition}
        rows = int(self._address.options.get("prefetch", query.rows))
        # As langchain-qdrant asks: the dense list first, which decides equal scores in local mode.
        parts = [models.Prefetch(**dense, filter=condition, params=parameters, limit=rows)]
        if sparse is not None:
            parts.append(models.Prefetch(**sparse, filter=condition, limit=rows))
        return {"prefetch": parts, "query": models.FusionQuery(fusion=models.Fusion(self._fusion))}

    def _filter(self, query: ClientQuery | None = None) -> models.Filter | None:
        must: list[Any] = []
        must_not: list[Any] = []
        if self.owner is not None:
            of_user = [
                models.FieldCondition(key=self.owner.field, match=models.MatchValue(value=each))
                for each in self.owner.values
            ]
            must.append(models.Filter(should=of_user))
        if query is not None and query.scope is not None:
            shared = models.FieldCondition(key=query.scope_field, match=models.MatchAny(any=list(SHARED_WORDS)))
            (must if query.scope == "shared" else must_not).append(shared)
        return models.Filter(must=must, must_not=must_not) if must or must_not else None

    def _parameters(self, trial: Trial) -> models.SearchParams | None:
        """Search parameters of a trial; None for none. Raises SourceError for an unknown setting."""
        for name, value in trial.settings.items():
            if name not in SETTINGS:
                known = ", ".join(SETTINGS)
                raise SourceError(f"{self._address.plain}: {name} is no setting of a search; there are {known}")
            if name == "hnsw_ef" and not (value.isascii() and value.isdigit() and int(value) > 0):
                raise SourceError(f"{self._address.plain}: hnsw_ef must be a whole number from 1, found {value!r}")
            if name == "indexed_only" and value not in ("true", "false"):
                raise SourceError(f"{self._address.plain}: indexed_only must be true or false, found {value!r}")
        if not trial.settings and not trial.exact:
            return None
        ef = trial.settings.get("hnsw_ef")
        return models.SearchParams(
            hnsw_ef=int(ef) if ef else None,
            exact=trial.exact,
            indexed_only=trial.settings.get("indexed_only") == "true",
        )


class _Shard(_Qdrant):
    marker_file = CONFIG_FILE

    def directory(self, path: str) -> QdrantClient:
        return cast("QdrantClient", EdgeClient(path))

    def names(self) -> Sequence[str]:
        return ["shard"]

    def reason(self, error: Exception) -> str | None:
        # Edge's own errors are plain exceptions of its Rust code.
        known = type(error).__module__ in ("builtins", "qdrant_edge", "qdrant_edge.qdrant_edge")
        return super().reason(error) or (str(error) if known and type(error) is not InputError else None)

    def _product(self) -> str:
        return f"Qdrant Edge {metadata.version(PACKAGE)}"


def _text_query(text: str) -> Any:
    """A query of a text index. Raises InputError if the client has none."""
    if not hasattr(models, "TextQuery"):
        raise InputError("a text index that ranks needs qdrant-client 1.20 or newer")
    return models.TextQuery(text=text)
