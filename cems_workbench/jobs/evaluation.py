"""Evaluation job: configs measured on the labelled evidence of a query set or of an evidence file.

`agreed` turns judgments into grades, by kind of judge. `labelled_selection` and `labelled_file` combine grades and evidence into a batch,
on which configs are replayed. A query set has evidence per gather parameters, so that each config may have its own batch; a file serves
every config. `evaluate_configs` measures them and returns those that lack evidence; `evaluate_streamed` measures them on files too large
for memory. A `Cache` keeps batches and evaluations.

Calibration job: every abstain signal calibrated on one labelled batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.analysis.losses_of_set import DEFAULT_K, MAX_ROWS, SHOWN, Found, Losses, losses_of, with_words
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.batch import LabelledBatch, signal_table
from cems_workbench.evaluation.evaluate import SUCCESSORS, Evaluation, evaluate, number
from cems_workbench.evaluation.evidence_file import EvidenceSet, content_hash, read_progress
from cems_workbench.evaluation.evidence_stream import Each, EvidenceStream, StreamEvaluation, evaluate_stream
from cems_workbench.evaluation.grades import Grades, agreed_answerable, agreed_grades, as_judged
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.jobs.catalogue import named, with_unique_names
from cems_workbench.jobs.factory import Cache, uncached
from cems_workbench.jobs.traced_sets import require_no_config
from cems_workbench.jobs.traces import require_replayable
from cems_workbench.pipeline.stages.abstain import CONFIDENCE_FEATURES
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment
from cems_workbench.results import Result, Table
from cems_workbench.tuning.calibration import Calibration, Method, calibrate
from cems_workbench.tuning.holdout import GROUP_WORDS, groups_of, natural_grouping

if TYPE_CHECKING:
    from cems_workbench.jobs.query_set_evidence import QuerySelection
    from cems_workbench.pipeline.resources import Resources


@dataclass(frozen=True, eq=False)
class AgreedGrades:
    """Grades by qid and memory id, their judgments, and a digest: equal digests mean equal grades."""

    grades: Grades
    judgments: Sequence[Judgment]
    """Of every kind of judge."""
    digest: str
    answerable: Mapping[str, bool | None] = field(default_factory=dict)
    """By qid whether the store has an answer, from `agreed_answerable`."""
    successors: bool = False
    """Whether a relevant memory counts as found where its successor is returned."""


@dataclass(frozen=True, eq=False)
class LabelledEvidence:
    """Evidence with the grades of its memories, ready for replay."""

    evidence: EvidenceSet
    batch: LabelledBatch
    grades: AgreedGrades

    @property
    def content_hash(self) -> str:
        """The hash of evidence and judgments on reports and cards; the file's own hash if the judgments are the file's."""
        evidence = self.evidence
        return content_hash(evidence.replay_hash, self.grades.judgments, evidence.queries, evidence.header)

    @property
    def key(self) -> tuple[object, ...]:
        """Cache key: the file, the queries and the grades."""
        return _key(self.evidence, self.grades)


@dataclass(frozen=True, eq=False, repr=False)
class EvaluationReport(Result):
    """Measures of a config on the judged queries of some evidence.

    Attributes:
        name: the one that the config was chosen by.
        labelled: the evidence with the grades that it was made on.
        evaluation: the measures, their values of every query, and the results.
    """

    name: str
    labelled: LabelledEvidence
    evaluation: Evaluation

    @property
    def batch(self) -> LabelledBatch:
        """The queries with their grades."""
        return self.labelled.batch

    @property
    def content_hash(self) -> str:
        """The hash of the evidence and the judgments."""
        return self.labelled.content_hash

    @property
    def answered(self) -> str:
        """The running system that answered the lists, and when; empty without one."""
        return self.labelled.evidence.answered

    @property
    def config(self) -> PipelineConfig:
        """The config that was measured."""
        return self.evaluation.config

    @property
    def means(self) -> dict[str, float]:
        """The mean of each measure by its name; NaN where no query has it."""
        return {str(row.measure): row.mean for row in self.evaluation.summaries}

    @property
    def per_query(self) -> Table:
        """A row for each query with its measures; None where a measure is not defined for it."""
        found = self.evaluation
        words = {query.qid: query.query for query in self.batch.queries}
        rows = tuple(
            (qid, words[qid], kind, *map(number, values))
            for qid, kind, values in zip(found.qids, found.types, found.values, strict=True)
        )
        return Table(("qid", "query", "type", *map(str, found.measures)), rows, f"{self.config.name}, a row a query")

    @property
    def by_type(self) -> Table:
        """A row for each query type: how many queries count, and the mean of each measure."""
        return self.evaluation.types_table

    def losses(self, cutoff: int = 10, shown: int = 10) -> Losses:
        """Which stage loses the relevant memories that are not within the first results.

        Args:
            cutoff: a memory below this rank counts as lost.
            shown: how many memories of each branch are put in words, at most 100.

        Raises:
            InputError: `cutoff` is below 1, `shown` is not from 0 to 100, or no query has a relevant memory.
        """
        return losses_of_reports([self], cutoff, shown)

    def to_run(self) -> dict[str, dict[str, float]]:
        """The results as a run: score by memory id, by qid; ir_measures and `ranx.Run(...)` accept it unchanged. Scores
        are 1/rank: evaluation tools order by score and break ties their own way. It has the queries of `to_qrels`, but
        for those without any result."""
        counted, found = self.to_qrels(), self.evaluation
        ranked = [(qid, ids) for qid, ids in zip(found.qids, found.results, strict=True) if qid in counted and ids]
        return {qid: {key: 1 / rank for rank, key in enumerate(ids, 1)} for qid, ids in ranked}

    def to_qrels(self) -> dict[str, dict[str, int]]:
        """The grades as qrels: grade by memory id, by qid; ir_measures and `ranx.Qrels(...)` accept it unchanged. They
        are those of the queries that are in the means, which have a relevant memory: other tools average a 0 for the
        rest."""
        found = self.evaluation
        left_out = {*found.without_relevant, *found.unanswerable}
        graded = zip(found.qids, self.batch.grades, strict=True)
        return {qid: dict(grades) for qid, grades in graded if qid not in left_out}

    def save_run(self, path: str | Path) -> Path:
        """Write the results of all queries as a TREC run. Raises InputError for an id that a run cannot hold."""
        from cems_workbench.evaluation.report import write_run

        write_run(Path(path), self.batch, self.evaluation)
        return Path(path)

    @property
    def title(self) -> str:
        """Which config on how many queries."""
        return f"{self.config.name} on {counted(len(self.evaluation.qids), 'judged queries')}"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The measures with their intervals and bounds; with several query types those of each."""
        return self.evaluation.tables

    @property
    def notes(self) -> tuple[str, ...]:
        """What counts as relevant, what was left out, what the evidence lacks, and the hash of what it was made on."""
        answered = (f"lists {self.answered}",) if self.answered else ()
        return (*self.evaluation.notes, *answered, f"content hash {self.content_hash}")

    def to_json(self) -> dict[str, Any]:
        """The evaluation as plain values, as `evaluate --json` prints it."""
        lists = {"lists": self.answered} if self.answered else {}
        return self.evaluation.to_json() | {"content_hash": self.content_hash} | lists


