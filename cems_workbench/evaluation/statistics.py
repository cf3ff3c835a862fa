"""How sure a mean over queries is: confidence intervals, and bounds for what nobody judged.

The mean of a difference between two configs, paired by query, has Student's interval, d ± t(n - 1) · s / √n: on 30 to 2,000 queries of
which most do not change it covers what it should, where the percentile bootstrap covers too little (benchmarks/bench_verdicts.py). The
mean of a measure, which is often near an end of its range, has a bootstrap interval. The bootstrap draws as many queries as there are, with
replacement, `RESAMPLES` times with a fixed seed, and takes the percentiles of the means (Efron & Tibshirani 1993; Sakai, Evaluating
evaluation metrics based on the bootstrap, 2006).

Point values count an unjudged result as not relevant, as trec_eval does. The bounds let each unjudged result within the measure's
cut-off be either not relevant or of the highest grade that the judgments have. For a number m of them relevant, a measure is
highest with the first m and lowest with the last m, so trying every m gives the exact worst and best case. The lowest lies below the
point value only for measures that ask for all relevant (recall, AP, nDCG): what turns out relevant further down is then missed.

A measure of all queries together (AUROC, AUPRC, AURC) is recomputed on each draw; the test of its difference between two configs is
the share of draws on the other side of 0.

Is the difference between two configs more than chance? A paired randomisation test over queries, corrected for many tests.

    p = share of sign patterns s in {-1, +1}^Q with |mean(s * d)| >= |mean(d)|,    d the differences per query

Two-sided. With at most `EXACT_QUERIES` differing queries all patterns are enumerated; otherwise `DRAWS` patterns are drawn with a seed,
and the observed one is counted among them, so that p is never 0. Holm's step-down correction keeps the chance of one false finding in a
whole table at the level of one test. The effect size is Cohen's d of paired values: mean(d) / sd(d).

Source: Fisher 1935; Smucker, Allan & Carterette, A comparison of statistical significance tests for IR evaluation, 2007; Holm 1979.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from cems_workbench.evaluation.metrics import MEASURES, NO_GRADE, GradedRankings, Measure
from cems_workbench.pipeline.table import Bools, Floats, Ints

RESAMPLES = 1000
LEVEL = 0.95
MAX_DRAWS_IN_MEMORY = 20_000_000
"""Numbers that are drawn at once and kept for the next config; of more, a `BATCH_SIZE` at a time is drawn and summed."""
BATCH_SIZE = 5_000_000


def means(values: Floats) -> Floats:
    """(M) mean of each column of (Q, M) values over the queries where it is defined; NaN where it nowhere is."""
    defined = ~np.isnan(values)
    count = defined.sum(axis=0)
    total = np.where(defined, values, 0.0).sum(axis=0)
    found: Floats = np.divide(total, count, out=np.full(values.shape[1], np.nan), where=count > 0)
    return found


def bootstrap(values: Floats, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
    """(2, M) lower and upper end of the confidence interval of each column's mean; NaN where there is no mean."""
    defined = ~np.isnan(values)
    if not len(values):
        return np.full((2, values.shape[1]), np.nan)
    gaps = np.flatnonzero(
        ~defined.all(axis=0)
    )  # of the other columns there is nothing to copy, and every draw is counted
    known, counted = np.where(defined, values, 0.0) if gaps.size else values, defined[:, gaps].astype(float)
    sampled = np.full((resamples, values.shape[1]), np.nan)
    done = 0
    for drawn in _draws(len(values), resamples, seed):
        total, count = drawn @ known, np.full((len(drawn), values.shape[1]), float(len(values)))
        count[:, gaps] = drawn @ counted
        np.divide(total, count, out=sampled[done : done + len(drawn)], where=count > 0)
        done += len(drawn)
    out = np.full((2, values.shape[1]), np.nan)
    for m in np.flatnonzero(defined.any(axis=0)):
        # A resample that drew no defined query has no mean.
        out[:, m] = np.nanpercentile(sampled[:, m], [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return out


def paired_interval(differences: Floats) -> Floats:
    """(2, M) ends of Student's confidence interval of the mean of each column of (Q, M) paired differences; NaN with
    fewer than two. Queries whose difference is NaN are left out of that column. Source: Student, The probable error of
    a mean, 1908."""
    from scipy.special import stdtrit  # loaded where an interval is asked for: scipy is slow to import

    defined = ~np.isnan(differences)
    count = defined.sum(axis=0)
    average = means(differences)
    squares = (np.where(defined, differences - average, 0.0) ** 2).sum(axis=0)
    out = np.full((2, differences.shape[1]), np.nan)
    some = count > 1
    error = np.sqrt(squares[some] / (count[some] - 1) / count[some])
    half = stdtrit(count[some] - 1, (1 + LEVEL) / 2) * error
    out[:, some] = average[some] - half, average[some] + half
    return out


def standard_error(low: float, high: float, queries: int) -> float:
    """The standard error of a mean whose interval `paired_interval` gave, of at least two queries."""
    from scipy.special import stdtrit

    return (high - low) / 2 / float(stdtrit(queries - 1, (1 + LEVEL) / 2))


def resample(measure: Measure, rankings: GradedRankings, seed: int = 0, resamples: int = RESAMPLES) -> Floats | None:
    """(resamples) a measure of all queries together on queries drawn as `bootstrap` draws them; None for a mean over queries."""
    if MEASURES[measure.family].resampled is None:
        return None
    if not len(rankings.filled):
        return measure.resampled(rankings, np.zeros((resamples, 0)))
    parts = [measure.resampled(rankings, drawn) for drawn in _draws(len(rankings.filled), resamples, seed)]
    return np.concatenate([part for part in parts if part is not None])


def interval(sampled: Floats) -> tuple[float, float]:
    """The percentile interval of resampled values, NaN left out; NaN where fewer than half of them are defined."""
    defined = sampled[~np.isnan(sampled)]
    # An interval of the few defined resamples would look narrower than it is.
    if 2 * len(defined) < len(sampled) or not len(defined):
        return float("nan"), float("nan")
    low, high = np.percentile(defined, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


def bootstrap_test(differences: Floats) -> float:
    """Two-sided p that a resampled difference is 0: twice the smaller share on either side of it, each counted with one more; 1 where
    nothing differs or is defined. Source: Efron & Tibshirani 1993, chapter 15."""
    d = differences[~np.isnan(differences)]
    if not len(d) or not (np.abs(d) > MEAN_TOLERANCE).any():
        return 1.0
    # Zeros count on both sides, which only makes p larger.
    least = min(int((d <= MEAN_TOLERANCE).sum()), int((d >= -MEAN_TOLERANCE).sum()))
    # The added one keeps p above 0: a finite number of resamples proves no zero.
    return min(1.0, 2 * (least + 1) / (len(d) + 1))


def _draws(queries: int, resamples: int, seed: int) -> Iterable[Floats]:
    """(resamples, queries) how often each query was drawn: as a whole and kept, or where that is much, in parts that are the same rows."""
    if resamples * queries <= MAX_DRAWS_IN_MEMORY:
        return _all_draws(queries, resamples, seed)
    return _drawn_rows(queries, resamples, seed, max(1, BATCH_SIZE // queries))


@lru_cache(maxsize=4)
def _all_draws(queries: int, resamples: int, seed: int) -> tuple[Floats, ...]:
    return tuple(_drawn_rows(queries, resamples, seed, resamples))


def _drawn_rows(queries: int, resamples: int, seed: int, rows: int) -> Iterator[Floats]:
    """So many rows at a time. Numbers below 2^32 are drawn one after the other, so that it makes no difference how many at once."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        chosen = rng.integers(0, queries, size=(count, queries))
        # Each row gets its own range of numbers, so one bincount counts all rows.
        chosen += np.arange(count)[:, None] * queries
        counted = np.bincount(chosen.ravel(), minlength=count * queries)
        yield counted.reshape(count, queries).astype(float)


def bounds(rankings: GradedRankings, measures: Sequence[Measure]) -> Floats:
    """(2, M) mean of each measure over the queries in the worst and in the best case of what is not judged."""
    low, high = bounding_values(rankings, measures, int(rankings.ideal.max(initial=1)))
    return np.stack([means(low), means(high)])


def bounding_values(rankings: GradedRankings, measures: Sequence[Measure], highest: int) -> tuple[Floats, Floats]:
    """(Q, M) each measure of each query in the worst and in the best case, where no judgment of the set is above `highest`."""
    low = np.stack([measure.values(rankings) for measure in measures], axis=1)
    high = low.copy()
    graded = [m for m, measure in enumerate(measures) if MEASURES[measure.family].reads_judgments]
    for k in {measures[m].k for m in graded}:
        alike = [m for m in graded if measures[m].k == k]
        for grade in {max(highest, measures[m].grade) for m in alike}:
            same = [m for m in alike if max(highest, measures[m].grade) == grade]
            _widen(low, high, rankings, measures, same, k, grade)
    return low, high


def _widen(
    low: Floats,
    high: Floats,
    rankings: GradedRankings,
    measures: Sequence[Measure],
    columns: Sequence[int],
    k: int | None,
    grade: int,
) -> None:
    """Take the values of every number of unjudged results turned relevant into `low` and `high` (Q, M), columns of one cut-off."""
    unjudged = rankings.filled & ~rankings.judged
    if k is not None:
        unjudged[:, k:] = False
    concerned = np.flatnonzero(unjudged.any(axis=1))
    if not len(concerned):
        return
    part = rankings.of_queries(concerned)
    loose = unjudged[concerned]
    place, count = np.cumsum(loose, axis=1), loose.sum(axis=1, keepdims=True)
    for turned in range(1, int(count.max()) + 1):
        # The extremes are the first and the last unjudged places.
        for chosen in (loose & (place <= turned), loose & (place > count - turned)):
            turned_relevant = _with(part, chosen, np.minimum(count, turned), grade)
            for m in columns:
                value = measures[m].values(turned_relevant)
                value[np.isnan(low[concerned, m])] = np.nan  # nothing was relevant: the query is in no mean
                low[concerned, m] = np.minimum(low[concerned, m], value)
                high[concerned, m] = np.maximum(high[concerned, m], value)


def _with(rankings: GradedRankings, chosen: Bools, count: Ints, grade: int) -> GradedRankings:
    """The rankings with the chosen results judged, `count` (Q, 1) of each query, all of them `grade`; no grade is higher."""
    given = (
        rankings.ideal if rankings.ideal.shape[1] else np.full((len(rankings.ideal), 1), NO_GRADE)
    )  # nobody gave a grade
    at = np.arange(given.shape[1] + int(count.max()))[None, :] - count
    known = np.take_along_axis(given, at.clip(0, given.shape[1] - 1), axis=1)
    ideal = np.where(at < 0, grade, np.where(at < given.shape[1], known, NO_GRADE))
    grades, judged = np.where(chosen, grade, rankings.grade), rankings.judged | chosen
    return GradedRankings(grades, judged, rankings.filled, ideal, tokens=rankings.tokens)


DRAWS = 10_000
EXACT_QUERIES = 13
PERMUTATION_BLOCK = 500
MEAN_TOLERANCE = 1e-12


def randomisation_test(differences: Floats, seed: int = 0, draws: int = DRAWS) -> Floats:
    """(M) two-sided p of each column of (Q, M) differences; queries whose difference is NaN are left out of that column."""
    d = np.where(np.isnan(differences), 0.0, differences)
    observed = np.abs(d.sum(axis=0))
    p = np.ones(d.shape[1])
    # Queries without a difference have no sign to flip; dropping them keeps more tests exact.
    moved = np.abs(d) > MEAN_TOLERANCE
    few = moved.sum(axis=0) <= EXACT_QUERIES
    for m in np.flatnonzero(few & moved.any(axis=0)):
        p[m] = _exact(d[moved[:, m], m])
    many = np.flatnonzero(~few)
    if len(many):
        rows = moved[:, many].any(axis=1)
        p[many] = _drawn(d[np.ix_(rows, many)], observed[many], seed, draws)
    return p


def _exact(d: Floats) -> float:
    patterns = (np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1
    sums = np.abs((2 * patterns - 1) @ d)
    # The observed pattern is among them, and rounding must not exclude it.
    return float((sums >= abs(d.sum()) - MEAN_TOLERANCE).mean())


def _drawn(d: Floats, observed: Floats, seed: int, draws: int) -> Floats:
    rng = np.random.default_rng(seed)
    # Summation order differs between draws; without the tolerance equal sums would miss.
    total, least = d.sum(axis=0), observed - MEAN_TOLERANCE
    # The observed assignment is one of the draws, so p is never 0.
    reached = np.ones(d.shape[1])
    rows = min(
        PERMUTATION_BLOCK, max(4, BATCH_SIZE // len(d) // 4 * 4)
    )  # bytes are drawn four at a time: by fours none is lost between
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        bits = np.unpackbits(rng.integers(0, 256, size=(count, -(-len(d) // 8)), dtype=np.uint8), axis=1)[:, : len(d)]
        sums = 2 * (bits.astype(np.float64) @ d) - total  # sum of +d where the bit is set, -d elsewhere
        reached += (np.abs(sums) >= least).sum(axis=0)
    found: Floats = reached / (draws + 1)
    return found


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p of each test, in the order given."""
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    worst = 0.0
    for place, i in enumerate(order):
        # Adjusted p must not fall as p rises.
        worst = max(worst, min(1.0, (len(p) - place) * p[int(i)]))
        adjusted[i] = worst
    return [float(value) for value in adjusted]


def effect_size(differences: Floats) -> float:
    """Cohen's d of paired differences (Q), NaN left out; 0 where nothing differs, inf where all differ alike."""
    d = differences[~np.isnan(differences)]
    if len(d) < 2 or not d.any():
        return 0.0
    spread = float(d.std(ddof=1))
    return float(d.mean()) / spread if spread > MEAN_TOLERANCE else float(np.copysign(np.inf, d.mean()))
