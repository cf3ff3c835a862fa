"""From pasted JSON to a fix that was replayed: the processor's time, against `search` and `why` on the same store, in one run.

The explanations are what the first lists of the store's own answers say, written as mem0 prints them, so that both sides explain the same
query and the same memory: one that is behind the first five. Both ask for a fix; no evidence of the store is cached, and its
models are loaded before the clock starts. In turns, medians of the queries. Run from the checkout: python -m benchmarks.bench_explanations
[--queries 20]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import cems_workbench as workbench
from benchmarks.serving import sample_store
from cems_workbench.api.single_query import Answer

CUT = 5


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=20)
    asked = parser.parse_args().queries
    with tempfile.TemporaryDirectory() as name, workbench.open_store(sample_store(Path(name))) as store:
        texts = [query.query for query in store.resources.store.queries.read()][: 4 * asked]
        pasted: list[float] = []
        searched: list[float] = []
        for text in texts:
            known = workbench.search(store, text, "mem0")
            if len(known.ids) <= CUT + 1 or len(pasted) == asked:
                continue
            document, wanted = printed(known), known.ids[CUT + 1]
            began = time.process_time()
            (answer,) = workbench.explanations(document)
            of_pasted = workbench.why(answer, wanted, k=CUT)
            between = time.process_time()
            own = workbench.search(store, text, "mem0")
            of_store = workbench.why(own, wanted, store=store, k=CUT)
            ended = time.process_time()
            assert list(answer.ids) == list(known.ids)
            assert of_pasted.why.path.rank == of_store.why.path.rank
            pasted.append(between - began)
            searched.append(ended - between)
    ours, theirs = statistics.median(pasted), statistics.median(searched)
    print(
        f"{len(pasted)} queries; pasted JSON to a fix {1000 * ours:.0f} ms of processor, search and why {1000 * theirs:.0f} ms"
    )
    print(f"ratio {ours / theirs:.2f} (target: at most 0.3)")


if __name__ == "__main__":
    main()
