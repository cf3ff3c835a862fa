"""From a log of queries to a query set worth labelling: the most frequent, some at random, or the worst by the judge.

Queries are one when they read alike in lower case with single blanks, in one project. Each is taken once, in the words of its latest
entry, and asked as of its latest time. *Frequent* takes those asked most often. *Random* draws entries, so that a query has the chance
its frequency gives it. *Worst* takes those whose best result the judge scores lowest; a query that returned nothing is the worst of all,
and one whose answer was not recorded is never taken.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from cems_workbench.config import PipelineConfig, preset, preset_names
from cems_workbench.errors import InputError
from cems_workbench.formats.base.records import derived_id
from cems_workbench.formats.logs import TYPE, Asked
from cems_workbench.models.protocol import PairScorer
from cems_workbench.pipeline.rerankers import ScorerRequest, score_with
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import cached_or_scored, text_for_judge
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Query, RecordedAnswer

Strategy = Literal["frequent", "random", "worst"]
UNDATED = datetime.min.replace(tzinfo=UTC)
STRATEGIES: tuple[Strategy, ...] = ("frequent", "random", "worst")


@dataclass(frozen=True, slots=True)
class LoggedQuery:
    """A query of a log with how often it was asked and the memories that its latest recorded answer returned. `results`
    are None where no answer was recorded, or none of its results has an id."""

    query: Query
    times: int
    results: tuple[str, ...] | None


def distinct(entries: Iterable[Asked]) -> list[LoggedQuery]:
    """The queries of a log, the most frequent first, ties by words."""
    groups: dict[tuple[str, str | None], list[Asked]] = {}
    for entry in entries:
        groups.setdefault(_key(entry), []).append(entry)
    found = []
    for (words, project), group in groups.items():
        latest = max(reversed(group), key=_moment)
        answered = [entry for entry in reversed(group) if isinstance(entry, RecordedAnswer)]
        results = None
        if answered:
            returned = max(answered, key=_moment).returned
            named = tuple(row.memory_id for row in returned if row.memory_id is not None)
            results = named if named or not returned else None
        query = Query(derived_id("log", words, project or ""), latest.query or "", project, latest.asked_at, TYPE)
        found.append(LoggedQuery(query, len(group), results))
    return sorted(found, key=lambda logged: (-logged.times, logged.query.query, logged.query.qid))


def _moment(entry: Asked) -> datetime:
    return entry.asked_at or UNDATED


def _key(entry: Asked) -> tuple[str, str | None]:
    return " ".join((entry.query or "").lower().split()), entry.project


def sample(
    entries: Sequence[Asked], way: Strategy, size: int, seed: int = 0, scores: Mapping[str, float] | None = None
) -> list[LoggedQuery]:
    """`size` queries of a log, all when there are fewer. `scores` are those of `judge_scores`, needed for "worst".
    Raises InputError for another way, a size below 1, or "worst" without scores."""
    if way not in STRATEGIES:
        raise InputError(f"way: {way!r} is not one of {', '.join(STRATEGIES)}")
    if size < 1:
        raise InputError(f"size: must be at least 1, found {size}")
    queries = distinct(entries)
    if way == "frequent":
        return queries[:size]
    if way == "random":
        by_key = {(" ".join(logged.query.query.lower().split()), logged.query.project): logged for logged in queries}
        drawn = list(entries)
        random.Random(seed).shuffle(drawn)
        return list({logged.query.qid: logged for logged in (by_key[_key(entry)] for entry in drawn)}.values())[:size]
    if scores is None:
        raise InputError("the worst queries need the judge's scores")
    judged = [logged for logged in queries if logged.query.qid in scores]
    return sorted(judged, key=lambda logged: (scores[logged.query.qid], logged.query.qid))[:size]


def sampled(
    entries: Sequence[Asked], way: Strategy, size: int, seed: int, resources: Resources, progress: Progress = silent
) -> tuple[list[LoggedQuery], dict[str, float]]:
    """As `sample`, with the judge of the first preset asked for "worst"; and its scores by qid, empty for other ways.
    Raises as `sample` and `judge_scores` do."""
    scores = {}
    if way == "worst":
        scores = judge_scores(distinct(entries), preset(preset_names()[0]).config, resources, progress)
    return sample(entries, way, size, seed, scores), scores


def judge_scores(
    queries: Sequence[LoggedQuery], config: PipelineConfig, resources: Resources, progress: Progress = silent
) -> dict[str, float]:
    """The judge's raw score of each query's best result, by qid; minus infinity for a query that returned nothing.
    Results that are not in the store, and scores that failed, are passed over; a query of which nothing is left, or
    whose answer was not recorded, has no score. Raises ModelError when no judge can be loaded."""
    named = dict.fromkeys(memory_id for logged in queries for memory_id in logged.results or ())
    texts = {memory_id: memory.content for memory_id, memory in resources.store.memories.read(list(named)).items()}
    backend = "cross_encoder" if config.judge.backend in ("auto", "none") else config.judge.backend

    def judged(model: PairScorer) -> dict[str, float]:
        best: dict[str, float] = {}
        spoken = resources.store.language.current
        for number, logged in enumerate(queries):
            progress("judging the log", number, len(queries))
            if logged.results is None:
                continue
            if not logged.results:
                best[logged.query.qid] = -math.inf
                continue
            words = logged.query.query
            there = {key: texts[key] for key in logged.results if key in texts}
            chunks = {key: text_for_judge(text, text, words, config, spoken) for key, text in there.items()}
            found = cached_or_scored(model, words, chunks, resources, silent)
            good = [score.raw for score in found.values() if score.good and score.raw is not None]
            if good:
                best[logged.query.qid] = max(good)
        return best

    request = ScorerRequest(config.judge.model, config.rerank, resources, progress)
    return score_with(backend, request, judged)[2]
