"""HTTP response limits of every client in the workbench, enforced before a body is read.

    redirect      refused: the request would go to a host that the user did not name
    size          counted while streaming, so that an endless body does not fill memory
    compression   not requested, and refused: a few kilobytes can expand to gigabytes

`HEADERS` and `event_hooks` fit every httpx client, also those inside other libraries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING

from cems_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    import ssl

    import httpx

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
    from cems_workbench.platform.limited_stream import LimitedStream

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
