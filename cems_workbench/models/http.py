"""HTTP client for model servers, with bounded time and size of each call.

    response     limited in size (`http_limits`), from the server itself; quoted without the key and secrets of the URL
    deadline     one for the whole call, retries included, or one for each try; headers or a body that drip do not extend it
    retries      after 429, 5xx and failed connections; wait first_wait_s * 2^n, or longer if Retry-After says so (tenacity)
    concurrency  at most `max_concurrent` calls at a time in `score_pairs`
    breaker      once the server cannot be reached, or refuses key or model, the rest of the batch is not asked; a shared
                 `CircuitBreaker` keeps the first for the calls that follow: for `PAUSE_FACTOR` times as long as the failure took, at least
                 `MIN_PAUSE_S` and at most `MAX_PAUSE_S`. Then one call tries the server, while others wait for its outcome, and any
                 response closes the circuit: a dead server costs a fraction of the time, and one that returns is used again

A call that fails becomes a `CallError` with one of `CAUSES`; httpx's and the ollama client's errors are classified here. A
backend that knows more of a failure passes another `classify`.

Source: docs/internals/specification.md, "rerank" (max_concurrent, timeout_s, flagged failures); Nygard, Release It! (2007).
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from cems_workbench.errors import ModelError, one_line, server_message
from cems_workbench.models.protocol import CAUSES, PairScore

if TYPE_CHECKING:
    import httpx
    import tenacity


T = TypeVar("T")

CONNECT_TIMEOUT_S = 5.0
CONNECT_SHARE = 0.8
"""Share of a deadline that connecting may take: distinguishes an unreachable server from a slow one."""
MAX_RETRY_WAIT_S = 10.0
MIN_SECRET_CHARS = 4
"""A user name or a value in a URL that is shorter is no secret: taking it out would tear words apart."""
NOT_ASKED = "refused: not asked"
MAX_REPLY_BYTES = 100_000_000
"""Limit for a model server's response; the vectors of a batch are some megabytes."""


