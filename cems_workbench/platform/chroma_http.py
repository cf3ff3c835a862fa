"""Chroma HTTP client whose responses obey `http_limits`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from cems_workbench.platform.http_limits import HEADERS, ResponseError, event_hooks, ssl_context

if TYPE_CHECKING:
    from chromadb.api.client import Client

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
    """`chromadb.HttpClient` without telemetry; `where` may name tenant and database, `timeout_s` defaults to RESPONSE_TIMEOUT_S.

    Raises what Chroma and httpx raise, and ResponseError, also for a server that is too old.
    """
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
