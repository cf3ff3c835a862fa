"""Configs measured on evidence, and compared with one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cems_workbench.api.evidence import LoadedEvidence, loaded
from cems_workbench.api.open_store import load_config
from cems_workbench.errors import InputError, counted
from cems_workbench.results import Result, Table

if TYPE_CHECKING:
    from cems_workbench.analysis.losses_of_set import Losses
    from cems_workbench.api.open_store import ConfigLike
    from cems_workbench.evaluation.comparison import Comparison
    from cems_workbench.evaluation.verdict import Verdict
    from cems_workbench.jobs.compare_stores import StoresCompared
    from cems_workbench.jobs.evaluation import EvaluationReport


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

    read = loaded(evidence)
    chosen = read.config if config is None else load_config(config)
    least = read.relevant_from if grade is None else grade
    names = measures if isinstance(measures, str) or measures is None else " ".join(measures)
    wanted = standard_measures(least) if names is None else parse_measures(names, least)
    of_evidence = read.labelled(judges)
    refuse_nothing(of_evidence.batch.queries, read.path)
    measured, _ = evaluate_configs([(chosen.name, chosen)], lambda _: of_evidence, wanted, seed=seed)
    return measured[0]


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
        words = {query.qid: query.query for query in self.reports[0].batch.queries}
        rows, before = [], base.values[:, column].tolist()
        for other in self.comparison.evaluations[1:]:
            both = zip(base.qids, base.types, before, other.values[:, column].tolist(), strict=True)
            changed = (one for one in both if abs(one[3] - one[2]) > 1e-9)
            rows += [(qid, words[qid], kind, other.config.name, was, now, now - was) for qid, kind, was, now in changed]
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
        from cems_workbench.jobs.evaluation import losses_of_reports

        return losses_of_reports(self.reports, cutoff, shown)

    def to_markdown(self) -> str:
        """The comparison as Markdown, for a pull request: means, differences, what was left out."""
        from cems_workbench.evaluation.report import markdown_report

        first = self.reports[0]
        return markdown_report(self.comparison, first.labelled.evidence.header.query_set, first.content_hash)

    @property
    def title(self) -> str:
        """Which configs against which, on how many queries."""
        others = ", ".join(one.name for one in self.comparison.compared)
        return (
            f"{others} against {self.baseline} on {counted(len(self.comparison.evaluations[0].qids), 'judged queries')}"
        )

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


def compare_stores(
    before: str | Path,
    now: str | Path,
    config: ConfigLike | None = None,
    config_now: ConfigLike | None = None,
    *,
    query_set: str = "all",
    measures: str | None = None,
    successors: bool = False,
    seed: int = 0,
) -> StoresCompared:
    """Compare two stores on their judged queries, as the command `compare` does, and prove why each query was won or lost.

    Args:
        before: the folder of a store, or `FOLDER@3`: as it was after import 3.
        now: the store that is compared with it.
        config: the config of both; None is the preset of the settings.
        config_now: that of the second store, if it has another.
        query_set: the judged queries; "all" are those of both stores.
        measures: their names, separated by spaces; None is a full report. Causes are by nDCG@10, or else the first.
        successors: whether a relevant memory counts as found where its successor is returned.
        seed: seed of intervals and tests.

    Raises:
        InputError: no query has a judgment, or the two are one store.
        StoreError: a store cannot be opened.
    """
    from cems_workbench.jobs import compare_stores as job
    from cems_workbench.settings import Settings

    settings = Settings()
    first = load_config(settings.preset if config is None else config)
    asked = job.Asked(query_set, measures, successors=successors, seed=seed)
    return job.compare_stores(str(before), str(now), (first, first if config_now is None else load_config(config_now)), settings, asked)


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

    if isinstance(report, ComparisonReport):
        comparison, wanted = report.comparison, Asserted(asserted, (), tolerance, cannot_tell)
        first = comparison.evaluations[0]
    else:
        first, wanted, comparison = report.evaluation, Asserted(bounds=asserted), None
    for measure in wanted.measures(first.relevant_from):
        if measure not in first.measures:
            raise InputError(f"measure {measure}: it was not measured; there are {', '.join(map(str, first.measures))}")
    outcomes = wanted.of_bounds(first) if comparison is None else wanted.of_losses(comparison)
    failed = [outcome.line for outcome in outcomes if not outcome.holds]
    if failed:
        raise AssertionError("\n".join(failed))
