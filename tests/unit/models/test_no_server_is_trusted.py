"""Every client of a server: it follows nobody to another host, reads no more than it should, and repeats no key."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from model_server import HANG, HTML, SLAM, TRUNCATED, ModelServer, Reply, no_sleep, sent, serving

from cems_workbench.errors import WorkbenchError
from cems_workbench.models import http
from cems_workbench.models.chat import OllamaChat, OpenAiChat
from cems_workbench.models.llama_server import LlamaServerReranker
from cems_workbench.models.ollama import OllamaEmbedder, OllamaReranker, installed
from cems_workbench.models.server_embedder import OpenAiEmbedder
from cems_workbench.models.servers import chroma_heartbeat
from cems_workbench.platform import http_limits
from cems_workbench.records import Query
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from workbench_stores.cems_api import CemsApi

KEY = "sk-secret-90210"
SECRET_TEXT = "where the spare key lies"
S = 5.0


def first(scores: Any) -> str:
    """What one pair came to; a failed pair is an error in words."""
    (score,) = scores
    if score.error:
        raise WorkbenchError(score.error)
    return str(score)


def cems(url: str) -> str:
    with CemsApi(parse(url, {"CEMS_API_KEY": KEY}), timeout=S, sleep=no_sleep) as api:
        return str(list(api.answers([Query("q", SECRET_TEXT)])))


def probed(scheme: str, url: str) -> str:
    keys = {"CHROMA_API_KEY": KEY, "QDRANT_API_KEY": KEY}
    source = open_source(parse(f"{url.replace('http', scheme, 1)}/memories", keys), None, S)
    try:
        return str(source.probe())
    finally:
        source.close()


def named(url: str) -> str:
    """With the key as the password in the URL, for clients that take no other."""
    return url.replace("//", f"//me:{KEY}@")


CLIENTS: dict[str, Callable[[str], object]] = {
    "ollama reranker": lambda url: first(
        OllamaReranker(named(url), "m", timeout_s=S, sleep=no_sleep).score(SECRET_TEXT, ["a"])
    ),
    "ollama embedder": lambda url: OllamaEmbedder(named(url), "m", timeout_s=S, sleep=no_sleep).encode([SECRET_TEXT]),
    "ollama chat": lambda url: OllamaChat(named(url), "m", timeout_s=S, sleep=no_sleep).ask("s", SECRET_TEXT),
    "ollama models": lambda url: installed(named(url), S, no_sleep),
    "openai chat": lambda url: OpenAiChat(url, "m", KEY, timeout_s=S, sleep=no_sleep).ask("s", SECRET_TEXT),
    "openai embedder": lambda url: OpenAiEmbedder(url, "m", KEY, timeout_s=S, sleep=no_sleep).encode([SECRET_TEXT]),
    "llama.cpp": lambda url: first(
        LlamaServerReranker(named(url), timeout_s=S, sleep=no_sleep).score(SECRET_TEXT, ["a"])
    ),
    "chroma heartbeat": lambda url: chroma_heartbeat(named(url)),
    "CEMS": cems,
    "Chroma": lambda url: probed("chroma", url),
    "Qdrant": lambda url: probed("qdrant", url),
}
LONG = b'{"x": "' + b"y" * 2_000_000 + b'"}'
FAULTS = {
    "compressed": (Reply(gzip.compress(LONG), headers={"content-encoding": "gzip"}), "compressed"),
    "endless": (Reply(LONG, promised=1_000_000_000), "longer than 1,000,000 bytes"),
    "redirect": (Reply(status=307, headers={"location": "http://elsewhere.example/api"}), "to another host, elsewhere"),
    "moved": (Reply(status=301, headers={"location": "/here"}), "elsewhere on this host"),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_REPLY_BYTES", 1_000_000)
    monkeypatch.setattr(http_limits, "MAX_RESPONSE_BYTES", 1_000_000)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_not_to_be_read_is_not_read_and_said(client: str, fault: str) -> None:
    reply, words = FAULTS[fault]
    with serving(lambda *_: reply) as server:
        said = refused(client, server)
        assert words in said
        assert KEY not in said


def refused(client: str, server: ModelServer) -> str:
    """What a client says where nothing good comes: an error of one line, or what it gives in place of one."""
    try:
        said = str(CLIENTS[client](server.url))
    except WorkbenchError as error:
        said = str(error)
    assert "\n" not in said
    return said


ODD = {
    "html": HTML,
    "cut": TRUNCATED,
    "slam": SLAM,
    "not utf-8": Reply(b'{"x": "\xff\xfe"}'),
    "null": sent(None),
    "list": sent([]),
    "number": sent(1e999),
    "deep": Reply(b"[" * 100_000),
    "empty": Reply(),
    "no content": Reply(status=204),
    "error in words": sent({"error": f"bad key {KEY}"}, 401),
    "error of the server": sent({"error": {"message": f"tried {KEY}", "code": 500}}, 500),
    "teapot": sent({"detail": KEY}, 418),
    "wrong length": sent({"data": [], "embeddings": [], "response": "x" * 10_000, "choices": []}),
    "NaN": Reply(b'{"embeddings": [[NaN, 1]], "data": [{"index": 0, "embedding": [NaN, 1]}], "response": "NaN"}'),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_whatever_a_server_says_is_one_line_without_the_key(client: str) -> None:
    for name, reply in ODD.items():
        with serving(lambda *_, reply=reply: reply) as server:
            assert KEY not in refused(client, server), name


def test_a_key_that_a_model_repeats_does_not_travel() -> None:
    """What a model says becomes part of the trace, of bundles and of evidence."""
    with serving(lambda *_: sent({"choices": [{"message": {"content": f"my key is {KEY}"}}]})) as server:
        assert OpenAiChat(server.url, "m", KEY, sleep=no_sleep).ask("s", "u") == "my key is ***"
    answer = {"results": [{"id": "1", "content": f"said {KEY}", "score": 0.5}], "mode": "vector"}
    with serving(lambda *_: Reply(json.dumps(answer).encode())) as server:
        assert KEY not in cems(server.url)


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "S", 0.2)
    with serving(lambda *_: HANG) as server:
        for client in CLIENTS:
            if client != "chroma heartbeat":  # its own time is longer
                said = refused(
                    client, server
                )  # once: which limit is met first, the socket's or the whole answer's, is by chance
                assert any(word in said for word in ("timeout", "in time", "no answer", "0.2 s")), (client, said)
