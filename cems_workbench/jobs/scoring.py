"""Scoring job: adds reranker scores that configs need and evidence lacks to the evidence file.

Evidence is gathered for one config. Another config, a proposal of a search or a row of an ablation, may send other candidates to its
reranker, which have no score (`evaluation.batch.UNSCORED`). `score_evidence` scores exactly these pairs. Each score is cached in the store
immediately; the file changes once, at the end or on a cancel, so that it is valid at any time. A pair that the reranker fails on stays
unscored, so that the next job tries again.

All scores of a model are of texts chosen by one rule (`rerank.chunk_chars` and others). Nothing is added for a config whose model would
read other texts (`reads_otherwise`): its evidence must be gathered. The rule of a model without scores is noted with its first scores
(`missing_evidence.SCORED_WITH`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import UNSCORED
from cems_workbench.evaluation.evaluate import SCORED_LATER
from cems_workbench.evaluation.evidence_file import EvidenceSet, add_scores, read_evidence_file
from cems_workbench.jobs.diagnosis import cannot_rerank
from cems_workbench.jobs.factory import embedder, for_store, servers
from cems_workbench.jobs.query_set_evidence import exclusive, restricted, store_mismatch
from cems_workbench.jobs.tuning import store_of
from cems_workbench.models.servers import Answers
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import gather_scores
from cems_workbench.pipeline.missing_evidence import SCORED_WITH, rerank_parameters, unmet
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import RERANK, model_key
from cems_workbench.progress import Progress, silent
from cems_workbench.settings import Settings

LABEL = "scoring queries"


@dataclass(frozen=True, eq=False)
class Lacking:
    """A config by its display name, its evidence, and what the evidence lacks for it."""

    name: str
    config: PipelineConfig
    evidence: EvidenceSet
    needs: Mapping[str, int]
    """As in `Rankings.needs`."""
    qids: Collection[str]
    """The queries it was measured on."""

    @property
    def unscored(self) -> int:
        """Number of queries that lack scores of its reranker."""
        return self.needs.get(UNSCORED, 0)

    @property
    def scorable(self) -> bool:
        """Can a scoring job add some of them?"""
        evidences = (self.evidence.evidences[qid] for qid in self.qids)
        return bool(self.unscored) and not all(reads_otherwise(self.config, one) for one in evidences)


@dataclass(frozen=True, slots=True)
class ScoringReport:
    """Result of a job: queries and pairs with new scores, number of failed pairs by reason, and the file's content hash."""

    path: Path
    queries: int
    pairs: int
    failed: Mapping[str, int]
    content_hash: str


def why_not_scored(
    lacking: Sequence[Lacking], resources: Resources, settings: Settings, answers: Callable[[], Answers]
) -> str | None:
    """Why missing scores cannot be computed here: the evidence is of another store, or no reranker is available; else
    None. `answers` probes servers, and is called only if a config needs one."""
    for one in lacking:
        reason = store_mismatch(one.evidence.header, resources) or cannot_rerank(settings, one.config, answers)
        if reason is not None:
            return reason
    return None


def score_lacking(lacking: Sequence[Lacking], resources: Resources, progress: Progress = silent) -> list[ScoringReport]:
    """Score the missing pairs of each evidence. Raises as `score_evidence` does."""
    by_path: dict[Path, list[Lacking]] = {}
    for one in lacking:
        if one.scorable:
            by_path.setdefault(one.evidence.path, []).append(one)
    reports = []
    for same in by_path.values():
        configs, qids = [one.config for one in same], {qid for one in same for qid in one.qids}
        reports.append(score_evidence(same[0].evidence, configs, resources, progress, qids))
    return reports


