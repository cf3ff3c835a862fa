"""The server: answers commands one at a time, in its main thread, with store and models kept open between them.

A second thread talks to the clients. It ends after some idle time, or when the store, its socket or the code is no longer what it was. A
command runs as if the process had been started for it: streams, arguments, directory and environment are the client's, the streams its own
descriptors, so that bytes, terminal and width are the same without anything in between.
"""

from __future__ import annotations

import io
import logging
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cems_workbench.serve.wire import INTERRUPTED, PATIENCE_S, SOCKET, STREAMS, Address, Directory, Wire, ask

if TYPE_CHECKING:
    from cems_workbench.jobs.factory import KeptResources


NAMES = ("<stdin>", "<stdout>", "<stderr>")
BUG, LOST_OUTPUT = 1, 120
"""Exit codes of Python: after a traceback, and if the last output could not be written."""


class _Reporting(io.FileIO):
    """A stream that calls `before_first` before its first byte."""

    def __init__(self, descriptor: int, before_first: Callable[[], None]) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._before_first = before_first

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        self._before_first()
        return super().write(data)


def run_here(
    command: Callable[[], None], request: dict[str, Any], streams: Sequence[int], writing: Callable[[], None]
) -> int:
    """Run `command` with the client's streams, which are closed at the end; returns its exit code.

    `writing` is called before bytes are written. Raises OSError, with nothing run, if the client's directory is not the same here.
    """
    os.chdir(request["directory"][0])
    folder = os.stat(".")
    if [folder.st_dev, folder.st_ino] != request["directory"][1:]:
        raise OSError("the working directory is another one here")
    for name in set(os.environ) - set(request["environment"]):
        del os.environ[name]
    os.environ.update(request["environment"])
    time.tzset()
    os.umask(request["umask"])
    sys.argv, sys.orig_argv = list(request["argv"]), list(request["orig_argv"])
    kept = [os.dup(descriptor) for descriptor in range(len(NAMES))]
    try:
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target, inheritable=True)
        _use_streams(writing)
        return _exit_code(command)
    finally:
        for target, descriptor in enumerate(kept):
            os.dup2(descriptor, target, inheritable=True)
            os.close(descriptor)
        _use_streams(lambda: None)


def _use_streams(writing: Callable[[], None]) -> None:
    """Make new objects of the three streams, as Python does when it starts."""
    before = (sys.stdin, sys.stdout, sys.stderr)
    made = []
    for descriptor, (name, old) in enumerate(zip(NAMES, before, strict=True)):
        raw = _Reporting(descriptor, writing) if descriptor else io.FileIO(descriptor, "rb", closefd=False)
        raw.name = name
        unbuffered = bool(descriptor and getattr(old, "write_through", False))  # PYTHONUNBUFFERED
        lines = not unbuffered and (descriptor == 2 or raw.isatty())
        binary: Any = raw if unbuffered else io.BufferedWriter(raw) if descriptor else io.BufferedReader(raw)
        stream = io.TextIOWrapper(binary, old.encoding, old.errors, line_buffering=lines, write_through=unbuffered)
        setattr(stream, "mode", "w" if descriptor else "r")  # noqa: B010 (set by Python too; the type has it read-only)
        made.append(stream)
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = made  # type: ignore[misc]


def _exit_code(command: Callable[[], None]) -> int:
    """Run the command and write out what is buffered; the exit code that Python would end with."""
    code = 0
    try:
        command()
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else BUG
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}\n")
        code = LOST_OUTPUT
        _drop_buffered()
    return code & 0xFF


