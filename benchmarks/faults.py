"""Every file of a store damaged in every way: what a search says and answers, and what a rescue still finds.

    python -m benchmarks.faults [--store STORE] [--flips 20] [--seed 19] [--only NAME]

A store (default: the sample, imported) is copied; of the copy one file at a time is removed, emptied, halved, overwritten at random or has
one bit flipped. `search` is run on it. Never may it show a traceback, crash, or answer otherwise than the whole store without a warning.
Where the database cannot be opened, `doctor --rescue` has to end in a line too. Last: a full disk (a small tmpfs, as root), a store that
may not be written and one whose folder is gone. Prints a table, and exits 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
QUERY = "when are we moving house"
WAYS = ("removed", "emptied", "halved", "random", "flipped")


def damage(path: Path, way: str, drawn: random.Random) -> None:
    """Damage a file in one of the `WAYS`."""
    if way == "removed":
        path.unlink()
        return
    content = bytearray(path.read_bytes())
    if way == "emptied":
        content = bytearray()
    elif way == "halved":
        del content[len(content) // 2 :]
    elif way == "random":
        content = bytearray(drawn.randbytes(len(content)))
    elif content:
        content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
    path.write_bytes(content)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the workbench's command line."""
    return subprocess.run(
        [sys.executable, "-m", "cems_workbench", *arguments],
        capture_output=True, text=True, errors="replace", cwd=ROOT, timeout=300, check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def search(store: Path) -> subprocess.CompletedProcess[str]:
    """Search a store for `QUERY`, at a moment that is always the same."""
    return command("search", QUERY, "--preset", "cems", "--as-of", "2026-09-01", "--store", str(store), "--json")


def ranking(printed: str) -> Any:
    """What a search answered: ids and scores."""
    found = json.loads(printed)
    return [
        {key: value for key, value in result.items() if isinstance(value, (str, int, float))}
        for result in found["results"]
    ]


def outcome(store: Path, expected: Any) -> str:
    """How a search of a damaged store ended, in a word or two; what must not be begins with WRONG."""
    ended = search(store)
    if ended.returncode < 0:
        return f"WRONG: crash {-ended.returncode}"
    if "Traceback" in ended.stderr or ended.returncode == 1:
        return "WRONG: traceback"
    warned = "warning:" in ended.stderr
    if ended.returncode == 2:
        lines = ended.stderr.strip().splitlines()
        return "one line" if len(lines) == 1 + warned else "WRONG: more than one line"
    if ranking(ended.stdout) != expected:
        return "other results, said" if warned else "WRONG: other results"
    return "same results, said" if warned else "same results"


def main() -> int:
    """Damage, search and print; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path)
    parser.add_argument("--flips", type=int, default=20)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--only", default="", help="files whose name has this")
    options = parser.parse_args()
    drawn = random.Random(options.seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as home:
        whole, place = Path(home) / "whole", Path(home) / "damaged"
        if options.store:
            shutil.copytree(options.store, whole)
        else:
            command("import", str(ROOT / "sample_data"), "--store", str(whole))
        expected = ranking(search(whole).stdout)
        files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
        for name in files:
            if options.only not in str(name):
                continue
            counted: dict[str, Counter[str]] = {}
            for way in WAYS:
                for _ in range(options.flips if way == "flipped" else 1):
                    shutil.rmtree(place, ignore_errors=True)
                    shutil.copytree(whole, place)
                    damage(place / name, way, drawn)
                    said = outcome(place, expected)
                    if said == "one line" and name.name == "workbench.duckdb":
                        rescued = command("doctor", "--rescue", str(place / "new"), "--store", str(place))
                        said += ", WRONG: rescue" if "Traceback" in rescued.stderr else f", rescue {rescued.returncode}"
                    counted.setdefault(way, Counter())[said] += 1
                    wrong += "WRONG" in said
            cells = "; ".join(
                f"{way} {', '.join(f'{count} {said}' for said, count in found.items())}"
                for way, found in counted.items()
            )
            print(f"{name}: {cells}", flush=True)
        wrong += surroundings(whole, Path(home), expected)
    print("nothing went wrong" if not wrong else f"{wrong} WRONG")
    return int(bool(wrong))


def surroundings(whole: Path, home: Path, expected: Any) -> int:
    """A full disk, a store that may not be written, a folder that is gone; how many went wrong."""
    wrong = 0
    said = outcome(home / "nowhere", expected)
    wrong += "WRONG" in said
    print(f"vanished folder: {said}", flush=True)
    if os.geteuid() == 0 and shutil.which("mount"):
        size = sum(path.stat().st_size for path in whole.rglob("*") if path.is_file())
        for words, choices in (("full disk", f"size={size + 400_000}"), ("read-only", "size=100m")):
            disk = home / words
            disk.mkdir()
            if subprocess.run(["mount", "-t", "tmpfs", "-o", choices, "tmpfs", disk], check=False).returncode:
                print(f"{words}: no tmpfs can be mounted")
                continue
            try:
                shutil.copytree(whole, disk / "store")
                if words == "read-only":
                    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
                    said = outcome(disk / "store", expected)
                else:
                    ended = command("import", str(ROOT / "tests" / "recordings"), "--store", str(disk / "store"))
                    shutil.rmtree(disk / "store" / "lexical")
                    (disk / "filler").write_bytes(b"\0" * max(0, shutil.disk_usage(disk).free - 20_000))
                    said = "WRONG: traceback" if "Traceback" in ended.stderr else outcome(disk / "store", expected)
            finally:
                subprocess.run(["umount", disk], check=False)
            wrong += "WRONG" in said
            print(f"{words}: {said}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
