"""The search for changes that bring one memory in: a change of one parameter by replay, then what needs a new search, then two together.

    read      with the store, the scores that decide what reading further does: of the memory, and of all that are ranked before it, at
              most `MAX_READ`; so rerank.depth and its like are replayed with measured scores
    singles   every parameter that replay reads, each alone
    sentence  of a long query the last sentence alone
    causes    the parameters that the cause names, also those that need a new search; with results of one document, dedup and MMR
    others    if nothing helped yet: deeper lists, then other new searches, then pairs, then a new search with one parameter
    words     last, if nothing else helped: words of the memory itself, which help this query only

What was found without some of the reranker's scores is replayed with them (`with_scores`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from cems_workbench.analysis.why.causes import DIVERSITY
from cems_workbench.analysis.why.counterfactual import (
    Counterfactual,
    SuccessfulValue,
    attempts,
    counterfactual_of,
    distance,
    nearest_value,
    pair_counterfactuals,
    searched_specs,
    single_counterfactuals,
    supersession_counterfactuals,
    with_scores,
)
from cems_workbench.analysis.why.path import MemoryPath
from cems_workbench.analysis.why.regather import (
    Missed,
    cause_tries,
    depth_tries,
    gather_counterfactuals,
    other_tries,
    sentence_tries,
    with_a_parameter,
    word_tries,
)
from cems_workbench.analysis.why.trial import Trials, changed
from cems_workbench.config import PipelineConfig, field_spec, field_specs, with_values
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.gather import Request, gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import FILTER, RERANK
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.progress import Progress, silent

MAX_READ = 100
"""Most candidates before the memory that the reranker reads for a search of changes."""


@dataclass(frozen=True)
class Found:
    """The changes that succeed, and those that came near; `tried` parameters by replay, `searches` that were made again."""

    changes: list[Counterfactual]
    near: list[Counterfactual]
    tried: int
    searches: int
    replays: int

    @property
    def untried(self) -> str:
        """ "118 that need a new search, 5 that are lists or texts": the parameters that were not tried."""
        single = {spec.path for spec in searched_specs()}
        rest = [spec for spec in field_specs() if spec.path not in single and spec.section != "judge"]
        gather = sum(spec.cost == "gather" for spec in rest) - self.searches
        other = sum(spec.cost != "gather" for spec in rest)
        return f"{gather} that need a new search, and {other} that hold lists"


def search_changes(
    trials: Trials,
    config: PipelineConfig,
    path: MemoryPath,
    causes: Collection[str],
    open_store: tuple[Request, Resources] | None,
    progress: Progress = silent,
) -> Found:
    """The changes that bring the memory of `trials` in, in no order; `causes` are parameters that made the loss."""
    if open_store:
        trials = read_further(trials, config, path, open_store[1], progress)
    there = trials.column is not None
    found, active = single_counterfactuals(trials, config, progress) if there else ([], [])
    found += supersession_counterfactuals(trials, config, found)
    found += _cause_counterfactuals(trials, config, causes) if there else []
    missed: list[Missed] = []
    near: list[Counterfactual] = []
    searches = 0

    def gather(tries: Iterable[Counterfactual]) -> None:
        nonlocal searches
        assert open_store is not None
        listed = list(tries)
        searches += len({tuple(one.values) for one in listed})
        good, bad = gather_counterfactuals(trials, config, *open_store, listed, progress)
        found.extend(good)
        missed.extend(bad)

    if open_store:
        gather(cause_tries(trials, config, causes))
        gather(sentence_tries(trials, config, open_store[0]))
        if not found or path.status == "in no list":
            gather(depth_tries(trials, config, open_store[0], path.places))
        if not found:
            gather(other_tries(trials, config, causes, path.places))
    if not found and there:
        tried = attempts(trials, config, active)
        found += pair_counterfactuals(trials, config, tried, progress)
        near += [
            counterfactual_of(trials, config, [SuccessfulValue(best.spec, best.value, best.distance, None)])
            for best in tried[:1]
        ]
    if open_store:
        score = partial(_scored, open_store[1], trials.switched_off, progress)
        found = with_scores(found or with_a_parameter(missed, trials, config, score, progress), trials, config, score)
        if not found:
            gather(word_tries(trials, config, open_store[1]))
    near += [one for one, _ in missed]
    found = [
        replace(one, of_cause=bool(one.values) and set(one.values) <= set(causes))
        for one in found
        if _holds(one, trials.k)
    ]
    return Found(found, near, len(searched_specs()), searches, trials.count)


def _holds(change: Counterfactual, k: int) -> bool:
    """Whether it was replayed with the memory among the first k, as a search shows it."""
    return change.rank is not None and change.rank <= k


def read_further(
    trials: Trials, config: PipelineConfig, path: MemoryPath, resources: Resources, progress: Progress = silent
) -> Trials:
    """The trials with the reranker's scores of the memory and, if they are at most `MAX_READ`, of all candidates before it.

    The same ones where the reranker is off, or failed to read one of them.
    """
    if RERANK.is_off(config) or trials.column is None:
        return trials
    before = path.step(FILTER.name)
    deeper, limits = config, {}
    if before is not None and before.rank is not None and config.rerank.depth is not None:
        limits = {
            "rerank.depth": max(config.rerank.depth, before.rank),
            "rerank.score_window": 1.0,
            "rerank.brief.total_chars": field_spec("rerank.brief.total_chars").high,
        }
        every = {"rerank.position": "before_adjust", "rerank.expected_misses": None, "rerank.skip_if_few": False}
        deeper = with_values(config, limits | every)
    if trials.needs(deeper) > MAX_READ:
        deeper, limits = config, {}
    known, key = trials.evidence, model_key(config.rerank)
    evidence = gather_scores(
        known,
        deeper,
        resources,
        progress,
        only="rerank",
        switched_off=trials.switched_off,
        also=[trials.memory_id],
    )
    fresh = evidence.model_scores.get(key, {}).keys() - known.model_scores.get(key, {}).keys()
    if not all(evidence.model_scores[key][one].good for one in fresh):
        return trials
    further = trials.on(evidence) if fresh else trials
    further.gathered = {**trials.gathered, **limits}
    return further


def _cause_counterfactuals(trials: Trials, config: PipelineConfig, causes: Collection[str]) -> Iterator[Counterfactual]:
    """Causes that no slider has: a list of names is emptied; a switch for diversity is turned on, and what acts with it searched."""
    for path in sorted(causes):
        now = config.get(path)
        names = isinstance(now, tuple) and bool(now) and all(isinstance(one, str) for one in now)
        if names and trials.succeeds(changed(config, path, ())):
            spec = field_spec(path)
            yield counterfactual_of(trials, config, [SuccessfulValue(spec, (), distance(spec, None, ()), None)])
    for (path, value), further in DIVERSITY.items():
        on = changed(config, path, value)
        if path not in causes or trials.succeeds(on):
            continue
        switch = [] if on == config else [SuccessfulValue(field_spec(path), value, 1.0, None)]
        for own in further:
            hit = nearest_value(trials, on, field_spec(own))
            if hit is not None and switch:
                yield counterfactual_of(trials, config, [*switch, hit])


def _scored(
    resources: Resources, switched_off: Collection[int], progress: Progress, evidence: Evidence, config: PipelineConfig
) -> Evidence:
    return gather_scores(evidence, config, resources, progress, only="rerank", switched_off=switched_off)
