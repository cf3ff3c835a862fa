"""Does `why` name the rerank depth where the depth is the cause?

    python -m benchmarks.bench_named_depth STORE [--depth 10] [--to 40] [--preset workbench]

Of the judged memories (grades 2 and 3) that fusion ranks past `--depth` and that are lost, those that depth `--to` brings into the first
results; and for how many of them `why` has a change of rerank.depth, and as the fix to try first. Figures, then a line for each.

Source: getzep/graphiti#1642 (2026-07-09), mem0ai/mem0#6448 (2026-07-20).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from cems_workbench.analysis.why.report import Why, explain
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.jobs.query_set_evidence import ALL_QUERIES, queries_named
from cems_workbench.pipeline import Trace, replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import FUSION

RELEVANT = 2
DEPTH = "rerank.depth"


def lost_past(trace: Trace, wanted: list[str], depth: int, to: int) -> list[str]:
    """The wanted memories that are not in the results and that fusion ranks past `depth`, down to `to`."""
    shown, rows = {result.memory_id for result in trace.results}, trace.stage(FUSION).by_id
    ranks = {key: rows[key].rank_out or 0 for key in wanted if key in rows and key not in shown}
    return sorted(key for key, rank in ranks.items() if depth < rank <= to)


def explained(
    resources: Resources, config: PipelineConfig, depth: int, to: int
) -> Iterator[tuple[str, str, Why | None]]:
    """(query, memory, what `why` says of it if depth `to` brings it in) of each judged memory that is lost past the depth."""
    queries, judgments = queries_named(ALL_QUERIES, resources, True)
    grades = agreed_grades(judgments)
    present, deeper = (with_values(config, {DEPTH: value, "judge.backend": "none"}) for value in (depth, to))
    for query in queries:
        wanted = [key for key, grade in grades.get(query.qid, {}).items() if grade >= RELEVANT]
        request = Request(query.query, query.project, query.as_of)
        evidence = gather(request, present, resources)
        lost = lost_past(replay(evidence, present), wanted, depth, to)
        if not lost:
            continue
        request = Request(query.query, query.project, evidence.as_of)
        there = replay(gather(request, deeper, resources), deeper)
        shown = {result.memory_id for result in there.results}
        for memory_id in lost:
            found = None
            if memory_id in shown:
                found = explain(memory_id, evidence, present, request=request, resources=resources)
            yield query.query, memory_id, found


def main() -> None:
    """Print the figures and a line for each memory that a greater depth brings in."""
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.settings import Settings

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--to", type=int, default=40)
    parser.add_argument("--preset", default="workbench")
    given = parser.parse_args()
    begun, lost, lines, named, first = time.process_time(), 0, [], 0, 0
    with closing(open_resources(Settings(store=given.store))) as resources:
        for query, memory_id, why in explained(resources, preset(given.preset).config, given.depth, given.to):
            lost += 1
            if why is None:
                continue
            fixes = [list(one.values) for one in why.counterfactuals]
            named += [DEPTH] in fixes
            first += fixes[:1] == [[DEPTH]]
            lines.append(f"{memory_id} {query[:60]!r}: {why.fix.sentence if why.fix else ''}")
    print(
        f"{lost} judged memories lost past the depth; depth {given.to} brings in {len(lines)}; named {named}, first {first}; "
        f"{time.process_time() - begun:.0f} s of the processor"
    )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
