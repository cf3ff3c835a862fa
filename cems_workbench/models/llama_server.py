"""A reranker model served by llama.cpp: each pair is a chat whose one-token answer is "yes" or "no".

    POST {url}/v1/chat/completions, max_tokens 1, temperature 0, the 20 likeliest tokens with their logprobs
    p = exp(yes) / (exp(yes) + exp(no))                    over the logprobs of the two answers; `score_of_reply` has every case

The server's own rerank endpoint is not used: it gives garbage with this model.

Source: Qwen3-Reranker's prompt (Zhang et al. 2025); the memory-agent document; docs/internals/specification.md, "rerank".
"""

from __future__ import annotations

import hashlib
import math
import re
import reprlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from cems_workbench.errors import ModelError, one_line
from cems_workbench.models.http import (
    CallError,
    CallLimits,
    CircuitBreaker,
    ModelServer,
    ask_json,
    call_error,
    score_pairs,
    sendable,
    server_url,
)
from cems_workbench.models.protocol import PairScore
from cems_workbench.records import JudgeScale

INSTRUCTION = "Given a query, retrieve relevant facts that answer the query"
PROMPT_VERSION = "qwen3-reranker/1"
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
TOP_LOGPROBS = 20
HEALTH_TIMEOUT_S = 2.0
MAX_REPLY_BYTES = 1_000_000
MAX_QUOTED_CHARS = 120


def quoted(value: object) -> str:
    """A server's reply or an error's message on one line of at most `MAX_QUOTED_CHARS` characters, however nested or long it is."""
    shown = str(value) if isinstance(value, str | BaseException) else reprlib.repr(value)
    return one_line(shown, MAX_QUOTED_CHARS) or f"an empty {type(value).__name__}"


