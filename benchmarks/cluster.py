"""What a Dask cluster of two workers on this machine's cores saves over one process: gathering, and tuning.

    python -m benchmarks.cluster [--sample STORE] [--queries 24] [--synthetic 2000] [--trials 200] [--rounds 3] [--kill]

Gathering: queries of the sample store (imported if none is named) under a config whose cross-encoder reads 8 pairs of each,
from a copy of the store whose cache holds no scores. Tuning: a search for nDCG@10 over four parameters of fusion, five folds, on
synthetic lists. Workers have one thread each; "one process" uses the workbench's default, and in a second run one
thread, as a worker does. Sides are run in turn, the median is reported. The results of both are compared. With --kill a worker is
killed a third of the way, in one more round of each.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.config import preset, with_values
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.jobs.cluster import cluster_at
from cems_workbench.jobs.evaluation import labelled_file
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import gather_query_set
from cems_workbench.jobs.tuning import TuningData, planned_search, run_search
from cems_workbench.progress import Progress, silent
from cems_workbench.settings import Settings
from cems_workbench.tuning.objective import parse_goal

CONFIG = with_values(
    preset("cems").config,
    {
        "judge.backend": "none",
        "rerank.backend": "cross_encoder",
        "rerank.model": "workbench/minilm-judge",
        "rerank.depth": 8,
    },
)
SPACE = (
    "lists.vector.weight=0.5:2.5:0.1",
    "lists.lexical.weight=0.5:2.5:0.1",
    "fusion.k=10:90:5",
    "fusion.score_blend=0:0.5:0.05",
)
NOW = datetime(2026, 9, 1, tzinfo=UTC)


def gather(store: Path, folder: Path, queries: int, dask: str, progress: Progress = silent) -> tuple[float, str]:
    """Seconds of gathering, and the hash of what was gathered."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    own, out = Path(shutil.copytree(store, folder / "store")), folder / "e.evidence"
    resources = open_resources(Settings(store=own, dask=dask))
    try:
        asked = [replace(query, as_of=NOW) for query in resources.store.queries.read()[:queries]]
        resources.refresh()
        started = time.perf_counter()
        gather_query_set(out, asked, [], CONFIG, resources, progress=progress)
        return time.perf_counter() - started, read_evidence_file(out).replay_hash
    finally:
        resources.close()


def tune(evidence: Path, trials: int, dask: str, kill: Callable[[], None] | None = None) -> tuple[float, str]:
    """Seconds of a search with its folds, and what it proposes with all scores."""
    read = read_evidence_file(evidence)
    data = TuningData(fusion_only(), read.header.query_set, labelled_file(read, None))
    planned = planned_search(
        data, parse_goal(["nDCG@10"]), SPACE, group_by="query", folds=5, sealed=0.2, trials=trials, seed=4
    )
    for kept in evidence.parent.glob("*.npz"):
        kept.unlink()
    killed: list[str] = []

    def stage(name: str) -> Any:
        def watch(done: int, total: int, best: object) -> None:
            if kill and done > trials // 3 and not killed:
                killed.append(name)
                kill()

        return watch

    with cluster_at(dask) as cluster:
        started = time.perf_counter()
        tuned = run_search(planned, stage, cluster).tuned
        seconds = time.perf_counter() - started
    assert not kill or killed
    scores = [trial.scores.tobytes() for trial in tuned.search.trials]
    return seconds, str(hash((tuple(scores), tuned.proposal.values, str(tuned.validation))))


def alone(*arguments: object, threads: int | None = None) -> tuple[float, str]:
    """One side in a separate process, so that neither warms the other."""
    environment = dict(os.environ) | {"PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1"}
    if threads:
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    command = [sys.executable, "-m", "benchmarks.cluster", "--side", *map(str, arguments)]
    if threads == 1:
        command = ["taskset", "-c", "0", *command]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()
    return float(said[-2]), said[-1]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=Path, default=None, help="a store with the sample")
    parser.add_argument("--queries", type=int, default=24)
    parser.add_argument("--synthetic", type=int, default=2000)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--side", nargs=4, default=None, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Print a table."""
    options = parse(arguments)
    if options.side:
        kind, path, much, dask = options.side
        given = "" if dask == "none" else dask
        print(
            *(
                gather(Path(path), Path(path).parent / "own", int(much), given)
                if kind == "gather"
                else tune(Path(path), int(much), given)
            )
        )
        return 0
    from distributed import LocalCluster

    from tests.planted import planted_file

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "sample"
        if options.sample:
            shutil.copytree(options.sample, store)
        else:
            command = [sys.executable, "-m", "cems_workbench", "import", "sample_data", "--store", str(store)]
            subprocess.run(command, check=True, capture_output=True)
        evidence = planted_file(Path(folder), options.synthetic)
        with LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=logging.CRITICAL
        ) as workers:
            address = str(workers.scheduler_address)

            def kill() -> None:
                pids = [worker.process.pid for worker in workers.workers.values() if worker.process is not None]
                os.kill(pids[0], signal.SIGKILL)

            print("| work | one process | held to one core | two workers | ratio | ratio to one core | the same |")
            print("|---|---:|---:|---:|---:|---:|---|")
            for kind, path, much in (
                ("gather", store, options.queries),
                ("tune", evidence, options.trials),
            ):
                sides: dict[str, list[tuple[float, str]]] = {"process": [], "core": [], "workers": []}
                for _ in range(options.rounds):
                    sides["process"].append(alone(kind, path, much, "none"))
                    sides["core"].append(alone(kind, path, much, "none", threads=1))
                    sides["workers"].append(alone(kind, path, much, address))
                one, core, two = (statistics.median(seconds for seconds, _ in rows) for rows in sides.values())
                same = "yes" if len({found for rows in sides.values() for _, found in rows}) == 1 else "NO"
                print(
                    f"| {kind} | {one:.1f} s | {core:.1f} s | {two:.1f} s | {one / two:.2f} | {core / two:.2f} | {same} |",
                    flush=True,
                )
                if options.kill:
                    killed: list[int] = []

                    def progress(label: str, done: int, total: int, killed: list[int] = killed) -> None:
                        if done > total // 3 and not killed:
                            killed.append(done)
                            kill()

                    if kind == "gather":
                        seconds, _ = gather(store, Path(folder) / "killed", much, address, progress)
                    else:
                        seconds, _ = tune(evidence, much, address, kill)
                    print(f"<!-- {kind} with a worker killed a third of the way: {seconds:.1f} s -->", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
