"""A client of a Chroma server whose replies are held to `replies`.

Chroma's client asks who it is while it is made, before it can be bound, so that is asked here first: a server that answers it badly is not
asked again. One that answers differently the second time is bound from its third answer on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from cems_workbench.platform.http_limits import HEADERS, ReplyError, certificates, event_hooks

if TYPE_CHECKING:
    from chromadb.api.client import Client

IDENTITY = "/api/v2/auth/identity"
VERSION = "/api/v2/version"
OLDEST = 1
"""The first version of the server whose answers this client understands; of an older one it takes a missing collection for a failure."""
IDENTITY_SECONDS = 10.0
ANSWER_SECONDS = 30.0
"""How long an answer may keep anybody waiting; Chroma's client waits for ever. A portion of vectors takes a server a second or two."""


def chroma_client(
    host: str,
    port: int,
    secure: bool,
    headers: Mapping[str, str] | None = None,
    seconds: float | None = None,
    **where: str,
) -> Client:
    """What `chromadb.HttpClient` gives, without telemetry; `where` may name tenant and database.

    An answer is waited for `seconds`, by default ANSWER_SECONDS.

    Raises what Chroma and httpx raise, and ReplyError, of a server that is too old too.
    """
    import chromadb
    import httpx
    from chromadb.config import Settings

    place = f"http{'s' if secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"
    with httpx.Client(
        timeout=IDENTITY_SECONDS,
        headers={**HEADERS, **(headers or {})},
        event_hooks=event_hooks(),
        verify=certificates(),
    ) as asking:
        if old := too_old(asking.get(f"{place}{VERSION}").text):
            raise ReplyError(old)
        asking.get(f"{place}{IDENTITY}")
    settings = Settings(anonymized_telemetry=False)
    # Without TLS there is nothing to verify, and Chroma's client, which follows no redirect, would read all certificates anew.
    if not secure:
        settings.chroma_server_ssl_verify = False
    client = chromadb.HttpClient(host, port, secure, dict(headers or {}), settings, **where)
    session: httpx.Client = cast("Any", client)._server._session
    session.event_hooks = cast("dict[str, list[Callable[..., Any]]]", event_hooks())
    session.headers.update(HEADERS)
    session.timeout = httpx.Timeout(seconds or ANSWER_SECONDS)
    return cast("Client", client)


def too_old(version: object) -> str:
    """Why a server of this version, as it says it itself, cannot be used; empty where it can, or says nothing of the kind."""
    found = re.match(r'"?((\d+)\.[\w.]+)', version) if isinstance(version, str) else None
    return f"it is version {found[1]}, and {OLDEST}.0 or newer is needed" if found and int(found[2]) < OLDEST else ""
