"""Trial: a changed config replayed, with what it does to one memory, to the other results, and to the judged queries.

A memory that is level with others counts as the last of them, so that no change brings it in by its id. A change that leaves fewer than
half as many results, or fewer than half as many different scores among them, or replaces them all, removes what ranks instead of moving
the memory: no fix.

Other results are compared by tau and rbo (`analysis.ranks`) without the memory; the one that it displaces does not count as gone. Judged
queries are replayed as one batch, with the measures, grades and verdict (nDCG@10) of `evaluate`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

import numpy as np

from cems_workbench.analysis.ranks import kendall, rbo
from cems_workbench.analysis.stage_mistakes import KnownMistake, StageMistakes
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.metrics import GradedRankings, Measure, ideal_grades, relevance_words
from cems_workbench.evaluation.verdict import Verdict, verdict_of_values
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.missing_evidence import gathered_parameters
from cems_workbench.pipeline.replay import run, single_table, table_against, to_table
from cems_workbench.pipeline.stages import (
    ASSEMBLY,
    CANDIDATE_STAGES,
    FUSION,
    RERANK,
    STAGES,
    stages_in_order,
)
from cems_workbench.pipeline.stages.fusion import FusionArrays
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow
from cems_workbench.pipeline.stages.stage import PipelineRun
from cems_workbench.pipeline.sweep import sweep
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, Ranking, chosen_in_order

_TO_SURVIVE = CANDIDATE_STAGES[: CANDIDATE_STAGES.index(ASSEMBLY)]
"""The stages that can lose a memory before assembly."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one config: the results in order, the memory's rank among them (None: not in them).

    `stood` is that rank, otherwise the one with which the memory reached assembly (None: it did not). `distance` compares
    outcomes, lower is nearer: the number of stages after its drop, then the share of the k-th score that it lacks before assembly.
    `levels` are the different scores among the results, or before normalisation those of fusion if they are fewer. `needs`: scores of
    the reranker that the config lacks; its outcome may change with them.
    """

    rank: int | None
    stood: int | None
    distance: tuple[int, float]
    results: tuple[str, ...]
    scores: bytes
    levels: int
    needs: int = field(default=0, compare=False)


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
        survived, needs, before = np.zeros(len(configs), dtype=np.int64), [0] * len(configs), None
        for now in sweep(self.table, configs, self.switched_off):
            if now.stage is FUSION:
                fused = [(cast(FusionArrays, arrays).raw, row) for arrays, row in now.arrays]
            if now.stage is RERANK:
                needs = [_lacking(arrays, row) for arrays, row in now.arrays]
            if now.stage is ASSEMBLY:
                break
            if self.column is not None and now.stage in _TO_SURVIVE:
                survived += now.after.alive[now.at, self.column]
            before = now
        assert before is not None
        both = [(one.after, one.after.leading(self.table.shape[1])) for one in (now, before)]
        known: dict[Hashable, Outcome] = {}
        found = list[Outcome]()
        for *places, (raw, row), kept, lacking in zip(
            now.at.tolist(), before.at.tolist(), fused, survived.tolist(), needs, strict=True
        ):
            key = *places, id(raw), row, kept, lacking
            if key not in known:
                results, reached = (
                    chosen_in_order(ranking.alive[at, None], ranking.score[at, None], lead[at, None])
                    for (ranking, lead), at in zip(both, places, strict=True)
                )
                known[key] = self._outcome(self.table, self.column, results, reached, raw[row], kept, lacking)
            found.append(known[key])
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

    def _replayed(self, table: CandidateTable, column: int | None, config: PipelineConfig) -> Outcome:
        self.count += 1
        stages = run(table, config, self.switched_off)
        assembly = stages.of(ASSEMBLY)
        kept = sum(bool(stages.of(stage).after.alive[0, column]) for stage in _TO_SURVIVE) if column is not None else 0
        fused, lacking = stages.of(FUSION).raw[0], _lacking(stages.of(RERANK), 0)
        return self._outcome(table, column, assembly.after, assembly.before, fused, kept, lacking)

    def _outcome(
        self,
        table: CandidateTable,
        column: int | None,
        results: Ranking,
        before: Ranking,
        fused: Floats,
        survived: int,
        needs: int,
    ) -> Outcome:
        """Of rankings of the one query: the results, and before assembly; `survived` stages kept the memory."""
        order = _first(results, table.shape[1])
        names = tuple([table.ids[0][c] for c in order.tolist()])
        scores = results.score[0, order]
        levels = min([len(set(np.round(values, SCORE_DECIMALS).tolist())) for values in (scores, fused[order])])
        if column is None:
            return Outcome(None, None, (len(STAGES), 1.0), names, b"", levels, needs)
        rank = int(results.rank[0, column]) or None
        stood = rank or int(before.rank[0, column]) or None
        distance = len(_TO_SURVIVE) - survived, self._lacks(before, column)
        return Outcome(rank, stood, distance, names, scores.tobytes(), levels, needs)

    def _lacks(self, before: Ranking, column: int) -> float:
        """1 - own score / score of the last of the first k; 1 if the memory is absent."""
        if not before.alive[0, column]:
            return 1.0
        wanted = float(before.score[0, _first(before, self.k)[-1]])
        return 1 - float(before.score[0, column]) / wanted if wanted > 0 else 1.0


def _lacking(arrays: StageArrays[StageRow, StageFields], q: int) -> int:
    return sum(len(need.memory_ids) for need in arrays.needs(q))


def _first(ranking: Ranking, count: int) -> Ints:
    """The first candidates of the only query, best first."""
    lead = ranking.leading(count)[0]
    found: Ints = lead[lead >= 0]
    return found


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

    def __bool__(self) -> bool:
        """Whether changes can be measured on it: a query has a relevant memory."""
        return bool(self.qids)

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
