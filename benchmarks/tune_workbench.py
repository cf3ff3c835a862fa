"""How the preset `workbench` was tuned, and what it gains: run again, it gives the same preset and the same report.

    python -m benchmarks.tune_workbench [--work .workbench/tune] [--trials 300] [--write]

The five development conversations of LoCoMo and the sample set, with the packaged models. One wide evidence is gathered for the search;
`cems` and `qmd` gather their own. Every conversation is a group and so is the sample set: what is reported of the tuned config was
measured on the group left out, by a search of its own that never scored it. `--write` replaces the preset, its card and docs/tuning.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks import tune_text
from benchmarks.report import DATA, PLAIN, SAMPLE, Dataset, query_set, quiet
from cems_workbench import formats, garbage
from cems_workbench.config import EvidenceCard, Measured, PipelineConfig, card_path, dump_config, preset, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.models.minilm_judge import MODEL_ID
from cems_workbench.pipeline.table import Floats
from cems_workbench.runs.gathering import gather_query_set
from cems_workbench.runs.opening import open_resources
from cems_workbench.settings import Settings
from cems_workbench.tuning.card import evidence_card
from cems_workbench.tuning.folds import split
from cems_workbench.tuning.holdout import gain
from cems_workbench.tuning.learned import Importance, importance
from cems_workbench.tuning.objective import Goal
from cems_workbench.tuning.scorer import BatchScorer, answerable
from cems_workbench.tuning.search import Trial, Watch
from cems_workbench.tuning.space import SearchSpace, parse_axis
from cems_workbench.tuning.tune import Plan, Tuned, tune

ROOT = Path(__file__).resolve().parents[1]
PRESET = ROOT / "cems_workbench/config/presets/workbench.yaml"
REPORT = ROOT / "docs/tuning.md"
MEASURES = parse_measures("nDCG@10 hit@1 hit@5 MRR")
START = {
    "name": "start",
    "query.typo_correction.enabled": False,
    "lists.vector.depth": 100, "lists.vector.prefetch": 1, "lists.lexical.depth": 100, "lists.lexical.prefetch": 1,
    "fusion.top_rank_bonus.rank1": 0.0, "fusion.top_rank_bonus.rank2_3": 0.0,
    "filter.min_score": None,
    "rerank.backend": "cross_encoder", "rerank.input_limit": 60, "rerank.chunk_chars": 1000,
    "rerank.chunk_selection": "term_overlap", "rerank.raw_scale": "minmax", "rerank.retrieval_score": "fused",
    "rerank.bands": [{"max_rank": 3, "retrieval": 0.3}, {"max_rank": 10, "retrieval": 0.3}, {"max_rank": None, "retrieval": 0.3}],
    "rerank.tail": "below",
    "adjust.priority": False, "adjust.pinned_factor": 1.0, "adjust.time_decay.mode": "none", "adjust.project.enabled": False,
    "assembly.limit": 10, "assembly.max_tokens": 8000, "assembly.strategy": "greedy",
}  # fmt: skip
"""Where the search begins, on top of `cems`: the cross-encoder on the first 60 of a plain fusion, with three tenths of the fused score,
nothing adjusted. Chosen by hand after a look at a wider search on the same queries and at 100 of SciFact; the report says so."""

WIDE = 100
"""Candidates that the evidence of the search has scores for."""
SPACE = (
    "lists.lexical.weight=0.4:1.6:0.2",
    "fusion.k=20:100:20",
    "fusion.score_blend=0.3:1:0.1",
    "fusion.top_rank_bonus.rank1=0:0.1:0.05",
    "rerank.input_limit=40|60|80",
    "rerank.raw_scale=sigmoid|minmax",
    "rerank.bands.0=0:0.5:0.1",
    "rerank.bands.1=0:0.5:0.1",
    "rerank.bands.2=0:0.5:0.1",
)
DATASETS = (
    Dataset("locomo", DATA / "locomo", "LoCoMo", project_only=True, sampled=True),
    Dataset("sample", SAMPLE, "Sample set"),
)


@dataclass(frozen=True)
class Result:
    """The search, and everything the report shows of it. Scores are (Q, M), a row per query, a column per measure."""

    tuned: Tuned
    groups: Sequence[str]
    types: Sequence[str | None]
    left_out: Floats
    """Every query under the config that was chosen without its group."""
    fitted: Floats
    """Every query under the proposal, which has seen it."""
    rivals: Mapping[str, Floats]
    importance: Importance | None
    evidence: Sequence[EvidenceSet]


def main() -> int:
    """Gather, search, cross-validate, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path(".workbench/tune"))
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="replace the preset, its card and docs/tuning.md")
    options = parser.parse_args()
    absent = [str(one.path) for one in DATASETS if not one.path.is_dir()]
    if absent:
        print(f"the data are not there: {', '.join(absent)}", file=sys.stderr)
        return 2
    result = measured(options.work, options.trials, options.seed)
    card = card_of(result)
    text = tune_text.report(result, card, MEASURES)
    if options.write:
        shipped = with_values(
            result.tuned.config, {"name": "workbench", "judge.backend": "auto", "rerank.model": MODEL_ID}
        )
        PRESET.write_text(tune_text.preset_text(dump_config(shipped)), encoding="utf-8")
        card_path(PRESET).write_text(card.to_json(), encoding="utf-8")
        REPORT.write_text(text, encoding="utf-8")
    print(text)
    return 0


