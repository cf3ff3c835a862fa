"""The servers of this user, and whether a command on a store would be answered by one."""

from __future__ import annotations

import os
from typing import Any

from cems_workbench.serve.address import Address, Directory, require_allowed, require_platform
from cems_workbench.serve.wire import connect


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
