"""Evidence of any size: seconds and peak memory of opening, proving and measuring a config, at 10^4, 10^5, 10^6 queries.

    python -m benchmarks.bench_evidence [--queries 10000,100000] [--work DIR] [--peer 10000]

Each size is a separate evidence file, written a table at a time: two lists of 50 hits a query over the same 50 of at most 100,000
memories, two judgments a query. It is opened, proved by its hash and measured with the eleven standard measures, their intervals and
bounds, in a separate process, whose peak memory the system reports. Beside it ir_measures measures the same run by the same
judgments as far as `--peer` queries go: it has neither replayed nor read it, and makes no intervals.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cems_workbench.config import dump_config, preset, with_values
from cems_workbench.evaluation import evidence_rows
from cems_workbench.evaluation.batch import LabelledBatch, Rankings
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header
from cems_workbench.evaluation.evidence_stream import EvidenceStream, evaluate_stream
from cems_workbench.evaluation.metrics import standard_measures

HITS, MEMORIES, AT_A_TIME = 50, 100_000, 20_000
CONFIG = with_values(preset("cems").config, {"judge.backend": "none", "rerank.backend": "none", "assembly.limit": None})
PEER = "hit@5 recall@10 nDCG@10 AP"


def peak() -> int:
    """Bytes of this process at most. `ru_maxrss` is that of the process that started this one where it was larger."""
    said = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert said is not None
    return int(said[1]) * 1024


def write(path: Path, queries: int, seed: int = 0) -> None:
    """An evidence file of so many queries."""
    memories = min(MEMORIES, max(10_000, queries))
    header = Header("synthetic", "store", 1, "none", dump_config(CONFIG), "2026-09-01T00:00:00+00:00")
    rng = np.random.default_rng(seed)
    with EvidenceFile.create(path, header, [], []) as file:
        with file.writing() as cursor:
            cursor.execute(
                "INSERT INTO queries (position, qid, query, project, as_of, type, answerable) "
                "SELECT range::INTEGER, printf('q%07d', range), 'query number ' || range, NULL, NULL, "
                f"'type ' || (range % 3), NULL FROM range({queries})"
            )
            cursor.execute(
                "INSERT INTO memories (number, id, content, tags, priority, pinned, importance, access_count, relevant_count, noise_count, "
                "scope, created_at) SELECT range::INTEGER, printf('m%06d', range), 'what memory ' || range || ' says', '[]', 1, false, "
                f"'normal', 0, 0, 0, 'team', '2026-01-01'::TIMESTAMP + to_days((range % 300)::INTEGER) FROM range({memories})"
            )
            for first in range(0, queries, AT_A_TIME):
                for table, rows in _rows(first, min(first + AT_A_TIME, queries), memories, rng).items():
                    evidence_rows.insert(cursor, table, rows)
        file.finish()


def _rows(first: int, end: int, memories: int, rng: np.random.Generator) -> dict[str, Any]:
    count = end - first
    start, step = rng.integers(0, memories, size=(count, 1)), rng.integers(1, 97, size=(count, 1))
    members = ((start + step * np.arange(HITS)) % memories).astype(np.int32)
    qids, words = [f"q{q:07d}" for q in range(first, end)], [f"query number {q}" for q in range(first, end)]
    other = np.take_along_axis(members, rng.permuted(np.tile(np.arange(HITS), (count, 1)), axis=1), axis=1)
    place = rng.integers(0, 20, size=(count, 2))
    place[:, 1] = (place[:, 0] + 1 + place[:, 1]) % HITS
    relevant = np.take_along_axis(members, place, axis=1).ravel().tolist()
    notes = json.dumps({"gathered": {"lists.vector.depth": 150}, "models": {}})

    def falling(most: float) -> Any:
        return -np.sort(-rng.random((count, HITS)) * most, axis=1)

    return {
        "judgments": pa.table(
            {
                "qid": [qid for qid in qids for _ in range(2)],
                "memory_id": [f"m{number:06d}" for number in relevant],
                "grade": pa.array([2, 1] * count, pa.int64()),
                "judge": ["human"] * 2 * count,
                "kind": ["human"] * 2 * count,
            }
        ),
        "evidence": pa.table(
            {
                "qid": qids,
                "query": words,
                "project": pa.nulls(count, pa.string()),
                "as_of": pa.array([1_788_000_000_000_000] * count, pa.timestamp("us")),
                "members": _lists(members),
                "variants": [json.dumps([[text, "original"]]) for text in words],
                "notes": [notes] * count,
                "seconds": np.full(count, 0.01),
            }
        ),
        "lists": pa.table(
            {
                "qid": [qid for qid in qids for _ in range(2)],
                "position": pa.array([0, 1] * count, pa.int32()),
                "name": ["vector:0", "lexical:0"] * count,
                "source": ["vector", "lexical"] * count,
                "variant": pa.array([0, 0] * count, pa.int32()),
                "members": _lists(np.stack([members, other], axis=1)),
                "scores": _lists(np.stack([falling(1), falling(20)], axis=1)),
                "chunks": pa.nulls(2 * count, pa.list_(pa.int32())),
            }
        ),
    }


def _lists(values: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array(np.arange(0, values.size + 1, HITS), pa.int32()), pa.array(values.ravel()))


def measured(path: Path, run: Path | None) -> dict[str, Any]:
    """In a separate process: seconds by the wall and of the processor, and peak memory in MB; a peer reads the run."""
    from cems_workbench.evaluation.report import run_lines

    begun, spent = time.perf_counter(), time.process_time()
    with EvidenceStream([path]) as stream:
        opened = time.perf_counter() - begun
        if run is None:
            found = evaluate_stream(stream, [CONFIG], standard_measures())
        else:
            with run.open("w", encoding="utf-8") as file:

                def each(batch: LabelledBatch, ranked: Sequence[Rankings]) -> None:
                    file.write(run_lines(batch, ranked[0]))

                found = evaluate_stream(stream, [CONFIG], standard_measures(), each=each)
    return {
        "opened and proved, s": round(opened, 2),
        "measured, s": round(time.perf_counter() - begun - opened, 2),
        "processor, s": round(time.process_time() - spent, 2),
        "peak memory, MB": round(peak() / 1e6),
        "means": {str(row.measure): round(float(row.mean), 6) for row in found.evaluations[0].summaries},
    }


def by_peer(path: Path, run: Path) -> dict[str, Any]:
    """ir_measures on the same run and judgments, both read beforehand."""
    import duckdb
    import ir_measures
    from ir_measures import AP, R, Success, nDCG

    with duckdb.connect(str(path), read_only=True) as database:
        judged = [
            ir_measures.Qrel(*row) for row in database.execute("SELECT qid, memory_id, grade FROM judgments").fetchall()
        ]
    ranked = [
        ir_measures.ScoredDoc(row[0], row[2], float(row[4])) for row in map(str.split, run.read_text().splitlines())
    ]
    begun = time.perf_counter()
    means = ir_measures.calc_aggregate([Success @ 5, R @ 10, nDCG @ 10, AP], judged, ranked)
    return {
        "ir_measures, s": round(time.perf_counter() - begun, 2),
        "means": {str(key): round(value, 6) for key, value in means.items()},
    }


def main() -> int:
    """Write, measure and compare the sizes that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queries", default="10000,100000")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--peer", type=int, default=10_000)
    parser.add_argument("--one", nargs=2, type=Path, metavar=("FILE", "RUN"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        file, run = options.one
        print(json.dumps(measured(file, None if str(run) == "-" else run)))
        return 0
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        for queries in map(int, options.queries.split(",")):
            path, run = Path(folder) / f"{queries}.evidence", Path(folder) / f"{queries}.run"
            begun = time.perf_counter()
            write(path, queries)
            written = time.perf_counter() - begun
            asked = str(run) if queries <= options.peer else "-"
            command = [sys.executable, "-m", "benchmarks.bench_evidence", "--one", str(path), asked]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            total = found["opened and proved, s"] + found["measured, s"]
            print(f"{queries:,} queries, {path.stat().st_size / 1e6:,.0f} MB, written in {written:.0f} s", flush=True)
            print(
                "  ",
                {key: value for key, value in found.items() if key != "means"},
                f"{1000 * total / queries:.3f} ms a query",
            )
            if queries <= options.peer:
                peer = by_peer(path, run)
                print("  ", peer, "ours:", {name: found["means"][name] for name in PEER.split()}, flush=True)
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
