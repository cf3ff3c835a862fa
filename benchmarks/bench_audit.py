"""What `audit` takes of the processor beside importing the same memories, and how much memory it needs.

    python -m benchmarks.bench_audit [--memories 100000] [--queries 30] [--profile]

The store is made of scale_memories.py: every thousandth text is another's, and one memory in ten has a near pair here. Importing is the
rows and both indexes; vectors are made beforehand, so that no text is embedded. Each query is six words of a memory, which is judged
relevant to it, and the next one irrelevant. What does not grow with the store is printed apart, and not counted: gathering the queries,
and searching them again without memories, where a model reads texts. Exits 1 if the rest takes more than MOST_RATIO times the processor of
the import, or the process more than MOST_MB.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.scale_lists import PreparedVectors
from benchmarks.scale_memories import BLOCK, memories, memory_id
from cems_workbench.api.open_store import open_store
from cems_workbench.models.resolve import PACKAGED_ID
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.store import Store
from workbench_audit.audit import audit

MOST_RATIO, MOST_MB = 3.0, 1_500
PER_QUERY = ("gathering queries", "searching without them")


def with_near(rows: list[Memory]) -> Iterator[Memory]:
    """Of every twenty the tenth says what the one before it says but for a word, and the last two differ in a number alone."""
    for row, memory in enumerate(rows):
        if row % 20 == 9:
            yield replace(rows[row - 1], id=memory.id, content=rows[row - 1].content.rsplit(" ", 1)[0])
        elif row % 20 >= 18 and row % 1_000 < 998:
            yield replace(memory, content=f"{rows[row // 20 * 20 + 18].content} cost {row % 20 * 30} euros")
        else:
            yield memory


def made(count: int, queries: int, place: Path) -> float:
    """A store of so many memories, judged queries and vectors; returns the seconds of the processor."""
    embedder, used, rng = PreparedVectors(count, PACKAGED_ID), 0.0, np.random.default_rng(5)
    with Store.open(place) as store:
        for start in range(0, count, BLOCK):
            given = tuple(with_near(list(memories(min(BLOCK, count - start), start))))
            began = time.process_time()
            store.add(ParsedInput("bench", "bench", memories=given))
            used += time.process_time() - began
        rows = rng.integers(0, count - 1, queries).tolist()
        asked = [
            Query(f"q{i:04d}", " ".join(next(memories(1, row)).content.split()[1:7])) for i, row in enumerate(rows)
        ]
        judged = [
            Judgment(f"q{i:04d}", memory_id(row + no), 1 - no, "bench", "human")
            for i, row in enumerate(rows)
            for no in (0, 1)
        ]
        store.add(ParsedInput("bench", "bench", queries=tuple(asked), judgments=tuple(judged)))
        began = time.process_time()
        store.indexes.refresh(embedder)
        return used + time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--profile", action="store_true", help="print where the time of the audit goes")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        imported = made(asked.memories, asked.queries, Path(folder) / "s")
        print(f"{asked.memories:,} memories: {imported:.1f} s of the processor to import")
        profile, seen = cProfile.Profile(), list[tuple[str, float]]()

        def progress(label: str, done: int, total: int) -> None:
            if not seen or seen[-1][0] != label:
                seen.append((label, time.process_time()))

        with open_store(Path(folder) / "s") as store:
            began = time.process_time()
            if asked.profile:
                profile.enable()
            found = audit(store, progress=progress)
            profile.disable()
            took = time.process_time() - began
        spent: dict[str, float] = defaultdict(float)
        for (label, at), (_, until) in zip(seen, [*seen[1:], ("", began + took)], strict=True):
            spent[label] += until - at
    print(
        *(f"  {label}: {seconds:.1f} s" for label, seconds in sorted(spent.items(), key=lambda one: -one[1])[:8]),
        sep="\n",
    )
    print(*found.summary.rows, *found.notes, sep="\n")
    peak, took = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        took - sum(spent[label] for label in PER_QUERY),
    )
    print(
        f"audit: {took:.1f} s of the processor, {took / imported:.2f} of the import; {peak:,.0f} MB at most, import included"
    )
    if asked.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
    return int(took > MOST_RATIO * imported or peak > MOST_MB)


if __name__ == "__main__":
    raise SystemExit(main())
