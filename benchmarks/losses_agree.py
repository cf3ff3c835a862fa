"""The loss map against `why`: on random queries and presets each relevant memory is in one branch, at the stage that `why` names.

    python -m benchmarks.losses_agree EVIDENCE... [--queries 200] [--presets cems,ace,...] [--seed 0]

Queries are drawn from all files together. For each preset and cutoff the loss map of all of them is made in one batch, and every relevant
memory's path is read from a trace of its query, as `why` reads it: the stage that lost it, its status and its sentence. Exits with 1
if they differ in one.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from cems_workbench.analysis.losses_of_set import losses_of, with_words
from cems_workbench.analysis.why.path import cause, memory_path
from cems_workbench.config import PipelineConfig, preset
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.records import Query

PRESETS = "cems,ace,ace_b,cems_head,engram_recall,qmd,recollection,workbench"
CUTOFFS = (1, 5, 10)


def compared(batch: LabelledBatch, name: str, k: int) -> tuple[int, Counter[str], list[str]]:
    """The relevant memories of a batch, how many end in each branch, and what differs."""
    config = preset(name).config
    most = sum(len(grades) for grades in batch.grades)
    found = losses_of([batch], [config], 1, k, rows=most)
    evidences = dict(zip(batch.qids, batch.evidences, strict=True))
    told = with_words(found, [config], [lambda qids: {qid: evidences[qid] for qid in qids}], most).maps[0]
    rows = {(row.qid, row.memory_id): row for row in told.rows}
    wrong = (
        [] if len(rows) == len(told.rows) == told.lost else [f"{name}@{k}: {told.lost} lost, {len(rows)} in a branch"]
    )
    branches: Counter[str] = Counter()
    relevant = 0
    for qid, evidence, grades in zip(batch.qids, batch.evidences, batch.grades, strict=True):
        trace = replay(evidence, config)
        for memory_id in (key for key, grade in grades.items() if grade >= 1):
            relevant += 1
            path, row = memory_path(trace, memory_id, k), rows.get((qid, memory_id))
            stage = None if row is None else row.branch.stage or None
            fate = "in the top k" if row is None else "in no list" if row.branch.manner == "never" else "lost"
            said = path.status if path.status in ("in the top k", "in no list") else "lost"
            branches[fate if row is None else row.branch.words(k)] += 1
            if (stage, fate) != (path.lost_at, said) or (row is not None and row.words != cause(path, trace)):
                wrong.append(f"{name}@{k} {qid} {memory_id}: {row} and {path.lost_at}, {path.status}")
    if relevant != told.relevant:
        wrong.append(f"{name}@{k}: {told.relevant} counted of {relevant}")
    return relevant, branches, wrong


def branches_of(
    evidences: Mapping[str, Evidence], grades: Mapping[str, Mapping[str, int]], k: int
) -> dict[tuple[str, str], str]:
    """By query and relevant memory of recorded pipelines: the stage that loses it, "never" for none, or "returned"."""
    batch = LabelledBatch([Query(qid, "q") for qid in evidences], evidences, grades)
    relevant = [(qid, key) for qid, found in grades.items() for key, grade in found.items() if grade >= 1]
    rows = losses_of([batch], [PipelineConfig()], 1, k, rows=len(relevant)).maps[0].rows
    lost = {(row.qid, row.memory_id): row.branch.stage or "never" for row in rows}
    return {pair: lost.get(pair, "returned") for pair in relevant}


def main() -> int:
    """Draw the queries, compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("evidence", nargs="+", type=Path)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--presets", default=PRESETS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    batches = [LabelledBatch.of(read_evidence_file(path)) for path in options.evidence]
    every = [(i, qid) for i, batch in enumerate(batches) for qid in batch.qids]
    drawn = random.Random(options.seed).sample(every, min(options.queries, len(every)))
    chosen = [batch.of_queries([qid for i, qid in drawn if i == n]) for n, batch in enumerate(batches)]
    wrong: list[str] = []
    pairs = 0
    for name in options.presets.split(","):
        for k in CUTOFFS:
            branches: Counter[str] = Counter()
            for batch in chosen:
                if batch.qids:
                    relevant, found, differing = compared(batch, name, k)
                    pairs, wrong = pairs + relevant, wrong + differing
                    branches += found
            print(f"{name}@{k}: {', '.join(f'{count} {word}' for word, count in branches.most_common())}", flush=True)
    print(
        f"{len(drawn)} queries, {pairs} relevant memories under {options.presets.count(',') + 1} presets: {len(wrong)} differ"
    )
    print("\n".join(wrong[:20]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