def start(depth: int = 60) -> PipelineConfig:
    """The config the search begins with, or the one its evidence is gathered with."""
    return with_values(preset("cems").config, START | {"judge.backend": "none", "rerank.input_limit": depth})


def measured(work: Path, trials: int, seed: int) -> Result:
    """The search, its cross-validation, and the rivals on the same queries."""
    wide = [gathered(one, "wide", start(WIDE), work) for one in DATASETS]
    batch = answerable(together(wide), MEASURES)
    conversations = {query.qid for query in wide[0].queries}
    groups = [(query.project or "?") if query.qid in conversations else "sample set" for query in batch.queries]
    score, rows = BatchScorer(batch, MEASURES, seed), np.arange(len(batch.queries))
    garbage.settle()
    space = SearchSpace.of(start(), [parse_axis(text, start(WIDE)) for text in SPACE])
    plan = Plan(
        space, Goal(MEASURES[:1]), split(groups, len(set(groups)), 0.0, seed), batch.types, trials, seed
    )  # fmt: skip
    tuned = tune(plan, score, _watched)
    left_out = np.empty((len(rows), len(MEASURES)))
    for fold, choice in zip(plan.split.folds, tuned.choices, strict=True):
        left_out[fold] = score(choice, fold)
    rivals = {"where the search began": score(start(), rows)}
    for name in ("cems", "qmd"):
        own = together([gathered(one, name, quiet(name), work) for one in DATASETS])
        rivals[f"`{name}`"] = _scores(own, quiet(name), batch.qids)
    for name, other in (("BM25 list", "lists.vector.enabled"), ("vector list", "lists.lexical.enabled")):
        rivals[name] = _scores(batch, with_values(PipelineConfig(), {**PLAIN, "name": name, other: False}), batch.qids)
    return Result(
        tuned, groups, batch.types, left_out, score(tuned.config, rows), rivals, importance(space, tuned.found, seed=seed),
        wide,
    )  # fmt: skip


def gathered(dataset: Dataset, name: str, config: PipelineConfig, work: Path) -> EvidenceSet:
    """The evidence of a config on a data set, gathered where it is not there."""
    folder = work / dataset.name
    folder.mkdir(parents=True, exist_ok=True)
    resources = open_resources(Settings(store=folder / "store"))
    try:
        if not resources.store.memories.count():
            for parsed in formats.read_path(dataset.path):
                resources.store.add(parsed)
        queries, judgments = query_set(resources, dataset)
        path = folder / f"{name}.evidence"
        done = gather_query_set(
            path, queries, judgments, config, resources, query_set=dataset.name, project_only=dataset.project_only
        )  # fmt: skip
        print(f"{dataset.name} {name}: {done.gathered} gathered in {done.seconds:.0f} s", file=sys.stderr, flush=True)
        return read_evidence_file(path)
    finally:
        resources.close()


def together(sets: Sequence[EvidenceSet]) -> LabelledBatch:
    """The queries of several evidence files as one batch; their ids are distinct."""
    queries = [query for one in sets for query in one.queries]
    evidences = {qid: evidence for one in sets for qid, evidence in one.evidences.items()}
    judgments = [judgment for one in sets for judgment in one.judgments]
    assert len({query.qid for query in queries}) == len(queries)
    return LabelledBatch(queries, evidences, agreed_grades(judgments))


def _scores(batch: LabelledBatch, config: PipelineConfig, qids: Sequence[str]) -> Floats:
    """(len(qids), M) scores, in the order of these queries."""
    graded = batch.rankings(config).graded
    values = np.stack([measure.values(graded) for measure in MEASURES], axis=1)
    place = {qid: row for row, qid in enumerate(batch.qids)}
    return values[[place[qid] for qid in qids]]


def _watched(name: str) -> Watch:
    def watch(done: int, total: int, best: Trial) -> None:
        if done % 100 == 0 or done == total:
            print(f"{name}: {done} of {total}, best {best.reached[0]:.4f}", file=sys.stderr, flush=True)

    return watch


def card_of(result: Result) -> EvidenceCard:
    """The evidence card: against where the search began, and against `cems`, on the groups left out."""
    seed = result.tuned.plan.seed
    card = evidence_card(
        result.tuned, result.evidence[0], "conversation, the sample set being one", datetime.now(UTC).date().isoformat()
    )
    rows = [
        Measured(
            metric=str(measure), split=f"cross-validation, against {name.strip('`')}", queries=found.queries,
            baseline=found.baseline, tuned=found.tuned, low=found.low, high=found.high, p=found.p,
        )
        for name in ("where the search began", "`cems`")
        for column, measure in enumerate(MEASURES[:3])
        for found in [gain(result.rivals[name][:, column], result.left_out[:, column], seed)]
    ]  # fmt: skip
    headers = [one.header for one in result.evidence]
    return card.model_copy(update={
        "measured": tuple(rows),
        "corpus_hash": " + ".join(f"{header.query_set} {header.store_id[:8]}/{header.content_version}" for header in headers),
        "evidence_hash": " + ".join(one.content_hash[:16] for one in result.evidence),
    })  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
