"""People against a model judge: where its scores should mean relevant, how far its probabilities hold, and where the two differ most.

A person's grade counts as relevant from `relevant_from` on, a model's score above a threshold t. Cohen's kappa of the two is computed
for every t that tells two scores apart, from cumulative counts, and the best t is the one of highest kappa; of a stretch of equal ones
its middle. Intervals are percentiles over queries resampled with replacement: each draw has its own best threshold, and the
kappa of every fixed threshold. The interval of the threshold says how far it can move without the labels saying otherwise.

Reliability: pairs in bins of equal count by the judge's probability, against the share that people call relevant, with Wilson's
interval; the calibration error is sum over bins of (pairs in it / pairs) * |mean probability - share|.

Sources: Cohen 1960; DeGroot and Fienberg 1983; Wilson 1927; Naeini et al., "Obtaining Well Calibrated Probabilities" (2015).

One run, scored by three judges side by side, shows which of them misleads: ACE reported 100 % while a cosine above 0.45 counted as
relevant, and 80 % when a cross-encoder judged the same results. The results of a config are labelled by

    cosine   similarity to the query >= 0.45, from the evidence's vector list of the original query
    model    the judge's score above its threshold, where the evidence has one of the result
    people   a human judgment of at least the grade that counts as relevant

and hit@1, hit@5 and P@3 are computed from each, over the queries that have a memory which people call relevant. What a judge has not
labelled counts as not relevant, and the share it labelled is shown. Agreement is Cohen's kappa over the results that both labelled. A
model that also ranked agrees with the ranking by construction, which is marked.

Source: ACE retrieval precision document, "Problem Statement"; Cohen 1960; docs/internals/specification.md, "judge".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, compress, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import Evaluation, number
from cems_workbench.evaluation.grades import Grades
from cems_workbench.evaluation.labelling import agreement
from cems_workbench.evaluation.labelling.pooling import Pair, band, grade_of
from cems_workbench.evaluation.metrics import GradedRankings, parse_measure
from cems_workbench.evaluation.statistics import means
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.stages import JUDGE, RERANK
from cems_workbench.pipeline.stages.judge import BANDS, scale_of
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.records import JudgeScale
from cems_workbench.results import Table

Floats = NDArray[np.float64]
MAX_THRESHOLDS = 400
"""Thresholds that are tried; of more scores, evenly many between each two."""
BINS = 10


@dataclass(frozen=True, slots=True)
class GradedScore:
    """A pair with the grade people agreed on and the judge's raw score."""

    qid: str
    memory_id: str
    grade: int
    raw: float

    @property
    def pair(self) -> Pair:
        """Query and memory."""
        return self.qid, self.memory_id


@dataclass(frozen=True, slots=True)
class Calibration:
    """The threshold of highest agreement with its 95% interval, its kappa, and the kappa of the present threshold.
    `thresholds` and `kappas` are the whole curve, thresholds rising. None where kappa is not defined: people called all
    pairs relevant, or none, or there are no two scores."""

    threshold: float | None
    low: float | None
    high: float | None
    kappa: agreement.Estimate
    present: agreement.Estimate
    thresholds: Floats
    kappas: Floats