def score_evidence(
    evidence: EvidenceSet,
    configs: Sequence[PipelineConfig],
    resources: Resources,
    progress: Progress = silent,
    qids: Collection[str] | None = None,
) -> ScoringReport:
    """Score the pairs that these configs' rerankers would read and the evidence lacks, for some queries or all. Raises
    InputError if the evidence is of another store, or its file cannot be written. A `Cancelled` from `progress` passes
    through; finished queries are in the file."""
    if reason := store_mismatch(evidence.header, resources):
        raise InputError(f"{evidence.path} cannot be scored: {reason}")
    asked = {qid: one for qid, one in evidence.evidences.items() if qids is None or qid in qids}
    scored: dict[str, Evidence] = {}
    pairs, failed = 0, Counter[str]()
    with exclusive(evidence.path):
        try:
            for i, (qid, gathered) in enumerate(asked.items()):
                progress(LABEL, i, len(asked))
                # For the batches of one query: not a step, but a cancel takes effect.
                step = partial(lambda done, *_: progress(LABEL, done, len(asked)), i)
                filled, count = _scored(gathered, configs, resources, step, failed)
                if count:
                    scored[qid], pairs = filled, pairs + count
            progress(LABEL, len(asked), len(asked))
        # Finished queries must reach the file on Ctrl-C too, which is no Exception.
        except BaseException:
            if scored:
                with suppress(InputError):  # the scores are in the store's cache
                    add_scores(evidence.path, evidence.replay_hash, scored)
            raise
        mark = add_scores(evidence.path, evidence.replay_hash, scored) if scored else evidence.content_hash
    return ScoringReport(evidence.path, len(scored), pairs, failed, mark)


def _scored(
    gathered: Evidence,
    configs: Sequence[PipelineConfig],
    resources: Resources,
    progress: Progress,
    failed: Counter[str],
) -> tuple[Evidence, int]:
    """The evidence with the missing scores of these configs, and their number; failures are counted in `failed` by reason."""
    evidence, count = gathered, 0
    for config in configs:
        key = model_key(config.rerank)
        there = evidence.model_scores.get(key, {})
        if reads_otherwise(config, evidence):
            continue
        filled = gather_scores(evidence, config, resources, progress, only="rerank")
        if filled is evidence:
            continue
        fresh = {memory_id: score for memory_id, score in filled.model_scores[key].items() if memory_id not in there}
        failed.update(score.error or "no number" for score in fresh.values() if not score.good)
        good = {memory_id: score for memory_id, score in fresh.items() if score.good}
        if good:
            count += len(good)
            rules = evidence.notes.get(SCORED_WITH, {})
            rules = rules if there else {**rules, key: rerank_parameters(config)}
            scores = {**evidence.model_scores, key: {**there, **good}}
            evidence = replace(filled, model_scores=scores, notes={**filled.notes, SCORED_WITH: rules})
    notes = {name: note for name, note in evidence.notes.items() if name != "rerank_scores"}
    if "rerank_scores" in gathered.notes:  # these are the counts of the gather
        notes["rerank_scores"] = gathered.notes["rerank_scores"]
    notes["models"] = {**notes.get("models", {}), **gathered.notes.get("models", {})}
    notes[SCORED_LATER] = gathered.notes.get(SCORED_LATER, 0) + count
    return replace(evidence, notes=notes), count


def reads_otherwise(config: PipelineConfig, evidence: Evidence) -> bool:
    """Would the reranker of a config read other texts than those of its scores in the evidence?"""
    scored = bool(evidence.model_scores.get(model_key(config.rerank)))
    return scored and any(need.stage == RERANK.name for need in unmet(config, evidence.notes, evidence.in_brief))


def read_again(evidence: EvidenceSet) -> EvidenceSet:
    """The same queries, reloaded from the file. Raises InputError as `read_evidence_file` does."""
    return restricted(read_evidence_file(evidence.path), evidence.queries)


@contextmanager
def resources_of(evidence: EvidenceSet, settings: Settings) -> Iterator[Resources]:
    """The store of evidence, with its models: the store that contains the file, or that of the settings. Raises
    InputError if it is neither, StoreLockedError if another process holds it."""
    with store_of(evidence, settings) as store:
        if store is None:
            raise InputError(
                f"{evidence.path} cannot be scored: the store that it was gathered from was not found; name it with --store"
            )
        yield Resources(store, embedder(for_store(settings, store)), servers(settings))
