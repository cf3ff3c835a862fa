"""Chat models: Ollama's chat, or any server with OpenAI's /chat/completions.

Both ask at temperature 0, do not stream, and give up when the whole reply has not come within `timeout_s`, however slowly
it drips. Nothing here reads the reply; `prompts` and `llm_reranker` do.

Source: docs/internals/specification.md, "expansion" (Ollama or any OpenAI-compatible server).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from cems_workbench.errors import ModelError
from cems_workbench.models.http import CallError, CallLimits, CircuitBreaker, ModelServer, ask_json, sendable
from cems_workbench.models.ollama import cache_name, ollama_server, open_client, require


class Chat(Protocol):
    """A language model that answers one question at a time; may be called by several threads at once."""

    @property
    def label(self) -> str:
        """Description of model and server, for the page."""
        ...

    @property
    def model_id(self) -> str:
        """Stable identity for cache keys: kind of server, place and model. Holds no key."""
        ...

    def ask(self, system: str, user: str) -> str:
        """The model's reply, never blank. Raises ModelError in one line without one."""
        ...


class OllamaChat:
    """`Chat` over Ollama's /api/chat; thinking is disabled for models that support it."""

    def __init__(
        self,
        url: str,
        model: str,
        timeout_s: float = 60.0,
        *,
        revision: str = "",
        sleep: Callable[[float], None] = time.sleep,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self._server = ollama_server(url, CallLimits(timeout_s), sleep, breaker)
        self._model, self._revision = model, revision

    @property
    def label(self) -> str:
        """For the page."""
        return f"{self._model} on {self._server.name}"

    @property
    def model_id(self) -> str:
        """ "ollama:" with the model and its revision, if any, regardless of the server."""
        return f"ollama:{cache_name(self._model, self._revision)}"

    def ask(self, system: str, user: str) -> str:
        """The model's reply. Raises ModelError: no model set, or the call failed."""
        require(self._model, "chat")

        async def request() -> str:
            async with open_client(self._server) as client:
                reply = await client.chat(self._model, _messages(system, user), think=False, options={"temperature": 0})
            return self._server.redacted(_not_blank(reply.message.content))

        return self._server.call(request)


class OpenAiChat:
    """`Chat` over POST {base_url}/chat/completions. A base URL without a path gets /v1; `key` is sent as bearer token."""

    def __init__(
        self,
        base_url: str,
        model: str,
        key: str | None = None,
        timeout_s: float = 60.0,
        *,
        sleep: Callable[[float], None] = time.sleep,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self._model = model
        self._server = ModelServer(
            base_url, CallLimits(timeout_s), breaker=breaker, sleep=sleep, secret=(key or "").strip()
        )

    @property
    def label(self) -> str:
        """For the page."""
        return f"{self._model} at {self._server.name}"

    @property
    def model_id(self) -> str:
        """ "openai:" with server and model: servers may give one name to different models."""
        return f"openai:{self._server.name}:{self._model}"

    def ask(self, system: str, user: str) -> str:
        """The model's reply. Raises ModelError: no model set, a key that cannot be sent, or the call failed."""
        if not self._model.strip():
            raise ModelError("no chat model is set for the OpenAI-compatible server")
        body = {"model": self._model, "messages": _messages(system, user), "temperature": 0, "stream": False}

        async def request() -> str:
            return _not_blank(_content(await ask_json(self._server, self._server.api("chat/completions"), body)))

        return self._server.call(request)


def _messages(system: str, user: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": sendable(system)}, {"role": "user", "content": sendable(user)}]


def _content(reply: Any) -> Any:
    """choices[0].message.content; parts of type text are joined. Raises CallError for another shape."""
    try:
        content = reply["choices"][0]["message"]["content"]
        if isinstance(content, list):
            content = "".join(part["text"] for part in content if part.get("type") == "text")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise CallError("bad reply", "the reply has no choices[0].message.content") from None
    return content


def _not_blank(content: Any) -> str:
    if content is not None and not isinstance(content, str):
        raise CallError("bad reply", "the reply's content is not text")
    if not content or not content.strip():
        raise CallError("empty reply", "the model said nothing")
    return content
