"""Embedders on a server: bounded batches, equal texts sent once, vectors checked and scaled to length 1.

`OpenAiEmbedder` asks any server that speaks OpenAI's /embeddings: llama.cpp, vLLM, OpenRouter, Ollama, OpenAI.

    POST {base}/embeddings {"model", "input": [texts], "encoding_format": "float"}, and "dimensions" if configured
    reply {"data": [{"index", "embedding": numbers, or base64 of little-endian float32}]}

The token limit is in `GET {base}/../props` of llama.cpp and `GET {base}/models` of vLLM and OpenRouter; others do not report it.

Source: OpenAI API reference, "Create embeddings"; llama.cpp, tools/server/README.md; vLLM, OpenAI-compatible server.
"""

from __future__ import annotations

import base64
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cems_workbench.errors import ModelError
from cems_workbench.models.embedder import CachedQueries
from cems_workbench.models.http import CallError, CallLimits, ModelServer, ask_json, call_error, sendable
from cems_workbench.models.protocol import Float32, Float64
from cems_workbench.progress import Progress, silent

BATCH_SIZE = 32


@dataclass(frozen=True, slots=True)
class Wording:
    """Prefixes that a model was trained with, for texts and for queries, and its name of the query prompt. E5 reads
    "passage: " and "query: ", nomic-embed-text "search_document: " and "search_query: "; a server may do that itself,
    by the model's name."""

    text_prefix: str = ""
    query_prefix: str = ""
    query_model: str = ""

    @property
    def label(self) -> str:
        """Part of the embedder's id, because the prefixes change the vectors."""
        parts = [f"texts after {self.text_prefix!r}"] if self.text_prefix else []
        parts += [f"queries after {self.query_prefix!r}"] if self.query_prefix else []
        parts += [f"queries by {self.query_model}"] if self.query_model else []
        return f" ({', '.join(parts)})" if parts else ""


PLAIN = Wording()