def _drop_buffered() -> None:
    """Make stdout write to nothing, so that what could not be written does not fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    sys.stdout.flush()


IDLE_S = 600.0
LOOK_EVERY_S, ALIVE_EVERY_S = 5.0, 1.0
"""How often the server looks at its store and socket, and says that it works on a command."""
MAX_SERVERS = 3
"""Servers of one user; a further one ends that which was used least recently."""
COMMANDS = "cems_workbench.cli"
"""The module whose `main` runs a command line; it imports this one, so it is imported by name."""

KEEPER = "cems_workbench.jobs.factory"

log = logging.getLogger(__name__)


class Server:
    """The server of one address."""

    def __init__(
        self, address: Address, directory: Directory, idle_s: float = IDLE_S, started: float | None = None
    ) -> None:
        """Nothing listens yet."""
        self.address, self._directory, self._idle_s = address, directory, idle_s
        self._started = time.time() if started is None else started
        self._file = directory.file(address.name)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket_id: tuple[int, int] | None = None
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._waiting: queue.SimpleQueue[tuple[Wire, dict[str, Any]] | None] = queue.SimpleQueue()
        self._queued = 0
        self._guard = threading.Lock()
        self._running: Wire | None = None
        self._interrupted = self._ending = False
        self._served = 0
        self._used = time.monotonic()
        self._sources: dict[str, int] = {}
        self._main = threading.get_ident()

    def serve(self, first: tuple[Wire, dict[str, Any]] | None = None) -> None:
        """Answer commands until the end, `first` before all others; call it in the main thread. Raises OSError if it cannot listen."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if first is None:  # nobody waits yet
            import_module(COMMANDS)
            self._kept.keep()
        self._listen()
        talking = threading.Thread(target=self._talk, name="serve", daemon=True)
        talking.start()
        from cems_workbench.platform import start_up

        kept = self._kept
        kept.keep()
        try:
            if first is not None:
                self._answer(*first, streams=list(STREAMS))
                # Nothing was opened: the next command would gain little.
                self._ending = self._ending or kept.empty
                start_up.freeze()
                _to_log(self._directory.file(self.address.name.removesuffix(SOCKET) + ".log"))
                self._signal()
            while not self._interrupted and (waiting := self._waiting.get()) is not None:
                self._take(*waiting)
        finally:
            self._end()
            kept.close()

    @property
    def _kept(self) -> KeptResources:
        kept: KeptResources = import_module(KEEPER).KEPT
        return kept

    def _listen(self) -> None:
        new = f"{self._file}.{os.getpid()}"
        self._listening.bind(new)
        self._listening.listen(16)
        self._socket_id = _file_id(new)
        os.replace(new, self._file)

    def _take(self, wire: Wire, request: dict[str, Any]) -> None:
        """Run a command that waited, if its client still waits and finds the state of the store new enough."""
        try:
            wire.socket.settimeout(PATIENCE_S)
            wire.send({"state": self._kept.states()})
            agreed = wire.receive()
            if agreed is not None and "go" in agreed:
                self._answer(wire, request, wire.descriptors)
        except (OSError, ValueError) as error:
            log.info("a client left: %s", error)
        finally:
            wire.close()
            with self._guard:
                self._queued -= 1
            self._signal()

    def _answer(self, wire: Wire, request: dict[str, Any], streams: list[int]) -> None:
        from cems_workbench.platform.process_lock import release_all

        reported: list[bool] = []

        def writing() -> None:
            if not reported:
                reported.append(True)
                self._send(wire, {"writing": True})

        def command() -> None:
            import_module(COMMANDS).main()

        wire.socket.settimeout(None)
        with self._guard:
            self._running = wire
        self._signal()
        code = None
        try:
            code = run_here(command, request, streams, writing)
        finally:
            release_all()
            self._kept.rested()
            with self._guard:
                self._running = None
                self._served += 1
                self._used = time.monotonic()
            with suppress(OSError):
                if code is not None:
                    self._send(wire, {"exit": code})
            self._sources = _sources() | self._sources
            with suppress(OSError):
                os.utime(self._file)

    def _send(self, wire: Wire, message: dict[str, Any]) -> None:
        with self._guard:
            wire.send(message)

    def _signal(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._woken, b".")

    def _talk(self) -> None:
        """Accept clients, watch that of the running command, and end the server when its time has come."""
        _retire_others(self.address, self._directory)
        looked = time.monotonic()
        while True:
            with self._guard:
                running = self._running
            watched = [self._listening.fileno(), self._wake, *([running.socket.fileno()] if running else [])]
            pause = min(ALIVE_EVERY_S if running else LOOK_EVERY_S, self._idle_s)
            readable, _, _ = select.select(watched, [], [], pause)
            if self._wake in readable:
                with suppress(BlockingIOError):
                    os.read(self._wake, 1000)
            if self._listening.fileno() in readable:
                self._accept()
            if running is not None:
                self._watch(running, running.socket.fileno() in readable)
            elif not self._queued and (self._ending or self._over(looked)):
                break
            if time.monotonic() > looked + LOOK_EVERY_S:
                looked = time.monotonic()
        self._end()
        self._waiting.put(None)

    def _over(self, looked: float) -> bool:
        """Whether it has been idle long enough, or what it serves is gone."""
        now = time.monotonic()
        if now >= self._used + self._idle_s:
            return True
        if now < looked + LOOK_EVERY_S:
            return False
        return _file_id(self._file) != self._socket_id or self._kept.lost

    def _watch(self, wire: Wire, readable: bool) -> None:
        """Tell the client of the running command that it runs; interrupt the command if the client asks for it or is gone."""
        with self._guard:
            if self._running is not wire:
                return
            try:
                if readable:
                    message = wire.receive()
                    if message is None or "cancel" in message:
                        self._interrupt()
                else:
                    wire.send({"alive": True})
            except (OSError, ValueError):
                self._interrupt()

    def _interrupt(self) -> None:
        """Raise KeyboardInterrupt in the main thread, once; the server ends afterwards, since anything may be half done."""
        if not self._interrupted:
            self._interrupted = self._ending = True
            signal.pthread_kill(self._main, signal.SIGINT)

    def _accept(self) -> None:
        """Read what a client asks for; a command is queued."""
        connection, _ = self._listening.accept()
        wire = Wire(connection)
        connection.settimeout(ALIVE_EVERY_S)
        try:
            if wire.peer()[1] != os.geteuid():
                return wire.close()
            message = wire.receive() or {}
            if message.get("do") == "run":
                refused = self._refusal(message, wire)
                wire.send({"no": refused, "ending": self._ending} if refused else {"queued": os.getpid()})
                if not refused:
                    with self._guard:
                        self._queued += 1
                    return self._waiting.put((wire, message))
            elif message.get("do") == "status":
                wire.send(self.status())
            elif message.get("do") == "stop":
                self._ending = True
                wire.send({"stopping": os.getpid()})
        except (OSError, ValueError) as error:
            log.info("a client left: %s", error)
        wire.close()

    def _refusal(self, message: dict[str, Any], wire: Wire) -> str:
        if message.get("key") != self.address.key or len(wire.descriptors) != len(STREAMS):
            return "another store, code or environment"
        if self._ending:
            return "ending"
        if any(_changed(name) != changed for name, changed in self._sources.items()):
            self._ending = True
            return "the code changed"
        if self._running is None and self._kept.lost:
            self._ending = True
            return "the store was replaced"
        return ""

    def status(self) -> dict[str, Any]:
        """Process, store, start, number of commands, and the seconds until it ends."""
        return {
            "pid": os.getpid(),
            "store": self.address.store,
            "started": self._started,
            "commands": self._served,
            "ends_in_s": max(self._used + self._idle_s - time.monotonic(), 0.0),
        }

    def _end(self) -> None:
        """Stop listening; the socket is removed unless another server has replaced it."""
        with self._guard:
            if self._socket_id is not None and _file_id(self._file) == self._socket_id:
                with suppress(OSError):
                    os.unlink(self._file)
                    os.unlink(self._file.removesuffix(SOCKET) + ".log")
            self._socket_id = None
            self._listening.close()


