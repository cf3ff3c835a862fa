"""Which server a command asks, and what client and server say to each other, with the standard library alone.

A server belongs to a user, a store, a version of the code and an environment. The name of its socket is only a digest of them: the server
compares the whole key with its own, so that a collision is refused and never answered. Messages are a JSON value a line, and beside the
first line the descriptors of the command's streams:

client                                  server
{"do": "run", "key", "argv", …} + 0,1,2
                                        {"queued": pid}            or {"no": why, "ending": true}
                                        {"state": {store: [id, commits, content version]}}
{"go": true}                            (or closes: the state is older than what it knows)
                                        {"alive": 1} every second, {"writing": 1} before the first byte is written
{"cancel": true}                        (or closes: the command is interrupted)
                                        {"exit": code}
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from contextlib import suppress
from typing import Any
from zlib import crc32

from cems_workbench import PLUGINS

INTERRUPTED = 130
"""Exit code after an interrupt."""
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DIRECTORY = "cems-workbench"
SOCKET = ".sock"
STORE_VARIABLE, SWITCH_VARIABLE, WITHOUT = "CEMS_WORKBENCH_STORE", "CEMS_WORKBENCH_SERVE", "--no-serve"
DEFAULT_STORE = os.path.join(".workbench", "store")
SERVED = ("search", "why", "what-if", "replay", "memory", "blame", "report why")
"""Commands that load models and are short: a long one would keep the others waiting. None of them asks anything back."""
_OF_MODELS = "HF_ TRANSFORMERS_ SENTENCE_TRANSFORMERS_ TOKENIZERS_ OMP_ MKL_ OPENBLAS_ ORT_ CUDA_"
READ_ONCE = tuple(f"CEMS_WORKBENCH_ PYTHON LC_ {_OF_MODELS} LD_ MALLOC_ XDG_ SSL_".split())
READ_ONCE_NAMES = ("LANG", "LANGUAGE", "HOME", "TMPDIR", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""Variables that are read when a library or a model is loaded; a server serves one set of them. All others, such as NO_COLOR and
COLUMNS, are those of each command."""


class NotServed(Exception):
    """Why a command runs in its own process, in words for `doctor`."""


def require_platform() -> None:
    """Raise NotServed where a peer cannot be identified."""
    if not all(hasattr(socket, name) for name in ("AF_UNIX", "SO_PEERCRED")) or not os.path.isdir("/proc/self/fd"):
        raise NotServed("this system has no Unix sockets that name their peer (SO_PEERCRED)")


def require_allowed(environment: dict[str, str]) -> None:
    """Raise NotServed where the user, or a CI job, does not want it."""
    switch = environment.get(SWITCH_VARIABLE) or _dotenv().get(SWITCH_VARIABLE) or ""
    if switch not in ("", "on"):
        raise NotServed(f"{SWITCH_VARIABLE} is {switch[:20]}")
    if not switch and environment.get("CI", "") not in ("", "0", "false"):
        raise NotServed(f"CI is set; {SWITCH_VARIABLE}=on serves there too")


