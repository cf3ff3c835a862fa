"""The client: asks the server of this store, or runs the command in a child that stays behind as the server.

The answer of `answer` is an exit code, or None: the command then runs in this process. Only the standard library is loaded here.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from cems_workbench.serve.wire import (
    INTERRUPTED,
    PATIENCE_S,
    SERVED,
    STREAMS,
    Address,
    Directory,
    NotServed,
    Wire,
    command_of,
    connect,
    require_allowed,
    require_platform,
    store_of,
    without_switch,
)

FAILED = 1
SILENCE_S = 20.0
"""Seconds that a client waits for any sign of life while its command runs."""
COMMITS = "workbench.commits"


def answer() -> int | None:
    """The exit code of this process's command, if a server or a child ran it; None if this process has to run it."""
    arguments = sys.argv[1:]
    if without_switch(arguments) != arguments:
        return None
    if command_of(arguments) not in SERVED or "--help" in arguments or sys._xoptions or sys.gettrace():
        return None
    environment = dict(os.environ)
    try:
        require_allowed(environment)
        require_platform()
        address, directory = Address(store_of(arguments, environment), environment), Directory(environment)
    except (NotServed, OSError):  # an OSError: a working directory or a package that was removed
        return None
    connection = connect(directory, address.name)
    if connection is None:
        return _leave_behind(address, directory)
    try:
        return _ask(connection, address)
    except _Ending:
        return _leave_behind(address, directory)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        connection.close()


def request() -> dict[str, Any]:
    """What makes this process's command what it is, but for its streams."""
    mask = os.umask(0)
    os.umask(mask)
    folder = os.stat(".")
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "directory": [os.getcwd(), folder.st_dev, folder.st_ino],
        "environment": dict(os.environ),
        "umask": mask,
    }


class _Ending(Exception):
    """The server runs no further command."""


def _ask(wire: Wire, address: Address) -> int | None:
    known = committed(address.store)
    try:
        wire.send({"do": "run", "key": address.key} | request(), STREAMS)
        first = wire.receive()
    except TimeoutError:
        _kill(wire.peer()[0])
        raise _Ending from None
    except (OSError, ValueError):  # closed streams, an end in this moment
        return None
    if first is None or first.get("ending"):
        raise _Ending
    if "queued" not in first:
        return None
    wire.socket.settimeout(PATIENCE_S)
    try:
        second = wire.receive()
        if second is None or "state" not in second or _older(second["state"].get(address.store), known):
            return None
        wire.send({"go": True})
    except (OSError, ValueError):
        return None
    return _follow(wire, wire.peer()[0])


def committed(store: str) -> list[Any] | None:
    """Id of a store and number of its transactions, as its file says; None if it cannot be read."""
    try:
        with open(os.path.join(store, COMMITS), encoding="ascii") as file:
            name, number = file.read(200).split()
            return [name, int(number)]
    except (OSError, ValueError):
        return None


def _older(state: list[Any] | None, known: list[Any] | None) -> bool:
    """Whether a server has another store open than the one on disk, or an earlier state of it."""
    return state is not None and known is not None and (state[0] != known[0] or state[1] < known[1])


def _follow(wire: Wire, pid: int) -> int | None:
    """Wait for the end of a command that runs elsewhere; an interrupt is passed on. None if it has to run here."""
    writing = cancelled = False
    wire.socket.settimeout(SILENCE_S)
    while True:
        try:
            message = wire.receive()
        except KeyboardInterrupt:
            if cancelled:
                return INTERRUPTED
            cancelled = True
            try:
                wire.send({"cancel": True})
            except OSError:
                return INTERRUPTED
            continue
        except TimeoutError:
            _kill(pid)
            message = None
        except (OSError, ValueError):
            message = None
        if message is None:
            if cancelled:
                return INTERRUPTED
            if not writing:
                return None
            sys.stderr.write("error: the process that answered this command ended while it wrote; run it again\n")
            return FAILED
        if "exit" in message:
            return int(message["exit"])
        writing = writing or "writing" in message


def _kill(pid: int) -> None:
    """End a server of this user that gives no sign of life, so that it neither writes later nor keeps the next command waiting."""
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _leave_behind(address: Address, directory: Directory) -> int | None:
    """Run the command in a child, which serves afterwards: what it loaded is loaded once."""
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        return None  # a debugger or a profiler: its threads would be missing in the child
    ours, theirs = socket.socketpair()
    started = time.time()
    try:
        child = os.fork()
    except OSError:
        return None
    if not child:
        try:
            ours.close()
            from cems_workbench.serve.server import serve_after

            serve_after(Wire(theirs), request(), address, directory, started)
        finally:
            os._exit(FAILED)
    theirs.close()
    wire = Wire(ours)
    try:
        return _follow(wire, child)
    finally:
        wire.close()
