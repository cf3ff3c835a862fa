"""`record`: bytes that pass unchanged, calls that survive a kill, who is refused, and what `import` makes of them."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import chroma_server
import httpx
import llama_cpp_server
import pytest
from llama_cpp_server import LlamaCpp

from cems_workbench.progress import silent
from cems_workbench.records import RowError
from tests.event_loop import run
from workbench_explanations.reading import READER
from workbench_recorder import calls as recorded_calls
from workbench_recorder.proxy import CallsFile, Proxy

if TYPE_CHECKING:
    from conftest import Command

ROOT = Path(__file__).parents[2]
SECRET = "sk-1234567890abcdef"
ZIPPED = gzip.compress(b'{"results": []}')
SAID: dict[str, list[bytes]] = {
    "/length": [b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 4\r\nX-Odd:  a \r\n\r\n", b"ab", b"cd"],
    "/chunks": [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhe",
        b"llo\r\n0\r\nX-Sum: 1\r\n\r\n",
    ],
    "/zip": [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(ZIPPED), ZIPPED],
    "/none": [b"HTTP/1.1 204 No Content\r\n\r\n"],
    "/head": [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"],
    "/wait": [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx"],
    "/close": [b"HTTP/1.0 200 OK\r\n\r\n", b'{"a":', b"1}\n"],
    "/cut": [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf"],
    "/key": [b'HTTP/1.1 401 No\r\nContent-Length: 43\r\n\r\n{"error":"wrong key %s!!"}' % SECRET.encode()],
    "/switch": [b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", b"\x81\x01a"],
}
ENDS = ("/close", "/cut", "/switch")


def scripted(connection: socket.socket, heard: list[bytes]) -> None:
    """Answer each request with what SAID has for its path, in its pieces."""
    held = b""
    with connection, suppress(OSError):
        while data := connection.recv(65536):
            heard.append(data)
            held += data
            while found := re.match(rb"(?s)\w+ (/\w+).*?\r\n\r\n(body|)", held):
                held, path = held[found.end() :], found[1].decode()
                for piece in SAID[path]:
                    connection.sendall(piece)
                if path in ENDS:
                    return


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server with a thread for each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def recording(out: Path, *to: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """The command as a process, and its ports."""
    command = [sys.executable, "-m", "cems_workbench", "record", "--port", "0", "--out", str(out)]
    command += [word for each in to for word in ("--to", each)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        try:
            said = [process.stderr.readline() for _ in to]
            assert all(line.startswith("http://127.0.0.1:") for line in said), said
            yield process, [int(line.split()[0].rpartition(":")[2]) for line in said]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def calls(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


def conversation(port: int, host: str, *requests: bytes) -> bytes:
    """All that comes back on one connection for requests sent at once."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"".join(request.replace(b"HOST", host.encode()) for request in requests))
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def asking(path: str, *headers: str, method: str = "POST", body: str = "body") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "hOst: HOST", *headers, f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def test_bytes_pass_unchanged_and_no_secret_is_written(tmp_path: Path) -> None:
    """Requests arrive as they were sent but for Host; answers too, several on a connection, in any framing."""
    sent: dict[str, list[bytes]] = {
        "several": [asking(path) for path in ("/length", "/chunks", "/zip", "/none", "/length")],
        "HEAD": [asking("/head", method="HEAD", body=""), asking("/length")],
        "Expect": [asking("/wait", "Expect: 100-continue")],
        **{path: [asking(path, "Upgrade: websocket", "Connection: Upgrade", body="")] for path in ENDS},
        "secret": [asking(f"/key?api_key={SECRET}9&k=1", f"Authorization: Bearer {SECRET}")],
    }
    heard: list[bytes] = []
    out = tmp_path / "calls.jsonl"
    with (
        listening(lambda connection: scripted(connection, heard)) as port,
        recording(out, f"http://127.0.0.1:{port}") as (_, (proxy,)),
    ):
        for name, requests in sent.items():
            direct = conversation(port, f"127.0.0.1:{port}", *requests)
            told, heard[:] = b"".join(heard), []
            assert conversation(proxy, f"localhost:{proxy}", *requests) == direct, name
            assert (b"".join(heard), name) == (told, name)
            heard.clear()
        for host in ("evil.example", f"evil.example:{proxy}"):
            assert b"403" in conversation(proxy, host, asking("/length"))[:20]
        assert b"400" in conversation(proxy, "localhost", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")[:20]
    found = calls(out)
    assert [one["answer"] for one in found[:5]] == ["abcd", "hello", '{"results": []}', "", "abcd"]
    assert [(one["path"], one["status"], one.get("cut")) for one in found[7:]] == [
        ("/wait", 201, None),
        ("/close", 200, None),
        ("/cut", 200, True),
        ("/switch", None, True),
        ("/key?api_key=***&k=1", 401, None),
    ]
    assert (found[8]["answer"], found[9]["answer"], found[11]["answer"]) == (
        '{"a":1}\n',
        "half",
        '{"error":"wrong key ***!!"}',
    )
    assert SECRET not in out.read_text() and out.stat().st_mode & 0o077 == 0


def test_nothing_that_was_answered_is_lost_when_it_is_killed(tmp_path: Path) -> None:
    """SIGKILL while four clients ask: each whole answer that a client has is in the file, and a later run adds to it."""

    def echo(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(65536):
                number = data.split()[1][1:]
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + number.rjust(3000))

    answered: list[str] = []
    out = tmp_path / "calls.jsonl"
    with listening(echo) as port, recording(out, f"http://127.0.0.1:{port}") as (process, (proxy,)):

        def client(name: int) -> None:
            with httpx.Client(trust_env=False) as http, suppress(httpx.HTTPError):
                for number in range(100_000):
                    answered.append(http.get(f"http://127.0.0.1:{proxy}/{name}x{number}").text.strip())

        clients = [threading.Thread(target=client, args=(name,)) for name in range(4)]
        for each in clients:
            each.start()
        while len(answered) < 500:
            clients[0].join(0.01)
        process.kill()
        for each in clients:
            each.join(20)
    whole = out.read_text().rpartition("\n")[0].splitlines()
    assert len(answered) >= 500
    assert set(answered) <= {json.loads(line)["answer"].strip() for line in whole}
    with out.open("a") as file:
        file.write('{"recorded_call": 1, "ti')
    with listening(echo) as port, recording(out, f"http://127.0.0.1:{port}") as (_, (proxy,)):
        httpx.get(f"http://127.0.0.1:{proxy}/after", trust_env=False)
    assert json.loads(out.read_text().splitlines()[-1])["path"] == "/after"


def test_another_user_is_refused(tmp_path: Path) -> None:
    """By its user id, which the kernel names; here the proxy is another user's, and with root's rights the client is one too."""

    async def status(user: int, as_user: int) -> bytes:
        proxy = Proxy("http://127.0.0.1:1", CallsFile(tmp_path / "calls.jsonl", str), user, str)
        server = await asyncio.start_server(proxy.answer, "127.0.0.1", 0)
        os.seteuid(as_user)
        try:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        finally:
            os.seteuid(os.getuid())
        writer.write(asking("/length"))
        async with server:
            return (await reader.readline()).split()[1]

    own = os.geteuid()
    assert run(status(own, own)) == b"502"
    assert run(status(own + 1, own)) == b"403"
    if own == 0:
        assert run(status(own, 65534)) == b"403"


def row(path: str, request: Any, answer: Any, **more: Any) -> dict[str, Any]:
    bodies = {"request": request, "answer": answer}
    texts = {name: body if isinstance(body, str) else json.dumps(body) for name, body in bodies.items()}
    time = "2026-05-01T10:00:00+00:00"
    return {"recorded_call": 1, "time": time, "to": "http://api", "path": path, "status": 200, **texts, **more}


def test_searches_of_every_api_are_read_and_other_calls_counted(tmp_path: Path) -> None:
    tea, sea = [0.1, 0.25, -0.5], [0.7, 0.1, 0.2]
    packed = base64.b64encode(struct.pack("<3f", *sea)).decode()
    hits = {"hits": {"hits": [{"_id": "e1", "_score": 2.5, "_source": {"text": "x"}}]}}
    match = {
        "query": {"bool": {"must": [{"match": {"text": {"query": "roll back"}}}], "filter": {"term": {"q": "no"}}}}
    }
    lines = "\n".join(map(json.dumps, ({}, match, {}, {"query": {"multi_match": {"query": "two"}}})))
    points = {"result": [[{"id": 7, "score": 0.9, "payload": {"text": "a"}}], [{"id": 8, "score": 0.8, "payload": {}}]]}
    rows = [
        row("/api/embed", {"model": "m", "input": ["tea", "more"]}, {"embeddings": [tea, [1, 2, 3]]}),
        row("/v1/embeddings", {"input": "sea"}, {"data": [{"index": 0, "embedding": packed}]}),
        row("/v2/memories/search/", {"query": "who", "user_id": "u"}, {"results": [{"id": "m1", "memory": "x", "score": 0.5}]}),
        row("/v1/default/banks/b/memories/recall", {"query": "when"}, {"results": [{"id": "h1", "text": "x"}]}),
        row("/i/_search", match, hits),
        row("/_msearch", lines, {"responses": [hits, {"hits": {"hits": []}}]}),
        row("/collections/c/points/search/batch", {"searches": [{"vector": tea}, {"vector": {"name": "d", "vector": sea}}]}, points),
        row("/collections/c/points/query", {"prefetch": [{"query": [9.0, 9.0]}], "limit": 3}, {"result": {"points": []}}),
        row("/collections/c/points/query", {"query": {"text": "own", "model": "b"}}, {"result": {"points": [{"id": 9, "score": 1}]}}),
        row("/api/v2/c/query", {"query_embeddings": [sea], "where": {"q": "x"}}, {"ids": [["c1"]], "distances": [[0.2]]}),
        row("/memories", {"messages": [{"role": "user", "content": "hi"}]}, {"results": [{"id": "m2", "memory": "x"}]}),
        row("/_bulk", '{"index": {}}\n{"query": "x"}', {"items": [{"index": {"_id": "1"}}]}),
        row("/v1/rerank", {"query": "who", "documents": ["x"]}, {"results": [{"index": 0, "relevance_score": 1}]}),
        row("/i/_search", match, {"error": "down"}, status=503),
    ]  # fmt: skip
    path = tmp_path / "calls.jsonl"
    path.write_text("\n".join([*map(json.dumps, rows), '{"recorded_call": 1, "ti']), "utf-8")
    found = recorded_calls.read(path, silent)
    asked = [(one.query, [hit.memory_id for hit in one.returned]) for one in found.answers]
    assert asked == [
        ("who", ["m1"]), ("when", ["h1"]), ("roll back", ["e1"]), ("roll back", ["e1"]), ("two", []),
        ("tea", ["7"]), ("sea", ["8"]), ("own", ["9"]), ("sea", ["c1"]),
    ]  # fmt: skip
    assert {int(note.split()[0]) for note in found.notes if "calls " in note and "embed texts" in note} == {2}
    assert (
        "3 calls search nothing" in found.notes and "1 calls failed, were cut or were too long to record" in found.notes
    )
    assert [error.row for error in found.errors] == [15]


def test_an_answer_that_explains_itself_is_replayed(tmp_path: Path) -> None:
    """The reader of explanations takes a recorded call as the query and answer that it is."""
    said = json.loads((ROOT / "tests/recordings/explanations/mem0.jsonl").read_text("utf-8").splitlines()[0])
    rows = [
        row("/api/embed", {"input": "x"}, {"embeddings": [[1.0, 2.0]]}),
        row("/search", {"query": said["query"], "explain": True}, {"results": said["results"]}),
    ]
    errors: list[RowError] = []
    (found,) = READER.read(io.StringIO("\n".join(map(json.dumps, rows))), "calls", errors)
    assert (found.query, errors) == (said["query"], [])
    assert {one["id"] for one in said["results"]} <= found.memories.keys()


@pytest.mark.thorough
@pytest.mark.skipif(llama_cpp_server.missing() is not None, reason=str(llama_cpp_server.missing()))
def test_an_agent_of_chroma_and_llama_cpp_is_recorded_and_compared(command: Command, tmp_path: Path) -> None:
    """Real servers and clients: what Chroma answered is the recorded answer of the words that llama.cpp embedded."""
    import chromadb

    texts = {"m1": "The kettle boils.", "m2": "Releases go out on Friday.", "m3": "The cat sleeps on the router."}
    out, store = tmp_path / "calls.jsonl", tmp_path / "s"
    with chroma_server.running(tmp_path / "db") as port, LlamaCpp(embeds=True) as llama, ExitStack() as stack:
        _, (vectors, model) = stack.enter_context(recording(out, f"http://localhost:{port}", llama.url))

        def embedded(words: list[str]) -> list[list[float]]:
            reply = httpx.post(
                f"http://127.0.0.1:{model}/v1/embeddings", json={"input": words, "model": "x"}, timeout=60
            )
            return [one["embedding"] for one in reply.json()["data"]]

        notes = chromadb.HttpClient("127.0.0.1", vectors).create_collection("notes", embedding_function=None)
        notes.add(ids=[*texts], documents=[*texts.values()], embeddings=embedded([*texts.values()]))
        query = "when is the next release"
        answer = notes.query(query_embeddings=embedded([query]), n_results=2)
    (tmp_path / "memories.jsonl").write_text("\n".join(json.dumps({"id": k, "content": v}) for k, v in texts.items()))
    assert command("import", tmp_path / "memories.jsonl", "--store", store).code == 0
    done = command("import", out, "--store", store)
    assert (done.code, "recorded-calls" in done.out) == (0, True), done
    told = command("fidelity", "--recorded", "calls", "--store", store, "--json")
    assert json.loads(told.out), told
    parsed = recorded_calls.read(out, silent)
    assert [(one.query, [hit.memory_id for hit in one.returned]) for one in parsed.answers] == [
        (query, answer["ids"][0])
    ]
