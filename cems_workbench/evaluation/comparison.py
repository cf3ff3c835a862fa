"""Configs compared on the same queries: differences with their uncertainty, and which query won, lost or stayed.

The first config is the baseline. p values of every other config and measure are one family for Holm's correction, without those that
cannot be a finding: where no query differs p is 1 whatever the labels (Tarone, A modified Bonferroni method for discrete data, 1990), and
Judged says how much is known, not how good it is; its p stands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cems_workbench.errors import InputError, counted, some
from cems_workbench.evaluation.evaluate import NO_TYPE, Evaluation, number, stale_lines
from cems_workbench.evaluation.metrics import MEASURES, Measure, rbo
from cems_workbench.evaluation.statistics import (
    bootstrap_test,
    effect_size,
    holm,
    interval,
    means,
    paired_interval,
    randomisation_test,
    resample,
)
from cems_workbench.pipeline.table import Floats, Ints
from cems_workbench.results import Table

VALUE_TOLERANCE = 1e-9
LEVEL = 0.05
"""Below this a corrected p is taken for more than chance."""
COVERAGE = "Judged"
"""The family of the measure that says how much is known, not how good it is."""


@dataclass(frozen=True, slots=True)
class MeasureDifference:
    """One measure of one config against the baseline: mean difference, its interval, p, Holm's p, effect size, and the queries."""

    measure: Measure
    baseline: float
    value: float
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    effect: float
    wins: tuple[str, ...]
    losses: tuple[str, ...]
    ties: int
    by_type: dict[str, float]


BETTER, WORSE = "▲ better", "▼ worse"
SAME_WORD, OPEN_WORD = "= same", "not certain"
"""The words of every table, page and report for what a difference says."""


def significance(difference: MeasureDifference) -> str:
    """In a word what a difference says, with its sign."""
    if not difference.wins and not difference.losses:
        return SAME_WORD
    if difference.p_holm >= LEVEL:
        return OPEN_WORD
    if difference.measure.family == COVERAGE:
        return "▲ more" if difference.difference > 0 else "▼ fewer"
    return BETTER if difference.measure.direction * difference.difference > 0 else WORSE


