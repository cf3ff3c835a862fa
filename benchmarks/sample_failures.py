"""The sample queries that preset `cems` gets wrong, and the way of their memories through the stages: the figures of sample_data/README.md.

    python -m benchmarks.sample_failures [QID …] [--work .workbench/failures]

Wrong means: no memory of grade 2 or 3 among the first five results, or a grade 3 below a memory of grade 0 that it supersedes or
duplicates. Under each wrong query stand its memories of grade 3, the first result, and the settings that put one of grade 3 among the
first five, tried by replay, with the rank. Every query is searched by vector and BM25; what is wrong only where
`query.mode: auto` leaves BM25 out stands at the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.report import SAMPLE, Dataset, quiet
from benchmarks.tune_workbench import gathered
from cems_workbench import formats
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.evaluation.grades import Grades, agreed_grades
from cems_workbench.pipeline.replay import Trace, replay
from cems_workbench.pipeline.stages.adjust import ADJUST
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.records import Relation

TRIED: dict[str, dict[str, object]] = {
    "no priority": {"adjust.priority": False},
    "no pin": {"adjust.pinned_factor": 1.0},
    "no decay": {"adjust.time_decay.mode": "none"},
    "clock created_at": {"adjust.time_decay.clock": "created_at"},
    "no clamp": {"adjust.clamp": False},
    "no top-rank bonus": {"fusion.top_rank_bonus.rank1": 0.0, "fusion.top_rank_bonus.rank2_3": 0.0},
    "saturating BM25": {"lists.lexical.normalization": "saturating"},
    "vector weight 2": {"lists.vector.weight": 2.0},
    "dedup": {"dedup.enabled": True},
    "greedy": {"assembly.strategy": "greedy"},
    "4,000 tokens": {"assembly.max_tokens": 4000},
    "neither priority nor decay": {"adjust.priority": False, "adjust.time_decay.mode": "none"},
    "neither decay nor top-rank bonus": {
        "adjust.time_decay.mode": "none",
        "fusion.top_rank_bonus.rank1": 0.0,
        "fusion.top_rank_bonus.rank2_3": 0.0,
    },
}
FIRST = 5


def wrong(ranking: list[str], grades: Mapping[str, int], replaced: Mapping[str, set[str]]) -> bool:
    """Is nothing of grade 2 or 3 among the first five, or a grade 3 below a grade 0 that it replaces?"""
    if not any(grades.get(memory_id, 0) >= 2 for memory_id in ranking[:FIRST]):
        return True
    return any(
        grades.get(better) == 3 and better in ranking[place + 1 :]
        for place, memory_id in enumerate(ranking)
        if grades.get(memory_id) == 0
        for better in replaced.get(memory_id, ())
    )


def replacements(relations: list[Relation]) -> dict[str, set[str]]:
    """By memory id those that supersede it, and its duplicates on either side."""
    found: dict[str, set[str]] = {}
    for relation in relations:
        if relation.kind in ("supersedes", "duplicates"):
            found.setdefault(relation.target_id, set()).add(relation.source_id)
        if relation.kind == "duplicates":
            found.setdefault(relation.source_id, set()).add(relation.target_id)
    return found


def way(trace: Trace, memory_id: str) -> str:
    """Where a memory stood in each list and after each stage that ranks it, as one line."""
    rows = dict(trace.path(memory_id))
    if LISTS.name not in rows:
        return "in no list"
    lists = [f"{entry.list} #{entry.rank}" for entry in trace.stage(LISTS).by_id[memory_id].lists if entry.kept]
    fused = trace.stage(FUSION).by_id.get(memory_id)
    parts = [*lists, f"fusion #{fused.rank_out} {fused.score:.3f}" if fused else "not fused"]
    adjusted = trace.stage(ADJUST).by_id.get(memory_id)
    if adjusted is not None:
        factors = ", ".join(f"{name} {value:.2f}" for name, value in adjusted.factors.items())
        age = "no date" if adjusted.age_days is None else f"{adjusted.age_days:.0f} d"
        parts.append(f"adjust #{adjusted.rank_out} {adjusted.unclamped:.3f} ({age}; {factors})")
    ranking = [result.memory_id for result in trace.results]
    parts.append(f"result {ranking.index(memory_id) + 1}" if memory_id in ranking else "no result")
    return ", ".join(parts)


@dataclass(frozen=True)
class Sample:
    """The sample's evidence under one config, and what its queries are judged by."""

    config: PipelineConfig
    evidence: EvidenceSet
    replaced: Mapping[str, set[str]]

    @cached_property
    def grades(self) -> Grades:
        """By query and memory."""
        return agreed_grades(self.evidence.judgments)

    def goes_wrong(self, qid: str, trace: Trace) -> bool:
        """Is this answer to a query wrong?"""
        return wrong([result.memory_id for result in trace.results], self.grades[qid], self.replaced)

    def failures(self) -> list[str]:
        """The queries that go wrong, in the order of the file, of those that have something relevant."""
        return [
            query.qid
            for query in self.evidence.queries
            if any(grade > 0 for grade in self.grades[query.qid].values())
            and self.goes_wrong(query.qid, replay(self.evidence.evidences[query.qid], self.config))
        ]

    def lines(self, qid: str) -> Iterator[str]:
        """What happened to the memories of a query that matter, a line each, and what would mend it."""
        evidence, grades = self.evidence.evidences[qid], self.grades[qid]
        trace = replay(evidence, self.config)
        ranking = [result.memory_id for result in trace.results]
        best = sorted(memory_id for memory_id, grade in grades.items() if grade == 3)
        yield from (f"should be first: {memory_id}: {way(trace, memory_id)}" for memory_id in best)
        yield from (f"is first: {first}, grade {grades.get(first, '–')}: {way(trace, first)}" for first in ranking[:1])
        for rank, memory_id in enumerate(ranking, 1):
            if grades.get(memory_id) == 2 or self.replaced.get(memory_id, set()) & set(best):
                yield f"grade {grades.get(memory_id, '–')} at {rank}: {memory_id}"
        mended = []
        for name, values in TRIED.items():
            tried = replay(evidence, with_values(self.config, values))
            if not self.goes_wrong(qid, tried):
                place = next((result.rank for result in tried.results if result.memory_id in best), None)
                mended.append(f"{name} ({'grade 2 alone' if place is None else place})")
        yield f"right with: {', '.join(mended) or 'none tried'}"


def main() -> None:
    """Gather what is missing, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("qids", nargs="*", help="print these, right or wrong, and not those that go wrong")
    parser.add_argument("--work", type=Path, default=Path(".workbench/failures"))
    options = parser.parse_args()
    data = Dataset("sample", SAMPLE, "Sample set")
    replaced = replacements([edge for parsed in formats.read_path(SAMPLE) for edge in parsed.relations])
    auto = quiet("cems")
    samples = [
        Sample(config, gathered(data, config.query.mode, config, options.work), replaced)
        for config in (with_values(auto, {"query.mode": "hybrid"}), auto)
    ]
    both, short = (sample.failures() for sample in samples)
    print(f"wrong in {len(both)} queries searched by vector and BM25, in {len(short)} with query.mode: auto")
    alone = [qid for qid in short if qid not in both]
    texts = {query.qid: query.query for query in samples[0].evidence.queries}
    for qid in options.qids or [*both, *alone]:
        print(f"\n{qid} {texts[qid]}" + (" (wrong with auto alone)" if qid in alone else ""))
        for line in samples[qid in alone].lines(qid):
            print(f"  {line}")


if __name__ == "__main__":
    main()
