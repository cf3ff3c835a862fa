"""How long is one replay? Four lists of 150/50/150/50 hits, the size a hybrid search with one expansion gathers.

Prints the median over alternated runs of: replay (what a slider pays), replay with every row read, reading the rows, encoding
the evidence, and the peer: the same four lists fused by `ranx.fuse(method="rrf")`, which does fusion alone.
Run from the checkout: python -m benchmarks.bench_replay [--repeats 300]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant, replay
from cems_workbench.pipeline.list_sources import Source
from cems_workbench.pipeline.replay import to_table
from cems_workbench.records import Memory

NOW = datetime(2026, 9, 1, tzinfo=UTC)


def evidence(seed: int = 7, pool: int = 400) -> Evidence:
    """A synthetic evidence with four lists over `pool` memories and model scores for all of them."""
    rng = np.random.default_rng(seed)
    ids = [f"m{i:04d}" for i in range(pool)]
    words = [f"word{i}" for i in range(800)]
    memories = {
        key: Memory(
            id=key,
            content=" ".join(rng.choice(words, size=40)),
            project=str(rng.choice(["acme/api", "acme/web"])),
            session=f"s{i % 40}",
            created_at=NOW - timedelta(days=float(rng.uniform(0, 400))),
            last_accessed=NOW - timedelta(days=float(rng.uniform(0, 200))),
            priority=float(rng.choice([1.0, 1.5])),
        )
        for i, key in enumerate(ids)
    }

    def ranked(name: str, source: Source, variant: int, size: int, high: float) -> RankedList:
        chosen = rng.choice(ids, size=size, replace=False)
        scores = np.sort(rng.uniform(0, high, size=size))[::-1]
        return RankedList(
            name, source, variant, tuple(Hit(str(i), float(s)) for i, s in zip(chosen, scores, strict=True))
        )

    lists = (
        ranked("vector:0", "vector", 0, 150, 0.9),
        ranked("lexical:0", "lexical", 0, 50, 12.0),
        ranked("vector:1", "vector", 1, 150, 0.9),
        ranked("lexical:1", "lexical", 1, 50, 12.0),
    )
    scores = {key: ModelScore(float(rng.uniform(0, 1))) for key in ids}
    embeddings = {key: rng.normal(size=384) for key in ids}
    return Evidence(
        "benchmark query",
        memories,
        (Variant("benchmark query"), Variant("expansion", "expansion")),
        lists,
        NOW,
        "acme/api",
        {"late_interaction": scores},
        embeddings=embeddings,
    )


def ranx_fusion(bundle: Evidence) -> Callable[[], object]:
    """The peer: ranx fusing the same lists."""
    from ranx import Run, fuse

    runs = [Run({"q": {hit.memory_id: hit.score for hit in ranked.hits}}) for ranked in bundle.lists]
    return lambda: fuse(runs=[Run(dict(run.run)) for run in runs], method="rrf", params={"k": 60})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    repeats = parser.parse_args().repeats
    bundle = evidence()
    plain = preset("cems").config
    full: PipelineConfig = with_values(
        plain,
        {
            "rerank.backend": "late_interaction",
            "rerank.raw_scale": "identity",
            "rerank.depth": 150,
            "adjust.feedback.enabled": True,
            "gap.ratio": 0.1,
            "dedup.enabled": True,
            "assembly.strategy": "mmr",
            "threshold.mode": "adaptive",
        },
    )
    jobs: dict[str, Callable[[], object]] = {
        "replay, preset cems": lambda: replay(bundle, plain),
        "replay, every stage on": lambda: replay(bundle, full),
        "replay, cems, and every row read": lambda: [stage.rows for stage in replay(bundle, plain).stages],
        "encode the evidence (once per gather)": lambda: to_table([bundle]),
    }
    try:
        jobs["peer: ranx rrf, fusion alone"] = ranx_fusion(bundle)
    except ImportError:
        print("ranx is not installed; the peer is left out")
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append((time.perf_counter() - start) * 1000)
    median = {name: statistics.median(values) for name, values in times.items()}
    for name, value in median.items():
        print(f"{name:40s} {value:8.3f} ms median")
    print(f"\nreplay, preset cems: {median['replay, preset cems']:.3f} ms (target: at most 2 ms)")
    if "peer: ranx rrf, fusion alone" in median:
        ratio = median["replay, preset cems"] / median["peer: ranx rrf, fusion alone"]
        print(f"ratio replay (every stage) / ranx (fusion alone): {ratio:.2f}")


if __name__ == "__main__":
    main()
