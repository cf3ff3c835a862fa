"""Events of a parameter with linear scores: every value at which two scores meet, or one meets a threshold.

    list and variant weights, top-rank bonuses, the boost   raw fused scores are lines; minmax divides all of them by the same
                                                            spread, so numerators are lines wherever the same two candidates
                                                            have the lowest and the highest raw score (a piece)
    score blend, factors of adjust, the neutral score       scores are lines
    half-life                                               hyperbolic: -1/score is a line in 1/half-life; exponential: log score

Two lines of different order at the two ends of a piece meet once within it, so all meetings are solved. The lines are read off
two replays a piece; no formula of a stage is repeated here. `solved` events are complete: with the order, the thresholds and
the clamp unchanged between two of them, so are the results.

Parameters that are compared with numbers they do not change have their events at those numbers:

    filter.min_score         the fused scores                     gap.ratio    score / top score after adjust
    filter.percentile        100 i / (n - 1), n scores left       threshold.fixed       the normalised list scores
    threshold.adaptive.target_ratio   j / limit                   abstain.*       the value of that signal
    assembly.min_vector_score         the vector scores

and two parameters have ranges that a walk stays in:

    assembly.max_tokens      the first k selected with a budget B, which use U tokens, are the same for every budget U..B
    dedup.similarity         the walk at s is the same from the closest pair it kept to the closest that it met as a duplicate

Source: RRF is linear in the list weights (Cormack et al. 2009); docs/internals/specification.md, "threshold" to "assembly".

Replays of one evidence under one config while one parameter varies, and the intervals of its range with constant results.

Each value is replayed at most once. The boundary between neighbours with different results is searched: next to an event (a value at
which results may change) if one lies between them, else, or if the replays disagree, by bisection. Both ends of an interval were
replayed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.model import changed
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.evidence import VARIANT_KINDS
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.replay import run, single_table
from cems_workbench.pipeline.stages import ABSTAIN, ADJUST, ASSEMBLY, DEDUP, FILTER, FUSION, GAP, LISTS, RERANK
from cems_workbench.pipeline.stages.abstain import CONFIDENCE_FEATURES, FeatureKind
from cems_workbench.pipeline.stages.assembly import best_cosines, on_scale
from cems_workbench.pipeline.stages.fusion import FusionArrays, linear_in_weights
from cems_workbench.pipeline.stages.stage import AnyStage, PipelineRun, StageInput
from cems_workbench.pipeline.table import Bools, Floats

LINEAR = frozenset(
    {
        # Another system's fused list takes no part at all at weight 0, so its line has a step there.
        *(f"lists.{source.name}.weight" for source in LIST_SOURCES if not source.engine_fusion),
        *(f"variants.{kind}_weight" for kind in VARIANT_KINDS),
        "fusion.top_rank_bonus.rank1",
        "fusion.top_rank_bonus.rank2_3",
        "fusion.multi_list_boost",
    }
)
LINE_TOLERANCE = 1e-13
"""Lines that differ by less than this share of the largest score count as one line without a crossing."""


class ParameterSweep:
    """The results at each value of the parameter `path`. `k`: number of results compared. `unscored`: the largest
    number of candidates that the reranker needed and had not scored."""

    def __init__(
        self, evidence: Evidence, config: PipelineConfig, path: str, k: int, switched_off: Collection[int] = ()
    ) -> None:
        self.table = single_table(evidence)
        self.config = config
        self.path = path
        self.k = k
        self.count = 0
        self.unscored = 0
        self._off = tuple(sorted(switched_off))
        self._outcomes: dict[Any, tuple[tuple[str, ...], int]] = {}

    def stages(self, value: Any) -> PipelineRun:
        """Every stage's arrays at a value."""
        self.count += 1
        return run(self.table, changed(self.config, self.path, value), self._off)

    def results(self, value: Any) -> tuple[str, ...]:
        """The first k results at a value."""
        return self._outcome(value)[0]

    def depth(self, value: Any) -> int:
        """The depth of the order after adjust that these results depend on: the largest rank there of a result. With
        fewer than k results (and fewer than the limit), all candidates after the score gap were considered."""
        return self._outcome(value)[1]

    def _outcome(self, value: Any) -> tuple[tuple[str, ...], int]:
        if value not in self._outcomes:
            stages = self.stages(value)
            order = stages.of(ASSEMBLY).after.order(0)
            limit = changed(self.config, self.path, value).assembly.limit
            wanted = self.k if limit is None else min(self.k, limit)
            order = considered = order[: self.k]
            if self.config.rerank.position == "returned":
                # A reranker of the results puts any of those it reads first, whatever their rank before.
                considered = stages.of(RERANK).after.order(0)
            ranks = stages.of(ADJUST).after.rank[0, considered]
            depth = int(ranks.max()) if len(order) >= wanted else int(stages.of(GAP).after.alive[0].sum())
            ids = self.table.ids[0]
            self.unscored = max(self.unscored, sum(len(need.memory_ids) for need in stages.of(RERANK).needs(0)))
            self._outcomes[value] = tuple(ids[int(c)] for c in order), depth
        return self._outcomes[value]


