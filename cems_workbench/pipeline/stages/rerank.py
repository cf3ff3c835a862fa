"""rerank: a model's second opinion on the first candidates.

    head      the first `depth` by score, and of those the ones with score >= (1 - score_window) * first score, if that is positive;
              where the candidates are long (`brief`), of those the first whose texts before them come to less than `brief.total_chars`
    unit      raw -> 0..1 by `raw_scale`, clamped unless that is raw; a failed score is `neutral_unit` or dropped, and flagged
    retrieval 1/(k+r) | 1/r | (k+1)/(k+r) | the fused score, with r the rank before reranking and k = fusion.k
    score     position_bands: w * retrieval + (1 - w) * unit, w by r;   replace: unit

With `expected_misses` only those of the head are read that may enter the results (pipeline/reading.py); the others are `not_read`, and the
scores that evidence may have of them do not count.

Candidates without a score, then with `tail: below` those past the limit, follow below the reranked in their previous order:
score = lowest reranked * own score / first such score; with a span, / the score of the last before it. Not reranked is null, never 0
or 0.5.

With `position: returned` the stage runs after dedup on the first `limit` candidates, which are what would be returned; all others are
dropped, and with fewer than two nothing is read.

Also reported, without effect on the ranking:

health            what share of the scores failed and why, and whether the rest can tell candidates apart (`Health`); `account` adds
                  further data of the evidence: cache, truncation, outcomes, times. Percentiles are interpolated linearly over the
                  answered pairs that were timed: the time of a refusal says nothing about the model.
effective weight  which side of the blend decides the order, against the share that the bands name. A term that is nearly the same for
                  every candidate decides nothing, however large its weight. So per band, over the reranked candidates whose rank
                  before reranking is in it, with sd the population standard deviation (one odd candidate moves it less than the range):

                      retrieval side  =  sd(w * retrieval_score)           reranker side  =  sd((1 - w) * unit)
                      effective       =  retrieval side / (retrieval side + reranker side)

                  A band is inverted when its weight gives one side the majority and the spread gives it to the other.

Source: CEMS plan, phase 4; QMD; memory agent, feature 2; docs/internals/specification.md, "rerank" and "Why four retrieval scores".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections import Band, RerankConfig
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.list_sources import equal_scores, ordinal
from cems_workbench.pipeline.reading import Head, Reading, kernel, read_all, read_promising, similarity_part
from cems_workbench.pipeline.stages.result import (
    PartColumn,
    RowContract,
    ScoreNeed,
    StageArrays,
    StageFields,
    StageRow,
    StageTrace,
    plain_fields,
    rows_of,
)
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import (
    NO_RANK,
    Bools,
    CandidateTable,
    Floats,
    Ints,
    ModelTable,
    Ranking,
    memoized,
    ranked,
    recalled,
    reranked_by,
)
from cems_workbench.records import Memory

COMPRESSED_SPREAD = 0.05
"""A spread of unit scores below this does not distinguish candidates in practice."""

_RANGE = {"divide_by_10": (0.0, 10.0), "identity": (0.0, 1.0)}


Outcome = Literal["scored", "failed", "not_scored", "not_read", "tail", "skipped", "off"]
"""Outcome of a candidate: `not_read` could hardly enter the results, `tail` is past the rerank depth or the result limit, `skipped` means
too few candidates to rerank."""
NOT_READ = "not read: could not enter"
"""The outcome `not_read` in words."""


@dataclass(frozen=True, slots=True)
class RerankRow(StageRow):
    """The model's score of a candidate and its blend; None if it was not reranked."""

    raw: float | None = None
    unit: float | None = None
    rank_before: int | None = None
    retrieval_weight: float | None = None
    retrieval_score: float | None = None
    flagged: bool = False
    """Scoring it failed."""
    outcome: Outcome = "off"
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """Counts over the head of one query: scored, failed by cause, not scored, not read, out of the scale's range, spread."""

    head: int
    scored: int
    failed: int
    causes: Mapping[str, int]
    not_scored: int
    not_read: int
    out_of_range: int
    all_equal: bool
    min: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class RerankFields(StageFields):
    """The backend, the model of the scores, whether it was skipped for too few candidates, and otherwise its health."""

    backend: str = "none"
    model: str | None = None
    skipped: bool = False
    health: Health | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields in use: only the backend if the stage is off."""
        if self.model is None:
            return {"backend": self.backend}
        names = ("backend", "model", "skipped")
        return plain_fields(self, names if self.health is None else (*names, "health"))


@dataclass(eq=False, kw_only=True, slots=True)
class RerankArrays(StageArrays[RerankRow, RerankFields]):
    """The arrays of every stage, (Q) how many candidates the model reads, and what it would read next with other scores of it."""

    sent: Callable[[], Ints]
    wanted: Callable[[ModelTable], Bools]
    """(Q, C) candidates that are to be scored next."""


def health_of(model: ModelTable, blend: Blend, scale: str, q: int) -> Health:
    """The health of the model's scores for query q; `scale` is `rerank.raw_scale`."""
    good, failed = blend.raw[q, blend.good[q]], _errors(model, blend.failed, q)
    causes = Counter(map(cause, failed))
    low, high = _RANGE.get(scale, (-np.inf, np.inf))
    return Health(
        head=int(blend.head[q].sum()),
        scored=len(good),
        failed=len(failed),
        causes=dict(sorted(causes.items())),
        not_scored=int(blend.unscored[q].sum()),
        not_read=int(blend.skipped[q].sum()),
        out_of_range=int(((good < low) | (good > high)).sum()),
        all_equal=bool(len(good) > 1 and good.min() == good.max()),
        min=float(good.min()) if len(good) else None,
        max=float(good.max()) if len(good) else None,
    )


