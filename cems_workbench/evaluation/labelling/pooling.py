"""Which query-memory pairs to judge, and in what order: pools of the top k of several configs. How much of what configs
return is judged (Judged@k), and a model judge over any pairs, in results or not, whose judgments are kept apart from people's.

A pool holds what any of the configs ranks within the first `depth` (Sparck Jones and van Rijsbergen, 1975). It can be judged a query
after another; from the top; shuffled, so that the place in the queue says nothing of the rank; the most uncertain by a model judge
first; or the most decisive first (`evaluation.labelling.queue`). Every order is a function of its arguments: the same pool and seed
give the same queue.

Judged@k is the share of the first k results that have a judgment. What is not judged counts as not relevant in every measure, so a
config whose results were never pooled is measured too low.

The model judges a pair as in a ranking (`pipeline.scoring`): what the reranker would read of the whole memory, or its first
`judge.max_chars` characters, against the query's text in the set. A band becomes a grade by its place: irrelevant is the lowest
grade of the query's scale, highly relevant the highest; on 0 to 3 the four bands are the four grades. Every score is cached in the store
as it comes, and judgments are kept query by query, so that what was finished before a cancel stays.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, get_args

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections import JudgeConfig
from cems_workbench.errors import InputError, ModelError
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.rerankers import ScorerRequest, score_with
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import as_meant, cached_or_scored, text_for_judge
from cems_workbench.pipeline.stages import JUDGE
from cems_workbench.pipeline.stages.judge import BANDS, scale_of
from cems_workbench.progress import Progress, silent
from cems_workbench.records import DEFAULT_SCALE, GradeScale, JudgeScale, Judgment

Pair = tuple[str, str]
"""(qid, memory_id)."""
Ranked = Mapping[str, Sequence[str]]
"""Results by qid, best first."""
Strategy = Literal["query", "top", "shuffled", "decisive", "uncertain"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@dataclass(frozen=True, slots=True)
class PooledPair:
    """A pair with its rank, from 1, under each config that has it within the depth."""

    qid: str
    memory_id: str
    ranks: dict[str, int]

    @property
    def pair(self) -> Pair:
        """The pair itself."""
        return self.qid, self.memory_id

    @property
    def best_rank(self) -> int:
        """The best rank that any config gives it."""
        return min(self.ranks.values())


def pool(rankings: Mapping[str, Ranked], depth: int) -> list[PooledPair]:
    """What the configs (by name) rank within the first `depth`, by query, then best rank. Raises InputError for depth < 1."""
    if depth < 1:
        raise InputError(f"depth: must be at least 1, found {depth}")
    ranks: dict[Pair, dict[str, int]] = {}
    for name, ranked in rankings.items():
        for qid, results in ranked.items():
            for rank, memory_id in enumerate(results[:depth], start=1):
                ranks.setdefault((qid, memory_id), {}).setdefault(name, rank)
    pairs = [PooledPair(qid, memory_id, found) for (qid, memory_id), found in ranks.items()]
    return sorted(pairs, key=lambda pair: (pair.qid, pair.best_rank, pair.memory_id))


def query_by_query(pairs: Sequence[PooledPair], seed: int | str) -> list[PooledPair]:
    """A query after another, by qid; within one, in an order drawn by the seed, which says nothing of the rank."""
    return sorted(shuffled(pairs, seed), key=lambda pair: pair.qid)


def top_first(pairs: Iterable[PooledPair]) -> list[PooledPair]:
    """Everything ranked first, then everything ranked second …; what more configs have before what fewer have."""
    return sorted(pairs, key=lambda pair: (pair.best_rank, -len(pair.ranks), pair.qid, pair.memory_id))


def shuffled(pairs: Sequence[PooledPair], seed: int | str) -> list[PooledPair]:
    """The pairs in an order drawn by the seed, independent of the input order."""
    drawn = sorted(pairs, key=lambda pair: pair.pair)
    random.Random(f"{seed}").shuffle(drawn)
    return drawn


def uncertain_first(pairs: Iterable[PooledPair], scores: Mapping[Pair, float], threshold: float) -> list[PooledPair]:
    """Those whose model judge's score is nearest to its threshold first; those without a score last, from the top."""

    def doubt(pair: PooledPair) -> float:
        score = scores.get(pair.pair)
        return math.inf if score is None or not math.isfinite(score) else abs(score - threshold)

    return sorted(top_first(pairs), key=doubt)


def without_judged(pairs: Iterable[PooledPair], judgments: Iterable[Judgment]) -> list[PooledPair]:
    """The pairs that nobody judged yet; a model's judgment does not count."""
    judged = {(judgment.qid, judgment.memory_id) for judgment in judgments if judgment.kind == "human"}
    return [pair for pair in pairs if pair.pair not in judged]


@dataclass(frozen=True, slots=True)
class QueryCoverage:
    """One query: Judged@k by config (a config without results of it is absent), and the results without a judgment, best first."""

    qid: str
    judged: dict[str, float]
    unjudged: tuple[str, ...]


def coverage(rankings: Mapping[str, Ranked], judged: Collection[Pair], k: int) -> list[QueryCoverage]:
    """The coverage of every query, those with most unjudged results first, then by qid. Raises InputError for k < 1."""
    if k < 1:
        raise InputError(f"k: must be at least 1, found {k}")
    known = set(judged)
    found = []
    for qid in sorted({qid for ranked in rankings.values() for qid in ranked}):
        shares: dict[str, float] = {}
        missing: dict[str, int] = {}
        for name, ranked in rankings.items():
            results = ranked.get(qid, ())[:k]
            if not results:
                continue
            shares[name] = sum((qid, memory_id) in known for memory_id in results) / len(results)
            for rank, memory_id in enumerate(results, 1):
                if (qid, memory_id) not in known:
                    missing[memory_id] = min(rank, missing.get(memory_id, rank))
        found.append(QueryCoverage(qid, shares, tuple(sorted(missing, key=lambda one: (missing[one], one)))))
    return sorted(found, key=lambda one: (-len(one.unjudged), one.qid))


