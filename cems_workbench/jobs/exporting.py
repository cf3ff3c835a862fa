"""Exports: a config as text in some format, read back as the target system reads it, and both rankings measured on the same queries.

    Export           the text, and the config that the target system ranks with
    ExportedRanking  the measures of both configs, with the paired difference

The config that the target reads may need evidence that was not gathered: a `.env` of CEMS cannot name lists that CEMS does not have.
`of_selection` then uses evidence that was gathered for it, if there is any; otherwise the figures are incomplete, and labelled so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.config import PipelineConfig, card_path, difference, export_config, read_back, with_values
from cems_workbench.config.forms.files import form_for
from cems_workbench.config.forms.targets import BY_FORM, TARGET_TITLES, unplaced
from cems_workbench.errors import InputError, counted
from cems_workbench.platform.atomic_write import write_text

if TYPE_CHECKING:  # an export without evidence measures nothing
    from cems_workbench.config import EvidenceCard, Form
    from cems_workbench.evaluation.batch import LabelledBatch
    from cems_workbench.evaluation.comparison import Comparison, MeasureDifference
    from cems_workbench.evaluation.evaluate import Evaluation
    from cems_workbench.evaluation.metrics import Measure
    from cems_workbench.jobs.evaluation import LabelledEvidence
    from cems_workbench.jobs.factory import Cache
    from cems_workbench.jobs.query_set_evidence import QuerySelection
    from cems_workbench.jobs.tuning import SearchResult
    from cems_workbench.pipeline.resources import Resources


@dataclass(frozen=True)
class Export:
    """A config as text in a format, and the config that the target system reads from it."""

    form: Form
    text: str
    config: PipelineConfig
    read: PipelineConfig

    @property
    def reader(self) -> str:
        """The target: a system, or this workbench."""
        return next((title for target, title in TARGET_TITLES.items() if target == self.form), "the workbench")

    @property
    def as_read(self) -> str:
        """Display name of the target's ranking."""
        return f"as {self.reader} reads it"

    @property
    def lost(self) -> list[tuple[str, object, object]]:
        """The parameters that differ after reading: (path, value here, value there)."""
        return [row for row in difference(self.config, self.read) if row[0] != "name"]

    @property
    def instead(self) -> str:
        """What does in the target what a lost mode of supersession does here; empty if it is not lost, or nothing is known."""
        retires = self.form in BY_FORM and BY_FORM[self.form].retires
        if not retires or all(path != "supersession.mode" for path, _, _ in self.lost):
            return ""
        where = (
            f"instead of supersession.mode, `supersessions --script FILE` retires superseded memories in {self.reader}"
        )
        return f"{where}: those of pairs accepted on Label › Superseded, which has the script too"

    @property
    def refused(self) -> str:
        """Why the target's ranking cannot be measured: it reads from an installation whose folder is not known."""
        lacks = "; ".join(f"{path}=FOLDER/{place}" for path, place in unplaced(self.read).items())
        return lacks and f"{self.as_read}: not measured without the folder of its installation: set {lacks}"


def exported(config: PipelineConfig, form: Form, card: EvidenceCard | None = None, folder: str = "") -> Export:
    """Export a config in a format, and read it back; `folder` is that of the target's installation."""
    text = export_config(config, form, card)
    name = f"{config.name} as {TARGET_TITLES[form]} reads it" if form in TARGET_TITLES else config.name
    read = read_back(text, form, name, config)
    if folder and (places := unplaced(read)):
        read = with_values(read, {path: f"{folder}/{place}" for path, place in places.items()})
    return Export(form, text, config, read)


@dataclass(frozen=True, eq=False)
class ExportedRanking:
    """The measures of a config here and as the target ranks, on the same queries."""

    export: Export
    comparison: Comparison
    queries: str
    """Description of the queries."""

    @property
    def here(self) -> Evaluation:
        """The evaluation of the config here."""
        return self.comparison.evaluations[0]

    @property
    def there(self) -> Evaluation:
        """The evaluation of the config that the target reads."""
        return self.comparison.evaluations[1]

    @property
    def differences(self) -> Sequence[MeasureDifference]:
        """There minus here, by measure."""
        return self.comparison.compared[0].differences

    @property
    def lacking(self) -> list[str]:
        """What the target's config needs and the evidence lacks."""
        from cems_workbench.evaluation.batch import missing_score_lines

        return missing_score_lines([(self.export.as_read, self.there.rankings.needs)])

    @property
    def lines(self) -> list[str]:
        """One line per measure, and what the figures leave out."""
        said = [
            f"{self.export.as_read}: {row.measure} on {self.queries} ({len(self.here.qids)}): {row.baseline:.4f} here, "
            f"{row.value:.4f} there, difference {row.difference:+.4f} [{row.low:+.4f}, {row.high:+.4f}], p = {row.p:.4g}"
            for row in self.differences
        ]
        return [*said, *(f"not complete: {line}" for line in self.incomplete)]

    @property
    def incomplete(self) -> list[str]:
        """Why the figures of the target's ranking are incomplete: missing evidence, and failures of its reranker."""
        failed = [
            f"{self.export.as_read}: its reranker failed in {counted(count, 'queries')}: {why}"
            for why, count in self.there.failed.items()
        ]
        return [*self.lacking, *failed]

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        from cems_workbench.evaluation.evaluate import number

        measures: dict[str, Any] = {}
        for row in self.differences:
            figures = {"here": row.baseline, "there": row.value, "difference": row.difference}
            interval = {"interval": [number(row.low), number(row.high)], "p": row.p}
            measures[str(row.measure)] = {name: number(value) for name, value in figures.items()} | interval
        return {
            **{"form": self.export.form, "reader": self.export.reader, "queries": self.queries},
            "count": len(self.here.qids),
            "lost": [path for path, _, _ in self.export.lost],
            "lacking": self.lacking,
            "measures": measures,
        }