@dataclass(eq=False, repr=False)
class CallError(ModelError):
    """A failed call: `str` is "cause: what happened", on one line. `again`: worth another try, after `wait_s` seconds
    at least. `stop`: the next call will fail for the same reason. `unreachable`: there was no connection."""

    cause: str
    what: str
    again: bool = False
    stop: bool = False
    wait_s: float = 0.0
    unreachable: bool = False

    def __post_init__(self) -> None:
        self.what = one_line(self.what)
        super().__init__(f"{self.cause}: {self.what}")

    def reworded(self, what: str) -> CallError:
        """The same failure with another message."""
        return replace(self, what=what)


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Time limits of a call, in seconds, and the number of tries. `timeout_s` is for all tries together, or for each
    where `per_try`."""

    timeout_s: float = 30.0
    tries: int = 3
    first_wait_s: float = 0.25
    per_try: bool = False

    @property
    def connect_s(self) -> float:
        """Share of it that connecting may take: distinguishes an unreachable server from a slow one."""
        return min(CONNECT_SHARE * self.timeout_s, CONNECT_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A model server and how it is called; may be called by several threads at once.

    `url` is as configured and checked when it is first used. `prefix` stands before host and port in messages ("Ollama at "),
    `sleep` waits between tries, `classify` makes a CallError of what a try raised, or re-raises a bug; `most` are the bytes
    of a reply, if fewer than `MAX_REPLY_BYTES`. Neither `secret` nor what
    the URL carries before an @ or in its query appears in a message.
    """

    url: str = field(repr=False)
    limits: CallLimits = CallLimits()
    prefix: str = ""
    breaker: CircuitBreaker | None = None
    sleep: Callable[[float], None] = time.sleep
    secret: str | None = field(default=None, repr=False)
    most: int | None = None
    classify: Callable[[Exception, ModelServer], CallError] | None = None

    @property
    def base_url(self) -> str:
        """The URL with a scheme and without a slash at its end. Raises ModelError if it is invalid."""
        return server_url(self.url)

    def api(self, path: str) -> str:
        """The address of `path` on an OpenAI-compatible server: below the URL's own path, or /v1 without one; its query
        stays. Raises ModelError if the URL is invalid."""
        return self._below(urlsplit(self.base_url).path.rstrip("/") or "/v1", path)

    def beside_api(self, path: str) -> str:
        """The URL of `path` next to /v1 of an OpenAI-compatible server. Raises ModelError if the base URL is invalid."""
        return self._below(urlsplit(self.base_url).path.rstrip("/").removesuffix("/v1"), path)

    def _below(self, folder: str, path: str) -> str:
        parts = urlsplit(self.base_url)
        # A name and password in the URL would replace the key.
        netloc = parts.netloc.rpartition("@")[2] if self.secret else parts.netloc
        return parts._replace(netloc=netloc, path=f"{folder}/{path}").geturl()

    def redacted(self, text: str) -> str:
        """The text with the key, and what the URL carries before an @ or in its query, as ***."""
        parts = urlsplit(self.url if "://" in self.url else f"http://{self.url}")
        user, _, password = parts.netloc.rpartition("@")[0].partition(":")
        short = {user, *(value for _, value in parse_qsl(parts.query))}
        secrets = {self.secret or "", password} | {word for word in short if len(word) >= MIN_SECRET_CHARS}
        # Longest first: a secret that contains another one is replaced whole.
        for secret in sorted((secrets | {unquote(word) for word in secrets}) - {""}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def decoded(self, response: httpx.Response) -> Any:
        """The JSON of a reply with secrets redacted, because a model's reply is stored. Raises ValueError for other text."""
        return json.loads(self.redacted(response.text))

    @property
    def name(self) -> str:
        """The server's address for messages, without user name and password. Raises ModelError if the URL is invalid."""
        return f"{self.prefix}{server_name(self.url)}"

    def client_options(self, *, raise_for_status: bool = True) -> dict[str, Any]:
        """Keyword arguments of an httpx.AsyncClient within the limits; bad statuses raise CallError unless that is switched off."""
        import httpx

        from cems_workbench.platform.http_limits import HEADERS, async_hook, ssl_context

        # Below that it logs URLs whole, with what is secret in them.
        logging.getLogger("httpx").setLevel(logging.WARNING)

        async def check(response: httpx.Response) -> None:
            if response.status_code >= 400:
                # httpx gives the text only after the body was read.
                await response.aread()
                said = self.redacted(server_message(response.text))
                raise status_error(response.status_code, said, response.headers.get("retry-after"))

        hooks = [async_hook(self.most or MAX_REPLY_BYTES), *([check] if raise_for_status else [])]
        return {
            "timeout": httpx.Timeout(self.limits.timeout_s, connect=self.limits.connect_s),
            "event_hooks": {"response": hooks},
            "headers": HEADERS,
            # A redirect would send key and query to a host that the user did not name.
            "follow_redirects": False,
            "verify": ssl_context(),
        }

    def call(self, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `request`, with retries within the limits. `request` makes a fresh coroutine for every try. A
        server whose circuit is open is not asked, or is asked once when it is time for that. Raises CallError, which
        names the server, and ModelError if its URL is invalid."""
        name = self.name
        if self.breaker is None:
            return self._with_retries(request, self.limits.tries)
        if (refusal := self.breaker.refusal(name)) is not None:
            raise CallError("refused", refusal, stop=True)
        started = time.monotonic()
        try:
            # A half-open circuit allows one trial.
            reply = self._with_retries(request, 1 if self.breaker.is_open(name) else self.limits.tries)
        except CallError as failure:
            if failure.unreachable:
                reason = failure.what if failure.cause == "refused" else str(failure)
                self.breaker.failed(name, reason, time.monotonic() - started)
            else:  # an error status is an answer too: the server can be reached
                self.breaker.answered(name)
            raise
        self.breaker.answered(name)
        return reply

    def _with_retries(self, request: Callable[[], Coroutine[Any, Any, T]], tries: int) -> T:
        import tenacity

        limits, failures = self.limits, list[CallError]()
        # One deadline for all tries: a slow body does not extend it.
        ends = math.inf if limits.per_try else time.monotonic() + limits.timeout_s

        def attempt() -> T:
            try:
                return run_to_end(_within(request, min(limits.timeout_s, ends - time.monotonic())))
            except Exception as error:
                failure = _unread(error, self) or (self.classify or call_error)(error, self)
                if (told := self.redacted(failure.what)) != failure.what:
                    failure = failure.reworded(told)
                if isinstance(error, TimeoutError) and failures and not limits.per_try:
                    failure = failure.reworded(f"{failure.what}; before that, {failures[-1]}")
                failures.append(failure)
                # `from None`: the message before redaction is not shown as the cause either.
                raise failure from (None if isinstance(error, CallError) else error)

        def wait(state: tenacity.RetryCallState) -> float:
            return max(tenacity.wait_exponential(limits.first_wait_s)(state), failures[-1].wait_s)

        def stop(state: tenacity.RetryCallState) -> bool:
            too_long = state.upcoming_sleep > min(MAX_RETRY_WAIT_S, ends - time.monotonic())
            return too_long or state.attempt_number >= tries

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, CallError) and error.again),
            wait=wait,
            stop=stop,
            sleep=self.sleep,
            reraise=True,
        )
        return retrying(attempt)


async def ask_json(server: ModelServer, url: str, body: Any = None) -> Any:
    """The decoded reply to a GET, or with a body to a POST, that carries the server's secret as the key.

    Raises CallError, also for an error that comes with HTTP 200, httpx errors and ValueError as they come, ModelError for a key that no
    header carries.
    """
    import httpx

    method, headers = "GET" if body is None else "POST", authorization(server.secret or "")
    async with httpx.AsyncClient(**server.client_options()) as client:
        response = await client.request(method, url, json=body, headers=headers)
    reply = server.decoded(response)
    # Some servers send an error with HTTP 200.
    if isinstance(reply, dict) and reply.get("error"):
        error, said = reply["error"], server.redacted(server_message(response.text))
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, int) and code >= 400:
            raise status_error(code, said)
        raise CallError("server error", f"HTTP {response.status_code} with an error: {said}")
    return reply


async def _within(request: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
    import asyncio

    # httpx's timeouts are per read: a body that drips would never reach them.
    async with asyncio.timeout(max(seconds, 0.0)):
        return await request()


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, even if the caller's thread has a running event loop (a notebook)."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # `asyncio.run` refuses a thread whose event loop is running.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def score_pairs(score: Callable[[str], PairScore], texts: Sequence[str], max_concurrent: int) -> list[PairScore]:
    """One score per text, in order, from `score`, which may raise ModelError for a text; `detail["seconds"]` says how
    long it took. Equal texts are scored once. At most `max_concurrent` run at a time; after a CallError that says stop,
    the texts not yet asked are flagged refused."""
    stopped: list[CallError] = []

    def timed(text: str) -> PairScore:
        if stopped:
            said = str(stopped[0])
            said = said if said.startswith(NOT_ASKED) else f"{NOT_ASKED}, since {said}"
            return PairScore(None, said, {"seconds": 0.0})
        started = time.perf_counter()
        try:
            scored = score(text)
        except ModelError as failure:
            scored = PairScore(None, flagged(failure))
            stopped.extend([failure] if isinstance(failure, CallError) and failure.stop else [])
        return replace(scored, detail={**(scored.detail or {}), "seconds": round(time.perf_counter() - started, 4)})

    unique = list(dict.fromkeys(texts))
    pool = ThreadPoolExecutor(max(1, min(max_concurrent, len(unique))), thread_name_prefix="rerank")
    try:
        scored = dict(zip(unique, pool.map(timed, unique), strict=True))
        return [scored[text] for text in texts]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C no further call starts


def flagged(failure: ModelError) -> str:
    """The error of a pair: the failure's own words, with a cause before it if it names none."""
    said = one_line(str(failure))
    return said if said.partition(":")[0] in CAUSES else f"server error: {said}"


def call_error(error: Exception, server: ModelServer) -> CallError:
    """The failure behind an exception of httpx or the ollama client, naming the server. Re-raises any other exception: a bug."""
    import httpx

    if isinstance(error, CallError):
        return error.reworded(f"{server.name}: {error.what}")
    away = {"stop": True, "unreachable": True}
    failures: tuple[tuple[Any, str, str, dict[str, bool]], ...] = (  # the first that it is an instance of
        (TimeoutError, "timeout", f"no complete reply in {server.limits.timeout_s:g} s", {}),
        (httpx.ConnectTimeout, "timeout", "the server did not accept the connection in time", away),
        (httpx.TimeoutException, "timeout", "the server did not answer in time", {}),
        # The ollama client raises the latter.
        ((httpx.ConnectError, ConnectionError), "refused", "nothing answers at this address", away | {"again": True}),
        (
            httpx.TransportError,
            "server error",
            f"the connection broke before the reply was complete: {error}",
            {"again": True},
        ),
        ((httpx.HTTPError, httpx.InvalidURL), "bad reply", str(error) or type(error).__name__, {}),
        # Not JSON, or JSON of another shape.
        ((ValueError, TypeError, RecursionError), "bad reply", f"not the JSON that was expected: {error}", {}),
    )
    for kinds, cause, what, of_call in failures:
        if isinstance(error, kinds):
            return CallError(cause, f"{server.name}: {what}", **of_call)
    raise error


def _unread(error: Exception, server: ModelServer) -> CallError | None:
    """The failure of an unreadable reply, for every backend; None for any other exception."""
    from cems_workbench.platform.http_limits import ResponseError

    return CallError("bad reply", f"{server.name}: {error}") if isinstance(error, ResponseError) else None


def status_error(status: int, said: str, retry_after: str | None = None) -> CallError:
    """The failure behind an HTTP status: 429 and 5xx may pass; a key or model that is refused is refused again."""
    what = f"HTTP {status}: {said}"
    if status == 429:
        wait = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0
        what = f"asks to wait {wait:g} s ({what})" if wait > MAX_RETRY_WAIT_S else what
        return CallError("rate limited", what, again=True, wait_s=wait)
    if status >= 500:
        return CallError("server error", what, again=True)
    return CallError("refused", what, stop=status in (401, 403, 404))


def authorization(key: str) -> dict[str, str]:
    """The header that carries an API key, none for an empty one. Raises ModelError for characters that no header carries."""
    if not key.isascii() or not key.isprintable():
        raise ModelError("the API key has characters that no key has; was it pasted whole?")
    return {"Authorization": f"Bearer {key}"} if key else {}


def sendable(text: str) -> str:
    """The text without lone surrogates, which no JSON body can carry; each becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def server_url(url: str, scheme: str | None = "http") -> str:
    """The URL without a slash at its end, with `scheme` if it has none. Raises ModelError if it is not http or https."""
    import httpx

    full = url.strip() if "://" in url or scheme is None else f"{scheme}://{url.strip()}"
    try:
        parts = httpx.URL(full)
        good = parts.scheme in ("http", "https") and bool(parts.host.strip()) and urlsplit(full).port != 0
    except (httpx.InvalidURL, ValueError):
        good = False
    if not good or any(char.isspace() for char in full):
        asked = one_line(url.rpartition("@")[2]) or "an empty text"
        raise ModelError(f"{asked} is not the URL of a server; one looks like http://localhost:11434")
    return full.rstrip("/")


def server_name(url: str) -> str:
    """Host, port and path of a URL, for labels and cache keys; user name and password are secrets."""
    parts = urlsplit(server_url(url))
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


MIN_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
PAUSE_FACTOR = 20.0
TRIAL_TIMEOUT_S = 10.0
"""A half-open trial that takes longer is taken to have ended without an outcome."""


@dataclass
class _OpenCircuit:
    reason: str
    due: float
    trial_until: float = 0.0


class CircuitBreaker:
    """A circuit per server, by name; shared by all calls of a process, from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, _OpenCircuit] = {}
        self._changed = threading.Condition()

    def is_open(self, server: str) -> bool:
        """Whether the last attempt to connect failed."""
        with self._changed:
            return server in self._open

    def refusal(self, server: str) -> str | None:
        """Why the server is not asked now; None when it is to be asked, and then `failed` or `answered` says how that
        went. Waits up to `TRIAL_TIMEOUT_S` while another call tries the server."""
        with self._changed:
            while (circuit := self._open.get(server)) is not None:
                now = self._clock()
                if now < circuit.trial_until:
                    # Another call tries the server: its outcome is this call's too.
                    self._changed.wait(circuit.trial_until - now)
                elif now < circuit.due:
                    return f"not asked, since {circuit.reason}"
                else:
                    circuit.trial_until = now + TRIAL_TIMEOUT_S
                    return None
            return None

    def failed(self, server: str, reason: str, seconds: float) -> None:
        """Connecting failed after this many seconds: open its circuit."""
        with self._changed:
            pause = min(MAX_PAUSE_S, max(MIN_PAUSE_S, PAUSE_FACTOR * seconds))
            self._open[server] = _OpenCircuit(reason, self._clock() + pause)
            self._changed.notify_all()

    def answered(self, server: str) -> None:
        """The server responded, with any status: close its circuit."""
        with self._changed:
            if self._open.pop(server, None) is not None:
                self._changed.notify_all()
