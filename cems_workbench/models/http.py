"""Calling a model server so that it can neither hang nor flood: a deadline, retries, bounded concurrency, a breaker.

    deadline     one for the whole call, retries included: headers or a body that drip do not extend it
    retries      after 429, 5xx and failed connections; wait first_wait_s * 2^n, or longer where Retry-After says so
    concurrency  at most `max_concurrent` calls at a time
    breaker      once the server cannot be reached, or refuses key or model, the rest of the batch is not asked; `reach` keeps the
                 first for the calls that follow

A call that fails becomes a `CallError` with one of `CAUSES`; httpx's and the ollama client's errors are told apart here.

Source: PIPELINE.md, "rerank" (max_concurrent, timeout_s, flagged failures).

Which servers could not be connected to, so that a thousand queries do not each find it out anew.

After a connection that failed, a server is not asked again for `SHARE` times as long as finding out took, at least `SHORTEST_S` and at
most `LONGEST_S`. Then one call probes it, with a single try, while others wait for what it finds; an answer of any kind ends the
matter. So a dead server costs a fraction of the time that passes, and one that comes back is used again.

Source: the circuit breaker of Nygard, Release It! (2007).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from cems_workbench.errors import ModelError
from cems_workbench.models.protocol import CAUSES, PairScore

if TYPE_CHECKING:
    import ssl

    import httpx

SHORTEST_S = 1.0
LONGEST_S = 30.0
SHARE = 20.0
PROBE_SECONDS = 10.0
"""A probe of which nothing was heard for so long has ended without saying so."""


@dataclass
class _Down:
    said: str
    due: float
    probed_until: float = 0.0


class Reach:
    """What is known of servers by name; shared by all calls of a process, from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._down: dict[str, _Down] = {}
        self._changed = threading.Condition()

    def down(self, server: str) -> bool:
        """Could it not be connected to when it was last tried?"""
        with self._changed:
            return server in self._down

    def refusal(self, server: str) -> str | None:
        """Why the server is not asked now; None when it is to be asked, and then `failed` or `answered` says how that went."""
        with self._changed:
            while (known := self._down.get(server)) is not None:
                now = self._clock()
                if now < known.probed_until:
                    self._changed.wait(known.probed_until - now)
                elif now < known.due:
                    return f"not asked, since {known.said}"
                else:
                    known.probed_until = now + PROBE_SECONDS
                    return None
            return None

    def failed(self, server: str, said: str, seconds: float) -> None:
        """It could not be connected to, which took so many seconds to find out."""
        with self._changed:
            pause = min(LONGEST_S, max(SHORTEST_S, SHARE * seconds))
            self._down[server] = _Down(said, self._clock() + pause)
            self._changed.notify_all()

    def answered(self, server: str) -> None:
        """Somebody is there, whatever was said."""
        with self._changed:
            if self._down.pop(server, None) is not None:
                self._changed.notify_all()


T = TypeVar("T")

CONNECT_SECONDS = 5.0
CONNECT_SHARE = 0.8
"""Of a deadline, what connecting may take: a server that is away is told from one that is slow."""
LONGEST_WAIT_SECONDS = 10.0
SAID_CHARS = 200
NOT_ASKED = "refused: not asked"


