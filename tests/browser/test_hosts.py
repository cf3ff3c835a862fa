"""Accepted host names: a page under a name rebound to this machine gets no session (DNS rebinding)."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit


def answered(server: str, path: str, host: str, **headers: str) -> int:
    """The status of what the app answers to a request for this name, its origin the same."""
    place = urlsplit(server)
    connection = http.client.HTTPConnection("localhost", place.port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": host, "Origin": f"http://{host}", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def test_only_configured_names_get_a_session(server: str) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    port = urlsplit(server).port
    hosts = ("localhost", "127.0.0.1", "evil.example", "localhost.evil.example")
    assert [answered(server, "/_stcore/stream", f"{host}:{port}", **upgrade) for host in hosts] == [101, 101, 403, 403]


def test_streamlits_own_agent_endpoints_are_off(server: str) -> None:
    """What they would do is what `mcp` does with a store, and not with pages (docs/internals/decisions/0023)."""
    at = urlsplit(server)
    for path, status in (("interact", 403), ("mcp", 400)):
        connection = http.client.HTTPConnection("localhost", at.port, timeout=30)
        try:
            connection.request("POST", f"/_stcore/agent/{path}", "{}", {"Content-Type": "application/json"})
            reply = connection.getresponse()
            assert reply.status == status and b"does not serve the agent API" in reply.read()
        finally:
            connection.close()