MAX_QUERIES_IN_MEMORY = 20_000
"""Larger files are streamed, in the same time; in memory a query takes some 35 kB."""
MAX_QUERIES_PRINTED = 100_000
"""With more queries JSON has no values per query."""


def streamed(paths: Sequence[Path]) -> bool:
    """Whether these files are streamed instead of read into memory: several files, or a large one. Raises InputError for none."""
    return len(paths) > 1 or read_progress(paths[0])[0] > MAX_QUERIES_IN_MEMORY


def evaluate_streamed(
    stream: EvidenceStream,
    configs: Sequence[PipelineConfig],
    measures: Sequence[Measure],
    kind: str | None = None,
    *,
    seed: int = 0,
    each: Each | None = None,
    progress: Progress = silent,
) -> StreamEvaluation:
    """Measure configs on a stream of evidence. Raises InputError as `evaluate_stream` does."""
    require_no_config(stream.names, stream.header, stream.external, configs)
    found = evaluate_stream(stream, configs, measures, kind=kind, seed=seed, each=each, progress=progress)
    refuse_nothing(found.evaluations[0].qids, stream.path)
    return found


Labelled = Callable[[PipelineConfig], LabelledEvidence | None]
"""Returns the labelled evidence of a config; None if it must be gathered first."""


def agreed(judgments: Sequence[Judgment], kind: str | None, successors: bool = False) -> AgreedGrades:
    """The agreed grades of one kind of judge, human or model; with None a model's grade counts if no person gave one."""
    grades, answerable = agreed_grades(judgments, kind), agreed_answerable(judgments, kind)
    rows: list[object] = [*sorted((qid, sorted(given.items())) for qid, given in grades.items())]
    rows += [*sorted(answerable.items()), *([SUCCESSORS] if successors else [])]
    return AgreedGrades(grades, judgments, hashlib.sha256(repr(rows).encode()).hexdigest()[:16], answerable, successors)


def labelled_selection(
    config: PipelineConfig,
    selection: QuerySelection,
    grades: AgreedGrades,
    resources: Resources,
    cache: Cache = uncached,
) -> LabelledEvidence | None:
    """The evidence of a config for a selection of queries, with these grades; None if it must be gathered first. Raises
    InputError for damaged evidence."""
    from cems_workbench.jobs.query_set_evidence import read_evidence

    evidence = read_evidence(config, selection, resources, cache)
    return None if evidence is None else labelled(evidence, grades, cache)


def refuse_nothing(queries: Sequence[object], name: object) -> None:
    """Raise InputError without queries."""
    if not queries:
        raise InputError(f"{name}: no query has both evidence and a judgment")


def labelled_file(evidence: EvidenceSet, kind: str | None, cache: Cache = uncached, successors: bool = False) -> LabelledEvidence:
    """An evidence file with its own judgments."""
    return labelled(evidence, agreed(evidence.judgments, kind, successors), cache)


