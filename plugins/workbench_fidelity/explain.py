"""Explanations of production's answer: a preset, or another value of one replay parameter.

Each is replayed on the same evidence and kept if it brings our results closer to production's: of one query by the rank-biased
overlap of the two orders, cut to production's length; of a set by the number of queries in exactly production's order, and if that is
equal by the mean overlap. Values of a number are those that `why` tries, on the slider's steps, and once more between
the neighbours of the best. `combined_changes` continues from the best one, a parameter at a time, while that helps.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from cems_workbench.analysis.why.counterfactual import distance, ends, others, searched_specs, walks
from cems_workbench.config import FieldSpec, PipelineConfig, preset, preset_names, with_values
from cems_workbench.config.model import changed
from cems_workbench.errors import InputError
from cems_workbench.evaluation.metrics import rbo
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.missing_evidence import unmet
from cems_workbench.pipeline.replay import run, single_table, to_table
from cems_workbench.pipeline.stages import ASSEMBLY
from cems_workbench.progress import Progress, silent
from workbench_fidelity.lists import Agreement, agreement


class Near(Protocol):
    """Closeness of results to production's; higher is closer."""

    @property
    def nearness(self) -> float: ...


NearT = TypeVar("NearT", bound=Near, covariant=True)


class Trials(ABC, Generic[NearT]):
    """Results under many configs, compared with production's; each config is replayed once."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: dict[PipelineConfig, tuple[NearT, bytes]] = {}

    @abstractmethod
    def _replayed(self, config: PipelineConfig) -> tuple[NearT, bytes]:
        """How far the results of a config agree with production's, and bytes that tell other results or scores apart."""

    def _outcome(self, config: PipelineConfig) -> tuple[NearT, bytes]:
        if config not in self._kept:
            self.count += 1
            self._kept[config] = self._replayed(config)
        return self._kept[config]

    def agreement(self, config: PipelineConfig) -> NearT:
        """How far the results of a config agree with production's."""
        return self._outcome(config)[0]

    def acts(self, config: PipelineConfig, spec: FieldSpec) -> bool:
        """Does turning this parameter all the way change any result or its score?"""
        now = self._outcome(config)[1]
        return any(self._outcome(changed(config, spec.path, value))[1] != now for value in ends(spec, config))


MIN_GAIN = 1e-6
WORTHWHILE_GAIN = 0.005
"""Minimum gain in rank-biased overlap for another parameter."""
SUBDIVISIONS = 6
MAX_STEPS = 3
DEPTH = 10
"""Depth of the overlap that decides between equal numbers of same orders."""


@dataclass(frozen=True, slots=True)
class Explanation(Generic[NearT]):
    """Changed parameters, or a whole preset, and the agreement that results. `gathers`: the preset also needs other
    evidence, so that only its replay parameters are tested here."""

    changes: tuple[tuple[str, Any, Any], ...]
    agreement: NearT
    distance: float
    preset: str | None = None
    gathers: bool = False


class Replays(Trials[Agreement]):
    """Our results under many configs, for one evidence and one answer of production's."""

    def __init__(self, production: Sequence[str], evidence: Evidence, switched_off: Collection[int] = ()) -> None:
        super().__init__()
        self.production, self.evidence = list(production), evidence
        self.off = tuple(sorted(switched_off))
        self.table = single_table(evidence)

    def _replayed(self, config: PipelineConfig) -> tuple[Agreement, bytes]:
        after = run(self.table, config, self.off).of(ASSEMBLY).after
        order = after.order(0)
        ids = [self.table.ids[0][int(c)] for c in order]
        return agreement(self.production, ids), order.tobytes() + after.score[0, order].tobytes()


@dataclass(frozen=True, slots=True)
class SetAgreement:
    """How many of `queries` queries have exactly production's order, and the mean rank-biased overlap."""

    queries: int
    same_order: int
    rbo: float

    @property
    def nearness(self) -> float:
        """One more query in the same order counts as closer, regardless of overlap elsewhere."""
        return self.same_order + self.rbo


class SetReplays(Trials[SetAgreement]):
    """Our results under many configs, for the evidence of a set and production's answer to each query; replayed as one
    batch. `limits`: lengths to cut our results to, None for uncut ones."""

    def __init__(
        self, production: Sequence[Sequence[str]], evidences: Sequence[Evidence], limits: Sequence[int | None]
    ) -> None:
        super().__init__()
        self.table = to_table(evidences)
        width = self.table.shape[1]
        self._limits = np.array([width if limit is None else limit for limit in limits], dtype=np.int64)[:, None]
        longest = max((len(order) for order in production), default=0)
        self._wanted = np.full((len(production), longest), -1, dtype=np.int64)
        for q, order in enumerate(production):
            column = {memory_id: c for c, memory_id in enumerate(self.table.ids[q])}
            self._wanted[q, : len(order)] = [column.get(key, width + i) for i, key in enumerate(order)]

    def _replayed(self, config: PipelineConfig) -> tuple[SetAgreement, bytes]:
        after = run(self.table, config).of(ASSEMBLY).after
        order = after.leading(int((after.rank > 0).sum(axis=1).max(initial=0)))
        order = np.where(np.arange(order.shape[1])[None, :] < self._limits, order, -1)
        score = np.where(after.alive, after.score, 0.0)
        depth = max(order.shape[1], self._wanted.shape[1])
        ours, theirs = (
            np.pad(rows, ((0, 0), (0, depth - rows.shape[1])), constant_values=-1) for rows in (order, self._wanted)
        )
        same = int((ours == theirs).all(axis=1).sum())
        overlap = rbo(theirs[:, :DEPTH], ours[:, :DEPTH])
        found = SetAgreement(len(order), same, float(overlap.mean()) if len(order) else 1.0)
        return found, hashlib.blake2b(order.tobytes() + score.tobytes()).digest()


