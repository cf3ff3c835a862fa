"""Counterfactuals that need a gather: deeper lists, another route or filter, choices of a list, an expansion term of the memory.

Each is actually gathered, without language model and judge, and replayed; only a change that then puts it in the top k is a
counterfactual. Terms are rare ones of the memory itself that the query lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cems_workbench.analysis.why.counterfactual import (
    Counterfactual,
    bisected,
    change_of,
    distance,
    others,
    round_values,
    single_counterfactuals,
)
from cems_workbench.analysis.why.path import ListEntry, source_of
from cems_workbench.analysis.why.side_effects import side_effects
from cems_workbench.analysis.why.trial import Trials, changed
from cems_workbench.config import FieldSpec, PipelineConfig, field_spec, field_specs, with_values
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.gather import Request, gather_lists, gather_scores
from cems_workbench.pipeline.missing_evidence import gather_parameters
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.store.search.lexical.tokenizer import chunks, terms_of

MAX_RARE_TERMS, MAX_TERMS = 16, 4
"""Number of the memory's rarest words that are compared with the query, and of those that are tried."""

CHOICES: tuple[tuple[str, Any], ...] = (
    ("query.mode", "hybrid"),
    ("query.mode", "vector"),
    ("query.scope", "both"),
    ("query.detectors.matching", "word"),
    ("query.detectors.enabled", False),
    ("query.conversational.enabled", False),
    ("query.typo_correction.enabled", True),
    ("lists.candidate_set.mode", "all"),
    ("expansion.backend", "feedback"),
    ("expansion.backend", "dictionary"),
)
"""Values of gather parameters that need no model beyond the embedder."""

PROMISING = 2
MAX_COUNTERFACTUALS = 5

NO_LEARNING = {"query.typo_correction.auto_learn": False, "query.typo_correction.validate": False}
"""Values that keep a trial from changing the store."""


Missed = tuple[Counterfactual, Evidence]
"""A gather change that does not succeed, and what it gathered."""


def gather_counterfactuals(
    trials: Trials,
    config: PipelineConfig,
    request: Request,
    resources: Resources,
    tries: Sequence[Counterfactual],
    progress: Progress = silent,
) -> tuple[list[Counterfactual], list[Missed]]:
    """Those of `tries` that succeed, and those that do not, nearest first."""
    counterfactuals: list[Counterfactual] = []
    missed: list[Missed] = []
    for i, attempt in enumerate(tries):
        progress("gathering again", i, len(tries))
        evidence = gathered(attempt, config, request, resources)
        inner = trials.on(evidence)
        if inner.succeeds(attempt.config(config)):
            counterfactuals.append(_measured(_least(attempt, inner, config), trials, inner, config))
        else:
            missed.append((_measured(attempt, trials, inner, config), evidence))
    progress("gathering again", len(tries), len(tries))
    missed.sort(key=lambda one: (one[0].rank is None, one[0].place is None, one[0].place or 0))
    return counterfactuals, missed


def with_a_parameter(
    missed: Sequence[Missed],
    trials: Trials,
    config: PipelineConfig,
    score: Callable[[Evidence, PipelineConfig], Evidence],
    progress: Progress = silent,
) -> list[Counterfactual]:
    """At most `MAX_COUNTERFACTUALS`, each one of the `PROMISING` nearest gather changes plus one parameter replayed on its evidence.

    A breakpoint holds on that evidence; `score` returns it with the scores that a config lacks.
    """
    counterfactuals = []
    for counterfactual, evidence in missed[:PROMISING]:
        after = counterfactual.config(config)
        inner = trials.on(evidence)
        if inner.column is None:
            continue
        for further in single_counterfactuals(inner, after, progress)[0]:
            both = replace(counterfactual, changes=(*counterfactual.changes, *further.changes))
            scored = inner.on(score(evidence, both.config(config))) if further.needs else inner
            if scored.succeeds(both.config(config)):
                counterfactuals.append(_measured(both, trials, scored, config))
    return sorted(counterfactuals, key=lambda counterfactual: (counterfactual.distance, str(counterfactual.values)))[
        :MAX_COUNTERFACTUALS
    ]


def cause_tries(trials: Trials, config: PipelineConfig, causes: Collection[str]) -> Iterator[Counterfactual]:
    """Of the parameters that made the loss, the other values of choices and switches that only gathering reads.

    No other model is asked: of a backend only "none" is tried.
    """
    for path in sorted(causes):
        for one in _choices(trials, config, field_spec(path)):
            if path.split(".")[0] not in ("rerank", "judge", "expansion") or one.values[path] == "none":
                yield one


def depth_tries(
    trials: Trials, config: PipelineConfig, request: Request, places: Sequence[ListEntry]
) -> Iterator[Counterfactual]:
    """Depths at which a list would hold the memory, and the search of every project."""
    for values in shallowest(places):
        yield _try(trials, config, values)
    if request.only_project:
        yield replace(_try(trials, config, {}), everywhere=True)


LONG_WORDS, LAST_SHARE = 25, 1 / 3
"""Words from which a query is long, and the largest share of them that its last sentence has where the rest may be an envelope."""
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n+")


def sentence_tries(trials: Trials, config: PipelineConfig, request: Request) -> Iterator[Counterfactual]:
    """The last sentence of a long query alone: the rest may be the envelope of a message."""
    words = request.query.split()
    last = next((part for part in reversed(_SENTENCE_END.split(request.query)) if part.strip()), "").strip()
    if not request.searched and len(words) >= LONG_WORDS and 2 < len(last.split()) <= LAST_SHARE * len(words):
        yield replace(_try(trials, config, {}), searched=last)