def health_warnings(model: ModelTable, blend: Blend, scale: str, q: int) -> list[str]:
    """One line per reason to doubt these scores."""
    health = health_of(model, blend, scale, q)
    found = []
    if health.failed:
        causes = ", ".join(f"{count} {cause}" for cause, count in health.causes.items())
        reasons = set(map(reason, _errors(model, blend.failed, q)))
        told = f": {only}" if len(reasons) == 1 and (only := reasons.pop()) not in ("", *health.causes) else ""
        found.append(f"{health.failed} of {health.head} scores failed ({causes}){told}")
    if health.out_of_range:
        found.append(f"{health.out_of_range} raw scores lie outside the range that {scale} expects; they are clamped")
    if health.all_equal:
        found.append(equal_scores(health.scored, health.min or 0.0))
    elif health.scored > 1 and scale in _RANGE and health.max is not None and health.min is not None:
        spread = (health.max - health.min) / _RANGE[scale][1]
        if spread < COMPRESSED_SPREAD:
            found.append(
                f"raw scores span only {spread:.3f} of the unit range: the reranker hardly tells candidates apart"
            )
    return found


def _errors(model: ModelTable, failed: Bools, q: int) -> list[str]:
    return [model.errors[q].get(int(c), "") for c in np.flatnonzero(failed[q])]


def cause(error: str) -> str:
    """Cause of a failed score: its error up to the first colon. A search for words in it would take a reply that
    mentions a finance team for "nan"."""
    return error.split(":")[0].strip() or "unknown"


def reason(error: str) -> str:
    """The failure in an error: a pair that was not sent because another failed has the failure of that one."""
    return _NOT_ASKED.sub("", error, count=1)


_NOT_ASKED = re.compile("(refused: )?(not asked, (since )?)?(refused: )?")

GOOD, FAILED = 1, 2
_BY_ROW = ("depth", "score_window", "expected_misses", "read_step")
READINGS_KEPT = 1024
"""Readings of one query that a table keeps."""
FEW_HEADS, MOST_COVARIANCES = 4, 4_000_000
"""Heads of a query from which a table keeps the covariances of all its candidates, and how many it keeps at most: 32 MB."""
COVARIANCES_AT_ONCE = 500_000
"""Covariances of heads that are read together: 4 MB."""
LEAST_OF_THREADS = 200_000
"""Multiplications of a product of matrices up to which OpenBLAS starts no threads."""


def model_key(config: RerankConfig) -> str:
    """The key of `model_scores` this config reads: the model, or the backend if the model is its default."""
    return config.model or config.backend


@dataclass(frozen=True, eq=False)
class Blend:
    """Per candidate (Q, C): the model's score and its blend. NaN if not reranked. Of the head, `wanted` are to be
    scored next, `skipped` are not worth reading, and `unscored` the others without a score."""

    head: Bools
    wanted: Bools
    skipped: Bools
    unscored: Bools
    good: Bools
    failed: Bools
    reranked: Bools
    following: Bools
    raw: Floats
    unit: Floats
    retrieval_weight: Floats
    retrieval_score: Floats
    score: Floats


