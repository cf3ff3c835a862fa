"""One reply of a llama.cpp server: its JSON, or why it is none and whether to ask again.

A status of 5xx or 429 is worth another try, unless 429 asks for a wait that is too long.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from cems_workbench.models.yes_no_reply import one_line

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
