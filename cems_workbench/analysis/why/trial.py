"""Trial: a changed config replayed, with what it does to one memory, to the other results, and to the judged queries.

A memory that is level with others counts as the last of them, so that no change brings it in by its id. A change that leaves fewer than
half as many results, or fewer than half as many different scores among them, or replaces them all, removes what ranks instead of moving
the memory: no fix.

Breakpoints of a fusion weight are solved instead of searched: every candidate's raw fused score is a straight line in a list weight, a
variant weight, a top-rank bonus or the boost. With minmax the final numerator of candidate c,

    g_c(w) = factors_c · [(1 - blend)·(raw_c(w) - lowest(w)) + blend·best_c·(highest(w) - lowest(w))],

is a straight line wherever the same candidates are lowest and highest, so all weights at which the memory and a rival change
places are roots of straight lines. Between two roots the order is fixed. The lines are read off two replays, so the formula
of a stage stays in its stage; what comes after adjust (budget, diversity) is not solved, so every answer is verified by replay.

Other results are compared by tau and rbo (`analysis.ranks`) without the memory; the one that it displaces does not count as gone. Judged
queries are replayed as one batch, with the measures, grades and verdict (nDCG@10) of `evaluate`.

Source: RRF is linear in the list weights (Cormack et al. 2009); docs/internals/specification.md, "fusion" and "adjust".
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import cast

import numpy as np

from cems_workbench.analysis.ranks import kendall, rbo
from cems_workbench.analysis.stage_mistakes import KnownMistake, StageMistakes
from cems_workbench.config import PipelineConfig
from cems_workbench.config.model import changed
from cems_workbench.evaluation.metrics import GradedRankings, Measure, ideal_grades, relevance_words
from cems_workbench.evaluation.verdict import Verdict, verdict_of_values
from cems_workbench.pipeline.evidence import VARIANT_KINDS, Evidence
from cems_workbench.pipeline.fusion_methods import fusion_method
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.missing_evidence import gathered_parameters
from cems_workbench.pipeline.replay import run, single_table, table_against, to_table
from cems_workbench.pipeline.stages import (
    ADJUST,
    ASSEMBLY,
    CANDIDATE_STAGES,
    DEDUP,
    FUSION,
    RERANK,
    STAGES,
    SUPERSESSION,
    stages_in_order,
)
from cems_workbench.pipeline.stages.fusion import FusionArrays, linear_in_weights
from cems_workbench.pipeline.stages.stage import PipelineRun
from cems_workbench.pipeline.sweep import sweep
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, Ranking

_TO_SURVIVE = CANDIDATE_STAGES[: CANDIDATE_STAGES.index(ASSEMBLY)]
"""The stages that can lose a memory before assembly."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one config: the results in order, the memory's rank among them (None: not in them).

    `stood` is that rank, otherwise the one with which the memory reached assembly (None: it did not). `distance` compares
    outcomes, lower is nearer: the number of stages after its drop, then the share of the k-th score that it lacks before assembly.
    `levels` are the different scores among the results, or before normalisation those of fusion if they are fewer.
    """

    rank: int | None
    stood: int | None
    distance: tuple[int, float]
    results: tuple[str, ...]
    scores: bytes
    levels: int


MANY = 3
"""Results of which at least one must stay."""
SCORE_DECIMALS = 12
"""Scores of results are different if they are at this many decimals."""


AT_ONCE = 64
"""Configs that are replayed at once."""


class Trials:
    """The replays of one evidence, with `switched_off` query variants left out as in `replay`. `k`: the memory must be
    among the first k results. `present` is the config that is explained; without it no change spoils anything."""

    def __init__(
        self,
        evidence: Evidence,
        memory_id: str,
        k: int,
        switched_off: Collection[int] = (),
        present: PipelineConfig | None = None,
    ) -> None:
        self.evidence = evidence
        self.memory_id = memory_id
        self.k = k
        self.switched_off = tuple(sorted(switched_off))
        self.gathered = gathered_parameters(evidence.notes)
        """By path, the depths and other parameters that the evidence was gathered with; empty without a record."""
        self.table = table_against(evidence, memory_id)
        self.column = len(self.table.ids[0]) - 1 if memory_id in self.table.ids[0] else None
        self.older = frozenset(
            key for key, own in evidence.superseded.items() if any(one.memory_id == memory_id for one in own)
        )
        """The candidates that the memory supersedes."""
        self.count = 0
        self._kept: dict[PipelineConfig, Outcome] = {}
        self._shown: dict[PipelineConfig, Outcome] = {}
        self.now = None if present is None else self.outcome(present)

    def on(self, evidence: Evidence) -> Trials:
        """The same on other evidence of the query, with variants that begin with the same ones."""
        other = Trials(evidence, self.memory_id, self.k, self.switched_off)
        other.now = self.now
        return other

    def stages(self, config: PipelineConfig) -> PipelineRun:
        self.count += 1
        return run(self.table, config, self.switched_off)

    def replay(self, configs: Iterable[PipelineConfig]) -> None:
        """Replay these at once, so that `outcome` has them."""
        todo = list(dict.fromkeys(config for config in configs if config not in self._kept))
        for order in {stages_in_order(config) for config in todo}:
            alike = [config for config in todo if stages_in_order(config) == order]
            for start in range(0, len(alike), AT_ONCE):
                batch = alike[start : start + AT_ONCE]
                self._kept.update(zip(batch, self._swept(batch), strict=True))

    def _swept(self, configs: Sequence[PipelineConfig]) -> list[Outcome]:
        """The outcomes of configs that have their stages in one order."""
        self.count += len(configs)
        survived, before = np.zeros(len(configs), dtype=np.int64), None
        for now in sweep(self.table, configs, self.switched_off):
            if now.stage is FUSION:
                fused = [cast(FusionArrays, arrays).raw[row] for arrays, row in now.arrays]
            if now.stage is ASSEMBLY:
                break
            if self.column is not None and now.stage in _TO_SURVIVE:
                survived += now.after.alive[now.at, self.column]
            before = now
        assert before is not None
        order, ids = now.after.leading(self.table.shape[1]), self.table.ids[0]
        orders = [row[row >= 0] for row in order]
        names = [tuple([ids[c] for c in row.tolist()]) for row in orders]
        rounded, raw = np.round(now.after.score, SCORE_DECIMALS), np.round(fused, SCORE_DECIMALS)
        first, found = before.after.leading(self.k), list[Outcome]()
        for i, (at, reached) in enumerate(zip(now.at.tolist(), before.at.tolist(), strict=True)):
            scores = now.after.score[at, orders[at]]
            levels = min([len(set(values[orders[at]].tolist())) for values in (rounded[at], raw[i])])
            if self.column is None:
                found.append(Outcome(None, None, (len(STAGES), 1.0), names[at], b"", levels))
                continue
            rank = int(now.after.rank[at, self.column]) or None
            stood = rank or int(before.after.rank[reached, self.column]) or None
            distance = (
                len(_TO_SURVIVE) - int(survived[i]),
                self._lacks(before.after, self.column, first[reached], reached),
            )
            found.append(Outcome(rank, stood, distance, names[at], scores.tobytes(), levels))
        return found

    def outcome(self, config: PipelineConfig) -> Outcome:
        """The outcome of a config, ties against the memory; replayed at most once."""
        if config not in self._kept:
            self._kept[config] = self._replayed(self.table, self.column, config)
        return self._kept[config]

    def shown(self, config: PipelineConfig) -> Outcome:
        """The outcome as a search shows it, ties by id; replayed at most once."""
        if config not in self._shown:
            table = single_table(self.evidence)
            column = None if self.column is None else table.ids[0].index(self.memory_id)
            self._shown[config] = self._replayed(table, column, config)
        return self._shown[config]

    def succeeds(self, config: PipelineConfig) -> bool:
        """Whether the memory is among the first k results, level with none past them, and the change spoils no ranking."""
        found = self.outcome(config)
        return found.rank is not None and found.rank <= self.k and not self.spoils(found)

    def spoils(self, found: Outcome) -> bool:
        """Whether fewer than half of the present results, or of the different scores among them, are left, or none of `MANY` or more."""
        now = self.now
        if now is None:
            return False
        others = set(now.results) - {self.memory_id}
        replaced = len(others) >= MANY and others.isdisjoint(found.results)
        return replaced or 2 * len(found.results) < len(now.results) or 2 * found.levels < now.levels

    def stale_above(self, config: PipelineConfig) -> str | None:
        """The best ranked result shown that the memory supersedes and that is above it; None if there is none."""
        if not self.older:
            return None
        for result in self.shown(config).results:
            if result == self.memory_id:
                return None
            if result in self.older:
                return result
        return None

    def needs(self, config: PipelineConfig) -> int:
        """How many scores of the reranker this config lacks; its outcome may change with them."""
        if RERANK.is_off(config):
            return 0
        return sum(len(need.memory_ids) for need in self.stages(config).of(RERANK).needs(0))

    def _replayed(self, table: CandidateTable, column: int | None, config: PipelineConfig) -> Outcome:
        self.count += 1
        stages = run(table, config, self.switched_off)
        assembly = stages.of(ASSEMBLY)
        results, before = assembly.after, assembly.before
        order = _first(results, table.shape[1])
        names = tuple([table.ids[0][c] for c in order.tolist()])
        scores = results.score[0, order]
        fused = stages.of(FUSION).raw[0, order]
        levels = min([len(set(np.round(values, SCORE_DECIMALS).tolist())) for values in (scores, fused)])
        if column is None:
            return Outcome(None, None, (len(STAGES), 1.0), names, b"", levels)
        rank = int(results.rank[0, column]) or None
        stood = rank or int(before.rank[0, column]) or None
        survived = sum(bool(stages.of(stage).after.alive[0, column]) for stage in _TO_SURVIVE)
        distance = len(_TO_SURVIVE) - survived, self._lacks(before, column, _first(before, self.k))
        return Outcome(rank, stood, distance, names, scores.tobytes(), levels)

    def _lacks(self, before: Ranking, column: int, first: Ints, row: int = 0) -> float:
        """1 - own score / score of the last of the first k; 1 if the memory is absent."""
        if not before.alive[row, column]:
            return 1.0
        wanted = float(before.score[row, first[first >= 0][-1]])
        return 1 - float(before.score[row, column]) / wanted if wanted > 0 else 1.0


def _first(ranking: Ranking, count: int) -> Ints:
    """The first candidates of the only query, best first."""
    lead = ranking.leading(count)[0]
    found: Ints = lead[lead >= 0]
    return found


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


@dataclass(frozen=True, eq=False)
class Lines:
    """(C) per living candidate: raw = intercept + slope·w, best list score, product of the factors; `target` is the memory."""

    intercept: Floats
    slope: Floats
    best: Floats
    factor: Floats
    target: int

    def raw(self, weight: float) -> Floats:
        """(C) raw scores at a weight."""
        return self.intercept + self.slope * weight


@dataclass(frozen=True, slots=True)
class RankInterval:
    """An interval of weights without a change of ranks; `rank` is the memory's in it."""

    low: float
    high: float
    rank: int


