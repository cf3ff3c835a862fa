"""Configs measured on evidence, and compared with one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cems_workbench.api.evidence import LoadedEvidence, load_evidence
from cems_workbench.api.open_store import load_config
from cems_workbench.errors import InputError
from cems_workbench.results import Result, Table

if TYPE_CHECKING:
    from cems_workbench.analysis.losses_of_set import Losses
    from cems_workbench.api.open_store import ConfigLike
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.comparison import Comparison
    from cems_workbench.evaluation.evaluate import Evaluation
    from cems_workbench.evaluation.verdict import Verdict
    from cems_workbench.jobs.evaluation import EvaluatedConfig


@dataclass(frozen=True, eq=False, repr=False)
class EvaluationReport(Result):
    """Measures of a config on the judged queries of some evidence.

    Attributes:
        measured: the evaluation with what it was made on.
    """

    measured: EvaluatedConfig

    @property
    def evaluation(self) -> Evaluation:
        """The measures, their values of every query, and the results."""
        return self.measured.evaluation

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
        from cems_workbench.evaluation.evaluate import number

        found = self.evaluation
        words = {query.qid: query.query for query in self.measured.batch.queries}
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
        return _losses([self], cutoff, shown)

    def to_run(self) -> dict[str, dict[str, float]]:
        """The results as a run: score by memory id, by qid; ir_measures and `ranx.Run(...)` accept it unchanged.

        Scores are 1/rank: evaluation tools order by score and break ties their own way. It has the queries of `to_qrels`, but for those
        without any result.
        """
        counted = self.to_qrels()
        ranked = zip(self.evaluation.qids, self.evaluation.results, strict=True)
        return {
            qid: {key: 1 / rank for rank, key in enumerate(ids, 1)} for qid, ids in ranked if qid in counted and ids
        }

    def to_qrels(self) -> dict[str, dict[str, int]]:
        """The grades as qrels: grade by memory id, by qid; ir_measures and `ranx.Qrels(...)` accept it unchanged.

        They are those of the queries that are in the means, which have a relevant memory: other tools average a 0 for the rest.
        """
        found = self.evaluation
        left_out = {*found.without_relevant, *found.unanswerable}
        graded = zip(found.qids, self.measured.batch.grades, strict=True)
        return {qid: dict(grades) for qid, grades in graded if qid not in left_out}

    def save_run(self, path: str | Path) -> Path:
        """Write the results of all queries as a TREC run. Raises InputError for an id that a run cannot hold."""
        from cems_workbench.evaluation.report import write_run

        write_run(Path(path), self.measured.batch, self.evaluation)
        return Path(path)

    @property
    def title(self) -> str:
        """Which config on how many queries."""
        return f"{self.config.name} on {len(self.evaluation.qids)} judged queries"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The measures with their intervals and bounds; with several query types those of each."""
        return self.evaluation.tables

    @property
    def notes(self) -> tuple[str, ...]:
        """What counts as relevant, what was left out, what the evidence lacks, and the hash of what it was made on."""
        answered = (f"lists {self.measured.answered}",) if self.measured.answered else ()
        return (*self.evaluation.notes, *answered, f"content hash {self.measured.content_hash}")

    def to_json(self) -> dict[str, Any]:
        """The evaluation as plain values, as `evaluate --json` prints it."""
        return self.measured.to_json()


