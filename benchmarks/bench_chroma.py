"""What keeping the store's Chroma collection costs an import: the same import with it and without, in turns, in one run.

    python -m benchmarks.bench_chroma [--memories 10000] [--rounds 2] [--given FOLDER]

`--given` takes the vectors of these texts from a folder, as `scale_vectors --graph embedded:FOLDER` keeps them, as `import --vectors` does:
Chroma's part is then far larger than in an import that embeds. Each side is a separate process, and the other is first in the next round.
Processor time is that of all threads, memory the peak.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

import numpy as np

from benchmarks.scale_memories import memories
from cems_workbench.records import Memory

SIDES = ("without", "with")


def write_input(folder: Path, count: int, given: Path | None) -> list[str]:
    """The files of the import in this folder; its arguments."""
    with (folder / "memories.jsonl").open("w") as file:
        for memory in memories(count):
            values = {each.name: getattr(memory, each.name) for each in fields(Memory)}
            file.write(json.dumps({name: value for name, value in values.items() if value is not None}, default=str))
            file.write("\n")
    if given is not None:
        np.save(folder / "vectors.npy", np.vstack([np.load(file) for file in sorted(given.glob("*.npy"))])[:count])
    options = ["--vectors", str(folder / "vectors.npy"), "--chunks", "whole"] if given else []
    return ["import", str(folder / "memories.jsonl"), *options, "--json"]


def run(side: str, arguments: list[str]) -> int:
    """The import, in this process."""
    from cems_workbench.cli.main import main as command
    from cems_workbench.store.search.indexes import DerivedIndexes

    if side == "without":
        DerivedIndexes.catch_up_chroma = lambda *given, **named: ""  # type: ignore[method-assign]
    sys.argv = ["cems_workbench", "--no-serve", *arguments]
    return command() or 0  # type: ignore[func-returns-value]


def measured(arguments: list[str], side: str, store: Path) -> tuple[float, float]:
    """Processor seconds and MB of an import in a separate process."""
    command = [sys.executable, "-m", "benchmarks.bench_chroma", "--side", side, *arguments, "--store", str(store)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"the import ended with {os.waitstatus_to_exitcode(status)}")
    if (store / "chroma").exists() != (side == "with"):
        raise RuntimeError(f"{side}: the Chroma folder says otherwise")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--given", type=Path, help="a folder of vectors, instead of embedding")
    asked = parser.parse_args()
    cost: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="bench-chroma-") as name:
        arguments = write_input(Path(name), asked.memories, asked.given)
        for number in range(asked.rounds):
            for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                cost[side].append(measured(arguments, side, Path(name) / f"store-{side}-{number}"))
                print(
                    f"round {number} {side:8} {cost[side][-1][0]:8.1f} s processor {cost[side][-1][1]:7.0f} MB",
                    flush=True,
                )
    (before, less), (after, more) = (tuple(map(statistics.median, zip(*cost[side], strict=True))) for side in SIDES)
    print(
        f"{asked.memories:,} memories: processor {after / before:.3f}, memory {more / less:.3f} with Chroma by without"
    )
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[2], sys.argv[3:]) if sys.argv[1:2] == ["--side"] else main())
