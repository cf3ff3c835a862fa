"""Coordinate search for the parameters under which a config comes closest to recorded answers.

    nearness      share of queries in the recorded order, up to equal recorded scores (`ties`)
                  + mean RBO of the first ten, 1 where the order is the same up to ties
                  + a tenth of the mean closeness of recorded scores: 1 for an equal one, 0 for one that is a standard deviation away;
                  empty answers count for half at most, else a config that returns nothing is near a system that seldom answers
    parts         first a part of the config alone is tried: without its reranker, and each of its lists alone, with and without it; what a
                  system does with one list is far from any step of one parameter
    a pass        of every parameter that acts, the best value (`explain.best_value`); the best of all is taken, if it gains enough
    passes        until nothing gains, or the configs or the changes that are allowed are used up
    refinement    after each change: the values of the changed parameters, one by one, in ever smaller steps
    afterwards    a change without which the others come as close is dropped

Every trial is a replay of all queries as one batch (`evaluation.batch`), and each config is replayed once. Parameters that
`idle_parameters` names are not tried; a value that needs other evidence is no trial (`missing_evidence.unmet`).

Source of the procedure: forward selection with one backward pass, as in stepwise regression (Efroymson, Multiple regression analysis,
1960).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cems_workbench.analysis.why.counterfactual import searched_specs, span
from cems_workbench.config import FieldSpec, PipelineConfig, difference, field_spec, field_specs, with_values
from cems_workbench.config.model import changed
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import Block, LabelledBatch
from cems_workbench.evaluation.metrics import rbo
from cems_workbench.jobs.recorded_answers import Production
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.effects import idle_parameters
from cems_workbench.pipeline.list_sources import SOURCES
from cems_workbench.pipeline.stages import ASSEMBLY, RERANK
from cems_workbench.pipeline.stages.stage import PipelineRun
from cems_workbench.pipeline.table import Bools, Floats, Ints
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Query
from workbench_fidelity.explain import Explanation, Trials, best_value, on_a_step, worth
from workbench_fidelity.lists import same_up_to_ties, tied_groups

DEPTH = 10
"""Depth of the RBO."""
EMPTY_WEIGHT = 0.5
"""Largest weight of all queries with an empty recorded answer together."""
CLOSE_OVERLAP = 0.6
"""Minimum share of a recorded answer that is in ours for a look at ties at the cut."""
SCORE_WEIGHT = 0.1
"""Weight of scores beside orders: many systems have scores of another scale."""
MIN_GAIN = 0.005
"""Minimum gain in nearness for another changed parameter."""
REFINED_GAIN = 1e-6
"""Minimum gain of another value of a parameter that is changed already."""
FIRST_STEP = 1 / 16
"""First step of a refinement, as a share of the slider's range."""
MAX_ROUNDS = 4
"""Rounds of a refinement over the changed parameters."""
MAX_CHANGES = 8
MAX_CONFIGS = 6000
"""Configs that are replayed at most."""
SWITCHED_SECTIONS = ("lists", "rerank", "query", "variants")
"""Sections whose gather switches and choices may be changed where the gathered evidence still serves, such as a list switched off."""


@dataclass(frozen=True, slots=True)
class NearAgreement:
    """Agreement with the recorded answers of `queries` queries.

    `same_order` counts orders that are the same up to equal recorded scores; `overlap` is the mean Jaccard overlap of the first k, `rbo`
    the mean RBO of the first ten, `scores` the share of recorded scores that are ours, 0 without any. `nearness` is what is searched
    for: 0 to 2.1, higher is closer.
    """

    queries: int
    same_order: int
    overlap: float
    rbo: float
    scores: float
    nearness: float


@dataclass(frozen=True, eq=False)
class _Wanted:
    """The recorded answers of a block's Q queries: L recorded memories, C candidates.

    `order` (Q, L) candidates, numbers past the candidates for memories that are none, -1 past the end. `groups` (Q, L) number of the group
    of equal recorded scores at each rank, `group_of` (Q, C) that of each candidate, -1 for one that was not returned. `scores` (Q, C), NaN
    where none was recorded.
    """

    order: Ints
    groups: Ints
    group_of: Ints
    scores: Floats

    @classmethod
    def of(cls, block: Block, productions: Sequence[Production], precision: float) -> _Wanted:
        rows, width = block.table.shape[0], block.table.shape[1]
        longest = max((len(one.recorded) for one in productions), default=0)
        order, groups = (np.full((rows, longest), -1, dtype=np.int64) for _ in range(2))
        group_of = np.full((rows, width), -1, dtype=np.int64)
        scores = np.full((rows, width), np.nan)
        for q, one in enumerate(productions):
            column = {key: c for c, key in enumerate(block.table.ids[q])}
            order[q, : len(one.recorded)] = [column.get(key, width + i) for i, key in enumerate(one.recorded)]
            rank = 0
            for g, group in enumerate(tied_groups(one.recorded, one.scores, precision)):
                for key in group:
                    groups[q, rank] = g
                    rank += 1
                    if key in column:
                        group_of[q, column[key]] = g
            for key, score in one.scores.items():
                if key in column:
                    scores[q, column[key]] = score
        return cls(order, groups, group_of, scores)

    def same(self, ours: Ints) -> Bools:
        """(Q) is ours, (Q, R), the recorded order, up to equal recorded scores?"""
        depth = max(ours.shape[1], self.order.shape[1])
        held = np.take_along_axis(self.group_of, np.maximum(ours, 0), axis=1) if self.group_of.shape[1] else ours
        # Two negative numbers, so that past the end of both is the same and a memory of ours alone is not.
        groups = _padded(np.where(ours < 0, -1, np.where(held < 0, -2, held)), depth)
        same: Bools = (groups == _padded(self.groups, depth)).all(axis=1)
        return same