def evaluate(
    evidence: LoadedEvidence | str | Path,
    config: ConfigLike | None = None,
    measures: str | Sequence[str] | None = None,
    *,
    grade: int | None = None,
    judges: str | None = None,
    seed: int = 0,
) -> EvaluationReport:
    """Measure a config on the judged queries of some evidence, as the command `evaluate` does; needs neither store nor model.

    Args:
        evidence: what `gather` or `load_evidence` gave, or the path of an evidence file.
        config: a config, the name of a preset, or the path of a config file; None is the config that the evidence was gathered with. What
            it asks for that the evidence does not hold is a note of the report: `gather` with this config then.
        measures: such as `"hit@5 nDCG@10"`, or a list of names; None is a full report.
        grade: the lowest grade that counts as relevant; None is that of the query set.
        judges: `human`, `model`, or None for people before models.
        seed: seed of the intervals; the same gives the same.

    Raises:
        InputError: the evidence, the config or a measure cannot be read, or no query has both evidence and a judgment.
    """
    from cems_workbench.evaluation.metrics import parse_measures, standard_measures
    from cems_workbench.jobs.evaluation import evaluate_configs, refuse_nothing

    read = evidence if isinstance(evidence, LoadedEvidence) else load_evidence(evidence)
    chosen = read.config if config is None else load_config(config)
    least = read.relevant_from if grade is None else grade
    names = measures if isinstance(measures, str) or measures is None else " ".join(measures)
    wanted = standard_measures(least) if names is None else parse_measures(names, least)
    of_evidence = read.labelled(judges)
    refuse_nothing(of_evidence.batch.queries, read.path)
    measured, _ = evaluate_configs([(chosen.name, chosen)], lambda _: of_evidence, wanted, seed=seed)
    return EvaluationReport(measured[0])


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonReport(Result):
    """Configs compared with the first of them, query by query.

    Attributes:
        comparison: the evaluations, and what the others differ in from the first.
        reports: the reports that were compared, the baseline first.
    """

    comparison: Comparison
    reports: tuple[EvaluationReport, ...]

    @property
    def baseline(self) -> str:
        """The name of the config that the others are compared with."""
        return self.comparison.evaluations[0].config.name

    def verdict(
        self,
        measure: str | None = None,
        *,
        config: str | None = None,
        query_type: str | None = None,
        tolerance: float = 0.01,
    ) -> Verdict:
        """Whether a config loses against the baseline: pass, fail, or cannot tell, with the sentence that every page and command prints.

        Args:
            measure: its name; None is nDCG@10, or else the first that was measured.
            config: the name of the compared config; None is the first of them.
            query_type: only the queries of this type count.
            tolerance: the tolerated loss, in units of the measure.

        Raises:
            InputError: the measure was not measured, no config has that name, no query has that type, or the tolerance is below 0.
        """
        from cems_workbench.evaluation.metrics import parse_measure
        from cems_workbench.evaluation.verdict import verdict_of

        names = [one.name for one in self.comparison.compared]
        if config is not None and config not in names:
            raise InputError(f"config {config}: it was not compared; there are {', '.join(names)}")
        wanted = None if measure is None else parse_measure(measure, self.comparison.evaluations[0].relevant_from)
        place = 0 if config is None else names.index(config)
        return verdict_of(self.comparison, place, wanted, query_type, tolerance)

    @property
    def lines(self) -> tuple[str, ...]:
        """The verdict on each config, by nDCG@10 or else the first measure."""
        from cems_workbench.evaluation.verdict import verdicts_of

        return tuple(one.sentence for one in verdicts_of(self.comparison))

    def changed(self, measure: str | None = None) -> Table:
        """The queries whose value of a measure is another one, the largest differences first.

        Args:
            measure: its name; None is the first that was measured.

        Raises:
            InputError: it was not measured.
        """
        base = self.comparison.evaluations[0]
        names = [str(one) for one in base.measures]
        wanted = names[0] if measure is None else measure
        if wanted not in names:
            raise InputError(f"measure {wanted}: it was not measured; there are {', '.join(names)}")
        column = names.index(wanted)
        words = {query.qid: query.query for query in self.reports[0].measured.batch.queries}
        rows = [
            (qid, words[qid], kind, other.config.name, float(was), float(now), float(now - was))
            for other in self.comparison.evaluations[1:]
            for qid, kind, was, now in zip(
                base.qids, base.types, base.values[:, column], other.values[:, column], strict=True
            )
            if abs(now - was) > 1e-9
        ]
        rows.sort(key=lambda row: (-abs(row[-1]), row[0]))
        columns = ("qid", "query", "type", "config", "baseline", "value", "difference")
        return Table(columns, tuple(rows), f"{wanted} against {self.baseline}")

    def losses(self, cutoff: int = 10, shown: int = 10) -> Losses:
        """Which stage of each config loses relevant memories, and what each saves and breaks that the baseline loses or returns.

        Args:
            cutoff: a memory below this rank counts as lost.
            shown: how many memories of each branch are put in words, at most 100.

        Raises:
            InputError: `cutoff` is below 1, `shown` is not from 0 to 100, or no query has a relevant memory.
        """
        return _losses(self.reports, cutoff, shown)

    def to_markdown(self) -> str:
        """The comparison as Markdown, for a pull request: means, differences, what was left out."""
        from cems_workbench.evaluation.report import markdown_report

        first = self.reports[0].measured
        return markdown_report(self.comparison, first.labelled.evidence.header.query_set, first.content_hash)

    @property
    def title(self) -> str:
        """Which configs against which, on how many queries."""
        others = ", ".join(one.name for one in self.comparison.compared)
        return f"{others} against {self.baseline} on {len(self.comparison.evaluations[0].qids)} judged queries"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The differences; means and costs; with several query types the differences of each."""
        return self.comparison.tables

    @property
    def notes(self) -> tuple[str, ...]:
        """How to read it, and the notes of every report, each once."""
        return self.comparison.notes

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values, as `compare --json` prints it."""
        from cems_workbench.evaluation.verdict import verdicts_of

        verdicts = [one.to_json() for one in verdicts_of(self.comparison)]
        return {"verdicts": verdicts, **self.comparison.to_json()}


