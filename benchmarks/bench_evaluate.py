"""How long is a new config on 2,000 labelled queries, all measures included, and how long would searching again take?

    python -m benchmarks.bench_evaluate [--queries 2000] [--evidence FILE] [--store DIR] [--configs 7]

Without an evidence file the queries of the sample set are gathered into a temporary store and repeated up to the number asked for.
Each config differs in fusion, weights, filter and adjustments, so that nothing is remembered from the one before. Measured is the
wall time of replay, the eleven standard measures, bootstrap intervals and the bounds of what is not judged; and, alternating with
it in the same run, of gathering a few of the queries again with that config and replaying them: no reranker, no judge, query
embeddings remembered, which favours searching. With the store of the evidence file, `--store` names it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cems_workbench import formats
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.evaluation.grades import Grades, agreed_grades
from cems_workbench.evaluation.metrics import standard_measures
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import gather_query_set, request_for
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Query
from cems_workbench.settings import Settings

SAMPLE = Path(__file__).resolve().parents[1] / "sample_data"
SEARCHED = 10
"""Queries that are searched again for each config."""


def variant(seed: int) -> PipelineConfig:
    """A config like `cems` with other numbers."""
    rng = random.Random(seed)
    changes = {
        "name": f"variant {seed}",
        "judge.backend": "none",
        "fusion.k": rng.randint(5, 90),
        "fusion.score_blend": rng.random(),
        "lists.vector.weight": rng.uniform(0.2, 2),
        "lists.lexical.weight": rng.uniform(0.2, 2),
        "fusion.top_rank_bonus.rank1": rng.uniform(0, 0.1),
        "filter.min_score": rng.uniform(0, 0.05),
        "adjust.time_decay.half_life_days": rng.uniform(20, 200),
        "gap.ratio": rng.uniform(0, 0.5),
    }
    return with_values(preset("cems").config, changes)


def repeated(read: EvidenceSet, count: int) -> LabelledBatch:
    """The judged queries of a file, again and again under new ids, up to `count`."""
    grades = agreed_grades(read.judgments)
    judged = [query for query in read.queries if query.qid in grades and query.qid in read.evidences]
    queries: list[Query] = []
    evidences: dict[str, Evidence] = {}
    copies: Grades = {}
    for i in range(count):
        query = judged[i % len(judged)]
        qid = f"{query.qid}#{i // len(judged)}"
        queries.append(replace(query, qid=qid))
        evidences[qid], copies[qid] = read.evidences[query.qid], grades[query.qid]
    return LabelledBatch(queries, evidences, copies)


def sample(folder: Path) -> tuple[Path, Path]:
    """The sample set in a store, and its evidence file."""
    resources = open_resources(Settings(store=folder / "store"))
    try:
        for parsed in formats.read_path(SAMPLE):
            resources.store.add(parsed)
        started = time.perf_counter()
        config = with_values(preset("cems").config, {"judge.backend": "none"})
        done = gather_query_set(
            folder / "sample.evidence",
            resources.store.queries.read(),
            resources.store.judgments.read(),
            config,
            resources,
        )
        seconds = time.perf_counter() - started
        print(f"gathered {done.gathered} queries in {seconds:.1f} s, indexing included")
    finally:
        resources.close()
    return folder / "store", folder / "sample.evidence"


def searched(queries: Sequence[Query], config: PipelineConfig, resources: Resources, read: EvidenceSet) -> float:
    """Seconds a query to search and rank again."""
    started = time.perf_counter()
    for query in queries:
        replay(gather(request_for(query, read.header.moment), config, resources), config)
    return (time.perf_counter() - started) / len(queries)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--configs", type=int, default=7)
    parser.add_argument("--evidence", type=Path)
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        store, file = (options.store, options.evidence) if options.evidence else sample(Path(scratch))
        return measure(file, store, options.queries, options.configs)


def measure(file: Path, store: Path | None, count: int, configs: int) -> int:
    """Print the time of re-scoring and of searching again, and their ratio."""
    started = time.perf_counter()
    read = read_evidence_file(file)
    loaded = time.perf_counter()
    batch = repeated(read, count)
    encoded = time.perf_counter()
    print(
        f"{file.name}: {len(read.evidences)} queries read in {loaded - started:.2f} s; {len(batch.qids)} encoded in "
        f"{encoded - loaded:.2f} s"
    )
    measures = standard_measures()
    few = random.Random(0).sample([query for query in read.queries if query.qid in read.evidences], SEARCHED)
    resources = open_resources(Settings(store=store), create=False) if store else None
    rescored, search = [], []
    try:
        if resources:
            resources.refresh()
            searched(few, variant(0), resources, read)  # loads the model and remembers the embeddings
        evaluate(batch, variant(0), measures)
        for seed in range(1, configs + 1):
            config = variant(seed)
            started = time.perf_counter()
            evaluate(batch, config, measures)
            rescored.append(time.perf_counter() - started)
            if resources:
                search.append(searched(few, config, resources, read))
    finally:
        if resources:
            resources.close()
    best, median = min(rescored), statistics.median(rescored)
    print(
        f"a new config on {len(batch.qids)} queries, every measure, interval and bound: median {median:.3f} s, best {best:.3f} s"
    )
    if search:
        again = statistics.median(search) * len(batch.qids)
        print(f"searching them again: {statistics.median(search) * 1000:.1f} ms a query, {again:.0f} s in all")
        print(
            f"re-scoring is {again / median:.0f} times faster (target: at least 100), under 1 s: {'yes' if median < 1 else 'no'}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