def explanations(replays: Replays, config: PipelineConfig, progress: Progress = silent) -> list[Explanation[Agreement]]:
    """Changes that bring our results closer to production's, the best first: presets, and single parameters with their best value."""
    now = replays.agreement(config)
    presets: list[Explanation[Agreement]] = []
    for name in preset_names():
        of = preset(name).config
        gathers = bool(unmet(of, replays.evidence.notes, replays.evidence.in_brief))
        presets.append(Explanation((), replays.agreement(of), 1.0, name, gathers))
    nearer = [one for one in presets if one.agreement.nearness > now.nearness + MIN_GAIN]
    return sorted([*nearer, *single_changes(replays, config, progress)], key=worth)


def single_changes(
    replays: Trials[NearT], config: PipelineConfig, progress: Progress = silent
) -> list[Explanation[NearT]]:
    """The single parameters that bring our results closer to production's, each with its best value, the best first."""
    now = replays.agreement(config)
    found = []
    specs = searched_specs()
    for i, spec in enumerate(specs):
        progress("trying parameters", i, len(specs))
        best = best_value(replays, config, spec)
        if best is not None and best.agreement.nearness > now.nearness + MIN_GAIN:
            found.append(best)
    progress("trying parameters", len(specs), len(specs))
    return sorted(found, key=worth)


def combined_changes(
    replays: Trials[NearT], config: PipelineConfig, first: Explanation[NearT], progress: Progress = silent
) -> Explanation[NearT] | None:
    """The best single change and up to two more on top of it, each the best at that point; None if a second one adds nothing."""
    if first.preset is not None:
        return None
    changes, reached = list(first.changes), first
    tuned = with_values(config, {path: value for path, _, value in changes})
    while len(changes) < MAX_STEPS:
        taken = {path for path, _, _ in changes}
        singles = []
        specs = [spec for spec in searched_specs() if spec.path not in taken]
        for i, spec in enumerate(specs):
            progress(f"trying a {('second', 'third')[len(changes) - 1]} parameter", i, len(specs))
            best = best_value(replays, tuned, spec)
            singles += [best] if best is not None else []
        best = min(singles, key=worth, default=None)
        if best is None or best.agreement.nearness < reached.agreement.nearness + WORTHWHILE_GAIN:
            break
        changes += best.changes
        reached = Explanation(tuple(changes), best.agreement, reached.distance + best.distance)
        tuned = with_values(tuned, {path: value for path, _, value in best.changes})
    return reached if len(changes) > 1 else None


def worth(one: Explanation[Near]) -> tuple[float, int, float, str]:
    return -round(one.agreement.nearness, 9), len(one.changes), one.distance, one.preset or one.changes[0][0]


def best_value(replays: Trials[NearT], config: PipelineConfig, spec: FieldSpec) -> Explanation[NearT] | None:
    """The value of one parameter that agrees best, the nearest of several; None if no value has an effect."""
    if not replays.acts(config, spec):
        return None
    now = config.get(spec.path)
    tried = dict.fromkeys(_values(config, spec))
    found = [one for value in tried if (one := _of_value(replays, config, spec, value)) is not None]
    best = min(found, key=worth, default=None)
    if best is None or spec.type not in (int, float) or best.changes[0][2] is None:
        return best
    at = best.changes[0][2]
    numbers = sorted({value for value in [*tried, now] if value is not None})
    place = numbers.index(at)
    for low, high in zip(numbers[max(0, place - 1) : place + 1], numbers[place : place + 2], strict=False):
        for step in range(1, SUBDIVISIONS):
            value = on_a_step(spec, low + (high - low) * step / SUBDIVISIONS)
            if value not in tried and value != now and low < value < high:
                finer = _of_value(replays, config, spec, value)
                found += [finer] if finer is not None else []
    return min(found, key=worth)


def _values(config: PipelineConfig, spec: FieldSpec) -> Iterator[Any]:
    now = config.get(spec.path)
    if spec.type in (int, float):
        for walk in walks(spec, config):
            yield from (value for raw in walk if (value := on_a_step(spec, raw)) != now)
    yield from others(spec, config)


def on_a_step(spec: FieldSpec, value: float) -> Any:
    if spec.by_ones:
        return round(value)
    step = spec.step or 0.01
    return round(round(value / step) * step, 10)


def _of_value(replays: Trials[NearT], config: PipelineConfig, spec: FieldSpec, value: Any) -> Explanation[NearT] | None:
    """None for a value that the config does not allow, alone or in combination."""
    found = replays.agreement(changed(config, spec.path, value))
    now = config.get(spec.path)
    one = Explanation(((spec.path, now, value),), found, distance(spec, now, value))
    if found.nearness <= replays.agreement(config).nearness + MIN_GAIN:
        return one
    try:
        with_values(config, {spec.path: value})
    except InputError:
        return None
    return one