class CallError(ModelError):
    """One call that gave nothing: `str` is "cause: what happened", on one line.

    `again`: worth another try, after `wait_s` seconds at least. `stop`: the next call will fail for the same reason.
    `unreachable`: there was no connection.
    """

    def __init__(
        self, cause: str, what: str, *, again: bool = False, stop: bool = False, wait_s: float = 0.0, unreachable: bool = False
    ) -> None:  # fmt: skip
        self.cause, self.what = cause, one_line(what)
        self.again, self.stop, self.wait_s, self.unreachable = again, stop, wait_s, unreachable
        super().__init__(f"{cause}: {self.what}")

    def at(self, server: str) -> CallError:
        """The same failure, saying where it was."""
        what = f"{server}: {self.what}"
        return CallError(
            self.cause, what, again=self.again, stop=self.stop, wait_s=self.wait_s, unreachable=self.unreachable
        )


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call may take in all, how often it is tried, how the waits between tries are slept, and what is known of servers."""

    timeout_s: float = 30.0
    attempts: int = 3
    first_wait_s: float = 0.25
    sleep: Callable[[float], None] = time.sleep
    reach: Reach | None = None


def call(attempt: Callable[[], Coroutine[Any, Any, T]], patience: Patience, server: str) -> T:
    """What `attempt` returns, tried again where that may help, within `timeout_s` altogether.

    Raises CallError, which names the `server`. `attempt` makes a fresh coroutine every time. A server that `patience.reach` knows to
    be away is not asked, or is asked once when it is time for that.
    """
    reach = patience.reach
    if reach is None:
        return _tried(attempt, patience, server)
    refusal = reach.refusal(server)
    if refusal is not None:
        raise CallError("refused", refusal, stop=True)
    started = time.monotonic()
    try:
        reply = _tried(attempt, replace(patience, attempts=1) if reach.down(server) else patience, server)
    except CallError as failure:
        if failure.unreachable:
            said = failure.what if failure.cause == "refused" else str(failure)
            reach.failed(server, said, time.monotonic() - started)
        else:
            reach.answered(server)
        raise
    reach.answered(server)
    return reply


def _tried(attempt: Callable[[], Coroutine[Any, Any, T]], patience: Patience, server: str) -> T:
    ends = time.monotonic() + patience.timeout_s
    failure = CallError("timeout", f"{server}: there was no time for a single try")
    for tried in range(patience.attempts):
        try:
            return run_to_end(_within(attempt, ends - time.monotonic()))
        except TimeoutError:
            before = f"; before that, {failure.cause}: {failure.what}" if tried else ""
            raise CallError("timeout", f"{server}: no complete reply in {patience.timeout_s:g} s{before}") from None
        except Exception as error:
            failure = call_error(error).at(server)
        wait = max(patience.first_wait_s * 2**tried, failure.wait_s)
        last = tried + 1 == patience.attempts
        if not failure.again or last or wait > min(LONGEST_WAIT_SECONDS, ends - time.monotonic()):
            break
        patience.sleep(wait)
    raise failure


async def _within(attempt: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
    async with asyncio.timeout(max(seconds, 0.0)):
        return await attempt()


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, also where the caller's thread has a running event loop (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def score_pairs(ask: Callable[[str], float], texts: Sequence[str], max_concurrent: int) -> list[PairScore]:
    """One score per text, in order, from `ask`, which raises ModelError for a text that gets none.

    Equal texts are asked once. At most `max_concurrent` run at a time; after a CallError that says stop, the texts not yet
    asked are flagged refused.
    """
    stopped: list[CallError] = []

    def one(text: str) -> PairScore:
        if stopped:
            return PairScore(None, _not_asked(stopped[0]), {"seconds": 0.0})
        started = time.perf_counter()
        try:
            raw, error = ask(text), None
        except ModelError as failure:
            raw, error = None, flagged(failure)
            if isinstance(failure, CallError) and failure.stop:
                stopped.append(failure)
        return PairScore(raw, error, {"seconds": round(time.perf_counter() - started, 4)})

    unique = list(dict.fromkeys(texts))
    pool = ThreadPoolExecutor(max(1, min(max_concurrent, len(unique))), thread_name_prefix="rerank")
    try:
        scored = dict(zip(unique, pool.map(one, unique), strict=True))
        return [scored[text] for text in texts]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C nothing further is begun


def _not_asked(stopped: CallError) -> str:
    said = str(stopped)
    return said if said.startswith(NOT_ASKED) else f"{NOT_ASKED}, since {said}"


def flagged(failure: ModelError) -> str:
    """The error of a pair: the failure's own words, with a cause before them where they name none."""
    said = one_line(str(failure))
    return said if said.partition(":")[0] in CAUSES else f"server error: {said}"


