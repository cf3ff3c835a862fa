"""Does a config lose against the baseline? Pass, fail, or cannot tell: one sentence for every page, command and report,
first how many queries are better, worse and the same, last how it looks and what so many queries cannot exclude.

A loss is tolerated up to δ, in units of the measure. With [low, high] the 95 % interval of the mean paired difference that tables show,
positive where better:

    pass         low ≥ -δ            a larger loss is excluded
    fail         high < -δ           a larger loss is shown
    cannot tell  otherwise

This tests for non-inferiority (Piaggio et al., Reporting of noninferiority and equivalence randomized trials, JAMA 2012). How many queries
would tell, if the config truly loses nothing, follows from the observed standard deviation s of the differences:

    N = ((z(0.975) + z(0.8)) · s / δ)²

with the quantiles of the normal distribution for the interval's end and a power of 0.8 (Julious, Sample sizes for clinical trials with
normal data, Statistics in Medicine 2004). Where there are as many queries already, the true difference is hardly 0. Then N is the number
that tells, with the same power, if the true difference d is the observed one: |d + δ| replaces δ.

An interval knows nothing of what no query showed. In n queries a share u = 1 - 0.05^(1/n) of all queries may go unseen with 5 %
probability (Hanley & Lippman-Hand, If nothing goes wrong, is everything all right?, JAMA 1983). If each of them lost 1, the mean would be
(1 - u) · low - u. A pass also needs that to be no loss of more than 2δ, so that a loss of twice the tolerance is found whether many queries
lose a little or a few lose all. From 299 queries on, with δ = 0.01, the interval alone decides.

Two cases have no use for an interval. Results that are the same for every query pass, and fewer than `MIN_QUERIES` queries cannot tell.
benchmarks/bench_verdicts.py measures how often a verdict is wrong.

For a measure of all queries together, such as AUROC, the interval is a bootstrap's, and s is √queries times its standard error.

What a config needs and the evidence lacks comes first: then no verdict holds, and the sentence says what was not measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.batch import missing_score_lines
from cems_workbench.evaluation.comparison import (
    VALUE_TOLERANCE,
    Comparison,
    ConfigComparison,
    MeasureDifference,
    compare,
    differences_of_type,
)
from cems_workbench.evaluation.evaluate import Evaluation, number
from cems_workbench.evaluation.metrics import MEASURES, Measure
from cems_workbench.evaluation.statistics import paired_interval, standard_error
from cems_workbench.pipeline.table import Floats

Kind = Literal["pass", "fail", "cannot tell"]
PASS: Kind = "pass"
FAIL: Kind = "fail"
CANNOT_TELL: Kind = "cannot tell"
DEFAULT_TOLERANCE = 0.01
DEFAULT_MEASURE = "nDCG@10"
"""The measure of a verdict where none is named and this one was measured; otherwise it is the first."""
MIN_QUERIES = 10
MANY_QUERIES = 100_000
Z_INTERVAL, Z_POWER = 1.959964, 0.841621
"""Quantiles of the normal distribution at 0.975 and at 0.8."""
MISSED = 0.05
"""How likely it may be that a kind of loss is in none of the queries."""
SAME_RESULTS = 1 - 1e-9
"""An overlap of results above this is that of rankings which are alike for every query."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a config loses against the baseline by a measure, over the queries of one type where `scope` names it."""

    kind: Kind
    sentence: str
    measure: Measure
    scope: str | None
    difference: float
    """Value minus baseline, mean over queries, as in the tables; `low` to `high` is its 95 % interval."""
    low: float
    high: float
    tolerance: float
    queries: int
    queries_needed: int | None
    """About how many queries would tell; None unless the verdict is "cannot tell" and a number can be given."""
    config: str
    baseline: str
    counts: tuple[int, int, int] = (0, 0, 0)
    """How many queries are better, worse and the same."""
    unmeasured: bool = False
    """Does the evidence lack something that a config needs?"""

    @property
    def brief(self) -> str:
        """ "50 better, 12 worse, 59 the same by nDCG@10, +0.048 [+0.022, +0.073] (pass)"; without an interval where there are too few
        queries for one."""
        better = (self.low, self.high) if self.measure.direction > 0 else (-self.high, -self.low)
        digits = _digits(better, self.tolerance)
        ends = f" [{self.low:+.{digits}f}, {self.high:+.{digits}f}]" if self.queries >= MIN_QUERIES else ""
        larger = (
            _rare_loss(self.queries)
            if self.queries >= MIN_QUERIES and better[0] >= -self.tolerance - VALUE_TOLERANCE
            else f"a {'rise' if self.measure.lower_is_better else 'loss'} of more than {self.tolerance:g} is not excluded"
        )
        kind = "not measured" if self.unmeasured else larger if self.kind == CANNOT_TELL else self.kind
        return f"{count_words(*self.counts)} by {self.measure}, {self.difference:+.{digits}f}{ends} ({kind})"

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain values."""
        return {
            "config": self.config,
            "baseline": self.baseline,
            "verdict": self.kind,
            "sentence": self.sentence,
            "measure": str(self.measure),
            "type": self.scope,
            "difference": number(self.difference),
            "interval": [number(self.low), number(self.high)],
            "tolerance": self.tolerance,
            "queries": self.queries,
            **dict(zip(("better", "worse", "same"), self.counts, strict=True)),
            "queries_needed": self.queries_needed,
        }


@dataclass(frozen=True, slots=True)
class _Paired:
    """What a verdict is reached from: a mean difference with its interval, and how many queries are better, worse and the same."""

    measure: Measure
    difference: float
    low: float
    high: float
    counts: tuple[int, int, int]
    same_results: bool
    scope: str | None = None

    @property
    def queries(self) -> int:
        return sum(self.counts)

    @property
    def unchanged(self) -> bool:
        return self.same_results and not any(self.counts[:2])

    @property
    def better(self) -> tuple[float, float, float]:
        """The difference and its interval, positive where better."""
        if self.measure.direction > 0:
            return self.difference, self.low, self.high
        return -self.difference, -self.high, -self.low


def verdict_of(
    comparison: Comparison,
    place: int,
    measure: Measure | None = None,
    query_type: str | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
) -> Verdict:
    """The verdict on a compared config.

    Args:
        comparison: of the configs with the baseline.
        place: which of the compared configs, from 0.
        measure: None is nDCG@10, or else the first that was measured.
        query_type: only the queries of this type count.
        tolerance: the tolerated loss, in units of the measure.

    Raises:
        InputError: the measure was not measured, no query of that type can be measured, a measure of all queries together is asked of one
            type, or the tolerance is not a number of at least 0.
    """
    base, other = comparison.evaluations[0], comparison.compared[place]
    lacking = missing_score_lines(one.lacking for one in (base, comparison.evaluations[1 + place]))
    if query_type is None:
        return verdict_on(base.config.name, other, measure, tolerance, lacking)
    found = _difference(other, measure)
    rows, differences = differences_of_type(comparison, place, found.measure, query_type)
    results = base.results, comparison.evaluations[1 + place].results
    same = other.overlap >= SAME_RESULTS
    if all(results):  # a stream keeps none
        same = all(results[0][q] == results[1][q] for q in rows)
    names = other.name, base.config.name
    return verdict_of_values(names, found.measure, differences, query_type, tolerance, same, lacking)


def verdict_on(
    baseline: str,
    compared: ConfigComparison,
    measure: Measure | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    lacking: Sequence[str] = (),
) -> Verdict:
    """The verdict on a compared config over all queries, also of a saved comparison; `baseline` is the name of the
    other config, `lacking` says what the evidence lacks for one of them. Raises InputError as `verdict_of` does."""
    found = _difference(compared, measure)
    counts = len(found.wins), len(found.losses), found.ties
    same = compared.overlap >= SAME_RESULTS
    paired = _Paired(found.measure, found.difference, found.low, found.high, counts, same)
    return _verdict((compared.name, baseline), paired, tolerance, lacking)


def verdict_of_values(
    names: tuple[str, str],
    measure: Measure,
    differences: Floats,
    query_type: str | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    same_results: bool = False,
    lacking: Sequence[str] = (),
) -> Verdict:
    """The verdict on (Q) paired differences, value minus baseline, NaN where there is none; `names`: config and baseline."""
    known = differences[~np.isnan(differences)]
    low, high = paired_interval(known[:, None])[:, 0].tolist()
    mean = float(known.mean()) if len(known) else math.nan
    better, worse = (int((sign * measure.direction * known > VALUE_TOLERANCE).sum()) for sign in (1, -1))
    counts = better, worse, len(known) - better - worse
    found = _Paired(measure, mean, low, high, counts, same_results, query_type)
    return _verdict(names, found, tolerance, lacking)


def verdicts_of(
    comparison: Comparison,
    asked: Sequence[tuple[Measure | None, str | None]] = (),
    tolerance: float = DEFAULT_TOLERANCE,
) -> list[Verdict]:
    """The verdicts on every compared config by each measure, over a type where one is named; nDCG@10 or the first where
    none is asked. Raises InputError as `verdict_of` does."""
    return [
        verdict_of(comparison, place, measure, query_type, tolerance)
        for place in range(len(comparison.compared))
        for measure, query_type in dict.fromkeys(asked or [(None, None)])
    ]


def verdicts_on_evaluations(evaluations: Sequence[Evaluation], overlaps: Sequence[float] = ()) -> list[Verdict]:
    """The verdicts on the evaluations against the first of them, by one measure; `overlaps` as `compare` takes them."""
    if len(evaluations) < 2:
        return []
    measure = verdict_measure(evaluations[0].measures)
    m = evaluations[0].measures.index(measure)
    alone = [
        replace(one, measures=(measure,), values=one.values[:, [m]], summaries=(one.summaries[m],))
        for one in evaluations
    ]
    return verdicts_of(compare(alone, overlaps=overlaps))


def verdict_measure(measures: Sequence[Measure]) -> Measure:
    """The measure of a verdict where none is named: nDCG@10, or else the first."""
    return next((measure for measure in measures if str(measure) == DEFAULT_MEASURE), measures[0])


def _difference(compared: ConfigComparison, measure: Measure | None) -> MeasureDifference:
    measures = [one.measure for one in compared.differences]
    wanted = verdict_measure(measures) if measure is None else measure
    if wanted not in measures:
        raise InputError(f"measure {wanted}: it was not measured; there are {', '.join(map(str, measures))}")
    return compared.differences[measures.index(wanted)]


def _verdict(names: tuple[str, str], found: _Paired, tolerance: float, lacking: Sequence[str] = ()) -> Verdict:
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise InputError(
            f"tolerance {tolerance:g}: expected a number of at least 0, in units of the measure, such as 0.01"
        )
    kind, why = _kind(found, tolerance)
    needed, further = _needed(found, tolerance) if kind == CANNOT_TELL else (None, "")
    name, baseline = (" ".join(one.split()) for one in names)
    shown = _shown(found, (name, baseline), tolerance)
    sentence = f"{shown}. {why}{further}."
    if lacking:
        kind, needed, sentence = CANNOT_TELL, None, f"Not measured: {'; '.join(lacking)}. Without that: {shown}."
    ends = found.difference, found.low, found.high
    of = tolerance, found.queries, needed
    return Verdict(kind, sentence, found.measure, found.scope, *ends, *of, *names, found.counts, bool(lacking))


def _kind(found: _Paired, tolerance: float) -> tuple[Kind, str]:
    """The verdict, and what it rests on or what so few queries cannot exclude."""
    loss = f"a {'rise' if found.measure.lower_is_better else 'loss'} of more than {tolerance:g}"
    if found.unchanged and found.queries:
        return PASS, "Pass: no result changed"
    difference, low, high = found.better
    better, worse = (2 * count > found.queries > 1 for count in found.counts[:2])
    few_queries = found.queries < MIN_QUERIES
    looks = ""
    if high < 0 or (few_queries and worse and difference < 0):
        looks = "It looks worse. "
    elif low > 0 or (few_queries and better and difference > 0):
        looks = "It looks better. "
    few = f"{looks}{counted(found.queries, 'queries')} cannot exclude {loss}"
    if few_queries or math.isnan(found.low):
        return CANNOT_TELL, few + (f"; at least {MIN_QUERIES} are needed" if few_queries else "")
    if low >= -tolerance - VALUE_TOLERANCE:
        if found.queries < _least(low, tolerance):
            return CANNOT_TELL, f"{looks}{_rare_loss(found.queries)}"
        return PASS, f"Pass: {'it is better' if low > 0 else f'{loss} is excluded'}"
    if high < -tolerance - VALUE_TOLERANCE:
        return FAIL, f"Fail: {loss} is shown"
    if difference < -tolerance:
        return CANNOT_TELL, f"{looks}{counted(found.queries, 'queries')} cannot tell {loss} from a smaller one"
    return CANNOT_TELL, few


def _rare_loss(queries: int) -> str:
    """What queries that show no loss leave open."""
    return f"{counted(queries, 'queries')} cannot exclude that {1 - MISSED ** (1 / queries):.0%} of all queries lose everything"


def unseen(share: float) -> float:
    """Queries after which one of a share of all queries was seen with 95 % certainty; infinite for a share of 0."""
    if share <= 0:
        return math.inf
    return 1 if share >= 1 else math.ceil(math.log(MISSED) / math.log1p(-share))


def _least(low: float, tolerance: float) -> float:
    """Queries from which on a pass stands: what none of them shows cannot turn `low` into a loss of more than twice the tolerance."""
    return unseen((low + 2 * tolerance) / (1 + low)) if low > -1 else 1


def queries_to_exclude(differences: Floats, loss: float) -> int | None:
    """About how many queries exclude a loss, if there is none, where (n) known differences spread like these; None for fewer than
    `MIN_QUERIES`, whose spread is unknown."""
    if len(differences) < MIN_QUERIES:
        return None
    spread = ((Z_INTERVAL + Z_POWER) * float(differences.std(ddof=1)) / loss) ** 2
    return math.ceil(max(spread, _least(-loss, loss)))


def _needed(found: _Paired, tolerance: float) -> tuple[int | None, str]:
    """About how many queries would tell, and the words for it; None where their spread is unknown."""
    if found.queries < MIN_QUERIES or math.isnan(found.low):
        return None, ""
    difference, low, _ = found.better
    deviation = math.sqrt(found.queries) * standard_error(found.low, found.high, found.queries)
    passes = low >= -tolerance - VALUE_TOLERANCE
    # A pass is reached with a lower end of -δ or more; an end that is there already stays.
    least = _least(low if passes else -tolerance, tolerance)
    for margin, least_queries, truth in (
        (0.0 if passes else tolerance, least, ""),
        (abs(difference + tolerance), MIN_QUERIES, " a loss as large as this one"),
    ):
        spread = ((Z_INTERVAL + Z_POWER) * deviation / margin) ** 2 if margin > 0 else 0.0 if passes else math.inf
        needed = max(spread, least_queries)
        if found.queries < needed < math.inf:
            needed = math.ceil(needed)
            many = f"about {_rounded(needed, found.queries)} queries would tell{truth}"
            if needed > MANY_QUERIES:  # nobody judges as many, and at the tolerance itself the number has no end
                many = f"more than {MANY_QUERIES:,} queries would be needed"
            return needed, f"; {many}"
    return None, ""


def _rounded(count: int, above: int) -> str:
    step = 10 ** max(0, len(str(count)) - 2)
    nearest = (count + step // 2) // step * step
    return f"{nearest if nearest > above else -(-count // step) * step:,}"


def count_words(better: int, worse: int, same: int) -> str:
    """ "5 better, 0 worse, 9 the same": what a verdict begins with."""
    return f"{better:,} better, {worse:,} worse, {same:,} the same"


def _shown(found: _Paired, names: tuple[str, str], tolerance: float) -> str:
    """The counts, who is compared by which measure, and the difference with its interval."""
    if not found.queries:
        return f"{names[0]} against {names[1]} by {found.measure}: no query has a value under both"
    digits = _digits(found.better[1:], tolerance)
    ends = ""
    if found.queries >= MIN_QUERIES and not math.isnan(found.low):
        bootstrapped = "bootstrap " if MEASURES[found.measure.family].resampled is not None else ""
        ends = f" [{found.low:+.{digits}f}, {found.high:+.{digits}f}], 95 % {bootstrapped}interval"
    of = f"{found.queries:,} {f'{found.scope} ' if found.scope else ''}{'query' if found.queries == 1 else 'queries'}"
    head = f"{count_words(*found.counts)} of {of} by {found.measure}, {names[0]} against {names[1]}"
    return f"{head}: {found.difference:+.{digits}f}{ends}"


def _digits(better: Sequence[float], tolerance: float) -> int:
    """Three, or as many as show on which side of the tolerated loss the ends of the interval are, positive where better."""
    limit = -tolerance - VALUE_TOLERANCE
    for digits in range(3, 7):
        if all((round(end, digits) >= limit) == (end >= limit) for end in better if not math.isnan(end)):
            return digits
    return 6