def solvable(config: PipelineConfig, path: str) -> bool:
    """Whether scores are linear after fusion, and only factors change them before assembly."""
    return (
        path in LINEAR
        and linear_in_weights(config.fusion)
        and fusion_method(config.fusion).reads == "ranks"
        and RERANK.is_off(config)
        and DEDUP.is_off(config)
        and SUPERSESSION.is_off(config)
        and (not path.endswith("multi_list_boost") or config.fusion.normalize in ("none", "minmax"))
    )


def rank_intervals(trials: Trials, config: PipelineConfig, path: str, low: float, high: float) -> list[RankInterval]:
    """The cells of the range low..high in ascending order; empty if the memory is not in fusion."""
    lines = _lines(trials, config, path)
    if lines is None or high <= low:
        return []
    bounds, shares, minmax = {low, high}, {0.0, 1.0}, config.fusion.normalize == "minmax"
    if minmax:
        first, last = lines.raw(low), lines.raw(high)
        shares |= {*crossings(first, last), *crossings(-first, -last)}
    for start, end in pairwise(low + share * (high - low) for share in sorted(shares)):
        middle = lines.raw((start + end) / 2)
        spread = (int(middle.argmin()), int(middle.argmax())) if minmax else (None, None)
        values, top = _numerators(lines, config, np.array([start, end]), *spread)
        rivals = [*(values - values[lines.target]), *([top - values[lines.target]] if config.adjust.clamp else [])]
        bounds |= {start, end, *(start + share * (end - start) for share in roots(np.array(rivals).T))}
    edges = np.array(sorted(bounds))
    middles = (edges[:-1] + edges[1:]) / 2
    ranks = [_rank(lines, config, float(middle)) for middle in middles]
    cells = zip(edges[:-1].tolist(), edges[1:].tolist(), ranks, strict=True)
    joined = [list(same) for _, same in groupby(cells, key=itemgetter(2))]
    return [RankInterval(same[0][0], same[-1][1], same[0][2]) for same in joined]


