"""How many configs a minute does tuning evaluate, from fusion to metric, and how does that compare with ranx?

Ours: `BatchScorer`, every config different (weights, k, blend), nDCG@10 of every query. Peer: `ranx.fuse` of the same lists (rrf with
as many k) and `ranx.evaluate` of nDCG@10, after numba has compiled, in the same run. Then how it grows with queries and
lists. Run from the checkout: python -m benchmarks.bench_tune [--queries 1000] [--configs 60] [--no-peer] [--no-growth]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.synthetic_queries import evidences, fusion_only, planted
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.pipeline import Evidence
from cems_workbench.platform import start_up
from cems_workbench.tuning.scorer import BatchScorer
from cems_workbench.tuning.space import SearchSpace, axis_for

TARGET = 6000
RATIO = 50


def configs(seed: int = 0) -> Iterator[PipelineConfig]:
    """Different configs of one fusion space, without end."""
    paths = (
        "lists.vector.weight",
        "lists.lexical.weight",
        "variants.original_weight",
        "fusion.k",
        "fusion.score_blend",
    )
    space = SearchSpace.of(fusion_only(), [axis_for(path) for path in paths])
    rng = np.random.default_rng(seed)
    while True:
        yield space.config(tuple(axis.value(int(rng.integers(axis.size))) for axis in space.axes))


def ours(batch: LabelledBatch) -> Callable[[], float]:
    """Score one more config on every query."""
    score = BatchScorer(batch, [parse_measure("nDCG@10")])
    rows, more = np.arange(len(batch.queries)), configs()
    score(next(more), rows)
    return lambda: float(score(next(more), rows).mean())


def peer(made: list[Evidence], batch: LabelledBatch) -> Callable[[], float]:
    """ranx: fuse the lists by rrf with one more k, and evaluate."""
    from ranx import Qrels, Run, evaluate, fuse

    count = len(made[0].lists)
    runs = [
        Run({f"q{q}": {hit.memory_id: hit.score for hit in one.lists[i].hits} for q, one in enumerate(made)})
        for i in range(count)
    ]
    qrels = Qrels({qid: dict(given) for qid, given in zip(batch.qids, batch.grades, strict=True)})
    state = {"k": 10}

    def one() -> float:
        state["k"] += 1
        fused = fuse(runs=runs, method="rrf", norm=None, params={"k": state["k"]})
        return float(evaluate(qrels, fused, "ndcg@10"))

    one()
    one()  # compiled by now
    return one


def timed(job: Callable[[], float]) -> tuple[float, float]:
    """Milliseconds of one call: by the clock, and of processor time (all threads), which a busy machine changes less."""
    start, spent = time.perf_counter(), time.process_time()
    job()
    return (time.perf_counter() - start) * 1000, (time.process_time() - spent) * 1000


def medians(times: list[tuple[float, float]]) -> tuple[float, float]:
    """Median of each."""
    return statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times)


def growth(queries: int, lists: int, hits: int, repeats: int = 15) -> float:
    """Median milliseconds of processor time per config of a set of this size."""
    job = ours(planted(evidences(queries, lists, hits), fusion_only()))
    return medians([timed(job) for _ in range(repeats)])[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--lists", type=int, default=4)
    parser.add_argument("--hits", type=int, default=50)
    parser.add_argument("--configs", type=int, default=60)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--no-growth", action="store_true")
    options = parser.parse_args()
    made = evidences(options.queries, options.lists, options.hits)
    batch = planted(made, fusion_only())
    mine, theirs = ours(batch), None if options.no_peer else peer(made, batch)
    start_up.freeze()  # as `tune` does: neither side is held up by a look at objects that stay
    # One side after the other, each one config after the next, as in a search: between two of the other's calls, which fill the
    # processor's caches with their own objects, either side is a third slower.
    times = [timed(mine) for _ in range(options.configs)]
    others = [timed(theirs) for _ in range(max(1, options.configs // 4))] if theirs else []
    wall, cpu = medians(times)
    print(f"{options.queries} queries × {options.lists} lists × {options.hits} hits, fusion to nDCG@10")
    print(f"ours  {wall:9.2f} ms a config by the clock, {cpu:9.2f} ms of processor (median of {len(times)})")
    print(
        f"      {60_000 / wall:,.0f} configs a minute by the clock (target {TARGET:,}); load average {os.getloadavg()[0]:.1f}"
    )
    if others:
        other, spent = medians(others)
        print(
            f"ranx  {other:9.2f} ms a config by the clock, {spent:9.2f} ms of processor (median of {len(others)}, rrf)"
        )
        print(
            f"      {other / wall:.0f} times ours by the clock (target {RATIO}), {spent / cpu:.0f} times in processor time"
        )
    if not options.no_growth:
        print("\nqueries  lists  hits   ms of processor a config")
        for size in (
            (250, 4, 50),
            (500, 4, 50),
            (1000, 4, 50),
            (2000, 4, 50),
            (1000, 2, 50),
            (1000, 8, 50),
            (1000, 4, 100),
        ):
            print(f"{size[0]:7d} {size[1]:6d} {size[2]:5d} {growth(*size):13.2f}", flush=True)


if __name__ == "__main__":
    main()