def apply_rerank(given: StageInput) -> RerankArrays:
    """Rerank the head."""
    table, before, config = given.table, given.ranking, given.config.rerank
    k, rows = given.config.fusion.k, given.by_row or [given.config]
    limit = _limits([one.assembly.limit for one in rows])
    window = _limits([one.rerank.score_window for one in rows])
    few = config.skip_if_few & (before.alive.sum(axis=1) <= limit[:, 0])
    lone = np.zeros_like(few)
    if config.position == "returned":
        inside = before.alive & (before.rank <= limit)
        before = reranked_by(inside, before)
        lone = inside.sum(axis=1) < 2
        few = few | lone
    model = table.models.get(model_key(config)) or unscored(table.shape)
    within = (before.rank <= _limits([one.rerank.depth for one in rows])) & _in_span(before, window)
    within &= _in_brief(table, before, config)
    reading = _reading(table, before, before.alive & within, [one.rerank for one in rows], k, limit[:, 0])
    blend = _blend(model, before, within, reading(model), config, k)
    ranking = _order(blend, before, strictly=window < 1)
    skip = few[:, None]
    after = Ranking(
        np.where(skip, before.alive, ranking.alive),
        np.where(skip, before.score, ranking.score),
        lambda: np.where(skip, before.rank, ranking.rank),
    )
    return RerankArrays(
        entered=given.ranking.alive,
        before=given.ranking,
        after=after,
        row=_row(model, blend, before, few),
        fields=lambda q: RerankFields(
            config.backend,
            model_key(config),
            bool(few[q]),
            None if few[q] else health_of(model, blend, config.raw_scale, q),
        ),
        parts=lambda q: () if few[q] else _part_columns(blend, config, q),
        reason=partial(_reason, model, blend, before, config, given.config.assembly.limit),
        warnings=lambda q: _warnings(model, blend, config, few, lone, q),
        needs=lambda q: [] if few[q] else _needs(table, blend, config, q),
        sent=lambda: np.where(few, 0, (blend.good | blend.failed | blend.wanted).sum(axis=1)),
        wanted=lambda model: reading(model).wanted & ~skip,
    )


def _limits(values: Sequence[float | None]) -> Floats:
    """(R, 1) numbers, inf for none."""
    return np.array([[np.inf if value is None else value] for value in values])


def unscored(shape: tuple[int, int]) -> ModelTable:
    """A model without scores of (Q, C) candidates."""
    return ModelTable(np.full(shape, np.nan), np.zeros(shape, dtype=np.int8), [{} for _ in range(shape[0])])