@dataclass(frozen=True, slots=True)
class Bin:
    """Pairs of like probability: their mean probability, and the share people call relevant with its 95% interval."""

    probability: float
    share: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A pair on which people and the judge differ: `steps` between the person's grade and the grade of the judge's band."""

    scored: GradedScore
    band: str
    steps: int
    distance: float
    """How far the score is from the threshold."""


def graded_scores(grades: Grades, scores: Mapping[Pair, float]) -> list[GradedScore]:
    """The pairs that both graded, by query and memory."""
    both = [(pair, raw) for pair, raw in sorted(scores.items()) if pair[1] in grades.get(pair[0], {})]
    return [GradedScore(qid, memory_id, grades[qid][memory_id], raw) for (qid, memory_id), raw in both]


def band_confusion(pairs: Sequence[GradedScore], scale: JudgeScale) -> dict[int, list[int]]:
    """How many pairs of each grade, highest first, the judge put in each of BANDS."""
    found: dict[int, list[int]] = {
        grade: [0] * len(BANDS) for grade in sorted({pair.grade for pair in pairs}, reverse=True)
    }
    for pair in pairs:
        found[pair.grade][band(pair.raw, scale)] += 1
    return found


def calibrate(
    pairs: Sequence[GradedScore], present: float, relevant_from: int, draws: int = agreement.RESAMPLES, seed: int = 0
) -> Calibration:
    """The threshold on which the judge agrees best with people, and the agreement at `present`, the threshold it has."""
    raw = np.array([pair.raw for pair in pairs], np.float64)
    relevant = np.array([pair.grade >= relevant_from for pair in pairs], bool)
    thresholds = _between(raw)
    numbers = {qid: n for n, qid in enumerate(sorted({pair.qid for pair in pairs}))}
    query = np.array([numbers[pair.qid] for pair in pairs], np.intp)
    per_query = _confusions(raw, relevant, query, len(numbers), np.append(thresholds, present))
    kappas = agreement.weighted_kappa(per_query.sum(0))
    best = _best(kappas[:-1]) if relevant.any() and not relevant.all() else None
    drawn = agreement.weighted_kappa(agreement.resampled(per_query, draws, seed))
    there = agreement.estimate_of(kappas[-1], drawn[:, -1], len(pairs))
    if best is None:
        return Calibration(
            None, None, None, agreement.estimate_of(np.nan, drawn[:, -1], len(pairs)), there, thresholds, kappas[:-1]
        )
    winners = [thresholds[at] for row in drawn if (at := _best(row[:-1])) is not None]
    low, high = (
        np.percentile(winners, agreement.INTERVAL_PERCENTILES) if winners else (thresholds[best], thresholds[best])
    )
    kappa = agreement.estimate_of(kappas[best], drawn[:, best], len(pairs))
    return Calibration(float(thresholds[best]), float(low), float(high), kappa, there, thresholds, kappas[:-1])


def _between(raw: Floats) -> Floats:
    """A threshold between each two neighbouring scores, in as few digits as tell them apart."""
    scores = np.unique(raw)
    at = np.arange(len(scores) - 1)
    if len(at) > MAX_THRESHOLDS:
        at = np.unique(np.linspace(0, len(scores) - 2, MAX_THRESHOLDS).round().astype(np.intp))
    return np.array([_short(float(scores[i]), float(scores[i + 1])) for i in at], np.float64)


def _short(low: float, high: float) -> float:
    """A number of few digits with low <= number < high: a score above it, as the judge reads a threshold, is `high` or more."""
    middle = (low + high) / 2
    for digits in range(17):
        number = round(middle, digits)
        if low <= number < high:
            return number
    return low


def _confusions(
    raw: Floats, relevant: NDArray[np.bool_], query: NDArray[np.intp], queries: int, thresholds: Floats
) -> Floats:
    """(queries, thresholds, 2, 2) pairs by person (0 not, 1 relevant) and judge, from counts that rise with the threshold."""
    order = np.argsort(thresholds, kind="stable")
    below = np.searchsorted(thresholds[order], raw, side="left")  # the first threshold that the score is not above
    said = np.zeros((queries, len(thresholds) + 1, 2))
    np.add.at(said, (query, below, relevant.astype(np.intp)), 1.0)
    not_above = np.cumsum(said, axis=1)[:, :-1]
    total = said.sum(axis=1, keepdims=True)
    rising = np.stack([not_above, total - not_above], axis=-1)
    return rising[:, np.argsort(order, kind="stable")]


def _best(kappas: Floats) -> int | None:
    """The place of the highest kappa, the middle one of several; None where none is defined."""
    if not np.isfinite(kappas).any():
        return None
    highest = np.flatnonzero(kappas >= np.nanmax(kappas) - 1e-12)
    return int(highest[len(highest) // 2])


def probabilities(pairs: Sequence[GradedScore]) -> tuple[Floats, bool]:
    """The judge's scores as probabilities, and whether they are its own: scores within 0 to 1 are, others go through a sigmoid."""
    raw = np.array([pair.raw for pair in pairs], np.float64)
    if len(raw) and raw.min() >= 0 and raw.max() <= 1:
        return raw, True
    return np.asarray(1 / (1 + np.exp(-np.clip(raw, -700, 700)))), False


def reliability(probability: Floats, relevant: Sequence[bool], bins: int = BINS) -> list[Bin]:
    """Bins of equal count by probability, lowest first; equal probabilities share a bin."""
    if not len(probability):
        return []
    called = np.asarray(relevant, bool)
    edges = np.unique(np.quantile(probability, np.linspace(0, 1, bins + 1)))
    place = np.searchsorted(edges[1:-1], probability, side="right")
    found = []
    for at in np.unique(place):
        inside = place == at
        low, high = wilson(int(called[inside].sum()), int(inside.sum()))
        found.append(Bin(float(probability[inside].mean()), float(called[inside].mean()), low, high, int(inside.sum())))
    return found