def call_error(error: Exception) -> CallError:
    """The failure behind an exception of httpx or the ollama client. Re-raises what is neither: a bug."""
    import httpx

    if isinstance(error, CallError):
        return error
    if isinstance(error, httpx.ConnectTimeout):
        return CallError("timeout", "the server did not accept the connection in time", stop=True, unreachable=True)
    if isinstance(error, httpx.TimeoutException):
        return CallError("timeout", "the server did not answer in time")
    if isinstance(error, (httpx.ConnectError, ConnectionError)):  # the ollama client raises the latter
        return CallError("refused", "nothing answers at this address", again=True, stop=True, unreachable=True)
    if isinstance(error, httpx.TransportError):
        return CallError("server error", f"the connection broke before the reply was complete: {error}", again=True)
    if isinstance(error, (httpx.HTTPError, httpx.InvalidURL)):
        return CallError("bad reply", str(error) or type(error).__name__)
    if isinstance(error, (ValueError, TypeError, RecursionError)):  # not JSON, or JSON of another shape
        return CallError("bad reply", f"not the JSON that was expected: {error}")
    raise error


def status_error(status: int, said: str, retry_after: str | None = None) -> CallError:
    """The failure behind an HTTP status: 429 and 5xx may pass; a key or model that is refused is refused again."""
    what = f"HTTP {status}: {said}"
    if status == 429:
        wait = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0
        return CallError("rate limited", what, again=True, wait_s=wait)
    if status >= 500:
        return CallError("server error", what, again=True)
    return CallError("refused", what, stop=status in (401, 403, 404))


def client_options(timeout_s: float, secret: str | None = None) -> dict[str, Any]:
    """Keyword arguments of an httpx.AsyncClient whose bad statuses raise CallError; `secret` never stands in one."""
    import httpx

    async def check(response: httpx.Response) -> None:
        if response.status_code >= 400:
            await response.aread()
            said = _said(response)
            said = said.replace(secret, "***") if secret else said
            raise status_error(response.status_code, said, response.headers.get("retry-after"))

    return {
        "timeout": httpx.Timeout(timeout_s, connect=min(CONNECT_SHARE * timeout_s, CONNECT_SECONDS)),
        "event_hooks": {"response": [check]},
        "verify": _certificates(),
    }


@cache
def _certificates() -> ssl.SSLContext:
    """Read from disk once: 50 ms, which is long beside a call."""
    import httpx

    return httpx.create_ssl_context()


def _said(response: httpx.Response) -> str:
    """What a server's error reply says: the message in its JSON, or its text."""
    text = response.text.strip()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return "a page of HTML" if text.startswith("<") else text or "no further words"
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return found if isinstance(found, str) else json.dumps(found)


def one_line(text: str) -> str:
    """Whitespace and control characters as single spaces, cut to `SAID_CHARS` characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= SAID_CHARS else f"{line[: SAID_CHARS - 1]}…"


def sendable(text: str) -> str:
    """The text without lone surrogates, which no JSON body can carry; each becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def server_url(url: str) -> str:
    """The URL with a scheme and without a slash at its end. Raises ModelError when it is not one of http or https."""
    import httpx

    full = url.strip() if "://" in url else f"http://{url.strip()}"
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
    """Host, port and path of a URL, for labels and cache keys: what stands before an @ is a secret."""
    parts = urlsplit(server_url(url))
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


def begun(ask: Callable[[], T]) -> Future[T]:
    """`ask`, begun in a thread of its own: `.result(seconds)` is what it returns or raises, or TimeoutError by then.

    What is given up on runs on unseen and does not keep the process from ending, as a thread of a pool would.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(ask())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="begun", daemon=True).start()
    return future
