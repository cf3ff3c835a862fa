"""Does a test see it? Each mutation of the code in data/mutations.csv, one at a time, and the tests that should fail.

    python -m benchmarks.mutations [--tree DIR] [--only TEXT] [--check]

A row says which behaviour breaks, the text to find in the package or its plugins, what to put there, and the arguments of pytest. The code
is changed in a copy of the tracked files of --tree. `--check` only says how often each text is found.
Prints caught, missed or absent, and the first test that failed; exits with 1 unless all were caught.
"""

from __future__ import annotations

import argparse
import csv
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "benchmarks" / "data" / "mutations.csv"
CAUGHT, PASSED, NONE = 1, 0, 5
"""What pytest exits with if a test failed, if all passed, and if there was none."""


def main() -> None:
    """Try the mutations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout whose code and tests are tried")
    parser.add_argument("--only", default="", help="only behaviours with this text")
    parser.add_argument("--check", action="store_true", help="only say how often each text is found")
    given = parser.parse_args()
    with ROWS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if given.only in row["behaviour"]]
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(given.tree.resolve(), Path(folder) / "tree")
        outcomes = [tried(tree, row, check=given.check) for row in rows]
    sys.exit(0 if all(outcomes) else 1)


def copied(tree: Path, to: Path) -> Path:
    """A copy of the tracked files; its shared data and its environment are links to those of the tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=tree, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / name, to / name)
    for link, place in ((to / ".venv", tree / ".venv"), (to.parent / "shared", tree.parent / "shared")):
        if place.exists():
            link.symlink_to(place.resolve())
    return to


def tried(tree: Path, row: dict[str, str], *, check: bool) -> bool:
    """Whether a test saw the mutation, or with `check` whether its text is found; prints a line."""
    files = [
        file
        for top in ("cems_workbench", "plugins")
        for file in (tree / top).rglob("*")
        if file.suffix in (".py", ".html")
    ]
    texts = {file: text for file in files if row["find"] in (text := file.read_text(encoding="utf-8"))}
    if not texts or check:
        print(f"{len(texts) or 'absent':>8}  {row['behaviour']}", flush=True)
        return bool(texts)
    try:
        for file, text in texts.items():
            file.write_text(text.replace(row["find"], row["replace"]), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--tb=line",
            "-m",
            "not thorough",
            *shlex.split(row["tests"]),
        ]
        environment = os.environ | {"HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    finally:
        for file, text in texts.items():
            file.write_text(text, encoding="utf-8")
    failed = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    said = {CAUGHT: "caught", PASSED: "missed", NONE: "no test"}.get(done.returncode, f"exit {done.returncode}")
    print(f"{said:>8}  {row['behaviour']}  {failed[:120]}", flush=True)
    return done.returncode == CAUGHT


if __name__ == "__main__":
    main()