Results = tuple[str, ...]
Replayed = Callable[[Any], Results]

EVENT_OFFSETS = (1.0, 10.0, 100.0, 1000.0)
"""Distances from an event at which its two sides are replayed, in tolerances; lines crossing at a small angle need more."""


@dataclass(frozen=True, slots=True)
class ConstantInterval:
    """An interval of values with the same results; `first` and `last` were replayed."""

    first: Any
    last: Any
    results: Results


@dataclass(frozen=True)
class BoundarySearch:
    """Search for boundaries: to a distance of `least` (1 for whole numbers), first at distance `beside` from an event."""

    results: Replayed
    least: float
    whole: bool
    beside: float
    events: Sequence[float] = ()

    def segments(self, samples: Sequence[Any]) -> tuple[list[ConstantInterval], int]:
        """The segments over ascending samples, and how many changes were not where an event is."""
        found: list[ConstantInterval] = []
        searched = 0
        for value in samples:
            right = ConstantInterval(value, value, self.results(value))
            if found and found[-1].results != right.results:
                pair = self._at_an_event(found[-1], right)
                between = pair or list(self._bisected(found[-1].last, right.first))
                searched += pair is None and bool(between)
                for inner in between:
                    _append(found, ConstantInterval(inner, inner, self.results(inner)))
            _append(found, right)
        return found, searched

    def _at_an_event(self, left: ConstantInterval, right: ConstantInterval) -> list[Any] | None:
        """Two values on either side of an event with the results of the neighbours; None if there is no such event."""
        if self._close(left.last, right.first):
            return []
        low, high = bisect_left(self.events, left.last), bisect_right(self.events, right.first)
        for event in self.events[low:high]:
            for far in EVENT_OFFSETS:
                pair = [max(left.last, event - far * self.beside), min(right.first, event + far * self.beside)]
                if [self.results(value) for value in pair] == [left.results, right.results]:
                    return pair
        return None

    def _bisected(self, low: Any, high: Any) -> Iterator[Any]:
        """Values between, ascending, that close in on each change met on the way."""
        if self._close(low, high) or self.results(low) == self.results(high):
            return
        middle = (low + high) // 2 if self.whole else (low + high) / 2
        if middle in (low, high):
            return
        yield from self._bisected(low, middle)
        yield middle
        yield from self._bisected(middle, high)

    def _close(self, low: Any, high: Any) -> bool:
        return bool(high - low <= self.least)


def _append(found: list[ConstantInterval], segment: ConstantInterval) -> None:
    if found and found[-1].results == segment.results:
        found[-1] = ConstantInterval(found[-1].first, segment.last, segment.results)
    else:
        found.append(segment)


