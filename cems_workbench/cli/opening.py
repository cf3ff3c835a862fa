"""`app`: open the workbench in the browser."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.options import StoreOption
from cems_workbench.errors import InputError

PAGE = Path(__file__).resolve().parents[2] / "app.py"
PRELOADED = (
    "cems_workbench.config",
    "cems_workbench.pipeline",
    "cems_workbench.ui.gathering",
    "cems_workbench.ui.controls",
    "cems_workbench.ui.views",
    "duckdb",
    "plotly.graph_objects",
)
"""What the first page imports, in the page's own order; loaded while the browser still fetches the page's scripts."""


def app_command(
    store: StoreOption = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of the app.")] = 8501,
    headless: Annotated[bool, typer.Option("--headless", help="Do not open a browser window.")] = False,
) -> None:
    """Open the app. It listens on localhost; stop it with Ctrl-C."""
    if not PAGE.is_file():
        raise InputError(f"{PAGE} is not there; run the app from a checkout of the project")
    if store is not None:
        os.environ["CEMS_WORKBENCH_STORE"] = str(store.resolve())
    from streamlit.web import cli

    threading.Thread(target=_preload, name="preload", daemon=True).start()
    os.chdir(PAGE.parent)  # where .streamlit/config.toml is
    sys.argv = ["streamlit", "run", str(PAGE), "--server.port", str(port)]
    if headless:
        sys.argv += ["--server.headless", "true"]
    cli.main()


def _preload() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