def _lines(trials: Trials, config: PipelineConfig, path: str) -> Lines | None:
    at = (0.0, 1.0)
    first, second = (trials.stages(changed(config, path, value)) for value in at)
    fusions = [stages.of(FUSION) for stages in (first, second)]
    alive = np.flatnonzero(fusions[0].after.alive[0])
    target = np.flatnonzero(alive == trials.column)
    if not len(target) or not np.array_equal(alive, np.flatnonzero(fusions[1].after.alive[0])):
        return None
    raw = [fusion.raw[0, alive] for fusion in fusions]
    best, factor = fusions[0].best_list_score[0, alive], first.of(ADJUST).product()[0, alive]
    return Lines(raw[0], raw[1] - raw[0], best, factor, int(target[0]))


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


def _numerators(
    lines: Lines, config: PipelineConfig, at: Floats, lowest: int | None, highest: int | None
) -> tuple[Floats, Floats]:
    """(C, W) numerators at W weights, and (W) what a score of 1 is in them."""
    raw = lines.intercept[:, None] + lines.slope[:, None] * at
    blend = config.fusion.score_blend
    if lowest is None or highest is None:
        return lines.factor[:, None] * ((1 - blend) * raw + blend * lines.best[:, None]), np.ones(len(at))
    spread = raw[highest] - raw[lowest]
    inside = (1 - blend) * (raw - raw[lowest]) + blend * lines.best[:, None] * spread
    return lines.factor[:, None] * inside, spread