_ADJUST = "pinned_factor time_decay.alpha count.alpha feedback.base feedback.span project.same project.different project.untagged"
FACTORS = {"rerank.neutral_unit", *(f"adjust.{name}" for name in _ADJUST.split())}
HALF_LIFE, BLEND = "adjust.time_decay.half_life_days", "fusion.score_blend"
QUARTERS = (0.25, 0.75)


@dataclass(frozen=True)
class LineKind:
    """How scores are linear in a parameter: `bend(score)` in `to(value)`; `scaled` by the spread; whether it changes `fused` scores."""

    bend: Callable[[Floats], Floats] = lambda score: score
    to: Callable[[float], float] = lambda value: value
    back: Callable[[float], float] = lambda place: place
    scaled: bool = False
    fused: bool = False


def line_kind(turned: ParameterSweep) -> LineKind | None:
    """None if no score is known to be linear in the parameter under this config."""
    fusion = turned.config.fusion
    if turned.path in LINEAR and linear_in_weights(fusion):
        return LineKind(scaled=fusion.normalize == "minmax", fused=True)
    if turned.path == BLEND:
        return LineKind(fused=True)
    if turned.path == "rerank.neutral_unit" and turned.config.rerank.position == "returned":
        return None  # it comes after the scores that are compared
    if turned.path in FACTORS:
        return LineKind()
    if turned.path == HALF_LIFE:
        decay = turned.config.adjust.time_decay
        if decay.mode == "linear" or decay.floor > 0 or decay.alpha is not None:
            return None  # it has a corner, or is a sum
        bend = np.log if decay.mode == "exponential" else lambda score: -1 / score
        return LineKind(bend, lambda value: 1 / value, lambda place: 1 / place)
    return None


@dataclass(frozen=True, eq=False)
class Ends:
    """(2, C) or (2): values of two replays of a piece, extrapolated to its ends. `fused` and `adjusted` scores, the
    `minimum` of the filter, what a score of `one` is, and the floors of the score gap: (2, C) when a candidate is the
    first, and the `highest`, when the first is clamped."""

    fused: Floats
    adjusted: Floats
    minimum: Floats | None
    one: Floats
    floor: Floats
    highest: Floats


def solved(turned: ParameterSweep, low: float, high: float, depth: int) -> tuple[list[float], bool] | None:
    """Every event of low..high that the first `depth` of the order depend on, and whether these are all. None if the
    scores are not linear."""
    kind = line_kind(turned)
    if kind is None:
        return None
    pieces = _pieces(turned, kind, low, high)
    events: set[float] = {low, high}
    complete = True
    for start, end in pairwise(pieces):
        events |= {start, end}
        places = [kind.to(start), kind.to(end)]
        between = [places[0] + share * (places[1] - places[0]) for share in QUARTERS]
        runs = [turned.stages(kind.back(place)) for place in between]
        ends = _ends(turned, kind, runs)
        if ends is None:
            return None
        complete &= all(_ordered_by_lines(turned, kind, run) for run in runs)
        for share in _meetings(turned, kind, ends, depth):
            value = kind.back(places[0] + share * (places[1] - places[0]))
            events.add(min(max(value, low), high))
    return sorted(events), complete


def _pieces(turned: ParameterSweep, kind: LineKind, low: float, high: float) -> list[float]:
    """The values at which another candidate gets the lowest or highest raw score, with low and high."""
    if not kind.fused:
        return [low, high]
    stages = [turned.stages(value).of(FUSION) for value in (low, high)]
    if not kind.scaled or stages[0].fields(0).bypassed or not stages[0].after.alive.any():
        return [low, high]
    first, last = (_raw(stage) for stage in stages)
    shares = {0.0, 1.0, *crossings(first, last), *crossings(-first, -last)}
    return [low + share * (high - low) for share in sorted(shares)]


