"""A Streamlit app in a separate process, for the benchmarks that need a browser."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
QUERY_BOX = ".st-key-inspect-query input"
AT_REST = "[data-testid=stApp][data-test-script-state=notRunning]"
"""The page when no run of its script is at work."""
WORKBENCH = ("cems_workbench", "app", "--headless", "--port")


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def sample_store(folder: Path, tree: Path = ROOT) -> Path:
    """The sample data, imported into a new store by a checkout."""
    store = folder / "store"
    command = [sys.executable, "-m", "cems_workbench", "import", "sample_data", "--store", str(store)]
    subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return store


@contextlib.contextmanager
def chromium() -> Iterator[Callable[[], Browser]]:
    """What starts a browser; those that are still open are closed at the end."""
    with sync_playwright() as playwright:
        yield lambda: playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])


@contextlib.contextmanager
def serving(
    module: tuple[str, ...], port: int, store: Path, *, tree: Path = ROOT, preset: str | None = None
) -> Iterator[str]:
    """Start `python -m *module port` in a checkout and give its URL as soon as it is healthy; stop it at the end."""
    with served(module, port, store, tree=tree, preset=preset) as (url, _):
        yield url


@contextlib.contextmanager
def served(
    module: tuple[str, ...],
    port: int,
    store: Path,
    *,
    tree: Path = ROOT,
    preset: str | None = None,
    script: bool = False,
) -> Iterator[tuple[str, int]]:
    """As `serving`, with the number of the server's process beside its URL; with `script` the module is the path of a file."""
    environment = {**os.environ, "CEMS_WORKBENCH_STORE": str(store), "HF_HUB_OFFLINE": "1"}
    if preset is not None:
        environment["CEMS_WORKBENCH_PRESET"] = preset
    environment.setdefault("CEMS_WORKBENCH_PRESET", "cems")  # what the figures of earlier runs were taken with
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as it would be started by a user
    process = subprocess.Popen(
        [sys.executable, *([] if script else ["-m"]), *module, str(port)],
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            if process.poll() is not None:
                raise SystemExit(f"{module[0]} ended with exit code {process.returncode}")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=1).close()
                break
            time.sleep(0.02)
        yield f"http://localhost:{port}", process.pid
    finally:
        process.terminate()
        process.wait(20)