class ServerEmbedder(CachedQueries):
    """`QueryEmbedder` over a server; subclasses implement the request."""

    def __init__(
        self, server: ModelServer, model: str, dimension: int | None, same_as: str, wording: Wording = PLAIN
    ) -> None:
        """`dimension` None: that of the first vector; `same_as`: the id of the vectors in a store that this model has made too."""
        super().__init__()
        self._server, self._model, self._expected, self._same_as = server, model, dimension, same_as
        self._wording = wording

    @property
    def model_id(self) -> str:
        """The declared id, or its own. Raises ModelError if the server does not report a required revision."""
        return self._same_as or self._own_id + self._wording.label

    @property
    def line(self) -> str:
        stated = f", stated to be {self._same_as}" if self._same_as else ""
        return f"{self._model}{self._wording.label} {self._place}{stated}"

    @property
    @abstractmethod
    def _own_id(self) -> str:
        """Kind of server and model, and its revision, if any."""

    @property
    @abstractmethod
    def _place(self) -> str:
        """Where it runs: "on Ollama at localhost:11434"."""

    @abstractmethod
    def _vectors(self, texts: Sequence[str], model: str) -> Sequence[Float64]:
        """A vector of the model per text, in order, as long as the server likes. Raises ModelError without a usable answer."""

    @cached_property
    def dimension(self) -> int:
        """Length of one vector: as configured, or requested from the server once. Raises ModelError."""
        return self._expected or len(self._asked(["dimension"], self._model)[0])

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Unit vectors, shape (len(texts), dimension), float32; equal texts are embedded once. Raises ModelError when
        the server fails or sends vectors of another number or length, not finite, or all zero."""
        return self._encoded(texts, self._model, self._wording.text_prefix, progress)

    def encode_queries(self, texts: Sequence[str]) -> Float32:
        """As `encode`, with the query prefix."""
        return self._encoded(texts, self._wording.query_model or self._model, self._wording.query_prefix)

    def _encoded(self, texts: Sequence[str], model: str, prefix: str, progress: Progress = silent) -> Float32:
        unique = list(dict.fromkeys(texts))
        if not unique:
            return np.zeros((0, self.dimension), dtype=np.float32)
        parts = []
        for start in range(0, len(unique), BATCH_SIZE):
            parts.append(self._unit_vectors([prefix + text for text in unique[start : start + BATCH_SIZE]], model))
            progress("embedding", min(start + BATCH_SIZE, len(unique)), len(unique))
        place = {text: i for i, text in enumerate(unique)}
        return np.concatenate(parts)[[place[text] for text in texts]]

    def _unit_vectors(self, texts: Sequence[str], model: str) -> Float32:
        rows = self._asked(texts, model)
        wrong = next((len(row) for row in rows if len(row) != self.dimension), None)
        if wrong is not None:
            raise ModelError(f"{self.line} sent a vector of length {wrong}; {self.dimension} was expected")
        vectors = np.stack(rows)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all():
            raise ModelError(f"{self.line} sent a vector that is not finite (NaN or infinite)")
        if not norms.all():
            raise ModelError(f"{self.line} sent a vector of zeros, which points nowhere")
        unit: Float32 = (vectors / norms).astype(np.float32)
        return unit

    def _asked(self, texts: Sequence[str], model: str) -> Sequence[Float64]:
        rows = self._vectors(texts, model)
        if len(rows) != len(texts) or not all(map(len, rows)):
            raise ModelError(f"{self.line} sent {sum(len(row) > 0 for row in rows)} vectors for {len(texts)} texts")
        return rows


LLAMA_CPP_BATCH = 512
"""Tokens of a text that llama.cpp embeds unless it was started with a larger --ubatch-size, which it does not report."""
TOO_LONG = "a text is longer than the server reads; import with --chunks embedder cuts it"

_TOO_LONG = re.compile(
    r"\bHTTP (?:400|413|422|500): .*(?:too (?:large|long)|maximum (?:context|input|model|sequence)|context (?:length|size|window)"
    r"|exceeds?\b.*\b(?:tokens|length|limit))",
    re.IGNORECASE,
)


class OpenAiEmbedder(ServerEmbedder):
    """`QueryEmbedder` over POST {base}/embeddings; `timeout_s` is for one batch, retries included. A base URL without a
    path gets /v1, and `key` is sent as bearer token. `dimension` is sent and becomes part of the id; None leaves it to
    the server. `limit` is the token limit if the server does not report one."""

    def __init__(
        self,
        base_url: str,
        model: str,
        key: str | None = None,
        dimension: int | None = None,
        limit: int | None = None,
        same_as: str = "",
        timeout_s: float = 60.0,
        *,
        wording: Wording = PLAIN,
        tries: int = 3,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        limits = CallLimits(timeout_s, tries)
        server = ModelServer(base_url, limits, sleep=sleep, secret=(key or "").strip(), classify=_failure)
        super().__init__(server, model, dimension, same_as, wording)
        self._limit = limit

    @property
    def _own_id(self) -> str:
        return f"openai:{self._model}" + (f"@{self._expected}" if self._expected else "")

    @property
    def _place(self) -> str:
        try:
            return f"at {self._server.name}"
        except ModelError:
            return "on a server whose URL is not set"

    @property
    def url(self) -> str:
        """The server's location, as configured. Raises ModelError if it or the model is not set."""
        if not self._model.strip():
            raise ModelError("CEMS_WORKBENCH_EMBEDDER names no model after openai:")
        if not self._server.url.strip():
            raise ModelError(
                f"CEMS_WORKBENCH_EMBEDDER is openai:{self._model}, and CEMS_WORKBENCH_EMBEDDING_URL is not set"
            )
        return self._server.url

    def token_limit(self) -> int | None:
        """The server's token limit: as configured, or as reported; None if it reports none. Raises ModelError if the
        request fails."""
        _ = self.url
        return self._limit or self._stated

    @cached_property
    def _stated(self) -> int | None:
        try:
            context = self._get(self._server.beside_api("props"))["default_generation_settings"]["n_ctx"]
            if _positive(context):
                # llama.cpp refuses a text beyond its batch size, even if the context is longer.
                return min(int(context), LLAMA_CPP_BATCH)
        except (LookupError, TypeError):
            pass  # no llama.cpp server
        try:
            listed = self._get(self._server.api("models"))["data"]
            known = [row for row in listed if row["id"] == self._model] or listed[:1]
            said = [row.get(name) for row in known for name in ("max_model_len", "context_length")]
        except (LookupError, TypeError, AttributeError):
            return None
        return next((int(tokens) for tokens in said if _positive(tokens)), None)

    def _get(self, url: str) -> Any:
        """The decoded reply; None if the server has none at this path."""
        try:
            return self._server.call(lambda: ask_json(self._server, url))
        except CallError as failure:
            if failure.cause in ("refused", "bad reply") and not failure.unreachable:
                return None  # a status 4xx, or a page that is not JSON
            raise

    def _vectors(self, texts: Sequence[str], model: str) -> Sequence[Float64]:
        _ = self.url
        body: dict[str, Any] = {
            "model": model,
            "input": [sendable(text) or " " for text in texts],  # servers refuse an empty text
            "encoding_format": "float",
        }
        if self._expected:
            body["dimensions"] = self._expected

        async def request() -> list[Float64]:
            return vectors_of(await ask_json(self._server, self._server.api("embeddings"), body))

        return self._server.call(request)


def vectors_of(reply: Any) -> list[Float64]:
    """The vectors of a decoded reply in the order of their `index`, or in order of the reply if none has one. Raises
    CallError for a reply of another shape, ValueError for non-numeric values."""
    rows = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "embedding" in row for row in rows):
        raise CallError("bad reply", "the reply has no data[].embedding")
    places = [row.get("index") for row in rows]
    if any(place is not None for place in places):
        if sorted(map(str, places)) != sorted(map(str, range(len(rows)))):
            raise CallError("bad reply", f"the indexes of {len(rows)} vectors are not 0 to {len(rows) - 1}")
        # The order of the reply is not promised.
        rows = sorted(rows, key=lambda row: int(row["index"]))
    return [_vector(row["embedding"]) for row in rows]


def _vector(sent: Any) -> Float64:
    if isinstance(sent, str):
        return np.frombuffer(base64.b64decode(sent, validate=True), "<f4").astype(np.float64)
    if not isinstance(sent, list):
        raise CallError("bad reply", "an embedding is neither a list of numbers nor base64")
    vector = np.asarray(sent, dtype=np.float64)  # null, which llama.cpp sends for NaN, becomes NaN
    if vector.ndim != 1:
        raise CallError("bad reply", "an embedding is not one list of numbers; the server does not pool its tokens")
    return vector


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _failure(error: Exception, server: ModelServer) -> CallError:
    """As for every server, but a text that is too long is reported as such and not retried."""
    failure = call_error(error, server)
    if _TOO_LONG.search(failure.what):
        return CallError("refused", f"{TOO_LONG} ({failure.what})")
    return failure