def _losses(reports: Sequence[EvaluationReport], cutoff: int, shown: int) -> Losses:
    from cems_workbench.analysis.losses_of_set import MAX_ROWS
    from cems_workbench.jobs.catalogue import with_unique_names
    from cems_workbench.jobs.evaluation import measured_losses

    if cutoff < 1:
        raise InputError(f"cutoff {cutoff}: expected a rank, 1 or more")
    if not 0 <= shown <= MAX_ROWS:
        raise InputError(f"shown {shown}: expected a number from 0 to {MAX_ROWS}")
    configs = with_unique_names([report.config for report in reports])
    measured = [
        replace(report.measured, evaluation=replace(report.evaluation, config=config))
        for report, config in zip(reports, configs, strict=True)
    ]
    return measured_losses(measured, reports[0].evaluation.relevant_from, cutoff, shown)


def compare(*reports: EvaluationReport, seed: int = 0) -> ComparisonReport:
    """Compare configs with the first of them, query by query, as the command `compare` does.

    Args:
        reports: what `evaluate` gave, the baseline first: at least two, of the same queries and measures. They may be of evidence that was
            gathered differently.
        seed: seed of intervals and tests; the same gives the same.

    Raises:
        InputError: there are fewer than two, or they were not measured alike.
    """
    from cems_workbench.evaluation.comparison import compare as compared
    from cems_workbench.jobs.catalogue import with_unique_names

    if len(reports) < 2:
        raise InputError("compare needs at least two reports: compare(evaluate(evidence, a), evaluate(evidence, b))")
    configs = with_unique_names([report.config for report in reports])
    evaluations = [replace(report.evaluation, config=config) for report, config in zip(reports, configs, strict=True)]
    return ComparisonReport(compared(evaluations, seed=seed), reports)


def check(
    report: EvaluationReport | ComparisonReport,
    *asserted: str,
    tolerance: float | None = None,
    cannot_tell: Literal["pass", "fail"] = "fail",
) -> None:
    """Raise AssertionError, with a line for each that fails, unless all of this holds; for tests of a team's own.

    Args:
        report: of `evaluate`, or of `compare`.
        asserted: of an evaluation `[TYPE:]MEASURE>=NUMBER`, such as `"hit@5>=0.80"`; of a comparison
            `[TYPE:]MEASURE[ p<LEVEL]`, such as `"hit@5"`, whose verdict against the baseline must be pass, or `"hit@5 p<0.05"`, which
            must not be significantly lower.
        tolerance: losses up to this are tolerated; None is 0.01, and with a level 0.
        cannot_tell: what a verdict that cannot tell counts as.

    Raises:
        AssertionError: something does not hold.
        InputError: one cannot be read, or its measure was not measured.
    """
    from cems_workbench.evaluation.assertions import Asserted

    if isinstance(report, EvaluationReport):
        first, wanted, comparison = report.evaluation, Asserted(bounds=asserted), None
    else:
        comparison, wanted = report.comparison, Asserted(asserted, (), tolerance, cannot_tell)
        first = comparison.evaluations[0]
    for measure in wanted.measures(first.relevant_from):
        if measure not in first.measures:
            raise InputError(f"measure {measure}: it was not measured; there are {', '.join(map(str, first.measures))}")
    outcomes = wanted.of_bounds(first) if comparison is None else wanted.of_losses(comparison)
    failed = [outcome.line for outcome in outcomes if not outcome.holds]
    if failed:
        raise AssertionError("\n".join(failed))