def calibration_error(bins: Sequence[Bin]) -> float | None:
    """The mean distance of probability and share over all pairs; None without pairs."""
    pairs = sum(each.pairs for each in bins)
    return sum(each.pairs * abs(each.probability - each.share) for each in bins) / pairs if pairs else None


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share of at least one trial."""
    from scipy.stats import binomtest

    found = binomtest(successes, trials).proportion_ci(0.95, "wilson")
    return float(found.low), float(found.high)


def differences(pairs: Sequence[GradedScore], scale: JudgeScale, relevant_from: int) -> list[Difference]:
    """The pairs that only one of the two calls relevant, those most steps apart first, then those furthest from the threshold."""
    found = [
        Difference(
            pair,
            BANDS[band(pair.raw, scale)],
            abs(pair.grade - grade_of(pair.raw, scale)),
            abs(pair.raw - scale.threshold),
        )
        for pair in pairs
        if (pair.grade >= relevant_from) != (pair.raw > scale.threshold)
    ]
    return sorted(found, key=lambda each: (-each.steps, -each.distance, each.scored.pair))


COSINE = 0.45
CLAIMED = parse_measure("hit@5")
"""What ACE reported; a judge by whom it is far above what people say misleads."""
SCORED = (parse_measure("hit@1"), CLAIMED, parse_measure("P@3"))
"""The measures that are computed from the labels of each judge."""
DEPTH = max(measure.k or 0 for measure in SCORED)
"""Results of each query that are labelled: as many as the measures look at."""

Label = Callable[[Evidence, Mapping[str, int], str], bool | None]


@dataclass(frozen=True, slots=True)
class Judged:
    """One judge of the run: what it calls each measure, and the share of the results it labelled."""

    name: str
    values: Mapping[str, float]
    labelled: float


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """Two judges over the results that both labelled; `both`, `first`, `second` and `neither` say who called them relevant."""

    judges: tuple[str, str]
    both: int
    first: int
    second: int
    neither: int

    @property
    def results(self) -> int:
        """Results that both labelled."""
        return self.both + self.first + self.second + self.neither

    @property
    def share(self) -> float | None:
        """The share of them on which they agree."""
        return (self.both + self.neither) / self.results if self.results else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa; None without results, or where chance alone would agree on all."""
        table = np.array([[self.both, self.first], [self.second, self.neither]], dtype=np.float64)
        return number(float(agreement.weighted_kappa(table)))


@dataclass(frozen=True, slots=True)
class RelevanceSources:
    """The run of one config under each judge, how far they agree, and what to beware of."""

    config: str
    queries: int
    judges: tuple[Judged, ...]
    agreements: tuple[JudgeAgreement, ...]
    warnings: tuple[str, ...]

    def tables(self) -> list[Table]:
        """The view as two tables."""
        names = [str(measure) for measure in SCORED]
        judges = [(judge.name, *(judge.values[name] for name in names), judge.labelled) for judge in self.judges]
        pairs = [
            (" and ".join(pair.judges), pair.results, pair.share, pair.kappa, f"{pair.first} / {pair.second}")
            for pair in self.agreements
        ]
        return [
            Table(("judge", *names, "share labelled"), tuple(judges), f"{self.config}: the same run by each judge"),
            Table(("judges", "results", "agree", "kappa", "relevant to one alone"), tuple(pairs), "agreement"),
        ]

    def to_json(self) -> dict[str, Any]:
        """The view as plain values."""
        return {
            "config": self.config,
            "queries": self.queries,
            "judges": {
                judge.name: {**{key: number(value) for key, value in judge.values.items()}, "labelled": judge.labelled}
                for judge in self.judges
            },
            "agreement": [
                {
                    "judges": list(pair.judges),
                    "results": pair.results,
                    "agree": pair.share,
                    "kappa": pair.kappa,
                    "both": pair.both,
                    "first_alone": pair.first,
                    "second_alone": pair.second,
                    "neither": pair.neither,
                }
                for pair in self.agreements
            ],
            "warnings": list(self.warnings),
        }


