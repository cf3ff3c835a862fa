"""`serve`: the process that answers the next commands, its state, and its end."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench.cli.options import JsonOption, StoreOption, print_table, settings_for
from cems_workbench.cli.terminal import put_json, say
from cems_workbench.errors import InputError
from cems_workbench.serve.address import SWITCH_VARIABLE, NotServed

if TYPE_CHECKING:
    from cems_workbench.jobs.diagnosis import Check

IDLE_S = 600


def serve_command(
    store: StoreOption = None,
    status: Annotated[bool, typer.Option("--status", help="List the processes that serve, of all stores.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End the processes that serve, or with --store those of this store.")
    ] = False,
    idle: Annotated[
        float, typer.Option("--idle", metavar="SECONDS", min=0.1, help="End after this time without a command.")
    ] = IDLE_S,
    as_json: JsonOption = False,
) -> None:
    """Answer the next commands with store and models still open.

    The first search, why, what-if, replay, memory, blame or report why leaves such a process behind, which ends after ten minutes without
    a command; --no-serve runs a command alone. Without an option this command is such a process itself, until Ctrl-C.
    """
    from cems_workbench.serve.wire import servers

    try:
        if status or stop:
            return _print(servers(None if store is None else str(store), stop=stop), stop, as_json)
        _serve(store, idle)
    except NotServed as problem:
        raise InputError(f"serve: {problem}") from None


def _serve(store: Path | None, idle: float) -> None:
    from cems_workbench.jobs.kept_resources import KEPT
    from cems_workbench.serve.address import Address, Directory
    from cems_workbench.serve.server import Server
    from cems_workbench.serve.wire import answering

    settings = settings_for(store)
    place = str(settings.store)
    if found := answering(place):
        raise InputError(f"serve: pid {found['pid']} serves {found['store']} already; serve --stop ends it")
    environment = dict(os.environ)
    KEPT.keep()
    with KEPT.filled(settings) as resources:
        resources.refresh()
    server = Server(Address(place, environment), Directory(environment), idle)
    say(f"serving {place}; Ctrl-C ends it", err=True)
    server.serve()


def _print(found: list[dict[str, Any]], stopped: bool, as_json: bool) -> None:
    if as_json:
        return put_json(found)
    if not found:
        return say("no process serves")
    rows = [
        [one["pid"], one["store"], _clock(one["started"]), one["commands"], _minutes(one["ends_in_s"])] for one in found
    ]
    print_table(["pid", "store", "since", "commands", "ends in"], rows)
    if stopped:
        say("ended")


def serve_check(store: str) -> Check:
    """The row of `doctor`: which process answers commands on this store."""
    from cems_workbench.jobs.diagnosis import Check
    from cems_workbench.serve.wire import answering

    try:
        found = answering(store)
    except NotServed as problem:
        return Check("serve", "optional", f"each command runs in its own process: {problem}")
    if found is None:
        return Check("serve", "ok", "commands run in their own process; the next search leaves one behind that serves")
    return Check(
        "serve",
        "ok",
        f"search, why and others are answered by pid {found['pid']}, since {_clock(found['started'])}, {found['commands']} commands; "
        f"it ends after {_minutes(found['ends_in_s'])} without another",
        f"--no-serve runs a command alone, {SWITCH_VARIABLE}=off all",
    )


def _clock(moment: float) -> str:
    return time.strftime("%H:%M", time.localtime(moment))


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
