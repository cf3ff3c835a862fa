"""Did a change make it slower? The same benchmarks of an earlier commit and of this checkout, in turns, in one run.

The earlier commit is checked out into a temporary git worktree and runs its own code and its own benchmarks. A round runs every
benchmark on one side and then on the other, and the next round begins with the other side, so that what else the machine does meets
both alike. Figures are medians over the rounds; more than `SLACK` worse fails.

Run from the checkout: python -m benchmarks.alternate COMMIT [--rounds 3] [--only slider --only tune]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SLACK = 1.05


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: the benchmark that prints it, how it is read, its unit, and whether more of it is better."""

    command: tuple[str, ...]
    pattern: str
    unit: str
    more_is_better: bool = False


FIGURES = {
    "slider": Figure(("benchmarks.bench_slider", "--moves", "60"), r"^p95 ([\d.]+) ms", "ms p95, release to ranking"),
    "label": Figure(("benchmarks.bench_label", "--runs", "1"), r"^p95 ([\d.]+) ms", "ms p95, key to next card"),
    "tune": Figure(
        ("benchmarks.bench_tune", "--no-peer", "--no-growth"), r"([\d,]+) configs a minute", "configs a minute", True
    ),
    "paint": Figure(("benchmarks.bench_paint",), r"^first page painted ([\d.]+) s", "s to the first page, warm"),
}


def value_of(figure: Figure, checkout: Path) -> float:
    """Run the benchmark in a checkout and read its figure. Raises SystemExit with its output when it prints none."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run = subprocess.run(
        [sys.executable, "-m", *figure.command], cwd=checkout, env=environment, capture_output=True, text=True
    )
    match = re.search(figure.pattern, run.stdout, re.MULTILINE)
    if match is None:
        raise SystemExit(f"{' '.join(figure.command)} in {checkout} printed no figure:\n{run.stdout}{run.stderr}")
    return float(match[1].replace(",", ""))


@contextmanager
def earlier(commit: str) -> Iterator[Path]:
    """A worktree of the commit, gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "earlier"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(checkout), commit], cwd=ROOT, check=True)
        try:
            yield checkout
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(checkout)], cwd=ROOT, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=sorted(FIGURES), help="repeatable; default all")
    options = parser.parse_args()
    chosen = {name: figure for name, figure in FIGURES.items() if name in (options.only or FIGURES)}
    values: dict[tuple[str, str], list[float]] = {}
    with earlier(options.commit) as before:
        for turn in range(options.rounds):
            sides = [("before", before), ("now", ROOT)]
            for name, figure in chosen.items():
                for side, checkout in sides if turn % 2 == 0 else reversed(sides):
                    values.setdefault((name, side), []).append(value_of(figure, checkout))
                    print(
                        f"round {turn + 1}  {name:7s} {side:7s} {values[name, side][-1]:>10,.2f} {figure.unit}",
                        flush=True,
                    )
    slower = []
    print(f"\n{'':8s}{'before':>12s}{'now':>12s}{'now / before':>14s}")
    for name, figure in chosen.items():
        was, now = (statistics.median(values[name, side]) for side in ("before", "now"))
        print(f"{name:8s}{was:12,.2f}{now:12,.2f}{now / was:14.3f}  {figure.unit}")
        if (was / now if figure.more_is_better else now / was) > SLACK:
            slower.append(name)
    if slower:
        raise SystemExit(f"more than {100 * (SLACK - 1):.0f} % worse: {', '.join(slower)}")


if __name__ == "__main__":
    main()