def _reading(
    table: CandidateTable, before: Ranking, head: Bools, configs: Sequence[RerankConfig], k: float, limits: Floats
) -> Callable[[ModelTable], Reading]:
    """By the model's scores, which of the head are read: all, or with `expected_misses` those that may enter the
    results. The configs, of all queries or of each, differ in what is read by row; `limits` are of as many."""
    config, queries = configs[0], len(head)
    limits = np.broadcast_to(limits, (queries,))
    misses = np.broadcast_to(
        [np.nan if one.expected_misses is None else one.expected_misses for one in configs], queries
    )
    steps = np.broadcast_to([one.read_step for one in configs], queries)
    everything = np.isnan(misses) | (limits >= head.sum(axis=1))
    if everything.all():
        return lambda model: read_all(head, model.state != 0)
    order = before.leading(head.shape[1])
    base, share = _terms(before, config, k)
    cost = _tokens_read(table, config)
    single = table.single or table
    slots = max(1, READINGS_KEPT // len(single.queries))

    @cache  # a gather asks after every step
    def columns(q: int) -> Ints:
        places = order[q][order[q] >= 0]
        inside: Ints = places[head[q, places]]
        return inside

    def reading(model: ModelTable) -> Reading:
        out = read_all(head, model.state != 0)
        lacking: list[tuple[int, Hashable]] = []

        def put(q: int, found: Sequence[Bools]) -> None:
            at = columns(q)
            out.read[q, at], out.wanted[q, at], out.skipped[q, at] = found

        for q in np.flatnonzero(~everything).tolist():
            at = columns(q)
            state = model.state[q, at]
            # Most configs that a search for causes or the tuner tries leave all of this as it is.
            arrays = (at, base[q, at], share[q, at], cost[q, at], before.score[q, at], model.raw[q, at], state)
            on_error = (config.on_error, config.neutral_unit) if (state == FAILED).any() else None
            rule = config.raw_scale, on_error, limits[q], misses[q], steps[q]
            key = (rule, b"".join([array.tobytes() for array in arrays]))
            known = recalled(single.memo, f"reading {_own(table, q)}", key, slots)
            if known is not None:
                put(q, known)
            else:
                lacking.append((q, key))
        # Heads of about one length together: shorter ones are padded.
        lacking.sort(key=lambda one: -len(columns(one[0])))
        while lacking:
            most = max(1, COVARIANCES_AT_ONCE // len(columns(lacking[0][0])) ** 2)
            some, lacking = lacking[:most], lacking[most:]
            each, own = [columns(row) for row, _ in some], np.array([row for row, _ in some])
            inside = np.arange(len(each[0])) < np.array([[len(at)] for at in each])
            places = np.zeros(inside.shape, dtype=np.int64)
            places[inside] = np.concatenate(each)
            cells = own[:, None], places
            states = np.where(inside, model.state[cells], 0)
            raw = np.where(states == GOOD, model.raw[cells], np.nan)
            covariances = _covariances(table, before.score[cells], own, each, inside)
            ahead = Head(inside, base[cells], share[cells], cost[cells], covariances)
            rules = limits[own].astype(np.int64), misses[own], steps[own]
            made = read_promising(ahead, raw, states != 0, partial(_units, config), *rules)
            for i, (row, named) in enumerate(some):
                found = [which[i, inside[i]] for which in (made.read, made.wanted, made.skipped)]
                put(row, memoized(single.memo, f"reading {_own(table, row)}", named, partial(tuple, found), slots))
        return out

    return reading


def _own(table: CandidateTable, q: int) -> int:
    """The number of a row's query."""
    return q if table.single is None else 0


def _units(config: RerankConfig, raw: Floats, good: Bools, failed: Bools) -> Floats:
    """(Q, C) the unit of each score that counts, NaN for the others."""
    unit = to_unit(raw, good, config.raw_scale)
    return np.where(failed, config.neutral_unit, unit) if config.on_error == "neutral" else unit


def _covariances(table: CandidateTable, score: Floats, queries: Ints, heads: Sequence[Ints], inside: Bools) -> Floats:
    """(R, H, H) covariances of the units of heads, the `inside` first of each of queries (R), by `reading.kernel`."""
    low = np.where(inside, score, np.inf).min(axis=1, keepdims=True)
    high = np.where(inside, score, -np.inf).max(axis=1, keepdims=True)
    fused = np.divide(score - low, high - low, out=np.zeros_like(score), where=high > low)
    similar = np.zeros((*score.shape, score.shape[1]))
    for row, (q, own) in enumerate(zip(queries.tolist(), heads, strict=True)):
        similar[row, : len(own), : len(own)] = _alike(table, q, own)
    return kernel(similar, fused)


def _alike(table: CandidateTable, q: int, at: Ints) -> Floats:
    """(H, H) what the cosines of a query's candidates say of their covariances; those of all are kept once several heads were asked for."""
    q, table = _own(table, q), table.single or table
    asked = memoized(table.memo, f"heads {q}", None, lambda: [0])
    asked[0] += 1

    def made(columns: Ints) -> Floats:
        matrix, place = table.vectors()
        vectors = matrix[place[q, columns]].astype(np.float64)
        # A few rows at a time: OpenBLAS would start threads for more, which then spin for longer than all of this takes.
        rows = max(1, LEAST_OF_THREADS // max(1, vectors.size))
        similar = [vectors[start : start + rows] @ vectors.T for start in range(0, len(vectors), rows)]
        # Rounded as the cosines of a table are, so that the width of a batch changes no last digit.
        return similarity_part(np.round(np.concatenate(similar), 12))

    if asked[0] < FEW_HEADS or table.valid.size * table.shape[1] > MOST_COVARIANCES:
        return made(at)
    return memoized(table.memo, f"alike {q}", None, lambda: made(np.arange(table.shape[1])))[at[:, None], at]


def _tokens_read(table: CandidateTable, config: RerankConfig) -> Floats:
    """(Q, C) about how many tokens the reranker reads of a candidate, by `chars4`."""
    passages = config.passages if config.chunk_selection == "passages" else 1
    most = np.full((len(table.tokens), 1), np.inf if passages is None else passages * config.chunk_chars / 4)
    most[_briefly(table, config)] = config.brief.chunk_chars / 4
    read: Floats = np.minimum(table.tokens, most).astype(np.float64)
    return np.maximum(read, 1.0)


def _terms(before: Ranking, config: RerankConfig, k: float) -> tuple[Floats, Floats]:
    """(Q, C) what the retrieval score adds, and the share of the unit."""
    if config.combine == "replace":
        return np.zeros_like(before.score), np.ones_like(before.score)
    weight = band_weight(before.rank, config)
    return weight * np.nan_to_num(_retrieval_score(before, config, k)), 1 - weight


def _blend(
    model: ModelTable, before: Ranking, within: Bools, reading: Reading, config: RerankConfig, k: float
) -> Blend:
    head = before.alive & within
    good, failed = reading.read & (model.state == GOOD), reading.read & (model.state == FAILED)
    raw = np.where(good, model.raw, np.nan)
    unit = _units(config, raw, good, failed)
    reranked = good | failed if config.on_error == "neutral" else good
    unit = np.where(reranked, unit, np.nan)
    weight = np.where(reranked, band_weight(before.rank, config), np.nan)
    retrieval = np.where(reranked, _retrieval_score(before, config, k), np.nan)
    score = unit if config.combine == "replace" else weight * retrieval + (1 - weight) * unit
    following = head & ~reading.read
    unscored = following & ~reading.skipped
    if config.below_depth == "below":
        following = following | (before.alive & ~within)
    return Blend(
        head,
        reading.wanted,
        reading.skipped,
        unscored,
        good,
        failed,
        reranked,
        following,
        raw,
        unit,
        weight,
        retrieval,
        score,
    )


def _in_span(before: Ranking, window: Floats) -> Bools:
    """(Q, C) whether the score is at most `window` of the first one's below it; true for all if the first is not positive."""
    if window.min() >= 1:
        return np.ones_like(before.alive)
    first = np.where(before.alive, before.score, 0.0).max(axis=1, keepdims=True, initial=0.0)
    # A share of a score that is not positive is no lower bound.
    near: Bools = (first <= 0) | (window >= 1) | (before.score >= (1 - window) * first)
    return near


def _in_brief(table: CandidateTable, before: Ranking, config: RerankConfig) -> Bools:
    """(Q, C) whether what is read of those before a candidate is less than `brief.total_chars`; true where nothing is read in brief."""
    brief = config.brief
    if brief.long_chars is None:
        return np.ones_like(before.alive)
    length = table.of_memories("characters", _characters)
    read = np.where(before.alive, np.minimum(length, brief.chunk_chars), 0.0)
    order = np.argsort(np.where(before.alive, before.rank, NO_RANK), axis=1, kind="stable")
    rows = np.arange(len(order))[:, None]
    inside = np.zeros_like(before.alive)
    inside[rows, order] = np.cumsum(read[rows, order], axis=1) - read[rows, order] < brief.total_chars
    inside |= ~_briefly(table, config)[:, None]
    return inside


def _briefly(table: CandidateTable, config: RerankConfig) -> Bools:
    """(Q) whether the candidates are read in brief: as `Evidence.in_brief`."""
    if config.brief.long_chars is None:
        return np.zeros(len(table.valid), dtype=bool)
    long = table.valid & (table.of_memories("characters", _characters) > config.brief.long_chars)
    many: Bools = 4 * long.sum(axis=1) >= np.maximum(1, table.valid.sum(axis=1))
    return many


def _characters(memory: Memory) -> float:
    return float(len(memory.content))


def to_unit(raw: Floats, good: Bools, scale: str) -> Floats:
    """(Q, C) raw scores to 0..1, clamped but for `raw`; `minmax` runs over the good scores of each query, all equal ->
    1.0. `sigmoid_outside_unit` is the sigmoid for queries of which a good score lies outside 0..1, as Hindsight tells
    logits from probabilities."""
    if scale == "raw":
        return np.where(good, raw, np.nan)
    safe = np.where(good, raw, 0.0)
    if scale == "divide_by_10":
        unit = safe / 10
    elif scale in ("sigmoid", "sigmoid_outside_unit"):
        # The argument is never positive, so exp cannot overflow.
        tail = np.exp(-np.abs(safe))  # never overflows
        unit = np.where(safe >= 0, 1 / (1 + tail), tail / (1 + tail))
        if scale == "sigmoid_outside_unit":
            unit = np.where(((safe < 0) | (safe > 1)).any(axis=1, keepdims=True), unit, safe)
    elif scale == "minmax":
        low = np.where(good, safe, np.inf).min(axis=1, keepdims=True, initial=np.inf)
        high = np.where(good, safe, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
        spread = np.where(high > low, high - low, 0.0)
        unit = np.divide(safe - np.where(spread > 0, low, 0.0), spread, out=np.ones_like(safe), where=spread > 0)
    else:
        unit = safe
    return np.where(good, np.clip(unit, 0.0, 1.0), np.nan)


def band_weight(rank: Ints, config: RerankConfig) -> Floats:
    """Share of the retrieval score at each rank: the first band that covers it, else the last band."""
    last = config.bands[-1].retrieval if config.bands else 0.0
    weight = np.full(rank.shape, last)
    # The last write wins, so going backwards lets the first band that covers a rank decide.
    for band in reversed(config.bands):
        weight = np.where(rank <= (np.inf if band.max_rank is None else band.max_rank), band.retrieval, weight)
    return weight


def _retrieval_score(before: Ranking, config: RerankConfig, k: float) -> Floats:
    # Dropped candidates have rank 0, which inverse_rank would divide by.
    rank = np.maximum(before.rank, 1)
    if config.retrieval_score == "rrf":
        return 1 / (k + rank)
    if config.retrieval_score == "inverse_rank":
        return 1 / rank
    if config.retrieval_score == "normalized_rrf":
        return (k + 1) / (k + rank)
    return before.score


def _order(blend: Blend, before: Ranking, *, strictly: Bools) -> Ranking:
    """The reranked by their score, then the followers in the order they came, scaled to lie below. The first follower
    is as high as the lowest of the reranked, or, with `strictly`, by as much less as its own score is less than that of
    the last before it: a later stage that orders ties by id would put it above."""
    top = ranked(np.where(blend.reranked, blend.score, 0.0), blend.reranked)
    count = blend.reranked.sum(axis=1, keepdims=True)
    lowest = np.where(blend.reranked, blend.score, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    waiting = np.where(blend.following, before.rank, NO_RANK)
    first_rank = waiting.min(axis=1, keepdims=True, initial=NO_RANK)
    # Without `strictly` the first follower may tie with the lowest of the reranked.
    against = np.where(strictly, np.maximum(first_rank - 1, 1), first_rank)
    first = np.where(before.rank == against, before.score, 0.0).sum(axis=1, keepdims=True)
    share = np.divide(before.score, first, out=np.zeros_like(before.score), where=first > 0)
    floor = np.where(count > 0, lowest, 0.0)
    below = np.where(count > 0, np.minimum(floor, floor * share), before.score)  # a negative lowest stays the higher
    # argsort of argsort is the place of each follower among the followers.
    places = waiting.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    rank = np.where(blend.reranked, top.rank, np.where(blend.following, count + places + 1, 0))
    score = np.where(blend.reranked, blend.score, np.where(blend.following, below, before.score))
    return Ranking(blend.reranked | blend.following, score, lambda: rank)


def _reason(
    model: ModelTable, blend: Blend, before: Ranking, config: RerankConfig, limit: int | None, q: int, c: int
) -> str:
    if not before.alive[q, c]:
        return f"past the result limit of {limit}; the reranker reads only what would be returned"
    if blend.failed[q, c]:
        return f"the reranker failed ({model.errors[q].get(c, 'unknown')}) and on_error is drop"
    if config.depth is not None and before.rank[q, c] > config.depth:
        return f"rank {before.rank[q, c]} is past the rerank depth of {config.depth}"
    if _in_span(before, _limits([config.score_window]))[q, c]:
        return f"what is read of those before it comes to {config.brief.total_chars:,} characters, the most that are read in brief"
    return f"its score {before.score[q, c]:.4f} is more than {config.score_window:.0%} below the first, and is not reranked"


def _row(
    model: ModelTable, blend: Blend, before: Ranking, few: Bools
) -> Callable[[int], Callable[[int, RowContract], RerankRow]]:
    def outcomes(q: int) -> list[Outcome]:
        cases = [~blend.head[q], blend.failed[q], blend.good[q], blend.skipped[q]]
        names: list[Outcome] = ["tail", "failed", "scored", "not_read"]
        found: list[Outcome] = np.select(cases, names, "not_scored").tolist()
        return found

    def errors(q: int) -> list[str | None]:
        return [model.errors[q].get(c) if failed else None for c, failed in enumerate(blend.failed[q].tolist())]

    read = rows_of(
        RerankRow,
        blend.raw,
        blend.unit,
        lambda q: [rank or None for rank in np.where(blend.reranked[q], before.rank[q], 0).tolist()],
        blend.retrieval_weight,
        blend.retrieval_score,
        blend.failed,
        outcomes,
        errors,
    )
    return lambda q: (lambda c, contract: RerankRow(*contract, outcome="skipped")) if few[q] else read(q)


def _part_columns(blend: Blend, config: RerankConfig, q: int) -> list[PartColumn]:
    """What the rows of query q say of the model's score and, where scores are blended, of the blend."""
    parts = [("raw", blend.raw), ("normalised", blend.unit)]
    if config.combine == "position_bands":
        parts += [("retrieval score", blend.retrieval_score), ("retrieval weight", blend.retrieval_weight)]
    return [PartColumn(kind, None, values[q]) for kind, values in parts]


def _warnings(model: ModelTable, blend: Blend, config: RerankConfig, few: Bools, lone: Bools, q: int) -> list[str]:
    if lone[q]:
        return ["not reranked: fewer than two candidates"] if blend.head[q].any() else []
    if few[q]:
        return ["not reranked: no more candidates than the result limit"]
    found = health_warnings(model, blend, config.raw_scale, q)
    missing = int(blend.unscored[q].sum())
    if missing:
        found.append(
            f"{missing} of the first {int(blend.head[q].sum())} candidates were never scored by {model_key(config)}; "
            "they follow below the reranked"
        )
    head = int(blend.head[q].sum())
    if head and int((blend.failed & blend.head)[q].sum()) == head and config.on_error == "neutral":
        found.append(
            f"every score failed: each candidate has the neutral {config.neutral_unit:g}, and this order is no reranking"
        )
    if config.combine == "position_bands" and config.retrieval_score == "rrf" and blend.reranked[q].any():
        found.append(
            "retrieval score 1/(k+r) is at most 1/(k+1): the reranker decides nearly everything, most of all past "
            "rank 10 (the bands are inverted)"
        )
    return found


def _needs(table: CandidateTable, blend: Blend, config: RerankConfig, q: int) -> list[ScoreNeed]:
    missing = np.flatnonzero(blend.wanted[q])
    if not len(missing):
        return []
    return [ScoreNeed("rerank", model_key(config), tuple(table.ids[q][int(c)] for c in missing))]


def _off(given: StageInput) -> RerankArrays:
    ranking = given.ranking
    return RerankArrays(
        entered=ranking.alive,
        before=ranking,
        after=ranking,
        row=lambda q: lambda c, contract: RerankRow(*contract),
        fields=lambda q: RerankFields(),
        passed=True,
        sent=lambda: np.zeros(given.table.shape[0], dtype=np.int64),
        wanted=lambda model: np.zeros(given.table.shape, dtype=bool),
    )


def unit_words(row: RerankRow) -> str:
    """The reranker's result for a candidate: its unit score, a failure and its substitute score, or why it has none."""
    if row.outcome == "not_read":
        return NOT_READ
    if row.unit is None:
        return "the reranker left it unscored"
    if row.flagged:
        return f"scoring it failed, which counts as {row.unit:.3f}"
    return f"the reranker gave it {row.unit:.3f}"


def _words(row: RerankRow, stage: StageTrace[RerankRow, RerankFields]) -> str:
    return f"{unit_words(row)}, {ordinal(row.rank_out or 0)}"


def _detail(row: RerankRow, config: PipelineConfig) -> str:
    if row.unit is None:
        return ""
    blended = config.rerank.combine == "position_bands"
    share = f", retrieval share {row.retrieval_weight:g}" if blended else ""
    return "failed" if row.raw is None else f"raw {row.raw:.4f}, unit {row.unit:.4f}{share}"


RERANK = Stage(
    name="rerank",
    title="Rerank",
    description="A model's second opinion on the first candidates.",
    reads=(*(f"rerank.{name}" for name in RerankConfig.model_fields if name not in _BY_ROW), "fusion.k"),
    reads_by_row=(*(f"rerank.{name}" for name in _BY_ROW), "assembly.limit"),
    apply=apply_rerank,
    when_off=_off,
    row=RerankRow,
    fields=RerankFields,
    switch=Switch("rerank", {"rerank.backend": "none"}, title="reranker"),
    words=_words,
    detail=_detail,
)


@dataclass(frozen=True, slots=True)
class ScoreAccount:
    """Counts over the scores there are; `causes` and `outcomes` most frequent first; `seconds` is (p50, p95)."""

    scores: int
    failed: int
    cached: int
    truncated: int
    causes: Mapping[str, int]
    outcomes: Mapping[str, int]
    seconds: tuple[float, float] | None

    @property
    def failed_share(self) -> float:
        """0..1; 0 without scores."""
        return self.failed / self.scores if self.scores else 0.0

    @property
    def cached_share(self) -> float:
        """0..1; 0 without scores."""
        return self.cached / self.scores if self.scores else 0.0


def account(scores: Iterable[ModelScore]) -> ScoreAccount:
    """The account of `scores`, those of the rerank head."""
    every = list(scores)
    details: Sequence[Mapping[str, Any]] = [score.detail or {} for score in every]
    bad = [score for score in every if not score.good]
    timed = [
        float(score.detail["seconds"]) for score in every if score.good and score.detail and "seconds" in score.detail
    ]
    p50, p95 = np.percentile(timed, [50, 95]) if timed else (0.0, 0.0)
    return ScoreAccount(
        scores=len(every),
        failed=len(bad),
        cached=sum(bool(detail.get("cached")) for detail in details),
        truncated=sum(bool(detail.get("truncated")) for detail in details),
        causes=dict(Counter(_cause(score) for score in bad).most_common()),
        outcomes=dict(Counter(str(detail["outcome"]) for detail in details if detail.get("outcome")).most_common()),
        seconds=(float(p50), float(p95)) if timed else None,
    )


def _cause(score: ModelScore) -> str:
    if score.error:
        return cause(score.error)
    return "no score" if score.raw is None else "not finite"


def unit_spread(rows: Iterable[RerankRow]) -> float | None:
    """Largest minus smallest unit score of the scored rows; None with fewer than two."""
    units = [row.unit for row in rows if row.outcome == "scored" and row.unit is not None]
    return max(units) - min(units) if len(units) > 1 else None


def is_compressed(spread: float | None) -> bool:
    """Whether the spread of unit scores is above 0 but too narrow to distinguish candidates."""
    return spread is not None and 0 < spread < COMPRESSED_SPREAD


SPREAD_TOLERANCE = 1e-12
"""A spread below this is rounding."""


@dataclass(frozen=True, slots=True)
class BandWeight:
    """One band: ranks first..last before reranking (last None: the rest), and the spread that each side has in it."""

    first: int
    last: int | None
    candidates: int
    nominal: float
    retrieval_spread: float
    reranker_spread: float

    @property
    def effective(self) -> float | None:
        """Retrieval's share of the spread, 0..1; None if neither side distinguishes two candidates."""
        total = self.retrieval_spread + self.reranker_spread
        return self.retrieval_spread / total if total > SPREAD_TOLERANCE else None

    @property
    def inverted(self) -> bool:
        """Whether the side with the nominal majority has the minority of the effect."""
        return self.effective is not None and (self.nominal - 0.5) * (self.effective - 0.5) < 0


def effective_weights(rows: Iterable[RerankRow], bands: Sequence[Band]) -> list[BandWeight]:
    """Each band that has reranked candidates, in order."""
    found = []
    first = 1
    blended = [row for row in rows if row.rank_before is not None and row.unit is not None]
    for i, band in enumerate(bands):
        last = None if i == len(bands) - 1 else band.max_rank
        inside = [row for row in blended if first <= (row.rank_before or 0) <= (last or np.inf)]
        if inside:
            terms = [(row.retrieval_weight, row.retrieval_score, row.unit) for row in inside]
            weight, retrieval, unit = np.array(terms, dtype=np.float64).T
            spreads = float(np.std(weight * retrieval)), float(np.std((1 - weight) * unit))
            found.append(BandWeight(first, last, len(inside), band.retrieval, *spreads))
        if last is None:
            break
        first = max(first, last + 1)
    return found