def _ends(turned: ParameterSweep, kind: LineKind, runs: Sequence[PipelineRun]) -> Ends | None:
    """The lines at the ends of a piece; None if the candidates differ or a score is negative."""
    config, ratio = turned.config, turned.config.gap.ratio
    compared = [run.of(FUSION).after.alive[0] if kind.fused else run.of(ADJUST).entered[0] for run in runs]
    # After the factors of adjust, before the clamp; 0 if nothing entered fusion.
    factored = (np.where(run.of(FUSION).after.alive[0], run.of(ADJUST).unclamped[0], 0.0) for run in runs)
    scores = [np.where(alive, score, 1.0) for alive, score in zip(compared, factored, strict=True)]
    if not np.array_equal(*compared) or min(score.min(initial=0.0) for score in scores) < 0:
        return None
    # A score of 0 stays below, and `bend` is undefined for it.
    positive = kind.fused | ((scores[0] > 0) & (scores[1] > 0))
    columns = np.flatnonzero(compared[0] & positive)
    rows = []
    for done, score in zip(runs, scores, strict=True):
        fusion = done.of(FUSION)
        spread = _spread(fusion) if kind.scaled else 1.0
        one = float(kind.bend(np.ones(1))[0])
        highest = float(kind.bend(np.full(1, ratio))[0]) if ratio > 0 else 0.0
        floor = kind.bend(ratio * score[columns]) if ratio > 0 else np.zeros(len(columns))
        values = (fusion.after.score[0, columns], kind.bend(score[columns]), config.filter.min_score or 0.0)
        rows.append([np.asarray(value) * spread for value in (*values, one, floor, highest)])
    fused, adjusted, minimum, ones, floors, heights = (_extrapolated(*pair) for pair in zip(*rows, strict=True))
    filtered = config.filter.min_score is not None and not FILTER.is_off(config)
    return Ends(fused, adjusted, minimum if filtered else None, ones, floors, heights)


def _spread(fusion: FusionArrays) -> float:
    raw = _raw(fusion)
    spread = float(raw.max(initial=-np.inf) - raw.min(initial=np.inf)) if len(raw) else 0.0
    return 1.0 if fusion.fields(0).bypassed or spread <= 0 else spread


def _raw(fusion: FusionArrays) -> Floats:
    """Raw scores of the living."""
    raw: Floats = fusion.raw[0, fusion.after.alive[0]]
    return raw


def _extrapolated(first: Floats, last: Floats) -> Floats:
    """From the quarter points of a piece to its ends."""
    half = (last - first) / 2
    return np.array([first - half, last + half])


def _ordered_by_lines(turned: ParameterSweep, kind: LineKind, run: PipelineRun) -> bool:
    """Whether the results follow from orders and thresholds of lines alone."""
    rerank = turned.config.rerank
    diverse = run.of(ASSEMBLY).fields(0).strategy == "mmr"
    if not ABSTAIN.is_off(turned.config) or (rerank.expected_misses is not None and not RERANK.is_off(turned.config)):
        return False  # who is read depends on all scores
    by_score = rerank.combine != "replace" and rerank.retrieval_score == "fused"
    if rerank.position == "returned" and not RERANK.is_off(turned.config):
        return not (diverse or by_score or rerank.skip_if_few or rerank.score_window < 1)
    if not reranks(turned):
        return not diverse
    followers = rerank.below_depth == "below" or bool(run.of(RERANK).needs(0))
    if kind.fused:
        return not (rerank.skip_if_few or followers or by_score)
    return not diverse and not (followers and turned.path == "rerank.neutral_unit")


def reranks(turned: ParameterSweep) -> bool:
    """Whether there is a reranker between fusion and adjust."""
    return not RERANK.is_off(turned.config) and turned.config.rerank.position == "before_adjust"


