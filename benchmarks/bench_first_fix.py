"""How long does `why` take to check its changes on the judged queries, and does the size of the evidence file matter?

    python -m benchmarks.bench_first_fix [--queries 129,1000,10000,100000] [--work DIR] [--changes 22]

Each file is that of bench_evidence, and stands for a query set that was gathered before. Of more than `MAX_CHECKED` queries a sample of
that size is read. Then the effect of each change is measured, as `why` does. Seconds of the processor and peak memory, of a process each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bench_evidence import CONFIG, peak, write
from cems_workbench.analysis.why.trial import LabelledSet
from cems_workbench.config import with_values
from cems_workbench.evaluation.evidence_file import PortionedFile, read_header, read_some
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.jobs.evidence_memory import MAX_CHECKED
from cems_workbench.jobs.query_set_evidence import sample_queries
from cems_workbench.records import Query

TARGET_S = 1.0


def measured(path: Path, changes: int) -> dict[str, float]:
    """Seconds of reading, encoding and measuring, and the peak memory in MB."""
    # The store knows queries and judgments; here they are read from the file, before the clock starts.
    file = PortionedFile(path)
    drawn = sample_queries([Query(qid, qid) for qid in sorted(file.qids("queries"))], MAX_CHECKED, seed=0)
    judgments = file.of_queries([query.qid for query in drawn]).judgments
    file.close()
    grades = agreed_grades(judgments)
    before = peak()

    begun = time.process_time()
    found = read_some(path, [query.qid for query in drawn], read_header(path))
    assert found is not None
    read = time.process_time()
    labelled = LabelledSet(found, grades)
    encoded = time.process_time()
    for i in range(changes):
        labelled.effect(CONFIG, with_values(CONFIG, {"fusion.k": 61 + i}), 10)
    done = time.process_time()
    spent = {"read": read - begun, "encoded": encoded - read, "measured": done - encoded, "all": done - begun}
    return {"queries": len(found), **spent, "MB": peak() / 1e6, "MB before": before / 1e6}


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", default="129,1000,10000")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--changes", type=int, default=22)
    parser.add_argument("--one", type=Path, help="measure this file, in this process")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one, given.changes)))
        return
    with tempfile.TemporaryDirectory() as made:
        folder = given.work or Path(made)
        for queries in map(int, given.queries.split(",")):
            path = folder / f"first-fix-{queries}.evidence"
            if not path.exists():
                write(path, queries)
            command = [
                sys.executable,
                "-m",
                "benchmarks.bench_first_fix",
                "--one",
                str(path),
                "--changes",
                str(given.changes),
            ]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            of = int(found.pop("queries"))
            figures = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
            print(f"{queries:,} queries, {of:,} of them read: {figures} (target for 129: {TARGET_S} s)", flush=True)


if __name__ == "__main__":
    main()