def labelled(
    evidence: EvidenceSet, grades: AgreedGrades, cache: Cache = uncached, *, timed: bool = True
) -> LabelledEvidence:
    """Evidence with grades, tabulated once per pair. With `timed` its cost includes the time of gathering."""
    seconds = evidence.seconds_per_query if timed else None

    def tabulated() -> LabelledBatch:
        queries = as_judged(evidence.queries, grades.answerable)
        return LabelledBatch(queries, evidence.evidences, grades.grades, seconds, grades.successors)

    return LabelledEvidence(evidence, cache(("batch", *_key(evidence, grades), seconds), tabulated), grades)


def _key(evidence: EvidenceSet, grades: AgreedGrades) -> tuple[object, ...]:
    return evidence.replay_hash, hash(tuple(query.qid for query in evidence.queries)), grades.digest


def evaluate_configs(
    configs: Sequence[tuple[str, PipelineConfig]],
    source: Labelled,
    measures: Sequence[Measure],
    *,
    seed: int = 0,
    cache: Cache = uncached,
    progress: Progress = silent,
) -> tuple[list[EvaluationReport], list[tuple[str, PipelineConfig]]]:
    """The configs with evidence, measured under their names, and those whose evidence must be gathered first. Raises
    InputError for external traces under another config than that of their evidence."""
    measured, missing = [], []
    for i, (name, config) in enumerate(configs):
        progress("measuring configs", i, len(configs))
        evidence = source(config)
        if evidence is None:
            missing.append((name, config))
        else:
            read = evidence.evidence
            require_no_config(read.header.query_set or read.path, read.header, read.external, [config])
            asked = named(name, config)
            key = ("evaluation", *evidence.key, asked, tuple(measures), seed)
            found = cache(key, partial(evaluate, evidence.batch, asked, measures, seed=seed))
            measured.append(EvaluationReport(name, evidence, found))
    return measured, missing


def measured_losses(
    measured: Sequence[EvaluationReport], relevant_from: int, k: int = DEFAULT_K, shown: int | None = SHOWN
) -> Losses:
    """Where measured configs lose relevant memories, with `shown` rows of each branch in words; None: all that are
    kept, without words. Raises InputError if no query has a memory of at least the grade `relevant_from`."""
    configs = [row.evaluation.config for row in measured]
    needs = [row.evaluation.rankings.needs for row in measured]
    found = losses_of([row.batch for row in measured], configs, relevant_from, k, needs=needs)
    if shown is None:
        return found
    return with_words(found, configs, [evidence_of(row) for row in measured], shown)


def losses_of_reports(reports: Sequence[EvaluationReport], cutoff: int, shown: int) -> Losses:
    """`measured_losses` of reports whose configs may have the same name. Raises InputError."""
    if cutoff < 1:
        raise InputError(f"cutoff {cutoff}: expected a rank, 1 or more")
    if not 0 <= shown <= MAX_ROWS:
        raise InputError(f"shown {shown}: expected a number from 0 to {MAX_ROWS}")
    both = zip(reports, with_unique_names([report.config for report in reports]), strict=True)
    renamed = [replace(report, evaluation=replace(report.evaluation, config=config)) for report, config in both]
    return measured_losses(renamed, reports[0].evaluation.relevant_from, cutoff, shown)


def losses_if_any(measured: Sequence[EvaluationReport], shown: int = SHOWN) -> Losses | None:
    """`measured_losses` at the evaluation's relevance grade, for reports; None without a relevant memory."""
    relevant_from = measured[0].evaluation.relevant_from
    if not any((row.batch.ideal >= relevant_from).any() for row in measured):
        return None
    return measured_losses(measured, relevant_from, shown=shown)


def evidence_of(measured: EvaluationReport) -> Found:
    """What gives the evidence of a measured config's queries, by qid."""
    known = measured.labelled.evidence.evidences
    return lambda qids: {qid: known[qid] for qid in qids}


def calibrations(
    batch: LabelledBatch,
    config: PipelineConfig,
    relevant_from: int,
    signal: str | None = None,
    method: Method = "logistic",
    probability: float = 0.5,
) -> tuple[str, list[Calibration], dict[str, str]]:
    """The grouping of the folds, the calibration of each signal (or of one), and by signal the reason why it has none.
    Raises InputError for an unknown signal, and for a probability out of range."""
    require_replayable("this evidence", any(one.external for one in batch.evidences), "calibration")
    if signal is not None and signal not in CONFIDENCE_FEATURES:
        raise InputError(f"{signal}: no such signal; there are {', '.join(CONFIDENCE_FEATURES)}")
    if not 0 < probability < 1:
        raise InputError(f"the probability is {probability:g}; it must be above 0 and below 1")
    table = signal_table(batch, config, dict.fromkeys(batch.qids, relevant_from))
    by = natural_grouping(batch)
    groups = groups_of(batch, by)
    found, without = [], {}
    for name in [signal] if signal else CONFIDENCE_FEATURES:
        try:
            found.append(calibrate(table, groups, name, method, probability))
        except InputError as error:
            without[name] = str(error)
    return GROUP_WORDS[by], found, without
