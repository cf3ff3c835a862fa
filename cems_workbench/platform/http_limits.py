"""Limits of HTTP replies in bytes, also of one that is read as it comes; the headers and transport of clients, Chroma's too."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import httpx

from cems_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    import ssl

    from chromadb.api.client import Client


class LimitedStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Counts what is read of a stream, and raises `too_long` above `max_bytes`."""

    def __init__(self, stream: Any, max_bytes: int, too_long: Exception) -> None:
        self._stream, self._max_bytes, self._too_long, self._bytes_read = stream, max_bytes, too_long, 0

    def _count(self, part: bytes) -> bytes:
        self._bytes_read += len(part)
        if self._bytes_read > self._max_bytes:
            raise self._too_long
        return part

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            yield self._count(part)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield self._count(part)

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


MAX_RESPONSE_BYTES = 256_000_000
"""A batch of 4,000 vectors is about 100 MB of JSON."""
# Compression is not requested, so that a compressed body can be refused.
HEADERS = {"Accept-Encoding": "identity"}

Hook = Callable[["httpx.Response"], None]
AsyncHook = Callable[["httpx.Response"], Awaitable[None]]


class ResponseError(WorkbenchError):
    """A refused response; the message contains no secrets of the server."""


@cache
def ssl_context() -> ssl.SSLContext:
    """The `verify` argument of every httpx client, loaded once: loading takes 50 ms."""
    import httpx

    return httpx.create_ssl_context()


def limit_response(response: httpx.Response, max_bytes: int) -> None:
    """Limit an unread response body to `max_bytes`. Raises ResponseError for a redirect or a compressed body."""

    # The request, with its key, would go to a host that the user did not name.
    if response.has_redirect_location:
        here, there = response.request.url, response.request.url.join(response.headers["Location"])
        where = "elsewhere on this host" if there.netloc == here.netloc else f"to another host, {there.netloc.decode()}"
        raise ResponseError(f"HTTP {response.status_code} of {here.netloc.decode()} sends {where}: not followed")
    # A few kilobytes can expand to gigabytes.
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise ResponseError("the reply is compressed, which was not asked for: not read")
    # Wrapped before the body is read: Content-Length may be missing or wrong.
    response.stream = LimitedStream(
        response.stream, max_bytes, ResponseError(f"the reply is longer than {max_bytes:,} bytes: not read to its end")
    )


def event_hooks() -> dict[str, list[Hook]]:
    """`event_hooks` of an httpx.Client with responses of at most MAX_RESPONSE_BYTES."""
    return {"response": [lambda response: limit_response(response, MAX_RESPONSE_BYTES)]}


def async_hook(max_bytes: int) -> AsyncHook:
    """The response hook of an httpx.AsyncClient."""

    async def hook(response: httpx.Response) -> None:
        limit_response(response, max_bytes)

    return hook


def connection_reason(error: BaseException | None) -> str | None:
    """A message for an httpx connection error; None for any other error."""
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx.ConnectError):
        return "nothing answers at this address"
    return f"the connection broke: {error}" if isinstance(error, httpx.TransportError) else None


IDENTITY_PATH = "/api/v2/auth/identity"
VERSION_PATH = "/api/v2/version"
MIN_SERVER_MAJOR = 1
"""Oldest supported major version of the server; the client mistakes a missing collection on an older one for a failure."""
IDENTITY_TIMEOUT_S = 10.0
RESPONSE_TIMEOUT_S = 30.0
"""Default response timeout; Chroma's client has none. A batch of vectors takes a server a second or two."""


def chroma_client(
    host: str,
    port: int,
    secure: bool,
    headers: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    **where: str,
) -> Client:
    """`chromadb.HttpClient` without telemetry; `where` may name tenant and database, `timeout_s` defaults to
    RESPONSE_TIMEOUT_S. Raises what Chroma and httpx raise, and ResponseError, also for a server that is too old."""
    import chromadb
    import httpx
    from chromadb.config import Settings

    url = f"http{'s' if secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"
    # Chroma's constructor requests the identity before its session can be limited, so a limited client requests it first.
    with httpx.Client(
        timeout=IDENTITY_TIMEOUT_S,
        headers={**HEADERS, **(headers or {})},
        event_hooks=event_hooks(),
        verify=ssl_context(),
    ) as probe:
        if problem := version_problem(probe.get(f"{url}{VERSION_PATH}").text):
            raise ResponseError(problem)
        probe.get(f"{url}{IDENTITY_PATH}")
    settings = Settings(anonymized_telemetry=False)
    # Without TLS there is nothing to verify, and Chroma's client would load all certificates again.
    if not secure:
        settings.chroma_server_ssl_verify = False
    client = chromadb.HttpClient(host, port, secure, dict(headers or {}), settings, **where)
    session: httpx.Client = cast("Any", client)._server._session
    session.event_hooks = cast("dict[str, list[Callable[..., Any]]]", event_hooks())
    session.headers.update(HEADERS)
    session.timeout = httpx.Timeout(timeout_s or RESPONSE_TIMEOUT_S)
    return cast("Client", client)


def version_problem(version: object) -> str:
    """Why a server that reports this version cannot be used; empty if it can, or if the text is not a version."""
    match = re.match(r'"?((\d+)\.[\w.]+)', version) if isinstance(version, str) else None
    return (
        f"it is version {match[1]}, and {MIN_SERVER_MAJOR}.0 or newer is needed"
        if match and int(match[2]) < MIN_SERVER_MAJOR
        else ""
    )