def _padded(rows: Ints, depth: int) -> Ints:
    return np.pad(rows, ((0, 0), (0, depth - rows.shape[1])), constant_values=-1)


class NearReplays(Trials[NearAgreement]):
    """Results of a set of queries under many configs, compared with the recorded answers.

    `limit`: length that our results are cut to. `precision`: largest difference of equal scores. `depth` is the k of the overlap.
    `before_cut` are recorded scores before the last cut, by qid and memory. `score` adds the model scores that a config needs to evidence.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        evidences: Mapping[str, Evidence],
        productions: Mapping[str, Production],
        *,
        limit: int | None = None,
        precision: float = 1e-6,
        depth: int = DEPTH,
        before_cut: Mapping[str, Mapping[str, float]] | None = None,
        score: Callable[[Evidence, PipelineConfig], Evidence] | None = None,
    ) -> None:
        # A batch leaves out queries without grades: the recorded memories are grades here, and an empty answer is one too.
        grades = {query.qid: dict.fromkeys(productions[query.qid].order, 1) for query in queries}
        asked = [query if grades[query.qid] else replace(query, answerable=False) for query in queries]
        super().__init__()
        self._limit, self._depth, self._precision, self._score = limit, depth, precision, score
        self._productions, self._grades, self._before_cut = productions, grades, before_cut or {}
        self._encode(LabelledBatch(asked, evidences, grades))

    def _encode(self, batch: LabelledBatch) -> None:
        self.batch = batch
        of = [self._productions[qid] for qid in batch.qids]
        self._wanted = [_Wanted.of(block, [of[i] for i in block.places], self._precision) for block in batch.blocks]
        recorded = [score for one in of for score in one.scores.values()]
        self._recorded = len(recorded)
        self._spread = max(float(np.std(recorded)), self._precision) if recorded else 1.0
        empty = np.array([not one.recorded for one in of], dtype=bool)
        share = 1.0 if empty.all() else min(float(empty.mean()), EMPTY_WEIGHT)
        self._weights = np.where(empty, share / max(empty.sum(), 1), (1.0 - share) / max((~empty).sum(), 1))
        self._kept = {}

    def headroom(self, agreement: NearAgreement) -> float:
        """How much nearer than this anything can come."""
        return (2.0 + (SCORE_WEIGHT if self._recorded else 0.0) if self.batch.queries else 0.0) - agreement.nearness

    def complete(self, config: PipelineConfig) -> None:
        """Add the scores that the config's reranker lacks, if any; a trial gives such memories a neutral score."""
        if self._score is None or RERANK.is_off(config) or not self.batch.rankings(config).unscored:
            return
        scored = [self._score(evidence, config) for evidence in self.batch.evidences]
        if any(one is not before for one, before in zip(scored, self.batch.evidences, strict=True)):
            evidences = dict(zip(self.batch.qids, scored, strict=True))
            self._encode(LabelledBatch(self.batch.queries, evidences, self._grades))

    def _replayed(self, config: PipelineConfig) -> tuple[NearAgreement, bytes]:
        queries = len(self.batch.queries)
        same, overlap, near = np.zeros(queries, dtype=bool), np.ones(queries), np.ones(queries)
        scores, closeness = 0, 0.0
        digest = hashlib.blake2b()
        for (block, stages), wanted in zip(self.batch.runs(config), self._wanted, strict=True):
            after = stages.of(ASSEMBLY).after
            most = int((after.rank > 0).sum(axis=1).max(initial=0))
            ours = after.leading(most)[:, : self._limit]
            score = np.where(after.alive, after.score, np.nan)
            digest.update(ours.tobytes() + score.tobytes())
            differences = np.abs(score - wanted.scores)
            differences = differences[~np.isnan(differences)]
            scores += int((differences <= self._precision).sum())
            far = np.maximum(differences - self._precision, 0.0) / self._spread
            closeness += float((1.0 - np.minimum(far, 1.0)).sum())
            first, second = wanted.order[:, : self._depth], ours[:, : self._depth]
            both = ((first[:, :, None] == second[:, None, :]) & (first >= 0)[:, :, None]).sum(axis=(1, 2))
            either = (first >= 0).sum(axis=1) + (second >= 0).sum(axis=1) - both
            equal = wanted.same(ours)
            lengths = (wanted.order >= 0).sum(axis=1), (ours >= 0).sum(axis=1)
            close = ~equal & (lengths[0] == lengths[1]) & (both >= CLOSE_OVERLAP * (first >= 0).sum(axis=1))
            for q in np.flatnonzero(close):
                equal[q] = self._tied_at_the_cut(block, stages, config, int(q), ours[q])
            same[block.places] = equal
            overlap[block.places] = np.where(either > 0, both / np.maximum(either, 1), 1.0)
            near[block.places] = np.where(equal, 1.0, rbo(wanted.order[:, :DEPTH], ours[:, :DEPTH]))
        share, closeness = (value / self._recorded if self._recorded else 0.0 for value in (scores, closeness))
        nearness = float(self._weights @ (same + near)) + SCORE_WEIGHT * closeness
        mean = [float(values.mean()) if queries else 0.0 for values in (overlap, near)]
        return NearAgreement(queries, int(same.sum()), mean[0], mean[1], share, nearness), digest.digest()

    def _tied_at_the_cut(self, block: Block, stages: PipelineRun, config: PipelineConfig, q: int, ours: Ints) -> bool:
        """Is the order of a query the recorded one, if equal scores before the last cut may be exchanged?"""
        ids = block.table.ids[q]
        qid = self.batch.qids[int(block.places[q])]
        production, cut = self._productions[qid], self._before_cut.get(qid, {})
        before = stages.of(ASSEMBLY).before if RERANK.is_off(config) else stages.of(RERANK).before
        scores = {ids[int(c)]: float(before.score[q, int(c)]) for c in before.order(q)}
        order = [ids[int(c)] for c in ours if c >= 0]
        return same_up_to_ties(production.recorded, order, production.scores, cut, scores, self._precision)