class LlamaServerReranker:
    """Scores pairs through a llama.cpp server, `max_concurrent` at a time; a raw score is a probability, 0..1."""

    scale = JudgeScale(0.5, (0.8, 0.5, 0.2))  # even odds are the threshold

    def __init__(
        self,
        url: str,
        model: str | None = None,
        instruction: str = INSTRUCTION,
        timeout_s: float = 30.0,
        max_concurrent: int = 10,
        sleep: Callable[[float], None] = time.sleep,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        """`timeout_s` limits each try from connecting to the last byte; `sleep` waits between tries; `breaker`
        remembers an unreachable server between calls. Raises ModelError if the URL is invalid or a limit is not
        positive."""
        scheme = urlsplit(server_url(url, scheme=None)).scheme
        if not timeout_s > 0 or max_concurrent < 1:
            raise ModelError(
                f"timeout_s must be above 0 and max_concurrent at least 1, not {timeout_s}, {max_concurrent}"
            )
        limits = CallLimits(timeout_s, per_try=True)
        self._server = ModelServer(url, limits, f"{scheme}://", breaker, sleep, most=MAX_REPLY_BYTES)
        self._model = model
        self._instruction = instruction
        self._max_concurrent = max_concurrent
        self.batch = max_concurrent

    @property
    def label(self) -> str:
        return f"{self._model or 'the model'} on the llama.cpp server at {self._server.name}"

    def cache_model(self, query: str) -> str:
        """Model (as configured, otherwise as the server reports it, otherwise its URL), prompt version and instruction."""
        model = self._model or self._reported_model() or self._server.name
        digest = hashlib.sha256(self._instruction.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"llama_server:{model}:{PROMPT_VERSION}:{digest}"

    def health(self) -> str:
        """One line on a server that answers `GET /health` within 2 s. Raises ModelError if it does not."""
        place = self._server.name
        try:
            status = self._get("/health")
        except CallError as failure:
            raise ModelError(f"No llama.cpp server answers at {place}: {failure}") from failure
        if not isinstance(status, dict) or status.get("status") != "ok":
            raise ModelError(f"{place}/health does not say that a llama.cpp server is ready: {quoted(status)}")
        model = self._model or PurePath(self._reported_model() or "a model it does not name").name
        return f"llama.cpp server at {place}: ok, serves {model}"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """One score per text, in order; equal texts are scored once.

        `detail["outcome"]` says how the score was read, `detail["seconds"]` how long the pair took, retries included.
        A pair that fails is flagged with a cause from `CAUSES`. Once the server cannot be connected to, after the
        retries of one pair, the pairs not yet asked are flagged at once.
        """
        return score_pairs(lambda text: self._score(query, text), texts, self._max_concurrent)

    def _score(self, query: str, text: str) -> PairScore:
        server, url = self._server, f"{self._server.base_url}/v1/chat/completions"
        return score_of_reply(server.call(partial(ask_json, server, url, self._body(query, text))))

    def _reported_model(self) -> str | None:
        """The first id at /v1/models; None if the server lists none or does not answer."""
        try:
            name = self._get("/v1/models")["data"][0]["id"]
        except (CallError, LookupError, TypeError):
            return None
        return name if isinstance(name, str) and name else None

    def _get(self, path: str) -> Any:
        """The decoded reply to a GET within `HEALTH_TIMEOUT_S`, tried once. Raises CallError. A circuit that is open
        stays so unless it is time to probe the server, which this is; one that is closed is left alone, so that `score`
        tries as often as it may."""
        breaker = self._server.breaker
        known_away = breaker is not None and breaker.is_open(self._server.name)
        server = replace(
            self._server,
            limits=CallLimits(HEALTH_TIMEOUT_S, tries=1),
            breaker=breaker if known_away else None,
            classify=_probe_failure,
        )
        return server.call(partial(ask_json, server, f"{server.base_url}{path}"))

    def _body(self, query: str, text: str) -> dict[str, Any]:
        user = sendable(f"<Instruct>: {self._instruction}\n<Query>: {query}\n<Document>: {text}")
        request: dict[str, Any] = {
            "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": TOP_LOGPROBS,
        }
        if self._model is not None:
            request["model"] = self._model
        return request


def _probe_failure(error: Exception, server: ModelServer) -> CallError:
    """The failure of a request to /health or /v1/models: a timeout counts as unreachable."""
    failure = call_error(error, server)
    failure.unreachable |= failure.cause == "timeout"
    return failure


def score_of_reply(reply: Any) -> PairScore:
    """The score of one decoded chat completion, with `detail["outcome"]`, or the cause of failure.

    Over the first generated token and the likeliest tokens in its place, compared trimmed and in lower case, the
    first match of each:

    - yes and no seen: p = exp(yes) / (exp(yes) + exp(no)), "yes and no"
    - else the generated token is yes or no: 1 or 0, "generated token"
    - else one of them seen: 0.8, "only yes seen"; 0.2, "only no seen"

    Without logprobs the answer's text is read: its first word is yes or no: 1 or 0, "text prefix".
    A reply with neither of them in it, or with a logprob that is not finite, has no score, because a neutral
    number would rank above actual scores.

    Source: docs/internals/specification.md, "rerank"; the memory-agent document. There, logprobs of −0.1 for yes and −2.5 for no give more
    than 0.8, and −3.0 and −0.1 less than 0.2.
    """
    try:
        choices = _typed(reply, "choices", list)
        if not choices:
            raise CallError("empty reply", "no choices")
        if _typed(choices[0], "logprobs", dict, optional=True) is None:
            p, outcome = _from_text(_typed(_typed(choices[0], "message", dict), "content", str, optional=True) or "")
        else:
            p, outcome = _from_logprobs(choices[0]["logprobs"])
    except CallError as failure:
        return PairScore(None, str(failure))
    return PairScore(p, detail={"outcome": outcome})


_FIRST_WORD = re.compile(r"(yes|no)\b")


def _from_text(text: str) -> tuple[float, str]:
    answer = text.strip().lower()
    if not answer:
        raise CallError("empty reply", "neither logprobs nor text")
    first = _FIRST_WORD.match(answer)
    if first is None:
        raise CallError("not a number", f"neither yes nor no in {quoted(text)!r}")
    return float(first[0] == "yes"), "text prefix"


def _from_logprobs(logprobs: dict[str, Any]) -> tuple[float, str]:
    tokens = _typed(logprobs, "content", list, optional=True)
    if not tokens:
        raise CallError("empty reply", "no token was generated")
    generated = _trimmed(tokens[0])
    seen: dict[str, float] = {}
    for entry in _typed(tokens[0], "top_logprobs", list, optional=True) or []:
        # Several tokens are trimmed to one answer; the likeliest comes first.
        seen.setdefault(_trimmed(entry), _logprob(entry))
    if "yes" in seen and "no" in seen:
        return _sigmoid(seen["yes"] - seen["no"]), "yes and no"
    if generated in ("yes", "no"):
        return float(generated == "yes"), "generated token"
    if "yes" in seen:
        return 0.8, "only yes seen"
    if "no" in seen:
        return 0.2, "only no seen"
    raise CallError(
        "not a number", f"neither yes nor no among the {len(seen) or 1} likeliest tokens, {quoted(generated)!r} first"
    )


def _sigmoid(difference: float) -> float:
    """exp(yes) / (exp(yes) + exp(no)) of yes − no, without overflow."""
    # The exponent is never positive, so it cannot overflow.
    small = math.exp(-abs(difference))
    return (1.0 if difference >= 0 else small) / (1.0 + small)


def _trimmed(entry: Any) -> str:
    token: str = _typed(entry, "token", str)
    return token.strip().lower()


def _logprob(entry: dict[str, Any]) -> float:
    """llama.cpp writes −inf as the lowest float and NaN as null."""
    value = entry.get("logprob")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise CallError("not a number", f"the logprob of {entry['token']!r} is {quoted(value)}")
    try:
        number = math.nan if value is None else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CallError("not finite", f"the logprob of {entry['token']!r} is {quoted(value)}")
    return number


def _typed(parent: Any, key: str, kind: type, optional: bool = False) -> Any:
    """parent[key] of the given type, or None if that is optional. Raises CallError for any other shape."""
    value = parent.get(key) if isinstance(parent, dict) else None
    if isinstance(value, kind) or (optional and value is None and isinstance(parent, dict)):
        return value
    raise CallError("bad reply", f"{key} is not a {kind.__name__} in {quoted(parent)}")
