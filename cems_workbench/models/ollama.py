"""Ollama: a reranker that answers with a number, an embedder, and the list of a server's models.

    rerank   POST /api/generate, prompt "Query: <query>\\nDocument: <text>"; the reply is the raw score
    embed    POST /api/embed, batches of texts; vectors are scaled to length 1 here
    models   GET /api/tags

A reply is a score if it is one number, with nothing but whitespace around it: "7", " -0.25\\n", "1e-3". A reply that
contains a number among words is not one, because it would be ambiguous; `chat.LlmReranker` is for chat models.

Source: CEMS plan, phase 4; docs/internals/specification.md, "rerank"; the ollama client.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cems_workbench.errors import ModelError, one_line
from cems_workbench.models.http import (
    CallError,
    CallLimits,
    CircuitBreaker,
    ModelServer,
    score_pairs,
    sendable,
    server_name,
)
from cems_workbench.models.protocol import Float64, PairScore
from cems_workbench.models.server_embedder import PLAIN, ServerEmbedder, Wording
from cems_workbench.records import JudgeScale

if TYPE_CHECKING:
    from ollama import AsyncClient

PROMPT_VERSION = "ollama-number/1"
REVISION_TIMEOUT_S = 2.0
OLLAMA_AT = "Ollama at "
MAX_REPLY_TOKENS = 32
"""A number is shorter; a longer reply is not a number."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


def number(reply: str) -> float:
    """The number of a reply. Raises CallError: empty reply, not a number, not finite ("NaN", "-inf", "1e999")."""
    text = reply.strip()
    if not text:
        raise CallError("empty reply", "the model said nothing")
    if _NOT_FINITE.fullmatch(text):
        raise CallError("not finite", f"the model said {text}")
    if not _NUMBER.fullmatch(text):
        raise CallError("not a number", f"the model said {one_line(text)[:80]!r}")
    value = float(text)
    if not math.isfinite(value):
        raise CallError("not finite", f"the model said {one_line(text)[:80]}")
    return value


