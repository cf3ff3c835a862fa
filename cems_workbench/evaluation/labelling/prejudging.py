"""A model judge over any query-memory pairs, in results or not: its scores, and its judgments kept apart from people's.

A pair is judged as in a ranking (`pipeline.scoring`): what the reranker would read of the whole memory, or its first
`judge.max_chars` characters, against the query's text in the set. A band becomes a grade by its place: irrelevant is the lowest
grade of the query's scale, highly relevant the highest; on 0 to 3 the four bands are the four grades. Every score is cached in the store
as it comes, and judgments are kept query by query, so that what was finished before a cancel stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections.adjusting import JudgeConfig
from cems_workbench.errors import InputError, ModelError
from cems_workbench.evaluation.labelling.pooling import Pair
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.rerankers import ScorerRequest, score_with
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import as_meant, cached_or_scored, text_for_judge
from cems_workbench.pipeline.stages import JUDGE
from cems_workbench.pipeline.stages.judge import BANDS, scale_of
from cems_workbench.progress import Progress, silent
from cems_workbench.records import DEFAULT_SCALE, GradeScale, JudgeScale, Judgment

LABEL = "judging pairs"
SOURCE = "pre-labelled"
"""The source of a model's judgments that were made here."""


@dataclass(frozen=True, slots=True)
class PairScores:
    """A judge's raw scores of some pairs, their scale, and why other pairs have none.

    `instead` is a line to show where another model than the configured one judged. `own` is how the judge's scores are read unless
    a config says otherwise; None where that is not known.
    """

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
    pairs: Iterable[Pair], config: PipelineConfig, resources: Resources, progress: Progress = silent
) -> PairScores:
    """What the judge of a config says of pairs, from the cache where it is there. Unknown queries and memories are left out.

    Raises InputError when the config has no judge, ModelError when none is available, and what `progress` raises.
    """
    return _judged(pairs, config, resources, progress, keep=False)


def prelabel(
    pairs: Iterable[Pair], config: PipelineConfig, resources: Resources, progress: Progress = silent
) -> PairScores:
    """`score_pairs`, and store each query's judgments under the model's name as soon as they exist."""
    return _judged(pairs, config, resources, progress, keep=True)


def _judged(
    pairs: Iterable[Pair], config: PipelineConfig, resources: Resources, progress: Progress, *, keep: bool
) -> PairScores:
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
    """The progress of one query as part of the whole."""
    return lambda _, done, __: progress(LABEL, min(before + done, total), total)


def _texts(
    pairs: Iterable[Pair], words: Mapping[str, str], config: PipelineConfig, resources: Resources
) -> dict[str, dict[str, str]]:
    """The texts to judge by qid and memory id, queries in their order."""
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