def _rank(lines: Lines, config: PipelineConfig, weight: float) -> int:
    raw = lines.raw(weight)
    ends = (int(raw.argmin()), int(raw.argmax())) if config.fusion.normalize == "minmax" else (None, None)
    if config.fusion.normalize == "minmax" and raw.min() == raw.max():  # all equal: each normalises to 1
        lines, ends = replace(lines, intercept=np.ones(len(raw)), slope=np.zeros(len(raw))), (None, None)
    values, top = _numerators(lines, config, np.array([weight]), *ends)
    score = np.minimum(values[:, 0], top[0]) if config.adjust.clamp else values[:, 0]
    own = score[lines.target]
    before = (score > own) | ((score == own) & (np.arange(len(score)) < lines.target))
    return 1 + int(before.sum())


@dataclass(frozen=True, slots=True)
class SideEffects:
    """tau and rbo are 1 if the other results do not change; `gone` of them, beyond the displaced one, are missing."""

    tau: float = 1.0
    rbo: float = 1.0
    gone: int = 0


UNMOVED = SideEffects()


def side_effects(before: Sequence[str], after: Sequence[str], memory_id: str) -> SideEffects:
    """Side effects on the results other than `memory_id`; none if there was no result."""
    if not before:
        return UNMOVED
    old, new = ([key for key in results if key != memory_id] for results in (before, after))
    if memory_id in after and memory_id not in before and len(old) > len(new):
        old = old[:-1]
    return SideEffects(kendall(old, new), rbo(old, new), len(set(old) - set(new)))


NDCG_DEPTH = 10
NDCG = Measure("nDCG", NDCG_DEPTH)
VALUE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class LabelledEffect:
    """Queries that gain and lose a hit, that get a better and a worse nDCG@10, and its mean before and after.

    `low` and `high` are the ends of the 95 % interval of the gain, as where configs are compared; NaN for one query. In `unscored`
    queries reranker scores are missing under the change, so that its effect is unknown. `verdict` says whether nDCG@10 is lost.
    `scope` says of how many judged queries these are some: " of 10,000"; empty if all were measured. `sampled`: they were drawn at
    random.
    """

    queries: int
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    better: int
    worse: int
    before: float
    after: float
    low: float
    high: float
    verdict: Verdict
    unscored: int = 0
    scope: str = ""
    sampled: bool = False

    @property
    def gain(self) -> float:
        """Of mean nDCG@10."""
        return self.after - self.before


def _relevance(grades: Sequence[int], judged: int) -> str:
    """The relevance grades of the measures, in words; for several grades only the lowest is named."""
    words = relevance_words(min(grades, default=1), len(grades), judged)
    return f"{words}; of some sets a higher grade" if len(set(grades)) > 1 else words


