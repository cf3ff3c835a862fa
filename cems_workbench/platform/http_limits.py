"""What every HTTP client here holds a server's reply to, before its body is read.

    redirect      never followed: what is sent would go to a host that nobody named
    size          counted as it comes; a server that does not end fills no memory
    compression   not asked for, and refused: a few kilobytes can become gigabytes

`HEADERS` and `event_hooks` are for the clients of httpx, also for those inside of others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx

from cems_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    import ssl

MOST_BYTES = 256_000_000
"""The vectors of a batch of 4,000 memories are some 100 MB of JSON."""
HEADERS = {"Accept-Encoding": "identity"}

Hook = Callable[[httpx.Response], None]
AsyncHook = Callable[[httpx.Response], Awaitable[None]]


class ReplyError(WorkbenchError):
    """A reply that is not read, and why, in a few words that name no server's own secrets."""


@cache
def certificates() -> ssl.SSLContext:
    """The `verify` of every client of httpx, read from disk once: 50 ms, which is long beside a call."""
    return httpx.create_ssl_context()


def bound(response: httpx.Response, most: int) -> None:
    """Let no more than `most` bytes be read of a reply whose body has not begun. Raises ReplyError for one that is not to be read."""
    if response.has_redirect_location:
        here, there = response.request.url, response.request.url.join(response.headers["Location"])
        where = "elsewhere on this host" if there.netloc == here.netloc else f"to another host, {there.netloc.decode()}"
        raise ReplyError(f"HTTP {response.status_code} of {here.netloc.decode()} sends {where}: not followed")
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise ReplyError("the reply is compressed, which was not asked for: not read")
    response.stream = _Counted(response.stream, most)


def event_hooks() -> dict[str, list[Hook]]:
    """`event_hooks` of an httpx.Client whose replies have at most MOST_BYTES."""
    return {"response": [lambda response: bound(response, MOST_BYTES)]}


def async_hook(most: int) -> AsyncHook:
    """The hook of an httpx.AsyncClient on its responses."""

    async def hook(response: httpx.Response) -> None:
        bound(response, most)

    return hook


class _Counted(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, stream: Any, most: int) -> None:
        self._stream, self._most, self._seen = stream, most, 0

    def _count(self, part: bytes) -> bytes:
        self._seen += len(part)
        if self._seen > self._most:
            raise ReplyError(f"the reply is longer than {self._most:,} bytes: not read to its end")
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


def connection_reason(error: BaseException | None) -> str | None:
    """What an error of httpx says of the connection; None for any other."""
    if isinstance(error, httpx.TimeoutException):
        return "it did not answer in time"
    if isinstance(error, httpx.ConnectError):
        return "nothing answers at this address"
    return f"the connection broke: {error}" if isinstance(error, httpx.TransportError) else None
