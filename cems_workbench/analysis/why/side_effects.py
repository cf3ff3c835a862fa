"""Side effects of a change: on the other results of this query, and on every labelled query.

Of this query tau and rbo (`analysis.ranks`), with the memory taken out of both lists of results. If the memory comes in, the one
result that it displaces does not count; every further result that is gone does.

Of the labelled queries, replayed as one batch and compared query by query:

    hit@k    any relevant memory in the first k
    nDCG@10  the graded gain by rank, divided by the best possible one

They are the measures of `evaluation.metrics`, with the relevance grade of the query's set and the same queries: those without a
relevant memory count for neither. Whether the change loses nDCG@10 is the verdict of `evaluation.verdict`, as `evaluate` reaches it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cems_workbench.analysis.ranks import kendall, rbo
from cems_workbench.analysis.stage_mistakes import KnownMistake, StageMistakes
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.metrics import GradedRankings, Measure, ideal_grades, relevance_words
from cems_workbench.evaluation.verdict import Verdict, verdict_of_values
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.pipeline.stages import ASSEMBLY, RERANK
from cems_workbench.pipeline.table import Bools, Floats


@dataclass(frozen=True, slots=True)
class SideEffects:
    """tau and rbo are 1 if the other results do not change; `gone` of them, beyond the displaced one, are missing."""

    tau: float
    rbo: float
    gone: int = 0


def side_effects(before: Sequence[str], after: Sequence[str], memory_id: str) -> SideEffects:
    """Side effects on the results other than `memory_id`; none if there was no result."""
    if not before:
        return SideEffects(1.0, 1.0)
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
    """The evidence of labelled queries, kept.

    `grades` are judgments by qid and memory id, `relevant_from` the lowest relevant grade of each query, 1 where it is not named, and
    `scope` and `sampled` say of how many queries these are some, as in `LabelledEffect`.
    """

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