class LabelledSet:
    """The evidence of labelled queries, kept. `grades` are judgments by qid and memory id, `relevant_from` the lowest
    relevant grade of each query, 1 where it is not named, and `scope` and `sampled` say of how many queries these are
    some, as in `LabelledEffect`."""

    def __init__(
        self,
        evidences: Mapping[str, Evidence],
        grades: Mapping[str, Mapping[str, int]],
        relevant_from: Mapping[str, int] | None = None,
        scope: str = "",
        sampled: bool = False,
    ) -> None:
        self.scope, self.sampled = scope, sampled
        least = {qid: (relevant_from or {}).get(qid, 1) for qid in evidences}
        self.judged = sum(bool(grades.get(qid)) for qid in evidences)
        self.qids = sorted(qid for qid in evidences if any(g >= least[qid] for g in grades.get(qid, {}).values()))
        self.table = to_table([evidences[qid] for qid in self.qids])
        self._least = np.array([least[qid] for qid in self.qids], dtype=np.int64)
        self._grade = np.zeros(self.table.shape, dtype=np.int64)
        self._judged = np.zeros(self.table.shape, dtype=bool)
        self._ideal = ideal_grades([list(grades[qid].values()) for qid in self.qids])
        for q, qid in enumerate(self.qids):
            for c, memory_id in enumerate(self.table.ids[q]):
                if memory_id in grades[qid]:
                    self._judged[q, c], self._grade[q, c] = True, grades[qid][memory_id]
        self.relevance = _relevance(self._least.tolist(), self.judged)
        self._measured = lru_cache(maxsize=8)(self._measure)

    def effect(self, before: PipelineConfig, after: PipelineConfig, k: int) -> LabelledEffect:
        """The effect of the change from one config to the other; hits are counted at k."""
        (old_hit, old, _, present), (new_hit, new, unscored, changed) = (
            self._measured(before, k),
            self._measured(after, k),
        )
        same = present == changed
        verdict = verdict_of_values((after.name, before.name), NDCG, new - old, same_results=same)
        return LabelledEffect(
            queries=len(self.qids),
            gained=tuple(self.qids[q] for q in np.flatnonzero(new_hit & ~old_hit)),
            lost=tuple(self.qids[q] for q in np.flatnonzero(old_hit & ~new_hit)),
            better=int((new > old + VALUE_TOLERANCE).sum()),
            worse=int((new < old - VALUE_TOLERANCE).sum()),
            before=float(old.mean()) if len(old) else 0.0,
            after=float(new.mean()) if len(new) else 0.0,
            low=verdict.low,
            high=verdict.high,
            verdict=verdict,
            unscored=unscored,
            scope=self.scope,
            sampled=self.sampled,
        )

    def mistakes(self, config: PipelineConfig) -> list[KnownMistake]:
        """What the stages and lists of a config show of themselves over these queries."""
        found = StageMistakes()
        found.add(run(self.table, config), self.table, config, (self._grade, self._ideal))
        return found.found()

    def means(self, config: PipelineConfig, k: int) -> tuple[float, float]:
        """(hit@k, nDCG@10): the share of queries with a hit in the first k, and the mean; zeros without queries."""
        hit, gained, _, _ = self._measure(config, k)
        return (float(hit.mean()), float(gained.mean())) if self.qids else (0.0, 0.0)

    def _measure(self, config: PipelineConfig, k: int) -> tuple[Bools, Floats, int, bytes]:
        """(Q) hits and nDCG@10, how many queries lack reranker scores, and a digest of all results."""
        stages = run(self.table, config)
        results = stages.of(ASSEMBLY).after
        unscored = 0 if RERANK.is_off(config) else sum(bool(stages.of(RERANK).needs(q)) for q in range(len(self.qids)))
        order = results.leading(max(k, NDCG_DEPTH))
        filled, rows, there = order >= 0, np.arange(len(order))[:, None], np.maximum(order, 0)
        rankings = GradedRankings(
            np.where(filled, self._grade[rows, there], 0), filled & self._judged[rows, there], filled, self._ideal
        )
        hit: Bools = np.zeros(len(order), dtype=bool)
        for grade in np.unique(self._least).tolist():
            hit |= (self._least == grade) & (Measure("hit", k, grade).values(rankings) == 1)
        whole = results.leading(self.table.shape[1])
        digest = hashlib.sha256(whole[:, (whole >= 0).any(axis=0)].tobytes()).digest()
        return hit, NDCG.values(rankings), unscored, digest
