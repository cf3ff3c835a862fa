"""What `why` costs over pairs that are lost at all depths: processor seconds and peak memory, of an earlier commit and of this checkout.

    python -m benchmarks.bench_why --against COMMIT [--pairs 40] [--rounds 1] [--served]

The pairs are every third query of the sample with the memories judged for it that are not among its results, whatever their grade: of
each stage that loses one and of each depth of rank in turn, by query id and memory id. Both sides explain the
same pairs by the same command, each with its own code on its own store, one after the other, and the next pair begins with the other
side. Measured is the process tree as in `startup`; with `--served` a server of each side answers, and its start is not counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path

from benchmarks.alternate import ROOT, earlier
from benchmarks.startup import Side, Tree, run

AS_OF = "2026-09-01"
DEPTHS = (20, 50, 100)
"""Ranks before assembly by which pairs of one stage are apart."""
Pair = tuple[str, str]


def lost_pairs(store: Path) -> dict[str, list[Pair]]:
    """Judged pairs of every third query that are not returned, by where they are lost: the stage, and how deep the memory was in it."""
    import cems_workbench as workbench
    from cems_workbench.analysis.ranks import target_rank
    from cems_workbench.analysis.why.path import memory_path

    found: dict[str, list[Pair]] = defaultdict(list)
    with workbench.open_store(store) as opened:
        grades: dict[str, list[str]] = defaultdict(list)
        for line in sorted((ROOT / "sample_data/judgments.qrels").read_text().splitlines()):
            qid, _, memory_id, _ = line.split()
            grades[qid].append(memory_id)
        for query in opened.resources.store.queries.read()[::3]:
            answer = workbench.search(opened, query.query, as_of=AS_OF)
            k = target_rank(answer.config)
            for memory_id in grades[query.qid]:
                path = memory_path(answer.trace, memory_id, k)
                if path.status == "in the top k":
                    continue
                ranks = [step.rank for step in path.steps if step.rank]
                depth = sum(bool(ranks) and ranks[-1] > deep for deep in DEPTHS)
                found[f"{path.lost_at or path.status} {depth}"].append((query.query, memory_id))
    return found


def chosen(pairs: dict[str, list[Pair]], count: int) -> list[tuple[str, Pair]]:
    """So many pairs, of each place in turn, spread over the queries."""
    ways: Iterator[list[tuple[str, Pair]]] = (
        [(place, own[i]) for i in sorted(range(len(own)), key=lambda i: (i * 37 % 101, i))]
        for place, own in sorted(pairs.items())
    )
    turns = chain.from_iterable(zip_longest(*ways))
    return [one for one in turns if one is not None][:count]


def measured(side: Side, pair: Pair, served: bool) -> tuple[float, float]:
    """(processor s, peak MB) of one command."""
    query, memory_id = pair
    command = ["why", query, memory_id, "--as-of", AS_OF, "--store", str(side.store)]
    if served:  # one that was started before is of another tree, and would not be counted
        run(side, ["serve", "--stop", "--store", str(side.store)])
    with Tree() as tree:
        before = 0.0
        if served:
            run(side, ["search", "a first question", "--store", str(side.store)], tree.mark)
            before = tree.rest()
        used, _ = run(side, command, tree.mark)
        return used + tree.rest() - before, tree.peak / 1024


def spread(values: list[float]) -> str:
    """Median, and least to most."""
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="COMMIT")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--served", action="store_true", help="let the server of each side answer")
    options = parser.parse_args()
    if not options.served:
        os.environ["CEMS_WORKBENCH_SERVE"] = "off"
    with earlier(options.against) as checkout, tempfile.TemporaryDirectory() as name:
        sides = [Side(side, tree, Path(name) / side) for side, tree in (("before", checkout), ("now", ROOT))]
        for side in sides:
            side.folder.mkdir()
            run(side, ["import", "sample_data", "--store", str(side.store)])
        shutil.copytree(sides[1].store, Path(name) / "asked")
        pairs = chosen(lost_pairs(Path(name) / "asked"), options.pairs)
        run(sides[0], ["search", "a warm-up", "--store", str(sides[0].store)])
        run(sides[1], ["search", "a warm-up", "--store", str(sides[1].store)])
        seconds, memory = [], []
        print(f"{'lost at':22s}{'memory':>8s}{'before s':>10s}{'now s':>8s}{'ratio':>7s}{'MB':>7s}{'now':>6s}  query")
        for i, (place, pair) in enumerate(pairs):
            taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
            for turn in range(options.rounds):
                for side in sides if (i + turn) % 2 else reversed(sides):
                    taken[side.name].append(measured(side, pair, options.served))
            (was, mb), (now, mb_now) = ([statistics.median(c) for c in zip(*taken[s.name], strict=True)] for s in sides)
            seconds.append((was, now))
            memory.append((mb, mb_now))
            print(
                f"{place:22s}{pair[1]:>8s}{was:10.2f}{now:8.2f}{now / was:7.2f}{mb:7.0f}{mb_now:6.0f}  {pair[0]}",
                flush=True,
            )
        for what, values in (("processor s", seconds), ("peak MB", memory)):
            was, now = zip(*values, strict=True)
            ratios = [b / a for a, b in values]
            print(f"{what}: before {spread(list(was))}, now {spread(list(now))}, ratio {spread(ratios)}")
            print(f"{what}, all pairs together: {sum(now) / sum(was):.2f}")


if __name__ == "__main__":
    main()
