"""A reranker model served by llama.cpp: each pair is a chat whose one-token answer is "yes" or "no".

    POST {url}/v1/chat/completions, max_tokens 1, temperature 0, the 20 likeliest tokens with their logprobs
    p = exp(yes) / (exp(yes) + exp(no))                    yes_no_reply.py has the whole formula

The server's own rerank endpoint is not used: it gives garbage with this model.

Source: Qwen3-Reranker's prompt (Zhang et al. 2025); the memory-agent document; PIPELINE.md, "rerank".

What one reply to a yes-or-no question says, as a probability of yes.

    p = exp(yes) / (exp(yes) + exp(no))        over the logprobs of the two answers

Source: the memory-agent document; PIPELINE.md, "rerank", llama_server.

One reply of a llama.cpp server: its JSON, or why it is none and whether to ask again.

A status of 5xx or 429 is worth another try, unless 429 asks for a wait that is too long.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import reprlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import httpx

from cems_workbench.errors import ModelError
from cems_workbench.models.http import Reach, run_to_end
from cems_workbench.models.protocol import PairScore
from cems_workbench.records import JudgeScale


class _NoScore(Exception):
    """The reply has no score: "cause: what happened", with a cause from `CAUSES`."""


def score_of_reply(reply: Any) -> PairScore:
    """The score of one decoded chat completion, with `detail["outcome"]`, or the cause why it has none.

    Over the first generated token and the likeliest tokens in its place, compared trimmed and in lower case, the
    first match of each:

    - yes and no seen: p = exp(yes) / (exp(yes) + exp(no)), "yes and no"
    - else the generated token is yes or no: 1 or 0, "generated token"
    - else one of them seen: 0.8, "only yes seen"; 0.2, "only no seen"
    - else 0.5, "uncertain"

    Without logprobs the answer's text is read: it begins with yes or no: 1 or 0, "text prefix"; else 0.5, "uncertain".
    A reply with no answer in it, or with a logprob that is no finite number, is flagged.

    Source: PIPELINE.md, "rerank"; the memory-agent document. There, logprobs of −0.1 for yes and −2.5 for no give more
    than 0.8, and −3.0 and −0.1 less than 0.2.
    """
    try:
        choices = _typed(reply, "choices", list)
        if not choices:
            raise _NoScore("empty reply: no choices")
        if _typed(choices[0], "logprobs", dict, optional=True) is None:
            p, outcome = _from_text(_typed(_typed(choices[0], "message", dict), "content", str, optional=True) or "")
        else:
            p, outcome = _from_logprobs(choices[0]["logprobs"])
    except _NoScore as failure:
        return PairScore(None, str(failure))
    return PairScore(p, detail={"outcome": outcome})


def _from_text(text: str) -> tuple[float, str]:
    answer = text.strip().lower()
    if not answer:
        raise _NoScore("empty reply: neither logprobs nor text")
    if answer.startswith(("yes", "no")):
        return float(answer.startswith("yes")), "text prefix"
    return 0.5, "uncertain"


def _from_logprobs(logprobs: dict[str, Any]) -> tuple[float, str]:
    tokens = _typed(logprobs, "content", list, optional=True)
    if not tokens:
        raise _NoScore("empty reply: no token was generated")
    generated = _trimmed(tokens[0])
    seen: dict[str, float] = {}
    for entry in _typed(tokens[0], "top_logprobs", list, optional=True) or []:
        seen.setdefault(_trimmed(entry), _logprob(entry))
    if "yes" in seen and "no" in seen:
        return _sigmoid(seen["yes"] - seen["no"]), "yes and no"
    if generated in ("yes", "no"):
        return float(generated == "yes"), "generated token"
    if "yes" in seen:
        return 0.8, "only yes seen"
    if "no" in seen:
        return 0.2, "only no seen"
    return 0.5, "uncertain"


def _sigmoid(difference: float) -> float:
    """exp(yes) / (exp(yes) + exp(no)) of yes − no, without overflow."""
    small = math.exp(-abs(difference))
    return (1.0 if difference >= 0 else small) / (1.0 + small)


def _trimmed(entry: Any) -> str:
    token: str = _typed(entry, "token", str)
    return token.strip().lower()


def _logprob(entry: dict[str, Any]) -> float:
    """llama.cpp writes −inf as the lowest float and NaN as null."""
    value = entry.get("logprob")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise _NoScore(f"not a number: the logprob of {entry['token']!r} is {one_line(value)}")
    try:
        number = math.nan if value is None else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _NoScore(f"not finite: the logprob of {entry['token']!r} is {one_line(value)}")
    return number


def _typed(parent: Any, key: str, kind: type, optional: bool = False) -> Any:
    """parent[key] of the given type, or None where that is optional. Raises _NoScore for any other shape."""
    value = parent.get(key) if isinstance(parent, dict) else None
    if isinstance(value, kind) or (optional and value is None and isinstance(parent, dict)):
        return value
    raise _NoScore(f"bad reply: {key} is not a {kind.__name__} in {one_line(parent)}")


def one_line(value: object) -> str:
    """Whatever a server sent or an error says, on one line of at most 120 characters, however deep or long it is."""
    shown = str(value) if isinstance(value, str | BaseException) else reprlib.repr(value)
    words = " ".join(shown.split()) or f"an empty {type(value).__name__}"
    return words if len(words) <= 120 else words[:119] + "…"


LONGEST_WAIT_S = 10.0
REPLY_BYTES = 1_000_000


class Failure(Exception):
    """A request that gave nothing: why ("cause: what happened"), and whether and when to try again."""

    def __init__(self, error: str, again: bool = False, wait_s: float | None = None, unreachable: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.again = again
        self.wait_s = wait_s
        self.unreachable = unreachable


async def read_json(client: httpx.AsyncClient, method: str, path: str, body: bytes | None = None) -> Any:
    """The decoded body of a reply with status 200. Raises Failure for any other reply, httpx errors as they come."""
    headers = {"Content-Type": "application/json"} if body is not None else None
    async with client.stream(method, path, content=body, headers=headers) as response:
        content = b""
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > REPLY_BYTES:
                raise Failure(f"bad reply: longer than {REPLY_BYTES:,} bytes")
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError):
        if response.is_success:
            if not content.strip():
                raise Failure(f"empty reply: HTTP {response.status_code} without a body") from None
            kind = response.headers.get("content-type", "no content type")
            raise Failure(f"bad reply: not JSON ({kind}): {one_line(content.decode('utf-8', 'replace'))}") from None
        reply = content.decode("utf-8", "replace")
    if not response.is_success:
        raise _refusal(response, reply)
    return reply


def _refusal(response: httpx.Response, reply: Any) -> Failure:
    """A status other than success: 5xx and 429 are worth another try, unless 429 asks for too long a wait."""
    error = reply.get("error") if isinstance(reply, dict) else None
    said = error.get("message") if isinstance(error, dict) else error
    happened = f"HTTP {response.status_code}: {one_line(said or reply)}"
    if response.status_code >= 500:
        return Failure(f"server error: {happened}", again=True)
    if response.status_code != 429:
        return Failure(f"bad reply: {happened}")
    after = response.headers.get("retry-after", "")
    if not after.isdecimal():  # a date is possible too, and no server of this kind sends one
        return Failure(f"rate limited: {happened}", again=True)
    if len(after) > 9 or int(after) > LONGEST_WAIT_S:
        return Failure(f"rate limited: the server asks to wait {after[:9]} s ({happened})")
    return Failure(f"rate limited: {happened}", again=True, wait_s=float(after))


INSTRUCTION = "Given a query, retrieve relevant facts that answer the query"
PROMPT_VERSION = "qwen3-reranker/1"
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
TOP_LOGPROBS = 20
TRIES = 3
BACKOFF_S = 0.25
CONNECT_S = 5.0
HEALTH_S = 2.0

Sleep = Callable[[float], Awaitable[None]]


class LlamaServerReranker:
    """Scores pairs through a llama.cpp server, `max_concurrent` at a time; a raw score is a probability, 0..1.

    `score` and `health` run an event loop of their own, in a thread of its own where the caller's has one already.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        instruction: str = INSTRUCTION,
        timeout_s: float = 30.0,
        max_concurrent: int = 10,
        sleep: Sleep = asyncio.sleep,
        reach: Reach | None = None,
    ) -> None:
        """`timeout_s` limits each request from connecting to the last byte; `sleep` waits between tries; `reach`
        remembers beyond a call that the server is away.

        Raises ModelError when the URL is none or a limit is not positive.
        """
        self._url = _checked(url)
        if not timeout_s > 0 or max_concurrent < 1:
            raise ModelError(
                f"timeout_s must be above 0 and max_concurrent at least 1, not {timeout_s}, {max_concurrent}"
            )
        self._place = str(self._url.copy_with(userinfo=b"")).rstrip("/")
        self._model = model
        self._instruction = instruction
        self._timeout_s = timeout_s
        self._max_concurrent = max_concurrent
        self._sleep = sleep
        self._reach = reach
        self.batch = max_concurrent

    @property
    def scale(self) -> JudgeScale | None:
        """A probability: even odds are the threshold."""
        return JudgeScale(0.5, (0.8, 0.5, 0.2))

    @property
    def label(self) -> str:
        """What scores, in words."""
        return f"{self._model or 'the model'} on the llama.cpp server at {self._place}"

    def cache_model(self, query: str) -> str:
        """Model (as configured, else as the server reports it, else its URL), prompt version and instruction."""
        model = self._model or (None if self._away() else run_to_end(self._reported_model())) or self._place
        digest = hashlib.sha256(self._instruction.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"llama_server:{model}:{PROMPT_VERSION}:{digest}"

    def health(self) -> str:
        """One line on a server that answers `GET /health` within 2 s. Raises ModelError when none does."""
        return run_to_end(self._health())

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """One score per text, in order; equal texts are asked once.

        `detail["outcome"]` says how the score came about, `detail["seconds"]` how long the pair took, retries included.
        A pair that fails is flagged with a cause from `CAUSES`. Once the server cannot be connected to, after the
        retries of one pair, the pairs not yet asked are flagged at once.
        """
        unique = list(dict.fromkeys(texts))
        if not unique:
            return []
        away = self._away()
        if away:
            return [PairScore(None, f"refused: {away}", {"seconds": 0.0}) for _ in texts]
        scored = dict(zip(unique, run_to_end(self._score_all(query, unique)), strict=True))
        return [scored[text] for text in texts]

    async def _score_all(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        gate = asyncio.Semaphore(self._max_concurrent)
        breaker = _Breaker(self._reach, self._place)

        async def one(text: str) -> PairScore:
            async with gate:
                return await self._score_pair(client, breaker, self._body(query, text))

        async with self._client() as client:
            return await asyncio.gather(*(one(text) for text in texts))

    async def _score_pair(self, client: httpx.AsyncClient, breaker: _Breaker, body: bytes) -> PairScore:
        """Ask up to three times, unless the breaker is open, or opens while this pair waits."""
        started = time.perf_counter()
        for attempt in range(TRIES):
            if breaker.error is not None:
                return PairScore(None, breaker.error)
            try:
                scored = score_of_reply(await self._ask(client, body))
                return replace(scored, detail={**(scored.detail or {}), "seconds": time.perf_counter() - started})
            except Failure as caught:
                failure = caught
            if not failure.again or attempt == TRIES - 1:
                break
            await self._sleep(BACKOFF_S * 2**attempt if failure.wait_s is None else failure.wait_s)
        if failure.unreachable:
            breaker.open(failure.error, time.perf_counter() - started)
        return PairScore(None, failure.error, {"seconds": time.perf_counter() - started})

    async def _ask(self, client: httpx.AsyncClient, body: bytes) -> Any:
        """The decoded reply to one request. Raises Failure."""
        try:
            # Over the whole reply: a limit on each read lets a slow drip run on.
            async with asyncio.timeout(self._timeout_s):
                return await read_json(client, "POST", "/v1/chat/completions", body)
        except TimeoutError as error:
            raise Failure(f"timeout: no reply within {self._timeout_s:g} s") from error
        except httpx.ConnectTimeout as error:
            limit = min(CONNECT_S, self._timeout_s)
            raise Failure(f"timeout: no connection to {self._place} within {limit:g} s", unreachable=True) from error
        except httpx.ConnectError as error:
            happened = f"refused: {self._place} takes no connection ({one_line(error)})"
            raise Failure(happened, again=True, unreachable=True) from error
        except httpx.DecodingError as error:
            raise Failure(f"bad reply: {one_line(error)}") from error
        except httpx.TransportError as error:
            happened = f"server error: the connection broke before the reply ended ({one_line(error)})"
            raise Failure(happened, again=True) from error

    def _away(self) -> str | None:
        """Why the server is not asked now, None when it is: one that was away is looked for first, when it is time for that."""
        if self._reach is None:
            return None
        refusal = self._reach.refusal(self._place)
        if refusal is not None or not self._reach.down(self._place):
            return refusal
        started = time.perf_counter()
        try:
            run_to_end(self._get("/health"))
        except Failure as failure:
            if failure.unreachable:
                self._reach.failed(self._place, failure.error, time.perf_counter() - started)
                return self._reach.refusal(self._place)
        self._reach.answered(self._place)
        return None

    async def _health(self) -> str:
        try:
            status = await self._get("/health")
        except Failure as failure:
            raise ModelError(f"No llama.cpp server answers at {self._place}: {failure.error}") from failure
        if not isinstance(status, dict) or status.get("status") != "ok":
            raise ModelError(f"{self._place}/health does not say that a llama.cpp server is ready: {one_line(status)}")
        model = self._model or PurePath(await self._reported_model() or "a model it does not name").name
        return f"llama.cpp server at {self._place}: ok, serves {model}"

    async def _reported_model(self) -> str | None:
        """The first id at /v1/models; None when the server names none or does not answer."""
        try:
            name = (await self._get("/v1/models"))["data"][0]["id"]
        except (Failure, LookupError, TypeError):
            return None
        return name if isinstance(name, str) and name else None

    async def _get(self, path: str) -> Any:
        """The decoded reply to a GET within 2 s. Raises Failure."""
        try:
            async with asyncio.timeout(HEALTH_S), self._client() as client:
                return await read_json(client, "GET", path)
        except (TimeoutError, httpx.ConnectTimeout) as error:
            raise Failure(f"timeout: no reply within {HEALTH_S:g} s", unreachable=True) from error
        except httpx.RequestError as error:
            raise Failure(f"refused: {one_line(error)}", unreachable=True) from error

    def _client(self) -> httpx.AsyncClient:
        timeout = httpx.Timeout(None, connect=min(CONNECT_S, self._timeout_s))
        limits = httpx.Limits(max_connections=self._max_concurrent, max_keepalive_connections=self._max_concurrent)
        return httpx.AsyncClient(base_url=self._url, timeout=timeout, limits=limits)

    def _body(self, query: str, text: str) -> bytes:
        """The request, in ASCII: a lone surrogate reaches the server as an escape and is refused there, not here."""
        user = f"<Instruct>: {self._instruction}\n<Query>: {query}\n<Document>: {text}"
        request: dict[str, Any] = {
            "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": TOP_LOGPROBS,
        }
        if self._model is not None:
            request["model"] = self._model
        return json.dumps(request).encode("ascii")


class _Breaker:
    """Shared by the pairs of one call: set once the server cannot be reached, so that none waits for it in turn."""

    def __init__(self, reach: Reach | None, place: str) -> None:
        self.error: str | None = None
        self._reach, self._place = reach, place

    def open(self, error: str, seconds: float) -> None:
        cause, _, happened = error.partition(": ")
        self.error = f"{cause}: not asked, {happened}"
        if self._reach is not None:
            self._reach.failed(self._place, happened if cause == "refused" else error, seconds)


def _checked(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ModelError(f"{url!r} is not a URL: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ModelError(f"The llama.cpp server's URL must look like http://localhost:8080, not {url!r}")
    return parsed
