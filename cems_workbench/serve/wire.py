"""What client and server say to each other: a JSON value a line, and beside the first line the descriptors of the command's streams.

client                                  server
{"do": "run", "key", "argv", …} + 0,1,2
                                        {"queued": pid}            or {"no": why, "ending": true}
                                        {"state": {store: [id, commits, content version]}}
{"go": true}                            (or closes: the state is older than what it knows)
                                        {"alive": 1} every second, {"writing": 1} before the first byte is written
{"cancel": true}                        (or closes: the command is interrupted)
                                        {"exit": code}

The servers of this user, and whether a command on a store would be answered by one.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from contextlib import suppress
from typing import Any

from cems_workbench.serve.address import Address, Directory, require_allowed, require_platform

MAX_LINE = 1 << 24
"""Bytes of a line: arguments and environment of a process are limited to a few million."""
STREAMS = (0, 1, 2)
ANSWER_S, PATIENCE_S = 3.0, 3.0
"""Seconds that a client waits for the first line, and for its turn."""


class Wire:
    """One end of a connection. Sending is safe from several threads if each line is one call."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._read = b""
        self.descriptors: list[int] = []
        """Descriptors that came along."""

    def peer(self) -> tuple[int, int]:
        """Process and user at the other end, as the kernel names them."""
        pid, uid, _ = struct.unpack(
            "3i", self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        )
        return pid, uid

    def send(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Send a message. Raises OSError if the other end is gone."""
        line = json.dumps(message).encode() + b"\n"
        if descriptors:
            socket.send_fds(self.socket, [line[:1]], list(descriptors))
            line = line[1:]
        self.socket.sendall(line)

    def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end. Raises OSError, also TimeoutError, and ValueError for what is no message."""
        while b"\n" not in self._read:
            part, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 16, len(STREAMS))
            self.descriptors += descriptors
            if not part:
                return None
            self._read += part
            if len(self._read) > MAX_LINE:
                raise ValueError("a line too long")
        line, _, self._read = self._read.partition(b"\n")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("no message")
        return message

    def close(self) -> None:
        """Close the connection and the descriptors that nobody took."""
        self.socket.close()
        while self.descriptors:
            os.close(self.descriptors.pop())


def connect(directory: Directory, name: str) -> Wire | None:
    """A connection to the server of a socket; None if there is none, or it is another user's."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    wire = Wire(connection)
    connection.settimeout(ANSWER_S)
    try:
        connection.connect(directory.file(name))
        if wire.peer()[1] == os.geteuid():
            return wire
    except ConnectionRefusedError:  # it was killed
        with suppress(OSError):
            os.unlink(directory.file(name))
    except OSError:
        pass
    wire.close()
    return None


def ask(directory: Directory, name: str, what: str) -> dict[str, Any] | None:
    """What the server of a socket answers to `status` or `stop`; None if there is none."""
    wire = connect(directory, name)
    if wire is None:
        return None
    try:
        wire.send({"do": what})
        return wire.receive()
    except (OSError, ValueError):
        return None
    finally:
        wire.close()


def servers(store: str | None = None, stop: bool = False) -> list[dict[str, Any]]:
    """The status of each server of this user, or of those of a store; with `stop` each is asked to end. Raises NotServed."""
    require_platform()
    directory = Directory(dict(os.environ))
    try:
        found = []
        for name in directory.sockets():
            status = ask(directory, name, "status")
            if status is None or (store is not None and status.get("store") != os.path.realpath(store)):
                continue
            if stop:
                ask(directory, name, "stop")
            found.append(status)
        return found
    finally:
        os.close(directory.descriptor)


def answering(store: str) -> dict[str, Any] | None:
    """The status of the server that answers this environment's commands on a store; None: the next one leaves it behind.

    Raises NotServed with the reason why each command runs in its own process.
    """
    environment = dict(os.environ)
    require_allowed(environment)
    require_platform()
    directory = Directory(environment)
    try:
        return ask(directory, Address(store, environment).name, "status")
    finally:
        os.close(directory.descriptor)