def _meetings(turned: ParameterSweep, kind: LineKind, ends: Ends, depth: int) -> Iterator[float]:
    """The shares of a piece, 0..1, at which something meets."""
    config = turned.config
    always: Bools = np.ones(ends.fused.shape[1], dtype=bool)
    ever = always
    if kind.fused and ends.minimum is not None:
        yield from roots(ends.fused - ends.minimum[:, None])
        margin = ends.fused - ends.minimum[:, None]
        rounding = LINE_TOLERANCE * max(float(np.abs(ends.fused).max(initial=0.0)), LINE_TOLERANCE)
        always, ever = np.all(margin > rounding, axis=0), np.any(margin > -rounding, axis=0)
    if kind.fused and config.filter.percentile > 0:
        yield from _pairs(ends.fused, np.arange(len(always)))
        always = np.zeros(len(always), dtype=bool)  # the percentile may drop any of them
    if kind.fused and reranks(turned):
        head = config.rerank.depth
        yield from _pairs(ends.fused, contenders(ends.fused, always, ever, len(always) if head is None else head, None))
        if config.rerank.score_window < 1:
            for top in contenders(ends.fused, always, ever, 1, None):
                yield from roots(ends.fused - (1 - config.rerank.score_window) * ends.fused[:, [top]])
        return
    one = ends.one if config.adjust.clamp else None
    rivals = contenders(ends.adjusted, always, ever, depth, one)
    yield from _pairs(ends.adjusted, rivals)
    if one is not None:
        yield from roots(ends.adjusted - one[:, None])
    if config.gap.ratio > 0:
        for top in contenders(ends.adjusted, always, ever, 1, one):
            yield from roots(ends.adjusted - ends.floor[:, [top]])
        yield from roots(ends.adjusted - ends.highest[:, None])


def contenders(scores: Floats, always: Bools, ever: Bools, depth: int, one: Floats | None) -> np.ndarray:
    """Indices of those that may be among the first `depth` somewhere between the ends (2, C). The others are not `ever`
    there, or have `depth` candidates above them at both ends, hence everywhere: candidates that are `always` there.
    With a clamp, where scores past `one` are equal, only what stays below it, or has the later id, is surely below."""
    above: Bools = np.all(scores[:, :, None] > scores[:, None, :], axis=0)
    if one is not None:
        unclamped: Bools = np.all(scores < one[:, None], axis=0)
        places = np.arange(scores.shape[1])
        above &= unclamped[None, :] | (places[:, None] < places[None, :])
    return np.flatnonzero(ever & ((above & always[:, None]).sum(axis=0) < depth))


def _pairs(scores: Floats, indices: np.ndarray) -> Iterator[float]:
    """The shares at which any two lines meet."""
    some = scores[:, indices]
    first, second = np.triu_indices(len(indices), 1)
    yield from roots(some[:, first] - some[:, second], float(np.abs(some).max(initial=0.0)))


def _scores(turned: ParameterSweep, value: float, stage: AnyStage = FUSION) -> Floats:
    after = turned.stages(value).of(stage).after
    scores: Floats = after.score[0, after.alive[0]]
    return scores


def _percentiles(turned: ParameterSweep, value: float) -> Floats:
    scores = _scores(turned, value)
    least = turned.config.filter.min_score
    left = len(scores) if least is None else int((scores >= least).sum())
    return np.array([100 * i / (left - 1) for i in range(left)]) if left > 1 else np.array([])


def _gaps(turned: ParameterSweep, value: float) -> Floats:
    scores = _scores(turned, value, ADJUST)
    top = scores.max(initial=0.0)
    return scores / top if top > 0 else np.array([])


def _list_scores(turned: ParameterSweep, value: float) -> Floats:
    if turned.config.threshold.mode != "fixed":
        return np.array([])
    lists = turned.stages(value).of(LISTS).lists
    return np.array([]) if lists is None else lists.score[0, lists.present[0]]


def _shares(turned: ParameterSweep, value: float) -> Floats:
    limit = turned.config.assembly.limit
    if turned.config.threshold.mode != "adaptive" or limit is None:
        return np.array([])
    return np.arange(2 * limit + 1) / limit


def _signal(kind: FeatureKind) -> Callable[[ParameterSweep, float], Floats]:
    def value(turned: ParameterSweep, value: float) -> Floats:
        said: Floats = turned.stages(value).of(ABSTAIN).signals(kind.name)
        return said[~np.isnan(said)]

    return value