@dataclass(frozen=True)
class NearestParameters:
    """The changed parameters, (path, value of the start, value), and what they reach from the start's agreement.
    `stopped` says why no more was tried, `headroom` how much nearer anything could come."""

    changes: tuple[tuple[str, Any, Any], ...]
    start: NearAgreement
    reached: NearAgreement
    stopped: str
    headroom: float


def nearest_parameters(
    replays: NearReplays,
    config: PipelineConfig,
    fixed: Collection[str] = (),
    *,
    most_configs: int = MAX_CONFIGS,
    most_changes: int = MAX_CHANGES,
    progress: Progress = silent,
    label: str = "trying parameters",
) -> NearestParameters:
    """The parameters that bring a config closest; `fixed` are paths that stay as they are. `most_configs` bounds the
    configs replayed by this call, `most_changes` the changed parameters beside those of a part. Raises what `progress`
    raises."""
    first = replays.count
    start = replays.agreement(config)
    tuned, now, steps = config, start, 1
    part = best_part(replays, config, fixed)
    if part is not config:
        replays.complete(part)
        if replays.agreement(part).nearness >= start.nearness + MIN_GAIN:
            tuned, now = part, replays.agreement(part)
            steps += 1
    part = tuned
    refused: set[str] = set()
    stopped = ""
    while not stopped:
        if replays.headroom(now) < MIN_GAIN:
            stopped = "nothing is left to gain"
            break
        if len(difference(part, tuned)) >= most_changes:
            stopped = f"{most_changes} parameters are changed"
            break
        found: list[Explanation[NearAgreement]] = []
        specs = [spec for spec in tried_specs(replays, tuned, fixed) if spec.path not in refused]
        for i, spec in enumerate(specs):
            progress(f"{label}, change {steps}", i, len(specs))
            if replays.count - first >= most_configs:
                stopped = f"the limit of {most_configs:,} trials is reached"
                break
            best = best_value(replays, tuned, spec)
            if best is not None and best.agreement.nearness >= now.nearness + MIN_GAIN:
                found.append(best)
        if not found:
            stopped = stopped or f"no parameter gains {MIN_GAIN:g} more"
            break
        path, _, value = min(found, key=worth).changes[0]
        try:
            taken = with_values(tuned, {path: value})
        except InputError:  # allowed alone, not with the others
            refused.add(path)
            continue
        replays.complete(taken)
        reached, now = replays.agreement(taken), replays.agreement(tuned)
        if reached.nearness < now.nearness + MIN_GAIN:  # the gain was of memories without a score
            refused.add(path)
            continue
        tuned = _refined(replays, config, taken)
        now = replays.agreement(tuned)
        steps += 1
    tuned = _without_idle_changes(replays, config, tuned)
    reached = replays.agreement(tuned)
    return NearestParameters(tuple(difference(config, tuned)), start, reached, stopped, replays.headroom(reached))