def measured(
    export: Export,
    here: LabelledBatch,
    measures: Sequence[Measure],
    queries: str = "the judged queries",
    *,
    there: LabelledBatch | None = None,
    qids: Collection[str] | None = None,
    seed: int = 0,
) -> ExportedRanking:
    """Measure both rankings on the queries of a batch, or on some of them; `there` is a separate batch for the target's
    config. Queries without evidence in either batch are left out. Raises InputError where `Export.refused` says why."""
    from cems_workbench.evaluation.comparison import compare
    from cems_workbench.evaluation.evaluate import evaluate

    if export.refused:
        raise InputError(export.refused)
    other = here if there is None else there
    asked = set(here.qids) & set(other.qids) & (set(here.qids) if qids is None else set(qids))

    def figures(batch: LabelledBatch, config: PipelineConfig) -> Evaluation:
        queries = batch if asked == set(batch.qids) else batch.of_queries(asked)
        return evaluate(queries, config, measures, seed=seed, with_bounds=False)

    first = figures(here, export.config)
    rows = [first, figures(other, export.read) if export.lost else first]  # or the target reads the same config
    return ExportedRanking(export, compare(rows, seed=seed), queries)


def measured_proposal(
    result: SearchResult, export: Export, there: LabelledBatch | None = None
) -> list[ExportedRanking]:
    """The objectives of a search's proposal, here and as the target of its export ranks. On the tuning queries, and on
    the sealed ones once they were opened. None if `Export.refused`, or if the order of a reranker replaces judgments: it
    would compare the reranker with its own order."""
    if result.planned.data.stands_in or export.refused:
        return []
    plan, batch = result.planned.plan, result.planned.batch
    parts = [("the queries searched on", plan.split.open)]
    if result.tuned.holdout is not None:
        parts.append(("the hold-out", plan.split.holdout))
    of = ((words, [batch.qids[row] for row in rows.tolist()]) for words, rows in parts)
    measures = plan.goal.objectives
    return [measured(export, batch, measures, name, there=there, qids=qids, seed=plan.seed) for name, qids in of]


def of_selection(
    export: Export, evidence: LabelledEvidence, resources: Resources, cache: Cache
) -> LabelledEvidence | None:
    """The evidence that was gathered for the target's config and the same queries; None without any. Raises InputError."""
    from cems_workbench.jobs.evaluation import labelled_selection

    return labelled_selection(export.read, selection_of(evidence), evidence.grades, resources, cache)


def selection_of(evidence: LabelledEvidence) -> QuerySelection:
    """The selection of queries that evidence was gathered for."""
    from cems_workbench.jobs.query_set_evidence import QuerySelection

    header = evidence.evidence.header
    return QuerySelection(header.query_set, evidence.evidence.queries, header.only_project)


def with_figures(
    config: PipelineConfig,
    form: Form,
    card: EvidenceCard,
    rankings: Callable[[Export], Sequence[ExportedRanking]],
    folder: str = "",
) -> tuple[Export, Sequence[ExportedRanking], EvidenceCard]:
    """The export, the figures of the target's ranking, and the card, which has them if the target's config differs."""
    export = exported(config, form, card, folder)
    found = rankings(export)
    if export.lost:
        said = (export.refused,) if export.refused else tuple(line for one in found for line in one.lines)
        card = card.model_copy(update={"as_read": said})
    return exported(config, form, card, folder), found, card


def write_proposal(result: SearchResult, out: Path, card: EvidenceCard) -> Sequence[ExportedRanking]:
    """Write the proposal, in the format of the suffix of `out`, and its card; returns the figures of `with_figures`,
    none if the target's config is the same. Raises InputError."""
    form = form_for(out)
    export, rankings, card = with_figures(
        result.tuned.config, form, card, lambda export: measured_proposal(result, export) if export.lost else []
    )
    write_text(out, export.text)
    write_text(card_path(out), card.to_json())
    return rankings
