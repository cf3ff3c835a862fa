"""How long is the loss map of 10,000 queries, beside `evaluate` with its eleven measures, and what memory does it take?

    python -m benchmarks.bench_losses [--queries 10000] [--work DIR] [--rounds 5]

The evidence file is that of bench_evidence: two lists of 50 hits and two relevant memories a query. It is read once and encoded; then
`evaluate` (replay, eleven measures, intervals, bounds) and the loss map (its own replay, and counts by type and project) are timed in
turn, by the processor's time of this process. Then the file is streamed in separate processes, whose peak memory the system reports:
measured, measured with the loss map counted in the same pass, and the loss map alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.bench_evidence import CONFIG, peak, write
from cems_workbench.analysis.losses_of_set import LossCollector, losses_of
from cems_workbench.config import preset, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.evidence_stream import EvidenceStream, evaluate_stream
from cems_workbench.evaluation.metrics import standard_measures

TARGET = 0.3
CEMS = with_values(preset("cems").config, {"judge.backend": "none"})
WAYS = ("measured", "measured with the loss map", "loss map alone")


def in_memory(path: Path, rounds: int) -> None:
    """Print seconds of both on one batch, in turn, and their ratio."""
    begun = time.process_time()
    read = read_evidence_file(path)
    loaded = time.process_time()
    batch = LabelledBatch.of(read)
    encoded = time.process_time()
    print(f"read in {loaded - begun:.2f} s, encoded in {encoded - loaded:.2f} s of the processor")
    for name, config in (("no limit, no reranker", CONFIG), ("preset cems", CEMS)):
        seconds: dict[str, list[float]] = {"evaluate": [], "loss map": []}
        for i in range(rounds):
            # Another weight each time, so that neither finds fusion's arrays of the other.
            for step, (what, spent) in enumerate(seconds.items()):
                changed = with_values(config, {"lists.lexical.weight": 0.5 + 0.01 * (2 * i + step)})
                begun = time.process_time()
                if what == "evaluate":
                    evaluate(batch, changed, standard_measures())
                else:
                    found = losses_of([batch], [changed], 1)
                spent.append(time.process_time() - begun)
        whole, part = (statistics.median(spent) for spent in seconds.values())
        print(f"{name}: {found.maps[0].sentence()}")
        print(f"   evaluate {whole:.2f} s, loss map {part:.2f} s: {part / whole:.2f} of it (target: at most {TARGET})")


def streamed(path: Path, way: str) -> dict[str, Any]:
    """In a separate process: the processor's seconds and the peak memory in MB of one way."""
    with EvidenceStream([path]) as stream:
        begun = time.process_time()
        if way == WAYS[2]:
            counted = LossCollector([CONFIG], 1)
            for portion in stream.portions():
                counted.add([LabelledBatch.of(portion)])
            counted.finished()
        else:
            collector = LossCollector([CONFIG], 1) if way == WAYS[1] else None
            evaluate_stream(stream, [CONFIG], standard_measures(), each=collector)
        spent = time.process_time() - begun
    return {"processor, s": round(spent, 2), "peak memory, MB": round(peak() / 1e6)}


def main() -> int:
    """Write the evidence, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("FILE", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(streamed(Path(options.one[0]), options.one[1])))
        return 0
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        path = Path(folder) / "losses.evidence"
        write(path, options.queries)
        print(f"{options.queries:,} queries, {path.stat().st_size / 1e6:,.0f} MB")
        in_memory(path, options.rounds)
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.bench_losses", "--one", str(path), way]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(f"streamed, {way}: {found}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