def serve_after(wire: Wire, request: dict[str, Any], address: Address, directory: Directory, started: float) -> None:
    """Run the command of the parent process, and serve afterwards, in a session without a terminal. Does not return."""
    os.setsid()
    with suppress(OSError), open("/proc/self/comm", "w") as name:  # what `top` shows
        name.write("cems-serve")
    # A pipe or lock that the parent inherited must not stay open here.
    keep = {wire.socket.fileno(), directory.descriptor, *STREAMS}
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor not in keep:
            with suppress(OSError):
                os.close(descriptor)
    Server(address, directory, started=started).serve((wire, request))
    _leave()


def _leave() -> None:
    """End the process without taking the interpreter down, during which native modules print pages of leaks."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def _to_log(file: str) -> None:
    """Write what is not a command's output to a log; nobody reads the streams of a process left behind."""
    log_file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((nothing, 0), (log_file, 1), (log_file, 2)):
        os.dup2(descriptor, target, inheritable=True)
    os.close(log_file)
    os.close(nothing)


def _file_id(file: str) -> tuple[int, int] | None:
    try:
        state = os.stat(file)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _sources() -> dict[str, int]:
    """The loaded modules that somebody may be working on, those outside of what is installed, with the time of their last change."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    library = os.path.dirname(os.__file__)
    own = [file for file in files if file and not file.startswith(library) and "-packages" not in file]
    return {file: _changed(file) for file in own}


def _changed(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


def _retire_others(address: Address, directory: Directory) -> None:
    """End the servers of other versions of the code for this store, and those beyond MAX_SERVERS."""
    others = [name for name in directory.sockets() if name != address.name and ask(directory, name, "status")]
    for name in others:
        if address.replaces(name) or name in others[MAX_SERVERS - 1 :]:
            ask(directory, name, "stop")
