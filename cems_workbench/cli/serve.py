"""`app`, `mcp` and `serve`: the workbench as a server; `doctor` and `team`: packages, models, servers and the state of the store."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cems_workbench.builtin import APP_ROOT, SAMPLE_DATA
from cems_workbench.cli import options as cli
from cems_workbench.cli.terminal import first_search, say, words_of
from cems_workbench.errors import InputError
from cems_workbench.platform import start_up
from cems_workbench.results import Report, Table
from cems_workbench.serve.wire import SWITCH_VARIABLE, NotServed

if TYPE_CHECKING:
    from cems_workbench.jobs.diagnosis import Check


IDLE_S = 600


def serve_command(
    store: cli.StoreOption = None,
    status: bool = False,
    stop: bool = False,
    idle: float = IDLE_S,
    as_json: cli.JsonOption = False,
) -> None:
    """Answer the next commands with store and models still open.

    The first search, why, what-if, replay, memory, blame or report why leaves such a process behind, which ends after ten minutes without
    a command; --no-serve runs a command alone. Without an option this command is such a process itself, until Ctrl-C.
    """
    from cems_workbench.serve.wire import servers

    try:
        if status or stop:
            return cli.present(_servers(servers(None if store is None else str(store), stop=stop), stop), as_json)
        _serve(store, idle)
    except NotServed as problem:
        raise InputError(f"serve: {problem}") from None


def _serve(store: Path | None, idle: float) -> None:
    from cems_workbench.jobs.factory import KEPT
    from cems_workbench.serve.server import Server
    from cems_workbench.serve.wire import Address, Directory, answering

    settings = cli.settings_for(store)
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


def _servers(found: list[dict[str, Any]], stopped: bool) -> Report:
    rows = tuple(
        (one["pid"], one["store"], _clock(one["started"]), one["commands"], _minutes(one["ends_in_s"])) for one in found
    )
    return Report(
        lines=() if found else ["no process serves"],
        tables=[Table(("pid", "store", "since", "commands", "ends in"), rows)],
        notes=["ended"] if found and stopped else (),
        values=found,
    )


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


DEFAULT_PORT = 8765


def mcp_command(
    http: bool = False,
    port: int | None = None,
    write: bool = False,
    judge: str = "agent",
    store: cli.StoreOption = None,
) -> None:
    """Serve the Model Context Protocol to a coding agent.

    Tools: search, why, what-if, compare, evaluate and others; see docs/use/mcp.md.
    """
    if port is not None and not http:
        raise InputError("--port needs --http")
    from cems_workbench.mcp.protocol import ServedStore
    from cems_workbench.mcp.server import WorkbenchServer, quiet_logs, serve_http, serve_stdio

    quiet_logs()
    served = ServedStore(store, write=write, judge=judge)
    try:
        server = WorkbenchServer(served)
        if http:
            token, place = served.settings.mcp_token or None, DEFAULT_PORT if port is None else port
            serve_http(server, place, token, lambda line: say(line, err=True))
        else:
            serve_stdio(server)
    finally:
        served.close()


PAGE = APP_ROOT / "app.py"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 (told apart, not bound to)
"""Values that name no single address: the default, localhost, or all addresses."""
MAX_PORT = 65535
STORE_MODULES = ("cems_workbench.ui.inspect.page", "duckdb", "cems_workbench.jobs.factory")
PRELOADED = ("cems_workbench.ui.inspect.toolbar", "cems_workbench.ui.inspect.controls")
"""Imports of the first page, in its order; loaded while the browser fetches the page's scripts. After the first the store is opened."""


def app_command(store: cli.StoreOption = None, port: int = 8501, headless: bool = False) -> None:
    """Open the app in the browser. It listens on localhost; stop it with Ctrl-C."""
    if not PAGE.is_file():
        raise InputError(f"{PAGE} is missing: the installation is incomplete")
    if _port_in_use(port):
        other = port + 1 if port < MAX_PORT else port - 1
        raise InputError(
            f"port {port} is in use, perhaps by another app; --port {other} starts a second one (make run PORT={other})"
        )
    # Resolve now: the app runs in the directory of its pages.
    os.environ["CEMS_WORKBENCH_STORE"] = str(cli.settings_for(store).store.resolve())
    exit_code = [0]
    atexit.register(_exit_process, exit_code)  # first in, last out: after the cleanup of the server and the models
    start_up.pause()  # imports create no garbage worth collecting; `_preload` ends the pause
    from streamlit.runtime.pages_manager import PagesManager
    from streamlit.web import cli as streamlit

    # A folder called pages/ switches Streamlit's older way of paging on until app.py has run once, so that a link straight
    # to a page, opened first, would miss the app's frame.
    PagesManager.uses_pages_directory = False
    threading.Thread(target=_preload, args=(port,), name="preload", daemon=True).start()
    os.chdir(PAGE.parent)  # where .streamlit/config.toml is
    sys.argv = ["streamlit", "run", str(PAGE), "--server.port", str(port)]
    for name in _allowed_hosts(os.environ):
        sys.argv += ["--server.allowedHosts", name]
    if headless:
        sys.argv += ["--server.headless", "true"]
    try:
        streamlit.main()
    except SystemExit as end:
        exit_code.append(end.code if isinstance(end.code, int) else int(end.code is not None))


def _port_in_use(port: int) -> bool:
    """Whether the port is in use. Streamlit reports it too, but not what to do."""
    with contextlib.suppress(OSError), socket.create_connection((_host(os.environ), port), timeout=1):
        return True
    return False


def _host(environment: Mapping[str, str]) -> str:
    """The address to reach the app from this machine: the one it listens on, or localhost."""
    address = environment.get("STREAMLIT_SERVER_ADDRESS", "")
    return "localhost" if address in ANY_ADDRESS else address