@dataclass(frozen=True, slots=True)
class ConfigComparison:
    """One config against the baseline."""

    name: str
    overlap: float
    """Mean rank-biased overlap of the results."""
    differences: tuple[MeasureDifference, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All configs, the baseline first, and what the others differ in from it."""

    evaluations: tuple[Evaluation, ...]
    compared: tuple[ConfigComparison, ...]

    @property
    def table(self) -> Table:
        """A row for each config and measure: both means, the difference with its interval, p values, effect, and who won."""
        rows = tuple(
            (
                one.name,
                str(row.measure),
                *map(number, (row.baseline, row.value, row.difference, row.low, row.high)),
                row.p,
                row.p_holm,
                number(row.effect),
                f"{len(row.wins)}/{len(row.losses)}/{row.ties}",
                len(row.wins),
                len(row.losses),
                row.ties,
            )
            for one in self.compared
            for row in one.differences
        )
        columns = ("config", "measure", "baseline", "value", "difference", "low", "high", "p", "p (Holm)", "effect")
        others = ", ".join(one.name for one in self.compared)
        base = self.evaluations[0]
        counts = ("wins", "losses", "ties")
        return Table(
            (*columns, "won/lost/same", *counts),
            rows,
            f"{others} against {base.config.name}: {counted(len(base.qids), 'queries')}",
            unshown=("p", *counts) if len(self.compared) > 1 else ("config", "p", *counts),
        )

    @property
    def tables(self) -> tuple[Table, ...]:
        """The differences; the means and costs of every config; with several query types the differences of each."""
        every = self.evaluations
        means: list[tuple[Any, ...]] = [
            (str(measure), *(number(one.summaries[m].mean) for one in every))
            for m, measure in enumerate(every[0].measures)
        ]
        for name, key in (("ms/query", "ms_per_query"), ("LLM calls", "llm_calls"), ("pairs reranked", "reranked")):
            means.append((name, *(round(one.cost[key]) if key in one.cost else None for one in every)))
        tables = [
            Table(("mean", *(one.config.name for one in every)), tuple(means), counted(len(every[0].qids), "queries"))
        ]
        for compared in self.compared:
            kinds = list(compared.differences[0].by_type)
            if len(kinds) > 1:
                columns = ("difference by type", *(str(one.measure) for one in compared.differences))
                rows = ((kind, *(number(one.by_type[kind]) for one in compared.differences)) for kind in kinds)
                tables.append(Table(columns, tuple(rows), compared.name))
        return (self.table, *tables)

    @property
    def notes(self) -> tuple[str, ...]:
        """How to read it, what counts as relevant, and the remarks on each evaluation, each once."""
        base = self.evaluations[0]
        cached = f" ({from_cache})" if (from_cache := base.figures.from_cache) else ""
        overlaps = ", ".join(f"{one.name} {one.overlap:.3f}" for one in self.compared)
        return (
            f"overlap of results with {base.config.name}: {overlaps}",
            "low and high: 95 % interval of the difference, paired by query; p: randomisation test",
            f"ms/query and LLM calls: as recorded when the evidence was gathered{cached}; pairs reranked: what each config's "
            "reranker reads",
            *stale_lines(self.evaluations),
            *dict.fromkeys(note for one in self.evaluations for note in (one.relevance, *one.remarks)),
        )

    def changed(self, shown: int) -> list[str]:
        """The queries that are better and worse by the first measure, of each config the first `shown`, in sentences."""
        lines = []
        for compared in self.compared:
            first = compared.differences[0]
            name = f"{compared.name}: " if len(self.compared) > 1 else ""
            for word, qids in (("better", first.wins), ("worse", first.losses)):
                if qids and shown:
                    lines.append(f"{name}{word} by {first.measure}: {some(qids, shown)}")
        return lines

    def to_json(self, per_query: bool = True) -> dict[str, Any]:
        """The comparison as plain values; the values of the queries, and which won or lost, are left out unless they are asked for."""
        return {
            "baseline": self.evaluations[0].config.name,
            "configs": [evaluation.to_json(per_query) for evaluation in self.evaluations],
            "compared": [
                {
                    "config": compared.name,
                    "rbo": number(compared.overlap),
                    "measures": {str(one.measure): _plain(one, per_query) for one in compared.differences},
                }
                for compared in self.compared
            ],
        }


def _plain(found: MeasureDifference, per_query: bool) -> dict[str, Any]:
    which = {"wins": list(found.wins), "losses": list(found.losses)} if per_query else {}
    return {
        "baseline": number(found.baseline),
        "value": number(found.value),
        "difference": number(found.difference),
        "interval": [number(found.low), number(found.high)],
        "p": found.p,
        "p_holm": found.p_holm,
        "effect_size": number(found.effect) if np.isfinite(found.effect) else None,
        **which,
        "won": len(found.wins),
        "lost": len(found.losses),
        "ties": found.ties,
        "by_type": {name: number(value) for name, value in found.by_type.items()},
    }


def compare(evaluations: Sequence[Evaluation], *, seed: int = 0, overlaps: Sequence[float] = ()) -> Comparison:
    """Compare evaluations of the same batch under the same measures. Raises InputError when they are of others.
    `overlaps` are those of the results of each but the first with the first's, where the evaluations hold no
    results."""
    base = evaluations[0]
    for other in evaluations[1:]:
        if other.qids != base.qids or other.measures != base.measures:
            raise InputError(f"{other.config.name} and {base.config.name} were not measured alike")
    deltas = [other.values - base.values for other in evaluations[1:]]
    p = [randomisation_test(delta, seed) for delta in deltas]
    intervals = [paired_interval(delta) for delta in deltas]
    for m, measure in enumerate(base.measures):
        before = resample(measure, base.rankings.graded, seed)
        for other, tested, ends in zip(evaluations[1:], p, intervals, strict=True):
            after = None if before is None else resample(measure, other.rankings.graded, seed)
            if before is not None and after is not None:
                tested[m], ends[:, m] = bootstrap_test(after - before), interval(after - before)
    adjusted = [row.tolist() for row in p]
    family = [
        (i, m)
        for i, delta in enumerate(deltas)
        for m, measure in enumerate(base.measures)
        if measure.family != COVERAGE and _differs(delta[:, m])
    ]
    for (i, m), value in zip(family, holm([adjusted[i][m] for i, m in family]), strict=True):
        adjusted[i][m] = value
    compared = []
    for i, (other, delta) in enumerate(zip(evaluations[1:], deltas, strict=True)):
        low, high = intervals[i]
        average = means(delta)
        found = []
        for m, measure in enumerate(base.measures):
            column = delta[:, m]
            better = measure.direction * column
            names = np.array([kind or NO_TYPE for kind in base.types], dtype=object)
            found.append(
                MeasureDifference(
                    measure,
                    base.mean(measure),
                    other.mean(measure),
                    float(average[m]),
                    float(low[m]),
                    float(high[m]),
                    float(p[i][m]),
                    adjusted[i][m],
                    effect_size(column),
                    tuple(base.qids[q] for q in np.flatnonzero(better > VALUE_TOLERANCE)),
                    tuple(base.qids[q] for q in np.flatnonzero(better < -VALUE_TOLERANCE)),
                    int((np.abs(column) <= VALUE_TOLERANCE).sum()),
                    {name: float(means(column[names == name][:, None])[0]) for name in sorted(set(names.tolist()))},
                )
            )
        # By memory ids: a candidate has another number in evidence that was gathered otherwise.
        alike = np.array([overlaps[i]]) if len(overlaps) else overlap_of(base.results, other.results)
        overlap = float(alike.mean()) if len(alike) else float("nan")
        compared.append(ConfigComparison(other.config.name, overlap, tuple(found)))
    return Comparison(tuple(evaluations), tuple(compared))


def _differs(differences: Floats) -> bool:
    return bool((np.abs(differences) > VALUE_TOLERANCE).any())


def p_of(comparison: Comparison, place: int, measure: Measure, query_type: str | None = None, seed: int = 0) -> float:
    """p of one measure of one compared config against the baseline, uncorrected, over the queries of one type where it
    is named. Raises InputError for a measure over all queries together, such as AUROC, of one type."""
    base = comparison.evaluations[0]
    if query_type is None:
        return comparison.compared[place].differences[base.measures.index(measure)].p
    _, delta = differences_of_type(comparison, place, measure, query_type)
    return float(randomisation_test(delta[:, None], seed)[0])


def differences_of_type(comparison: Comparison, place: int, measure: Measure, query_type: str) -> tuple[Ints, Floats]:
    """The places of the queries of one type, and their differences of one compared config from the baseline, NaN where
    not measured. Raises InputError if no query of that type can be measured, and for a measure over all queries
    together, such as AUROC."""
    base, other = comparison.evaluations[0], comparison.evaluations[1 + place]
    if MEASURES[measure.family].resampled is not None:
        raise InputError(f"{measure} is of all queries together: it cannot be compared over the queries of one type")
    rows = np.flatnonzero([kind == query_type for kind in base.types])
    column = base.measures.index(measure)
    differences = other.values[rows, column] - base.values[rows, column]
    if np.isnan(differences).all():
        known = ", ".join(sorted({kind for kind in base.types if kind})) or "none"
        raise InputError(f"{measure}: no query of type {query_type!r} can be measured; types: {known}")
    return rows, differences


def interval_words(low: float, high: float) -> str:
    """The interval of a difference as tables show it; a dash where there is none."""
    return "–" if np.isnan(low) else f"{low:+.3f} to {high:+.3f}"


def significantly_lower(evaluations: Sequence[Evaluation], measure: Measure, *, seed: int = 0) -> dict[str, list[str]]:
    """By query type, the configs that are worse than the first for it by more than chance. A paired randomisation test
    for each config and type; Holm's correction over all of them."""
    base = evaluations[0]
    column = base.measures.index(measure)
    names = np.array([kind or NO_TYPE for kind in base.types], dtype=object)
    kinds = sorted(set(names.tolist()))
    tests = []
    for other in evaluations[1:]:
        delta = other.values[:, [column]] - base.values[:, [column]]
        for kind in kinds:
            of_kind = delta[names == kind]
            if _differs(of_kind):
                p = float(randomisation_test(of_kind, seed)[0])
                tests.append((kind, other.config.name, float(means(of_kind)[0]), p))
    adjusted = holm([p for *_, p in tests])
    found: dict[str, list[str]] = {kind: [] for kind in kinds}
    for (kind, name, difference, _), p in zip(tests, adjusted, strict=True):
        if measure.direction * difference < 0 and p < LEVEL:
            found[kind].append(name)
    return found


def overlap_of(first: Sequence[Sequence[str]], second: Sequence[Sequence[str]]) -> Floats:
    """(Q) rank-biased overlap of the results of each query under two configs, as memory ids, best first."""
    numbers: dict[str, int] = {}
    return rbo(_numbered(first, numbers), _numbered(second, numbers))


def _numbered(results: Sequence[Sequence[str]], numbers: dict[str, int]) -> Ints:
    """(Q, R) a number for every memory, -1 past the end; `numbers` are added to."""
    found = np.full((len(results), max(map(len, results), default=0)), -1, dtype=np.int64)
    for q, ids in enumerate(results):
        found[q, : len(ids)] = [numbers.setdefault(key, len(numbers)) for key in ids]
    return found