def without_switch(arguments: list[str]) -> list[str]:
    """A command line without `--no-serve`, which may be anywhere before `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [word for word in arguments[:end] if word != WITHOUT] + arguments[end:]


def command_of(arguments: list[str]) -> str:
    """The command of a command line; those of a group in full: `report why`."""
    words = arguments[:2] if arguments[:1] == ["report"] else arguments[:1]
    return " ".join(words)


def store_of(arguments: list[str], environment: dict[str, str]) -> str:
    """The store that a command line will open, as it is named; the command decides itself, this only finds the server."""
    named = None
    for i, word in enumerate(arguments):
        if word == "--":
            break
        if word == "--store" and i + 1 < len(arguments):
            named = arguments[i + 1]
        elif word.startswith("--store="):
            named = word.partition("=")[2]
    return named or environment.get(STORE_VARIABLE) or _dotenv().get(STORE_VARIABLE) or DEFAULT_STORE


def _dotenv() -> dict[str, str]:
    """The two variables that matter here, from a `.env` in the working directory. Raises NotServed for a value of more than plain words."""
    found = {}
    try:
        with open(".env", encoding="utf-8") as file:
            lines = file.readlines()
    except (OSError, ValueError):
        return {}
    for line in lines:
        name, _, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip().upper(), value.strip()
        if name in (STORE_VARIABLE, SWITCH_VARIABLE):
            if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
            if any(character in value for character in "$\\'\"#"):
                raise NotServed(f"{name} in .env is more than plain words")
            found[name] = value
    return found


class Address:
    """Where the server of a command is, and its key."""

    def __init__(self, store: str, environment: dict[str, str]) -> None:
        """`store` is a path; `environment` is that of the command."""
        self.store = os.path.realpath(store)
        code = code_version()
        kept = sorted((name, value) for name, value in environment.items() if _read_once(name))
        process = [sys.executable, sys.flags, getattr(sys.stdout, "write_through", None), os.nice(0)]
        self.key = json.dumps([self.store, code, kept, process])
        self.name = f"{_digest(self.store)}-{_digest(code)}-{_digest(self.key)}{SOCKET}"

    def replaces(self, name: str) -> bool:
        """Whether the socket of this name belongs to another version of the code for the same store."""
        own, other = self.name.split("-"), name.split("-")
        return other[0] == own[0] and other[1:2] != own[1:2]


def _read_once(name: str) -> bool:
    upper = name.upper()  # settings and proxies are read in either case
    return upper != SWITCH_VARIABLE and (upper.startswith(READ_ONCE) or upper in READ_ONCE_NAMES)


def _digest(text: str) -> str:
    return f"{crc32(text.encode(errors='surrogateescape')):08x}"


def code_version() -> str:
    """The state of the code: size and time of every file of the package and its plugins, and of the folders with the packages it uses."""
    states = [sys.version]
    folders = [PACKAGE, PLUGINS] if PLUGINS else [PACKAGE]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                else:
                    state = entry.stat()
                    states.append(f"{entry.path} {state.st_size} {state.st_mtime_ns}")
    for place in sys.path:
        if place.endswith("-packages") and os.path.isdir(place):
            states.append(f"{place} {os.stat(place).st_mtime_ns}")
    text = "\n".join(sorted(states)).encode(errors="surrogateescape")
    return f"{len(states)}-{crc32(text):08x}-{crc32(text[::-1]):08x}"


class Directory:
    """The open directory of the user's sockets; everything in it is reached through the descriptor that was checked."""

    def __init__(self, environment: dict[str, str]) -> None:
        """Open it, or create it. Raises NotServed if it belongs to another user, can be opened by others, or is a symbolic link."""
        base = environment.get("XDG_RUNTIME_DIR", "")
        own = os.path.isdir(base) and os.stat(base).st_uid == os.geteuid()
        self.path = os.path.join(base, DIRECTORY) if own else f"/tmp/{DIRECTORY}-{os.geteuid()}"  # noqa: S108 (checked below)
        try:
            if not os.path.lexists(self.path):
                os.mkdir(self.path, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise NotServed(f"{self.path}: {error.strerror}") from None
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise NotServed(f"{self.path} is no directory of this user: {error.strerror}") from None
        state = os.fstat(self.descriptor)
        if state.st_uid != os.geteuid() or state.st_mode & 0o077:
            os.close(self.descriptor)
            raise NotServed(f"{self.path} belongs to another user, or can be opened by one")

    def file(self, name: str) -> str:
        """A path to a file of the directory, short enough for a socket."""
        return f"/proc/self/fd/{self.descriptor}/{name}"

    def sockets(self) -> list[str]:
        """The names of all sockets, the one used last first."""
        found = []
        for name in os.listdir(self.descriptor):
            if name.endswith(SOCKET):
                try:
                    found.append((os.stat(name, dir_fd=self.descriptor).st_mtime, name))
                except OSError:  # it ended in the meantime
                    continue
        return [name for _, name in sorted(found, reverse=True)]


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
        found = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", found)
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