def _vector_scores(turned: ParameterSweep, value: float) -> Floats:
    run = turned.stages(value)
    lists = run.of(LISTS).lists
    if lists is None:
        return np.array([])
    given = StageInput(turned.table, turned.config, frozenset(), run.of(ASSEMBLY).before, lists)
    return np.unique(on_scale(best_cosines(given), turned.config.lists.vector.scale)[0])


LEVELS: dict[str, Callable[[ParameterSweep, float], Floats]] = {
    "filter.min_score": _scores,
    "filter.percentile": _percentiles,
    "gap.ratio": _gaps,
    "threshold.fixed": _list_scores,
    "threshold.adaptive.target_ratio": _shares,
    "assembly.min_vector_score": _vector_scores,
    **{kind.path: _signal(kind) for kind in CONFIDENCE_FEATURES.values()},
}


def idle(turned: ParameterSweep, value: float) -> bool:
    """Whether the parameter belongs to a part that is off under this config, so that no value has an effect."""
    if turned.path.startswith("threshold.adaptive."):
        return turned.config.threshold.mode != "adaptive"
    if turned.path == "assembly.mmr_lambda":
        return turned.stages(value).of(ASSEMBLY).fields(0).strategy != "mmr"
    return False


def budget_samples(turned: ParameterSweep, low: int, high: int) -> list[int]:
    """The first and the last token budget of each selection of the first k in low..high, ascending."""
    samples: set[int] = set()
    budget = high
    while budget >= low:
        stage = turned.stages(budget).of(ASSEMBLY)
        first = stage.after.order(0)[: turned.k]
        used = int(turned.table.tokens[0, first].sum())
        if turned.config.assembly.min_vector_score is not None:
            below = stage.fields(0).below_vector_floor  # what was dropped afterwards took its tokens before
            every = [*stage.after.order(0).tolist(), *(turned.table.ids[0].index(key) for key in below)]
            used = int(turned.table.tokens[0, every].sum())
        samples |= {max(low, used), budget}
        budget = used - 1
    return sorted(samples)


def similarity_samples(turned: ParameterSweep, low: float, high: float) -> list[float]:
    """The first and the last similarity of each walk in low..high, ascending."""
    if DEDUP.is_off(turned.config):
        return [low, high]
    cosines, has = turned.table.cosines(0)
    samples: set[float] = {high}
    value = low
    while value <= high:
        stage = turned.stages(value).of(DEDUP)
        order = [int(c) for c in stage.before.order(0) if has[c]]
        kept: list[int] = []
        closest = np.inf
        for c in order:
            if stage.after.alive[0, c]:
                kept.append(c)
            else:
                closest = min(closest, float(cosines[c, kept].max()))
        last = min(high, closest)
        samples |= {value, last}
        value = float(np.nextafter(last, np.inf))
    return sorted(samples)


def crossings(first: Floats, last: Floats) -> Iterator[float]:
    """Shares of the range at which another line becomes the highest."""
    slope = last - first
    leader = int(np.lexsort((-slope, -first))[0])
    share = 0.0
    while True:
        steeper = slope - slope[leader]
        at = np.divide(first[leader] - first, steeper, out=np.full(len(slope), np.inf), where=steeper > 1e-15)
        at = np.where(at > share + 1e-12, at, np.inf)
        share = float(at.min())
        if share >= 1:
            return
        yield share
        leader = int(np.lexsort((-slope, at))[0])


def roots(difference: Floats, size: float | None = None) -> Iterator[float]:
    """Shares at which lines (2, N) are 0, those that are 0 throughout left out."""
    first, last = difference
    size = float(np.abs(difference).max(initial=0.0)) if size is None else size
    apart = np.maximum(np.abs(first), np.abs(last)) > LINE_TOLERANCE * max(size, LINE_TOLERANCE)
    crossing = apart & (first * last <= 0) & (first != last)
    yield from (first[crossing] / (first[crossing] - last[crossing])).tolist()
