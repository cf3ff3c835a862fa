"""Subprocesses for reading files that may be damaged: a crash of the library ends only the subprocess."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class SubprocessResult:
    """A subprocess's output, and its error (empty on success)."""

    stdout: str
    problem: str = ""


def run_in_subprocess(module: str, *arguments: str, seconds: float) -> SubprocessResult:
    """Run a module of this package with arguments, for at most `seconds`."""
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    try:
        ended = subprocess.run(  # noqa: S603 (a module of this package, no shell)
            [sys.executable, "-X", "faulthandler=0", "-m", module, *arguments],
            capture_output=True,
            timeout=seconds,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as late:
        return SubprocessResult((late.stdout or b"").decode("utf-8", "replace"), f"timed out after {seconds:g} s")
    except OSError as error:
        return SubprocessResult("", f"cannot start a process: {error.strerror}")
    printed = ended.stdout.decode("utf-8", "replace")
    if ended.returncode == 0:
        return SubprocessResult(printed)
    # The process was ended by a signal.
    if ended.returncode < 0:
        return SubprocessResult(
            printed, f"the library that reads it crashes ({signal.Signals(-ended.returncode).name})"
        )
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return SubprocessResult(printed, lines[-1] if lines else f"exit code {ended.returncode}")
