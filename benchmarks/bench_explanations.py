"""From pasted JSON to a fix that was replayed: the processor's time of the commands, against those on the store, in one run.

    pasted     why QUERY MEMORY --evidence EXPLANATION, which has the answer, the cause and the fix
    the store  search QUERY, then why QUERY MEMORY, under the store's own config, and under that of the explanation

The explanation is what the store answers under the preset mem0, written as mem0 prints it; the memory is one behind the first five. Each
command is a separate process (--no-serve), the store's index is built and its models were read once before. In turns; medians of user and
system time of the queries. Run from the checkout: python -m benchmarks.bench_explanations [--queries 5]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import cems_workbench as workbench
from benchmarks.serving import sample_store
from cems_workbench.api.single_query import Answer

CUT = 5
PRESET = "mem0"


def printed(answer: Answer) -> str:
    """An answer as mem0 prints its explanation."""
    rows = []
    for row in answer.trace.results:
        details = {
            "semantic_score": row.score,
            "bm25_score": 0.0,
            "entity_boost": 0.0,
            "max_possible_score": 1.0,
            "threshold": 0.1,
        }
        text = answer.evidence.memories[row.memory_id].content
        rows.append({"id": row.memory_id, "memory": text, "score": row.score, "score_details": details})
    return json.dumps({"query": answer.query, "results": rows})


def spent(*words: str) -> float:
    """Seconds of processor that a command takes, with its start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "cems_workbench", "--no-serve", *words], check=True, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=5)
    asked = parser.parse_args().queries
    with tempfile.TemporaryDirectory() as name:
        store, place = sample_store(Path(name)), Path(name) / "explanation.json"
        with workbench.open_store(store) as opened:
            texts = [query.query for query in opened.resources.store.queries.read()][: 4 * asked]
            known = [workbench.search(opened, text, PRESET) for text in texts]
        known = [answer for answer in known if len(answer.ids) > CUT + 1][:asked]
        spent("search", known[0].query, "--store", str(store))
        times: dict[str, list[float]] = {"pasted": [], "the store": [], f"the store, {PRESET}": []}
        for answer in known:
            place.write_text(printed(answer), "utf-8")
            of = (answer.query, answer.ids[CUT + 1], "--cutoff", str(CUT))
            times["pasted"].append(spent("why", *of, "--evidence", str(place)))
            for label, more in (("the store", ()), (f"the store, {PRESET}", ("--preset", PRESET))):
                where = ("--store", str(store), *more)
                times[label].append(spent("search", answer.query, *where) + spent("why", *of, *where))
    pasted = statistics.median(times["pasted"])
    for label, seconds in times.items():
        median = statistics.median(seconds)
        print(
            f"{label:20} {median:5.2f} s of processor, {len(seconds)} queries; pasted / this {pasted / median:.2f} (target: at most 0.3)"
        )


if __name__ == "__main__":
    main()
