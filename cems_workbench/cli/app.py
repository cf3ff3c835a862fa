"""`app`: open the workbench in the browser."""

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
from typing import Annotated

import typer

from cems_workbench.builtin import APP_ROOT
from cems_workbench.cli.options import StoreOption, settings_for
from cems_workbench.errors import InputError
from cems_workbench.platform import start_up

PAGE = APP_ROOT / "app.py"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 (told apart, not bound to)
"""Values that name no single address: the default, localhost, or all addresses."""
MAX_PORT = 65535
PRELOADED = ("cems_workbench.config", "cems_workbench.ui.inspect.page", "duckdb")
"""Imports of the first page, in its order; loaded while the browser fetches the page's scripts."""


def app_command(
    store: StoreOption = None,
    port: Annotated[int, typer.Option("--port", min=1, max=MAX_PORT, help="Port of the app.")] = 8501,
    headless: Annotated[bool, typer.Option("--headless", help="Do not open a browser window.")] = False,
) -> None:
    """Open the app in the browser. It listens on localhost; stop it with Ctrl-C."""
    if not PAGE.is_file():
        raise InputError(f"{PAGE} is missing: the installation is incomplete")
    if _port_in_use(port):
        other = port + 1 if port < MAX_PORT else port - 1
        raise InputError(
            f"port {port} is in use, perhaps by another app; --port {other} starts a second one (make run PORT={other})"
        )
    # Resolve now: the app runs in the directory of its pages.
    os.environ["CEMS_WORKBENCH_STORE"] = str(settings_for(store).store.resolve())
    exit_code = [0]
    atexit.register(_exit_process, exit_code)  # first in, last out: after the cleanup of the server and the models
    start_up.pause()  # imports create no garbage worth collecting; `_preload` ends the pause
    from streamlit.runtime.pages_manager import PagesManager
    from streamlit.web import cli

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
        cli.main()
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
        for name in PRELOADED:
            importlib.import_module(name)
    finally:
        start_up.freeze()
