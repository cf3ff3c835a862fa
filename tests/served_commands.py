"""A command line that says how it was started; what a server answers in tests/integration/test_serve.py in place of the real one."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path


def main() -> None:
    """Print what a command can see of its process, and do what the query says."""
    query = sys.argv[2]
    if query == "wait":
        Path("begun").touch()
        try:
            for _ in range(6_000):  # in pieces: a signal just before a sleep does not end it
                time.sleep(0.01)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)
    if query == "die":
        os.kill(os.getpid(), 9) if "SERVED_HERE" not in os.environ else None
    mask = os.umask(0)
    os.umask(mask)
    print(sys.argv, os.getcwd(), os.environ.get("NO_COLOR"), shutil.get_terminal_size().columns, sys.stdout.isatty())
    print(f"{mask:o} ä", sys.stdin.read(), file=sys.stderr)
    sys.exit(3)


class _Nothing:
    """Resources of which nothing is kept."""

    empty, lost = True, False

    def keep(self) -> None:
        """As `KeptResources.keep`."""

    def close(self) -> None:
        """As `KeptResources.close`."""

    def rested(self) -> None:
        """As `KeptResources.rested`."""

    def states(self) -> dict[str, tuple[str, int, int]]:
        """As `KeptResources.states`."""
        return {}


KEPT = _Nothing()
