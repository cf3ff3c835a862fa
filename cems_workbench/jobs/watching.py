"""Watch job: measures a query set on the present store, appends the measurement to the history, and reports significant regressions.

For cron or a scheduler: memories, models and labels change between measurements. The paired test is that of `compare`, on the queries with
a value both times.

Timeline: the measures of configs on a query set over time, and what changed between two measurements.

A measurement is a saved experiment, or one of `watch`. Its card records its conditions (`Made`): if they differ between two neighbours,
the config alone does not explain the difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from cems_workbench import __version__
from cems_workbench.config import PipelineConfig, dump_config, portable_yaml
from cems_workbench.errors import InputError
from cems_workbench.evaluation.assertions import CannotTell, NoLoss, Outcome
from cems_workbench.evaluation.batch import missing_score_lines
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evaluate import Evaluation
from cems_workbench.evaluation.metrics import MEASURES, Measure, standard_measures
from cems_workbench.evaluation.report import experiment_card, read_comparison
from cems_workbench.evaluation.statistics import means, paired_interval, randomisation_test
from cems_workbench.evaluation.verdict import DEFAULT_TOLERANCE, Verdict, verdict_of_values
from cems_workbench.jobs.evaluation import LabelledEvidence, agreed, evaluate_configs, labelled, refuse_nothing
from cems_workbench.jobs.query_set_evidence import QuerySelection, ensure_evidence, queries_named
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.table import Floats
from cems_workbench.progress import Progress, silent
from cems_workbench.store import ConfigRecord

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Since:
    """One measure compared with the last time, over queries that have it both times; `low` to `high` is the 95 % interval of the change."""

    measure: Measure
    before: float
    now: float
    low: float
    high: float
    p: float
    queries: int


@dataclass(frozen=True, slots=True)
class Watched:
    """A new measurement, compared with the last."""

    evaluation: Evaluation
    kept: ConfigRecord
    last: datetime | None
    """When the same config was last measured on the same set; None for the first time."""
    changed: tuple[str, ...]
    """Changed conditions by name: memories, embedder, config, judgments, queries, workbench."""
    since: tuple[Since, ...]
    outcomes: tuple[Outcome, ...]
    verdicts: tuple[Verdict, ...] = ()
    """On what is asserted, against the last time; their sentences come first."""


def watch(
    config: PipelineConfig,
    query_set: str,
    guards: tuple[NoLoss, ...],
    resources: Resources,
    progress: Progress = silent,
    *,
    note: str = "",
    seed: int = 0,
    tolerance: float | None = None,
    cannot_tell: CannotTell | None = None,
) -> Watched:
    """Measure a query set of the store under a config, append it, and compare it with the last measurement of that config's name.

    `tolerance` and `cannot_tell` are as `check_no_loss` takes them.

    Raises InputError for an unknown set, or one without measurable queries, and ModelError if an embedder is unavailable.
    """
    queries, judgments = queries_named(query_set, resources, True)
    evidence = ensure_evidence(config, QuerySelection(query_set, tuple(queries)), judgments, resources, progress)
    of_set = labelled(evidence, agreed(judgments, None), timed=False)
    refuse_nothing(of_set.batch.queries, query_set)
    least = resources.store.query_sets.relevant_from(query_set)
    measures = tuple(dict.fromkeys([*standard_measures(least), *(guard.measure for guard in guards)]))
    (measured,), _ = evaluate_configs([(config.name, config)], lambda _: of_set, measures, seed=seed)
    evaluation = measured.evaluation
    card = experiment_card(compare([evaluation], seed=seed), query_set, measured.content_hash)
    card |= {MADE_KEY: made_with(of_set, config)}
    before = last_watched(resources, config.name, query_set)
    kept = resources.store.configs.add_watched(config.name, dump_config(config), note, card)
    since: tuple[Since, ...] = ()
    outcomes: list[Outcome] = []
    verdicts: list[Verdict] = []
    changed: tuple[str, ...] = ()
    if before is not None and before.card is not None:
        then, now = read_made(before.card), read_made(card)
        changed = now.changed_since(then) if now is not None and then is not None else ()
        earlier = before.card["configs"][-1].get("per_query", {})
        since = tuple(_since(evaluation, measure, earlier, seed) for measure in measures)
        names = f"{config.name} now", f"{config.name} of {before.saved_at:%Y-%m-%d %H:%M}"
        lacking = missing_score_lines([evaluation.lacking])
        same = _same_values(evaluation, measures, earlier)
        for guard in guards:
            if MEASURES[guard.measure.family].resampled is not None:
                outcomes.append(_not_held(guard))
                continue
            values_then, values_now = _pairs(evaluation, guard.measure, earlier, guard.query_type)
            if not len(values_now) and guard.level is not None:
                said = f"not held: {guard.scoped}: no query has a value both times"
                outcomes.append(Outcome(True, said, str(guard)))
                continue
            tolerated = tolerance if tolerance is not None else DEFAULT_TOLERANCE if guard.level is None else 0.0
            change = values_now - values_then
            found = verdict_of_values(names, guard.measure, change, guard.query_type, tolerated, same, lacking)
            found = guard.tested(found, partial(_chance, change, seed))
            verdicts.append(found)
            outcomes.append(guard.decided(found, cannot_tell))
    when = before.saved_at if before else None
    return Watched(evaluation, kept, when, changed, since, tuple(outcomes), tuple(dict.fromkeys(verdicts)))


def _same_values(evaluation: Evaluation, measures: tuple[Measure, ...], earlier: dict[str, dict[str, Any]]) -> bool:
    """Has every query the value of before, of every measure? Results are not saved: this is the nearest to the same results."""
    return all(
        np.array_equal(then, now)
        for measure in measures
        if MEASURES[measure.family].resampled is None
        for then, now in [_pairs(evaluation, measure, earlier)]
    )


def last_watched(resources: Resources, name: str, query_set: str) -> ConfigRecord | None:
    """The latest measurement of `watch` of a config by name on a query set; None before the first."""
    return next(
        (
            record
            for record in resources.store.configs.watched()
            if record.name == name and (record.card or {}).get("query_set") == query_set
        ),
        None,
    )


def _pairs(
    evaluation: Evaluation, measure: Measure, earlier: dict[str, dict[str, Any]], query_type: str | None = None
) -> tuple[Floats, Floats]:
    """Values then and now of the queries of a type that have one both times."""
    column = evaluation.measures.index(measure)
    rows = [
        (float(then), float(value))
        for qid, kind, value in zip(evaluation.qids, evaluation.types, evaluation.values[:, column], strict=True)
        if query_type in (None, kind)
        and (then := earlier.get(qid, {}).get(str(measure))) is not None
        and not np.isnan(value)
    ]
    paired = np.array(rows, dtype=float).reshape(-1, 2)
    return paired[:, 0], paired[:, 1]


def _since(
    evaluation: Evaluation,
    measure: Measure,
    earlier: dict[str, dict[str, Any]],
    seed: int,
    query_type: str | None = None,
) -> Since:
    then, now = _pairs(evaluation, measure, earlier, query_type)
    if not len(then):
        return Since(measure, NAN, NAN, NAN, NAN, 1.0, 0)
    delta = (now - then)[:, None]
    low, high = paired_interval(delta)[:, 0]
    p = _chance(now - then, seed)
    before, value = means(np.stack([then, now], axis=1))
    return Since(measure, float(before), float(value), float(low), float(high), p, len(then))


def _chance(change: Floats, seed: int) -> float:
    """p of the paired test."""
    return float(randomisation_test(change[:, None], seed)[0])


def _not_held(guard: NoLoss) -> Outcome:
    """A measure over all queries together has no values to pair."""
    return Outcome(True, f"not held: {guard.scoped} is of all queries together: it has no value of each", str(guard))


MADE_KEY = "made"
"""The key in a card."""


@dataclass(frozen=True, slots=True)
class Made:
    """The conditions of a measurement."""

    memories: str
    """Store and content version."""
    embedder: str
    config: str
    """Hash of every parameter."""
    judgments: str
    """Hash of the grades."""
    queries: str
    """Hash of the queries that were measured."""
    workbench: str

    def changed_since(self, other: Made) -> tuple[str, ...]:
        """The names of the conditions that differ."""
        return tuple(part.name for part in fields(self) if getattr(self, part.name) != getattr(other, part.name))


@dataclass(frozen=True, slots=True)
class Point:
    """One measure of one config at one time, with its 95 % interval; `changed` names the conditions that differ from the previous point."""

    when: datetime
    name: str
    mean: float
    low: float
    high: float
    queries: int
    changed: tuple[str, ...] | None
    """None for the first, and if one of the two has no conditions."""
    note: str


def made_with(labelled: LabelledEvidence, config: PipelineConfig) -> dict[str, str]:
    """The conditions of a measurement of a config on labelled evidence, for its card."""
    header = labelled.evidence.header
    parameters = portable_yaml(config.model_copy(update={"name": ""}))
    return asdict(
        Made(
            f"{header.store_id}/{header.content_version}",
            header.embedder,
            _hash(parameters),
            labelled.grades.digest,
            _hash("\0".join(labelled.batch.qids)),
            __version__,
        )
    )


def read_made(card: Mapping[str, Any] | None) -> Made | None:
    """The conditions in a card; None without any."""
    values = (card or {}).get(MADE_KEY)
    if not isinstance(values, dict) or values.keys() != {part.name for part in fields(Made)}:
        return None
    return Made(**{name: str(value) for name, value in values.items()})


def query_sets(records: Iterable[ConfigRecord]) -> list[str]:
    """The query sets that were measured, by name."""
    return sorted({str(record.card["query_set"]) for record in records if record.card and "query_set" in record.card})


def measures(records: Iterable[ConfigRecord], query_set: str) -> list[Measure]:
    """The measures of the measurements on a query set, in the order of first use."""
    found: dict[Measure, None] = {}
    for record in records:
        if record.card and record.card.get("query_set") == query_set:
            with suppress(InputError):
                found |= {row.measure: None for row in read_comparison(record.card).figures[-1].summaries}
    return list(found)


def points(records: Iterable[ConfigRecord], query_set: str, measure: Measure) -> list[Point]:
    """The points of a measure on a query set, the earliest first; records of other sets, or without this measure, have none."""
    found, last = [], dict[str, Made | None]()
    for record in sorted(records, key=lambda record: (record.saved_at, record.id)):
        try:
            kept = read_comparison(record.card or {})
        except InputError:
            continue
        summary = next((row for row in kept.figures[-1].summaries if row.measure == measure), None)
        if kept.query_set != query_set or summary is None:
            continue
        now = read_made(record.card)
        before = last.get(record.name)
        changed = now.changed_since(before) if now is not None and before is not None else None
        last[record.name] = now
        found.append(
            Point(
                record.saved_at,
                record.name,
                summary.mean,
                summary.low,
                summary.high,
                summary.queries,
                changed,
                record.why,
            )
        )
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
