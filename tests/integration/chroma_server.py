"""A real Chroma server, `chroma run`, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60.0


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(directory: Path) -> Iterator[int]:
    """The port of a server on this machine whose database is in `directory`; it ends with the context."""
    port = free_port()
    with process(directory, port):
        yield port


@contextmanager
def process(directory: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The same at a given port, as a process."""
    program = Path(sys.executable).parent / "chroma"
    command = [str(program), "run", "--path", str(directory), "--host", "127.0.0.1", "--port", str(port)]
    with (directory.parent / "chroma.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(server, port, directory.parent / "chroma.log")
            yield server
        finally:
            server.terminate()
            server.wait(60)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < ends:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/heartbeat", timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"chroma run did not start: {log.read_text(errors='replace')[-500:]}")
