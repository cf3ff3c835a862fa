"""The loss map of a traced pipeline of one list, a minimum score and a cut against retrieval-observatory, on the same trace.

    python -m benchmarks.observatory_agree PYTHON [--least 1.4] [--cut 10]

PYTHON is an interpreter that has `retrieval-observatory` (0.8.0 on PyPI), which the workbench does not depend on. The sample's judged
queries are answered by BM25, then by a filter and a cut, and traced with `cems_trace`. Both programs get what each stage read
and returned. Exits with 1 if a relevant memory is lost elsewhere for one of them: their `loss_boundary` is our stage, `not_observed` is
never a candidate, and `retained_below_cutoff`, returned below k, is below k in every list.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.losses_agree import branches_of
from cems_workbench import trace
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.recorded import RECORDED
from cems_workbench.records import Memory
from examples.sample import SAMPLE, Bm25, memories, queries
from workbench_tools.spans import read_span
from workbench_tools.traced import queries_of

DEPTH, CUTOFFS = 50, (1, 5, 10, 20)
OBSERVATORY = """
import json, sys
from retrieval_observatory.datasets.judgments import EvaluationSpec, JudgmentSet
from retrieval_observatory.evidence.journeys import project_trace_journeys
from retrieval_observatory.tracing.model import Candidate, OperatorSpan, RetrievalTrace

def candidates(hits):
    return tuple(Candidate(key, score or 0.0, rank, output_rank=rank) for rank, (key, score) in enumerate(hits, 1))

given = json.load(sys.stdin)
found = []
for qid, steps in given["traces"].items():
    spans, before = [], ()
    for i, (name, hits) in enumerate(steps):
        after = candidates(hits)
        of = "FILTER" if i else "SOURCE"
        above = (steps[i - 1][0],) if i else ()
        groups = {above[0]: before} if i else {}
        spans.append(OperatorSpan(name, of, name, above, "FIRED", 0.0, inputs=before, input_groups=groups, outputs=after))
        before = after
    one = RetrievalTrace(qid, "s", None, qid, "q", "p", spans, (steps[-1][0],))
    judged = JudgmentSet.from_qrels({qid: given["grades"][qid]})
    for k in given["cutoffs"]:
        for row in project_trace_journeys(one, judged, EvaluationSpec(k=k)):
            if row.judgment == "relevant":
                found.append([qid, row.entity_id, k, row.outcome, row.loss_boundary])
json.dump(found, sys.stdout)
"""
ELSEWHERE = {
    "relevant_delivered": "returned",
    "not_observed": "never",
    "retained_below_cutoff": "lists",
}
"""What their outcomes are called here; of the others the boundary is the stage."""


def traced(least: float, cut: int, file: Path) -> dict[str, Evidence]:
    """Trace the sample's queries, and read the trace as an import does."""
    index = Bm25(memories())

    @trace.stage("bm25", kind="list")
    def bm25(query: str) -> list[tuple[str, float]]:
        return index.search(query, DEPTH)

    @trace.stage("min_score", kind="filter")
    def min_score(hits: list[tuple[str, float]]) -> list[tuple[str, float]]:
        return [hit for hit in hits if hit[1] >= least]

    @trace.stage("topk")
    def topk(hits: list[tuple[str, float]]) -> list[tuple[str, float]]:
        return hits[:cut]

    @trace.retrieval
    def retrieve(query: str) -> list[tuple[str, float]]:
        return topk(min_score(bm25(query)))

    with trace.to(str(file), texts=False):
        for qid, query in queries():
            with trace.query_id(qid):
                retrieve(query)
    spans: dict[str, list[dict[str, object]]] = {}
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        spans.setdefault(row["trace_id"], []).append(row)
    found = {}
    for rows in spans.values():
        for one in queries_of([read_span(n, row) for n, row in enumerate(rows, 1)]):
            kept = {key: Memory(key, "text") for key in one.recorded.ids}
            found[one.qid] = Evidence(one.query, kept, notes={RECORDED: one.recorded.to_json()})
    return found


def main() -> int:
    """Trace, ask both, compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--least", type=float, default=1.4)
    parser.add_argument("--cut", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        evidences = traced(options.least, options.cut, Path(folder) / "trace.jsonl")
    grades: dict[str, dict[str, int]] = {qid: {} for qid in evidences}
    for line in (SAMPLE / "judgments.qrels").read_text("utf-8").splitlines():
        qid, _, key, grade = line.split()
        if qid in grades:
            grades[qid][key] = int(grade)
    given = {
        "traces": {
            qid: [("bm25", one.recorded.lists[0].hits), *((stage.name, stage.output) for stage in one.recorded.stages)]
            for qid, one in evidences.items()
            if one.recorded is not None
        },
        "grades": grades,
        "cutoffs": CUTOFFS,
    }
    done = subprocess.run(
        [options.python, "-c", OBSERVATORY], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    theirs: dict[int, dict[tuple[str, str], str]] = {k: {} for k in CUTOFFS}
    for qid, key, k, outcome, boundary in json.loads(done.stdout):
        theirs[k][qid, key] = ELSEWHERE.get(outcome, boundary)
    wrong = 0
    for k in CUTOFFS:
        ours = branches_of(evidences, grades, k)
        differ = [pair for pair in ours | theirs[k] if ours.get(pair) != theirs[k].get(pair)]
        wrong += len(differ)
        counted = ", ".join(f"{count} {where}" for where, count in Counter(ours.values()).most_common())
        print(f"k={k}: {counted}; {len(differ)} of {len(ours)} differ")
        for pair in differ[:5]:
            print(pair, ours.get(pair), theirs[k].get(pair))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
