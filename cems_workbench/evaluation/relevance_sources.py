"""One run, scored by three judges side by side: a cosine threshold, a model, and people. It shows which of them misleads.

ACE reported 100 % while a cosine above 0.45 counted as relevant, and 80 % when a cross-encoder judged the same results. So the
results of a config are labelled by

    cosine   similarity to the query >= 0.45, from the evidence's vector list of the original query
    model    the judge's score above its threshold, where the evidence has one of the result
    people   a human judgment of at least the grade that counts as relevant

and hit@1, hit@5 and P@3 are computed from each, over the queries that have a memory which people call relevant.

What a judge has not labelled counts as not relevant, and the share it labelled is
shown. Agreement is Cohen's kappa over the results that both labelled. A model that also ranked agrees with the ranking by
construction, so its figures say little; that is marked.

Source: ACE retrieval precision document, "Problem Statement"; Cohen 1960; docs/internals/specification.md, "judge".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import Evaluation, number
from cems_workbench.evaluation.metrics import GradedRankings, parse_measure
from cems_workbench.evaluation.statistics import means
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.stages import JUDGE, RERANK
from cems_workbench.pipeline.stages.judge import scale_of
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.results import Table

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
        if not self.results:
            return None
        one, two = (self.both + self.first) / self.results, (self.both + self.second) / self.results
        chance = one * two + (1 - one) * (1 - two)
        return None if chance >= 1 else ((self.both + self.neither) / self.results - chance) / (1 - chance)


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
        "model judge": _by_model(config),
        "people": lambda evidence, grades, key: None if key not in grades else grades[key] >= least,
    }
    ranked = [ids[:DEPTH] for ids in batch.result_ids(evaluation.rankings)]
    rows = [
        row
        for row, counts in zip(zip(batch.evidences, batch.grades, ranked, strict=True), counted, strict=True)
        if counts
    ]
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


def _by_model(config: PipelineConfig) -> Label:
    def judged(evidence: Evidence, grades: Mapping[str, int], key: str) -> bool | None:
        name = judge_name(evidence, config)
        score = evidence.judge_scores[name].get(key) if name else None
        if score is None or not score.good or score.raw is None:
            return None
        return score.raw > scale_of(evidence.notes, name, config.judge).threshold

    return judged


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
    pairs = [
        (a, b)
        for row, others in zip(one, other, strict=True)
        for a, b in zip(row, others, strict=True)
        if a is not None and b is not None
    ]
    counts = [sum(pair == which for pair in pairs) for which in ((True, True), (True, False), (False, True))]
    both, first, second = counts
    return JudgeAgreement(judges, both, first, second, len(pairs) - sum(counts))


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
