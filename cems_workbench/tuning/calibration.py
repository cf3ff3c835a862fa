"""Calibration: from a raw score to the probability of an answer, fitted on judged queries, and back to the threshold of a probability.

    logistic   P(answer | s) = 1 / (1 + exp(-(a z + b))), z the standardised score, L2 penalty 1 (Platt 1999)
    isotonic   isotonic regression (Zadrozny & Elkan 2002), clipped past both ends

Every figure is cross-validated: each fold of groups gets its probabilities from a fit on the other folds.

    Brier score   mean of (p - y)^2; ECE  mean over 10 bins of equal width, weighted by queries, of |share with an answer - mean p|

The threshold of a probability is the lowest raw score whose probability reaches it; there is none if higher scores are not more probable,
or if no score is probable enough. Refused and wrongly refused are counted with the threshold of the other folds.

Source: Guo et al., On calibration of modern neural networks, 2017 (ECE); Brown, Cai & DasGupta 2001 (Wilson's interval of a share).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import SignalTable
from cems_workbench.evaluation.labelling.judge_calibration import wilson
from cems_workbench.pipeline.table import Bools, Floats
from cems_workbench.results import Table
from cems_workbench.tuning.holdout import split

Method = Literal["logistic", "isotonic"]
METHODS: tuple[Method, ...] = get_args(Method)
BINS = 10
MIN_QUERIES = 5
"""Minimum number of queries with an answer, and of queries without."""


class Curve(Protocol):
    """A fitted calibration."""

    def probability(self, scores: Floats) -> Floats:
        """(n) the probability of an answer at raw scores."""

    def threshold(self, probability: float) -> float | None:
        """The lowest raw score whose probability reaches this; None if no score does, -inf if every score does."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """a z + b with z = (score - mean) / deviation."""

    mean: float
    deviation: float
    slope: float
    offset: float

    def probability(self, scores: Floats) -> Floats:
        """(n) the probability of an answer at raw scores."""
        log_odds = self.slope * (scores - self.mean) / self.deviation + self.offset
        found: Floats = np.exp(-np.logaddexp(0.0, -log_odds))
        return found

    def threshold(self, probability: float) -> float | None:
        """As `Curve` says."""
        if self.slope <= 0:
            return None
        log_odds = math.log(probability / (1 - probability))
        return self.mean + self.deviation * (log_odds - self.offset) / self.slope


@dataclass(frozen=True, slots=True, eq=False)
class Isotonic:
    """Probabilities at ascending scores, interpolated linearly, constant past both ends."""

    scores: Floats
    probabilities: Floats

    def probability(self, scores: Floats) -> Floats:
        """(n) the probability of an answer at raw scores."""
        found: Floats = np.interp(scores, self.scores, self.probabilities)
        return found

    def threshold(self, probability: float) -> float | None:
        """As `Curve` says."""
        if probability > self.probabilities[-1] or self.probabilities[0] == self.probabilities[-1]:
            return None
        at = int(np.searchsorted(self.probabilities, probability, side="left"))
        if at == 0:
            return -math.inf
        low, high = self.probabilities[at - 1], self.probabilities[at]
        share = (probability - low) / (high - low)
        return float(self.scores[at - 1] + share * (self.scores[at] - self.scores[at - 1]))


def fitted(method: Method, scores: Floats, answers: Bools) -> Curve:
    """The curve of raw scores (n) and whether there was an answer."""
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        line = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=True, out_of_bounds="clip").fit(scores, answers)
        return Isotonic(line.X_thresholds_, line.y_thresholds_)
    from sklearn.linear_model import LogisticRegression

    mean, deviation = float(scores.mean()), float(scores.std()) or 1.0
    model = LogisticRegression(C=1.0).fit(((scores - mean) / deviation)[:, None], answers)
    return Logistic(mean, deviation, float(model.coef_[0, 0]), float(model.intercept_[0]))


@dataclass(frozen=True, slots=True)
class Bin:
    """The queries with a probability in low..high: their number, mean probability, share with an answer and its 95 % interval."""

    low: float
    high: float
    queries: int
    predicted: float
    observed: float
    interval: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Calibration:
    """The cross-validated calibration of one signal, and the threshold of the requested probability. `refused` is the
    share of queries without an answer below the threshold, `wrongly` the share of queries with one; None if some fold
    has no threshold. `missing` counts the queries without a value of the signal."""

    signal: str
    method: Method
    answerable: int
    unanswerable: int
    missing: int
    folds: int
    auroc: float
    brier: float
    base_brier: float
    """Brier score of the base rate: the share of answerable queries as the probability of each."""
    ece: float
    bins: tuple[Bin, ...]
    probability: float
    threshold: float | None
    refused: float | None
    wrongly: float | None
    curve: Curve

    @property
    def setting(self) -> str | None:
        """The threshold as a config assignment; None if there is none."""
        if self.threshold is None or not math.isfinite(self.threshold):
            return None
        return f"abstain.{self.signal}={self.threshold:.6g}"

    @property
    def without(self) -> str:
        """Why there is no setting."""
        if self.threshold is not None:
            return f"every score has a probability of at least {self.probability:g}; leave it off"
        p = f"{self.probability:g}"
        return f"no threshold: no score reaches a probability of {p}, or higher ones make an answer no likelier"

    @property
    def table(self) -> Table:
        """The reliability: a row for each bin of probability."""
        rows = (
            (f"{one.low:g} to {one.high:g}", one.queries, one.predicted, one.observed, *one.interval)
            for one in self.bins
        )
        columns = ("probability", "queries", "mean", "with an answer", "low", "high")
        return Table(columns, tuple(rows), f"reliability of {self.signal}")

    def to_json(self) -> dict[str, Any]:
        """Everything except the curve, as plain values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("curve", "bins")}
        if self.threshold is not None and not math.isfinite(self.threshold):
            values["threshold"] = None
        return values | {"setting": self.setting, "bins": [asdict(one) for one in self.bins]}


