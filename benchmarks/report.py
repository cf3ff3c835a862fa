"""What every preset reaches on LoCoMo, SciFact and the sample set, as a Markdown report with intervals and significance.

    python -m benchmarks.report [--work .workbench/report] [--out docs/evaluation.md] [--presets cems,qmd] [--queries 200]

Stores and evidence files are kept in the work folder, so that a report that was broken off goes on, and one that is made again
gathers nothing. Each preset gathers for itself, since what is searched is part of it; no judge is asked, which never changes a
ranking. A preset whose model server does not answer is in the table as absent: what it would measure is its fallback.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import report_text
from cems_workbench import formats
from cems_workbench.config import PipelineConfig, preset, preset_names, with_values
from cems_workbench.evaluation.ablation import without_each_stage
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import Comparison, compare
from cems_workbench.evaluation.evaluate import Evaluation, evaluate
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Judgment, Query
from cems_workbench.runs.gathering import drawn, gather_query_set
from cems_workbench.runs.opening import open_resources
from cems_workbench.settings import Settings

DATA = Path("../shared/data")
SAMPLE = Path(__file__).resolve().parents[1] / "sample_data"
MEASURES = parse_measures("hit@1 hit@5 recall@5 MRR nDCG@10")
BASELINE = "cems"
ALL = "all-queries"
PLAIN = {
    "fusion.normalize": "none", "fusion.score_blend": 1.0, "fusion.single_list": "bypass",
    "fusion.top_rank_bonus.rank1": 0.0, "fusion.top_rank_bonus.rank2_3": 0.0, "filter.min_score": None,
    "adjust.priority": False, "adjust.pinned_factor": 1.0, "adjust.clamp": False, "adjust.time_decay.mode": "none",
    "adjust.project.enabled": False, "assembly.limit": 100, "assembly.max_tokens": None, "assembly.strategy": "greedy",
    "lists.lexical.normalization": "none", "judge.backend": "none",
}  # fmt: skip
"""One list as it is: its scores, its order, nothing adjusted."""


@dataclass(frozen=True)
class Dataset:
    """A data set, where its files are, and the lowest grade that counts as relevant."""

    name: str
    path: Path
    title: str
    project_only: bool = False
    sampled: bool = False
    published: bool = False
    """Are there published figures for the plain lists? Then those are measured on all queries."""


@dataclass(frozen=True)
class Measured:
    """One data set under every preset: those that ran, the baseline first, and why the others did not."""

    dataset: Dataset
    memories: int
    comparison: Comparison
    absent: dict[str, str]
    ran: dict[str, str]
    ablation: Comparison
    plain: tuple[Evaluation, ...]


def main() -> int:
    """Gather what is missing, measure, write the report; 0 also where there is no data."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--work", type=Path, default=Path(".workbench/report"))
    parser.add_argument("--out", type=Path, default=Path("docs/evaluation.md"))
    parser.add_argument("--presets", default=",".join(preset_names()))
    parser.add_argument("--queries", type=int, default=120, help="queries drawn of SciFact and of LoCoMo")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    datasets = [
        Dataset("sample", SAMPLE, "Sample set"),
        Dataset("scifact", options.data / "scifact", "SciFact (BEIR)", sampled=True, published=True),
        Dataset("locomo", options.data / "locomo", "LoCoMo, five conversations", project_only=True, sampled=True),
    ]
    names = [BASELINE, *(name for name in options.presets.split(",") if name != BASELINE)]
    measured = []
    for dataset in datasets:
        if not dataset.path.is_dir():
            print(f"skipped {dataset.name}: {dataset.path} is not there", file=sys.stderr)
            continue
        limit = options.queries if dataset.sampled else None
        measured.append(measure(dataset, names, options.work / dataset.name, limit, options.seed))
    if measured:
        options.out.write_text(report_text.report(measured, options.seed), encoding="utf-8")
        print(options.out)
    return 0


