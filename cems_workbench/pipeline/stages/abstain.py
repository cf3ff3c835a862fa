"""abstain: return nothing if the signals say that nothing in the store answers the query.

    vector, lexical   raw score of the first hit of that list of the original query; 0 if the list is empty
    reranker, judge   best raw score among the first `assembly.limit` candidates: of those that would be returned
    margin            score of the first candidate less that of the second, or less 0 if there is only one
    agreement         share of the first `agreement_k` hits of the vector list that the lexical list has within its depth

A signal is below its threshold when value < threshold, so the largest threshold that still answers is the value itself. `any`: nothing is
returned when one signal with a threshold is below it; `all`: when every one is that has a value. A signal without a value (a list that
is off, no scores of the model) decides nothing and is a warning. List scores are raw, since the best normalised score says nothing: it
is 1.0 under `max`. The lists inside a hybrid list count as searched. Two rules of other systems are other stages, since they cut
candidates one by one: CEMS's relevance threshold is `filter.min_score`, the memory agent's is `threshold`.

Source: docs/internals/specification.md, "abstain".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig, field_spec, list_depths, with_values
from cems_workbench.config.model import depth_paths
from cems_workbench.pipeline.evidence import VARIANT_KINDS
from cems_workbench.pipeline.list_sources import INSIDE, SOURCES, own_scale
from cems_workbench.pipeline.stages.judge import judges_of
from cems_workbench.pipeline.stages.rerank import RERANK, model_key
from cems_workbench.pipeline.stages.result import ScoreNeed, StageArrays, StageFields, StageRow, plain_fields
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import Bools, Floats, Ints, ModelTable, along, reranked_by


@dataclass(frozen=True, slots=True)
class FeatureKind:
    """Name and title of a signal, and the warning for a query without a value of it."""

    name: str
    title: str
    missing: str

    @property
    def path(self) -> str:
        """The path of its threshold in the config."""
        return f"abstain.{self.name}"


CONFIDENCE_FEATURES: Mapping[str, FeatureKind] = {
    kind.name: kind
    for kind in (
        FeatureKind(
            "vector", "best vector score", "the original query's vector list is not searched, or has no cosines"
        ),
        FeatureKind("lexical", "best lexical score", "the original query's lexical list is not searched"),
        FeatureKind("reranker", "best reranker score", "the reranker scored none of the first candidates"),
        FeatureKind("judge", "best judge score", "the judge scored none of the first candidates"),
        FeatureKind("margin", "margin of the first over the second", "there is no candidate"),
        FeatureKind("agreement", "agreement of the lists", "one of the two lists is not searched, or found nothing"),
    )
}
"""The signals by name, which is that of their threshold in the section."""


@dataclass(frozen=True, slots=True)
class ConfidenceFeature:
    """A signal of one query; None: no value, or no threshold. `below`: it has both, and is below."""

    name: str
    value: float | None
    threshold: float | None
    below: bool

    @property
    def words(self) -> str:
        """ "best vector score 0.31 is below 0.45"."""
        said = CONFIDENCE_FEATURES[self.name].title
        if self.value is None:
            return f"{said}: {CONFIDENCE_FEATURES[self.name].missing}"
        if self.threshold is None:
            return f"{said} {self.value:.4g}"
        value, threshold = _told_apart(self.value, self.threshold)
        return f"{said} {value} is {'below' if self.below else 'at least'} {threshold}"


def _told_apart(value: float, threshold: float) -> tuple[str, str]:
    """Both with the fewest digits, at least three, that distinguish them."""
    for digits in range(3, 18):
        first, second = f"{value:.{digits}g}", f"{threshold:.{digits}g}"
        if first != second or value == threshold:
            break
    return first, second


@dataclass(frozen=True, slots=True)
class AbstainFields(StageFields):
    """Whether it refused the query, by which rule, and every signal; no signals if the stage is off."""

    abstained: bool = False
    rule: str = "any"
    signals: tuple[ConfidenceFeature, ...] = ()

    @property
    def deciding(self) -> tuple[ConfidenceFeature, ...]:
        """The signals that are below their thresholds."""
        return tuple(signal for signal in self.signals if signal.below)

    def to_json(self) -> dict[str, Any]:
        """The fields, if the stage is on."""
        return plain_fields(self, ("abstained", "rule", "signals")) if self.signals else {}


@dataclass(eq=False, kw_only=True, slots=True)
class AbstainArrays(StageArrays[StageRow, AbstainFields]):
    """The arrays of every stage, and by signal (Q) values, NaN for a query without one; None if the stage is off."""

    signals: Callable[[str], Floats]


def apply_abstain(given: StageInput) -> AbstainArrays:
    """Drop every candidate of the queries that the rule says have no answer."""
    before, section = given.ranking, given.config.abstain
    values = cache(lambda name: _VALUES[name](given))
    thresholds = {name: limit for name in CONFIDENCE_FEATURES if (limit := getattr(section, name)) is not None}
    known = np.stack([~np.isnan(values(name)) for name in thresholds])
    below = known & np.stack([values(name) < limit for name, limit in thresholds.items()])
    refused = below.any(axis=0) if section.rule == "any" else known.any(axis=0) & (below | ~known).all(axis=0)

    def fields(q: int) -> AbstainFields:
        found = []
        for name in CONFIDENCE_FEATURES:
            value, limit = float(values(name)[q]), thresholds.get(name)
            there = None if np.isnan(value) else value
            found.append(
                ConfidenceFeature(name, there, limit, there is not None and limit is not None and there < limit)
            )
        return AbstainFields(bool(refused[q] and before.alive[q].any()), section.rule, tuple(found))

    def warnings(q: int) -> list[str]:
        if not before.alive[q].any():
            return []
        return [
            f"{CONFIDENCE_FEATURES[name].missing}: the {CONFIDENCE_FEATURES[name].title} decides nothing"
            for i, name in enumerate(thresholds)
            if not known[i, q]
        ]

    def needs(q: int) -> list[ScoreNeed]:
        if section.judge is None or given.config.judge.backend == "none":
            return []
        name = judges_of(given.table, given.config.judge)[q]
        returned = sorted(c for c in _returned(given)[q].tolist() if c >= 0)
        ids = tuple(given.table.ids[q][c] for c in returned if not name or given.table.judges[name].state[q, c] == 0)
        return [ScoreNeed("abstain", f"the judge {name or given.config.judge.backend}", ids)] if ids else []

    return AbstainArrays(
        entered=before.alive,
        before=before,
        after=reranked_by(before.alive & ~refused[:, None], before),
        fields=fields,
        reason=lambda q, c: " and ".join(signal.words for signal in fields(q).deciding),
        warnings=warnings,
        needs=needs,
        signals=values,
    )


def asking_all(config: PipelineConfig) -> PipelineConfig:
    """The config with every threshold at its minimum, so that every signal is read and no query is refused."""
    return with_values(config, {kind.path: field_spec(kind.path).low for kind in CONFIDENCE_FEATURES.values()})


def switched_off(config: PipelineConfig) -> PipelineConfig:
    """The config without the stage."""
    return with_values(config, {kind.path: None for kind in CONFIDENCE_FEATURES.values()})


def _list_row(given: StageInput, source: str) -> tuple[Ints, Bools]:
    """(Q) the row of the original query's list, and whether it was searched, on its own or inside a hybrid list."""
    lists = given.table.lists
    own = lists.kind == VARIANT_KINDS.index("original")
    active = given.lists.active
    if source in INSIDE:
        nested = (lists.source == SOURCES.index("hybrid")) & own & active
        active = active | nested.any(axis=1)[:, None]
    rows = (lists.source == SOURCES.index(source)) & own & active
    if not rows.shape[1]:
        return np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=bool)
    return rows.argmax(axis=1), rows.any(axis=1)