def _refined(replays: NearReplays, config: PipelineConfig, tuned: PipelineConfig) -> PipelineConfig:
    """The tuned config with the best values of its changed numbers, each searched around its present value, until none gains."""
    for _ in range(MAX_ROUNDS):
        before = tuned
        for path, _, _ in difference(config, tuned):
            spec = field_spec(path)
            if spec.type in (int, float) and tuned.get(path) is not None:
                tuned = _refined_value(replays, tuned, spec)
        if tuned == before:
            break
    return tuned


def _refined_value(replays: NearReplays, tuned: PipelineConfig, spec: FieldSpec) -> PipelineConfig:
    """The config with the best value of a number: steps both ways that halve, from a fraction of the range to the slider's step."""
    least = 1.0 if spec.by_ones else spec.step or 0.01
    step = max(span(spec) * FIRST_STEP, least)
    while True:
        at, now = tuned.get(spec.path), replays.agreement(tuned).nearness
        best = (now + REFINED_GAIN, tuned)
        for value in (on_a_step(spec, at - step), on_a_step(spec, at + step)):
            if spec.cost == "deepen" and value > at:  # other evidence
                continue
            try:
                other = with_values(tuned, {spec.path: value})
            except InputError:  # out of range
                continue
            if (reached := replays.agreement(other).nearness) > best[0]:
                best = (reached, other)
        if best[1] is not tuned:
            tuned = best[1]
        elif step <= least:
            return tuned
        else:
            step = max(step / 2, least)


def _without_idle_changes(replays: NearReplays, config: PipelineConfig, tuned: PipelineConfig) -> PipelineConfig:
    """The tuned config without the changes that the others made superfluous, smallest loss first."""
    while changes := difference(config, tuned):
        now = replays.agreement(tuned).nearness
        without = []
        for path, was, _ in changes:
            try:
                less = with_values(tuned, {path: was})
            except InputError:
                continue
            without.append((round(now - replays.agreement(less).nearness, 9), path, less))
        if not without or min(without)[0] >= MIN_GAIN / 2:
            return tuned
        tuned = min(without)[2]
    return tuned


def parts_of(config: PipelineConfig, fixed: Collection[str] = ()) -> Iterator[PipelineConfig]:
    """The config without its reranker, and with each of its lists alone, with and without the reranker."""
    lists = [name for name in SOURCES if config.get(f"lists.{name}.enabled")]
    off = {name: f"lists.{name}.enabled" for name in lists}
    alone: list[dict[str, Any]] = [{off[other]: False for other in lists if other != name} for name in lists]
    unranked: dict[str, Any] = {} if RERANK.is_off(config) else {"rerank.backend": "none"}
    tried = [unranked, *alone, *({**one, **unranked} for one in alone)] if len(lists) > 1 else [unranked]
    seen = {config}
    for changes in tried:
        if not changes or any(path in fixed for path in changes):
            continue
        try:
            part = with_values(config, changes)
        except InputError:
            continue
        if part not in seen:
            seen.add(part)
            yield part


def best_part(replays: NearReplays, config: PipelineConfig, fixed: Collection[str] = ()) -> PipelineConfig:
    """The nearest of a config and its parts, with the fewest changes of equal ones; one that needs other evidence is left out."""
    best, near = config, replays.agreement(config).nearness
    for part in parts_of(config, fixed):
        if not replays.batch.unmet(part) and (reached := replays.agreement(part).nearness) > near + MIN_GAIN:
            best, near = part, reached
    return best


def tried_specs(replays: NearReplays, config: PipelineConfig, fixed: Collection[str]) -> Iterator[FieldSpec]:
    """The parameters that are tried under a config: those of replay that act, and switches and choices whose evidence is there."""
    idle = idle_parameters(config)
    for spec in searched_specs():
        if spec.path not in fixed and spec.path not in idle:
            yield spec
    for spec in field_specs():
        if spec.cost != "gather" or spec.section not in SWITCHED_SECTIONS or spec.path in fixed or spec.path in idle:
            continue
        if spec.type is not bool and len(spec.choices) < 2:
            continue
        now = config.get(spec.path)
        values = [not now] if spec.type is bool else [choice for choice in spec.choices if choice != now]
        # A choice whose every value has its evidence is tried whole; of others only the value "none", which asks for nothing.
        served = [value for value in values if not replays.batch.unmet(changed(config, spec.path, value))]
        if spec.path == "rerank.backend":
            served = [value for value in served if value == "none"]
        if served:
            yield replace(spec, choices=tuple(served)) if spec.choices else spec