def relevance_sources(batch: LabelledBatch, evaluation: Evaluation) -> RelevanceSources:
    """Score the results of an evaluation by every judge, on the queries and from the grade that the evaluation counts."""
    config, least = evaluation.config, evaluation.relevant_from
    counted = evaluation.rankings.graded.relevant_count(least) > 0
    by_judge: dict[str, Label] = {
        f"cosine ≥ {COSINE:g}": _by_cosine,
        "model judge": partial(_by_model, config),
        "people": lambda evidence, grades, key: None if key not in grades else grades[key] >= least,
    }
    ranked = [ids[:DEPTH] for ids in batch.result_ids(evaluation.rankings)]
    rows = list(compress(zip(batch.evidences, batch.grades, ranked, strict=True), counted))
    labels = {
        name: [[judge(evidence, grades, key) for key in ids] for evidence, grades, ids in rows]
        for name, judge in by_judge.items()
    }
    labels = {name: given for name, given in labels.items() if any(label is not None for row in given for label in row)}
    missing = tuple(f"{name} labelled none of the results" for name in by_judge if name not in labels)
    judges = tuple(_judged(name, given) for name, given in labels.items())
    agreements = tuple(_agreement((a, b), labels[a], labels[b]) for a, b in combinations(labels, 2))
    return RelevanceSources(config.name, len(rows), judges, agreements, (*_warnings(batch, config, judges), *missing))


def _by_cosine(evidence: Evidence, grades: Mapping[str, int], key: str) -> bool | None:
    """None when the vector list does not say: it is not there, or ends above the threshold."""
    ranked = next((found for found in evidence.lists if found.source == "vector" and found.variant == 0), None)
    if ranked is None or not ranked.hits:
        return None
    score = next((hit.score for hit in ranked.hits if hit.memory_id == key), None)
    if score is None:
        return False if min(hit.score for hit in ranked.hits) < COSINE else None
    return score >= COSINE


def _by_model(config: PipelineConfig, evidence: Evidence, grades: Mapping[str, int], key: str) -> bool | None:
    name = judge_name(evidence, config)
    score = evidence.judge_scores[name].get(key) if name else None
    if score is None or not score.good or score.raw is None:
        return None
    return score.raw > scale_of(evidence.notes, name, config.judge).threshold


def judge_name(evidence: Evidence, config: PipelineConfig) -> str | None:
    """The judge of a config among those whose scores the evidence has; `auto` takes the one that is there."""
    there = list(evidence.judge_scores)
    if JUDGE.is_off(config) or not there:
        return None
    name = config.judge.model or (there[0] if config.judge.backend == "auto" else config.judge.backend)
    return name if name in there else None


def _judged(name: str, rows: Sequence[Sequence[bool | None]]) -> Judged:
    grade, judged, filled = (np.zeros((len(rows), DEPTH), dtype=kind) for kind in (np.int64, bool, bool))
    for q, row in enumerate(rows):
        for r, label in enumerate(row):
            filled[q, r], judged[q, r], grade[q, r] = True, label is not None, bool(label)
    rankings = GradedRankings(grade, judged, filled, np.ones((len(rows), 1), dtype=np.int64))
    values = {str(measure): float(means(measure.values(rankings)[:, None])[0]) for measure in SCORED}
    shown = int(filled.sum())
    return Judged(name, values, float(judged.sum()) / shown if shown else 0.0)


def _agreement(
    judges: tuple[str, str], one: Sequence[Sequence[bool | None]], other: Sequence[Sequence[bool | None]]
) -> JudgeAgreement:
    pairs: Counter[tuple[bool | None, ...]] = Counter(zip(chain(*one), chain(*other), strict=True))
    return JudgeAgreement(judges, *(pairs[who] for who in product((True, False), repeat=2)))


def _warnings(batch: LabelledBatch, config: PipelineConfig, judges: Sequence[Judged]) -> list[str]:
    found = []
    if not RERANK.is_off(config) and batch.evidences:
        evidence = batch.evidences[0]
        name, labels = judge_name(evidence, config), evidence.notes.get("models", {})
        same = labels.get("judge") is not None and labels.get("judge") == labels.get("reranker")
        if name is not None and (name == model_key(config.rerank) or same):
            found.append(
                f"circular: the judge {labels.get('judge') or name} also ranked, so that it agrees with the ranking by "
                "construction; trust people here"
            )
    rates = {judge.name: judge.values[str(CLAIMED)] for judge in judges}
    people = rates.get("people")
    for name, value in rates.items():
        if people is not None and name != "people" and value - people > 0.1:
            found.append(f"{name} calls {CLAIMED} {value:.2f} where people call it {people:.2f}: it misleads")
    return found
