"""The FTS5 list at 100,000 memories, beside SQLite alone on the same table in the same run.

    python -m benchmarks.bench_fts5 [--memories 100000] [--queries 60] [--words 6] [--seed 0]

Two queries are measured: the 50 best, and the first 50 by row (`cut: row`). SQLite alone runs one SELECT for either; the list also counts
the matches, looks for the best one that was lost, and makes hits of the rows. Exits 1 where the list takes more than twice as long.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from itertools import accumulate

from benchmarks.turns import in_turn
from workbench_engines.fts5 import Fts5Index, Row

MOST = 2.0
DEPTH, LENGTH, VOCABULARY = 50, 40, 30_000
ALONE = {
    "score": "SELECT rowid, bm25(t) FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT ?",
    "row": "SELECT rowid, bm25(t) FROM t WHERE t MATCH ? LIMIT ?",
}


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("memories", 100_000), ("queries", 60), ("words", 6), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    rng = random.Random(options.seed)
    words = [f"w{number}" for number in range(VOCABULARY)]
    frequent = list(accumulate(1 / (number + 1) for number in range(VOCABULARY)))
    began = time.perf_counter()
    index = Fts5Index(
        (
            (Row(f"m{number}", None, None, "personal"), [" ".join(rng.choices(words, cum_weights=frequent, k=LENGTH))])
            for number in range(options.memories)
        ),
        [1.0],
    )
    print(f"{options.memories:,} memories of {LENGTH} words: table made in {time.perf_counter() - began:.1f} s")
    asked = [" OR ".join(rng.choices(words, cum_weights=frequent, k=options.words)) for _ in range(options.queries)]
    failed = False
    for cut, command in ALONE.items():

        def alone(number: int, command: str = command) -> list[tuple[int, float]]:
            return index.connection.execute(command, (asked[number], DEPTH)).fetchall()

        def ours(number: int, cut: str = cut) -> list[tuple[str, float, int | None]]:
            return index.search(asked[number], DEPTH, cut).hits

        theirs, own = in_turn(len(asked), alone, ours, warm=3)
        for rows, hits in zip(theirs.answers, own.answers, strict=True):
            if sorted(-score for _, score in rows) != sorted(score for _, score, _ in hits):
                raise SystemExit(f"cut {cut}: the list has other scores than SQLite")
        (median, high), (our_median, our_high) = theirs.summary, own.summary
        ratio = our_median / median
        failed |= ratio > MOST
        print(
            f"cut {cut}: SQLite {median:.1f} ms (95 %: {high:.1f}), the list {our_median:.1f} ms (95 %: {our_high:.1f}): × {ratio:.2f}, "
            f"at most × {MOST:g}"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