def _best_of(given: StageInput, source: str) -> Floats:
    row, there = _list_row(given, source)
    if there.any():
        there = there & ~own_scale(given.table)[np.arange(len(row)), row]
    best = np.where(there, 0.0, np.nan)
    if there.any():
        places, q = given.lists.places, np.arange(len(row))
        first = (places.position[q, row] == 1) & there[:, None]
        queries, candidates = np.nonzero(first)
        best[queries] = places.raw[queries, row[queries], candidates]
    return best


def _agreement(given: StageInput) -> Floats:
    (vector, first), (lexical, second) = (_list_row(given, source) for source in ("vector", "lexical"))
    share = np.full(len(vector), np.nan)
    if not (first & second).any():
        return share
    position, q = given.lists.places.position, np.arange(len(vector))
    depth = list_depths(given.config)["lexical"]
    top = (position[q, vector] > 0) & (position[q, vector] <= given.config.abstain.agreement_k)
    words = (position[q, lexical] > 0) & (position[q, lexical] <= (np.inf if depth is None else depth))
    of = top.sum(axis=1)
    has = first & second & (of > 0) & words.any(axis=1)
    share[has] = (top & words).sum(axis=1)[has] / of[has]
    return share


def _margin(given: StageInput) -> Floats:
    first = given.ranking.leading(2)
    scores = np.where(first >= 0, along(given.ranking.score, np.maximum(first, 0)), 0.0)
    # A single candidate is measured against a score of 0.
    scores = np.pad(scores, ((0, 0), (0, 2 - scores.shape[1])))
    return np.where(given.ranking.alive.any(axis=1), scores[:, 0] - scores[:, 1], np.nan)


def _returned(given: StageInput) -> Ints:
    """(Q, n) the first candidates, as many as the result limit, -1 past the end."""
    limit, ranking = given.config.assembly.limit, given.ranking
    return ranking.leading(ranking.alive.shape[1] if limit is None else limit)


def _best_score(given: StageInput, raw: Floats) -> Floats:
    first = _returned(given)
    score = np.where(first >= 0, along(raw, np.maximum(first, 0)), np.nan)
    # nanmax would warn about rows without a score.
    best: Floats = np.fmax.reduce(score, axis=1, initial=np.nan)
    return best


def _reranker(given: StageInput) -> Floats:
    model: ModelTable | None = given.table.models.get(model_key(given.config.rerank))
    if RERANK.is_off(given.config) or model is None:
        return np.full(given.table.shape[0], np.nan)
    return _best_score(given, model.raw)


def _judge(given: StageInput) -> Floats:
    table = given.table
    raw = np.full(table.shape, np.nan)
    for q, name in enumerate(judges_of(table, given.config.judge)):
        if name is not None:
            raw[q] = table.judges[name].raw[q]
    return _best_score(given, raw)


_VALUES: Mapping[str, Callable[[StageInput], Floats]] = {
    "vector": lambda given: _best_of(given, "vector"),
    "lexical": lambda given: _best_of(given, "lexical"),
    "reranker": _reranker,
    "judge": _judge,
    "margin": _margin,
    "agreement": _agreement,
}


ABSTAIN = Stage(
    name="abstain",
    title="Abstain",
    description="Returns nothing where the signals say that nothing in the store answers.",
    reads=("abstain", "judge", "rerank.backend", "rerank.model", "assembly.limit", *depth_paths("lexical")),
    apply=apply_abstain,
    row=StageRow,
    fields=AbstainFields,
    switch=Switch(
        "abstain",
        {kind.path: None for kind in CONFIDENCE_FEATURES.values()},
        title="refusal to answer",
        idle=lambda fields: not fields.abstained,
    ),
)
