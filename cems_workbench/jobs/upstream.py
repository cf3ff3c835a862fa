"""What a fault of a program costs on the judged queries of a store, before its mend ships: `what-if --upstream`.

The faults are data beside the presets (`config/presets/upstream.json`): of which presets, where and when it was seen, what it does, and the
changes of a config as the program is and as it is mended. In these `limit` and `2 limit` stand for the config's own result limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.config.forms.targets import preset_behind
from cems_workbench.errors import InputError
from cems_workbench.evaluation.assertions import Asserted
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.metrics import standard_measures
from cems_workbench.jobs import evaluation as evaluating
from cems_workbench.jobs.catalogue import named
from cems_workbench.jobs.query_set_evidence import ensure_evidence, selected
from cems_workbench.jobs.regression import Regression, got_worse
from cems_workbench.jobs.scoring import read_again, score_evidence
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent

FILE = Path(__file__).parents[1] / "config" / "presets" / "upstream.json"
MEASURE = "nDCG@10"
GUESS = (
    "a guess: the store's own lists are not the program's; of the one fault that was run in two versions, Graphiti's, they gave the "
    "sign of 6 of 17 changed queries, recorded lists that of all 17"
)
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a program; the fields are those of the file. `basis` says what was run to know that the forecast holds."""

    id: str
    presets: Sequence[str]
    url: str
    seen: str
    state: str
    what: str
    as_it_is: Mapping[str, Any]
    as_mended: Mapping[str, Any]
    basis: str
    both: Mapping[str, Any] = field(default_factory=dict)

    def configs(self, config: PipelineConfig) -> list[PipelineConfig]:
        """The config as the program is, and as it is mended."""
        limit = config.assembly.limit
        depths = {"limit": limit, "2 limit": None if limit is None else 2 * limit}
        sides = {f"{self.id} as it is": self.as_it_is, f"{self.id} mended": self.as_mended}
        return [
            named(
                name,
                with_values(
                    config,
                    {
                        key: depths.get(value, value) if isinstance(value, str) else value
                        for key, value in changes.items()
                    },
                ),
            )
            for name, changes in ((name, {**self.both, **changes}) for name, changes in sides.items())
        ]


@cache
def faults() -> tuple[Fault, ...]:
    """Every known fault."""
    return tuple(Fault(**values) for values in json.loads(FILE.read_text("utf-8")))


def faults_of(preset: str | None) -> tuple[Fault, ...]:
    """Those of the program of a preset."""
    return tuple(fault for fault in faults() if preset in fault.presets)


def fault_named(name: str, config: PipelineConfig) -> Fault:
    """The fault `name` of the config's program. Raises InputError for another, with those that there are."""
    found = next((fault for fault in faults_of(preset_behind(config)) if fault.id == name), None)
    if found is not None:
        return found
    every = "; ".join(f"{fault.id} ({', '.join(fault.presets)})" for fault in faults())
    raise InputError(f"--upstream {name[:60]}: no known fault of {config.name}; known are {every}")


def _given(evidence: evaluating.LabelledEvidence, _: PipelineConfig) -> evaluating.LabelledEvidence:
    return evidence


def forecast(
    fault: Fault, config: PipelineConfig, query_set: str, resources: Resources, progress: Progress = silent
) -> Regression:
    """The config as mended against it as it is: the paired test, the verdict, and the queries that change.

    Each side is gathered, unless it was: a mend may change what the lists find. Raises InputError for a set without judged queries, and
    ModelError if a reranker is unavailable.
    """
    selection, judgments = selected(query_set, resources, judged=True)
    grades = evaluating.agreed(judgments, None)
    measures = standard_measures(resources.store.query_sets.relevant_from(query_set))
    reports = []
    for side in fault.configs(config):
        evidence = ensure_evidence(side, selection, judgments, resources, progress)
        if side.rerank.backend != "none":  # both sides may share evidence that has the scores of one
            score_evidence(evidence, [side], resources, progress)
            evidence = read_again(evidence)
        of_set = evaluating.labelled(evidence, grades, timed=False)
        evaluating.refuse_nothing(of_set.batch.queries, query_set)
        (report,), _ = evaluating.evaluate_configs([(side.name, side)], partial(_given, of_set), measures)
        reports.append(report)
    first, second = (report.evaluation for report in reports)
    comparison = compare([first, second])
    moved = [qid for qid, before, now in zip(first.qids, first.results, second.results, strict=True) if before != now]
    told = f"{len(moved)} of {len(first.qids)} queries get other results: {', '.join(moved[:SHOWN])}{'…' if len(moved) > SHOWN else ''}"
    said = (*comparison.changed(SHOWN), told) if moved else ("no query gets other results",)
    source = f"{fault.what}; {fault.state}; seen {fault.seen}, {fault.url}; {fault.basis}"
    values = {"fault": fault.id, "url": fault.url, "seen": fault.seen, "state": fault.state, "basis": fault.basis, "guess": GUESS}
    return replace(
        got_worse(comparison, Asserted(no_loss=(MEASURE,))),
        said=said,
        tables=comparison.tables,
        notes=(GUESS, source, *comparison.notes),
        values={**values, "changed": moved, **comparison.to_json()},
    )
