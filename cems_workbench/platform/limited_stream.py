"""A response body that is refused above a number of bytes; apart from `http_limits`, which loads no httpx."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx


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
