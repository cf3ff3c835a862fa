"""Export: a config as text of some form, read back as whoever it is for reads it, and both rankings measured on the same queries.

    Export           the text, and the config that its reader ranks with
    ExportedRanking  what the config reaches here and as it is read, with the paired difference

What the reader ranks with may ask for what the evidence of the config does not hold: a `.env` of CEMS says nothing of lists that CEMS does
not have. `of_selection` then takes the evidence that was gathered for it, where it was; else the figures are of what is there, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cems_workbench.config import (
    EvidenceCard,
    Form,
    PipelineConfig,
    card_path,
    difference,
    export_config,
    read_back,
)
from cems_workbench.config.export_names import TARGET_TITLES
from cems_workbench.config.forms.reading import SUFFIXES
from cems_workbench.evaluation.batch import LabelledBatch, missing_score_lines
from cems_workbench.evaluation.comparison import Comparison, MeasureDifference, compare
from cems_workbench.evaluation.evaluate import Evaluation, evaluate, number
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.jobs.caching import Cache, uncached
from cems_workbench.jobs.evaluation import LabelledEvidence, labelled_selection
from cems_workbench.jobs.query_set_evidence import QuerySelection
from cems_workbench.jobs.tuning import SearchResult
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.atomic_write import write_text


@dataclass(frozen=True)
class Export:
    """A config as text of a form, and the config that whoever it is for ranks with once it has read it."""

    form: Form
    text: str
    config: PipelineConfig
    read: PipelineConfig

    @property
    def reader(self) -> str:
        """Who reads it: a system, or this workbench."""
        return next((title for target, title in TARGET_TITLES.items() if target == self.form), "the workbench")

    @property
    def as_read(self) -> str:
        """What the ranking of its reader is called."""
        return f"as {self.reader} reads it"

    @property
    def lost(self) -> list[tuple[str, object, object]]:
        """The parameters that come back otherwise: (path, value here, value there)."""
        return [row for row in difference(self.config, self.read) if row[0] != "name"]


def exported(config: PipelineConfig, form: Form, card: EvidenceCard | None = None) -> Export:
    """The text of a config in a form, and what its reader makes of it."""
    text = export_config(config, form, card)
    name = f"{config.name} as {TARGET_TITLES[form]} reads it" if form in TARGET_TITLES else config.name
    return Export(form, text, config, read_back(text, form, name))


@dataclass(frozen=True, eq=False)
class ExportedRanking:
    """What a config reaches here and as its reader ranks, on the same queries, by the same measures."""

    export: Export
    comparison: Comparison
    queries: str
    """Which queries, in words."""

    @property
    def here(self) -> Evaluation:
        """The config as it is here."""
        return self.comparison.evaluations[0]

    @property
    def there(self) -> Evaluation:
        """The config as its reader has it."""
        return self.comparison.evaluations[1]

    @property
    def differences(self) -> Sequence[MeasureDifference]:
        """There less here, by measure."""
        return self.comparison.compared[0].differences

    @property
    def lacking(self) -> list[str]:
        """What the evidence does not hold of what the reader's config asks for."""
        return missing_score_lines([(self.export.as_read, self.there.rankings.needs)])

    @property
    def lines(self) -> list[str]:
        """In words, a line a measure, and what the figures leave out."""
        said = [
            f"{self.export.as_read}: {row.measure} on {self.queries} ({len(self.here.qids)}): {row.baseline:.4f} here, "
            f"{row.value:.4f} there, difference {row.difference:+.4f} [{row.low:+.4f}, {row.high:+.4f}], p = {row.p:.4g}"
            for row in self.differences
        ]
        return [*said, *(f"not complete: {line}" for line in self.incomplete)]

    @property
    def incomplete(self) -> list[str]:
        """Why the figure of the reader's ranking is not the whole truth: what the evidence lacks, and what its reranker failed on."""
        failed = [
            f"{self.export.as_read}: its reranker failed in {count} queries: {why}"
            for why, count in self.there.failed.items()
        ]
        return [*self.lacking, *failed]

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        return {
            "form": self.export.form,
            "reader": self.export.reader,
            "queries": self.queries,
            "count": len(self.here.qids),
            "lost": [path for path, _, _ in self.export.lost],
            "lacking": self.lacking,
            "measures": {
                str(row.measure): {
                    "here": number(row.baseline),
                    "there": number(row.value),
                    "difference": number(row.difference),
                    "interval": [number(row.low), number(row.high)],
                    "p": row.p,
                }
                for row in self.differences
            },
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
    """Measure both rankings on the queries of a batch, or on some of them; `there` is a batch for the reader's config, else it is the same.

    Queries that either batch has no evidence of are left out.
    """
    other = here if there is None else there
    asked = set(here.qids) & set(other.qids) & (set(here.qids) if qids is None else set(qids))
    found = [
        evaluate(
            batch if asked == set(batch.qids) else batch.of_queries(asked),
            config,
            measures,
            seed=seed,
            with_bounds=False,
        )
        for batch, config in ((here, export.config), (other, export.read))[: 2 if export.lost else 1]
    ]
    rows = found if export.lost else [*found, *found]  # the same config again
    return ExportedRanking(export, compare(rows, seed=seed), queries)


def measured_proposal(
    result: SearchResult, export: Export, there: LabelledBatch | None = None
) -> list[ExportedRanking]:
    """The proposal of a search and what the reader of its export makes of it, by its objectives.

    On the queries that were searched on; on the sealed ones too, once they were opened. None where the order of a reranker stands in
    for judgments: by it a ranking with the reranker would be measured by itself.
    """
    if result.planned.data.stands_in:
        return []
    plan, batch = result.planned.plan, result.planned.batch
    parts = [("the queries searched on", plan.split.open)]
    if result.tuned.holdout is not None:
        parts.append(("the hold-out", plan.split.holdout))
    return [
        measured(
            export,
            batch,
            plan.goal.objectives,
            words,
            there=there,
            qids=[batch.qids[row] for row in rows.tolist()],
            seed=plan.seed,
        )
        for words, rows in parts
    ]


def of_selection(
    export: Export, evidence: LabelledEvidence, resources: Resources, cache: Cache = uncached
) -> LabelledEvidence | None:
    """The evidence that was gathered for the reader's config and the same queries; None where it was not. Raises InputError."""
    return labelled_selection(export.read, selection_of(evidence), evidence.grades, resources, cache)


def selection_of(evidence: LabelledEvidence) -> QuerySelection:
    """The queries of evidence, as a gather takes them."""
    header = evidence.evidence.header
    return QuerySelection(header.query_set, evidence.evidence.queries, header.project_only)


def with_figures(
    config: PipelineConfig, form: Form, card: EvidenceCard, rankings: Callable[[Export], Sequence[ExportedRanking]]
) -> tuple[Export, Sequence[ExportedRanking], EvidenceCard]:
    """The export, the figures of what its reader makes of it, and the card, which says them where that is another config."""
    export = exported(config, form, card)
    found = rankings(export)
    if export.lost:
        card = card.model_copy(update={"as_read": tuple(line for one in found for line in one.lines)})
    return exported(config, form, card), found, card


def write_proposal(result: SearchResult, out: Path, card: EvidenceCard) -> Sequence[ExportedRanking]:
    """Write the proposal, in the form that the suffix of `out` says, and its card beside it; gives the figures of `with_figures`, none
    where nothing is lost on the way.

    Raises InputError.
    """
    form = SUFFIXES.get(out.suffix.lower(), "yaml")
    export, rankings, card = with_figures(
        result.tuned.config, form, card, lambda export: measured_proposal(result, export) if export.lost else []
    )
    write_text(out, export.text)
    write_text(card_path(out), card.to_json())
    return rankings