CALIBRATION_COLUMNS = (
    "answer, none: judged queries with an answer and without; Brier and ECE on the folds left out, the base is the share of answerable "
    "queries as everybody's probability; refused, wrongly: the shares of queries without an answer and with one that the threshold "
    "of the other folds refuses"
)


def calibration_table(found: Sequence[Calibration], group_by: str) -> Table:
    """A row for each signal, whose columns `CALIBRATION_COLUMNS` explains."""
    first = found[0]
    shown = {
        "signal": "signal",
        "answer": "answerable",
        "none": "unanswerable",
        "no value": "missing",
        "AUROC": "auroc",
        "Brier": "brier",
        "Brier of base": "base_brier",
        "ECE": "ece",
    } | {name: name for name in ("refused", "wrongly")}
    rows = tuple(tuple(getattr(one, name) for name in shown.values()) for one in found)
    title = f"{first.method}, {first.folds} folds by {group_by}, answering from a probability of {first.probability:g}"
    return Table(tuple(shown), rows, title)


FOLDS = 5


def calibrate(
    table: SignalTable, groups: Sequence[str], signal: str, method: Method = "logistic", probability: float = 0.5
) -> Calibration:
    """Calibrate one signal of Q queries, cross-validated by their groups (Q); 0 < probability < 1. Raises InputError
    for too few queries."""
    judged, values = table.answerable | table.unanswerable, table.values[signal]
    rows = np.flatnonzero(judged & ~np.isnan(values))
    scores, answers = values[rows], table.answerable[rows]
    count, without = int(answers.sum()), int((~answers).sum())
    if min(count, without) < MIN_QUERIES:
        raise InputError(
            f"abstain.{signal} has a value for {count} judged queries with an answer and {without} without; it takes {MIN_QUERIES} of each"
        )
    parts = split([groups[row] for row in rows.tolist()], FOLDS, holdout=0.0)
    predicted, below, known = np.empty(len(rows)), np.zeros(len(rows), dtype=bool), True
    for fold, test in enumerate(parts.folds):
        training = parts.training(fold)
        if len(np.unique(answers[training])) < 2:
            raise InputError("a fold leaves only queries with an answer, or only queries without; use a finer grouping")
        curve = fitted(method, scores[training], answers[training])
        predicted[test] = curve.probability(scores[test])
        limit = curve.threshold(probability)
        known &= limit is not None
        below[test] = limit is not None and scores[test] < limit
    from sklearn.metrics import roc_auc_score

    whole = fitted(method, scores, answers)
    bins = reliability(predicted, answers)
    return Calibration(
        signal=signal,
        method=method,
        answerable=count,
        unanswerable=without,
        missing=int(judged.sum()) - len(rows),
        folds=len(parts.folds),
        auroc=float(roc_auc_score(answers, scores)),
        brier=float(((predicted - answers) ** 2).mean()),
        base_brier=float(answers.mean() * (1 - answers.mean())),
        ece=sum(one.queries * abs(one.observed - one.predicted) for one in bins) / len(rows),
        bins=bins,
        probability=probability,
        threshold=whole.threshold(probability),
        refused=float(below[~answers].mean()) if known else None,
        wrongly=float(below[answers].mean()) if known else None,
        curve=whole,
    )


def reliability(predicted: Floats, answers: Bools, bins: int = BINS) -> tuple[Bin, ...]:
    """The reliability diagram: non-empty bins of equal width. A probability on a border is in the bin above it, 1 in the last."""
    place = np.minimum((predicted * bins).astype(int), bins - 1)
    found = []
    for i in range(bins):
        inside = place == i
        queries = int(inside.sum())
        if queries:
            right = int(answers[inside].sum())
            interval, ends = wilson(right, queries), (i / bins, (i + 1) / bins)
            found.append(Bin(*ends, queries, float(predicted[inside].mean()), right / queries, interval))
    return tuple(found)