def measure(dataset: Dataset, names: Sequence[str], work: Path, limit: int | None, seed: int) -> Measured:
    """Every preset on one data set, the baseline first."""
    evidences, memories = gathered(dataset, names, work, limit, seed)
    whole = evidences.pop(ALL, evidences[BASELINE])
    evaluations, absent, ran = [], {}, {}
    batches = {}
    for name, evidence in evidences.items():
        failed, label = reranker(evidence, preset(name).config)
        if failed:
            absent[name] = failed
            continue
        batches[name] = LabelledBatch.of(evidence)
        evaluations.append(evaluate(batches[name], quiet(name), MEASURES, seed=seed))
        ran[name] = label
    base = batches[BASELINE]
    parts = [
        evaluate(base, one, MEASURES, seed=seed) for one in (quiet(BASELINE), *without_each_stage(quiet(BASELINE)))
    ]
    return Measured(
        dataset, memories, compare(evaluations, seed=seed), absent, ran, compare(parts, seed=seed),
        plain_lists(LabelledBatch.of(whole), seed),
    )  # fmt: skip


def quiet(name: str) -> PipelineConfig:
    """A preset without its judge."""
    return with_values(preset(name).config, {"judge.backend": "none"})


def gathered(
    dataset: Dataset, names: Sequence[str], work: Path, limit: int | None, seed: int
) -> tuple[dict[str, EvidenceSet], int]:
    """The evidence of each preset, gathered where it is not there, and the number of memories."""
    work.mkdir(parents=True, exist_ok=True)
    resources = open_resources(Settings(store=work / "store"))
    found = {}
    try:
        if not resources.store.memories.count():
            for parsed in formats.read_path(dataset.path):
                resources.store.add(parsed)
        queries, judgments = query_set(resources, dataset)
        few = drawn(queries, limit, seed)
        wanted = [(name, name, few) for name in names] + ([(ALL, BASELINE, queries)] if dataset.published else [])
        for name, config, asked in wanted:
            path = work / f"{name}.evidence"
            done = gather_query_set(
                path, asked, judgments, quiet(config), resources, query_set=dataset.name, project_only=dataset.project_only
            )  # fmt: skip
            print(
                f"{dataset.name} {name}: {done.gathered} gathered in {done.seconds:.0f} s", file=sys.stderr, flush=True
            )
            found[name] = read_evidence_file(path)
        return found, resources.store.memories.count()
    finally:
        resources.close()


def query_set(resources: Resources, dataset: Dataset) -> tuple[list[Query], list[Judgment]]:
    """The judged queries; within its own project where the data set is one project per conversation."""
    judgments = resources.store.judgments.read()
    judged = {judgment.qid: judgment.memory_id for judgment in judgments}
    queries = [query for query in resources.store.queries.read() if query.qid in judged]
    if dataset.project_only:
        projects = resources.store.memories.read([judged[query.qid] for query in queries])
        queries = [replace(query, project=projects[judged[query.qid]].project) for query in queries]
    kept = {query.qid for query in queries}
    return queries, [judgment for judgment in judgments if judgment.qid in kept]


def reranker(evidence: EvidenceSet, config: PipelineConfig) -> tuple[str | None, str]:
    """Why the preset's reranker did not run (None when it did, or there is none), and what ran."""
    if config.rerank.backend == "none":
        return None, "none"
    scores = [
        score for one in evidence.evidences.values() for rows in one.model_scores.values() for score in rows.values()
    ]
    labels = {str(one.notes.get("models", {}).get("reranker")) for one in evidence.evidences.values()}
    if scores and any(score.good for score in scores):
        return None, ", ".join(sorted(labels - {"None"}))
    return f"its reranker ({config.rerank.backend}) is not there", "none"


def plain_lists(batch: LabelledBatch, seed: int) -> tuple[Evaluation, ...]:
    """The vector list and the BM25 list of the baseline's evidence, each as it is."""
    vector = with_values(PipelineConfig(), {**PLAIN, "name": "vector list", "lists.lexical.enabled": False})
    lexical = with_values(PipelineConfig(), {**PLAIN, "name": "BM25 list", "lists.vector.enabled": False})
    return tuple(evaluate(batch, one, MEASURES, seed=seed) for one in (vector, lexical))


if __name__ == "__main__":
    sys.exit(main())
