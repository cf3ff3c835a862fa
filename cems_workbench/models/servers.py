"""Server checks for `doctor`: whether each server responds, and which models it has.

A request times out after `SERVER_TIMEOUT_S`, the look-up of the host's name after `LOOKUP_TIMEOUT_S`. `ask_all` sends all requests at
once and returns after `TOTAL_TIMEOUT_S` at most.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cems_workbench.errors import ModelError
from cems_workbench.models.http import (
    CallError,
    CallLimits,
    ModelServer,
    authorization,
    server_name,
    server_url,
    status_error,
)
from cems_workbench.models.llama_server import LlamaServerReranker
from cems_workbench.models.ollama import models
from cems_workbench.models.server_embedder import OpenAiEmbedder
from cems_workbench.platform.http_limits import VERSION_PATH, version_problem
from cems_workbench.platform.waiting import run_in_thread

SERVER_TIMEOUT_S = 2.0
LOOKUP_TIMEOUT_S = 1.0
TOTAL_TIMEOUT_S = 2.5
CHROMA_PORT = 8000


@dataclass(frozen=True, slots=True)
class Answers:
    """The answer of each server, or why there is none."""

    llama_server: str | ModelError
    ollama: list[str] | ModelError
    embedding: str | ModelError | None
    """What the embedder on an OpenAI-compatible server makes and reads, in words; None: there is no such embedder."""
    llm: list[str] | ModelError | None
    """None: there is no OpenAI-compatible server in the settings, or it answers and does not list its models."""
    chroma: ModelError | None
    """None: no Chroma server is in the settings, or it answers."""


def ask_all(
    llama_server_url: str,
    ollama_url: str,
    llm_url: str | None,
    llm_key: str | None,
    chroma_url: str | None,
    embedder: OpenAiEmbedder | None = None,
) -> Callable[[], Answers]:
    """Start the requests to every server; the returned function waits for the answers within the time limit. Raises nothing."""
    asked: dict[str, Callable[[], Any]] = {
        "llama_server": lambda: LlamaServerReranker(_looked_up(llama_server_url)).health(),
        "ollama": lambda: models(_looked_up(ollama_url), SERVER_TIMEOUT_S),
        "embedding": lambda: _embedding(embedder) if embedder else None,
        "llm": lambda: openai_models(llm_url, llm_key) if llm_url else None,
        "chroma": lambda: chroma_heartbeat(chroma_url) if chroma_url else None,
    }
    # One deadline for all: the requests run side by side.
    until = time.monotonic() + TOTAL_TIMEOUT_S
    futures = {name: run_in_thread(ask) for name, ask in asked.items()}

    def answer(future: Future[Any]) -> Any:
        try:
            return future.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            return ModelError(f"timeout: no answer within {TOTAL_TIMEOUT_S:g} s")
        except ModelError as error:
            return error

    return lambda: Answers(**{name: answer(future) for name, future in futures.items()})


def _embedding(embedder: OpenAiEmbedder) -> str:
    _looked_up(embedder.url)
    dimension, limit = embedder.dimension, None
    with suppress(ModelError):
        limit = embedder.token_limit()
    reads = f"reads {limit} tokens of a text" if limit else "does not say how much of a text it reads"
    return f"vectors of {dimension} values, {reads}"


def openai_models(base_url: str, key: str | None = None) -> list[str] | None:
    """Ids at GET {base_url}/models of an OpenAI-compatible server; None when it answers without such a list. Raises
    ModelError when it does not answer, refuses the key, or fails. A base URL without a path gets /v1."""
    headers = authorization((key or "").strip())
    reply = _get(ModelServer(base_url).api("models"), base_url, headers)
    rows = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(rows, list):
        return None
    return sorted(row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str))


def chroma_heartbeat(url: str) -> None:
    """Raises ModelError when no Chroma server that can be used answers at `url`, as `store.chroma` reads it: port 8000 unless it says."""
    where = urlsplit(server_url(url))
    port = where.port or (443 if where.scheme == "https" else CHROMA_PORT)
    host = f"[{where.hostname}]" if ":" in (where.hostname or "") else where.hostname
    place = f"{where.scheme}://{host}:{port}"
    if _get(f"{place}/api/v2/heartbeat", url) is None:
        raise ModelError(f"what answers at {server_name(url)} is not Chroma")
    if old := version_problem(_get(f"{place}{VERSION_PATH}", url)):
        raise ModelError(f"Chroma server {server_name(url)}: {old}")


def _get(url: str, server: str, headers: dict[str, str] | None = None) -> Any:
    """The decoded reply; None for 404 and 405, which say that a server is there. Raises ModelError, naming `server`."""
    import httpx

    _looked_up(url)
    asked = ModelServer(server, CallLimits(SERVER_TIMEOUT_S, tries=1))

    async def request() -> Any:
        # The body of an error is not quoted: it may contain a key.
        async with httpx.AsyncClient(**asked.client_options(raise_for_status=False)) as client:
            response = await client.get(url, headers=headers or {})
        if response.status_code in (404, 405):
            return None
        if not response.is_success:
            raise status_error(response.status_code, response.reason_phrase or "no further words")
        return asked.decoded(response)

    return asked.call(request)


def _looked_up(url: str) -> str:
    """The URL, whose host's name was looked up: later look-ups have no timeout. Raises ModelError if that takes too
    long. A name that is not found passes: a proxy may know it; otherwise the request itself fails."""
    parts = urlsplit(server_url(url))
    try:
        run_in_thread(lambda: socket.getaddrinfo(parts.hostname, parts.port)).result(LOOKUP_TIMEOUT_S)
    except TimeoutError:
        what = f"{server_name(url)}: the host's name was not looked up within {LOOKUP_TIMEOUT_S:g} s"
        raise CallError("timeout", what) from None
    except (OSError, UnicodeError):
        pass
    return url