def other_tries(
    trials: Trials, config: PipelineConfig, causes: Collection[str], places: Sequence[ListEntry]
) -> Iterator[Counterfactual]:
    """Choices that need no model, and those of the lists by words that are on and lack the memory."""
    known = gather_parameters(config)
    for path, value in CHOICES:
        if config.get(path) != value and path in known and path not in causes:
            yield _try(trials, config, {path: value})
    lacking = tuple(f"lists.{source_of(place)}." for place in places if not place.returned)
    for spec in field_specs():
        name, own = spec.path.split(".")[1], spec.path.split(".")[-1]
        here = spec.path.startswith(lacking) and name != "vector" and own != "enabled" and spec.path not in causes
        if here and config.get(f"lists.{name}.enabled"):
            yield from _choices(trials, config, spec)


def _choices(trials: Trials, config: PipelineConfig, spec: FieldSpec) -> Iterator[Counterfactual]:
    if spec.cost == "gather" and (spec.choices or spec.type is bool):
        for value in others(spec, config):
            yield _try(trials, config, {spec.path: value})


def word_tries(trials: Trials, config: PipelineConfig, resources: Resources) -> Iterator[Counterfactual]:
    """Words of the memory, searched for beside the query."""
    backend = config.expansion.backend
    if backend in ("none", "manual"):
        switch = {"expansion.backend": "manual"} if backend == "none" else {}
        for term in own_terms(trials, resources):
            yield replace(_try(trials, config, switch), terms=(term,))


def _try(trials: Trials, config: PipelineConfig, values: Mapping[str, Any]) -> Counterfactual:
    changes = tuple(change_of(config, path, value) for path, value in values.items())
    return Counterfactual(changes, None, side_effects((), (), trials.memory_id), gathers=True)


def shallowest(places: Sequence[ListEntry]) -> list[Mapping[str, Any]]:
    """The depths at which some list would contain the memory; the least per set of parameters."""
    least: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for values in (values for place in places for values in place.deeper):
        known = least.setdefault(tuple(values), values)
        if tuple(values.values()) < tuple(known.values()):
            least[tuple(values)] = values
    return list(least.values())


def _least(counterfactual: Counterfactual, inner: Trials, config: PipelineConfig) -> Counterfactual:
    """One depth that succeeds, minimised: lower depths are replayed on the evidence gathered for it."""
    if (
        len(counterfactual.changes) != 1
        or counterfactual.parts != 1
        or field_spec(counterfactual.changes[0].path).cost != "deepen"
    ):
        return counterfactual
    change = counterfactual.changes[0]
    spec = field_spec(change.path)
    if spec.type not in (int, float) or change.was is None or inner.succeeds(config):
        return counterfactual
    point = bisected(lambda value: inner.succeeds(changed(config, change.path, value)), spec, change.was, change.now)
    rounded = [value for value in round_values(spec, point) if inner.succeeds(changed(config, change.path, value))]
    now = rounded[0] if rounded else point.succeeds
    least = replace(change, now=now, distance=distance(spec, change.was, point.succeeds), breakpoint=point)
    return replace(counterfactual, changes=(least,))


def own_terms(trials: Trials, resources: Resources) -> list[str]:
    """The memory's rarest words, as written, nearest in meaning to the query: `MAX_TERMS` of `MAX_RARE_TERMS`.

    A rare word finds the memory and little else; one near to the query is one that a user could have
    typed. The query's own words are left out, and numbers. Ties fall by the order in the memory.
    """
    memory = resources.store.memories.get(trials.memory_id)
    if memory is None:
        return []
    searched = trials.evidence.searched
    spoken = resources.store.language.current
    known = {term for chunk in chunks(searched) for term in terms_of(chunk, spoken)}
    frequency: dict[str, int] = {}
    for chunk in chunks(resources.store.texts.of(memory)):
        terms = terms_of(chunk, spoken)
        if len(terms) == 1 and terms[0] not in known and chunk.isalpha() and len(chunk) > 2:
            frequency.setdefault(chunk.lower(), resources.indexes.lexical.document_frequency(terms[0]))
    rarest = sorted(frequency, key=lambda word: frequency[word])[:MAX_RARE_TERMS]
    query = resources.embedder.encode_query(searched)
    near = {word: float(resources.embedder.encode_query(word) @ query) for word in rarest}
    return sorted(rarest, key=lambda word: -round(near[word], 6))[:MAX_TERMS]


def gathered(
    counterfactual: Counterfactual, config: PipelineConfig, request: Request, resources: Resources
) -> Evidence:
    """The evidence that a counterfactual needs, as of the same moment, with the scores its reranker needs."""
    after = counterfactual.config(config)
    evidence = gather_lists(counterfactual.request(request), with_values(after, NO_LEARNING), resources)
    return gather_scores(evidence, after, resources, only="rerank")


def _measured(counterfactual: Counterfactual, trials: Trials, inner: Trials, config: PipelineConfig) -> Counterfactual:
    """The counterfactual with its effect on the evidence of `inner`, compared with the current results."""
    after = counterfactual.config(config)
    outcome = inner.shown(after)
    moved = side_effects(trials.shown(config).results, outcome.results, trials.memory_id)
    above = inner.stale_above(after)
    return replace(counterfactual, rank=outcome.rank, place=outcome.stood, side_effects=moved, stale_above=above)