def mean_judged(queries: Collection[QueryCoverage]) -> dict[str, float]:
    """The mean Judged@k of each config over the queries it has results for."""
    names = list(dict.fromkeys(name for query in queries for name in query.judged))
    shares = {name: [query.judged[name] for query in queries if name in query.judged] for name in names}
    return {name: sum(values) / len(values) for name, values in shares.items()}


LABEL = "judging pairs"
SOURCE = "pre-labelled"
"""The source of a model's judgments that were made here."""


@dataclass(frozen=True, slots=True)
class PairScores:
    """A judge's raw scores of some pairs, their scale, and why other pairs have none. `instead` is a line to show where
    another model than the configured one judged. `own` is how the judge's scores are read unless a config says
    otherwise; None where that is not known."""

    judge: str
    own: JudgeScale | None
    scores: Mapping[Pair, float]
    failed: Mapping[Pair, str] = field(default_factory=dict)
    instead: str | None = None

    def scale(self, config: JudgeConfig) -> JudgeScale:
        """Threshold and bands: the config's, else the judge's own."""
        return _scale(self.own, config)


def band(raw: float, scale: JudgeScale) -> int:
    """The place of a score's band in BANDS: 0 is highly relevant, 3 irrelevant."""
    return sum(raw <= low for low in scale.bands)


def grade_of(raw: float, judge: JudgeScale, scale: GradeScale = DEFAULT_SCALE) -> int:
    """The grade that a score's band is on a scale of grades."""
    grades = [grade for grade, _ in scale.grades]
    level = len(BANDS) - 1 - band(raw, judge)
    return grades[round(level * (len(grades) - 1) / (len(BANDS) - 1))]


def score_pairs(
    pairs: Iterable[Pair],
    config: PipelineConfig,
    resources: Resources,
    progress: Progress = silent,
    *,
    keep: bool = False,
) -> PairScores:
    """What the judge of a config says of pairs, from the cache where it is there. Unknown queries and memories are left
    out. `keep`: each query's judgments are stored under the model's name as soon as they exist. Raises InputError when
    the config has no judge, ModelError when none is available, and what `progress` raises."""
    if JUDGE.is_off(config):
        raise InputError("the judge is off; choose one under Judge")
    words = {query.qid: query.query.strip() for query in resources.store.queries.read()}
    texts = _texts(pairs, words, config, resources)
    total = sum(map(len, texts.values()))

    def use(model: PairScorer) -> dict[Pair, ModelScore]:
        found: dict[Pair, ModelScore] = {}
        for qid, wanted in texts.items():
            progress(LABEL, len(found), total)
            scored = cached_or_scored(model, words[qid], wanted, resources, _from(len(found), total, progress))
            found |= {(qid, key): score for key, score in scored.items()}
            if keep:
                _keep(qid, scored, model, config, resources)
        progress(LABEL, total, total)
        return found

    backend = "cross_encoder" if config.judge.backend == "auto" else config.judge.backend
    model, instead, scores = score_with(
        backend, ScorerRequest(config.judge.model, config.rerank, resources, progress), use
    )
    good = {pair: score.raw for pair, score in scores.items() if score.good and score.raw is not None}
    failed = {pair: score.error or "no score" for pair, score in scores.items() if pair not in good}
    if scores and not good:
        raise ModelError(f"{model.label} judged nothing: {next(iter(failed.values()))}")
    if as_meant(config, model, resources):
        instead = None
    return PairScores(model.label, model.scale, good, failed, instead)


def _from(before: int, total: int, progress: Progress) -> Progress:
    return lambda _, done, __: progress(LABEL, min(before + done, total), total)


def _texts(
    pairs: Iterable[Pair], words: Mapping[str, str], config: PipelineConfig, resources: Resources
) -> dict[str, dict[str, str]]:
    distinct = list(dict.fromkeys(pairs))
    memories = resources.store.memories.read({memory_id for _, memory_id in distinct})
    spoken = resources.store.language.current
    texts: dict[str, dict[str, str]] = {}
    for qid, memory_id in distinct:
        if qid in words and memory_id in memories:
            content = memories[memory_id].content
            texts.setdefault(qid, {})[memory_id] = text_for_judge(content, content, words[qid], config, spoken)
    return texts


def _scale(own: JudgeScale | None, config: JudgeConfig) -> JudgeScale:
    notes = {} if own is None else {"judges": {"it": {"threshold": own.threshold, "bands": list(own.bands)}}}
    return scale_of(notes, "it", config)


def _keep(
    qid: str, scored: Mapping[str, ModelScore], model: PairScorer, config: PipelineConfig, resources: Resources
) -> None:
    judge, grades = _scale(model.scale, config.judge), resources.store.query_sets.scale_of(qid)
    now = datetime.now(UTC)
    judgments: Sequence[Judgment] = [
        Judgment(qid, key, grade_of(score.raw, judge, grades), model.label, "model", now, f"score {score.raw:.4g}")
        for key, score in scored.items()
        if score.good and score.raw is not None
    ]
    resources.store.judgments.record(judgments, SOURCE)