def _allowed_hosts(environment: Mapping[str, str]) -> list[str]:
    """The allowed host names if the app listens on a custom address and none are set; otherwise the config's apply."""
    address = environment.get("STREAMLIT_SERVER_ADDRESS", "")
    if "STREAMLIT_SERVER_ALLOWED_HOSTS" in environment or address in (*ANY_ADDRESS, *LOCAL_NAMES):
        return []
    return [*LOCAL_NAMES, address]


def _exit_process(exit_code: list[int]) -> None:
    """End the process here: taking the interpreter down with threads in it makes native modules print pages of leaks."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code[-1])


def _preload(port: int) -> None:
    """Import once the server listens: before that the imports would only delay it."""
    try:
        for _ in range(1000):
            with contextlib.suppress(OSError), socket.create_connection((_host(os.environ), port), timeout=1):
                break
            time.sleep(0.02)
        from streamlit import delta_generator

        # Else the first element looks for an interactive interpreter by inspect.stack(), which resolves the path of every loaded module.
        delta_generator._use_warning_has_been_displayed = True
        for name in STORE_MODULES:
            importlib.import_module(name)
        threading.Thread(target=_open_store, name="open-store", daemon=True).start()  # DuckDB works beside the imports
        for name in PRELOADED:
            importlib.import_module(name)
    finally:
        start_up.freeze()


def _open_store() -> None:
    """Open the store for the pages; what fails is met again by the first page, which shows it."""
    from cems_workbench.store import Store

    with contextlib.suppress(Exception):
        if Store.exists(cli.settings_for(None).store):
            importlib.import_module("cems_workbench.ui.kit.session").resources()


def doctor_command(
    preset: cli.PresetOption = None,
    config: cli.ConfigOption = None,
    store: cli.StoreOption = None,
    deep: bool = False,
    repair: bool = False,
    recover_to: Path | None = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Check packages, models, servers and the store.

    Shows what is available and what the preset or config will use. Exits 1 if a required component is missing and has no fallback.
    """
    if recover_to is not None:
        return _recover(cli.settings_for(store).store, recover_to, as_json)
    chosen = cli.chosen_config(preset, config, None, store)
    from cems_workbench.jobs.diagnosis import diagnose, diagnosis

    if repair:
        with cli.progress_bar(as_json) as progress, cli.filled_resources(store) as resources:
            resources.repair(progress)
    checks = [*diagnose(cli.settings_for(store), chosen, deep=deep), serve_check(str(cli.settings_for(store).store))]
    failed = [check.name for check in checks if check.status == "failed"]
    # What it would search is refused until the embedder of the vectors is named.
    cli.present(diagnosis(checks), as_json, None if as_json or "embedder match" in failed else _next_command(store))
    if failed:
        raise typer.Exit(1)


def _next_command(store: Path | None) -> list[str] | None:
    """The import of the sample into a store without memories, else a search; None for a store that cannot be opened."""
    from cems_workbench.errors import NoMemoriesError, WorkbenchError

    to_import = words_of("import", SAMPLE_DATA.name, options=cli.given_options(store=store))
    try:
        with cli.open_existing_store(store) as opened:
            return first_search(opened, cli.given_options(store=store)) or to_import
    except NoMemoriesError:
        return to_import
    except WorkbenchError:
        return None


def _recover(source: Path, target: Path, as_json: bool) -> None:
    from cems_workbench.store.recovery import recover

    with cli.progress_bar(as_json) as progress:
        found = recover(source, target, progress)
    rows = tuple((one.table, one.read, one.lost) for one in found if one.read or one.lost != 0)
    said = f"written into {target}; its indexes are built at the first search"
    report = Report(tables=[Table(("table", "read", "lost"), rows)], notes=[said], values=list(map(asdict, found)))
    cli.present(report, as_json, words_of("doctor", options=["--deep", "--store", str(target)]))
    if any(one.lost for one in found):
        raise typer.Exit(1)


team_commands = typer.Typer(
    help="Share labels, query sets and configs in PostgreSQL.\n\nCEMS_WORKBENCH_TEAM names the database.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@team_commands.command("push")
def push_command(store: cli.StoreOption = None, as_json: cli.JsonOption = False) -> None:
    """Copy this store's labels, query sets and configs to the team's database.

    Repeating it creates no duplicates.
    """
    with cli.open_existing_store(store) as opened:
        report = opened.push()
        where = opened.team.state().line
    rows = tuple((row.what, row.copied, row.there, row.left) for row in report.rows)
    found = Report(
        tables=[Table(("", "copied", "there", "left behind"), rows)],
        notes=[*report.lines, f"labels are {where}; this store's own database is unchanged"],
        values={"rows": [asdict(row) for row in report.rows], "lines": report.lines},
    )
    cli.present(found, as_json, words_of("team status", options=cli.given_options(store=store)))


@team_commands.command("status")
def status_command(store: cli.StoreOption = None, as_json: cli.JsonOption = False) -> None:
    """Show which database holds the labels, and whether its memories match the store's."""
    from cems_workbench.jobs.store_status import team_status

    with cli.open_existing_store(store) as opened:
        state, lines = opened.team.state(), team_status(opened)
        shared = bool(opened.team.place)
    found = Report(
        lines=[f"labels are {state.line}"],
        tables=[Table(("table", "rows"), tuple(sorted(state.counts.items())))],
        notes=lines,
        values={"where": state.line, "shared": shared, "rows": dict(state.counts), "lines": lines},
    )
    then = words_of("agreement", options=cli.given_options(store=store)) if state.counts.get("judgments") else None
    cli.present(found, as_json, then)
