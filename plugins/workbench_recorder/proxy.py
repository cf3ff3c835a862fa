"""`record`: an HTTP proxy for this user alone that records what an agent asks an API, and what it answers.

One connection of the agent is one connection to the API. Bytes pass as they come, with their chunks, trailers and compression; h11 reads
along and says where a request or an answer ends. One thing is changed: the header Host names the API. A line is in the file before the last
byte of its answer is sent, so whoever has an answer finds it recorded, also after a SIGKILL; a loss of power may cost what was in no disk.

No header is written. In URLs and bodies *** stands for what fields named like a key hold, and for what headers named like one held.
`calls.py` reads the file, a call a line:

    {"recorded_call": 1, "time", "ms", "to", "method", "path", "status", "request", "answer", "left_out"?: {"answer": why}, "cut"?: true}
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
import struct
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11

from cems_workbench.errors import InputError
from workbench_recorder.calls import MARK, is_call

HOST = "127.0.0.1"
CONNECT_S = 10.0
PIECE, MAX_HEAD, MAX_BODY = 1 << 16, 1 << 18, 1 << 24
"""Bytes read at once, of the head of a request or an answer, and of a body that is recorded."""
_WORDS = ("key", "passw", "secret", "credential", "authorization", "token")
_NAMES = r"[\w-]*(?:api[_-]?key|password|passwd|secret|credentials?|authorization|(?:access|auth|refresh|id)[_-]?token)"
_IN_BODY = re.compile(rf'("{_NAMES}"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE)
_IN_URL = re.compile(rf"([?&](?:{_NAMES}|key|token|signature)=)[^&]+", re.IGNORECASE)
_IN_HEADER = re.compile(rb"auth|key|token|secret|cookie|passw|credential", re.IGNORECASE)
_MIN_SECRET = 6
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HOST_LINE = re.compile(rb"(?im)^(host:[ \t]*)[^\r\n]*")
_LOCAL = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)

Say = Callable[[str], None]
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class _Body:
    encoding: str
    size: int = 0
    parts: list[bytes] = field(default_factory=list)

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if self.size <= MAX_BODY:
            self.parts.append(bytes(data))

    def text(self) -> str:
        """The body as a text. Raises ValueError with the reason why it is not recorded."""
        raw, size = b"".join(self.parts), self.size
        if self.encoding in ("gzip", "x-gzip", "deflate") and size <= MAX_BODY:
            try:
                raw = zlib.decompressobj(47).decompress(raw, MAX_BODY + 1)
            except zlib.error:
                raise ValueError(f"{self.encoding} that cannot be read") from None
            size = len(raw)
        elif self.encoding not in ("", "identity"):
            raise ValueError(f"encoded as {self.encoding[:20]}; gzip and deflate are read")
        if size > MAX_BODY:
            raise ValueError(f"more than the {MAX_BODY:,} bytes that are recorded")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{size:,} bytes that are no text") from None


def _body(event: h11.Request | h11.Response) -> _Body:
    said = (value.decode("latin-1").strip().lower() for name, value in event.headers if name == b"content-encoding")
    return _Body(next(said, ""))


@dataclass(slots=True)
class _Call:
    """A request and its answer, as far as they are known. `framed`: the answer itself says where it ends."""

    asked: h11.Request
    request: _Body
    answer: _Body = field(default_factory=lambda: _Body(""))
    status: int | None = None
    framed: bool = True
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=time.perf_counter)

    def line(self, to: str, cut: bool) -> bytes:
        """The line of the file."""
        said = [value.decode("latin-1") for name, value in self.asked.headers if _IN_HEADER.search(name)]
        secrets = {part for each in said for part in (each, each.rpartition(" ")[2]) if len(part) >= _MIN_SECRET}

        def hidden(text: str) -> str:
            for secret in sorted(secrets, key=len, reverse=True):  # one that contains another is replaced whole
                text = text.replace(secret, "***")
            small = text.lower()
            return _IN_BODY.sub(r'\1"***"', text) if any(word in small for word in _WORDS) else text

        method, path = self.asked.method.decode("latin-1"), self.asked.target.decode("latin-1")
        row: dict[str, Any] = {MARK: 1, "time": self.at.isoformat(), "to": to, "method": method, "status": self.status}
        row |= {"path": _IN_URL.sub(r"\1***", hidden(path)), "ms": round(1e3 * (time.perf_counter() - self.began), 3)}
        left_out = {}
        for name, body in (("request", self.request), ("answer", self.answer)):
            try:
                row[name] = hidden(body.text())
            except ValueError as problem:
                row[name], left_out[name] = None, str(problem)
        row |= ({"left_out": left_out} if left_out else {}) | ({"cut": True} if cut else {})
        return json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


class CallsFile:
    """The file that calls are added to, each in one write; made so that only its owner can read it."""

    def __init__(self, path: Path, say: Say) -> None:
        """Raises InputError where the file holds something else, or cannot be written."""
        self.calls, self._say, self._failed = 0, say, False
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            size = os.fstat(self._file).st_size
            if size and not is_call(os.pread(self._file, MAX_HEAD, 0)):
                raise InputError(f"--out {path}: it holds something else than recorded calls; name another file")
            if size and os.pread(self._file, 1, size - 1) != b"\n":  # a line that a killed process was writing
                os.write(self._file, b"\n")
        except OSError as error:
            raise InputError(f"--out {path}: {error.strerror}") from None

    def add(self, line: bytes) -> None:
        """Append a call; a failure is said once and costs the agent nothing."""
        try:
            while line:
                line = line[os.write(self._file, line) :]
            self.calls += 1
        except OSError as error:
            if not self._failed:
                self._say(f"--out: {error.strerror}: calls pass and are not recorded")
            self._failed = True


class _Refused(Exception):
    """A status, and the reason in one line."""


class _Connection:
    """One connection of the agent and its connection to the API."""

    def __init__(self, proxy: Proxy, agent: Ends, api: Ends) -> None:
        self._proxy, self._agent, self._api = proxy, agent, api
        self._waiting: deque[_Call] = deque()
        self._plain = False
        """Whether bytes pass unread: both sides went over to another protocol, such as WebSocket."""

    async def run(self) -> None:
        """Until the API has ended it; a call without a whole answer is recorded as cut."""
        asking = asyncio.create_task(self._requests())
        try:
            await self._answers()
        finally:
            asking.cancel()
            for call in self._waiting:
                self._proxy.record(call, cut=True)

    async def _requests(self) -> None:
        (reader, agent), writer = self._agent, self._api[1]
        parser, held = h11.Connection(h11.SERVER, MAX_HEAD), b""
        call: _Call | None = None
        try:
            while data := await reader.read(PIECE):
                held += data
                if not self._plain:
                    parser.receive_data(data)
                while not self._plain and (event := parser.next_event()) is not h11.NEED_DATA:
                    if isinstance(event, h11.Request):
                        ends = _HEAD_END.search(held)
                        size = ends.end() if ends else len(held)
                        call = _Call(event, _body(event))
                        head = self._proxy.addressed(event, held[:size])
                        self._waiting.append(call)
                        writer.write(head)
                        held = held[size:]
                    elif isinstance(event, h11.Data) and call is not None:
                        call.request.add(event.data)
                    elif isinstance(event, h11.EndOfMessage):
                        rest = parser.trailing_data[0]
                        writer.write(held[: len(held) - len(rest)])
                        parser, held, call = h11.Connection(h11.SERVER, MAX_HEAD), rest, None
                        if rest:
                            parser.receive_data(rest)
                if call is not None or self._plain:
                    writer.write(held)
                    held = b""
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            elif not self._waiting:
                writer.close()
        except (h11.RemoteProtocolError, _Refused) as problem:
            unread = (400, f"only HTTP/1.1 is recorded, no gRPC or HTTP/2: {problem}")
            if not self._waiting:
                agent.write(_refusal(*(problem.args if isinstance(problem, _Refused) else unread)))
            writer.close()
        except OSError:
            writer.close()

    async def _answers(self) -> None:
        (reader, _), writer = self._api, self._agent[1]
        parser: h11.Connection | None = None
        kept = b""
        while data := await reader.read(PIECE):
            rest: bytes | None = data
            while rest and self._waiting and not self._plain:
                parser = parser or _reader_of_answer(self._waiting[0].asked)
                rest = self._read_along(parser, self._waiting[0], rest)
                parser = parser if rest is None else None
            data, kept = kept + data, b""
            # An answer that ends with the connection: its last byte waits for that.
            if parser is not None and not self._waiting[0].framed:
                data, kept = data[:-1], data[-1:]
            writer.write(data)
            await writer.drain()
        if kept:
            self._proxy.record(self._waiting.popleft(), cut=False)
            writer.write(kept)
        await writer.drain()

    def _read_along(self, parser: h11.Connection, call: _Call, data: bytes) -> bytes | None:
        """Take what the API sent; returns what follows the end of the answer, None where it has not ended."""
        try:
            parser.receive_data(data)
            while (event := parser.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    call.status, call.answer = event.status_code, _body(event)
                    call.framed = any(name in (b"content-length", b"transfer-encoding") for name, _ in event.headers)
                elif isinstance(event, h11.Data):
                    call.answer.add(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self._proxy.record(self._waiting.popleft(), cut=False)
                    return parser.trailing_data[0]
                elif event is h11.PAUSED:
                    self._plain = True
                    break
        except h11.RemoteProtocolError as problem:
            self._plain = True
            self._proxy.say(f"{self._proxy.to}: no answer of HTTP/1.1 ({problem}); it passes and is not recorded")
        return None


def _reader_of_answer(asked: h11.Request) -> h11.Connection:
    """A parser of the answer to a request: where it ends depends on the method, and on another protocol that was proposed."""
    parser = h11.Connection(h11.CLIENT, MAX_HEAD)
    proposed = [(name, value) for name, value in asked.headers if name in (b"upgrade", b"connection")]
    parser.send(h11.Request(method=asked.method, target=asked.target, headers=[(b"host", b"api"), *proposed]))
    parser.send(h11.EndOfMessage())
    return parser


def _refusal(status: int, line: str) -> bytes:
    body = json.dumps({"error": f"cems-workbench record: {line}"}).encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


class Proxy:
    """What passes on to one API."""

    def __init__(self, to: str, file: CallsFile, user: int | None, say: Say) -> None:
        """`user` alone may connect; None: it cannot be checked. Raises InputError for a `to` that is no address of an API."""
        try:
            parts = urlsplit(to)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https") or "@" in parts.netloc:
            raise InputError("--to: must be http:// or https:// with a host, without a password, which the agent sends")
        if parts.path.strip("/") or parts.query:
            raise InputError(f"--to {parts.scheme}://{parts.netloc}: without a path, which the agent sends")
        self.to, self.say, self._file, self._user = f"{parts.scheme}://{parts.netloc}", say, file, user
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._place = (host, port or (443 if self._tls else 80))
        self._host = parts.netloc.encode()
        self._served: set[asyncio.Task[Any] | None] = set()
        """Once an agent has sent all it will, asyncio itself keeps no reference to the task of its connection."""

    def record(self, call: _Call, cut: bool) -> None:
        """Add a call to the file."""
        self._file.add(call.line(self.to, cut))

    def addressed(self, asked: h11.Request, head: bytes) -> bytes:
        """The head of a request with the API's Host. Raises _Refused for one that is meant for another kind of proxy, or that a web page
        sent whose name was made to lead to this machine."""
        if not asked.target.startswith(b"/"):
            raise _Refused(400, "give this address to the agent as the API's, not as a proxy")
        if any(name == b"host" and not _LOCAL.fullmatch(value) for name, value in asked.headers):
            raise _Refused(403, "the header Host must name this machine")
        return _HOST_LINE.sub(lambda found: found[1] + self._host, head, count=1)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        api: asyncio.StreamWriter | None = None
        task = asyncio.current_task()
        self._served.add(task)
        try:
            if self._user is not None and user_of(writer.get_extra_info("socket")) != self._user:
                return await _refuse(
                    reader, writer, 403, "it answers only the user who started it, as the kernel names connections"
                )
            try:
                ends = await asyncio.wait_for(asyncio.open_connection(*self._place, ssl=self._tls), CONNECT_S)
            except OSError as error:  # TimeoutError too
                return await _refuse(reader, writer, 502, f"{self.to} cannot be reached: {error or 'no answer'}")
            api = ends[1]
            await _Connection(self, (reader, writer), ends).run()
        except OSError:  # the agent has gone
            pass
        finally:
            self._served.discard(task)
            for each in (writer, *([api] if api else ())):
                each.close()


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int, line: str) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(reader.read(PIECE), 1)  # a connection closed with bytes unread loses the answer
    writer.write(_refusal(status, line))
    await writer.drain()


_SOCK_DIAG, _BY_FAMILY, _NO_COOKIE, _TIME_WAIT = 4, 20, 0xFFFFFFFF, 6


def user_of(connection: Any) -> int | None:
    """The user at the other end of a connection on loopback (IPv4), as Linux names it (sock_diag(7)); /proc/net/tcp says the same and takes
    longer the more connections there are. None if it has gone, or the kernel does not say."""
    (here, port), (there, its_port) = connection.getsockname(), connection.getpeername()
    ends = [socket.inet_aton(address) + bytes(12) for address in (there, here)]
    asked = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _NO_COOKIE)
    asked += struct.pack("!HH16s16s", its_port, port, *ends) + struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    told = b""
    with suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as diag:
        diag.send(struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, 1, 0, 0) + asked)
        told = diag.recv(PIECE)
    if len(told) < 88 or struct.unpack_from("=H", told, 4)[0] != _BY_FAMILY or told[17] == _TIME_WAIT:
        return None
    user, inode = struct.unpack_from("=II", told, 80)
    return int(user) if inode else None


def record(to: Sequence[str], port: int, out: Path, say: Say) -> int:
    """Pass on and record until interrupted, the first API at `port`, each further one at the next. Returns how many calls are in the file
    since. Raises InputError."""
    file = CallsFile(out, say)

    async def serve() -> None:
        user, kept = os.geteuid() if sys.platform == "linux" else None, []
        for place, api in enumerate(to):
            proxy = Proxy(api, file, user, say)
            try:
                kept.append(await asyncio.start_server(proxy.answer, HOST, port and port + place))
            except (OSError, OverflowError) as error:
                reason = error.strerror if isinstance(error, OSError) else "no port"
                raise InputError(f"port {port + place}: {reason}; name another --port") from None
            here = kept[-1].sockets[0].getsockname()[1]
            say(f"http://{HOST}:{here} passes on to {proxy.to} and records in {out}; Ctrl-C ends it")
        if user is None:
            say("this system does not say whose a connection is: every user of this machine can use the proxy")
        await asyncio.Event().wait()

    loop = None
    with suppress(ImportError):  # uvicorn brings it: half the time that asyncio's own loop adds to a call
        import uvloop

        loop = uvloop.new_event_loop
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=loop) as runner:
        runner.run(serve())
    return file.calls