class OllamaReranker:
    """`PairScorer` over /api/generate, for models that answer a (query, document) pair with a bare number.

    `instruction` is sent as the system text if given; `timeout_s` is for one pair, retries included. `revision` (a
    digest of `installed`) becomes part of the cache key, so that pairs are scored again after the model is pulled again.
    """

    scale: JudgeScale | None = None  # no calibration exists

    def __init__(
        self,
        url: str,
        model: str,
        instruction: str | None = None,
        timeout_s: float = 30.0,
        max_concurrent: int = 10,
        *,
        revision: str = "",
        sleep: Callable[[float], None] = time.sleep,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self._server = ollama_server(url, CallLimits(timeout_s), sleep, breaker)
        self._model, self._revision = model, revision
        self._instruction = instruction or ""
        self._max_concurrent = max_concurrent
        self.batch = 2 * max_concurrent

    @property
    def label(self) -> str:
        """For the page."""
        return f"{self._model} on {self._server.name}"

    def cache_model(self, query: str) -> str:
        """Prompt version, model with revision, and the instruction; the same for every query."""
        told = hashlib.sha256(self._instruction.encode("utf-8", "replace")).hexdigest()[:16]
        return f"{PROMPT_VERSION}:{cache_name(self._model, self._revision)}:{told}"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """One score per text, on the model's own scale (Qwen3-Reranker: about 0..10). Raises ModelError without a model."""
        require(self._model, "reranker")
        _ = self._server.base_url  # one that is no URL is an error of the whole batch, not of each pair
        return score_pairs(lambda text: self._score(query, text), texts, self._max_concurrent)

    def _score(self, query: str, text: str) -> PairScore:
        prompt = sendable(f"Query: {query}\nDocument: {text}")

        async def request() -> str:
            async with open_client(self._server) as client:
                said = await client.generate(
                    model=self._model,
                    prompt=prompt,
                    system=sendable(self._instruction) or None,
                    think=False,
                    options={"temperature": 0, "num_predict": MAX_REPLY_TOKENS},
                )
            reply: str | None = said.response
            if reply is None:
                raise CallError("bad reply", "the reply has no field 'response'")
            # A number may be all that fitted of a longer reply.
            if said.done_reason == "length":
                raise CallError("not a number", f"the model was still talking after {MAX_REPLY_TOKENS} tokens")
            return reply

        return PairScore(number(self._server.call(request)))


class OllamaEmbedder(ServerEmbedder):
    """`QueryEmbedder` over /api/embed. `timeout_s` is for one batch of texts, retries included. If `revision` is None,
    the model's digest is requested from the server when it is first needed. Until then there is no `model_id`, because
    vectors of an unknown revision could be confused with those of another."""

    def __init__(
        self,
        url: str,
        model: str,
        dimension: int | None = None,
        timeout_s: float = 60.0,
        same_as: str = "",
        *,
        revision: str | None = "",
        wording: Wording = PLAIN,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(ollama_server(url, CallLimits(timeout_s), sleep), model, dimension, same_as, wording)
        self._asked_revision = revision

    @property
    def _own_id(self) -> str:
        return f"ollama:{cache_name(self._model, self._revision)}"

    @property
    def _place(self) -> str:
        return f"on {self._server.name}"

    @cached_property
    def _revision(self) -> str:
        if self._asked_revision is not None:
            return self._asked_revision
        require(self._model, "embedding")
        return digest(self._server.url, self._model, sleep=self._server.sleep)

    def _vectors(self, texts: Sequence[str], model: str) -> Sequence[Float64]:
        require(self._model, "embedding")

        async def request() -> list[Float64]:
            async with open_client(self._server) as client:
                reply = await client.embed(model=model, input=[sendable(text) for text in texts])
            return [np.asarray(row, dtype=np.float64) for row in reply.embeddings]

        return self._server.call(request)


def models(url: str, timeout_s: float = 5.0, sleep: Callable[[float], None] = time.sleep) -> list[str]:
    """Names of the models the server has, sorted. Raises ModelError without a usable answer."""
    return sorted(installed(url, timeout_s, sleep))


def installed(
    url: str, timeout_s: float = 5.0, sleep: Callable[[float], None] = time.sleep, breaker: CircuitBreaker | None = None
) -> dict[str, str]:
    """Model name to digest (empty if the server reports none). Raises ModelError as `models` does."""
    server = ollama_server(url, CallLimits(timeout_s, tries=2), sleep, breaker)

    async def request() -> dict[str, str]:
        async with open_client(server) as client:
            listed = (await client.list()).models
        return {model.model: model.digest or "" for model in listed if model.model}

    return server.call(request)


def digest(
    url: str,
    model: str,
    timeout_s: float = REVISION_TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
    breaker: CircuitBreaker | None = None,
) -> str:
    """The digest of a model, empty if the server reports none. Raises ModelError if it does not answer or has no such model."""
    digests = installed(url, timeout_s, sleep, breaker)
    for name in (model, f"{model}:latest"):  # Ollama calls a model without a tag NAME:latest
        if name in digests:
            return digests[name]
    raise ModelError(f"{OLLAMA_AT}{server_name(url)} has no model {model}: ollama pull {model}")


def ollama_server(
    url: str, limits: CallLimits, sleep: Callable[[float], None] = time.sleep, breaker: CircuitBreaker | None = None
) -> ModelServer:
    """The Ollama server at `url`, which is called "Ollama at host:port" in messages."""
    return ModelServer(url, limits, OLLAMA_AT, breaker, sleep)


def open_client(server: ModelServer) -> AsyncClient:
    """The official client, to be used as an async context. Raises ModelError if the server's URL is invalid."""
    from ollama import AsyncClient

    return AsyncClient(server.base_url, **server.client_options())


def cache_name(model: str, revision: str) -> str:
    """The model with its revision, if any, as used in cache keys."""
    return f"{model}@{revision}" if revision else model


def require(model: str, what: str) -> None:
    """Raises ModelError when no model is set: "no reranker model is set for Ollama"."""
    if not model.strip():
        raise ModelError(f"no {what} model is set for Ollama")
